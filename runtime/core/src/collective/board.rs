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
//! others, which were at that one, get an error or have no need of the rank that was missing.

use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use transport::Seat;
use transport::seat::{Awaited, Event, Note, Round};

use super::reduce::{fold, slices};
use super::{Line, Reducer};
use crate::{Error, Visit};

/// Whether a call goes over a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Where that is the usual way.
    AsUsual,
    /// Where there is one.
    Yes,
    /// It does not.
    No,
}

/// The way over a board, of one call.
pub(super) struct Board<'a, V> {
    line: &'a Line<V>,
    seat: &'a Rc<Seat>,
}

impl<'a, V: Visit> Board<'a, V> {
    /// The board for `bytes` bytes of each rank, if they go over one.
    #[inline]
    pub(super) fn of(line: &'a Line<V>, bytes: usize, wish: Wish) -> Option<Self> {
        let shape = line.shape();
        let (seat, limit) = match wish {
            Wish::AsUsual if shape.boards => (line.seat()?, shape.board_bytes),
            Wish::Yes => (line.seat()?, shape.board_bytes),
            _ => return None,
        };
        let all = bytes.checked_mul(seat.members() as usize)?;
        let fits = limit > 0 && bytes <= limit && all <= seat.room_bytes();
        fits.then_some(Self { line, seat })
    }

    /// The board for a broadcast: where each rank has a CPU, many bytes had better not wait for a copy on the way.
    #[inline]
    pub(super) fn of_bcast(line: &'a Line<V>, bytes: usize) -> Option<Self> {
        let (shape, wish) = (line.shape(), line.shape().choice.bcast.board());
        let worth_it = shape.flat || bytes <= shape.board_bcast_bytes || wish == Wish::Yes;
        worth_it.then(|| Self::of(line, bytes, wish))?
    }

    /// All have entered before any leaves.
    pub(super) async fn barrier(&self) -> Result<(), Error> {
        loop {
            let turn = self.begin(Kind::Barrier, 0).await?;
            turn.arrive();
            if turn.all().await? {
                return Ok(());
            }
        }
    }

    /// This rank's bytes to all. It does not wait for them.
    pub(super) async fn tell_all(&self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            let turn = self.begin(Kind::Bcast, bytes.len()).await?;
            turn.put(0, bytes);
            turn.tell();
            turn.arrive();
            if turn.leave().await {
                return Ok(());
            }
        }
    }

    /// The root's bytes to this rank.
    pub(super) async fn hear(&self, bytes: &mut [u8], root: u32) -> Result<(), Error> {
        loop {
            let turn = self.begin(Kind::Bcast, bytes.len()).await?;
            if self.line.comm().has_missed() {
                // Or the ranks that wait for each other would be two.
                turn.tell();
            }
            let told = turn.told(root).await?;
            if told == turn.note {
                turn.read(0, bytes);
            }
            turn.arrive();
            if !turn.leave().await {
                continue;
            }
            if told != turn.note {
                self.line.note(turn.dispute(Some((root, told))));
            }
            return Ok(());
        }
    }

    /// Combines the bytes of all at the root, in the order of ranks. The others do not wait.
    pub(super) async fn reduce(
        &self,
        bytes: &mut [u8],
        root: u32,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        if self.line.rank() == root {
            let turn = self.give_all(Kind::Reduce, bytes).await?;
            turn.fold(0..self.line.size(), 0, bytes, op);
            return Ok(());
        }
        while !self.give(Kind::Reduce, bytes).await?.leave().await {}
        Ok(())
    }

    /// Combines the bytes of all; the result is everywhere. Few bytes each rank combines itself, of many its slice.
    pub(super) async fn allreduce(&self, bytes: &mut [u8], op: &impl Reducer) -> Result<(), Error> {
        let size = self.line.size();
        let turn = self.give_all(Kind::Allreduce, bytes).await?;
        if bytes.len() * size as usize <= self.line.shape().board_whole_bytes {
            turn.fold(0..size, 0, bytes, op);
            return Ok(());
        }
        let lengths = slices(bytes.len(), size as usize, op.item_bytes());
        let slice = span(&lengths, self.line.rank());
        turn.fold(0..size, slice.start, &mut bytes[slice.clone()], op);
        let turn = self.begin(Kind::Slices, bytes.len()).await?;
        turn.put(slice.start, &bytes[slice]);
        turn.arrive();
        turn.all().await?;
        turn.read(0, bytes);
        Ok(())
    }

    /// Combines the bytes of all; `mine` gets this rank's part.
    pub(super) async fn reduce_scatter(
        &self,
        bytes: &[u8],
        lengths: &[usize],
        mine: &mut [u8],
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let turn = self.give_all(Kind::ReduceScatter, bytes).await?;
        let part = span(lengths, self.line.rank());
        turn.fold(0..self.line.size(), part.start, mine, op);
        Ok(())
    }

    /// The combination of all lower ranks' bytes; `None` at rank 0.
    pub(super) async fn combine_before(
        &self,
        bytes: &[u8],
        op: &impl Reducer,
    ) -> Result<Option<Vec<u8>>, Error> {
        let turn = self.give_all(Kind::Scan, bytes).await?;
        let mut before = vec![0; bytes.len()];
        turn.fold(0..self.line.rank(), 0, &mut before, op);
        Ok((self.line.rank() > 0).then_some(before))
    }

    /// One block of each rank to all; the own one is in place.
    pub(super) async fn allgather(&self, all: &mut [u8]) -> Result<(), Error> {
        let block = all.len() / self.line.size() as usize;
        let own = self.line.rank() as usize * block;
        let turn = self
            .give_all(Kind::Allgather, &all[own..own + block])
            .await?;
        turn.read(0, all);
        Ok(())
    }

    /// Block `i` of `out` goes to rank `i`; block `i` of `into` comes from rank `i`.
    pub(super) async fn alltoall(&self, out: &[u8], into: &mut [u8]) -> Result<(), Error> {
        let turn = self.give_all(Kind::Alltoall, out).await?;
        let block = out.len() / self.line.size() as usize;
        let own = self.line.rank() as usize * block;
        for (from, block) in (0..).zip(into.chunks_exact_mut(block)) {
            turn.read(from * out.len() + own, block);
        }
        Ok(())
    }

    /// Begins a round when the last one is over.
    async fn begin(&self, kind: Kind, bytes: usize) -> Result<Turn<'_, V>, Error> {
        let round = match self.seat.begin() {
            Some(round) => round,
            None => {
                let last = Event::Over(self.seat.last());
                self.wait(last, || self.seat.begin()).await?
            }
        };
        let note = Told {
            kind: kind as u8,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            call: self.line.number(CALLS - 1),
        }
        .note();
        Ok(Turn {
            board: self,
            round,
            note,
        })
    }

    /// Begins a round, puts this rank's bytes there and arrives.
    async fn give(&self, kind: Kind, bytes: &[u8]) -> Result<Turn<'_, V>, Error> {
        let turn = self.begin(kind, bytes.len()).await?;
        turn.put(self.line.rank() as usize * bytes.len(), bytes);
        turn.arrive();
        Ok(turn)
    }

    /// The same, and waits for those of all others.
    async fn give_all(&self, kind: Kind, bytes: &[u8]) -> Result<Turn<'_, V>, Error> {
        loop {
            let turn = self.give(kind, bytes).await?;
            if turn.all().await? {
                return Ok(turn);
            }
        }
    }

    /// Waits until something has happened at the board, or a rank is lost without which it never will.
    async fn wait<T>(
        &self,
        event: Event,
        mut happened: impl FnMut() -> Option<T>,
    ) -> Result<T, Error> {
        if let Some(happened) = happened() {
            return Ok(happened);
        }
        let awaited = Some(Awaited::new(self.seat, event));
        self.line.visit(|universe| universe.awaited = awaited);
        let mut looks = 0u32;
        let ended = poll_fn(|_| {
            if let Some(happened) = happened() {
                return Poll::Ready(Ok(happened));
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
            universe.awaited = None;
            universe.turned_up = universe.turned_up.wrapping_add(1);
        });
        ended
    }

    /// A rank of the communicator that is lost.
    #[cold]
    fn lost(&self) -> Option<Error> {
        let group = self.line.comm().partners();
        self.line.visit(|universe| universe.lost_among(group))
    }
}

/// One round of it.
struct Turn<'a, V> {
    board: &'a Board<'a, V>,
    round: Round,
    note: Note,
}

impl<V: Visit> Turn<'_, V> {
    fn put(&self, at: usize, bytes: &[u8]) {
        self.board.seat.put(self.round, at, bytes);
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        self.board.seat.read(self.round, at, into);
    }

    fn tell(&self) {
        self.board.seat.tell(self.round, self.note);
    }

    fn arrive(&self) {
        self.board.seat.arrive(self.round, self.note);
    }

    /// Waits until all have arrived. `false`: others were at an earlier call, and this one is for another round.
    async fn all(&self) -> Result<bool, Error> {
        let seat = self.board.seat;
        let over = || seat.is_over(self.round).then_some(());
        self.board.wait(Event::Over(self.round), over).await?;
        let comm = self.board.line.comm();
        if comm.has_missed() {
            if self.is_early() {
                return Ok(false);
            }
            comm.has_met();
        }
        match seat.is_disputed(self.round) {
            false => Ok(true),
            true => Err(self.dispute(seat.who_differs(self.round, self.note))),
        }
    }

    /// Goes on without waiting, unless this rank must be careful. `false`: as [`all`](Self::all).
    async fn leave(&self) -> bool {
        if !self.board.line.comm().has_missed() {
            return true;
        }
        // What else others did is told by them.
        !matches!(self.all().await, Ok(false))
    }

    /// Whether anybody was at an earlier call in a round that is over.
    #[cold]
    fn is_early(&self) -> bool {
        let mine = Told::of(self.note);
        (0..self.board.line.size())
            .filter_map(|rank| self.board.seat.note(self.round, rank))
            .any(|note| Told::of(note).is_before(&mine))
    }

    /// Waits until a rank has told what it does.
    async fn told(&self, rank: u32) -> Result<Note, Error> {
        let told = || self.board.seat.note(self.round, rank);
        self.board.wait(Event::Told(self.round, rank), told).await
    }

    /// Combines what `ranks` put at `at` in their parts, in their order: few bytes from one copy of all parts, many piece by
    /// piece, so that they stay in the cache.
    fn fold(&self, ranks: Range<u32>, at: usize, into: &mut [u8], op: &impl Reducer) {
        let part = Told::of(self.note).bytes as usize;
        if part * ranks.len() <= PIECE_BYTES && into.len() == part && !ranks.is_empty() {
            let mut all = vec![0; part * ranks.len()];
            self.read(ranks.start as usize * part, &mut all);
            into.copy_from_slice(fold(&mut all, part, op));
            return;
        }
        let item = op.item_bytes().max(1);
        let piece = (PIECE_BYTES / item).max(1) * item;
        let mut next = vec![0; piece.min(into.len())];
        for (index, into) in into.chunks_mut(piece).enumerate() {
            let at = at + index * piece;
            let next = &mut next[..into.len()];
            let mut ranks = ranks.clone();
            let Some(first) = ranks.next() else { return };
            self.read(first as usize * part + at, into);
            for rank in ranks {
                self.read(rank as usize * part + at, next);
                op.reduce(into, next);
                into.copy_from_slice(next);
            }
        }
    }

    #[cold]
    fn dispute(&self, theirs: Option<(u32, Note)>) -> Error {
        let ours = Told::of(self.note);
        let theirs = theirs.map(|(rank, note)| (rank, Told::of(note)));
        match theirs {
            Some((rank, told)) if ours.is_before(&told) => Error::Absent { rank },
            Some((_, told)) if told.kind == ours.kind && told.bytes != ours.bytes => {
                Error::Unequal {
                    given: told.bytes.into(),
                    expected: ours.bytes.into(),
                }
            }
            theirs => Error::Disputed {
                ours: Kind::name(ours.kind),
                our_bytes: ours.bytes.into(),
                theirs: theirs.map(|(rank, told)| (rank, Kind::name(told.kind), told.bytes.into())),
            },
        }
    }
}

/// What a note says.
struct Told {
    kind: u8,
    bytes: u32,
    /// The number of the call, below [`CALLS`].
    call: u32,
}

impl Told {
    #[allow(clippy::cast_possible_truncation, reason = "four bits")]
    fn note(&self) -> Note {
        Note {
            kind: self.kind | (self.call << KIND_BITS) as u8,
            bytes: self.bytes | (self.call >> (8 - KIND_BITS)) << BYTES_BITS,
        }
    }

    fn of(note: Note) -> Self {
        let low = u32::from(note.kind >> KIND_BITS);
        Self {
            kind: note.kind & ((1 << KIND_BITS) - 1),
            bytes: note.bytes & ((1 << BYTES_BITS) - 1),
            call: low | (note.bytes >> BYTES_BITS) << (8 - KIND_BITS),
        }
    }

    /// Numbers begin again after the last; those less than half of all ahead are later.
    fn is_before(&self, other: &Self) -> bool {
        (1..CALLS / 2).contains(&(other.call.wrapping_sub(self.call) % CALLS))
    }
}

/// Of the kind in a note.
const KIND_BITS: u32 = 4;
/// Of the number of bytes: the largest [`Variable::BoardLimit`](crate::var::Variable) is 2²⁰.
const BYTES_BITS: u32 = 21;
/// Numbers of calls: 8 bits for the kind and 24 for the bytes are there, and these have the rest.
const CALLS: u32 = 1 << (8 - KIND_BITS + 24 - BYTES_BITS);

/// What a rank does in a round.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Barrier = 1,
    Bcast,
    Reduce,
    Allreduce,
    Slices,
    ReduceScatter,
    Scan,
    Allgather,
    Alltoall,
}

impl Kind {
    /// The name of a number that another process told.
    fn name(kind: u8) -> &'static str {
        let names = [
            "a barrier",
            "a broadcast",
            "a reduction",
            "an allreduce",
            "the second half of an allreduce",
            "a reduce-scatter",
            "a scan",
            "an allgather",
            "an all-to-all",
        ];
        let at = usize::from(kind).checked_sub(1);
        at.and_then(|at| names.get(at)).unwrap_or(&"nothing known")
    }
}

fn span(lengths: &[usize], rank: u32) -> Range<usize> {
    let rank = rank as usize;
    let start = lengths[..rank].iter().sum();
    start..start + lengths[rank]
}

/// What is combined at a time.
const PIECE_BYTES: usize = 4 << 10;
/// A rank that waits asks once in so many looks whether it waits in vain.
const LOOKS_PER_DOUBT: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_was_put_into_it() {
        for call in 0..CALLS {
            let (kind, bytes) = (Kind::Alltoall as u8, 1 << 20);
            let note = Told { kind, bytes, call }.note();
            assert!(note.bytes < 1 << 24);
            let told = Told::of(note);
            assert_eq!((told.kind, told.bytes, told.call), (kind, bytes, call));
        }
    }

    #[test]
    fn numbers_of_calls_go_round() {
        let at = |call| Told {
            kind: 1,
            bytes: 0,
            call,
        };
        assert!(at(0).is_before(&at(1)) && !at(1).is_before(&at(0)));
        assert!(at(CALLS - 1).is_before(&at(2)) && !at(2).is_before(&at(CALLS - 1)));
        assert!(!at(5).is_before(&at(5)));
    }
}
