// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one progress loop, and how a process waits when nothing happens.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use engine::{Event, RequestId};
use transport::wait;

use crate::collective::task;
use crate::var::Variable;
use crate::var::live::{self, live, live_u32};
use crate::{Awaits, Meeting, Universe};

/// Access to the process, one short visit at a time. Whoever waits makes many; between two of them others may visit.
pub trait Visit: Copy {
    /// Runs `visit` with the process. Visits do not nest.
    fn visit<R>(self, visit: impl FnOnce(&mut Universe) -> R) -> R;

    /// Whether other threads may visit between two visits of this one.
    fn is_shared(self) -> bool;

    /// Lets other threads visit while `outside` runs.
    fn let_others(self, outside: impl FnOnce());

    /// The function that the program called, for a debugger's user.
    fn function(self) -> &'static str {
        ""
    }

    /// Makes visits until `done` says so. `done` is asked before and after each turn of progress.
    fn wait_until(self, awaits: Awaits, mut done: impl FnMut(&mut Universe) -> bool) {
        let mut rest = Wait::default();
        loop {
            let (finished, moved, tasks) = self.visit(|universe| {
                if done(universe) {
                    return (true, false, universe.has_tasks());
                }
                let moved = universe.progress();
                (done(universe), moved, universe.has_tasks())
            });
            if finished {
                self.end_note(&rest);
                // Who never has to wait must carry them on too.
                if tasks {
                    self.tend();
                }
                return;
            }
            let ended = tasks && task::go_on(self);
            if tasks {
                self.renew_note(&mut rest);
            }
            self.rest_unless(moved || ended, &mut rest, awaits);
        }
    }

    /// Polls `future`, which waits for other ranks in a collective, until it is done. `patient`: these all wait for each
    /// other.
    fn block_on<T>(self, patient: bool, meeting: Meeting, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut waker = Context::from_waker(Waker::noop());
        let mut rest = Wait {
            patient,
            ..Wait::default()
        };
        let mut moved = true;
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut waker) {
                self.end_note(&rest);
                self.tend();
                return done;
            }
            // Not between a turn and the poll behind it: a turn may end what is waited for without anything that has come, as where
            // it posts a message that had no room.
            self.rest_unless(moved, &mut rest, Awaits::Ranks(meeting));
            moved = self.turn();
            self.renew_note(&mut rest);
        }
    }

    /// One turn of progress, and of what goes on in the background; `true` if anything happened.
    fn turn(self) -> bool {
        let (moved, tasks) = self.visit(|universe| (universe.progress(), universe.has_tasks()));
        let ended = tasks && task::go_on(self);
        moved || ended
    }

    /// A turn after tasks from number `first` on were started (see [`Universe::next_task`]): of these.
    fn turn_for_new(self, first: u64) {
        self.visit(Universe::progress);
        task::go_on_new(self, first);
    }

    /// After task `number` was started, which was polled before that: now and then a turn of all.
    fn turn_for_tried(self, number: u64) {
        task::go_on_at_times(self, number);
    }

    /// A turn of progress, and of a few of the tasks that go on in the background, if there are any: for calls that have
    /// nothing to wait for.
    fn tend(self) {
        let tasks = self.visit(|universe| universe.has_tasks() && (universe.progress(), true).1);
        if tasks {
            task::go_on_some(self);
        }
    }

    /// Hands on what tools wait to hear of, between two visits.
    #[inline(always)]
    fn tell_tools(self) {}

    /// A turn for a call that may answer "not yet" and has found nothing so far. A rank that asks again and again in vain
    /// lets others have the core, if they want it, and takes another turn then.
    fn poll_turn(self) {
        let (tasks, is_long) = self.visit(|universe| {
            let moved = universe.progress();
            (universe.has_tasks(), universe.polling_is_long(moved))
        });
        let ended = tasks && task::go_on(self);
        if is_long && !ended {
            self.rest_of_poll();
        }
    }

    /// Lets others have the core, if they want it, after a turn of a poll in which nothing happened.
    #[doc(hidden)]
    #[cold]
    fn rest_of_poll(self) {
        let has_rested = if self.is_shared() {
            let pause = self.visit(Universe::pause_of_poll);
            if let Some(pause) = pause {
                self.let_others(|| pause.make());
            }
            pause.is_some()
        } else {
            self.visit(Universe::rest_of_poll)
        };
        if has_rested {
            let moved = self.turn();
            self.visit(|universe| universe.polling.end_rest(moved));
        }
    }

    /// What a wait does after a turn.
    #[doc(hidden)]
    fn rest_unless(self, moved: bool, rest: &mut Wait, awaits: Awaits) {
        self.tell_tools();
        if moved {
            *rest = Wait {
                patient: rest.patient,
                noted: rest.noted,
                long_since: rest.long_since,
                turned_up: rest.turned_up,
                ..Wait::default()
            };
        } else if self.is_shared() {
            if rest.polls >= live_u32(Variable::ThreadSpins) && rest.long_since.is_none() {
                rest.long_since = Some(Instant::now());
                rest.noted = self.visit(|universe| universe.note_call(self.function(), awaits));
            }
            if rest.polls > SHORT_YIELDS && rest.polls.is_multiple_of(SHORT_YIELDS) {
                self.visit(|universe| universe.tell_wait(rest, true));
            }
            self.let_others(|| rest.outside());
        } else {
            self.visit(|universe| universe.rest(rest, || (self.function(), awaits)));
        }
    }

    /// What a debugger was told of this wait holds no longer.
    #[doc(hidden)]
    #[inline]
    fn end_note(self, rest: &Wait) {
        if rest.long_since.is_some() {
            self.visit(|universe| universe.end_long(rest));
        }
    }

    /// Tells debuggers that a wait in a collective, which may have many steps, is not where it was: something has turned up
    /// since it was noted. Who looks twice and finds the same wait knows that nothing has.
    #[doc(hidden)]
    #[inline]
    fn renew_note(self, rest: &mut Wait) {
        if let Some(number) = rest.noted {
            self.visit(|universe| universe.renew_call(number, &mut rest.turned_up));
        }
    }

    /// Waits for one request.
    #[inline]
    fn wait_for(self, request: RequestId) {
        self.wait_until(Awaits::Request(request), |universe| {
            universe.messages.is_complete(request)
        });
    }
}

/// How long a wait has lasted.
#[derive(Debug, Default)]
pub struct Wait {
    polls: u32,
    yields: u32,
    since: Option<Instant>,
    /// Somebody outside may know of it.
    told: bool,
    /// More yields before sleeping: in collectives that every rank of the node enters.
    pub patient: bool,
    /// Others ran on this core when it was last offered to them.
    contended: bool,
    /// Where a debugger finds it noted, once it has lasted for a while.
    noted: Option<usize>,
    /// All that had turned up when the note was last renewed.
    turned_up: Option<u64>,
    /// When it had lasted for a while.
    long_since: Option<Instant>,
}

impl Wait {
    /// Whether one more yield is due before sleeping, where other threads wait for this process too.
    pub(crate) fn yields_beside_others(&mut self) -> bool {
        self.yields = self.yields.saturating_add(1);
        self.yields < SHORT_YIELDS
    }

    /// Rests where other threads wait for this process too: never long, since only the one who sleeps in the transport
    /// would be woken.
    fn outside(&mut self) {
        self.polls += 1;
        match self.polls {
            polls if polls < live_u32(Variable::ThreadSpins) => std::hint::spin_loop(),
            0..SHORT_YIELDS => wait::yield_core(),
            _ => std::thread::sleep(short_sleep()),
        }
    }
}

impl Universe {
    /// One bounded turn: looks at the transport and posts what waits. `true` if anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.messages.pump.fabric.poll(&mut self.completions);
        self.take_in_all()
    }

    /// The same, but for the messages that the fast path of waiting takes in one by one.
    #[inline(never)]
    pub(crate) fn progress_beside_first(&mut self) {
        self.messages
            .pump
            .fabric
            .poll_beside_first(&mut self.completions);
        self.take_in_all();
    }

    /// Takes in what a poll has found, and does the rest of a turn.
    #[inline(always)]
    fn take_in_all(&mut self) -> bool {
        let count = self.completions.len();
        self.turned_up = self.turned_up.wrapping_add(count as u64);
        for index in 0..count {
            if let Some(completion) = self.completions.take(index) {
                self.take_in(completion);
            }
        }
        if self.messages.pump.engine.busy_peers() != 0 {
            self.messages.pump.drain();
        }
        if live::is_stale() {
            self.renew_settings();
        }
        if self.network.wants_turns() {
            self.tend_network();
        }
        if self.messages.has_bundles() {
            self.messages.settle_bundles();
        }
        let mut moved = count != 0;
        if self.channels.is_busy() {
            moved |= self.tend_channels();
        }
        if self.messages.gates.is_busy() {
            moved |= self.messages.gates.tend(&mut self.messages.pump);
        }
        moved
    }

    /// What to do after a turn in which nothing happened: spin while a core is free for it, else let others have it. `what` tells
    /// which function waits for what.
    #[inline]
    pub fn rest(&mut self, wait: &mut Wait, what: impl FnOnce() -> (&'static str, Awaits)) {
        wait.polls += 1;
        let spins = !self.crowding.is_crowded() && wait.polls < live_u32(Variable::Spins);
        if spins && (wait.polls < SOFT_SPINS || !self.messages.pump.fabric.needs_cores()) {
            std::hint::spin_loop();
            return;
        }
        self.rest_long(wait, what());
    }

    #[inline(never)]
    fn rest_long(&mut self, wait: &mut Wait, (function, awaits): (&'static str, Awaits)) {
        let is_new = wait.long_since.is_none();
        if is_new {
            wait.long_since = Some(Instant::now());
        }
        // Where ranks share cores most waits are over when the core comes back for the first time.
        if wait.noted.is_none() && !(is_new && self.crowding.is_crowded()) {
            wait.noted = self.note_call(function, awaits);
        }
        // Where the kernel plays the adapter, who polls takes the time from its own messages.
        let is_needed = !self.crowding.is_sleepless() && self.messages.pump.fabric.needs_cores();
        if is_needed || self.crowding.is_crowded() {
            return self.rest_crowded(wait);
        }
        let now = Instant::now();
        let since = *wait.since.get_or_insert(now);
        self.assess(now);
        if now - since < spin_time() || self.crowding.is_sleepless() {
            if self.crowding.is_sleepless() {
                self.tell_wait(wait, false);
                self.check_link();
            }
            self.offer_core();
        } else {
            let longest = Duration::from_millis(live(Variable::LongSleep));
            self.sleep(longest, Some(wait));
        }
    }

    #[cold]
    fn renew_call(&self, number: usize, seen: &mut Option<u64>) {
        let before = seen.replace(self.turned_up);
        if before.is_some_and(|before| before != self.turned_up) {
            self.calls.renew(number);
        }
    }

    /// A wait that had become long has ended.
    #[cold]
    fn end_long(&mut self, wait: &Wait) {
        if let Some(number) = wait.noted {
            self.calls.end(number);
        }
        let time = wait.long_since.map(|since| since.elapsed().as_nanos());
        let tally = self.messages.pump.engine.tally();
        tally.waits.add(1);
        tally
            .waited_ns
            .add(u64::try_from(time.unwrap_or(0)).unwrap_or(u64::MAX));
    }

    fn offer_core(&self) {
        self.messages.pump.engine.tally().yields.add(1);
        wait::yield_core();
    }

    /// Gives the core to others, or sleeps where they keep it busy. As long as nobody else wants the core this rank stays awake on it,
    /// up to the time of `RMPI_SPIN_TIME`: to wake a rank on a core that stands still costs several times as much as on one
    /// that is at work.
    fn rest_crowded(&mut self, wait: &mut Wait) {
        if let Some(longest) = self.yield_or_sleep(wait) {
            self.sleep(longest, Some(wait));
        }
    }

    /// Gives the core to others, where that will do; else answers how long to sleep at most.
    pub(crate) fn yield_or_sleep(&mut self, wait: &mut Wait) -> Option<Duration> {
        let yields = live_u32(match wait.patient {
            true => Variable::PatientYields,
            false => Variable::Yields,
        });
        let now = Instant::now();
        let yields_well = !self.crowding.is_beside_work(now);
        if yields_well && wait.yields < yields {
            wait.yields += 1;
            self.offer_core();
            self.crowding.note_yield(now);
            return None;
        }
        let since = *wait.since.get_or_insert(now);
        self.assess(now);
        let stays = yields_well && !wait.contended && now - since < spin_time();
        if stays && !self.crowding.is_rationed() && !self.messages.pump.fabric.needs_cores() {
            self.messages.pump.engine.tally().yields.add(1);
            wait.contended = wait::yield_to_others();
            return None;
        }
        Some(Duration::from_millis(live(Variable::LongSleep)))
    }

    /// Sleeps for `longest` at most, unless something has happened. `wait`: it is noted for those who look whether the job goes
    /// on.
    pub(crate) fn sleep(&mut self, longest: Duration, wait: Option<&mut Wait>) {
        // Nobody rings when room comes back or a helper finishes: do not sleep on those.
        let has_room =
            self.messages.pump.engine.busy_peers() == 0 && !self.channels.waits_for_room();
        let timeout = match has_room {
            true => longest,
            false => longest.min(short_sleep()),
        };
        let timeout = timeout.min(self.network.patience());
        match self.awaited.clone() {
            None => self.sleep_unless(timeout, wait, || false),
            Some(awaited) => {
                awaited.doze(|it| self.sleep_unless(timeout, wait, || it.has_happened()));
            }
        }
    }

    fn sleep_unless(
        &mut self,
        timeout: Duration,
        wait: Option<&mut Wait>,
        has_happened: impl FnOnce() -> bool,
    ) {
        if !self.messages.pump.fabric.prepare_sleep() {
            self.offer_core();
        } else if has_happened() || self.channels.has_news() || self.messages.gates.has_news() {
            self.messages.pump.fabric.stay_awake();
        } else {
            if let Some(wait) = wait {
                self.tell_wait(wait, false);
            }
            let most_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            self.messages
                .pump
                .engine
                .note(Event::SleepBegin, [most_ns, 0, 0, 0, 0]);
            self.messages.pump.fabric.sleep(timeout);
            self.messages
                .pump
                .engine
                .note(Event::SleepEnd, [most_ns, 0, 0, 0, 0]);
            self.check_link();
        }
    }

    /// For who looks whether anything goes on in the job: this wait goes on.
    fn tell_wait(&self, wait: &mut Wait, beside_others: bool) {
        let begins = !std::mem::replace(&mut wait.told, true);
        self.messages.pump.fabric.tell_wait(begins, beside_others);
    }

    /// Looks, from time to time, whether the daemon is still there.
    fn check_link(&mut self) {
        if self.crowding.is_time_to_check() {
            self.hear_daemon();
        }
    }

    pub(crate) fn assess(&mut self, now: Instant) {
        if self.crowding.assess(now, &self.messages.pump.fabric) {
            let attentive = !self.crowding.is_crowded();
            self.messages.pump.fabric.set_attentive(attentive);
        }
    }
}

/// Polls where other threads wait too before it sleeps, and from then on between two words about it to others.
const SHORT_YIELDS: u32 = 256;
/// Polls before a look whether the core is needed for what is waited for.
const SOFT_SPINS: u32 = 100;

/// How long a rank stays awake that waits and could sleep.
fn spin_time() -> Duration {
    Duration::from_micros(live(Variable::SpinTime))
}

/// A sleeper looks around this often where nobody would ring.
pub(crate) fn short_sleep() -> Duration {
    Duration::from_micros(live(Variable::ShortSleep))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::var::Values;
    use crate::var::live::change;
    use engine::Peer;
    use transport::{Config, Fabric};

    /// Polls of one wait until it is long, and whether it then offered its core or slept.
    fn long_after(spins: u64, spin_micros: u64) -> (u32, u64) {
        let (values, _) = Values::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        change(Variable::Spins, spins);
        change(Variable::SpinTime, spin_micros);
        let mut wait = Wait::default();
        while wait.long_since.is_none() {
            universe.rest(&mut wait, || ("", Awaits::Other));
        }
        (
            wait.polls,
            universe.messages.pump.engine.tally().yields.get(),
        )
    }

    /// A process that other threads visit too, and how often they got the chance.
    #[derive(Clone, Copy)]
    struct Counting<'a> {
        universe: &'a std::cell::RefCell<Universe>,
        turns: &'a Cell<u32>,
        rests: &'a Cell<u32>,
    }

    impl Visit for Counting<'_> {
        fn visit<R>(self, visit: impl FnOnce(&mut Universe) -> R) -> R {
            visit(&mut self.universe.borrow_mut())
        }

        fn is_shared(self) -> bool {
            true
        }

        fn let_others(self, _outside: impl FnOnce()) {
            self.rests.set(self.rests.get() + 1);
        }

        fn turn(self) -> bool {
            self.turns.set(self.turns.get() + 1);
            false
        }
    }

    #[test]
    fn a_collective_looks_whether_a_turn_has_ended_it_before_it_rests() {
        let (values, _) = Values::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        let universe = std::cell::RefCell::new(Universe::new(fabric, Peer(0), 1, &values));
        let (turns, rests) = (Cell::new(0), Cell::new(0));
        let process = Counting {
            universe: &universe,
            turns: &turns,
            rests: &rests,
        };
        for needed in [0, 1, 2, 5] {
            turns.set(0);
            rests.set(0);
            let ended = std::future::poll_fn(|_| match turns.get() >= needed {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            let meeting = Meeting {
                context: engine::ContextId(0),
                call: None,
                root: None,
                bytes: None,
            };
            process.block_on(false, meeting, ended);
            assert_eq!(rests.get(), needed.saturating_sub(1), "after {needed}");
        }
    }

    #[test]
    fn who_only_sends_looks_once_in_so_many_sends() {
        let (values, _) = Values::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        for looks in [3, 16] {
            change(Variable::SendsPerLook, looks);
            let mut counts = (0..looks).map(|_| {
                universe.sending();
                u64::from(universe.messages.sends_unlooked)
            });
            assert!((1..looks).all(|sends| counts.next() == Some(sends)));
            assert_eq!(counts.next(), Some(0));
        }
    }

    #[test]
    fn a_note_is_renewed_whenever_something_has_turned_up_since() {
        let (values, _) = Values::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        let number = universe.note_call("MPI_Bcast", Awaits::Other).unwrap();
        let mut seen = None;
        let mut waits = Vec::new();
        for turned_up in [5, 5, 6, 6, 9] {
            universe.turned_up = turned_up;
            universe.renew_call(number, &mut seen);
            waits.push(universe.call_table().rows[number].wait());
        }
        assert_eq!(waits, [1, 1, 2, 2, 3]);
    }

    #[test]
    fn where_others_wait_too_a_wait_spins_and_sleeps_as_the_settings_say() {
        change(Variable::ShortSleep, 20_000);
        change(Variable::ThreadSpins, 1 << 20);
        let mut wait = Wait {
            polls: 1000,
            ..Wait::default()
        };
        let start = Instant::now();
        (0..3).for_each(|_| wait.outside());
        let spun = start.elapsed();
        change(Variable::ThreadSpins, 64);
        let start = Instant::now();
        wait.outside();
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
