// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions of large data over a [board](super::board): each rank combines one part of the data of all ranks, and
//! reads the combined parts of the other ranks. Data go over the board piece by piece, so that they stay in the cache.
//! In each round a rank puts two things on the board: for every other rank, its input to the next piece of that rank's
//! part; and the result of the piece of its own part that it combined in the previous round.
//!
//! Partial results are combined in rank order, element by element, whatever the size of a piece and whichever rank
//! combines it.

use std::ops::Range;

use super::board::{BoardCall, BoardChoice, BoardRound};
use super::board_note::RoundKind;
use super::parts::PIECE_BYTES;
use super::reduce::slices;
use super::{CollectiveCall, Reducer};
use crate::{Error, UserMemory, Visit};

/// One call: the part of the data that each rank combines, and how much of that part it combines in a round.
pub(super) struct Pieces<'a, V> {
    board: BoardCall<'a, V>,
    parts: Vec<Range<usize>>,
    piece: usize,
    /// Distance between pieces on the board: whole cache lines.
    stride: usize,
}

/// Which combined parts are published, and which of them this rank needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Results {
    /// All combined parts are published, and this rank reads them into this memory, which may be that of the input.
    All(UserMemory),
    /// All combined parts are published, but this rank reads none.
    None,
    /// No combined part is published. This rank stores its own part in this memory, which must not be that of the
    /// input.
    Own(UserMemory),
}

impl<'a, V: Visit> Pieces<'a, V> {
    /// The pieces of a call; `None`: its data do not go over a board. Rank `i` combines `lengths[i]` bytes; the parts
    /// follow each other in rank order. No piece ends inside an item.
    pub(super) fn of(
        call: &'a CollectiveCall<V>,
        lengths: &[usize],
        item_bytes: usize,
        board_choice: BoardChoice,
    ) -> Option<Self> {
        let applies = match board_choice {
            BoardChoice::AsUsual => call.shape().boards,
            BoardChoice::Yes => true,
            BoardChoice::No => false,
        };
        let seat = call
            .seat()
            .filter(|_| applies && call.shape().board_bytes > 0)?;
        let members = seat.members() as usize;
        let stride = seat.half_bytes() / (members * members) / LINE * LINE;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let stride = stride.min(longest.next_multiple_of(LINE)).min(MAX_BYTES);
        let piece = stride / item_bytes.max(1) * item_bytes;
        let parts = lengths.iter().scan(0, |start, length| {
            let from = *start;
            *start += length;
            Some(from..*start)
        });
        (piece > 0).then(|| Self {
            board: BoardCall { call, seat },
            parts: parts.collect(),
            piece,
            stride,
        })
    }

    /// As [`of`](Self::of), with parts of about equal lengths.
    pub(super) fn of_even(
        call: &'a CollectiveCall<V>,
        bytes: usize,
        item_bytes: usize,
        board_choice: BoardChoice,
    ) -> Option<Self> {
        let lengths = || slices(bytes, call.size() as usize, item_bytes);
        Self::of(call, &lengths(), item_bytes, board_choice)
    }

    /// Combines the bytes of all ranks.
    pub(super) async fn combine(
        &self,
        kind: RoundKind,
        input: UserMemory,
        results: Results,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let me = self.board.call.rank();
        let is_published = !matches!(results, Results::Own(_));
        let longest = self.parts.iter().map(Range::len).max().unwrap_or(0);
        let rounds = longest.div_ceil(self.piece).max(1);
        // The result of this rank's piece of the previous round, if `results` has no place for it.
        let mut aside = Vec::new();
        let mut before = UserMemory::nothing();
        for round in 0..rounds + usize::from(is_published) {
            let turn = loop {
                let turn = self.board.begin(kind, input.bytes()).await?;
                for (to, piece) in self.of_others(round) {
                    turn.put(self.all(), self.place(me, to), input.part(piece).as_slice());
                }
                if is_published {
                    turn.put(self.all(), self.place_of_result(me), before.as_slice());
                }
                turn.arrive();
                if turn.all().await? {
                    break turn;
                }
            };
            before = match self.piece_of(me, round) {
                Some(own) => {
                    let mut result = self.place_in(results, own.clone()).unwrap_or_else(|| {
                        aside.resize(own.len(), 0);
                        UserMemory::of(&mut aside)
                    });
                    self.fold(&turn, input.part(own), result.as_mut_slice(), op);
                    result
                }
                None => UserMemory::nothing(),
            };
            if let (Results::All(all), Some(before)) = (results, round.checked_sub(1)) {
                for (from, piece) in self.of_others(before) {
                    let mut wanted = all.part(piece);
                    turn.read(
                        self.all(),
                        self.place_of_result(from),
                        wanted.as_mut_slice(),
                    );
                }
            }
        }
        Ok(())
    }

    /// The memory for the result of a piece of this rank's part; `None`: this rank does not need the result.
    fn place_in(&self, results: Results, own: Range<usize>) -> Option<UserMemory> {
        match results {
            Results::All(all) => Some(all.part(own)),
            Results::Own(part) => {
                let start = self.parts[self.board.call.rank() as usize].start;
                Some(part.part(own.start - start..own.end - start))
            }
            Results::None => None,
        }
    }

    /// The range of a rank's part that is combined in a round; `None`: the part has ended before.
    fn piece_of(&self, rank: u32, round: usize) -> Option<Range<usize>> {
        let part = &self.parts[rank as usize];
        let start = part.start + round * self.piece;
        (start < part.end).then(|| start..part.end.min(start + self.piece))
    }

    fn of_others(&self, round: usize) -> impl Iterator<Item = (u32, Range<usize>)> {
        let call = self.board.call;
        (1..call.size())
            .map(move |step| (call.rank() + step) % call.size())
            .filter_map(move |rank| Some((rank, self.piece_of(rank, round)?)))
    }

    /// Offset on the board of the data of rank `from` that rank `to` combines.
    fn place(&self, from: u32, to: u32) -> usize {
        (from as usize * self.parts.len() + to as usize) * self.stride
    }

    /// Number of bytes of a round on the board.
    fn all(&self) -> usize {
        self.parts.len() * self.parts.len() * self.stride
    }

    fn place_of_result(&self, rank: u32) -> usize {
        // No input is put there, because no rank reads its own input from the board.
        self.place(rank, rank)
    }

    /// Combines the data of all ranks for this rank's piece, a few bytes at a time, so that these bytes stay in the L1
    /// cache. `own` and `result` may be the same memory.
    fn fold(
        &self,
        turn: &BoardRound<'_, V>,
        own: UserMemory,
        result: &mut [u8],
        op: &impl Reducer,
    ) {
        let me = self.board.call.rank();
        let item = op.item_bytes().max(1);
        let at_once = (PIECE_BYTES / item).max(1) * item;
        let mut kept = vec![0; at_once.min(own.bytes())];
        let mut next = kept.clone();
        let is_in_place = own.address() == UserMemory::of(result).address();
        for (index, sum) in result.chunks_mut(at_once).enumerate() {
            let at = index * at_once;
            let (kept, next) = (&mut kept[..sum.len()], &mut next[..sum.len()]);
            let own = match is_in_place {
                true => {
                    kept.copy_from_slice(sum);
                    UserMemory::of_const(kept)
                }
                false => own.part(at..at + sum.len()),
            };
            let read =
                |rank, into: &mut [u8]| turn.read(self.all(), self.place(rank, me) + at, into);
            match op.commutes() {
                true => self.fold_commutative(own.as_slice(), sum, next, read, op),
                false => self.fold_in_order(own.as_slice(), sum, next, read, op),
            }
        }
    }

    /// Combines in rank order, for operations that commute. Which operand is on the left depends on the rank that
    /// combines, so the minimum of zero and negative zero may be either of them.
    fn fold_commutative(
        &self,
        own: &[u8],
        sum: &mut [u8],
        next: &mut [u8],
        read: impl Fn(u32, &mut [u8]),
        op: &impl Reducer,
    ) {
        let me = self.board.call.rank();
        // The first operand is read into the result, so this rank's own data need not be copied.
        read(u32::from(me == 0), sum);
        if me == 0 {
            op.reduce(own, sum);
        }
        for rank in 1 + u32::from(me == 0)..self.board.call.size() {
            if rank == me {
                op.reduce(own, sum);
            } else {
                read(rank, next);
                op.reduce(next, sum);
            }
        }
    }

    fn fold_in_order(
        &self,
        own: &[u8],
        sum: &mut [u8],
        next: &mut [u8],
        read: impl Fn(u32, &mut [u8]),
        op: &impl Reducer,
    ) {
        let me = self.board.call.rank();
        for rank in 0..self.board.call.size() {
            match rank == me {
                true => next.copy_from_slice(own),
                false => read(rank, next),
            }
            if rank > 0 {
                op.reduce(sum, next);
            }
            sum.copy_from_slice(next);
        }
    }
}

const LINE: usize = 64;
/// Maximum number of bytes of a rank's part that are combined in one round.
const MAX_BYTES: usize = 32 << 10;
