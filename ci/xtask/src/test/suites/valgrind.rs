// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PMPI tool of another project: the wrappers of MPI that come with valgrind (`libmpiwrap.c`, in the distribution's source
//! package). They report to memcheck what each call reads and writes, and query datatypes and statuses by the PMPI names.
//!
//! Other tools of PMPI are not to be had from the package sources that this project uses: mpiP, IPM, Score-P, Extrae, TAU and
//! Darshan's library are in none, EZTrace is listed and its files are gone, and what Python packages call profilers of MPI
//! wrap mpi4py's own functions.

use super::launch::{launch, shown};
use super::made::{made, of};
use super::{Tally, sources};
use crate::process::{Finished, quiet};
use crate::tree::{command, root};
use std::path::{Path, PathBuf};
use std::time::Duration;

const RANKS: u32 = 2;
const LIMIT: Duration = Duration::from_secs(300);

/// The message that each rank prints once about a mistake, with its place.
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

/// Programs of the stage `ranks` in which the wrappers know every function they meet.
const RIGHT: &[&str] = &["waits", "pack", "cancel", "comm_make"];

struct Wrapped<'a> {
    prefix: &'a Path,
    home: PathBuf,
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
    let home = made("valgrind-built", &of(prefix, &given)?, |home| {
        build(&source, home, prefix)
            .map_err(|why| format!("valgrind's wrappers could not be built: {why}"))
    })?;
    let wrapped = Wrapped { prefix, home };
    tally.check("valgrind: messages of all kinds, without a mistake", || {
        says_nothing(&wrapped.job("mistakes", &["none"])?)
    });
    for (mistake, words) in MISTAKES {
        tally.check(&format!("valgrind finds: {mistake}"), || {
            says_once_each(&wrapped.job("mistakes", &[mistake])?, words)
        });
    }
    for program in RIGHT {
        tally.check(&format!("valgrind finds nothing in: {program}"), || {
            says_nothing(&wrapped.job(program, &[])?)
        });
    }
    Ok(())
}

fn build(source: &Path, home: &Path, prefix: &Path) -> Result<(), String> {
    let compile = |words: &[&str], from: PathBuf, to: &str| {
        let mut compiler = command(prefix.join("bin/rmpicc"));
        compiler.args(["-g", "-w"]).args(words).arg(from);
        compiler.arg("-o").arg(home.join(to));
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

/// A program of the stage `ranks`.
fn own(program: &str) -> PathBuf {
    root().join(format!("ci/ranks/{program}.c"))
}

impl Wrapped<'_> {
    /// A program under memcheck. Leaks are not looked for: that search reads all shared memory of the job.
    fn job(&self, program: &str, words: &[&str]) -> Result<Finished, String> {
        let preload = format!("LD_PRELOAD={}", self.home.join("libmpiwrap.so").display());
        let scratch = self.home.join("scratch");
        launch(self.prefix, RANKS, &scratch, LIMIT, |job| {
            job.args(["env", &preload, "MPIWRAP_DEBUG=quiet"]);
            job.args(["valgrind", "-q", "--leak-check=no"]);
            job.arg(self.home.join(program)).args(words);
        })
    }
}

fn says_nothing(done: &Finished) -> Result<(), String> {
    let expected = done.stdout.lines().all(|line| line == "ok");
    if done.stderr.is_empty() && expected {
        return Ok(());
    }
    Err(format!("expected no report:\n{}", shown(done)))
}

/// One report of each rank, with these words in it.
fn says_once_each(done: &Finished, words: &[&str; 2]) -> Result<(), String> {
    let count = |wanted: &str| {
        let lines = done.stderr.lines();
        lines.filter(|line| line.contains(wanted)).count()
    };
    let reports = done.stderr.lines().filter(|line| is_end(line)).count();
    let wanted = RANKS as usize;
    if reports == wanted && words.iter().all(|words| count(words) == wanted) {
        return Ok(());
    }
    let expected = words.join("` and `");
    Err(format!(
        "expected {wanted} reports with `{expected}`:\n{}",
        shown(done)
    ))
}

/// `==PID== `, behind each report.
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

    fn told(text: &str) -> Finished {
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf '%b' \"$0\" >&2", text]);
        capture(shell, Duration::from_secs(10), |_| ()).unwrap()
    }

    #[test]
    fn each_rank_reports_once() {
        let report = "==7== Bad\\n==7==    at here\\n==7== \\n";
        let words = ["Bad", "here"];
        assert!(says_once_each(&told(&report.repeat(2)), &words).is_ok());
        assert!(says_once_each(&told(report), &words).is_err());
        assert!(says_once_each(&told(&report.repeat(3)), &words).is_err());
        assert!(says_once_each(&told(&report.repeat(2)), &["Bad", "there"]).is_err());
        assert!(says_nothing(&told("")).is_ok());
        assert!(says_nothing(&told(report)).is_err());
    }
}
