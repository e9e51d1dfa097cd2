// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the program called MPI from: found when a tool asks, by walking up its stack.
//!
//! The frame that entered the stack of tools leaves a mark; the first frame above the mark that is not one of MPI's own is
//! the caller. So calls of which nobody asks pay two moves, and nothing without tools.
//!
//! # Safety
//! The walk is the compiler's run-time library's; it is handed a function of the right type, and a pointer that lives as
//! long as the walk.
#![allow(unsafe_code, reason = "asks the unwinder")]

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

/// What the outermost call of this thread left.
#[derive(Clone, Copy)]
struct Mark {
    /// An address in the frame that entered the stack of tools; 0: none did.
    frame: usize,
    /// The entry point that the program called.
    entry: usize,
}

thread_local! {
    static MARK: Cell<Mark> = const { Cell::new(Mark { frame: 0, entry: 0 }) };
}

/// One call of the program that goes through tools, from its beginning to its end.
#[derive(Debug)]
pub struct Call {
    before: Mark,
}

impl core::fmt::Debug for Mark {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x} of {:#x}", self.frame, self.entry)
    }
}

impl Call {
    /// Begins one: `here` lies in the caller's frame, `entry` is the function of MPI that the program called.
    #[inline]
    pub fn begin(here: &u8, entry: *const c_void) -> Self {
        let mark = Mark {
            frame: core::ptr::from_ref(here).addr(),
            entry: entry.addr(),
        };
        Self {
            before: MARK.replace(mark),
        }
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        MARK.set(self.before);
    }
}

/// Where the call came from that this thread is in; `None`: it is in none, or a frame on the way cannot be walked over.
pub(super) fn calling() -> Option<*mut c_void> {
    let mut walk = Walk {
        mark: MARK.get(),
        found: null_mut(),
    };
    if walk.mark.frame == 0 {
        return None;
    }
    // SAFETY: `step` has the type that is asked for, and gets the pointer that lives here.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    (!walk.found.is_null()).then_some(walk.found)
}

struct Walk {
    mark: Mark,
    found: *mut c_void,
}

extern "C" fn step(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: `calling` handed over the one, which nobody else uses meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the unwinder's own frame, inside its callback.
    let pointer = unsafe { _Unwind_GetCFA(frame) };
    // SAFETY: the same.
    let start = unsafe { _Unwind_GetRegionStart(frame) };
    // SAFETY: the same.
    let address = unsafe { _Unwind_GetIP(frame) };
    // The stack grows down: frames of callers lie above the mark.
    if pointer <= walk.mark.frame || start == walk.mark.entry {
        return GO_ON;
    }
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
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetRegionStart(frame: *mut c_void) -> usize;
}
