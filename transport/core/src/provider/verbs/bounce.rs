// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounce buffers: registered memory of this provider, for small transfers from and to memory of the program that is
//! not registered. Copying takes less time than registering and deregistering.
//!
//! - B1: a buffer into which a device may still write is not given to another read. It becomes free when all work
//!   requests of its read have completed; if they never do, because the port is lost, it stays out of use.
//! - B2: the program's memory is written by this process, after the read has succeeded. A failed read leaves it
//!   unchanged.
//! - B3: a buffer offered to a peer becomes free, with its key unchanged, when the peer has reported that its read has
//!   ended. Without that report, for example because the peer is lost, the buffer is registered again with another key
//!   first: the old key would give access to the next message in the buffer.

use super::keys::Regions;
use super::memory::RegisteredBlock;
use super::port::{RegionAccess, VerbsPort};
use super::rail::Rail;
use crate::Lease;

/// Buffers for one direction. Each is allocated when first needed, and registered separately, on one rail.
#[derive(Debug)]
pub(super) struct Bounces {
    access: RegionAccess,
    each_bytes: usize,
    /// Maximum number of buffers.
    most: usize,
    buffers: Vec<BounceBuffer>,
    free: Vec<u32>,
}

/// A registered buffer, and the rail on which it is registered.
#[derive(Debug)]
struct BounceBuffer {
    block: RegisteredBlock,
    /// The rail on which the buffer is registered, or was registered last.
    rail: usize,
}

/// The number of a buffer in use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounce(u32);

impl Bounces {
    /// A pool without buffers, for transfers of at most `data_bytes` bytes.
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

    /// Sets the maximum number of buffers to what fits into `bytes`; existing buffers stay.
    pub(super) fn grant(&mut self, bytes: usize) {
        let fitting = bytes.checked_div(self.each_bytes);
        let fitting = fitting.unwrap_or(0).min(MOST_BUFFERS);
        self.most = fitting.max(self.buffers.len());
    }

    /// Maximum memory of all buffers, in bytes.
    pub(super) fn most_bytes(&self) -> usize {
        self.most * self.each_bytes
    }

    /// Memory of the existing buffers, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.buffers.len() * self.each_bytes
    }

    /// Takes a buffer that is registered on this rail, or registers one; `None`: all are in use, or none can be
    /// registered.
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
        self.register_on(bounce, rails, rail)
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

    /// Deregisters a buffer from its rail and registers it on rail `rail`. If that fails, the buffer becomes free
    /// again.
    #[cold]
    fn register_on<P: VerbsPort>(
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

    /// Returns a buffer that is not accessed any more.
    pub(super) fn give_back(&mut self, bounce: Bounce) {
        self.free.push(bounce.0);
    }

    /// Returns a buffer that a peer may still read: registers it with another key (B3).
    #[cold]
    pub(super) fn give_back_rekeyed<P: VerbsPort>(
        &mut self,
        bounce: Bounce,
        rails: &mut [Rail<P>],
    ) {
        let rail = self.buffers[bounce.0 as usize].rail;
        if let Some(bounce) = self.register_on(bounce, rails, rail) {
            self.give_back(bounce);
        }
    }

    /// Copies leased memory into a buffer.
    pub(super) fn fill(&mut self, bounce: &Bounce, address: u64, bytes: usize) {
        let buffer = &mut self.buffers[bounce.0 as usize];
        buffer.block.fill_from_lent(address, bytes);
    }

    /// Copies from a buffer to a lease.
    pub(super) fn copy_to(&self, bounce: &Bounce, lease: &mut Lease) {
        self.buffers[bounce.0 as usize].block.copy_to(lease);
    }

    /// The address and the regions of a buffer.
    pub(super) fn place(&self, bounce: &Bounce) -> (u64, Regions) {
        let block = &self.buffers[bounce.0 as usize].block;
        (block.address(), block.regions())
    }

    /// The regions of the buffer at an address.
    pub(super) fn regions_at(&self, address: u64) -> Option<Regions> {
        let mut blocks = self.buffers.iter().map(|buffer| &buffer.block);
        let found = blocks.find(|block| block.address() == address);
        found.map(RegisteredBlock::regions)
    }

    /// Deregisters all buffers.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) {
        for mut buffer in self.buffers.drain(..) {
            let port = &mut rails[buffer.rail].port;
            buffer.block.deregister(buffer.rail, port);
        }
        self.free.clear();
    }
}

/// Maximum number of buffers of each direction. While all are in use, further transfers register their memory, as large
/// ones do.
const MOST_BUFFERS: usize = 16;
/// Largest transfer that is copied, whatever the setting.
pub(super) const MOST_COPIED_BYTES: u64 = 64 << 10;
const PAGE_BYTES: usize = 4096;
