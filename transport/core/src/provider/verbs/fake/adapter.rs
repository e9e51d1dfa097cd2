// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of one port of the network.

use std::collections::{BTreeMap, VecDeque};

use super::super::NetTerms;
use super::super::address::{LinkLayer, PortAddress};
use super::super::port::{
    CallError, CqKind, Depths, PortAttr, PortCompletion, PortEvent, Sge, WorkStatus,
};
use super::config::{FakeConfig, FakeStats};
use super::datagram::Datagrams;
use super::memory::FakeRegions;
use super::queue::{Added, CompletionQueue, FakeCompletion, FakeSlotOwner, FakeSlots};

/// One port of the simulated network.
#[derive(Debug)]
pub(super) struct FakeAdapter {
    pub(super) state: FakeAdapterState,
    /// The present attributes of the port; its process has the attributes of its last query.
    pub(super) facts: PortAttr,
    pub(super) q_key: u32,
    /// Whether the random faults let the port be up.
    pub(super) up: RandomToggle,
    /// Whether a test holds the port down.
    pub(super) is_held_down: bool,
    /// Whether the random faults let its process run.
    pub(super) running: RandomToggle,
    /// Until when a test suspends its process, in simulated nanoseconds.
    pub(super) paused_until: u64,
    /// Index of the first port of its process.
    pub(super) process: u32,
    pub(super) regions: FakeRegions,
    pub(super) shared: FakeRecvQueue,
    pub(super) datagrams: Datagrams,
    pub(super) handles: BTreeMap<u32, FakeDestination>,
    pub(super) events: VecDeque<PortEvent>,
    pub(super) refused_creates: u32,
    pub(super) refused_registers: u32,
    pub(super) stats: FakeStats,
    sends: CompletionQueue,
    receives: CompletionQueue,
    has_event: bool,
    /// Time at which the sleep of the port's process ends at the latest. `true`: the process has no deadline of its
    /// own, so an event should wake it earlier. `None`: the process does not sleep.
    sleeps_until: Option<(u64, bool)>,
    /// Completions that a test holds back, by the number of their queue pair.
    held: BTreeMap<u32, Vec<(CqKind, FakeCompletion)>>,
}

/// The state of a simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FakeAdapterState {
    Open,
    /// The device is lost: every call fails, and no packets are sent or received.
    Lost,
    /// The process of the port has ended.
    Ended,
}

/// Destination and source address of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeDestination {
    pub(super) to: PortAddress,
    pub(super) source: FakeSource,
}

/// The address of a port at the time when a queue pair was connected, or an address handle created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FakeSource {
    lid: u16,
    gid: [u8; 16],
    gid_index: u8,
}

/// A receive queue: buffers in the order in which they are used.
#[derive(Debug)]
pub(super) struct FakeRecvQueue {
    waiting: VecDeque<(u64, Sge)>,
    slots: FakeSlots,
    pub(super) is_lost: bool,
}

/// A state that toggles at random times.
#[derive(Clone, Copy, Debug)]
pub(super) struct RandomToggle {
    pub(super) is_on: bool,
    /// Time of the next change.
    pub(super) change: u64,
}

impl FakeAdapter {
    pub(super) fn new(
        config: &FakeConfig,
        (depths, terms): (&Depths, &NetTerms),
        index: u32,
        number: u32,
        q_key: u32,
    ) -> Self {
        let on = RandomToggle {
            is_on: true,
            change: u64::MAX,
        };
        Self {
            state: FakeAdapterState::Open,
            facts: facts(config, depths, terms, index),
            q_key,
            up: on,
            is_held_down: false,
            running: on,
            paused_until: 0,
            process: 0,
            regions: FakeRegions::default(),
            shared: FakeRecvQueue::new(depths.shared.min(config.most_shared)),
            datagrams: Datagrams::new(config, depths, number),
            handles: BTreeMap::new(),
            events: VecDeque::new(),
            refused_creates: 0,
            refused_registers: 0,
            stats: FakeStats::default(),
            sends: CompletionQueue::new(depths.completions),
            receives: CompletionQueue::new(depths.completions),
            has_event: false,
            sleeps_until: None,
            held: BTreeMap::new(),
        }
    }

    /// Whether the process of the port exists and the device works.
    pub(super) fn is_open(&self) -> bool {
        self.state == FakeAdapterState::Open
    }

    /// Whether the process of the port has ended, and with it the objects of the port.
    pub(super) fn has_ended(&self) -> bool {
        self.state == FakeAdapterState::Ended
    }

    /// Whether the port can carry packets.
    pub(super) fn carries(&self) -> bool {
        self.is_open() && self.facts.is_up
    }

    /// Whether the process of the port is running.
    pub(super) fn runs(&self, now: u64) -> bool {
        self.running.is_on && now >= self.paused_until
    }

    /// Whether calls of the port's process have any effect now.
    pub(super) fn works(&self, now: u64) -> bool {
        self.is_open() && self.runs(now)
    }

    /// Fails a call if the device is lost.
    pub(super) fn alive(&self, call: &'static str) -> Result<(), CallError> {
        let errno = libc::EIO;
        match self.is_open() {
            true => Ok(()),
            false => Err(CallError { call, errno }),
        }
    }

    /// Whether packets to this address arrive at this port.
    pub(super) fn is_at(&self, to: &PortAddress) -> bool {
        let place = match to.link {
            LinkLayer::Infiniband => self.facts.lid == to.lid,
            LinkLayer::Ethernet => self.facts.gid == to.gid,
        };
        to.link == self.facts.link && place
    }

    /// Whether this is still the address of the port: only then are packets with this address sent and accepted.
    pub(super) fn is_still(&self, source: &FakeSource) -> bool {
        FakeSource::of(&self.facts) == *source
    }

    /// Updates whether the port is up.
    pub(super) fn follow_link(&mut self) {
        let is_up = self.up.is_on && !self.is_held_down;
        if is_up == self.facts.is_up || !self.is_open() {
            return;
        }
        self.facts.is_up = is_up;
        self.stats.down += u64::from(!is_up);
        match is_up {
            // Soft-RoCE reports twice that a port comes up.
            true => self.events.extend([PortEvent::PortUp; 2]),
            false => self.events.push_back(PortEvent::PortDown),
        }
    }

    /// Delivers a completion to its process.
    pub(super) fn complete(&mut self, which: CqKind, entry: FakeCompletion) {
        if let Some(held) = self.held.get_mut(&entry.done.number) {
            held.push((which, entry));
            return;
        }
        match self.queue(which).add(entry) {
            Added::Quietly | Added::Nowhere => {}
            Added::Notified => {
                self.has_event = true;
                self.stats.completion_events += 1;
            }
            Added::Overrun => {
                self.stats.overruns += 1;
                self.events.push_back(PortEvent::CompletionsLost);
            }
        }
    }

    pub(super) fn take_completion(&mut self, which: CqKind) -> Option<FakeCompletion> {
        let entry = self.queue(which).take()?;
        match entry.owner {
            FakeSlotOwner::Pair { .. } => {}
            FakeSlotOwner::Shared { .. } => self.shared.slots.free_one(),
            FakeSlotOwner::DatagramSends { slot } => self.datagrams.sends.free_up_to(slot),
            FakeSlotOwner::DatagramReceives => self.datagrams.buffers.slots.free_one(),
        }
        match which {
            CqKind::Sends => self.stats.send_completions += 1,
            CqKind::Receives => self.stats.receive_completions += 1,
        }
        Some(entry)
    }

    pub(super) fn arm(&mut self) {
        self.stats.arms += 1;
        self.sends.arm();
        self.receives.arm();
    }

    pub(super) fn ack_events(&mut self) {
        self.has_event = false;
    }

    /// Puts the port's process to sleep until `until` at most. `is_limit`: the process has no deadline of its own; a
    /// sleep that no event ends before `until` counts as overslept.
    pub(super) fn fall_asleep(&mut self, until: u64, is_limit: bool) {
        self.sleeps_until = Some((until, is_limit));
    }

    pub(super) fn is_asleep(&self, now: u64) -> bool {
        let sleeps = |(until, _)| now < until;
        self.sleeps_until.is_some_and(sleeps)
    }

    pub(super) fn sleeps(&self) -> bool {
        self.sleeps_until.is_some()
    }

    /// Ends a sleep when the process polls; `is_woken`: an event has woken it.
    pub(super) fn end_sleep(&mut self, is_woken: bool) {
        let Some((_, is_limit)) = self.sleeps_until.take() else {
            return;
        };
        self.stats.overslept += u64::from(is_limit && !is_woken);
        self.has_event = false;
    }

    /// Whether the port has a pending event.
    pub(super) fn would_wake(&self) -> bool {
        self.has_event || !self.events.is_empty()
    }

    pub(super) fn hold(&mut self, number: u32) {
        self.held.entry(number).or_default();
    }

    pub(super) fn release_held(&mut self, number: u32) {
        for (which, entry) in self.held.remove(&number).unwrap_or_default() {
            self.complete(which, entry);
        }
    }

    /// Discards the completions of a destroyed queue pair.
    pub(super) fn purge(&mut self, serial: u32, number: u32) {
        let held = self.held.remove(&number).unwrap_or_default();
        let held = held.into_iter().map(|(_, entry)| entry);
        let mut purged = self.sends.purge(serial);
        purged.extend(self.receives.purge(serial));
        for entry in purged.into_iter().chain(held) {
            if matches!(entry.owner, FakeSlotOwner::Shared { .. }) {
                self.shared.slots.free_one();
                self.stats.buffers_lost += 1;
            }
        }
    }

    fn queue(&mut self, which: CqKind) -> &mut CompletionQueue {
        match which {
            CqKind::Sends => &mut self.sends,
            CqKind::Receives => &mut self.receives,
        }
    }
}

impl FakeSource {
    pub(super) fn of(facts: &PortAttr) -> Self {
        Self {
            lid: facts.lid,
            gid: facts.gid,
            gid_index: facts.gid_index,
        }
    }

    /// Whether this is the LID or the GID of `address`.
    pub(super) fn is(&self, address: &PortAddress) -> bool {
        match address.link {
            LinkLayer::Infiniband => self.lid == address.lid,
            LinkLayer::Ethernet => self.gid == address.gid,
        }
    }

    pub(super) fn gid(&self) -> &[u8; 16] {
        &self.gid
    }
}

impl FakeRecvQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            waiting: VecDeque::new(),
            slots: FakeSlots::new(depth),
            is_lost: false,
        }
    }

    /// Posts buffers, from the first on; returns how many were taken.
    pub(super) fn post(&mut self, buffers: &[(u64, Sge)]) -> usize {
        if self.is_lost {
            return 0;
        }
        let fitting = buffers.iter().take_while(|_| self.slots.take().is_some());
        let before = self.waiting.len();
        self.waiting.extend(fitting);
        self.waiting.len() - before
    }

    /// Takes the oldest buffer.
    pub(super) fn take(&mut self) -> Option<(u64, Sge)> {
        match self.is_lost {
            true => None,
            false => self.waiting.pop_front(),
        }
    }
}

/// Makes a completion. If its status is an error, only `status`, `work`, `number` and `vendor` are defined, as with
/// `ibv_poll_cq`: `bytes` and `source` get values that no caller may use.
pub(super) fn ended(work: u64, number: u32, status: WorkStatus) -> PortCompletion {
    let done = PortCompletion {
        work,
        number,
        status,
        ..PortCompletion::default()
    };
    match status {
        WorkStatus::Success => done,
        _ => PortCompletion {
            bytes: u32::MAX,
            source: u32::MAX,
            vendor: 0x81,
            ..done
        },
    }
}

fn facts(config: &FakeConfig, depths: &Depths, terms: &NetTerms, index: u32) -> PortAttr {
    let link = match config.infiniband {
        true => LinkLayer::Infiniband,
        false => LinkLayer::Ethernet,
    };
    PortAttr {
        device: format!("fake{index}"),
        port: 1,
        is_up: true,
        link,
        lid: lid(config, index),
        gid: gid(config, index),
        gid_index: 1,
        packet_bytes: config.packet_bytes.min(terms.most_packet_bytes()),
        rate_mbps: 100_000,
        inline_bytes: depths.inline_bytes.min(config.inline_bytes),
        message_bytes: config.message_bytes,
        reads: config.reads.min(terms.reads),
        atomics: config.atomics,
        depth: depths.sends.min(config.most_sends),
        has_unreliable_reads: config.empty_read_permille != 0,
        in_software: config.in_software,
        terms: *terms,
        partition: 0,
    }
}

/// The GID with this index on the network: `::ffff:10.x.y.z` on Ethernet, a GID of the default subnet on InfiniBand.
pub(super) fn gid(config: &FakeConfig, index: u32) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[12..].copy_from_slice(&(0x0a00_0001 + index).to_be_bytes());
    match config.infiniband {
        true => gid[..2].copy_from_slice(&[0xfe, 0x80]),
        false => gid[10..12].copy_from_slice(&[0xff, 0xff]),
    }
    gid
}

/// The LID with this index on the network; 0 on Ethernet.
pub(super) fn lid(config: &FakeConfig, index: u32) -> u16 {
    match config.infiniband {
        true => u16::try_from(index + 1).unwrap_or(u16::MAX),
        false => 0,
    }
}
