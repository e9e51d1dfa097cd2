// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison as a whole, with MPIs that are shell scripts: what it prints, what it concludes, how it ends.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// An MPI whose compiler makes a script that prints what `body` says, and whose launcher runs it.
fn install(prefix: &Path, ours: bool, body: &str) {
    let bin = prefix.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let prefix_letter = if ours { "r" } else { "" };
    // `-o FILE` is where the wrapper's caller wants the binary.
    let compiler = format!(
        "while [ \"$1\" != -o ]; do shift; done\nprintf '#!/bin/sh\\n%s\\n' '{body}' > \"$2\"\nchmod +x \"$2\"\n"
    );
    let launcher = "while [ \"$1\" != -n ]; do shift; done\nshift 2\nexec \"$@\"\n";
    for (name, text) in [("mpicc", compiler.as_str()), ("mpiexec", launcher)] {
        let path = bin.join(format!("{prefix_letter}{name}"));
        fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn prints(microseconds: f64) -> String {
    format!(
        "echo \"{{\\\"benchmark\\\":\\\"alltoall\\\",\\\"unit\\\":\\\"us\\\",\\\"ranks\\\":64,\\\"library\\\":\\\"fake\\\",\
         \\\"rows\\\":[{{\\\"size\\\":8,\\\"median\\\":{microseconds}}}]}}\""
    )
}

fn compare(folder: &Path, own: &str, peers: &[(&str, &str)], options: &[&str]) -> Output {
    install(&folder.join("rmpi"), true, own);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmpi-compare"));
    // A lock of this test's own: a real measurement may be running.
    command.env("TMPDIR", folder);
    command.arg("--rmpi").arg(folder.join("rmpi"));
    for (name, body) in peers {
        install(&folder.join(name), false, body);
        command
            .arg("--peer")
            .arg(format!("{name}={}", folder.join(name).display()));
    }
    command
        .args(["--rounds", "3", "--rows", "alltoall8"])
        .args(options)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_best_peer_is_the_one_to_beat() {
    let folder = tempfile::tempdir().unwrap();
    let peers = [("slow", prints(100.0)), ("fast", prints(30.0))];
    let peers = peers.each_ref().map(|(name, body)| (*name, body.as_str()));
    let output = compare(folder.path(), &prints(10.0), &peers, &["--check"]);
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stdout}{}",
        text(&output.stderr)
    );
    assert!(
        stdout.contains("fast (default) | 3.00 (3.00–3.00; 3 rounds)"),
        "{stdout}"
    );
    assert!(stdout.contains("| pass |"), "{stdout}");
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("rmpi-compare.")),
        "{left:?}"
    );
}

#[test]
fn a_bar_that_is_missed_fails_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let peer = prints(12.0);
    let output = compare(
        folder.path(),
        &prints(10.0),
        &[("other", &peer)],
        &["--check"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("**FAIL**"));
    let output = compare(folder.path(), &prints(10.0), &[("other", &peer)], &[]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_peer_that_hangs_or_fails_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let good = prints(40.0);
    let peers = [
        ("good", good.as_str()),
        ("hung", "sleep 1000 & sleep 1000"),
        ("broken", "echo no device >&2; exit 9"),
    ];
    let markdown = folder.path().join("RESULTS.md");
    let json = folder.path().join("results.json");
    let options = [
        "--limit",
        "1",
        "--markdown",
        markdown.to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
        "--check",
    ];
    let output = compare(folder.path(), &prints(10.0), &peers, &options);
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stdout}{}",
        text(&output.stderr)
    );
    assert!(
        stdout.contains("- hung (default), alltoall: no end after 1 s"),
        "{stdout}"
    );
    assert!(
        stdout.contains("- broken (default), alltoall: exit status: 9: no device"),
        "{stdout}"
    );
    assert!(fs::read_to_string(markdown).unwrap().ends_with(&stdout));
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["rows"][0]["judged"]["verdict"], "Pass");
    assert_eq!(json["rows"][0]["best_peer"], "good (default)");
}

#[test]
fn what_cannot_be_measured_is_no_pass() {
    let folder = tempfile::tempdir().unwrap();
    let output = compare(
        folder.path(),
        "exit 1",
        &[("other", &prints(12.0))],
        &["--check"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("not measured"));
}

#[test]
fn wrong_words_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = compare(folder.path(), "exit 1", &[], &["--rows", "altoall8"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("no row is called \"altoall8\""),
        "{}",
        text(&output.stderr)
    );
}
