// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of `qmp.h`.
//!
//! # Safety
//! The caller hands over what `qmp.h` says: pointers are NULL, which is an error where it has no meaning, or lead to as many
//! items as the function takes. Handles are looked up and never followed.
#![allow(unsafe_code, reason = "C entry points")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one promise for all: the head of this module"
)]

pub mod global;
pub mod machine;
pub mod message;
pub mod print;
pub mod topology;

use core::ffi::c_void;

use crate::mpi::LentMemory;
use crate::status::{QmpFailure, QmpStatus, Result, keep};

/// A status for C, kept as that of the last operation.
#[inline]
fn status<T>(result: Result<T>) -> QmpStatus {
    keep(&result);
    result.map_or_else(|failure| failure.status, |_| QmpStatus::SUCCESS)
}

/// A value for C, or what stands for none; the status is kept as that of the last operation.
fn value<T>(result: Result<T>, none: T) -> T {
    keep(&result);
    result.unwrap_or(none)
}

/// The answer to a question, or what stands for none; only an error is kept.
fn answer<T>(result: Result<T>, none: T) -> T {
    if result.is_err() {
        keep(&result);
    }
    result.unwrap_or(none)
}

/// A handle for C: NULL where there is none.
fn handle(result: Result<usize>) -> *mut c_void {
    core::ptr::without_provenance_mut(value(result, 0))
}

/// An array of the caller's.
unsafe fn array<'a, T>(base: *const T, length: i32) -> Result<&'a [T]> {
    let wrong = |text: String| QmpFailure::new(QmpStatus::INVALID_ARG, text);
    let count = usize::try_from(length)
        .map_err(|_| wrong(format!("an array of {length} items was given")))?;
    if count == 0 {
        return Ok(&[]);
    }
    if base.is_null() {
        return Err(wrong(format!(
            "NULL was given for an array of {length} items"
        )));
    }
    // SAFETY: not NULL, and of as many items as the caller says.
    Ok(unsafe { core::slice::from_raw_parts(base, count) })
}

/// Writes through a pointer of the caller's.
unsafe fn write<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(QmpFailure::new(
            QmpStatus::INVALID_ARG,
            "NULL was given where a result is written",
        ));
    }
    // SAFETY: not NULL, and for one item by the head of this module.
    unsafe { to.write(value) };
    Ok(())
}

/// Memory of the caller's.
unsafe fn lent<T>(base: *mut T) -> LentMemory {
    // SAFETY: as large as the function of `qmp.h` takes it to be.
    unsafe { LentMemory::new(base.cast()) }
}
