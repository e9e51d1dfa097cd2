// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives of ranks on several nodes, in which data between two nodes are sent once. One rank of each node is its
//! *leader*. The ranks of a node exchange data over a [board](super::board), or by messages in shared memory; the
//! leaders exchange data by messages. Each of these parts is carried out like a collective of its own.
//!
//! The leader of a node is its first rank in the communicator; on the root's node it is the root. All ranks compute the
//! same leaders, since they have the same map of the nodes ([`CommNodes`]).
//!
//! Reductions combine the data of one node before those of the next node. If the ranks of a node are not consecutive,
//! this order is not the rank order; operations that do not commute then use the algorithms for the whole communicator.
//! The same ranks on the same nodes always get bitwise equal results.

mod blocks;
mod exchange;
mod reductions;
mod rooted;
mod slots;

use std::rc::Rc;

use super::collective_call::Subgroup;
use super::reduce::{are_alike, cut, cut_mut, reduce_plain};
use super::tree::{self, barrier_messages, bcast_plain, send_plain};
use super::{CollectiveCall, CollectiveRoot, CollectiveTuning, Reducer, choice, flat};
use crate::comm::{Comm, Group, WORLD_CONTEXT};
use crate::nodes::CommNodes;
use crate::{Error, Payload, UserMemory, Visit};

pub(super) use blocks::{allgather, allgather_various, alltoall};
pub(super) use exchange::alltoall_various;
pub(super) use reductions::{
    allreduce, allreduce_in_slices, exscan, reduce, reduce_in_slices, reduce_scatter,
    reduce_scatter_in_slices, scan,
};
pub(super) use rooted::{gather, scatter};

/// The ranks of this call grouped by node; `None`: the call does not go by node.
#[inline]
pub(super) fn nodes_of<V: Visit>(call: &CollectiveCall<V>, applies: bool) -> Option<Rc<CommNodes>> {
    if !applies || call.is_part() || call.comm().has_board() {
        return None;
    }
    call.visit(|universe| universe.nodes_of(call.comm()))
}

/// The ranks of a reduction grouped by node. `None`: the call does not go by node, or the order of ranks matters and
/// differs from the order of nodes.
pub(super) fn nodes_in_order<V: Visit>(
    call: &CollectiveCall<V>,
    applies: bool,
    op: &impl Reducer,
) -> Option<Rc<CommNodes>> {
    nodes_of(call, applies).filter(|nodes| nodes.are_in_order() || op.commutes())
}

/// Whether, by default, the leaders forward blocks of `block` bytes, one for each pair of ranks.
pub(super) fn carries(shape: &CollectiveTuning, block: usize) -> bool {
    shape.boards && block <= shape.node_bytes
}

/// Whether, by default, the leaders forward blocks whose lengths are known only to their sender and receiver. The
/// leaders first have to exchange the lengths; if each rank has a core, that takes longer than direct messages.
pub(super) fn carries_various(shape: &CollectiveTuning, ranks: u32) -> bool {
    shape.boards && shape.flat && ranks <= exchange::TABLED_RANKS
}

/// For reductions by node in which the ranks of a node combine data twice: whether the call goes by node by default.
/// `bytes`: bytes of each rank.
pub(super) fn combines(shape: &CollectiveTuning, bytes: usize) -> bool {
    shape.boards && (1..=shape.board_bytes).contains(&bytes)
}

/// Which ranks communicate with other nodes in a reduction by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Across {
    /// One rank of each node, with the data of its whole node.
    Leaders,
    /// Each rank of a node, with a slice of the data of its node.
    Slices,
    /// All ranks, in a ring.
    Ring,
}

impl Across {
    /// The selection for an allreduce. `size`: bytes of each rank, and number of ranks.
    pub(super) fn of_allreduce(
        shape: &CollectiveTuning,
        nodes: &CommNodes,
        size: (usize, u32),
        op: &impl Reducer,
    ) -> Self {
        let is_auto = shape.choice.allreduce == choice::Allreduce::Auto;
        Self::of(shape, nodes, size, is_auto && op.commutes(), 1)
    }

    /// The selection for a reduce. `size`: bytes of each rank, and number of ranks.
    pub(super) fn of_reduce(
        shape: &CollectiveTuning,
        nodes: &CommNodes,
        size: (usize, u32),
        op: &impl Reducer,
    ) -> Self {
        let is_auto = shape.choice.reduce == choice::Reduce::Auto;
        Self::of(shape, nodes, size, is_auto && op.commutes(), 2)
    }

    /// The selection for a reduce-scatter in parts of `lengths` bytes.
    fn of_reduce_scatter(
        shape: &CollectiveTuning,
        nodes: &CommNodes,
        lengths: &[usize],
        op: &impl Reducer,
    ) -> Self {
        // Lengths that differ much exclude slices and the ring: a rank that combines a long part needs several times
        // the size of that part in memory.
        if !are_alike(lengths) {
            return Self::Leaders;
        }
        let ranks = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
        let size = (lengths.iter().sum(), ranks);
        let is_auto = shape.choice.reduce_scatter == choice::ReduceScatter::Auto;
        match Self::of(shape, nodes, size, is_auto && op.commutes(), 2) {
            Self::Slices if !nodes.are_even() => Self::Leaders,
            across => across,
        }
    }

    /// `times`: the least number of bytes for which slices are used is multiplied by this factor. It is 1 for an
    /// allreduce, and greater for calls that save less time by slices.
    fn of(
        shape: &CollectiveTuning,
        nodes: &CommNodes,
        (bytes, ranks): (usize, u32),
        may_go_round: bool,
        times: usize,
    ) -> Self {
        if may_go_round && nodes.are_in_order() && shape.goes_round_nodes(bytes, ranks) {
            Self::Ring
        } else if shape.goes_in_slices_by_node(bytes / times, nodes.common_places()) {
            Self::Slices
        } else {
            Self::Leaders
        }
    }
}

/// The nodes and the selection for a reduce-scatter in parts of `lengths` bytes; `None`: it does not go by node.
pub(super) fn of_reduce_scatter<V: Visit>(
    call: &CollectiveCall<V>,
    lengths: &[usize],
    op: &impl Reducer,
) -> Option<(Rc<CommNodes>, Across)> {
    let shape = call.shape();
    let choice = shape.choice.reduce_scatter;
    let bytes = lengths.iter().sum();
    let applies = choice.by_node(shape.boards) && bytes > 0;
    let nodes = nodes_of(call, applies).filter(|nodes| nodes.are_in_order())?;
    let across = Across::of_reduce_scatter(&shape, &nodes, lengths, op);
    let applies = across != Across::Leaders || choice.by_node(combines(&shape, bytes));
    applies.then_some((nodes, across))
}

/// One collective call by node: first within each node, then between the leaders.
struct ByNodeCall<'a, V> {
    call: &'a CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    /// The part of the call among the ranks of this node.
    near: CollectiveCall<V>,
    /// The part of the call among the leaders, in the order of the nodes.
    across: CollectiveCall<V>,
    /// The index of this node's leader among the ranks of the node.
    leader: u32,
}

impl<'a, V: Visit> ByNodeCall<'a, V> {
    /// The call of this rank. `root`: the rank that must lead its node, if there is one.
    async fn of(
        call: &'a CollectiveCall<V>,
        nodes: Rc<CommNodes>,
        root: Option<u32>,
    ) -> Result<Self, Error> {
        settle(call, &nodes).await?;
        let (near, place) = nodes.near();
        let near_root = place_of_root(call.comm(), near, root);
        let root = root.and_then(|root| call.comm().group.peer(root));
        let near = call.among(Subgroup {
            group: near.clone(),
            place,
            stand_in: None,
            seat: nodes.seat(),
            is_from_other_nodes: near_root.is_none(),
        });
        let (leaders, node) = nodes.leaders();
        let across = call.among(Subgroup {
            group: leaders.clone(),
            place: node,
            stand_in: root.and_then(|root| Some((nodes.place_of(root)?, root))),
            seat: None,
            is_from_other_nodes: false,
        });
        Ok(Self {
            call,
            nodes,
            near,
            across,
            leader: near_root.unwrap_or(0),
        })
    }

    /// Whether this rank is the leader of its node.
    fn leads(&self) -> bool {
        self.near.rank() == self.leader
    }

    /// The leader, as the root of a collective among this node's ranks.
    fn root(&self) -> CollectiveRoot {
        match self.leads() {
            true => CollectiveRoot::Here,
            false => CollectiveRoot::There(self.leader),
        }
    }

    /// The index of a rank's node among the leaders.
    fn node_of(&self, rank: u32) -> u32 {
        let peer = self.call.comm().group.peer(rank);
        peer.and_then(|peer| self.nodes.place_of(peer)).unwrap_or(0)
    }

    /// The index of a rank of this node among this node's ranks.
    fn place_near(&self, rank: u32) -> u32 {
        let (near, _) = self.nodes.near();
        place_of_root(self.call.comm(), near, Some(rank)).unwrap_or(0)
    }

    /// The ranks of each node; nodes are in the order of the leaders.
    fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.across.size() as usize];
        for rank in 0..self.call.size() {
            members[self.node_of(rank) as usize].push(rank);
        }
        members
    }

    /// The part of the call among the ranks that have the same index on their nodes as this rank, in the order of the
    /// nodes. `None`: some node has no such rank.
    fn same_place(&self) -> Option<CollectiveCall<V>> {
        if self.near.rank() >= self.nodes.common_places() {
            return None;
        }
        Some(self.call.among(Subgroup {
            group: self.nodes.same_place(&self.call.comm().group).clone(),
            place: self.across.rank(),
            stand_in: None,
            seat: None,
            is_from_other_nodes: false,
        }))
    }

    /// Each other node: its index among the leaders, and its ranks.
    fn other_nodes(&self) -> impl Iterator<Item = (u32, Vec<u32>)> {
        let here = self.across.rank();
        let nodes = (0..).zip(self.members());
        nodes.filter(move |(node, _)| *node != here)
    }

    /// The ranks of this node.
    fn ranks_near(&self) -> impl Iterator<Item = u32> {
        (0..self.near.size()).map(|place| self.near.name_of(place))
    }

    /// The blocks of this node's ranks.
    fn of_ranks_near(&self, all: &[Payload]) -> Vec<Payload> {
        let near = self.ranks_near();
        near.map(|rank| all[rank as usize].clone()).collect()
    }

    /// Handles the result of one part of the call. An error is recorded, and the call continues: the other nodes wait
    /// for this node's leader, which must forward the error. Only the error for a dead rank is returned, which ends the
    /// call.
    fn defer_error(&self, ended: Result<(), Error>) -> Result<(), Error> {
        match ended {
            Err(lost @ Error::Lost { .. }) => Err(lost),
            Err(error) => {
                self.call.note(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sends the leader's bytes to this node's ranks. After an error the leader sends an empty message instead, from
    /// which they detect the error.
    async fn send_near(&self, bytes: &mut [u8]) -> Result<(), Error> {
        match self.leads() && self.call.has_fault() {
            true => tree::send_fault(&self.near, bytes).await,
            false => bcast_plain(&self.near, bytes, self.leader).await,
        }
    }

    /// Combines the `input` of this node's ranks in the leader's `output`; the other ranks have no `output`.
    async fn reduce_near(
        &self,
        input: UserMemory,
        output: Option<UserMemory>,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let ended = reduce_plain(&self.near, input, output, self.leader, op).await;
        self.defer_error(ended)
    }
}

/// The index of the root among this node's ranks, if the root is on this node: it then leads the node. `None`: the root
/// is on another node, or the collective has no root.
pub(super) fn place_of_root(comm: &Comm, near: &Group, root: Option<u32>) -> Option<u32> {
    near.rank_of(comm.group.peer(root?)?)
}

/// In the first call by node, the ranks of each node agree on whether they have a board. The message about the board
/// does not have the tag of a call: a rank that took no part in the first call receives it in a later call.
async fn settle<V: Visit>(call: &CollectiveCall<V>, nodes: &CommNodes) -> Result<(), Error> {
    if nodes.is_settled() || !call.is_blocking() {
        return Ok(());
    }
    let (near, place) = nodes.near();
    let (comm, shape) = (call.comm(), call.shape());
    let can_share_board = near.size() > 1 && !comm.shares_context();
    let are_wanted = can_share_board && shape.boards && shape.board_bytes > 0;
    let is_there = if are_wanted && comm.context != WORLD_CONTEXT {
        let near = call.among(Subgroup {
            group: near.clone(),
            place,
            stand_in: None,
            seat: None,
            is_from_other_nodes: false,
        });
        let near = near.of_no_call();
        let mut claimed = [0];
        if place == 0 {
            claimed[0] = u8::from(call.visit(|universe| universe.claim_near_board(comm)));
            flat::bcast(&near, &claimed).await?;
        } else {
            near.receive(0, &mut claimed).await?;
        }
        claimed == [1]
    } else {
        are_wanted
    };
    // If this rank cannot take a seat at the board that was claimed, it releases its part of the board.
    let take = || call.visit(|universe| universe.take_near_seat(comm, near));
    nodes.settle(is_there.then(take).flatten());
    Ok(())
}

/// As [`barrier`](super::barrier).
pub(super) async fn barrier<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    by.defer_error(tree::arrive(&by.near).await)?;
    if by.leads() {
        barrier_messages(&by.across).await?;
    }
    by.send_near(&mut []).await
}

/// As [`bcast`](super::bcast), at a rank other than the root.
pub(super) async fn bcast<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    bytes: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, Some(root)).await?;
    if !by.leads() {
        return by.send_near(bytes).await;
    }
    let (across, root) = (&by.across, by.node_of(root));
    let from = tree::above(across, bytes.len(), root);
    across.receive(from, bytes).await?;
    let mut sent = across.pending();
    tree::start_below(&mut sent, across, bytes, root);
    let sent_near = by.send_near(bytes).await;
    sent.finish().await.and(sent_near)
}

/// As [`bcast_from_here`](super::bcast_from_here).
pub(super) async fn bcast_from_here<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    bytes: &[u8],
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, Some(call.rank())).await?;
    let mut sent = by.across.pending();
    tree::start_below(&mut sent, &by.across, bytes, by.across.rank());
    let sent_near = send_plain(&by.near, bytes).await;
    sent.finish().await.and(sent_near)
}

fn dense(bytes: &mut [u8]) -> Payload {
    Payload::Dense(UserMemory::of(bytes))
}
