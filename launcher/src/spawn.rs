// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates and reaps processes, with the calls for which no safe wrapper exists.
//!
//! # Safety
//! - `fork` copies only the calling thread. A lock that another thread holds during the call stays locked in the child
//!   for ever, so [`fork`] fails if the process has another thread. With one thread the child is an exact copy in which
//!   any code may run.
//! - A function in `.init_array` runs before `main` and before the standard library is initialized, in a process with
//!   one thread. [`record_closed`] only calls `fcntl` and stores the results.
//! - `waitpid`, `pidfd_open`, `_exit`, `sigaction` without a new action and `signal` with the default action take
//!   numbers and pointers to locals only.
//! - [`count_signal`] is a signal handler, so it must be async-signal-safe: it only writes to a descriptor.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::unistd::{ForkResult, Pid, getppid, setpgid, tcsetpgrp};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

/// Which of the descriptors 0, 1, 2 were closed when this process started. The standard library opens `/dev/null` for
/// closed descriptors before `main`. Without this record, output to them would be lost without an error.
static CLOSED: OnceLock<[bool; 3]> = OnceLock::new();

// SAFETY: an entry of this section is a pointer to a function. The loader calls the function once, with arguments that
// a C function may ignore.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD_CLOSED: extern "C" fn() = record_closed;

extern "C" fn record_closed() {
    CLOSED.get_or_init(|| {
        [0, 1, 2].map(|number| {
            // SAFETY: the call reads the flags of a descriptor; for a descriptor that is not open it fails with EBADF.
            unsafe { libc::fcntl(number, libc::F_GETFD) == -1 }
        })
    });
}

/// Whether descriptor `number` (0, 1 or 2) was closed when this process began.
pub(crate) fn was_closed(number: usize) -> bool {
    CLOSED.get().is_some_and(|closed| closed[number])
}

/// Which side of [`fork`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    /// This is the calling process; the number is the pid of the new process.
    Parent(u32),
    /// This is the new process, which must end with [`leave`].
    Child,
}

/// Forks this process.
pub(crate) fn fork() -> Result<Forked, Errno> {
    if has_other_threads() {
        return Err(Errno::EBUSY);
    }
    // SAFETY:
    // - The child would be restricted to async-signal-safe calls if this process had several threads. It has one
    //   thread, as checked above. Without /proc the check is ineffective, but this crate starts no thread in a process
    //   before the last fork of that process.
    let made = unsafe { nix::unistd::fork() }?;
    Ok(match made {
        ForkResult::Parent { child } => Forked::Parent(child.as_raw().cast_unsigned()),
        ForkResult::Child => Forked::Child,
    })
}

/// Whether this process has other threads. The link count of `/proc/self/task` is the number of threads plus 2. Reading
/// it takes one system call; counting the folder's entries would take five.
fn has_other_threads() -> bool {
    std::fs::metadata("/proc/self/task").is_ok_and(|folder| folder.nlink() > 3)
}

/// Process attributes that a command gets between fork and `execve`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildSetup {
    /// The process that starts the command; the command is killed when this process ends.
    pub(crate) parent: Pid,
    /// The command's limit of open files (soft, hard); `None` if the limit is inherited.
    pub(crate) files: Option<(rlim_t, rlim_t)>,
    /// Whether the command's group becomes the foreground process group of the terminal that is its standard input.
    pub(crate) terminal: bool,
    /// The signals that are blocked in the command.
    pub(crate) signals: SigSet,
}

impl ChildSetup {
    /// Attributes of a child of this process with these signals blocked; other attributes are inherited.
    pub(crate) fn here(signals: SigSet) -> Self {
        Self {
            parent: Pid::this(),
            files: None,
            terminal: false,
            signals,
        }
    }

    /// Applies the attributes to a command when it is spawned.
    pub(crate) fn apply_to(self, command: &mut Command) {
        // SAFETY:
        // - Code between fork and execve must be async-signal-safe, since this process may have several threads.
        //   `apply` only makes system calls with numbers of which it has copies, and allocates nothing: the only caller
        //   that sets `terminal` has used the handle of standard input before.
        unsafe { command.pre_exec(move || Ok(self.apply()?)) };
    }

    fn apply(self) -> Result<(), Errno> {
        die_with(self.parent)?;
        if let Some((soft, hard)) = self.files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        if self.terminal {
            // Without this, SIGTTOU would stop a background process that calls `tcsetpgrp`.
            let mut stop = SigSet::empty();
            stop.add(Signal::SIGTTOU);
            stop.thread_block()?;
            tcsetpgrp(std::io::stdin(), Pid::this())?;
        }
        self.signals.thread_set_mask()
    }
}

/// Moves this process into a process group of its own, and requests the kernel to kill the process when its parent
/// ends.
pub(crate) fn die_with(parent: Pid) -> Result<(), Errno> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have ended before the call of `set_pdeathsig`.
    if getppid() == parent {
        Ok(())
    } else {
        Err(Errno::ESRCH)
    }
}

/// Exits without running the `atexit` handlers that were inherited from the parent.
pub(crate) fn leave(code: u8) -> ! {
    // SAFETY: the call takes a number and does not return; memory safety does not depend on the exit handlers that are
    // skipped.
    unsafe { libc::_exit(i32::from(code)) }
}

/// How a child terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildExit {
    /// By `exit` with this code.
    Code(i32),
    /// By a signal.
    Signal {
        /// The signal's number, which may be that of a real-time signal.
        number: i32,
        /// Whether a core file was written.
        core: bool,
    },
}

/// Result of [`reap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// This child has terminated and was reaped.
    Child(u32, ChildExit),
    /// This child was stopped by this signal.
    Stopped(u32, i32),
    /// There are children, but none of them has changed its state.
    NoneYet,
    /// There is no child. In a sub-reaper this means that there is no descendant, because a sub-reaper adopts orphans.
    NoChild,
}

/// Reaps one terminated child, or reports one that was stopped, without blocking.
pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: the only pointer passed is to `status`, a local variable that outlives the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
    match pid {
        0 => Reaped::NoneYet,
        1.. if libc::WIFSIGNALED(status) => {
            let ending = ChildExit::Signal {
                number: libc::WTERMSIG(status),
                core: libc::WCOREDUMP(status),
            };
            Reaped::Child(pid.cast_unsigned(), ending)
        }
        1.. if libc::WIFSTOPPED(status) => {
            Reaped::Stopped(pid.cast_unsigned(), libc::WSTOPSIG(status))
        }
        1.. => Reaped::Child(
            pid.cast_unsigned(),
            ChildExit::Code(libc::WEXITSTATUS(status)),
        ),
        _ if Errno::last() == Errno::EINTR => Reaped::NoneYet,
        _ => Reaped::NoChild,
    }
}

/// Opens a pidfd, which becomes readable when process `pid` has terminated.
pub(crate) fn watch(pid: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two numbers.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) };
    let number = Errno::result(made)?;
    let number = i32::try_from(number).map_err(|_| Errno::EBADF)?;
    // SAFETY:
    // - open: the kernel has just returned the descriptor, as checked above.
    // - not owned by anything else: the kernel has just created the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Restores a signal's default action. It is needed for two signals. `SIGCHLD` may be inherited as ignored, and then no
/// child could be reaped. `SIGPIPE` is ignored by this program, and must not be ignored by the programs that it starts.
pub(crate) fn default_action(signal: Signal) {
    // SAFETY: the default action is not a function, so there is no handler that must be async-signal-safe.
    let previous = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    // The call fails only for SIGKILL and SIGSTOP, which no caller passes.
    let _ = previous;
}

/// Whether this process ignores a signal, as background jobs of a script ignore SIGINT from their start.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is passed, so the action does not change; `action` is a local variable with room for the
    // result.
    let result = unsafe { libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all fields of `action` are integers or an optional function, for which zero is a valid value. So the
    // zeroed `action` is initialised even if the call failed.
    let action = unsafe { action.assume_init() };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Whether a debugger traces this process.
pub(crate) fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// Shows a signal to the debugger that traces this process. A tracer does not see a signal that is read from a
/// signalfd. So this function raises the signal again while the signal is not blocked. Returns whether the debugger
/// passed the signal on to this process; also `true` if this cannot be determined.
pub(crate) fn show_to_tracer(signal: Signal) -> bool {
    let action = SigAction::new(
        SigHandler::Handler(count_signal),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    let mut alone = SigSet::empty();
    alone.add(signal);
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let Ok(noted) = EventFd::from_flags(flags) else {
        return true;
    };
    let noted = NOTED.get_or_init(|| noted);
    // SAFETY: `count_signal` is async-signal-safe, see the module docs.
    let Ok(before) = (unsafe { sigaction(signal, &action) }) else {
        return true;
    };
    let _ = alone.thread_unblock();
    let raised = raise(signal);
    let _ = alone.thread_block();
    // SAFETY: the call restores the previous action. It is the default action or to ignore the signal, since this
    // program has no other handler.
    let _ = unsafe { sigaction(signal, &before) };
    raised.is_err() || noted.read().is_ok()
}

/// Counts the signals of [`show_to_tracer`] that were delivered to this process.
static NOTED: OnceLock<EventFd> = OnceLock::new();

extern "C" fn count_signal(_signal: libc::c_int) {
    if let Some(noted) = NOTED.get() {
        let _ = noted.write(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_tracer_the_signal_is_delivered() {
        let mut alone = SigSet::empty();
        alone.add(Signal::SIGUSR2);
        alone.thread_block().unwrap();
        assert!(show_to_tracer(Signal::SIGUSR2));
        assert!(!is_traced() && SigSet::thread_get_mask().unwrap().contains(Signal::SIGUSR2));
    }

    #[test]
    fn fork_fails_in_a_process_with_several_threads() {
        // The test harness runs this test in a separate thread, so the process has several threads.
        assert_eq!(fork(), Err(Errno::EBUSY));
    }

    #[test]
    fn watching_a_missing_process_is_an_error() {
        assert!(watch(u32::MAX >> 1).is_err());
    }
}
