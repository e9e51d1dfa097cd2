// SPDX-License-Identifier: MIT OR Apache-2.0
//! *Parcels*: the data of one round at a [board](super::board), if their lengths differ and are not known to the other
//! ranks. A rank that takes part (a *member*) has a few cache lines of its own on the board, which begin with the
//! length of its parcel, so a reader never reads beyond the data. If the parcel fits, it follows the length; else it is
//! in the member's *place* in the half of the board that the round uses. If the parcel is too long for both, its data
//! come as messages, and the cache lines record that.
//!
//! A parcel for all ranks has a block for each rank, and before the blocks a *table* of the offsets at which they end.

use std::ops::Range;

use transport::Seat;
use transport::seat::{LINE_BODY_BYTES, Round};

use super::parts::RoundSpace;
use crate::{Payload, UserMemory};

/// The contributions of all ranks to a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parcels<'a> {
    seat: &'a Seat,
    round: Round,
    /// Number of bytes of each rank's place in the half.
    place: usize,
}

/// The size or form of a rank's contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// A parcel of this many bytes.
    Here(usize),
    /// The data come as messages.
    Messages,
    /// The data come in later rounds; the lengths of the blocks come in this round.
    Later,
}

impl Given {
    /// The form of a contribution of `bytes` bytes, if a rank has a place of `place` bytes.
    pub(super) fn of(bytes: usize, place: usize) -> Self {
        match bytes {
            LATER => Self::Later,
            _ if bytes <= place => Self::Here(bytes),
            _ => Self::Messages,
        }
    }

    /// The part of the board in which the bytes of the contribution are stored.
    pub(super) fn space(self) -> RoundSpace {
        match self {
            Self::Here(bytes) if bytes > IN_LINES_BYTES => RoundSpace::Half,
            Self::Later => RoundSpace::Half,
            _ => RoundSpace::Lines,
        }
    }
}

impl<'a> Parcels<'a> {
    pub(super) fn new(seat: &'a Seat, round: Round) -> Self {
        Self::with_places(seat, round, PLACE_BYTES)
    }

    /// The contributions to a round in which each rank has `place` bytes in the half. All ranks must pass the same
    /// number.
    pub(super) fn with_places(seat: &'a Seat, round: Round, place: usize) -> Self {
        Self { seat, round, place }
    }

    /// Puts the parcel of this rank, `rank`, on the board, before the rank arrives. If `parcel` is `None`, records that
    /// its data come as messages.
    pub(super) fn put(self, rank: u32, parcel: Option<&[u8]>) {
        let length = |bytes: usize| (bytes as u64).to_ne_bytes();
        let Some(parcel) = parcel else {
            return self.seat.put_in_lines(self.round, &length(usize::MAX));
        };
        if parcel.len() <= IN_LINES_BYTES {
            let mut call = [0; LINE_BODY_BYTES];
            let call = &mut call[..HEAD_BYTES + parcel.len()];
            call[..HEAD_BYTES].copy_from_slice(&length(parcel.len()));
            call[HEAD_BYTES..].copy_from_slice(parcel);
            return self.seat.put_in_lines(self.round, call);
        }
        self.seat.put_in_lines(self.round, &length(parcel.len()));
        let at = rank as usize * self.place;
        self.seat.put(self.round, self.all(), at, parcel);
    }

    /// Puts the lengths of this rank's blocks, which come in later rounds, on the board, before the rank arrives. The
    /// length of the longest block is the first.
    pub(super) fn put_lengths(self, rank: u32, lengths: &[u64]) {
        self.seat
            .put_in_lines(self.round, &(LATER as u64).to_ne_bytes());
        let longest = lengths.iter().max().copied().unwrap_or(0);
        let words = std::iter::once(longest).chain(lengths.iter().copied());
        let table: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        let at = rank as usize * self.place;
        self.seat.put(self.round, self.all(), at, &table);
    }

    /// The length of the longest block that rank `from` contributes in later rounds, and the length of its block for
    /// rank `of`.
    pub(super) fn lengths(self, from: u32, of: u32) -> [u64; 2] {
        [0, 1 + of as usize].map(|index| {
            let mut word = [0; 8];
            let at = from as usize * self.place + 8 * index;
            self.seat.read(self.round, self.all(), at, &mut word);
            u64::from_ne_bytes(word)
        })
    }

    /// Puts a part of a rank's data on the board, and the length of all its data, before the rank arrives. The part
    /// must fit the rank's place.
    pub(super) fn put_piece(self, rank: u32, data: &Payload, piece: Range<u64>) {
        self.seat
            .put_in_lines(self.round, &data.bytes().to_ne_bytes());
        self.put_in_place(rank, data, piece);
    }

    /// Copies a part of a rank's data, which [`put_piece`](Self::put_piece) has put on the board, to its destination.
    /// `false`: the length of all data of the rank is not that of the destination, and nothing was copied.
    pub(super) fn take_piece(self, rank: u32, place: &Payload, piece: Range<u64>) -> bool {
        let mut bytes = [0; HEAD_BYTES];
        self.seat.read_lines(self.round, rank, 0, &mut bytes);
        let is_expected = u64::from_ne_bytes(bytes) == place.bytes();
        if is_expected {
            self.take_from_place(rank, place, piece);
        }
        is_expected
    }

    /// Puts a part of some data into the place of a rank. The part must fit the place.
    pub(super) fn put_in_place(self, rank: u32, data: &Payload, part: Range<u64>) {
        self.put_at(rank, 0, data, part);
    }

    /// Puts a part of some data into the place of a rank, from byte `at` of the place on.
    pub(super) fn put_at(self, rank: u32, at: usize, data: &Payload, part: Range<u64>) {
        if !part.is_empty() {
            let at = rank as usize * self.place + at;
            data.with_part(part, |part| {
                self.seat.put(self.round, self.all(), at, part);
            });
        }
    }

    /// Copies the bytes at the start of a rank's place into a part of some data.
    pub(super) fn take_from_place(self, rank: u32, data: &Payload, part: Range<u64>) {
        self.take_at(rank, 0, data, part);
    }

    /// Copies the bytes from byte `at` of a rank's place on into a part of some data.
    pub(super) fn take_at(self, rank: u32, at: usize, data: &Payload, part: Range<u64>) {
        if !part.is_empty() {
            let at = rank as usize * self.place + at;
            data.fill_part(part, |part| {
                self.seat.read(self.round, self.all(), at, part);
            });
        }
    }

    /// Puts the parcel of this rank, `rank`, on the board, before the rank arrives. The parcel has `bytes` bytes, with
    /// a block for each rank.
    #[inline]
    pub(super) fn put_blocks(
        self,
        rank: u32,
        bytes: usize,
        blocks: impl Iterator<Item = UserMemory> + Clone,
    ) {
        let ranks = self.seat.members() as usize;
        if bytes <= IN_LINES_BYTES {
            let parcel = &mut [0; IN_LINES_BYTES][..bytes];
            fill(parcel, ranks, blocks);
            return self.put(rank, Some(parcel));
        }
        let head = (bytes as u64).to_ne_bytes();
        self.seat.put_in_lines(self.round, &head);
        let mut at = rank as usize * self.place;
        with_room(table_bytes(ranks), |table| {
            fill_table(table, blocks.clone().map(UserMemory::bytes));
            self.seat.put(self.round, self.all(), at, table);
        });
        at += table_bytes(ranks);
        for block in blocks {
            self.seat.put(self.round, self.all(), at, block.as_slice());
            at += block.bytes();
        }
    }

    /// The form of the contribution of a rank that has arrived.
    #[inline]
    pub(super) fn given(self, rank: u32) -> Given {
        let mut length = [0; HEAD_BYTES];
        self.seat.read_lines(self.round, rank, 0, &mut length);
        usize::try_from(u64::from_ne_bytes(length))
            .map_or(Given::Messages, |bytes| Given::of(bytes, self.place))
    }

    /// Reads a rank's parcel. `false`: the length of the parcel is not that of `into`, or its data come as messages.
    #[inline]
    pub(super) fn read(self, rank: u32, into: &mut [u8]) -> bool {
        let bytes = into.len();
        self.given(rank) == Given::Here(bytes) && self.read_part(rank, bytes, 0, into)
    }

    /// Reads a part of a parcel of `bytes` bytes, from byte `at` on. `false`: the parcel is shorter.
    #[inline]
    pub(super) fn read_part(self, rank: u32, bytes: usize, at: usize, into: &mut [u8]) -> bool {
        if at > bytes || into.len() > bytes - at {
            return false;
        }
        match bytes <= IN_LINES_BYTES {
            true => self
                .seat
                .read_lines(self.round, rank, HEAD_BYTES + at, into),
            false => {
                let at = rank as usize * self.place + at;
                self.seat.read(self.round, self.all(), at, into);
            }
        }
        true
    }

    /// Reads the block for rank `of` from the parcel of rank `from`, which has `bytes` bytes. `false`: the length of
    /// the block is not that of `into`.
    #[inline]
    pub(super) fn read_block(self, from: u32, bytes: usize, of: u32, into: &mut [u8]) -> bool {
        let block = self.block(from, bytes, of);
        let block = block.filter(|block| block.len() == into.len());
        block.is_some_and(|block| self.read_part(from, bytes, block.start, into))
    }

    /// The range of the block of rank `of` in the parcel of rank `from`, which has a table. `None`: the table is
    /// invalid.
    #[inline]
    pub(super) fn block(self, from: u32, bytes: usize, of: u32) -> Option<Range<usize>> {
        let read = |at: usize, into: &mut [u8]| self.read_part(from, bytes, at, into);
        block_of(read, self.seat.members(), of)
    }

    /// Number of bytes of the places of all ranks together.
    fn all(self) -> usize {
        self.place * self.seat.members() as usize
    }
}

/// Whether the half has room for a place of each member, and a table for all members fits a parcel.
pub(super) fn have_room(seat: &Seat) -> bool {
    let ranks = seat.members() as usize;
    ranks.saturating_mul(PLACE_BYTES) <= seat.room_bytes() && table_bytes(ranks) <= TABLED_BYTES
}

/// Bytes of the table for `blocks` blocks: a multiple of eight.
pub(super) fn table_bytes(blocks: usize) -> usize {
    (blocks * END_BYTES).next_multiple_of(8)
}

/// Fills a parcel with the table and then the blocks.
pub(super) fn fill(
    parcel: &mut [u8],
    ranks: usize,
    blocks: impl Iterator<Item = UserMemory> + Clone,
) {
    let (table, mut rest) = parcel.split_at_mut(table_bytes(ranks));
    fill_table(table, blocks.clone().map(UserMemory::bytes));
    for block in blocks {
        let (place, others) = rest.split_at_mut(block.bytes());
        place.copy_from_slice(block.as_slice());
        rest = others;
    }
}

#[inline]
fn fill_table(table: &mut [u8], blocks: impl Iterator<Item = usize>) {
    let mut end = 0;
    for (word, bytes) in table.chunks_exact_mut(END_BYTES).zip(blocks) {
        end += bytes;
        word.copy_from_slice(&u16::try_from(end).unwrap_or(u16::MAX).to_ne_bytes());
    }
}

/// Bytes of a parcel with blocks of these lengths, and their table.
pub(super) fn filled_bytes(ranks: usize, blocks: impl Iterator<Item = usize>) -> usize {
    blocks.fold(table_bytes(ranks), usize::saturating_add)
}

/// Runs `work` with a buffer of `bytes` bytes for a parcel.
#[inline]
pub(super) fn with_room<R>(bytes: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    match bytes <= IN_LINES_BYTES {
        true => work(&mut [0; IN_LINES_BYTES][..bytes]),
        false => work(&mut vec![0; bytes]),
    }
}

/// The range of block `of` in a parcel with a table for `blocks` blocks. `read` reads from the parcel.
#[inline]
pub(super) fn block_of(
    mut read: impl FnMut(usize, &mut [u8]) -> bool,
    blocks: u32,
    of: u32,
) -> Option<Range<usize>> {
    let mut ends = [0; 2 * END_BYTES];
    let at = of as usize * END_BYTES;
    let known = match of {
        0 => read(0, &mut ends[END_BYTES..]),
        _ => read(at - END_BYTES, &mut ends),
    };
    let [a, b, c, d] = ends;
    let base = table_bytes(blocks as usize);
    let [start, end] = [[a, b], [c, d]].map(|end| base + usize::from(u16::from_ne_bytes(end)));
    (known && start <= end).then_some(start..end)
}

/// Number of bytes of a rank's place, and so also the maximum of a parcel, unless a call uses another number.
pub(super) const PLACE_BYTES: usize = 64 << 10;
/// Maximum number of bytes of a parcel with a table.
pub(super) const TABLED_BYTES: usize = 48 << 10;
/// The length that marks a contribution whose blocks come later.
const LATER: usize = usize::MAX - 1;
/// Number of bytes of the length at the start of a member's cache lines.
const HEAD_BYTES: usize = 8;
/// Maximum number of bytes of a parcel that fits the member's cache lines after the length.
pub(super) const IN_LINES_BYTES: usize = LINE_BODY_BYTES - HEAD_BYTES;
/// Bytes of an entry of a table.
const END_BYTES: usize = size_of::<u16>();

const _: () = assert!(
    TABLED_BYTES <= u16::MAX as usize,
    "the entries of a table have 16 bits"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_a_parcel_locates_its_blocks() {
        for lengths in [&[3, 0, 7, 1][..], &[0], &[0, 0, 0], &[100; 60]] {
            let blocks: Vec<Vec<u8>> = (1..).zip(lengths).map(|(n, l)| vec![n; *l]).collect();
            let bytes = filled_bytes(lengths.len(), lengths.iter().copied());
            let all = with_room(bytes, |parcel| {
                let blocks = blocks.iter().map(|block| UserMemory::of_const(block));
                fill(parcel, lengths.len(), blocks);
                parcel.to_vec()
            });
            let read = |at: usize, into: &mut [u8]| {
                let part = all.get(at..at + into.len());
                part.inspect(|part| into.copy_from_slice(part)).is_some()
            };
            let ranks = u32::try_from(lengths.len()).unwrap();
            for (of, block) in (0..).zip(&blocks) {
                let place = block_of(read, ranks, of).unwrap();
                assert_eq!(&all[place], block);
            }
            assert_eq!(block_of(|_, _| false, 3, 1), None);
        }
    }

    #[test]
    fn a_garbled_parcel_table_yields_no_block() {
        let read = |_, into: &mut [u8]| {
            let ends = [9u16, 4].map(u16::to_ne_bytes);
            into.copy_from_slice(ends.as_flattened());
            true
        };
        assert_eq!(block_of(read, 4, 2), None);
    }
}
