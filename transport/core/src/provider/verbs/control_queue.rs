// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control packets of the provider that wait for room, oldest first.

use std::collections::VecDeque;

use crate::Head;

/// A control packet of the provider, and its receiver.
#[derive(Debug)]
pub(super) struct ControlPacket {
    pub(super) to: u32,
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

/// Control packets that wait for room, oldest first.
#[derive(Debug, Default)]
pub(super) struct ControlQueue(VecDeque<ControlPacket>);

impl ControlQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, packet: ControlPacket) {
        self.0.push_back(packet);
    }

    /// Number of packets to a peer that wait for room.
    pub(super) fn count_to(&self, peer: u32) -> usize {
        self.0.iter().filter(|packet| packet.to == peer).count()
    }

    /// Takes all packets, so that each can be tried; those without room are then [put back](Self::put_back).
    pub(super) fn take(&mut self) -> VecDeque<ControlPacket> {
        std::mem::take(&mut self.0)
    }

    /// Puts back packets that found no room, before those queued meanwhile.
    pub(super) fn put_back(&mut self, mut left: VecDeque<ControlPacket>) {
        left.append(&mut self.0);
        self.0 = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(to: u32, word: u64) -> ControlPacket {
        let head = Head {
            kind: 200,
            len: 0,
            flags: 0,
            word,
        };
        let body = Vec::new();
        ControlPacket { to, head, body }
    }

    fn words(control: &mut ControlQueue) -> Vec<u64> {
        let all = control.take().into_iter();
        all.map(|packet| packet.head.word).collect()
    }

    #[test]
    fn unsent_control_packets_keep_their_order() {
        let mut control = ControlQueue::default();
        for (to, word) in [(1, 10), (2, 11), (1, 12)] {
            control.push(packet(to, word));
        }
        assert_eq!((control.count_to(1), control.count_to(3)), (2, 0));
        let mut left = control.take();
        assert!(control.is_empty());
        left.retain(|packet| packet.to == 1);
        control.push(packet(3, 13));
        control.put_back(left);
        assert_eq!(words(&mut control), [10, 12, 13], "none is lost");
    }
}
