// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of requests and unexpected messages that a debugger reads from a stopped process.
//!
//! **Knows** byte offsets, states and the version words that make a slot readable at any instruction.
//! **Never** follows a link, allocates, or knows how a message is matched or moved.
//!
//! # How a slot is read
//! Request slots live in chunks that are never freed; a slot is in use unless its state is [`State::Free`].
//! Whoever changes a slot makes its version odd, changes the fields, makes it even. A reader that stopped the process
//! takes slots with an even version as they are and shows the others as "in transition". No link is needed: order is
//! in [`Fields::sequence`].
//!
//! # Threads
//! One thread at a time changes a slot (the engine's owner). A reader is another process that has stopped this one, so
//! only the compiler could reorder stores, and [`Slot::change`] fences it.
#![no_std]

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// Slots of one chunk.
pub const CHUNK_SLOTS: usize = 256;

/// Chunks that an arena can have: 2^19 requests, the index bits of a handle.
pub const MAX_CHUNKS: usize = (1 << 19) / CHUNK_SLOTS;

/// Grows when a field moves or changes its meaning.
pub const QUEUE_LAYOUT_VERSION: u16 = 1;

/// `peer` of a receive that takes any source.
pub const ANY_PEER: u32 = u32::MAX;

/// `tag` of a receive that takes any tag.
pub const ANY_TAG: i32 = -2;

/// What a slot is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nothing: the slot is free.
    #[default]
    None = 0,
    /// A send that the application started.
    Send = 1,
    /// A receive that the application posted.
    Receive = 2,
    /// A message that arrived before its receive.
    Unexpected = 3,
    /// Something without a message of its own (a generalized or collective request).
    Other = 4,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The slot is free.
    #[default]
    Free = 0,
    /// A persistent request that is not started.
    Inactive = 1,
    /// A receive that waits for its message.
    Posted = 2,
    /// A send that waits for room towards its peer.
    Queued = 3,
    /// A send that was announced (RTS) and waits for the receiver.
    Announced = 4,
    /// Data are moving.
    Moving = 5,
    /// An unexpected message whose data are here.
    Kept = 6,
    /// An unexpected message of which only the envelope is here.
    Envelope = 7,
    /// An unexpected message that a matched probe has taken out of the queue.
    Claimed = 8,
    /// Done; the application has not collected it yet.
    Complete = 9,
}

/// Flag: a persistent request; it becomes inactive, not free, when collected.
pub const FLAG_PERSISTENT: u16 = 1;
/// Flag: the operation was cancelled.
pub const FLAG_CANCELLED: u16 = 2;
/// Flag: a synchronous send, which completes only after it was matched.
pub const FLAG_SYNCHRONOUS: u16 = 4;
/// Flag: the application has freed the request; the slot goes when the operation ends.
pub const FLAG_ORPHAN: u16 = 8;
/// Flag: the buffer is not contiguous; `buffer` is where it starts.
pub const FLAG_STRUCTURED: u16 = 16;
/// Flag: a cancel of this send is on its way.
pub const FLAG_CANCELLING: u16 = 32;
/// Flag: a receive that was posted when no receive from any source was, and of which nothing is special.
pub const FLAG_PLAIN: u16 = 64;
/// Flag: this send may go at once in several frames.
pub const FLAG_EARLY: u16 = 128;
/// Flag: the transport lets the peer read the data of this send until it ends.
pub const FLAG_LENT: u16 = 256;

/// One request or unexpected message: two cache lines, the first for posting and matching.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    version: AtomicU32,
    fields: Fields,
}

/// The contents of a slot. Change them through [`Slot::change`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Fields {
    /// How far the operation is.
    pub state: State,
    /// What the slot is about.
    pub kind: Kind,
    /// `FLAG_*` bits.
    pub flags: u16,
    /// World rank of the other side; [`ANY_PEER`] for a receive from any source.
    pub peer: u32,
    /// Context id of the communicator that the message travels in.
    pub context: u32,
    /// Tag; [`ANY_TAG`] for a receive of any tag.
    pub tag: i32,
    /// Names this use of the slot: `index << 8 | generation`. The generation counts the uses, so that a stale handle is
    /// noticed.
    pub token: u32,
    /// Why the operation failed; 0 if it did not.
    pub error: u8,
    /// How the data travel: a value of the engine's, for display.
    pub protocol: u16,
    /// Bytes of the buffer (receive) or of the message (send, unexpected).
    pub bytes: u64,
    /// Address of the data in this process; 0 if they are not here.
    pub buffer: u64,
    /// Order of posting or arrival, over all slots of the process.
    pub sequence: u64,
    /// Links of the queue for one source, or of the free slots. For the engine; a debugger needs none.
    pub next: u32,
    /// Links of the queue of unexpected messages from any source. A posted receive stands in no such queue: the number of
    /// its bin is here.
    pub order_next: u32,
    /// World rank of the sender that was matched.
    pub matched_peer: u32,
    /// Tag of the message that was matched.
    pub matched_tag: i32,
    /// Bytes of the message that was matched, before any truncation.
    pub matched_bytes: u64,
    /// See `next`.
    pub prev: u32,
    /// See `order_next`.
    pub order_prev: u32,
    /// A short body, or what the protocol remembers.
    pub scratch: [u64; 5],
}

impl Fields {
    /// State, kind and flags, which lie side by side: one load, one comparison.
    #[inline(always)]
    #[must_use]
    pub const fn standing(&self) -> u32 {
        standing(self.state, self.kind, self.flags)
    }

    /// Context and tag, which lie side by side.
    #[inline(always)]
    #[must_use]
    pub fn envelope(&self) -> u64 {
        u64::from(self.context) | u64::from(self.tag.cast_unsigned()) << 32
    }
}

/// What [`Fields::standing`] answers for these three.
#[inline(always)]
#[must_use]
pub const fn standing(state: State, kind: Kind, flags: u16) -> u32 {
    state as u32 | (kind as u32) << 8 | (flags as u32) << 16
}

impl Slot {
    /// The contents.
    #[inline(always)]
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Changes the contents so that a debugger never takes a half-changed slot for a whole one.
    #[inline(always)]
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Fields) -> R) -> R {
        change(&mut self.begin_change())
    }

    /// As [`change`](Self::change), but until the returned guard is dropped.
    #[inline(always)]
    pub fn begin_change(&mut self) -> Change<'_> {
        self.advance_version();
        // PAIR(slot-version): the change lies between two fences of the compiler.
        compiler_fence(Ordering::SeqCst);
        Change { slot: self }
    }

    /// Relaxed: the reader is a process that has stopped this one; only the compiler could reorder, and is fenced.
    #[inline(always)]
    fn advance_version(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
    }

    /// Access to the links and scratch words alone, which no debugger looks at.
    #[inline(always)]
    pub fn private(&mut self) -> &mut Fields {
        &mut self.fields
    }

    /// Even: at rest. Odd: being changed.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }
}

/// A slot that is being changed: its version is odd until this is dropped.
#[derive(Debug)]
pub struct Change<'a> {
    slot: &'a mut Slot,
}

impl core::ops::Deref for Change<'_> {
    type Target = Fields;

    #[inline(always)]
    fn deref(&self) -> &Fields {
        &self.slot.fields
    }
}

impl core::ops::DerefMut for Change<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Fields {
        &mut self.slot.fields
    }
}

impl Drop for Change<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // PAIR(slot-version): the other of the two.
        compiler_fence(Ordering::SeqCst);
        self.slot.advance_version();
    }
}

/// One chunk of an arena.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    /// The slots.
    pub slots: [Slot; CHUNK_SLOTS],
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            slots: core::array::from_fn(|_| Slot::default()),
        }
    }
}

/// Makes something known to a reader, as the address of a new chunk, after all that was stored before.
#[inline(always)]
pub fn publish(store: impl FnOnce()) {
    // PAIR(chunk-table): the reader has stopped the process; only the compiler could let the address go first.
    compiler_fence(Ordering::SeqCst);
    store();
}

/// One row of the table by which a reader finds a field without this crate or debug information.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FieldRow {
    /// Structure: [`SLOT`] or [`CHUNK`].
    pub structure: u16,
    /// Field number inside the structure: a constant of [`field`]. Numbers are never used again for something else.
    pub field: u16,
    /// Byte offset from the structure's start.
    pub offset: u32,
    /// Bytes of the field.
    pub size: u32,
}

/// The number of [`Slot`] in the layout table.
pub const SLOT: u16 = 1;
/// The number of [`Chunk`] in the layout table.
pub const CHUNK: u16 = 2;

/// The numbers of the fields in the layout table. Those of a slot are explained at [`Fields`].
pub mod field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const VERSION: u16 = 0;
    pub const STATE: u16 = 1;
    pub const KIND: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const PEER: u16 = 4;
    pub const CONTEXT: u16 = 5;
    pub const TAG: u16 = 6;
    pub const TOKEN: u16 = 7;
    pub const ERROR: u16 = 8;
    pub const PROTOCOL: u16 = 9;
    pub const BYTES: u16 = 10;
    pub const BUFFER: u16 = 11;
    pub const SEQUENCE: u16 = 12;
    pub const MATCHED_PEER: u16 = 13;
    pub const MATCHED_TAG: u16 = 14;
    pub const MATCHED_BYTES: u16 = 15;

    /// Of a chunk: its first slot.
    pub const CHUNK_SLOTS: u16 = 0;
}

/// Where every field that a debugger needs lies; made from the types, so it cannot go stale.
pub static LAYOUT: [FieldRow; LAYOUT_ROWS] = [
    row(SLOT, field::VERSION, offset_of!(Slot, version), 4),
    row(SLOT, field::STATE, FIELDS + offset_of!(Fields, state), 1),
    row(SLOT, field::KIND, FIELDS + offset_of!(Fields, kind), 1),
    row(SLOT, field::FLAGS, FIELDS + offset_of!(Fields, flags), 2),
    row(SLOT, field::PEER, FIELDS + offset_of!(Fields, peer), 4),
    row(
        SLOT,
        field::CONTEXT,
        FIELDS + offset_of!(Fields, context),
        4,
    ),
    row(SLOT, field::TAG, FIELDS + offset_of!(Fields, tag), 4),
    row(SLOT, field::TOKEN, FIELDS + offset_of!(Fields, token), 4),
    row(SLOT, field::ERROR, FIELDS + offset_of!(Fields, error), 1),
    row(
        SLOT,
        field::PROTOCOL,
        FIELDS + offset_of!(Fields, protocol),
        2,
    ),
    row(SLOT, field::BYTES, FIELDS + offset_of!(Fields, bytes), 8),
    row(SLOT, field::BUFFER, FIELDS + offset_of!(Fields, buffer), 8),
    row(
        SLOT,
        field::SEQUENCE,
        FIELDS + offset_of!(Fields, sequence),
        8,
    ),
    row(
        SLOT,
        field::MATCHED_PEER,
        FIELDS + offset_of!(Fields, matched_peer),
        4,
    ),
    row(
        SLOT,
        field::MATCHED_TAG,
        FIELDS + offset_of!(Fields, matched_tag),
        4,
    ),
    row(
        SLOT,
        field::MATCHED_BYTES,
        FIELDS + offset_of!(Fields, matched_bytes),
        8,
    ),
    row(
        CHUNK,
        field::CHUNK_SLOTS,
        offset_of!(Chunk, slots),
        CHUNK_SLOTS * size_of::<Slot>(),
    ),
];

#[allow(
    clippy::cast_possible_truncation,
    reason = "offsets inside one chunk fit 32 bits"
)]
const fn row(structure: u16, field: u16, offset: usize, size: usize) -> FieldRow {
    FieldRow {
        structure,
        field,
        offset: offset as u32,
        size: size as u32,
    }
}

/// What a debugger looks up by name in the library: everything else is found from here.
///
/// A reader takes `magic` and `major` first and refuses what it does not know; `size` tells it how much of this structure
/// there is (it only ever grows); `self_address` tells it whether it has read the right copy of the library. Where `state`
/// is not [`RUNNING`] the addresses mean nothing, or what they lead to stands still for ever.
#[derive(Debug)]
#[repr(C)]
pub struct Anchor {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`QUEUE_LAYOUT_VERSION`]: another one is another layout of this structure or another meaning of a field.
    pub major: u16,
    /// Grows when something is added.
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
    /// The process, as it sees itself.
    pub pid: AtomicU32,
    /// Rank in `MPI_COMM_WORLD`.
    pub world_rank: AtomicU32,
    /// Size of `MPI_COMM_WORLD`.
    pub world_size: AtomicU32,
    /// Address of the layout table: rows of the form of [`FieldRow`].
    pub layout: AtomicU64,
    /// Rows of the layout table.
    pub layout_rows: u32,
    /// Bytes of one row.
    pub layout_row_bytes: u32,
    /// Address of the chunk table: an address for each [`Chunk`], the first 0 ends the table.
    pub chunks: AtomicU64,
    /// Entries of the chunk table.
    pub max_chunks: u32,
    /// Slots of one chunk.
    pub chunk_slots: u32,
    /// Bytes of one slot.
    pub slot_bytes: u32,
    /// 0; more comes after it.
    pub reserved: u32,
}

/// The first bytes of an [`Anchor`].
pub const MAGIC: [u8; 8] = *b"rmpimqs1";
/// Tells a reader of another byte order that it is one.
pub const BYTE_ORDER: u32 = 0x0102_0304;
/// State of an [`Anchor`]: MPI is not initialized.
pub const BEFORE: u32 = 0;
/// State of an [`Anchor`]: everything that it leads to is valid.
pub const RUNNING: u32 = 1;
/// State of an [`Anchor`]: MPI was finalized.
pub const FINALIZED: u32 = 2;

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
            minor: 0,
            size: size_of::<Self>() as u32,
            byte_order: BYTE_ORDER,
            pointer_bytes: size_of::<usize>() as u32,
            self_address: AtomicU64::new(0),
            state: AtomicU32::new(BEFORE),
            pid: AtomicU32::new(0),
            world_rank: AtomicU32::new(0),
            world_size: AtomicU32::new(0),
            layout: AtomicU64::new(0),
            layout_rows: LAYOUT_ROWS as u32,
            layout_row_bytes: size_of::<FieldRow>() as u32,
            chunks: AtomicU64::new(0),
            max_chunks: MAX_CHUNKS as u32,
            chunk_slots: CHUNK_SLOTS as u32,
            slot_bytes: size_of::<Slot>() as u32,
            reserved: 0,
        }
    }

    /// MPI is initialized: fills the anchor and, at last, declares it valid. `chunks` is the address of the chunk table.
    pub fn open(&self, pid: u32, world_rank: u32, world_size: u32, chunks: *const ()) {
        let address = |pointer: *const ()| pointer.addr() as u64;
        self.self_address
            .store(address(core::ptr::from_ref(self).cast()), Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
        self.world_rank.store(world_rank, Ordering::Relaxed);
        self.world_size.store(world_size, Ordering::Relaxed);
        self.layout
            .store(address(LAYOUT.as_ptr().cast()), Ordering::Relaxed);
        self.chunks.store(address(chunks), Ordering::Relaxed);
        // PAIR(anchor-state): as with slots, the reader has stopped the process; only the compiler must keep the order.
        compiler_fence(Ordering::SeqCst);
        self.state.store(RUNNING, Ordering::Relaxed);
    }

    /// MPI was finalized: what the anchor leads to stays where it is, and means nothing any more.
    pub fn close(&self) {
        self.state.store(FINALIZED, Ordering::Relaxed);
        // PAIR(anchor-state): nothing that happens afterwards is seen under the state before.
        compiler_fence(Ordering::SeqCst);
    }
}

const LAYOUT_ROWS: usize = 17;
const FIELDS: usize = offset_of!(Slot, fields);

const _: () = {
    assert!(size_of::<Slot>() == 128);
    assert!(
        FIELDS + offset_of!(Fields, order_next) + 4 == 64,
        "what posting and matching touch is one line"
    );
    assert!(size_of::<Chunk>() == CHUNK_SLOTS * 128);
    assert!(size_of::<Anchor>() == 88 && offset_of!(Anchor, self_address) == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_leaves_an_even_version() {
        let mut slot = Slot::default();
        for turn in 1..5 {
            slot.change(|fields| fields.tag = turn);
            assert_eq!(slot.version(), 2 * turn.cast_unsigned());
            assert_eq!(slot.fields().tag, turn);
        }
    }

    #[test]
    fn an_anchor_is_valid_only_between_open_and_close() {
        let anchor = Anchor::new();
        let state = || anchor.state.load(Ordering::Relaxed);
        assert_eq!(
            (state(), anchor.chunks.load(Ordering::Relaxed)),
            (BEFORE, 0)
        );
        let chunks = [0u64; 1];
        anchor.open(7, 1, 2, chunks.as_ptr().cast());
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

    #[test]
    fn the_layout_table_covers_each_structure_without_overlap() {
        for (structure, size) in [(1, size_of::<Slot>()), (2, size_of::<Chunk>())] {
            let mut end = 0;
            for (number, row) in LAYOUT
                .iter()
                .filter(|row| row.structure == structure)
                .enumerate()
            {
                assert_eq!(usize::from(row.field), number);
                assert!(
                    row.offset as usize >= end,
                    "field {number} of structure {structure}"
                );
                end = (row.offset + row.size) as usize;
            }
            assert!(end <= size);
        }
    }
}
