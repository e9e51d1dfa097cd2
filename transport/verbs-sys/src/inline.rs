// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that `infiniband/verbs.h` defines inline. They call functions of the table in the context of the object.
//!
//! # Safety
//! Each function takes pointers as in C, and its caller must guarantee what rdma-core's manual page requires of a C
//! program: the objects were created by the library and not destroyed, and the memory of work requests stays valid
//! until their completion. The context of an object has the table as long as the object exists.
#![allow(unsafe_code)]

use core::ffi::c_int;

use crate::types::*;

/// The error of a call that a driver does not implement.
const MISSING: c_int = libc::EOPNOTSUPP;

/// Polls up to `count` completions; returns their number, or a negative value on failure.
///
/// # Safety
/// `cq` is a completion queue that was not destroyed, and `completions` has room for `count` completions.
#[inline(always)]
pub unsafe fn poll_cq(cq: *mut ibv_cq, count: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: the queue was not destroyed.
    let context = unsafe { (*cq).context };
    // SAFETY: the context is valid as long as the object is.
    let function = unsafe { (*context).ops.poll_cq };
    // SAFETY: the caller's guarantee.
    function.map_or(-MISSING, |poll| unsafe { poll(cq, count, completions) })
}

/// Requests an event for the next completion, or, with `solicited_only`, for the next solicited one. Returns 0 or an
/// error number.
///
/// # Safety
/// `cq` is a completion queue that was not destroyed.
#[inline(always)]
pub unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: the queue was not destroyed.
    let context = unsafe { (*cq).context };
    // SAFETY: the context is valid as long as the object is.
    let function = unsafe { (*context).ops.req_notify_cq };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |notify| unsafe {
        notify(cq, solicited_only.into())
    })
}

/// Posts a list of sends. Returns 0 or an error number; after an error, `bad` points to the first request that was not
/// posted.
///
/// # Safety
/// `qp` is a queue pair that was not destroyed, and `list` is a list of work requests whose memory stays valid until
/// they have completed.
#[inline(always)]
pub unsafe fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair was not destroyed.
    let context = unsafe { (*qp).context };
    // SAFETY: the context is valid as long as the object is.
    let function = unsafe { (*context).ops.post_send };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |post| unsafe { post(qp, list, bad) })
}

/// Posts a list of receives to a queue pair. Returns 0 or an error number; after an error, `bad` points to the first
/// request that was not posted.
///
/// # Safety
/// As for [`post_send`].
#[inline(always)]
pub unsafe fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue pair was not destroyed.
    let context = unsafe { (*qp).context };
    // SAFETY: the context is valid as long as the object is.
    let function = unsafe { (*context).ops.post_recv };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |post| unsafe { post(qp, list, bad) })
}

/// Posts a list of receives to a shared receive queue. Returns 0 or an error number; after an error, `bad` points to
/// the first request that was not posted.
///
/// # Safety
/// As for [`post_send`], with a shared receive queue instead of the queue pair.
#[inline(always)]
pub unsafe fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue was not destroyed.
    let context = unsafe { (*srq).context };
    // SAFETY: the context is valid as long as the object is.
    let function = unsafe { (*context).ops.post_srq_recv };
    // SAFETY: the caller's guarantee.
    function.map_or(MISSING, |post| unsafe { post(srq, list, bad) })
}
