// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the program `rmpi-compare` with MPIs that are shell scripts: its output, its verdicts and its exit code.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Installs an MPI whose compiler writes a script with `body`, and whose launcher runs that script.
fn install(prefix: &Path, is_rmpi: bool, body: &str) {
    let bin = prefix.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let prefix_letter = if is_rmpi { "r" } else { "" };
    // The script is written to the FILE of `-o FILE`.
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
    let mut command = command(folder, own, peers);
    command
        .args(["--rounds", "3"])
        .args(options)
        .output()
        .unwrap()
}

fn command(folder: &Path, own: &str, peers: &[(&str, &str)]) -> Command {
    let mut command = command_of_all(folder, own, peers);
    command.args(["--rows", "alltoall8"]);
    command
}

/// The command without `--rows`, which selects all rows.
fn command_of_all(folder: &Path, own: &str, peers: &[(&str, &str)]) -> Command {
    install(&folder.join("rmpi"), true, own);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmpi-compare"));
    // The test has its own lock file, because a real measurement may be running.
    command.env("TMPDIR", folder);
    command.arg("--rmpi").arg(folder.join("rmpi"));
    for (name, body) in peers {
        install(&folder.join(name), false, body);
        command
            .arg("--peer")
            .arg(format!("{name}={}", folder.join(name).display()));
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn rmpi_is_compared_with_the_best_peer() {
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
fn a_row_that_cannot_be_measured_does_not_pass() {
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

/// Runs a comparison of two builds of rmpi; the old build has its own folder.
fn against(folder: &Path, new: &str, old: &str, options: &[&str]) -> Output {
    install(&folder.join("before"), true, old);
    let mut command = command(folder, new, &[]);
    command.arg("--against").arg(folder.join("before"));
    command.args(options).output().unwrap()
}

#[test]
fn two_builds_that_are_the_same_include_1() {
    let folder = tempfile::tempdir().unwrap();
    let output = against(folder.path(), &prints(10.0), &prints(10.0), &["--check"]);
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stdout}{}",
        text(&output.stderr)
    );
    assert!(
        stdout.contains("| 1.00 | 1.00–1.00 (98 %) | includes 1 |"),
        "{stdout}"
    );
    assert!(!stdout.contains("not measured"), "{stdout}");
}

#[test]
fn a_build_that_got_slower_fails_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("change.json");
    let options = ["--check", "--json", json.to_str().unwrap()];
    let output = against(folder.path(), &prints(11.0), &prints(10.0), &options);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("**does not include 1: worse**"));
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["changes"][0]["outcome"], "Worse");
    let output = against(folder.path(), &prints(9.0), &prints(10.0), &["--check"]);
    assert_eq!(output.status.code(), Some(0));
    let output = against(
        folder.path(),
        &prints(10.0),
        &prints(10.0),
        &["--check", "--rounds", "5"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("5 pairs are too few: 6 are needed"));
}

#[test]
fn the_old_build_is_no_peer() {
    let folder = tempfile::tempdir().unwrap();
    install(&folder.path().join("before"), true, &prints(5.0));
    let mut command = command(folder.path(), &prints(10.0), &[("other", &prints(30.0))]);
    command.arg("--against").arg(folder.path().join("before"));
    let output = command.args(["--rounds", "6"]).output().unwrap();
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("other (default) | 3.00") && stdout.contains("2.00–2.00"),
        "{stdout}"
    );
}

#[test]
fn ctrl_c_prints_the_finished_rounds_and_reports_the_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("third");
    // The third run of the peer hangs; the runs are counted in a file.
    let other = format!(
        "echo x >> {mark}; [ $(wc -l < {mark}) -ge 3 ] && sleep 1000; {}",
        prints(30.0),
        mark = mark.display()
    );
    let plot = folder.path().join("plot.svg");
    let mut command = command(folder.path(), &prints(10.0), &[("other", &other)]);
    command.args(["--rounds", "5", "--plot"]).arg(&plot);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let marks = || fs::read_to_string(&mark).map_or(0, |text| text.lines().count());
    for _ in 0..3000 {
        if marks() >= 3 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{stdout}");
    assert!(
        stdout.contains("**Not whole: interrupted in round 3 of 5; 2 rounds count.**"),
        "{stdout}"
    );
    assert!(stdout.contains("3.00 (3.00–3.00; 2 rounds)"), "{stdout}");
    assert_eq!(
        text(&output.stderr),
        "rmpi-compare: interrupted: not whole, 2 of 5 rounds were finished\n"
    );
    let svg = fs::read_to_string(plot).unwrap();
    let svg = roxmltree::Document::parse(&svg).unwrap();
    let has_text = |text: &str| svg.descendants().any(|node| node.text() == Some(text));
    assert!(has_text("Not whole: the measurement was interrupted."));
    assert!(has_text("64 ranks: alltoall 8 B (µs)"));
}

#[test]
fn unwritable_files_are_reported_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--plot", "--json", "--markdown"] {
        let output = compare(folder.path(), "exit 1", &[], &[option, "/nonexistent/file"]);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(
            stderr.contains("cannot write /nonexistent/file") && stderr.contains(option),
            "{stderr}"
        );
    }
}

#[test]
fn wrong_options_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = compare(folder.path(), "exit 1", &[], &["--rows", "altoall8"]);
    assert_eq!(output.status.code(), Some(2));
    let output = compare(folder.path(), "exit 1", &[], &["--against", "/nonexistent"]);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("--against: no MPI is installed there: /nonexistent/bin/rmpicc"),
        "{stderr}"
    );
    let output = compare(folder.path(), "exit 1", &[], &["--rows", "altoall8"]);
    assert!(
        text(&output.stderr).contains("no row is called \"altoall8\""),
        "{}",
        text(&output.stderr)
    );
}

/// The output of a grid program that has measured one barrier.
fn barrier(microseconds: f64) -> String {
    format!(
        "echo \"{{\\\"metric\\\":\\\"barrier\\\",\\\"bytes\\\":0,\\\"unit\\\":\\\"us\\\",\\\"value\\\":{microseconds}}}\""
    )
}

/// The command that measures a grid of one row.
fn grid(folder: &Path, own: &str, peers: &[(&str, &str)]) -> Command {
    let mut command = command_of_all(folder, own, peers);
    command.args(["--grid", "short", "--rows", "coll64+apart+barrier"]);
    command
}

/// `body` with a command in front that appends a line to the file `mark` in each run.
fn with_mark(mark: &Path, body: &str) -> String {
    format!("echo x >> {}; {body}", mark.display())
}

fn marks(mark: &Path) -> usize {
    fs::read_to_string(mark).map_or(0, |text| text.lines().count())
}

#[test]
fn the_grid_reports_where_another_leads_and_which_mpi_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (json, plot) = (
        folder.path().join("grid.json"),
        folder.path().join("grid.svg"),
    );
    let peers = [("slow", barrier(300.0)), ("fast", barrier(50.0))];
    let [(slow, slow_body), (fast, fast_body)] = &peers;
    let peers = [
        (*slow, slow_body.as_str()),
        (*fast, fast_body.as_str()),
        ("broken", "echo no device >&2; exit 9"),
    ];
    let mut command = grid(folder.path(), &barrier(100.0), &peers);
    command
        .arg("--json")
        .arg(&json)
        .arg("--plot")
        .arg(&plot)
        .arg("--check");
    let output = command.output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{stdout}{}",
        text(&output.stderr)
    );
    assert!(
        stdout.contains("| collectives, 64 ranks | 0.500 | 1 | 0 | 1 |"),
        "{stdout}"
    );
    assert!(
        stdout.contains(
            "| 64 ranks: barrier, apart | µs | 100 | 50.0 | fast (default) | **0.500** (0.500–0.500; 3 rounds) |"
        ),
        "{stdout}"
    );
    assert!(
        stdout.contains("- broken (default), coll64-apart-others: exit status: 9: no device"),
        "{stdout}"
    );
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["lines"][0]["peer"]["judged"]["outcome"], "Trails");
    assert!(fs::read_to_string(plot).unwrap().contains("times better"));
}

#[test]
fn close_rows_of_the_grid_get_seven_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("runs");
    let other = with_mark(&mark, &barrier(110.0));
    let output = grid(folder.path(), &barrier(100.0), &[("other", &other)])
        .output()
        .unwrap();
    let stdout = text(&output.stdout);
    assert!(stdout.contains("1.10 (1.10–1.10; 7 rounds)"), "{stdout}");
    assert_eq!(marks(&mark), 7);
}

#[test]
fn an_interrupted_grid_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (mark, resume) = (folder.path().join("runs"), folder.path().join("kept.json"));
    // The third run hangs.
    let hangs = format!(
        "{}; [ $(wc -l < {mark}) -eq 3 ] && sleep 1000; {}",
        with_mark(&mark, ":"),
        barrier(300.0),
        mark = mark.display()
    );
    let mut command = grid(folder.path(), &barrier(100.0), &[("other", &hangs)]);
    command.arg("--resume").arg(&resume);
    let streams = (std::process::Stdio::piped(), std::process::Stdio::piped());
    let child = command.stdout(streams.0).stderr(streams.1).spawn().unwrap();
    for _ in 0..3000 {
        if marks(&mark) >= 3 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{stdout}");
    assert!(
        stdout.contains("**Not whole") && stdout.contains("2 rounds)"),
        "{stdout}"
    );
    assert!(
        text(&output.stderr)
            .ends_with("interrupted: not whole; the same command goes on from here\n"),
        "{}",
        text(&output.stderr)
    );
    let output = command.output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stdout}{}",
        text(&output.stderr)
    );
    assert!(
        !stdout.contains("Not whole") && stdout.contains("3.00 (3.00–3.00; 3 rounds)"),
        "{stdout}"
    );
    // Only the interrupted run was repeated.
    assert_eq!(marks(&mark), 4);
    let output = command.args(["--up-to", "8"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("holds another measurement"));
}
