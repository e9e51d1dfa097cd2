// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rests of a rank that repeats calls such as `MPI_Test` and `MPI_Iprobe`.
//!
//! A loop around such a call is a wait that the application has written itself. Where ranks share cores it must yield
//! the core, as [`rest`](crate::Universe::rest) does, or the ranks that it waits for cannot run until its time slice
//! is over. It never sleeps long, since the application may poll other things between two calls, and an application
//! that computes between them is not delayed.

use std::time::{Duration, Instant};

use transport::{Fabric, wait};

use super::{WaitContext, WaitPolicy, WaitProgress, short_sleep};
use crate::var::Variable;
use crate::var::live::live;

/// The polls of this process since one of them made progress.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Consecutive polls in which nothing happened.
    idle_polls: u32,
    /// When the last one of them returned; known where ranks share cores.
    returned: Option<Instant>,
    wait: WaitProgress,
    /// Limit of the next sleep, if that is more than [`FIRST_SLEEP`].
    sleep: Duration,
    /// The last rest was a sleep.
    slept: bool,
    /// The last sleep was ended by an event.
    woken: bool,
}

/// The rest of a thread between two polls while other threads of its process wait too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Yields the core.
    Yield,
    /// Sleeps for so long; nothing wakes it.
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
    /// Something has happened: restarts the count of polls in vain.
    #[inline]
    pub(crate) fn begin_anew(&mut self) {
        if self.idle_polls != 0 {
            self.idle_polls = 0;
            self.returned = None;
            self.wait = WaitProgress::default();
            // After a long series the next one may be long too: it does not begin with the shortest sleep.
            if !self.woken {
                self.sleep /= 2;
            }
        }
    }

    /// Ends a rest, and restarts the count if the following turn `moved` anything. Time that other processes used
    /// meanwhile is not the application's computation.
    pub(crate) fn end_rest(&mut self, moved: bool) {
        self.returned = Some(Instant::now());
        if std::mem::take(&mut self.slept) {
            self.woken = moved;
        }
        if moved {
            self.begin_anew();
        }
    }

    /// Counts one more poll in vain; `true`: a check whether cores are shared is due.
    #[inline]
    fn count(&mut self) -> bool {
        self.idle_polls = self.idle_polls.wrapping_add(1);
        self.idle_polls.is_multiple_of(POLLS_PER_CHECK)
    }

    /// Whether the application has computed since the last poll. Polls that follow are a new series.
    fn has_computed(&mut self, now: Instant) -> bool {
        let last = self.returned.replace(now);
        let computed = last.is_none_or(|last| now - last > COMPUTES);
        if computed {
            self.wait = WaitProgress::default();
        }
        computed
    }

    /// Limit of this sleep; that of the next one is twice as long. `None`: polls never sleep.
    fn next_sleep(&mut self) -> Option<Duration> {
        let longest = Duration::from_micros(live(Variable::PollSleep));
        let sleep = self.sleep.max(FIRST_SLEEP).min(longest);
        self.sleep = (sleep * 2).min(longest * 2);
        (!sleep.is_zero()).then_some(sleep)
    }
}

/// The rest that a poll has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rested {
    /// There was none.
    Not,
    /// A yield.
    Awake,
    /// A sleep, in which the daemon may have exited.
    Asleep,
}

impl WaitPolicy {
    /// Whether a poll must rest: nothing happened in its turn, and cores are shared, or a check for that is due.
    #[inline]
    pub(crate) fn polling_is_long(&mut self, moved: bool, fabric: &Fabric) -> bool {
        if moved {
            self.polling.begin_anew();
            return false;
        }
        self.polling.count() || self.crowding.is_crowded() || fabric.needs_cores()
    }

    /// The rest of a poll in a long series. After a yield or sleep, another turn may find something.
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

    /// The same if other threads of this process may wait too: how to rest outside the visit.
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

/// Polls in vain between two checks whether cores are shared, if they are not so far.
const POLLS_PER_CHECK: u32 = 1024;
/// An application that polls again after more than this has computed meanwhile.
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

    /// A poll in vain that sleeps until something arrives, or until its time is over; returns the duration.
    fn sleep_once(polling: &mut Polling, moved: bool) -> u128 {
        polling.idle_polls += 1;
        polling.slept = true;
        let slept = micros(polling);
        polling.end_rest(moved);
        slept
    }

    #[test]
    fn polls_sleep_longer_and_longer_and_rows_that_need_no_sleep_make_the_next_ones_short_again() {
        let mut polling = Polling::default();
        let row: Vec<u128> = (0..4).map(|_| sleep_once(&mut polling, false)).collect();
        assert_eq!(row, [250, 500, 1000, 1000]);
        // The next series may be as long.
        polling.begin_anew();
        assert_eq!(sleep_once(&mut polling, false), 1000);
        for _ in 0..5 {
            polling.idle_polls = 1;
            polling.begin_anew();
        }
        assert_eq!(sleep_once(&mut polling, false), 250);
    }

    #[test]
    fn where_messages_end_the_sleeps_the_next_row_begins_with_as_long_a_sleep() {
        let mut polling = Polling::default();
        assert_eq!(sleep_once(&mut polling, false), 250);
        let row: Vec<u128> = (0..4).map(|_| sleep_once(&mut polling, true)).collect();
        assert_eq!(row, [500, 1000, 1000, 1000]);
        assert_eq!(sleep_once(&mut polling, false), 1000);
    }

    #[test]
    fn who_comes_back_late_has_computed() {
        let mut polling = Polling::default();
        let now = Instant::now();
        assert!(polling.has_computed(now), "the first poll of a row");
        assert!(!polling.has_computed(now + COMPUTES));
        assert!(polling.has_computed(now + 2 * COMPUTES + Duration::from_nanos(1)));
    }

    /// Otherwise threads that poll yield their cores to each other for ever.
    #[test]
    fn polls_beside_other_threads_sleep_soon_however_long_others_take_in_between() {
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
    fn one_poll_in_many_looks_whether_cores_are_shared() {
        let mut polling = Polling::default();
        let looks = (0..3 * POLLS_PER_CHECK).filter(|_| polling.count()).count();
        assert_eq!(looks, 3);
    }
}
