// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of opening a fabric or attaching a segment to it. Backpressure is not an error.

use std::io;

/// Why a fabric could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The inherited memory is not the node segment.
    #[error("{0}")]
    Segment(ring::SegmentError),
    /// No allowed provider reaches a process of the job: it is on another node, or shared memory is not allowed.
    #[error(
        "no provider reaches rank {peer}: it is not on this node, or not by the providers that may be used"
    )]
    NoRoute {
        /// World rank of the unreachable process.
        peer: u32,
    },
    /// Only a network reaches a process of the job, and none is available.
    #[error("no provider reaches rank {peer} but a network, and {why}")]
    NoNetwork {
        /// World rank of the unreachable process.
        peer: u32,
        /// Which networks were tried, why each failed, and what to do.
        why: String,
    },
    /// The numbers of peers that are added later are already in use, or do not follow the existing ones.
    #[error("the peers of a further segment must have numbers from {expected} on")]
    PeerNumbers {
        /// The number that follows those of the existing peers.
        expected: u32,
    },
    /// A process of another job cannot be added over the network.
    #[error("a process of another job cannot be reached: {why}")]
    Far {
        /// What is missing, in words.
        why: &'static str,
    },
    /// The node segment does not fit into the address space.
    #[error(
        "the node segment of {bytes} bytes cannot be mapped: {source}; raise the limit of address space (ulimit -v) or \
         start fewer ranks"
    )]
    Mapping {
        /// Its size.
        bytes: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// The call, in words.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}
