// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives (MPI 5.0 chapter 6): blocking, nonblocking and persistent.
//!
//! What a function is given becomes a `PreparedCollective`, with all handles looked up; a call is then run in one of three ways
//! (`launch.rs`), so that each collective is written once. The algorithms are the runtime's.

mod at_hand;
mod blocks;
mod data;
mod launch;
mod neighbours;
mod reduce;

pub use blocks::*;
pub(crate) use launch::{PreparedCollective, run_new_tasks, start_nonblocking, three_forms};
pub use neighbours::*;
pub use reduce::*;
