// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns figures into a verdict: which of two MPIs leads in a row.

use serde::Serialize;

use super::store::GridValue;
use crate::stats::Summary;
use crate::unit::FigureUnit;

/// The verdict on rmpi and another contender in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GridOutcome {
    /// rmpi leads.
    Leads,
    /// The other contender leads.
    Trails,
    /// Neither leads: the median ratio is within the margin, or too many rounds contradict it.
    Level,
    /// There are too few rounds in which both were measured.
    Missing,
}

/// Two contenders in a row, compared round by round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct JudgedPair {
    /// rmpi's figures.
    pub own: Option<Summary>,
    /// The other contender's figures.
    pub other: Option<Summary>,
    /// How many times better rmpi is, in the rounds in which both were measured.
    pub ratio: Option<Summary>,
    /// The verdict.
    pub outcome: GridOutcome,
}

/// The ratio that a lead must exceed.
const MARGIN: f64 = 1.03;
/// Minimum number of rounds with both contenders for a verdict.
const FEWEST_PAIRS: usize = 3;
/// One in this many rounds may contradict the verdict (rounded down).
const PAIRS_PER_EXCEPTION: usize = 7;
/// A row is close if its median ratio lies between `1 / CLOSE` and `CLOSE`.
const CLOSE: f64 = 1.15;

/// Compares rmpi's figures with those of another contender. A round counts only if the CPUs were placed alike for both
/// (on one core, or on two): see `compare::rounds`.
#[must_use]
pub fn judge(own: &[GridValue], other: &[GridValue]) -> JudgedPair {
    let pair = |own: &GridValue| {
        let other = other
            .iter()
            .find(|other| other.round == own.round && other.close == own.close)?;
        Some(times_better(own.unit, own.value, other.value))
    };
    let ratios: Vec<f64> = own.iter().filter_map(pair).collect();
    JudgedPair {
        own: summary(own),
        other: summary(other),
        ratio: Summary::of(&ratios),
        outcome: outcome(&ratios),
    }
}

impl JudgedPair {
    /// Whether the median ratio is so close to 1 that the row gets further rounds.
    pub(super) fn is_close(&self) -> bool {
        self.ratio
            .is_some_and(|ratio| ratio.median < CLOSE && ratio.median > 1.0 / CLOSE)
    }
}

fn outcome(ratios: &[f64]) -> GridOutcome {
    let Some(summary) = Summary::of(ratios).filter(|_| ratios.len() >= FEWEST_PAIRS) else {
        return GridOutcome::Missing;
    };
    let needed = ratios.len() - ratios.len() / PAIRS_PER_EXCEPTION;
    let better = |is: &dyn Fn(f64) -> bool| ratios.iter().filter(|ratio| is(**ratio)).count();
    if summary.median < 1.0 / MARGIN && better(&|ratio| ratio < 1.0) >= needed {
        return GridOutcome::Trails;
    }
    if summary.median > MARGIN && better(&|ratio| ratio > 1.0) >= needed {
        return GridOutcome::Leads;
    }
    GridOutcome::Level
}

/// How many times better the first figure is.
pub(super) fn times_better(unit: FigureUnit, own: f64, other: f64) -> f64 {
    if unit.smaller_is_better() {
        other / own
    } else {
        own / other
    }
}

/// Median and spread over the rounds.
pub(super) fn summary(values: &[GridValue]) -> Option<Summary> {
    Summary::of(&values.iter().map(|value| value.value).collect::<Vec<_>>())
}

/// The geometric mean of ratios: that of 0.5 and 2 is 1. `None` if there is no ratio.
pub(super) fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = ratios.map(f64::ln).filter(|log| log.is_finite()).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(unit: FigureUnit, figures: &[f64]) -> Vec<GridValue> {
        let value = |(round, value): (usize, &f64)| GridValue {
            round,
            value: *value,
            unit,
            close: false,
        };
        figures.iter().enumerate().map(value).collect()
    }

    fn of_times(own: &[f64], other: &[f64]) -> GridOutcome {
        judge(&values(FigureUnit::Us, own), &values(FigureUnit::Us, other)).outcome
    }

    #[test]
    fn few_rounds_must_all_agree() {
        assert_eq!(of_times(&[1.0; 3], &[0.9; 3]), GridOutcome::Trails);
        assert_eq!(of_times(&[1.0; 3], &[1.1; 3]), GridOutcome::Leads);
        assert_eq!(of_times(&[1.0; 3], &[0.9, 0.9, 1.1]), GridOutcome::Level);
        assert_eq!(
            of_times(&[1.0; 6], &[0.9, 0.9, 0.9, 0.9, 0.9, 1.1]),
            GridOutcome::Level
        );
        assert_eq!(of_times(&[1.0; 2], &[0.5; 2]), GridOutcome::Missing);
    }

    #[test]
    fn one_round_of_seven_may_contradict() {
        let six = [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.1];
        let five = [0.9, 0.9, 0.9, 0.9, 0.9, 1.1, 1.1];
        assert_eq!(of_times(&[1.0; 7], &six), GridOutcome::Trails);
        assert_eq!(of_times(&[1.0; 7], &five), GridOutcome::Level);
    }

    #[test]
    fn less_than_three_percent_are_no_lead() {
        assert_eq!(of_times(&[1.0; 7], &[0.98; 7]), GridOutcome::Level);
        assert_eq!(of_times(&[1.0; 7], &[1.02; 7]), GridOutcome::Level);
        assert_eq!(of_times(&[1.0; 7], &[1.04; 7]), GridOutcome::Leads);
    }

    #[test]
    fn more_is_better_for_rates() {
        let rates = |figure: f64| values(FigureUnit::MegabytesPerSecond, &[figure; 3]);
        let judged = judge(&rates(200.0), &rates(100.0));
        assert_eq!(
            (judged.ratio.unwrap().median, judged.outcome),
            (2.0, GridOutcome::Leads)
        );
    }

    #[test]
    fn rounds_with_one_contender_or_other_cpus_do_not_count() {
        let own = values(FigureUnit::Us, &[1.0; 4]);
        let mut other = values(FigureUnit::Us, &[0.5; 4]);
        other.remove(1);
        other[0].close = true;
        let judged = judge(&own, &other);
        assert_eq!(
            (judged.ratio.unwrap().count, judged.outcome),
            (2, GridOutcome::Missing)
        );
        assert_eq!(judged.other.unwrap().count, 3);
    }

    #[test]
    fn close_is_within_15_percent_to_either_side() {
        let is_close = |other: f64| {
            judge(
                &values(FigureUnit::Us, &[1.0; 3]),
                &values(FigureUnit::Us, &[other; 3]),
            )
            .is_close()
        };
        assert!(is_close(1.1) && is_close(0.9));
        assert!(!is_close(1.2) && !is_close(0.8));
        assert!(!judge(&[], &[]).is_close());
    }

    #[test]
    fn the_mean_of_half_and_double_is_one() {
        let mean = geometric_mean([0.5, 2.0].into_iter()).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(std::iter::empty()), None);
    }
}
