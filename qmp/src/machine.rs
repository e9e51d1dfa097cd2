// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements initialisation and finalisation, communicators, topologies, and the layout of a lattice.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::ffi::CString;

use crate::command_line::Options;
use crate::gate;
use crate::geometry::{self, NodeGrid, NodeHosts, to_c};
use crate::mpi::{self, Comm, MpiPhase};
use crate::settings::QmpSettings;
use crate::state::{self, QmpState};
use crate::status::{QmpFailure, QmpStatus, Result};

/// A communicator.
#[derive(Debug)]
pub struct QmpCommunicator {
    /// MPI's communicator, boxed because programs get its address.
    pub mpi: Box<Comm>,
    /// Number of nodes.
    pub nodes: c_int,
    /// Number of this node.
    pub node: c_int,
    /// Number of colours in the split that made the communicator.
    pub colors: c_int,
    /// This node's colour in that split.
    pub color: c_int,
    /// This node's key in that split.
    pub key: c_int,
    /// The logical topology, once declared.
    pub declared: Option<DeclaredTopology>,
}

/// A declared topology, with arrays that programs get pointers to.
#[derive(Debug)]
pub struct DeclaredTopology {
    /// The grid.
    pub topology: NodeGrid,
    /// The dimensions of the grid.
    pub dims: Box<[c_int]>,
    /// This node's coordinates.
    pub coordinates: Box<[c_int]>,
    /// Coordinates that programs have pointers to, by node number.
    pub cached: BTreeMap<c_int, Box<[c_int]>>,
}

/// The result of `QMP_layout_grid`.
#[derive(Debug)]
pub struct LatticeLayout {
    /// Dimensions of the part of the lattice on each node.
    pub subgrid: Vec<c_int>,
    /// Number of sites of that part.
    pub sites: c_int,
}

impl LatticeLayout {
    /// No layout.
    pub const NONE: Self = Self {
        subgrid: Vec::new(),
        sites: 0,
    };
}

impl QmpCommunicator {
    fn new(mpi: Comm, colors: c_int, color: c_int, key: c_int) -> Result<Self> {
        Ok(Self {
            nodes: mpi.size()?,
            node: mpi.rank()?,
            mpi: Box::new(mpi),
            colors,
            color,
            key,
            declared: None,
        })
    }

    /// Splits a communicator by colour; `None` on a node whose colour is negative.
    fn split(parent: Comm, color: c_int, key: c_int) -> Result<Option<Self>> {
        let mut colors = parent.gather(color)?;
        colors.sort_unstable();
        colors.dedup();
        let count = colors.iter().filter(|color| **color >= 0).count();
        let new = parent.split(color, key)?;
        let count = c_int::try_from(count).unwrap_or(c_int::MAX);
        new.map(|new| Self::new(new, count, color, key)).transpose()
    }

    fn must_be_undeclared(&self) -> Result<()> {
        if self.declared.is_some() {
            let text = "a logical topology can be declared once for each communicator";
            return Err(QmpFailure::new(QmpStatus::TOPOLOGY_EXISTS, text));
        }
        Ok(())
    }

    fn declare(&mut self, topology: NodeGrid) -> Result<()> {
        self.must_be_undeclared()?;
        let here = topology.coordinates(size(self.node)).unwrap_or_default();
        self.declared = Some(DeclaredTopology {
            dims: to_c(topology.dims()).into(),
            coordinates: to_c(&here).into(),
            topology,
            cached: BTreeMap::new(),
        });
        Ok(())
    }

    /// The logical topology; an error if none is declared.
    pub fn topology(&self) -> Result<&DeclaredTopology> {
        self.declared.as_ref().ok_or_else(|| {
            let text = "no logical topology is declared: call QMP_declare_logical_topology or QMP_layout_grid first";
            QmpFailure::new(QmpStatus::NONEIGHBOR_INFO, text)
        })
    }

    /// Checks a node number.
    pub fn check_node(&self, node: c_int) -> Result<()> {
        if (0..self.nodes).contains(&node) {
            return Ok(());
        }
        let text = format!(
            "node {node} was given, there are {} nodes, counted from 0",
            self.nodes
        );
        Err(QmpFailure::new(QmpStatus::NODE_OUTRANGE, text))
    }

    /// The coordinates of a node.
    pub fn coordinates_of(&self, node: c_int) -> Result<Vec<c_int>> {
        self.check_node(node)?;
        let declared = self.topology()?;
        Ok(to_c(
            &declared
                .topology
                .coordinates(size(node))
                .unwrap_or_default(),
        ))
    }
}

/// Initialises QMP on an initialised MPI.
pub fn start(options: Options, owns_mpi: bool, multiple: bool) -> Result<()> {
    let world = remaining(options.processes)?;
    let mut allocated = QmpCommunicator::new(world, 1, 0, 0)?;
    if !options.geometry.is_empty() {
        let grid = NodeGrid::linear(
            &options.geometry,
            &options.allocated_map,
            size(allocated.nodes),
        )?;
        allocated.declare(grid)?;
    }
    let color = job_of(&allocated, &options.jobs)?;
    let lost = || QmpFailure::new(QmpStatus::ERROR, "a communicator has lost this node");
    let mut job = QmpCommunicator::split(world, color, 0)?.ok_or_else(lost)?;
    if let Some(grid) = job_grid(&options) {
        job.declare(NodeGrid::linear(
            &grid,
            &options.allocated_map,
            size(job.nodes),
        )?)?;
    }
    let default = QmpCommunicator::split(*job.mpi, 0, 0)?.ok_or_else(lost)?;
    let prefix = format!("QMP m{},n{}@{}", default.node, default.nodes, host_name());
    state::set_multiple(multiple);
    state::visit(|state| {
        let [allocated, job, default] =
            [allocated, job, default].map(|comm| state.comms.insert(comm).unwrap_or_default());
        (state.allocated, state.job, state.default) = (allocated, job, default);
        state.prefix = CString::new(prefix).ok();
        state.settings = QmpSettings::read(|name| std::env::var(name).ok());
        state.options = options;
        state.owns_mpi = owns_mpi;
        state.running = true;
    });
    Ok(())
}

/// Finalises QMP, and MPI if QMP initialised it.
pub fn finish() -> Result<()> {
    let (ours, others, owns_mpi) = state::running(|state| {
        let ours: Vec<Comm> = [state.default, state.job, state.allocated]
            .into_iter()
            .filter_map(|handle| state.comms.remove(handle).map(|comm| *comm.mpi))
            .collect();
        let owns_mpi = state.owns_mpi;
        let others = state.comms.drain().into_iter().map(|comm| *comm.mpi);
        let others: Vec<Comm> = others.collect();
        state.message_memories.drain();
        state.memories.drain();
        state.messages.drain();
        state.layout = LatticeLayout::NONE;
        state.running = false;
        Ok((ours, others, owns_mpi))
    })?;
    if mpi::phase() != MpiPhase::Running {
        return Ok(());
    }
    for comm in others.iter().chain(&ours) {
        gate::leave(*comm)?;
    }
    for comm in ours {
        comm.free()?;
    }
    if owns_mpi { mpi::finalize() } else { Ok(()) }
}

/// A communicator of all nodes, or of the first `processes` processes; the other processes exit here.
fn remaining(processes: Option<c_int>) -> Result<Comm> {
    let Some(count) = processes else {
        return Comm::WORLD.duplicate();
    };
    let nodes = Comm::WORLD.size()?;
    if count > nodes {
        let text = format!("-qmp-nmpi {count} was given to a job of {nodes} processes");
        return Err(QmpFailure::new(QmpStatus::INVALID_ARG, text));
    }
    let stays = Comm::WORLD.rank()? < count;
    let part = Comm::WORLD.split(c_int::from(!stays), 0)?;
    if stays {
        return part
            .ok_or_else(|| QmpFailure::new(QmpStatus::ERROR, "a communicator has lost this node"));
    }
    let done = part
        .map_or(Ok(()), Comm::free)
        .and_then(|()| mpi::finalize());
    std::process::exit(c_int::from(done.is_err()));
}

/// The number of the job that this node belongs to.
fn job_of(allocated: &QmpCommunicator, jobs: &[c_int]) -> Result<c_int> {
    if jobs.is_empty() {
        return Ok(0);
    }
    let line = [allocated.nodes];
    let (dims, here) = match &allocated.declared {
        Some(declared) => (&declared.dims[..], &declared.coordinates[..]),
        None => (&line[..], core::slice::from_ref(&allocated.node)),
    };
    let fits = |(jobs, dim): (&c_int, &c_int)| *jobs > 0 && dim % jobs == 0;
    if jobs.len() != dims.len() || !jobs.iter().zip(dims).all(fits) {
        let text = format!(
            "-qmp-job with {} was given for nodes in a grid of {}: as many numbers are needed, each a divisor",
            geometry::show(jobs),
            geometry::show(dims)
        );
        return Err(QmpFailure::new(QmpStatus::INVALID_TOPOLOGY, text));
    }
    let at = (0..jobs.len()).rev();
    Ok(at.fold(0, |number, axis| {
        number * jobs[axis] + here[axis] * jobs[axis] / dims[axis]
    }))
}

/// The grid of a job's nodes, if `-qmp-geom` and `-qmp-job` are given.
fn job_grid(options: &Options) -> Option<Vec<c_int>> {
    if options.geometry.is_empty() || options.jobs.is_empty() {
        return None;
    }
    let pairs = options.geometry.iter().zip(&options.jobs);
    Some(pairs.map(|(dim, jobs)| dim / jobs).collect())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The communicator of a handle; `None` is the default one.
pub fn comm(state: &mut QmpState, which: Option<usize>) -> Result<&mut QmpCommunicator> {
    let handle = which.unwrap_or(state.default);
    state
        .comms
        .get_mut(handle)
        .ok_or_else(|| not_a_communicator(handle))
}

fn not_a_communicator(handle: usize) -> QmpFailure {
    let text = match handle {
        0 => "NULL was given as a communicator; a node that splits one with a negative color gets NULL".to_owned(),
        _ => format!("{handle:#x} is no communicator of QMP, or one that was freed"),
    };
    QmpFailure::new(QmpStatus::INVALID_ARG, text)
}

/// Runs `query` on a communicator; `None` is the default one.
pub fn with_comm<R>(
    which: Option<usize>,
    query: impl FnOnce(&mut QmpCommunicator) -> Result<R>,
) -> Result<R> {
    state::running(|state| query(comm(state, which)?))
}

/// The MPI communicator of a communicator.
pub fn mpi_of(which: Option<usize>) -> Result<Comm> {
    with_comm(which, |comm| Ok(*comm.mpi))
}

/// `QMP_comm_split`
pub fn split(which: usize, color: c_int, key: c_int) -> Result<usize> {
    let parent = mpi_of(Some(which))?;
    let Some(new) = QmpCommunicator::split(parent, color, key)? else {
        return Ok(0);
    };
    let full = || QmpFailure::new(QmpStatus::NOMEM_ERR, "there are too many communicators");
    state::running(|state| state.comms.insert(new).ok_or_else(full))
}

/// `QMP_comm_free`
pub fn free(which: usize) -> Result<()> {
    let mpi = state::running(|state| {
        comm(state, Some(which))?;
        if [state.allocated, state.job, state.default].contains(&which) {
            let text = "this communicator is the allocated, the job's or the default one: set another first";
            return Err(QmpFailure::new(QmpStatus::INVALID_OP, text));
        }
        let comm = state.comms.remove(which);
        comm.map(|comm| *comm.mpi)
            .ok_or_else(|| not_a_communicator(which))
    })?;
    gate::leave(mpi)?;
    mpi.free()
}

/// `QMP_declare_logical_topology`, with the given map or that of the command line. If there is no map, neighbours in
/// the grid are placed on the same host if possible. A grid without axes declares nothing.
pub fn declare(which: Option<usize>, dims: &[c_int], map: Option<&[c_int]>) -> Result<()> {
    if dims.is_empty() {
        return Ok(());
    }
    let (mpi, linear, is_free) = state::running(|state| {
        let usual = state.options.logical_map.clone();
        let comm = comm(state, which)?;
        comm.must_be_undeclared()?;
        let linear = NodeGrid::linear(dims, map.unwrap_or(&usual), size(comm.nodes))?;
        Ok((*comm.mpi, linear, map.is_none() && usual.is_empty()))
    })?;
    let topology = if is_free {
        // No lattice is known yet: all faces have equal weight.
        linear.blocked_by_host(&vec![1; dims.len()], &NodeHosts::new(mpi.hosts()?))
    } else {
        linear
    };
    with_comm(which, |comm| comm.declare(topology))
}

/// `QMP_layout_grid`
pub fn layout(lattice: &[c_int]) -> Result<()> {
    if with_comm(None, |comm| Ok(comm.declared.is_none()))? {
        let topology = choose(lattice)?;
        with_comm(None, |comm| comm.declare(topology))?;
    }
    state::running(|state| {
        let grid = comm(state, None)?.topology()?.topology.dims().to_vec();
        let subgrid = to_c(&geometry::subgrid(lattice, &grid)?);
        let sites = subgrid
            .iter()
            .fold(1, |all: c_int, edge| all.saturating_mul(*edge));
        state.layout = LatticeLayout { subgrid, sites };
        Ok(())
    })
}

/// The grid for a lattice without a declared topology: that of the command line, otherwise the best one.
fn choose(lattice: &[c_int]) -> Result<NodeGrid> {
    let (mpi, nodes) = with_comm(None, |comm| Ok((*comm.mpi, size(comm.nodes))))?;
    let options = state::running(|state| Ok(state.options.clone()))?;
    let mut forced = job_grid(&options).unwrap_or(options.geometry);
    let product: usize = forced.iter().map(|dim| size(*dim)).product();
    if !forced.is_empty() && product == nodes {
        // Programs read as many axes of the grid as the lattice has.
        forced.resize(forced.len().max(lattice.len()), 1);
        let topology = NodeGrid::linear(&forced, &options.allocated_map, nodes)?;
        geometry::subgrid(lattice, topology.dims())?;
        return Ok(topology);
    }
    let hosts = NodeHosts::new(mpi.hosts()?);
    let grid = geometry::layout(lattice, nodes, &hosts)?;
    let sub = geometry::subgrid(lattice, &grid)?;
    let linear = NodeGrid::linear(&to_c(&grid), &options.logical_map, nodes)?;
    Ok(if options.logical_map.is_empty() {
        linear.blocked_by_host(&sub, &hosts)
    } else {
        linear
    })
}

fn size(number: c_int) -> usize {
    usize::try_from(number).unwrap_or_default()
}
