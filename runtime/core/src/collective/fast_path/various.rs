// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of collectives with blocks of different lengths. [`super::super::various`] completes calls that do not
//! end here. If a rank finds anything unexpected, it also leaves the call to that module, which reads the same data
//! again and reports the error.

use transport::seat::Round;

use super::super::bcast_queue::{block_in, is_on_board};
use super::super::blocks::gather_choice;
use super::super::board::BoardChoice;
use super::super::board_note::{BoardNote, RoundKind};
use super::super::parcels::{self, Given, PLACE_BYTES, Parcels, fill, filled_bytes, with_room};
use super::super::various::{
    allgather_choice, allgatherv_most, alltoall_most, gatherv_most, gatherv_place, scatter_limit,
};
use super::FastCall;
use crate::UserMemory;

impl FastCall<'_> {
    /// As [`gather_various`](super::super::gather_various), at a rank that is not the root.
    #[must_use]
    pub fn gatherv(&self, mine: UserMemory) -> Option<()> {
        self.goes_in_parcels(gather_choice(self.shape))?;
        if mine.bytes() > gatherv_most(self.shape) {
            return None;
        }
        self.arrive_with_parcel(RoundKind::Gatherv, mine.as_slice())?;
        self.end()
    }

    /// The root's part of a gather: copies the block of each rank to the address that `place` returns. If `mine` is
    /// `None`, the root's own block is already in place.
    #[must_use]
    pub fn gatherv_here(
        &self,
        mine: Option<UserMemory>,
        place: impl Fn(u32) -> UserMemory,
    ) -> Option<()> {
        self.goes_in_parcels(gather_choice(self.shape))?;
        let round = self.arrive_with_parcel(RoundKind::Gatherv, &[])?;
        self.wait_for_all(round)?;
        let parcels =
            Parcels::with_places(self.seat, round, gatherv_place(self.shape, self.size()));
        let others = (0..self.size()).filter(|from| *from != self.rank());
        self.all_of(round, others, |from| {
            parcels.read(from, place(from).as_mut_slice())
        })?;
        if let Some(mine) = mine {
            place(self.rank()).copy_from(mine);
        }
        self.end()
    }

    /// As [`scatter_various`](super::super::scatter_various), at a rank that is not the `root`.
    #[must_use]
    pub fn scatterv(&self, mut mine: UserMemory, root: u32) -> Option<()> {
        if scatter_limit(self.shape) == 0 {
            return None;
        }
        let queue = self.seat.bcast_queue();
        let entry = self.entry()?;
        let theirs = BoardNote::of(entry.note);
        if entry.place != root || !theirs.is_alike(&self.note(RoundKind::Scatterv, 0)) {
            return None;
        }
        let bytes = theirs.bytes as usize;
        if is_on_board(&theirs) {
            return None;
        }
        let block = block_in(queue, &entry, bytes, self.size(), self.rank())?;
        if bytes == 0 || block.len() != mine.bytes() {
            return None;
        }
        queue.read(&entry, bytes, block.start, mine.as_mut_slice());
        self.seat.take_entry(&entry);
        self.end()
    }

    /// The root's part of a scatter. If `mine` is `None`, the root's own block stays where it is.
    #[must_use]
    pub fn scatterv_here(
        &self,
        block: impl Fn(u32) -> UserMemory,
        mine: Option<UserMemory>,
    ) -> Option<()> {
        let ranks = self.size() as usize;
        let blocks = || (0..self.size()).map(&block);
        let bytes = filled_bytes(ranks, blocks().map(UserMemory::bytes));
        if bytes > scatter_limit(self.shape) {
            return None;
        }
        with_room(bytes, |parcel| {
            fill(parcel, ranks, blocks());
            self.send(RoundKind::Scatterv, parcel)
        })?;
        if let Some(mine) = mine {
            mine.copy_from(block(self.rank()));
        }
        self.end()
    }

    /// As [`allgather_various`](super::super::allgather_various).
    #[must_use]
    pub fn allgatherv(
        &self,
        mine: Option<UserMemory>,
        place: impl Fn(u32) -> UserMemory,
    ) -> Option<()> {
        self.goes_in_parcels(allgather_choice(self.shape))?;
        let most = allgatherv_most(self.shape, self.size());
        let is_few = |from| place(from).bytes() <= most;
        if !(0..self.size()).all(is_few) {
            return None;
        }
        let own = mine.unwrap_or_else(|| place(self.rank()));
        let round = self.arrive_with_parcel(RoundKind::Allgatherv, own.as_slice())?;
        self.wait_for_all(round)?;
        let parcels = Parcels::new(self.seat, round);
        let wanted = (0..self.size()).filter(|from| mine.is_some() || *from != self.rank());
        self.all_of(round, wanted, |from| {
            parcels.read(from, place(from).as_mut_slice())
        })?;
        self.end()
    }

    /// As [`alltoall_various`](super::super::alltoall_various).
    #[must_use]
    pub fn alltoallv(
        &self,
        block: impl Fn(u32) -> UserMemory,
        place: impl Fn(u32) -> UserMemory,
    ) -> Option<()> {
        self.goes_in_parcels(self.shape.choice.alltoall.board())?;
        let (rank, ranks) = (self.rank(), self.size() as usize);
        let blocks = || (0..self.size()).map(&block);
        let bytes = filled_bytes(ranks, blocks().map(UserMemory::bytes));
        if bytes > alltoall_most(self.shape) {
            return None;
        }
        let round = self.arrive_with(
            RoundKind::Alltoallv,
            Given::of(bytes, PLACE_BYTES),
            |parcels| {
                parcels.put_blocks(rank, bytes, blocks());
            },
        )?;
        self.wait_for_all(round)?;
        let parcels = Parcels::new(self.seat, round);
        self.all_of(round, 0..self.size(), |from| match parcels.given(from) {
            Given::Here(bytes) => parcels.read_block(from, bytes, rank, place(from).as_mut_slice()),
            Given::Messages | Given::Later => false,
        })?;
        self.end()
    }

    fn goes_in_parcels(&self, board_choice: BoardChoice) -> Option<()> {
        self.applies(0, board_choice)?;
        parcels::have_room(self.seat).then_some(())
    }

    fn arrive_with_parcel(&self, kind: RoundKind, parcel: &[u8]) -> Option<Round> {
        self.arrive_with(kind, Given::of(parcel.len(), PLACE_BYTES), |parcels| {
            parcels.put(self.rank(), Some(parcel));
        })
    }

    /// Arrives with the parcel that `put` writes. `None`: the data do not go as a parcel, or the board has no room yet.
    #[inline]
    fn arrive_with(
        &self,
        kind: RoundKind,
        given: Given,
        put: impl FnOnce(Parcels<'_>),
    ) -> Option<Round> {
        if !matches!(given, Given::Here(_)) {
            return None;
        }
        let round = given.space().begin(self.seat)?;
        put(Parcels::new(self.seat, round));
        self.seat.arrive(round, self.note(kind, 0).encode());
        Some(round)
    }

    /// Reads the contributions of `ranks` to a round. `None`: a contribution is not as expected, so the general path
    /// must continue.
    #[inline]
    fn all_of(
        &self,
        round: Round,
        mut ranks: impl Iterator<Item = u32>,
        read: impl FnMut(u32) -> bool,
    ) -> Option<()> {
        if ranks.all(read) {
            return Some(());
        }
        self.comm.begin_on_fast_path(self.number, round);
        None
    }
}
