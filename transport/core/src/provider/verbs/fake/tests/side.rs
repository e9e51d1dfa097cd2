// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process with a port and a block of memory.
//!
//! # Safety
//! A [`Block`] is never borrowed: it is only read and written by copies. [`Side`] drops the port that can access it
//! before the block.
#![allow(unsafe_code)]

use super::super::super::port::{
    AddressHandle, CallError, CqKind, DatagramDestination, Depths, PortAttr, PortCompletion,
    PortEvent, QueuePairHandle, Receives, Region, RegionAccess, RemotePair, Sge, VerbsPort,
    WorkRequest, WorkStatus,
};
use super::super::{FakeConfig, FakeNet, FakePort};
pub(super) use super::block::{Block, inline, request};

pub(super) const BLOCK: usize = 64 * 1024;
pub(super) const Q_KEY: u32 = 0x1234_5678;

pub(super) const DEPTHS: Depths = Depths {
    completions: 256,
    sends: 16,
    datagrams: 16,
    shared: 64,
    datagram_buffers: 64,
    inline_bytes: 64,
};

/// A process: the port is dropped before the memory.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) port: FakePort,
    pub(super) region: Region,
    pub(super) block: Block,
}

/// A remote datagram queue pair with the Q_Key of most tests.
pub(super) fn mailbox(handle: AddressHandle, number: u32) -> DatagramDestination {
    let key = Q_KEY;
    DatagramDestination {
        handle,
        number,
        key,
    }
}

impl Side {
    pub(super) fn open(net: &FakeNet) -> Self {
        Self::open_with(net, &DEPTHS, Q_KEY)
    }

    pub(super) fn open_with(net: &FakeNet, depths: &Depths, q_key: u32) -> Self {
        let mut port = net.open(depths, q_key).unwrap();
        let block = Block::new(BLOCK);
        // SAFETY: the block outlives the port, and is only read and written by copies.
        let region =
            unsafe { port.register(block.at(0, BLOCK), BLOCK, RegionAccess::Full) }.unwrap();
        Self {
            port,
            region,
            block,
        }
    }

    /// Registers a part of the block as a further region.
    pub(super) fn register(&mut self, offset: usize, bytes: usize, access: RegionAccess) -> Region {
        self.try_register(offset, bytes, access).unwrap()
    }

    pub(super) fn try_register(
        &mut self,
        offset: usize,
        bytes: usize,
        access: RegionAccess,
    ) -> Result<Region, CallError> {
        let base = self.block.at(offset, bytes);
        // SAFETY: as in `open_with`.
        unsafe { self.port.register(base, bytes, access) }
    }

    pub(super) fn index(&self) -> u32 {
        self.port.index()
    }

    pub(super) fn facts(&self) -> &PortAttr {
        self.port.facts()
    }

    pub(super) fn address(&self, offset: usize) -> u64 {
        self.block.at(0, 0).addr().get() as u64 + offset as u64
    }

    pub(super) fn piece(&self, offset: usize, bytes: u32) -> Sge {
        Sge {
            address: self.address(offset),
            bytes,
            local_key: self.region.local_key,
        }
    }

    /// Posts receive buffers of 256 bytes from the second half of the block, with `wr_id`s from `first` on.
    pub(super) fn give(&mut self, queue: Receives, first: u64, count: u64) -> usize {
        let buffer = |name| (name, self.piece(buffer_offset(name), BUFFER));
        let buffers: Vec<_> = (first..first + count).map(buffer).collect();
        self.port.post_receives(queue, &buffers)
    }

    /// The first bytes of the receive buffer with this `wr_id`.
    pub(super) fn buffer(&self, name: u64, bytes: u32) -> Vec<u8> {
        self.block.get(buffer_offset(name), bytes as usize)
    }

    pub(super) fn post(&mut self, pair: QueuePairHandle, request: WorkRequest<'_>) -> bool {
        self.port.post(pair, &[request]) == 1
    }

    pub(super) fn send(&mut self, pair: QueuePairHandle, work: u64, bytes: &[u8]) -> bool {
        self.post(pair, inline(work, bytes))
    }

    pub(super) fn handle(&mut self, to: &Self) -> AddressHandle {
        self.port.create_address_handle(&to.port.address()).unwrap()
    }

    pub(super) fn done(&mut self, which: CqKind) -> Vec<PortCompletion> {
        let mut done = [PortCompletion::default(); 7];
        let mut all = Vec::new();
        loop {
            match self.port.poll(which, &mut done) {
                0 => return all,
                count => all.extend_from_slice(&done[..count]),
            }
        }
    }

    /// `wr_id` and status of all completed sends.
    pub(super) fn ends(&mut self) -> Vec<(u64, WorkStatus)> {
        let done = self.done(CqKind::Sends);
        done.iter().map(|done| (done.work, done.status)).collect()
    }

    /// `wr_id` and contents of all filled buffers.
    pub(super) fn arrived(&mut self) -> Vec<(u64, Vec<u8>)> {
        let done = self.done(CqKind::Receives);
        let content = |done: &PortCompletion| {
            assert_eq!(done.status, WorkStatus::Success);
            (done.work, self.buffer(done.work, done.bytes))
        };
        done.iter().map(content).collect()
    }

    pub(super) fn events(&mut self) -> Vec<PortEvent> {
        std::iter::from_fn(|| self.port.next_event()).collect()
    }
}

const BUFFER: u32 = 256;

fn buffer_offset(name: u64) -> usize {
    BLOCK / 2 + usize::try_from(name % 128).unwrap() * BUFFER as usize
}

/// Two processes and a reliable queue pair between them.
pub(super) fn joined(config: FakeConfig) -> (FakeNet, [Side; 2], [QueuePairHandle; 2]) {
    let net = FakeNet::new(config);
    let mut sides = [Side::open(&net), Side::open(&net)];
    let pairs = join(&mut sides);
    (net, sides, pairs)
}

/// Connects another reliable queue pair between two processes.
pub(super) fn join([one, other]: &mut [Side; 2]) -> [QueuePairHandle; 2] {
    let pairs = [one.port.create().unwrap(), other.port.create().unwrap()];
    one.port
        .connect(pairs[0], &remote(other, pairs[1], [100, 0xff_fff0]))
        .unwrap();
    other
        .port
        .connect(pairs[1], &remote(one, pairs[0], [0xff_fff0, 100]))
        .unwrap();
    pairs
}

/// The queue pair of `to` as the remote end to connect to, with the first packet sequence numbers of this end and of
/// the remote end.
pub(super) fn remote(to: &Side, pair: QueuePairHandle, [ours, theirs]: [u32; 2]) -> RemotePair {
    RemotePair {
        address: to.port.address(),
        number: pair.number,
        rq_psn: theirs,
        sq_psn: ours,
        timeout_exp: 14,
    }
}

/// Advances the network until there are no events.
pub(super) fn run(net: &FakeNet) {
    while net.advance() {}
}

/// Processes all events until `time_ns`.
pub(super) fn run_to(net: &FakeNet, time_ns: u64) {
    while net.advance_until(time_ns) {}
}

/// At this time a request posted at time 0 is on the wire.
pub(super) const ON_THE_WIRE: u64 = 500;
/// At this time a request posted at time 0 has been carried out, and its response is on the wire.
pub(super) const CARRIED_OUT: u64 = 1_500;
