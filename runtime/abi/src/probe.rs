// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe and matched probe (MPI 5.0 sections 3.8.1 to 3.8.3).

use core::ffi::c_int;

use runtime::{Awaits, Payload, ProbedMessage, RequestId, Visit};

use crate::args::{InOutArg, MutBuf, OutArg, OutStatus};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Message, MPI_Request};
use crate::pt2pt::{Pt2ptCall, note, payload, source_of};
use crate::request::finish_alone;
use crate::request::handle_of;
use crate::state::{DONE, DONE_NULL, LibraryState, MessageObject};
use crate::status::MPI_Status;

/// `MPI_Iprobe`.
pub fn iprobe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    flag: OutArg<'_, c_int>,
    status: OutStatus<'_>,
) -> Result<()> {
    let probed = search(mpi, (source, tag, comm), false, leave_there)?;
    flag.set(c_int::from(probed.is_some()));
    probed.map_or(Ok(()), |probed| set_status(mpi, &probed, comm, &status))
}

/// `MPI_Probe`.
pub fn probe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: OutStatus<'_>,
) -> Result<()> {
    let probed = search(mpi, (source, tag, comm), true, leave_there)?;
    probed.map_or(Ok(()), |probed| set_status(mpi, &probed, comm, &status))
}

/// `MPI_Improbe`.
pub fn improbe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    flag: OutArg<'_, c_int>,
    message: OutArg<'_, MPI_Message>,
    status: OutStatus<'_>,
) -> Result<()> {
    let probed = search(mpi, (source, tag, comm), false, |state, found| {
        claim(state, found, comm)
    })?;
    flag.set(c_int::from(probed.is_some()));
    give(mpi, probed, comm, &message, &status)
}

/// `MPI_Mprobe`.
pub fn mprobe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    message: OutArg<'_, MPI_Message>,
    status: OutStatus<'_>,
) -> Result<()> {
    let probed = search(mpi, (source, tag, comm), true, |state, found| {
        claim(state, found, comm)
    })?;
    give(mpi, probed, comm, &message, &status)
}

/// `MPI_Mrecv`.
pub fn mrecv(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    message: InOutArg<'_, MPI_Message>,
    status: OutStatus<'_>,
) -> Result<()> {
    match start(mpi, buf, count, datatype, &message)? {
        None => status.set(MPI_Status::PROC_NULL),
        Some(request) => finish_alone(mpi, request, &status)?,
    }
    Ok(())
}

/// `MPI_Imrecv`.
pub fn imrecv(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    message: InOutArg<'_, MPI_Message>,
    request: OutArg<'_, MPI_Request>,
) -> Result<()> {
    let started = start(mpi, buf, count, datatype, &message)?;
    let done = if started.is_none() { DONE_NULL } else { DONE };
    request.set(handle_of(mpi, started, done));
    Ok(())
}

/// The result of a probe that found something. `ProcNull`: the source is `MPI_PROC_NULL`.
enum ProbeOutcome {
    ProcNull,
    /// The message that was found, and for a matched probe its handle.
    Message(ProbedMessage, MPI_Message),
}

/// Searches for a message; `wait`: whether to wait until there is one. Calls `take` with the message in the visit of
/// the state that finds it, because between two visits another thread could receive the message. `None`: there is no
/// message.
fn search(
    mpi: Mpi,
    (source, tag, comm): (c_int, c_int, MPI_Comm),
    wait: bool,
    take: impl Fn(&mut LibraryState, ProbedMessage) -> Result<MPI_Message>,
) -> Result<Option<ProbeOutcome>> {
    let wanted = mpi.state(|state| source_of(state.comm(comm)?, source, tag))?;
    let Some(wanted) = wanted else {
        return Ok(Some(ProbeOutcome::ProcNull));
    };
    let once = || {
        mpi.state(|state| {
            let Some(found) = state.universe.messages.find_message(wanted) else {
                return Ok::<_, Error>(None);
            };
            let message = take(state, found)?;
            Ok(Some(ProbeOutcome::Message(found, message)))
        })
    };
    if let Some(probed) = once()? {
        mpi.progress_briefly();
        return Ok(Some(probed));
    }
    if wait {
        mpi.turn();
    } else {
        mpi.poll_turn();
    }
    loop {
        let probed = once()?;
        if probed.is_some() || !wait {
            return Ok(probed);
        }
        mpi.wait_until(Awaits::Message(wanted), |universe| {
            universe.messages.find_message(wanted).is_some()
        });
    }
}

/// The argument `take` of `MPI_Probe` and `MPI_Iprobe`: leaves the message in the queue of unexpected messages.
fn leave_there(_state: &mut LibraryState, _found: ProbedMessage) -> Result<MPI_Message> {
    Ok(MPI_Message::NULL)
}

fn claim(state: &mut LibraryState, found: ProbedMessage, comm: MPI_Comm) -> Result<MPI_Message> {
    let handle = state.messages.insert(MessageObject {
        message: found.message,
        comm,
    })?;
    state.universe.messages.claim(found);
    Ok(handle)
}

fn set_status(
    mpi: Mpi,
    probed: &ProbeOutcome,
    comm: MPI_Comm,
    status: &OutStatus<'_>,
) -> Result<()> {
    let ProbeOutcome::Message(found, _) = probed else {
        status.set(MPI_Status::PROC_NULL);
        return Ok(());
    };
    let source = mpi.state(|state| {
        let rank = state.comm(comm)?.comm.partners().rank_of(found.peer);
        Ok::<_, Error>(rank.and_then(|rank| c_int::try_from(rank).ok()))
    })?;
    let source = source.unwrap_or(-1);
    status.set(MPI_Status::received(source, found.tag, found.bytes));
    Ok(())
}

fn give(
    mpi: Mpi,
    probed: Option<ProbeOutcome>,
    comm: MPI_Comm,
    message: &OutArg<'_, MPI_Message>,
    status: &OutStatus<'_>,
) -> Result<()> {
    let Some(probed) = probed else {
        message.set(MPI_Message::NULL);
        return Ok(());
    };
    message.set(match probed {
        ProbeOutcome::ProcNull => MPI_Message::NO_PROC,
        ProbeOutcome::Message(_, handle) => handle,
    });
    set_status(mpi, &probed, comm, status)
}

fn start(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    message: &InOutArg<'_, MPI_Message>,
) -> Result<Option<RequestId>> {
    let handle = message.get();
    if handle == MPI_Message::NO_PROC {
        message.set(MPI_Message::NULL);
        return Ok(None);
    }
    if handle == MPI_Message::NULL {
        return Err(Error::new(
            ErrorClass::REQUEST,
            "the message is MPI_MESSAGE_NULL, there is nothing to receive",
        ));
    }
    let request = mpi.state(|state| {
        let comm = state.messages.get(handle)?.comm;
        let call = Pt2ptCall {
            buf,
            count,
            datatype,
            peer: 0,
            tag: 0,
            comm,
        };
        let data = payload(state, &call)?;
        let slot = state.messages.remove(handle)?.message;
        let messages = &mut state.universe.messages;
        let request = match data {
            Payload::Dense(memory) => messages.receive_claimed(slot, memory)?,
            Payload::Structured(data) => messages.receive_claimed_structured(slot, data)?,
        };
        note(state, request, &call);
        Ok::<_, Error>(request)
    })?;
    message.set(MPI_Message::NULL);
    Ok(Some(request))
}
