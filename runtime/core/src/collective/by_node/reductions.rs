// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions and scans by node: the data of a node are combined before those of the next one.

use std::rc::Rc;

use super::super::reduce::{
    allreduce_messages, reduce_messages, reduce_scatter as reduce_scatter_near,
    reduce_scatter_messages, slices,
};
use super::super::scan::{exscan_plain, scan_plain};
use super::super::various;
use super::{ByNode, Error, Line, Nodes, Payload, Reducer, UserMemory, Visit, cut_mut, dense};

/// As [`reduce`](super::super::reduce).
pub(in super::super) async fn reduce<V: Visit>(
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

/// As [`allreduce`](super::super::allreduce).
pub(in super::super) async fn allreduce<V: Visit>(
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

/// As [`allreduce`], of so many bytes that one rank of a node would take long to talk to other nodes for all: each combines a slice of the
/// data of its node, then with the ranks that have the same slice on other nodes, and tells it those near it.
pub(in super::super) async fn allreduce_in_slices<V: Visit>(
    line: &Line<V>,
    nodes: Rc<Nodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNode::of(line, nodes, None).await?;
    let leaders = by.nodes.common_places() as usize;
    let mut lengths = slices(input.bytes(), leaders, op.item_bytes());
    lengths.resize(by.near.size() as usize, 0);
    let mut slice = vec![0; lengths[by.near.rank() as usize]];
    let own = UserMemory::of(&mut slice);
    by.go_on(reduce_scatter_near(&by.near, input, &lengths, own, op).await)?;
    if (by.near.rank() as usize) < leaders {
        allreduce_messages(&by.same_place(), &mut slice, op).await?;
    }
    let mine = dense(&mut slice);
    let all: Vec<Payload> = cut_mut(output.as_mut_slice(), &lengths)
        .map(dense)
        .collect();
    various::allgather_various(&by.near, Some(&mine), &all).await
}

/// As [`reduce_scatter`](super::super::reduce_scatter) of `input` in parts of these lengths. The ranks of each node follow each other.
pub(in super::super) async fn reduce_scatter<V: Visit>(
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

/// As [`scan`](super::super::scan). The ranks of each node follow each other.
pub(in super::super) async fn scan<V: Visit>(
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

/// As [`exscan`](super::super::exscan). The ranks of each node follow each other.
pub(in super::super) async fn exscan<V: Visit>(
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
