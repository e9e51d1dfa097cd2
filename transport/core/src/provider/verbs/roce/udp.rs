// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets as datagrams of a plain UDP socket, which any user may have. The system writes the headers of IP and UDP; the checksum
//! of a packet counts on what it writes into them ([`roce::format::Network::assumed`]), so the socket is never connected and
//! forbids fragments.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::carrier::{Carrier, PACKET_BYTES};
use super::system::{self, BURST, NOBODY};
use crate::wait;

/// A socket, and the buffers of its bursts.
#[derive(Debug)]
pub(crate) struct Udp {
    socket: UdpSocket,
    local: SocketAddr,
    most_bytes: usize,
    waiting_bytes: usize,
    /// Packets that are to leave, and where they go.
    leaving: Box<[[u8; PACKET_BYTES]; BURST]>,
    to: [(usize, SocketAddr); BURST],
    /// Of those, which have left, and how many there are.
    left: usize,
    pushed: usize,
    /// Packets that have come, and from where.
    came: Box<[[u8; PACKET_BYTES]; BURST]>,
    from: [(usize, SocketAddr); BURST],
    count: usize,
}

impl Udp {
    /// A socket at this address, on whichever port the system chooses. `link_bytes`: what one packet of the interface carries.
    ///
    /// # Errors
    /// What the system does not grant.
    pub(crate) fn open(address: IpAddr, link_bytes: usize) -> io::Result<Self> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        system::forbid_fragments(&socket, address)?;
        let waiting_bytes = system::ask_for_room(&socket, WANTED_ROOM_BYTES);
        let nobody = (0, NOBODY);
        Ok(Self {
            local: socket.local_addr()?,
            socket,
            most_bytes: link_bytes,
            waiting_bytes,
            leaving: Box::new([[0; PACKET_BYTES]; BURST]),
            to: [nobody; BURST],
            left: 0,
            pushed: 0,
            came: Box::new([[0; PACKET_BYTES]; BURST]),
            from: [nobody; BURST],
            count: 0,
        })
    }

    /// Sends what is left of what was pushed, if there is any; answers how many the system took.
    fn send_some(&self) -> io::Result<usize> {
        let nothing: (&[u8], SocketAddr) = (&[], self.local);
        let mut burst = [nothing; BURST];
        let waiting = self.leaving.iter().zip(&self.to);
        let waiting = waiting.take(self.pushed).skip(self.left);
        for (place, (packet, (bytes, to))) in burst.iter_mut().zip(waiting) {
            *place = (&packet[..*bytes], *to);
        }
        match &burst[..self.pushed - self.left] {
            // It is alone where it matters how long it takes.
            [(packet, to)] => self.socket.send_to(packet, to).map(|_| 1),
            several => system::send_burst(&self.socket, several),
        }
    }
}

impl Carrier for Udp {
    fn now_ns(&self) -> u64 {
        wait::monotonic_ns()
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    fn buffer(&mut self) -> Option<&mut [u8]> {
        Some(self.leaving.get_mut(self.pushed)?)
    }

    fn push(&mut self, bytes: usize, to: SocketAddr) {
        if let Some(place) = self.to.get_mut(self.pushed) {
            *place = (bytes.min(PACKET_BYTES), to);
            self.pushed += 1;
        }
    }

    fn flush(&mut self) {
        while self.left < self.pushed {
            match self.send_some() {
                Ok(count) => self.left += count,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock => return,
                    _ if error.raw_os_error() == Some(libc::ENOBUFS) => return,
                    // As if it were lost on the way: it is too long for that, or there is none.
                    _ => self.left += 1,
                },
            }
        }
        (self.left, self.pushed) = (0, 0);
    }

    fn has_unsent(&self) -> bool {
        self.left < self.pushed
    }

    fn receive(&mut self) -> usize {
        let from = &mut self.from;
        let took = |index: usize, bytes, address| from[index] = (bytes, address);
        let came = system::receive_burst(&self.socket, &mut self.came[..], took);
        // Errors are of what was sent before, and say nothing of what comes.
        self.count = came.unwrap_or(0);
        self.count
    }

    fn received(&self, index: usize) -> Option<(&[u8], SocketAddr)> {
        let (bytes, from) = *self.from.get(index).filter(|_| index < self.count)?;
        Some((self.came.get(index)?.get(..bytes)?, from))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Room that is asked for in each direction. Systems grant about 200 KiB to most users.
const WANTED_ROOM_BYTES: libc::c_int = 4 << 20;
