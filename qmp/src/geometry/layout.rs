// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the best grid of nodes for a lattice, and the part of the lattice on each node.

use core::ffi::c_int;

use super::{AXES_MAX, NodeHosts, best_block, positive, quotients, show, surface};
use crate::status::{QmpFailure, QmpStatus, Result};

/// The best of all grids that divide a lattice evenly. The criteria, the most important first:
///
/// 1. no even edge of the lattice becomes odd, since codes with even-odd sites need even edges;
/// 2. compact parts: the smallest surface over all sides;
/// 3. the smallest surface between nodes, then between hosts;
/// 4. later axes are divided more, since memory is contiguous along the first ones.
pub fn layout(lattice: &[c_int], nodes: usize, hosts: &NodeHosts) -> Result<Vec<usize>> {
    let lattice = positive(lattice, "dimensions of the lattice")?;
    let mut best = BestGrid {
        lattice: &lattice,
        each: hosts.block_nodes(),
        found: None,
    };
    divisions(&lattice, nodes, &mut |grid| {
        best.consider(grid);
        true
    });
    let found = best.found.map(|(.., grid)| grid);
    found.ok_or_else(|| QmpFailure::new(QmpStatus::INVALID_TOPOLOGY, why_not(&lattice, nodes)))
}

/// The dimensions of each node's part of a lattice that a grid divides. If the grid has fewer axes than the lattice,
/// each missing axis counts as one node.
pub fn subgrid(lattice: &[c_int], grid: &[usize]) -> Result<Vec<usize>> {
    let lattice = positive(lattice, "dimensions of the lattice")?;
    if grid.len() > lattice.len() {
        let text = format!(
            "a lattice of {} has fewer axes than the grid {} of nodes",
            show(&lattice),
            show(grid)
        );
        return Err(QmpFailure::new(QmpStatus::INVALID_TOPOLOGY, text));
    }
    let dim = |axis: usize| grid.get(axis).copied().unwrap_or(1);
    if (0..lattice.len()).any(|axis| lattice[axis] % dim(axis) != 0) {
        let text = format!(
            "a lattice of {} cannot be divided evenly by the grid {} of nodes",
            show(&lattice),
            show(grid)
        );
        return Err(QmpFailure::new(QmpStatus::INVALID_TOPOLOGY, text));
    }
    Ok((0..lattice.len())
        .map(|axis| lattice[axis] / dim(axis))
        .collect())
}

/// Calls `visit` with every grid of `nodes` nodes that divides the lattice. Grids that divide the first axes least come
/// first. Ends and returns false as soon as `visit` returns false.
fn divisions(lattice: &[usize], nodes: usize, visit: &mut dyn FnMut(&[usize]) -> bool) -> bool {
    let mut grid = [1; AXES_MAX];
    divide(lattice, &mut grid[..lattice.len()], 0, nodes, visit)
}

fn divide(
    lattice: &[usize],
    grid: &mut [usize],
    axis: usize,
    left: usize,
    visit: &mut dyn FnMut(&[usize]) -> bool,
) -> bool {
    let Some(edge) = lattice.get(axis) else {
        return left != 1 || visit(grid);
    };
    let fits = |part: &usize| left.is_multiple_of(*part) && edge.is_multiple_of(*part);
    // The last axis takes all remaining nodes.
    let first = if axis + 1 == lattice.len() { left } else { 1 };
    for part in (first..=left.min(*edge)).filter(fits) {
        grid[axis] = part;
        if !divide(lattice, grid, axis + 1, left / part, visit) {
            return false;
        }
    }
    true
}

/// Criteria, of which the smallest value is best: whether even edges become odd, surface over all sides of a part,
/// surface between nodes.
type Shape = (bool, u128, u128);

/// The search for the grid with the smallest surface.
struct BestGrid<'a> {
    lattice: &'a [usize],
    /// Nodes per block, if the nodes of a host can form blocks of the grid; `None`: blocks are useless.
    each: Option<usize>,
    /// The best grid so far: the shape of its parts, its surface between hosts, and the grid itself.
    found: Option<(Shape, u128, Vec<usize>)>,
}

impl BestGrid<'_> {
    fn consider(&mut self, grid: &[usize]) {
        let sub = quotients(self.lattice, grid);
        let mut edges = self.lattice.iter().zip(&sub);
        let loses_evenness = edges.any(|(whole, part)| whole % 2 == 0 && part % 2 != 0);
        // For a given volume, compact parts have the least surface over all sides.
        let all_sides = surface(&sub, &vec![2; sub.len()]);
        let shape = (loses_evenness, all_sides, surface(&sub, grid));
        if self.found.as_ref().is_some_and(|(best, ..)| *best < shape) {
            return;
        }
        let block = self.each.and_then(|each| best_block(grid, &sub, each));
        let between_hosts = block.map_or(0, |(_, between)| between);
        let is_better = |best: &(Shape, u128, _)| (shape, between_hosts) < (best.0, best.1);
        // Grids come sorted by the first axes, so the first of several equally good grids divides later axes more.
        if self.found.as_ref().is_none_or(is_better) {
            self.found = Some((shape, between_hosts, grid.to_vec()));
        }
    }
}

/// The error text for a lattice that `nodes` nodes cannot divide evenly, with the nearest numbers of nodes that can.
fn why_not(lattice: &[usize], nodes: usize) -> String {
    let does = |count: &usize| !divisions(lattice, *count, &mut |_| false);
    let below = (1..nodes).rev().take(MAX_DISTANCE).find(does);
    let above = (nodes..=usize::MAX).skip(1).take(MAX_DISTANCE).find(does);
    let near: Vec<_> = below.iter().chain(&above).map(usize::to_string).collect();
    let instead = match &near[..] {
        [] => String::new(),
        some => format!("; {} nodes would do", some.join(" or ")),
    };
    format!(
        "a lattice of {} cannot be divided evenly among {nodes} nodes{instead}",
        show(lattice)
    )
}

/// Maximum difference between the given number of nodes and a suggested one.
const MAX_DISTANCE: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::{hosts, is_bijection, one_host, plain};
    use crate::geometry::to_c;

    #[test]
    fn qmp_065_a_layout_has_square_parts_with_little_surface() {
        let grid = |lattice: &[c_int], nodes| layout(lattice, nodes, &one_host(nodes)).unwrap();
        assert_eq!(grid(&[8, 8, 8, 8], 1), [1, 1, 1, 1]);
        assert_eq!(grid(&[8, 8, 8, 8], 2), [1, 1, 1, 2]);
        assert_eq!(grid(&[4, 4, 4, 64], 8), [1, 1, 1, 8]);
        // 3744 sites of surface; the document's example, 1x4x4x8, has 4032.
        assert_eq!(grid(&[24, 24, 24, 32], 128), [2, 4, 4, 4]);
        assert_eq!(grid(&[6, 4], 6), [3, 2]);
    }

    #[test]
    fn edges_of_parts_stay_even_if_possible() {
        let grid = |lattice: &[c_int], nodes| layout(lattice, nodes, &one_host(nodes)).unwrap();
        assert_eq!(grid(&[4, 4, 4, 4], 16), [2, 2, 2, 2]);
        assert_eq!(grid(&[8, 8, 8, 8], 16), [2, 2, 2, 2]);
        // Parts of 3x4 would be squarer than those of 6x2, but have an odd edge.
        assert_eq!(grid(&[12, 12], 12), [2, 6]);
        // An edge that is odd in the whole lattice may be odd in the parts.
        assert_eq!(grid(&[4, 4, 3], 4), [2, 2, 1]);
        // No grid gives parts in which all edges are even.
        assert_eq!(grid(&[12, 12, 12], 48), [3, 4, 4]);
    }

    #[test]
    fn qmp_122_among_equal_grids_the_one_with_least_host_traffic_is_taken() {
        let (lattice, hosts) = ([12, 8, 24], hosts(4, 3));
        let (alone, near) = ([2, 1, 6], [3, 1, 4]);
        assert_eq!(layout(&lattice, 12, &one_host(12)).unwrap(), alone);
        assert_eq!(layout(&lattice, 12, &hosts).unwrap(), near);
        let crossing = |grid: [usize; 3]| {
            let sub = subgrid(&lattice, &grid).unwrap();
            let topology = plain(&to_c(&grid)).blocked_by_host(&sub, &hosts);
            is_bijection(&topology);
            topology.crossing(&sub, &hosts)
        };
        assert!(crossing(near) < crossing(alone));
    }

    #[test]
    fn an_indivisible_lattice_is_refused_with_possible_node_counts() {
        let why = layout(&[4, 4], 3, &one_host(3)).unwrap_err();
        assert_eq!(why.status, QmpStatus::INVALID_TOPOLOGY);
        assert_eq!(
            why.text,
            "a lattice of 4x4 cannot be divided evenly among 3 nodes; 2 or 4 nodes would do"
        );
        let why = layout(&[3; 4], 2, &one_host(2)).unwrap_err();
        assert!(
            why.text.ends_with("2 nodes; 1 or 3 nodes would do"),
            "{why:?}"
        );
        let why = layout(&[4, 4], 64, &one_host(64)).unwrap_err();
        assert!(why.text.ends_with("64 nodes; 16 nodes would do"), "{why:?}");
        assert!(layout(&[4, 4], usize::MAX, &one_host(1)).is_err());
        assert!(layout(&[0, 4], 2, &one_host(2)).is_err());
    }

    #[test]
    fn qmp_066_a_forced_grid_divides_the_lattice_padded_with_ones() {
        assert_eq!(subgrid(&[8, 8, 6], &[2, 4]).unwrap(), [4, 2, 6]);
        assert!(subgrid(&[8], &[2, 4]).is_err());
        assert!(subgrid(&[8, 6], &[2, 4]).is_err());
    }
}
