// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives that move blocks: gather, scatter, allgather and all-to-all, with blocks of one size or of different
//! sizes.
//!
//! Each collective has two versions. One takes [`Payload`]s: a block of any size and layout for each rank. It serves
//! the `w` form, large blocks (also of the `v` [forms](super::various)), and intercommunicators. The other takes equal
//! blocks, and sends several small blocks together.

use transport::seat::LINE_BODY_BYTES;

use super::bcast_queue::{self, BcastQueueCall};
use super::block_pieces::{self, BlockPieces};
use super::board::{BoardCall, BoardChoice};
use super::board_note::{BoardNote, RoundKind};
use super::choice;
use super::gather_tree::of_root;
use super::parts::RoundContributions;
use super::various::{read_into, scatter_as};
use super::{CollectiveCall, CollectiveRoot, CollectiveTuning, by_node, flat};
use crate::{Error, Payload, UserMemory, Visit};

/// Collects one block of each rank at the root. `all`: at the root, the place of each rank's block; at other ranks
/// empty. If `mine` is `None`, the root's own block is already in place.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn gather<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
    root: CollectiveRoot,
) -> Result<(), Error> {
    let mut pending = call.pending();
    let mut copied = Ok(());
    match (root, mine) {
        (CollectiveRoot::Here, _) => {
            for (from, block) in others(call, all) {
                pending.receive_payload(from, block);
            }
            copied = put_own(call, mine, all);
        }
        (CollectiveRoot::There(root), Some(mine)) => pending.send_payload(root, mine),
        _ => {}
    }
    pending.finish().await.and(copied)
}

/// As [`gather`], of equal blocks among the ranks of one group. If the ranks have a board, each rank writes its block's
/// size there, and also the block if it is small. From the sizes the root sees which blocks come as messages.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn gather_equal<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
    root: CollectiveRoot,
) -> Result<(), Error> {
    let Some((to, own)) = of_root(call, mine, all, root) else {
        return Ok(());
    };
    let block = usize::try_from(own.bytes()).unwrap_or(usize::MAX);
    let (shape, board_choice) = (call.shape(), gather_choice(&call.shape()));
    // The size does not matter here: ranks that disagree about it must use the same algorithm.
    if let Some(nodes) = by_node::nodes_of(call, shape.choice.gather.by_node(shape.boards)) {
        return Box::pin(by_node::gather(call, nodes, mine, all, root)).await;
    }
    let on_board = |bytes: usize| {
        bytes <= gather_most(&shape) || block_pieces::are_gathered(&shape, bytes, call.size())
    };
    if let Some(pieces) = BlockPieces::of_equal(call, own.bytes(), board_choice) {
        if call.rank() != to {
            return Box::pin(pieces.give(own)).await;
        }
        let copied = put_own(call, mine, all);
        let taken = Box::pin(pieces.take(all, own.bytes())).await;
        if taken.is_err() {
            Box::pin(take_messages(call, all, on_board)).await;
        }
        return taken.and(copied);
    }
    let Some(board) = BoardCall::of(call, 0, board_choice) else {
        return Box::pin(gather(call, mine, all, root)).await;
    };
    if call.rank() != to {
        if on_board(block) {
            return board.give_block(block, &own.to_dense()).await;
        }
        board.give_block(block, &[]).await?;
        return Box::pin(gather(call, mine, all, root)).await;
    }
    let copied = put_own(call, mine, all);
    let take = |rank: u32, parts: RoundContributions<'_>| {
        let place = &all[rank as usize];
        let taken = read_into(place, block, |into| parts.read(rank, 0, into));
        taken.unwrap_or_else(|error| call.note(error));
    };
    let messages = board.gather_blocks(block, on_board, take).await?;
    let mut pending = call.pending();
    for rank in messages {
        pending.receive_payload(rank, &all[rank as usize]);
    }
    pending.finish().await.and(copied)
}

/// Receives and drops the messages of ranks whose blocks differ in length from what the root expects, so that their
/// sends complete.
#[cold]
async fn take_messages<V: Visit>(
    call: &CollectiveCall<V>,
    all: &[Payload],
    on_board: impl Fn(usize) -> bool,
) {
    let Some(seat) = call.seat() else { return };
    let mut pending = call.pending();
    for (from, place) in others(call, all) {
        let theirs = seat.note(seat.last(), from).map(BoardNote::of);
        let plain = BoardNote::new(call, RoundKind::Gather, 0);
        if theirs.is_some_and(|theirs| theirs.is_alike(&plain) && !on_board(theirs.bytes as usize))
        {
            pending.receive_payload(from, place);
        }
    }
    if let Err(error) = pending.finish().await {
        call.note(error);
    }
}

/// In a gather, blocks of up to this many bytes go over a board. Larger blocks are sent as messages: after such a send
/// a rank can run ahead of the root. If ranks share cores, only blocks that fit a rank's own cache lines go over the
/// board.
pub(super) fn gather_most(shape: &CollectiveTuning) -> usize {
    match shape.flat {
        true => LINE_BODY_BYTES,
        false => 1 << 10,
    }
    .min(shape.board_bytes)
}

/// Whether a gather of small blocks uses a board.
pub(super) fn gather_choice(shape: &CollectiveTuning) -> BoardChoice {
    match shape.choice.gather {
        choice::Gather::Auto | choice::Gather::Nodes => BoardChoice::AsUsual,
        _ => BoardChoice::No,
    }
}

/// Scatters the root's blocks, one for each rank. If `mine` is `None`, the root's own block stays where it is.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn scatter<V: Visit>(
    call: &CollectiveCall<V>,
    all: &[Payload],
    mine: Option<&Payload>,
    root: CollectiveRoot,
) -> Result<(), Error> {
    let mut pending = call.pending();
    let mut copied = Ok(());
    match (root, mine) {
        (CollectiveRoot::Here, _) => {
            for (to, block) in others(call, all) {
                pending.send_payload(to, block);
            }
            if let (Some(mine), Some(own)) = (mine, own(call, all)) {
                copied = own.copy_to(mine);
            }
        }
        (CollectiveRoot::There(root), Some(mine)) => pending.receive_payload(root, mine),
        _ => {}
    }
    pending.finish().await.and(copied)
}

/// As [`scatter`], of equal blocks among the ranks of one group. Small blocks are sent together over a broadcast queue.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn scatter_equal<V: Visit>(
    call: &CollectiveCall<V>,
    all: &[Payload],
    mine: Option<&Payload>,
    root: CollectiveRoot,
) -> Result<(), Error> {
    let Some((from, own)) = of_root(call, mine, all, root) else {
        return Ok(());
    };
    let block = usize::try_from(own.bytes()).unwrap_or(usize::MAX);
    let total = block.saturating_mul(call.size() as usize);
    let shape = call.shape();
    if let Some(nodes) = by_node::nodes_of(call, shape.choice.scatter.by_node(shape.boards)) {
        return Box::pin(by_node::scatter(call, nodes, all, mine, root)).await;
    }
    let limit = bcast_queue::limit(&shape, usize::MAX, scatter_choice(&shape));
    if block_pieces::are_announced(&shape, block) {
        return scatter_as(call, RoundKind::Scatter, all, mine, root).await;
    }
    let applies = limit > 0 && total <= limit && total < bcast_queue::ON_BOARD;
    let Some(queue) = applies.then(|| BcastQueueCall::of(call)).flatten() else {
        return Box::pin(scatter(call, all, mine, root)).await;
    };
    if call.rank() == from {
        let mut bytes = vec![0; total];
        for (block, into) in all.iter().zip(bytes.chunks_exact_mut(block.max(1))) {
            block.copy_to(&Payload::Dense(UserMemory::of(into)))?;
        }
        queue.send(RoundKind::Scatter, &bytes).await?;
        return mine.map_or(Ok(()), |mine| all[from as usize].copy_to(mine));
    }
    let at = call.rank() as usize * block;
    if let Payload::Dense(mut memory) = *own {
        let into = memory.as_mut_slice();
        return queue
            .receive(RoundKind::Scatter, from, total, at, into)
            .await;
    }
    let mut bytes = vec![0; block];
    queue
        .receive(RoundKind::Scatter, from, total, at, &mut bytes)
        .await?;
    Payload::Dense(UserMemory::of_const(&bytes)).copy_to(own)
}

/// Whether a scatter of small blocks uses a broadcast queue.
pub(super) fn scatter_choice(shape: &CollectiveTuning) -> BoardChoice {
    match shape.choice.scatter {
        choice::Scatter::Auto | choice::Scatter::Nodes => BoardChoice::AsUsual,
        _ => BoardChoice::No,
    }
}

/// Collects one block of each rank at all ranks. If `mine` is `None`, this rank's own block is already in place.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn allgather<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
) -> Result<(), Error> {
    // After an error here the block is sent all the same, because the other ranks wait for it.
    if let Err(error) = put_own(call, mine, all) {
        call.note(error);
    }
    let mut pending = call.pending();
    for (from, block) in others(call, all) {
        pending.receive_payload(from, block);
    }
    if let Some(mine) = mine.or_else(|| own(call, all)) {
        for (to, _) in others(call, all) {
            pending.send_payload(to, mine);
        }
    }
    pending.finish().await
}

/// As [`allgather`], of large equal blocks.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn allgather_equal<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
) -> Result<(), Error> {
    allgather_as(call, mine, all, call.shape().choice.allgather.board()).await
}

/// As [`allgather`], over a board if that is faster for large blocks.
pub(super) async fn allgather_as<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
    board_choice: BoardChoice,
) -> Result<(), Error> {
    if let Some(given) = mine.or_else(|| own(call, all))
        && let Some(pieces) = BlockPieces::of_all(call, all, board_choice)
    {
        if let Err(error) = put_own(call, mine, all) {
            call.note(error);
        }
        return Box::pin(pieces.exchange(given, all)).await;
    }
    Box::pin(allgather(call, mine, all)).await
}

/// As [`allgather`] among the ranks of one group, but blocks are sent round a ring: each rank sends one message at a
/// time to the next rank, and receives one from the previous rank.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn allgather_ring<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
) -> Result<(), Error> {
    // After an error here the block is sent all the same, because the other ranks wait for it.
    if let Err(error) = put_own(call, mine, all) {
        call.note(error);
    }
    let (rank, size) = (call.rank(), call.size());
    let block = |behind: u32| &all[((rank + size - behind) % size) as usize];
    for step in 0..size - 1 {
        let mut pending = call.pending();
        pending.receive_payload((rank + size - 1) % size, block(step + 1));
        pending.send_payload((rank + 1) % size, block(step));
        pending.finish().await?;
    }
    Ok(())
}

/// Sends block `i` of `out` to rank `i` and receives block `i` of `into` from rank `i`.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn alltoall<V: Visit>(
    call: &CollectiveCall<V>,
    out: &[Payload],
    into: &[Payload],
) -> Result<(), Error> {
    let (rank, partners) = (call.rank() % call.partners(), call.partners());
    // Between two groups there is no own block, and the groups may differ in size.
    let (first, window) = match call.is_inter() {
        true => (0, usize::MAX),
        false => (1, call.shape().window_ranks),
    };
    let steps: Vec<u32> = (first..partners).collect();
    let mut copied = None;
    let mut copy = || match (own(call, out), own(call, into)) {
        (Some(out), Some(into)) => out.copy_to(into),
        _ => Ok(()),
    };
    for steps in steps.chunks(window) {
        let mut pending = call.pending();
        for step in steps {
            let from = (rank + partners - step) % partners;
            pending.receive_payload(from, &into[from as usize]);
        }
        for step in steps {
            let to = (rank + step) % partners;
            pending.send_payload(to, &out[to as usize]);
        }
        copied.get_or_insert_with(&mut copy);
        pending.finish().await?;
    }
    copied.unwrap_or_else(copy)
}

/// As [`allgather`], of small equal blocks of contiguous bytes; the own block is in place.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn allgather_bytes<V: Visit>(
    call: &CollectiveCall<V>,
    all: &mut [u8],
) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    let shape = call.shape();
    let applies = shape.choice.allgather.by_node(shape.boards);
    if let Some(nodes) = by_node::nodes_of(call, applies) {
        return Box::pin(by_node::allgather(call, nodes, all)).await;
    }
    allgather_plain(call, all).await
}

/// As [`allgather_bytes`], without grouping the ranks by node.
pub(super) async fn allgather_plain<V: Visit>(
    call: &CollectiveCall<V>,
    all: &mut [u8],
) -> Result<(), Error> {
    use choice::Allgather::{Auto, Board as OverBoard, Flat, Nodes};
    let (shape, block) = (call.shape(), all.len() / call.size() as usize);
    if let Some(board) = BoardCall::of(call, block, shape.choice.allgather.board()) {
        return board.allgather(all).await;
    }
    match shape.choice.allgather {
        Flat => flat::allgather(call, all).await,
        Auto | OverBoard | Nodes if shape.is_flat(all.len()) => flat::allgather(call, all).await,
        Auto | OverBoard | Nodes if !shape.is_carried(block, call.size() as usize) => {
            let all = blocks_of(all, block);
            Box::pin(allgather_equal(call, None, &all)).await
        }
        _ => allgather_bruck(call, all).await,
    }
}

/// An allgather in doubling rounds (J. Bruck and others, 1997): a rank has its own block and the blocks of some ranks
/// after it, and sends all of these to one rank before it.
async fn allgather_bruck<V: Visit>(call: &CollectiveCall<V>, all: &mut [u8]) -> Result<(), Error> {
    let (rank, size) = (call.rank(), call.size());
    let bytes = all.len() / size as usize;
    let own = rank as usize * bytes;
    let mut known = vec![0u8; all.len()];
    known[..bytes].copy_from_slice(&all[own..own + bytes]);
    let mut count = 1;
    while count < size {
        let more = count.min(size - count) as usize * bytes;
        let (have, free) = known.split_at_mut(count as usize * bytes);
        let (to, from) = ((rank + size - count) % size, (rank + count) % size);
        call.exchange(to, &have[..more], from, &mut free[..more])
            .await?;
        count <<= 1;
    }
    let (high, low) = known.split_at(all.len() - own);
    all[own..].copy_from_slice(high);
    all[..own].copy_from_slice(low);
    Ok(())
}

/// As [`alltoall`], of small equal blocks of contiguous bytes. By default, in a logarithmic number of rounds in which
/// ranks forward the blocks of others (J. Bruck and others, 1997).
///
/// # Errors
/// When a message could not be sent or received.
pub async fn alltoall_bytes<V: Visit>(
    call: &CollectiveCall<V>,
    out: &[u8],
    into: &mut [u8],
) -> Result<(), Error> {
    let (shape, block) = (call.shape(), out.len() / call.size() as usize);
    let applies = shape
        .choice
        .alltoall
        .by_node(by_node::carries(&shape, block));
    if let Some(nodes) = by_node::nodes_of(call, applies && block > 0) {
        return Box::pin(by_node::alltoall(call, nodes, out, into)).await;
    }
    alltoall_plain(call, out, into).await
}

/// As [`alltoall_bytes`], without grouping the ranks by node.
pub(super) async fn alltoall_plain<V: Visit>(
    call: &CollectiveCall<V>,
    out: &[u8],
    into: &mut [u8],
) -> Result<(), Error> {
    let (rank, size) = (call.rank(), call.size());
    let bytes = out.len() / size as usize;
    if bytes == 0 {
        return Ok(());
    }
    let board_choice = call.shape().choice.alltoall.board();
    if let Some(board) = BoardCall::of(call, out.len(), board_choice) {
        return board.alltoall(out, into).await;
    }
    let (shape, ranks) = (call.shape(), size as usize);
    if shape.choice.alltoall != choice::Alltoall::Rounds && !shape.is_carried(bytes, ranks) {
        let out: Vec<Payload> = out
            .chunks_exact(bytes)
            .map(|block| Payload::Dense(UserMemory::of_const(block)))
            .collect();
        let into = blocks_of(into, bytes);
        return Box::pin(alltoall(call, &out, &into)).await;
    }
    let at = |block: u32| block as usize * bytes..(block as usize + 1) * bytes;
    // Block `d` must still move to the rank `d` positions after this rank.
    let mut blocks = Vec::with_capacity(out.len());
    blocks.extend_from_slice(&out[rank as usize * bytes..]);
    blocks.extend_from_slice(&out[..rank as usize * bytes]);
    let mut parcel = Vec::new();
    let mut arrived = Vec::new();
    let mut span = 1;
    while span < size {
        let moving = (0..size).filter(|distance| distance & span != 0);
        parcel.clear();
        for block in moving.clone() {
            parcel.extend_from_slice(&blocks[at(block)]);
        }
        arrived.resize(parcel.len(), 0);
        let (to, from) = ((rank + span) % size, (rank + size - span) % size);
        call.exchange(to, &parcel, from, &mut arrived).await?;
        for (block, bytes) in moving.zip(arrived.chunks_exact(bytes)) {
            blocks[at(block)].copy_from_slice(bytes);
        }
        span <<= 1;
    }
    for distance in 0..size {
        into[at((rank + size - distance) % size)].copy_from_slice(&blocks[at(distance)]);
    }
    Ok(())
}

/// Blocks of `block` bytes each.
pub(super) fn blocks_of(all: &mut [u8], block: usize) -> Vec<Payload> {
    let blocks = all.chunks_exact_mut(block);
    blocks
        .map(|block| Payload::Dense(UserMemory::of(block)))
        .collect()
}

/// The blocks of the other ranks. They begin with that of the next rank, so that not all ranks send to the same rank
/// first.
pub(super) fn others<'a, V: Visit>(
    call: &CollectiveCall<V>,
    all: &'a [Payload],
) -> impl Iterator<Item = (u32, &'a Payload)> {
    let (rank, partners) = (call.rank(), call.partners());
    // Between two groups there is no own block.
    let first = u32::from(!call.is_inter());
    (first..partners).filter_map(move |step| {
        let other = (rank + step) % partners;
        Some((other, all.get(other as usize)?))
    })
}

/// The block of this rank; `None` between two groups.
pub(super) fn own<'a, V: Visit>(
    call: &CollectiveCall<V>,
    all: &'a [Payload],
) -> Option<&'a Payload> {
    let at = call.rank() as usize;
    if call.is_inter() { None } else { all.get(at) }
}

pub(super) fn put_own<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
) -> Result<(), Error> {
    match (mine, own(call, all)) {
        (Some(mine), Some(own)) => mine.copy_to(own),
        _ => Ok(()),
    }
}
