// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts recent failures, so that a caller reacts to several failures within a short time, but not to a single one.

/// A counter of failures, which restarts after a minute without a failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentFailures {
    count: u8,
    /// Time of the last failure, in ticks.
    last: u32,
}

impl RecentFailures {
    /// Records a failure.
    pub fn record(&mut self, now_ns: u64) {
        self.count = self.count(now_ns).saturating_add(1);
        self.last = ticks(now_ns);
    }

    /// Number of failures since the last minute without a failure.
    #[must_use]
    pub fn count(self, now_ns: u64) -> u8 {
        // Negative if another thread has recorded a failure since the caller read the clock.
        let elapsed = ticks(now_ns).wrapping_sub(self.last).cast_signed();
        match elapsed <= RESTART_TICKS {
            true => self.count,
            false => 0,
        }
    }
}

/// The time in units of 17 ms. A `u32` of this unit wraps only after two years: a job may run for weeks between two
/// failures.
#[allow(clippy::cast_possible_truncation, reason = "it wraps")]
const fn ticks(now_ns: u64) -> u32 {
    (now_ns >> TICK_SHIFT) as u32
}

const TICK_SHIFT: u32 = 24;
/// The counter restarts after this time without a failure: a minute.
const RESTART_TICKS: i32 = ticks(60_000_000_000).cast_signed();

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;
    const TICK_NS: u64 = 1 << TICK_SHIFT;

    #[test]
    fn failures_an_hour_or_a_month_apart_are_not_recent() {
        let mut it = RecentFailures::default();
        for minutes in [1, 41, 101, 43_200] {
            it.record(minutes * MINUTE_NS);
            assert_eq!(it.count(minutes * MINUTE_NS), 1);
        }
    }

    #[test]
    fn failure_count_resets_after_a_quiet_minute() {
        let mut it = RecentFailures::default();
        assert_eq!(it.count(0), 0);
        for second in 1..=3 {
            it.record(50_000_000_000 * second);
        }
        let last = 150_000_000_000;
        assert_eq!((it.count(last), it.count(last + MINUTE_NS)), (3, 3));
        assert_eq!(it.count(last + MINUTE_NS + TICK_NS), 0);
        it.record(last + MINUTE_NS + TICK_NS);
        assert_eq!(it.count(last + 2 * MINUTE_NS), 1);
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
