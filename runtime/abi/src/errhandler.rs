// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of an error: MPI 5.0 section 9.3.
//!
//! # Safety
//! [`Handler::call`] runs a function of the program. Its obligation **H1**: the function was given to
//! `MPI_Xxx_create_errhandler`, by whose contract it may be called with a handle of that kind, a code, and nothing more.
#![allow(unsafe_code, reason = "calls the program's error handlers")]

use core::ffi::c_int;

use crate::callback::{
    MPI_Comm_errhandler_function, MPI_File_errhandler_function, MPI_Session_errhandler_function,
    MPI_Win_errhandler_function,
};
use crate::enter::On;
use crate::handle::{MPI_Comm, MPI_File, MPI_Session, MPI_Win};

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
