// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process with a port and a block of memory.
//!
//! # Safety
//! A [`Block`] is memory that nobody borrows: it is read and written by copies alone, and lives until the port that could
//! reach it is gone, since [`Side`] drops the port first.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::super::super::port::{
    AddressHandle, CallError, CqKind, DatagramDestination, Depths, PortAttr, PortCompletion,
    PortEvent, QueuePairHandle, Receives, Region, RegionAccess, RemotePair, Sge, VerbsPort,
    WorkBody, WorkOpcode, WorkRequest, WorkStatus,
};
use super::super::{FakeConfig, FakeNet, FakePort};

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

/// Memory at an address that does not change. Nobody borrows it.
#[derive(Debug)]
pub(super) struct Block(NonNull<[u64]>);

impl Block {
    fn new() -> Self {
        let all = vec![0u64; BLOCK / 8].into_boxed_slice();
        Self(NonNull::from(Box::leak(all)))
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.0.cast()
    }

    fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset + bytes <= BLOCK);
        // SAFETY: inside the block.
        unsafe { self.base().add(offset) }
    }

    pub(super) fn put(&self, offset: usize, bytes: &[u8]) {
        let target = self.at(offset, bytes.len());
        // SAFETY: inside the block; the source is a slice.
        unsafe { target.copy_from(NonNull::from(bytes).cast(), bytes.len()) };
    }

    pub(super) fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        let source = self.at(offset, bytes);
        // SAFETY: inside the block; the target is a new vector.
        unsafe { source.copy_to(NonNull::from(&mut copy[..]).cast(), bytes) };
        copy
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak` of `new`; the port that could reach it was dropped before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A process: the port is dropped before the memory.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) port: FakePort,
    pub(super) region: Region,
    pub(super) block: Block,
}

/// A queue pair for datagrams that wants the key of most.
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
        let block = Block::new();
        // SAFETY: the block lives until the port is dropped, and is read and written by copies alone.
        let region = unsafe { port.register(block.base(), BLOCK, RegionAccess::Full) }.unwrap();
        Self {
            port,
            region,
            block,
        }
    }

    /// Registers a part of the block once more.
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
        self.block.base().addr().get() as u64 + offset as u64
    }

    pub(super) fn piece(&self, offset: usize, bytes: u32) -> Sge {
        Sge {
            address: self.address(offset),
            bytes,
            local_key: self.region.local_key,
        }
    }

    /// Gives buffers of 256 bytes, named from `first` on, from the second half of the block.
    pub(super) fn give(&mut self, queue: Receives, first: u64, count: u64) -> usize {
        let buffer = |name| (name, self.piece(buffer_offset(name), BUFFER));
        let buffers: Vec<_> = (first..first + count).map(buffer).collect();
        self.port.post_receives(queue, &buffers)
    }

    /// What lies in one of them.
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

    /// Work and status of all sends that have ended.
    pub(super) fn ends(&mut self) -> Vec<(u64, WorkStatus)> {
        let done = self.done(CqKind::Sends);
        done.iter().map(|done| (done.work, done.status)).collect()
    }

    /// Names and bytes of all buffers that were filled.
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

/// A message inside its request.
pub(super) fn inline(work: u64, bytes: &[u8]) -> WorkRequest<'_> {
    WorkRequest {
        work,
        operation: WorkOpcode::Send,
        body: WorkBody::Inline(bytes),
        signaled: true,
    }
}

/// Work with memory.
pub(super) fn request(work: u64, operation: WorkOpcode, piece: Sge) -> WorkRequest<'static> {
    WorkRequest {
        work,
        operation,
        body: WorkBody::Piece(piece),
        signaled: true,
    }
}

/// Two processes and a reliable queue pair between them.
pub(super) fn joined(config: FakeConfig) -> (FakeNet, [Side; 2], [QueuePairHandle; 2]) {
    let net = FakeNet::new(config);
    let mut sides = [Side::open(&net), Side::open(&net)];
    let pairs = join(&mut sides);
    (net, sides, pairs)
}

/// A reliable queue pair more between them.
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

/// The other end, which begins with the second packet number when this one begins with the first.
pub(super) fn remote(to: &Side, pair: QueuePairHandle, [ours, theirs]: [u32; 2]) -> RemotePair {
    RemotePair {
        address: to.port.address(),
        number: pair.number,
        their_first: theirs,
        our_first: ours,
        timeout_exp: 14,
    }
}

/// Lets everything happen.
pub(super) fn run(net: &FakeNet) {
    while net.advance() {}
}

/// Lets everything happen until then.
pub(super) fn run_to(net: &FakeNet, time_ns: u64) {
    while net.advance_until(time_ns) {}
}

/// A request that was posted first of all is on the wire.
pub(super) const ON_THE_WIRE: u64 = 500;
/// It was carried out, and its answer is on the wire.
pub(super) const CARRIED_OUT: u64 = 1_500;
