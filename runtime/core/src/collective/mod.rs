// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives over point-to-point messages (MPI 5.0 chapter 6), on contiguous bytes or on
//! [`Payload`](crate::Payload)s.
//!
//! An algorithm is an `async fn` that awaits messages. A blocking call polls it until it is ready
//! ([`CollectiveCall::run`]); a nonblocking call passes it to the progress loop as a [`Task`]. There is no executor and
//! no waker: any call that makes progress polls the tasks.
//!
//! The choice of an algorithm depends only on what is equal at all ranks of a correct call: the number of ranks and
//! their nodes, the root, the sizes, the operation and [`CollectiveTuning`]. So all ranks choose the same algorithm.
//! The messages use the communicator's second context id, with a tag that identifies the call. Within a call, messages
//! between two ranks keep their order.

mod bcast_queue;
mod block_pieces;
mod blocks;
mod board;
mod board_note;
mod by_node;
pub mod choice;
mod collective_call;
mod fast_path;
mod flat;
mod gather_tree;
pub mod inter;
mod large;
mod neighbourhood;
mod parcels;
mod parts;
mod pieces;
mod reduce;
mod root;
mod scan;
mod tree;
mod tuning;
mod various;

pub use crate::tasks::{Moved, Starter, Task};
pub use crate::visit::try_at_once;
pub use blocks::{
    allgather, allgather_bytes, allgather_equal, allgather_ring, alltoall, alltoall_bytes, gather,
    gather_equal, scatter, scatter_equal,
};
pub use collective_call::CollectiveCall;
pub use fast_path::{FastCall, FastMemberCall};
pub use gather_tree::{gather_tree, scatter_tree};
pub use neighbourhood::Neighbourhood;
pub use reduce::{Reducer, allreduce, reduce, reduce_scatter};
pub use root::CollectiveRoot;
pub use scan::{exscan, scan};
pub use tree::{barrier, bcast, bcast_from_here};
pub use tuning::{CollectiveTuning, CommPlacement};
pub use various::{allgather_various, alltoall_various, gather_various, scatter_various};
