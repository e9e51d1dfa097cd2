// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection between the front and a daemon: frames of [`crate::link`] over two non-blocking byte streams, one per
//! direction. The streams are the two directions of a socket, or the pipes of a remote shell.

use crate::link::Inbox;
use crate::send_buffer::SendBuffer;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{read, write};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The other side has closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disconnected;

/// One side of the connection.
#[derive(Debug)]
pub(crate) struct FrameConnection {
    from: OwnedFd,
    to: OwnedFd,
    /// Received bytes.
    pub(crate) inbox: Inbox,
    /// Bytes to send; [`FrameConnection::flush`] sends them.
    pub(crate) outbox: SendBuffer,
}

impl FrameConnection {
    /// Both ends of a new socket pair.
    pub(crate) fn pair() -> std::io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        let both_ways = |socket: UnixStream| Self::over(socket.try_clone()?.into(), socket.into());
        Ok((both_ways(one)?, both_ways(other)?))
    }

    /// Reads from `from` and writes to `to`.
    pub(crate) fn over(from: OwnedFd, to: OwnedFd) -> std::io::Result<Self> {
        for stream in [&from, &to] {
            let flags = OFlag::from_bits_retain(fcntl(stream, FcntlArg::F_GETFL)?);
            fcntl(stream, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Self {
            from,
            to,
            inbox: Inbox::default(),
            outbox: SendBuffer::default(),
        })
    }

    /// Sends as much as the stream accepts; returns whether everything was sent.
    pub(crate) fn flush(&mut self) -> Result<bool, Disconnected> {
        while !self.is_flushed() {
            match write(&self.to, self.outbox.unsent()) {
                Ok(bytes) => self.outbox.consumed(bytes),
                Err(Errno::EAGAIN) => return Ok(false),
                Err(Errno::EINTR) => (),
                // The kernel is out of buffers. This condition is temporary, and poll does not report its end.
                Err(Errno::ENOBUFS | Errno::ENOMEM) => {
                    std::thread::sleep(PAUSE);
                    return Ok(false);
                }
                Err(_) => return Err(Disconnected),
            }
        }
        Ok(true)
    }

    /// Whether everything was sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outbox.unsent().is_empty()
    }

    /// Calls `read` once and appends the bytes to the inbox.
    pub(crate) fn fill(&mut self, scratch: &mut [u8]) -> Result<(), Disconnected> {
        let bytes = self.read(scratch)?;
        self.inbox.add(&scratch[..bytes]);
        Ok(())
    }

    /// Calls `read` once, bypassing the inbox. Returns the number of bytes, which is 0 if none have arrived.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> Result<usize, Disconnected> {
        match read(&self.from, scratch) {
            Ok(0) => Err(Disconnected),
            Ok(bytes) => Ok(bytes),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(_) => Err(Disconnected),
        }
    }

    /// Shuts down sending and waits, for `within` at most, until the other side has received everything or is gone.
    /// Without the wait, the kernel would discard sent data if this socket were closed with unread input.
    pub(crate) fn finish(&mut self, within: Duration) {
        // `shutdown` fails for a pipe, which needs no wait: a pipe keeps sent data when its write end is closed.
        if shutdown(self.to.as_raw_fd(), Shutdown::Write).is_err() {
            return;
        }
        let until = Instant::now() + within;
        let mut rest = [0; 4096];
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            let _ = poll(
                &mut [PollFd::new(self.reading(), PollFlags::POLLIN)],
                timeout,
            );
            if self.read(&mut rest).is_err() {
                return;
            }
        }
    }

    /// Sends nothing from now on; received data may still be read.
    pub(crate) fn stop_sending(&mut self) {
        self.outbox.clear();
        if let Ok(nothing) = File::options().write(true).open("/dev/null") {
            self.to = nothing.into();
        }
    }

    /// Closes both streams: nothing is received or sent from now on.
    pub(crate) fn close(&mut self) {
        let nothing = || File::options().read(true).write(true).open("/dev/null");
        if let (Ok(from), Ok(to)) = (nothing(), nothing()) {
            (self.from, self.to) = (from.into(), to.into());
        }
    }

    /// Readable when data has arrived or the other side has closed.
    pub(crate) fn reading(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// Writable when there is room for data to send.
    pub(crate) fn writing(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }
}

/// Pause between two attempts to send while the kernel is out of buffers.
const PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{NodeEvent, Order};
    use nix::unistd::pipe;

    /// A connection over two pipes, as a remote shell has them.
    fn piped() -> (FrameConnection, FrameConnection) {
        let (from_one, to_other) = pipe().unwrap();
        let (from_other, to_one) = pipe().unwrap();
        (
            FrameConnection::over(from_other, to_other).unwrap(),
            FrameConnection::over(from_one, to_one).unwrap(),
        )
    }

    #[test]
    fn frames_go_both_ways_over_a_socket_and_over_pipes() {
        for (mut one, mut other) in [FrameConnection::pair().unwrap(), piped()] {
            Order::Kill.put(&mut one.outbox);
            NodeEvent::Held.put(&mut other.outbox);
            assert_eq!((one.flush(), other.flush()), (Ok(true), Ok(true)));
            let mut scratch = [0; 100];
            assert_eq!(one.fill(&mut scratch), Ok(()));
            assert_eq!(other.fill(&mut scratch), Ok(()));
            assert_eq!(NodeEvent::take(&mut one.inbox), Ok(Some(NodeEvent::Held)));
            assert_eq!(Order::take(&mut other.inbox), Ok(Some(Order::Kill)));
            assert_eq!(one.fill(&mut scratch), Ok(()), "nothing is no end");
        }
    }

    #[test]
    fn closing_waits_until_the_peer_has_read_all() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let connection = |stream: std::net::TcpStream| {
            FrameConnection::over(stream.try_clone().unwrap().into(), stream.into()).unwrap()
        };
        let (mut here, mut there) = (connection(here), connection(there));
        // The other side keeps sending data that this side does not read.
        there.outbox.extend([1; 1000]);
        assert_eq!(there.flush(), Ok(true));
        here.outbox.extend(vec![7; 200_000]);
        let ending = std::thread::spawn(move || {
            while here.flush() != Ok(true) {
                std::thread::sleep(Duration::from_millis(1));
            }
            here.finish(Duration::from_secs(20));
        });
        std::thread::sleep(Duration::from_millis(50));
        let (mut scratch, mut count) = (vec![0; 1 << 16], 0);
        while let Ok(bytes) = there.read(&mut scratch) {
            count += bytes;
        }
        drop(there);
        ending.join().unwrap();
        assert_eq!(count, 200_000);
    }

    #[test]
    fn partially_sent_frames_are_completed_later() {
        for (mut one, mut other) in [FrameConnection::pair().unwrap(), piped()] {
            let long = Order::Input(vec![7; 3 << 20]);
            long.put(&mut one.outbox);
            assert_eq!(one.flush(), Ok(false));
            let mut scratch = vec![0; 1 << 16];
            let mut done = false;
            let received = loop {
                done = done || one.flush() == Ok(true);
                assert_eq!(other.fill(&mut scratch), Ok(()));
                if let Some(order) = Order::take(&mut other.inbox).unwrap() {
                    break order;
                }
            };
            assert!(one.is_flushed() && received == long);
        }
    }

    #[test]
    fn sent_bytes_are_freed_while_data_is_still_queued() {
        let (mut one, mut other) = FrameConnection::pair().unwrap();
        let mut scratch = vec![0; 1 << 16];
        for _ in 0..2000 {
            one.outbox.extend([7; 50_000]);
            let _ = one.flush();
            while one.outbox.unsent().len() > 1 << 20 {
                let _ = other.read(&mut scratch);
                let _ = one.flush();
            }
        }
        assert!(one.outbox.capacity() < 8 << 20, "{}", one.outbox.capacity());
    }

    #[test]
    fn disconnect_is_reported_on_read_and_write() {
        for (mut one, other) in [FrameConnection::pair().unwrap(), piped()] {
            drop(other);
            assert_eq!(one.fill(&mut [0; 10]), Err(Disconnected));
            Order::Kill.put(&mut one.outbox);
            assert_eq!(one.flush(), Err(Disconnected));
        }
    }
}
