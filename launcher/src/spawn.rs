// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making processes and learning their end: the calls for which no safe wrapper exists.
//!
//! # Safety
//! - `fork` copies only the calling thread. A lock that another thread holds at that moment stays locked in the child
//!   for ever, so [`fork`] refuses when there is another thread. With one thread the child is an exact copy in which
//!   any code may run.
//! - A function in `.init_array` runs before `main`, in a process with one thread, and before the standard library is
//!   set up: [`look`] asks the kernel and stores the answer, nothing else.
//! - `waitpid`, `pidfd_open`, `_exit`, `sigaction` as a question and `signal` with a default action take numbers and
//!   pointers to locals only.
//! - [`note`] is a handler of signals, so it may do no more than what is async-signal-safe: it writes to a descriptor.
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

/// Which of the descriptors 0, 1, 2 were closed when this process began. The standard library fills such holes with
/// `/dev/null` before `main`, which would take output and lose it.
static CLOSED: OnceLock<[bool; 3]> = OnceLock::new();

// SAFETY: an entry of this section is a pointer to a function that the loader calls once, with arguments that a C function
// may ignore.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    CLOSED.get_or_init(|| {
        [0, 1, 2].map(|number| {
            // SAFETY: asks about a number; one that is not open gives EBADF.
            unsafe { libc::fcntl(number, libc::F_GETFD) == -1 }
        })
    });
}

/// Whether descriptor `number` (0, 1 or 2) was closed when this process began.
pub(crate) fn was_closed(number: usize) -> bool {
    CLOSED.get().is_some_and(|closed| closed[number])
}

/// On which side of [`fork`] this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    /// In the process that called, with the number of the new one.
    Parent(u32),
    /// In the new process, which ends with [`leave`].
    Child,
}

/// Makes a copy of this process.
pub(crate) fn fork() -> Result<Forked, Errno> {
    if has_other_threads() {
        return Err(Errno::EBUSY);
    }
    // SAFETY:
    // - async-signal safety in the child is asked for when there are several threads; there is one, as just seen
    //   (without /proc: no thread of this crate is started before the last fork of its process).
    let made = unsafe { nix::unistd::fork() }?;
    Ok(match made {
        ForkResult::Parent { child } => Forked::Parent(child.as_raw().cast_unsigned()),
        ForkResult::Child => Forked::Child,
    })
}

/// The folder of threads has a link for each besides its own two: one system call, where counting entries takes five.
fn has_other_threads() -> bool {
    std::fs::metadata("/proc/self/task").is_ok_and(|folder| folder.nlink() > 3)
}

/// How a command's process hangs together with the one that starts it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tie {
    /// The process that starts it, and that it does not outlive.
    pub(crate) parent: Pid,
    /// Its limit of open files, if not that of its parent.
    pub(crate) files: Option<(rlim_t, rlim_t)>,
    /// Standard input is a terminal, which is to be its own.
    pub(crate) terminal: bool,
    /// Signals that it finds blocked.
    pub(crate) signals: SigSet,
}

impl Tie {
    /// To this process, with these signals blocked.
    pub(crate) fn here(signals: SigSet) -> Self {
        Self {
            parent: Pid::this(),
            files: None,
            terminal: false,
            signals,
        }
    }

    /// Ties what the command becomes.
    pub(crate) fn hold(self, command: &mut Command) {
        // SAFETY:
        // - what runs between fork and execve may be no more than async-signal-safe, since this process may have several
        //   threads: `take_hold` makes system calls with numbers that it has copies of, and allocates nothing.
        unsafe { command.pre_exec(move || Ok(self.take_hold()?)) };
    }

    fn take_hold(self) -> Result<(), Errno> {
        die_with(self.parent)?;
        if let Some((soft, hard)) = self.files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        if self.terminal {
            // Who is not in front yet would be stopped for this.
            let mut stop = SigSet::empty();
            stop.add(Signal::SIGTTOU);
            stop.thread_block()?;
            tcsetpgrp(std::io::stdin(), Pid::this())?;
        }
        self.signals.thread_set_mask()
    }
}

/// Puts this process into a group of its own, and sees to it that it does not outlive its parent, however that ends.
pub(crate) fn die_with(parent: Pid) -> Result<(), Errno> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have ended before the kernel was told.
    if getppid() == parent {
        Ok(())
    } else {
        Err(Errno::ESRCH)
    }
}

/// Ends this process without running what its parent registered to run at exit.
pub(crate) fn leave(code: u8) -> ! {
    // SAFETY: takes a number and does not return; nothing that is skipped is needed for memory safety.
    unsafe { libc::_exit(i32::from(code)) }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By a signal; `core` if a core file was written.
    Signal {
        /// The signal's number, real-time ones included.
        number: i32,
        /// A core file was written.
        core: bool,
    },
}

/// The answer of [`reap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// This child has ended and is gone now.
    Child(u32, Ending),
    /// This child was stopped by this signal.
    Stopped(u32, i32),
    /// There are children, and of none of them there is news.
    NoneYet,
    /// There is no child, and since orphans come to a sub-reaper, no descendant at all.
    NoChild,
}

/// Takes one ended child away, or learns that one was stopped, without waiting for it.
pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: `status` is a local that outlives the call, which is told nothing else.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
    match pid {
        0 => Reaped::NoneYet,
        1.. if libc::WIFSIGNALED(status) => {
            let ending = Ending::Signal {
                number: libc::WTERMSIG(status),
                core: libc::WCOREDUMP(status),
            };
            Reaped::Child(pid.cast_unsigned(), ending)
        }
        1.. if libc::WIFSTOPPED(status) => {
            Reaped::Stopped(pid.cast_unsigned(), libc::WSTOPSIG(status))
        }
        1.. => Reaped::Child(pid.cast_unsigned(), Ending::Code(libc::WEXITSTATUS(status))),
        _ if Errno::last() == Errno::EINTR => Reaped::NoneYet,
        _ => Reaped::NoChild,
    }
}

/// A descriptor that becomes readable when process `pid` has ended.
pub(crate) fn watch(pid: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two numbers.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) };
    let number = Errno::result(made)?;
    let number = i32::try_from(number).map_err(|_| Errno::EBADF)?;
    // SAFETY:
    // - open: the kernel has just returned it, checked above.
    // - owned by nobody else: it was made for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Gives a signal its default action back. `SIGCHLD` may arrive ignored from a parent, and then no child's end could be
/// learnt; `SIGPIPE` is ignored by this program and must not be by the programs that it starts.
pub(crate) fn default_action(signal: Signal) {
    // SAFETY: the default action is no function, so there is none that must be async-signal-safe.
    let previous = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    // Only SIGKILL and SIGSTOP are refused, and nobody asks for those.
    let _ = previous;
}

/// Whether this process was started with a signal ignored, as the jobs of a script's background are with SIGINT.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is given, so none is changed; `action` is a local with room for the answer.
    let result = unsafe { libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all fields are integers or an optional function, for which zero is a value, so it was initialised before
    // the call and still is if the call failed.
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

/// Shows a signal, which this thread has blocked, to the debugger that traces this process: it stops here, and the debugger lets
/// the signal through or keeps it. Whether it came through. The debugger sees no signal that is read from a descriptor.
pub(crate) fn show_to_tracer(signal: Signal) -> bool {
    let action = SigAction::new(
        SigHandler::Handler(note),
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
    // SAFETY: `note` is async-signal-safe, see the head of the file.
    let Ok(before) = (unsafe { sigaction(signal, &action) }) else {
        return true;
    };
    let _ = alone.thread_unblock();
    let raised = raise(signal);
    let _ = alone.thread_block();
    // SAFETY: the action of before, which is the default one or to ignore it: this program has no other handler.
    let _ = unsafe { sigaction(signal, &before) };
    raised.is_err() || noted.read().is_ok()
}

/// Readable when the last signal of [`show_to_tracer`] came through.
static NOTED: OnceLock<EventFd> = OnceLock::new();

extern "C" fn note(_signal: libc::c_int) {
    if let Some(noted) = NOTED.get() {
        let _ = noted.write(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_debugger_a_signal_comes_through() {
        let mut alone = SigSet::empty();
        alone.add(Signal::SIGUSR2);
        alone.thread_block().unwrap();
        assert!(show_to_tracer(Signal::SIGUSR2));
        assert!(!is_traced() && SigSet::thread_get_mask().unwrap().contains(Signal::SIGUSR2));
    }

    #[test]
    fn a_process_with_several_threads_does_not_fork() {
        // The test harness runs this test in a thread of its own.
        assert_eq!(fork(), Err(Errno::EBUSY));
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_watched() {
        assert!(watch(u32::MAX >> 1).is_err());
    }
}
