// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures round trips, and computes the timeout of packets that a lossy carrier may have lost.

/// The state of the retransmission timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResendTimer {
    /// Smoothed round-trip time in nanoseconds; 0 before the first measurement.
    round_ns: u32,
    deviation_ns: u32,
    backoff: u8,
}

impl ResendTimer {
    /// Records that a packet was acknowledged this many nanoseconds after its last transmission.
    pub(crate) fn measure(&mut self, round_ns: u64) {
        if self.backoff != 0 {
            // After a timeout it is unknown which transmission was acknowledged (Karn's algorithm).
            return;
        }
        let round_ns = u32::try_from(round_ns).unwrap_or(u32::MAX / 8);
        if self.round_ns == 0 {
            (self.round_ns, self.deviation_ns) = (round_ns.max(1), round_ns / 2);
            return;
        }
        let off = round_ns.abs_diff(self.round_ns);
        self.deviation_ns = self.deviation_ns / 4 * 3 + off / 4;
        self.round_ns = (self.round_ns / 8 * 7 + round_ns / 8).max(1);
    }

    /// Whether a round trip was measured.
    pub(crate) fn has_sample(&self) -> bool {
        self.round_ns != 0
    }

    /// If later packets have arrived, a packet of this age in nanoseconds counts as lost.
    pub(crate) fn late_ns(&self) -> u64 {
        match self.round_ns {
            0 => u64::MAX,
            round => (u64::from(round) + 2 * u64::from(self.deviation_ns)).max(LATE_NS_MIN),
        }
    }

    /// The retransmission timeout in nanoseconds.
    pub(crate) fn timeout_ns(&self) -> u64 {
        let usual = match self.round_ns {
            0 => FIRST_TIMEOUT_NS,
            round => (u64::from(round) + 4 * u64::from(self.deviation_ns))
                .clamp(TIMEOUT_NS_MIN, TIMEOUT_NS_MAX),
        };
        (usual << self.backoff).min(TIMEOUT_NS_MAX)
    }

    /// Records a timeout: the next timeout is twice as long, up to a limit.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Records that something new was acknowledged.
    #[inline(always)]
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Number of consecutive timeouts, at most [`BACKOFF_MAX`].
    pub(crate) fn timeouts(&self) -> u8 {
        self.backoff
    }
}

/// Minimum age of a late packet in nanoseconds: networks reorder packets by some microseconds.
const LATE_NS_MIN: u64 = 20_000;
const FIRST_TIMEOUT_NS: u64 = 20_000_000;
/// Minimum timeout in nanoseconds: a receiver that is not scheduled does not reply for some milliseconds.
const TIMEOUT_NS_MIN: u64 = 4_000_000;
const TIMEOUT_NS_MAX: u64 = 1_000_000_000;
const BACKOFF_MAX: u8 = 6;
