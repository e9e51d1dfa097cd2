// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the program gets from the library (MPI 5.0 section 9.2).
//!
//! # Safety
//! Every address that is freed here was given out here and not freed since: the table of allocations says so, and an
//! address that is not in it is an error.
#![allow(unsafe_code, reason = "allocates for the program")]

use core::ffi::c_void;
use std::alloc::{Layout, alloc, dealloc};

use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};

/// Memory of `bytes` bytes, aligned to a page; NULL for none.
pub fn allocate(mpi: Mpi, bytes: usize) -> Result<*mut c_void> {
    let no_memory = || {
        Error::new(
            ErrorClass::NO_MEM,
            format!("there is no memory of {bytes} bytes"),
        )
    };
    if bytes == 0 {
        return Ok(core::ptr::null_mut());
    }
    let layout = Layout::from_size_align(bytes, 4096).map_err(|_| no_memory())?;
    // SAFETY: the size is not zero.
    let place = unsafe { alloc(layout) };
    if place.is_null() {
        return Err(no_memory());
    }
    mpi.state(|state| state.allocations.insert(place.addr(), layout));
    Ok(place.cast())
}

/// Gives memory back. NULL is none.
pub fn free(mpi: Mpi, base: *mut c_void) -> Result<()> {
    if base.is_null() {
        return Ok(());
    }
    let Some(layout) = mpi.state(|state| state.allocations.remove(&base.addr())) else {
        let detail = format!("{base:p} was not given by MPI_Alloc_mem, or is freed already");
        return Err(Error::new(ErrorClass::BASE, detail));
    };
    // SAFETY: given out by `allocate` with this layout and not freed since: it was in the table.
    unsafe { dealloc(base.cast(), layout) };
    Ok(())
}
