// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root of a collective, as seen by a rank.

/// Where the root of a collective is (MPI 5.0 section 6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveRoot {
    /// This process.
    Here,
    /// The process with this rank; in an intercommunicator, with this rank in the remote group.
    There(u32),
    /// Another process in the local group of an intercommunicator: this process does not take part.
    Aside,
}
