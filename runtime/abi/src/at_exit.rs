// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sees how the process ends: one that has not finalized must not leave others of its job waiting (`DaemonLink::ends`).
//!
//! # Safety
//! - The loader runs functions of this type from `.init_array`, once.
//! - C's library calls what was registered at the end of the process, when this library is still there: it is linked with
//!   `-z nodelete`, and a program that has it inside ends with it.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

// SAFETY: see the head of this file.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = register;

/// When the library is loaded: what the program registers is registered later, and runs before. It may finalize there.
extern "C" fn register() {
    unsafe extern "C" {
        fn on_exit(call: extern "C" fn(c_int, *mut c_void), with: *mut c_void) -> c_int;
    }
    // SAFETY: see the head of this file. Where there is no room for it, nobody sees the end.
    unsafe { on_exit(at_exit, core::ptr::null_mut()) };
}

extern "C" fn at_exit(code: c_int, _: *mut c_void) {
    crate::init::process_ends(code);
}
