// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, output, and the library's version. The printing functions are in `print.c`, since they are variadic.
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
use crate::status::{
    OperationOutcome, QmpFailure, QmpStatus, TEXTS, last_outcome, record, status_text,
};

/// The prefix of printed lines: the node, the number of nodes, and the host.
pub fn prefix() -> CString {
    let known = state::visit(|state| state.prefix.clone());
    known.unwrap_or_else(|| c"QMP".to_owned())
}

/// Prints an error line with one write.
pub fn print_error(text: &str) {
    let line = format!("{} error: {text}\n", prefix().to_string_lossy());
    // A closed stderr is not an error.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes the prefix for `print.c`, truncated to `room` bytes.
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

/// `QMP_error_string`: the text of any number, whether it is a code of QMP, a code of MPI, or neither.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_error_string(code: c_int) -> *const c_char {
    status_text(QmpStatus(code))
        .unwrap_or_else(|| mpi_error_text(code))
        .as_ptr()
}

fn mpi_error_text(code: c_int) -> &'static CStr {
    let text = mpi::error_text(code).unwrap_or_else(|| {
        format!("{code} is no status of QMP and no error code of the MPI below it")
    });
    let text = CString::new(text).unwrap_or_default();
    TEXTS.intern(&text).unwrap_or(c"an unknown code")
}

/// Passes to `of` the outcome of the last operation of a message or, for NULL, of this thread.
fn outcome<R>(message: usize, of: impl Fn(&OperationOutcome) -> R) -> R {
    if message == 0 {
        return last_outcome(of);
    }
    channel::outcome(message, &of).unwrap_or_else(|failure: QmpFailure| {
        record::<()>(&Err(failure));
        last_outcome(&of)
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

/// `QMP_version_str`: the version of the libqmp whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_version_str() -> *const c_char {
    c"2.5.4".as_ptr()
}

/// `QMP_version_int`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_version_int() -> c_int {
    2_005_004
}
