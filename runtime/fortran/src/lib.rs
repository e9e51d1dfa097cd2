// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librmpi_fortran.so`: MPI for Fortran, on top of MPI's public C functions (MPI 5.0 chapter 19).
//!
//! ```text
//! a Fortran program:  include 'mpif.h'   use mpi     use mpi_f08
//!                            \             |             |
//! linker names:           mpi_send_    mpi_send_    mpi_send_f08_, mpi_send_c_f08_   (weak; each with a strong pmpi_...)
//!                                \         |         /
//! this library:            one body: arguments as C has them
//!                                      |
//! libmpi_abi.so.1:                  MPI_Send   (so tools for C see the calls of Fortran, once)
//! ```
//!
//! All three methods pass the same machine words: a handle is an `INTEGER` (by itself, or as the only component of a
//! type like `TYPE(MPI_Comm)`), a status is eight `INTEGER`s, a choice buffer is an address, an absent `IERROR` is a
//! null address. So one body implements a function for all three methods, under each method's name.
//!
//! Assumptions beyond the standard's C interface: handles are numbers that fit into an `INTEGER` (`MPI_Comm_toint`
//! returns the handle's value). This is true for this library. A `LOGICAL` is false if it is 0, and is written as 0 or
//! 1, which every compiler on Linux treats as false and true.
//!
//! # Safety
//! The Fortran program must comply with MPI 5.0 for its arguments. The types of the entry points' parameters (`arg`)
//! express that: an `arg::InAddress` is the address of a value that may be read while the call runs; an
//! `arg::OutAddress` is the address of a value that may be read and written. If the argument is an array, the address
//! is that of as many values as the call uses. This is rule **F**. Only a Fortran call makes such a value; no code here
//! does.
//!
//! **Knows** the C functions it calls (`gen/c.rs`).
//! **Never** accesses internals of the MPI library, and never keeps an argument's address beyond the call. Exceptions
//! are the buffers and procedures that MPI uses after the call, such as the buffer of a nonblocking operation, or a
//! callback.
#![allow(
    unsafe_code,
    reason = "this is where Fortran enters, and where C is called"
)]
#![cfg_attr(
    test,
    allow(
        dead_code,
        unused_macros,
        reason = "unit tests have no MPI library, so that what calls it is not compiled"
    )
)]

mod arg;
#[cfg(not(test))]
mod attribute;
#[cfg(not(test))]
mod by_hand;
mod common;
#[cfg(not(test))]
mod grequest;
mod text;

/// The C functions.
#[cfg(not(test))]
#[path = "../gen/c.rs"]
mod c;
/// The entry points.
#[cfg(not(test))]
#[path = "../gen/procedures.rs"]
mod procedures;

/// Defines the names of one body: the strong name under which it is compiled, a second strong name, and the weak names
/// that tools may define instead (MPI 5.0 section 15.2.1).
macro_rules! names {
    ($strong:literal: $($weak:literal = $of:literal),*) => {
        core::arch::global_asm!($(
            concat!(".ifnc ", $of, ",", $strong),
            concat!(".globl ", $of),
            concat!(".set ", $of, ", ", $strong),
            ".endif",
            concat!(".weak ", $weak),
            concat!(".set ", $weak, ", ", $strong),
        )*);
    };
}
#[cfg(not(test))]
use names;

#[cfg(all(not(test), not(doc), not(panic = "abort")))]
compile_error!("a panic must not unwind into Fortran: build with panic = \"abort\"");
