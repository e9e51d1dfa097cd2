// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the program called MPI from: found when a tool asks, by walking up its stack.
//!
//! A call that goes through tools has a frame of a function that does nothing else (`top_X` of its entry), and above that is the
//! caller. So calls of which nobody asks pay nothing for it.
//!
//! # Safety
//! The walk is the compiler's run-time library's; it is handed a function of the right type, and a pointer that lives as
//! long as the walk.
#![allow(unsafe_code, reason = "asks the unwinder")]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crate::qmpi_table::FUNCTIONS;

/// Stands behind the call of the first tool, so that the frame which makes that call is still there meanwhile.
#[inline(always)]
pub fn keep_frame() {
    // SAFETY: no instruction at all; but no call in front of it can be the last thing that its function does.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) }
}

/// Where the call came from that this thread is in; `None`: it is in none, or a frame on the way cannot be walked over.
pub(super) fn calling() -> Option<*mut c_void> {
    let mut walk = StackWalk {
        entry: None,
        found: null_mut(),
    };
    // SAFETY: `step` has the type that is asked for, and gets the pointer that lives here.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    (!walk.found.is_null()).then_some(walk.found)
}

/// The state of a walk up the call stack.
struct StackWalk {
    /// What the program called, once the frame was met that entered the stack of tools.
    entry: Option<usize>,
    found: *mut c_void,
}

extern "C" fn step(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: `calling` handed over the one, which nobody else uses meanwhile.
    let walk = unsafe { &mut *walk.cast::<StackWalk>() };
    // SAFETY: the unwinder's own frame, inside its callback.
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
/// `_URC_END_OF_STACK`: any other value ends the walk.
const STOP: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        walk: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetRegionStart(frame: *mut c_void) -> usize;
}
