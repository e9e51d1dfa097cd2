// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durations of the phases of this process's start, for tools. The launcher reports the durations of its own phases;
//! those of `MPI_Init` are measured here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use transport::wait::monotonic_ns;
use wireup::Launch;

/// The phases, in order. Each is described by the text of its performance variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is explained by its variable")]
pub enum LaunchPhase {
    Command,
    Hosts,
    Daemons,
    Start,
    Program,
    Job,
    Network,
    Rest,
}

const LAPS: usize = LaunchPhase::Rest as usize + 1;
static TOOK_NS: [AtomicU64; LAPS] = [const { AtomicU64::new(0) }; LAPS];
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);
static LAP_NS: AtomicU64 = AtomicU64::new(0);

/// Duration of a phase in ns; 0 if the phase is not over, or the launcher has not reported it.
pub(super) fn phase_ns(phase: LaunchPhase) -> u64 {
    TOOK_NS[phase as usize].load(Relaxed)
}

fn took(phase: LaunchPhase, nanoseconds: u64) {
    TOOK_NS[phase as usize].store(nanoseconds, Relaxed);
}

/// Records the start of the initialization of MPI.
pub(crate) fn begin() {
    let now = monotonic_ns();
    BEGAN_NS.store(now, Relaxed);
    LAP_NS.store(now, Relaxed);
}

/// Records the end of a phase, at which the next phase starts.
pub fn end(phase: LaunchPhase) {
    let now = monotonic_ns();
    took(phase, now.saturating_sub(LAP_NS.swap(now, Relaxed)));
}

/// Records the durations that the launcher has reported.
pub(crate) fn record(launch: &Launch) {
    let began = BEGAN_NS.load(Relaxed);
    for (phase, nanoseconds) in [
        (LaunchPhase::Command, launch.command_ns),
        (LaunchPhase::Hosts, launch.hosts_ns),
        (LaunchPhase::Daemons, launch.daemons_ns),
        (LaunchPhase::Start, launch.start_ns),
        (LaunchPhase::Program, began.saturating_sub(launch.born_ns)),
    ] {
        took(phase, nanoseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_phases_are_consecutive_and_launcher_phases_as_reported() {
        begin();
        let born_ns = BEGAN_NS.load(Relaxed) - 70;
        record(&Launch {
            command_ns: 1,
            hosts_ns: 2,
            daemons_ns: 3,
            start_ns: 4,
            born_ns,
        });
        let reported = [
            LaunchPhase::Command,
            LaunchPhase::Hosts,
            LaunchPhase::Daemons,
            LaunchPhase::Start,
        ];
        assert_eq!(reported.map(phase_ns), [1, 2, 3, 4]);
        assert_eq!(phase_ns(LaunchPhase::Program), 70);
        std::thread::sleep(std::time::Duration::from_millis(2));
        end(LaunchPhase::Job);
        end(LaunchPhase::Network);
        assert!(phase_ns(LaunchPhase::Job) >= 2_000_000 && phase_ns(LaunchPhase::Rest) == 0);
        let both = phase_ns(LaunchPhase::Job) + phase_ns(LaunchPhase::Network);
        assert_eq!(both, LAP_NS.load(Relaxed) - BEGAN_NS.load(Relaxed));
    }
}
