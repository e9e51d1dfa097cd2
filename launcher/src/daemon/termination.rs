// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a node's part of the job: reaps children and evaluates their exits, sends signals to the ranks, and ends
//! processes that outlive the ranks.

use super::exec::{self, SPAWN_FAILURE_BYTES};
use super::rank::{LocalRank, RankPhase, severity};
use super::sweep::{self, signal_all};
use super::{Daemon, Token};
use crate::failure::FailureCause;
use crate::link::{self, NodeEvent, NodeSummary};
use crate::spawn::{self, Reaped};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Time for which processes that outlive the ranks may continue, since some end by themselves, such as helpers of a
/// Python interpreter. Also the time for which a wrapper may continue after its MPI process has terminated.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// Maximum time for which the evaluation of exits is postponed because another rank is exiting.
const CAUSE_WITHIN: Duration = Duration::from_millis(200);
/// Time between SIGTERM and SIGKILL for processes that outlived their rank.
const LEFTOVER_TERM: Duration = Duration::from_secs(1);
/// Interval between two rounds of SIGKILL.
const SWEEP_EVERY: Duration = Duration::from_millis(10);
/// Time after which processes that do not end after SIGKILL (in uninterruptible sleep) are reported and ignored.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Termination state of the node.
#[derive(Debug)]
pub(super) struct Termination {
    pub(super) front_connected: bool,
    pub(super) summary: NodeSummary,
    childless: bool,
    killing_since: Option<Instant>,
    next_sweep: Option<Instant>,
    /// Reaped children whose exits are evaluated later, at `postponed_until` at the latest.
    postponed: Vec<(u32, spawn::ChildExit)>,
    postponed_until: Option<Instant>,
    term_leftovers_at: Option<Instant>,
    kill_leftovers_at: Option<Instant>,
}

impl Termination {
    pub(super) fn new() -> Self {
        Self {
            front_connected: true,
            summary: NodeSummary::default(),
            childless: false,
            killing_since: None,
            next_sweep: None,
            postponed: Vec::new(),
            postponed_until: None,
            term_leftovers_at: None,
            kill_leftovers_at: None,
        }
    }

    /// Since when all processes are being killed; `None` if they are not.
    pub(super) fn is_killing(&self) -> Option<Instant> {
        self.killing_since
    }
}

impl Daemon {
    /// Reaps terminated children, and evaluates the exits of those that are ranks.
    pub(super) fn reap(&mut self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        let mut ended = std::mem::take(&mut self.termination.postponed);
        self.termination.childless = loop {
            match spawn::reap() {
                Reaped::Child(pid, ending) => ended.push((pid, ending)),
                Reaped::Stopped(pid, signal) => self.stopped(pid, signal),
                Reaped::NoneYet => break false,
                Reaped::NoChild => break true,
            }
        };
        self.read_spawn_failures();
        ended.sort_by_key(|(_, ending)| severity(*ending));
        if self.is_consequence(&ended) {
            let until = Instant::now() + CAUSE_WITHIN;
            self.termination.postponed_until.get_or_insert(until);
            self.termination.postponed = ended;
            return;
        }
        self.termination.postponed_until = None;
        for (pid, ending) in ended {
            if let Some(local) = self.by_pid.remove(&pid) {
                self.rank_ended(local, ending);
            }
            self.tools.retain(|tool| *tool != pid);
            self.reader_ended(pid, ending);
        }
        self.report_held();
        if self.alive() == 0
            && !self.termination.childless
            && self.termination.term_leftovers_at.is_none()
        {
            self.termination.term_leftovers_at = Some(Instant::now() + LEFTOVER_GRACE);
        }
    }

    /// Whether the reaped ranks may have failed as a consequence of another rank's failure: some of them exited with an
    /// error, none crashed, and a rank that was not reaped yet is exiting. `false` once [`CAUSE_WITHIN`] is over. The
    /// kernel closes the files of an exiting rank before the daemon can reap the rank, and other ranks may notice the
    /// closed files and exit.
    fn is_consequence(&self, ended: &[(u32, spawn::ChildExit)]) -> bool {
        let gave_up = |ending: &spawn::ChildExit| matches!(ending, spawn::ChildExit::Code(code) if *code != 0);
        let late = self
            .termination
            .postponed_until
            .is_some_and(|until| until <= Instant::now());
        let crash = ended.iter().any(|(_, ending)| severity(*ending) == 0);
        if late || crash || !ended.iter().any(|(_, ending)| gave_up(ending)) {
            return false;
        }
        let known = |pid: u32| ended.iter().any(|(other, _)| *other == pid);
        let others = self.ranks.iter().filter(|rank| rank.alive);
        others
            .map(|rank| rank.pid)
            .any(|pid| !known(pid) && sweep::is_exiting(pid))
    }

    fn rank_ended(&mut self, local: u32, ending: spawn::ChildExit) {
        // Messages and output that the rank sent before its exit are handled first.
        self.receive_messages(local);
        self.receive_pmi(local);
        self.streams
            .drain(local, &mut self.scratch, &mut self.front.outbox);
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.alive = false;
        rank.preference = None;
        rank.deserted_at = None;
        let (verdict, phase) = (rank.verdict(ending), rank.phase);
        let notified = self.records.ended(local);
        self.send_replies_to(notified);
        self.close_pmi(local);
        if self.alive() == 0 {
            self.reached(link::NodePhase::Ended);
        }
        match verdict {
            Some(how) => self.report(local, how, phase == RankPhase::Finalized),
            None if phase == RankPhase::Started => self.probes.exited_without_init(local),
            None => self.end_if_rank_missing(),
        }
    }

    fn read_spawn_failures(&mut self) {
        let mut bytes = [0; SPAWN_FAILURE_BYTES];
        while let Ok(SPAWN_FAILURE_BYTES) = nix::unistd::read(&self.failure_pipe, &mut bytes) {
            let (rank, message) = exec::describe_failure(bytes, &self.job);
            let local = self.job.ranks.iter().position(|placed| placed.rank == rank);
            if let Some(rank) = local.and_then(|local| self.ranks.get_mut(local)) {
                rank.not_started = Some(message);
            }
        }
    }

    /// Number of ranks that are alive and have not failed.
    fn others(&self) -> u32 {
        let others = self
            .ranks
            .iter()
            .filter(|rank| rank.alive && !rank.reported);
        u32::try_from(others.count()).unwrap_or(u32::MAX)
    }

    /// Number of ranks whose process has not terminated.
    pub(super) fn alive(&self) -> u32 {
        let alive = self.ranks.iter().filter(|rank| rank.alive).count();
        u32::try_from(alive).unwrap_or(u32::MAX)
    }

    /// Sends a signal to the process group of every rank that is alive.
    pub(super) fn signal_ranks(&mut self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else {
            return;
        };
        self.each_alive(signal);
        let ends = matches!(
            signal,
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT
        );
        if ends {
            self.termination.summary.signalled =
                self.termination.summary.signalled.max(self.others());
            // A stopped rank would not handle the signal.
            self.each_alive(Signal::SIGCONT);
        }
    }

    fn each_alive(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.alive) {
            let pid = Pid::from_raw(rank.pid.cast_signed());
            // If a new process does not lead its group yet, `killpg` fails, and the signal is sent to the process. If
            // the process has terminated, the signal has no effect on it, or both calls fail.
            let _ = killpg(pid, signal).or_else(|_| kill(pid, signal));
        }
    }

    /// Starts to send SIGKILL to every rank and all descendants, repeatedly until no process is left.
    pub(super) fn kill_all(&mut self) {
        if self.termination.killing_since.is_some() {
            return;
        }
        let now = Instant::now();
        self.termination.summary.killed = self.others();
        self.termination.killing_since = Some(now);
        self.termination.next_sweep = Some(now + SWEEP_EVERY);
        self.each_alive(Signal::SIGKILL);
    }

    /// The connection to the front is closed: ends the job.
    pub(super) fn handle_lost_front(&mut self) {
        if self.termination.front_connected {
            self.termination.front_connected = false;
            // Otherwise epoll would report the closed stream again and again.
            let _ = self.poller.delete(self.front.reading());
        }
        self.kill_all();
    }

    /// Handles the timeouts that have expired.
    pub(super) fn on_time(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.termination.term_leftovers_at) && self.termination.kill_leftovers_at.is_none() {
            self.termination.kill_leftovers_at = Some(now + LEFTOVER_TERM);
            if self.termination.killing_since.is_none() {
                let mut found = signal_all(Signal::SIGTERM);
                let reader = self.wait_query.pid();
                found.retain(|pid| Some(*pid) != reader);
                let count = |pids: Vec<&u32>| u32::try_from(pids.len()).unwrap_or(u32::MAX);
                let (tools, leftovers) = found.iter().partition(|pid| self.tools.contains(pid));
                self.termination.summary.tools = count(tools);
                self.termination.summary.leftovers = count(leftovers);
            }
        }
        if due(self.termination.kill_leftovers_at) {
            self.kill_all();
        }
        if due(self.termination.postponed_until) {
            self.reap();
        }
        if due(self.termination.next_sweep) {
            self.sweep(now);
        }
        self.streams.send_prompts(now, &mut self.front.outbox);
        self.report_deserted(now);
        self.probe(now);
        self.adjust_affinity(now);
        self.check_standstill(now);
        self.check_query_timeout(now);
    }

    fn sweep(&mut self, now: Instant) {
        self.reap();
        if self.termination.childless {
            self.termination.next_sweep = None;
            return;
        }
        let left = signal_all(Signal::SIGKILL);
        let since = self.termination.killing_since.unwrap_or(now);
        if now.duration_since(since) < GIVE_UP_AFTER {
            self.termination.next_sweep = Some(now + SWEEP_EVERY);
            return;
        }
        self.termination.summary.stubborn = left;
        self.termination.next_sweep = None;
        self.termination.childless = true;
        self.ranks.iter_mut().for_each(|rank| rank.alive = false);
    }

    fn report_deserted(&mut self, now: Instant) {
        let deserted = |rank: &LocalRank| rank.deserted_at.is_some_and(|at| at <= now);
        let locals: Vec<usize> = (0..self.ranks.len())
            .filter(|local| deserted(&self.ranks[*local]))
            .collect();
        for local in locals {
            let rank = &mut self.ranks[local];
            rank.deserted_at = None;
            let how = FailureCause::Deserted { pid: rank.mpi_pid };
            if !rank.reported {
                self.report(u32::try_from(local).unwrap_or(u32::MAX), how, false);
            }
        }
    }

    /// When the next timeout expires.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let leftovers = match self.termination.kill_leftovers_at {
            None => self.termination.term_leftovers_at,
            at => at.filter(|_| self.termination.killing_since.is_none()),
        };
        let deserters = self.ranks.iter().filter_map(|rank| rank.deserted_at).min();
        let times = [
            leftovers,
            self.termination.next_sweep,
            self.termination.postponed_until,
            self.streams.next_prompt(),
            deserters,
            self.next_probe(),
            self.next_affinity_check(),
            self.next_standstill_sample(),
            self.wait_query.next_time(),
        ];
        times.into_iter().flatten().min()
    }

    /// Whether no process is left and all output is queued for the front. If no process is left, reads the remaining
    /// output first.
    pub(super) fn is_over(&mut self) -> bool {
        let processes = self.alive() > 0 || !self.termination.childless;
        if processes || self.ranks.is_empty() && self.termination.killing_since.is_none() {
            return false;
        }
        self.streams.all_ended()
            || self
                .streams
                .finish(&mut self.scratch, &mut self.front.outbox)
    }

    /// Called when the MPI process of a rank has terminated, if it is a descendant of the process that the daemon
    /// started (a wrapper). If it ended inside MPI and the wrapper still runs, the wrapper gets [`LEFTOVER_GRACE`] to
    /// exit.
    pub(super) fn mpi_process_ended(&mut self, local: u32) {
        self.receive_messages(local);
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        if let Some(watch) = rank.watch.take() {
            let _ = self.poller.delete(&watch);
        }
        if rank.alive && rank.phase == RankPhase::InMpi {
            // If the wrapper exits soon, its exit status is reported instead, which has more information.
            rank.deserted_at = Some(Instant::now() + LEFTOVER_GRACE);
        }
    }

    /// Watches the MPI process of a rank if the daemon is not its parent.
    pub(super) fn watch_mpi_process(&mut self, local: u32, mpi_pid: u32) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.mpi_pid = mpi_pid;
        rank.deserted_at = None;
        if let Some(old) = rank.watch.take() {
            let _ = self.poller.delete(&old);
        }
        if mpi_pid == rank.pid {
            return;
        }
        let watch = match spawn::watch(mpi_pid) {
            Ok(watch) => watch,
            // The process has terminated before its `Hello` was read. Its other messages are read next.
            Err(Errno::ESRCH) => {
                rank.deserted_at = Some(Instant::now() + LEFTOVER_GRACE);
                return;
            }
            Err(_) => return,
        };
        let event = super::interest(nix::sys::epoll::EpollFlags::EPOLLIN, Token::Watch(local));
        if self.poller.add(&watch, event).is_ok() {
            rank.watch = Some(watch);
        }
    }

    /// Sends a message for the user.
    pub(super) fn notice(&mut self, message: String) {
        self.send_event(&NodeEvent::Notice(message));
    }
}
