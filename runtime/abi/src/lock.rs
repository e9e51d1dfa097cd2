// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one lock of `MPI_THREAD_MULTIPLE`. Below that level nothing of it is touched but one flag.
//!
//! It is fair (threads come in the order they asked) and may be entered again by the thread that has it, because what runs
//! under it may raise an error. A body that waits, or runs a function of the program, gives it up meanwhile: [`without`].
//!
//! A thread that took it often enough while no other did gets a [`Bias`]: from then on it takes the lock by two stores. Another
//! one that comes takes its ticket as ever, and then the bias away. So a program whose calls come from one thread, as most that
//! ask for this level, pays next to nothing for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use runtime::thread::{Bias, Turn, fence_own_threads, register_own_threads, thread_number};

static MULTIPLE: AtomicBool = AtomicBool::new(false);
static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    next: 0,
    serving: 0,
    last: 0,
    streak: 0,
    may_bias: false,
});
static TURN: Condvar = Condvar::new();
static BIAS: Bias = Bias::new();
/// The thread that has the lock, and how many calls deep it is inside. A thread finds its own number here only while it has the
/// lock, and nobody else writes then.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
static DEPTH: AtomicU32 = AtomicU32::new(0);
/// How it got it.
static WAY: AtomicU32 = AtomicU32::new(BY_TICKET);

/// Tickets: `serving` has the lock, all up to `next` wait for it.
struct Queue {
    next: u64,
    serving: u64,
    /// The thread that had it last, and how often in a row before that.
    last: usize,
    streak: u32,
    /// The system has the fence that a bias needs.
    may_bias: bool,
}

/// Says whether `MPI_THREAD_MULTIPLE` was granted. Called by initialization, before other threads may call MPI.
pub fn set_multiple(multiple: bool) {
    lock().may_bias = multiple && register_own_threads();
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
pub struct Held {
    locked: bool,
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.locked {
            leave();
        }
    }
}

/// Takes the lock, if there is one at this thread level.
#[inline]
pub fn hold() -> Held {
    let locked = is_multiple();
    if locked {
        take();
    }
    Held { locked }
}

/// Takes the lock, if there is one at this thread level, this thread has a bias to it, and does not have it already.
#[inline(always)]
pub fn hold_biased() -> Option<Biased> {
    is_multiple()
        .then(|| BIAS.enter(thread_number()))?
        .map(Biased)
}

/// The lock, held until dropped by the thread that has a bias to it, for what never asks who has it.
#[derive(Debug)]
pub struct Biased(Turn);

impl Drop for Biased {
    #[inline(always)]
    fn drop(&mut self) {
        BIAS.leave(self.0);
    }
}

/// Gives the lock up while `inside` runs: calls that block in the system, and functions of the program, which may wait for
/// something that another thread does after a call of MPI.
pub fn without<T>(inside: impl FnOnce() -> T) -> T {
    if HOLDER.load(Ordering::Relaxed) != thread_number() {
        return inside();
    }
    let depth = DEPTH.load(Ordering::Relaxed);
    give_up();
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
        Some(Turn(turn)) => turn + 1,
        None => {
            wait_for_turn(me);
            BY_TICKET
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
        give_up();
    }
}

fn give_up() {
    HOLDER.store(0, Ordering::Relaxed);
    match WAY.load(Ordering::Relaxed) {
        BY_TICKET => hand_over(lock()),
        turn => BIAS.leave(Turn(turn - 1)),
    }
}

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn wait_for_turn(me: usize) {
    let mut queue = lock();
    let ticket = queue.next;
    queue.next += 1;
    while queue.serving != ticket {
        queue = TURN.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    let is_first = queue.last == 0;
    queue.streak = if queue.last == me {
        queue.streak + 1
    } else {
        0
    };
    queue.last = me;
    let is_alone = queue.next == ticket + 1;
    let gets_bias = queue.may_bias && is_alone && (is_first || queue.streak >= OFTEN);
    drop(queue);
    // Others that come wait for this ticket from now on.
    BIAS.revoke(fence_own_threads, std::thread::yield_now);
    if gets_bias {
        BIAS.give(me);
    }
}

fn hand_over(mut queue: MutexGuard<'static, Queue>) {
    queue.serving += 1;
    let somebody_waits = queue.next > queue.serving;
    drop(queue);
    if somebody_waits {
        TURN.notify_all();
    }
}

/// The lock was taken with a ticket; other numbers are those of the bias's turn, plus one.
const BY_TICKET: u32 = 0;
/// So often in a row a thread takes the lock before it gets a bias.
const OFTEN: u32 = 64;

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

    /// With the bias it takes no tickets.
    fn who_takes_it_often_gets_a_bias() {
        for _ in 0..=OFTEN {
            drop(hold());
        }
        let tickets = || lock().next;
        let before = tickets();
        let biased = hold_biased();
        assert!(biased.is_some() && hold_biased().is_none());
        drop(biased);
        drop(hold());
        assert_eq!(tickets(), before);
    }

    fn none_is_counted_twice_with_and_without_a_bias() {
        let shared = AtomicU32::new(0);
        let count = |quick: bool| {
            for at in 0..20_000u32 {
                let biased = quick.then(hold_biased).flatten();
                let held = biased.is_none().then(hold);
                // Not in one step: two threads at once would lose a count.
                shared.store(shared.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                drop((biased, held));
                if at.is_multiple_of(5000) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
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
