// SPDX-License-Identifier: MIT OR Apache-2.0
//! Window probes: when a peer is sent a request to acknowledge because its window is full or it holds too many large
//! frames. Its acknowledgement may have been lost, and so may the request.

use crate::{Moment, Session};

/// The window probes of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Questions {
    /// Packets wait for room.
    waits: bool,
    /// Probes without effect in a row, and the time of the last one.
    asks: u8,
    asked_at: Moment,
}

impl Questions {
    /// Packets wait for room. `true`: a probe is sent now.
    pub fn ask(&mut self, now_ns: u64) -> bool {
        self.waits = true;
        let is_due = self.pause_ns(now_ns) == 0;
        if is_due {
            self.asked_at = Moment::of(now_ns);
            self.asks = (self.asks + 1).min(MOST_ASKS);
        }
        is_due
    }

    /// Whether there is still no room.
    pub fn are_open(&mut self, session: &Session) -> bool {
        if self.waits && session.room() != 0 && session.may_lend() {
            (self.waits, self.asks) = (false, self.asks.min(1));
        }
        self.waits
    }

    /// Time of the next probe.
    #[must_use]
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        self.waits.then(|| now_ns + self.pause_ns(now_ns))
    }

    /// Time until the next probe may be sent.
    fn pause_ns(&self, now_ns: u64) -> u64 {
        let pause_ns = match self.asks {
            0 => 0,
            asks => ASK_EVERY_NS << (asks - 1),
        };
        pause_ns.saturating_sub(self.asked_at.until(now_ns))
    }
}

/// Interval of the first probes.
const ASK_EVERY_NS: u64 = 20_000_000;
/// The interval doubles up to this number of probes.
const MOST_ASKS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_room_asks_at_once_and_then_ever_less_often() {
        let mut questions = Questions::default();
        let mut now_ns = 1_000_000_000;
        assert!(questions.ask(now_ns) && !questions.ask(now_ns));
        for pause_ns in [20, 40, 80, 160, 160].map(|ms| ms * 1_000_000) {
            now_ns += pause_ns - 1_000_000;
            assert!(!questions.ask(now_ns), "{pause_ns}");
            now_ns += 2_000_000;
            assert!(questions.ask(now_ns), "{pause_ns}");
        }
        assert!(!questions.are_open(&Session::new(0)), "there is room");
        assert_eq!(questions.deadline_ns(now_ns), None);
    }
}
