// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for messages: from where the other nodes of the host reach it directly.
//!
//! # Safety
//! Every address that is given back here was given out here and not since: the table of handles says so.
#![allow(unsafe_code, reason = "gives the program's memory back")]

use core::ffi::c_void;

use crate::mpi;
use crate::state;
use crate::status::{QmpFailure, QmpStatus, Result};

/// Memory that was given out.
#[derive(Debug)]
pub struct AllocatedMemory {
    whole: *mut c_void,
    aligned: *mut c_void,
}

/// `QMP_allocate_aligned_memory`: the handle. Any number may be the alignment, as in today's library; 0 is none.
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

/// Bytes to ask for, so that as many as are wanted lie behind the first multiple of `alignment`: MPI's memory lies on a page,
/// where what divides a page has nothing to add.
fn with_spare(bytes: usize, alignment: usize) -> Option<usize> {
    let is_met = PAGE.is_multiple_of(alignment);
    bytes.checked_add(if is_met { 0 } else { alignment })
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

fn none(handle: usize) -> QmpFailure {
    let text = format!("{handle:#x} is no memory of QMP_allocate_memory, or was freed");
    QmpFailure::new(QmpStatus::BAD_MEMORY, text)
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_divide_a_page_needs_room_to_move() {
        assert_eq!(with_spare(10, 1), Some(10));
        assert_eq!(with_spare(10, 64), Some(10));
        assert_eq!(with_spare(10, PAGE), Some(10));
        assert_eq!(with_spare(10, 48), Some(58));
        assert_eq!(with_spare(10, 2 * PAGE), Some(10 + 2 * PAGE));
        assert_eq!(with_spare(10, usize::MAX), None);
    }
}
