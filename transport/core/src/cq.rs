// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions, returned by [`Fabric::poll`](crate::Fabric::poll).

use crate::{Head, Lease, Peer, WorkId, WorkOutcome};

/// One event of a fabric.
#[derive(Debug)]
pub enum Completion {
    /// A peer's send has arrived. Copy its body, then release it.
    Arrived(Arrived),
    /// A read, write or atomic operation that was posted here has ended.
    Worked {
        /// The id that was given when the operation was posted.
        work: WorkId,
        /// How it ended.
        outcome: WorkOutcome,
        /// The memory that was lent to the operation.
        lease: Lease,
    },
    /// A peer is lost: nothing more will arrive at it or from it. [`Fabric::why_lost`](crate::Fabric::why_lost) returns
    /// the reason.
    Lost {
        /// The lost peer.
        peer: Peer,
    },
    /// A peer's write with immediate has completed: its bytes are in memory.
    Written {
        /// The writing peer.
        peer: Peer,
        /// The immediate.
        immediate: u32,
    },
}

/// A frame that arrived: a private copy of its head, and its body or a claim on the buffer that holds the body.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The sender, identified by its queue pair.
    pub peer: Peer,
    /// Its head, as posted, except that the provider has set `len`.
    pub head: Head,
    /// The first words of a body that travelled inside the frame.
    pub words: [u64; ring::SLOT_BODY_BYTES / 8],
    pub(crate) body: RecvBuffer,
}

/// Location of the body of an arrived frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvBuffer {
    /// In the frame's words.
    Inline {
        /// Length of the body, in bytes.
        bytes: u8,
    },
    /// In a buffer that the provider lends until it is released.
    Lent {
        /// Index of the buffer.
        index: u32,
        /// Length of the body, in bytes.
        bytes: u32,
    },
}

impl RecvBuffer {
    /// Bytes of the body.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline { bytes } => u64::from(*bytes),
            Self::Lent { bytes, .. } => u64::from(*bytes),
        }
    }
}

impl Arrived {
    /// Bytes of the body.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.body.bytes()
    }

    /// Whether the body is in a lent buffer, which [`Fabric::release`](crate::Fabric::release) returns.
    #[inline(always)]
    #[must_use]
    pub fn is_lent(&self) -> bool {
        matches!(self.body, RecvBuffer::Lent { .. })
    }
}

impl Completion {
    /// The frame, if this is an arrival.
    #[must_use]
    pub fn arrived(&self) -> Option<&Arrived> {
        match self {
            Self::Arrived(arrived) => Some(arrived),
            _ => None,
        }
    }
}

/// The caller's array for one poll.
#[derive(Debug)]
pub struct Completions {
    entries: [Option<Completion>; Self::CAPACITY],
    count: usize,
}

impl Completions {
    /// Maximum number of completions returned by one poll.
    pub const CAPACITY: usize = 16;

    /// An empty array.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: [const { None }; Self::CAPACITY],
            count: 0,
        }
    }

    /// Number of completions returned by the last poll.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the last poll returned nothing.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes out completion `index`, which must be below [`len`](Self::len); `None` if it was taken out before.
    #[inline(always)]
    pub fn take(&mut self, index: usize) -> Option<Completion> {
        self.entries[index].take()
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// The completions after the first `count`.
    #[inline(always)]
    pub(crate) fn since(&self, count: usize) -> impl Iterator<Item = &Completion> {
        self.entries[count..self.count].iter().flatten()
    }

    /// The completions after the first `count`, mutably.
    #[inline(always)]
    pub(crate) fn since_mut(&mut self, count: usize) -> impl Iterator<Item = &mut Completion> {
        self.entries[count..self.count].iter_mut().flatten()
    }

    /// Drops each completion after the first `count` for which `is_wanted` returns `false`.
    #[cold]
    pub(crate) fn retain_since(&mut self, count: usize, is_wanted: impl Fn(&Completion) -> bool) {
        for index in count..std::mem::replace(&mut self.count, count) {
            if let Some(completion) = self.entries[index].take().filter(&is_wanted) {
                self.push(completion);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.count == Self::CAPACITY
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, completion: Completion) {
        self.entries[self.count] = Some(completion);
        self.count += 1;
    }
}

impl Default for Completions {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retain_since_keeps_older_completions_and_leaves_no_gap() {
        let mut completions = Completions::new();
        for peer in [1, 2, 1, 3, 1] {
            completions.push(Completion::Lost { peer: Peer(peer) });
        }
        completions.retain_since(
            1,
            |it| !matches!(it, Completion::Lost { peer } if peer.0 == 1),
        );
        let peer = |completion| match completion {
            Completion::Lost { peer } => peer.0,
            other => panic!("{other:?}"),
        };
        let left = (0..completions.len()).filter_map(|index| completions.take(index));
        assert!(left.map(peer).eq([1, 2, 3]));
    }
}
