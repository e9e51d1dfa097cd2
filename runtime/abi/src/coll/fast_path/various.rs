// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fast paths of the `v` functions, with a count and a displacement for each rank.

use core::ffi::c_int;

use runtime::UserMemory;
use runtime::collective::FastCall;

use super::{FIRST_ADDRESS, are_apart, fast_call, memory_or_none, rank};
use crate::args::{ConstBuf, CountArray, CountsPtr, MutBuf};
use crate::datatype_table::dense_size;
use crate::enter::Mpi;
use crate::handle::{MPI_Comm, MPI_Datatype};
use crate::pt2pt::lend;

pub(in crate::coll) fn gatherv(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcounts: CountsPtr<'_>,
    displs: CountsPtr<'_>,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<()> {
    fast_call::<GATHERV>(mpi, comm, |it| {
        if rank(it, root)? != it.rank() {
            return it.gatherv(memory_or_none(sendbuf.into(), sendcount, sendtype)?);
        }
        let all = VectorBlocks::of(it, recvbuf, recvcounts, displs, recvtype)?;
        let mine = own(it, sendbuf.into(), sendcount, sendtype, &all)?;
        it.gatherv_here(mine, |rank| all.block(rank))
    })
}

pub(in crate::coll) fn scatterv(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcounts: CountsPtr<'_>,
    displs: CountsPtr<'_>,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcount: i64,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<()> {
    fast_call::<SCATTERV>(mpi, comm, |it| {
        let root = rank(it, root)?;
        if root != it.rank() {
            return it.scatterv(memory_or_none(recvbuf, recvcount, recvtype)?, root);
        }
        let all = VectorBlocks::of(it, sendbuf.into(), sendcounts, displs, sendtype)?;
        let mine = own(it, recvbuf, recvcount, recvtype, &all)?;
        it.scatterv_here(|rank| all.block(rank), mine)
    })
}

pub(in crate::coll) fn allgatherv(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcounts: CountsPtr<'_>,
    displs: CountsPtr<'_>,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Option<()> {
    fast_call::<ALLGATHERV>(mpi, comm, |it| {
        let all = VectorBlocks::of(it, recvbuf, recvcounts, displs, recvtype)?;
        let mine = own(it, sendbuf.into(), sendcount, sendtype, &all)?;
        it.allgatherv(mine, |rank| all.block(rank))
    })
}

pub(in crate::coll) fn alltoallv(
    mpi: Mpi,
    sendbuf: ConstBuf,
    sendcounts: CountsPtr<'_>,
    sdispls: CountsPtr<'_>,
    sendtype: MPI_Datatype,
    recvbuf: MutBuf,
    recvcounts: CountsPtr<'_>,
    rdispls: CountsPtr<'_>,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Option<()> {
    fast_call::<ALLTOALLV>(mpi, comm, |it| {
        let out = VectorBlocks::of(it, sendbuf.into(), sendcounts, sdispls, sendtype)?;
        let into = VectorBlocks::of(it, recvbuf, recvcounts, rdispls, recvtype)?;
        are_apart(out.block(it.rank()), into.block(it.rank())).then_some(())?;
        it.alltoallv(|rank| out.block(rank), |rank| into.block(rank))
    })
}

/// This rank's own block; `Some(None)` for `MPI_IN_PLACE`. `None` if the arguments are not the common case, if the
/// length of the block differs from that of its place in `all`, or if the block overlaps that place.
#[allow(
    clippy::option_option,
    reason = "nothing to be done at hand, or no block of its own"
)]
fn own(
    it: &FastCall<'_>,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    all: &VectorBlocks<'_>,
) -> Option<Option<UserMemory>> {
    if buf.is_in_place() {
        return Some(None);
    }
    let mine = memory_or_none(buf, count, datatype)?;
    let place = all.block(it.rank());
    (mine.bytes() == place.bytes() && are_apart(mine, place)).then_some(Some(mine))
}

/// Blocks of a contiguous predefined datatype, with a length and a displacement for each rank.
struct VectorBlocks<'a> {
    buf: MutBuf,
    counts: CountArray<'a>,
    places: CountArray<'a>,
    /// Bytes of an item.
    item: i64,
}

impl<'a> VectorBlocks<'a> {
    /// The blocks of all ranks; `None` if a block has a negative length or an invalid address.
    fn of(
        it: &FastCall<'_>,
        buf: MutBuf,
        counts: CountsPtr<'a>,
        places: CountsPtr<'a>,
        datatype: MPI_Datatype,
    ) -> Option<Self> {
        let ranks = it.size() as usize;
        let (counts, places) = (counts.slice(ranks).ok()?, places.slice(ranks).ok()?);
        let item = i64::try_from(dense_size(datatype)).ok()?;
        let is_memory = |rank: usize| {
            let bytes = counts.get(rank).checked_mul(item);
            let place = places.get(rank).checked_mul(item);
            let by = place.and_then(|at| isize::try_from(at).ok());
            let address = by.and_then(|by| buf.address().checked_add_signed(by));
            let is_there = address.is_some_and(|address| address >= FIRST_ADDRESS);
            bytes == Some(0) && place.is_some() || bytes.is_some_and(|bytes| bytes > 0) && is_there
        };
        let is_good = item > 0 && buf.address() >= FIRST_ADDRESS && (0..ranks).all(is_memory);
        is_good.then_some(Self {
            buf,
            counts,
            places,
            item,
        })
    }

    /// The block of a rank.
    #[inline]
    fn block(&self, rank: u32) -> UserMemory {
        let rank = rank as usize;
        let bytes = usize::try_from(self.counts.get(rank) * self.item).unwrap_or(0);
        let lent = lend(self.buf, self.places.get(rank) * self.item, bytes);
        lent.unwrap_or(UserMemory::nothing())
    }
}

const GATHERV: usize = queue_layout::collective("Gatherv");
const SCATTERV: usize = queue_layout::collective("Scatterv");
const ALLGATHERV: usize = queue_layout::collective("Allgatherv");
const ALLTOALLV: usize = queue_layout::collective("Alltoallv");
