// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of measurements between two hosts. Both host names stand for this machine: the remote shell is a script that
//! runs everything here. The MPIs are shell scripts too. TCP without MPI is really measured; its figures depend on the
//! machine, so the tests only check that they are plausible.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use bench::limits::Figure;

/// Host names that cannot be resolved.
const HOSTS: &str = "n1.invalid,n2.invalid";

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Writes a remote shell that logs the host and runs the command here.
fn remote_shell(folder: &Path) {
    script(
        &folder.join("here"),
        "echo welcome; echo \"$1\" >> reached; shift; cd / && exec sh -c \"$*\"",
    );
}

/// Installs an MPI whose launcher logs its arguments and runs the program, which prints `line`.
fn install(folder: &Path, name: &str, commands: [&str; 2], line: &str) {
    let bin = folder.join(name).join("bin");
    let program = folder.join(name).join("program");
    script(&program, &format!("echo '{line}'"));
    let copy = format!(
        "while [ \"$1\" != -o ]; do shift; done\ncp {} \"$2\"",
        program.display()
    );
    let launch = format!(
        "echo \"$@\" >> {}\nwhile [ \"$1\" != -n ]; do shift; done\nshift 2\nexec \"$@\"",
        folder.join(name).join("words").display()
    );
    script(&bin.join(commands[0]), &copy);
    script(&bin.join(commands[1]), &launch);
}

fn latency(median: f64, more: &str) -> String {
    format!(
        "{{\"benchmark\":\"latency\",\"unit\":\"us\",\"ranks\":2,\"library\":\"fake\",\"rows\":[{{\"size\":8,\"median\":{median}}}]{more}}}"
    )
}

fn compare(folder: &Path, words: &[&str]) -> Output {
    let own = latency(0.001, ",\"carrier\":\"tcp\"");
    install(folder, "rmpi", ["rmpicc", "rmpiexec"], &own);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmpi-compare"));
    // The test has its own lock file, because a real measurement may be running.
    command.env("TMPDIR", folder).current_dir(folder);
    command.args(["--rmpi", "rmpi", "--rounds", "1"]);
    command.args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The logged arguments of the launcher of an MPI, without the program.
fn arguments_of(folder: &Path, name: &str) -> String {
    let words = fs::read_to_string(folder.join(name).join("words")).unwrap();
    let line = words.lines().last().unwrap();
    line.split(" -n 2 ").next().unwrap().to_owned()
}

/// Compares rmpi with three peers; each MPI has one figure.
fn compare_with_peers(folder: &Path) -> Output {
    remote_shell(folder);
    let mut words = vec!["--host", HOSTS, "--launcher", "./here"];
    words.extend(["--rows", "hosts-latency8", "--check", "--json", "out.json"]);
    words.extend(["--plot", "out.svg", "--markdown", "out.md"]);
    for name in ["mpich5", "openmpi5", "itself"] {
        install(folder, name, ["mpicc", "mpiexec"], &latency(2000.0, ""));
    }
    words.extend(["--peer", "mpich5=mpich5", "--peer", "openmpi5=openmpi5"]);
    words.extend(["--peer", "itself=itself"]);
    compare(folder, &words)
}

#[test]
fn hosts_are_named_and_compared_with_raw_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let output = compare_with_peers(folder);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    for expected in [
        "# rmpi and other MPIs between hosts n1.invalid and n2.invalid",
        "reached by `./here`: rmpi's messages went over tcp; the limit is TCP without MPI from ",
        "≤ 1.15 × limit; better than every peer | pass |",
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
    let kept = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&kept("out.json")).unwrap();
    let between = &json["between"];
    assert_eq!(between["hosts"][1], "n2.invalid");
    assert_eq!(between["interconnect"], "tcp");
    assert_eq!(json["rows"].as_array().unwrap().len(), 1);
    assert!(json["rows"][0]["judged"]["limit"]["median"].as_f64() > Some(0.0));
    assert!(kept("out.md").ends_with(&stdout));
    assert!(kept("out.svg").contains("n2.invalid"));
}

#[test]
fn every_mpi_is_started_on_both_hosts_with_its_own_options() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compare_with_peers(folder);
    let reached = fs::read_to_string(folder.join("reached")).unwrap();
    assert_eq!(reached, "n2.invalid\nn1.invalid\n");
    let mpich = arguments_of(folder, "mpich5");
    let shell = mpich.strip_prefix(&format!(
        "-hosts {HOSTS} -ppn 1 -launcher rsh -launcher-exec "
    ));
    assert!(shell.unwrap().ends_with("/remote-shell"), "{mpich}");
    let openmpi = arguments_of(folder, "openmpi5");
    let words = "--host n1.invalid:1,n2.invalid:1 --prtemca plm_ssh_agent /";
    assert!(openmpi.contains(words), "{openmpi}");
    for name in ["rmpi", "itself"] {
        let words = format!("--host {HOSTS} --launcher ./here");
        assert_eq!(arguments_of(folder, name), words, "{name}");
    }
    let left = fs::read_dir(folder).unwrap().flatten();
    let left: Vec<String> = left
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let binaries = |name: &String| name.starts_with("rmpi-compare.");
    assert!(!left.iter().any(binaries), "{left:?}");
}

#[test]
fn collectives_have_all_ranks_and_an_mpi_without_an_option_for_them_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    remote_shell(folder);
    let hosts = "n1.invalid:2,me@n2.invalid,n[3-4].invalid:2";
    let mut words = vec!["--host", hosts, "--launcher", "./here"];
    words.extend(["--rows", "hosts-allreduce8,hosts-latency0"]);
    for name in ["mpich5", "itself"] {
        install(folder, name, ["mpicc", "mpiexec"], &latency(2000.0, ""));
    }
    words.extend(["--peer", "mpich5=mpich5", "--peer", "itself=itself"]);
    let output = compare(folder, &words);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    for name in ["rmpi", "itself"] {
        let words = fs::read_to_string(folder.join(name).join("words")).unwrap();
        let pair = "--host n1.invalid,me@n2.invalid --launcher ./here -n 2 ";
        let all =
            "--host n1.invalid:2,me@n2.invalid,n3.invalid:2,n4.invalid:2 --launcher ./here -n 7 ";
        let mut lines: Vec<&str> = words.lines().collect();
        lines.sort_by_key(|line| line.len());
        assert!(lines[0].starts_with(pair), "{words}");
        assert!(lines[1].starts_with(all), "{words}");
    }
    for expected in [
        "between hosts n1.invalid, me@n2.invalid, n3.invalid and n4.invalid, in one run",
        "; 7 ranks on all of them",
        "- mpich5 (default), hosts-allreduce: it has no option for the user of me@n2.invalid: name the user in ~/.ssh/config",
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
    assert!(!folder.join("mpich5/words").exists());
}

#[test]
fn an_unreachable_host_is_named_and_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    script(&folder.path().join("away"), "exit 255");
    let mut words = vec!["--host", HOSTS, "--launcher", "./away"];
    words.extend(["--rows", "hosts-latency8", "--check"]);
    let output = compare(folder.path(), &words);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(
        stdout.contains("- the machine, hosts-latency: TCP: host n2.invalid: "),
        "{stdout}"
    );
    assert!(stdout.contains("| not measured |"), "{stdout}");
}

#[test]
fn without_hosts_their_rows_are_listed_and_do_not_fail() {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "--rows",
        "startup64,hosts-latency8",
        "--settings",
        "default",
    ];
    let output = compare(folder.path(), &words);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    let line = stdout
        .lines()
        .find(|line| line.contains("two hosts: latency 8 B"));
    let bars = "≤ 1.15 × limit; better than every peer | not run: needs --host |";
    assert!(line.unwrap().ends_with(bars), "{stdout}");
    let words = fs::read_to_string(folder.path().join("rmpi/words")).unwrap();
    assert!(!words.contains("latency"), "{words}");
}

#[test]
fn wrong_options_for_hosts_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (words, expected) in [
        (&["--host", "n1"][..], "--host n1: this is one host"),
        (
            &["--host", "n1,n2:*"],
            "the number of ranks of n2:* is missing",
        ),
        (
            &["--host", HOSTS, "--launcher", "'"],
            "--launcher: a ' is not closed",
        ),
        (&["--launcher", "rsh"], "--host <A:N,B:N>"),
        (&["--host", HOSTS, "--grid", "short"], "cannot be used with"),
        (
            &["--rows", "hosts-latency8"],
            "measured between two hosts: name them with --host A,B",
        ),
    ] {
        let output = compare(folder.path(), words);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(stderr.contains(expected), "{words:?}: {stderr}");
    }
}

#[test]
fn limits_between_hosts_can_be_measured_alone() {
    let folder = tempfile::tempdir().unwrap();
    remote_shell(folder.path());
    let limits = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rmpi-bench"));
        command.env("TMPDIR", folder.path());
        command.current_dir(folder.path());
        command.args(["limits", "--json", "--seconds", "0.01"]);
        command.args(words).output().unwrap()
    };
    let mut words = vec!["tcp.8", "tcp-stream.4096"];
    words.extend(["--host", HOSTS, "--launcher", "./here"]);
    let output = limits(&words);
    let stdout = text(&output.stdout);
    let figures: Vec<Figure> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
    assert_eq!(
        ids,
        ["tcp.8", "tcp-stream.4096"],
        "{}",
        text(&output.stderr)
    );
    assert!(figures.iter().all(|figure| figure.median > 0.0), "{stdout}");
    let output = limits(&["tcp"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("tcp is measured between two hosts: --host A,B"),
        "{stderr}"
    );
}
