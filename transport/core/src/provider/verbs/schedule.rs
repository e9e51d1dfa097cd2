// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts polls, caches the clock, and decides when periodic checks are due. The callers carry out the checks.

use super::fetch::TRY_EVERY_NS;

/// Poll counter and times of periodic checks.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The time of the last reading of the clock.
    pub(super) now_ns: u64,
    polls: u64,
    /// Whether something has arrived or ended since the caller last tried to sleep: there may be room again.
    has_activity: bool,
    /// Time of the next check for asynchronous events.
    events_at_ns: u64,
    /// Time of the last check for asynchronous events.
    events_were_ns: u64,
    /// Time of the last check for missing acknowledgements.
    receivers_ns: u64,
}

impl Schedule {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            now_ns,
            polls: 0,
            has_activity: false,
            events_at_ns: 0,
            events_were_ns: 0,
            receivers_ns: 0,
        }
    }

    /// Number of polls so far, including calls of `Verbs::poll_word` in place of a poll.
    #[inline(always)]
    pub(super) fn polls(&self) -> u64 {
        self.polls
    }

    /// Counts a poll.
    #[inline(always)]
    pub(super) fn count(&mut self) {
        self.polls += 1;
    }

    /// Whether the next poll must be a full one: the fast path by itself would delay everything else.
    #[inline(always)]
    pub(super) fn needs_poll(&self) -> bool {
        (self.polls + 1).is_multiple_of(POLL_EVERY)
    }

    /// Whether work that is done every `every` polls is due in this poll.
    #[inline(always)]
    pub(super) fn is_turn(&self, every: u64) -> bool {
        self.polls.is_multiple_of(every)
    }

    /// The rail that this poll reads at step `step`, of `count` rails. The rails take turns at being read first, since
    /// a busy rail leaves no room for the others.
    #[inline(always)]
    pub(super) fn rail(&self, step: usize, count: usize) -> usize {
        match count {
            1 => 0,
            _ => (step + usize::from(self.polls.to_le_bytes()[0])) % count,
        }
    }

    /// Records that something has arrived or ended: the caller may not sleep yet.
    #[inline(always)]
    pub(super) fn note_activity(&mut self) {
        self.has_activity = true;
    }

    /// Whether anything has arrived or ended since the last call.
    pub(super) fn take_activity(&mut self) -> bool {
        std::mem::take(&mut self.has_activity)
    }

    /// Makes the check for asynchronous events due at the next reading of the clock.
    pub(super) fn check_events_now(&mut self) {
        self.events_at_ns = 0;
    }

    /// Makes the check for asynchronous events due, at most once a millisecond: after a timeout a port's address may
    /// have changed.
    pub(super) fn check_events_soon(&mut self) {
        let soon = self.events_were_ns + EVENTS_AT_MOST_EVERY_NS;
        self.events_at_ns = self.events_at_ns.min(soon);
    }

    /// Whether the check for asynchronous events is due; if so, schedules the next one.
    pub(super) fn are_events_due(&mut self) -> bool {
        if self.now_ns < self.events_at_ns {
            return false;
        }
        self.events_were_ns = self.now_ns;
        self.events_at_ns = self.now_ns + EVENTS_EVERY_NS;
        true
    }

    /// Whether the check for missing acknowledgements is due; if so, schedules the next one.
    pub(super) fn are_receivers_due(&mut self) -> bool {
        if self.now_ns < self.receivers_at_ns() {
            return false;
        }
        self.receivers_ns = self.now_ns;
        true
    }

    /// When the next check for missing acknowledgements is due.
    pub(super) fn receivers_at_ns(&self) -> u64 {
        self.receivers_ns + TRY_EVERY_NS
    }
}

/// At least one of this many polls is a full poll.
const POLL_EVERY: u64 = 64;
/// Intervals of checks for asynchronous events: the regular one, and the shortest one after a timer has expired.
const EVENTS_EVERY_NS: u64 = 100_000_000;
const EVENTS_AT_MOST_EVERY_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nth_poll_must_be_a_full_one() {
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
    fn rails_take_turns_being_polled_first() {
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
    fn port_events_are_checked_periodically_and_sooner_on_request() {
        let mut schedule = Schedule::new(5);
        assert!(schedule.are_events_due() && !schedule.are_events_due());
        schedule.check_events_soon();
        assert!(!schedule.are_events_due(), "they were just checked");
        schedule.now_ns += EVENTS_AT_MOST_EVERY_NS;
        assert!(schedule.are_events_due() && !schedule.are_events_due());
        schedule.now_ns += EVENTS_EVERY_NS - 1;
        assert!(!schedule.are_events_due());
        schedule.check_events_now();
        assert!(schedule.are_events_due());
    }

    #[test]
    fn receivers_are_checked_periodically() {
        let mut schedule = Schedule::new(TRY_EVERY_NS);
        assert!(schedule.are_receivers_due() && !schedule.are_receivers_due());
        schedule.now_ns = schedule.receivers_at_ns();
        assert!(schedule.are_receivers_due());
    }

    #[test]
    fn activity_is_reported_once() {
        let mut schedule = Schedule::new(0);
        schedule.note_activity();
        assert!(schedule.take_activity() && !schedule.take_activity());
    }
}
