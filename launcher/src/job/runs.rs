// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes a node's ranks. Ranks at equal distances that differ only in their numbers are one entry. So the ranks of a
//! host take about ten bytes, whatever their number, unless CPUs are assigned to them.

use super::PlacedRank;
use crate::strided_ranks::StridedRanks;
use ring::layout::MAX_LOCAL_RANKS;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Ranks that are alike except for their numbers.
#[derive(Serialize, Deserialize)]
struct RankRun {
    ranks: StridedRanks,
    /// A rank of the run, with its own number replaced by 0.
    like: PlacedRank,
}

impl RankRun {
    fn of(placed: &PlacedRank) -> Self {
        Self {
            ranks: StridedRanks::of(placed.rank),
            like: PlacedRank {
                rank: 0,
                ..placed.clone()
            },
        }
    }

    /// Appends a rank if it continues the run; returns whether it does.
    fn takes(&mut self, placed: &PlacedRank) -> bool {
        let properties = |placed: &PlacedRank| (placed.app, placed.preferred);
        let is_like = properties(&self.like) == properties(placed) && self.like.cpus == placed.cpus;
        is_like && self.ranks.takes(placed.rank)
    }

    /// The ranks of the run; an item is `None` if the rank's number overflows.
    fn placed(self) -> impl Iterator<Item = Option<PlacedRank>> {
        let placed = move |rank: Option<u32>| {
            rank.map(|rank| PlacedRank {
                rank,
                ..self.like.clone()
            })
        };
        self.ranks.numbers().map(placed)
    }
}

pub(super) fn serialize<S: Serializer>(ranks: &[PlacedRank], out: S) -> Result<S::Ok, S::Error> {
    let mut runs: Vec<RankRun> = Vec::new();
    for placed in ranks {
        if !runs.last_mut().is_some_and(|run| run.takes(placed)) {
            runs.push(RankRun::of(placed));
        }
    }
    runs.serialize(out)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PlacedRank>, D::Error> {
    let runs = Vec::<RankRun>::deserialize(from)?;
    let count: u64 = runs.iter().map(|run| u64::from(run.ranks.count)).sum();
    if count > u64::from(MAX_LOCAL_RANKS) {
        return Err(D::Error::custom("there are more ranks than a node holds"));
    }
    let ranks = runs.into_iter().flat_map(RankRun::placed);
    let ranks: Option<Vec<PlacedRank>> = ranks.collect();
    ranks.ok_or_else(|| D::Error::custom("a rank's number is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::CpuList;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Ranks(#[serde(with = "super")] Vec<PlacedRank>);

    fn placed(rank: u32, app: u32, cpu: Option<u32>) -> PlacedRank {
        PlacedRank {
            rank,
            app,
            cpus: cpu.map(|cpu| CpuList::new(vec![cpu])),
            preferred: false,
        }
    }

    fn bytes(ranks: Vec<PlacedRank>) -> Vec<u8> {
        postcard::to_allocvec(&Ranks(ranks)).unwrap()
    }

    #[test]
    fn ranks_with_a_constant_stride_encode_in_few_bytes() {
        for step in [1, 10_000] {
            let ranks = (0..64).map(|number| placed(300_000 + number * step, 0, None));
            assert!(bytes(ranks.collect()).len() <= 12);
        }
    }

    #[test]
    fn overflowing_rank_runs_are_rejected() {
        let read = |step, count| {
            let mut run = RankRun::of(&placed(u32::MAX - 1, 0, None));
            (run.ranks.step, run.ranks.count) = (step, count);
            let bytes = postcard::to_allocvec(&[run].as_slice()).unwrap();
            postcard::from_bytes::<Ranks>(&bytes)
        };
        assert_eq!(read(1, 2).map(|ranks| ranks.0.len()), Ok(2));
        assert!(read(1, 3).is_err() && read(1 << 31, 3).is_err());
        assert!(read(0, MAX_LOCAL_RANKS + 1).is_err() && read(0, u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn ranks_round_trip_through_encoding(
            ranks in proptest::collection::vec((0..9_u32, 0..2_u32, proptest::option::of(0..2_u32)), 0..40),
        ) {
            let ranks: Vec<PlacedRank> = ranks.into_iter().map(|(rank, app, cpu)| placed(rank, app, cpu)).collect();
            let bytes = bytes(ranks.clone());
            prop_assert_eq!(postcard::from_bytes::<Ranks>(&bytes), Ok(Ranks(ranks)));
        }
    }
}
