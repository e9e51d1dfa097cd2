// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that work requests read and write, and the keys that name it.
//!
//! # Safety
//! A [`Lease`] is a promise: these bytes exist and are not accessed otherwise until the lease comes back. Only the code
//! that makes a lease can keep the promise. So making a lease is `unsafe`, and everything after that is safe. Providers
//! access leased memory only by the functions of this file, by system calls, by devices, and as their own `memory.rs`
//! files permit.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::copy::copy_overlapping;

use crate::Atomic;

/// A stretch of memory on loan to the transport, from the post of a work request to its completion.
#[derive(Debug)]
pub struct Lease {
    base: NonNull<u8>,
    bytes: usize,
    key: Option<LocalKey>,
}

/// Key of memory that is [registered](crate::Fabric::register) for many writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalKey(pub(crate) u32);

// SAFETY: a lease is an address and a length with exclusive use of the memory, which may move between threads.
unsafe impl Send for Lease {}

impl Lease {
    /// Takes `bytes` bytes at `base` on loan.
    ///
    /// # Safety
    /// From now until the lease comes back in a completion (or is dropped, if it was never posted) the memory is
    /// readable, and nothing else writes it. If it is the target of a read, it is also writable, and nothing else reads
    /// it.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        let key = None;
        Self { base, bytes, key }
    }

    /// Sets the key of the registered memory in which the lease lies; `None`: it lies in none.
    #[must_use]
    pub fn with_key(self, key: Option<LocalKey>) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn key(&self) -> Option<LocalKey> {
        self.key
    }

    /// Number of bytes on loan.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address, as a number by which this process and others may reach the memory.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Fills bytes `at .. at + bytes` from `source`, as far as the lease reaches.
    ///
    /// # Safety
    /// `bytes` bytes from `source` are mapped; others may write there meanwhile, but no reference to them exists.
    pub(crate) unsafe fn fill_from(&mut self, at: usize, source: NonNull<u8>, bytes: usize) {
        let at = at.min(self.bytes);
        let bytes = bytes.min(self.bytes - at);
        // SAFETY: inside the lease.
        let target = unsafe { self.base.add(at) };
        // SAFETY: the lease is writable and exclusive, and `source` is readable (the caller's promise). The two overlap
        // only if the application leases memory that the transport has lent to it; `copy` is right for overlapping
        // ranges too.
        unsafe { copy_overlapping(source.as_ptr(), target.as_ptr(), bytes) };
    }

    /// Copies `bytes` bytes from `source` to the start of the lease with [`copy_in_pieces`], as far as the lease
    /// reaches.
    ///
    /// # Safety
    /// As for `fill_from`; in addition, `source` and the lease do not overlap.
    pub(crate) unsafe fn fill_in_pieces(&mut self, source: NonNull<u8>, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        // SAFETY: inside the lease, which is writable and exclusive; the source is readable and does not overlap it, as
        // promised.
        unsafe { copy_in_pieces(source, self.base, bytes) };
    }

    /// Copies `bytes` bytes of the lease, from its byte `at` on, to `target`, as far as the lease reaches.
    ///
    /// # Safety
    /// `bytes` bytes from `target` are mapped for writing and not borrowed.
    pub(crate) unsafe fn copy_out(&self, at: usize, target: NonNull<u8>, bytes: usize) {
        let at = at.min(self.bytes);
        let bytes = bytes.min(self.bytes - at);
        // SAFETY: inside the lease.
        let source = unsafe { self.base.add(at) };
        // SAFETY: as in `fill_from`, with the directions exchanged.
        unsafe { copy_overlapping(source.as_ptr(), target.as_ptr(), bytes) };
    }

    /// Fills the lease from `source` in this process; the two may overlap.
    pub(crate) fn copy_within_process(&mut self, source: u64) {
        let source = std::ptr::with_exposed_provenance::<u8>(to_usize(source));
        // SAFETY: both are memory of this process on loan: `source` was exported by a fabric of this process from a
        // lease of at least this length, which has not come back yet (providers `self` and `sim` check the key).
        unsafe { copy_overlapping(source, self.base.as_ptr(), self.bytes) };
    }

    /// Changes the word at `target` in one step, and puts its previous value into the lease.
    ///
    /// # Safety
    /// `target` is aligned to 8 bytes, and 8 bytes from there are mapped for writing; no reference to them exists.
    pub(crate) unsafe fn change(&mut self, target: NonNull<u8>, atomic: Atomic) {
        // SAFETY: aligned and mapped, as promised.
        let old = unsafe { change_word(target.cast(), atomic) };
        let old = old.to_ne_bytes();
        // SAFETY: the source is a local array of this function.
        unsafe { self.fill_from(0, NonNull::from(&old).cast(), old.len()) };
    }

    /// Changes a word of this process in one step, and puts its previous value into the lease.
    pub(crate) fn change_within_process(&mut self, target: u64, atomic: Atomic) {
        let target = std::ptr::with_exposed_provenance_mut::<u8>(to_usize(target));
        if let Some(target) =
            NonNull::new(target).filter(|target| target.cast::<u64>().is_aligned())
        {
            // SAFETY: aligned, as was just checked; 8 bytes that are on loan as in `copy_within_process`.
            unsafe { self.change(target, atomic) };
        }
    }

    /// Copies the lease to `target` in this process; the two may overlap.
    pub(crate) fn copy_to_process(&self, target: u64) {
        let target = std::ptr::with_exposed_provenance_mut::<u8>(to_usize(target));
        // SAFETY: as in `copy_within_process`, with the directions exchanged.
        unsafe { copy_overlapping(self.base.as_ptr(), target, self.bytes) };
    }
}

/// Copies piece by piece. The C library may copy larger pieces by one instruction, `rep movsb`. Processors execute it
/// fast, but an emulator, in which kernels with software network devices run for tests, executes it byte by byte.
/// Smaller pieces are copied by vector instructions.
///
/// # Safety
/// `bytes` bytes are readable at `source` and writable at `target`, no reference to them exists, and the two do not
/// overlap.
pub(crate) unsafe fn copy_in_pieces(source: NonNull<u8>, target: NonNull<u8>, bytes: usize) {
    // Opaque to the compiler, which would merge the pieces into one copy.
    let most = std::hint::black_box(PIECE_BYTES);
    let mut at = 0;
    while at < bytes {
        let piece = most.min(bytes - at);
        // SAFETY: inside the source.
        let from = unsafe { source.add(at) };
        // SAFETY: inside the target.
        let to = unsafe { target.add(at) };
        // SAFETY: this many bytes are left of the source and of the target, which do not overlap, as promised.
        unsafe { from.copy_to_nonoverlapping(to, piece) };
        at += piece;
    }
}

/// Size of the pieces of [`copy_in_pieces`]. The pieces are too small for `rep movsb`, which glibc uses from 2 KiB on.
const PIECE_BYTES: usize = 1024;
/// Changes a word of the application in one step; returns its previous value.
///
/// # Safety
/// `target` is aligned, and mapped for writing; no reference to it exists.
pub(crate) unsafe fn change_word(target: NonNull<u64>, atomic: Atomic) -> u64 {
    // SAFETY: aligned and mapped, as promised; whatever changes the word meanwhile uses atomics too, or is another
    // process.
    let word = unsafe { AtomicU64::from_ptr(target.as_ptr()) };
    match atomic {
        Atomic::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
        Atomic::CompareSwap { compare, swap } => word
            .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
            .unwrap_or_else(|old| old),
    }
}

/// Bytes of the operand of an atomic operation.
pub(crate) const WORD_BYTES: usize = 8;

/// Names leased memory for one peer: plain data, to be sent in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteKey {
    /// Address in the owner's process, or the name of an offset in the owner's arena.
    pub address: u64,
    /// Bytes from there that may be used.
    pub bytes: u64,
    /// A check word, whose meaning the provider defines.
    pub check: u64,
}

impl RemoteKey {
    /// The key as three words of a frame.
    #[must_use]
    pub fn to_words(self) -> [u64; 3] {
        [self.address, self.bytes, self.check]
    }

    /// The key from three words of a frame.
    #[must_use]
    pub fn from_words([address, bytes, check]: [u64; 3]) -> Self {
        Self {
            address,
            bytes,
            check,
        }
    }
}

/// An address or length of this machine as `usize`; every supported machine has 64 bits.
pub(crate) fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("addresses have 64 bits")
}
