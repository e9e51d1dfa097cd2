// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMPI: tools stacked between the program and MPI, each calling the next one itself.
//!
//! Two forms of one interface are served from the same table. That of the working group's mail of 8 October 2020: a tool's
//! function takes a context before MPI's arguments. And MPICH's, where the tool's number stands between the two. A tool has
//! the form of the function by which it registers; where neighbours differ, each is handed a function of its own form that
//! calls the other ([`Forms`]).
//!
//! Which tools there are is settled once, when the first function of MPI is called (`list`): from then on the stack never changes,
//! and is read without a lock. A context is the number of the instance that is to be called; 0 is MPI itself, and so is any
//! number that was never given out. Without tools all that is left is one comparison in the entry point ([`is_stacked`]), and
//! not even that where an express lane carries the call.
//!
//! # Safety
//! A registered function is called with the arguments of the function that it was registered for, in the form that it was
//! registered with: obligation **Q1** on tools, which C cannot check. Pointers of tools' own are written to only after they
//! were compared with NULL (**Q2**: they are what the interface says).
#![allow(unsafe_code, reason = "functions that C programs hand over")]

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

/// Whom a call is for: 0 for MPI itself, else the number of an instance of a tool. As large as the C struct of one pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct QmpiContext(usize);

impl QmpiContext {
    /// Whether this is MPI's own, behind all tools.
    #[inline(always)]
    pub fn is_mpi(self) -> bool {
        self.0 == 0
    }
}

/// A function of a tool; what it really takes is known where it is called (Q1).
pub type Function = unsafe extern "C" fn();

/// Who is called next, as it stands in the table of the stack.
#[derive(Clone, Copy, Debug)]
pub enum NextTool {
    /// MPI itself.
    Mpi,
    /// A tool whose functions take a context first.
    ByContext(Function, QmpiContext),
    /// A tool whose functions take a context and the tool's number first.
    ByNumber(Function, QmpiContext, c_int),
}

/// What MPI has for one function of the standard: the two functions by which tools call whoever is next, and the two by which
/// the program comes in.
#[derive(Debug)]
pub struct Forms {
    /// Takes a context first, and calls whom it names.
    pub by_context: *const c_void,
    /// Takes a context and a number first, and calls whom the number names: the exported `QMPI_X`.
    pub by_number: *const c_void,
    /// The first frame of a call that goes through tools.
    pub top: *const c_void,
    /// What the program calls: `PMPI_X`.
    pub entry: *const c_void,
}

// SAFETY: addresses of functions, which anybody may read.
unsafe impl Sync for Forms {}

/// Nobody has looked for tools yet, or there are some.
static STACKED: AtomicBool = AtomicBool::new(true);

/// Whether an entry point has to ask for tools at all.
#[inline(always)]
pub fn is_stacked() -> bool {
    STACKED.load(Relaxed)
}

/// Which tools there are is known from now on.
fn settled() {
    STACKED.store(stack().is_some(), Relaxed);
}

/// The tool that is called first for a function, by the number of the function. Settles which tools there are, if that was
/// not done.
#[inline(always)]
pub fn outermost(function: usize) -> &'static NextTool {
    match stack() {
        Some(stack) => stack.below(0, function),
        None => first(function),
    }
}

/// The same for the first calls, and for those that tools make while they are asked.
#[cold]
#[inline(never)]
fn first(function: usize) -> &'static NextTool {
    if list::settle() {
        next(0, function)
    } else {
        &NextTool::Mpi
    }
}

/// Whom a context names, or whoever stands below it if that tool does not intercept the function.
#[inline(never)]
pub fn by_context(context: QmpiContext, function: usize) -> &'static NextTool {
    target(context.0, function)
}

/// Whom the number of a tool names; 0 is MPI itself.
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

/// The first below instance `above` that intercepts the function; 0 is the program.
fn next(above: usize, function: usize) -> &'static NextTool {
    match stack() {
        Some(stack) => stack.below(above, function),
        None => &NextTool::Mpi,
    }
}

/// The number of an instance as C has it: there are few (`stack::MAX_INSTANCES`).
fn number_of(instance: usize) -> c_int {
    c_int::try_from(instance).unwrap_or(0)
}

/// The name of a function by its number.
fn name_of(function: usize) -> Option<&'static str> {
    FUNCTIONS.get(function).map(|(name, _)| *name)
}
