// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address of the program's call of MPI, found on a tool's request by unwinding the call stack.
//!
//! A call of `MPI_X` through tools has a frame of the function `top_X`. Its caller is the entry point, if that still
//! has a frame, and then the program. So a call does not have to record the program's address, and costs nothing unless
//! a tool requests it.
//!
//! # Safety
//! The unwinder of the compiler's run-time library gets a function of the right type, and a pointer that outlives the
//! walk.
#![allow(unsafe_code, reason = "calls the unwinder")]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crate::qmpi_table::FUNCTIONS;

/// Does nothing at run time. `top_X` calls this after its call of the first tool. So the compiler cannot make the
/// tool's call a tail call, and the frame of `top_X` exists while the tool runs.
#[inline(always)]
pub fn keep_frame() {
    // SAFETY: the assembly contains no instruction. Its only effect is that the compiler cannot make a preceding call a
    // tail call.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) }
}

/// The address to which the MPI call that this thread is in will return, in the program or a PMPI tool; `None` if the
/// thread is not in an MPI call, or a frame cannot be unwound.
pub(super) fn calling() -> Option<*mut c_void> {
    let mut walk = StackWalk {
        entry: None,
        found: null_mut(),
    };
    // SAFETY: `step` has the required type, and gets a pointer to a local that outlives the call.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    (!walk.found.is_null()).then_some(walk.found)
}

/// The state of a walk up the call stack.
struct StackWalk {
    /// Address of the entry point that the program called; `None` until the frame of a `top_X` is found.
    entry: Option<usize>,
    found: *mut c_void,
}

extern "C" fn step(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the pointer that `calling` passed; it is not used elsewhere during the walk.
    let walk = unsafe { &mut *walk.cast::<StackWalk>() };
    // SAFETY: the unwinder passed `frame` to this callback.
    let start = unsafe { _Unwind_GetRegionStart(frame) };
    let Some(entry) = walk.entry else {
        let mut forms = FUNCTIONS.iter().map(|(_, forms)| forms);
        let found = forms.find(|forms| forms.top.addr() == start);
        walk.entry = found.map(|forms| forms.entry.addr());
        return GO_ON;
    };
    if start == entry {
        return GO_ON;
    }
    // SAFETY: as above.
    let address = unsafe { _Unwind_GetIP(frame) };
    walk.found = core::ptr::without_provenance_mut(address);
    STOP
}

/// `_URC_NO_REASON`.
const GO_ON: c_int = 0;
/// `_URC_END_OF_STACK`; every value except `_URC_NO_REASON` ends the walk.
const STOP: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        walk: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetRegionStart(frame: *mut c_void) -> usize;
}
