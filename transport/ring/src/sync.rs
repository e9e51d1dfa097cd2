// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only import of atomics: the processor's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The sender's half of an asymmetric fence: free, because the other half is a [heavy fence](crate::doorbell).
///
/// It only keeps the compiler from moving the attention load above the slot's publication. The receiver, which
/// withdraws its attention once in a long while, pays for both with a system call that makes every running thread
/// of the node execute a full fence. Loom knows no such call, so there both halves are full fences.
#[inline(always)]
pub(crate) fn light_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

pub(crate) use own::Own32;
pub use own::Own64;

mod own {
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// A number of this process alone, written by one thread, and read by any other or by a signal handler. No peer
    /// accesses it, so loom does not model it.
    #[derive(Debug)]
    pub(crate) struct Own32(AtomicU32);

    impl Own32 {
        pub(crate) const fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }

        /// For its owner: publishes all its earlier stores.
        #[inline(always)]
        pub(crate) fn publish(&self, value: u32) {
            // PAIR(own-count): `observe` loads it with Acquire.
            self.0.store(value, Ordering::Release);
        }

        /// For others: they see the stores before its publication.
        pub(crate) fn observe(&self) -> u32 {
            // PAIR(own-count): `publish` stores it with Release.
            self.0.load(Ordering::Acquire)
        }
    }

    /// A 64-bit count with the same rules.
    #[derive(Debug, Default)]
    pub struct Own64(AtomicU64);

    impl Own64 {
        pub(crate) const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        /// The value that its owner set last, or a moment ago.
        #[inline(always)]
        #[must_use]
        pub fn get(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        /// For its owner.
        #[inline(always)]
        pub(crate) fn set(&self, value: u64) {
            self.0.store(value, Ordering::Relaxed);
        }

        /// Adds to the count; for its owner.
        #[inline(always)]
        pub fn add(&self, more: u64) {
            self.set(self.get().wrapping_add(more));
        }
    }
}
