// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of failures: the message names the first rank that failed, its exit code is the job's exit code, and the other
//! ranks are ended.
#![allow(clippy::unwrap_used)]

mod common;
use common::{barrier, rmpiexec, script};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

#[test]
fn the_code_of_the_rank_that_failed_is_the_code_of_the_job() {
    let outcome = script(4, "[ $RMPI_RANK = 2 ] && exit 7; sleep 100")
        .run()
        .expect(7);
    let outcome = outcome
        .reports("rank 2 on host ")
        .reports("exited with code 7")
        .reports("ended the remaining 3 ranks");
    assert!(outcome.err.lines().count() <= 5, "{}", outcome.err);
}

#[test]
fn a_signal_is_named_and_added_to_128() {
    for (signal, code, expected) in [
        (
            "SEGV",
            139,
            "was killed by signal 11 (SIGSEGV: it touched memory that is not its own)",
        ),
        ("KILL", 137, "was killed by signal 9 (SIGKILL: "),
        (
            "ABRT",
            134,
            "was killed by signal 6 (SIGABRT: it called abort)",
        ),
        (
            "40",
            168,
            "was killed by signal 40 (SIGRTMIN+6: a real-time signal)",
        ),
    ] {
        let text = format!("[ $RMPI_RANK = 1 ] && kill -{signal} $$; sleep 100");
        script(3, &text)
            .run()
            .expect(code)
            .reports("rank 1 on host ")
            .reports(expected);
    }
}

#[test]
fn ranks_that_ignore_sigterm_are_killed_after_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let barrier = barrier(3, folder.path());
    let text = format!(
        "trap '' TERM; {barrier}; [ $RMPI_RANK = 0 ] && exit 3; while :; do sleep 0.1; done"
    );
    let start = Instant::now();
    let outcome = script(3, &text).run().expect(3);
    assert!(start.elapsed() >= Duration::from_secs(1));
    outcome.reports("ended the remaining 2 ranks, 2 of them with SIGKILL");
}

#[test]
fn ranks_may_clean_up_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let barrier = barrier(2, folder.path());
    let text = format!(
        "trap 'echo cleaned; exit 0' TERM; {barrier}; [ $RMPI_RANK = 0 ] && exit 3; while :; do sleep 0.05; done"
    );
    let outcome = script(2, &text).run().expect(3);
    assert_eq!(outcome.out, "cleaned\n");
}

#[test]
fn a_stopped_rank_is_ended_too() {
    let text = "[ $RMPI_RANK = 0 ] && kill -STOP $$; sleep 0.3; exit 5";
    script(2, text).run().expect(5).reports("rank 1 on host ");
}

#[test]
fn non_mpi_programs_may_end_at_any_time() {
    script(4, "sleep 0.0$RMPI_RANK").run().expect(0);
}

#[test]
fn the_first_crash_is_reported_not_its_consequences() {
    // Rank 2 crashes. Rank 0 notices the end of file and exits immediately, as a program with sockets would.
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = format!(
        "case $RMPI_RANK in 2) exec 3<>{0}; sleep 0.2; kill -SEGV $$;; 0) read x <{0}; exit 1;; esac; sleep 100",
        fifo.display()
    );
    script(3, &text)
        .run()
        .expect(139)
        .reports("rank 2 on host ");
}

#[test]
fn the_time_limit_ends_the_job_with_124() {
    // The time limit is long enough for the start of the ranks.
    let outcome = rmpiexec(["-n", "3", "--timeout", "2.5", "sleep", "100"])
        .run()
        .expect(124);
    outcome
        .reports("the time of 2.5 s is over, the job is ended")
        .reports("ended the remaining 3 ranks");
    rmpiexec(["-n", "3", "--timeout", "100", "true"])
        .run()
        .expect(0);
}

fn interrupted(text: &str, signal: Signal, code: i32, expected: &str) {
    let running = script(3, text).start();
    running.wait_for(3, "sleep 100");
    running.signal(signal);
    running.finish().expect(code).reports(expected);
}

#[test]
fn an_interrupt_reaches_the_ranks_and_gives_130() {
    interrupted("sleep 100", Signal::SIGINT, 130, "SIGINT received");
}

/// Pause after which an equal signal counts as another request: two equal signals within 200 ms count as one.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(250);

#[test]
fn a_second_interrupt_kills_at_once() {
    let mut running = script(3, "trap '' INT TERM; sleep 100; sleep 100").start();
    running.wait_for(3, "sleep 100");
    running.signal(Signal::SIGINT);
    running.wait_for_text("SIGINT received");
    std::thread::sleep(SIGNAL_INTERVAL);
    running.signal(Signal::SIGINT);
    running.finish().expect(130).reports("killing all ranks");
}

#[test]
fn a_third_signal_kills_a_stopped_daemon() {
    let mut running = script(2, "sleep 100").start();
    running.wait_for(2, "sleep 100");
    common::send(running.daemon(), Signal::SIGSTOP);
    running.signal(Signal::SIGINT);
    running.wait_for_text("SIGINT received");
    std::thread::sleep(SIGNAL_INTERVAL);
    running.signal(Signal::SIGINT);
    running.wait_for_text("killing all ranks");
    std::thread::sleep(SIGNAL_INTERVAL);
    running.signal(Signal::SIGINT);
    running.finish().expect(130);
}

#[test]
fn a_signal_repeated_at_once_counts_once() {
    // Two signals are sent as by the `timeout` command, which signals the process and then its group. A round in which
    // the busy machine delays the second signal too long proves nothing and is repeated.
    let text = "trap 'sleep 0.6; echo cleaned; exit 0' TERM; while :; do sleep 0.05; done";
    for _ in 0..20 {
        let running = script(2, text).start();
        running.wait_for(2, "sleep 0.05");
        let first = Instant::now();
        running.signal(Signal::SIGTERM);
        std::thread::sleep(Duration::from_millis(20));
        running.signal(Signal::SIGTERM);
        let apart = first.elapsed();
        let outcome = running.finish().expect(143);
        if apart > Duration::from_millis(60) {
            continue;
        }
        assert_eq!(outcome.out, "cleaned\ncleaned\n");
        assert!(!outcome.err.contains("killing"), "{}", outcome.err);
        return;
    }
    panic!("twenty times 20 ms took longer than 60");
}

#[test]
fn an_interrupt_while_the_ranks_are_being_started_is_not_lost() {
    for round in 0..10 {
        let running = script(8, "sleep 100").start();
        running.daemon();
        std::thread::sleep(Duration::from_micros(round * 300));
        running.signal(Signal::SIGINT);
        running.finish().expect(130);
    }
}

#[test]
fn ranks_that_ignore_an_interrupt_get_sigterm_after_two_seconds() {
    let start = Instant::now();
    interrupted(
        "trap '' INT; sleep 100",
        Signal::SIGINT,
        130,
        "SIGINT received",
    );
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[test]
fn sigterm_and_sighup_end_the_job_with_their_codes() {
    interrupted("sleep 100", Signal::SIGTERM, 143, "SIGTERM received");
    interrupted("sleep 100", Signal::SIGHUP, 129, "SIGHUP received");
    interrupted(
        "trap '' HUP; sleep 100",
        Signal::SIGHUP,
        129,
        "3 of them with SIGKILL",
    );
}

#[test]
fn an_ignored_interrupt_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let over = folder.path().join("over");
    let line = format!(
        "trap '' INT; exec {} -n 2 sh -c 'until [ -e {} ]; do sleep 0.05; done'",
        env!("CARGO_BIN_EXE_rmpiexec"),
        over.display()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &line]);
    let running = common::Job::of(command).start();
    running.wait_for(2, "sleep 0.05");
    running.signal(Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(100));
    std::fs::write(over, "").unwrap();
    running.finish().expect(0);
}

#[test]
fn user_signals_are_passed_on() {
    let text = "trap 'echo one; exit 0' USR1; trap 'echo two; exit 0' USR2; echo ready >&2; while :; do sleep 0.02; done";
    for (signal, word) in [(Signal::SIGUSR1, "one"), (Signal::SIGUSR2, "two")] {
        let mut running = script(2, text).start();
        let errors = running.child.stderr.take().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(errors));
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        running.signal(signal);
        let outcome = running.finish().expect(0);
        assert_eq!(outcome.out, format!("{word}\n{word}\n"));
    }
}

#[test]
fn sigtstp_and_sigcont_reach_the_ranks() {
    let running = script(2, "sleep 100").start();
    let ranks = running.wait_for(2, "sleep 100");
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    let all = |wanted: &str| {
        ranks
            .iter()
            .chain([&running.pid()])
            .all(|pid| wanted.contains(state(*pid)))
    };
    running.signal(Signal::SIGTSTP);
    common::until("all have stopped", || all("T").then_some(()));
    running.signal(Signal::SIGCONT);
    common::until("all go on", || all("SR").then_some(()));
    running.signal(Signal::SIGTERM);
    running.finish().expect(143);
}

#[test]
fn keep_going_reports_the_first_failure_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let barrier = barrier(4, folder.path());
    let text = format!(
        "{barrier}; case $RMPI_RANK in 1) exit 7;; 2) sleep 1; kill -SEGV $$;; *) sleep 1; echo through;; esac"
    );
    let outcome = rmpiexec(["--keep-going", "-n", "4", "sh", "-c", &text])
        .run()
        .expect(7);
    assert_eq!(outcome.out, "through\nthrough\n");
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", outcome.err);
    assert!(
        lines[0].starts_with("rmpiexec: rank 1 on host "),
        "{}",
        outcome.err
    );
    assert!(
        lines[0].ends_with("exited with code 7; the others go on"),
        "{}",
        outcome.err
    );
    assert!(lines[1].starts_with("rmpiexec: 2 ranks have failed; the first: rank 1 on host "));
    assert!(lines[1].ends_with("exited with code 7"), "{}", outcome.err);
}

#[test]
fn a_job_that_goes_on_can_still_be_ended() {
    let text = "[ $RMPI_RANK = 0 ] && exit 3; sleep 60";
    let outcome = rmpiexec([
        "--keep-going",
        "--timeout",
        "3",
        "-n",
        "3",
        "sh",
        "-c",
        text,
    ])
    .run();
    outcome
        .expect(3)
        .reports("the time of 3 s is over")
        .reports("ended the remaining 2 ranks");
}
