// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process topologies: Cartesian grids (MPI 5.0 chapter 8). Ranks are never reordered.

use core::ffi::c_int;
use std::sync::Arc;

use runtime::topology::{Cart, Topology, balanced_dims};
use runtime::{Comm, Group};

use crate::args::{Array, OutArg, OutArray};
use crate::c;
use crate::comm::{any, int, of};
use crate::comm_context::{ContextScope, new_context, release_context};
use crate::comm_make::{keep, split};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::MPI_Comm;
use crate::pt2pt::bad_rank;

/// `MPI_Topo_test`.
pub fn topo_test(mpi: Mpi, comm: MPI_Comm, status: OutArg<'_, c_int>) -> Result<()> {
    let found = any(mpi, comm)?.topology;
    status.set(match found.as_deref() {
        None => c::MPI_UNDEFINED,
        Some(Topology::Cart(_)) => c::MPI_CART,
        Some(Topology::Graph(_)) => c::MPI_GRAPH,
        Some(Topology::DistGraph(_)) => c::MPI_DIST_GRAPH,
    });
    Ok(())
}

/// `MPI_Cart_create`.
pub fn cart_create(
    mpi: Mpi,
    comm: MPI_Comm,
    dims: &[c_int],
    periods: &[c_int],
    _reorder: c_int,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = of(mpi, comm)?.for_one_call();
    let cart = grid(dims, periods, parent.size())?;
    let ranks = cart.size();
    newcomm.set(arrange(mpi, comm, &parent, ranks, Topology::Cart(cart))?);
    Ok(())
}

/// `MPI_Dims_create`.
pub fn dims_create(_mpi: Mpi, nnodes: c_int, dims: &mut [c_int]) -> Result<()> {
    let nodes = u32::try_from(nnodes).ok().filter(|nodes| *nodes > 0);
    let nodes = nodes.ok_or_else(|| {
        let detail = format!("the number of nodes is {nnodes}, expected 1 or more");
        Error::new(ErrorClass::ARG, detail)
    })?;
    let mut fixed = 1u32;
    for (at, extent) in dims.iter().enumerate() {
        let given = u32::try_from(*extent).map_err(|_| bad_extent(at, *extent, 0))?;
        fixed = fixed.saturating_mul(given.max(1));
    }
    let free = dims.iter().filter(|extent| **extent == 0).count();
    if !nodes.is_multiple_of(fixed) || (free == 0 && !dims.is_empty() && nodes != fixed) {
        let wanted = if free == 0 {
            "is not"
        } else {
            "is no multiple of"
        };
        let detail =
            format!("{nnodes} nodes {wanted} the product of the given extents, which is {fixed}");
        return Err(Error::new(ErrorClass::DIMS, detail));
    }
    let mut factors = balanced_dims(nodes / fixed, free).into_iter();
    for extent in dims.iter_mut().filter(|extent| **extent == 0) {
        *extent = factors.next().map_or(1, int);
    }
    Ok(())
}

/// `MPI_Cartdim_get`.
pub fn cartdim_get(mpi: Mpi, comm: MPI_Comm, ndims: OutArg<'_, c_int>) -> Result<()> {
    ndims.set(int(Grid::of(mpi, comm)?.cart().dims().len()));
    Ok(())
}

/// `MPI_Cart_get`.
pub fn cart_get(
    mpi: Mpi,
    comm: MPI_Comm,
    dims: OutArray<'_, c_int>,
    periods: OutArray<'_, c_int>,
    coords: OutArray<'_, c_int>,
) -> Result<()> {
    let grid = Grid::of(mpi, comm)?;
    let cart = grid.cart();
    check_room(dims.len(), cart.dims().len())?;
    dims.fill(cart.dims().iter().copied().map(int));
    periods.fill(cart.periodic().iter().copied().map(c_int::from));
    coords.fill(cart.coords(grid.rank).into_iter().map(int));
    Ok(())
}

/// `MPI_Cart_rank`.
pub fn cart_rank(
    mpi: Mpi,
    comm: MPI_Comm,
    coords: Array<'_, c_int>,
    rank: OutArg<'_, c_int>,
) -> Result<()> {
    let grid = Grid::of(mpi, comm)?;
    let cart = grid.cart();
    let given = coords.slice(cart.dims().len())?;
    let wide: Vec<i64> = given.iter().copied().map(i64::from).collect();
    let found = cart.rank(&wide).map_err(|at| {
        let (given, extent) = (given[at], cart.dims()[at]);
        let detail = format!(
            "coordinate {given} of dimension {at} is outside of 0 to {}, and the dimension is not periodic",
            extent - 1
        );
        Error::new(ErrorClass::ARG, detail)
    })?;
    rank.set(int(found));
    Ok(())
}

/// `MPI_Cart_coords`.
pub fn cart_coords(
    mpi: Mpi,
    comm: MPI_Comm,
    rank: c_int,
    coords: OutArray<'_, c_int>,
) -> Result<()> {
    let grid = Grid::of(mpi, comm)?;
    let cart = grid.cart();
    let found = u32::try_from(rank).ok().filter(|rank| *rank < cart.size());
    let found = found.ok_or_else(|| bad_rank("the", rank, cart.size()))?;
    check_room(coords.len(), cart.dims().len())?;
    coords.fill(cart.coords(found).into_iter().map(int));
    Ok(())
}

/// `MPI_Cart_shift`.
pub fn cart_shift(
    mpi: Mpi,
    comm: MPI_Comm,
    direction: c_int,
    displacement: c_int,
    source: OutArg<'_, c_int>,
    destination: OutArg<'_, c_int>,
) -> Result<()> {
    let grid = Grid::of(mpi, comm)?;
    let cart = grid.cart();
    let count = cart.dims().len();
    let dimension = usize::try_from(direction).ok().filter(|at| *at < count);
    let dimension = dimension.ok_or_else(|| {
        let s = if count == 1 { "" } else { "s" };
        let detail =
            format!("dimension {direction} was requested, the topology has {count} dimension{s}, counted from 0");
        Error::new(ErrorClass::DIMS, detail)
    })?;
    let steps = i64::from(displacement);
    let at = |steps| {
        cart.shifted(grid.rank, dimension, steps)
            .map_or(c::MPI_PROC_NULL, int)
    };
    source.set(at(-steps));
    destination.set(at(steps));
    Ok(())
}

/// `MPI_Cart_sub`.
pub fn cart_sub(
    mpi: Mpi,
    comm: MPI_Comm,
    remain: Array<'_, c_int>,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = of(mpi, comm)?.for_one_call();
    let grid = Grid::of(mpi, comm)?;
    let remain = remain.slice(grid.cart().dims().len())?;
    let remain: Vec<bool> = remain.iter().map(|flag| *flag != 0).collect();
    let (part, which, place) = grid.cart().sub(grid.rank, &remain);
    let made = split(mpi, &parent, int(which), int(place))?;
    let handle = match made {
        None => MPI_Comm::NULL,
        Some(made) => keep(mpi, comm, made.with_topology(Topology::Cart(part)))?,
    };
    newcomm.set(handle);
    Ok(())
}

/// `MPI_Cart_map`.
pub fn cart_map(
    mpi: Mpi,
    comm: MPI_Comm,
    dims: &[c_int],
    periods: &[c_int],
    newrank: OutArg<'_, c_int>,
) -> Result<()> {
    let parent = of(mpi, comm)?;
    let cart = grid(dims, periods, parent.size())?;
    newrank.set(place(&parent, cart.size()));
    Ok(())
}

/// The rank of this process in a topology of the first `ranks` ranks of `parent`; `MPI_UNDEFINED` if it is not one of
/// them.
pub(crate) fn place(parent: &Comm, ranks: u32) -> c_int {
    match parent.rank < ranks {
        true => int(parent.rank),
        false => c::MPI_UNDEFINED,
    }
}

/// Makes a communicator with a topology from the first `ranks` ranks of `parent`; the other ranks get `MPI_COMM_NULL`.
pub(crate) fn arrange(
    mpi: Mpi,
    comm: MPI_Comm,
    parent: &Comm,
    ranks: u32,
    topology: Topology,
) -> Result<MPI_Comm> {
    let context = new_context(mpi, parent, ContextScope::One)?;
    if parent.rank >= ranks {
        release_context(mpi, context);
        return Ok(MPI_Comm::NULL);
    }
    let group = match ranks == parent.size() {
        true => parent.group.clone(),
        false => Group::of(parent.group.peers().take(ranks as usize).collect()),
    };
    let made = Comm::new(context, group, parent.rank);
    keep(mpi, comm, made.with_topology(topology))
}

/// The error for a communicator that has another topology than the wanted one, or no topology.
pub(crate) fn no_topology(found: Option<&Topology>, wanted: &str) -> Error {
    let found = match found {
        None => "no topology",
        Some(Topology::Cart(_)) => "a Cartesian topology",
        Some(Topology::Graph(_)) => "a graph topology",
        Some(Topology::DistGraph(_)) => "a distributed graph topology",
    };
    let detail = format!("the communicator has {found}, {wanted} is needed");
    Error::new(ErrorClass::TOPOLOGY, detail)
}

/// The grid of a communicator, with this process's coordinates.
struct Grid {
    topology: Arc<Topology>,
    rank: u32,
}

impl Grid {
    fn of(mpi: Mpi, comm: MPI_Comm) -> Result<Self> {
        let Comm { topology, rank, .. } = any(mpi, comm)?;
        match topology {
            Some(topology) if matches!(*topology, Topology::Cart(_)) => Ok(Self { topology, rank }),
            other => Err(no_topology(other.as_deref(), "a Cartesian topology")),
        }
    }

    fn cart(&self) -> &Cart {
        match &*self.topology {
            Topology::Cart(cart) => cart,
            _ => unreachable!("`of` takes nothing else"),
        }
    }
}

fn grid(dims: &[c_int], periods: &[c_int], size: u32) -> Result<Cart> {
    let mut extents = Vec::with_capacity(dims.len());
    for (at, extent) in dims.iter().enumerate() {
        let given = u32::try_from(*extent).ok().filter(|extent| *extent > 0);
        extents.push(given.ok_or_else(|| bad_extent(at, *extent, 1))?);
    }
    let periodic = periods.iter().map(|flag| *flag != 0).collect();
    let cart = Cart::new(extents, periodic).filter(|cart| cart.size() <= size);
    cart.ok_or_else(|| {
        let s = if size == 1 { "" } else { "s" };
        let detail = format!(
            "a grid of {dims:?} has more ranks than the communicator, which has {size} rank{s}"
        );
        Error::new(ErrorClass::DIMS, detail)
    })
}

fn bad_extent(at: usize, extent: c_int, least: c_int) -> Error {
    let detail = format!("the extent of dimension {at} is {extent}, expected {least} or more");
    Error::new(ErrorClass::DIMS, detail)
}

/// Checks that the caller's array has room for all dimensions.
fn check_room(room: usize, needed: usize) -> Result<()> {
    if room >= needed {
        return Ok(());
    }
    let detail = format!("there is room for {room} dimensions, the topology has {needed}");
    Err(Error::new(ErrorClass::ARG, detail))
}
