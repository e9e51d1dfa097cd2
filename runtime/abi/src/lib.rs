// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface of rmpi: the 664 functions of the MPI 5.0 standard ABI.
//!
//! From `mpi.api`, `qmpi.order` and the tables in `standard`, `cargo xtask codegen` generates the files in `gen`: the
//! entry points ([`entry`]), the constants ([`c`]), the callback types ([`callback`]), the table of functions for tools
//! (`qmpi_table.rs`), the headers `mpi.h` and `qmpi.h`, `calls.h` (the functions that `rmpiexec --stats-calls` times),
//! the version script and `coverage.md`. Written by hand are the bodies, in one module or several for each chapter of
//! the standard, and the modules that the bodies share:
//!
//! | module                                     | what it is |
//! |--------------------------------------------|-----|
//! | [`args`]                                   | conversion of each kind of parameter: bodies read and write the program's parameters through its types |
//! | [`handle`], [`registry`]                   | handle numbers; the slot map of the objects |
//! | [`rows`], [`type_rows`], [`group_rows`]    | the debugger's tables of datatypes and groups |
//! | [`datatype_table`]                         | size, alignment, name and arithmetic class of the predefined datatypes |
//! | [`error`], [`error_added`], [`errhandler`] | errors with class and text; those added by the program; error handlers |
//! | [`mod@enter`]                              | the frame around every body: check of the phase, lock, body, error handler |
//! | [`qmpi`]                                   | the stack of tools that intercept calls |
//! | [`tool`]                                   | shared by the functions of the tool information interface (MPI_T) |
//! | [`process`]                                | the phase, identity and end of this process |
//!
//! **Knows** C pointers, handle numbers, error handlers and MPI's names. Bodies convert them to calls of the runtime.
//! **Never** moves a byte of a message: the runtime does.
//!
//! # Threads
//! Below `MPI_THREAD_MULTIPLE` there is no lock; the program ensures that one thread at a time calls MPI. At
//! `MPI_THREAD_MULTIPLE` [`enter::enter`] holds [`lock`] while a body runs. A body that sleeps, or calls a function of
//! the program, releases the lock for that time with [`lock::without`]. Functions marked `any-time` in the table run
//! without the lock and guard shared data themselves. If only one thread calls MPI, it usually takes the lock with two
//! stores, and can use the express lane, the fast path of frequent calls (`express_shared`).
#![allow(
    clippy::too_many_arguments,
    reason = "the standard's functions have up to thirteen"
)]

pub mod anchor;
pub mod args;
mod at_exit;
pub mod attr;
pub mod buffer;
#[path = "../gen/constants.rs"]
pub mod c;
#[path = "../gen/callback.rs"]
pub mod callback;
pub mod channel;
mod clock;
pub mod coll;
pub mod comm;
mod comm_agree;
mod comm_context;
pub mod comm_hints;
pub mod comm_idup;
pub mod comm_inter;
pub mod comm_kinds;
pub mod comm_make;
pub mod datatype;
pub mod datatype_contents;
pub mod datatype_find;
pub mod datatype_make;
pub mod datatype_table;
pub mod dll_name;
pub mod enter;
#[path = "../gen/entry.rs"]
pub mod entry;
pub mod env;
pub mod errhandler;
pub mod error;
pub mod error_added;
pub mod express;
mod express_lanes;
pub mod express_requests;
mod express_shared;
pub mod grequest;
pub mod group;
pub mod group_rows;
pub mod handle;
pub mod info;
pub mod init;
pub mod lock;
pub mod memory;
pub mod mpir;
pub mod op;
pub mod pack;
pub mod probe;
pub mod process;
pub mod pt2pt;
pub mod qmpi;
#[path = "../gen/qmpi_table.rs"]
pub mod qmpi_table;
pub mod registry;
pub mod request;
pub mod rows;
pub mod session;
pub mod standard_abi;
pub mod state;
pub mod status;
pub mod status_fortran;
pub mod tool;
pub mod tool_category;
pub mod tool_cvar;
pub mod tool_enum;
pub mod tool_event;
pub mod tool_handles;
pub mod tool_pvar;
pub mod topo;
pub mod topo_graph;
pub mod type_rows;
