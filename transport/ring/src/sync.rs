// SPDX-License-Identifier: MIT OR Apache-2.0
//! Imports the atomic types for the whole crate: the processor's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The fast half of an asymmetric fence. The other half is a [heavy fence](crate::doorbell).
///
/// The fast half costs no instruction: it only keeps the compiler from moving a later load (for example, of the
/// attention) above an earlier store (of the slot's head). The heavy fence is rare: for example, a receiver makes it
/// when it stops polling. It is a system call that makes all other running threads execute a full fence. Loom has no
/// such call, so in a model both halves are full fences.
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

    /// A 32-bit number in private memory: one thread, its owner, writes it; any thread or a signal handler reads it. No
    /// peer accesses it, so loom does not model it.
    #[derive(Debug)]
    pub(crate) struct Own32(AtomicU32);

    impl Own32 {
        pub(crate) const fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }

        /// Owner: stores a value, and so publishes all its earlier stores.
        #[inline(always)]
        pub(crate) fn publish(&self, value: u32) {
            // PAIR(own-count): `observe` loads it with Acquire.
            self.0.store(value, Ordering::Release);
        }

        /// Any thread: loads the value. Afterwards the thread sees all stores that the owner made before it published
        /// the value.
        pub(crate) fn observe(&self) -> u32 {
            // PAIR(own-count): `publish` stores it with Release.
            self.0.load(Ordering::Acquire)
        }
    }

    /// A 64-bit count in private memory: one thread, its owner, writes it; any thread or a signal handler reads it.
    #[derive(Debug, Default)]
    pub struct Own64(AtomicU64);

    impl Own64 {
        pub(crate) const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        /// Any thread: the value that the owner set last, or a slightly older one.
        #[inline(always)]
        #[must_use]
        pub fn get(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        /// Owner: sets the count.
        #[inline(always)]
        pub(crate) fn set(&self, value: u64) {
            self.0.store(value, Ordering::Relaxed);
        }

        /// Owner: adds `more` to the count.
        #[inline(always)]
        pub fn add(&self, more: u64) {
            self.set(self.get().wrapping_add(more));
        }
    }
}
