// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMPI: tools stacked between the program and MPI, each calling the next one itself.
//!
//! Two forms of the interface are provided from the same table. In the form of the working group's mail of 8 October
//! 2020, a tool's function takes a context before MPI's arguments. In MPICH's form, it takes a context and the tool's
//! number. The function with which a tool registers its functions decides its form. If neighbours in the stack have
//! different forms, each gets a function of its own form that calls the other ([`Forms`]).
//!
//! The stack is built when the first MPI function is called (`list`). From then on it never changes, and is read
//! without a lock. A context is the number of the instance that is to be called; 0, and any number that was never
//! assigned, is MPI itself. Without tools the only cost is one comparison in the entry point ([`is_stacked`]); calls on
//! the express lane cost nothing extra.
//!
//! # Safety
//! Obligation **Q1** on tools, which C cannot check: a registered function has the parameters of the MPI function that
//! it was registered for, in the form with which it was registered. Obligation **Q2** on tools: the pointers that they
//! pass are as the interface specifies. The library writes through them only after a check for NULL.
#![allow(unsafe_code, reason = "functions of C programs")]

mod address;
pub mod entry;
mod list;
mod stack;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub use address::keep_frame;
pub use list::take_complaints;

use crate::qmpi_table::FUNCTIONS;
use stack::stack;

/// The callee of a call: 0 for MPI itself, otherwise the number of a tool instance. In C a struct with one pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct QmpiContext(usize);

impl QmpiContext {
    /// Whether the context is that of MPI itself, below all tools.
    #[inline(always)]
    pub fn is_mpi(self) -> bool {
        self.0 == 0
    }
}

/// A function of a tool. The caller casts it to its real type (Q1).
pub type Function = unsafe extern "C" fn();

/// An entry in the table of the stack: the next callee.
#[derive(Clone, Copy, Debug)]
pub enum NextTool {
    /// MPI itself.
    Mpi,
    /// A tool whose functions take a context first.
    ByContext(Function, QmpiContext),
    /// A tool whose functions take a context and the tool's number first.
    ByNumber(Function, QmpiContext, c_int),
}

/// The four functions for one MPI function: two with which tools call the next callee, and two for the program's call.
#[derive(Debug)]
pub struct Forms {
    /// Takes a context first, and calls the callee that the context names.
    pub by_context: *const c_void,
    /// Takes a context and a number first, and calls the callee that the number names: the exported `QMPI_X`.
    pub by_number: *const c_void,
    /// The function through which `entry` calls the first tool (`top_X`). `address` finds its frame.
    pub top: *const c_void,
    /// The function that the program calls: `PMPI_X`.
    pub entry: *const c_void,
}

// SAFETY: constant addresses of functions.
unsafe impl Sync for Forms {}

/// Whether the stack is not built yet, or has tools.
static STACKED: AtomicBool = AtomicBool::new(true);

/// Whether an entry point has to look up tools: the stack is not built yet, or not empty.
#[inline(always)]
pub fn is_stacked() -> bool {
    STACKED.load(Relaxed)
}

/// Records that the stack is built.
fn settled() {
    STACKED.store(stack().is_some(), Relaxed);
}

/// The first callee for a function, given by its number. Builds the stack on the first call.
#[inline(always)]
pub fn outermost(function: usize) -> &'static NextTool {
    match stack() {
        Some(stack) => stack.below(0, function),
        None => first(function),
    }
}

/// [`outermost`] if there is no stack: for the first call, for calls that tools make while the stack is built, and for
/// calls after that if the list of tools is empty.
#[cold]
#[inline(never)]
fn first(function: usize) -> &'static NextTool {
    if list::settle() {
        next(0, function)
    } else {
        &NextTool::Mpi
    }
}

/// The callee that a context names. If that tool does not intercept the function: the next callee below that does.
#[inline(never)]
pub fn by_context(context: QmpiContext, function: usize) -> &'static NextTool {
    target(context.0, function)
}

/// The callee that a tool's number names; 0 is MPI itself. If that tool does not intercept the function: the next
/// callee below that does.
#[inline(never)]
pub fn by_number(tool: c_int, function: usize) -> &'static NextTool {
    target(usize::try_from(tool).unwrap_or(0), function)
}

fn target(number: usize, function: usize) -> &'static NextTool {
    match number.checked_sub(1) {
        Some(above) => next(above, function),
        None => &NextTool::Mpi,
    }
}

/// The first callee below instance `above` that intercepts the function, or MPI. `above` 0 is the program.
fn next(above: usize, function: usize) -> &'static NextTool {
    match stack() {
        Some(stack) => stack.below(above, function),
        None => &NextTool::Mpi,
    }
}

/// The number of an instance as a C int; it is at most `stack::MAX_INSTANCES`.
fn number_of(instance: usize) -> c_int {
    c_int::try_from(instance).unwrap_or(0)
}

/// The name of a function by its number.
fn name_of(function: usize) -> Option<&'static str> {
    FUNCTIONS.get(function).map(|(name, _)| *name)
}
