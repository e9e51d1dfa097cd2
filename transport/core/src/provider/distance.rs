// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimates how far away a peer's core is, from the time that a copy into a shared buffer takes.
//!
//! If two cores share a cache, a buffer that one core writes and the other reads should stay in that cache. If they do
//! not, the writer must first fetch each line back from the reader's cache, and the reader must then fetch it from the
//! writer's, which is several times slower than going through memory. Neither the topology (virtual machines hide it,
//! and move their CPUs) nor the model of the CPU distinguishes the two cases; timing a copy now and then does.

use std::time::{Duration, Instant};

/// How to fill a shared buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// Through the caches.
    Plain,
    /// Through the caches, and timed.
    Timed,
    /// With stores that bypass the caches.
    PastCaches,
}

/// The estimate for one peer: four bytes beside its ring's state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Distance {
    far: bool,
    /// `left`: messages until the next measurement. `interval`: messages between the last measurement and the next.
    left: u8,
    interval: u8,
    /// Number of consecutive measurements that contradict the estimate.
    doubts: u8,
}

impl Distance {
    /// How to fill a buffer with the next `bytes` bytes.
    #[inline]
    pub(super) fn choose_fill(&mut self, bytes: usize) -> Fill {
        if bytes < LEAST_BYTES {
            return Fill::Plain;
        }
        if bytes >= LEAST_TIMED_BYTES {
            if self.left == 0 {
                return Fill::Timed;
            }
            self.left -= 1;
        }
        if self.far {
            Fill::PastCaches
        } else {
            Fill::Plain
        }
    }

    /// Whether the peer is far away, by the present estimate.
    #[inline]
    pub(super) fn is_far(self) -> bool {
        self.far
    }

    /// Counts a large message, and returns whether it should go through buffers. If all messages are large and are read
    /// by the peer, no copy is ever timed; so the result is also `true` when a measurement is due.
    pub(super) fn had_better_stream(&mut self) -> bool {
        if self.far || self.left == 0 {
            return true;
        }
        self.left -= 1;
        false
    }

    /// Runs `copy` of `bytes` bytes and updates the estimate from its time.
    #[cold]
    pub(super) fn measure(&mut self, bytes: usize, copy: impl FnOnce()) {
        let start = Instant::now();
        copy();
        self.judge(bytes, start.elapsed());
    }

    /// Updates the estimate after a copy of `bytes` bytes that took the time `taken`. One slow copy may be a first
    /// touch of a page, or a preemption of this process; so only two contradictions in a row change the estimate.
    fn judge(&mut self, bytes: usize, taken: Duration) {
        let far = taken > LINE_IS_FAR * u32::try_from(bytes / 64).unwrap_or(u32::MAX);
        if far == self.far {
            self.doubts = 0;
            self.interval = (self.interval * 2 + 1).min(MOST_INTERVAL);
        } else {
            self.doubts += 1;
            self.interval = 0;
            if self.doubts == 2 {
                (self.far, self.doubts) = (far, 0);
            }
        }
        self.left = self.interval;
    }
}

/// A message with fewer bytes is always written through the caches: it has too few cache lines to matter.
const LEAST_BYTES: usize = 1024;
/// A copy of fewer bytes is not timed: the clock is too coarse.
const LEAST_TIMED_BYTES: usize = 1024;
/// If a copy takes longer than this per cache line on average, the lines are assumed to come from a cache that is not
/// shared.
const LINE_IS_FAR: Duration = Duration::from_nanos(6);
const MOST_INTERVAL: u8 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` messages over a distance that costs `line_ns` per line; returns how many bypassed the caches.
    fn past_caches(distance: &mut Distance, count: u32, line_ns: u64) -> u32 {
        let mut past = 0;
        for _ in 0..count {
            match distance.choose_fill(8192) {
                Fill::PastCaches => past += 1,
                Fill::Timed => distance.judge(8192, Duration::from_nanos(line_ns * 128)),
                Fill::Plain => {}
            }
        }
        past
    }

    #[test]
    fn distance_estimate_follows_migrated_processes() {
        let mut distance = Distance::default();
        assert_eq!(past_caches(&mut distance, 1000, 2), 0);
        assert!(past_caches(&mut distance, 1000, 14) > 800);
        assert!(past_caches(&mut distance, 1000, 2) < 200);
    }

    #[test]
    fn single_slow_copies_do_not_change_the_distance() {
        let mut distance = Distance::default();
        let mut past = 0;
        for turn in 0..50 {
            past += past_caches(&mut distance, 99, 2);
            if distance.choose_fill(8192) == Fill::Timed || turn % 2 == 0 {
                distance.judge(8192, Duration::from_millis(4));
            }
        }
        assert_eq!(past, 0);
    }

    #[test]
    fn distance_is_measured_even_if_all_messages_are_large() {
        let mut distance = Distance::default();
        for line_ns in [2, 14, 2] {
            for _ in 0..1000 {
                if distance.had_better_stream() {
                    past_caches(&mut distance, 8, line_ns);
                }
            }
            assert_eq!(distance.is_far(), line_ns == 14);
        }
    }

    #[test]
    fn small_messages_stay_in_the_caches() {
        let mut distance = Distance::default();
        past_caches(&mut distance, 100, 14);
        assert_eq!(distance.choose_fill(8192), Fill::PastCaches);
        assert_eq!(distance.choose_fill(1023), Fill::Plain);
    }
}
