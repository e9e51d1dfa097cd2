// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks ranks that have not called `MPI_Init`, and warns the user in two cases: such a rank has loaded an MPI that
//! does not support this launcher, or has exited while other ranks have called `MPI_Init` and may wait for it.

use super::rank::RankPhase;
use super::{Daemon, sweep};
use crate::foreign_mpi;
use std::time::{Duration, Instant};

/// Times of the checks, in milliseconds after the start of the ranks. There are several checks because an interpreter
/// takes some time before it loads libraries.
const CHECK_TIMES_MS: [u64; 5] = [100, 300, 1000, 3000, 8000];

/// State of the checks.
#[derive(Debug)]
pub(super) struct Probes {
    start: Instant,
    checks: usize,
    foreign_reported: bool,
    any_in_mpi: bool,
    left: Option<u32>,
    left_reported: bool,
}

impl Probes {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            checks: 0,
            foreign_reported: false,
            any_in_mpi: false,
            left: None,
            left_reported: false,
        }
    }

    pub(super) fn rank_entered_mpi(&mut self) {
        self.any_in_mpi = true;
    }

    pub(super) fn exited_without_init(&mut self, local: u32) {
        self.left = self.left.or(Some(local));
    }
}

impl Daemon {
    pub(super) fn next_probe(&self) -> Option<Instant> {
        let after = CHECK_TIMES_MS.get(self.probes.checks)?;
        let anybody = self
            .ranks
            .iter()
            .any(|rank| rank.alive && rank.phase == RankPhase::Started);
        (self.job.size > 1 && anybody).then(|| self.probes.start + Duration::from_millis(*after))
    }

    pub(super) fn probe(&mut self, now: Instant) {
        self.report_missing_ranks();
        if self.next_probe().is_none_or(|at| at > now) {
            return;
        }
        let check = self.probes.checks;
        self.probes.checks += 1;
        if !self.probes.foreign_reported {
            self.check_for_foreign_mpi(check > 0);
        }
    }

    fn report_missing_ranks(&mut self) {
        let Some(local) = self.probes.left.filter(|_| self.probes.any_in_mpi) else {
            return;
        };
        if std::mem::replace(&mut self.probes.left_reported, true) {
            return;
        }
        let (rank, pid) = (
            self.job.ranks[local as usize].rank,
            self.ranks[local as usize].pid,
        );
        self.notice(format!(
            "rank {rank} (pid {pid}) ended without MPI_Init while others called it; a rank that waits for it will wait for ever"
        ));
    }

    /// Checks the first rank that has not called `MPI_Init`, since all ranks of a program load the same libraries.
    /// `below`: whether the rank's descendants are checked too.
    fn check_for_foreign_mpi(&mut self, below: bool) {
        let fresh = self
            .ranks
            .iter()
            .position(|rank| rank.alive && rank.phase == RankPhase::Started);
        let Some(local) = fresh else { return };
        let pid = self.ranks[local].pid;
        let children = if below {
            sweep::descendants(&[pid])
        } else {
            Vec::new()
        };
        let mut pids = std::iter::once(pid).chain(children.iter().map(|process| process.pid));
        let Some((path, maker)) = pids.find_map(foreign_mpi::loaded) else {
            return;
        };
        self.probes.foreign_reported = true;
        let (rank, path) = (self.job.ranks[local].rank, path.display());
        self.notice(format!(
            "rank {rank} (pid {pid}) has loaded {path}, a library of {maker}, which does not know this launcher: each \
             process will believe that it is rank 0 of 1. Build the program with rmpicc, or start it with the mpiexec of {maker}"
        ));
    }
}
