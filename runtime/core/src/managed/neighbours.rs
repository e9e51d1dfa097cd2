// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects the ranks of a node to each other. All try to bind one abstract socket name: the rank that succeeds is the
//! leader, and the others connect to it as its guests.
//!
//! An abstract name (it begins with a zero byte) disappears with the process that bound it, and is visible only in the
//! network namespace. A guest must be a process of the leader's user. A guest sends its hello message before it enters
//! the fence of the server, so when that fence is over all guests have connected.
//!
//! The connections stay open. The end of a connection means that the rank has exited. A rank that finalizes MPI reports
//! that over its connection before it exits.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustc_hash::FxHasher;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, getuid};
use rustix::thread::{CpuSet, sched_getaffinity};
use wireup::{Boot, ToDaemon, ToRank};

use crate::Error;

/// A rank after it has bound the name of its node (leader) or connected to it (guest).
#[derive(Debug)]
pub(super) enum NodeEntry {
    Leader(Leader),
    Guest(NodeGuest),
}

/// The role of a rank on its node after the shared segment was handed out.
#[derive(Debug)]
pub(super) enum NodeRole {
    None,
    Leader(Leader),
    Guest(NodeGuest),
}

/// The rank that makes the segment, with its connections to the guests.
#[derive(Debug)]
pub(super) struct Leader {
    rank: u32,
    /// The listening socket; `None` after all guests have connected.
    listener: Option<OwnedFd>,
    guests: Vec<GuestSeat>,
    lost: VecDeque<(u32, String)>,
}

/// A guest, and the leader's connection to it.
#[derive(Debug)]
struct GuestSeat {
    rank: u32,
    socket: OwnedFd,
    /// Messages for which the socket had no room yet, oldest first.
    unsent: VecDeque<Vec<u8>>,
}

/// A rank that receives the segment from its leader.
#[derive(Debug)]
pub(super) struct NodeGuest {
    socket: OwnedFd,
    /// The rank of the leader; `None` before its first message.
    leader: Option<u32>,
    is_over: bool,
}

impl NodeRole {
    /// The next rank of this node that has exited without finalizing MPI; `None`: no further rank has.
    pub(super) fn next_lost(&mut self) -> Option<(u32, String)> {
        match self {
            Self::None => None,
            Self::Guest(guest) => guest.next_lost(),
            Self::Leader(leader) => {
                leader.check_guests();
                leader.lost.pop_front()
            }
        }
    }

    /// Reports that this process has finalized MPI: its exit is not a failure from now on.
    pub(super) fn part(&mut self, rank: u32) {
        match self {
            Self::None => {}
            Self::Leader(leader) => {
                leader.broadcast(&ToRank::Finalized { rank });
                leader.deliver();
            }
            Self::Guest(guest) => {
                let message = ToDaemon::Finalized { rank }.encode();
                // The send may fail because the leader has exited. Then it needs no message.
                let _ = rustix::net::send(&guest.socket, &message, SendFlags::NOSIGNAL);
            }
        }
    }
}

impl NodeEntry {
    /// Binds the name of a job on this node, or connects to the process that has bound it.
    ///
    /// # Errors
    /// When no socket can be made, or another user has the name.
    pub(super) fn at(job: &str, rank: u32) -> Result<Self, Error> {
        let name = name_of(job);
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed("name"))?;
        let since = Instant::now();
        loop {
            let listener = socket(SocketFlags::NONBLOCK)?;
            match rustix::net::bind(&listener, &address) {
                Ok(()) => {
                    rustix::net::listen(&listener, MAX_WAITING).map_err(failed("listen"))?;
                    return Ok(Self::Leader(Leader {
                        rank,
                        listener: Some(listener),
                        guests: Vec::new(),
                        lost: VecDeque::new(),
                    }));
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(failed("bind")(error)),
            }
            let guest = socket(SocketFlags::empty())?;
            match rustix::net::connect(&guest, &address) {
                Ok(()) => return NodeGuest::greet(guest, rank).map(Self::Guest),
                // The leader does not listen yet, or has just exited.
                Err(Errno::CONNREFUSED | Errno::INTR) if since.elapsed() < CONNECT_TIMEOUT => {
                    sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(failed("connect")(error)),
            }
        }
    }

    /// Accepts guests that have connected.
    ///
    /// # Errors
    /// When a rank connects twice, or its rank is not below the size of the job.
    pub(super) fn admit(&mut self, size: u32) -> Result<(), Error> {
        match self {
            Self::Leader(leader) => leader.admit(size),
            Self::Guest(_) => Ok(()),
        }
    }

    /// The socket that becomes readable when a guest connects.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Leader(leader) => leader.listener.as_ref().map(AsFd::as_fd),
            Self::Guest(_) => None,
        }
    }
}

impl Leader {
    /// Accepts guests that have connected, and receives their hello messages.
    pub(super) fn admit(&mut self, size: u32) -> Result<(), Error> {
        while let Some(listener) = &self.listener {
            let socket = match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => return Err(failed("accept")(error)),
            };
            if !is_own_user(&socket) {
                continue;
            }
            // The message is there or comes soon: a guest sends it before it waits for anything.
            let patience = Some(Duration::from_secs(10));
            let _ = set_socket_timeout(&socket, Timeout::Recv, patience);
            let mut bytes = [0; wireup::MAX_DATAGRAM_BYTES];
            let received = rustix::io::retry_on_intr(|| {
                rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty())
            });
            let length = received.map_or(0, |(length, _)| length);
            let hello = ToDaemon::decode(&bytes[..length]);
            let Ok(ToDaemon::Hello { rank, .. }) = hello else {
                continue;
            };
            let is_here = rank == self.rank || self.guests.iter().any(|seat| seat.rank == rank);
            if rank >= size || is_here {
                return Err(Error::Boot(format!(
                    "rank {rank} of {size} came to rank {} twice: does the launcher run two jobs of one name on this node?",
                    self.rank
                )));
            }
            self.guests.push(GuestSeat::new(rank, socket));
        }
        Ok(())
    }

    /// Closes the listening socket. To be called when all guests have connected.
    pub(super) fn close_listener(&mut self) {
        self.listener = None;
    }

    /// CPUs that the ranks of this node may use: CPU `c` is bit `c % 64` of word `c / 64`.
    pub(super) fn cpus(&self) -> Vec<u64> {
        let guests = self.guests.iter();
        let guests = guests.filter_map(|seat| crate::boot::other_end(&seat.socket)?.1);
        cpus(guests.filter_map(Pid::from_raw))
    }

    /// The ranks of this node, in ascending order.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.guests.iter().map(|seat| seat.rank).collect();
        ranks.push(self.rank);
        ranks.sort_unstable();
        ranks
    }

    /// Sends each guest what a daemon would send, and the descriptor of the segment if there is one.
    ///
    /// # Errors
    /// When a send fails for another reason than the exit of a guest.
    pub(super) fn send_boot(
        &self,
        boot_of: impl Fn(u32) -> Boot,
        segment: Option<&OwnedFd>,
    ) -> Result<(), Error> {
        let descriptors = segment.map(AsFd::as_fd);
        let descriptors = descriptors.as_slice();
        for seat in &self.guests {
            let text = boot_of(seat.rank).to_string();
            let parts = [std::io::IoSlice::new(text.as_bytes())];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let flags = SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(&seat.socket, &parts, &mut ancillary, flags) {
                // If the guest has exited, the next check detects that.
                Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
                Err(error) => return Err(failed("send")(error)),
            }
        }
        Ok(())
    }

    /// Checks for guests that have exited, and reports failures to the other guests. Also sends messages that are not
    /// sent yet.
    fn check_guests(&mut self) {
        let mut place = 0;
        while let Some(seat) = self.guests.get_mut(place) {
            seat.send();
            let mut bytes = [0; wireup::MAX_DATAGRAM_BYTES];
            let received = rustix::net::recv(&seat.socket, &mut bytes[..], RecvFlags::DONTWAIT);
            let is_over = match received {
                Err(Errno::AGAIN | Errno::INTR) => {
                    place += 1;
                    continue;
                }
                Ok((length, _)) if length > 0 => {
                    let message = ToDaemon::decode(&bytes[..length]);
                    matches!(message, Ok(ToDaemon::Finalized { .. }))
                }
                _ => false,
            };
            let GuestSeat { rank, .. } = self.guests.swap_remove(place);
            if !is_over {
                let why = ENDED.to_owned();
                self.broadcast(&ToRank::Lost {
                    rank,
                    why: why.clone(),
                });
                self.lost.push_back((rank, why));
            }
        }
    }

    fn broadcast(&mut self, message: &ToRank) {
        let message = message.encode();
        for seat in &mut self.guests {
            seat.unsent.push_back(message.clone());
            seat.send();
        }
    }

    /// Waits until all messages are sent to the guests that still take part, but at most for [`DELIVERY_TIMEOUT`]. A
    /// guest that misses the last one, [`ToRank::Finalized`], takes the exit of this process for a failure.
    fn deliver(&mut self) {
        let since = Instant::now();
        loop {
            self.check_guests();
            let waiting = self.guests.iter().filter(|seat| !seat.unsent.is_empty());
            let mut sockets: Vec<PollFd<'_>> = waiting
                .map(|seat| PollFd::new(&seat.socket, PollFlags::IN | PollFlags::OUT))
                .collect();
            if sockets.is_empty() || since.elapsed() > DELIVERY_TIMEOUT {
                return;
            }
            // The result does not matter, because all sockets are tried again.
            let _ = poll(&mut sockets, Some(&DELIVERY_INTERVAL));
        }
    }
}

impl GuestSeat {
    fn new(rank: u32, socket: OwnedFd) -> Self {
        Self {
            rank,
            socket,
            unsent: VecDeque::new(),
        }
    }

    /// Sends messages until the socket is full or none is left.
    fn send(&mut self) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while let Some(message) = self.unsent.front() {
            match rustix::net::send(&self.socket, message, flags) {
                Ok(_) => drop(self.unsent.pop_front()),
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => return,
                // The guest has exited, so it needs no message.
                Err(_) => return self.unsent.clear(),
            }
        }
    }
}

impl NodeGuest {
    fn greet(socket: OwnedFd, rank: u32) -> Result<Self, Error> {
        if !is_own_user(&socket) {
            return Err(Error::Boot(
                "the socket name for the ranks of this node belongs to a process of another user"
                    .to_owned(),
            ));
        }
        let pid = std::process::id();
        let hello = ToDaemon::Hello {
            rank,
            pid,
            publishes: false,
        };
        rustix::net::send(&socket, &hello.encode(), SendFlags::NOSIGNAL)
            .map_err(failed("greet"))?;
        Ok(Self {
            socket,
            leader: None,
            is_over: false,
        })
    }

    /// Receives the leader's first message, and the segment.
    ///
    /// # Errors
    /// When the leader has exited, or sends something else.
    pub(super) fn receive_first(&mut self) -> Result<(Boot, OwnedFd), Error> {
        let (boot, segment) = self.receive()?;
        self.leader = boot.leader;
        let without = || Error::Boot("the leader of this node has sent no segment".to_owned());
        let segment = segment
            .filter(|file| transport::is_segment(file.as_fd(), boot.job, boot.local_size()))
            .ok_or_else(without)?;
        Ok((boot, segment))
    }

    /// Receives the leader's second message.
    ///
    /// # Errors
    /// When the leader has exited, or sends something else.
    pub(super) fn receive_second(&self) -> Result<Boot, Error> {
        self.receive().map(|(boot, _)| boot)
    }

    fn receive(&self) -> Result<(Boot, Option<OwnedFd>), Error> {
        let mut bytes = vec![0; LONGEST_BOOT];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = match rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
                Ok(got) if got.bytes > 0 => got.bytes,
                Err(Errno::INTR) => continue,
                _ => {
                    // Most likely the launcher is ending the job because some rank has ended. It ends this rank too;
                    // an error of this rank before that would hide the exit code of the other one.
                    sleep(LAUNCHER_GRACE);
                    return Err(Error::Boot(
                        "the rank that leads this node has ended in MPI_Init".to_owned(),
                    ));
                }
            };
            let segment = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            });
            let text = String::from_utf8_lossy(&bytes[..got]);
            let boot = Boot::parse(&text).map_err(|error| Error::Boot(error.to_string()))?;
            return Ok((boot, segment));
        }
    }

    /// The next rank that has exited without finalizing MPI, according to the leader's later messages or the leader's
    /// exit.
    fn next_lost(&mut self) -> Option<(u32, String)> {
        if self.is_over {
            return None;
        }
        let mut bytes = [0; wireup::MAX_DATAGRAM_BYTES];
        let received = rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT);
        let length = match received {
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Ok((length, _)) => length,
            Err(_) => 0,
        };
        match ToRank::decode(&bytes[..length]) {
            Ok(ToRank::Lost { rank, why }) => return Some((rank, why)),
            Ok(ToRank::Finalized { .. }) => self.is_over = true,
            _ if length == 0 => {
                self.is_over = true;
                return Some((self.leader?, ENDED.to_owned()));
            }
            _ => {}
        }
        None
    }
}

/// CPUs that this process and `others` may use: CPU `c` is bit `c % 64` of word `c / 64`.
pub(super) fn cpus(others: impl Iterator<Item = Pid>) -> Vec<u64> {
    let mut words = vec![0_u64; CpuSet::MAX_CPU / 64];
    for process in std::iter::once(None).chain(others.map(Some)) {
        // A process that has exited uses no CPU.
        let Ok(set) = sched_getaffinity(process) else {
            continue;
        };
        let allowed = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
        allowed.for_each(|cpu| words[cpu / 64] |= 1 << (cpu % 64));
    }
    let used = words.iter().rposition(|word| *word != 0);
    words.truncate(used.map_or(0, |last| last + 1));
    words
}

/// Whether the process at the other end belongs to the user of this process.
fn is_own_user(socket: &OwnedFd) -> bool {
    crate::boot::other_end(socket).is_some_and(|(user, _)| user == getuid().as_raw())
}

fn socket(more: SocketFlags) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | more;
    let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    made.map_err(failed("socket"))
}

/// The socket name at which the ranks of a job of this user meet.
fn name_of(job: &str) -> String {
    let mut hasher = FxHasher::default();
    hasher.write(job.as_bytes());
    format!("rmpi-{}-{:016x}", getuid().as_raw(), hasher.finish())
}

fn failed(call: &'static str) -> impl Fn(Errno) -> Error {
    move |error| {
        let error = std::io::Error::from(error);
        Error::Boot(format!(
            "the ranks of this node cannot find each other: {call}: {error}"
        ))
    }
}

const ENDED: &str = "its process has ended without MPI_Finalize";
/// Maximum number of guests that have connected and are not accepted yet. If the system limits it to fewer, further
/// guests block in `connect`.
const MAX_WAITING: i32 = 4096;
/// How long a guest tries to connect. A leader listens right after it has bound the name, unless it has to wait for a
/// core.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of a message: it contains the ranks of the node.
const LONGEST_BOOT: usize = 1 << 19;
/// How long a leader that has finalized MPI waits for guests whose sockets are full.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts to send to such guests, if no socket becomes ready before.
const DELIVERY_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
/// A launcher that ends a job has ended every rank after this time.
const LAUNCHER_GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    /// A leader, rank 0, and its guest, rank 1.
    fn leader_and_guest() -> (Leader, NodeGuest) {
        let (socket, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let leader = Leader {
            rank: 0,
            listener: None,
            guests: vec![GuestSeat::new(1, socket)],
            lost: VecDeque::new(),
        };
        let guest = NodeGuest {
            socket: other,
            leader: Some(0),
            is_over: false,
        };
        (leader, guest)
    }

    #[test]
    fn messages_to_a_guest_with_a_full_socket_arrive_later() {
        let (mut leader, mut guest) = leader_and_guest();
        for rank in 2..MANY {
            let why = ENDED.to_owned();
            leader.broadcast(&ToRank::Lost { rank, why });
        }
        assert!(!leader.guests[0].unsent.is_empty());
        // The leader has finalized MPI, and exits.
        let exit = std::thread::spawn(move || NodeRole::Leader(leader).part(0));
        for rank in 2..MANY {
            let lost = loop {
                if let Some((lost, _)) = guest.next_lost() {
                    break lost;
                }
                std::thread::yield_now();
            };
            assert_eq!(lost, rank);
        }
        exit.join().unwrap();
        assert_eq!(guest.next_lost(), None);
        assert!(guest.is_over);
    }

    #[test]
    fn a_guest_that_has_finalized_is_not_waited_for() {
        let (mut leader, guest) = leader_and_guest();
        for rank in 2..MANY {
            let why = ENDED.to_owned();
            leader.broadcast(&ToRank::Lost { rank, why });
        }
        let mut guest = NodeRole::Guest(guest);
        guest.part(1);
        let since = Instant::now();
        NodeRole::Leader(leader).part(0);
        assert!(since.elapsed() < DELIVERY_TIMEOUT);
        drop(guest);
    }

    /// More messages than a socket has room for.
    const MANY: u32 = 5000;
}
