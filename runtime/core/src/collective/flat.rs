// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small collectives for ranks that outnumber CPUs. If ranks share CPUs, waits are expensive and messages are not. So
//! all messages go through one rank (rank 0 or the root), and every other rank waits at most once.
//!
//! An alternative with one forwarding rank for each CPU, so that the CPUs work in parallel, was measured with 64 ranks
//! on two CPUs: a call took 1.3 times as long. The forwarding ranks must also wait for each other, and until such a
//! rank gets its CPU back, all other ranks of the CPU run once.

use super::{CollectiveCall, Reducer};
use crate::{Error, Visit};

/// A barrier for rank 0 only: rank 0 leaves after all ranks have entered, and the other ranks do not wait.
pub(super) async fn arrive<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    if call.rank() != 0 {
        return call.send(0, &[]).await;
    }
    for from in 1..call.size() {
        call.receive(from, &mut []).await?;
    }
    Ok(())
}

/// A barrier: no rank leaves before all ranks have entered.
pub(super) async fn barrier<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    arrive(call).await?;
    match call.rank() {
        0 => bcast(call, &[]).await,
        _ => call.receive(0, &mut []).await,
    }
}

/// Sends this rank's bytes to all other ranks.
pub(super) async fn bcast<V: Visit>(call: &CollectiveCall<V>, bytes: &[u8]) -> Result<(), Error> {
    let (rank, size) = (call.rank(), call.size());
    let mut pending = call.pending();
    for step in 1..size {
        pending.send((rank + step) % size, bytes);
    }
    pending.finish().await
}

/// Combines the bytes of all ranks at the root, in rank order.
pub(super) async fn reduce<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let length = bytes.len();
    if call.rank() != root {
        return call.send(root, bytes).await;
    }
    let mut all = vec![0u8; length * call.size() as usize];
    let mut pending = call.pending();
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

/// Collects one block of bytes of each rank at all ranks; the own block is in place.
pub(super) async fn allgather<V: Visit>(
    call: &CollectiveCall<V>,
    all: &mut [u8],
) -> Result<(), Error> {
    let bytes = all.len() / call.size() as usize;
    if call.rank() == 0 {
        let mut pending = call.pending();
        for (from, block) in (0..).zip(all.chunks_exact_mut(bytes)).skip(1) {
            pending.receive(from, block);
        }
        pending.finish().await?;
        bcast(call, all).await
    } else {
        let own = call.rank() as usize * bytes;
        call.send(0, &all[own..own + bytes]).await?;
        call.receive(0, all).await
    }
}
