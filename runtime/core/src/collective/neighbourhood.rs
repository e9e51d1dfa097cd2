// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchanges with the neighbours of a topology (MPI 5.0 sections 8.6 to 8.8).

use super::CollectiveCall;
use crate::topology::{NeighbourLists, Topology};
use crate::{Error, Payload, Visit};

/// The neighbours of a rank, and the order of their messages.
#[derive(Clone, Debug)]
pub struct Neighbourhood {
    neighbours: NeighbourLists,
    /// Indices of the sources, in the order in which their receives are posted. If a neighbour occurs more than once,
    /// its messages are sent in this order too.
    order: Vec<usize>,
}

impl Neighbourhood {
    /// The neighbours of a rank.
    ///
    /// If one rank is a neighbour more than once, its messages are distinguished only by their order. In a grid, a rank
    /// sends first in the negative direction, and a message sent in the negative direction is received from the
    /// positive neighbour (MPI 5.0 section 8.6). So in each dimension the message of the positive neighbour is received
    /// first.
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

    /// Number of neighbours to receive from.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.neighbours.sources.len()
    }

    /// Number of neighbours to send to.
    #[must_use]
    pub fn destinations(&self) -> usize {
        self.neighbours.destinations.len()
    }

    /// Sends block `i` of `out` to destination `i`, and receives block `i` of `into` from source `i`. Beyond the edge
    /// of a grid, where there is no neighbour, nothing is sent or received.
    ///
    /// # Errors
    /// When a message could not be sent or received.
    pub async fn exchange<V: Visit>(
        &self,
        call: &CollectiveCall<V>,
        out: &[Payload],
        into: &[Payload],
    ) -> Result<(), Error> {
        let mut pending = call.pending();
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
