// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates completion queues, and the slots that work requests take until their completion has been polled.

use std::collections::VecDeque;

use super::super::port::PortCompletion;

/// A completion, and the slots that it frees.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeCompletion {
    pub(super) done: PortCompletion,
    pub(super) owner: FakeSlotOwner,
}

/// The slots that a completion frees when it is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FakeSlotOwner {
    /// The send slots up to `slot` of the reliable queue pair with this serial number.
    Pair { serial: u32, slot: u64 },
    /// A slot of the shared receive queue, used by the reliable queue pair with this serial number.
    Shared { serial: u32 },
    /// The send slots up to `slot` of the datagram queue pair.
    DatagramSends { slot: u64 },
    /// A slot of the receive queue of the datagram queue pair.
    DatagramReceives,
}

/// One completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    entries: VecDeque<FakeCompletion>,
    depth: usize,
    is_armed: bool,
    is_lost: bool,
}

/// Result of adding a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Quietly,
    /// The queue was armed: a completion event is raised.
    Notified,
    /// The queue was full: it is lost from now on.
    Overrun,
    /// The queue was lost before.
    Nowhere,
}

impl CompletionQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            entries: VecDeque::new(),
            depth: depth as usize,
            is_armed: false,
            is_lost: false,
        }
    }

    pub(super) fn add(&mut self, entry: FakeCompletion) -> Added {
        if self.is_lost {
            return Added::Nowhere;
        }
        if self.entries.len() == self.depth {
            self.is_lost = true;
            return Added::Overrun;
        }
        self.entries.push_back(entry);
        match std::mem::take(&mut self.is_armed) {
            true => Added::Notified,
            false => Added::Quietly,
        }
    }

    pub(super) fn take(&mut self) -> Option<FakeCompletion> {
        self.entries.pop_front()
    }

    /// Makes the next completion raise an event; those already queued do not.
    pub(super) fn arm(&mut self) {
        self.is_armed = true;
    }

    /// Removes the completions of a destroyed queue pair and returns them.
    pub(super) fn purge(&mut self, destroyed: u32) -> Vec<FakeCompletion> {
        let is_purged = |entry: &FakeCompletion| matches!(entry.owner, FakeSlotOwner::Pair { serial, .. } | FakeSlotOwner::Shared { serial } if serial == destroyed);
        let (purged, kept) = self.entries.drain(..).partition(is_purged);
        self.entries = kept;
        let purged: VecDeque<FakeCompletion> = purged;
        purged.into()
    }
}

/// The slots of a work queue. A request takes a slot until its own completion, or that of a later request, has been
/// polled; so an unsignaled request holds its slot until a later completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeSlots {
    depth: u64,
    posted: u64,
    freed: u64,
}

impl FakeSlots {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth: u64::from(depth),
            posted: 0,
            freed: 0,
        }
    }

    /// Takes a slot for a new request, if there is one.
    pub(super) fn take(&mut self) -> Option<u64> {
        if self.posted - self.freed == self.depth {
            return None;
        }
        self.posted += 1;
        Some(self.posted - 1)
    }

    /// Frees the slots up to this one, whose completion has been polled.
    pub(super) fn free_up_to(&mut self, slot: u64) {
        self.freed = self.freed.max(slot + 1);
    }

    /// Frees one slot, no matter which, after a completion has been polled.
    pub(super) fn free_one(&mut self) {
        self.freed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(work: u64, owner: FakeSlotOwner) -> FakeCompletion {
        let done = PortCompletion {
            work,
            ..PortCompletion::default()
        };
        FakeCompletion { done, owner }
    }

    #[test]
    fn one_completion_event_per_arming() {
        let mut queue = CompletionQueue::new(8);
        let any = entry(1, FakeSlotOwner::DatagramReceives);
        assert_eq!(queue.add(any), Added::Quietly);
        queue.arm();
        assert_eq!(queue.add(any), Added::Notified);
        assert_eq!(queue.add(any), Added::Quietly);
    }

    #[test]
    fn an_overrun_completion_queue_keeps_old_entries_only() {
        let mut queue = CompletionQueue::new(1);
        let any = |work| entry(work, FakeSlotOwner::DatagramReceives);
        assert_eq!(queue.add(any(1)), Added::Quietly);
        assert_eq!(queue.add(any(2)), Added::Overrun);
        assert_eq!(queue.add(any(3)), Added::Nowhere);
        assert_eq!(queue.take().map(|entry| entry.done.work), Some(1));
        assert_eq!(queue.add(any(4)), Added::Nowhere);
        assert!(queue.take().is_none());
    }

    #[test]
    fn purging_a_queue_pair_removes_its_completions() {
        let mut queue = CompletionQueue::new(8);
        let owners = [
            FakeSlotOwner::Pair { serial: 1, slot: 0 },
            FakeSlotOwner::Shared { serial: 1 },
            FakeSlotOwner::Shared { serial: 2 },
            FakeSlotOwner::DatagramReceives,
        ];
        for (work, owner) in (0..).zip(owners) {
            queue.add(entry(work, owner));
        }
        let purged: Vec<u64> = queue.purge(1).iter().map(|entry| entry.done.work).collect();
        assert_eq!(purged, [0, 1]);
        let kept: Vec<u64> =
            std::iter::from_fn(|| queue.take().map(|entry| entry.done.work)).collect();
        assert_eq!(kept, [2, 3]);
    }

    #[test]
    fn unsignaled_work_holds_its_slot_until_later_work_is_polled() {
        let mut slots = FakeSlots::new(3);
        assert_eq!(
            [slots.take(), slots.take(), slots.take()],
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(slots.take(), None);
        slots.free_up_to(1);
        assert_eq!([slots.take(), slots.take()], [Some(3), Some(4)]);
        assert_eq!(slots.take(), None);
        slots.free_up_to(0);
        assert_eq!(slots.take(), None, "an old one frees nothing again");
        slots.free_one();
        assert_eq!(slots.take(), Some(5));
    }
}
