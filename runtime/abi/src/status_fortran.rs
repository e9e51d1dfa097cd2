// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fortran statuses in C (MPI 5.0 section 19.3.5): the functions like `MPI_Status_c2f`, and the variables like
//! `MPI_F_STATUS_IGNORE`.
//!
//! In the standard ABI the statuses of C, of `mpif.h` and of `use mpi_f08` have the same layout, eight integers, so
//! each function here only copies a status. The functions have no row in `mpi.api`, because they belong to Fortran;
//! QMPI tools cannot intercept them.
//!
//! # Safety
//! Obligation **F** of the program: a pointer that is not NULL points to one status, which may be read or written.
#![allow(unsafe_code, reason = "the program's statuses, and exported symbols")]

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

use crate::enter::{On, enter_any_time};
use crate::error::Error;

/// The eight integers of a status.
type Status = [c_int; 8];

macro_rules! conversion {
    ($weak:literal, $strong:literal, $function:ident, $from:literal, $to:literal) => {
        #[doc = concat!("`", $weak, "`: copies `", $from, "` to `", $to, "`.")]
        ///
        /// # Safety
        /// F.
        // SAFETY: no other symbol has this name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "a name for C programs")]
        pub unsafe extern "C" fn $function(from: *const Status, to: *mut Status) -> c_int {
            // SAFETY: F, passed on.
            unsafe { copy($weak, ($from, from), ($to, to)) }
        }
        core::arch::global_asm!(
            concat!(".weak ", $weak),
            concat!(".set ", $weak, ", ", $strong)
        );
    };
}

conversion!(
    "MPI_Status_c2f",
    "PMPI_Status_c2f",
    PMPI_Status_c2f,
    "c_status",
    "f_status"
);
conversion!(
    "MPI_Status_f2c",
    "PMPI_Status_f2c",
    PMPI_Status_f2c,
    "f_status",
    "c_status"
);
conversion!(
    "MPI_Status_c2f08",
    "PMPI_Status_c2f08",
    PMPI_Status_c2f08,
    "c_status",
    "f08_status"
);
conversion!(
    "MPI_Status_f082c",
    "PMPI_Status_f082c",
    PMPI_Status_f082c,
    "f08_status",
    "c_status"
);
conversion!(
    "MPI_Status_f2f08",
    "PMPI_Status_f2f08",
    PMPI_Status_f2f08,
    "f_status",
    "f08_status"
);
conversion!(
    "MPI_Status_f082f",
    "PMPI_Status_f082f",
    PMPI_Status_f082f,
    "f08_status",
    "f_status"
);

/// # Safety
/// F.
unsafe fn copy(
    function: &'static str,
    (from_name, from): (&str, *const Status),
    (to_name, to): (&str, *mut Status),
) -> c_int {
    enter_any_time(function, On::Nothing, || {
        if from.is_null() {
            return Err(Error::null(from_name));
        }
        if to.is_null() {
            return Err(Error::null(to_name));
        }
        // SAFETY: F, and neither pointer is NULL; they may be equal.
        unsafe { core::ptr::copy(from, to, 1) };
        Ok(())
    })
}

macro_rules! ignored {
    ($($name:ident)*) => {$(
        /// The address of the Fortran constant of this name; NULL in a program without Fortran. `librmpi_fortran.so`
        /// sets this when the loader loads it.
        // SAFETY: no other symbol has this name.
        #[used]
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "a name for C programs")]
        pub static $name: AtomicPtr<c_int> = AtomicPtr::new(null_mut());
    )*};
}

ignored!(MPI_F_STATUS_IGNORE MPI_F_STATUSES_IGNORE MPI_F08_STATUS_IGNORE MPI_F08_STATUSES_IGNORE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_conversion_to_fortran_and_back() {
        let (c, mut f, mut f08, mut back) = ([1, 2, 3, 4, 5, 6, 7, 8], [0; 8], [0; 8], [0; 8]);
        // SAFETY: F: both arrays have eight integers.
        let there = unsafe { PMPI_Status_c2f(&raw const c, &raw mut f) };
        // SAFETY: as above.
        let across = unsafe { PMPI_Status_f2f08(&raw const f, &raw mut f08) };
        // SAFETY: as above.
        let again = unsafe { PMPI_Status_f082c(&raw const f08, &raw mut back) };
        assert_eq!((there, across, again), (0, 0, 0));
        assert_eq!(back, c);
    }
}
