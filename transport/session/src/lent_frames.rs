// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control of large frames. A receiver lends the buffer of a large frame to its caller, which returns the buffer
//! later. This file counts the large frames that were posted to a peer, and those of the peer that were returned. Both
//! sides count from the first frame on; the counters have 16 bits and wrap.

/// The counters of large frames to a peer and from it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LentFrames {
    /// Number of large frames that were posted to the peer.
    posted: u16,
    peer_returned: u16,
    /// Number of large frames of the peer that were returned here.
    returned: u16,
    reported: u16,
}

impl LentFrames {
    /// Whether another large frame may be posted.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.posted.wrapping_sub(self.peer_returned) < LENT_FRAMES_MAX
    }

    /// Counts a posted large frame.
    #[inline(always)]
    pub(crate) fn post(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// Handles the count of returned frames that the peer has reported.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, returned: u16) {
        // In most cases the count is unchanged.
        if returned != self.peer_returned {
            self.advance(returned);
        }
    }

    fn advance(&mut self, returned: u16) {
        // A smaller count is from an older packet that was reordered. A count beyond the posted frames is invalid.
        if returned.wrapping_sub(self.peer_returned) <= self.posted.wrapping_sub(self.peer_returned)
        {
            self.peer_returned = returned;
        }
    }

    /// Counts a returned frame of the peer. `true`: many returned frames are not reported yet, so an acknowledgement
    /// must be sent: the peer may be waiting for it.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) -> bool {
        self.returned = self.returned.wrapping_add(1);
        self.returned.wrapping_sub(self.reported) >= LENT_FRAMES_MAX / 4
    }

    /// The count of returned frames, to be reported to the peer.
    #[inline(always)]
    pub(crate) fn returned(&self) -> u16 {
        self.returned
    }

    /// Records that the count is reported now.
    #[inline(always)]
    pub(crate) fn mark_reported(&mut self) {
        self.reported = self.returned;
    }
}

/// Maximum number of large frames of one sender that are lent at a time. Because of this limit no peer can occupy all
/// receive buffers.
pub(crate) const LENT_FRAMES_MAX: u16 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_returns_do_not_raise_the_lent_frame_limit() {
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
