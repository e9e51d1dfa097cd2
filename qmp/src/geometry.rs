// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes grids of nodes: coordinates, neighbours, and the best grid for a lattice. No function has side effects.
//!
//! Node numbers never change; a topology maps them to coordinates in the grid, in one of two orders:
//!
//! - *linear*: axis 0, or the first axis of a map, runs fastest with the node number, as in libqmp;
//! - *blocked*: the nodes of a host form blocks of the grid. Without a map, blocked order is used if it reduces the
//!   surface between hosts.

mod layout;

use core::ffi::c_int;

use crate::status::{QmpFailure, QmpStatus, Result};
pub use layout::{layout, subgrid};

/// A grid of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeGrid {
    dims: Vec<usize>,
    order: NodeOrder,
}

/// The order of node numbers in the grid.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NodeOrder {
    /// The axes, fastest first.
    Linear(Vec<usize>),
    /// `nodes`: the nodes, sorted by host. `places`: the inverse of `nodes`, stored because programs look up the node
    /// of every site. `block`: the dimensions of a block.
    Blocked {
        nodes: Vec<usize>,
        places: Vec<usize>,
        block: Vec<usize>,
    },
}

/// The host of each node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeHosts {
    /// For each node a number that identifies its host.
    of: Vec<c_int>,
}

impl NodeHosts {
    /// Hosts of nodes; `of` has, for each node, a number that identifies its host.
    pub fn new(of: Vec<c_int>) -> Self {
        Self { of }
    }

    /// The nodes, sorted by host.
    fn in_order(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.of.len()).collect();
        nodes.sort_by_key(|node| self.of[*node]);
        nodes
    }

    /// The largest number of nodes per block that divides the number of nodes of every host. `None` if that is one node
    /// or all nodes: such blocks are useless.
    fn block_nodes(&self) -> Option<usize> {
        let nodes = self.in_order();
        let of_one_host = nodes.chunk_by(|one, next| self.of[*one] == self.of[*next]);
        let most = of_one_host.map(<[_]>::len).fold(0, greatest_divisor);
        (1 < most && most < nodes.len()).then_some(most)
    }
}

fn greatest_divisor(one: usize, other: usize) -> usize {
    if other == 0 {
        one
    } else {
        greatest_divisor(other, one % other)
    }
}

impl NodeGrid {
    /// A grid in linear order: the axes of `map` run fastest, in the order of `map`, then the other axes.
    pub fn linear(dims: &[c_int], map: &[c_int], nodes: usize) -> Result<Self> {
        let dims = positive(dims, "dimensions of the grid")?;
        let product = dims
            .iter()
            .try_fold(1usize, |all, dim| all.checked_mul(*dim));
        if product != Some(nodes) {
            let text = format!(
                "a grid of {} was given for {nodes} nodes; the product must be the number of nodes",
                show(&dims)
            );
            return Err(QmpFailure::new(QmpStatus::INVALID_TOPOLOGY, text));
        }
        let order = NodeOrder::Linear(whole_map(map, dims.len())?);
        Ok(Self { dims, order })
    }

    /// This grid, in blocked order if that reduces the surface between hosts. `sub`: the dimensions of each node's part
    /// of the lattice.
    pub fn blocked_by_host(self, sub: &[usize], hosts: &NodeHosts) -> Self {
        let block = hosts
            .block_nodes()
            .and_then(|each| best_block(&self.dims, sub, each));
        let Some((block, _)) = block else {
            return self;
        };
        let nodes = hosts.in_order();
        let mut places = vec![0; nodes.len()];
        for (place, node) in nodes.iter().enumerate() {
            places[*node] = place;
        }
        let blocked = Self {
            dims: self.dims.clone(),
            order: NodeOrder::Blocked {
                places,
                nodes,
                block,
            },
        };
        if blocked.crossing(sub, hosts) < self.crossing(sub, hosts) {
            blocked
        } else {
            self
        }
    }

    /// The surface of the nodes' parts that lies between hosts, in sites.
    fn crossing(&self, sub: &[usize], hosts: &NodeHosts) -> u128 {
        let volume: u128 = sub.iter().map(|edge| *edge as u128).product();
        let of_place = |place: usize| {
            let at = split(place, &self.dims);
            let host = |at: &[usize]| hosts.of[self.node(&to_c(at))];
            let here = host(&at);
            let crosses = |axis: &usize| {
                let mut above = at.clone();
                above[*axis] += 1;
                host(&above) != here
            };
            let axes = (0..self.dims.len()).filter(crosses);
            axes.map(|axis| 2 * volume / sub[axis] as u128)
                .sum::<u128>()
        };
        (0..self.nodes()).map(of_place).sum()
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.dims.iter().product()
    }

    /// The coordinates of a node; `None` if there is no such node.
    pub fn coordinates(&self, node: usize) -> Option<Vec<usize>> {
        if node >= self.nodes() {
            return None;
        }
        Some(match &self.order {
            NodeOrder::Linear(axes) => {
                let mut rest = node;
                let mut coordinates = vec![0; self.dims.len()];
                for &axis in axes {
                    coordinates[axis] = rest % self.dims[axis];
                    rest /= self.dims[axis];
                }
                coordinates
            }
            NodeOrder::Blocked { places, block, .. } => {
                let place = places[node];
                let each: usize = block.iter().product();
                let grid = quotients(&self.dims, block);
                let (of_host, inside) = (split(place / each, &grid), split(place % each, block));
                (0..self.dims.len())
                    .map(|axis| of_host[axis] * block[axis] + inside[axis])
                    .collect()
            }
        })
    }

    /// The node at given coordinates, which are reduced modulo the dimensions: the grid is a torus.
    pub fn node(&self, coordinates: &[c_int]) -> usize {
        let wrap = |(coordinate, dim): (&c_int, &usize)| {
            let dim = i64::try_from(*dim).unwrap_or(i64::MAX);
            usize::try_from(i64::from(*coordinate).rem_euclid(dim)).unwrap_or_default()
        };
        let at: Vec<usize> = coordinates.iter().zip(&self.dims).map(wrap).collect();
        match &self.order {
            NodeOrder::Linear(axes) => axes
                .iter()
                .rev()
                .fold(0, |number, &axis| number * self.dims[axis] + at[axis]),
            NodeOrder::Blocked { nodes, block, .. } => {
                let grid = quotients(&self.dims, block);
                let each: usize = block.iter().product();
                let inside: Vec<usize> = at.iter().zip(block).map(|(a, b)| a % b).collect();
                nodes[join(&quotients(&at, block), &grid) * each + join(&inside, block)]
            }
        }
    }

    /// The neighbour of a node, one step up (`forward`) or down along an axis.
    pub fn neighbour(&self, node: usize, axis: usize, forward: bool) -> Option<usize> {
        let mut at: Vec<c_int> = to_c(&self.coordinates(node)?);
        *at.get_mut(axis)? += if forward { 1 } else { -1 };
        Some(self.node(&at))
    }
}

/// Converts to C's `int`.
pub fn to_c(numbers: &[usize]) -> Vec<c_int> {
    let fit = |number: &usize| c_int::try_from(*number).unwrap_or(c_int::MAX);
    numbers.iter().map(fit).collect()
}

/// The surface of one part towards other parts, in sites. An axis that is not divided has no such surface.
fn surface(part: &[usize], grid: &[usize]) -> u128 {
    let volume: u128 = part.iter().map(|edge| *edge as u128).product();
    let divided = part.iter().zip(grid).filter(|(_, parts)| **parts > 1);
    divided.map(|(edge, _)| 2 * volume / *edge as u128).sum()
}

/// The block of `each` nodes that divides the grid with the least surface, and that surface.
fn best_block(grid: &[usize], sub: &[usize], each: usize) -> Option<(Vec<usize>, u128)> {
    let mut best: Option<(Vec<usize>, u128)> = None;
    let mut block = vec![1; grid.len()];
    blocks(grid, &mut block, 0, each, &mut |block| {
        let part: Vec<usize> = block.iter().zip(sub).map(|(b, s)| b * s).collect();
        let cost = surface(&part, &quotients(grid, block));
        if best.as_ref().is_none_or(|(_, least)| cost < *least) {
            best = Some((block.to_vec(), cost));
        }
    });
    best
}

fn blocks(
    grid: &[usize],
    block: &mut [usize],
    axis: usize,
    left: usize,
    found: &mut dyn FnMut(&[usize]),
) {
    if axis == grid.len() {
        if left == 1 {
            found(block);
        }
        return;
    }
    // Blocks with large first dimensions are tried first: in these, consecutive nodes stay neighbours.
    for part in (1..=grid[axis].min(left)).rev() {
        if left.is_multiple_of(part) && grid[axis].is_multiple_of(part) {
            block[axis] = part;
            blocks(grid, block, axis + 1, left / part, found);
        }
    }
}

fn quotients(whole: &[usize], part: &[usize]) -> Vec<usize> {
    whole.iter().zip(part).map(|(w, p)| w / p).collect()
}

/// Coordinates of the place with a number; the first axis runs fastest.
fn split(number: usize, dims: &[usize]) -> Vec<usize> {
    let mut rest = number;
    let mut digit = |dim: &usize| {
        let digit = rest % dim;
        rest /= dim;
        digit
    };
    dims.iter().map(&mut digit).collect()
}

fn join(at: &[usize], dims: &[usize]) -> usize {
    at.iter()
        .zip(dims)
        .rev()
        .fold(0, |number, (coordinate, dim)| number * dim + coordinate)
}

fn positive(numbers: &[c_int], what: &str) -> Result<Vec<usize>> {
    if numbers.is_empty() || numbers.len() > AXES_MAX {
        let text = format!(
            "{} {what} were given, expected 1 to {AXES_MAX}",
            numbers.len()
        );
        return Err(QmpFailure::new(QmpStatus::INVALID_ARG, text));
    }
    let check = |number: &c_int| usize::try_from(*number).ok().filter(|number| *number > 0);
    let all: Option<Vec<usize>> = numbers.iter().map(check).collect();
    all.ok_or_else(|| {
        let text = format!(
            "the {what} were given as {}, each must be at least 1",
            show(numbers)
        );
        QmpFailure::new(QmpStatus::INVALID_ARG, text)
    })
}

/// A map, completed with the axes that it does not name.
fn whole_map(map: &[c_int], axes: usize) -> Result<Vec<usize>> {
    let mut whole: Vec<usize> = Vec::new();
    for entry in map {
        match usize::try_from(*entry) {
            Ok(axis) if axis < axes && !whole.contains(&axis) => whole.push(axis),
            _ => {
                let text = format!(
                    "the map {map:?} of a grid with {axes} axes must name each axis at most once, counted from 0"
                );
                return Err(QmpFailure::new(QmpStatus::INVALID_TOPOLOGY, text));
            }
        }
    }
    let rest: Vec<usize> = (0..axes).filter(|axis| !whole.contains(axis)).collect();
    whole.extend(rest);
    Ok(whole)
}

/// Formats dimensions, like `4x2x2`.
pub fn show(dims: &[impl ToString]) -> String {
    dims.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("x")
}

/// Maximum number of axes.
pub const AXES_MAX: usize = 32;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(super) fn one_host(nodes: usize) -> NodeHosts {
        NodeHosts::new(vec![0; nodes])
    }

    /// `hosts` hosts, each with `each` nodes of consecutive numbers.
    pub(super) fn hosts(hosts: c_int, each: usize) -> NodeHosts {
        let all = (0..hosts).flat_map(|host| vec![host; each]);
        NodeHosts::new(all.collect())
    }

    pub(super) fn plain(dims: &[c_int]) -> NodeGrid {
        let nodes: c_int = dims.iter().product();
        NodeGrid::linear(dims, &[], usize::try_from(nodes).unwrap()).unwrap()
    }

    pub(super) fn is_bijection(topology: &NodeGrid) {
        for node in 0..topology.nodes() {
            let at = topology.coordinates(node).unwrap();
            assert!(at.iter().zip(topology.dims()).all(|(at, dim)| at < dim));
            assert_eq!(topology.node(&to_c(&at)), node);
        }
        assert_eq!(topology.coordinates(topology.nodes()), None);
    }

    #[test]
    fn qmp_058_qmp_064_axis_0_runs_fastest_with_the_node_number() {
        let grid = NodeGrid::linear(&[2, 3, 4], &[], 24).unwrap();
        assert_eq!(grid.coordinates(1).unwrap(), [1, 0, 0]);
        assert_eq!(grid.coordinates(2).unwrap(), [0, 1, 0]);
        assert_eq!(grid.coordinates(23).unwrap(), [1, 2, 3]);
        is_bijection(&grid);
    }

    #[test]
    fn qmpl_024_the_first_axis_of_a_map_runs_fastest_and_axes_it_lacks_come_last() {
        let grid = NodeGrid::linear(&[2, 3, 4], &[2], 24).unwrap();
        assert_eq!(grid.coordinates(1).unwrap(), [0, 0, 1]);
        assert_eq!(grid.coordinates(4).unwrap(), [1, 0, 0]);
        is_bijection(&grid);
        is_bijection(&NodeGrid::linear(&[2, 3, 4], &[1, 0, 2], 24).unwrap());
    }

    #[test]
    fn qmp_038_invalid_grids_and_maps_are_refused() {
        let code =
            |dims: &[c_int], map: &[c_int]| NodeGrid::linear(dims, map, 8).unwrap_err().status;
        assert_eq!(code(&[2, 2], &[]), QmpStatus::INVALID_TOPOLOGY);
        assert_eq!(code(&[i32::MAX; 9], &[]), QmpStatus::INVALID_TOPOLOGY);
        assert_eq!(code(&[2, 0], &[]), QmpStatus::INVALID_ARG);
        assert_eq!(code(&[-2, -4], &[]), QmpStatus::INVALID_ARG);
        assert_eq!(code(&[], &[]), QmpStatus::INVALID_ARG);
        assert_eq!(code(&[8], &[1]), QmpStatus::INVALID_TOPOLOGY);
        assert_eq!(code(&[2, 4], &[1, 1]), QmpStatus::INVALID_TOPOLOGY);
        assert_eq!(code(&[2, 4], &[-1]), QmpStatus::INVALID_TOPOLOGY);
    }

    #[test]
    fn neighbours_wrap_around_the_torus() {
        let grid = NodeGrid::linear(&[4, 2], &[], 8).unwrap();
        assert_eq!(grid.neighbour(0, 0, false), Some(3));
        assert_eq!(grid.neighbour(3, 0, true), Some(0));
        assert_eq!(grid.neighbour(1, 1, true), grid.neighbour(1, 1, false));
        assert_eq!(grid.neighbour(0, 2, true), None);
        assert_eq!(grid.node(&[-1, 5]), grid.node(&[3, 1]));
    }

    #[test]
    fn blocks_of_hosts_minimize_their_surface() {
        let topology = plain(&[8, 8]).blocked_by_host(&[8, 8], &hosts(16, 4));
        is_bijection(&topology);
        assert_eq!(topology.coordinates(0).unwrap(), [0, 0]);
        assert_eq!(topology.coordinates(1).unwrap(), [1, 0]);
        assert_eq!(topology.coordinates(2).unwrap(), [0, 1]);
        assert_eq!(topology.coordinates(4).unwrap(), [2, 0]);
    }

    #[test]
    fn qmp_120_nodes_stay_linear_if_blocks_are_no_better() {
        let cases: [(&[c_int], &[c_int]); 6] = [
            (&[2, 2], &[0, 0, 0, 0]),
            (&[2, 2], &[0, 1, 2, 3]),
            (&[2, 2], &[0, 0, 0, 1]),
            (&[2, 2], &[0, 0, 1, 1]),
            (&[2, 2, 2], &[0, 0, 0, 0, 1, 1, 1, 1]),
            (&[1, 1, 1, 6], &[0, 0, 0, 1, 1, 1]),
        ];
        for (dims, host_of) in cases {
            let topology = plain(dims)
                .blocked_by_host(&vec![4; dims.len()], &NodeHosts::new(host_of.to_vec()));
            assert_eq!(topology, plain(dims), "{dims:?} {host_of:?}");
        }
    }

    #[test]
    fn hosts_with_alternating_nodes_form_blocks() {
        let hosts = NodeHosts::new((0..12).map(|node| node % 2).collect());
        let topology = plain(&[3, 2, 2]).blocked_by_host(&[4; 3], &hosts);
        is_bijection(&topology);
        for node in 0..12 {
            assert_eq!(topology.coordinates(node).unwrap()[2], node % 2);
        }
    }

    #[test]
    fn hosts_of_different_size_form_several_blocks_each() {
        let hosts = NodeHosts::new(vec![0, 1, 2, 0, 1, 2, 0, 1, 0, 1]);
        let topology = plain(&[5, 2]).blocked_by_host(&[1, 1], &hosts);
        is_bijection(&topology);
        assert_eq!(plain(&[5, 2]).crossing(&[1, 1], &hosts), 32);
        assert_eq!(topology.crossing(&[1, 1], &hosts), 12);
    }

    /// Compares the surface between hosts in linear order with that of the declared grid, for shapes that machines
    /// have.
    #[test]
    fn qmp_122_a_declared_grid_has_less_traffic_between_hosts() {
        let alternate = NodeHosts::new((0..12).map(|node| node % 2).collect());
        let cases: [(&[c_int], NodeHosts, u128, u128); 5] = [
            // The first two axes lie completely within a host: blocks gain nothing, and the order stays linear.
            (&[4, 4, 4, 8], hosts(32, 16), 2048, 2048),
            (&[8, 8], hosts(16, 4), 160, 128),
            (&[8, 8, 8], hosts(8, 64), 1024, 768),
            (&[8, 8, 8], hosts(64, 8), 2048, 1536),
            (&[3, 2, 2], alternate, 40, 24),
        ];
        for (dims, hosts, linear, declared) in cases {
            let part = vec![1; dims.len()];
            let found = plain(dims).blocked_by_host(&part, &hosts);
            is_bijection(&found);
            let costs = (
                plain(dims).crossing(&part, &hosts),
                found.crossing(&part, &hosts),
            );
            assert_eq!(costs, (linear, declared), "{dims:?}");
        }
    }
}
