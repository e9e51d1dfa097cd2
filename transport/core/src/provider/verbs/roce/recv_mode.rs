// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a socket is looked at, by how much comes. Where many packets come, the system joins them (`UDP_GRO`) and hands over several at a
//! time; where one comes now and then, and somebody waits for it, it is quicker to ask for nothing but a packet and where it comes
//! from.

/// How packets are received from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvMode {
    /// For one packet, which is joined to no other.
    Alone,
    /// For one train.
    Train,
    /// For several trains.
    Trains,
}

/// What the last receive calls have returned.
#[derive(Debug)]
pub(super) struct RecvHistory {
    /// Whether the system may join packets.
    may_join: bool,
    /// Whether it does.
    joins: bool,
    /// Looks in a row that found something: where there are several, more has come than one takes.
    in_a_row: u32,
    /// How much of what came was in company, from 0 to [`CROWDED`]. Now and then an acknowledgement comes behind a packet, which is
    /// no crowd.
    crowd: u32,
    /// The system joins no more, but what it has joined may not all be taken before so many looks have found nothing.
    settling: u32,
}

impl RecvHistory {
    /// Where the system joins nothing so far, and is told otherwise only if it may.
    pub(super) fn new(may_join: bool) -> Self {
        Self {
            may_join,
            joins: false,
            in_a_row: 0,
            crowd: 0,
            settling: 0,
        }
    }

    /// How to look next.
    pub(super) fn next(&self) -> RecvMode {
        match (self.in_a_row, self.joins || self.settling != 0) {
            (0 | 1, false) => RecvMode::Alone,
            (0 | 1, true) => RecvMode::Train,
            _ => RecvMode::Trains,
        }
    }

    /// A look has found so many packets. Answers whether the system is to join packets, if that changes.
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
/// What a look in company weighs: so many packets that come alone.
const IN_COMPANY: u32 = 16;
/// Looks for what another processor was about to hand over.
const SETTLED_AFTER: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets so many packets come, one by one.
    fn come_alone(looks: &mut RecvHistory, count: u32) -> Vec<bool> {
        let changes = (0..count).flat_map(|_| [looks.found(1), looks.found(0)]);
        changes.flatten().collect()
    }

    /// Lets some come one behind the other.
    fn come_together(looks: &mut RecvHistory) -> Vec<bool> {
        (0..5).filter_map(|_| looks.found(1)).collect()
    }

    #[test]
    fn packets_are_joined_where_several_come() {
        let mut looks = RecvHistory::new(true);
        assert_eq!(come_alone(&mut looks, 1000), []);
        assert_eq!(looks.next(), RecvMode::Alone);
        assert_eq!(come_together(&mut looks), [true]);
        assert_eq!(looks.next(), RecvMode::Trains);
        assert_eq!(looks.found(0), None);
        assert_eq!(looks.next(), RecvMode::Train);
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
            assert_eq!(looks.next(), RecvMode::Train, "some may be left");
            looks.found(0);
        }
        assert_eq!(looks.next(), RecvMode::Alone);
    }

    #[test]
    fn what_must_not_be_joined_never_is() {
        let mut looks = RecvHistory::new(false);
        assert_eq!(come_together(&mut looks), []);
        assert_eq!(looks.next(), RecvMode::Trains);
        assert_eq!(looks.found(0), None);
        assert_eq!(looks.next(), RecvMode::Alone);
    }
}
