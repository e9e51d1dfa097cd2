// SPDX-License-Identifier: MIT OR Apache-2.0
//! The starts of programs that the grid consists of, and estimates of how long they take.

use std::path::PathBuf;
use std::time::Duration;

use super::cells::{self, Extent, GridRow, families, label};
use crate::Error;
use crate::compare::rounds::CompareContender;
use crate::machine;
use crate::peers::{Case, Setting, Tuning};

/// Rounds in which all rows are measured.
pub const ROUNDS: usize = 3;
/// Maximum number of rounds for rows in which two MPIs are too close to decide which of them is faster.
pub const MOST_ROUNDS: usize = 7;
/// The default measuring time of a cell, in seconds.
pub const SECONDS: f64 = 0.05;
/// In the short grid, a further round of close rows ends before the first start that would, by its estimate, raise the
/// total measuring time above this (s).
pub const SHORT_SECONDS: f64 = 40.0 * 60.0;
/// A start is killed after its estimated time multiplied by this, but not before [`GridPlan::limit`].
const LIMIT_FACTOR: f64 = 5.0;

/// One start of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Its name.
    pub name: String,
    /// The rows that it measures; all have the same number of ranks and the same manner.
    pub rows: Vec<GridRow>,
}

impl Start {
    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.rows.first().map_or(0, |row| row.ranks)
    }

    /// The program's name and its options.
    #[must_use]
    pub fn words(&self, seconds: f64) -> (&'static str, Vec<String>) {
        let manner = self.rows.first().map(|row| row.manner);
        let (program, flags) = manner.map_or(("", &[][..]), cells::Manner::program);
        let mut words: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        words.extend(["--seconds".to_owned(), seconds.to_string()]);
        words.extend(["--cells".to_owned(), self.cells()]);
        (program, words)
    }

    /// The value of `--cells`: OPERATION:BYTES:BYTES...,OPERATION:BYTES...
    fn cells(&self) -> String {
        let mut text = String::new();
        let mut before = "";
        for row in &self.rows {
            if row.metric != before {
                let comma = if before.is_empty() { "" } else { "," };
                text.push_str(comma);
                text.push_str(row.metric);
                before = row.metric;
            }
            text.push(':');
            text.push_str(&label(row.bytes));
        }
        text
    }

    /// An estimate of the start's duration in seconds, launcher included. The formula comes from trials with four MPIs
    /// on a machine with two CPUs.
    #[must_use]
    pub fn estimate(&self, seconds: f64) -> f64 {
        let (launch, per_row) = match self.ranks() {
            0..=2 => (0.5, 0.03),
            3..=8 => (0.7, 0.06),
            9..=32 => (1.5, 0.17),
            _ => (2.5, 0.27),
        };
        launch + self.rows.len() as f64 * (seconds + per_row)
    }

    /// The start with only those rows for which `keep` is `true`; `None` if there are none.
    pub(super) fn only(&self, keep: impl Fn(&GridRow) -> bool) -> Option<Self> {
        let rows: Vec<GridRow> = self.rows.iter().copied().filter(keep).collect();
        (!rows.is_empty()).then(|| Self {
            name: self.name.clone(),
            rows,
        })
    }
}

/// The plan of a measurement.
#[derive(Debug)]
pub struct GridPlan {
    /// How much of the grid is measured.
    pub extent: Extent,
    /// The starts, in the order in which they run.
    pub starts: Vec<Start>,
    /// The contenders; rmpi is the first.
    pub contenders: Vec<CompareContender>,
    /// The index of the old build of rmpi, if there is one.
    pub old: Option<usize>,
    /// The measuring time of a cell, in seconds.
    pub seconds: f64,
    /// The number of rounds with all rows.
    pub rounds: usize,
    /// Maximum number of rounds of a row that is close.
    pub most_rounds: usize,
    /// The minimum of a start's time limit. If five times a start's estimate is more, that is its limit.
    pub limit: Duration,
    /// This binary.
    pub program: PathBuf,
}

impl GridPlan {
    /// An estimate of how long `rounds` rounds of all rows take, in seconds.
    #[must_use]
    pub fn estimate(&self, rounds: usize) -> f64 {
        let round: f64 = self
            .starts
            .iter()
            .map(|start| start.estimate(self.seconds))
            .sum();
        round * (rounds * self.contenders.len()) as f64
    }

    /// The size of the measurement and its estimated duration as text for the user.
    #[must_use]
    pub fn duration_in_words(&self) -> String {
        let minutes = (self.estimate(self.rounds) / 60.0).ceil();
        let each = |number: usize, what: &str| {
            format!("{number} {what}{}", if number == 1 { "" } else { "s" })
        };
        let cells = self.starts.iter().map(|start| start.rows.len()).sum();
        let further = if self.most_rounds > self.rounds {
            ", rows that are close longer"
        } else {
            ""
        };
        format!(
            "{} in {} of {}: about {minutes} min{further}",
            each(cells, "row"),
            each(self.rounds, "round"),
            each(self.contenders.len(), "contender"),
        )
    }

    /// The time limit of a start.
    pub(super) fn limit_of(&self, start: &Start) -> Duration {
        self.limit.max(Duration::from_secs_f64(
            LIMIT_FACTOR * start.estimate(self.seconds),
        ))
    }

    /// The setting of a contender with `ranks` ranks: that of its level, or the default if the level has none.
    pub(super) fn setting(contender: &CompareContender, ranks: usize) -> Setting {
        let case = match machine::cpus().count() {
            cpus if ranks <= cpus => Case::TwoRanks,
            _ if ranks == 2 => Case::OneCpu,
            _ => Case::Crowd,
        };
        let kind = contender.mpi.kind;
        kind.setting(case, contender.level)
            .or_else(|| kind.setting(case, Tuning::Default))
            .unwrap_or_default()
    }
}

/// The starts of an extent, with only the rows that one of `words` selects (without words: all rows) and that have at
/// most `up_to` bytes.
///
/// # Errors
/// When a word selects no row, or no row is left.
pub fn starts(extent: Extent, words: &[String], up_to: Option<usize>) -> Result<Vec<Start>, Error> {
    let all = families(extent);
    let rows = || all.iter().flat_map(|family| &family.rows);
    if let Some(wrong) = words
        .iter()
        .find(|word| !rows().any(|row| row.is_selected_by(word)))
    {
        let mut known: Vec<&str> = rows().flat_map(GridRow::words).collect();
        known.sort_unstable();
        known.dedup();
        return Err(Error::Usage(format!(
            "no row of the grid is meant by \"{wrong}\"; words are sizes and {} (a + between words asks for both)",
            known.join(", ")
        )));
    }
    let is_requested = |row: &GridRow| {
        let small = up_to.is_none_or(|most| row.bytes <= most);
        small && (words.is_empty() || words.iter().any(|word| row.is_selected_by(word)))
    };
    let start = |family: cells::Family| {
        Start {
            name: family.name,
            rows: family.rows,
        }
        .only(is_requested)
    };
    let starts: Vec<Start> = families(extent).into_iter().filter_map(start).collect();
    if starts.is_empty() {
        return Err(Error::Usage(
            "no row of the grid is within --up-to".to_owned(),
        ));
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(extent: Extent, words: &[&str], up_to: Option<usize>) -> Vec<Start> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        starts(extent, &words, up_to).unwrap()
    }

    #[test]
    fn three_rounds_of_the_short_grid_leave_time_for_close_rows() {
        let round: f64 = chosen(Extent::Short, &[], None)
            .iter()
            .map(|start| start.estimate(SECONDS))
            .sum();
        let all = round * (ROUNDS * 4) as f64;
        assert!(all < 0.75 * SHORT_SECONDS, "{all}");
    }

    #[test]
    fn a_start_names_its_cells_as_the_program_reads_them() {
        let starts = chosen(
            Extent::Short,
            &["coll2+apart+bcast", "coll2+apart+gather"],
            Some(64),
        );
        let [start] = &starts[..] else {
            panic!("{starts:?}");
        };
        let (program, words) = start.words(0.05);
        assert_eq!(program, "grid_coll");
        assert_eq!(
            words,
            [
                "--apart",
                "--seconds",
                "0.05",
                "--cells",
                "bcast:8:64,gather:8:64"
            ]
        );
        assert_eq!(start.ranks(), 2);
    }

    #[test]
    fn words_and_sizes_select_starts() {
        let names = |starts: Vec<Start>| -> Vec<String> {
            starts.into_iter().map(|start| start.name).collect()
        };
        let pairs = names(chosen(Extent::Short, &["pair"], None));
        assert_eq!(pairs, ["pair", "pair-forms", "pair-threads"]);
        let small = chosen(Extent::Short, &["coll8"], Some(1024));
        assert!(
            small
                .iter()
                .all(|start| start.rows.iter().all(|row| row.bytes <= 1024))
        );
        assert_eq!(names(chosen(Extent::Short, &["barrier"], None)).len(), 8);
    }

    #[test]
    fn the_error_for_an_unknown_word_names_the_known_ones() {
        let error = starts(Extent::Short, &["bcats".to_owned()], None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"bcats\"") && error.contains("bcast") && error.contains("coll32"),
            "{error}"
        );
        let nothing = starts(Extent::Short, &["4M".to_owned()], Some(8)).unwrap_err();
        assert!(nothing.to_string().contains("--up-to"));
    }
}
