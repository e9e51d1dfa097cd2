// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives of ranks of one node without messages, over a [board](transport::seat): each rank puts its data there, arrives,
//! and reads what it needs when all have arrived. A rank waits once, or twice where all data are cut in slices, and touches few
//! cache lines besides its data; so this is what is fast when many ranks share few cores, and when they do not.
//!
//! Only blocking collectives go this way: those of a communicator have an order, and so have the rounds of a board.
//!
//! A call whose arguments were wrong on one rank is a round without that rank for the others, and it comes too late when it
//! makes its next call. So what a rank tells has the number of its call, and a rank that missed one is careful: it waits for
//! the end of its round, whatever it does, and does it again in the next one if another rank was at an earlier call. The
//! others, which were at that one, get an error or have no need of the rank that was missing. Where the call that was missed
//! goes over the [queue](super::bcast_queue), those that wait there come to the round, so that it ends.

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

/// Whether a call uses the board, as a setting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoardChoice {
    /// Where that is the usual way.
    AsUsual,
    /// Where there is one.
    Yes,
    /// It does not.
    No,
}

/// One collective call over a board.
pub(super) struct BoardCall<'a, V> {
    pub(super) line: &'a CollectiveCall<V>,
    pub(super) seat: &'a Rc<Seat>,
}

impl<'a, V: Visit> BoardCall<'a, V> {
    /// The board for `bytes` bytes of each rank, if they go over one.
    #[inline]
    pub(super) fn of(line: &'a CollectiveCall<V>, bytes: usize, wish: BoardChoice) -> Option<Self> {
        let shape = line.shape();
        let (seat, limit) = match wish {
            BoardChoice::AsUsual if shape.boards => (line.seat()?, shape.board_bytes),
            BoardChoice::Yes => (line.seat()?, shape.board_bytes),
            _ => return None,
        };
        let all = bytes.checked_mul(seat.members() as usize)?;
        let fits = limit > 0 && bytes <= limit && all <= seat.room_bytes();
        fits.then_some(Self { line, seat })
    }

    /// The board for parcels, if they go over one.
    pub(super) fn of_parcels(line: &'a CollectiveCall<V>, wish: BoardChoice) -> Option<Self> {
        Self::of(line, 0, wish).filter(|board| parcels::have_room(board.seat))
    }

    /// All have entered before any leaves.
    pub(super) async fn barrier(&self) -> Result<(), Error> {
        loop {
            let turn = self.give(RoundKind::Barrier, &[]).await?;
            if turn.all().await? {
                return Ok(());
            }
        }
    }

    /// All have entered before one of them leaves, which waits; the others do not.
    pub(super) async fn arrive(&self, waits: bool) -> Result<(), Error> {
        loop {
            let turn = self.give(RoundKind::Barrier, &[]).await?;
            let met = match waits {
                true => turn.all().await?,
                false => turn.leave().await,
            };
            if met {
                return Ok(());
            }
        }
    }

    /// Combines the bytes of all at the root, in the order of ranks, which alone has an `output`: it may be the same memory. The
    /// others do not wait.
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
        let told = BoardNote::new(self.line, RoundKind::Reduce, input.bytes());
        let turn = loop {
            // Nobody else reads what the root has.
            let turn = self
                .arrive_as(told, RoundSpace::of(input.bytes()), &[])
                .await?;
            if turn.all().await? {
                break turn;
            }
        };
        let parts = turn.parts().with_own(self.line.rank(), input);
        parts.fold(0..self.line.size(), 0, output.as_mut_slice(), op);
        Ok(())
    }

    /// Combines the bytes of all, which are few; each rank does it for itself.
    pub(super) async fn allreduce(&self, bytes: &mut [u8], op: &impl Reducer) -> Result<(), Error> {
        let size = self.line.size();
        let turn = self.give_all(RoundKind::Allreduce, bytes).await?;
        turn.parts().fold(0..size, 0, bytes, op);
        Ok(())
    }

    /// Combines of the bytes of all, which are few, those from byte `at` on. Both may be the same memory.
    pub(super) async fn reduce_scatter(
        &self,
        input: UserMemory,
        at: usize,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let size = self.line.size();
        let turn = self
            .give_all(RoundKind::ReduceScatter, input.as_slice())
            .await?;
        turn.parts().fold(0..size, at, output.as_mut_slice(), op);
        Ok(())
    }

    /// Combines the bytes of the first `ranks` ranks, of which this one may be the last. It waits for no higher one.
    pub(super) async fn combine_first(
        &self,
        bytes: &mut [u8],
        ranks: u32,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let own = UserMemory::of(bytes);
        let told = BoardNote::new(self.line, RoundKind::Scan, bytes.len());
        // Nobody reads what the last one has.
        let is_last = self.line.rank() + 1 == self.line.size();
        let given: &[u8] = if is_last { &[] } else { &*bytes };
        let turn = loop {
            let turn = self
                .arrive_as(told, RoundSpace::of(own.bytes()), given)
                .await?;
            self.seat.wake_those_of_rounds();
            if turn.lower().await? {
                break turn;
            }
        };
        let parts = turn.parts().with_own(self.line.rank(), own);
        parts.fold(0..ranks, 0, bytes, op);
        Ok(())
    }

    /// One block of each rank to all; the own one is in place.
    pub(super) async fn allgather(&self, all: &mut [u8]) -> Result<(), Error> {
        let block = all.len() / self.line.size() as usize;
        let own = self.line.rank() as usize * block;
        let turn = self
            .give_all(RoundKind::Allgather, &all[own..own + block])
            .await?;
        turn.parts().read_all(all);
        Ok(())
    }

    /// Gives a block of so many bytes to be gathered: `few` are the bytes, if they go over the board. Does not wait.
    pub(super) async fn give_block(&self, bytes: usize, few: &[u8]) -> Result<(), Error> {
        let (told, space) = (
            BoardNote::new(self.line, RoundKind::Gather, bytes),
            RoundSpace::of(few.len()),
        );
        while !self.arrive_as(told, space, few).await?.leave().await {}
        Ok(())
    }

    /// Waits until all have told what they give, of which so many bytes are expected. Whatever is wrong is noted; `take` is
    /// called for each rank whose block is on the board, which `on_board` says of the bytes that it gives. Answers those whose
    /// blocks come as messages.
    pub(super) async fn gather_blocks(
        &self,
        bytes: usize,
        on_board: impl Fn(usize) -> bool,
        mut take: impl FnMut(u32, RoundContributions<'_>),
    ) -> Result<Vec<u32>, Error> {
        let told = BoardNote::new(self.line, RoundKind::Gather, bytes);
        let turn = loop {
            let turn = self.arrive_as(told, RoundSpace::Lines, &[]).await?;
            match turn.all().await {
                Ok(true) => break turn,
                Ok(false) => {}
                Err(error) => {
                    self.line.note(error);
                    break turn;
                }
            }
        };
        let others = (0..self.line.size()).filter(|rank| *rank != self.line.rank());
        let theirs = others
            .filter_map(|rank| Some((rank, BoardNote::of(self.seat.note(turn.round, rank)?))));
        let mut messages = Vec::new();
        for (rank, theirs) in theirs.filter(|(_, theirs)| theirs.is_alike(&told)) {
            let given = theirs.bytes as usize;
            if !on_board(given) {
                messages.push(rank);
            } else if given == bytes {
                take(rank, turn.parts());
            }
        }
        Ok(messages)
    }

    /// Block `i` of `out` goes to rank `i`; block `i` of `into` comes from rank `i`.
    pub(super) async fn alltoall(&self, out: &[u8], into: &mut [u8]) -> Result<(), Error> {
        let turn = self.give_all(RoundKind::Alltoall, out).await?;
        turn.parts().exchange(self.line.rank(), into);
        Ok(())
    }

    /// Begins a round when the last one is over.
    pub(super) async fn begin(
        &self,
        kind: RoundKind,
        bytes: usize,
    ) -> Result<BoardRound<'_, V>, Error> {
        if self.line.comm().has_missed() {
            self.announce(false);
        }
        let told = BoardNote::new(self.line, kind, bytes);
        self.begin_as(told, RoundSpace::Half).await
    }

    /// The same, of what this rank tells, when the board has room for its data.
    pub(super) async fn begin_as(
        &self,
        told: BoardNote,
        space: RoundSpace,
    ) -> Result<BoardRound<'_, V>, Error> {
        let seat = self.seat;
        let begin = || space.begin(seat);
        let round = match begin() {
            Some(round) => round,
            None => self.wait(space.room(seat), begin, || None).await?,
        };
        Ok(self.turn(round, told))
    }

    pub(super) fn turn(&self, round: Round, told: BoardNote) -> BoardRound<'_, V> {
        BoardRound {
            board: self,
            round,
            note: told.note(),
        }
    }

    /// Begins a round, puts this rank's bytes there and arrives.
    async fn give(&self, kind: RoundKind, bytes: &[u8]) -> Result<BoardRound<'_, V>, Error> {
        let told = BoardNote::new(self.line, kind, bytes.len());
        self.arrive_as(told, RoundSpace::of(bytes.len()), bytes)
            .await
    }

    /// The same of what this rank tells.
    async fn arrive_as(
        &self,
        told: BoardNote,
        space: RoundSpace,
        bytes: &[u8],
    ) -> Result<BoardRound<'_, V>, Error> {
        let put = |turn: &BoardRound<'_, V>| {
            if !bytes.is_empty() {
                turn.parts().put(self.line.rank(), bytes);
            }
        };
        self.arrive_with(told, space, put).await
    }

    /// Begins a round, puts this rank's parcel there and arrives; `None`: what it gives comes as messages.
    pub(super) async fn give_parcel(
        &self,
        kind: RoundKind,
        parcel: Option<&[u8]>,
    ) -> Result<BoardRound<'_, V>, Error> {
        self.give_parcel_in(kind, PLACE_BYTES, parcel).await
    }

    /// The same where each rank has a place of so many bytes.
    pub(super) async fn give_parcel_in(
        &self,
        kind: RoundKind,
        place: usize,
        parcel: Option<&[u8]>,
    ) -> Result<BoardRound<'_, V>, Error> {
        let told = BoardNote::new(self.line, kind, 0);
        let given = parcel.map_or(Given::Messages, |parcel| Given::of(parcel.len(), place));
        let put = |turn: &BoardRound<'_, V>| turn.parcels_in(place).put(self.line.rank(), parcel);
        self.arrive_with(told, given.space(), put).await
    }

    /// The same of blocks of such lengths, which it gives in later rounds.
    pub(super) async fn give_lengths(
        &self,
        kind: RoundKind,
        lengths: &[u64],
    ) -> Result<BoardRound<'_, V>, Error> {
        let told = BoardNote::new(self.line, kind, 0);
        let put = |turn: &BoardRound<'_, V>| turn.parcels().put_lengths(self.line.rank(), lengths);
        self.arrive_with(told, RoundSpace::Half, put).await
    }

    /// The same of what `put` puts there; unless that was done [at hand](super::at_hand) already.
    async fn arrive_with(
        &self,
        told: BoardNote,
        space: RoundSpace,
        put: impl FnOnce(&BoardRound<'_, V>),
    ) -> Result<BoardRound<'_, V>, Error> {
        let comm = self.line.comm();
        if let Some(round) = comm.begun_at_hand(self.line.number(u32::MAX)) {
            return Ok(self.turn(round, told));
        }
        if comm.has_missed() {
            self.announce(false);
        }
        let turn = self.begin_as(told, space).await?;
        // Others that are at an earlier call may read there already what its root has put, and do not wait for this rank.
        if !comm.has_missed() || !turn.is_early() {
            put(&turn);
        }
        turn.arrive();
        if comm.has_missed() {
            // Those that sleep for an entry that will not come look again.
            self.seat.wake_sleepers();
        }
        Ok(turn)
    }

    /// The same, and waits for those of all others.
    async fn give_all(&self, kind: RoundKind, bytes: &[u8]) -> Result<BoardRound<'_, V>, Error> {
        loop {
            let turn = self.give(kind, bytes).await?;
            if turn.all().await? {
                return Ok(turn);
            }
        }
    }

    /// Waits until something has happened at the board, or `doubt` says that it never will, or a rank is
    /// lost without which it will not.
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
            what: Awaited::new(self.seat, event),
            is_from_afar: matches!(event, BoardEvent::Entry(_)) && self.line.hears_from_afar(),
        });
        self.line
            .visit(|universe| universe.waiting.awaited = awaited);
        let mut looks = 0u32;
        let ended = poll_fn(|_| {
            if let Some(happened) = happened() {
                return Poll::Ready(Ok(happened));
            }
            if let Some(seen) = doubt() {
                // What others did before that is there to be seen.
                return Poll::Ready(Ok(happened().unwrap_or(seen)));
            }
            looks = looks.wrapping_add(1);
            match looks.is_multiple_of(LOOKS_PER_DOUBT) {
                true => self
                    .lost()
                    .map_or(Poll::Pending, |lost| Poll::Ready(Err(lost))),
                false => Poll::Pending,
            }
        })
        .await;
        self.line.visit(|universe| {
            universe.waiting.awaited = None;
            universe.turned_up = universe.turned_up.wrapping_add(1);
        });
        ended
    }

    /// This rank missed a call, and says which one it is at; `tells`: it is about to tell entries of the broadcast queue.
    #[cold]
    pub(super) fn announce(&self, tells: bool) {
        let call = self.line.number(u32::MAX);
        self.seat.bcast_queue().announce(call, tells);
        self.seat.wake_sleepers();
    }

    /// A rank of the communicator that is lost.
    #[cold]
    fn lost(&self) -> Option<Error> {
        let group = self.line.comm().partners();
        self.line
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
    /// Puts bytes into the half of the board, where all ranks put `all` together.
    pub(super) fn put(&self, all: usize, at: usize, bytes: &[u8]) {
        self.board.seat.put(self.round, all, at, bytes);
    }

    pub(super) fn read(&self, all: usize, at: usize, into: &mut [u8]) {
        self.board.seat.read(self.round, all, at, into);
    }

    /// What each rank gives, as much as this one tells.
    fn parts(&self) -> RoundContributions<'_> {
        let bytes = BoardNote::of(self.note).bytes as usize;
        RoundContributions::new(self.board.seat, self.round, bytes)
    }

    /// What each rank gives, if they do not know of each other how much.
    pub(super) fn parcels(&self) -> Parcels<'_> {
        Parcels::new(self.board.seat, self.round)
    }

    /// The same where each rank has a place of so many bytes.
    pub(super) fn parcels_in(&self, place: usize) -> Parcels<'_> {
        Parcels::with_places(self.board.seat, self.round, place)
    }

    /// Whether another rank does the same, as far as it has told.
    pub(super) fn is_alike(&self, rank: u32) -> bool {
        let note = self.board.seat.note(self.round, rank);
        note.is_some_and(|note| BoardNote::of(note).is_alike(&BoardNote::of(self.note)))
    }

    /// Whether another rank is at an earlier call in this round, so that a later one is meant.
    pub(super) fn is_later_than(&self, rank: u32) -> bool {
        let note = self.board.seat.note(self.round, rank);
        note.is_some_and(|note| BoardNote::of(note).is_before(&BoardNote::of(self.note)))
    }

    pub(super) fn arrive(&self) {
        self.board.seat.arrive(self.round, self.note);
    }

    /// Waits until all have arrived. `false`: others were at an earlier call, and this one is for another round.
    pub(super) async fn all(&self) -> Result<bool, Error> {
        let seat = self.board.seat;
        let over = || seat.is_over(self.round).then_some(());
        let over = self.board.wait(BoardEvent::Over(self.round), over, || None);
        over.await?;
        let comm = self.board.line.comm();
        let is_disputed = seat.is_disputed(self.round);
        if comm.has_missed() || is_disputed {
            // This rank missed their call, or went past it over the broadcast queue.
            if self.is_early() {
                return Ok(false);
            }
            comm.has_met();
        }
        match is_disputed {
            false => Ok(true),
            true => Err(self.dispute(seat.who_differs(self.round, self.note))),
        }
    }

    /// Waits until all lower ranks have arrived, and for the others only if something is wrong. `false`: as [`all`](Self::all).
    async fn lower(&self) -> Result<bool, Error> {
        let (seat, rank) = (self.board.seat, self.board.line.rank());
        if self.board.line.comm().has_missed() {
            return self.all().await;
        }
        let told = Cell::new(0);
        let lower = || match seat.first_absent(self.round, told.get()..rank) {
            Some(missing) => {
                told.set(missing);
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

    /// Goes on without waiting, unless this rank must be careful. `false`: as [`all`](Self::all).
    pub(super) async fn leave(&self) -> bool {
        if !self.board.line.comm().has_missed() {
            return true;
        }
        // What else others did is told by them.
        !matches!(self.all().await, Ok(false))
    }

    /// Whether anybody is at an earlier call in this round, as far as they have told.
    #[cold]
    fn is_early(&self) -> bool {
        let mine = BoardNote::of(self.note);
        (0..self.board.line.size())
            .filter_map(|rank| self.board.seat.note(self.round, rank))
            .any(|note| BoardNote::of(note).is_before(&mine))
    }

    fn dispute(&self, theirs: Option<(u32, RoundNote)>) -> Error {
        let name = |rank| self.board.line.name_of(rank);
        let theirs = theirs.map(|(rank, note)| (name(rank), BoardNote::of(note)));
        BoardNote::of(self.note).dispute(theirs)
    }
}

/// A rank that waits asks once in so many looks whether it waits in vain.
const LOOKS_PER_DOUBT: u32 = 8;
