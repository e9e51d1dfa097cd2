// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs of `mqs/examples` over several hosts. All of these are this machine: the remote shell is a script that
//! runs its command in a nearly empty environment. `cargo xtask test debuggers` installs rmpi and runs this.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const VARIABLE: &str = "RMPI_TEST_PREFIX";

/// A program of the installation.
fn installed(name: &str) -> Command {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Command::new(Path::new(&prefix).join("bin").join(name))
}

/// A temporary folder for this test.
fn folder() -> PathBuf {
    let name = std::thread::current().name().unwrap().replace(':', "_");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("over_hosts")
        .join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/{name}.c"));
    let program = folder().join(name);
    let mut compile = installed("rmpicc");
    let compiled = compile.arg("-o").arg(&program).arg(source).status();
    assert!(compiled.unwrap().success(), "{name}");
    program
}

/// A running job, killed on drop.
struct Job(Child);

impl Job {
    /// Starts a job with a script around each rank; in the script, `$0` is the program.
    fn start(hosts: &str, script: &str, program: &Path) -> Self {
        let shell = folder().join("rsh");
        let text = "#!/bin/sh\nshift\ncd / && exec env -i HOME=/ PATH=/usr/bin:/bin sh -c \"$*\"\n";
        fs::write(&shell, text).unwrap();
        fs::set_permissions(&shell, PermissionsExt::from_mode(0o755)).unwrap();
        let mut start = installed("rmpiexec");
        start.arg("--launcher").arg(shell);
        start
            .args(["--host", hosts, "sh", "-c", script])
            .arg(program);
        Self(start.stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Repeats `rmpi-queues` until its output contains this line.
    fn wait_for(&self, expected: &str) -> String {
        let since = Instant::now();
        loop {
            let output = query(&self.pid(), &[]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains(expected) {
                return text;
            }
            let wrong = String::from_utf8_lossy(&output.stderr);
            assert!(
                since.elapsed() < PATIENCE,
                "missing: {expected}\n{text}{wrong}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&query(&self.pid(), &["--json"]).stdout).unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0.id().cast_signed());
        // The job may have ended already.
        let _ = kill(pid, Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

fn query(pid: &str, arguments: &[&str]) -> Output {
    let mut query = installed("rmpi-queues");
    query.args(arguments).arg(pid).output().unwrap()
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
    line.unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn the_verdict_covers_all_hosts_and_names_them() {
    let job = Job::start("a:2,b:2", "exec \"$0\"", &compile("receive_first"));
    let text = job.wait_for("deadlock: none of the 4 ranks can ever go on");
    for expected in [
        "ranks wait in a circle, each for the next: 0 -> 3 -> 2 -> 1 -> 0",
        "\n  a: ranks 0 and 1\n  b: ranks 2 and 3\n",
        " on host b)",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert_eq!(query(&job.pid(), &[]).status.code(), Some(3));
    let json = job.json();
    let hosts: Vec<&Value> = (0..4).map(|rank| &json["ranks"][rank]["host"]).collect();
    assert_eq!(hosts, ["a", "a", "b", "b"]);
    assert_eq!(json["unseen"], Value::Null);
    // The pid of a rank stands for its whole job, since the job's launcher is on this machine.
    let rank = json["ranks"][2]["pid"].to_string();
    let text = String::from_utf8(query(&rank, &[]).stdout).unwrap();
    assert!(text.starts_with("deadlock: none of the 4 ranks"), "{text}");
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn ended_ranks_on_other_hosts_are_detected() {
    let script = "[ $RMPI_RANK = 1 ] || [ $RMPI_RANK = 2 ] || exec \"$0\"";
    let job = Job::start("a,b,c:2", script, &compile("receive_first"));
    let text = job.wait_for("rank 3 waits for rank 2, which has ended");
    assert!(
        text.starts_with("deadlock: ranks 0 and 3 of 4 can never go on"),
        "{text}"
    );
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn a_remote_rank_before_mpi_init_prevents_a_verdict() {
    let script = "[ $RMPI_RANK = 2 ] && sleep 1000; exec \"$0\"";
    let job = Job::start("a:2,b:1", script, &compile("receive_first"));
    let text = job.wait_for("no verdict: ranks 0 and 1 wait; rank 2 was not looked at");
    assert!(!text.contains("on host b was not"), "{text}");
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn an_unresponsive_host_is_named_and_prevents_a_verdict() {
    let job = Job::start("a:2,b:2", "exec \"$0\"", &compile("receive_first"));
    job.wait_for("deadlock: ");
    let rank = job.json()["ranks"][3]["pid"].as_u64().unwrap();
    let daemon = parent(u32::try_from(rank).unwrap());
    let daemon = Pid::from_raw(daemon.cast_signed());
    kill(daemon, Signal::SIGSTOP).unwrap();
    let (json, text) = (job.json(), query(&job.pid(), &[]));
    kill(daemon, Signal::SIGCONT).unwrap();
    assert_eq!(json["verdict"]["kind"], "no_verdict");
    assert_eq!(json["unseen"][0]["ranks"], json!([2, 3]));
    let text = String::from_utf8(text.stdout).unwrap();
    let expected = "  ranks 2 and 3 on host b were not looked at: there was no answer within ";
    assert!(text.contains(expected), "{text}");
    job.wait_for("deadlock: ");
}

const PATIENCE: Duration = Duration::from_secs(60);
