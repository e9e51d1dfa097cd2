// SPDX-License-Identifier: MIT OR Apache-2.0
//! A compact form of ranks at equal distances, as the ranks of a node usually are: three numbers for any number of
//! ranks.

use serde::{Deserialize, Serialize};

/// A series of `count` ranks: `first`, `first + step`, `first + 2 * step` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StridedRanks {
    pub(crate) first: u32,
    pub(crate) step: u32,
    pub(crate) count: u32,
}

impl StridedRanks {
    /// A series of only this number.
    pub(crate) fn of(first: u32) -> Self {
        Self {
            first,
            step: 0,
            count: 1,
        }
    }

    /// Encodes ascending numbers as series. Each series is made as long as possible, in order.
    pub(crate) fn of_all(numbers: &[u32]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for number in numbers {
            if !all.last_mut().is_some_and(|last| last.takes(*number)) {
                all.push(Self::of(*number));
            }
        }
        all
    }

    /// Appends a number if it continues the series; returns whether it does.
    pub(crate) fn takes(&mut self, number: u32) -> bool {
        let Some(distance) = number.checked_sub(self.first) else {
            return false;
        };
        if self.count == 1 {
            self.step = distance;
        }
        let is_next = self.step.checked_mul(self.count) == Some(distance);
        self.count += u32::from(is_next);
        is_next
    }

    /// The numbers of the series; an item is `None` if the number overflows.
    pub(crate) fn numbers(self) -> impl Iterator<Item = Option<u32>> {
        (0..self.count).map(move |number| {
            let distance = self.step.checked_mul(number)?;
            self.first.checked_add(distance)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_of_a_node_are_one_series() {
        for step in [1, 10_000] {
            let ranks: Vec<u32> = (0..64).map(|number| 7 + number * step).collect();
            let series = StridedRanks {
                first: 7,
                step,
                count: 64,
            };
            assert_eq!(StridedRanks::of_all(&ranks), [series]);
        }
    }

    #[test]
    fn overflowing_strides_give_none() {
        let numbers = |first, step| {
            let series = StridedRanks {
                first,
                step,
                count: 3,
            };
            series.numbers().collect::<Vec<_>>()
        };
        assert_eq!(numbers(u32::MAX - 1, 1)[1..], [Some(u32::MAX), None]);
        assert_eq!(numbers(1, 1 << 31)[1..], [Some((1 << 31) + 1), None]);
    }

    proptest! {
        #[test]
        fn rank_numbers_round_trip_through_strides(numbers in proptest::collection::vec(0..99_u32, 0..40)) {
            let series = StridedRanks::of_all(&numbers).into_iter();
            let back: Option<Vec<u32>> = series.flat_map(StridedRanks::numbers).collect();
            prop_assert_eq!(back, Some(numbers));
        }
    }
}
