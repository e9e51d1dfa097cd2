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

    /// How many processes of a group are on this node.
    pub(crate) fn count_near(&self, group: &Group) -> u32 {
        if self.near.count() == self.size {
            return group.size();
        }
        let near = self.near.as_slice().iter();
        let members = near.filter(|rank| group.rank_of(engine::Peer(**rank)).is_some());
        u32::try_from(members.count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Peer;

    #[test]
    fn members_of_this_node_are_counted() {
        let alone = Roster::of_one_node(0, 4);
        let group = Group::of(vec![Peer(3), Peer(1)]);
        assert_eq!((alone.node(), alone.count_near(&group)), (0, 2));
        let near = Ranks::new(vec![3, 2]).unwrap();
        let second = Roster {
            near,
            ..Roster::of_one_node(3, 4)
        };
        assert_eq!((second.node(), second.count_near(&group)), (2, 1));
        assert_eq!(second.count_near(&Group::world(4)), 2);
        assert_eq!(second.count_near(&Group::of(vec![Peer(0)])), 0);
    }
}
