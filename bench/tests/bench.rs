// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the program `rmpi-bench` with MPIs that are shell scripts: its output, its plots, its messages and its exit
//! code.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const HEAD: &str = r#"{"benchmark":"latency","unit":"us","title":"Latency (us)","ranks":2,"window":1,"buffers":1,"library":"fake","machine":"a machine","steps":2,"extras":[],"rows":[]}"#;

fn row(size: usize, median: f64) -> String {
    format!(
        r#"{{"size":{size},"median":{median},"p99":9,"best":1,"worst":9,"iterations":7,"batches":1,"warm_up":1,"extras":[]}}"#
    )
}

/// A shell script that prints `lines`.
fn prints(lines: &[&str]) -> String {
    let echo = |line: &&str| format!("echo '{line}'\n");
    lines.iter().map(echo).collect()
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A launcher that skips its own options and runs the command behind `-n N`.
const LAUNCHER: &str =
    "while [ \"$1\" != -n ]; do shift; done\nshift 2\n[ \"$1\" = --quiet ] && shift\nexec \"$@\"";

/// An installation of rmpi whose latency program is a script; returns the command that starts its rmpi-bench.
fn install_rmpi(folder: &Path, program: &str) -> Command {
    script(&folder.join("bin/rmpicc"), "exit 1");
    script(&folder.join("bin/rmpiexec"), LAUNCHER);
    script(&folder.join("libexec/rmpi/latency"), program);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmpi-bench"));
    // The test has its own lock file, because a real measurement may be running.
    command.env("TMPDIR", folder).env_remove("RMPI_RANK");
    command.args(["latency", "--prefix"]).arg(folder);
    command
}

/// Another MPI, whose compiler writes the script `program`; returns the value for `--peer`.
fn install_peer(folder: &Path, name: &str, program: &str) -> String {
    let prefix = folder.join(name);
    fs::create_dir_all(&prefix).unwrap();
    fs::write(prefix.join("program"), format!("#!/bin/sh\n{program}\n")).unwrap();
    let copy = format!(
        "while [ \"$1\" != -o ]; do shift; done\ncp {0}/program \"$2\"\nchmod +x \"$2\"",
        prefix.display()
    );
    script(&prefix.join("bin/mpicc"), &copy);
    script(&prefix.join("bin/mpiexec"), LAUNCHER);
    format!("{name}={}", prefix.display())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code_and_streams(output: &Output) -> (Option<i32>, String, String) {
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn one_mpi_gives_the_table_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let program = prints(&[HEAD, &row(8, 0.25), &row(65536, 5.5)]);
    let output = install_rmpi(folder.path(), &program).output().unwrap();
    let (code, stdout, stderr) = code_and_streams(&output);
    // There is no progress bar, because standard error is no terminal.
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let rows: Vec<&str> = stdout
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    assert!(
        rows[0].starts_with("8 ") && rows[0].contains("0.250"),
        "{stdout}"
    );
    let output = install_rmpi(folder.path(), &program)
        .arg("--json")
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (
            json["complete"].as_bool(),
            json["rows"][1]["median"].as_f64()
        ),
        (Some(true), Some(5.5))
    );
}

#[test]
fn several_mpis_are_drawn_in_one_plot() {
    let folder = tempfile::tempdir().unwrap();
    let own = prints(&[HEAD, &row(8, 0.25), &row(65536, 5.5)]);
    let other = prints(&["a warning", HEAD, &row(8, 0.5), &row(65536, 7.5)]);
    let broken = "echo no device >&2; exit 9";
    let plot = folder.path().join("latency.svg");
    let mut command = install_rmpi(folder.path(), &own);
    command.args(["--peer", &install_peer(folder.path(), "other", &other)]);
    command.args(["--peer", &install_peer(folder.path(), "broken", broken)]);
    let output = command.arg("--plot").arg(&plot).output().unwrap();
    let (code, stdout, stderr) = code_and_streams(&output);
    assert_eq!(code, Some(9), "{stderr}");
    assert!(
        stdout.contains("median of 3 rounds") && stdout.contains("other (default)"),
        "{stdout}"
    );
    let values: Vec<&str> = stdout.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(values, ["65536", "5.500", "7.500"]);
    assert!(
        stderr.contains("a warning") && stderr.contains("no device"),
        "{stderr}"
    );
    assert!(
        stderr.contains("broken (default) failed with exit code 9 and is left out"),
        "{stderr}"
    );
    let svg = fs::read_to_string(plot).unwrap();
    let svg = roxmltree::Document::parse(&svg).unwrap();
    let curves = svg
        .descendants()
        .filter(|node| node.has_tag_name("polyline"));
    assert_eq!(curves.count(), 2);
}

#[test]
fn ctrl_c_prints_the_rows_so_far_and_reports_the_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let program = prints(&[HEAD, &row(8, 0.25)]) + "sleep 1000";
    let mut command = install_rmpi(folder.path(), &program);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("8 ") {
        line.clear();
        assert_ne!(
            stdout.read_line(&mut line).unwrap(),
            0,
            "the row did not come"
        );
    }
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(
        text(&output.stderr),
        "rmpi-bench: interrupted: not whole, 1 of 2 rows were measured\n"
    );
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    let left = fs::read_dir(folder.path()).unwrap().flatten();
    let left: Vec<String> = left
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        !left.iter().any(|name| name.starts_with("rmpi-bench.")),
        "{left:?}"
    );
}

#[test]
fn ctrl_c_in_a_later_round_prints_the_finished_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("second");
    // The second run creates a file and hangs.
    let program = format!(
        "{}[ -e {mark} ] && {{ echo again >&2; sleep 1000; }}\ntouch {mark}\n{}",
        prints(&[HEAD, &row(8, 0.25)]),
        prints(&[&row(65536, 5.5)]),
        mark = mark.display()
    );
    let mut command = install_rmpi(folder.path(), &program);
    command.args(["--rounds", "3", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "again\n");
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (json["complete"].as_bool(), json["rounds"].as_u64()),
        (Some(false), Some(1))
    );
    assert_eq!(json["series"][0]["rows"].as_array().unwrap().len(), 2);
    line.clear();
    stderr.read_to_string(&mut line).unwrap();
    assert_eq!(
        line,
        "rmpi-bench: interrupted: not whole, 1 of 3 rounds were finished\n"
    );
}

#[test]
fn a_full_disk_and_a_closed_pipe_end_the_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let program = prints(&[HEAD, &row(8, 0.25)]) + "sleep 1000";
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = install_rmpi(folder.path(), &program)
        .stdout(full)
        .output()
        .unwrap();
    let (code, _, stderr) = code_and_streams(&output);
    assert_eq!(code, Some(141));
    assert!(
        stderr.starts_with("rmpi-bench: cannot write to standard output: No space left"),
        "{stderr}"
    );
    let mut command = install_rmpi(folder.path(), &program);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(141), "")
    );
}

#[test]
fn on_a_terminal_the_progress_bar_is_redrawn_and_cleared() {
    let Some(terminal) = bench::machine::find_in_path("script") else {
        eprintln!("script is not installed: there is no terminal to try here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = prints(&[HEAD, &row(8, 0.25), &row(65536, 5.5)]);
    let words = install_rmpi(folder.path(), &program);
    let words = std::iter::once(words.get_program()).chain(words.get_args());
    let line: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let output = Command::new(terminal)
        .args(["-qec", &line.join(" "), "/dev/null"])
        .env("TMPDIR", folder.path())
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let seen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{seen}");
    assert!(seen.contains("\r") && seen.contains("2/2"), "{seen:?}");
    // At the end only the table is on the terminal.
    let last = |line: &str| {
        line.trim_end_matches('\r')
            .rsplit("\u{1b}[2K")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let left: Vec<String> = seen.split('\n').map(last).collect();
    assert!(
        left.iter().any(|line| line.starts_with("65536 ")),
        "{left:?}"
    );
    assert!(!left.iter().any(|line| line.contains("/2 ")), "{left:?}");
}

#[test]
fn wrong_options_are_reported_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 6] = [
        (&["--plot", "x.png"], "plots are SVG, not png"),
        (
            &["--plot", "/nonexistent/x.svg"],
            "cannot write /nonexistent/x.svg",
        ),
        (
            &["--peer", "mpich5=/nonexistent"],
            "/nonexistent/bin/mpicc does not exist",
        ),
        (&["--size", "8"], "--sizes"),
        (&["--sizes", "8,many"], "\"many\" is no size"),
        (&["-n", "0"], "a number of ranks from 1 on is expected"),
    ];
    for (words, expected) in cases {
        let output = install_rmpi(folder.path(), "echo started")
            .args(words)
            .output()
            .unwrap();
        let (code, stdout, stderr) = code_and_streams(&output);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words:?}");
        assert!(stderr.contains(expected), "{words:?}: {stderr}");
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_rmpi-bench"))
        .arg("latncy")
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    let stderr = text(&unknown.stderr);
    assert!(
        stderr.contains("\"latncy\"; there are latency, bandwidth")
            && stderr.contains("did you mean"),
        "{stderr}"
    );
}
