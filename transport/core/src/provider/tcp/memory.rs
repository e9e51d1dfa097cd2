// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of the program's memory, from and to which bytes are moved.
//!
//! # Safety
//! A [`MemoryRange`] is made in two places only, and is used only within the call that made it or while its source is
//! held. T1: from a lease that this provider holds (`works.rs`), which is exclusive until it is returned; ranges of the
//! lease are dropped before that. T2: from exported memory whose key is in the table (`keys.rs`) at the moment of the
//! access, and whose owner leaves it mapped until the key is withdrawn; data that are unsent at the withdrawal are
//! copied then (`store.rs`). Memory is copied as raw bytes, and no reference to it is ever made.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mr::to_usize;
use crate::{Atomic, Lease};

/// A range of memory of this process that may be read or written under the rules in this file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) struct MemoryRange {
    address: u64,
    bytes: usize,
}

impl MemoryRange {
    /// Bytes `at .. at + bytes` of a lease; empty if they are not all inside it.
    pub(super) fn of_lease(lease: &Lease, at: u64, bytes: usize) -> Self {
        let fits = at.checked_add(bytes as u64);
        let fits = fits.is_some_and(|end| end <= lease.bytes() as u64);
        Self {
            address: lease.address().wrapping_add(if fits { at } else { 0 }),
            bytes: if fits { bytes } else { 0 },
        }
    }

    /// Exported memory, which is in the table of keys.
    pub(super) fn exported(address: u64, bytes: usize) -> Self {
        Self { address, bytes }
    }

    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    /// The rest after the first `at` bytes.
    pub(super) fn from(self, at: usize) -> Self {
        let at = at.min(self.bytes);
        Self {
            address: self.address + at as u64,
            bytes: self.bytes - at,
        }
    }

    /// The first `bytes` bytes, or fewer if the range is shorter.
    pub(super) fn first(self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        Self { bytes, ..self }
    }

    /// The range as address and length, for the kernel.
    pub(super) fn place(self) -> (*mut u8, usize) {
        let place = std::ptr::with_exposed_provenance_mut(to_usize(self.address));
        (place, self.bytes)
    }

    /// Copies `source` to the range, as many bytes as fit.
    pub(super) fn fill(self, source: &[u8]) {
        let (place, bytes) = self.place();
        let bytes = bytes.min(source.len());
        // SAFETY: the source is a slice; the target is writable (T1, T2) and no reference to it exists.
        unsafe { ring::copy::copy_overlapping(source.as_ptr(), place, bytes) };
    }

    /// Copies the range to `target`, as many bytes as fit.
    pub(super) fn copy_to(self, target: &mut [u8]) {
        let (place, bytes) = self.place();
        let bytes = bytes.min(target.len());
        // SAFETY: the target is a slice; the source is readable (T1, T2).
        unsafe { ring::copy::copy_overlapping(place, target.as_mut_ptr(), bytes) };
    }

    /// Changes this word in one step; returns its previous value. `None`: it is not an aligned word.
    pub(super) fn change(self, atomic: Atomic) -> Option<u64> {
        let (place, bytes) = self.place();
        let place = NonNull::new(place.cast::<u64>())?;
        if bytes != size_of::<u64>() || !place.is_aligned() {
            return None;
        }
        // SAFETY: aligned, as was just checked, and mapped (T2); other processes that change the word meanwhile use
        // atomics too.
        let word = unsafe { AtomicU64::from_ptr(place.as_ptr()) };
        Some(match atomic {
            Atomic::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
            Atomic::CompareSwap { compare, swap } => word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|old| old),
        })
    }
}

/// Memory that is lent and never returned, for tests.
#[cfg(test)]
pub(super) fn lent_for_ever(content: Vec<u8>) -> Lease {
    let bytes = content.len();
    let base = NonNull::from(content.leak()).cast();
    // SAFETY: not aliased, and never freed.
    unsafe { Lease::new(base, bytes) }
}
