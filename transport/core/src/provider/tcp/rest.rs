// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns in which nobody asks the system what has happened. A process polls all that it has, however it waits, and a job whose messages go
//! through shared memory would make a system call in each turn for nothing. Such turns take so little time that who spins is not later
//! by them; for who polls seldom the clock decides.

/// When turns do something.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The next turn does, whichever it is.
    is_over: bool,
    looked_ns: u64,
}

impl Rest {
    /// The next turn does something.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether this turn does nothing, where one of `every` does something at least.
    #[inline]
    pub(super) fn goes_on(&mut self, turn: u64, every: u64, clock_ns: impl Fn() -> u64) -> bool {
        if every == 1 {
            return false;
        }
        if !self.is_over && !turn.is_multiple_of(every) {
            if !turn.is_multiple_of(CLOCK_EVERY) {
                return true;
            }
            let now_ns = clock_ns();
            if now_ns.saturating_sub(self.looked_ns) < MOST_REST_NS {
                return true;
            }
        }
        self.is_over = false;
        self.looked_ns = clock_ns();
        false
    }
}

/// Of so many turns one looks at the clock.
const CLOCK_EVERY: u64 = 4;
/// Whoever polls seldom rests no longer.
const MOST_REST_NS: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_some_turns_does_something_and_more_where_they_come_seldom() {
        let mut rest = Rest::default();
        let mut looks = |turns: u64, every, pause_ns| {
            let does = |turn: &u64| !rest.goes_on(*turn, every, || (1 << 40) + turn * pause_ns);
            (1..=turns).filter(does).count()
        };
        assert_eq!(looks(640, 1, 30), 640);
        assert!(looks(640, 64, 30) <= 11);
        assert_eq!(looks(640, 64, 1_000_000), 640 / 4);
        rest.end();
        assert!(!rest.goes_on(1, 64, || 0) && rest.goes_on(2, 64, || 0));
    }
}
