// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one boundary between the verbs vocabulary and the code that carries bytes. That code is a closed set of
//! providers; one of them reaches each peer.

mod caps;
mod cma;
mod config;
mod counters;
mod distance;
mod faked;
mod far;
mod frame_burst;
mod frame_list;
mod later;
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
pub use counters::{FabricCounters, FabricStats};
use later::Later;
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
pub(crate) use verbs::inspect;
pub use verbs::{
    FakeConfig, FakeNet, FakeStats, ForeignPeer, GidPlaces, NetLimits, NetStats, NetTerms, NetWord,
    NetworkSettings, PacketFaults, PacketNet, PortChange, Rendezvous, WordPoll,
};
use wire::Provider;

/// Calls a method of the provider that reaches a peer; with `&`, a method that takes `&self`.
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
/// | kind      | calls |
/// |-----------|-----|
/// | opening   | [`open`](Self::open); in tests `faked`, `simulated`; later `attach`, `add_far` |
/// | addresses | `network_record`; `set_peer_address` for each peer that `next_unresolved` returns |
/// | sending   | `caps`, `provider_of`, `max_send_bytes`; `post_send`, `post_announcement`, `decline`, `post_deferrable`, `has_deferred`; on the fast paths (*lanes*) `post_word`, `post_fast`, `post_far_word`, `post_far_deferrable`, then perhaps `ring_bell` |
/// | memory    | `export` or `offer`, `withdraw`; `register` or `expose`, `deregister`; `allocate`, `free` |
/// | one-sided | `post_read`, `post_write`, `post_atomic` |
/// | polling   | `poll`, then `copy_body` and `release` of each frame, and `uncork` if that was promised (`promise_uncork`); in a lane `first_frame`, `poll_word`, and `poll_beside_first` when `must_poll` says so |
/// | waiting   | `set_attentive`; in `provider/sleep.rs` `prepare_sleep`, then `sleep` or `stay_awake`; to wake others `nudge`, `nudge_all` |
/// | the node  | `claim_board`, `take_seat` or `decline_board`, `leave_board`; `make_lines`, `line_of`, `place_of` |
/// | loss      | `lose`, `why_lost`; `next_warning`, `next_remark`, `next_port_change` |
/// | the end   | `is_quiet` |
/// | counts    | `stats`, `counters`, `net_stats`, `net_memory` |
///
/// There are more than sixty methods, one for each call of the vocabulary. Nearly all pass the call on to one provider,
/// or to all providers.
#[derive(Debug)]
pub struct Fabric {
    peers: Peers,
    shm: Shm,
    loopback: Loopback,
    /// Segments attached after opening.
    later: Later,
    /// Whether there is a simulated network, or a segment attached after opening.
    polls_others: bool,
    sim: Option<Sim>,
    net: Option<NetworkProvider>,
    /// The wait counters that this process publishes, if they may be read from outside.
    waits: Option<&'static WaitCounts>,
    wait_set: WaitSet,
    /// Whether the prepared sleep skips the network: its descriptors are watched already, and nothing is pending on it.
    leaves_net: bool,
}

impl Fabric {
    /// Opens a queue pair to every peer. Peers with which nothing is exchanged cost little memory.
    ///
    /// # Errors
    /// When a provider cannot be set up, or some peer is reached by no provider.
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

    /// Joins a further segment of this node. Those of its processes that are peers already are reached as before; the
    /// others become new peers. `node` lists their numbers, which must follow those of the existing peers. A segment is
    /// never left: other processes may access the segment at any time.
    ///
    /// # Errors
    /// [`Error::PeerNumbers`] when the numbers of the new peers do not follow those of the existing ones. Nothing was
    /// done then.
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

    /// Number of peers, this process included.
    #[must_use]
    pub fn peer_count(&self) -> u32 {
        self.peers.count()
    }

    /// The capabilities of the queue pair to `peer`.
    #[must_use]
    pub fn caps(&self, peer: Peer) -> Caps {
        carried!(&self, peer, caps(peer))
    }

    /// The provider that reaches `peer`, as named in `RMPI_PROVIDERS`; `None` while the choice between `verbs` and
    /// `tcp` is open.
    #[must_use]
    pub fn provider_of(&self, peer: Peer) -> Option<&'static str> {
        match self.peers.route(peer) {
            PeerRoute::Loopback => Some("self"),
            PeerRoute::Shm(_) | PeerRoute::Later(_) => Some("shm"),
            PeerRoute::Sim => Some("sim"),
            PeerRoute::Net => self.net.as_ref()?.provider_of(peer),
        }
    }

    /// Size of the largest body that can be sent to each present peer.
    #[must_use]
    pub fn max_send_bytes(&self) -> usize {
        let all = (0..self.peer_count()).map(|peer| self.caps(Peer(peer)));
        let all = all.map(|caps| caps.max_send_bytes);
        all.min().unwrap_or(ring::layout::POOL_BUFFER_BYTES)
    }

    /// Posts a send. The bytes are copied before the call returns. `head.kind` is a kind of an [`Owner`](crate::Owner);
    /// `head.len` is ignored.
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

    /// As [`post_send`](Self::post_send), for a frame that only announces data which a later poll moves. If something
    /// was already posted to the peer since the last poll, the frame may leave with the next frame to that peer, or
    /// with the next poll. Over TCP it leaves 0.2 s later without a poll.
    ///
    /// `data`: memory that was [offered](Self::offer) to the peer. It does not change until the key is
    /// [withdrawn](Self::withdraw), and the peer is expected to read all of it. If a read of the data would make this
    /// process send them anyway, they may leave with the announcement; a read of all of them then ends without a
    /// request.
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

    /// As [`post_send`](Self::post_send), for a frame of a program that will wait for it in a later call. If some such
    /// frames have been posted to the peer since the last poll, the frame may leave with later ones, at the latest with
    /// the next frame to that peer that is not deferrable, or with the next poll
    /// ([`has_deferred`](Self::has_deferred)).
    ///
    /// # Errors
    /// As those of [`post_send`](Self::post_send).
    ///
    /// # Panics
    /// As [`post_send`](Self::post_send).
    #[inline]
    pub fn post_deferrable(&mut self, peer: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        match self.peers.route(peer) {
            PeerRoute::Net => self.net().post_deferrable(peer, head, body),
            _ => self.post_send(peer, head, body),
        }
    }

    /// Whether frames that were [deferred](Self::post_deferrable) may wait for the next poll.
    #[inline]
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        self.net.as_ref().is_some_and(NetworkProvider::has_deferred)
    }

    /// Declares that data which `peer` [announced](Self::post_announcement) with this key will not be read: the part
    /// that has arrived is dropped, and for some time the peer sends no data with its announcements.
    pub fn decline(&mut self, peer: Peer, key: RemoteKey) {
        if let PeerRoute::Net = self.peers.route(peer) {
            self.net().decline(peer, key);
        }
    }

    /// The fast path: posts a send of `BYTES` bytes, eight or four, if a ring slot is known to be free. `head.len` must
    /// be `BYTES`. `None`: nothing was posted. After `Some(false)` the caller must [`ring_bell`](Self::ring_bell).
    #[inline(always)]
    pub fn post_word<const BYTES: u8>(
        &mut self,
        peer: Peer,
        head: impl FnOnce() -> Head,
        word: impl FnOnce() -> u64,
    ) -> Option<bool> {
        self.shm.post_word::<BYTES>(peer, head, word)
    }

    /// The fast path for bodies up to [`Caps::max_send_bytes`]: posts a send to a peer of this node if a ring slot is
    /// known to be free. `None`: nothing was posted, or the peer has no ring. After `Some(false)` the caller must
    /// [`ring_bell`](Self::ring_bell).
    #[inline(always)]
    pub fn post_fast(&mut self, peer: Peer, head: Head, body: &[u8]) -> Option<bool> {
        self.shm.post_fast(peer, head, body)
    }

    /// The counters, which may be read at any time.
    #[must_use]
    pub fn counters(&self) -> FabricCounters {
        FabricCounters {
            net: self.net.as_ref().map(NetworkProvider::counts),
            ..self.shm.counters()
        }
    }

    /// The fast path to peers over a network: posts a send of four or eight bytes. The caller rings no bell afterwards.
    /// `false`: nothing was posted, or no network reaches the peer.
    #[inline(always)]
    pub fn post_far_word(&mut self, peer: Peer, head: Head, body: &[u8]) -> bool {
        match &mut self.net {
            Some(net) if self.peers.route(peer) == PeerRoute::Net => {
                net.post_word(peer, head, body)
            }
            _ => false,
        }
    }

    /// The fast path of [`post_deferrable`](Self::post_deferrable) to peers over a network. `false`: nothing was posted,
    /// or no network reaches the peer.
    #[inline(always)]
    pub fn post_far_deferrable(&mut self, peer: Peer, head: Head, body: &[u8]) -> bool {
        match &mut self.net {
            Some(net) if self.peers.route(peer) == PeerRoute::Net => {
                net.post_deferrable(peer, head, body).is_ok()
            }
            _ => false,
        }
    }

    /// Announces that the next poll is one between two sends of a program that still starts sends:
    /// [deferred](Self::post_deferrable) frames stay deferred.
    pub fn begin_poll_between_sends(&mut self) {
        if let Some(net) = &mut self.net {
            net.begin_poll_between_sends();
        }
    }

    /// Rings the [`Bell`] of a peer, which does not poll the ring of this process.
    pub fn ring_bell(&mut self, peer: Peer) {
        self.shm.ring_bell(peer);
    }

    /// The next frame of one ring, that of the first active sender, without a poll: the fast path of receiving. The
    /// frame stays in the ring until it is [taken](FirstFrame::take). Only [`poll`](Self::poll) returns all frames.
    #[inline(always)]
    pub fn first_frame(&mut self) -> Option<FirstFrame<'_>> {
        self.shm.first_frame()
    }

    /// As [`first_frame`](Self::first_frame), but only if the frame has this kind, this length in bytes, and no flags.
    #[inline(always)]
    pub fn first_plain_frame(&mut self, kind: u8, len: u8) -> Option<FirstFrame<'_>> {
        self.shm.first_plain_frame(kind, len)
    }

    /// Allocates memory, zeroed and page-aligned, that peers can read and write without help of this process; `None` if
    /// there is no such memory, or no more. It is shared with child processes too, and stays registered with the
    /// network until it is [freed](Self::free).
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

    /// Frees memory that [`allocate`](Self::allocate) returned. Returns `false` if `allocate` did not return it, or it
    /// was freed already.
    pub fn free(&mut self, place: NonNull<u8>) -> bool {
        let freed = self.net.as_mut().is_some_and(|net| net.disown(place));
        freed || self.shm.free(place)
    }

    /// Claims a [board](Seat) for processes of this node, under the key `key`. `false`: there are no boards, or none is
    /// free.
    pub fn claim_board(&mut self, key: u32) -> bool {
        let node = self.shm.node.as_ref();
        node.is_some_and(|node| seat::claim(node, key))
    }

    /// Gives back a claimed board. Call it only if no other process has received the key.
    pub fn unclaim_board(&mut self, key: u32) {
        if let Some(node) = &self.shm.node {
            seat::leave(node, key, 1);
        }
    }

    /// Takes a seat at the board `key` for this process and the other `members`, in the order of their places; each
    /// member takes a seat. `None`: there is no such board, or some members are on other nodes.
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

    /// If there is a board `key`, gives it up, because `members` do not [take seats](Self::take_seat) at it. Every
    /// member calls this.
    pub fn decline_board(&mut self, key: u32, members: impl Iterator<Item = Peer>) {
        let near = members
            .filter(|peer| self.peers.is_at_boards(*peer))
            .count();
        self.leave_board(key, u32::try_from(near).unwrap_or(u32::MAX));
    }

    /// Leaves for good the board `key` of `members` processes; does nothing if there is none. Every member calls this.
    pub fn leave_board(&mut self, key: u32, members: u32) {
        if let Some(node) = &self.shm.node {
            seat::leave(node, key, members);
        }
    }

    /// Whether data that `key` names for `peer` should be sent now, through buffers, rather than be read by `peer`: an
    /// estimate from measurements. Each call counts as a message: now and then it returns `true` only to measure again.
    /// Always `false` if the peer reads without help of the kernel: then one copy is at least as fast as two, wherever
    /// the data are.
    pub fn had_better_stream(&mut self, peer: Peer, key: RemoteKey) -> bool {
        carried!(self, peer, had_better_stream(peer, key))
    }

    /// Names leased memory for `peer`, which can read (or write) it until the lease ends.
    pub fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        carried!(self, peer, export(peer, address, bytes))
    }

    /// Names leased memory for `peer`, which can read its present content. A network may copy the content; the peer
    /// then reads the copy. The caller [withdraws](Self::withdraw) the key when the peer has reported that it reads no
    /// more, or is lost.
    pub fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        carried!(self, peer, offer(peer, address, bytes))
    }

    /// Registers memory from which there will be many writes to `peer`. A write registers nothing if its lease is
    /// inside this memory and has the returned key as [local key](Lease::with_key). The memory must stay mapped until
    /// the key is [given back](Self::deregister). `None`: the memory is registered already, needs no registration, or
    /// cannot be registered.
    pub fn register(&mut self, peer: Peer, address: u64, bytes: u64) -> Option<LocalKey> {
        carried!(self, peer, register(address, bytes))
    }

    /// Registers leased memory once for all peers: [exports](Self::export) of parts of it, however many, register
    /// nothing. The memory must stay leased until the key is [given back](Self::deregister); until then, a peer that
    /// has the key of one export can access all of it. `None`: the memory needs no registration, or it cannot be
    /// registered and each export registers the memory that it names.
    pub fn expose(&mut self, address: u64, bytes: usize) -> Option<LocalKey> {
        self.net.as_mut()?.expose(address, bytes)
    }

    /// Ends a [`register`](Self::register), whose writes must all have ended, or an [`expose`](Self::expose).
    pub fn deregister(&mut self, key: LocalKey) {
        if let Some(net) = &mut self.net {
            net.deregister(key);
        }
    }

    /// Whether `peer` writes to this memory of this process without the kernel: by a device, or by a copy in memory
    /// that both processes have mapped.
    #[must_use]
    pub fn reaches_directly(&self, peer: Peer, address: u64, bytes: u64) -> bool {
        carried!(&self, peer, reaches_directly(address, bytes))
    }

    /// Makes gate lines in memory that the other ranks of the node can map, and returns them with their names; returns
    /// none if there is no such memory, or it is used up. Gate lines are never freed.
    pub fn make_lines(&mut self) -> Vec<(&'static GateLine, u64)> {
        self.shm.make_lines()
    }

    /// The gate line named by a peer of this node, or by this process itself.
    pub fn line_of(&mut self, peer: Peer, name: u64) -> Option<&'static GateLine> {
        match self.peers.route(peer) {
            PeerRoute::Shm(local) => self.shm.line_of(local, name),
            PeerRoute::Loopback => self.shm.own_line(name),
            PeerRoute::Later(_) | PeerRoute::Sim | PeerRoute::Net => None,
        }
    }

    /// Reserves memory in which [`line_of`](Self::line_of) and [`place_of`](Self::place_of) record `places` more places
    /// of a peer, and memory for the completions of `works` writes to ranks of the node.
    pub fn expect_lines(&mut self, peer: Peer, places: usize, works: usize) {
        if let PeerRoute::Shm(_) = self.peers.route(peer) {
            self.shm.expect_lines(places, works);
        }
    }

    /// The address at which memory of a peer of this node is mapped here, if it is mapped in one piece.
    pub fn place_of(&mut self, peer: Peer, key: RemoteKey) -> Option<NonNull<u8>> {
        carried!(self, peer, place_of(peer, key))
    }

    /// Whether `peer` is a rank of this node, or this process.
    pub fn is_near(&self, peer: Peer) -> bool {
        matches!(
            self.peers.route(peer),
            PeerRoute::Shm(_) | PeerRoute::Loopback
        )
    }

    /// Wakes a peer of this node, if it sleeps, after a store to memory that it polls.
    #[inline(always)]
    pub fn nudge(&mut self, peer: Peer) {
        self.shm.nudge(peer);
    }

    /// The bell of a peer of this node.
    pub fn bell_of(&self, peer: Peer) -> Option<&'static Bell> {
        self.shm.bell_of(peer)
    }

    /// Wakes those of several peers of this node that sleep, after stores to memory that the peers poll.
    #[inline(always)]
    pub fn nudge_all(&mut self, bells: &[&'static Bell]) {
        if Bell::does_any_sleep(bells) {
            self.shm.wake_all(bells);
        }
    }

    /// Ends an [`export`](Self::export) or [`offer`](Self::offer): the memory may be reused. Does nothing if no key was
    /// made.
    #[inline(always)]
    pub fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        carried!(self, peer, withdraw(peer, key));
    }

    /// This process's network addresses, for its peers; `None` if it has no network.
    #[must_use]
    pub fn network_record(&self) -> Option<Vec<u8>> {
        self.net.as_ref().map(NetworkProvider::record)
    }

    /// Whether [`next_unresolved`](Self::next_unresolved), [`next_warning`](Self::next_warning),
    /// [`next_remark`](Self::next_remark) or [`next_port_change`](Self::next_port_change) would return something.
    #[inline(always)]
    #[must_use]
    pub fn has_network_notices(&self) -> bool {
        self.net.as_ref().is_some_and(NetworkProvider::has_notices)
    }

    /// The next warning about the network for the user: what broke, between which hosts, and what to try.
    pub fn next_warning(&mut self) -> Option<String> {
        self.net.as_mut()?.next_warning()
    }

    /// The next remark for the user, to be shown once per job, whichever process makes it. It says that TCP connections
    /// carry the messages between two hosts although both have devices, and why; or that a path carries less than the
    /// ports at its ends.
    pub fn next_remark(&mut self) -> Option<String> {
        self.net.as_mut()?.next_remark()
    }

    /// The next network port that has gone down or come back.
    pub fn next_port_change(&mut self) -> Option<PortChange> {
        self.net.as_mut()?.next_port_change()
    }

    /// The next peer whose record is needed for [`set_peer_address`](Self::set_peer_address). Each is returned once.
    pub fn next_unresolved(&mut self) -> Option<Peer> {
        self.net.as_mut()?.next_unresolved()
    }

    /// Records a peer's [network record](Self::network_record).
    pub fn set_peer_address(&mut self, peer: Peer, record: &[u8]) {
        if let Some(net) = &mut self.net {
            net.set_peer_address(peer, record);
        }
    }

    /// Marks `peer` dead, for the reason `why`: nothing is sent to it any more, and its operations end. If a network
    /// reaches the peer and the peer was not lost before, there is a completion [`Lost`](crate::Completion::Lost); for
    /// other peers the call has no effect.
    pub fn lose(&mut self, peer: Peer, why: &str) {
        carried!(self, peer, lose(peer, why));
    }

    /// Why a peer was [lost](crate::Completion::Lost), in words.
    #[must_use]
    pub fn why_lost(&self, peer: Peer) -> Option<&str> {
        self.net.as_ref()?.why_lost(peer)
    }

    /// Whether all that was sent over a network has arrived. Before the process ends, it must poll until this is
    /// `true`.
    #[must_use]
    pub fn is_quiet(&mut self) -> bool {
        self.net.as_mut().is_none_or(NetworkProvider::is_quiet)
    }

    /// Statistics of the network.
    #[must_use]
    pub fn net_stats(&self) -> NetStats {
        self.net
            .as_ref()
            .map_or_else(NetStats::default, |net| net.stats().1)
    }

    /// Memory that the network uses in this process now, and at most, in bytes.
    #[must_use]
    pub fn net_memory(&self) -> (usize, usize) {
        self.net.as_ref().map_or((0, 0), NetworkProvider::memory)
    }

    /// Posts a read: fills the lease from byte `offset` of the peer's memory. Always ends with a completion.
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

    /// Posts a write of the lease to byte `offset` of the peer's memory; with `immediate`, the peer gets a completion.
    /// Always ends with a completion here.
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

    /// Posts an atomic operation on the word at byte `offset` of the peer's memory, which must be aligned to 8 bytes
    /// (else [`WorkOutcome::BadKey`](crate::WorkOutcome)). The lease, of 8 bytes, gets the previous value. Always ends
    /// with a completion; with [`WorkOutcome::Unknown`](crate::WorkOutcome) if the queue pair broke meanwhile, since
    /// the operation is never carried out twice.
    ///
    /// Over a network the adapter, or the software in place of one, carries the operation out; elsewhere a CPU of this
    /// process does. So operations on one word are atomic to each other only if all of them go over a network or none
    /// does: memory that some peers change over a network must not be changed by atomic operations of its own process,
    /// nor by those of peers of its node.
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

    /// Returns the events that have occurred, without waiting, and does a bounded share of the pending work.
    #[inline(always)]
    pub fn poll(&mut self, completions: &mut Completions) {
        self.poll_all_but_shm(completions);
        self.shm.poll_all(completions);
    }

    /// As [`poll`](Self::poll), but without the ring of [`first_frame`](Self::first_frame): for a caller that takes
    /// frame after frame from that ring and must also serve the others.
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

    /// Promises that after each poll that returned more than one completion, the caller calls [`uncork`](Self::uncork)
    /// when it has handled them: what is posted meanwhile over TCP connections or user-space ports may leave together.
    pub fn promise_uncork(&mut self) {
        if let Some(net) = &mut self.net {
            net.promise_uncork();
        }
    }

    /// Reports that the last poll's completions are handled: sends the frames held back meanwhile.
    #[inline]
    pub fn uncork(&mut self) {
        if let Some(net) = &mut self.net {
            net.uncork();
        }
    }

    /// Copies the body of an arrived frame, or as much as fits; returns the number of bytes.
    #[inline(always)]
    pub fn copy_body(&self, arrived: &Arrived, target: &mut [u8]) -> usize {
        match arrived.body {
            RecvBuffer::Inline { bytes } => words::copy(&arrived.words, usize::from(bytes), target),
            RecvBuffer::Lent { index, bytes } => match self.peers.route(arrived.peer) {
                // The most frequent case: the route already contains the local rank, which `carried` would look up
                // again.
                PeerRoute::Shm(local) => self.shm.copy_lent_by(local, index, bytes, target),
                _ => carried!(
                    &self,
                    arrived.peer,
                    copy_lent(arrived.peer, index, bytes, target)
                ),
            },
        }
    }

    /// Gives the buffer of an arrived frame back to its provider. Has no effect for bodies inside the frame.
    #[inline(always)]
    pub fn release(&mut self, arrived: &Arrived) {
        if let RecvBuffer::Lent { index, .. } = arrived.body {
            match self.peers.route(arrived.peer) {
                PeerRoute::Shm(local) => self.shm.release_to(local, index),
                _ => carried!(self, arrived.peer, release(arrived.peer, index)),
            }
        }
    }

    /// Sets whether this process polls its rings so often that senders need not ring its bell. That is so if a core is
    /// free for the process.
    pub fn set_attentive(&mut self, attentive: bool) {
        self.shm.set_attentive(attentive);
        self.later.set_attentive(attentive);
    }

    /// Whether [`first_frame`](Self::first_frame) returns nothing before the next [`poll`](Self::poll). `first_frame`
    /// stops after some hundreds of frames, since it serves neither the other peers nor pending operations.
    #[inline(always)]
    #[must_use]
    pub fn must_poll(&self) -> bool {
        self.shm.must_poll()
    }

    /// Whether [`must_poll`](Self::must_poll) holds only because the limit of frames taken one by one is reached: then
    /// more frames are probably waiting.
    #[inline(always)]
    #[must_use]
    pub fn has_run_out(&self) -> bool {
        self.shm.has_run_out()
    }

    /// The fast path of waiting for a remote peer: checks only whether a frame has come over the network. Returns
    /// frames in the order in which [`poll`](Self::poll) would; `poll` must still be called now and then.
    #[inline(always)]
    pub fn poll_word(&mut self) -> WordPoll {
        match &mut self.net {
            Some(net) => net.poll_word(),
            None => WordPoll::Poll,
        }
    }

    /// Whether everything from other processes comes over the network.
    #[inline(always)]
    #[must_use]
    pub fn is_all_networked(&self) -> bool {
        self.net.is_some() && self.shm.is_alone()
    }

    /// Whether there is a network, over which frames may come that [`first_frame`](Self::first_frame) does not return.
    #[inline(always)]
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.net.is_some()
    }

    /// Whether this process must not spin while it waits, because it may occupy the processors that move its data.
    #[inline]
    #[must_use]
    pub fn needs_cores(&self) -> bool {
        self.net.as_ref().is_some_and(NetworkProvider::needs_cores)
    }

    /// Whether network events wake a sleeping process. If not, the process notices them only at its next periodic poll.
    /// `true` also if there is no network.
    #[inline]
    #[must_use]
    pub fn is_woken_by_network(&self) -> bool {
        self.net.as_ref().is_none_or(NetworkProvider::wakes)
    }

    /// Sets whether this process has to wait for its core, because unrelated processes use it; connected peers are
    /// notified, if the network's protocol supports that.
    pub fn set_lacks_core(&mut self, lacks_core: bool) {
        if let Some(net) = &mut self.net {
            net.set_lacks_core(lacks_core);
        }
    }

    /// Whether some process on another host has to wait for its core. It may be waiting for this process's core: hosts
    /// may be virtual machines or containers of one machine, which cannot see each other's load.
    #[inline]
    #[must_use]
    pub fn is_any_peer_lacking(&self) -> bool {
        self.net
            .as_ref()
            .is_some_and(NetworkProvider::is_any_peer_lacking)
    }

    /// Whether [`set_attentive`](Self::set_attentive) was called with `true` last, and took effect.
    #[inline(always)]
    #[must_use]
    pub fn is_attentive(&self) -> bool {
        self.shm.is_attentive()
    }

    /// CPU masks of the other ranks of this node, one for each rank that has published its own.
    pub fn neighbours_cpus(&self) -> impl Iterator<Item = [u64; 16]> {
        self.shm.neighbours_cpus()
    }

    /// Totals moved so far.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_fails_and_names_an_unreachable_rank() {
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
            let message = Fabric::open(config).unwrap_err().to_string();
            assert!(
                message.starts_with("no provider reaches rank 1"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_fabric_may_move_to_another_thread() {
        fn movable<T: Send>() {}
        movable::<Fabric>();
    }
}
