// SPDX-License-Identifier: MIT OR Apache-2.0
//! The static library from which `libmpi_abi.so.1` and `libmpi_abi.a` are made. The code is in `mpi-abi`. `cargo xtask
//! install` links the shared library with the C compiler, to set the soname and the version script.
//!
//! **Knows** `mpi-abi`.
//! **Never** contains code.

pub use mpi_abi::entry;

#[cfg(all(not(test), not(doc), not(panic = "abort")))]
compile_error!("a panic must not unwind into C: build with panic = \"abort\"");
