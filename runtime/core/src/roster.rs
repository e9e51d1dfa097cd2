// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who the processes of the job are, and which of them share a node with this one.

use pmi::{Boot, Ranks};

use crate::Group;

/// The processes of the job, as this one sees them.
#[derive(Debug)]
pub(crate) struct Roster {
    rank: u32,
    size: u32,
    app: u32,
    /// The ranks of this node.
    near: Ranks,
}

impl Roster {
    /// Rank `rank` of `size` on one node.
    pub(crate) fn of_one_node(rank: u32, size: u32) -> Self {
        Self {
            rank,
            size,
            app: 0,
            near: Ranks::first(size),
        }
    }

    /// As the launcher says.
    pub(crate) fn of(boot: &Boot) -> Self {
        Self {
            rank: boot.rank,
            size: boot.size,
            app: boot.app,
            near: boot.ranks.clone(),
        }
    }

    /// Rank in `MPI_COMM_WORLD`.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// Size of `MPI_COMM_WORLD`.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Which program of the command line this is.
    pub(crate) fn app(&self) -> u32 {
        self.app
    }

    /// A number of this node that no other node of the job has: the lowest of its ranks.
    pub(crate) fn node(&self) -> u32 {
        let near = self.near.as_slice().iter();
        near.copied().min().unwrap_or(self.rank)
    }

    /// Whether all processes of a group are on this node.
    pub(crate) fn are_near(&self, group: &Group) -> bool {
        let has_all = self.near.count() == self.size;
        group.peers().all(|peer| match peer.0 < self.size {
            true => has_all || self.near.has(peer.0),
            // Those that come later share a segment with this process.
            false => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Peer;

    #[test]
    fn a_group_is_on_this_node_if_all_its_members_are() {
        let alone = Roster::of_one_node(0, 4);
        let group = Group::of(vec![Peer(3), Peer(1)]);
        assert_eq!((alone.node(), alone.are_near(&group)), (0, true));
        let near = Ranks::new(vec![3, 2]).unwrap();
        let second = Roster {
            near,
            ..Roster::of_one_node(3, 4)
        };
        assert_eq!((second.node(), second.are_near(&group)), (2, false));
        assert!(!second.are_near(&Group::world(4)));
        assert!(second.are_near(&Group::of(vec![Peer(3), Peer(2), Peer(4)])));
    }
}
