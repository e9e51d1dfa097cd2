// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bell of a receiver: one pending bit for each sender, and the word that the receiver sleeps on. The caller makes
//! the system calls (futex sleep and wake, heavy fence). This file has the protocol for them, in which a receiver
//! always checks once more before it sleeps.

use crate::layout::PENDING_WORDS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A receiver's bell, in cache lines of its own in the node segment. All words 0: the receiver is awake, and nothing is
/// pending.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(128)))]
pub struct Bell {
    sleep: AtomicU32,
    pad: [u32; 31],
    pending: [AtomicU64; PENDING_WORDS],
}

/// What the caller that rings or wakes has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// Nothing: the receiver is awake, or another process has claimed its wake-up.
    Nothing,
    /// Wake the thread that sleeps on [`Bell::sleep_word`] (one `FUTEX_WAKE`).
    Sleeper,
}

impl Bell {
    /// Sender: marks its ring as pending, and claims the wake-up if the receiver sleeps. Called after the frame was
    /// published.
    #[inline]
    pub fn ring(&self, sender: u32) -> Wake {
        let word = &self.pending[sender as usize / 64 % PENDING_WORDS];
        // PAIR(bell-pending): Bell::take_pending swaps the word with Acquire.
        word.fetch_or(1 << (sender % 64), Ordering::Release);
        self.wake()
    }

    /// Any process: checks whether the receiver sleeps, and if so, claims the wake-up. Everything that the woken
    /// receiver should see must have been stored before this call.
    #[inline]
    pub fn wake(&self) -> Wake {
        // PAIR(sleep-fence): Bell::doze stores the sleep word, fences, and then looks at everything once more.
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::Relaxed) == AWAKE {
            return Wake::Nothing;
        }
        // R5: the exchange has one winner.
        match self
            .sleep
            .compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Wake::Sleeper,
            Err(_) => Wake::Nothing,
        }
    }

    /// Any process: whether at least one of these receivers sleeps. If so, the caller should [wake](Self::wake) those
    /// that sleep. Everything that they should see must have been stored before this call.
    #[inline]
    #[must_use]
    pub fn does_any_sleep(bells: &[&Self]) -> bool {
        // PAIR(sleep-fence): Bell::doze stores the sleep word, fences, and then looks at everything once more.
        fence(Ordering::SeqCst);
        let words = bells.iter().map(|bell| bell.sleep.load(Ordering::Relaxed));
        words.fold(AWAKE, |all, word| all | word) != AWAKE
    }

    /// Receiver: returns and clears the pending bits of the 64 senders from `64 * index` on. If none is set, that costs
    /// one load.
    #[inline]
    pub fn take_pending(&self, index: usize) -> u64 {
        let word = &self.pending[index];
        if word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        // PAIR(bell-pending): Bell::ring sets the bit with Release, after it published the frame.
        word.swap(0, Ordering::AcqRel)
    }

    /// Receiver: whether any of the 64 senders from `64 * index` on has rung; the bits are not cleared.
    #[must_use]
    pub fn is_pending(&self, index: usize) -> bool {
        self.pending[index].load(Ordering::Relaxed) != 0
    }

    /// Receiver: announces that it is about to sleep. Afterwards it must poll everything once more, and either call
    /// [`rise`](Self::rise) or sleep while the [sleep word](Self::sleep_word) is still [`Bell::ASLEEP`].
    pub fn doze(&self) {
        self.sleep.store(ASLEEP, Ordering::Relaxed);
        // PAIR(sleep-fence): Bell::wake fences between the sender's stores and its look at the sleep word.
        fence(Ordering::SeqCst);
    }

    /// Receiver: revokes [`doze`](Self::doze): it is awake again.
    pub fn rise(&self) {
        self.sleep.store(AWAKE, Ordering::Relaxed);
    }

    /// Receiver: whether a wake-up was claimed since [`doze`](Self::doze).
    #[must_use]
    pub fn was_woken(&self) -> bool {
        self.sleep.load(Ordering::Relaxed) != ASLEEP
    }

    /// The word to sleep on, for the futex call.
    #[cfg(not(loom))]
    #[must_use]
    pub fn sleep_word(&self) -> *const u32 {
        self.sleep.as_ptr()
    }

    /// The value of the sleep word while the receiver sleeps.
    pub const ASLEEP: u32 = ASLEEP;

    /// A new bell in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sleep: AtomicU32::new(AWAKE),
            pad: [0; 31],
            pending: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bell>() == 256);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pending_bits_name_the_senders() {
        let bell = Bell::new();
        for sender in [0, 63, 64, 1023] {
            assert_eq!(bell.ring(sender), Wake::Nothing);
        }
        assert_eq!(bell.take_pending(0), 1 | 1 << 63);
        assert_eq!(bell.take_pending(0), 0);
        assert_eq!(bell.take_pending(1), 1);
        assert_eq!(bell.take_pending(15), 1 << 63);
    }

    #[test]
    fn exactly_one_ringer_wakes_a_sleeper() {
        let bell = Bell::new();
        bell.doze();
        assert!(!bell.was_woken());
        assert_eq!(bell.ring(5), Wake::Sleeper);
        assert!(bell.was_woken());
        assert_eq!(bell.ring(6), Wake::Nothing);
        bell.rise();
        assert_eq!(bell.take_pending(0), 1 << 5 | 1 << 6);
    }
}
