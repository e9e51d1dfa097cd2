// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of a region's owner, which the owner publishes before any communication.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The words of a region's cold page in which peers find the owner's identity. All values are claims of the owner:
/// peers do not trust them.
#[derive(Debug)]
#[repr(C)]
pub struct Ident {
    ready: AtomicU32,
    pid: AtomicU32,
    nonces: AtomicU64,
    cpus: [AtomicU64; 16],
}

impl Ident {
    /// Publishes the owner's identity: its process id, the CPUs that it may run on, and the address of its table of
    /// nonces. That table is in its private memory and has one word for each local rank: a peer that can read its word
    /// proves that it can read the owner's memory.
    pub fn introduce(&self, pid: u32, nonces: u64, cpus: &[u64]) {
        self.pid.store(pid, Ordering::Relaxed);
        self.nonces.store(nonces, Ordering::Relaxed);
        for (word, value) in self.cpus.iter().zip(cpus) {
            word.store(*value, Ordering::Relaxed);
        }
        // PAIR(ident): Ident::pid loads with Acquire.
        self.ready.store(1, Ordering::Release);
    }

    /// Process id of the owner; `None`: it has not been published yet.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        // PAIR(ident): Ident::introduce stores with Release.
        (self.ready.load(Ordering::Acquire) == 1).then(|| self.pid.load(Ordering::Relaxed))
    }

    /// Address of the owner's nonces. It is valid only in the owner's address space.
    #[must_use]
    pub fn nonces(&self) -> u64 {
        self.nonces.load(Ordering::Relaxed)
    }

    /// The CPUs that the owner may run on, as published; bit `i % 64` of word `i / 64` is CPU `i`.
    #[must_use]
    pub fn cpus(&self) -> [u64; 16] {
        core::array::from_fn(|i| self.cpus[i].load(Ordering::Relaxed))
    }

    /// A new page in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ready: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            nonces: AtomicU64::new(0),
            cpus: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Default for Ident {
    fn default() -> Self {
        Self::new()
    }
}
