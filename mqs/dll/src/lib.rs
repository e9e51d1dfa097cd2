// SPDX-License-Identifier: MIT OR Apache-2.0
//! The static library behind `librmpi_mqs.so`, which debuggers load: everything is in `mqs`.
//!
//! **Knows** `mqs`. **Never** holds code that runs: where the compiler could not prove that nothing panics, the library
//! cannot be linked, because a function is missing.
//!
//! # Safety
//! One call of a function that exists nowhere.
#![no_std]
#![allow(unsafe_code, reason = "a panic becomes an error of the linker")]

pub use mqs::entry;

#[cfg(not(any(test, doc)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn rmpi_mqs_would_panic() -> !;
    }
    // SAFETY: there is no such function: a library in which this can be reached is not linked.
    unsafe { rmpi_mqs_would_panic() }
}
