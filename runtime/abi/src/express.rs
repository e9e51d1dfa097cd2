// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane: the fast path of the most frequent calls, for their common case. In every other case a function
//! returns `None`, and the entry point takes the ordinary path. Only the ordinary path reports errors. A rank's *peer
//! number* ([`Peer`]) identifies its process in the job.
//!
//! # Safety
//! The lane is open only between `MPI_Init` and `MPI_Finalize` and below `MPI_THREAD_MULTIPLE`: otherwise it contains
//! no handle, and the functions return `None` at the first comparison, or continue in `express_shared`. So the program
//! must ensure that only one thread at a time is here (MPI 5.0 section 11.6). "No other thread is in MPI" below means:
//! no other thread accesses the library's state. At `MPI_THREAD_MULTIPLE` the functions of `express_shared` take the
//! lock before they call other functions of this module. No [visit of the state](crate::state) is in progress, since a
//! visit never runs code of the program. Pointers come from the program (A1, A2 of `args`) and are dereferenced only
//! after a check for NULL.
#![allow(
    unsafe_code,
    reason = "reads the program's bytes and writes its request and status"
)]

use core::ffi::{c_int, c_void};
use core::hint::cold_path;

use runtime::{
    ContextId, Deferred, Peer, ReceivedMessage, SendTarget, ToFarPeer, Universe, UserMemory,
};

use crate::args::{MutBuf, OutStatus};
use crate::c::MPI_SUCCESS;
use crate::datatype_table::SIZES;
use crate::express_lanes::{ExpressLane, lane};
use crate::express_shared;
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Request};
use crate::pt2pt::{finish_posted, finish_sendrecv};
use crate::state::{DEFERRED, DONE, request_handle, universe};
use crate::status::MPI_Status;

/// `MPI_Isend` of four or eight contiguous bytes, to a peer of this node for which no message is queued.
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
    // SAFETY: the caller's obligations, passed on.
    let posted = unsafe { post(buf, count, datatype, dest, tag, comm) }?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(DONE) };
    Some(posted.ring())
}

/// `MPI_Send` of four or eight contiguous bytes, to a peer of this node for which no message is queued.
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
    // SAFETY: the caller's obligations, passed on.
    Some(unsafe { post(buf, count, datatype, dest, tag, comm) }?.ring())
}

/// `MPI_Isend` of contiguous bytes to any peer, if the message can be posted immediately: for messages that [`isend`]
/// does not handle.
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
    let Some(lane) = lane(comm) else {
        cold_path();
        // SAFETY: the caller's obligations, passed on.
        let code = unsafe { express_shared::isend(buf, count, datatype, dest, tag, comm) }?;
        // SAFETY: A1, and not NULL.
        unsafe { request.write(DONE) };
        return Some(code);
    };
    // SAFETY: the caller's obligations, passed on.
    let code = unsafe { send_in(lane, buf, count, datatype, dest, tag, ToFarPeer::Defer) }?;
    if code == SENT_DEFERRED {
        cold_path();
        // SAFETY: A1, and not NULL.
        unsafe { request.write(DEFERRED) };
        return Some(MPI_SUCCESS);
    }
    // SAFETY: A1, and not NULL.
    unsafe { request.write(DONE) };
    Some(code)
}

/// `MPI_Send` of contiguous bytes to any peer, if the message can be posted immediately.
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
        // SAFETY: the caller's obligations, passed on.
        return unsafe { express_shared::send(buf, count, datatype, dest, tag, comm) };
    };
    // SAFETY: the caller's obligations, passed on.
    unsafe { send_in(lane, buf, count, datatype, dest, tag, ToFarPeer::Post) }
}

/// `MPI_Send` as in [`send_other`], with the communicator's lane already looked up.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Send`; no other thread is in MPI.
#[inline(always)]
pub(crate) unsafe fn send_in(
    lane: &ExpressLane,
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    to_far: ToFarPeer,
) -> Option<c_int> {
    let (bytes, size) = outgoing(buf, count, datatype, tag)?;
    let Some(peer) = lane.plain_peer(dest) else {
        cold_path();
        // SAFETY: the caller's obligations, passed on.
        return unsafe { send_listed(lane, buf, (bytes, size), dest, tag, to_far) };
    };
    // SAFETY: the caller's obligations, passed on.
    unsafe { send_to(lane, peer, buf, (bytes, size), tag, to_far) }
}

/// [`send_in`] with a lookup of the receiver in the lane's table.
///
/// # Safety
/// As [`send_in`]; `(bytes, size)` is the result of [`outgoing`].
#[inline(never)]
unsafe fn send_listed(
    lane: &ExpressLane,
    buf: *const c_void,
    (bytes, size): (u64, u64),
    dest: c_int,
    tag: c_int,
    to_far: ToFarPeer,
) -> Option<c_int> {
    let peer = lane.peer(dest)?;
    // SAFETY: the caller's obligations, passed on.
    if let Some(posted) = unsafe { post_word(lane, peer, buf, bytes, tag) } {
        return Some(posted.ring());
    }
    // SAFETY: the caller's obligations, passed on.
    unsafe { send_to(lane, peer, buf, (bytes, size), tag, to_far) }
}

/// What [`send_in`] returns in place of `MPI_SUCCESS` if the message may be deferred.
const SENT_DEFERRED: c_int = -1;

/// Sends a message of at most `MAX_BYTES` bytes to `peer`. `None` if the message is longer, its datatype is not a
/// contiguous predefined one (size 0), or it cannot be posted immediately.
///
/// # Safety
/// As [`send_listed`].
#[inline(always)]
unsafe fn send_to(
    lane: &ExpressLane,
    peer: Peer,
    buf: *const c_void,
    (bytes, size): (u64, u64),
    tag: c_int,
    to_far: ToFarPeer,
) -> Option<c_int> {
    let bytes = usize::try_from(bytes).ok()?;
    if size == 0 || bytes > MAX_BYTES {
        return None;
    }
    // SAFETY: A2: the buffer has `bytes` bytes; it is read before the call returns, and never written.
    let memory = unsafe { UserMemory::new(buf.cast_mut().cast(), bytes) };
    // SAFETY: the lane is open: the communicator is in it.
    let universe: &mut Universe = unsafe { universe() };
    let watched = universe
        .messages
        .send_fast(peer, (lane.context, tag), memory, to_far)?;
    match watched {
        Ok(watched) => Some(PostedMessage { peer, watched }.ring()),
        Err(Deferred) => Some(SENT_DEFERRED),
    }
}

/// `MPI_Irecv` of contiguous items without wildcards, from a rank that equals its peer number. If the message has
/// arrived already, returns `None`.
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
    let lane = lane(comm)?;
    let peer = lane.plain_peer(source)?;
    // SAFETY: the caller's obligations, passed on.
    unsafe { irecv_from(lane, peer, buf, count, datatype, tag, request) }
}

/// `MPI_Irecv` of contiguous items without wildcards, from any rank: for receives that [`irecv`] does not handle. If
/// the message has arrived already, returns `None`.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Irecv`.
#[inline(always)]
pub unsafe fn irecv_other(
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> Option<c_int> {
    let Some(lane) = lane(comm) else {
        // SAFETY: the caller's obligations, passed on.
        return unsafe { express_shared::irecv(buf, count, datatype, source, tag, comm, request) };
    };
    if lane.plain_peer(source).is_some() {
        // `irecv` is for sources like this one. The entry point has tried it, and it declined, so the ordinary path is
        // next.
        return None;
    }
    // SAFETY: the caller's obligations, passed on.
    unsafe { irecv_in(lane, buf, count, datatype, source, tag, request) }
}

/// `MPI_Irecv` as in [`irecv_other`], with the communicator's lane already looked up.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Irecv`; no other thread is in MPI.
#[inline(always)]
pub(crate) unsafe fn irecv_in(
    lane: &ExpressLane,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    request: *mut MPI_Request,
) -> Option<c_int> {
    let peer = lane.peer(source)?;
    // SAFETY: the caller's obligations, passed on.
    unsafe { irecv_from(lane, peer, buf, count, datatype, tag, request) }
}

/// [`irecv_in`] with the sender already looked up.
///
/// # Safety
/// As [`irecv_in`].
#[inline(always)]
unsafe fn irecv_from(
    lane: &ExpressLane,
    peer: Peer,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    tag: c_int,
    request: *mut MPI_Request,
) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    // SAFETY: the caller's obligations, passed on.
    let token = unsafe { post_receive(lane, peer, buf, count, datatype, tag) }?;
    // SAFETY: A1, and not NULL.
    unsafe { request.write(request_handle(token)) };
    Some(MPI_SUCCESS)
}

/// `MPI_Recv` of contiguous items without wildcards, from any rank. If the message has arrived already, returns `None`.
/// If it does not arrive soon, the wait continues on the ordinary path.
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
    // SAFETY: the caller's obligations, passed on.
    unsafe { recv_in(lane(comm)?, buf, count, datatype, source, tag, status, ()) }
}

/// `MPI_Recv` as in [`recv`], with the communicator's lane already looked up. `guard` keeps other threads out of MPI;
/// it is dropped before the call continues on the ordinary path.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Recv`; no other thread is in MPI.
#[allow(clippy::too_many_arguments, reason = "those of MPI_Recv")]
#[inline(always)]
pub(crate) unsafe fn recv_in<G>(
    lane: &ExpressLane,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    status: *mut MPI_Status,
    guard: G,
) -> Option<c_int> {
    let peer = lane.peer(source)?;
    // SAFETY: the caller's obligations, passed on.
    let token = unsafe { post_receive(lane, peer, buf, count, datatype, tag) }?;
    // SAFETY: the lane is open: the caller found `lane` in it. No other thread is in MPI: the caller's obligation.
    let ended = unsafe { universe() }.wait_briefly(token);
    let Some(received) = ended else {
        let comm = lane.handle;
        drop(guard);
        // SAFETY: A1.
        let status = unsafe { OutStatus::new(status) };
        return Some(finish_posted("MPI_Recv", token, comm, status));
    };
    // SAFETY: A1; the lane is open.
    Some(unsafe { write_status(status, received) })
}

/// `MPI_Sendrecv` whose message can be posted immediately. It receives as [`recv`] does, from a rank that equals its
/// peer number.
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
    let lane = lane(comm)?;
    let from = lane.plain_peer(source)?;
    let out = (sendbuf, sendcount, sendtype, dest, sendtag);
    let into = (recvbuf, recvcount, recvtype, source, recvtag);
    // SAFETY: the caller's obligations, passed on.
    unsafe { sendrecv_from(lane, from, out, into, status, ()) }
}

/// [`sendrecv`] from any rank, without wildcards: for calls that [`sendrecv`] does not handle.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Sendrecv`.
#[allow(clippy::too_many_arguments, reason = "those of MPI_Sendrecv")]
#[inline(always)]
pub unsafe fn sendrecv_other(
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
    let Some(lane) = lane(comm) else {
        // SAFETY: the caller's obligations, passed on.
        return unsafe { express_shared::sendrecv(out, into, comm, status) };
    };
    if lane.plain_peer(source).is_some() {
        // `sendrecv` is for sources like this one. The entry point has tried it, and it declined, so the ordinary path
        // is next.
        return None;
    }
    // SAFETY: the caller's obligations, passed on.
    unsafe { sendrecv_in(lane, out, into, status, ()) }
}

/// [`sendrecv_other`] with the communicator's lane already looked up. `guard` keeps other threads out of MPI; it is
/// dropped before the call continues on the ordinary path.
///
/// # Safety
/// A1 and A2 of `args` for the arguments of `MPI_Sendrecv`; no other thread is in MPI.
#[inline(always)]
pub(crate) unsafe fn sendrecv_in<G>(
    lane: &ExpressLane,
    out: Outgoing,
    into: Incoming,
    status: *mut MPI_Status,
    guard: G,
) -> Option<c_int> {
    let (_, _, _, source, _) = into;
    let from = lane.peer(source)?;
    // SAFETY: the caller's obligations, passed on.
    unsafe { sendrecv_from(lane, from, out, into, status, guard) }
}

/// [`sendrecv_in`] with the sender already looked up.
///
/// # Safety
/// As [`sendrecv_in`].
#[inline(always)]
unsafe fn sendrecv_from<G>(
    lane: &ExpressLane,
    from: Peer,
    (sendbuf, sendcount, sendtype, dest, sendtag): Outgoing,
    (recvbuf, recvcount, recvtype, source, recvtag): Incoming,
    status: *mut MPI_Status,
    guard: G,
) -> Option<c_int> {
    // The arguments of the receive are checked before anything is sent.
    incoming(recvbuf, recvcount, recvtype, recvtag)?;
    // SAFETY: the caller's obligations, passed on.
    unsafe {
        send_in(
            lane,
            sendbuf,
            sendcount,
            sendtype,
            dest,
            sendtag,
            ToFarPeer::Post,
        )
    }?;
    // SAFETY: the caller's obligations, passed on.
    let token = unsafe { post_receive(lane, from, recvbuf, recvcount, recvtype, recvtag) };
    let Some(token) = token else {
        let comm = lane.handle;
        drop(guard);
        // SAFETY: A1.
        let status = unsafe { OutStatus::new(status) };
        let call = (MutBuf(recvbuf), recvcount.into(), recvtype, source, recvtag);
        return Some(finish_sendrecv(call, comm, status));
    };
    // SAFETY: the lane is open: the caller found `lane` in it. No other thread is in MPI: the caller's obligation.
    let ended = unsafe { universe() }.wait_briefly(token);
    let Some(received) = ended else {
        let comm = lane.handle;
        drop(guard);
        // SAFETY: A1.
        let status = unsafe { OutStatus::new(status) };
        return Some(finish_posted("MPI_Sendrecv", token, comm, status));
    };
    // SAFETY: A1; the lane is open.
    Some(unsafe { write_status(status, received) })
}

/// Number of bytes of a send, and number of bytes of one item. `None` if the arguments are not the common case.
#[inline(always)]
fn outgoing(
    buf: *const c_void,
    count: c_int,
    datatype: MPI_Datatype,
    tag: c_int,
) -> Option<(u64, u64)> {
    let size = *SIZES.get(datatype.0.wrapping_sub(MPI_Datatype::NULL.0))?;
    if tag < 0 || buf.addr() < FIRST_ADDRESS {
        return None;
    }
    // The callers reject a negative count, which gives more bytes than `MAX_BYTES`, and size 0: the datatype is not a
    // contiguous predefined one.
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
) -> Option<PostedMessage> {
    let lane = lane(comm)?;
    let (bytes, _) = outgoing(buf, count, datatype, tag)?;
    let peer = lane.plain_peer(dest)?;
    // SAFETY: the caller's obligations, passed on.
    unsafe { post_word(lane, peer, buf, bytes, tag) }
}

/// Posts a message of eight or four bytes. `None` for other lengths, or if the message cannot be posted immediately.
///
/// # Safety
/// The lane is open, and `buf` points to `bytes` bytes.
#[inline(always)]
unsafe fn post_word(
    lane: &ExpressLane,
    peer: Peer,
    buf: *const c_void,
    bytes: u64,
    tag: c_int,
) -> Option<PostedMessage> {
    let envelope = || (lane.context, tag);
    // SAFETY: the lane is open: the communicator is in it.
    let universe: &mut Universe = unsafe { universe() };
    if bytes == 8 {
        // SAFETY: the caller's obligation.
        let word = || unsafe { buf.cast::<u64>().read_unaligned() };
        let watched = universe.messages.send_word::<8>(peer, envelope, word)?;
        return Some(PostedMessage { peer, watched });
    }
    cold_path();
    if bytes == 4 {
        // SAFETY: the caller's obligation.
        let word = || u64::from(unsafe { buf.cast::<u32>().read_unaligned() });
        let watched = universe.messages.send_word::<4>(peer, envelope, word)?;
        return Some(PostedMessage { peer, watched });
    }
    None
}

/// Number of bytes of a receive; `None` if the arguments are not the common case.
#[inline(always)]
fn incoming(buf: *mut c_void, count: c_int, datatype: MPI_Datatype, tag: c_int) -> Option<usize> {
    let size = *SIZES.get(datatype.0.wrapping_sub(MPI_Datatype::NULL.0))?;
    // `fits` is false for a negative count, which gives more bytes than `MAX_BYTES`, and for a size of 0: the datatype
    // is not a contiguous predefined one.
    let bytes = count.cast_unsigned() as usize * usize::from(size);
    let fits = bytes.wrapping_sub(1) < MAX_BYTES || (bytes == 0 && size != 0);
    (tag >= 0 && buf.addr() >= FIRST_ADDRESS && fits).then_some(bytes)
}

#[inline(always)]
unsafe fn post_receive(
    lane: &ExpressLane,
    peer: Peer,
    buf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    tag: c_int,
) -> Option<u32> {
    let bytes = incoming(buf, count, datatype, tag)?;
    // SAFETY: A2: the buffer holds `count` items and is the library's until the receive is complete.
    let memory = unsafe { UserMemory::new(buf.cast(), bytes) };
    let target = SendTarget {
        context: lane.context,
        peer,
        tag,
    };
    #[allow(clippy::cast_possible_truncation, reason = "SIZES has the handle")]
    let number = datatype.0 as u32;
    // SAFETY: the lane is open: the communicator is in it.
    unsafe { universe() }
        .messages
        .receive_first(target, memory, number)
}

/// Writes a status, except `MPI_ERROR` (MPI 5.0 section 3.2.5). Returns `MPI_SUCCESS`.
///
/// # Safety
/// A1 of `args` for `status`; the lane is open.
#[inline(always)]
pub(crate) unsafe fn write_status(status: *mut MPI_Status, received: ReceivedMessage) -> c_int {
    if status.is_null() {
        return MPI_SUCCESS;
    }
    let ReceivedMessage {
        peer,
        tag,
        bytes,
        context,
    } = received;
    // SAFETY: the lane is open.
    if !unsafe { universe() }.comms.is_plain(context) {
        cold_path();
        // SAFETY: the caller's obligations, passed on.
        return unsafe { write_status_listed(status, peer, context, tag, bytes) };
    }
    // SAFETY: A1: `status` is the program's, and not NULL.
    unsafe { OutStatus::new(status) }.set(MPI_Status::received(peer.0.cast_signed(), tag, bytes));
    MPI_SUCCESS
}

/// [`write_status`] with a lookup of the sender's rank. The parameters are single words, so that they are passed in
/// registers.
///
/// # Safety
/// As [`write_status`], and `status` is not NULL.
#[inline(never)]
unsafe fn write_status_listed(
    status: *mut MPI_Status,
    peer: Peer,
    context: ContextId,
    tag: c_int,
    bytes: u64,
) -> c_int {
    let received = ReceivedMessage {
        peer,
        context,
        tag,
        bytes,
    };
    // SAFETY: the lane is open.
    let status_value = status_of(unsafe { universe() }, received);
    // SAFETY: A1: `status` is the program's, and not NULL.
    unsafe { OutStatus::new(status) }.set(status_value);
    MPI_SUCCESS
}

/// The status of a receive.
#[inline(always)]
pub(crate) fn status_of(universe: &Universe, received: ReceivedMessage) -> MPI_Status {
    let source = universe.comms.sender_rank(&received);
    MPI_Status::received(source, received.tag, received.bytes)
}

/// A message that was posted to a peer.
struct PostedMessage {
    peer: Peer,
    /// Whether the peer polls its ring. If `false`, the peer's doorbell must be rung.
    watched: bool,
}

impl PostedMessage {
    #[inline(always)]
    fn ring(self) -> c_int {
        if self.watched {
            MPI_SUCCESS
        } else {
            ring_bell(self.peer)
        }
    }
}

#[cold]
#[inline(never)]
fn ring_bell(peer: Peer) -> c_int {
    // SAFETY: the lane is open: a message was just posted through it.
    unsafe { universe() }.messages.ring_bell(peer);
    MPI_SUCCESS
}

/// Arguments of a send: buffer, count, datatype, destination, tag.
pub(crate) type Outgoing = (*const c_void, c_int, MPI_Datatype, c_int, c_int);
/// Arguments of a receive: buffer, count, datatype, source, tag.
pub(crate) type Incoming = (*mut c_void, c_int, MPI_Datatype, c_int, c_int);

/// The lane handles messages of at most this many bytes. A negative count, read as unsigned, gives more bytes.
const MAX_BYTES: usize = i32::MAX as usize;
/// The lowest address that a buffer may have here. NULL and the constants of address type (such as `MPI_IN_PLACE`) are
/// lower.
const FIRST_ADDRESS: usize = 4096;
