// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text form of the ranks of a node, in the order of their local numbers: `0-3,8,12-15`.

use std::fmt;

/// Ranks in `MPI_COMM_WORLD` of the processes of a node, without repetition; the index is the local rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks(Vec<u32>);

impl Ranks {
    /// Ranks `0 .. count`: the list for a node that has all ranks of the job.
    #[must_use]
    pub fn first(count: u32) -> Self {
        Self((0..count).collect())
    }

    /// A list of these ranks; `None` if a rank occurs twice.
    #[must_use]
    pub fn new(ranks: Vec<u32>) -> Option<Self> {
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        let differ = |pair: &[u32]| pair[0] != pair[1];
        sorted.windows(2).all(differ).then_some(Self(ranks))
    }

    /// Parses the output of [`Display`](fmt::Display); `None` for anything else and for a number of ranks other than
    /// `count`.
    pub(crate) fn parse(text: &str, count: u32) -> Option<Self> {
        Self::read(text, count).filter(|ranks| ranks.count() == count)
    }

    /// Parses at most `most` ranks, so that no text produces an unbounded list.
    #[must_use]
    pub fn read(text: &str, most: u32) -> Option<Self> {
        let mut ranks = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let more = u64::from(last.checked_sub(first)?) + 1;
            if ranks.len() as u64 + more > u64::from(most) {
                return None;
            }
            ranks.extend(first..=last);
        }
        Self::new(ranks)
    }

    /// Number of ranks.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// The ranks in the order of their local numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// Whether a rank is on the node.
    #[must_use]
    pub fn has(&self, rank: u32) -> bool {
        self.0.contains(&rank)
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for run in self
            .0
            .chunk_by(|one, next| one.checked_add(1) == Some(*next))
        {
            match run {
                [first, .., last] => write!(out, "{between}{first}-{last}")?,
                [only] => write!(out, "{between}{only}")?,
                [] => {}
            }
            between = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rank_runs_are_written_as_ranges() {
        for (ranks, text) in [
            (vec![0, 1, 2, 3], "0-3"),
            (vec![4, 0, 1], "4,0-1"),
            (vec![1, 3, 5], "1,3,5"),
            (vec![u32::MAX], "4294967295"),
        ] {
            let count = u32::try_from(ranks.len()).unwrap();
            let ranks = Ranks::new(ranks).unwrap();
            assert_eq!(ranks.to_string(), text);
            assert_eq!(Ranks::parse(text, count), Some(ranks));
        }
        assert_eq!(Ranks::first(3).to_string(), "0-2");
    }

    #[test]
    fn malformed_text_is_rejected() {
        for text in [
            "",
            "0-",
            "3-1",
            "0,0",
            "0-2,1",
            "a",
            "0-4294967295",
            "0-1,5",
            "-1",
        ] {
            assert_eq!(Ranks::parse(text, 2), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_text_parses_to_the_same_value(ranks in proptest::collection::hash_set(0_u32..50, 1..30)) {
            let ranks = Ranks::new(ranks.into_iter().collect()).unwrap();
            prop_assert_eq!(Ranks::parse(&ranks.to_string(), ranks.count()), Some(ranks));
        }
    }
}
