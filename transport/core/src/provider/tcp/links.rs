// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers and the connections to them: keeps and sends packets, and restores connections that broke. The *line* to a
//! peer is the first connection with it; further ones are *rails*. Events of a peer are reported upwards as values
//! ([`TcpLinkEvent`]).
//!
//! | file          | its methods |
//! |---------------|------------------------------------------|
//! | `links.rs`    | keep and send packets, break connections |
//! | `batching.rs` | send packets later, with others |
//! | `connect.rs`  | make connections: call, be called, join |
//! | `rails.rs`    | make further connections, and end them |
//! | `clock.rs`    | timers |
//! | `eviction.rs` | evict connections for others |

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use session::{Ack, CarrierNumbers, Slot, Via};

use super::super::counters::NetCounts;
use super::address::TcpHosts;
use super::connect_queue::ConnectQueue;
use super::notices::TcpNotices;
use super::packet::{HEADER_BYTES, TcpPacketHeader, TcpPacketKind};
use super::peer::{TcpOutgoing, TcpPeer};
use super::rails::ActiveRail;
use super::secrets::{Secrets, StreamKey};
use super::sockets::{Sock, Sockets};
use super::store::PacketStore;
use super::unproven::UnprovenConnections;
use crate::provider::frame_burst::FrameBursts;
use crate::provider::verbs::PeerIdentities;

/// The use of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SockOwner {
    Unused,
    Unproven,
    /// An attempt to connect to this peer.
    Call(u32),
    /// The line to this peer.
    Line(u32),
    /// A rail to this peer, established or not.
    Rail(u32),
    RailCall(u32),
}

/// An event of a peer's connections, for the transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpLinkEvent {
    /// The peer has a new connection, or work requests for it may continue because there is room again.
    GoOn(u32),
    /// The peer is lost.
    Lost(u32),
    /// This rail of the peer may have something to send.
    Push(u32, Sock),
    /// A rail of the peer has ended, with `serving` unserved reads by the peer.
    RailEnded {
        peer: u32,
        made: u32,
        serving: usize,
    },
}

/// The limits of this provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpLimits {
    /// Number of lines above which lines are evicted.
    pub(super) lines: usize,
    /// Time for which a peer may be unreachable before it is lost.
    pub(super) silence_ns: u64,
    /// `rails`: maximum number of connections with one peer. `shared_bytes`: size of the smallest read that uses all of
    /// them.
    pub(super) rails: u8,
    pub(super) shared_bytes: u64,
}

/// All peers and their connections. Its methods are in the files that the module's documentation names.
#[derive(Debug)]
pub(super) struct TcpLinks<S> {
    pub(super) sockets: S,
    pub(super) known: PeerIdentities,
    pub(super) hosts: TcpHosts,
    pub(super) secrets: Secrets,
    /// Identifies this process to connecting peers.
    pub(super) identity: u64,
    pub(super) limits: TcpLimits,
    /// The published addresses, with the indices of their interfaces.
    pub(super) interfaces: Vec<(IpAddr, u32)>,
    pub(super) sides: Vec<Option<Box<TcpPeer>>>,
    owners: Vec<SockOwner>,
    pub(super) unproven: UnprovenConnections,
    pub(super) calls: ConnectQueue,
    /// Peers with a connection.
    pub(super) joined: Vec<u32>,
    /// `rails`: number of rails to all peers. `railed`: the peers that have rails. `moving`: the rails that are polled.
    pub(super) rails: usize,
    pub(super) railed: Vec<u32>,
    pub(super) moving: Vec<ActiveRail>,
    /// `shut_until_ns`: no connection is accepted before this time. `is_crowded`: whether that is because
    /// unauthenticated connections fill all places.
    pub(super) shut_until_ns: Option<u64>,
    pub(super) is_crowded: bool,
    pub(super) has_reported_descriptors: bool,
    /// Peers that may be owed an acknowledgement.
    owing: Vec<u32>,
    /// `is_corked`: whether packets are held back. `corked`: the peers for which packets are held back.
    is_corked: bool,
    corked: Vec<u32>,
    /// The bursts of sends, and the peers with deferred frames.
    pub(super) bursts: FrameBursts,
    pub(super) deferring: Vec<u32>,
    /// Peers for which the kernel holds back bytes until more follow.
    pub(super) held: Vec<u32>,
    /// `lacks_core`: whether this process has to wait for its core. `lacking`: number of connected peers that have to
    /// wait for theirs.
    pub(super) lacks_core: bool,
    lacking: usize,
    pub(super) store: PacketStore,
    pub(super) numbers: CarrierNumbers,
    pub(super) notices: TcpNotices,
    pub(super) wanted: VecDeque<u32>,
    pub(super) upshots: VecDeque<TcpLinkEvent>,
    pub(super) counts: Arc<NetCounts>,
    pub(super) now_ns: u64,
    pub(super) turn: u64,
    pub(super) checked_ns: u64,
    pub(super) trimmed_ns: u64,
}

impl<S: Sockets> TcpLinks<S> {
    pub(super) fn new(
        mut sockets: S,
        (known, key): (PeerIdentities, StreamKey),
        peers: u32,
        limits: TcpLimits,
    ) -> Self {
        let now_ns = sockets.clock_ns();
        Self {
            identity: sockets.random(),
            sockets,
            known,
            hosts: TcpHosts::default(),
            secrets: Secrets::new(key),
            limits,
            interfaces: Vec::new(),
            sides: (0..peers).map(|_| None).collect(),
            owners: Vec::new(),
            unproven: UnprovenConnections::default(),
            calls: ConnectQueue::default(),
            joined: Vec::new(),
            rails: 0,
            railed: Vec::new(),
            moving: Vec::new(),
            shut_until_ns: None,
            is_crowded: false,
            lacks_core: false,
            lacking: 0,
            has_reported_descriptors: false,
            owing: Vec::new(),
            is_corked: false,
            corked: Vec::new(),
            bursts: FrameBursts::new(peers),
            deferring: Vec::new(),
            held: Vec::new(),
            store: PacketStore::default(),
            numbers: CarrierNumbers::default(),
            notices: TcpNotices::default(),
            wanted: VecDeque::new(),
            upshots: VecDeque::new(),
            counts: Arc::default(),
            now_ns,
            turn: 0,
            checked_ns: 0,
            trimmed_ns: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, peer: u32) -> Option<&TcpPeer> {
        self.sides.get(peer as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn find_mut(&mut self, peer: u32) -> Option<&mut TcpPeer> {
        self.sides.get_mut(peer as usize)?.as_deref_mut()
    }

    /// The state of a peer, created on first use.
    #[inline]
    pub(super) fn of(&mut self, peer: u32) -> &mut TcpPeer {
        let place = peer as usize;
        if place >= self.sides.len() {
            self.sides.resize_with(place + 1, || None);
        }
        self.sides[place].get_or_insert_with(|| Box::new(TcpPeer::new()))
    }

    #[inline]
    pub(super) fn has_line(&self, peer: u32) -> bool {
        self.find(peer).is_some_and(|side| side.line.is_some())
    }

    /// Whether there are neither connections nor attempts in either direction.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.joined.is_empty() && !self.has_timers()
    }

    /// Whether nothing is to be done before the next event: nothing is held back or owed, no connection is paused, and
    /// no timer is pending.
    pub(super) fn is_dormant(&self) -> bool {
        let is_paused = |peer: &u32| {
            let line = self.find(*peer).and_then(|side| side.line.as_ref());
            line.is_some_and(|line| line.paused_until_ns != 0)
        };
        let keeps_nothing = self.owing.is_empty()
            && self.held.is_empty()
            && self.deferring.is_empty()
            && !self.is_corked
            && self.wanted.is_empty()
            && self.upshots.is_empty();
        let is_above = self.joined.len() > self.limits.lines;
        keeps_nothing
            && !self.has_timers()
            && !is_above
            && self.railed.is_empty()
            && !self.joined.iter().any(is_paused)
    }

    /// Whether a timer may be pending of a connection attempt, of an unauthenticated connection, or of a pause in
    /// accepting.
    #[inline]
    pub(super) fn has_timers(&self) -> bool {
        !self.calls.is_empty() || !self.unproven.is_empty() || self.shut_until_ns.is_some()
    }

    pub(super) fn owner(&self, sock: Sock) -> SockOwner {
        let owner = self.owners.get(sock as usize);
        owner.copied().unwrap_or(SockOwner::Unused)
    }

    pub(super) fn own(&mut self, sock: Sock, owner: SockOwner) {
        let place = sock as usize;
        if place >= self.owners.len() {
            self.owners.resize(place + 1, SockOwner::Unused);
        }
        self.owners[place] = owner;
    }

    pub(super) fn close(&mut self, sock: Sock) {
        self.own(sock, SockOwner::Unused);
        self.sockets.close(sock);
    }

    /// Stores a packet for a peer, and sends it when possible. The caller has checked that there is room for it.
    pub(super) fn post(&mut self, peer: u32, slot: Slot) {
        self.keep(peer, slot);
        self.flush(peer);
    }

    pub(super) fn keep(&mut self, peer: u32, slot: Slot) {
        let turn = self.turn;
        let bytes = u32::try_from(self.store.length(slot)).unwrap_or(u32::MAX);
        let is_large = self.store.is_large(slot);
        let side = self.of(peer);
        side.session.keep(slot, bytes);
        side.kept_data += u32::from(is_large);
        side.posted = turn;
    }

    /// Holds back packets until [`uncork`](Self::uncork).
    pub(super) fn cork(&mut self) {
        self.is_corked = true;
    }

    #[inline]
    pub(super) fn is_corked(&self) -> bool {
        self.is_corked
    }

    /// Sends the packets held back. Work requests that were waiting because too much was unsent may continue.
    pub(super) fn uncork(&mut self) {
        self.is_corked = false;
        for peer in std::mem::take(&mut self.corked) {
            if let Some(side) = self.find_mut(peer) {
                side.is_corked = false;
            }
            self.flush(peer);
            let line = self.find(peer).and_then(|side| side.line.as_ref());
            if line.is_some_and(|line| !line.is_blocked) {
                self.upshots.push_back(TcpLinkEvent::GoOn(peer));
            }
        }
    }

    /// Sends what is pending for a peer, or schedules it for [`uncork`](Self::uncork) if packets are held back. Without
    /// a line, starts to connect if a line is needed.
    pub(super) fn flush(&mut self, peer: u32) {
        let is_corked = self.is_corked;
        let Some(side) = self.sides[peer as usize].as_deref_mut() else {
            return;
        };
        if is_corked && side.line.is_some() {
            if !std::mem::replace(&mut side.is_corked, true) {
                self.corked.push(peer);
            }
            return;
        }
        if side.line.is_none() {
            if side.needs_line() {
                self.call(peer);
            }
            return;
        }
        if let Err(error) = self.send_some(peer, false) {
            self.broke(peer, &error);
        }
    }

    /// Sends what is pending for a peer. `defers`: whether the last packet may leave with packets that follow.
    pub(super) fn send_some(&mut self, peer: u32, defers: bool) -> io::Result<()> {
        let side = self.sides[peer as usize].as_deref_mut();
        let (turn, now_ns) = (self.turn, self.now_ns);
        let Some(side) = side else {
            return Ok(());
        };
        while let Some(line) = side.line.as_mut().filter(|line| !line.is_blocked) {
            line.used = turn;
            let (sock, made) = (line.sock, line.made);
            let Some(out) = line
                .out
                .take()
                .or_else(|| next_out(side, &mut self.store, self.lacks_core))
            else {
                break;
            };
            if let TcpOutgoing::Packet { number, .. } = out {
                // The length of the packet is in its header, which leaves first.
                self.bursts.sent(peer, number);
            }
            let had = out.large_at();
            // Only small packets are held back: holding a large packet back for others would save nothing.
            let (itself, is_small) = match out {
                TcpOutgoing::Packet { total, .. } => (1, total <= SMALL_BYTES),
                TcpOutgoing::Bytes { .. } => (0, true),
            };
            let more = is_small && (defers || side.session.unsent() > itself);
            let (out, all) = send_one(&mut self.sockets, &self.store, (sock, more), out)?;
            if let Some(line) = &mut side.line {
                line.is_held = more;
                if out.large_at() > had {
                    line.moved_ns = now_ns;
                }
            }
            match (all, out) {
                (true, TcpOutgoing::Packet { number, .. }) => {
                    side.session.sent(number, Via::Reliable { carrier: made });
                    let end = number.wrapping_add(1);
                    if !side.may_have(end) {
                        side.sent_end = end;
                    }
                    self.counts.packets.add(1);
                }
                (true, TcpOutgoing::Bytes { .. }) => {}
                (false, out) => {
                    let line = side.line.as_mut().expect("it was there above");
                    (line.out, line.is_blocked) = (Some(out), true);
                    if !std::mem::replace(&mut line.is_armed, true) {
                        self.sockets.want_to_send(sock, true);
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles that the line to a peer accepts bytes again.
    pub(super) fn unblock(&mut self, peer: u32) {
        let line = self.find_mut(peer).and_then(|side| side.line.as_mut());
        let Some(line) = line else { return };
        line.is_blocked = false;
        self.flush(peer);
        self.upshots.push_back(TcpLinkEvent::GoOn(peer));
    }

    /// Ends writability events of a line with nothing to send.
    pub(super) fn disarm(&mut self, peer: u32) {
        let line = self.find_mut(peer).and_then(|side| side.line.as_mut());
        let Some(line) = line.filter(|line| line.is_armed && !line.is_blocked) else {
            return;
        };
        line.is_armed = false;
        let sock = line.sock;
        self.sockets.want_to_send(sock, false);
    }

    /// Processes a peer's acknowledgement of this process's stream. `false`: it cannot be processed: it covers a packet
    /// that was not sent, or one that is only partly sent over this line.
    #[inline]
    pub(super) fn acknowledge(&mut self, peer: u32, ack: Ack) -> bool {
        let (now_ns, store) = (self.now_ns, &mut self.store);
        let Some(side) = self.sides[peer as usize].as_deref_mut() else {
            return false;
        };
        if !side.may_have(ack.next) || side.is_half_out_before(ack.next) {
            return false;
        }
        side.has_requested_ack = false;
        let ack = Ack { beyond: 0, ..ack };
        let session = &mut side.session;
        let kept = &mut side.kept_data;
        session.acknowledge(ack, now_ns, |slot| {
            *kept = kept.saturating_sub(store.free(slot).into());
        });
        side.awaits_buffers &= !session.may_lend();
        true
    }

    /// Records whether a peer has to wait for its core.
    #[inline]
    pub(super) fn record_core_state(&mut self, peer: u32, lacks_core: bool) {
        let line = self.find_mut(peer).and_then(|side| side.line.as_mut());
        let changed = line.filter(|line| line.lacks_core != lacks_core);
        if let Some(line) = changed {
            line.lacks_core = lacks_core;
            match lacks_core {
                true => self.lacking += 1,
                false => self.lacking -= 1,
            }
        }
    }

    /// Whether some connected peer has to wait for its core.
    pub(super) fn is_any_lacking(&self) -> bool {
        self.lacking != 0
    }

    /// Records that a packet of a peer was delivered, for which an acknowledgement is owed.
    #[inline]
    pub(super) fn owe_ack(&mut self, peer: u32) {
        let Some(side) = self.find_mut(peer) else {
            return;
        };
        side.owes = true;
        let is_much = side.session.delivered_since_ack() >= session::ACK_EVERY;
        if !std::mem::replace(&mut side.is_owing, true) {
            self.owing.push(peer);
        }
        if is_much {
            self.send_ack(peer);
        }
    }

    /// Sends a peer an acknowledgement.
    pub(super) fn send_ack(&mut self, peer: u32) {
        let line = self.find_mut(peer).and_then(|side| side.line.as_mut());
        if let Some(line) = line {
            line.owes_ack = true;
            self.flush(peer);
        }
    }

    /// Sends all owed acknowledgements.
    pub(super) fn send_owed_acks(&mut self) {
        for peer in std::mem::take(&mut self.owing) {
            let Some(side) = self.find_mut(peer) else {
                continue;
            };
            side.is_owing = false;
            if side.owes {
                self.send_ack(peer);
            }
        }
    }

    #[inline]
    pub(super) fn is_any_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    /// Requests an acknowledgement from a peer, unless one was requested and has not arrived yet.
    pub(super) fn request_ack(&mut self, peer: u32) {
        let Some(side) = self.find_mut(peer) else {
            return;
        };
        if let Some(line) = side.line.as_mut() {
            if std::mem::replace(&mut side.has_requested_ack, true) {
                return;
            }
            (line.owes_ack, line.requests_ack) = (true, true);
        }
        self.flush(peer);
    }

    /// Handles that the connection to a peer broke: it is made again if it is needed, and unacknowledged packets are
    /// sent again.
    pub(super) fn broke(&mut self, peer: u32, why: &io::Error) {
        if self.hang_up(peer) {
            self.counts.broken.add(1);
        }
        let side = self.of(peer);
        if side.needs_line() {
            if let Some(call) = &mut side.call {
                call.tries
                    .iter_mut()
                    .for_each(|one| one.why = why.to_string());
            }
            self.call(peer);
        }
    }

    /// Closes the line and the rails to a peer. `false`: there was no line.
    pub(super) fn hang_up(&mut self, peer: u32) -> bool {
        let Some(line) = self.find_mut(peer).and_then(|side| side.line.take()) else {
            return false;
        };
        self.joined.retain(|joined| *joined != peer);
        self.lacking -= usize::from(line.lacks_core);
        self.end_rails(peer);
        self.close(line.sock);
        let side = self.of(peer);
        side.session.carrier_broke(line.made);
        side.has_requested_ack = false;
        true
    }

    /// Marks a peer lost.
    pub(super) fn lose(&mut self, peer: u32, why: &str) {
        if self.of(peer).lost.is_some() {
            return;
        }
        self.hang_up(peer);
        self.end_call(peer, None);
        let (sides, store) = (&mut self.sides, &mut self.store);
        if let Some(side) = sides[peer as usize].as_deref_mut() {
            side.lost = Some(why.into());
            side.session.forget(|slot| _ = store.free(slot), |_| {});
            side.kept_data = 0;
        }
        self.upshots.push_back(TcpLinkEvent::Lost(peer));
    }

    /// Ends the pauses of all connections; returns whether one was paused.
    pub(super) fn end_pauses(&mut self) -> bool {
        let mut was_paused = false;
        for peer in &self.joined {
            let side = self.sides[*peer as usize].as_deref_mut();
            if let Some(line) = side.and_then(|side| side.line.as_mut()) {
                was_paused |= std::mem::take(&mut line.paused_until_ns) != 0;
            }
        }
        was_paused
    }

    /// Whether all packets to peers that are not lost are acknowledged, and nothing is partly sent. Requests the
    /// acknowledgements that are missing.
    pub(super) fn is_all_there(&mut self) -> bool {
        let peers = 0..u32::try_from(self.sides.len()).unwrap_or(u32::MAX);
        let mut all = true;
        for peer in peers {
            let side = self.find(peer).filter(|side| side.lost.is_none());
            let Some(side) = side else { continue };
            let is_there = side.session.oldest_unacknowledged().is_none();
            let wrote = side
                .line
                .as_ref()
                .is_none_or(|line| line.out.is_none() && !line.owes_ack);
            if !is_there {
                self.request_ack(peer);
            }
            all &= is_there && wrote;
        }
        all
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let sides = self.sides.iter().flatten();
        let rests = sides.map(|side| {
            let rest = side.line.as_ref().map_or(0, |line| line.rest.capacity());
            size_of::<TcpPeer>() + rest + side.rails.bytes()
        });
        rests.sum::<usize>() + self.sides.capacity() * size_of::<usize>() + self.store.bytes()
    }
}

/// Packets up to this size may leave together with packets that follow.
const SMALL_BYTES: usize = 2048;

/// The next packet or acknowledgement for a peer.
fn next_out(side: &mut TcpPeer, store: &mut PacketStore, lacks_core: bool) -> Option<TcpOutgoing> {
    let line = side.line.as_mut()?;
    let Some(due) = side.session.next_unsent() else {
        if !std::mem::take(&mut line.owes_ack) {
            return None;
        }
        let header = TcpPacketHeader {
            bytes: 0,
            kind: TcpPacketKind::Ack,
            requests_ack: std::mem::take(&mut line.requests_ack),
            lacks_core,
            ack: side.session.take_ack(),
            number: 0,
        };
        side.owes = false;
        let mut bytes = vec![0; HEADER_BYTES];
        header.write_to(&mut bytes);
        return Some(TcpOutgoing::Bytes { bytes, at: 0 });
    };
    // A packet carries an acknowledgement too; only a request for an acknowledgement needs an ACK of its own.
    line.owes_ack = line.requests_ack;
    side.owes = false;
    store.address(due.slot, due.number, side.session.take_ack(), lacks_core);
    Some(TcpOutgoing::Packet {
        slot: due.slot,
        number: due.number,
        at: 0,
        total: HEADER_BYTES + due.bytes as usize,
    })
}

/// Sends as much of `out` as the socket takes; `more`: whether further bytes follow. Returns what is left, and whether
/// all was sent.
fn send_one(
    sockets: &mut impl Sockets,
    store: &PacketStore,
    (sock, more): (Sock, bool),
    mut out: TcpOutgoing,
) -> io::Result<(TcpOutgoing, bool)> {
    loop {
        let (sent, left) = match &out {
            TcpOutgoing::Packet {
                slot, at, total, ..
            } => {
                let (bytes, data) = store.rest(*slot, *at);
                (sockets.send(sock, bytes, data, more)?, total - at)
            }
            TcpOutgoing::Bytes { bytes, at } => {
                let rest = &bytes[*at..];
                (sockets.send(sock, rest, None, more)?, rest.len())
            }
        };
        let (TcpOutgoing::Packet { at, .. } | TcpOutgoing::Bytes { at, .. }) = &mut out;
        *at += sent;
        if sent == left {
            return Ok((out, true));
        }
        if sent == 0 {
            return Ok((out, false));
        }
    }
}
