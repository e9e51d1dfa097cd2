// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the job that a process belongs to, and connects the process to the daemon of its node or to the substitute for
//! a daemon (`managed.rs`).
//!
//! # Safety
//! Descriptors arrive as numbers in the environment. Each descriptor is checked to be of the expected kind before an
//! [`OwnedFd`] is made from it; only that owner closes it.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{PTracer, Pid, set_ptracer};
use wireup::{Boot, ToDaemon, ToRank};

use transport::Fabric;

use crate::Error;
use crate::managed::{Inherited, JoinedJob, Managed, PmiAddress, PmiSetting, USED_VARIABLE, used};
use crate::var::{ROWS, Variable, VariableValues, launch, settings};

/// The initial state of a process, from its launcher.
#[derive(Debug)]
pub struct LaunchState {
    /// The job; `None` for a program that was started without a launcher.
    pub boot: Option<Boot>,
    /// The connection to the daemon.
    pub link: Option<DaemonLink>,
    /// The node segment.
    pub segment: Option<OwnedFd>,
}

/// The connection to the daemon. Clones share the connection; they are for code without access to the
/// [`Universe`](crate::Universe).
#[derive(Clone, Debug)]
pub struct DaemonLink {
    to: To,
    rank: u32,
}

/// The other end of a [`DaemonLink`].
#[derive(Clone, Debug)]
enum To {
    /// The daemon, over the control socket.
    Daemon(Arc<OwnedFd>),
    /// The server of another launcher, through this process's substitute for a daemon.
    Managed(Arc<Mutex<Managed>>),
}

/// The result of one read of the control socket.
#[derive(Debug)]
pub(crate) enum ControlInput {
    /// A message from the daemon.
    Message(ToRank),
    /// An invalid message, or no message yet.
    Nothing,
    /// The daemon has closed the connection.
    End,
}

impl LaunchState {
    /// Before `MPI_Init`: number of ranks of the job that this process will join; 1 if it is not known yet.
    #[must_use]
    pub fn expected_size() -> u32 {
        if let Ok(text) = std::env::var(wireup::BOOT_VARIABLE) {
            return Boot::parse(&text).map_or(1, |boot| boot.size);
        }
        let setting = match settings::read(&ROWS[Variable::Pmi as usize]) {
            settings::CvarValue::Word(place) => PmiSetting::of(place as u64),
            _ => PmiSetting::Auto,
        };
        let found = PmiAddress::detect(setting, &Environment);
        found.map_or(1, |found| found.size(&Environment))
    }

    /// Reads the launcher's settings, takes over the inherited descriptors, and sends the hello message. That message
    /// contains the result of `publishes`: whether the process will publish its network address record.
    ///
    /// # Errors
    /// When there is a launcher but its settings cannot be used.
    pub fn from_environment(
        values: &VariableValues,
        publishes: impl FnOnce(&Boot) -> bool,
    ) -> Result<Self, Error> {
        let Ok(text) = std::env::var(wireup::BOOT_VARIABLE) else {
            return Self::from_another(PmiSetting::of(values.get(Variable::Pmi)));
        };
        // SAFETY: MPI_Init may be called by one thread only, and before other threads call MPI. A program in which
        // another thread changes the environment at that time breaks the rules of POSIX, with or without this library.
        // The variable is removed because a child process of the rank would otherwise join as this rank.
        unsafe { std::env::remove_var(wireup::BOOT_VARIABLE) };
        for name in OF_PMI {
            // SAFETY: as above. rmpiexec sets these variables for other MPI libraries. They are removed because a child
            // process that uses such a library would join as this rank.
            unsafe { std::env::remove_var(name) };
        }
        let boot = Boot::parse(&text).map_err(|error| Error::Boot(error.to_string()))?;
        let inherited = (own_socket(boot.control_fd), own_segment(&boot));
        allow_single_copy(boot.daemon_pid);
        let (link, segment) = send_hello(&boot, inherited, publishes(&boot))?;
        Ok(Self {
            boot: Some(boot),
            link: Some(link),
            segment: Some(segment),
        })
    }
}

/// For display: the launcher interface through which a process with this environment would find its job; `None`: the
/// process would be a singleton.
///
/// # Errors
/// The error message when the interface cannot be used.
pub fn started_by(values: &VariableValues) -> Result<Option<String>, String> {
    if let Ok(text) = std::env::var(wireup::BOOT_VARIABLE) {
        let boot = Boot::parse(&text).map_err(|error| error.to_string())?;
        let (rank, size) = (boot.rank, boot.size);
        return Ok(Some(format!("rmpiexec, as rank {rank} of {size}")));
    }
    let found = PmiAddress::detect(PmiSetting::of(values.get(Variable::Pmi)), &Environment);
    let found = found.map_err(|error| error.to_string())?;
    Ok(found.description(&Environment))
}

/// Variables with which an MPICH derivative in a child process would join as this rank.
const OF_PMI: [&str; 5] = [
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
];

impl LaunchState {
    /// Joins the job of another launcher, if one has started this process.
    fn from_another(setting: PmiSetting) -> Result<Self, Error> {
        let found = PmiAddress::detect(setting, &Environment)?;
        if found != PmiAddress::None {
            // SAFETY: as for the boot variable; and no library of the launcher has started threads yet.
            unsafe { std::env::set_var(USED_VARIABLE, used(&Environment)) };
        }
        let Some(manager) = found.begin(own_stream)? else {
            return Ok(Self {
                boot: None,
                link: None,
                segment: None,
            });
        };
        let joined = Managed::join(manager)?;
        let JoinedJob {
            boot,
            managed,
            segment,
        } = joined;
        allow_single_copy(boot.daemon_pid);
        let link = DaemonLink {
            rank: boot.rank,
            to: To::Managed(Arc::new(Mutex::new(managed))),
        };
        Ok(Self {
            boot: Some(boot),
            link: Some(link),
            segment,
        })
    }

    /// Records for tools how long joining the job took, and the durations that the launcher has reported.
    pub(crate) fn record_launch(&self) {
        if let Some(launch) = self.boot.as_ref().and_then(|boot| boot.launch) {
            launch::record(&launch);
        }
        launch::end(launch::LaunchPhase::Job);
    }

    /// Aborts the job of another launcher because this process cannot join it: the other ranks would wait for this
    /// process. Does nothing if the connection is to a daemon of rmpi.
    pub(crate) fn give_up(&self, why: &Error) {
        if let Some(To::Managed(managed)) = self.link.as_ref().map(|link| &link.to) {
            // If the abort does not reach the server, only the exit of this process can end the job.
            let _ = lock(managed).abort(1, &why.to_string());
        }
    }

    /// Exchanges network address records with the other ranks through the server of another launcher. Does nothing if a
    /// daemon of rmpi exchanges them later. Collective over the job; either all ranks have opened a network, or none
    /// has.
    ///
    /// # Errors
    /// When the launcher's server fails.
    pub(crate) fn exchange_records(&mut self, fabric: &Fabric) -> Result<(), Error> {
        let (Some(link), Some(boot)) = (&self.link, &mut self.boot) else {
            return Ok(());
        };
        let To::Managed(managed) = &link.to else {
            return Ok(());
        };
        match fabric.network_record() {
            Some(record) => lock(managed).exchange_records(boot, &record),
            None => Ok(()),
        }
    }
}

/// The process environment.
struct Environment;

impl Inherited for Environment {
    fn text(&self, variable: &str) -> Option<String> {
        std::env::var(variable).ok()
    }

    fn is_socket(&self, number: RawFd) -> bool {
        if number < 3 {
            return false;
        }
        // SAFETY: borrowed for this call only; a number that is not open gives EBADF, not harm.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::net::sockopt::socket_type(file) == Ok(SocketType::STREAM)
    }
}

/// User and process at the other end of a socket of this host. The process is `None` if it is not visible in this PID
/// namespace.
pub(crate) fn other_end(socket: &OwnedFd) -> Option<(u32, Option<i32>)> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let place: *mut libc::c_void = (&raw mut found).cast();
    // SAFETY: the descriptor is open, and `found` has room for `bytes` bytes.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, place, &raw mut bytes) };
    (got == 0).then_some((found.uid, (found.pid > 0).then_some(found.pid)))
}

fn lock(managed: &Mutex<Managed>) -> MutexGuard<'_, Managed> {
    managed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `managed`, but gives up after `FLUSH_TIME`. For a process that is about to exit: a signal may have interrupted
/// it while it held the lock.
fn lock_soon(managed: &Mutex<Managed>) -> Result<MutexGuard<'_, Managed>, Error> {
    let since = Instant::now();
    loop {
        match managed.try_lock() {
            Ok(managed) => return Ok(managed),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if since.elapsed() < FLUSH_TIME => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Boot(
                    "another thread talks to the launcher".to_owned(),
                ));
            }
        }
    }
}

/// Sends the hello message over the inherited socket. If that socket was lost, or an earlier MPI program of this rank
/// has closed it for writing, opens a new connection, over which the daemon also sends the segment.
fn send_hello(
    boot: &Boot,
    inherited: (Option<OwnedFd>, Option<OwnedFd>),
    publishes: bool,
) -> Result<(DaemonLink, OwnedFd), Error> {
    let rank = boot.rank;
    let hello = ToDaemon::Hello {
        rank,
        pid: std::process::id(),
        publishes,
    };
    if let (Some(socket), Some(segment)) = inherited
        && !matches!(send(&socket, &hello), Err(Errno::PIPE))
    {
        return Ok((DaemonLink::new(socket, rank), segment));
    }
    let (socket, segment) = request_descriptors(boot)?;
    report(&socket, &hello)?;
    Ok((DaemonLink::new(socket, rank), segment))
}

/// Permits the daemon and its descendants, among them the other ranks, to read the memory of this process. That is
/// needed if the kernel's Yama module lets only ancestors read the memory of a process. Without the module the call
/// fails, which does no harm.
fn allow_single_copy(daemon_pid: u32) {
    if let Some(daemon) = Pid::from_raw(daemon_pid.cast_signed()) {
        let _ = set_ptracer(PTracer::ProcessID(daemon));
    }
}

impl DaemonLink {
    pub(crate) fn new(socket: OwnedFd, rank: u32) -> Self {
        let to = To::Daemon(Arc::new(socket));
        Self { to, rank }
    }

    /// Whether the other end is a daemon of rmpi, which reports the fate of the job to the user.
    #[must_use]
    pub fn has_daemon(&self) -> bool {
        matches!(self.to, To::Daemon(_))
    }

    /// To be called when the process exits with `code` without `MPI_Finalize`. Ends the job of another launcher,
    /// because with some launchers the other ranks would wait for ever. Does nothing if a daemon of rmpi is connected:
    /// the daemon detects the exit.
    pub fn ends(&self, code: i32) {
        let To::Managed(managed) = &self.to else {
            return;
        };
        let Ok(mut managed) = lock_soon(managed) else {
            return;
        };
        if managed.may_end() {
            return;
        }
        // SIGALRM ends the process if the server does not answer, as in `flush_output`.
        // SAFETY: SIG_DFL, the default action, is not a function that could be called.
        unsafe { libc::signal(libc::SIGALRM, libc::SIG_DFL) };
        // SAFETY: `alarm` takes only a number.
        unsafe { libc::alarm(END_SECONDS) };
        let rank = self.rank;
        eprintln!("rmpi: rank {rank} ends with exit code {code} before MPI_Finalize; the job ends");
        // If the abort does not reach the server, nothing else can be done.
        let _ = managed.abort(code.max(1), "a rank has ended before MPI_Finalize");
    }

    /// Reports that this rank has finalized MPI and may exit from now on.
    ///
    /// # Errors
    /// When the launcher is gone.
    pub fn finalized(&self) -> Result<(), Error> {
        match &self.to {
            To::Managed(managed) => lock(managed).finalized(),
            To::Daemon(socket) => {
                report(socket, &ToDaemon::Finalized { rank: self.rank })?;
                // Because of the shutdown, `send_hello` of the next MPI program of this rank opens a new connection. If
                // the shutdown fails, the socket was closed already, which has the same effect.
                let _ = rustix::net::shutdown(socket, Shutdown::Write);
                Ok(())
            }
        }
    }

    /// Requests the end of the job, for `MPI_Abort`.
    ///
    /// # Errors
    /// When the launcher is gone.
    pub fn abort(&self, code: i32) -> Result<(), Error> {
        match &self.to {
            To::Managed(managed) => lock_soon(managed)?.abort(code, "MPI_Abort was called"),
            To::Daemon(socket) => {
                let (rank, message) = (self.rank, String::new());
                report(
                    socket,
                    &ToDaemon::Abort {
                        rank,
                        code,
                        message,
                    },
                )
            }
        }
    }

    /// Requests the end of the job because of an error. `error` is what follows "was ended by" in the launcher's
    /// message.
    ///
    /// # Errors
    /// When the launcher is gone.
    pub fn fatal(&self, code: i32, error: &str) -> Result<(), Error> {
        match &self.to {
            To::Managed(managed) => lock_soon(managed)?.abort(code, error),
            To::Daemon(socket) => {
                let (rank, message) = (self.rank, error.to_owned());
                report(
                    socket,
                    &ToDaemon::Fatal {
                        rank,
                        code,
                        message,
                    },
                )
            }
        }
    }

    /// Reports a call of a function that this library does not implement. The launcher reports it to the user if the
    /// job fails.
    ///
    /// # Errors
    /// When the daemon is gone, or the launcher is not that of rmpi.
    pub fn missing(&self, function: &str) -> Result<(), Error> {
        match &self.to {
            To::Managed(_) => Err(Error::Boot(
                "another launcher does not accept the report".to_owned(),
            )),
            To::Daemon(socket) => {
                let (rank, function) = (self.rank, function.to_owned());
                report(socket, &ToDaemon::Missing { rank, function })
            }
        }
    }

    /// Takes the next message from the daemon; never blocks. After the segment has arrived, no other code reads the
    /// socket.
    pub(crate) fn receive(&self) -> ControlInput {
        let socket = match &self.to {
            To::Managed(managed) => return lock(managed).receive(),
            To::Daemon(socket) => socket,
        };
        let mut bytes = [0u8; wireup::MAX_DATAGRAM_BYTES];
        match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => ControlInput::End,
            // An invalid message is dropped.
            Ok((length, _)) => ToRank::decode(&bytes[..length])
                .map_or(ControlInput::Nothing, ControlInput::Message),
            Err(_) => ControlInput::Nothing,
        }
    }

    /// Sends a message if the socket has room for it. `false`: it has no room, or a signal interrupted the call; the
    /// caller must try again later. If the connection is closed, returns `true`, and [`receive`](Self::receive) reports
    /// the end.
    pub(crate) fn try_send(&self, message: &ToDaemon) -> bool {
        let socket = match &self.to {
            To::Managed(managed) => {
                lock(managed).take(message);
                return true;
            }
            To::Daemon(socket) => socket,
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::net::send(socket, &message.encode(), flags);
        !matches!(sent, Err(Errno::AGAIN | Errno::INTR))
    }
}

fn report(socket: &OwnedFd, message: &ToDaemon) -> Result<(), Error> {
    send(socket, message)
        .map_err(|error| Error::Boot(format!("the launcher's daemon does not answer: {error}")))
}

fn send(socket: &OwnedFd, message: &ToDaemon) -> Result<(), Errno> {
    rustix::net::send(socket, &message.encode(), SendFlags::NOSIGNAL).map(drop)
}

/// Flushes the C library's output streams, but waits at most `FLUSH_TIME`: another thread may hold a stream's lock for
/// ever, or the reader may have stopped. From here on, SIGALRM kills the process if it does not exit in time. The
/// process may be unable to exit: a program that aborts in a signal handler may have been interrupted while it held the
/// lock of its heap.
pub fn flush_output() {
    // SAFETY: SIG_DFL, the default action, is not a function that could be called.
    unsafe { libc::signal(libc::SIGALRM, libc::SIG_DFL) };
    // SAFETY: `alarm` takes only a number.
    unsafe { libc::alarm(END_SECONDS) };
    let (done, written) = std::sync::mpsc::channel();
    let flush = move || {
        // SAFETY: a null pointer means all streams; each is locked while it is written.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        // The waiting thread may have given up.
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(flush).is_ok() {
        let _ = written.recv_timeout(FLUSH_TIME);
    }
}

/// Exits immediately, without the application's exit handlers, because these may call MPI or wait for other threads.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` takes only a number and does not return; nothing that is skipped is needed for memory safety.
    unsafe { libc::_exit(code) }
}

/// After this time SIGALRM kills a process that cannot exit.
const END_SECONDS: libc::c_uint = 3;
/// Time limit of [`flush_output`].
const FLUSH_TIME: Duration = Duration::from_millis(300);

/// Connects to the daemon's socket and requests the segment. Returns the connection and the segment.
fn request_descriptors(boot: &Boot) -> Result<(OwnedFd, OwnedFd), Error> {
    let failed = |action: &str, error: io::Error| {
        Error::Boot(format!(
            "rank {} has no usable inherited descriptors and {action} the daemon (process {}): {error}",
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
    let message = ToDaemon::AskSegment {
        rank: boot.rank,
        job: boot.job,
    }
    .encode();
    rustix::net::send(&socket, &message, SendFlags::NOSIGNAL)
        .map_err(|error| failed("cannot send to", error.into()))?;
    let segment = answer(socket.as_fd()).map_err(|error| failed("got no answer from", error))?;
    Ok((socket, segment))
}

fn answer(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut bytes = [0u8; wireup::MAX_DATAGRAM_BYTES];
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

/// Takes ownership of an inherited descriptor; `None`: it is not a SEQPACKET socket.
fn own_socket(number: RawFd) -> Option<OwnedFd> {
    own(number, |file| {
        rustix::net::sockopt::socket_type(file) == Ok(SocketType::SEQPACKET)
    })
}

/// Takes ownership of an inherited descriptor, such as that of the socket to another launcher's server; `None`: it is
/// not a stream socket.
fn own_stream(number: RawFd) -> Option<OwnedFd> {
    own(number, |file| {
        rustix::net::sockopt::socket_type(file) == Ok(SocketType::STREAM)
    })
}

/// Takes ownership of the inherited descriptor of the node segment; `None`: it is not a descriptor of the segment of
/// this job.
fn own_segment(boot: &Boot) -> Option<OwnedFd> {
    let (job, local_size) = (boot.job, boot.local_size());
    own(boot.segment_fd, |file| {
        transport::is_segment(file, job, local_size)
    })
}

fn own(number: RawFd, is_right: impl Fn(BorrowedFd<'_>) -> bool) -> Option<OwnedFd> {
    if number < 3 {
        return None;
    }
    // SAFETY: borrowed for this call only; a number that is not open gives EBADF, not harm.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    if !is_right(file) || rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC).is_err() {
        return None;
    }
    // SAFETY: the launcher opened this descriptor for this process, under this number, and nothing else here owns it.
    Some(unsafe { OwnedFd::from_raw_fd(file.as_raw_fd()) })
}
