// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP, the message passing interface of lattice QCD, for programs in C and C++: `libqmp.so`.
//!
//! | module | what it is |
//! |---|---|
//! | [`entry`] | the functions of `qmp.h`: C values become Rust values, errors become status codes |
//! | [`machine`], [`geometry`], [`command_line`] | nodes, communicators, topologies, the layout of a lattice |
//! | [`channel`], [`memory`] | declared memory, declared messages |
//! | [`global`] | sums, reductions, broadcasts |
//! | [`gate`], [`mpi`] | the two faces of the MPI library: gated channels, and MPI |
//! | [`state`], [`handle`], [`status`], [`settings`] | what is kept; handles; errors; the environment |
//!
//! Handles are numbers in the place of pointers. The first error of a call leaves as its status, and its words can be asked.
//!
//! **Knows** QMP's names and rules, and `libmpi_abi.so.1` through its C interface.
//! **Never** embeds the runtime, moves a byte of a message itself, or waits: the MPI library does, so that there is one MPI in
//! a process and messages of both kinds make progress together.
//!
//! # Threads
//! Below `QMP_THREAD_MULTIPLE` there is no lock. At that level a lock guards the tables, and is never held over a call of MPI.

pub mod channel;
pub mod command_line;
pub mod entry;
pub mod gate;
pub mod geometry;
pub mod global;
pub mod handle;
pub mod machine;
pub mod memory;
pub mod mpi;
pub mod settings;
pub mod state;
pub mod status;

#[cfg(all(not(test), not(doc), not(panic = "abort")))]
compile_error!("a panic must not unwind into C: build with panic = \"abort\"");
