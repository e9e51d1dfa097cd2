// SPDX-License-Identifier: MIT OR Apache-2.0
//! Algorithms for large data: each rank sends and receives about once or twice as many bytes as the data have, however
//! many ranks there are.

use std::ops::Range;

use super::reduce::{combine_slices, cut_mut, slices};
use super::tree::{place_of, rank_at};
use super::{CollectiveCall, CollectiveRoot, Reducer};
use crate::{Error, Payload, UserMemory, Visit};

/// The root's part of a broadcast along a chain of all ranks, segment by segment.
pub(super) async fn pass<V: Visit>(call: &CollectiveCall<V>, bytes: &[u8]) -> Result<(), Error> {
    let mut pending = call.pending();
    if call.size() > 1 {
        let next = (call.rank() + 1) % call.size();
        for segment in segments(bytes.len(), call.shape().segment_bytes) {
            pending.send(next, &bytes[segment]);
        }
    }
    pending.finish().await
}

/// The part of the other ranks in a broadcast along a chain: a segment is forwarded while the next one arrives.
pub(super) async fn pass_on<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    let (size, me) = (call.size(), place_of(call.rank(), root, call.size()));
    let from = rank_at(me - 1, root, size);
    let next = (me + 1 < size).then(|| rank_at(me + 1, root, size));
    let mut segments = segments(bytes.len(), call.shape().segment_bytes);
    let (mut sent, mut ended) = (call.pending(), Ok(()));
    let mut expected = segments.next();
    let mut coming = call.pending();
    if let Some(segment) = &expected {
        coming.receive(from, &mut bytes[segment.clone()]);
    }
    while let Some(segment) = expected {
        expected = segments.next().filter(|_| ended.is_ok());
        let mut later = call.pending();
        if let Some(segment) = &expected {
            later.receive(from, &mut bytes[segment.clone()]);
        }
        ended = ended.and(coming.finish().await);
        if let Some(next) = next {
            sent.send(next, &bytes[segment]);
        }
        coming = later;
    }
    ended.and(sent.finish().await)
}

/// The root's part of a broadcast in slices: each other rank gets one slice, and sends it to all other ranks except the
/// root (R. van de Geijn and others, 1994, with direct messages).
pub(super) async fn send_slices<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
) -> Result<(), Error> {
    let (rank, size) = (call.rank(), call.size());
    let mut pending = call.pending();
    for (place, slice) in (1..size).zip(of_others(bytes.len(), size)) {
        pending.send(rank_at(place, rank, size), &bytes[slice]);
    }
    pending.finish().await
}

/// The part of the other ranks in a broadcast in slices.
pub(super) async fn receive_slices<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
) -> Result<(), Error> {
    let (size, me) = (call.size(), place_of(call.rank(), root, call.size()));
    let all: Vec<Range<usize>> = of_others(bytes.len(), size).collect();
    let own = all[me as usize - 1].clone();
    let others = || (1..size).zip(&all).filter(|(place, _)| *place != me);
    let mut pending = call.pending();
    for (place, slice) in others() {
        pending.receive(rank_at(place, root, size), &mut bytes[slice.clone()]);
    }
    let received = call.receive(root, &mut bytes[own.clone()]).await;
    if received.is_ok() {
        for (place, _) in others() {
            pending.send(rank_at(place, root, size), &bytes[own.clone()]);
        }
    }
    pending.finish().await.and(received)
}

/// Reduces large data: each rank combines a slice of all ranks' data, and the root collects the slices.
pub(super) async fn reduce_slices<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let lengths = slices(bytes.len(), call.size() as usize, op.item_bytes());
    let combined = combine_slices(call, bytes, &lengths, op).await?;
    collect_slices(call, &combined, (bytes, &lengths), root).await
}

/// Reduces large data as [`reduce_slices`] does, but the slices are sent once round a ring. The operation must commute.
pub(super) async fn reduce_ring<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    root: u32,
    op: &impl Reducer,
) -> Result<(), Error> {
    let lengths = slices(bytes.len(), call.size() as usize, op.item_bytes());
    let mut combined = vec![0; lengths[call.rank() as usize]];
    reduce_scatter_ring(call, bytes, &lengths, &mut combined, op).await?;
    collect_slices(call, &combined, (bytes, &lengths), root).await
}

/// Collects each rank's slice in the root's `bytes`. `lengths`: the lengths of the slices.
async fn collect_slices<V: Visit>(
    call: &CollectiveCall<V>,
    mine: &[u8],
    (bytes, lengths): (&mut [u8], &[usize]),
    root: u32,
) -> Result<(), Error> {
    let mine = Payload::Dense(UserMemory::of_const(mine));
    let is_root = call.rank() == root;
    let all: Vec<Payload> = match is_root {
        true => cut_mut(bytes, lengths)
            .map(|slice| Payload::Dense(UserMemory::of(slice)))
            .collect(),
        false => Vec::new(),
    };
    let root = if is_root {
        CollectiveRoot::Here
    } else {
        CollectiveRoot::There(root)
    };
    super::gather(call, Some(&mine), &all, root).await
}

/// An allreduce twice round a ring: first the partial results of slices, then the results. The order of combination
/// depends on the slice, so the operation must commute.
pub(super) async fn allreduce_ring<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let (rank, size) = (call.rank() as usize, call.size() as usize);
    let lengths = slices(bytes.len(), size, op.item_bytes());
    let all = ranges(&lengths);
    combine_round(call, bytes, &all, rank, op).await?;
    let (next, before) = neighbours(call);
    for step in 0..size - 1 {
        let out = all[(rank + 1 + size - step) % size].clone();
        let into = all[(rank + size - step) % size].clone();
        let mut pending = call.pending();
        pending.receive(before, &mut bytes[into]);
        pending.send(next, &bytes[out]);
        pending.finish().await?;
    }
    Ok(())
}

/// A reduce-scatter once round a ring. `mine` gets this rank's part. The operation must commute.
pub(super) async fn reduce_scatter_ring<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    lengths: &[usize],
    mine: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let (rank, size) = (call.rank() as usize, call.size() as usize);
    let all = ranges(lengths);
    combine_round(call, bytes, &all, rank + size - 1, op).await?;
    mine.copy_from_slice(&bytes[all[rank].clone()]);
    Ok(())
}

/// Combines all slices once round a ring. In each step, sends this rank's partial result of a slice to the next rank,
/// and receives and combines a partial result of the previous rank. `first`: number of the slice that is sent first.
/// The slice that this rank receives last is complete.
async fn combine_round<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    all: &[Range<usize>],
    first: usize,
    op: &impl Reducer,
) -> Result<(), Error> {
    let size = all.len();
    let (next, before) = neighbours(call);
    let longest = all.iter().map(Range::len).max().unwrap_or(0);
    let mut partial = vec![0u8; longest];
    for step in 0..size - 1 {
        let out = all[(first + size - step) % size].clone();
        let into = all[(first + size - step - 1) % size].clone();
        let partial = &mut partial[..into.len()];
        call.exchange(next, &bytes[out], before, partial).await?;
        op.reduce(partial, &mut bytes[into]);
    }
    Ok(())
}

fn neighbours<V: Visit>(call: &CollectiveCall<V>) -> (u32, u32) {
    let (rank, size) = (call.rank(), call.size());
    ((rank + 1) % size, (rank + size - 1) % size)
}

/// An allreduce by recursive halving between pairs of ranks, whose distance grows, and then recursive doubling in
/// reverse order (R. Rabenseifner, 2004). A partial result covers consecutive ranks, so the rank order is kept. If the
/// number of ranks is not a power of two, the first ranks are folded in pairs before, and the folded ranks get the
/// result afterwards.
pub(super) async fn allreduce_halves<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &mut [u8],
    op: &impl Reducer,
) -> Result<(), Error> {
    let pairs = FoldedRanks::of(call.rank(), call.size());
    if pairs.is_folded() {
        call.send(call.rank() + 1, bytes).await?;
        return call.receive(call.rank() + 1, bytes).await;
    }
    if pairs.acts_for_two() {
        let mut other = vec![0u8; bytes.len()];
        call.receive(call.rank() - 1, &mut other).await?;
        op.reduce(&other, bytes);
    }
    let all = ranges(&slices(bytes.len(), pairs.power as usize, op.item_bytes()));
    let span_of = |slices: &Range<usize>| all[slices.start].start..all[slices.end - 1].end;
    let mut mine = 0..pairs.power as usize;
    let mut halves = Vec::new();
    let mut span = 1;
    while span < pairs.power {
        let middle = mine.start + mine.len() / 2;
        let (low, high) = (mine.start..middle, middle..mine.end);
        let is_lower = pairs.me & span == 0;
        let (kept, given) = if is_lower { (low, high) } else { (high, low) };
        let (here, there) = (span_of(&kept), span_of(&given));
        let partner = pairs.rank_of(pairs.me ^ span);
        let mut other = vec![0u8; here.len()];
        call.exchange(partner, &bytes[there], partner, &mut other)
            .await?;
        combine(&mut bytes[here], &mut other, is_lower, op);
        halves.push((partner, kept.clone(), given));
        mine = kept;
        span <<= 1;
    }
    for (partner, mine, theirs) in halves.into_iter().rev() {
        let mut pending = call.pending();
        pending.receive(partner, &mut bytes[span_of(&theirs)]);
        pending.send(partner, &bytes[span_of(&mine)]);
        pending.finish().await?;
    }
    match pairs.acts_for_two() {
        true => call.send(call.rank() - 1, bytes).await,
        false => Ok(()),
    }
}

/// Combines `mine` with `other` into `mine`. `mine_first`: whether `mine` is of lower ranks than `other`.
pub(super) fn combine(mine: &mut [u8], other: &mut [u8], mine_first: bool, op: &impl Reducer) {
    if mine_first {
        op.reduce(mine, other);
        mine.copy_from_slice(other);
    } else {
        op.reduce(other, mine);
    }
}

/// Ranks folded to a power of two for recursive halving and doubling: each of the first pairs of ranks acts as one
/// rank.
pub(super) struct FoldedRanks {
    rank: u32,
    /// The largest power of two that is not larger than the number of ranks.
    pub(super) power: u32,
    paired: u32,
    /// The index of this rank, or of its pair, among the ranks after folding.
    pub(super) me: u32,
}

impl FoldedRanks {
    pub(super) fn of(rank: u32, size: u32) -> Self {
        let power = 1 << size.ilog2();
        let paired = 2 * (size - power);
        let me = match rank < paired {
            true => rank / 2,
            false => rank - paired / 2,
        };
        Self {
            rank,
            power,
            paired,
            me,
        }
    }

    /// Whether the next rank acts also for this rank.
    pub(super) fn is_folded(&self) -> bool {
        self.rank < self.paired && self.rank & 1 == 0
    }

    /// Whether this rank acts also for the previous rank.
    pub(super) fn acts_for_two(&self) -> bool {
        self.rank < self.paired && self.rank & 1 != 0
    }

    pub(super) fn rank_of(&self, place: u32) -> u32 {
        match place < self.paired / 2 {
            true => 2 * place + 1,
            false => place + self.paired / 2,
        }
    }
}

/// The slices of a broadcast: one for each rank except the root.
fn of_others(bytes: usize, size: u32) -> impl Iterator<Item = Range<usize>> {
    let lengths = slices(bytes, size.saturating_sub(1) as usize, 1);
    ranges(&lengths).into_iter()
}

/// Segments of data. There is at least one segment, even if there are no data: ranks that expect more data then detect
/// the mismatch.
fn segments(bytes: usize, segment: usize) -> impl Iterator<Item = Range<usize>> {
    let count = bytes.div_ceil(segment).max(1);
    (0..count).map(move |at| at * segment..bytes.min((at + 1) * segment))
}

/// The ranges of consecutive parts of these lengths.
fn ranges(lengths: &[usize]) -> Vec<Range<usize>> {
    let part = |start: &mut usize, length: &usize| {
        let from = *start;
        *start += length;
        Some(from..*start)
    };
    lengths.iter().scan(0, part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_all_bytes_and_there_is_at_least_one() {
        for (bytes, segment, count) in [(0, 8, 1), (1, 8, 1), (8, 8, 1), (9, 8, 2), (64, 8, 8)] {
            let all: Vec<_> = segments(bytes, segment).collect();
            assert_eq!((all.len(), all[0].start), (count, 0));
            assert!(all.windows(2).all(|two| two[0].end == two[1].start));
            assert_eq!(all[count - 1].end, bytes);
        }
    }

    #[test]
    fn folded_places_and_ranks_are_inverse() {
        for size in 1..20 {
            let active = (0..size).filter(|rank| !FoldedRanks::of(*rank, size).is_folded());
            let places = active.map(|rank| {
                let pairs = FoldedRanks::of(rank, size);
                assert_eq!(pairs.rank_of(pairs.me), rank, "of {size}");
                pairs.me
            });
            let power = FoldedRanks::of(0, size).power;
            assert!(places.eq(0..power), "of {size}");
        }
    }
}
