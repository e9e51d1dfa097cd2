// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wait counters of a process, from which a tool that reads them now and then can conclude that there is no progress.
//!
//! The owner writes only when it is about to sleep, so this costs nothing where latency matters. The tool maps
//! nothing: it reads the words from the segment's file ([`WaitsSeen::from_bytes`]), and compares two readings. The
//! same number of waits and more turns: the owner was in one wait all that time. No more turns: it is not waiting, or
//! was stopped.

use crate::sync::{AtomicU32, Ordering};

/// A process's counters of its waits, in the cold page of its region; zero is "has never waited". Other processes do not trust
/// them.
#[derive(Debug, Default)]
#[repr(C)]
pub struct WaitCounts {
    patience_s: AtomicU32,
    begun: AtomicU32,
    turns: AtomicU32,
    beside_others: AtomicU32,
}

impl WaitCounts {
    /// Owner, once: sets the number of seconds without progress after which to report a hang; 0: never.
    pub fn announce(&self, patience_s: u32) {
        self.patience_s.store(patience_s, Ordering::Relaxed);
    }

    /// Owner: counts a sleep that is about to begin: `begins`, whether it is the first in this wait; `beside_others`,
    /// whether other threads of the process may be running. One thread at a time calls this.
    pub fn count_sleep(&self, begins: bool, beside_others: bool) {
        let add = |word: &AtomicU32, number: u32| {
            let sum = word.load(Ordering::Relaxed).wrapping_add(number);
            word.store(sum, Ordering::Relaxed);
        };
        add(&self.begun, u32::from(begins));
        self.beside_others
            .store(u32::from(beside_others), Ordering::Relaxed);
        add(&self.turns, 1);
    }
}

/// The counters of a process at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitsSeen {
    /// Seconds without progress after which to report a hang; 0: never.
    pub patience_s: u32,
    /// Waits that became long.
    pub begun: u32,
    /// Sleeps begun.
    pub turns: u32,
    /// Other threads of it may be running.
    pub beside_others: bool,
}

impl WaitsSeen {
    /// Parses the bytes of [`WaitCounts`], read at [`waits_offset`](crate::layout::waits_offset).
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| words.get(index).copied().map_or(0, u32::from_ne_bytes);
        Self {
            patience_s: word(0),
            begun: word(1),
            turns: word(2),
            beside_others: word(3) != 0,
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<WaitCounts>() == 16);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn seen(waits: &WaitCounts) -> WaitsSeen {
        let words = [
            &waits.patience_s,
            &waits.begun,
            &waits.turns,
            &waits.beside_others,
        ];
        let mut bytes = [0; 16];
        for (place, word) in bytes.chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        WaitsSeen::from_bytes(bytes)
    }

    #[test]
    fn a_wait_that_goes_on_adds_turns_alone() {
        let waits = WaitCounts::default();
        assert_eq!(seen(&waits), WaitsSeen::default());
        waits.announce(60);
        waits.count_sleep(true, false);
        let first = seen(&waits);
        assert_eq!((first.patience_s, first.begun, first.turns), (60, 1, 1));
        waits.count_sleep(false, false);
        assert_eq!(seen(&waits), WaitsSeen { turns: 2, ..first });
        waits.count_sleep(true, true);
        let last = seen(&waits);
        assert_eq!((last.begun, last.turns, last.beside_others), (2, 3, true));
    }
}
