// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connected sockets for sending, each to one peer: the system caches the route, and does not look it up for each
//! packet. The look-up takes an eighth of the time of a small packet. Packets to a peer have the address of its
//! connected socket as their source.
//!
//! For connected sockets the system increments the identification field of IPv4, which the ICRC of adapters covers: so
//! there are no connected sockets to adapters.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use roce::format::PORT;

use super::system;

/// Connected sockets to the peers to which most packets are sent.
#[derive(Debug)]
pub(super) struct ConnectedSockets {
    /// The address that the sockets are bound to; the system chooses the port.
    local: SocketAddr,
    sockets: Vec<ConnectedSocket>,
    /// Index of the socket used last.
    last: usize,
    /// Number of lookups of a socket so far.
    lookups: u64,
    /// Whether opening a socket failed; then no more are opened.
    has_failed: bool,
}

/// A connected socket.
#[derive(Debug)]
struct ConnectedSocket {
    socket: UdpSocket,
    from: SocketAddr,
    to: SocketAddr,
    /// Value of `lookups` of the table at its last use.
    lookups: u64,
}

impl ConnectedSockets {
    /// A table without sockets, for a host at this address.
    pub(super) fn new(local: SocketAddr) -> Self {
        Self {
            local: SocketAddr::new(local.ip(), 0),
            sockets: Vec::new(),
            last: 0,
            lookups: 0,
            has_failed: false,
        }
    }

    /// The socket to this peer, if there is one.
    pub(super) fn socket(&self, to: SocketAddr) -> Option<&UdpSocket> {
        let socket = self.sockets.get(self.find(to)?)?;
        Some(&socket.socket)
    }

    /// The source address of packets to this peer; `None`: that of the main socket. `may_open`: a socket may be opened,
    /// if need be in place of one that was unused for long, since no packet is queued.
    pub(super) fn source(&mut self, to: SocketAddr, may_open: bool) -> Option<SocketAddr> {
        self.lookups += 1;
        let found = self.find(to);
        let index = match found {
            Some(index) => index,
            None if may_open => self.open(to)?,
            None => return None,
        };
        self.last = index;
        let socket = self.sockets.get_mut(index)?;
        socket.lookups = self.lookups;
        Some(socket.from)
    }

    fn find(&self, to: SocketAddr) -> Option<usize> {
        let is_it = |socket: &ConnectedSocket| socket.to == to;
        if self.sockets.get(self.last).is_some_and(is_it) {
            return Some(self.last);
        }
        self.sockets.iter().position(is_it)
    }

    /// Opens a socket to this peer, if possible; returns its index.
    fn open(&mut self, to: SocketAddr) -> Option<usize> {
        if self.has_failed || to.port() == PORT || to.is_ipv4() != self.local.is_ipv4() {
            return None;
        }
        let index = self.vacant()?;
        let Ok((socket, from)) = open(self.local, to) else {
            // These sockets are optional: scarce resources are left for other uses.
            self.has_failed = true;
            return None;
        };
        let lookups = self.lookups;
        let socket = ConnectedSocket {
            socket,
            from,
            to,
            lookups,
        };
        match self.sockets.get_mut(index) {
            Some(old) => *old = socket,
            None => self.sockets.push(socket),
        }
        Some(index)
    }

    /// Index for a new socket; `None`: all places are taken by sockets used recently.
    fn vacant(&self) -> Option<usize> {
        if self.sockets.len() < MOST_SOCKETS {
            return Some(self.sockets.len());
        }
        let sockets = self.sockets.iter().enumerate();
        let (index, oldest) = sockets.min_by_key(|(_, socket)| socket.lookups)?;
        (self.lookups - oldest.lookups > REPLACE_AFTER_LOOKUPS).then_some(index)
    }
}

fn open(local: SocketAddr, to: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = UdpSocket::bind(local)?;
    socket.set_nonblocking(true)?;
    system::forbid_fragments(&socket, local.ip())?;
    socket.connect(to)?;
    system::set_buffers(&socket, super::udp::WANTED_ROOM_BYTES);
    let from = socket.local_addr()?;
    Ok((socket, from))
}

/// Maximum number of connected sockets. Each takes a descriptor; a process has about a thousand.
const MOST_SOCKETS: usize = 16;
/// A socket may be replaced if more than this many lookups were made since its last use.
const REPLACE_AFTER_LOOKUPS: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn place(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    #[test]
    fn a_connected_socket_sends_from_its_reported_address() {
        let other = UdpSocket::bind(place(0)).unwrap();
        let to = other.local_addr().unwrap();
        let mut connected = ConnectedSockets::new(place(7));
        assert_eq!(connected.source(to, false), None, "something waits");
        assert!(connected.socket(to).is_none());
        let from = connected.source(to, true).unwrap();
        assert_eq!(connected.source(to, false), Some(from));
        connected.socket(to).unwrap().send(&[1, 2]).unwrap();
        assert_eq!(other.recv_from(&mut [0; 3]).unwrap(), (2, from));
    }

    #[test]
    fn no_connected_socket_is_used_to_adapters() {
        let mut connected = ConnectedSockets::new(place(0));
        assert_eq!(connected.source(place(PORT), true), None);
        let six: SocketAddr = "[::1]:77".parse().unwrap();
        assert_eq!(connected.source(six, true), None);
    }

    #[test]
    fn the_least_recently_used_connected_socket_is_replaced() {
        let mut connected = ConnectedSockets::new(place(0));
        for port in 1..=16 {
            assert!(connected.source(place(port), true).is_some());
        }
        assert_eq!(connected.source(place(17), true), None);
        for _ in 0..=REPLACE_AFTER_LOOKUPS {
            connected.source(place(1), true);
        }
        assert!(connected.source(place(17), true).is_some());
        assert!(connected.socket(place(2)).is_none());
        assert!(connected.socket(place(1)).is_some());
        assert_eq!(connected.sockets.len(), MOST_SOCKETS);
    }
}
