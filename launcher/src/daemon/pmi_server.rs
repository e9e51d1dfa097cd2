// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMI-1 server for ranks whose library is MPICH's or a derivative: they exchange addresses over a socket that every
//! rank inherits. Each puts its keys into a store and enters a fence, after which all ranks can get them.
//!
//! A node's store has the pairs that its own ranks put and, after each fence, those of other nodes, which are
//! exchanged through the front.

use super::{Daemon, Token, interest};
use crate::failure::How;
use crate::link::{Event, LONGEST_FRAME_BYTES, Pairs};
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use pmi::{Facts, Request, Server};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use wireup::NodeMap;

/// State of the PMI-1 server of a node.
#[derive(Debug)]
pub(super) struct PmiServer {
    talks: Vec<Option<Talk>>,
    store: Store,
    size: u32,
    /// All ranks of the job are on this node: no exchange with other nodes.
    is_alone: bool,
    /// The front was notified that all ranks of this node are at the fence.
    has_told: bool,
}

#[derive(Debug)]
struct Talk {
    socket: OwnedFd,
    server: Server,
    is_at_fence: bool,
    wants_room: bool,
}

/// Key-value pairs.
#[derive(Debug, Default)]
struct Store {
    pairs: HashMap<String, String>,
    /// Pairs that ranks of this node put since the last fence.
    fresh: Vec<(String, String)>,
    /// Bytes of all pairs that ranks of this node put.
    bytes: usize,
    most_bytes: usize,
}

impl Store {
    /// Stores a pair; `false` if there is no room.
    fn put(&mut self, key: String, value: String) -> bool {
        // Including the separators in a frame.
        let bytes = key.len() + value.len() + 2;
        if self.bytes.saturating_add(bytes) > self.most_bytes {
            return false;
        }
        self.bytes += bytes;
        self.fresh.push((key.clone(), value.clone()));
        self.pairs.insert(key, value);
        true
    }
}

impl PmiServer {
    /// For `local_size` ranks on this node, of a job of `size` ranks.
    pub(super) fn new(local_size: u32, size: u32, nodes: Option<&NodeMap>) -> Self {
        // One frame to all nodes carries the pairs of all ranks.
        let share = JOB_BYTES / size.max(1) as usize * local_size as usize;
        let mut store = Store {
            most_bytes: share.min(STORE_BYTES + local_size as usize * RANK_BYTES),
            ..Store::default()
        };
        let mapping = match (nodes, local_size == size) {
            (Some(nodes), _) => mapping(nodes.blocks()),
            (None, true) => mapping([(0, 1, size)].into_iter()),
            // Without a mapping, MPICH compares host names.
            (None, false) => String::new(),
        };
        store.pairs.extend([(MAPPING_KEY.to_owned(), mapping)]);
        Self {
            talks: Vec::new(),
            store,
            size,
            is_alone: local_size == size,
            has_told: false,
        }
    }

    fn talk(&mut self, local: u32) -> Option<&mut Talk> {
        self.talks.get_mut(local as usize)?.as_mut()
    }

    /// Carries out a request as far as the server can; returns what the daemon must do.
    fn carry_out(&mut self, local: u32, request: Request) -> Option<Left> {
        let Self { talks, store, .. } = &mut *self;
        let talk = talks.get_mut(local as usize)?.as_mut()?;
        match request {
            Request::Put { key, value } => {
                let is_kept = store.put(key, value);
                talk.server.answer_put(is_kept);
                None
            }
            Request::Get(key) => {
                let value = store.pairs.get(&key);
                talk.server.answer_get(value.map(String::as_str));
                None
            }
            Request::Abort { code, message } => Some(Left::Abort(code, message)),
            Request::Init => Some(Left::Note(true)),
            Request::Finalize => Some(Left::Note(false)),
            Request::Fence => {
                talk.is_at_fence = true;
                self.come_to_fence()
            }
        }
    }

    /// Checks whether all connected ranks of this node are at the fence; returns the next step if they have just
    /// reached it.
    fn come_to_fence(&mut self) -> Option<Left> {
        let mut talks = self.talks.iter().flatten().peekable();
        if talks.peek().is_none() {
            return (!self.is_alone).then_some(Left::TellOfEnd);
        }
        if self.has_told || !talks.all(|talk| talk.is_at_fence) {
            return None;
        }
        if self.is_alone {
            return Some(Left::EndFence);
        }
        self.has_told = true;
        Some(Left::TellFront(std::mem::take(&mut self.store.fresh)))
    }

    /// Ends the fence: all ranks of the job have reached it, and `pairs` are what they put.
    fn end_fence(&mut self, pairs: Pairs) {
        self.has_told = false;
        if self.is_alone {
            self.store.fresh.clear();
        }
        self.store.pairs.extend(pairs);
        for talk in self.talks.iter_mut().flatten() {
            if std::mem::take(&mut talk.is_at_fence) {
                talk.server.end_fence();
            }
        }
    }
}

/// Action of the daemon for a request.
enum Left {
    Abort(i32, String),
    /// Whether the rank is in its MPI now.
    Note(bool),
    EndFence,
    TellFront(Pairs),
    /// No rank of this node will enter a fence again.
    TellOfEnd,
}

/// MPICH's process mapping: `(vector,(node,nodes,ranks per node),...)`, with nodes numbered from 0 on without a gap.
fn mapping(blocks: impl Iterator<Item = (u32, u32, u32)>) -> String {
    let blocks: Vec<(u32, u32, u32)> = blocks.collect();
    let all = blocks
        .iter()
        .flat_map(|(node, nodes, _)| *node..node + nodes);
    let all: BTreeSet<u32> = all.collect();
    let places: HashMap<u32, usize> = all.into_iter().zip(0..).collect();
    let blocks = blocks
        .iter()
        .map(|(node, nodes, each)| format!(",({},{nodes},{each})", places[node]));
    let text: String = blocks.collect();
    // MPICH truncates longer values.
    match text.len() < LONGEST_MAPPING {
        true => format!("(vector{text})"),
        false => String::new(),
    }
}

/// Creates a connected pair: the daemon's end and the rank's.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::Stream, None, flags)
}

impl Daemon {
    /// Opens the PMI connection of a rank.
    pub(super) fn begin_pmi(&mut self, local: u32, socket: OwnedFd) -> Result<(), Errno> {
        let event = interest(EpollFlags::EPOLLIN, Token::Pmi(local));
        self.poller.add(&socket, event)?;
        let facts = Facts {
            size: self.pmi.size,
            app: self.job.ranks[local as usize].app,
            job: format!("rmpi-{:x}", self.job.keys.job),
        };
        self.pmi.talks.push(Some(Talk {
            socket,
            server: Server::new(facts),
            is_at_fence: false,
            wants_room: false,
        }));
        Ok(())
    }

    /// Receives requests of a rank: a bounded amount per turn, for fairness, and none while its socket has no room
    /// for replies, which would pile up.
    pub(super) fn hear_pmi(&mut self, local: u32) {
        let Some(talk) = self.pmi.talk(local).filter(|talk| !talk.wants_room) else {
            return;
        };
        let flags = MsgFlags::MSG_DONTWAIT;
        match recv(talk.socket.as_raw_fd(), &mut self.scratch, flags) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Ok(0) | Err(_) => return self.end_pmi(local),
            Ok(bytes) => talk.server.take(&self.scratch[..bytes]),
        }
        while let Some(talk) = self.pmi.talk(local) {
            if talk.server.answers().len() > MOST_UNSENT {
                self.answer_pmi(local);
                // The rest of the requests waits until the rank reads replies.
                if self.pmi.talk(local).is_none_or(|talk| talk.wants_room) {
                    return;
                }
                continue;
            }
            match talk.server.next_request() {
                Ok(Some(request)) => {
                    if let Some(left) = self.pmi.carry_out(local, request) {
                        self.do_what_is_left(local, left);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    let rank = self.job.ranks[local as usize].rank;
                    self.notice(format!(
                        "rank {rank} is not heard over PMI any more: {error}"
                    ));
                    return self.end_pmi(local);
                }
            }
        }
        self.answer_pmi(local);
    }

    fn do_what_is_left(&mut self, local: u32, left: Left) {
        match left {
            Left::Abort(code, message) => self.hear_end(local, How::Abort { code, message }),
            Left::Note(in_other_mpi) => self.ranks[local as usize].in_other_mpi = in_other_mpi,
            Left::EndFence => self.end_fence(Vec::new()),
            Left::TellFront(pairs) => self.tell(&Event::Fence(pairs)),
            Left::TellOfEnd => self.tell(&Event::NoFence),
        }
    }

    /// Ends the fence, which all ranks of the job have reached.
    pub(super) fn end_fence(&mut self, pairs: Pairs) {
        self.pmi.end_fence(pairs);
        for local in 0..self.job.local_size() {
            self.answer_pmi(local);
        }
    }

    /// Sends queued replies to a rank, as far as there is room.
    pub(super) fn answer_pmi(&mut self, local: u32) {
        let Some(talk) = self.pmi.talk(local) else {
            return;
        };
        let answers = talk.server.answers();
        let mut full = false;
        while !answers.is_empty() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(talk.socket.as_raw_fd(), answers, flags) {
                Ok(sent) => drop(answers.drain(..sent)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    full = true;
                    break;
                }
                Err(_) => return self.end_pmi(local),
            }
        }
        if std::mem::replace(&mut talk.wants_room, full) != full {
            let wanted = match full {
                true => EpollFlags::EPOLLOUT,
                false => EpollFlags::EPOLLIN,
            };
            let mut event = interest(wanted, Token::Pmi(local));
            let _ = self.poller.modify(&talk.socket, &mut event);
        }
    }

    /// Closes the PMI connection of a rank.
    pub(super) fn end_pmi(&mut self, local: u32) {
        let talk = self.pmi.talks.get_mut(local as usize);
        let Some(talk) = talk.and_then(Option::take) else {
            return;
        };
        let _ = self.poller.delete(&talk.socket);
        // The other ranks may have waited in a fence for this one only.
        if let Some(left) = self.pmi.come_to_fence() {
            self.do_what_is_left(local, left);
        }
    }
}

/// Limit of unsent replies to a rank, beyond which no request is read.
const MOST_UNSENT: usize = 64 << 10;
const MAPPING_KEY: &str = "PMI_process_mapping";
/// Limit of MPICH for a value.
const LONGEST_MAPPING: usize = 1000;
/// Bytes that the ranks of a node may put, plus [`RANK_BYTES`] for each rank.
const STORE_BYTES: usize = 1 << 20;
const RANK_BYTES: usize = 64 << 10;
/// Bytes that all ranks of a job may put.
const JOB_BYTES: usize = LONGEST_FRAME_BYTES / 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_in_the_words_of_mpich() {
        let of = |nodes: &[u32]| mapping(NodeMap::new(nodes.iter().copied()).unwrap().blocks());
        let told = |server: &PmiServer| server.store.pairs[MAPPING_KEY].clone();
        assert_eq!(told(&PmiServer::new(4, 4, None)), "(vector,(0,1,4))");
        assert_eq!(told(&PmiServer::new(2, 4, None)), "");
        assert_eq!(of(&[3, 3, 9, 7, 7]), "(vector,(0,1,2),(2,1,1),(1,1,2))");
        assert_eq!(of(&[0, 0, 1, 1, 2]), "(vector,(0,2,2),(2,1,1))");
        assert_eq!(of(&[0, 1, 0, 1]), "(vector,(0,2,1),(0,2,1))");
        let strewn: Vec<u32> = (0..400).map(|rank| rank * 7 % 31).collect();
        assert_eq!(of(&strewn), "");
    }

    #[test]
    fn a_store_keeps_no_more_than_there_is_room_for() {
        let mut store = Store {
            most_bytes: 14,
            ..Store::default()
        };
        let mut put = |key: &str, value: &str| store.put(key.to_owned(), value.to_owned());
        assert!(put("a", "1234") && put("b", "1234"));
        assert!(!put("c", ""));
        assert_eq!(store.fresh.len(), 2);
    }

    #[test]
    fn what_all_ranks_may_put_fits_into_a_frame() {
        let most = |local, size| PmiServer::new(local, size, None).store.most_bytes;
        assert_eq!(most(64, 64), STORE_BYTES + 64 * RANK_BYTES);
        for (nodes, each) in [(1, 1024), (820, 64), (10_000, 64)] {
            let all = most(each, nodes * each) * nodes as usize;
            assert!(all < LONGEST_FRAME_BYTES, "{nodes} of {each}: {all}");
            assert!(
                most(each, nodes * each) >= each as usize * 256,
                "there is room for addresses"
            );
        }
    }
}
