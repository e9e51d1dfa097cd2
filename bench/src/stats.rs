// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order statistics: medians and quantiles of samples. There is no mean here on purpose.

use serde::{Deserialize, Serialize};

/// Median and spread of some samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle sample, or the middle between the two middle ones.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// The smallest sample that 99 of 100 samples do not exceed.
    pub p99: f64,
    /// How many samples there were.
    pub count: usize,
}

impl Summary {
    /// Summarises samples; `None` when there are none. Samples that are not numbers are left out.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| !s.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            median: median_of_sorted(&sorted),
            min: first,
            max: last,
            p99: quantile_of_sorted(&sorted, 99),
            count: sorted.len(),
        })
    }
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// The smallest sample that at least `percent` of 100 samples do not exceed.
fn quantile_of_sorted(sorted: &[f64], percent: usize) -> f64 {
    let needed = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[needed - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn one_outlier_in_a_hundred_moves_the_maximum_alone() {
        let mut samples = vec![1.0; 99];
        samples.push(50.0);
        let summary = Summary::of(&samples).unwrap();
        assert_eq!((summary.median, summary.p99, summary.max), (1.0, 1.0, 50.0));
    }

    #[test]
    fn nothing_has_no_summary_and_nan_is_left_out() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::NAN, 2.0]).unwrap().count, 1);
    }
}
