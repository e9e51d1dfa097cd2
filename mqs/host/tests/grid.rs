// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a job for each collective without a mistake, and a job for each mistake of one rank. Compares the verdict of
//! `rmpi-queues` with the outcome of the job. `cargo xtask test debuggers` installs rmpi and runs a sample;
//! `RMPI_TEST_GRID=all` runs every case, in about twenty minutes. `RMPI_TEST_GRID=bcast` runs the cases whose name
//! contains `bcast`; `RMPI_TEST_SEED` selects another sample.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const VARIABLE: &str = "RMPI_TEST_PREFIX";

/// A program of the installation.
fn installed(name: &str) -> Command {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Command::new(Path::new(&prefix).join("bin").join(name))
}

/// One job.
#[derive(Clone, Copy, Debug)]
struct Case {
    collective: &'static str,
    mistake: &'static str,
    ranks: usize,
    /// The rank that makes the mistake.
    wrong: usize,
    root: usize,
    count: usize,
    form: &'static str,
}

impl Case {
    fn name(&self) -> String {
        let Self {
            collective,
            mistake,
            ranks,
            wrong,
            root,
            count,
            form,
        } = self;
        format!(
            "{form} {collective} {mistake}, rank {wrong} of {ranks}, root {root}, {count} items"
        )
    }
}

/// Every case, in an order that the seed determines.
fn all() -> Vec<Case> {
    let pairs = COLLECTIVES
        .iter()
        .flat_map(|collective| MISTAKES.iter().map(move |mistake| (*collective, *mistake)));
    pairs.flat_map(|(it, mistake)| of(it, mistake)).collect()
}

/// Every case of a collective and a mistake; no case if the combination makes no sense.
fn of(collective: &'static str, mistake: &'static str) -> Vec<Case> {
    let rooted = ROOTED.contains(&collective);
    let sized = !SIZELESS.contains(&collective);
    let senseless = match mistake {
        "root" | "two" => !rooted,
        "short" | "long" => !sized,
        _ => false,
    };
    let counts = if sized { COUNTS } else { &COUNTS[..1] };
    let roots = if rooted { &[0, 1][..] } else { &[0] };
    let most = if senseless { 0 } else { 5 };
    let sizes = (2..=most).flat_map(|ranks| counts.iter().map(move |count| (ranks, *count)));
    let wrong_ranks = sizes.flat_map(|it| [0, it.0 - 1].map(|wrong| (it, wrong)));
    let with_roots = wrong_ranks.flat_map(|it| roots.iter().map(move |root| (it, *root)));
    let forms = with_roots.flat_map(|it| ["blocking", "nonblocking"].map(|form| (it, form)));
    forms
        .map(|((((ranks, count), wrong), root), form)| Case {
            collective,
            mistake,
            ranks,
            wrong,
            root,
            count,
            form,
        })
        .collect()
}

/// A sample of `most` cases, which the seed determines: first one case of each collective with each mistake, then a
/// second one of each, and so on.
fn sample(cases: Vec<Case>, seed: u64, most: usize) -> Vec<Case> {
    let mut numbered: Vec<(u64, Case)> = (0..).map(|at| mix(seed ^ mix(at))).zip(cases).collect();
    numbered.sort_by_key(|it| it.0);
    let mut known = std::collections::HashMap::new();
    let mut ranked: Vec<(usize, Case)> = Vec::new();
    for (_, case) in numbered {
        let seen: &mut usize = known.entry((case.collective, case.mistake)).or_default();
        ranked.push((*seen, case));
        *seen += 1;
    }
    ranked.sort_by_key(|it| it.0);
    ranked.into_iter().take(most).map(|it| it.1).collect()
}

/// The finalizer of splitmix64.
fn mix(number: u64) -> u64 {
    let it = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

/// A running job, killed on drop.
struct Job(Child);

impl Job {
    fn start(program: &Path, case: &Case) -> Self {
        let mut start = installed("rmpiexec");
        start.args(["-n", &case.ranks.to_string()]).arg(program);
        start.args([case.collective, case.mistake]);
        for number in [case.wrong, case.root, case.count] {
            start.arg(number.to_string());
        }
        let start = start.arg(case.form).stdout(Stdio::null());
        Self(start.stderr(Stdio::null()).spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// The answer of `rmpi-queues`; `None` if it gives no verdict code, as after the end of the job.
    fn query(&self) -> Option<Answer> {
        let mut query = installed("rmpi-queues");
        let output = query.arg(self.0.id().to_string()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let kind = match output.status.code() {
            Some(0) => Kind::NoDeadlock,
            Some(3) => Kind::Deadlock,
            Some(4) => Kind::NoVerdict,
            _ => return None,
        };
        Some(Answer { kind, text })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.has_ended() {
            let pid = Pid::from_raw(self.0.id().cast_signed());
            let _ = kill(pid, Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    NoDeadlock,
    Deadlock,
    NoVerdict,
}

/// An answer of `rmpi-queues`: exit code and output.
#[derive(Debug)]
struct Answer {
    kind: Kind,
    text: String,
}

/// The outcome of a job, with the last verdict on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Outcome {
    Ended,
    StandsStill(Kind),
}

/// Runs a job and checks the verdicts on it; a wrong verdict is an error.
fn check(program: &Path, case: &Case) -> Result<Outcome, String> {
    let mut job = Job::start(program, case);
    let since = Instant::now();
    let wrong =
        |what: &str, answer: &Answer| Err(format!("{}: {what}\n{}", case.name(), answer.text));
    let ends = matches!(case.mistake, "right" | "late");
    loop {
        let answer = job.query();
        let lasted = since.elapsed();
        match &answer {
            // After a verdict of deadlock the job must not end.
            Some(answer) if answer.kind == Kind::Deadlock => {
                while since.elapsed() < lasted + STAYS && !job.has_ended() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return match job.has_ended() || ends {
                    true => wrong("it was reported as a deadlock, and is none", answer),
                    false => Ok(Outcome::StandsStill(Kind::Deadlock)),
                };
            }
            _ if job.has_ended() => return Ok(Outcome::Ended),
            // Until this time has passed, the job may still progress.
            _ if lasted < if ends { ENDS } else { STANDS_STILL } => {}
            _ if ends => return Err(format!("{}: it has not ended", case.name())),
            Some(answer) if answer.kind == Kind::NoVerdict => {
                println!("{}\n{}", case.name(), answer.text);
                return Ok(Outcome::StandsStill(Kind::NoVerdict));
            }
            Some(answer) if lasted > ENDS => return wrong("it stands still", answer),
            None if lasted > ENDS => {
                return Err(format!("{}: rmpi-queues had no result", case.name()));
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(150));
    }
}

fn compiled() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grid");
    fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grid/collective.c");
    let program = folder.join("collective");
    let mut compile = installed("rmpicc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-o"]);
    assert!(
        compile
            .arg(&program)
            .arg(source)
            .status()
            .unwrap()
            .success()
    );
    program
}

#[test]
#[ignore = "needs an installation: cargo xtask test debuggers"]
fn verdicts_on_mismatched_collectives_are_correct() {
    let filter = std::env::var("RMPI_TEST_GRID").unwrap_or_default();
    let seed = std::env::var("RMPI_TEST_SEED").map_or(SEED, |it| it.parse().unwrap());
    let cases = match filter.as_str() {
        "" => sample(all(), seed, SAMPLE),
        "all" => all(),
        part => all()
            .into_iter()
            .filter(|it| it.name().contains(part))
            .collect(),
    };
    assert!(!cases.is_empty(), "nothing is called {filter}");
    let program = compiled();
    let total = cases.len();
    let left = Mutex::new(cases);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                let next = || left.lock().unwrap().pop();
                for case in std::iter::from_fn(next) {
                    let outcome = check(&program, &case);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let mut counts = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for outcome in outcomes.into_inner().unwrap() {
        match outcome {
            Ok(outcome) => *counts.entry(outcome).or_insert(0usize) += 1,
            Err(text) => wrong.push(text),
        }
    }
    println!("{total} jobs with seed {seed}: {counts:?}");
    assert!(
        wrong.is_empty(),
        "{} of {total}, seed {seed}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    if total >= SAMPLE {
        for outcome in [Outcome::Ended, Outcome::StandsStill(Kind::Deadlock)] {
            assert!(counts.contains_key(&outcome), "{outcome:?} did not occur");
        }
    }
}

#[test]
fn a_sample_covers_every_collective_and_mistake() {
    let pairs = |cases: &[Case]| -> std::collections::BTreeSet<_> {
        cases.iter().map(|it| (it.collective, it.mistake)).collect()
    };
    let every = pairs(&all());
    for seed in 0..20 {
        assert_eq!(pairs(&sample(all(), seed, SAMPLE)), every);
    }
}

/// The names of the collectives in the test program.
const COLLECTIVES: &[&str] = &[
    "barrier",
    "bcast",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "exscan",
    "dup",
    "split",
];
const ROOTED: &[&str] = &[
    "bcast", "gather", "gatherv", "scatter", "scatterv", "reduce",
];
/// Collectives without a count.
const SIZELESS: &[&str] = &["barrier", "dup", "split"];
const MISTAKES: &[&str] = &[
    "right", "late", "root", "two", "short", "long", "missing", "other",
];
/// Counts of integers, one for each way in which data are sent: through a board in shared memory, eager, rendezvous,
/// and in slices.
const COUNTS: &[usize] = &[1, 1500, 25_000, 300_000];
/// Cases in a sample: enough for at least one of each collective with each mistake.
const SAMPLE: usize = 140;
const SEED: u64 = 1;
/// Number of concurrent jobs. Jobs sleep most of the time.
const TOGETHER: usize = 8;
/// Time after which a running job is most likely stuck: progress takes milliseconds.
const STANDS_STILL: Duration = Duration::from_secs(3);
/// Time within which a job without a deadlock is expected to end on any machine.
const ENDS: Duration = Duration::from_secs(30);
/// Time for which a job is watched after a verdict of deadlock.
const STAYS: Duration = Duration::from_secs(1);
