// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `verbs`: InfiniBand and RoCE. Every peer has a stream of packets (crate `session`) that goes as datagrams at first
//! and over a reliable queue pair after some packets; queue pairs break and are made again without losing or repeating anything.
//! Large data are read and written by the device.
//!
//! A port serves all peers (`rail.rs`): one queue of receive buffers, one pool of slots for sends, a bounded number of
//! reliable queue pairs. So memory does not grow with the number of peers but for [`VerbsPeer`](peer::VerbsPeer), which exists from
//! the first packet on.
//!
//! # Layers
//! [`Verbs`] is three things, each of which knows those before it:
//!
//! - [`VerbsLinks`](links::VerbsLinks): what carries packets. Ports ([`Rails`](rails::Rails)), what is kept for each peer
//!   ([`PeerTable`](peer_table::PeerTable)), queue pairs ([`ReliablePairs`](pair::ReliablePairs)).
//! - [`VerbsStreams`]: packets over links, kept and sent (`send.rs`).
//! - [`VerbsTransfers`]: reads, writes, atomic operations and the memory for them ([`Works`](works::Works),
//!   [`RegionRegistry`](registry::RegionRegistry), [`Fetches`](fetch::Fetches)).
//!
//! What happens to links while they are used is told upwards as a value, a [`VerbsLinkEvent`](links::VerbsLinkEvent): a part of a
//! work is back, a peer is lost. [`Verbs::settle`] hands all of them to `VerbsTransfers` before a call ends. Parts below have their
//! own files, state and tests, and are handed the others that they need.

mod address;
mod arrive;
mod bounce;
mod choose;
mod control_queue;
mod device;
mod error_text;
mod events;
mod fake;
mod fast_receive;
mod fetch;
mod gid;
mod hosts;
mod keys;
mod ledger;
mod limits;
mod links;
mod look;
mod lost_completions;
mod memory;
mod notices;
mod owned;
mod pair;
mod pairs;
mod path;
mod peer;
mod peer_identity;
mod peer_port;
mod peer_table;
mod peers;
mod pools;
mod port;
mod probe;
mod rail;
mod rails;
mod ready;
mod registry;
mod roce;
mod schedule;
mod send;
mod settings;
mod slab;
mod streams;
mod stripes;
mod transfers;
mod turn;
mod unresolved;
mod wire;
mod work;
mod works;

use std::ptr::NonNull;
use std::sync::Arc;

use super::caps::{Caps, Mover};
use super::counters::NetCounts;
use super::tcp::addresses_to;
use crate::wait_set::WaitSet;
use crate::{Full, Head, Lease, LocalKey, Peer, RemoteKey, WorkId};
pub(super) use address::MOST_RECORD_BYTES as MOST_PART_BYTES;
pub(super) use device::VerbsDevice;
pub(super) use fake::FakePort;
pub use fake::{FakeConfig, FakeNet, FakeStats};
use fast_receive::PendingWord;
pub use fast_receive::{FarLook, FarWord};
use keys::PeerKeys;
pub use limits::{GidPlaces, NetLimits, NetTerms};
use look::cannot_open;
pub(crate) use look::look;
use memory::SharedMapping;
pub use peer_identity::ForeignPeer;
pub(super) use peer_identity::PeerIdentities;
use port::CallError;
pub(super) use port::{PortCounts, VerbsPort};
pub(super) use rail::FREE_BIT;
use roce::PairNumbers;
pub(crate) use roce::dpdk_ports::configured as dpdk_ports;
pub(super) use roce::{Dpdk, Faulty, RocePort, Udp};
pub use roce::{PacketFaults, PacketNet};
pub use settings::{NetworkSettings, Rendezvous};
use streams::VerbsStreams;
use transfers::VerbsTransfers;
pub(super) use work::WorkKind;

/// The network of a process. Its methods by kind, and within a kind in the order in which they are called:
///
/// | kind | methods | file |
/// |------|---------|------|
/// | opening | `open_best` or `open_on`, which call `open`; `record` | `verbs.rs` |
/// | addresses | `meet`; `wanted_address`, then perhaps `why_apart`, and `learn_address`, which calls `meet_strangers` | `turn.rs`, `verbs.rs`, `arrive.rs` |
/// | sending | `caps`; `post_word` or `post_send` | `verbs.rs` |
/// | memory | `export` or `offer`, `withdraw`; `allocate`, `own`, `disown`; `keep_registered` or `expose`, `keep_no_more` | `verbs.rs` |
/// | one-sided | `post_work`, `post_write` | `verbs.rs` |
/// | a turn | `poll`: `take_all_received`, `flush_all`, `look_at_clock`, `take_all_events`; `settle` | `turn.rs` |
/// | what comes | `take_filled`: `take_packet`, then `deliver` or `assemble`, `hand_up`, `deliver_held`; later `copy_lent`, `release` | `arrive.rs` |
/// | the fast path | `look`: `take_first`, then `take_word` or `take_other`; `catch_up` with what a word left, before anything else | `arrive.rs` |
/// | waiting | `prepare_sleep`, `fall_asleep` (`until_due`), `wake`; `needs_cores`, `wakes` | `turn.rs`, `verbs.rs` |
/// | loss | `lose`, `why_lost`; `has_news`, `next_complaint`, `next_remark`, `next_port_change` | `verbs.rs`, `turn.rs` |
/// | the end | `is_quiet`, `drop` | `turn.rs`, `verbs.rs` |
/// | counts | `counts`, `memory` | `verbs.rs` |
#[derive(Debug)]
pub(super) struct Verbs<P: VerbsPort> {
    streams: VerbsStreams<P>,
    moves: VerbsTransfers,
    /// What the word that was handed up last has left to be done.
    chore: Option<PendingWord>,
}

/// A port has gone down, or is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// Its number among those of this process, from 0.
    pub rail: u32,
    /// Its number on its device, from 1.
    pub port: u8,
    /// Whether it is back.
    pub is_up: bool,
    /// How many ports of this process serve now.
    pub serving: u32,
}

/// What the network did so far; for tests and performance variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Packets that went as datagrams.
    pub datagrams: u64,
    /// Of these, those whose time was over before they were acknowledged.
    pub overdue: u64,
    /// Packets that went over reliable queue pairs.
    pub packets: u64,
    /// Reliable queue pairs that were joined.
    pub joined: u64,
    /// Of those that this process had asked for, the ones with shorter packets than both ports carry, since others do not arrive.
    pub narrow: u64,
    /// Of those that were joined, the ones that broke.
    pub broken: u64,
    /// Of those, the ones that broke because the peer had no buffers for too long.
    pub not_ready: u64,
    /// Reliable queue pairs that were given up for others.
    pub given_up: u64,
    /// Connections that were made beside the first one with a peer, for large reads.
    pub rails: u64,
    /// Packets that came twice.
    pub twice: u64,
    /// Bytes that the device read or wrote elsewhere on order of this process.
    pub moved_bytes: u64,
    /// Reads and writes that were shared among several rails.
    pub striped: u64,
    /// Reads that their peers carried out as writes.
    pub fetched: u64,
    /// Times that packets to a peer took another rail than before.
    pub detours: u64,
    /// Regions of memory that were ever registered.
    pub registered: u64,
    /// Bytes that are registered now; of memory that several rails know, as often.
    pub registered_bytes: u64,
    /// The most at any time.
    pub registered_most_bytes: u64,
    /// Packets of RoCE that were sent again; of this and the next two, adapters tell nothing.
    pub repeated: u64,
    /// Times that no answer came in time.
    pub timeouts: u64,
    /// Times that less was sent at once, because of congestion or losses.
    pub window_cuts: u64,
    /// Packets of RoCE whose payload the device has read where it is; adapters, which do so with all, are not counted.
    pub in_place: u64,
    /// The bytes of these payloads.
    pub in_place_bytes: u64,
}

impl<P: VerbsPort> Verbs<P> {
    /// Takes ports, at least one and at most [`rail::MOST_RAILS`], for a job of `peers` processes.
    pub(super) fn open(
        me: Peer,
        peers: u32,
        ports: impl IntoIterator<Item = P>,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        let mut verbs = Self {
            streams: VerbsStreams::open(me.0, peers, ports, limits)?,
            moves: VerbsTransfers::new(&limits),
            chore: None,
        };
        verbs.grant_bounces();
        Ok(verbs)
    }

    /// Bounce buffers may take what a process on one rail has not reserved.
    fn grant_bounces(&mut self) {
        let left = MOST_MEMORY_BYTES.saturating_sub(self.most_bytes_on(1));
        self.moves.registry.grant(left);
    }

    /// Where this process is found, for others: its address, and the name of its host for messages.
    pub(super) fn record(&self) -> Vec<u8> {
        self.streams
            .links
            .rails
            .record(self.streams.links.hosts.here())
    }

    /// Memory that all of this takes now, and that it takes at most, in bytes, with as many peers as there are.
    pub(super) fn memory(&self) -> (usize, usize) {
        let (made, granted) = self.moves.registry.bounced_bytes();
        let now = size_of::<Self>() + self.streams.links.bytes() + made;
        let most = self.most_bytes_on(self.streams.links.rails.len()) + granted;
        (now, most)
    }

    /// The most with so many rails, without bounce buffers.
    fn most_bytes_on(&self, rails: usize) -> usize {
        let told = if rails > 1 { PeerKeys::MOST_BYTES } else { 0 };
        size_of::<Self>() + self.streams.links.most_bytes_on(rails) + told
    }

    /// What is counted.
    pub(super) fn counts(&self) -> &Arc<NetCounts> {
        &self.streams.links.counts
    }

    /// Memory that stays registered until it is freed: zero, aligned to a page, shared with child processes. `None`: no more
    /// can be mapped or registered.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let mapping = SharedMapping::new(bytes)?;
        let place = mapping.place();
        let memory = (place, bytes);
        let owned = self.moves.own(&mut self.streams, memory, Some(mapping));
        owned.then_some(place)
    }

    /// Keeps memory registered that another provider has allocated, if that is possible.
    pub(super) fn own(&mut self, place: NonNull<u8>, bytes: usize) {
        self.moves.own(&mut self.streams, (place, bytes), None);
    }

    /// Forgets memory that is about to be freed. `true`: it was this provider's, and is freed.
    pub(super) fn disown(&mut self, place: NonNull<u8>) -> bool {
        self.moves
            .registry
            .owned
            .disown(place, &mut self.streams.links.rails)
    }

    /// Registers memory of the program's for many writes from there, where that saves anything.
    pub(super) fn keep_registered(&mut self, base: u64, bytes: u64) -> Option<LocalKey> {
        self.moves
            .registry
            .owned
            .keep(base, bytes, &mut self.streams.links.rails)
    }

    /// Registers memory of the program's for exports of parts of it to any peers.
    pub(super) fn expose(&mut self, base: u64, bytes: usize) -> Option<LocalKey> {
        let rails = &mut self.streams.links.rails;
        self.moves.registry.owned.expose(base, bytes, rails)
    }

    /// Forgets what one of these has registered.
    pub(super) fn keep_no_more(&mut self, key: LocalKey) {
        self.moves
            .registry
            .owned
            .keep_no_more(key, &mut self.streams.links.rails);
    }

    /// Whether the kernel moves data of this process now, on a processor that this process may be keeping from it.
    pub(super) fn needs_cores(&self) -> bool {
        self.moves.is_any_under_way() && self.streams.links.rails.is_any_in_software()
    }

    /// Whether what comes wakes a process that sleeps.
    pub(super) fn wakes(&self) -> bool {
        self.streams.links.rails.all_wake()
    }

    /// What can be done with a peer: what the device says that serves it first.
    pub(super) fn caps(&self, peer: Peer) -> Caps {
        let port = self.streams.links.port_to(peer.0);
        Caps {
            max_inline_bytes: ring::SLOT_BODY_BYTES,
            max_send_bytes: ring::layout::POOL_BUFFER_BYTES,
            reads: self.moves.fetches.mover(port.facts()),
            writes: Mover::Device,
            atomics: port.facts().atomics.then_some(Mover::Device),
            may_stream: false,
            maps: false,
            wakes: port.sign().is_some(),
        }
    }

    /// Posts a send.
    #[inline(never)]
    pub(super) fn post_send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        assert!(
            body.len() <= ring::layout::POOL_BUFFER_BYTES,
            "a send of {} bytes",
            body.len()
        );
        let is_short = body.len() <= ring::SLOT_BODY_BYTES;
        if is_short && self.streams.send_straight(to.0, head, body) {
            return Ok(());
        }
        self.catch_up();
        let posted = self.streams.post(to.0, head, body);
        self.settle();
        posted
    }

    /// Posts a send of the first `BYTES` bytes of a word where nothing stands in the way. `false`: nothing was done.
    #[inline(never)]
    pub(super) fn post_word<const BYTES: usize>(
        &mut self,
        to: Peer,
        head: Head,
        word: u64,
    ) -> bool {
        let body = word.to_ne_bytes();
        self.streams.send_straight(to.0, head, &body[..BYTES])
    }

    /// Lets `peer` reach memory.
    pub(super) fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        let key = self.moves.export(&mut self.streams, peer, address, bytes);
        self.settle();
        key
    }

    /// Lets `peer` read memory whose bytes do not change meanwhile.
    pub(super) fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        let key = self.moves.offer(&mut self.streams, peer, address, bytes);
        self.settle();
        key
    }

    /// The end of [`export`](Self::export).
    pub(super) fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        self.moves.withdraw(&mut self.streams, peer, key);
        self.settle();
    }

    /// Begins a read, or an atomic operation, which the device does if it can.
    pub(super) fn post_work(
        &mut self,
        peer: Peer,
        (kind, lease): (WorkKind, Lease),
        key: RemoteKey,
        offset: u64,
        id: WorkId,
    ) {
        let streams = &mut self.streams;
        self.moves
            .begin(streams, peer.0, lease, (key, offset), id, kind);
        self.settle();
    }

    /// Begins a write. With an immediate there must be room for the packet that carries it.
    pub(super) fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        let streams = &mut self.streams;
        let posted = self
            .moves
            .post_write(streams, peer, lease, (key, offset), id, immediate);
        self.settle();
        posted
    }

    /// Meets a process of another job, as a further peer.
    pub(super) fn meet(&mut self, peer: Peer, far: ForeignPeer) {
        self.streams.links.sides.meet(peer.0, far);
        self.grant_bounces();
    }

    /// Why a peer with this record cannot be reached, as far as that says: both sides find the same. `None`: it may be.
    pub(super) fn why_apart(&self, record: &[u8]) -> Option<String> {
        self.streams.links.why_apart(record)
    }

    /// What the launcher says about a peer.
    pub(super) fn learn_address(&mut self, peer: Peer, record: &[u8]) {
        if self.streams.links.learn_address(peer, record) {
            self.settle();
            self.meet_strangers(peer.0);
            self.streams.links.may_go_on(peer.0);
        }
        self.settle();
    }

    /// Gives a peer up.
    pub(super) fn lose(&mut self, peer: Peer, why: &str) {
        self.streams.links.lose(peer.0, why);
        self.settle();
    }

    /// Why a peer was given up.
    pub(super) fn why_lost(&self, peer: Peer) -> Option<&str> {
        self.streams.links.sides.find(peer.0)?.why_lost()
    }
}

impl Verbs<VerbsDevice> {
    /// Opens the ports that suit a process.
    ///
    /// # Errors
    /// Says what was found, why it cannot be used, and what to do.
    pub(super) fn open_best(
        me: Peer,
        peers: u32,
        network: &NetworkSettings,
    ) -> Result<Self, String> {
        let (devices, words) = choose::open_best(network)?;
        let facts = devices[0].facts().clone();
        let mut verbs = Self::open(me, peers, devices, network.limits)
            .map_err(|error| cannot_open(&error, &facts))?;
        verbs.moves.fetches.meet_by(network.rendezvous);
        for words in words {
            verbs.streams.links.news.complain(words);
        }
        Ok(verbs)
    }
}

impl Verbs<RocePort<Udp>> {
    /// Opens a port that is a program, over UDP, for a process at the address that its connections would have; `for_adapters`: where
    /// the devices of other hosts reach it too.
    ///
    /// # Errors
    /// Says what cannot be had, and what to do.
    pub(super) fn open_over_udp(
        me: Peer,
        peers: u32,
        for_adapters: bool,
        network: &NetworkSettings,
    ) -> Result<Self, String> {
        let addresses = addresses_to(network, network.tcp.over_hosts)?;
        let (port, why_not) = RocePort::open_best(&addresses, for_adapters, network)?;
        let mut verbs = Self::open_over(me, peers, port, network)?;
        if let Some(why) = why_not {
            verbs.streams.links.news.complain(why);
        }
        Ok(verbs)
    }
}

impl Verbs<RocePort<Dpdk>> {
    /// Opens a port that is a program, over the port of DPDK that is this process's.
    ///
    /// # Errors
    /// Says what is missing or cannot be had, and what to do.
    pub(super) fn open_over_dpdk(
        me: Peer,
        peers: u32,
        network: &NetworkSettings,
    ) -> Result<Self, String> {
        let port = RocePort::open_own(network)?;
        Self::open_over(me, peers, port, network)
    }
}

impl<P: VerbsPort> Verbs<P> {
    /// Opens this one port.
    fn open_over(me: Peer, peers: u32, port: P, network: &NetworkSettings) -> Result<Self, String> {
        let facts = port.facts().clone();
        let verbs = Self::open(me, peers, [port], network.limits);
        let mut verbs = verbs.map_err(|error| cannot_open(&error, &facts))?;
        verbs.moves.fetches.meet_by(network.rendezvous);
        Ok(verbs)
    }
}

impl Verbs<RocePort<Faulty>> {
    /// Opens a port that is a program, on a network with faults.
    pub(super) fn open_over_faults(
        net: &PacketNet,
        me: Peer,
        peers: u32,
        (limits, key): (NetLimits, u32),
    ) -> Self {
        let (depths, terms) = (limits.depths(), &limits.terms);
        let port = RocePort::open(net.join(), PairNumbers::ALONE, &depths, terms, key);
        let port = port.expect("it has packets that are long enough");
        Self::open(me, peers, [port], limits).expect("it registers all memory")
    }
}

impl Verbs<FakePort> {
    /// Opens `rails` ports on a fake network.
    pub(super) fn open_on(
        net: &FakeNet,
        me: Peer,
        peers: u32,
        rails: u32,
        (limits, key): (NetLimits, u32),
    ) -> Self {
        let (first, depths) = (net.ports(), limits.depths());
        let open = |place| {
            let first = (place != 0).then_some(first);
            let port = net.open_beside(first, &depths, &limits.terms, key);
            port.expect("depths that a device has")
        };
        let ports = (0..rails).map(open);
        let mut verbs = Self::open(me, peers, ports, limits).expect("a fake has memory at first");
        // The streams begin with this number, here and at all others.
        let first_packet = net.config().first_packet;
        verbs.streams.links.sides.number_from(first_packet);
        verbs
    }

    /// The process sleeps in the time of the network, which somebody else lets pass, until a sign comes or something is due.
    pub(super) fn fall_asleep_in_fake_time(&mut self, waits: &mut WaitSet) {
        let longest = waits.longest();
        let due = self.until_due().map_or(longest, |due| due.min(longest));
        for rail in self.streams.links.rails.iter() {
            rail.port.fall_asleep(due, due == longest);
        }
        waits.poll_after(due);
    }
}

impl<P: VerbsPort> Drop for Verbs<P> {
    /// Breaks what is there, forgets all memory, and lets the port go.
    fn drop(&mut self) {
        self.streams
            .links
            .pairs
            .retire(&mut self.streams.links.rails);
        self.moves.retire(&mut self.streams);
        self.streams.links.close();
        self.moves
            .registry
            .retire_bounces(&mut self.streams.links.rails);
        self.streams.links.rails.retire();
    }
}

/// The name of a work request: which queue, and its number there.
#[inline(always)]
fn name(index: u32, number: u32) -> u64 {
    u64::from(index) << 32 | u64::from(number)
}

#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the two halves are cut out of the word"
)]
fn parts_of(work: u64) -> (u32, u32) {
    ((work >> 32) as u32, work as u32)
}

/// The queue of datagrams, among those of the reliable queue pairs.
const DATAGRAMS: u32 = u32::MAX;
/// So many work requests on all reliable queue pairs: each may need a completion.
const MOST_POSTED: usize = 640;
/// The others that may need one in the same queue beside datagrams: a mark for each reliable queue pair.
const MOST_OTHERS: usize = 128;
/// Larger packets only go over reliable queue pairs.
const MOST_DATAGRAM_BYTES: usize = 2048;
/// Memory of a process on one rail, however many peers it has.
const MOST_MEMORY_BYTES: usize = 8 << 20;
/// What a device's library keeps for a completion, at most.
const COMPLETION_BYTES: usize = 64;
/// Where nothing waits for them, completions of sends are taken every so many polls.
const SENDS_EVERY: u64 = 16;
