// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round-trip measurement and response timeout: RFC 6298 section 2, with the floor and ceiling of [`Config`].
//!
//! One packet at a time is timed, so an acknowledgement costs one comparison. A packet that is sent again is not timed,
//! since it is unknown which transmission was acknowledged (Karn's algorithm).

use super::config::Config;
use crate::psn::Psn;

/// The measured round-trip time.
#[derive(Debug)]
pub(super) struct RoundTrip {
    smoothed_ns: u64,
    deviation_ns: u64,
    has_sample: bool,
    timed: Option<TimedPacket>,
    /// Timeout before the first measurement.
    initial_ns: u64,
    floor_ns: u64,
    ceiling_ns: u64,
    /// How often the timeout was doubled since a packet was last timed, or [`IN_TIME_ACKS`] acknowledgements arrived in
    /// time.
    doublings: u32,
    /// Acknowledgements of something new since the last timeout.
    in_time: u32,
}

/// The packet whose round trip is measured.
#[derive(Clone, Copy, Debug)]
struct TimedPacket {
    psn: Psn,
    left_at: u64,
}

impl RoundTrip {
    /// `None`: no timeout.
    pub(super) fn new(config: &Config) -> Option<Self> {
        Some(Self {
            smoothed_ns: 0,
            deviation_ns: 0,
            has_sample: false,
            timed: None,
            initial_ns: config.timeout_ns()?,
            floor_ns: match config.peer_shares_cores {
                true => config.shared_floor_ns,
                false => config.floor_ns,
            },
            ceiling_ns: config.ceiling_ns,
            doublings: 0,
            in_time: 0,
        })
    }

    /// Starts the measurement, if none runs: a packet was sent for the first time, with AckReq.
    pub(super) fn sent(&mut self, now: u64, psn: Psn) {
        if self.timed.is_none() {
            self.timed = Some(TimedPacket { psn, left_at: now });
        }
    }

    /// Cancels the measurement if this packet is sent again; `None`: all unacknowledged packets are.
    pub(super) fn sent_again(&mut self, psn: Option<Psn>) {
        if let Some(timed) = self.timed
            && psn.is_none_or(|psn| psn == timed.psn)
        {
            self.timed = None;
        }
    }

    /// PSN of the packet being timed.
    pub(super) fn timed(&self) -> Option<Psn> {
        self.timed.map(|timed| timed.psn)
    }

    /// Ends the measurement; returns the round trip in nanoseconds.
    pub(super) fn answered(&mut self, now: u64) -> Option<u64> {
        let timed = self.timed.take()?;
        let took = now.saturating_sub(timed.left_at);
        if self.has_sample {
            let error = self.smoothed_ns.abs_diff(took);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + error / 4;
            self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + took / 8;
        } else {
            self.deviation_ns = took / 2;
            self.smoothed_ns = took;
            self.has_sample = true;
        }
        self.doublings = 0;
        Some(took)
    }

    /// Doubles the timeout.
    pub(super) fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        // The peer may not have been scheduled: that time is not a round trip.
        self.timed = None;
        self.in_time = 0;
    }

    /// Records an acknowledgement of something new. On a link with heavy loss hardly any packet can be timed.
    pub(super) fn progress(&mut self) {
        if self.doublings != 0 {
            self.in_time += 1;
            if self.in_time >= IN_TIME_ACKS {
                self.doublings = 0;
            }
        }
    }

    /// The response timeout.
    pub(super) fn wait_ns(&self) -> u64 {
        let measured = self
            .smoothed_ns
            .saturating_add(self.deviation_ns.saturating_mul(4));
        let wait = match self.has_sample {
            true => measured,
            false => self.initial_ns,
        };
        let wait = wait.max(self.floor_ns).max(1);
        wait.saturating_mul(1 << self.doublings)
            .min(self.ceiling_ns.max(1))
    }
}

/// So many acknowledgements in a row show that the timeout is long enough. One alone does not: it may acknowledge a
/// packet that was sent again, after another timeout.
const IN_TIME_ACKS: u32 = 2;
/// The ceiling is reached before.
const DOUBLINGS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(shares: bool) -> RoundTrip {
        let config = Config {
            timeout: 4,
            floor_ns: 1_000,
            shared_floor_ns: 200_000,
            ceiling_ns: 1_000_000,
            peer_shares_cores: shares,
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        };
        RoundTrip::new(&config).unwrap()
    }

    fn measure(round_trip: &mut RoundTrip, took: u64) {
        round_trip.sent(0, Psn::new(1));
        assert_eq!(round_trip.answered(took), Some(took));
    }

    #[test]
    fn the_wait_is_the_smoothed_time_and_four_deviations() {
        let mut round_trip = round_trip(false);
        assert_eq!(round_trip.wait_ns(), 4096 << 4, "nothing was measured");
        measure(&mut round_trip, 8_000);
        assert_eq!(round_trip.wait_ns(), 8_000 + 4 * 4_000);
        measure(&mut round_trip, 16_000);
        assert_eq!(round_trip.wait_ns(), 9_000 + 4 * 5_000);
    }

    #[test]
    fn floor_and_ceiling_hold() {
        let mut steady = round_trip(false);
        let mut shared = round_trip(true);
        for _ in 0..100 {
            measure(&mut steady, 16);
            measure(&mut shared, 16);
        }
        assert_eq!([steady.wait_ns(), shared.wait_ns()], [1_000, 200_000]);
        for _ in 0..100 {
            shared.back_off();
        }
        assert_eq!(shared.wait_ns(), 1_000_000);
    }

    #[test]
    fn the_wait_doubles_until_a_packet_was_timed_again() {
        let mut round_trip = round_trip(false);
        measure(&mut round_trip, 8_000);
        let waits = [0; 3].map(|_| {
            round_trip.back_off();
            round_trip.wait_ns()
        });
        assert_eq!(waits, [48_000, 96_000, 192_000]);
        measure(&mut round_trip, 8_000);
        assert_eq!(round_trip.wait_ns(), 8_000 + 4 * 3_000);
    }

    #[test]
    fn answers_in_time_end_the_doubling() {
        let mut round_trip = round_trip(false);
        measure(&mut round_trip, 8_000);
        round_trip.back_off();
        for _ in 0..IN_TIME_ACKS {
            assert_eq!(round_trip.wait_ns(), 48_000);
            round_trip.progress();
        }
        assert_eq!(round_trip.wait_ns(), 24_000);
    }

    #[test]
    fn a_packet_that_was_sent_again_is_not_timed() {
        let mut round_trip = round_trip(false);
        round_trip.sent(0, Psn::new(1));
        round_trip.sent_again(Some(Psn::new(2)));
        assert_eq!(round_trip.timed(), Some(Psn::new(1)));
        round_trip.sent_again(Some(Psn::new(1)));
        assert_eq!(round_trip.answered(9), None);
        round_trip.sent(0, Psn::new(3));
        round_trip.sent_again(None);
        assert_eq!(round_trip.timed(), None);
    }
}
