// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of the engine's number of a process to the transport's.

use engine::Peer;

/// The transport's number of a process: both use world ranks.
#[inline(always)]
pub(crate) fn carrier(peer: Peer) -> transport::Peer {
    transport::Peer(peer.0)
}
