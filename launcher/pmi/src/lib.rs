// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMI-1 and PMI-2, the protocols between the processes of an MPI program and the launcher that started them: rank and
//! size, a store of key-value pairs, and a fence after which all pairs can be read. Slurm (`srun --mpi=pmi2`), MPICH's
//! and Intel's `mpiexec` and Flux support one or both protocols. The socket is inherited, with its descriptor in the
//! variable `PMI_FD`, or listens at the address in `PMI_PORT`.
//!
//! **Knows** messages ([`PmiMessage`]), the client side ([`Client`]) and, for PMI-1, the server side
//! ([`ClientSession`]).
//! **Never** reads the environment, or opens a descriptor.
//!
//! # Messages
//! A PMI-1 message is a line of `key=value` words; a PMI-2 message is its length in six characters, followed by
//! `key=value;` pairs. The first pair is the command. Replies differ between servers and between versions of a server:
//! pairs come in any order, `rc=0` may be missing, and some servers add pairs of their own. Unknown pairs are skipped.
//!
//! Servers truncate values at blanks, at semicolons and at undocumented lengths; some crash. [`Client::put`] rejects
//! blanks, semicolons and other such characters, and splits long values.
//!
//! Threads: a client belongs to one thread at a time. Units: bytes.
#![forbid(unsafe_code)]

mod client;
mod error;
mod message;
mod server;

pub use client::{Client, Version};
pub use error::Error;
pub use message::PmiMessage;
pub use server::{ClientRequest, ClientSession, ProcessInfo};
