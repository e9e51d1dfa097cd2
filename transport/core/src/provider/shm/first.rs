// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of receiving: frames of the first active ring, one by one, without a poll.

use ring::{Peeked, SLOT_BODY_BYTES};

use super::{INTERNAL, LENT, Rx, give_back_lent, lent, lent_buffer};
use crate::{Head, Node, Peer, RecvBuffer, words};

/// A frame that is still in its ring, and stays there unless it is [taken](Self::take).
#[derive(Debug)]
pub struct FirstFrame<'a> {
    pub(super) rx: &'a mut Rx,
    pub(super) frame: Peeked<'static>,
    pub(super) active: &'a mut Active,
    pub(super) polls: &'a u64,
    pub(super) node: &'a Option<Node>,
    /// The sender's local rank.
    pub(super) from: u32,
}

impl FirstFrame<'_> {
    /// The sender.
    #[inline(always)]
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.rx.peer
    }

    /// Its head. `len` up to 48 is the length of the body; larger values are the provider's own.
    #[inline(always)]
    #[must_use]
    pub fn head(&self) -> Head {
        self.frame.head
    }

    /// The first eight bytes of its body.
    #[inline(always)]
    #[must_use]
    pub fn word(&self) -> u64 {
        self.frame.word(0)
    }

    /// Location of its body; `None`: only a [poll](crate::Fabric::poll) can take this frame.
    #[inline(always)]
    #[must_use]
    pub fn body(&self) -> Option<RecvBuffer> {
        let Head { kind, len, .. } = self.frame.head;
        if kind >= INTERNAL {
            return None;
        }
        if len == LENT {
            return Some(lent(self.word()));
        }
        (usize::from(len) <= SLOT_BODY_BYTES).then_some(RecvBuffer::Inline { bytes: len })
    }

    /// Copies the start of its body, which must have at most 48 bytes, to `target`.
    #[inline(always)]
    pub fn copy_inline(&self, target: &mut [u8]) {
        words::unpack(|at| self.frame.word(at), target);
    }

    /// Copies the start of its [body](Self::body) to `target`, and takes the frame out of the ring.
    #[inline(always)]
    pub fn take_into(mut self, body: RecvBuffer, target: &mut [u8]) {
        match body {
            RecvBuffer::Inline { .. } => self.copy_inline(target),
            RecvBuffer::Lent { index, .. } => self.drain(index, target),
        }
        self.take();
    }

    /// Copies a body in a buffer of the sender, and returns the buffer.
    #[inline(never)]
    fn drain(&mut self, index: u32, target: &mut [u8]) {
        // Copying a body takes as long as a batch of small frames, and counts as one: other peers must be polled in
        // between.
        self.active.count_batch();
        let Some(node) = self.node else { return };
        let from = self.from;
        // An invalid index was garbled in shared memory: nothing is copied.
        let Some(buffer) = lent_buffer(&node.segment, from, node.local_rank, index) else {
            return;
        };
        buffer.drain(target);
        give_back_lent(node, &self.rx.consumer, from, index);
    }

    /// Takes the frame out of the ring. If the body is in a buffer, call [`take_into`](Self::take_into) instead, which
    /// also returns the buffer.
    #[inline(always)]
    pub fn take(self) {
        self.rx.last_frame = *self.polls;
        if self.rx.consumer.take() {
            self.active.count_batch();
        }
    }
}

/// Local ranks whose rings every poll checks.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) ranks: Vec<u32>,
    /// The first of `ranks`, or [`NONE`](Self::NONE), which is larger than any local rank, so a bounds check rejects
    /// it.
    pub(super) first: u32,
    /// Number of batches of frames that were taken from the first ring since the last poll.
    batches: u32,
}

impl Active {
    pub(super) const NONE: u32 = u32::MAX;

    /// An empty set, with room for `ranks` ranks.
    pub(super) fn with_room(ranks: u32) -> Self {
        Self {
            ranks: Vec::with_capacity(ranks as usize),
            first: Self::NONE,
            batches: 0,
        }
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Vec<u32>)) {
        change(&mut self.ranks);
        self.first = self.ranks.first().copied().unwrap_or(Self::NONE);
    }

    /// Counts a batch. After [`MOST_BATCHES`] batches there is no first ring until the next poll: otherwise a caller
    /// that takes frame after frame from the first ring might never serve the other rings, nor its own transfers.
    #[inline(always)]
    fn count_batch(&mut self) {
        self.batches += 1;
        if self.batches >= MOST_BATCHES {
            self.first = Self::NONE;
        }
    }

    /// Whether [`MOST_BATCHES`] is reached.
    #[inline(always)]
    pub(super) fn has_run_out(&self) -> bool {
        self.batches >= MOST_BATCHES
    }

    /// Resets the count, at the start of a poll.
    #[inline(always)]
    pub(super) fn polled(&mut self) {
        if self.batches != 0 {
            self.batches = 0;
            self.change(|_| ());
        }
    }
}

/// Maximum number of batches, each of 32 frames, that may be taken frame by frame between two polls.
const MOST_BATCHES: u32 = 16;
