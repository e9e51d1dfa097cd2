// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gather and scatter of equal blocks along a binomial tree. A rank sends the blocks of the ranks below it together
//! with its own. So the root has few messages, but most data are copied several times.

use super::tree::{place_of, rank_at};
use super::{CollectiveCall, CollectiveRoot};
use crate::{Error, Payload, UserMemory, Visit};

/// As [`gather`](super::gather), of equal blocks among the ranks of one group.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn gather_tree<V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&Payload>,
    all: &[Payload],
    root: CollectiveRoot,
) -> Result<(), Error> {
    let size = call.size();
    let Some((root, own)) = of_root(call, mine, all, root) else {
        return Ok(());
    };
    let me = place_of(call.rank(), root, size);
    let block = usize::try_from(own.bytes()).unwrap_or(usize::MAX);
    let below = below(me, size);
    if me != 0 && below == 1 {
        let mut pending = call.pending();
        pending.send_payload(rank_at(me - lowest(me), root, size), own);
        return pending.finish().await;
    }
    let mut blocks = vec![0u8; block * below as usize];
    let mut pending = call.pending();
    for (child, count) in children(me, size) {
        let at = (child - me) as usize * block;
        let part = &mut blocks[at..at + count as usize * block];
        pending.receive(rank_at(child, root, size), part);
    }
    // The own block is copied while the other blocks are in flight.
    let copied = match (me, mine, all.get(root as usize)) {
        (0, Some(mine), Some(place)) => mine.copy_to(place),
        (0, ..) => Ok(()),
        _ => {
            blocks[..block].copy_from_slice(&own.copy());
            Ok(())
        }
    };
    pending.finish().await?;
    if me != 0 {
        return call
            .send(rank_at(me - lowest(me), root, size), &blocks)
            .await;
    }
    for place in 1..size {
        let part = &blocks[place as usize * block..][..block];
        let to = &all[rank_at(place, root, size) as usize];
        Payload::Dense(UserMemory::of_const(part)).copy_to(to)?;
    }
    copied
}

/// As [`scatter`](super::scatter), of equal blocks among the ranks of one group.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn scatter_tree<V: Visit>(
    call: &CollectiveCall<V>,
    all: &[Payload],
    mine: Option<&Payload>,
    root: CollectiveRoot,
) -> Result<(), Error> {
    let size = call.size();
    let Some((root, own)) = of_root(call, mine, all, root) else {
        return Ok(());
    };
    let me = place_of(call.rank(), root, size);
    let block = usize::try_from(own.bytes()).unwrap_or(usize::MAX);
    let below = below(me, size);
    let mut pending = call.pending();
    let mut blocks = Vec::new();
    if me != 0 && below == 1 {
        pending.receive_payload(rank_at(me - lowest(me), root, size), own);
        return pending.finish().await;
    }
    if me == 0 {
        for place in 0..size {
            blocks.extend_from_slice(&all[rank_at(place, root, size) as usize].copy());
        }
    } else {
        blocks.resize(block * below as usize, 0);
        call.receive(rank_at(me - lowest(me), root, size), &mut blocks)
            .await?;
    }
    for (child, count) in children(me, size) {
        let at = (child - me) as usize * block;
        let part = &blocks[at..at + count as usize * block];
        pending.send(rank_at(child, root, size), part);
    }
    let copied = match (me, mine) {
        (0, None) => Ok(()),
        (0, Some(mine)) => all[root as usize].copy_to(mine),
        _ => Payload::Dense(UserMemory::of_const(&blocks[..block])).copy_to(own),
    };
    pending.finish().await.and(copied)
}

/// The root's rank, and this rank's own block: at the root its block in `all`, at other ranks `mine`. `None`: this rank
/// does not take part, or has no block.
pub(super) fn of_root<'a, V: Visit>(
    call: &CollectiveCall<V>,
    mine: Option<&'a Payload>,
    all: &'a [Payload],
    root: CollectiveRoot,
) -> Option<(u32, &'a Payload)> {
    match root {
        CollectiveRoot::Here => Some((call.rank(), all.get(call.rank() as usize)?)),
        CollectiveRoot::There(root) => Some((root, mine?)),
        CollectiveRoot::Aside => None,
    }
}

/// The lowest set bit of a position, which is not 0.
fn lowest(place: u32) -> u32 {
    1 << place.trailing_zeros()
}

/// The number of consecutive positions in the subtree of a position, itself included, in a tree of `size` positions.
fn below(place: u32, size: u32) -> u32 {
    match place {
        0 => size,
        _ => lowest(place).min(size - place),
    }
}

/// The positions directly below a position, each with the size of its subtree; the largest first.
fn children(place: u32, size: u32) -> impl Iterator<Item = (u32, u32)> {
    let span = match place {
        0 => size.next_power_of_two(),
        _ => lowest(place),
    };
    let spans = std::iter::successors(Some(span >> 1), |span| Some(span >> 1));
    let below_size = move |span: &u32| place + span < size;
    spans
        .take_while(|span| *span > 0)
        .filter(below_size)
        .map(move |span| (place + span, below(place + span, size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_tree_places_have_one_parent_and_correct_counts() {
        for size in 1..40 {
            let mut above = vec![0; size as usize];
            for place in 0..size {
                let mut count = 1;
                for (child, below) in children(place, size) {
                    above[child as usize] += 1;
                    assert_eq!(child - lowest(child), place, "of {size}");
                    count += below;
                }
                assert_eq!(count, below(place, size), "{place} of {size}");
            }
            assert!(above[0] == 0 && above[1..].iter().all(|count| *count == 1));
        }
    }
}
