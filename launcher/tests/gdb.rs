// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `--gdb`: it starts a gdb that gets the terminal, holds the ranks until gdb has attached, and leaves no
//! process behind. In these tests gdb is a script; the tests of `mpir.rs` use the real gdb.
#![allow(clippy::unwrap_used)]

mod common;
use common::lab::Lab;
use common::{Job, rmpiexec, terminal, until};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

/// Shell code that does what gdb does when it has attached: it runs the command that writes to the FIFO.
const ATTACHED: &str =
    "for word; do case $word in 'shell echo > '*) eval \"${word#shell }\";; esac; done";

/// `rmpiexec` with this script as gdb.
fn job(folder: &Path, gdb: &str, arguments: &[&str]) -> Job {
    with_gdb(rmpiexec(arguments), folder, gdb)
}

fn with_gdb(mut job: Job, folder: &Path, gdb: &str) -> Job {
    let file = folder.join("gdb");
    fs::write(&file, format!("#!/bin/sh\n{gdb}\n")).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/bin:/usr/bin", folder.display());
    job.command.env("PATH", path);
    job
}

#[test]
fn gdb_gets_standard_input_while_ranks_are_held() {
    let folder = tempfile::tempdir().unwrap();
    let gdb = format!(
        "for word; do case $word in 'attach '*) grep -c '^State:.T' /proc/${{word#attach }}/status;; esac; done\n\
         {ATTACHED}; read line; echo gdb has read $line"
    );
    let words = [
        "--gdb",
        "0-1",
        "-n",
        "3",
        "sh",
        "-c",
        "echo rank has read $(cat)",
    ];
    let mut job = job(folder.path(), &gdb, &words);
    let input = folder.path().join("input");
    fs::write(&input, "something\n").unwrap();
    job.command.stdin(Stdio::from(File::open(&input).unwrap()));
    let outcome = job.run().expect(0);
    let mut expected = vec!["1"; 2];
    expected.push("gdb has read something");
    expected.extend(["rank has read"; 3]);
    assert_eq!((outcome.sorted(), outcome.err.as_str()), (expected, ""));
}

#[test]
fn ranks_run_when_gdb_ends_early() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = job(
        folder.path(),
        "exit 1",
        &["--gdb", "all", "-n", "3", "echo", "ran"],
    )
    .run();
    let outcome = outcome.expect(0);
    let outcome = outcome.reports("gdb has ended before it came to its ranks; all ranks go on");
    assert_eq!(outcome.out, "ran\nran\nran\n");
}

#[test]
fn gdb_may_outlive_the_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let gdb = format!(
        "{ATTACHED}; until [ -e {0} ]; do sleep 0.02; done; sleep 0.2; echo last",
        done.display()
    );
    let done = done.to_str().unwrap();
    let outcome = job(
        folder.path(),
        &gdb,
        &["--gdb", "0", "-n", "2", "touch", done],
    )
    .run();
    assert_eq!(outcome.expect(0).out, "last\n");
}

#[test]
fn gdb_ends_with_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let gdb = format!("{ATTACHED}; exec sleep 1001");
    let arguments = ["--gdb", "0", "-n", "2", "sleep", "1000"];
    let running = job(folder.path(), &gdb, &arguments).start();
    running.wait_for(3, "sleep 100");
    running.signal(Signal::SIGTERM);
    running.finish().expect(143).reports("SIGTERM received");
    let mut running = job(folder.path(), &gdb, &arguments).start();
    running.wait_for(3, "sleep 100");
    running.signal(Signal::SIGKILL);
    running.end();
    running.assert_nothing_left();
}

#[test]
fn gdb_owns_the_terminal_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    // Ctrl-C is delivered to gdb while gdb runs, and then to the launcher.
    let gdb = format!(
        "trap 'echo gdb is interrupted; exit 0' INT; {ATTACHED}; echo gdb is here; read line"
    );
    let job = job(
        folder.path(),
        &gdb,
        &["--gdb", "0", "-n", "2", "sleep", "1000"],
    );
    let (mut terminal, mut running) = terminal::start(job, (24, 80));
    for words in ["gdb is here", "gdb is interrupted"] {
        terminal.wait_for(words);
        if words == "gdb is interrupted" {
            // Once gdb has exited, the launcher gets the terminal back; the next Ctrl-C must come after that.
            let launcher = i32::try_from(running.pid()).unwrap();
            until("the launcher is in front", || {
                let group = nix::unistd::tcgetpgrp(&terminal.file).ok()?;
                (group.as_raw() == launcher).then_some(())
            });
        }
        terminal.types("\x03");
    }
    terminal.wait_for("SIGINT received");
    assert_eq!(running.end().code(), Some(130), "{}", terminal.seen);
    running.assert_nothing_left();
}

#[test]
fn without_a_gdb_nothing_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = rmpiexec(["--gdb", "0", "-n", "2", "/bin/echo", "ran"]);
    job.command.env("PATH", folder.path());
    let outcome = job.run().expect(1);
    let outcome = outcome.reports("--gdb: no program gdb in PATH (looked in ");
    assert_eq!(outcome.out, "");
}

/// With an installation this is tested in `gdb_over_hosts`.
#[test]
fn gdb_on_remote_ranks_needs_the_installed_script() {
    let (lab, folder) = (Lab::new(), tempfile::tempdir().unwrap());
    let job = lab.job("a,b", &["--gdb", "1", "sleep", "1000"]);
    let outcome = with_gdb(job, folder.path(), ATTACHED).run().expect(1);
    outcome.reports("--gdb: share/rmpi/gdb/rmpi.py of this installation is missing");
}

#[test]
fn an_invalid_gdb_rank_list_is_refused_with_an_example() {
    let refused = |options: &[&str], message: &str| {
        let all = options.iter().chain(&["-n", "2", "true"]);
        rmpiexec(all).run().expect(2).reports(message);
    };
    refused(
        &["--gdb", "x"],
        "--gdb x: `x` is no rank; expected numbers and ranges",
    );
    refused(
        &["--gdb", "1-2"],
        "--gdb 1-2: there is no rank 2: the job has 2",
    );
    refused(
        &["--gdb", "0", "--stdin", "1"],
        "--gdb 0: gdb takes standard input",
    );
}
