// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that `infiniband/verbs.h` makes inline: through the table of functions in the context of the object.
//!
//! # Safety
//! Each takes pointers as C does, and asks of its caller what rdma-core's manual page asks of a C program: objects that the
//! library made and that were not destroyed, and work requests whose memory stays until their completion. Contexts of drivers
//! always have the functions here.
#![allow(unsafe_code)]

use core::ffi::c_int;

use crate::types::*;

/// What a call answers whose function a driver does not have.
const MISSING: c_int = libc::EOPNOTSUPP;

/// Takes up to `count` completions; how many there were, or less than 0.
///
/// # Safety
/// A living completion queue, and room for `count` completions at `completions`.
#[inline(always)]
pub unsafe fn poll_cq(cq: *mut ibv_cq, count: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: the queue lives.
    let context = unsafe { (*cq).context };
    // SAFETY: its context lives as long.
    let function = unsafe { (*context).ops.poll_cq };
    // SAFETY: the caller's promise.
    function.map_or(-MISSING, |poll| unsafe { poll(cq, count, completions) })
}

/// Asks for an event with the next completion; 0, or an error number.
///
/// # Safety
/// A living completion queue.
#[inline(always)]
pub unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: the queue lives.
    let context = unsafe { (*cq).context };
    // SAFETY: its context lives as long.
    let function = unsafe { (*context).ops.req_notify_cq };
    // SAFETY: the caller's promise.
    function.map_or(MISSING, |notify| unsafe {
        notify(cq, solicited_only.into())
    })
}

/// Posts a list of sends; 0, or an error number, and the first that was not posted in `bad`.
///
/// # Safety
/// A living queue pair; a list of work requests whose memory is lent until they are complete.
#[inline(always)]
pub unsafe fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair lives.
    let context = unsafe { (*qp).context };
    // SAFETY: its context lives as long.
    let function = unsafe { (*context).ops.post_send };
    // SAFETY: the caller's promise.
    function.map_or(MISSING, |post| unsafe { post(qp, list, bad) })
}

/// Posts a list of receives to a queue pair; 0, or an error number, and the first that was not posted in `bad`.
///
/// # Safety
/// As [`post_send`].
#[inline(always)]
pub unsafe fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue pair lives.
    let context = unsafe { (*qp).context };
    // SAFETY: its context lives as long.
    let function = unsafe { (*context).ops.post_recv };
    // SAFETY: the caller's promise.
    function.map_or(MISSING, |post| unsafe { post(qp, list, bad) })
}

/// Posts a list of receives to a shared receive queue; 0, or an error number, and the first that was not posted in `bad`.
///
/// # Safety
/// As [`post_send`], of a shared receive queue.
#[inline(always)]
pub unsafe fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue lives.
    let context = unsafe { (*srq).context };
    // SAFETY: its context lives as long.
    let function = unsafe { (*context).ops.post_srq_recv };
    // SAFETY: the caller's promise.
    function.map_or(MISSING, |post| unsafe { post(srq, list, bad) })
}
