// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a debugger starts to look for this process's requests and messages.
//!
//! # Safety
//! The only unsafe thing here is the name: `rmpi_debug_anchor` belongs to this library alone (`mpi.api` exports it).
#![allow(unsafe_code, reason = "an exported symbol")]

use queue_layout::Anchor;
use runtime::Universe;

/// Found by its name, in the library's dynamic symbols; always there, filled from initialization to the end.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name for C programs")]
pub static rmpi_debug_anchor: Anchor = Anchor::new();

/// MPI is initialized. Slots and rows stay where they are from now on, whatever becomes of `universe`.
pub fn open(universe: &Universe) {
    let chunks = universe.engine().arena().chunk_table();
    let world = (universe.rank(), universe.size());
    rmpi_debug_anchor.open(std::process::id(), world, chunks, universe.comm_table());
}

/// MPI was finalized.
pub fn close() {
    rmpi_debug_anchor.close();
}
