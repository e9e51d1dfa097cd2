// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fault hits a job over four hosts at a random moment: a rank, the launcher, a daemon or a remote shell is killed, a
//! host loses its power, is cut off or freezes, or the job is interrupted. A seed determines the fault;
//! `ci/hosts/deaths` causes it and judges the result.

use super::super::Tally;
use super::super::faults::{SplitMix, in_time};
use super::world;
use crate::process::capture;
use crate::tree::root;
use std::path::Path;
use std::time::{Duration, Instant};

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HostDeath {
    seed: u64,
    kind: &'static str,
    /// Ranks on each host.
    each: u64,
    /// The rank that is killed, if the fault kills a rank. `host` (counted from 1) is the host of this rank, or the
    /// host that fails.
    victim: u64,
    host: u64,
    /// The time from the start of the victim's process to the fault.
    after_ms: u64,
    code: u64,
}

impl HostDeath {
    fn of_seed(seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let each = random.one_of([1, 2, 4]);
        let victim = random.below(HOSTS * each);
        Self {
            seed,
            kind: random.one_of(KINDS),
            each,
            victim,
            host: victim / each + 1,
            after_ms: random.below(1200),
            code: random.one_of([0, 1, 3, 42, 255]),
        }
    }

    /// Runs a job with the fault. Returns `true` if everything of the job was gone in time and `false` if that took
    /// longer; an error if anything else was wrong.
    fn happen(&self, build: &Path, prefix: &Path) -> Result<bool, String> {
        let hosts = usize::try_from(HOSTS).unwrap_or(0);
        let mut world = world(hosts)?;
        world.arg("sh").arg(root().join("ci/hosts/deaths"));
        world.arg(build).arg(prefix).arg(self.kind);
        let numbers = [self.victim, self.host, self.after_ms, self.each, self.code];
        world.args(numbers.map(|number| number.to_string()));
        let done = capture(world, LIMIT, |_| ())?;
        if done.success() {
            return Ok(!done.stdout.lines().any(|line| line == "slow"));
        }
        let (out, err) = (&done.stdout, &done.stderr);
        Err(format!("{}\n{out}{err}", done.end()))
    }
}

/// Runs the first `count` seeds, or only that of the variable `RMPI_TEST_SEED`.
pub(super) fn run(tally: &mut Tally, (build, prefix): (&Path, &Path), count: u64) {
    let (mut well, mut slow) = (0, 0);
    let mut wrong = Vec::new();
    let start = Instant::now();
    let only = std::env::var("RMPI_TEST_SEED").ok();
    let only = only.and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(1..=count, |seed| seed..=seed);
    for death in seeds.map(HostDeath::of_seed) {
        match death.happen(build, prefix) {
            Ok(is_in_time) => {
                well += 1;
                slow += usize::from(!is_in_time);
            }
            Err(why) => {
                println!("  seed {}: {death:?}\n{why}", death.seed);
                wrong.push(format!("seed {} of faults of jobs", death.seed));
            }
        }
    }
    let seconds = start.elapsed().as_secs();
    println!("  {well} jobs with a fault ended well, {seconds} s for all");
    tally.add(well, wrong);
    tally.check("nothing is left two seconds after the end", || {
        in_time(slow, well)
    });
}

const HOSTS: u64 = 4;
const KINDS: [&str; 12] = [
    "kill",
    "segv",
    "exit",
    "abort",
    "launcher",
    "daemon",
    "shell",
    "power",
    "cut",
    "freeze",
    "interrupt",
    "terminate",
];
/// The time limit of one fault, much longer than a fault takes.
const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_means_the_same_and_all_kinds_occur_soon() {
        assert_eq!(HostDeath::of_seed(5), HostDeath::of_seed(5));
        let all: Vec<HostDeath> = (1..=40).map(HostDeath::of_seed).collect();
        for kind in KINDS {
            assert!(all.iter().any(|death| death.kind == kind), "{kind}");
        }
        for death in all {
            assert!(death.victim < HOSTS * death.each && (1..=HOSTS).contains(&death.host));
        }
    }
}
