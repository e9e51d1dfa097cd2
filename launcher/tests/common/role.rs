// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes jobs whose ranks are the test program itself, started again with the name of a role. The test program needs an
//! ignored test `rank_program` that runs the role.

use super::{Job, Outcome, rmpiexec};
use nix::sys::socket::{MsgFlags, send};
use std::os::fd::RawFd;
use wireup::ToDaemon;

/// The environment variable with the name of the role.
pub const ROLE: &str = "RMPI_TEST_ROLE";

/// A job whose ranks run `role`.
pub fn ranks(count: u32, role: &str) -> Job {
    ranks_with(&[], count, role)
}

/// A job whose ranks run `role`, with these options of `rmpiexec`.
pub fn ranks_with(options: &[&str], count: u32, role: &str) -> Job {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let count = count.to_string();
    let program = [
        "-n",
        &count,
        own,
        "rank_program",
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ];
    let mut job = rmpiexec(options.iter().copied().chain(program));
    job.command.env(ROLE, role);
    job
}

/// A job whose ranks are shells that run `script`, in which `PROGRAM` stands for a command that runs `role`.
pub fn wrapped(count: u32, role: &str, script: &str) -> Job {
    let own = std::env::current_exe().unwrap();
    let program = format!(
        "{} rank_program --exact --ignored --nocapture --test-threads=1",
        own.display()
    );
    let mut job = rmpiexec([
        "-n",
        &count.to_string(),
        "sh",
        "-c",
        &script.replace("PROGRAM", &program),
    ]);
    job.command.env(ROLE, role);
    job
}

/// Sends a message to the daemon.
pub fn send_to_daemon(control: RawFd, message: &ToDaemon) {
    send(control, &message.encode(), MsgFlags::MSG_NOSIGNAL).expect("the daemon listens");
}

/// Number of lines of standard output that start with `line`.
pub fn count(outcome: &Outcome, line: &str) -> usize {
    outcome
        .out
        .lines()
        .filter(|other| other.starts_with(line))
        .count()
}
