// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks whose library is MPICH's or a relative of it: they find each other through PMI-1, over a socket that every rank inherits. Each
//! puts what the others need into a store, and comes to a fence, behind which all may ask for it.
//!
//! The store of a node has what its ranks have put, and from fence to fence what those of other nodes have; that goes through the
//! front.

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

/// What the ranks of this node have told through PMI, and who waits for what.
#[derive(Debug)]
pub(super) struct PmiServer {
    talks: Vec<Option<Talk>>,
    store: Store,
    size: u32,
    /// All ranks of the job are here: nobody else is asked.
    is_alone: bool,
    /// The front knows that all ranks are at the fence.
    has_told: bool,
}

#[derive(Debug)]
struct Talk {
    socket: OwnedFd,
    server: Server,
    is_at_fence: bool,
    wants_room: bool,
}

/// Pairs by their keys.
#[derive(Debug, Default)]
struct Store {
    pairs: HashMap<String, String>,
    /// Those that were put here since the last fence.
    fresh: Vec<(String, String)>,
    /// Bytes of all that was put here.
    bytes: usize,
    most_bytes: usize,
}

impl Store {
    /// `false`: there is no room.
    fn put(&mut self, key: String, value: String) -> bool {
        // And what parts them in a frame.
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
    /// For so many ranks here, of a job of this size.
    pub(super) fn new(local_size: u32, size: u32, nodes: Option<&NodeMap>) -> Self {
        // All nodes are told what all have put, in one frame.
        let share = JOB_BYTES / size.max(1) as usize * local_size as usize;
        let mut store = Store {
            most_bytes: share.min(STORE_BYTES + local_size as usize * RANK_BYTES),
            ..Store::default()
        };
        let mapping = match (nodes, local_size == size) {
            (Some(nodes), _) => mapping(nodes.blocks()),
            (None, true) => mapping([(0, 1, size)].into_iter()),
            // Who is told nothing finds it out by the names of hosts.
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

    /// Does what a rank wants; answers what is left for the daemon to do.
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

    /// All ranks of this node that still talk are at the fence, and none was before: what follows.
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

    /// All ranks of the job are at the fence, and these are what they have put.
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

/// What the daemon has to do for a rank.
enum Left {
    Abort(i32, String),
    /// Whether it is in its MPI now.
    Note(bool),
    EndFence,
    TellFront(Pairs),
    /// Nobody comes to a fence any more.
    TellOfEnd,
}

/// Where ranks are, as MPICH reads it: `(vector,(node,nodes,each),...)`, of nodes that are numbered from 0 on without a gap.
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
    // Longer values are cut.
    match text.len() < LONGEST_MAPPING {
        true => format!("(vector{text})"),
        false => String::new(),
    }
}

/// A connected pair: the daemon's side and the rank's.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::Stream, None, flags)
}

impl Daemon {
    /// A further rank has its end of the pair.
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

    /// Hears what a rank says: so much at a time, so that others have their turn; and nothing as long as it does not take its answers,
    /// which would become more and more.
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
                // The rest waits for room.
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

    /// All ranks of the job are at a fence.
    pub(super) fn end_fence(&mut self, pairs: Pairs) {
        self.pmi.end_fence(pairs);
        for local in 0..self.job.local_size() {
            self.answer_pmi(local);
        }
    }

    /// Sends a rank what it is to be answered, as far as it takes it.
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

    /// Hears a rank no more.
    pub(super) fn end_pmi(&mut self, local: u32) {
        let talk = self.pmi.talks.get_mut(local as usize);
        let Some(talk) = talk.and_then(Option::take) else {
            return;
        };
        let _ = self.poller.delete(&talk.socket);
        // The others may have waited for it alone.
        if let Some(left) = self.pmi.come_to_fence() {
            self.do_what_is_left(local, left);
        }
    }
}

/// Of answers that a rank has not taken, beside the one that is made next.
const MOST_UNSENT: usize = 64 << 10;
const MAPPING_KEY: &str = "PMI_process_mapping";
/// Values of MPICH's programs are no longer.
const LONGEST_MAPPING: usize = 1000;
/// What a node keeps of what its ranks put, besides what each of them may put.
const STORE_BYTES: usize = 1 << 20;
const RANK_BYTES: usize = 64 << 10;
/// What all ranks of a job may put together.
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
