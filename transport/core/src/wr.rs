// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work requests: how a posted operation is named and how it ended.

/// The caller's name for a posted read or write; comes back in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// How a read or write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes are where they should be.
    Done,
    /// This queue pair cannot do it (the peer's memory cannot be reached); nothing was promised about the local
    /// bytes. Use sends.
    Unreachable,
    /// The remote key names memory that the peer did not offer, or that is gone.
    BadKey,
}
