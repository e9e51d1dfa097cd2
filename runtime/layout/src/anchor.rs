// SPDX-License-Identifier: MIT OR Apache-2.0
//! The anchor: the structure from which a debugger finds everything else.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::call::{CALL_ROWS, CallRow, CallTable};
use crate::comm::{CommRow, CommTable, FIRST_ROWS};
use crate::datatype::{FIRST_TYPE_ROWS, TypeRow, TypeTable};
use crate::group::{FIRST_GROUP_ROWS, GroupRow, GroupTable};
use crate::slot::{CHUNK_SLOTS, MAX_CHUNKS, RequestSlot};
use crate::table::{FieldRow, LAYOUT};

/// Incremented when a field moves or changes its meaning.
pub const QUEUE_LAYOUT_VERSION: u16 = 1;

/// Incremented when something is added. Minor version 1 added communicators; 2 their handles, and datatypes; 3 waiting
/// calls; 4 the datatype of an operation, and predefined datatypes; 5 the bytes of collectives; 6 groups.
pub const QUEUE_LAYOUT_MINOR: u16 = 6;

/// The structure that a debugger looks up in the library by its symbol. Its addresses lead to everything else.
///
/// A reader checks `magic` and `major` first and refuses unknown values. `size` is the size of this structure; it never
/// becomes smaller in a later version. With `self_address` a reader confirms that it has read the right copy of the
/// library. Unless `state` is [`RUNNING`], the addresses are invalid, or lead to data that no longer change.
#[derive(Debug)]
#[repr(C)]
pub struct Anchor {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`QUEUE_LAYOUT_VERSION`]. A different number means a different layout of this structure, or a different meaning
    /// of a field.
    pub major: u16,
    /// [`QUEUE_LAYOUT_MINOR`]: incremented when something is added.
    pub minor: u16,
    /// Bytes of this structure.
    pub size: u32,
    /// [`BYTE_ORDER`], as the process stores it.
    pub byte_order: u32,
    /// Bytes of an address.
    pub pointer_bytes: u32,
    /// Address of this anchor as the process sees it.
    pub self_address: AtomicU64,
    /// [`BEFORE`], [`RUNNING`] or [`FINALIZED`].
    pub state: AtomicU32,
    /// Process id, as seen by the process itself.
    pub pid: AtomicU32,
    /// Rank in `MPI_COMM_WORLD`.
    pub world_rank: AtomicU32,
    /// Size of `MPI_COMM_WORLD`.
    pub world_size: AtomicU32,
    /// Address of the layout table, whose rows are [`FieldRow`]s.
    pub layout: AtomicU64,
    /// Number of rows of the layout table.
    pub layout_rows: u32,
    /// Bytes of one row.
    pub layout_row_bytes: u32,
    /// Address of the chunk table. It has the address of each [`Chunk`](crate::Chunk); the first 0 ends the table.
    pub chunks: AtomicU64,
    /// Number of entries of the chunk table.
    pub max_chunks: u32,
    /// Number of slots in a chunk.
    pub chunk_slots: u32,
    /// Bytes of one slot.
    pub slot_bytes: u32,
    /// [`ONE_THREAD`] or [`MANY_THREADS`]: whether several threads may be in MPI at a time. 0 in versions without this
    /// field.
    pub threads: AtomicU32,
    /// Address of the table of communicators ([`CommTable`]).
    pub comms: AtomicU64,
    /// Number of rows in the first chunk of communicators; each further chunk has twice as many as the one before.
    pub comm_first_rows: u32,
    /// Bytes of a row of communicators.
    pub comm_row_bytes: u32,
    /// Address of the table of datatypes ([`TypeTable`]).
    pub types: AtomicU64,
    /// Number of rows in the first chunk of datatypes; each further chunk has twice as many as the one before.
    pub type_first_rows: u32,
    /// Bytes of a row of datatypes.
    pub type_row_bytes: u32,
    /// Address of the first row of waiting calls ([`CallTable`]).
    pub calls: AtomicU64,
    /// Number of rows of waiting calls.
    pub call_rows: u32,
    /// Bytes of a row of waiting calls.
    pub call_row_bytes: u32,
    /// Address of the rows of predefined datatypes, which are [`TypeRow`]s.
    pub predefined: AtomicU64,
    /// Number of predefined rows.
    pub predefined_rows: AtomicU32,
    /// Reserved, 0.
    pub reserved: u32,
    /// Address of the table of groups ([`GroupTable`]).
    pub groups: AtomicU64,
    /// Number of rows in the first chunk of groups; each further chunk has twice as many as the one before.
    pub group_first_rows: u32,
    /// Bytes of a row of groups.
    pub group_row_bytes: u32,
}

/// The first bytes of an [`Anchor`].
pub const MAGIC: [u8; 8] = *b"rmpimqs1";
/// A number that a reader with a different byte order reads as a different value.
pub const BYTE_ORDER: u32 = 0x0102_0304;
/// State of an [`Anchor`]: MPI is not initialized.
pub const BEFORE: u32 = 0;
/// State of an [`Anchor`]: all its addresses, and what they lead to, are valid.
pub const RUNNING: u32 = 1;
/// State of an [`Anchor`]: MPI was finalized.
pub const FINALIZED: u32 = 2;
/// `threads` of an [`Anchor`] below `MPI_THREAD_MULTIPLE`.
pub const ONE_THREAD: u32 = 1;
/// `threads` of an [`Anchor`] with `MPI_THREAD_MULTIPLE`.
pub const MANY_THREADS: u32 = 2;

impl Anchor {
    /// The anchor of a process that has not initialized MPI.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::new_without_default,
        reason = "small constants; there is one anchor, and it is a static"
    )]
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            major: QUEUE_LAYOUT_VERSION,
            minor: QUEUE_LAYOUT_MINOR,
            size: size_of::<Self>() as u32,
            byte_order: BYTE_ORDER,
            pointer_bytes: size_of::<usize>() as u32,
            self_address: AtomicU64::new(0),
            state: AtomicU32::new(BEFORE),
            pid: AtomicU32::new(0),
            world_rank: AtomicU32::new(0),
            world_size: AtomicU32::new(0),
            layout: AtomicU64::new(0),
            layout_rows: LAYOUT.len() as u32,
            layout_row_bytes: size_of::<FieldRow>() as u32,
            chunks: AtomicU64::new(0),
            max_chunks: MAX_CHUNKS as u32,
            chunk_slots: CHUNK_SLOTS as u32,
            slot_bytes: size_of::<RequestSlot>() as u32,
            threads: AtomicU32::new(0),
            comms: AtomicU64::new(0),
            comm_first_rows: FIRST_ROWS as u32,
            comm_row_bytes: size_of::<CommRow>() as u32,
            types: AtomicU64::new(0),
            type_first_rows: FIRST_TYPE_ROWS as u32,
            type_row_bytes: size_of::<TypeRow>() as u32,
            calls: AtomicU64::new(0),
            call_rows: CALL_ROWS as u32,
            call_row_bytes: size_of::<CallRow>() as u32,
            predefined: AtomicU64::new(0),
            predefined_rows: AtomicU32::new(0),
            reserved: 0,
            groups: AtomicU64::new(0),
            group_first_rows: FIRST_GROUP_ROWS as u32,
            group_row_bytes: size_of::<GroupRow>() as u32,
        }
    }

    /// Records the table of the program's datatypes and the rows of the predefined ones, before the anchor is opened.
    /// Neither may move.
    pub fn show_types(&self, types: &'static TypeTable, predefined: &'static [TypeRow]) {
        let address = core::ptr::from_ref(types).addr() as u64;
        self.types.store(address, Ordering::Relaxed);
        let address = predefined.as_ptr().addr() as u64;
        self.predefined.store(address, Ordering::Relaxed);
        let rows = u32::try_from(predefined.len()).unwrap_or(0);
        self.predefined_rows.store(rows, Ordering::Relaxed);
    }

    /// Records the table of groups, before the anchor is opened. The table must not move.
    pub fn show_groups(&self, groups: &'static GroupTable) {
        let address = core::ptr::from_ref(groups).addr() as u64;
        self.groups.store(address, Ordering::Relaxed);
    }

    /// Fills the anchor when MPI is initialized and, last, declares it valid. `chunks` is the address of the chunk
    /// table. None of the tables may move.
    pub fn open(
        &self,
        pid: u32,
        (world_rank, world_size): (u32, u32),
        chunks: *const (),
        (comms, calls): (&CommTable, &CallTable),
    ) {
        let address = |pointer: *const ()| pointer.addr() as u64;
        self.self_address
            .store(address(core::ptr::from_ref(self).cast()), Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
        self.world_rank.store(world_rank, Ordering::Relaxed);
        self.world_size.store(world_size, Ordering::Relaxed);
        self.layout
            .store(address(LAYOUT.as_ptr().cast()), Ordering::Relaxed);
        self.chunks.store(address(chunks), Ordering::Relaxed);
        let comms = core::ptr::from_ref(comms);
        self.comms.store(address(comms.cast()), Ordering::Relaxed);
        let calls = core::ptr::from_ref(calls);
        self.calls.store(address(calls.cast()), Ordering::Relaxed);
        // PAIR(anchor-state): the reader has stopped the process, so only the compiler could change the order of the
        // stores.
        compiler_fence(Ordering::SeqCst);
        self.state.store(RUNNING, Ordering::Relaxed);
    }

    /// Records whether several threads may be in MPI at a time, before the anchor is opened.
    pub fn set_threads(&self, many: bool) {
        let threads = if many { MANY_THREADS } else { ONE_THREAD };
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// Declares MPI finalized: the data stay at their addresses, but are no longer valid.
    pub fn close(&self) {
        self.state.store(FINALIZED, Ordering::Relaxed);
        // PAIR(anchor-state): a reader that sees a later change also sees the new state.
        compiler_fence(Ordering::SeqCst);
    }
}

const _: () = {
    assert!(size_of::<Anchor>() == 168 && offset_of!(Anchor, self_address) == 24);
    assert!(
        offset_of!(Anchor, comms) == 88
            && offset_of!(Anchor, types) == 104
            && offset_of!(Anchor, calls) == 120
            && offset_of!(Anchor, predefined) == 136
            && offset_of!(Anchor, groups) == 152,
        "what versions 1.0 to 1.5 had stays"
    );
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_valid_only_between_open_and_close() {
        let anchor = Anchor::new();
        let state = || anchor.state.load(Ordering::Relaxed);
        assert_eq!(
            (state(), anchor.chunks.load(Ordering::Relaxed)),
            (BEFORE, 0)
        );
        let chunks = [0u64; 1];
        let tables = (&CommTable::default(), &CallTable::default());
        anchor.open(7, (1, 2), chunks.as_ptr().cast(), tables);
        assert_eq!(state(), RUNNING);
        let address = core::ptr::from_ref(&anchor).addr() as u64;
        assert_eq!(anchor.self_address.load(Ordering::Relaxed), address);
        assert_eq!(
            anchor.chunks.load(Ordering::Relaxed),
            chunks.as_ptr().addr() as u64
        );
        anchor.close();
        assert_eq!(state(), FINALIZED);
    }
}
