// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that `infiniband/verbs.h` defines inline: through the table of functions in the context of the object.
//!
//! # Safety
//! Each takes pointers as in C, and requires of its caller what rdma-core's manual page requires of a C program:
//! objects that the library created and that were not destroyed, and work requests whose memory stays valid until their
//! completion. Contexts of drivers always have these functions.
#![allow(unsafe_code)]

use core::ffi::c_int;

use crate::types::*;

/// The error of a call that a driver does not implement.
const MISSING: c_int = libc::EOPNOTSUPP;

/// Polls up to `count` completions; returns how many there were, or a negative value.
///
/// # Safety
/// A live completion queue, and room for `count` completions at `completions`.
#[inline(always)]
pub unsafe fn poll_cq(cq: *mut ibv_cq, count: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: the queue is live.
    let context = unsafe { (*cq).context };
    // SAFETY: its context is valid as long.
    let function = unsafe { (*context).ops.poll_cq };
    // SAFETY: the caller's guarantee.
    function.map_or(-MISSING, |poll| unsafe { poll(cq, count, completions) })
}

/// Requests an event for the next completion; returns 0 or an error number.
///
/// # Safety
/// A live completion queue.
#[inline(always)]
pub unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: the queue is live.
    let context = unsafe { (*cq).context };
    // SAFETY: its context is valid as long.
    let function = unsafe { (*context).ops.req_notify_cq };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |notify| unsafe {
        notify(cq, solicited_only.into())
    })
}

/// Posts a list of sends; returns 0 or an error number, and the first request that was not posted in `bad`.
///
/// # Safety
/// A live queue pair; a list of work requests whose memory is lent until they are complete.
#[inline(always)]
pub unsafe fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair is live.
    let context = unsafe { (*qp).context };
    // SAFETY: its context is valid as long.
    let function = unsafe { (*context).ops.post_send };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |post| unsafe { post(qp, list, bad) })
}

/// Posts a list of receives to a queue pair; returns 0 or an error number, and the first request that was not posted in
/// `bad`.
///
/// # Safety
/// As [`post_send`].
#[inline(always)]
pub unsafe fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue pair is live.
    let context = unsafe { (*qp).context };
    // SAFETY: its context is valid as long.
    let function = unsafe { (*context).ops.post_recv };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |post| unsafe { post(qp, list, bad) })
}

/// Posts a list of receives to a shared receive queue; returns 0 or an error number, and the first request that was not
/// posted in `bad`.
///
/// # Safety
/// As [`post_send`], of a shared receive queue.
#[inline(always)]
pub unsafe fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue is live.
    let context = unsafe { (*srq).context };
    // SAFETY: its context is valid as long.
    let function = unsafe { (*context).ops.post_srq_recv };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |post| unsafe { post(srq, list, bad) })
}
