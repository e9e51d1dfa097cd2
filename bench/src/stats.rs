// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order statistics: medians and quantiles of samples. Means are left out on purpose.

use serde::{Deserialize, Serialize};

/// Median and spread of some samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle sample, or the mean of the two middle samples.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// The smallest sample that at least 99 % of the samples do not exceed.
    pub p99: f64,
    /// The number of samples.
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

/// A confidence interval of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The probability (0 to 1) that an interval made in this way includes the median of the distribution that the
    /// samples come from.
    pub confidence: f64,
}

impl Interval {
    /// The narrowest interval between two samples that includes the true median with at least this confidence (0 to 1),
    /// whatever the samples' distribution. As many samples lie below the interval as above it. `None` if there are too
    /// few samples for that; six are enough for 95 %.
    #[must_use]
    pub fn of_median(samples: &[f64], confidence: f64) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| !s.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        // The true median lies below the k-th smallest sample if fewer than k samples lie below the median. Each sample
        // lies below the true median with probability 1/2.
        let count = sorted.len();
        let mut beyond = 0.5f64.powi(i32::try_from(count).ok()?);
        let mut each = beyond;
        let mut found = None;
        for rank in 0..count / 2 {
            let covered = 1.0 - 2.0 * beyond;
            if covered < confidence {
                break;
            }
            found = Some(Self {
                low: sorted[rank],
                high: sorted[count - 1 - rank],
                confidence: covered,
            });
            each *= (count - rank) as f64 / (rank + 1) as f64;
            beyond += each;
        }
        found
    }

    /// Whether a value lies in the interval.
    #[must_use]
    pub fn includes(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
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

/// The smallest sample that at least `percent` % of the samples do not exceed.
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
    fn the_interval_of_a_median_is_that_of_the_sign_test() {
        let samples = |count: i32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(Interval::of_median(&samples(5), 0.95), None);
        // From tables of the sign test: for n = 6 samples the interval begins at the first (96.9 %), for n = 9 at the
        // second (96.1 %), for n = 20 at the sixth (95.9 %).
        for (count, rank, confidence) in [
            (6, 1.0, 0.969),
            (7, 1.0, 0.984),
            (9, 2.0, 0.961),
            (20, 6.0, 0.959),
        ] {
            let interval = Interval::of_median(&samples(count), 0.95).unwrap();
            assert_eq!(
                (interval.low, interval.high),
                (rank, f64::from(count) + 1.0 - rank),
                "{count}"
            );
            assert!(
                (interval.confidence - confidence).abs() < 0.001,
                "{interval:?}"
            );
        }
        assert_eq!(Interval::of_median(&[], 0.95), None);
        assert!(Interval::of_median(&[1.0; 8], 0.95).unwrap().includes(1.0));
    }

    #[test]
    fn nothing_has_no_summary_and_nan_is_left_out() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::NAN, 2.0]).unwrap().count, 1);
    }
}
