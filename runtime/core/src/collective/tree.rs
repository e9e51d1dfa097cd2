// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barrier and broadcast.

use super::Line;
use crate::comm::Comm;
use crate::{Error, Visit};

/// All ranks have entered before any leaves: gathered by rank 0 and released along a tree, so that a rank sleeps once
/// or twice where cores are shared.
///
/// # Errors
/// When a message could not be sent or received.
pub fn barrier<V: Visit>(visit: V, comm: &Comm) -> Result<(), Error> {
    let line = Line::new(visit, comm);
    if line.rank() == 0 {
        for from in 1..line.size() {
            line.receive(from, &mut [])?;
        }
    } else {
        line.send(0, &[])?;
    }
    bcast(visit, comm, &mut [], 0)
}

/// Copies the root's bytes to all ranks, along a binomial tree.
///
/// # Errors
/// When a message could not be sent or received.
pub fn bcast<V: Visit>(visit: V, comm: &Comm, bytes: &mut [u8], root: u32) -> Result<(), Error> {
    let line = Line::new(visit, comm);
    let (size, me) = (line.size(), place(line.rank(), root, line.size()));
    let mut span = 1;
    while span < size {
        if me & span != 0 {
            line.receive(rank_at(me - span, root, size), bytes)?;
            break;
        }
        span <<= 1;
    }
    span >>= 1;
    while span > 0 {
        if me + span < size && me & (2 * span - 1) == 0 {
            line.send(rank_at(me + span, root, size), bytes)?;
        }
        span >>= 1;
    }
    Ok(())
}

/// Place of a rank in a tree whose root has place 0.
pub(super) fn place(rank: u32, root: u32, size: u32) -> u32 {
    (rank + size - root) % size
}

/// Rank at a place.
pub(super) fn rank_at(place: u32, root: u32, size: u32) -> u32 {
    (place + root) % size
}
