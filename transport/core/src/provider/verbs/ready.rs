// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps completions that found no room in the caller's array, and frames assembled from several packets, which are
//! lent until they are released. Independent of ports and streams.

use std::collections::VecDeque;

use super::pools::is_datagram;
use super::slab::Slab;
use crate::{Completion, Completions, Lease, WorkId, WorkOutcome};

/// Completions for the caller's next polls.
#[derive(Debug)]
pub(super) struct Ready {
    completions: VecDeque<Completion>,
    assembled: Slab<Box<[u8]>>,
}

impl Ready {
    pub(super) fn new() -> Self {
        Self {
            completions: VecDeque::new(),
            assembled: Slab::new(),
        }
    }

    /// Whether no completion is pending.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.completions.is_empty()
    }

    /// Moves pending completions to the caller's array, as far as there is room.
    #[inline(always)]
    pub(super) fn hand_up(&mut self, completions: &mut Completions) {
        while !completions.is_full()
            && let Some(completion) = self.completions.pop_front()
        {
            completions.push(completion);
        }
    }

    /// Appends a completion to the caller's array, or queues it if the array is full.
    #[inline(always)]
    pub(super) fn deliver(&mut self, completion: Completion, completions: &mut Completions) {
        if completions.is_full() {
            self.completions.push_back(completion);
        } else {
            completions.push(completion);
        }
    }

    /// Queues a completion for the next poll.
    pub(super) fn push(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }

    /// Queues the completion of a work.
    pub(super) fn end(&mut self, work: WorkId, outcome: WorkOutcome, lease: Lease) {
        self.push(Completion::Worked {
            work,
            outcome,
            lease,
        });
    }

    /// Queues all completions of an array.
    pub(super) fn push_all(&mut self, completions: &mut Completions) {
        let taken = (0..completions.len()).filter_map(|index| completions.take(index));
        self.completions.extend(taken);
    }

    /// Puts the completions of an array before the queued ones: the next poll returns them first.
    pub(super) fn put_first(&mut self, completions: &mut Completions) {
        for index in (0..completions.len()).rev() {
            if let Some(completion) = completions.take(index) {
                self.completions.push_front(completion);
            }
        }
    }

    /// Keeps a frame that was assembled from several packets; returns its index for the caller.
    pub(super) fn lend(&mut self, frame: Vec<u8>) -> u32 {
        self.assembled.insert(frame.into_boxed_slice()) | ASSEMBLED
    }

    /// Keeps a frame from a list; returns its index for the caller.
    pub(super) fn lend_listed(&mut self, frame: &[u8]) -> u32 {
        self.assembled.insert(frame.into()) | ASSEMBLED | LISTED
    }

    /// A lent frame; `None`: it was released.
    pub(super) fn lent(&self, index: u32) -> Option<&[u8]> {
        let frame = self.assembled.get(index & !(ASSEMBLED | LISTED));
        frame.map(|frame| &**frame)
    }

    pub(super) fn release(&mut self, index: u32) {
        self.assembled.remove(index & !(ASSEMBLED | LISTED));
    }
}

/// Whether a lent frame was copied, because it came in several packets or in a list; otherwise it is in a receive
/// buffer.
pub(super) fn is_assembled(index: u32) -> bool {
    index & ASSEMBLED != 0 && !is_datagram(index)
}

/// Whether a lent frame came in a list. Such frames do not count in the flow control of large frames: they occupy no
/// receive buffer.
pub(super) fn is_listed(index: u32) -> bool {
    is_assembled(index) && index & LISTED != 0
}

/// Marks the index of a frame that was copied.
const ASSEMBLED: u32 = 1 << 30;
/// Marks, beside [`ASSEMBLED`], the index of a frame from a list.
const LISTED: u32 = 1 << 29;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Peer;

    fn lost(peer: u32) -> Completion {
        Completion::Lost { peer: Peer(peer) }
    }

    /// The peers in the completions of the next poll.
    fn next_peers(ready: &mut Ready) -> Vec<u32> {
        let mut completions = Completions::new();
        ready.hand_up(&mut completions);
        let peer = |completion| match completion {
            Completion::Lost { peer } => peer.0,
            other => panic!("{other:?}"),
        };
        let taken = (0..completions.len()).filter_map(|index| completions.take(index));
        taken.map(peer).collect()
    }

    #[test]
    fn completions_put_back_come_first_in_their_order() {
        let (mut ready, mut taken) = (Ready::new(), Completions::new());
        ready.push(lost(7));
        taken.push(lost(1));
        taken.push(lost(2));
        ready.put_first(&mut taken);
        let mut later = Completions::new();
        later.push(lost(9));
        ready.push_all(&mut later);
        assert_eq!(next_peers(&mut ready), [1, 2, 7, 9]);
        assert!(ready.is_empty());
    }

    #[test]
    fn completions_beyond_the_capacity_wait() {
        let (mut ready, mut completions) = (Ready::new(), Completions::new());
        let most = u32::try_from(Completions::CAPACITY).unwrap();
        for peer in 0..=most {
            ready.deliver(lost(peer), &mut completions);
        }
        assert!(completions.is_full());
        assert_eq!(next_peers(&mut ready), [most]);
    }

    #[test]
    fn a_frame_is_lent_until_it_is_released() {
        let mut ready = Ready::new();
        let index = ready.lend(vec![1, 2, 3]);
        assert!(is_assembled(index) && !is_assembled(index & !ASSEMBLED));
        assert_eq!(ready.lent(index), Some(&[1, 2, 3][..]));
        let listed = ready.lend_listed(&[4, 5]);
        assert!(is_assembled(listed) && is_listed(listed) && !is_listed(index));
        assert_eq!(ready.lent(listed), Some(&[4, 5][..]));
        ready.release(index);
        assert_eq!(
            (ready.lent(index), ready.lent(listed)),
            (None, Some(&[4, 5][..]))
        );
        ready.release(listed);
        assert_eq!(ready.lent(listed), None);
    }
}
