// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of each outstanding packet of a requester with selective repeat. Loss recovery is that of IRN (Mittal et
//! al., SIGCOMM 2018): the peer keeps packets received out of order, and only missing packets are sent again.
//!
//! For each packet the serial number of its last transmission is recorded. The network is assumed to preserve order. So
//! if a packet that was sent only once has arrived, each packet with an earlier serial that has not arrived is lost.
//! The arrival of a packet that was sent more than once is no such evidence: it may be its first transmission that has
//! arrived.
//!
//! The response packets of a read have PSNs of the requester too, and are sent in PSN order. Such a PSN counts as
//! arrived when its response packet has arrived. The response packet is requested again if the request was lost, or if
//! the request was executed and a later response packet has arrived.
//!
//! Packets are identified by their distance from `unacked`.

use crate::format::PacketSet;
use crate::psn::Psn;

/// The state of outstanding packets, at most [`PacketSet::PACKETS`].
#[derive(Debug)]
pub(super) struct Scoreboard {
    /// Packets that have arrived; PSNs of reads and atomic operations whose response packets have arrived.
    arrived: PacketSet,
    /// Packets to be sent again.
    lost: PacketSet,
    /// Packets sent more than once.
    again: PacketSet,
    /// Packets that are PSNs of reads and atomic operations.
    fetches: PacketSet,
    /// Serial number of each packet's last transmission, indexed by the low bits of the PSN.
    serials: [u32; SLOTS],
    next_serial: u32,
    /// The latest serial of the packets that were sent only once and have arrived.
    newest: u32,
    /// The latest serial of the packets that were sent only once and have been executed.
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

    /// Records the first transmission of a packet at distance `at` from `unacked`. `packets`: its number of PSNs, which
    /// is more than 1 for a read; `fetches`: whether it is a read or an atomic operation.
    pub(super) fn sent(&mut self, unacked: Psn, at: u32, packets: u32, fetches: bool) {
        let serial = self.take_serial();
        for packet in at..at + packets {
            self.serials[slot(unacked, packet)] = serial;
            if fetches {
                self.fetches.insert(packet);
            }
        }
    }

    /// Records a retransmission of `packets` PSNs from distance `at` on.
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

    /// How many of the first `sent` packets are in flight, that is, neither arrived nor lost.
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

    /// Marks a packet as lost even if it has arrived, since the peer has not kept it.
    pub(super) fn refuse(&mut self, packet: u32) {
        self.arrived.remove(packet);
        self.lost.insert(packet);
    }

    /// Records that the peer has executed the first `in_order` of `sent` packets, and has received the packets in
    /// `ahead` out of order; bit 0 of `ahead` is packet `in_order + 1`. Returns whether any of that is new.
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
        // Packets behind the first `in_order` ones were sent later, so none of them is known to be lost if no packet
        // has arrived out of order.
        if !ahead.is_empty() || self.arrived.run() < in_order.min(sent) {
            self.find_lost(unacked, sent, in_order, ahead);
        }
        self.arrived != before
    }

    /// Records that a response packet has arrived. Response packets that were requested before it should have arrived
    /// too, so the missing ones are marked as lost. Returns whether this packet is the first with its PSN.
    pub(super) fn answer(&mut self, unacked: Psn, packet: u32) -> bool {
        let is_new = !self.arrived.contains(packet);
        self.arrive(packet);
        let serial = self.serials[slot(unacked, packet)];
        for earlier in 0..packet {
            let requested = self.serials[slot(unacked, earlier)];
            if self.fetches.contains(earlier) && !is_later(requested, serial) {
                self.lose(earlier);
            }
        }
        is_new
    }

    /// Number of consecutive packets from `unacked` on that have arrived.
    pub(super) fn run(&self) -> u32 {
        self.arrived.run()
    }

    /// Records that `unacked` advances by `packets`.
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

    /// Records that the first `count` packets were executed. Among packets that were sent only once, serials increase
    /// with PSNs, so the last of them has the latest serial.
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
        // The serial of a read or an atomic request that the peer has received out of order and not executed: it has no
        // response yet, so its PSNs, which share this serial, are not lost.
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

/// Index of a packet in `serials`.
fn slot(unacked: Psn, packet: u32) -> usize {
    let low = unacked.plus(packet).get() % PacketSet::PACKETS;
    usize::try_from(low).unwrap_or(0)
}

/// Whether serial `one` is later than `other`. Serials wrap around, but those of outstanding packets are close
/// together.
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

    /// A scoreboard with `sent` packets sent, of which a read of three PSNs begins at each of `reads`.
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
    fn packets_before_a_received_one_are_lost() {
        let mut board = board(10, &[]);
        assert!(board.acknowledge(FIRST, 10, 2, &set(&[0, 3])));
        assert_eq!(lost(&board), [2, 4, 5], "the last three may come");
        assert_eq!(board.run(), 2);
        assert_eq!(board.in_flight(10), 3);
        assert!(!board.acknowledge(FIRST, 10, 2, &set(&[0, 3])));
    }

    #[test]
    fn retransmitted_packet_is_lost_if_a_later_one_arrived() {
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
    fn read_received_ahead_is_not_complete() {
        let mut board = board(6, &[1]);
        board.acknowledge(FIRST, 6, 0, &set(&[0, 3]));
        assert_eq!(lost(&board), [0]);
        assert_eq!(board.run(), 0);
        board.acknowledge(FIRST, 6, 0, &set(&[3]));
        assert_eq!(lost(&board), [0, 1, 2, 3], "here the request did not come");
    }

    #[test]
    fn skipped_read_responses_are_requested_again() {
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
    fn packet_received_ahead_can_be_refused() {
        let mut board = board(3, &[]);
        board.acknowledge(FIRST, 3, 0, &set(&[0]));
        board.refuse(1);
        assert_eq!((lost(&board), board.has_arrived(1)), (vec![0, 1], false));
    }

    #[test]
    fn distances_shift_with_acknowledgements() {
        let mut board = board(10, &[4]);
        board.acknowledge(FIRST, 10, 3, &set(&[4, 5]));
        board.forget_front(board.run());
        assert_eq!(lost(&board), [0, 1, 2, 3, 4]);
        assert!(board.has_arrived(5) && !board.has_arrived(4));
    }
}
