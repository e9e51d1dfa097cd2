// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of collectives: blocks of the program's memory, one per rank.

use core::ffi::c_int;
use std::rc::Rc;

use runtime::collective::CollectiveRoot;
use runtime::{Comm, Payload, Structured, UserMemory, Visit};

use crate::args::{ConstBuf, CountsPtr, MutBuf};
use crate::c::{MPI_PROC_NULL, MPI_ROOT};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype};
use crate::pt2pt::{self, bad_rank, payload};
use crate::state::LibraryState;

/// One block per rank, in rank order. On an intercommunicator: one per rank of the remote group.
pub(super) type Blocks = Rc<[Payload]>;

/// Equal blocks: as separate pieces of memory, or as one piece if they are small enough to be sent together.
#[derive(Clone)]
pub(super) enum Equal {
    Small(Payload),
    Each(Blocks),
}

/// Number of ranks that messages can be sent to.
pub(super) fn partners(group: &Comm) -> usize {
    group.partners().size() as usize
}

/// `count` items at `buf`.
pub(super) fn data(mpi: Mpi, buf: MutBuf, count: i64, datatype: MPI_Datatype) -> Result<Payload> {
    mpi.state(|state| described(state, buf, count, datatype))
}

/// The caller's own block; `None` for `MPI_IN_PLACE`.
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

/// `blocks` consecutive blocks of `count` items.
pub(super) fn equal(
    mpi: Mpi,
    blocks: usize,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
) -> Result<Blocks> {
    mpi.state(|state| {
        let step = extent(state, datatype)?.checked_mul(count);
        let step = step.ok_or_else(|| pt2pt::bad_count(count))?;
        (0..i64::try_from(blocks).unwrap_or(i64::MAX))
            .map(|rank| {
                let from = step.checked_mul(rank);
                let from = from.ok_or_else(|| pt2pt::bad_count(count))?;
                described(state, moved(buf, from), count, datatype)
            })
            .collect()
    })
}

/// One block of `count` items for each rank, consecutive from `buf`. If `is_small` returns `true` for the number of
/// bytes of a block, all blocks are one piece of memory. Otherwise, and always on an intercommunicator, each block is a
/// separate piece.
pub(super) fn equal_or_whole(
    mpi: Mpi,
    group: &Comm,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    is_small: impl FnOnce(usize) -> bool,
) -> Result<Equal> {
    if group.is_inter() {
        return equal(mpi, partners(group), buf, count, datatype).map(Equal::Each);
    }
    let all = count.checked_mul(group.size().into());
    let whole = data(mpi, buf, all.unwrap_or(i64::MAX), datatype)?;
    let block = whole.bytes() / u64::from(group.size());
    if usize::try_from(block).is_ok_and(is_small) {
        return Ok(Equal::Small(whole));
    }
    equal(mpi, partners(group), buf, count, datatype).map(Equal::Each)
}

/// Blocks with counts and displacements in items, for the `v` functions.
pub(super) fn various(
    mpi: Mpi,
    blocks: usize,
    buf: MutBuf,
    counts: CountsPtr<'_>,
    displs: CountsPtr<'_>,
    datatype: MPI_Datatype,
) -> Result<Blocks> {
    let (counts, displs) = (counts.slice(blocks)?, displs.slice(blocks)?);
    mpi.state(|state| {
        let extent = extent(state, datatype)?;
        if buf.is_bottom() || buf.is_in_place() {
            check_unmoved(state, buf, blocks, |rank| (counts.get(rank), datatype))?;
        }
        (0..blocks)
            .map(|rank| {
                let at = displs.get(rank).checked_mul(extent);
                let at = at.ok_or_else(|| pt2pt::bad_count(displs.get(rank)))?;
                let described = described(state, moved(buf, at), counts.get(rank), datatype);
                described.map_err(|error| of_block(rank, &error))
            })
            .collect()
    })
}

/// Blocks with counts, displacements in bytes and datatypes, for the `w` functions.
pub(super) fn of_many_types(
    mpi: Mpi,
    blocks: usize,
    buf: MutBuf,
    counts: CountsPtr<'_>,
    displs: CountsPtr<'_>,
    types: crate::args::Array<'_, MPI_Datatype>,
) -> Result<Blocks> {
    let (counts, displs, types) = (
        counts.slice(blocks)?,
        displs.slice(blocks)?,
        types.slice(blocks)?,
    );
    mpi.state(|state| {
        if buf.is_in_place() {
            check_unmoved(state, buf, blocks, |rank| (counts.get(rank), types[rank]))?;
        }
        (0..blocks)
            .map(|rank| {
                let at = moved(buf, displs.get(rank));
                let described = described(state, at, counts.get(rank), types[rank]);
                described.map_err(|error| of_block(rank, &error))
            })
            .collect()
    })
}

/// Parses the root.
pub(super) fn root_of(root: c_int, group: &Comm) -> Result<CollectiveRoot> {
    match (root, u32::try_from(root)) {
        (MPI_ROOT, _) if group.is_inter() => Ok(CollectiveRoot::Here),
        (MPI_PROC_NULL, _) if group.is_inter() => Ok(CollectiveRoot::Aside),
        (_, Ok(rank)) if rank < group.partners().size() => Ok(match group.is_inter() {
            false if rank == group.rank => CollectiveRoot::Here,
            _ => CollectiveRoot::There(rank),
        }),
        _ => {
            let error = bad_rank("root", root, group.partners().size());
            Err(Error::new(ErrorClass::ROOT, error.detail().to_owned()))
        }
    }
}

/// Checks that `MPI_IN_PLACE` is not used with an intercommunicator (MPI 5.0 section 6.2.3).
pub(super) fn no_place_between_groups(group: &Comm, in_place: bool) -> Result<()> {
    if in_place && group.is_inter() {
        let detail =
            "MPI_IN_PLACE was given for an intercommunicator, where nothing can be in place";
        return Err(Error::new(ErrorClass::BUFFER, detail));
    }
    Ok(())
}

/// Checks that the send buffer and the receive buffer do not start at the same address (MPI 5.0 section 2.3). Empty
/// buffers and buffers with gaps are not checked.
pub(super) fn not_the_same(sent: Option<&Payload>, received: Option<&Payload>) -> Result<()> {
    differ(address(sent), address(received))
}

impl Equal {
    /// Bytes of all blocks.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Small(whole) => whole.bytes(),
            Self::Each(blocks) => blocks.iter().map(Payload::bytes).sum(),
        }
    }

    /// The address of a rank's block; `None` if the block is empty or has gaps.
    fn address(&self, rank: u32, ranks: u32) -> Option<u64> {
        match self {
            Self::Small(Payload::Dense(whole)) if whole.bytes() > 0 => {
                let block = whole.bytes() as u64 / u64::from(ranks);
                Some(whole.address() + block * u64::from(rank))
            }
            Self::Each(blocks) => address(blocks.get(rank as usize)),
            Self::Small(_) => None,
        }
    }
}

/// As [`not_the_same`], for the blocks of `rank` in `sent` and in `received`. `ranks`: number of blocks.
pub(super) fn not_the_same_block(
    sent: &Equal,
    received: &Equal,
    rank: u32,
    ranks: u32,
) -> Result<()> {
    differ(sent.address(rank, ranks), received.address(rank, ranks))
}

/// As [`not_the_same`], for this rank's block and its position in the result.
pub(super) fn not_its_place(sent: Option<&Payload>, received: &Equal, group: &Comm) -> Result<()> {
    differ(address(sent), received.address(group.rank, group.size()))
}

fn address(data: Option<&Payload>) -> Option<u64> {
    match data {
        Some(Payload::Dense(memory)) if memory.bytes() > 0 => Some(memory.address()),
        _ => None,
    }
}

fn differ(sent: Option<u64>, received: Option<u64>) -> Result<()> {
    match sent {
        Some(address) if sent == received => {
            let detail = format!(
                "the send and the receive buffer are the same memory, at {address:#x}; pass MPI_IN_PLACE if that is intended"
            );
            Err(Error::new(ErrorClass::BUFFER, detail))
        }
        _ => Ok(()),
    }
}

/// The bytes of data, contiguous: the memory of the data itself, or a packed copy if the data has gaps.
pub(super) enum Dense {
    Lent(UserMemory),
    Copied(Box<[u8]>, Structured),
}

impl Dense {
    /// The contiguous bytes of `data`. `reads`: whether the caller needs the current contents; if not, a copy contains
    /// zeros.
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

    /// The memory of the bytes; valid as long as `self` exists.
    pub(super) fn memory(&mut self) -> UserMemory {
        match self {
            Self::Lent(memory) => *memory,
            Self::Copied(bytes, _) => UserMemory::of(bytes),
        }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(memory) => memory.as_mut_slice(),
            Self::Copied(bytes, _) => bytes,
        }
    }

    /// The bytes, without write access: another call may read this memory at the same time.
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Lent(memory) => memory.as_slice(),
            Self::Copied(bytes, _) => bytes,
        }
    }

    /// Unpacks the bytes into the data if they are a copy.
    pub(super) fn put_back(self) {
        if let Self::Copied(bytes, data) = self {
            data.unpack(&bytes);
        }
    }
}

/// The tuning parameters of collectives.
pub(super) fn shape(mpi: Mpi) -> runtime::collective::CollectiveTuning {
    mpi.visit(|universe| *universe.shape())
}

/// The placement of a communicator's ranks on nodes.
pub(super) fn place(mpi: Mpi, comm: &Comm) -> runtime::collective::CommPlacement {
    mpi.visit(|universe| universe.place_of(comm))
}

fn described(
    state: &LibraryState,
    buf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
) -> Result<Payload> {
    payload(
        state,
        &pt2pt::Pt2ptCall {
            buf,
            count,
            datatype,
            peer: 0,
            tag: 0,
            comm: MPI_Comm::SELF,
        },
    )
}

fn extent(state: &LibraryState, datatype: MPI_Datatype) -> Result<i64> {
    Ok(
        match i64::try_from(crate::datatype_table::dense_size(datatype)) {
            Ok(size) if size > 0 => size,
            _ => state.datatype(datatype)?.datatype.extent,
        },
    )
}

/// Checks a buffer's address before displacements are added to it.
fn check_unmoved(
    state: &LibraryState,
    buf: MutBuf,
    blocks: usize,
    block: impl Fn(usize) -> (i64, MPI_Datatype),
) -> Result<()> {
    (0..blocks).try_for_each(|rank| {
        let (count, datatype) = block(rank);
        let unmoved = described(state, buf, count, datatype);
        unmoved.map(drop).map_err(|error| of_block(rank, &error))
    })
}

/// The buffer `by` bytes after `buf`.
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
