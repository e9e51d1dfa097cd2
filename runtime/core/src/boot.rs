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
use std::sync::Arc;

use pmi::{Boot, ToDaemon, ToRank};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType,
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

/// The control socket. Clones share it, for whoever cannot visit the process.
#[derive(Clone, Debug)]
pub struct Link {
    socket: Arc<OwnedFd>,
    rank: u32,
}

/// What a look at the control socket found.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The daemon said something.
    Words(ToRank),
    /// Nothing that makes sense, for now.
    Nothing,
    /// The daemon is gone.
    End,
}

impl Birth {
    /// Ranks of the job that this process will join in `MPI_Init`, as far as that can be known before.
    #[must_use]
    pub fn size_to_come() -> u32 {
        let boot = std::env::var(pmi::BOOT_VARIABLE).ok();
        let boot = boot.and_then(|text| Boot::parse(&text).ok());
        boot.map_or(1, |boot| boot.size)
    }

    /// Reads what the launcher left, takes the descriptors over, and says hello. `publishes` says whether the process will
    /// tell where it is found on a network.
    ///
    /// # Errors
    /// When there is a launcher but what it left cannot be used.
    pub fn from_environment(publishes: impl FnOnce(&Boot) -> bool) -> Result<Self, Error> {
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
        allow_single_copy(boot.daemon_pid);
        let (link, segment) = greet(&boot, inherited, publishes(&boot))?;
        Ok(Self {
            boot: Some(boot),
            link: Some(link),
            segment: Some(segment),
        })
    }
}

/// Says hello over what was inherited, or over a new connection where that was lost, or was closed for writing by an MPI
/// program that this rank ran before: then the segment is another one too.
fn greet(
    boot: &Boot,
    inherited: (Option<OwnedFd>, Option<OwnedFd>),
    publishes: bool,
) -> Result<(Link, OwnedFd), Error> {
    let rank = boot.rank;
    let hello = ToDaemon::Hello {
        rank,
        pid: std::process::id(),
        publishes,
    };
    if let (Some(socket), Some(segment)) = inherited {
        let link = Link::new(socket, rank);
        if !matches!(link.send(&hello), Err(Errno::PIPE)) {
            return Ok((link, segment));
        }
    }
    let (socket, segment) = ask(boot)?;
    let link = Link::new(socket, rank);
    link.say(&hello)?;
    Ok((link, segment))
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
    pub(crate) fn new(socket: OwnedFd, rank: u32) -> Self {
        let socket = Arc::new(socket);
        Self { socket, rank }
    }

    /// Says that this rank is through with MPI: from now on it may exit.
    ///
    /// # Errors
    /// When the daemon is gone.
    pub fn finalized(&self) -> Result<(), Error> {
        self.say(&ToDaemon::Finalized { rank: self.rank })?;
        // For the next MPI program of this rank, see `greet`; a socket that is gone needs no closing.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        Ok(())
    }

    /// Asks for the end of the job, as `MPI_Abort`.
    ///
    /// # Errors
    /// When the daemon is gone.
    pub fn abort(&self, code: i32) -> Result<(), Error> {
        self.say(&ToDaemon::Abort {
            rank: self.rank,
            code,
            message: String::new(),
        })
    }

    /// Asks for the end of the job because of an error, whose words stand behind "was ended by".
    ///
    /// # Errors
    /// When the daemon is gone.
    pub fn fatal(&self, code: i32, error: &str) -> Result<(), Error> {
        self.say(&ToDaemon::Fatal {
            rank: self.rank,
            code,
            message: error.to_owned(),
        })
    }

    /// Says that a function was called that this library does not have: the launcher says it again if the job fails.
    ///
    /// # Errors
    /// When the daemon is gone.
    pub fn missing(&self, function: &str) -> Result<(), Error> {
        self.say(&ToDaemon::Missing {
            rank: self.rank,
            function: function.to_owned(),
        })
    }

    /// Takes the next thing that the daemon has said; never waits. After the segment has come this is the only reader.
    pub(crate) fn hear(&self) -> Heard {
        let mut bytes = [0u8; pmi::MAX_DATAGRAM_BYTES];
        match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Heard::End,
            // What makes no sense is dropped.
            Ok((length, _)) => {
                ToRank::decode(&bytes[..length]).map_or(Heard::Nothing, Heard::Words)
            }
            Err(_) => Heard::Nothing,
        }
    }

    /// Says something if the socket takes it now. Who cannot be told anything is found out by [`hear`](Self::hear).
    pub(crate) fn try_say(&self, words: &ToDaemon) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let said = rustix::net::send(&self.socket, &words.encode(), flags);
        !matches!(said, Err(Errno::AGAIN | Errno::INTR))
    }

    fn say(&self, words: &ToDaemon) -> Result<(), Error> {
        self.send(words)
            .map_err(|error| Error::Boot(format!("the launcher's daemon does not answer: {error}")))
    }

    fn send(&self, words: &ToDaemon) -> Result<(), Errno> {
        rustix::net::send(&self.socket, &words.encode(), SendFlags::NOSIGNAL).map(drop)
    }
}

/// Writes what the program has printed and C's library still holds, but waits for that only so long: another thread may
/// have a stream locked for ever, or nobody reads. What follows until the end of the process is bounded too: a program
/// that aborts in a signal handler may have been interrupted, or have crashed, where it holds the lock of its heap.
pub fn flush_output() {
    // SAFETY: the default action is no function.
    unsafe { libc::signal(libc::SIGALRM, libc::SIG_DFL) };
    // SAFETY: takes a number.
    unsafe { libc::alarm(END_SECONDS) };
    let (done, written) = std::sync::mpsc::channel();
    let flush = move || {
        // SAFETY: a null pointer asks for all streams; each is locked while it is written.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        // The one who waits may have given up.
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(flush).is_ok() {
        let _ = written.recv_timeout(FLUSH_TIME);
    }
}

/// Ends this process at once: nothing runs that the program registered for its exit, since that may well call MPI or wait
/// for other threads.
pub fn leave(code: i32) -> ! {
    // SAFETY: takes a number and does not return; nothing that is skipped is needed for memory safety.
    unsafe { libc::_exit(code) }
}

/// A process that wants to end and cannot is killed by SIGALRM after so long.
const END_SECONDS: libc::c_uint = 3;
/// What [`flush_output`] may take.
const FLUSH_TIME: std::time::Duration = std::time::Duration::from_millis(300);

/// Asks the daemon for the descriptors over its socket.
fn ask(boot: &Boot) -> Result<(OwnedFd, OwnedFd), Error> {
    let failed = |what: &str, error: io::Error| {
        Error::Boot(format!(
            "rank {} has no usable inherited descriptors and {what} the daemon (process {}): {error}",
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
