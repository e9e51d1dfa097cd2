// SPDX-License-Identifier: MIT OR Apache-2.0
//! The message queue interface of debuggers (MQS): `librmpi_mqs.so`, which a debugger loads to list the pending operations
//! of a stopped rank.
//!
//! | module | what it is |
//! |---|---|
//! | [`interface`] | the C types that debugger and library share, as in `include/mpi_interface.h` |
//! | [`entry`] | the functions that the debugger calls |
//! | [`image`] | the target's memory; where its anchor says that everything lies |
//! | [`walk`] | communicators and operations, read through that |
//! | [`calls`] | calls that wait, and what for |
//! | [`types`] | the datatypes that operations name |
//! | [`show`] | an operation as the interface wants it, and in words |
//! | [`list`] | lists in memory that the debugger gives |
//! | [`order`] | sorting without a panic |
//!
//! **Knows** the crate `queue-layout` and the debugger's callbacks.
//! **Never** panics, prints, allocates but through the debugger's table, follows a link of the target, or believes a number
//! that it read there: each is bounded, and what cannot be read is an error, not a zero.
//!
//! # Threads
//! All state is in what the debugger keeps with its images and processes, but for the address of its table of basic
//! callbacks. One thread at a time may ask about one process.
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
