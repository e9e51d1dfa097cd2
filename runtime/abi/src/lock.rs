// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one lock of `MPI_THREAD_MULTIPLE`. Below that level nothing of it is touched but one flag.
//!
//! It may be entered again by the thread that has it, because what runs under it may raise an error. A body that waits, or runs
//! a function of the program, gives it up meanwhile: [`without`].
//!
//! Threads take it from a [`Turnstile`]: one that has had it comes back before those that wait, some hundred times at most, so that
//! it changes hands seldom and its data stay in one core's caches. Who waits looks for a while, gives its core to others between
//! two looks, and then sleeps, for as long as a turn of the others may take at most.
//!
//! A thread that took it often enough while no other did gets a [`Bias`]: from then on it takes the lock by two stores. Another
//! one that comes enters the turnstile as ever, and then takes the bias away. So a program whose calls come from one thread, as
//! most that ask for this level, pays next to nothing for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use runtime::thread::{
    Bias, BiasTurn, Turnstile, fence_own_threads, register_own_threads, sleep_at, thread_number,
    wake_at,
};

static MULTIPLE: AtomicBool = AtomicBool::new(false);
static TURNSTILE: Turnstile = Turnstile::new();
static BIAS: Bias = Bias::new();
/// The system has the fence that a bias needs.
static MAY_BIAS: AtomicBool = AtomicBool::new(false);
/// The thread that entered the turnstile last, and how often in a row before that. Only who is inside looks.
static LAST: AtomicUsize = AtomicUsize::new(0);
static STREAK: AtomicU32 = AtomicU32::new(0);
/// The thread that has the lock, and how many calls deep it is inside. A thread finds its own number here only while it has the
/// lock, and nobody else writes then.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
static DEPTH: AtomicU32 = AtomicU32::new(0);
/// How it got it.
static WAY: AtomicU32 = AtomicU32::new(BY_TURNSTILE);

/// Says whether `MPI_THREAD_MULTIPLE` was granted. Called by initialization, before other threads may call MPI.
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

/// The lock, held until dropped; nothing below `MPI_THREAD_MULTIPLE`.
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

/// Takes the lock, if this thread has a bias to it, and does not have it already. Only at `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub fn hold_biased() -> Option<Biased> {
    BIAS.enter(thread_number()).map(Biased)
}

/// The lock, held until dropped by the thread that has a bias to it, for what never asks who has it and does not enter again.
#[derive(Debug)]
pub struct Biased(BiasTurn);

impl Drop for Biased {
    #[inline(always)]
    fn drop(&mut self) {
        BIAS.leave(self.0);
    }
}

/// Takes the lock, if nobody has it, and nobody has a bias to it. Only at `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub fn hold_free() -> Option<TurnstileGuard> {
    let me = thread_number();
    if BIAS.has_owner() || !TURNSTILE.enter() {
        return None;
    }
    let held = TurnstileGuard { me };
    // It may have been given before this thread entered; nobody gives it while this thread is inside.
    if BIAS.has_owner() {
        return None;
    }
    note_entered(me);
    Some(held)
}

/// The lock, held until dropped by a thread that passed the turnstile, for what never asks who has it and does not enter again.
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

/// Whether other threads take the lock as well, for a thread that has it: not if it has the bias, or has come alone for long.
pub fn has_company() -> bool {
    !BIAS.is_owner(thread_number()) && STREAK.load(Ordering::Relaxed) < ALONE
}

/// Gives the lock up while `inside` runs: calls that block in the system, and functions of the program, which may wait for
/// something that another thread does after a call of MPI.
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
    let way = match BIAS.enter(me) {
        Some(BiasTurn(turn)) => turn + 1,
        None => {
            pass_turnstile(me);
            BY_TURNSTILE
        }
    };
    WAY.store(way, Ordering::Relaxed);
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
    match WAY.load(Ordering::Relaxed) {
        BY_TURNSTILE => leave_turnstile(me),
        turn => BIAS.leave(BiasTurn(turn - 1)),
    }
}

#[cold]
fn pass_turnstile(me: usize) {
    if !TURNSTILE.enter() {
        wait_for_turn(me);
    }
    // Others that come wait at the turnstile from now on.
    BIAS.revoke(fence_own_threads, std::thread::yield_now);
    note_entered(me);
}

/// Waits at the turnstile.
fn wait_for_turn(me: usize) {
    TURNSTILE.begin_to_wait();
    let mut looks = 0u64;
    while !TURNSTILE.enter_waiting(me) {
        looks += 1;
        if !looks.is_multiple_of(LOOKS_PER_YIELD) {
            std::hint::spin_loop();
        } else if looks < MOST_LOOKS {
            std::thread::yield_now();
        } else if let Some(place) = TURNSTILE.word(me) {
            // Those that pass may be inside for long each time.
            if looks >= PATIENCE {
                TURNSTILE.insist();
            }
            sleep_at(place, NAP);
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

/// This thread is inside: it gets a bias if it comes alone.
fn note_entered(me: usize) {
    let before = LAST.swap(me, Ordering::Relaxed);
    let streak = match before == me {
        true => STREAK.load(Ordering::Relaxed).saturating_add(1),
        false => 0,
    };
    STREAK.store(streak, Ordering::Relaxed);
    let comes_alone = before == 0 || streak >= OFTEN;
    if comes_alone && !TURNSTILE.is_wanted() && MAY_BIAS.load(Ordering::Relaxed) {
        BIAS.give(me);
    }
}

/// The lock was taken at the turnstile; other numbers are those of the bias's turn, plus one.
const BY_TURNSTILE: u32 = 0;
/// So often in a row a thread takes the lock before it gets a bias.
const OFTEN: u32 = 64;
/// After so often nobody else is about to come: more than what a thread does in its turn on a core that it shares.
const ALONE: u32 = 1 << 16;
/// Who waits gives its core away after so many looks.
const LOOKS_PER_YIELD: u64 = 32;
/// After so many it sleeps.
const MOST_LOOKS: u64 = 100 * LOOKS_PER_YIELD;
/// After some naps it insists on its turn.
const PATIENCE: u64 = MOST_LOOKS + 10 * LOOKS_PER_YIELD;
/// For so long: whoever leaves does not always wake those that sleep.
const NAP: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// One test, because the lock is one for the process.
    #[test]
    fn one_thread_at_a_time_again_for_its_holder_and_others_while_it_is_without() {
        set_multiple(true);
        one_at_a_time();
        others_come_while_it_is_without();
        who_takes_it_often_gets_a_bias();
        none_is_counted_twice_with_and_without_a_bias();
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

    /// A waits inside for B, which can only come in while A gives the lock up.
    fn others_come_while_it_is_without() {
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
        let gone = {
            let _held = hold();
            let _again = hold();
            assert_eq!(holder(), thread_number());
            without(holder)
        };
        assert_eq!((gone, holder()), (0, 0));
    }

    /// With the bias it does not pass the turnstile.
    fn who_takes_it_often_gets_a_bias() {
        for _ in 0..=2 * OFTEN {
            drop(hold());
        }
        assert!(hold_free().is_none(), "somebody has the bias");
        let biased = hold_biased();
        assert!(biased.is_some() && hold_biased().is_none());
        drop(biased);
        let before = STREAK.load(Ordering::Relaxed);
        drop(hold());
        assert_eq!(STREAK.load(Ordering::Relaxed), before);
    }

    fn none_is_counted_twice_with_and_without_a_bias() {
        let shared = AtomicU32::new(0);
        let count = |quick: bool| {
            for at in 0..20_000u32 {
                let biased = quick.then(hold_biased).flatten();
                let passed = (quick && biased.is_none()).then(hold_free).flatten();
                let held = (biased.is_none() && passed.is_none()).then(hold);
                // Not in one step: two threads at once would lose a count.
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
