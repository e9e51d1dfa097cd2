// SPDX-License-Identifier: MIT OR Apache-2.0
//! The static library from which the library that debuggers load, `librmpi_mqs.so`, is linked. The code is in `mqs`.
//!
//! **Knows** `mqs`.
//! **Never** contains code that runs: if the compiler cannot prove that no panic is reachable, the link fails with an
//! undefined function.
//!
//! # Safety
//! The only unsafe operation is a call of a function that is never defined.
#![no_std]
#![allow(unsafe_code, reason = "a reachable panic becomes a link error")]

pub use mqs::entry;

#[cfg(not(any(test, doc)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn rmpi_mqs_would_panic() -> !;
    }
    // SAFETY: the function is undefined, so a library in which this is reachable does not link.
    unsafe { rmpi_mqs_would_panic() }
}
