// SPDX-License-Identifier: MIT OR Apache-2.0
//! The logical machine and the layout of a lattice.
//!
//! # Safety
//! As in [`super`].
#![allow(unsafe_code, reason = "C entry points")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one promise for all: the head of `entry`"
)]

use core::ffi::c_int;
use core::ptr::null;

use super::print::print_error;
use super::{array, query_result, status, value};
use crate::machine::{self, with_comm};
use crate::state;
use crate::status::{QmpFailure, QmpStatus, Result};

/// Prints why a grid is refused, as libqmp does: otherwise a program that ignores the status would crash soon after
/// without an explanation.
fn report_error(function: &str, result: Result<()>) -> Result<()> {
    if let Err(failure) = &result {
        print_error(&format!("{function}: {}", failure.text));
    }
    result
}

unsafe fn declare(
    which: Option<usize>,
    dims: *const c_int,
    ndim: c_int,
    map: Option<(*const c_int, c_int)>,
) -> Result<()> {
    // SAFETY: the caller's obligation.
    let declared = unsafe { try_declare(which, dims, ndim, map) };
    report_error("QMP_declare_logical_topology", declared)
}

unsafe fn try_declare(
    which: Option<usize>,
    dims: *const c_int,
    ndim: c_int,
    map: Option<(*const c_int, c_int)>,
) -> Result<()> {
    // SAFETY: `ndim` items.
    let dims = unsafe { array(dims, ndim) }?;
    let Some((map, length)) = map else {
        return machine::declare(which, dims, None);
    };
    // SAFETY: `length` items.
    let map = unsafe { array(map, length) }?;
    machine::declare(which, dims, Some(map))
}

/// `QMP_declare_logical_topology`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_logical_topology(
    dims: *const c_int,
    ndim: c_int,
) -> QmpStatus {
    // SAFETY: `ndim` items.
    status(unsafe { declare(None, dims, ndim, None) })
}

/// `QMP_comm_declare_logical_topology`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_declare_logical_topology(
    comm: usize,
    dims: *const c_int,
    ndim: c_int,
) -> QmpStatus {
    // SAFETY: `ndim` items.
    status(unsafe { declare(Some(comm), dims, ndim, None) })
}

/// `QMP_declare_logical_topology_map`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_logical_topology_map(
    dims: *const c_int,
    ndim: c_int,
    map: *const c_int,
    mapdim: c_int,
) -> QmpStatus {
    // SAFETY: `ndim` and `mapdim` items.
    status(unsafe { declare(None, dims, ndim, Some((map, mapdim))) })
}

/// `QMP_comm_declare_logical_topology_map`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_declare_logical_topology_map(
    comm: usize,
    dims: *const c_int,
    ndim: c_int,
    map: *const c_int,
    mapdim: c_int,
) -> QmpStatus {
    // SAFETY: `ndim` and `mapdim` items.
    status(unsafe { declare(Some(comm), dims, ndim, Some((map, mapdim))) })
}

/// `QMP_declare_logical_topology` of the QMP 2.0 document: true for success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qmp2004_declare_logical_topology(
    dims: *const c_int,
    ndim: c_int,
) -> c_int {
    // SAFETY: `ndim` items.
    c_int::from(status(unsafe { declare(None, dims, ndim, None) }) == QmpStatus::SUCCESS)
}

fn is_declared(which: Option<usize>) -> c_int {
    query_result(
        with_comm(which, |comm| Ok(c_int::from(comm.declared.is_some()))),
        0,
    )
}

/// Number of axes of the declared topology; 0 for none.
pub(super) fn axes(which: Option<usize>) -> c_int {
    let count = with_comm(which, |comm| {
        Ok(comm
            .declared
            .as_ref()
            .map_or(0, |declared| declared.dims.len()))
    });
    c_int::try_from(query_result(count, 0)).unwrap_or_default()
}

/// Dimensions of the declared topology; NULL for none.
pub(super) fn dims(which: Option<usize>) -> *const c_int {
    query_result(
        with_comm(which, |comm| {
            Ok(comm
                .declared
                .as_ref()
                .map_or(null(), |declared| declared.dims.as_ptr()))
        }),
        null(),
    )
}

/// This node's coordinates in the declared topology; NULL for none.
fn here(which: Option<usize>) -> *const c_int {
    query_result(
        with_comm(which, |comm| {
            Ok(comm
                .declared
                .as_ref()
                .map_or(null(), |declared| declared.coordinates.as_ptr()))
        }),
        null(),
    )
}

/// A pair of queries, of the default communicator and of a given one.
macro_rules! queries {
    ($($plain:ident $with_comm:ident $of:ident -> $answer:ty;)*) => {$(
        #[doc = concat!("`", stringify!($plain), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $plain() -> $answer {
            $of(None)
        }

        #[doc = concat!("`", stringify!($with_comm), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $with_comm(comm: usize) -> $answer {
            $of(Some(comm))
        }
    )*};
}

queries! {
    QMP_logical_topology_is_declared QMP_comm_logical_topology_is_declared is_declared -> c_int;
    QMP_get_logical_number_of_dimensions QMP_comm_get_logical_number_of_dimensions axes -> c_int;
    QMP_get_logical_dimensions QMP_comm_get_logical_dimensions dims -> *const c_int;
    QMP_get_logical_coordinates QMP_comm_get_logical_coordinates here -> *const c_int;
}

/// `QMP_get_allocated_number_of_dimensions`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_allocated_number_of_dimensions() -> c_int {
    axes(allocated())
}

/// `QMP_get_allocated_dimensions`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_allocated_dimensions() -> *const c_int {
    dims(allocated())
}

/// `QMP_get_allocated_coordinates`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_allocated_coordinates() -> *const c_int {
    here(allocated())
}

fn allocated() -> Option<usize> {
    Some(state::visit(|state| state.allocated))
}

/// Coordinates of a node in memory that the caller frees with `free`.
fn coordinates_to_free(which: Option<usize>, node: c_int) -> *mut c_int {
    let found = value(
        with_comm(which, |comm| comm.coordinates_of(node)),
        Vec::new(),
    );
    if found.is_empty() {
        return core::ptr::null_mut();
    }
    // SAFETY: `malloc` accepts any size.
    let room: *mut c_int = unsafe { libc::malloc(size_of_val(&found[..])) }.cast();
    if !room.is_null() {
        // SAFETY: room for as many, just allocated.
        unsafe { core::ptr::copy_nonoverlapping(found.as_ptr(), room, found.len()) };
    }
    room
}

/// `QMP_get_logical_coordinates_from`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_logical_coordinates_from(node: c_int) -> *mut c_int {
    coordinates_to_free(None, node)
}

/// `QMP_comm_get_logical_coordinates_from`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_get_logical_coordinates_from(comm: usize, node: c_int) -> *mut c_int {
    coordinates_to_free(Some(comm), node)
}

/// `QMP_get_logical_coordinates_from` of the QMP 2.0 document: the memory belongs to the library, and the caller must
/// not free it.
#[unsafe(no_mangle)]
pub extern "C" fn qmp2004_get_logical_coordinates_from(node: c_int) -> *const c_int {
    let found = with_comm(None, |comm| {
        let at = comm.coordinates_of(node)?;
        let declared = comm.declared.as_mut();
        Ok(declared.map_or(null(), |declared| {
            declared
                .cached
                .entry(node)
                .or_insert_with(|| at.into())
                .as_ptr()
        }))
    });
    value(found, null())
}

unsafe fn coordinates_into(which: Option<usize>, to: *mut c_int, node: c_int) {
    let found = with_comm(which, |comm| comm.coordinates_of(node)).and_then(|found| {
        let null = || {
            QmpFailure::new(
                QmpStatus::INVALID_ARG,
                "NULL was given where coordinates are written",
            )
        };
        if to.is_null() { Err(null()) } else { Ok(found) }
    });
    let found = value(found, Vec::new());
    if !found.is_empty() {
        // SAFETY: the caller has room for one number of each axis.
        unsafe { core::ptr::copy_nonoverlapping(found.as_ptr(), to, found.len()) };
    }
}

/// `QMP_get_logical_coordinates_from2`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_get_logical_coordinates_from2(to: *mut c_int, node: c_int) {
    // SAFETY: room for one number of each axis.
    unsafe { coordinates_into(None, to, node) }
}

/// `QMP_comm_get_logical_coordinates_from2`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_get_logical_coordinates_from2(
    comm: usize,
    to: *mut c_int,
    node: c_int,
) {
    // SAFETY: room for one number of each axis.
    unsafe { coordinates_into(Some(comm), to, node) }
}

unsafe fn node_at(which: Option<usize>, coordinates: *const c_int) -> c_int {
    let found = with_comm(which, |comm| {
        let declared = comm.topology()?;
        // SAFETY: one number of each axis.
        let at = unsafe { array(coordinates, axes_of(declared)) }?;
        Ok(c_int::try_from(declared.topology.node(at)).unwrap_or(-1))
    });
    value(found, -1)
}

fn axes_of(declared: &machine::DeclaredTopology) -> c_int {
    c_int::try_from(declared.dims.len()).unwrap_or_default()
}

/// `QMP_get_node_number_from`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_get_node_number_from(coordinates: *const c_int) -> c_int {
    // SAFETY: one number of each axis.
    unsafe { node_at(None, coordinates) }
}

/// `QMP_comm_get_node_number_from`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_get_node_number_from(
    comm: usize,
    coordinates: *const c_int,
) -> c_int {
    // SAFETY: one number of each axis.
    unsafe { node_at(Some(comm), coordinates) }
}

unsafe fn layout(dims: *const c_int, ndim: c_int) -> Result<()> {
    // SAFETY: `ndim` items.
    let lattice = unsafe { array(dims, ndim) };
    report_error("QMP_layout_grid", lattice.and_then(machine::layout))
}

/// `QMP_layout_grid`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_layout_grid(dims: *const c_int, ndim: c_int) -> QmpStatus {
    // SAFETY: `ndim` items.
    status(unsafe { layout(dims, ndim) })
}

/// `QMP_layout_grid` of the QMP 2.0 document: true for success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qmp2004_layout_grid(dims: *mut c_int, ndim: c_int) -> c_int {
    // SAFETY: `ndim` items.
    c_int::from(status(unsafe { layout(dims, ndim) }) == QmpStatus::SUCCESS)
}

/// `QMP_get_subgrid_dimensions`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_subgrid_dimensions() -> *const c_int {
    let found = state::running(|state| {
        let subgrid = &state.layout.subgrid;
        Ok(if subgrid.is_empty() {
            null()
        } else {
            subgrid.as_ptr()
        })
    });
    query_result(found, null())
}

/// `QMP_get_number_of_subgrid_sites`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_number_of_subgrid_sites() -> c_int {
    query_result(state::running(|state| Ok(state.layout.sites)), 0)
}
