// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timestamps of 32 bits.

/// A timestamp in microseconds, with 32 bits: it wraps after 71 minutes. That is long enough for timeouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment(u32);

impl Moment {
    /// The timestamp of `now_ns`.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "it wraps")]
    pub fn of(now_ns: u64) -> Self {
        Self((now_ns / 1000) as u32)
    }

    /// Nanoseconds from this timestamp to `now_ns`, up to 35 minutes; after a longer time the result is wrong.
    #[inline(always)]
    #[must_use]
    pub fn elapsed_ns(self, now_ns: u64) -> u64 {
        let passed = Self::of(now_ns).0.wrapping_sub(self.0).cast_signed();
        u64::from(passed.max(0).cast_unsigned()) * 1000
    }
}
