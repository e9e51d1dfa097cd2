// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root of a collective, as seen by a rank.

/// Location of the root of a collective (MPI 5.0 section 6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveRoot {
    /// This process.
    Here,
    /// The process with this rank: of the remote group, in an intercommunicator.
    There(u32),
    /// Another process in this group of an intercommunicator: this one does not take part.
    Aside,
}
