// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work requests: their ids and outcomes.

/// The caller's id of a posted read, write or atomic operation; returned in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// Outcome of a read, write or atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// All bytes have been moved.
    Done,
    /// The operation is impossible over this connection, for example because the peer's memory cannot be reached or the
    /// peer is lost; the local bytes are unspecified. Use sends instead.
    Unreachable,
    /// The remote key names memory that the peer did not offer, or that is no longer offered.
    BadKey,
    /// The connection broke during the operation, which must not be repeated: it may or may not have been carried out.
    /// Only atomic operations end so.
    Unknown,
}

/// An operation on a word of a peer's memory, in one indivisible step. The word has 64 bits in the byte order of the
/// machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds to the word; the sum wraps.
    FetchAdd {
        /// The addend.
        add: u64,
    },
    /// Stores another value, if the word has the expected one.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
}
