// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of the engine's peer numbers to those of the transport.

use engine::Peer;

/// The transport's number of a process. Engine and transport both number the processes by world rank.
#[inline(always)]
pub(crate) fn carrier(peer: Peer) -> transport::Peer {
    transport::Peer(peer.0)
}
