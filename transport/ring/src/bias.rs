// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bias of a lock: the thread that took it last again and again takes it without an atomic exchange, and another
//! thread that wants it pays for both. The lock itself, for which threads wait, is the caller's.
//!
//! A bias has turns. In each of them one thread may be the owner; a turn ends when another thread [revokes
//! it](Bias::revoke), and never recurs, so that a thread that was stopped in the middle of its entry writes only to
//! words of its own turn, which no thread reads any more.

use crate::sync::{AtomicU32, AtomicUsize, Ordering, light_fence};

/// A bias without an owner.
#[derive(Debug)]
pub struct Bias {
    turn: AtomicU32,
    /// The thread that owns each turn; 0: none yet.
    owners: [AtomicUsize; TURNS],
    /// The owner is inside.
    inside: [AtomicU32; TURNS],
}

/// Proof that the owner is inside the lock, with its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever entered leaves"]
pub struct BiasTurn(pub u32);

impl Bias {
    /// Enters, if `thread` owns the bias and is not inside. Threads are identified by a number that is not 0.
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
        // Fence pair "bias": `revoke` ends the turn, makes every thread fence, and then checks whether the owner is inside.
        light_fence();
        if self.turn.load(Ordering::Relaxed) == turn {
            return Some(BiasTurn(turn));
        }
        self.leave(BiasTurn(turn));
        None
    }

    /// Leaves.
    #[inline(always)]
    pub fn leave(&self, turn: BiasTurn) {
        // PAIR(bias-left): `revoke` loads it with Acquire.
        self.inside[turn.0 as usize % TURNS].store(0, Ordering::Release);
    }

    /// Revokes the bias, and waits, by calling `rest`, until its owner has left. The caller holds the lock.
    /// `heavy_fence` makes every running thread of the process execute a full memory fence.
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

    /// Makes `thread` the owner, if there is none and there are turns left. The caller, which is this thread, holds
    /// the lock.
    pub fn give(&self, thread: usize) {
        let turn = self.turn.load(Ordering::Relaxed) as usize;
        // The last turn stays without an owner.
        if turn + 1 < TURNS {
            let _ =
                self.owners[turn].compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether a thread owns it. For the holder of the lock the result stays true; for others it is a hint.
    #[inline(always)]
    #[must_use]
    pub fn has_owner(&self) -> bool {
        let turn = self.turn.load(Ordering::Relaxed);
        self.owners[turn as usize % TURNS].load(Ordering::Relaxed) != 0
    }

    /// Whether `thread` owns it: for that thread the result stays true until another thread revokes the bias.
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
    /// As above: loom's words are not made at compile time.
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

/// After this many turns the bias stays without an owner: threads alternate too often.
const TURNS: usize = if cfg!(loom) { 3 } else { 16 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_owner_enters_until_its_turn_is_over_and_not_twice() {
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
        bias.revoke(|| {}, || panic!("nobody is inside"));
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
    fn the_last_turn_is_nobodys() {
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
