// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups that the application has made: one row each, in chunks that never move.

use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64, compiler_fence};

/// Number of rows of the first chunk; each further chunk has twice as many as the one before.
pub const FIRST_GROUP_ROWS: usize = 16;

/// Maximum number of chunks of a table. Together the chunks have more rows than there can be handles.
pub const GROUP_CHUNKS: usize = 16;

/// The table of groups.
#[derive(Debug)]
#[repr(C)]
pub struct GroupTable {
    /// The addresses of the chunks; the first 0 ends the table.
    pub(crate) chunks: [AtomicU64; GROUP_CHUNKS],
}

impl Default for GroupTable {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupTable {
    /// A table without rows.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            chunks: [const { AtomicU64::new(0) }; GROUP_CHUNKS],
        }
    }

    /// Publishes a chunk. The chunk must not move as long as the table exists.
    pub fn add_chunk(&self, number: usize, rows: &[GroupRow]) {
        assert_eq!(
            rows.len(),
            FIRST_GROUP_ROWS << number,
            "rows of chunk {number}"
        );
        let address = rows.as_ptr().addr() as u64;
        // PAIR(chunk-table): a reader that reads the address finds free rows there.
        crate::publish(|| self.chunks[number].store(address, Relaxed));
    }
}

/// One group.
#[derive(Debug, Default)]
#[repr(C)]
pub struct GroupRow {
    /// Odd while the row is being changed.
    pub(crate) version: AtomicU32,
    /// Number of the group's handle; 0: the row is free.
    pub(crate) handle: AtomicU32,
    /// Number of processes in the group.
    pub(crate) size: AtomicU32,
    reserved: u32,
    /// Address of the world ranks of the group's processes, four bytes each; 0 if the ranks equal the world ranks.
    pub(crate) members: AtomicU64,
}

impl GroupRow {
    /// Fills the row of a new group. `handle` is not 0. `members` is the address of the world ranks; these must not
    /// move until the row is closed.
    pub fn fill(&self, handle: u32, size: u32, members: u64) {
        self.change(|| {
            self.size.store(size, Relaxed);
            self.members.store(members, Relaxed);
            self.handle.store(handle, Relaxed);
        });
    }

    /// Frees the row.
    pub fn close(&self) {
        self.change(|| self.handle.store(0, Relaxed));
    }

    fn change(&self, change: impl FnOnce()) {
        crate::comm::add(&self.version, 1);
        // PAIR(row-version): the change lies between two fences of the compiler.
        compiler_fence(Ordering::SeqCst);
        change();
        // PAIR(row-version): the second fence.
        compiler_fence(Ordering::SeqCst);
        crate::comm::add(&self.version, 1);
    }
}

const _: () = assert!(size_of::<GroupRow>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_values_until_it_is_closed() {
        let row = GroupRow::default();
        row.fill(77, 3, 0x1000);
        let word = |word: &AtomicU32| word.load(Relaxed);
        assert_eq!((word(&row.version), word(&row.handle)), (2, 77));
        assert_eq!((word(&row.size), row.members.load(Relaxed)), (3, 0x1000));
        row.close();
        assert_eq!((word(&row.version), word(&row.handle)), (4, 0));
    }
}
