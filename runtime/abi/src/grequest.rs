// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generalized requests: requests for operations of the program (MPI 5.0 section 13.2).
//!
//! # Safety
//! [`Grequest`] calls functions of the program. Obligation **G1**: the functions were passed to `MPI_Grequest_start`,
//! by whose contract they may be called with the program's pointer, and with a status to fill in (query) or a flag
//! (cancel). They are called outside of [visits of the state](crate::state) and without the lock, so they may call MPI.
#![allow(unsafe_code, reason = "calls the program's functions of a request")]

use core::ffi::{c_int, c_void};

use runtime::{ContextId, RequestId};

use crate::args::{ExtraState, OutArg};
use crate::c::MPI_SUCCESS;
use crate::callback::{
    MPI_Grequest_cancel_function, MPI_Grequest_free_function, MPI_Grequest_query_function,
};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::MPI_Request;
use crate::lock;
use crate::state::{request_handle, request_token, stale_request};
use crate::status::MPI_Status;

/// The program's part of a generalized request.
#[derive(Clone, Copy, Debug)]
pub struct Grequest {
    query: MPI_Grequest_query_function,
    free: MPI_Grequest_free_function,
    cancel: MPI_Grequest_cancel_function,
    extra: *mut c_void,
    /// Whether the program freed the request before it was complete.
    given_up: bool,
}

/// `MPI_Grequest_start`.
pub fn grequest_start(
    mpi: Mpi,
    query: Option<MPI_Grequest_query_function>,
    free: Option<MPI_Grequest_free_function>,
    cancel: Option<MPI_Grequest_cancel_function>,
    extra: ExtraState,
    request: OutArg<'_, MPI_Request>,
) -> Result<()> {
    let general = Grequest {
        query: query.ok_or_else(|| Error::null("query_fn"))?,
        free: free.ok_or_else(|| Error::null("free_fn"))?,
        cancel: cancel.ok_or_else(|| Error::null("cancel_fn"))?,
        extra: extra.0,
        given_up: false,
    };
    request.set(mpi.state(|state| {
        let id = state.universe.messages.start_general(ContextId(0))?;
        let token = state.universe.messages.token(id);
        state.grequests.insert(token, general);
        Ok::<_, Error>(request_handle(token))
    })?);
    Ok(())
}

/// `MPI_Grequest_complete`.
pub fn grequest_complete(mpi: Mpi, request: MPI_Request) -> Result<()> {
    let token = request_token(request)?;
    let given_up = mpi.state(|state| {
        let universe = &mut state.universe;
        let id = universe.messages.find_request(token);
        let id = id.ok_or_else(|| stale_request(request))?;
        let Some(general) = state.grequests.get(&token).copied() else {
            let detail = "the request is none that MPI_Grequest_start made";
            return Err(Error::new(ErrorClass::REQUEST, detail));
        };
        if universe.messages.is_complete(id) {
            let detail = "the generalized request is marked as complete already";
            return Err(Error::new(ErrorClass::REQUEST, detail));
        }
        universe.messages.finish_general(id);
        if !general.given_up {
            return Ok(None);
        }
        universe.collect(id);
        Ok(state.grequests.remove(&token))
    })?;
    given_up.map_or(Ok(()), Grequest::freed)
}

/// The program's part of the request `id`, if it is a generalized one.
pub(crate) fn of(mpi: Mpi, id: RequestId) -> Option<Grequest> {
    mpi.state(|state| {
        if state.grequests.is_empty() {
            return None;
        }
        state
            .grequests
            .get(&state.universe.messages.token(id))
            .copied()
    })
}

/// `MPI_Request_free` of a generalized request: the program's free function is called now if the request is complete,
/// otherwise when it becomes complete.
pub(crate) fn free(mpi: Mpi, id: RequestId) -> Result<()> {
    let complete = mpi.state(|state| {
        let token = state.universe.messages.token(id);
        if !state.universe.messages.is_complete(id) {
            if let Some(general) = state.grequests.get_mut(&token) {
                general.given_up = true;
            }
            return None;
        }
        state.universe.collect(id);
        state.grequests.remove(&token)
    });
    complete.map_or(Ok(()), Grequest::freed)
}

impl Grequest {
    /// Calls the query function for the status.
    pub(crate) fn status(self) -> (MPI_Status, Result<()>) {
        let mut status = MPI_Status::EMPTY;
        // SAFETY: G1; the status is a local.
        let code = lock::without(|| unsafe { (self.query)(self.extra, &raw mut status) });
        (status, check_callback("query", code))
    }

    /// Calls the free function.
    pub(crate) fn freed(self) -> Result<()> {
        // SAFETY: G1.
        let code = lock::without(|| unsafe { (self.free)(self.extra) });
        check_callback("free", code)
    }

    /// Calls the cancel function, for `MPI_Cancel`.
    pub(crate) fn cancelled(self, complete: bool) -> Result<()> {
        // SAFETY: G1.
        let code = lock::without(|| unsafe { (self.cancel)(self.extra, c_int::from(complete)) });
        check_callback("cancel", code)
    }
}

fn check_callback(which: &str, code: c_int) -> Result<()> {
    if code == MPI_SUCCESS {
        return Ok(());
    }
    let detail = format!("the program's {which} function of a generalized request answered {code}");
    Err(Error::new(ErrorClass(code), detail))
}
