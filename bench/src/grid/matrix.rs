// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows all rows of the grid in few lines: a table for each manner and number of ranks, with a line for each operation
//! and a column for each size.

use std::fmt::Write as _;

use super::cells::label;
use super::report::GridRowResult;
use crate::unit::{FigureUnit, three_digits};

/// Writes the tables.
pub(super) fn write(text: &mut String, lines: &[GridRowResult]) {
    text.push_str(
        "Each cell: rmpi's figure, in microseconds or, of windows, in the unit that the line names; and how many times better that \
         is than the best other's, bold where it is below 1.\n",
    );
    for family in distinct(lines.iter().map(|line| line.family.as_str())) {
        let of_family = |line: &&GridRowResult| line.family == family;
        let lines: Vec<&GridRowResult> = lines.iter().filter(of_family).collect();
        let mut sizes: Vec<usize> = lines.iter().map(|line| line.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let titles: Vec<String> = sizes.iter().map(|size| label(*size)).collect();
        let _ = writeln!(text, "\n### {family}\n\n| | {} |", titles.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(sizes.len()));
        for operation in distinct(lines.iter().map(|line| line.operation)) {
            let of_operation = |line: &&&GridRowResult| line.operation == operation;
            let lines: Vec<&GridRowResult> = lines.iter().filter(of_operation).copied().collect();
            let _ = writeln!(
                text,
                "| {operation}{} |{}",
                unit(&lines),
                cells(&lines, &sizes)
            );
        }
    }
}

/// The unit of the figures as the end of a heading; empty for microseconds.
fn unit(lines: &[&GridRowResult]) -> String {
    match lines.iter().find_map(|line| line.unit) {
        None | Some(FigureUnit::Us) => String::new(),
        Some(unit) => format!(", {}", unit.label()),
    }
}

fn cells(lines: &[&GridRowResult], sizes: &[usize]) -> String {
    let mut text = String::new();
    for size in sizes {
        let line = lines.iter().find(|line| line.bytes == *size);
        let _ = write!(text, " {} |", line.map_or(String::new(), |line| cell(line)));
    }
    text
}

fn cell(line: &GridRowResult) -> String {
    let Some((own, unit)) = line.own.as_ref().zip(line.unit) else {
        return "–".to_owned();
    };
    let own = unit.show(own.median);
    let ratio = line
        .peer
        .as_ref()
        .and_then(|peer| Some(peer.judged.ratio?.median));
    match ratio {
        None => own,
        Some(ratio) if ratio < 1.0 => format!("{own} · **{}**", three_digits(ratio)),
        Some(ratio) => format!("{own} · {}", three_digits(ratio)),
    }
}

/// The distinct strings, in the order of their first occurrence.
fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}
