// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's state of one rank, and the judgement of its exit. No system calls.

use super::affinity_control::CpuPreference;
use crate::failure::FailureCause;
use crate::spawn::ChildExit;
use nix::libc;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Phase of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankPhase {
    /// Has not called `MPI_Init`; most programs that are not MPI programs stay in this phase.
    Started,
    /// Between `MPI_Init` and `MPI_Finalize`.
    InMpi,
    /// Has called `MPI_Finalize`.
    Finalized,
}

/// One rank of this node.
#[derive(Debug)]
pub(crate) struct LocalRank {
    /// The process that was started for it; the MPI process may be a descendant of that.
    pub(crate) pid: u32,
    /// `pid` has not terminated.
    pub(crate) alive: bool,
    /// Its phase.
    pub(crate) phase: RankPhase,
    /// It uses MPICH's library or a derivative, according to its PMI requests.
    pub(crate) in_other_mpi: bool,
    /// MPI programs that it has completed.
    pub(crate) finalized: u32,
    /// The process that called `MPI_Init`.
    pub(crate) mpi_pid: u32,
    /// Its control socket.
    pub(crate) control: Option<OwnedFd>,
    /// Its socket was full: epoll reports when there is room.
    pub(crate) wants_room: bool,
    /// The user was informed that its record is too long.
    pub(crate) record_refused: bool,
    /// Pidfd of `mpi_pid`, if that is another process than `pid`.
    pub(crate) watch: Option<OwnedFd>,
    /// `mpi_pid` terminated inside MPI: if `pid` is alive at this time, the rank counts as deserted.
    pub(crate) deserted_at: Option<Instant>,
    /// Its preferred CPU, while it is in MPI.
    pub(crate) preference: Option<CpuPreference>,
    /// Why the program could not be started.
    pub(crate) not_started: Option<String>,
    /// The first MPI function that it called and that its library does not have; empty if none.
    pub(crate) missing: String,
    /// Its failure was reported to the front.
    pub(crate) reported: bool,
    /// It was stopped after its exec, see `hold`.
    pub(crate) exec_stopped: bool,
    /// It is held for a debugger.
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

    /// The failure to report when the rank's process has terminated with `ending`, if any.
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

/// Order in which exits that were reaped together are judged: a crash is a cause, an exit code often a consequence.
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
    fn a_program_that_never_called_mpi_may_end_with_zero_only() {
        assert_eq!(rank(RankPhase::Started).verdict(ChildExit::Code(0)), None);
        assert_eq!(
            rank(RankPhase::Started).verdict(ChildExit::Code(3)),
            Some(FailureCause::Code(3))
        );
    }

    #[test]
    fn between_init_and_finalize_every_end_is_a_failure() {
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
    fn a_crash_is_judged_before_an_exit_code() {
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
