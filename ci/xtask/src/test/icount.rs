// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `icount`: counts the instructions of frequent calls with callgrind, and compares them with their budgets.

use super::{Context, Tally};
use crate::process::quiet;
use crate::tree::cargo;
use std::path::Path;
use std::time::Duration;

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    tally.check("MPI_Isend keeps its budget", || check(&prefix, "isend"));
    // Tests requirement QMPI-018: if no tool is loaded, the count is that of a build without QMPI.
    tally.check(
        "MPI_Isend without a tool takes what it took before tools could be stacked",
        || check(&prefix, "stacks"),
    );
    tally.check(
        "MPI_Isend, MPI_Irecv and MPI_Wait together keep theirs",
        || check(&prefix, "sum"),
    );
    tally.check(
        "the three of 0 to 1024 bytes with a status take no more than they did",
        || check(&prefix, "sizes"),
    );
    tally.check("neither do they at MPI_THREAD_MULTIPLE", || {
        check(&prefix, "multiple")
    });
    tally.check(
        "nor do they in other communicators than MPI_COMM_WORLD",
        || check(&prefix, "comms"),
    );
    tally.check(
        "MPI_Sendrecv, persistent requests and tests that find a message keep theirs",
        || check(&prefix, "forms"),
    );
    tally.check("MPI_Test and MPI_Iprobe in vain keep theirs", || {
        check(&prefix, "polls")
    });
    tally.check("QMP_start of a halo keeps its own", || {
        check(&prefix, "start")
    });
    Ok(())
}

fn check(prefix: &Path, only: &str) -> Result<(), String> {
    let mut count = cargo();
    count.args(["run", "--quiet", "--profile", "tool", "--package", "bench"]);
    count
        .args([
            "--bin",
            "rmpi-icount",
            "--",
            "--check",
            "--only",
            only,
            "--rmpi",
        ])
        .arg(prefix);
    let output = quiet(count, Duration::from_secs(300))?;
    output.lines().for_each(|line| println!("        {line}"));
    Ok(())
}
