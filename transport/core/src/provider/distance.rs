// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimates how far away a peer's core is, from the time that a copy into a shared buffer takes.
//!
//! Where two cores share a cache, a buffer that one writes and the other reads best stays in it. Where they do not,
//! each of its lines must first be fetched back from the other's cache, and then be fetched from this one's: several
//! times slower than through memory. Neither the topology (virtual machines hide it, and move their CPUs) nor the
//! model of the CPU distinguishes the two; timing a copy now and then does.

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
    /// Messages until the next measurement, and the interval between the last one and that.
    left: u8,
    interval: u8,
    /// Consecutive measurements in favour of a change.
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

    /// Whether a large message should go through buffers. Where all messages are large and read by the peer, nothing
    /// would ever be measured: so the result is `true` when a measurement is due.
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

    /// One slow copy may be a first touch of a page, or a preemption of this process: only two in a row change the
    /// estimate.
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

/// Below this, a message's lines are too few to matter.
const LEAST_BYTES: usize = 1024;
/// Below this, the clock is too coarse.
const LEAST_TIMED_BYTES: usize = 1024;
/// Cost of a line, on average over a copy, where it must come from a cache that is not shared.
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
    fn it_follows_the_cores_when_they_move() {
        let mut distance = Distance::default();
        assert_eq!(past_caches(&mut distance, 1000, 2), 0);
        assert!(past_caches(&mut distance, 1000, 14) > 800);
        assert!(past_caches(&mut distance, 1000, 2) < 200);
    }

    #[test]
    fn one_slow_copy_changes_nothing() {
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
    fn who_sends_large_messages_only_measures_too() {
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
