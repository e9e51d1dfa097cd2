// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process under both of its numbers: the engine's and the transport's.

use engine::Peer;

/// The process as the transport numbers it: both use world ranks.
#[inline(always)]
pub(crate) fn carrier(peer: Peer) -> transport::Peer {
    transport::Peer(peer.0)
}
