// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries packets as datagrams of plain UDP sockets, which need no privilege. The system writes the headers of IP and
//! UDP; the ICRC covers them as they are expected to be written ([`roce::format::NetworkHeaders::assumed`]), so
//! fragmentation is forbidden, and the receiving socket is never connected.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use roce::format::PORT;
use roce::link::FramePayload;

use super::carrier::{Carrier, assumed};
use super::claim::PortClaim;
use super::connected::ConnectedSockets;
use super::gso::GsoQueue;
use super::recv_mode::{RecvHistory, RecvMode};
use super::system::{self, NO_ADDRESS, OutgoingBatch, RECEIVED_AT_ONCE, UdpBatch};
use crate::wait;

/// A socket, and the buffers of its bursts.
#[derive(Debug)]
pub(crate) struct Udp {
    socket: UdpSocket,
    /// Dropped after the socket, so the port is free when the claim ends.
    _claim: Option<PortClaim>,
    local: SocketAddr,
    most_bytes: usize,
    waiting_bytes: usize,
    gso: GsoQueue,
    /// Sockets for sending to frequent destinations.
    connected: ConnectedSockets,
    history: RecvHistory,
    /// Results of the last receive call, by buffer.
    came: [UdpBatch; RECEIVED_AT_ONCE],
    buffers: Box<[u8]>,
    /// Position and source of each received packet.
    packets: Vec<UdpPacket>,
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
struct UdpPacket {
    at: usize,
    bytes: usize,
    from: SocketAddr,
}

impl Udp {
    /// A socket at this address, on a port that the system chooses. `link_bytes`: MTU of the interface.
    ///
    /// # Errors
    /// The system refused a call.
    pub(crate) fn open(address: IpAddr, link_bytes: usize) -> io::Result<Self> {
        Self::over(UdpSocket::bind((address, 0))?, None, link_bytes)
    }

    /// Opens a carrier over a bound socket; with the claim to the address, if this process holds it.
    ///
    /// # Errors
    /// The system refused a call.
    pub(super) fn over(
        socket: UdpSocket,
        claim: Option<PortClaim>,
        link_bytes: usize,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        system::forbid_fragments(&socket, local.ip())?;
        if local.is_ipv6() {
            system::take_unchecked(&socket)?;
        }
        let waiting_bytes = system::set_buffers(&socket, WANTED_ROOM_BYTES);
        let nothing = UdpBatch {
            bytes: 0,
            packet_bytes: 0,
            from: NO_ADDRESS,
        };
        Ok(Self {
            local,
            socket,
            _claim: claim,
            most_bytes: link_bytes,
            waiting_bytes,
            gso: GsoQueue::new(),
            connected: ConnectedSockets::new(local),
            // No coalescing on a shared port: the kernel would coalesce packets for several processes.
            history: RecvHistory::new(local.port() != PORT),
            came: [nothing; RECEIVED_AT_ONCE],
            buffers: vec![0; RECEIVED_AT_ONCE * BUFFER_BYTES].into_boxed_slice(),
            packets: Vec::new(),
        })
    }

    /// Sends queued packets, or the first batch of them; returns how many batches the system took.
    fn send_some(&self) -> io::Result<usize> {
        let mut waiting = self.gso.waiting();
        let (first, second) = (waiting.next(), waiting.next());
        let Some(first) = first else {
            return Ok(0);
        };
        let is_packet = first.bytes.len() == first.packet_bytes;
        match (self.connected.socket(first.to), second) {
            // Plain `send` costs least; when latency matters, a batch has one packet.
            (Some(socket), _) if is_packet => socket.send(first.bytes).map(|_| 1),
            (Some(socket), _) => system::send_batch(socket, first),
            (None, None) if is_packet => self.socket.send_to(first.bytes, first.to).map(|_| 1),
            (None, _) => {
                let is_here = |it: &OutgoingBatch<'_>| self.connected.socket(it.to).is_none();
                let waiting = self.gso.waiting().take_while(is_here);
                system::send_burst(&self.socket, waiting)
            }
        }
    }

    /// Receives batches of packets into the first buffers, one batch each; returns the number of batches.
    fn receive_batches(&mut self) -> usize {
        let (socket, came, buffers) = (&self.socket, &mut self.came, &mut self.buffers);
        let count = match self.history.next() {
            RecvMode::Single => {
                let buffer = buffers.get_mut(..BUFFER_BYTES).unwrap_or_default();
                socket.recv_from(buffer).map(|(bytes, from)| {
                    came[0] = UdpBatch {
                        bytes,
                        packet_bytes: bytes,
                        from,
                    };
                    1
                })
            }
            RecvMode::Batch => system::receive_burst::<1>(socket, buffers, BUFFER_BYTES, came),
            RecvMode::Batches => {
                system::receive_burst::<RECEIVED_AT_ONCE>(socket, buffers, BUFFER_BYTES, came)
            }
        };
        // Errors are ignored: they concern packets sent before, not received ones.
        count.unwrap_or(0)
    }

    /// Drops the first batch, which cannot be sent, as if it was lost on the path. If batching is the cause, disables
    /// it.
    fn lose_first(&mut self, code: Option<i32>) {
        let first = self.gso.waiting().next();
        let is_train = first.is_some_and(|first| first.bytes.len() > first.packet_bytes);
        let codes = [libc::EINVAL, libc::EIO, libc::EOPNOTSUPP, libc::EMSGSIZE];
        // Older kernels, or devices without checksum offload, do not segment.
        if is_train && code.is_some_and(|code| codes.contains(&code)) {
            self.gso.disable_batching();
        }
        self.gso.have_left(1);
    }
}

impl Carrier for Udp {
    const SENDS_BATCHES: bool = true;

    fn now_ns(&self) -> u64 {
        wait::monotonic_ns()
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn source(&mut self, to: SocketAddr) -> SocketAddr {
        let may_open = self.gso.is_empty();
        self.connected.source(to, may_open).unwrap_or(self.local)
    }

    fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    fn buffer(&mut self) -> Option<&mut [u8]> {
        self.gso.buffer()
    }

    fn push(&mut self, bytes: usize, to: SocketAddr) {
        self.gso.push(bytes, to);
    }

    fn is_in_batch(&self) -> bool {
        self.gso.is_in_batch()
    }

    fn flush(&mut self) {
        let mut was_refused = false;
        while !self.gso.is_empty() {
            match self.send_some() {
                Ok(count) => {
                    self.gso.have_left(count);
                    was_refused = false;
                }
                Err(error) => match (error.kind(), error.raw_os_error()) {
                    (ErrorKind::Interrupted, _) => {}
                    (ErrorKind::WouldBlock, _) | (_, Some(libc::ENOBUFS)) => return,
                    // The error may concern a packet sent before; a second call shows whether it concerns this one.
                    _ if !was_refused => was_refused = true,
                    (_, code) => {
                        self.lose_first(code);
                        was_refused = false;
                    }
                },
            }
        }
    }

    fn has_unsent(&self) -> bool {
        !self.gso.is_empty()
    }

    fn receive(&mut self) -> usize {
        let count = self.receive_batches();
        self.packets.clear();
        for (index, came) in self.came.iter().enumerate().take(count) {
            let (mut at, mut left) = (index * BUFFER_BYTES, came.bytes);
            while left != 0 {
                let bytes = left.min(came.packet_bytes);
                let from = came.from;
                self.packets.push(UdpPacket { at, bytes, from });
                (at, left) = (at + bytes, left - bytes);
            }
        }
        if let Some(coalesces) = self.history.found(self.packets.len()) {
            system::coalesce(&self.socket, coalesces);
        }
        self.packets.len()
    }

    fn received(&self, index: usize) -> Option<FramePayload<'_>> {
        let UdpPacket { at, bytes, from } = *self.packets.get(index)?;
        assumed(self.buffers.get(at..at + bytes)?, from, self.local)
    }

    fn shows_room(&self) -> bool {
        // The descriptor is that of the receiving socket: it does not show room for a packet that goes over a connected
        // socket.
        let first = self.gso.waiting().next();
        first.is_none_or(|first| self.connected.socket(first.to).is_none())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Buffer size requested for each direction. Systems grant about 200 KiB to most users.
pub(super) const WANTED_ROOM_BYTES: libc::c_int = 4 << 20;
/// Length of a receive buffer, in bytes: no datagram, and no batch of datagrams, is longer.
const BUFFER_BYTES: usize = 1 << 16;
