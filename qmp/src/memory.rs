// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for messages: from where the other nodes of the host reach it directly.
//!
//! # Safety
//! Every address that is given back here was given out here and not since: the table of handles says so.
#![allow(unsafe_code, reason = "gives the program's memory back")]

use core::ffi::c_void;

use crate::mpi;
use crate::state;
use crate::status::{Failure, Result, Status};

/// Memory that was given out.
#[derive(Debug)]
pub struct Memory {
    whole: *mut c_void,
    aligned: *mut c_void,
}

/// `QMP_allocate_aligned_memory`: the handle.
pub fn allocate(bytes: usize, alignment: usize) -> Result<usize> {
    state::running(|_| Ok(()))?;
    let alignment = alignment.max(1);
    if !alignment.is_power_of_two() {
        let text = format!("an alignment of {alignment} was given, expected a power of two");
        return Err(Failure::new(Status::INVALID_ARG, text));
    }
    let no_memory = || {
        Failure::new(
            Status::NOMEM_ERR,
            format!("there is no memory of {bytes} bytes"),
        )
    };
    // What MPI gives lies on a page; for less there is nothing to add.
    let spare = if alignment > PAGE { alignment } else { 0 };
    let all = bytes.max(1).checked_add(spare).ok_or_else(no_memory)?;
    let whole = mpi::allocate(all).map_err(|_| no_memory())?;
    let aligned = whole.wrapping_byte_add(whole.addr().next_multiple_of(alignment) - whole.addr());
    state::running(|state| {
        state
            .memories
            .insert(Memory { whole, aligned })
            .ok_or_else(no_memory)
    })
}

/// `QMP_get_memory_pointer`
pub fn pointer(handle: usize) -> Result<*mut c_void> {
    state::running(|state| {
        let memory = state.memories.get(handle);
        memory
            .map(|memory| memory.aligned)
            .ok_or_else(|| none(handle))
    })
}

/// `QMP_free_memory`
pub fn free(handle: usize) -> Result<()> {
    let memory = state::running(|state| state.memories.remove(handle).ok_or_else(|| none(handle)))?;
    // SAFETY: given out by `allocate`, and this was the last to know it; the program is done with it by calling this.
    unsafe { mpi::deallocate(memory.whole) }
}

fn none(handle: usize) -> Failure {
    let text = format!("{handle:#x} is no memory of QMP_allocate_memory, or was freed");
    Failure::new(Status::BAD_MEMORY, text)
}

const PAGE: usize = 4096;
