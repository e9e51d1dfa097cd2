// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that work requests move bytes from and to, and the tokens that name it elsewhere.
//!
//! # Safety
//! A [`Lease`] is a promise: these bytes exist and nobody else touches them until the lease comes back. Only its maker
//! can keep it, so making one is `unsafe`; everything after that is safe. The copies in this file are the only ones
//! that providers make on leased memory.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// A stretch of memory on loan to the transport, from the post of a work request to its completion.
#[derive(Debug)]
pub struct Lease {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a lease is an address and a length with exclusive use of the memory, which may move between threads.
unsafe impl Send for Lease {}

impl Lease {
    /// Takes `bytes` bytes at `base` on loan.
    ///
    /// # Safety
    /// From now until the lease comes back in a completion (or is dropped, if it was never posted) the memory is
    /// readable, and writable if it is the target of a read, and nobody else writes to it (or reads it, if it is a
    /// target).
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }

    /// Bytes on loan.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where they are, as a number by which this process and others may reach them.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Copies between two stretches of this process, which may overlap.
    pub(crate) fn copy_within_process(&mut self, source: u64) {
        let source = std::ptr::with_exposed_provenance::<u8>(to_usize(source));
        // SAFETY: both stretches are on loan from the same process: `source` was exported by a fabric of this process
        // from a lease of at least this length, which is still out (providers `self` and `sim` check the key).
        unsafe { std::ptr::copy(source, self.base.as_ptr(), self.bytes) };
    }

    /// The other direction of [`copy_within_process`](Self::copy_within_process).
    pub(crate) fn copy_to_process(&self, target: u64) {
        let target = std::ptr::with_exposed_provenance_mut::<u8>(to_usize(target));
        // SAFETY: as above, with the directions exchanged.
        unsafe { std::ptr::copy(self.base.as_ptr(), target, self.bytes) };
    }
}

/// The name of a lease's memory for one peer: plain data, to be sent in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteKey {
    /// Address in the owner's process.
    pub address: u64,
    /// Bytes from there that may be used.
    pub bytes: u64,
    /// The provider's check word.
    pub check: u64,
}

impl RemoteKey {
    /// As three words, for a frame.
    #[must_use]
    pub fn to_words(self) -> [u64; 3] {
        [self.address, self.bytes, self.check]
    }

    /// From three words of a frame.
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
