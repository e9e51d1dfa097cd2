// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes on a [board](super::board), by which mismatched calls are detected. A note has 32 bits: the collective that a
//! rank calls, its number of bytes and the number of the call.

use transport::seat::RoundNote;

use super::CollectiveCall;
use crate::{Error, Visit};

/// A rank's record beside its data on the board: the kind of round, the size, and the number of the call.
#[derive(Clone, Copy)]
pub(super) struct BoardNote {
    kind: u8,
    /// The number of bytes of the call, if it is at most [`MAX_BYTES`]; else a hash of that number, greater than
    /// [`MAX_BYTES`].
    pub(super) bytes: u32,
    /// The number of the call, below [`CALLS`].
    call: u32,
}

impl BoardNote {
    /// The note of `call` with `bytes` bytes.
    pub(super) fn new<V: Visit>(call: &CollectiveCall<V>, kind: RoundKind, bytes: usize) -> Self {
        Self::of_call(call.number(CALLS - 1), kind, bytes)
    }

    /// The note of the call number `number`.
    #[inline]
    pub(super) fn of_call(number: u32, kind: RoundKind, bytes: usize) -> Self {
        Self {
            kind: kind as u8,
            bytes: match u32::try_from(bytes) {
                Ok(bytes @ ..=MAX_BYTES) => bytes,
                _ => MAX_BYTES + 1 + scattered(bytes) % (MAX_BYTES - 1),
            },
            call: number % CALLS,
        }
    }

    /// This note with the length of another note.
    pub(super) fn as_long_as(self, other: &Self) -> Self {
        Self {
            bytes: other.bytes,
            ..self
        }
    }

    /// The error of a call whose notes differ. `theirs`: a rank with a different note, and that note; `None`: such a
    /// rank is not known.
    #[cold]
    pub(super) fn mismatch(self, theirs: Option<(u32, Self)>) -> Error {
        match theirs {
            Some((rank, theirs)) if self.is_before(&theirs) => Error::Absent { rank },
            Some((_, theirs))
                if theirs.kind == self.kind
                    && theirs.bytes != self.bytes
                    && theirs.bytes.min(self.bytes) <= MAX_BYTES =>
            {
                Error::Unequal {
                    given: theirs.at_least().into(),
                    expected: self.at_least().into(),
                }
            }
            theirs => Error::Disputed {
                ours: RoundKind::name(self.kind),
                our_bytes: self.at_least().into(),
                theirs: theirs.map(|(rank, theirs)| {
                    (rank, RoundKind::name(theirs.kind), theirs.at_least().into())
                }),
            },
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "four bits")]
    pub(super) fn encode(&self) -> RoundNote {
        RoundNote {
            kind: self.kind | (self.call << KIND_BITS) as u8,
            bytes: self.bytes | (self.call >> (8 - KIND_BITS)) << BYTES_BITS,
        }
    }

    pub(super) fn of(note: RoundNote) -> Self {
        let low = u32::from(note.kind >> KIND_BITS);
        Self {
            kind: note.kind & ((1 << KIND_BITS) - 1),
            bytes: note.bytes & ((1 << BYTES_BITS) - 1),
            call: low | (note.bytes >> BYTES_BITS) << (8 - KIND_BITS),
        }
    }

    /// The number of bytes; at most `MAX_BYTES`, the largest number that a note holds exactly.
    fn at_least(&self) -> u32 {
        self.bytes.min(MAX_BYTES)
    }

    /// Whether this is a note of a round of `kind`.
    pub(super) fn is(&self, kind: RoundKind) -> bool {
        self.kind == kind as u8
    }

    /// Whether both notes have the same kind and call number. Their numbers of bytes may differ.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.kind == other.kind && self.call == other.call
    }

    /// Whether this note is of an earlier call than `other`. Call numbers wrap around: a number is later if it is ahead
    /// by less than half the range.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        (1..CALLS / 2).contains(&(other.call.wrapping_sub(self.call) % CALLS))
    }
}

/// Bits for the kind in a note.
const KIND_BITS: u32 = 4;
/// Bits for the number of bytes.
const BYTES_BITS: u32 = 21;
/// Largest number of bytes that a note stores exactly: the largest value of
/// [`Variable::BoardLimit`](crate::var::Variable).
const MAX_BYTES: u32 = 1 << (BYTES_BITS - 1);
/// Number of different call numbers in a note. A call number has the bits that the kind leaves free in 8 bits, and
/// those that the bytes leave free in 24 bits.
const CALLS: u32 = 1 << (8 - KIND_BITS + 24 - BYTES_BITS);

/// A hash of a number of bytes.
#[allow(clippy::cast_possible_truncation, reason = "the upper half")]
fn scattered(bytes: usize) -> u32 {
    ((bytes as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The operation of a round.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum RoundKind {
    Barrier = 1,
    Bcast,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Allgather,
    Alltoall,
    Scatter,
    Gather,
    Gatherv,
    Scatterv,
    Allgatherv,
    Alltoallv,
    /// A gather in several rounds. It has a kind of its own because no rank sends a message in it.
    GatherPieces,
}

/// Whether all kinds fit their bits.
const _: () = assert!((RoundKind::GatherPieces as u32) < 1 << KIND_BITS);

impl RoundKind {
    /// The name of a collective for error messages. `kind`: the number from a note; another process may have written
    /// any number.
    pub(super) fn name(kind: u8) -> &'static str {
        let names = [
            "a barrier",
            "a broadcast",
            "a reduction",
            "an allreduce",
            "a reduce-scatter",
            "a scan",
            "an allgather",
            "an all-to-all",
            "a scatter",
            "a gather",
            "a gatherv",
            "a scatterv",
            "an allgatherv",
            "an alltoallv",
            "a gather",
        ];
        let at = usize::from(kind).checked_sub(1);
        at.and_then(|at| names.get(at)).unwrap_or(&"nothing known")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_note_decodes_to_what_was_encoded() {
        for call in 0..CALLS {
            let (kind, bytes) = (RoundKind::Alltoall as u8, 1 << 20);
            let note = BoardNote { kind, bytes, call }.encode();
            assert!(note.bytes < 1 << 24);
            let theirs = BoardNote::of(note);
            assert_eq!(
                (theirs.kind, theirs.bytes, theirs.call),
                (kind, bytes, call)
            );
        }
    }

    #[test]
    fn call_numbers_compare_across_wraparound() {
        let at = |call| BoardNote {
            kind: 1,
            bytes: 0,
            call,
        };
        assert!(at(0).is_before(&at(1)) && !at(1).is_before(&at(0)));
        assert!(at(CALLS - 1).is_before(&at(2)) && !at(2).is_before(&at(CALLS - 1)));
        assert!(!at(5).is_before(&at(5)));
    }
}
