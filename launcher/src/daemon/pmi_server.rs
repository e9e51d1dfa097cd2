// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMI-1 server for ranks whose library is MPICH or a derivative. Such ranks exchange addresses over a socket that
//! every rank inherits. Each rank puts its keys into a store and enters a fence, after which all ranks can get the
//! keys.
//!
//! A node's store has the pairs that its own ranks put. After each fence it also has the pairs of the ranks of other
//! nodes, which the nodes exchange through the front.

use super::{Daemon, Token, interest};
use crate::failure::FailureCause;
use crate::link::{LONGEST_FRAME_BYTES, NodeEvent, Pairs};
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use pmi::{ClientRequest, ClientSession, ProcessInfo};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use wireup::NodeMap;

/// State of the PMI-1 server of a node.
#[derive(Debug)]
pub(super) struct PmiServer {
    connections: Vec<Option<PmiConnection>>,
    store: KeyValueStore,
    size: u32,
    /// Whether all ranks of the job are on this node. If so, there is no exchange with other nodes.
    is_alone: bool,
    /// Whether the front was notified that all ranks of this node are at the fence.
    fence_reported: bool,
}

/// The PMI connection of one rank.
#[derive(Debug)]
struct PmiConnection {
    socket: OwnedFd,
    server: ClientSession,
    is_at_fence: bool,
    wants_room: bool,
}

/// Key-value pairs.
#[derive(Debug, Default)]
struct KeyValueStore {
    pairs: HashMap<String, String>,
    /// Pairs that ranks of this node put since the last fence.
    fresh: Vec<(String, String)>,
    /// Bytes of all pairs that ranks of this node have put.
    bytes: usize,
    most_bytes: usize,
}

impl KeyValueStore {
    /// Stores a pair; `false` if there is no room.
    fn put(&mut self, key: String, value: String) -> bool {
        // The bytes of a pair include its separators in a frame.
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
    /// A server for `local_size` ranks on this node, in a job of `size` ranks.
    pub(super) fn new(local_size: u32, size: u32, nodes: Option<&NodeMap>) -> Self {
        // One frame must be able to carry the pairs of all ranks of the job, so a node's ranks may put only their
        // share.
        let share = JOB_BYTES / size.max(1) as usize * local_size as usize;
        let mut store = KeyValueStore {
            most_bytes: share.min(STORE_BYTES + local_size as usize * RANK_BYTES),
            ..KeyValueStore::default()
        };
        let mapping = match (nodes, local_size == size) {
            (Some(nodes), _) => mapping(nodes.blocks()),
            (None, true) => mapping([(0, 1, size)].into_iter()),
            // Without a mapping, MPICH compares host names.
            (None, false) => String::new(),
        };
        store.pairs.extend([(MAPPING_KEY.to_owned(), mapping)]);
        Self {
            connections: Vec::new(),
            store,
            size,
            is_alone: local_size == size,
            fence_reported: false,
        }
    }

    fn connection(&mut self, local: u32) -> Option<&mut PmiConnection> {
        self.connections.get_mut(local as usize)?.as_mut()
    }

    /// Carries out a request, except what only the daemon can do; returns the action for the daemon, if there is one.
    fn carry_out(&mut self, local: u32, request: ClientRequest) -> Option<DaemonAction> {
        let Self {
            connections, store, ..
        } = &mut *self;
        let connection = connections.get_mut(local as usize)?.as_mut()?;
        match request {
            ClientRequest::Put { key, value } => {
                let is_kept = store.put(key, value);
                connection.server.answer_put(is_kept);
                None
            }
            ClientRequest::Get(key) => {
                let value = store.pairs.get(&key);
                connection.server.answer_get(value.map(String::as_str));
                None
            }
            ClientRequest::Abort { code, message } => Some(DaemonAction::Abort(code, message)),
            ClientRequest::Init => Some(DaemonAction::Note(true)),
            ClientRequest::Finalize => Some(DaemonAction::Note(false)),
            ClientRequest::Fence => {
                connection.is_at_fence = true;
                self.check_fence()
            }
        }
    }

    /// Checks whether all connected ranks of this node are at the fence. If they have just reached it, returns the next
    /// action. In a job of several nodes, also returns an action if no connected rank is left.
    fn check_fence(&mut self) -> Option<DaemonAction> {
        let mut connections = self.connections.iter().flatten().peekable();
        if connections.peek().is_none() {
            return (!self.is_alone).then_some(DaemonAction::ReportNoFence);
        }
        if self.fence_reported || !connections.all(|connection| connection.is_at_fence) {
            return None;
        }
        if self.is_alone {
            return Some(DaemonAction::EndFence);
        }
        self.fence_reported = true;
        Some(DaemonAction::ReportFence(std::mem::take(
            &mut self.store.fresh,
        )))
    }

    /// Ends the fence, which all ranks of the job have reached. `pairs`: the pairs that they have put since the last
    /// fence.
    fn end_fence(&mut self, pairs: Pairs) {
        self.fence_reported = false;
        if self.is_alone {
            self.store.fresh.clear();
        }
        self.store.pairs.extend(pairs);
        for connection in self.connections.iter_mut().flatten() {
            if std::mem::take(&mut connection.is_at_fence) {
                connection.server.end_fence();
            }
        }
    }
}

/// Action of the daemon for a request.
enum DaemonAction {
    Abort(i32, String),
    /// Record whether the rank is now between initialization and finalization of its MPI.
    Note(bool),
    EndFence,
    ReportFence(Pairs),
    /// No rank of this node will enter a fence again.
    ReportNoFence,
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

/// Creates a connected socket pair: the daemon's end and the rank's end.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::Stream, None, flags)
}

impl Daemon {
    /// Opens the PMI connection of a rank.
    pub(super) fn open_pmi(&mut self, local: u32, socket: OwnedFd) -> Result<(), Errno> {
        let event = interest(EpollFlags::EPOLLIN, Token::Pmi(local));
        self.poller.add(&socket, event)?;
        let facts = ProcessInfo {
            size: self.pmi.size,
            app: self.job.ranks[local as usize].app,
            job: format!("rmpi-{:x}", self.job.keys.job),
        };
        self.pmi.connections.push(Some(PmiConnection {
            socket,
            server: ClientSession::new(facts),
            is_at_fence: false,
            wants_room: false,
        }));
        Ok(())
    }

    /// Receives and handles requests of a rank. Calls `recv` only once, so other ranks are served too. While the rank's
    /// socket has no room for replies, receives nothing, because replies would accumulate.
    pub(super) fn receive_pmi(&mut self, local: u32) {
        let Some(connection) = self
            .pmi
            .connection(local)
            .filter(|connection| !connection.wants_room)
        else {
            return;
        };
        let flags = MsgFlags::MSG_DONTWAIT;
        match recv(connection.socket.as_raw_fd(), &mut self.scratch, flags) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Ok(0) | Err(_) => return self.close_pmi(local),
            Ok(bytes) => connection.server.take(&self.scratch[..bytes]),
        }
        while let Some(connection) = self.pmi.connection(local) {
            if connection.server.answers().len() > MOST_UNSENT {
                self.send_pmi_replies(local);
                // The remaining requests are handled when the rank has read replies.
                if self
                    .pmi
                    .connection(local)
                    .is_none_or(|connection| connection.wants_room)
                {
                    return;
                }
                continue;
            }
            match connection.server.next_request() {
                Ok(Some(request)) => {
                    if let Some(left) = self.pmi.carry_out(local, request) {
                        self.carry_out_action(local, left);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    let rank = self.job.ranks[local as usize].rank;
                    self.notice(format!("rank {rank} has lost its PMI connection: {error}"));
                    return self.close_pmi(local);
                }
            }
        }
        self.send_pmi_replies(local);
    }

    fn carry_out_action(&mut self, local: u32, left: DaemonAction) {
        match left {
            DaemonAction::Abort(code, message) => {
                self.handle_library_end(local, FailureCause::Abort { code, message })
            }
            DaemonAction::Note(in_other_mpi) => {
                self.ranks[local as usize].in_other_mpi = in_other_mpi
            }
            DaemonAction::EndFence => self.end_fence(Vec::new()),
            DaemonAction::ReportFence(pairs) => self.send_event(&NodeEvent::Fence(pairs)),
            DaemonAction::ReportNoFence => self.send_event(&NodeEvent::NoFence),
        }
    }

    /// Ends the fence, which all ranks of the job have reached.
    pub(super) fn end_fence(&mut self, pairs: Pairs) {
        self.pmi.end_fence(pairs);
        for local in 0..self.job.local_size() {
            self.send_pmi_replies(local);
        }
    }

    /// Sends queued replies to a rank, as long as its socket has room.
    pub(super) fn send_pmi_replies(&mut self, local: u32) {
        let Some(connection) = self.pmi.connection(local) else {
            return;
        };
        let answers = connection.server.answers();
        let mut full = false;
        while !answers.is_empty() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(connection.socket.as_raw_fd(), answers, flags) {
                Ok(sent) => drop(answers.drain(..sent)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    full = true;
                    break;
                }
                Err(_) => return self.close_pmi(local),
            }
        }
        if std::mem::replace(&mut connection.wants_room, full) != full {
            let wanted = match full {
                true => EpollFlags::EPOLLOUT,
                false => EpollFlags::EPOLLIN,
            };
            let mut event = interest(wanted, Token::Pmi(local));
            let _ = self.poller.modify(&connection.socket, &mut event);
        }
    }

    /// Closes the PMI connection of a rank.
    pub(super) fn close_pmi(&mut self, local: u32) {
        let connection = self.pmi.connections.get_mut(local as usize);
        let Some(connection) = connection.and_then(Option::take) else {
            return;
        };
        let _ = self.poller.delete(&connection.socket);
        // All other ranks may already be at a fence, and have waited only for this rank.
        if let Some(left) = self.pmi.check_fence() {
            self.carry_out_action(local, left);
        }
    }
}

/// Maximum size of the unsent replies to a rank, in bytes. With more, further requests of the rank wait until it has
/// read replies.
const MOST_UNSENT: usize = 64 << 10;
const MAPPING_KEY: &str = "PMI_process_mapping";
/// A process mapping whose blocks take this many bytes or more is left out, because MPICH could truncate it.
const LONGEST_MAPPING: usize = 1000;
/// Maximum number of bytes that the ranks of a node may put, in addition to [`RANK_BYTES`] per rank.
const STORE_BYTES: usize = 1 << 20;
const RANK_BYTES: usize = 64 << 10;
/// Maximum number of bytes that all ranks of a job may put together.
const JOB_BYTES: usize = LONGEST_FRAME_BYTES / 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_mapping_has_the_format_of_mpich() {
        let of = |nodes: &[u32]| mapping(NodeMap::new(nodes.iter().copied()).unwrap().blocks());
        let mapping_of = |server: &PmiServer| server.store.pairs[MAPPING_KEY].clone();
        assert_eq!(mapping_of(&PmiServer::new(4, 4, None)), "(vector,(0,1,4))");
        assert_eq!(mapping_of(&PmiServer::new(2, 4, None)), "");
        assert_eq!(of(&[3, 3, 9, 7, 7]), "(vector,(0,1,2),(2,1,1),(1,1,2))");
        assert_eq!(of(&[0, 0, 1, 1, 2]), "(vector,(0,2,2),(2,1,1))");
        assert_eq!(of(&[0, 1, 0, 1]), "(vector,(0,2,1),(0,2,1))");
        let irregular: Vec<u32> = (0..400).map(|rank| rank * 7 % 31).collect();
        assert_eq!(of(&irregular), "");
    }

    #[test]
    fn the_pmi_store_rejects_pairs_beyond_its_limit() {
        let mut store = KeyValueStore {
            most_bytes: 14,
            ..KeyValueStore::default()
        };
        let mut put = |key: &str, value: &str| store.put(key.to_owned(), value.to_owned());
        assert!(put("a", "1234") && put("b", "1234"));
        assert!(!put("c", ""));
        assert_eq!(store.fresh.len(), 2);
    }

    #[test]
    fn pmi_store_limits_fit_all_ranks_into_a_frame() {
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
