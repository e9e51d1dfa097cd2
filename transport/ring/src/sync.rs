// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only import of atomics: the processor's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

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
