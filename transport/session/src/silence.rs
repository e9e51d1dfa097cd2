// SPDX-License-Identifier: MIT OR Apache-2.0
//! For how long a peer has not answered. Only time in which this process looked counts: one that was stopped for an hour has not
//! waited for an hour.

use crate::Moment;

/// How long one has been silent.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// In milliseconds, and when that was found last.
    silent_ms: u32,
    found_at: Moment,
}

impl Default for Silence {
    /// It answers.
    fn default() -> Self {
        Self {
            silent_ms: NOT_SILENT,
            found_at: Moment::of(0),
        }
    }
}

impl Silence {
    /// Something was heard of the peer.
    #[inline(always)]
    pub fn ends(&mut self) {
        self.silent_ms = NOT_SILENT;
    }

    /// Whether something was asked in vain since the peer was heard.
    #[inline(always)]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.silent_ms != NOT_SILENT
    }

    /// The peer has not answered again: for how long now, in nanoseconds.
    pub fn goes_on(&mut self, now_ns: u64) -> u64 {
        let more_ms = self.found_at.until(now_ns).min(MOST_PAUSE_NS) / 1_000_000;
        self.silent_ms = match self.silent_ms {
            NOT_SILENT => 0,
            before => before.saturating_add(u32::try_from(more_ms).unwrap_or(0)),
        };
        self.found_at = Moment::of(now_ns);
        u64::from(self.silent_ms) * 1_000_000
    }
}

/// It answers.
const NOT_SILENT: u32 = u32::MAX;
/// Whoever does not answer is asked more often than this.
const MOST_PAUSE_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_somebody_looked_counts() {
        let mut silence = Silence::default();
        let second = 1_000_000_000;
        assert!(!silence.is_on());
        assert_eq!(silence.goes_on(70 * second), 0, "it begins now");
        assert_eq!(silence.goes_on(71 * second), second);
        assert_eq!(silence.goes_on(300 * second), 3 * second, "stopped");
        silence.ends();
        assert!(!silence.is_on());
        assert_eq!(silence.goes_on(301 * second), 0);
    }
}
