// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system interface of this provider: connections that never block, listening sockets, and their events.
//! `system.rs` implements it for the system's sockets, `fake.rs` for a network that exists only in tests.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::memory::MemoryRange;
use crate::wait_set::WaitSet;

/// Index of a connection, valid from when it is made or accepted until it is closed. Indices are small, and are reused.
pub(in crate::provider) type Sock = u32;

/// A hint that an operation may succeed now. An attempt that has nothing to do does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum SockEvent {
    /// A connection waits to be accepted.
    Incoming,
    /// An event on a connection.
    On {
        /// The connection.
        sock: Sock,
        /// Whether bytes, or the end of the stream, can be received.
        reads: bool,
        /// Whether the connection accepts bytes; reported if [requested](Sockets::want_to_send).
        sends: bool,
    },
}

/// Byte streams. No call blocks.
pub(in crate::provider) trait Sockets: Debug {
    /// Starts to connect; [`want_to_send`](Self::want_to_send) holds from the start. Nothing is sent before the
    /// connection is established.
    fn connect(&mut self, to: SocketAddr) -> io::Result<Sock>;

    /// Accepts a waiting connection.
    fn accept(&mut self) -> io::Result<Option<(Sock, SocketAddr)>>;

    /// The addresses of a connection's ends: local, then remote.
    fn ends(&self, sock: Sock) -> io::Result<(IpAddr, IpAddr)>;

    /// The local address from which packets to another address leave.
    fn leaves_from(&self, to: SocketAddr) -> io::Result<IpAddr>;

    /// Sends `bytes` and then `memory`, as much as fits now; returns the number of bytes sent. If not all was sent and
    /// [`want_to_send`](Self::want_to_send) holds, there is a [`SockEvent`] when there is room. `more`: whether further
    /// bytes or a [`push`](Self::push) follow; then the last bytes may be held back.
    fn send(
        &mut self,
        sock: Sock,
        bytes: &[u8],
        memory: Option<MemoryRange>,
        more: bool,
    ) -> io::Result<usize>;

    /// Makes the bytes leave that were held back because more was to follow.
    fn push(&mut self, sock: Sock);

    /// Receives first into `memory` and then into `bytes`, as much as has arrived; returns the number of bytes. The end
    /// of the stream is an error.
    fn receive(
        &mut self,
        sock: Sock,
        memory: Option<MemoryRange>,
        bytes: &mut [u8],
    ) -> io::Result<usize>;

    /// Ends a connection.
    fn close(&mut self, sock: Sock);

    /// Sets whether there are events when the connection accepts bytes.
    fn want_to_send(&mut self, sock: Sock, wants: bool);

    /// Sets whether there are events when a connection waits to be accepted; at first there are.
    fn watch_listeners(&mut self, wants: bool);

    /// Limit of open descriptors of this process, the program's included.
    fn most_open(&self) -> usize;

    /// Whether no acknowledgement has arrived on this connection for `for_ms` ms although one was due.
    fn is_cut_off(&mut self, sock: Sock, for_ms: u32) -> bool;

    /// Appends the pending events.
    fn poll_events(&mut self, sock_events: &mut Vec<SockEvent>);

    /// Adds the events that end a sleep.
    fn fall_asleep(&self, waits: &mut WaitSet);

    /// Monotonic time in nanoseconds.
    fn clock_ns(&self) -> u64;

    /// An unguessable number.
    fn random(&mut self) -> u64;
}
