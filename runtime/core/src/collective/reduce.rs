// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions. The tree depends on the number of ranks only, and partial results are combined lower ranks first, so the
//! same ranks with the same data always get the same bits.

use super::Line;
use super::tree::bcast;
use crate::comm::Comm;
use crate::{Error, Visit};

/// Combines `input` into `inout`: `inout = input op inout`, dense items of one datatype.
pub trait Reducer {
    /// Applies the operation.
    fn reduce(&self, input: &[u8], inout: &mut [u8]);
}

impl<F: Fn(&[u8], &mut [u8])> Reducer for F {
    fn reduce(&self, input: &[u8], inout: &mut [u8]) {
        self(input, inout);
    }
}

/// Combines the bytes of all ranks; the result is in the root's `bytes`. The others' `bytes` are used up.
///
/// # Errors
/// When a message could not be sent or received.
pub fn reduce<V: Visit>(
    visit: V,
    comm: &Comm,
    bytes: &mut [u8],
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let line = Line::new(visit, comm);
    combine_at_zero(&line, bytes, op)?;
    if root == 0 || bytes.is_empty() {
        return Ok(());
    }
    match line.rank() {
        0 => line.send(root, bytes),
        rank if rank == root => line.receive(0, bytes),
        _ => Ok(()),
    }
}

/// Combines the bytes of all ranks; the result is everywhere.
///
/// # Errors
/// When a message could not be sent or received.
pub fn allreduce<V: Visit>(
    visit: V,
    comm: &Comm,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    combine_at_zero(&Line::new(visit, comm), bytes, op)?;
    bcast(visit, comm, bytes, 0)
}

/// Binomial tree towards rank 0: a rank's partial result covers consecutive ranks, itself the lowest.
fn combine_at_zero<V: Visit>(
    line: &Line<'_, V>,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let (rank, size) = (line.rank(), line.size());
    let mut higher = Vec::new();
    let mut span = 1;
    while span < size {
        if rank & span != 0 {
            return line.send(rank - span, bytes);
        }
        if rank + span < size {
            higher.resize(bytes.len(), 0);
            line.receive(rank + span, &mut higher)?;
            // mine op higher, in this order, belongs into `bytes`.
            op.reduce(bytes, &mut higher);
            bytes.copy_from_slice(&higher);
        }
        span <<= 1;
    }
    Ok(())
}
