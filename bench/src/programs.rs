// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs in C: the table of them, how they are built, and their JSON line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::unit::FigureUnit;
use crate::{Error, run};

/// A benchmark program in `bench/NAME.c`.
#[derive(Clone, Copy, Debug)]
pub struct BenchProgram {
    /// Its name, which its source and its binary have too.
    pub name: &'static str,
    /// The default number of ranks.
    pub ranks: usize,
    /// What it measures.
    pub purpose: &'static str,
    /// What its rows differ in.
    pub over: Over,
    /// Options without a value that only this program has, and what they do.
    pub flags: &'static [(&'static str, &'static str)],
}

/// What the rows of a program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Messages of several sizes.
    Sizes,
    /// Jobs with several numbers of ranks; each job is timed from start to finish by the driver.
    Jobs,
    /// Named rows.
    Names,
}

const SINGLE: &str = "ping-pong: bytes over the one-way time, no window";
const WAYS_TO_WAIT: &[(&str, &str)] = &[
    ("test", "ranks poll with MPI_Test"),
    ("testall", "ranks poll with MPI_Testall"),
    ("iprobe", "ranks poll with MPI_Iprobe"),
];
const THREADS: &[(&str, &str)] = &[
    ("two", "two threads a rank"),
    ("three", "three threads a rank"),
    ("four", "four threads a rank"),
];
const ROOT: (&str, &str) = (
    "root-0",
    "rank 0 is always the root; operations may overlap",
);
const POLL: (&str, &str) = ("poll", "call MPI_Test ten times during the computation");

/// All programs that `rmpi-bench` runs.
pub const PROGRAMS: [BenchProgram; 25] = [
    program("latency", 2, "one-way time of one message at a time", &[]),
    program(
        "bandwidth",
        2,
        "one way, windows of 64 messages, or --one-at-a-time",
        &[("one-at-a-time", SINGLE)],
    ),
    program("bibw", 2, "both ways at once", &[]),
    program("rate", 2, "8-byte messages per second, all pairs", &[]),
    program(
        "threads",
        2,
        "8-byte messages per second, all threads of a pair",
        THREADS,
    ),
    program("multi-latency", 4, "one-way time, all pairs at once", &[]),
    program(
        "multi-bandwidth",
        4,
        "bandwidth and message rate, all pairs at once",
        &[],
    ),
    program(
        "onecore",
        2,
        "one-way time between two ranks on one CPU",
        &[("late", "bind after MPI_Init instead of before it")],
    ),
    program(
        "overlap-send",
        2,
        "computation that MPI_Isend hides",
        &[POLL],
    ),
    program(
        "overlap-recv",
        2,
        "computation that MPI_Irecv hides",
        &[POLL],
    ),
    program(
        "overlap-allreduce",
        2,
        "computation that MPI_Iallreduce hides",
        &[POLL],
    ),
    program("ring", 4, "token ring, time per hop", WAYS_TO_WAIT),
    program("barrier", 4, "MPI_Barrier", &[]),
    program("bcast", 4, "MPI_Bcast", &[ROOT]),
    program("reduce", 4, "MPI_Reduce", &[ROOT]),
    program("allreduce", 4, "MPI_Allreduce", &[]),
    program("gather", 4, "MPI_Gather", &[ROOT]),
    program("scatter", 4, "MPI_Scatter", &[ROOT]),
    program("allgather", 4, "MPI_Allgather", &[]),
    program("alltoall", 4, "MPI_Alltoall", &[]),
    program(
        "halo",
        8,
        "halo exchange on a 4-D grid, over QMP's channels",
        &[("mpi", "persistent requests of MPI instead")],
    ),
    BenchProgram {
        over: Over::Jobs,
        ..program(
            "startup",
            2,
            "hello world from start to finish, 2 and 64 ranks or -n",
            &[],
        )
    },
    BenchProgram {
        over: Over::Names,
        ..program("memory", 4, "memory per rank", &[])
    },
    BenchProgram {
        over: Over::Names,
        ..program(
            "queues",
            64,
            "rmpi-queues, all ranks with 10000 receives each",
            &[],
        )
    },
    BenchProgram {
        over: Over::Names,
        ..program("tools", 1, "what empty tools of QMPI cost a call", &[])
    },
];

const fn program(
    name: &'static str,
    ranks: usize,
    purpose: &'static str,
    flags: &'static [(&'static str, &'static str)],
) -> BenchProgram {
    BenchProgram {
        name,
        ranks,
        purpose,
        over: Over::Sizes,
        flags,
    }
}

/// What a program measured: its single JSON line, or the first of its JSON lines (the head).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// The program.
    pub benchmark: String,
    /// The unit of all values.
    pub unit: FigureUnit,
    /// The heading of the values' column.
    #[serde(default)]
    pub title: String,
    /// The number of ranks.
    pub ranks: usize,
    /// Messages in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The number of buffers that messages rotate over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<u64>,
    /// Whether payloads were checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validated: Option<bool>,
    /// Where the buffers came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// `MPI_Get_library_version`, shortened.
    pub library: String,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The provider of messages over a network, if the library reports it: `tcp` or `verbs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<String>,
    /// The number of rows that will follow.
    #[serde(default)]
    pub steps: usize,
    /// The headings of further columns.
    #[serde(default)]
    pub extras: Vec<String>,
    /// Whether all rows are present; the driver sets it, not the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The rows, one per size.
    pub rows: Vec<ReportRow>,
}

/// One size of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportRow {
    /// Bytes per message, ranks per job, or a row number in programs without either.
    pub size: usize,
    /// Its name, in programs whose rows have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Median of the batches.
    pub median: f64,
    /// The worst value among the best 99 % of the batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The best batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<f64>,
    /// The worst batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
    /// The number of measured iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// The number of batches into which the measured iterations were divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// The number of iterations before the measured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<u64>,
    /// The values of further columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extras: Vec<f64>,
}

impl BenchReport {
    /// Finds the JSON line in what a program and its launcher printed.
    ///
    /// # Errors
    /// When there is none, or it is not valid.
    pub fn parse(output: &str) -> Result<Self, Error> {
        let line = output
            .lines()
            .find(|line| line.starts_with("{\"benchmark\":"))
            .ok_or_else(|| {
                let output = output.lines().next().unwrap_or("nothing");
                Error::Program(format!("no JSON line was printed, but: {output}"))
            })?;
        serde_json::from_str(line).map_err(|e| Error::Program(format!("unreadable JSON line: {e}")))
    }

    /// Reads one line of a program that was started with `--lines`: the head or a row; `None` for any other line.
    #[must_use]
    pub fn parse_line(line: &str) -> Option<ReportLine> {
        if line.starts_with("{\"benchmark\":") {
            return serde_json::from_str(line).ok().map(ReportLine::Head);
        }
        if line.starts_with("{\"size\":") {
            return serde_json::from_str(line).ok().map(ReportLine::Row);
        }
        None
    }

    /// The median of one size.
    #[must_use]
    pub fn median(&self, size: usize) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.size == size)
            .map(|row| row.median)
    }
}

/// A line of a program's output.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportLine {
    /// The head of the report, without rows.
    Head(BenchReport),
    /// One row.
    Row(ReportRow),
}

/// The folder with the programs' sources: in the installation that this program belongs to, otherwise where this crate
/// was built.
#[must_use]
pub fn sources() -> PathBuf {
    let installed = installation().map(|prefix| prefix.join("share/rmpi/bench"));
    installed
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")))
}

/// The installation prefix: the folder above the one that this program is in.
#[must_use]
pub fn installation() -> Option<PathBuf> {
    let me = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .ok()?;
    Some(me.parent()?.parent()?.to_owned())
}

/// Programs in `bench` that use QMP if it is installed.
const OVER_QMP: [&str; 2] = ["halo", "start_count"];

/// The compiler flags for a program that can use QMP, if QMP is installed in the same folder as the compiler wrapper.
/// Otherwise there are none, and the program measures only MPI.
fn flags_of_qmp(mpicc: &Path, name: &str) -> Vec<String> {
    let config = mpicc.with_file_name("qmp-config");
    if !OVER_QMP.contains(&name) || !config.is_file() {
        return Vec::new();
    }
    let output = Command::new(config)
        .args(["--cflags", "--ldflags", "--libs"])
        .output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let words = output.unwrap_or_default();
    let words = words.split_whitespace().map(str::to_owned);
    std::iter::once("-DBENCH_QMP".to_owned())
        .chain(words)
        .collect()
}

/// Builds `bench/NAME.c` with a compiler wrapper. `environment` is set for the wrapper.
///
/// # Errors
/// When the compiler fails, with its message.
pub fn compile(
    mpicc: &Path,
    environment: &[(String, String)],
    name: &str,
    to: &Path,
) -> Result<(), Error> {
    let source = sources().join(format!("{name}.c"));
    let mut command = Command::new(mpicc);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.args(["-std=c11", "-O2", "-o"]).arg(to).arg(&source);
    command.args(flags_of_qmp(mpicc, name));
    let outcome = run::run(&mut command, Duration::from_secs(120))?;
    match outcome.failure() {
        None => Ok(()),
        Some(failure) => Err(Error::Program(format!(
            "{} cannot compile {}: {failure}",
            mpicc.display(),
            source.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"benchmark":"latency","unit":"us","ranks":2,"window":1,"buffers":1,"validated":false,"memory":"heap","library":"X","machine":"Y","rows":[{"size":8,"median":0.19,"p99":0.3,"best":0.1,"worst":2,"iterations":100,"batches":10,"warm_up":5}]}"#;

    #[test]
    fn the_json_line_is_found_among_a_launchers_warnings() {
        let report = BenchReport::parse(&format!("warning: unknown name\n{LINE}\n")).unwrap();
        assert_eq!(
            (report.unit, report.median(8)),
            (FigureUnit::Us, Some(0.19))
        );
        assert_eq!(report.median(16), None);
    }

    #[test]
    fn a_truncated_line_is_an_error() {
        let error = BenchReport::parse(&LINE[..150]).unwrap_err();
        assert!(error.to_string().contains("unreadable"), "{error}");
        let error = BenchReport::parse("segmentation fault\n").unwrap_err();
        assert!(error.to_string().contains("segmentation fault"), "{error}");
    }

    #[test]
    fn lines_are_heads_rows_or_neither() {
        let head = r#"{"benchmark":"overlap-send","unit":"%","title":"Overlap (%)","ranks":2,"library":"X","steps":7,"extras":["Alone (us)"],"rows":[]}"#;
        let Some(ReportLine::Head(head)) = BenchReport::parse_line(head) else {
            panic!("no head");
        };
        assert_eq!(
            (head.unit, head.steps, head.extras.len()),
            (FigureUnit::Percent, 7, 1)
        );
        let row = r#"{"size":64,"median":1.5,"p99":2,"best":1,"worst":3,"iterations":9,"batches":3,"warm_up":1,"extras":[4]}"#;
        let Some(ReportLine::Row(row)) = BenchReport::parse_line(row) else {
            panic!("no row");
        };
        assert_eq!((row.size, row.p99, row.extras), (64, Some(2.0), vec![4.0]));
        assert_eq!(BenchReport::parse_line("warning: {\"size\":1}"), None);
        assert_eq!(BenchReport::parse_line("{\"size\":1"), None);
    }

    #[test]
    fn a_written_report_is_read_back_unchanged() {
        let report = BenchReport::parse(LINE).unwrap();
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.starts_with("{\"benchmark\":\"latency\","), "{text}");
        assert_eq!(BenchReport::parse(&text).unwrap(), report);
    }

    #[test]
    fn every_program_has_its_source() {
        for program in PROGRAMS {
            assert!(
                sources().join(format!("{}.c", program.name)).is_file(),
                "{}",
                program.name
            );
        }
    }
}
