// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements attributes (MPI 5.0 sections 7.7 and 19.3.7), which are addresses in C and integers in Fortran.
//!
//! A value that Fortran sets is stored in a cell, whose address is the attribute in C: so an attribute query in C
//! returns a pointer to the integer, as the standard requires. A value that C set is the address itself in Fortran.
//! Predefined attributes are an exception: such an attribute is a pointer to an integer in C, and that integer in
//! Fortran. Only `MPI_WIN_BASE` is an address in both. The table of cells distinguishes addresses of cells from
//! addresses that C set.
//!
//! A cell is freed when its attribute is deleted, by the delete callback in this file. A key that C made has other
//! callbacks, so a cell for such a key exists until the process ends.
//!
//! # Safety
//! Rule F (`lib.rs`) for arguments from Fortran. A state that C passes back is one that [`create`] passed to C, and is
//! never freed; an address is treated as a cell only if the table of cells has it, under its lock.

use core::ffi::{c_int, c_void};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::arg::{CHandle, FortranHandle, Ierror, InAddress, OutAddress};
use crate::names;

/// Addresses of all cells.
static CELLS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Makes a cell for a value; returns its address for C.
fn cell(value: isize) -> *mut c_void {
    let cell = Box::into_raw(Box::new(value));
    let mut cells = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
    cells.insert(cell.addr());
    cell.cast()
}

/// Frees a cell; does nothing for an address that C set.
fn discard(attribute: *mut c_void) {
    let mut cells = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
    if cells.remove(&attribute.addr()) {
        // SAFETY: the table has only cells made by `cell` and not freed since.
        drop(unsafe { Box::from_raw(attribute.cast::<isize>()) });
    }
}

/// The value in Fortran of an attribute in C.
fn value(attribute: *mut c_void) -> isize {
    let cells = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
    match cells.contains(&attribute.addr()) {
        // SAFETY: a cell, which exists while the table is locked.
        true => unsafe { *attribute.cast::<isize>() },
        false => attribute.addr().cast_signed(),
    }
}

/// The value in Fortran of a predefined attribute: the integer that it points to in C or, for `MPI_WIN_BASE`, the
/// address itself. `None` for other keys.
fn predefined(keyval: c_int, attribute: *mut c_void) -> Option<isize> {
    /// `MPI_TAG_UB` to `MPI_UNIVERSE_SIZE`.
    const OF_COMMUNICATORS: core::ops::RangeInclusive<c_int> = 501..=507;
    const WIN_BASE: c_int = 601;
    const WIN_SIZE: c_int = 603;
    /// `MPI_WIN_DISP_UNIT`, `MPI_WIN_CREATE_FLAVOR`, `MPI_WIN_MODEL`.
    const OF_WINDOWS: [c_int; 3] = [602, 604, 605];
    match keyval {
        WIN_BASE => Some(attribute.addr().cast_signed()),
        // SAFETY: the library's own attribute: the address of an `MPI_Aint`.
        WIN_SIZE => Some(unsafe { *attribute.cast::<isize>() }),
        _ if OF_COMMUNICATORS.contains(&keyval) || OF_WINDOWS.contains(&keyval) => {
            // SAFETY: the library's own attribute: the address of an `int`.
            Some(unsafe { *attribute.cast::<c_int>() } as isize)
        }
        _ => None,
    }
}

type Copy = unsafe extern "C" fn(
    *const FortranHandle,
    *const c_int,
    *mut isize,
    *mut isize,
    *mut isize,
    *mut c_int,
    *mut c_int,
);
type Delete =
    unsafe extern "C" fn(*const FortranHandle, *const c_int, *mut isize, *mut isize, *mut c_int);

type CCopy =
    extern "C" fn(CHandle, c_int, *mut c_void, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int;
type CDelete = extern "C" fn(CHandle, c_int, *mut c_void, *mut c_void) -> c_int;

/// A key's callbacks in Fortran. C may call them even after the key was freed, so this structure is never freed.
struct FortranKeyval {
    copy: Copy,
    delete: Delete,
    extra_state: isize,
    /// Whether values are default integers, as for keys from `MPI_KEYVAL_CREATE`.
    is_narrow: bool,
}

/// The value that a copy callback wrote; only its lower half, if values are default integers.
fn widened(keyval: &FortranKeyval, value: isize) -> isize {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only the lower half was written"
    )]
    let narrow = value as c_int as isize;
    if keyval.is_narrow { narrow } else { value }
}

fn of<'call>(state: *mut c_void) -> &'call FortranKeyval {
    // SAFETY: C passes back the state from `create`, which is never freed.
    unsafe { &*state.cast::<FortranKeyval>() }
}

extern "C" fn copy(
    object: CHandle,
    keyval: c_int,
    state: *mut c_void,
    attribute_in: *mut c_void,
    attribute_out: *mut *mut c_void,
    flag: *mut c_int,
) -> c_int {
    let ours = of(state);
    let (object, mut extra) = (object.number(), ours.extra_state);
    let (mut given, mut made) = (value(attribute_in), 0);
    let (mut is_copied, mut code) = (0, 0);
    // SAFETY: the program's procedure, with the arguments of section 7.7.
    unsafe {
        (ours.copy)(
            &raw const object,
            &raw const keyval,
            &raw mut extra,
            &raw mut given,
            &raw mut made,
            &raw mut is_copied,
            &raw mut code,
        );
    }
    let is_copied = is_copied != 0 && code == 0;
    if is_copied {
        let made = widened(ours, made);
        // If C has set the address and the copy is unchanged, the new attribute is this address too.
        let is_of_c = [made, value(attribute_in)] == [attribute_in.addr().cast_signed(); 2];
        let attribute = if is_of_c { attribute_in } else { cell(made) };
        // SAFETY: C's room for the new attribute.
        unsafe { *attribute_out = attribute };
    }
    // SAFETY: C's room for the answer.
    unsafe { *flag = c_int::from(is_copied) };
    code
}

extern "C" fn delete(
    object: CHandle,
    keyval: c_int,
    attribute: *mut c_void,
    state: *mut c_void,
) -> c_int {
    let ours = of(state);
    let (object, mut extra) = (object.number(), ours.extra_state);
    let (mut given, mut code) = (value(attribute), 0);
    // SAFETY: the program's procedure, with the arguments of section 7.7.
    unsafe {
        (ours.delete)(
            &raw const object,
            &raw const keyval,
            &raw mut given,
            &raw mut extra,
            &raw mut code,
        );
    }
    if code == 0 {
        discard(attribute);
    }
    code
}

unsafe extern "C" {
    fn MPI_Comm_create_keyval(
        copy: CCopy,
        delete: CDelete,
        keyval: *mut c_int,
        state: *mut c_void,
    ) -> c_int;
    fn MPI_Type_create_keyval(
        copy: CCopy,
        delete: CDelete,
        keyval: *mut c_int,
        state: *mut c_void,
    ) -> c_int;
    fn MPI_Win_create_keyval(
        copy: CCopy,
        delete: CDelete,
        keyval: *mut c_int,
        state: *mut c_void,
    ) -> c_int;
    fn MPI_Keyval_create(
        copy: CCopy,
        delete: CDelete,
        keyval: *mut c_int,
        state: *mut c_void,
    ) -> c_int;
    fn MPI_Comm_get_attr(
        comm: CHandle,
        keyval: c_int,
        value: *mut *mut c_void,
        flag: *mut c_int,
    ) -> c_int;
    fn MPI_Type_get_attr(
        datatype: CHandle,
        keyval: c_int,
        value: *mut *mut c_void,
        flag: *mut c_int,
    ) -> c_int;
    fn MPI_Win_get_attr(
        win: CHandle,
        keyval: c_int,
        value: *mut *mut c_void,
        flag: *mut c_int,
    ) -> c_int;
    fn MPI_Attr_get(
        comm: CHandle,
        keyval: c_int,
        value: *mut *mut c_void,
        flag: *mut c_int,
    ) -> c_int;
    fn MPI_Comm_set_attr(comm: CHandle, keyval: c_int, value: *mut c_void) -> c_int;
    fn MPI_Type_set_attr(datatype: CHandle, keyval: c_int, value: *mut c_void) -> c_int;
    fn MPI_Win_set_attr(win: CHandle, keyval: c_int, value: *mut c_void) -> c_int;
    fn MPI_Attr_put(comm: CHandle, keyval: c_int, value: *mut c_void) -> c_int;
}

type CreateInC = unsafe extern "C" fn(CCopy, CDelete, *mut c_int, *mut c_void) -> c_int;
type GetInC = unsafe extern "C" fn(CHandle, c_int, *mut *mut c_void, *mut c_int) -> c_int;
type SetInC = unsafe extern "C" fn(CHandle, c_int, *mut c_void) -> c_int;

fn create(in_c: CreateInC, ours: FortranKeyval, keyval: OutAddress<c_int>) -> c_int {
    let state = Box::into_raw(Box::new(ours));
    // SAFETY: the callbacks get the state that is passed with them.
    let code = unsafe { in_c(copy, delete, keyval.as_ptr(), state.cast()) };
    if code != 0 {
        // SAFETY: the key was not made, so C has not stored the state.
        drop(unsafe { Box::from_raw(state) });
    }
    code
}

/// Gets an attribute, and sets `found` to whether there is one. Returns the code and, if there is an attribute, its
/// value in Fortran.
fn get(
    in_c: GetInC,
    object: CHandle,
    keyval: c_int,
    found: OutAddress<c_int>,
) -> (c_int, Option<isize>) {
    let (mut attribute, mut flag) = (core::ptr::null_mut(), 0);
    // SAFETY: the C function, which writes the attribute and the flag.
    let code = unsafe { in_c(object, keyval, &raw mut attribute, &raw mut flag) };
    if code != 0 {
        return (code, None);
    }
    found.set(c_int::from(flag != 0));
    let is_there = flag != 0 && !attribute.is_null();
    let known = is_there.then(|| predefined(keyval, attribute)).flatten();
    (
        code,
        (flag != 0).then(|| known.unwrap_or_else(|| value(attribute))),
    )
}

fn set(in_c: SetInC, object: CHandle, keyval: c_int, value: isize) -> c_int {
    let attribute = cell(value);
    // SAFETY: the C function; it stores the address of the cell, which exists until `discard`.
    let code = unsafe { in_c(object, keyval, attribute) };
    if code != 0 {
        discard(attribute);
    }
    code
}

macro_rules! of_object {
    ($create:ident $create_c:ident $create_name:literal [$($create_names:tt)*];
     $get:ident $get_c:ident $get_name:literal [$($get_names:tt)*];
     $set:ident $set_c:ident $set_name:literal [$($set_names:tt)*]) => {
        #[doc = concat!("`", stringify!($create_c), "`, MPI 5.0 section 7.7.")]
        #[unsafe(export_name = $create_name)]
        extern "C" fn $create(
            copy_attr_fn: Copy,
            delete_attr_fn: Delete,
            keyval: OutAddress<c_int>,
            extra_state: InAddress<isize>,
            ierror: Ierror,
        ) {
            let ours = FortranKeyval {
                copy: copy_attr_fn,
                delete: delete_attr_fn,
                extra_state: extra_state.get(),
                is_narrow: false,
            };
            ierror.set(create($create_c, ours, keyval));
        }
        names!($create_name: $($create_names)*);

        #[doc = concat!("`", stringify!($get_c), "`, MPI 5.0 section 7.7.")]
        #[unsafe(export_name = $get_name)]
        extern "C" fn $get(
            object: InAddress<FortranHandle>,
            keyval: InAddress<c_int>,
            attribute_val: OutAddress<isize>,
            flag: OutAddress<c_int>,
            ierror: Ierror,
        ) {
            let (code, found) = get($get_c, object.handle(), keyval.get(), flag);
            if let Some(value) = found {
                attribute_val.set(value);
            }
            ierror.set(code);
        }
        names!($get_name: $($get_names)*);

        #[doc = concat!("`", stringify!($set_c), "`, MPI 5.0 section 7.7.")]
        #[unsafe(export_name = $set_name)]
        extern "C" fn $set(
            object: InAddress<FortranHandle>,
            keyval: InAddress<c_int>,
            attribute_val: InAddress<isize>,
            ierror: Ierror,
        ) {
            ierror.set(set($set_c, object.handle(), keyval.get(), attribute_val.get()));
        }
        names!($set_name: $($set_names)*);
    };
}

of_object! {
    comm_create_keyval MPI_Comm_create_keyval "pmpi_comm_create_keyval_"
        ["mpi_comm_create_keyval_" = "pmpi_comm_create_keyval_", "mpi_comm_create_keyval_f08_" = "pmpi_comm_create_keyval_f08_"];
    comm_get_attr MPI_Comm_get_attr "pmpi_comm_get_attr_"
        ["mpi_comm_get_attr_" = "pmpi_comm_get_attr_", "mpi_comm_get_attr_f08_" = "pmpi_comm_get_attr_f08_"];
    comm_set_attr MPI_Comm_set_attr "pmpi_comm_set_attr_"
        ["mpi_comm_set_attr_" = "pmpi_comm_set_attr_", "mpi_comm_set_attr_f08_" = "pmpi_comm_set_attr_f08_"]
}
of_object! {
    type_create_keyval MPI_Type_create_keyval "pmpi_type_create_keyval_"
        ["mpi_type_create_keyval_" = "pmpi_type_create_keyval_", "mpi_type_create_keyval_f08_" = "pmpi_type_create_keyval_f08_"];
    type_get_attr MPI_Type_get_attr "pmpi_type_get_attr_"
        ["mpi_type_get_attr_" = "pmpi_type_get_attr_", "mpi_type_get_attr_f08_" = "pmpi_type_get_attr_f08_"];
    type_set_attr MPI_Type_set_attr "pmpi_type_set_attr_"
        ["mpi_type_set_attr_" = "pmpi_type_set_attr_", "mpi_type_set_attr_f08_" = "pmpi_type_set_attr_f08_"]
}
of_object! {
    win_create_keyval MPI_Win_create_keyval "pmpi_win_create_keyval_"
        ["mpi_win_create_keyval_" = "pmpi_win_create_keyval_", "mpi_win_create_keyval_f08_" = "pmpi_win_create_keyval_f08_"];
    win_get_attr MPI_Win_get_attr "pmpi_win_get_attr_"
        ["mpi_win_get_attr_" = "pmpi_win_get_attr_", "mpi_win_get_attr_f08_" = "pmpi_win_get_attr_f08_"];
    win_set_attr MPI_Win_set_attr "pmpi_win_set_attr_"
        ["mpi_win_set_attr_" = "pmpi_win_set_attr_", "mpi_win_set_attr_f08_" = "pmpi_win_set_attr_f08_"]
}

/// `MPI_KEYVAL_CREATE`, MPI 5.0 section 16.1: values are default integers.
#[unsafe(export_name = "pmpi_keyval_create_")]
extern "C" fn keyval_create(
    copy_fn: Copy,
    delete_fn: Delete,
    keyval: OutAddress<c_int>,
    extra_state: InAddress<c_int>,
    ierror: Ierror,
) {
    let ours = FortranKeyval {
        copy: copy_fn,
        delete: delete_fn,
        extra_state: extra_state.get() as isize,
        is_narrow: true,
    };
    ierror.set(create(MPI_Keyval_create, ours, keyval));
}
names!("pmpi_keyval_create_": "mpi_keyval_create_" = "pmpi_keyval_create_");

/// `MPI_ATTR_GET`, MPI 5.0 section 16.1.
#[unsafe(export_name = "pmpi_attr_get_")]
extern "C" fn attr_get(
    comm: InAddress<FortranHandle>,
    keyval: InAddress<c_int>,
    attribute_val: OutAddress<c_int>,
    flag: OutAddress<c_int>,
    ierror: Ierror,
) {
    let (code, found) = get(MPI_Attr_get, comm.handle(), keyval.get(), flag);
    if let Some(value) = found {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "all that this deprecated call can return"
        )]
        attribute_val.set(value as c_int);
    }
    ierror.set(code);
}
names!("pmpi_attr_get_": "mpi_attr_get_" = "pmpi_attr_get_", "mpi_attr_get_f08_" = "pmpi_attr_get_f08_");

/// `MPI_ATTR_PUT`, MPI 5.0 section 16.1.
#[unsafe(export_name = "pmpi_attr_put_")]
extern "C" fn attr_put(
    comm: InAddress<FortranHandle>,
    keyval: InAddress<c_int>,
    attribute_val: InAddress<c_int>,
    ierror: Ierror,
) {
    ierror.set(set(
        MPI_Attr_put,
        comm.handle(),
        keyval.get(),
        attribute_val.get() as isize,
    ));
}
names!("pmpi_attr_put_": "mpi_attr_put_" = "pmpi_attr_put_", "mpi_attr_put_f08_" = "pmpi_attr_put_f08_");

/// Defines the predefined copy callbacks (MPI 5.0 section 7.7) by their copy flag and the type of the values. A program
/// may call them too.
macro_rules! predefined_copies {
    ($($name:literal $function:ident copies $flag:literal $value:ty;)*) => {$(
        #[unsafe(export_name = $name)]
        extern "C" fn $function(
            _object: InAddress<FortranHandle>,
            _keyval: InAddress<c_int>,
            _extra_state: InAddress<$value>,
            given: InAddress<$value>,
            made: OutAddress<$value>,
            flag: OutAddress<c_int>,
            ierror: Ierror,
        ) {
            if $flag {
                made.set(given.get());
            }
            flag.set(c_int::from($flag));
            ierror.set(0);
        }
    )*};
}

predefined_copies! {
    "mpi_null_copy_fn_" null_copy copies false c_int;
    "mpi_dup_fn_" dup copies true c_int;
    "mpi_comm_null_copy_fn_" comm_null_copy copies false isize;
    "mpi_comm_dup_fn_" comm_dup copies true isize;
    "mpi_type_null_copy_fn_" type_null_copy copies false isize;
    "mpi_type_dup_fn_" type_dup copies true isize;
    "mpi_win_null_copy_fn_" win_null_copy copies false isize;
    "mpi_win_dup_fn_" win_dup copies true isize;
}

macro_rules! predefined_deletes {
    ($($name:literal $function:ident $value:ty;)*) => {$(
        #[unsafe(export_name = $name)]
        extern "C" fn $function(
            _object: InAddress<FortranHandle>,
            _keyval: InAddress<c_int>,
            _value: InAddress<$value>,
            _extra_state: InAddress<$value>,
            ierror: Ierror,
        ) {
            ierror.set(0);
        }
    )*};
}

predefined_deletes! {
    "mpi_null_delete_fn_" null_delete c_int;
    "mpi_comm_null_delete_fn_" comm_null_delete isize;
    "mpi_type_null_delete_fn_" type_null_delete isize;
    "mpi_win_null_delete_fn_" win_null_delete isize;
}

/// `MPI_CONVERSION_FN_NULL_C`: only its address counts.
#[unsafe(export_name = "mpi_conversion_fn_null_c_")]
extern "C" fn conversion_null_c() {}

/// `MPI_CONVERSION_FN_NULL`: only its address counts.
#[unsafe(export_name = "mpi_conversion_fn_null_")]
extern "C" fn conversion_null() {}
