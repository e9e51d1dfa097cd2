// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a debugger that speaks MPIR finds in a rank.
//!
//! `MPIR_Breakpoint` and `MPIR_proctable` are absent on purpose: they belong to the program that started the ranks, and a
//! process that has them is taken for it. Nor does anything wait for the gate here: `rmpiexec` holds all ranks, before
//! their first instruction, until the debugger has come.
//!
//! # Safety
//! The exported names are the interface's and belong to this library alone. Nothing of ours writes the words behind them; a
//! debugger does so while the process is stopped.
#![allow(unsafe_code, reason = "exported symbols")]
#![allow(clippy::disallowed_types, reason = "words that a debugger writes")]
#![allow(non_upper_case_globals, reason = "names for debuggers")]

use core::cell::UnsafeCell;
use std::ffi::c_int;

/// An `int` that is a debugger's alone.
#[derive(Debug)]
#[repr(transparent)]
pub struct DebuggerInt(UnsafeCell<c_int>);

// SAFETY: nothing in this process writes the inside.
unsafe impl Sync for DebuggerInt {}

/// A debugger sets it to 1 when it has come to this rank.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_debug_gate: DebuggerInt = DebuggerInt(UnsafeCell::new(0));

/// 1 while a debugger is there.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_being_debugged: DebuggerInt = DebuggerInt(UnsafeCell::new(0));

/// Whether a debugger has said that it is there.
pub fn is_debugged() -> bool {
    // SAFETY: a word of this library's that nobody writes while the process runs; a debugger may have, so it is read.
    unsafe { MPIR_being_debugged.0.get().read_volatile() != 0 }
}
