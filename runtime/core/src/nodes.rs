// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups the ranks of a communicator by node, for collectives that use shared memory inside a node and send data only
//! once between two nodes. All members compute the same groups, from the map that the launcher has sent to all ranks of
//! the job.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use engine::Peer;
use rustc_hash::FxHashMap;
use transport::Seat;
use wireup::NodeMap;

use crate::Group;

/// The members of a communicator by node, as seen by one of the members.
#[derive(Debug)]
pub(crate) struct CommNodes {
    /// The members on this node, in the order of their ranks.
    near: Group,
    /// The index of this process in `near`.
    place: u32,
    /// One member of each node, its *leader*: the lowest rank on the node. Leaders are in the order of their ranks.
    leaders: Group,
    /// The index of this process's node among the leaders.
    node: u32,
    /// The index in `leaders` of each node, by the node's number in the launcher's map.
    places: FxHashMap<u32, u32>,
    map: Rc<NodeMap>,
    /// Whether the ranks of each node are consecutive. Then a reduction node by node combines in rank order.
    in_order: bool,
    /// Whether all nodes have the same number of members.
    even: bool,
    /// Number of members on the node that has the fewest.
    fewest: u32,
    /// The members, at most one of each node, that have the same index on their node as this process. Computed on first
    /// use.
    same_place: OnceCell<Group>,
    /// The seat of this process at a [board](transport::seat) of `near`, which is taken only once.
    seat: RefCell<Option<Rc<Seat>>>,
    is_settled: Cell<bool>,
}

impl CommNodes {
    /// Groups the members by node. `None`: all members are on one node, or each member is on a node of its own, or the
    /// node of a member is unknown.
    pub(crate) fn of(group: &Group, rank: u32, map: &Rc<NodeMap>) -> Option<Self> {
        let own = map.node_of(group.peer(rank)?.0)?;
        let mut near = Vec::new();
        let mut leaders = Vec::new();
        let mut places = FxHashMap::default();
        let mut counts: Vec<u32> = Vec::new();
        let (mut in_order, mut last) = (true, None);
        for peer in group.peers() {
            let node = map.node_of(peer.0)?;
            let next = u32::try_from(leaders.len()).ok()?;
            let place = *places.entry(node).or_insert(next);
            if place == next {
                leaders.push(peer);
                counts.push(0);
            } else {
                in_order &= last == Some(place);
            }
            counts[place as usize] += 1;
            last = Some(place);
            if node == own {
                near.push(peer);
            }
        }
        if leaders.len() < 2 || counts.iter().all(|count| *count == 1) {
            return None;
        }
        let near = Group::of(near);
        Some(Self {
            place: near.rank_of(group.peer(rank)?)?,
            near,
            leaders: Group::of(leaders),
            node: *places.get(&own)?,
            places,
            map: Rc::clone(map),
            in_order,
            even: counts.iter().all(|count| *count == counts[0]),
            fewest: counts.iter().copied().min()?,
            same_place: OnceCell::new(),
            seat: RefCell::default(),
            is_settled: Cell::new(false),
        })
    }

    /// The members on this node, and the index of this process among them.
    pub(crate) fn near(&self) -> (&Group, u32) {
        (&self.near, self.place)
    }

    /// The leaders of all nodes, and the index of this process's node among them.
    pub(crate) fn leaders(&self) -> (&Group, u32) {
        (&self.leaders, self.node)
    }

    /// The index of a member's node among the leaders.
    pub(crate) fn place_of(&self, peer: Peer) -> Option<u32> {
        self.places.get(&self.map.node_of(peer.0)?).copied()
    }

    /// Whether the ranks of each node are consecutive.
    pub(crate) fn are_in_order(&self) -> bool {
        self.in_order
    }

    /// Whether all nodes have the same number of members.
    pub(crate) fn are_even(&self) -> bool {
        self.even
    }

    /// Number of members on the node that has the fewest: each index below this number exists on every node.
    pub(crate) fn common_places(&self) -> u32 {
        self.fewest
    }

    /// The members, at most one of each node, that have the same index on their node as this process. They are in the
    /// order of the nodes.
    pub(crate) fn same_place(&self, group: &Group) -> &Group {
        let find = || {
            let mut passed = vec![0; self.leaders.size() as usize];
            let stands_here = |peer: &Peer| {
                let node = self.place_of(*peer);
                let passed = node.and_then(|node| passed.get_mut(node as usize));
                passed.is_some_and(|passed| std::mem::replace(passed, *passed + 1) == self.place)
            };
            let mut found: Vec<Peer> = group.peers().filter(stands_here).collect();
            found.sort_by_key(|peer| self.place_of(*peer));
            Group::of(found)
        };
        self.same_place.get_or_init(find)
    }

    /// Whether [`settle`](Self::settle) was called.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.get()
    }

    /// Sets the seat of this process at a board of the members on this node, or `None` if they have no board. All
    /// members on the node decide alike.
    pub(crate) fn settle(&self, seat: Option<Rc<Seat>>) {
        self.seat.replace(seat);
        self.is_settled.set(true);
    }

    /// The seat of this process at a board of the members on this node, if there is one.
    pub(crate) fn seat(&self) -> Option<Rc<Seat>> {
        self.seat.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(nodes: &[u32]) -> Rc<NodeMap> {
        Rc::new(NodeMap::new(nodes.iter().copied()).unwrap())
    }

    fn peers(group: &Group) -> Vec<u32> {
        group.peers().map(|peer| peer.0).collect()
    }

    #[test]
    fn members_are_grouped_by_node_in_any_rank_order() {
        let map = map(&[4, 4, 9, 9, 9, 2]);
        let nodes = CommNodes::of(&Group::world(6), 3, &map).unwrap();
        assert_eq!((peers(nodes.near().0), nodes.near().1), (vec![2, 3, 4], 1));
        assert_eq!(
            (peers(nodes.leaders().0), nodes.leaders().1),
            (vec![0, 2, 5], 1)
        );
        assert_eq!((nodes.are_in_order(), nodes.are_even()), (true, false));
        assert_eq!(nodes.place_of(Peer(5)), Some(2));
        assert_eq!(nodes.place_of(Peer(6)), None);
        assert_eq!(
            (
                nodes.common_places(),
                peers(nodes.same_place(&Group::world(6)))
            ),
            (1, vec![1, 3])
        );
        // The ranks are on node 9, then node 4, then node 9 again.
        let some = Group::of(vec![Peer(4), Peer(1), Peer(0), Peer(2)]);
        let nodes = CommNodes::of(&some, 2, &map).unwrap();
        assert_eq!((peers(nodes.near().0), nodes.near().1), (vec![1, 0], 1));
        assert_eq!(
            (peers(nodes.leaders().0), nodes.leaders().1),
            (vec![4, 1], 1)
        );
        assert_eq!((nodes.are_in_order(), nodes.are_even()), (false, true));
        assert_eq!(peers(nodes.same_place(&some)), [2, 0]);
    }

    #[test]
    fn one_node_or_one_rank_per_node_has_no_node_groups() {
        let map = map(&[0, 0, 1, 2]);
        let of = |ranks: &[u32]| {
            let group = Group::of(ranks.iter().copied().map(Peer).collect());
            CommNodes::of(&group, 0, &map).is_some()
        };
        assert!(of(&[0, 1, 2]) && of(&[1, 3, 0]));
        assert!(!of(&[0, 1]) && !of(&[0, 2, 3]) && !of(&[3]));
        // The node of rank 7 of another job is unknown.
        assert!(!of(&[0, 1, 2, 7]));
    }
}
