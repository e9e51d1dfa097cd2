// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that no process survives a job, whichever process is killed.
#![allow(clippy::unwrap_used)]

mod common;
use common::{script, send};
use nix::sys::signal::Signal;

/// A rank with a child, a grandchild, a process in a session of its own, and a process that ignores SIGTERM.
const FAMILY: &str = "sleep 1001 & sh -c 'sleep 1002 & wait' & setsid sleep 1003 & (trap '' TERM; sleep 1004) & wait";

#[test]
fn nothing_survives_a_kill_of_rmpiexec() {
    let mut running = script(3, FAMILY).start();
    running.wait_for(12, "sleep 100");
    running.signal(Signal::SIGKILL);
    running.end();
    running.assert_nothing_left();
}

#[test]
fn nothing_survives_a_kill_of_the_daemon_and_it_is_reported() {
    let running = script(3, FAMILY).start();
    running.wait_for(12, "sleep 100");
    let daemon = running.daemon();
    send(daemon, Signal::SIGKILL);
    let expected = format!(
        "the node daemon (pid {daemon}) was killed by signal 9 (SIGKILL); all ranks were killed"
    );
    running.finish().expect(137).reports(&expected);
}

#[test]
fn nothing_survives_the_failure_of_a_rank() {
    let text = format!("[ $RMPI_RANK = 1 ] && {{ sleep 0.3; exit 6; }}; {FAMILY}");
    script(3, &text).run().expect(6);
}

#[test]
fn processes_left_by_a_rank_are_ended_and_reported() {
    let outcome = script(2, "sleep 1001 & (setsid sleep 1002 &) ; exit 0")
        .run()
        .expect(0);
    outcome.reports("processes that ranks had left behind");
}

#[test]
fn processes_left_by_a_rank_are_killed_if_they_ignore_sigterm() {
    script(2, "(trap '' TERM; sleep 1001; sleep 1002) & exit 0")
        .run()
        .expect(0);
}

#[test]
fn helpers_that_end_with_their_rank_are_not_reported() {
    let outcome = script(2, "(sleep 0.01) & exit 0").run().expect(0);
    assert_eq!(outcome.err, "");
}

#[test]
fn a_rank_in_a_session_of_its_own_is_ended_with_the_job() {
    script(
        2,
        "[ $RMPI_RANK = 0 ] && exec setsid -w sleep 1001; sleep 0.3; exit 2",
    )
    .run()
    .expect(2);
}

/// One rank of four fails in one of five ways after 0 to 30 ms. The rank, the way and the delay are pseudo-random with
/// a fixed seed, so they are the same in each run of the test.
#[test]
fn thirty_random_failures_are_reported_and_leave_nothing() {
    let mut state = 4711_u64;
    for round in 0..30 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let pick = |of: u64, shift: u32| (state >> shift) % of;
        let (rank, delay) = (pick(4, 20), pick(31, 30));
        let (act, code, expected) = match pick(5, 40) {
            0 => ("kill -KILL $$", 137, "was killed by signal 9"),
            1 => ("kill -SEGV $$", 139, "was killed by signal 11"),
            2 => ("kill -BUS $$", 135, "was killed by signal 7"),
            3 => ("exit 42", 42, "exited with code 42"),
            _ => ("exec false", 1, "exited with code 1"),
        };
        let text = format!(
            "[ $RMPI_RANK = {rank} ] && {{ sleep 0.0{delay:02}; {act}; }}; sleep 1001 & wait"
        );
        let outcome = script(4, &text).run();
        let seen = format!("round {round}, state {state:x}: {text}: {}", outcome.err);
        assert_eq!(outcome.code, Some(code), "{seen}");
        assert!(
            outcome.err.contains(&format!("rank {rank} on host "))
                && outcome.err.contains(expected),
            "{seen}"
        );
    }
}

/// The launcher or its daemon is killed at different times, some of them while ranks are being started.
#[test]
fn kills_of_either_role_at_any_moment_leave_nothing() {
    for round in 0..20_u64 {
        let mut running = script(16, "sleep 1001 & wait").start();
        std::thread::sleep(std::time::Duration::from_millis(round * 2));
        if round % 2 == 0 {
            running.signal(Signal::SIGKILL);
        } else {
            send(running.daemon(), Signal::SIGKILL);
        }
        running.end();
        running.assert_nothing_left();
    }
}
