// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large blocks over a [board](super::board), where ranks share cores: there a message that waits for its receiver costs two
//! context switches for each pair of ranks, and a round at the board one for each rank. And of two ranks with a core each: both copy at
//! the same time, out of caches, where one would read the other's memory by the kernel. As many bytes as fit the board at once go in one round. Of
//! larger blocks that all collect, each rank puts one piece after the other on the board; how long its block is lies in its own
//! lines, so that who expects another length notices.

use std::ops::Range;

use transport::Seat;

use super::blocks::others;
use super::board::{BoardCall, BoardChoice, BoardRound};
use super::board_note::RoundKind;
use super::parcels::{Given, PLACE_BYTES};
use super::various::unequal;
use super::{CollectiveCall, CollectiveTuning};
use crate::{Error, Payload, UserMemory, Visit};

/// The way of one call in which one rank or all collect all blocks.
pub(super) struct BlockPieces<'a, V> {
    board: BoardCall<'a, V>,
    kind: RoundKind,
    /// What all ranks tell alike: the bytes of a block, or of all.
    told: usize,
    /// What a rank puts on the board in a round.
    place: usize,
}

impl<'a, V: Visit> BlockPieces<'a, V> {
    /// That of these blocks, if it is the best one and all ranks collect them.
    pub(super) fn of_all(
        line: &'a CollectiveCall<V>,
        all: &[Payload],
        wish: BoardChoice,
    ) -> Option<Self> {
        let longest = all.iter().map(Payload::bytes).max()?;
        let total = all.iter().map(Payload::bytes).sum::<u64>();
        // Where lengths differ, the longest one decides how many rounds there are.
        let told = match all.iter().all(|block| block.bytes() == longest) {
            true => total,
            false => total.wrapping_mul(31).wrapping_add(longest) | 1 << 40,
        };
        let goes = longest > PLACE_BYTES as u64 && !line.is_inter();
        goes.then(|| Self::of(line, RoundKind::Allgather, (longest, told), wish))?
    }

    /// That of blocks of so many bytes each, if it is the best one and one rank collects them.
    pub(super) fn of_equal(
        line: &'a CollectiveCall<V>,
        bytes: u64,
        wish: BoardChoice,
    ) -> Option<Self> {
        let goes = bytes > Seat::place_bytes(line.size()) as u64;
        goes.then(|| Self::of(line, RoundKind::GatherPieces, (bytes, bytes), wish))?
    }

    fn of(
        line: &'a CollectiveCall<V>,
        kind: RoundKind,
        (longest, told): (u64, u64),
        wish: BoardChoice,
    ) -> Option<Self> {
        let place = Seat::place_bytes(line.size());
        let fits = goes(&line.shape(), line.size()) && longest <= MOST_ROUNDS * place as u64;
        Some(Self {
            board: BoardCall::of_parcels(line, wish).filter(|_| fits)?,
            kind,
            told: usize::try_from(told).unwrap_or(usize::MAX),
            place,
        })
    }

    /// Gives a block to be collected by another rank. Waits for nobody after its last piece.
    pub(super) async fn give(&self, mine: &Payload) -> Result<(), Error> {
        let rounds = mine.bytes().div_ceil(self.place as u64);
        for round in 0..rounds {
            loop {
                let turn = self.put(mine, round).await?;
                let met = match round + 1 == rounds {
                    true => turn.leave().await,
                    false => turn.all().await?,
                };
                if met {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes the blocks of all others, which have `bytes` bytes each, into their places.
    pub(super) async fn take(&self, all: &[Payload], bytes: u64) -> Result<(), Error> {
        let nothing = Payload::Dense(UserMemory::nothing());
        for round in 0..bytes.div_ceil(self.place as u64) {
            let turn = self.meet(&nothing, round).await?;
            self.read(&turn, all, round);
        }
        Ok(())
    }

    /// Gives a block to all others, and takes theirs into their places. The own one is not copied.
    pub(super) async fn exchange(&self, mine: &Payload, all: &[Payload]) -> Result<(), Error> {
        let longest = all.iter().map(Payload::bytes).max();
        for round in 0..longest.unwrap_or(0).div_ceil(self.place as u64) {
            let turn = self.meet(mine, round).await?;
            self.read(&turn, all, round);
        }
        Ok(())
    }

    /// What of so many bytes belongs to a round.
    fn piece(&self, bytes: u64, round: u64) -> Range<u64> {
        part_of(bytes, round, self.place as u64)
    }

    /// Puts a piece on the board in a round that all are in.
    async fn meet(&self, mine: &Payload, round: u64) -> Result<BoardRound<'_, V>, Error> {
        loop {
            let turn = self.put(mine, round).await?;
            if turn.all().await? {
                return Ok(turn);
            }
        }
    }

    async fn put(&self, mine: &Payload, round: u64) -> Result<BoardRound<'_, V>, Error> {
        let turn = self.board.begin(self.kind, self.told).await?;
        turn.parcels_in(self.place).put_piece(
            self.board.line.rank(),
            mine,
            self.piece(mine.bytes(), round),
        );
        turn.arrive();
        Ok(turn)
    }

    /// Reads the others' pieces of a round.
    fn read(&self, turn: &BoardRound<'_, V>, all: &[Payload], round: u64) {
        for (from, place) in others(self.board.line, all) {
            let piece = self.piece(place.bytes(), round);
            if !turn.parcels_in(self.place).take_piece(from, place, piece) {
                self.board.line.note(unequal(0, place));
            }
        }
    }
}

/// Which pieces of the others' blocks come in later rounds of an exchange, of all with all.
pub(super) struct Swap {
    /// Whether this rank gives its own so.
    pub(super) gives: bool,
    /// The lengths of those for this rank, by rank; 0: it comes otherwise, or is no good.
    lengths: Vec<u64>,
    rounds: u64,
}

impl Swap {
    /// As all ranks have told it in a round that is over. Notes whose blocks are not as long as there is room for.
    pub(super) fn told<V: Visit>(
        line: &CollectiveCall<V>,
        turn: &BoardRound<'_, V>,
        into: &[Payload],
    ) -> Self {
        let (parcels, me) = (turn.parcels(), line.rank());
        let mut longest = 0;
        let mut length = |from: u32| {
            if parcels.given(from) != Given::Later {
                return 0;
            }
            let [of_all, length] = parcels.lengths(from, me);
            longest = longest.max(of_all);
            let place = &into[from as usize];
            if length != place.bytes() {
                line.note(unequal(usize::try_from(length).unwrap_or(0), place));
                return 0;
            }
            length
        };
        let lengths = (0..line.size()).map(&mut length).collect();
        Self {
            gives: parcels.given(me) == Given::Later,
            lengths,
            // As many as there can be, whatever another process has garbled.
            rounds: longest
                .div_ceil(swapped_bytes(line.size()) as u64)
                .min(2 * MOST_ROUNDS),
        }
    }

    /// Goes through the rounds.
    pub(super) async fn run<V: Visit>(
        &self,
        board: &BoardCall<'_, V>,
        out: &[Payload],
        into: &[Payload],
    ) -> Result<(), Error> {
        let (line, bytes) = (board.line, swapped_bytes(board.line.size()));
        let place = Seat::place_bytes(line.size());
        let piece = |length: u64, round: u64| part_of(length, round, bytes as u64);
        for round in 0..self.rounds {
            let turn = loop {
                let turn = board.begin(RoundKind::Alltoallv, 0).await?;
                for (to, block) in others(line, out).filter(|_| self.gives) {
                    let piece = piece(block.bytes(), round);
                    turn.parcels_in(place)
                        .put_at(line.rank(), to as usize * bytes, block, piece);
                }
                turn.arrive();
                if turn.all().await? {
                    break turn;
                }
            };
            for (from, block) in others(line, into) {
                let piece = piece(self.lengths[from as usize], round);
                let at = line.rank() as usize * bytes;
                turn.parcels_in(place).take_at(from, at, block, piece);
            }
        }
        Ok(())
    }
}

/// What a rank gives each other one in a round: whole cache lines.
fn swapped_bytes(ranks: u32) -> usize {
    Seat::place_bytes(ranks) / ranks as usize / LINE_BYTES * LINE_BYTES
}

/// What of so many bytes belongs to a round in which there is room for `most`.
fn part_of(bytes: u64, round: u64, most: u64) -> Range<u64> {
    let start = round * most;
    start.min(bytes)..bytes.min(start + most)
}

/// Whether blocks of which the longest has so many bytes are exchanged, of all with all, in rounds at a board.
pub(super) fn are_swapped(shape: &CollectiveTuning, longest: u64, ranks: u32) -> bool {
    let few_enough = ranks as usize <= PLACE_BYTES / LINE_BYTES;
    let all = longest.saturating_mul(ranks.into());
    goes(shape, ranks) && few_enough && all <= MOST_ROUNDS * Seat::place_bytes(ranks) as u64
}

/// Whether blocks of so many bytes are gathered in one round at a board. Smaller ones go as messages that wait for nobody.
pub(super) fn are_gathered(shape: &CollectiveTuning, bytes: usize, ranks: u32) -> bool {
    goes(shape, ranks) && bytes > EAGER_BYTES && bytes <= Seat::place_bytes(ranks)
}

/// Whether blocks of at most so many bytes, and of about so many, are dealt out in one round at a board. To a rank with a core of
/// its own a message goes faster; and so do short ones elsewhere, unless they would take most of the sender's buffers, since
/// then it waits for the readers of those before.
pub(super) fn are_dealt_out(
    shape: &CollectiveTuning,
    longest: usize,
    usual: usize,
    ranks: u32,
) -> bool {
    let has_room = longest <= Seat::place_bytes(ranks);
    shape.flat && goes(shape, ranks) && has_room && (usual > EAGER_BYTES || ranks > MANY_MESSAGES)
}

/// Whether the root tells in an entry of the broadcast queue how it deals out blocks of so many bytes.
pub(super) fn are_told_of(shape: &CollectiveTuning, bytes: usize) -> bool {
    shape.flat && bytes > EAGER_BYTES
}

/// Whether ranks are such that large blocks go over a board. Of more that have a core each nobody has measured it.
fn goes(shape: &CollectiveTuning, ranks: u32) -> bool {
    (shape.flat || ranks == 2) && shape.board_bytes > 0
}

/// Blocks that take more rounds go as messages, which copy data once.
const MOST_ROUNDS: u64 = 8;
const LINE_BYTES: usize = 64;
/// Messages up to this size wait for nobody,
const EAGER_BYTES: usize = 8 << 10;
/// as long as there are no more than these: half of the buffers that a sender has.
const MANY_MESSAGES: u32 = 32;
