// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gather, scatter, allgather and all-to-all with one block size. Blocks are dense bytes, in rank order.

use super::Line;
use crate::comm::Comm;
use crate::{Error, Visit};

/// Collects one block per rank at the root: `all` there has a block per rank, and is empty elsewhere. The root's own
/// block is already in place.
///
/// # Errors
/// When a message could not be sent or received.
pub fn gather<V: Visit>(
    visit: V,
    comm: &Comm,
    mine: &[u8],
    all: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    let line = Line::new(visit, comm);
    if line.rank() != root {
        return line.send(root, mine);
    }
    for (from, block) in (0..line.size()).zip(blocks(all, line.size())) {
        if from != root {
            line.receive(from, block)?;
        }
    }
    Ok(())
}

/// Deals the root's blocks out, one per rank. The root's own block stays where it is.
///
/// # Errors
/// When a message could not be sent or received.
pub fn scatter<V: Visit>(
    visit: V,
    comm: &Comm,
    all: &[u8],
    mine: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    let line = Line::new(visit, comm);
    if line.rank() != root {
        return line.receive(root, mine);
    }
    let bytes = all.len() / line.size() as usize;
    for to in (0..line.size()).filter(|to| *to != root) {
        line.send(to, &all[to as usize * bytes..][..bytes])?;
    }
    Ok(())
}

/// Collects one block per rank everywhere; each rank's own block is already in place. A ring: every block travels once
/// past every rank.
///
/// # Errors
/// When a message could not be sent or received.
pub fn allgather<V: Visit>(visit: V, comm: &Comm, all: &mut [u8]) -> Result<(), Error> {
    let line = Line::new(visit, comm);
    let (rank, size) = (line.rank(), line.size());
    let bytes = all.len() / size as usize;
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    for step in 0..size - 1 {
        let out = (rank + size - step) % size;
        let into = (rank + size - step - 1) % size;
        let (out, into) = two_blocks(all, bytes, out, into);
        line.exchange(right, out, left, into)?;
    }
    Ok(())
}

/// Block `i` of `out` goes to rank `i`; block `i` of `into` comes from rank `i`. The own block is already in place.
///
/// # Errors
/// When a message could not be sent or received.
pub fn alltoall<V: Visit>(visit: V, comm: &Comm, out: &[u8], into: &mut [u8]) -> Result<(), Error> {
    let line = Line::new(visit, comm);
    let (rank, size) = (line.rank(), line.size());
    let bytes = out.len() / size as usize;
    for step in 1..size {
        let (to, from) = ((rank + step) % size, (rank + size - step) % size);
        let into = &mut into[from as usize * bytes..][..bytes];
        line.exchange(to, &out[to as usize * bytes..][..bytes], from, into)?;
    }
    Ok(())
}

fn blocks(all: &mut [u8], count: u32) -> impl Iterator<Item = &mut [u8]> {
    let bytes = all.len() / count as usize;
    let mut rest = all;
    (0..count).map(move |_| {
        let (block, others) = std::mem::take(&mut rest).split_at_mut(bytes);
        rest = others;
        block
    })
}

/// Two different blocks, one to read and one to write.
fn two_blocks(all: &mut [u8], bytes: usize, read: u32, write: u32) -> (&[u8], &mut [u8]) {
    let (read, write) = (read as usize * bytes, write as usize * bytes);
    if read < write {
        let (low, high) = all.split_at_mut(write);
        (&low[read..read + bytes], &mut high[..bytes])
    } else {
        let (low, high) = all.split_at_mut(read);
        (&high[..bytes], &mut low[write..write + bytes])
    }
}
