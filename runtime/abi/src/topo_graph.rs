// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs and distributed graphs (MPI 5.0 sections 8.5.3 to 8.5.5).

use core::ffi::c_int;
use std::sync::Arc;

use runtime::topology::{self, DistGraph, Graph, Topology};
use runtime::{CollectiveCall, Comm, collective};

use crate::args::{Array, GraphWeights, OutArg, OutArray, OutWeights};
use crate::comm::{any, int, of};
use crate::comm_agree::{AgreementLane, complete};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Info};
use crate::info::hints;
use crate::pt2pt::bad_rank;
use crate::topo::{arrange, no_topology, place};

/// `MPI_Graph_create`.
pub fn graph_create(
    mpi: Mpi,
    comm: MPI_Comm,
    index: &[c_int],
    edges: Array<'_, c_int>,
    _reorder: c_int,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = of(mpi, comm)?.for_one_call();
    let graph = graph(index, edges, parent.size())?;
    let nodes = graph.ends().len();
    if nodes == 0 {
        newcomm.set(MPI_Comm::NULL);
        return Ok(());
    }
    let ranks = u32::try_from(nodes).unwrap_or(u32::MAX);
    newcomm.set(arrange(mpi, comm, &parent, ranks, Topology::Graph(graph))?);
    Ok(())
}

/// `MPI_Graph_map`.
pub fn graph_map(
    mpi: Mpi,
    comm: MPI_Comm,
    index: &[c_int],
    edges: Array<'_, c_int>,
    newrank: OutArg<'_, c_int>,
) -> Result<()> {
    let parent = of(mpi, comm)?;
    let nodes = graph(index, edges, parent.size())?.ends().len();
    newrank.set(place(&parent, u32::try_from(nodes).unwrap_or(u32::MAX)));
    Ok(())
}

/// `MPI_Graphdims_get`.
pub fn graphdims_get(
    mpi: Mpi,
    comm: MPI_Comm,
    nnodes: OutArg<'_, c_int>,
    nedges: OutArg<'_, c_int>,
) -> Result<()> {
    with_graph(mpi, comm, |graph| {
        nnodes.set(int(graph.ends().len()));
        nedges.set(int(graph.edges().len()));
        Ok(())
    })
}

/// `MPI_Graph_get`.
pub fn graph_get(
    mpi: Mpi,
    comm: MPI_Comm,
    index: OutArray<'_, c_int>,
    edges: OutArray<'_, c_int>,
) -> Result<()> {
    with_graph(mpi, comm, |graph| {
        index.fill(graph.ends().iter().copied().map(int));
        edges.fill(graph.edges().iter().copied().map(int));
        Ok(())
    })
}

/// `MPI_Graph_neighbors_count`.
pub fn graph_neighbors_count(
    mpi: Mpi,
    comm: MPI_Comm,
    rank: c_int,
    count: OutArg<'_, c_int>,
) -> Result<()> {
    with_graph(mpi, comm, |graph| {
        count.set(int(graph.of(node(graph, rank)?).len()));
        Ok(())
    })
}

/// `MPI_Graph_neighbors`.
pub fn graph_neighbors(
    mpi: Mpi,
    comm: MPI_Comm,
    rank: c_int,
    neighbors: OutArray<'_, c_int>,
) -> Result<()> {
    with_graph(mpi, comm, |graph| {
        neighbors.fill(graph.of(node(graph, rank)?).iter().copied().map(int));
        Ok(())
    })
}

/// `MPI_Dist_graph_create_adjacent`: every process passes its own edges.
pub fn dist_graph_create_adjacent(
    mpi: Mpi,
    comm: MPI_Comm,
    sources: &[c_int],
    sourceweights: GraphWeights<'_>,
    destinations: &[c_int],
    destweights: GraphWeights<'_>,
    info: MPI_Info,
    _reorder: c_int,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = of(mpi, comm)?.for_one_call();
    hints(info)?;
    let of_sources = sourceweights.slice(sources.len())?;
    let of_destinations = destweights.slice(destinations.len())?;
    let weights = match (of_sources, of_destinations) {
        (None, None) => None,
        (of_sources, of_destinations) => Some(topology::EdgeWeights {
            sources: weights_of("sourceweights", of_sources, sources)?,
            destinations: weights_of("destweights", of_destinations, destinations)?,
        }),
    };
    let graph = DistGraph {
        sources: ranks("source", sources, parent.size())?,
        destinations: ranks("destination", destinations, parent.size())?,
        weights,
    };
    newcomm.set(arrange_all(mpi, comm, &parent, graph)?);
    Ok(())
}

/// `MPI_Dist_graph_create`: every process may pass any edges of the graph. Each edge is sent to the two processes that
/// it connects.
pub fn dist_graph_create(
    mpi: Mpi,
    comm: MPI_Comm,
    sources: &[c_int],
    degrees: &[c_int],
    destinations: Array<'_, c_int>,
    weights: GraphWeights<'_>,
    info: MPI_Info,
    _reorder: c_int,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = of(mpi, comm)?.for_one_call();
    hints(info)?;
    let count = edge_count(degrees)?;
    let destinations = ranks("destination", destinations.slice(count)?, parent.size())?;
    let sources = ranks("source", sources, parent.size())?;
    let weights = weights.slice(count)?;
    let repeated = sources
        .iter()
        .zip(degrees)
        .flat_map(|(source, degree)| (0..*degree).map(|_| *source));
    let mut outgoing = vec![Vec::new(); parent.size() as usize];
    for (at, (source, destination)) in repeated.zip(destinations).enumerate() {
        let weight = weights.map_or(1, |weights| weights[at]).cast_unsigned();
        outgoing[source as usize].extend([OUTGOING, destination, weight]);
        outgoing[destination as usize].extend([INCOMING, source, weight]);
    }
    let graph = DistGraph::default();
    let graph = collect(
        graph,
        &exchange_edges(mpi, &parent, outgoing)?,
        weights.is_some(),
    );
    newcomm.set(arrange_all(mpi, comm, &parent, graph)?);
    Ok(())
}

/// `MPI_Dist_graph_neighbors_count`.
pub fn dist_graph_neighbors_count(
    mpi: Mpi,
    comm: MPI_Comm,
    indegree: OutArg<'_, c_int>,
    outdegree: OutArg<'_, c_int>,
    weighted: OutArg<'_, c_int>,
) -> Result<()> {
    with_dist_graph(mpi, comm, |graph| {
        indegree.set(int(graph.sources.len()));
        outdegree.set(int(graph.destinations.len()));
        weighted.set(c_int::from(graph.weights.is_some()));
        Ok(())
    })
}

/// `MPI_Dist_graph_neighbors`: writes as many neighbors as fit in the arrays.
pub fn dist_graph_neighbors(
    mpi: Mpi,
    comm: MPI_Comm,
    sources: OutArray<'_, c_int>,
    sourceweights: OutWeights<'_>,
    destinations: OutArray<'_, c_int>,
    destweights: OutWeights<'_>,
) -> Result<()> {
    with_dist_graph(mpi, comm, |graph| {
        sources.fill(graph.sources.iter().copied().map(int));
        destinations.fill(graph.destinations.iter().copied().map(int));
        let Some(weights) = &graph.weights else {
            return Ok(());
        };
        let in_count = sources.len().min(weights.sources.len());
        if let Some(out) = sourceweights.slice(in_count)? {
            out.fill(weights.sources.iter().copied());
        }
        let out_count = destinations.len().min(weights.destinations.len());
        if let Some(out) = destweights.slice(out_count)? {
            out.fill(weights.destinations.iter().copied());
        }
        Ok(())
    })
}

/// Sends `outgoing[rank]` to each rank of an intracommunicator; returns the words that all ranks sent to this rank, in
/// rank order.
fn exchange_edges(mpi: Mpi, comm: &Comm, outgoing: Vec<Vec<u32>>) -> Result<Vec<u32>> {
    let me = comm.rank as usize;
    let out: Vec<u8> = outgoing
        .iter()
        .map(|words| u8::from(!words.is_empty()))
        .collect();
    let mut sends_to_me = out.clone();
    CollectiveCall::run(mpi, comm, async |call| {
        collective::alltoall_bytes(call, &out, &mut sends_to_me).await
    })?;
    let lane = AgreementLane::of(comm, 0);
    let mut started = Vec::new();
    for (peer, (to, words)) in comm.group.peers().zip(outgoing.iter().enumerate()) {
        if to != me && !words.is_empty() {
            started.push(lane.start_send(mpi, peer, words)?);
        }
    }
    let mut incoming = Vec::new();
    for (from, peer) in comm.group.peers().enumerate() {
        if from == me {
            incoming.extend_from_slice(&outgoing[me]);
        } else if sends_to_me[from] != 0 {
            incoming.extend(lane.receive(mpi, peer)?);
        }
    }
    for one in started {
        complete(mpi, one)?;
    }
    Ok(incoming)
}

/// Adds the received edges to the graph of this process.
fn collect(mut graph: DistGraph, incoming: &[u32], weighted: bool) -> DistGraph {
    let mut weights = topology::EdgeWeights::default();
    for [which, rank, weight] in incoming.as_chunks::<3>().0 {
        let weight = weight.cast_signed();
        if *which == INCOMING {
            graph.sources.push(*rank);
            weights.sources.push(weight);
        } else {
            graph.destinations.push(*rank);
            weights.destinations.push(weight);
        }
    }
    graph.weights = weighted.then_some(weights);
    graph
}

fn arrange_all(mpi: Mpi, comm: MPI_Comm, parent: &Comm, graph: DistGraph) -> Result<MPI_Comm> {
    arrange(mpi, comm, parent, parent.size(), Topology::DistGraph(graph))
}

fn weights_of(name: &str, weights: Option<&[c_int]>, edges: &[c_int]) -> Result<Vec<c_int>> {
    match weights {
        Some(weights) => Ok(weights.to_vec()),
        None if edges.is_empty() => Ok(Vec::new()),
        None => {
            let detail = format!("`{name}` is MPI_UNWEIGHTED, while the other edges have weights");
            Err(Error::new(ErrorClass::ARG, detail))
        }
    }
}

fn ranks(which: &str, given: &[c_int], size: u32) -> Result<Vec<u32>> {
    let check = |rank: &c_int| {
        let found = u32::try_from(*rank).ok().filter(|rank| *rank < size);
        found.ok_or_else(|| bad_rank(which, *rank, size))
    };
    given.iter().map(check).collect()
}

fn edge_count(degrees: &[c_int]) -> Result<usize> {
    let mut count = 0usize;
    for (at, degree) in degrees.iter().enumerate() {
        let degree = usize::try_from(*degree).map_err(|_| {
            let detail = format!("degree number {at} is {degree}, it must not be negative");
            Error::new(ErrorClass::ARG, detail)
        })?;
        count += degree;
    }
    Ok(count)
}

fn graph(index: &[c_int], edges: Array<'_, c_int>, size: u32) -> Result<Graph> {
    let bad = |detail: String| Error::new(ErrorClass::ARG, detail);
    if index.len() > size as usize {
        let nodes = index.len();
        let s = if size == 1 { "" } else { "s" };
        return Err(bad(format!(
            "the graph has {nodes} nodes, the communicator has {size} rank{s}"
        )));
    }
    let mut ends = Vec::with_capacity(index.len());
    for (at, end) in index.iter().enumerate() {
        let last = ends.last().copied().unwrap_or(0);
        let good = u32::try_from(*end).ok().filter(|end| *end >= last);
        ends.push(good.ok_or_else(|| {
            bad(format!(
                "`index` has {end} at {at}, expected {last} or more: it counts edges up"
            ))
        })?);
    }
    let nodes = u32::try_from(ends.len()).unwrap_or(u32::MAX);
    let given = edges.slice(ends.last().copied().unwrap_or(0) as usize)?;
    let mut inside = Vec::with_capacity(given.len());
    for (at, edge) in given.iter().enumerate() {
        let good = u32::try_from(*edge).ok().filter(|edge| *edge < nodes);
        inside.push(good.ok_or_else(|| {
            bad(format!(
                "`edges` has {edge} at {at}, the graph has {nodes} nodes, counted from 0"
            ))
        })?);
    }
    Graph::new(ends, inside).ok_or_else(|| bad("the graph is not consistent".to_owned()))
}

fn node(graph: &Graph, rank: c_int) -> Result<u32> {
    let nodes = u32::try_from(graph.ends().len()).unwrap_or(u32::MAX);
    let found = u32::try_from(rank).ok().filter(|rank| *rank < nodes);
    found.ok_or_else(|| bad_rank("the", rank, nodes))
}

fn with_graph(mpi: Mpi, comm: MPI_Comm, inspect: impl FnOnce(&Graph) -> Result<()>) -> Result<()> {
    match topology_of(mpi, comm)?.as_deref() {
        Some(Topology::Graph(graph)) => inspect(graph),
        other => Err(no_topology(other, "a graph topology")),
    }
}

fn with_dist_graph(
    mpi: Mpi,
    comm: MPI_Comm,
    inspect: impl FnOnce(&DistGraph) -> Result<()>,
) -> Result<()> {
    match topology_of(mpi, comm)?.as_deref() {
        Some(Topology::DistGraph(graph)) => inspect(graph),
        other => Err(no_topology(other, "a distributed graph topology")),
    }
}

fn topology_of(mpi: Mpi, comm: MPI_Comm) -> Result<Option<Arc<Topology>>> {
    Ok(any(mpi, comm)?.topology)
}

/// An edge in a message is three words: direction, rank of the other process, weight. This is the direction of an edge
/// that leads out of the process that receives the message.
const OUTGOING: u32 = 0;
/// The direction of an edge that leads into the process that receives the message.
const INCOMING: u32 = 1;
