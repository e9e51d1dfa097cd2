// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane: the calls that a program makes millions of times a second, for the case that nothing is special
//! about them. Each function answers `None` wherever anything is, and the entry point goes the ordinary way; so no rule
//! is decided here, and an error is always found and worded by the ordinary way.
//!
//! # Safety
//! The lane is open only between `MPI_Init` and `MPI_Finalize` and below `MPI_THREAD_MULTIPLE`: otherwise its table is
//! empty and every function answers `None` at its first comparison. So one thread is here at a time, by the program's
//! promise (MPI 5.0 section 11.6), and none of our own calls is under way: no visit of the state runs code of the
//! program. Pointers are the program's own (A1, A2 of `args`), looked at only after they were compared with NULL.
#![allow(
    unsafe_code,
    reason = "reads the program's eight bytes and writes its request"
)]
#![allow(
    clippy::disallowed_types,
    reason = "a table that only the thread in MPI changes"
)]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};

use runtime::{Comm, ContextId, Peer, Target, Universe};

use crate::c::MPI_SUCCESS;
use crate::datatype_table::SIZES;
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Request};
use crate::state::{DONE, universe};

/// `MPI_Isend` of four or eight bytes without a gap, to a peer towards which nothing waits.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Isend`.
#[inline(always)]
pub unsafe fn isend(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    // SAFETY: passed on as they came.
    unsafe { post(buf, count, datatype, dest, tag, comm) }?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(DONE) };
    Some(MPI_SUCCESS)
}

/// `MPI_Send` of the same.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Send`.
#[inline(always)]
pub unsafe fn send(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<c_int> {
    // SAFETY: passed on as they came.
    unsafe { post(buf, count, datatype, dest, tag, comm) }?;
    Some(MPI_SUCCESS)
}

#[inline(always)]
unsafe fn post(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<()> {
    let lane = lane(comm)?;
    let size = *SIZES.get(datatype.0.wrapping_sub(MPI_Datatype::NULL.0))?;
    let rank = dest.cast_unsigned();
    if tag < 0 || rank >= lane.ranks || buf.addr() < FIRST_ADDRESS {
        return None;
    }
    // A size of 0 (not simple) or a negative count never makes one of the two lengths.
    let (bytes, word) = match u64::from(count.cast_unsigned()) * u64::from(size) {
        // SAFETY: A2: the buffer holds `count` items, eight bytes.
        8 => (8, unsafe { buf.cast::<u64>().read_unaligned() }),
        // SAFETY: A2: the buffer holds `count` items, four bytes.
        4 => (4, u64::from(unsafe { buf.cast::<u32>().read_unaligned() })),
        _ => return None,
    };
    // SAFETY: the lane is open, so MPI is initialized and this thread alone is in it (module head).
    let universe: &mut Universe = unsafe { universe() };
    let target = Target {
        context: lane.context,
        peer: Peer(rank),
        tag,
    };
    universe.send_word(target, bytes, word)
}

/// Opens the lane for a communicator whose ranks are world ranks. For others, and at `MPI_THREAD_MULTIPLE`, it stays
/// closed.
pub fn open(handle: MPI_Comm, comm: &Comm) {
    if comm.group.is_identity() {
        let lane = Lane {
            handle,
            ranks: comm.size(),
            context: comm.context,
        };
        // SAFETY: this thread alone is in MPI (module head).
        unsafe { *LANES.0[place(handle)].get() = lane };
    }
}

/// A communicator was freed: the lane must not know it any more.
pub fn forget(handle: MPI_Comm) {
    let cell = &LANES.0[place(handle)];
    // SAFETY: this thread alone is in MPI (module head).
    let lane = unsafe { &mut *cell.get() };
    if lane.handle == handle {
        *lane = CLOSED;
    }
}

/// Closes the lane for all communicators: `MPI_Finalize`.
pub fn close() {
    for cell in &LANES.0 {
        // SAFETY: this thread alone is in MPI (module head).
        unsafe { *cell.get() = CLOSED };
    }
}

/// What the lane knows of a communicator.
#[derive(Clone, Copy)]
struct Lane {
    handle: MPI_Comm,
    ranks: u32,
    context: ContextId,
}

struct Lanes([UnsafeCell<Lane>; LANES_COUNT]);

// SAFETY: one thread at a time (module head).
unsafe impl Sync for Lanes {}

#[inline(always)]
fn lane(handle: MPI_Comm) -> Option<Lane> {
    // SAFETY: nobody writes meanwhile (module head).
    let lane = unsafe { *LANES.0[place(handle)].get() };
    (lane.handle == handle).then_some(lane)
}

#[inline(always)]
fn place(handle: MPI_Comm) -> usize {
    handle.0 % LANES_COUNT
}

/// No handle is 0.
const CLOSED: Lane = Lane {
    handle: MPI_Comm(0),
    ranks: 0,
    context: ContextId(0),
};
const LANES_COUNT: usize = 64;
static LANES: Lanes = Lanes([const { UnsafeCell::new(CLOSED) }; LANES_COUNT]);
/// Nothing of a program lies below: NULL and the constants that stand for addresses do.
const FIRST_ADDRESS: usize = 4096;
