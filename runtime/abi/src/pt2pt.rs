// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends and receives (MPI 5.0 chapter 3): the arguments of all forms of a call are checked here.
//!
//! # Safety
//! Buffers are converted to [`UserMemory`] here. Obligation **B1**, for every function that takes a buffer: the caller
//! complies with MPI 5.0 sections 3.2.2 and 3.7.2. So the buffer contains the items that count and datatype describe,
//! and the program does not access it until the operation is complete.
#![allow(unsafe_code, reason = "the program's buffers become UserMemory")]

use core::ffi::c_int;
use runtime::datatype::Datatype;
use runtime::{
    Awaits, Mode, Payload, Peer, ReceiveSource, RequestId, SendMode, SendTarget, Structured,
    UserMemory, Visit,
};

use crate::args::{ConstBuf, MutBuf, OutArg, OutStatus};
use crate::c::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_PROC_NULL};
use crate::datatype_table::dense_size;
use crate::enter::{Mpi, On, enter};
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Request, describe};
use crate::request::{finish_alone, handle_of};
use crate::state::{CommObject, DEFERRED, DONE, DONE_NULL, LibraryState};
use crate::status::MPI_Status;
use crate::type_rows;

/// `MPI_Send`.
pub fn send(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    let started = start_send(
        mpi,
        Pt2ptCall {
            buf: buf.into(),
            count,
            datatype,
            peer: dest,
            tag,
            comm,
        },
        Form::Standard,
    )?;
    complete_send(mpi, started)
}

/// `MPI_Bsend`.
pub fn bsend(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    let started = start_send(
        mpi,
        Pt2ptCall {
            buf: buf.into(),
            count,
            datatype,
            peer: dest,
            tag,
            comm,
        },
        Form::Buffered,
    )?;
    complete_send(mpi, started)
}

/// `MPI_Rsend`.
pub fn rsend(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    send(mpi, buf, count, datatype, dest, tag, comm)
}

/// `MPI_Ssend`.
pub fn ssend(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    let started = start_send(
        mpi,
        Pt2ptCall {
            buf: buf.into(),
            count,
            datatype,
            peer: dest,
            tag,
            comm,
        },
        Form::Synchronous,
    )?;
    complete_send(mpi, started)
}

/// `MPI_Isend`.
pub fn isend(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let call = Pt2ptCall {
        buf: buf.into(),
        count,
        datatype,
        peer: dest,
        tag,
        comm,
    };
    give_send(mpi, call, Form::Nonblocking, &request)
}

/// `MPI_Ibsend`.
pub fn ibsend(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let call = Pt2ptCall {
        buf: buf.into(),
        count,
        datatype,
        peer: dest,
        tag,
        comm,
    };
    give_send(mpi, call, Form::Buffered, &request)
}

/// `MPI_Irsend`.
pub fn irsend(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    isend(mpi, buf, count, datatype, dest, tag, comm, request)
}

/// `MPI_Issend`.
pub fn issend(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let call = Pt2ptCall {
        buf: buf.into(),
        count,
        datatype,
        peer: dest,
        tag,
        comm,
    };
    give_send(mpi, call, Form::Synchronous, &request)
}

/// `MPI_Recv`.
pub fn recv(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: OutStatus<'_>,
) -> Result<()> {
    match start_receive(
        mpi,
        Pt2ptCall {
            buf,
            count,
            datatype,
            peer: source,
            tag,
            comm,
        },
    )? {
        None => status.set(MPI_Status::PROC_NULL),
        Some(request) => finish_alone(mpi, request, &status)?,
    }
    Ok(())
}

/// Completes an `MPI_Recv` or `MPI_Sendrecv` whose receive the express lane has posted.
pub fn finish_posted(
    name: &'static str,
    token: u32,
    comm: MPI_Comm,
    status: OutStatus<'_>,
) -> c_int {
    enter(name, On::Comm(comm), |mpi| {
        let id = mpi.visit(|universe| universe.messages.find_request(token));
        finish_alone(mpi, id.expect("posted a moment ago"), &status)
    })
}

/// Completes an `MPI_Sendrecv` whose message was sent on the express lane.
#[cold]
#[inline(never)]
pub fn finish_sendrecv(
    (buf, count, datatype, source, tag): (MutBuf, i64, MPI_Datatype, c_int, c_int),
    comm: MPI_Comm,
    status: OutStatus<'_>,
) -> c_int {
    enter("MPI_Sendrecv", On::Comm(comm), |mpi| {
        recv(mpi, buf, count, datatype, source, tag, comm, status)
    })
}

/// `MPI_Irecv`.
pub fn irecv(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let started = start_receive(
        mpi,
        Pt2ptCall {
            buf,
            count,
            datatype,
            peer: source,
            tag,
            comm,
        },
    )?;
    request.set(handle_of(mpi, started, DONE_NULL));
    Ok(())
}

/// `MPI_Send_init`.
pub fn send_init(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let call = Pt2ptCall {
        buf: buf.into(),
        count,
        datatype,
        peer: dest,
        tag,
        comm,
    };
    prepare_send(mpi, call, Form::Standard, &request)
}

/// `MPI_Bsend_init`.
pub fn bsend_init(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let call = Pt2ptCall {
        buf: buf.into(),
        count,
        datatype,
        peer: dest,
        tag,
        comm,
    };
    prepare_send(mpi, call, Form::Buffered, &request)
}

/// `MPI_Rsend_init`.
pub fn rsend_init(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    send_init(mpi, buf, count, datatype, dest, tag, comm, request)
}

/// `MPI_Ssend_init`.
pub fn ssend_init(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let call = Pt2ptCall {
        buf: buf.into(),
        count,
        datatype,
        peer: dest,
        tag,
        comm,
    };
    prepare_send(mpi, call, Form::Synchronous, &request)
}

/// `MPI_Recv_init`.
pub fn recv_init(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let call = Pt2ptCall {
        buf,
        count,
        datatype,
        peer: source,
        tag,
        comm,
    };
    let prepared = mpi.state(|state| -> Result<RequestId> {
        let source = source_of(state.comm(comm)?, call.peer, call.tag)?;
        let data = payload(state, &call)?;
        let messages = &mut state.universe.messages;
        let prepared = match (source, data) {
            (None, data) => {
                messages.prepare_payload(None, data, SendMode::Direct(Mode::Standard))?
            }
            (Some(source), Payload::Dense(memory)) => messages.prepare_receive(source, memory)?,
            (Some(source), Payload::Structured(data)) => {
                messages.prepare_receive_structured(source, data)?
            }
        };
        note(state, prepared, &call);
        Ok(prepared)
    })?;
    request.set(handle_of(mpi, Some(prepared), DONE));
    Ok(())
}

/// `MPI_Sendrecv`.
pub fn sendrecv(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    source: c_int,
    recvtag: c_int,
    comm: MPI_Comm,
    status: OutStatus<'_>,
) -> Result<()> {
    let out = Pt2ptCall {
        buf: sendbuf.into(),
        count: sendcount,
        datatype: sendtype,
        peer: dest,
        tag: sendtag,
        comm,
    };
    let into = Pt2ptCall {
        buf: recvbuf,
        count: recvcount,
        datatype: recvtype,
        peer: source,
        tag: recvtag,
        comm,
    };
    check_send(mpi, &out)?;
    let received = start_receive(mpi, into)?;
    let sent = start_send(mpi, out, Form::Standard)?;
    let result = match received {
        None => {
            status.set(MPI_Status::PROC_NULL);
            Ok(())
        }
        Some(request) => finish_received(mpi, request, sent, &status),
    };
    complete_send(mpi, sent).and(result)
}

/// `MPI_Sendrecv_replace`.
pub fn sendrecv_replace(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: MPI_Comm,
    status: OutStatus<'_>,
) -> Result<()> {
    let out = Pt2ptCall {
        buf,
        count,
        datatype,
        peer: dest,
        tag: sendtag,
        comm,
    };
    let into = Pt2ptCall {
        peer: source,
        tag: recvtag,
        ..out
    };
    check_receive(mpi, &into)?;
    // Copies the data before the receive can overwrite them.
    let sent = start_copied(mpi, out)?;
    let result = match start_receive(mpi, into)? {
        None => {
            status.set(MPI_Status::PROC_NULL);
            Ok(())
        }
        Some(request) => finish_received(mpi, request, sent, &status),
    };
    complete_send(mpi, sent).and(result)
}

/// `MPI_Isendrecv`.
pub fn isendrecv(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    source: c_int,
    recvtag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let out = Pt2ptCall {
        buf: sendbuf.into(),
        count: sendcount,
        datatype: sendtype,
        peer: dest,
        tag: sendtag,
        comm,
    };
    let into = Pt2ptCall {
        buf: recvbuf,
        count: recvcount,
        datatype: recvtype,
        peer: source,
        tag: recvtag,
        comm,
    };
    check_send(mpi, &out)?;
    let received = start_receive(mpi, into)?;
    let sent = start_send(mpi, out, Form::Standard)?;
    give_both(mpi, sent, received, &request)
}

/// `MPI_Isendrecv_replace`.
pub fn isendrecv_replace(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: MPI_Comm,
    request: OutRequest<'_>,
) -> Result<()> {
    let out = Pt2ptCall {
        buf,
        count,
        datatype,
        peer: dest,
        tag: sendtag,
        comm,
    };
    let into = Pt2ptCall {
        peer: source,
        tag: recvtag,
        ..out
    };
    check_receive(mpi, &into)?;
    let sent = start_copied(mpi, out)?;
    let received = start_receive(mpi, into)?;
    give_both(mpi, sent, received, &request)
}

/// Output parameter for the handle of a new request.
type OutRequest<'a> = OutArg<'a, MPI_Request>;

/// The arguments common to all calls of this chapter.
#[derive(Clone, Copy)]
pub(crate) struct Pt2ptCall {
    pub(crate) buf: MutBuf,
    pub(crate) count: i64,
    pub(crate) datatype: MPI_Datatype,
    pub(crate) peer: c_int,
    pub(crate) tag: c_int,
    pub(crate) comm: MPI_Comm,
}

/// Size of a page in bytes. The first page of the address space is assumed not to be mapped.
const PAGE: i64 = 4096;

/// The kind of send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Standard,
    /// Standard and nonblocking.
    Nonblocking,
    Synchronous,
    Buffered,
}

fn start_send(mpi: Mpi, call: Pt2ptCall, form: Form) -> Result<Option<RequestId>> {
    let started = mpi.state(|state| {
        let Some((target, data)) = parse_send(state, &call)? else {
            return Ok(None);
        };
        let mode = send_mode(state, form, call.comm, data.bytes())?;
        let started = state.universe.sending().send_payload(target, &data, mode)?;
        Ok::<_, Error>(started.inspect(|it| note(state, *it, &call)))
    })?;
    if started.is_none() {
        mpi.progress_briefly();
    }
    Ok(started)
}

/// Starts the send of a copy of the data, for calls that receive into the send buffer.
fn start_copied(mpi: Mpi, call: Pt2ptCall) -> Result<Option<RequestId>> {
    mpi.state(|state| {
        let Some((target, data)) = parse_send(state, &call)? else {
            return Ok(None);
        };
        let started = state
            .universe
            .sending()
            .send_owned(target, data.copy(), Mode::Standard)?;
        Ok(started.inspect(|it| note(state, *it, &call)))
    })
}

fn start_receive(mpi: Mpi, call: Pt2ptCall) -> Result<Option<RequestId>> {
    mpi.state(|state| {
        let source = source_of(state.comm(call.comm)?, call.peer, call.tag)?;
        let data = payload(state, &call)?;
        let Some(source) = source else {
            return Ok(None);
        };
        let messages = &mut state.universe.messages;
        let started = match data {
            Payload::Dense(memory) => messages.receive(source, memory)?,
            Payload::Structured(data) => messages.receive_structured(source, data)?,
        };
        note(state, started, &call);
        Ok(Some(started))
    })
}

/// Records the datatype of a request for debuggers.
pub(crate) fn note(state: &mut LibraryState, request: RequestId, call: &Pt2ptCall) {
    let messages = &mut state.universe.messages;
    messages.record_datatype(request, type_rows::number(call.datatype));
}

fn check_send(mpi: Mpi, call: &Pt2ptCall) -> Result<()> {
    mpi.state(|state| parse_send(state, call).map(drop))
}

fn check_receive(mpi: Mpi, call: &Pt2ptCall) -> Result<()> {
    mpi.state(|state| source_of(state.comm(call.comm)?, call.peer, call.tag).map(drop))
}

fn prepare_send(mpi: Mpi, call: Pt2ptCall, form: Form, request: &OutRequest<'_>) -> Result<()> {
    let prepared = mpi.state(|state| -> Result<RequestId> {
        let target = target_of(state.comm(call.comm)?, call.peer, call.tag)?;
        let data = payload(state, &call)?;
        let mode = match form {
            Form::Standard | Form::Nonblocking => SendMode::Direct(Mode::Standard),
            Form::Synchronous => SendMode::Direct(Mode::Synchronous),
            Form::Buffered => SendMode::Buffered {
                buffer: crate::buffer::of_comm(state, call.comm),
            },
        };
        let messages = &mut state.universe.messages;
        let prepared = messages.prepare_payload(target, data, mode)?;
        note(state, prepared, &call);
        Ok(prepared)
    })?;
    request.set(handle_of(mpi, Some(prepared), DONE));
    Ok(())
}

fn give_send(mpi: Mpi, call: Pt2ptCall, form: Form, request: &OutRequest<'_>) -> Result<()> {
    let started = start_send(mpi, call, form)?;
    let done = match started {
        None if mpi.visit(|universe| universe.messages.has_deferred()) => DEFERRED,
        _ => DONE,
    };
    request.set(handle_of(mpi, started, done));
    Ok(())
}

fn give_both(
    mpi: Mpi,
    sent: Option<RequestId>,
    received: Option<RequestId>,
    request: &OutRequest<'_>,
) -> Result<()> {
    let handle = match (sent, received) {
        (None, None) => DONE_NULL,
        (None, Some(only)) => handle_of(mpi, Some(only), DONE),
        (Some(sent), received) => {
            let parts = std::iter::once(sent).chain(received).collect();
            let both = mpi.visit(|universe| universe.messages.bundle(parts, received))?;
            handle_of(mpi, Some(both), DONE)
        }
    };
    request.set(handle);
    Ok(())
}

/// Completes a receive. `sent`: the send of the same call, if that send is in progress; debuggers see that the call
/// waits for both requests.
fn finish_received(
    mpi: Mpi,
    request: RequestId,
    sent: Option<RequestId>,
    status: &OutStatus<'_>,
) -> Result<()> {
    if let Some(sent) = sent {
        mpi.wait_until(Awaits::Both(request, sent), |universe| {
            universe.messages.is_complete(request)
        });
    }
    finish_alone(mpi, request, status)
}

fn complete_send(mpi: Mpi, started: Option<RequestId>) -> Result<()> {
    let Some(request) = started else {
        return Ok(());
    };
    mpi.wait_for(request);
    let status = mpi.visit(|universe| universe.collect(request));
    status.error.map_or(Ok(()), |error| Err(error.into()))
}

fn parse_send(state: &LibraryState, call: &Pt2ptCall) -> Result<Option<(SendTarget, Payload)>> {
    let target = target_of(state.comm(call.comm)?, call.peer, call.tag)?;
    let data = payload(state, call)?;
    Ok(target.map(|target| (target, data)))
}

fn send_mode(state: &mut LibraryState, form: Form, comm: MPI_Comm, bytes: u64) -> Result<SendMode> {
    Ok(match form {
        Form::Standard => SendMode::Direct(Mode::Standard),
        Form::Nonblocking => SendMode::Direct(Mode::Deferrable),
        Form::Synchronous => SendMode::Direct(Mode::Synchronous),
        Form::Buffered => SendMode::Buffered {
            buffer: crate::buffer::reserve(state, comm, bytes)?,
        },
    })
}

/// The target of a send; `None` for `MPI_PROC_NULL`.
fn target_of(object: &CommObject, dest: c_int, tag: c_int) -> Result<Option<SendTarget>> {
    if tag < 0 {
        return Err(bad_tag(tag));
    }
    let context = object.comm.context;
    Ok(peer_of(object, dest, "destination")?.map(|peer| SendTarget { context, peer, tag }))
}

/// The source pattern of a receive or probe; `None` for `MPI_PROC_NULL`.
pub(crate) fn source_of(
    object: &CommObject,
    source: c_int,
    tag: c_int,
) -> Result<Option<ReceiveSource>> {
    if tag < 0 && tag != MPI_ANY_TAG {
        return Err(bad_tag(tag));
    }
    let tag = (tag != MPI_ANY_TAG).then_some(tag);
    let context = object.comm.context;
    if source == MPI_ANY_SOURCE {
        return Ok(Some(ReceiveSource {
            context,
            peer: None,
            tag,
        }));
    }
    let peer = peer_of(object, source, "source")?;
    Ok(peer.map(|peer| ReceiveSource {
        context,
        peer: Some(peer),
        tag,
    }))
}

fn peer_of(object: &CommObject, rank: c_int, which: &str) -> Result<Option<Peer>> {
    if rank == MPI_PROC_NULL {
        return Ok(None);
    }
    let peer = u32::try_from(rank)
        .ok()
        .and_then(|rank| object.comm.partners().peer(rank));
    peer.map(Some)
        .ok_or_else(|| bad_rank(which, rank, object.comm.partners().size()))
}

/// The buffer of a call as data for the runtime.
pub(crate) fn payload(state: &LibraryState, call: &Pt2ptCall) -> Result<Payload> {
    let Pt2ptCall {
        buf,
        count,
        datatype,
        ..
    } = *call;
    let items = u64::try_from(count).map_err(|_| bad_count(count))?;
    let dense = dense_size(datatype);
    if dense != 0 {
        let bytes = usize::try_from(items)
            .ok()
            .and_then(|items| items.checked_mul(dense));
        let bytes = bytes.ok_or_else(|| bad_count(count))?;
        return Ok(Payload::Dense(lend(buf, 0, bytes)?));
    }
    let object = state.datatype(datatype)?;
    if !object.committed {
        return Err(uncommitted(datatype));
    }
    let forgotten = buf.is_in_place() || buf.is_bottom() && !has_addresses(&object.datatype);
    if let Some((offset, bytes)) = object.datatype.dense(items) {
        let bytes = usize::try_from(bytes).map_err(|_| bad_count(count))?;
        if forgotten && bytes > 0 {
            return Err(bad_buffer(buf, bytes));
        }
        return Ok(Payload::Dense(lend(buf, offset, bytes)?));
    }
    if object
        .datatype
        .size
        .checked_mul(items)
        .is_none_or(|bytes| i64::try_from(bytes).is_err())
    {
        return Err(bad_count(count));
    }
    let base = buf.0.cast();
    if forgotten {
        let bytes = object.datatype.size.saturating_mul(items);
        return Err(bad_buffer(
            buf,
            usize::try_from(bytes).unwrap_or(usize::MAX),
        ));
    }
    // SAFETY: B1: the caller describes its own memory with count and datatype.
    Ok(Payload::Structured(unsafe {
        Structured::new(base, items, &object.datatype)
    }))
}

/// Whether a datatype has absolute addresses: its lowest displacement is below `-PAGE`, or at least `PAGE`. For such a
/// datatype a NULL buffer is `MPI_BOTTOM`. For any other datatype a NULL buffer is an error if there are data.
fn has_addresses(datatype: &Datatype) -> bool {
    !(-PAGE..PAGE).contains(&datatype.true_lb)
}

pub(crate) fn lend(buf: MutBuf, offset: i64, bytes: usize) -> Result<UserMemory> {
    let start = buf
        .0
        .cast::<u8>()
        .wrapping_offset(isize::try_from(offset).unwrap_or(0));
    if bytes == 0 {
        return Ok(UserMemory::nothing());
    }
    if start.is_null() || buf.is_in_place() {
        return Err(bad_buffer(buf, bytes));
    }
    // SAFETY: B1: the `bytes` bytes are the library's until the operation is complete.
    Ok(unsafe { UserMemory::new(start, bytes) })
}

impl From<ConstBuf> for MutBuf {
    /// The runtime has one type for the buffers of sends and receives; nothing writes through the memory of a send.
    fn from(buf: ConstBuf) -> Self {
        Self(buf.0.cast_mut())
    }
}

#[cold]
fn bad_tag(tag: c_int) -> Error {
    let detail = format!(
        "tag {tag} is out of range, expected 0 to {} (MPI_TAG_UB)",
        c_int::MAX
    );
    Error::new(ErrorClass::TAG, detail)
}

#[cold]
pub(crate) fn bad_rank(which: &str, rank: c_int, size: u32) -> Error {
    let s = if size == 1 { "" } else { "s" };
    let detail =
        format!("{which} rank {rank} is not in the communicator, which has {size} rank{s}");
    Error::new(ErrorClass::RANK, detail)
}

#[cold]
pub(crate) fn bad_count(count: i64) -> Error {
    let detail = if count < 0 {
        format!("count {count} is negative")
    } else {
        format!("count {count} makes more bytes than there are addresses")
    };
    Error::new(ErrorClass::COUNT, detail)
}

#[cold]
fn bad_buffer(buf: MutBuf, bytes: usize) -> Error {
    let what = if buf.is_in_place() {
        "MPI_IN_PLACE"
    } else {
        "NULL"
    };
    Error::new(
        ErrorClass::BUFFER,
        format!("the buffer is {what}, expected the address of {bytes} bytes"),
    )
}

#[cold]
pub(crate) fn uncommitted(datatype: MPI_Datatype) -> Error {
    let detail = format!(
        "datatype {} is not committed; call MPI_Type_commit first",
        describe(datatype.0)
    );
    Error::new(ErrorClass::TYPE, detail)
}
