// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialisation and finalisation, communicators, the allocated machine.
//!
//! # Safety
//! As in [`super`].
#![allow(unsafe_code, reason = "C entry points")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one promise for all: the head of `entry`"
)]

use core::ffi::{CStr, c_char, c_int, c_void};

use super::print::print_error;
use super::{handle, query_result, status, topology, value, write};
use crate::command_line::{self, Options};
use crate::machine::{self, QmpCommunicator, with_comm};
use crate::mpi::{self, Comm, MpiPhase};
use crate::state::{self, QmpState};
use crate::status::{QmpFailure, QmpStatus, Result};

/// `QMP_init_msg_passing`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_init_msg_passing(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> QmpStatus {
    // SAFETY: the caller's command line and result.
    status(unsafe { start(argc, argv, required, provided) })
}

unsafe fn start(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> Result<()> {
    if state::visit(|state| state.running) {
        return Err(QmpFailure::new(
            QmpStatus::INVALID_OP,
            "QMP_init_msg_passing was called before",
        ));
    }
    let level = usize::try_from(required).ok().filter(|level| *level < 4);
    let wrong = || {
        QmpFailure::new(
            QmpStatus::INVALID_ARG,
            format!("the thread level {required} was given, expected 0 to 3"),
        )
    };
    let level = level.ok_or_else(wrong)?;
    let (granted, owns_mpi) = match mpi::phase() {
        // SAFETY: the caller's command line.
        MpiPhase::Before => (unsafe { mpi::init(argc, argv, level) }?, true),
        MpiPhase::Running => (mpi::thread_level()?, false),
        MpiPhase::After => {
            return Err(QmpFailure::new(
                QmpStatus::RTENV_ERR,
                "MPI was finalised and cannot be initialised again",
            ));
        }
    };
    if !provided.is_null() {
        // SAFETY: not NULL, one item.
        unsafe { write(provided, c_int::try_from(granted).unwrap_or_default()) }?;
    }
    // SAFETY: the caller's command line.
    let options = unsafe { take_options(argc, argv) }?;
    machine::start(options, owns_mpi, granted == 3)
}

/// Parses QMP's options and removes them from the command line.
unsafe fn take_options(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Result<Options> {
    if argc.is_null() || argv.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: not NULL, one number.
    let count = usize::try_from(unsafe { argc.read() }).unwrap_or_default();
    // SAFETY: not NULL, one pointer.
    let arguments = unsafe { argv.read() };
    if arguments.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: a command line of `count` arguments.
    let pointers: Vec<*mut c_char> = (0..count)
        .map(|at| unsafe { arguments.wrapping_add(at).read() })
        .collect();
    let text = |argument: &*mut c_char| {
        // SAFETY: each argument is a string.
        let argument = unsafe { CStr::from_ptr(*argument) };
        argument.to_string_lossy().into_owned()
    };
    let texts: Vec<String> = pointers.iter().map(text).collect();
    let (options, left) = command_line::parse(&texts)?;
    for (to, from) in left.iter().enumerate() {
        // SAFETY: within the arguments of the command line.
        unsafe { arguments.wrapping_add(to).write(pointers[*from]) };
    }
    if left.len() < count {
        // SAFETY: within the arguments of the command line, which now ends here.
        unsafe {
            arguments
                .wrapping_add(left.len())
                .write(core::ptr::null_mut())
        };
    }
    // SAFETY: not NULL, one number.
    unsafe { argc.write(c_int::try_from(left.len()).unwrap_or_default()) };
    Ok(options)
}

/// `QMP_is_initialized`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_is_initialized() -> c_int {
    state::visit(|state| c_int::from(state.running))
}

/// `QMP_finalize_msg_passing`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_finalize_msg_passing() {
    status(machine::finish());
}

/// Ends the job.
fn abort(code: c_int) -> ! {
    if mpi::phase() == MpiPhase::Running {
        mpi::abort(code);
    }
    std::process::exit(code)
}

/// `QMP_abort`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_abort(code: c_int) {
    print_error(&format!("abort: {code}"));
    abort(code)
}

/// `QMP_abort` of the QMP 2.0 document, which takes no code.
#[unsafe(no_mangle)]
pub extern "C" fn qmp2004_abort() {
    print_error("abort");
    abort(1)
}

/// `QMP_abort_string`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_abort_string(code: c_int, message: *mut c_char) {
    if !message.is_null() {
        // SAFETY: not NULL, a string.
        let text = unsafe { CStr::from_ptr(message) };
        print_error(&text.to_string_lossy());
    }
    QMP_abort(code)
}

/// Handle of one of the three current communicators; NULL before initialisation.
fn current(of: impl FnOnce(&mut QmpState) -> &mut usize) -> *mut c_void {
    let found = query_result(state::running(|state| Ok(*of(state))), 0);
    core::ptr::without_provenance_mut(found)
}

fn set_current(comm: usize, of: impl FnOnce(&mut QmpState) -> &mut usize) -> QmpStatus {
    status(state::running(|state| {
        machine::comm(state, Some(comm))?;
        *of(state) = comm;
        Ok(())
    }))
}

/// Getter and setter for each of the three current communicators.
macro_rules! currents {
    ($($get:ident $set:ident $field:ident;)*) => {$(
        #[doc = concat!("`", stringify!($get), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $get() -> *mut c_void {
            current(|state| &mut state.$field)
        }

        #[doc = concat!("`", stringify!($set), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $set(comm: usize) -> QmpStatus {
            set_current(comm, |state| &mut state.$field)
        }
    )*};
}

currents! {
    QMP_comm_get_allocated QMP_comm_set_allocated allocated;
    QMP_comm_get_job QMP_comm_set_job job;
    QMP_comm_get_default QMP_comm_set_default default;
}

/// `QMP_comm_split`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_split(
    comm: usize,
    color: c_int,
    key: c_int,
    new: *mut *mut c_void,
) -> QmpStatus {
    let made = machine::split(comm, color, key);
    let failed = made.as_ref().err().cloned();
    // SAFETY: one item, or NULL.
    let written = unsafe { write(new, handle(made)) };
    status(failed.map_or(written, Err))
}

/// `QMP_comm_free`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_free(comm: usize) -> QmpStatus {
    status(machine::free(comm))
}

/// Writes the address of a communicator's `MPI_Comm`.
unsafe fn give_mpi(comm: usize, to: *mut *mut c_void) -> QmpStatus {
    let place = with_comm(Some(comm), |comm| Ok((&raw mut *comm.mpi).cast::<c_void>()));
    // SAFETY: one item, or NULL.
    status(place.and_then(|place| unsafe { write(to, place) }))
}

/// `QMP_get_hidden_comm`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_get_hidden_comm(comm: usize, to: *mut *mut c_void) -> QmpStatus {
    // SAFETY: one item, or NULL.
    unsafe { give_mpi(comm, to) }
}

/// `QMP_get_mpi_comm`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_get_mpi_comm(comm: usize, to: *mut *mut c_void) -> QmpStatus {
    // SAFETY: one item, or NULL.
    unsafe { give_mpi(comm, to) }
}

fn number(
    which: Option<usize>,
    none: c_int,
    of: impl FnOnce(&mut QmpCommunicator) -> c_int,
) -> c_int {
    query_result(with_comm(which, |comm| Ok(of(comm))), none)
}

/// `QMP_comm_get_number_of_colors`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_get_number_of_colors(comm: usize) -> c_int {
    number(Some(comm), 0, |comm| comm.colors)
}

/// `QMP_comm_get_color`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_get_color(comm: usize) -> c_int {
    number(Some(comm), -1, |comm| comm.color)
}

/// `QMP_comm_get_key`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_get_key(comm: usize) -> c_int {
    number(Some(comm), -1, |comm| comm.key)
}

/// `QMP_get_number_of_nodes`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_number_of_nodes() -> c_int {
    number(None, 0, |comm| comm.nodes)
}

/// `QMP_comm_get_number_of_nodes`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_get_number_of_nodes(comm: usize) -> c_int {
    number(Some(comm), 0, |comm| comm.nodes)
}

/// `QMP_get_node_number`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_node_number() -> c_int {
    number(None, -1, |comm| comm.node)
}

/// `QMP_comm_get_node_number`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_get_node_number(comm: usize) -> c_int {
    number(Some(comm), -1, |comm| comm.node)
}

/// `QMP_is_primary_node`: node 0.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_is_primary_node() -> c_int {
    c_int::from(QMP_get_node_number() == 0)
}

/// `QMP_comm_is_primary_node`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_is_primary_node(comm: usize) -> c_int {
    c_int::from(QMP_comm_get_node_number(comm) == 0)
}

/// `QMP_get_msg_passing_type`: `QMP_GRID` if the command line has `-qmp-geom`, otherwise `QMP_SWITCH`.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_msg_passing_type() -> c_int {
    let grid = state::running(|state| Ok(!state.options.geometry.is_empty()));
    c_int::from(query_result(grid, false))
}

/// `QMP_get_number_of_jobs`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_number_of_jobs() -> c_int {
    number(Some(job()), 0, |comm| comm.colors)
}

/// `QMP_get_job_number`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_job_number() -> c_int {
    number(Some(job()), -1, |comm| comm.color)
}

fn job() -> usize {
    state::visit(|state| state.job)
}

/// `QMP_get_number_of_job_geometry_dimensions`: number of axes of the grid of this job's nodes; 0 if no grid is
/// declared.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_number_of_job_geometry_dimensions() -> c_int {
    topology::axes(Some(job()))
}

/// `QMP_get_job_geometry`: the dimensions of the grid of this job's nodes, not those of a grid of jobs; NULL if no grid
/// is declared.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_job_geometry() -> *const c_int {
    topology::dims(Some(job()))
}

/// `QMP_io_node`: every node is its own I/O node.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_io_node(node: c_int) -> c_int {
    node
}

/// `QMP_master_io_node`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_master_io_node() -> c_int {
    0
}

/// `QMP_time`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_time() -> f64 {
    value(Ok(mpi::seconds()), 0.0)
}

/// `QMP_reset_total_qmp_time`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_reset_total_qmp_time() {
    state::visit(|state| state.seconds = 0.0);
}

/// `QMP_get_total_qmp_time`: seconds in waits for messages and in global operations, counted while `QMP_profcontrol` is
/// above 0.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_total_qmp_time() -> f64 {
    state::visit(|state| state.seconds)
}

const _: () = assert!(size_of::<Comm>() == size_of::<*mut c_void>());
