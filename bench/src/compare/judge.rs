// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns samples into verdicts: ratios are computed within each round, and the bars apply to the medians of the ratios.

use serde::Serialize;

use super::bars::{Bar, CompareRow};
use crate::stats::Summary;
use crate::unit::FigureUnit;

/// A row's figures, one entry per round; `None` if the round has no figure.
#[derive(Clone, Debug, Default)]
pub struct RowFigures {
    /// rmpi's figures.
    pub own: Vec<Option<f64>>,
    /// The limit's figures, in the row's unit.
    pub limit: Vec<Option<f64>>,
    /// The best peer's figures.
    pub peer: Vec<Option<f64>>,
}

/// The verdict on a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Verdict {
    /// Every bar holds.
    Pass,
    /// A bar does not hold.
    Fail,
    /// The row has no bar.
    Shown,
    /// A figure that a bar needs was not measured.
    Missing,
    /// The row needs hosts, and none were named.
    NeedsHosts,
}

impl Verdict {
    /// Its name in tables.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "**FAIL**",
            Self::Shown => "",
            Self::Missing => "not measured",
            Self::NeedsHosts => "not run: needs --host",
        }
    }
}

/// A row with its ratios.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedRow {
    /// rmpi's figures.
    pub own: Option<Summary>,
    /// The limit's figures.
    pub limit: Option<Summary>,
    /// rmpi ÷ limit, per round.
    pub to_limit: Option<Summary>,
    /// How many times better than the best peer, per round.
    pub better: Option<Summary>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Judges a row.
#[must_use]
pub fn judge(row: &CompareRow, series: &RowFigures) -> JudgedRow {
    let to_limit = per_round(&series.own, &series.limit, |own, limit| own / limit);
    let better = per_round(&series.own, &series.peer, |own, peer| {
        times_better(row.unit, own, peer)
    });
    let above = per_round(&series.own, &series.limit, |own, limit| own - limit);
    let own = summary(&series.own);
    let holds = |bar: &Bar| match *bar {
        Bar::Limit(factor) => to_limit.map(|ratio| within_limit(row.unit, ratio.median, factor)),
        Bar::Above(more) => above.map(|above| above.median <= more),
        Bar::Peer(factor) => better.map(|ratio| reaches(ratio.median, factor)),
        Bar::Level => better.map(|ratio| ratio.median >= 1.0),
        Bar::Value(most) => own.map(|own| own.median <= most),
    };
    let verdict = verdict(row.bars, holds);
    JudgedRow {
        own,
        limit: summary(&series.limit),
        to_limit,
        better,
        verdict,
    }
}

fn verdict(bars: &[&[Bar]], holds: impl Fn(&Bar) -> Option<bool>) -> Verdict {
    if bars.is_empty() {
        return Verdict::Shown;
    }
    let mut verdict = Verdict::Pass;
    for alternatives in bars {
        let outcomes: Vec<_> = alternatives.iter().map(&holds).collect();
        if outcomes.contains(&Some(true)) {
            continue;
        }
        if outcomes.contains(&None) {
            verdict = Verdict::Missing;
        } else {
            return Verdict::Fail;
        }
    }
    verdict
}

fn within_limit(unit: FigureUnit, ratio: f64, factor: f64) -> bool {
    if unit.smaller_is_better() {
        ratio <= factor
    } else {
        ratio >= factor
    }
}

/// Whether a ratio is at least `factor`; if `factor` is 1, the ratio must be more than 1.
fn reaches(ratio: f64, factor: f64) -> bool {
    if factor > 1.0 {
        ratio >= factor
    } else {
        ratio > 1.0
    }
}

fn times_better(unit: FigureUnit, own: f64, other: f64) -> f64 {
    if unit.smaller_is_better() {
        other / own
    } else {
        own / other
    }
}

fn per_round(
    one: &[Option<f64>],
    other: &[Option<f64>],
    ratio: impl Fn(f64, f64) -> f64,
) -> Option<Summary> {
    let pairs = one
        .iter()
        .zip(other)
        .filter_map(|(one, other)| Some(ratio((*one)?, (*other)?)));
    Summary::of(&pairs.filter(|ratio| ratio.is_finite()).collect::<Vec<_>>())
}

fn summary(values: &[Option<f64>]) -> Option<Summary> {
    Summary::of(&values.iter().copied().flatten().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    fn row(id: &str) -> &'static CompareRow {
        ROWS.iter().find(|row| row.id == id).unwrap()
    }

    fn series(own: &[f64], limit: &[f64], peer: &[f64]) -> RowFigures {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect();
        RowFigures {
            own: some(own),
            limit: some(limit),
            peer: some(peer),
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine became twice as slow in the last round: the ratio did not change.
        let judged = judge(
            row("latency8"),
            &series(
                &[12.0, 12.0, 24.0],
                &[10.0, 10.0, 20.0],
                &[15.0, 15.0, 30.0],
            ),
        );
        let ratio = judged.to_limit.unwrap();
        assert_eq!((ratio.median, ratio.max), (1.2, 1.2));
        assert_eq!(judged.better.unwrap().median, 1.25);
        assert_eq!(judged.verdict, Verdict::Pass);
    }

    #[test]
    fn every_bar_must_hold() {
        let row = row("latency8");
        assert_eq!(
            judge(row, &series(&[13.0], &[10.0], &[15.0])).verdict,
            Verdict::Fail
        );
        assert_eq!(
            judge(row, &series(&[12.0], &[10.0], &[12.0])).verdict,
            Verdict::Fail
        );
        assert_eq!(
            judge(row, &series(&[12.0], &[10.0], &[12.1])).verdict,
            Verdict::Pass
        );
    }

    #[test]
    fn between_hosts_no_peer_may_be_better_and_the_raw_connection_is_near() {
        let row = row("hosts-bandwidth1m");
        let verdict =
            |own: f64, raw: f64, peer: f64| judge(row, &series(&[own], &[raw], &[peer])).verdict;
        assert_eq!(verdict(90.0, 100.0, 90.0), Verdict::Pass);
        assert_eq!(verdict(89.0, 100.0, 80.0), Verdict::Fail);
        assert_eq!(verdict(95.0, 100.0, 96.0), Verdict::Fail);
        let row = self::row("hosts-latency8");
        let verdict =
            |own: f64, raw: f64, peer: f64| judge(row, &series(&[own], &[raw], &[peer])).verdict;
        assert_eq!(verdict(11.5, 10.0, 11.6), Verdict::Pass);
        assert_eq!(verdict(11.6, 10.0, 12.0), Verdict::Fail);
        assert_eq!(verdict(11.0, 10.0, 11.0), Verdict::Fail);
    }

    #[test]
    fn one_alternative_is_enough() {
        let row = row("single1m");
        assert_eq!(
            judge(row, &series(&[12.0], &[20.0], &[10.0])).verdict,
            Verdict::Pass
        );
        assert_eq!(
            judge(row, &series(&[10.0], &[10.0], &[10.0])).verdict,
            Verdict::Pass
        );
        assert_eq!(
            judge(row, &series(&[10.0], &[20.0], &[10.0])).verdict,
            Verdict::Fail
        );
    }

    #[test]
    fn a_row_without_a_figure_does_not_pass() {
        assert_eq!(
            judge(row("latency8"), &RowFigures::default()).verdict,
            Verdict::Missing
        );
        let without_peer = judge(row("latency8"), &series(&[1.0], &[10.0], &[]));
        assert_eq!(without_peer.verdict, Verdict::Missing);
        assert_eq!(
            judge(row("bcast8"), &RowFigures::default()).verdict,
            Verdict::Shown
        );
    }

    #[test]
    fn rounds_in_which_one_of_the_two_failed_do_not_count() {
        let mut series = series(&[10.0, 10.0], &[10.0, 10.0], &[20.0, 20.0]);
        series.peer[1] = None;
        assert_eq!(judge(row("latency8"), &series).better.unwrap().count, 1);
    }

    #[test]
    fn larger_is_better_for_rates() {
        let judged = judge(row("rate8"), &series(&[30e6], &[90e6], &[15e6]));
        assert_eq!(
            (judged.better.unwrap().median, judged.verdict),
            (2.0, Verdict::Pass)
        );
    }
}
