// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and messages.
//!
//! # Safety
//! As in [`super`]. Declared memory stays the program's: it must exist as long as a message is declared with it. While
//! such a message is in progress, the program must not write the memory and, if the message is a receive, must not read
//! it either.
#![allow(unsafe_code, reason = "C entry points")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one promise for all: the head of `entry`"
)]

use core::ffi::{c_int, c_void};

use super::{array, handle, status, value};
use crate::channel::{self, MessagePeer};
use crate::gate::{MessageDirection, StridedPiece};
use crate::global::timed;
use crate::memory;
use crate::status::{QmpFailure, QmpStatus, Result};

/// `QMP_allocate_memory`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_allocate_memory(bytes: usize) -> *mut c_void {
    handle(memory::allocate(bytes, ALIGNMENT))
}

/// `QMP_ALIGN_DEFAULT`: a cache line, in bytes.
const ALIGNMENT: usize = 64;

/// `QMP_allocate_aligned_memory`: the flags are ignored, since there is one kind of memory.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_allocate_aligned_memory(
    bytes: usize,
    alignment: usize,
    _flags: c_int,
) -> *mut c_void {
    handle(memory::allocate(bytes, alignment))
}

/// `QMP_get_memory_pointer`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_get_memory_pointer(memory: usize) -> *mut c_void {
    value(memory::pointer(memory), core::ptr::null_mut())
}

/// `QMP_free_memory`; NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_free_memory(memory: usize) {
    if memory != 0 {
        status(memory::free(memory));
    }
}

/// `QMP_declare_msgmem`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_msgmem(base: *const c_void, bytes: usize) -> *mut c_void {
    let stride = isize::try_from(bytes).unwrap_or_default();
    // SAFETY: declared memory: see the head of this file.
    let piece = unsafe { StridedPiece::new(base.cast_mut(), bytes, 1, stride) };
    handle(channel::declare_memory(vec![piece]))
}

/// A strided piece of the caller's memory.
unsafe fn strided(
    base: *mut c_void,
    bytes: usize,
    blocks: c_int,
    stride: isize,
) -> Result<StridedPiece> {
    let wrong = |_| {
        QmpFailure::new(
            QmpStatus::INVALID_ARG,
            format!("{blocks} blocks were given"),
        )
    };
    let blocks = usize::try_from(blocks).map_err(wrong)?;
    // SAFETY: declared memory: see the head of this file.
    Ok(unsafe { StridedPiece::new(base, bytes, blocks, stride) })
}

/// `QMP_declare_strided_msgmem`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_strided_msgmem(
    base: *mut c_void,
    bytes: usize,
    blocks: c_int,
    stride: isize,
) -> *mut c_void {
    // SAFETY: declared memory: see the head of this file.
    let piece = unsafe { strided(base, bytes, blocks, stride) };
    handle(piece.and_then(|piece| channel::declare_memory(vec![piece])))
}

unsafe fn strided_array(
    bases: *mut *mut c_void,
    bytes: *mut usize,
    blocks: *mut c_int,
    strides: *mut isize,
    count: c_int,
) -> Result<usize> {
    // SAFETY: `count` items each.
    let bases = unsafe { array(bases.cast_const(), count) }?;
    // SAFETY: as above.
    let bytes = unsafe { array(bytes.cast_const(), count) }?;
    // SAFETY: as above.
    let blocks = unsafe { array(blocks.cast_const(), count) }?;
    // SAFETY: as above.
    let strides = unsafe { array(strides.cast_const(), count) }?;
    // SAFETY: declared memory: see the head of this file.
    let piece = |index: usize| unsafe {
        strided(bases[index], bytes[index], blocks[index], strides[index])
    };
    let pieces = (0..bases.len()).map(piece).collect::<Result<Vec<_>>>()?;
    channel::declare_memory(pieces)
}

/// `QMP_declare_strided_array_msgmem`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_strided_array_msgmem(
    bases: *mut *mut c_void,
    bytes: *mut usize,
    blocks: *mut c_int,
    strides: *mut isize,
    count: c_int,
) -> *mut c_void {
    // SAFETY: `count` items each.
    handle(unsafe { strided_array(bases, bytes, blocks, strides, count) })
}

/// `QMP_declare_strided_array_msgmem` of the QMP 2.0 document, which has no count: a NULL base terminates the arrays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qmp2004_declare_strided_array_msgmem(
    bases: *mut *mut c_void,
    bytes: *mut usize,
    blocks: *mut c_int,
    strides: *mut isize,
) -> *mut c_void {
    let mut count = 0;
    if !bases.is_null() {
        // SAFETY: the caller terminates the array with NULL; nothing is read behind it.
        while !unsafe { bases.wrapping_add(count).read() }.is_null() {
            count += 1;
        }
    }
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    // SAFETY: `count` items each.
    handle(unsafe { strided_array(bases, bytes, blocks, strides, count) })
}

unsafe fn indexed(
    base: *mut c_void,
    lengths: *mut c_int,
    indices: *mut c_int,
    item: c_int,
    count: c_int,
) -> Result<usize> {
    // SAFETY: `count` items each.
    let lengths = unsafe { array(lengths.cast_const(), count) }?;
    // SAFETY: as above.
    let indices = unsafe { array(indices.cast_const(), count) }?;
    let wrong = |_| {
        QmpFailure::new(
            QmpStatus::INVALID_ARG,
            format!("an item of {item} bytes was given"),
        )
    };
    let bytes = usize::try_from(item).map_err(wrong)?;
    let piece = |(length, index): (&c_int, &c_int)| {
        let wrong = |_| {
            QmpFailure::new(
                QmpStatus::INVALID_ARG,
                format!("a block of {length} items was given"),
            )
        };
        let whole = usize::try_from(*length).map_err(wrong)? * bytes;
        // The product of two 32-bit numbers fits in 64 bits.
        let place = base.wrapping_byte_offset(*index as isize * item as isize);
        let place = if base.is_null() { base } else { place };
        // SAFETY: declared memory: see the head of this file.
        Ok(unsafe {
            StridedPiece::new(place, whole, 1, isize::try_from(whole).unwrap_or_default())
        })
    };
    let pieces = lengths
        .iter()
        .zip(indices)
        .map(piece)
        .collect::<Result<Vec<_>>>()?;
    channel::declare_memory(pieces)
}

/// `QMP_declare_indexed_msgmem`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_indexed_msgmem(
    base: *mut c_void,
    lengths: *mut c_int,
    indices: *mut c_int,
    item: c_int,
    count: c_int,
) -> *mut c_void {
    // SAFETY: `count` items each.
    handle(unsafe { indexed(base, lengths, indices, item, count) })
}

/// `QMP_free_msgmem`; NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_free_msgmem(memory: usize) {
    if memory != 0 {
        status(channel::free_memory(memory));
    }
}

/// A pair of functions that declare a message with a neighbour, on the default communicator and on a given one.
macro_rules! relative {
    ($($plain:ident $with_comm:ident $direction:ident;)*) => {$(
        #[doc = concat!("`", stringify!($plain), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $plain(memory: usize, axis: c_int, sign: c_int, _priority: c_int) -> *mut c_void {
            handle(channel::declare(None, memory, MessageDirection::$direction, MessagePeer::Neighbour { axis, sign }))
        }

        #[doc = concat!("`", stringify!($with_comm), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $with_comm(comm: usize, memory: usize, axis: c_int, sign: c_int, _priority: c_int) -> *mut c_void {
            handle(channel::declare(Some(comm), memory, MessageDirection::$direction, MessagePeer::Neighbour { axis, sign }))
        }
    )*};
}

/// A pair of functions that declare a message with a node by number, on the default communicator and on a given one.
macro_rules! absolute {
    ($($plain:ident $with_comm:ident $direction:ident;)*) => {$(
        #[doc = concat!("`", stringify!($plain), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $plain(memory: usize, node: c_int, _priority: c_int) -> *mut c_void {
            handle(channel::declare(None, memory, MessageDirection::$direction, MessagePeer::Node(node)))
        }

        #[doc = concat!("`", stringify!($with_comm), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $with_comm(comm: usize, memory: usize, node: c_int, _priority: c_int) -> *mut c_void {
            handle(channel::declare(Some(comm), memory, MessageDirection::$direction, MessagePeer::Node(node)))
        }
    )*};
}

relative! {
    QMP_declare_send_relative QMP_comm_declare_send_relative Send;
    QMP_declare_receive_relative QMP_comm_declare_receive_relative Receive;
}

absolute! {
    QMP_declare_send_to QMP_comm_declare_send_to Send;
    QMP_declare_receive_from QMP_comm_declare_receive_from Receive;
}

/// `QMP_declare_multiple`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_multiple(handles: *mut usize, count: c_int) -> *mut c_void {
    // SAFETY: `count` items.
    let handles = unsafe { array(handles.cast_const(), count) };
    handle(handles.and_then(channel::join))
}

/// `QMP_declare_send_recv_pairs`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_declare_send_recv_pairs(
    handles: *mut usize,
    count: c_int,
) -> *mut c_void {
    // SAFETY: `count` items.
    unsafe { QMP_declare_multiple(handles, count) }
}

/// `QMP_free_msghandle`; NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn QMP_free_msghandle(message: usize) {
    if message != 0 {
        status(channel::free(message));
    }
}

/// `QMP_change_address`: the handle must have one message only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_change_address(message: usize, base: *mut c_void) -> QmpStatus {
    status(channel::change_addresses(message, &[base], moved))
}

/// `QMP_change_address_multiple`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_change_address_multiple(
    message: usize,
    bases: *mut *mut c_void,
    count: c_int,
) -> QmpStatus {
    // SAFETY: `count` items.
    let bases = unsafe { array(bases.cast_const(), count) };
    status(bases.and_then(|bases| channel::change_addresses(message, bases, moved)))
}

fn moved(piece: StridedPiece, from: *mut c_void, to: *mut c_void) -> StridedPiece {
    // SAFETY: the caller guarantees for the new memory what it guaranteed for the old one.
    unsafe { piece.moved(from, to) }
}

/// `QMP_clear_to_send`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_clear_to_send(message: usize, clear: c_int) -> QmpStatus {
    if !(-1..=1).contains(&clear) {
        let text = format!(
            "{clear} was given, expected QMP_CTS_DISABLED, QMP_CTS_NOT_READY or QMP_CTS_READY"
        );
        return status::<()>(Err(QmpFailure::new(QmpStatus::INVALID_ARG, text)));
    }
    status(channel::clear_to_send(message))
}

/// `QMP_start`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_start(message: usize) -> QmpStatus {
    status(channel::start(message))
}

/// `QMP_is_complete`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_is_complete(message: usize) -> c_int {
    c_int::from(value(channel::is_complete(message), true))
}

/// `QMP_wait`
#[unsafe(no_mangle)]
pub extern "C" fn QMP_wait(message: usize) -> QmpStatus {
    status(timed(|| channel::wait(message)))
}

/// `QMP_wait_all`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QMP_wait_all(messages: *mut usize, count: c_int) -> QmpStatus {
    // SAFETY: `count` items.
    let messages = unsafe { array(messages.cast_const(), count) };
    status(messages.and_then(|messages| timed(|| channel::wait_all(messages))))
}
