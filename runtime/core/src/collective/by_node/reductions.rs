// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions and scans [by node](super): the data of one node are combined before those of the next node.

use std::rc::Rc;

use super::super::reduce::{
    allreduce_messages, reduce_messages, reduce_scatter as reduce_scatter_near,
    reduce_scatter_messages, slices,
};
use super::super::scan::{exscan_plain, scan_plain};
use super::super::various;
use super::{
    ByNodeCall, CollectiveCall, CollectiveRoot, CommNodes, Error, Payload, Reducer, UserMemory,
    Visit, cut, cut_mut, dense,
};

/// As [`reduce`](super::super::reduce).
pub(in super::super) async fn reduce<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    input: UserMemory,
    output: Option<UserMemory>,
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, Some(root)).await?;
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

/// As [`reduce`](super::super::reduce), of so many bytes that it would take long if only the leaders exchanged them.
/// Each rank combines a slice of the data of its node. The ranks of the root's node combine their slices with those of
/// the ranks of other nodes that have the same slice. The root collects the slices.
pub(in super::super) async fn reduce_in_slices<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    input: UserMemory,
    output: Option<UserMemory>,
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let (lengths, mut slice) = by.combine_slice(input, op).await?;
    let node = by.node_of(root);
    if let Some(same_place) = by.same_place() {
        reduce_messages(&same_place, &mut slice, node, op).await?;
    }
    if by.across.rank() != node {
        return Ok(());
    }
    let mine = dense(&mut slice);
    let Some(mut output) = output else {
        let root = CollectiveRoot::There(by.place_near(root));
        return various::gather_various(&by.near, Some(&mine), &[], root).await;
    };
    let all: Vec<Payload> = cut_mut(output.as_mut_slice(), &lengths)
        .map(dense)
        .collect();
    various::gather_various(&by.near, Some(&mine), &all, CollectiveRoot::Here).await
}

/// As [`allreduce`](super::super::allreduce).
pub(in super::super) async fn allreduce<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let leads = by.leads();
    by.reduce_near(input, leads.then_some(output), op).await?;
    if leads {
        allreduce_messages(&by.across, output.as_mut_slice(), op).await?;
    }
    by.send_near(output.as_mut_slice()).await
}

/// As [`allreduce`], of so many bytes that it would take long if only the leaders exchanged them. Each rank combines a
/// slice of the data of its node, then combines it with the ranks of other nodes that have the same slice, and sends
/// the result to the other ranks of its node.
pub(in super::super) async fn allreduce_in_slices<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let (lengths, mut slice) = by.combine_slice(input, op).await?;
    if let Some(same_place) = by.same_place() {
        allreduce_messages(&same_place, &mut slice, op).await?;
    }
    let mine = dense(&mut slice);
    let all: Vec<Payload> = cut_mut(output.as_mut_slice(), &lengths)
        .map(dense)
        .collect();
    various::allgather_various(&by.near, Some(&mine), &all).await
}

/// As [`reduce_scatter`](super::super::reduce_scatter) of `input` in parts of `lengths` bytes. The ranks of each node
/// must be consecutive.
pub(in super::super) async fn reduce_scatter<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    (input, lengths): (UserMemory, &[usize]),
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
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

/// As [`reduce_scatter`], of so many bytes that it would take long if only the leaders exchanged them. First each rank
/// combines the data of its node, for the parts of all ranks that have its index on their nodes. Then the ranks with
/// the same index exchange these results and combine them. All nodes must have the same number of ranks.
pub(in super::super) async fn reduce_scatter_in_slices<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    (input, lengths): (UserMemory, &[usize]),
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let parts: Vec<&[u8]> = cut(input.as_slice(), lengths).collect();
    let members = by.members();
    let at_place = |place: usize| members.iter().map(move |ranks| ranks[place] as usize);
    let places = by.near.size() as usize;
    let by_place: Vec<&[u8]> = (0..places)
        .flat_map(at_place)
        .map(|rank| parts[rank])
        .collect();
    let by_place = by_place.concat();
    let of_places: Vec<usize> = (0..places)
        .map(|place| at_place(place).map(|rank| lengths[rank]).sum())
        .collect();
    let place = by.near.rank() as usize;
    let mut slice = vec![0; of_places[place]];
    let (all, own) = (UserMemory::of_const(&by_place), UserMemory::of(&mut slice));
    by.defer_error(reduce_scatter_near(&by.near, all, &of_places, own, op).await)?;
    let of_nodes: Vec<usize> = at_place(place).map(|rank| lengths[rank]).collect();
    let Some(same_place) = by.same_place() else {
        return Ok(());
    };
    reduce_scatter_messages(
        &same_place,
        &mut slice,
        &of_nodes,
        output.as_mut_slice(),
        op,
    )
    .await
}

/// As [`scan`](super::super::scan). The ranks of each node must be consecutive.
pub(in super::super) async fn scan<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let before = before_node(&by, input, op).await?;
    by.defer_error(scan_plain(&by.near, input, output, op).await)?;
    if let Some(before) = receive_before(&by, before, input.bytes()).await? {
        op.reduce(&before, output.as_mut_slice());
    }
    Ok(())
}

/// As [`exscan`](super::super::exscan). The ranks of each node must be consecutive.
pub(in super::super) async fn exscan<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let before = before_node(&by, input, op).await?;
    by.defer_error(exscan_plain(&by.near, input, output, op).await)?;
    if let Some(before) = receive_before(&by, before, input.bytes()).await? {
        match by.near.rank() {
            0 => output.copy_from(UserMemory::of_const(&before)),
            _ => op.reduce(&before, output.as_mut_slice()),
        }
    }
    Ok(())
}

impl<V: Visit> ByNodeCall<'_, V> {
    /// Combines a slice of the data of this node. Returns the lengths of all slices, and this rank's slice. There are
    /// as many slices as the smallest node has ranks; further ranks have empty slices.
    async fn combine_slice(
        &self,
        input: UserMemory,
        op: &impl Reducer,
    ) -> Result<(Vec<usize>, Vec<u8>), Error> {
        let leaders = self.nodes.common_places() as usize;
        let mut lengths = slices(input.bytes(), leaders, op.item_bytes());
        lengths.resize(self.near.size() as usize, 0);
        let mut slice = vec![0; lengths[self.near.rank() as usize]];
        let own = UserMemory::of(&mut slice);
        self.defer_error(reduce_scatter_near(&self.near, input, &lengths, own, op).await)?;
        Ok((lengths, slice))
    }
}

/// The combined data of all ranks on earlier nodes, for the leader of this node.
async fn before_node<V: Visit>(
    by: &ByNodeCall<'_, V>,
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

/// The combined data of all ranks on earlier nodes, at all ranks of this node. `None`: this is the first node, or there
/// was an error.
async fn receive_before<V: Visit>(
    by: &ByNodeCall<'_, V>,
    before: Option<Vec<u8>>,
    bytes: usize,
) -> Result<Option<Vec<u8>>, Error> {
    if by.across.rank() == 0 {
        return Ok(None);
    }
    let mut before = before.unwrap_or_else(|| vec![0; bytes]);
    by.send_near(&mut before).await?;
    Ok((!by.call.has_fault()).then_some(before))
}
