// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that do not acknowledge. Packets that a reliable carrier has brought there lie with the peer's device or system,
//! and most likely its process computes, or has nothing to answer. But if those are lost, or its end of the carrier has broken, the
//! packets are gone with it, and nothing that is under way here would tell. So whoever says nothing for some time is asked,
//! once, and from then on it is tried whether anything is there at all: if not the carrier breaks, and all goes again.

/// Detects that a peer no longer acknowledges packets of one carrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckStall {
    /// The oldest packet that the peer does not say it has, and how often it was found so.
    oldest: Option<u32>,
    times: u8,
}

impl AckStall {
    /// A look at it: how often this packet has been the oldest at a look before.
    pub fn look(&mut self, oldest: Option<u32>) -> u8 {
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
        assert_eq!((it.look(None), it.look(None)), (0, 0));
        assert_eq!((it.look(Some(7)), it.look(Some(7))), (0, 1));
        assert_eq!((it.look(Some(7)), it.look(Some(9))), (2, 0));
        assert_eq!((it.look(Some(9)), it.look(None)), (1, 0));
    }
}
