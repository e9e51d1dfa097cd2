// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of one round at a [board](super::board), if all ranks contribute the same number of bytes. Small data are
//! in the rank's own cache lines of the board, larger data in the half of the board that the round uses.

use std::ops::Range;

use transport::Seat;
use transport::seat::{BoardEvent, LINE_BODY_BYTES, Round};

use super::Reducer;
use super::reduce::fold;
use crate::UserMemory;

/// The part of the board in which the data of a round are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundSpace {
    /// In the members' own cache lines.
    Lines,
    /// In the half of the board that the round uses.
    Half,
}

impl RoundSpace {
    /// The space for `bytes` bytes of each rank.
    #[inline]
    pub(super) fn of(bytes: usize) -> Self {
        match bytes <= LINE_BODY_BYTES {
            true => Self::Lines,
            false => Self::Half,
        }
    }

    /// Begins the next round, if there is room for its data.
    #[inline]
    pub(super) fn begin(self, seat: &Seat) -> Option<Round> {
        match self {
            Self::Lines => seat.begin_in_lines(),
            Self::Half => seat.begin(),
        }
    }

    /// The event to wait for if there is no room.
    pub(super) fn room(self, seat: &Seat) -> BoardEvent {
        match self {
            Self::Lines => seat.room_in_lines(),
            Self::Half => BoardEvent::Over(seat.last()),
        }
    }
}

/// The contributions of all ranks to a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundContributions<'a> {
    seat: &'a Seat,
    round: Round,
    space: RoundSpace,
    bytes: usize,
    /// This rank and its contribution, if the contribution is not on the board.
    own: Option<(u32, UserMemory)>,
}

impl<'a> RoundContributions<'a> {
    /// The contributions to a round, of `bytes` bytes each.
    #[inline]
    pub(super) fn new(seat: &'a Seat, round: Round, bytes: usize) -> Self {
        let space = RoundSpace::of(bytes);
        Self {
            seat,
            round,
            space,
            bytes,
            own: None,
        }
    }

    /// These contributions, but with that of this rank, `rank`, in its own memory: no other rank reads it, so it is not
    /// on the board.
    #[inline]
    pub(super) fn with_own(self, rank: u32, own: UserMemory) -> Self {
        let own = Some((rank, own));
        Self { own, ..self }
    }

    /// Bytes of all contributions together.
    fn all(self) -> usize {
        self.bytes * self.seat.members() as usize
    }

    /// Puts the contribution of this rank, `rank`, on the board, before the rank arrives.
    #[inline]
    pub(super) fn put(self, rank: u32, bytes: &[u8]) {
        match self.space {
            RoundSpace::Lines => self.seat.put_in_lines(self.round, bytes),
            RoundSpace::Half => {
                let at = rank as usize * self.bytes;
                self.seat.put(self.round, self.all(), at, bytes);
            }
        }
    }

    /// Reads bytes of the contribution of one rank, from byte `at` on.
    #[inline]
    pub(super) fn read(self, rank: u32, at: usize, into: &mut [u8]) {
        if let Some(own) = self.own_part(rank, at, into.len()) {
            return UserMemory::of(into).copy_from(own);
        }
        match self.space {
            RoundSpace::Lines => self.seat.read_lines(self.round, rank, at, into),
            RoundSpace::Half => {
                let at = rank as usize * self.bytes + at;
                self.seat.read(self.round, self.all(), at, into);
            }
        }
    }

    /// `bytes` bytes from byte `at` on of the contribution of rank `rank`; `None`: `rank` is another rank, or the
    /// contribution of this rank is on the board.
    #[inline]
    fn own_part(self, rank: u32, at: usize, bytes: usize) -> Option<UserMemory> {
        let (own, memory) = self.own?;
        (own == rank).then(|| memory.part(at..at + bytes))
    }

    /// Reads all contributions, in the order of ranks.
    #[inline]
    pub(super) fn read_all(self, into: &mut [u8]) {
        match self.space {
            _ if self.own.is_some() => {
                let parts = into.chunks_exact_mut(self.bytes.max(1));
                (0..self.seat.members())
                    .zip(parts)
                    .for_each(|(rank, part)| self.read(rank, 0, part));
            }
            RoundSpace::Lines => {
                let parts = into.chunks_exact_mut(self.bytes.max(1));
                (0..self.seat.members())
                    .zip(parts)
                    .for_each(|(rank, part)| self.read(rank, 0, part));
            }
            RoundSpace::Half => self.seat.read(self.round, self.all(), 0, into),
        }
    }

    /// Reads block `rank` of each contribution, which has a block for each rank.
    #[inline]
    pub(super) fn exchange(self, rank: u32, into: &mut [u8]) {
        let ranks = self.seat.members();
        let block = self.bytes / ranks as usize;
        for (from, into) in (0..ranks).zip(into.chunks_exact_mut(block.max(1))) {
            self.read(from, rank as usize * block, into);
        }
    }

    /// Combines the contributions of `ranks` in rank order. Of each contribution, takes the bytes from `at` on, as many
    /// as fit `into`. Small data are all copied from the board first and then combined; large data are copied and
    /// combined piece by piece, so that they stay in the cache.
    pub(super) fn fold(self, ranks: Range<u32>, at: usize, into: &mut [u8], op: &impl Reducer) {
        if ranks.is_empty() || into.is_empty() {
            return;
        }
        match into.len() * ranks.len() {
            bytes @ ..=64 => self.fold_few(ranks, at, &mut [0; 64][..bytes], into, op),
            bytes @ ..=PIECE_BYTES => {
                self.fold_few(ranks, at, &mut [0; PIECE_BYTES][..bytes], into, op);
            }
            _ => self.fold_pieces(ranks, at, into, op),
        }
    }

    #[inline]
    fn fold_few(
        self,
        ranks: Range<u32>,
        at: usize,
        all: &mut [u8],
        into: &mut [u8],
        op: &impl Reducer,
    ) {
        for (rank, part) in ranks.zip(all.chunks_exact_mut(into.len().max(1))) {
            self.read(rank, at, part);
        }
        into.copy_from_slice(fold(all, into.len(), op));
    }

    #[inline(never)]
    fn fold_pieces(self, ranks: Range<u32>, from: usize, into: &mut [u8], op: &impl Reducer) {
        let item = op.item_bytes().max(1);
        let piece = (PIECE_BYTES / item).max(1) * item;
        let mut next = vec![0; piece.min(into.len())];
        let mut kept = Vec::new();
        for (index, into) in into.chunks_mut(piece).enumerate() {
            let at = from + index * piece;
            let next = &mut next[..into.len()];
            let mut ranks = ranks.clone();
            let Some(first) = ranks.next() else { return };
            // The contribution of this rank may be in the memory of the result, so it is copied first.
            let own = self.own.map(|(own, memory)| {
                kept.clear();
                kept.extend_from_slice(memory.part(at..at + into.len()).as_slice());
                (own, &kept[..])
            });
            let read = |rank: u32, into: &mut [u8]| match own {
                Some((own, part)) if own == rank => into.copy_from_slice(part),
                _ => self.read(rank, at, into),
            };
            read(first, into);
            for rank in ranks {
                match own {
                    Some((own, part)) if own == rank && op.commutes() => op.reduce(part, into),
                    _ if op.commutes() => {
                        read(rank, next);
                        op.reduce(next, into);
                    }
                    _ => {
                        read(rank, next);
                        op.reduce(into, next);
                        into.copy_from_slice(next);
                    }
                }
            }
        }
    }
}

/// Number of bytes that are combined at a time.
pub(super) const PIECE_BYTES: usize = 2 << 10;
