// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops processes for a moment, and lets them continue.
//!
//! Each process is stopped by `ptrace` if the system permits that: it then continues as soon as `rmpi-queues` ends,
//! even if `rmpi-queues` is killed. Otherwise, or if a debugger traces the process already, the process is sent
//! SIGSTOP, and SIGCONT at the end.
//!
//! # Safety
//! Two system calls, whose arguments are numbers and one pointer to a number.
#![allow(unsafe_code, reason = "signals that nix has no names for")]

use nix::libc;
use std::fs;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::Pid;

use crate::Error;

/// Blocks, until dropped, signals that would end or stop this process: if this process ended, ranks that were sent
/// SIGSTOP would stay stopped.
#[derive(Debug)]
pub struct BlockedSignals {
    before: SigSet,
}

impl BlockedSignals {
    /// Blocks the signals for this thread.
    ///
    /// # Errors
    /// An error of the system; in practice there is none.
    pub fn begin() -> std::io::Result<Self> {
        let mut waiting = SigSet::empty();
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGTSTP,
        ] {
            waiting.add(signal);
        }
        let before = waiting.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { before })
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // Restoring a previous mask cannot fail.
        let _ = self.before.thread_set_mask();
    }
}

/// Processes that stay stopped until this is dropped.
#[derive(Debug)]
pub struct HaltedProcesses {
    processes: Vec<HaltedProcess>,
}

impl HaltedProcesses {
    /// Stops processes with all their threads: requests all stops before it waits for any.
    ///
    /// # Errors
    /// When a process cannot be stopped, or does not stop in time; then all processes continue.
    pub fn stop(pids: impl IntoIterator<Item = u32>) -> Result<Self, Error> {
        Self::stop_each(pids, HaltedProcess::request_stop)
    }

    /// Stops processes like [`stop`](Self::stop), but only by SIGSTOP.
    ///
    /// # Errors
    /// Those of [`stop`](Self::stop).
    pub fn stop_by_signal(pids: impl IntoIterator<Item = u32>) -> Result<Self, Error> {
        Self::stop_each(pids, HaltedProcess::request_stop_by_signal)
    }

    fn stop_each(
        pids: impl IntoIterator<Item = u32>,
        request_stop: fn(u32) -> Result<HaltedProcess, Error>,
    ) -> Result<Self, Error> {
        let mut stopped = Self {
            processes: Vec::new(),
        };
        for pid in pids {
            stopped.processes.push(request_stop(pid)?);
        }
        let until = Instant::now() + STOP_TIMEOUT;
        for process in &mut stopped.processes {
            let pid = process.pid;
            let waited = process.wait(until);
            waited.map_err(|why| Error::unreadable(pid, why))?;
        }
        Ok(stopped)
    }

    /// Number of processes stopped by `ptrace`.
    #[must_use]
    pub fn traced(&self) -> usize {
        let traced = |it: &&HaltedProcess| matches!(it.how, HaltMethod::Traced(_));
        self.processes.iter().filter(traced).count()
    }
}

/// One process that was stopped.
#[derive(Debug)]
struct HaltedProcess {
    pid: u32,
    how: HaltMethod,
}

/// How a process was stopped.
#[derive(Debug)]
enum HaltMethod {
    /// The process was already stopped, and stays stopped.
    Before,
    /// The threads of the process are traced by this thread.
    Traced(Trace),
    /// The process was sent SIGSTOP.
    Signalled,
}

/// The traced threads of a process. Not `Send`, since only the thread that began a trace can end it.
#[derive(Debug, Default)]
struct Trace {
    threads: Vec<Thread>,
    here: PhantomData<*const ()>,
}

/// A thread of a rank that is attached by ptrace.
#[derive(Debug)]
struct Thread {
    id: i32,
    /// `Some` as soon as the thread is stopped: the signal to deliver when it continues; 0 means no signal.
    pending_signal: Option<i32>,
}

impl HaltedProcess {
    fn request_stop(pid: u32) -> Result<Self, Error> {
        let unreadable = |why| Error::unreadable(pid, why);
        if is_stopped(pid).map_err(unreadable)? {
            let how = HaltMethod::Before;
            return Ok(Self { pid, how });
        }
        let mut trace = Trace::default();
        if trace.seize_new_threads(pid).is_ok() {
            let how = HaltMethod::Traced(trace);
            return Ok(Self { pid, how });
        }
        drop(trace);
        Self::signal(pid)
    }

    fn request_stop_by_signal(pid: u32) -> Result<Self, Error> {
        let how = HaltMethod::Before;
        match is_stopped(pid).map_err(|why| Error::unreadable(pid, why))? {
            true => Ok(Self { pid, how }),
            false => Self::signal(pid),
        }
    }

    fn signal(pid: u32) -> Result<Self, Error> {
        let number = Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX));
        let sent = kill(number, Signal::SIGSTOP);
        sent.map_err(|why| Error::unreadable(pid, why.into()))?;
        let how = HaltMethod::Signalled;
        Ok(Self { pid, how })
    }

    fn wait(&mut self, until: Instant) -> std::io::Result<()> {
        match &mut self.how {
            HaltMethod::Before => Ok(()),
            HaltMethod::Traced(trace) => trace.wait(self.pid, until),
            HaltMethod::Signalled => {
                while !is_stopped(self.pid)? {
                    pause(until)?;
                }
                Ok(())
            }
        }
    }
}

impl Drop for HaltedProcess {
    fn drop(&mut self) {
        if let HaltMethod::Signalled = self.how {
            let pid = Pid::from_raw(i32::try_from(self.pid).unwrap_or(i32::MAX));
            // The process may have been killed meanwhile.
            let _ = kill(pid, Signal::SIGCONT);
        }
    }
}

impl Trace {
    /// Seizes and interrupts every thread that is not traced yet; returns whether there was such a thread.
    fn seize_new_threads(&mut self, pid: u32) -> std::io::Result<bool> {
        let mut any = false;
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?;
            let name = task.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok());
            let Some(id) = id.filter(|id| self.threads.iter().all(|it| it.id != *id)) else {
                continue;
            };
            let seized = ptrace::seize(Pid::from_raw(id), Options::empty());
            match seized {
                // The thread has ended, or is a zombie.
                Err(Errno::ESRCH) => continue,
                Err(_) if state(&task.path()).is_none_or(|it| matches!(it, 'Z' | 'X')) => continue,
                other => other?,
            }
            self.threads.push(Thread {
                id,
                pending_signal: None,
            });
            // The thread may end at any time; `poll` detects that.
            let _ = ptrace::interrupt(Pid::from_raw(id));
            any = true;
        }
        Ok(any)
    }

    /// Waits until all threads are stopped, including threads created meanwhile.
    fn wait(&mut self, pid: u32, until: Instant) -> std::io::Result<()> {
        loop {
            self.threads.retain_mut(Thread::poll);
            if self.threads.iter().any(|it| it.pending_signal.is_none()) {
                pause(until)?;
            } else if !self.seize_new_threads(pid)? {
                return Ok(());
            }
        }
    }
}

impl Thread {
    /// Sets `pending_signal` if the thread has stopped. Returns false if the thread has ended.
    fn poll(&mut self) -> bool {
        if self.pending_signal.is_some() {
            return true;
        }
        let mut status = 0;
        let flags = libc::__WALL | libc::WNOHANG;
        // SAFETY: room for the status.
        let answer = unsafe { libc::waitpid(self.id, &raw mut status, flags) };
        if answer == self.id && libc::WIFSTOPPED(status) {
            // The upper bits are the ptrace event. A stop without an event is the delivery of a signal.
            let is_its_own = status >> 16 == 0;
            self.pending_signal = Some(if is_its_own {
                libc::WSTOPSIG(status)
            } else {
                0
            });
        }
        answer == 0 || self.pending_signal.is_some()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            // A thread must be stopped before it can be detached.
            let until = Instant::now() + STOP_TIMEOUT;
            while thread.poll() && thread.pending_signal.is_none() && pause(until).is_ok() {}
            let signal = libc::c_long::from(thread.pending_signal.unwrap_or(0));
            // SAFETY: only numbers; no memory of this process is read or written.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, thread.id, null_mut::<u8>(), signal) };
        }
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> std::io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        if !matches!(state(&task?.path()), Some('T' | 't' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The state letter of a thread in `/proc`; `None` if it has ended.
fn state(task: &std::path::Path) -> Option<char> {
    let text = fs::read_to_string(task.join("stat")).ok()?;
    text.rsplit(") ").next()?.chars().next()
}

/// Sleeps briefly, or fails after the deadline.
fn pause(until: Instant) -> std::io::Result<()> {
    if Instant::now() > until {
        return Err(std::io::ErrorKind::TimedOut.into());
    }
    std::thread::sleep(Duration::from_micros(50));
    Ok(())
}

/// Time limit for a process to stop. A process that needs longer is probably in uninterruptible sleep, for example on a
/// hung file system.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigint_is_blocked_only_while_ranks_are_stopped() {
        let is_held = || SigSet::thread_get_mask().unwrap().contains(Signal::SIGINT);
        let guard = BlockedSignals::begin().unwrap();
        assert!(is_held());
        drop(guard);
        assert!(!is_held());
    }

    /// A child in a busy loop, killed on drop.
    struct Child(std::process::Child);

    impl Child {
        fn start() -> Self {
            let mut shell = std::process::Command::new("sh");
            let loops = shell.args(["-c", "while :; do :; done"]);
            Self(loops.spawn().unwrap())
        }

        fn state(&self) -> char {
            let task = format!("/proc/{}", self.0.id());
            state(task.as_ref()).unwrap()
        }

        fn comes_to(&self, wanted: char) -> bool {
            let until = Instant::now() + STOP_TIMEOUT;
            while self.state() != wanted {
                if pause(until).is_err() {
                    return false;
                }
            }
            true
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_stopped_process_resumes_on_drop() {
        let child = Child::start();
        let stopped = HaltedProcesses::stop([child.0.id()]).unwrap();
        assert!(matches!(child.state(), 't' | 'T'));
        assert!(HaltedProcesses::stop([child.0.id()]).unwrap().traced() == 0);
        assert!(matches!(child.state(), 't' | 'T'), "it stood before");
        drop(stopped);
        assert!(child.comes_to('R'));
    }

    #[test]
    fn without_ptrace_a_process_is_stopped_by_sigstop() {
        let child = Child::start();
        let mut signalled = HaltedProcess::signal(child.0.id()).unwrap();
        signalled.wait(Instant::now() + STOP_TIMEOUT).unwrap();
        assert_eq!(child.state(), 'T');
        drop(signalled);
        assert!(child.comes_to('R'));
    }

    #[test]
    fn a_process_stopped_by_the_user_stays_stopped() {
        let child = Child::start();
        let pid = Pid::from_raw(i32::try_from(child.0.id()).unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        assert!(child.comes_to('T'));
        drop(HaltedProcesses::stop([child.0.id()]).unwrap());
        assert_eq!(child.state(), 'T');
    }

    #[test]
    fn a_missing_pid_is_an_error_and_other_processes_resume() {
        let child = Child::start();
        let error = HaltedProcesses::stop([child.0.id(), 0x3fff_ffff]).unwrap_err();
        assert!(matches!(error, Error::NoProcess(0x3fff_ffff)), "{error}");
        assert!(child.comes_to('R'));
    }

    #[test]
    fn a_signal_during_a_stop_is_delivered_on_resume() {
        let mut child = Child::start();
        let stopped = HaltedProcesses::stop([child.0.id()]).unwrap();
        let pid = Pid::from_raw(i32::try_from(child.0.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        drop(stopped);
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.0.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    /// Not a test by itself. The next test runs it in another process; there it stops the process whose pid is in the
    /// variable `HELD`.
    #[test]
    fn helper_stops_the_process_in_the_variable() {
        let Ok(pid) = std::env::var(HELD) else {
            return;
        };
        let _stopped = HaltedProcesses::stop([pid.parse().unwrap()]).unwrap();
        std::thread::sleep(STOP_TIMEOUT);
    }

    #[test]
    fn killing_the_tracer_resumes_the_traced_process() {
        let child = Child::start();
        let mut other = std::process::Command::new(std::env::current_exe().unwrap());
        other.args([
            "--exact",
            "stop::tests::helper_stops_the_process_in_the_variable",
        ]);
        let other = other.env(HELD, child.0.id().to_string()).spawn();
        let other = Child(other.unwrap());
        let until = Instant::now() + STOP_TIMEOUT;
        while !matches!(child.state(), 't' | 'T') {
            pause(until).unwrap();
        }
        let traced = child.state() == 't';
        drop(other);
        assert!(!traced || child.comes_to('R'));
    }

    const HELD: &str = "QUEUES_TEST_HELD";
}
