// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives with blocks of different lengths: the `v` forms of gather, scatter, allgather and all-to-all. If the
//! ranks have a [board](super::board), each rank writes there how much it contributes, and also its data if they are
//! small ([`super::parcels`]). Larger data are sent as messages, as in [`super::blocks`].
//!
//! Only the contributing rank decides between board and messages; the other ranks read its decision on the board. So
//! all ranks complete even if they disagree about a length, and those that detect the disagreement get an error.

use transport::Seat;

use super::bcast_queue::{self, BcastQueueCall};
use super::block_pieces::{self, Swap};
use super::blocks::{
    allgather, allgather_as, alltoall, gather, gather_choice, gather_most, others, put_own, scatter,
};
use super::blocks::{own, scatter_choice};
use super::board::{BoardCall, BoardChoice, BoardRound};
use super::board_note::RoundKind;
use super::choice;
use super::collective_call::PendingMessages;
use super::gather_tree::of_root;
use super::parcels::{self, Given, Parcels};
use super::{CollectiveCall, CollectiveRoot, CollectiveTuning, by_node};
use crate::{Error, Payload, UserMemory, Visit};

/// As [`gather`], of blocks whose lengths are known only to the root.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn gather_various<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
    root: CollectiveRoot,
) -> Result<(), Error> {
    let shape = call.shape();
    if let Some(nodes) = by_node::nodes_of(call, shape.choice.gather.by_node(shape.boards)) {
        return Box::pin(by_node::gather(call, nodes, mine, all, root)).await;
    }
    let board = BoardCall::of_parcels(call, gather_choice(&shape));
    let (Some(board), Some((to, given))) = (board, of_root(call, mine, all, root)) else {
        return Box::pin(gather(call, mine, all, root)).await;
    };
    let place = gatherv_place(&shape, call.size());
    if call.rank() != to {
        let bytes = usize::try_from(given.bytes()).unwrap_or(usize::MAX);
        let applies = bytes <= gatherv_most(&shape)
            || bytes <= place && block_pieces::are_gathered(&shape, bytes, call.size());
        let parcel = applies.then(|| given.to_dense());
        let parcel = parcel.as_deref();
        while !board
            .give_parcel_in(RoundKind::Gatherv, place, parcel)
            .await?
            .leave()
            .await
        {}
        return match parcel {
            Some(_) => Ok(()),
            None => Box::pin(gather(call, mine, all, root)).await,
        };
    }
    let turn = loop {
        let turn = board
            .give_parcel_in(RoundKind::Gatherv, place, Some(&[]))
            .await?;
        match turn.all().await {
            Ok(true) => break turn,
            Ok(false) => {}
            Err(error) => {
                call.note(error);
                break turn;
            }
        }
    };
    let mut copied = put_own(call, mine, all);
    let mut pending = call.pending();
    let parcels = turn.parcels_in(place);
    for (from, place) in others(call, all).filter(|(from, _)| turn.is_alike(*from)) {
        match parcels.given(from) {
            Given::Messages | Given::Later => pending.receive_payload(from, place),
            Given::Here(bytes) => {
                let taken = take(parcels, from, bytes, place);
                copied = copied.and(taken);
            }
        }
    }
    pending.finish().await.and(copied)
}

/// As [`scatter`], of blocks whose lengths are known only to the root.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn scatter_various<V: Visit>(
    call: &CollectiveCall<V>,
    all: &[Payload],
    mine: Option<&Payload>,
    root: CollectiveRoot,
) -> Result<(), Error> {
    let shape = call.shape();
    if let Some(nodes) = by_node::nodes_of(call, shape.choice.scatter.by_node(shape.boards)) {
        return Box::pin(by_node::scatter(call, nodes, all, mine, root)).await;
    }
    scatter_as(call, RoundKind::Scatterv, all, mine, root).await
}

/// As [`scatter_various`], without grouping the ranks by node, and with `kind` in the notes.
pub(super) async fn scatter_as<V: Visit>(
    call: &CollectiveCall<V>,
    kind: RoundKind,
    all: &[Payload],
    mine: Option<&Payload>,
    root: CollectiveRoot,
) -> Result<(), Error> {
    let limit = scatter_limit(&call.shape());
    let queue = (limit > 0).then(|| BcastQueueCall::of(call)).flatten();
    let (Some(queue), Some((from, own))) = (queue, of_root(call, mine, all, root)) else {
        return Box::pin(scatter(call, all, mine, root)).await;
    };
    if call.rank() != from {
        return match queue.receive_block(kind, from, own).await? {
            true => Ok(()),
            false => Box::pin(scatter(call, all, mine, root)).await,
        };
    }
    if let Some(parcel) = packed(all, limit) {
        queue.send_parcel(kind, &parcel).await?;
    } else if are_scattered(call, all) {
        Box::pin(queue.announce_on_board(kind, all)).await?;
    } else {
        queue.send_parcel(kind, &[]).await?;
        return Box::pin(scatter(call, all, mine, root)).await;
    }
    mine.map_or(Ok(()), |mine| own.copy_to(mine))
}

/// Whether all blocks of a scatter go over the board in one round.
fn are_scattered<V: Visit>(call: &CollectiveCall<V>, all: &[Payload]) -> bool {
    let ranks = call.size();
    let lengths = || all.iter().map(Payload::bytes);
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let longest = bytes(lengths().max().unwrap_or(0));
    let usual = bytes(lengths().sum::<u64>() / u64::from(ranks));
    block_pieces::are_scattered(&call.shape(), longest, usual, ranks)
        && call.seat().is_some_and(|seat| parcels::have_room(seat))
}

/// As [`allgather`], of blocks whose lengths are known to all ranks. If one block is long, all blocks go in several
/// rounds or as messages.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn allgather_various<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
) -> Result<(), Error> {
    let shape = call.shape();
    if let Some(nodes) = by_node::nodes_of(call, shape.choice.allgatherv.by_node(shape.boards)) {
        return Box::pin(by_node::allgather_various(call, nodes, mine, all)).await;
    }
    let board = BoardCall::of_parcels(call, allgather_choice(&shape));
    let (Some(board), Some(given)) = (board, mine.or_else(|| own(call, all))) else {
        return Box::pin(allgather(call, mine, all)).await;
    };
    let most = allgatherv_most(&shape, call.size()) as u64;
    if all.iter().any(|block| block.bytes() > most) {
        return allgather_as(call, mine, all, allgather_choice(&shape)).await;
    }
    let parcel = (given.bytes() <= most).then(|| given.to_dense());
    let turn = loop {
        let turn = board
            .give_parcel(RoundKind::Allgatherv, parcel.as_deref())
            .await?;
        let is_over = match parcel {
            Some(_) => turn.all().await?,
            // The other ranks read in this rank's cache lines on the board that its data come as messages.
            None => turn.leave().await,
        };
        if is_over {
            break turn;
        }
    };
    let parcels = turn.parcels();
    let given = |from| parcels.given(from);
    if parcel.is_none() || (0..call.size()).any(|from| given(from) == Given::Messages) {
        return Box::pin(allgather(call, mine, all)).await;
    }
    let mut copied = Ok(());
    for (from, place) in (0..).zip(all) {
        if let Given::Here(bytes) = given(from)
            && (mine.is_some() || from != call.rank())
        {
            let taken = take(parcels, from, bytes, place);
            copied = copied.and(taken);
        }
    }
    copied
}

/// As [`alltoall`], of blocks whose lengths are known only to sender and receiver.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn alltoall_various<V: Visit>(
    call: &CollectiveCall<V>,
    out: &[Payload],
    into: &[Payload],
) -> Result<(), Error> {
    let (shape, ranks) = (call.shape(), call.size());
    let applies = shape
        .choice
        .alltoall
        .by_node(by_node::carries_various(&shape, ranks));
    if let Some(nodes) = by_node::nodes_of(call, applies) {
        return Box::pin(by_node::alltoall_various(call, nodes, out, into)).await;
    }
    let board_choice = shape.choice.alltoall.board();
    let Some(board) = BoardCall::of_parcels(call, board_choice) else {
        return Box::pin(alltoall(call, out, into)).await;
    };
    let parcel = packed(out, alltoall_most(&shape));
    let later = parcel.is_none() && shape.exchanges_in_rounds(out);
    let lengths: Vec<u64> = match later {
        true => out.iter().map(Payload::bytes).collect(),
        false => Vec::new(),
    };
    let kind = RoundKind::Alltoallv;
    let give = || async {
        match later {
            true => board.give_lengths(kind, &lengths).await,
            false => board.give_parcel(kind, parcel.as_deref()).await,
        }
    };
    let turn = give().await?;
    // If there are no more receivers than the window permits, the sends can start before this rank waits.
    let sends = parcel.is_none() && !later && call.size() as usize <= shape.window_ranks;
    let mut pending = call.pending();
    for (to, block) in others(call, out).filter(|_| sends) {
        pending.send_payload(to, block);
    }
    let turn = match wait_for_all(turn, give).await {
        Ok(turn) => turn,
        Err(error) => {
            // The error also ends the call at the other ranks. They will not receive these messages.
            pending.take_back();
            return pending.finish().await.and(Err(error));
        }
    };
    let given = |from| turn.parcels().given(from);
    if !sends && (0..call.size()).all(|from| given(from) == Given::Messages) {
        return Box::pin(alltoall(call, out, into)).await;
    }
    let swap = Swap::from_lengths(call, &turn, into);
    let rest = if sends { &[] } else { out };
    let copied = exchange(call, &turn, pending, rest, into).await;
    let copied = copied.and(Box::pin(swap.run(&board, out, into)).await);
    match (parcel, own(call, out), own(call, into)) {
        (None, Some(out), Some(into)) => copied.and_then(|()| out.copy_to(into)),
        _ => copied,
    }
}

/// Waits for all other ranks in the round in which this rank has arrived. If some of them were in an earlier call,
/// arrives and waits in a later round.
async fn wait_for_all<'a, V: Visit>(
    first: BoardRound<'a, V>,
    give: impl AsyncFn() -> Result<BoardRound<'a, V>, Error>,
) -> Result<BoardRound<'a, V>, Error> {
    let mut turn = first;
    while !turn.all().await? {
        turn = give().await?;
    }
    Ok(turn)
}

/// Reads the blocks for this rank that are in parcels of other ranks, and receives the other blocks as messages. `out`:
/// the blocks that this rank still has to send, if its own blocks go as messages.
async fn exchange<'a, V: Visit>(
    call: &'a CollectiveCall<V>,
    turn: &BoardRound<'_, V>,
    mut pending: PendingMessages<'a, V>,
    out: &[Payload],
    into: &[Payload],
) -> Result<(), Error> {
    let (parcels, rank) = (turn.parcels(), call.rank());
    for (from, place) in others(call, into) {
        if parcels.given(from) == Given::Messages {
            pending.receive_payload(from, place);
        }
    }
    if parcels.given(rank) == Given::Messages {
        for (to, block) in others(call, out) {
            pending.send_payload(to, block);
        }
    }
    let mut copied = Ok(());
    for (from, place) in (0..).zip(into) {
        if let Given::Here(bytes) = parcels.given(from) {
            let taken = match parcels.block(from, bytes, rank) {
                Some(block) => read_into(place, block.len(), |part| {
                    parcels.read_part(from, bytes, block.start, part);
                }),
                None => Err(unequal(0, place)),
            };
            copied = copied.and(taken);
        }
    }
    pending.finish().await.and(copied)
}

/// Copies the parcel of rank `from`, which has `bytes` bytes, to `place`.
fn take(parcels: Parcels<'_>, from: u32, bytes: usize, place: &Payload) -> Result<(), Error> {
    read_into(place, bytes, |into| {
        parcels.read(from, into);
    })
}

/// Copies `given` bytes, which `read` reads, to `place`.
pub(super) fn read_into(
    place: &Payload,
    given: usize,
    read: impl FnOnce(&mut [u8]),
) -> Result<(), Error> {
    if given as u64 != place.bytes() {
        return Err(unequal(given, place));
    }
    if let Payload::Dense(mut memory) = *place {
        read(memory.as_mut_slice());
        return Ok(());
    }
    let mut bytes = vec![0; given];
    read(&mut bytes);
    Payload::Dense(UserMemory::of_const(&bytes)).copy_to(place)
}

#[cold]
pub(super) fn unequal(given: usize, place: &Payload) -> Error {
    let (given, expected) = (given as u64, place.bytes());
    Error::Unequal { given, expected }
}

/// In an allgather, blocks of up to this many bytes go over a board in one round. Larger blocks go in several rounds,
/// or as messages.
pub(super) fn allgatherv_most(shape: &CollectiveTuning, ranks: u32) -> usize {
    match shape.flat || ranks == 2 {
        true => parcels::PLACE_BYTES,
        false => parcels::TABLED_BYTES,
    }
}

/// A parcel with `blocks` for all ranks; `None`: it would have more than `most` bytes.
fn packed(blocks: &[Payload], most: usize) -> Option<Vec<u8>> {
    let lengths = blocks.iter().map(Payload::bytes);
    let lengths = lengths.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let bytes = parcels::filled_bytes(blocks.len(), lengths);
    if bytes > most {
        return None;
    }
    let mut parcel = vec![0; bytes];
    let kept: Vec<Box<[u8]>> = blocks.iter().map(Payload::copy).collect();
    let lent = kept.iter().map(|block| UserMemory::of_const(block));
    parcels::fill(&mut parcel, blocks.len(), lent);
    Some(parcel)
}

/// Maximum number of bytes of a scatter over a queue: all blocks and their table. 0: no scatter goes over it.
pub(super) fn scatter_limit(shape: &CollectiveTuning) -> usize {
    bcast_queue::limit(shape, SCATTER_BYTES, scatter_choice(shape)).min(SCATTER_BYTES)
}

/// In a gather of blocks of different lengths, blocks of up to this many bytes go over a board. The limit is that of
/// [`gather_most`]; but if ranks share cores, the length must fit the rank's own cache lines too.
pub(super) fn gatherv_most(shape: &CollectiveTuning) -> usize {
    match shape.flat {
        true => parcels::IN_LINES_BYTES,
        false => gather_most(shape),
    }
}

/// Number of bytes of each rank's place on the board in a gather of blocks of different lengths. If ranks share cores,
/// only long blocks are stored there: shorter blocks fit the cache lines or are sent as messages.
pub(super) fn gatherv_place(shape: &CollectiveTuning, ranks: u32) -> usize {
    match shape.flat {
        true => Seat::place_bytes(ranks),
        false => parcels::PLACE_BYTES,
    }
}

/// In an all-to-all exchange, a rank puts up to this many bytes for all other ranks together on a board. For more bytes
/// messages are faster.
pub(super) fn alltoall_most(shape: &CollectiveTuning) -> usize {
    match shape.flat {
        true => parcels::TABLED_BYTES,
        false => 4 << 10,
    }
}

/// Maximum number of bytes of a scatter over a queue. Data are copied twice, as messages are, but over a queue the two
/// copies do not overlap.
const SCATTER_BYTES: usize = 4 << 10;

/// Whether an allgather of small blocks uses a board.
pub(super) fn allgather_choice(shape: &CollectiveTuning) -> BoardChoice {
    match shape.choice.allgatherv {
        choice::Allgatherv::Auto | choice::Allgatherv::Nodes => BoardChoice::AsUsual,
        _ => BoardChoice::No,
    }
}
