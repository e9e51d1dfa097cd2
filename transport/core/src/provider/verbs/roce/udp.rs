// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets as datagrams of a plain UDP socket, which any user may have. The system writes the headers of IP and UDP; the checksum
//! of a packet counts on what it writes into them ([`roce::format::Network::assumed`]), so the socket is never connected and
//! forbids fragments.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use roce::format::PORT;
use roce::link::Carried;

use super::carrier::{Carrier, assumed};
use super::claim::Claim;
use super::system::{self, BURST, Came, NOBODY};
use super::trains::Trains;
use crate::wait;

/// A socket, and the buffers of its bursts.
#[derive(Debug)]
pub(crate) struct Udp {
    socket: UdpSocket,
    /// Ends after the socket.
    _claim: Option<Claim>,
    local: SocketAddr,
    most_bytes: usize,
    waiting_bytes: usize,
    trains: Trains,
    /// What has come, and into which of the buffers.
    came: [Came; BURST],
    buffers: Box<[u8]>,
    /// Where each packet of it is, and whose.
    packets: Vec<Packet>,
    /// Calls that took something since one that found nothing: where there are several, more has come than one takes.
    in_a_row: usize,
}

/// A packet that has come.
#[derive(Clone, Copy, Debug)]
struct Packet {
    at: usize,
    bytes: usize,
    from: SocketAddr,
}

impl Udp {
    /// A socket at this address, on whichever port the system chooses. `link_bytes`: what one packet of the interface carries.
    ///
    /// # Errors
    /// What the system does not grant.
    pub(crate) fn open(address: IpAddr, link_bytes: usize) -> io::Result<Self> {
        Self::over(UdpSocket::bind((address, 0))?, None, link_bytes)
    }

    /// This socket, which is bound; with a claim on the address, if this process has it.
    ///
    /// # Errors
    /// What the system does not grant.
    pub(super) fn over(
        socket: UdpSocket,
        claim: Option<Claim>,
        link_bytes: usize,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        system::forbid_fragments(&socket, local.ip())?;
        if local.is_ipv6() {
            system::take_unchecked(&socket)?;
        }
        // Where processes share a port, the kernel would join packets to several of them.
        if local.port() != PORT {
            system::enable_gro(&socket);
        }
        let waiting_bytes = system::ask_for_room(&socket, WANTED_ROOM_BYTES);
        let nothing = Came {
            bytes: 0,
            packet_bytes: 0,
            from: NOBODY,
        };
        Ok(Self {
            local,
            socket,
            _claim: claim,
            most_bytes: link_bytes,
            waiting_bytes,
            trains: Trains::new(),
            came: [nothing; BURST],
            buffers: vec![0; BURST * BUFFER_BYTES].into_boxed_slice(),
            packets: Vec::new(),
            in_a_row: 0,
        })
    }

    /// Sends what waits, if there is anything; answers how many trains the system took.
    fn send_some(&self) -> io::Result<usize> {
        let mut waiting = self.trains.waiting();
        match (waiting.next(), waiting.next()) {
            // It is alone where it matters how long it takes.
            (Some(one), None) if one.bytes.len() == one.packet_bytes => {
                self.socket.send_to(one.bytes, one.to).map(|_| 1)
            }
            (_, None) => system::send_burst::<1>(&self.socket, self.trains.waiting()),
            _ => system::send_burst::<BURST>(&self.socket, self.trains.waiting()),
        }
    }

    /// The first train that waits cannot leave, and counts as lost on the way: it is too long for that, or there is none.
    fn lose_first(&mut self, code: Option<i32>) {
        let first = self.trains.waiting().next();
        let is_train = first.is_some_and(|first| first.bytes.len() > first.packet_bytes);
        let codes = [libc::EINVAL, libc::EIO, libc::EOPNOTSUPP, libc::EMSGSIZE];
        // A system, or a device without checksums, cuts no trains, or does not know them.
        if is_train && code.is_some_and(|code| codes.contains(&code)) {
            self.trains.uncouple();
        }
        self.trains.have_left(1);
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
        self.trains.buffer()
    }

    fn push(&mut self, bytes: usize, to: SocketAddr) {
        self.trains.push(bytes, to);
    }

    fn flush(&mut self) {
        while !self.trains.is_empty() {
            match self.send_some() {
                Ok(count) => self.trains.have_left(count),
                Err(error) => match (error.kind(), error.raw_os_error()) {
                    (ErrorKind::Interrupted, _) => {}
                    (ErrorKind::WouldBlock, _) | (_, Some(libc::ENOBUFS)) => return,
                    (_, code) => self.lose_first(code),
                },
            }
        }
    }

    fn has_unsent(&self) -> bool {
        !self.trains.is_empty()
    }

    fn receive(&mut self) -> usize {
        let (socket, came) = (&self.socket, &mut self.came);
        let buffers = &mut self.buffers;
        let count = match self.in_a_row > 1 {
            true => system::receive_burst::<BURST>(socket, buffers, BUFFER_BYTES, came),
            false => system::receive_burst::<1>(socket, buffers, BUFFER_BYTES, came),
        };
        // Errors are of what was sent before, and say nothing of what comes.
        let count = count.unwrap_or(0);
        self.in_a_row = if count == 0 { 0 } else { self.in_a_row + 1 };
        self.packets.clear();
        for (index, came) in self.came.iter().enumerate().take(count) {
            let (mut at, mut left) = (index * BUFFER_BYTES, came.bytes);
            while left != 0 {
                let bytes = left.min(came.packet_bytes);
                let from = came.from;
                self.packets.push(Packet { at, bytes, from });
                (at, left) = (at + bytes, left - bytes);
            }
        }
        self.packets.len()
    }

    fn received(&self, index: usize) -> Option<Carried<'_>> {
        let Packet { at, bytes, from } = *self.packets.get(index)?;
        assumed(self.buffers.get(at..at + bytes)?, from, self.local)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Room that is asked for in each direction. Systems grant about 200 KiB to most users.
const WANTED_ROOM_BYTES: libc::c_int = 4 << 20;
/// No datagram, and no train of them, is longer.
const BUFFER_BYTES: usize = 1 << 16;
