// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns that make no system call. A process polls all its networks, however it waits, and a job whose messages go
//! through shared memory would make a system call in each turn for nothing. Such turns take so little time that a
//! spinning process loses nothing; for a process that polls rarely the clock decides. The clock is read once in
//! several turns, and in each where turns are rare.

/// Decides which turns do something.
#[derive(Debug, Default)]
pub(super) struct IdlePolls {
    /// The next turn does something, in any case.
    is_over: bool,
    looked_ns: u64,
    /// Last reading of the clock, the turns until the next one, and the interval in turns.
    read_ns: u64,
    left: u64,
    step: u64,
}

impl IdlePolls {
    /// Makes the next turn do something.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether turns are so rare that none should be skipped.
    #[inline]
    pub(super) fn is_seldom(&self) -> bool {
        self.step <= 1
    }

    /// Whether this turn does nothing, where at least one of `every` does something. Call it once in each turn.
    #[inline]
    pub(super) fn skips_turn(&mut self, turn: u64, every: u64, clock_ns: impl Fn() -> u64) -> bool {
        self.left = self.left.saturating_sub(1);
        let now_ns = (self.left == 0).then(|| self.read_clock(every, clock_ns()));
        if every == 1 {
            return false;
        }
        let is_long = |now_ns: u64| now_ns.saturating_sub(self.looked_ns) >= MOST_REST_NS;
        let is_due = self.is_over || turn.is_multiple_of(every);
        if !is_due && !now_ns.is_some_and(is_long) {
            return true;
        }
        self.is_over = false;
        self.looked_ns = now_ns.unwrap_or_else(clock_ns);
        false
    }

    /// Reads the clock to estimate how rare turns are: after one pause it is read in each turn, and less often again
    /// where there are none.
    fn read_clock(&mut self, every: u64, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.read_ns);
        self.step = match (passed_ns >= MOST_REST_NS, every) {
            (true, _) => 1,
            (false, 1) => (2 * self.step).clamp(1, CLOCK_EVERY_LOOKS),
            (false, _) => (2 * self.step).clamp(1, CLOCK_EVERY),
        };
        (self.read_ns, self.left) = (now_ns, self.step);
        now_ns
    }
}

/// One of this many turns reads the clock; the second, where every turn polls for events.
const CLOCK_EVERY: u64 = 4;
const CLOCK_EVERY_LOOKS: u64 = 8;
/// Longest time between turns that do something, for a process that polls rarely.
const MOST_REST_NS: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Number of turns that do something, of so many, and number of clock readings.
    fn looks(rest: &mut IdlePolls, turns: u64, every: u64, pause_ns: u64) -> (u64, u64) {
        let begin_ns = rest.read_ns;
        let readings = Cell::new(0);
        let does = |turn: &u64| {
            !rest.skips_turn(*turn, every, || {
                readings.set(readings.get() + 1);
                begin_ns + turn * pause_ns
            })
        };
        let looks = (1..=turns).filter(does).count();
        (looks as u64, readings.get())
    }

    #[test]
    fn one_of_some_turns_does_something_and_all_where_they_come_seldom() {
        let mut rest = IdlePolls::default();
        let (all, readings) = looks(&mut rest, 640, 1, 30);
        assert!(all == 640 && readings <= 640 / CLOCK_EVERY_LOOKS + 3);
        let (few, readings) = looks(&mut rest, 640, 64, 30);
        assert!(few <= 11 && readings <= 640 / CLOCK_EVERY + 11);
        assert!(!rest.is_seldom());
        // Nothing is known before the first reading of the clock.
        let (some, _) = looks(&mut rest, 640, 64, 1_000_000);
        assert!(rest.is_seldom() && some > 640 - CLOCK_EVERY, "{some}");
        assert!(looks(&mut rest, 640, 64, 30).0 <= 13);
        assert!(!rest.is_seldom());
        rest.end();
        let now_ns = rest.read_ns;
        assert!(!rest.skips_turn(1, 64, || now_ns) && rest.skips_turn(2, 64, || now_ns));
    }

    #[test]
    fn whatever_the_pace_nobody_rests_much_longer_than_is_allowed() {
        for pause_ns in [1, 1_000, 60_000, 130_000, 200_000, 400_000, 700_000] {
            let mut rest = IdlePolls::default();
            looks(&mut rest, 100, 64, pause_ns);
            let begin_ns = rest.read_ns;
            let mut last = 0;
            for turn in 1..=1000 {
                if !rest.skips_turn(turn, 64, || begin_ns + turn * pause_ns) {
                    let rested_ns = (turn - last) * pause_ns;
                    assert!(rested_ns <= 3 * MOST_REST_NS, "{pause_ns}: {rested_ns}");
                    last = turn;
                }
            }
        }
    }
}
