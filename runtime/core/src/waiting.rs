// SPDX-License-Identifier: MIT OR Apache-2.0
//! How this process waits when nothing happens: it spins while a core is free for it, lets others have the core, or sleeps until
//! somebody rings. Nothing here makes progress: who waits does, and asks in between how to rest.
//!
//! | what | where |
//! |------|-------|
//! | the rest of a wait, sleep | here |
//! | the rest between two polls of the program's | `waiting/polling.rs` |
//! | what a debugger is told of calls that wait | `waiting/calls.rs` |
//! | whether ranks share cores | `oversubscription.rs` |

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
    /// What a collective waits for at a board.
    pub(crate) awaited: Option<AtBoard>,
}

/// Something that a collective waits for at a board.
#[derive(Debug)]
pub(crate) struct AtBoard {
    pub(crate) what: Awaited,
    /// The leader of this node waits for other nodes first: that takes longer than it takes all ranks of this one to have their turn.
    pub(crate) is_from_afar: bool,
}

/// What a wait looks at before it sleeps, and where it counts.
pub(crate) struct Around<'a> {
    pub(crate) messages: &'a mut Messages,
    pub(crate) channels: &'a mut Channels,
    pub(crate) network: &'a mut JobNetwork,
}

impl Around<'_> {
    pub(crate) fn fabric(&mut self) -> &mut Fabric {
        &mut self.messages.pump.fabric
    }

    fn tally(&self) -> &EngineCounters {
        self.messages.pump.engine.tally()
    }

    /// Whether something waits for room, of which nobody tells when it comes back. Where it is not known yet how a peer is reached there is
    /// no room before that is: then the process wakes up, as late as the [patience](Network::patience) for the answer says.
    fn waits_for_room(&self) -> bool {
        let Pump { engine, fabric, .. } = &self.messages.pump;
        let mut busy = engine.busy();
        let is_known = |peer| fabric.provider_of(carrier(peer)).is_some();
        busy.any(is_known) || self.channels.waits_for_room()
    }

    fn offer_core(&self) {
        self.tally().yields.add(1);
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
        if has_happened() || self.has_news() {
            self.fabric().stay_awake();
            return false;
        }
        let Pump { engine, fabric, .. } = &mut self.messages.pump;
        if let Some(wait) = wait {
            wait.tell(fabric, false);
        }
        let most_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        engine.note(EventType::SleepBegin, [most_ns, 0, 0, 0, 0]);
        fabric.sleep(timeout);
        engine.note(EventType::SleepEnd, [most_ns, 0, 0, 0, 0]);
        true
    }

    /// The last look before this process sleeps, at what has come since without a bell.
    fn has_news(&mut self) -> bool {
        self.channels.has_news() || self.messages.gates.has_news()
    }
}

/// How long one wait has lasted, and what it has done so far.
#[derive(Debug, Default)]
pub struct WaitProgress {
    polls: u32,
    yields: u32,
    since: Option<Instant>,
    /// Somebody outside may know of it.
    told: bool,
    /// More yields before sleeping: in collectives that every rank of the node enters.
    patient: bool,
    /// Others ran on this core when it was last offered to them.
    contended: bool,
    /// Where a debugger finds it noted, once it has lasted for a while.
    noted: Option<usize>,
    /// All that had turned up when the note was last renewed.
    turned_up: Option<u64>,
    /// When it had lasted for a while.
    long_since: Option<Instant>,
}

impl WaitProgress {
    /// One that begins. `patient`: it is in a collective that every rank of the node enters.
    pub(crate) fn new(patient: bool) -> Self {
        Self {
            patient,
            ..Self::default()
        }
    }

    /// Something has happened: the wait begins again, but for what others were told of it.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self {
            patient: self.patient,
            noted: self.noted,
            long_since: self.long_since,
            turned_up: self.turned_up,
            ..Self::default()
        };
    }

    /// Whether it has lasted for a while.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.long_since.is_some()
    }

    /// Where a debugger finds it noted, if there was room.
    pub(crate) fn set_note(&mut self, noted: Option<usize>) {
        self.noted = noted;
    }

    /// Whether a debugger was told of it.
    #[inline]
    pub(crate) fn is_noted(&self) -> bool {
        self.noted.is_some()
    }

    /// Whether it has just become long, where other threads wait for this process too. It is so once.
    pub(crate) fn becomes_long_beside_others(&mut self) -> bool {
        let becomes = self.polls >= live_u32(Variable::ThreadSpins) && self.long_since.is_none();
        if becomes {
            self.long_since = Some(Instant::now());
        }
        becomes
    }

    /// For who looks whether anything goes on in the job: this wait goes on.
    pub(crate) fn tell(&mut self, fabric: &Fabric, beside_others: bool) {
        let begins = !std::mem::replace(&mut self.told, true);
        fabric.count_sleep(begins, beside_others);
    }

    /// Whether those who look at the job from outside are to be told of it now, where other threads wait for this process too.
    pub(crate) fn is_to_be_told_beside_others(&self) -> bool {
        self.polls > SHORT_YIELDS && self.polls.is_multiple_of(SHORT_YIELDS)
    }

    /// Whether one more yield is due before sleeping, where other threads wait for this process too.
    pub(crate) fn yields_beside_others(&mut self) -> bool {
        self.yields = self.yields.saturating_add(1);
        self.yields < SHORT_YIELDS
    }

    /// Rests where other threads wait for this process too; in `company`, where they do call, it does not keep the core from them.
    /// Never long, since only the one who sleeps in the transport would be woken.
    pub(crate) fn outside(&mut self, company: bool) {
        self.polls += 1;
        match self.polls {
            polls if !company && polls < live_u32(Variable::ThreadSpins) => {
                std::hint::spin_loop();
            }
            0..SHORT_YIELDS => wait::yield_core(),
            _ => std::thread::sleep(short_sleep()),
        }
    }
}

impl WaitPolicy {
    /// `policy`: the place of the word in the variable RMPI_WAIT.
    pub(crate) fn new(policy: u64) -> Self {
        Self {
            crowding: Crowding::new(policy),
            polling: Polling::default(),
            calls: Box::default(),
            awaited: None,
        }
    }

    /// Another policy holds from now on.
    pub(crate) fn follow(&mut self, policy: u64, fabric: &mut Fabric) {
        self.crowding.follow(policy);
        fabric.set_sleepless(self.crowding.is_sleepless());
        self.tell_crowding(fabric);
    }

    /// Says to the wires whether ranks share cores.
    pub(crate) fn tell_crowding(&self, fabric: &mut Fabric) {
        fabric.set_attentive(!self.crowding.is_crowded());
        fabric.set_lacks_core(self.crowding.is_by_others());
    }

    /// What a debugger reads of the calls that wait.
    #[must_use]
    pub fn call_table(&self) -> &CallTable {
        &self.calls
    }

    /// One more turn in which nothing happened. `true`: a core is free to spin on until the next; else there is a [longer
    /// rest](Self::rest_long).
    #[inline(always)]
    pub(crate) fn spins(&self, wait: &mut WaitProgress, fabric: &Fabric) -> bool {
        wait.polls += 1;
        let spins = !self.crowding.is_crowded() && wait.polls < live_u32(Variable::Spins);
        spins
            && (wait.polls < SOFT_SPINS || !(fabric.is_any_peer_lacking() || fabric.needs_cores()))
    }

    /// The rest of a wait that `function` makes. `true`: it is time to look whether the daemon is still there.
    pub(crate) fn rest_long(
        &mut self,
        wait: &mut WaitProgress,
        (function, awaits): (&'static str, Awaits),
        around: &mut Around<'_>,
    ) -> bool {
        let is_new = wait.long_since.is_none();
        if is_new {
            wait.long_since = Some(Instant::now());
        }
        // Where ranks share cores most waits are over when the core comes back for the first time.
        if wait.noted.is_none() && !(is_new && self.crowding.is_crowded()) {
            wait.noted = self.note_call(around.messages, function, awaits);
        }
        // Where the kernel plays the adapter, who polls takes the time from its own messages.
        let is_needed = !self.crowding.is_sleepless() && around.fabric().needs_cores();
        if is_needed || self.crowding.is_crowded() {
            return self.rest_crowded(wait, around);
        }
        let now = Instant::now();
        let since = *wait.since.get_or_insert(now);
        self.assess(now, around.fabric());
        if now - since < awake_time(around.fabric()) || self.crowding.is_sleepless() {
            let is_sleepless = self.crowding.is_sleepless();
            if is_sleepless {
                wait.tell(around.fabric(), false);
            }
            around.offer_core();
            is_sleepless
        } else {
            let longest = Duration::from_millis(live(Variable::LongSleep));
            let slept = self.sleep(longest, Some(wait), around);
            if !slept && !around.fabric().is_woken_by_network() {
                // Something has come, if only for the network, and what follows would find it asleep.
                wait.since = None;
                return true;
            }
            slept
        }
    }

    /// Tells debuggers that a wait in a collective, which may have many steps, is not where it was, if something has turned up
    /// since it was noted: `turned_up` is all that has so far.
    #[cold]
    pub(crate) fn renew_note(&self, wait: &mut WaitProgress, turned_up: u64) {
        let before = wait.turned_up.replace(turned_up);
        if let Some(number) = wait.noted
            && before.is_some_and(|before| before != turned_up)
        {
            self.calls.renew(number);
        }
    }

    /// A wait that had become long has ended.
    #[cold]
    pub(crate) fn end_long(&self, wait: &WaitProgress, tally: &EngineCounters) {
        if let Some(number) = wait.noted {
            self.calls.end(number);
        }
        let time = wait.long_since.map(|since| since.elapsed());
        count_wait(tally, time.unwrap_or_default());
    }

    /// Gives the core to others, or sleeps where they keep it busy. As long as nobody else wants the core this rank stays awake on it,
    /// up to the time of `RMPI_SPIN_TIME`: to wake a rank on a core that stands still costs several times as much as on one
    /// that is at work. `true`: it slept.
    fn rest_crowded(&mut self, wait: &mut WaitProgress, around: &mut Around<'_>) -> bool {
        match self.yield_or_sleep(wait, around) {
            Some(longest) => self.sleep(longest, Some(wait), around),
            None => false,
        }
    }

    /// Gives the core to others, where that will do; else answers how long to sleep at most.
    fn yield_or_sleep(
        &mut self,
        wait: &mut WaitProgress,
        around: &mut Around<'_>,
    ) -> Option<Duration> {
        let yields = live_u32(match wait.patient {
            true => Variable::PatientYields,
            false => Variable::Yields,
        });
        let now = Instant::now();
        let is_from_afar = self.awaited.as_ref().is_some_and(|it| it.is_from_afar);
        let is_from_afar = is_from_afar && self.crowding.is_crowded();
        let yields_well = !is_from_afar && !self.crowding.is_beside_work(now);
        if yields_well && wait.yields < yields {
            wait.yields += 1;
            around.offer_core();
            self.crowding.note_yield(now);
            return None;
        }
        let since = *wait.since.get_or_insert(now);
        self.assess(now, around.fabric());
        let stay_time = match wait.patient && around.fabric().has_network() {
            // Several ranks of a node may wait for others, and the scheduler gives no work of the other cores to one that seems busy.
            true => awake_time(around.fabric()) / 20,
            false => awake_time(around.fabric()),
        };
        let stays = yields_well && !wait.contended && now - since < stay_time;
        if stays
            && self.crowding.sees_others()
            && !self.crowding.is_rationed()
            && !around.fabric().needs_cores()
        {
            around.tally().yields.add(1);
            wait.contended = wait::yield_to_others();
            return None;
        }
        Some(Duration::from_millis(live(Variable::LongSleep)))
    }

    /// Sleeps for `longest` at most, unless something has happened: `true`, if it has slept. `wait`: it is noted for those who look
    /// whether the job goes on.
    fn sleep(
        &mut self,
        longest: Duration,
        wait: Option<&mut WaitProgress>,
        around: &mut Around<'_>,
    ) -> bool {
        // Nobody rings when room comes back or a helper finishes: do not sleep on those.
        let timeout = match around.waits_for_room() {
            false => longest,
            true => longest.min(short_sleep()),
        };
        let timeout = timeout.min(around.network.patience());
        match &self.awaited {
            None => around.sleep_unless(timeout, wait, || false),
            Some(awaited) => {
                let mut slept = false;
                let sleep = |it: &Awaited| {
                    slept = around.sleep_unless(timeout, wait, || it.has_happened());
                };
                awaited.what.doze(sleep);
                slept
            }
        }
    }

    /// Whether ranks share cores, as far as is known now.
    pub(crate) fn shares_core(&mut self, fabric: &mut Fabric) -> bool {
        self.assess(Instant::now(), fabric);
        self.crowding.is_crowded()
    }

    /// Sleeps once for something at a board that takes long. `false`: it did not sleep, since something has come.
    pub(crate) fn sleep_at_board(&mut self, what: Awaited, around: &mut Around<'_>) -> bool {
        self.awaited = Some(AtBoard {
            what,
            is_from_afar: true,
        });
        let since = Instant::now();
        let slept = self.sleep(
            Duration::from_millis(live(Variable::LongSleep)),
            None,
            around,
        );
        self.awaited = None;
        count_wait(around.tally(), since.elapsed());
        slept
    }

    /// Looks whether ranks share cores, if the last look is long ago.
    fn assess(&mut self, now: Instant, fabric: &mut Fabric) {
        if self.crowding.assess(now, fabric) {
            self.tell_crowding(fabric);
        }
    }
}

/// Polls where other threads wait too before it sleeps, and from then on between two words about it to others.
const SHORT_YIELDS: u32 = 256;
/// Polls before a look whether the core is needed for what is waited for.
const SOFT_SPINS: u32 = 100;

/// How long a rank stays awake that waits and could sleep: not for long, where it may be keeping the core from whom it waits for.
fn awake_time(fabric: &Fabric) -> Duration {
    let time = Duration::from_micros(live(Variable::SpinTime));
    match fabric.is_any_peer_lacking() {
        true => time / 10,
        false => time,
    }
}

/// A wait that was long has ended.
fn count_wait(tally: &EngineCounters, time: Duration) {
    tally.waits.add(1);
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    tally.waited_ns.add(ns);
}

/// A sleeper looks around this often where nobody would ring.
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

    /// Polls of one wait until it is long, and whether it then offered its core or slept.
    fn long_after(spins: u64, spin_micros: u64) -> (u32, u64) {
        let mut waiting = WaitPolicy::new(0);
        let (mut messages, mut channels) = (messages_alone(), Channels::new());
        let mut network = JobNetwork::new(0);
        let mut around = Around {
            messages: &mut messages,
            channels: &mut channels,
            network: &mut network,
        };
        change(Variable::Spins, spins);
        change(Variable::SpinTime, spin_micros);
        let mut wait = WaitProgress::default();
        while waiting.spins(&mut wait, around.fabric()) {}
        waiting.rest_long(&mut wait, ("", Awaits::Other), &mut around);
        assert!(wait.is_long());
        (wait.polls, around.tally().yields.get())
    }

    /// Whether a process waits for room.
    fn waits_for_room(universe: &mut Universe) -> bool {
        let around = Around {
            messages: &mut universe.messages,
            channels: &mut universe.channels.own,
            network: &mut universe.network,
        };
        around.waits_for_room()
    }

    #[test]
    fn what_waits_until_it_is_known_how_a_peer_is_reached_does_not_wait_for_room() {
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
        universe.messages.pump.fabric.learn_address(peer, &record);
        assert!(waits_for_room(&mut universe));
        universe.progress();
        assert!(!waits_for_room(&mut universe));
    }

    #[test]
    fn a_note_is_renewed_whenever_something_has_turned_up_since() {
        let waiting = WaitPolicy::new(0);
        let number = waiting.note_call(&messages_alone(), "MPI_Bcast", Awaits::Other);
        let number = number.unwrap();
        let mut wait = WaitProgress::default();
        wait.set_note(Some(number));
        let mut waits = Vec::new();
        for turned_up in [5, 5, 6, 6, 9] {
            waiting.renew_note(&mut wait, turned_up);
            waits.push(waiting.call_table().rows[number].wait());
        }
        assert_eq!(waits, [1, 1, 2, 2, 3]);
    }

    #[test]
    fn where_others_wait_too_a_wait_spins_and_sleeps_as_the_settings_say() {
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
    fn a_wait_spins_and_offers_its_core_as_long_as_the_settings_say() {
        // Only the first look of a wait: later ones may find that others want the core.
        assert_eq!(long_after(10, 60_000_000), (10, 1));
        assert_eq!(long_after(300, 60_000_000), (300, 1));
        assert_eq!(long_after(20, 0), (20, 0), "no time to spin: it sleeps");
        change(Variable::Spins, 2000);
        change(Variable::SpinTime, 1000);
    }
}
