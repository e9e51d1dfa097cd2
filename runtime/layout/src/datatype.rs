// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datatypes that the application made: one row each, in chunks that never move.

use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, compiler_fence};

/// Number of rows of the first chunk; each further chunk has twice as many as the one before.
pub const FIRST_TYPE_ROWS: usize = 16;

/// Maximum number of chunks of a table. Together the chunks have more rows than there can be handles.
pub const TYPE_CHUNKS: usize = 16;

/// Room for a datatype's name in bytes, with the terminating zero.
pub const TYPE_NAME_BYTES: usize = 64;

/// The table of datatypes.
#[derive(Debug)]
#[repr(C)]
pub struct TypeTable {
    /// The addresses of the chunks; the first 0 ends the table.
    pub(crate) chunks: [AtomicU64; TYPE_CHUNKS],
}

impl Default for TypeTable {
    fn default() -> Self {
        Self::new()
    }
}

impl TypeTable {
    /// A table without rows.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            chunks: [const { AtomicU64::new(0) }; TYPE_CHUNKS],
        }
    }

    /// Publishes a chunk. The chunk must not move as long as the table exists.
    pub fn add_chunk(&self, number: usize, rows: &[TypeRow]) {
        assert_eq!(
            rows.len(),
            FIRST_TYPE_ROWS << number,
            "rows of chunk {number}"
        );
        let address = rows.as_ptr().addr() as u64;
        // PAIR(chunk-table): a reader that reads the address finds free rows there.
        crate::publish(|| self.chunks[number].store(address, Relaxed));
    }
}

/// One datatype.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TypeRow {
    /// Odd while the row is being changed.
    pub(crate) version: AtomicU32,
    /// Number of the datatype's handle; 0: the row is free.
    pub(crate) handle: AtomicU32,
    /// Whether the datatype is committed.
    pub(crate) committed: AtomicU32,
    reserved: u32,
    /// Bytes of the data of one element.
    pub(crate) bytes: AtomicU64,
    /// Bytes from one element to the next.
    pub(crate) extent: AtomicI64,
    /// Name of the datatype, terminated by a zero.
    pub(crate) name: [AtomicU8; TYPE_NAME_BYTES],
}

/// Data about a datatype.
#[derive(Clone, Copy, Debug)]
pub struct TypeFacts<'a> {
    /// Number of the datatype's handle, which is not 0.
    pub handle: u32,
    /// Whether the datatype is committed.
    pub committed: bool,
    /// Bytes of the data of one element.
    pub bytes: u64,
    /// Bytes from one element to the next.
    pub extent: i64,
    /// Name of the datatype; truncated between two characters if it does not fit.
    pub name: &'a str,
}

impl Default for TypeRow {
    fn default() -> Self {
        Self::free()
    }
}

impl TypeRow {
    /// The row of a predefined datatype.
    #[must_use]
    pub const fn predefined(facts: &TypeFacts<'_>) -> Self {
        let mut row = Self::free();
        row.handle = AtomicU32::new(facts.handle);
        row.committed = AtomicU32::new(facts.committed as u32);
        row.bytes = AtomicU64::new(facts.bytes);
        row.extent = AtomicI64::new(facts.extent);
        let name = facts.name.as_bytes();
        assert!(name.len() < TYPE_NAME_BYTES, "a name of the standard's");
        let mut at = 0;
        while at < name.len() {
            row.name[at] = AtomicU8::new(name[at]);
            at += 1;
        }
        row
    }

    /// A row without a datatype.
    #[must_use]
    pub const fn free() -> Self {
        Self {
            version: AtomicU32::new(0),
            handle: AtomicU32::new(0),
            committed: AtomicU32::new(0),
            reserved: 0,
            bytes: AtomicU64::new(0),
            extent: AtomicI64::new(0),
            name: [const { AtomicU8::new(0) }; TYPE_NAME_BYTES],
        }
    }

    /// Fills the row of a datatype that was made or changed.
    pub fn fill(&self, facts: &TypeFacts<'_>) {
        self.change(|| {
            self.committed.store(u32::from(facts.committed), Relaxed);
            self.bytes.store(facts.bytes, Relaxed);
            self.extent.store(facts.extent, Relaxed);
            crate::comm::put_name(&self.name, facts.name);
            self.handle.store(facts.handle, Relaxed);
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

const _: () = assert!(size_of::<TypeRow>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_values_until_it_is_closed() {
        let row = TypeRow::default();
        row.fill(&TypeFacts {
            handle: 77,
            committed: true,
            bytes: 48,
            extent: -8,
            name: "face",
        });
        let word = |word: &AtomicU32| word.load(Relaxed);
        assert_eq!((word(&row.version), word(&row.handle)), (2, 77));
        assert_eq!(
            (row.bytes.load(Relaxed), row.extent.load(Relaxed)),
            (48, -8)
        );
        let name: [u8; 5] = core::array::from_fn(|at| row.name[at].load(Relaxed));
        assert_eq!(&name, b"face\0");
        row.close();
        assert_eq!((word(&row.version), word(&row.handle)), (4, 0));
    }
}
