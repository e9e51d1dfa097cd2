// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream from a peer: the next packet to deliver, the packets that are held because they arrived out of order
//! (S4), and how many packets are not acknowledged.

use std::collections::VecDeque;

use crate::{ACK_EVERY, PacketVerdict, Slot, WINDOW};

/// The state of the stream from a peer.
#[derive(Debug)]
pub(crate) struct ReceiveOrder {
    /// Sequence number of the next packet to deliver.
    expected: u32,
    /// Buffers of the held packets: at index `i`, that of packet `expected + 1 + i`.
    #[allow(
        clippy::box_collection,
        reason = "there are thousands of peers, and hardly any has this"
    )]
    ahead: Option<Box<VecDeque<Option<Slot>>>>,
    beyond: u64,
    /// Number of packets delivered since the last acknowledgement was sent. It is at most a few dozen, since an
    /// acknowledgement is sent after [`ACK_EVERY`] packets, and the peer sends no more than a window of packets without
    /// one. For a peer that ignores the window the number saturates.
    delivered_since_ack: u16,
    /// Whether an acknowledgement is required even if nothing new has arrived.
    is_ack_forced: bool,
}

impl ReceiveOrder {
    /// A stream whose first packet has this sequence number.
    pub(crate) fn new(first: u32) -> Self {
        Self {
            expected: first,
            ahead: None,
            beyond: 0,
            delivered_since_ack: 0,
            is_ack_forced: false,
        }
    }

    /// Sequence number of the next packet to deliver.
    #[inline(always)]
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Bit `i`: packet `expected + 1 + i` is held.
    #[inline(always)]
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Accepts a packet if it is the expected one and no packet is held. `false`: nothing was done.
    #[inline(always)]
    pub(crate) fn accept_next(&mut self, number: u32) -> bool {
        let is_next = number == self.expected && self.beyond == 0 && self.ahead.is_none();
        if is_next {
            self.expected = self.expected.wrapping_add(1);
            self.delivered_since_ack = self.delivered_since_ack.saturating_add(1);
        }
        is_next
    }

    /// Accepts a packet that has arrived in `buffer`. `can_wait`: whether the buffer may be held until earlier packets
    /// have arrived.
    #[inline(always)]
    pub(crate) fn accept(&mut self, number: u32, buffer: Slot, can_wait: bool) -> PacketVerdict {
        if number == self.expected && self.beyond == 0 {
            self.expected = self.expected.wrapping_add(1);
            self.delivered_since_ack = self.delivered_since_ack.saturating_add(1);
            return PacketVerdict::Deliver;
        }
        self.accept_out_of_order(number, buffer, can_wait)
    }

    #[inline(never)]
    fn accept_out_of_order(&mut self, number: u32, buffer: Slot, can_wait: bool) -> PacketVerdict {
        let distance = number.wrapping_sub(self.expected);
        if distance == 0 {
            self.advance();
            return PacketVerdict::Deliver;
        }
        if distance > WINDOW {
            let is_old = self.expected.wrapping_sub(number) <= 2 * WINDOW;
            return if is_old {
                PacketVerdict::Duplicate
            } else {
                PacketVerdict::Invalid
            };
        }
        let bit = 1 << (distance - 1);
        if self.beyond & bit != 0 {
            return PacketVerdict::Duplicate;
        }
        if !can_wait {
            return PacketVerdict::Early;
        }
        self.beyond |= bit;
        let index = distance as usize - 1;
        let ahead = self.ahead.get_or_insert_default();
        if ahead.len() <= index {
            ahead.resize(index + 1, None);
        }
        ahead[index] = Some(buffer);
        PacketVerdict::Held
    }

    /// The buffer of a held packet that is the expected one now, which counts as delivered. Called after each delivery.
    #[inline(always)]
    pub(crate) fn next_held(&mut self) -> Option<Slot> {
        self.ahead.as_ref()?;
        self.take_held()
    }

    #[inline(never)]
    fn take_held(&mut self) -> Option<Slot> {
        // The front of the queue is the expected packet: at the last delivery `advance` has shifted the bits, but not
        // the queue.
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

    /// Records that the expected packet is delivered.
    fn advance(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.beyond >>= 1;
        self.delivered_since_ack = self.delivered_since_ack.saturating_add(1);
    }

    /// Discards all held packets.
    pub(crate) fn forget(&mut self, drop: impl FnMut(Slot)) {
        let ahead = self.ahead.take().unwrap_or_default();
        ahead.into_iter().flatten().for_each(drop);
        self.beyond = 0;
    }

    /// Records that an acknowledgement is sent.
    #[inline(always)]
    pub(crate) fn mark_acknowledged(&mut self) {
        self.delivered_since_ack = 0;
    }

    /// Number of packets delivered since the last acknowledgement was sent.
    #[inline(always)]
    pub(crate) fn delivered_since_ack(&self) -> u32 {
        self.delivered_since_ack.into()
    }

    /// Requires an acknowledgement even if nothing new has arrived.
    #[inline(always)]
    pub(crate) fn force_ack(&mut self) {
        self.is_ack_forced = true;
    }

    /// Returns whether an acknowledgement must be sent now, on its own. `is_answered`: whether packets that carry an
    /// acknowledgement are sent to the peer soon. Revokes [`force_ack`](Self::force_ack).
    pub(crate) fn take_ack_due(&mut self, is_answered: bool) -> bool {
        let anyway = std::mem::take(&mut self.is_ack_forced);
        anyway
            || self.delivered_since_ack() >= ACK_EVERY
            || (self.delivered_since_ack != 0 && !is_answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_unacknowledged_deliveries_saturates() {
        let mut order = ReceiveOrder::new(0);
        for number in 0..=u32::from(u16::MAX) {
            let is_next = match number % 2 {
                0 => order.accept_next(number),
                _ => order.accept(number, 0, true) == PacketVerdict::Deliver,
            };
            assert!(is_next);
        }
        assert_eq!(order.delivered_since_ack(), u16::MAX.into());
        assert!(order.take_ack_due(true), "it is still delivered_since_ack");
    }
}
