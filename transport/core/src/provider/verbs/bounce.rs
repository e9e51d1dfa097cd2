// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounce buffers: memory of our own that stays registered, through which small data pass that lie in memory of the program's
//! which is not registered. To copy them takes less time than to register memory and to forget it again.
//!
//! - B1: a buffer into which a device may still write is nobody else's. It is free when all work requests of its read have
//!   come back; where that is never told, since the port is lost, it stays away.
//! - B2: the program's memory is written by this process, when the read has ended well. One that has not leaves it alone.
//! - B3: a message is taken back when its peer has said that it reads no more, and is believed: a key that opened a buffer before
//!   opens it for the next message too. Where that was not said, as by a peer that is lost, the buffer gets another key.

use super::keys::Regions;
use super::memory::RegisteredBlock;
use super::port::{RegionAccess, VerbsPort};
use super::rail::Rail;
use crate::Lease;

/// Buffers for one direction. Each is made when it is needed for the first time, and registered by itself, with one rail.
#[derive(Debug)]
pub(super) struct Bounces {
    access: RegionAccess,
    each_bytes: usize,
    /// So many there may be.
    most: usize,
    buffers: Vec<BounceBuffer>,
    free: Vec<u32>,
}

/// A registered buffer, and the rail with which it is registered.
#[derive(Debug)]
struct BounceBuffer {
    block: RegisteredBlock,
    /// The rail that knows it, or did.
    rail: usize,
}

/// A buffer that was taken: its number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounce(u32);

impl Bounces {
    /// None, for data of so many bytes at most.
    pub(super) fn new(access: RegionAccess, data_bytes: u64) -> Self {
        let few = crate::mr::to_usize(data_bytes.min(MOST_COPIED_BYTES));
        Self {
            access,
            each_bytes: few.next_multiple_of(PAGE_BYTES),
            most: 0,
            buffers: Vec::new(),
            free: Vec::new(),
        }
    }

    /// As many as there is memory for may be made; those that there are stay.
    pub(super) fn grant(&mut self, bytes: usize) {
        let fitting = bytes.checked_div(self.each_bytes);
        let fitting = fitting.unwrap_or(0).min(MOST_BUFFERS);
        self.most = fitting.max(self.buffers.len());
    }

    /// Bytes of as many as there may be.
    pub(super) fn most_bytes(&self) -> usize {
        self.most * self.each_bytes
    }

    /// Bytes of those that there are.
    pub(super) fn bytes(&self) -> usize {
        self.buffers.len() * self.each_bytes
    }

    /// Takes one that a rail knows; `None`: all are in use, or no more memory may be locked.
    pub(super) fn take<P: VerbsPort>(&mut self, rails: &mut [Rail<P>], rail: u8) -> Option<Bounce> {
        let rail = usize::from(rail);
        let is_known = |number: &u32| {
            let block = &self.buffers[*number as usize].block;
            block.regions()[rail].is_some()
        };
        if let Some(at) = self.free.iter().rposition(is_known) {
            return Some(Bounce(self.free.remove(at)));
        }
        let made = self.make().or_else(|| self.free.pop());
        let bounce = Bounce(made?);
        self.introduce(bounce, rails, rail)
    }

    #[cold]
    fn make(&mut self) -> Option<u32> {
        let number = self.buffers.len();
        if number >= self.most {
            return None;
        }
        let block = RegisteredBlock::new(self.each_bytes).ok()?;
        self.buffers.push(BounceBuffer { block, rail: 0 });
        u32::try_from(number).ok()
    }

    /// Makes one known to a rail, and to no other. What cannot be is free again.
    #[cold]
    fn introduce<P: VerbsPort>(
        &mut self,
        bounce: Bounce,
        rails: &mut [Rail<P>],
        rail: usize,
    ) -> Option<Bounce> {
        let buffer = &mut self.buffers[bounce.0 as usize];
        buffer
            .block
            .deregister(buffer.rail, &mut rails[buffer.rail].port);
        let port = &mut rails[rail].port;
        let registered = buffer.block.register(rail, port, self.access);
        buffer.rail = rail;
        if registered.is_err() {
            self.give_back(bounce);
            return None;
        }
        Some(bounce)
    }

    /// Nobody reads or writes it any more.
    pub(super) fn give_back(&mut self, bounce: Bounce) {
        self.free.push(bounce.0);
    }

    /// The same of one that somebody may still read: it gets another key (B3).
    #[cold]
    pub(super) fn give_back_anew<P: VerbsPort>(&mut self, bounce: Bounce, rails: &mut [Rail<P>]) {
        let rail = self.buffers[bounce.0 as usize].rail;
        if let Some(bounce) = self.introduce(bounce, rails, rail) {
            self.give_back(bounce);
        }
    }

    /// Copies what is on loan into one.
    pub(super) fn fill(&mut self, bounce: &Bounce, address: u64, bytes: usize) {
        let buffer = &mut self.buffers[bounce.0 as usize];
        buffer.block.fill_from_lent(address, bytes);
    }

    /// Fills a lease with what is in one.
    pub(super) fn copy_to(&self, bounce: &Bounce, lease: &mut Lease) {
        self.buffers[bounce.0 as usize].block.copy_to(lease);
    }

    /// Where one is, and how its rail knows it.
    pub(super) fn place(&self, bounce: &Bounce) -> (u64, Regions) {
        let block = &self.buffers[bounce.0 as usize].block;
        (block.address(), block.regions())
    }

    /// The same of the one that begins at an address.
    pub(super) fn regions_at(&self, address: u64) -> Option<Regions> {
        let mut blocks = self.buffers.iter().map(|buffer| &buffer.block);
        let found = blocks.find(|block| block.address() == address);
        found.map(RegisteredBlock::regions)
    }

    /// Takes all memory away from the ports.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) {
        for mut buffer in self.buffers.drain(..) {
            let port = &mut rails[buffer.rail].port;
            buffer.block.deregister(buffer.rail, port);
        }
        self.free.clear();
    }
}

/// Buffers of each direction at most; further data are registered as if they were large.
const MOST_BUFFERS: usize = 16;
/// More are not copied, whatever is set.
pub(super) const MOST_COPIED_BYTES: u64 = 64 << 10;
const PAGE_BYTES: usize = 4096;
