// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides when window probes are sent: requests for an acknowledgement to a peer whose window is full or that holds
//! too many large frames. The peer's acknowledgement may have been lost, and so may a request.

use crate::{Moment, Session};

/// The state of the window probes to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowProbe {
    /// Whether packets wait for room.
    is_blocked: bool,
    /// Number of consecutive probes without effect, at most [`PROBES_MAX`].
    probes: u8,
    probed_at: Moment,
}

impl WindowProbe {
    /// Records that packets wait for room. `true`: the caller must send a probe now.
    pub fn probe(&mut self, now_ns: u64) -> bool {
        self.is_blocked = true;
        let is_due = self.pause_ns(now_ns) == 0;
        if is_due {
            self.probed_at = Moment::of(now_ns);
            self.probes = (self.probes + 1).min(PROBES_MAX);
        }
        is_due
    }

    /// Returns whether packets still wait for room. If `session` has room now, ends the probes.
    pub fn is_blocked(&mut self, session: &Session) -> bool {
        if self.is_blocked && session.room() != 0 && session.may_lend() {
            (self.is_blocked, self.probes) = (false, self.probes.min(1));
        }
        self.is_blocked
    }

    /// Time of the next probe; `None`: none is needed.
    #[must_use]
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        self.is_blocked.then(|| now_ns + self.pause_ns(now_ns))
    }

    /// Time in nanoseconds until the next probe may be sent.
    fn pause_ns(&self, now_ns: u64) -> u64 {
        let pause_ns = match self.probes {
            0 => 0,
            probes => PROBE_INTERVAL_NS << (probes - 1),
        };
        pause_ns.saturating_sub(self.probed_at.elapsed_ns(now_ns))
    }
}

/// Interval between the first two probes.
const PROBE_INTERVAL_NS: u64 = 20_000_000;
/// The interval doubles with each probe until this number of probes is reached.
const PROBES_MAX: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_probe_is_immediate_then_backs_off() {
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
