// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates datagrams: they may be lost, duplicated or delayed, without a report. Local errors break the datagram
//! queue pair.

use std::collections::{BTreeMap, VecDeque};

use super::super::address::PortAddress;
use super::super::port::{
    AddressHandle, CallError, CqKind, DatagramDestination, Depths, GRH_BYTES, PortCompletion,
    PortEvent, QueueFull, Receives, Sge, WorkBody, WorkStatus,
};
use super::adapter::{FakeDestination, FakeRecvQueue, FakeSource, ended};
use super::config::FakeConfig;
use super::net::{FakeNetEvent, FakeNetState};
use super::pair::FakeBody;
use super::queue::{FakeCompletion, FakeSlotOwner, FakeSlots};
use super::requester::DOORBELL_NS;

/// The datagram queue pair of one port.
#[derive(Debug)]
pub(super) struct Datagrams {
    pub(super) number: u32,
    pub(super) sends: FakeSlots,
    pub(super) buffers: FakeRecvQueue,
    /// How many of the next datagrams that the port sends are dropped.
    pub(super) doomed: u32,
    posted: VecDeque<FakePostedSend>,
    is_broken: bool,
    left: u64,
    /// Sequence number of the latest datagram from each port.
    latest: BTreeMap<u32, u64>,
}

/// A posted datagram that is not completed.
#[derive(Debug)]
struct FakePostedSend {
    to: DatagramDestination,
    work: u64,
    body: FakeBody,
    signaled: bool,
    slot: u64,
}

/// A datagram on the wire.
#[derive(Clone, Debug)]
pub(super) struct FakeDatagram {
    from: u32,
    target: FakeDestination,
    /// Sequence number among the datagrams of the port that sent it, from 1.
    sequence: u64,
    q_key: u32,
    source: u32,
    number: u32,
    bytes: Vec<u8>,
}

impl Datagrams {
    pub(super) fn new(config: &FakeConfig, depths: &Depths, number: u32) -> Self {
        let buffers = depths.datagram_buffers.min(config.most_datagram_buffers);
        Self {
            number,
            sends: FakeSlots::new(depths.datagrams.min(config.most_datagrams)),
            buffers: FakeRecvQueue::new(buffers),
            doomed: 0,
            posted: VecDeque::new(),
            is_broken: false,
            left: 0,
            latest: BTreeMap::new(),
        }
    }
}

impl FakeNetState {
    pub(super) fn create_address_handle(
        &mut self,
        port: u32,
        known: FakeSource,
        to: &PortAddress,
    ) -> Result<AddressHandle, CallError> {
        self.resolve(port, &known, to, "ibv_create_ah")?;
        let handle = self.new_key();
        let target = FakeDestination {
            to: *to,
            source: known,
        };
        let adapter = self.port(port);
        adapter.handles.insert(handle, target);
        adapter.stats.handles += 1;
        Ok(AddressHandle::at(handle))
    }

    pub(super) fn destroy_address_handle(&mut self, port: u32, handle: AddressHandle) {
        let adapter = self.port(port);
        let found = adapter.handles.remove(&handle.place());
        adapter.stats.handles -= u64::from(found.is_some());
        adapter.stats.wrong += u64::from(found.is_none() && !adapter.has_ended());
    }

    pub(super) fn post_receives(
        &mut self,
        port: u32,
        which: Receives,
        buffers: &[(u64, Sge)],
    ) -> usize {
        let now = self.now;
        let adapter = self.port(port);
        if !adapter.works(now) || buffers.is_empty() {
            return 0;
        }
        adapter.stats.doorbells += 1;
        let target = match which {
            Receives::Shared => &mut adapter.shared,
            Receives::Datagrams => &mut adapter.datagrams.buffers,
        };
        let taken = target.post(buffers);
        adapter.stats.full += u64::from(taken < buffers.len());
        taken
    }

    pub(super) fn post_datagram(
        &mut self,
        port: u32,
        to: DatagramDestination,
        work: u64,
        body: WorkBody<'_>,
        signaled: bool,
    ) -> Result<(), QueueFull> {
        let now = self.now;
        let adapter = self.port(port);
        if !adapter.works(now) {
            return Err(QueueFull);
        }
        adapter.stats.doorbells += 1;
        let (body, most) = match body {
            WorkBody::Inline(bytes) => (FakeBody::Inline(bytes.into()), adapter.facts.inline_bytes),
            WorkBody::Piece(piece) => (FakeBody::Piece(piece), adapter.facts.packet_bytes),
        };
        let most = most.min(adapter.facts.packet_bytes);
        let datagrams = &mut adapter.datagrams;
        if body.bytes() > most
            || datagrams.is_broken
            || !adapter.handles.contains_key(&to.handle.place())
        {
            adapter.stats.wrong += 1;
            return Err(QueueFull);
        }
        let Some(slot) = datagrams.sends.take() else {
            adapter.stats.full += 1;
            return Err(QueueFull);
        };
        adapter.stats.signaled += u64::from(signaled);
        datagrams.posted.push_back(FakePostedSend {
            to,
            work,
            body,
            signaled,
            slot,
        });
        let time = now + DOORBELL_NS;
        self.schedule(time, FakeNetEvent::DatagramLeaves { port });
        Ok(())
    }

    pub(super) fn datagram_leaves(&mut self, port: u32) {
        let adapter = self.port(port);
        if !adapter.is_open() {
            return;
        }
        let Some(posted) = adapter.datagrams.posted.pop_front() else {
            return;
        };
        let bytes = match &posted.body {
            FakeBody::Inline(bytes) => Some(bytes.to_vec()),
            FakeBody::Piece(piece) => adapter.regions.load(*piece),
        };
        let target = adapter.handles.get(&posted.to.handle.place()).copied();
        adapter.stats.wrong += u64::from(target.is_none());
        let status = match (&bytes, &target) {
            (None, _) => WorkStatus::LocalProtection,
            (_, None) => WorkStatus::Other(LOCAL_OPERATION),
            _ => WorkStatus::Success,
        };
        self.datagram_ends(port, &posted, status);
        let (Some(bytes), Some(target)) = (bytes, target) else {
            return self.break_datagrams(port);
        };
        let adapter = self.port(port);
        adapter.stats.datagrams += 1;
        adapter.stats.datagram_bytes += bytes.len() as u64;
        adapter.datagrams.left += 1;
        let datagram = FakeDatagram {
            from: port,
            target,
            sequence: adapter.datagrams.left,
            q_key: posted.to.key,
            source: adapter.datagrams.number,
            number: posted.to.number,
            bytes,
        };
        self.carry_datagram(datagram);
    }

    fn datagram_ends(&mut self, port: u32, posted: &FakePostedSend, status: WorkStatus) {
        if !posted.signaled && status == WorkStatus::Success {
            return;
        }
        let slot = posted.slot;
        let adapter = self.port(port);
        let entry = FakeCompletion {
            done: ended(posted.work, adapter.datagrams.number, status),
            owner: FakeSlotOwner::DatagramSends { slot },
        };
        adapter.complete(CqKind::Sends, entry);
    }

    fn carry_datagram(&mut self, datagram: FakeDatagram) {
        let copies = 1 + u64::from(self.random.chance(self.config.duplicate_permille));
        let adapter = &mut self.ports[datagram.from as usize];
        adapter.stats.datagrams_doubled += copies - 1;
        let is_doomed = adapter.datagrams.doomed > 0;
        adapter.datagrams.doomed = adapter.datagrams.doomed.saturating_sub(1);
        let is_carried = self.config.carries(datagram.bytes.len() as u64);
        let leaves = adapter.carries() && adapter.is_still(&datagram.target.source) && is_carried;
        for _ in 0..copies {
            if is_doomed || !leaves || self.random.chance(self.config.loss_permille) {
                self.port(datagram.from).stats.datagrams_lost += 1;
                continue;
            }
            let time = self.now + self.delay();
            let copy = Box::new(datagram.clone());
            self.schedule(time, FakeNetEvent::Datagram(copy));
        }
    }

    pub(super) fn datagram_arrives(&mut self, datagram: FakeDatagram) {
        let is_there = |port: &u32| self.delivers(datagram.from, *port, &datagram.target.to);
        let count = u32::try_from(self.ports.len()).expect("ports are few");
        let at_address: Vec<u32> = (0..count).filter(is_there).collect();
        let is_meant =
            |port: &&u32| self.ports[**port as usize].datagrams.number == datagram.number;
        match (at_address.iter().find(is_meant), at_address.first()) {
            (Some(port), _) => self.receive_datagram(*port, &datagram),
            (None, Some(port)) => self.port(*port).stats.datagrams_foreign += 1,
            (None, None) => self.port(datagram.from).stats.datagrams_lost += 1,
        }
    }

    /// Injects a datagram for a test.
    pub(super) fn inject_datagram(
        &mut self,
        from: u32,
        source: u32,
        to: u32,
        q_key: u32,
        bytes: &[u8],
    ) {
        let adapter = self.port(to);
        let (number, facts) = (adapter.datagrams.number, adapter.facts.clone());
        let to = PortAddress {
            link: facts.link,
            lid: facts.lid,
            number,
            packet_bytes: facts.packet_bytes,
            gid: facts.gid,
        };
        let from_facts = &self.port(from).facts;
        let target = FakeDestination {
            to,
            source: FakeSource::of(from_facts),
        };
        let datagram = FakeDatagram {
            from,
            target,
            sequence: 0,
            q_key,
            source,
            number,
            bytes: bytes.to_vec(),
        };
        let time = self.now + self.delay();
        self.schedule(time, FakeNetEvent::Datagram(Box::new(datagram)));
    }

    fn receive_datagram(&mut self, port: u32, datagram: &FakeDatagram) {
        let adapter = self.port(port);
        let fits = datagram.bytes.len() as u64 <= u64::from(adapter.facts.packet_bytes);
        if datagram.q_key != adapter.q_key || !fits {
            adapter.stats.datagrams_foreign += 1;
            return;
        }
        let latest = adapter.datagrams.latest.entry(datagram.from).or_default();
        let is_late = datagram.sequence < *latest;
        *latest = datagram.sequence.max(*latest);
        adapter.stats.datagrams_overtaken += u64::from(is_late);
        let buffer = match adapter.datagrams.is_broken {
            true => None,
            false => adapter.datagrams.buffers.take(),
        };
        let Some((work, piece)) = buffer else {
            adapter.stats.datagrams_without_buffer += 1;
            return;
        };
        let gid = adapter.facts.gid;
        let bytes = [&header(datagram, &gid)[..], &datagram.bytes].concat();
        let number = adapter.datagrams.number;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let status = match () {
            () if length > piece.bytes => WorkStatus::LocalLength,
            () if adapter.regions.store(piece, &bytes) => WorkStatus::Success,
            () => WorkStatus::LocalProtection,
        };
        let done = match status {
            WorkStatus::Success => PortCompletion {
                work,
                status,
                bytes: length,
                number,
                source: datagram.source,
                vendor: 0,
            },
            _ => ended(work, number, status),
        };
        let owner = FakeSlotOwner::DatagramReceives;
        adapter.complete(CqKind::Receives, FakeCompletion { done, owner });
        if status != WorkStatus::Success {
            self.break_datagrams(port);
        }
    }

    /// Breaks the datagram queue pair: posted requests and buffers are flushed.
    fn break_datagrams(&mut self, port: u32) {
        let adapter = self.port(port);
        if std::mem::replace(&mut adapter.datagrams.is_broken, true) {
            return;
        }
        let number = adapter.datagrams.number;
        adapter.events.push_back(PortEvent::QueuePairLost(number));
        for posted in std::mem::take(&mut adapter.datagrams.posted) {
            self.datagram_ends(port, &posted, WorkStatus::Flushed);
        }
        let adapter = self.port(port);
        while let Some((work, _)) = adapter.datagrams.buffers.take() {
            let done = ended(work, number, WorkStatus::Flushed);
            let owner = FakeSlotOwner::DatagramReceives;
            adapter.complete(CqKind::Receives, FakeCompletion { done, owner });
        }
        adapter.datagrams.buffers.is_lost = true;
    }
}

/// The Global Routing Header in front of a datagram in its receive buffer.
fn header(datagram: &FakeDatagram, to: &[u8; 16]) -> [u8; GRH_BYTES] {
    let mut header = [0; GRH_BYTES];
    let bytes = u16::try_from(datagram.bytes.len()).unwrap_or(u16::MAX);
    header[0] = 0x60;
    header[4..6].copy_from_slice(&bytes.to_be_bytes());
    header[6..8].copy_from_slice(&[0x1b, 64]);
    header[8..24].copy_from_slice(datagram.target.source.gid());
    header[24..].copy_from_slice(to);
    header
}

/// `IBV_WC_LOC_QP_OP_ERR`.
const LOCAL_OPERATION: u32 = 2;
