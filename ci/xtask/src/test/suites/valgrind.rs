// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PMPI tool of another project: valgrind's wrappers of MPI (`libmpiwrap.c`, in the distribution's source package).
//! They report to memcheck what each call reads and writes, and call functions of datatypes and statuses by their PMPI
//! names.
//!
//! Other PMPI tools are not available from the package sources that this project uses: mpiP, IPM, Score-P, Extrae, TAU
//! and Darshan's library are in none, EZTrace is listed but its files do not exist, and Python packages that call
//! themselves profilers of MPI wrap functions of mpi4py.

use super::launch::{launch, shown};
use super::made::{made, of};
use super::{Tally, sources};
use crate::process::{Finished, quiet};
use crate::tree::{command, root};
use std::path::{Path, PathBuf};
use std::time::Duration;

const RANKS: u32 = 2;
const LIMIT: Duration = Duration::from_secs(300);

/// For each mistake, the message that each rank prints once, and the function that it names.
const MISTAKES: &[(&str, [&str; 2])] = &[
    (
        "undefined",
        [
            "Uninitialised byte(s) found during client check request",
            "PMPI_Send",
        ],
    ),
    (
        "beyond",
        [
            "Unaddressable byte(s) found during client check request",
            "PMPI_Recv",
        ],
    ),
    (
        "shorter",
        [
            "Conditional jump or move depends on uninitialised value(s)",
            "shorter",
        ],
    ),
];

/// Programs of the stage `ranks` that call only functions for which there are wrappers.
const RIGHT: &[&str] = &["waits", "pack", "cancel", "comm_make"];

/// The MPI under test, and the folder with valgrind's wrapper library for it.
struct Wrapped<'a> {
    prefix: &'a Path,
    folder: PathBuf,
}

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let source = sources::fetch(
        "valgrind",
        &[
            "*/mpi/libmpiwrap.c",
            "*/include/valgrind.h",
            "*/memcheck/memcheck.h",
        ],
    )?;
    let mut given: Vec<PathBuf> = RIGHT.iter().map(|name| own(name)).collect();
    given.extend([mistakes(), root().join("ci/ranks/check.h")]);
    let folder = made("valgrind-built", &of(prefix, &given)?, |folder| {
        build(&source, folder, prefix)
            .map_err(|why| format!("valgrind's wrappers could not be built: {why}"))
    })?;
    let wrapped = Wrapped { prefix, folder };
    tally.check("valgrind: messages of all kinds, without a mistake", || {
        reports_nothing(&wrapped.job("mistakes", &["none"])?)
    });
    for (mistake, texts) in MISTAKES {
        tally.check(&format!("valgrind finds: {mistake}"), || {
            reports_once_per_rank(&wrapped.job("mistakes", &[mistake])?, texts)
        });
    }
    for program in RIGHT {
        tally.check(&format!("valgrind finds nothing in: {program}"), || {
            reports_nothing(&wrapped.job(program, &[])?)
        });
    }
    Ok(())
}

fn build(source: &Path, folder: &Path, prefix: &Path) -> Result<(), String> {
    let compile = |args: &[&str], from: PathBuf, to: &str| {
        let mut compiler = command(prefix.join("bin/rmpicc"));
        compiler.args(["-g", "-w"]).args(args).arg(from);
        compiler.arg("-o").arg(folder.join(to));
        quiet(compiler, LIMIT).map(|_| ())
    };
    let headers = format!("-I{}", source.join("include").display());
    let library = ["-O", "-shared", "-fPIC", &headers];
    compile(&library, source.join("mpi/libmpiwrap.c"), "libmpiwrap.so")?;
    compile(&["-O0"], mistakes(), "mistakes")?;
    for program in RIGHT {
        compile(&["-O0"], own(program), program)?;
    }
    Ok(())
}

fn mistakes() -> PathBuf {
    root().join("ci/suites/valgrind/mistakes.c")
}

/// The source of a program of the stage `ranks`.
fn own(program: &str) -> PathBuf {
    root().join(format!("ci/ranks/{program}.c"))
}

impl Wrapped<'_> {
    /// Runs a program under memcheck. The search for leaks is disabled, because it would read all shared memory of the
    /// job.
    fn job(&self, program: &str, args: &[&str]) -> Result<Finished, String> {
        let preload = format!("LD_PRELOAD={}", self.folder.join("libmpiwrap.so").display());
        let scratch = self.folder.join("scratch");
        launch(self.prefix, RANKS, &scratch, LIMIT, |job| {
            job.args(["env", &preload, "MPIWRAP_DEBUG=quiet"]);
            job.args(["valgrind", "-q", "--leak-check=no"]);
            job.arg(self.folder.join(program)).args(args);
        })
    }
}

fn reports_nothing(done: &Finished) -> Result<(), String> {
    let expected = done.stdout.lines().all(|line| line == "ok");
    if done.stderr.is_empty() && expected {
        return Ok(());
    }
    Err(format!("expected no report:\n{}", shown(done)))
}

/// An error unless each rank printed one report, with both of these texts.
fn reports_once_per_rank(done: &Finished, texts: &[&str; 2]) -> Result<(), String> {
    let count = |text: &str| {
        let lines = done.stderr.lines();
        lines.filter(|line| line.contains(text)).count()
    };
    let reports = done.stderr.lines().filter(|line| is_end(line)).count();
    let expected = RANKS as usize;
    if reports == expected && texts.iter().all(|text| count(text) == expected) {
        return Ok(());
    }
    let joined = texts.join("` and `");
    Err(format!(
        "expected {expected} reports with `{joined}`:\n{}",
        shown(done)
    ))
}

/// Whether a line is `==PID== `, the last line of a report.
fn is_end(line: &str) -> bool {
    let number = line.trim_end().strip_prefix("==");
    let number = number.and_then(|rest| rest.strip_suffix("=="));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::capture;
    use std::process::Command;

    fn printed(text: &str) -> Finished {
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf '%b' \"$0\" >&2", text]);
        capture(shell, Duration::from_secs(10), |_| ()).unwrap()
    }

    #[test]
    fn each_rank_reports_once() {
        let report = "==7== Bad\\n==7==    at here\\n==7== \\n";
        let texts = ["Bad", "here"];
        assert!(reports_once_per_rank(&printed(&report.repeat(2)), &texts).is_ok());
        assert!(reports_once_per_rank(&printed(report), &texts).is_err());
        assert!(reports_once_per_rank(&printed(&report.repeat(3)), &texts).is_err());
        assert!(reports_once_per_rank(&printed(&report.repeat(2)), &["Bad", "there"]).is_err());
        assert!(reports_nothing(&printed("")).is_ok());
        assert!(reports_nothing(&printed(report)).is_err());
    }
}
