// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots: one request or unexpected message each, in chunks that never move.

use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// Number of slots in a chunk.
pub const CHUNK_SLOTS: usize = 256;

/// Maximum number of chunks of an arena: 2^19 slots, as many as the index bits of a handle can number.
pub const MAX_CHUNKS: usize = (1 << 19) / CHUNK_SLOTS;

/// Value of `peer` in a receive from any source.
pub const ANY_PEER: u32 = u32::MAX;

/// Value of `tag` in a receive of any tag.
pub const ANY_TAG: i32 = -2;

/// Kind of the operation in a request slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// Nothing: the slot is free.
    #[default]
    None = 0,
    /// A send that the application started.
    Send = 1,
    /// A receive that the application posted.
    Receive = 2,
    /// A message that arrived before its receive.
    Unexpected = 3,
    /// A request without a message of its own (generalized or collective).
    Other = 4,
}

/// State of a request or an unexpected message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestState {
    /// The slot is free.
    #[default]
    Free = 0,
    /// A persistent request that is not started.
    Inactive = 1,
    /// A receive that waits for its message.
    Posted = 2,
    /// A send that waits for room in the transport towards its peer.
    Queued = 3,
    /// A send that was announced (RTS) and waits for CTS or FIN.
    Announced = 4,
    /// Data are being transferred.
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
/// Flag: a synchronous send, which completes only after it is matched.
pub const FLAG_SYNCHRONOUS: u16 = 4;
/// Flag: the application has freed the request; the slot is freed when the operation ends.
pub const FLAG_ORPHAN: u16 = 8;
/// Flag: the buffer is not contiguous; `buffer` is the address of its start.
pub const FLAG_STRUCTURED: u16 = 16;
/// Flag: a CANCEL for this send has been sent.
pub const FLAG_CANCELLING: u16 = 32;
/// Flag: a receive that needs no special handling, and was posted while no receive with a wildcard was posted.
pub const FLAG_PLAIN: u16 = 64;
/// Flag: this send may be sent without a rendezvous, in several frames.
pub const FLAG_EARLY: u16 = 128;
/// Flag: a remote key for the data of this send was made for the peer; the key must be released when the send ends.
pub const FLAG_LENT: u16 = 256;
/// Flag: this queued send needs no room in the transport. It waits until its receiver opens a gate, which offers the
/// receive buffer for a direct copy.
pub const FLAG_GATED: u16 = 512;

/// One request or unexpected message, in two cache lines. Posting and matching use only the first line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RequestSlot {
    pub(crate) version: AtomicU32,
    /// Handle of the datatype that the application passed; 0: unknown. It is set when a slot is allocated, before the
    /// state.
    pub(crate) datatype: u32,
    pub(crate) fields: RequestFields,
}

/// The contents of a slot. Change them through [`RequestSlot::change`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RequestFields {
    /// State of the operation.
    pub state: RequestState,
    /// Kind of the operation.
    pub kind: RequestKind,
    /// `FLAG_*` bits.
    pub flags: u16,
    /// World rank of the peer; [`ANY_PEER`] for a receive from any source. For a collective, the world rank of its
    /// root; [`ANY_PEER`] if it has no root.
    pub peer: u32,
    /// Context id of the message.
    pub context: u32,
    /// Tag; [`ANY_TAG`] for a receive of any tag. For a collective, the sequence number of the call.
    pub tag: i32,
    /// Names this use of the slot: `index << 8 | generation`. The generation counts the uses of the slot; by it a stale
    /// handle is detected, until the generation wraps after 256 uses.
    pub token: u32,
    /// Why the operation failed; 0 if it did not.
    pub error: u8,
    /// In a request of kind [`RequestKind::Other`]: the number of the collective plus 1, or 0 if it is not a
    /// collective. Not used for other kinds.
    pub protocol: u16,
    /// Bytes of the buffer (receive) or of the message (send, unexpected).
    pub bytes: u64,
    /// Address of the data in this process; 0 if the data have not arrived.
    pub buffer: u64,
    /// Order of posting or arrival, over all slots of the process.
    pub sequence: u64,
    /// Token of the next slot in the queue of its bin, or in the list of free slots. Only for the engine: a debugger
    /// needs no links.
    pub next: u32,
    /// Number of the bin in which a posted receive or an unexpected message is; otherwise undefined.
    pub bin: u32,
    /// World rank of the sender that was matched.
    pub matched_peer: u32,
    /// Tag of the message that was matched.
    pub matched_tag: i32,
    /// Bytes of the message that was matched, before any truncation.
    pub matched_bytes: u64,
    /// Token of the previous slot in the queue of its bin.
    pub prev: u32,
    /// Words in which each protocol of the engine stores its state.
    pub scratch: [u64; 5],
}

impl RequestFields {
    /// State, kind and flags in one word: they are adjacent, so this is one load.
    #[inline(always)]
    #[must_use]
    pub const fn standing(&self) -> u32 {
        standing(self.state, self.kind, self.flags)
    }

    /// Context and tag in one word: they are adjacent, so this is one load.
    #[inline(always)]
    #[must_use]
    pub fn envelope(&self) -> u64 {
        u64::from(self.context) | u64::from(self.tag.cast_unsigned()) << 32
    }
}

/// The value of [`RequestFields::standing`] for this state, kind and flags.
#[inline(always)]
#[must_use]
pub const fn standing(state: RequestState, kind: RequestKind, flags: u16) -> u32 {
    state as u32 | (kind as u32) << 8 | (flags as u32) << 16
}

impl RequestSlot {
    /// The fields.
    #[inline(always)]
    #[must_use]
    pub fn fields(&self) -> &RequestFields {
        &self.fields
    }

    /// Handle of the datatype that the application passed; 0: unknown.
    #[must_use]
    pub fn datatype(&self) -> u32 {
        self.datatype
    }

    /// Records the datatype. This may also be called after the other fields are set: the datatype is only informative.
    #[inline(always)]
    pub fn record_datatype(&mut self, handle: u32) {
        self.datatype = handle;
    }

    /// Changes the fields. Meanwhile the version is odd: by this a debugger detects a half-changed slot.
    #[inline(always)]
    pub fn change<R>(&mut self, change: impl FnOnce(&mut RequestFields) -> R) -> R {
        change(&mut self.begin_change())
    }

    /// Begins a change as by [`change`](Self::change); it ends when the returned guard is dropped.
    #[inline(always)]
    pub fn begin_change(&mut self) -> SlotWriteGuard<'_> {
        self.advance_version();
        // PAIR(slot-version): the change lies between two fences of the compiler.
        compiler_fence(Ordering::SeqCst);
        SlotWriteGuard { slot: self }
    }

    /// Increments the version. Relaxed accesses suffice: the reader is a process that has stopped this one, so only the
    /// compiler could reorder stores, and the caller has compiler fences.
    #[inline(always)]
    fn advance_version(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
    }

    /// Access without a change of the version: only for the links and scratch words, which no debugger reads.
    #[inline(always)]
    pub fn private(&mut self) -> &mut RequestFields {
        &mut self.fields
    }

    /// The version of the slot. Even: the slot is consistent; odd: it is being changed.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }
}

/// Write access to a slot: its version is odd until the guard is dropped. Meanwhile a reader shows the slot as "in
/// transition".
#[derive(Debug)]
pub struct SlotWriteGuard<'a> {
    slot: &'a mut RequestSlot,
}

impl SlotWriteGuard<'_> {
    /// See [`RequestSlot::record_datatype`].
    #[inline(always)]
    pub fn record_datatype(&mut self, handle: u32) {
        self.slot.record_datatype(handle);
    }
}

impl core::ops::Deref for SlotWriteGuard<'_> {
    type Target = RequestFields;

    #[inline(always)]
    fn deref(&self) -> &RequestFields {
        &self.slot.fields
    }
}

impl core::ops::DerefMut for SlotWriteGuard<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut RequestFields {
        &mut self.slot.fields
    }
}

impl Drop for SlotWriteGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // PAIR(slot-version): the second fence.
        compiler_fence(Ordering::SeqCst);
        self.slot.advance_version();
    }
}

/// One chunk of an arena.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    /// The slots.
    pub slots: [RequestSlot; CHUNK_SLOTS],
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            slots: core::array::from_fn(|_| RequestSlot::default()),
        }
    }
}

const _: () = {
    assert!(size_of::<RequestSlot>() == 128);
    assert!(size_of::<Chunk>() == CHUNK_SLOTS * 128);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_change_leaves_an_even_version() {
        let mut slot = RequestSlot::default();
        for turn in 1..5 {
            slot.change(|fields| fields.tag = turn);
            assert_eq!(slot.version(), 2 * turn.cast_unsigned());
            assert_eq!(slot.fields().tag, turn);
        }
    }
}
