// SPDX-License-Identifier: MIT OR Apache-2.0
//! The line of a gate: one cache line in the receiver's memory, in which the receiver signals that a buffer may be
//! written, and the sender that it was. Both numbers only grow, so that nothing is ever reset; their meaning is the
//! callers'.
//!
//! # Safety
//! The one unsafe function makes a reference to shared memory of which only atomic words are used.
#![allow(unsafe_code)]

use crate::sync::{AtomicU64, Ordering};

/// One gate between a receiver and a sender; zero is "never opened, never written".
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub struct GateLine {
    opened: AtomicU64,
    written: AtomicU64,
    /// The number of the message to which the note belongs.
    noted: AtomicU64,
    note: AtomicU64,
    /// The target of the bytes, for a gate that is claimed before it is passed.
    place: [AtomicU64; 3],
    pad: u64,
}

impl GateLine {
    /// A gate in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        Self {
            opened: AtomicU64::new(0),
            written: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            note: AtomicU64::new(0),
            place: [const { 0 }; 3].map(AtomicU64::new),
            pad: 0,
        }
    }

    /// Receiver: signals that the buffer may be written for `number`. Afterwards it [wakes](crate::Bell::wake) the
    /// sender, if that sleeps.
    #[inline(always)]
    pub fn open(&self, number: u64) {
        // PAIR(gate-open): GateLine::is_open loads with Acquire, after the receiver's reads of the last message.
        self.opened.store(number, Ordering::Release);
    }

    /// Sender: whether the buffer may be written for `number`.
    #[inline(always)]
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        // PAIR(gate-open): GateLine::open stores with Release.
        self.opened.load(Ordering::Acquire) == number
    }

    /// Sender: signals that the bytes of `number` are written. Afterwards it [wakes](crate::Bell::wake) the receiver,
    /// if that sleeps.
    #[inline(always)]
    pub fn signal_written(&self, number: u64) {
        // PAIR(gate-written): GateLine::is_written loads with Acquire.
        self.written.store(number, Ordering::Release);
    }

    /// Sender: adds a note to the message of `number`, before it signals that the bytes are written.
    #[inline(always)]
    pub fn note(&self, number: u64, note: u64) {
        // Visible to a reader of `written`, which is stored later with Release.
        self.note.store(note, Ordering::Relaxed);
        self.noted.store(number, Ordering::Relaxed);
    }

    /// Receiver: the sender's note for the message of `number`, whose bytes [are written](Self::is_written).
    #[inline(always)]
    #[must_use]
    pub fn noted(&self, number: u64) -> Option<u64> {
        let is_noted = self.noted.load(Ordering::Relaxed) == number;
        is_noted.then(|| self.note.load(Ordering::Relaxed))
    }

    /// Receiver: whether the bytes of `number` are written.
    #[inline(always)]
    #[must_use]
    pub fn is_written(&self, number: u64) -> bool {
        // PAIR(gate-written): GateLine::signal_written stores with Release, after the bytes.
        self.written.load(Ordering::Acquire) == number
    }

    /// Receiver: [opens](Self::open) a gate that can be [revoked](Self::revoke), with the target of the bytes of
    /// `number`.
    #[inline(always)]
    pub fn offer(&self, number: u64, place: [u64; 3]) {
        // Visible to a reader of `opened`, which is stored later with Release.
        for (word, value) in self.place.iter().zip(place) {
            word.store(value, Ordering::Relaxed);
        }
        self.open(number);
    }

    /// Sender: the target that the receiver has [offered](Self::offer) for `number`, if it is open. It is valid once
    /// it is claimed.
    #[inline(always)]
    #[must_use]
    pub fn offered(&self, number: u64) -> Option<[u64; 3]> {
        let [a, b, c] = &self.place;
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        self.is_open(number).then(|| [load(a), load(b), load(c)])
    }

    /// Sender: claims the gate of `number`, not 0; the receiver cannot revoke it from then on. `false`: it is not
    /// open.
    #[inline(always)]
    #[must_use]
    pub fn claim(&self, number: u64) -> bool {
        // PAIR(gate-claim): one of this and GateLine::revoke changes the word. Acquire as in GateLine::is_open.
        let taken =
            self.opened
                .compare_exchange(number, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Receiver: closes the gate of `number`, not 0, again: the sender will not write. `false`: the sender has claimed
    /// it, and signals when it is done.
    #[must_use]
    pub fn revoke(&self, number: u64) -> bool {
        // PAIR(gate-claim): one of this and GateLine::claim changes the word.
        let taken =
            self.opened
                .compare_exchange(number, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    }

    /// The line at an address of shared memory.
    ///
    /// # Safety
    /// `place` is aligned to 64 bytes, and 64 bytes from there are mapped readable and writable until the process ends.
    #[cfg(not(loom))]
    #[must_use]
    pub unsafe fn at<'a>(place: core::ptr::NonNull<u8>) -> &'a Self {
        // SAFETY: aligned and mapped, as promised; both words are atomic, and any bytes are a value of the type. The padding
        // is never read.
        unsafe { place.cast::<Self>().as_ref() }
    }
}

impl Default for GateLine {
    fn default() -> Self {
        Self::new()
    }
}

/// Value of a gate that was open, and was claimed or revoked.
const TAKEN: u64 = 0;

#[cfg(not(loom))]
const _: () = assert!(size_of::<GateLine>() == 64);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_open_and_written_for_one_number_at_a_time() {
        let line = GateLine::new();
        assert!(!line.is_open(1) && !line.is_written(1));
        line.open(1);
        assert!(line.is_open(1) && !line.is_open(2) && !line.is_written(1));
        line.signal_written(1);
        line.open(2);
        assert!(line.is_written(1) && !line.is_open(1) && !line.is_written(2));
        assert_eq!(line.noted(1), None);
        line.note(2, 77);
        line.signal_written(2);
        assert_eq!((line.noted(1), line.noted(2)), (None, Some(77)));
    }

    #[test]
    fn a_gate_is_claimed_or_revoked_and_never_both() {
        let line = GateLine::new();
        assert!(!line.claim(1) && !line.revoke(1));
        line.offer(1, [10, 11, 12]);
        assert_eq!(
            (line.offered(1), line.offered(2)),
            (Some([10, 11, 12]), None)
        );
        assert!(line.claim(1) && !line.claim(1) && !line.revoke(1));
        line.offer(2, [0; 3]);
        assert!(!line.claim(1) && line.revoke(2) && !line.claim(2));
        assert_eq!(line.offered(2), None);
    }
}
