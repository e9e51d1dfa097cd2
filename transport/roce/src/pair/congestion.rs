// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion control: the window follows the round-trip delay, as in Swift (Kumar et al., SIGCOMM 2020), and also ECN
//! marks and CNPs of the peer.
//!
//! | event                                                  | window |
//! |--------------------------------------------------------|-------------------------------------------------------|
//! | round trip up to the target                            | plus one packet, up to the window of `Config` |
//! | longer                                                 | minus 0.8 × (delay − target) / delay, at most half |
//! | longer than [`STALL_NS`]                               | unchanged: one of the two processes was not scheduled |
//! | longer, and nothing came from the peer for most of it  | unchanged: one of the two processes did not poll |
//! | a marked response; a CNP; packets lost after a timeout | half |
//!
//! The window is reduced at most once per round trip, to no less than one packet. One packet per round trip is timed.
//! While the window is that of `Config` and the delay is at most the target, a measurement does not change the window.

use super::config::Config;

/// The congestion window of a requester, with its control state.
#[derive(Debug)]
pub(super) struct CongestionWindow {
    window: u32,
    most: u32,
    /// Round trips above this, in nanoseconds, reduce the window; `u64::MAX`: delays are ignored.
    target_ns: u64,
    /// The last measured round trip in nanoseconds, at most [`STALL_NS`].
    delay_ns: u64,
    /// Earliest time of the next reduction.
    next_cut: u64,
    cuts: u64,
}

impl CongestionWindow {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            window: config.window_packets,
            most: config.window_packets,
            target_ns: match config.target_delay_ns {
                0 => u64::MAX,
                target => target,
            },
            delay_ns: 0,
            next_cut: 0,
            cuts: 0,
        }
    }

    /// Number of packets that may be outstanding.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// Number of reductions.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Records a round trip of `delay` nanoseconds. `silence`: longest time in it in which nothing came from the peer.
    /// While packets flow, acknowledgements come at least every half window.
    pub(super) fn measured(&mut self, now: u64, delay: u64, silence: u64) {
        self.delay_ns = delay.min(STALL_NS);
        if delay <= self.target_ns {
            if self.window < self.most {
                self.window += 1;
            }
        } else if delay < STALL_NS.max(self.target_ns.saturating_mul(2)) && silence <= delay / 4 * 3
        {
            let above = u128::from(delay - self.target_ns);
            let cut = u128::from(self.window) * above * 4 / (u128::from(delay) * 5);
            self.cut(now, u32::try_from(cut).unwrap_or(u32::MAX));
        }
    }

    /// Records a congestion signal: an ECN mark, a CNP, or lost packets.
    pub(super) fn congested(&mut self, now: u64) {
        self.cut(now, u32::MAX);
    }

    fn cut(&mut self, now: u64, packets: u32) {
        if now < self.next_cut {
            return;
        }
        let half = self.window - self.window / 2;
        self.window = (self.window - packets.clamp(1, half)).max(1);
        self.next_cut = now.saturating_add(self.delay_ns);
        self.cuts += 1;
    }
}

/// Decides when a CNP is sent to the peer because its packets were ECN-marked. Annex A17.9.3.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    is_pending: bool,
    next_at: u64,
}

impl Notifier {
    /// Records that a request of the peer was ECN-marked.
    pub(super) fn marked(&mut self, now: u64) {
        if now >= self.next_at {
            self.is_pending = true;
            self.next_at = now.saturating_add(CNP_INTERVAL_NS);
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Returns whether a CNP must be sent now, and records that it is sent.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.is_pending)
    }
}

/// A round trip of this many nanoseconds is longer than any queueing delay in a network. If twice the target is longer,
/// twice the target is used instead.
const STALL_NS: u64 = 5_000_000;
/// Shortest interval between two CNPs in nanoseconds.
const CNP_INTERVAL_NS: u64 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 100_000;

    fn congestion() -> CongestionWindow {
        CongestionWindow::new(&Config {
            window_packets: 100,
            target_delay_ns: TARGET,
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        })
    }

    #[test]
    fn window_is_unchanged_below_the_target_delay() {
        let mut congestion = congestion();
        for now in 0..100 {
            congestion.measured(now, TARGET, TARGET);
        }
        assert_eq!((congestion.window(), congestion.cuts()), (100, 0));
    }

    #[test]
    fn window_shrinks_by_the_excess_and_grows_by_one() {
        let mut congestion = congestion();
        congestion.measured(0, 125_000, 60_000);
        assert_eq!(congestion.window(), 100 - 16);
        congestion.measured(1_000_000, 1_000_000, 0);
        assert_eq!(congestion.window(), 42, "half at most");
        congestion.measured(3_000_000, 50_000, 0);
        assert_eq!(congestion.window(), 43);
    }

    #[test]
    fn window_is_cut_once_per_round_trip() {
        let mut congestion = congestion();
        congestion.measured(0, 80_000, 0);
        for now in 0..80_000 {
            congestion.congested(now);
        }
        assert_eq!((congestion.window(), congestion.cuts()), (50, 1));
        congestion.congested(80_000);
        assert_eq!(congestion.window(), 25);
    }

    #[test]
    fn window_is_at_least_one_packet() {
        let mut congestion = congestion();
        for now in 0..100 {
            congestion.congested(now);
        }
        assert_eq!(congestion.window(), 1);
    }

    #[test]
    fn stalled_peer_is_not_congestion() {
        let mut congestion = congestion();
        congestion.measured(0, STALL_NS, 0);
        assert_eq!(congestion.window(), 100);
        congestion.measured(0, 2_000_000, 1_900_000);
        assert_eq!(congestion.window(), 100, "it has computed for 2 ms");
    }

    #[test]
    fn delays_are_ignored_without_a_target() {
        let mut congestion = CongestionWindow::new(&Config {
            target_delay_ns: 0,
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        });
        congestion.measured(0, u64::MAX, 0);
        assert_eq!(congestion.cuts(), 0);
    }

    #[test]
    fn a_peer_is_notified_once_in_50_microseconds() {
        let mut notifier = Notifier::default();
        let mut left = 0;
        for now in 0..100_000 {
            notifier.marked(now);
            left += u32::from(notifier.take());
        }
        assert_eq!(left, 2);
    }
}
