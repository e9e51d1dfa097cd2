// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signals that the front reads from a signalfd.

use crate::spawn;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that ask to end, and those that are forwarded to the ranks.
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

/// Signal masks of the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals {
    heeded: SigSet,
    before: SigSet,
}

impl Signals {
    /// Blocks the signals, so that none is lost while the job is being started.
    pub(crate) fn hold() -> Result<Self, Errno> {
        let mut heeded = SigSet::empty();
        // The kernel would queue an ignored signal once it is blocked.
        let ending = ENDING
            .into_iter()
            .filter(|signal| !spawn::is_ignored(*signal));
        ending
            .chain(PASSED_ON)
            .for_each(|signal| heeded.add(signal));
        let mut blocked = heeded;
        // A read from the terminal fails in the background instead of stopping this process, and a write succeeds.
        blocked.add(Signal::SIGTTIN);
        blocked.add(Signal::SIGTTOU);
        let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { heeded, before })
    }

    /// A signalfd for them.
    pub(crate) fn descriptor(self) -> Result<SignalFd, Errno> {
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&self.heeded, flags)
    }

    /// The mask from before.
    pub(crate) fn before(self) -> SigSet {
        self.before
    }

    /// Restores the mask, in the daemon, whose ranks inherit it.
    pub(crate) fn release(self) -> Result<(), Errno> {
        self.before.thread_set_mask()
    }
}
