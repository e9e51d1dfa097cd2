// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of small blocking collectives that end after a short wait or none: over the [board](super::board) or
//! the [broadcast queue](super::bcast_queue), without a future.
//!
//! A process with unsent frames takes the general path. The caller makes a turn of progress before one call in
//! `CALLS_PER_TURN` ([`Universe::fast_path_turn`]), so a program whose calls all end on the fast path still makes
//! progress for its peers.
//!
//! If a call does not end on the fast path, the general path makes it from the start or continues it in the round that
//! the fast path began ([`Comm::begun_on_fast_path`]). So ranks may take different paths in one call; the results are
//! equal bit by bit.

mod member;
mod various;

pub use member::FastMemberCall;

use transport::Seat;
use transport::bcast_queue::BcastEntryHead as Entry;
use transport::seat::Round;

use super::bcast_queue;
use super::blocks::{gather_choice, gather_most, scatter_choice};
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

/// A call that may take the fast path. If a method returns `None`, the general path must complete the call.
#[derive(Debug)]
pub struct FastCall<'a> {
    comm: &'a Comm,
    seat: &'a Seat,
    shape: &'a CollectiveTuning,
    /// The number of the call.
    number: u32,
    /// Maximum number of polls for the arrival of other ranks.
    poll_limit: u32,
    /// The collective's number in `queue_layout::COLLECTIVES`.
    collective: usize,
}

impl<'a> FastCall<'a> {
    /// The next call on `comm`; `None`: it cannot take the fast path. `collective`: a number of
    /// `queue_layout::COLLECTIVES`.
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
            poll_limit: poll_limit(universe),
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
        self.applies(0, self.shape.choice.barrier.board())?;
        self.arrive_and_wait(RoundKind::Barrier, &[])?;
        self.end()
    }

    /// As [`bcast`](super::bcast).
    #[must_use]
    pub fn bcast(&self, mut memory: UserMemory, root: u32) -> Option<()> {
        let bytes = memory.bytes();
        let board_choice = self.shape.choice.bcast.board();
        let limit = queue_limit(self.shape, board_choice).min(MAX_BYTES);
        if bytes > limit {
            return None;
        }
        match self.rank() == root {
            true => self.send(RoundKind::Bcast, memory.as_slice())?,
            false => self.receive(RoundKind::Bcast, root, bytes, 0, memory.as_mut_slice())?,
        }
        self.end()
    }

    /// As [`scatter_equal`](super::scatter_equal). If `all` is `Some`, this rank is the root; else rank `root` is.
    #[must_use]
    pub fn scatter(&self, all: Option<UserMemory>, mut mine: UserMemory, root: u32) -> Option<()> {
        let block = mine.bytes();
        let total = block * self.size() as usize;
        let limit = bcast_queue::limit(self.shape, usize::MAX, scatter_choice(self.shape));
        if total > limit.min(MAX_BYTES) {
            return None;
        }
        let at = self.rank() as usize * block;
        match all {
            Some(all) => {
                self.send(RoundKind::Scatter, all.as_slice())?;
                mine.as_mut_slice()
                    .copy_from_slice(&all.as_slice()[at..at + block]);
            }
            None => self.receive(RoundKind::Scatter, root, total, at, mine.as_mut_slice())?,
        }
        self.end()
    }

    /// As [`reduce`](super::reduce). `output` exists only at the root.
    #[must_use]
    pub fn reduce(
        &self,
        input: UserMemory,
        output: Option<UserMemory>,
        op: &impl Reducer,
    ) -> Option<()> {
        self.applies(input.bytes(), self.shape.choice.reduce.board())?;
        match output {
            None => self.give(RoundKind::Reduce, input.as_slice())?,
            Some(mut output) => {
                let parts = self.arrive_and_wait_with_own(RoundKind::Reduce, input)?;
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
        self.applies(bytes, self.shape.choice.allreduce.board())?;
        if bytes > self.shape.board_whole_bytes / self.size() as usize {
            return None;
        }
        self.fold(RoundKind::Allreduce, input, output, op)?;
        self.end()
    }

    /// As [`reduce_scatter`](super::reduce_scatter). This rank gets the bytes from `at` on.
    #[must_use]
    pub fn reduce_scatter(
        &self,
        input: UserMemory,
        at: usize,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Option<()> {
        let bytes = input.bytes();
        self.applies(bytes, self.shape.choice.reduce_scatter.board())?;
        if bytes > WHOLE_BYTES || at + output.bytes() > bytes {
            return None;
        }
        let parts = self.arrive_and_wait(RoundKind::ReduceScatter, input.as_slice())?;
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
        self.applies(input.bytes(), self.shape.choice.scan.board())?;
        let parts = self.arrive_and_wait_for_lower(RoundKind::Scan, input)?;
        parts.fold(0..ranks, 0, output.as_mut_slice(), op);
        self.end()
    }

    /// As [`allgather_bytes`](super::allgather_bytes), but the own block is in `mine`.
    #[must_use]
    pub fn allgather(&self, mine: UserMemory, mut all: UserMemory) -> Option<()> {
        let (block, ranks) = (mine.bytes(), self.size() as usize);
        self.applies(block, self.shape.choice.allgather.board())?;
        if !self.shape.gathers_bytes(block, ranks, CommPlacement::Board) {
            return None;
        }
        let parts = self.arrive_and_wait(RoundKind::Allgather, mine.as_slice())?;
        parts.read_all(all.as_mut_slice());
        self.end()
    }

    /// As [`alltoall_bytes`](super::alltoall_bytes).
    #[must_use]
    pub fn alltoall(&self, out: UserMemory, mut into: UserMemory) -> Option<()> {
        let ranks = self.size();
        self.applies(out.bytes(), self.shape.choice.alltoall.board())?;
        if !self.shape.exchanges_bytes(
            out.bytes() / ranks as usize,
            ranks as usize,
            CommPlacement::Board,
        ) {
            return None;
        }
        let parts = self.arrive_and_wait(RoundKind::Alltoall, out.as_slice())?;
        parts.exchange(self.rank(), into.as_mut_slice());
        self.end()
    }

    /// As [`gather_equal`](super::gather_equal). `all` exists only at the root.
    #[must_use]
    pub fn gather(&self, mine: UserMemory, all: Option<UserMemory>) -> Option<()> {
        if mine.bytes() > gather_most(self.shape) {
            return None;
        }
        self.applies(mine.bytes(), gather_choice(self.shape))?;
        match all {
            None => self.give(RoundKind::Gather, mine.as_slice())?,
            Some(mut all) => {
                let parts = self.arrive_and_wait_with_own(RoundKind::Gather, mine)?;
                parts.read_all(all.as_mut_slice());
            }
        }
        self.end()
    }

    /// Calls the function [`applies`] for the board of the communicator.
    fn applies(&self, bytes: usize, board_choice: BoardChoice) -> Option<()> {
        applies(self.shape, self.seat, bytes, board_choice)
    }

    fn note(&self, kind: RoundKind, bytes: usize) -> BoardNote {
        BoardNote::of_call(self.number, kind, bytes)
    }

    /// Puts an entry for all other ranks into the broadcast queue. They need not have entered the call.
    fn send(&self, kind: RoundKind, bytes: &[u8]) -> Option<()> {
        let queue = self.seat.bcast_queue();
        // Entries that are still in the queue are of calls that this rank missed.
        if queue.next_entry().is_some() || !queue.has_room(bytes.len()) {
            return None;
        }
        queue.publish(self.note(kind, bytes.len()).encode(), bytes);
        self.seat.wake_readers();
        Some(())
    }

    /// Reads `into.len()` bytes from `at` on out of the root's entry of `total` bytes, if that entry comes soon.
    fn receive(
        &self,
        kind: RoundKind,
        root: u32,
        total: usize,
        at: usize,
        into: &mut [u8],
    ) -> Option<()> {
        let queue = self.seat.bcast_queue();
        let entry = self.entry()?;
        if entry.place != root || entry.note != self.note(kind, total).encode() {
            return None;
        }
        queue.read(&entry, total, at, into);
        self.seat.take_entry(&entry);
        Some(())
    }

    /// The next entry of the queue, if it comes soon.
    fn entry(&self) -> Option<Entry> {
        let queue = self.seat.bcast_queue();
        (0..self.poll_limit).find_map(|_| {
            std::hint::spin_loop();
            queue.next_entry()
        })
    }

    /// Arrives with this rank's bytes, and does not wait.
    fn give(&self, kind: RoundKind, bytes: &[u8]) -> Option<()> {
        self.arrive(kind, bytes).map(|_| ())
    }

    fn arrive(&self, kind: RoundKind, bytes: &[u8]) -> Option<Round> {
        arrive(self.seat, self.rank(), self.note(kind, bytes.len()), bytes)
    }

    /// Arrives with this rank's bytes, and waits briefly for the bytes of all other ranks.
    fn arrive_and_wait(&self, kind: RoundKind, bytes: &[u8]) -> Option<RoundContributions<'_>> {
        let round = self.arrive(kind, bytes)?;
        self.wait_for_all(round)?;
        Some(RoundContributions::new(self.seat, round, bytes.len()))
    }

    /// Arrives, and waits briefly for the bytes of all other ranks. The bytes of this rank stay in its own memory,
    /// because no other rank reads them.
    fn arrive_and_wait_with_own(
        &self,
        kind: RoundKind,
        own: UserMemory,
    ) -> Option<RoundContributions<'_>> {
        let bytes = own.bytes();
        let round = RoundSpace::of(bytes).begin(self.seat)?;
        self.seat.arrive(round, self.note(kind, bytes).encode());
        self.wait_for_all(round)?;
        Some(RoundContributions::new(self.seat, round, bytes).with_own(self.rank(), own))
    }

    /// Waits briefly until all ranks have arrived with the same call.
    #[inline]
    fn wait_for_all(&self, round: Round) -> Option<()> {
        for _ in 0..self.poll_limit {
            if self.seat.is_over(round) {
                if self.seat.is_disputed(round) {
                    break;
                }
                return Some(());
            }
            std::hint::spin_loop();
        }
        self.comm.begin_on_fast_path(self.number, round);
        None
    }

    /// Arrives with this rank's bytes, and waits briefly for the bytes of all lower ranks.
    fn arrive_and_wait_for_lower(
        &self,
        kind: RoundKind,
        own: UserMemory,
    ) -> Option<RoundContributions<'_>> {
        let bytes = own.bytes();
        let round = RoundSpace::of(bytes).begin(self.seat)?;
        let parts = RoundContributions::new(self.seat, round, bytes);
        // No other rank reads the bytes of the last rank, so they are not put on the board.
        if self.rank() + 1 < self.size() {
            parts.put(self.rank(), own.as_slice());
        }
        self.seat.arrive(round, self.note(kind, bytes).encode());
        self.seat.wake_those_of_rounds();
        let mut first_missing = 0;
        for _ in 0..self.poll_limit {
            match self.seat.first_absent(round, first_missing..self.rank()) {
                Some(missing) => first_missing = missing,
                None if self.is_alike_below(round) => {
                    return Some(parts.with_own(self.rank(), own));
                }
                None => break,
            }
            std::hint::spin_loop();
        }
        self.comm.begin_on_fast_path(self.number, round);
        None
    }

    /// Whether the notes of all lower ranks are equal to that of this rank.
    fn is_alike_below(&self, round: Round) -> bool {
        let own = self.seat.note(round, self.rank());
        (0..self.rank()).all(|rank| self.seat.note(round, rank) == own)
    }

    /// Arrives, waits briefly for all ranks, and combines their contributions.
    fn fold(
        &self,
        kind: RoundKind,
        input: UserMemory,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Option<()> {
        let parts = self.arrive_and_wait(kind, input.as_slice())?;
        parts.fold(0..self.size(), 0, output.as_mut_slice(), op);
        Some(())
    }

    fn end(&self) -> Option<()> {
        self.comm.count_call(self.collective);
        Some(())
    }
}

/// Whether calls must take the general path at present: tools record them, tasks are in progress, or an operation
/// completes only by turns of progress.
#[inline]
fn is_special(universe: &Universe) -> bool {
    let is_watched = events::wanted().any() || pvars::are_calls_timed();
    is_watched || !universe.tasks.is_empty() || universe.needs_turns()
}

/// `Some`: `bytes` bytes of each rank go over the board, by the rule of the general path and within the limit of the
/// fast path.
#[inline]
fn applies(
    shape: &CollectiveTuning,
    seat: &Seat,
    bytes: usize,
    board_choice: BoardChoice,
) -> Option<()> {
    let applies = match board_choice {
        BoardChoice::AsUsual => shape.boards,
        BoardChoice::Yes => true,
        BoardChoice::No => false,
    };
    let limit = shape.board_bytes.min(MAX_BYTES);
    let all = bytes.saturating_mul(seat.members() as usize);
    let fits = bytes <= limit && all <= seat.room_bytes();
    (applies && limit > 0 && fits).then_some(())
}

/// Puts this rank's bytes on a board and arrives. `place`: this rank's index at the board. `None`: the board has no
/// room yet.
#[inline]
fn arrive(seat: &Seat, place: u32, note: BoardNote, bytes: &[u8]) -> Option<Round> {
    let round = RoundSpace::of(bytes.len()).begin(seat)?;
    RoundContributions::new(seat, round, bytes.len()).put(place, bytes);
    seat.arrive(round, note.encode());
    Some(round)
}

/// Maximum number of polls for the arrival of other ranks; 1 if other processes may need the core.
#[inline]
fn poll_limit(universe: &Universe) -> u32 {
    match universe.messages.pump.fabric.is_attentive() {
        true => POLLS,
        false => 1,
    }
}

/// Maximum number of polls before the general path continues the call and makes progress. These polls take about as
/// long as a message.
const POLLS: u32 = 200;
/// Maximum number of bytes of each rank, or of the root if only the root has data, on the fast path.
const MAX_BYTES: usize = 4 << 10;
