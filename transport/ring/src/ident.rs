// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity of a region's owner, published before any communication.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The cold page of a region, with its owner's identity, for its peers. All values are claims of that process.
#[derive(Debug)]
#[repr(C)]
pub struct Ident {
    ready: AtomicU32,
    pid: AtomicU32,
    nonces: AtomicU64,
    cpus: [AtomicU64; 16],
}

impl Ident {
    /// Publishes the owner's identity: its process id and the address, in its private memory, of the table of nonces
    /// that proves which peers can read it (one word per local rank).
    pub fn introduce(&self, pid: u32, nonces: u64, cpus: &[u64]) {
        self.pid.store(pid, Ordering::Relaxed);
        self.nonces.store(nonces, Ordering::Relaxed);
        for (word, value) in self.cpus.iter().zip(cpus) {
            word.store(*value, Ordering::Relaxed);
        }
        // PAIR(ident): Ident::pid loads with Acquire.
        self.ready.store(1, Ordering::Release);
    }

    /// Process id of the owner, once it has been published.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        // PAIR(ident): Ident::introduce stores with Release.
        (self.ready.load(Ordering::Acquire) == 1).then(|| self.pid.load(Ordering::Relaxed))
    }

    /// Address of the owner's nonces, a number to be used only in the owner's address space.
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
