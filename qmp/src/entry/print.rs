// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, output, and what the library knows of itself. The functions that print are in `print.c`, since they take any number
//! of arguments.
//!
//! # Safety
//! As in [`super`].
#![allow(unsafe_code, reason = "C entry points")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one promise for all: the head of `entry`"
)]

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::io::Write as _;

use crate::channel;
use crate::mpi;
use crate::state;
use crate::status::{KEPT, OperationOutcome, QmpFailure, QmpStatus, keep, last, words};

/// Node, nodes and host, before what is printed.
pub fn prefix() -> CString {
    let known = state::visit(|state| state.prefix.clone());
    known.unwrap_or_else(|| c"QMP".to_owned())
}

/// Prints a line about an error, in one piece.
pub fn say(text: &str) {
    let line = format!("{} error: {text}\n", prefix().to_string_lossy());
    // Where stderr is closed nobody wants to know.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes the prefix for `print.c`, cut where there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qmp_prefix(to: *mut c_char, room: usize) {
    let prefix = prefix();
    let bytes = prefix.as_bytes();
    let length = bytes.len().min(room.saturating_sub(1));
    // SAFETY: `print.c` has this much room.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), length) };
    // SAFETY: as above.
    unsafe { to.wrapping_add(length).write(0) };
}

/// `QMP_error_string`: the words of any number, be it a code of QMP, one of MPI, or none.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_error_string(code: c_int) -> *const c_char {
    words(QmpStatus(code))
        .unwrap_or_else(|| words_below(code))
        .as_ptr()
}

fn words_below(code: c_int) -> &'static CStr {
    let text = mpi::error_text(code).unwrap_or_else(|| {
        format!("{code} is no status of QMP and no error code of the MPI below it")
    });
    let text = CString::new(text).unwrap_or_default();
    KEPT.keep(&text).unwrap_or(c"an unknown code")
}

/// How the last operation ended, of a message or, for NULL, of this thread.
fn outcome<R>(message: usize, of: impl Fn(&OperationOutcome) -> R) -> R {
    if message == 0 {
        return last(of);
    }
    channel::outcome(message, &of).unwrap_or_else(|failure: QmpFailure| {
        keep::<()>(&Err(failure));
        last(&of)
    })
}

/// `QMP_get_error_number`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_error_number(message: usize) -> QmpStatus {
    outcome(message, OperationOutcome::status)
}

/// `QMP_get_error_string`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_error_string(message: usize) -> *const c_char {
    outcome(message, |outcome| outcome.text().as_ptr())
}

/// `QMP_verbose`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_verbose(level: c_int) -> c_int {
    state::visit(|state| core::mem::replace(&mut state.verbose, level))
}

/// `QMP_profcontrol`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_profcontrol(level: c_int) -> c_int {
    state::visit(|state| core::mem::replace(&mut state.profiling, level))
}

/// `QMP_version_str`: the version of the interface, which is that of the libqmp it is like.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_version_str() -> *const c_char {
    c"2.5.4".as_ptr()
}

/// `QMP_version_int`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_version_int() -> c_int {
    2_005_004
}
