// SPDX-License-Identifier: MIT OR Apache-2.0
//! Global operations.
//!
//! # Safety
//! As in [`super`].
#![allow(unsafe_code, reason = "C entry points")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one promise for all: the head of `entry`"
)]

use core::ffi::{c_char, c_int, c_longlong, c_ulong, c_void};

use super::{lent, status};
use crate::global;
use crate::mpi::{Datatype, Op};
use crate::status::{QmpFailure, QmpStatus, Result};

/// A pair of functions that reduce one value, on the default communicator and on a given one.
macro_rules! of_one {
    ($($plain:ident $with_comm:ident $item:ty, $kind:ident $op:ident;)*) => {$(
        #[doc = concat!("`", stringify!($plain), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $plain(value: *mut $item) -> QmpStatus {
            // SAFETY: one item.
            let data = unsafe { lent(value) };
            status(global::reduce(None, data, 1, Datatype::$kind, Op::$op))
        }

        #[doc = concat!("`", stringify!($with_comm), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $with_comm(comm: usize, value: *mut $item) -> QmpStatus {
            // SAFETY: one item.
            let data = unsafe { lent(value) };
            status(global::reduce(Some(comm), data, 1, Datatype::$kind, Op::$op))
        }
    )*};
}

/// A pair of functions that sum arrays, on the default communicator and on a given one.
macro_rules! of_many {
    ($($plain:ident $with_comm:ident $item:ty, $kind:ident;)*) => {$(
        #[doc = concat!("`", stringify!($plain), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $plain(value: *mut $item, length: c_int) -> QmpStatus {
            // SAFETY: `length` items.
            let data = unsafe { lent(value) };
            status(global::reduce(None, data, length, Datatype::$kind, Op::SUM))
        }

        #[doc = concat!("`", stringify!($with_comm), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $with_comm(comm: usize, value: *mut $item, length: c_int) -> QmpStatus {
            // SAFETY: `length` items.
            let data = unsafe { lent(value) };
            status(global::reduce(Some(comm), data, length, Datatype::$kind, Op::SUM))
        }
    )*};
}

/// C's `long double`, which has no Rust type.
type LongDouble = c_void;

of_one! {
    QMP_sum_int QMP_comm_sum_int c_int, INT SUM;
    QMP_sum_uint64_t QMP_comm_sum_uint64_t u64, UINT64 SUM;
    QMP_sum_float QMP_comm_sum_float f32, FLOAT SUM;
    QMP_sum_double QMP_comm_sum_double f64, DOUBLE SUM;
    QMP_sum_long_double QMP_comm_sum_long_double LongDouble, LONG_DOUBLE SUM;
    QMP_max_float QMP_comm_max_float f32, FLOAT MAX;
    QMP_max_double QMP_comm_max_double f64, DOUBLE MAX;
    QMP_min_float QMP_comm_min_float f32, FLOAT MIN;
    QMP_min_double QMP_comm_min_double f64, DOUBLE MIN;
    QMP_xor_ulong QMP_comm_xor_ulong c_ulong, UNSIGNED_LONG BXOR;
}

of_many! {
    QMP_sum_float_array QMP_comm_sum_float_array f32, FLOAT;
    QMP_sum_double_array QMP_comm_sum_double_array f64, DOUBLE;
    QMP_sum_long_double_array QMP_comm_sum_long_double_array LongDouble, LONG_DOUBLE;
}

/// Sums a double of the caller's over all nodes in extended precision, in place.
unsafe fn extended(which: Option<usize>, value: *mut f64) -> Result<()> {
    if value.is_null() {
        return Err(QmpFailure::new(
            QmpStatus::INVALID_ARG,
            "NULL was given for the data of a global operation",
        ));
    }
    // SAFETY: not NULL, one item.
    let mine = unsafe { value.read() };
    let sum = global::sum_extended(which, mine)?;
    // SAFETY: as above.
    unsafe { value.write(sum) };
    Ok(())
}

/// `QMP_sum_double_extended`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_sum_double_extended(value: *mut f64) -> QmpStatus {
    // SAFETY: one item, or NULL.
    status(unsafe { extended(None, value) })
}

/// `QMP_comm_sum_double_extended`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_sum_double_extended(comm: usize, value: *mut f64) -> QmpStatus {
    // SAFETY: one item, or NULL.
    status(unsafe { extended(Some(comm), value) })
}

unsafe fn binary(
    which: Option<usize>,
    buffer: *mut c_void,
    bytes: usize,
    function: Option<global::BinaryFunction>,
) -> Result<()> {
    let function = function.ok_or_else(|| {
        QmpFailure::new(
            QmpStatus::INVALID_ARG,
            "NULL was given for a binary function",
        )
    })?;
    // SAFETY: `bytes` bytes.
    let data = unsafe { lent(buffer) };
    global::binary(which, data, bytes, function)
}

/// `QMP_binary_reduction`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_binary_reduction(
    buffer: *mut c_void,
    bytes: usize,
    function: Option<global::BinaryFunction>,
) -> QmpStatus {
    // SAFETY: the caller's buffer and function.
    status(unsafe { binary(None, buffer, bytes, function) })
}

/// `QMP_comm_binary_reduction`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_binary_reduction(
    comm: usize,
    buffer: *mut c_void,
    bytes: usize,
    function: Option<global::BinaryFunction>,
) -> QmpStatus {
    // SAFETY: the caller's buffer and function.
    status(unsafe { binary(Some(comm), buffer, bytes, function) })
}

/// `QMP_broadcast`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_broadcast(buffer: *mut c_void, bytes: usize) -> QmpStatus {
    // SAFETY: `bytes` bytes.
    let data = unsafe { lent(buffer) };
    status(global::broadcast(None, data, bytes))
}

/// `QMP_comm_broadcast`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_broadcast(
    comm: usize,
    buffer: *mut c_void,
    bytes: usize,
) -> QmpStatus {
    // SAFETY: `bytes` bytes.
    let data = unsafe { lent(buffer) };
    status(global::broadcast(Some(comm), data, bytes))
}

/// `QMP_comm_alltoall`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_comm_alltoall(
    comm: usize,
    to: *mut c_char,
    from: *mut c_char,
    bytes: c_int,
) -> QmpStatus {
    // SAFETY: `bytes` bytes for each node.
    let to = unsafe { lent(to) };
    // SAFETY: as above.
    let from = unsafe { lent(from) };
    status(global::alltoall(comm, to, from, bytes))
}

/// `QMP_barrier`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_barrier() -> QmpStatus {
    status(global::barrier(None))
}

/// `QMP_comm_barrier`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_comm_barrier(comm: usize) -> QmpStatus {
    status(global::barrier(Some(comm)))
}

const _: () =
    assert!(size_of::<c_longlong>() == 8 && size_of::<c_ulong>() == 8 && size_of::<c_int>() == 4);
