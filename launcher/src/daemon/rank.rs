// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's state of one rank, and the decision whether its exit is a failure. Makes no system calls.

use super::affinity_control::CpuPreference;
use crate::failure::FailureCause;
use crate::spawn::ChildExit;
use nix::libc;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Phase of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankPhase {
    /// Has not called `MPI_Init`. Programs that never call it stay in this phase.
    Started,
    /// Has called `MPI_Init`, and has not called `MPI_Finalize` since then.
    InMpi,
    /// Has called `MPI_Finalize`, and has not called `MPI_Init` again.
    Finalized,
}

/// One rank of this node.
#[derive(Debug)]
pub(crate) struct LocalRank {
    /// Pid of the process that the daemon started for the rank. The process that calls `MPI_Init` may be a descendant
    /// of this process.
    pub(crate) pid: u32,
    /// Whether process `pid` has not terminated.
    pub(crate) alive: bool,
    /// Phase of the rank.
    pub(crate) phase: RankPhase,
    /// Whether the rank has initialized PMI and not finalized it, as ranks with MPICH's library or a derivative do.
    pub(crate) in_other_mpi: bool,
    /// Number of MPI programs that the rank has completed.
    pub(crate) finalized: u32,
    /// Pid of the process that called `MPI_Init` last; 0 if none has.
    pub(crate) mpi_pid: u32,
    /// The daemon's end of the rank's control socket; `None` once it is closed.
    pub(crate) control: Option<OwnedFd>,
    /// Whether the control socket was full; if so, epoll reports when it has room.
    pub(crate) wants_room: bool,
    /// Whether the user was informed that the rank's record is too long.
    pub(crate) record_refused: bool,
    /// Pidfd of process `mpi_pid`, if this is not process `pid`.
    pub(crate) watch: Option<OwnedFd>,
    /// Set if process `mpi_pid` has terminated inside MPI: if process `pid` is still alive at this time, the rank has
    /// failed ([`FailureCause::Deserted`]).
    pub(crate) deserted_at: Option<Instant>,
    /// The rank's preferred CPU, while it is in MPI.
    pub(crate) preference: Option<CpuPreference>,
    /// Why the program could not be started; `None` if there was no such error.
    pub(crate) not_started: Option<String>,
    /// Name of an MPI function that the rank called and that its library does not have: the last one that was reported;
    /// empty if there is none.
    pub(crate) missing: String,
    /// Whether the rank's failure was reported to the front.
    pub(crate) reported: bool,
    /// Whether the rank was stopped after its exec, see `hold`.
    pub(crate) exec_stopped: bool,
    /// Whether the rank is held for a debugger.
    pub(crate) held: bool,
}

impl LocalRank {
    pub(crate) fn new(pid: u32, control: OwnedFd) -> Self {
        Self {
            pid,
            alive: true,
            phase: RankPhase::Started,
            in_other_mpi: false,
            finalized: 0,
            mpi_pid: 0,
            control: Some(control),
            wants_room: false,
            record_refused: false,
            watch: None,
            deserted_at: None,
            preference: None,
            not_started: None,
            missing: String::new(),
            reported: false,
            exec_stopped: false,
            held: false,
        }
    }

    /// The failure to report when the rank's process has terminated with `ending`; `None` if that is no failure or a
    /// failure was reported before.
    pub(crate) fn verdict(&self, ending: ChildExit) -> Option<FailureCause> {
        if self.reported {
            return None;
        }
        if let Some(why) = &self.not_started {
            return Some(FailureCause::NotStarted(why.clone()));
        }
        match ending {
            ChildExit::Signal { number, core } => Some(FailureCause::Signal { number, core }),
            ChildExit::Code(code) if self.phase == RankPhase::InMpi || self.in_other_mpi => {
                Some(FailureCause::Unfinalized(code))
            }
            ChildExit::Code(0) => None,
            ChildExit::Code(code) => Some(FailureCause::Code(code)),
        }
    }
}

/// Order in which exits that were reaped together are evaluated, smallest first. A crash is a cause; SIGTERM, SIGPIPE
/// or an exit code is often a consequence.
pub(crate) fn severity(ending: ChildExit) -> u8 {
    match ending {
        ChildExit::Signal {
            number: libc::SIGPIPE | libc::SIGTERM,
            ..
        } => 1,
        ChildExit::Signal { .. } => 0,
        ChildExit::Code(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(phase: RankPhase) -> LocalRank {
        let (end, _) = nix::unistd::pipe().unwrap();
        LocalRank {
            phase,
            ..LocalRank::new(7, end)
        }
    }

    #[test]
    fn without_mpi_only_a_nonzero_exit_code_is_a_failure() {
        assert_eq!(rank(RankPhase::Started).verdict(ChildExit::Code(0)), None);
        assert_eq!(
            rank(RankPhase::Started).verdict(ChildExit::Code(3)),
            Some(FailureCause::Code(3))
        );
    }

    #[test]
    fn any_exit_between_init_and_finalize_is_a_failure() {
        assert_eq!(
            rank(RankPhase::InMpi).verdict(ChildExit::Code(0)),
            Some(FailureCause::Unfinalized(0))
        );
        let other = LocalRank {
            in_other_mpi: true,
            ..rank(RankPhase::Started)
        };
        assert_eq!(
            other.verdict(ChildExit::Code(0)),
            Some(FailureCause::Unfinalized(0))
        );
        let killed = ChildExit::Signal {
            number: 9,
            core: false,
        };
        let how = FailureCause::Signal {
            number: 9,
            core: false,
        };
        assert_eq!(rank(RankPhase::InMpi).verdict(killed), Some(how.clone()));
        assert_eq!(rank(RankPhase::Finalized).verdict(killed), Some(how));
        assert_eq!(rank(RankPhase::Finalized).verdict(ChildExit::Code(0)), None);
    }

    #[test]
    fn a_failure_is_reported_once() {
        let reported = LocalRank {
            reported: true,
            ..rank(RankPhase::InMpi)
        };
        assert_eq!(reported.verdict(ChildExit::Code(1)), None);
    }

    #[test]
    fn a_crash_is_more_severe_than_an_exit_code() {
        let crash = ChildExit::Signal {
            number: 11,
            core: false,
        };
        let pipe = ChildExit::Signal {
            number: 13,
            core: false,
        };
        assert!(severity(crash) < severity(pipe) && severity(pipe) < severity(ChildExit::Code(1)));
    }
}
