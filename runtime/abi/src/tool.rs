// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 chapter 15, the tool information interface (MPI_T): initialization, finalization, and shared functions. The
//! variables themselves are in the runtime ([`runtime::var`]); this module and the other `tool_` modules are the C
//! interface to them.
//!
//! Nothing here calls an error handler or ends the process. An error is an error class without a text (section 15.3.2).

use core::ffi::c_int;

use runtime::var::{Verbosity, tool_sessions};

use crate::args::{InOutArg, OutArg, OutChars};
use crate::c;
use crate::error::{Error, ErrorClass};
use crate::{init, process, tool_cvar, tool_event};

/// The error of an MPI_T call: the error class that the C function returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToolError(pub ErrorClass);

/// A result of a body of the tool interface.
pub type Result<T> = core::result::Result<T, ToolError>;

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        match error.class() {
            ErrorClass::ARG => Self(ErrorClass::T_INVALID),
            class => Self(class),
        }
    }
}

/// `MPI_T_init_thread`: every level is provided.
pub fn init_thread(required: c_int, provided: OutArg<'_, c_int>) -> Result<()> {
    if !process::tool_begins() {
        return Err(ToolError(ErrorClass::T_CANNOT_INIT));
    }
    // Allocates the memory that signal handlers need to read variables.
    tool_sessions::open();
    provided.set(init::level(required));
    Ok(())
}

/// `MPI_T_finalize`: the call that matches the last open `MPI_T_init_thread` frees all handles and sessions.
pub fn finalize() -> Result<()> {
    match process::tool_ends() {
        (false, _) => return Err(ToolError(ErrorClass::T_NOT_INITIALIZED)),
        (true, true) => {
            tool_cvar::forget_handles();
            tool_event::forget();
            tool_sessions::open().clear();
        }
        (true, false) => {}
    }
    Ok(())
}

/// Writes a text by the rules of section 15.3.3: to `room` as much of the text as fits with a NUL, and to `length` the
/// required length.
pub fn put_text(room: Option<OutChars<'_>>, length: Option<InOutArg<'_, c_int>>, text: &str) {
    let Some(length) = length else {
        return;
    };
    let capacity = usize::try_from(length.get()).unwrap_or(0);
    if let Some(room) = room {
        room.within(capacity).set_bytes(text.as_bytes());
    }
    length.set(number(text.len() + 1));
}

/// Sets an output that may be NULL.
pub fn put<T>(place: Option<OutArg<'_, T>>, value: T) {
    if let Some(place) = place {
        place.set(value);
    }
}

/// A small size as a C int.
pub fn number(size: usize) -> c_int {
    c_int::try_from(size).unwrap_or(c_int::MAX)
}

/// The item at `index`.
pub fn at<T>(mut list: impl Iterator<Item = T>, index: c_int) -> Result<T> {
    let index = usize::try_from(index).map_err(|_| ToolError(ErrorClass::T_INVALID_INDEX))?;
    list.nth(index)
        .ok_or(ToolError(ErrorClass::T_INVALID_INDEX))
}

/// The standard's constant for a verbosity.
pub fn verbosity(of: Verbosity) -> c_int {
    match of {
        Verbosity::UserBasic => c::MPI_T_VERBOSITY_USER_BASIC,
        Verbosity::UserDetail => c::MPI_T_VERBOSITY_USER_DETAIL,
        Verbosity::UserAll => c::MPI_T_VERBOSITY_USER_ALL,
        Verbosity::TunerBasic => c::MPI_T_VERBOSITY_TUNER_BASIC,
        Verbosity::TunerDetail => c::MPI_T_VERBOSITY_TUNER_DETAIL,
        Verbosity::TunerAll => c::MPI_T_VERBOSITY_TUNER_ALL,
        Verbosity::DeveloperBasic => c::MPI_T_VERBOSITY_MPIDEV_BASIC,
        Verbosity::DeveloperDetail => c::MPI_T_VERBOSITY_MPIDEV_DETAIL,
        Verbosity::DeveloperAll => c::MPI_T_VERBOSITY_MPIDEV_ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_argument_errors_become_mpi_t_err_invalid() {
        let null = ToolError::from(Error::null("num"));
        assert_eq!(null, ToolError(ErrorClass::T_INVALID));
        assert_eq!(at([1].into_iter(), 0), Ok(1));
        for index in [-1, 1] {
            let refused = Err(ToolError(ErrorClass::T_INVALID_INDEX));
            assert_eq!(at([1].into_iter(), index), refused);
        }
    }
}
