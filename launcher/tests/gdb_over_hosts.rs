// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `--gdb` for ranks of other hosts, with the real gdb and gdbserver, and with rmpi as users install it.
//! `cargo xtask test debuggers` installs it and runs these tests. All hosts are this machine, as in `over_hosts`.
#![allow(clippy::unwrap_used)]

mod common;
use common::lab::Lab;
use common::{Job, Running, terminal};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The installed `rmpiexec` with these arguments at a terminal, over the hosts a and b.
fn at_terminal(lab: &Lab, arguments: &[&str]) -> (terminal::Terminal, Running) {
    let prefix = std::env::var_os("RMPI_TEST_PREFIX")
        .unwrap_or_else(|| panic!("RMPI_TEST_PREFIX is not set; type: cargo xtask test debuggers"));
    let mut command = Command::new(Path::new(&prefix).join("bin/rmpiexec"));
    command.arg("--launcher").arg(lab.0.path().join("rsh"));
    command.args(["--host", "a,b"]).args(arguments);
    command.env("HOME", lab.0.path()).env("TERM", "dumb");
    command.env("DEBUGINFOD_URLS", "").env("LC_ALL", "C");
    terminal::start(Job::of(command), (24, 80))
}

/// Waits until this text is shown; returns immediately if it was shown before: gdb and rmpiexec share the terminal, so
/// the order of their texts is not determined.
fn shows(user: &mut terminal::Terminal, expected: &str) {
    if !user.seen.contains(expected) {
        user.wait_for(expected);
    }
}

const BEFORE: &str = "before the first instruction. Set breakpoints, then type: continue";

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn gdb_stops_and_kills_ranks_on_two_hosts() {
    let lab = Lab::new();
    let arguments = ["--gdb", "all", "sleep", "1000"];
    let (mut user, mut running) = at_terminal(&lab, &arguments);
    user.wait_for(&format!(
        "rank 0 is inferior 1, rank 1 is inferior 2: {BEFORE}"
    ));
    user.wait_for("(gdb) ");
    user.types("continue\n");
    user.wait_for("Continuing.");
    user.types("\x03");
    user.wait_for("(gdb) ");
    user.types("info connections\n");
    user.wait_for("rsh b 'exec gdbserver");
    // If rank 0 has not been ended with the job yet, gdb requests a confirmation of `quit`.
    user.types("kill inferiors 2\nquit\ny\n");
    shows(&mut user, "rank 1 on host b (pid ");
    shows(&mut user, "was killed by signal 9");
    assert_eq!(running.end().code(), Some(137), "{}", user.seen);
    running.assert_nothing_left();
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn a_host_without_gdbserver_is_named_and_its_ranks_go_on() {
    let lab = Lab::new();
    let shell = lab.0.path().join("rsh");
    let text = fs::read_to_string(&shell).unwrap();
    let without = "case \"$*\" in b*gdbserver*) echo 'gdbserver: not found' >&2; exit 127;; esac\n";
    fs::write(&shell, text.replacen('\n', &format!("\n{without}"), 1)).unwrap();
    let ran = lab.0.path().join("ran");
    let program = format!("echo > {}.$RMPI_RANK", ran.display());
    let arguments = ["--gdb", "0-1", "sh", "-c", &program];
    let (mut user, mut running) = at_terminal(&lab, &arguments);
    user.wait_for("rank 1 goes on without gdb: host b: there is no gdbserver");
    // The output of rank 1 may appear in the middle of gdb's output.
    shows(&mut user, "rank 0 is inferior 1, rank 1 is inferior 2");
    user.wait_for("(gdb) ");
    user.types("continue\n");
    shows(&mut user, "exited normally");
    user.types("quit\n");
    for rank in 0..2 {
        assert!(
            ran.with_extension(rank.to_string()).exists(),
            "{}",
            user.seen
        );
    }
    assert_eq!(running.end().code(), Some(0), "{}", user.seen);
    running.assert_nothing_left();
}
