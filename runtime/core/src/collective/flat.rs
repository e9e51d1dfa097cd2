// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small collectives where ranks outnumber CPUs: there waits are expensive, not messages, so all of them go through
//! one rank, and each other rank waits once.
//!
//! One leader for each CPU, so that the CPUs work in parallel, was measured with 64 ranks on two CPUs: the leaders
//! wait for each other once more, which is another turn of all ranks, and it took 1.3 times as long.

use super::{CollectiveCall, Reducer};
use crate::{Error, Visit};

/// All ranks have entered before rank 0 leaves.
pub(super) async fn arrive<V: Visit>(line: &CollectiveCall<V>) -> Result<(), Error> {
    if line.rank() != 0 {
        return line.send(0, &[]).await;
    }
    for from in 1..line.size() {
        line.receive(from, &mut []).await?;
    }
    Ok(())
}

/// All ranks have entered before any leaves.
pub(super) async fn barrier<V: Visit>(line: &CollectiveCall<V>) -> Result<(), Error> {
    arrive(line).await?;
    match line.rank() {
        0 => bcast(line, &[]).await,
        _ => line.receive(0, &mut []).await,
    }
}

/// Sends this rank's bytes to all.
pub(super) async fn bcast<V: Visit>(line: &CollectiveCall<V>, bytes: &[u8]) -> Result<(), Error> {
    let (rank, size) = (line.rank(), line.size());
    let mut pending = line.pending();
    for step in 1..size {
        pending.send((rank + step) % size, bytes);
    }
    pending.finish().await
}

/// Combines the bytes of all at the root, in rank order.
pub(super) async fn reduce<V: Visit>(
    line: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let length = bytes.len();
    if line.rank() != root {
        return line.send(root, bytes).await;
    }
    let mut all = vec![0u8; length * line.size() as usize];
    let mut pending = line.pending();
    for (from, part) in (0..).zip(all.chunks_exact_mut(length)) {
        match from == root {
            true => part.copy_from_slice(bytes),
            false => pending.receive(from, part),
        }
    }
    pending.finish().await?;
    bytes.copy_from_slice(super::reduce::fold(&mut all, length, op));
    Ok(())
}

/// Collects one block of bytes of each rank at all ranks; the own one is in place.
pub(super) async fn allgather<V: Visit>(
    line: &CollectiveCall<V>,
    all: &mut [u8],
) -> Result<(), Error> {
    let bytes = all.len() / line.size() as usize;
    if line.rank() == 0 {
        let mut pending = line.pending();
        for (from, block) in (0..).zip(all.chunks_exact_mut(bytes)).skip(1) {
            pending.receive(from, block);
        }
        pending.finish().await?;
        bcast(line, all).await
    } else {
        let own = line.rank() as usize * bytes;
        line.send(0, &all[own..own + bytes]).await?;
        line.receive(0, all).await
    }
}
