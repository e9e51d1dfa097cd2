// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communicators (MPI 5.0 section 7.4).

use core::ffi::{CStr, c_int};

use runtime::{AwaitedCollective, Awaits, Comm, GroupComparison, Visit};

use crate::args::{InOutArg, OutArg, OutString};
use crate::attr;
use crate::c;
use crate::comm_idup::NOT_YET;
use crate::comm_make::discard;
use crate::enter::{Mpi, On};
use crate::error::{Error, ErrorClass, Result, truncate};
use crate::handle::{MPI_Comm, MPI_Group};
use crate::state::GroupObject;

/// `MPI_Comm_rank`.
pub fn comm_rank(mpi: Mpi, comm: MPI_Comm, rank: OutArg<'_, c_int>) -> Result<()> {
    rank.set(int(any(mpi, comm)?.rank));
    Ok(())
}

/// `MPI_Comm_size`.
pub fn comm_size(mpi: Mpi, comm: MPI_Comm, size: OutArg<'_, c_int>) -> Result<()> {
    size.set(int(any(mpi, comm)?.size()));
    Ok(())
}

/// `MPI_Comm_compare`.
pub fn comm_compare(
    mpi: Mpi,
    first: MPI_Comm,
    second: MPI_Comm,
    result: OutArg<'_, c_int>,
) -> Result<()> {
    let (first, second) = (any(mpi, first)?, any(mpi, second)?);
    result.set(comparison(first.compare(&second)));
    Ok(())
}

/// `MPI_Comm_group`.
pub fn comm_group(mpi: Mpi, comm: MPI_Comm, group: OutArg<'_, MPI_Group>) -> Result<()> {
    let members = any(mpi, comm)?.group;
    group.set(mpi.state(|state| {
        let session = state.comm(comm)?.session;
        state.groups.insert(GroupObject { members, session })
    })?);
    Ok(())
}

/// `MPI_Comm_free`.
pub fn comm_free(mpi: Mpi, comm: InOutArg<'_, MPI_Comm>) -> Result<()> {
    let handle = comm.get();
    if handle == MPI_Comm::WORLD || handle == MPI_Comm::SELF {
        return Err(Error::new(
            ErrorClass::COMM,
            "a predefined communicator cannot be freed",
        ));
    }
    any(mpi, handle)?;
    attr::delete_all(mpi, handle).map_err(|error| error.raised_on(On::Comm(handle)))?;
    discard(mpi, handle)?;
    comm.set(MPI_Comm::NULL);
    Ok(())
}

/// `MPI_Comm_disconnect`: waits for pending communication on the communicator (MPI 5.0 section 11.10.4).
pub fn comm_disconnect(mpi: Mpi, comm: InOutArg<'_, MPI_Comm>) -> Result<()> {
    let ended = any(mpi, comm.get())?;
    let awaited = AwaitedCollective {
        context: ended.context,
        call: None,
        root: None,
        bytes: None,
    };
    mpi.wait_until(Awaits::Ranks(awaited), |universe| {
        universe.messages.is_quiet(ended.context)
    });
    comm_free(mpi, comm)
}

/// `MPI_Comm_get_parent`: always `MPI_COMM_NULL`, since spawning is not implemented.
pub fn comm_get_parent(_mpi: Mpi, parent: OutArg<'_, MPI_Comm>) -> Result<()> {
    parent.set(MPI_Comm::NULL);
    Ok(())
}

/// `MPI_Comm_get_name`.
pub fn comm_get_name(
    mpi: Mpi,
    comm: MPI_Comm,
    name: OutString<'_>,
    length: OutArg<'_, c_int>,
) -> Result<()> {
    let text = match comm {
        MPI_Comm::NULL => "MPI_COMM_NULL".to_owned(),
        _ => mpi.state(|state| Ok::<_, Error>(state.comm(comm)?.name.clone()))?,
    };
    length.set(int(name.set(&text)));
    Ok(())
}

/// `MPI_Comm_set_name`.
pub fn comm_set_name(mpi: Mpi, comm: MPI_Comm, name: &CStr) -> Result<()> {
    let mut text = name.to_string_lossy().into_owned();
    truncate(&mut text, c::MPI_MAX_OBJECT_NAME - 1);
    mpi.state(|state| {
        let renamed = state.comm(comm)?.comm.clone();
        state.universe.comms.rename(&renamed, &text);
        state.comm_mut(comm)?.name = text;
        Ok(())
    })
}

/// The communicator of a handle.
pub(crate) fn any(mpi: Mpi, comm: MPI_Comm) -> Result<Comm> {
    let found = mpi.state(|state| Ok::<_, Error>(state.comm(comm)?.comm.clone()))?;
    if found.context == NOT_YET {
        let detail =
            "the communicator is still being made; complete the request of MPI_Comm_idup first";
        return Err(Error::new(ErrorClass::COMM, detail));
    }
    Ok(found)
}

/// The intracommunicator of a handle.
pub(crate) fn of(mpi: Mpi, comm: MPI_Comm) -> Result<Comm> {
    let found = any(mpi, comm)?;
    if found.is_inter() {
        let detail = "the communicator is an intercommunicator, an intracommunicator is needed";
        return Err(Error::new(ErrorClass::COMM, detail));
    }
    Ok(found)
}

/// The standard's constant for a comparison.
pub(crate) fn comparison(result: GroupComparison) -> c_int {
    match result {
        GroupComparison::Identical => c::MPI_IDENT,
        GroupComparison::Congruent => c::MPI_CONGRUENT,
        GroupComparison::Similar => c::MPI_SIMILAR,
        GroupComparison::Unequal => c::MPI_UNEQUAL,
    }
}

/// A number of ranks, objects or characters as a C `int`.
pub(crate) fn int(number: impl TryInto<c_int>) -> c_int {
    number.try_into().unwrap_or(c_int::MAX)
}
