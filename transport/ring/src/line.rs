// SPDX-License-Identifier: MIT OR Apache-2.0
//! The line of a gate: one cache line in the receiver's memory. In it the receiver signals that a buffer may be
//! written, and the sender signals that the buffer was written. Each signal is the number of a message; the callers
//! define the numbers, which only grow, so the line is never reset.
//!
//! # Safety
//! The only unsafe function, [`GateLine::at`], makes a reference to shared memory, in which only atomic words are used.
#![allow(unsafe_code)]

use crate::sync::{AtomicU64, Ordering};

/// One gate between a receiver and a sender. All words 0: the gate was never opened, and no buffer was written.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub struct GateLine {
    opened: AtomicU64,
    written: AtomicU64,
    /// The number of the message to which the note belongs.
    noted: AtomicU64,
    note: AtomicU64,
    /// The target of the bytes, for a gate that the sender claims before it writes.
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

    /// Receiver: signals that the buffer may be written for message `number`. Afterwards the receiver
    /// [wakes](crate::Bell::wake) the sender, if the sender sleeps.
    #[inline(always)]
    pub fn open(&self, number: u64) {
        // PAIR(gate-open): GateLine::is_open loads with Acquire. This store comes after the receiver's reads of the
        // last message.
        self.opened.store(number, Ordering::Release);
    }

    /// Sender: whether the buffer may be written for message `number`.
    #[inline(always)]
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        // PAIR(gate-open): GateLine::open stores with Release.
        self.opened.load(Ordering::Acquire) == number
    }

    /// Sender: signals that the bytes of message `number` are written. Afterwards the sender [wakes](crate::Bell::wake)
    /// the receiver, if the receiver sleeps.
    #[inline(always)]
    pub fn signal_written(&self, number: u64) {
        // PAIR(gate-written): GateLine::is_written loads with Acquire.
        self.written.store(number, Ordering::Release);
    }

    /// Sender: adds a note to message `number`, before it signals that the bytes are written.
    #[inline(always)]
    pub fn note(&self, number: u64, note: u64) {
        // Relaxed: `written` is stored later, with Release.
        self.note.store(note, Ordering::Relaxed);
        self.noted.store(number, Ordering::Relaxed);
    }

    /// Receiver: the sender's note for message `number`, whose bytes [are written](Self::is_written); `None`: it has no
    /// note.
    #[inline(always)]
    #[must_use]
    pub fn noted(&self, number: u64) -> Option<u64> {
        let is_noted = self.noted.load(Ordering::Relaxed) == number;
        is_noted.then(|| self.note.load(Ordering::Relaxed))
    }

    /// Receiver: whether the bytes of message `number` are written.
    #[inline(always)]
    #[must_use]
    pub fn is_written(&self, number: u64) -> bool {
        // PAIR(gate-written): GateLine::signal_written stores with Release, after the bytes were written.
        self.written.load(Ordering::Acquire) == number
    }

    /// Receiver: [opens](Self::open) the gate for message `number`, with the target of its bytes. The gate can be
    /// [revoked](Self::revoke).
    #[inline(always)]
    pub fn offer(&self, number: u64, place: [u64; 3]) {
        // Relaxed: `opened` is stored later, with Release.
        for (word, value) in self.place.iter().zip(place) {
            word.store(value, Ordering::Relaxed);
        }
        self.open(number);
    }

    /// Sender: the target that the receiver has [offered](Self::offer) for message `number`, if the gate is open. The
    /// target is valid only after the sender has [claimed](Self::claim) the gate.
    #[inline(always)]
    #[must_use]
    pub fn offered(&self, number: u64) -> Option<[u64; 3]> {
        let [a, b, c] = &self.place;
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        self.is_open(number).then(|| [load(a), load(b), load(c)])
    }

    /// Sender: claims the gate for message `number`, which is not 0. From then on the receiver cannot revoke it.
    /// `false`: the gate is not open for that message.
    #[inline(always)]
    #[must_use]
    pub fn claim(&self, number: u64) -> bool {
        // PAIR(gate-claim): only one of this exchange and that of GateLine::revoke succeeds. Acquire as in
        // GateLine::is_open.
        let taken =
            self.opened
                .compare_exchange(number, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Receiver: revokes the gate for message `number`, which is not 0: the sender will not write. `false`: the sender
    /// has claimed the gate, and signals when it has written.
    #[must_use]
    pub fn revoke(&self, number: u64) -> bool {
        // PAIR(gate-claim): only one of this exchange and that of GateLine::claim succeeds.
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
        // SAFETY: aligned and mapped, as the caller promises. All words except the padding, which is never read, are
        // atomic, and any bytes are a value of the type.
        unsafe { place.cast::<Self>().as_ref() }
    }
}

impl Default for GateLine {
    fn default() -> Self {
        Self::new()
    }
}

/// Value of `opened` after the gate was claimed or revoked.
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
