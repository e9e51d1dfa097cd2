// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polls and time: how many there were, what time it was last, and what is looked at only now and then. Nothing in here does
//! anything; it says when something is due.

use super::fetch::TRY_EVERY_NS;

/// Counts polls, and knows when what is next.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The time when it was asked last.
    pub(super) now_ns: u64,
    polls: u64,
    /// Something was heard since the caller wanted to sleep last: what was full may have room.
    has_stirred: bool,
    /// When the ports are asked for events next, and when they were last.
    events_at_ns: u64,
    events_were_ns: u64,
    /// When peers were last looked at that may have to say something.
    receivers_ns: u64,
}

impl Schedule {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            now_ns,
            polls: 0,
            has_stirred: false,
            events_at_ns: 0,
            events_were_ns: 0,
            receivers_ns: 0,
        }
    }

    /// Polls, and looks that took the place of one, so far.
    #[inline(always)]
    pub(super) fn polls(&self) -> u64 {
        self.polls
    }

    /// Another begins.
    #[inline(always)]
    pub(super) fn count(&mut self) {
        self.polls += 1;
    }

    /// Whether the next must be a poll: looks alone would put off all else.
    #[inline(always)]
    pub(super) fn needs_poll(&self) -> bool {
        (self.polls + 1).is_multiple_of(POLL_EVERY)
    }

    /// Whether this is the poll, of every so many, that does a thing.
    #[inline(always)]
    pub(super) fn is_turn(&self, every: u64) -> bool {
        self.polls.is_multiple_of(every)
    }

    /// Which of `count` rails this poll asks at step `step`. Each is the first in turn: a busy one leaves no room for others.
    #[inline(always)]
    pub(super) fn rail(&self, step: usize, count: usize) -> usize {
        match count {
            1 => 0,
            _ => (step + usize::from(self.polls.to_le_bytes()[0])) % count,
        }
    }

    /// Something has come, or there is room: the caller may not sleep yet.
    #[inline(always)]
    pub(super) fn stir(&mut self) {
        self.has_stirred = true;
    }

    /// Whether that was so since this was asked last.
    pub(super) fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.has_stirred)
    }

    /// The ports are asked for events at the next look at the clock.
    pub(super) fn ask_events_now(&mut self) {
        self.events_at_ns = 0;
    }

    /// The same, unless they were just asked: where nobody has answered, a port may be found elsewhere by now.
    pub(super) fn ask_events_soon(&mut self) {
        let soon = self.events_were_ns + EVENTS_AT_MOST_EVERY_NS;
        self.events_at_ns = self.events_at_ns.min(soon);
    }

    /// Whether the ports are to be asked for events now; if so, they are asked again after a while.
    pub(super) fn are_events_due(&mut self) -> bool {
        if self.now_ns < self.events_at_ns {
            return false;
        }
        self.events_were_ns = self.now_ns;
        self.events_at_ns = self.now_ns + EVENTS_EVERY_NS;
        true
    }

    /// Whether it is time to look at who does not say what has arrived; if so, it is again after a while.
    pub(super) fn are_receivers_due(&mut self) -> bool {
        if self.now_ns < self.receivers_at_ns() {
            return false;
        }
        self.receivers_ns = self.now_ns;
        true
    }

    /// When that is.
    pub(super) fn receivers_at_ns(&self) -> u64 {
        self.receivers_ns + TRY_EVERY_NS
    }
}

/// A poll is due after so many looks at most.
const POLL_EVERY: u64 = 64;
/// Ports are asked for events every so often, and where a timer runs out at most so often.
const EVENTS_EVERY_NS: u64 = 100_000_000;
const EVENTS_AT_MOST_EVERY_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_so_many_looks_is_a_poll() {
        let mut schedule = Schedule::new(0);
        let mut polls = Vec::new();
        for number in 1..=2 * POLL_EVERY {
            if schedule.needs_poll() {
                polls.push(number);
            }
            schedule.count();
        }
        assert_eq!(polls, [POLL_EVERY, 2 * POLL_EVERY]);
        assert!(schedule.is_turn(POLL_EVERY) && !schedule.is_turn(3));
    }

    #[test]
    fn each_rail_is_the_first_in_turn() {
        let mut schedule = Schedule::new(0);
        let mut firsts = Vec::new();
        for _ in 0..3 {
            schedule.count();
            assert_eq!(schedule.rail(0, 1), 0);
            firsts.push(schedule.rail(0, 3));
            let mut all = [0, 1, 2].map(|step| schedule.rail(step, 3));
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        }
        assert_eq!(firsts, [1, 2, 0]);
    }

    #[test]
    fn ports_are_asked_at_once_then_now_and_then_and_sooner_on_request() {
        let mut schedule = Schedule::new(5);
        assert!(schedule.are_events_due() && !schedule.are_events_due());
        schedule.ask_events_soon();
        assert!(!schedule.are_events_due(), "they were just asked");
        schedule.now_ns += EVENTS_AT_MOST_EVERY_NS;
        assert!(schedule.are_events_due() && !schedule.are_events_due());
        schedule.now_ns += EVENTS_EVERY_NS - 1;
        assert!(!schedule.are_events_due());
        schedule.ask_events_now();
        assert!(schedule.are_events_due());
    }

    #[test]
    fn receivers_are_looked_at_every_so_often() {
        let mut schedule = Schedule::new(TRY_EVERY_NS);
        assert!(schedule.are_receivers_due() && !schedule.are_receivers_due());
        schedule.now_ns = schedule.receivers_at_ns();
        assert!(schedule.are_receivers_due());
    }

    #[test]
    fn what_has_stirred_is_told_once() {
        let mut schedule = Schedule::new(0);
        schedule.stir();
        assert!(schedule.take_stirred() && !schedule.take_stirred());
    }
}
