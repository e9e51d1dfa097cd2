// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives of ranks of one node without messages, over a [board](transport::seat): shared memory that the ranks use
//! in rounds. In a round each rank puts its data on the board, *arrives* (stores a [note](super::board_note) of its
//! call there), and reads what it needs when all ranks have arrived. In most calls a rank waits only once, and it
//! touches few cache lines besides its data. So a board is fast if many ranks share few cores, and also if each rank
//! has a core.
//!
//! Only blocking collectives use the board: a rank executes them one after the other, in the same order on all ranks,
//! as the rounds of a board require. Nonblocking collectives may overlap.
//!
//! If the arguments of a call were wrong on one rank, that rank *misses* the call: it returns without entering the
//! round that the other ranks use for the call. In that round it meets them with its next call. Therefore a rank's note
//! has the number of its call. A rank that missed a call waits in its next call until all ranks have arrived in the
//! round, even if the call itself needs no wait. If another rank was in an earlier call in that round, the rank that
//! missed a call repeats its present call in the next round. The ranks in the earlier call get an error, or do not need
//! the data of that rank. If they wait at the [broadcast queue](super::bcast_queue) in the earlier call, they arrive in
//! the round too, so the round ends.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use transport::Seat;
use transport::seat::{Awaited, BoardEvent, Round, RoundNote};

use super::board_note::{BoardNote, RoundKind};
use super::parcels::{self, Given, PLACE_BYTES, Parcels};
use super::parts::{RoundContributions, RoundSpace};
use super::{CollectiveCall, Reducer};
use crate::waiting::AtBoard;
use crate::{Error, UserMemory, Visit};

/// Whether a call uses the board, according to a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoardChoice {
    /// If the board is the default algorithm for this call.
    AsUsual,
    /// If the ranks have a board.
    Yes,
    /// Never.
    No,
}

/// One collective call over a board.
pub(super) struct BoardCall<'a, V> {
    pub(super) call: &'a CollectiveCall<V>,
    pub(super) seat: &'a Rc<Seat>,
}

impl<'a, V: Visit> BoardCall<'a, V> {
    /// The call over the board for `bytes` bytes of each rank; `None`: the call does not use a board.
    #[inline]
    pub(super) fn of(
        call: &'a CollectiveCall<V>,
        bytes: usize,
        board_choice: BoardChoice,
    ) -> Option<Self> {
        let shape = call.shape();
        let (seat, limit) = match board_choice {
            BoardChoice::AsUsual if shape.boards => (call.seat()?, shape.board_bytes),
            BoardChoice::Yes => (call.seat()?, shape.board_bytes),
            _ => return None,
        };
        let all = bytes.checked_mul(seat.members() as usize)?;
        let fits = limit > 0 && bytes <= limit && all <= seat.room_bytes();
        fits.then_some(Self { call, seat })
    }

    /// The call over the board for [parcels](super::parcels); `None`: the call does not use a board.
    pub(super) fn of_parcels(
        call: &'a CollectiveCall<V>,
        board_choice: BoardChoice,
    ) -> Option<Self> {
        Self::of(call, 0, board_choice).filter(|board| parcels::have_room(board.seat))
    }

    /// A barrier: all ranks have entered before any leaves.
    pub(super) async fn barrier(&self) -> Result<(), Error> {
        loop {
            let turn = self.give(RoundKind::Barrier, &[]).await?;
            if turn.all().await? {
                return Ok(());
            }
        }
    }

    /// A barrier for some ranks: a rank with `waits` leaves only after all ranks have entered; the other ranks do not
    /// wait.
    pub(super) async fn arrive(&self, waits: bool) -> Result<(), Error> {
        loop {
            let turn = self.give(RoundKind::Barrier, &[]).await?;
            let is_over = match waits {
                true => turn.all().await?,
                false => turn.leave().await,
            };
            if is_over {
                return Ok(());
            }
        }
    }

    /// Combines the bytes of all ranks in rank order at the root. Only the root has an `output`, which may be the same
    /// memory as `input`. The other ranks do not wait.
    pub(super) async fn reduce(
        &self,
        input: UserMemory,
        output: Option<UserMemory>,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let Some(mut output) = output else {
            while !self
                .give(RoundKind::Reduce, input.as_slice())
                .await?
                .leave()
                .await
            {}
            return Ok(());
        };
        let note = BoardNote::new(self.call, RoundKind::Reduce, input.bytes());
        let turn = loop {
            // No other rank reads the root's bytes, so they are not put on the board.
            let turn = self
                .arrive_as(note, RoundSpace::of(input.bytes()), &[])
                .await?;
            if turn.all().await? {
                break turn;
            }
        };
        let parts = turn.parts().with_own(self.call.rank(), input);
        parts.fold(0..self.call.size(), 0, output.as_mut_slice(), op);
        Ok(())
    }

    /// Combines the bytes of all ranks in `bytes` at each rank. The bytes should be few, because each rank combines all
    /// of them.
    pub(super) async fn allreduce(&self, bytes: &mut [u8], op: &impl Reducer) -> Result<(), Error> {
        let size = self.call.size();
        let turn = self.give_all(RoundKind::Allreduce, bytes).await?;
        turn.parts().fold(0..size, 0, bytes, op);
        Ok(())
    }

    /// Combines a part of the bytes of all ranks in `output`: from byte `at` on, as many bytes as `output` has. `input`
    /// and `output` may be the same memory.
    pub(super) async fn reduce_scatter(
        &self,
        input: UserMemory,
        at: usize,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let size = self.call.size();
        let turn = self
            .give_all(RoundKind::ReduceScatter, input.as_slice())
            .await?;
        turn.parts().fold(0..size, at, output.as_mut_slice(), op);
        Ok(())
    }

    /// Combines the bytes of the first `ranks` ranks in `bytes`. None of these ranks may be above this rank. Waits only
    /// for lower ranks. If notes of lower ranks differ from that of this rank, or this rank has missed a call, waits
    /// for all ranks.
    pub(super) async fn combine_first(
        &self,
        bytes: &mut [u8],
        ranks: u32,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let own = UserMemory::of(bytes);
        let note = BoardNote::new(self.call, RoundKind::Scan, bytes.len());
        // No other rank reads the bytes of the last rank, so they are not put on the board.
        let is_last = self.call.rank() + 1 == self.call.size();
        let given: &[u8] = if is_last { &[] } else { &*bytes };
        let turn = loop {
            let turn = self
                .arrive_as(note, RoundSpace::of(own.bytes()), given)
                .await?;
            self.seat.wake_those_of_rounds();
            if turn.lower().await? {
                break turn;
            }
        };
        let parts = turn.parts().with_own(self.call.rank(), own);
        parts.fold(0..ranks, 0, bytes, op);
        Ok(())
    }

    /// Collects one block of each rank at all ranks; the block of this rank is already in place.
    pub(super) async fn allgather(&self, all: &mut [u8]) -> Result<(), Error> {
        let block = all.len() / self.call.size() as usize;
        let own = self.call.rank() as usize * block;
        let turn = self
            .give_all(RoundKind::Allgather, &all[own..own + block])
            .await?;
        turn.parts().read_all(all);
        Ok(())
    }

    /// Contributes a block of `bytes` bytes to a gather. `few`: the bytes of the block if it goes over the board, else
    /// empty. Does not wait, unless this rank has missed a call.
    pub(super) async fn give_block(&self, bytes: usize, few: &[u8]) -> Result<(), Error> {
        let (note, space) = (
            BoardNote::new(self.call, RoundKind::Gather, bytes),
            RoundSpace::of(few.len()),
        );
        while !self.arrive_as(note, space, few).await?.leave().await {}
        Ok(())
    }

    /// Waits until all ranks have arrived, and records an error if their notes differ. `on_board` returns whether a
    /// block of a given number of bytes is on the board. Calls `take` for each other rank that has put a block of
    /// `bytes` bytes there. Returns the ranks whose blocks come as messages.
    pub(super) async fn gather_blocks(
        &self,
        bytes: usize,
        on_board: impl Fn(usize) -> bool,
        mut take: impl FnMut(u32, RoundContributions<'_>),
    ) -> Result<Vec<u32>, Error> {
        let note = BoardNote::new(self.call, RoundKind::Gather, bytes);
        let turn = loop {
            let turn = self.arrive_as(note, RoundSpace::Lines, &[]).await?;
            match turn.all().await {
                Ok(true) => break turn,
                Ok(false) => {}
                Err(error) => {
                    self.call.note(error);
                    break turn;
                }
            }
        };
        let others = (0..self.call.size()).filter(|rank| *rank != self.call.rank());
        let theirs = others
            .filter_map(|rank| Some((rank, BoardNote::of(self.seat.note(turn.round, rank)?))));
        let mut messages = Vec::new();
        for (rank, theirs) in theirs.filter(|(_, theirs)| theirs.is_alike(&note)) {
            let given = theirs.bytes as usize;
            if !on_board(given) {
                messages.push(rank);
            } else if given == bytes {
                take(rank, turn.parts());
            }
        }
        Ok(messages)
    }

    /// Sends block `i` of `out` to rank `i` and receives block `i` of `into` from rank `i`.
    pub(super) async fn alltoall(&self, out: &[u8], into: &mut [u8]) -> Result<(), Error> {
        let turn = self.give_all(RoundKind::Alltoall, out).await?;
        turn.parts().exchange(self.call.rank(), into);
        Ok(())
    }

    /// Waits until the half of the board that the next round uses is free, and begins that round for a call of `kind`
    /// with `bytes` bytes.
    pub(super) async fn begin(
        &self,
        kind: RoundKind,
        bytes: usize,
    ) -> Result<BoardRound<'_, V>, Error> {
        if self.call.comm().has_missed() {
            self.announce(false);
        }
        let note = BoardNote::new(self.call, kind, bytes);
        self.begin_as(note, RoundSpace::Half).await
    }

    /// Waits until `space` has room for the data of a round, and begins the round with a given note.
    pub(super) async fn begin_as(
        &self,
        note: BoardNote,
        space: RoundSpace,
    ) -> Result<BoardRound<'_, V>, Error> {
        let seat = self.seat;
        let begin = || space.begin(seat);
        let round = match begin() {
            Some(round) => round,
            None => self.wait(space.room(seat), begin, || None).await?,
        };
        Ok(self.turn(round, note))
    }

    pub(super) fn turn(&self, round: Round, note: BoardNote) -> BoardRound<'_, V> {
        BoardRound {
            board: self,
            round,
            note: note.encode(),
        }
    }

    /// Begins a round, puts this rank's bytes on the board and arrives.
    async fn give(&self, kind: RoundKind, bytes: &[u8]) -> Result<BoardRound<'_, V>, Error> {
        let note = BoardNote::new(self.call, kind, bytes.len());
        self.arrive_as(note, RoundSpace::of(bytes.len()), bytes)
            .await
    }

    /// Begins a round with a given note, puts this rank's bytes on the board and arrives.
    async fn arrive_as(
        &self,
        note: BoardNote,
        space: RoundSpace,
        bytes: &[u8],
    ) -> Result<BoardRound<'_, V>, Error> {
        let put = |turn: &BoardRound<'_, V>| {
            if !bytes.is_empty() {
                turn.parts().put(self.call.rank(), bytes);
            }
        };
        self.arrive_with(note, space, put).await
    }

    /// Begins a round, puts this rank's parcel on the board and arrives. If `parcel` is `None`, the data of this rank
    /// come as messages.
    pub(super) async fn give_parcel(
        &self,
        kind: RoundKind,
        parcel: Option<&[u8]>,
    ) -> Result<BoardRound<'_, V>, Error> {
        self.give_parcel_in(kind, PLACE_BYTES, parcel).await
    }

    /// As [`give_parcel`](Self::give_parcel), if each rank has `place` bytes on the board.
    pub(super) async fn give_parcel_in(
        &self,
        kind: RoundKind,
        place: usize,
        parcel: Option<&[u8]>,
    ) -> Result<BoardRound<'_, V>, Error> {
        let note = BoardNote::new(self.call, kind, 0);
        let given = parcel.map_or(Given::Messages, |parcel| Given::of(parcel.len(), place));
        let put = |turn: &BoardRound<'_, V>| turn.parcels_in(place).put(self.call.rank(), parcel);
        self.arrive_with(note, given.space(), put).await
    }

    /// Puts the lengths of this rank's blocks on the board; the blocks follow in later rounds.
    pub(super) async fn give_lengths(
        &self,
        kind: RoundKind,
        lengths: &[u64],
    ) -> Result<BoardRound<'_, V>, Error> {
        let note = BoardNote::new(self.call, kind, 0);
        let put = |turn: &BoardRound<'_, V>| turn.parcels().put_lengths(self.call.rank(), lengths);
        self.arrive_with(note, RoundSpace::Half, put).await
    }

    /// Begins a round, calls `put` to write the data, and arrives. If the [fast path](super::fast_path) has already
    /// arrived for this call, only returns the round in which it did.
    async fn arrive_with(
        &self,
        note: BoardNote,
        space: RoundSpace,
        put: impl FnOnce(&BoardRound<'_, V>),
    ) -> Result<BoardRound<'_, V>, Error> {
        let comm = self.call.comm();
        if let Some(round) = comm.begun_on_fast_path(self.call.number(u32::MAX)) {
            return Ok(self.turn(round, note));
        }
        if comm.has_missed() {
            self.announce(false);
        }
        let turn = self.begin_as(note, space).await?;
        // If this rank has missed a call and ranks are in an earlier call in this round, this rank writes no data:
        // those ranks may already be reading data of the earlier call there, because they do not all wait for this
        // rank.
        if !comm.has_missed() || !turn.is_early() {
            put(&turn);
        }
        turn.arrive();
        if comm.has_missed() {
            // Ranks may be asleep while they wait for an entry of the broadcast queue that will never come: they must
            // check again.
            self.seat.wake_sleepers();
        }
        Ok(turn)
    }

    /// Begins a round, puts this rank's bytes on the board, arrives, and waits for the data of all other ranks.
    async fn give_all(&self, kind: RoundKind, bytes: &[u8]) -> Result<BoardRound<'_, V>, Error> {
        loop {
            let turn = self.give(kind, bytes).await?;
            if turn.all().await? {
                return Ok(turn);
            }
        }
    }

    /// Waits for `event` at the board until `happened` or `doubt` returns `Some`, and returns that value. `doubt` finds
    /// reasons not to wait for the event any longer. Returns an error if a rank is dead.
    pub(super) async fn wait<T>(
        &self,
        event: BoardEvent,
        mut happened: impl FnMut() -> Option<T>,
        mut doubt: impl FnMut() -> Option<T>,
    ) -> Result<T, Error> {
        if let Some(happened) = happened() {
            return Ok(happened);
        }
        let awaited = Some(AtBoard {
            target: Awaited::new(self.seat, event),
            is_from_other_nodes: matches!(event, BoardEvent::Entry(_))
                && self.call.is_from_other_nodes(),
        });
        self.call
            .visit(|universe| universe.waiting.awaited = awaited);
        let mut polls = 0u32;
        let ended = poll_fn(|_| {
            if let Some(happened) = happened() {
                return Poll::Ready(Ok(happened));
            }
            if let Some(seen) = doubt() {
                // If other ranks have made the awaited store before the stores that `doubt` has read, the awaited store
                // is visible now.
                return Poll::Ready(Ok(happened().unwrap_or(seen)));
            }
            polls = polls.wrapping_add(1);
            match polls.is_multiple_of(POLLS_PER_CHECK) {
                true => self
                    .lost()
                    .map_or(Poll::Pending, |lost| Poll::Ready(Err(lost))),
                false => Poll::Pending,
            }
        })
        .await;
        self.call.visit(|universe| {
            universe.waiting.awaited = None;
            universe.completions_seen = universe.completions_seen.wrapping_add(1);
        });
        ended
    }

    /// To be called if this rank has missed a call: announces the number of its present call to ranks that wait at the
    /// broadcast queue. `sends`: whether this rank is about to write entries to that queue.
    #[cold]
    pub(super) fn announce(&self, sends: bool) {
        let number = self.call.number(u32::MAX);
        self.seat.bcast_queue().announce(number, sends);
        self.seat.wake_sleepers();
    }

    /// The error for a dead rank of the communicator, if there is one.
    #[cold]
    fn lost(&self) -> Option<Error> {
        let group = self.call.comm().partners();
        self.call
            .visit(|universe| universe.network.lost_among(group))
    }
}

/// One round of a call over a board.
pub(super) struct BoardRound<'a, V> {
    board: &'a BoardCall<'a, V>,
    round: Round,
    note: RoundNote,
}

impl<V: Visit> BoardRound<'_, V> {
    /// Puts bytes into the half of the board that the round uses. `all`: the bytes that all ranks put there.
    pub(super) fn put(&self, all: usize, at: usize, bytes: &[u8]) {
        self.board.seat.put(self.round, all, at, bytes);
    }

    pub(super) fn read(&self, all: usize, at: usize, into: &mut [u8]) {
        self.board.seat.read(self.round, all, at, into);
    }

    /// The contributions of all ranks. All must be as long as that of this rank.
    fn parts(&self) -> RoundContributions<'_> {
        let bytes = BoardNote::of(self.note).bytes as usize;
        RoundContributions::new(self.board.seat, self.round, bytes)
    }

    /// The contributions of all ranks as [parcels](super::parcels): no rank needs to have the lengths of the other
    /// ranks.
    pub(super) fn parcels(&self) -> Parcels<'_> {
        Parcels::new(self.board.seat, self.round)
    }

    /// As [`parcels`](Self::parcels), if each rank has `place` bytes on the board.
    pub(super) fn parcels_in(&self, place: usize) -> Parcels<'_> {
        Parcels::with_places(self.board.seat, self.round, place)
    }

    /// Whether rank `rank` has arrived in this round with the same kind of round and the same call, according to its
    /// note.
    pub(super) fn is_alike(&self, rank: u32) -> bool {
        let note = self.board.seat.note(self.round, rank);
        note.is_some_and(|note| BoardNote::of(note).is_alike(&BoardNote::of(self.note)))
    }

    /// Whether rank `rank` uses this round for an earlier call. Then the call of this rank needs a later round.
    pub(super) fn is_later_than(&self, rank: u32) -> bool {
        let note = self.board.seat.note(self.round, rank);
        note.is_some_and(|note| BoardNote::of(note).is_before(&BoardNote::of(self.note)))
    }

    pub(super) fn arrive(&self) {
        self.board.seat.arrive(self.round, self.note);
    }

    /// Waits until all ranks have arrived. `false`: other ranks were in an earlier call, so this call needs another
    /// round.
    pub(super) async fn all(&self) -> Result<bool, Error> {
        let seat = self.board.seat;
        let over = || seat.is_over(self.round).then_some(());
        let over = self.board.wait(BoardEvent::Over(self.round), over, || None);
        over.await?;
        let comm = self.board.call.comm();
        let is_disputed = seat.is_disputed(self.round);
        if comm.has_missed() || is_disputed {
            // If other ranks are in an earlier call, this rank missed that call, or completed it over the broadcast
            // queue without this round.
            if self.is_early() {
                return Ok(false);
            }
            comm.clear_missed();
        }
        match is_disputed {
            false => Ok(true),
            true => Err(self.mismatch(seat.who_differs(self.round, self.note))),
        }
    }

    /// Waits until all lower ranks have arrived. If their notes differ, or this rank has missed a call, waits for all
    /// ranks. Returns what [`all`](Self::all) returns.
    async fn lower(&self) -> Result<bool, Error> {
        let (seat, rank) = (self.board.seat, self.board.call.rank());
        if self.board.call.comm().has_missed() {
            return self.all().await;
        }
        let first_missing = Cell::new(0);
        let lower = || match seat.first_absent(self.round, first_missing.get()..rank) {
            Some(missing) => {
                first_missing.set(missing);
                None
            }
            None => Some(()),
        };
        let event = BoardEvent::Arrived(self.round, rank);
        self.board.wait(event, lower, || None).await?;
        match (0..rank).all(|lower| seat.note(self.round, lower) == Some(self.note)) {
            true => Ok(true),
            false => self.all().await,
        }
    }

    /// To be called by a rank that need not wait for others. If this rank has missed a call, waits for all ranks all
    /// the same. `false`: the call needs another round, as for [`all`](Self::all).
    pub(super) async fn leave(&self) -> bool {
        if !self.board.call.comm().has_missed() {
            return true;
        }
        // Any error is reported by the other ranks.
        !matches!(self.all().await, Ok(false))
    }

    /// Whether any rank uses this round for an earlier call, according to its note.
    #[cold]
    fn is_early(&self) -> bool {
        let mine = BoardNote::of(self.note);
        (0..self.board.call.size())
            .filter_map(|rank| self.board.seat.note(self.round, rank))
            .any(|note| BoardNote::of(note).is_before(&mine))
    }

    fn mismatch(&self, theirs: Option<(u32, RoundNote)>) -> Error {
        let name = |rank| self.board.call.name_of(rank);
        let theirs = theirs.map(|(rank, note)| (name(rank), BoardNote::of(note)));
        BoardNote::of(self.note).mismatch(theirs)
    }
}

/// A waiting rank checks for dead ranks once in this many polls.
const POLLS_PER_CHECK: u32 = 8;
