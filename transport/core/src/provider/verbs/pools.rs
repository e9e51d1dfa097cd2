// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for packets: slots for sends, in two sizes, and receive buffers for two queues. All pools start small and
//! grow, block by block, to a limit that does not depend on the number of peers.

use session::Slot;

use super::NetLimits;
use super::memory::RegisteredBlock;
use super::path_mtu::{MORE_BYTES, MOST_NOTE_BYTES};
use super::port::{CallError, GRH_BYTES, Receives, RegionAccess, Sge, VerbsPort, WorkBody};
use super::posted::PostedRequest;
use super::rail::{RAIL_SHIFT, Rail};
use super::wire::{HEADER_BYTES, NOTE_BYTES};

/// Slots for sends.
#[derive(Debug)]
pub(super) struct SendPool {
    small: SlotPool,
    large: SlotPool,
}

impl SendPool {
    pub(super) fn new() -> Self {
        Self {
            small: SlotPool::new(SMALL_SLOT_BYTES, 256, 5),
            large: SlotPool::new(LARGE_BYTES, 16, 6),
        }
    }

    /// Allocates the first blocks: later sends can wait for a slot only if there are any slots.
    pub(super) fn open<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) -> Result<(), CallError> {
        self.small.make_more(rails)?;
        self.large.make_more(rails)
    }

    pub(super) fn most_bytes(&self) -> usize {
        self.small.most_bytes() + self.large.most_bytes()
    }

    pub(super) fn bytes(&self) -> usize {
        self.small.bytes() + self.large.bytes()
    }

    /// Bytes of the first block of each size.
    pub(super) fn first_bytes(&self) -> usize {
        self.small.block_bytes() + self.large.block_bytes()
    }

    /// Whether more than half of the limit of small slots or of large slots is in use.
    #[inline(always)]
    pub(super) fn is_scarce(&self) -> bool {
        self.small.is_scarce() || self.large.is_scarce()
    }

    /// Whether a packet may be opened that fills slowly and takes a large slot: at most three eighths of them are in use.
    pub(super) fn may_open(&self) -> bool {
        let large = &self.large;
        let used = large.uses.len() - large.free.len();
        !self.is_scarce() && used <= large.per_block * large.most_blocks / 8 * 3
    }

    /// Whether there is room for `count` packets of `bytes` bytes, besides the slots left for notes (messages outside
    /// the streams).
    pub(super) fn has(&self, bytes: usize, count: usize) -> bool {
        if bytes <= SMALL_SLOT_BYTES {
            return self.small.has(count + FOR_NOTES);
        }
        self.large.has(count + FOR_LONG_NOTES)
    }

    /// Whether there is a slot for a note of any length. If no slot is free, allocates further ones, up to the limit.
    pub(super) fn has_for_long_note<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) -> bool {
        if self.large.free.is_empty() {
            self.large.grow(rails);
        }
        !self.large.free.is_empty()
    }

    /// A free slot for a packet of `bytes` bytes, which the caller's session keeps; `None`: no slot is free, except
    /// those left for notes.
    #[inline(always)]
    pub(super) fn take<P: VerbsPort>(
        &mut self,
        rails: &mut [Rail<P>],
        bytes: usize,
    ) -> Option<Slot> {
        if bytes <= SMALL_SLOT_BYTES {
            return self.small.take(rails, FOR_NOTES);
        }
        let slot = self.large.take(rails, FOR_LONG_NOTES);
        slot.map(|slot| slot | MARK)
    }

    /// A free slot for a note. Packets leave some slots free for notes: otherwise no acknowledgement could be
    /// requested.
    fn take_for_note<P: VerbsPort>(&mut self, rails: &mut [Rail<P>], bytes: usize) -> Option<Slot> {
        if bytes <= SMALL_SLOT_BYTES {
            return self.small.take(rails, 0);
        }
        self.large.take(rails, 0).map(|slot| slot | MARK)
    }

    /// A slot with the note in it, padded with zeros to `bytes`.
    pub(super) fn note<P: VerbsPort>(
        &mut self,
        rails: &mut [Rail<P>],
        note: &[u8; NOTE_BYTES],
        bytes: usize,
    ) -> Option<Slot> {
        let slot = self.take_for_note(rails, bytes)?;
        let place = self.bytes_mut(slot, bytes);
        if let Some((start, rest)) = place.split_first_chunk_mut() {
            *start = *note;
            rest.fill(0);
        }
        Some(slot)
    }

    /// A free slot for a short packet, if slots are not scarce.
    #[inline(always)]
    pub(super) fn take_free(&mut self) -> Option<Slot> {
        let small = &mut self.small;
        if small.is_scarce() || small.free.len() <= FOR_NOTES {
            return None;
        }
        let slot = small.free.pop()?;
        small.uses[slot as usize].kept = true;
        Some(slot)
    }

    #[inline(always)]
    fn of(&mut self, slot: Slot) -> (&mut SlotPool, Slot) {
        if slot & MARK == 0 {
            (&mut self.small, slot)
        } else {
            (&mut self.large, slot & !MARK)
        }
    }

    /// Whether no device reads a slot: then its contents may change.
    #[inline(always)]
    pub(super) fn is_still(&self, slot: Slot) -> bool {
        let slots = if slot & MARK == 0 {
            &self.small
        } else {
            &self.large
        };
        slots.uses[(slot & !MARK) as usize].posted == 0
    }

    /// The bytes of a slot, for writing.
    #[inline(always)]
    pub(super) fn bytes_mut(&mut self, slot: Slot, bytes: usize) -> &mut [u8] {
        let (slots, slot) = self.of(slot);
        slots.bytes_mut(slot, bytes)
    }

    /// A slot as the body of a work request to rail `rail`.
    #[inline(always)]
    pub(super) fn body(
        &self,
        slot: Slot,
        rail: usize,
        bytes: usize,
        inline_bytes: usize,
    ) -> WorkBody<'_> {
        let slots = if slot & MARK == 0 {
            &self.small
        } else {
            &self.large
        };
        slots.body(slot & !MARK, rail, bytes, inline_bytes)
    }

    /// Ends the session's use of a slot.
    #[inline(always)]
    pub(super) fn release(&mut self, slot: Slot) {
        let (slots, slot) = self.of(slot);
        slots.release(slot);
    }

    /// Records a work request that reads a slot.
    #[inline(always)]
    pub(super) fn posted(&mut self, slot: Slot) {
        let (slots, slot) = self.of(slot);
        slots.posted(slot);
    }

    /// Records the end of a work request that read a slot.
    #[inline(always)]
    pub(super) fn retired(&mut self, slot: Slot) {
        let (slots, slot) = self.of(slot);
        slots.retired(slot);
    }

    /// Records the end of a posted request: the device does not read its slot any more.
    #[inline(always)]
    pub(super) fn posted_ended(&mut self, posted: PostedRequest) {
        if let PostedRequest::Packet { read, .. } | PostedRequest::Mark { read } = posted
            && let Some(slot) = read
        {
            self.retired(slot);
        }
    }

    /// Deregisters all slots.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) {
        self.small.retire(rails);
        self.large.retire(rails);
    }
}

/// Receive buffers of one rail.
#[derive(Debug)]
pub(super) struct RecvPool {
    shared: BufferPool,
    datagrams: BufferPool,
    /// The rail's bits in the numbers of the buffers.
    rail: Slot,
}

impl RecvPool {
    /// The pool of rail `rail`. `packet_bytes`: MTU of its port; no datagram is longer, except notes by a few bytes.
    pub(super) fn new(rail: u8, packet_bytes: u32, limits: &NetLimits) -> Self {
        let datagram_bytes = GRH_BYTES + packet_bytes as usize + MORE_BYTES;
        let datagram_bytes = datagram_bytes.next_multiple_of(64);
        let buffers = |queue, bytes, depth: u32, block: usize| {
            let depth = depth as usize;
            BufferPool::new(queue, bytes, block.min(depth), depth.div_ceil(block))
        };
        Self {
            shared: buffers(
                Receives::Shared,
                LARGE_BYTES,
                limits.receive_depth,
                SHARED_BUFFERS,
            ),
            datagrams: buffers(
                Receives::Datagrams,
                datagram_bytes,
                limits.datagram_receives,
                DATAGRAM_BUFFERS,
            ),
            rail: Slot::from(rail) << RAIL_SHIFT,
        }
    }

    pub(super) fn most_bytes(&self) -> usize {
        self.shared.most_bytes() + self.datagrams.most_bytes()
    }

    pub(super) fn bytes(&self) -> usize {
        self.shared.bytes() + self.datagrams.bytes()
    }

    /// Bytes of the first block of each queue.
    pub(super) fn first_bytes(&self) -> usize {
        self.shared.block_bytes() + self.datagrams.block_bytes()
    }

    /// Posts the first buffers.
    pub(super) fn open<P: VerbsPort>(&mut self, port: &mut P) -> Result<(), CallError> {
        self.shared.grow(port)?;
        self.datagrams.grow(port)?;
        Ok(())
    }

    /// Records that a posted buffer was filled, and returns its number. `None`: there is no such buffer.
    #[inline(always)]
    pub(super) fn filled(&mut self, work: u64, bytes: u32) -> Option<Slot> {
        #[allow(clippy::cast_possible_truncation, reason = "checked by `filled`")]
        let slot = work as Slot | self.rail;
        if work & u64::from(MARK) == 0 {
            self.shared.filled(work, bytes).then_some(slot)
        } else {
            let work = work & !u64::from(MARK);
            self.datagrams.filled(work, bytes).then_some(slot)
        }
    }

    #[inline(always)]
    fn of(&self, buffer: Slot) -> (&BufferPool, Slot, usize) {
        if is_datagram(buffer) {
            (&self.datagrams, bare(buffer), GRH_BYTES)
        } else {
            (&self.shared, bare(buffer), 0)
        }
    }

    /// Length of the packet in a filled buffer, in bytes.
    #[inline(always)]
    pub(super) fn bytes_in(&self, buffer: Slot) -> usize {
        let (buffers, buffer, skip) = self.of(buffer);
        buffers.bytes_in(buffer).saturating_sub(skip)
    }

    /// Copies bytes of the packet in a filled buffer.
    #[inline(always)]
    pub(super) fn copy_out(&self, buffer: Slot, at: usize, target: &mut [u8]) {
        let (buffers, buffer, skip) = self.of(buffer);
        buffers.copy_out(buffer, skip + at, target);
    }

    /// Copies the first bytes of the packet in a filled buffer; returns how many.
    #[inline(always)]
    pub(super) fn copy_start(&self, buffer: Slot, target: &mut [u8]) -> usize {
        let bytes = self.bytes_in(buffer).min(target.len());
        self.copy_out(buffer, 0, &mut target[..bytes]);
        bytes
    }

    /// The first bytes of a buffer of the shared queue, whatever the length of its packet.
    #[inline(always)]
    pub(super) fn start<const BYTES: usize>(&self, buffer: Slot) -> [u8; BYTES] {
        debug_assert!(!is_datagram(buffer), "of the shared queue");
        self.shared.start(bare(buffer))
    }

    /// Returns a buffer; it is posted again in a batch.
    #[inline(always)]
    pub(super) fn give_back<P: VerbsPort>(&mut self, buffer: Slot, port: &mut P) {
        if is_datagram(buffer) {
            self.datagrams.give_back(bare(buffer), port);
        } else {
            self.shared.give_back(bare(buffer), port);
        }
    }

    /// Whether at least half of the datagram buffers are posted or ready to be.
    #[inline(always)]
    pub(super) fn has_datagram_buffers(&self) -> bool {
        let buffers = &self.datagrams;
        2 * (buffers.posted + buffers.spare.len()) >= buffers.filled.len()
    }

    /// Adds buffers to each queue that has fewer than half of its buffers posted.
    #[inline(always)]
    pub(super) fn replenish<P: VerbsPort>(&mut self, port: &mut P) {
        self.shared.replenish(port);
        self.datagrams.replenish(port);
    }

    /// Deregisters all buffers.
    pub(super) fn retire<P: VerbsPort>(&mut self, port: &mut P) {
        self.shared.retire(port);
        self.datagrams.retire(port);
    }
}

/// The index of a buffer in its queue.
#[inline(always)]
fn bare(buffer: Slot) -> Slot {
    buffer & ((1 << RAIL_SHIFT) - 1)
}

/// Whether a buffer is one for datagrams.
#[inline(always)]
pub(super) fn is_datagram(buffer: Slot) -> bool {
    buffer & MARK != 0
}

/// Send slots of one size.
#[derive(Debug)]
struct SlotPool {
    slot_bytes: usize,
    per_block: usize,
    most_blocks: usize,
    blocks: Vec<RegisteredBlock>,
    uses: Vec<SlotUse>,
    free: Vec<Slot>,
}

/// The users of a slot. The slot is free when it has none.
#[derive(Clone, Copy, Debug, Default)]
struct SlotUse {
    /// Whether a session keeps the slot.
    kept: bool,
    /// Number of work requests that read the slot.
    posted: u16,
}

impl SlotPool {
    fn new(slot_bytes: usize, per_block: usize, most_blocks: usize) -> Self {
        Self {
            slot_bytes,
            per_block,
            most_blocks,
            blocks: Vec::new(),
            uses: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Maximum memory of the pool, in bytes.
    fn most_bytes(&self) -> usize {
        let slots = self.per_block * self.most_blocks;
        slots * (self.slot_bytes + size_of::<SlotUse>() + size_of::<Slot>())
    }

    /// Memory of the pool now, in bytes.
    fn bytes(&self) -> usize {
        self.block_bytes() * self.blocks.len()
    }

    fn block_bytes(&self) -> usize {
        self.most_bytes() / self.most_blocks
    }

    /// Whether more than half of the limit is in use.
    #[inline(always)]
    fn is_scarce(&self) -> bool {
        let used = self.uses.len() - self.free.len();
        used > self.per_block * self.most_blocks / 2
    }

    fn has(&self, count: usize) -> bool {
        let more = self.per_block * (self.most_blocks - self.blocks.len());
        self.free.len() + more >= count
    }

    /// A free slot, which the caller keeps; `None`: only `left` slots or fewer are free.
    #[inline(always)]
    fn take<P: VerbsPort>(&mut self, rails: &mut [Rail<P>], left: usize) -> Option<Slot> {
        if self.free.len() <= left {
            self.grow(rails);
        }
        if self.free.len() <= left {
            return None;
        }
        let slot = self.free.pop()?;
        self.uses[slot as usize].kept = true;
        Some(slot)
    }

    #[cold]
    fn grow<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) {
        if self.blocks.len() < self.most_blocks {
            // An error is ignored: if no more memory can be locked, the pool keeps its present size.
            let _ = self.make_more(rails);
        }
    }

    fn make_more<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) -> Result<(), CallError> {
        let mut block = RegisteredBlock::new(self.slot_bytes * self.per_block)?;
        let there = (0..).zip(&mut *rails);
        let mut places = there.filter(|(_, rail)| rail.lost.is_none());
        let registered = places
            .try_for_each(|(at, rail)| block.register(at, &mut rail.port, RegionAccess::OwnRead));
        if let Err(error) = registered {
            forget(&mut block, rails);
            return Err(error);
        }
        let first = self.uses.len();
        self.blocks.push(block);
        self.uses.resize(
            first + self.per_block,
            SlotUse {
                kept: false,
                posted: 0,
            },
        );
        let numbers = (first..self.uses.len()).rev();
        self.free
            .extend(numbers.filter_map(|n| Slot::try_from(n).ok()));
        Ok(())
    }

    /// The bytes of a slot, for writing.
    #[inline(always)]
    fn bytes_mut(&mut self, slot: Slot, bytes: usize) -> &mut [u8] {
        let (block, at) = self.place(slot);
        self.blocks[block].bytes_mut(at, bytes.min(self.slot_bytes))
    }

    /// A slot as the body of a work request.
    #[inline(always)]
    fn body(&self, slot: Slot, rail: usize, bytes: usize, inline_bytes: usize) -> WorkBody<'_> {
        let (block, at) = self.place(slot);
        if bytes <= inline_bytes {
            return WorkBody::Inline(self.blocks[block].bytes(at, bytes));
        }
        WorkBody::Piece(self.blocks[block].piece(rail, at, bytes))
    }

    #[inline(always)]
    fn place(&self, slot: Slot) -> (usize, usize) {
        let slot = slot as usize;
        let at = slot % self.per_block * self.slot_bytes;
        (slot / self.per_block, at)
    }

    /// Ends the session's use of a slot.
    #[inline(always)]
    fn release(&mut self, slot: Slot) {
        let uses = &mut self.uses[slot as usize];
        debug_assert!(uses.kept, "a slot is released once");
        uses.kept = false;
        if uses.posted == 0 {
            self.free.push(slot);
        }
    }

    /// Records a work request that reads a slot.
    #[inline(always)]
    fn posted(&mut self, slot: Slot) {
        self.uses[slot as usize].posted += 1;
    }

    /// Records the end of a work request that read a slot.
    #[inline(always)]
    fn retired(&mut self, slot: Slot) {
        let uses = &mut self.uses[slot as usize];
        uses.posted -= 1;
        if uses.posted == 0 && !uses.kept {
            self.free.push(slot);
        }
    }

    /// Deregisters all slots.
    fn retire<P: VerbsPort>(&mut self, rails: &mut [Rail<P>]) {
        for mut block in self.blocks.drain(..) {
            forget(&mut block, rails);
        }
    }
}

/// Deregisters a block from all ports.
fn forget<P: VerbsPort>(block: &mut RegisteredBlock, rails: &mut [Rail<P>]) {
    for (at, rail) in rails.iter_mut().enumerate() {
        block.deregister(at, &mut rail.port);
    }
}

/// The buffers of one receive queue.
#[derive(Debug)]
struct BufferPool {
    queue: Receives,
    buffer_bytes: usize,
    per_block: usize,
    most_blocks: usize,
    blocks: Vec<RegisteredBlock>,
    /// Buffers to be posted.
    spare: Vec<Slot>,
    posted: usize,
    /// Bytes in each filled buffer.
    filled: Vec<u16>,
}

impl BufferPool {
    fn new(queue: Receives, buffer_bytes: usize, per_block: usize, most_blocks: usize) -> Self {
        Self {
            queue,
            buffer_bytes,
            per_block,
            most_blocks,
            blocks: Vec::new(),
            spare: Vec::new(),
            posted: 0,
            filled: Vec::new(),
        }
    }

    /// Maximum memory of the pool, in bytes.
    fn most_bytes(&self) -> usize {
        self.per_block * self.most_blocks * (self.buffer_bytes + size_of::<Slot>())
    }

    /// Memory of the pool now, in bytes.
    fn bytes(&self) -> usize {
        self.block_bytes() * self.blocks.len()
    }

    fn block_bytes(&self) -> usize {
        self.most_bytes() / self.most_blocks
    }

    /// Allocates and posts another block. `false`: the limit is reached.
    fn grow<P: VerbsPort>(&mut self, port: &mut P) -> Result<bool, CallError> {
        if self.blocks.len() == self.most_blocks {
            return Ok(false);
        }
        let mut block = RegisteredBlock::new(self.buffer_bytes * self.per_block)?;
        block.register(ONLY, port, RegionAccess::Own)?;
        let first = self.blocks.len() * self.per_block;
        self.blocks.push(block);
        let numbers = first..first + self.per_block;
        self.filled.resize(numbers.end, 0);
        self.spare
            .extend(numbers.filter_map(|n| Slot::try_from(n).ok()));
        self.post_spare(port);
        Ok(true)
    }

    /// Records that a posted buffer was filled; `false`: there is no such buffer.
    #[inline(always)]
    fn filled(&mut self, buffer: u64, bytes: u32) -> bool {
        let buffer = usize::try_from(buffer).unwrap_or(usize::MAX);
        let Some(filled) = self.filled.get_mut(buffer) else {
            return false;
        };
        *filled = u16::try_from(bytes).unwrap_or(0);
        self.posted -= 1;
        true
    }

    #[inline(always)]
    fn bytes_in(&self, buffer: Slot) -> usize {
        usize::from(self.filled[buffer as usize])
    }

    /// Returns a buffer; it is posted again in a batch.
    #[inline(always)]
    fn give_back<P: VerbsPort>(&mut self, buffer: Slot, port: &mut P) {
        self.spare.push(buffer);
        if self.spare.len() >= BATCH || self.posted < BATCH {
            self.post_spare(port);
        }
    }

    /// Adds buffers if fewer than half of them are posted.
    #[inline(always)]
    fn replenish<P: VerbsPort>(&mut self, port: &mut P) {
        if self.posted < self.blocks.len() * self.per_block / 2 {
            self.replenish_scarce(port);
        }
    }

    #[cold]
    fn replenish_scarce<P: VerbsPort>(&mut self, port: &mut P) {
        self.post_spare(port);
        if self.posted < self.blocks.len() * self.per_block / 2 {
            // An error is ignored: without more memory, the flow control of the network limits the senders.
            let _ = self.grow(port);
        }
    }

    fn post_spare<P: VerbsPort>(&mut self, port: &mut P) {
        const NOWHERE: Sge = Sge {
            address: 0,
            bytes: 0,
            local_key: 0,
        };
        let mark = match self.queue {
            Receives::Shared => 0,
            Receives::Datagrams => MARK,
        };
        while !self.spare.is_empty() {
            let from = self.spare.len().saturating_sub(BATCH);
            let mut list = [(0, NOWHERE); BATCH];
            let batch = &self.spare[from..];
            for (entry, buffer) in list.iter_mut().zip(batch) {
                let (block, at) = self.place(*buffer);
                let piece = self.blocks[block].piece(ONLY, at, self.buffer_bytes);
                *entry = (u64::from(buffer | mark), piece);
            }
            let wanted = batch.len();
            let taken = port.post_receives(self.queue, &list[..wanted]);
            self.spare.drain(from..from + taken);
            self.posted += taken;
            if taken < wanted {
                return;
            }
        }
    }

    #[inline(always)]
    fn place(&self, buffer: Slot) -> (usize, usize) {
        let buffer = buffer as usize;
        let at = buffer % self.per_block * self.buffer_bytes;
        (buffer / self.per_block, at)
    }

    #[inline(always)]
    fn start<const BYTES: usize>(&self, buffer: Slot) -> [u8; BYTES] {
        const { assert!(BYTES <= LARGE_BYTES) };
        let (block, at) = self.place(buffer);
        self.blocks[block].start_at(at)
    }

    /// Copies bytes of a filled buffer.
    #[inline(always)]
    fn copy_out(&self, buffer: Slot, at: usize, target: &mut [u8]) {
        let (block, start) = self.place(buffer);
        let most = self.buffer_bytes.saturating_sub(at);
        let bytes = target.len().min(most);
        self.blocks[block].copy_out(start + at, &mut target[..bytes]);
    }

    /// Deregisters all buffers.
    fn retire<P: VerbsPort>(&mut self, port: &mut P) {
        for mut block in self.blocks.drain(..) {
            block.deregister(ONLY, port);
        }
    }
}

/// Index of the region: receive blocks are registered with one port only.
const ONLY: usize = 0;
/// Maximum number of receives posted in one call.
const BATCH: usize = 16;
/// Marks slots of the large size and buffers for datagrams. In the numbers of buffers the rail is below this bit.
const MARK: Slot = 1 << 31;

/// Small slots that packets leave free for notes.
const FOR_NOTES: usize = 16;
/// Large slots that packets leave free for notes: otherwise no queue pair could be requested while packets that wait
/// for a queue pair occupy the slots.
const FOR_LONG_NOTES: usize = 8;
/// Length of a small slot, in bytes.
const SMALL_SLOT_BYTES: usize = 256;
/// Length of a large slot, and of a buffer for its packet, in bytes.
const LARGE_BYTES: usize = (HEADER_BYTES + ring::layout::POOL_BUFFER_BYTES).next_multiple_of(64);

const _: () = assert!(MOST_NOTE_BYTES <= LARGE_BYTES, "a slot takes any note");

/// Buffers in a block of each queue.
const SHARED_BUFFERS: usize = 32;
const DATAGRAM_BUFFERS: usize = 64;
