// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream from a peer: which packet is handed up next, which wait since they came ahead of it (S4), and what the peer was
//! told of that.

use std::collections::VecDeque;

use crate::{ACK_EVERY, PacketVerdict, Slot, WINDOW};

/// The packets that have arrived of the peer's stream.
#[derive(Debug)]
pub(crate) struct ReceiveOrder {
    /// Number of the packet that is handed up next.
    expected: u32,
    /// Packets beyond it, by how far: their buffers.
    #[allow(
        clippy::box_collection,
        reason = "there are thousands of peers, and hardly any has this"
    )]
    ahead: Option<Box<VecDeque<Option<Slot>>>>,
    beyond: u64,
    /// Packets handed up since the peer was told: some dozens, since it is told of every [`ACK_EVERY`] and sends no more than a window
    /// before that; of one that keeps to no rules no more are counted than fit.
    owed: u16,
    /// The peer is to be told even if nothing new has come.
    owes_anyway: bool,
}

impl ReceiveOrder {
    /// One whose first packet has this number.
    pub(crate) fn new(first: u32) -> Self {
        Self {
            expected: first,
            ahead: None,
            beyond: 0,
            owed: 0,
            owes_anyway: false,
        }
    }

    /// Number of the packet that is handed up next.
    #[inline(always)]
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Bit `i`: the packet that is `i + 1` beyond it is here.
    #[inline(always)]
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Takes a packet if it is the one that is expected, and no other waits.
    #[inline(always)]
    pub(crate) fn accept_next(&mut self, number: u32) -> bool {
        let is_next = number == self.expected && self.beyond == 0 && self.ahead.is_none();
        if is_next {
            self.expected = self.expected.wrapping_add(1);
            self.owed = self.owed.saturating_add(1);
        }
        is_next
    }

    /// A packet has arrived in `buffer`, which may be put aside if it `can_wait`.
    #[inline(always)]
    pub(crate) fn accept(&mut self, number: u32, buffer: Slot, can_wait: bool) -> PacketVerdict {
        if number == self.expected && self.beyond == 0 {
            self.expected = self.expected.wrapping_add(1);
            self.owed = self.owed.saturating_add(1);
            return PacketVerdict::Deliver;
        }
        self.accept_out_of_order(number, buffer, can_wait)
    }

    #[inline(never)]
    fn accept_out_of_order(&mut self, number: u32, buffer: Slot, can_wait: bool) -> PacketVerdict {
        let far = number.wrapping_sub(self.expected);
        if far == 0 {
            self.advance();
            return PacketVerdict::Deliver;
        }
        if far > WINDOW {
            let is_old = self.expected.wrapping_sub(number) <= 2 * WINDOW;
            return if is_old {
                PacketVerdict::Twice
            } else {
                PacketVerdict::Wild
            };
        }
        let bit = 1 << (far - 1);
        if self.beyond & bit != 0 {
            return PacketVerdict::Twice;
        }
        if !can_wait {
            return PacketVerdict::Early;
        }
        self.beyond |= bit;
        let index = far as usize - 1;
        let ahead = self.ahead.get_or_insert_default();
        if ahead.len() <= index {
            ahead.resize(index + 1, None);
        }
        ahead[index] = Some(buffer);
        PacketVerdict::Held
    }

    /// The buffer of a packet that was put aside and whose turn has come.
    #[inline(always)]
    pub(crate) fn next_held(&mut self) -> Option<Slot> {
        self.ahead.as_ref()?;
        self.take_held()
    }

    #[inline(never)]
    fn take_held(&mut self) -> Option<Slot> {
        // The front stands for the packet that is expected: `advance` has moved the bits, not the queue.
        let ahead = self.ahead.as_mut()?;
        let buffer = ahead.pop_front().flatten();
        if ahead.is_empty() {
            self.ahead = None;
        }
        if buffer.is_some() {
            self.advance();
        }
        buffer
    }

    /// The packet that was expected is handed up.
    fn advance(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.beyond >>= 1;
        self.owed = self.owed.saturating_add(1);
    }

    /// Forgets what was put aside.
    pub(crate) fn forget(&mut self, drop: impl FnMut(Slot)) {
        let ahead = self.ahead.take().unwrap_or_default();
        ahead.into_iter().flatten().for_each(drop);
        self.beyond = 0;
    }

    /// The peer is told what has come.
    #[inline(always)]
    pub(crate) fn tell(&mut self) {
        self.owed = 0;
    }

    /// Packets handed up since then.
    #[inline(always)]
    pub(crate) fn owed(&self) -> u32 {
        self.owed.into()
    }

    /// The peer is to be told even if nothing new has come.
    #[inline(always)]
    pub(crate) fn owe_anyway(&mut self) {
        self.owes_anyway = true;
    }

    /// Whether the peer is to be told now, by a word of its own. `is_answered`: what goes to it soon may tell it as well.
    pub(crate) fn take_owing(&mut self, is_answered: bool) -> bool {
        let anyway = std::mem::take(&mut self.owes_anyway);
        anyway || self.owed() >= ACK_EVERY || (self.owed != 0 && !is_answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_never_waits_for_a_word_is_counted_no_further() {
        let mut order = ReceiveOrder::new(0);
        for number in 0..=u32::from(u16::MAX) {
            let is_next = match number % 2 {
                0 => order.accept_next(number),
                _ => order.accept(number, 0, true) == PacketVerdict::Deliver,
            };
            assert!(is_next);
        }
        assert_eq!(order.owed(), u16::MAX.into());
        assert!(order.take_owing(true), "it is still owed");
    }
}
