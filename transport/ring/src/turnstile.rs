// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock between threads that come again and again, each time for a moment. Whoever leaves may come back before those that wait,
//! since the data are in its caches; after some such passes it *offers* the lock, which only one of the others can take then. So
//! the lock changes hands seldom, and nobody waits for long while others come. How a thread waits is its own affair.

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// A lock that nobody has.
#[derive(Debug)]
pub struct Turnstile {
    word: AtomicU32,
    /// Threads that wait.
    waiting: AtomicU32,
    /// Passes since the lock changed hands; the holder counts.
    passes: AtomicU32,
    /// The thread that has offered the lock.
    offerer: AtomicUsize,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const OFFERED: u32 = 2;

impl Turnstile {
    /// Enters, if nobody is inside and nobody is offered to be.
    #[inline(always)]
    pub fn enter(&self) -> bool {
        // PAIR(turnstile): `leave` stores the word with Release.
        let free = self
            .word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok()
    }

    /// Says that a thread waits: from now on it is offered the lock. It goes on until it [has entered](Self::enter_waiting).
    pub fn begin_to_wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// For a thread that waits: enters, if nobody is inside, unless it is this thread that has offered the lock. Threads are told
    /// apart by a number that is not 0. Afterwards it does not wait any more.
    pub fn enter_waiting(&self, thread: usize) -> bool {
        if !self.enter() && !self.take_offer(thread) {
            return false;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.passes.store(0, Ordering::Relaxed);
        true
    }

    /// A thread has waited for long: whoever leaves next offers the lock. It may be overlooked, so that who still waits says it again.
    pub fn insist(&self) {
        self.passes.store(PASSES, Ordering::Relaxed);
    }

    fn take_offer(&self, thread: usize) -> bool {
        // PAIR(turnstile): as in `enter`; it also sees who has offered.
        let is_offered = self.word.load(Ordering::Acquire) == OFFERED;
        is_offered
            && self.offerer.load(Ordering::Relaxed) != thread
            && self
                .word
                .compare_exchange(OFFERED, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Leaves. `true`: the lock is offered, as it is after many passes while somebody waits, and those that [sleep](Self::word) are to
    /// be woken.
    #[inline(always)]
    #[must_use = "those that sleep are to be woken"]
    pub fn leave(&self, thread: usize) -> bool {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            return self.leave_to_others(thread);
        }
        // PAIR(turnstile): who enters loads it with Acquire.
        self.word.store(FREE, Ordering::Release);
        false
    }

    #[inline(never)]
    fn leave_to_others(&self, thread: usize) -> bool {
        let passes = self.passes.load(Ordering::Relaxed).saturating_add(1);
        self.passes.store(passes, Ordering::Relaxed);
        let offers = passes >= PASSES;
        if offers {
            self.offerer.store(thread, Ordering::Relaxed);
        }
        // PAIR(turnstile): as in `leave`. Who waits stays until it has entered, so an offer is taken by somebody.
        self.word
            .store(if offers { OFFERED } else { FREE }, Ordering::Release);
        offers
    }

    /// Whether a thread waits.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// The word that a thread may sleep at while it has the value that is answered too: not for ever, since whoever leaves wakes
    /// nobody but when it offers the lock. `None`: somebody may enter.
    #[cfg(not(loom))]
    #[must_use]
    pub fn word(&self, thread: usize) -> Option<(*const u32, u32)> {
        let now = self.word.load(Ordering::Relaxed);
        let is_own_offer = now == OFFERED && self.offerer.load(Ordering::Relaxed) == thread;
        (now == HELD || is_own_offer).then_some((self.word.as_ptr().cast_const(), now))
    }
}

#[cfg(not(loom))]
impl Turnstile {
    /// A lock that nobody has.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            word: AtomicU32::new(FREE),
            waiting: AtomicU32::new(0),
            passes: AtomicU32::new(0),
            offerer: AtomicUsize::new(0),
        }
    }
}

#[cfg(loom)]
impl Turnstile {
    /// As above: loom's words are not made at compile time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(FREE),
            waiting: AtomicU32::new(0),
            passes: AtomicU32::new(0),
            offerer: AtomicUsize::new(0),
        }
    }
}

impl Default for Turnstile {
    fn default() -> Self {
        Self::new()
    }
}

/// So often a thread passes while others wait.
const PASSES: u32 = if cfg!(loom) { 2 } else { 128 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_is_inside_at_a_time() {
        let lock = Turnstile::new();
        assert!(lock.enter() && !lock.enter());
        assert!(!lock.leave(1), "nobody waits");
        assert!(lock.enter());
    }

    /// Thread 1 comes until it offers the lock to those that wait.
    fn pass_until_offered(lock: &Turnstile) {
        for pass in 1.. {
            assert!(lock.enter());
            let offered = lock.leave(1);
            assert_eq!(offered, pass == PASSES);
            if offered {
                break;
            }
        }
    }

    #[test]
    fn who_waits_is_offered_the_lock_after_some_passes_and_nobody_else_takes_it() {
        let lock = Turnstile::new();
        lock.begin_to_wait();
        pass_until_offered(&lock);
        assert!(!lock.enter(), "it is for who waits");
        lock.begin_to_wait();
        assert!(!lock.enter_waiting(1), "not for who offers it");
        assert!(lock.enter_waiting(2) && !lock.enter_waiting(1));
        assert!(!lock.leave(2) && lock.enter_waiting(1));
        assert!(!lock.is_wanted() && !lock.leave(1));
    }

    #[test]
    fn who_has_waited_for_long_comes_next() {
        let lock = Turnstile::new();
        assert!(lock.enter());
        lock.begin_to_wait();
        lock.insist();
        assert!(lock.leave(1) && !lock.enter() && lock.enter_waiting(2));
        assert!(!lock.leave(2) && lock.enter() && !lock.leave(1));
    }

    #[test]
    fn who_cannot_enter_sleeps_at_the_word() {
        let lock = Turnstile::new();
        assert_eq!(lock.word(1), None);
        assert!(lock.enter());
        assert_eq!(lock.word(1).unwrap().1, HELD);
        assert!(!lock.leave(1));
        lock.begin_to_wait();
        pass_until_offered(&lock);
        assert_eq!((lock.word(2), lock.word(1).unwrap().1), (None, OFFERED));
    }
}
