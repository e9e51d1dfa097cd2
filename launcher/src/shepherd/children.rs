// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manages the children of a shepherd: the remote shells that it has started, each with three streams; the job step
//! that starts many shepherds; and the connections of shepherds that a step started. Records how each child ended.

use super::cleanup::{CleanupAction, DaemonCleanup};
use super::shell::ShellExit;
use super::step_command::StepCommand;
use crate::allocation::OPTIONS_OF_STEPS;
use crate::connection::FrameConnection;
use crate::daemon::ProcessSnapshot;
use crate::program::cause;
use crate::spawn::{self, ChildExit, ChildSetup, Reaped};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, read};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes that are kept of the end of a shell's standard error.
const KEPT_BYTES: usize = 2048;
/// Time within which a step must exit after SIGTERM.
const STEP_ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Time for which a step's report is awaited after a connection of one of its shepherds has closed; the report has the
/// reason.
const REPORT_WITHIN: Duration = Duration::from_millis(300);
/// Time for a shell to exit after it has closed its output, before it is killed.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Output stream of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellStream {
    /// Standard output: messages of its shepherd.
    Messages,
    /// Standard error of the shell itself.
    Stderr,
}

/// A remote shell, or a connection of a shepherd that was started by a step.
#[derive(Debug)]
struct ChildConnection {
    /// Pid of the shell; `None` for a connection.
    pid: Option<u32>,
    connection: FrameConnection,
    stderr_pipe: Option<OwnedFd>,
    stderr: Vec<u8>,
    /// When the child closed its output.
    closed: Option<Instant>,
    /// When the termination of the shell was noticed.
    ended: Option<Instant>,
    /// Whether no byte has been received from the child.
    is_silent: bool,
}

/// The children of a shepherd, by number.
#[derive(Debug, Default)]
pub(super) struct Children {
    running: BTreeMap<usize, ChildConnection>,
    /// The command that starts the shepherds of many hosts.
    step: Option<StepCommand>,
    /// Exits of reaped processes that were not evaluated yet, by pid.
    ended: HashMap<u32, ChildExit>,
}

impl Children {
    /// Starts a remote shell.
    pub(super) fn start(&mut self, number: usize, arguments: &[String]) -> Result<(), ShellExit> {
        let shell = spawn(arguments)?;
        let shell =
            ChildConnection::new(Some(shell.pid), shell.connection, Some(shell.stderr_pipe));
        self.running.insert(number, shell);
        Ok(())
    }

    /// Starts the step with these bytes as its standard input.
    pub(super) fn start_step(
        &mut self,
        arguments: &[String],
        input: &[u8],
    ) -> Result<(), ShellExit> {
        self.step = Some(StepCommand::start(arguments, input)?);
        Ok(())
    }

    /// The step command, running or terminated; `None` if no step was started.
    pub(super) fn step(&self) -> Option<&StepCommand> {
        self.step.as_ref()
    }

    /// The step command for changes, running or terminated; `None` if no step was started.
    pub(super) fn step_mut(&mut self) -> Option<&mut StepCommand> {
        self.step.as_mut()
    }

    /// Records the termination of the step. Returns whether the step has terminated since the last call.
    pub(super) fn has_step_ended(&mut self) -> bool {
        let pid = self.step.as_ref().and_then(StepCommand::pid);
        let ending = pid.and_then(|pid| self.ended.remove(&pid));
        if let (Some(step), Some(ending)) = (&mut self.step, ending) {
            step.has_ended(ending);
        }
        ending.is_some()
    }

    /// Sends SIGTERM to the step's command, so the batch system ends all tasks of the step. Then waits for the exit of
    /// the command, for at most [`STEP_ENDS_WITHIN`].
    pub(super) fn end_step(&mut self) {
        if let Some(step) = &self.step {
            step.end();
        }
        let until = Instant::now() + STEP_ENDS_WITHIN;
        while self.is_step_running() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            self.reap();
            self.has_step_ended();
        }
    }

    /// Whether there is a step that has not terminated.
    pub(super) fn is_step_running(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.pid().is_some())
    }

    /// Adds the connection of a shepherd that a step started.
    pub(super) fn adopt(&mut self, number: usize, stream: TcpStream) -> std::io::Result<()> {
        let connection = FrameConnection::over(stream.try_clone()?.into(), stream.into())?;
        self.running
            .insert(number, ChildConnection::new(None, connection, None));
        Ok(())
    }

    /// Pids of all children.
    fn pids(&self) -> impl Iterator<Item = u32> {
        let shells = self.running.values().filter_map(|shell| shell.pid);
        shells.chain(self.step.as_ref().and_then(StepCommand::pid))
    }

    /// The connections that are open for writing.
    pub(super) fn connections(&mut self) -> impl Iterator<Item = (usize, &mut FrameConnection)> {
        let open = self.running.iter_mut();
        let open = open.filter(|(_, shell)| shell.closed.is_none());
        open.map(|(number, shell)| (*number, &mut shell.connection))
    }

    /// The streams to poll for input.
    pub(super) fn reading(&self) -> impl Iterator<Item = (usize, ShellStream, BorrowedFd<'_>)> {
        self.running.iter().flat_map(|(number, shell)| {
            let both = shell.reading();
            both.map(move |(stream, end)| (*number, stream, end))
        })
    }

    /// The connections to poll for room to write.
    pub(super) fn writing(&self) -> impl Iterator<Item = &FrameConnection> {
        let open = self.running.values().filter(|shell| shell.closed.is_none());
        open.map(|shell| &shell.connection)
    }

    /// Calls `read` once on a shepherd's stream; returns the number of bytes, or `None` if the stream is closed.
    pub(super) fn read(&mut self, number: usize, scratch: &mut [u8]) -> Option<usize> {
        let shell = self.running.get_mut(&number)?;
        match shell.connection.read(scratch) {
            Ok(bytes) => {
                shell.is_silent &= bytes == 0;
                Some(bytes)
            }
            Err(_) => {
                shell.closed.get_or_insert_with(Instant::now);
                None
            }
        }
    }

    /// Calls `read` once on a shell's standard error.
    pub(super) fn read_stderr(&mut self, number: usize, scratch: &mut [u8]) {
        if let Some(shell) = self.running.get_mut(&number) {
            shell.read_stderr_pipe(scratch);
        }
    }

    /// Whether some child has closed its output or has terminated, and its end was not evaluated yet.
    pub(super) fn has_ending(&self) -> bool {
        let is_ending = |shell: &ChildConnection| shell.closed.is_some() || shell.ended.is_some();
        self.running.values().any(is_ending)
    }

    /// Reaps terminated processes.
    pub(super) fn reap(&mut self) {
        while let Reaped::Child(pid, ending) = spawn::reap() {
            self.ended.insert(pid, ending);
        }
    }

    /// Removes and returns the next child that has ended, and how it ended. Kills shells that do not exit within
    /// [`END_WITHIN`] after they have closed their output. `is_through`: returns whether all nodes of a child have
    /// ended; then the end of the child was expected.
    pub(super) fn next_ended(
        &mut self,
        is_through: impl Fn(usize) -> bool,
    ) -> Option<(usize, ShellExit)> {
        let is_late =
            |shell: &ChildConnection| shell.closed.is_some_and(|at| at.elapsed() > END_WITHIN);
        for shell in self.running.values().filter(|shell| is_late(shell)) {
            self.end(shell);
        }
        // If another process keeps the output of a terminated shell open, the output counts as closed after
        // `END_WITHIN`.
        for shell in self.running.values_mut() {
            if shell.pid.is_some_and(|pid| self.ended.contains_key(&pid)) {
                let since = *shell.ended.get_or_insert_with(Instant::now);
                if since.elapsed() > END_WITHIN {
                    shell.closed.get_or_insert(since);
                }
            }
        }
        // A child has ended only when its output is closed; a shell must also have been reaped. For a shepherd of the
        // step, the step's report of the reason is awaited for a short time.
        let has_reason = self
            .step
            .as_ref()
            .is_none_or(|step| !step.last_lines().is_empty());
        let is_done = |(number, shell): &(&usize, &ChildConnection)| match (shell.pid, shell.closed)
        {
            (Some(pid), Some(_)) => self.ended.contains_key(&pid),
            (None, Some(at)) => has_reason || is_through(**number) || at.elapsed() > REPORT_WITHIN,
            (_, None) => false,
        };
        let number = *self.running.iter().find(is_done)?.0;
        let mut shell = self.running.remove(&number)?;
        shell.read_stderr_pipe(&mut [0; KEPT_BYTES]);
        let ending = shell.pid.and_then(|pid| self.ended.remove(&pid));
        let (code, signal) = match ending {
            Some(ChildExit::Code(code)) => (Some(code), None),
            Some(ChildExit::Signal { number, .. }) => (None, Some(number)),
            None => (None, None),
        };
        let stderr = match shell.pid {
            Some(_) => String::from_utf8_lossy(&shell.stderr).replace('\r', ""),
            None => self
                .step
                .as_ref()
                .map(StepCommand::last_lines)
                .unwrap_or_default(),
        };
        let closed = ShellExit {
            not_started: None,
            stderr,
            code,
            signal,
        };
        Some((number, closed))
    }

    /// Kills a shell, or closes the connection if the child was started by the step and has no shell.
    pub(super) fn kill(&mut self, number: usize) {
        if let Some(shell) = self.running.get(&number) {
            self.end(shell);
        }
        if let Some(shell) = self.running.get_mut(&number) {
            if shell.pid.is_none() {
                shell.connection.close();
            }
            shell.closed.get_or_insert_with(Instant::now);
        }
    }

    /// Kills a shell and its process group. Does nothing if the shell was reaped, because its pid may have been reused.
    fn end(&self, shell: &ChildConnection) {
        if let Some(pid) = shell.pid.filter(|pid| !self.ended.contains_key(pid)) {
            let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }

    /// Closes all connections, which the peers see as end of file. Shells from which nothing was received are killed.
    pub(super) fn hang_up(&mut self) {
        for shell in self.running.values_mut() {
            shell.connection.close();
        }
        let silent = self.running.values().filter(|shell| shell.is_silent);
        silent.for_each(|shell| self.end(shell));
    }

    /// Whether all children have terminated, and also process `daemon` if it is given.
    pub(super) fn have_all_ended(&mut self, daemon: Option<u32>) -> bool {
        self.reap();
        let mut all = self.pids().chain(daemon);
        all.all(|pid| self.ended.contains_key(&pid))
    }

    /// Kills all shells.
    pub(super) fn kill_all(&mut self) {
        self.running.values().for_each(|shell| self.end(shell));
    }

    /// Takes the next step of a daemon's clean-up. Returns `None` until the clean-up is complete. Then it returns how
    /// the daemon ended, or `Some(None)` if the daemon has not terminated.
    pub(super) fn clean_up(
        &mut self,
        cleanup: &mut DaemonCleanup,
        now: Instant,
    ) -> Option<Option<ChildExit>> {
        self.reap();
        let has_ended = self.ended.contains_key(&cleanup.pid());
        let mut left = Vec::new();
        let action = cleanup.next(
            has_ended,
            || {
                left = self.leftovers();
                !left.is_empty()
            },
            now,
        );
        match action {
            CleanupAction::Wait => None,
            CleanupAction::Kill => {
                left.into_iter().for_each(end);
                None
            }
            CleanupAction::End => Some(self.ended.remove(&cleanup.pid())),
        }
    }

    /// Kills all descendants of this process except the shells and the descendants of shells, repeatedly until none is
    /// left or the time `within` is over.
    pub(super) fn end_leftovers(&mut self, within: Duration) {
        let until = Instant::now() + within;
        loop {
            self.reap();
            let left = self.leftovers();
            if left.is_empty() || Instant::now() > until {
                return;
            }
            left.into_iter().for_each(end);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Descendants of this process except the shells and the descendants of shells.
    fn leftovers(&self) -> Vec<u32> {
        let shells: Vec<u32> = self.pids().collect();
        left_in(&ProcessSnapshot::now(), std::process::id(), &shells)
    }
}

/// Descendants of `process` in this snapshot, except `shells` and their descendants.
fn left_in(tree: &ProcessSnapshot, process: u32, shells: &[u32]) -> Vec<u32> {
    let below = |ancestors: &[u32]| tree.below(ancestors).into_iter().map(|one| one.pid);
    let kept: HashSet<u32> = below(shells).chain(shells.iter().copied()).collect();
    below(&[process])
        .filter(|pid| !kept.contains(pid))
        .collect()
}

/// A process with pipes for its standard streams.
pub(super) struct Spawned {
    pub(super) pid: u32,
    /// Its standard output and input.
    pub(super) connection: FrameConnection,
    /// Its standard error.
    pub(super) stderr_pipe: OwnedFd,
}

/// Starts a process that is killed when this process ends.
pub(super) fn spawn(arguments: &[String]) -> Result<Spawned, ShellExit> {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    for name in OPTIONS_OF_STEPS {
        command.env_remove(name);
    }
    ChildSetup::here(SigSet::empty()).apply_to(&mut command);
    let not_started = |error: std::io::Error| ShellExit {
        not_started: Some(cause(&error)),
        ..ShellExit::default()
    };
    let mut child = command.spawn().map_err(not_started)?;
    let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(to), Some(from), Some(stderr_pipe)) = ends else {
        return Err(not_started(std::io::Error::other("it has no pipes")));
    };
    let stderr_pipe = OwnedFd::from(stderr_pipe);
    let connection = FrameConnection::over(from.into(), to.into()).map_err(not_started)?;
    do_not_block(&stderr_pipe).map_err(not_started)?;
    Ok(Spawned {
        pid: child.id(),
        connection,
        stderr_pipe,
    })
}

impl ChildConnection {
    fn new(pid: Option<u32>, connection: FrameConnection, stderr_pipe: Option<OwnedFd>) -> Self {
        Self {
            pid,
            connection,
            stderr_pipe,
            stderr: Vec::new(),
            closed: None,
            ended: None,
            is_silent: true,
        }
    }

    /// The streams to poll for input.
    fn reading(&self) -> impl Iterator<Item = (ShellStream, BorrowedFd<'_>)> {
        let is_open = self.closed.is_none();
        let messages = is_open.then(|| (ShellStream::Messages, self.connection.reading()));
        let stderr_pipe = self.stderr_pipe.as_ref();
        let stderr_pipe = stderr_pipe.map(|end| (ShellStream::Stderr, end.as_fd()));
        messages.into_iter().chain(stderr_pipe)
    }

    fn read_stderr_pipe(&mut self, scratch: &mut [u8]) {
        while let Some(end) = &self.stderr_pipe {
            match read(end, scratch) {
                Ok(0) => self.stderr_pipe = None,
                Ok(bytes) => {
                    self.stderr.extend_from_slice(&scratch[..bytes]);
                    let surplus = self.stderr.len().saturating_sub(KEPT_BYTES);
                    self.stderr.drain(..surplus);
                }
                Err(nix::errno::Errno::EAGAIN) => return,
                Err(_) => self.stderr_pipe = None,
            }
        }
    }
}

fn do_not_block(stream: &OwnedFd) -> std::io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(stream, FcntlArg::F_GETFL)?);
    fcntl(stream, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

fn end(pid: u32) {
    // The process may have terminated since the snapshot.
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::Descendant;

    #[test]
    fn processes_below_a_shell_do_not_count_as_daemon_leftovers() {
        let zombie = false;
        let process = |(pid, parent)| (Descendant { pid, zombie }, parent);
        // Process 10 has the shells 20 and 30. It has adopted 41, a child of the daemon 40, which has ended. 50 is
        // unrelated; 60 is a new process below 22.
        let parents = [
            (20, 10),
            (30, 10),
            (41, 10),
            (21, 20),
            (22, 21),
            (60, 22),
            (42, 41),
            (50, 1),
            (10, 1),
        ];
        let tree: ProcessSnapshot = parents.into_iter().map(process).collect();
        let mut left = left_in(&tree, 10, &[20, 30]);
        left.sort_unstable();
        assert_eq!(left, [41, 42]);
        assert!(left_in(&tree, 41, &[42]).is_empty());
    }

    #[test]
    fn a_pid_reused_during_the_snapshot_does_not_loop() {
        let zombie = false;
        let process = |(pid, parent)| (Descendant { pid, zombie }, parent);
        let tree: ProcessSnapshot = [(2, 1), (3, 2), (2, 3)].into_iter().map(process).collect();
        assert_eq!(tree.below(&[1]).len(), 2);
    }
}
