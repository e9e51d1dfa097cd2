// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMIx, the interface between the processes of an MPI program and launchers such as Slurm (`srun --mpi=pmix`) and `prterun`. What goes
//! over the wire is private to the library and changes between its versions; so `libpmix.so.2`, which versions 3 to 6 have as their
//! name, is opened when a process finds that it was started by such a launcher, and not needed otherwise.
//!
//! **Knows** ten functions, and the layout of four types, which is the same in versions 4 and 5.
//! **Never** speaks to a server but through the library; reads no variable but those that say where the library may be.
//!
//! [`Client`] has the same methods as that of crate `pmi`, so that who uses them need not know which of the two it is.
//!
//! Threads: a client belongs to one thread at a time; the library has threads of its own.
//!
//! # Safety
//! Each file says by which rules its calls are right; nothing unsafe is public.
#![allow(unsafe_code)]

mod client;
mod table;
mod types;

pub use client::Client;
pub use table::library;

/// Why something could not be asked or said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library could be opened: what the dynamic linker says of each place.
    #[error(
        "PMIX_NAMESPACE is set, so a launcher with PMIx has started this process, but its library cannot be used: {0}; \
         RMPI_PMIX_LIBRARY may name it"
    )]
    Library(String),
    /// A function failed.
    #[error("{function} failed: {why}")]
    Call {
        /// The function.
        function: &'static str,
        /// In the library's words, with its number.
        why: String,
    },
    /// The server does not tell what it must.
    #[error("the launcher does not tell {0}")]
    Untold(&'static str),
}
