// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one rank of a node tells all others without a message, over the [broadcast queue](transport::bcast_queue) of their
//! board: the root puts its bytes there once, entry by entry, and goes on; each other rank copies what it needs when it comes to
//! it. So a root that calls again and again runs ahead of the others, many bytes are read by all while they are in the cache,
//! and nobody waits for all.
//!
//! Only blocking collectives go this way, as over the board, and an entry has the number of its call for the same reason: a rank
//! passes over entries of calls that it missed. Who waits here looks from time to time at what others do at the board, where they
//! would wait for it: if they are at an earlier call, or the root is at another collective, it arrives there too, so that they are
//! told. A rank that missed a call announces which one it is at; so those that wait for its entry learn that it will not come. As
//! the root it meets all others in a round before it tells anything, for until then the root of an earlier call might.

use std::ops::Range;

use transport::Seat;
use transport::bcast_queue::{BcastEntryHead as Entry, BcastQueueMember as Words, CHUNK_BYTES};
use transport::seat::BoardEvent;

use super::board::{BoardCall, BoardChoice};
use super::board_note::{BoardNote, RoundKind};
use super::parcels;
use super::parts::RoundSpace;
use super::various::{read_into, unequal};
use super::{CollectiveCall, CollectiveTuning};
use crate::{Error, Payload, Visit};

/// One collective call over the broadcast queue of a board.
pub(super) struct BcastQueueCall<'a, V>(BoardCall<'a, V>);

impl<'a, V: Visit> BcastQueueCall<'a, V> {
    /// That of the ranks of this call, if it may go over one.
    #[inline]
    pub(super) fn of(line: &'a CollectiveCall<V>) -> Option<Self> {
        let seat = line.seat()?;
        Some(Self(BoardCall { line, seat }))
    }

    /// This rank's bytes to all. It waits for room, and not for them.
    pub(super) async fn tell(&self, kind: RoundKind, bytes: &[u8]) -> Result<(), Error> {
        let told = BoardNote::new(self.0.line, kind, bytes.len());
        self.begin_to_tell(told).await?;
        self.tell_as(told, told, bytes).await
    }

    /// A [parcel](super::parcels), whose length the others do not know.
    pub(super) async fn tell_parcel(&self, kind: RoundKind, bytes: &[u8]) -> Result<(), Error> {
        let told = BoardNote::new(self.0.line, kind, bytes.len());
        let expected = BoardNote::new(self.0.line, kind, 0);
        self.begin_to_tell(expected).await?;
        self.tell_as(told, expected, bytes).await
    }

    /// Blocks that lie in the half of the board in the next round, each in its reader's place; the entry has their lengths.
    pub(super) async fn tell_on_board(
        &self,
        kind: RoundKind,
        all: &[Payload],
    ) -> Result<(), Error> {
        let expected = BoardNote::new(self.0.line, kind, 0);
        self.begin_to_tell(expected).await?;
        let lengths = all.iter().map(Payload::bytes);
        let lengths = lengths.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let table: Vec<u8> = lengths.flat_map(u32::to_ne_bytes).collect();
        // Before it arrives: afterwards it would not see who waits for it in that round.
        if !self.words().has_room(table.len()) {
            self.wait_for_room(expected, table.len()).await?;
        }
        let turn = self.0.begin_as(expected, RoundSpace::Half).await?;
        let place = Seat::place_bytes(self.0.line.size());
        for (rank, block) in (0..).zip(all) {
            turn.parcels_in(place)
                .put_in_place(rank, block, 0..block.bytes());
        }
        turn.arrive();
        let told = BoardNote::new(self.0.line, kind, ON_BOARD);
        self.tell_as(told, expected, &table).await
    }

    /// Before it tells, a rank meets those that wait for it elsewhere.
    async fn begin_to_tell(&self, expected: BoardNote) -> Result<(), Error> {
        if self.0.line.comm().has_missed() {
            self.meet_all(expected).await?;
        }
        // What was told is of calls that this rank missed.
        while let Some(earlier) = self.words().next_entry() {
            self.0.seat.take_entry(&earlier);
        }
        Ok(())
    }

    async fn tell_as(
        &self,
        told: BoardNote,
        expected: BoardNote,
        bytes: &[u8],
    ) -> Result<(), Error> {
        for chunk in chunks(bytes.len()) {
            if !self.words().has_room(chunk.len()) {
                self.wait_for_room(expected, chunk.len()).await?;
            }
            self.words().publish(told.note(), &bytes[chunk]);
        }
        self.0.seat.wake_readers();
        Ok(())
    }

    /// The root's bytes, of which this rank needs those from `at` on: all, unless `total` is more.
    pub(super) async fn hear(
        &self,
        kind: RoundKind,
        root: u32,
        total: usize,
        at: usize,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let told = BoardNote::new(self.0.line, kind, total);
        let wanted = at..at + into.len();
        let line = self.0.line;
        let heard = line.comm().heard_at_hand(line.number(u32::MAX));
        for chunk in chunks(total).skip(heard) {
            let entry = self.entry(root, told).await?;
            if entry.place != root || entry.note != told.note() {
                return self.pass_over(&entry, told).await;
            }
            let part = chunk.start.max(wanted.start)..chunk.end.min(wanted.end);
            if part.start < part.end {
                let place = part.start - wanted.start..part.end - wanted.start;
                let at = part.start - chunk.start;
                self.words().read(&entry, chunk.len(), at, &mut into[place]);
            }
            self.0.seat.take_entry(&entry);
        }
        Ok(())
    }

    /// This rank's block of the root's [parcel](super::parcels), which nobody else knows the length of. `false`: it comes as a
    /// message.
    pub(super) async fn hear_block(
        &self,
        kind: RoundKind,
        root: u32,
        into: &Payload,
    ) -> Result<bool, Error> {
        let (line, ours) = (self.0.line, BoardNote::new(self.0.line, kind, 0));
        let entry = self.entry(root, ours).await?;
        let theirs = BoardNote::of(entry.note);
        if entry.place != root || !theirs.is_alike(&ours) {
            // It may differ in anything but the length.
            let ours = ours.as_long_as(&theirs);
            return self.pass_over(&entry, ours).await.map(|()| true);
        }
        let bytes = theirs.bytes as usize;
        if is_on_board(&theirs) {
            let mut length = [0; 4];
            let (table, at) = (4 * line.size() as usize, 4 * line.rank() as usize);
            self.words().read(&entry, table, at, &mut length);
            self.0.seat.take_entry(&entry);
            let length = u32::from_ne_bytes(length) as usize;
            return self.take_from_board(ours, root, length, into).await;
        }
        if bytes > 0 {
            match block_in(self.words(), &entry, bytes, line.size(), line.rank()) {
                Some(block) => read_into(into, block.len(), |part| {
                    self.words().read(&entry, bytes, block.start, part);
                }),
                None => Err(unequal(0, into)),
            }
            .unwrap_or_else(|error| line.note(error));
        }
        self.0.seat.take_entry(&entry);
        Ok(bytes > 0)
    }

    /// Reads this rank's block, which the root has put on the board in a round of this call.
    async fn take_from_board(
        &self,
        ours: BoardNote,
        root: u32,
        length: usize,
        into: &Payload,
    ) -> Result<bool, Error> {
        let seat = self.0.seat;
        let [last, next] = [seat.last(), seat.upcoming()].map(|round| self.0.turn(round, ours));
        // This rank may have attended the round already, where it saw the root and not yet the entry.
        let was_there = last.is_alike(root) && last.is_alike(self.0.line.rank());
        let mut attended = (was_there && !next.is_alike(root)).then_some(last);
        loop {
            let turn = match attended.take() {
                Some(turn) => turn,
                None => {
                    let turn = self.0.begin_as(ours, RoundSpace::Lines).await?;
                    turn.arrive();
                    turn
                }
            };
            if turn.is_alike(root) {
                let (rank, place) = (self.0.line.rank(), Seat::place_bytes(self.0.line.size()));
                match length as u64 == into.bytes() {
                    true => turn
                        .parcels_in(place)
                        .take_from_place(rank, into, 0..into.bytes()),
                    false => self.0.line.note(unequal(length, into)),
                }
                return Ok(true);
            }
            // The round of a call that this rank missed; or the root has gone on, whatever is wrong.
            if !turn.is_later_than(root) {
                return Err(ours.dispute(None));
            }
        }
    }

    fn words(&self) -> &Words {
        self.0.seat.bcast_queue()
    }

    /// Waits until all are at this call: none of them tells an entry of an earlier one then.
    #[cold]
    async fn meet_all(&self, told: BoardNote) -> Result<(), Error> {
        self.0.announce(true);
        loop {
            let turn = self.0.begin_as(told, RoundSpace::Lines).await?;
            turn.arrive();
            self.0.seat.wake_sleepers();
            if turn.all().await? {
                return Ok(());
            }
        }
    }

    #[cold]
    async fn wait_for_room(&self, ours: BoardNote, length: usize) -> Result<(), Error> {
        self.0.seat.wake_sleepers();
        let count = self.words().room_target(length);
        let taken = || self.words().have_taken(count).then_some(BcastWaitEnd::Room);
        loop {
            let doubt = || self.doubt(None, ours);
            match self.0.wait(BoardEvent::Taken(count), taken, doubt).await? {
                BcastWaitEnd::Room | BcastWaitEnd::Entry(_) => return Ok(()),
                seen => self.answer(seen, ours).await?,
            }
        }
    }

    /// The next entry of this call; those of calls that this rank missed are passed over.
    async fn entry(&self, root: u32, ours: BoardNote) -> Result<Entry, Error> {
        loop {
            let entry = match self.words().next_entry() {
                Some(entry) => entry,
                None => match self.wait_for_entry(root, ours).await? {
                    BcastWaitEnd::Entry(entry) => entry,
                    seen => {
                        self.answer(seen, ours).await?;
                        continue;
                    }
                },
            };
            let theirs = BoardNote::of(entry.note);
            if ours.is_before(&theirs) {
                let rank = self.0.line.name_of(root);
                return Err(Error::Absent { rank });
            }
            if !theirs.is_before(&ours) {
                return Ok(entry);
            }
            self.0.seat.take_entry(&entry);
        }
    }

    async fn wait_for_entry(&self, root: u32, ours: BoardNote) -> Result<BcastWaitEnd, Error> {
        if self.0.line.comm().has_missed() {
            self.0.announce(false);
        }
        let told = || self.words().next_entry().map(BcastWaitEnd::Entry);
        let doubt = || self.doubt(Some(root), ours);
        let next = BoardEvent::Entry(self.words().next());
        self.0.wait(next, told, doubt).await
    }

    /// What others do that says that this rank waits in vain, or that they wait for it at the board.
    #[cold]
    fn doubt(&self, root: Option<u32>, ours: BoardNote) -> Option<BcastWaitEnd> {
        let (seat, line) = (self.0.seat, self.0.line);
        let announced = root.and_then(|root| Some((root, self.words().announced(root)?)));
        if let Some((root, (call, tells))) = announced {
            let ahead = call.wrapping_sub(line.number(u32::MAX));
            if (1..u32::MAX / 4).contains(&ahead) {
                return Some(BcastWaitEnd::Gone(root));
            }
            // It waits for all before it tells.
            if ahead == 0 && tells && seat.note(seat.begin_in_lines()?, root).is_some() {
                return Some(BcastWaitEnd::Behind);
            }
        }
        let round = seat.begin_in_lines()?;
        for rank in 0..line.size() {
            let Some(theirs) = seat.note(round, rank).map(BoardNote::of) else {
                continue;
            };
            if rank != line.rank() && theirs.is_before(&ours) {
                return Some(BcastWaitEnd::Behind);
            }
            if root.is_none_or(|root| root == rank) && ours.is_before(&theirs) {
                return Some(BcastWaitEnd::Gone(rank));
            }
            if root.is_none_or(|root| root == rank) && !ours.is_alike(&theirs) {
                return Some(BcastWaitEnd::Other);
            }
        }
        None
    }

    /// Does what is left to do where what this rank waits for did not happen.
    #[cold]
    async fn answer(&self, seen: BcastWaitEnd, ours: BoardNote) -> Result<(), Error> {
        match seen {
            BcastWaitEnd::Entry(_) | BcastWaitEnd::Room => Ok(()),
            BcastWaitEnd::Behind => {
                self.attend(ours);
                Ok(())
            }
            BcastWaitEnd::Gone(rank) => Err(Error::Absent {
                rank: self.0.line.name_of(rank),
            }),
            BcastWaitEnd::Other => Err(self.meet_in_dispute(ours).await),
        }
    }

    /// Arrives in the round that others are in, to be seen there.
    fn attend(&self, ours: BoardNote) {
        if let Some(round) = self.0.seat.begin_in_lines() {
            self.0.seat.arrive(round, ours.note());
        }
    }

    /// Others do something else in the same call: this rank arrives there too, so that all are told.
    #[cold]
    async fn meet_in_dispute(&self, ours: BoardNote) -> Error {
        let met = async {
            let turn = self.0.begin_as(ours, RoundSpace::Lines).await?;
            turn.arrive();
            turn.all().await
        };
        match met.await {
            Err(error) => error,
            Ok(_) => ours.dispute(None),
        }
    }

    /// Takes all entries of a call that is not like this one, and notes what is wrong.
    #[cold]
    async fn pass_over(&self, entry: &Entry, ours: BoardNote) -> Result<(), Error> {
        let theirs = BoardNote::of(entry.note);
        let root = self.0.line.name_of(entry.place);
        self.0.line.note(ours.dispute(Some((root, theirs))));
        self.0.seat.take_entry(entry);
        if is_on_board(&theirs) {
            // The root is in a round that this rank would miss.
            let turn = self.0.begin_as(ours, RoundSpace::Lines).await?;
            turn.arrive();
            return Ok(());
        }
        for _ in chunks(theirs.bytes as usize).skip(1) {
            let entry = self.entry(entry.place, ours).await?;
            self.0.seat.take_entry(&entry);
        }
        Ok(())
    }
}

/// Where in an entry that is a parcel of so many bytes the block of one of so many ranks lies.
#[inline]
pub(super) fn block_in(
    words: &Words,
    entry: &Entry,
    bytes: usize,
    ranks: u32,
    of: u32,
) -> Option<Range<usize>> {
    let read = |at: usize, into: &mut [u8]| {
        words.read(entry, bytes, at, into);
        at + into.len() <= bytes
    };
    parcels::block_of(read, ranks, of).filter(|block| block.end <= bytes)
}

/// The most bytes that go over a queue where usually `usual` at most do; none do where there are no boards.
#[inline]
pub(super) fn limit(shape: &CollectiveTuning, usual: usize, wish: BoardChoice) -> usize {
    match wish {
        BoardChoice::AsUsual if shape.boards => shape.board_bytes.min(usual),
        BoardChoice::Yes => shape.board_bytes,
        BoardChoice::AsUsual | BoardChoice::No => 0,
    }
}

/// What an entry tells whose blocks lie on the board: more bytes than anybody else tells.
pub(super) const ON_BOARD: usize = 1 << 20;

/// Whether an entry tells of blocks on the board.
pub(super) fn is_on_board(told: &BoardNote) -> bool {
    told.bytes as usize == ON_BOARD && (told.is(RoundKind::Scatter) || told.is(RoundKind::Scatterv))
}

/// What ended a wait at a broadcast queue.
enum BcastWaitEnd {
    Entry(Entry),
    Room,
    /// Others wait for this rank at the board, in an earlier call.
    Behind,
    /// This rank is at a later call, and what is waited for will not come.
    Gone(u32),
    /// Others do something else in this call.
    Other,
}

/// The parts of data that are one entry each: at least one, so that those who expect more hear of it.
pub(super) fn chunks(bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let count = bytes.div_ceil(CHUNK_BYTES).max(1);
    (0..count).map(move |at| at * CHUNK_BYTES..bytes.min((at + 1) * CHUNK_BYTES))
}
