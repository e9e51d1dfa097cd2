// SPDX-License-Identifier: MIT OR Apache-2.0
//! Defines the constants that Fortran identifies by address (MPI 5.0 section 2.5.4): variables in common blocks.
//!
//! A Fortran program has its own definitions of the blocks, to which the dynamic linker resolves this library's
//! references. So the blocks are defined in assembly here, and accessed like variables of another library.
//!
//! C programs find the addresses of the status constants in variables of the MPI library like `MPI_F_STATUS_IGNORE`
//! (MPI 5.0 section 19.3.5). This library sets these variables when it is loaded.
//!
//! **Never** reads or writes the blocks.
//!
//! # Safety
//! The names are defined here, with a size; only their addresses are used. The variables of the MPI library are
//! pointers that only this library writes, in its constructor; if an MPI library lacks these variables, their addresses
//! are NULL.

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

core::arch::global_asm!(
    ".pushsection .data.rel.ro.rmpi_ignored, \"aw\"",
    ".balign 8",
    ".weak MPI_F_STATUS_IGNORE",
    ".weak MPI_F_STATUSES_IGNORE",
    ".weak MPI_F08_STATUS_IGNORE",
    ".weak MPI_F08_STATUSES_IGNORE",
    "rmpi_ignored:",
    ".quad MPI_F_STATUS_IGNORE, MPI_F08_STATUS_IGNORE, MPI_F_STATUSES_IGNORE, MPI_F08_STATUSES_IGNORE",
    ".popsection",
);

unsafe extern "C" {
    /// Addresses of the C variables: two for `MPI_STATUS_IGNORE`, then two for `MPI_STATUSES_IGNORE`; NULL if absent.
    static rmpi_ignored: [[*mut *const u8; 2]; 2];
}

// SAFETY: the loader runs functions of this type from that section.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = set_c_variables;

extern "C" fn set_c_variables() {
    let blocks = [
        &raw const rmpi_status_ignore_,
        &raw const rmpi_statuses_ignore_,
    ];
    // SAFETY: the table above, which is constant.
    let variables = unsafe { rmpi_ignored };
    for (block, variables) in blocks.into_iter().zip(variables) {
        for variable in variables.into_iter().filter(|it| !it.is_null()) {
            // SAFETY: a pointer of the MPI library, written only here, before any code of the program runs.
            unsafe { variable.write(block) };
        }
    }
}
