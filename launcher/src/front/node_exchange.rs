// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange between nodes through the front: which node watches which rank of another node, in which programs all ranks
//! are quiet, and PMI fences. Makes no system calls.

use crate::link::{NodeEvent, Order, Pairs, RankLocation};
use std::collections::{BTreeMap, BTreeSet};
use wireup::ByNode;

/// State of the exchange between the nodes of a job.
#[derive(Debug)]
pub(crate) struct NodeExchange {
    /// The node of each rank.
    ranks: ByNode,
    /// By rank: the nodes that watch the rank, in ascending order. Few ranks have many watchers.
    watchers: BTreeMap<u32, Vec<u32>>,
    /// The last location of each watched rank.
    last: BTreeMap<u32, RankLocation>,
    /// By program number: the nodes whose ranks are quiet in this program.
    quiet: BTreeMap<u32, BTreeSet<usize>>,
    /// By node that is at a PMI fence: the pairs that its ranks have put.
    fenced: BTreeMap<usize, Pairs>,
    /// Nodes whose ranks enter no further fence, including nodes that are gone.
    unfenced: BTreeSet<usize>,
    nodes: usize,
    ended_nodes: BTreeSet<usize>,
}

/// An order, and the nodes to which it must be sent.
pub(crate) type RoutedOrder = (Vec<usize>, Order);

impl NodeExchange {
    /// Starts without any node; the caller must then add all nodes of the job in the order of their numbers. `ranks`:
    /// the node of each rank of the job.
    pub(crate) fn of(ranks: ByNode) -> Self {
        Self {
            ranks,
            watchers: BTreeMap::new(),
            last: BTreeMap::new(),
            quiet: BTreeMap::new(),
            fenced: BTreeMap::new(),
            unfenced: BTreeSet::new(),
            nodes: 0,
            ended_nodes: BTreeSet::new(),
        }
    }

    /// Adds a node.
    pub(crate) fn add(&mut self) {
        self.nodes += 1;
    }

    fn node_of(&self, rank: u32) -> Option<usize> {
        self.ranks.node_of(rank).map(|node| node as usize)
    }

    /// Handles an event of a node, and returns the resulting orders. Returns the event in `Err` if it does not belong
    /// to the exchange.
    pub(crate) fn pass(
        &mut self,
        node: usize,
        event: NodeEvent,
    ) -> Result<Vec<RoutedOrder>, NodeEvent> {
        match event {
            NodeEvent::Watch(rank) => Ok(self.watch(node, rank).into_iter().collect()),
            // A node may report only its own ranks; other reports are ignored.
            NodeEvent::Location(of) if self.node_of(of.rank) != Some(node) => Ok(Vec::new()),
            NodeEvent::Location(of) => Ok(self.forward(of)),
            // The node is gone, and already counts as quiet.
            NodeEvent::Quiet(_) if self.ended_nodes.contains(&node) => Ok(Vec::new()),
            NodeEvent::Quiet(round) => {
                self.quiet.entry(round).or_default().insert(node);
                Ok(self.release(round))
            }
            NodeEvent::Fence(pairs) => {
                self.fenced.insert(node, pairs);
                Ok(self.end_fence())
            }
            NodeEvent::NoFence => {
                self.unfenced.insert(node);
                Ok(self.end_fence())
            }
            event => Err(event),
        }
    }

    /// Ends the fence if all nodes are at it, except those that enter no further fence. Each node gets the pairs of all
    /// nodes.
    fn end_fence(&mut self) -> Vec<RoutedOrder> {
        if self.fenced.is_empty() {
            return Vec::new();
        }
        let are_there =
            |node: usize| self.unfenced.contains(&node) || self.fenced.contains_key(&node);
        let may_be_there = self.unfenced.len() + self.fenced.len() >= self.nodes;
        if !may_be_there || !(0..self.nodes).all(are_there) {
            return Vec::new();
        }
        let fenced = std::mem::take(&mut self.fenced);
        let all: Pairs = fenced.into_values().flatten().collect();
        // The order is sent to all living nodes, because a broadcast passes each shepherd only once. On a node without
        // a rank at the fence, the order releases no rank.
        passed(self.living(), Order::Fence(all))
            .into_iter()
            .collect()
    }

    /// A node is gone with all its ranks. The watchers of its ranks are notified, and the node counts as quiet and as a
    /// node that enters no further fence.
    pub(crate) fn node_ended(&mut self, node: usize) -> Vec<RoutedOrder> {
        if !self.ended_nodes.insert(node) {
            return Vec::new();
        }
        self.unfenced.insert(node);
        for quiet in self.quiet.values_mut() {
            quiet.remove(&node);
        }
        let mut all = Vec::new();
        for rank in self.ranks_of(node) {
            if let Some(watchers) = self.watchers.remove(&rank) {
                let of = self.ended(rank);
                all.extend(passed(places(&watchers), Order::Location(of)));
            }
        }
        let rounds: Vec<u32> = self.quiet.keys().copied().collect();
        all.extend(rounds.into_iter().flat_map(|round| self.release(round)));
        all.extend(self.end_fence());
        all
    }

    /// The ranks of a node, in ascending order.
    pub(crate) fn ranks_of(&self, node: usize) -> Vec<u32> {
        self.ranks.ranks_of(number(node)).collect()
    }

    fn watch(&mut self, node: usize, rank: u32) -> Option<RoutedOrder> {
        let owner = self.node_of(rank)?;
        if self.ended_nodes.contains(&owner) {
            return Some((vec![node], Order::Location(self.ended(rank))));
        }
        let watchers = self.watchers.entry(rank).or_default();
        let is_first = watchers.is_empty();
        let number = number(node);
        if let Err(place) = watchers.binary_search(&number) {
            watchers.insert(place, number);
        }
        match self.last.get(&rank) {
            // The rank's node already reports changes. A further request would make it send the location to all
            // watchers again.
            Some(of) if !is_first => Some((vec![node], Order::Location(of.clone()))),
            _ => is_first.then_some((vec![owner], Order::Watch(rank))),
        }
    }

    /// Stores a location, and forwards it to the nodes that watch the rank.
    fn forward(&mut self, of: RankLocation) -> Vec<RoutedOrder> {
        let watchers = self.watchers.get(&of.rank);
        let nodes = watchers.map_or_else(Vec::new, |watchers| places(watchers));
        let orders = passed(nodes, Order::Location(of.clone()));
        self.last.insert(of.rank, of);
        orders.into_iter().collect()
    }

    /// The last known location of a rank whose node is gone, marked as ended. Its record is kept, since other ranks may
    /// still need it.
    fn ended(&self, rank: u32) -> RankLocation {
        let unknown = RankLocation {
            rank,
            round: 0,
            silent: false,
            ended: true,
            last: None,
        };
        let known = self.last.get(&rank).cloned().unwrap_or(unknown);
        RankLocation {
            ended: true,
            ..known
        }
    }

    /// Releases the ranks of program number `round` once all living nodes are quiet in this program.
    fn release(&mut self, round: u32) -> Vec<RoutedOrder> {
        let quiet = self.quiet.get(&round).map_or(0, BTreeSet::len);
        if self.ended_nodes.len() + quiet < self.nodes {
            return Vec::new();
        }
        self.quiet.remove(&round);
        // All watches end: later requests for a location are sent to the rank's node again.
        self.watchers.clear();
        self.last.clear();
        let orders = passed(self.living(), Order::AllQuiet(round));
        orders.into_iter().collect()
    }

    fn living(&self) -> Vec<usize> {
        let there = (0..self.nodes).filter(|node| !self.ended_nodes.contains(node));
        there.collect()
    }
}

/// An order for these nodes; `None` if the list is empty.
fn passed(nodes: Vec<usize>, order: Order) -> Option<RoutedOrder> {
    (!nodes.is_empty()).then_some((nodes, order))
}

fn places(nodes: &[u32]) -> Vec<usize> {
    nodes.iter().map(|node| *node as usize).collect()
}

fn number(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks 0 and 1 on the first node, 2 on the second, 3 on the third.
    fn three() -> NodeExchange {
        let mut exchange = NodeExchange::of(wireup::NodeMap::new([0, 0, 1, 2]).unwrap().by_node());
        (0..3).for_each(|_| exchange.add());
        exchange
    }

    fn at(rank: u32) -> RankLocation {
        RankLocation {
            rank,
            round: 0,
            silent: false,
            ended: false,
            last: Some((0, wireup::Record::new(&[7; 24]).unwrap())),
        }
    }

    #[test]
    fn rank_locations_are_sent_only_to_watching_nodes() {
        let mut exchange = three();
        let requests = vec![(vec![0], Order::Watch(1))];
        assert_eq!(exchange.pass(1, NodeEvent::Watch(1)), Ok(requests));
        assert_eq!(exchange.pass(2, NodeEvent::Watch(1)), Ok(vec![]));
        let passed = exchange.pass(0, NodeEvent::Location(at(1)));
        let orders = |nodes: &[usize]| vec![(nodes.to_vec(), Order::Location(at(1)))];
        assert_eq!(passed, Ok(orders(&[1, 2])));
        // A later watcher gets the location without a request to the rank's node.
        assert_eq!(exchange.pass(1, NodeEvent::Watch(1)), Ok(orders(&[1])));
        assert_eq!(exchange.pass(0, NodeEvent::Location(at(0))), Ok(vec![]));
        assert_eq!(exchange.pass(0, NodeEvent::Watch(9)), Ok(vec![]));
        assert_eq!(exchange.pass(0, NodeEvent::Held), Err(NodeEvent::Held));
    }

    #[test]
    fn ranks_of_a_lost_node_are_reported_as_ended() {
        let mut exchange = three();
        let _ = exchange.pass(1, NodeEvent::Watch(0));
        let _ = exchange.pass(0, NodeEvent::Location(at(0)));
        let ended = |of| RankLocation { ended: true, ..of };
        // The last location of a rank is kept when its node is gone.
        let orders = |node| (vec![node], Order::Location(ended(at(0))));
        assert_eq!(exchange.node_ended(0), [orders(1)]);
        assert_eq!(exchange.node_ended(0), []);
        assert_eq!(exchange.pass(2, NodeEvent::Watch(0)), Ok(vec![orders(2)]));
        let unknown = ended(RankLocation {
            last: None,
            ..at(1)
        });
        let orders = (vec![2], Order::Location(unknown));
        assert_eq!(exchange.pass(2, NodeEvent::Watch(1)), Ok(vec![orders]));
    }

    #[test]
    fn a_fence_gives_all_nodes_the_pairs_of_all() {
        let mut exchange = three();
        let put = |key: &str| vec![(key.to_owned(), "x".to_owned())];
        assert_eq!(exchange.pass(2, NodeEvent::Fence(put("c"))), Ok(vec![]));
        assert_eq!(exchange.pass(0, NodeEvent::Fence(put("a"))), Ok(vec![]));
        let all = [put("a"), put("b"), put("c")].concat();
        let passed = exchange.pass(1, NodeEvent::Fence(put("b")));
        assert_eq!(passed, Ok(vec![(vec![0, 1, 2], Order::Fence(all))]));
        assert_eq!(exchange.pass(0, NodeEvent::Fence(vec![])), Ok(vec![]));
        // Nodes that are gone, or have no rank left that enters a fence, are not waited for.
        assert_eq!(exchange.node_ended(2), []);
        let released = vec![(vec![0, 1], Order::Fence(vec![]))];
        assert_eq!(exchange.pass(1, NodeEvent::NoFence), Ok(released.clone()));
        assert_eq!(exchange.pass(0, NodeEvent::Fence(vec![])), Ok(released));
        assert_eq!(exchange.node_ended(0), []);
    }

    #[test]
    fn nodes_are_released_when_all_are_quiet_in_a_program() {
        let mut exchange = three();
        for (node, round) in [(0, 0), (0, 1), (2, 0), (2, 1)] {
            assert_eq!(exchange.pass(node, NodeEvent::Quiet(round)), Ok(vec![]));
        }
        let all = |nodes: &[usize], round| vec![(nodes.to_vec(), Order::AllQuiet(round))];
        assert_eq!(
            exchange.pass(1, NodeEvent::Quiet(0)),
            Ok(all(&[0, 1, 2], 0))
        );
        assert_eq!(exchange.node_ended(1), all(&[0, 2], 1));
    }
}
