// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the grid as a plot with a dot for each row: how many times better rmpi is, over the message size.

use super::cells::RowGroup;
use super::report::{GridReport, GridRowResult};
use plot::{Axis, LinePlot, Point, Scale, Series};

/// Draws the rows that were measured, compared with the best peer, or with the old build if there is no peer.
#[must_use]
pub fn picture(report: &GridReport) -> String {
    let with_peers = !report.against_peers.is_empty();
    let ratio = |line: &GridRowResult| {
        let opponent = if with_peers { &line.peer } else { &line.old };
        Some(opponent.as_ref()?.judged.ratio?.median)
    };
    let series = |group: RowGroup| {
        let of_group = report
            .lines
            .iter()
            .filter(|line| line.group == group.title());
        let point = |line: &GridRowResult| {
            Some(Point {
                x: line.bytes as f64,
                y: ratio(line)?,
                spread: None,
            })
        };
        let mut points: Vec<Point> = of_group.filter_map(point).collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        (!points.is_empty()).then(|| Series {
            name: group.title().to_owned(),
            points,
        })
    };
    let than = if with_peers {
        "the best other MPI of the row"
    } else {
        "the old build"
    };
    let machine = &report.machine;
    let mut notes = vec![
        format!("{}, {}", machine.machine, machine.date),
        format!(
            "how many times better rmpi is than {than}; commit {}",
            machine.commit
        ),
    ];
    if !report.complete {
        notes.push("Not whole: some starts were not measured in every round.".to_owned());
    }
    LinePlot {
        title: format!("The {} grid: a dot for each row", report.extent),
        notes,
        x: Axis {
            title: "bytes".to_owned(),
            scale: Scale::Bytes,
        },
        y: Axis {
            title: "times better".to_owned(),
            scale: Scale::Log,
        },
        joined: false,
        mark: Some(1.0),
        series: RowGroup::ALL.into_iter().filter_map(series).collect(),
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::super::cells::{GridRow, Manner};
    use super::super::report::{conclude, testing::plan};
    use super::super::store::{GridStore, testing::record};
    use super::*;
    use crate::machine;
    use plot::testing::{has_text, look, of_class};

    #[test]
    fn every_row_has_its_dot() {
        let row = |bytes| GridRow {
            group: RowGroup::Pair,
            manner: Manner::Messages,
            metric: "latency",
            ranks: 2,
            bytes,
        };
        let plan = plan(&[row(0), row(1024), row(4096)]);
        let mut store = GridStore::default();
        let mut all = record(0, "pair", &row(0), &[]);
        for (bytes, other) in [(0, 2.0), (1024, 0.5)] {
            let figures = [("rmpi (default)", Some(1.0)), ("other (best)", Some(other))];
            for (name, sample) in record(0, "pair", &row(bytes), &figures).samples {
                all.samples
                    .entry(name)
                    .or_default()
                    .cells
                    .extend(sample.cells);
            }
        }
        store.add(all).unwrap();
        let report = conclude(&plan, &store, machine::describe());
        look(&picture(&report), |document| {
            // The dots of two rows and the legend's; the third row was not measured.
            assert_eq!(of_class(document, "f0").len(), 3);
            assert_eq!(of_class(document, "one").len(), 1);
            assert!(has_text(document, "point to point") && has_text(document, "times better"));
            assert!(has_text(
                document,
                "Not whole: some starts were not measured in every round."
            ));
        });
    }
}
