// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane at `MPI_THREAD_MULTIPLE`, for the thread that has a bias to the lock.
//!
//! # Safety
//! Whoever is here has the lock: so this thread alone is in MPI, none of its own calls is under way (it does not get a bias
//! twice), and what the lane knows does not change. Nothing here enters MPI again before it has given the lock up.

#![allow(
    unsafe_code,
    reason = "reads the program's bytes and writes its request and status"
)]

use core::ffi::{c_int, c_void};

use runtime::var::events;

use crate::express::{Incoming, Outgoing, irecv_in, recv_in, send_in, sendrecv_in};
use crate::express_lanes::{Lane, known, serves};
use crate::express_requests::{startall_in, test_in, testall_in, wait_in, waitall_in, waitany_in};
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Request};
use crate::lock::{self, Biased};
use crate::process::{self, Phase};
use crate::state::universe;
use crate::status::MPI_Status;

/// `MPI_Send` of bytes without a gap that go at once.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Send`.
pub(crate) unsafe fn send(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<c_int> {
    let (lane, _guard) = lane(comm)?;
    // SAFETY: passed on as they came; this thread has the lock.
    unsafe { send_in(lane, buf, count, datatype, dest, tag) }
}

/// `MPI_Irecv` of dense items from a definite rank with a definite tag, if the message is not there yet.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Irecv`.
pub(crate) unsafe fn irecv(
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> Option<c_int> {
    let (lane, _guard) = lane(comm)?;
    // SAFETY: passed on as they came; this thread has the lock.
    unsafe { irecv_in(lane, buf, count, datatype, source, tag, request) }
}

/// `MPI_Recv` of the same; it waits in the ordinary way if the message does not come soon.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Recv`.
pub(crate) unsafe fn recv(
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> Option<c_int> {
    let (lane, guard) = lane(comm)?;
    // SAFETY: passed on as they came; this thread has the lock until the guard is dropped.
    unsafe { recv_in(lane, buf, count, datatype, source, tag, status, guard) }
}

/// `MPI_Sendrecv` of a message that goes at once and one that [`recv`] receives.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Sendrecv`.
pub(crate) unsafe fn sendrecv(
    out: Outgoing,
    into: Incoming,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> Option<c_int> {
    let (lane, guard) = lane(comm)?;
    // SAFETY: passed on as they came; this thread has the lock until the guard is dropped.
    unsafe { sendrecv_in(lane, out, into, status, guard) }
}

/// `MPI_Wait` for a receive that [`irecv`] began, or for a send that was complete at once, if it is complete or becomes so soon.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Wait`.
pub(crate) unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> Option<c_int> {
    let _guard = open()?;
    // SAFETY: passed on as they came; this thread has the lock.
    unsafe { wait_in(request, status) }
}

/// `MPI_Waitall` for the same.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Waitall`.
pub(crate) unsafe fn waitall(
    count: c_int,
    requests: *mut MPI_Request,
    statuses: *mut MPI_Status,
) -> Option<c_int> {
    let guard = open()?;
    // SAFETY: passed on as they came; this thread has the lock until the guard is dropped.
    unsafe { waitall_in(count, requests, statuses, guard) }
}

/// `MPI_Test` for a request that is complete, or whose message has come.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Test`.
pub(crate) unsafe fn test(
    request: *mut MPI_Request,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    let _guard = open()?;
    // SAFETY: passed on as they came; this thread has the lock.
    unsafe { test_in(request, flag, status) }
}

/// `MPI_Testall` for the same.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Testall`.
pub(crate) unsafe fn testall(
    count: c_int,
    requests: *mut MPI_Request,
    flag: *mut c_int,
    statuses: *mut MPI_Status,
) -> Option<c_int> {
    let guard = open()?;
    // SAFETY: passed on as they came; this thread has the lock until the guard is dropped.
    unsafe { testall_in(count, requests, flag, statuses, guard) }
}

/// `MPI_Waitany` for the same.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Waitany`.
pub(crate) unsafe fn waitany(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    let _guard = open()?;
    // SAFETY: passed on as they came; this thread has the lock.
    unsafe { waitany_in(count, requests, index, status) }
}

/// `MPI_Start`.
///
/// # Safety
/// A1 of `args` for the argument of `MPI_Start`.
pub(crate) unsafe fn start(request: *mut MPI_Request) -> Option<c_int> {
    // SAFETY: passed on as it came.
    unsafe { startall(1, request) }
}

/// `MPI_Startall` of persistent sends and receives.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Startall`.
pub(crate) unsafe fn startall(count: c_int, requests: *mut MPI_Request) -> Option<c_int> {
    let guard = open()?;
    // SAFETY: passed on as they came; this thread has the lock until the guard is dropped.
    unsafe { startall_in(count, requests, guard) }
}

/// The lock, if this thread has a bias to it and the lane serves calls that name no communicator.
#[inline(always)]
fn open() -> Option<Biased> {
    let lock = lock::hold_biased()?;
    (serves() && is_undisturbed()).then_some(lock)
}

/// Whether no tool listens to events and no collective goes on in the background: the lane does nothing for them.
#[inline(always)]
fn is_undisturbed() -> bool {
    !events::wanted().any() && {
        // SAFETY: MPI is initialized; this thread alone is in it, and no visit is under way.
        let universe = unsafe { universe() };
        universe.tasks.is_empty()
    }
}

/// The lane of a communicator with the lock, under which alone it may be used.
#[inline(always)]
fn lane(handle: MPI_Comm) -> Option<(&'static Lane, Biased)> {
    let lock = lock::hold_biased()?;
    if !serves() && process::phase() != Phase::Running {
        return None;
    }
    // SAFETY: MPI is initialized; this thread alone is in it, and no visit is under way.
    let lane = unsafe { known(handle) }?;
    is_undisturbed().then_some((lane, lock))
}
