// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error handlers (MPI 5.0 section 9.3).
//!
//! # Safety
//! [`Handler::call`] calls a function of the program. Its obligation **H1**: the function was passed to
//! `MPI_Xxx_create_errhandler`, by whose contract it may be called with the addresses of a handle of that kind and of a
//! code, and without further arguments.
#![allow(unsafe_code, reason = "calls the program's error handlers")]

use core::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::args::{InOutArg, OutArg};
use crate::callback::{
    MPI_Comm_errhandler_function, MPI_File_errhandler_function, MPI_Session_errhandler_function,
    MPI_Win_errhandler_function,
};
use crate::enter::{Mpi, On};
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{
    HandleKind, MPI_Comm, MPI_Errhandler, MPI_File, MPI_Session, MPI_Win, describe,
};
use crate::registry::{HandleRegistry, not_a};
use crate::{lock, process, state};

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
    /// Calls the program's function, if this handler has one, with the object and the code. Returns whether it has one.
    ///
    /// The function is called without the lock. If `on` is not an object of the handler's kind (for example, if the
    /// call has no object), the function gets `MPI_COMM_SELF` or the null handle of the handler's kind.
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
                lock::without(|| unsafe { function(&raw mut comm, code) });
            }
            Self::Win(function) => {
                let mut win = if let On::Win(win) = on {
                    win
                } else {
                    MPI_Win::NULL
                };
                // SAFETY: H1; both pointers are to locals that outlive the call.
                lock::without(|| unsafe { function(&raw mut win, code) });
            }
            Self::File(function) => {
                let mut file = if let On::File(file) = on {
                    file
                } else {
                    MPI_File::NULL
                };
                // SAFETY: H1; both pointers are to locals that outlive the call.
                lock::without(|| unsafe { function(&raw mut file, code) });
            }
            Self::Session(function) => {
                let mut session = if let On::Session(session) = on {
                    session
                } else {
                    MPI_Session::NULL
                };
                // SAFETY: H1; both pointers are to locals that outlive the call.
                lock::without(|| unsafe { function(&raw mut session, code) });
            }
        }
        true
    }
}

/// `MPI_Comm_create_errhandler`.
pub fn comm_create_errhandler(
    _mpi: Mpi,
    function: Option<MPI_Comm_errhandler_function>,
    errhandler: OutArg<'_, MPI_Errhandler>,
) -> Result<()> {
    let function = function.ok_or_else(|| Error::null("comm_errhandler_fn"))?;
    errhandler.set(handlers().insert(Handler::Comm(function))?);
    Ok(())
}

/// `MPI_Comm_set_errhandler`.
pub fn comm_set_errhandler(mpi: Mpi, comm: MPI_Comm, errhandler: MPI_Errhandler) -> Result<()> {
    check_for_comms(errhandler)?;
    mpi.state(|state| {
        state.comm_mut(comm)?.errhandler = errhandler;
        if comm == MPI_Comm::SELF {
            *OF_SELF.lock().unwrap_or_else(PoisonError::into_inner) = errhandler;
        }
        Ok(())
    })
}

/// `MPI_Comm_get_errhandler`.
pub fn comm_get_errhandler(
    mpi: Mpi,
    comm: MPI_Comm,
    errhandler: OutArg<'_, MPI_Errhandler>,
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

/// `MPI_Session_create_errhandler`.
pub fn session_create_errhandler(
    function: Option<MPI_Session_errhandler_function>,
    errhandler: OutArg<'_, MPI_Errhandler>,
) -> Result<()> {
    let function = function.ok_or_else(|| Error::null("session_errhandler_fn"))?;
    errhandler.set(handlers().insert(Handler::Session(function))?);
    Ok(())
}

/// `MPI_Session_set_errhandler`.
pub fn session_set_errhandler(
    mpi: Mpi,
    session: MPI_Session,
    errhandler: MPI_Errhandler,
) -> Result<()> {
    check_for_sessions(errhandler)?;
    mpi.state(|state| {
        state.sessions.get_mut(session)?.errhandler = errhandler;
        Ok(())
    })
}

/// `MPI_Session_get_errhandler`.
pub fn session_get_errhandler(
    mpi: Mpi,
    session: MPI_Session,
    errhandler: OutArg<'_, MPI_Errhandler>,
) -> Result<()> {
    errhandler.set(mpi.state(|state| Ok::<_, Error>(state.sessions.get(session)?.errhandler))?);
    Ok(())
}

/// `MPI_Session_call_errhandler`.
pub fn session_call_errhandler(session: MPI_Session, code: c_int) -> Result<()> {
    let found = state::peek(|state| state.sessions.get(session).map(drop));
    found.unwrap_or_else(|_| Err(not_a(HandleKind::Session, session.0)))?;
    let handler = process::handler(On::Session(session));
    if handler.call(On::Session(session), code) || matches!(handler, Handler::Return) {
        return Ok(());
    }
    Err(Error::new(
        ErrorClass(code),
        "the program called the error handler",
    ))
}

/// `MPI_Errhandler_free`. Frees only the handle: objects with this error handler keep it until another is set.
pub fn errhandler_free(errhandler: InOutArg<'_, MPI_Errhandler>) -> Result<()> {
    find(errhandler.get())?;
    errhandler.set(MPI_Errhandler::NULL);
    Ok(())
}

/// The handler of `MPI_COMM_SELF`, found without a [visit of the state](crate::state).
pub(crate) fn of_self() -> Handler {
    let handler = *OF_SELF.lock().unwrap_or_else(PoisonError::into_inner);
    find(handler).unwrap_or(Handler::Fatal)
}

/// A copy of the handler of `MPI_COMM_SELF`, because any thread may raise an error without an object at any time.
static OF_SELF: Mutex<MPI_Errhandler> = Mutex::new(MPI_Errhandler::ERRORS_ARE_FATAL);

/// Looks an error handler up.
pub(crate) fn find(errhandler: MPI_Errhandler) -> Result<Handler> {
    match errhandler {
        MPI_Errhandler::ERRORS_RETURN => Ok(Handler::Return),
        MPI_Errhandler::ERRORS_ABORT => Ok(Handler::Abort),
        MPI_Errhandler::ERRORS_ARE_FATAL => Ok(Handler::Fatal),
        other => handlers().get(other).copied(),
    }
}

/// Checks that a handler is predefined or made for communicators.
pub(crate) fn check_for_comms(errhandler: MPI_Errhandler) -> Result<()> {
    match find(errhandler)? {
        Handler::Fatal | Handler::Abort | Handler::Return | Handler::Comm(_) => Ok(()),
        _ => Err(other_kind(errhandler, "communicators")),
    }
}

/// Checks that a handler is predefined or made for sessions.
pub(crate) fn check_for_sessions(errhandler: MPI_Errhandler) -> Result<()> {
    match find(errhandler)? {
        Handler::Fatal | Handler::Abort | Handler::Return | Handler::Session(_) => Ok(()),
        _ => Err(other_kind(errhandler, "sessions")),
    }
}

fn other_kind(errhandler: MPI_Errhandler, wanted: &str) -> Error {
    let given = describe(errhandler.0);
    let detail =
        format!("the error handler {given} was made for other objects, one for {wanted} is needed");
    Error::new(ErrorClass::ERRHANDLER, detail)
}

/// The handlers that the program made, possibly before initialization.
static HANDLERS: Mutex<HandleRegistry<MPI_Errhandler, Handler>> = Mutex::new(HandleRegistry::new());

fn handlers() -> MutexGuard<'static, HandleRegistry<MPI_Errhandler, Handler>> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner)
}
