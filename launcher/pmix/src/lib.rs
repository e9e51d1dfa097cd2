// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMIx, the interface between the processes of an MPI program and launchers such as Slurm (`srun --mpi=pmix`) and
//! `prterun`. Its wire protocol is private to the library and changes between versions; so `libpmix.so.2`, the name
//! of versions 3 to 6, is opened when a process finds that it was started by such a launcher, and not needed
//! otherwise.
//!
//! **Knows** ten functions, and the layout of four types, which is the same in versions 4 and 5.
//! **Never** communicates with a server except through the library; reads no variables except those with the
//! library's path.
//!
//! [`Client`] has the same methods as that of crate `pmi`, so that callers can use either.
//!
//! Threads: a client belongs to one thread at a time; the library has threads of its own.
//!
//! # Safety
//! Each file states why its calls are sound; nothing unsafe is public.
#![allow(unsafe_code)]

mod client;
mod table;
mod types;

pub use client::Client;
pub use table::library;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library could be opened: the errors of the dynamic linker.
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
        /// The library's text, with its number.
        why: String,
    },
    /// The server does not report a required value.
    #[error("the launcher does not tell {0}")]
    Missing(&'static str),
}
