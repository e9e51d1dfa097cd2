// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchanges with the neighbours of a topology (MPI 5.0 sections 8.6 to 8.8).

use super::CollectiveCall;
use crate::topology::{NeighbourLists, Topology};
use crate::{Error, Payload, Visit};

/// Who exchanges with whom, and in which order.
#[derive(Clone, Debug)]
pub struct Neighbourhood {
    neighbours: NeighbourLists,
    /// Places of the sources, in the order in which messages of one and the same neighbour come.
    order: Vec<usize>,
}

impl Neighbourhood {
    /// The neighbours of a rank.
    ///
    /// Where a rank is the same one's neighbour more than once, its messages are told apart by their order. In a grid what
    /// is sent in the negative direction comes from the positive one (MPI 5.0 section 8.6), so of each dimension the
    /// positive neighbour's message is the first.
    #[must_use]
    pub fn new(topology: &Topology, rank: u32) -> Self {
        let neighbours = topology.neighbours(rank);
        let places = 0..neighbours.sources.len();
        let order = match topology {
            Topology::Cart(_) => places.map(|place| place ^ 1).collect(),
            _ => places.collect(),
        };
        Self { neighbours, order }
    }

    /// How many neighbours there are to receive from.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.neighbours.sources.len()
    }

    /// How many there are to send to.
    #[must_use]
    pub fn destinations(&self) -> usize {
        self.neighbours.destinations.len()
    }

    /// Block `i` of `out` goes to destination `i`, block `i` of `into` comes from source `i`. Where there is no neighbour,
    /// beyond the edge of a grid, nothing moves.
    ///
    /// # Errors
    /// When a message could not be sent or received.
    pub async fn exchange<V: Visit>(
        &self,
        line: &CollectiveCall<V>,
        out: &[Payload],
        into: &[Payload],
    ) -> Result<(), Error> {
        let mut pending = line.pending();
        for place in &self.order {
            let source = self.neighbours.sources.get(*place).copied().flatten();
            if let (Some(source), Some(block)) = (source, into.get(*place)) {
                pending.receive_payload(source, block);
            }
        }
        for (destination, block) in self.neighbours.destinations.iter().zip(out) {
            if let Some(destination) = destination {
                pending.send_payload(*destination, block);
            }
        }
        pending.finish().await
    }
}
