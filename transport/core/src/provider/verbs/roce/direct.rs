// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direct socket: a second receiving socket at the address and port of the main one, connected to a peer from which
//! nearly all packets come. The system delivers packets of this peer to it, and those of others to the main socket. A
//! packet takes 0.4 µs less that way (of 5 µs): the system finds socket and route at once, and need not return the
//! source.
//!
//! Each socket takes a system call to read, so there is one direct socket at most, and the main socket is read only now
//! and then while there is one. When packets of other peers become frequent, the direct socket is closed.
//!
//! The changes lose and reorder no packets, except for those that the system is delivering at that moment, which are sent
//! again: after the opening, the main socket is first read until it is empty; before the closing, the socket is
//! connected to nobody and read until it is empty. A packet of another peer that arrives between `bind` and `connect`
//! may be overtaken by its successors.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use super::recv_socket::RecvSocket;
use super::system::{self, UdpBatch};

/// The direct socket, if there is one, and the reasons to open or close it.
#[derive(Debug)]
pub(super) struct DirectSocket {
    /// Whether one may be opened: `false` at a port that processes share, and after a failure.
    may_open: bool,
    /// Source of the packet that the main socket received last.
    last: SocketAddr,
    /// Number of receive calls in a row with packets from `last`.
    streak: u32,
    open: Option<OpenSocket>,
    /// Whether the socket was opened since [`DirectSocket::take_new`].
    is_new: bool,
}

#[derive(Debug)]
struct OpenSocket {
    socket: RecvSocket,
    peer: SocketAddr,
    phase: Phase,
    /// Number of receive calls since the main socket was read first, and the time of that call.
    calls: u32,
    main_ns: u64,
    /// Rises with packets of the peer, falls with those of others.
    balance: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Earlier packets of the peer may wait in the main socket.
    MainFirst,
    /// Packets of others, from the time before the socket was connected, may wait in it.
    Mixed,
    /// Only packets of the peer arrive.
    Connected,
    /// No more packets arrive. The socket is closed when it was found empty twice: the first time the system may still
    /// have been delivering one.
    Ending { was_empty: bool },
}

impl DirectSocket {
    /// No direct socket.
    pub(super) fn new(may_open: bool) -> Self {
        Self {
            may_open,
            last: system::NO_ADDRESS,
            streak: 0,
            open: None,
            is_new: false,
        }
    }

    /// Whether there is a direct socket to be read.
    pub(super) fn is_open(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.phase != Phase::MainFirst)
    }

    /// Whether the receive call at `now_ns` reads this socket first. Counts the call.
    pub(super) fn is_next(&mut self, now_ns: u64) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        open.calls += 1;
        match open.phase {
            Phase::MainFirst => {
                if open.calls >= MOST_MAIN_FIRST {
                    open.phase = Phase::Mixed;
                }
                false
            }
            Phase::Mixed | Phase::Connected => {
                let is_due = open.calls >= MAIN_EVERY
                    || now_ns.saturating_sub(open.main_ns) >= MAIN_EVERY_NS;
                if is_due {
                    (open.calls, open.main_ns) = (0, now_ns);
                }
                !is_due
            }
            Phase::Ending { .. } => true,
        }
    }

    pub(super) fn socket(&mut self) -> Option<&mut RecvSocket> {
        self.open.as_mut().map(|open| &mut open.socket)
    }

    /// The socket, if it was opened since the last call of this function.
    pub(super) fn take_new(&mut self) -> Option<&UdpSocket> {
        let is_new = std::mem::take(&mut self.is_new);
        let open = self.open.as_ref().filter(|_| is_new)?;
        Some(open.socket.socket())
    }

    /// Records that the direct socket returned this number of packets.
    pub(super) fn has_received(&mut self, packets: usize) {
        let Some(open) = &mut self.open else {
            return;
        };
        match (open.phase, packets) {
            (Phase::Mixed, 0) => {
                open.socket.set_source(open.peer);
                open.phase = Phase::Connected;
            }
            (Phase::Ending { was_empty: true }, 0) => self.open = None,
            (Phase::Ending { .. }, 0) => open.phase = Phase::Ending { was_empty: true },
            (_, 0) => {}
            _ => {
                open.balance = MOST_BALANCE.min(open.balance + 1);
                if packets > 1 {
                    // Many packets of this peer must not delay those of others.
                    open.calls = MAIN_EVERY;
                }
            }
        }
    }

    /// Records that the main socket returned these batches. Opens the direct socket, or begins to close it.
    pub(super) fn main_has_received(&mut self, main: &UdpSocket, batches: &[UdpBatch]) {
        match &mut self.open {
            Some(open) if batches.is_empty() && open.phase == Phase::MainFirst => {
                open.phase = Phase::Mixed;
            }
            Some(open) if open.phase == Phase::Connected => open.others_have_sent(batches.len()),
            Some(_) => {}
            None if self.may_open => self.count(main, batches),
            None => {}
        }
    }

    fn count(&mut self, main: &UdpSocket, batches: &[UdpBatch]) {
        let Some(first) = batches.first() else {
            return;
        };
        let from = first.from;
        if from != self.last || batches.iter().any(|batch| batch.from != from) {
            (self.last, self.streak) = (from, 0);
            return;
        }
        self.streak += 1;
        if self.streak < OPEN_AFTER {
            return;
        }
        self.streak = 0;
        match open(main, from) {
            Ok(socket) => {
                self.is_new = true;
                self.open = Some(OpenSocket {
                    socket: RecvSocket::new(socket, true),
                    peer: from,
                    phase: Phase::MainFirst,
                    calls: 0,
                    main_ns: 0,
                    balance: MOST_BALANCE,
                });
            }
            // The direct socket is optional.
            Err(_) => self.may_open = false,
        }
    }
}

impl OpenSocket {
    /// Counts batches of other peers; begins to close the socket if they are frequent.
    fn others_have_sent(&mut self, batches: usize) {
        let weight = u32::try_from(batches).unwrap_or(u32::MAX);
        let weight = weight.saturating_mul(OTHERS_WEIGHT);
        if let Some(balance) = self.balance.checked_sub(weight) {
            self.balance = balance;
            return;
        }
        // Closing it is not enough: a child of this process may have a copy.
        match disconnect(self.socket.socket()) {
            Ok(()) => self.phase = Phase::Ending { was_empty: false },
            Err(_) => self.balance = MOST_BALANCE,
        }
    }
}

/// Opens a socket at the address and port of the main one, connected to this peer.
fn open(main: &UdpSocket, peer: SocketAddr) -> io::Result<UdpSocket> {
    let local = main.local_addr()?;
    let socket = system::bind_beside(main, local, super::udp::WANTED_ROOM_BYTES)?;
    socket.connect(peer)?;
    if local.is_ipv6() {
        system::take_unchecked(&socket)?;
    }
    Ok(socket)
}

/// Connects the socket to a port of this host that sends nothing, so that no more packets arrive.
fn disconnect(socket: &UdpSocket) -> io::Result<()> {
    let local = socket.local_addr()?;
    socket.connect(SocketAddr::new(local.ip(), DISCARD_PORT))
}

/// The direct socket is opened after this many receive calls in a row with packets of one peer.
const OPEN_AFTER: u32 = 1024;
/// While there is a direct socket, the main socket is read first after this many receive calls, and after this time: a
/// process that seldom calls must not find the packets of other peers late.
const MAIN_EVERY: u32 = 16;
const MAIN_EVERY_NS: u64 = 5000;
/// Maximum number of receive calls that read only the main socket.
const MOST_MAIN_FIRST: u32 = 64;
/// Upper limit and first value of the balance.
const MOST_BALANCE: u32 = 256;
/// A batch of another peer lowers the balance by this.
const OTHERS_WEIGHT: u32 = 16;
/// The discard service, which answers nothing (RFC 863).
const DISCARD_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::carrier::Carrier;
    use super::super::udp::Udp;
    use super::*;

    fn at_loopback() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    /// A peer, which sends its packets with increasing numbers.
    struct Peer {
        socket: UdpSocket,
        sent: u32,
        received: u32,
    }

    impl Peer {
        fn new() -> Self {
            Self {
                socket: at_loopback(),
                sent: 0,
                received: 0,
            }
        }

        fn send(&mut self, udp: &Udp) {
            self.sent += 1;
            let mut packet = [0; 40];
            packet[..4].copy_from_slice(&self.sent.to_le_bytes());
            self.socket.send_to(&packet, udp.local()).unwrap();
        }
    }

    /// Receives until no packet waits; each is from one of the peers, and has the next number.
    fn receive_all(udp: &mut Udp, peers: &mut [Peer]) {
        loop {
            let count = udp.receive_any();
            for index in 0..count {
                let payload = udp.received(index).unwrap();
                let peer = |peer: &&mut Peer| peer.socket.local_addr().unwrap() == payload.from;
                let peer = peers.iter_mut().find(peer).expect("a source");
                peer.received += 1;
                assert_eq!(payload.bytes[..4], peer.received.to_le_bytes());
            }
            if count == 0 {
                break;
            }
        }
        for peer in peers {
            assert_eq!(peer.received, peer.sent);
        }
    }

    fn carrier() -> Udp {
        Udp::open(Ipv4Addr::LOCALHOST.into(), 65_536).unwrap()
    }

    #[test]
    fn packets_keep_their_order_when_the_direct_socket_is_opened_and_closed() {
        let (mut udp, mut peers) = (carrier(), [Peer::new(), Peer::new()]);
        for frequent in [0, 1, 0] {
            for step in 0..3 * OPEN_AFTER {
                peers[frequent].send(&udp);
                if step % 7 == 0 {
                    peers[frequent].send(&udp);
                }
                if step % 200 == 0 {
                    peers[1 - frequent].send(&udp);
                }
                receive_all(&mut udp, &mut peers);
            }
            // The next packets are sent without a call in between, some to each socket.
            for _ in 0..20 {
                peers[1 - frequent].send(&udp);
                peers[frequent].send(&udp);
            }
            receive_all(&mut udp, &mut peers);
        }
    }

    #[test]
    fn each_peer_is_served_while_another_has_the_direct_socket() {
        let (mut udp, mut peers) = (carrier(), [Peer::new(), Peer::new()]);
        for _ in 0..OPEN_AFTER {
            peers[0].send(&udp);
            assert_eq!(udp.receive(), 1);
        }
        // The frequent peer always has packets.
        for flood in [1, 5] {
            peers[1].send(&udp);
            let waiting = peers[1].socket.local_addr().unwrap();
            let calls = (1..).find(|_| {
                (0..flood).for_each(|_| peers[0].send(&udp));
                let count = udp.receive();
                (0..count).any(|index| udp.received(index).unwrap().from == waiting)
            });
            assert!(calls.unwrap() <= MOST_MAIN_FIRST + MAIN_EVERY);
        }
    }

    #[test]
    fn the_direct_socket_is_opened_for_one_frequent_peer_and_closed_for_others() {
        let (main, frequent) = (at_loopback(), at_loopback().local_addr().unwrap());
        let other = at_loopback().local_addr().unwrap();
        let batch = |from| UdpBatch {
            bytes: 1,
            packet_bytes: 1,
            from,
        };
        let mut direct = DirectSocket::new(true);
        for _ in 0..OPEN_AFTER {
            direct.main_has_received(&main, &[batch(frequent)]);
            direct.main_has_received(&main, &[batch(other)]);
        }
        assert!(direct.open.is_none());
        for _ in 0..=OPEN_AFTER {
            assert!(!direct.is_next(0) && direct.take_new().is_none());
            direct.main_has_received(&main, &[batch(frequent)]);
        }
        assert!(direct.take_new().is_some() && direct.take_new().is_none());
        assert!(
            !direct.is_next(0) && !direct.is_open(),
            "the main one first"
        );
        direct.main_has_received(&main, &[]);
        assert!(direct.is_next(0) && direct.is_open());
        direct.has_received(0);
        assert!(direct.is_next(4_000));
        assert!(!direct.is_next(6_000), "the main one is read in time");
        assert!(direct.is_next(6_000));
        for _ in 0..MOST_BALANCE / OTHERS_WEIGHT {
            direct.main_has_received(&main, &[batch(other)]);
            assert_eq!(direct.open.as_ref().unwrap().phase, Phase::Connected);
        }
        direct.main_has_received(&main, &[batch(other)]);
        for packets in [1, 0, 0] {
            assert!(
                direct.is_next(1 << 40) && direct.is_open(),
                "it may have some"
            );
            direct.has_received(packets);
        }
        assert!(direct.open.is_none());
    }

    #[test]
    fn only_one_socket_is_bound_beside_the_main_one_and_a_failure_is_the_last() {
        let main = at_loopback();
        let direct = open(&main, at_loopback().local_addr().unwrap()).unwrap();
        let local = main.local_addr().unwrap();
        assert_eq!(direct.local_addr().unwrap(), local);
        assert!(UdpSocket::bind(local).is_err());
        let mut refused = DirectSocket::new(true);
        let from = "[::1]:7".parse().unwrap();
        for _ in 0..=OPEN_AFTER {
            refused.main_has_received(
                &main,
                &[UdpBatch {
                    bytes: 1,
                    packet_bytes: 1,
                    from,
                }],
            );
        }
        assert!(refused.open.is_none() && !refused.may_open);
    }
}
