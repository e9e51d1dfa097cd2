// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws a comparison as a plot: a row for each figure and a dot for each MPI, relative to rmpi.

use super::bars::Bar;
use super::report::{Comparison, HostSetup, RowResult};
use super::rows::ROWS;
use crate::unit::FigureUnit;
use plot::{DotPlot, DotRow, Scale};

/// Draws the rows that were measured, relative to the contender `own` (rmpi), or to the best one if that is `None`.
#[must_use]
pub fn picture(comparison: &Comparison, own: Option<usize>) -> String {
    let reference = |line: &RowResult| match own {
        Some(index) => median(line, index),
        None => best(line),
    };
    let row = |line: &RowResult| {
        let reference = reference(line)?;
        let worse = |index: usize| Some(times_worse(line.unit, median(line, index)?, reference));
        Some(DotRow {
            name: format!("{} ({})", line.title, line.unit.label()),
            values: (0..line.contenders.len()).map(worse).collect(),
            bar: own.and_then(|_| bar(line)),
        })
    };
    let rows: Vec<DotRow> = comparison.rows.iter().filter_map(row).collect();
    let names = comparison
        .rows
        .first()
        .map_or(&[][..], |line| &line.contenders);
    let than = if own.is_some() { "rmpi" } else { "the best" };
    DotPlot {
        title: comparison.title(),
        notes: notes(comparison, rows.iter().any(|row| row.bar.is_some())),
        axis: format!(
            "how many times worse than {than}: more time, memory or instructions, less per second"
        ),
        scale: Scale::Log,
        mark: Some(1.0),
        series: names.iter().map(|(name, _)| name.clone()).collect(),
        rows,
    }
    .svg()
}

fn notes(comparison: &Comparison, with_bars: bool) -> Vec<String> {
    let machine = &comparison.machine;
    let mut notes = vec![
        format!("{}, {}", machine.machine, machine.date),
        format!(
            "medians of {} rounds; commit {}",
            comparison.rounds, machine.commit
        ),
    ];
    notes.extend(comparison.between.as_ref().map(HostSetup::words));
    if with_bars {
        notes.push("Upright strokes: no other MPI may lie left of them.".to_owned());
    }
    if !comparison.complete {
        notes.push("Not whole: the measurement was interrupted.".to_owned());
    }
    notes
}

fn median(line: &RowResult, index: usize) -> Option<f64> {
    let (_, summary) = line.contenders.get(index)?;
    Some((*summary)?.median)
}

fn best(line: &RowResult) -> Option<f64> {
    let medians = (0..line.contenders.len()).filter_map(|index| median(line, index));
    medians.reduce(|one, other| line.unit.better(one, other))
}

fn times_worse(unit: FigureUnit, value: f64, reference: f64) -> f64 {
    if unit.smaller_is_better() {
        value / reference
    } else {
        reference / value
    }
}

/// How many times worse than rmpi the best peer must at least be, by the first bar of the row that is a [`Bar::Peer`]
/// or [`Bar::Level`] without an alternative; `None` if there is no such bar.
fn bar(line: &RowResult) -> Option<f64> {
    let row = ROWS.iter().find(|row| row.id == line.id)?;
    row.bars.iter().find_map(|alternatives| match alternatives {
        [Bar::Peer(factor)] => Some(*factor),
        [Bar::Level] => Some(1.0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::judge::{RowFigures, judge};
    use super::*;
    use crate::machine;
    use crate::stats::Summary;
    use plot::testing::{has_text, look, of_class};

    fn line(id: &str, values: &[Option<f64>]) -> RowResult {
        let row = ROWS.iter().find(|row| row.id == id).unwrap();
        let names = ["rmpi (default)", "mpich5 (best)", "intel (best)"];
        RowResult {
            id: row.id,
            title: row.title,
            unit: row.unit,
            bars: Vec::new(),
            best_peer: None,
            judged: judge(row, &RowFigures::default()),
            contenders: names
                .iter()
                .zip(values)
                .map(|(name, value)| {
                    (
                        (*name).to_owned(),
                        value.and_then(|value| Summary::of(&[value])),
                    )
                })
                .collect(),
        }
    }

    fn comparison(rows: Vec<RowResult>) -> Comparison {
        Comparison {
            machine: machine::describe(),
            between: None,
            libraries: Vec::new(),
            planned: 7,
            rounds: 3,
            complete: false,
            with_peers: true,
            line: None,
            rows,
            not_run: Vec::new(),
            close: Vec::new(),
            changes: Vec::new(),
            failures: Vec::new(),
        }
    }

    #[test]
    fn every_measured_row_is_drawn_relative_to_rmpi() {
        let rows = vec![
            line("barrier64", &[Some(50.0), Some(1000.0), Some(300.0)]),
            line("rate8", &[Some(20e6), Some(10e6), None]),
            line("ring64", &[None, Some(25.0), Some(26.0)]),
        ];
        let text = picture(&comparison(rows), Some(0));
        look(&text, |document| {
            assert!(
                has_text(document, "64 ranks: barrier (µs)")
                    && has_text(document, "rate 8 B (Mmsg/s)")
            );
            // rmpi's dots in two rows, and the legend; a row without rmpi's figure is not drawn.
            assert_eq!(of_class(document, "f0").len(), 3);
            assert!(!has_text(document, "64 ranks: ring, one hop (µs)"));
            assert_eq!(of_class(document, "bar").len(), 2);
            assert!(has_text(
                document,
                "Not whole: the measurement was interrupted."
            ));
        });
    }

    #[test]
    fn without_rmpi_rows_are_drawn_relative_to_the_best() {
        let rows = vec![line("ring64", &[None, Some(25.0), Some(26.0)])];
        look(&picture(&comparison(rows), None), |document| {
            assert!(has_text(document, "64 ranks: ring, one hop (µs)"));
            assert_eq!(of_class(document, "bar").len(), 0);
        });
    }

    #[test]
    fn a_lower_rate_is_worse() {
        assert_eq!(times_worse(FigureUnit::MessagesPerSecond, 5.0, 10.0), 2.0);
        assert_eq!(times_worse(FigureUnit::Us, 5.0, 10.0), 0.5);
    }
}
