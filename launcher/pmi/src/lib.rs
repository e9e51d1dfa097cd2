// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMI-1 and PMI-2, in which the processes of an MPI program and the launcher that started them talk: who am I, how many are we, here
//! is something for the others, have all said theirs, what has that one said. Slurm (`srun --mpi=pmi2`), MPICH's and Intel's `mpiexec`
//! and Flux speak one of them or both over a socket whose descriptor is in the variable `PMI_FD`, or which is reached at `PMI_PORT`.
//!
//! **Knows** the words ([`Words`]), the side of the process ([`Client`]) and, of PMI-1, that of the launcher ([`Server`]).
//! **Never** reads the environment, or owns a descriptor that it was not handed.
//!
//! # The words
//! A PMI-1 message is a line of `key=value` words; a PMI-2 message is six characters with its length and `key=value;` pairs. The
//! first pair names the command. Answers differ between servers and their versions: words come in any order, `rc=0` is left out,
//! words are added that no other server says. What is not known is skipped.
//!
//! Servers cut values at blanks, at semicolons and at lengths that they do not tell; some break. [`Client::put`] refuses such
//! characters and splits what is long.
//!
//! Threads: a client belongs to one thread at a time. Units: bytes.
#![forbid(unsafe_code)]

mod client;
mod error;
mod server;
mod words;

pub use client::{Client, Version};
pub use error::Error;
pub use server::{Facts, Request, Server};
pub use words::Words;
