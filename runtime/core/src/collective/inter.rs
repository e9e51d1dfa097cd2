// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives of intercommunicators that need more than messages between the groups (MPI 5.0 section 6.2.3): each
//! group does its part internally, and the two ranks 0 exchange the results.

use super::{CollectiveCall, CollectiveRoot, Reducer, reduce};
use crate::{Error, Payload, UserMemory, Visit};

/// A barrier: no rank leaves before all ranks of both groups have entered.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn barrier<V: Visit>(call: &CollectiveCall<V>) -> Result<(), Error> {
    let local = call.local();
    super::barrier(&local).await?;
    if call.rank() == 0 {
        call.exchange(0, &[], 0, &mut []).await?;
    }
    super::barrier(&local).await
}

/// The root's part of [`bcast`]. Other calls may read the same memory meanwhile.
///
/// # Errors
/// When a message could not be sent.
pub async fn bcast_from_here<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
) -> Result<(), Error> {
    call.send(0, bytes).await
}

/// Sends the root's bytes to all ranks of the other group.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn bcast<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: CollectiveRoot,
) -> Result<(), Error> {
    match root {
        CollectiveRoot::Aside => Ok(()),
        CollectiveRoot::Here => bcast_from_here(call, bytes).await,
        CollectiveRoot::There(root) => {
            if call.rank() == 0 {
                call.receive(root, bytes).await?;
            }
            super::bcast(&call.local(), bytes, 0).await
        }
    }
}

/// Combines the other group's bytes at the root. The contents of a contributor's buffer are destroyed.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn reduce_to<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: CollectiveRoot,
    op: &impl Reducer,
) -> Result<(), Error> {
    match root {
        CollectiveRoot::Aside => Ok(()),
        CollectiveRoot::Here => call.receive(0, bytes).await,
        CollectiveRoot::There(root) => {
            reduce::reduce_bytes(&call.local(), bytes, 0, op).await?;
            match call.rank() {
                0 => call.send(root, bytes).await,
                _ => Ok(()),
            }
        }
    }
}

/// Each group gets in `result` the combination of the other group's `bytes`. The contents of `bytes` are destroyed.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn allreduce<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    result: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    swap(call, bytes, result, op).await?;
    super::bcast(&call.local(), result, 0).await
}

/// As [`allreduce`], but each rank gets only its part of the result. `lengths`: the bytes of the parts of this group's
/// ranks.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn reduce_scatter<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    lengths: &[usize],
    mine: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let mut result = vec![0u8; lengths.iter().sum()];
    swap(call, bytes, &mut result, op).await?;
    let parts: Vec<Payload> = match call.rank() {
        0 => reduce::cut(&result, lengths)
            .map(|part| Payload::Dense(UserMemory::of_const(part)))
            .collect(),
        _ => Vec::new(),
    };
    let root = match call.rank() {
        0 => CollectiveRoot::Here,
        _ => CollectiveRoot::There(0),
    };
    let mine = Payload::Dense(UserMemory::of(mine));
    super::scatter(&call.local(), &parts, Some(&mine), root).await
}

/// Combines the data of each group at its rank 0, and exchanges the results between the two ranks 0.
async fn swap<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    result: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    reduce::reduce_bytes(&call.local(), bytes, 0, op).await?;
    match call.rank() {
        0 => call.exchange(0, bytes, 0, result).await,
        _ => Ok(()),
    }
}
