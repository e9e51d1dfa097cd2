// SPDX-License-Identifier: MIT OR Apache-2.0
//! An exit handler: if a process exits without `MPI_Finalize` under another MPI's launcher, the handler ends the job
//! (`DaemonLink::ends`), because other ranks may wait for this process.
//!
//! # Safety
//! - The loader runs functions of this type from `.init_array`, once.
//! - The C library calls registered functions at the end of the process, when this library is still loaded: it is
//!   linked with `-z nodelete`, or statically into the program.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

// SAFETY: see the head of this file.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = register;

/// Registers the handler when the library is loaded. The program registers its exit handlers later, so they run before
/// this one. So they may still call `MPI_Finalize`.
extern "C" fn register() {
    unsafe extern "C" {
        fn on_exit(call: extern "C" fn(c_int, *mut c_void), with: *mut c_void) -> c_int;
    }
    // SAFETY: see the head of this file. If the registration fails, an exit of this process does not end the job.
    unsafe { on_exit(at_exit, core::ptr::null_mut()) };
}

extern "C" fn at_exit(code: c_int, _: *mut c_void) {
    crate::init::process_ends(code);
}
