// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wait counters of a process. A tool that reads them from time to time can conclude from them that the process makes
//! no progress.
//!
//! The owner writes the counters only when it is about to sleep, so they cost nothing where latency matters. The tool
//! maps no memory: it reads the words from the segment's file ([`WaitsSeen::from_bytes`]), and compares two readings.
//! If the number of waits (`begun`) is unchanged and the number of sleeps (`turns`) has grown, the owner was in one and
//! the same wait between the readings. If the number of sleeps is unchanged too, the owner was not waiting, or was
//! stopped.

use crate::sync::{AtomicU32, Ordering};

/// A process's counters of its waits, in the cold page of its region. All words 0: it has never waited. Other processes
/// do not trust the counters.
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

    /// Owner: counts a sleep that is about to begin. `begins`: whether it is the first sleep of a wait.
    /// `beside_others`: whether other threads of the process may be running. Only one thread at a time calls this.
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

/// The counters of a process, as read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitsSeen {
    /// Seconds without progress after which to report a hang; 0: never.
    pub patience_s: u32,
    /// Number of waits in which the process has slept.
    pub begun: u32,
    /// Number of sleeps begun.
    pub turns: u32,
    /// Whether other threads of the process may be running.
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
    fn continued_wait_adds_only_turns() {
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
