// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends and receives messages of a fixed length over a connection that carries no packets yet. Reads no byte beyond
//! the current message.

use std::io;

use super::sockets::{Sock, Sockets};

/// The messages of a handshake on a connection.
#[derive(Debug)]
pub(super) struct HandshakeStream {
    pub(super) sock: Sock,
    /// Bytes still to be sent.
    out: Vec<u8>,
    /// Received bytes of the next message.
    got: Vec<u8>,
}

impl HandshakeStream {
    pub(super) fn new(sock: Sock) -> Self {
        Self {
            sock,
            out: Vec::new(),
            got: Vec::new(),
        }
    }

    /// Appends a message to the bytes to be sent.
    pub(super) fn enqueue(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Sends what is queued; `true`: all of it was sent.
    pub(super) fn push(&mut self, sockets: &mut impl Sockets) -> io::Result<bool> {
        while !self.out.is_empty() {
            let sent = sockets.send(self.sock, &self.out, None, false)?;
            if sent == 0 {
                return Ok(false);
            }
            self.out.drain(..sent);
        }
        Ok(true)
    }

    /// The received part of an incomplete message.
    pub(super) fn begun(&self) -> &[u8] {
        &self.got
    }

    /// Reads the next message into the buffer and leaves it there: bytes unread in the kernel would wake a process
    /// again and again. The peer sends no more before it has a reply.
    pub(super) fn take_in<const BYTES: usize>(
        &mut self,
        sockets: &mut impl Sockets,
    ) -> io::Result<()> {
        let mut place = [0; BYTES];
        while self.got.len() < BYTES {
            let lacks = BYTES - self.got.len();
            let got = sockets.receive(self.sock, None, &mut place[..lacks])?;
            if got == 0 {
                return Ok(());
            }
            self.got.extend_from_slice(&place[..got]);
        }
        match sockets.receive(self.sock, None, &mut place[..1])? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The next message, if it is complete.
    pub(super) fn pull<const BYTES: usize>(
        &mut self,
        sockets: &mut impl Sockets,
    ) -> io::Result<Option<[u8; BYTES]>> {
        let mut place = [0; BYTES];
        while self.got.len() < BYTES {
            let lacks = BYTES - self.got.len();
            let got = sockets.receive(self.sock, None, &mut place[..lacks])?;
            if got == 0 {
                return Ok(None);
            }
            self.got.extend_from_slice(&place[..got]);
        }
        place.copy_from_slice(&self.got);
        self.got.clear();
        Ok(Some(place))
    }
}
