// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups, communicators and context ids (MPI 5.0 chapter 7).

use std::collections::HashMap;
use std::sync::Arc;

use engine::{ContextId, Peer};

/// An ordered set of processes (MPI 5.0 section 7.2.1). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Group(Arc<Members>);

#[derive(Debug)]
enum Members {
    /// World ranks `0 .. size`, in order.
    Identity { size: u32 },
    /// Any others; the map is the inverse.
    Table {
        peers: Box<[Peer]>,
        ranks: HashMap<Peer, u32>,
    },
}

/// How two groups or communicators relate (MPI 5.0 sections 7.3.1 and 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same object.
    Identical,
    /// Same processes in the same order.
    Congruent,
    /// Same processes in another order.
    Similar,
    /// Different processes.
    Unequal,
}

impl Group {
    /// World ranks `0 .. size`.
    #[must_use]
    pub fn world(size: u32) -> Self {
        Self(Arc::new(Members::Identity { size }))
    }

    /// The given processes in the given order; each at most once.
    #[must_use]
    pub fn of(peers: Vec<Peer>) -> Self {
        let identity = (0..).zip(&peers).all(|(rank, peer)| peer.0 == rank);
        if identity && let Ok(size) = u32::try_from(peers.len()) {
            return Self::world(size);
        }
        let ranks = peers.iter().copied().zip(0..).collect();
        Self(Arc::new(Members::Table {
            peers: peers.into(),
            ranks,
        }))
    }

    /// Number of processes.
    #[must_use]
    pub fn size(&self) -> u32 {
        match &*self.0 {
            Members::Identity { size } => *size,
            Members::Table { peers, .. } => u32::try_from(peers.len()).unwrap_or(u32::MAX),
        }
    }

    /// The process with a rank; `None` if there is no such rank.
    #[inline]
    #[must_use]
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        match &*self.0 {
            Members::Identity { size } => (rank < *size).then_some(Peer(rank)),
            Members::Table { peers, .. } => peers.get(rank as usize).copied(),
        }
    }

    /// The rank of a process; `None` if it is no member.
    #[must_use]
    pub fn rank_of(&self, peer: Peer) -> Option<u32> {
        match &*self.0 {
            Members::Identity { size } => (peer.0 < *size).then_some(peer.0),
            Members::Table { ranks, .. } => ranks.get(&peer).copied(),
        }
    }

    /// Whether ranks are world ranks.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        matches!(&*self.0, Members::Identity { .. })
    }

    /// All members in order.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        (0..self.size()).filter_map(|rank| self.peer(rank))
    }

    /// How two groups relate: never [`Comparison::Congruent`].
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Comparison::Identical;
        }
        if self.size() != other.size() {
            return Comparison::Unequal;
        }
        if self.peers().eq(other.peers()) {
            return Comparison::Identical;
        }
        match self.peers().all(|peer| other.rank_of(peer).is_some()) {
            true => Comparison::Similar,
            false => Comparison::Unequal,
        }
    }
}

/// An intracommunicator (MPI 5.0 section 7.4).
#[derive(Clone, Debug)]
pub struct Comm {
    /// Context of its point-to-point messages; collectives use the next one.
    pub context: ContextId,
    /// Its processes.
    pub group: Group,
    /// Rank of this process in it.
    pub rank: u32,
}

impl Comm {
    /// Number of processes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Context of its collective messages.
    #[must_use]
    pub fn collective_context(&self) -> ContextId {
        ContextId(self.context.0 + 1)
    }

    /// How two communicators relate.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        match (
            self.context == other.context,
            self.group.compare(&other.group),
        ) {
            (true, _) => Comparison::Identical,
            (false, Comparison::Identical) => Comparison::Congruent,
            (false, other) => other,
        }
    }
}

/// Context of `MPI_COMM_WORLD`.
pub const WORLD_CONTEXT: ContextId = ContextId(2);
/// Context of `MPI_COMM_SELF`.
pub const SELF_CONTEXT: ContextId = ContextId(4);
/// First context that a new communicator can get.
pub const FIRST_FREE_CONTEXT: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(ranks: &[u32]) -> Vec<Peer> {
        ranks.iter().copied().map(Peer).collect()
    }

    #[test]
    fn a_table_in_world_order_is_the_identity() {
        let group = Group::of(peers(&[0, 1, 2]));
        assert!(group.is_identity());
        assert_eq!(group.compare(&Group::world(3)), Comparison::Identical);
        assert_eq!(group.peer(3), None);
    }

    #[test]
    fn groups_compare_by_members_and_order() {
        let (a, b, c) = (
            Group::of(peers(&[2, 0])),
            Group::of(peers(&[0, 2])),
            Group::of(peers(&[0, 3])),
        );
        assert_eq!(a.compare(&b), Comparison::Similar);
        assert_eq!(a.compare(&c), Comparison::Unequal);
        assert_eq!(
            (a.peer(0), a.rank_of(Peer(0)), a.rank_of(Peer(1))),
            (Some(Peer(2)), Some(1), None)
        );
        let comm = |context, group: &Group| Comm {
            context: ContextId(context),
            group: group.clone(),
            rank: 0,
        };
        assert_eq!(comm(8, &a).compare(&comm(10, &a)), Comparison::Congruent);
        assert_eq!(comm(8, &a).compare(&comm(8, &a)), Comparison::Identical);
        assert_eq!(comm(8, &a).compare(&comm(10, &b)), Comparison::Similar);
    }
}
