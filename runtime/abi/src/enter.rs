// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame around every body: checks that MPI is initialized, takes the lock, runs the body, and raises the error
//! that the body returns.

use core::ffi::c_int;
use core::marker::PhantomData;

use runtime::var::events;

use crate::c;
use crate::errhandler::Handler;
use crate::error::{Error, ErrorClass, Result, remember};
use crate::handle::{self, MPI_Comm, MPI_File, MPI_Request, MPI_Session, MPI_Win};
use crate::lock;
use crate::process::{self, ProcessPhase};
use crate::tool::ToolError;
use crate::tool_event;

/// Proof that MPI is initialized and that this thread holds the lock, if there is one. Bodies get an `Mpi` as an
/// argument, and pass it on.
#[derive(Clone, Copy, Debug)]
pub struct Mpi {
    function: &'static str,
    of_this_thread: PhantomData<*const ()>,
}

impl Mpi {
    fn within(function: &'static str) -> Self {
        Self {
            function,
            of_this_thread: PhantomData,
        }
    }

    /// The function that the program called.
    pub fn function(self) -> &'static str {
        self.function
    }
}

/// The object whose error handler is called for an error (MPI 5.0 section 9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// No object: errors are raised on `MPI_COMM_SELF`, by section 9.3.
    Nothing,
    /// A communicator.
    Comm(MPI_Comm),
    /// A window.
    Win(MPI_Win),
    /// A file; `MPI_FILE_NULL` for a call without an open file.
    File(MPI_File),
    /// A session.
    Session(MPI_Session),
    /// The communicator, window or file of a request.
    Request(MPI_Request),
}

impl On {
    /// The standard's name of the object, if it is a predefined one.
    pub fn predefined_name(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Request(_) => None,
            Self::Comm(comm) => handle::predefined_name(comm.0),
            Self::Win(win) => handle::predefined_name(win.0),
            Self::File(file) => handle::predefined_name(file.0),
            Self::Session(session) => handle::predefined_name(session.0),
        }
    }
}

/// Runs the body of the MPI function `name`, which needs MPI to be initialized.
#[inline]
pub fn enter(name: &'static str, on: On, body: impl FnOnce(Mpi) -> Result<()>) -> c_int {
    if process::phase() != ProcessPhase::Running {
        not_running(name);
    }
    let held = lock::hold();
    let result = body(Mpi::within(name));
    drop(held);
    let code = match result {
        Ok(()) => c::MPI_SUCCESS,
        Err(error) => raise_within(name, on, &error),
    };
    if events::wanted().any() {
        tool_event::after_call();
    }
    code
}

#[cold]
fn raise_within(name: &'static str, on: On, error: &Error) -> c_int {
    if events::wanted().has(runtime::EventType::ErrorRaised) {
        tool_event::note_error(error.class());
    }
    raise(name, on, error)
}

/// Runs the body of the private function `name`, which has result codes of its own. `None` if MPI is not initialized,
/// or already finalized.
#[inline]
pub fn enter_private<R>(name: &'static str, body: impl FnOnce(Mpi) -> R) -> Option<R> {
    if process::phase() != ProcessPhase::Running {
        return None;
    }
    let held = lock::hold();
    let result = body(Mpi::within(name));
    drop(held);
    Some(result)
}

/// Runs the body of a function that may be called at any time and from any thread.
#[inline]
pub fn enter_any_time(name: &'static str, on: On, body: impl FnOnce() -> Result<()>) -> c_int {
    match body() {
        Ok(()) => c::MPI_SUCCESS,
        Err(error) => raise(name, on, &error),
    }
}

/// Runs the body of a function of the tool interface. Such a function may be called at any time and from any thread,
/// and calls no error handler (MPI 5.0 section 15.3.2). Without an open `MPI_T_init_thread` it returns
/// `MPI_T_ERR_NOT_INITIALIZED`.
#[inline]
pub fn enter_tool(
    name: &'static str,
    body: impl FnOnce() -> core::result::Result<(), ToolError>,
) -> c_int {
    if name != "MPI_T_init_thread" && !process::tools_are_on() {
        return c::MPI_T_ERR_NOT_INITIALIZED;
    }
    match body() {
        Ok(()) => c::MPI_SUCCESS,
        Err(ToolError(class)) => class.0,
    }
}

/// The result of a function without a body.
#[cold]
pub fn unsupported(name: &'static str, on: On) -> c_int {
    if process::phase() != ProcessPhase::Running {
        not_running(name);
    }
    unsupported_any_time(name, on)
}

/// The result of a function without a body that may be called at any time.
#[cold]
pub fn unsupported_any_time(name: &'static str, on: On) -> c_int {
    process::note_missing(name);
    let detail = format!("{name} is not implemented in this version of rmpi");
    raise(
        name,
        on,
        &Error::new(ErrorClass::UNSUPPORTED_OPERATION, detail),
    )
}

/// Raises `error` of the MPI function `name` on the object stored in the error ([`Error::on`]) or, if there is none, on
/// `on`, the object in the function's parameters. Returns the error code.
#[cold]
pub fn raise(name: &'static str, on: On, error: &Error) -> c_int {
    let on = error.on().unwrap_or(on);
    let code = error.class().0;
    remember(error);
    match process::handler(on) {
        Handler::Return => {}
        Handler::Fatal | Handler::Abort => {
            eprintln!("{}", message(name, on, error));
            let class = error.class();
            process::end(code, &format!("a fatal MPI error ({class}) in {name}"));
        }
        handler => {
            handler.call(on, code);
        }
    }
    code
}

/// The message of a fatal error: process, function, object, reason and class; at most five lines.
pub fn message(name: &str, on: On, error: &Error) -> String {
    let object = match process::name_of(on) {
        Some(object) => format!(" on {object}"),
        None => String::new(),
    };
    let who = process::identity();
    let text = format!(
        "{who}: {name}{object} failed: {} ({})",
        error.detail(),
        error.class()
    );
    text.lines()
        .take(MESSAGE_LINES)
        .collect::<Vec<_>>()
        .join("\n")
}

const MESSAGE_LINES: usize = 5;

/// Ends the process, because MPI was called too early or too late and there is no error handler.
#[cold]
fn not_running(name: &'static str) -> ! {
    let what = match process::phase() {
        ProcessPhase::Finalized => "after MPI_Finalize",
        ProcessPhase::Before | ProcessPhase::Running => "before MPI_Init",
    };
    eprintln!("{}: {name} was called {what}", process::identity());
    process::end(1, &format!("a call of {name} {what}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatal_error_message_has_rank_function_reason_and_class() {
        process::set_identity(process::Identity { rank: 3, size: 64 });
        let detail = "destination rank 99 is not in the communicator, which has 64 ranks";
        let error = Error::new(ErrorClass::RANK, detail);
        let text = message("MPI_Send", On::Comm(MPI_Comm::WORLD), &error);
        let host = process::host();
        assert_eq!(
            text,
            format!(
                "rank 3 of 64 on host {host}: MPI_Send on MPI_COMM_WORLD failed: {detail} (MPI_ERR_RANK)"
            )
        );
        let long = Error::new(ErrorClass::OTHER, "a\nb\nc\nd\ne\nf\ng");
        assert_eq!(message("MPI_Send", On::Nothing, &long).lines().count(), 5);
    }

    #[test]
    fn mpi_t_errors_are_mpi_t_codes_and_call_no_error_handler() {
        process::tool_begins();
        let null = || Err(Error::null("name").into());
        assert_eq!(
            enter_tool("MPI_T_cvar_get_index", null),
            c::MPI_T_ERR_INVALID
        );
        let index = || Err(ToolError(ErrorClass::T_INVALID_INDEX));
        assert_eq!(
            enter_tool("MPI_T_cvar_read", index),
            c::MPI_T_ERR_INVALID_INDEX
        );
    }

    #[test]
    fn a_file_error_returns_its_code() {
        let on = On::File(MPI_File::NULL);
        let code = unsupported_any_time("MPI_File_open", on);
        assert_eq!(code, c::MPI_ERR_UNSUPPORTED_OPERATION);
        assert!(
            crate::error::string_of(code)
                .unwrap()
                .contains("MPI_File_open is not implemented")
        );
    }
}
