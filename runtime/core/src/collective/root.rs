// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root of a collective, as a rank sees it.

/// Where the root of a collective is (MPI 5.0 section 6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveRoot {
    /// This process.
    Here,
    /// The process with this rank: of the remote group, in an intercommunicator.
    There(u32),
    /// In this group of an intercommunicator, but not this process: it has no part.
    Aside,
}
