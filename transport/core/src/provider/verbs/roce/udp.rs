// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries packets as datagrams of plain UDP sockets, which need no privilege. The system writes the headers of IP and
//! UDP; the ICRC covers them as they are expected to be written ([`roce::format::NetworkHeaders::assumed`]), so
//! fragmentation is forbidden.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use roce::format::PORT;
use roce::icrc::{IcrcPrefix, RecentPrefixes};
use roce::link::FramePayload;

use super::carrier::{Carrier, of_datagram, prefix_of};
use super::claim::PortClaim;
use super::connected::ConnectedSockets;
use super::direct::DirectSocket;
use super::gso::GsoQueue;
use super::recv_socket::{RecvBuffers, RecvSocket};
use super::system::{self, OutgoingBatch};
use crate::wait;

/// Sockets, and the buffers of their bursts.
#[derive(Debug)]
pub(crate) struct Udp {
    /// Receives from all peers.
    main: RecvSocket,
    /// Receives from the most frequent peer.
    direct: DirectSocket,
    /// Dropped after the sockets, so the port is free when the claim ends.
    _claim: Option<PortClaim>,
    local: SocketAddr,
    most_bytes: usize,
    waiting_bytes: usize,
    gso: GsoQueue,
    /// Sockets for sending to frequent destinations.
    connected: ConnectedSockets,
    buffers: RecvBuffers,
    /// The received packets.
    packets: Vec<UdpPacket>,
    prefixes: RecentPrefixes,
    /// Time at the beginning of this turn.
    begin_ns: u64,
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
struct UdpPacket {
    at: usize,
    bytes: usize,
    from: SocketAddr,
    /// `None`: it cannot be a packet.
    prefix: Option<IcrcPrefix>,
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
        // No coalescing on a shared port, where the kernel would coalesce packets for several processes, and no direct
        // socket, for which the order of the sockets matters.
        let is_own = local.port() != PORT;
        Ok(Self {
            local,
            main: RecvSocket::new(socket, is_own),
            direct: DirectSocket::new(is_own),
            _claim: claim,
            most_bytes: link_bytes,
            waiting_bytes,
            gso: GsoQueue::new(),
            connected: ConnectedSockets::new(local),
            buffers: RecvBuffers::new(),
            packets: Vec::new(),
            prefixes: RecentPrefixes::default(),
            begin_ns: 0,
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
            (None, None) if is_packet => {
                self.main.socket().send_to(first.bytes, first.to).map(|_| 1)
            }
            (None, _) => {
                let is_here = |it: &OutgoingBatch<'_>| self.connected.socket(it.to).is_none();
                let waiting = self.gso.waiting().take_while(is_here);
                system::send_burst(self.main.socket(), waiting)
            }
        }
    }

    /// Receives a burst from the direct socket or from the main one; returns the number of packets.
    fn receive_from(&mut self, is_direct: bool) -> usize {
        let socket = match is_direct {
            false => Some(&mut self.main),
            true => self.direct.socket(),
        };
        let Some(socket) = socket else {
            return 0;
        };
        let count = socket.receive(&mut self.buffers);
        let batches = self.buffers.batches.get(..count).unwrap_or_default();
        self.packets.clear();
        for (index, batch) in batches.iter().enumerate() {
            let (mut at, mut left) = (index * RecvBuffers::BYTES, batch.bytes);
            // An empty datagram counts as a packet: its socket was not empty.
            loop {
                let bytes = left.min(batch.packet_bytes);
                let from = batch.from;
                self.packets.push(UdpPacket {
                    at,
                    bytes,
                    from,
                    prefix: prefix_of(&mut self.prefixes, bytes, from, self.local),
                });
                (at, left) = (at + bytes, left - bytes);
                if left == 0 {
                    break;
                }
            }
        }
        socket.found(self.packets.len());
        match is_direct {
            true => self.direct.has_received(self.packets.len()),
            false => self.direct.main_has_received(self.main.socket(), batches),
        }
        self.packets.len()
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

    fn begin(&mut self) -> u64 {
        self.begin_ns = self.now_ns();
        self.begin_ns
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
        let is_direct = self.direct.is_next(self.begin_ns);
        match self.receive_from(is_direct) {
            0 if !is_direct && self.direct.is_open() => self.receive_from(true),
            count => count,
        }
    }

    fn receive_any(&mut self) -> usize {
        let is_direct = self.direct.is_next(self.begin_ns);
        match self.receive_from(is_direct) {
            0 => self.receive_from(!is_direct),
            count => count,
        }
    }

    fn received(&self, index: usize) -> Option<FramePayload<'_>> {
        let packet = self.packets.get(index)?;
        let bytes = self
            .buffers
            .bytes
            .get(packet.at..packet.at + packet.bytes)?;
        Some(of_datagram(bytes, packet.from, self.local, packet.prefix?))
    }

    fn shows_room(&self) -> bool {
        // The descriptor is that of the receiving socket: it does not show room for a packet that goes over a connected
        // socket.
        let first = self.gso.waiting().next();
        first.is_none_or(|first| self.connected.socket(first.to).is_none())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.main.socket().as_fd())
    }

    fn new_descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.direct.take_new()?.as_fd())
    }
}

/// Buffer size requested for each direction. Systems grant about 200 KiB to most users.
pub(super) const WANTED_ROOM_BYTES: libc::c_int = 4 << 20;
