// SPDX-License-Identifier: MIT OR Apache-2.0
//! Window probes: when a peer is sent a request to acknowledge because its window is full or it holds too many large
//! frames. Its acknowledgement may have been lost, and so may the request.

use crate::{Moment, Session};

/// The window probes of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowProbe {
    /// Packets wait for room.
    is_blocked: bool,
    /// Probes without effect in a row, and the time of the last one.
    probes: u8,
    probed_at: Moment,
}

impl WindowProbe {
    /// Packets wait for room. `true`: a probe is sent now.
    pub fn probe(&mut self, now_ns: u64) -> bool {
        self.is_blocked = true;
        let is_due = self.pause_ns(now_ns) == 0;
        if is_due {
            self.probed_at = Moment::of(now_ns);
            self.probes = (self.probes + 1).min(PROBES_MAX);
        }
        is_due
    }

    /// Whether there is still no room.
    pub fn is_blocked(&mut self, session: &Session) -> bool {
        if self.is_blocked && session.room() != 0 && session.may_lend() {
            (self.is_blocked, self.probes) = (false, self.probes.min(1));
        }
        self.is_blocked
    }

    /// Time of the next probe.
    #[must_use]
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        self.is_blocked.then(|| now_ns + self.pause_ns(now_ns))
    }

    /// Time until the next probe may be sent.
    fn pause_ns(&self, now_ns: u64) -> u64 {
        let pause_ns = match self.probes {
            0 => 0,
            probes => PROBE_INTERVAL_NS << (probes - 1),
        };
        pause_ns.saturating_sub(self.probed_at.elapsed_ns(now_ns))
    }
}

/// Interval of the first probes.
const PROBE_INTERVAL_NS: u64 = 20_000_000;
/// The interval doubles up to this number of probes.
const PROBES_MAX: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_room_asks_at_once_and_then_ever_less_often() {
        let mut window_probe = WindowProbe::default();
        let mut now_ns = 1_000_000_000;
        assert!(window_probe.probe(now_ns) && !window_probe.probe(now_ns));
        for pause_ns in [20, 40, 80, 160, 160].map(|ms| ms * 1_000_000) {
            now_ns += pause_ns - 1_000_000;
            assert!(!window_probe.probe(now_ns), "{pause_ns}");
            now_ns += 2_000_000;
            assert!(window_probe.probe(now_ns), "{pause_ns}");
        }
        assert!(!window_probe.is_blocked(&Session::new(0)), "there is room");
        assert_eq!(window_probe.deadline_ns(now_ns), None);
    }
}
