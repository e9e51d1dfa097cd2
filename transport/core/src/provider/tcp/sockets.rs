// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this provider asks of the system: connections that never block, one place where others connect, and what has happened to
//! them. Real ones are in `system.rs`, those of a network that only exists in tests in `fake.rs`.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::memory::MemoryRange;
use crate::wait_set::WaitSet;

/// Number of a connection, from when it is made or accepted until it is closed. Small; used again afterwards.
pub(in crate::provider) type Sock = u32;

/// A hint that something may be done now. To try it in vain does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum SockEvent {
    /// Somebody has connected.
    Door,
    /// Something has happened to a connection.
    On {
        /// Which.
        sock: Sock,
        /// Bytes have come, or its end.
        reads: bool,
        /// It takes bytes, as was [asked](Sockets::want_to_send).
        sends: bool,
    },
}

/// Streams of bytes. No call waits.
pub(in crate::provider) trait Sockets: Debug {
    /// Begins to connect; [`want_to_send`](Self::want_to_send) holds from the start. Until the connection is there nothing is
    /// sent.
    fn connect(&mut self, to: SocketAddr) -> io::Result<Sock>;

    /// Takes somebody in who has connected.
    fn accept(&mut self) -> io::Result<Option<(Sock, SocketAddr)>>;

    /// The addresses of a connection's ends: here, and there.
    fn ends(&self, sock: Sock) -> io::Result<(IpAddr, IpAddr)>;

    /// The address of this host that packets to another one leave from.
    fn leaves_from(&self, to: SocketAddr) -> io::Result<IpAddr>;

    /// Sends bytes and then memory, as many as fit now; answers how many. After less than all, there is a [`SockEvent`] when there is
    /// room if [`want_to_send`](Self::want_to_send) holds. `more`: further bytes follow, with which they may leave, or a
    /// [`push`](Self::push).
    fn send(
        &mut self,
        sock: Sock,
        bytes: &[u8],
        memory: Option<MemoryRange>,
        more: bool,
    ) -> io::Result<usize>;

    /// What was sent last leaves now, although more was said to follow.
    fn push(&mut self, sock: Sock);

    /// Receives into memory first and then into `bytes`, as much as is here; answers how much. An end of the stream is an error.
    fn receive(
        &mut self,
        sock: Sock,
        memory: Option<MemoryRange>,
        bytes: &mut [u8],
    ) -> io::Result<usize>;

    /// Ends a connection.
    fn close(&mut self, sock: Sock);

    /// Whether there is to be a sign when the connection takes bytes.
    fn want_to_send(&mut self, sock: Sock, wants: bool);

    /// Whether there is to be a sign when somebody has connected, as there is at first.
    fn want_callers(&mut self, wants: bool);

    /// Descriptors that this process may have, the program's among them.
    fn most_open(&self) -> usize;

    /// Whether the network has answered nothing on this connection for so long, although it had to.
    fn is_cut_off(&mut self, sock: Sock, for_ms: u32) -> bool;

    /// Adds what may be done now.
    fn look(&mut self, signs: &mut Vec<SockEvent>);

    /// Adds what ends a sleep.
    fn fall_asleep(&self, waits: &mut WaitSet);

    /// Now, in nanoseconds since some moment.
    fn clock_ns(&self) -> u64;

    /// A number that nobody can guess.
    fn random(&mut self) -> u64;
}
