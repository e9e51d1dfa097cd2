// SPDX-License-Identifier: MIT OR Apache-2.0
//! rdma-core's `libibverbs`, as far as this project uses it: its types, its constants, and its functions, looked up at
//! run time. So programs built with this crate also run where no RDMA package is installed.
//!
//! **Knows** the C interface of `infiniband/verbs.h`, under its C names, and how the dynamic linker finds a function.
//! **Never** decides anything: no retries, no defaults, no state. rdma-core's manual pages describe the calls.
//!
//! # Three kinds of calls
//! - Functions of the library: fields of [`VerbsFunctions`], which [`VerbsFunctions::load`] fills.
//! - Calls that the C header defines inline, through the table in each context: the functions of [`inline`].
//! - Macros over other functions: expanded by the caller, as in the C header.
//!
//! # The binary interface
//! Only types whose layout rdma-core has kept since symbol version 1.1 are here; `tests/layout.txt` contains every
//! offset and every constant as a C compiler computes them from the installed header, and a test compares.
//!
//! # Threads
//! As in libibverbs: every call may be made from any thread, on one object by several at the same time, except its
//! destruction.
#![allow(
    non_camel_case_types,
    reason = "these are the names that rdma-core's manual pages have"
)]

pub mod inline;
mod numbers;
mod table;
mod types;

pub use numbers::*;
pub use table::{LoadError, VerbsFunctions};
pub use types::*;
