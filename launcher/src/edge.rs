// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection between the front and a daemon: frames of [`crate::link`] over a socket that never blocks.

use crate::link::Inbox;
use nix::errno::Errno;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The other side is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// One side of the connection.
#[derive(Debug)]
pub(crate) struct Edge {
    socket: UnixStream,
    /// What arrived.
    pub(crate) inbox: Inbox,
    /// What is to be sent; [`Edge::flush`] sends it.
    pub(crate) outbox: Vec<u8>,
    sent: usize,
}

impl Edge {
    /// Both sides.
    pub(crate) fn pair() -> std::io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self::over(one)?, Self::over(other)?))
    }

    fn over(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            inbox: Inbox::default(),
            outbox: Vec::new(),
            sent: 0,
        })
    }

    /// Sends as much as the socket takes; true when nothing is left to send.
    pub(crate) fn flush(&mut self) -> Result<bool, Closed> {
        while self.sent < self.outbox.len() {
            match self.socket.write(&self.outbox[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                // The machine is short of memory for what is under way. That passes, and nothing tells when.
                Err(error) if is_short_of_memory(&error) => {
                    std::thread::sleep(PAUSE);
                    return Ok(false);
                }
                Err(_) => return Err(Closed),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Whether something is left to send.
    pub(crate) fn is_flushed(&self) -> bool {
        self.sent == self.outbox.len()
    }

    /// Reads once what is there into the inbox.
    pub(crate) fn fill(&mut self, scratch: &mut [u8]) -> Result<(), Closed> {
        match self.socket.read(scratch) {
            Ok(0) => Err(Closed),
            Ok(bytes) => {
                self.inbox.add(&scratch[..bytes]);
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(_) => Err(Closed),
        }
    }
}

/// Between two tries to send while the machine is short of memory.
const PAUSE: Duration = Duration::from_millis(5);

fn is_short_of_memory(error: &std::io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw);
    matches!(number, Some(Errno::ENOBUFS | Errno::ENOMEM))
}

impl AsFd for Edge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
