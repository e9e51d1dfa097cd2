// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of each outstanding packet of a requester with selective repeat. Loss recovery is that of IRN (Mittal et al.,
//! SIGCOMM 2018): the peer keeps packets received out of order, and only missing ones are sent again.
//!
//! Each packet has the serial number of its last transmission. If a packet that was sent only once has arrived, and the
//! network preserves order, a packet with an earlier serial that has not arrived is lost. Retransmitted packets are no
//! evidence: an acknowledgement may be for their first transmission.
//!
//! Response packets to reads have PSNs too, and are sent in PSN order. Such a PSN has arrived when its response has. It
//! is requested again when the request was lost, or was executed and a later response has arrived.
//!
//! Packets are named by their distance from `unacked`.

use crate::format::PacketSet;
use crate::psn::Psn;

/// Outstanding packets, at most [`PacketSet::PACKETS`].
#[derive(Debug)]
pub(super) struct Scoreboard {
    /// Packets that have arrived; of reads and atomic operations, those whose responses have.
    arrived: PacketSet,
    /// Packets to be sent again.
    lost: PacketSet,
    /// Packets sent more than once.
    again: PacketSet,
    /// PSNs of reads and atomic operations.
    fetches: PacketSet,
    /// Serial of the last transmission, indexed by the low bits of the PSN.
    serials: [u32; SLOTS],
    next_serial: u32,
    /// The latest serial of a packet sent once that has arrived, and the same among the executed ones.
    newest: u32,
    newest_in_order: u32,
}

const SLOTS: usize = PacketSet::PACKETS as usize;

impl Scoreboard {
    pub(super) fn new() -> Self {
        Self {
            arrived: PacketSet::default(),
            lost: PacketSet::default(),
            again: PacketSet::default(),
            fetches: PacketSet::default(),
            serials: [0; SLOTS],
            next_serial: 1,
            newest: 0,
            newest_in_order: 0,
        }
    }

    /// Records the first transmission of a packet at this distance from `unacked`; a read takes several PSNs.
    pub(super) fn sent(&mut self, unacked: Psn, at: u32, packets: u32, fetches: bool) {
        let serial = self.take_serial();
        for packet in at..at + packets {
            self.serials[slot(unacked, packet)] = serial;
            if fetches {
                self.fetches.insert(packet);
            }
        }
    }

    /// Records a retransmission.
    pub(super) fn sent_again(&mut self, unacked: Psn, at: u32, packets: u32) {
        let serial = self.take_serial();
        for packet in at..at + packets {
            self.serials[slot(unacked, packet)] = serial;
            self.again.insert(packet);
            self.lost.remove(packet);
        }
    }

    /// The first packet to be sent again.
    pub(super) fn next_lost(&self) -> Option<u32> {
        self.lost.first()
    }

    /// Number of consecutive lost packets from `at` on, at most `most`.
    pub(super) fn lost_run(&self, at: u32, most: u32) -> u32 {
        let run = (at..at.saturating_add(most)).take_while(|packet| self.lost.contains(*packet));
        u32::try_from(run.count()).unwrap_or(0)
    }

    /// Number of the first `sent` packets that are in flight.
    pub(super) fn in_flight(&self, sent: u32) -> u32 {
        sent.saturating_sub(self.arrived.len() + self.lost.len())
    }

    pub(super) fn has_arrived(&self, packet: u32) -> bool {
        self.arrived.contains(packet)
    }

    /// Marks all packets among the first `sent` that have not arrived as lost.
    pub(super) fn lose_all(&mut self, sent: u32) {
        for packet in 0..sent {
            self.lose(packet);
        }
    }

    /// Marks a packet as lost, if it has not arrived.
    pub(super) fn lose(&mut self, packet: u32) {
        if !self.arrived.contains(packet) {
            self.lost.insert(packet);
        }
    }

    /// Marks a packet as lost even if it had arrived: the peer has not kept it.
    pub(super) fn refuse(&mut self, packet: u32) {
        self.arrived.remove(packet);
        self.lost.insert(packet);
    }

    /// The peer has executed the first `in_order` of `sent` packets, and received those in `ahead` out of order; bit 0
    /// of `ahead` is packet `in_order + 1`. Returns whether this is new.
    pub(super) fn acknowledge(
        &mut self,
        unacked: Psn,
        sent: u32,
        in_order: u32,
        ahead: &PacketSet,
    ) -> bool {
        if in_order == 0 && ahead.is_empty() {
            return false;
        }
        let before = self.arrived;
        self.executed(unacked, in_order.min(sent));
        self.newest = later(self.newest, self.newest_in_order);
        let mut waiting = *ahead;
        while let Some(first) = waiting.first() {
            waiting.remove(first);
            let packet = in_order + 1 + first;
            if packet >= sent {
                break;
            }
            if !self.again.contains(packet) {
                let serial = self.serials[slot(unacked, packet)];
                self.newest = later(self.newest, serial);
            }
            if !self.fetches.contains(packet) {
                self.arrive(packet);
            }
        }
        // Packets behind the last one in order were sent later, so without out-of-order arrivals none of them is known
        // to be lost.
        if !ahead.is_empty() || self.arrived.run() < in_order.min(sent) {
            self.find_lost(unacked, sent, in_order, ahead);
        }
        self.arrived != before
    }

    /// A response packet has arrived; responses requested before it should have arrived too. Returns whether it is new.
    pub(super) fn answer(&mut self, unacked: Psn, packet: u32) -> bool {
        let is_new = !self.arrived.contains(packet);
        self.arrive(packet);
        let serial = self.serials[slot(unacked, packet)];
        for earlier in 0..packet {
            let asked = self.serials[slot(unacked, earlier)];
            if self.fetches.contains(earlier) && !is_later(asked, serial) {
                self.lose(earlier);
            }
        }
        is_new
    }

    /// Number of packets that have arrived without a gap, from `unacked` on.
    pub(super) fn run(&self) -> u32 {
        self.arrived.run()
    }

    /// `unacked` advances by `packets`.
    pub(super) fn forget_front(&mut self, packets: u32) {
        let sets = [
            &mut self.arrived,
            &mut self.lost,
            &mut self.again,
            &mut self.fetches,
        ];
        for set in sets {
            set.forget_front(packets);
        }
    }

    /// The first `count` packets were executed. Serials rise with PSNs except for retransmissions, so the last one has
    /// the latest serial.
    fn executed(&mut self, unacked: Psn, count: u32) {
        let last = (0..count)
            .rev()
            .find(|packet| !self.again.contains(*packet));
        if let Some(last) = last {
            let serial = self.serials[slot(unacked, last)];
            self.newest_in_order = later(self.newest_in_order, serial);
        }
        let mut arrived = PacketSet::nearest(count);
        arrived.remove_all(&self.fetches);
        self.arrived.insert_all(&arrived);
        self.lost.remove_all(&arrived);
    }

    fn arrive(&mut self, packet: u32) {
        self.arrived.insert(packet);
        self.lost.remove(packet);
    }

    fn find_lost(&mut self, unacked: Psn, sent: u32, in_order: u32, ahead: &PacketSet) {
        // A request received out of order has no response yet; all its PSNs share one serial.
        let mut waits = None;
        for packet in 0..sent {
            if self.arrived.contains(packet) {
                continue;
            }
            let serial = self.serials[slot(unacked, packet)];
            let is_fetch = self.fetches.contains(packet);
            if is_fetch && packet > in_order && ahead.contains(packet - in_order - 1) {
                waits = Some(serial);
            }
            let evidence = match is_fetch && packet < in_order {
                true => self.newest_in_order,
                false => self.newest,
            };
            if is_later(evidence, serial) && waits != Some(serial) {
                self.lost.insert(packet);
            }
        }
    }

    fn take_serial(&mut self) -> u32 {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        serial
    }
}

/// Index of a packet's serial.
fn slot(unacked: Psn, packet: u32) -> usize {
    let low = unacked.plus(packet).get() % PacketSet::PACKETS;
    usize::try_from(low).unwrap_or(0)
}

/// Serials wrap around; those of outstanding packets are close together.
fn is_later(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

fn later(one: u32, other: u32) -> u32 {
    if is_later(other, one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Psn = Psn::new(0x00ff_fff0);

    /// A scoreboard with `sent` packets sent, and a read of three PSNs at each of `reads`.
    fn board(sent: u32, reads: &[u32]) -> Scoreboard {
        let mut board = Scoreboard::new();
        let mut at = 0;
        while at < sent {
            let is_read = reads.contains(&at);
            let packets = if is_read { 3 } else { 1 };
            board.sent(FIRST, at, packets, is_read);
            at += packets;
        }
        board
    }

    fn lost(board: &Scoreboard) -> Vec<u32> {
        (0..256).filter(|at| board.lost.contains(*at)).collect()
    }

    fn set(packets: &[u32]) -> PacketSet {
        let mut set = PacketSet::default();
        packets.iter().for_each(|packet| set.insert(*packet));
        set
    }

    #[test]
    fn what_is_before_one_that_has_come_is_lost() {
        let mut board = board(10, &[]);
        assert!(board.acknowledge(FIRST, 10, 2, &set(&[0, 3])));
        assert_eq!(lost(&board), [2, 4, 5], "the last three may come");
        assert_eq!(board.run(), 2);
        assert_eq!(board.in_flight(10), 3);
        assert!(!board.acknowledge(FIRST, 10, 2, &set(&[0, 3])));
    }

    #[test]
    fn one_that_left_again_is_lost_if_a_later_one_has_come() {
        let mut board = board(4, &[]);
        board.acknowledge(FIRST, 4, 0, &set(&[0]));
        board.sent_again(FIRST, 0, 1);
        board.acknowledge(FIRST, 4, 0, &set(&[0, 1, 2]));
        assert_eq!(lost(&board), [], "these left before it left again");
        board.sent(FIRST, 4, 1, false);
        board.acknowledge(FIRST, 5, 0, &set(&[0, 1, 2, 3]));
        assert_eq!(lost(&board), [0]);
    }

    #[test]
    fn a_read_that_came_ahead_has_no_answer_yet() {
        let mut board = board(6, &[1]);
        board.acknowledge(FIRST, 6, 0, &set(&[0, 3]));
        assert_eq!(lost(&board), [0]);
        assert_eq!(board.run(), 0);
        board.acknowledge(FIRST, 6, 0, &set(&[3]));
        assert_eq!(lost(&board), [0, 1, 2, 3], "here the request did not come");
    }

    #[test]
    fn answers_that_were_passed_over_are_asked_for_again() {
        let mut board = board(6, &[1]);
        assert!(board.answer(FIRST, 2));
        assert_eq!(lost(&board), [1], "an earlier answer of the same read");
        board.acknowledge(FIRST, 6, 5, &set(&[]));
        assert_eq!(lost(&board), [1, 3]);
        board.sent_again(FIRST, 1, 1);
        assert!(board.answer(FIRST, 1));
        assert_eq!((lost(&board), board.run()), (vec![3], 3));
    }

    #[test]
    fn one_that_came_ahead_can_be_refused() {
        let mut board = board(3, &[]);
        board.acknowledge(FIRST, 3, 0, &set(&[0]));
        board.refuse(1);
        assert_eq!((lost(&board), board.has_arrived(1)), (vec![0, 1], false));
    }

    #[test]
    fn distances_follow_what_is_acknowledged() {
        let mut board = board(10, &[4]);
        board.acknowledge(FIRST, 10, 3, &set(&[4, 5]));
        board.forget_front(board.run());
        assert_eq!(lost(&board), [0, 1, 2, 3, 4]);
        assert!(board.has_arrived(5) && !board.has_arrived(4));
    }
}
