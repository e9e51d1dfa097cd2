// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a requester that repeats selectively knows of each packet under way. The loss recovery is that of IRN (Mittal et al.,
//! SIGCOMM 2018): the peer keeps what comes ahead, and only what is missing is sent again.
//!
//! Each packet has the serial number of the moment at which it left last. If one that left once and later has come, and the
//! network keeps packets in order, an earlier one that has not come is lost. What was sent again says nothing of others: an
//! answer may be for the first time that it left.
//!
//! The answers to reads have numbers too, and leave the peer in the order of these. Such a number is there when its answer has come.
//! It is asked for again when the request was lost, or was carried out and something behind the answer has come.
//!
//! Packets are named by their distance from `unacked`.

use crate::format::PacketSet;
use crate::psn::Psn;

/// Packets under way, at most [`PacketSet::PACKETS`].
#[derive(Debug)]
pub(super) struct Scoreboard {
    /// Those that have come, and of reads and atomic operations those whose answers have.
    arrived: PacketSet,
    /// Those that are to leave again.
    lost: PacketSet,
    /// Those that have left more than once.
    again: PacketSet,
    /// Numbers of reads and atomic operations.
    fetches: PacketSet,
    /// When each left, at the low bits of its packet number.
    serials: [u32; SLOTS],
    next_serial: u32,
    /// The latest that has left once and has come, and the same of those that were carried out.
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

    /// A packet has left for the first time, at this distance from `unacked`; a read stands for several numbers.
    pub(super) fn sent(&mut self, unacked: Psn, at: u32, packets: u32, fetches: bool) {
        let serial = self.take_serial();
        for packet in at..at + packets {
            self.serials[slot(unacked, packet)] = serial;
            if fetches {
                self.fetches.insert(packet);
            }
        }
    }

    /// The same for one that leaves again.
    pub(super) fn sent_again(&mut self, unacked: Psn, at: u32, packets: u32) {
        let serial = self.take_serial();
        for packet in at..at + packets {
            self.serials[slot(unacked, packet)] = serial;
            self.again.insert(packet);
            self.lost.remove(packet);
        }
    }

    /// The first packet that is to leave again.
    pub(super) fn next_lost(&self) -> Option<u32> {
        self.lost.first()
    }

    /// How many lost numbers follow each other from this one on, `most` at most.
    pub(super) fn lost_run(&self, at: u32, most: u32) -> u32 {
        let run = (at..at.saturating_add(most)).take_while(|packet| self.lost.contains(*packet));
        u32::try_from(run.count()).unwrap_or(0)
    }

    /// How many of so many packets that have left are on their way.
    pub(super) fn in_flight(&self, sent: u32) -> u32 {
        sent.saturating_sub(self.arrived.len() + self.lost.len())
    }

    pub(super) fn has_arrived(&self, packet: u32) -> bool {
        self.arrived.contains(packet)
    }

    /// Everything among the first `sent` packets that has not come leaves again.
    pub(super) fn lose_all(&mut self, sent: u32) {
        for packet in 0..sent {
            self.lose(packet);
        }
    }

    /// This packet leaves again, if it has not come.
    pub(super) fn lose(&mut self, packet: u32) {
        if !self.arrived.contains(packet) {
            self.lost.insert(packet);
        }
    }

    /// This packet leaves again: the peer has not kept it, even if it had come ahead.
    pub(super) fn refuse(&mut self, packet: u32) {
        self.arrived.remove(packet);
        self.lost.insert(packet);
    }

    /// The peer has carried out the first `in_order` of `sent` packets, and those have come ahead whose distance from the next
    /// but one is in `ahead`. Whether that is news.
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
        self.carried_out(unacked, in_order.min(sent));
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
        // What is behind the last one in order has left later, so without anything ahead none of it is known to be lost.
        if !ahead.is_empty() || self.arrived.run() < in_order.min(sent) {
            self.find_lost(unacked, sent, in_order, ahead);
        }
        self.arrived != before
    }

    /// The answer of this number has come, and with it all that were asked for before it should have. Whether it is news.
    pub(super) fn answer(&mut self, unacked: Psn, packet: u32) -> bool {
        let is_news = !self.arrived.contains(packet);
        self.arrive(packet);
        let serial = self.serials[slot(unacked, packet)];
        for earlier in 0..packet {
            let asked = self.serials[slot(unacked, earlier)];
            if self.fetches.contains(earlier) && !is_later(asked, serial) {
                self.lose(earlier);
            }
        }
        is_news
    }

    /// How many packets from `unacked` on are there without a gap.
    pub(super) fn run(&self) -> u32 {
        self.arrived.run()
    }

    /// `unacked` is so many packets later.
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

    /// The first `count` were carried out. Serial numbers rise with packet numbers but for those that left again, so the last is the
    /// latest.
    fn carried_out(&mut self, unacked: Psn, count: u32) {
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
        // A request that has come ahead has no answer yet; all its numbers have its serial.
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

/// Where the serial of a packet is.
fn slot(unacked: Psn, packet: u32) -> usize {
    let low = unacked.plus(packet).get() % PacketSet::PACKETS;
    usize::try_from(low).unwrap_or(0)
}

/// Serials are counted in a ring, and those of packets under way are close together.
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

    /// So many packets have left, with a read of three numbers at each of `reads`.
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
