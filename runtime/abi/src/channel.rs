// SPDX-License-Identifier: MIT OR Apache-2.0
//! The private C interface to gated channels (`runtime/channel`). A channel moves messages from fixed memory of one
//! process to fixed memory of another; it is declared once and started often. The interface is for rmpi's own libraries
//! (`qmp`), which check its [version](rmpi_channel_version); programs should not call it.
//!
//! All functions return a [`Code`]. They require MPI to be initialised and not finalised, and never call an error
//! handler.
//!
//! # Safety
//! The callers' obligations, which each function repeats: arrays have the given length, and the program does not access
//! the memory of a channel from each start to its completion, as [`UserBlocks::new`] requires.
#![allow(unsafe_code, reason = "C entry points")]

use core::ffi::{c_double, c_int, c_void};
use core::ptr::NonNull;
use core::slice;
use std::time::{Duration, Instant};

use runtime::channels::{
    ChannelDirection, ChannelError, ChannelId, ChannelMemory, ChannelSpec, UserBlocks,
};
use runtime::{Awaits, Visit};

use crate::enter::{Mpi, enter_private};
use crate::handle::MPI_Comm;

/// C structure of strided blocks of memory: `stride` bytes from the start of one block to the next.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MessageBlocks {
    base: *mut c_void,
    block_bytes: usize,
    blocks: usize,
    stride: isize,
}

/// C structure of the failure of a message.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FailureRecord {
    /// Index of the failed channel in the given array.
    index: usize,
    /// Bytes of a message that was too long, and of the memory of its receive.
    message_bytes: u64,
    room_bytes: u64,
    /// 1 if an earlier message failed, not the message that was waited for; otherwise 0.
    is_earlier: c_int,
    /// Why the peer is lost; zero-terminated.
    why: [u8; WHY_BYTES],
}

/// Result codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// The id is not the id of a channel end, or it is the id of an end that the function does not accept.
    Stale = 1,
    /// The channel has been started, or its receive has been opened, and it is not complete.
    Active = 2,
    /// There is no such rank, direction or class.
    BadPeer = 3,
    /// The communicator is invalid or an intercommunicator.
    BadComm = 4,
    /// The memory or an output pointer is NULL, or the memory is outside of the address space.
    BadMemory = 5,
    /// The message is longer than the memory of its receive.
    SizesDiffer = 6,
    /// The time limit expired.
    TimeOut = 7,
    /// The peer has ended, or cannot be reached.
    Lost = 8,
    /// There are too many channels.
    NoMemory = 9,
    /// MPI is not initialised, or already finalised.
    NotReady = 10,
    /// The peer has left the communicator: it starts no more messages.
    Left = 11,
}

impl Code {
    fn of(result: Result<(), ChannelError>) -> Self {
        match result {
            Ok(()) => Self::Ok,
            Err(ChannelError::Active) => Self::Active,
            Err(ChannelError::BadClass) => Self::BadPeer,
            Err(ChannelError::TooMany) => Self::NoMemory,
            Err(ChannelError::SizesDiffer) => Self::SizesDiffer,
            Err(ChannelError::Lost) => Self::Lost,
            Err(ChannelError::Left) => Self::Left,
            Err(_) => Self::Stale,
        }
    }
}

/// The version of this interface.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn rmpi_channel_version() -> c_int {
    VERSION
}

/// Declares one end of a channel with rank `peer` of a communicator, and writes its id.
///
/// # Safety
/// `pieces` has `count` elements. The program does not access their memory from each start (or opening of a receive) to
/// its completion. `id` is NULL or writable.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmpi_channel_declare(
    comm: MPI_Comm,
    direction: c_int,
    peer: c_int,
    channel_class: c_int,
    pieces: *const MessageBlocks,
    count: usize,
    id: *mut u64,
) -> c_int {
    // SAFETY: the caller's obligation.
    let memory = unsafe { memory_of(pieces, count) };
    let (made, code) = in_mpi((None, Code::NotReady), |mpi| {
        declare(mpi, comm, (direction, peer, channel_class), memory)
    });
    if let (Some(made), Some(id)) = (made, NonNull::new(id)) {
        // SAFETY: writable: the caller's obligation.
        unsafe { id.write(made.0) };
    }
    code as c_int
}

fn declare(
    mpi: Mpi,
    comm: MPI_Comm,
    (direction, peer, class): (c_int, c_int, c_int),
    memory: Option<ChannelMemory>,
) -> (Option<ChannelId>, Code) {
    let direction = match direction {
        0 => ChannelDirection::Send,
        1 => ChannelDirection::Receive,
        _ => return (None, Code::BadPeer),
    };
    let (Ok(rank), Ok(class)) = (u32::try_from(peer), u8::try_from(class)) else {
        return (None, Code::BadPeer);
    };
    let Some(memory) = memory else {
        return (None, Code::BadMemory);
    };
    let end = ChannelSpec {
        direction,
        rank,
        class,
    };
    mpi.state(|state| {
        let Ok(object) = state.comm(comm) else {
            return (None, Code::BadComm);
        };
        if object.comm.is_inter() {
            return (None, Code::BadComm);
        }
        let comm = object.comm.clone();
        match state
            .universe
            .channels
            .declare(&mut state.universe.messages, &comm, end, memory)
        {
            None => (None, Code::BadPeer),
            Some(Ok(id)) => (Some(id), Code::Ok),
            Some(Err(error)) => (None, Code::of(Err(error))),
        }
    })
}

/// Starts all given channels, the receives first. If one of them is stale or active, starts none.
///
/// # Safety
/// `ids` has `count` elements; the memory of these channels belongs to them until completion.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmpi_channel_start(ids: *const u64, count: usize) -> c_int {
    // SAFETY: the caller's obligation.
    let ids = unsafe { names(ids, count) };
    visit(|universe| universe.channels.start(&mut universe.messages, ids))
}

/// Tests whether all given channels are complete or inactive. If so, they become inactive.
///
/// # Safety
/// `ids` has `count` elements; `done` is writable.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmpi_channel_test(
    ids: *const u64,
    count: usize,
    done: *mut c_int,
) -> c_int {
    // SAFETY: the caller's obligation.
    let ids = unsafe { names(ids, count) };
    let (ended, code) = in_mpi((false, Code::NotReady), |mpi| test(mpi, ids));
    if let Some(done) = NonNull::new(done) {
        // SAFETY: writable: the caller's obligation.
        unsafe { done.write(c_int::from(ended)) };
    }
    code as c_int
}

fn test(mpi: Mpi, ids: &[ChannelId]) -> (bool, Code) {
    let mut done = mpi.visit(|universe| universe.channels.are_done(ids));
    if done == Ok(false) {
        mpi.poll_turn();
        done = mpi.visit(|universe| universe.channels.are_done(ids));
    }
    match done {
        Ok(false) => (false, Code::Ok),
        Ok(true) => (true, Code::of(mpi.visit(|it| it.channels.collect(ids)))),
        Err(error) => (false, Code::of(Err(error))),
    }
}

/// Waits until all given channels are complete or inactive, at most for `seconds`; a negative value means no limit.
///
/// # Safety
/// `ids` has `count` elements.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmpi_channel_wait(
    ids: *const u64,
    count: usize,
    seconds: c_double,
) -> c_int {
    // SAFETY: the caller's obligation.
    let ids = unsafe { names(ids, count) };
    in_mpi(Code::NotReady, |mpi| wait(mpi, ids, seconds)) as c_int
}

fn wait(mpi: Mpi, ids: &[ChannelId], seconds: f64) -> Code {
    // An invalid duration means no limit.
    let patience = Duration::try_from_secs_f64(seconds).ok();
    let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
    let mut is_late = false;
    mpi.wait_until(Awaits::Other, |universe| {
        let going = universe.channels.are_done(ids) == Ok(false);
        is_late = going && deadline.is_some_and(|deadline| Instant::now() >= deadline);
        !going || is_late
    });
    if is_late {
        return Code::TimeOut;
    }
    Code::of(mpi.visit(|universe| universe.channels.collect(ids)))
}

/// Replaces the memory of an inactive channel end.
///
/// # Safety
/// As for [`rmpi_channel_declare`].
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmpi_channel_move(
    id: u64,
    pieces: *const MessageBlocks,
    count: usize,
) -> c_int {
    // SAFETY: the caller's obligation.
    let memory = unsafe { memory_of(pieces, count) };
    let Some(memory) = memory else {
        return Code::BadMemory as c_int;
    };
    visit(|universe| {
        universe
            .channels
            .change(&mut universe.messages, ChannelId(id), memory)
    })
}

/// Leaves a communicator: peers that wait, now or later, for this process on a channel of the communicator get
/// [`Code::Left`].
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn rmpi_channel_leave(comm: MPI_Comm) -> c_int {
    let left = |mpi: Mpi| {
        mpi.state(|state| {
            let Ok(object) = state.comm(comm) else {
                return Code::BadComm;
            };
            let comm = object.comm.clone();
            state
                .universe
                .channels
                .leave(&mut state.universe.messages, &comm);
            Code::Ok
        })
    };
    in_mpi(Code::NotReady, left) as c_int
}

/// Writes the failure of the last wait or test of the given channels; if several failed, that of the first in `ids`.
/// Returns the code of the failure, or [`Code::Ok`] if there is none.
///
/// # Safety
/// `ids` has `count` elements; `failure` is NULL or writable.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmpi_channel_failure(
    ids: *const u64,
    count: usize,
    failure: *mut FailureRecord,
) -> c_int {
    // SAFETY: the caller's obligation.
    let ids = unsafe { names(ids, count) };
    let found = in_mpi(None, |mpi| mpi.visit(|universe| failure_of(universe, ids)));
    let Some((code, found)) = found else {
        return Code::Ok as c_int;
    };
    if let Some(failure) = NonNull::new(failure) {
        // SAFETY: writable: the caller's obligation.
        unsafe { failure.write(found) };
    }
    code as c_int
}

fn failure_of(universe: &runtime::Universe, ids: &[ChannelId]) -> Option<(Code, FailureRecord)> {
    ids.iter().enumerate().find_map(|(index, id)| {
        let (failed, reason) = universe.channels.failure(&universe.network, *id).ok()??;
        let mut why = [0; WHY_BYTES];
        let bytes = reason.len().min(WHY_BYTES - 1);
        why[..bytes].copy_from_slice(&reason.as_bytes()[..bytes]);
        let failure = FailureRecord {
            index,
            message_bytes: failed.message_bytes,
            room_bytes: failed.room_bytes,
            is_earlier: failed.is_earlier.into(),
            why,
        };
        Some((Code::of(Err(failed.error)), failure))
    })
}

/// Frees an inactive channel end.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn rmpi_channel_free(id: u64) -> c_int {
    visit(|universe| {
        universe
            .channels
            .free(&mut universe.messages, ChannelId(id))
    })
}

/// Writes the process's counters of channels, in this order: bytes moved directly, bytes packed, bytes sent eagerly,
/// one-sided writes, gates sent (keys of receive memory), allocations, bytes sent in frames, malformed frames.
///
/// # Safety
/// `counters` has room for eight values.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmpi_channel_counters(counters: *mut u64) -> c_int {
    let Some(target) = NonNull::new(counters.cast::<[u64; 8]>()) else {
        return Code::BadMemory as c_int;
    };
    let read = |mpi: Mpi| Some(mpi.visit(|universe| universe.channels.counters()));
    let Some(now) = in_mpi(None, read) else {
        return Code::NotReady as c_int;
    };
    let values = [
        now.direct_bytes,
        now.packed_bytes,
        now.eager_bytes,
        now.writes,
        now.gates,
        now.allocations,
        now.streamed_bytes,
        now.refused,
    ];
    // SAFETY: room for eight words: the caller's obligation.
    unsafe { target.write(values) };
    Code::Ok as c_int
}

/// Calls `visit` with the runtime of the process, and converts the result to a code.
fn visit(visit: impl FnOnce(&mut runtime::Universe) -> Result<(), ChannelError>) -> c_int {
    in_mpi(Code::NotReady, |mpi| Code::of(mpi.visit(visit))) as c_int
}

/// Runs a body in MPI; returns `otherwise` if MPI is not initialized, or already finalized.
fn in_mpi<R>(otherwise: R, body: impl FnOnce(Mpi) -> R) -> R {
    enter_private("rmpi_channel_wait", body).unwrap_or(otherwise)
}

/// # Safety
/// `ids` has `count` elements, valid while the result is in use.
unsafe fn names<'a>(ids: *const u64, count: usize) -> &'a [ChannelId] {
    match NonNull::new(ids.cast_mut().cast::<ChannelId>()) {
        // SAFETY: `count` words: the caller's obligation; an id is one word.
        Some(ids) => unsafe { slice::from_raw_parts(ids.as_ptr(), count) },
        None => no_names(count),
    }
}

/// The ids to use for a NULL array: one invalid id, so that the call fails; no ids if `count` is 0.
#[cold]
fn no_names(count: usize) -> &'static [ChannelId] {
    &[ChannelId(0)][..count.min(1)]
}

/// Converts pieces to the memory of a channel; `None` if they are invalid.
///
/// # Safety
/// `pieces` has `count` elements, whose memory belongs to the channel while it is active.
unsafe fn memory_of(pieces: *const MessageBlocks, count: usize) -> Option<ChannelMemory> {
    if count == 0 {
        return ChannelMemory::new([]);
    }
    let pieces = NonNull::new(pieces.cast_mut())?;
    // SAFETY: `count` elements: the caller's obligation.
    let pieces = unsafe { slice::from_raw_parts(pieces.as_ptr(), count) };
    let is_empty = |piece: &&MessageBlocks| piece.block_bytes == 0 || piece.blocks == 0;
    let used = pieces.iter().filter(|piece| !is_empty(piece));
    let blocks = used.map(|piece| {
        let base = NonNull::new(piece.base.cast::<u8>())?;
        // SAFETY: the memory of the pieces belongs to the channel: the caller's obligation.
        Some(unsafe { UserBlocks::new(base, piece.block_bytes, piece.blocks, piece.stride) })
    });
    ChannelMemory::new(blocks.collect::<Option<Vec<_>>>()?)
}

const VERSION: c_int = 2;
const WHY_BYTES: usize = 256;
