// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control of large frames, whose buffers a receiver lends to its caller: counts those of one sender that are
//! lent. Both sides count from the first one; the counters have 16 bits and wrap.

/// The large frames of a peer, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LentFrames {
    /// Large frames posted, and those of them that the peer has returned.
    posted: u16,
    peer_returned: u16,
    /// Large frames of the peer that were returned, and the part of them that was reported to it.
    returned: u16,
    reported: u16,
}

impl LentFrames {
    /// Whether another one may be posted.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.posted.wrapping_sub(self.peer_returned) < LENT_FRAMES_MAX
    }

    /// Counts a posted one.
    #[inline(always)]
    pub(crate) fn post(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// Takes the peer's count of returned frames.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, returned: u16) {
        // Usually nothing has changed.
        if returned != self.peer_returned {
            self.advance(returned);
        }
    }

    fn advance(&mut self, returned: u16) {
        // A smaller count was reordered, one beyond the posted frames is invalid.
        if returned.wrapping_sub(self.peer_returned) <= self.posted.wrapping_sub(self.peer_returned)
        {
            self.peer_returned = returned;
        }
    }

    /// Returns a frame of the peer. `true`: enough for an acknowledgement, since the peer may wait for it.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) -> bool {
        self.returned = self.returned.wrapping_add(1);
        self.returned.wrapping_sub(self.reported) >= LENT_FRAMES_MAX / 4
    }

    /// Frames returned.
    #[inline(always)]
    pub(crate) fn returned(&self) -> u16 {
        self.returned
    }

    /// The count is reported now.
    #[inline(always)]
    pub(crate) fn mark_reported(&mut self) {
        self.reported = self.returned;
    }
}

/// Large frames of one sender that a receiver holds at most, so that no peer can use up the buffers for small ones.
pub(crate) const LENT_FRAMES_MAX: u16 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_was_lent_never_comes_back() {
        let mut lent = LentFrames::default();
        while lent.has_room() {
            lent.post();
        }
        lent.take_back(LENT_FRAMES_MAX + 9);
        assert!(!lent.has_room(), "wild");
        lent.take_back(2);
        lent.take_back(1);
        lent.post();
        lent.post();
        assert!(!lent.has_room(), "one was overtaken");
    }
}
