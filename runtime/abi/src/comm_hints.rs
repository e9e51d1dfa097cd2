// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hints of communicators (MPI 5.0 section 7.4.4). All known hints are assertions of the program; the library
//! stores them but does not exploit them.

use core::ffi::CStr;

use crate::args::OutArg;
use crate::enter::Mpi;
use crate::error::{Error, Result};
use crate::handle::{MPI_Comm, MPI_Info};
use crate::info::{self, InfoPairs, hints};

/// `MPI_Comm_set_info`.
pub fn comm_set_info(mpi: Mpi, comm: MPI_Comm, info: MPI_Info) -> Result<()> {
    let given = accepted(&hints(info)?);
    mpi.state(|state| {
        let object = state.comm_mut(comm)?;
        for key in KEYS {
            if let Some(value) = given.get(key) {
                object.hints.set(key, value);
            }
        }
        Ok(())
    })
}

/// `MPI_Comm_get_info`: every known hint, with the value in use.
pub fn comm_get_info(mpi: Mpi, comm: MPI_Comm, info_used: OutArg<'_, MPI_Info>) -> Result<()> {
    let set = mpi.state(|state| Ok::<_, Error>(state.comm(comm)?.hints.clone()))?;
    let mut used = InfoPairs::default();
    for key in KEYS {
        used.set(key, set.get(key).unwrap_or(c"false"));
    }
    info_used.set(info::insert(used)?);
    Ok(())
}

/// The given hints that are known and have a valid value.
pub(crate) fn accepted(given: &InfoPairs) -> InfoPairs {
    let mut accepted = InfoPairs::default();
    for key in KEYS {
        if let Some(value) = given.get(key)
            && [c"true", c"false"].contains(&value)
        {
            accepted.set(key, value);
        }
    }
    accepted
}

const KEYS: [&CStr; 5] = [
    c"mpi_assert_no_any_tag",
    c"mpi_assert_no_any_source",
    c"mpi_assert_exact_length",
    c"mpi_assert_allow_overtaking",
    c"mpi_assert_strict_persistent_collective_ordering",
];
