// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a rank rests between repeated calls such as `MPI_Test` and `MPI_Iprobe`.
//!
//! A loop around such a call is a wait that the application has written itself. If ranks share cores, the rank must
//! yield the core, as [`rest`](crate::Universe::rest) does. Otherwise the ranks that it waits for cannot run until its
//! time slice is over. The rank never sleeps long, because the application may poll other things between two calls. An
//! application that computes between two calls is not delayed.

use std::time::{Duration, Instant};

use transport::{Fabric, wait};

use super::{WaitContext, WaitPolicy, WaitProgress, short_sleep};
use crate::var::Variable;
use crate::var::live::live;

/// The polls of this process since a poll last made progress.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Consecutive polls in which nothing happened.
    idle_polls: u32,
    /// When the last poll returned; `None` if that was not recorded, for example because ranks do not share cores.
    returned: Option<Instant>,
    wait: WaitProgress,
    /// Limit of the next sleep. A value below [`FIRST_SLEEP`] stands for [`FIRST_SLEEP`].
    sleep: Duration,
    /// Whether the last rest was a sleep.
    slept: bool,
    /// Whether the turn of progress after the last sleep found something.
    woken: bool,
}

/// What a thread does between two polls, in a process whose other threads may wait too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Yields the core.
    Yield,
    /// Sleeps for this time; nothing wakes the thread.
    Sleep(Duration),
}

impl Pause {
    /// Rests.
    pub fn make(self) {
        match self {
            Self::Yield => wait::yield_core(),
            Self::Sleep(time) => std::thread::sleep(time),
        }
    }
}

impl Polling {
    /// To be called when something has happened: restarts the count of polls without progress.
    #[inline]
    pub(crate) fn begin_anew(&mut self) {
        if self.idle_polls != 0 {
            self.idle_polls = 0;
            self.returned = None;
            self.wait = WaitProgress::default();
            // After a long series of polls the next series may be long too, so it does not begin with the shortest
            // sleep.
            if !self.woken {
                self.sleep /= 2;
            }
        }
    }

    /// Ends a rest, and restarts the count if the turn after the rest has `moved` anything. The time that other
    /// processes used during the rest is not counted as computation of the application.
    pub(crate) fn end_rest(&mut self, moved: bool) {
        self.returned = Some(Instant::now());
        if std::mem::take(&mut self.slept) {
            self.woken = moved;
        }
        if moved {
            self.begin_anew();
        }
    }

    /// Counts one more poll without progress. `true`: a check whether cores are shared is due.
    #[inline]
    fn count(&mut self) -> bool {
        self.idle_polls = self.idle_polls.wrapping_add(1);
        self.idle_polls.is_multiple_of(POLLS_PER_CHECK)
    }

    /// Records that a poll happens `now`. `true`: this is the first poll, or the application has computed since the
    /// last poll; then a new series of polls begins.
    fn has_computed(&mut self, now: Instant) -> bool {
        let last = self.returned.replace(now);
        let computed = last.is_none_or(|last| now - last > COMPUTES);
        if computed {
            self.wait = WaitProgress::default();
        }
        computed
    }

    /// Returns the limit of this sleep, and doubles the limit of the next one, up to the value of
    /// [`Variable::PollSleep`]. `None`: that value is 0, so polls never sleep.
    fn next_sleep(&mut self) -> Option<Duration> {
        let longest = Duration::from_micros(live(Variable::PollSleep));
        let sleep = self.sleep.max(FIRST_SLEEP).min(longest);
        self.sleep = (sleep * 2).min(longest * 2);
        (!sleep.is_zero()).then_some(sleep)
    }
}

/// How a poll has rested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rested {
    /// The poll did not rest.
    Not,
    /// The poll yielded the core.
    Awake,
    /// The poll slept; the daemon may have exited meanwhile.
    Asleep,
}

impl WaitPolicy {
    /// Counts a poll. `moved`: whether something happened in its turn. `true`: the poll must rest, because nothing
    /// happened, and cores are shared, the network needs the core, or it is time to check whether cores are shared.
    #[inline]
    pub(crate) fn polling_is_long(&mut self, moved: bool, fabric: &Fabric) -> bool {
        if moved {
            self.polling.begin_anew();
            return false;
        }
        self.polling.count() || self.crowding.is_crowded() || fabric.needs_cores()
    }

    /// Rests in a long series of polls. After a yield or sleep, another turn may find something.
    pub(crate) fn rest_of_poll(&mut self, context: &mut WaitContext<'_>) -> Rested {
        let now = Instant::now();
        let fabric = &mut context.messages.pump.fabric;
        self.assess(now, fabric);
        let is_free = !self.crowding.is_crowded() && !fabric.needs_cores();
        if is_free || self.crowding.is_sleepless() || self.polling.has_computed(now) {
            return Rested::Not;
        }
        let mut rested = Rested::Awake;
        let mut wait = std::mem::take(&mut self.polling.wait);
        if self.yield_or_sleep(&mut wait, context).is_some() {
            match self.polling.next_sleep() {
                Some(longest) => {
                    self.polling.slept = true;
                    if self.sleep(longest, None, context) {
                        rested = Rested::Asleep;
                    }
                }
                None => wait::yield_core(),
            }
        }
        self.polling.wait = wait;
        rested
    }

    /// For a process with several threads: how this thread must pause after a poll without progress, while other
    /// threads may visit the process. `None`: it need not pause, because cores are not shared, the policy is to poll
    /// without end, or the application has computed since the last poll.
    pub(crate) fn pause_of_poll(&mut self, fabric: &mut Fabric) -> Option<Pause> {
        let now = Instant::now();
        self.assess(now, fabric);
        let is_free = !self.crowding.is_crowded() || self.crowding.is_sleepless();
        if is_free || self.polling.has_computed(now) {
            return None;
        }
        match self.polling.wait.yields_shared() {
            true => Some(Pause::Yield),
            false => Some(Pause::Sleep(short_sleep())),
        }
    }
}

/// While cores are not shared: one poll without progress in this many checks whether they are shared now.
const POLLS_PER_CHECK: u32 = 1024;
/// If more time than this passes between two polls, the application has computed between them.
const COMPUTES: Duration = Duration::from_micros(20);
/// Limit of the first sleep of a series.
const FIRST_SLEEP: Duration = Duration::from_micros(250);

#[cfg(test)]
mod tests {
    use transport::Config;

    use super::*;

    fn micros(polling: &mut Polling) -> u128 {
        polling.next_sleep().unwrap().as_micros()
    }

    /// Simulates a poll without progress that sleeps. `moved`: whether the turn of progress after the sleep finds
    /// something. Returns the limit of the sleep in us.
    fn sleep_once(polling: &mut Polling, moved: bool) -> u128 {
        polling.idle_polls += 1;
        polling.slept = true;
        let slept = micros(polling);
        polling.end_rest(moved);
        slept
    }

    #[test]
    fn sleeps_of_polls_grow_and_shrink_after_series_without_sleep() {
        let mut polling = Polling::default();
        let row: Vec<u128> = (0..4).map(|_| sleep_once(&mut polling, false)).collect();
        assert_eq!(row, [250, 500, 1000, 1000]);
        // The next series may be as long as the last one.
        polling.begin_anew();
        assert_eq!(sleep_once(&mut polling, false), 1000);
        for _ in 0..5 {
            polling.idle_polls = 1;
            polling.begin_anew();
        }
        assert_eq!(sleep_once(&mut polling, false), 250);
    }

    #[test]
    fn sleeps_ended_by_messages_keep_their_length() {
        let mut polling = Polling::default();
        assert_eq!(sleep_once(&mut polling, false), 250);
        let row: Vec<u128> = (0..4).map(|_| sleep_once(&mut polling, true)).collect();
        assert_eq!(row, [500, 1000, 1000, 1000]);
        assert_eq!(sleep_once(&mut polling, false), 1000);
    }

    #[test]
    fn a_late_poll_counts_as_computation() {
        let mut polling = Polling::default();
        let now = Instant::now();
        assert!(polling.has_computed(now), "the first poll of a row");
        assert!(!polling.has_computed(now + COMPUTES));
        assert!(polling.has_computed(now + 2 * COMPUTES + Duration::from_nanos(1)));
    }

    /// Without these sleeps, threads that poll would yield their cores to each other for ever.
    #[test]
    fn polls_among_other_threads_sleep_despite_delays_between_them() {
        let mut fabric = Fabric::open(Config::alone()).unwrap();
        let mut waiting = WaitPolicy::new(2);
        let mut pauses = (0..1000).filter_map(|_| {
            let pause = waiting.pause_of_poll(&mut fabric);
            let start = Instant::now();
            while start.elapsed() <= 2 * COMPUTES {
                std::hint::spin_loop();
            }
            waiting.polling.end_rest(false);
            pause
        });
        assert!(pauses.any(|pause| matches!(pause, Pause::Sleep(_))));
    }

    #[test]
    fn one_poll_in_many_checks_for_oversubscription() {
        let mut polling = Polling::default();
        let checks = (0..3 * POLLS_PER_CHECK).filter(|_| polling.count()).count();
        assert_eq!(checks, 3);
    }
}
