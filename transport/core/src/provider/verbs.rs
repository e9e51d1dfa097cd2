// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `verbs`: InfiniBand and RoCE. Every peer has a stream of packets (crate `session`) that goes as datagrams at first
//! and over a reliable queue pair after some packets (`pairs.rs`); queue pairs break and are made again
//! without losing or repeating anything. Large data are read and written by the device (`work.rs`).
//!
//! A port serves all peers (`rail.rs`): one queue of receive buffers, one pool of slots for sends, a bounded number of
//! reliable queue pairs. So memory does not grow with the number of peers but for [`Side`], which exists from the first
//! packet on.
//!
//! State is in parts, each with its own file and methods: [`Rails`], [`Sides`], [`Pairs`], [`Works`], [`Registry`] and others.
//! One that needs another is handed it. Methods of [`Verbs`] are what needs most of them: to send (`send.rs`), to take in
//! (`arrive.rs`), to make and break queue pairs (`pairs.rs`), to find and lose peers (`peers.rs`), to move large data (`work.rs`,
//! `fetch.rs`, `keys.rs`), and one turn of it all (`turn.rs`).
//!
//! [`Verbs::poll`] is what happens: completions of receives (`arrive.rs`), then of sends (`send.rs`), then what has become due.

mod address;
mod arrive;
mod bounce;
mod choose;
mod device;
mod fake;
mod fetch;
mod forgotten;
mod gid;
mod hosts;
mod keys;
mod ledger;
mod letters;
mod limits;
mod link;
mod look;
mod memory;
mod news;
mod owned;
mod pair;
mod pairs;
mod peers;
mod plain;
mod pools;
mod port;
mod rail;
mod rails;
mod ready;
mod registry;
mod schedule;
mod send;
mod side;
mod sides;
mod slab;
mod strangers;
mod stripes;
mod turn;
mod wire;
mod words;
mod work;
mod works;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::ledger::NetCounts;
use crate::wait_set::WaitSet;
use crate::{LocalKey, Network, Peer, Rendezvous, wait};
pub use address::MOST_RECORD_BYTES;
pub(super) use device::Device;
pub(super) use fake::FakePort;
pub use fake::{FakeConfig, FakeNet, FakeStats};
use fetch::Fetches;
use hosts::Hosts;
use keys::Told;
use letters::Letters;
pub use limits::{GidPlaces, NetLimits, NetTerms};
use look::cannot_open;
pub(crate) use look::look;
use memory::Shared;
use news::News;
use pair::{Pair, Pairs};
use plain::Chore;
pub use plain::{FarLook, FarWord};
use pools::SendPool;
pub(super) use port::Registered;
use port::{CallError, Port};
use rail::Rail;
use rails::{Opened, Rails, open_all};
use ready::Ready;
use registry::Registry;
use schedule::Schedule;
use side::Side;
use sides::Sides;
use strangers::Strangers;
use works::Works;

/// The network of a process.
#[derive(Debug)]
pub(super) struct Verbs<P: Port> {
    me: u32,
    rails: Rails<P>,
    limits: NetLimits,
    sides: Sides,
    sends: SendPool,
    pairs: Pairs,
    works: Works,
    registry: Registry,
    /// Further keys to memory of peers.
    told: Told,
    /// Reads that peers carry out.
    fetches: Fetches,
    /// Packets of the provider's own that found no room.
    letters: Letters,
    /// What the word that was handed up last has left to be done.
    chore: Option<Chore>,
    /// What the caller gets with its next polls.
    ready: Ready,
    strangers: Strangers,
    hosts: Hosts,
    news: News,
    schedule: Schedule,
    pub(super) counts: Arc<NetCounts>,
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
    /// Of those, the ones that broke.
    pub broken: u64,
    /// Of those, the ones that broke because the peer had no buffers for too long.
    pub not_ready: u64,
    /// Reliable queue pairs that were given up for others.
    pub given_up: u64,
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
}

impl<P: Port> Verbs<P> {
    /// Takes ports, at least one and at most [`rail::MOST_RAILS`], for a job of `peers` processes.
    // tidy: long (one field a line)
    pub(super) fn open(
        me: Peer,
        peers: u32,
        ports: impl IntoIterator<Item = P>,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        let counts = Arc::<NetCounts>::default();
        let counted = |mut port: P| {
            port.count_into(Arc::clone(&counts.registered));
            port
        };
        let Opened {
            rails,
            sends,
            words,
        } = open_all(ports.into_iter().map(counted), &limits)?;
        let mut verbs = Self {
            me: me.0,
            schedule: Schedule::new(rails.clock()),
            rails,
            limits,
            sides: Sides::new(peers),
            sends,
            pairs: Pairs::default(),
            works: Works::new(),
            registry: Registry::new(&limits),
            told: Told::default(),
            fetches: Fetches::new(),
            letters: Letters::default(),
            chore: None,
            ready: Ready::new(),
            strangers: Strangers::default(),
            hosts: Hosts::new(wait::host_name()),
            news: News::from(words),
            counts,
        };
        verbs.grant_bounces();
        Ok(verbs)
    }

    /// The streams begin with this number, here and at all others.
    pub(super) fn number_from(&mut self, first_packet: u32) {
        self.sides.number_from(first_packet);
    }

    /// Who moves large data.
    pub(super) fn meet_by(&mut self, rendezvous: Rendezvous) {
        self.fetches.meet_by(rendezvous);
    }

    /// Where this process is found, for others: its address, and the name of its host for messages.
    pub(super) fn record(&self) -> Vec<u8> {
        self.rails.record(self.hosts.here())
    }

    /// Memory that all of this takes now, and that it takes at most, in bytes, with as many peers as there are.
    pub(super) fn memory(&self) -> (usize, usize) {
        let pairs = self.pairs.bytes(&self.limits);
        let (made, granted) = self.registry.bounced_bytes();
        let fixed = self.fixed_bytes(self.rails.len());
        let now =
            fixed + self.sides.bytes() + pairs + self.sends.bytes() + self.rails.received_bytes();
        (now + made, self.most_bytes_on(self.rails.len()) + granted)
    }

    /// What is there from the beginning, with so many rails.
    fn fixed_bytes(&self, rails: usize) -> usize {
        let queues = 2 * COMPLETION_BYTES * self.limits.depths().completions as usize;
        size_of::<Self>() + self.sides.fixed_bytes() + rails * (size_of::<Rail<P>>() + queues)
    }

    /// The most with so many rails, without bounce buffers.
    fn most_bytes_on(&self, rails: usize) -> usize {
        let told = if rails > 1 { Told::MOST_BYTES } else { 0 };
        self.fixed_bytes(rails)
            + self.sides.len() * Side::most_bytes(rails)
            + self.limits.pairs as usize * Pair::most_bytes(&self.limits)
            + self.sends.most_bytes()
            + told
            + self.rails.received_most_bytes(rails)
    }

    /// Memory that stays registered until it is freed: zero, aligned to a page, shared with child processes. `None`: no more
    /// can be mapped or registered.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let mapping = Shared::new(bytes)?;
        let place = mapping.place();
        self.own_with(place, bytes, Some(mapping)).then_some(place)
    }

    /// Keeps memory registered that another provider has allocated, if that is possible.
    pub(super) fn own(&mut self, place: NonNull<u8>, bytes: usize) {
        self.own_with(place, bytes, None);
    }

    fn own_with(&mut self, place: NonNull<u8>, bytes: usize, mapping: Option<Shared>) -> bool {
        let rails = &mut self.rails;
        let owned = self.registry.owned.own(place, bytes, mapping, rails);
        if let Err(error) = &owned {
            self.complain_of_registration(error, bytes as u64);
        }
        owned.is_ok()
    }

    /// Forgets memory that is about to be freed. `true`: it was this provider's, and is freed.
    pub(super) fn disown(&mut self, place: NonNull<u8>) -> bool {
        self.registry.owned.disown(place, &mut self.rails)
    }

    /// Registers memory of the program's for many writes from there, where that saves anything.
    pub(super) fn keep_registered(&mut self, base: u64, bytes: u64) -> Option<LocalKey> {
        self.registry.owned.keep(base, bytes, &mut self.rails)
    }

    /// Forgets it.
    pub(super) fn keep_no_more(&mut self, key: LocalKey) {
        self.registry.owned.keep_no_more(key, &mut self.rails);
    }

    /// Bounce buffers may take what a process on one rail has not reserved.
    fn grant_bounces(&mut self) {
        let left = MOST_MEMORY_BYTES.saturating_sub(self.most_bytes_on(1));
        self.registry.grant(left);
    }
}

impl Verbs<Device> {
    /// Opens the ports that suit a process.
    ///
    /// # Errors
    /// Says what was found, why it cannot be used, and what to do.
    pub(super) fn open_best(me: Peer, peers: u32, network: &Network) -> Result<Self, String> {
        let (devices, words) = choose::open_best(network)?;
        let facts = devices[0].facts().clone();
        let mut verbs = Self::open(me, peers, devices, network.limits)
            .map_err(|error| cannot_open(&error, &facts))?;
        verbs.meet_by(network.rendezvous);
        for words in words {
            verbs.news.complain(words);
        }
        Ok(verbs)
    }
}

impl Verbs<FakePort> {
    /// The process sleeps in the time of the network, which somebody else lets pass, until a sign comes or something is due. Where
    /// it waits for more than this network, it polls it now and then.
    pub(super) fn fall_asleep_in_fake_time(&mut self, waits: &mut WaitSet) {
        if !waits.is_empty() {
            return waits.poll_after(POLLED_EVERY);
        }
        let longest = waits.longest();
        let due = self.until_due().map_or(longest, |due| due.min(longest));
        for rail in self.rails.iter() {
            rail.port.fall_asleep(due, due == longest);
        }
        waits.poll_after(Duration::ZERO);
    }
}

impl<P: Port> Drop for Verbs<P> {
    /// Breaks what is there, forgets all memory, and lets the port go.
    fn drop(&mut self) {
        self.pairs.retire(&mut self.rails);
        self.registry.withdraw_all(&mut self.rails);
        self.fetches.retire(&mut self.rails);
        self.works.retire(&mut self.rails);
        self.registry.owned.retire(&mut self.rails);
        for rail in 0..self.rails.len() {
            self.sides.forget_ways(rail, &mut self.rails);
        }
        self.sends.retire(&mut self.rails);
        self.registry.retire_bounces(&mut self.rails);
        self.rails.retire();
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
/// How often a process polls that sleeps in the time of a fake network, and waits for more than that.
const POLLED_EVERY: Duration = Duration::from_millis(1);
