// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs over several hosts, all of which are this machine. The remote shell is a script that runs the command
//! in a nearly empty environment, as `sshd` does. Stage `hosts` tests what needs real hosts: networks, power loss, and
//! pids that differ between hosts.
#![allow(clippy::unwrap_used)]

mod common;
use common::lab::Lab;
use common::{Job, Running, parent_of, rmpiexec, send, until};
use launcher::CpuList;
use nix::sys::signal::Signal;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The processes of a job that have this name in the kernel, once there are at least `count` of them.
fn named(running: &Running, name: &str, count: usize) -> Vec<u32> {
    until("the processes are there", || {
        let is_called = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            text.trim() == name
        };
        let found: Vec<u32> = running.processes().into_iter().filter(is_called).collect();
        (found.len() >= count).then_some(found)
    })
}

#[test]
fn ranks_on_hosts_get_their_numbers_and_environment() {
    let text = "echo $RMPI_RANK/$RMPI_SIZE $RMPI_LOCAL_RANK/$RMPI_LOCAL_SIZE $HOSTNAME $(pwd)";
    let lab = Lab::new();
    let mut job = lab.script("a:2,b", text);
    job.command.env("HOSTNAME", "front").current_dir("/usr");
    let outcome = job.run().expect(0);
    let expected = ["0/3 0/2 a /usr", "1/3 1/2 a /usr", "2/3 0/1 b /usr"];
    assert_eq!(sorted(&outcome.out), expected);
    assert_eq!(outcome.err, "");
}

#[test]
fn arguments_and_variables_reach_remote_ranks_unchanged() {
    let lab = Lab::new();
    let text = "printf '<%s>' \"$@\" \"$ODD\" \"$BIG\" | md5sum";
    let arguments = ["", "a b", "q'u\"o", "new\nline", "$HOME", "*", "\\"];
    let run = |mut job: Job| {
        job.command
            .env("ODD", "x y\n'z")
            .env("BIG", "b".repeat(100_000));
        job.run().expect(0).out
    };
    let all: Vec<&str> = ["-n", "1", "sh", "-c", text, "sh"]
        .into_iter()
        .chain(arguments)
        .collect();
    assert_eq!(run(lab.job("a", &all)), run(rmpiexec(&all)));
}

#[test]
fn ten_thousand_arguments_reach_remote_ranks() {
    let lab = Lab::new();
    let many: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    let mut arguments = vec!["sh", "-c", "echo $#", "sh"];
    arguments.extend(many.iter().map(String::as_str));
    let outcome = lab.job("a,b", &arguments).run().expect(0);
    assert_eq!(outcome.out, "10000\n10000\n");
}

#[test]
fn the_first_rank_that_fails_is_named_with_its_host() {
    let lab = Lab::new();
    let text = "[ $RMPI_RANK = 2 ] && exit 7; sleep 100";
    lab.script("a:2,b:2", text)
        .run()
        .expect(7)
        .reports("rank 2 on host b (pid ")
        .reports("exited with code 7")
        .reports("ended the remaining 3 ranks");
}

#[test]
fn unreachable_hosts_are_named_together_before_any_start() {
    let lab = Lab::new();
    let mark = lab.0.path().join("started");
    let text = format!("touch {}", mark.display());
    lab.script("a,bad1,b,bad2", &text)
        .run()
        .expect(1)
        .reports("host bad1: cannot be reached: ")
        .reports("rsh: unknown host bad2")
        .reports("nothing was started: 2 of 4 hosts are not ready");
    lab.job("a,b", &["./not-there"])
        .run()
        .expect(127)
        .reports("hosts a, b: no program ");
    lab.job("a,b", &["-wdir", "/not/there", "true"])
        .run()
        .expect(1)
        .reports("hosts a, b: cannot start ranks in /not/there");
    lab.job("a", &["--prefix", "/not/there", "true"])
        .run()
        .expect(1)
        .reports("host a: there is no /not/there/bin/rmpiexec: install rmpi there");
    rmpiexec(["--launcher", "/not/there", "--host", "a", "true"])
        .run()
        .expect(1)
        .reports("/not/there cannot be started: no such file or directory");
    rmpiexec(["--launcher", "'", "--host", "a", "true"])
        .run()
        .expect(2)
        .reports("--launcher: a ' is not closed");
    assert!(!mark.exists());
}

#[test]
fn a_host_with_an_unexpected_greeting_is_named() {
    let lab = Lab::new();
    let shell = lab.0.path().join("rsh");
    for (answer, expected) in [
        (
            "head -c 2000000 /dev/zero; sleep 100",
            "something else than ",
        ),
        (
            "printf '\\0rmpi-shepherd 0.0.1\\n'; sleep 100",
            "rmpi 0.0.1 is in ",
        ),
        ("exit 0", "ends with code 0"),
    ] {
        fs::write(&shell, format!("#!/bin/sh\n{answer}\n")).unwrap();
        lab.job("a", &["true"]).run().expect(1).reports(expected);
    }
}

#[test]
fn hosts_without_ranks_are_not_contacted() {
    let lab = Lab::new();
    let file = lab.0.path().join("hosts");
    fs::write(&file, "a\nb\nc\n").unwrap();
    for hosts in ["b,a,c", "a,b,c", "c,b,a"] {
        let shell = lab.0.path().join("rsh");
        let arguments = [
            "--launcher",
            shell.to_str().unwrap(),
            "-f",
            file.to_str().unwrap(),
            "--host",
            hosts,
            "-n",
            "1",
            "sh",
            "-c",
            "echo $HOSTNAME",
        ];
        let outcome = rmpiexec(arguments).run().expect(0);
        assert_eq!(outcome.out.trim(), &hosts[..1]);
    }
}

#[test]
fn a_host_lost_during_startup_is_named() {
    let lab = Lab::new();
    for role in ["rmpid", "rmpi-shepherd"] {
        let job = lab.job("a,slow", &["sleep", "100"]).start();
        // The shepherd is not searched by its name, because a child that has not yet become the remote shell of the
        // other host is still called `rmpi-shepherd`.
        let daemon = named(&job, "rmpid", 1)[0];
        let is_daemon = role == "rmpid";
        let victim = if is_daemon {
            daemon
        } else {
            parent_of(daemon).unwrap()
        };
        send(victim, Signal::SIGKILL);
        let outcome = job.finish();
        assert_ne!(outcome.code, Some(0), "{}", outcome.err);
        assert!(outcome.err.contains("host a: "), "{role}: {}", outcome.err);
        assert!(
            outcome
                .err
                .contains("nothing was started: 1 of 2 hosts is not ready"),
            "{}",
            outcome.err
        );
    }
}

#[test]
fn the_timeout_includes_startup_and_old_output_is_kept_until_start() {
    let lab = Lab::new();
    let folder = lab.0.path().join("out");
    fs::create_dir(&folder).unwrap();
    let old = folder.join("rank.0.out");
    fs::write(&old, "of an earlier job").unwrap();
    let output = folder.to_str().unwrap();
    lab.job("a,slow", &["--output", output, "--timeout", "0.5", "true"])
        .run()
        .expect(124)
        .reports("the time of 0.5 s is over, and host slow is not ready; nothing was started");
    assert_eq!(fs::read_to_string(&old).unwrap(), "of an earlier job");
    lab.job("a", &["--output", output, "echo", "new"])
        .run()
        .expect(0);
    assert_eq!(fs::read_to_string(&old).unwrap(), "new\n");
}

#[test]
fn a_program_of_a_remote_host_is_not_searched_locally() {
    let lab = Lab::new();
    let shell = lab.0.path().join("rsh");
    let arguments = [
        "--launcher",
        shell.to_str().unwrap(),
        "--host",
        "localhost",
        "true",
        ":",
        "--host",
        "b",
        "/only/on/b",
    ];
    rmpiexec(arguments)
        .run()
        .expect(127)
        .reports("host b: no program /only/on/b");
}

#[test]
fn remote_shells_do_not_inherit_the_parent_connection() {
    let lab = Lab::new();
    let hosts: Vec<String> = (1..=40).map(|number| format!("n{number}")).collect();
    let text = "ls /proc/self/fd | wc -l";
    let outcome = lab.script(&hosts.join(","), text).run().expect(0);
    let counts: Vec<&str> = sorted(&outcome.out);
    assert_eq!(counts.first(), counts.last());
}

#[test]
fn input_and_output_of_all_hosts_arrive_whole() {
    let lab = Lab::new();
    let folder = lab.0.path();
    let from = folder.join("from");
    fs::write(&from, vec![b'a'; 3 << 20]).unwrap();
    let text = "[ $RMPI_RANK = 2 ] && wc -c; i=0; while [ $i -lt 20 ]; do head -c 262143 /dev/zero | tr '\\0' x; echo; i=$((i + 1)); done";
    let mut job = lab.job("a:2,b:2", &["--stdin", "2", "sh", "-c", text]);
    job.command
        .stdin(Stdio::from(fs::File::open(&from).unwrap()));
    let outcome = job.run().expect(0);
    assert_eq!(outcome.out.len(), 4 * 20 * 262_144 + 8);
    assert_eq!(sorted(&outcome.out)[0], "3145728");
}

#[test]
fn signals_reach_the_ranks_of_all_hosts() {
    let lab = Lab::new();
    let text = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    let job = lab.script("a:2,b:2", text).start();
    named(&job, "sleep", 4);
    job.signal(Signal::SIGUSR1);
    let outcome = job.finish().expect(0);
    assert_eq!(outcome.out.matches("got it").count(), 4);
    let job = lab.script("a:2,b:2", "sleep 100").start();
    named(&job, "sleep", 4);
    job.signal(Signal::SIGTERM);
    job.finish().expect(143).reports("SIGTERM received");
}

#[test]
fn two_programs_run_on_their_own_hosts() {
    let lab = Lab::new();
    let shell = lab.0.path().join("rsh");
    let text = "echo $0 $RMPI_RANK $HOSTNAME";
    let arguments = [
        "--launcher",
        shell.to_str().unwrap(),
        "--host",
        "a",
        "-n",
        "2",
        "sh",
        "-c",
        text,
        "one",
        ":",
        "--host",
        "b",
        "-n",
        "1",
        "sh",
        "-c",
        text,
        "two",
    ];
    let outcome = rmpiexec(arguments).run().expect(0);
    assert_eq!(sorted(&outcome.out), ["one 0 a", "one 1 a", "two 2 b"]);
}

#[test]
fn report_shows_the_facts_of_each_host() {
    let lab = Lab::new();
    let outcome = lab.job("a,b", &["--report", "true"]).run().expect(0);
    let is_reported = |name: &str| {
        let begin = format!("rmpiexec: host {name} calls itself ");
        let mut lines = outcome.err.lines();
        lines.any(|line| line.starts_with(&begin) && line.contains("; a process may lock "))
    };
    assert!(is_reported("a") && is_reported("b"), "{}", outcome.err);
}

#[test]
fn host_names_of_one_machine_divide_its_cores() {
    let lab = Lab::new();
    let mask = "grep Cpus_allowed_list /proc/self/status";
    let cpus = CpuList::allowed().count();
    if cpus < 2 {
        return;
    }
    let arguments = ["--report-bindings", "--bind-to", "hwthread", "-n", "2"];
    let arguments: Vec<&str> = arguments.into_iter().chain(["sh", "-c", mask]).collect();
    let outcome = lab.job("a,b", &arguments).run().expect(0);
    let masks = sorted(&outcome.out);
    assert!(masks[0] != masks[1], "both on the same CPU: {masks:?}");
    outcome
        .reports("hosts a, b are one machine: their ranks share out its CPUs")
        .reports("host a: 1 rank, beside 1 rank of other hosts, on ")
        .reports("host b: rank 1 is bound to CPU ");
    let all = lab.job("a:*,b:*", &["sh", "-c", "echo $RMPI_SIZE"]);
    let outcome = all.run().expect(0);
    let sizes: Vec<&str> = outcome.out.lines().collect();
    assert!(sizes.len() <= cpus, "more ranks than CPUs: {sizes:?}");
}

#[test]
fn forty_hosts_make_a_tree_of_two_levels() {
    let lab = Lab::new();
    let hosts: Vec<String> = (1..=40).map(|number| format!("n{number}")).collect();
    let outcome = lab
        .script(&hosts.join(","), "echo $HOSTNAME")
        .run()
        .expect(0);
    let mut expected: Vec<&str> = hosts.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(sorted(&outcome.out), expected);
}

#[test]
fn killing_any_role_ends_the_job_and_leaves_nothing() {
    let lab = Lab::new();
    for (role, count, expected) in [
        ("rmpid", 2, "its node daemon (pid "),
        ("rmpi-shepherd", 3, "the job is ended"),
        ("sleep", 2, "was killed by signal 9"),
    ] {
        for which in 0..count {
            let job = lab.job("a,b", &["sleep", "100"]).start();
            named(&job, "sleep", 2);
            let mut found = named(&job, role, count);
            found.sort_unstable();
            send(found[which], Signal::SIGKILL);
            let outcome = job.finish();
            assert_ne!(outcome.code, Some(0), "{role} {which}");
            let is_root = role == "rmpi-shepherd" && which == 0;
            let expected = if is_root {
                "the shepherd (pid "
            } else {
                expected
            };
            assert!(
                outcome.err.contains(expected),
                "{role} {which}: {}",
                outcome.err
            );
        }
    }
}

#[test]
fn nothing_survives_a_kill_of_the_front() {
    let lab = Lab::new();
    let job = lab.job("a:2,b:2", &["sleep", "100"]).start();
    named(&job, "sleep", 4);
    job.signal(Signal::SIGKILL);
    until("all are gone", || job.processes().is_empty().then_some(()));
    assert_eq!(job.finish().code, None);
}

#[test]
fn a_frozen_host_is_lost_after_the_heartbeat_timeout() {
    let lab = Lab::new();
    let job = lab
        .job("a,b", &["--heartbeat", "0.1,1", "sleep", "100"])
        .start();
    named(&job, "sleep", 2);
    let shepherds = named(&job, "rmpi-shepherd", 3);
    let frozen = shepherds.into_iter().max().unwrap();
    let start = Instant::now();
    send(frozen, Signal::SIGSTOP);
    let mut job = job;
    job.wait_for_text("it has sent nothing for 1 s");
    assert!(start.elapsed() >= Duration::from_millis(900));
    assert_eq!(job.finish().code, Some(1));
}

#[test]
fn a_stopped_front_loses_no_host() {
    let lab = Lab::new();
    let job = lab
        .job(
            "a,b",
            &["--heartbeat", "0.1,0.5", "sh", "-c", "sleep 2; echo done"],
        )
        .start();
    named(&job, "sleep", 2);
    job.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(1500));
    job.signal(Signal::SIGCONT);
    assert_eq!(job.finish().expect(0).out, "done\ndone\n");
}

#[test]
fn keep_going_survives_the_loss_of_a_host() {
    let lab = Lab::new();
    let text = "trap '' TERM; sleep 1; echo $RMPI_RANK";
    let job = lab.job("a,b", &["--keep-going", "sh", "-c", text]).start();
    named(&job, "sleep", 2);
    let mut daemons = named(&job, "rmpid", 2);
    daemons.sort_unstable();
    send(daemons[1], Signal::SIGKILL);
    let outcome = job.finish();
    assert!(outcome.err.contains("the others go on"), "{}", outcome.err);
    assert_eq!((outcome.out.lines().count(), outcome.code), (1, Some(137)));
}
