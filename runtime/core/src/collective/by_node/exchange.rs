// SPDX-License-Identifier: MIT OR Apache-2.0
//! All-to-all [by node](super) of blocks whose lengths are known only to sender and receiver. The blocks from one node
//! to another are sent in two messages between the leaders of these nodes, not in one message for each pair of ranks.
//!
//! Blocks for ranks of the own node are sent directly. For the other blocks a rank gives its leader a table of their
//! lengths, followed by the blocks. The first message between two leaders has the lengths (a row for each sender, with
//! an entry for each receiver), the second message has the blocks in the same order. Then each leader sends the ranks
//! of its node the lengths of their blocks, and the blocks. A block of more than `RMPI_NODE_LIMIT` bytes is sent
//! directly to its rank, and only its length goes through the leaders. A receiver follows these lengths, not the
//! lengths that it expects, so all ranks complete even if some disagree.

use std::ops::Range;
use std::rc::Rc;

use super::super::blocks::{gather_equal, scatter_equal};
use super::super::various::{self, read_into};
use super::{ByNodeCall, CollectiveCall, CollectiveRoot, CommNodes, Error, Payload, Visit, dense};

/// As [`alltoall_various`](super::super::alltoall_various).
pub(in super::super) async fn alltoall_various<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    out: &[Payload],
    into: &[Payload],
) -> Result<(), Error> {
    let by = ByNodeCall::of(call, nodes, None).await?;
    let far = RemoteRanks::of(&by);
    let mut given = Parcel::default();
    for rank in &far.ranks {
        let block = &out[*rank as usize];
        given.lengths.push(block.bytes());
        if far.together(block.bytes()).is_some() {
            given.blocks.extend_from_slice(&block.to_dense());
        }
    }
    let got = match by.leads() {
        true => lead(&by, &far, given).await,
        false => follow(&by, &far, given).await,
    }?;
    // Receives for blocks that are sent directly are posted only now: the sender may be a leader, and it sends such
    // blocks after its messages to this leader.
    let mut alone = call.pending();
    let mut rest = &got.blocks[..];
    for (rank, bytes) in far.ranks.iter().zip(&got.lengths) {
        let place = &into[*rank as usize];
        match far.together(*bytes) {
            None => alone.receive_payload(*rank, place),
            Some(bytes) => {
                let block = rest.split_off(..bytes).unwrap_or(&[]);
                let taken = read_into(place, block.len(), |into| into.copy_from_slice(block));
                taken.unwrap_or_else(|error| call.note(error));
            }
        }
    }
    for rank in &far.ranks {
        let block = &out[*rank as usize];
        if far.together(block.bytes()).is_none() {
            alone.send_payload(*rank, block);
        }
    }
    // After an error on this node the lengths of its blocks are still sent, because other nodes need them to know which
    // messages follow.
    let (near_out, near_into) = (by.of_ranks_near(out), by.of_ranks_near(into));
    let near = Box::pin(various::alltoall_various(&by.near, &near_out, &near_into)).await;
    near.and(alone.finish().await)
}

/// The ranks on other nodes.
struct RemoteRanks {
    /// The ranks, node by node.
    ranks: Vec<u32>,
    /// Each node's index among the leaders, and the range of its ranks.
    nodes: Vec<(u32, Range<usize>)>,
    /// Largest block, in bytes, that is sent together with other blocks.
    limit: u64,
}

impl RemoteRanks {
    fn of<V: Visit>(by: &ByNodeCall<'_, V>) -> Self {
        let mut far = Self {
            ranks: Vec::new(),
            nodes: Vec::new(),
            limit: by.call.shape().node_bytes as u64,
        };
        for (node, ranks) in by.other_nodes() {
            let start = far.ranks.len();
            far.ranks.extend(ranks);
            far.nodes.push((node, start..far.ranks.len()));
        }
        far
    }

    /// The length of a block of `bytes` bytes, if it is sent together with other blocks; `None`: the block is sent
    /// directly.
    fn together(&self, bytes: u64) -> Option<usize> {
        let bytes = usize::try_from(bytes).ok()?;
        (bytes as u64 <= self.limit).then_some(bytes)
    }

    /// A parcel with the lengths in `table`, and with room for the blocks that are sent together.
    fn parcel(&self, table: &[u8]) -> Parcel {
        let lengths = from_bytes(table);
        let blocks = vec![0; self.sum(&lengths)];
        Parcel { lengths, blocks }
    }

    /// The total number of bytes of those blocks that are sent together. `lengths`: the lengths of all blocks.
    fn sum(&self, lengths: &[u64]) -> usize {
        lengths
            .iter()
            .filter_map(|bytes| self.together(*bytes))
            .sum()
    }
}

/// Blocks that are sent together, and the lengths of all blocks.
#[derive(Clone, Debug, Default)]
struct Parcel {
    lengths: Vec<u64>,
    blocks: Vec<u8>,
}

/// The part of a rank that is not the leader: gives the leader its blocks for other nodes, and gets the blocks for it.
async fn follow<V: Visit>(
    by: &ByNodeCall<'_, V>,
    far: &RemoteRanks,
    given: Parcel,
) -> Result<Parcel, Error> {
    let mut table = to_bytes(&given.lengths);
    let place = dense(&mut table);
    by.defer_error(gather_equal(&by.near, Some(&place), &[], by.root()).await)?;
    if !given.blocks.is_empty() {
        by.defer_error(by.near.send(by.leader, &given.blocks).await)?;
    }
    by.defer_error(scatter_equal(&by.near, &[], Some(&place), by.root()).await)?;
    let mut got = far.parcel(&table);
    if !got.blocks.is_empty() {
        by.defer_error(by.near.receive(by.leader, &mut got.blocks).await)?;
    }
    Ok(got)
}

/// The part of a leader: forwards the blocks of its node's ranks, and the blocks for them.
async fn lead<V: Visit>(
    by: &ByNodeCall<'_, V>,
    far: &RemoteRanks,
    given: Parcel,
) -> Result<Parcel, Error> {
    let given = collect(by, far, given).await?;
    let come = exchange(by, far, &given).await?;
    let mut got = vec![Parcel::default(); given.len()];
    for come in &come {
        let mut rest = &come.blocks[..];
        for row in come.lengths.chunks_exact(got.len()) {
            for (got, bytes) in got.iter_mut().zip(row) {
                got.lengths.push(*bytes);
                let block = rest.split_off(..far.together(*bytes).unwrap_or(0));
                got.blocks.extend_from_slice(block.unwrap_or(&[]));
            }
        }
    }
    distribute(by, got).await
}

/// Collects from each rank of this node its blocks for other nodes.
async fn collect<V: Visit>(
    by: &ByNodeCall<'_, V>,
    far: &RemoteRanks,
    own: Parcel,
) -> Result<Vec<Parcel>, Error> {
    let mut tables = vec![to_bytes(&own.lengths); by.near.size() as usize];
    let places: Vec<Payload> = tables.iter_mut().map(|table| dense(table)).collect();
    by.defer_error(gather_equal(&by.near, None, &places, CollectiveRoot::Here).await)?;
    let mut given: Vec<Parcel> = tables.iter().map(|table| far.parcel(table)).collect();
    let mut coming = by.near.pending();
    for (rank, parcel) in (0..).zip(&mut given) {
        if rank != by.leader && !parcel.blocks.is_empty() {
            coming.receive(rank, &mut parcel.blocks);
        }
    }
    by.defer_error(coming.finish().await)?;
    given[by.leader as usize] = own;
    Ok(given)
}

/// Exchanges the blocks with the other leaders. Each message of lengths has a row for each rank of the sending node.
async fn exchange<V: Visit>(
    by: &ByNodeCall<'_, V>,
    far: &RemoteRanks,
    given: &[Parcel],
) -> Result<Vec<Parcel>, Error> {
    let mut rests: Vec<&[u8]> = given.iter().map(|parcel| &parcel.blocks[..]).collect();
    let (mut sent, mut coming) = (by.across.pending(), by.across.pending());
    let table = |ranks: &Range<usize>| vec![0; ranks.len() * given.len() * LENGTH_BYTES];
    let mut tables: Vec<Vec<u8>> = far.nodes.iter().map(|(_, ranks)| table(ranks)).collect();
    for ((node, _), table) in far.nodes.iter().zip(&mut tables) {
        coming.receive(*node, table);
    }
    let is_wrong = by.call.has_fault();
    let mut messages = Vec::new();
    for (_, ranks) in &far.nodes {
        let (mut table, mut blocks) = (Vec::new(), Vec::new());
        for (parcel, rest) in given.iter().zip(&mut rests) {
            let lengths = &parcel.lengths[ranks.clone()];
            table.extend(to_bytes(lengths));
            blocks.extend_from_slice(rest.split_off(..far.sum(lengths)).unwrap_or(&[]));
        }
        messages.push((table, blocks));
    }
    for ((node, _), (table, blocks)) in far.nodes.iter().zip(&messages) {
        sent.send(*node, table);
        if !blocks.is_empty() && !is_wrong {
            sent.send(*node, blocks);
        }
    }
    let lengths = by.defer_error(coming.finish().await);
    let mut come: Vec<Parcel> = tables.iter().map(|table| far.parcel(table)).collect();
    let mut coming = by.across.pending();
    for ((node, _), parcel) in far.nodes.iter().zip(&mut come) {
        if lengths.is_ok() && !parcel.blocks.is_empty() {
            coming.receive(*node, &mut parcel.blocks);
        }
    }
    let ended = lengths.and(by.defer_error(coming.finish().await));
    if ended.is_err() {
        // A rank is dead, which also ends the call at the other leaders. They will not receive these messages.
        sent.take_back();
    }
    let sent = by.defer_error(sent.finish().await);
    ended.and(sent).map(|()| come)
}

/// Gives each rank of this node the blocks for it.
async fn distribute<V: Visit>(
    by: &ByNodeCall<'_, V>,
    mut got: Vec<Parcel>,
) -> Result<Parcel, Error> {
    let mut tables: Vec<Vec<u8>> = got.iter().map(|parcel| to_bytes(&parcel.lengths)).collect();
    let places: Vec<Payload> = tables.iter_mut().map(|table| dense(table)).collect();
    by.defer_error(scatter_equal(&by.near, &places, None, CollectiveRoot::Here).await)?;
    let mut sent = by.near.pending();
    for (rank, parcel) in (0..).zip(&got) {
        if rank != by.leader && !parcel.blocks.is_empty() {
            sent.send(rank, &parcel.blocks);
        }
    }
    sent.finish().await?;
    Ok(got.swap_remove(by.leader as usize))
}

fn to_bytes(lengths: &[u64]) -> Vec<u8> {
    lengths
        .iter()
        .flat_map(|bytes| bytes.to_ne_bytes())
        .collect()
}

fn from_bytes(table: &[u8]) -> Vec<u64> {
    let (lengths, _) = table.as_chunks::<LENGTH_BYTES>();
    lengths.iter().copied().map(u64::from_ne_bytes).collect()
}

const LENGTH_BYTES: usize = size_of::<u64>();
/// Up to this number of ranks, each rank makes a table of the lengths of its blocks.
pub(in super::super) const TABLED_RANKS: u32 = 4096;
