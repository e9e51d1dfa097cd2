// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communicators (MPI 5.0 section 7.4).

use core::ffi::{CStr, c_int};

use runtime::datatype::{Basic, Scalar};
use runtime::op::{self, Op};
use runtime::{Comm, Comparison, ContextId, Group, Visit, collective};

use crate::args::{InOut, Out, OutString};
use crate::attr;
use crate::c;
use crate::enter::{Mpi, On};
use crate::error::{Error, ErrorClass, Result, truncate};
use crate::express;
use crate::handle::{MPI_Comm, MPI_Group};
use crate::lock;
use crate::state::CommObject;

/// `MPI_Comm_rank`.
pub fn comm_rank(mpi: Mpi, comm: MPI_Comm, rank: Out<'_, c_int>) -> Result<()> {
    rank.set(int(of(mpi, comm)?.rank));
    Ok(())
}

/// `MPI_Comm_size`.
pub fn comm_size(mpi: Mpi, comm: MPI_Comm, size: Out<'_, c_int>) -> Result<()> {
    size.set(int(of(mpi, comm)?.size()));
    Ok(())
}

/// `MPI_Comm_test_inter`.
pub fn comm_test_inter(mpi: Mpi, comm: MPI_Comm, flag: Out<'_, c_int>) -> Result<()> {
    of(mpi, comm)?;
    flag.set(0);
    Ok(())
}

/// `MPI_Comm_compare`.
pub fn comm_compare(
    mpi: Mpi,
    first: MPI_Comm,
    second: MPI_Comm,
    result: Out<'_, c_int>,
) -> Result<()> {
    let (first, second) = (of(mpi, first)?, of(mpi, second)?);
    result.set(comparison(first.compare(&second)));
    Ok(())
}

/// `MPI_Comm_group`.
pub fn comm_group(mpi: Mpi, comm: MPI_Comm, group: Out<'_, MPI_Group>) -> Result<()> {
    let members = of(mpi, comm)?.group;
    group.set(mpi.state(|state| state.groups.insert(members))?);
    Ok(())
}

/// `MPI_Comm_dup`.
pub fn comm_dup(mpi: Mpi, comm: MPI_Comm, newcomm: Out<'_, MPI_Comm>) -> Result<()> {
    let parent = of(mpi, comm)?;
    let context = agree_on_context(mpi, &parent)?;
    let made = keep(mpi, comm, Comm { context, ..parent })?;
    if let Err(error) = attr::copy_all(mpi, comm, made) {
        discard(mpi, made)?;
        newcomm.set(MPI_Comm::NULL);
        return Err(error);
    }
    newcomm.set(made);
    Ok(())
}

/// `MPI_Comm_split`.
pub fn comm_split(
    mpi: Mpi,
    comm: MPI_Comm,
    color: c_int,
    key: c_int,
    newcomm: Out<'_, MPI_Comm>,
) -> Result<()> {
    if color < 0 && color != c::MPI_UNDEFINED {
        let detail = format!("color {color} is negative; expected 0 or more, or MPI_UNDEFINED");
        return Err(Error::new(ErrorClass::ARG, detail));
    }
    let parent = of(mpi, comm)?;
    let next = mpi.visit(|universe| universe.next_context());
    let mut all = vec![[0u8; ENTRY]; parent.size() as usize];
    all[parent.rank as usize] = entry(color, key, next);
    collective::allgather(mpi, &parent, all.as_flattened_mut())?;
    let all: Vec<_> = all.iter().map(|bytes| parsed(*bytes)).collect();
    let context = all.iter().map(|(_, _, next)| *next).max().unwrap_or(next);
    // Every rank moves on, also one that gets no communicator: the next agreement starts from here.
    mpi.visit(|universe| universe.use_context(context));
    if color == c::MPI_UNDEFINED {
        newcomm.set(MPI_Comm::NULL);
        return Ok(());
    }
    let mut members: Vec<_> = (0u32..)
        .zip(&all)
        .filter(|(_, (c, _, _))| *c == color)
        .map(|(r, (_, k, _))| (*k, r))
        .collect();
    members.sort_unstable();
    let rank = members
        .iter()
        .position(|(_, rank)| *rank == parent.rank)
        .unwrap_or(0);
    let peers = members
        .iter()
        .filter_map(|(_, rank)| parent.group.peer(*rank))
        .collect();
    let made = Comm {
        context: ContextId(context),
        group: Group::of(peers),
        rank: u32::try_from(rank).unwrap_or(0),
    };
    newcomm.set(keep(mpi, comm, made)?);
    Ok(())
}

/// `MPI_Comm_create`: every rank of `comm` calls; those outside `group` get `MPI_COMM_NULL`.
pub fn comm_create(
    mpi: Mpi,
    comm: MPI_Comm,
    group: MPI_Group,
    newcomm: Out<'_, MPI_Comm>,
) -> Result<()> {
    let parent = of(mpi, comm)?;
    let members = mpi.state(|state| state.group(group))?;
    if let Some(stranger) = members
        .peers()
        .find(|peer| parent.group.rank_of(*peer).is_none())
    {
        let detail = format!(
            "the group has a process (world rank {}) that is not in the communicator",
            stranger.0
        );
        return Err(Error::new(ErrorClass::GROUP, detail));
    }
    let context = agree_on_context(mpi, &parent)?;
    let me = parent.group.peer(parent.rank);
    match me.and_then(|me| members.rank_of(me)) {
        None => newcomm.set(MPI_Comm::NULL),
        Some(rank) => newcomm.set(keep(
            mpi,
            comm,
            Comm {
                context,
                group: members,
                rank,
            },
        )?),
    }
    Ok(())
}

/// `MPI_Comm_free`.
pub fn comm_free(mpi: Mpi, comm: InOut<'_, MPI_Comm>) -> Result<()> {
    let handle = comm.get();
    if handle == MPI_Comm::WORLD || handle == MPI_Comm::SELF {
        return Err(Error::new(
            ErrorClass::COMM,
            "a predefined communicator cannot be freed",
        ));
    }
    of(mpi, handle)?;
    attr::delete_all(mpi, handle).map_err(|error| error.raised_on(On::Comm(handle)))?;
    discard(mpi, handle)?;
    comm.set(MPI_Comm::NULL);
    Ok(())
}

/// Forgets a communicator that has no attributes.
fn discard(mpi: Mpi, handle: MPI_Comm) -> Result<()> {
    mpi.state(|state| {
        let object = state.comms.remove(handle)?;
        state.universe.forget(&object.comm);
        state.buffers.remove(&u64::from(object.comm.context.0));
        Ok::<_, Error>(())
    })?;
    express::forget(handle);
    Ok(())
}

/// `MPI_Comm_get_name`.
pub fn comm_get_name(
    mpi: Mpi,
    comm: MPI_Comm,
    name: OutString<'_>,
    length: Out<'_, c_int>,
) -> Result<()> {
    let text = mpi.state(|state| Ok::<_, Error>(state.comm(comm)?.name.clone()))?;
    length.set(int(name.set(&text)));
    Ok(())
}

/// `MPI_Comm_set_name`.
pub fn comm_set_name(mpi: Mpi, comm: MPI_Comm, name: &CStr) -> Result<()> {
    let mut text = name.to_string_lossy().into_owned();
    truncate(&mut text, c::MPI_MAX_OBJECT_NAME - 1);
    mpi.state(|state| {
        state.comm_mut(comm)?.name = text;
        Ok(())
    })
}

/// The communicator of a handle.
pub(crate) fn of(mpi: Mpi, comm: MPI_Comm) -> Result<Comm> {
    mpi.state(|state| Ok(state.comm(comm)?.comm.clone()))
}

/// A comparison as the standard numbers it.
pub(crate) fn comparison(result: Comparison) -> c_int {
    match result {
        Comparison::Identical => c::MPI_IDENT,
        Comparison::Congruent => c::MPI_CONGRUENT,
        Comparison::Similar => c::MPI_SIMILAR,
        Comparison::Unequal => c::MPI_UNEQUAL,
    }
}

/// A number of ranks, of objects or of characters as C's `int`.
pub(crate) fn int(number: impl TryInto<c_int>) -> c_int {
    number.try_into().unwrap_or(c_int::MAX)
}

/// A context that no member of `parent` uses: the highest of their lowest unused ones.
fn agree_on_context(mpi: Mpi, parent: &Comm) -> Result<ContextId> {
    let basic = Basic::of_scalar(Scalar::Unsigned(4));
    let mut bytes = mpi.visit(|universe| universe.next_context()).to_ne_bytes();
    let maximum = |input: &[u8], inout: &mut [u8]| {
        let defined = op::reduce(Op::Max, &basic, input, inout);
        debug_assert!(defined.is_ok());
    };
    collective::allreduce(mpi, parent, &mut bytes, &maximum)?;
    let context = u32::from_ne_bytes(bytes);
    mpi.visit(|universe| universe.use_context(context));
    Ok(ContextId(context))
}

/// Makes the handle of a new communicator, which inherits the error handler (MPI 5.0 section 9.3).
fn keep(mpi: Mpi, parent: MPI_Comm, comm: Comm) -> Result<MPI_Comm> {
    let handle = mpi.state(|state| {
        let errhandler = state.comm(parent)?.errhandler;
        state.universe.adopt(&comm);
        let (comm, name) = (comm.clone(), String::new());
        state.comms.insert(CommObject {
            comm,
            name,
            errhandler,
        })
    })?;
    if !lock::is_multiple() && mpi.visit(|universe| universe.eager_limit()) >= 8 {
        express::open(handle, &comm);
    }
    Ok(handle)
}

fn entry(color: c_int, key: c_int, next: u32) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[..4].copy_from_slice(&color.to_ne_bytes());
    bytes[4..8].copy_from_slice(&key.to_ne_bytes());
    bytes[8..].copy_from_slice(&next.to_ne_bytes());
    bytes
}

fn parsed(bytes: [u8; ENTRY]) -> (c_int, c_int, u32) {
    let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    (
        c_int::from_ne_bytes(word(0)),
        c_int::from_ne_bytes(word(4)),
        u32::from_ne_bytes(word(8)),
    )
}

/// Color, key and lowest unused context.
const ENTRY: usize = 12;
