// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one lock of `MPI_THREAD_MULTIPLE`. Below that level nothing of it is touched but one flag.
//!
//! It is fair (threads come in the order they asked) and may be entered again by the thread that has it, because what runs
//! under it may raise an error. A body that waits, or runs a function of the program, gives it up meanwhile: [`without`].

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

static MULTIPLE: AtomicBool = AtomicBool::new(false);
static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    next: 0,
    serving: 0,
});
static TURN: Condvar = Condvar::new();

/// Tickets: `serving` has the lock, all up to `next` wait for it.
struct Queue {
    next: u64,
    serving: u64,
}

thread_local! {
    /// How many calls deep this thread is inside the lock.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Says whether `MPI_THREAD_MULTIPLE` was granted. Called by initialization, before other threads may call MPI.
pub fn set_multiple(multiple: bool) {
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

/// Gives the lock up while `inside` runs: calls that block in the system, and functions of the program, which may wait for
/// something that another thread does after a call of MPI.
pub fn without<T>(inside: impl FnOnce() -> T) -> T {
    let depth = DEPTH.replace(0);
    if depth == 0 {
        return inside();
    }
    hand_over(lock());
    let result = inside();
    wait_for_turn();
    DEPTH.set(depth);
    result
}

#[cold]
fn take() {
    let depth = DEPTH.get();
    if depth == 0 {
        wait_for_turn();
    }
    DEPTH.set(depth + 1);
}

#[cold]
fn leave() {
    let depth = DEPTH.get() - 1;
    DEPTH.set(depth);
    if depth == 0 {
        hand_over(lock());
    }
}

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_for_turn() {
    let mut queue = lock();
    let ticket = queue.next;
    queue.next += 1;
    while queue.serving != ticket {
        queue = TURN.wait(queue).unwrap_or_else(PoisonError::into_inner);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// One test, because the lock is one for the process.
    #[test]
    fn one_thread_at_a_time_again_for_its_holder_and_others_while_it_is_without() {
        set_multiple(true);
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

        // A waits inside for B, which can only come in while A gives the lock up.
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
        let gone = {
            let _held = hold();
            without(|| DEPTH.get())
        };
        assert_eq!((gone, DEPTH.get()), (0, 0));
        set_multiple(false);
        assert!(!hold().locked);
    }
}
