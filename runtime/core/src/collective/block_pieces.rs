// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large blocks over a [board](super::board), where ranks share cores: there a message that waits for its receiver costs two
//! context switches for each pair of ranks, and a round at the board one for each rank. Up to [`PLACE_BYTES`] go in one round. Of
//! larger blocks that all collect, each rank puts one piece after the other on the board; how long its block is lies in its own
//! lines, so that who expects another length notices.

use std::ops::Range;

use super::blocks::others;
use super::board::{Board, Turn, Wish};
use super::parcels::PLACE_BYTES;
use super::told::Kind;
use super::various::unequal;
use super::{Line, Shape};
use crate::{Error, Payload, Visit};

/// The way of one call in which all ranks collect all blocks.
pub(super) struct BlockPieces<'a, V> {
    board: Board<'a, V>,
    /// Bytes of all blocks.
    total: usize,
}

impl<'a, V: Visit> BlockPieces<'a, V> {
    /// That of these blocks, if it is the best one.
    pub(super) fn of(line: &'a Line<V>, all: &[Payload], wish: Wish) -> Option<Self> {
        let longest = all.iter().map(Payload::bytes).max()?;
        let bytes = PLACE_BYTES as u64 + 1..=MOST_BYTES;
        if line.is_inter() || !share_cores(&line.shape(), line.size()) || !bytes.contains(&longest)
        {
            return None;
        }
        let total = all.iter().map(Payload::bytes).sum::<u64>();
        Some(Self {
            board: Board::of_parcels(line, wish)?,
            total: usize::try_from(total).unwrap_or(usize::MAX),
        })
    }

    /// Gives a block to all others, and takes theirs into their places. The own one is not copied.
    pub(super) async fn exchange(&self, mine: &Payload, all: &[Payload]) -> Result<(), Error> {
        let longest = all.iter().chain([mine]).map(Payload::bytes).max();
        for round in 0..rounds(longest.unwrap_or(0)) {
            let turn = self.meet(mine, round).await?;
            self.read(&turn, all, round);
        }
        Ok(())
    }

    /// Puts a piece on the board in a round that all are in.
    async fn meet(&self, mine: &Payload, round: usize) -> Result<Turn<'_, V>, Error> {
        loop {
            let turn = self.put(mine, round).await?;
            if turn.all().await? {
                return Ok(turn);
            }
        }
    }

    async fn put(&self, mine: &Payload, round: usize) -> Result<Turn<'_, V>, Error> {
        let turn = self.board.begin(Kind::Allgather, self.total).await?;
        turn.parcels()
            .put_piece(self.board.line.rank(), mine, piece(mine.bytes(), round));
        turn.arrive();
        Ok(turn)
    }

    /// Reads the others' pieces of a round.
    fn read(&self, turn: &Turn<'_, V>, all: &[Payload], round: usize) {
        for (from, place) in others(self.board.line, all) {
            let piece = piece(place.bytes(), round);
            if !turn.parcels().take_piece(from, place, piece) {
                self.board.line.note(unequal(0, place));
            }
        }
    }
}

/// Whether blocks of so many bytes are gathered or dealt out in one round at a board. Smaller ones go as messages that wait for
/// nobody, larger ones as those that are copied once.
pub(super) fn meet_once(shape: &Shape, bytes: usize, ranks: u32) -> bool {
    share_cores(shape, ranks) && bytes > EAGER_BYTES && bytes <= PLACE_BYTES
}

fn share_cores(shape: &Shape, ranks: u32) -> bool {
    shape.flat && ranks > 2 && shape.board_bytes > 0
}

fn rounds(bytes: u64) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    bytes.div_ceil(PLACE_BYTES)
}

/// What of so many bytes belongs to a round.
fn piece(bytes: u64, round: usize) -> Range<u64> {
    let start = (round * PLACE_BYTES) as u64;
    start.min(bytes)..bytes.min(start + PLACE_BYTES as u64)
}

/// Larger blocks do not stay in the caches between two copies.
const MOST_BYTES: u64 = 512 << 10;
/// Messages up to this size wait for nobody.
const EAGER_BYTES: usize = 8 << 10;
