// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C programs: they compile without a warning, and with an MPI at hand they run and check their payloads.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::machine::find_in_path;
use bench::programs::{PROGRAMS, Report, sources};

/// The wrapper and launcher that `RMPI_PREFIX` names, else any MPI in `PATH`.
fn mpi() -> Option<(PathBuf, PathBuf)> {
    if let Some(prefix) = std::env::var_os("RMPI_PREFIX") {
        let bin = Path::new(&prefix).join("bin");
        return Some((bin.join("rmpicc"), bin.join("rmpiexec")));
    }
    Some((find_in_path("mpicc")?, find_in_path("mpiexec")?))
}

fn compile(mpicc: &Path, name: &str, to: &Path) {
    // Some peers' headers describe MPI_STATUSES_IGNORE so that the compiler takes it for an array without room.
    let options = [
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-stringop-overflow",
        "-o",
    ];
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
        .envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ])
        .envs([
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ])
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
fn programs_compile_without_a_warning_and_validate_what_they_send() {
    let Some((mpicc, mpiexec)) = mpi() else {
        eprintln!("no MPI in PATH and no RMPI_PREFIX: the C programs are not built here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        let binary = folder.path().join(program.name);
        compile(&mpicc, program.name, &binary);
        let options: &[&str] = match program.name {
            "memory" | "startup" => &["--json"],
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
        let (code, stdout, stderr) = run(&mpiexec, "2", &binary, options);
        assert_eq!(code, Some(0), "{}: {stderr}{stdout}", program.name);
        let report = Report::parse(&stdout).unwrap();
        assert_eq!((report.benchmark.as_str(), report.ranks), (program.name, 2));
        assert!(report.rows.iter().all(|row| row.median > 0.0), "{stdout}");
    }
    compile(&mpicc, "isend_count", &folder.path().join("isend_count"));
    wrong_options_are_told(&mpiexec, &folder.path().join("latency"));
    the_table_has_the_columns_people_know(&mpiexec, &folder.path().join("bandwidth"));
}

fn wrong_options_are_told(mpiexec: &Path, latency: &Path) {
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

fn the_table_has_the_columns_people_know(mpiexec: &Path, bandwidth: &Path) {
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
