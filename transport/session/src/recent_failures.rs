// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts recent failures, so that a caller reacts to several failures within a short time, but not to a single one.

use crate::Moment;

/// A counter of failures, which restarts after a minute without a failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentFailures {
    count: u8,
    last: Moment,
}

impl RecentFailures {
    /// Records a failure.
    pub fn record(&mut self, now_ns: u64) {
        self.count = self.count(now_ns).saturating_add(1);
        self.last = Moment::of(now_ns);
    }

    /// Number of failures since the last minute that had none.
    #[must_use]
    pub fn count(self, now_ns: u64) -> u8 {
        match self.last.elapsed_ns(now_ns) {
            0..=RESTART_NS => self.count,
            _ => 0,
        }
    }
}

/// The counter restarts after this time without a failure.
const RESTART_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_count_resets_after_a_quiet_minute() {
        let mut it = RecentFailures::default();
        assert_eq!(it.count(0), 0);
        for second in 1..=3 {
            it.record(50_000_000_000 * second);
        }
        let last = 150_000_000_000;
        assert_eq!((it.count(last), it.count(last + RESTART_NS)), (3, 3));
        assert_eq!(it.count(last + RESTART_NS + 1000), 0);
        it.record(last + RESTART_NS + 1000);
        assert_eq!(it.count(last + 2 * RESTART_NS), 1);
    }

    #[test]
    fn failure_count_saturates() {
        let mut it = RecentFailures::default();
        for _ in 0..300 {
            it.record(7);
        }
        assert_eq!(it.count(7), u8::MAX);
    }
}
