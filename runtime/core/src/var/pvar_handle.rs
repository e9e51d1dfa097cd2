// SPDX-License-Identifier: MIT OR Apache-2.0
//! A handle of a performance variable: the object to which it is bound, and the value as this handle shows it. A change
//! of a value takes effect with one atomic store, so a signal handler or another thread sees the value either before or
//! after the change.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::pvars::PerformanceVariable;

/// The state of a handle of a performance variable, or of a free entry.
#[derive(Debug, Default)]
pub(super) struct PvarHandle {
    /// Twice the generation, plus 1 while the entry is in use.
    life: AtomicU32,
    /// Index of the variable in [`PVARS`](super::pvars::PVARS).
    pvar: AtomicU32,
    /// The session of the handle: a number that identifies one use of a session's entry.
    session: AtomicU32,
    /// The binding of the handle: see `tool_sessions`.
    object: AtomicU64,
    running: AtomicU32,
    /// Number of values of the variable.
    count: AtomicU32,
    first: PvarAccount,
    /// The values after the first. They are allocated when the entry is first used for a variable with several values,
    /// and are not freed.
    others: OnceLock<Box<[PvarAccount]>>,
}

/// One value as this handle shows it.
#[derive(Debug, Default)]
struct PvarAccount {
    /// While the handle runs: the number that is subtracted from the source's value; the handle shows the difference.
    base: AtomicU64,
    /// The value while the handle is stopped.
    held: AtomicU64,
}

const RELAXED: Ordering = Ordering::Relaxed;

impl PvarHandle {
    /// Uses this entry for a new handle, which is stopped. If the variable is a counter, the handle reads 0 until it is
    /// started. Returns the generation of the handle.
    pub(super) fn open(&self, pvar: usize, count: usize, session: u32, object: u64) -> u8 {
        if count > 1 {
            // The only count other than one is the number of ranks, which does not change: memory from an earlier use
            // of this entry has the right length.
            let account = |_| PvarAccount::default();
            self.others
                .get_or_init(|| (1..count).map(account).collect());
        }
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        self.pvar.store(number(pvar), RELAXED);
        self.session.store(session, RELAXED);
        self.object.store(object, RELAXED);
        self.running.store(0, RELAXED);
        self.count.store(number(count), RELAXED);
        for account in (0..count).filter_map(|at| self.account(at)) {
            account.base.store(0, RELAXED);
            account.held.store(0, RELAXED);
        }
        let life = self.life.load(RELAXED) | 1;
        // PAIR(pvar-handle-life): `is_open` loads with Acquire, and then sees the stores above.
        self.life.store(life, Ordering::Release);
        generation(life)
    }

    /// Ends the use of this entry. Its handle is invalid from now on.
    pub(super) fn close(&self) {
        let life = self.life.load(RELAXED);
        // PAIR(pvar-handle-life): as in `open`.
        self.life
            .store((life | 1).wrapping_add(1), Ordering::Release);
    }

    /// Whether this entry is in use for the handle with this generation and session.
    pub(super) fn is_open(&self, of: u8, session: u32) -> bool {
        // PAIR(pvar-handle-life): `open` and `close` store with Release.
        let life = self.life.load(Ordering::Acquire);
        life & 1 != 0 && generation(life) == of && self.session.load(RELAXED) == session
    }

    /// Whether this entry is in use for a handle of `session`.
    pub(super) fn is_of(&self, session: u32) -> bool {
        // PAIR(pvar-handle-life): `open` and `close` store with Release.
        self.life.load(Ordering::Acquire) & 1 != 0 && self.session.load(RELAXED) == session
    }

    pub(super) fn pvar(&self) -> usize {
        self.pvar.load(RELAXED) as usize
    }

    pub(super) fn object(&self) -> u64 {
        self.object.load(RELAXED)
    }

    /// Number of values.
    pub(super) fn count(&self) -> usize {
        self.count.load(RELAXED) as usize
    }

    fn account(&self, at: usize) -> Option<&PvarAccount> {
        match at.checked_sub(1) {
            None => Some(&self.first),
            Some(other) => self.others.get()?.get(other),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.load(RELAXED) != 0
    }

    /// Starts the handle, or continues where it stopped. `now` returns the present value of the source of each value.
    pub(super) fn start(&self, now: impl Fn(usize) -> u64) {
        for (at, account) in self.accounts() {
            let held = account.held.load(RELAXED);
            account.base.store(now(at).wrapping_sub(held), RELAXED);
        }
        self.running.store(1, RELAXED);
    }

    /// Stops the handle, which keeps its values. `now`: as for [`start`](Self::start).
    pub(super) fn stop(&self, pvar: &PerformanceVariable, now: impl Fn(usize) -> u64) {
        for (at, account) in self.accounts() {
            account.held.store(self.value(pvar, at, now(at)), RELAXED);
        }
        self.running.store(0, RELAXED);
    }

    fn accounts(&self) -> impl Iterator<Item = (usize, &PvarAccount)> {
        (0..self.count()).filter_map(|at| Some((at, self.account(at)?)))
    }

    /// Value number `at` of the handle. `now`: the present value of its source.
    pub(super) fn value(&self, pvar: &PerformanceVariable, at: usize, now: u64) -> u64 {
        if pvar.is_continuous() {
            return now;
        }
        let Some(account) = self.account(at) else {
            return 0;
        };
        match self.is_running() {
            false => account.held.load(RELAXED),
            true if pvar.is_counted() => now.wrapping_sub(account.base.load(RELAXED)),
            true => now,
        }
    }

    /// Sets value number `at` of a counter to `value`, and returns the previous value. `now`: the present value of its
    /// source. The exchange is atomic, so nothing is counted twice or lost.
    pub(super) fn exchange(&self, at: usize, now: u64, value: u64) -> u64 {
        let Some(account) = self.account(at) else {
            return 0;
        };
        if self.is_running() {
            let base = account.base.swap(now.wrapping_sub(value), RELAXED);
            now.wrapping_sub(base)
        } else {
            account.held.swap(value, RELAXED)
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "eight bits are kept")]
fn generation(life: u32) -> u8 {
    (life >> 1) as u8
}

#[cfg(test)]
mod tests {
    use super::super::pvars::{PVARS, PvarClass};
    use super::*;

    fn counter() -> &'static PerformanceVariable {
        let counts = |pvar: &&PerformanceVariable| pvar.class == PvarClass::Counter;
        PVARS.iter().find(counts).unwrap()
    }

    #[test]
    fn a_counter_counts_only_while_started() {
        let (pvar_handle, pvar) = (PvarHandle::default(), counter());
        pvar_handle.open(3, 1, 1, 0);
        assert_eq!(pvar_handle.value(pvar, 0, 500), 0);
        pvar_handle.start(|_| 500);
        assert_eq!(pvar_handle.value(pvar, 0, 510), 10);
        pvar_handle.stop(pvar, |_| 512);
        assert_eq!(pvar_handle.value(pvar, 0, 600), 12);
        pvar_handle.start(|_| 700);
        assert_eq!(pvar_handle.value(pvar, 0, 701), 13);
        assert_eq!(pvar_handle.exchange(0, 705, 0), 17);
        assert_eq!(pvar_handle.value(pvar, 0, 706), 1);
        assert_eq!(pvar_handle.exchange(0, 706, 100), 1);
        assert_eq!(pvar_handle.value(pvar, 0, 708), 102);
        pvar_handle.stop(pvar, |_| 708);
        assert_eq!(
            (pvar_handle.exchange(0, 0, 5), pvar_handle.value(pvar, 0, 0)),
            (102, 5)
        );
    }

    #[test]
    fn a_counter_continues_after_overflow() {
        let (pvar_handle, pvar) = (PvarHandle::default(), counter());
        pvar_handle.open(3, 1, 1, 0);
        pvar_handle.start(|_| u64::MAX - 1);
        assert_eq!(pvar_handle.value(pvar, 0, 3), 5);
    }

    #[test]
    fn elements_of_a_counter_are_independent() {
        let (pvar_handle, pvar) = (PvarHandle::default(), counter());
        pvar_handle.open(3, 3, 1, 0);
        pvar_handle.start(|at| 100 * at as u64);
        let values =
            |more: u64| [0, 1, 2, 3].map(|at| pvar_handle.value(pvar, at, 100 * at as u64 + more));
        assert_eq!(values(7), [7, 7, 7, 0]);
        assert_eq!(pvar_handle.exchange(1, 107, 0), 7);
        assert_eq!(values(9), [9, 2, 9, 0]);
        pvar_handle.stop(pvar, |at| 100 * at as u64 + 10);
        assert_eq!(values(50), [10, 3, 10, 0]);
        pvar_handle.close();
        pvar_handle.open(3, 1, 1, 0);
        pvar_handle.start(|_| 4);
        assert_eq!((pvar_handle.count(), pvar_handle.value(pvar, 0, 5)), (1, 1));
    }

    #[test]
    fn a_closed_pvar_handle_is_invalid() {
        let pvar_handle = PvarHandle::default();
        let first = pvar_handle.open(3, 1, 7, 9);
        assert!(
            pvar_handle.is_open(first, 7) && !pvar_handle.is_open(first, 8) && pvar_handle.is_of(7)
        );
        pvar_handle.close();
        assert!(!pvar_handle.is_open(first, 7) && !pvar_handle.is_of(7));
        let second = pvar_handle.open(4, 1, 7, 9);
        assert!(first != second && !pvar_handle.is_open(first, 7));
        assert_eq!(
            (
                pvar_handle.pvar(),
                pvar_handle.object(),
                pvar_handle.is_running()
            ),
            (4, 9, false)
        );
    }
}
