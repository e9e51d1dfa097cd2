// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `tcp`: TCP connections, which every host supports. The packets for a peer are a stream (crate `session`)
//! over a connection, which is made with the first packet. Connections may break and be made again; nothing is lost or
//! repeated then. Reads, writes and atomic operations are carried out by the owner of the memory when it polls.
//!
//! # Layers
//! [`Tcp`] is three things:
//!
//! - [`TcpLinks`]: peers, connections and how they are made; packets, kept and sent.
//! - [`TcpTransfers`]: reads, writes, atomic operations, keys to memory, and data that are sent with the frames that
//!   announce them (`unsolicited.rs`).
//! - the handling of arriving packets (`arrive.rs`), which delivers them to the caller or to `TcpTransfers`.
//!
//! Lower layers do not depend on upper ones; events of a connection are reported upwards as a [`TcpLinkEvent`], which
//! [`Tcp::settle`] dispatches before a call ends. All system calls are behind one trait, [`Sockets`].
//!
//! # What a poll costs
//! A *turn* is one call of `poll`. As a rule it makes one system call: a receive on the connection over which bytes
//! arrived last, or, if there is no such connection, `epoll` for all sockets. One of 8 turns makes both calls. If there
//! is no connection, or nothing has arrived for long, most turns make no system call (`idle_polls.rs`).

mod active_open;
mod address;
mod arrive;
mod batching;
mod beside;
mod clock;
mod congestion;
mod connect;
mod connect_queue;
mod eviction;
mod fake;
mod handshake_stream;
mod idle_polls;
mod interfaces;
mod keys;
mod lent_bodies;
mod links;
mod memory;
mod notices;
mod packet;
mod peer;
mod proof;
mod rail;
mod rails;
mod secrets;
mod serve;
mod settings;
mod sockets;
mod store;
mod striping;
mod system;
#[cfg(test)]
mod tests;
mod transfers;
mod unproven;
mod unsolicited;
mod works;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use arrive::TcpRecvBuffer;
pub(super) use fake::FakeSockets;
pub use fake::{FakeStreams, StreamsConfig};
use idle_polls::IdlePolls;
use interfaces::CandidateAddress;
use lent_bodies::Bodies;
use links::{SockOwner, TcpLimits, TcpLinkEvent, TcpLinks};
use packet::{TcpPacketBuilder, TcpPacketKind};
pub use secrets::StreamKey;
use session::Slot;
pub use settings::{TcpCongestion, TcpTerms};
pub(super) use sockets::Sockets;
use sockets::{Sock, SockEvent};
pub(super) use system::System;
use transfers::TcpTransfers;
use works::TcpWork;

use super::caps::{Caps, Mover};
use super::counters::NetCounts;
use super::verbs::{ForeignPeer, NetLimits, NetworkSettings, PeerIdentities, WorkKind};
use crate::wait_set::WaitSet;
use crate::{Completions, Full, Head, Lease, Peer, RemoteKey, WorkId, net_info};
pub(super) use address::MOST_RECORD_BYTES;

/// The network of a process over TCP connections.
#[derive(Debug)]
pub(super) struct Tcp<S> {
    links: TcpLinks<S>,
    moves: TcpTransfers,
    bodies: Bodies,
    buffer: TcpRecvBuffer,
    /// Peers with received bytes that are not yet processed.
    backlog: VecDeque<u32>,
    /// The peer from which bytes arrived last.
    hot: Option<u32>,
    /// `idle`: consecutive polls without an arrival. `has_activity`: whether anything has arrived since the process
    /// last prepared to sleep.
    idle: u32,
    has_activity: bool,
    /// Whether the caller has promised to call `uncork` after it has handled a poll's completions.
    corks: bool,
    rest: IdlePolls,
    sock_events: Vec<SockEvent>,
    /// The published addresses.
    addresses: Vec<IpAddr>,
    port: u16,
    host: String,
}

impl Tcp<System> {
    /// Opens an endpoint that listens for connections of the other processes of a job.
    ///
    /// # Errors
    /// What is unavailable, and what to do.
    pub(super) fn open_best(
        me: Peer,
        peers: u32,
        key: Option<StreamKey>,
        (rails, limits): (u32, NetLimits),
        terms: &TcpTerms,
    ) -> Result<Self, String> {
        let Some(key) = key else {
            return Err("this process has no key for connections".to_owned());
        };
        let kernel = interfaces::SysClassNet::new();
        let (found, wanted) = (system::interfaces(), &terms.interfaces);
        let offers = interfaces::choose(found, wanted, terms.over_hosts, &kernel)?;
        let interfaces = interfaces::numbered(&offers);
        let mut addresses: Vec<IpAddr> = interfaces.iter().map(|(address, _)| *address).collect();
        addresses.truncate(address::how_many_fit(&addresses));
        if addresses.is_empty() {
            return Err("this host has no address of the Internet protocol".to_owned());
        }
        let (mut system, port, addresses) = System::open(&addresses, terms.ports)?;
        system.choose_congestion(terms.congestion)?;
        let limits = limits_of(terms.connections, rails, limits);
        let known = (PeerIdentities::new(me.0, peers, 0), key);
        let mut tcp = Self {
            addresses,
            port,
            host: crate::wait::host_name(),
            ..Self::new(system, known, peers, limits)
        };
        tcp.links.interfaces = interfaces;
        Ok(tcp)
    }
}

impl Tcp<FakeSockets> {
    /// Opens an endpoint of a network that exists only in tests.
    pub(super) fn open_on(
        net: &FakeStreams,
        me: Peer,
        peers: u32,
        (limits, key): (NetLimits, StreamKey),
    ) -> Self {
        let sockets = FakeSockets::new(net.clone(), me.0);
        let addresses = sockets.addresses();
        let interfaces = sockets.interfaces();
        let rails = u32::try_from(interfaces.len()).unwrap_or(1);
        let limits = limits_of(limits.pairs, rails, limits);
        let mut tcp = Self {
            addresses,
            port: 1,
            ..Self::new(
                sockets,
                (PeerIdentities::new(me.0, peers, 0), key),
                peers,
                limits,
            )
        };
        tcp.links.interfaces = interfaces;
        tcp
    }
}

fn limits_of(connections: u32, rails: u32, limits: NetLimits) -> TcpLimits {
    TcpLimits {
        lines: connections as usize,
        silence_ns: limits.silence_ns,
        rails: u8::try_from(rails.clamp(1, MOST_RAILS)).unwrap_or(1),
        shared_bytes: limits.striped_bytes,
    }
}

/// This host's addresses, with the reason for each that is not published.
pub(crate) fn addresses(network: &NetworkSettings) -> Result<Vec<net_info::AddressReport>, String> {
    addresses_to(network, false)
}

/// As `addresses`; `over_hosts`: whether peers may be on other hosts.
pub(super) fn addresses_to(
    network: &NetworkSettings,
    over_hosts: bool,
) -> Result<Vec<net_info::AddressReport>, String> {
    let wanted = &network.tcp.interfaces;
    let kernel = interfaces::SysClassNet::new();
    let offers = interfaces::choose(system::interfaces(), wanted, over_hosts, &kernel)?;
    let address = |offer: CandidateAddress| net_info::AddressReport {
        interface: offer.interface.name,
        address: offer.interface.address,
        unfit: offer.unfit,
    };
    Ok(offers.into_iter().map(address).collect())
}

impl<S: Sockets> Tcp<S> {
    fn new(sockets: S, known: (PeerIdentities, StreamKey), peers: u32, limits: TcpLimits) -> Self {
        Self {
            links: TcpLinks::new(sockets, known, peers, limits),
            moves: TcpTransfers::default(),
            bodies: Bodies::default(),
            buffer: TcpRecvBuffer::default(),
            backlog: VecDeque::new(),
            hot: None,
            idle: 0,
            has_activity: false,
            corks: false,
            rest: IdlePolls::default(),
            sock_events: Vec::new(),
            addresses: Vec::new(),
            port: 0,
            host: String::new(),
        }
    }

    /// The record of this process for its peers.
    pub(super) fn record(&self) -> Vec<u8> {
        let identity = self.links.identity;
        address::to_record(&self.addresses, self.port, identity, &self.host)
    }

    /// The counters.
    pub(super) fn counts(&self) -> &Arc<NetCounts> {
        &self.links.counts
    }

    /// Memory used now, and at most, in bytes.
    pub(super) fn memory(&self) -> (usize, usize) {
        let now = size_of::<Self>()
            + self.links.bytes()
            + self.bodies.bytes()
            + self.moves.unsolicited.bytes();
        let each = session::WINDOW as usize * MOST_PACKET_BYTES;
        let most = self.links.sides.len().saturating_mul(each);
        (now, now.max(most.saturating_add(unsolicited::KEPT_BYTES)))
    }

    /// The capabilities, which are the same for every peer.
    pub(super) fn caps(&self) -> Caps {
        Caps {
            max_inline_bytes: ring::SLOT_BODY_BYTES,
            max_send_bytes: ring::layout::POOL_BUFFER_BYTES,
            reads: Mover::Owner,
            writes: Mover::Owner,
            atomics: Some(Mover::Owner),
            may_stream: false,
            maps: false,
            wakes: true,
        }
    }

    /// Posts a send.
    #[inline(never)]
    pub(super) fn post_send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        let slot = self.make_frame(to, (head, body), None)?;
        if let Some(slot) = slot {
            self.links.post(to.0, slot);
            self.settle();
        }
        Ok(())
    }

    /// Posts a frame that may leave with the next poll only (`frame_burst.rs`).
    #[inline(never)]
    pub(super) fn post_deferrable(
        &mut self,
        to: Peer,
        head: Head,
        body: &[u8],
    ) -> Result<(), Full> {
        let defers = self.links.defers(to.0) && !self.moves.is_ordered(to.0);
        if defers && self.links.defer(to.0, head, body) {
            self.settle();
            return Ok(());
        }
        self.post_send(to, head, body)
    }

    /// Announces that the next poll leaves deferred frames where they are.
    pub(super) fn begin_poll_between_sends(&mut self) {
        self.links.bursts.begin_poll_between_sends();
    }

    /// Whether deferred frames may wait for the next poll.
    #[inline]
    pub(super) fn has_deferred(&self) -> bool {
        self.links.bursts.has_deferred()
    }

    /// Posts a frame that may leave with the next frame, or with the next poll; the announced data may leave with it.
    pub(super) fn post_announcement(
        &mut self,
        to: Peer,
        frame: (Head, &[u8]),
        data: Option<RemoteKey>,
    ) -> Result<(), Full> {
        let data = data.filter(|key| self.moves.may_go_unsolicited(&self.links, to.0, *key));
        let Some(slot) = self.make_frame(to, frame, data)? else {
            return Ok(());
        };
        match data {
            Some(key) => {
                self.links.keep(to.0, slot);
                self.moves.send_unsolicited(&mut self.links, to.0, key);
            }
            None => {
                self.moves.count_bare_announcement(to.0);
                self.links.post_deferrable(to.0, slot);
            }
        }
        self.settle();
        Ok(())
    }

    /// Declares that data which a peer announced with this key will not be read.
    pub(super) fn decline(&mut self, peer: Peer, key: RemoteKey) {
        self.moves.decline_unsolicited(&mut self.links, peer.0, key);
        self.settle();
    }

    /// Makes a packet for a peer, or returns [`Full`]; `None`: the peer is lost, and the frame is dropped. `data`: the
    /// key of the announced data.
    #[inline(always)]
    fn make_frame(
        &mut self,
        to: Peer,
        (head, body): (Head, &[u8]),
        data: Option<RemoteKey>,
    ) -> Result<Option<Slot>, Full> {
        assert!(
            body.len() <= ring::layout::POOL_BUFFER_BYTES,
            "a send of {} bytes",
            body.len()
        );
        let is_ordered = self.moves.is_ordered(to.0);
        let side = self.links.of(to.0);
        if side.lost.is_some() {
            return Ok(None);
        }
        let is_large = body.len() > ring::SLOT_BODY_BYTES;
        let lacks_buffers = is_large && !side.session.may_lend();
        if side.session.room() == 0 || lacks_buffers || is_ordered {
            side.awaits_buffers |= lacks_buffers;
            self.links.request_ack(to.0);
            return Err(Full);
        }
        if is_large {
            side.session.lend();
        }
        let kind = match data {
            None => TcpPacketKind::Frame,
            Some(_) => TcpPacketKind::Announce,
        };
        let make = |bytes: &mut Vec<u8>| match data {
            None => TcpPacketBuilder::new(bytes).frame(head, body),
            Some(key) => TcpPacketBuilder::new(bytes).announce(key, head, body),
        };
        let slot = self.links.store.keep(kind, make, None, None);
        self.links.counts.sends.add(1);
        Ok(Some(slot))
    }

    /// Copies a lent body.
    pub(super) fn copy_lent(&self, index: u32, target: &mut [u8]) -> usize {
        self.bodies.copy(index, target)
    }

    /// Returns a lent body.
    pub(super) fn release(&mut self, peer: u32, index: u32) {
        if !self.bodies.release(index) {
            return;
        }
        let side = self.links.of(peer);
        side.lent = side.lent.saturating_sub(1);
        let is_awaited = side.session.give_back();
        self.links.owe_ack(peer);
        if is_awaited {
            self.links.send_ack(peer);
            self.settle();
        }
    }

    /// Exports memory to a peer.
    pub(super) fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        let check = self.links.sockets.random();
        self.moves.exports.add(peer.0, address, bytes, check)
    }

    /// Ends `export`.
    pub(super) fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        self.moves.withdraw(&mut self.links, peer.0, key);
    }

    /// Starts a read or an atomic operation, or a write without an immediate.
    pub(super) fn post_work(
        &mut self,
        peer: Peer,
        (kind, lease): (WorkKind, Lease),
        key: RemoteKey,
        offset: u64,
        name: WorkId,
    ) {
        let work = work_of(peer, (kind, lease), (key, offset), name, None);
        self.moves.begin(&mut self.links, work);
        self.settle();
    }

    /// Starts a write.
    pub(super) fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        name: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        if immediate.is_none() {
            self.post_work(peer, (WorkKind::Write, lease), key, offset, name);
            return Ok(());
        }
        let work = work_of(
            peer,
            (WorkKind::Write, lease),
            (key, offset),
            name,
            immediate,
        );
        let begun = self.moves.begin_in_order(&mut self.links, work);
        if begun.is_err() {
            self.links.request_ack(peer.0);
        }
        self.settle();
        begun
    }

    /// Adds a process of another job as a further peer.
    pub(super) fn add_foreign(&mut self, peer: Peer, far: ForeignPeer) {
        self.links.known.add_foreign(peer.0, far);
        self.links.secrets.add_key(peer.0, far.stream_key);
    }

    /// Records this provider's part of a peer's record; `None`: the record has no such part.
    pub(super) fn set_peer_address(&mut self, peer: Peer, part: Option<&[u8]>) {
        self.links.set_peer_address(peer.0, part);
        self.settle();
    }

    /// A peer whose record is to be requested; each is returned once.
    pub(super) fn next_unresolved(&mut self) -> Option<u32> {
        self.links.wanted.pop_front()
    }

    /// Marks a peer lost.
    pub(super) fn lose(&mut self, peer: Peer, why: &str) {
        self.links.lose(peer.0, why);
        self.settle();
    }

    /// Why a peer was lost.
    pub(super) fn why_lost(&self, peer: Peer) -> Option<&str> {
        self.links.find(peer.0)?.lost.as_deref()
    }

    #[inline(always)]
    pub(super) fn has_notices(&self) -> bool {
        !self.links.wanted.is_empty() || !self.links.notices.is_empty()
    }

    /// The next warning for the user.
    pub(super) fn next_warning(&mut self) -> Option<String> {
        self.links.notices.next()
    }

    /// Whether the kernel is moving data of this process, on a processor that this process may be occupying.
    pub(super) fn needs_cores(&self) -> bool {
        self.moves.is_any_under_way()
    }

    /// Sets whether this process has to wait for its core; each packet to a peer carries the state.
    pub(super) fn set_lacks_core(&mut self, lacks_core: bool) {
        self.links.lacks_core = lacks_core;
    }

    /// Whether some connected peer has to wait for its core.
    pub(super) fn is_any_peer_lacking(&self) -> bool {
        self.links.is_any_lacking()
    }

    /// Whether all that was sent has arrived, and all that has arrived here is acknowledged.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.uncork();
        self.links.send_deferred();
        self.links.send_owed_acks();
        self.settle();
        self.links.is_all_there() && self.moves.is_quiet()
    }

    /// Dispatches the events of connections to transfers.
    pub(super) fn settle(&mut self) {
        while let Some(upshot) = self.links.upshots.pop_front() {
            match upshot {
                TcpLinkEvent::GoOn(peer) => {
                    self.moves.go_on(&mut self.links, peer);
                    self.links.disarm(peer);
                }
                TcpLinkEvent::Lost(peer) => self.moves.end_all_to(&mut self.links, peer),
                TcpLinkEvent::Push(peer, sock) => self.moves.push_rail(&mut self.links, peer, sock),
                TcpLinkEvent::RailEnded {
                    peer,
                    made,
                    serving,
                } => {
                    self.moves.serving -= serving;
                    self.moves.request_again(&mut self.links, peer, made);
                    self.moves.go_on(&mut self.links, peer);
                }
            }
        }
    }

    /// Schedules a peer, whose received bytes are not all processed, for the next turn.
    fn wait_for(&mut self, peer: u32) {
        if !self.backlog.contains(&peer) {
            self.backlog.push_back(peer);
        }
    }

    /// Returns completions, without waiting.
    #[inline(never)]
    pub(super) fn poll(&mut self, completions: &mut Completions) {
        self.uncork();
        self.poll_once(completions);
        let is_between_sends = self.links.bursts.end_poll();
        if !is_between_sends && self.links.is_any_deferring() {
            self.links.send_deferred();
            self.settle();
        }
        if self.corks && completions.len() > 1 {
            self.links.cork();
        }
    }

    /// Promises that the caller calls [`uncork`](Self::uncork) when it has handled a poll's completions.
    pub(super) fn promise_uncork(&mut self) {
        self.corks = true;
    }

    /// Sends, together, the packets that were held back while the caller handled the last poll's completions.
    #[inline]
    pub(super) fn uncork(&mut self) {
        self.links.push_held();
        if self.links.is_corked() {
            self.links.uncork();
            self.settle();
        }
    }

    fn poll_once(&mut self, completions: &mut Completions) {
        self.links.turn += 1;
        self.settle();
        // Completions of work requests come first, so they are delivered however much peers send.
        self.hand_up_ready(completions);
        if self.may_rest() {
            return;
        }
        let mut has_come = false;
        for _ in 0..self.backlog.len() {
            if completions.is_full() {
                // The peers not served are the first of the next turn.
                break;
            }
            let peer = self.backlog.pop_front();
            has_come |= peer.is_some_and(|peer| self.take(peer, completions));
        }
        if self.hot.is_some_and(|hot| !self.links.has_line(hot)) {
            self.hot = None;
        }
        let is_seldom = self.rest.is_seldom();
        let polls_all = is_seldom || self.links.turn.is_multiple_of(POLL_ALL_EVERY);
        if let Some(hot) = self.hot.filter(|_| !completions.is_full()) {
            has_come |= self.take(hot, completions);
        }
        if !self.links.moving.is_empty() {
            has_come |= self.take_of_rails();
        }
        if polls_all || self.hot.is_none() {
            has_come |= self.poll_sockets(completions);
        }
        let clock_every = if self.links.has_timers() {
            POLL_ALL_EVERY
        } else {
            CLOCK_EVERY
        };
        if is_seldom || self.links.turn.is_multiple_of(clock_every) {
            self.links.run_timers();
            self.settle();
        }
        self.has_activity |= has_come;
        self.idle = if has_come {
            0
        } else {
            self.idle.saturating_add(1)
        };
        if self.idle == ACK_AFTER && self.links.is_any_owing() {
            self.links.send_owed_acks();
            self.settle();
        }
        self.hand_up_ready(completions);
    }

    /// Whether this turn may do nothing.
    fn may_rest(&mut self) -> bool {
        let every = match (self.links.is_alone(), self.idle) {
            _ if !self.backlog.is_empty() => 1,
            (true, _) => ALONE_EVERY,
            (false, IDLE..) => POLL_ALL_EVERY,
            (false, _) => 1,
        };
        let sockets = &self.links.sockets;
        self.rest
            .skips_turn(self.links.turn, every, || sockets.clock_ns())
    }

    /// Delivers the completions of ended work requests, as far as there is room.
    fn hand_up_ready(&mut self, completions: &mut Completions) {
        while !completions.is_full()
            && let Some(completion) = self.moves.ready.pop_front()
        {
            completions.push(completion);
        }
    }

    /// Handles every socket with an event. `true`: a peer's bytes have arrived.
    fn poll_sockets(&mut self, completions: &mut Completions) -> bool {
        let mut sock_events = std::mem::take(&mut self.sock_events);
        self.links.sockets.poll_events(&mut sock_events);
        let mut has_come = false;
        for sign in sock_events.drain(..) {
            let SockEvent::On { sock, reads, sends } = sign else {
                self.links.accept_waiting();
                continue;
            };
            match self.links.owner(sock) {
                SockOwner::Unused => {}
                SockOwner::Unproven => self.links.continue_unproven(sock),
                SockOwner::Call(peer) => self.links.continue_call(peer, sock),
                SockOwner::RailCall(peer) => self.links.continue_rail_call(peer, sock),
                SockOwner::Rail(peer) => {
                    if sends {
                        self.unblock_rail(peer, sock);
                    }
                    has_come |= reads && self.take_rail(peer, sock);
                }
                SockOwner::Line(peer) => {
                    if sends {
                        self.links.unblock(peer);
                    }
                    if reads && self.take(peer, completions) {
                        self.hot = Some(peer);
                        has_come = true;
                    }
                }
            }
            self.settle();
        }
        self.sock_events = sock_events;
        has_come
    }

    /// Handles that a rail accepts bytes again.
    fn unblock_rail(&mut self, peer: u32, sock: Sock) {
        if let Some(rail) = self.links.rail(peer, sock) {
            rail.is_blocked = false;
            self.moves.push_rail(&mut self.links, peer, sock);
        }
    }

    /// Whether nothing is pending: then anything new causes a socket event, which wakes the process.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        debug_assert!(!self.is_dormant() || self.links.until_due().is_none());
        self.uncork();
        self.links.send_deferred();
        self.links.send_owed_acks();
        self.links.run_timers();
        self.settle();
        let has_activity = std::mem::take(&mut self.has_activity);
        // While a connection is paused, polls do not contend with the kernel for its socket's lock. A sleeping process
        // does not poll, so it needs no pause; after a pause it polls once more before it sleeps.
        let was_paused = self.links.end_pauses();
        !has_activity
            && !was_paused
            && self.moves.ready.is_empty()
            && self.backlog.is_empty()
            && self.links.wanted.is_empty()
    }

    /// Whether [`prepare_sleep`](Self::prepare_sleep) would find nothing to do, and no timer would end a sleep.
    pub(super) fn is_dormant(&self) -> bool {
        !self.has_activity
            && self.moves.ready.is_empty()
            && self.backlog.is_empty()
            && self.links.is_dormant()
    }

    /// Adds the events that can wake the process, and the time of the next timer.
    pub(super) fn fall_asleep(&mut self, waits: &mut WaitSet) {
        if let Some(due) = self.links.until_due() {
            waits.poll_after(due);
        }
        self.links.sockets.fall_asleep(waits);
    }

    /// Handles that the process is awake again: the next poll checks all sockets, among them the one that woke it.
    pub(super) fn wake(&mut self) {
        self.hot = None;
        self.rest.end();
        self.links.run_timers();
        self.settle();
    }
}

fn work_of(
    peer: Peer,
    (kind, lease): (WorkKind, Lease),
    (key, offset): (RemoteKey, u64),
    name: WorkId,
    immediate: Option<u32>,
) -> TcpWork {
    TcpWork {
        peer: peer.0,
        name,
        kind,
        lease,
        key,
        offset,
        immediate,
        at: 0,
        has_begun: false,
        last: None,
        shared: None,
    }
}

/// Maximum number of connections with one peer.
const MOST_RAILS: u32 = 4;

/// At least one of this many turns polls all connections.
const POLL_ALL_EVERY: u64 = 8;
/// If there is no connection, at least one of this many turns makes system calls.
const ALONE_EVERY: u64 = 64;
/// After this many consecutive turns without an arrival, most turns make no system call; at least one of
/// [`POLL_ALL_EVERY`] does.
const IDLE: u32 = 512;
/// At least one of this many turns runs the timers; if a timer may be pending, at least one of [`POLL_ALL_EVERY`] does.
const CLOCK_EVERY: u64 = 64;
/// After this many turns without an arrival, acknowledgements that no packets have carried are sent explicitly.
const ACK_AFTER: u32 = 64;
/// Maximum memory of a stored frame, with its bookkeeping.
const MOST_PACKET_BYTES: usize = 9 << 10;
