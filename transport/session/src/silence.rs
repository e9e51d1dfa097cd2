// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a peer has not replied. Only time in which this process ran counts: if it was stopped for an hour, it has
//! not waited for an hour.

use crate::Moment;

/// Duration of a peer's silence.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// The duration in milliseconds, and when it was computed.
    silent_ms: u32,
    computed_at: Moment,
}

impl Default for Silence {
    /// The peer is not silent.
    fn default() -> Self {
        Self {
            silent_ms: NOT_SILENT,
            computed_at: Moment::of(0),
        }
    }
}

impl Silence {
    /// Something was received from the peer.
    #[inline(always)]
    pub fn end(&mut self) {
        self.silent_ms = NOT_SILENT;
    }

    /// Whether a request is unanswered since the last packet from the peer.
    #[inline(always)]
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silent_ms != NOT_SILENT
    }

    /// A request had no reply again; returns the duration of the silence in nanoseconds.
    pub fn extend(&mut self, now_ns: u64) -> u64 {
        let more_ms = self.computed_at.elapsed_ns(now_ns).min(INTERVAL_NS_MAX) / 1_000_000;
        self.silent_ms = match self.silent_ms {
            NOT_SILENT => 0,
            before => before.saturating_add(u32::try_from(more_ms).unwrap_or(0)),
        };
        self.computed_at = Moment::of(now_ns);
        u64::from(self.silent_ms) * 1_000_000
    }
}

/// The peer is not silent.
const NOT_SILENT: u32 = u32::MAX;
/// Longest interval between two requests to a silent peer; a longer gap means that this process did not run.
const INTERVAL_NS_MAX: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_somebody_looked_counts() {
        let mut silence = Silence::default();
        let second = 1_000_000_000;
        assert!(!silence.is_silent());
        assert_eq!(silence.extend(70 * second), 0, "it begins now");
        assert_eq!(silence.extend(71 * second), second);
        assert_eq!(silence.extend(300 * second), 3 * second, "stopped");
        silence.end();
        assert!(!silence.is_silent());
        assert_eq!(silence.extend(301 * second), 0);
    }
}
