// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bell of a receiver: one pending bit per sender and the word it sleeps on. The system calls (sleep, wake, heavy
//! fence) belong to the caller; this file is their protocol, and always re-checks before it sleeps.

use crate::layout::PENDING_WORDS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A receiver's bell, in its own cache lines of the node segment; zero is "awake, nothing pending".
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(128)))]
pub struct Bell {
    sleep: AtomicU32,
    pad: [u32; 31],
    pending: [AtomicU64; PENDING_WORDS],
}

/// The ringer's duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// Nothing: the receiver is awake, or another process wakes it.
    Nothing,
    /// Wake the thread that sleeps on [`Bell::sleep_word`] (one `FUTEX_WAKE`).
    Sleeper,
}

impl Bell {
    /// Sender: marks its ring as pending and checks whether the receiver sleeps. Call it after the frame was
    /// published.
    #[inline]
    pub fn ring(&self, sender: u32) -> Wake {
        let word = &self.pending[sender as usize / 64 % PENDING_WORDS];
        // PAIR(bell-pending): Bell::take_pending swaps the word with Acquire.
        word.fetch_or(1 << (sender % 64), Ordering::Release);
        self.wake()
    }

    /// Any process: checks whether the receiver sleeps, and claims the wake-up. Whatever the woken receiver should see
    /// must have been stored before.
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

    /// Any process: whether one of these sleeps, so that it should be [woken](Self::wake). Whatever it should see must
    /// have been stored before.
    #[inline]
    #[must_use]
    pub fn does_any_sleep(bells: &[&Self]) -> bool {
        // PAIR(sleep-fence): Bell::doze stores the sleep word, fences, and then looks at everything once more.
        fence(Ordering::SeqCst);
        let words = bells.iter().map(|bell| bell.sleep.load(Ordering::Relaxed));
        words.fold(AWAKE, |all, word| all | word) != AWAKE
    }

    /// Receiver: takes the pending bits of senders `64 * index ..`; zero costs one load.
    #[inline]
    pub fn take_pending(&self, index: usize) -> u64 {
        let word = &self.pending[index];
        if word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        // PAIR(bell-pending): Bell::ring sets the bit with Release, after it published the frame.
        word.swap(0, Ordering::AcqRel)
    }

    /// Receiver: whether any of senders `64 * index ..` has rung, without taking the bits.
    #[must_use]
    pub fn is_pending(&self, index: usize) -> bool {
        self.pending[index].load(Ordering::Relaxed) != 0
    }

    /// Receiver: announces that it is about to sleep. Afterwards it must poll everything once more, and either call
    /// [`rise`](Self::rise) or sleep while the word still reads [`Bell::ASLEEP`].
    pub fn doze(&self) {
        self.sleep.store(ASLEEP, Ordering::Relaxed);
        // PAIR(sleep-fence): Bell::wake fences between the sender's stores and its look at the sleep word.
        fence(Ordering::SeqCst);
    }

    /// Receiver: is awake again.
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
