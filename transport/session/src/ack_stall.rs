// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects peers that do not acknowledge packets which a reliable carrier has delivered. Such packets are in the peer's
//! device or kernel. Usually they are not acknowledged because the peer's process computes, or has nothing to send. But
//! the peer's device may have lost them, or the peer's end of the carrier may have broken. In these two cases no work
//! request is outstanding here, so none fails and shows the loss. Therefore, if an acknowledgement is missing for some
//! time, one acknowledgement request is sent over the carrier. If the acknowledgement is still missing at the next
//! check, the carrier is probed. A dead carrier breaks when it is probed, and all its unacknowledged packets are sent
//! again.

/// Detects that a peer no longer acknowledges packets of one carrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckStall {
    /// Sequence number of the oldest unacknowledged packet at the last observation; `None`: there was none.
    oldest: Option<u32>,
    times: u8,
}

impl AckStall {
    /// Observes the oldest unacknowledged packet. Returns how many consecutive observations before this one have found
    /// the same packet.
    pub fn observe(&mut self, oldest: Option<u32>) -> u8 {
        let is_same = oldest.is_some() && oldest == self.oldest;
        self.times = if is_same {
            self.times.saturating_add(1)
        } else {
            0
        };
        self.oldest = oldest;
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_stall_counts_only_an_unchanged_oldest_packet() {
        let mut it = AckStall::default();
        assert_eq!((it.observe(None), it.observe(None)), (0, 0));
        assert_eq!((it.observe(Some(7)), it.observe(Some(7))), (0, 1));
        assert_eq!((it.observe(Some(7)), it.observe(Some(9))), (2, 0));
        assert_eq!((it.observe(Some(9)), it.observe(None)), (1, 0));
    }
}
