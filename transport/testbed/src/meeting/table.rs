// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the state of one test on one host: the messages of all ranks, and the reason of a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::link::{HostLink, HostMessage};
use super::{MeetingLimits, PAUSE, gave_up, host_name};

/// The state of a test, for the thread that exchanges messages with the other hosts.
pub(super) struct MeetingTable {
    me: u32,
    links: Vec<HostLink>,
    limits: MeetingLimits,
    state: Arc<Mutex<MeetingState>>,
}

/// The state of a test, for a rank. Its methods panic after the test has failed on any host.
pub struct MeetingRank {
    pub me: u32,
    pub ranks: u32,
    limit: Instant,
    state: Arc<Mutex<MeetingState>>,
}

struct MeetingState {
    records: Vec<Option<Vec<u8>>>,
    /// Number of phases that each rank has completed.
    done: Vec<u32>,
    /// Messages of this host's ranks that must be sent to the other hosts.
    outgoing: Vec<HostMessage>,
    /// Number of ranks of this host whose threads are running.
    running: u32,
    /// The first reason why the test has failed; later failures are consequences of the first.
    failed: Option<String>,
}

impl MeetingState {
    fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Records a message of a rank on any host.
    fn record(&mut self, message: &HostMessage) {
        let known = self.done.len();
        match message {
            HostMessage::Record { rank, .. } | HostMessage::Done { rank }
                if *rank as usize >= known =>
            {
                self.fail(format!("{message:?} came, and there are {known} ranks"));
            }
            HostMessage::Record { rank, record } => {
                self.records[*rank as usize] = Some(record.clone());
            }
            HostMessage::Done { rank } => self.done[*rank as usize] += 1,
            HostMessage::GaveUp { host, why } => self.fail(gave_up(&host_name(*host), why)),
            _ => {}
        }
    }
}

impl MeetingTable {
    pub(super) fn new(me: u32, ranks: u32, links: Vec<HostLink>, limits: MeetingLimits) -> Self {
        let count = ranks as usize;
        Self {
            me,
            links,
            limits,
            state: Arc::new(Mutex::new(MeetingState {
                records: vec![None; count],
                done: vec![0; count],
                outgoing: Vec::new(),
                running: 0,
                failed: None,
            })),
        }
    }

    /// Runs the ranks of this host until all have ended, and sends their messages to the other hosts. Host a also
    /// relays the messages of the other hosts.
    pub(super) fn run<F>(&mut self, here: impl Iterator<Item = u32>, rank: F) -> Result<(), String>
    where
        F: Fn(&MeetingRank) + Clone + Send + 'static,
    {
        let limit = Instant::now() + self.limits.test;
        for me in here {
            self.start(me, limit, rank.clone());
        }
        while hold(&self.state).running > 0 {
            if let Err(why) = self.turn() {
                self.give_up(&why);
                return Err(why);
            }
            if Instant::now() > limit {
                let seconds = self.limits.test.as_secs_f32();
                hold(&self.state).fail(format!("the test took more than {seconds} s"));
            }
            std::thread::sleep(PAUSE);
        }
        self.finish(limit)
    }

    fn start<F>(&self, me: u32, limit: Instant, rank: F)
    where
        F: Fn(&MeetingRank) + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let place = MeetingRank {
            me,
            ranks: u32::try_from(hold(&state).done.len()).unwrap(),
            limit,
            state: Arc::clone(&state),
        };
        hold(&state).running += 1;
        std::thread::spawn(move || {
            let end = catch_unwind(AssertUnwindSafe(|| rank(&place)));
            let mut state = hold(&state);
            state.running -= 1;
            if let Err(panic) = end {
                state.fail(format!("rank {me}: {}", panic_message(&*panic)));
            }
        });
    }

    /// Exchanges new messages with the other hosts. `Err`: the test has failed.
    fn turn(&mut self) -> Result<(), String> {
        let outgoing = std::mem::take(&mut hold(&self.state).outgoing);
        for link in &mut self.links {
            outgoing.iter().for_each(|message| link.send(message));
            link.send_keep_alive();
        }
        for at in 0..self.links.len() {
            let end = self.links[at].turn();
            while let Some(message) = self.links[at].take() {
                hold(&self.state).record(&message);
                if matches!(
                    message,
                    HostMessage::Record { .. } | HostMessage::Done { .. }
                ) {
                    self.relay(at, &message);
                }
            }
            if let Err(why) = self.check_alive(at, end) {
                hold(&self.state).fail(why);
            }
        }
        hold(&self.state).failed.clone().map_or(Ok(()), Err)
    }

    /// Checks that a host has not disappeared before it has sent its last message.
    fn check_alive(&self, at: usize, end: Result<(), String>) -> Result<(), String> {
        let link = &self.links[at];
        let host = host_name(link.host.unwrap_or_default());
        let most = self.limits.silence;
        match end {
            _ if link.is_over => Ok(()),
            Err(why) => Err(format!("host {host} is lost: {why}")),
            Ok(()) if link.silence() > most => {
                let seconds = most.as_secs_f32();
                Err(format!("host {host} sent nothing for {seconds} s"))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Relays a message of one host to the others.
    fn relay(&mut self, from: usize, message: &HostMessage) {
        for (at, link) in self.links.iter_mut().enumerate() {
            if at != from {
                link.send(message);
            }
        }
    }

    /// Sends the other hosts the reason why this host gives up, and waits until the ranks of this host have ended.
    fn give_up(&mut self, why: &str) {
        let limit = Instant::now() + self.limits.end;
        for link in &mut self.links {
            let why = why.to_owned();
            link.send(&HostMessage::GaveUp { host: self.me, why });
        }
        for link in &mut self.links {
            link.finish(limit.saturating_duration_since(Instant::now()));
        }
        while hold(&self.state).running > 0 && Instant::now() < limit {
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends a successful test: waits until all messages are sent, and the last message of every other host is received.
    fn finish(&mut self, limit: Instant) -> Result<(), String> {
        self.turn().inspect_err(|why| self.give_up(why))?;
        for link in &mut self.links {
            link.send(&HostMessage::Bye);
        }
        while let Some(host) = self.not_over() {
            self.turn().inspect_err(|why| self.give_up(why))?;
            if Instant::now() > limit {
                return Err(format!(
                    "the test went well, and host {host} does not end it"
                ));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// A host whose last message was not received, or to which messages of this host are still queued.
    fn not_over(&self) -> Option<String> {
        let open = |link: &&HostLink| !link.is_over || !link.is_flushed();
        let open = self.links.iter().find(open)?;
        open.host.map(host_name)
    }
}

impl MeetingRank {
    /// Sends this rank's record to all ranks; waits for the records of all ranks, and returns them.
    pub fn exchange(&self, record: Vec<u8>) -> Vec<Vec<u8>> {
        self.publish(HostMessage::Record {
            rank: self.me,
            record,
        });
        loop {
            let state = self.locked_state();
            if state.records.iter().all(Option::is_some) {
                return state.records.iter().flatten().cloned().collect();
            }
            drop(state);
            std::thread::sleep(PAUSE);
        }
    }

    /// Reports that this rank has completed another phase.
    pub fn report_done(&self) {
        self.publish(HostMessage::Done { rank: self.me });
    }

    /// Whether all ranks have completed this many phases.
    pub fn is_over(&self, phases: u32) -> bool {
        self.locked_state().done.iter().all(|done| *done >= phases)
    }

    fn publish(&self, message: HostMessage) {
        let mut state = self.locked_state();
        state.record(&message);
        state.outgoing.push(message);
    }

    /// Locks and returns the state; panics if the test has failed.
    fn locked_state(&self) -> MutexGuard<'_, MeetingState> {
        let state = hold(&self.state);
        if let Some(why) = &state.failed {
            let why = why.clone();
            drop(state);
            panic!("{why}");
        }
        if Instant::now() > self.limit {
            drop(state);
            panic!("a rank waits for ever");
        }
        state
    }
}

/// Locks the state, and ignores poisoning: the state is consistent after each statement.
fn hold(state: &Mutex<MeetingState>) -> MutexGuard<'_, MeetingState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked without a message").to_owned()
}
