// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constants that Fortran knows by their addresses (MPI 5.0 section 2.5.4): variables in common blocks.
//!
//! A Fortran program has the blocks of its own, and the dynamic linker makes the library's names mean the program's: so
//! they are defined in assembly, and looked up like those of another library.
//!
//! **Never** reads or writes them.
//!
//! # Safety
//! The names are defined here, with a size; only their addresses are taken.

use core::ffi::c_void;

macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident $bytes:literal $get:ident;)*) => {
        core::arch::global_asm!($(concat!(".comm ", stringify!($name), ",", $bytes, ",16")),*);

        unsafe extern "C" {
            $(static $name: u8;)*
        }

        $($(#[$doc])*
        pub(crate) fn $get(address: *const c_void) -> bool {
            core::ptr::eq(address.cast(), &raw const $name)
        })*
    };
}

blocks! {
    /// `MPI_BOTTOM`.
    rmpi_bottom_ 4 is_bottom;
    /// `MPI_IN_PLACE`.
    rmpi_in_place_ 4 is_in_place;
    /// `MPI_BUFFER_AUTOMATIC`.
    rmpi_buffer_automatic_ 4 is_buffer_automatic;
    /// `MPI_STATUS_IGNORE`.
    rmpi_status_ignore_ 32 is_status_ignore;
    /// `MPI_STATUSES_IGNORE`.
    rmpi_statuses_ignore_ 32 is_statuses_ignore;
    /// `MPI_ERRCODES_IGNORE`.
    rmpi_errcodes_ignore_ 4 is_errcodes_ignore;
    /// `MPI_ARGV_NULL`.
    rmpi_argv_null_ 1 is_argv_null;
    /// `MPI_ARGVS_NULL`.
    rmpi_argvs_null_ 1 is_argvs_null;
    /// `MPI_UNWEIGHTED`.
    rmpi_unweighted_ 4 is_unweighted;
    /// `MPI_WEIGHTS_EMPTY`.
    rmpi_weights_empty_ 4 is_weights_empty;
}
