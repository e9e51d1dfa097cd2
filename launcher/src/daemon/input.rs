// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard input of rank 0: a pipe that is filled as fast as the rank reads.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// What a turn of [`Input::pump`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// So many bytes went to the rank.
    Took(u64),
    /// The rank does not read any more.
    Closed,
}

/// The daemon's end of the pipe and what waits for room in it.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pipe: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    ended: bool,
}

impl Input {
    pub(crate) fn new(pipe: OwnedFd) -> Result<Self, Errno> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            pipe: Some(pipe),
            waiting: VecDeque::new(),
            ended: false,
        })
    }

    /// The pipe, as long as it is of use.
    pub(crate) fn pipe(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref()
    }

    /// Whether bytes wait for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes bytes from the front.
    pub(crate) fn add(&mut self, bytes: Vec<u8>) {
        if self.pipe.is_some() {
            self.waiting.extend(bytes);
        }
    }

    /// No more will come: the rank sees the end when it has read all.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Nobody reads it.
    pub(crate) fn close(&mut self) {
        *self = Self::default();
    }

    /// Writes as much as there is room for.
    pub(crate) fn pump(&mut self) -> Pumped {
        let Some(pipe) = &self.pipe else {
            return Pumped::Took(0);
        };
        let mut taken = 0;
        while !self.waiting.is_empty() {
            match nix::unistd::write(pipe, self.waiting.as_slices().0) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    taken += count as u64;
                }
                Err(Errno::EINTR) => (),
                Err(Errno::EAGAIN) => break,
                Err(_) => {
                    self.close();
                    return Pumped::Closed;
                }
            }
        }
        if self.ended && self.waiting.is_empty() {
            self.close();
        }
        Pumped::Took(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn bytes_beyond_the_pipes_room_wait_and_arrive_in_order() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut input = Input::new(writer).unwrap();
        let text: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
        input.add(text.clone());
        input.end();
        assert!(matches!(input.pump(), Pumped::Took(count) if count < 300_000));
        assert!(input.is_waiting());
        let read = std::thread::spawn(move || {
            let mut seen = Vec::new();
            std::fs::File::from(reader).read_to_end(&mut seen).unwrap();
            seen
        });
        while input.pipe().is_some() {
            input.pump();
        }
        assert_eq!(read.join().unwrap(), text);
    }

    #[test]
    fn a_reader_that_is_gone_closes_the_input() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut input = Input::new(writer).unwrap();
        drop(reader);
        input.add(vec![1]);
        assert_eq!(input.pump(), Pumped::Closed);
        input.add(vec![2]);
        assert_eq!(input.pump(), Pumped::Took(0));
    }
}
