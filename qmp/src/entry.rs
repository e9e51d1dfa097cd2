// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of `qmp.h`.
//!
//! # Safety
//! The caller passes what `qmp.h` specifies: pointers are NULL (an error if NULL has no meaning there), or point to as
//! many items as the function takes. Handles are looked up, never dereferenced.
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

use crate::mpi::ProgramMemory;
use crate::status::{QmpFailure, QmpStatus, Result, record};

/// Records a result as the outcome of the last operation, and returns the result's status.
#[inline]
fn status<T>(result: Result<T>) -> QmpStatus {
    record(&result);
    result.map_or_else(|failure| failure.status, |_| QmpStatus::SUCCESS)
}

/// Records a result as the outcome of the last operation, and returns the result's value, or `none` on an error.
fn value<T>(result: Result<T>, none: T) -> T {
    record(&result);
    result.unwrap_or(none)
}

/// Returns the value of a query, or `none` on an error; records the outcome only if it is an error.
fn query_result<T>(result: Result<T>, none: T) -> T {
    if result.is_err() {
        record(&result);
    }
    result.unwrap_or(none)
}

/// Records a result as the outcome of the last operation, and returns the result's handle for C; NULL on an error.
fn handle(result: Result<usize>) -> *mut c_void {
    core::ptr::without_provenance_mut(value(result, 0))
}

/// An array of the caller's, as a slice.
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
    // SAFETY: not NULL, and of `count` items by the head of this module.
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
unsafe fn lent<T>(base: *mut T) -> ProgramMemory {
    // SAFETY: the memory has the size that the function of `qmp.h` assumes.
    unsafe { ProgramMemory::new(base.cast()) }
}
