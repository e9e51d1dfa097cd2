// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs with several node daemons on this machine, which the user sees as one job.
#![allow(clippy::unwrap_used)]

mod common;
use common::{Job, Running, rmpiexec, script, send, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;

/// Divides the ranks among this many daemons.
fn on_nodes(nodes: u32, mut job: Job) -> Job {
    job.command.env("RMPI_LOCAL_NODES", nodes.to_string());
    job
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The daemons of a job.
fn daemons(running: &Running, count: usize) -> Vec<u32> {
    let parent = running.pid();
    until("the daemons are there", || {
        let of_front = |pid: &u32| common::parent_of(*pid) == Some(parent);
        let found: Vec<u32> = running.processes().into_iter().filter(of_front).collect();
        (found.len() == count).then_some(found)
    })
}

#[test]
fn ranks_get_their_number_in_the_job_and_node() {
    let text = "echo $RMPI_RANK/$RMPI_SIZE $RMPI_LOCAL_RANK/$RMPI_LOCAL_SIZE";
    let outcome = on_nodes(2, script(5, text)).run().expect(0);
    let expected = ["0/5 0/3", "1/5 1/3", "2/5 2/3", "3/5 0/2", "4/5 1/2"];
    assert_eq!(sorted(&outcome.out), expected);
    assert_eq!(outcome.err, "");
}

#[test]
fn output_of_all_nodes_arrives_whole() {
    // The output is larger than all buffers on the path together.
    let text = "i=0; while [ $i -lt 40 ]; do head -c 262143 /dev/zero | tr '\\0' x; echo; i=$((i + 1)); done";
    let outcome = on_nodes(3, script(3, text)).run().expect(0);
    assert_eq!(outcome.out.len(), 3 * 40 * 262_144);
    assert!(outcome.out.lines().all(|line| line.len() == 262_143));
}

#[test]
fn input_reaches_the_readers_of_all_nodes_at_the_pace_of_the_slowest() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    std::fs::write(&from, vec![b'a'; 3 << 20]).unwrap();
    let text = "[ $RMPI_RANK = 3 ] && sleep 0.3; wc -c";
    for (stdin, expected) in [
        ("all", ["3145728", "3145728", "3145728", "3145728"]),
        ("3", ["0", "0", "0", "3145728"]),
    ] {
        let mut job = rmpiexec(["-n", "4", "--stdin", stdin, "sh", "-c", text]);
        job.command
            .stdin(Stdio::from(std::fs::File::open(&from).unwrap()));
        let outcome = on_nodes(2, job).run().expect(0);
        assert_eq!(sorted(&outcome.out), expected, "{stdin}");
    }
}

#[test]
fn a_failure_on_one_node_ends_the_ranks_of_all() {
    let text = "[ $RMPI_RANK = 3 ] && { sleep 0.2; kill -9 $$; }; sleep 100";
    let outcome = on_nodes(2, script(4, text)).run().expect(137);
    outcome
        .reports("rank 3 on host ")
        .reports("ended the remaining 3 ranks");
}

#[test]
fn an_interrupt_reaches_all_nodes() {
    let running = on_nodes(3, script(3, "sleep 100")).start();
    running.wait_for(3, "sleep 100");
    running.signal(Signal::SIGINT);
    let outcome = running.finish().expect(130);
    outcome
        .reports("SIGINT received")
        .reports("ended the remaining 3 ranks");
}

#[test]
fn a_daemon_that_is_killed_ends_the_job_on_all_nodes() {
    for victim in 0..2 {
        let running = on_nodes(2, script(4, "sleep 100 & sleep 100")).start();
        running.wait_for(8, "sleep 100");
        let daemon = daemons(&running, 2)[victim];
        send(daemon, Signal::SIGKILL);
        let expected = format!("the node daemon (pid {daemon}) was killed by signal 9 (SIGKILL)");
        running.finish().expect(137).reports(&expected);
    }
}

#[test]
fn the_job_ends_when_all_daemons_are_killed() {
    let running = on_nodes(2, script(4, "sleep 100")).start();
    running.wait_for(4, "sleep 100");
    let both = daemons(&running, 2);
    send(both[0], Signal::SIGKILL);
    // The front may have ended this daemon by now.
    let _ = kill(Pid::from_raw(both[1].cast_signed()), Signal::SIGKILL);
    running
        .finish()
        .expect(137)
        .reports("was killed by signal 9");
}

#[test]
fn an_invalid_number_of_nodes_is_quoted_in_the_error() {
    for wrong in ["0", "two", "-1", "1025", ""] {
        let mut job = script(1, "true");
        job.command.env("RMPI_LOCAL_NODES", wrong);
        let message = format!("RMPI_LOCAL_NODES is \"{wrong}\", expected a number from 1 to 1024");
        job.run().expect(1).reports(&message);
    }
}
