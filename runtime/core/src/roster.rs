// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes that this process can address: the ranks of its job, and processes of other jobs.
//!
//! A [`ProcessName`] means the same process everywhere. [`Peer`] numbers differ between processes: each process numbers
//! the ranks of its own job in rank order, and then processes of other jobs in the order in which they were added. So a
//! message about a third process contains its name.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use engine::Peer;
use wireup::{Boot, NodeMap, Ranks};

use crate::Group;

/// The name of a process, unique among all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName {
    /// The key of the job, a random number.
    pub job: u64,
    /// Rank in `MPI_COMM_WORLD` of job `job`.
    pub rank: u32,
}

/// The processes that this process can address.
#[derive(Debug)]
pub struct Roster {
    job: u64,
    rank: u32,
    size: u32,
    app: u32,
    /// The ranks of this node.
    near: Ranks,
    /// The node of each rank of the job; `None`: the job is on one node, or the launcher has sent no map.
    nodes: Option<Rc<NodeMap>>,
    /// Processes of other jobs. Their peer numbers start after the last rank of this job.
    others: Vec<ProcessName>,
    numbers: HashMap<ProcessName, Peer>,
    /// The processes of other jobs that are reached over a network, in ascending order of their numbers.
    far: Vec<Peer>,
}

impl Roster {
    /// Rank `rank` of `size` on one node.
    pub(crate) fn of_one_node(job: u64, rank: u32, size: u32) -> Self {
        Self {
            job,
            rank,
            size,
            app: 0,
            near: Ranks::first(size),
            nodes: None,
            others: Vec::new(),
            numbers: HashMap::new(),
            far: Vec::new(),
        }
    }

    /// A process without a launcher, which is a job of its own.
    pub(crate) fn alone() -> Self {
        Self::of_one_node(RandomState::new().hash_one(()), 0, 1)
    }

    /// Takes the members of the job from the launcher's data.
    pub(crate) fn of(boot: &Boot) -> Self {
        Self {
            app: boot.app,
            near: boot.ranks.clone(),
            nodes: boot.nodes.clone().map(Rc::new),
            ..Self::of_one_node(boot.job, boot.rank, boot.size)
        }
    }

    /// Adds a process of another job that shares a segment with this process. The process gets the next number.
    pub(crate) fn add(&mut self, name: ProcessName) {
        self.numbers.insert(name, self.next());
        self.others.push(name);
    }

    /// Adds a process of another job that is reached over a network. The process gets the next number.
    pub(crate) fn add_remote(&mut self, name: ProcessName) {
        self.far.push(self.next());
        self.add(name);
    }

    /// The number that the next added process will get.
    fn next(&self) -> Peer {
        let count = u32::try_from(self.others.len()).expect("no process has 2^32 peers");
        Peer(self.size + count)
    }

    /// The name of a process; `None`: no process has the number `peer`.
    #[must_use]
    pub fn name(&self, peer: Peer) -> Option<ProcessName> {
        match peer.0.checked_sub(self.size) {
            None => Some(ProcessName {
                job: self.job,
                rank: peer.0,
            }),
            Some(other) => self.others.get(other as usize).copied(),
        }
    }

    /// The process with this name; `None`: it was not added here, or its rank is not in the job.
    #[must_use]
    pub fn peer(&self, name: ProcessName) -> Option<Peer> {
        if name.job == self.job {
            return (name.rank < self.size).then_some(Peer(name.rank));
        }
        self.numbers.get(&name).copied()
    }

    /// Rank in `MPI_COMM_WORLD`.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// Size of `MPI_COMM_WORLD`.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Index of this process's program on the command line.
    pub(crate) fn app(&self) -> u32 {
        self.app
    }

    /// Sets the node of each rank of the job.
    pub(crate) fn set_nodes(&mut self, nodes: NodeMap) {
        self.nodes = Some(Rc::new(nodes));
    }

    /// The node of each rank of the job; `None`: the job is on one node, or the launcher has sent no map.
    pub(crate) fn nodes(&self) -> Option<&Rc<NodeMap>> {
        self.nodes.as_ref()
    }

    /// A number that identifies this node in the job: the lowest rank on it.
    pub(crate) fn node(&self) -> u32 {
        let near = self.near.as_slice().iter();
        near.copied().min().unwrap_or(self.rank)
    }

    /// Whether all processes of a group are on this node.
    pub(crate) fn are_near(&self, group: &Group) -> bool {
        let has_all = self.near.count() == self.size;
        group.peers().all(|peer| match peer.0 < self.size {
            true => has_all || self.near.has(peer.0),
            // A process of another job that is not in `far` shares a segment with this process.
            false => self.far.binary_search(&peer).is_err(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_near_if_all_members_are_on_this_node() {
        let alone = Roster::of_one_node(1, 0, 4);
        let group = Group::of(vec![Peer(3), Peer(1)]);
        assert_eq!((alone.node(), alone.are_near(&group)), (0, true));
        let near = Ranks::new(vec![3, 2]).unwrap();
        let second = Roster {
            near,
            ..Roster::of_one_node(1, 3, 4)
        };
        assert_eq!((second.node(), second.are_near(&group)), (2, false));
        assert!(!second.are_near(&Group::world(4)));
        assert!(second.are_near(&Group::of(vec![Peer(3), Peer(2), Peer(4)])));
    }

    #[test]
    fn processes_added_later_are_near_only_on_this_node() {
        let name = |rank| ProcessName { job: 9, rank };
        let mut roster = Roster::of_one_node(7, 0, 1);
        roster.add(name(0));
        roster.add_remote(name(1));
        roster.add(name(2));
        let near = [1, 2, 3].map(|peer| roster.are_near(&Group::of(vec![Peer(0), Peer(peer)])));
        assert_eq!(near, [true, false, true]);
        assert_eq!(roster.peer(name(1)), Some(Peer(2)));
    }

    #[test]
    fn roster_maps_peers_to_process_names_and_back() {
        let name = |job, rank| ProcessName { job, rank };
        let mut roster = Roster::of_one_node(7, 1, 2);
        roster.add(name(9, 1));
        roster.add(name(8, 0));
        for (number, name) in [name(7, 0), name(7, 1), name(9, 1), name(8, 0)]
            .into_iter()
            .enumerate()
        {
            let peer = Peer(u32::try_from(number).unwrap());
            assert_eq!(roster.name(peer), Some(name));
            assert_eq!(roster.peer(name), Some(peer));
        }
        assert_eq!(roster.name(Peer(4)), None);
        assert_eq!(roster.peer(name(7, 2)), None);
        assert_eq!(roster.peer(name(9, 0)), None);
    }

    #[test]
    fn singletons_have_different_job_ids() {
        assert_ne!(Roster::alone().name(Peer(0)), Roster::alone().name(Peer(0)));
    }
}
