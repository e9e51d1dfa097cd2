// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of `MPI_Alloc_mem` (MPI 5.0 section 9.2): if possible, memory that is shared with the other ranks of the
//! node, so that large messages need no system call.
//!
//! # Safety
//! Only memory that was allocated here is freed here, and only once: freeing removes the address from the table of
//! allocations, and an address that is not in the table is an error.
#![allow(unsafe_code, reason = "allocates for the program")]

use core::ffi::c_void;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc};

use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};

/// The origin of allocated memory.
#[derive(Clone, Copy, Debug)]
pub enum MemoryOrigin {
    /// The process's heap.
    Heap(Layout),
    /// The node's shared memory.
    Shared,
}

/// Allocates `bytes` bytes, page-aligned; NULL for zero bytes.
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
    if let Some(place) = mpi.state(|state| state.universe.messages.allocate_shared(bytes)) {
        mpi.state(|state| {
            state
                .allocations
                .insert(place.addr().get(), MemoryOrigin::Shared)
        });
        return Ok(place.as_ptr().cast());
    }
    let layout = Layout::from_size_align(bytes, 4096).map_err(|_| no_memory())?;
    // SAFETY: the size is not zero.
    let place = unsafe { alloc(layout) };
    if place.is_null() {
        return Err(no_memory());
    }
    mpi.state(|state| {
        state
            .allocations
            .insert(place.addr(), MemoryOrigin::Heap(layout))
    });
    Ok(place.cast())
}

/// Frees memory; NULL is ignored.
pub fn free(mpi: Mpi, base: *mut c_void) -> Result<()> {
    if base.is_null() {
        return Ok(());
    }
    let Some(origin) = mpi.state(|state| state.allocations.remove(&base.addr())) else {
        let detail = format!("{base:p} was not given by MPI_Alloc_mem, or is freed already");
        return Err(Error::new(ErrorClass::BASE, detail));
    };
    match origin {
        // SAFETY: the address was in the table: `allocate` allocated it with this layout, and it has not been freed
        // since.
        MemoryOrigin::Heap(layout) => unsafe { dealloc(base.cast(), layout) },
        MemoryOrigin::Shared => {
            let place = NonNull::new(base.cast());
            mpi.state(|state| {
                place.is_some_and(|place| state.universe.messages.free_shared(place))
            });
        }
    }
    Ok(())
}
