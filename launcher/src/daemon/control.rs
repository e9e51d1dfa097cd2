// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control sockets of the ranks: inherited pairs, and a listener for ranks whose descriptors a wrapper closed.

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

/// What a socket had for us.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message and the process that sent it, as the kernel knows it here: its own idea of its number differs if it
    /// lives in a container.
    Message(ToDaemon, u32),
    /// Bytes that are no message; they mean nothing.
    Nonsense(Option<DecodeError>),
    /// Nothing more for now.
    Nothing,
    /// The other side is closed everywhere.
    Closed,
}

/// A connected pair: the daemon's side and the rank's.
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

/// Asks the kernel to say which process sent each message.
pub(crate) fn name_senders(ours: &impl AsFd) -> Result<(), Errno> {
    setsockopt(ours, sockopt::PassCred, &true)
}

/// Where a rank asks when its descriptors are lost: an abstract socket, so that no file is left behind.
pub(crate) fn listener(name: &str) -> Result<UnixListener, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(made.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    listen(&made, nix::sys::socket::Backlog::MAXCONN)?;
    // The standard library's listener accepts whatever kind of socket it is given, close-on-exec.
    Ok(UnixListener::from(made))
}

/// Takes the next message, without waiting.
pub(crate) fn receive(from: BorrowedFd<'_>) -> Received {
    let received = match receive_once(from) {
        // The other side has left without reading what it was told; what it said itself comes after this.
        Err(Errno::ECONNRESET) => receive_once(from),
        received => received,
    };
    received.unwrap_or(Received::Closed)
}

fn receive_once(from: BorrowedFd<'_>) -> Result<Received, Errno> {
    let mut bytes = [0; MAX_DATAGRAM_BYTES + 1];
    // Room for the sender's name and for nothing else: descriptors that a rank sends are dropped by the kernel.
    let mut space = cmsg_space!(UnixCredentials);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let (length, sender) =
        match recvmsg::<UnixAddr>(from.as_raw_fd(), &mut pieces, Some(&mut space), flags) {
            Ok(message) => (message.bytes, sender(&message)),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::Nothing),
            Err(error) => return Err(error),
        };
    if length == 0 {
        return Ok(Received::Closed);
    }
    Ok(match (bytes.get(..length).map(ToDaemon::decode), sender) {
        (Some(Ok(message)), Some(pid)) => Received::Message(message, pid),
        (Some(Err(error)), _) => Received::Nonsense(Some(error)),
        _ => Received::Nonsense(None),
    })
}

fn sender(message: &nix::sys::socket::RecvMsg<'_, '_, UnixAddr>) -> Option<u32> {
    message.cmsgs().ok()?.find_map(|part| match part {
        ControlMessageOwned::ScmCredentials(who) => Some(who.pid().cast_unsigned()),
        _ => None,
    })
}

/// Sends the node segment.
pub(crate) fn send_segment(to: BorrowedFd<'_>, segment: &OwnedFd) -> Result<(), Errno> {
    let descriptors = [segment.as_raw_fd()];
    send(
        to,
        &ToRank::Segment,
        &[ControlMessage::ScmRights(&descriptors)],
    )
}

/// Sends the memory of a process, to read.
pub(crate) fn send_memory(to: BorrowedFd<'_>, pid: u32, memory: &OwnedFd) -> Result<(), Errno> {
    let descriptors = [memory.as_raw_fd()];
    let with = [ControlMessage::ScmRights(&descriptors)];
    send(to, &ToRank::Memory { pid }, &with)
}

/// Sends something without a descriptor. `EAGAIN`: the other side has not read what it was sent before.
pub(crate) fn tell(to: BorrowedFd<'_>, word: &ToRank) -> Result<(), Errno> {
    send(to, word, &[])
}

/// Says no.
pub(crate) fn refuse(to: BorrowedFd<'_>, why: &str) {
    // One that does not take the answer sees the connection end.
    let _ = send(
        to,
        &ToRank::Refused {
            why: why.to_owned(),
        },
        &[],
    );
}

fn send(to: BorrowedFd<'_>, word: &ToRank, with: &[ControlMessage<'_>]) -> Result<(), Errno> {
    let bytes = word.encode();
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<UnixAddr>(to.as_raw_fd(), &[IoSlice::new(&bytes)], with, flags, None).map(drop)
}

/// The user behind a connection.
pub(crate) fn user_of(connection: &impl AsFd) -> Option<u32> {
    let who = nix::sys::socket::getsockopt(connection, sockopt::PeerCredentials).ok()?;
    Some(who.uid())
}
