// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work requests: how a posted operation is named and how it ended.

/// The caller's name for a posted read, write or atomic operation; comes back in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// How a read, write or atomic operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// All bytes are where they should be.
    Done,
    /// This queue pair cannot do it (the peer's memory cannot be reached); nothing was promised about the local
    /// bytes. Use sends.
    Unreachable,
    /// The remote key names memory that the peer did not offer, or that is gone.
    BadKey,
    /// The way broke while it was under way, and it may not be done twice: it has happened or not. Only atomic operations end so.
    Unknown,
}

/// What is done to a word of a peer's memory in one step, of which nobody sees a part. The word is one of 64 bits in
/// the byte order of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds to it; the sum wraps.
    FetchAdd {
        /// What is added.
        add: u64,
    },
    /// Puts another value there, if it has the expected one.
    CompareSwap {
        /// What is expected.
        compare: u64,
        /// What it becomes then.
        swap: u64,
    },
}
