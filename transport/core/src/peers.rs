// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peers of a process: dense numbers, and the provider that reaches each. Some peers exist when a fabric is opened,
//! others are added later. Peers are never removed, so a number always means the same process.

use crate::Peer;

/// The provider that carries the queue pair to a peer, and the peer's index at that provider. The hot path compares
/// only the discriminant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerRoute {
    /// The process itself.
    Loopback,
    /// Another rank of this node, by its local rank.
    Shm(u32),
    /// A process of this node that shares a segment attached after opening, by the segment's index.
    Later(u32),
    /// A rank of a simulated network.
    Sim,
    /// A process reached over the network.
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

    /// Whether a peer can use the node's boards, which are shared memory for collectives.
    pub(crate) fn is_at_boards(&self, peer: Peer) -> bool {
        let route = self.0.get(peer.0 as usize);
        route.is_some_and(|route| matches!(route, PeerRoute::Shm(_) | PeerRoute::Loopback))
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).expect("no process has 2^32 peers")
    }

    /// Adds a peer.
    pub(crate) fn add(&mut self, route: PeerRoute) -> Peer {
        let peer = Peer(self.count());
        self.0.push(route);
        peer
    }
}
