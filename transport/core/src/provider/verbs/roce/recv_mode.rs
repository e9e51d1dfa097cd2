// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a socket is read, depending on the packet rate. At high rates the system coalesces packets (`UDP_GRO`) and
//! returns several at a time; for single packets that a process waits for, a plain receive of one packet and its source
//! is faster.

/// How packets are received from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvMode {
    /// One packet, without coalescing.
    Alone,
    /// One batch of coalesced packets.
    GsoBatch,
    /// Several batches.
    GsoQueue,
}

/// Results of the last receive calls.
#[derive(Debug)]
pub(super) struct RecvHistory {
    /// Whether coalescing may be enabled.
    may_join: bool,
    /// Whether it is.
    joins: bool,
    /// Successful calls in a row: several mean that more packets have arrived than one call takes.
    in_a_row: u32,
    /// Share of packets that arrived together with others, from 0 to [`CROWDED`]. An occasional acknowledgement right
    /// behind a packet does not count as a crowd.
    crowd: u32,
    /// Coalescing was disabled, but batches may remain until this many calls have found nothing.
    settling: u32,
}

impl RecvHistory {
    /// With coalescing disabled; it is enabled later only if `may_join`.
    pub(super) fn new(may_join: bool) -> Self {
        Self {
            may_join,
            joins: false,
            in_a_row: 0,
            crowd: 0,
            settling: 0,
        }
    }

    /// How to receive next.
    pub(super) fn next(&self) -> RecvMode {
        match (self.in_a_row, self.joins || self.settling != 0) {
            (0 | 1, false) => RecvMode::Alone,
            (0 | 1, true) => RecvMode::GsoBatch,
            _ => RecvMode::GsoQueue,
        }
    }

    /// Records the number of packets of a call. Returns whether to enable coalescing, if that changes.
    pub(super) fn found(&mut self, packets: usize) -> Option<bool> {
        if packets == 0 {
            return self.found_nothing();
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.crowd = match packets > 1 || self.in_a_row > 1 {
            true => CROWDED.min(self.crowd + IN_COMPANY),
            false => self.crowd.saturating_sub(1),
        };
        let begins = self.may_join && !self.joins && self.crowd == CROWDED;
        begins.then(|| {
            (self.joins, self.settling) = (true, 0);
            true
        })
    }

    fn found_nothing(&mut self) -> Option<bool> {
        self.in_a_row = 0;
        self.settling = self.settling.saturating_sub(1);
        let ends = self.joins && self.crowd == 0;
        ends.then(|| {
            (self.joins, self.settling) = (false, SETTLED_AFTER);
            false
        })
    }
}

const CROWDED: u32 = 64;
/// Weight of a call that found several packets, in single packets.
const IN_COMPANY: u32 = 16;
/// Calls until nothing that another processor was delivering is left.
const SETTLED_AFTER: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that arrive one by one.
    fn come_alone(looks: &mut RecvHistory, count: u32) -> Vec<bool> {
        let changes = (0..count).flat_map(|_| [looks.found(1), looks.found(0)]);
        changes.flatten().collect()
    }

    /// Packets that arrive together.
    fn come_together(looks: &mut RecvHistory) -> Vec<bool> {
        (0..5).filter_map(|_| looks.found(1)).collect()
    }

    #[test]
    fn packets_are_joined_where_several_come() {
        let mut looks = RecvHistory::new(true);
        assert_eq!(come_alone(&mut looks, 1000), []);
        assert_eq!(looks.next(), RecvMode::Alone);
        assert_eq!(come_together(&mut looks), [true]);
        assert_eq!(looks.next(), RecvMode::GsoQueue);
        assert_eq!(looks.found(0), None);
        assert_eq!(looks.next(), RecvMode::GsoBatch);
    }

    #[test]
    fn a_packet_behind_another_now_and_then_is_no_crowd() {
        let mut looks = RecvHistory::new(true);
        for _ in 0..100 {
            assert_eq!(come_alone(&mut looks, 70), []);
            assert_eq!((looks.found(1), looks.found(1)), (None, None));
        }
    }

    #[test]
    fn they_are_taken_alone_when_hardly_any_train_comes() {
        let mut looks = RecvHistory::new(true);
        come_together(&mut looks);
        looks.found(0);
        assert_eq!(come_alone(&mut looks, CROWDED - 1), []);
        looks.found(60);
        looks.found(0);
        assert_eq!(come_alone(&mut looks, IN_COMPANY), []);
        assert_eq!(come_alone(&mut looks, 1), [false]);
        for _ in 0..SETTLED_AFTER {
            assert_eq!(looks.next(), RecvMode::GsoBatch, "some may be left");
            looks.found(0);
        }
        assert_eq!(looks.next(), RecvMode::Alone);
    }

    #[test]
    fn what_must_not_be_joined_never_is() {
        let mut looks = RecvHistory::new(false);
        assert_eq!(come_together(&mut looks), []);
        assert_eq!(looks.next(), RecvMode::GsoQueue);
        assert_eq!(looks.found(0), None);
        assert_eq!(looks.next(), RecvMode::Alone);
    }
}
