// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long an acknowledgement takes, and when a packet that a carrier may have lost is sent again.

/// When an unacknowledged packet is sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResendTimer {
    /// Smoothed time from a packet to its acknowledgement, and how much it varies; 0 before the first.
    round_ns: u32,
    varies_ns: u32,
    backoff: u8,
}

impl ResendTimer {
    /// A packet that was sent once was acknowledged after this time.
    pub(crate) fn measure(&mut self, round_ns: u64) {
        if self.backoff != 0 {
            // Nobody knows which time of several was acknowledged.
            return;
        }
        let round_ns = u32::try_from(round_ns).unwrap_or(u32::MAX / 8);
        if self.round_ns == 0 {
            (self.round_ns, self.varies_ns) = (round_ns.max(1), round_ns / 2);
            return;
        }
        let off = round_ns.abs_diff(self.round_ns);
        self.varies_ns = self.varies_ns / 4 * 3 + off / 4;
        self.round_ns = (self.round_ns / 8 * 7 + round_ns / 8).max(1);
    }

    /// Whether anything was measured.
    pub(crate) fn is_known(&self) -> bool {
        self.round_ns != 0
    }

    /// After how long a packet is missed that later ones have overtaken.
    pub(crate) fn late_ns(&self) -> u64 {
        match self.round_ns {
            0 => u64::MAX,
            round => (u64::from(round) + 2 * u64::from(self.varies_ns)).max(LEAST_LATE_NS),
        }
    }

    /// How long an acknowledgement may take.
    pub(crate) fn timeout_ns(&self) -> u64 {
        let usual = match self.round_ns {
            0 => FIRST_TIMEOUT_NS,
            round => (u64::from(round) + 4 * u64::from(self.varies_ns))
                .clamp(LEAST_TIMEOUT_NS, MOST_TIMEOUT_NS),
        };
        (usual << self.backoff).min(MOST_TIMEOUT_NS)
    }

    /// Time was over once more.
    pub(crate) fn slow_down(&mut self) {
        self.backoff = (self.backoff + 1).min(MOST_BACKOFF);
    }

    /// Something new was acknowledged.
    #[inline(always)]
    pub(crate) fn go_on(&mut self) {
        self.backoff = 0;
    }

    /// How often in a row time was over.
    pub(crate) fn timeouts(&self) -> u8 {
        self.backoff
    }
}

/// Packets overtake each other by some microseconds.
const LEAST_LATE_NS: u64 = 20_000;
const FIRST_TIMEOUT_NS: u64 = 20_000_000;
/// A receiver that is off its processor does not answer for some milliseconds.
const LEAST_TIMEOUT_NS: u64 = 4_000_000;
const MOST_TIMEOUT_NS: u64 = 1_000_000_000;
const MOST_BACKOFF: u8 = 6;
