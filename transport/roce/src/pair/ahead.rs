// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps packets that were received out of order until the missing ones arrive: at most [`PacketSet::PACKETS`] packets,
//! each with at most a path MTU of payload, whatever a peer sends.
//!
//! Packets are identified by their distance from the expected PSN.

use crate::format::{Bth, Packet, PacketSet};
use crate::psn::Psn;

/// Packets received out of order.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    there: PacketSet,
    /// The kept packets, indexed by the low bits of the PSN; the vector grows to the largest index that was needed.
    slots: Vec<AheadPacket>,
}

/// A packet that was received out of order. The memory of its vectors is reused for later packets.
#[derive(Debug, Default)]
pub(super) struct AheadPacket {
    bth: Option<Bth>,
    extensions: Vec<u8>,
    payload: Vec<u8>,
    /// Length of the payload in bytes, if it is already in the destination memory.
    pub(super) placed_bytes: Option<u32>,
}

impl Ahead {
    /// Whether a packet at this distance can be kept, and is not kept yet.
    pub(super) fn can_keep(&self, distance: u32) -> bool {
        distance < PacketSet::PACKETS && !self.there.contains(distance)
    }

    /// Keeps a packet at this distance. `placed_bytes`: the length of its payload, if that is already in the
    /// destination memory; then the payload is not kept.
    pub(super) fn keep(&mut self, distance: u32, packet: &Packet<'_>, placed_bytes: Option<u32>) {
        let index = index(packet.bth.psn);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, AheadPacket::default);
        }
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.bth = Some(packet.bth);
        slot.extensions.clear();
        slot.extensions.extend_from_slice(packet.extensions());
        slot.payload.clear();
        if placed_bytes.is_none() {
            slot.payload.extend_from_slice(packet.payload);
        }
        slot.placed_bytes = placed_bytes;
        self.there.insert(distance);
    }

    /// Takes the expected packet, if it is kept.
    pub(super) fn take(&mut self, expected: Psn) -> Option<AheadPacket> {
        if !self.there.contains(0) {
            return None;
        }
        self.there.remove(0);
        self.slots.get_mut(index(expected)).map(std::mem::take)
    }

    /// Returns the memory of a packet for reuse.
    pub(super) fn put_back(&mut self, at: Psn, slot: AheadPacket) {
        if let Some(place) = self.slots.get_mut(index(at)) {
            *place = slot;
        }
    }

    /// Advances the expected PSN by `packets`; packets before it are forgotten.
    pub(super) fn forget_front(&mut self, packets: u32) {
        if !self.there.is_empty() {
            self.there.forget_front(packets);
        }
    }

    /// The set for a selective acknowledgement: the kept packets behind the expected one.
    pub(super) fn behind_expected(&self) -> PacketSet {
        let mut behind = self.there;
        behind.forget_front(1);
        behind
    }

    pub(super) fn is_empty(&self) -> bool {
        self.there.is_empty()
    }
}

impl AheadPacket {
    pub(super) fn packet(&self) -> Option<Packet<'_>> {
        Some(Packet::kept(self.bth?, &self.extensions, &self.payload))
    }
}

fn index(psn: Psn) -> usize {
    usize::try_from(psn.get() % PacketSet::PACKETS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Headers, MessagePosition, Opcode, OpcodeClass};

    fn keep(ahead: &mut Ahead, expected: Psn, distance: u32) {
        let opcode = Opcode::reliable(OpcodeClass::Send, MessagePosition::Only, false);
        let bth = Bth::new(opcode, 0xffff, 1, expected.plus(distance));
        let mut bytes = Headers::new(&bth).as_bytes().to_vec();
        bytes.extend([9; 8]);
        ahead.keep(distance, &Packet::parse(&bytes).unwrap(), None);
    }

    #[test]
    fn packets_come_out_in_their_turn() {
        let mut ahead = Ahead::default();
        let expected = Psn::new(Psn::MASK);
        for distance in [3, 1, 255] {
            assert!(ahead.can_keep(distance));
            keep(&mut ahead, expected, distance);
        }
        assert!(!ahead.can_keep(3) && !ahead.can_keep(256) && ahead.can_keep(2));
        assert!(ahead.take(expected).is_none());
        assert_eq!(ahead.behind_expected().first(), Some(0));
        ahead.forget_front(1);
        let slot = ahead.take(expected.plus(1)).unwrap();
        assert_eq!(slot.packet().unwrap().payload, [9; 8]);
        ahead.put_back(expected.plus(1), slot);
        assert!(ahead.take(expected.plus(1)).is_none());
        ahead.forget_front(254);
        assert!(ahead.take(expected.plus(255)).is_some() && ahead.is_empty());
    }

    #[test]
    fn packets_ahead_are_bounded() {
        let mut ahead = Ahead::default();
        for first in 0..10_000 {
            keep(&mut ahead, Psn::new(first), 200);
            ahead.forget_front(1);
        }
        assert!(ahead.slots.len() <= 256);
    }
}
