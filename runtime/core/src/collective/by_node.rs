// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives of ranks on several nodes: what one node has to say to another goes over the network once. One rank of each node
//! speaks for it, its *leader*; the ranks of a node do their part over a board, or by messages in shared memory, and the leaders
//! theirs by messages, each as if it were a collective of its own.
//!
//! The leader is the rank of the node that comes first in the communicator; on the root's node, the root. All ranks know who leads:
//! they have the same map of the nodes ([`Nodes`]).
//!
//! Reductions combine the data of a node before those of the next one. Where the ranks of a node do not follow each other, that is
//! another order than that of ranks, so operations that may not commute go the way of the whole communicator. The same ranks on the
//! same nodes get the same bits.

use std::rc::Rc;

use super::blocks::{allgather_plain, alltoall_plain, gather_equal, scatter_equal};
use super::line::Part;
use super::reduce::{
    allreduce_messages, cut_mut, reduce_messages, reduce_plain, reduce_scatter_messages,
};
use super::scan::{exscan_plain, scan_plain};
use super::tree::{self, barrier_messages, bcast_plain, tell_plain};
use super::{Line, Reducer, Root, Shape, blocks, flat, various};
use crate::comm::{Comm, Group, WORLD_CONTEXT};
use crate::nodes::Nodes;
use crate::{Error, Payload, UserMemory, Visit};

/// How the ranks of this call are spread over nodes, if it goes by node.
#[inline]
pub(super) fn nodes_of<V: Visit>(line: &Line<V>, goes: bool) -> Option<Rc<Nodes>> {
    if !goes || line.is_part() || line.comm().has_board() {
        return None;
    }
    line.visit(|universe| universe.nodes_of(line.comm()))
}

/// The same of a call that combines data: not where their order counts and that of the nodes is another one.
pub(super) fn nodes_in_order<V: Visit>(
    line: &Line<V>,
    goes: bool,
    op: &impl Reducer,
) -> Option<Rc<Nodes>> {
    nodes_of(line, goes).filter(|nodes| nodes.are_in_order() || op.commutes())
}

/// Whether blocks of so many bytes of one rank each are carried by the leaders where nothing is chosen.
pub(super) fn carries(shape: &Shape, block: usize) -> bool {
    shape.boards && block <= shape.node_bytes
}

/// Whether data of so many bytes of each rank, which the ranks of a node combine twice, go by node where nothing is chosen.
pub(super) fn combines(shape: &Shape, bytes: usize) -> bool {
    shape.boards && (1..=shape.board_bytes).contains(&bytes)
}

/// One call, as seen from one rank.
struct ByNode<'a, V> {
    line: &'a Line<V>,
    nodes: Rc<Nodes>,
    /// The ranks of this node.
    near: Line<V>,
    /// The leaders, in the order of the nodes.
    across: Line<V>,
    /// The place of this node's leader among the ranks near it.
    leader: u32,
}

impl<'a, V: Visit> ByNode<'a, V> {
    /// `root`: the rank that leads its node, if it matters who does.
    async fn of(line: &'a Line<V>, nodes: Rc<Nodes>, root: Option<u32>) -> Result<Self, Error> {
        settle(line, &nodes).await?;
        let (near, place) = nodes.near();
        let near_root = place_of_root(line.comm(), near, root);
        let root = root.and_then(|root| line.comm().group.peer(root));
        let near = line.among(Part {
            group: near.clone(),
            place,
            stand_in: None,
            seat: nodes.seat(),
            hears_from_afar: near_root.is_none(),
        });
        let (leaders, node) = nodes.leaders();
        let across = line.among(Part {
            group: leaders.clone(),
            place: node,
            stand_in: root.and_then(|root| Some((nodes.place_of(root)?, root))),
            seat: None,
            hears_from_afar: false,
        });
        Ok(Self {
            line,
            nodes,
            near,
            across,
            leader: near_root.unwrap_or(0),
        })
    }

    /// Whether this rank speaks for its node.
    fn leads(&self) -> bool {
        self.near.rank() == self.leader
    }

    /// The leader as a root of the ranks near it.
    fn root(&self) -> Root {
        match self.leads() {
            true => Root::Here,
            false => Root::There(self.leader),
        }
    }

    /// The node of a rank, as a place among the leaders.
    fn node_of(&self, rank: u32) -> u32 {
        let peer = self.line.comm().group.peer(rank);
        peer.and_then(|peer| self.nodes.place_of(peer)).unwrap_or(0)
    }

    /// The ranks of each node, by the places of the nodes among the leaders.
    fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.across.size() as usize];
        for rank in 0..self.line.size() {
            members[self.node_of(rank) as usize].push(rank);
        }
        members
    }

    /// The ranks of this node.
    fn ranks_near(&self) -> impl Iterator<Item = u32> {
        (0..self.near.size()).map(|place| self.near.name_of(place))
    }

    /// What is wrong on one node is to be heard on all others: they wait for its leader, which goes on and sends nothing but that.
    fn go_on(&self, ended: Result<(), Error>) -> Result<(), Error> {
        match ended {
            Err(lost @ Error::Lost { .. }) => Err(lost),
            Err(error) => {
                self.line.note(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The leader's bytes go to the ranks near it; none, if something is wrong, which they notice.
    async fn tell_near(&self, bytes: &mut [u8]) -> Result<(), Error> {
        match self.leads() && self.line.has_fault() {
            true => tree::tell_of_fault(&self.near, bytes).await,
            false => bcast_plain(&self.near, bytes, self.leader).await,
        }
    }

    /// Combines the `input` of the ranks near this one in the leader's `output`, which is nowhere else.
    async fn reduce_near(
        &self,
        input: UserMemory,
        output: Option<UserMemory>,
        op: &impl Reducer,
    ) -> Result<(), Error> {
        let ended = reduce_plain(&self.near, input, output, self.leader, op).await;
        self.go_on(ended)
    }
}

/// The root's place among the ranks near this one, whom it leads then: nothing where it is on another node, or there is none.
pub(super) fn place_of_root(comm: &Comm, near: &Group, root: Option<u32>) -> Option<u32> {
    near.rank_of(comm.group.peer(root?)?)
}

/// The ranks of each node find out once whether they have a board. The word about it is of no call: one that could not take part in the
/// first finds it in a later one.
async fn settle<V: Visit>(line: &Line<V>, nodes: &Nodes) -> Result<(), Error> {
    if nodes.is_settled() || !line.is_blocking() {
        return Ok(());
    }
    let (near, place) = nodes.near();
    let (comm, shape) = (line.comm(), line.shape());
    let can_meet = near.size() > 1 && !comm.shares_context();
    let are_wanted = can_meet && shape.boards && shape.board_bytes > 0;
    let is_there = if are_wanted && comm.context != WORLD_CONTEXT {
        let near = line.among(Part {
            group: near.clone(),
            place,
            stand_in: None,
            seat: None,
            hears_from_afar: false,
        });
        let near = near.of_no_call();
        let mut claimed = [0];
        if place == 0 {
            claimed[0] = u8::from(line.visit(|universe| universe.claim_near_board(comm)));
            flat::bcast(&near, &claimed).await?;
        } else {
            near.receive(0, &mut claimed).await?;
        }
        claimed == [1]
    } else {
        are_wanted
    };
    // Where they share no memory that they may use, they give the board back.
    let take = || line.visit(|universe| universe.take_near_seat(comm, near));
    nodes.settle(is_there.then(take).flatten());
    Ok(())
}

/// As [`barrier`](super::barrier).
pub(super) async fn barrier<V: Visit>(line: &Line<V>, nodes: Rc<Nodes>) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    by.go_on(tree::arrive(&by.near).await)?;
    if by.leads() {
        barrier_messages(&by.across).await?;
    }
    by.tell_near(&mut []).await
}

/// As [`bcast`](super::bcast), at another rank than the root.
pub(super) async fn bcast<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    bytes: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, Some(root)).await?;
    if !by.leads() {
        return by.tell_near(bytes).await;
    }
    let (across, root) = (&by.across, by.node_of(root));
    let from = tree::above(across, bytes.len(), root);
    across.receive(from, bytes).await?;
    let mut sent = across.pending();
    tree::start_below(&mut sent, across, bytes, root);
    let told = by.tell_near(bytes).await;
    sent.finish().await.and(told)
}

/// As [`bcast_from_here`](super::bcast_from_here).
pub(super) async fn bcast_from_here<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    bytes: &[u8],
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, Some(line.rank())).await?;
    let mut sent = by.across.pending();
    tree::start_below(&mut sent, &by.across, bytes, by.across.rank());
    let told = tell_plain(&by.near, bytes).await;
    sent.finish().await.and(told)
}

/// As [`reduce`](super::reduce).
pub(super) async fn reduce<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    input: UserMemory,
    output: Option<UserMemory>,
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, Some(root)).await?;
    if !by.leads() {
        return by.reduce_near(input, None, op).await;
    }
    let mut partial = match output {
        Some(_) => Vec::new(),
        None => vec![0; input.bytes()],
    };
    let mut combined = output.unwrap_or_else(|| UserMemory::of(&mut partial));
    by.reduce_near(input, Some(combined), op).await?;
    reduce_messages(&by.across, combined.as_mut_slice(), by.node_of(root), op).await
}

/// As [`allreduce`](super::allreduce).
pub(super) async fn allreduce<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    let leads = by.leads();
    by.reduce_near(input, leads.then_some(output), op).await?;
    if leads {
        allreduce_messages(&by.across, output.as_mut_slice(), op).await?;
    }
    by.tell_near(output.as_mut_slice()).await
}

/// As [`reduce_scatter`](super::reduce_scatter) of `input` in parts of these lengths. The ranks of each node follow each other.
pub(super) async fn reduce_scatter<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    (input, lengths): (UserMemory, &[usize]),
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    let mine = Payload::Dense(output);
    if !by.leads() {
        by.reduce_near(input, None, op).await?;
        return various::scatter_various(&by.near, &[], Some(&mine), by.root()).await;
    }
    let mut combined = vec![0; input.bytes()];
    by.reduce_near(input, Some(UserMemory::of(&mut combined)), op)
        .await?;
    let length_of = |rank: u32| lengths[rank as usize];
    let of_nodes: Vec<usize> = by
        .members()
        .into_iter()
        .map(|ranks| ranks.into_iter().map(length_of).sum())
        .collect();
    let mut part = vec![0; of_nodes[by.across.rank() as usize]];
    reduce_scatter_messages(&by.across, &mut combined, &of_nodes, &mut part, op).await?;
    let of_near: Vec<usize> = by.ranks_near().map(length_of).collect();
    let parts: Vec<Payload> = cut_mut(&mut part, &of_near).map(dense).collect();
    various::scatter_various(&by.near, &parts, Some(&mine), by.root()).await
}

/// As [`scan`](super::scan). The ranks of each node follow each other.
pub(super) async fn scan<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    let before = before_node(&by, input, op).await?;
    by.go_on(scan_plain(&by.near, input, output, op).await)?;
    if let Some(before) = hear_before(&by, before, input.bytes()).await? {
        op.reduce(&before, output.as_mut_slice());
    }
    Ok(())
}

/// As [`exscan`](super::exscan). The ranks of each node follow each other.
pub(super) async fn exscan<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    let before = before_node(&by, input, op).await?;
    by.go_on(exscan_plain(&by.near, input, output, op).await)?;
    if let Some(before) = hear_before(&by, before, input.bytes()).await? {
        match by.near.rank() {
            0 => output.copy_from(UserMemory::of_const(&before)),
            _ => op.reduce(&before, output.as_mut_slice()),
        }
    }
    Ok(())
}

/// At the leader: the combination of what all ranks of the nodes before this one have.
async fn before_node<V: Visit>(
    by: &ByNode<'_, V>,
    input: UserMemory,
    op: &impl Reducer,
) -> Result<Option<Vec<u8>>, Error> {
    if !by.leads() {
        return by.reduce_near(input, None, op).await.map(|()| None);
    }
    let mut all = vec![0; input.bytes()];
    let all = UserMemory::of(&mut all);
    by.reduce_near(input, Some(all), op).await?;
    let mut before = vec![0; input.bytes()];
    exscan_plain(&by.across, all, UserMemory::of(&mut before), op).await?;
    Ok(Some(before))
}

/// The same at all ranks of the node; nothing on the first one.
async fn hear_before<V: Visit>(
    by: &ByNode<'_, V>,
    before: Option<Vec<u8>>,
    bytes: usize,
) -> Result<Option<Vec<u8>>, Error> {
    if by.across.rank() == 0 {
        return Ok(None);
    }
    let mut before = before.unwrap_or_else(|| vec![0; bytes]);
    by.tell_near(&mut before).await?;
    Ok((!by.line.has_fault()).then_some(before))
}

/// As [`allgather_bytes`](super::allgather_bytes).
pub(super) async fn allgather<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    all: &mut [u8],
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    let block = all.len() / line.size() as usize;
    let at = |rank: u32| rank as usize * block..(rank as usize + 1) * block;
    if !by.leads() {
        let mine = dense(&mut all[at(line.rank())]);
        by.go_on(gather_equal(&by.near, Some(&mine), &[], by.root()).await)?;
        return by.tell_near(all).await;
    }
    let near: Vec<Payload> = by
        .ranks_near()
        .map(|rank| dense(&mut all[at(rank)]))
        .collect();
    by.go_on(gather_equal(&by.near, None, &near, Root::Here).await)?;
    let members = by.members();
    if by.nodes.are_in_order() {
        exchange_all(&by, &members, all).await?;
    } else {
        let order = || members.iter().flatten().copied();
        let mut packed = Vec::with_capacity(all.len());
        order().for_each(|rank| packed.extend_from_slice(&all[at(rank)]));
        exchange_all(&by, &members, &mut packed).await?;
        for (rank, bytes) in order().zip(packed.chunks_exact(block)) {
            all[at(rank)].copy_from_slice(bytes);
        }
    }
    by.tell_near(all).await
}

/// The leaders tell each other the blocks of their nodes, which lie node by node; the own ones are there.
async fn exchange_all<V: Visit>(
    by: &ByNode<'_, V>,
    members: &[Vec<u32>],
    all: &mut [u8],
) -> Result<(), Error> {
    if by.nodes.are_even() {
        return allgather_plain(&by.across, all).await;
    }
    let block = all.len() / by.line.size() as usize;
    let lengths: Vec<usize> = members.iter().map(|ranks| ranks.len() * block).collect();
    let parts: Vec<Payload> = cut_mut(all, &lengths).map(dense).collect();
    blocks::allgather(&by.across, None, &parts).await
}

/// As [`alltoall_bytes`](super::alltoall_bytes).
pub(super) async fn alltoall<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    out: &[u8],
    into: &mut [u8],
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    let given = Payload::Dense(UserMemory::of_const(out));
    let taken = dense(into);
    if !by.leads() {
        by.go_on(gather_equal(&by.near, Some(&given), &[], by.root()).await)?;
        return scatter_equal(&by.near, &[], Some(&taken), by.root()).await;
    }
    let count = by.near.size() as usize;
    let mut rows = vec![0; count * out.len()];
    let near = parts_of(&mut rows, count);
    by.go_on(gather_equal(&by.near, Some(&given), &near, Root::Here).await)?;
    let members = by.members();
    let block = out.len() / line.size() as usize;
    // From each rank near this one to each rank of a node, node by node.
    let mut packed = Vec::with_capacity(rows.len());
    for ranks in &members {
        for row in rows.chunks_exact(out.len()) {
            for rank in ranks {
                packed.extend_from_slice(&row[*rank as usize * block..][..block]);
            }
        }
    }
    let mut come = vec![0; packed.len()];
    exchange_parcels(&by, &members, &mut packed, &mut come).await?;
    // From each rank of a node to each rank near this one.
    let mut parcels = come.chunks_exact(block);
    for rank in members.iter().flatten() {
        for (row, bytes) in rows.chunks_exact_mut(out.len()).zip(parcels.by_ref()) {
            row[*rank as usize * block..][..block].copy_from_slice(bytes);
        }
    }
    let near = parts_of(&mut rows, count);
    scatter_equal(&by.near, &near, Some(&taken), Root::Here).await
}

/// The leaders exchange what their nodes have for each other, which is as much in both directions.
async fn exchange_parcels<V: Visit>(
    by: &ByNode<'_, V>,
    members: &[Vec<u32>],
    packed: &mut [u8],
    come: &mut [u8],
) -> Result<(), Error> {
    if by.nodes.are_even() {
        return alltoall_plain(&by.across, packed, come).await;
    }
    let each = packed.len() / by.line.size() as usize;
    let lengths: Vec<usize> = members.iter().map(|ranks| ranks.len() * each).collect();
    let out: Vec<Payload> = cut_mut(packed, &lengths).map(dense).collect();
    let into: Vec<Payload> = cut_mut(come, &lengths).map(dense).collect();
    blocks::alltoall(&by.across, &out, &into).await
}

fn dense(bytes: &mut [u8]) -> Payload {
    Payload::Dense(UserMemory::of(bytes))
}

/// Bytes in so many parts of one length, which may be 0.
fn parts_of(bytes: &mut [u8], count: usize) -> Vec<Payload> {
    let each = bytes.len() / count;
    cut_mut(bytes, &vec![each; count]).map(dense).collect()
}
