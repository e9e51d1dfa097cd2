// SPDX-License-Identifier: MIT OR Apache-2.0
//! rdma-core's `libibverbs`, as far as this project calls it: its types, its constants, and its functions, looked up when the
//! program runs. So whatever is built with this crate also runs where no RDMA package is installed.
//!
//! **Knows** the C interface of `infiniband/verbs.h`, under its C names, and how the dynamic linker finds a function.
//! **Never** decides anything: no retries, no defaults, no state. What the calls mean stands in rdma-core's manual pages.
//!
//! # Three kinds of calls
//! - Functions of the library: fields of [`VerbsFunctions`], which [`VerbsFunctions::load`] fills.
//! - Calls that the C header makes inline, through the table in each context: the functions of [`inline`].
//! - Macros over other functions: written out by the caller, as the C header does.
//!
//! # The binary interface
//! Only types whose layout rdma-core has kept since version 1.1 of its symbols are here; `tests/layout.txt` holds every offset
//! and every constant as a C compiler found them in the installed header, and a test compares.
//!
//! # Threads
//! As libibverbs: every call may be made from any thread, on one object by several at once, but for the destruction of it.
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
