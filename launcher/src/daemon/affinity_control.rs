// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controls the preferred CPUs of ranks that outnumber the cores. When a rank calls `MPI_Init`, it is bound to one CPU
//! together with neighbouring ranks, since a wake-up on the same CPU is many times cheaper than one across CPUs. The
//! binding is removed in two cases:
//!
//! - A rank waits long for its CPU while another CPU is mostly idle. The rank gets the whole mask, and is bound again
//!   once it sleeps most of the time.
//! - A rank has several threads. All its threads get the whole mask for the rest of its MPI program.
//!
//! If the mask of a rank differs from the job's mask in `MPI_Init`, the program or the user has bound the rank, and the
//! daemon does not change its mask. Programs that never call MPI keep the whole mask.
//!
//! The daemon controls the masks because the library is not active while its program computes.

use super::{Daemon, sweep};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// The interval between two checks is `CHECK_PERIOD`, or `CHECK_PERIOD_PER_RANK` times the number of ranks of the node
/// if that is longer.
const CHECK_PERIOD: Duration = Duration::from_millis(200);
const CHECK_PERIOD_PER_RANK: Duration = Duration::from_millis(3);

/// State of a rank with a preferred CPU.
#[derive(Debug)]
pub(super) struct CpuPreference {
    pid: u32,
    /// The preferred CPU of the rank.
    cpu: usize,
    /// Whether the rank is bound to its preferred CPU now.
    preferring: bool,
    last: SchedSample,
}

/// The scheduler's counters of a process or thread since its start, in nanoseconds: time on a CPU (`run`), and time
/// waiting for a CPU (`delay`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SchedSample {
    run: u64,
    delay: u64,
}

/// CPU use of a rank between two checks, in nanoseconds as in [`SchedSample`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuUse {
    cpu: usize,
    preferring: bool,
    run: u64,
    delay: u64,
}

/// Load of CPU `cpu` between two checks: the time in nanoseconds for which ranks that are bound to it as their
/// preferred CPU have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuLoad {
    cpu: usize,
    run: u64,
}

impl CpuUse {
    /// Whether the rank is to be bound to its preferred CPU from now on. `passed`: nanoseconds between the two checks.
    fn prefers(&self, loads: &[CpuLoad], passed: u64) -> bool {
        if !self.preferring {
            return (self.run + self.delay) * 8 < passed;
        }
        let waits = self.delay * 5 > passed;
        let idle = |load: &CpuLoad| load.cpu != self.cpu && load.run * 2 < passed;
        !(waits && loads.iter().any(idle))
    }
}

impl Daemon {
    /// Called when process `pid` of a rank has called `MPI_Init`. If the rank has a preferred CPU, and the process has
    /// one thread and the job's whole mask, binds the process to that CPU.
    pub(super) fn start_preference(&mut self, local: u32, pid: u32) {
        let placed = &self.job.ranks[local as usize];
        let Some(cpus) = placed.cpus.as_ref().filter(|_| placed.preferred) else {
            return;
        };
        let (cpus, whole) = (cpus.set(), self.job.cpus.set());
        let process = Pid::from_raw(pid.cast_signed());
        let unbound = sched_getaffinity(process).is_ok_and(|mask| mask == whole);
        let (Some(cpu), Some(last)) = (first(&cpus), sample(pid)) else {
            return;
        };
        if !unbound || has_threads(pid) || sched_setaffinity(process, &cpus).is_err() {
            return;
        }
        self.ranks[local as usize].preference = Some(CpuPreference {
            pid,
            cpu,
            preferring: true,
            last,
        });
        if self.affinity_checked_at.is_none() {
            self.affinity_checked_at = Some(Instant::now());
        }
    }

    /// Called when a rank has called `MPI_Finalize`. If the rank has a preferred CPU, gives it the whole mask again.
    pub(super) fn end_preference(&mut self, local: u32) {
        if let Some(preference) = self.ranks[local as usize].preference.take() {
            restore_mask(preference.pid, &self.job.cpus.set());
        }
    }

    /// Time of the next check; `None` if no rank has a preferred CPU.
    pub(super) fn next_affinity_check(&self) -> Option<Instant> {
        let every = CHECK_PERIOD.max(CHECK_PERIOD_PER_RANK * self.job.local_size());
        self.affinity_checked_at.map(|last| last + every)
    }

    /// Checks all ranks if the check is due.
    pub(super) fn adjust_affinity(&mut self, now: Instant) {
        let (Some(last), Some(due)) = (self.affinity_checked_at, self.next_affinity_check()) else {
            return;
        };
        if due > now {
            return;
        }
        let uses = self.sample_use();
        self.affinity_checked_at = (!uses.is_empty()).then_some(now);
        let passed = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
        let loads = loads(&self.job.cpus.set(), uses.iter().map(|(_, used)| used));
        for (local, used) in uses {
            let prefers = used.prefers(&loads, passed);
            if prefers != used.preferring {
                self.set_preference(local, prefers);
            }
        }
    }

    /// CPU use of each rank with a preferred CPU since the last check. Removes the preference of ranks that have ended
    /// or have several threads.
    fn sample_use(&mut self) -> Vec<(usize, CpuUse)> {
        let mut uses = Vec::with_capacity(self.ranks.len());
        for (local, rank) in self.ranks.iter_mut().enumerate() {
            let Some(preference) = &mut rank.preference else {
                continue;
            };
            let now = sample(preference.pid).filter(|_| rank.alive && !has_threads(preference.pid));
            let Some(now) = now else {
                restore_mask(preference.pid, &self.job.cpus.set());
                rank.preference = None;
                continue;
            };
            let used = CpuUse {
                cpu: preference.cpu,
                preferring: preference.preferring,
                run: now.run.saturating_sub(preference.last.run),
                delay: now.delay.saturating_sub(preference.last.delay),
            };
            preference.last = now;
            uses.push((local, used));
        }
        uses
    }

    fn set_preference(&mut self, local: usize, prefers: bool) {
        let Some(preference) = &mut self.ranks[local].preference else {
            return;
        };
        preference.preferring = prefers;
        let preferred = self.job.ranks[local].cpus.as_ref();
        let mask = preferred.filter(|_| prefers).unwrap_or(&self.job.cpus);
        // This fails if the process has terminated.
        let _ = sched_setaffinity(Pid::from_raw(preference.pid.cast_signed()), &mask.set());
    }
}

/// The load of every CPU of the mask `whole` by the ranks that are bound to the CPU.
fn loads<'a>(whole: &CpuSet, uses: impl Iterator<Item = &'a CpuUse>) -> Vec<CpuLoad> {
    let mut loads: Vec<CpuLoad> = numbers(whole).map(|cpu| CpuLoad { cpu, run: 0 }).collect();
    for used in uses.filter(|used| used.preferring) {
        if let Some(load) = loads.iter_mut().find(|load| load.cpu == used.cpu) {
            load.run += used.run;
        }
    }
    loads
}

fn numbers(mask: &CpuSet) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::count()).filter(|cpu| mask.is_set(*cpu).unwrap_or(false))
}

fn first(mask: &CpuSet) -> Option<usize> {
    numbers(mask).next()
}

/// The scheduler's counters of a process; `None` if the process has terminated or the kernel has no such counters.
fn sample(pid: u32) -> Option<SchedSample> {
    sample_in(&format!("/proc/{pid}/schedstat"))
}

/// CPU demand of a thread since its start, in nanoseconds: its time on a CPU and its time waiting for a CPU. `None` if
/// the thread has terminated or the kernel has no such counters.
pub(super) fn cpu_demand_ns(pid: u32, thread: i32) -> Option<u64> {
    let sample = sample_in(&format!("/proc/{pid}/task/{thread}/schedstat"))?;
    Some(sample.run.saturating_add(sample.delay))
}

fn sample_in(file: &str) -> Option<SchedSample> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    let (run, delay) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(SchedSample { run, delay })
}

/// Whether a process has several threads: the link count of `/proc/PID/task` is the number of threads plus 2.
fn has_threads(pid: u32) -> bool {
    std::fs::metadata(format!("/proc/{pid}/task")).is_ok_and(|folder| folder.nlink() > 3)
}

fn restore_mask(pid: u32, whole: &CpuSet) {
    for thread in sweep::threads(pid) {
        // This fails if the thread has terminated, or if its number now belongs to a process of another user.
        let _ = sched_setaffinity(Pid::from_raw(thread), whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: u64 = 1000;

    fn used(cpu: usize, run: u64, delay: u64) -> CpuUse {
        CpuUse {
            cpu,
            preferring: true,
            run,
            delay,
        }
    }

    fn prefer(all: &[CpuUse]) -> Vec<bool> {
        let mut two = CpuSet::new();
        two.set(0).unwrap();
        two.set(1).unwrap();
        let loads = loads(&two, all.iter());
        all.iter()
            .map(|used| used.prefers(&loads, PASSED))
            .collect()
    }

    #[test]
    fn ranks_sharing_a_cpu_are_freed_when_another_cpu_is_idle() {
        let all = [used(0, 500, 500), used(0, 500, 500), used(1, 10, 0)];
        assert_eq!(prefer(&all), [false, false, true]);
    }

    #[test]
    fn ranks_stay_pinned_when_all_cpus_are_busy() {
        let all = [
            used(0, 500, 500),
            used(0, 500, 500),
            used(1, 490, 510),
            used(1, 500, 500),
        ];
        assert_eq!(prefer(&all), [true; 4]);
    }

    #[test]
    fn a_rank_alone_on_its_cpu_stays_pinned() {
        assert_eq!(
            prefer(&[used(0, 990, 10), used(0, 5, 5), used(1, 5, 5)]),
            [true; 3]
        );
    }

    #[test]
    fn a_rank_leaves_a_cpu_used_by_another_process() {
        assert_eq!(
            prefer(&[used(0, 300, 300), used(1, 300, 10)]),
            [false, true]
        );
    }

    #[test]
    fn a_freed_rank_is_pinned_again_when_mostly_idle() {
        let free = |run, delay| CpuUse {
            preferring: false,
            ..used(0, run, delay)
        };
        assert_eq!(prefer(&[free(900, 0)]), [false]);
        assert_eq!(prefer(&[free(100, 30)]), [false]);
        assert_eq!(prefer(&[free(80, 30)]), [true]);
    }

    #[test]
    fn cpu_use_and_threads_of_this_process_are_sampled() {
        let own = std::process::id();
        assert!(sample(own).is_some_and(|count| count.run > 0));
        assert!(has_threads(own));
        assert_eq!(sample(u32::MAX >> 1), None);
        let main = i32::try_from(own).unwrap();
        assert!(cpu_demand_ns(own, main).is_some_and(|time| time > 0));
        assert_eq!(cpu_demand_ns(own, 0), None);
    }
}
