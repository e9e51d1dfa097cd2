// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives (MPI 5.0 chapter 6): blocking, nonblocking and persistent.
//!
//! The handles in the arguments of a function are looked up; the result is a `PreparedCollective`. `launch.rs` runs it
//! in one of the three forms, so each collective is written once. The algorithms are in the runtime.

mod blocks;
mod data;
mod fast_path;
mod launch;
mod neighbours;
mod reduce;

pub use blocks::*;
pub(crate) use launch::{PreparedCollective, run_new_tasks, start_nonblocking, three_forms};
pub use neighbours::*;
pub use reduce::*;
