// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane: the calls that a program makes millions of times a second, for the case that nothing is special
//! about them. Each function answers `None` wherever anything is, and the entry point goes the ordinary way; so no rule
//! is decided here, and an error is always found and worded by the ordinary way.
//!
//! # Safety
//! The lane is open only between `MPI_Init` and `MPI_Finalize` and below `MPI_THREAD_MULTIPLE`: otherwise no handle is in
//! it and every function answers `None` at its first comparison. So one thread is here at a time, by the program's
//! promise (MPI 5.0 section 11.6), and none of our own calls is under way: no visit of the state runs code of the
//! program. Pointers are the program's own (A1, A2 of `args`), looked at only after they were compared with NULL.
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

use crate::args::{OutStatus, OutStatuses};
use crate::c::MPI_SUCCESS;
use crate::datatype_table::SIZES;
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Request};
use crate::pt2pt::finish_posted;
use crate::qmpi;
use crate::request::finish_waitall;
use crate::state::{DONE, express_token, request_handle, universe};
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
    let (lane, bytes, size) = outgoing(buf, count, datatype, dest, tag, comm)?;
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
    if request.is_null() {
        return None;
    }
    // SAFETY: passed on as they came.
    let (token, _) = unsafe { post_receive(buf, count, datatype, source, tag, comm) }?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(request_handle(token)) };
    Some(MPI_SUCCESS)
}

/// `MPI_Recv` of the same, if the message comes soon.
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
    let (token, context) = unsafe { post_receive(buf, count, datatype, source, tag, comm) }?;
    // SAFETY: the lane is open: `post_receive` found the communicator in it.
    let universe = unsafe { universe() };
    match universe.wait_briefly(token, || context) {
        Some(ended) => {
            // SAFETY: A1.
            unsafe { tell(status, ended) };
            Some(MPI_SUCCESS)
        }
        None => {
            // SAFETY: A1.
            let status = unsafe { OutStatus::new(status) };
            Some(finish_posted(token, comm, status))
        }
    }
}

/// `MPI_Wait` for a receive that [`irecv`] posted, or a plain one in the communicator that was used last, if it is complete
/// or becomes so soon.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Wait`.
#[inline(always)]
pub unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    if !is_open() {
        return None;
    }
    // SAFETY: A1, and not NULL.
    let handle = unsafe { request.read() };
    let Some(token) = express_token(handle) else {
        // SAFETY: passed on as they came; not NULL.
        return unsafe { wait_for_done(handle, request, status) };
    };
    // SAFETY: the lane is open.
    let ended = unsafe { universe() }.wait_briefly(token, current_context)?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(MPI_Request::NULL) };
    // SAFETY: A1.
    unsafe { tell(status, ended) };
    Some(MPI_SUCCESS)
}

/// `MPI_Wait` for a send that was complete at once.
///
/// # Safety
/// A1 of `args`; `request` is not NULL.
#[inline(never)]
unsafe fn wait_for_done(
    handle: MPI_Request,
    request: *mut MPI_Request,
    status: *mut MPI_Status,
) -> Option<c_int> {
    if handle != DONE {
        return None;
    }
    // SAFETY: A1, and not NULL.
    unsafe { request.write(MPI_Request::NULL) };
    // SAFETY: A1.
    unsafe { OutStatus::new(status) }.set(MPI_Status::EMPTY);
    Some(MPI_SUCCESS)
}

/// `MPI_Waitall` of receives as in [`wait`] and of sends that were complete at once. What was collected before something special
/// came up is collected: the ordinary way goes on with the rest.
///
/// # Safety
/// A1 of `args` for the arguments of `MPI_Waitall`.
pub unsafe fn waitall(
    count: c_int,
    requests: *mut MPI_Request,
    statuses: *mut MPI_Status,
) -> Option<c_int> {
    let count = usize::try_from(count).ok()?;
    if !is_open() || requests.is_null() {
        return None;
    }
    // SAFETY: A2: the array has `count` statuses, unless it is NULL.
    let told = unsafe { OutStatuses::new(statuses, count) };
    for at in 0..count {
        // SAFETY: A1: the array has `count` handles.
        let place = unsafe { requests.add(at) };
        // SAFETY: A1, and not NULL.
        let request = unsafe { place.read() };
        if request == DONE {
            told.set(at, MPI_Status::EMPTY);
        } else if request == MPI_Request::NULL {
            told.set_empty(at);
        } else {
            let waited = express_token(request)
                // SAFETY: the lane is open.
                .and_then(|token| unsafe { universe() }.wait_briefly(token, current_context));
            let Some((source, tag, bytes)) = waited else {
                // SAFETY: A2: the array has `count` handles.
                let requests = unsafe { core::slice::from_raw_parts_mut(requests, count) };
                return finish_waitall(requests, told, at);
            };
            told.set(at, MPI_Status::received(source.cast_signed(), tag, bytes));
        }
        // SAFETY: A1, and not NULL.
        unsafe { place.write(MPI_Request::NULL) };
    }
    Some(MPI_SUCCESS)
}

/// The lane of a send, its bytes, and those of an item; `None`: something is special about it.
#[inline(always)]
fn outgoing(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<(&'static Lane, u64, u64)> {
    let lane = lane(comm)?;
    let size = *SIZES.get(datatype.0.wrapping_sub(MPI_Datatype::NULL.0))?;
    if tag < 0 || dest.cast_unsigned() >= lane.ranks || buf.addr() < FIRST_ADDRESS {
        return None;
    }
    // A negative count makes more than the largest message. A size of 0 is none: the datatype is not simple.
    let size = u64::from(size);
    Some((lane, u64::from(count.cast_unsigned()) * size, size))
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
    let (lane, bytes, _) = outgoing(buf, count, datatype, dest, tag, comm)?;
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

#[inline(always)]
unsafe fn post_receive(
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<(u32, ContextId)> {
    let lane = lane(comm)?;
    let size = *SIZES.get(datatype.0.wrapping_sub(MPI_Datatype::NULL.0))?;
    let rank = source.cast_unsigned();
    // A negative count makes more than the largest. A size of 0 is none: the datatype is not simple.
    let bytes = count.cast_unsigned() as usize * usize::from(size);
    let fits = bytes.wrapping_sub(1) < MOST_BYTES || (bytes == 0 && size != 0);
    if tag < 0 || rank >= lane.ranks || buf.addr() < FIRST_ADDRESS || !fits {
        return None;
    }
    // SAFETY: A2: the buffer holds `count` items and is the library's until the receive is complete.
    let memory = unsafe { UserMemory::new(buf.cast(), bytes) };
    let target = Target {
        context: lane.context,
        peer: Peer(rank),
        tag,
    };
    #[allow(clippy::cast_possible_truncation, reason = "SIZES has the handle")]
    let number = datatype.0 as u32;
    // SAFETY: the lane is open: the communicator is in it.
    let token = unsafe { universe() }.receive_first(target, memory, number)?;
    Some((token, lane.context))
}

/// Writes a status, but not its `MPI_ERROR` (MPI 5.0 section 3.2.5).
#[inline(always)]
unsafe fn tell(status: *mut MPI_Status, (source, tag, bytes): (u32, c_int, u64)) {
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

/// Opens the lane for a communicator whose ranks are world ranks. For others, and at `MPI_THREAD_MULTIPLE`, it stays
/// closed.
pub fn open(handle: MPI_Comm, comm: &Comm) {
    // The lane would pass by the tools.
    if qmpi::is_stacked() {
        return;
    }
    if comm.group.is_identity() && !comm.is_inter() {
        let lane = Lane {
            handle,
            ranks: comm.size(),
            context: comm.context,
        };
        // SAFETY: this thread alone is in MPI (module head).
        unsafe { *LANES.known[place(handle)].get() = lane };
        if events::wanted().any() {
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
struct Lane {
    handle: MPI_Comm,
    ranks: u32,
    context: ContextId,
}

struct Lanes {
    /// The communicator that was used last.
    current: UnsafeCell<Lane>,
    known: [UnsafeCell<Lane>; LANES_COUNT],
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
fn is_open() -> bool {
    // SAFETY: nobody writes meanwhile (module head).
    unsafe { *LANES.current.get() }.handle != CLOSED.handle
}

/// Context of the communicator that was used last.
#[inline(always)]
fn current_context() -> ContextId {
    // SAFETY: nobody writes meanwhile (module head).
    unsafe { *LANES.current.get() }.context
}

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
static LANES: Lanes = Lanes {
    current: UnsafeCell::new(CLOSED),
    known: [const { UnsafeCell::new(CLOSED) }; LANES_COUNT],
};
/// The longest message of the lane: a negative count makes more.
const MOST_BYTES: usize = i32::MAX as usize;
/// Nothing of a program lies below: NULL and the constants that stand for addresses do.
const FIRST_ADDRESS: usize = 4096;
