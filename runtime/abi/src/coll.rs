// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking collectives (MPI 5.0 chapter 6): arguments, `MPI_IN_PLACE`, and packing where data have gaps.

use core::ffi::c_int;

use runtime::datatype::Basic;
use runtime::op::{self, Op};
use runtime::{Comm, Payload, collective};

use crate::args::{ConstBuf, MutBuf, Out};
use crate::datatype_table::basic;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Op, describe};
use crate::pt2pt::{Call, bad_rank, payload};
use crate::{comm, handle};

/// `MPI_Barrier`.
pub fn barrier(mpi: Mpi, comm: MPI_Comm) -> Result<()> {
    Ok(collective::barrier(mpi, &comm::of(mpi, comm)?)?)
}

/// `MPI_Bcast`.
pub fn bcast(
    mpi: Mpi,
    buffer: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    let group = comm::of(mpi, comm)?;
    let root = root_of(root, &group)?;
    let data = data(mpi, buffer, count, datatype, comm)?;
    let is_root = group.rank == root;
    with_bytes(data, is_root, !is_root, |bytes| {
        Ok(collective::bcast(mpi, &group, bytes, root)?)
    })
}

/// `MPI_Gather`.
pub fn gather(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    let group = comm::of(mpi, comm)?;
    let root = root_of(root, &group)?;
    if group.rank != root {
        let mine = data(mpi, sendbuf.into(), sendcount, sendtype, comm)?;
        return with_bytes(mine, true, false, |mine| {
            Ok(collective::gather(mpi, &group, mine, &mut [], root)?)
        });
    }
    let all = blocks(mpi, recvbuf, recvcount, recvtype, comm, &group)?;
    let mine = own_block(mpi, sendbuf, sendcount, sendtype, comm)?;
    with_bytes(all, mine.is_none(), true, |all| {
        put_own(all, mine, &group)?;
        Ok(collective::gather(mpi, &group, &[], all, root)?)
    })
}

/// `MPI_Scatter`.
pub fn scatter(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    let group = comm::of(mpi, comm)?;
    let root = root_of(root, &group)?;
    if group.rank != root {
        let mine = data(mpi, recvbuf, recvcount, recvtype, comm)?;
        return with_bytes(mine, false, true, |mine| {
            Ok(collective::scatter(mpi, &group, &[], mine, root)?)
        });
    }
    let all = blocks(mpi, sendbuf.into(), sendcount, sendtype, comm, &group)?;
    with_bytes(all, true, false, |all| {
        collective::scatter(mpi, &group, all, &mut [], root)?;
        if recvbuf.is_in_place() {
            return Ok(());
        }
        let mine = data(mpi, recvbuf, recvcount, recvtype, comm)?;
        let block = all.len() / group.size() as usize;
        let own = &all[group.rank as usize * block..][..block];
        with_bytes(mine, false, true, |mine| copy_block(own, mine))
    })
}

/// `MPI_Allgather`.
pub fn allgather(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Result<()> {
    let group = comm::of(mpi, comm)?;
    let all = blocks(mpi, recvbuf, recvcount, recvtype, comm, &group)?;
    let mine = own_block(mpi, sendbuf, sendcount, sendtype, comm)?;
    with_bytes(all, mine.is_none(), true, |all| {
        put_own(all, mine, &group)?;
        Ok(collective::allgather(mpi, &group, all)?)
    })
}

/// `MPI_Alltoall`.
pub fn alltoall(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Result<()> {
    let group = comm::of(mpi, comm)?;
    let into = blocks(mpi, recvbuf, recvcount, recvtype, comm, &group)?;
    let out = if sendbuf.is_in_place() {
        into.copy()
    } else {
        blocks(mpi, sendbuf.into(), sendcount, sendtype, comm, &group)?.copy()
    };
    with_bytes(into, true, true, |into| {
        if into.len() != out.len() {
            return Err(unequal(out.len(), into.len()));
        }
        let block = out.len() / group.size() as usize;
        let own = group.rank as usize * block..(group.rank as usize + 1) * block;
        into[own.clone()].copy_from_slice(&out[own]);
        Ok(collective::alltoall(mpi, &group, &out, into)?)
    })
}

/// `MPI_Reduce`.
pub fn reduce(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
    comm: MPI_Comm,
) -> Result<()> {
    let group = comm::of(mpi, comm)?;
    let root = root_of(root, &group)?;
    let (op, basic) = operation(op, datatype)?;
    let is_root = group.rank == root;
    if sendbuf.is_in_place() && !is_root {
        let detail = "MPI_IN_PLACE as the send buffer is for the root alone";
        return Err(Error::new(ErrorClass::BUFFER, detail));
    }
    let mut bytes = input(mpi, sendbuf, recvbuf, count, datatype, comm)?;
    let result = if is_root {
        Some(data(mpi, recvbuf, count, datatype, comm)?)
    } else {
        None
    };
    collective::reduce(mpi, &group, &mut bytes, root, &combine(op, basic))?;
    result.map_or(Ok(()), |result| {
        with_bytes(result, false, true, |out| copy_block(&bytes, out))
    })
}

/// `MPI_Allreduce`.
pub fn allreduce(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Result<()> {
    let group = comm::of(mpi, comm)?;
    let (op, basic) = operation(op, datatype)?;
    let mut bytes = input(mpi, sendbuf, recvbuf, count, datatype, comm)?;
    let result = data(mpi, recvbuf, count, datatype, comm)?;
    collective::allreduce(mpi, &group, &mut bytes, &combine(op, basic))?;
    with_bytes(result, false, true, |out| copy_block(&bytes, out))
}

/// `MPI_Reduce_local`.
pub fn reduce_local(
    mpi: Mpi,
    inbuf: ConstBuf,
    inoutbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
) -> Result<()> {
    let (op, basic) = operation(op, datatype)?;
    let input = data(mpi, inbuf.into(), count, datatype, MPI_Comm::SELF)?.copy();
    let inout = data(mpi, inoutbuf, count, datatype, MPI_Comm::SELF)?;
    with_bytes(inout, true, true, |inout| {
        combine(op, basic)(&input, inout);
        Ok(())
    })
}

/// `MPI_Op_commutative`.
pub fn op_commutative(_mpi: Mpi, op: MPI_Op, commute: Out<'_, c_int>) -> Result<()> {
    let op = predefined(op)?;
    commute.set(c_int::from(!matches!(op, Op::Replace | Op::NoOp)));
    Ok(())
}

/// Runs `inside` on the dense bytes of `data`: the memory itself, or a copy that is packed before (`reads`) and unpacked
/// after (`writes`).
fn with_bytes(
    data: Payload,
    reads: bool,
    writes: bool,
    inside: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    match data {
        Payload::Dense(mut memory) => inside(memory.as_mut_slice()),
        Payload::Structured(data) => {
            let mut bytes = if reads {
                data.pack()
            } else {
                vec![0; usize::try_from(data.bytes()).unwrap_or(0)].into_boxed_slice()
            };
            inside(&mut bytes)?;
            if writes {
                data.unpack(&bytes);
            }
            Ok(())
        }
    }
}

fn data(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    comm: MPI_Comm,
) -> Result<Payload> {
    mpi.state(|state| {
        payload(
            state,
            &Call {
                buf,
                count,
                datatype,
                peer: 0,
                tag: 0,
                comm,
            },
        )
    })
}

/// One block of `count` items for each rank.
fn blocks(
    mpi: Mpi,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    comm: MPI_Comm,
    group: &Comm,
) -> Result<Payload> {
    let all = count.checked_mul(i64::from(group.size()));
    data(mpi, buf, all.unwrap_or(i64::MAX), datatype, comm)
}

/// The caller's own contribution; `None` for `MPI_IN_PLACE`: it lies in its block already.
fn own_block(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    comm: MPI_Comm,
) -> Result<Option<Box<[u8]>>> {
    if buf.is_in_place() {
        return Ok(None);
    }
    Ok(Some(data(mpi, buf.into(), count, datatype, comm)?.copy()))
}

fn put_own(all: &mut [u8], mine: Option<Box<[u8]>>, group: &Comm) -> Result<()> {
    let Some(mine) = mine else { return Ok(()) };
    let block = all.len() / group.size() as usize;
    copy_block(&mine, &mut all[group.rank as usize * block..][..block])
}

fn copy_block(from: &[u8], to: &mut [u8]) -> Result<()> {
    if from.len() != to.len() {
        return Err(unequal(from.len(), to.len()));
    }
    to.copy_from_slice(from);
    Ok(())
}

/// What this rank contributes to a reduction, as dense bytes of its own.
fn input(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    comm: MPI_Comm,
) -> Result<Box<[u8]>> {
    let from = if sendbuf.is_in_place() {
        recvbuf
    } else {
        sendbuf.into()
    };
    Ok(data(mpi, from, count, datatype, comm)?.copy())
}

fn combine(op: Op, basic: &Basic) -> impl Fn(&[u8], &mut [u8]) {
    let basic = *basic;
    move |input, inout| {
        let defined = op::reduce(op, &basic, input, inout);
        debug_assert!(defined.is_ok(), "checked by `operation`");
    }
}

/// A predefined operation on a predefined datatype, if the standard gives it a meaning (MPI 5.0 section 6.9.2).
fn operation(op: MPI_Op, datatype: MPI_Datatype) -> Result<(Op, &'static Basic)> {
    let known = predefined(op)?;
    let Some(basic) = basic(datatype) else {
        let detail = format!(
            "{} needs a predefined datatype, {} is none",
            describe(op.0),
            describe(datatype.0)
        );
        return Err(Error::new(ErrorClass::TYPE, detail));
    };
    if !op::is_defined(known, basic) {
        let detail = format!(
            "{} is not defined for {}",
            describe(op.0),
            describe(datatype.0)
        );
        return Err(Error::new(ErrorClass::OP, detail));
    }
    Ok((known, basic))
}

fn predefined(op: MPI_Op) -> Result<Op> {
    Ok(match op {
        MPI_Op::SUM => Op::Sum,
        MPI_Op::MIN => Op::Min,
        MPI_Op::MAX => Op::Max,
        MPI_Op::PROD => Op::Prod,
        MPI_Op::BAND => Op::Band,
        MPI_Op::BOR => Op::Bor,
        MPI_Op::BXOR => Op::Bxor,
        MPI_Op::LAND => Op::Land,
        MPI_Op::LOR => Op::Lor,
        MPI_Op::LXOR => Op::Lxor,
        MPI_Op::MINLOC => Op::Minloc,
        MPI_Op::MAXLOC => Op::Maxloc,
        MPI_Op::REPLACE => Op::Replace,
        MPI_Op::NO_OP => Op::NoOp,
        other => return Err(crate::registry::not_a(handle::Kind::Op, other.0)),
    })
}

fn root_of(root: c_int, group: &Comm) -> Result<u32> {
    match u32::try_from(root) {
        Ok(rank) if rank < group.size() => Ok(rank),
        _ => {
            let error = bad_rank("root", root, group.size());
            Err(Error::new(ErrorClass::ROOT, error.detail().to_owned()))
        }
    }
}

#[cold]
fn unequal(given: usize, expected: usize) -> Error {
    let detail = format!(
        "a block of {given} bytes meets one of {expected}: counts and datatypes must match"
    );
    Error::new(ErrorClass::TRUNCATE, detail)
}
