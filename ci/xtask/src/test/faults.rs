// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `faults`: a random rank dies in a random way at a random moment, a hundred times.
//!
//! Each time the launcher must name that rank, end with the right code and leave nothing behind
//! within two seconds. The list of seeds is fixed: each run of the stage tries the same deaths.

use super::{Context, Tally, jobs};
use crate::process::{Finished, quiet, send_signal};
use crate::tree::{command, make_folder, root, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How a rank dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// SIGKILL from outside, at any moment from the start on.
    Kill,
    /// A wild pointer.
    Segv,
    /// Leaves with this code and without `MPI_Finalize`.
    Exit(i32),
    /// `MPI_Abort` with this code.
    Abort(i32),
}

/// One death, decided by its seed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Death {
    seed: u64,
    ranks: u32,
    victim: u32,
    way: Way,
    after_us: u64,
}

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    let build = target().join("faults");
    make_folder(&build)?;
    let victim = build.join("victim");
    let mut compiler = command(prefix.join("bin/rmpicc"));
    compiler
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
        ])
        .arg(&victim);
    compiler.arg(root().join("ci/ranks/faults/victim.c"));
    quiet(compiler, Duration::from_secs(120))?;
    let launcher = prefix.join("bin/rmpiexec");
    let mut well = 0;
    let mut wrong = Vec::new();
    let start = Instant::now();
    for death in (1..=DEATHS).map(Death::of_seed) {
        match die(&launcher, &victim, &build, &death) {
            Ok(()) => well += 1,
            Err(why) => {
                println!("  seed {}: {death:?}\n{why}", death.seed);
                wrong.push(format!("seed {}", death.seed));
            }
        }
    }
    let each_ms = start.elapsed().as_millis() / u128::from(DEATHS);
    println!("  {well} of {DEATHS} deaths ended well, {each_ms} ms each");
    tally.add(well, wrong);
    Ok(())
}

impl Death {
    fn of_seed(seed: u64) -> Self {
        let mut random = Random(seed);
        let ranks = random.one_of([2, 3, 4, 8, 16]);
        let code = random.one_of([0, 1, 3, 42, 255]);
        let way = match random.below(4) {
            0 => Way::Kill,
            1 => Way::Segv,
            2 => Way::Exit(code),
            _ => Way::Abort(code),
        };
        let victim = u32::try_from(random.below(u64::from(ranks))).unwrap_or(0);
        Self {
            seed,
            ranks,
            victim,
            way,
            after_us: random.below(200_000),
        }
    }

    /// The code that `rmpiexec` must end with.
    fn code(&self) -> i32 {
        match self.way {
            Way::Kill => 128 + 9,
            Way::Segv => 128 + 11,
            // Leaving without MPI_Finalize, and MPI_Abort, are never a success.
            Way::Exit(code) | Way::Abort(code) => code.max(1),
        }
    }

    /// What the program is told to do.
    fn arguments(&self) -> Vec<String> {
        let (word, code) = match self.way {
            Way::Kill => ("wait", 0),
            Way::Segv => ("segv", 0),
            Way::Exit(code) => ("exit", code),
            Way::Abort(code) => ("abort", code),
        };
        let numbers = [u64::from(self.victim), self.after_us].map(|number| number.to_string());
        [word.into()]
            .into_iter()
            .chain(numbers)
            .chain([code.to_string()])
            .collect()
    }

    /// Words that the message must contain.
    fn words(&self) -> Vec<String> {
        let how = match self.way {
            Way::Kill => "SIGKILL",
            Way::Segv => "SIGSEGV",
            Way::Exit(_) => "MPI_Finalize",
            Way::Abort(_) => "MPI_Abort",
        };
        vec![format!("rank {}", self.victim), how.into()]
    }
}

fn die(launcher: &Path, victim: &Path, build: &Path, death: &Death) -> Result<(), String> {
    let mut job = command(launcher);
    job.args(["-n", &death.ranks.to_string()])
        .arg(victim)
        .args(death.arguments());
    let cookie = jobs::Cookie::new(build)?;
    let done = thread::scope(|scope| {
        if death.way == Way::Kill {
            scope.spawn(|| kill_from_outside(&cookie, death));
        }
        jobs::run(job, &cookie, LIMIT)
    })?;
    let left = cookie.leftovers(LEFTOVER_GRACE);
    let wrong = judge(death, &done, left);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nprinted: {}{}",
        wrong.join("\n"),
        done.stdout,
        done.stderr
    ))
}

fn judge(death: &Death, done: &Finished, left: Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    if done.timed_out {
        wrong.push(format!("the job did not end within {} s", LIMIT.as_secs()));
    }
    if done.status.code() != Some(death.code()) {
        wrong.push(format!(
            "expected the code {}, the job {}",
            death.code(),
            done.end()
        ));
    }
    let missing = death
        .words()
        .into_iter()
        .filter(|word| !done.stderr.contains(word.as_str()));
    wrong.extend(missing.map(|word| format!("the message lacks `{word}`")));
    let lines = done.stderr.lines().count();
    if lines > MESSAGE_LINES {
        wrong.push(format!(
            "the message has {lines} lines, at most {MESSAGE_LINES} are good"
        ));
    }
    wrong.extend(left);
    wrong
}

/// Finds the victim by its environment, waits for its moment, and kills it.
fn kill_from_outside(cookie: &jobs::Cookie, death: &Death) {
    let deadline = Instant::now() + LIMIT;
    let rank = format!("RMPI_RANK={}", death.victim);
    while Instant::now() < deadline {
        if let Some(pid) = cookie
            .processes()
            .into_iter()
            .find(|pid| has_environment(*pid, &rank))
        {
            thread::sleep(Duration::from_micros(death.after_us));
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

/// SplitMix64: enough to spread a seed over a few choices, the same on every machine.
struct Random(u64);

impl Random {
    fn one_of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[usize::try_from(self.below(N as u64)).unwrap_or(0)]
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

const DEATHS: u64 = 100;
const LIMIT: Duration = Duration::from_secs(30);
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
const MESSAGE_LINES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn death(way: Way) -> Death {
        Death {
            seed: 1,
            ranks: 4,
            victim: 2,
            way,
            after_us: 7,
        }
    }

    #[test]
    fn a_seed_always_means_the_same_death_and_all_ways_occur() {
        assert_eq!(Death::of_seed(5), Death::of_seed(5));
        let all: Vec<Death> = (1..=DEATHS).map(Death::of_seed).collect();
        assert!(all.iter().all(|death| death.victim < death.ranks));
        let count = |wanted: fn(&Way) -> bool| all.iter().filter(|d| wanted(&d.way)).count();
        assert!(count(|way| *way == Way::Kill) > 10);
        assert!(count(|way| *way == Way::Segv) > 10);
        assert!(count(|way| matches!(way, Way::Exit(_))) > 10);
        assert!(count(|way| matches!(way, Way::Abort(_))) > 10);
    }

    #[test]
    fn codes_and_arguments_follow_from_the_way() {
        assert_eq!(death(Way::Kill).code(), 137);
        assert_eq!(death(Way::Segv).code(), 139);
        assert_eq!(death(Way::Exit(0)).code(), 1);
        assert_eq!(death(Way::Abort(42)).code(), 42);
        assert_eq!(death(Way::Abort(42)).arguments(), ["abort", "2", "7", "42"]);
    }

    #[test]
    fn a_job_that_hides_the_death_is_judged() {
        let mut shell = command("sh");
        shell.args(["-c", "echo all is well >&2"]);
        let done = crate::process::capture(shell, LIMIT, |_| ()).unwrap();
        let wrong = judge(&death(Way::Segv), &done, Some("left behind: x".into()));
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }
}
