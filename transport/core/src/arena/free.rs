// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manages the free space of an arena, by offsets and lengths only; `arena.rs` accesses the memory.

use std::collections::{BTreeMap, HashMap};

/// The space of one arena, allocated in whole pages from the lowest gap that is large enough.
#[derive(Debug)]
pub(super) struct ArenaSpace {
    /// Lengths of the gaps, by offset. No two gaps are adjacent.
    gaps: BTreeMap<u64, u64>,
    /// Lengths of the allocated pieces, by offset.
    taken: HashMap<u64, u64>,
}

impl ArenaSpace {
    /// The space of an arena of `bytes` bytes, all of which are free.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            gaps: BTreeMap::from([(0, bytes)]),
            taken: HashMap::new(),
        }
    }

    /// Allocates `bytes` bytes (rounded up to pages); returns their offset, or `None` if no gap is large enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let (offset, gap) = self
            .gaps
            .iter()
            .map(|(offset, gap)| (*offset, *gap))
            .find(|(_, gap)| *gap >= bytes)?;
        self.gaps.remove(&offset);
        if gap > bytes {
            self.gaps.insert(offset + bytes, gap - bytes);
        }
        self.taken.insert(offset, bytes);
        Some(offset)
    }

    /// Frees the piece that [`take`](Self::take) allocated at `offset`; returns its length.
    pub(super) fn give_back(&mut self, offset: u64) -> Option<u64> {
        let bytes = self.taken.remove(&offset)?;
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some(next) = self.gaps.remove(&end) {
            end += next;
        }
        let before = self.gaps.range(..offset).next_back();
        if let Some((before, gap)) = before.map(|(offset, gap)| (*offset, *gap))
            && before + gap == start
        {
            start = before;
        }
        self.gaps.insert(start, end - start);
        Some(bytes)
    }
}

/// Bytes of a page; larger pages are multiples of it.
pub(super) const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_merge_with_their_neighbours() {
        let mut space = ArenaSpace::new(64 * PAGE);
        let taken: Vec<_> = (0..4).map(|_| space.take(10 * PAGE).unwrap()).collect();
        assert_eq!(taken, [0, 10 * PAGE, 20 * PAGE, 30 * PAGE]);
        assert_eq!(space.take(30 * PAGE), None);
        for at in [1, 3, 0, 2] {
            assert_eq!(space.give_back(taken[at]), Some(10 * PAGE));
        }
        assert_eq!(space.gaps, BTreeMap::from([(0, 64 * PAGE)]));
        assert_eq!(space.take(64 * PAGE), Some(0));
    }

    #[test]
    fn double_free_and_free_from_the_middle_are_rejected() {
        let mut space = ArenaSpace::new(64 * PAGE);
        let offset = space.take(3 * PAGE).unwrap();
        assert_eq!(space.give_back(offset + PAGE), None);
        assert!(space.give_back(offset).is_some());
        assert_eq!(space.give_back(offset), None);
    }

    #[test]
    fn allocations_larger_than_the_arena_fail() {
        let mut space = ArenaSpace::new(64 * PAGE);
        for bytes in [64 * PAGE + 1, u64::MAX, u64::MAX - PAGE] {
            assert_eq!(space.take(bytes), None);
        }
        assert_eq!(space.take(0), Some(0), "an address for nothing");
        assert_eq!(space.take(1), Some(PAGE));
    }

    #[test]
    fn allocations_never_overlap() {
        let mut space = ArenaSpace::new(1000 * PAGE);
        let (mut held, mut seed) = (Vec::<(u64, u64)>::new(), 1u64);
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = seed >> 33;
            if random & 1 == 0 && !held.is_empty() {
                let (offset, bytes) = held.swap_remove(random as usize % held.len());
                assert_eq!(space.give_back(offset), Some(bytes));
            } else if let Some(offset) = space.take(random % (40 * PAGE)) {
                let bytes = (random % (40 * PAGE)).max(1).next_multiple_of(PAGE);
                assert!(
                    held.iter()
                        .all(|(o, b)| offset + bytes <= *o || o + b <= offset)
                );
                held.push((offset, bytes));
            }
        }
        assert!(held.len() > 10);
    }
}
