// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process learns what job it belongs to, and its line to the daemon of its node.
//!
//! # Safety
//! Descriptors arrive as numbers in the environment. Each is checked to be what it should be before it is owned; from
//! then on it is closed by its owner alone.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use pmi::{Boot, ToDaemon, ToRank};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::Error;

/// What a process is born with.
#[derive(Debug)]
pub struct Birth {
    /// The job; `None` for a program that was started without the launcher.
    pub boot: Option<Boot>,
    /// The line to the daemon.
    pub link: Option<Link>,
    /// The node segment.
    pub segment: Option<OwnedFd>,
}

/// The control socket.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    rank: u32,
}

impl Birth {
    /// Reads what the launcher left, takes the descriptors over, and says hello.
    ///
    /// # Errors
    /// When there is a launcher but what it left cannot be used.
    pub fn from_environment() -> Result<Self, Error> {
        let Ok(text) = std::env::var(pmi::BOOT_VARIABLE) else {
            return Ok(Self {
                boot: None,
                link: None,
                segment: None,
            });
        };
        // SAFETY: MPI_Init may be called by one thread only and before others call MPI; a program that changes its
        // environment from another thread at that moment breaks POSIX's rules with or without us. Without this a child
        // process of the rank would take itself for the rank.
        unsafe { std::env::remove_var(pmi::BOOT_VARIABLE) };
        let boot = Boot::parse(&text).map_err(|error| Error::Boot(error.to_string()))?;
        let inherited = (own_socket(boot.control_fd), own_file(boot.segment_fd));
        let (socket, segment) = match inherited {
            (Some(socket), Some(segment)) => (socket, segment),
            _ => ask(&boot)?,
        };
        let link = Link {
            socket,
            rank: boot.rank,
        };
        allow_single_copy(boot.daemon_pid);
        link.say(&ToDaemon::Hello {
            rank: boot.rank,
            pid: std::process::id(),
        })?;
        Ok(Self {
            boot: Some(boot),
            link: Some(link),
            segment: Some(segment),
        })
    }
}

/// Where the Yama module lets only ancestors read a process's memory, lets the daemon and its descendants: the other
/// ranks. Elsewhere the call is refused and nothing is needed.
fn allow_single_copy(daemon_pid: u32) {
    // SAFETY: takes a number and no memory.
    unsafe {
        libc::prctl(
            libc::PR_SET_PTRACER,
            libc::c_ulong::from(daemon_pid),
            0,
            0,
            0,
        )
    };
}

impl Link {
    /// Says that this rank is through with MPI: from now on it may exit.
    ///
    /// # Errors
    /// When the daemon is gone.
    pub fn finalized(&self) -> Result<(), Error> {
        self.say(&ToDaemon::Finalized { rank: self.rank })
    }

    /// Asks for the end of the job.
    ///
    /// # Errors
    /// When the daemon is gone.
    pub fn abort(&self, code: i32, message: &str) -> Result<(), Error> {
        self.say(&ToDaemon::Abort {
            rank: self.rank,
            code,
            message: message.to_owned(),
        })
    }

    /// Whether the daemon is still there.
    #[must_use]
    pub fn is_up(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(
            rustix::net::recv(&self.socket, &mut byte[..], flags),
            Ok((0, _))
        )
    }

    /// Waits until the daemon hangs up: it ends this process before that.
    pub fn wait_for_the_end(&self) {
        let mut byte = [0u8; 64];
        while !matches!(
            rustix::net::recv(&self.socket, &mut byte[..], RecvFlags::empty()),
            Ok((0, _)) | Err(_)
        ) {}
    }

    fn say(&self, words: &ToDaemon) -> Result<(), Error> {
        rustix::net::send(&self.socket, &words.encode(), SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|error| Error::Boot(format!("the launcher's daemon does not answer: {error}")))
    }
}

/// The descriptors did not survive a wrapper: asks the daemon for them over its socket.
fn ask(boot: &Boot) -> Result<(OwnedFd, OwnedFd), Error> {
    let failed = |what: &str, error: io::Error| {
        Error::Boot(format!(
            "rank {} lost the descriptors that it inherited and {what} the daemon (process {}): {error}",
            boot.rank, boot.daemon_pid
        ))
    };
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| failed("has no socket to reach", error.into()))?;
    let address = SocketAddrUnix::new_abstract_name(boot.address.as_bytes())
        .map_err(|error| failed("has no address of", error.into()))?;
    rustix::net::connect(&socket, &address)
        .map_err(|error| failed("cannot reach", error.into()))?;
    let words = ToDaemon::AskSegment {
        rank: boot.rank,
        job: boot.job,
    }
    .encode();
    rustix::net::send(&socket, &words, SendFlags::NOSIGNAL)
        .map_err(|error| failed("cannot ask", error.into()))?;
    let segment = answer(socket.as_fd()).map_err(|error| failed("got no answer from", error))?;
    Ok((socket, segment))
}

fn answer(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut bytes = [0u8; pmi::MAX_DATAGRAM_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let got = rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match (ToRank::decode(&bytes[..got.bytes]), file) {
        (Ok(ToRank::Segment), Some(file)) => Ok(file),
        (Ok(ToRank::Refused { why }), _) => Err(io::Error::other(why)),
        _ => Err(io::Error::other("the answer makes no sense")),
    }
}

/// Owns an inherited descriptor if it is a SEQPACKET socket.
fn own_socket(number: RawFd) -> Option<OwnedFd> {
    own(number, |file| {
        rustix::net::sockopt::socket_type(file) == Ok(SocketType::SEQPACKET)
    })
}

/// Owns an inherited descriptor if it is a sealed memory file.
fn own_file(number: RawFd) -> Option<OwnedFd> {
    own(number, |file| {
        rustix::fs::fcntl_get_seals(file)
            .is_ok_and(|seals| seals.contains(rustix::fs::SealFlags::SHRINK))
    })
}

fn own(number: RawFd, is_right: impl Fn(BorrowedFd<'_>) -> bool) -> Option<OwnedFd> {
    if number < 3 {
        return None;
    }
    // SAFETY: only asked about, for the time of this call; a number that is not open gives EBADF, not harm.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    if !is_right(file) || rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC).is_err() {
        return None;
    }
    // SAFETY: the launcher opened this descriptor for this process, under this number, and nobody else here knows it.
    Some(unsafe { OwnedFd::from_raw_fd(file.as_raw_fd()) })
}
