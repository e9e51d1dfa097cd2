// SPDX-License-Identifier: MIT OR Apache-2.0
//! A counter of recent failures: a caller acts on several within a short time, not on one.

use crate::Moment;

/// Counts failures; restarts after a minute without one.
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

    /// Failures since the last minute without one.
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
    fn what_has_not_happened_for_a_minute_is_forgotten() {
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
    fn what_never_ends_is_counted_no_further() {
        let mut it = RecentFailures::default();
        for _ in 0..300 {
            it.record(7);
        }
        assert_eq!(it.count(7), u8::MAX);
    }
}
