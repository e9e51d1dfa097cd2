// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which turns (calls of `poll`) make no system call. A process polls all its networks, however it waits. So a
//! job whose messages go through shared memory would otherwise make a useless system call in each turn. A spinning
//! process makes turns so fast that it may skip most of them; for a process that polls rarely, the time since the last
//! turn that did something decides. The clock is read once in several turns, or in each turn if turns are rare.

/// Decides which turns do something.
#[derive(Debug, Default)]
pub(super) struct IdlePolls {
    /// Whether the next turn does something in any case.
    is_over: bool,
    polled_ns: u64,
    /// `read_ns`: last reading of the clock. `left`: turns until the next reading. `step`: turns between readings.
    read_ns: u64,
    left: u64,
    step: u64,
}

impl IdlePolls {
    /// Makes the next turn do something.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether turns are rare: then each turn that is not skipped checks everything.
    #[inline]
    pub(super) fn is_seldom(&self) -> bool {
        self.step <= 1
    }

    /// Whether this turn does nothing, if at least one of `every` turns does something. Call it once in each turn.
    #[inline]
    pub(super) fn skips_turn(&mut self, turn: u64, every: u64, clock_ns: impl Fn() -> u64) -> bool {
        self.left = self.left.saturating_sub(1);
        let now_ns = (self.left == 0).then(|| self.read_clock(every, clock_ns()));
        if every == 1 {
            return false;
        }
        let is_long = |now_ns: u64| now_ns.saturating_sub(self.polled_ns) >= MOST_REST_NS;
        let is_due = self.is_over || turn.is_multiple_of(every);
        if !is_due && !now_ns.is_some_and(is_long) {
            return true;
        }
        self.is_over = false;
        self.polled_ns = now_ns.unwrap_or_else(clock_ns);
        false
    }

    /// Handles a reading of the clock, and returns it. If at least [`MOST_REST_NS`] have passed since the last reading,
    /// turns are rare: the clock is then read in each turn, and gradually less often when no more such pauses occur.
    fn read_clock(&mut self, every: u64, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.read_ns);
        self.step = match (passed_ns >= MOST_REST_NS, every) {
            (true, _) => 1,
            (false, 1) => (2 * self.step).clamp(1, CLOCK_EVERY_POLLS),
            (false, _) => (2 * self.step).clamp(1, CLOCK_EVERY),
        };
        (self.read_ns, self.left) = (now_ns, self.step);
        now_ns
    }
}

/// One of this many turns reads the clock; if every turn polls for events, one of [`CLOCK_EVERY_POLLS`].
const CLOCK_EVERY: u64 = 4;
const CLOCK_EVERY_POLLS: u64 = 8;
/// Longest time between turns that do something, for a process that polls rarely.
const MOST_REST_NS: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Number of turns, of `turns`, that do something, and number of clock readings.
    fn polls(rest: &mut IdlePolls, turns: u64, every: u64, pause_ns: u64) -> (u64, u64) {
        let begin_ns = rest.read_ns;
        let readings = Cell::new(0);
        let does = |turn: &u64| {
            !rest.skips_turn(*turn, every, || {
                readings.set(readings.get() + 1);
                begin_ns + turn * pause_ns
            })
        };
        let polls = (1..=turns).filter(does).count();
        (polls as u64, readings.get())
    }

    #[test]
    fn idle_polls_are_skipped_unless_polls_are_rare() {
        let mut rest = IdlePolls::default();
        let (all, readings) = polls(&mut rest, 640, 1, 30);
        assert!(all == 640 && readings <= 640 / CLOCK_EVERY_POLLS + 3);
        let (few, readings) = polls(&mut rest, 640, 64, 30);
        assert!(few <= 11 && readings <= 640 / CLOCK_EVERY + 11);
        assert!(!rest.is_seldom());
        // Turns before the first reading of the clock may be skipped: only the clock shows that turns are rare.
        let (some, _) = polls(&mut rest, 640, 64, 1_000_000);
        assert!(rest.is_seldom() && some > 640 - CLOCK_EVERY, "{some}");
        assert!(polls(&mut rest, 640, 64, 30).0 <= 13);
        assert!(!rest.is_seldom());
        rest.end();
        let now_ns = rest.read_ns;
        assert!(!rest.skips_turn(1, 64, || now_ns) && rest.skips_turn(2, 64, || now_ns));
    }

    #[test]
    fn skipped_polls_stay_within_the_idle_time_at_any_poll_rate() {
        for pause_ns in [1, 1_000, 60_000, 130_000, 200_000, 400_000, 700_000] {
            let mut rest = IdlePolls::default();
            polls(&mut rest, 100, 64, pause_ns);
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
