// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `ranks`: the programs of `ci/ranks`, `qmp/tests/ranks` and `qmp/examples`, as real processes under a launcher.
//! Those whose names begin with `qmp_` are linked with QMP; those in Fortran are compiled for each method (mpif.h,
//! `mpi`, `mpi_f08`).
//!
//! Each rank of a successful program prints a line `ok`, and the job exits with 0; `testlist` has options for programs
//! that end differently. A job has failed if it exceeds its limit, or leaves a process, a file or a shared-memory
//! segment behind.
//!
//! If the line of a program has `late=SEED`, or with the option `--late SEED`, the ranks sleep around their MPI calls.

use super::testlist::{self, Entry};
use super::{Context, Tally, cargo_tests, compiling, fortran, jobs, late, over_hosts};
use crate::process::quiet;
use crate::tree::{cargo, command, make_folder, read, root, target};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The MPI under test: its compiler and its launcher.
struct MpiUnderTest {
    compiler: PathBuf,
    launcher: PathBuf,
    is_ours: bool,
    build: PathBuf,
    /// The number of hosts for its jobs; `None`: only this machine.
    hosts: Option<u32>,
}

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let mpi = mpi(context)?;
    let list = testlist::parse(&read(&folder().join("testlist"))?)?;
    let list: Vec<Entry> = list
        .into_iter()
        .flat_map(|entry| fortran::each_method(entry.clone(), &source(&entry.program)))
        .filter(|entry| context.selects(&entry.program))
        .collect();
    let list: Vec<Entry> = list
        .into_iter()
        .filter(|entry| mpi.is_ours || !(entry.ours || entry.late.is_some()))
        .collect();
    if context.filters.is_empty() {
        tally.check("every program is listed", || unlisted(&list, mpi.is_ours));
    }
    let list: Vec<Entry> = match mpi.hosts {
        Some(_) => {
            let can_run = |entry: &Entry| !(entry.alone || entry.one_host);
            list.into_iter().filter(can_run).collect()
        }
        None => list,
    };
    let list = match context.late {
        Some(seed) => all_late(list, seed),
        None => list,
    };
    make_folder(&mpi.build)?;
    let late_object = match list.iter().any(|entry| entry.late.is_some()) {
        true => Some(late::object(&mpi.compiler, &mpi.build)?),
        false => None,
    };
    let names: Vec<String> = list.iter().map(binary).collect();
    let programs = names.iter().map(String::as_str).collect();
    let broken = compiling::all(&programs, |program| {
        compile(&mpi, program, late_object.as_deref())
    })?;
    for (program, why) in &broken {
        tally.check(&format!("compile {program}"), || Err(why.clone()));
    }
    for entry in &list {
        if broken.iter().any(|(program, _)| *program == binary(entry)) {
            continue;
        }
        for ranks in &entry.ranks {
            let name = entry.name(*ranks);
            match &entry.xfail {
                Some(reason) if mpi.is_ours => {
                    tally.check_expected(&name, reason, || run_one(&mpi, entry, *ranks));
                }
                _ => tally.check(&name, || run_one(&mpi, entry, *ranks)),
            }
        }
    }
    match mpi.is_ours && mpi.hosts.is_none() && context.late.is_none() && context.filters.is_empty()
    {
        true => benchmarks(tally, &context.prefix()?),
        false => Ok(()),
    }
}

/// Runs the benchmark programs for a short time: they must compile without warnings, and they check the data that they
/// send.
fn benchmarks(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let mut tests = cargo();
    tests.args(["test", "--quiet", "--package", "bench"]);
    tests.args(["--test", "programs", "--", "--ignored"]);
    tests.env("RMPI_PREFIX", prefix);
    cargo_tests::run(tally, "the programs of the benchmarks", tests)
}

fn mpi(context: &mut Context) -> Result<MpiUnderTest, String> {
    if let Some(peer) = &context.peer {
        let build = target().join("ranks-peer");
        let [compiler, launcher] = ["bin/mpicc", "bin/mpiexec"].map(|name| peer.join(name));
        return Ok(MpiUnderTest {
            compiler,
            launcher,
            is_ours: false,
            build,
            hosts: None,
        });
    }
    let prefix = context.prefix()?;
    let [compiler, launcher] = ["bin/rmpicc", "bin/rmpiexec"].map(|name| prefix.join(name));
    Ok(MpiUnderTest {
        compiler,
        launcher,
        is_ours: true,
        build: target().join("ranks"),
        hosts: context.hosts,
    })
}

/// The list for `--late`: all entries without `late=`, with this seed. Entries with `late=` are left out, because they
/// would run twice.
fn all_late(list: Vec<Entry>, seed: u64) -> Vec<Entry> {
    let others = list.into_iter().filter(|entry| entry.late.is_none());
    others
        .map(|entry| Entry {
            late: Some(seed),
            limit_s: entry.limit_s * LATE_TAKES_LONGER,
            ..entry
        })
        .collect()
}

/// The name of an entry's program in the build folder.
fn binary(entry: &Entry) -> String {
    match entry.late {
        Some(_) => format!("{}{LATE}", entry.program),
        None => entry.program.clone(),
    }
}

/// An error if programs are missing in the list, with their names: they would never run.
fn unlisted(list: &[Entry], is_ours: bool) -> Result<(), String> {
    let listed = list.iter().map(|entry| fortran::plain(&entry.program));
    let listed: BTreeSet<&str> = listed.collect();
    let mut programs = Vec::new();
    for folder in FOLDERS {
        let entries =
            std::fs::read_dir(root().join(folder)).map_err(|why| format!("{folder}: {why}"))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let sources = paths.filter(|path| {
            let extension = path.extension().unwrap_or_default();
            LANGUAGES.iter().any(|language| extension == *language)
        });
        programs.extend(
            sources.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())),
        );
    }
    let missing: Vec<String> = programs
        .into_iter()
        .filter(|name| !listed.contains(name.as_str()))
        .collect();
    // For another MPI, the programs that are only for rmpi are missing in the list; this is not an error.
    if missing.is_empty() || !is_ours {
        return Ok(());
    }
    Err(format!(
        "ci/ranks/testlist does not list {}",
        missing.join(", ")
    ))
}

fn compile(mpi: &MpiUnderTest, program: &str, late_object: Option<&Path>) -> Result<(), String> {
    let (name, object) = match program.strip_suffix(LATE) {
        Some(name) => (name, late_object),
        None => (program, None),
    };
    let source = source(fortran::plain(name));
    let mut compiler = match source.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => rust(mpi),
        Some("f" | "f90" | "F90") => {
            let wrapper = mpi.compiler.with_file_name("mpifort");
            fortran::compiler(&wrapper, program, &mpi.build)?
        }
        Some("cc") => c(&mpi.compiler.with_file_name("rmpicxx"), "-std=c++11"),
        _ => c(&mpi.compiler, "-std=gnu11"),
    };
    compiler.arg("-o").arg(mpi.build.join(program)).arg(&source);
    if source
        .extension()
        .is_some_and(|extension| extension != "rs")
    {
        let qmp = name.starts_with("qmp_").then_some("-lqmp");
        compiler.args(object).args(qmp).arg("-lm");
    }
    quiet(compiler, Duration::from_secs(300)).map(|_| ())
}

/// The command of a C or C++ compiler, with the options for all programs.
fn c(compiler: &Path, standard: &str) -> Command {
    let mut compiler = command(compiler);
    compiler.arg(standard);
    compiler.args("-O1 -g -Wall -Wextra -Werror -pthread -I".split(' '));
    compiler.arg(folder());
    compiler
}

/// The Rust compiler, for programs that use the C interface of QMP.
fn rust(mpi: &MpiUnderTest) -> Command {
    let lib = mpi.compiler.with_file_name("../lib");
    let mut compiler = command("rustc");
    compiler.args(["--edition", "2024", "-O", "-Dwarnings", "-l", "qmp", "-L"]);
    compiler.arg(&lib);
    compiler.arg(format!("-Clink-arg=-Wl,-rpath,{}", lib.display()));
    compiler
}

fn run_one(mpi: &MpiUnderTest, entry: &Entry, ranks: u32) -> Result<(), String> {
    let program = mpi.build.join(binary(entry));
    let mut job = if entry.alone {
        command(&program)
    } else {
        let mut job = over_hosts::launch(&mpi.launcher, ranks, mpi.hosts)?;
        job.args(&entry.with).arg(&program);
        job
    };
    job.args(&entry.args);
    job.envs(entry.env.iter().map(|(name, value)| (name, value)));
    if let Some(seed) = entry.late {
        job.env("LATE_SEED", seed.to_string());
    }
    let cookie = jobs::Cookie::new(&mpi.build)?;
    let done = jobs::run(job, &cookie, Duration::from_secs(entry.limit_s))?;
    let mut wrong = judge(entry, ranks, done.status.code(), &done.stdout, &done.stderr);
    if done.timed_out {
        wrong.insert(0, format!("did not end within {} s", entry.limit_s));
    }
    if done.held_open {
        wrong.push("its output was still held open after its end".into());
    }
    wrong.extend(cookie.leftovers(jobs::LEFTOVER_GRACE).err());
    if !mpi.is_ours {
        // Other launchers may split lines and leave files; here only the programs are tested.
        wrong.retain(|what| what.starts_with("expected the exit") || what.starts_with("did not"));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\n{}",
        wrong.join("\n"),
        last_lines(&(done.stdout + &done.stderr))
    ))
}

/// What is wrong with a job's exit code and output; empty if nothing is.
fn judge(entry: &Entry, ranks: u32, code: Option<i32>, stdout: &str, stderr: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if code != Some(entry.exit) {
        let got = code.map_or_else(|| "no code".into(), |code| format!("code {code}"));
        wrong.push(format!("expected the exit code {}, got {got}", entry.exit));
    }
    let ok = stdout.lines().filter(|line| *line == "ok").count();
    let expected = if entry.alone { 1 } else { ranks as usize };
    if entry.exit == 0 && ok != expected {
        wrong.push(format!("expected {expected} lines `ok`, got {ok}"));
    }
    for text in &entry.says {
        if !stdout.contains(text.as_str()) && !stderr.contains(text.as_str()) {
            wrong.push(format!("nothing that it printed contains `{text}`"));
        }
    }
    wrong
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| *line != "ok").collect();
    let hidden = lines.len().saturating_sub(LINES_SHOWN);
    let head = if hidden > 0 {
        format!("({hidden} lines above)\n")
    } else {
        String::new()
    };
    head + &lines[hidden..].join("\n")
}

/// The source file of a program.
fn source(program: &str) -> PathBuf {
    let names = LANGUAGES.map(|extension| format!("{program}.{extension}"));
    let places = FOLDERS
        .iter()
        .flat_map(|folder| names.iter().map(move |name| root().join(folder).join(name)));
    let mut places: Vec<PathBuf> = places.collect();
    let found = places.iter().position(|place| place.is_file());
    places.swap_remove(found.unwrap_or_default())
}

fn folder() -> PathBuf {
    root().join(FOLDERS[0])
}

/// The extensions of C, C++, Rust and Fortran.
const LANGUAGES: [&str; 6] = ["c", "cc", "rs", "f", "f90", "F90"];
/// The folders of the programs; the first contains their list.
const FOLDERS: [&str; 4] = [
    "ci/ranks",
    "ci/ranks/fortran",
    "qmp/tests/ranks",
    "qmp/examples",
];
const LINES_SHOWN: usize = 120;
/// The suffix of a program that is linked with `late.c`.
const LATE: &str = ".late";
const LATE_TAKES_LONGER: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> Entry {
        testlist::parse(line).unwrap().remove(0)
    }

    #[test]
    fn a_rank_without_output_is_noticed() {
        let entry = entry("probe 2");
        assert!(judge(&entry, 2, Some(0), "ok\nok\n", "").is_empty());
        assert_eq!(
            judge(&entry, 2, Some(0), "ok\n", ""),
            ["expected 2 lines `ok`, got 1"]
        );
    }

    #[test]
    fn a_wrong_code_is_noticed_and_an_expected_one_passes() {
        assert_eq!(judge(&entry("a 2 exit=3"), 2, Some(1), "", "").len(), 1);
        assert_eq!(judge(&entry("a 2 exit=3"), 2, None, "", "").len(), 1);
        assert!(judge(&entry("a 2 exit=3"), 2, Some(3), "", "").is_empty());
    }

    #[test]
    fn with_late_ranks_each_line_runs_once_and_has_more_time() {
        let list = testlist::parse("probe 2 time=5\nprobe 2 late=3").unwrap();
        let late = all_late(list, 9);
        assert_eq!(late.len(), 1);
        assert_eq!((late[0].late, late[0].limit_s), (Some(9), 10));
        assert_eq!(binary(&late[0]), "probe.late");
        assert_eq!(binary(&entry("probe 2")), "probe");
    }

    #[test]
    fn a_missing_message_is_noticed() {
        let entry = entry("a 2 exit=3 says=\"rank 1 of 2\"");
        assert!(judge(&entry, 2, Some(3), "", "x rank 1 of 2 y").is_empty());
        assert_eq!(judge(&entry, 2, Some(3), "", "rank 1").len(), 1);
    }

    #[test]
    fn the_list_of_this_repository_is_well_formed_and_whole() {
        let list = testlist::parse(&read(&folder().join("testlist")).unwrap()).unwrap();
        assert_eq!(unlisted(&list, true), Ok(()));
        for entry in list {
            assert!(
                source(&entry.program).is_file(),
                "{} is listed and missing",
                entry.program
            );
        }
    }
}
