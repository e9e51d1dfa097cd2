// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bias of a lock: one thread, the owner of the bias, takes the lock again and again without an atomic exchange.
//! The lock itself, for which threads wait, is the caller's: another thread takes it as usual, and then revokes the
//! bias, at a high cost.
//!
//! A bias has turns. In each turn one thread may be the owner; the turn ends when another thread [revokes the
//! bias](Bias::revoke), and never recurs. So if an owner is descheduled in the middle of its entry and its turn ends
//! meanwhile, it then writes only to words of that turn, which have no effect on later turns.

use crate::sync::{AtomicU32, AtomicUsize, Ordering, light_fence};

/// The bias of a lock.
#[derive(Debug)]
pub struct Bias {
    turn: AtomicU32,
    /// The thread that owns each turn; 0: none yet.
    owners: [AtomicUsize; TURNS],
    /// For each turn, whether its owner is inside the lock: 1 if so.
    inside: [AtomicU32; TURNS],
}

/// Proof that the owner of the bias is inside the lock: the number of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever entered leaves"]
pub struct BiasTurn(pub u32);

impl Bias {
    /// Enters the lock, if `thread` owns the bias and is not inside; `None` otherwise. Threads are identified by
    /// numbers that are not 0.
    #[inline(always)]
    pub fn enter(&self, thread: usize) -> Option<BiasTurn> {
        let turn = self.turn.load(Ordering::Relaxed);
        let at = turn as usize % TURNS;
        let inside = &self.inside[at];
        if self.owners[at].load(Ordering::Relaxed) != thread || inside.load(Ordering::Relaxed) != 0
        {
            return None;
        }
        inside.store(1, Ordering::Relaxed);
        // Fence pair "bias": `revoke` ends the turn, makes every thread fence, and then checks whether the owner is
        // inside.
        light_fence();
        if self.turn.load(Ordering::Relaxed) == turn {
            return Some(BiasTurn(turn));
        }
        self.leave(BiasTurn(turn));
        None
    }

    /// The owner leaves the lock.
    #[inline(always)]
    pub fn leave(&self, turn: BiasTurn) {
        // PAIR(bias-left): `revoke` loads it with Acquire.
        self.inside[turn.0 as usize % TURNS].store(0, Ordering::Release);
    }

    /// Revokes the bias, and calls `rest` (a pause) repeatedly until the owner of the bias has left the lock. The
    /// caller holds the lock that the bias is for. `heavy_fence` makes every running thread of the process execute a
    /// full memory fence.
    pub fn revoke(&self, heavy_fence: impl FnOnce(), mut rest: impl FnMut()) {
        let turn = self.turn.load(Ordering::Relaxed);
        let at = turn as usize % TURNS;
        if self.owners[at].load(Ordering::Relaxed) == 0 {
            return;
        }
        self.turn.store(turn + 1, Ordering::Relaxed);
        heavy_fence();
        // PAIR(bias-left): `leave` stores it with Release.
        while self.inside[at].load(Ordering::Acquire) != 0 {
            rest();
        }
    }

    /// Makes `thread`, the calling thread, the owner of the bias, if there is none and turns are left. The caller holds
    /// the lock.
    pub fn give(&self, thread: usize) {
        let turn = self.turn.load(Ordering::Relaxed) as usize;
        // The last turn never has an owner.
        if turn + 1 < TURNS {
            let _ =
                self.owners[turn].compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether any thread owns the bias. While the caller holds the lock, the result stays valid; otherwise it is a
    /// hint.
    #[inline(always)]
    #[must_use]
    pub fn has_owner(&self) -> bool {
        let turn = self.turn.load(Ordering::Relaxed);
        self.owners[turn as usize % TURNS].load(Ordering::Relaxed) != 0
    }

    /// Whether `thread` owns the bias. If that is the calling thread, the result stays valid until another thread
    /// revokes the bias.
    #[must_use]
    pub fn is_owner(&self, thread: usize) -> bool {
        let turn = self.turn.load(Ordering::Relaxed);
        self.owners[turn as usize % TURNS].load(Ordering::Relaxed) == thread
    }

    /// Number of ended turns.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turn.load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
impl Bias {
    /// A bias without an owner.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            turn: AtomicU32::new(0),
            owners: [const { AtomicUsize::new(0) }; TURNS],
            inside: [const { AtomicU32::new(0) }; TURNS],
        }
    }
}

#[cfg(loom)]
impl Bias {
    /// A bias without an owner. The function is not `const`, since loom's atomics cannot be made at compile time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            turn: AtomicU32::new(0),
            owners: core::array::from_fn(|_| AtomicUsize::new(0)),
            inside: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl Default for Bias {
    fn default() -> Self {
        Self::new()
    }
}

/// Number of turns. The last turn never has an owner: after so many revocations, the threads alternate too often for a
/// bias to pay off.
const TURNS: usize = if cfg!(loom) { 3 } else { 16 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn owner_enters_until_revoked_and_not_recursively() {
        let bias = Bias::new();
        assert_eq!(bias.enter(7), None);
        bias.give(7);
        bias.give(8);
        assert_eq!(bias.enter(8), None);
        for _ in 0..3 {
            let turn = bias.enter(7).unwrap();
            assert_eq!(bias.enter(7), None, "it is inside");
            bias.leave(turn);
        }
        bias.revoke(|| {}, || panic!("no thread is inside"));
        assert_eq!(bias.enter(7), None);
        bias.give(8);
        let turn = bias.enter(8).unwrap();
        let mut rests = 0;
        bias.revoke(
            || {},
            || {
                rests += 1;
                bias.leave(turn);
            },
        );
        assert_eq!(rests, 1);
    }

    #[test]
    fn bias_is_not_given_after_the_last_turn() {
        let bias = Bias::new();
        for thread in 1..100 {
            bias.give(thread);
            bias.revoke(|| {}, || {});
        }
        bias.give(5);
        assert_eq!(bias.enter(5), None);
        assert_eq!(bias.turns() as usize, TURNS - 1);
    }
}
