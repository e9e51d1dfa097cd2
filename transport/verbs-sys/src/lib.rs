// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bindings to rdma-core's `libibverbs`, as far as this project uses it: its types, its constants, and its functions,
//! which are looked up at run time. So programs built with this crate also run on hosts without RDMA packages.
//!
//! **Knows** the C interface of `infiniband/verbs.h`, under its C names, and how the dynamic linker finds a function.
//! **Never** adds behavior: there are no retries, no defaults and no state. rdma-core's manual pages describe the
//! calls.
//!
//! # Three kinds of calls
//! - Functions of the library: fields of [`VerbsFunctions`], which [`VerbsFunctions::load`] fills.
//! - Calls that the C header defines inline, which use the table in each context: the functions of [`inline`].
//! - Macros of the C header that call other functions: the caller writes out their expansion.
//!
//! # The binary interface
//! This crate has only types whose layout rdma-core has kept since symbol version 1.1. `tests/layout.txt` contains
//! every offset and every constant as a C compiler computes them from the header, and a test compares the bindings with
//! that file.
//!
//! # Threads
//! As in libibverbs, any thread may make any call, and several threads may use the same object at the same time. Only
//! the destruction of an object must not be concurrent with other calls for it.
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
