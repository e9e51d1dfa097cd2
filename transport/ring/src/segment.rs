// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives safe, typed access to the node segment: references to atomic words in the mapped bytes.
//!
//! # Safety
//! Apart from [`GateLine::at`](crate::GateLine::at), this file makes all references of the crate to shared memory. It
//! relies on one promise, which the caller of [`Segment::attach`] makes: the mapping is readable and writable, has the
//! stated length, and is never unmapped. Everything that a reference points to consists of atomic words, so it is no
//! data race by Rust's rules if another process writes there at any time. The bytes of pools, boards and rings of
//! broadcast queues are not atomic: they are only accessed through raw copies.
#![allow(unsafe_code)]

use core::ptr::NonNull;

use crate::bcast_queue::BcastQueue;
use crate::board::Board;
use crate::copy::copy;
use crate::doorbell::Bell;
use crate::ident::Ident;
use crate::layout::{
    BELL_OFFSET, BOARD_DATA_OFFSET, BOARDS, IDENT_OFFSET, LAYOUT_VERSION, LINES_OFFSET,
    MAX_LOCAL_RANKS, OFFERS_OFFSET, OWN_BUFFER, PAGE, POOL_BUFFER_BYTES, QUEUE_BYTES,
    QUEUE_WORDS_BYTES, SEGMENT_MAGIC, WAITS_OFFSET, board_bytes, board_half_bytes, boards_offset,
    member_lines_offset, own_data_offset, pool_data_offset, pool_side_offset, queue_offset,
    region_bytes, rings_offset, segment_bytes,
};
use crate::lines::MemberLines;
use crate::offer::{OFFERS, Offer};
use crate::pool::PoolSide;
use crate::spsc::{PairLine, Ring};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::waits::WaitCounts;

/// The head of a segment, which the process that makes the segment writes at offset 0, and every rank checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// Number of the job, so that the segment of another job is detected.
    pub job: u64,
    /// Ranks of the job on this node: 1 to [`MAX_LOCAL_RANKS`].
    pub local_size: u32,
}

impl SegmentHead {
    /// The bytes to write at offset 0.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC.to_ne_bytes());
        bytes[8..12].copy_from_slice(&LAYOUT_VERSION.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.local_size.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.job.to_ne_bytes());
        bytes
    }
}

/// The reason why memory is not the expected segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentError {
    /// The number of ranks is out of range.
    LocalSize(u32),
    /// The memory is shorter than a segment for this number of ranks.
    TooShort {
        /// Bytes of the memory.
        have: u64,
        /// Bytes of a segment for this number of ranks.
        need: u64,
    },
    /// The first word is not the magic number.
    NotASegment,
    /// Launcher and library are of different versions.
    Version {
        /// The segment's layout version.
        theirs: u32,
        /// This library's layout version.
        ours: u32,
    },
    /// The segment belongs to another job, or was made for another number of ranks.
    OtherJob,
}

impl core::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::LocalSize(n) => write!(
                f,
                "{n} ranks on one node, a segment holds 1 to {MAX_LOCAL_RANKS}"
            ),
            Self::TooShort { have, need } => {
                write!(f, "the node segment has {have} bytes, expected {need}")
            }
            Self::NotASegment => write!(
                f,
                "the memory that was inherited is not a node segment of rmpi"
            ),
            Self::Version { theirs, ours } => write!(
                f,
                "the launcher made a node segment of version {theirs}, this library expects {ours}; \
                 use rmpiexec and libmpi_abi.so.1 of the same installation"
            ),
            Self::OtherJob => write!(
                f,
                "the node segment that was inherited belongs to another job"
            ),
        }
    }
}

impl core::error::Error for SegmentError {}

/// A mapped node segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    base: NonNull<u8>,
    local_size: u32,
}

// SAFETY: a segment is an address of memory that is never unmapped (`attach`) and is accessed only through atomics or
// raw copies, so any thread may use it.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`.
unsafe impl Sync for Segment {}

impl Segment {
    /// Checks that a mapping is the segment of the job `head.job` for `head.local_size` ranks, and makes a [`Segment`]
    /// of it.
    ///
    /// # Errors
    /// [`SegmentError`], if the memory is no such segment.
    ///
    /// # Safety
    /// `base` is page-aligned and `bytes` bytes from there are mapped readable and writable, shared or private, and
    /// stay so until the process ends.
    pub unsafe fn attach(
        base: NonNull<u8>,
        bytes: u64,
        head: SegmentHead,
    ) -> Result<Self, SegmentError> {
        let SegmentHead { job, local_size } = head;
        if local_size == 0 || local_size > MAX_LOCAL_RANKS {
            return Err(SegmentError::LocalSize(local_size));
        }
        let need = segment_bytes(local_size);
        if bytes < need {
            return Err(SegmentError::TooShort { have: bytes, need });
        }
        let segment = Self { base, local_size };
        let image: &HeadImage = segment.view(0);
        if image.magic.load(Ordering::Relaxed) != SEGMENT_MAGIC {
            return Err(SegmentError::NotASegment);
        }
        let theirs = image.version.load(Ordering::Relaxed);
        if theirs != LAYOUT_VERSION {
            return Err(SegmentError::Version {
                theirs,
                ours: LAYOUT_VERSION,
            });
        }
        let same_size = image.local_size.load(Ordering::Relaxed) == local_size;
        if !same_size || image.job.load(Ordering::Relaxed) != job {
            return Err(SegmentError::OtherJob);
        }
        Ok(segment)
    }

    /// Number of ranks that the segment was made for.
    #[must_use]
    pub fn local_size(&self) -> u32 {
        self.local_size
    }

    /// Identity of the owner of region `rank`, which is local rank `rank`.
    #[must_use]
    pub fn ident(&self, rank: u32) -> &'static Ident {
        self.view(self.region(rank) + IDENT_OFFSET)
    }

    /// Wait counters of `rank`.
    #[must_use]
    pub fn waits(&self, rank: u32) -> &'static WaitCounts {
        self.view(self.region(rank) + WAITS_OFFSET)
    }

    /// The bell of `rank`.
    #[must_use]
    pub fn bell(&self, rank: u32) -> &'static Bell {
        self.view(self.region(rank) + BELL_OFFSET)
    }

    /// The ring that carries frames from `sender` to `receiver`.
    #[must_use]
    pub fn ring(&self, receiver: u32, sender: u32) -> &'static Ring {
        let sender = self.checked(sender);
        self.view(self.region(receiver) + rings_offset(self.local_size) + sender * PAGE)
    }

    /// The line on which `receiver` returns credit to `sender`.
    #[must_use]
    pub fn pair_line(&self, receiver: u32, sender: u32) -> &'static PairLine {
        let sender = self.checked(sender);
        self.view(self.region(receiver) + LINES_OFFSET + sender * 64)
    }

    /// Offer `index` of `reader`; `None`: the index is invalid.
    #[must_use]
    pub fn offer(&self, reader: u32, index: u32) -> Option<&'static Offer> {
        let offset = self.region(reader) + OFFERS_OFFSET + index as usize * 64;
        (index < OFFERS).then(|| self.view(offset))
    }

    /// The shared half of `sender`'s pool: the number of releases of each buffer.
    #[must_use]
    pub fn pool_side(&self, sender: u32) -> &'static PoolSide {
        self.view(self.region(sender) + pool_side_offset(self.local_size))
    }

    /// The buffer in place `index` of `sender`'s pool; `None`: the index is invalid.
    #[must_use]
    pub fn pool_buffer(&self, sender: u32, index: u32) -> Option<PoolBuffer> {
        if index >= OWN_BUFFER {
            return None;
        }
        let offset = self.region(sender)
            + pool_data_offset(self.local_size)
            + index as usize * POOL_BUFFER_BYTES;
        Some(PoolBuffer {
            base: self.at(offset),
        })
    }

    /// The buffer that `sender` fills only for `receiver`.
    #[must_use]
    pub fn own_buffer(&self, sender: u32, receiver: u32) -> PoolBuffer {
        let receiver = self.checked(receiver);
        let offset =
            self.region(sender) + own_data_offset(self.local_size) + receiver * POOL_BUFFER_BYTES;
        PoolBuffer {
            base: self.at(offset),
        }
    }

    /// Board `index`; `None`: the index is invalid, or the segment is for one rank only.
    #[must_use]
    pub fn board(&self, index: u32) -> Option<BoardParts> {
        if index >= BOARDS || self.local_size < 2 {
            return None;
        }
        let size = self.local_size;
        let offset = boards_offset(size) + index as usize * board_bytes(size);
        let half = board_half_bytes(size);
        let queue = offset + queue_offset(size);
        Some(BoardParts {
            board: self.view(offset),
            halves: [0, half].map(|at| self.bytes(offset + BOARD_DATA_OFFSET + at, half)),
            lines: self.views(offset + member_lines_offset(size), size),
            queue: self.view(queue),
            ring: self.bytes(queue + QUEUE_WORDS_BYTES, QUEUE_BYTES),
        })
    }

    /// `length` raw bytes from `offset` on. The caller takes both numbers from a block of `layout.rs`.
    fn bytes(&self, offset: usize, length: usize) -> SharedBytes {
        let base = self.at(offset);
        SharedBytes { base, length }
    }

    fn region(&self, rank: u32) -> usize {
        PAGE + self.checked(rank) * region_bytes(self.local_size)
    }

    fn checked(&self, rank: u32) -> usize {
        assert!(
            rank < self.local_size,
            "local rank {rank} of {}",
            self.local_size
        );
        rank as usize
    }

    fn view<T: SharedWords>(&self, offset: usize) -> &'static T {
        let address = self.at(offset).cast::<T>();
        debug_assert!(address.is_aligned());
        // SAFETY:
        // - in bounds: every caller adds offsets of `layout.rs` for a checked rank, all below `segment_bytes`, which
        //   `attach` compared with the mapping's length; the largest view ends where the next block starts.
        // - aligned: the base is page-aligned and blocks start at multiples of their type's alignment.
        // - valid for 'static and for concurrent writers: `attach`'s promise, and `T: SharedWords` holds only atomics.
        unsafe { address.as_ref() }
    }

    fn views<T: SharedWords>(&self, offset: usize, count: u32) -> &'static [T] {
        let first = self.at(offset).cast::<T>();
        debug_assert!(first.is_aligned());
        // SAFETY: as in `view`, for `count` blocks that follow each other in `layout.rs`.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), count as usize) }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: `offset` is below `segment_bytes`, which is inside the mapping (see `view`).
        unsafe { self.base.add(offset) }
    }
}

/// Types that consist only of atomic words, so any bytes are a valid value, and any process may write to them at any
/// time.
trait SharedWords {}
impl SharedWords for HeadImage {}
impl SharedWords for Ident {}
impl SharedWords for WaitCounts {}
impl SharedWords for Bell {}
impl SharedWords for Ring {}
impl SharedWords for PairLine {}
impl SharedWords for Offer {}
impl SharedWords for PoolSide {}
impl SharedWords for Board {}
impl SharedWords for BcastQueue {}
impl SharedWords for MemberLines {}

/// The head of a segment: what a process checks before it uses the segment.
#[repr(C)]
struct HeadImage {
    magic: AtomicU64,
    version: AtomicU32,
    local_size: AtomicU32,
    job: AtomicU64,
}

/// One bounce buffer in the segment. Its bytes can change at any time, so they are copied, never borrowed.
#[derive(Clone, Copy, Debug)]
pub struct PoolBuffer {
    base: NonNull<u8>,
}

impl PoolBuffer {
    /// Copies `source`, as much as fits, into the buffer.
    pub fn fill(&self, source: &[u8]) {
        let length = source.len().min(POOL_BUFFER_BYTES);
        // SAFETY:
        // - the range fits the buffer, which lies in the mapping (`Segment::pool_buffer`).
        // - `source` is readable, and disjoint: no slice of the pool is ever made.
        unsafe { copy(source.as_ptr(), self.base.as_ptr(), length) };
    }

    /// Copies `source`, as much as fits, into the buffer with stores that bypass this core's caches. This is for a
    /// receiver that shares no cache with this core: if it reads a line that is dirty in this core's cache, the read
    /// costs several times as much as a read from memory.
    pub fn fill_past_caches(&self, source: &[u8]) {
        let length = source.len().min(POOL_BUFFER_BYTES);
        let (lines, rest) = source[..length].as_chunks::<64>();
        for (at, line) in lines.iter().enumerate() {
            // SAFETY: `source` is cut to the length of the buffer, so this line of it is inside the buffer, which lies
            // in the mapping.
            let target = unsafe { self.base.add(at * 64) };
            // SAFETY: the line is inside the buffer, which is page-aligned; no slice of it exists.
            unsafe { stream_line(line, target) };
        }
        fence_streams();
        // SAFETY: what is left of `source` ends inside the buffer.
        let target = unsafe { self.base.add(lines.len() * 64) };
        // SAFETY: as in `fill`.
        unsafe { core::ptr::copy_nonoverlapping(rest.as_ptr(), target.as_ptr(), rest.len()) };
    }

    /// Copies the buffer's first bytes to `target`, as many as fit.
    pub fn drain(&self, target: &mut [u8]) {
        let length = target.len().min(POOL_BUFFER_BYTES);
        // SAFETY: as in `fill`, with the directions exchanged; bytes that change meanwhile garble the payload only.
        unsafe { copy(self.base.as_ptr(), target.as_mut_ptr(), length) };
    }
}

/// All parts of a board.
#[derive(Clone, Copy, Debug)]
pub struct BoardParts {
    /// The shared words of the board.
    pub board: &'static Board,
    /// Data of even rounds, and of odd ones.
    pub halves: [SharedBytes; 2],
    /// The lines of each member, by place.
    pub lines: &'static [MemberLines],
    /// The broadcast queue.
    pub queue: &'static BcastQueue,
    /// The ring of the broadcast queue, for bytes that do not fit into entries.
    pub ring: SharedBytes,
}

/// A range of bytes in the segment. They can change at any time, so they are copied, never borrowed.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: an address of memory that is never unmapped (`Segment::attach`) and is accessed only by raw copies.
unsafe impl Send for SharedBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// Number of bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Copies `source` into these bytes, from byte `at` on. `false`: it does not fit, and nothing was copied.
    #[must_use]
    pub fn fill(&self, at: usize, source: &[u8]) -> bool {
        let Some(target) = self.place(at, source.len()) else {
            return false;
        };
        // SAFETY: `place` returns the start of that many bytes in the mapping; `source` is readable, and disjoint,
        // since no slice of the segment is ever made.
        unsafe { copy(source.as_ptr(), target.as_ptr(), source.len()) };
        true
    }

    /// Copies bytes, from byte `at` on, to `target`. `false`: there are too few, and nothing was copied.
    #[must_use]
    pub fn drain(&self, at: usize, target: &mut [u8]) -> bool {
        let Some(source) = self.place(at, target.len()) else {
            return false;
        };
        // SAFETY: as in `fill`, with the directions exchanged; bytes that change meanwhile garble the data only.
        unsafe { copy(source.as_ptr(), target.as_mut_ptr(), target.len()) };
        true
    }

    fn place(&self, at: usize, length: usize) -> Option<NonNull<u8>> {
        let fits = at.checked_add(length).is_some_and(|end| end <= self.length);
        // SAFETY: `at` is not behind the end of these bytes, which lie in the mapping (`Segment::bytes`).
        fits.then(|| unsafe { self.base.add(at) })
    }
}

/// Prefetches the cache line where `place` begins.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint, which has no effect that the program can observe, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Copies one line with stores that bypass the caches; they are visible after [`fence_streams`].
///
/// # Safety
/// `target` is writable for 64 bytes and aligned to 16; no slice of it exists.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn stream_line(line: &[u8; 64], target: NonNull<u8>) {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    for (at, piece) in line.as_chunks::<16>().0.iter().enumerate() {
        // SAFETY: sixteen bytes that are readable; this load needs no alignment.
        let piece = unsafe { _mm_loadu_si128(piece.as_ptr().cast()) };
        // SAFETY: at most 48 bytes further, inside the line.
        let to = unsafe { target.add(at * 16) };
        // SAFETY: sixteen bytes of the line, aligned as the line is.
        unsafe { _mm_stream_si128(to.as_ptr().cast(), piece) };
    }
}

/// Waits until streaming stores are visible. Nothing else orders them: not even the Release store that publishes the
/// frame that names the buffer.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fence_streams() {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

/// An ordinary copy, on processors without streaming stores.
///
/// # Safety
/// `target` is writable for 64 bytes; no slice of it exists.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn stream_line(line: &[u8; 64], target: NonNull<u8>) {
    // SAFETY: the caller's promise; the line is not in the segment.
    unsafe { core::ptr::copy_nonoverlapping(line.as_ptr(), target.as_ptr(), 64) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn fence_streams() {}

const _: () = {
    assert!(size_of::<Ident>() <= PAGE);
    assert!(size_of::<Bell>() <= PAGE);
    assert!(size_of::<Offer>() * OFFERS as usize <= PAGE);
    assert!(size_of::<PoolSide>() <= PAGE);
    assert!(size_of::<Board>() <= BOARD_DATA_OFFSET);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(local_size: u32) -> (NonNull<u8>, u64) {
        let bytes = segment_bytes(local_size);
        let layout =
            std::alloc::Layout::from_size_align(usize::try_from(bytes).unwrap(), 4096).unwrap();
        // SAFETY: the size is not zero; the memory is leaked, so it stays until the process ends.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        (NonNull::new(base).unwrap(), bytes)
    }

    fn made(job: u64, local_size: u32) -> (NonNull<u8>, u64) {
        let (base, bytes) = memory(local_size);
        let head = SegmentHead { job, local_size }.to_bytes();
        // SAFETY: the segment is longer than its head, and the memory is not aliased.
        unsafe { core::ptr::copy_nonoverlapping(head.as_ptr(), base.as_ptr(), head.len()) };
        (base, bytes)
    }

    fn attach(
        base: NonNull<u8>,
        bytes: u64,
        job: u64,
        local_size: u32,
    ) -> Result<Segment, SegmentError> {
        // SAFETY: `memory` leaks `bytes` zeroed bytes at `base`.
        unsafe { Segment::attach(base, bytes, SegmentHead { job, local_size }) }
    }

    #[test]
    fn attach_rejects_foreign_and_short_segments() {
        let (base, bytes) = made(7, 2);
        assert!(attach(base, bytes, 7, 2).is_ok());
        assert_eq!(
            attach(base, bytes, 8, 2).unwrap_err(),
            SegmentError::OtherJob
        );
        assert_eq!(
            attach(base, bytes, 7, 1).unwrap_err(),
            SegmentError::OtherJob
        );
        assert_eq!(
            attach(base, bytes, 7, 0).unwrap_err(),
            SegmentError::LocalSize(0)
        );
        assert_eq!(
            attach(base, bytes, 7, 2000).unwrap_err(),
            SegmentError::LocalSize(2000)
        );
        assert!(matches!(
            attach(base, bytes, 7, 3).unwrap_err(),
            SegmentError::TooShort { .. }
        ));
        let (base, bytes) = memory(2);
        assert_eq!(
            attach(base, bytes, 7, 2).unwrap_err(),
            SegmentError::NotASegment
        );
    }

    #[test]
    fn views_are_in_bounds_and_disjoint() {
        let (base, bytes) = made(1, 5);
        let segment = attach(base, bytes, 1, 5).unwrap();
        let start = base.as_ptr() as usize;
        let mut ranges = Vec::new();
        let mut add =
            |address: usize, size: usize| ranges.push((address - start, address - start + size));
        for r in 0..5 {
            add(
                core::ptr::from_ref(segment.ident(r)) as usize,
                size_of::<Ident>(),
            );
            add(
                core::ptr::from_ref(segment.bell(r)) as usize,
                size_of::<Bell>(),
            );
            add(
                core::ptr::from_ref(segment.pool_side(r)) as usize,
                size_of::<PoolSide>(),
            );
            for s in 0..5 {
                add(
                    core::ptr::from_ref(segment.ring(r, s)) as usize,
                    size_of::<Ring>(),
                );
                add(core::ptr::from_ref(segment.pair_line(r, s)) as usize, 64);
                add(
                    segment.own_buffer(r, s).base.as_ptr() as usize,
                    POOL_BUFFER_BYTES,
                );
            }
            for b in 0..OWN_BUFFER {
                add(
                    segment.pool_buffer(r, b).unwrap().base.as_ptr() as usize,
                    POOL_BUFFER_BYTES,
                );
            }
        }
        ranges.sort_unstable();
        assert!(ranges.last().unwrap().1 as u64 <= bytes);
        assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0), "views overlap");
        assert!(segment.pool_buffer(0, OWN_BUFFER).is_none());
    }

    #[test]
    fn boards_follow_the_regions_and_are_disjoint() {
        let (base, bytes) = made(1, 3);
        let segment = attach(base, bytes, 1, 3).unwrap();
        let start = base.as_ptr() as usize;
        let mut ends = segment.own_buffer(2, 2).base.as_ptr() as usize + POOL_BUFFER_BYTES;
        for index in 0..BOARDS {
            let parts = segment.board(index).unwrap();
            let words = core::ptr::from_ref(parts.board) as usize;
            assert!(words >= ends);
            ends = words + size_of::<Board>();
            let queue = core::ptr::from_ref(parts.queue) as usize;
            assert_eq!(parts.lines.len(), 3);
            let lines = parts.lines.as_ptr() as usize;
            let bytes = |part: SharedBytes| (part.base.as_ptr() as usize, part.length());
            let [even, odd] = parts.halves.map(bytes);
            for (start, length) in [
                even,
                odd,
                (lines, size_of_val(parts.lines)),
                (queue, size_of::<BcastQueue>()),
                bytes(parts.ring),
            ] {
                assert!(start >= ends);
                ends = start + length;
            }
        }
        assert_eq!((ends - start) as u64, bytes);
        assert!(segment.board(BOARDS).is_none());
        let (base, bytes) = made(1, 1);
        let alone = attach(base, bytes, 1, 1).unwrap();
        assert!(alone.board(0).is_none());
    }

    #[test]
    fn board_halves_are_separate_and_bounds_checked() {
        let (base, bytes) = made(1, 2);
        let segment = attach(base, bytes, 1, 2).unwrap();
        let [even, odd] = segment.board(3).unwrap().halves;
        let half = even.length();
        assert!(even.fill(0, b"even") && odd.fill(0, b"odd."));
        assert!(even.fill(half - 4, b"last"));
        let mut got = [0; 4];
        assert!(even.drain(0, &mut got) && &got == b"even");
        assert!(odd.drain(0, &mut got) && &got == b"odd.");
        assert!(even.drain(half - 4, &mut got) && &got == b"last");
        for at in [half - 3, half, usize::MAX - 2, usize::MAX] {
            assert!(!even.fill(at, b"four") && !odd.drain(at, &mut got), "{at}");
        }
    }

    #[test]
    fn pool_buffers_carry_bytes() {
        let (base, bytes) = made(1, 2);
        let segment = attach(base, bytes, 1, 2).unwrap();
        let buffer = segment.pool_buffer(1, 63).unwrap();
        let (sent, mut got) = ([7u8; 100], [0u8; 100]);
        buffer.fill(&sent);
        buffer.drain(&mut got);
        assert_eq!(sent, got);
    }
}
