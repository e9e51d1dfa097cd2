// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwards standard input to the ranks that read it: one pipe per rank, all filled at the pace of the slowest reader.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Result of [`RankInput::pump`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpResult {
    /// This many bytes were written to all pipes, or were discarded because no pipe is left.
    Took(u64),
    /// The last reader has closed its pipe. [`RankInput::pump`] returns this only once.
    Closed,
}

/// The daemon's end of one rank's input pipe.
#[derive(Debug)]
pub(crate) struct InputPipe {
    /// Local number of the rank.
    pub(crate) local: u32,
    /// The pipe.
    pub(crate) pipe: OwnedFd,
    /// Whether epoll reports room in the pipe. The daemon maintains this field.
    pub(crate) is_polled: bool,
    /// Bytes of `RankInput::waiting` that were already written to this pipe.
    ahead: usize,
}

/// All input pipes, and the bytes that were not written to all of them yet.
#[derive(Debug, Default)]
pub(crate) struct RankInput {
    readers: Vec<InputPipe>,
    waiting: VecDeque<u8>,
    ended: bool,
    /// Whether [`pump`](Self::pump) has found before that no pipe is left.
    closed: bool,
}

impl RankInput {
    /// Adds a rank's pipe.
    pub(crate) fn connect(&mut self, local: u32, pipe: OwnedFd) -> Result<(), Errno> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        self.readers.push(InputPipe {
            local,
            pipe,
            is_polled: false,
            ahead: 0,
        });
        Ok(())
    }

    /// The pipes, each with a flag: `true` if bytes wait for room in the pipe.
    pub(crate) fn readers(&mut self) -> impl Iterator<Item = (&mut InputPipe, bool)> {
        let all = self.waiting.len();
        self.readers.iter_mut().map(move |reader| {
            let waits = reader.ahead < all;
            (reader, waits)
        })
    }

    /// Appends bytes from the front.
    pub(crate) fn add(&mut self, bytes: Vec<u8>) {
        if !self.readers.is_empty() {
            self.waiting.extend(bytes);
        }
    }

    /// Marks the end of input: pipes are closed once all bytes are written.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Removes a rank that does not read any more.
    pub(crate) fn disconnect(&mut self, local: u32) {
        self.readers.retain(|reader| reader.local != local);
    }

    /// Writes as much as the pipes have room for.
    pub(crate) fn pump(&mut self) -> PumpResult {
        let before = self.readers.len();
        let (waiting, ended) = (&self.waiting, self.ended);
        let mut through = false;
        self.readers.retain_mut(|reader| {
            let open = reader.fill(waiting);
            let is_through = ended && reader.ahead == waiting.len();
            through |= open && is_through;
            open && !is_through
        });
        let Some(taken) = self.readers.iter().map(|reader| reader.ahead).min() else {
            return self.report_last_closed(before > 0 && through);
        };
        self.waiting.drain(..taken);
        self.readers
            .iter_mut()
            .for_each(|reader| reader.ahead -= taken);
        PumpResult::Took(taken as u64)
    }

    /// The result when no pipe is left. `through`: `true` if the last pipe was closed because all input was written to
    /// it; `false` if its reader has closed it.
    fn report_last_closed(&mut self, through: bool) -> PumpResult {
        let taken = self.waiting.len() as u64;
        self.waiting.clear();
        let was_reported = std::mem::replace(&mut self.closed, true);
        if through || was_reported {
            return PumpResult::Took(taken);
        }
        PumpResult::Closed
    }
}

impl InputPipe {
    /// Writes as much as the pipe has room for; `false` if the reader has closed the pipe.
    fn fill(&mut self, waiting: &VecDeque<u8>) -> bool {
        while self.ahead < waiting.len() {
            let (first, second) = waiting.as_slices();
            let rest = match first.get(self.ahead..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &second[self.ahead - first.len()..],
            };
            match nix::unistd::write(&self.pipe, rest) {
                Ok(count) => self.ahead += count,
                Err(Errno::EINTR) => (),
                Err(Errno::EAGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn connected(count: u32) -> (RankInput, Vec<OwnedFd>) {
        let mut input = RankInput::default();
        let connect = |local| {
            let (reader, writer) = nix::unistd::pipe().unwrap();
            input.connect(local, writer).unwrap();
            reader
        };
        let ends = (0..count).map(connect).collect();
        (input, ends)
    }

    fn text() -> Vec<u8> {
        (0..300_000_u32).map(|i| (i % 251) as u8).collect()
    }

    fn read_all(end: OwnedFd) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut seen = Vec::new();
            std::fs::File::from(end).read_to_end(&mut seen).unwrap();
            seen
        })
    }

    #[test]
    fn input_beyond_the_pipe_capacity_reaches_all_readers_in_order() {
        let (mut input, ends) = connected(3);
        input.add(text());
        input.end();
        assert!(matches!(input.pump(), PumpResult::Took(count) if count < 300_000));
        assert!(input.readers().all(|(_, waits)| waits));
        let reads: Vec<_> = ends.into_iter().map(read_all).collect();
        while input.readers().count() > 0 {
            input.pump();
        }
        for read in reads {
            assert_eq!(read.join().unwrap(), text());
        }
    }

    #[test]
    fn consumed_input_is_counted_at_the_slowest_reader() {
        let (mut input, mut ends) = connected(2);
        let slow = ends.pop().unwrap();
        let fast = read_all(ends.pop().unwrap());
        input.add(text());
        let mut taken = 0;
        for _ in 0..100 {
            match input.pump() {
                PumpResult::Took(count) => taken += count,
                PumpResult::Closed => panic!("there is a reader"),
            }
        }
        assert!((1..300_000).contains(&taken), "{taken}");
        let slow = read_all(slow);
        input.end();
        while input.readers().count() > 0 {
            let PumpResult::Took(count) = input.pump() else {
                panic!("there is a reader")
            };
            taken += count;
        }
        assert_eq!(taken, 300_000);
        assert_eq!(
            (fast.join().unwrap(), slow.join().unwrap()),
            (text(), text())
        );
    }

    #[test]
    fn input_closes_with_the_last_reader() {
        let (mut input, mut ends) = connected(2);
        drop(ends.pop());
        input.add(vec![1]);
        assert_eq!(input.pump(), PumpResult::Took(1));
        drop(ends.pop());
        input.add(vec![2]);
        assert_eq!(input.pump(), PumpResult::Closed);
        input.add(vec![3]);
        assert_eq!(input.pump(), PumpResult::Took(0));
    }

    #[test]
    fn disconnected_readers_do_not_block_input() {
        let (mut input, ends) = connected(2);
        input.add(text());
        input.pump();
        input.disconnect(0);
        input.disconnect(1);
        assert_eq!(input.pump(), PumpResult::Closed);
        drop(ends);
    }
}
