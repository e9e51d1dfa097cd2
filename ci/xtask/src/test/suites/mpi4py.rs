// SPDX-License-Identifier: MIT OR Apache-2.0
//! mpi4py, built from its source package with `rmpicc`: its benchmarks, and its own test suite.
//!
//! Versions and hashes are in `ci/suites/mpi4py`, and so is the list of the suite's files. What is fetched and built stays in
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

/// The unpacked source, the Python that has it installed, and the MPI under test.
struct Mpi4pySuite {
    home: PathBuf,
    prefix: PathBuf,
    /// Over so many hosts its jobs go.
    hosts: Option<u32>,
}

pub(super) fn run(tally: &mut Tally, prefix: &Path, hosts: Option<u32>) -> Result<(), String> {
    let given = ["source.txt", "tools.txt"].map(|name| folder("mpi4py").join(name));
    let home = made("mpi4py", &of(prefix, &given)?, |home| {
        fetch(home).map_err(|why| format!("mpi4py's source could not be fetched: {why}"))?;
        build(home, prefix).map_err(|why| format!("mpi4py could not be built: {why}"))
    })?;
    let suite = Mpi4pySuite {
        home,
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
        // What the list names by itself is left out of its file.
        suite.run_file(entry, ranks, &list.parts_of(&entry.program))
    });
    Ok(())
}

/// A Python of its own, with what building needs, and the unpacked source.
fn fetch(home: &Path) -> Result<(), String> {
    make_folder(&home.join("source"))?;
    let python = Python::make(home)?;
    python.install(&folder("mpi4py").join("tools.txt"))?;
    let mut download = python.pip("download");
    download.args(["--no-binary=:all:", "--no-deps", "--no-build-isolation"]);
    download
        .args(["--require-hashes", "-r"])
        .arg(folder("mpi4py").join("source.txt"))
        .arg("--dest")
        .arg(home.join("download"));
    quiet(download, Duration::from_secs(600))?;
    let unpack = "tar -xzf download/mpi4py-*.tar.gz -C source --strip-components=1";
    let mut tar = command("sh");
    tar.args(["-c", unpack]).current_dir(home);
    quiet(tar, Duration::from_secs(300)).map(|_| ())
}

/// Not optimized: what is tested is the MPI below.
fn build(home: &Path, prefix: &Path) -> Result<(), String> {
    let mut install = Python::of(home).pip("install");
    install.args(["--no-index", "--no-deps", "--no-build-isolation"]);
    install
        .arg(home.join("source"))
        .env("MPICC", prefix.join("bin/rmpicc"))
        .env("CFLAGS", "-O0 -g0");
    quiet(install, Duration::from_secs(1800)).map(|_| ())
}

impl Mpi4pySuite {
    /// The files of its test suite, by name.
    fn files(&self) -> Result<BTreeSet<String>, String> {
        let folder = self.home.join("source/test");
        let entries =
            fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let names = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names
            .filter_map(|name| name.strip_suffix(".py").map(String::from))
            .filter(|name| name.starts_with("test_"))
            .collect())
    }

    /// A file of the suite (Python's unit tests report on standard error), without the parts of it that have lines of their own.
    fn run_file(&self, entry: &Entry, ranks: u32, apart: &[&str]) -> Result<(), String> {
        let limit = Duration::from_secs(entry.limit_s);
        let done = self.python_job(ranks, limit, &[], |job| {
            job.arg(self.home.join("source/test/main.py"));
            job.args(["--no-builddir", "-v"]);
            for name in apart {
                job.args(["-x", name]);
            }
            job.arg(&entry.program);
        })?;
        judge(ranks, &done.stderr).map_err(|why| format!("{why}\n{}", shown(&done)))
    }

    /// What a benchmark of the package prints.
    fn bench(&self, ranks: u32, words: &[&str]) -> Result<String, String> {
        let limit = Duration::from_secs(300);
        let done = self.python_job(ranks, limit, &[], |job| {
            job.args(["-m", "mpi4py.bench"]).args(words);
        })?;
        Ok(done.stdout)
    }

    /// Whether `--stats-calls` finds the calls of an MPI that Python loads late and for itself, those that it asks for.
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
        words: impl FnOnce(&mut Command),
    ) -> Result<Finished, String> {
        let scratch = self.home.join("scratch");
        let place = (&*self.prefix, self.hosts);
        launch_over(place, ranks, &scratch, limit, |job| {
            job.args(options);
            job.arg(Python::of(&self.home).program()).arg("-B");
            words(job);
            // Nothing is computed here that would be worth threads.
            job.env("OPENBLAS_NUM_THREADS", "1");
            without_foreign_paths(job);
        })
    }
}

/// Ten barriers that are not to be timed, and seven that are.
const STEPS: &str = "from mpi4py import MPI\nMPI.Pcontrol(0)\nfor i in range(10): MPI.COMM_WORLD.Barrier()\n\
                     MPI.Pcontrol(1)\nfor i in range(7): MPI.COMM_WORLD.Barrier()\n";

/// The three benchmarks that everybody runs first.
fn benchmarks(tally: &mut Tally, suite: &Mpi4pySuite) {
    for ranks in [4, 64] {
        tally.check(&format!("mpi4py.bench helloworld -n {ranks}"), || {
            everybody_said_hello(ranks, &suite.bench(ranks, &["helloworld"])?)
        });
        tally.check(&format!("mpi4py.bench ringtest -n {ranks}"), || {
            let (size, loops) = ("64", if ranks == 4 { "1000" } else { "20" });
            let told = suite.bench(ranks, &["ringtest", "--size", size, "--loop", loops])?;
            ring_was_timed(ranks, size, loops, &told)
        });
        tally.check(&format!("mpi4py.bench pingpong -n {ranks}"), || {
            let (last, loops) = if ranks == 4 {
                (1 << 20, "100")
            } else {
                (1 << 10, "10")
            };
            let to = last.to_string();
            let words = ["pingpong", "-m", "1", "-n", &to, "--loop", loops];
            sizes_are_doubled(last, &suite.bench(ranks, &words)?)
        });
    }
}

/// `Hello, World! I am process  7 of 64 on HOST.`, where the number of the rank is padded.
fn everybody_said_hello(ranks: u32, told: &str) -> Result<(), String> {
    let lines = told.lines();
    let lines: Vec<String> = lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let missing = (0..ranks).find(|rank| {
        let line = format!("Hello, World! I am process {rank} of {ranks} on ");
        lines.iter().filter(|told| told.starts_with(&line)).count() != 1
    });
    match missing {
        None => Ok(()),
        Some(rank) => Err(format!(
            "expected one greeting of rank {rank} of {ranks}:\n{told}"
        )),
    }
}

/// `time for 20 loops = 0.1 seconds (64 processes, 64 bytes)`.
fn ring_was_timed(ranks: u32, size: &str, loops: &str, told: &str) -> Result<(), String> {
    let begin = format!("time for {loops} loops = ");
    let end = format!(" seconds ({ranks} processes, {size} bytes)");
    let times = told
        .lines()
        .filter_map(|line| line.strip_prefix(&begin)?.strip_suffix(&end));
    let times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
    match times[..] {
        [time] if time > 0.0 => Ok(()),
        _ => Err(format!("expected one line `{begin}SECONDS{end}`:\n{told}")),
    }
}

/// Rows `SIZE BANDWIDTH | MEAN ± DEVIATION SAMPLES`, of sizes 1, 2, 4 to `last`.
fn sizes_are_doubled(last: u64, told: &str) -> Result<(), String> {
    let rows = told.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let size: u64 = words.next()?.parse().ok()?;
        // The bandwidth may be so small that it is printed as 0.00.
        let mean: f64 = words.nth(2)?.parse().ok()?;
        (mean > 0.0).then_some(size)
    });
    let wanted: Vec<u64> = (0..=last.ilog2()).map(|power| 1 << power).collect();
    if rows.collect::<Vec<_>>() == wanted {
        return Ok(());
    }
    Err(format!(
        "expected a time for each of 1, 2, 4 to {last} bytes:\n{told}"
    ))
}

/// Each rank ran tests, not all of which were skipped, and says that they were good.
fn judge(ranks: u32, told: &str) -> Result<(), String> {
    let lines = || told.lines().map(str::trim);
    let good = lines().filter(|line| *line == "OK" || line.starts_with("OK ("));
    let good: Vec<&str> = good.collect();
    if good.len() != ranks as usize {
        return Err(format!("{} of {ranks} ranks said OK", good.len()));
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
            let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
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
        assert!(everybody_said_hello(2, &format!("{one}{zero}")).is_ok());
        assert!(
            everybody_said_hello(2, &format!("{one}{}", zero.replace("ss 0", "ss  0"))).is_ok()
        );
        assert!(everybody_said_hello(2, &format!("{zero}{zero}")).is_err());
        let alone = "Hello, World! I am process 0 of 1 on h.\n".repeat(2);
        assert!(everybody_said_hello(2, &alone).is_err());
    }

    #[test]
    fn a_ring_of_another_size_is_noticed() {
        let told = "time for 20 loops = 0.025 seconds (4 processes, 64 bytes)\n";
        assert!(ring_was_timed(4, "64", "20", told).is_ok());
        assert!(ring_was_timed(8, "64", "20", told).is_err());
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
