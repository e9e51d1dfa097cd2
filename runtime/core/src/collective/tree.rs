// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barrier and broadcast.

use std::rc::Rc;

use super::bcast_queue::{self, BcastQueueCall};
use super::board::{BoardCall, BoardChoice};
use super::board_note::RoundKind;
use super::choice;
use super::collective_call::PendingMessages;
use super::{CollectiveCall, CollectiveTuning, by_node, flat, large};
use crate::nodes::CommNodes;
use crate::{Error, Visit};

/// A barrier: no rank leaves before all ranks have entered (MPI 5.0 section 6.3).
///
/// By default it goes over a [board](transport::seat) if the ranks have one; else by node if there are several nodes;
/// else through one rank if ranks share cores; else by dissemination, in a logarithmic number of rounds.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn barrier<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    let shape = call.shape();
    if let Some(board) = BoardCall::of(call, 0, shape.choice.barrier.board()) {
        return board.barrier().await;
    }
    let applies = shape.choice.barrier.by_node(shape.boards);
    if let Some(nodes) = by_node::nodes_of(call, applies) {
        return Box::pin(by_node::barrier(call, nodes)).await;
    }
    barrier_messages(call).await
}

/// As [`barrier`], with messages only.
pub(super) async fn barrier_messages<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    use choice::Barrier::{Auto, Board as OverBoard, Flat, Nodes, Rounds, Tree};
    let shape = call.shape();
    match shape.choice.barrier {
        Flat => flat::barrier(call).await,
        Auto | OverBoard | Nodes if shape.flat => flat::barrier(call).await,
        Auto | OverBoard | Nodes | Rounds => disseminate(call).await,
        Tree => climb(call).await,
    }
}

/// A barrier for rank 0 only: rank 0 leaves after all ranks have entered. Each other rank waits at most for the ranks
/// below it in a tree.
pub(super) async fn arrive<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    let shape = call.shape();
    if let Some(board) = BoardCall::of(call, 0, shape.choice.barrier.board()) {
        return board.arrive(call.rank() == 0).await;
    }
    match shape.flat {
        true => flat::arrive(call).await,
        false => climb_up(call).await.map(|_| ()),
    }
}

/// A barrier up a binomial tree and down again: except for a few ranks, each rank communicates with few others.
async fn climb<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    let span = climb_up(call).await?;
    let rank = call.rank();
    if rank != 0 {
        call.receive(rank - span, &mut []).await?;
    }
    send_on(call, &[], 0, span).await
}

/// Waits for the ranks below this rank in a binomial tree, and sends to the rank above it. Returns the size of this
/// rank's subtree, rounded up to a power of two; except at rank 0, that is also the distance to the rank above.
async fn climb_up<V: Visit>(call: &CollectiveCall<V>) -> Result<u32, Error> {
    let (rank, size) = (call.rank(), call.size());
    let mut span = 1;
    while span < size {
        if rank & span != 0 {
            call.send(rank - span, &[]).await?;
            break;
        }
        if rank + span < size {
            call.receive(rank + span, &mut []).await?;
        }
        span <<= 1;
    }
    Ok(span)
}

async fn disseminate<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    let (rank, size) = (call.rank(), call.size());
    let mut span = 1;
    while span < size {
        let (to, from) = ((rank + span) % size, (rank + size - span) % size);
        call.exchange(to, &[], from, &mut []).await?;
        span <<= 1;
    }
    Ok(())
}

/// Copies the root's bytes to all ranks (MPI 5.0 section 6.4). By default it goes over a [board](transport::seat) if
/// the ranks have one and the bytes are not too many for it; else by node if there are several nodes; else directly
/// from the root if the bytes are few and ranks share cores; else in slices if the bytes are many and there are more
/// than two ranks; else along a binomial tree.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn bcast<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    if call.rank() == root {
        return bcast_from_here(call, bytes).await;
    }
    if let Some(nodes) = nodes_of(call) {
        return Box::pin(by_node::bcast(call, nodes, bytes, root)).await;
    }
    bcast_plain(call, bytes, root).await
}

/// As [`bcast`], without grouping the ranks by node.
pub(super) async fn bcast_plain<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    if call.rank() == root {
        return send_plain(call, bytes).await;
    }
    if let Some(queue) = queue_of(call, bytes.len()) {
        return queue
            .receive(RoundKind::Bcast, root, bytes.len(), 0, bytes)
            .await;
    }
    Box::pin(bcast_messages(call, bytes, root)).await
}

/// The root's part of [`bcast`]. Other calls may read the same memory meanwhile.
///
/// # Errors
/// When a message could not be sent.
pub async fn bcast_from_here<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
) -> Result<(), Error> {
    if let Some(nodes) = nodes_of(call) {
        return Box::pin(by_node::bcast_from_here(call, nodes, bytes)).await;
    }
    send_plain(call, bytes).await
}

/// As [`bcast_from_here`], without grouping the ranks by node.
pub(super) async fn send_plain<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
) -> Result<(), Error> {
    if let Some(queue) = queue_of(call, bytes.len()) {
        return queue.send(RoundKind::Bcast, bytes).await;
    }
    Box::pin(send_messages(call, bytes)).await
}

/// Signals an error to the ranks that wait for a broadcast of `bytes`, by sending an empty message on the path of the
/// broadcast.
pub(super) async fn send_fault<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
) -> Result<(), Error> {
    match queue_of(call, bytes.len()) {
        Some(queue) => queue.send(RoundKind::Bcast, &[]).await,
        // These messages are empty, because the call has recorded an error.
        None => Box::pin(send_messages(call, bytes)).await,
    }
}

fn nodes_of<V: Visit>(call: &CollectiveCall<V>) -> Option<Rc<CommNodes>> {
    let shape = call.shape();
    by_node::nodes_of(call, shape.choice.bcast.by_node(shape.boards))
}

fn queue_of<V: Visit>(call: &CollectiveCall<V>, bytes: usize) -> Option<BcastQueueCall<'_, V>> {
    let shape = call.shape();
    let board_choice = shape.choice.bcast.board();
    let limit = queue_limit(&shape, board_choice);
    (limit > 0 && bytes <= limit).then(|| BcastQueueCall::of(call))?
}

/// Maximum number of bytes of a broadcast over a queue; 0: no broadcast goes over it.
#[inline]
pub(super) fn queue_limit(shape: &CollectiveTuning, board_choice: BoardChoice) -> usize {
    let limit = match shape.flat {
        true => usize::MAX,
        false => shape.board_bcast_bytes,
    };
    bcast_queue::limit(shape, limit, board_choice)
}

/// As [`bcast`], with messages only.
pub(super) async fn bcast_messages<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    if call.rank() == root {
        return send_messages(call, bytes).await;
    }
    let (size, me) = (call.size(), place_of(call.rank(), root, call.size()));
    match BcastAlgorithm::of(call, bytes.len()) {
        BcastAlgorithm::Flat => call.receive(root, bytes).await,
        BcastAlgorithm::Chain => large::pass_on(call, bytes, root).await,
        BcastAlgorithm::Slices => large::receive_slices(call, bytes, root).await,
        BcastAlgorithm::Tree => {
            // The lowest set bit of this rank's position determines the sender, and the size of this rank's subtree.
            let span = 1 << me.trailing_zeros();
            call.receive(rank_at(me - span, root, size), bytes).await?;
            send_on(call, bytes, root, span).await
        }
    }
}

/// As [`bcast_from_here`], with messages only.
async fn send_messages<V: Visit>(call: &CollectiveCall<V>, bytes: &[u8]) -> Result<(), Error> {
    match BcastAlgorithm::of(call, bytes.len()) {
        BcastAlgorithm::Flat => flat::bcast(call, bytes).await,
        BcastAlgorithm::Chain => large::pass(call, bytes).await,
        BcastAlgorithm::Slices => large::send_slices(call, bytes).await,
        BcastAlgorithm::Tree => {
            send_on(call, bytes, call.rank(), call.size().next_power_of_two()).await
        }
    }
}

/// The algorithm of a broadcast by messages.
enum BcastAlgorithm {
    Flat,
    Tree,
    Chain,
    Slices,
}

impl BcastAlgorithm {
    fn of<V: Visit>(call: &CollectiveCall<V>, bytes: usize) -> Self {
        use choice::Bcast::{Auto, Board as OverBoard, Chain, Flat, Nodes, Slices, Tree};
        let shape = call.shape();
        match shape.choice.bcast {
            Flat => Self::Flat,
            Auto | OverBoard | Nodes if shape.is_flat(bytes) => Self::Flat,
            Auto | OverBoard | Nodes if shape.is_scattered(bytes, call.size()) => Self::Slices,
            Auto | OverBoard | Nodes | Tree => Self::Tree,
            Chain => Self::Chain,
            Slices => Self::Slices,
        }
    }
}

/// Sends to the ranks below this rank in a binomial tree. `span`: size of this rank's subtree, rounded up to a power of
/// two.
async fn send_on<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
    root: u32,
    span: u32,
) -> Result<(), Error> {
    let mut pending = call.pending();
    start_on(&mut pending, call, bytes, (root, span));
    pending.finish().await
}

fn start_on<V: Visit>(
    pending: &mut PendingMessages<'_, V>,
    call: &CollectiveCall<V>,
    bytes: &[u8],
    (root, span): (u32, u32),
) {
    let size = call.size();
    let me = place_of(call.rank(), root, size);
    let mut span = span >> 1;
    while span > 0 {
        if me + span < size {
            pending.send(rank_at(me + span, root, size), bytes);
        }
        span >>= 1;
    }
}

/// Starts this rank's sends of a broadcast of `bytes`. If the data are small and ranks share cores, only the root
/// sends, to all other ranks; else each rank sends to the ranks directly below it.
pub(super) fn start_below<V: Visit>(
    pending: &mut PendingMessages<'_, V>,
    call: &CollectiveCall<V>,
    bytes: &[u8],
    root: u32,
) {
    let (size, me) = (call.size(), place_of(call.rank(), root, call.size()));
    if call.shape().is_flat(bytes.len()) {
        if me == 0 {
            (1..size).for_each(|place| pending.send(rank_at(place, root, size), bytes));
        }
        return;
    }
    let span = match me {
        0 => size.next_power_of_two(),
        _ => 1 << me.trailing_zeros(),
    };
    start_on(pending, call, bytes, (root, span));
}

/// The rank from which this rank receives a broadcast of `bytes` bytes; at the root, the root itself.
pub(super) fn above<V: Visit>(call: &CollectiveCall<V>, bytes: usize, root: u32) -> u32 {
    let (size, me) = (call.size(), place_of(call.rank(), root, call.size()));
    match call.shape().is_flat(bytes) || me == 0 {
        true => root,
        false => rank_at(me - (1 << me.trailing_zeros()), root, size),
    }
}

/// Position of a rank in a tree whose root has position 0.
pub(super) fn place_of(rank: u32, root: u32, size: u32) -> u32 {
    (rank + size - root) % size
}

/// Rank at a position.
pub(super) fn rank_at(place: u32, root: u32, size: u32) -> u32 {
    (place + root) % size
}
