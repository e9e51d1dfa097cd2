// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs in C: which there are, how they are built, what their JSON line says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::unit::Unit;
use crate::{Error, run};

/// A benchmark program in `bench/NAME.c`.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name, also of its source and its binary.
    pub name: &'static str,
    /// Ranks it is started with unless told otherwise.
    pub ranks: usize,
    /// What it measures.
    pub purpose: &'static str,
}

/// All programs that `rmpi-bench` runs.
pub const PROGRAMS: [Program; 12] = [
    program("latency", 2, "one-way time of one message at a time"),
    program(
        "bandwidth",
        2,
        "one way, windows of 64 messages, or --one-at-a-time",
    ),
    program("bibw", 2, "both ways at once"),
    program("rate", 2, "8-byte messages per second"),
    program("onecore", 2, "one-way time between two ranks on one CPU"),
    program("ring", 4, "token ring, time per hop"),
    program("barrier", 4, "MPI_Barrier"),
    program("allreduce", 4, "MPI_Allreduce"),
    program("bcast", 4, "MPI_Bcast"),
    program("alltoall", 4, "MPI_Alltoall"),
    program("startup", 4, "MPI_Init; with --times how long it takes"),
    program("memory", 4, "memory per rank"),
];

const fn program(name: &'static str, ranks: usize, purpose: &'static str) -> Program {
    Program {
        name,
        ranks,
        purpose,
    }
}

/// What a program measured: its JSON line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The program.
    pub benchmark: String,
    /// The unit of all values.
    pub unit: Unit,
    /// With how many ranks.
    pub ranks: usize,
    /// `MPI_Get_library_version`, shortened.
    pub library: String,
    /// One per size.
    pub rows: Vec<Row>,
}

/// One size of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Bytes per message, or a row number in programs without sizes.
    pub size: usize,
    /// Median of the batches.
    pub median: f64,
    /// The value that 99 of 100 batches reach or surpass.
    #[serde(default)]
    pub p99: Option<f64>,
}

impl Report {
    /// Finds the JSON line in what a program and its launcher printed.
    ///
    /// # Errors
    /// When there is none or it is cut off.
    pub fn parse(output: &str) -> Result<Self, Error> {
        let line = output
            .lines()
            .find(|line| line.starts_with("{\"benchmark\":"))
            .ok_or_else(|| {
                let said = output.lines().next().unwrap_or("nothing");
                Error::Program(format!("no JSON line was printed, but: {said}"))
            })?;
        serde_json::from_str(line).map_err(|e| Error::Program(format!("unreadable JSON line: {e}")))
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

/// The folder with the programs' sources, as this crate was built.
#[must_use]
pub fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Builds `bench/NAME.c` with a compiler wrapper. `environment` is set for the wrapper.
///
/// # Errors
/// What the compiler said.
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
    let outcome = run::run(&mut command, Duration::from_secs(120))?;
    match outcome.complaint() {
        None => Ok(()),
        Some(complaint) => Err(Error::Program(format!(
            "{} cannot compile {}: {complaint}",
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
        let report = Report::parse(&format!("warning: unknown name\n{LINE}\n")).unwrap();
        assert_eq!((report.unit, report.median(8)), (Unit::Us, Some(0.19)));
        assert_eq!(report.median(16), None);
    }

    #[test]
    fn a_line_that_was_cut_off_is_an_error() {
        let error = Report::parse(&LINE[..150]).unwrap_err();
        assert!(error.to_string().contains("unreadable"), "{error}");
        let error = Report::parse("segmentation fault\n").unwrap_err();
        assert!(error.to_string().contains("segmentation fault"), "{error}");
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
