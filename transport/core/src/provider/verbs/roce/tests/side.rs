// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process with a port over UDP within this host, and a block of memory.
//!
//! # Safety
//! A [`Block`] is never borrowed: it is only read and written by copies. [`Side`] drops the port that can access it
//! before the block.
#![allow(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};

use super::super::super::NetTerms;
use super::super::super::fake::tests::block::{Block, inline};
use super::super::super::port::{
    CqKind, Depths, PortCompletion, QueuePairHandle, Receives, Region, RegionAccess, RemotePair,
    Sge, VerbsPort, WorkRequest, WorkStatus,
};
use super::super::carrier::Carrier;
use super::super::{PairNumbers, RocePort, Udp};
use crate::{Lease, wait};

pub(super) const BLOCK: usize = 256 * 1024;
pub(super) const Q_KEY: u32 = 0x1234_5678;

const DEPTHS: Depths = Depths {
    completions: 256,
    sends: 16,
    datagrams: 16,
    shared: 64,
    datagram_buffers: 64,
    inline_bytes: 64,
};

/// A lease of a part of a block, which stays valid until the work has ended.
pub(super) fn lent(block: &Block, offset: usize, bytes: usize) -> Lease {
    let base = block.at(offset, bytes);
    // SAFETY: inside the block; the test reads it after the work has ended.
    unsafe { Lease::new(base, bytes) }
}

/// A process: the port is dropped before the memory.
#[derive(Debug)]
pub(super) struct Side<C: Carrier = Udp> {
    pub(super) port: RocePort<C>,
    pub(super) region: Region,
    pub(super) block: Block,
}

impl Side {
    pub(super) fn open() -> Self {
        Self::with_terms(&NetTerms::DEFAULT)
    }

    pub(super) fn with_terms(terms: &NetTerms) -> Self {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self::over(Udp::open(here, 65_536).unwrap(), terms)
    }
}

impl<C: Carrier> Side<C> {
    pub(super) fn over(carrier: C, terms: &NetTerms) -> Self {
        let mut port = RocePort::open(carrier, PairNumbers::ALONE, &DEPTHS, terms, Q_KEY).unwrap();
        port.limits.silence_ns = 1_000_000_000;
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
        let base = self.block.at(offset, bytes);
        // SAFETY: as in `over`.
        unsafe { self.port.register(base, bytes, access) }.unwrap()
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
    pub(super) fn give(&mut self, queue: Receives, first: u64, count: u64) {
        let buffer = |name| (name, self.piece(buffer_offset(name), BUFFER));
        let buffers: Vec<_> = (first..first + count).map(buffer).collect();
        assert_eq!(self.port.post_receives(queue, &buffers), buffers.len());
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

    pub(super) fn done(&mut self, which: CqKind) -> Vec<PortCompletion> {
        let mut done = [PortCompletion::default(); 7];
        let count = self.port.poll(which, &mut done);
        done[..count].to_vec()
    }
}

const BUFFER: u32 = 256;

fn buffer_offset(name: u64) -> usize {
    BLOCK / 2 + usize::try_from(name % 128).unwrap() * BUFFER as usize
}

/// The queue pair of `to` as the remote end to connect to, with the first packet sequence numbers of this end and of
/// the remote end.
pub(super) fn remote<C: Carrier>(
    to: &Side<C>,
    pair: QueuePairHandle,
    [sq_psn, rq_psn]: [u32; 2],
) -> RemotePair {
    RemotePair {
        address: to.port.address(),
        number: pair.number,
        rq_psn,
        sq_psn,
        timeout_exp: 8,
    }
}

/// Two processes and a reliable queue pair between them.
pub(super) fn joined() -> ([Side; 2], [QueuePairHandle; 2]) {
    let mut sides = [Side::open(), Side::open()];
    let pairs = join(&mut sides);
    (sides, pairs)
}

/// Connects another reliable queue pair between two processes.
pub(super) fn join<C: Carrier>([one, other]: &mut [Side<C>; 2]) -> [QueuePairHandle; 2] {
    let pairs = [one.port.create().unwrap(), other.port.create().unwrap()];
    let to_other = remote(other, pairs[1], [100, 0xff_fff0]);
    one.port.connect(pairs[0], &to_other).unwrap();
    let to_one = remote(one, pairs[0], [0xff_fff0, 100]);
    other.port.connect(pairs[1], &to_one).unwrap();
    pairs
}

/// Both ports make turns until the side `whose` has completions of this kind; returns these.
pub(super) fn until_done<C: Carrier>(
    sides: &mut [Side<C>; 2],
    whose: usize,
    which: CqKind,
) -> Vec<PortCompletion> {
    let since = wait::monotonic_ns();
    while wait::monotonic_ns() - since < 20_000_000_000 {
        let done = sides[whose].done(which);
        if !done.is_empty() {
            return done;
        }
        for side in &mut *sides {
            side.port.turn();
        }
    }
    panic!("nothing has ended")
}

/// The only completion of a request of this side.
pub(super) fn end<C: Carrier>(sides: &mut [Side<C>; 2], whose: usize) -> (u64, WorkStatus) {
    let done = until_done(sides, whose, CqKind::Sends);
    assert_eq!(done.len(), 1, "{done:?}");
    (done[0].work, done[0].status)
}
