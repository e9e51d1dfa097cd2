// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of a process that has both ports and TCP connections. Each peer is reached by one of the two for good:
//! by `verbs` if both processes have ports (of adapters or in software) and a path leads from one to the other, or if
//! not both have `tcp`; else by `tcp`.
//!
//! Both processes derive the choice from their two records and by the same rule ([`MixedNetwork::choose`]). Until the
//! record of a peer is known, nothing is sent to the peer, and work requests for it are kept ([`Early`]). Frames that
//! arrive from the peer meanwhile come over a TCP connection, whose handshake has authenticated the peer: `verbs`
//! delivers nothing from a peer whose record it lacks.
//!
//! The network by which a frame arrived is not trusted: a buffer is returned to the network that has lent it
//! ([`BY_TCP`]).

use std::collections::VecDeque;

use super::caps::Caps;
use super::no_common_network;
use super::record::{RecordPart, part_of, ports_of, to_record};
use super::tcp::{Sockets, Tcp};
use super::verbs::{FREE_BIT, ForeignPeer, Verbs, VerbsPort, WordPoll, WorkKind};
use super::wire::Provider;
use crate::wait_set::WaitSet;
use crate::{
    Atomic, Completion, Completions, Full, Head, Lease, LocalKey, Peer, RecvBuffer, RemoteKey,
    WorkId,
};

/// Both networks of a process. Its methods are those of [`Provider`], which look up the peer's network first; those for
/// addresses (`add_foreign`, `next_unresolved`, `set_peer_address`); and calls that concern both networks.
#[derive(Debug)]
pub(super) struct MixedNetwork<P: VerbsPort, S> {
    pub(super) verbs: Box<Verbs<P>>,
    /// The part of a record that describes the ports.
    part: RecordPart,
    /// The connections, or why this process has none.
    tcp: Result<Box<Tcp<S>>, String>,
    networks: Vec<PeerNetwork>,
    early: Early,
    remarks: Remarks,
    /// Whether `tcp` was polled before `verbs` in the last poll; alternates from poll to poll.
    is_tcp_first: bool,
    /// Number of calls of `poll_word` while there were TCP connections.
    word_polls: u32,
    /// Whether a peer's network has become known since the last preparation of a sleep. A caller that got [`Full`] may
    /// then try again, and no other event would wake it.
    has_activity: bool,
}

/// The network by which a peer is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PeerNetwork {
    #[default]
    Unknown,
    /// Not known; the peer's record was requested.
    Requested,
    Verbs,
    Tcp,
}

/// Actions that wait because their peer's network is not yet known.
#[derive(Debug, Default)]
struct Early {
    /// Peers whose record is to be requested.
    wanted: VecDeque<Peer>,
    /// Keys of `verbs` for peers whose network was not yet known here, but perhaps already to the peer: `tcp` accepts
    /// these keys too, until it turns out that `verbs` reaches the peer.
    keys: Vec<(Peer, RemoteKey)>,
    works: Vec<UnroutedWork>,
}

/// A work request that waits until its peer's network is known.
#[derive(Debug)]
struct UnroutedWork {
    peer: Peer,
    kind: WorkKind,
    lease: Lease,
    key: RemoteKey,
    offset: u64,
    work: WorkId,
}

impl<P: VerbsPort, S: Sockets> MixedNetwork<P, S> {
    /// Combines `verbs` with `tcp` for a job of `peers` processes. `part`: the part of a record that describes the
    /// ports of `verbs`. `tcp`: the connections, or why this process has none.
    pub(super) fn new(
        (part, verbs): (RecordPart, Verbs<P>),
        tcp: Result<Tcp<S>, String>,
        peers: u32,
    ) -> Self {
        let mut tcp = tcp.map(Box::new);
        if let Ok(tcp) = &mut tcp {
            tcp.count_in(verbs.counts());
        }
        Self {
            verbs: Box::new(verbs),
            part,
            tcp,
            networks: vec![PeerNetwork::Unknown; peers as usize],
            early: Early::default(),
            remarks: Remarks::default(),
            is_tcp_first: false,
            word_polls: 0,
            has_activity: false,
        }
    }

    /// The network record of this process.
    pub(super) fn record(&self) -> Vec<u8> {
        let verbs = (self.part, self.verbs.record());
        let tcp = self.tcp.as_ref().map(|tcp| (RecordPart::Tcp, tcp.record()));
        let parts: Vec<_> = [verbs].into_iter().chain(tcp).collect();
        to_record(&parts)
    }

    pub(super) fn provider_of(&self, peer: Peer) -> Option<&'static str> {
        match self.network(peer) {
            PeerNetwork::Unknown | PeerNetwork::Requested => None,
            PeerNetwork::Verbs => Some(self.part.provider()),
            PeerNetwork::Tcp => Some(RecordPart::Tcp.provider()),
        }
    }

    #[inline(always)]
    fn network(&self, peer: Peer) -> PeerNetwork {
        self.networks
            .get(peer.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    fn tcp(&mut self) -> Option<&mut Tcp<S>> {
        self.tcp.as_deref_mut().ok()
    }

    /// Requests the record of a peer, unless it was requested before.
    #[cold]
    fn request_record(&mut self, peer: Peer) {
        if self.network(peer) == PeerNetwork::Unknown {
            self.set(peer, PeerNetwork::Requested);
            self.early.wanted.push_back(peer);
        }
    }

    fn set(&mut self, peer: Peer, network: PeerNetwork) {
        let place = peer.0 as usize;
        if place >= self.networks.len() {
            self.networks.resize(place + 1, PeerNetwork::Unknown);
        }
        self.networks[place] = network;
    }

    /// Adds a process of another job.
    pub(super) fn add_foreign(&mut self, peer: Peer, far: ForeignPeer) {
        self.verbs.add_foreign(peer, far);
        if let Some(tcp) = self.tcp() {
            tcp.add_foreign(peer, far);
        }
    }

    /// A peer whose record is needed; each is returned once.
    pub(super) fn next_unresolved(&mut self) -> Option<u32> {
        while let Some(peer) = self.verbs.next_unresolved() {
            self.request_record(Peer(peer));
        }
        while let Some(peer) = self.tcp().and_then(Tcp::next_unresolved) {
            self.request_record(Peer(peer));
        }
        self.early.wanted.pop_front().map(|peer| peer.0)
    }

    /// Processes the record of a peer: chooses the peer's network, and passes the record to that network. A peer that
    /// no network reaches is lost.
    pub(super) fn set_peer_address(&mut self, peer: Peer, record: &[u8]) {
        match self.choose(peer, record) {
            Ok(PeerNetwork::Tcp) => {
                let part = part_of(record, RecordPart::Tcp);
                if let Ok(tcp) = &mut self.tcp {
                    tcp.set_peer_address(peer, part);
                }
            }
            Ok(_) => {
                let ports = ports_of(record).map_or(&[][..], |(_, ports)| ports);
                self.verbs.set_peer_address(peer, ports);
            }
            Err(why) => self.lose(peer, &why),
        }
    }

    /// Decides for good which network reaches a peer. If both processes have both networks, it is `verbs` if their
    /// addresses show a path between ports, else `tcp`. Otherwise it is the network that both processes have, even if
    /// the addresses show no path; `verbs` if the record is malformed. The error is for the user: the processes have no
    /// network in common.
    fn choose(&mut self, peer: Peer, record: &[u8]) -> Result<PeerNetwork, String> {
        match self.network(peer) {
            PeerNetwork::Verbs | PeerNetwork::Tcp => return Ok(self.network(peer)),
            PeerNetwork::Unknown | PeerNetwork::Requested => {}
        }
        let network = match (
            ports_of(record),
            part_of(record, RecordPart::Tcp),
            &self.tcp,
        ) {
            (Some((_, ports)), Some(_), Ok(_)) => match self.verbs.why_apart(ports) {
                Some(why) => {
                    self.remarks.note_apart(&why);
                    PeerNetwork::Tcp
                }
                None => PeerNetwork::Verbs,
            },
            (Some(_), ..) | (None, None, _) => PeerNetwork::Verbs,
            (None, Some(_), Ok(_)) => PeerNetwork::Tcp,
            (None, Some(_), Err(why)) => {
                return Err(no_common_network::describe(
                    self.part,
                    RecordPart::Tcp,
                    Some(why),
                ));
            }
        };
        self.begin(peer, network);
        Ok(network)
    }

    /// Sets the network of a peer, and carries out the actions that waited for it.
    fn begin(&mut self, peer: Peer, network: PeerNetwork) {
        self.set(peer, network);
        self.has_activity = true;
        self.early.wanted.retain(|wanted| *wanted != peer);
        if network == PeerNetwork::Verbs {
            // `tcp` stops accepting the keys of `verbs`. If the peer's network is `tcp` instead, both networks accept
            // these keys until the keys are withdrawn.
            let theirs = self.early.keys.extract_if(.., |(whose, _)| *whose == peer);
            for (_, key) in theirs.collect::<Vec<_>>() {
                if let Ok(tcp) = &mut self.tcp {
                    tcp.withdraw(peer, key);
                }
            }
        }
        if network == PeerNetwork::Tcp {
            self.verbs.exclude(peer);
        }
        let works = self.early.works.extract_if(.., |work| work.peer == peer);
        for waiting in works.collect::<Vec<_>>() {
            self.post_work(waiting);
        }
    }

    /// Posts a work request, or keeps it until the peer's network is known.
    fn post_work(&mut self, request: UnroutedWork) {
        let peer = request.peer;
        match (self.network(peer), &mut self.tcp) {
            (PeerNetwork::Verbs, _) => {
                let what = (request.kind, request.lease);
                self.verbs
                    .post_work(peer, what, request.key, request.offset, request.work);
            }
            (PeerNetwork::Tcp, Ok(tcp)) => {
                let what = (request.kind, request.lease);
                tcp.post_work(peer, what, request.key, request.offset, request.work);
            }
            _ => {
                self.request_record(peer);
                self.early.works.push(request);
            }
        }
    }

    pub(super) fn next_warning(&mut self) -> Option<String> {
        let warning = self.verbs.next_warning();
        warning.or_else(|| self.tcp()?.next_warning())
    }

    #[inline(always)]
    pub(super) fn has_notices(&self) -> bool {
        let tcp = self.tcp.as_ref().is_ok_and(|tcp| tcp.has_notices());
        let here = !self.early.wanted.is_empty() || self.remarks.next.is_some();
        tcp || self.verbs.has_notices() || here
    }

    /// The remark, made once, that `tcp` carries messages between two hosts although both have devices, and why; else
    /// the next remark of `verbs`.
    pub(super) fn next_remark(&mut self) -> Option<String> {
        let apart = self.remarks.next.take();
        apart.or_else(|| self.verbs.next_remark())
    }

    pub(super) fn why_lost(&self, peer: Peer) -> Option<&str> {
        match (self.network(peer), &self.tcp) {
            (PeerNetwork::Tcp, Ok(tcp)) => tcp.why_lost(peer),
            _ => self.verbs.why_lost(peer),
        }
    }

    #[inline(always)]
    pub(super) fn post_word<const BYTES: usize>(
        &mut self,
        to: Peer,
        head: Head,
        word: u64,
    ) -> bool {
        self.network(to) == PeerNetwork::Verbs && self.verbs.post_word::<BYTES>(to, head, word)
    }

    pub(super) fn begin_poll_between_sends(&mut self) {
        self.verbs.begin_poll_between_sends();
        if let Some(tcp) = self.tcp() {
            tcp.begin_poll_between_sends();
        }
    }

    /// Whether deferred frames may wait for the next poll.
    pub(super) fn has_deferred(&self) -> bool {
        self.verbs.has_deferred() || self.tcp.as_ref().is_ok_and(|tcp| tcp.has_deferred())
    }

    pub(super) fn promise_uncork(&mut self) {
        self.verbs.promise_uncork();
        if let Some(tcp) = self.tcp() {
            tcp.promise_uncork();
        }
    }

    #[inline]
    pub(super) fn uncork(&mut self) {
        self.verbs.uncork();
        if let Some(tcp) = self.tcp() {
            tcp.uncork();
        }
    }

    pub(super) fn set_lacks_core(&mut self, lacks_core: bool) {
        if let Some(tcp) = self.tcp() {
            tcp.set_lacks_core(lacks_core);
        }
    }

    pub(super) fn is_any_peer_lacking(&self) -> bool {
        self.tcp.as_ref().is_ok_and(|tcp| tcp.is_any_peer_lacking())
    }

    pub(super) fn needs_cores(&self) -> bool {
        let tcp = self.tcp.as_ref().is_ok_and(|tcp| tcp.needs_cores());
        tcp || self.verbs.needs_cores()
    }

    pub(super) fn wakes(&self) -> bool {
        self.verbs.wakes()
    }

    /// Checks whether a word has come by `verbs`. While TCP connections are in use, frames may come over them; then the
    /// result requests a full poll.
    #[inline(always)]
    pub(super) fn poll_word(&mut self) -> WordPoll {
        match &self.tcp {
            Ok(tcp) if !tcp.is_alone() => self.poll_word_beside_connections(),
            _ => self.verbs.poll_word(),
        }
    }

    /// `poll_word` while there are TCP connections: each call requests a full poll, or, if the connections are idle,
    /// one of [`FULL_POLL_EVERY`] calls.
    #[inline(never)]
    fn poll_word_beside_connections(&mut self) -> WordPoll {
        self.word_polls = self.word_polls.wrapping_add(1);
        let is_idle = self.tcp.as_ref().is_ok_and(|tcp| tcp.is_idle());
        match is_idle && !self.word_polls.is_multiple_of(FULL_POLL_EVERY) {
            true => self.verbs.poll_word(),
            false => WordPoll::Poll,
        }
    }

    pub(super) fn is_quiet(&mut self) -> bool {
        let tcp = self.tcp().is_none_or(Tcp::is_quiet);
        self.verbs.is_quiet() && tcp && self.early.works.is_empty()
    }

    pub(super) fn memory(&self) -> (usize, usize) {
        let (now, most) = self.verbs.memory();
        let tcp = self.tcp.as_ref().map_or((0, 0), |tcp| tcp.memory());
        (
            now + tcp.0 + self.networks.len(),
            most + tcp.1 + self.networks.len(),
        )
    }

    /// Adds the events that can wake the process; `verbs` adds those of the ports.
    pub(super) fn fall_asleep(
        &mut self,
        waits: &mut WaitSet,
        verbs: impl FnOnce(&mut Verbs<P>, &mut WaitSet),
    ) {
        verbs(&mut self.verbs, waits);
        if let Some(tcp) = self.tcp() {
            tcp.fall_asleep(waits);
        }
    }
}

impl<P: VerbsPort, S: Sockets> Provider for MixedNetwork<P, S> {
    fn caps(&self, peer: Peer) -> Caps {
        match (self.network(peer), &self.tcp) {
            (PeerNetwork::Tcp, Ok(tcp)) => tcp.caps(),
            _ => self.verbs.caps(peer),
        }
    }

    #[inline(always)]
    fn post_send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        match (self.network(to), &mut self.tcp) {
            (PeerNetwork::Verbs, _) => self.verbs.post_send(to, head, body),
            (PeerNetwork::Tcp, Ok(tcp)) => tcp.post_send(to, head, body),
            _ => {
                self.request_record(to);
                Err(Full)
            }
        }
    }

    fn post_announcement(
        &mut self,
        to: Peer,
        (head, body): (Head, &[u8]),
        data: Option<RemoteKey>,
    ) -> Result<(), Full> {
        match (self.network(to), &mut self.tcp) {
            (PeerNetwork::Tcp, Ok(tcp)) => tcp.post_announcement(to, (head, body), data),
            (PeerNetwork::Verbs, _) => self.verbs.post_announcement(to, head, body),
            _ => self.post_send(to, head, body),
        }
    }

    fn post_deferrable(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        match self.network(to) {
            PeerNetwork::Verbs => self.verbs.post_deferrable(to, head, body),
            PeerNetwork::Tcp => match &mut self.tcp {
                Ok(tcp) => tcp.post_deferrable(to, head, body),
                Err(_) => self.post_send(to, head, body),
            },
            _ => self.post_send(to, head, body),
        }
    }

    fn decline(&mut self, peer: Peer, key: RemoteKey) {
        // Also if the peer's network is not yet known here: the peer may have announced the data over `tcp` already.
        if self.network(peer) != PeerNetwork::Verbs
            && let Ok(tcp) = &mut self.tcp
        {
            tcp.decline(peer, key);
        }
    }

    fn copy_lent(&self, _peer: Peer, index: u32, bytes: u32, target: &mut [u8]) -> usize {
        match &self.tcp {
            Ok(tcp) if index & BY_TCP != 0 => tcp.copy_lent(index & !BY_TCP, target),
            _ => self.verbs.copy_lent(index, bytes, target),
        }
    }

    fn release(&mut self, peer: Peer, index: u32) {
        match &mut self.tcp {
            Ok(tcp) if index & BY_TCP != 0 => tcp.release(peer.0, index & !BY_TCP),
            _ => self.verbs.release(peer.0, index),
        }
    }

    fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        let key = match (self.network(peer), &mut self.tcp) {
            (PeerNetwork::Tcp, Ok(tcp)) => return tcp.export(peer, address, bytes),
            _ => self.verbs.export(peer, address, bytes),
        };
        self.note_key(peer, key)
    }

    fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        let key = match (self.network(peer), &mut self.tcp) {
            (PeerNetwork::Tcp, Ok(tcp)) => return tcp.export(peer, address, bytes),
            _ => self.verbs.offer(peer, address, bytes),
        };
        self.note_key(peer, key)
    }

    fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        let is_tcp = self.network(peer) == PeerNetwork::Tcp;
        let is_early = match self.early.keys.is_empty() {
            true => false,
            false => self.early.forget(peer, key),
        };
        if let Some(tcp) = self.tcp().filter(|_| is_tcp || is_early) {
            tcp.withdraw(peer, key);
        }
        if !is_tcp || is_early {
            self.verbs.withdraw(peer, key);
        }
    }

    fn register(&mut self, address: u64, bytes: u64) -> Option<LocalKey> {
        self.verbs.keep_registered(address, bytes)
    }

    fn post_read(&mut self, peer: Peer, lease: Lease, key: RemoteKey, offset: u64, work: WorkId) {
        let kind = WorkKind::Read;
        self.post_work(UnroutedWork {
            peer,
            kind,
            lease,
            key,
            offset,
            work,
        });
    }

    fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        match (self.network(peer), &mut self.tcp) {
            (PeerNetwork::Verbs, _) => self
                .verbs
                .post_write(peer, lease, key, offset, work, immediate),
            (PeerNetwork::Tcp, Ok(tcp)) => {
                tcp.post_write(peer, lease, key, offset, work, immediate)
            }
            _ if immediate.is_some() => {
                self.request_record(peer);
                Err(lease)
            }
            _ => {
                let kind = WorkKind::Write;
                self.post_work(UnroutedWork {
                    peer,
                    kind,
                    lease,
                    key,
                    offset,
                    work,
                });
                Ok(())
            }
        }
    }

    fn post_atomic(
        &mut self,
        peer: Peer,
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        let kind = WorkKind::Atomic(atomic);
        self.post_work(UnroutedWork {
            peer,
            kind,
            lease,
            key,
            offset,
            work,
        });
    }

    /// Marks the peer lost in each network that may still reach it, so neither delivers anything more from it. The
    /// network that reaches the peer reports the loss ([`sift`](Self::sift)).
    fn lose(&mut self, peer: Peer, why: &str) {
        let network = self.network(peer);
        if network != PeerNetwork::Tcp {
            self.verbs.lose(peer, why);
        }
        if let Some(tcp) = self.tcp() {
            tcp.lose(peer, why);
        }
        if matches!(network, PeerNetwork::Unknown | PeerNetwork::Requested) {
            self.begin(peer, PeerNetwork::Verbs);
        }
    }

    fn poll(&mut self, completions: &mut Completions) {
        // The networks take turns in being polled first: otherwise one of them could always fill the array.
        self.is_tcp_first = !self.is_tcp_first;
        if self.is_tcp_first {
            self.poll_tcp(completions);
            self.poll_verbs(completions);
        } else {
            self.poll_verbs(completions);
            self.poll_tcp(completions);
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        let has_activity = std::mem::take(&mut self.has_activity);
        let tcp = self.tcp().is_none_or(Tcp::prepare_sleep);
        !has_activity && tcp && self.early.wanted.is_empty() && self.verbs.prepare_sleep()
    }

    fn wake(&mut self) {
        self.verbs.wake();
        if let Some(tcp) = self.tcp() {
            tcp.wake();
        }
    }
}

impl<P: VerbsPort, S: Sockets> MixedNetwork<P, S> {
    #[inline(always)]
    fn poll_verbs(&mut self, completions: &mut Completions) {
        let before = completions.len();
        self.verbs.poll(completions);
        let is_lost = |completion: &Completion| matches!(completion, Completion::Lost { .. });
        if completions.since(before).any(is_lost) {
            self.sift(PeerNetwork::Verbs, completions, before);
        }
    }

    /// Polls `tcp`, and marks the buffers that it lends.
    #[inline(always)]
    fn poll_tcp(&mut self, completions: &mut Completions) {
        let Ok(tcp) = &mut self.tcp else { return };
        let before = completions.len();
        tcp.poll(completions);
        let mut is_any_lost = false;
        for completion in completions.since_mut(before) {
            match completion {
                Completion::Arrived(arrived) => {
                    if let RecvBuffer::Lent { index, .. } = &mut arrived.body {
                        *index |= BY_TCP;
                    }
                }
                Completion::Lost { .. } => is_any_lost = true,
                Completion::Worked { .. } | Completion::Written { .. } => {}
            }
        }
        if is_any_lost {
            self.sift(PeerNetwork::Tcp, completions, before);
        }
    }

    /// Filters the losses that `wire` reported, which follow the first `before` completions. The caller gets only the
    /// loss that was reported by the network that reaches the peer. If that network is not known yet, the peer is lost
    /// to both.
    #[cold]
    fn sift(&mut self, wire: PeerNetwork, completions: &mut Completions, before: usize) {
        let lost = |completion: &Completion| match completion {
            Completion::Lost { peer } => Some(*peer),
            _ => None,
        };
        for peer in completions.since(before).filter_map(lost) {
            if matches!(
                self.network(peer),
                PeerNetwork::Unknown | PeerNetwork::Requested
            ) {
                let why = match (wire, &self.tcp) {
                    (PeerNetwork::Tcp, Ok(tcp)) => tcp.why_lost(peer),
                    _ => self.verbs.why_lost(peer),
                };
                let why = why.unwrap_or_default().to_owned();
                self.lose(peer, &why);
            }
        }
        let is_reported = |completion: &Completion| {
            lost(completion).is_none_or(|peer| self.network(peer) == wire)
        };
        completions.retain_since(before, is_reported);
        if completions.len() <= 1 {
            // After a poll that returned at most one completion, the caller does not call `uncork`.
            self.uncork();
        }
    }

    /// Returns a key of `verbs`. Unless `verbs` is already chosen for the peer, records the key, and makes `tcp` accept
    /// it too: the peer may use the key before its network is known here.
    #[inline(always)]
    fn note_key(&mut self, peer: Peer, key: RemoteKey) -> RemoteKey {
        let is_known = self.network(peer) == PeerNetwork::Verbs;
        if !is_known && key != RemoteKey::default() {
            self.accept_early_keys(peer, key);
        }
        key
    }

    #[cold]
    fn accept_early_keys(&mut self, peer: Peer, key: RemoteKey) {
        self.early.keys.push((peer, key));
        if let Some(tcp) = self.tcp() {
            tcp.accept_key(peer, key);
        }
    }
}

/// Remarks that the user of the job should see once.
#[derive(Debug, Default)]
struct Remarks {
    is_noted: bool,
    next: Option<String>,
}

impl Remarks {
    /// Prepares the remark that a peer and this process have devices, but no path leads from one to the other.
    #[cold]
    fn note_apart(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_noted, true) {
            self.next = Some(format!(
                "tcp carries messages that devices of InfiniBand or RoCE do not: {why}, and nothing leads from one to the other"
            ));
        }
    }
}

impl Early {
    /// Removes a recorded key; `false`: it was not recorded.
    fn forget(&mut self, peer: Peer, key: RemoteKey) -> bool {
        let place = self.keys.iter().position(|early| *early == (peer, key));
        place.map(|place| self.keys.swap_remove(place)).is_some()
    }
}

/// Marks the index of a buffer that `tcp` has lent; other indices are of `verbs`. Neither network has so many buffers
/// that an index needs this bit.
const BY_TCP: u32 = FREE_BIT;

/// One of this many calls of `poll_word` requests a full poll, for the sake of idle connections.
const FULL_POLL_EVERY: u32 = 16;

#[cfg(test)]
mod tests {
    use super::super::tcp::{FakeSockets, FakeStreams, StreamKey, StreamsConfig};
    use super::super::verbs::{FakeConfig, FakeNet, FakePort, NetLimits};
    use super::*;

    /// Process 0 of two, each with both networks.
    fn one() -> MixedNetwork<FakePort, FakeSockets> {
        let (me, limits) = (Peer(0), NetLimits::default());
        let devices = FakeNet::new(FakeConfig::calm(0));
        let verbs = Verbs::open_on(&devices, me, 2, 1, (limits, 7));
        let streams = FakeStreams::new(StreamsConfig::of(0, 2));
        let tcp = Tcp::open_on(&streams, me, 2, (limits, StreamKey::new(7)));
        MixedNetwork::new((RecordPart::Verbs, verbs), Ok(tcp), 2)
    }

    /// The peers reported lost in some polls.
    fn reported_losses(mixed: &mut MixedNetwork<FakePort, FakeSockets>) -> Vec<u32> {
        let mut lost_peers = Vec::new();
        for _ in 0..200 {
            let mut completions = Completions::new();
            mixed.poll(&mut completions);
            lost_peers.extend(completions.since(0).map(|completion| match completion {
                Completion::Lost { peer } => peer.0,
                other => panic!("{other:?}"),
            }));
        }
        lost_peers
    }

    #[test]
    fn losing_a_tcp_peer_before_the_network_choice_loses_it_for_verbs() {
        let mut mixed = one();
        let tcp = mixed.tcp().unwrap();
        tcp.lose(Peer(1), "it makes no sense");
        assert_eq!(reported_losses(&mut mixed), [1]);
        assert_eq!(mixed.verbs.why_lost(Peer(1)), Some("it makes no sense"));
        mixed.lose(Peer(1), "it has died");
        assert_eq!(reported_losses(&mut mixed), []);
    }

    #[test]
    fn an_idle_tcp_connection_requests_few_full_polls() {
        let (me, limits) = (Peer(0), NetLimits::default());
        let streams = FakeStreams::new(StreamsConfig::of(0, 2));
        let open = |me| Tcp::open_on(&streams, me, 2, (limits, StreamKey::new(7)));
        let (tcp, mut other) = (open(me), open(Peer(1)));
        let record = tcp.record();
        let devices = FakeNet::new(FakeConfig::calm(0));
        let verbs = Verbs::open_on(&devices, me, 2, 1, (limits, 7));
        let mut mixed = MixedNetwork::new((RecordPart::Verbs, verbs), Ok(tcp), 2);
        let head = Head {
            kind: 7,
            len: 0,
            flags: 0,
            word: 1,
        };
        other.post_send(me, head, &[]).unwrap();
        other.set_peer_address(me, Some(&record));
        let turns = |mixed: &mut MixedNetwork<FakePort, FakeSockets>,
                     other: &mut Tcp<FakeSockets>| {
            let polls = |_: &u32| {
                let polls = matches!(mixed.poll_word(), WordPoll::Poll);
                if polls {
                    mixed.poll(&mut Completions::new());
                }
                other.poll(&mut Completions::new());
                streams.pass(1000);
                polls
            };
            (0..10_000).filter(polls).count()
        };
        turns(&mut mixed, &mut other);
        assert!(!mixed.tcp().unwrap().is_alone());
        assert!(turns(&mut mixed, &mut other) <= 10_000 / 16 + 1);
    }

    #[test]
    fn loss_of_a_tcp_only_peer_states_why_tcp_is_missing() {
        let mut mixed = one();
        mixed.tcp = Err("there is no key".to_owned());
        let record = to_record(&[(RecordPart::Tcp, vec![1, 2, 3])]);
        mixed.set_peer_address(Peer(1), &record);
        assert_eq!(reported_losses(&mut mixed), [1]);
        let why = mixed.why_lost(Peer(1)).unwrap();
        assert!(why.contains("since there is no key; let both use"), "{why}");
    }

    #[test]
    fn losing_tcp_to_a_verbs_peer_does_not_lose_the_peer() {
        let mut mixed = one();
        mixed.begin(Peer(1), PeerNetwork::Verbs);
        let tcp = mixed.tcp().unwrap();
        tcp.lose(Peer(1), "it makes no sense");
        assert_eq!(reported_losses(&mut mixed), []);
        assert_eq!(mixed.why_lost(Peer(1)), None);
    }
}
