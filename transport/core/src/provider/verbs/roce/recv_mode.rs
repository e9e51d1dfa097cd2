// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides how a socket is read, depending on the packet rate. At high rates the system coalesces packets (`UDP_GRO`)
//! and returns several at a time; if a process waits for single packets, a plain receive of one packet and its source
//! is faster.

/// How packets are received from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvMode {
    /// One packet, without coalescing.
    Single,
    /// One batch of coalesced packets.
    Batch,
    /// Several batches.
    Batches,
}

/// Results of the last receive calls.
#[derive(Debug)]
pub(super) struct RecvHistory {
    /// Whether coalescing may be enabled.
    may_coalesce: bool,
    /// Whether coalescing is enabled.
    coalesces: bool,
    /// Successful calls in a row: several mean that more packets have arrived than one call takes.
    hits: u32,
    /// How often more than two packets arrived together, from 0 to [`MOST_CROWDING`]. Two are often a message and an
    /// acknowledgement behind it, which coalescing would not join.
    crowding: u32,
    /// Coalescing was disabled, but batches may remain until this many calls have found nothing.
    settling: u32,
}

impl RecvHistory {
    /// Starts with coalescing disabled; it is enabled later only if `may_coalesce`.
    pub(super) fn new(may_coalesce: bool) -> Self {
        Self {
            may_coalesce,
            coalesces: false,
            hits: 0,
            crowding: 0,
            settling: 0,
        }
    }

    /// How to receive next.
    pub(super) fn next(&self) -> RecvMode {
        match (self.hits, self.coalesces || self.settling != 0) {
            (0 | 1, false) => RecvMode::Single,
            (0 | 1, true) => RecvMode::Batch,
            _ => RecvMode::Batches,
        }
    }

    /// Records the number of packets of a call. `Some`: coalescing is to be enabled (`true`) or disabled.
    pub(super) fn found(&mut self, packets: usize) -> Option<bool> {
        if packets == 0 {
            return self.found_nothing();
        }
        self.hits = self.hits.saturating_add(1);
        self.crowding = match packets > 2 || self.hits > 2 {
            true => MOST_CROWDING.min(self.crowding + GROUP_WEIGHT),
            false => self.crowding.saturating_sub(1),
        };
        let begins = self.may_coalesce && !self.coalesces && self.crowding == MOST_CROWDING;
        begins.then(|| {
            (self.coalesces, self.settling) = (true, 0);
            true
        })
    }

    fn found_nothing(&mut self) -> Option<bool> {
        self.hits = 0;
        self.settling = self.settling.saturating_sub(1);
        let ends = self.coalesces && self.crowding == 0;
        ends.then(|| {
            (self.coalesces, self.settling) = (false, SETTLED_AFTER);
            false
        })
    }
}

const MOST_CROWDING: u32 = 64;
/// A group of packets raises `crowding` by this; a packet that arrives alone, or with one other, lowers it by 1.
const GROUP_WEIGHT: u32 = 16;
/// Another processor may still be delivering a batch when coalescing is disabled. When this many calls have found
/// nothing, no batch is left.
const SETTLED_AFTER: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that arrive one by one.
    fn come_alone(history: &mut RecvHistory, count: u32) -> Vec<bool> {
        let changes = (0..count).flat_map(|_| [history.found(1), history.found(0)]);
        changes.flatten().collect()
    }

    /// Packets that arrive together.
    fn come_together(history: &mut RecvHistory) -> Vec<bool> {
        (0..6).filter_map(|_| history.found(1)).collect()
    }

    #[test]
    fn coalescing_is_enabled_when_packets_arrive_in_groups() {
        let mut history = RecvHistory::new(true);
        assert_eq!(come_alone(&mut history, 1000), []);
        assert_eq!(history.next(), RecvMode::Single);
        assert_eq!(come_together(&mut history), [true]);
        assert_eq!(history.next(), RecvMode::Batches);
        assert_eq!(history.found(0), None);
        assert_eq!(history.next(), RecvMode::Batch);
    }

    #[test]
    fn packet_pairs_do_not_enable_coalescing() {
        let mut history = RecvHistory::new(true);
        for _ in 0..1000 {
            assert_eq!([1, 1, 0].map(|packets| history.found(packets)), [None; 3]);
        }
    }

    #[test]
    fn coalescing_is_disabled_when_groups_become_rare() {
        let mut history = RecvHistory::new(true);
        come_together(&mut history);
        history.found(0);
        assert_eq!(come_alone(&mut history, MOST_CROWDING - 1), []);
        history.found(60);
        history.found(0);
        assert_eq!(come_alone(&mut history, GROUP_WEIGHT), []);
        assert_eq!(come_alone(&mut history, 1), [false]);
        for _ in 0..SETTLED_AFTER {
            assert_eq!(history.next(), RecvMode::Batch, "some may be left");
            history.found(0);
        }
        assert_eq!(history.next(), RecvMode::Single);
    }

    #[test]
    fn coalescing_is_never_enabled_where_not_allowed() {
        let mut history = RecvHistory::new(false);
        assert_eq!(come_together(&mut history), []);
        assert_eq!(history.next(), RecvMode::Batches);
        assert_eq!(history.found(0), None);
        assert_eq!(history.next(), RecvMode::Single);
    }
}
