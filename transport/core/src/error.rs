// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong when a fabric is opened or a segment is attached to it. Backpressure is not an error.

use std::io;

/// Why a fabric could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory that was inherited is not the node segment.
    #[error("{0}")]
    Segment(ring::SegmentError),
    /// A process of the job is not on this node, or shared memory may not be used, and nothing else may.
    #[error(
        "no provider reaches rank {peer}: it is not on this node, or not by the providers that may be used"
    )]
    NoRoute {
        /// Its world rank.
        peer: u32,
    },
    /// Only a network reaches a process of the job, and there is none.
    #[error("no provider reaches rank {peer} but a network, and {why}")]
    NoNetwork {
        /// Its world rank.
        peer: u32,
        /// What was looked for and not found, and what to do.
        why: String,
    },
    /// Processes that are met later have numbers that somebody has, or not the next ones.
    #[error("the peers of a further segment must have numbers from {expected} on")]
    PeerNumbers {
        /// The next number.
        expected: u32,
    },
    /// A process of another job that only a network reaches.
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
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// Which one, in words.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
