// SPDX-License-Identifier: MIT OR Apache-2.0
//! FFTW, from the distribution's source package: distributed transforms, verified by FFTW's own program.

use super::super::testlist::Entry;
use super::launch::{launch, shown};
use super::listed::ListedPrograms;
use super::made::{made, of};
use super::{Tally, sources};
use crate::process::{Finished, quiet};
use crate::tree::command;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let source = sources::fetch("fftw3", &["*"])?;
    let folder = made("fftw-built", &of(prefix, &[])?, |folder| {
        build(&source, folder, prefix).map_err(|why| format!("FFTW could not be built: {why}"))
    })?;
    let binary = folder.join("mpi/mpi-bench");
    ListedPrograms::of("fftw")?.run(tally, |entry, ranks| {
        let limit = Duration::from_secs(entry.limit_s);
        let problems = problems(entry);
        let program = |job: &mut Command| {
            job.arg(&binary).arg("--verbose=1");
            job.args(options(entry));
            for problem in &problems {
                job.args(["--verify", problem]);
            }
        };
        let done = launch(prefix, ranks, &folder.join("scratch"), limit, program)?;
        judge(&problems, &done)
    });
    Ok(())
}

/// Builds outside the source folder, and without optimization, since only the MPI is under test.
fn build(source: &Path, folder: &Path, prefix: &Path) -> Result<(), String> {
    let mut configure = command(source.join("configure"));
    configure.current_dir(folder).args([
        "--quiet",
        "--enable-mpi",
        "--disable-shared",
        "--disable-fortran",
        "--disable-doc",
        "--disable-dependency-tracking",
    ]);
    configure
        .env("MPICC", prefix.join("bin/rmpicc"))
        .env("CFLAGS", "-O0");
    quiet(configure, Duration::from_secs(1200))?;
    let mut make = command("make");
    let jobs = thread::available_parallelism().map_or(2, usize::from);
    make.current_dir(folder)
        .args(["--silent", &format!("--jobs={jobs}")]);
    quiet(make, Duration::from_secs(2400)).map(|_| ())
}

fn options(entry: &Entry) -> impl Iterator<Item = &String> {
    entry.args.iter().filter(|arg| arg.starts_with('-'))
}

fn problems(entry: &Entry) -> Vec<String> {
    let problems = entry.args.iter().filter(|arg| !arg.starts_with('-'));
    problems.cloned().collect()
}

/// Expects a line `PROBLEM ERROR ERROR ERROR` for each problem: the errors of linearity, of a shift and of an impulse.
fn judge(problems: &[String], done: &Finished) -> Result<(), String> {
    for problem in problems {
        let mut lines = done.stdout.lines().map(str::split_whitespace);
        let errors = lines.find_map(|mut fields| {
            let is_it = fields.next() == Some(problem.as_str());
            is_it.then(|| {
                fields
                    .map(|field| field.parse().unwrap_or(f64::NAN))
                    .collect()
            })
        });
        let errors: Vec<f64> = errors.unwrap_or_default();
        if errors.len() != 3 || !errors.iter().all(|error| *error < TOLERANCE) {
            let expected = format!("`{problem}` and three errors below {TOLERANCE:e}");
            return Err(format!("expected {expected} in:\n{}", shown(done)));
        }
    }
    Ok(())
}

/// The tolerance of FFTW's own tests.
const TOLERANCE: f64 = 1e-10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::capture;

    fn printed(text: &str) -> Finished {
        let mut echo = Command::new("printf");
        echo.arg(text);
        capture(echo, Duration::from_secs(10), |_| ()).unwrap()
    }

    #[test]
    fn each_problem_must_be_exact() {
        let expected = ["ocf8".to_string(), "icb4x4".to_string()];
        let one = "ocf8 3e-16 8e-16 6e-16\n";
        assert!(judge(&expected, &printed(&format!("{one}icb4x4 0 1e-15 8e-16\n"))).is_ok());
        assert!(judge(&expected, &printed(one)).is_err());
        assert!(judge(&expected, &printed(&format!("{one}icb4x4 0 1e-3 8e-16\n"))).is_err());
        assert!(judge(&expected, &printed(&format!("{one}icb4x4 nan 0 0\n"))).is_err());
        assert!(judge(&expected, &printed(&format!("{one}icb4x4 0 0\n"))).is_err());
    }
}
