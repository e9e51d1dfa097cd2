// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane for requests: fast paths of the calls that wait for, test and start requests. As in `express`, each
//! function returns `None` except in the common case. To *collect* a complete request means: to return its status, and
//! to free the request or, if it is persistent, to make it inactive.
//!
//! # Safety
//! As in `express`: the lane is open, so no other thread is in MPI, and no other MPI call of this thread is in
//! progress.
#![allow(
    unsafe_code,
    reason = "reads and writes the program's requests and statuses"
)]

use core::ffi::c_int;

use runtime::{Ended, Universe};

use crate::args::{OutStatus, OutStatuses};
use crate::c::MPI_SUCCESS;
use crate::express::{self, write_status};
use crate::express_lanes::is_open;
use crate::handle::MPI_Request;
use crate::request::{finish_startall, finish_waitall};
use crate::state::{DEFERRED, DONE, express_token, universe};
use crate::status::MPI_Status;

/// `MPI_Wait` for a receive that completes soon, for a send that was complete when it was started, or for a persistent
/// request that completes soon.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Wait`.
#[inline(always)]
pub unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on.
    unsafe { wait_in(request, status) }
}

/// [`wait`] without a check that the lane is open.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Wait`; no other thread is in MPI.
#[inline(always)]
pub(crate) unsafe fn wait_in(request: *mut MPI_Request, status: *mut MPI_Status) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    // SAFETY: A1, and not NULL.
    let handle = unsafe { request.read() };
    let Some(token) = express_token(handle) else {
        // SAFETY: the caller's obligations, passed on; not NULL.
        return unsafe { wait_for_done(handle, request, status) };
    };
    // SAFETY: the lane is open.
    let Some(received) = unsafe { universe() }.wait_briefly(token) else {
        // SAFETY: the caller's obligations, passed on.
        return unsafe { wait_for_started(token, status) };
    };
    // SAFETY: A1, and not NULL.
    unsafe { request.write(MPI_Request::NULL) };
    // SAFETY: A1; the lane is open.
    Some(unsafe { write_status(status, received) })
}

/// `MPI_Wait` for a persistent request that completes soon. Its handle stays valid.
///
/// # Safety
/// A1 of `args`; the lane is open.
#[inline(never)]
unsafe fn wait_for_started(token: u32, status: *mut MPI_Status) -> Option<c_int> {
    // SAFETY: the lane is open.
    let universe = unsafe { universe() };
    let ended = universe.wait_for_started(token)?;
    // SAFETY: A1.
    unsafe { OutStatus::new(status) }.set(status_of(universe, ended));
    Some(MPI_SUCCESS)
}

/// `MPI_Wait` for a send that was complete when it was started.
///
/// # Safety
/// A1 of `args`; `request` is not NULL.
#[inline(never)]
unsafe fn wait_for_done(
    handle: MPI_Request,
    request: *mut MPI_Request,
    status: *mut MPI_Status,
) -> Option<c_int> {
    if handle == DEFERRED {
        // SAFETY: the lane is open.
        unsafe { universe() }.send_deferred();
    } else if handle != DONE {
        return None;
    }
    // SAFETY: A1, and not NULL.
    unsafe { request.write(MPI_Request::NULL) };
    // SAFETY: A1.
    unsafe { OutStatus::new(status) }.set(MPI_Status::EMPTY);
    Some(MPI_SUCCESS)
}

/// `MPI_Waitall` of requests that [`wait`] can handle. The first other request, and all after it, are left to the
/// ordinary path.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Waitall`.
pub unsafe fn waitall(
    count: c_int,
    requests: *mut MPI_Request,
    statuses: *mut MPI_Status,
) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on.
    unsafe { waitall_in(count, requests, statuses, ()) }
}

/// [`waitall`] without a check that the lane is open. `guard` keeps other threads out of MPI; it is dropped before the
/// call continues on the ordinary path.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Waitall`; no other thread is in MPI.
#[inline(always)]
pub(crate) unsafe fn waitall_in<G>(
    count: c_int,
    requests: *mut MPI_Request,
    statuses: *mut MPI_Status,
    guard: G,
) -> Option<c_int> {
    let count = usize::try_from(count).ok()?;
    if requests.is_null() {
        return None;
    }
    // SAFETY: A2: the array has `count` statuses, unless it is NULL.
    let out = unsafe { OutStatuses::new(statuses, count) };
    for at in 0..count {
        // SAFETY: A1: the array has `count` handles.
        let place = unsafe { requests.add(at) };
        // SAFETY: A1, and not NULL.
        let request = unsafe { place.read() };
        let mut stays = false;
        if request == DONE {
            out.set(at, MPI_Status::EMPTY);
        } else if request == MPI_Request::NULL {
            out.set_empty(at);
        } else {
            // SAFETY: the lane is open.
            let Some(ended) = (unsafe { settle(request) }) else {
                drop(guard);
                // SAFETY: A2: the array has `count` handles.
                let requests = unsafe { core::slice::from_raw_parts_mut(requests, count) };
                return finish_waitall("MPI_Waitall", requests, out, at);
            };
            out.set(at, ended.0);
            stays = ended.1;
        }
        if !stays {
            // SAFETY: A1, and not NULL.
            unsafe { place.write(MPI_Request::NULL) };
        }
    }
    Some(MPI_SUCCESS)
}

/// Waits briefly for a request and collects it; `None` if it does not complete soon. Returns its status, and whether
/// its handle stays valid (it is persistent).
///
/// # Safety
/// The lane is open.
#[inline(always)]
unsafe fn settle(request: MPI_Request) -> Option<(MPI_Status, bool)> {
    let Some(token) = express_token(request) else {
        // SAFETY: the lane is open.
        return unsafe { take_deferred(request) };
    };
    // SAFETY: the lane is open.
    let universe = unsafe { universe() };
    if let Some(received) = universe.wait_briefly(token) {
        return Some((express::status_of(universe, received), false));
    }
    let ended = universe.wait_for_started(token)?;
    Some((status_of(universe, ended), true))
}

/// `MPI_Test` for a request that is complete, whose message has arrived, or that is in progress while nothing arrives.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Test`.
pub unsafe fn test(
    request: *mut MPI_Request,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on; the lane is open.
    unsafe { test_in(request, flag, status) }
}

/// [`test()`] without a check that the lane is open.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Test`; no other thread is in MPI.
#[inline(always)]
pub(crate) unsafe fn test_in(
    request: *mut MPI_Request,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    if request.is_null() || flag.is_null() {
        return None;
    }
    // SAFETY: A1, and not NULL.
    let handle = unsafe { request.read() };
    // SAFETY: the lane is open.
    let Some((ended, stays)) = (unsafe { take(handle, true) }) else {
        // SAFETY: the lane is open.
        let is_not_yet = unsafe { universe() }.is_not_yet(express_token(handle)?);
        return is_not_yet.then(|| {
            // SAFETY: A1, and not NULL.
            unsafe { flag.write(0) };
            MPI_SUCCESS
        });
    };
    if !stays {
        // SAFETY: A1, and not NULL.
        unsafe { request.write(MPI_Request::NULL) };
    }
    // SAFETY: A1, and not NULL.
    unsafe { flag.write(1) };
    // SAFETY: A1.
    unsafe { OutStatus::new(status) }.set(ended);
    Some(MPI_SUCCESS)
}

/// `MPI_Testall` for requests that are all complete, or whose messages have arrived.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Testall`.
pub unsafe fn testall(
    count: c_int,
    requests: *mut MPI_Request,
    flag: *mut c_int,
    statuses: *mut MPI_Status,
) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on; the lane is open.
    unsafe { testall_in(count, requests, flag, statuses, ()) }
}

/// [`testall`] without a check that the lane is open. `guard` keeps other threads out of MPI; it is dropped before the
/// call continues on the ordinary path.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Testall`; no other thread is in MPI.
pub(crate) unsafe fn testall_in<G>(
    count: c_int,
    requests: *mut MPI_Request,
    flag: *mut c_int,
    statuses: *mut MPI_Status,
    guard: G,
) -> Option<c_int> {
    if flag.is_null() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on.
    let list = unsafe { list(count, requests) }?;
    // SAFETY: the lane is open.
    if !unsafe { are_collectable(list) } {
        // SAFETY: the lane is open.
        let has_taken = unsafe { universe() }.take_in_arrived();
        // SAFETY: the lane is open.
        if !has_taken || !unsafe { are_collectable(list) } {
            return None;
        }
    }
    // SAFETY: A2: the array has as many statuses as the list has handles, unless it is NULL.
    let out = unsafe { OutStatuses::new(statuses, list.len()) };
    for at in 0..list.len() {
        if list[at] == MPI_Request::NULL {
            out.set_empty(at);
            continue;
        }
        // SAFETY: the lane is open.
        let Some((ended, stays)) = (unsafe { take(list[at], false) }) else {
            // A request that was collectable cannot be collected any more: the list contains it twice.
            drop(guard);
            // SAFETY: A1, and not NULL.
            unsafe { flag.write(1) };
            return finish_waitall("MPI_Testall", list, out, at);
        };
        out.set(at, ended);
        if !stays {
            list[at] = MPI_Request::NULL;
        }
    }
    // SAFETY: A1, and not NULL.
    unsafe { flag.write(1) };
    Some(MPI_SUCCESS)
}

/// `MPI_Waitany` if one of the requests is complete, or its message has arrived.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Waitany`.
pub unsafe fn waitany(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on; the lane is open.
    unsafe { waitany_in(count, requests, index, status) }
}

/// [`waitany`] without a check that the lane is open.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Waitany`; no other thread is in MPI.
pub(crate) unsafe fn waitany_in(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    if index.is_null() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on.
    let list = unsafe { list(count, requests) }?;
    for round in 0..2 {
        // SAFETY: the lane is open.
        if round != 0 && !unsafe { universe() }.take_in_arrived() {
            return None;
        }
        for (at, request) in list.iter_mut().enumerate() {
            // SAFETY: the lane is open.
            let Some((ended, stays)) = (unsafe { take(*request, false) }) else {
                continue;
            };
            if !stays {
                *request = MPI_Request::NULL;
            }
            // SAFETY: A1, and not NULL.
            unsafe { index.write(c_int::try_from(at).unwrap_or(c_int::MAX)) };
            // SAFETY: A1.
            unsafe { OutStatus::new(status) }.set(ended);
            return Some(MPI_SUCCESS);
        }
    }
    None
}

/// `MPI_Start`.
///
/// # Safety
/// A1 of `args` for the argument of `MPI_Start`.
pub unsafe fn start(request: *mut MPI_Request) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on; the lane is open.
    unsafe { startall_in(1, request, ()) }
}

/// `MPI_Startall` of persistent sends and receives.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Startall`.
pub unsafe fn startall(count: c_int, requests: *mut MPI_Request) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on; the lane is open.
    unsafe { startall_in(count, requests, ()) }
}

/// [`startall`] without a check that the lane is open. The first request that cannot be started here, and all after it,
/// are left to the ordinary path. `guard` keeps other threads out of MPI; it is dropped before the call continues on
/// the ordinary path.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Startall`; no other thread is in MPI.
pub(crate) unsafe fn startall_in<G>(
    count: c_int,
    requests: *mut MPI_Request,
    guard: G,
) -> Option<c_int> {
    // SAFETY: the caller's obligations, passed on.
    let list = unsafe { list(count, requests) }?;
    for (at, request) in list.iter().enumerate() {
        // SAFETY: the lane is open.
        let universe = unsafe { universe() };
        if !express_token(*request).is_some_and(|token| universe.start_fast(token)) {
            drop(guard);
            return finish_startall(list, at);
        }
    }
    Some(MPI_SUCCESS)
}

/// The array of handles as a slice; `None` if the arguments are invalid.
///
/// # Safety
/// A2 of `args` for a count and an array of handles.
unsafe fn list<'a>(count: c_int, requests: *mut MPI_Request) -> Option<&'a mut [MPI_Request]> {
    let count = usize::try_from(count).ok()?;
    if requests.is_null() {
        return None;
    }
    // SAFETY: A2: the array has `count` handles.
    Some(unsafe { core::slice::from_raw_parts_mut(requests, count) })
}

/// Whether all these requests are null, or complete and collectable by [`take`].
///
/// # Safety
/// The lane is open.
unsafe fn are_collectable(list: &[MPI_Request]) -> bool {
    // SAFETY: the lane is open.
    let universe = unsafe { universe() };
    list.iter().all(|request| {
        *request == DONE
            || *request == MPI_Request::NULL
            || express_token(*request).map_or(*request == DEFERRED, |token| {
                universe.messages.is_collectable(token)
            })
    })
}

/// Collects a complete request; returns its status, and whether its handle stays valid. `polls`: whether to process
/// arrived messages if the request is not complete.
///
/// # Safety
/// The lane is open.
#[inline]
unsafe fn take(request: MPI_Request, polls: bool) -> Option<(MPI_Status, bool)> {
    if request == DONE {
        return Some((MPI_Status::EMPTY, false));
    }
    let Some(token) = express_token(request) else {
        // SAFETY: the lane is open.
        return unsafe { take_deferred(request) };
    };
    // SAFETY: the lane is open.
    let universe = unsafe { universe() };
    let mut ended = universe.collect_fast(token);
    if ended.is_none() && polls && universe.messages.has_first_frame() {
        if let Some(received) = universe.take_if_first(token) {
            return Some((express::status_of(universe, received), false));
        }
        if universe.take_in_arrived() {
            ended = universe.collect_fast(token);
        }
    }
    let (ended, stays) = ended?;
    Some((status_of(universe, ended), stays))
}

/// Collects the request of a deferred send; `None`: it is another request.
///
/// # Safety
/// The lane is open.
#[cold]
unsafe fn take_deferred(request: MPI_Request) -> Option<(MPI_Status, bool)> {
    if request != DEFERRED {
        return None;
    }
    // SAFETY: the lane is open.
    unsafe { universe() }.send_deferred();
    Some((MPI_Status::EMPTY, false))
}

fn status_of(universe: &Universe, ended: Ended) -> MPI_Status {
    match ended {
        Ended::Received(received) => express::status_of(universe, received),
        Ended::Sent => MPI_Status::EMPTY,
    }
}
