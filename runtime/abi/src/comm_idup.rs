// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Comm_idup` and `MPI_Comm_idup_with_info` (MPI 5.0 section 7.4.2).
//!
//! The call creates the handle, for a communicator without processes, and copies the attributes. A task then agrees on
//! the context id, and at its end replaces the communicator of the handle.

use runtime::{CollectiveCall, Comm, ContextId, Group, Visit};

use crate::args::OutArg;
use crate::attr;
use crate::coll::{PreparedCollective, start_nonblocking};
use crate::comm::any;
use crate::comm_context::{ContextScope, choose_context};
use crate::comm_hints;
use crate::comm_make::{keep, known};
use crate::enter::Mpi;
use crate::error::{Error, Result};
use crate::express_lanes;
use crate::handle::{MPI_Comm, MPI_Info, MPI_Request};
use crate::info::{InfoPairs, hints};

/// `MPI_Comm_idup`: duplicates the current hints too.
pub fn comm_idup(
    mpi: Mpi,
    comm: MPI_Comm,
    newcomm: OutArg<'_, MPI_Comm>,
    request: OutArg<'_, MPI_Request>,
) -> Result<()> {
    let parent = any(mpi, comm)?.for_one_call();
    let hints = mpi.state(|state| Ok::<_, Error>(state.comm(comm)?.hints.clone()))?;
    duplicate(mpi, (comm, parent), hints, &newcomm, &request)
}

/// `MPI_Comm_idup_with_info`: with the given hints only.
pub fn comm_idup_with_info(
    mpi: Mpi,
    comm: MPI_Comm,
    info: MPI_Info,
    newcomm: OutArg<'_, MPI_Comm>,
    request: OutArg<'_, MPI_Request>,
) -> Result<()> {
    let parent = any(mpi, comm)?.for_one_call();
    let hints = comm_hints::accepted(&hints(info)?);
    duplicate(mpi, (comm, parent), hints, &newcomm, &request)
}

fn duplicate(
    mpi: Mpi,
    (comm, parent): (MPI_Comm, Comm),
    hints: InfoPairs,
    newcomm: &OutArg<'_, MPI_Comm>,
    request: &OutArg<'_, MPI_Request>,
) -> Result<()> {
    let made = keep(mpi, comm, Comm::new(NOT_YET, Group::of(Vec::new()), 0))?;
    mpi.state(|state| {
        state.comm_mut(made)?.hints = hints;
        Ok::<_, Error>(())
    })?;
    if let Err(error) = attr::copy_all(mpi, comm, made) {
        express_lanes::forget(made);
        mpi.state(|state| state.comms.remove(made).map(drop))?;
        newcomm.set(MPI_Comm::NULL);
        return Err(error);
    }
    newcomm.set(made);
    let local = parent.local();
    start_nonblocking(mpi, &local, Duplicate { mpi, parent, made }, request)
}

/// The completion of `MPI_Comm_idup`: gives the handle `made` its communicator once the context id is agreed on.
#[derive(Clone)]
struct Duplicate {
    mpi: Mpi,
    parent: Comm,
    made: MPI_Comm,
}

impl PreparedCollective for Duplicate {
    async fn run(&self, call: &CollectiveCall<Mpi>) -> core::result::Result<(), runtime::Error> {
        let context = choose_context(self.mpi, call, &self.parent, ContextScope::One).await?;
        let mut comm = self.parent.with_context(context);
        self.mpi.visit(|universe| universe.adopt(&mut comm));
        express_lanes::forget(self.made);
        let there = self
            .mpi
            .state(|state| match state.comms.get_mut(self.made) {
                Ok(object) => {
                    object.comm = comm.clone();
                    state.universe.comms.rename(&comm, &object.name);
                    true
                }
                // The program freed the communicator, erroneously, before the request was complete.
                Err(_) => {
                    state.universe.forget(&comm);
                    false
                }
            });
        if there {
            known(self.mpi, self.made, &comm);
        }
        Ok(())
    }
}

/// The context id of a communicator that is not complete yet.
pub(crate) const NOT_YET: ContextId = ContextId(0);
