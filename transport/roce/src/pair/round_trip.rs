// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures round trips and computes the response timeout by RFC 6298 section 2, with the floor and the ceiling of
//! [`Config`].
//!
//! Only one packet at a time is timed, so for most acknowledgements this costs one comparison. A packet that is sent
//! again is not timed, since it is unknown which of its transmissions was acknowledged (Karn's algorithm).

use super::config::Config;
use crate::psn::Psn;

/// The measured round-trip time.
#[derive(Debug)]
pub(super) struct RoundTrip {
    smoothed_ns: u64,
    deviation_ns: u64,
    has_sample: bool,
    timed: Option<TimedPacket>,
    /// Longest time since the timed packet was sent in which nothing came from the peer, in nanoseconds.
    longest_silence_ns: u64,
    /// Timeout in nanoseconds before the first measurement.
    initial_ns: u64,
    floor_ns: u64,
    ceiling_ns: u64,
    /// How often the timeout was doubled. Reset to 0 when a round trip was measured, or after [`IN_TIME_ACKS`]
    /// acknowledgements without a timeout between them.
    doublings: u32,
    /// Number of acknowledgements of anything new since the last timeout, while the timeout is doubled.
    in_time: u32,
}

/// The packet whose round trip is measured.
#[derive(Clone, Copy, Debug)]
struct TimedPacket {
    psn: Psn,
    left_at: u64,
}

impl RoundTrip {
    /// Creates the state of a new connection; `None`: responses never time out.
    pub(super) fn new(config: &Config) -> Option<Self> {
        Some(Self {
            smoothed_ns: 0,
            deviation_ns: 0,
            has_sample: false,
            timed: None,
            longest_silence_ns: 0,
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

    /// Records that this packet was sent for the first time, with AckReq: its measurement starts, if none runs.
    pub(super) fn sent(&mut self, now: u64, psn: Psn) {
        if self.timed.is_none() {
            self.timed = Some(TimedPacket { psn, left_at: now });
            self.longest_silence_ns = 0;
        }
    }

    /// Records that the packet with this PSN is sent again (`None`: all unacknowledged packets are): its measurement is
    /// cancelled.
    pub(super) fn sent_again(&mut self, psn: Option<Psn>) {
        if let Some(timed) = self.timed
            && psn.is_none_or(|psn| psn == timed.psn)
        {
            self.timed = None;
        }
    }

    /// Records that something came from the peer; `before`: when something last came from it.
    pub(super) fn heard(&mut self, now: u64, before: u64) {
        if let Some(timed) = self.timed {
            let silence = now.saturating_sub(before.max(timed.left_at));
            self.longest_silence_ns = self.longest_silence_ns.max(silence);
        }
    }

    /// PSN of the packet whose round trip is being measured.
    pub(super) fn timed(&self) -> Option<Psn> {
        self.timed.map(|timed| timed.psn)
    }

    /// Ends the measurement; returns the round trip and the longest silence in it, in nanoseconds.
    pub(super) fn answered(&mut self, now: u64) -> Option<(u64, u64)> {
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
        Some((took, self.longest_silence_ns))
    }

    /// Doubles the timeout.
    pub(super) fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        // Possibly the peer was not scheduled: then the time until its response is not a round trip.
        self.timed = None;
        self.in_time = 0;
    }

    /// Records an acknowledgement of anything new. [`IN_TIME_ACKS`] of them reset the doublings too, because on a link
    /// with heavy loss hardly any packet can be timed.
    pub(super) fn progress(&mut self) {
        if self.doublings != 0 {
            self.in_time += 1;
            if self.in_time >= IN_TIME_ACKS {
                self.doublings = 0;
            }
        }
    }

    /// The response timeout in nanoseconds.
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

/// This number of acknowledgements without a timeout between them shows that the timeout is long enough. A single one
/// does not: it may acknowledge a packet that was sent again after a timeout.
const IN_TIME_ACKS: u32 = 2;
/// Limit of the doublings, so that the shift does not overflow; the ceiling is usually reached before.
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
        assert_eq!(round_trip.answered(took), Some((took, 0)));
    }

    #[test]
    fn timeout_is_smoothed_rtt_plus_four_deviations() {
        let mut round_trip = round_trip(false);
        assert_eq!(round_trip.wait_ns(), 4096 << 4, "nothing was measured");
        measure(&mut round_trip, 8_000);
        assert_eq!(round_trip.wait_ns(), 8_000 + 4 * 4_000);
        measure(&mut round_trip, 16_000);
        assert_eq!(round_trip.wait_ns(), 9_000 + 4 * 5_000);
    }

    #[test]
    fn timeout_respects_floor_and_ceiling() {
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
    fn timeout_doubles_until_the_next_rtt_sample() {
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
    fn timely_acks_end_the_backoff() {
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
    fn retransmitted_packet_gives_no_rtt_sample() {
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
