// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peers of a process: dense numbers, and which wire carries what goes to each. The first are there when a fabric is opened,
//! others come later; none ever goes, so that a number never means another process.

use crate::Peer;

/// The provider that carries a queue pair, and its number there. One byte to compare on the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerRoute {
    /// The process itself.
    Loopback,
    /// Another rank of this node, by its local rank.
    Shm(u32),
    /// A process of this node with which a segment is shared that was attached later: the number of that.
    Later(u32),
    /// A rank of a simulated network.
    Sim,
    /// A process that the network reaches.
    Net,
}

/// The routes of all peers.
#[derive(Debug)]
pub(crate) struct Peers(Vec<PeerRoute>);

impl Peers {
    pub(crate) fn new(routes: impl IntoIterator<Item = PeerRoute>) -> Self {
        Self(routes.into_iter().collect())
    }

    #[inline(always)]
    pub(crate) fn route(&self, peer: Peer) -> PeerRoute {
        self.0[peer.0 as usize]
    }

    /// Whether boards of the node are open to a peer.
    pub(crate) fn is_at_boards(&self, peer: Peer) -> bool {
        let route = self.0.get(peer.0 as usize);
        route.is_some_and(|route| matches!(route, PeerRoute::Shm(_) | PeerRoute::Loopback))
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).expect("no process has 2^32 peers")
    }

    /// A further one.
    pub(crate) fn add(&mut self, route: PeerRoute) -> Peer {
        let peer = Peer(self.count());
        self.0.push(route);
        peer
    }
}
