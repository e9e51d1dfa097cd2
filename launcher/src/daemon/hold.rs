// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks that stand still before their first instruction, so that a debugger finds all of them there.
//!
//! A rank has itself traced by this daemon before it becomes its program. The system stops it behind its exec and tells
//! the daemon, which lets go of it again with SIGSTOP as its next signal: it stands still, and a debugger can trace it.
//! SIGCONT lets it go. Where the system refuses tracing, as some containers do, a rank stops itself right before its exec.

use super::Daemon;
use super::probe::Probes;
use crate::job::NodeJob;
use crate::link::Event;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;

/// How far the holding of a node's ranks has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// They run.
    No,
    /// They come to a stop one by one.
    Gathering,
    /// They stand still, and the front knows.
    Complete,
}

impl Hold {
    pub(super) fn of(job: &NodeJob) -> Self {
        if job.hold { Self::Gathering } else { Self::No }
    }
}

/// In a rank, right before it becomes its program.
pub(super) fn wait_for_debugger() -> Result<(), Errno> {
    ptrace::traceme().or_else(|_| raise(Signal::SIGSTOP))
}

impl Daemon {
    /// A child was stopped by a signal.
    pub(super) fn stopped(&mut self, pid: u32, signal: i32) {
        if self.hold != Hold::Gathering {
            return;
        }
        let Some(local) = self.by_pid.get(&pid) else {
            return;
        };
        let rank = &mut self.ranks[*local as usize];
        let process = Pid::from_raw(pid.cast_signed());
        if signal == libc::SIGTRAP && ptrace::detach(process, Signal::SIGSTOP).is_ok() {
            rank.caught = true;
        } else if ptrace::cont(process, Signal::try_from(signal).ok()).is_err() {
            // Nobody traces it: it has stopped as it was told to.
            rank.held = true;
        }
    }

    /// Tells the front once all ranks stand still that have not ended.
    pub(super) fn tell_if_held(&mut self) {
        let alive = || self.ranks.iter().filter(|rank| rank.alive);
        let moving = alive().any(|rank| !rank.held);
        if self.hold != Hold::Gathering || moving || self.alive() == 0 {
            return;
        }
        let untraced = alive().any(|rank| !rank.caught);
        self.hold = Hold::Complete;
        if untraced {
            self.notice(
                "the system does not let processes be traced here (ptrace): for the debugger the ranks stand still \
                 before their programs are loaded, and not behind that"
                    .to_owned(),
            );
        }
        self.tell(&Event::Held);
    }

    /// The debugger has had its turn.
    pub(super) fn release(&mut self) {
        self.hold = Hold::No;
        self.probes = Probes::new();
        self.signal_ranks(libc::SIGCONT);
    }
}
