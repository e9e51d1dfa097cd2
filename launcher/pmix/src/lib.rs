// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMIx, the interface between the processes of an MPI program and launchers such as Slurm (`srun --mpi=pmix`) and
//! `prterun`. Its wire protocol is private to the library and changes between versions; so this crate opens
//! `libpmix.so.2`, the file name of versions 3 to 6. It does that only in a process that was started by such a
//! launcher; other processes do not need the library.
//!
//! **Knows** ten functions, and the layout of four types, which is the same in versions 4 and 5.
//! **Never** communicates with a server except through the library, or reads an environment variable other than those
//! that locate the library.
//!
//! [`Client`] has methods like those of `Client` in crate `pmi`, so that callers can use either.
//!
//! Threads: a client is used by one thread at a time; the library starts threads of its own.
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
    /// A function of the library failed.
    #[error("{function} failed: {why}")]
    Call {
        /// The function.
        function: &'static str,
        /// The library's text for the status, with the number of the status.
        why: String,
    },
    /// The server does not report a required value.
    #[error("the launcher does not provide {0}")]
    Missing(&'static str),
}
