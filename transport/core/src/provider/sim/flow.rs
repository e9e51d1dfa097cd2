// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reliability of one ordered pair of simulated ranks: sequence numbers, cumulative acknowledgement, credit and
//! retransmission, without a clock or a wire of its own.
//!
//! An item is *received* when it and all items before it have reached the other rank's adapter, and *consumed* when
//! that rank has polled it. The window counts items that are not consumed, so a rank that does not poll closes it.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender<T> {
    /// Unacknowledged items, the first with sequence number `received`.
    kept: VecDeque<T>,
    received: u64,
    consumed: u64,
    /// `lent`: large bodies posted. `returned`: large bodies whose buffers were returned.
    lent: u64,
    returned: u64,
    timer: Timer,
}

/// The receiving half.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    expected: u64,
    ahead: BTreeSet<u64>,
    /// Received items that the rank has not consumed.
    waiting: VecDeque<u64>,
    returned: u64,
}

/// The content of an acknowledgement. Its fields only grow, so the newest of several supersedes the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SimAck {
    received: u64,
    consumed: u64,
    returned: u64,
}

/// Retransmission due after a timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// These items.
    Items(Range<u64>),
    /// A probe: everything was received, but the last acknowledgement may be lost.
    Probe,
}

/// The retransmission timer of a flow, with exponential backoff.
#[derive(Debug)]
struct Timer {
    timeout_ns: u64,
    backoff: u32,
    deadline: Option<u64>,
}

impl<T> Sender<T> {
    pub(super) fn new(timeout_ns: u64) -> Self {
        Self {
            kept: VecDeque::new(),
            received: 0,
            consumed: 0,
            lent: 0,
            returned: 0,
            timer: Timer {
                timeout_ns,
                backoff: 0,
                deadline: None,
            },
        }
    }

    /// Number of items that count against the window.
    pub(super) fn in_window(&self) -> u64 {
        self.next() - self.consumed
    }

    /// Number of large bodies that count against the pool.
    pub(super) fn lent(&self) -> u64 {
        self.lent - self.returned
    }

    /// Stores an item until it is acknowledged; returns its sequence number.
    pub(super) fn push(&mut self, item: T, is_lent: bool, now: u64) -> u64 {
        let sequence = self.next();
        self.kept.push_back(item);
        self.lent += u64::from(is_lent);
        if self.timer.deadline.is_none() {
            self.timer.arm(now);
        }
        sequence
    }

    /// The item with this number; `None` if it was acknowledged already.
    pub(super) fn item(&mut self, sequence: u64) -> Option<&mut T> {
        let index = usize::try_from(sequence.checked_sub(self.received)?).ok()?;
        self.kept.get_mut(index)
    }

    /// Processes an acknowledgement; returns the items that it covers for the first time.
    pub(super) fn acknowledge(&mut self, ack: SimAck, now: u64) -> Vec<T> {
        let news = ack.received > self.received
            || ack.consumed > self.consumed
            || ack.returned > self.returned;
        let mut done = Vec::new();
        while self.received < ack.received {
            let Some(item) = self.kept.pop_front() else {
                break;
            };
            self.received += 1;
            done.push(item);
        }
        self.consumed = self.consumed.max(ack.consumed.min(self.received));
        self.returned = self.returned.max(ack.returned.min(self.lent));
        if news {
            self.timer.backoff = 0;
        }
        match (self.is_quiet(), news) {
            (true, _) => self.timer.deadline = None,
            (false, true) => self.timer.arm(now),
            (false, false) => {}
        }
        done
    }

    /// When [`timeout`](Self::timeout) is due.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.timer.deadline
    }

    /// Returns what to retransmit at time `now`, if the deadline has passed.
    pub(super) fn timeout(&mut self, now: u64) -> Option<Again> {
        if self.timer.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        self.timer.backoff = (self.timer.backoff + 1).min(MOST_BACKOFF);
        self.timer.arm(now);
        Some(if self.kept.is_empty() {
            Again::Probe
        } else {
            Again::Items(self.received..self.next())
        })
    }

    fn next(&self) -> u64 {
        self.received + self.kept.len() as u64
    }

    fn is_quiet(&self) -> bool {
        self.consumed == self.next() && self.lent == self.returned
    }
}

impl Timer {
    fn arm(&mut self, now: u64) {
        self.deadline = Some(now + (self.timeout_ns << self.backoff));
    }
}

impl Receiver {
    /// Accepts an arrived item; returns the items that are in order now: none for a duplicate, or for an item that came
    /// too early.
    pub(super) fn accept(&mut self, sequence: u64) -> Range<u64> {
        if sequence >= self.expected {
            self.ahead.insert(sequence);
        }
        let first = self.expected;
        while self.ahead.remove(&self.expected) {
            self.expected += 1;
        }
        first..self.expected
    }

    /// Records an item that does not count as consumed until the rank has polled it.
    pub(super) fn wait_for_poll(&mut self, sequence: u64) {
        self.waiting.push_back(sequence);
    }

    /// Records that the rank has consumed the oldest waiting item.
    pub(super) fn polled(&mut self) {
        self.waiting.pop_front();
    }

    /// Records that the buffer of a large body was returned.
    pub(super) fn give_back(&mut self) {
        self.returned += 1;
    }

    pub(super) fn ack(&self) -> SimAck {
        SimAck {
            received: self.expected,
            consumed: self.waiting.front().copied().unwrap_or(self.expected),
            returned: self.returned,
        }
    }
}

/// Maximum number of times that the timeout doubles.
const MOST_BACKOFF: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(items: u64) -> (Sender<u64>, Receiver) {
        let mut sender = Sender::new(10);
        for item in 0..items {
            assert_eq!(sender.push(item + 100, false, 0), item);
        }
        (sender, Receiver::default())
    }

    #[test]
    fn reordered_and_duplicate_items_are_delivered_in_order() {
        let (mut sender, mut receiver) = pair(4);
        assert_eq!(receiver.accept(2), 0..0);
        assert_eq!(receiver.accept(1), 0..0);
        assert_eq!(receiver.accept(0), 0..3);
        assert_eq!(receiver.accept(1), 3..3, "a duplicate");
        assert_eq!(
            sender.acknowledge(receiver.ack(), 1),
            [100, 101, 102],
            "each item is acknowledged once"
        );
        assert!(sender.acknowledge(receiver.ack(), 2).is_empty());
        assert_eq!(sender.item(3), Some(&mut 103));
        assert_eq!(sender.item(2), None);
    }

    #[test]
    fn lost_items_are_retransmitted_with_backoff() {
        let (mut sender, mut receiver) = pair(2);
        assert_eq!(sender.timeout(9), None);
        assert_eq!(sender.timeout(10), Some(Again::Items(0..2)));
        assert_eq!(sender.deadline(), Some(30));
        receiver.accept(0);
        sender.acknowledge(receiver.ack(), 12);
        assert_eq!(sender.deadline(), Some(22), "news resets the pace");
        assert_eq!(sender.timeout(22), Some(Again::Items(1..2)));
        receiver.accept(1);
        sender.acknowledge(receiver.ack(), 23);
        assert_eq!(sender.deadline(), None);
    }

    #[test]
    fn the_window_opens_at_a_poll_and_a_lost_ack_is_probed_for() {
        let (mut sender, mut receiver) = pair(1);
        receiver.accept(0);
        receiver.wait_for_poll(0);
        sender.acknowledge(receiver.ack(), 1);
        assert_eq!(sender.in_window(), 1);
        receiver.polled();
        assert_eq!(sender.timeout(11), Some(Again::Probe));
        sender.acknowledge(receiver.ack(), 12);
        assert_eq!((sender.in_window(), sender.deadline()), (0, None));
    }

    #[test]
    fn a_lent_body_counts_until_its_buffer_comes_back() {
        let (mut sender, mut receiver) = pair(0);
        sender.push(1, true, 0);
        receiver.accept(0);
        sender.acknowledge(receiver.ack(), 1);
        assert_eq!((sender.in_window(), sender.lent()), (0, 1));
        assert!(sender.deadline().is_some());
        receiver.give_back();
        sender.acknowledge(receiver.ack(), 2);
        assert_eq!((sender.lent(), sender.deadline()), (0, None));
    }

    #[test]
    fn old_and_invalid_acknowledgements_are_ignored() {
        let (mut sender, mut receiver) = pair(1);
        let old = receiver.ack();
        receiver.accept(0);
        sender.acknowledge(receiver.ack(), 1);
        sender.acknowledge(old, 2);
        let wild = SimAck {
            received: 77,
            consumed: 99,
            returned: 5,
        };
        assert!(sender.acknowledge(wild, 3).is_empty());
        assert_eq!((sender.in_window(), sender.lent()), (0, 0));
    }
}
