// SPDX-License-Identifier: MIT OR Apache-2.0
//! The message queue interface of debuggers (MQS): `librmpi_mqs.so`, which a debugger loads to list the pending operations
//! of a stopped rank.
//!
//! | module        | what it is |
//! |---------------|------------------------------------------------------------------------------|
//! | [`interface`] | the C types that debugger and library share, as in `include/mpi_interface.h` |
//! | [`entry`]     | the functions that the debugger calls |
//! | [`image`]     | the target's memory, its anchor and its layout table |
//! | [`walk`]      | communicators and operations of the target |
//! | [`calls`]     | blocking calls, and the operations that they wait for |
//! | [`types`]     | the datatypes of operations |
//! | [`show`]      | an operation as an `mqs_pending_operation`, with its `extra_text` |
//! | [`list`]      | lists in memory from the debugger's allocator |
//! | [`order`]     | sorting without a panic |
//!
//! **Knows** the crate `queue-layout` and the debugger's callbacks.
//! **Never** panics or prints, and never follows a linked list of the target. It allocates only through the debugger's
//! callbacks. Every number read from the target is bounded, and memory that cannot be read is an error, not a zero.
//!
//! # Threads
//! All state is attached to the debugger's images and processes, except the address of the debugger's table of basic
//! callbacks. At most one thread at a time may call functions for one process.
#![no_std]

pub mod calls;
pub mod entry;
pub mod image;
pub mod interface;
pub mod list;
pub mod order;
pub mod show;
pub mod types;
pub mod walk;
