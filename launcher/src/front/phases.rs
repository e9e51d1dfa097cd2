// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records and formats the duration of each phase of a job, for `--report`.

use crate::job::LaunchTimes;
use crate::link::NodePhase;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The phases that were reached, with their times, in the order in which they were recorded.
#[derive(Debug)]
pub(crate) struct PhaseTimes {
    start: Duration,
    reached: Vec<(&'static str, Duration)>,
}

/// Current time of `CLOCK_MONOTONIC`, which is the same for all processes of a machine.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

impl PhaseTimes {
    /// The phases of a job whose command started at `start`.
    pub(crate) fn since(start: Duration) -> Self {
        Self {
            start,
            reached: Vec::new(),
        }
    }

    /// Records that a phase was reached.
    pub(crate) fn reach(&mut self, name: &'static str, at: Duration) {
        self.reached.push((name, at));
    }

    /// The times that are passed to the ranks: those of the first three recorded phases. A phase that was not recorded
    /// counts as a phase without duration.
    pub(crate) fn begun(&self) -> LaunchTimes {
        let mut reached = self.reached.iter().map(|(_, at)| *at);
        let mut last = self.start;
        let mut next = || {
            last = reached.next().unwrap_or(last);
            last
        };
        LaunchTimes {
            began: self.start,
            understood: next(),
            reached: next(),
            ready: next(),
        }
    }

    /// Records a phase reported by a daemon.
    pub(crate) fn record(&mut self, phase: NodePhase, at: Duration) {
        let name = match phase {
            NodePhase::Started => "all ranks started",
            NodePhase::FirstInMpi => "first rank in MPI_Init",
            NodePhase::AllInMpi => "last rank in MPI_Init",
            NodePhase::AllFinalized => "last rank through MPI_Finalize",
            NodePhase::Ended => "all ranks ended",
        };
        self.reach(name, at);
    }

    /// One line for each phase, in the order of time.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        self.reached.sort_by_key(|(_, at)| *at);
        let milliseconds = |at: Duration| at.as_secs_f64() * 1e3;
        let mut last = self.start;
        let mut line = |(name, at): &(&str, Duration)| {
            let step = milliseconds(at.saturating_sub(last));
            last = *at;
            let whole = milliseconds(at.saturating_sub(self.start));
            format!("{whole:>10.2} ms {step:>+10.2}  {name}")
        };
        self.reached.iter().map(&mut line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_reported_in_order_with_differences() {
        let at = Duration::from_micros;
        let mut phases = PhaseTimes::since(at(1000));
        phases.record(NodePhase::AllInMpi, at(4500));
        phases.reach("programs found", at(2000));
        assert_eq!(
            phases.lines(),
            [
                "      1.00 ms      +1.00  programs found",
                "      3.50 ms      +2.50  last rank in MPI_Init",
            ]
        );
    }

    #[test]
    fn launch_times_include_the_phases_before_the_ranks() {
        let at = Duration::from_millis;
        let mut phases = PhaseTimes::since(at(1));
        phases.reach("command line understood", at(3));
        let begun = phases.begun();
        assert_eq!((begun.began, begun.understood), (at(1), at(3)));
        assert_eq!((begun.reached, begun.ready), (at(3), at(3)));
        phases.reach("all hosts reached", at(6));
        phases.reach("all daemons ready", at(10));
        let begun = phases.begun();
        assert_eq!((begun.reached, begun.ready), (at(6), at(10)));
    }

    #[test]
    fn the_clock_is_monotonic() {
        let first = now();
        assert!(first > Duration::ZERO && now() >= first);
    }
}
