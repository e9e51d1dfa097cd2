// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for buffered sends (MPI 5.0 section 3.6). Messages are copied into the library's own memory. The attached
//! buffer only limits their total size: a buffer that is too small is an error here, as it is in other MPI
//! implementations.

use core::ffi::c_int;
use std::time::{Duration, Instant};

use runtime::{Awaits, Visit};

use crate::args::{ExtraState, MutBuf, OutArg, OutCount};
use crate::c::{MPI_BSEND_OVERHEAD, MPI_BUFFER_AUTOMATIC};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Request, MPI_Session};
use crate::request::handle_of;
use crate::session::SessionNumber;
use crate::state::{DONE, LibraryState};

/// A buffer that the program attached.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    address: MutBuf,
    bytes: u64,
}

/// `MPI_Buffer_attach`.
pub fn buffer_attach(mpi: Mpi, buffer: MutBuf, size: i64) -> Result<()> {
    attach(mpi, PROCESS, buffer, size)
}

/// `MPI_Buffer_detach`.
pub fn buffer_detach(mpi: Mpi, address: OutArg<'_, ExtraState>, size: OutCount<'_>) -> Result<()> {
    detach(mpi, PROCESS, &address, &size)
}

/// `MPI_Buffer_flush`.
pub fn buffer_flush(mpi: Mpi) -> Result<()> {
    flush(mpi, PROCESS)
}

/// `MPI_Buffer_iflush`.
pub fn buffer_iflush(mpi: Mpi, request: OutArg<'_, MPI_Request>) -> Result<()> {
    iflush(mpi, PROCESS, &request)
}

/// `MPI_Comm_attach_buffer`.
pub fn comm_attach_buffer(mpi: Mpi, comm: MPI_Comm, buffer: MutBuf, size: i64) -> Result<()> {
    attach(mpi, number_of(mpi, comm)?, buffer, size)
}

/// `MPI_Comm_detach_buffer`.
pub fn comm_detach_buffer(
    mpi: Mpi,
    comm: MPI_Comm,
    address: OutArg<'_, ExtraState>,
    size: OutCount<'_>,
) -> Result<()> {
    detach(mpi, number_of(mpi, comm)?, &address, &size)
}

/// `MPI_Comm_flush_buffer`.
pub fn comm_flush_buffer(mpi: Mpi, comm: MPI_Comm) -> Result<()> {
    flush(mpi, number_of(mpi, comm)?)
}

/// `MPI_Comm_iflush_buffer`.
pub fn comm_iflush_buffer(
    mpi: Mpi,
    comm: MPI_Comm,
    request: OutArg<'_, MPI_Request>,
) -> Result<()> {
    iflush(mpi, number_of(mpi, comm)?, &request)
}

/// `MPI_Session_attach_buffer`.
pub fn session_attach_buffer(
    mpi: Mpi,
    session: MPI_Session,
    buffer: MutBuf,
    size: i64,
) -> Result<()> {
    attach(mpi, of_session(mpi, session)?, buffer, size)
}

/// `MPI_Session_detach_buffer`.
pub fn session_detach_buffer(
    mpi: Mpi,
    session: MPI_Session,
    address: OutArg<'_, ExtraState>,
    size: OutCount<'_>,
) -> Result<()> {
    detach(mpi, of_session(mpi, session)?, &address, &size)
}

/// `MPI_Session_flush_buffer`.
pub fn session_flush_buffer(mpi: Mpi, session: MPI_Session) -> Result<()> {
    flush(mpi, of_session(mpi, session)?)
}

/// `MPI_Session_iflush_buffer`.
pub fn session_iflush_buffer(
    mpi: Mpi,
    session: MPI_Session,
    request: OutArg<'_, MPI_Request>,
) -> Result<()> {
    iflush(mpi, of_session(mpi, session)?, &request)
}

/// Flushes and detaches the buffer of a session that is being finalized.
pub(crate) fn finish_session(mpi: Mpi, session: MPI_Session) -> Result<()> {
    let number = of_session(mpi, session)?;
    flush(mpi, number)?;
    mpi.state(|state| state.buffers.remove(&number));
    Ok(())
}

/// The number of the buffer for buffered sends on `comm`: the buffer attached to the communicator, otherwise that of
/// its session, otherwise that of the process.
pub(crate) fn of_comm(state: &LibraryState, comm: MPI_Comm) -> u64 {
    let Ok(object) = state.comm(comm) else {
        return PROCESS;
    };
    let own = u64::from(object.comm.context.0);
    let of_session = object.session.map(numbered);
    let attached = |number: &u64| state.buffers.contains_key(number);
    let nearest = Some(own)
        .filter(attached)
        .or_else(|| of_session.filter(attached));
    nearest.unwrap_or(PROCESS)
}

/// Chooses the buffer for a message of `bytes` bytes, and checks that it has room.
pub(crate) fn reserve(state: &mut LibraryState, comm: MPI_Comm, bytes: u64) -> Result<u64> {
    let buffer = of_comm(state, comm);
    check_room(state, buffer, bytes)?;
    Ok(buffer)
}

/// Checks that a message of `bytes` bytes fits into the buffer together with the messages in progress.
pub(crate) fn check_room(state: &mut LibraryState, buffer: u64, bytes: u64) -> Result<()> {
    let Some(attached) = state.buffers.get(&buffer).copied() else {
        return Err(Error::new(
            ErrorClass::BUFFER,
            "no buffer is attached; call MPI_Buffer_attach first",
        ));
    };
    if attached.address.is_automatic() {
        return Ok(());
    }
    let overhead = u64::from(MPI_BSEND_OVERHEAD.unsigned_abs());
    let needed = bytes.saturating_add(overhead);
    let (held, count) = held_beside(state, buffer, attached.bytes.checked_sub(needed));
    if held.saturating_add(needed) <= attached.bytes {
        return Ok(());
    }
    let detail = format!(
        "a message of {bytes} bytes (and {overhead} of overhead) does not fit the attached buffer of {} bytes, of which \
         {count} unfinished messages hold {held}",
        attached.bytes
    );
    Err(Error::new(ErrorClass::BUFFER, detail))
}

/// The number of bytes of a buffer that unfinished messages occupy, including overhead, and the number of these
/// messages. While they occupy more than `most` bytes, makes progress within time limits: the acknowledgement of a
/// message may have arrived and not been processed. If `most` is `None`, makes no progress.
fn held_beside(state: &mut LibraryState, buffer: u64, most: Option<u64>) -> (u64, u64) {
    let mut times: Option<(Instant, Instant)> = None;
    loop {
        let (bytes, count) = state.universe.messages.buffered_bytes(buffer);
        let held = bytes + count * u64::from(MPI_BSEND_OVERHEAD.unsigned_abs());
        // If `most` is `None`, the new message is larger than the buffer, so progress would not help.
        if count == 0 || most.is_none_or(|most| held <= most) {
            return (held, count);
        }
        let now = Instant::now();
        let (started, last_progress) = times.get_or_insert((now, now));
        if now - *last_progress > IDLE_TIMEOUT || now - *started > PROGRESS_TIMEOUT {
            return (held, count);
        }
        if state.universe.progress() {
            *last_progress = now;
        } else {
            std::thread::yield_now();
        }
    }
}

fn attach(mpi: Mpi, number: u64, address: MutBuf, size: i64) -> Result<()> {
    let bytes = u64::try_from(size).map_err(|_| {
        Error::new(
            ErrorClass::ARG,
            format!("the buffer's size is {size}, it must not be negative"),
        )
    })?;
    mpi.state(|state| {
        if state.buffers.contains_key(&number) {
            let detail = "a buffer is attached already; detach it first";
            return Err(Error::new(ErrorClass::BUFFER, detail));
        }
        state.buffers.insert(number, Attached { address, bytes });
        Ok(())
    })
}

fn detach(
    mpi: Mpi,
    number: u64,
    address: &OutArg<'_, ExtraState>,
    size: &OutCount<'_>,
) -> Result<()> {
    flush(mpi, number)?;
    let attached = mpi.state(|state| state.buffers.remove(&number));
    let attached = attached.unwrap_or(Attached {
        address: MutBuf(core::ptr::null_mut()),
        bytes: 0,
    });
    let automatic = attached.address.is_automatic();
    let pointer = if automatic {
        core::ptr::without_provenance_mut(MPI_BUFFER_AUTOMATIC)
    } else {
        attached.address.0
    };
    address.set(ExtraState(pointer));
    size.set(i64::try_from(attached.bytes).unwrap_or(i64::MAX))
}

fn flush(mpi: Mpi, number: u64) -> Result<()> {
    mpi.wait_until(Awaits::Other, |universe| {
        universe.messages.buffered_bytes(number).1 == 0
    });
    Ok(())
}

fn iflush(mpi: Mpi, number: u64, request: &OutArg<'_, MPI_Request>) -> Result<()> {
    let started = mpi.visit(|universe| universe.messages.flush_request(number))?;
    request.set(handle_of(mpi, Some(started), DONE));
    Ok(())
}

fn number_of(mpi: Mpi, comm: MPI_Comm) -> Result<u64> {
    mpi.state(|state| Ok(u64::from(state.comm(comm)?.comm.context.0)))
}

fn of_session(mpi: Mpi, session: MPI_Session) -> Result<u64> {
    mpi.state(|state| Ok(numbered(state.sessions.get(session)?.number)))
}

/// The number of a session's buffer; it is above all context ids.
fn numbered(session: SessionNumber) -> u64 {
    u64::from(session.0) | 1 << 32
}

/// Without progress for this time, the wait for acknowledgements ends.
const IDLE_TIMEOUT: Duration = Duration::from_millis(20);
/// Limit of the whole wait for acknowledgements: other messages may cause progress without end.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of the process's buffer. The number of a communicator's buffer is its context id, which is above 0.
const PROCESS: u64 = 0;

const _: c_int = MPI_BSEND_OVERHEAD;
