// SPDX-License-Identifier: MIT OR Apache-2.0
//! The static library behind `libmpi_abi.so.1` and `libmpi_abi.a`: everything is in `mpi-abi`. `cargo xtask install` links
//! the shared one from it, with the C compiler, because only so the soname and the version script are ours.
//!
//! **Knows** `mpi-abi`. **Never** holds code.

pub use mpi_abi::entry;

#[cfg(all(not(test), not(doc), not(panic = "abort")))]
compile_error!("a panic must not unwind into C: build with panic = \"abort\"");
