// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what the ranks of this node wait for: runs the `rmpi-queues` installed here as a child, without blocking the
//! daemon, and sends its output to the front.
//!
//! The child may have stopped ranks by a signal and must continue them itself, so it gets SIGTERM, and SIGKILL only
//! when the job ends.

use super::{Daemon, Token, interest};
use crate::link::{NodeEvent, WaitReport};
use crate::prepare::{self, OWN_VARIABLES};
use crate::program::cause;
use crate::spawn::{self, ChildSetup};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::EpollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2, read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wireup::query::MOST_SEEN_BYTES;

/// Time limit of a query. Ranks that share their CPUs with many others take a while to stop.
pub(crate) const QUERY_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of a reported error message, in bytes.
const MOST_ERROR_BYTES: usize = 600;

/// The running query and the next query, if there are any.
#[derive(Debug, Default)]
pub(super) struct WaitQuery {
    running: Option<QueueReader>,
    /// Number of the last order that arrived while another query was running.
    next: Option<u32>,
}

/// The `rmpi-queues` child of a query.
#[derive(Debug)]
struct QueueReader {
    /// Number of the order.
    number: u32,
    pid: u32,
    output: OwnedFd,
    bytes: Vec<u8>,
    until: Instant,
    /// Whether the query has timed out and the front was notified.
    is_late: bool,
}

impl WaitQuery {
    /// Pid of the child.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|reader| reader.pid)
    }

    /// When the running query times out; `None` if none is running or it has timed out.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let waited_for = self.running.as_ref().filter(|reader| !reader.is_late);
        waited_for.map(|reader| reader.until)
    }
}

impl Daemon {
    /// Starts a query. If a query is running, stores the new one as the next query.
    pub(super) fn query_waits(&mut self, number: u32) {
        if self.wait_query.running.is_some() {
            self.wait_query.next = Some(number);
            return;
        }
        match self.start_reader(number) {
            Ok(reader) => self.wait_query.running = Some(reader),
            Err(why) => self.send_wait_report(number, Err(why)),
        }
    }

    fn start_reader(&self, number: u32) -> Result<QueueReader, String> {
        let path = prepare::installed_program("rmpi-queues")
            .ok_or("rmpi-queues is not installed there")?;
        let wrong = |error: std::io::Error| format!("cannot start rmpi-queues: {}", cause(&error));
        let (output, end) = pipe2(OFlag::O_CLOEXEC).map_err(|why| wrong(why.into()))?;
        let set = fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        set.map_err(|why| wrong(why.into()))?;
        let mut command = Command::new(path);
        command
            .arg("--part")
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stderr(end.try_clone().map_err(wrong)?)
            .stdout(end);
        OWN_VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        let setup = ChildSetup {
            files: Some(self.spawn_context.files),
            ..ChildSetup::here(self.spawn_context.signals)
        };
        setup.apply_to(&mut command);
        let pid = command.spawn().map_err(wrong)?.id();
        // If this fails, the pipe is read when the child has terminated.
        let _ = self.poller.add(
            output.as_fd(),
            interest(EpollFlags::EPOLLIN, Token::QueueOutput),
        );
        Ok(QueueReader {
            number,
            pid,
            output,
            bytes: Vec::new(),
            until: Instant::now() + QUERY_WITHIN,
            is_late: false,
        })
    }

    fn send_wait_report(&mut self, query: u32, read: Result<Vec<u8>, String>) {
        let ranks = self.job.ranks.iter().zip(&self.ranks);
        let ended = ranks.filter(|(_, rank)| !rank.alive);
        let ended = ended.map(|(placed, _)| placed.rank).collect();
        self.send_event(&NodeEvent::Waits(WaitReport { query, ended, read }));
    }

    /// Reads the child's output.
    pub(super) fn read_reader_output(&mut self) {
        let Some(reader) = &mut self.wait_query.running else {
            return;
        };
        match read(&reader.output, &mut self.scratch) {
            Ok(0) => {
                // Otherwise epoll would report the closed pipe again and again.
                let _ = self.poller.delete(&reader.output);
            }
            // Output beyond the limit is discarded.
            Ok(bytes) if reader.bytes.len() <= MOST_SEEN_BYTES => {
                reader.bytes.extend_from_slice(&self.scratch[..bytes]);
            }
            _ => (),
        }
    }

    /// If the query takes too long, ends the child and reports the timeout to the front.
    pub(super) fn check_query_timeout(&mut self, now: Instant) {
        let Some(reader) = &mut self.wait_query.running else {
            return;
        };
        if reader.is_late || reader.until > now {
            return;
        }
        reader.is_late = true;
        // The child exits once it has continued the ranks that it had stopped.
        let _ = kill(Pid::from_raw(reader.pid.cast_signed()), Signal::SIGTERM);
        let (number, seconds) = (reader.number, QUERY_WITHIN.as_secs());
        let why = format!("rmpi-queues could not read the ranks there within {seconds} s");
        self.send_wait_report(number, Err(why));
    }

    /// A child process has terminated. If it is the reader, sends the reply to the front.
    pub(super) fn reader_ended(&mut self, pid: u32, ending: spawn::ChildExit) {
        let Some(mut reader) = self.wait_query.running.take_if(|reader| reader.pid == pid) else {
            return;
        };
        if !reader.is_late {
            reader.read_rest(&mut self.scratch);
            self.send_wait_report(reader.number, reader.answer(ending));
        }
        let _ = self.poller.delete(&reader.output);
        if let Some(number) = self.wait_query.next.take() {
            self.query_waits(number);
        }
    }
}

impl QueueReader {
    /// Reads what is left in the pipe after the child has terminated.
    fn read_rest(&mut self, scratch: &mut [u8]) {
        while self.bytes.len() <= MOST_SEEN_BYTES {
            match read(&self.output, scratch) {
                Ok(bytes @ 1..) => self.bytes.extend_from_slice(&scratch[..bytes]),
                Err(Errno::EINTR) => (),
                _ => return,
            }
        }
    }

    /// The output for the reply to the front, or the reason why there is none.
    fn answer(&mut self, ending: spawn::ChildExit) -> Result<Vec<u8>, String> {
        if self.bytes.len() > MOST_SEEN_BYTES {
            let most = MOST_SEEN_BYTES >> 20;
            return Err(format!(
                "its ranks have more in their queues than the {most} MiB that are reported; run rmpi-queues there, with the process of a \
                 rank"
            ));
        }
        if ending == spawn::ChildExit::Code(0) {
            return Ok(std::mem::take(&mut self.bytes));
        }
        let message =
            String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(MOST_ERROR_BYTES)]);
        let message = message.trim();
        Err(match (message.strip_prefix("rmpi-queues: "), message) {
            (Some(message), _) => message.to_owned(),
            (None, "") => format!(
                "rmpi-queues {}",
                crate::front::describe_exit(Some(ending)).0
            ),
            (None, message) => format!("rmpi-queues says: {message}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn answer(written: &[u8], ending: spawn::ChildExit) -> Result<Vec<u8>, String> {
        let (output, end) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        let mut end = std::fs::File::from(end);
        end.write_all(written).unwrap();
        drop(end);
        let mut reader = QueueReader {
            number: 1,
            pid: 2,
            output,
            bytes: Vec::new(),
            until: Instant::now(),
            is_late: false,
        };
        reader.read_rest(&mut [0; 16]);
        reader.answer(ending)
    }

    #[test]
    fn queue_reader_output_and_errors_are_returned() {
        let code = spawn::ChildExit::Code;
        let seen = b"more than sixteen bytes".to_vec();
        assert_eq!(answer(&seen, code(0)), Ok(seen));
        let why = answer(b"rmpi-queues: it is so\n", code(1));
        assert_eq!(why, Err("it is so".to_owned()));
        let why = answer(b"libc: no\n", code(127));
        assert_eq!(why, Err("rmpi-queues says: libc: no".to_owned()));
        let why = answer(b"", code(4));
        assert_eq!(why, Err("rmpi-queues ended with code 4".to_owned()));
    }
}
