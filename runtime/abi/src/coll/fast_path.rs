// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fast paths of collectives for their common arguments, tried before the ordinary path: see
//! [`FastCall`](runtime::collective::FastCall). A function returns `None` if its arguments are not the common case.
//! Only the ordinary path reports errors.

mod various;

use core::ffi::c_int;

use runtime::UserMemory;
use runtime::Visit;
use runtime::collective::{FastCall, FastMemberCall};

use crate::args::{ConstBuf, CountsPtr, MutBuf};
use crate::datatype_table::{basic, dense_size};
use crate::enter::Mpi;
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Op};
use crate::op::{Combiner, on_predefined};
use crate::pt2pt::lend;

pub(super) use various::{allgatherv, alltoallv, gatherv, scatterv};

pub(super) fn barrier(mpi: Mpi, comm: MPI_Comm) -> Option<()> {
    fast_call::<BARRIER>(mpi, comm, |it| it.barrier())
        .or_else(|| fast_member_call::<BARRIER>(mpi, comm, |it| it.barrier()))
}

pub(super) fn bcast(
    mpi: Mpi,
    buffer: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<()> {
    let memory = memory(buffer, count, datatype)?;
    fast_call::<BCAST>(mpi, comm, |it| it.bcast(memory, rank(it, root)?)).or_else(|| {
        let root = u32::try_from(root).ok()?;
        fast_member_call::<BCAST>(mpi, comm, |it| it.bcast(memory, root))
    })
}

pub(super) fn gather(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<()> {
    let mine = memory(sendbuf.into(), sendcount, sendtype)?;
    fast_call::<GATHER>(mpi, comm, |it| {
        if rank(it, root)? != it.rank() {
            return it.gather(mine, None);
        }
        let all = blocks(it, mine, recvbuf, recvcount, recvtype)?;
        it.gather(mine, Some(all))
    })
}

pub(super) fn scatter(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<()> {
    let mine = memory(recvbuf, recvcount, recvtype)?;
    fast_call::<SCATTER>(mpi, comm, |it| {
        let root = rank(it, root)?;
        if root != it.rank() {
            return it.scatter(None, mine, root);
        }
        let all = blocks(it, mine, sendbuf.into(), sendcount, sendtype)?;
        it.scatter(Some(all), mine, root)
    })
}

pub(super) fn alltoall(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Option<()> {
    fast_call::<ALLTOALL>(mpi, comm, |it| {
        let ranks = i64::from(it.size());
        let out = memory(sendbuf.into(), sendcount.checked_mul(ranks)?, sendtype)?;
        let into = memory(recvbuf, recvcount.checked_mul(ranks)?, recvtype)?;
        are_apart(out, into).then_some(())?;
        (out.bytes() == into.bytes()).then_some(())?;
        it.alltoall(out, into)
    })
}

pub(super) fn allgather(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Option<()> {
    let mine = memory(sendbuf.into(), sendcount, sendtype)?;
    fast_call::<ALLGATHER>(mpi, comm, |it| {
        let all = blocks(it, mine, recvbuf, recvcount, recvtype)?;
        it.allgather(mine, all)
    })
}

pub(super) fn reduce(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
    comm: MPI_Comm,
) -> Option<()> {
    let op = combiner(op, datatype)?;
    fast_call::<REDUCE>(mpi, comm, |it| {
        if rank(it, root)? != it.rank() {
            return it.reduce(memory(sendbuf.into(), count, datatype)?, None, &op);
        }
        let (input, output) = both(sendbuf, recvbuf, count, datatype)?;
        it.reduce(input, Some(output), &op)
    })
    .or_else(|| {
        let root = u32::try_from(root).ok()?;
        let input = memory(sendbuf.into(), count, datatype)?;
        fast_member_call::<REDUCE>(mpi, comm, |it| it.reduce(input, root, &op))
    })
}

pub(super) fn allreduce(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Option<()> {
    let op = combiner(op, datatype)?;
    let (input, output) = both(sendbuf, recvbuf, count, datatype)?;
    fast_call::<ALLREDUCE>(mpi, comm, |it| it.allreduce(input, output, &op))
        .or_else(|| fast_member_call::<ALLREDUCE>(mpi, comm, |it| it.allreduce(input, output, &op)))
}

pub(super) fn reduce_scatter_block(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Option<()> {
    let op = combiner(op, datatype)?;
    fast_call::<REDUCE_SCATTER_BLOCK>(mpi, comm, |it| {
        let all = count.checked_mul(it.size().into())?;
        let output = memory(recvbuf, count, datatype)?;
        let input = scattered(sendbuf, recvbuf, all, datatype, output)?;
        let at = it.rank() as usize * output.bytes();
        it.reduce_scatter(input, at, output, &op)
    })
}

pub(super) fn reduce_scatter(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    counts: CountsPtr<'_>,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Option<()> {
    let op = combiner(op, datatype)?;
    fast_call::<REDUCE_SCATTER>(mpi, comm, |it| {
        let counts = counts.slice(it.size() as usize).ok()?;
        let rank = it.rank() as usize;
        let (mut before, mut all) = (0i64, 0i64);
        for (index, count) in counts.iter().enumerate() {
            if index == rank {
                before = all;
            }
            all = all.checked_add(u32::try_from(count).ok()?.into())?;
        }
        let output = memory_or_none(recvbuf, counts.get(rank), datatype)?;
        let input = scattered(sendbuf, recvbuf, all, datatype, output)?;
        let at = usize::try_from(before).ok()? * dense_size(datatype);
        it.reduce_scatter(input, at, output, &op)
    })
}

pub(super) fn scan(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Option<()> {
    let op = combiner(op, datatype)?;
    let (input, output) = both(sendbuf, recvbuf, count, datatype)?;
    fast_call::<SCAN>(mpi, comm, |it| it.scan(input, output, &op))
}

pub(super) fn exscan(
    mpi: Mpi,
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Option<()> {
    let op = combiner(op, datatype)?;
    let (input, output) = both(sendbuf, recvbuf, count, datatype)?;
    fast_call::<EXSCAN>(mpi, comm, |it| it.exscan(input, output, &op))
}

#[inline(always)]
fn fast_call<const COLLECTIVE: usize>(
    mpi: Mpi,
    comm: MPI_Comm,
    call: impl FnOnce(&FastCall<'_>) -> Option<()>,
) -> Option<()> {
    mpi.state(|state| {
        state.universe.fast_path_turn();
        let comm = &state.comm(comm).ok()?.comm;
        call(&FastCall::new(&state.universe, comm, COLLECTIVE)?)
    })
}

/// Runs a fast path for a rank that is not the leader of its node. `None` at `MPI_THREAD_MULTIPLE`, because other
/// threads would wait for the lock while this rank sleeps.
#[inline(never)]
fn fast_member_call<const COLLECTIVE: usize>(
    mpi: Mpi,
    comm: MPI_Comm,
    call: impl FnOnce(FastMemberCall<'_>) -> Option<()>,
) -> Option<()> {
    if mpi.is_shared() {
        return None;
    }
    mpi.state(|state| {
        let (universe, comm) = state.universe_and_comm(comm).ok()?;
        call(FastMemberCall::new(universe, &comm.comm, COLLECTIVE)?)
    })
}

fn rank(it: &FastCall<'_>, rank: c_int) -> Option<u32> {
    u32::try_from(rank).ok().filter(|rank| *rank < it.size())
}

/// A buffer of `count` items of a contiguous predefined datatype; `None` if it is empty, or if the arguments are not
/// the common case.
#[inline]
fn memory(buf: MutBuf, count: i64, datatype: MPI_Datatype) -> Option<UserMemory> {
    let bytes = usize::try_from(count)
        .ok()?
        .checked_mul(dense_size(datatype))?;
    if bytes == 0 || buf.address() < FIRST_ADDRESS {
        return None;
    }
    lend(buf, 0, bytes).ok()
}

/// As [`memory`], but for 0 items the result is empty memory.
#[inline]
fn memory_or_none(buf: MutBuf, count: i64, datatype: MPI_Datatype) -> Option<UserMemory> {
    match count {
        0 if dense_size(datatype) > 0 => Some(UserMemory::nothing()),
        _ => memory(buf, count, datatype),
    }
}

/// A buffer with a block of `count` items for each rank. `None` if the length of a block differs from that of `mine`,
/// this rank's own block, or if `mine` overlaps the buffer.
fn blocks(
    it: &FastCall<'_>,
    mine: UserMemory,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
) -> Option<UserMemory> {
    let all = memory(buf, count.checked_mul(it.size().into())?, datatype)?;
    let is_whole = all.bytes() == mine.bytes() * it.size() as usize;
    (is_whole && are_apart(all, mine)).then_some(all)
}

/// Whether two buffers do not overlap.
fn are_apart(one: UserMemory, other: UserMemory) -> bool {
    let ends = |it: UserMemory| (it.address(), it.address() + it.bytes() as u64);
    let ((first, first_end), (second, second_end)) = (ends(one), ends(other));
    first_end <= second || second_end <= first
}

/// Input and output of a reduction. With `MPI_IN_PLACE` they are the same memory. Otherwise `None` if their addresses
/// are equal.
fn both(
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
) -> Option<(UserMemory, UserMemory)> {
    let output = memory(recvbuf, count, datatype)?;
    if sendbuf.is_in_place() {
        return Some((output, output));
    }
    let input = memory(sendbuf.into(), count, datatype)?;
    (input.address() != output.address()).then_some((input, output))
}

/// The input of a reduce-scatter: with `MPI_IN_PLACE` the receive buffer, otherwise the send buffer. `None` if the send
/// buffer overlaps `output`.
fn scattered(
    sendbuf: ConstBuf,
    recvbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    output: UserMemory,
) -> Option<UserMemory> {
    if sendbuf.is_in_place() {
        return memory(recvbuf, count, datatype);
    }
    let input = memory(sendbuf.into(), count, datatype)?;
    are_apart(input, output).then_some(input)
}

/// A predefined operation on a predefined datatype; `None` if the operation is not defined for the datatype.
fn combiner(op: MPI_Op, datatype: MPI_Datatype) -> Option<Combiner> {
    on_predefined(op, basic(datatype)?)
}

const BARRIER: usize = queue_layout::collective("Barrier");
const BCAST: usize = queue_layout::collective("Bcast");
const GATHER: usize = queue_layout::collective("Gather");
const ALLGATHER: usize = queue_layout::collective("Allgather");
const SCATTER: usize = queue_layout::collective("Scatter");
const ALLTOALL: usize = queue_layout::collective("Alltoall");
const REDUCE: usize = queue_layout::collective("Reduce");
const ALLREDUCE: usize = queue_layout::collective("Allreduce");
const REDUCE_SCATTER_BLOCK: usize = queue_layout::collective("Reduce_scatter_block");
const REDUCE_SCATTER: usize = queue_layout::collective("Reduce_scatter");
const SCAN: usize = queue_layout::collective("Scan");
const EXSCAN: usize = queue_layout::collective("Exscan");
/// The lowest address that a buffer may have here. NULL and the constants of address type (such as `MPI_IN_PLACE`) are
/// lower.
const FIRST_ADDRESS: usize = 4096;
