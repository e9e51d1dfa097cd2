// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking collectives of few bytes that end at once or soon: the way over the [board](super::board) or the
//! [queue](super::bcast_queue), without a future, where nothing is special about the call.
//!
//! A process that owes others something takes the ordinary way, and one call in some makes a turn of progress first
//! ([`Universe::turn_at_hand`]): nobody can keep others waiting by calls that all end here.
//!
//! What this does not end the ordinary way does from the start, or goes on with: it finds the round that was begun here
//! ([`Comm::begun_at_hand`]). So ranks may go different ways in one call, and results are the same, bit by bit.

mod near;
mod various;

pub use near::NearHand;

use transport::Seat;
use transport::bcast_queue::BcastEntryHead as Entry;
use transport::seat::Round;

use super::bcast_queue;
use super::blocks::{gather_most, gather_wish, scatter_wish};
use super::board::BoardChoice;
use super::board_note::{BoardNote, RoundKind};
use super::parts::{RoundContributions, RoundSpace};
use super::reduce::WHOLE_BYTES;
use super::tree::queue_limit;
use super::tuning::CommPlacement;
use super::{CollectiveTuning, Reducer};
use crate::comm::Comm;
use crate::var::{events, pvars};
use crate::{Universe, UserMemory};

/// A call about which nothing is special so far. Each way of it answers `None` where the ordinary way must end it.
#[derive(Debug)]
pub struct AtHand<'a> {
    comm: &'a Comm,
    seat: &'a Seat,
    shape: &'a CollectiveTuning,
    /// The number of the call.
    number: u32,
    /// How often to look whether the others are there.
    looks: u32,
    /// Which of `queue_layout::COLLECTIVES` it is.
    collective: usize,
}

impl<'a> AtHand<'a> {
    /// The next call on `comm`, of a collective (a number of `queue_layout::COLLECTIVES`).
    #[inline]
    #[must_use]
    pub fn new(universe: &'a Universe, comm: &'a Comm, collective: usize) -> Option<Self> {
        let (seat, number) = (comm.seat.as_deref()?, comm.upcoming_call()?);
        if is_special(universe) {
            return None;
        }
        Some(Self {
            comm,
            seat,
            shape: universe.shape(),
            number,
            looks: looks(universe),
            collective,
        })
    }

    /// Rank of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.comm.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.seat.members()
    }

    /// As [`barrier`](super::barrier).
    #[must_use]
    pub fn barrier(&self) -> Option<()> {
        self.goes(0, self.shape.choice.barrier.board())?;
        self.meet(RoundKind::Barrier, &[])?;
        self.end()
    }

    /// As [`bcast`](super::bcast).
    #[must_use]
    pub fn bcast(&self, mut memory: UserMemory, root: u32) -> Option<()> {
        let bytes = memory.bytes();
        let wish = self.shape.choice.bcast.board();
        let limit = queue_limit(self.shape, wish).min(MOST_BYTES);
        if bytes > limit {
            return None;
        }
        match self.rank() == root {
            true => self.tell(RoundKind::Bcast, memory.as_slice())?,
            false => self.hear(RoundKind::Bcast, root, bytes, 0, memory.as_mut_slice())?,
        }
        self.end()
    }

    /// As [`scatter_equal`](super::scatter_equal); `all` is the root's alone, which is this rank or `root`.
    #[must_use]
    pub fn scatter(&self, all: Option<UserMemory>, mut mine: UserMemory, root: u32) -> Option<()> {
        let block = mine.bytes();
        let total = block * self.size() as usize;
        let limit = bcast_queue::limit(self.shape, usize::MAX, scatter_wish(self.shape));
        if total > limit.min(MOST_BYTES) {
            return None;
        }
        let at = self.rank() as usize * block;
        match all {
            Some(all) => {
                self.tell(RoundKind::Scatter, all.as_slice())?;
                mine.as_mut_slice()
                    .copy_from_slice(&all.as_slice()[at..at + block]);
            }
            None => self.hear(RoundKind::Scatter, root, total, at, mine.as_mut_slice())?,
        }
        self.end()
    }

    /// As [`reduce`](super::reduce); `output` is the root's alone.
    #[must_use]
    pub fn reduce(
        &self,
        input: UserMemory,
        output: Option<UserMemory>,
        op: &impl Reducer,
    ) -> Option<()> {
        self.goes(input.bytes(), self.shape.choice.reduce.board())?;
        match output {
            None => self.give(RoundKind::Reduce, input.as_slice())?,
            Some(mut output) => {
                let parts = self.meet_with_own(RoundKind::Reduce, input)?;
                parts.fold(0..self.size(), 0, output.as_mut_slice(), op);
            }
        }
        self.end()
    }

    /// As [`allreduce`](super::allreduce).
    #[must_use]
    pub fn allreduce(
        &self,
        input: UserMemory,
        output: UserMemory,
        op: &impl Reducer,
    ) -> Option<()> {
        let bytes = input.bytes();
        self.goes(bytes, self.shape.choice.allreduce.board())?;
        if bytes > self.shape.board_whole_bytes / self.size() as usize {
            return None;
        }
        self.fold(RoundKind::Allreduce, input, output, op)?;
        self.end()
    }

    /// As [`reduce_scatter`](super::reduce_scatter), of which this rank gets the bytes from `at` on.
    #[must_use]
    pub fn reduce_scatter(
        &self,
        input: UserMemory,
        at: usize,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Option<()> {
        let bytes = input.bytes();
        self.goes(bytes, self.shape.choice.reduce_scatter.board())?;
        if bytes > WHOLE_BYTES || at + output.bytes() > bytes {
            return None;
        }
        let parts = self.meet(RoundKind::ReduceScatter, input.as_slice())?;
        parts.fold(0..self.size(), at, output.as_mut_slice(), op);
        self.end()
    }

    /// As [`scan`](super::scan).
    #[must_use]
    pub fn scan(&self, input: UserMemory, output: UserMemory, op: &impl Reducer) -> Option<()> {
        self.combine_first(self.rank() + 1, input, output, op)
    }

    /// As [`exscan`](super::exscan).
    #[must_use]
    pub fn exscan(&self, input: UserMemory, output: UserMemory, op: &impl Reducer) -> Option<()> {
        self.combine_first(self.rank(), input, output, op)
    }

    fn combine_first(
        &self,
        ranks: u32,
        input: UserMemory,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Option<()> {
        self.goes(input.bytes(), self.shape.choice.scan.board())?;
        let parts = self.meet_lower(RoundKind::Scan, input)?;
        parts.fold(0..ranks, 0, output.as_mut_slice(), op);
        self.end()
    }

    /// As [`allgather_bytes`](super::allgather_bytes), with the own block apart.
    #[must_use]
    pub fn allgather(&self, mine: UserMemory, mut all: UserMemory) -> Option<()> {
        let (block, ranks) = (mine.bytes(), self.size() as usize);
        self.goes(block, self.shape.choice.allgather.board())?;
        if !self.shape.gathers_bytes(block, ranks, CommPlacement::Board) {
            return None;
        }
        let parts = self.meet(RoundKind::Allgather, mine.as_slice())?;
        parts.read_all(all.as_mut_slice());
        self.end()
    }

    /// As [`alltoall_bytes`](super::alltoall_bytes), with the blocks that go and those that come apart.
    #[must_use]
    pub fn alltoall(&self, out: UserMemory, mut into: UserMemory) -> Option<()> {
        let ranks = self.size();
        self.goes(out.bytes(), self.shape.choice.alltoall.board())?;
        if !self.shape.exchanges_bytes(
            out.bytes() / ranks as usize,
            ranks as usize,
            CommPlacement::Board,
        ) {
            return None;
        }
        let parts = self.meet(RoundKind::Alltoall, out.as_slice())?;
        parts.exchange(self.rank(), into.as_mut_slice());
        self.end()
    }

    /// As [`gather_equal`](super::gather_equal); `all` is the root's alone.
    #[must_use]
    pub fn gather(&self, mine: UserMemory, all: Option<UserMemory>) -> Option<()> {
        if mine.bytes() > gather_most(self.shape) {
            return None;
        }
        self.goes(mine.bytes(), gather_wish(self.shape))?;
        match all {
            None => self.give(RoundKind::Gather, mine.as_slice())?,
            Some(mut all) => {
                let parts = self.meet_with_own(RoundKind::Gather, mine)?;
                parts.read_all(all.as_mut_slice());
            }
        }
        self.end()
    }

    /// As [`goes`], over the board of the communicator.
    fn goes(&self, bytes: usize, wish: BoardChoice) -> Option<()> {
        goes(self.shape, self.seat, bytes, wish)
    }

    fn told(&self, kind: RoundKind, bytes: usize) -> BoardNote {
        BoardNote::of_call(self.number, kind, bytes)
    }

    /// Tells all others, who need not be there.
    fn tell(&self, kind: RoundKind, bytes: &[u8]) -> Option<()> {
        let queue = self.seat.bcast_queue();
        // What was told by others is of calls that this rank missed.
        if queue.next_entry().is_some() || !queue.has_room(bytes.len()) {
            return None;
        }
        queue.publish(self.told(kind, bytes.len()).note(), bytes);
        self.seat.wake_readers();
        Some(())
    }

    /// What the root told, of `total` bytes those from `at` on, if it comes soon.
    fn hear(
        &self,
        kind: RoundKind,
        root: u32,
        total: usize,
        at: usize,
        into: &mut [u8],
    ) -> Option<()> {
        let queue = self.seat.bcast_queue();
        let told = self.entry()?;
        if told.place != root || told.note != self.told(kind, total).note() {
            return None;
        }
        queue.read(&told, total, at, into);
        self.seat.take_entry(&told);
        Some(())
    }

    /// What was told next, if it comes soon.
    fn entry(&self) -> Option<Entry> {
        let queue = self.seat.bcast_queue();
        (0..self.looks).find_map(|_| {
            std::hint::spin_loop();
            queue.next_entry()
        })
    }

    /// Arrives with its bytes, and does not wait.
    fn give(&self, kind: RoundKind, bytes: &[u8]) -> Option<()> {
        self.arrive(kind, bytes).map(|_| ())
    }

    fn arrive(&self, kind: RoundKind, bytes: &[u8]) -> Option<Round> {
        arrive(self.seat, self.rank(), self.told(kind, bytes.len()), bytes)
    }

    /// Arrives with its bytes, and waits for those of all others, but not long.
    fn meet(&self, kind: RoundKind, bytes: &[u8]) -> Option<RoundContributions<'_>> {
        let round = self.arrive(kind, bytes)?;
        self.wait_for_all(round)?;
        Some(RoundContributions::new(self.seat, round, bytes.len()))
    }

    /// Arrives, and waits for the bytes of all others. No other reads those of this rank, so they stay where they are.
    fn meet_with_own(&self, kind: RoundKind, own: UserMemory) -> Option<RoundContributions<'_>> {
        let bytes = own.bytes();
        let round = RoundSpace::of(bytes).begin(self.seat)?;
        self.seat.arrive(round, self.told(kind, bytes).note());
        self.wait_for_all(round)?;
        Some(RoundContributions::new(self.seat, round, bytes).with_own(self.rank(), own))
    }

    /// Waits until all have arrived and do the same, but not long.
    #[inline]
    fn wait_for_all(&self, round: Round) -> Option<()> {
        for _ in 0..self.looks {
            if self.seat.is_over(round) {
                if self.seat.is_disputed(round) {
                    break;
                }
                return Some(());
            }
            std::hint::spin_loop();
        }
        self.comm.begin_at_hand(self.number, round);
        None
    }

    /// Arrives with its bytes, and waits for those of all lower ranks, but not long.
    fn meet_lower(&self, kind: RoundKind, own: UserMemory) -> Option<RoundContributions<'_>> {
        let bytes = own.bytes();
        let round = RoundSpace::of(bytes).begin(self.seat)?;
        let parts = RoundContributions::new(self.seat, round, bytes);
        // Nobody reads what the last one has.
        if self.rank() + 1 < self.size() {
            parts.put(self.rank(), own.as_slice());
        }
        self.seat.arrive(round, self.told(kind, bytes).note());
        self.seat.wake_those_of_rounds();
        let mut told = 0;
        for _ in 0..self.looks {
            match self.seat.first_absent(round, told..self.rank()) {
                Some(missing) => told = missing,
                None if self.is_alike_below(round) => {
                    return Some(parts.with_own(self.rank(), own));
                }
                None => break,
            }
            std::hint::spin_loop();
        }
        self.comm.begin_at_hand(self.number, round);
        None
    }

    /// Whether all lower ranks do the same.
    fn is_alike_below(&self, round: Round) -> bool {
        let own = self.seat.note(round, self.rank());
        (0..self.rank()).all(|rank| self.seat.note(round, rank) == own)
    }

    /// Meets all, and combines what they gave.
    fn fold(
        &self,
        kind: RoundKind,
        input: UserMemory,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Option<()> {
        let parts = self.meet(kind, input.as_slice())?;
        parts.fold(0..self.size(), 0, output.as_mut_slice(), op);
        Some(())
    }

    fn end(&self) -> Option<()> {
        self.comm.count_call(self.collective);
        Some(())
    }
}

/// Whether somebody watches the calls of this process, or something is under way that only turns of progress end.
#[inline]
fn is_special(universe: &Universe) -> bool {
    let is_watched = events::wanted().any() || pvars::are_calls_timed();
    is_watched || !universe.tasks.is_empty() || universe.wants_turns()
}

/// Whether data of this size of each rank go over a board here, as they do in the ordinary way.
#[inline]
fn goes(shape: &CollectiveTuning, seat: &Seat, bytes: usize, wish: BoardChoice) -> Option<()> {
    let goes = match wish {
        BoardChoice::AsUsual => shape.boards,
        BoardChoice::Yes => true,
        BoardChoice::No => false,
    };
    let limit = shape.board_bytes.min(MOST_BYTES);
    let all = bytes.saturating_mul(seat.members() as usize);
    let fits = bytes <= limit && all <= seat.room_bytes();
    (goes && limit > 0 && fits).then_some(())
}

/// Arrives at a board, where this rank has this place, with its bytes.
#[inline]
fn arrive(seat: &Seat, place: u32, told: BoardNote, bytes: &[u8]) -> Option<Round> {
    let round = RoundSpace::of(bytes.len()).begin(seat)?;
    RoundContributions::new(seat, round, bytes.len()).put(place, bytes);
    seat.arrive(round, told.note());
    Some(round)
}

/// How often to look whether the others are there.
#[inline]
fn looks(universe: &Universe) -> u32 {
    match universe.messages.pump.fabric.is_attentive() {
        true => LOOKS,
        false => 1,
    }
}

/// Looks before the ordinary way goes on, which makes progress between them: about as long as a message takes.
const LOOKS: u32 = 200;
/// The most bytes of each rank here, and of a root's data.
const MOST_BYTES: usize = 4 << 10;
