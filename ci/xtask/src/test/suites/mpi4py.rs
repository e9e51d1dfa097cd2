// SPDX-License-Identifier: MIT OR Apache-2.0
//! mpi4py, built from its source package with `rmpicc`: its benchmarks, and its own test suite.
//!
//! Versions, hashes and the list of the suite's files are in `ci/suites/mpi4py`. What is fetched and built is kept in
//! the build folder.

use super::super::testlist::Entry;
use super::Tally;
use super::launch::{launch_over, shown};
use super::listed::{ListedPrograms, folder};
use super::made::{made, of};
use super::python::{Python, without_foreign_paths};
use crate::process::{Finished, quiet};
use crate::tree::{command, make_folder};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The folder with the unpacked source and the Python in which it is installed, and the MPI under test.
struct Mpi4pySuite {
    folder: PathBuf,
    prefix: PathBuf,
    /// The number of hosts for its jobs; `None`: only this machine.
    hosts: Option<u32>,
}

pub(super) fn run(tally: &mut Tally, prefix: &Path, hosts: Option<u32>) -> Result<(), String> {
    let given = ["source.txt", "tools.txt"].map(|name| folder("mpi4py").join(name));
    let folder = made("mpi4py", &of(prefix, &given)?, |folder| {
        fetch(folder).map_err(|why| format!("mpi4py's source could not be fetched: {why}"))?;
        build(folder, prefix).map_err(|why| format!("mpi4py could not be built: {why}"))
    })?;
    let suite = Mpi4pySuite {
        folder,
        prefix: prefix.to_path_buf(),
        hosts,
    };
    let list = ListedPrograms::of("mpi4py")?;
    tally.check("mpi4py: every file of its suite is listed", || {
        list.names_all(&suite.files()?)
    });
    tally.check("mpi4py: rmpiexec --stats-calls", || suite.calls_are_timed());
    benchmarks(tally, &suite);
    list.run(tally, |entry, ranks| {
        // Parts of the file that have separate lines are left out.
        suite.run_file(entry, ranks, &list.parts_of(&entry.program))
    });
    Ok(())
}

/// Makes a Python environment with what building needs, and unpacks the source.
fn fetch(into: &Path) -> Result<(), String> {
    make_folder(&into.join("source"))?;
    let python = Python::make(into)?;
    python.install(&folder("mpi4py").join("tools.txt"))?;
    let mut download = python.pip("download");
    download.args(["--no-binary=:all:", "--no-deps", "--no-build-isolation"]);
    download
        .args(["--require-hashes", "-r"])
        .arg(folder("mpi4py").join("source.txt"))
        .arg("--dest")
        .arg(into.join("download"));
    quiet(download, Duration::from_secs(600))?;
    let unpack = "tar -xzf download/mpi4py-*.tar.gz -C source --strip-components=1";
    let mut tar = command("sh");
    tar.args(["-c", unpack]).current_dir(into);
    quiet(tar, Duration::from_secs(300)).map(|_| ())
}

/// Builds without optimization, since only the MPI is under test.
fn build(folder: &Path, prefix: &Path) -> Result<(), String> {
    let mut install = Python::of(folder).pip("install");
    install.args(["--no-index", "--no-deps", "--no-build-isolation"]);
    install
        .arg(folder.join("source"))
        .env("MPICC", prefix.join("bin/rmpicc"))
        .env("CFLAGS", "-O0 -g0");
    quiet(install, Duration::from_secs(1800)).map(|_| ())
}

impl Mpi4pySuite {
    /// The files of its test suite, by name.
    fn files(&self) -> Result<BTreeSet<String>, String> {
        let tests = self.folder.join("source/test");
        let entries = fs::read_dir(&tests).map_err(|why| format!("{}: {why}", tests.display()))?;
        let names = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names
            .filter_map(|name| name.strip_suffix(".py").map(String::from))
            .filter(|name| name.starts_with("test_"))
            .collect())
    }

    /// Runs a file of the suite, without the parts `apart`, which have separate lines. Python's unit tests report on
    /// standard error.
    fn run_file(&self, entry: &Entry, ranks: u32, apart: &[&str]) -> Result<(), String> {
        let limit = Duration::from_secs(entry.limit_s);
        let done = self.python_job(ranks, limit, &[], |job| {
            job.arg(self.folder.join("source/test/main.py"));
            job.args(["--no-builddir", "-v"]);
            for name in apart {
                job.args(["-x", name]);
            }
            job.arg(&entry.program);
        })?;
        judge(ranks, &done.stderr).map_err(|why| format!("{why}\n{}", shown(&done)))
    }

    /// Runs a benchmark of the package and returns its output.
    fn bench(&self, ranks: u32, args: &[&str]) -> Result<String, String> {
        let limit = Duration::from_secs(300);
        let done = self.python_job(ranks, limit, &[], |job| {
            job.args(["-m", "mpi4py.bench"]).args(args);
        })?;
        Ok(done.stdout)
    }

    /// An error unless `--stats-calls` counts the calls of an MPI that Python loads late and privately (`RTLD_LOCAL`),
    /// and only those that `MPI_Pcontrol` includes.
    fn calls_are_timed(&self) -> Result<(), String> {
        let limit = Duration::from_secs(60);
        let done = self.python_job(2, limit, &["--stats-calls"], |job| {
            job.args(["-c", STEPS]);
        })?;
        let row = done
            .stderr
            .lines()
            .find(|line| line.trim_start().starts_with("MPI_Barrier "));
        match row.and_then(|row| row.split_whitespace().nth(1)) {
            Some("14") => Ok(()),
            _ => Err(format!("expected 14 barriers\n{}", shown(&done))),
        }
    }

    fn python_job(
        &self,
        ranks: u32,
        limit: Duration,
        options: &[&str],
        program: impl FnOnce(&mut Command),
    ) -> Result<Finished, String> {
        let scratch = self.folder.join("scratch");
        let place = (&*self.prefix, self.hosts);
        launch_over(place, ranks, &scratch, limit, |job| {
            job.args(options);
            job.arg(Python::of(&self.folder).program()).arg("-B");
            program(job);
            // The tests compute too little for threads.
            job.env("OPENBLAS_NUM_THREADS", "1");
            without_foreign_paths(job);
        })
    }
}

/// Ten barriers per rank that must not be timed, and seven that must.
const STEPS: &str = "from mpi4py import MPI\nMPI.Pcontrol(0)\nfor i in range(10): MPI.COMM_WORLD.Barrier()\n\
                     MPI.Pcontrol(1)\nfor i in range(7): MPI.COMM_WORLD.Barrier()\n";

/// Three small benchmarks of the package.
fn benchmarks(tally: &mut Tally, suite: &Mpi4pySuite) {
    for ranks in [4, 64] {
        tally.check(&format!("mpi4py.bench helloworld -n {ranks}"), || {
            all_ranks_greeted(ranks, &suite.bench(ranks, &["helloworld"])?)
        });
        tally.check(&format!("mpi4py.bench ringtest -n {ranks}"), || {
            let (size, loops) = ("64", if ranks == 4 { "1000" } else { "20" });
            let output = suite.bench(ranks, &["ringtest", "--size", size, "--loop", loops])?;
            ring_was_timed(ranks, size, loops, &output)
        });
        tally.check(&format!("mpi4py.bench pingpong -n {ranks}"), || {
            let (last, loops) = if ranks == 4 {
                (1 << 20, "100")
            } else {
                (1 << 10, "10")
            };
            let to = last.to_string();
            let args = ["pingpong", "-m", "1", "-n", &to, "--loop", loops];
            sizes_are_doubled(last, &suite.bench(ranks, &args)?)
        });
    }
}

/// An error unless each rank printed one line `Hello, World! I am process 7 of 64 on HOST.`, in which the rank is
/// padded with blanks.
fn all_ranks_greeted(ranks: u32, output: &str) -> Result<(), String> {
    let lines = output.lines();
    let lines: Vec<String> = lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let missing = (0..ranks).find(|rank| {
        let line = format!("Hello, World! I am process {rank} of {ranks} on ");
        lines
            .iter()
            .filter(|found| found.starts_with(&line))
            .count()
            != 1
    });
    match missing {
        None => Ok(()),
        Some(rank) => Err(format!(
            "expected one greeting of rank {rank} of {ranks}:\n{output}"
        )),
    }
}

/// An error unless there is one line `time for 20 loops = 0.1 seconds (64 processes, 64 bytes)`.
fn ring_was_timed(ranks: u32, size: &str, loops: &str, output: &str) -> Result<(), String> {
    let begin = format!("time for {loops} loops = ");
    let end = format!(" seconds ({ranks} processes, {size} bytes)");
    let times = output
        .lines()
        .filter_map(|line| line.strip_prefix(&begin)?.strip_suffix(&end));
    let times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
    match times[..] {
        [time] if time > 0.0 => Ok(()),
        _ => Err(format!(
            "expected one line `{begin}SECONDS{end}`:\n{output}"
        )),
    }
}

/// An error unless there are rows `SIZE BANDWIDTH | MEAN ± DEVIATION SAMPLES` for the sizes 1, 2, 4 to `last`.
fn sizes_are_doubled(last: u64, output: &str) -> Result<(), String> {
    let rows = output.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let size: u64 = fields.next()?.parse().ok()?;
        // The bandwidth may be so small that it is printed as 0.00.
        let mean: f64 = fields.nth(2)?.parse().ok()?;
        (mean > 0.0).then_some(size)
    });
    let expected: Vec<u64> = (0..=last.ilog2()).map(|power| 1 << power).collect();
    if rows.collect::<Vec<_>>() == expected {
        return Ok(());
    }
    Err(format!(
        "expected a time for each of 1, 2, 4 to {last} bytes:\n{output}"
    ))
}

/// An error unless each rank reports success and some test was not skipped.
fn judge(ranks: u32, output: &str) -> Result<(), String> {
    let lines = || output.lines().map(str::trim);
    let good = lines().filter(|line| *line == "OK" || line.starts_with("OK ("));
    let good: Vec<&str> = good.collect();
    if good.len() != ranks as usize {
        return Err(format!("{} of {ranks} ranks reported OK", good.len()));
    }
    let ran: usize = lines()
        .filter_map(|line| {
            line.strip_prefix("Ran ")?
                .split(' ')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .sum();
    let skipped: usize = good
        .iter()
        .filter_map(|line| {
            let (_, rest) = line.split_once("skipped=")?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<usize>().ok()
        })
        .sum();
    if ran > skipped {
        Ok(())
    } else {
        Err(format!(
            "of {ran} tests {skipped} were skipped: none was run"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_counted_rank_by_rank() {
        let zero = "Hello, World! I am process 0 of 2 on h.\n";
        let one = "Hello, World! I am process 1 of 2 on h.\n";
        assert!(all_ranks_greeted(2, &format!("{one}{zero}")).is_ok());
        assert!(all_ranks_greeted(2, &format!("{one}{}", zero.replace("ss 0", "ss  0"))).is_ok());
        assert!(all_ranks_greeted(2, &format!("{zero}{zero}")).is_err());
        let alone = "Hello, World! I am process 0 of 1 on h.\n".repeat(2);
        assert!(all_ranks_greeted(2, &alone).is_err());
    }

    #[test]
    fn a_ring_of_another_size_is_noticed() {
        let output = "time for 20 loops = 0.025 seconds (4 processes, 64 bytes)\n";
        assert!(ring_was_timed(4, "64", "20", output).is_ok());
        assert!(ring_was_timed(8, "64", "20", output).is_err());
        assert!(ring_was_timed(4, "64", "20", "").is_err());
    }

    #[test]
    fn a_table_that_ends_early_is_noticed() {
        let table = "# MPI PingPong Test\n# Size [B]\n   1  0.1 | 1e-6 ± 1e-7 10\n   2  0.2 | 1e-6 ± 0 10\n";
        assert!(sizes_are_doubled(2, table).is_ok());
        assert!(sizes_are_doubled(4, table).is_err());
    }

    #[test]
    fn ranks_that_failed_or_ran_nothing_are_noticed() {
        let good = "Ran 5 tests in 0.1s\n\nOK (skipped=2)\n";
        assert!(judge(2, &good.repeat(2)).is_ok());
        assert!(judge(2, good).is_err());
        assert!(judge(1, "Ran 5 tests in 0.1s\n\nFAILED (errors=1)\n").is_err());
        assert!(judge(1, "Ran 2 tests in 0.1s\n\nOK (skipped=2)\n").is_err());
        assert!(judge(1, "Ran 0 tests in 0.1s\n\nOK\n").is_err());
    }
}
