// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages `faults` and `deaths`: start a job and end a random rank, the launcher or its daemon in a random way at a
//! random moment, or close the terminal. The stage `faults` does so 30 times, the long stage `deaths` 1000 times.
//!
//! Each time the launcher, if it was not killed itself, must report the cause and end with the right code, and no
//! process or file of the job may be left behind. After at least half of the deaths nothing may be left two seconds
//! later; on a busy machine the others may take longer. The list of seeds is fixed: each run of a stage tries the same
//! deaths.

use super::{Context, Tally, cargo_tests, hardships, jobs};
use crate::process::{Finished, quiet, seconds, send_signal};
use crate::tree::{cargo, command, make_folder, root, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeathKind {
    /// SIGKILL for a rank, at any moment after its start.
    Kill,
    /// A rank writes to an invalid address (SIGSEGV).
    Segv,
    /// A rank exits with this code and without `MPI_Finalize`.
    Exit(i32),
    /// A rank calls `MPI_Abort` with this code.
    Abort(i32),
    /// SIGKILL for a rank that has children and grandchildren, one of them in a session of its own.
    Family,
    /// SIGKILL for `rmpiexec`.
    Launcher,
    /// SIGKILL for `rmpid`.
    Daemon,
    /// The terminal that the job was started from is closed.
    Terminal,
}

/// One death; its seed determines all fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankDeath {
    seed: u64,
    ranks: u32,
    victim: u32,
    kind: DeathKind,
    after_us: u64,
}

/// The stage `faults`.
pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    hardships::run(tally, context)?;
    deaths(tally, context, DEATHS)
}

/// The long stage `deaths`.
pub(crate) fn run_long(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let mut output = cargo();
    output.args([
        "test",
        "--quiet",
        "--package",
        "launcher",
        "--test",
        "output",
    ]);
    output.args(["--", "--ignored", "a_gibibyte"]);
    cargo_tests::run(tally, "a gibibyte of output from each rank", output)?;
    deaths(tally, context, LONG_DEATHS)
}

fn deaths(tally: &mut Tally, context: &mut Context, count: u64) -> Result<(), String> {
    let prefix = context.prefix()?;
    let build = target().join("faults");
    make_folder(&build)?;
    let victim = build.join("victim");
    compile(&prefix, "victim.c", &victim)?;
    let launcher = prefix.join("bin/rmpiexec");
    let (mut well, mut slow) = (0, 0);
    let mut wrong = Vec::new();
    let start = Instant::now();
    for death in (1..=count).map(RankDeath::of_seed) {
        match die(&launcher, &victim, &build, &death) {
            Ok(after) => {
                well += 1;
                slow += usize::from(after > PROMISED);
            }
            Err(why) => {
                println!("  seed {}: {death:?}\n{why}", death.seed);
                wrong.push(format!("seed {}", death.seed));
            }
        }
    }
    let each_ms = start.elapsed().as_millis() / u128::from(count);
    println!("  {well} of {count} deaths ended well, {each_ms} ms each");
    tally.add(well, wrong);
    tally.check("nothing is left two seconds after a death", || {
        in_time(slow, well)
    });
    Ok(())
}

/// An error if more than half of the `of` deaths were `slow` ([`PROMISED`]): on a busy machine some may take longer.
pub(super) fn in_time(slow: usize, of: usize) -> Result<(), String> {
    if 2 * slow <= of {
        return Ok(());
    }
    let after = seconds(PROMISED);
    Err(format!(
        "after {slow} of {of} deaths something was still there after {after}, expected at most half"
    ))
}

/// Builds a program of `ci/ranks/faults`.
pub(super) fn compile(prefix: &Path, source: &str, to: &Path) -> Result<(), String> {
    let mut compiler = command(prefix.join("bin/rmpicc"));
    let flags = "-std=gnu11 -O1 -g -Wall -Wextra -Werror -o";
    compiler.args(flags.split(' ')).arg(to);
    compiler.arg(root().join("ci/ranks/faults").join(source));
    quiet(compiler, Duration::from_secs(120)).map(|_| ())
}

impl RankDeath {
    fn of_seed(seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let ranks = random.one_of([2, 3, 4, 8, 16]);
        let code = random.one_of([0, 1, 3, 42, 255]);
        let kind = match random.below(8) {
            0 => DeathKind::Kill,
            1 => DeathKind::Segv,
            2 => DeathKind::Exit(code),
            3 => DeathKind::Abort(code),
            4 => DeathKind::Family,
            5 => DeathKind::Launcher,
            6 => DeathKind::Daemon,
            _ => DeathKind::Terminal,
        };
        let victim = u32::try_from(random.below(u64::from(ranks))).unwrap_or(0);
        Self {
            seed,
            ranks,
            victim,
            kind,
            after_us: random.below(200_000),
        }
    }

    /// The exit code that the command must have; `None` if the command itself is killed.
    fn code(&self) -> Option<i32> {
        match self.kind {
            DeathKind::Kill | DeathKind::Family | DeathKind::Daemon => Some(128 + 9),
            DeathKind::Segv => Some(128 + 11),
            // An exit without MPI_Finalize or by MPI_Abort must not look like a success, even with code 0.
            DeathKind::Exit(code) | DeathKind::Abort(code) => Some(code.max(1)),
            DeathKind::Launcher | DeathKind::Terminal => None,
        }
    }

    /// The process that is killed from outside; `None` if a rank ends itself.
    fn target(&self) -> Option<KillTarget> {
        match self.kind {
            DeathKind::Kill | DeathKind::Family => Some(KillTarget::Rank(self.victim)),
            DeathKind::Launcher => Some(KillTarget::Named("rmpiexec")),
            DeathKind::Daemon => Some(KillTarget::Named("rmpid")),
            DeathKind::Terminal => Some(KillTarget::Named("script")),
            DeathKind::Segv | DeathKind::Exit(_) | DeathKind::Abort(_) => None,
        }
    }

    /// The command that starts the job.
    fn job(&self, launcher: &Path, victim: &Path) -> Command {
        let ranks = self.ranks.to_string();
        let arguments = self.arguments().join(" ");
        let family = format!(
            "(sleep 1001 & sleep 1002) & setsid sleep 1003 & exec {} {arguments}",
            victim.display()
        );
        if self.kind == DeathKind::Terminal {
            let mut terminal = command("script");
            // If these tests were started with nohup, all processes below them ignore SIGHUP; this undoes it.
            let line = format!(
                "env --default-signal=HUP {} -n {ranks} {} {arguments}",
                launcher.display(),
                victim.display()
            );
            terminal.args(["-qec", &line, "/dev/null"]);
            return terminal;
        }
        let mut job = command(launcher);
        job.args(["-n", &ranks]);
        match self.kind {
            DeathKind::Family => job.args(["bash", "-c", &family]),
            _ => job.arg(victim).args(self.arguments()),
        };
        job
    }

    /// Arguments of the program.
    fn arguments(&self) -> Vec<String> {
        let (mode, code) = match self.kind {
            DeathKind::Kill
            | DeathKind::Family
            | DeathKind::Launcher
            | DeathKind::Daemon
            | DeathKind::Terminal => ("wait", 0),
            DeathKind::Segv => ("segv", 0),
            DeathKind::Exit(code) => ("exit", code),
            DeathKind::Abort(code) => ("abort", code),
        };
        let numbers = [u64::from(self.victim), self.after_us].map(|number| number.to_string());
        [mode.into()]
            .into_iter()
            .chain(numbers)
            .chain([code.to_string()])
            .collect()
    }

    /// Texts that the message must contain.
    fn expected_texts(&self) -> Vec<String> {
        let how = match self.kind {
            DeathKind::Launcher | DeathKind::Terminal => return Vec::new(),
            DeathKind::Daemon => return vec!["the node daemon".into(), "SIGKILL".into()],
            DeathKind::Kill | DeathKind::Family => "SIGKILL",
            DeathKind::Segv => "SIGSEGV",
            DeathKind::Exit(_) => "MPI_Finalize",
            DeathKind::Abort(_) => "MPI_Abort",
        };
        vec![format!("rank {}", self.victim), how.into()]
    }
}

/// Runs a job with this death. Returns how long after the launcher's end something of the job was left, or what was
/// wrong.
fn die(
    launcher: &Path,
    victim: &Path,
    build: &Path,
    death: &RankDeath,
) -> Result<Duration, String> {
    let job = death.job(launcher, victim);
    let cookie = jobs::Cookie::new(build)?;
    let done = thread::scope(|scope| {
        if let Some(target) = death.target() {
            let cookie = &cookie;
            scope.spawn(move || kill_from_outside(cookie, target, death.after_us));
        }
        jobs::run(job, &cookie, LIMIT)
    })?;
    let left = cookie.leftovers(jobs::LEFTOVER_GRACE);
    let (after, left) = match left {
        Ok(after) => (after, None),
        Err(what) => (Duration::ZERO, Some(what)),
    };
    let wrong = judge(death, &done, left);
    if wrong.is_empty() {
        return Ok(after);
    }
    Err(format!(
        "{}\nprinted: {}{}",
        wrong.join("\n"),
        done.stdout,
        done.stderr
    ))
}

fn judge(death: &RankDeath, done: &Finished, left: Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    if done.timed_out {
        wrong.push(format!("the job did not end within {} s", LIMIT.as_secs()));
    }
    if done.status.code() != death.code() {
        let expected = death
            .code()
            .map_or_else(|| "no code".to_owned(), |code| format!("the code {code}"));
        wrong.push(format!("expected {expected}, the job {}", done.end()));
    }
    let missing = death
        .expected_texts()
        .into_iter()
        .filter(|text| !done.stderr.contains(text.as_str()));
    wrong.extend(missing.map(|text| format!("the message lacks `{text}`")));
    let lines = done.stderr.lines().count();
    // If the launcher was killed, the number of lines is not limited, because each rank prints a message.
    if lines > MESSAGE_LINES && death.code().is_some() {
        wrong.push(format!(
            "the message has {lines} lines, at most {MESSAGE_LINES} are good"
        ));
    }
    wrong.extend(left);
    wrong
}

/// Which process to kill.
#[derive(Debug, Clone, Copy)]
enum KillTarget {
    /// The process of this rank.
    Rank(u32),
    /// The process of this name.
    Named(&'static str),
}

impl KillTarget {
    fn find(self, among: &[u32]) -> Option<u32> {
        let started = |pid: &&u32| has_environment(**pid, "RMPI_RANK=0");
        let found = match self {
            Self::Rank(rank) => {
                let entry = format!("RMPI_RANK={rank}");
                // A rank's children have its environment too, but only the daemon's children are ranks.
                let is_rank = |pid: &&u32| has_environment(**pid, &entry) && is_rank(**pid);
                among.iter().find(is_rank)
            }
            // The terminal is closed only once rank 0 runs: earlier there would be no rank that could survive it.
            Self::Named("script") if !among.iter().any(|pid| started(&pid)) => None,
            Self::Named(name) => among.iter().find(|pid| is_named(**pid, name)),
        };
        found.copied()
    }
}

/// Whether this process is a child of the daemon.
fn is_rank(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may contain any character: the state and the parent.
    let parent = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.split(' ').nth(1));
    parent
        .and_then(|parent| parent.parse().ok())
        .is_some_and(|parent| is_named(parent, "rmpid"))
}

fn is_named(pid: u32, name: &str) -> bool {
    let own = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    own.trim_end() == name
}

/// Waits until the target exists and `after_us` microseconds more, then kills it.
fn kill_from_outside(cookie: &jobs::Cookie, target: KillTarget, after_us: u64) {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(pid) = target.find(&cookie.processes()) {
            thread::sleep(Duration::from_micros(after_us));
            send_signal("KILL", &pid.to_string());
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn has_environment(pid: u32, entry: &str) -> bool {
    let file: PathBuf = format!("/proc/{pid}/environ").into();
    let environment = fs::read(file).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|known| known == entry.as_bytes())
}

/// SplitMix64: derives a few choices from a seed, the same on every machine.
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn one_of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[usize::try_from(self.below(N as u64)).unwrap_or(0)]
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

const DEATHS: u64 = 30;
const LONG_DEATHS: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(120);
/// A death counts as slow if something of its job still exists this long after the launcher has ended.
const PROMISED: Duration = Duration::from_secs(2);
const MESSAGE_LINES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn death(kind: DeathKind) -> RankDeath {
        RankDeath {
            seed: 1,
            ranks: 4,
            victim: 2,
            kind,
            after_us: 7,
        }
    }

    #[test]
    fn a_seed_always_means_the_same_death_and_all_kinds_occur() {
        assert_eq!(RankDeath::of_seed(5), RankDeath::of_seed(5));
        let all: Vec<RankDeath> = (1..=DEATHS).map(RankDeath::of_seed).collect();
        assert!(all.iter().all(|death| death.victim < death.ranks));
        let kinds: [fn(&DeathKind) -> bool; 8] = [
            |kind| *kind == DeathKind::Kill,
            |kind| *kind == DeathKind::Segv,
            |kind| matches!(kind, DeathKind::Exit(_)),
            |kind| matches!(kind, DeathKind::Abort(_)),
            |kind| *kind == DeathKind::Family,
            |kind| *kind == DeathKind::Launcher,
            |kind| *kind == DeathKind::Daemon,
            |kind| *kind == DeathKind::Terminal,
        ];
        for (number, kind) in kinds.into_iter().enumerate() {
            let count = all.iter().filter(|death| kind(&death.kind)).count();
            assert!(count > 0, "kind {number} does not occur");
        }
    }

    #[test]
    fn codes_and_arguments_follow_from_the_kind() {
        assert_eq!(death(DeathKind::Kill).code(), Some(137));
        assert_eq!(death(DeathKind::Segv).code(), Some(139));
        assert_eq!(death(DeathKind::Exit(0)).code(), Some(1));
        assert_eq!(death(DeathKind::Abort(42)).code(), Some(42));
        assert_eq!(death(DeathKind::Launcher).code(), None);
        assert_eq!(
            death(DeathKind::Abort(42)).arguments(),
            ["abort", "2", "7", "42"]
        );
    }

    #[test]
    fn some_may_be_slow_and_most_may_not() {
        assert!(in_time(0, 0).is_ok() && in_time(3, 30).is_ok());
        assert!(in_time(16, 30).is_err());
    }

    #[test]
    fn a_job_that_hides_the_death_is_judged() {
        let mut shell = command("sh");
        shell.args(["-c", "echo all is well >&2"]);
        let done = crate::process::capture(shell, LIMIT, |_| ()).unwrap();
        let wrong = judge(
            &death(DeathKind::Segv),
            &done,
            Some("left behind: x".into()),
        );
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }
}
