// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane at `MPI_THREAD_MULTIPLE`, for a thread that gets the lock without waiting.
//!
//! # Safety
//! Each function first takes the lock, or returns `None`. Under the lock no other thread is in MPI, no other MPI call
//! of this thread is in progress (the lock was taken in a way that is not recursive), and no other thread changes the
//! lane's tables. Nothing here calls MPI before the lock is released.

#![allow(
    unsafe_code,
    reason = "reads the program's bytes and writes its request and status"
)]

use core::ffi::{c_int, c_void};

use runtime::ToFarPeer;
use runtime::var::events;

use crate::express::{Incoming, Outgoing, irecv_in, recv_in, send_in, sendrecv_in};
use crate::express_lanes::{known, serves};
use crate::express_requests::{startall_in, test_in, testall_in, wait_in, waitall_in, waitany_in};
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Request};
use crate::lock;
use crate::process::{self, ProcessPhase};
use crate::state::universe;
use crate::status::MPI_Status;

/// Declares functions of the lane. Each function has two bodies: one for the thread that has the
/// [bias](lock::hold_biased) to the lock, and an outlined one that takes the lock if it is free. `in` names the
/// communicator whose lane the function needs, if it needs one.
macro_rules! with_lock {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(in $comm:ident as $lane:ident)? |$guard:ident| $call:expr;
    )*) => { $(
        $(#[$attribute])*
        pub(crate) unsafe fn $name($($argument: $kind),*) -> Option<c_int> {
            #[inline(always)]
            unsafe fn under<G>($guard: G, $($argument: $kind),*) -> Option<c_int> {
                if !is_open(with_lock!(@serves $($comm)?)) {
                    return None;
                }
                $(
                    // SAFETY: MPI is initialized; no other thread is in it, and no visit is in progress.
                    let $lane = unsafe { known($comm) }?;
                )?
                // SAFETY: the caller's obligations, passed on; this thread has the lock until the guard is dropped.
                unsafe { $call }
            }
            #[cold]
            #[inline(never)]
            unsafe fn unbiased($($argument: $kind),*) -> Option<c_int> {
                let guard = lock::hold_free()?;
                // SAFETY: the caller's obligations, passed on.
                unsafe { under(guard, $($argument),*) }
            }
            if !lock::is_multiple() {
                return None;
            }
            if let Some(guard) = lock::hold_biased() {
                // SAFETY: the caller's obligations, passed on.
                let done = unsafe { under(guard, $($argument),*) };
                if done.is_some() {
                    return done;
                }
            }
            // If a thread has the bias, this returns `None`. SAFETY: as above.
            unsafe { unbiased($($argument),*) }
        }
    )* };
    // Whether the lane can be used. The first rule is for calls without a communicator, the second for calls with one.
    (@serves) => { serves() };
    (@serves $comm:ident) => { serves() || process::phase() == ProcessPhase::Running };
}

with_lock! {
    /// `MPI_Send` of contiguous bytes, if the message can be posted immediately.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Send`.
    fn send(
        buf: *const c_void,
        count: c_int,
        datatype: MPI_Datatype,
        dest: c_int,
        tag: c_int,
        comm: MPI_Comm,
    ) in comm as lane |_guard| send_in(lane, buf, count, datatype, dest, tag, ToFarPeer::Post);

    /// As [`send`], but leaves messages to other nodes to the general path, which can defer them.
    ///
    /// # Safety
    /// As [`send`].
    fn isend(
        buf: *const c_void,
        count: c_int,
        datatype: MPI_Datatype,
        dest: c_int,
        tag: c_int,
        comm: MPI_Comm,
    ) in comm as lane |_guard| send_in(lane, buf, count, datatype, dest, tag, ToFarPeer::Leave);

    /// `MPI_Irecv` of contiguous items without wildcards. If the message has arrived already, returns `None`.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Irecv`.
    fn irecv(
        buf: *mut c_void,
        count: c_int,
        datatype: MPI_Datatype,
        source: c_int,
        tag: c_int,
        comm: MPI_Comm,
        request: *mut MPI_Request,
    ) in comm as lane |_guard| irecv_in(lane, buf, count, datatype, source, tag, request);

    /// `MPI_Recv` of contiguous items without wildcards. If the message has arrived already, returns `None`. If it does
    /// not arrive soon, the wait continues on the ordinary path.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Recv`.
    fn recv(
        buf: *mut c_void,
        count: c_int,
        datatype: MPI_Datatype,
        source: c_int,
        tag: c_int,
        comm: MPI_Comm,
        status: *mut MPI_Status,
    ) in comm as lane |guard| recv_in(lane, buf, count, datatype, source, tag, status, guard);

    /// `MPI_Sendrecv` whose message can be posted immediately. It receives as [`recv`] does.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Sendrecv`.
    fn sendrecv(
        out: Outgoing,
        into: Incoming,
        comm: MPI_Comm,
        status: *mut MPI_Status,
    ) in comm as lane |guard| sendrecv_in(lane, out, into, status, guard);

    /// `MPI_Wait` for a send that was complete when it was started, or for a receive of [`irecv`] or a persistent
    /// request that completes soon.
    ///
    /// # Safety
    /// A1 of `args` for the arguments of `MPI_Wait`.
    fn wait(request: *mut MPI_Request, status: *mut MPI_Status) |_guard| wait_in(request, status);

    /// `MPI_Waitall` for requests that [`wait`] can handle.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Waitall`.
    fn waitall(
        count: c_int,
        requests: *mut MPI_Request,
        statuses: *mut MPI_Status,
    ) |guard| waitall_in(count, requests, statuses, guard);

    /// `MPI_Test` for a request that is complete; for a receive whose message has arrived; and for a request in
    /// progress if a turn of progress finds nothing to do (then `flag` is false).
    ///
    /// # Safety
    /// A1 of `args` for the arguments of `MPI_Test`.
    fn test(
        request: *mut MPI_Request,
        flag: *mut c_int,
        status: *mut MPI_Status,
    ) |_guard| test_in(request, flag, status);

    /// `MPI_Testall` for requests that are all complete, or whose messages have all arrived.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Testall`.
    fn testall(
        count: c_int,
        requests: *mut MPI_Request,
        flag: *mut c_int,
        statuses: *mut MPI_Status,
    ) |guard| testall_in(count, requests, flag, statuses, guard);

    /// `MPI_Waitany` if one of the requests is complete, or its message has arrived.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Waitany`.
    fn waitany(
        count: c_int,
        requests: *mut MPI_Request,
        index: *mut c_int,
        status: *mut MPI_Status,
    ) |_guard| waitany_in(count, requests, index, status);

    /// `MPI_Startall` of persistent sends and receives.
    ///
    /// # Safety
    /// A1 and A2 of `args` for the arguments of `MPI_Startall`.
    fn startall(count: c_int, requests: *mut MPI_Request) |guard| startall_in(count, requests, guard);
}

/// `MPI_Start`.
///
/// # Safety
/// A1 of `args` for the argument of `MPI_Start`.
pub(crate) unsafe fn start(request: *mut MPI_Request) -> Option<c_int> {
    // SAFETY: the caller's obligations, passed on.
    unsafe { startall(1, request) }
}

/// Whether the lane can be used: `serves` is true, no tool receives events, and no collective runs in the background
/// (the lane handles neither). The caller holds the lock.
#[inline(always)]
fn is_open(serves: bool) -> bool {
    serves && !events::wanted().any() && {
        // SAFETY: MPI is initialized; no other thread is in it, and no visit is in progress.
        let universe = unsafe { universe() };
        universe.tasks.is_empty()
    }
}
