// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window follows congestion: the delay as in Swift (Kumar et al., SIGCOMM 2020), marks of the network, and CNPs of the peer.
//!
//! | what is seen                                        | window                                            |
//! |-----------------------------------------------------|---------------------------------------------------|
//! | round trip at most the target                       | one packet more, up to that of `Config`           |
//! | longer                                              | less by 0.8 × (delay − target) / delay, half at most |
//! | longer than [`ABSENT_NS`]                           | as it was: the peer, or this process, did not run |
//! | a marked answer; a CNP; packets lost for a time-out | half                                              |
//!
//! It is cut at most once in a round trip, and to one packet at least. There is one measurement in a round trip; while the window
//! is whole and the delay below the target, that costs one comparison.

use super::config::Config;

/// The congestion window of a requester, and what it follows from.
#[derive(Debug)]
pub(super) struct CongestionWindow {
    window: u32,
    most: u32,
    /// `u64::MAX`: delays are of no matter.
    target_ns: u64,
    /// The last round trip that was measured.
    delay_ns: u64,
    /// No cut before.
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

    /// Packets that may be under way.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// Times that it was cut.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// A round trip took so long.
    pub(super) fn measured(&mut self, now: u64, delay: u64) {
        self.delay_ns = delay.min(ABSENT_NS);
        if delay <= self.target_ns {
            if self.window < self.most {
                self.window += 1;
            }
        } else if delay < ABSENT_NS.max(self.target_ns.saturating_mul(2)) {
            let above = u128::from(delay - self.target_ns);
            let cut = u128::from(self.window) * above * 4 / (u128::from(delay) * 5);
            self.cut(now, u32::try_from(cut).unwrap_or(u32::MAX));
        }
    }

    /// The network, or the peer for it, says that there is congestion; or it has lost packets.
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

/// Tells the peer by CNPs that its packets were marked. Annex A17.9.3.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    is_wanted: bool,
    next_at: u64,
}

impl Notifier {
    /// A request of the peer was marked.
    pub(super) fn marked(&mut self, now: u64) {
        if now >= self.next_at {
            self.is_wanted = true;
            self.next_at = now.saturating_add(NOTIFY_NS);
        }
    }

    /// Whether a CNP is to leave; it counts as left then.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.is_wanted)
    }
}

/// No queue of a network takes so long; twice the target, where that is more.
const ABSENT_NS: u64 = 5_000_000;
/// At most one CNP in this time.
const NOTIFY_NS: u64 = 50_000;

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
    fn the_window_stays_whole_below_the_target() {
        let mut congestion = congestion();
        for now in 0..100 {
            congestion.measured(now, TARGET);
        }
        assert_eq!((congestion.window(), congestion.cuts()), (100, 0));
    }

    #[test]
    fn it_shrinks_by_the_excess_and_grows_by_one() {
        let mut congestion = congestion();
        congestion.measured(0, 125_000);
        assert_eq!(congestion.window(), 100 - 16);
        congestion.measured(1_000_000, 1_000_000);
        assert_eq!(congestion.window(), 42, "half at most");
        congestion.measured(3_000_000, 50_000);
        assert_eq!(congestion.window(), 43);
    }

    #[test]
    fn it_is_cut_once_in_a_round_trip() {
        let mut congestion = congestion();
        congestion.measured(0, 80_000);
        for now in 0..80_000 {
            congestion.congested(now);
        }
        assert_eq!((congestion.window(), congestion.cuts()), (50, 1));
        congestion.congested(80_000);
        assert_eq!(congestion.window(), 25);
    }

    #[test]
    fn one_packet_is_the_least() {
        let mut congestion = congestion();
        for now in 0..100 {
            congestion.congested(now);
        }
        assert_eq!(congestion.window(), 1);
    }

    #[test]
    fn a_peer_that_does_not_run_is_no_congestion() {
        let mut congestion = congestion();
        congestion.measured(0, ABSENT_NS);
        assert_eq!(congestion.window(), 100);
    }

    #[test]
    fn without_a_target_delays_are_of_no_matter() {
        let mut congestion = CongestionWindow::new(&Config {
            target_delay_ns: 0,
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        });
        congestion.measured(0, u64::MAX);
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
