// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `verbs`: InfiniBand and RoCE. Every peer has a stream of packets (crate `session`), which starts as
//! datagrams and moves to a reliable queue pair after some packets. Queue pairs may break and be made again; no packet
//! is lost or repeated then. Large messages are read and written by the device (RDMA).
//!
//! Each port serves all peers with one shared receive queue (`rail.rs`). All ports share one pool of send buffers, and
//! the number of reliable queue pairs is bounded. So memory does not grow with the number of peers, except for one
//! [`VerbsPeer`](peer::VerbsPeer) for each, allocated at the first packet.
//!
//! # Layers
//! [`Verbs`] has three layers, each of which uses those before it:
//!
//! - [`VerbsLinks`](links::VerbsLinks): the links that carry packets. It contains the ports ([`Rails`](rails::Rails)),
//!   the state of each peer ([`PeerTable`](peer_table::PeerTable)) and the queue pairs
//!   ([`ReliablePairs`](pair::ReliablePairs)).
//! - [`VerbsStreams`]: streams of packets over links, with retransmission (`send.rs`).
//! - [`VerbsTransfers`]: reads, writes, atomic operations and their registered memory ([`Works`](works::Works),
//!   [`RegionRegistry`](registry::RegionRegistry), [`Fetches`](fetch::Fetches)).
//!
//! Changes of a link are returned upwards as a value, a [`VerbsLinkEvent`](links::VerbsLinkEvent): a part of a work has
//! ended, or a peer is lost. [`Verbs::settle`] passes these values to `VerbsTransfers` before a call returns. Lower
//! layers have their own files, state and tests; they take the other layers that they need as arguments.

mod address;
mod arrive;
mod bounce;
mod choose;
mod control_queue;
mod deferred;
mod device;
mod error_text;
mod events;
mod fake;
mod fast_receive;
mod fetch;
mod gid;
mod hosts;
mod inspect;
mod keys;
mod limits;
mod links;
mod lost_completions;
mod memory;
mod notices;
mod owned;
mod pair;
mod pairs;
mod path_mtu;
mod peer;
mod peer_identity;
mod peer_port;
mod peer_table;
mod peers;
mod pools;
mod port;
mod posted;
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
pub use fast_receive::{NetWord, WordPoll};
use inspect::cannot_open;
pub(crate) use inspect::inspect;
use keys::PeerKeys;
pub use limits::{GidPlaces, NetLimits, NetTerms};
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

/// The network of a process. Its methods by group, and within each group in the order in which they are called:
///
/// | group | methods | file |
/// |------|---------|------|
/// | opening | `open_best` or `open_on`, which call `open`; `record` | `verbs.rs` |
/// | addresses | `add_foreign`; `next_unresolved`, then perhaps `why_apart`, and `set_peer_address`, which calls `take_held_datagrams` | `turn.rs`, `verbs.rs`, `arrive.rs` |
/// | sending | `caps`; `post_word`, `post_send` or `post_deferrable`; `has_deferred` | `verbs.rs` |
/// | memory | `export` or `offer`, `withdraw`; `allocate`, `own`, `disown`; `keep_registered` or `expose`, `keep_no_more` | `verbs.rs` |
/// | one-sided | `post_work`, `post_write` | `verbs.rs` |
/// | a turn | `poll`: `take_all_received`, `flush_all`, `check_clock`, `take_all_events`; `settle` | `turn.rs` |
/// | receiving | `take_filled`: `take_packet`, then `deliver` or `assemble`, `hand_up`, `deliver_held`; later `copy_lent`, `release` | `arrive.rs` |
/// | the fast path | `poll_word`: `take_first`, then `take_word` or `take_other`; `catch_up` with the deferred work of a word, before anything else | `arrive.rs` |
/// | waiting | `prepare_sleep`, `fall_asleep` (`until_due`), `wake`; `needs_cores`, `wakes` | `turn.rs`, `verbs.rs` |
/// | loss | `lose`, `why_lost`; `has_notices`, `next_warning`, `next_remark`, `next_port_change` | `verbs.rs`, `turn.rs` |
/// | the end | `is_quiet`, `drop` | `turn.rs`, `verbs.rs` |
/// | counts | `counts`, `memory` | `verbs.rs` |
#[derive(Debug)]
pub(super) struct Verbs<P: VerbsPort> {
    streams: VerbsStreams<P>,
    transfers: VerbsTransfers,
    /// Work that was deferred when the last one-word message was delivered; `None`: it has been done.
    pending_word: Option<PendingWord>,
    /// Whether the caller has promised to call `uncork` after it has handled a poll's completions.
    corks: bool,
    /// The peer to which the last announcement since the last poll was posted; `None`: there was none.
    announced_to: Option<u32>,
}

/// A port went down or came back up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// Index among the ports of this process, from 0.
    pub rail: u32,
    /// Port number on its device, from 1.
    pub port: u8,
    /// Whether the port is up now.
    pub is_up: bool,
    /// Number of ports of this process that are up now.
    pub serving: u32,
}

/// Counters of the network, for tests and performance variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Packets that went as datagrams.
    pub datagrams: u64,
    /// Datagrams whose acknowledgement timed out.
    pub overdue: u64,
    /// Packets that went over reliable queue pairs.
    pub packets: u64,
    /// Reliable queue pairs that were connected.
    pub joined: u64,
    /// Queue pairs requested by this process that use a smaller MTU than the ports at both ends support, because longer
    /// packets do not arrive.
    pub narrow: u64,
    /// Connected queue pairs that broke.
    pub broken: u64,
    /// Queue pairs that broke because the peer had no receive buffer for too long (RNR retries exceeded).
    pub not_ready: u64,
    /// Reliable queue pairs that were closed to make room for others.
    pub given_up: u64,
    /// TCP connections beyond the first one with each peer, for large reads.
    pub rails: u64,
    /// Duplicate packets.
    pub twice: u64,
    /// Bytes that the device read from or wrote to peers' memory for this process.
    pub moved_bytes: u64,
    /// Reads and writes that were striped over several rails.
    pub striped: u64,
    /// Reads that their peers carried out as writes.
    pub fetched: u64,
    /// Times that the packets to a peer moved to another rail.
    pub detours: u64,
    /// Memory regions ever registered.
    pub registered: u64,
    /// Bytes registered now; memory registered on several rails counts once per rail.
    pub registered_bytes: u64,
    /// High-water mark of `registered_bytes`.
    pub registered_most_bytes: u64,
    /// RoCE packets sent again. This counter and the next two count only on user-space RoCE ports: adapters do not
    /// report such events.
    pub repeated: u64,
    /// Time-outs of the user-space RoCE port: no acknowledgement arrived in time.
    pub timeouts: u64,
    /// Times that the congestion window was cut, because of congestion or losses.
    pub window_cuts: u64,
    /// RoCE packets whose payload was sent in place, without a copy. Only user-space RoCE ports count them: adapters
    /// never copy.
    pub in_place: u64,
    /// Bytes of the payloads that were sent in place.
    pub in_place_bytes: u64,
}

impl<P: VerbsPort> Verbs<P> {
    /// Opens the provider on `ports`, 1 to [`rail::MOST_RAILS`], for a job of `peers` processes.
    pub(super) fn open(
        me: Peer,
        peers: u32,
        ports: impl IntoIterator<Item = P>,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        let mut verbs = Self {
            streams: VerbsStreams::open(me.0, peers, ports, limits)?,
            transfers: VerbsTransfers::new(&limits),
            pending_word: None,
            corks: false,
            announced_to: None,
        };
        verbs.grant_bounces();
        Ok(verbs)
    }

    /// Sets the memory limit of the bounce buffers: what is left of [`MOST_MEMORY_BYTES`] when all else that a process
    /// with one rail may use is subtracted.
    fn grant_bounces(&mut self) {
        let left = MOST_MEMORY_BYTES.saturating_sub(self.most_bytes_on(1));
        self.transfers.registry.grant(left);
    }

    /// The address record of this process for others: its ports, and its host name for messages.
    pub(super) fn record(&self) -> Vec<u8> {
        self.streams
            .links
            .rails
            .record(self.streams.links.hosts.here())
    }

    /// Memory in use now, and its maximum for the present number of peers; both in bytes.
    pub(super) fn memory(&self) -> (usize, usize) {
        let (made, granted) = self.transfers.registry.bounced_bytes();
        let now = size_of::<Self>() + self.streams.links.bytes() + made;
        let most = self.most_bytes_on(self.streams.links.rails.len()) + granted;
        (now, most)
    }

    /// Maximum memory with `rails` rails, without bounce buffers, in bytes.
    fn most_bytes_on(&self, rails: usize) -> usize {
        let keys = if rails > 1 { PeerKeys::MOST_BYTES } else { 0 };
        size_of::<Self>() + self.streams.links.most_bytes_on(rails) + keys
    }

    /// The counters of this provider.
    pub(super) fn counts(&self) -> &Arc<NetCounts> {
        &self.streams.links.counts
    }

    /// Allocates memory that is zeroed, page-aligned, shared with child processes, and registered until it is freed.
    /// `None`: it cannot be mapped or registered.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let mapping = SharedMapping::new(bytes)?;
        let place = mapping.place();
        let memory = (place, bytes);
        let owned = self.transfers.own(&mut self.streams, memory, Some(mapping));
        owned.then_some(place)
    }

    /// Registers memory that another provider has allocated, if possible; it stays registered until
    /// [`disown`](Self::disown).
    pub(super) fn own(&mut self, place: NonNull<u8>, bytes: usize) {
        self.transfers.own(&mut self.streams, (place, bytes), None);
    }

    /// Deregisters memory that is about to be freed. `true`: this provider had allocated it and has freed it.
    pub(super) fn disown(&mut self, place: NonNull<u8>) -> bool {
        self.transfers
            .registry
            .owned
            .disown(place, &mut self.streams.links.rails)
    }

    /// Registers memory of the program once, for many writes from this memory. `None`: it is empty or registered
    /// already, or cannot be registered.
    pub(super) fn keep_registered(&mut self, base: u64, bytes: u64) -> Option<LocalKey> {
        self.transfers
            .registry
            .owned
            .keep(base, bytes, &mut self.streams.links.rails)
    }

    /// Registers memory of the program once; then any part of it can be exported to any peer. `None`: the memory is
    /// empty or one of our own, or cannot be registered.
    pub(super) fn expose(&mut self, base: u64, bytes: usize) -> Option<LocalKey> {
        let rails = &mut self.streams.links.rails;
        self.transfers.registry.owned.expose(base, bytes, rails)
    }

    /// Deregisters the memory of one [`keep_registered`](Self::keep_registered) or [`expose`](Self::expose).
    pub(super) fn keep_no_more(&mut self, key: LocalKey) {
        self.transfers
            .registry
            .owned
            .keep_no_more(key, &mut self.streams.links.rails);
    }

    /// Whether the kernel moves data of this process now and may need a processor that this process occupies.
    pub(super) fn needs_cores(&self) -> bool {
        self.transfers.is_any_in_flight() && self.streams.links.rails.is_any_in_software()
    }

    /// Whether an arriving packet wakes a process that sleeps.
    pub(super) fn wakes(&self) -> bool {
        self.streams.links.rails.all_wake()
    }

    /// Capabilities toward a peer: those of the first of the ports that serve it.
    pub(super) fn caps(&self, peer: Peer) -> Caps {
        let port = self.streams.links.port_to(peer.0);
        Caps {
            max_inline_bytes: ring::SLOT_BODY_BYTES,
            max_send_bytes: ring::layout::POOL_BUFFER_BYTES,
            reads: self.transfers.fetches.mover(port.facts()),
            writes: Mover::Device,
            atomics: port.facts().atomics.then_some(Mover::Device),
            may_stream: false,
            maps: false,
            wakes: port.event_fd().is_some(),
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

    /// Posts a frame that announces data which the peer reads. If the data are read only in later polls, and the last
    /// announcement since the last poll was to the same peer, the frame leaves with the next frame to this peer or with
    /// the next poll.
    pub(super) fn post_announcement(
        &mut self,
        to: Peer,
        head: Head,
        body: &[u8],
    ) -> Result<(), Full> {
        let is_next = self.announced_to.replace(to.0) == Some(to.0);
        if !(P::SERVES_IN_POLLS && is_next) {
            return self.post_send(to, head, body);
        }
        self.catch_up();
        self.streams.post_later(to.0, head, body)
    }

    /// Posts a frame that may leave with the next poll only (`deferred.rs`).
    #[inline(never)]
    pub(super) fn post_deferrable(
        &mut self,
        to: Peer,
        head: Head,
        body: &[u8],
    ) -> Result<(), Full> {
        if !self.streams.defers(to.0) {
            return self.post_send(to, head, body);
        }
        self.catch_up();
        let posted = self.streams.defer(to.0, head, body);
        self.settle();
        posted
    }

    /// Announces that the next poll leaves deferred frames where they are.
    pub(super) fn begin_poll_between_sends(&mut self) {
        self.streams.links.bursts.begin_poll_between_sends();
    }

    /// Whether deferred frames may wait for the next poll.
    #[inline(always)]
    pub(super) fn has_deferred(&self) -> bool {
        self.streams.links.bursts.has_deferred()
    }

    /// Posts a send of the first `BYTES` bytes of a word, if nothing has to be sent before this send. `false`: nothing
    /// was posted.
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

    /// Gives `peer` access to memory.
    pub(super) fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        let key = self
            .transfers
            .export(&mut self.streams, peer, address, bytes);
        self.settle();
        key
    }

    /// Lets `peer` read memory whose contents do not change meanwhile.
    pub(super) fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        let key = self
            .transfers
            .offer(&mut self.streams, peer, address, bytes);
        self.settle();
        key
    }

    /// Withdraws a key that [`export`](Self::export) or [`offer`](Self::offer) returned.
    pub(super) fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        self.transfers.withdraw(&mut self.streams, peer, key);
        self.settle();
    }

    /// Begins a read or an atomic operation; the device carries it out if it can.
    pub(super) fn post_work(
        &mut self,
        peer: Peer,
        (kind, lease): (WorkKind, Lease),
        key: RemoteKey,
        offset: u64,
        id: WorkId,
    ) {
        let streams = &mut self.streams;
        self.transfers
            .begin(streams, peer.0, lease, (key, offset), id, kind);
        self.settle();
    }

    /// Begins a write. If the write has an immediate, and the write and the packet with the immediate cannot be posted
    /// now, the lease is returned.
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
            .transfers
            .post_write(streams, peer, lease, (key, offset), id, immediate);
        self.settle();
        posted
    }

    /// Adds a process of another job as a further peer.
    pub(super) fn add_foreign(&mut self, peer: Peer, far: ForeignPeer) {
        self.streams.links.peers.add_foreign(peer.0, far);
        self.grant_bounces();
    }

    /// Why a peer with this record cannot be reached, as far as the record shows; both ends compute the same result.
    /// `None`: the peer may be reachable.
    pub(super) fn why_apart(&self, record: &[u8]) -> Option<String> {
        self.streams.links.why_apart(record)
    }

    /// Records the address of a peer, from the launcher.
    pub(super) fn set_peer_address(&mut self, peer: Peer, record: &[u8]) {
        if self.streams.links.set_peer_address(peer, record) {
            self.settle();
            self.take_held_datagrams(peer.0);
            self.streams.links.queue_go_on(peer.0);
        }
        self.settle();
    }

    /// Marks a peer lost.
    pub(super) fn lose(&mut self, peer: Peer, why: &str) {
        self.streams.links.lose(peer.0, why);
        self.settle();
    }

    /// Why a peer was lost.
    pub(super) fn why_lost(&self, peer: Peer) -> Option<&str> {
        self.streams.links.peers.find(peer.0)?.why_lost()
    }
}

impl Verbs<VerbsDevice> {
    /// Opens the ports that suit a process.
    ///
    /// # Errors
    /// Returns a message with the ports found, why they cannot be used, and the remedy.
    pub(super) fn open_best(
        me: Peer,
        peers: u32,
        network: &NetworkSettings,
    ) -> Result<Self, String> {
        let (devices, words) = choose::open_best(network)?;
        let facts = devices[0].facts().clone();
        let mut verbs = Self::open(me, peers, devices, network.limits)
            .map_err(|error| cannot_open(&error, &facts))?;
        verbs.transfers.fetches.set_rendezvous(network.rendezvous);
        for words in words {
            verbs.streams.links.notices.warn(words);
        }
        Ok(verbs)
    }
}

impl Verbs<RocePort<Udp>> {
    /// Opens a user-space RoCE port over UDP, at the address that TCP connections of this process would use.
    /// `for_adapters`: whether RDMA devices of other hosts connect to the port too.
    ///
    /// # Errors
    /// Returns a message with what is unavailable, and the remedy.
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
            verbs.streams.links.notices.warn(why);
        }
        Ok(verbs)
    }
}

impl Verbs<RocePort<Dpdk>> {
    /// Opens a user-space RoCE port over this process's DPDK port.
    ///
    /// # Errors
    /// Returns a message with what is missing or unavailable, and the remedy.
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
    /// Opens the provider on one port.
    fn open_over(me: Peer, peers: u32, port: P, network: &NetworkSettings) -> Result<Self, String> {
        let facts = port.facts().clone();
        let verbs = Self::open(me, peers, [port], network.limits);
        let mut verbs = verbs.map_err(|error| cannot_open(&error, &facts))?;
        verbs.transfers.fetches.set_rendezvous(network.rendezvous);
        Ok(verbs)
    }
}

impl Verbs<RocePort<Faulty>> {
    /// Opens a user-space RoCE port on a network with injected faults.
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
        // Every stream of the network begins with this packet number.
        let first_packet = net.config().first_packet;
        verbs.streams.links.peers.number_from(first_packet);
        verbs
    }

    /// Sleeps until a completion event or a deadline, in the simulated time of the network; another thread advances
    /// that time.
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
    /// Breaks all queue pairs, deregisters all memory, and closes the ports.
    fn drop(&mut self) {
        self.streams
            .links
            .pairs
            .retire(&mut self.streams.links.rails);
        self.transfers.retire(&mut self.streams);
        self.streams.links.close();
        self.transfers
            .registry
            .retire_bounces(&mut self.streams.links.rails);
        self.streams.links.rails.retire();
    }
}

/// The `wr_id` of a work request: the queue's index and the request's number in that queue.
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

/// Index that stands for the datagram queue pair; reliable queue pairs have smaller indices.
const DATAGRAMS: u32 = u32::MAX;
/// Maximum number of work requests posted on all reliable queue pairs of a rail together; each may need a completion.
const MOST_POSTED: usize = 640;
/// Entries of the send completion queue beside those for datagrams and for [`MOST_POSTED`] requests: for the marks of
/// the reliable queue pairs.
const MOST_OTHERS: usize = 128;
/// Maximum length of a packet in a datagram, in bytes; longer packets go over reliable queue pairs only.
const MOST_DATAGRAM_BYTES: usize = 2048;
/// A process with one rail gets bounce buffers until all its memory here is this many bytes.
const MOST_MEMORY_BYTES: usize = 8 << 20;
/// Maximum memory that a device's library is assumed to use for one completion, in bytes.
const COMPLETION_BYTES: usize = 64;
/// While nothing waits for send completions, one of this many polls reads the send completion queue.
const SENDS_EVERY: u64 = 16;
