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

    pub(super) fn push(&mut self, letter: ControlPacket) {
        self.0.push_back(letter);
    }

    /// Number of packets waiting for room to a peer.
    pub(super) fn count_to(&self, peer: u32) -> usize {
        self.0.iter().filter(|letter| letter.to == peer).count()
    }

    /// Takes all, to try each; those without room are [put back](Self::put_back).
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

    fn letter(to: u32, word: u64) -> ControlPacket {
        let head = Head {
            kind: 200,
            len: 0,
            flags: 0,
            word,
        };
        let body = Vec::new();
        ControlPacket { to, head, body }
    }

    fn words(letters: &mut ControlQueue) -> Vec<u64> {
        let all = letters.take().into_iter();
        all.map(|letter| letter.head.word).collect()
    }

    #[test]
    fn those_that_find_no_room_keep_their_order() {
        let mut letters = ControlQueue::default();
        for (to, word) in [(1, 10), (2, 11), (1, 12)] {
            letters.push(letter(to, word));
        }
        assert_eq!((letters.count_to(1), letters.count_to(3)), (2, 0));
        let mut left = letters.take();
        assert!(letters.is_empty());
        left.retain(|letter| letter.to == 1);
        letters.push(letter(3, 13));
        letters.put_back(left);
        assert_eq!(words(&mut letters), [10, 12, 13], "none is lost");
    }
}
