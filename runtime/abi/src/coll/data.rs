// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of collectives: blocks of the program's memory, one a rank.

use core::ffi::c_int;
use std::rc::Rc;

use runtime::{Comm, Payload, Structured, UserMemory, Visit};

use crate::args::{ConstBuf, CountsPtr, MutBuf};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype};
use crate::pt2pt::{self, bad_rank, payload};
use crate::state::State;

/// One block a rank, in rank order.
pub(super) type Blocks = Rc<[Payload]>;

/// Equal blocks: each by itself, or all as one piece of memory where they are small enough to travel together.
#[derive(Clone)]
pub(super) enum Equal {
    Small(Payload),
    Each(Blocks),
}

/// `count` items at `buf`.
pub(super) fn data(mpi: Mpi, buf: MutBuf, count: i64, datatype: MPI_Datatype) -> Result<Payload> {
    mpi.state(|state| described(state, buf, count, datatype))
}

/// The caller's own block; `None` for `MPI_IN_PLACE`: it lies where the result belongs.
pub(super) fn own(
    mpi: Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
) -> Result<Option<Payload>> {
    if buf.is_in_place() {
        return Ok(None);
    }
    data(mpi, buf.into(), count, datatype).map(Some)
}

/// `count` items for each rank, one block after the other.
pub(super) fn equal(
    mpi: Mpi,
    group: &Comm,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
) -> Result<Blocks> {
    mpi.state(|state| {
        let step = extent(state, datatype)?.checked_mul(count);
        let step = step.ok_or_else(|| pt2pt::bad_count(count))?;
        (0..i64::from(group.size()))
            .map(|rank| {
                let from = step.checked_mul(rank);
                let from = from.ok_or_else(|| pt2pt::bad_count(count))?;
                described(state, moved(buf, from), count, datatype)
            })
            .collect()
    })
}

/// As [`equal`], in one piece where a block has at most `limit` bytes, or all together `limit_of_all`.
pub(super) fn equal_or_whole(
    mpi: Mpi,
    group: &Comm,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    is_small: impl FnOnce(usize) -> bool,
) -> Result<Equal> {
    let all = count.checked_mul(group.size().into());
    let whole = data(mpi, buf, all.unwrap_or(i64::MAX), datatype)?;
    let block = whole.bytes() / u64::from(group.size());
    if usize::try_from(block).is_ok_and(is_small) {
        return Ok(Equal::Small(whole));
    }
    equal(mpi, group, buf, count, datatype).map(Equal::Each)
}

/// Blocks of their own lengths and places (in items), as the `v` functions have them.
pub(super) fn various(
    mpi: Mpi,
    group: &Comm,
    buf: MutBuf,
    counts: CountsPtr<'_>,
    displs: CountsPtr<'_>,
    datatype: MPI_Datatype,
) -> Result<Blocks> {
    let size = group.size() as usize;
    let (counts, displs) = (counts.slice(size)?, displs.slice(size)?);
    mpi.state(|state| {
        let extent = extent(state, datatype)?;
        (0..size)
            .map(|rank| {
                let at = displs.get(rank).checked_mul(extent);
                let at = at.ok_or_else(|| pt2pt::bad_count(displs.get(rank)))?;
                let described = described(state, moved(buf, at), counts.get(rank), datatype);
                described.map_err(|error| of_block(rank, &error))
            })
            .collect()
    })
}

/// Blocks of their own lengths, places (in bytes) and datatypes, as the `w` functions have them.
pub(super) fn of_many_types(
    mpi: Mpi,
    group: &Comm,
    buf: MutBuf,
    counts: CountsPtr<'_>,
    displs: CountsPtr<'_>,
    types: crate::args::Array<'_, MPI_Datatype>,
) -> Result<Blocks> {
    let size = group.size() as usize;
    let (counts, displs, types) = (counts.slice(size)?, displs.slice(size)?, types.slice(size)?);
    mpi.state(|state| {
        (0..size)
            .map(|rank| {
                let at = moved(buf, displs.get(rank));
                let described = described(state, at, counts.get(rank), types[rank]);
                described.map_err(|error| of_block(rank, &error))
            })
            .collect()
    })
}

/// A root in the communicator.
pub(super) fn root_of(root: c_int, group: &Comm) -> Result<u32> {
    match u32::try_from(root) {
        Ok(rank) if rank < group.size() => Ok(rank),
        _ => {
            let error = bad_rank("root", root, group.size());
            Err(Error::new(ErrorClass::ROOT, error.detail().to_owned()))
        }
    }
}

/// Dense bytes of data: their memory itself, or a copy where it has gaps.
pub(super) enum Dense {
    Lent(UserMemory),
    Copied(Box<[u8]>, Structured),
}

impl Dense {
    /// `reads`: what the data are now matters.
    pub(super) fn of(data: &Payload, reads: bool) -> Self {
        match data {
            Payload::Dense(memory) => Self::Lent(*memory),
            Payload::Structured(data) if reads => Self::Copied(data.pack(), data.clone()),
            Payload::Structured(data) => {
                let bytes = usize::try_from(data.bytes()).unwrap_or(0);
                Self::Copied(vec![0; bytes].into_boxed_slice(), data.clone())
            }
        }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(memory) => memory.as_mut_slice(),
            Self::Copied(bytes, _) => bytes,
        }
    }

    /// Puts changed bytes where they belong.
    pub(super) fn put_back(self) {
        if let Self::Copied(bytes, data) = self {
            data.unpack(&bytes);
        }
    }
}

/// Whether the ranks of a communicator choose by this size; see [`runtime::collective::Shape`].
pub(super) fn shape(mpi: Mpi) -> runtime::collective::Shape {
    mpi.visit(|universe| universe.shape())
}

fn described(state: &State, buf: MutBuf, count: i64, datatype: MPI_Datatype) -> Result<Payload> {
    payload(
        state,
        &pt2pt::Call {
            buf,
            count,
            datatype,
            peer: 0,
            tag: 0,
            comm: MPI_Comm::SELF,
        },
    )
}

fn extent(state: &State, datatype: MPI_Datatype) -> Result<i64> {
    Ok(
        match i64::try_from(crate::datatype_table::dense_size(datatype)) {
            Ok(size) if size > 0 => size,
            _ => state.datatype(datatype)?.datatype.extent,
        },
    )
}

/// The address `by` bytes further. NULL stays NULL: it is told as what it is, where data are expected there.
fn moved(buf: MutBuf, by: i64) -> MutBuf {
    MutBuf(buf.0.wrapping_byte_offset(isize::try_from(by).unwrap_or(0)))
}

#[cold]
fn of_block(rank: usize, error: &Error) -> Error {
    Error::new(
        error.class(),
        format!("the block of rank {rank}: {}", error.detail()),
    )
}
