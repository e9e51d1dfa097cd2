// SPDX-License-Identifier: MIT OR Apache-2.0
//! Termination of a node's part of the job: children are reaped and judged, signals are sent to the ranks, and
//! processes that outlive the ranks are ended too.

use super::birth::{self, COMPLAINT_BYTES};
use super::rank::{Phase, Rank, severity};
use super::sweep::{self, signal_all};
use super::{Daemon, Token};
use crate::failure::How;
use crate::link::{self, Event, Gone};
use crate::spawn::{self, Reaped};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Time for processes that end by themselves after their rank, such as helpers of a Python interpreter.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// Longest wait for a rank that is exiting before other ranks' exits are judged.
const CAUSE_WITHIN: Duration = Duration::from_millis(200);
/// Time between SIGTERM and SIGKILL for processes that outlived their rank.
const LEFTOVER_TERM: Duration = Duration::from_secs(1);
/// Interval between two rounds of SIGKILL.
const SWEEP_EVERY: Duration = Duration::from_millis(10);
/// Time after which a process that cannot be killed (in uninterruptible sleep) is reported and left.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Termination state of the node.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) front_is_there: bool,
    pub(super) gone: Gone,
    childless: bool,
    killing_since: Option<Instant>,
    next_sweep: Option<Instant>,
    /// Reaped children that are judged later, at `put_off_until` at the latest.
    put_off: Vec<(u32, spawn::Ending)>,
    put_off_until: Option<Instant>,
    term_leftovers_at: Option<Instant>,
    kill_leftovers_at: Option<Instant>,
}

impl Ending {
    pub(super) fn new() -> Self {
        Self {
            front_is_there: true,
            gone: Gone::default(),
            childless: false,
            killing_since: None,
            next_sweep: None,
            put_off: Vec::new(),
            put_off_until: None,
            term_leftovers_at: None,
            kill_leftovers_at: None,
        }
    }

    /// Since when all processes are being killed.
    pub(super) fn is_killing(&self) -> Option<Instant> {
        self.killing_since
    }
}

impl Daemon {
    /// Reaps terminated children and judges those that are ranks.
    pub(super) fn reap(&mut self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        let mut ended = std::mem::take(&mut self.ending.put_off);
        self.ending.childless = loop {
            match spawn::reap() {
                Reaped::Child(pid, ending) => ended.push((pid, ending)),
                Reaped::Stopped(pid, signal) => self.stopped(pid, signal),
                Reaped::NoneYet => break false,
                Reaped::NoChild => break true,
            }
        };
        self.hear_complaints();
        ended.sort_by_key(|(_, ending)| severity(*ending));
        if self.is_consequence(&ended) {
            let until = Instant::now() + CAUSE_WITHIN;
            self.ending.put_off_until.get_or_insert(until);
            self.ending.put_off = ended;
            return;
        }
        self.ending.put_off_until = None;
        for (pid, ending) in ended {
            if let Some(local) = self.by_pid.remove(&pid) {
                self.rank_ended(local, ending);
            }
            self.tools.retain(|tool| *tool != pid);
            self.reader_ended(pid, ending);
        }
        self.tell_if_held();
        if self.alive() == 0 && !self.ending.childless && self.ending.term_leftovers_at.is_none() {
            self.ending.term_leftovers_at = Some(Instant::now() + LEFTOVER_GRACE);
        }
    }

    /// Whether ranks failed while another one is still exiting: the kernel closes that one's files, which the others
    /// may have noticed, before its exit is reported to the daemon.
    fn is_consequence(&self, ended: &[(u32, spawn::Ending)]) -> bool {
        let gave_up =
            |ending: &spawn::Ending| matches!(ending, spawn::Ending::Code(code) if *code != 0);
        let late = self
            .ending
            .put_off_until
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

    fn rank_ended(&mut self, local: u32, ending: spawn::Ending) {
        // Messages and output from before its exit come first.
        self.listen_to(local);
        self.hear_pmi(local);
        self.streams
            .drain(local, &mut self.scratch, &mut self.edge.outbox);
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.alive = false;
        rank.tended = None;
        rank.deserted_at = None;
        let (verdict, phase) = (rank.verdict(ending), rank.phase);
        let told = self.records.ended(local);
        self.answer_all(told);
        self.end_pmi(local);
        if self.alive() == 0 {
            self.reached(link::Phase::Ended);
        }
        match verdict {
            Some(how) => self.report(local, how, phase == Phase::Finalized),
            None if phase == Phase::Fresh => self.probes.left_without_init(local),
            None => self.end_if_alone(),
        }
    }

    fn hear_complaints(&mut self) {
        let mut bytes = [0; COMPLAINT_BYTES];
        while let Ok(COMPLAINT_BYTES) = nix::unistd::read(&self.complaints, &mut bytes) {
            let (rank, words) = birth::words(bytes, &self.job);
            let local = self.job.ranks.iter().position(|placed| placed.rank == rank);
            if let Some(rank) = local.and_then(|local| self.ranks.get_mut(local)) {
                rank.not_started = Some(words);
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
            self.ending.gone.signalled = self.ending.gone.signalled.max(self.others());
            // A stopped rank would not receive it.
            self.each_alive(Signal::SIGCONT);
        }
    }

    fn each_alive(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.alive) {
            let pid = Pid::from_raw(rank.pid.cast_signed());
            // A new process may not be in its group yet; a terminated one needs no signal.
            let _ = killpg(pid, signal).or_else(|_| kill(pid, signal));
        }
    }

    /// Sends SIGKILL to every rank and all descendants, repeatedly until none is left.
    pub(super) fn kill_all(&mut self) {
        if self.ending.killing_since.is_some() {
            return;
        }
        let now = Instant::now();
        self.ending.gone.killed = self.others();
        self.ending.killing_since = Some(now);
        self.ending.next_sweep = Some(now + SWEEP_EVERY);
        self.each_alive(Signal::SIGKILL);
    }

    /// The connection to the front is closed, which ends the job.
    pub(super) fn front_is_gone(&mut self) {
        if self.ending.front_is_there {
            self.ending.front_is_there = false;
            // epoll would report the closed stream in every turn.
            let _ = self.poller.delete(self.edge.reading());
        }
        self.kill_all();
    }

    /// Does what is due by the clock.
    pub(super) fn on_time(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.ending.term_leftovers_at) && self.ending.kill_leftovers_at.is_none() {
            self.ending.kill_leftovers_at = Some(now + LEFTOVER_TERM);
            if self.ending.killing_since.is_none() {
                let mut found = signal_all(Signal::SIGTERM);
                let look = self.look.pid();
                found.retain(|pid| Some(*pid) != look);
                let count = |pids: Vec<&u32>| u32::try_from(pids.len()).unwrap_or(u32::MAX);
                let (tools, leftovers) = found.iter().partition(|pid| self.tools.contains(pid));
                self.ending.gone.tools = count(tools);
                self.ending.gone.leftovers = count(leftovers);
            }
        }
        if due(self.ending.kill_leftovers_at) {
            self.kill_all();
        }
        if due(self.ending.put_off_until) {
            self.reap();
        }
        if due(self.ending.next_sweep) {
            self.sweep(now);
        }
        self.streams.send_prompts(now, &mut self.edge.outbox);
        self.report_deserters(now);
        self.probe(now);
        self.tend(now);
        self.look_for_standstill(now);
        self.look_at_clock(now);
    }

    fn sweep(&mut self, now: Instant) {
        self.reap();
        if self.ending.childless {
            self.ending.next_sweep = None;
            return;
        }
        let left = signal_all(Signal::SIGKILL);
        let since = self.ending.killing_since.unwrap_or(now);
        if now.duration_since(since) < GIVE_UP_AFTER {
            self.ending.next_sweep = Some(now + SWEEP_EVERY);
            return;
        }
        self.ending.gone.stubborn = left;
        self.ending.next_sweep = None;
        self.ending.childless = true;
        self.ranks.iter_mut().for_each(|rank| rank.alive = false);
    }

    fn report_deserters(&mut self, now: Instant) {
        let deserted = |rank: &Rank| rank.deserted_at.is_some_and(|at| at <= now);
        let locals: Vec<usize> = (0..self.ranks.len())
            .filter(|local| deserted(&self.ranks[*local]))
            .collect();
        for local in locals {
            let rank = &mut self.ranks[local];
            rank.deserted_at = None;
            let how = How::Deserted { pid: rank.greeter };
            if !rank.reported {
                self.report(u32::try_from(local).unwrap_or(u32::MAX), how, false);
            }
        }
    }

    /// When the next timeout is due.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let leftovers = match self.ending.kill_leftovers_at {
            None => self.ending.term_leftovers_at,
            at => at.filter(|_| self.ending.killing_since.is_none()),
        };
        let deserters = self.ranks.iter().filter_map(|rank| rank.deserted_at).min();
        let times = [
            leftovers,
            self.ending.next_sweep,
            self.ending.put_off_until,
            self.streams.next_prompt(),
            deserters,
            self.next_probe(),
            self.next_tending(),
            self.next_stillness_look(),
            self.look.next_time(),
        ];
        times.into_iter().flatten().min()
    }

    /// Whether no process is left and all output is queued for the front.
    pub(super) fn is_over(&mut self) -> bool {
        let processes = self.alive() > 0 || !self.ending.childless;
        if processes || self.ranks.is_empty() && self.ending.killing_since.is_none() {
            return false;
        }
        self.streams.all_ended()
            || self
                .streams
                .finish(&mut self.scratch, &mut self.edge.outbox)
    }

    /// The MPI process of a rank has terminated, and the wrapper that started it has not, yet.
    pub(super) fn greeter_ended(&mut self, local: u32) {
        self.listen_to(local);
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        if let Some(watch) = rank.watch.take() {
            let _ = self.poller.delete(&watch);
        }
        if rank.alive && rank.phase == Phase::Greeted {
            // The wrapper's own exit status has more information if it exits soon.
            rank.deserted_at = Some(Instant::now() + LEFTOVER_GRACE);
        }
    }

    /// Watches the MPI process of a rank if the daemon is not its parent.
    pub(super) fn watch_greeter(&mut self, local: u32, greeter: u32) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.greeter = greeter;
        rank.deserted_at = None;
        if let Some(old) = rank.watch.take() {
            let _ = self.poller.delete(&old);
        }
        if greeter == rank.pid {
            return;
        }
        let watch = match spawn::watch(greeter) {
            Ok(watch) => watch,
            // It terminated before its `Hello` was read; its later messages are read next.
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
    pub(super) fn notice(&mut self, words: String) {
        self.tell(&Event::Notice(words));
    }
}
