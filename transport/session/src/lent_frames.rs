// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large frames, whose buffers a receiver lends to its caller: how many of one sender are out. Both sides count from the first
//! that there ever was; the numbers have 16 bits and wrap.

/// The large frames of both directions of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LentFrames {
    /// Large frames posted, and those of them that the peer has given back.
    posted: u16,
    back: u16,
    /// Large frames of the peer that were given back, and how many of those it was told of.
    returned: u16,
    told: u16,
}

impl LentFrames {
    /// Whether the peer can take one more.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.posted.wrapping_sub(self.back) < MOST_LENT
    }

    /// One is posted.
    #[inline(always)]
    pub(crate) fn post(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// The peer says how many it has given back.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, returned: u16) {
        // Nothing new is the ordinary case.
        if returned != self.back {
            self.take_news(returned);
        }
    }

    fn take_news(&mut self, returned: u16) {
        // Less than was known before was overtaken, more than was lent is wild.
        if returned.wrapping_sub(self.back) <= self.posted.wrapping_sub(self.back) {
            self.back = returned;
        }
    }

    /// One of the peer's is given back. `true`: the peer may be waiting to hear so.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) -> bool {
        self.returned = self.returned.wrapping_add(1);
        self.returned.wrapping_sub(self.told) >= MOST_LENT / 4
    }

    /// How many were given back.
    #[inline(always)]
    pub(crate) fn returned(&self) -> u16 {
        self.returned
    }

    /// The peer is told so now.
    #[inline(always)]
    pub(crate) fn tell(&mut self) {
        self.told = self.returned;
    }
}

/// Large frames of one sender that a receiver holds: so it never runs out of buffers for small ones because of one peer.
pub(crate) const MOST_LENT: u16 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_was_lent_never_comes_back() {
        let mut lent = LentFrames::default();
        while lent.has_room() {
            lent.post();
        }
        lent.take_back(MOST_LENT + 9);
        assert!(!lent.has_room(), "wild");
        lent.take_back(2);
        lent.take_back(1);
        lent.post();
        lent.post();
        assert!(!lent.has_room(), "one was overtaken");
    }
}
