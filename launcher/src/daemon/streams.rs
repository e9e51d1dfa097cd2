// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads standard output and error of the ranks, splits them at line ends, and forwards them as the front's credit
//! allows.

use crate::line_buffer::LineBuffer;
use crate::link::{NodeEvent, OUTPUT_WINDOW_BYTES, OutputStream};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time after which an unfinished line of rank 0 is forwarded, if it may be a prompt.
const PROMPT_AFTER: Duration = Duration::from_millis(50);

/// The ranks whose unfinished lines are forwarded before they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prompts {
    /// The only rank of a job. Its unfinished lines are forwarded immediately, because they cannot mix with lines of
    /// other ranks.
    All,
    /// Rank 0. Its unfinished lines are forwarded after [`PROMPT_AFTER`], because a user at a terminal may have to
    /// answer them.
    RankZero,
    /// No rank.
    None,
}

/// The read end of a rank's standard output or error.
struct OutputPipe {
    rank: u32,
    stream: OutputStream,
    pipe: OwnedFd,
    lines: LineBuffer,
}

/// The output streams of all ranks of a node.
pub(crate) struct OutputStreams {
    /// An epoll set that is readable when one of the streams is readable.
    pub(crate) poller: Epoll,
    sources: Vec<Option<OutputPipe>>,
    open: usize,
    credit: i64,
    prompts: Prompts,
    prompt_at: Option<Instant>,
}

impl OutputStreams {
    pub(crate) fn new(prompts: Prompts) -> Result<Self, Errno> {
        Ok(Self {
            poller: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            sources: Vec::new(),
            open: 0,
            credit: OUTPUT_WINDOW_BYTES.cast_signed(),
            prompts,
            prompt_at: None,
        })
    }

    /// Adds a stream. Streams must be added in the order of local ranks, two per rank.
    pub(crate) fn add(
        &mut self,
        rank: u32,
        stream: OutputStream,
        pipe: OwnedFd,
    ) -> Result<(), Errno> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, self.sources.len() as u64);
        self.poller.add(&pipe, event)?;
        self.sources.push(Some(OutputPipe {
            rank,
            stream,
            pipe,
            lines: LineBuffer::default(),
        }));
        self.open += 1;
        Ok(())
    }

    /// Whether more may be sent to the front.
    pub(crate) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Returns credit: the front has written this many bytes.
    pub(crate) fn restore_credit(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add_unsigned(bytes);
    }

    /// Whether every stream has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.open == 0
    }

    /// Reads once from each stream that is readable.
    pub(crate) fn pump(&mut self, scratch: &mut [u8], out: &mut Vec<u8>) {
        let mut ready = [EpollEvent::empty(); 64];
        let count = self
            .poller
            .wait(&mut ready, EpollTimeout::ZERO)
            .unwrap_or(0);
        for event in &ready[..count] {
            let index = usize::try_from(event.data()).unwrap_or(usize::MAX);
            self.read(index, scratch, out);
        }
    }

    /// Reads what the streams of local rank `local` have, as long as there is credit. Called before an exit or a
    /// failure of the rank is reported, so the output comes first.
    pub(crate) fn drain(&mut self, local: u32, scratch: &mut [u8], out: &mut Vec<u8>) {
        let first = local as usize * 2;
        for index in [first, first + 1] {
            while self.has_credit() && self.read(index, scratch, out) {}
        }
    }

    /// Reads the rest of all streams and closes them. Called when no process of the job is left that could write.
    /// Returns `false` if the credit is exhausted before the end.
    pub(crate) fn finish(&mut self, scratch: &mut [u8], out: &mut Vec<u8>) -> bool {
        for index in 0..self.sources.len() {
            while self.has_credit() && self.read(index, scratch, out) {}
            if !self.has_credit() {
                return false;
            }
            self.end(index, out);
        }
        true
    }

    /// When the unfinished lines of rank 0 are to be forwarded; `None` if there are none.
    pub(crate) fn next_prompt(&self) -> Option<Instant> {
        self.prompt_at
    }

    /// If the unfinished lines of rank 0 are due: forwards them.
    pub(crate) fn send_prompts(&mut self, now: Instant, out: &mut Vec<u8>) {
        if self.prompt_at.is_none_or(|at| at > now) {
            return;
        }
        self.prompt_at = None;
        for source in self
            .sources
            .iter_mut()
            .flatten()
            .filter(|source| source.rank == 0)
        {
            if let Some(bytes) = source.lines.take() {
                self.credit -= send(source, bytes, out);
            }
        }
    }

    /// Reads once from a stream; `true` if the stream may have more.
    fn read(&mut self, index: usize, scratch: &mut [u8], out: &mut Vec<u8>) -> bool {
        let Some(source) = self.sources.get_mut(index).and_then(Option::as_mut) else {
            return false;
        };
        let bytes = match nix::unistd::read(&source.pipe, scratch) {
            Ok(0) => {
                self.end(index, out);
                return false;
            }
            Ok(count) => &scratch[..count],
            Err(Errno::EINTR) => return true,
            Err(_) => return false,
        };
        let mut ready = source.lines.push(bytes);
        if self.prompts == Prompts::All {
            let line = source.lines.take();
            ready = match (ready, line) {
                (Some(lines), Some(line)) => Some([lines, line].concat()),
                (lines, line) => lines.or(line),
            };
        }
        if let Some(bytes) = ready {
            self.credit -= send(source, bytes, out);
        }
        if self.prompts == Prompts::RankZero && source.rank == 0 && source.lines.is_pending() {
            self.prompt_at = Some(Instant::now() + PROMPT_AFTER);
        }
        true
    }

    fn end(&mut self, index: usize, out: &mut Vec<u8>) {
        let Some(mut source) = self.sources.get_mut(index).and_then(Option::take) else {
            return;
        };
        if let Some(bytes) = source.lines.take() {
            self.credit -= send(&source, bytes, out);
        }
        self.open -= 1;
        // Closing the pipe removes it from epoll only when the last descriptor of its file description is closed, and a
        // descendant may have such a descriptor.
        let _ = self.poller.delete(&source.pipe);
    }
}

/// Queues output; returns the credit that it costs.
fn send(source: &OutputPipe, bytes: Vec<u8>, out: &mut Vec<u8>) -> i64 {
    let count = bytes.len() as u64;
    NodeEvent::Output {
        rank: source.rank,
        stream: source.stream,
        bytes,
    }
    .put(out);
    count.cast_signed()
}
