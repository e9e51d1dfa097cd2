// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions for connections that are used beside another network.

use std::sync::Arc;

use super::super::counters::NetCounts;
use super::Tcp;
use super::sockets::Sockets;
use crate::{Peer, RemoteKey};

impl<S: Sockets> Tcp<S> {
    /// Shares the counters of another network. Call it before anything is counted.
    pub(in crate::provider) fn count_in(&mut self, counts: &Arc<NetCounts>) {
        self.links.counts = Arc::clone(counts);
    }

    /// Whether there are neither connections nor attempts in either direction: nothing arrives over TCP before one is
    /// made.
    #[inline(always)]
    pub(in crate::provider) fn is_alone(&self) -> bool {
        self.links.is_alone()
    }

    /// Whether nothing has arrived for long, all received bytes are processed, and all completions are delivered.
    #[inline]
    pub(in crate::provider) fn is_idle(&self) -> bool {
        self.idle >= super::IDLE && self.backlog.is_empty() && self.moves.ready.is_empty()
    }

    /// Accepts a key to memory that the other network has made.
    pub(in crate::provider) fn accept_key(&mut self, peer: Peer, key: RemoteKey) {
        self.moves.exports.add_key(peer.0, key);
    }
}
