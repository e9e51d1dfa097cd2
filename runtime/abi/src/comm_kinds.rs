// SPDX-License-Identifier: MIT OR Apache-2.0
//! The split types of `MPI_Comm_split_type` (MPI 5.0 section 7.4.2).

use core::ffi::{CStr, c_int};

use runtime::{Comm, Visit};

use crate::args::OutArg;
use crate::c;
use crate::comm::int;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::MPI_Info;
use crate::info::{self, InfoPairs};

/// `MPI_Get_hw_resource_info` (MPI 5.0 section 9.1.2): the resource types for guided splits, each with the value `true`
/// if this process is bound to one instance of it.
pub fn get_hw_resource_info(hw_info: OutArg<'_, MPI_Info>) -> Result<()> {
    let mut pairs = InfoPairs::default();
    pairs.set(SHARED_MEMORY, c"true");
    hw_info.set(info::insert(pairs)?);
    Ok(())
}

/// The color of this process for the split; `MPI_UNDEFINED` if it gets no communicator.
///
/// The node is the only known resource. So an unguided split of a communicator on one node returns `MPI_COMM_NULL`,
/// which ends the recursion of a program that splits repeatedly.
pub(crate) fn color(mpi: Mpi, parent: &Comm, split_type: c_int, info: &InfoPairs) -> Result<c_int> {
    match split_type {
        c::MPI_COMM_TYPE_SHARED => Ok(node(mpi)),
        c::MPI_UNDEFINED => Ok(c::MPI_UNDEFINED),
        c::MPI_COMM_TYPE_HW_UNGUIDED => {
            let is_whole = mpi.visit(|universe| universe.is_on_one_node(parent));
            Ok(if is_whole {
                c::MPI_UNDEFINED
            } else {
                node(mpi)
            })
        }
        c::MPI_COMM_TYPE_HW_GUIDED => Ok(of_resource(mpi, info.get(RESOURCE_KEY))),
        c::MPI_COMM_TYPE_RESOURCE_GUIDED => match (info.get(RESOURCE_KEY), info.get(PSET_KEY)) {
            (Some(_), Some(_)) => {
                let detail = "the info object has both keys mpi_hw_resource_type and mpi_pset_name, one is allowed";
                Err(Error::new(ErrorClass::INFO, detail))
            }
            (None, Some(name)) => Ok(of_pset(mpi, name)),
            (resource, None) => Ok(of_resource(mpi, resource)),
        },
        other => {
            let detail = format!(
                "{other} is no split type, expected one of MPI_COMM_TYPE_SHARED, \
                 MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_HW_UNGUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED and MPI_UNDEFINED"
            );
            Err(Error::new(ErrorClass::ARG, detail))
        }
    }
}

/// Adds the resource type to the info object of an unguided split, unless the object cannot be changed.
///
/// # Errors
/// If the handle is not that of an info object.
pub(crate) fn set_resource(split_type: c_int, info: MPI_Info) -> Result<()> {
    let can_change = ![MPI_Info::NULL, MPI_Info::ENV].contains(&info);
    match split_type {
        c::MPI_COMM_TYPE_HW_UNGUIDED if can_change => {
            info::info_set(info, RESOURCE_KEY, SHARED_MEMORY)
        }
        _ => Ok(()),
    }
}

/// The color of the processes of this node.
fn node(mpi: Mpi) -> c_int {
    int(mpi.visit(|universe| universe.node()))
}

fn of_resource(mpi: Mpi, name: Option<&CStr>) -> c_int {
    if name == Some(SHARED_MEMORY) {
        node(mpi)
    } else {
        c::MPI_UNDEFINED
    }
}

fn of_pset(mpi: Mpi, name: &CStr) -> c_int {
    let name = name.to_string_lossy();
    if name.eq_ignore_ascii_case("mpi://WORLD") {
        0
    } else if name.eq_ignore_ascii_case("mpi://SELF") {
        int(mpi.visit(|universe| universe.rank()))
    } else {
        c::MPI_UNDEFINED
    }
}

const RESOURCE_KEY: &CStr = c"mpi_hw_resource_type";
const PSET_KEY: &CStr = c"mpi_pset_name";
/// The resource type that every implementation has.
const SHARED_MEMORY: &CStr = c"mpi_shared_memory";
