// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares a new build of rmpi with an old one, measured in the same rounds.
//!
//! The ratio new ÷ old is computed within each round. Its median is shown with an interval from order statistics, which
//! needs no assumption about the distribution of the figures. If the interval includes 1, the rounds show no
//! difference.

use std::fmt::Write as _;

use serde::Serialize;

use super::bars::CompareRow;
use super::rounds::{CompareData, ComparePlan};
use crate::stats::{Interval, Summary};
use crate::unit::{FigureUnit, three_digits};

/// The confidence of the intervals.
const CONFIDENCE: f64 = 0.95;

/// How the two builds differ in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ChangeOutcome {
    /// The interval includes 1.
    Same,
    /// The interval lies on the better side of 1.
    Better,
    /// The interval lies on the worse side of 1.
    Worse,
    /// There were too few rounds for an interval.
    Unknown,
}

/// One row of the comparison of two builds.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The row.
    pub id: &'static str,
    /// Its name in reports.
    pub title: &'static str,
    /// Its unit.
    pub unit: FigureUnit,
    /// The new build's figures.
    pub new: Option<Summary>,
    /// The old build's figures.
    pub old: Option<Summary>,
    /// new ÷ old, per round.
    pub ratio: Option<Summary>,
    /// The confidence interval of the median ratio; `None` if there are too few rounds.
    pub interval: Option<Interval>,
    /// The verdict.
    pub outcome: ChangeOutcome,
}

impl Change {
    fn of(row: &CompareRow, new: &[Option<f64>], old: &[Option<f64>]) -> Self {
        let pairs = new
            .iter()
            .zip(old)
            .filter_map(|(new, old)| Some((*new)? / (*old)?));
        let ratios: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
        let interval = match (row.unit, &ratios[..]) {
            // Instructions are counted only in the first round, so there is one ratio, which is both ends of the
            // interval.
            (FigureUnit::Instructions, [first, ..]) => Some(Interval {
                low: *first,
                high: *first,
                confidence: 1.0,
            }),
            _ => Interval::of_median(&ratios, CONFIDENCE),
        };
        let of = |values: &[Option<f64>]| {
            Summary::of(&values.iter().copied().flatten().collect::<Vec<_>>())
        };
        Self {
            id: row.id,
            title: row.title,
            unit: row.unit,
            new: of(new),
            old: of(old),
            ratio: Summary::of(&ratios),
            interval,
            outcome: outcome(row.unit, interval.as_ref()),
        }
    }

    /// Whether the outcome is [`ChangeOutcome::Same`] or [`ChangeOutcome::Better`]; `false` also if there are too few
    /// rounds.
    pub(super) fn is_harmless(&self) -> bool {
        matches!(self.outcome, ChangeOutcome::Same | ChangeOutcome::Better)
    }
}

fn outcome(unit: FigureUnit, interval: Option<&Interval>) -> ChangeOutcome {
    let Some(interval) = interval else {
        return ChangeOutcome::Unknown;
    };
    if interval.includes(1.0) {
        return ChangeOutcome::Same;
    }
    if (interval.high < 1.0) == unit.smaller_is_better() {
        ChangeOutcome::Better
    } else {
        ChangeOutcome::Worse
    }
}

/// Compares all rows of both builds; empty if there is no old build. A round counts if both builds ran with their two
/// CPUs on one physical core, or both with them on two cores.
pub(super) fn changes(plan: &ComparePlan, measured: &CompareData) -> Vec<Change> {
    let (Some(new), Some(old)) = (plan.own, plan.old) else {
        return Vec::new();
    };
    let of_all_rounds = |row: &CompareRow, contender: usize| {
        let mut values = measured.row(row, Some(contender), false);
        let rounds = plan.rounds.max(values.len());
        values.resize(rounds, None);
        values.extend(measured.row(row, Some(contender), true));
        values
    };
    plan.rows
        .iter()
        .map(|row| Change::of(row, &of_all_rounds(row, new), &of_all_rounds(row, old)))
        .collect()
}

/// Writes the table of changes.
pub(super) fn table(text: &mut String, changes: &[Change]) {
    text.push_str(
        "## The new build (rmpi) against the old one (rmpi-old)\n\n\
         Medians of the ratios within the rounds, and the interval that holds the true one with at least 95 % confidence: \
         of twenty rows that did not change, one may fall outside.\n\n\
         | row | unit | new | old | new ÷ old | interval | |\n|---|---|---|---|---|---|---|\n",
    );
    for change in changes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            change.title,
            change.unit.label(),
            super::report::shown(change.unit, change.new.as_ref()),
            super::report::shown(change.unit, change.old.as_ref()),
            change
                .ratio
                .map_or_else(|| "–".to_owned(), |ratio| three_digits(ratio.median)),
            interval_words(change.interval.as_ref()),
            words(change),
        );
    }
    text.push('\n');
}

fn interval_words(interval: Option<&Interval>) -> String {
    interval.map_or_else(
        || "–".to_owned(),
        |interval| {
            let percent = 100.0 * interval.confidence;
            format!(
                "{}–{} ({percent:.0} %)",
                three_digits(interval.low),
                three_digits(interval.high)
            )
        },
    )
}

fn words(change: &Change) -> String {
    match change.outcome {
        ChangeOutcome::Same => "includes 1".to_owned(),
        ChangeOutcome::Better => "does not include 1: better".to_owned(),
        ChangeOutcome::Worse => "**does not include 1: worse**".to_owned(),
        ChangeOutcome::Unknown => {
            let pairs = change.ratio.map_or(0, |ratio| ratio.count);
            format!("{pairs} pairs are too few: 6 are needed")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    fn change(id: &str, new: &[f64], old: &[f64]) -> Change {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        let row = ROWS.iter().find(|row| row.id == id).unwrap();
        Change::of(row, &some(new), &some(old))
    }

    #[test]
    fn builds_with_overlapping_figures_are_the_same() {
        let old = [1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 0.8];
        let new = [1.1, 1.0, 0.9, 1.1, 1.1, 1.0, 0.9];
        let same = change("latency8", &new, &old);
        assert_eq!(
            (same.outcome, same.is_harmless()),
            (ChangeOutcome::Same, true)
        );
        assert!(words(&same).starts_with("includes 1"));
    }

    #[test]
    fn higher_in_every_round_is_worse_for_times_and_better_for_rates() {
        let (old, new) = ([1.0; 7], [1.05, 1.04, 1.06, 1.05, 1.03, 1.05, 1.02]);
        let worse = change("latency8", &new, &old);
        assert_eq!(
            (worse.outcome, worse.is_harmless()),
            (ChangeOutcome::Worse, false)
        );
        assert_eq!(change("rate8", &new, &old).outcome, ChangeOutcome::Better);
        assert_eq!(
            change("latency8", &old, &new).outcome,
            ChangeOutcome::Better
        );
    }

    #[test]
    fn a_machine_that_slows_down_shows_no_change() {
        let old = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let same = change("latency8", &old, &old);
        assert_eq!(
            (same.outcome, same.ratio.unwrap().median),
            (ChangeOutcome::Same, 1.0)
        );
    }

    #[test]
    fn few_rounds_are_inconclusive_but_one_count_is_not() {
        let few = change("latency8", &[1.0; 5], &[2.0; 5]);
        assert_eq!(
            (few.outcome, few.is_harmless()),
            (ChangeOutcome::Unknown, false)
        );
        assert_eq!(words(&few), "5 pairs are too few: 6 are needed");
        assert_eq!(
            change("isend", &[55.0], &[55.0]).outcome,
            ChangeOutcome::Same
        );
        assert_eq!(
            change("isend", &[56.0], &[55.0]).outcome,
            ChangeOutcome::Worse
        );
    }

    #[test]
    fn rounds_in_which_one_build_failed_are_no_pairs() {
        let row = ROWS.iter().find(|row| row.id == "latency8").unwrap();
        let pairs = Change::of(
            row,
            &[Some(1.0), None, Some(2.0)],
            &[Some(1.0), Some(1.0), None],
        );
        assert_eq!(pairs.ratio.unwrap().count, 1);
    }
}
