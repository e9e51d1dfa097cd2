// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that tools call: to register themselves, to intercept functions, and to find the next callee.
//!
//! Tools may call them at any time and from any thread. They return a code, and never call an error handler.
//!
//! # Safety
//! Q1 and Q2 of the [module above](super).
#![allow(unsafe_code, reason = "entry points of tools")]
#![allow(non_snake_case, reason = "names of the interface")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;

use super::stack::{Flavour, ToolAnnouncement, builder, stack};
use super::{Forms, Function, NextTool, QmpiContext, address, name_of, next, number_of};
use crate::c::{MPI_ERR_ARG, MPI_ERR_OTHER, MPI_SUCCESS};
use crate::qmpi_table::FUNCTIONS;

/// Maximum length of a tool's name in bytes, including the NUL: `QMPI_MAX_TOOL_NAME_LENGTH`.
const NAME_ROOM: usize = 256;

/// Registers a tool. Registration itself intercepts no function.
///
/// `MPI_ERR_ARG`: the name is NULL, empty or longer than 255 characters, or the function is NULL. `MPI_ERR_OTHER`: a
/// tool of that name is registered already, or the stack is built, which happens at the first call of MPI.
///
/// # Safety
/// The name is a C string, the function complies with Q1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Register_tool_name(
    tool_name: *const c_char,
    init_function_ptr: Option<unsafe extern "C" fn(c_int)>,
) -> c_int {
    let Some(callback) = init_function_ptr.filter(|_| !tool_name.is_null()) else {
        return MPI_ERR_ARG;
    };
    // SAFETY: not NULL, and a C string by the interface (Q2).
    let name = unsafe { CStr::from_ptr(tool_name) }.to_bytes();
    if name.is_empty() || name.len() >= NAME_ROOM {
        return MPI_ERR_ARG;
    }
    let announced = ToolAnnouncement {
        name: name.to_vec(),
        callback,
        library: Vec::new(),
    };
    answer(builder().announce(announced), MPI_ERR_OTHER)
}

/// Stores a pointer for instance `tool_id`. To be called from the callback of that instance; otherwise returns
/// `MPI_ERR_OTHER`.
#[unsafe(no_mangle)]
pub extern "C" fn QMPI_Register_tool_storage(tool_id: c_int, tool_storage: *mut c_void) -> c_int {
    let mut builder = builder();
    if !builder.is_active(tool_id) {
        return MPI_ERR_OTHER;
    }
    builder.set_storage(tool_storage);
    MPI_SUCCESS
}

/// Registers a tool's function, which takes a context first, to intercept an MPI function. To be called from the
/// callback of instance `tool_id`.
///
/// `MPI_ERR_ARG`: there is no such MPI function, the tool's function is NULL, or the instance has functions of the
/// other form. `MPI_ERR_OTHER`: the callback of another instance runs, or no callback runs.
///
/// # Safety
/// The function complies with Q1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Register_tool_function(
    tool_id: c_int,
    function_enum: c_int,
    function_ptr: Option<Function>,
) -> c_int {
    intercept(tool_id, function_enum, function_ptr, Flavour::Context)
}

/// Registers a tool's function, which takes a context and the tool's number first, to intercept an MPI function:
/// MPICH's form of [`QMPI_Register_tool_function`], with the same errors.
///
/// # Safety
/// The function complies with Q1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Register_function(
    tool_id: c_int,
    function_enum: c_int,
    function_ptr: Option<Function>,
) -> c_int {
    intercept(tool_id, function_enum, function_ptr, Flavour::Number)
}

fn intercept(tool: c_int, function: c_int, address: Option<Function>, flavour: Flavour) -> c_int {
    let mut builder = builder();
    if !builder.is_active(tool) {
        return MPI_ERR_OTHER;
    }
    let (Some(function), Some(address)) = (known(function), address) else {
        return MPI_ERR_ARG;
    };
    answer(builder.intercept(flavour, function, address), MPI_ERR_ARG)
}

/// Writes the pointer that instance `tool_id` stored. `MPI_ERR_ARG`: the context is not that of this instance, there is
/// no such instance, or `storage` is NULL.
///
/// # Safety
/// `storage` is NULL or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Context_get_storage(
    context: QmpiContext,
    tool_id: c_int,
    storage: *mut *mut c_void,
) -> c_int {
    if usize::try_from(tool_id) != Ok(context.0) {
        return MPI_ERR_ARG;
    }
    // SAFETY: the obligations of this function are those of the called one.
    unsafe { QMPI_Get_tool_storage(context, tool_id, storage) }
}

/// Writes the number of the instance that a context names. An extension of rmpi: a function in the mail's form gets a
/// context, but not the number of its instance. `MPI_ERR_ARG`: the context names no instance (for example MPI itself),
/// or `tool_id` is NULL.
///
/// # Safety
/// `tool_id` is NULL or has room for an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPIX_Context_get_tool_id(
    context: QmpiContext,
    tool_id: *mut c_int,
) -> c_int {
    let is_there = stack().is_some_and(|stack| stack.storage(context.0).is_some());
    if tool_id.is_null() || !is_there {
        return MPI_ERR_ARG;
    }
    // SAFETY: not NULL (Q2).
    unsafe { tool_id.write(number_of(context.0)) };
    MPI_SUCCESS
}

/// `QMPI_Context_get_storage` in MPICH's form: the context is ignored.
///
/// # Safety
/// `storage` is NULL or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Get_tool_storage(
    _context: QmpiContext,
    tool_id: c_int,
    storage: *mut *mut c_void,
) -> c_int {
    let number = usize::try_from(tool_id).unwrap_or(0);
    let (Some(found), false) = (
        stack().and_then(|stack| stack.storage(number)),
        storage.is_null(),
    ) else {
        return MPI_ERR_ARG;
    };
    // SAFETY: not NULL (Q2).
    unsafe { storage.write(found) };
    MPI_SUCCESS
}

/// Writes the address from which the program, or a PMPI tool, made the call that this thread is in.
///
/// `MPI_ERR_ARG`: the context is not that of instance `tool_id`, or `calling_address` is NULL. `MPI_ERR_OTHER`: this
/// thread is not in an MPI call, or a frame in between was compiled without unwind tables.
///
/// # Safety
/// `calling_address` is NULL or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Context_get_calling_address(
    context: QmpiContext,
    tool_id: c_int,
    calling_address: *mut *mut c_void,
) -> c_int {
    if usize::try_from(tool_id) != Ok(context.0) {
        return MPI_ERR_ARG;
    }
    // SAFETY: the obligations of this function are those of the called one.
    unsafe { QMPI_Get_calling_address(context, calling_address) }
}

/// [`QMPI_Context_get_calling_address`] in MPICH's form: the context is ignored. The result is the address itself, not
/// a string.
///
/// # Safety
/// `calling_address` is NULL or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Get_calling_address(
    _context: QmpiContext,
    calling_address: *mut *mut c_void,
) -> c_int {
    if calling_address.is_null() {
        return MPI_ERR_ARG;
    }
    let Some(found) = address::calling() else {
        return MPI_ERR_OTHER;
    };
    // SAFETY: not NULL (Q2).
    unsafe { calling_address.write(found) };
    MPI_SUCCESS
}

/// Writes the function that an instance calls next, in the form of the instance's own functions, and the argument that
/// this function needs: a context, or in MPICH's form an `int`, the number of the next tool.
///
/// `MPI_ERR_ARG`: there is no such instance or MPI function, or one of the two result pointers is NULL.
///
/// # Safety
/// `function_ptr` is NULL or has room for a pointer; `next_tool` is NULL or has room for the argument of the instance's
/// form.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMPI_Get_function(
    tool_id: c_int,
    function_enum: c_int,
    function_ptr: *mut Option<Function>,
    next_tool: *mut c_void,
) -> c_int {
    let number = usize::try_from(tool_id).unwrap_or(0);
    let flavour = stack().and_then(|stack| stack.flavour(number));
    let (Some(flavour), Some(function)) = (flavour, known(function_enum)) else {
        return MPI_ERR_ARG;
    };
    if function_ptr.is_null() || next_tool.is_null() {
        return MPI_ERR_ARG;
    }
    let forms = &FUNCTIONS[function].1;
    let next = next(number, function);
    let (address, QmpiContext(number)) = match (flavour, *next) {
        (Flavour::Context, NextTool::ByContext(address, context))
        | (Flavour::Number, NextTool::ByNumber(address, context, _)) => (address, context),
        (_, NextTool::ByContext(_, context) | NextTool::ByNumber(_, context, _)) => {
            (form(forms, flavour), context)
        }
        (_, NextTool::Mpi) => (form(forms, flavour), QmpiContext(0)),
    };
    // SAFETY: not NULL (Q2).
    unsafe { function_ptr.write(Some(address)) };
    match flavour {
        // SAFETY: not NULL, and in this form there is room for a context (Q2).
        Flavour::Context => unsafe { next_tool.cast::<QmpiContext>().write(QmpiContext(number)) },
        // SAFETY: not NULL, and in this form there is room for an `int` (Q2).
        Flavour::Number => unsafe { next_tool.cast::<c_int>().write(number_of(number)) },
    }
    MPI_SUCCESS
}

/// The function that calls the next callee, in the form of the tool that will call it.
fn form(forms: &Forms, flavour: Flavour) -> Function {
    let address = match flavour {
        Flavour::Context => forms.by_context,
        Flavour::Number => forms.by_number,
    };
    // SAFETY: the address of a function, never NULL; the tool calls it with the parameters that it has (Q1).
    unsafe { transmute::<*const c_void, Function>(address) }
}

/// The number of an MPI function as an index; `None` if there is no such function.
fn known(function: c_int) -> Option<usize> {
    usize::try_from(function)
        .ok()
        .filter(|at| name_of(*at).is_some())
}

fn answer(well: bool, otherwise: c_int) -> c_int {
    if well { MPI_SUCCESS } else { otherwise }
}
