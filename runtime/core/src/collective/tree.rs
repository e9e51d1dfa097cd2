// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barrier and broadcast.

use super::board::Board;
use super::{Line, flat};
use crate::{Error, Visit};

/// All ranks have entered before any leaves (MPI 5.0 section 6.3).
///
/// Flat where ranks share cores; else the ranks tell each other in a logarithmic number of rounds (dissemination).
///
/// # Errors
/// When a message could not be sent or received.
pub async fn barrier<V: Visit>(line: &Line<V>) -> Result<(), Error> {
    if let Some(board) = Board::of(line, 0) {
        return board.barrier().await;
    }
    match line.shape().flat {
        true => flat::barrier(line).await,
        false => disseminate(line).await,
    }
}

async fn disseminate<V: Visit>(line: &Line<V>) -> Result<(), Error> {
    let (rank, size) = (line.rank(), line.size());
    let mut span = 1;
    while span < size {
        let (to, from) = ((rank + span) % size, (rank + size - span) % size);
        line.exchange(to, &[], from, &mut []).await?;
        span <<= 1;
    }
    Ok(())
}

/// Copies the root's bytes to all ranks (MPI 5.0 section 6.4): flat if they are few and ranks share cores,
/// else along a binomial tree.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn bcast<V: Visit>(line: &Line<V>, bytes: &mut [u8], root: u32) -> Result<(), Error> {
    if line.rank() == root {
        return bcast_from_here(line, bytes).await;
    }
    if let Some(board) = Board::of_bcast(line, bytes.len()) {
        return board.hear(bytes, root).await;
    }
    if line.shape().is_flat(bytes.len()) {
        return line.receive(root, bytes).await;
    }
    let size = line.size();
    let me = place_of(line.rank(), root, size);
    // The lowest bit says from whom, and to how many others.
    let span = 1 << me.trailing_zeros();
    line.receive(rank_at(me - span, root, size), bytes).await?;
    send_on(line, bytes, root, span).await
}

/// The root's part of [`bcast`]: other calls may read the same memory meanwhile.
///
/// # Errors
/// When a message could not be sent.
pub async fn bcast_from_here<V: Visit>(line: &Line<V>, bytes: &[u8]) -> Result<(), Error> {
    if let Some(board) = Board::of_bcast(line, bytes.len()) {
        return board.tell_all(bytes).await;
    }
    match line.shape().is_flat(bytes.len()) {
        true => flat::bcast(line, bytes).await,
        false => send_on(line, bytes, line.rank(), line.size().next_power_of_two()).await,
    }
}

/// To the ranks below this one in a binomial tree, which has `span` places from here on.
async fn send_on<V: Visit>(
    line: &Line<V>,
    bytes: &[u8],
    root: u32,
    span: u32,
) -> Result<(), Error> {
    let size = line.size();
    let me = place_of(line.rank(), root, size);
    let mut span = span >> 1;
    let mut pending = line.pending();
    while span > 0 {
        if me + span < size {
            pending.send(rank_at(me + span, root, size), bytes);
        }
        span >>= 1;
    }
    pending.finish().await
}

/// Place of a rank in a tree whose root has place 0.
fn place_of(rank: u32, root: u32, size: u32) -> u32 {
    (rank + size - root) % size
}

/// Rank at a place.
fn rank_at(place: u32, root: u32, size: u32) -> u32 {
    (place + root) % size
}
