// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks the signals that the front handles, and reads them from a signalfd.

use crate::spawn;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// `ENDING`: signals that request the end of the job. `PASSED_ON`: signals that are forwarded to the ranks.
pub(super) const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];
const PASSED_ON: [Signal; 5] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// The signals that the front handles, and the signal mask before they were blocked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals {
    heeded: SigSet,
    before: SigSet,
}

impl Signals {
    /// Blocks the signals, so that no signal is lost while the job is being started.
    pub(crate) fn hold() -> Result<Self, Errno> {
        let mut heeded = SigSet::empty();
        // Signals that were ignored from the start are left out: if they were blocked, the kernel would queue them, and
        // the front would handle them.
        let ending = ENDING
            .into_iter()
            .filter(|signal| !spawn::is_ignored(*signal));
        ending
            .chain(PASSED_ON)
            .for_each(|signal| heeded.add(signal));
        let mut blocked = heeded;
        // With these signals blocked, a background process that reads from the terminal gets an error instead of being
        // stopped, and its writes to the terminal succeed.
        blocked.add(Signal::SIGTTIN);
        blocked.add(Signal::SIGTTOU);
        let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { heeded, before })
    }

    /// A signalfd for the signals that the front handles.
    pub(crate) fn descriptor(self) -> Result<SignalFd, Errno> {
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&self.heeded, flags)
    }

    /// The mask before the signals were blocked.
    pub(crate) fn before(self) -> SigSet {
        self.before
    }

    /// Restores the signal mask that this process had before the signals were blocked. A daemon or shepherd calls this
    /// after its fork, because the ranks inherit the mask.
    pub(crate) fn release(self) -> Result<(), Errno> {
        self.before.thread_set_mask()
    }
}
