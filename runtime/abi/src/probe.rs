// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe and matched probe (MPI 5.0 sections 3.8.1 to 3.8.3).

use core::ffi::c_int;

use runtime::{Found, Payload, RequestId, Visit};

use crate::args::{InOut, MutBuf, Out, OutStatus};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Message, MPI_Request};
use crate::pt2pt::{Call, handle_of, payload, source_of};
use crate::request::finish_alone;
use crate::state::{DONE, DONE_NULL, MessageObject};
use crate::status::MPI_Status;

/// `MPI_Iprobe`.
pub fn iprobe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    flag: Out<'_, c_int>,
    status: OutStatus<'_>,
) -> Result<()> {
    let looked = look(mpi, source, tag, comm, false)?;
    flag.set(c_int::from(!matches!(looked, Looked::Nothing)));
    tell(mpi, &looked, comm, &status);
    Ok(())
}

/// `MPI_Probe`.
pub fn probe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: OutStatus<'_>,
) -> Result<()> {
    let looked = look(mpi, source, tag, comm, true)?;
    tell(mpi, &looked, comm, &status);
    Ok(())
}

/// `MPI_Improbe`.
pub fn improbe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    flag: Out<'_, c_int>,
    message: Out<'_, MPI_Message>,
    status: OutStatus<'_>,
) -> Result<()> {
    let looked = look(mpi, source, tag, comm, false)?;
    flag.set(c_int::from(!matches!(looked, Looked::Nothing)));
    tell(mpi, &looked, comm, &status);
    claim(mpi, &looked, comm, &message)
}

/// `MPI_Mprobe`.
pub fn mprobe(
    mpi: Mpi,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    message: Out<'_, MPI_Message>,
    status: OutStatus<'_>,
) -> Result<()> {
    let looked = look(mpi, source, tag, comm, true)?;
    tell(mpi, &looked, comm, &status);
    claim(mpi, &looked, comm, &message)
}

/// `MPI_Mrecv`.
pub fn mrecv(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    message: InOut<'_, MPI_Message>,
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
    message: InOut<'_, MPI_Message>,
    request: Out<'_, MPI_Request>,
) -> Result<()> {
    let started = start(mpi, buf, count, datatype, &message)?;
    let done = if started.is_none() { DONE_NULL } else { DONE };
    request.set(handle_of(mpi, started, done));
    Ok(())
}

enum Looked {
    Nothing,
    ProcNull,
    Message(Found),
}

fn look(mpi: Mpi, source: c_int, tag: c_int, comm: MPI_Comm, wait: bool) -> Result<Looked> {
    let wanted = mpi.state(|state| source_of(state.comm(comm)?, source, tag))?;
    let Some(wanted) = wanted else {
        return Ok(Looked::ProcNull);
    };
    let mut found = mpi.visit(|universe| universe.probe(wanted));
    if wait && found.is_none() {
        mpi.wait_until(|universe| {
            found = universe.find_message(wanted);
            found.is_some()
        });
    }
    Ok(found.map_or(Looked::Nothing, Looked::Message))
}

fn tell(mpi: Mpi, looked: &Looked, comm: MPI_Comm, status: &OutStatus<'_>) {
    match looked {
        Looked::Nothing => {}
        Looked::ProcNull => status.set(MPI_Status::PROC_NULL),
        Looked::Message(found) => {
            let source = mpi.state(|state| {
                let object = state.comm(comm).ok()?;
                c_int::try_from(object.comm.partners().rank_of(found.peer)?).ok()
            });
            status.set(MPI_Status::received(
                source.unwrap_or(-1),
                found.tag,
                found.bytes,
            ));
        }
    }
}

fn claim(mpi: Mpi, looked: &Looked, comm: MPI_Comm, message: &Out<'_, MPI_Message>) -> Result<()> {
    match looked {
        Looked::Nothing => message.set(MPI_Message::NULL),
        Looked::ProcNull => message.set(MPI_Message::NO_PROC),
        Looked::Message(found) => {
            let handle = mpi.state(|state| {
                let handle = state.messages.insert(MessageObject {
                    message: found.message,
                    comm,
                })?;
                state.universe.claim(*found);
                Ok::<_, Error>(handle)
            })?;
            message.set(handle);
        }
    }
    Ok(())
}

fn start(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    message: &InOut<'_, MPI_Message>,
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
        let call = Call {
            buf,
            count,
            datatype,
            peer: 0,
            tag: 0,
            comm,
        };
        let data = payload(state, &call)?;
        let slot = state.messages.remove(handle)?.message;
        Ok::<_, Error>(match data {
            Payload::Dense(memory) => state.universe.receive_claimed(slot, memory)?,
            Payload::Structured(data) => state.universe.receive_claimed_structured(slot, data)?,
        })
    })?;
    message.set(MPI_Message::NULL);
    Ok(Some(request))
}
