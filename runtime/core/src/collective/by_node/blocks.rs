// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allgather and all-to-all [by node](super). Blocks between two nodes are sent together, in messages between the
//! leaders of the nodes.

use std::rc::Rc;

use super::super::blocks::{
    self, allgather_plain, alltoall_plain, gather_equal, own, scatter_equal,
};
use super::super::various::gather_various;
use super::{
    ByNodeCall, CollectiveCall, CollectiveRoot, CommNodes, Error, Payload, UserMemory, Visit,
    cut_mut, dense,
};

/// As [`allgather_bytes`](super::super::allgather_bytes).
pub(in super::super) async fn allgather<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    all: &mut [u8],
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let block = all.len() / call.size() as usize;
    let at = |rank: u32| rank as usize * block..(rank as usize + 1) * block;
    if !by.leads() {
        let mine = dense(&mut all[at(call.rank())]);
        by.defer_error(gather_equal(&by.near, Some(&mine), &[], by.root()).await)?;
        return by.send_near(all).await;
    }
    let near: Vec<Payload> = by
        .ranks_near()
        .map(|rank| dense(&mut all[at(rank)]))
        .collect();
    by.defer_error(gather_equal(&by.near, None, &near, CollectiveRoot::Here).await)?;
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
    by.send_near(all).await
}

/// As [`allgather_various`](super::super::allgather_various).
pub(in super::super) async fn allgather_various<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    mine: Option<&Payload>,
    all: &[Payload],
) -> Result<(), Error> {
    let Some(given) = mine.or_else(|| own(call, all)) else {
        return Ok(());
    };
    let by = ByNodeCall::of(call, nodes, None).await?;
    let members = by.members();
    let order = || members.iter().flatten().map(|rank| &all[*rank as usize]);
    // The blocks are collected in node order. If the application's buffers are adjacent in that order, they are
    // collected there, else in a copy.
    let mut aside = Vec::new();
    let in_place = one_after_the_other(order());
    let whole = in_place.unwrap_or_else(|| {
        let bytes: u64 = order().map(Payload::bytes).sum();
        aside.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        UserMemory::of(&mut aside)
    });
    let parts = parts_of_lengths(whole, order().map(Payload::bytes));
    if by.leads() {
        let first = members[..by.across.rank() as usize].iter().map(Vec::len);
        let first: usize = first.sum();
        let near = &parts[first..first + by.near.size() as usize];
        let given = if in_place.is_some() {
            mine
        } else {
            Some(given)
        };
        by.defer_error(gather_various(&by.near, given, near, CollectiveRoot::Here).await)?;
        let mut parts = parts.iter();
        let of_node = |ranks: &Vec<u32>| parts.by_ref().take(ranks.len()).map(Payload::bytes).sum();
        let of_nodes: Vec<u64> = members.iter().map(of_node).collect();
        let nodes = parts_of_lengths(whole, of_nodes.into_iter());
        blocks::allgather(&by.across, None, &nodes).await?;
    } else {
        by.defer_error(gather_various(&by.near, Some(given), &[], by.root()).await)?;
    }
    let mut result = whole;
    by.send_near(result.as_mut_slice()).await?;
    if in_place.is_none() {
        let mut copies = parts.iter().zip(order());
        copies.try_for_each(|(part, place)| part.copy_to(place))?;
    }
    Ok(())
}

/// The blocks as one range; `None`: they are not adjacent in this order.
fn one_after_the_other<'a>(blocks: impl Iterator<Item = &'a Payload>) -> Option<UserMemory> {
    let mut whole: Option<UserMemory> = None;
    for block in blocks {
        let Payload::Dense(block) = *block else {
            return None;
        };
        whole = match whole {
            _ if block.bytes() == 0 => whole,
            None => Some(block),
            Some(whole) => Some(whole.joined(block)?),
        };
    }
    whole
}

/// Consecutive parts of a range of memory.
fn parts_of_lengths(whole: UserMemory, lengths: impl Iterator<Item = u64>) -> Vec<Payload> {
    let parts = lengths.scan(0, |start, bytes| {
        let from = *start;
        *start += usize::try_from(bytes).unwrap_or(usize::MAX);
        Some(Payload::Dense(whole.part(from..*start)))
    });
    parts.collect()
}

/// The leaders exchange the blocks of their nodes. Blocks are stored in node order, and those of this node are already
/// in place.
async fn exchange_all<V: Visit>(
    by: &ByNodeCall<'_, V>,
    members: &[Vec<u32>],
    all: &mut [u8],
) -> Result<(), Error> {
    if by.nodes.are_even() {
        return allgather_plain(&by.across, all).await;
    }
    let block = all.len() / by.call.size() as usize;
    let lengths: Vec<usize> = members.iter().map(|ranks| ranks.len() * block).collect();
    let parts: Vec<Payload> = cut_mut(all, &lengths).map(dense).collect();
    blocks::allgather(&by.across, None, &parts).await
}

/// As [`alltoall_bytes`](super::super::alltoall_bytes).
pub(in super::super) async fn alltoall<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    out: &[u8],
    into: &mut [u8],
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let given = Payload::Dense(UserMemory::of_const(out));
    let taken = dense(into);
    if !by.leads() {
        by.defer_error(gather_equal(&by.near, Some(&given), &[], by.root()).await)?;
        return scatter_equal(&by.near, &[], Some(&taken), by.root()).await;
    }
    let count = by.near.size() as usize;
    let mut rows = vec![0; count * out.len()];
    let near = parts_of(&mut rows, count);
    by.defer_error(gather_equal(&by.near, Some(&given), &near, CollectiveRoot::Here).await)?;
    let members = by.members();
    let block = out.len() / call.size() as usize;
    // The order of the blocks is: by receiving node, then by sender on this node, then by receiver.
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
    // The order of the blocks is: by sending node, then by sender, then by receiver on this node.
    let mut parcels = come.chunks_exact(block);
    for rank in members.iter().flatten() {
        for (row, bytes) in rows.chunks_exact_mut(out.len()).zip(parcels.by_ref()) {
            row[*rank as usize * block..][..block].copy_from_slice(bytes);
        }
    }
    let near = parts_of(&mut rows, count);
    scatter_equal(&by.near, &near, Some(&taken), CollectiveRoot::Here).await
}

/// The leaders exchange the blocks between their nodes. Two nodes send each other the same number of bytes.
async fn exchange_parcels<V: Visit>(
    by: &ByNodeCall<'_, V>,
    members: &[Vec<u32>],
    packed: &mut [u8],
    come: &mut [u8],
) -> Result<(), Error> {
    if by.nodes.are_even() {
        return alltoall_plain(&by.across, packed, come).await;
    }
    let each = packed.len() / by.call.size() as usize;
    let lengths: Vec<usize> = members.iter().map(|ranks| ranks.len() * each).collect();
    let out: Vec<Payload> = cut_mut(packed, &lengths).map(dense).collect();
    let into: Vec<Payload> = cut_mut(come, &lengths).map(dense).collect();
    blocks::alltoall(&by.across, &out, &into).await
}

/// `count` parts of equal length, which may be 0.
fn parts_of(bytes: &mut [u8], count: usize) -> Vec<Payload> {
    let each = bytes.len() / count;
    cut_mut(bytes, &vec![each; count]).map(dense).collect()
}
