// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grid's figures, and the file that stores them: a JSON line that identifies the measurement, and one for each
//! start of a round, written when all contenders have run it. After an interruption at most the last line is
//! incomplete; the start of this line is measured again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cells::GridRow;
use crate::Error;
use crate::unit::FigureUnit;

/// Identifies the measurement that a file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The extent: `short` or `whole`.
    pub grid: String,
    /// The measuring time of a cell, in seconds.
    pub seconds: f64,
    /// The words of `--rows`.
    pub rows: Vec<String>,
    /// The largest message size (bytes), if there is a bound.
    pub up_to: Option<usize>,
    /// The MPIs that are measured.
    pub contenders: Vec<String>,
}

/// The failure text of a sample in whose tries the CPUs moved: this is not a failure of the contender.
pub(super) const MOVED: &str = "the CPUs moved between physical cores in every try";

/// A figure that a program printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The operation.
    pub metric: String,
    /// The message size in bytes.
    pub bytes: usize,
    /// The figure's unit.
    pub unit: FigureUnit,
    /// The median of the batches.
    pub value: f64,
}

/// The result of one contender in a start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GridSample {
    /// The figures that it printed before its end or its failure.
    pub cells: Vec<Cell>,
    /// Whether both CPUs were on one physical core.
    pub close: bool,
    /// Why it failed; `None` if it did not.
    pub failure: Option<String>,
    /// The version string of its library.
    pub library: Option<String>,
}

/// The results of all contenders in one start of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GridRecord {
    /// The round, from 0.
    pub round: usize,
    /// The start's name.
    pub start: String,
    /// How long all contenders together took.
    pub seconds: f64,
    /// The results by the contenders' names.
    pub samples: BTreeMap<String, GridSample>,
}

/// A figure of a row in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridValue {
    /// The round.
    pub round: usize,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: FigureUnit,
    /// Whether both CPUs were on one physical core.
    pub close: bool,
}

/// All records, and the file that they are written to.
#[derive(Debug, Default)]
pub struct GridStore {
    records: Vec<GridRecord>,
    file: Option<(File, PathBuf)>,
}

impl GridStore {
    /// Opens a store with a file, and reads the records that the file has. Without a file, the store is only in memory.
    ///
    /// # Errors
    /// When the file holds another measurement, or cannot be read and written.
    pub fn open(file: Option<&Path>, header: &Header) -> Result<Self, Error> {
        let Some(path) = file else {
            return Ok(Self::default());
        };
        let what = |e| Error::io(format!("cannot use {}", path.display()), e);
        let mut options = File::options();
        let mut file = options
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(what)?;
        let text = std::fs::read_to_string(path).map_err(what)?;
        let (records, complete_bytes) = read(&text, header, path)?;
        file.set_len(complete_bytes as u64).map_err(what)?;
        if complete_bytes == 0 {
            file.write_all(line(header)?.as_bytes()).map_err(what)?;
        }
        Ok(Self {
            records,
            file: Some((file, path.to_owned())),
        })
    }

    /// Whether the store has a start of a round.
    #[must_use]
    pub fn has(&self, round: usize, start: &str) -> bool {
        self.records
            .iter()
            .any(|record| record.round == round && record.start == start)
    }

    /// Adds a record, also to the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, record: GridRecord) -> Result<(), Error> {
        if let Some((file, path)) = &mut self.file {
            let text = line(&record)?;
            file.write_all(text.as_bytes())
                .map_err(|e| Error::io(format!("cannot write {}", path.display()), e))?;
        }
        self.records.push(record);
        Ok(())
    }

    /// The measuring time of all records, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.records.iter().map(|record| record.seconds).sum()
    }

    /// The records.
    #[must_use]
    pub fn records(&self) -> &[GridRecord] {
        &self.records
    }

    /// Whether a contender failed in both of the last two rounds in which it has a result for this start. A sample that
    /// failed only because the CPUs moved does not count as a failure.
    #[must_use]
    pub fn has_given_up(&self, start: &str, contender: &str) -> bool {
        let mut last = self.samples(start, contender).rev().take(2);
        let failed = |sample: Option<(usize, &GridSample)>| {
            let failure = sample.and_then(|(_, sample)| sample.failure.as_deref());
            failure.is_some_and(|why| why != MOVED)
        };
        failed(last.next()) && failed(last.next())
    }

    /// A contender's figures of one row of a start, at most one per round.
    #[must_use]
    pub fn values(&self, start: &str, row: &GridRow, contender: &str) -> Vec<GridValue> {
        let of = |(round, sample): (usize, &GridSample)| {
            let mut cells = sample.cells.iter();
            let cell = cells.find(|cell| cell.metric == row.metric && cell.bytes == row.bytes)?;
            (cell.value.is_finite() && cell.value > 0.0).then_some(GridValue {
                round,
                value: cell.value,
                unit: cell.unit,
                close: sample.close,
            })
        };
        self.samples(start, contender).filter_map(of).collect()
    }

    fn samples<'a>(
        &'a self,
        start: &str,
        contender: &str,
    ) -> impl DoubleEndedIterator<Item = (usize, &'a GridSample)> {
        let records = self
            .records
            .iter()
            .filter(move |record| record.start == start);
        records.filter_map(move |record| Some((record.round, record.samples.get(contender)?)))
    }
}

fn line(value: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string(value);
    text.map(|text| text + "\n")
        .map_err(|e| Error::Program(format!("cannot write JSON: {e}")))
}

/// Reads the records from the text of a file. Also returns the number of bytes up to the end of the last complete line.
fn read(text: &str, header: &Header, path: &Path) -> Result<(Vec<GridRecord>, usize), Error> {
    let complete_bytes = text.rfind('\n').map_or(0, |end| end + 1);
    let mut lines = text[..complete_bytes].lines();
    let Some(first) = lines.next() else {
        return Ok((Vec::new(), 0));
    };
    let other = |why: &str| {
        Err(Error::Usage(format!(
            "--resume: {} {why}; name another file, or repeat the options that it was made with",
            path.display()
        )))
    };
    match serde_json::from_str::<Header>(first) {
        Ok(found) if found == *header => {}
        Ok(_) => return other("holds another measurement"),
        Err(_) => return other("holds no measurement of the grid"),
    }
    let mut records = Vec::new();
    for (index, line) in lines.enumerate() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(_) => return other(&format!("is damaged in line {}", index + 2)),
        }
    }
    Ok((records, complete_bytes))
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A record of one cell, with a figure for each contender.
    pub(in super::super) fn record(
        round: usize,
        start: &str,
        row: &GridRow,
        figures: &[(&str, Option<f64>)],
    ) -> GridRecord {
        let unit = if row.metric.starts_with("oneway") {
            FigureUnit::MegabytesPerSecond
        } else {
            FigureUnit::Us
        };
        let sample = |value: Option<f64>| GridSample {
            cells: value
                .map(|value| Cell {
                    metric: row.metric.to_owned(),
                    bytes: row.bytes,
                    unit,
                    value,
                })
                .into_iter()
                .collect(),
            failure: value.is_none().then(|| "exit status: 9".to_owned()),
            ..GridSample::default()
        };
        GridRecord {
            round,
            start: start.to_owned(),
            seconds: 1.0,
            samples: figures
                .iter()
                .map(|(name, value)| ((*name).to_owned(), sample(*value)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Manner, RowGroup};
    use super::testing::record;
    use super::*;

    const ROW: GridRow = GridRow {
        group: RowGroup::Pair,
        manner: Manner::Messages,
        metric: "latency",
        ranks: 2,
        bytes: 8,
    };

    fn header() -> Header {
        Header {
            grid: "short".to_owned(),
            seconds: 0.05,
            rows: vec!["pair".to_owned()],
            up_to: None,
            contenders: vec!["rmpi".to_owned(), "other (best)".to_owned()],
        }
    }

    fn good(round: usize) -> GridRecord {
        record(
            round,
            "pair",
            &ROW,
            &[("rmpi", Some(0.3)), ("other", Some(0.4))],
        )
    }

    #[test]
    fn stored_records_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid.json");
        let mut store = GridStore::open(Some(&path), &header()).unwrap();
        store.add(good(0)).unwrap();
        store.add(good(1)).unwrap();
        drop(store);
        let store = GridStore::open(Some(&path), &header()).unwrap();
        assert_eq!(store.records(), [good(0), good(1)]);
        assert!(store.has(1, "pair") && !store.has(2, "pair") && !store.has(1, "pairs8"));
        assert_eq!(store.seconds(), 2.0);
        let values = store.values("pair", &ROW, "other");
        assert_eq!((values[1].round, values[1].value), (1, 0.4));
    }

    #[test]
    fn an_incomplete_last_line_is_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid.json");
        let mut store = GridStore::open(Some(&path), &header()).unwrap();
        store.add(good(0)).unwrap();
        store.add(good(1)).unwrap();
        drop(store);
        let text = std::fs::read_to_string(&path).unwrap();
        for cut in [1, 20, 100] {
            std::fs::write(&path, &text[..text.len() - cut]).unwrap();
            let mut store = GridStore::open(Some(&path), &header()).unwrap();
            assert_eq!(store.records(), [good(0)]);
            store.add(good(1)).unwrap();
            drop(store);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        // A file whose first line is incomplete counts as empty.
        std::fs::write(&path, &text[..10]).unwrap();
        assert!(
            GridStore::open(Some(&path), &header())
                .unwrap()
                .records()
                .is_empty()
        );
    }

    #[test]
    fn the_file_of_another_measurement_is_left_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid.json");
        drop(GridStore::open(Some(&path), &header()).unwrap());
        let other = Header {
            seconds: 0.1,
            ..header()
        };
        let error = GridStore::open(Some(&path), &other)
            .unwrap_err()
            .to_string();
        assert!(error.contains("holds another measurement"), "{error}");
        std::fs::write(&path, "my notes\n").unwrap();
        let error = GridStore::open(Some(&path), &header())
            .unwrap_err()
            .to_string();
        assert!(error.contains("holds no measurement"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes\n");
    }

    #[test]
    fn an_unreadable_line_in_the_middle_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid.json");
        drop(GridStore::open(Some(&path), &header()).unwrap());
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"round\":0\n");
        std::fs::write(&path, text).unwrap();
        let error = GridStore::open(Some(&path), &header())
            .unwrap_err()
            .to_string();
        assert!(error.contains("is damaged in line 2"), "{error}");
    }

    #[test]
    fn a_contender_that_fails_twice_in_a_row_is_not_run_again() {
        let mut store = GridStore::default();
        let bad = |round| record(round, "pair", &ROW, &[("other", None)]);
        for (record, has_given_up) in [
            (bad(0), false),
            (good(1), false),
            (bad(2), false),
            (bad(3), true),
        ] {
            store.add(record).unwrap();
            assert_eq!(store.has_given_up("pair", "other"), has_given_up);
        }
        let mut moved = bad(4);
        let other = moved.samples.entry("other".to_owned()).or_default();
        other.failure = Some(MOVED.to_owned());
        store.add(moved).unwrap();
        assert!(!store.has_given_up("pair", "other"));
    }
}
