// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a node's part of the job ends: children are taken away and judged, signals go to the ranks, and what outlives
//! the ranks is ended too.

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

/// Helpers that end by themselves with their rank, as those of a Python interpreter, get this time.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// The end of a rank that is on its way out is waited for so long before others' ends are judged.
const CAUSE_WITHIN: Duration = Duration::from_millis(200);
/// Between SIGTERM and SIGKILL for what outlived its rank.
const LEFTOVER_TERM: Duration = Duration::from_secs(1);
/// Between two looks at what is left while killing.
const SWEEP_EVERY: Duration = Duration::from_millis(10);
/// A process in the kernel's hands for longer is reported and left.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// The state of it.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) front_is_there: bool,
    pub(super) gone: Gone,
    childless: bool,
    killing_since: Option<Instant>,
    next_sweep: Option<Instant>,
    /// Children that have ended and are judged later, at the latest then.
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

    /// Since when everything is being killed.
    pub(super) fn is_killing(&self) -> Option<Instant> {
        self.killing_since
    }
}

impl Daemon {
    /// Takes ended children away and judges those that are ranks.
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

    /// Whether ranks gave up while another one is still on its way out: that one's files were closed, which the others may
    /// have seen, before its end is known here.
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
        // What it said and wrote before it ended comes first.
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

    /// Ranks that are alive, without those that have failed.
    fn others(&self) -> u32 {
        let others = self
            .ranks
            .iter()
            .filter(|rank| rank.alive && !rank.reported);
        u32::try_from(others.count()).unwrap_or(u32::MAX)
    }

    /// Ranks whose process has not ended.
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
            // One that is stopped would not notice.
            self.each_alive(Signal::SIGCONT);
        }
    }

    fn each_alive(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.alive) {
            let pid = Pid::from_raw(rank.pid.cast_signed());
            // A process that was just made may not be in its group yet; one that has ended needs no signal.
            let _ = killpg(pid, signal).or_else(|_| kill(pid, signal));
        }
    }

    /// SIGKILL to every rank and everything below, until nothing is left.
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

    /// The job is over when its front is.
    pub(super) fn front_is_gone(&mut self) {
        if self.ending.front_is_there {
            self.ending.front_is_there = false;
            // A closed stream would be told in every turn.
            let _ = self.poller.delete(self.edge.reading());
        }
        self.kill_all();
    }

    /// What is due by the clock.
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

    /// When something is due next.
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

    /// Whether no process is left and everything they wrote is on its way.
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

    /// The MPI process of a rank has ended and the wrapper that started it has not, yet.
    pub(super) fn greeter_ended(&mut self, local: u32) {
        self.listen_to(local);
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        if let Some(watch) = rank.watch.take() {
            let _ = self.poller.delete(&watch);
        }
        if rank.alive && rank.phase == Phase::Greeted {
            // A script that ends because its program did tells more than we know.
            rank.deserted_at = Some(Instant::now() + LEFTOVER_GRACE);
        }
    }

    /// Watches the MPI process of a rank if it is not the one that was started.
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
            // It said hello and ended before we heard it; if it said more, that is heard next.
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

    /// Tells the user something.
    pub(super) fn notice(&mut self, words: String) {
        self.tell(&Event::Notice(words));
    }
}
