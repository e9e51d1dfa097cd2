// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layouts of memory with gaps: the blocks of both ends, the segments that are contiguous at both ends, and a sender's
//! record of the blocks of its receivers.
//!
//! A message is the bytes of all blocks in order. The two ends may have different blocks; a segment ends where a block
//! of either end does.

use crate::memory::MemorySpan;
use transport::RemoteKey;

/// Blocks of equal length at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StridedBlocks {
    pub(crate) block_bytes: usize,
    pub(crate) blocks: usize,
    /// Distance in bytes from the start of one block to the start of the next; may be negative.
    pub(crate) stride: isize,
}

impl StridedBlocks {
    /// One block.
    pub(crate) fn one(bytes: usize) -> Self {
        Self {
            block_bytes: bytes,
            blocks: 1,
            stride: 0,
        }
    }

    /// Length in bytes from the first byte of the lowest block to the last byte of the highest block. `None`: the
    /// length exceeds the address space.
    pub(crate) fn hull(self) -> Option<usize> {
        let gaps = self.stride.unsigned_abs().checked_mul(self.blocks - 1)?;
        gaps.checked_add(self.block_bytes)
    }

    /// Offset of block number `at` from the lowest byte.
    fn offset(self, at: usize) -> usize {
        let place = if self.stride < 0 {
            self.blocks - 1 - at
        } else {
            at
        };
        place * self.stride.unsigned_abs()
    }

    fn bytes(self) -> usize {
        self.block_bytes * self.blocks
    }
}

/// A type that describes blocks.
pub(crate) trait Shaped {
    fn shape(&self) -> StridedBlocks;
}

impl Shaped for StridedBlocks {
    fn shape(&self) -> StridedBlocks {
        *self
    }
}

/// A position in a sequence of [`StridedBlocks`].
#[derive(Clone, Copy, Debug, Default)]
struct BlockCursor {
    piece: usize,
    block: usize,
    inside: usize,
}

/// Contiguous bytes within one block: index of the piece, offset in bytes from the lowest byte of the piece, length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    pub(crate) piece: usize,
    pub(crate) offset: usize,
    bytes: usize,
}

impl BlockCursor {
    /// A cursor at byte `at` of the message.
    fn new(pieces: &[impl Shaped], mut at: usize) -> Self {
        for (piece, shape) in pieces.iter().map(Shaped::shape).enumerate() {
            if at < shape.bytes() {
                return Self {
                    piece,
                    block: at / shape.block_bytes,
                    inside: at % shape.block_bytes,
                };
            }
            at -= shape.bytes();
        }
        Self {
            piece: pieces.len(),
            ..Self::default()
        }
    }

    /// The rest of the block from the cursor on. `None`: the cursor is behind the last block.
    fn run(&self, pieces: &[impl Shaped]) -> Option<BlockRun> {
        let shape = pieces.get(self.piece)?.shape();
        Some(BlockRun {
            piece: self.piece,
            offset: shape.offset(self.block) + self.inside,
            bytes: shape.block_bytes - self.inside,
        })
    }

    /// Advances by `bytes` bytes, which must not exceed the rest of the block.
    fn advance(&mut self, pieces: &[impl Shaped], bytes: usize) {
        let Some(shape) = pieces.get(self.piece).map(Shaped::shape) else {
            return;
        };
        self.inside += bytes;
        if self.inside == shape.block_bytes {
            self.inside = 0;
            self.block += 1;
        }
        if self.block == shape.blocks {
            self.block = 0;
            self.piece += 1;
        }
    }
}

/// Bytes of a message that are contiguous at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopySegment {
    pub(crate) from: BlockRun,
    pub(crate) to: BlockRun,
    pub(crate) bytes: usize,
}

/// The segments of a message from byte `at` to byte `end`. The iterator ends earlier if the blocks of either side end
/// earlier.
pub(crate) fn segments<A: Shaped, B: Shaped>(
    from: &[A],
    to: &[B],
    at: usize,
    end: usize,
) -> impl Iterator<Item = CopySegment> {
    let (mut out, mut into) = (BlockCursor::new(from, at), BlockCursor::new(to, at));
    let mut left = end.saturating_sub(at);
    std::iter::from_fn(move || {
        let (from_run, to_run) = (out.run(from)?, into.run(to)?);
        let bytes = from_run.bytes.min(to_run.bytes).min(left);
        if bytes == 0 {
            return None;
        }
        out.advance(from, bytes);
        into.advance(to, bytes);
        left -= bytes;
        Some(CopySegment {
            from: from_run,
            to: to_run,
            bytes,
        })
    })
}

/// One piece of a peer's receive buffer: strided blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteBlocks {
    /// The handle of the receive, as the peer numbers it.
    pub(crate) owner: u32,
    /// Key of the memory from the first byte of the lowest block to the last byte of the highest.
    pub(crate) key: RemoteKey,
    pub(crate) shape: StridedBlocks,
    /// Where that memory is mapped here, if it is.
    pub(crate) span: Option<MemorySpan>,
}

impl Shaped for RemoteBlocks {
    fn shape(&self) -> StridedBlocks {
        self.shape
    }
}

/// The words of a frame.
pub(crate) type Words = [u64; 6];

impl RemoteBlocks {
    /// Encodes the body of a LAYOUT.
    pub(crate) fn to_words(key: RemoteKey, shape: StridedBlocks) -> Words {
        let [address, bytes, check] = key.to_words();
        let StridedBlocks {
            block_bytes,
            blocks,
            stride,
        } = shape;
        let stride = (stride as i64).cast_unsigned();
        [
            address,
            bytes,
            check,
            block_bytes as u64,
            blocks as u64,
            stride,
        ]
    }

    /// Decodes the body of a LAYOUT. `None`: there are no bytes, or the memory of the key is longer or shorter than the
    /// blocks.
    pub(crate) fn of(
        owner: u32,
        [address, bytes, check, block_bytes, blocks, stride]: Words,
    ) -> Option<Self> {
        let shape = StridedBlocks {
            block_bytes: usize::try_from(block_bytes).ok()?,
            blocks: usize::try_from(blocks).ok()?,
            stride: isize::try_from(stride.cast_signed()).ok()?,
        };
        let is_some = shape.block_bytes > 0 && shape.blocks > 0;
        let total = shape.block_bytes.checked_mul(shape.blocks)?;
        isize::try_from(total).ok().filter(|_| is_some)?;
        let fits = shape.hull()? as u64 == bytes && isize::try_from(bytes).is_ok();
        fits.then_some(Self {
            owner,
            key: RemoteKey::from_words([address, bytes, check]),
            shape,
            span: None,
        })
    }
}

/// Block layouts of a peer's receives. A layout is recorded when it arrives, if there is room.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    pieces: Vec<RemoteBlocks>,
}

impl Layouts {
    /// Reserves memory for the maximum number of pieces.
    pub(crate) fn prepare(&mut self) {
        self.pieces
            .reserve(CLASS_PIECES_MAX.saturating_sub(self.pieces.len()));
    }

    /// Adds a piece to those of its owner. If `is_first`, removes all older pieces of the owner first. Otherwise the
    /// piece is ignored unless the last recorded piece has the same owner. If there is no room, all pieces of the owner
    /// are removed: messages to this receive are then written to the memory of the gate, which is long enough for any
    /// of them.
    pub(crate) fn add(&mut self, piece: RemoteBlocks, is_first: bool) {
        if is_first {
            self.forget(piece.owner);
        }
        let is_next = self
            .pieces
            .last()
            .is_some_and(|last| last.owner == piece.owner);
        if !is_first && !is_next {
            return;
        }
        match self.pieces.len() < CLASS_PIECES_MAX {
            true => self.pieces.push(piece),
            false => self.forget(piece.owner),
        }
    }

    pub(crate) fn forget(&mut self, owner: u32) {
        self.pieces.retain(|piece| piece.owner != owner);
    }

    /// The pieces of the receive `owner` of `bytes` bytes. `None`: not all of them are known.
    pub(crate) fn of(&self, owner: u32, bytes: u64) -> Option<&[RemoteBlocks]> {
        let is_its = |piece: &RemoteBlocks| piece.owner == owner;
        let first = self.pieces.iter().position(is_its)?;
        let rest = &self.pieces[first..];
        let count = rest.iter().take_while(|piece| is_its(piece)).count();
        let all = &rest[..count];
        let mut total = 0u64;
        for piece in all {
            total = total.checked_add(piece.shape.bytes() as u64)?;
        }
        (total == bytes).then_some(all)
    }
}

/// Length of the shortest block, in bytes.
pub(crate) fn smallest_block(pieces: &[impl Shaped]) -> usize {
    let blocks = pieces.iter().map(|piece| piece.shape().block_bytes);
    blocks.min().unwrap_or(0)
}

/// Maximum number of pieces that a sender records in a class.
pub(crate) const CLASS_PIECES_MAX: usize = 64;
/// Maximum number of pieces of a layout; the layout of a receive with more pieces is not sent.
pub(crate) const LAYOUT_PIECES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(block_bytes: usize, blocks: usize, stride: isize) -> StridedBlocks {
        StridedBlocks {
            block_bytes,
            blocks,
            stride,
        }
    }

    fn piece(owner: u32, shape: StridedBlocks) -> RemoteBlocks {
        let key = RemoteKey::from_words([4096, shape.hull().unwrap() as u64, 1]);
        RemoteBlocks::of(owner, RemoteBlocks::to_words(key, shape)).unwrap()
    }

    /// The corresponding bytes of both sides, each as piece and offset.
    fn pairs(
        from: &[StridedBlocks],
        to: &[StridedBlocks],
        at: usize,
        end: usize,
    ) -> Vec<[usize; 4]> {
        let bytes = segments(from, to, at, end).flat_map(|it| {
            (0..it.bytes).map(move |at| {
                [
                    it.from.piece,
                    it.from.offset + at,
                    it.to.piece,
                    it.to.offset + at,
                ]
            })
        });
        bytes.collect()
    }

    /// Every byte of a sequence of blocks as piece and offset, computed directly from the definition.
    fn bytes_of(shapes: &[StridedBlocks]) -> Vec<[usize; 2]> {
        let mut all = Vec::new();
        for (piece, shape) in shapes.iter().enumerate() {
            let lowest = (0..shape.blocks)
                .map(|at| at as isize * shape.stride)
                .min()
                .unwrap();
            for block in 0..shape.blocks {
                let start = block as isize * shape.stride - lowest;
                all.extend((0..shape.block_bytes).map(|at| [piece, start as usize + at]));
            }
        }
        all
    }

    #[test]
    fn segments_pair_the_bytes_of_any_two_shapes_in_order() {
        let all = [
            vec![shape(24, 1, 0)],
            vec![shape(4, 6, 10)],
            vec![shape(3, 8, -5)],
            vec![shape(5, 2, 7), shape(14, 1, 0)],
            vec![shape(1, 9, -1), shape(5, 3, 5)],
        ];
        for from in &all {
            for to in &all {
                let expected: Vec<_> = bytes_of(from)
                    .into_iter()
                    .zip(bytes_of(to))
                    .map(|([a, b], [c, d])| [a, b, c, d])
                    .collect();
                for (at, end) in [(0, 24), (7, 24), (0, 5), (23, 24), (24, 24), (3, 99)] {
                    let wanted = &expected[at..end.min(24)];
                    assert_eq!(pairs(from, to, at, end), wanted, "{from:?} {to:?} {at}");
                }
            }
        }
    }

    #[test]
    fn blocks_outside_of_their_key_are_refused() {
        let key = |bytes| RemoteKey::from_words([4096, bytes, 1]);
        let good = shape(100, 3, -200);
        assert!(RemoteBlocks::of(1, RemoteBlocks::to_words(key(500), good)).is_some());
        for (bytes, wrong) in [
            (499, good),
            (501, good),
            (100, shape(100, 0, 0)),
            (0, shape(0, 4, 0)),
            (100, shape(100, usize::MAX, 0)),
            (100, shape(100, 2, isize::MIN)),
            (u64::MAX, shape(usize::MAX, 1, 0)),
        ] {
            let words = RemoteBlocks::to_words(key(bytes), shape(1, 1, 0));
            let [.., block_bytes, blocks, stride] = RemoteBlocks::to_words(key(bytes), wrong);
            let words = [words[0], words[1], words[2], block_bytes, blocks, stride];
            assert!(RemoteBlocks::of(1, words).is_none(), "{wrong:?} in {bytes}");
        }
    }

    #[test]
    fn remote_layouts_are_kept_whole_or_dropped() {
        let mut layouts = Layouts::default();
        layouts.prepare();
        let room = layouts.pieces.capacity();
        layouts.add(piece(1, shape(10, 2, 20)), true);
        layouts.add(piece(1, shape(5, 1, 0)), false);
        layouts.add(piece(2, shape(7, 1, 0)), true);
        layouts.add(piece(1, shape(5, 1, 0)), false);
        assert_eq!(layouts.of(1, 25).map(<[RemoteBlocks]>::len), Some(2));
        assert!(layouts.of(1, 24).is_none() && layouts.of(3, 0).is_none());
        layouts.add(piece(1, shape(3, 1, 0)), true);
        assert!(layouts.of(1, 25).is_none() && layouts.of(1, 3).is_some());
        // A flood: an owner without room has no pieces at all.
        for owner in 10..200 {
            layouts.add(piece(owner, shape(8, 1, 0)), true);
        }
        layouts.add(piece(2, shape(7, 1, 0)), false);
        assert!(layouts.of(10, 8).is_some() && layouts.of(199, 8).is_none());
        assert!(layouts.of(2, 7).is_some(), "not after others");
        layouts.forget(2);
        for at in 0..20 {
            layouts.add(piece(300, shape(8, 1, 0)), at == 0);
        }
        assert!(layouts.of(300, 160).is_none() && layouts.of(300, 8).is_none());
        assert_eq!(layouts.pieces.capacity(), room);
    }
}
