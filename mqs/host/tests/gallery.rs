// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of `mqs/examples`: each program is run as a user would run it, and the output of `rmpi-queues` must
//! contain the `expected:` lines of the program's head, and none of its `unexpected:` lines. `cargo xtask test
//! debuggers` installs rmpi and runs this.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use queues::standstill::observe_with;
use queues::verdict::verdict;
use queues::waits::waits;
use queues::{InspectionSettings, ancestor};

const VARIABLE: &str = "RMPI_TEST_PREFIX";

/// A program of the installation.
fn installed(name: &str) -> Command {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Command::new(Path::new(&prefix).join("bin").join(name))
}

/// An example, compiled.
struct Example {
    program: PathBuf,
    text: String,
}

impl Example {
    fn compile(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gallery");
        fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/{name}.c"));
        let program = folder.join(name);
        let mut compile = installed("rmpicc");
        compile.args(["-Wall", "-Wextra", "-Werror", "-o"]);
        // Each test compiles to a file of its own and then renames it: several tests use the same program, and another
        // test may be starting that program.
        let test = std::thread::current();
        let fresh = folder.join(format!("{name}-{}", test.name().unwrap_or_default()));
        let compiled = compile.arg(&fresh).arg(&source).status().unwrap();
        assert!(compiled.success(), "{name}");
        fs::rename(fresh, &program).unwrap();
        Self {
            program,
            text: fs::read_to_string(source).unwrap(),
        }
    }

    /// The lines of the program's head that begin with `directive`, without `directive`.
    fn directives(&self, directive: &str) -> Vec<&str> {
        let lines = self.text.lines();
        let found = lines.filter_map(|line| line.strip_prefix("// ")?.strip_prefix(directive));
        found.map(str::trim_start).collect()
    }

    fn start(&self) -> Job {
        let mut start = installed("rmpiexec");
        start
            .arg("-n")
            .arg(self.directives("ranks:")[0])
            .arg(&self.program);
        Job(start.stderr(Stdio::null()).spawn().unwrap())
    }
}

/// A running job, killed on drop.
struct Job(Child);

impl Job {
    fn query(&self, arguments: &[&str]) -> String {
        let mut query = installed("rmpi-queues");
        let output = query
            .args(arguments)
            .arg(self.0.id().to_string())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Repeats `rmpi-queues` until its output contains all lines.
    fn wait_for(&self, expected: &[&str], arguments: &[&str]) -> String {
        let since = Instant::now();
        loop {
            let text = self.query(arguments);
            let missing = expected.iter().find(|line| !text.contains(**line));
            match missing {
                None => return text,
                Some(line) => assert!(
                    since.elapsed() < PATIENCE,
                    "missing: {line}\noutput:\n{text}"
                ),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
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

fn check(name: &str) {
    let example = Example::compile(name);
    let (expected, unexpected) = (
        example.directives("expected:"),
        example.directives("unexpected:"),
    );
    assert!(
        !expected.is_empty() || !unexpected.is_empty(),
        "{name} has no directives"
    );
    let job = example.start();
    job.wait_for(&expected, &[]);
    for _ in 0..if unexpected.is_empty() { 0 } else { QUERIES } {
        let text = job.query(&[]);
        for line in &unexpected {
            assert!(!text.contains(line), "not expected: {line}\n{text}");
        }
    }
}

macro_rules! gallery {
    ($($name:ident)*) => {
        $(
            #[test]
            #[ignore = "needs an installation: cargo xtask test debuggers"]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_example_has_a_test() {
            let mut known = [$(stringify!($name)),*];
            known.sort_unstable();
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
            let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            let mut there: Vec<String> =
                files.map(|it| it.file_stem().unwrap().to_string_lossy().into_owned()).collect();
            there.sort_unstable();
            assert_eq!(there, known);
        }
    };
}

gallery! {
    computing crossed_collectives crossed_order different_roots idle_workers late_threads missing_rank not_started nothing_sent other_collective ping_pong probe receive_first
    send_first short_bcast slow some_of_many started_again starved threads to_itself too_long two_roots unequal_sizes waitall waitany wrong_communicator wrong_source wrong_tag
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn json_and_svg_contain_the_verdict() {
    let example = Example::compile("wrong_tag");
    let job = example.start();
    job.wait_for(&["deadlock: "], &[]);
    let text = job.query(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["verdict"]["kind"], "deadlock");
    assert_eq!(json["verdict"]["stuck"], serde_json::json!([0, 1]));
    assert_eq!(json["verdict"]["circles"], serde_json::json!([[0, 1]]));
    let near = &json["waits"]["states"][1]["waits"][0]["pending"][0]["near"][0];
    assert_eq!((&near["other"], &near["tag"]), (&"tag".into(), &8.into()));
    assert_eq!(
        json["ranks"][0]["communicators"][0]["name"],
        "MPI_COMM_WORLD"
    );
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gallery/waits.svg");
    job.query(&["--graph", picture.to_str().unwrap()]);
    let svg = fs::read_to_string(picture).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.contains("none of the 2 ranks"),
        "{svg}"
    );
    assert_eq!(
        svg.matches("<path class=\"a c\"").count(),
        2,
        "an arrow each: {svg}"
    );
}

/// The first line and the exit code.
fn headline_and_code(pid: &str) -> (String, Option<i32>) {
    let output = installed("rmpi-queues").arg(pid).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().to_owned();
    (line, output.status.code())
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn any_pid_of_a_job_selects_the_whole_job() {
    let program = Example::compile("receive_first").program;
    let mut start = installed("rmpiexec");
    start.args(["-n", "3", "sh", "-c", "\"$0\"; true"]);
    let job = Job(start.arg(program).stderr(Stdio::null()).spawn().unwrap());
    let expected = "deadlock: none of the 3 ranks can ever go on";
    job.wait_for(&[expected], &[]);
    let json: serde_json::Value = serde_json::from_str(&job.query(&["--json"])).unwrap();
    let parent = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
        line.unwrap().to_owned()
    };
    let rank = json["ranks"][1]["pid"].to_string();
    let script = parent(&rank);
    let daemon = parent(&script);
    for pid in [job.0.id().to_string(), daemon, script, rank] {
        assert_eq!(
            headline_and_code(&pid),
            (expected.to_owned(), Some(3)),
            "{pid}"
        );
    }
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn exit_codes_of_deadlock_no_deadlock_and_no_verdict_differ() {
    for (name, headline, kind, code) in [
        ("receive_first", "deadlock: ", "deadlock", 3),
        ("computing", "no deadlock: ", "waiting", 0),
        ("short_bcast", "no verdict: ", "no_verdict", 4),
    ] {
        let job = Example::compile(name).start();
        job.wait_for(&[headline], &[]);
        let output = installed("rmpi-queues")
            .args(["--json", &job.0.id().to_string()])
            .output()
            .unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["verdict"]["kind"], kind, "{name}");
        assert_eq!(output.status.code(), Some(code), "{name}");
        assert_eq!(
            headline_and_code(&job.0.id().to_string()).1,
            Some(code),
            "{name}"
        );
    }
    let usage = installed("rmpi-queues").arg("--nothing").output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn an_ended_job_is_reported_as_ended() {
    let mut start = installed("rmpiexec");
    let mut job = start.args(["-n", "2", "true"]).spawn().unwrap();
    job.wait().unwrap();
    let pid = job.id().to_string();
    let output = installed("rmpi-queues").arg(&pid).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        format!("rmpi-queues: there is no process {pid} any more: the job has probably ended\n")
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn a_rank_before_mpi_init_is_not_reported_as_ended() {
    let program = Example::compile("receive_first").program;
    let mut start = installed("rmpiexec");
    let script = "[ $RMPI_RANK = 0 ] || sleep 100; exec \"$0\"";
    start.args(["-n", "2", "sh", "-c", script]);
    let job = Job(start.arg(program).stderr(Stdio::null()).spawn().unwrap());
    let expected = "no verdict: rank 0 waits; rank 1 was not looked at";
    job.wait_for(&[expected], &[]);
    for _ in 0..QUERIES / 2 {
        assert_eq!(
            headline_and_code(&job.0.id().to_string()),
            (expected.to_owned(), Some(4))
        );
    }
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn under_ptrace_scope_1_the_launcher_passes_rank_memory() {
    let job = Example::compile("receive_first").start();
    job.wait_for(&["deadlock: "], &[]);
    let settings = InspectionSettings {
        as_unrelated: true,
        ..InspectionSettings::default()
    };
    let seen = observe_with(job.0.id(), &settings).unwrap();
    let verdict = verdict(&waits(&seen.ranks, seen.coverage), &seen.doubts);
    assert_eq!(verdict.circles, [[0, 2, 1]], "{verdict:?}");
    let memory = ancestor::memory(seen.ranks[0].pid).unwrap();
    assert!(memory.write_at(&[0], 0x1000).is_err(), "it is for reading");
    let why = ancestor::memory(job.0.id()).unwrap_err().to_string();
    assert_eq!(why, "it was not started by rmpiexec");
}

/// Time for all ranks to reach their waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of runs of `rmpi-queues` on a program without a deadlock.
const QUERIES: usize = 12;
