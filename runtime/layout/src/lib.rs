// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of requests and unexpected messages that a debugger reads from a stopped process.
//!
//! **Knows** byte offsets, states and the version words that make a slot readable at any instruction.
//! **Never** follows a link, allocates, or knows how a message is matched or moved.
//!
//! # How a slot is read
//! Request slots live in chunks that are never freed; the occupancy bitmap of a chunk says which slots are in use.
//! Whoever changes a slot makes its version odd, changes the fields, makes it even. A reader that stopped the process
//! takes slots with an even version as they are and shows the others as "in transition". No link is needed: order is
//! in [`Fields::sequence`].
//!
//! # Threads
//! One thread at a time changes a slot (the engine's owner). A reader is another process that has stopped this one, so
//! only the compiler could reorder stores, and [`Slot::change`] fences it.
#![no_std]

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// Slots of one chunk.
pub const CHUNK_SLOTS: usize = 256;

/// Chunks that an arena can have: 2^19 requests, the index bits of a handle.
pub const MAX_CHUNKS: usize = (1 << 19) / CHUNK_SLOTS;

/// Grows when a field moves or changes its meaning.
pub const QUEUE_LAYOUT_VERSION: u32 = 1;

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

/// One request or unexpected message: two cache lines, the first for matching and the debugger.
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
    /// Context id of the communicator that the message travels in.
    pub context: u32,
    /// World rank of the other side; [`ANY_PEER`] for a receive from any source.
    pub peer: u32,
    /// Tag; [`ANY_TAG`] for a receive of any tag.
    pub tag: i32,
    /// Counts the uses of this slot, so that a stale handle is noticed.
    pub generation: u8,
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
    /// World rank of the sender that was matched.
    pub matched_peer: u32,
    /// Tag of the message that was matched.
    pub matched_tag: i32,
    /// Bytes of the message that was matched, before any truncation.
    pub matched_bytes: u64,
    /// Links of the queue for one source. For the engine; a debugger needs none.
    pub next: u32,
    /// See `next`.
    pub prev: u32,
    /// Links of the queue for any source.
    pub order_next: u32,
    /// See `order_next`.
    pub order_prev: u32,
    /// A short body, or what the protocol remembers.
    pub scratch: [u64; 5],
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
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // PAIR(slot-version): the change lies between two fences of the compiler.
        compiler_fence(Ordering::SeqCst);
        Change {
            slot: self,
            version,
        }
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
    version: u32,
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
        // Relaxed: the reader is a process that has stopped this one; only the compiler could reorder, and is fenced.
        self.slot
            .version
            .store(self.version.wrapping_add(2), Ordering::Relaxed);
    }
}

/// One chunk of an arena: which slots are in use, and the slots.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    /// Bit `i % 64` of word `i / 64` is set while slot `i` is in use.
    pub occupied: [u64; CHUNK_SLOTS / 64],
    /// The slots.
    pub slots: [Slot; CHUNK_SLOTS],
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            occupied: [0; CHUNK_SLOTS / 64],
            slots: core::array::from_fn(|_| Slot::default()),
        }
    }
}

/// One row of the table by which a reader finds a field without this crate or debug information.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FieldRow {
    /// Structure: 1 is [`Slot`], 2 is [`Chunk`].
    pub structure: u16,
    /// Field number inside the structure, in the order of [`LAYOUT`].
    pub field: u16,
    /// Byte offset from the structure's start.
    pub offset: u32,
    /// Bytes of the field.
    pub size: u32,
}

/// Where every field that a debugger needs lies; made from the types, so it cannot go stale.
pub static LAYOUT: [FieldRow; 18] = [
    row(1, 0, offset_of!(Slot, version), 4),
    row(1, 1, FIELDS + offset_of!(Fields, state), 1),
    row(1, 2, FIELDS + offset_of!(Fields, kind), 1),
    row(1, 3, FIELDS + offset_of!(Fields, flags), 2),
    row(1, 4, FIELDS + offset_of!(Fields, context), 4),
    row(1, 5, FIELDS + offset_of!(Fields, peer), 4),
    row(1, 6, FIELDS + offset_of!(Fields, tag), 4),
    row(1, 7, FIELDS + offset_of!(Fields, generation), 1),
    row(1, 8, FIELDS + offset_of!(Fields, error), 1),
    row(1, 9, FIELDS + offset_of!(Fields, protocol), 2),
    row(1, 10, FIELDS + offset_of!(Fields, bytes), 8),
    row(1, 11, FIELDS + offset_of!(Fields, buffer), 8),
    row(1, 12, FIELDS + offset_of!(Fields, sequence), 8),
    row(1, 13, FIELDS + offset_of!(Fields, matched_peer), 4),
    row(1, 14, FIELDS + offset_of!(Fields, matched_tag), 4),
    row(1, 15, FIELDS + offset_of!(Fields, matched_bytes), 8),
    row(2, 0, offset_of!(Chunk, occupied), CHUNK_SLOTS / 8),
    row(
        2,
        1,
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
#[derive(Debug)]
#[repr(C)]
pub struct Anchor {
    /// `rmpimqs1`.
    pub magic: [u8; 8],
    /// [`QUEUE_LAYOUT_VERSION`].
    pub version: u32,
    /// Bytes of this structure.
    pub size: u32,
    /// Address of this anchor as the process sees it.
    pub self_address: u64,
    /// 0 before `MPI_Init`, 1 after it, 2 after `MPI_Finalize`.
    pub state: u32,
    /// Rank in `MPI_COMM_WORLD`.
    pub world_rank: u32,
    /// Size of `MPI_COMM_WORLD`.
    pub world_size: u32,
    /// Rows of the layout table.
    pub layout_rows: u32,
    /// Address of the layout table.
    pub layout: u64,
    /// Address of the chunk table: [`MAX_CHUNKS`] addresses of [`Chunk`], 0 where there is none yet.
    pub chunks: u64,
    /// Bytes of one slot.
    pub slot_bytes: u32,
    /// Slots of one chunk.
    pub chunk_slots: u32,
}

const FIELDS: usize = offset_of!(Slot, fields);

const _: () = {
    assert!(size_of::<Slot>() == 128);
    assert!(
        FIELDS + offset_of!(Fields, matched_bytes) + 8 <= 72,
        "the matching part is one line and a word"
    );
    assert!(size_of::<Chunk>() == 64 + CHUNK_SLOTS * 128);
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
