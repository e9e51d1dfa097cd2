// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcast within a node without messages, over the [broadcast queue](transport::bcast_queue) of the ranks'
//! [board](super::board). The root writes its bytes once, entry by entry, and returns; each other rank copies what it
//! needs when it reaches the call. So a root that calls repeatedly may run ahead of the other ranks, and in a usual
//! call no rank waits for all ranks. Ranks that read large data at the same time find them in the cache.
//!
//! Like the board, the queue is used only by blocking collectives. An entry has the number of its call, so a rank can
//! skip entries of calls that it missed because its arguments were wrong. While a rank waits at the queue, it also
//! checks what other ranks do at the board, where they may wait for it. If other ranks are in an earlier call there, or
//! the root calls another collective, the rank arrives at the board too, and all of them detect the mismatch. A rank
//! that missed a call announces the number of its present call: if that is a later call, ranks that wait for an entry
//! of this rank learn that the entry will not come. If a rank that missed a call is the root of its present call, it
//! first meets all other ranks in a round, because until then the root of an earlier call might still write entries.

use std::ops::Range;

use transport::Seat;
use transport::bcast_queue::{BcastEntryHead, BcastQueueMember, CHUNK_BYTES};
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
    /// The call over the queue of its ranks; `None`: the call must not use a queue, or its ranks have none.
    #[inline]
    pub(super) fn of(call: &'a CollectiveCall<V>) -> Option<Self> {
        let seat = call.seat()?;
        Some(Self(BoardCall { call, seat }))
    }

    /// Sends this rank's bytes to all ranks. Waits for room in the queue, not for the readers.
    pub(super) async fn send(&self, kind: RoundKind, bytes: &[u8]) -> Result<(), Error> {
        let note = BoardNote::new(self.0.call, kind, bytes.len());
        self.begin_to_send(note).await?;
        self.send_as(note, note, bytes).await
    }

    /// Sends a [parcel](super::parcels): a table of offsets, followed by a block for each rank. The readers get the
    /// length of the parcel from the note of its entry.
    pub(super) async fn send_parcel(&self, kind: RoundKind, bytes: &[u8]) -> Result<(), Error> {
        let note = BoardNote::new(self.0.call, kind, bytes.len());
        let expected = BoardNote::new(self.0.call, kind, 0);
        self.begin_to_send(expected).await?;
        self.send_as(note, expected, bytes).await
    }

    /// In the next round, puts each block into the place of its reader in the half of the board that the round uses. An
    /// entry of the queue announces that the blocks are on the board, and contains their lengths.
    pub(super) async fn announce_on_board(
        &self,
        kind: RoundKind,
        all: &[Payload],
    ) -> Result<(), Error> {
        let expected = BoardNote::new(self.0.call, kind, 0);
        self.begin_to_send(expected).await?;
        let lengths = all.iter().map(Payload::bytes);
        let lengths = lengths.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let table: Vec<u8> = lengths.flat_map(u32::to_ne_bytes).collect();
        // This rank must wait for room in the queue before it arrives in the round: after it has arrived, it would not
        // detect ranks that wait for it in that round.
        if !self.queue().has_room(table.len()) {
            self.wait_for_room(expected, table.len()).await?;
        }
        let turn = self.0.begin_as(expected, RoundSpace::Half).await?;
        let place = Seat::place_bytes(self.0.call.size());
        for (rank, block) in (0..).zip(all) {
            turn.parcels_in(place)
                .put_in_place(rank, block, 0..block.bytes());
        }
        turn.arrive();
        let note = BoardNote::new(self.0.call, kind, ON_BOARD);
        self.send_as(note, expected, &table).await
    }

    /// To be called by the root before its first entry. If it has missed a call, waits for all other ranks in a round,
    /// because they may be in an earlier call. Drops entries of calls that it missed. `expected`: the note of the call.
    async fn begin_to_send(&self, expected: BoardNote) -> Result<(), Error> {
        if self.0.call.comm().has_missed() {
            self.wait_for_all_in_lines(expected).await?;
        }
        // Entries that are still in the queue are of calls that this rank missed.
        while let Some(earlier) = self.queue().next_entry() {
            self.0.seat.take_entry(&earlier);
        }
        Ok(())
    }

    async fn send_as(
        &self,
        note: BoardNote,
        expected: BoardNote,
        bytes: &[u8],
    ) -> Result<(), Error> {
        for chunk in chunks(bytes.len()) {
            if !self.queue().has_room(chunk.len()) {
                self.wait_for_room(expected, chunk.len()).await?;
            }
            self.queue().publish(note.encode(), &bytes[chunk]);
        }
        self.0.seat.wake_readers();
        Ok(())
    }

    /// Receives the part of the root's bytes that this rank needs: `into.len()` bytes from `at` on, out of `total`.
    pub(super) async fn receive(
        &self,
        kind: RoundKind,
        root: u32,
        total: usize,
        at: usize,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let note = BoardNote::new(self.0.call, kind, total);
        let wanted = at..at + into.len();
        let call = self.0.call;
        let received = call.comm().take_read_entries(call.number(u32::MAX));
        for chunk in chunks(total).skip(received) {
            let entry = self.entry(root, note).await?;
            if entry.place != root || entry.note != note.encode() {
                return self.pass_over(&entry, note).await;
            }
            let part = chunk.start.max(wanted.start)..chunk.end.min(wanted.end);
            if part.start < part.end {
                let place = part.start - wanted.start..part.end - wanted.start;
                let at = part.start - chunk.start;
                self.queue().read(&entry, chunk.len(), at, &mut into[place]);
            }
            self.0.seat.take_entry(&entry);
        }
        Ok(())
    }

    /// Receives this rank's block of the root's [parcel](super::parcels), whose length is known only to the root.
    /// `false`: the block comes as a message.
    pub(super) async fn receive_block(
        &self,
        kind: RoundKind,
        root: u32,
        into: &Payload,
    ) -> Result<bool, Error> {
        let (call, ours) = (self.0.call, BoardNote::new(self.0.call, kind, 0));
        let entry = self.entry(root, ours).await?;
        let theirs = BoardNote::of(entry.note);
        if entry.place != root || !theirs.is_alike(&ours) {
            // This rank does not have the length, so a different length is not an error.
            let ours = ours.as_long_as(&theirs);
            return self.pass_over(&entry, ours).await.map(|()| true);
        }
        let bytes = theirs.bytes as usize;
        if is_on_board(&theirs) {
            let mut length = [0; 4];
            let (table, at) = (4 * call.size() as usize, 4 * call.rank() as usize);
            self.queue().read(&entry, table, at, &mut length);
            self.0.seat.take_entry(&entry);
            let length = u32::from_ne_bytes(length) as usize;
            return self.take_from_board(ours, root, length, into).await;
        }
        if bytes > 0 {
            match block_in(self.queue(), &entry, bytes, call.size(), call.rank()) {
                Some(block) => read_into(into, block.len(), |part| {
                    self.queue().read(&entry, bytes, block.start, part);
                }),
                None => Err(unequal(0, into)),
            }
            .unwrap_or_else(|error| call.note(error));
        }
        self.0.seat.take_entry(&entry);
        Ok(bytes > 0)
    }

    /// Reads this rank's block of `length` bytes, which the root has put on the board in a round of this call. Arrives
    /// in that round, if this rank has not done so yet.
    async fn take_from_board(
        &self,
        ours: BoardNote,
        root: u32,
        length: usize,
        into: &Payload,
    ) -> Result<bool, Error> {
        let seat = self.0.seat;
        let [last, next] = [seat.last(), seat.upcoming()].map(|round| self.0.turn(round, ours));
        // This rank may have arrived in that round already, if it saw the root's note in the round before it saw the
        // entry.
        let was_there = last.is_alike(root) && last.is_alike(self.0.call.rank());
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
                let (rank, place) = (self.0.call.rank(), Seat::place_bytes(self.0.call.size()));
                match length as u64 == into.bytes() {
                    true => turn
                        .parcels_in(place)
                        .take_from_place(rank, into, 0..into.bytes()),
                    false => self.0.call.note(unequal(length, into)),
                }
                return Ok(true);
            }
            // The root does not use this round for this call. If it uses the round for an earlier call, which this rank
            // missed, the next round follows; otherwise it has continued after an error.
            if !turn.is_later_than(root) {
                return Err(ours.mismatch(None));
            }
        }
    }

    fn queue(&self) -> &BcastQueueMember {
        self.0.seat.bcast_queue()
    }

    /// Waits in a round until all ranks are in this call. From then on, no rank writes entries of an earlier call.
    #[cold]
    async fn wait_for_all_in_lines(&self, note: BoardNote) -> Result<(), Error> {
        self.0.announce(true);
        loop {
            let turn = self.0.begin_as(note, RoundSpace::Lines).await?;
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
        let count = self.queue().room_target(length);
        let taken = || self.queue().have_taken(count).then_some(BcastWaitEnd::Room);
        loop {
            let doubt = || self.doubt(None, ours);
            match self.0.wait(BoardEvent::Taken(count), taken, doubt).await? {
                BcastWaitEnd::Room | BcastWaitEnd::Entry(_) => return Ok(()),
                seen => self.answer(seen, ours).await?,
            }
        }
    }

    /// Waits for the next entry of this call. Skips entries of calls that this rank missed.
    async fn entry(&self, root: u32, ours: BoardNote) -> Result<BcastEntryHead, Error> {
        loop {
            let entry = match self.queue().next_entry() {
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
                let rank = self.0.call.name_of(root);
                return Err(Error::Absent { rank });
            }
            if !theirs.is_before(&ours) {
                return Ok(entry);
            }
            self.0.seat.take_entry(&entry);
        }
    }

    async fn wait_for_entry(&self, root: u32, ours: BoardNote) -> Result<BcastWaitEnd, Error> {
        if self.0.call.comm().has_missed() {
            self.0.announce(false);
        }
        let next_entry = || self.queue().next_entry().map(BcastWaitEnd::Entry);
        let doubt = || self.doubt(Some(root), ours);
        let next = BoardEvent::Entry(self.queue().next());
        self.0.wait(next, next_entry, doubt).await
    }

    /// Checks the notes and announcements of other ranks. `Some`: they show that the awaited entry will not come, or
    /// that other ranks wait for this rank at the board. `root`: the rank whose entry is awaited; `None`: this rank
    /// waits for room in the queue.
    #[cold]
    fn doubt(&self, root: Option<u32>, ours: BoardNote) -> Option<BcastWaitEnd> {
        let (seat, call) = (self.0.seat, self.0.call);
        let announced = root.and_then(|root| Some((root, self.queue().announced(root)?)));
        if let Some((root, (number, sends))) = announced {
            let ahead = number.wrapping_sub(call.number(u32::MAX));
            if (1..u32::MAX / 4).contains(&ahead) {
                return Some(BcastWaitEnd::Later(root));
            }
            // A root that missed a call waits for all ranks before its first entry.
            if ahead == 0 && sends && seat.note(seat.begin_in_lines()?, root).is_some() {
                return Some(BcastWaitEnd::Behind);
            }
        }
        let round = seat.begin_in_lines()?;
        for rank in 0..call.size() {
            let Some(theirs) = seat.note(round, rank).map(BoardNote::of) else {
                continue;
            };
            if rank != call.rank() && theirs.is_before(&ours) {
                return Some(BcastWaitEnd::Behind);
            }
            if root.is_none_or(|root| root == rank) && ours.is_before(&theirs) {
                return Some(BcastWaitEnd::Later(rank));
            }
            if root.is_none_or(|root| root == rank) && !ours.is_alike(&theirs) {
                return Some(BcastWaitEnd::Other);
            }
        }
        None
    }

    /// Handles the end of a wait. If other ranks wait for this rank at the board, arrives in their round and returns
    /// `Ok`; the caller then waits again. If the awaited entry will not come, returns an error.
    #[cold]
    async fn answer(&self, seen: BcastWaitEnd, ours: BoardNote) -> Result<(), Error> {
        match seen {
            BcastWaitEnd::Entry(_) | BcastWaitEnd::Room => Ok(()),
            BcastWaitEnd::Behind => {
                self.join_round(ours);
                Ok(())
            }
            BcastWaitEnd::Later(rank) => Err(Error::Absent {
                rank: self.0.call.name_of(rank),
            }),
            BcastWaitEnd::Other => Err(self.arrive_in_mismatch(ours).await),
        }
    }

    /// Arrives in the round that other ranks are in, so that they see the note of this rank.
    fn join_round(&self, ours: BoardNote) {
        if let Some(round) = self.0.seat.begin_in_lines() {
            self.0.seat.arrive(round, ours.encode());
        }
    }

    /// To be called if other ranks call a different collective under the same call number. Arrives in their round too,
    /// so that all ranks detect the mismatch. Returns the error.
    #[cold]
    async fn arrive_in_mismatch(&self, ours: BoardNote) -> Error {
        let arrival = async {
            let turn = self.0.begin_as(ours, RoundSpace::Lines).await?;
            turn.arrive();
            turn.all().await
        };
        match arrival.await {
            Err(error) => error,
            Ok(_) => ours.mismatch(None),
        }
    }

    /// Records the error that the root of `entry` makes a different call. Takes all entries of that call; if its blocks
    /// are on the board, arrives in the root's round.
    #[cold]
    async fn pass_over(&self, entry: &BcastEntryHead, ours: BoardNote) -> Result<(), Error> {
        let theirs = BoardNote::of(entry.note);
        let root = self.0.call.name_of(entry.place);
        self.0.call.note(ours.mismatch(Some((root, theirs))));
        self.0.seat.take_entry(entry);
        if is_on_board(&theirs) {
            // The root has begun a round, which ends only when this rank has arrived too.
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

/// The range of the block of one rank within an entry that is a parcel.
#[inline]
pub(super) fn block_in(
    queue: &BcastQueueMember,
    entry: &BcastEntryHead,
    bytes: usize,
    ranks: u32,
    of: u32,
) -> Option<Range<usize>> {
    let read = |at: usize, into: &mut [u8]| {
        queue.read(entry, bytes, at, into);
        at + into.len() <= bytes
    };
    parcels::block_of(read, ranks, of).filter(|block| block.end <= bytes)
}

/// Maximum number of bytes that go over a queue; 0: no data do. By default, it is `usual` or the board limit, whichever
/// is less; if the setting selects the board, it is the board limit.
#[inline]
pub(super) fn limit(shape: &CollectiveTuning, usual: usize, board_choice: BoardChoice) -> usize {
    match board_choice {
        BoardChoice::AsUsual if shape.boards => shape.board_bytes.min(usual),
        BoardChoice::Yes => shape.board_bytes,
        BoardChoice::AsUsual | BoardChoice::No => 0,
    }
}

/// The byte count in the note of an entry whose blocks are on the board. No other entry of a scatter has so many bytes.
pub(super) const ON_BOARD: usize = 1 << 20;

/// Whether an entry announces blocks on the board.
pub(super) fn is_on_board(note: &BoardNote) -> bool {
    note.bytes as usize == ON_BOARD && (note.is(RoundKind::Scatter) || note.is(RoundKind::Scatterv))
}

/// The event that has ended a wait at a broadcast queue.
enum BcastWaitEnd {
    Entry(BcastEntryHead),
    Room,
    /// Other ranks wait for this rank at the board.
    Behind,
    /// The rank with this number is in a later call, and the awaited entry will not come.
    Later(u32),
    /// Other ranks call a different collective under the number of this call.
    Other,
}

/// Ranges of the data, one for each queue entry. There is at least one range, even for no data: ranks that expect more
/// data then detect the mismatch.
pub(super) fn chunks(bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let count = bytes.div_ceil(CHUNK_BYTES).max(1);
    (0..count).map(move |at| at * CHUNK_BYTES..bytes.min((at + 1) * CHUNK_BYTES))
}
