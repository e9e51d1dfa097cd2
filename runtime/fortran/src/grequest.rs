// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generalized requests: C calls the functions here, which call the program's procedures (MPI 5.0 section 13.2).
//!
//! # Safety
//! Rule F (`lib.rs`) for arguments from Fortran. A state that C passes back is one that [`start`] passed to C; [`free`]
//! is the last callback that gets it.

use core::ffi::{c_int, c_void};

use crate::arg::{CHandle, FortranHandle, FortranStatus, Ierror, InAddress, OutAddress};
use crate::names;

type Query = unsafe extern "C" fn(*mut isize, *mut [c_int; 8], *mut c_int);
type Free = unsafe extern "C" fn(*mut isize, *mut c_int);
type Cancel = unsafe extern "C" fn(*mut isize, *const c_int, *mut c_int);

/// The program's arguments of `MPI_Grequest_start`. C stores the address of this structure as the extra state, and
/// passes it to the callbacks; `free` is the last callback.
struct FortranGrequest {
    query: Query,
    free: Free,
    cancel: Cancel,
    /// Allocated separately, since the program's procedures may write it.
    extra_state: *mut isize,
}

/// Frees a state.
///
/// # Safety
/// `start` made it, and it is not used any more.
unsafe fn discard(state: *mut FortranGrequest) {
    // SAFETY: made by `start`.
    let request = unsafe { Box::from_raw(state) };
    // SAFETY: `start` made this box too.
    drop(unsafe { Box::from_raw(request.extra_state) });
}

unsafe extern "C" {
    fn MPI_Grequest_start(
        query: extern "C" fn(*mut c_void, *mut [c_int; 8]) -> c_int,
        free: extern "C" fn(*mut c_void) -> c_int,
        cancel: extern "C" fn(*mut c_void, c_int) -> c_int,
        extra_state: *mut c_void,
        request: *mut CHandle,
    ) -> c_int;
}

/// The request of an extra state. The reference is shared because a query and a cancellation may run concurrently; how
/// the program's procedures then access the extra state is the program's responsibility.
fn of<'call>(state: *mut c_void) -> &'call FortranGrequest {
    // SAFETY: C passes back the state from `start`; `free` is the last callback that gets it.
    unsafe { &*state.cast::<FortranGrequest>() }
}

extern "C" fn query(state: *mut c_void, status: *mut [c_int; 8]) -> c_int {
    let request = of(state);
    let mut code = 0;
    // SAFETY: the program's procedure, with the arguments of section 13.2.
    unsafe { (request.query)(request.extra_state, status, &raw mut code) };
    code
}

extern "C" fn free(state: *mut c_void) -> c_int {
    let request = of(state);
    let mut code = 0;
    // SAFETY: the program's procedure, with the arguments of section 13.2.
    unsafe { (request.free)(request.extra_state, &raw mut code) };
    // SAFETY: made by `start`; C calls `free` once, as the last callback.
    unsafe { discard(state.cast::<FortranGrequest>()) };
    code
}

extern "C" fn cancel(state: *mut c_void, complete: c_int) -> c_int {
    let request = of(state);
    let mut code = 0;
    let complete = c_int::from(complete != 0);
    // SAFETY: the program's procedure, with the arguments of section 13.2.
    unsafe {
        (request.cancel)(request.extra_state, &raw const complete, &raw mut code);
    }
    code
}

/// `MPI_Grequest_start`, MPI 5.0 section 13.2.
#[unsafe(export_name = "pmpi_grequest_start_")]
extern "C" fn start(
    query_fn: Query,
    free_fn: Free,
    cancel_fn: Cancel,
    extra_state: InAddress<isize>,
    request: OutAddress<FortranHandle>,
    ierror: Ierror,
) {
    let state = Box::into_raw(Box::new(FortranGrequest {
        query: query_fn,
        free: free_fn,
        cancel: cancel_fn,
        extra_state: Box::into_raw(Box::new(extra_state.get())),
    }));
    let mut handle = request.handle();
    // SAFETY: the callbacks get the state, which exists until `free`.
    let code = unsafe { MPI_Grequest_start(query, free, cancel, state.cast(), &raw mut handle) };
    if code == 0 {
        request.set_handle(handle);
    } else {
        // SAFETY: the request was not made, so C has not stored the state.
        unsafe { discard(state) };
    }
    ierror.set(code);
}
names!("pmpi_grequest_start_": "mpi_grequest_start_" = "pmpi_grequest_start_", "mpi_grequest_start_f08_" = "pmpi_grequest_start_f08_");

/// `MPI_Status_f2f08`: statuses of both kinds have the same layout (MPI 5.0 section 19.3.5).
#[unsafe(export_name = "pmpi_status_f2f08_")]
extern "C" fn status_f2f08(from: FortranStatus, to: FortranStatus, ierror: Ierror) {
    copy(from, to);
    ierror.set(0);
}
names!("pmpi_status_f2f08_": "mpi_status_f2f08_" = "pmpi_status_f2f08_", "mpi_status_f2f08_f08_" = "pmpi_status_f2f08_f08_");

/// `MPI_Status_f082f`: statuses of both kinds have the same layout (MPI 5.0 section 19.3.5).
#[unsafe(export_name = "pmpi_status_f082f_")]
extern "C" fn status_f082f(from: FortranStatus, to: FortranStatus, ierror: Ierror) {
    copy(from, to);
    ierror.set(0);
}
names!("pmpi_status_f082f_": "mpi_status_f082f_" = "pmpi_status_f082f_", "mpi_status_f082f_f08_" = "pmpi_status_f082f_f08_");

fn copy(from: FortranStatus, to: FortranStatus) {
    let (from, to) = (from.get(), to.get());
    if !from.is_null() && !to.is_null() {
        // SAFETY: rule F: a status that may be read, and one that may be written; they may be the same.
        unsafe { core::ptr::copy(from, to, 1) };
    }
}
