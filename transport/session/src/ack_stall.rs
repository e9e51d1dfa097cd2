// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of peers that do not acknowledge. Packets that a reliable carrier has delivered are in the peer's device
//! or kernel; usually its process computes, or has nothing to send. But if the device loses them, or its end of the
//! carrier has broken, nothing outstanding on this side would report that. So a peer whose acknowledgement is missing
//! for some time is sent one acknowledgement request, and from then on the carrier is probed; if it is dead it breaks,
//! and everything is sent again.

/// Detects that a peer no longer acknowledges packets of one carrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckStall {
    /// The oldest unacknowledged packet, and how many observations in a row have found it.
    oldest: Option<u32>,
    times: u8,
}

impl AckStall {
    /// Observes the oldest unacknowledged packet; returns how many observations before have found the same one.
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
    fn only_what_stays_the_oldest_is_counted() {
        let mut it = AckStall::default();
        assert_eq!((it.observe(None), it.observe(None)), (0, 0));
        assert_eq!((it.observe(Some(7)), it.observe(Some(7))), (0, 1));
        assert_eq!((it.observe(Some(7)), it.observe(Some(9))), (2, 0));
        assert_eq!((it.observe(Some(9)), it.observe(None)), (1, 0));
    }
}
