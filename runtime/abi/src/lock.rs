// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock of `MPI_THREAD_MULTIPLE`. Below that level only a flag is read.
//!
//! The lock is recursive, because code that holds it may look up an error handler, which takes the lock again
//! ([`crate::state::peek`]). A body that waits, or calls a function of the program, releases it for that time:
//! [`without`].
//!
//! It is based on a [`Turnstile`]: a thread that releases the lock can retake it before waiting threads, at most some
//! hundred times. So the lock seldom changes its owner, and the data that it guards stay in one core's caches. A
//! waiting thread spins, then yields its core between polls, and then sleeps for a bounded time.
//!
//! If the system supports it, the first thread that takes the lock, or one that took it many times in a row without
//! competition, gets a [`Bias`]: from then on it takes the lock with two stores. Another thread enters the turnstile as
//! usual, and then revokes the bias. Most programs that request this level call MPI from only one thread, and pay next
//! to nothing for the lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use runtime::thread::{
    Bias, BiasTurn, Turnstile, fence_own_threads, register_own_threads, sleep_at, thread_number,
    wake_at,
};

static MULTIPLE: AtomicBool = AtomicBool::new(false);
static TURNSTILE: Turnstile = Turnstile::new();
static BIAS: Bias = Bias::new();
/// Whether the system supports the process-wide fence (`membarrier`) that a bias needs.
static MAY_BIAS: AtomicBool = AtomicBool::new(false);
/// `LAST`: the thread that entered the turnstile last. `STREAK`: how many times in a row that thread had entered
/// before. Both are accessed only under the lock.
static LAST: AtomicUsize = AtomicUsize::new(0);
static STREAK: AtomicU32 = AtomicU32::new(0);
/// `HOLDER`: the number of the thread that holds the lock; 0 if no thread holds it, or if it is held only by a
/// [`BiasGuard`] or [`TurnstileGuard`]. `DEPTH`: the depth of recursion. A thread finds its own number in `HOLDER` only
/// while it holds the lock, and only the thread that holds the lock writes these two.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
static DEPTH: AtomicU32 = AtomicU32::new(0);
/// How the lock was taken: at the turnstile, or with the bias.
static TAKEN_BY: AtomicU32 = AtomicU32::new(BY_TURNSTILE);

/// Sets whether `MPI_THREAD_MULTIPLE` was provided. Called by initialization, before other threads may call MPI.
pub fn set_multiple(multiple: bool) {
    let may_bias = multiple && register_own_threads();
    MAY_BIAS.store(may_bias, Ordering::Relaxed);
    // PAIR(thread-level): `is_multiple` loads with Acquire.
    MULTIPLE.store(multiple, Ordering::Release);
}

/// Whether the lock is in use.
#[inline]
pub fn is_multiple() -> bool {
    // PAIR(thread-level): `set_multiple` stores with Release before other threads may call.
    MULTIPLE.load(Ordering::Acquire)
}

/// Holds the lock until dropped. Below `MPI_THREAD_MULTIPLE` the guard has no effect.
#[derive(Debug)]
pub struct LockGuard {
    locked: bool,
}

impl Drop for LockGuard {
    #[inline]
    fn drop(&mut self) {
        if self.locked {
            leave();
        }
    }
}

/// Takes the lock, if there is one at this thread level.
#[inline]
pub fn hold() -> LockGuard {
    let locked = is_multiple();
    if locked {
        take();
    }
    LockGuard { locked }
}

/// Takes the lock if this thread has the bias and does not hold the lock already. Only at `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub fn hold_biased() -> Option<BiasGuard> {
    BIAS.enter(thread_number()).map(BiasGuard)
}

/// Holds the lock, taken with the bias, until dropped. Does not record the holder in `HOLDER`, so it is only for code
/// that does not take the lock again.
#[derive(Debug)]
pub struct BiasGuard(BiasTurn);

impl Drop for BiasGuard {
    #[inline(always)]
    fn drop(&mut self) {
        BIAS.leave(self.0);
    }
}

/// Takes the lock if no thread holds it or has a bias to it. Only at `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub fn hold_free() -> Option<TurnstileGuard> {
    let me = thread_number();
    if BIAS.has_owner() || !TURNSTILE.enter() {
        return None;
    }
    let held = TurnstileGuard { me };
    // A thread may have got the bias between the first check and `enter`. No thread gets a bias while this thread is
    // inside.
    if BIAS.has_owner() {
        return None;
    }
    note_entered(me);
    Some(held)
}

/// Holds the lock, taken at the turnstile, until dropped. Does not record the holder in `HOLDER`, so it is only for
/// code that does not take the lock again.
#[derive(Debug)]
pub struct TurnstileGuard {
    me: usize,
}

impl Drop for TurnstileGuard {
    #[inline(always)]
    fn drop(&mut self) {
        leave_turnstile(self.me);
    }
}

/// Whether other threads also take the lock. Only its holder may call this. `false` if the holder has the bias, or has
/// long been the only thread that takes the lock.
pub fn is_contended() -> bool {
    !BIAS.is_owner(thread_number()) && STREAK.load(Ordering::Relaxed) < ALONE_STREAK
}

/// Releases the lock while `inside` runs. For blocking system calls, and for functions of the program: they may wait
/// for another thread that calls MPI.
pub fn without<T>(inside: impl FnOnce() -> T) -> T {
    let me = thread_number();
    if HOLDER.load(Ordering::Relaxed) != me {
        return inside();
    }
    let depth = DEPTH.load(Ordering::Relaxed);
    give_up(me);
    let result = inside();
    take();
    DEPTH.store(depth, Ordering::Relaxed);
    result
}

fn take() {
    let me = thread_number();
    if HOLDER.load(Ordering::Relaxed) == me {
        DEPTH.store(DEPTH.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        return;
    }
    let taken_by = match BIAS.enter(me) {
        Some(BiasTurn(turn)) => turn + 1,
        None => {
            pass_turnstile(me);
            BY_TURNSTILE
        }
    };
    TAKEN_BY.store(taken_by, Ordering::Relaxed);
    DEPTH.store(1, Ordering::Relaxed);
    HOLDER.store(me, Ordering::Relaxed);
}

fn leave() {
    let depth = DEPTH.load(Ordering::Relaxed) - 1;
    DEPTH.store(depth, Ordering::Relaxed);
    if depth == 0 {
        give_up(thread_number());
    }
}

fn give_up(me: usize) {
    HOLDER.store(0, Ordering::Relaxed);
    match TAKEN_BY.load(Ordering::Relaxed) {
        BY_TURNSTILE => leave_turnstile(me),
        turn => BIAS.leave(BiasTurn(turn - 1)),
    }
}

#[cold]
fn pass_turnstile(me: usize) {
    if !TURNSTILE.enter() {
        wait_for_turn(me);
    }
    // This thread is inside the turnstile, so all other threads without a bias wait in front of it. Revoking the bias
    // excludes its owner too.
    BIAS.revoke(fence_own_threads, std::thread::yield_now);
    note_entered(me);
}

/// Waits at the turnstile.
fn wait_for_turn(me: usize) {
    TURNSTILE.begin_to_wait();
    let mut polls = 0u64;
    while !TURNSTILE.enter_waiting(me) {
        polls += 1;
        if !polls.is_multiple_of(POLLS_PER_YIELD) {
            std::hint::spin_loop();
        } else if polls < MAX_YIELD_POLLS {
            std::thread::yield_now();
        } else if let Some(place) = TURNSTILE.word(me) {
            // The holder may retake the lock many times, and hold it for long each time. So a thread that has waited
            // long requests that the holder offers it the lock.
            if polls >= INSIST_POLLS {
                TURNSTILE.insist();
            }
            sleep_at(place, MAX_SLEEP);
        }
    }
}

fn leave_turnstile(me: usize) {
    if TURNSTILE.leave(me)
        && let Some((word, _)) = TURNSTILE.word(me)
    {
        wake_at(word);
    }
}

/// Records that this thread entered the turnstile. If no thread waits, gives the bias to this thread when it is the
/// first ever to enter, or has entered often in a row.
fn note_entered(me: usize) {
    let before = LAST.swap(me, Ordering::Relaxed);
    let streak = match before == me {
        true => STREAK.load(Ordering::Relaxed).saturating_add(1),
        false => 0,
    };
    STREAK.store(streak, Ordering::Relaxed);
    let comes_alone = before == 0 || streak >= BIAS_STREAK;
    if comes_alone && !TURNSTILE.is_wanted() && MAY_BIAS.load(Ordering::Relaxed) {
        BIAS.give(me);
    }
}

/// Value of [`TAKEN_BY`]: the lock was taken at the turnstile. With the bias, the value is the number of the
/// [turn](BiasTurn) plus one.
const BY_TURNSTILE: u32 = 0;
/// A thread that has taken the lock this many times in a row gets the bias. The first thread that ever takes the lock
/// gets the bias immediately.
const BIAS_STREAK: u32 = 64;
/// After a thread has taken the lock this many times in a row, no other thread is expected to take it. A thread on a
/// shared core cannot take the lock so often in one time slice.
const ALONE_STREAK: u32 = 1 << 16;
/// A waiting thread yields its core after this many polls.
const POLLS_PER_YIELD: u64 = 32;
/// A waiting thread sleeps after this many polls.
const MAX_YIELD_POLLS: u64 = 100 * POLLS_PER_YIELD;
/// After this many polls, some of them with sleeps, a waiting thread requests that the holder offers it the lock
/// ([`Turnstile::insist`]).
const INSIST_POLLS: u64 = MAX_YIELD_POLLS + 10 * POLLS_PER_YIELD;
/// Time limit of a sleep. It is short because a thread that releases the lock does not always wake sleepers.
const MAX_SLEEP: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// One test for all, because the lock is a static.
    #[test]
    fn the_library_lock_is_exclusive_recursive_and_released_in_callbacks() {
        set_multiple(true);
        one_at_a_time();
        without_admits_other_threads();
        repeated_holds_bias_the_lock();
        biased_and_plain_holds_exclude_each_other();
        set_multiple(false);
        assert!(!hold().locked);
    }

    fn one_at_a_time() {
        let inside = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let work = || {
            for _ in 0..200 {
                let _held = hold();
                let _again = hold();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(work);
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    /// Thread A waits, in a body, for thread B, which can take the lock only while A has released it.
    fn without_admits_other_threads() {
        let came = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _held = hold();
            scope.spawn(|| {
                let _held = hold();
                came.store(true, Ordering::SeqCst);
            });
            while !came.load(Ordering::SeqCst) {
                without(std::thread::yield_now);
            }
        });
        let holder = || HOLDER.load(Ordering::Relaxed);
        let holder_without = {
            let _held = hold();
            let _again = hold();
            assert_eq!(holder(), thread_number());
            without(holder)
        };
        assert_eq!((holder_without, holder()), (0, 0));
    }

    /// A thread that takes the lock often gets the bias; from then on it takes the lock without passing the turnstile.
    fn repeated_holds_bias_the_lock() {
        for _ in 0..=2 * BIAS_STREAK {
            drop(hold());
        }
        assert!(hold_free().is_none(), "a thread has the bias");
        let biased = hold_biased();
        assert!(biased.is_some() && hold_biased().is_none());
        drop(biased);
        let before = STREAK.load(Ordering::Relaxed);
        drop(hold());
        assert_eq!(STREAK.load(Ordering::Relaxed), before);
    }

    fn biased_and_plain_holds_exclude_each_other() {
        let shared = AtomicU32::new(0);
        let count = |quick: bool| {
            for at in 0..20_000u32 {
                let biased = quick.then(hold_biased).flatten();
                let passed = (quick && biased.is_none()).then(hold_free).flatten();
                let held = (biased.is_none() && passed.is_none()).then(hold);
                // Load and store are separate steps, so two threads at once would lose a count.
                shared.store(shared.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                drop((biased, passed, held));
                if at.is_multiple_of(5000) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        std::thread::scope(|scope| {
            for quick in [true, false, true] {
                let count = &count;
                scope.spawn(move || count(quick));
            }
        });
        assert_eq!(shared.into_inner(), 60_000);
    }
}
