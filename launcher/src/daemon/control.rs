// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends and receives on the control sockets of the ranks: inherited socket pairs, and connections to a listener for
//! ranks whose descriptors were closed by a wrapper.

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    UnixCredentials, bind, listen, recvmsg, sendmsg, setsockopt, socket, socketpair, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use wireup::{DecodeError, MAX_DATAGRAM_BYTES, ToDaemon, ToRank};

/// Result of a receive.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message, and the pid of its sender in the daemon's PID namespace. A sender in a container has a different pid
    /// in its own namespace.
    Message(ToDaemon, u32),
    /// Bytes that are not a message, with the reason if there is one. Most such bytes are ignored.
    Invalid(Option<DecodeError>),
    /// There is no message now.
    Empty,
    /// All copies of the other end are closed, the other end was shut down, or the socket has failed.
    Closed,
}

/// Creates a connected pair: the daemon's end and the rank's.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    name_senders(&ours)?;
    Ok((ours, theirs))
}

/// Makes the kernel add the sender's credentials to received messages.
pub(crate) fn name_senders(ours: &impl AsFd) -> Result<(), Errno> {
    setsockopt(ours, sockopt::PassCred, &true)
}

/// Creates the listener for ranks whose inherited descriptors are closed. It is an abstract socket, so no file is left
/// behind.
pub(crate) fn listener(name: &str) -> Result<UnixListener, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(made.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    listen(&made, nix::sys::socket::Backlog::MAXCONN)?;
    // `UnixListener` accepts on any kind of Unix socket, with close-on-exec.
    Ok(UnixListener::from(made))
}

/// Receives the next message without blocking.
pub(crate) fn receive(from: BorrowedFd<'_>) -> Received {
    let received = match receive_once(from) {
        // The kernel reports this error once if the other side has closed with unread input. Messages that the other
        // side sent before can still be received.
        Err(Errno::ECONNRESET) => receive_once(from),
        received => received,
    };
    received.unwrap_or(Received::Closed)
}

fn receive_once(from: BorrowedFd<'_>) -> Result<Received, Errno> {
    let mut bytes = [0; MAX_DATAGRAM_BYTES + 1];
    // There is room for the sender's credentials only, so the kernel discards descriptors that a rank sends.
    let mut space = cmsg_space!(UnixCredentials);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let (length, sender) =
        match recvmsg::<UnixAddr>(from.as_raw_fd(), &mut pieces, Some(&mut space), flags) {
            Ok(message) => (message.bytes, sender(&message)),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::Empty),
            Err(error) => return Err(error),
        };
    if length == 0 {
        return Ok(Received::Closed);
    }
    Ok(match (bytes.get(..length).map(ToDaemon::decode), sender) {
        (Some(Ok(message)), Some(pid)) => Received::Message(message, pid),
        (Some(Err(error)), _) => Received::Invalid(Some(error)),
        _ => Received::Invalid(None),
    })
}

fn sender(message: &nix::sys::socket::RecvMsg<'_, '_, UnixAddr>) -> Option<u32> {
    message.cmsgs().ok()?.find_map(|part| match part {
        ControlMessageOwned::ScmCredentials(credentials) => Some(credentials.pid().cast_unsigned()),
        _ => None,
    })
}

/// Sends the descriptor of the node segment.
pub(crate) fn send_segment(to: BorrowedFd<'_>, segment: &OwnedFd) -> Result<(), Errno> {
    let descriptors = [segment.as_raw_fd()];
    send(
        to,
        &ToRank::Segment,
        &[ControlMessage::ScmRights(&descriptors)],
    )
}

/// Sends the descriptor of a process's memory, open for reading.
pub(crate) fn send_memory(to: BorrowedFd<'_>, pid: u32, memory: &OwnedFd) -> Result<(), Errno> {
    let descriptors = [memory.as_raw_fd()];
    let with = [ControlMessage::ScmRights(&descriptors)];
    send(to, &ToRank::Memory { pid }, &with)
}

/// Sends a message without a descriptor. Fails with `EAGAIN` if the socket is full, since the other side has not read
/// earlier messages.
pub(crate) fn send_message(to: BorrowedFd<'_>, message: &ToRank) -> Result<(), Errno> {
    send(to, message, &[])
}

/// Sends a refusal.
pub(crate) fn refuse(to: BorrowedFd<'_>, why: &str) {
    // If the socket is full, the message is lost, and the peer only sees that the connection closes.
    let _ = send(
        to,
        &ToRank::Refused {
            why: why.to_owned(),
        },
        &[],
    );
}

fn send(to: BorrowedFd<'_>, message: &ToRank, with: &[ControlMessage<'_>]) -> Result<(), Errno> {
    let bytes = message.encode();
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<UnixAddr>(to.as_raw_fd(), &[IoSlice::new(&bytes)], with, flags, None).map(drop)
}

/// User id of the peer of a connection.
pub(crate) fn user_of(connection: &impl AsFd) -> Option<u32> {
    let credentials = nix::sys::socket::getsockopt(connection, sockopt::PeerCredentials).ok()?;
    Some(credentials.uid())
}
