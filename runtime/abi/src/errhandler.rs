// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of an error: MPI 5.0 section 9.3.
//!
//! # Safety
//! [`Handler::call`] runs a function of the program. Its obligation **H1**: the function was given to
//! `MPI_Xxx_create_errhandler`, by whose contract it may be called with a handle of that kind, a code, and nothing more.
#![allow(unsafe_code, reason = "calls the program's error handlers")]

use core::ffi::c_int;

use crate::args::{InOut, Out};
use crate::callback::{
    MPI_Comm_errhandler_function, MPI_File_errhandler_function, MPI_Session_errhandler_function,
    MPI_Win_errhandler_function,
};
use crate::enter::{Mpi, On};
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Errhandler, MPI_File, MPI_Session, MPI_Win};
use crate::process;

/// An error handler.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// `MPI_ERRORS_ARE_FATAL`.
    Fatal,
    /// `MPI_ERRORS_ABORT`.
    Abort,
    /// `MPI_ERRORS_RETURN`.
    Return,
    /// Made by `MPI_Comm_create_errhandler`.
    Comm(MPI_Comm_errhandler_function),
    /// Made by `MPI_Win_create_errhandler`.
    Win(MPI_Win_errhandler_function),
    /// Made by `MPI_File_create_errhandler`.
    File(MPI_File_errhandler_function),
    /// Made by `MPI_Session_create_errhandler`.
    Session(MPI_Session_errhandler_function),
}

impl Handler {
    /// Calls a handler of the program's own with the object and the code; says whether there was one to call.
    ///
    /// Where the object is of another kind than the handler, which only a call without an object can bring about, the
    /// handler gets the standard's default object of its kind.
    pub fn call(self, on: On, code: c_int) -> bool {
        let mut code = code;
        let code = &raw mut code;
        match self {
            Self::Fatal | Self::Abort | Self::Return => return false,
            Self::Comm(function) => {
                let mut comm = if let On::Comm(comm) = on {
                    comm
                } else {
                    MPI_Comm::SELF
                };
                // SAFETY: H1; both pointers are to locals that outlive the call.
                unsafe { function(&raw mut comm, code) };
            }
            Self::Win(function) => {
                let mut win = if let On::Win(win) = on {
                    win
                } else {
                    MPI_Win::NULL
                };
                // SAFETY: H1; both pointers are to locals that outlive the call.
                unsafe { function(&raw mut win, code) };
            }
            Self::File(function) => {
                let mut file = if let On::File(file) = on {
                    file
                } else {
                    MPI_File::NULL
                };
                // SAFETY: H1; both pointers are to locals that outlive the call.
                unsafe { function(&raw mut file, code) };
            }
            Self::Session(function) => {
                let mut session = if let On::Session(session) = on {
                    session
                } else {
                    MPI_Session::NULL
                };
                // SAFETY: H1; both pointers are to locals that outlive the call.
                unsafe { function(&raw mut session, code) };
            }
        }
        true
    }
}

/// `MPI_Comm_create_errhandler`.
pub fn comm_create_errhandler(
    mpi: Mpi,
    function: Option<MPI_Comm_errhandler_function>,
    errhandler: Out<'_, MPI_Errhandler>,
) -> Result<()> {
    let function = function.ok_or_else(|| Error::null("comm_errhandler_fn"))?;
    errhandler.set(mpi.state(|state| state.errhandlers.insert(function))?);
    Ok(())
}

/// `MPI_Comm_set_errhandler`.
pub fn comm_set_errhandler(mpi: Mpi, comm: MPI_Comm, errhandler: MPI_Errhandler) -> Result<()> {
    mpi.state(|state| {
        if !is_predefined(errhandler) {
            state.errhandlers.get(errhandler)?;
        }
        state.comm_mut(comm)?.errhandler = errhandler;
        Ok(())
    })
}

/// `MPI_Comm_get_errhandler`.
pub fn comm_get_errhandler(
    mpi: Mpi,
    comm: MPI_Comm,
    errhandler: Out<'_, MPI_Errhandler>,
) -> Result<()> {
    errhandler.set(mpi.state(|state| Ok::<_, Error>(state.comm(comm)?.errhandler))?);
    Ok(())
}

/// `MPI_Comm_call_errhandler`.
pub fn comm_call_errhandler(mpi: Mpi, comm: MPI_Comm, code: c_int) -> Result<()> {
    mpi.state(|state| state.comm(comm).map(drop))?;
    let handler = process::handler(On::Comm(comm));
    if handler.call(On::Comm(comm), code) || matches!(handler, Handler::Return) {
        return Ok(());
    }
    Err(Error::new(
        ErrorClass(code),
        "the program called the error handler",
    ))
}

/// `MPI_Errhandler_free`. A handler that is still attached somewhere stays there until it is replaced: the function is
/// kept, only the handle goes.
pub fn errhandler_free(errhandler: InOut<'_, MPI_Errhandler>) -> Result<()> {
    errhandler.set(MPI_Errhandler::NULL);
    Ok(())
}

/// Whether a handle is one of the standard's three.
pub(crate) fn is_predefined(errhandler: MPI_Errhandler) -> bool {
    let known = [
        MPI_Errhandler::ERRORS_ARE_FATAL,
        MPI_Errhandler::ERRORS_ABORT,
        MPI_Errhandler::ERRORS_RETURN,
    ];
    known.contains(&errhandler)
}
