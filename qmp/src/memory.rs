// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocates memory for messages by `MPI_Alloc_mem`: if possible, other nodes of the host can access it directly.
//!
//! # Safety
//! Every address that is freed here was allocated here and is freed once: the table of handles ensures that.
#![allow(unsafe_code, reason = "frees the program's memory")]

use core::ffi::c_void;

use crate::mpi;
use crate::state;
use crate::status::{QmpFailure, QmpStatus, Result};

/// Allocated memory.
#[derive(Debug)]
pub struct AllocatedMemory {
    whole: *mut c_void,
    aligned: *mut c_void,
}

/// `QMP_allocate_aligned_memory`; returns the handle. Any number is a valid alignment, as in libqmp; 0 means no
/// alignment.
pub fn allocate(bytes: usize, alignment: usize) -> Result<usize> {
    state::running(|_| Ok(()))?;
    let no_memory = || {
        let text = format!("there is no memory of {bytes} bytes at a multiple of {alignment}");
        QmpFailure::new(QmpStatus::NOMEM_ERR, text)
    };
    let alignment = alignment.max(1);
    let all = with_spare(bytes.max(1), alignment).ok_or_else(no_memory)?;
    let whole = mpi::allocate(all).map_err(|_| no_memory())?;
    let aligned = whole.map_addr(|address| address.next_multiple_of(alignment));
    state::running(|state| {
        state
            .memories
            .insert(AllocatedMemory { whole, aligned })
            .ok_or_else(no_memory)
    })
}

/// Number of bytes to allocate so that `bytes` bytes follow the first multiple of `alignment`. MPI's memory is
/// page-aligned, so a divisor of the page size needs no spare bytes.
fn with_spare(bytes: usize, alignment: usize) -> Option<usize> {
    let is_page_aligned = PAGE.is_multiple_of(alignment);
    bytes.checked_add(if is_page_aligned { 0 } else { alignment })
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
    // SAFETY: from `allocate`, and its handle was just removed; by this call the program gives up its use.
    unsafe { mpi::deallocate(memory.whole) }
}

fn none(handle: usize) -> QmpFailure {
    let text = format!("{handle:#x} is no memory of QMP_allocate_memory, or was freed");
    QmpFailure::new(QmpStatus::BAD_MEMORY, text)
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_that_do_not_divide_a_page_need_spare_bytes() {
        assert_eq!(with_spare(10, 1), Some(10));
        assert_eq!(with_spare(10, 64), Some(10));
        assert_eq!(with_spare(10, PAGE), Some(10));
        assert_eq!(with_spare(10, 48), Some(58));
        assert_eq!(with_spare(10, 2 * PAGE), Some(10 + 2 * PAGE));
        assert_eq!(with_spare(10, usize::MAX), None);
    }
}
