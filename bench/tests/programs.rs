// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the C programs: they compile without a warning, run, and check their payloads. They use the installation
//! that `RMPI_PREFIX` names.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::grid::cells::Extent;
use bench::grid::plan::{Start, starts};
use bench::programs::{BenchProgram, BenchReport, Over, PROGRAMS, ReportLine, sources};
use bench::unit::FigureUnit;

/// The compiler wrapper and the launcher of the installation that `RMPI_PREFIX` names; those in `PATH` may belong to
/// another MPI.
fn mpi() -> (PathBuf, PathBuf) {
    let prefix = std::env::var_os("RMPI_PREFIX").unwrap_or_else(|| {
        panic!("RMPI_PREFIX must name the folder that rmpi is installed into, as `cargo xtask test ranks` does")
    });
    let bin = Path::new(&prefix).join("bin");
    (bin.join("rmpicc"), bin.join("rmpiexec"))
}

fn compile(mpicc: &Path, name: &str, to: &Path) {
    let options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"];
    let output = Command::new(mpicc)
        .args(options)
        .arg(to)
        .arg(sources().join(format!("{name}.c")))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn run(
    mpiexec: &Path,
    ranks: &str,
    program: &Path,
    options: &[&str],
) -> (Option<i32>, String, String) {
    let output = Command::new(mpiexec)
        .args(["-n", ranks])
        .arg(program)
        .args(options)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
#[ignore = "needs an installed rmpi: cargo xtask test ranks"]
fn the_provider_of_messages_over_a_network_is_reported() {
    let (mpicc, mpiexec) = mpi();
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("latency");
    compile(&mpicc, "latency", &binary);
    for (providers, carrier) in [("tcp", Some("tcp")), ("shm,tcp", None)] {
        let mut command = Command::new(&mpiexec);
        command.env("RMPI_PROVIDERS", providers);
        command.args(["-n", "2"]).arg(&binary);
        command.args(["--sizes", "8", "--seconds", "0.02", "--json"]);
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let report = BenchReport::parse(&stdout).unwrap();
        assert_eq!(report.carrier.as_deref(), carrier, "{providers}: {stdout}");
    }
}

#[test]
#[ignore = "needs an installed rmpi: cargo xtask test ranks"]
fn programs_compile_without_a_warning_and_validate_what_they_send() {
    let (mpicc, mpiexec) = mpi();
    let folder = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        let binary = folder.path().join(program.name);
        compile(&mpicc, program.name, &binary);
        let options: &[&str] = match program.name {
            _ if program.over != Over::Sizes => &["--json"],
            "onecore" => &["--json", "--seconds", "0.02", "--sizes", "8"],
            _ => &[
                "--json",
                "--validate",
                "--seconds",
                "0.02",
                "-x",
                "2",
                "--sizes",
                "8,64K",
                "--buffers",
                "3",
            ],
        };
        let ranks = program.ranks.min(2);
        let (code, stdout, stderr) = run(&mpiexec, &ranks.to_string(), &binary, options);
        assert_eq!(code, Some(0), "{}: {stderr}{stdout}", program.name);
        let report = BenchReport::parse(&stdout).unwrap();
        assert_eq!(
            (report.benchmark.as_str(), report.ranks),
            (program.name, ranks)
        );
        // A percentage may be 0.
        let least = if report.unit == FigureUnit::Percent {
            -0.5
        } else {
            0.0
        };
        assert!(report.rows.iter().all(|row| row.median > least), "{stdout}");
    }
    for program in PROGRAMS {
        the_table_of_programs_matches_their_help(&mpiexec, folder.path(), &program);
    }
    rows_are_printed_one_by_one(&mpiexec, &folder.path().join("multi-bandwidth"));
    overlap_follows_from_the_printed_times(&mpiexec, &folder.path().join("overlap-allreduce"));
    compile(&mpicc, "isend_count", &folder.path().join("isend_count"));
    wrong_options_are_reported(&mpiexec, &folder.path().join("latency"));
    the_table_has_the_columns_of_the_osu_benchmarks(&mpiexec, &folder.path().join("bandwidth"));
}

/// The programs of the grid have every cell that the grid requests, and validate what they receive.
#[test]
#[ignore = "needs an installed rmpi: cargo xtask test ranks"]
fn the_programs_of_the_grid_validate_every_cell() {
    let (mpicc, mpiexec) = mpi();
    let folder = tempfile::tempdir().unwrap();
    for name in ["grid_pair", "grid_coll"] {
        compile(&mpicc, name, &folder.path().join(name));
    }
    // 8 bytes are sent eagerly, 256 KiB are not.
    let words = ["8", "256K", "barrier", "ibarrier"].map(str::to_owned);
    let is_selected = |start: &Start| [2, 8].contains(&start.ranks());
    let starts = starts(Extent::Whole, &words, Some(256 << 10)).unwrap();
    for start in starts.into_iter().filter(is_selected) {
        let (program, mut words) = start.words(0.001);
        words.push("--validate".to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ranks = if start.ranks() == 2 { "2" } else { "6" };
        let (code, stdout, stderr) = run(&mpiexec, ranks, &folder.path().join(program), &words);
        assert_eq!(code, Some(0), "{}: {stderr}{stdout}", start.name);
        let cells = stdout
            .lines()
            .filter(|line| line.starts_with("{\"metric\":"));
        assert_eq!(cells.count(), start.rows.len(), "{}: {stdout}", start.name);
    }
    let (code, _, stderr) = run(
        &mpiexec,
        "2",
        &folder.path().join("grid_coll"),
        &["--cells", "bcats:8"],
    );
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--cells cannot be \"bcats:8\""), "{stderr}");
    let (code, stdout, _) = run(&mpiexec, "1", &folder.path().join("grid_pair"), &["--help"]);
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("latency-cold") && stdout.contains("--threads"),
        "{stdout}"
    );
}

#[test]
#[ignore = "needs an installed rmpi: cargo xtask test ranks"]
fn a_small_grid_of_two_builds_has_a_figure_in_every_row() {
    let prefix = std::env::var_os("RMPI_PREFIX").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rmpi-compare"))
        // The test has its own lock file, because a real measurement may be running.
        .env("TMPDIR", folder.path())
        .arg("--rmpi")
        .arg(&prefix)
        .arg("--against")
        .arg(&prefix)
        .args(["--grid", "short", "--rounds", "1", "--seconds", "0.001"])
        .args([
            "--rows",
            "pair+latency+8,coll2+apart+bcast+8,coll8+allreduce+1K",
        ])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows: Vec<&str> = stdout
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains(" ranks: "))
        .collect();
    assert!(
        rows.iter()
            .any(|row| row.starts_with("| 2 ranks: latency 8 | ")),
        "{stdout}"
    );
    assert!(
        rows.iter()
            .any(|row| row.starts_with("| 8 ranks: allreduce 1K, apart | µs | ")),
        "{stdout}"
    );
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, _, _, new, _, _, _, old, ratio, _] = cells[..] else {
            panic!("{row}");
        };
        // A row of two ranks has no figure if the CPUs moved in every try, which is reported.
        let moved = row.starts_with("| 2 ranks: ") && stdout.contains(MOVED);
        for cell in [new, old] {
            assert!(is_figure(cell) || (cell == "–" && moved), "{row}\n{stdout}");
        }
        // There is no ratio if both CPUs were on one core in one of the two runs, and on two cores in the other.
        assert!(ratio.ends_with(" (1 round)") || ratio == "–", "{row}");
    }
}

/// The report's reason why a start of two ranks has no figures.
const MOVED: &str = ": the CPUs moved between physical cores in every try";

fn is_figure(cell: &str) -> bool {
    cell.parse().is_ok_and(|figure: f64| figure > 0.0)
}

/// Checks that the help of a program names the flags of the table, and no others except the common ones.
fn the_table_of_programs_matches_their_help(mpiexec: &Path, folder: &Path, program: &BenchProgram) {
    let (code, stdout, stderr) = run(mpiexec, "1", &folder.join(program.name), &["--help"]);
    assert_eq!(code, Some(0), "{}: {stderr}", program.name);
    let own = stdout.lines().filter_map(|line| {
        let word = line.split_whitespace().next()?;
        line.starts_with("  --").then(|| word[2..].to_owned())
    });
    let common = [
        "sizes", "seconds", "window", "buffers", "alloc", "validate", "json", "lines", "times",
    ];
    let own: Vec<String> = own
        .filter(|word| !common.contains(&word.as_str()))
        .collect();
    let known: Vec<&str> = program.flags.iter().map(|(name, _)| *name).collect();
    assert_eq!(own, known, "{}", program.name);
}

fn rows_are_printed_one_by_one(mpiexec: &Path, binary: &Path) {
    let options = ["--lines", "--seconds", "0.02", "--sizes", "8,4K", "-x", "2"];
    let (code, stdout, stderr) = run(mpiexec, "3", binary, &options);
    assert_eq!(code, Some(0), "{stderr}");
    let lines: Vec<ReportLine> = stdout.lines().filter_map(BenchReport::parse_line).collect();
    let [
        ReportLine::Head(head),
        ReportLine::Row(small),
        ReportLine::Row(large),
    ] = &lines[..]
    else {
        panic!("{stdout}");
    };
    assert_eq!((head.steps, head.ranks, head.rows.len()), (2, 3, 0));
    assert_eq!(head.extras, ["Messages/s"]);
    // There is one pair, so the bytes per second are the messages per second times their size.
    for row in [small, large] {
        let bytes = row.median * 1e6;
        assert!(
            (row.extras[0] * row.size as f64 / bytes - 1.0).abs() < 0.01,
            "{row:?}"
        );
    }
}

fn overlap_follows_from_the_printed_times(mpiexec: &Path, binary: &Path) {
    let options = [
        "--json",
        "--seconds",
        "0.05",
        "--sizes",
        "64K",
        "-x",
        "2",
        "--poll",
    ];
    let (code, stdout, stderr) = run(mpiexec, "2", binary, &options);
    assert_eq!(code, Some(0), "{stderr}");
    let report = BenchReport::parse(&stdout).unwrap();
    let row = &report.rows[0];
    assert!((0.0..=100.0).contains(&row.median), "{row:?}");
    assert_eq!(
        report.extras,
        ["Alone (us)", "Compute (us)", "Together (us)"]
    );
    let [alone, compute, together] = row.extras[..] else {
        panic!("{row:?}");
    };
    let hidden = (alone + compute - together) / alone.min(compute);
    let expected = 100.0 * hidden.clamp(0.0, 1.0);
    assert!((row.median - expected).abs() < 1.0, "{row:?}: {expected}");
}

fn wrong_options_are_reported(mpiexec: &Path, latency: &Path) {
    let (code, _, stderr) = run(mpiexec, "2", latency, &["--size", "8"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("latency: unknown option \"--size\""),
        "{stderr}"
    );
    let (code, _, stderr) = run(mpiexec, "2", latency, &["--sizes", "8,many"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--sizes cannot be \"8,many\""), "{stderr}");
    let (code, _, stderr) = run(mpiexec, "1", latency, &[]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("needs at least 2 ranks, was started with 1"),
        "{stderr}"
    );
}

fn the_table_has_the_columns_of_the_osu_benchmarks(mpiexec: &Path, bandwidth: &Path) {
    let options = ["-m", "1024:4096", "-i", "20", "-x", "5", "--one-at-a-time"];
    let (code, stdout, stderr) = run(mpiexec, "2", bandwidth, &options);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.contains("# Size") && stdout.contains("Bandwidth (MB/s)"),
        "{stdout}"
    );
    let lines = stdout
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let sizes: Vec<&str> = lines
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(sizes, ["1024", "2048", "4096"]);
}
