// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a channel: blocks that the application lends, and staging buffers.
//!
//! # Safety
//! The caller who makes [`UserBlocks`] guarantees for the bytes what [`UserBlocks::new`] requires, from each start to
//! its completion. The functions below access them only in that interval. [`StagingBuffer`]s belong to this module.
//! Memory is never borrowed while a peer may write to it; it is only copied from.
//!
//! Lists of channel ids are viewed as words: two lists are then compared in one operation.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::ChannelId;
use crate::layout::{BlockRun, CopySegment, RemoteBlocks, Shaped, StridedBlocks, segments};
use transport::{Fabric, Lease, Peer, RemoteKey};

/// Blocks of the application's memory, with equal lengths and equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserBlocks {
    base: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    stride: isize,
}

// SAFETY: the type contains only addresses and lengths; the guarantee about the memory does not depend on the thread.
unsafe impl Send for UserBlocks {}

impl UserBlocks {
    /// `blocks` blocks of `block_bytes` bytes. The start of each block is `stride` bytes from the start of the block
    /// before it; `stride` may be negative.
    ///
    /// # Safety
    /// From each start of a channel end declared with these blocks until the completion of that start, every block is
    /// readable, and nothing else writes to it. If the end receives, every block is also writable, and nothing else
    /// reads it. All blocks stay mapped until the end is freed or its memory is replaced.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, block_bytes: usize, blocks: usize, stride: isize) -> Self {
        Self {
            base,
            block_bytes,
            blocks,
            stride,
        }
    }

    /// The total length of the blocks. `None`: they are not all within the address space.
    fn total(&self) -> Option<usize> {
        let bytes = self.block_bytes.checked_mul(self.blocks)?;
        let gaps = isize::try_from(self.blocks.saturating_sub(1)).ok()?;
        let last = self.stride.checked_mul(gaps)?;
        let base = self.base.addr().get();
        let last = base.checked_add_signed(last)?;
        let end = base.max(last).checked_add(self.block_bytes)?;
        let fits = end <= usize::MAX / 2 && last > 0 && isize::try_from(bytes).is_ok();
        fits.then_some(bytes)
    }

    /// The address of the lowest byte, and the length from there to the last byte of the highest block, with the gaps.
    pub(crate) fn hull(&self) -> (u64, u64) {
        let span = self.hull_span();
        (span.address(), span.bytes as u64)
    }

    /// The memory from the lowest byte to the last byte of the highest block, as one span. The gaps in it are not
    /// accessed.
    fn hull_span(&self) -> MemorySpan {
        let shape = self.shape();
        // `hull` returns a length: the blocks are not empty, and `total` has checked that they are within the address
        // space.
        let bytes = shape.hull().unwrap_or(0);
        let before = if self.stride < 0 {
            bytes - self.block_bytes
        } else {
            0
        };
        let lowest = self.base.as_ptr().wrapping_sub(before);
        let place = NonNull::new(lowest).unwrap_or(self.base);
        MemorySpan { place, bytes }
    }

    /// The first `bytes` bytes of `run`, as the source of a write.
    pub(crate) fn lease(&self, run: BlockRun, bytes: usize) -> Lease {
        self.hull_span().inner(run.offset, bytes).lease(bytes)
    }

    /// Merges the blocks into one, if there are no gaps between them.
    fn joined(mut self) -> Self {
        if isize::try_from(self.block_bytes) == Ok(self.stride) || self.blocks == 1 {
            self.block_bytes *= self.blocks;
            self.blocks = 1;
            self.stride = 0;
        }
        self
    }

    /// Whether both are single blocks, and `next` begins where this one ends.
    fn is_followed_by(&self, next: &Self) -> bool {
        let end = self.base.addr().get() + self.block_bytes;
        self.blocks == 1 && next.blocks == 1 && end == next.base.addr().get()
    }
}

impl Shaped for UserBlocks {
    fn shape(&self) -> StridedBlocks {
        StridedBlocks {
            block_bytes: self.block_bytes,
            blocks: self.blocks,
            stride: self.stride,
        }
    }
}

/// The memory of one message of a channel.
#[derive(Clone, Debug)]
pub struct ChannelMemory {
    pieces: Vec<UserBlocks>,
    bytes: usize,
}

impl ChannelMemory {
    /// No memory.
    pub(crate) const EMPTY: Self = Self {
        pieces: Vec::new(),
        bytes: 0,
    };

    /// The memory of these pieces, in the order of the message. `None`: a piece, or the total length, exceeds the
    /// address space.
    #[must_use]
    pub fn new(pieces: impl IntoIterator<Item = UserBlocks>) -> Option<Self> {
        let mut bytes = 0usize;
        let mut joined: Vec<UserBlocks> = Vec::new();
        for piece in pieces {
            let part = piece.total()?;
            if part == 0 {
                continue;
            }
            bytes = bytes.checked_add(part)?;
            let piece = piece.joined();
            match joined.last_mut() {
                Some(last) if last.is_followed_by(&piece) => last.block_bytes += piece.block_bytes,
                _ => joined.push(piece),
            }
        }
        isize::try_from(bytes).ok()?;
        let pieces = joined;
        Some(Self { pieces, bytes })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory as one span, if it is contiguous.
    pub(crate) fn whole(&self) -> Option<MemorySpan> {
        let place = match &self.pieces[..] {
            [] => NonNull::dangling(),
            [only] if only.blocks == 1 => only.base,
            _ => return None,
        };
        let bytes = self.bytes;
        Some(MemorySpan { place, bytes })
    }

    /// The blocks, in the order of the message.
    pub(crate) fn pieces(&self) -> &[UserBlocks] {
        &self.pieces
    }

    /// Copies all blocks to contiguous memory of at least the same length.
    pub(crate) fn gather(&self, target: MemorySpan) {
        assert!(self.bytes <= target.bytes, "a place for all blocks");
        let mut done = 0;
        self.each(|block, bytes| {
            // SAFETY: within the target, as was checked for all blocks together.
            let to = unsafe { target.place.add(done) };
            // SAFETY: the block is lent and readable. The target belongs to the channel, or is memory of a peer that
            // stays mapped and is never borrowed. `copy` allows overlap.
            unsafe { std::ptr::copy(block.as_ptr(), to.as_ptr(), bytes) };
            done += bytes;
        });
    }

    /// Copies the first `most` bytes of contiguous memory to the blocks, or fewer if the blocks are shorter.
    pub(crate) fn scatter(&self, source: MemorySpan, most: usize) {
        let most = most.min(self.bytes);
        assert!(most <= source.bytes, "bytes for the blocks");
        let mut done = 0;
        self.each(|block, bytes| {
            let bytes = bytes.min(most - done);
            // SAFETY: within the source: `done` is at most `most`.
            let from = unsafe { source.place.add(done) };
            // SAFETY: the block is lent and writable, and the source is memory of this process. `copy` allows overlap.
            unsafe { std::ptr::copy(from.as_ptr(), block.as_ptr(), bytes) };
            done += bytes;
        });
    }

    fn each(&self, mut visit: impl FnMut(NonNull<u8>, usize)) {
        for piece in &self.pieces {
            for at in 0..piece.blocks {
                let offset = piece.stride.wrapping_mul(at.cast_signed());
                // `total` has checked that every block is within the address space, so nothing wraps.
                let block = piece.base.as_ptr().wrapping_offset(offset);
                if let Some(block) = NonNull::new(block) {
                    visit(block, piece.block_bytes);
                }
            }
        }
    }
}

/// Contiguous memory of a channel: lent by the application, a staging buffer, or memory of a peer that is mapped here
/// and never borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemorySpan {
    place: NonNull<u8>,
    bytes: usize,
}

// SAFETY: as for `UserBlocks`.
unsafe impl Send for MemorySpan {}

impl MemorySpan {
    pub(crate) const EMPTY: Self = Self {
        place: NonNull::dangling(),
        bytes: 0,
    };

    pub(crate) fn of_box(bytes: &mut [u8]) -> Self {
        let place = NonNull::from(&mut *bytes).cast();
        let bytes = bytes.len();
        Self { place, bytes }
    }

    /// The memory of a peer on this node that a key names. `None`: the memory is not mapped here, or not contiguously.
    pub(crate) fn of_peer(fabric: &mut Fabric, peer: Peer, key: RemoteKey) -> Option<Self> {
        let place = fabric.place_of(peer, key)?;
        let bytes = usize::try_from(key.bytes).ok()?;
        Some(Self { place, bytes })
    }

    /// This memory as a single block.
    pub(crate) fn as_blocks(self) -> UserBlocks {
        let StridedBlocks {
            block_bytes,
            blocks,
            stride,
        } = StridedBlocks::one(self.bytes);
        UserBlocks {
            base: self.place,
            block_bytes,
            blocks,
            stride,
        }
    }

    /// The `bytes` bytes from offset `at` on.
    fn inner(self, at: usize, bytes: usize) -> Self {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "a part of it");
        // `add` is not allowed here: the memory may have gaps that belong to no allocation.
        let place = self.place.as_ptr().wrapping_add(at);
        let place = NonNull::new(place).unwrap_or(self.place);
        Self { place, bytes }
    }

    /// Copies `from` to the beginning of this memory, without borrowing it: it may be memory of a peer.
    #[inline(always)]
    pub(crate) fn put(self, from: &[u8]) {
        assert!(from.len() <= self.bytes, "a part of it");
        // SAFETY: as in `gather`: the memory is long enough, and `copy` allows overlap.
        unsafe { std::ptr::copy(from.as_ptr(), self.place.as_ptr(), from.len()) };
    }

    pub(crate) fn address(self) -> u64 {
        self.place.as_ptr().expose_provenance() as u64
    }

    /// The first `bytes` bytes, as the source of a write.
    pub(crate) fn lease(self, bytes: usize) -> Lease {
        // SAFETY: the channel is active until the write has completed. Until then lent memory stays lent, and a staging
        // buffer is not freed.
        unsafe { Lease::new(self.place, bytes.min(self.bytes)) }
    }

    /// Calls `send` with at most `most` bytes from offset `at` on.
    pub(crate) fn part<R>(self, at: usize, most: usize, send: impl FnOnce(&[u8]) -> R) -> R {
        let at = at.min(self.bytes);
        let bytes = most.min(self.bytes - at);
        // SAFETY: within the memory.
        let start = unsafe { self.place.add(at) };
        // SAFETY: readable, and not written by anything while the send of the channel is active.
        send(unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) })
    }

    /// Calls `fill` with at most `most` bytes from offset `at` on.
    pub(crate) fn part_mut<R>(
        self,
        at: usize,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let at = at.min(self.bytes);
        let bytes = most.min(self.bytes - at);
        // SAFETY: within the memory.
        let start = unsafe { self.place.add(at) };
        // SAFETY: writable, and the receive of the channel is active: the application does not access the memory, and a
        // peer that sends a message in frames does not write to it.
        fill(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
    }
}

/// Whether two lists of ids are equal.
#[inline]
pub(crate) fn are_same(one: &[ChannelId], other: &[ChannelId]) -> bool {
    words_of(one) == words_of(other)
}

#[inline]
fn words_of(ids: &[ChannelId]) -> &[u64] {
    // SAFETY: an id is represented as a single word.
    unsafe { std::slice::from_raw_parts(ids.as_ptr().cast(), ids.len()) }
}

/// A prepared copy of contiguous memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedCopy {
    from: NonNull<u8>,
    to: NonNull<u8>,
    bytes: usize,
}

// SAFETY: as for `UserBlocks`.
unsafe impl Send for PlannedCopy {}

impl PlannedCopy {
    /// A copy from `from` to `to`, of as many bytes as the shorter of the two has.
    pub(crate) fn new(from: MemorySpan, to: MemorySpan) -> Self {
        Self {
            from: from.place,
            to: to.place,
            bytes: from.bytes.min(to.bytes),
        }
    }

    /// A copy of the segment, which is a part of the blocks `from`, to its place in the mapped memory `to`.
    pub(crate) fn of(from: &UserBlocks, to: MemorySpan, segment: CopySegment) -> Self {
        let CopySegment {
            from: out,
            to: into,
            bytes,
        } = segment;
        let from = from.hull_span().inner(out.offset, bytes);
        Self::new(from, to.inner(into.offset, bytes))
    }

    #[inline(always)]
    pub(crate) fn run(&self) {
        // SAFETY: as in `gather`: both sides have `bytes` bytes.
        unsafe { std::ptr::copy(self.from.as_ptr(), self.to.as_ptr(), self.bytes) };
    }
}

/// Copies `bytes` bytes of blocks to mapped blocks of a peer.
pub(crate) fn copy_blocks(from: &[UserBlocks], to: &[RemoteBlocks], bytes: usize) {
    for segment in segments(from, to, 0, bytes) {
        if let Some(span) = to[segment.to.piece].span {
            PlannedCopy::of(&from[segment.from.piece], span, segment).run();
        }
    }
}

/// Copies of equal length, whose sources and targets are each at equal distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySeries {
    first: PlannedCopy,
    last: PlannedCopy,
    count: usize,
    from_step: isize,
    to_step: isize,
}

impl CopySeries {
    pub(crate) fn new(only: PlannedCopy) -> Self {
        Self {
            first: only,
            last: only,
            count: 1,
            from_step: 0,
            to_step: 0,
        }
    }

    /// Adds a copy that continues the series. `false`: `next` does not continue it.
    pub(crate) fn extend(&mut self, next: PlannedCopy) -> bool {
        let step =
            |from: NonNull<u8>, to: NonNull<u8>| to.addr().get().wrapping_sub(from.addr().get());
        let from_step = step(self.last.from, next.from).cast_signed();
        let to_step = step(self.last.to, next.to).cast_signed();
        let is_second = self.count == 1;
        let is_equal = (from_step, to_step) == (self.from_step, self.to_step);
        let follows = next.bytes == self.last.bytes && (is_second || is_equal);
        if follows {
            self.count += 1;
            self.last = next;
            (self.from_step, self.to_step) = (from_step, to_step);
        }
        follows
    }

    pub(crate) fn run(&self) {
        let PlannedCopy {
            mut from,
            mut to,
            bytes,
        } = self.first;
        for _ in 0..self.count {
            PlannedCopy { from, to, bytes }.run();
            // After the last copy these addresses may be outside the memory; they are not used then.
            from = step(from, self.from_step);
            to = step(to, self.to_step);
        }
    }
}

fn step(place: NonNull<u8>, bytes: isize) -> NonNull<u8> {
    NonNull::new(place.as_ptr().wrapping_offset(bytes)).unwrap_or(place)
}

/// A staging buffer for a channel whose memory has gaps, or cannot be mapped by the peer.
#[derive(Debug)]
pub(crate) struct StagingBuffer {
    span: MemorySpan,
    is_heap: bool,
}

// SAFETY: the memory belongs to this value.
unsafe impl Send for StagingBuffer {}

impl StagingBuffer {
    /// Allocates a buffer in memory that peers can map or, if there is none, on the heap.
    pub(crate) fn new(fabric: &mut Fabric, bytes: usize) -> Self {
        Self::direct(fabric, bytes).unwrap_or_else(|| Self::of_heap(bytes))
    }

    /// Allocates a buffer in memory that peers can map. `None`: there is none.
    pub(crate) fn direct(fabric: &mut Fabric, bytes: usize) -> Option<Self> {
        let place = fabric.allocate(bytes.max(1))?;
        Some(Self {
            span: MemorySpan { place, bytes },
            is_heap: false,
        })
    }

    fn of_heap(bytes: usize) -> Self {
        let memory = Box::into_raw(vec![0u8; bytes].into_boxed_slice());
        let place = NonNull::new(memory.cast()).unwrap_or(NonNull::dangling());
        Self {
            span: MemorySpan { place, bytes },
            is_heap: true,
        }
    }

    pub(crate) fn span(&self) -> MemorySpan {
        self.span
    }

    /// Frees the buffer.
    pub(crate) fn end(self, fabric: &mut Fabric) {
        if !self.is_heap {
            fabric.free(self.span.place);
        }
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        if self.is_heap {
            let slice =
                std::ptr::slice_from_raw_parts_mut(self.span.place.as_ptr(), self.span.bytes);
            // SAFETY: from `Box::into_raw` with this length, and freed only here.
            drop(unsafe { Box::from_raw(slice) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(
        bytes: &mut [u8],
        at: usize,
        block_bytes: usize,
        blocks: usize,
        stride: isize,
    ) -> UserBlocks {
        let base = NonNull::from(&mut bytes[at..]).cast();
        // SAFETY: the tests keep the bytes as long as the blocks.
        unsafe { UserBlocks::new(base, block_bytes, blocks, stride) }
    }

    #[test]
    fn adjacent_blocks_are_merged_and_gaps_are_kept() {
        let mut bytes = [0u8; 64];
        let pieces = [
            blocks(&mut bytes, 0, 8, 2, 8),
            blocks(&mut bytes, 16, 0, 5, 3),
            blocks(&mut bytes, 16, 4, 1, 99),
        ];
        let memory = ChannelMemory::new(pieces).unwrap();
        assert_eq!((memory.bytes(), memory.pieces.len()), (20, 1));
        assert!(memory.whole().is_some());
        let memory = ChannelMemory::new([blocks(&mut bytes, 0, 4, 3, 8)]).unwrap();
        assert!(memory.whole().is_none());
        assert!(ChannelMemory::new([]).unwrap().whole().is_some());
    }

    #[test]
    fn blocks_of_negative_stride_are_packed_and_unpacked_in_order() {
        let mut bytes: Vec<u8> = (0..32).collect();
        let memory = ChannelMemory::new([
            blocks(&mut bytes, 24, 2, 3, -8),
            blocks(&mut bytes, 1, 1, 1, 0),
        ])
        .unwrap();
        let mut packed = [0u8; 7];
        memory.gather(MemorySpan::of_box(&mut packed));
        assert_eq!(packed, [24, 25, 16, 17, 8, 9, 1]);
        packed.reverse();
        memory.scatter(MemorySpan::of_box(&mut packed), 7);
        assert_eq!(
            [bytes[24], bytes[25], bytes[16], bytes[8], bytes[1]],
            [1, 9, 8, 16, 24]
        );
        assert_eq!((bytes[0], bytes[10], bytes[31]), (0, 10, 31));
        // A shorter message fills the beginning.
        memory.scatter(MemorySpan::of_box(&mut [70, 71, 72]), 3);
        assert_eq!([bytes[24], bytes[25], bytes[16]], [70, 71, 72]);
        assert_eq!([bytes[8], bytes[1]], [16, 24]);
    }

    #[test]
    fn copies_of_equal_stride_form_one_series() {
        let mut from: Vec<u8> = (0..60).collect();
        let mut to = [0u8; 40];
        let source = blocks(&mut from, 50, 4, 5, -10);
        let target = MemorySpan::of_box(&mut to);
        let shapes = [StridedBlocks {
            block_bytes: 4,
            blocks: 5,
            stride: 6,
        }];
        let mut all: Vec<CopySeries> = Vec::new();
        for segment in segments(&[source], &shapes, 0, 20) {
            let next = PlannedCopy::of(&source, target, segment);
            if !all.last_mut().is_some_and(|last| last.extend(next)) {
                all.push(CopySeries::new(next));
            }
        }
        assert_eq!(all.len(), 1);
        all[0].run();
        let expected = [50, 51, 52, 53, 0, 0, 40, 41, 42, 43, 0, 0, 30];
        assert_eq!(to[..13], expected);
        assert_eq!(to[18..28], [20, 21, 22, 23, 0, 0, 10, 11, 12, 13]);
    }

    #[test]
    fn memory_beyond_the_address_space_is_refused() {
        let mut bytes = [0u8; 8];
        for (block_bytes, count, stride) in [
            (usize::MAX, 2, 1),
            (1, usize::MAX, 1),
            (8, 3, isize::MAX),
            (8, 3, isize::MIN),
            (usize::MAX, 1, 0),
        ] {
            let piece = blocks(&mut bytes, 0, block_bytes, count, stride);
            assert!(
                ChannelMemory::new([piece]).is_none(),
                "{block_bytes} {count} {stride}"
            );
        }
        let half = blocks(&mut bytes, 0, usize::MAX / 8, 1, 0);
        assert!(ChannelMemory::new([half; 9]).is_none());
    }
}
