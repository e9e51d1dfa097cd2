// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ping-pong of datagrams of UDP, beside the connection over which the two ends meet.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use super::{Buffers, Job, Line, Patience};

impl Line {
    /// A socket that is connected to one of the other end, which does the same.
    pub(super) fn open_datagrams(&mut self) -> io::Result<UdpSocket> {
        let (own, other) = (self.stream.local_addr()?, self.stream.peer_addr()?);
        let socket = UdpSocket::bind(SocketAddr::new(own.ip(), 0))?;
        self.send(&socket.local_addr()?.port().to_le_bytes())?;
        let mut port = [0; 2];
        self.receive(&mut port)?;
        socket.connect(SocketAddr::new(other.ip(), u16::from_le_bytes(port)))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// This end's part of a batch. The measuring end sends first, and nothing is lost: each waits for the other.
    pub(super) fn exchange(
        &self,
        socket: &UdpSocket,
        job: Job,
        buffers: &mut Buffers,
        first: bool,
    ) -> io::Result<()> {
        for _ in 0..job.count {
            let buffer = buffers.take();
            if first {
                socket.send(buffer)?;
            }
            let mut patience = Patience::default();
            loop {
                match socket.recv(buffer) {
                    Ok(_) => break,
                    Err(error) => self.look_again(error, &mut patience)?,
                }
            }
            if !first {
                socket.send(buffer)?;
            }
        }
        Ok(())
    }
}
