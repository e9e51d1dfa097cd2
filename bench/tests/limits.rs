// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the limits, which are really measured. Their values depend on the machine, so the tests only check that
//! they are plausible.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use bench::limits::Figure;

fn limits(names: &[&str]) -> (Vec<Figure>, String) {
    // The test has its own lock file, because a real measurement may be running.
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rmpi-bench"))
        .env("TMPDIR", folder.path())
        .arg("limits")
        .args(names)
        .args(["--json", "--seconds", "0.02"])
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let figures = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (figures, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn one_cpu_is_enough_for_context_switches() {
    let (figures, stderr) = limits(&["yield", "futex-same", "spawn2"]);
    assert_eq!(figures.len(), 3, "{stderr}");
    for figure in figures {
        assert!(figure.median > 0.0 && figure.median < 1e6, "{figure:?}");
    }
}

#[test]
fn copies_are_checked_by_the_receiver_or_the_reason_is_printed() {
    let (figures, stderr) = limits(&["split.65536", "read.65536"]);
    // If a container forbids access to another process's memory, or there is a single CPU, the reason is printed
    // instead.
    if figures.len() < 2 {
        assert!(
            stderr.contains("not permitted") || stderr.contains("needs two CPUs"),
            "{stderr}"
        );
    }
    for figure in figures {
        assert!(
            figure.size == 65536 && figure.best >= figure.median,
            "{figure:?}"
        );
    }
}

#[test]
fn an_unknown_limit_is_an_error() {
    let (figures, stderr) = limits(&["lyne"]);
    assert!(figures.is_empty());
    assert!(
        stderr.contains("no limit is called \"lyne\"; known are line, block"),
        "{stderr}"
    );
}
