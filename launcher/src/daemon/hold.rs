// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds ranks before their first instruction, until a debugger has attached.
//!
//! A rank calls `PTRACE_TRACEME` before `execve`. The kernel stops the rank after the exec and reports the stop to the
//! daemon. The daemon detaches and delivers SIGSTOP to the rank, so the rank is stopped and a debugger can trace it.
//! SIGCONT releases the rank. If the kernel refuses tracing, as in some containers, a rank stops itself right before
//! its `execve`.

use super::Daemon;
use super::probe::Probes;
use crate::job::NodeJob;
use crate::link::NodeEvent;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;

/// Progress of holding a node's ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Ranks are not held.
    No,
    /// Some ranks have not stopped yet.
    Gathering,
    /// All ranks are stopped, and the front was notified.
    Complete,
}

impl Hold {
    pub(super) fn of(job: &NodeJob) -> Self {
        if job.hold { Self::Gathering } else { Self::No }
    }
}

/// Prepares the stop of this rank; called in the rank's process right before `execve`.
pub(super) fn wait_for_debugger() -> Result<(), Errno> {
    ptrace::traceme().or_else(|_| raise(Signal::SIGSTOP))
}

impl Daemon {
    /// Handles a child that was stopped by a signal.
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
            rank.exec_stopped = true;
        } else if ptrace::cont(process, Signal::try_from(signal).ok()).is_err() {
            // The rank is not traced by the daemon, so it was stopped by SIGSTOP and is held.
            rank.held = true;
        }
    }

    /// Notifies the front once all running ranks are held.
    pub(super) fn report_held(&mut self) {
        let alive = || self.ranks.iter().filter(|rank| rank.alive);
        let moving = alive().any(|rank| !rank.held);
        if self.hold != Hold::Gathering || moving || self.alive() == 0 {
            return;
        }
        let untraced = alive().any(|rank| !rank.exec_stopped);
        self.hold = Hold::Complete;
        if untraced {
            self.notice(
                "the system does not let processes be traced here (ptrace): for the debugger the ranks stand still \
                 before their programs are loaded, and not behind that"
                    .to_owned(),
            );
        }
        self.send_event(&NodeEvent::Held);
    }

    /// Releases the ranks, after the debugger has attached.
    pub(super) fn release(&mut self) {
        self.hold = Hold::No;
        self.probes = Probes::new();
        self.signal_ranks(libc::SIGCONT);
    }
}
