// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock between threads that take it again and again, each time for a short time. The thread that leaves may take the
//! lock again before waiting threads do, since the data are in its caches. After some such passes it *offers* the lock:
//! then only another thread can take it. So the lock changes hands rarely, and no thread waits for long while another
//! passes. How a thread waits is the caller's choice.

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// The lock.
#[derive(Debug)]
pub struct Turnstile {
    word: AtomicU32,
    /// Number of waiting threads.
    waiting: AtomicU32,
    /// Number of passes since a waiting thread last entered. The holder of the lock counts them while threads wait.
    passes: AtomicU32,
    /// The thread that has offered the lock.
    offerer: AtomicUsize,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const OFFERED: u32 = 2;

impl Turnstile {
    /// Enters, if the lock is free and not offered. `true`: the caller holds the lock.
    #[inline(always)]
    pub fn enter(&self) -> bool {
        // PAIR(turnstile): `leave` stores the word with Release.
        let free = self
            .word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok()
    }

    /// Counts the calling thread as waiting: from now on the holder counts its passes, and after some passes it offers
    /// the lock. The thread must try to [enter](Self::enter_waiting) until it has succeeded.
    pub fn begin_to_wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// For a waiting thread: enters, if the lock is free, or offered by another thread. `true`: the thread holds the
    /// lock and is no longer counted as waiting. Threads are identified by numbers that are not 0.
    pub fn enter_waiting(&self, thread: usize) -> bool {
        if !self.enter() && !self.take_offer(thread) {
            return false;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.passes.store(0, Ordering::Relaxed);
        true
    }

    /// For a thread that has waited long: requests that the holder offers the lock when it leaves. The request may be
    /// lost, so the waiting thread repeats it.
    pub fn insist(&self) {
        self.passes.store(PASSES, Ordering::Relaxed);
    }

    fn take_offer(&self, thread: usize) -> bool {
        // PAIR(turnstile): as in `enter`. With Acquire this thread also sees which thread has offered the lock.
        let is_offered = self.word.load(Ordering::Acquire) == OFFERED;
        is_offered
            && self.offerer.load(Ordering::Relaxed) != thread
            && self
                .word
                .compare_exchange(OFFERED, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Leaves the lock. `true`: the lock is offered, because a thread waits, and there were many passes or that thread
    /// [insists](Self::insist). Then the caller must wake the threads that [sleep](Self::word).
    #[inline(always)]
    #[must_use = "those that sleep are to be woken"]
    pub fn leave(&self, thread: usize) -> bool {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            return self.leave_to_others(thread);
        }
        // PAIR(turnstile): the thread that enters loads the word with Acquire.
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
        // PAIR(turnstile): as in `leave`. A waiting thread tries until it has entered, so an offer is always taken.
        self.word
            .store(if offers { OFFERED } else { FREE }, Ordering::Release);
        offers
    }

    /// Whether any thread waits.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// The futex word on which `thread` may sleep, and the value that the word must still have. The sleep needs a
    /// timeout, since a leaving thread wakes others only when it offers the lock. `None`: the thread should try to
    /// enter instead of sleeping.
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
    /// A free lock.
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
    /// A free lock. The function is not `const`, since loom's atomics cannot be made at compile time.
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

/// Number of passes after which the holder offers the lock, if threads wait.
const PASSES: u32 = if cfg!(loom) { 2 } else { 128 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn turnstile_admits_one_thread() {
        let lock = Turnstile::new();
        assert!(lock.enter() && !lock.enter());
        assert!(!lock.leave(1), "there is no waiter");
        assert!(lock.enter());
    }

    /// Thread 1 passes until it offers the lock to waiting threads.
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
    fn waiter_is_offered_the_lock_after_some_passes() {
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
    fn insisting_waiter_gets_the_lock_next() {
        let lock = Turnstile::new();
        assert!(lock.enter());
        lock.begin_to_wait();
        lock.insist();
        assert!(lock.leave(1) && !lock.enter() && lock.enter_waiting(2));
        assert!(!lock.leave(2) && lock.enter() && !lock.leave(1));
    }

    #[test]
    fn futex_word_is_given_only_to_threads_that_must_wait() {
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
