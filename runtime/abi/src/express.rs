// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane: the calls that a program makes millions of times a second, for the case that nothing is special
//! about them. Each function answers `None` wherever anything is, and the entry point goes the ordinary way; so no rule
//! is decided here, and an error is always found and worded by the ordinary way.
//!
//! # Safety
//! The lane is open only between `MPI_Init` and `MPI_Finalize` and below `MPI_THREAD_MULTIPLE`: otherwise no handle is in
//! it and every function answers `None` at its first comparison. So one thread is here at a time, by the program's
//! promise (MPI 5.0 section 11.6); `express_shared` has the lock instead. And none of our own calls is under way: no visit of
//! the state runs code of the program. Pointers are the program's own (A1, A2 of `args`), looked at only after they were
//! compared with NULL.
#![allow(
    unsafe_code,
    reason = "reads the program's bytes and writes its request and status"
)]
#![allow(
    clippy::disallowed_types,
    reason = "a table that only the thread in MPI changes"
)]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::hint::cold_path;

use runtime::var::events;
use runtime::{Comm, ContextId, Peer, Target, Universe, UserMemory};

use crate::args::{MutBuf, OutStatus};
use crate::c::MPI_SUCCESS;
use crate::datatype_table::SIZES;
use crate::express_shared;
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Request};
use crate::lock;
use crate::pt2pt::{finish_posted, finish_sendrecv};
use crate::qmpi;
use crate::state::{DONE, request_handle, universe};
use crate::status::MPI_Status;

/// `MPI_Isend` of four or eight bytes without a gap, to a peer of this node towards which nothing waits.
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
    let watched = unsafe { post(buf, count, datatype, dest, tag, comm) }?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(DONE) };
    Some(if watched {
        MPI_SUCCESS
    } else {
        ring_bell(dest)
    })
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
    let watched = unsafe { post(buf, count, datatype, dest, tag, comm) }?;
    Some(if watched {
        MPI_SUCCESS
    } else {
        ring_bell(dest)
    })
}

/// `MPI_Isend` of any number of bytes without a gap that goes at once, to any peer. Not inlined into the entry point, which serves
/// words and peers of this node.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Isend`.
#[inline(always)]
pub unsafe fn isend_other(
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
    let code = unsafe { send_other(buf, count, datatype, dest, tag, comm) }?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(DONE) };
    Some(code)
}

/// `MPI_Send` of the same.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Send`.
#[inline(always)]
pub unsafe fn send_other(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<c_int> {
    let Some(lane) = lane(comm) else {
        cold_path();
        // SAFETY: passed on as they came.
        return unsafe { express_shared::send(buf, count, datatype, dest, tag, comm) };
    };
    // SAFETY: passed on as they came.
    unsafe { send_in(lane, buf, count, datatype, dest, tag) }
}

/// The same in the lane of a communicator.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Send`; this thread alone is in MPI.
#[inline(always)]
pub(crate) unsafe fn send_in(
    lane: &Lane,
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
) -> Option<c_int> {
    let (bytes, size) = outgoing(lane, buf, count, datatype, dest, tag)?;
    let peer = Peer(dest.cast_unsigned());
    let envelope = (lane.context, tag);
    let bytes = usize::try_from(bytes).ok()?;
    if size == 0 || bytes > MOST_BYTES {
        return None;
    }
    // SAFETY: A2: the buffer holds `count` items; it is read before the call returns, and never written.
    let memory = unsafe { UserMemory::new(buf.cast_mut().cast(), bytes) };
    // SAFETY: the lane is open: the communicator is in it.
    let universe: &mut Universe = unsafe { universe() };
    let watched = universe.send_at_hand(peer, envelope, memory)?;
    Some(if watched {
        MPI_SUCCESS
    } else {
        ring_bell(dest)
    })
}

/// `MPI_Irecv` of dense items from a definite rank with a definite tag, if the message is not there yet.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Irecv`.
#[inline(always)]
pub unsafe fn irecv(
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> Option<c_int> {
    // SAFETY: passed on as they came.
    unsafe { irecv_in(lane(comm)?, buf, count, datatype, source, tag, request) }
}

/// The same in the lane of a communicator.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Irecv`; this thread alone is in MPI.
#[inline(always)]
pub(crate) unsafe fn irecv_in(
    lane: &Lane,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    request: *mut MPI_Request,
) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    // SAFETY: passed on as they came.
    let token = unsafe { post_receive(lane, buf, count, datatype, source, tag) }?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(request_handle(token)) };
    Some(MPI_SUCCESS)
}

/// `MPI_Recv` of the same; it waits in the ordinary way if the message does not come soon.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Recv`.
#[inline(always)]
pub unsafe fn recv(
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> Option<c_int> {
    // SAFETY: passed on as they came.
    unsafe { recv_in(*lane(comm)?, buf, count, datatype, source, tag, status, ()) }
}

/// The same in the lane of a communicator. `guard` is held as long as this thread alone must be in MPI.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Recv`; this thread alone is in MPI.
#[allow(clippy::too_many_arguments, reason = "those of MPI_Recv")]
#[inline(always)]
pub(crate) unsafe fn recv_in<G>(
    lane: Lane,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    status: *mut MPI_Status,
    guard: G,
) -> Option<c_int> {
    // SAFETY: passed on as they came.
    let token = unsafe { post_receive(&lane, buf, count, datatype, source, tag) }?;
    // SAFETY: the lane is open: `post_receive` found the communicator in it.
    let ended = unsafe { universe() }.wait_briefly(token, || lane.context);
    drop(guard);
    let Some(ended) = ended else {
        // SAFETY: A1.
        let status = unsafe { OutStatus::new(status) };
        return Some(finish_posted("MPI_Recv", token, lane.handle, status));
    };
    // SAFETY: A1.
    unsafe { tell(status, ended) };
    Some(MPI_SUCCESS)
}

/// `MPI_Sendrecv` of a message that goes at once and one that [`recv`] receives.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Sendrecv`.
#[allow(clippy::too_many_arguments, reason = "those of MPI_Sendrecv")]
#[inline(always)]
pub unsafe fn sendrecv(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: MPI_Datatype,
    source: c_int,
    recvtag: c_int,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> Option<c_int> {
    let out = (sendbuf, sendcount, sendtype, dest, sendtag);
    let into = (recvbuf, recvcount, recvtype, source, recvtag);
    // SAFETY: passed on as they came.
    unsafe { sendrecv_in(*lane(comm)?, out, into, status, ()) }
}

/// The same in the lane of a communicator. `guard` is held as long as this thread alone must be in MPI.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Sendrecv`; this thread alone is in MPI.
#[inline(always)]
pub(crate) unsafe fn sendrecv_in<G>(
    lane: Lane,
    (sendbuf, sendcount, sendtype, dest, sendtag): Outgoing,
    (recvbuf, recvcount, recvtype, source, recvtag): Incoming,
    status: *mut MPI_Status,
    guard: G,
) -> Option<c_int> {
    // Nothing leaves before the receive is known to be in order too.
    incoming(&lane, recvbuf, recvcount, recvtype, source, recvtag)?;
    // SAFETY: passed on as they came.
    unsafe { send_in(&lane, sendbuf, sendcount, sendtype, dest, sendtag) }?;
    // SAFETY: passed on as they came.
    let token = unsafe { post_receive(&lane, recvbuf, recvcount, recvtype, source, recvtag) };
    let Some(token) = token else {
        drop(guard);
        // SAFETY: A1.
        let status = unsafe { OutStatus::new(status) };
        let call = (MutBuf(recvbuf), recvcount.into(), recvtype, source, recvtag);
        return Some(finish_sendrecv(call, lane.handle, status));
    };
    // SAFETY: the lane is open: `post_receive` found the communicator in it.
    let ended = unsafe { universe() }.wait_briefly(token, || lane.context);
    drop(guard);
    let Some(ended) = ended else {
        // SAFETY: A1.
        let status = unsafe { OutStatus::new(status) };
        return Some(finish_posted("MPI_Sendrecv", token, lane.handle, status));
    };
    // SAFETY: A1.
    unsafe { tell(status, ended) };
    Some(MPI_SUCCESS)
}

/// The bytes of a send, and those of an item; `None`: something is special about it.
#[inline(always)]
fn outgoing(
    lane: &Lane,
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
) -> Option<(u64, u64)> {
    let size = *SIZES.get(datatype.0.wrapping_sub(MPI_Datatype::NULL.0))?;
    if tag < 0 || dest.cast_unsigned() >= lane.ranks || buf.addr() < FIRST_ADDRESS {
        return None;
    }
    // A negative count makes more than the largest message. A size of 0 is none: the datatype is not simple.
    let size = u64::from(size);
    Some((u64::from(count.cast_unsigned()) * size, size))
}

#[inline(always)]
unsafe fn post(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<bool> {
    let lane = lane(comm)?;
    let (bytes, _) = outgoing(lane, buf, count, datatype, dest, tag)?;
    let peer = Peer(dest.cast_unsigned());
    let envelope = || (lane.context, tag);
    // SAFETY: the lane is open: the communicator is in it.
    let universe: &mut Universe = unsafe { universe() };
    if bytes == 8 {
        // SAFETY: A2: the buffer holds `count` items, eight bytes.
        let word = || unsafe { buf.cast::<u64>().read_unaligned() };
        return universe.send_word::<8>(peer, envelope, word);
    }
    cold_path();
    if bytes == 4 {
        // SAFETY: A2: the buffer holds `count` items, four bytes.
        let word = || u64::from(unsafe { buf.cast::<u32>().read_unaligned() });
        return universe.send_word::<4>(peer, envelope, word);
    }
    None
}

/// The bytes of a receive; `None`: something is special about it.
#[inline(always)]
fn incoming(
    lane: &Lane,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
) -> Option<usize> {
    let size = *SIZES.get(datatype.0.wrapping_sub(MPI_Datatype::NULL.0))?;
    // A negative count makes more than the largest. A size of 0 is none: the datatype is not simple.
    let bytes = count.cast_unsigned() as usize * usize::from(size);
    let fits = bytes.wrapping_sub(1) < MOST_BYTES || (bytes == 0 && size != 0);
    let is_known = source.cast_unsigned() < lane.ranks && buf.addr() >= FIRST_ADDRESS;
    (tag >= 0 && is_known && fits).then_some(bytes)
}

#[inline(always)]
unsafe fn post_receive(
    lane: &Lane,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
) -> Option<u32> {
    let bytes = incoming(lane, buf, count, datatype, source, tag)?;
    // SAFETY: A2: the buffer holds `count` items and is the library's until the receive is complete.
    let memory = unsafe { UserMemory::new(buf.cast(), bytes) };
    let target = Target {
        context: lane.context,
        peer: Peer(source.cast_unsigned()),
        tag,
    };
    #[allow(clippy::cast_possible_truncation, reason = "SIZES has the handle")]
    let number = datatype.0 as u32;
    // SAFETY: the lane is open: the communicator is in it.
    unsafe { universe() }.receive_first(target, memory, number)
}

/// Writes a status, but not its `MPI_ERROR` (MPI 5.0 section 3.2.5).
#[inline(always)]
pub(crate) unsafe fn tell(status: *mut MPI_Status, (source, tag, bytes): (u32, c_int, u64)) {
    if status.is_null() {
        return;
    }
    // SAFETY: A1: `status` is the program's, and not NULL.
    let out = unsafe { OutStatus::new(status) };
    out.set(MPI_Status::received(source.cast_signed(), tag, bytes));
}

#[cold]
#[inline(never)]
fn ring_bell(dest: c_int) -> c_int {
    // SAFETY: the lane is open: a message was just posted through it.
    unsafe { universe() }.ring_bell(Peer(dest.cast_unsigned()));
    MPI_SUCCESS
}

/// Opens the lane for a communicator whose ranks are world ranks; for others it stays closed. At `MPI_THREAD_MULTIPLE` it is
/// known, and open to `express_shared` alone.
pub fn open(handle: MPI_Comm, comm: &Comm) {
    // The lane would pass by the tools.
    if qmpi::is_stacked() {
        return;
    }
    if comm.group.is_identity() && !comm.is_inter() {
        let is_multiple = lock::is_multiple();
        let lane = Lane {
            handle,
            ranks: comm.size(),
            context: comm.context,
        };
        // SAFETY: this thread alone is in MPI (module head).
        unsafe { *LANES.known[place(handle)].get() = lane };
        if events::wanted().any() || is_multiple {
            return;
        }
        // SAFETY: as above.
        unsafe { *LANES.current.get() = lane };
    }
}

/// A communicator was freed: the lane must not know it any more.
pub fn forget(handle: MPI_Comm) {
    for cell in [&LANES.known[place(handle)], &LANES.current] {
        // SAFETY: this thread alone is in MPI (module head).
        let lane = unsafe { &mut *cell.get() };
        if lane.handle == handle {
            *lane = CLOSED;
        }
    }
}

/// Closes the lane for all communicators: `MPI_Finalize`.
pub fn close() {
    for cell in LANES.known.iter().chain([&LANES.current]) {
        // SAFETY: this thread alone is in MPI (module head).
        unsafe { *cell.get() = CLOSED };
    }
}

/// What the lane knows of a communicator.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) handle: MPI_Comm,
    ranks: u32,
    pub(crate) context: ContextId,
}

/// What goes out: buffer, count, datatype, destination, tag.
pub(crate) type Outgoing = (*const c_void, c_int, MPI_Datatype, c_int, c_int);
/// Where something comes in: buffer, count, datatype, source, tag.
pub(crate) type Incoming = (*mut c_void, c_int, MPI_Datatype, c_int, c_int);

pub(crate) struct Lanes {
    /// The communicator that was used last.
    current: UnsafeCell<Lane>,
    pub(crate) known: [UnsafeCell<Lane>; LANES_COUNT],
    /// Where in `known` the one is that `express_shared` used last.
    pub(crate) current_shared: UnsafeCell<usize>,
}

// SAFETY: one thread at a time (module head).
unsafe impl Sync for Lanes {}

#[inline(always)]
fn lane(handle: MPI_Comm) -> Option<&'static Lane> {
    // SAFETY: nobody writes while the reference is in use (module head).
    let lane = unsafe { &*LANES.current.get() };
    (lane.handle == handle).then_some(lane)
}

/// Closes the lane until no collective goes on in the background and no tool listens to events: the lane would do nothing for
/// them.
pub fn pause() {
    // At `MPI_THREAD_MULTIPLE` it is closed, and others may be looking at it.
    if !is_open() {
        return;
    }
    // SAFETY: this thread alone is in MPI (module head).
    unsafe { *LANES.current.get() = CLOSED };
}

/// Makes the lane that of another communicator. `false` if it is so already, if the lane does not know it, or if it is
/// [paused](pause).
pub fn change_lane(handle: MPI_Comm) -> bool {
    if lock::is_multiple() {
        return false;
    }
    // SAFETY: nobody writes meanwhile (module head).
    let lane = unsafe { *LANES.known[place(handle)].get() };
    // SAFETY: this thread alone is in MPI (module head).
    let current = unsafe { &mut *LANES.current.get() };
    if lane.handle != handle || current.handle == handle || handle == CLOSED.handle {
        return false;
    }
    // Nothing is told to tools there.
    if events::wanted().any() {
        return false;
    }
    // SAFETY: the lane knows the communicator: it is open but for a pause.
    if unsafe { universe() }.has_tasks() {
        return false;
    }
    *current = lane;
    true
}

#[inline(always)]
pub(crate) fn is_open() -> bool {
    // SAFETY: nobody writes meanwhile (module head).
    unsafe { *LANES.current.get() }.handle != CLOSED.handle
}

/// Context of the communicator that was used last.
#[inline(always)]
pub(crate) fn current_context() -> ContextId {
    // SAFETY: nobody writes meanwhile (module head).
    unsafe { *LANES.current.get() }.context
}

pub(crate) fn place(handle: MPI_Comm) -> usize {
    handle.0 % LANES_COUNT
}

/// No handle is 0.
pub(crate) const CLOSED: Lane = Lane {
    handle: MPI_Comm(0),
    ranks: 0,
    context: ContextId(0),
};
const LANES_COUNT: usize = 64;
pub(crate) static LANES: Lanes = Lanes {
    current: UnsafeCell::new(CLOSED),
    known: [const { UnsafeCell::new(CLOSED) }; LANES_COUNT],
    current_shared: UnsafeCell::new(0),
};
/// The longest message of the lane: a negative count makes more.
const MOST_BYTES: usize = i32::MAX as usize;
/// Nothing of a program lies below: NULL and the constants that stand for addresses do.
const FIRST_ADDRESS: usize = 4096;
