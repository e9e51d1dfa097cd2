// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions (MPI 5.0 sections 6.9 to 6.11). The order of combination depends only on the number of ranks, their
//! nodes, the number of bytes and the settings, so the same ranks with the same data get bitwise equal results. Data
//! are combined in rank order, so operations need not commute. Another order is used only for operations that commute.

use super::board::BoardCall;
use super::board_note::RoundKind;
use super::by_node::Across;
use super::choice;
use super::large::{self, FoldedRanks};
use super::pieces::{Pieces, Results};
use super::tree::bcast_messages;
use super::{CollectiveCall, CollectiveRoot, by_node, flat};
use crate::{Error, Payload, UserMemory, Visit};

/// An operation on dense items of one datatype.
pub trait Reducer {
    /// `inout = input op inout`, item by item.
    fn reduce(&self, input: &[u8], inout: &mut [u8]);

    /// Number of bytes of an item. Data are never cut inside an item.
    fn item_bytes(&self) -> usize;

    /// Whether the operation commutes. Then data may be combined in any order, and many small items with few calls.
    fn commutes(&self) -> bool {
        false
    }
}

/// Combines the `input` of all ranks. Only the root has an `output`, which may be the same memory as its `input`.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn reduce<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: Option<UserMemory>,
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let shape = call.shape();
    let applies = shape.choice.reduce.by_node(shape.boards) && input.bytes() > 0;
    if let Some(nodes) = by_node::nodes_in_order(call, applies, op) {
        let size = (input.bytes(), call.size());
        match Across::of_reduce(&shape, &nodes, size, op) {
            Across::Leaders => {
                return Box::pin(by_node::reduce(call, nodes, input, output, root, op)).await;
            }
            Across::Slices => {
                let ended = by_node::reduce_in_slices(call, nodes, input, output, root, op);
                return Box::pin(ended).await;
            }
            Across::Ring => {
                let mut bytes = input.as_slice().to_vec();
                let ended = large::reduce_ring(call, &mut bytes, root, op);
                Box::pin(ended).await?;
                if let Some(output) = output {
                    output.copy_from(UserMemory::of_const(&bytes));
                }
                return Ok(());
            }
        }
    }
    reduce_plain(call, input, output, root, op).await
}

/// As [`reduce`], without grouping the ranks by node.
pub(super) async fn reduce_plain<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: Option<UserMemory>,
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let board_choice = call.shape().choice.reduce.board();
    if input.bytes() > call.shape().board_bytes
        && let Some(pieces) = Pieces::of_even(call, input.bytes(), op.item_bytes(), board_choice)
    {
        let results = output.map_or(Results::None, Results::All);
        let ended = pieces.combine(RoundKind::Reduce, input, results, op);
        return Box::pin(ended).await;
    }
    if input.bytes() > 0
        && let Some(board) = BoardCall::of(call, input.bytes(), board_choice)
    {
        return board.reduce(input, output, op).await;
    }
    match output {
        Some(mut output) => {
            output.copy_from(input);
            reduce_bytes(call, output.as_mut_slice(), root, op).await
        }
        None => {
            let mut bytes = input.as_slice().to_vec();
            reduce_bytes(call, &mut bytes, root, op).await
        }
    }
}

/// Combines the bytes of all ranks in the root's `bytes`. The contents of the other ranks' `bytes` are destroyed.
pub(super) async fn reduce_bytes<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    let board_choice = call.shape().choice.reduce.board();
    if let Some(board) = BoardCall::of(call, bytes.len(), board_choice) {
        let memory = UserMemory::of(bytes);
        let output = (call.rank() == root).then_some(memory);
        return board.reduce(memory, output, op).await;
    }
    Box::pin(reduce_messages(call, bytes, root, op)).await
}

/// As [`reduce_bytes`], with messages only.
pub(super) async fn reduce_messages<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    use choice::Reduce::{Auto, Board as OverBoard, Flat, Nodes, Slices, Tree};
    if bytes.is_empty() {
        return Ok(());
    }
    let shape = call.shape();
    match shape.choice.reduce {
        Flat => return flat::reduce(call, bytes, root, op).await,
        Slices => return large::reduce_slices(call, bytes, root, op).await,
        Auto | OverBoard | Nodes if shape.is_flat(bytes.len()) => {
            return flat::reduce(call, bytes, root, op).await;
        }
        Auto | OverBoard | Nodes | Tree => {}
    }
    combine_at_zero(call, bytes, op).await?;
    if root == 0 {
        return Ok(());
    }
    match call.rank() {
        0 => call.send(root, bytes).await,
        rank if rank == root => call.receive(0, bytes).await,
        _ => Ok(()),
    }
}

/// Combines the `input` of all ranks in the `output` of each rank, which may be the same memory.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn allreduce<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let shape = call.shape();
    let applies = shape.choice.allreduce.by_node(shape.boards) && input.bytes() > 0;
    if let Some(nodes) = by_node::nodes_in_order(call, applies, op) {
        match Across::of_allreduce(&shape, &nodes, (input.bytes(), call.size()), op) {
            Across::Leaders => {
                return Box::pin(by_node::allreduce(call, nodes, input, output, op)).await;
            }
            Across::Slices => {
                let ended = by_node::allreduce_in_slices(call, nodes, input, output, op);
                return Box::pin(ended).await;
            }
            Across::Ring => {
                output.copy_from(input);
                return Box::pin(large::allreduce_ring(call, output.as_mut_slice(), op)).await;
            }
        }
    }
    let board_choice = call.shape().choice.allreduce.board();
    if input.bytes() <= call.shape().board_whole_bytes / call.size() as usize
        && let Some(board) = BoardCall::of(call, input.bytes(), board_choice)
    {
        output.copy_from(input);
        return board.allreduce(output.as_mut_slice(), op).await;
    }
    if let Some(pieces) = Pieces::of_even(call, input.bytes(), op.item_bytes(), board_choice) {
        let ended = pieces.combine(RoundKind::Allreduce, input, Results::All(output), op);
        return Box::pin(ended).await;
    }
    output.copy_from(input);
    // The future is boxed here: otherwise the future of a call over a board would be as large as that of the largest
    // algorithm.
    Box::pin(allreduce_messages(call, output.as_mut_slice(), op)).await
}

/// As [`allreduce`], with messages only.
pub(super) async fn allreduce_messages<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    use choice::Allreduce::{
        Auto, Board as OverBoard, Halves, Nodes, Ring, Rooted, Rounds, Slices,
    };
    let shape = call.shape();
    let algorithm = match shape.choice.allreduce {
        Auto | OverBoard | Nodes if shape.is_sliced(bytes.len(), call.size()) => {
            let round = op.commutes() && shape.goes_round(bytes.len(), call.size());
            if round { Ring } else { Slices }
        }
        Auto | OverBoard | Nodes if !shape.flat && bytes.len() <= shape.flat_bytes => Rounds,
        Auto | OverBoard | Nodes => Rooted,
        Ring if !op.commutes() => Slices,
        chosen => chosen,
    };
    match algorithm {
        Halves => large::allreduce_halves(call, bytes, op).await,
        Ring => large::allreduce_ring(call, bytes, op).await,
        Rounds => allreduce_doubling(call, bytes, op).await,
        Slices => allreduce_sliced(call, bytes, op).await,
        Auto | OverBoard | Nodes | Rooted => {
            reduce_messages(call, bytes, 0, op).await?;
            bcast_messages(call, bytes, 0).await
        }
    }
}

/// Combines the `input` of all ranks. `output` gets the part of this rank. `lengths`: the bytes of each rank's part, in
/// order.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn reduce_scatter<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    lengths: &[usize],
    mut output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    if let Some((nodes, across)) = by_node::of_reduce_scatter(call, lengths, op) {
        let all = (input, lengths);
        match across {
            Across::Leaders => {
                return Box::pin(by_node::reduce_scatter(call, nodes, all, output, op)).await;
            }
            Across::Slices => {
                let ended = by_node::reduce_scatter_in_slices(call, nodes, all, output, op);
                return Box::pin(ended).await;
            }
            Across::Ring => {
                let mut bytes = input.as_slice().to_vec();
                let mine = output.as_mut_slice();
                let ended = large::reduce_scatter_ring(call, &mut bytes, lengths, mine, op);
                return Box::pin(ended).await;
            }
        }
    }
    let board_choice = call.shape().choice.reduce_scatter.board();
    if (1..=WHOLE_BYTES).contains(&input.bytes())
        && let Some(board) = BoardCall::of(call, input.bytes(), board_choice)
    {
        let at = lengths[..call.rank() as usize].iter().sum();
        return board.reduce_scatter(input, at, output, op).await;
    }
    let copied;
    let (mut input, mut output) = (input, output);
    if input.address() == output.address() {
        copied = input.as_slice().to_vec();
        input = UserMemory::of_const(&copied);
    }
    if let Some(pieces) = Pieces::of(call, lengths, op.item_bytes(), board_choice) {
        let ended = pieces.combine(RoundKind::ReduceScatter, input, Results::Own(output), op);
        return Box::pin(ended).await;
    }
    let mut bytes = input.as_slice().to_vec();
    let ended = reduce_scatter_messages(call, &mut bytes, lengths, output.as_mut_slice(), op);
    Box::pin(ended).await
}

/// In a reduce-scatter, each rank puts its whole input on a board if the input has at most this many bytes.
pub(super) const WHOLE_BYTES: usize = 4 << 10;

/// Whether no part is much longer than the others.
pub(super) fn are_alike(lengths: &[usize]) -> bool {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    longest <= 2 * lengths.iter().sum::<usize>() / lengths.len().max(1)
}

/// As [`reduce_scatter`], with messages only. The contents of `bytes` are destroyed.
pub(super) async fn reduce_scatter_messages<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    lengths: &[usize],
    mine: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    use choice::ReduceScatter::{Auto, Board as OverBoard, Nodes, Ring, Rooted, Slices};
    let shape = call.shape();
    // A rank that combines a part needs memory for the inputs of all ranks to that part, so parts must be of similar
    // lengths.
    let even = are_alike(lengths);
    let in_slices = match shape.choice.reduce_scatter {
        Auto | OverBoard | Nodes => even && shape.is_sliced(bytes.len(), call.size()),
        Ring if op.commutes() => {
            return large::reduce_scatter_ring(call, bytes, lengths, mine, op).await;
        }
        Slices | Ring => true,
        Rooted => false,
    };
    if in_slices {
        let combined = combine_slices(call, bytes, lengths, op).await?;
        mine.copy_from_slice(&combined);
        return Ok(());
    }
    reduce_messages(call, bytes, 0, op).await?;
    let parts = cut(bytes, lengths).map(|part| Payload::Dense(UserMemory::of_const(part)));
    let all: Vec<Payload> = match call.rank() {
        0 => parts.collect(),
        _ => Vec::new(),
    };
    let root = match call.rank() {
        0 => CollectiveRoot::Here,
        _ => CollectiveRoot::There(0),
    };
    let mine = Payload::Dense(UserMemory::of(mine));
    super::scatter(call, &all, Some(&mine), root).await
}

/// Combines the bytes of all ranks at rank 0, along a binomial tree. The partial result of a rank is that of
/// consecutive ranks, the lowest of which is the rank itself.
async fn combine_at_zero<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let (rank, size) = (call.rank(), call.size());
    let mut higher = Vec::new();
    let mut span = 1;
    while span < size {
        if rank & span != 0 {
            return call.send(rank - span, bytes).await;
        }
        if rank + span < size {
            higher.resize(bytes.len(), 0);
            call.receive(rank + span, &mut higher).await?;
            // Computes `bytes op higher`, in this order, and stores the result in `bytes`.
            op.reduce(bytes, &mut higher);
            bytes.copy_from_slice(&higher);
        }
        span <<= 1;
    }
    Ok(())
}

/// An allreduce by recursive doubling. If the number of ranks is not a power of two, the first ranks are folded in
/// pairs before, and the folded ranks get the result afterwards.
async fn allreduce_doubling<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let (rank, pairs) = (call.rank(), FoldedRanks::of(call.rank(), call.size()));
    if pairs.is_folded() {
        call.send(rank + 1, bytes).await?;
        return call.receive(rank + 1, bytes).await;
    }
    let mut other = vec![0u8; bytes.len()];
    if pairs.acts_for_two() {
        call.receive(rank - 1, &mut other).await?;
        op.reduce(&other, bytes);
    }
    let mut span = 1;
    while span < pairs.power {
        let partner = pairs.rank_of(pairs.me ^ span);
        call.exchange(partner, bytes, partner, &mut other).await?;
        large::combine(bytes, &mut other, pairs.me & span == 0, op);
        span <<= 1;
    }
    match pairs.acts_for_two() {
        true => call.send(rank - 1, bytes).await,
        false => Ok(()),
    }
}

/// An allreduce in slices: each rank combines one slice of all ranks' data, and sends the result to all ranks.
async fn allreduce_sliced<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let lengths = slices(bytes.len(), call.size() as usize, op.item_bytes());
    let combined = combine_slices(call, bytes, &lengths, op).await?;
    let mine = Payload::Dense(UserMemory::of_const(&combined));
    let all: Vec<Payload> = cut_mut(bytes, &lengths)
        .map(|slice| Payload::Dense(UserMemory::of(slice)))
        .collect();
    super::allgather(call, Some(&mine), &all).await
}

/// Sends each rank its slice of `bytes`, and combines this rank's slice of the bytes of all ranks.
pub(super) async fn combine_slices<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
    lengths: &[usize],
    op: &impl Reducer,
) -> Result<Vec<u8>, Error> {
    let (rank, size) = (call.rank(), call.size());
    let length = lengths[rank as usize];
    let mut all = vec![0u8; length * size as usize];
    let parts: Vec<&[u8]> = cut(bytes, lengths).collect();
    let mut pending = call.pending();
    if length > 0 {
        for (from, block) in (0..).zip(all.chunks_exact_mut(length)) {
            match from == rank {
                true => block.copy_from_slice(parts[rank as usize]),
                false => pending.receive(from, block),
            }
        }
    }
    for step in 1..size {
        let to = (rank + step) % size;
        let part = parts[to as usize];
        if !part.is_empty() {
            pending.send(to, part);
        }
    }
    pending.finish().await?;
    Ok(fold(&mut all, length, op).to_vec())
}

/// Combines blocks of `length` bytes. The order is that of the blocks, unless the operation commutes. Returns the last
/// block, which has the result.
pub(super) fn fold<'a>(all: &'a mut [u8], length: usize, op: &impl Reducer) -> &'a [u8] {
    let mut at = match op.commutes() {
        true => fold_halves(all, length, op),
        false => length,
    };
    while at < all.len() {
        let (lower, higher) = all.split_at_mut(at);
        op.reduce(&lower[at - length..], &mut higher[..length]);
        at += length;
    }
    &all[at - length..]
}

/// Combines the first half of the blocks into the second half, and so on until only one block is left. Returns the end
/// of that block.
fn fold_halves(all: &mut [u8], length: usize, op: &impl Reducer) -> usize {
    let mut left = all;
    let end = left.len();
    while left.len() > length {
        let half = left.len() / length / 2 * length;
        let (first, rest) = left.split_at_mut(half);
        let second = rest.len() - half;
        op.reduce(first, &mut rest[second..]);
        left = rest;
    }
    end
}

/// The lengths of `count` slices of `bytes` bytes. They differ little, and no slice ends inside an item.
pub(super) fn slices(bytes: usize, count: usize, item_bytes: usize) -> Vec<usize> {
    let items = bytes / item_bytes.max(1);
    (0..count)
        .map(|index| (items * (index + 1) / count - items * index / count) * item_bytes)
        .collect()
}

pub(super) fn cut<'a>(bytes: &'a [u8], lengths: &[usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    lengths.iter().map(move |length| {
        let (part, others) = rest.split_at(*length);
        rest = others;
        part
    })
}

pub(super) fn cut_mut<'a>(
    bytes: &'a mut [u8],
    lengths: &[usize],
) -> impl Iterator<Item = &'a mut [u8]> {
    let mut rest = bytes;
    lengths.iter().map(move |length| {
        let (part, others) = std::mem::take(&mut rest).split_at_mut(*length);
        rest = others;
        part
    })
}
