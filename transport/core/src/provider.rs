// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one seam between the vocabulary and what carries bytes: a closed set of providers, one per peer.

mod caps;
mod cma;
mod config;
mod distance;
mod faked;
mod far;
mod later;
mod ledger;
mod loopback;
mod mixed;
mod net;
mod no_common_network;
mod record;
mod shm;
mod sim;
mod sleep;
mod tcp;
mod transfer;
mod verbs;
mod wire;

use std::ptr::NonNull;

use ring::{Bell, GateLine, WaitCounts};

use crate::mr::WORD_BYTES;
use crate::peers::{PeerRoute, Peers};
use crate::wait_set::WaitSet;
use crate::words;
use crate::{
    Arrived, Atomic, Completions, Error, Full, Head, Lease, LocalKey, Node, Peer, RecvBuffer,
    RemoteKey, Seat, WorkId, seat,
};
pub use caps::{Caps, Mover};
pub use config::{Config, Providers};
use later::Later;
pub use ledger::{FabricCounters, FabricStats};
use loopback::Loopback;
use net::NetworkProvider;
pub use record::MOST_RECORD_BYTES;
pub use shm::FirstFrame;
use shm::Shm;
use sim::Sim;
pub use sim::{SimConfig, SimHop, SimNet, SimStats};
pub(crate) use tcp::addresses;
pub use tcp::{FakeStreams, StreamKey, StreamsConfig, TcpCongestion, TcpTerms};
pub(crate) use verbs::dpdk_ports;
pub(crate) use verbs::look;
pub use verbs::{
    FakeConfig, FakeNet, FakeStats, FarLook, FarWord, ForeignPeer, GidPlaces, NetLimits, NetStats,
    NetTerms, NetworkSettings, PacketFaults, PacketNet, PortChange, Rendezvous,
};
use wire::Provider;

/// A call of the wire that reaches a peer; with `&` one that changes nothing.
macro_rules! carried {
    ($fabric:ident, $peer:expr, $call:ident($($argument:expr),*)) => {
        match $fabric.peers.route($peer) {
            PeerRoute::Shm(_) => Provider::$call(&mut $fabric.shm, $($argument),*),
            PeerRoute::Loopback => Provider::$call(&mut $fabric.loopback, $($argument),*),
            PeerRoute::Later(segment) => Provider::$call($fabric.later.of_mut(segment), $($argument),*),
            PeerRoute::Sim => Provider::$call($fabric.sim(), $($argument),*),
            PeerRoute::Net => Provider::$call($fabric.net(), $($argument),*),
        }
    };
    (&$fabric:ident, $peer:expr, $call:ident($($argument:expr),*)) => {
        match $fabric.peers.route($peer) {
            PeerRoute::Shm(_) => Provider::$call(&$fabric.shm, $($argument),*),
            PeerRoute::Loopback => Provider::$call(&$fabric.loopback, $($argument),*),
            PeerRoute::Later(segment) => Provider::$call($fabric.later.of(segment), $($argument),*),
            PeerRoute::Sim => Provider::$call($fabric.sim.as_ref().expect(WITH_SIM), $($argument),*),
            PeerRoute::Net => Provider::$call($fabric.net.as_ref().expect(WITH_NET), $($argument),*),
        }
    };
}

/// A process's access to all its peers. Its calls by kind, and within a kind in the order in which they are made:
///
/// | kind | calls |
/// |------|-------|
/// | opening | [`open`](Self::open); in tests `faked`, `simulated`; later `attach`, `add_far` |
/// | addresses | `network_record`; `learn_address` of whom `wanted_address` names |
/// | sending | `caps`, `provider_of`, `max_send_bytes`; `post_send`, `post_announcement`, `decline`; in a lane `post_word`, `post_at_hand`, `post_far_word`, then perhaps `ring_bell` |
/// | memory | `export` or `offer`, `withdraw`; `register` or `expose`, `deregister`; `allocate`, `free` |
/// | one-sided | `post_read`, `post_write`, `post_atomic` |
/// | a turn | `poll`, then `copy_body` and `release` of each frame, and `uncork` if that was promised (`promise_uncork`); in a lane `first_frame`, `look_far`, and `poll_beside_first` when `must_poll` says so |
/// | waiting | `set_attentive`; in `provider/sleep.rs` `prepare_sleep`, then `sleep` or `stay_awake`; others: `nudge`, `nudge_all` |
/// | the node | `claim_board`, `take_seat` or `decline_board`, `leave_board`; `make_lines`, `line_of`, `place_of` |
/// | loss | `lose`, `why_lost`; `next_complaint`, `next_remark`, `next_port_change` |
/// | the end | `is_quiet` |
/// | counts | `stats`, `ledger`, `net_stats`, `net_memory` |
///
/// These are more than sixty, as many as the vocabulary has calls: nearly all hand theirs on to one provider or to each.
#[derive(Debug)]
pub struct Fabric {
    peers: Peers,
    shm: Shm,
    loopback: Loopback,
    /// Segments that were attached later.
    later: Later,
    /// There is a simulated network, or a segment that was attached later.
    polls_others: bool,
    sim: Option<Sim>,
    net: Option<NetworkProvider>,
    /// Where this process says how it waits, if somebody may look.
    waits: Option<&'static WaitCounts>,
    wait_set: WaitSet,
    /// The sleep that was prepared leaves the network as it is.
    leaves_net: bool,
}

impl Fabric {
    /// Opens a queue pair to every peer. Costs no memory for peers that never talk.
    ///
    /// # Errors
    /// When a provider cannot be set up, or no provider reaches some peer.
    pub fn open(config: Config) -> Result<Self, Error> {
        let words = |node: &Node| node.segment.waits(node.local_rank);
        let waits = config.node.as_ref().map(words);
        let shared = |node: &Node| config.providers.shm && node.peers.len() > 1;
        let node = config.node.filter(shared);
        let mut routes = vec![None; config.peers as usize];
        for (local, peer) in (0..).zip(node.iter().flat_map(|node| &node.peers)) {
            routes[peer.0 as usize] = Some(PeerRoute::Shm(local));
        }
        routes[config.me.0 as usize] = Some(PeerRoute::Loopback);
        let net = match (0..).zip(&routes).find(|(_, route)| route.is_none()) {
            None => None,
            Some((peer, _)) if !config.providers.any_network() => {
                return Err(Error::NoRoute { peer });
            }
            Some((peer, _)) => Some(
                NetworkProvider::open(config.me, config.peers, &config.network, config.providers)
                    .map_err(|why| Error::NoNetwork { peer, why })?,
            ),
        };
        let routes = routes
            .into_iter()
            .map(|route| route.unwrap_or(PeerRoute::Net));
        Ok(Self {
            peers: Peers::new(routes),
            shm: Shm::open(node, config.peers),
            loopback: Loopback::new(config.me),
            later: Later::default(),
            polls_others: false,
            sim: None,
            net,
            waits,
            wait_set: WaitSet::new(),
            leaves_net: false,
        })
    }

    /// Joins a further segment of this node. Those of its processes that are peers already go on to be reached as before; the
    /// others are new peers, whose numbers, by which `node` knows them, follow those that there are. For good: others may look at it
    /// at any time.
    ///
    /// # Errors
    /// [`Error::PeerNumbers`] when they do not follow. Nothing was done then.
    pub fn attach(&mut self, node: Node) -> Result<(), Error> {
        let expected = self.peers.count();
        let new = node.others().filter(|(_, peer)| peer.0 >= expected);
        let follow = |(next, (_, peer)): (u32, (u32, Peer))| next == peer.0;
        if !(expected..).zip(new.clone()).all(follow) {
            return Err(Error::PeerNumbers { expected });
        }
        for _ in 0..new.count() {
            self.peers.add(PeerRoute::Later(self.later.next()));
        }
        self.later.attach(&mut self.shm, node, self.peers.count());
        self.polls_others = true;
        Ok(())
    }

    /// How many peers there are, this process among them.
    #[must_use]
    pub fn peer_count(&self) -> u32 {
        self.peers.count()
    }

    /// What the queue pair to `peer` can do.
    #[must_use]
    pub fn caps(&self, peer: Peer) -> Caps {
        carried!(&self, peer, caps(peer))
    }

    /// The provider that carries what goes to `peer`, as `RMPI_PROVIDERS` names it; `None` while it is not known whether it is `verbs` or
    /// `tcp`.
    #[must_use]
    pub fn provider_of(&self, peer: Peer) -> Option<&'static str> {
        match self.peers.route(peer) {
            PeerRoute::Loopback => Some("self"),
            PeerRoute::Shm(_) | PeerRoute::Later(_) => Some("shm"),
            PeerRoute::Sim => Some("sim"),
            PeerRoute::Net => self.net.as_ref()?.provider_of(peer),
        }
    }

    /// Largest body of one send to whichever peer there is now.
    #[must_use]
    pub fn max_send_bytes(&self) -> usize {
        let all = (0..self.peer_count()).map(|peer| self.caps(Peer(peer)));
        let all = all.map(|caps| caps.max_send_bytes);
        all.min().unwrap_or(ring::layout::POOL_BUFFER_BYTES)
    }

    /// Posts a send. The bytes are copied before the call returns. `head.kind` is one of an [`Owner`](crate::Owner)'s; `head.len` is
    /// ignored.
    ///
    /// # Errors
    /// [`Full`]: nothing was posted; poll and post again.
    ///
    /// # Panics
    /// When the body is longer than [`Caps::max_send_bytes`].
    #[inline(always)]
    pub fn post_send(&mut self, peer: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        carried!(self, peer, post_send(peer, head, body))
    }

    /// As [`post_send`](Self::post_send), for a frame that only announces what a later poll has to move: if something was posted to the
    /// peer since the last poll already, it may leave with what is posted to it next, or with the next poll. Who does not poll for long
    /// sends it 0.2 s later.
    ///
    /// `data`: memory that was [offered](Self::offer) to the peer, which stays as it is until the key is
    /// [withdrawn](Self::withdraw), and all of which the peer is expected to read. Where this process would have to send them anyway when
    /// they are read, they may go with the announcement; a read of all of them then ends without asking for them.
    ///
    /// # Errors
    /// As those of [`post_send`](Self::post_send).
    ///
    /// # Panics
    /// As [`post_send`](Self::post_send).
    #[inline]
    pub fn post_announcement(
        &mut self,
        peer: Peer,
        head: Head,
        body: &[u8],
        data: Option<RemoteKey>,
    ) -> Result<(), Full> {
        match self.peers.route(peer) {
            PeerRoute::Net => self.net().post_announcement(peer, (head, body), data),
            _ => self.post_send(peer, head, body),
        }
    }

    /// What `peer` [announced](Self::post_announcement) with this key will not be read: what is here of it already is dropped, and
    /// the peer sends no such data for some time.
    pub fn decline(&mut self, peer: Peer, key: RemoteKey) {
        if let PeerRoute::Net = self.peers.route(peer) {
            self.net().decline(peer, key);
        }
    }

    /// Posts a send of `BYTES` bytes, eight or four (`head.len` says so too), or says `None` where that takes more than a
    /// slot at hand: the fast path. After `Some(false)` the caller must [`ring_bell`](Self::ring_bell).
    #[inline(always)]
    pub fn post_word<const BYTES: u8>(
        &mut self,
        peer: Peer,
        head: impl FnOnce() -> Head,
        word: impl FnOnce() -> u64,
    ) -> Option<bool> {
        self.shm.post_word::<BYTES>(peer, head, word)
    }

    /// Posts a send to a peer of this node where a slot is at hand: the fast path for bodies up to
    /// [`Caps::max_send_bytes`]. `None`: nothing was posted, or no ring leads there. After `Some(false)` the caller must
    /// [`ring_bell`](Self::ring_bell).
    #[inline(always)]
    pub fn post_at_hand(&mut self, peer: Peer, head: Head, body: &[u8]) -> Option<bool> {
        self.shm.post_at_hand(peer, head, body)
    }

    /// What is counted, for who may look at any time.
    #[must_use]
    pub fn ledger(&self) -> FabricCounters {
        FabricCounters {
            net: self.net.as_ref().map(NetworkProvider::counts),
            ..self.shm.ledger()
        }
    }

    /// Posts a send of four or eight bytes over a network, where nobody needs a bell: the fast path. `false`: nothing was posted,
    /// or no network leads there.
    #[inline(always)]
    pub fn post_far_word(&mut self, peer: Peer, head: Head, body: &[u8]) -> bool {
        match &mut self.net {
            Some(net) if self.peers.route(peer) == PeerRoute::Net => {
                post_word(net, peer, head, body)
            }
            _ => false,
        }
    }

    /// Rings the bell of a peer that does not look.
    pub fn ring_bell(&mut self, peer: Peer) {
        self.shm.ring_bell(peer);
    }

    /// A frame that is at hand without any other work: the fast path of receiving. Not every frame shows here;
    /// [`poll`](Self::poll) gives them all.
    #[inline(always)]
    pub fn first_frame(&mut self) -> Option<FirstFrame<'_>> {
        self.shm.first_frame()
    }

    /// As [`first_frame`](Self::first_frame), but only a frame of this kind and length in bytes, without flags.
    #[inline(always)]
    pub fn first_plain_frame(&mut self, kind: u8, len: u8) -> Option<FirstFrame<'_>> {
        self.shm.first_plain_frame(kind, len)
    }

    /// Memory that peers can read and write without any help, zero and aligned to a page; `None` where there is none of
    /// that kind, or no more. It is shared with child processes too, and stays registered with the network until it is
    /// [freed](Self::free).
    pub fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let place = self.shm.allocate(bytes);
        match (&mut self.net, place) {
            (Some(net), None) => net.allocate(bytes),
            (Some(net), Some(place)) => {
                net.own(place, bytes);
                Some(place)
            }
            (None, place) => place,
        }
    }

    /// Gives back what [`allocate`](Self::allocate) gave. `false`: it is not from there, or was given back already.
    pub fn free(&mut self, place: NonNull<u8>) -> bool {
        let freed = self.net.as_mut().is_some_and(|net| net.disown(place));
        freed || self.shm.free(place)
    }

    /// Takes a [board](Seat) for processes of this node that will call it `key`. `false`: there are none, or no free one.
    pub fn claim_board(&mut self, key: u32) -> bool {
        let node = self.shm.node.as_ref();
        node.is_some_and(|node| seat::claim(node, key))
    }

    /// Gives a board back that was claimed and that nobody else knows of.
    pub fn unclaim_board(&mut self, key: u32) {
        if let Some(node) = &self.shm.node {
            seat::leave(node, key, 1);
        }
    }

    /// A seat at the board `key` for this process and the other `members`, in the order of their places; each of them takes
    /// one. `None`: there is no such board, or some of them are on other nodes.
    #[must_use]
    pub fn take_seat(&self, key: u32, members: impl Iterator<Item = Peer>) -> Option<Seat> {
        let node = self.shm.node.as_ref()?;
        let local = |peer| match self.peers.route(peer) {
            PeerRoute::Shm(local) => Some(local),
            PeerRoute::Loopback => Some(node.local_rank),
            PeerRoute::Later(_) | PeerRoute::Sim | PeerRoute::Net => None,
        };
        let members: Box<[u32]> = members.map(local).collect::<Option<_>>()?;
        let place = members
            .iter()
            .position(|member| *member == node.local_rank)?;
        let place = u32::try_from(place).ok()?;
        Seat::take(node, key, members, place)
    }

    /// Gives back the board `key`, if there is one, where `members` do not [meet](Self::take_seat) at it. All of them say so.
    pub fn decline_board(&mut self, key: u32, members: impl Iterator<Item = Peer>) {
        let near = members
            .filter(|peer| self.peers.is_at_boards(*peer))
            .count();
        self.leave_board(key, u32::try_from(near).unwrap_or(u32::MAX));
    }

    /// Is done for ever with the board `key` of `members` processes; nothing happens if there is none. They all say so.
    pub fn leave_board(&mut self, key: u32, members: u32) {
        if let Some(node) = &self.shm.node {
            seat::leave(node, key, members);
        }
    }

    /// Whether data that `key` names for `peer` had better be sent at once, through buffers, than be read by it: a guess from
    /// what was measured. Asking counts as a message: now and then the answer is yes only to measure again. Never so where
    /// the peer reads without the system's help: one copy is at least as fast as two, wherever the data are.
    pub fn had_better_stream(&mut self, peer: Peer, key: RemoteKey) -> bool {
        carried!(self, peer, had_better_stream(peer, key))
    }

    /// Names leased memory for `peer`, so that it can read (or write) it until the lease ends.
    pub fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        carried!(self, peer, export(peer, address, bytes))
    }

    /// Names leased memory for `peer`, so that it can read what is there now: a network may make a copy, which the peer reads
    /// instead. It is [withdrawn](Self::withdraw) when the peer has said that it reads no more, or is lost.
    pub fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        carried!(self, peer, offer(peer, address, bytes))
    }

    /// Makes memory known from which there will be many writes to `peer`: they register nothing then, if their lease is inside
    /// it and is [known as](Lease::known_as) the key. The memory stays mapped until the key is
    /// [given back](Self::deregister). `None`: it is known already, nothing has to be, or it cannot be.
    pub fn register(&mut self, peer: Peer, address: u64, bytes: u64) -> Option<LocalKey> {
        carried!(self, peer, register(address, bytes))
    }

    /// Makes memory known once for all peers: what is [exported](Self::export) of it, to however many, registers nothing. It is leased
    /// memory, which stays as it is until the key is [given back](Self::deregister), and peers reach all of it until then whose
    /// keys were told. `None`: nothing has to be known, or it cannot be, and each export registers what it names.
    pub fn expose(&mut self, address: u64, bytes: usize) -> Option<LocalKey> {
        self.net.as_mut()?.expose(address, bytes)
    }

    /// The end of [`register`](Self::register), when all writes from there have ended, or of [`expose`](Self::expose).
    pub fn deregister(&mut self, key: LocalKey) {
        if let Some(net) = &mut self.net {
            net.deregister(key);
        }
    }

    /// Whether `peer` writes to this memory of ours without a system of its node in between: a device does it, or a copy
    /// in memory that both have.
    #[must_use]
    pub fn reaches_directly(&self, peer: Peer, address: u64, bytes: u64) -> bool {
        carried!(&self, peer, reaches_directly(address, bytes))
    }

    /// Gate lines in memory of ours that the other ranks of the node reach, with the names that they know them by; none
    /// where there is no such memory, or no more. They are never given back.
    pub fn make_lines(&mut self) -> Vec<(&'static GateLine, u64)> {
        self.shm.make_lines()
    }

    /// The gate line that a peer of this node, or this process itself, names.
    pub fn line_of(&mut self, peer: Peer, name: u64) -> Option<&'static GateLine> {
        match self.peers.route(peer) {
            PeerRoute::Shm(local) => self.shm.line_of(local, name),
            PeerRoute::Loopback => self.shm.own_line(name),
            PeerRoute::Later(_) | PeerRoute::Sim | PeerRoute::Net => None,
        }
    }

    /// Room for what [`line_of`](Self::line_of) and [`place_of`](Self::place_of) will remember of so many more places of a peer,
    /// and for the ends of so many writes to ranks of the node.
    pub fn expect_lines(&mut self, peer: Peer, places: usize, works: usize) {
        if let PeerRoute::Shm(_) = self.peers.route(peer) {
            self.shm.expect_lines(places, works);
        }
    }

    /// Where memory of a peer of this node is mapped here, if it is so in one piece.
    pub fn place_of(&mut self, peer: Peer, key: RemoteKey) -> Option<NonNull<u8>> {
        carried!(self, peer, place_of(peer, key))
    }

    /// Whether `peer` is a rank of this node, itself too.
    pub fn is_near(&self, peer: Peer) -> bool {
        matches!(
            self.peers.route(peer),
            PeerRoute::Shm(_) | PeerRoute::Loopback
        )
    }

    /// Wakes a peer of this node, if it sleeps, after a store to memory that it looks at.
    #[inline(always)]
    pub fn nudge(&mut self, peer: Peer) {
        self.shm.nudge(peer);
    }

    /// The bell of a peer of this node.
    pub fn bell_of(&self, peer: Peer) -> Option<&'static Bell> {
        self.shm.bell_of(peer)
    }

    /// Wakes those of several peers of this node that sleep, after stores to memory that they look at.
    #[inline(always)]
    pub fn nudge_all(&mut self, bells: &[&'static Bell]) {
        if Bell::does_any_sleep(bells) {
            self.shm.wake_all(bells);
        }
    }

    /// The end of [`export`](Self::export): the memory may go. Nothing happens where nothing has to.
    #[inline(always)]
    pub fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        carried!(self, peer, withdraw(peer, key));
    }

    /// Where this process is found on the network, for the others; `None` where it needs none.
    #[must_use]
    pub fn network_record(&self) -> Option<Vec<u8>> {
        self.net.as_ref().map(NetworkProvider::record)
    }

    /// Whether [`wanted_address`](Self::wanted_address), [`next_complaint`](Self::next_complaint), [`next_remark`](Self::next_remark)
    /// or [`next_port_change`](Self::next_port_change) has anything to say.
    #[inline(always)]
    #[must_use]
    pub fn has_network_news(&self) -> bool {
        self.net.as_ref().is_some_and(NetworkProvider::has_news)
    }

    /// Something about the network that the user should know: what broke, between which hosts, what to try.
    pub fn next_complaint(&mut self) -> Option<String> {
        self.net.as_mut()?.next_complaint()
    }

    /// What the user should know once of a job, whoever finds it: that connections carry what devices of two hosts do not, and why;
    /// that a way carries less than the ports at its ends.
    pub fn next_remark(&mut self) -> Option<String> {
        self.net.as_mut()?.next_remark()
    }

    /// A port of the network that has gone down or come back.
    pub fn next_port_change(&mut self) -> Option<PortChange> {
        self.net.as_mut()?.next_port_change()
    }

    /// A peer whose record is needed now: [`learn_address`](Self::learn_address) takes it. Each is named once.
    pub fn wanted_address(&mut self) -> Option<Peer> {
        self.net.as_mut()?.wanted_address()
    }

    /// Takes the [record](Self::network_record) of a peer.
    pub fn learn_address(&mut self, peer: Peer, record: &[u8]) {
        if let Some(net) = &mut self.net {
            net.learn_address(peer, record);
        }
    }

    /// Marks `peer` dead, for the reason `why`: nothing is sent to it any more, and its operations end. Tells so with
    /// [`Lost`](crate::Completion::Lost) where a network reaches the peer, unless it was lost before; nothing happens elsewhere.
    pub fn lose(&mut self, peer: Peer, why: &str) {
        carried!(self, peer, lose(peer, why));
    }

    /// Why a peer was [lost](crate::Completion::Lost), in words.
    #[must_use]
    pub fn why_lost(&self, peer: Peer) -> Option<&str> {
        self.net.as_ref()?.why_lost(peer)
    }

    /// Whether all that was sent over a network has arrived; else poll until it has, before the process ends.
    #[must_use]
    pub fn is_quiet(&mut self) -> bool {
        self.net.as_mut().is_none_or(NetworkProvider::is_quiet)
    }

    /// What the network did so far.
    #[must_use]
    pub fn net_stats(&self) -> NetStats {
        self.net
            .as_ref()
            .map_or_else(NetStats::default, |net| net.stats().1)
    }

    /// Memory that the network takes of this process now, and at most, in bytes.
    #[must_use]
    pub fn net_memory(&self) -> (usize, usize) {
        self.net.as_ref().map_or((0, 0), NetworkProvider::memory)
    }

    /// Posts a read: fills the lease from byte `offset` of the peer's memory. Ends with a completion, always.
    pub fn post_read(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        carried!(self, peer, post_read(peer, lease, key, offset, work));
    }

    /// Posts a write of the lease to byte `offset` of the peer's memory; with `immediate`, tells the peer. Ends with
    /// a completion, always.
    ///
    /// # Errors
    /// [`Full`] gives the lease back: the immediate needs room; poll and post again.
    pub fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        carried!(
            self,
            peer,
            post_write(peer, lease, key, offset, work, immediate)
        )
    }

    /// Posts an atomic operation on the word at byte `offset` of the peer's memory, which must be aligned to 8 bytes (else
    /// [`WorkOutcome::BadKey`](crate::WorkOutcome)). The lease, of 8 bytes, gets what was there before. Ends with a completion,
    /// always; with [`WorkOutcome::Unknown`](crate::WorkOutcome) if a queue pair broke over it, since it is never done twice.
    ///
    /// Over a network the adapter does it, elsewhere a CPU: the two know nothing of each other. Operations on one word
    /// are atomic to each other only if all of them go over a network or none does. So a process must not change memory
    /// that others reach over a network by an operation on itself, nor by one of a peer of its node.
    ///
    /// # Panics
    /// When the lease has another length.
    pub fn post_atomic(
        &mut self,
        peer: Peer,
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        assert_eq!(lease.bytes(), WORD_BYTES, "a lease for one word");
        carried!(
            self,
            peer,
            post_atomic(peer, atomic, lease, key, offset, work)
        );
    }

    /// Asks once what happened, without waiting, and does a bounded share of the work that is under way.
    #[inline(always)]
    pub fn poll(&mut self, completions: &mut Completions) {
        self.poll_all_but_shm(completions);
        self.shm.poll_all(completions);
    }

    /// As [`poll`](Self::poll), but for what has come over the ring that is polled first: for who takes
    /// [frame after frame](Self::first_frame) from there, and must not forget the others.
    pub fn poll_beside_first(&mut self, completions: &mut Completions) {
        self.poll_all_but_shm(completions);
        self.shm.poll_beside_first(completions);
    }

    #[inline(always)]
    fn poll_all_but_shm(&mut self, completions: &mut Completions) {
        completions.clear();
        if self.loopback.has_completions() || self.polls_others {
            self.poll_others(completions);
        }
        if let Some(net) = &mut self.net {
            net.poll(completions);
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_others(&mut self, completions: &mut Completions) {
        self.loopback.poll(completions);
        if let Some(sim) = &mut self.sim {
            sim.poll(completions);
        }
        self.later.poll(completions);
    }

    /// Promises that the caller says [`uncork`](Self::uncork) after each poll that gave more than one completion, when it has done what
    /// follows from them: what it posts meanwhile over connections may leave together.
    pub fn promise_uncork(&mut self) {
        if let Some(net) = &mut self.net {
            net.promise_uncork();
        }
    }

    /// What follows from the last poll is done.
    #[inline]
    pub fn uncork(&mut self) {
        if let Some(net) = &mut self.net {
            net.uncork();
        }
    }

    /// Copies the body of an arrived frame, or as much as fits; answers how many bytes that was.
    #[inline(always)]
    pub fn copy_body(&self, arrived: &Arrived, target: &mut [u8]) -> usize {
        match arrived.body {
            RecvBuffer::Inline { bytes } => copy_inline(&arrived.words, usize::from(bytes), target),
            RecvBuffer::Lent { index, bytes } => match self.peers.route(arrived.peer) {
                // Most are from there, and the number is at hand.
                PeerRoute::Shm(local) => self.shm.copy_lent_by(local, index, bytes, target),
                _ => carried!(
                    &self,
                    arrived.peer,
                    copy_lent(arrived.peer, index, bytes, target)
                ),
            },
        }
    }

    /// Gives the buffer of an arrived frame back to its provider. Nothing happens for bodies inside the frame.
    #[inline(always)]
    pub fn release(&mut self, arrived: &Arrived) {
        if let RecvBuffer::Lent { index, .. } = arrived.body {
            match self.peers.route(arrived.peer) {
                PeerRoute::Shm(local) => self.shm.release_to(local, index),
                _ => carried!(self, arrived.peer, release(arrived.peer, index)),
            }
        }
    }

    /// Whether this process should look at its rings so eagerly that senders need not ring (a core is free for it).
    pub fn set_attentive(&mut self, attentive: bool) {
        self.shm.set_attentive(attentive);
        self.later.set_attentive(attentive);
    }

    /// Whether [`first_frame`](Self::first_frame) shows nothing before the next [`poll`](Self::poll): frame by frame, the
    /// other peers and what is under way would be forgotten, so it ends after some hundreds.
    #[inline(always)]
    #[must_use]
    pub fn must_poll(&self) -> bool {
        self.shm.must_poll()
    }

    /// Whether [`must_poll`](Self::must_poll) holds only because so many frames were taken one by one: most likely there are more.
    #[inline(always)]
    #[must_use]
    pub fn has_run_out(&self) -> bool {
        self.shm.has_run_out()
    }

    /// Looks whether a frame has come over the network, and does nothing else: the fast path of waiting for a peer far away.
    /// Frames come in the same order as by [`poll`](Self::poll), which is wanted now and then.
    #[inline(always)]
    pub fn look_far(&mut self) -> FarLook {
        match &mut self.net {
            Some(net) => net.look(),
            None => FarLook::Poll,
        }
    }

    /// Whether all that comes from other processes comes over the network.
    #[inline(always)]
    #[must_use]
    pub fn is_all_networked(&self) -> bool {
        self.net.is_some() && self.shm.is_alone()
    }

    /// Whether there is a network: then frames may come that [`first_frame`](Self::first_frame) does not show.
    #[inline(always)]
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.net.is_some()
    }

    /// Whether data of this process are moved by processors that it had better leave alone while it waits.
    #[inline]
    #[must_use]
    pub fn needs_cores(&self) -> bool {
        self.net.as_ref().is_some_and(NetworkProvider::needs_cores)
    }

    /// Whether what comes from the network wakes a process that sleeps; else it is found late.
    #[inline]
    #[must_use]
    pub fn is_woken_by_network(&self) -> bool {
        self.net.as_ref().is_none_or(NetworkProvider::wakes)
    }

    /// Says that this process has to wait for its core, since others than it knows of want it; those with whom it is connected hear of
    /// that, as far as their wire tells it.
    pub fn set_lacks_core(&mut self, lacks_core: bool) {
        if let Some(net) = &mut self.net {
            net.set_lacks_core(lacks_core);
        }
    }

    /// Whether some process on another host has to wait for its core. It may wait for this one: hosts may be virtual machines or
    /// containers of one machine, and nobody there knows of the others.
    #[inline]
    #[must_use]
    pub fn is_any_peer_lacking(&self) -> bool {
        self.net
            .as_ref()
            .is_some_and(NetworkProvider::is_any_peer_lacking)
    }

    /// Whether [`set_attentive`](Self::set_attentive) holds.
    #[inline(always)]
    #[must_use]
    pub fn is_attentive(&self) -> bool {
        self.shm.is_attentive()
    }

    /// CPUs that the other ranks of this node say they may use, one mask per rank that has introduced itself.
    pub fn neighbours_cpus(&self) -> impl Iterator<Item = [u64; 16]> {
        self.shm.neighbours_cpus()
    }

    /// What was moved so far.
    #[must_use]
    pub fn stats(&self) -> FabricStats {
        match (&self.sim, &self.net) {
            (Some(sim), _) => sim.stats(),
            (None, None) => self.stats_of_node(),
            (None, Some(net)) => self.stats_of_node().with(&net.stats().0),
        }
    }

    fn stats_of_node(&self) -> FabricStats {
        let mut stats = self.shm.stats();
        stats.sends += self.later.sent();
        stats
    }

    #[cold]
    #[inline(never)]
    fn net(&mut self) -> &mut NetworkProvider {
        self.net.as_mut().expect(WITH_NET)
    }

    #[cold]
    #[inline(never)]
    fn sim(&mut self) -> &mut Sim {
        self.sim.as_mut().expect(WITH_SIM)
    }
}

const WITH_NET: &str = "only a fabric with a network has such routes";
const WITH_SIM: &str = "only a fabric on a simulated network has such routes";

#[inline(always)]
fn post_word(net: &mut NetworkProvider, peer: Peer, head: Head, body: &[u8]) -> bool {
    if let Ok(word) = body.try_into() {
        return net.post_word::<8>(peer, head, u64::from_ne_bytes(word));
    }
    match body.try_into() {
        Ok(word) => net.post_word::<4>(peer, head, u32::from_ne_bytes(word).into()),
        Err(_) => false,
    }
}

#[inline(always)]
fn copy_inline(words: &[u64], bytes: usize, target: &mut [u8]) -> usize {
    if bytes == 8
        && let Some(target) = target.first_chunk_mut::<8>()
    {
        *target = words[0].to_ne_bytes();
        return 8;
    }
    copy_words(words, bytes, target)
}

#[inline(never)]
fn copy_words(words: &[u64], bytes: usize, target: &mut [u8]) -> usize {
    let bytes = bytes.min(target.len()).min(8 * words.len());
    words::unpack(|at| words[at], &mut target[..bytes]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_nobody_reaches_is_named_when_the_fabric_is_opened() {
        let no_network = Config {
            providers: Providers {
                shm: true,
                verbs: false,
                tcp: false,
                roce: false,
                dpdk: false,
            },
            ..Config::alone()
        };
        let no_device = Config {
            network: NetworkSettings::default().on_devices("no_such_device"),
            providers: Providers {
                tcp: false,
                ..Providers::default()
            },
            ..Config::alone()
        };
        for config in [no_network, no_device] {
            let config = Config { peers: 3, ..config };
            let words = Fabric::open(config).unwrap_err().to_string();
            assert!(words.starts_with("no provider reaches rank 1"), "{words}");
        }
    }

    #[test]
    fn a_fabric_may_move_to_another_thread() {
        fn movable<T: Send>() {}
        movable::<Fabric>();
    }
}
