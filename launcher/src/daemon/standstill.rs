// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects a standstill: all ranks of this node wait in MPI, and none of them makes progress.
//!
//! A rank that sleeps in MPI updates its wait counters in the node segment ([`ring::WaitCounts`]) at least ten times a
//! second. The daemon samples and compares the counters of all ranks every 2 s, and more often when a report may be
//! due. A rank that computes, is stopped, is held for a debugger or is outside MPI does not update its counters. Then
//! the job counts as running. The ranks set the time after which a standstill is reported (`RMPI_STANDSTILL`); the
//! front writes the report.

use super::affinity_control::cpu_demand_ns;
use super::hold::Hold;
use super::rank::{LocalRank, RankPhase};
use super::{Daemon, sweep};
use crate::link::NodeEvent;
use ring::WaitsSeen;
use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Interval between two samples; it is shorter if the time after which a standstill is reported is short.
const SAMPLE_PERIOD: Duration = Duration::from_secs(2);
/// Interval between two samples when a report may be due. It is longer than the time within which a sleeping rank
/// updates its counters.
const DENSE_SAMPLE_PERIOD: Duration = Duration::from_millis(300);

/// Wait counters of a rank that is in MPI, and its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WaitSample {
    pid: u32,
    counts: WaitsSeen,
}

/// State of the detection.
#[derive(Debug)]
pub(super) struct Standstill {
    /// Time of the next sample; `None` if no rank has called `MPI_Init`.
    next: Option<Instant>,
    /// Time of the last sample in which some rank had begun a further wait, or of the last [`reset`](Self::reset).
    since: Instant,
    /// Sample at the beginning of the current round. A round ends when every rank has updated its counters.
    last: Vec<WaitSample>,
    /// Set if the last round was a standstill: the time of its end, and the CPU demand of threads up to that time. Only
    /// the threads of those ranks are included that may have working threads besides the waiting thread.
    shown: Option<(Instant, CpuDemand)>,
    /// Whether the standstill was reported. Becomes `false` when a rank has made progress.
    reported: bool,
}

/// Result of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleResult {
    /// Some rank makes progress, the round is not complete, the standstill is too short, or it was reported before.
    Nothing,
    /// No rank makes progress; a second round must confirm this.
    Stillness,
}

impl Standstill {
    pub(super) fn new() -> Self {
        Self {
            next: None,
            since: Instant::now(),
            last: Vec::new(),
            shown: None,
            reported: false,
        }
    }

    /// A rank has called `MPI_Init`.
    pub(super) fn rank_entered_mpi(&mut self) {
        self.next.get_or_insert_with(Instant::now);
    }

    /// Evaluates a sample of all ranks. `patience`: the time after which a standstill is reported.
    fn evaluate(&mut self, now: Instant, seen: &[WaitSample], patience: Duration) -> SampleResult {
        let is_same_wait = |(one, other): (&WaitSample, &WaitSample)| {
            one.pid == other.pid && one.counts.begun == other.counts.begun
        };
        let mut both = self.last.iter().zip(seen);
        if seen.len() != self.last.len() || !both.all(is_same_wait) {
            (self.since, self.reported, self.shown) = (now, false, None);
            self.last = seen.to_vec();
        }
        let mut both = self.last.iter().zip(seen);
        let is_over = both.all(|(one, other)| one.counts.turns != other.counts.turns);
        if !is_over {
            return SampleResult::Nothing;
        }
        self.last = seen.to_vec();
        if self.reported || seen.is_empty() || now - self.since < patience {
            return SampleResult::Nothing;
        }
        SampleResult::Stillness
    }

    /// Resets the state, because a rank is outside MPI or ranks are held.
    fn reset(&mut self, now: Instant) {
        (self.since, self.shown) = (now, None);
        self.last.clear();
    }

    fn schedule_next(&mut self, now: Instant, patience: Duration) {
        let is_close = !self.reported && !self.last.is_empty() && now - self.since >= patience;
        let every = if is_close {
            DENSE_SAMPLE_PERIOD
        } else {
            SAMPLE_PERIOD
        };
        self.next = Some(now + every.min(patience / 2).max(DENSE_SAMPLE_PERIOD / 3));
    }
}

impl Daemon {
    /// Time of the next sample; `None` if no rank has called `MPI_Init`.
    pub(super) fn next_standstill_sample(&self) -> Option<Instant> {
        self.standstill.next
    }

    /// Takes a sample if it is due.
    pub(super) fn check_standstill(&mut self, now: Instant) {
        if self.standstill.next.is_none_or(|at| at > now) {
            return;
        }
        let in_mpi = |rank: &LocalRank| rank.alive && rank.phase == RankPhase::InMpi;
        if !self.ranks.iter().any(in_mpi) || self.termination.is_killing().is_some() {
            self.standstill = Standstill::new();
            return;
        }
        let Some(seen) = self.sample_waits() else {
            self.standstill.reset(now);
            self.standstill.next = Some(now + SAMPLE_PERIOD);
            return;
        };
        let timeouts = seen.iter().map(|one| one.counts.patience_s);
        let patience = Duration::from_secs(timeouts.max().unwrap_or(0).into());
        let shown = self.standstill.evaluate(now, &seen, patience);
        if shown == SampleResult::Stillness && self.is_sure(now, &seen) {
            self.standstill.reported = true;
            self.send_event(&NodeEvent::Standstill(patience.as_secs()));
        }
        self.standstill.schedule_next(now, patience);
    }

    /// Samples all running ranks. `None` if some rank is outside MPI or held, so there is no standstill, or if some
    /// rank has disabled the report.
    fn sample_waits(&self) -> Option<Vec<WaitSample>> {
        if self.hold != Hold::No {
            return None;
        }
        let alive = (0..).zip(&self.ranks).filter(|(_, rank)| rank.alive);
        let counts = alive.map(|(local, rank)| {
            if rank.phase != RankPhase::InMpi {
                return None;
            }
            let segment = self.segment_of(rank)?;
            let counts = read_counts(segment, self.job.local_size(), local)?;
            let pid = rank.mpi_pid;
            (counts.patience_s != 0).then_some(WaitSample { pid, counts })
        });
        counts.collect()
    }

    /// The segment of the MPI program that a rank runs now.
    fn segment_of(&self, rank: &LocalRank) -> Option<&OwnedFd> {
        match rank.finalized {
            0 => Some(&self.spawn_context.segment),
            round => self.later_segments.get(&round).map(AsRef::as_ref),
        }
    }

    /// Whether the standstill is certain: the round before was without progress too, no rank is traced by a debugger,
    /// and no other thread of a rank is working. Stores the CPU demand of this round for the next call.
    fn is_sure(&mut self, now: Instant, seen: &[WaitSample]) -> bool {
        let others = seen.iter().filter(|one| one.counts.beside_others);
        let wanted: Option<CpuDemand> = others.flat_map(|one| demand_by_thread(one.pid)).collect();
        let shown = wanted.map(|wanted| (now, wanted));
        let before = std::mem::replace(&mut self.standstill.shown, shown);
        let (Some((then, before)), Some((_, wanted))) = (before, &self.standstill.shown) else {
            return false;
        };
        let passed = now.saturating_duration_since(then);
        !is_any_working(&before, wanted, passed) && !seen.iter().any(|one| is_traced(one.pid))
    }
}

/// CPU demand of threads since their start, in nanoseconds, by thread id.
type CpuDemand = HashMap<i32, u64>;

/// The CPU demand of each thread of a process; an item is `None` if the kernel has no counters for the thread.
fn demand_by_thread(pid: u32) -> impl Iterator<Item = Option<(i32, u64)>> {
    sweep::threads(pid).map(move |thread| Some((thread, cpu_demand_ns(pid, thread)?)))
}

/// Whether some thread demanded a CPU for more than 70 % of the time `passed`. A thread that waits in MPI beside other
/// threads polls often, but briefly.
fn is_any_working(before: &CpuDemand, now: &CpuDemand, passed: Duration) -> bool {
    let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
    let since = |thread| before.get(thread).copied().unwrap_or(0);
    let mut all = now.iter();
    all.any(|(thread, wanted)| wanted.saturating_sub(since(thread)) / 7 > passed / 10)
}

/// Reads a rank's wait counters. The segment is read and not mapped, because its contents are untrusted bytes.
fn read_counts(segment: &OwnedFd, local_size: u32, local: u32) -> Option<WaitsSeen> {
    let mut bytes = [0; 16];
    let place = ring::layout::waits_offset(local_size, local)
        .try_into()
        .ok()?;
    let count = nix::sys::uio::pread(segment, &mut bytes, place).ok()?;
    (count == bytes.len()).then(|| WaitsSeen::from_bytes(bytes))
}

/// Whether a debugger traces the process.
fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let tracer = lines.find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn seen(counts: &[(u32, u32)]) -> Vec<WaitSample> {
        let of = |(pid, (begun, turns)): (u32, &(u32, u32))| WaitSample {
            pid,
            counts: WaitsSeen {
                patience_s: 60,
                begun: *begun,
                turns: *turns,
                beside_others: false,
            },
        };
        (1..).zip(counts).map(of).collect()
    }

    /// Evaluates samples taken at these seconds; returns for each whether it is a standstill.
    fn shown(still: &mut Standstill, samples: &[(u64, &[(u32, u32)])]) -> Vec<bool> {
        let start = still.since;
        let evaluate = |(second, counts): &(u64, &[(u32, u32)])| {
            let now = start + Duration::from_secs(*second);
            still.evaluate(now, &seen(counts), PATIENCE) == SampleResult::Stillness
        };
        samples.iter().map(evaluate).collect()
    }

    #[test]
    fn sleeping_ranks_stand_still_after_the_timeout() {
        let mut still = Standstill::new();
        let samples: [(u64, &[_]); 4] = [
            (1, &[(1, 1), (1, 1)]),
            (30, &[(1, 9), (1, 9)]),
            (60, &[(1, 19), (1, 19)]),
            (61, &[(1, 20), (1, 20)]),
        ];
        assert_eq!(shown(&mut still, &samples), [false, false, false, true]);
    }

    #[test]
    fn a_computing_or_stopped_rank_prevents_standstill() {
        let mut still = Standstill::new();
        let samples: [(u64, &[_]); 3] = [
            (1, &[(1, 1), (3, 7)]),
            (100, &[(1, 99), (3, 7)]),
            (200, &[(1, 199), (3, 7)]),
        ];
        assert_eq!(shown(&mut still, &samples), [false; 3]);
    }

    #[test]
    fn a_new_wait_restarts_the_standstill_timeout() {
        let mut still = Standstill::new();
        let samples: [(u64, &[_]); 4] = [
            (1, &[(1, 1), (1, 1)]),
            (50, &[(1, 2), (2, 2)]),
            (100, &[(1, 3), (2, 3)]),
            (111, &[(1, 4), (2, 4)]),
        ];
        assert_eq!(shown(&mut still, &samples), [false, false, false, true]);
    }

    #[test]
    fn standstill_is_reported_once_until_progress() {
        let mut still = Standstill::new();
        let samples: [(u64, &[_]); 2] = [(1, &[(1, 1)]), (70, &[(1, 2)])];
        assert_eq!(shown(&mut still, &samples), [false, true]);
        still.reported = true;
        let start = still.since;
        let later = |second| start + Duration::from_secs(second);
        let mut evaluate =
            |second, counts| still.evaluate(later(second), &seen(&[counts]), PATIENCE);
        assert_eq!(evaluate(200, (1, 3)), SampleResult::Nothing);
        assert_eq!(evaluate(300, (2, 4)), SampleResult::Nothing);
        assert_eq!(evaluate(330, (2, 5)), SampleResult::Nothing);
        assert_eq!(evaluate(360, (2, 6)), SampleResult::Stillness);
    }

    #[test]
    fn sampling_is_dense_near_the_timeout_and_for_short_timeouts() {
        let mut still = Standstill::new();
        let start = still.since;
        let mut next = |now, patience| {
            still.evaluate(now, &seen(&[(1, 1)]), patience);
            still.schedule_next(now, patience);
            still.next.unwrap() - now
        };
        assert_eq!(next(start, PATIENCE), SAMPLE_PERIOD);
        assert_eq!(next(start + PATIENCE, PATIENCE), DENSE_SAMPLE_PERIOD);
        let second = Duration::from_secs(1);
        assert_eq!(next(start, second), second / 2);
    }

    #[test]
    fn a_thread_with_high_cpu_demand_is_working() {
        let at_work = |wanted: &[(i32, u64)]| {
            let before = CpuDemand::from([(1, 5000), (2, 0)]);
            let now = wanted.iter().copied().collect();
            is_any_working(&before, &now, Duration::from_nanos(1000))
        };
        assert!(!at_work(&[(1, 5300), (2, 600)]));
        assert!(at_work(&[(1, 5300), (2, 900)]));
        assert!(at_work(&[(1, 5000), (2, 0), (3, 950)]), "a new one");
        assert!(demand_by_thread(std::process::id()).all(|one| one.is_some()));
    }

    #[test]
    fn this_process_is_not_traced() {
        assert!(!is_traced(std::process::id()));
    }
}
