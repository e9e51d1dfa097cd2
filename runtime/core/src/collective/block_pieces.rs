// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves large blocks over a [board](super::board), for ranks that share cores. If ranks share cores, messages that
//! wait for their receivers cost two context switches for each pair of ranks, and a round at the board costs one for
//! each rank. Two ranks with a core each use the board too, because at a board both copy at the same time, from caches;
//! with a message only one rank would copy, through the kernel. A round moves as many bytes as fit the board; larger
//! blocks are moved piece by piece. Each rank's cache lines on the board contain the length of its block, so a rank
//! that expects another length detects that.

use std::ops::Range;

use transport::Seat;

use super::blocks::others;
use super::board::{BoardCall, BoardChoice, BoardRound};
use super::board_note::RoundKind;
use super::parcels::{Given, PLACE_BYTES};
use super::various::unequal;
use super::{CollectiveCall, CollectiveTuning};
use crate::{Error, Payload, UserMemory, Visit};

/// One call in which one rank, or every rank, collects all blocks.
pub(super) struct BlockPieces<'a, V> {
    board: BoardCall<'a, V>,
    kind: RoundKind,
    /// A size on which all ranks agree: that of a block, or one computed from all blocks.
    agreed_bytes: usize,
    /// Number of bytes that a rank puts on the board in a round.
    place: usize,
}

impl<'a, V: Visit> BlockPieces<'a, V> {
    /// The call in which all ranks collect blocks of any lengths; `None`: another algorithm is selected.
    pub(super) fn of_all(
        call: &'a CollectiveCall<V>,
        all: &[Payload],
        board_choice: BoardChoice,
    ) -> Option<Self> {
        let longest = all.iter().map(Payload::bytes).max()?;
        let total = all.iter().map(Payload::bytes).sum::<u64>();
        // If lengths differ, the longest block determines the number of rounds.
        let agreed_bytes = match all.iter().all(|block| block.bytes() == longest) {
            true => total,
            false => total.wrapping_mul(31).wrapping_add(longest) | 1 << 40,
        };
        let applies = longest > PLACE_BYTES as u64 && !call.is_inter();
        applies.then(|| {
            Self::of(
                call,
                RoundKind::Allgather,
                (longest, agreed_bytes),
                board_choice,
            )
        })?
    }

    /// The call in which one rank collects blocks of `bytes` bytes each; `None`: another algorithm is selected.
    pub(super) fn of_equal(
        call: &'a CollectiveCall<V>,
        bytes: u64,
        board_choice: BoardChoice,
    ) -> Option<Self> {
        let applies = bytes > Seat::place_bytes(call.size()) as u64;
        applies.then(|| Self::of(call, RoundKind::GatherPieces, (bytes, bytes), board_choice))?
    }

    fn of(
        call: &'a CollectiveCall<V>,
        kind: RoundKind,
        (longest, agreed_bytes): (u64, u64),
        board_choice: BoardChoice,
    ) -> Option<Self> {
        let place = Seat::place_bytes(call.size());
        let fits = applies(&call.shape(), call.size()) && longest <= MAX_ROUNDS * place as u64;
        Some(Self {
            board: BoardCall::of_parcels(call, board_choice).filter(|_| fits)?,
            kind,
            agreed_bytes: usize::try_from(agreed_bytes).unwrap_or(usize::MAX),
            place,
        })
    }

    /// Puts this rank's block on the board, for the rank that collects the blocks. Does not wait after the last piece.
    pub(super) async fn give(&self, mine: &Payload) -> Result<(), Error> {
        let rounds = mine.bytes().div_ceil(self.place as u64);
        for round in 0..rounds {
            loop {
                let turn = self.put(mine, round).await?;
                let is_over = match round + 1 == rounds {
                    true => turn.leave().await,
                    false => turn.all().await?,
                };
                if is_over {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Copies the blocks of all other ranks, which have `bytes` bytes each, to their places.
    pub(super) async fn take(&self, all: &[Payload], bytes: u64) -> Result<(), Error> {
        let nothing = Payload::Dense(UserMemory::nothing());
        for round in 0..bytes.div_ceil(self.place as u64) {
            let turn = self.arrive_with_piece(&nothing, round).await?;
            self.read(&turn, all, round);
        }
        Ok(())
    }

    /// Puts this rank's block on the board for all other ranks, and copies their blocks to their places in `all`. This
    /// rank's own block is not copied.
    pub(super) async fn exchange(&self, mine: &Payload, all: &[Payload]) -> Result<(), Error> {
        let longest = all.iter().map(Payload::bytes).max();
        for round in 0..longest.unwrap_or(0).div_ceil(self.place as u64) {
            let turn = self.arrive_with_piece(mine, round).await?;
            self.read(&turn, all, round);
        }
        Ok(())
    }

    /// The part of a block of `bytes` bytes that is moved in a round.
    fn piece(&self, bytes: u64, round: u64) -> Range<u64> {
        part_of(bytes, round, self.place as u64)
    }

    /// Puts a piece on the board in a round, and waits until all ranks have arrived.
    async fn arrive_with_piece(
        &self,
        mine: &Payload,
        round: u64,
    ) -> Result<BoardRound<'_, V>, Error> {
        loop {
            let turn = self.put(mine, round).await?;
            if turn.all().await? {
                return Ok(turn);
            }
        }
    }

    async fn put(&self, mine: &Payload, round: u64) -> Result<BoardRound<'_, V>, Error> {
        let turn = self.board.begin(self.kind, self.agreed_bytes).await?;
        turn.parcels_in(self.place).put_piece(
            self.board.call.rank(),
            mine,
            self.piece(mine.bytes(), round),
        );
        turn.arrive();
        Ok(turn)
    }

    /// Copies the pieces of the other ranks in a round to their places.
    fn read(&self, turn: &BoardRound<'_, V>, all: &[Payload], round: u64) {
        for (from, place) in others(self.board.call, all) {
            let piece = self.piece(place.bytes(), round);
            if !turn.parcels_in(self.place).take_piece(from, place, piece) {
                self.board.call.note(unequal(0, place));
            }
        }
    }
}

/// An all-to-all exchange whose blocks are moved piece by piece in later rounds.
pub(super) struct Swap {
    /// Whether this rank sends its own blocks in these rounds.
    pub(super) gives: bool,
    /// Lengths of the blocks for this rank, by rank of the sender. 0: the block is not moved in these rounds, or its
    /// length is wrong.
    lengths: Vec<u64>,
    rounds: u64,
}

impl Swap {
    /// Reads the lengths from a complete round. Records an error for each block for this rank whose length differs from
    /// that of its place in `into`.
    pub(super) fn from_lengths<V: Visit>(
        call: &CollectiveCall<V>,
        turn: &BoardRound<'_, V>,
        into: &[Payload],
    ) -> Self {
        let (parcels, me) = (turn.parcels(), call.rank());
        let mut longest = 0;
        let mut length = |from: u32| {
            if parcels.given(from) != Given::Later {
                return 0;
            }
            let [of_all, length] = parcels.lengths(from, me);
            longest = longest.max(of_all);
            let place = &into[from as usize];
            if length != place.bytes() {
                call.note(unequal(usize::try_from(length).unwrap_or(0), place));
                return 0;
            }
            length
        };
        let lengths = (0..call.size()).map(&mut length).collect();
        Self {
            gives: parcels.given(me) == Given::Later,
            lengths,
            // The number is bounded, because a faulty process may have written any lengths.
            rounds: longest
                .div_ceil(swapped_bytes(call.size()) as u64)
                .min(2 * MAX_ROUNDS),
        }
    }

    /// Runs the rounds.
    pub(super) async fn run<V: Visit>(
        &self,
        board: &BoardCall<'_, V>,
        out: &[Payload],
        into: &[Payload],
    ) -> Result<(), Error> {
        let (call, bytes) = (board.call, swapped_bytes(board.call.size()));
        let place = Seat::place_bytes(call.size());
        let piece = |length: u64, round: u64| part_of(length, round, bytes as u64);
        for round in 0..self.rounds {
            let turn = loop {
                let turn = board.begin(RoundKind::Alltoallv, 0).await?;
                for (to, block) in others(call, out).filter(|_| self.gives) {
                    let piece = piece(block.bytes(), round);
                    turn.parcels_in(place)
                        .put_at(call.rank(), to as usize * bytes, block, piece);
                }
                turn.arrive();
                if turn.all().await? {
                    break turn;
                }
            };
            for (from, block) in others(call, into) {
                let piece = piece(self.lengths[from as usize], round);
                let at = call.rank() as usize * bytes;
                turn.parcels_in(place).take_at(from, at, block, piece);
            }
        }
        Ok(())
    }
}

/// Number of bytes of the board that a rank has in a round for each receiver: whole cache lines.
fn swapped_bytes(ranks: u32) -> usize {
    Seat::place_bytes(ranks) / ranks as usize / LINE_BYTES * LINE_BYTES
}

/// The part of a block of `bytes` bytes that is moved in a round with room for `most` bytes.
fn part_of(bytes: u64, round: u64, most: u64) -> Range<u64> {
    let start = round * most;
    start.min(bytes)..bytes.min(start + most)
}

/// Whether an all-to-all exchange whose longest block has `longest` bytes uses rounds at a board.
pub(super) fn are_swapped(shape: &CollectiveTuning, longest: u64, ranks: u32) -> bool {
    let few_enough = ranks as usize <= PLACE_BYTES / LINE_BYTES;
    let all = longest.saturating_mul(ranks.into());
    applies(shape, ranks) && few_enough && all <= MAX_ROUNDS * Seat::place_bytes(ranks) as u64
}

/// Whether blocks of `bytes` bytes are gathered in one round at a board. Smaller blocks are sent as eager messages,
/// which do not wait.
pub(super) fn are_gathered(shape: &CollectiveTuning, bytes: usize, ranks: u32) -> bool {
    applies(shape, ranks) && bytes > EAGER_BYTES && bytes <= Seat::place_bytes(ranks)
}

/// Whether blocks are scattered in one round at a board. `longest`: bytes of the longest block; `usual`: average bytes.
/// If each rank has a core of its own, messages are faster. If ranks share cores, short messages are faster too, unless
/// there are so many that the sender runs out of buffers and has to wait for the readers of earlier messages.
pub(super) fn are_scattered(
    shape: &CollectiveTuning,
    longest: usize,
    usual: usize,
    ranks: u32,
) -> bool {
    let has_room = longest <= Seat::place_bytes(ranks);
    shape.flat
        && applies(shape, ranks)
        && has_room
        && (usual > EAGER_BYTES || ranks > MANY_MESSAGES)
}

/// Whether the root of a scatter of blocks of `bytes` bytes announces in an entry of the broadcast queue whether the
/// blocks are on the board or come as messages.
pub(super) fn are_announced(shape: &CollectiveTuning, bytes: usize) -> bool {
    shape.flat && bytes > EAGER_BYTES
}

/// Whether large blocks go over a board. They do if ranks share cores, or if there are only two ranks; for more ranks
/// with a core each this was not measured.
fn applies(shape: &CollectiveTuning, ranks: u32) -> bool {
    (shape.flat || ranks == 2) && shape.board_bytes > 0
}

/// Maximum number of rounds of a call. Blocks that would take more rounds are sent as messages, which copy the data
/// only once.
const MAX_ROUNDS: u64 = 8;
const LINE_BYTES: usize = 64;
/// A send of at most this many bytes does not wait for its receiver, if at most `MANY_MESSAGES` messages are in flight.
const EAGER_BYTES: usize = 8 << 10;
/// Half the number of a sender's buffers.
const MANY_MESSAGES: u32 = 32;
