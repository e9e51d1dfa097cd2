// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs: one per peer, and which provider carries it.

use crate::Peer;

/// Which provider carries a queue pair, and its number there. One byte to compare on the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The process itself.
    Loopback,
    /// Another rank of this node, by its local rank.
    Shm(u32),
    /// A rank of a simulated network, by its world rank.
    Sim,
    /// A process that the network reaches, by its world rank.
    Net,
}

/// The routes of all peers.
#[derive(Debug)]
pub(crate) struct Routes(Box<[Route]>);

impl Routes {
    pub(crate) fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        Self(routes.into_iter().collect())
    }

    #[inline(always)]
    pub(crate) fn of(&self, peer: Peer) -> Route {
        self.0[peer.0 as usize]
    }
}
