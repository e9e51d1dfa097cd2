// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a step's command: writes its input, reads its output, and records its exit.

use super::children::{ShellStream, Spawned, spawn};
use super::shell::ShellExit;
use crate::connection::FrameConnection;
use crate::spawn::ChildExit;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Number of the command's last output lines that are reported with lost hosts; the command may print one line per
/// host.
const KEPT_LINES: usize = 2;
/// Maximum number of bytes that are kept of a line that has not ended yet.
const LINE_BYTES: usize = 4096;

/// A step's command, running or terminated.
#[derive(Debug)]
pub(super) struct StepCommand {
    /// Pid of the command; `None` once it has terminated.
    pid: Option<u32>,
    /// The command's standard input and output. The output carries no messages and is discarded.
    connection: FrameConnection,
    is_output_open: bool,
    stderr_pipe: Option<OwnedFd>,
    /// The unfinished line of its standard error.
    begun: Vec<u8>,
    kept: Vec<String>,
}

impl StepCommand {
    /// Starts the command, with `input` as its standard input.
    pub(super) fn start(arguments: &[String], input: &[u8]) -> Result<Self, ShellExit> {
        let Spawned {
            pid,
            mut connection,
            stderr_pipe,
        } = spawn(arguments)?;
        connection.outbox.extend_from_slice(input);
        Ok(Self {
            pid: Some(pid),
            connection,
            is_output_open: true,
            stderr_pipe: Some(stderr_pipe),
            begun: Vec::new(),
            kept: Vec::new(),
        })
    }

    /// Pid of the command; `None` if it has terminated.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Writes pending bytes to the command's standard input, and closes it once all are written.
    pub(super) fn flush(&mut self) {
        if !self.connection.is_flushed() && self.connection.flush() != Ok(false) {
            self.connection.stop_sending();
        }
    }

    /// The connection to poll for room to write.
    pub(super) fn writing(&self) -> &FrameConnection {
        &self.connection
    }

    /// The streams to poll for input.
    pub(super) fn reading(&self) -> impl Iterator<Item = (ShellStream, BorrowedFd<'_>)> {
        let output = self
            .is_output_open
            .then(|| (ShellStream::Messages, self.connection.reading()));
        let stderr_pipe = self.stderr_pipe.as_ref();
        let stderr_pipe = stderr_pipe.map(|end| (ShellStream::Stderr, end.as_fd()));
        output.into_iter().chain(stderr_pipe)
    }

    /// Reads what the stream has; returns the complete lines if the stream is standard error, and nothing for standard
    /// output.
    pub(super) fn read_lines(&mut self, stream: ShellStream, scratch: &mut [u8]) -> Vec<String> {
        match stream {
            ShellStream::Messages => {
                self.is_output_open &= self.connection.read(scratch).is_ok();
                Vec::new()
            }
            ShellStream::Stderr => self.lines(scratch),
        }
    }

    fn lines(&mut self, scratch: &mut [u8]) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(end) = &self.stderr_pipe {
            match read(end, scratch) {
                Ok(0) => self.stderr_pipe = None,
                Ok(bytes) => {
                    self.begun.extend_from_slice(&scratch[..bytes]);
                    let whole = self.begun.iter().rposition(|byte| *byte == b'\n');
                    let whole = whole.map_or(0, |at| at + 1);
                    let text: Vec<u8> = self.begun.drain(..whole).collect();
                    let text = String::from_utf8_lossy(&text);
                    lines.extend(text.lines().map(str::to_owned));
                    self.begun.truncate(LINE_BYTES);
                }
                Err(Errno::EAGAIN) => break,
                Err(_) => self.stderr_pipe = None,
            }
        }
        lines
    }

    /// Keeps a line for the report of lost hosts.
    pub(super) fn keep_line(&mut self, line: String) {
        self.kept.push(line);
        let surplus = self.kept.len().saturating_sub(KEPT_LINES);
        self.kept.drain(..surplus);
    }

    /// Discards the lines that were kept.
    pub(super) fn drop_lines(&mut self) {
        self.kept.clear();
    }

    /// The last lines of the command's output that were kept.
    pub(super) fn last_lines(&self) -> String {
        self.kept.join("\n")
    }

    /// Records that the command has terminated.
    pub(super) fn has_ended(&mut self, ending: ChildExit) {
        self.pid = None;
        if let ChildExit::Signal { number, .. } = ending {
            self.keep_line(format!("killed by signal {number}"));
        }
    }

    /// Sends SIGTERM to the command. The batch system then ends all tasks; after SIGKILL it would not end them.
    pub(super) fn end(&self) {
        if let Some(pid) = self.pid {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn step_command_reads_input_and_returns_whole_lines() {
        let script = "cat >&2; printf 'a\\nb' >&2; sleep 0.1; printf 'c\\nend' >&2";
        let arguments = ["sh", "-c", script].map(str::to_owned);
        let mut command = StepCommand::start(&arguments, b"the call\n").unwrap();
        let (mut lines, mut scratch) = (Vec::new(), [0; 64]);
        let until = Instant::now() + Duration::from_secs(20);
        while command.stderr_pipe.is_some() {
            assert!(Instant::now() < until, "{lines:?}");
            command.flush();
            lines.extend(command.read_lines(ShellStream::Stderr, &mut scratch));
            command.read_lines(ShellStream::Messages, &mut scratch);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(lines, ["the call", "a", "bc"]);
        lines.into_iter().for_each(|line| command.keep_line(line));
        assert_eq!(command.last_lines(), "a\nbc");
    }
}
