// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the cases in which the installed `rmpiexec` reports a standstill, and of those in which it does not. `cargo
//! xtask test debuggers` installs it and runs these tests.
#![allow(clippy::unwrap_used)]

mod common;
use common::{Job, Outcome, Running, lab::Lab, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VARIABLE: &str = "RMPI_TEST_PREFIX";

/// A program that behaves according to its argument. `mark` is a file for which it waits outside of MPI.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void wait_for_mark(int busy)
{
    while (access("mark", F_OK) != 0)
        if (!busy)
            usleep(1000);
}

static void *late_send(void *unused)
{
    wait_for_mark(1);
    MPI_Send(0, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    return unused;
}

int main(int argc, char **argv)
{
    int rank, size, level, flag;
    const char *what = argv[argc - 1];
    pthread_t thread;
    MPI_Init_thread(NULL, NULL, strstr(what, "threads") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size;
    if (!strcmp(what, "computes") && rank == 0)
        wait_for_mark(1);
    if (!strcmp(what, "sleeps") && rank == 0)
        wait_for_mark(0);
    if (!strcmp(what, "tests") && rank == 0)
        while (access("mark", F_OK) != 0)
            MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (!strcmp(what, "stops") && rank == 0)
        raise(SIGSTOP);
    if (!strcmp(what, "threads, one works")) {
        if (rank == 1)
            pthread_create(&thread, NULL, late_send, NULL);
        if (rank == 0)
            MPI_Recv(0, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (!strncmp(what, "goes on", 7)) {
        MPI_Request request;
        MPI_Irecv(0, 0, MPI_BYTE, 0, 5, MPI_COMM_SELF, &request);
        for (int i = 0; i < 3; i++) {
            if (rank == 0)
                usleep(500000);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (!strcmp(what, "receives") || !strcmp(what, "threads") || !strcmp(what, "goes on, then stands"))
        MPI_Recv(0, 0, MPI_BYTE, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(what, "probes"))
        MPI_Probe(next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(what, "sends"))
        MPI_Ssend(0, 0, MPI_BYTE, next, 0, MPI_COMM_WORLD);
    if (!strcmp(what, "collects") && rank == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(what, "collects") && rank != 0)
        MPI_Recv(0, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(what, "leaves") && rank != 0)
        MPI_Recv(0, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(what, "threads, one works") && rank == 1)
        pthread_join(thread, NULL);
    MPI_Finalize();
    return 0;
}
"#;

const NOTICE: &str = "no rank has made progress for 1 s";

/// Time during which no report may appear: several times the time after which a standstill is reported.
const WHILE: Duration = Duration::from_millis(3500);

fn installed(name: &str) -> PathBuf {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Path::new(&prefix).join(name)
}

/// A folder with the program.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.c"), PROGRAM).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-Wall", "-pthread", "-o", "program", "program.c"]);
    assert!(
        compile
            .current_dir(folder.path())
            .status()
            .unwrap()
            .success()
    );
    folder
}

/// A job of `ranks` ranks that run the program with argument `what`. A standstill is reported after 1 s; the job has a
/// timeout.
fn job(folder: &Path, ranks: u32, what: &str) -> Job {
    let mut command = Command::new(installed("bin/rmpiexec"));
    command.args(["--timeout", "60"]);
    command.args(["-n", &ranks.to_string(), "./program", what]);
    command.current_dir(folder).env("RMPI_STANDSTILL", "1");
    Job::of(command)
}

/// Ends a job that would not end by itself.
fn end(running: Running) -> Outcome {
    running.signal(Signal::SIGTERM);
    running.finish().expect(143)
}

fn notices(outcome: &Outcome) -> usize {
    outcome.err.matches("no rank has made progress").count()
}

/// Checks that the standstill of each of these jobs is reported, and reported only once.
fn stand_still(jobs: Vec<Job>) {
    let mut running: Vec<Running> = jobs.into_iter().map(Job::start).collect();
    for job in &mut running {
        job.wait_for_text(NOTICE);
    }
    std::thread::sleep(WHILE);
    for job in running {
        let outcome = end(job);
        assert_eq!(notices(&outcome), 0, "again: {}", outcome.err);
    }
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn a_deadlock_is_reported_once_with_the_rmpi_queues_command() {
    let folder = folder();
    let mut running = job(folder.path(), 3, "receives").start();
    let show = format!("{NOTICE}; to see who waits for what: ");
    running.wait_for_text(&show);
    let path = installed("bin/rmpi-queues");
    running.wait_for_text(&format!("{} {}\n", path.display(), running.pid()));
    let output = Command::new(path).arg(running.pid().to_string()).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(output.contains("from rank 1, tag 0"), "{output}");
    end(running);
}

/// All hosts are this machine. The command in the report shows the ranks of both hosts.
#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn a_deadlock_over_hosts_is_reported_once() {
    let (folder, lab) = (folder(), Lab::new());
    let mut command = Command::new(installed("bin/rmpiexec"));
    command.args(["--timeout", "60", "--launcher"]);
    command.arg(lab.0.path().join("rsh"));
    command.args(["--host", "a:2,b:2", "./program", "receives"]);
    command
        .current_dir(folder.path())
        .env("RMPI_STANDSTILL", "1");
    let mut running = Job::of(command).start();
    running.wait_for_text(&format!("{NOTICE}; to see who waits for what: "));
    let path = installed("bin/rmpi-queues");
    running.wait_for_text(&format!("{} {}\n", path.display(), running.pid()));
    let output = Command::new(path).arg(running.pid().to_string()).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let expected = "deadlock: none of the 4 ranks can ever go on";
    assert!(output.starts_with(expected), "{output}");
    std::thread::sleep(WHILE);
    let outcome = end(running);
    assert_eq!(notices(&outcome), 0, "again: {}", outcome.err);
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn a_deadlock_in_any_blocking_call_is_detected() {
    let folder = folder();
    let ways = ["probes", "sends", "collects", "leaves", "threads"];
    let mut jobs: Vec<Job> = ways.map(|what| job(folder.path(), 3, what)).into();
    jobs.extend([1, 12].map(|ranks| job(folder.path(), ranks, "receives")));
    jobs.extend(["spin", "yield"].map(|way| {
        let mut job = job(folder.path(), 2, "receives");
        job.command.env("RMPI_WAIT", way);
        job
    }));
    stand_still(jobs);
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn one_working_rank_prevents_a_deadlock_report() {
    let folder = folder();
    let ways = ["computes", "sleeps", "tests", "threads, one works"];
    let running = ways.map(|what| job(folder.path(), 3, what).start());
    std::thread::sleep(WHILE);
    fs::write(folder.path().join("mark"), "").unwrap();
    for (job, what) in running.into_iter().zip(ways) {
        assert_eq!(notices(&job.finish().expect(0)), 0, "{what}");
    }
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn progress_restarts_the_deadlock_timeout() {
    let folder = folder();
    let outcome = job(folder.path(), 3, "goes on").run().expect(0);
    assert_eq!(notices(&outcome), 0, "{}", outcome.err);
    stand_still(vec![job(folder.path(), 3, "goes on, then stands")]);
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn stopped_and_traced_ranks_are_not_reported_as_deadlocked() {
    let folder = folder();
    let running = job(folder.path(), 2, "stops").start();
    std::thread::sleep(WHILE);
    for pid in running.wait_for(2, "./program") {
        // This fails if the process has ended, as the second process may after the first one was continued.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGCONT);
    }
    assert_eq!(notices(&running.finish().expect(0)), 0);

    let mut running = job(folder.path(), 2, "receives").start();
    let ranks = running.wait_for(2, "./program");
    let mark = folder.path().join("mark");
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-p", &ranks[0].to_string()]);
    let wait = format!("shell until [ -e {} ]; do sleep 0.1; done", mark.display());
    gdb.args([
        "-ex",
        "set scheduler-locking off",
        "-ex",
        "continue&",
        "-ex",
        &wait,
        "-ex",
        "interrupt",
        "-ex",
        "detach",
    ]);
    gdb.args(["-iex", "set non-stop on"]);
    gdb.stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut gdb = gdb.spawn().unwrap();
    let traced = || {
        let status = fs::read_to_string(format!("/proc/{}/status", ranks[0])).unwrap();
        let is_traced = !status.contains("TracerPid:\t0\n");
        is_traced.then_some(())
    };
    until("gdb has the rank", traced);
    std::thread::sleep(WHILE);
    fs::write(mark, "").unwrap();
    // The rank has waited for long, so the report comes as soon as gdb has detached. The stop that gdb's `interrupt`
    // has requested may come after the detach, so the rank is then continued below.
    gdb.wait().unwrap();
    let stopped = Pid::from_raw(ranks[0].cast_signed());
    until("the rank goes on", || {
        let _ = kill(stopped, Signal::SIGCONT);
        let stat = fs::read_to_string(format!("/proc/{}/stat", ranks[0])).unwrap();
        (!stat.contains(") T ")).then_some(())
    });
    running.wait_for_text(NOTICE);
    end(running);
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn deadlock_report_is_absent_if_disabled_or_without_mpi() {
    let folder = folder();
    let mut off = job(folder.path(), 2, "receives");
    off.command.env("RMPI_STANDSTILL", "0");
    let running = off.start();
    std::thread::sleep(WHILE);
    assert_eq!(notices(&end(running)), 0);
    let mut other = Command::new(installed("bin/rmpiexec"));
    other
        .args(["-n", "2", "sleep", "3.5"])
        .env("RMPI_STANDSTILL", "1");
    assert_eq!(notices(&Job::of(other).run().expect(0)), 0);
}
