// SPDX-License-Identifier: MIT OR Apache-2.0
//! The anchor from which a debugger finds this process's requests and messages (`queue_layout::Anchor`).
//!
//! # Safety
//! Only the export of the name is unsafe: no other library defines `rmpi_debug_anchor` (`mpi.api` exports it).
#![allow(unsafe_code, reason = "an exported symbol")]

use queue_layout::Anchor;
use runtime::{Comm, Universe};

use crate::handle::{Handle, MPI_Comm};
use crate::{group_rows, type_rows};

/// The anchor. A debugger finds it by its name in the library's dynamic symbols. [`open`] fills it in.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name for C programs")]
pub static rmpi_debug_anchor: Anchor = Anchor::new();

/// Fills the anchor in when MPI is initialized. `many_threads`: whether several threads may be in MPI at a time. Slots
/// and rows keep their addresses from now on, even after `universe` is dropped.
pub fn open(universe: &Universe, many_threads: bool) {
    rmpi_debug_anchor.set_threads(many_threads);
    let chunks = universe.messages.engine().arena().chunk_table();
    let world = (universe.rank(), universe.size());
    for (comm, handle) in [
        (universe.comms.world(), MPI_Comm::WORLD),
        (universe.comms.self_comm(), MPI_Comm::SELF),
    ] {
        set_handle(&comm, handle);
    }
    rmpi_debug_anchor.show_types(type_rows::table(), &type_rows::PREDEFINED);
    rmpi_debug_anchor.show_groups(group_rows::table());
    let tables = (universe.comms.table(), universe.waiting.call_table());
    rmpi_debug_anchor.open(std::process::id(), world, chunks, tables);
}

/// Records the handle of a communicator in its row.
pub fn set_handle(comm: &Comm, handle: MPI_Comm) {
    if let Some(row) = comm.row() {
        row.set_handle(u32::try_from(handle.bits()).unwrap_or(0));
    }
}

/// Marks the anchor as finalized.
pub fn close() {
    rmpi_debug_anchor.close();
}
