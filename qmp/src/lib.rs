// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP, the message passing interface of lattice QCD codes, for programs in C and C++: `libqmp.so`.
//!
//! | module                                          | what it is |
//! |-------------------------------------------------|-----|
//! | [`entry`]                                       | the functions of `qmp.h`: conversion of C values, status codes |
//! | [`machine`], [`geometry`], [`command_line`]     | nodes, communicators, topologies, the layout of a lattice |
//! | [`channel`], [`memory`]                         | declared memory, declared messages; memory allocation |
//! | [`global`]                                      | sums, reductions, broadcasts |
//! | [`gate`], [`mpi`]                               | bindings to the MPI library: gated channels, and MPI |
//! | [`state`], [`handle`], [`status`], [`settings`] | global state; handles; status codes and errors; the environment |
//!
//! Handles are numbers, not pointers. A call returns its first error as its status; `QMP_get_error_string` returns the text.
//!
//! **Knows** QMP's names and rules, and `libmpi_abi.so.1` through its C interface.
//! **Never** embeds the runtime, moves a byte of a message itself, or waits: the MPI library does all this. So a
//! process has one MPI, and messages of both interfaces make progress together.
//!
//! # Threads
//! Below `QMP_THREAD_MULTIPLE` there is no lock. At `QMP_THREAD_MULTIPLE` a lock guards the tables; it is not held
//! during a call of MPI that waits or calls the program.

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
