// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how long a peer has not replied. Only time in which this process ran counts: an hour in which it was
//! stopped is not an hour of silence.

use crate::Moment;

/// The duration of a peer's silence.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// The duration in milliseconds at `computed_at`; [`NOT_SILENT`]: the peer is not silent.
    silent_ms: u32,
    computed_at: Moment,
}

impl Default for Silence {
    /// The silence of a peer that is not silent.
    fn default() -> Self {
        Self {
            silent_ms: NOT_SILENT,
            computed_at: Moment::of(0),
        }
    }
}

impl Silence {
    /// Records that something was received from the peer: the silence ends.
    #[inline(always)]
    pub fn end(&mut self) {
        self.silent_ms = NOT_SILENT;
    }

    /// Whether a request had no reply ([`extend`](Self::extend)) since something was last received from the peer.
    #[inline(always)]
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silent_ms != NOT_SILENT
    }

    /// Records that a request had no reply until `now_ns`. Returns the duration of the silence in nanoseconds: 0 at the
    /// first call of each silence.
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

/// Value of `silent_ms` if the peer is not silent.
const NOT_SILENT: u32 = u32::MAX;
/// Longest interval between two requests to a silent peer. If an interval is longer, only this much of it counts, since
/// this process did not run in the rest.
const INTERVAL_NS_MAX: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_only_polled_time() {
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
