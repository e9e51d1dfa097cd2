// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process topologies (MPI 5.0 chapter 8): computes the neighbours of each rank.

mod dims;

pub use dims::balanced_dims;

/// The virtual topology of a communicator (MPI 5.0 chapter 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A Cartesian grid, whose dimensions may be periodic.
    Cart(Cart),
    /// A graph, of which every process has all edges.
    Graph(Graph),
    /// A distributed graph, of which a process has only its own edges.
    DistGraph(DistGraph),
}

/// The neighbours of one process, in the order of the blocks of neighbourhood collectives (MPI 5.0 section 8.6).
/// `None` stands for `MPI_PROC_NULL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourLists {
    /// The ranks that the process receives from.
    pub sources: Vec<Option<u32>>,
    /// The ranks that the process sends to.
    pub destinations: Vec<Option<u32>>,
}

impl Topology {
    /// The neighbours of a rank. In a distributed graph they are always those of this process.
    #[must_use]
    pub fn neighbours(&self, rank: u32) -> NeighbourLists {
        match self {
            Self::Cart(cart) => {
                let both = cart.neighbours(rank);
                NeighbourLists {
                    sources: both.clone(),
                    destinations: both,
                }
            }
            Self::Graph(graph) => {
                let both: Vec<_> = graph.of(rank).iter().copied().map(Some).collect();
                NeighbourLists {
                    sources: both.clone(),
                    destinations: both,
                }
            }
            Self::DistGraph(graph) => NeighbourLists {
                sources: graph.sources.iter().copied().map(Some).collect(),
                destinations: graph.destinations.iter().copied().map(Some).collect(),
            },
        }
    }
}

/// A Cartesian grid. Ranks are numbered in row-major order: the last coordinate varies fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    dims: Vec<u32>,
    periodic: Vec<bool>,
}

impl Cart {
    /// A grid with these extents, each at least 1. `None`: there would be too many ranks, or the lists differ in
    /// length.
    #[must_use]
    pub fn new(dims: Vec<u32>, periodic: Vec<bool>) -> Option<Self> {
        let mut ranks = 1u32;
        for extent in &dims {
            ranks = ranks.checked_mul(*extent)?;
        }
        (dims.len() == periodic.len() && ranks > 0).then_some(Self { dims, periodic })
    }

    /// The extent of each dimension.
    #[must_use]
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// Whether each dimension is periodic.
    #[must_use]
    pub fn periodic(&self) -> &[bool] {
        &self.periodic
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.dims.iter().product()
    }

    /// The coordinates of a rank.
    #[must_use]
    pub fn coords(&self, rank: u32) -> Vec<u32> {
        let mut rest = rank;
        let mut coords: Vec<u32> = self
            .dims
            .iter()
            .rev()
            .map(|extent| {
                let coordinate = rest % extent;
                rest /= extent;
                coordinate
            })
            .collect();
        coords.reverse();
        coords
    }

    /// The rank at these coordinates, which wrap around in periodic dimensions.
    ///
    /// # Errors
    /// The first dimension that is not periodic and in which the coordinate is out of range.
    pub fn rank(&self, coords: &[i64]) -> Result<u32, usize> {
        let mut rank = 0;
        for (at, extent) in self.dims.iter().enumerate() {
            let given = coords.get(at).copied().ok_or(at)?;
            let inside = match self.periodic[at] {
                true => given.rem_euclid(i64::from(*extent)),
                false => given,
            };
            let inside = u32::try_from(inside).ok().filter(|inside| inside < extent);
            rank = rank * extent + inside.ok_or(at)?;
        }
        Ok(rank)
    }

    /// The rank at a displacement of `steps` from `rank` along a dimension; `None`: it is beyond the edge of the grid.
    #[must_use]
    pub fn shifted(&self, rank: u32, dimension: usize, steps: i64) -> Option<u32> {
        let mut coords: Vec<i64> = self.coords(rank).into_iter().map(i64::from).collect();
        *coords.get_mut(dimension)? += steps;
        self.rank(&coords).ok()
    }

    /// Cuts the grid into subgrids that have only the dimensions with `remain` (`MPI_Cart_sub`). Returns the subgrid
    /// that contains `rank`, its index among all subgrids, and the index of `rank` in it.
    #[must_use]
    pub fn sub(&self, rank: u32, remain: &[bool]) -> (Self, u32, u32) {
        let (mut part, mut which, mut place) = (Self::point(), 0, 0);
        let dims = self.dims.iter().zip(&self.periodic);
        for (((extent, ring), at), stays) in dims.zip(self.coords(rank)).zip(remain) {
            if *stays {
                part.dims.push(*extent);
                part.periodic.push(*ring);
                place = place * extent + at;
            } else {
                which = which * extent + at;
            }
        }
        (part, which, place)
    }

    fn point() -> Self {
        Self {
            dims: Vec::new(),
            periodic: Vec::new(),
        }
    }

    fn neighbours(&self, rank: u32) -> Vec<Option<u32>> {
        let both = |dimension| [-1, 1].map(|step| self.shifted(rank, dimension, step));
        (0..self.dims.len()).flat_map(both).collect()
    }
}

/// A graph: the neighbours of all ranks, concatenated, and the end of each rank's neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    ends: Vec<u32>,
    edges: Vec<u32>,
}

impl Graph {
    /// A graph with one rank for each of `ends`, which must be ascending and end with the number of edges. `None`: the
    /// arguments are not valid.
    #[must_use]
    pub fn new(ends: Vec<u32>, edges: Vec<u32>) -> Option<Self> {
        let last = ends.last().copied().unwrap_or(0) as usize;
        let good = ends.is_sorted() && last == edges.len();
        let inside = edges.iter().all(|edge| (*edge as usize) < ends.len());
        (good && inside).then_some(Self { ends, edges })
    }

    /// For each rank, the end of its neighbours in the list of edges.
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// All neighbours, rank by rank.
    #[must_use]
    pub fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// The neighbours of a rank; empty if there is no such rank.
    #[must_use]
    pub fn of(&self, rank: u32) -> &[u32] {
        let rank = rank as usize;
        let Some(end) = self.ends.get(rank) else {
            return &[];
        };
        let start = rank.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.edges[start as usize..*end as usize]
    }
}

/// The edges of one process in a distributed graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistGraph {
    /// Ranks at the other ends of incoming edges.
    pub sources: Vec<u32>,
    /// Ranks at the other ends of outgoing edges.
    pub destinations: Vec<u32>,
    /// The weights of all these edges, if the graph is weighted.
    pub weights: Option<EdgeWeights>,
}

/// The weights of a process's edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeWeights {
    /// Weights of the incoming edges.
    pub sources: Vec<i32>,
    /// Weights of the outgoing edges.
    pub destinations: Vec<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Cart {
        Cart::new(vec![2, 3], vec![false, true]).unwrap()
    }

    #[test]
    fn coordinates_and_ranks_are_inverse() {
        let cart = grid();
        assert_eq!(cart.coords(4), [1, 1]);
        for rank in 0..6 {
            let coords: Vec<i64> = cart.coords(rank).into_iter().map(i64::from).collect();
            assert_eq!(cart.rank(&coords), Ok(rank));
        }
        assert_eq!(cart.rank(&[0, -1]), Ok(2));
        assert_eq!(cart.rank(&[0, 7]), Ok(1));
        assert_eq!(cart.rank(&[2, 0]), Err(0));
    }

    #[test]
    fn shifts_end_at_non_periodic_grid_boundaries() {
        let cart = grid();
        assert_eq!(
            (cart.shifted(0, 0, 1), cart.shifted(0, 0, -1)),
            (Some(3), None)
        );
        assert_eq!(
            (cart.shifted(0, 1, 1), cart.shifted(0, 1, -1)),
            (Some(1), Some(2))
        );
        assert_eq!(cart.shifted(5, 1, 1_000_000_003), cart.shifted(5, 1, 1));
    }

    #[test]
    fn neighbours_are_ordered_by_dimension_negative_direction_first() {
        let all = Topology::Cart(grid()).neighbours(3);
        assert_eq!(all.sources, [Some(0), None, Some(5), Some(4)]);
        assert_eq!(all.sources, all.destinations);
    }

    #[test]
    fn a_subgrid_keeps_the_rank_order() {
        let (part, which, place) = grid().sub(4, &[false, true]);
        assert_eq!(
            (part.dims(), part.periodic(), which, place),
            (&[3][..], &[true][..], 1, 1)
        );
        let (point, which, place) = grid().sub(4, &[false, false]);
        assert_eq!((point.size(), which, place), (1, 4, 0));
    }

    #[test]
    fn a_grid_of_too_many_ranks_is_rejected() {
        assert_eq!(Cart::new(vec![1 << 16, 1 << 16], vec![false; 2]), None);
        assert_eq!(Cart::new(vec![0], vec![false]), None);
        assert_eq!(Cart::new(vec![], vec![]).unwrap().size(), 1);
    }

    #[test]
    fn a_graph_has_the_neighbours_of_every_rank() {
        let graph = Graph::new(vec![2, 3, 4, 6], vec![1, 3, 0, 3, 0, 2]).unwrap();
        assert_eq!(
            (graph.of(0), graph.of(2), graph.of(3)),
            (&[1, 3][..], &[3][..], &[0, 2][..])
        );
        assert!(graph.of(4).is_empty());
        assert_eq!(Graph::new(vec![2, 1], vec![0]), None);
        assert_eq!(Graph::new(vec![1], vec![1]), None);
    }
}
