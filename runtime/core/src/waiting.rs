// SPDX-License-Identifier: MIT OR Apache-2.0
//! How this process waits when nothing happens: it spins while no other process needs the core, yields the core, or
//! sleeps until a doorbell wakes it. Nothing here makes progress: the waiting call makes turns of progress, and rests
//! here between two turns.
//!
//! | topic                                              | file |
//! |----------------------------------------------------|-----------------------|
//! | the rest of a wait, sleep                          | here |
//! | the rest between two test calls of the application | `waiting/polling.rs` |
//! | records of waiting calls for debuggers             | `waiting/calls.rs` |
//! | whether ranks share cores                          | `oversubscription.rs` |

mod calls;
mod polling;

use std::time::{Duration, Instant};

use channel::Channels;
use engine::EventType;
use queue_layout::{CallTable, EngineCounters};
use transport::seat::Awaited;
use transport::{Fabric, wait};

use crate::awaits::Awaits;
use crate::carrier::carrier;
use crate::messages::Messages;
use crate::network::JobNetwork;
use crate::oversubscription::Crowding;
use crate::pump::Pump;
use crate::var::Variable;
use crate::var::live::{live, live_u32};
use polling::Polling;

pub use polling::Pause;
pub(crate) use polling::Rested;

/// How a process waits: when it polls, yields and sleeps.
#[derive(Debug)]
pub struct WaitPolicy {
    pub(crate) crowding: Crowding,
    pub(crate) polling: Polling,
    calls: Box<CallTable>,
    /// The store at a board that a collective waits for.
    pub(crate) awaited: Option<AtBoard>,
}

/// A store at a board that a collective waits for.
#[derive(Debug)]
pub(crate) struct AtBoard {
    pub(crate) target: Awaited,
    /// Whether the leader of this node must wait for other nodes before it stores. Such a wait takes longer than one
    /// turn of each rank of this node.
    pub(crate) is_from_other_nodes: bool,
}

/// The parts of the process that a wait needs: it checks them before it sleeps, and counts its yields in them.
pub(crate) struct WaitContext<'a> {
    pub(crate) messages: &'a mut Messages,
    pub(crate) channels: &'a mut Channels,
    pub(crate) network: &'a mut JobNetwork,
}

impl WaitContext<'_> {
    pub(crate) fn fabric(&mut self) -> &mut Fabric {
        &mut self.messages.pump.fabric
    }

    fn counters(&self) -> &EngineCounters {
        self.messages.pump.engine.live_counters()
    }

    /// Whether a frame waits for room. No doorbell rings when room comes back, so a sleep must be short then. Frames to
    /// a peer whose address record has not arrived are not counted: the process polls for the reply with that record at
    /// least once in each [sleep limit](JobNetwork::sleep_limit).
    fn waits_for_room(&self) -> bool {
        let Pump { engine, fabric, .. } = &self.messages.pump;
        let mut busy = engine.busy();
        let is_known = |peer| fabric.provider_of(carrier(peer)).is_some();
        busy.any(is_known) || self.channels.waits_for_room()
    }

    fn offer_core(&self) {
        self.counters().yields.add(1);
        wait::yield_core();
    }

    fn sleep_unless(
        &mut self,
        timeout: Duration,
        wait: Option<&mut WaitProgress>,
        has_happened: impl FnOnce() -> bool,
    ) -> bool {
        if !self.fabric().prepare_sleep() {
            self.offer_core();
            return false;
        }
        if has_happened() || self.has_arrivals() {
            self.fabric().stay_awake();
            return false;
        }
        let Pump { engine, fabric, .. } = &mut self.messages.pump;
        if let Some(wait) = wait {
            wait.report(fabric, false);
        }
        let most_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        engine.note(EventType::SleepBegin, [most_ns, 0, 0, 0, 0]);
        fabric.sleep(timeout);
        engine.note(EventType::SleepEnd, [most_ns, 0, 0, 0, 0]);
        true
    }

    /// The last check before this process sleeps: whether something has arrived that rings no doorbell.
    fn has_arrivals(&mut self) -> bool {
        self.channels.has_arrivals() || self.messages.gates.has_arrivals()
    }
}

/// How long one wait has lasted, and what it has done so far.
#[derive(Debug, Default)]
pub struct WaitProgress {
    polls: u32,
    yields: u32,
    since: Option<Instant>,
    /// Whether the wait was reported to observers outside the process.
    is_reported: bool,
    /// Whether the wait is in a collective that every rank of the node enters: such a wait yields more often before it
    /// sleeps.
    patient: bool,
    /// Whether other processes ran on this core at the last yield.
    contended: bool,
    /// Index of the wait's record for debuggers. `None`: the wait is short so far, or no row was free.
    noted: Option<usize>,
    /// Number of completions at the last call of [`renew_note`](WaitPolicy::renew_note).
    completions_seen: Option<u64>,
    /// When the wait became long; `None`: it is short so far.
    long_since: Option<Instant>,
}

impl WaitProgress {
    /// A new wait. `patient`: whether it is in a collective that every rank of the node enters.
    pub(crate) fn new(patient: bool) -> Self {
        Self {
            patient,
            ..Self::default()
        }
    }

    /// Restarts the wait after progress. Only `patient` and what belongs to its record for debuggers stay.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self {
            patient: self.patient,
            noted: self.noted,
            long_since: self.long_since,
            completions_seen: self.completions_seen,
            ..Self::default()
        };
    }

    /// Whether the wait has become long.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.long_since.is_some()
    }

    /// Sets the index of the wait's record for debuggers; `None`: no row was free.
    pub(crate) fn set_note(&mut self, noted: Option<usize>) {
        self.noted = noted;
    }

    /// Whether the wait is recorded for debuggers.
    #[inline]
    pub(crate) fn is_noted(&self) -> bool {
        self.noted.is_some()
    }

    /// For a process with several threads: if the wait has lasted long enough, marks it as long. `true`: it has become
    /// long with this call.
    pub(crate) fn becomes_long_shared(&mut self) -> bool {
        let becomes = self.polls >= live_u32(Variable::ThreadSpins) && self.long_since.is_none();
        if becomes {
            self.long_since = Some(Instant::now());
        }
        becomes
    }

    /// Reports to observers of the job's activity that this wait continues. `is_shared`: whether other threads may
    /// visit.
    pub(crate) fn report(&mut self, fabric: &Fabric, is_shared: bool) {
        let begins = !std::mem::replace(&mut self.is_reported, true);
        fabric.count_sleep(begins, is_shared);
    }

    /// For a process with several threads: whether the wait is due to be reported outside the process.
    pub(crate) fn is_report_due_shared(&self) -> bool {
        self.polls > SHORT_YIELDS && self.polls.is_multiple_of(SHORT_YIELDS)
    }

    /// For a process with several threads: counts a yield. `true`: the wait yields the core; `false`: it has yielded
    /// often enough, and sleeps.
    pub(crate) fn yields_shared(&mut self) -> bool {
        self.yields = self.yields.saturating_add(1);
        self.yields < SHORT_YIELDS
    }

    /// Rests while other threads may visit. `is_contended`: whether other threads are visiting at present; if so, the
    /// wait does not spin. The rest is short, because a doorbell wakes only a thread that sleeps in the transport.
    pub(crate) fn outside(&mut self, is_contended: bool) {
        self.polls += 1;
        match self.polls {
            polls if !is_contended && polls < live_u32(Variable::ThreadSpins) => {
                std::hint::spin_loop();
            }
            0..SHORT_YIELDS => wait::yield_core(),
            _ => std::thread::sleep(short_sleep()),
        }
    }
}

impl WaitPolicy {
    /// `policy`: index of the value of RMPI_WAIT.
    pub(crate) fn new(policy: u64) -> Self {
        Self {
            crowding: Crowding::new(policy),
            polling: Polling::default(),
            calls: Box::default(),
            awaited: None,
        }
    }

    /// Changes the policy.
    pub(crate) fn follow(&mut self, policy: u64, fabric: &mut Fabric) {
        self.crowding.follow(policy);
        fabric.set_sleepless(self.crowding.is_sleepless());
        self.update_crowding(fabric);
    }

    /// Passes on to the transport whether ranks share cores.
    pub(crate) fn update_crowding(&self, fabric: &mut Fabric) {
        fabric.set_attentive(!self.crowding.is_crowded());
        fabric.set_lacks_core(self.crowding.is_by_others());
    }

    /// The table of waiting calls, for debuggers.
    #[must_use]
    pub fn call_table(&self) -> &CallTable {
        &self.calls
    }

    /// Counts one more turn in which nothing happened. `true`: the wait may spin until the next turn, because it is
    /// still short and no other process is known to need the core. `false`: [`rest_long`](Self::rest_long) must follow.
    #[inline(always)]
    pub(crate) fn spins(&self, wait: &mut WaitProgress, fabric: &Fabric) -> bool {
        wait.polls += 1;
        let spins = !self.crowding.is_crowded() && wait.polls < live_u32(Variable::Spins);
        spins
            && (wait.polls < SOFT_SPINS || !(fabric.is_any_peer_lacking() || fabric.needs_cores()))
    }

    /// Rests in a wait that no longer spins. `function`: the MPI function that waits; `awaits`: what it waits for.
    /// `true`: it is time to check the connection to the daemon.
    pub(crate) fn rest_long(
        &mut self,
        wait: &mut WaitProgress,
        (function, awaits): (&'static str, Awaits),
        context: &mut WaitContext<'_>,
    ) -> bool {
        let is_new = wait.long_since.is_none();
        if is_new {
            wait.long_since = Some(Instant::now());
        }
        // If ranks share cores, most waits end before this process gets the core back for the first time. So the record
        // is made only after that.
        if wait.noted.is_none() && !(is_new && self.crowding.is_crowded()) {
            wait.noted = self.note_call(context.messages, function, awaits);
        }
        // If the kernel processes the network packets, polling takes CPU time from this process's own messages. So the
        // process then rests as if ranks shared cores.
        let is_needed = !self.crowding.is_sleepless() && context.fabric().needs_cores();
        if is_needed || self.crowding.is_crowded() {
            return self.rest_crowded(wait, context);
        }
        let now = Instant::now();
        let since = *wait.since.get_or_insert(now);
        self.assess(now, context.fabric());
        if now - since < awake_time(context.fabric()) || self.crowding.is_sleepless() {
            let is_sleepless = self.crowding.is_sleepless();
            if is_sleepless {
                wait.report(context.fabric(), false);
            }
            context.offer_core();
            is_sleepless
        } else {
            let longest = Duration::from_millis(live(Variable::LongSleep));
            let slept = self.sleep(longest, Some(wait), context);
            if !slept && !context.fabric().is_woken_by_network() {
                // Something has arrived, perhaps only for the network. The process stays awake for what may follow.
                wait.since = None;
                return true;
            }
            slept
        }
    }

    /// Renews the record of a wait in a collective, if the wait has a record for debuggers and something has arrived
    /// since the last call of this method. `completions_seen`: the number of completions so far.
    #[cold]
    pub(crate) fn renew_note(&self, wait: &mut WaitProgress, completions_seen: u64) {
        let before = wait.completions_seen.replace(completions_seen);
        if let Some(number) = wait.noted
            && before.is_some_and(|before| before != completions_seen)
        {
            self.calls.renew(number);
        }
    }

    /// Records the end of a long wait.
    #[cold]
    pub(crate) fn end_long(&self, wait: &WaitProgress, counters: &EngineCounters) {
        if let Some(number) = wait.noted {
            self.calls.end(number);
        }
        let time = wait.long_since.map(|since| since.elapsed());
        count_wait(counters, time.unwrap_or_default());
    }

    /// Yields the core; or sleeps if other processes need it, or after at most `RMPI_SPIN_TIME`. It does not sleep
    /// sooner because waking a rank on an idle core costs several times as much as on a busy core. `true`: it slept.
    fn rest_crowded(&mut self, wait: &mut WaitProgress, context: &mut WaitContext<'_>) -> bool {
        match self.yield_or_sleep(wait, context) {
            Some(longest) => self.sleep(longest, Some(wait), context),
            None => false,
        }
    }

    /// Yields the core, if a yield is enough; else returns the longest time to sleep.
    fn yield_or_sleep(
        &mut self,
        wait: &mut WaitProgress,
        context: &mut WaitContext<'_>,
    ) -> Option<Duration> {
        let yields = live_u32(match wait.patient {
            true => Variable::PatientYields,
            false => Variable::Yields,
        });
        let now = Instant::now();
        let is_from_other_nodes = self
            .awaited
            .as_ref()
            .is_some_and(|it| it.is_from_other_nodes);
        let is_from_other_nodes = is_from_other_nodes && self.crowding.is_crowded();
        let yields_well = !is_from_other_nodes && !self.crowding.is_core_busy(now);
        if yields_well && wait.yields < yields {
            wait.yields += 1;
            context.offer_core();
            self.crowding.note_yield(now);
            return None;
        }
        let since = *wait.since.get_or_insert(now);
        self.assess(now, context.fabric());
        let stay_time = match wait.patient && context.fabric().has_network() {
            // Several ranks of a node may wait for other nodes at the same time. The scheduler moves no work to their
            // cores while they stay awake, because a core that yields seems busy. So these ranks sleep sooner.
            true => awake_time(context.fabric()) / 20,
            false => awake_time(context.fabric()),
        };
        let stays = yields_well && !wait.contended && now - since < stay_time;
        if stays
            && self.crowding.yield_reveals_others()
            && !self.crowding.is_rationed()
            && !context.fabric().needs_cores()
        {
            context.counters().yields.add(1);
            wait.contended = wait::yield_to_others();
            return None;
        }
        Some(Duration::from_millis(live(Variable::LongSleep)))
    }

    /// Sleeps for at most `longest`, unless something has happened. `true`: it has slept. If it sleeps, `wait` is
    /// reported to observers of the job's activity.
    fn sleep(
        &mut self,
        longest: Duration,
        wait: Option<&mut WaitProgress>,
        context: &mut WaitContext<'_>,
    ) -> bool {
        // No doorbell rings when room comes back or a helper thread finishes. If the process waits for that, the sleep
        // must be short.
        let timeout = match context.waits_for_room() {
            false => longest,
            true => longest.min(short_sleep()),
        };
        let timeout = timeout.min(context.network.sleep_limit());
        match &self.awaited {
            None => context.sleep_unless(timeout, wait, || false),
            Some(awaited) => {
                let mut slept = false;
                let sleep = |it: &Awaited| {
                    slept = context.sleep_unless(timeout, wait, || it.has_happened());
                };
                awaited.target.doze(sleep);
                slept
            }
        }
    }

    /// Whether ranks share cores, as far as it is known now.
    pub(crate) fn shares_core(&mut self, fabric: &mut Fabric) -> bool {
        self.assess(Instant::now(), fabric);
        self.crowding.is_crowded()
    }

    /// Sleeps once, until another rank makes the store `target` to a board, another event wakes this process, or the
    /// time limit is over. To be called for a store that takes long. `false`: it did not sleep, for example because
    /// something has arrived.
    pub(crate) fn sleep_at_board(
        &mut self,
        target: Awaited,
        context: &mut WaitContext<'_>,
    ) -> bool {
        self.awaited = Some(AtBoard {
            target,
            is_from_other_nodes: true,
        });
        let since = Instant::now();
        let slept = self.sleep(
            Duration::from_millis(live(Variable::LongSleep)),
            None,
            context,
        );
        self.awaited = None;
        count_wait(context.counters(), since.elapsed());
        slept
    }

    /// Checks whether ranks share cores, if the last check is long enough ago.
    fn assess(&mut self, now: Instant, fabric: &mut Fabric) {
        if self.crowding.assess(now, fabric) {
            self.update_crowding(fabric);
        }
    }
}

/// For a process with several threads: a wait sleeps after this many polls. From then on it is reported once in this
/// many polls.
const SHORT_YIELDS: u32 = 256;
/// After this number of polls a spinning wait also checks whether a peer lacks a core or the network needs this core.
const SOFT_SPINS: u32 = 100;

/// How long a waiting rank stays awake although it could sleep. The time is shorter if some rank has no core, because
/// this rank may be using the core that the awaited rank needs.
fn awake_time(fabric: &Fabric) -> Duration {
    let time = Duration::from_micros(live(Variable::SpinTime));
    match fabric.is_any_peer_lacking() {
        true => time / 10,
        false => time,
    }
}

/// Counts a long wait that has ended.
fn count_wait(counters: &EngineCounters, time: Duration) {
    counters.waits.add(1);
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    counters.waited_ns.add(ns);
}

/// Limit of a sleep from which no doorbell would wake the process.
pub(crate) fn short_sleep() -> Duration {
    Duration::from_micros(live(Variable::ShortSleep))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Comm, Group};
    use crate::operation::{Mode, SendTarget};
    use crate::testing::messages_alone;
    use crate::user_buf::UserMemory;
    use crate::var::VariableValues;
    use crate::var::live::change;
    use crate::{ContextId, Universe};
    use engine::Peer;
    use transport::{FakeConfig, FakeNet, FakeStreams, NetLimits, StreamsConfig};

    /// Number of polls of a wait until it is long, and number of yields after that.
    fn long_after(spins: u64, spin_micros: u64) -> (u32, u64) {
        let mut waiting = WaitPolicy::new(0);
        let (mut messages, mut channels) = (messages_alone(), Channels::new());
        let mut network = JobNetwork::new(0);
        let mut context = WaitContext {
            messages: &mut messages,
            channels: &mut channels,
            network: &mut network,
        };
        change(Variable::Spins, spins);
        change(Variable::SpinTime, spin_micros);
        let mut wait = WaitProgress::default();
        while waiting.spins(&mut wait, context.fabric()) {}
        waiting.rest_long(&mut wait, ("", Awaits::Other), &mut context);
        assert!(wait.is_long());
        (wait.polls, context.counters().yields.get())
    }

    /// Whether a frame of a process waits for room.
    fn waits_for_room(universe: &mut Universe) -> bool {
        let context = WaitContext {
            messages: &mut universe.messages,
            channels: &mut universe.channels.own,
            network: &mut universe.network,
        };
        context.waits_for_room()
    }

    #[test]
    fn sends_that_wait_for_an_address_do_not_wait_for_room() {
        let streams = FakeStreams::new(StreamsConfig::of(0, 2));
        let devices = FakeNet::new(FakeConfig::calm(0));
        let (me, peer, limits) = (transport::Peer(0), transport::Peer(1), NetLimits::default());
        let fabric = Fabric::mixed(&streams, Some(&devices), me, 2, limits);
        let other = Fabric::streamed(&streams, peer, 2, limits);
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let mut universe = Universe::new(fabric, Peer(0), 2, &values);
        let context = ContextId(40);
        universe.adopt(&mut Comm::new(
            context,
            Group::of(vec![Peer(0), Peer(1)]),
            0,
        ));
        let target = SendTarget {
            context,
            peer: Peer(1),
            tag: 7,
        };
        let mut sent = [1; 9];
        let memory = UserMemory::of(&mut sent);
        let sending = universe.sending();
        sending.send(target, memory, Mode::Standard).unwrap();
        assert_eq!(universe.messages.pump.engine.busy_peers(), 1);
        assert!(!waits_for_room(&mut universe));
        let record = other.network_record().unwrap();
        universe
            .messages
            .pump
            .fabric
            .set_peer_address(peer, &record);
        assert!(waits_for_room(&mut universe));
        universe.progress();
        assert!(!waits_for_room(&mut universe));
    }

    #[test]
    fn a_wait_note_is_renewed_after_new_completions() {
        let waiting = WaitPolicy::new(0);
        let number = waiting.note_call(&messages_alone(), "MPI_Bcast", Awaits::Other);
        let number = number.unwrap();
        let mut wait = WaitProgress::default();
        wait.set_note(Some(number));
        let mut waits = Vec::new();
        for completions_seen in [5, 5, 6, 6, 9] {
            waiting.renew_note(&mut wait, completions_seen);
            waits.push(waiting.call_table().rows[number].wait());
        }
        assert_eq!(waits, [1, 1, 2, 2, 3]);
    }

    #[test]
    fn concurrent_waits_spin_and_sleep_per_the_settings() {
        change(Variable::ShortSleep, 20_000);
        change(Variable::ThreadSpins, 1 << 20);
        let mut wait = WaitProgress {
            polls: 1000,
            ..WaitProgress::default()
        };
        let start = Instant::now();
        (0..3).for_each(|_| wait.outside(false));
        let spun = start.elapsed();
        change(Variable::ThreadSpins, 64);
        let start = Instant::now();
        wait.outside(false);
        let slept = start.elapsed();
        change(Variable::ShortSleep, 50);
        assert!(slept >= Duration::from_millis(20), "{slept:?}");
        assert!(spun < Duration::from_millis(60), "{spun:?}");
    }

    #[test]
    fn a_wait_spins_and_yields_per_the_settings() {
        // Only the first check of the wait is tested: later ones may find that other processes need the core.
        assert_eq!(long_after(10, 60_000_000), (10, 1));
        assert_eq!(long_after(300, 60_000_000), (300, 1));
        assert_eq!(long_after(20, 0), (20, 0), "no time to spin: it sleeps");
        change(Variable::Spins, 2000);
        change(Variable::SpinTime, 1000);
    }
}
