// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symbols of the MPIR process acquisition interface in a rank.
//!
//! `MPIR_Breakpoint` and `MPIR_proctable` are absent on purpose: a debugger takes any process with these symbols for
//! the starter process. Nothing waits for `MPIR_debug_gate` here: `rmpiexec` holds all ranks before their first
//! instruction until the debugger has attached.
//!
//! # Safety
//! The exported names are those of the interface, and no other library defines them. This library never writes the
//! variables; a debugger writes them while the process is stopped.
#![allow(unsafe_code, reason = "exported symbols")]
#![allow(clippy::disallowed_types, reason = "words that a debugger writes")]
#![allow(non_upper_case_globals, reason = "names for debuggers")]

use core::cell::UnsafeCell;
use std::ffi::c_int;

/// An `int` that only a debugger writes.
#[derive(Debug)]
#[repr(transparent)]
pub struct DebuggerInt(UnsafeCell<c_int>);

// SAFETY: nothing in this process writes the value.
unsafe impl Sync for DebuggerInt {}

/// A debugger sets it to 1 when it has attached to this rank.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_debug_gate: DebuggerInt = DebuggerInt(UnsafeCell::new(0));

/// 1 while a debugger is attached.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_being_debugged: DebuggerInt = DebuggerInt(UnsafeCell::new(0));

/// Whether a debugger has set `MPIR_being_debugged`.
pub fn is_debugged() -> bool {
    // SAFETY: a variable of this library, not written while the process runs; volatile, because a debugger may have
    // written it while the process was stopped.
    unsafe { MPIR_being_debugged.0.get().read_volatile() != 0 }
}
