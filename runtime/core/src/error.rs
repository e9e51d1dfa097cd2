// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the runtime, which the C layer maps to error classes.

use std::sync::Arc;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// All request slots are in use.
    #[error("all {0} request slots are in use; complete or free requests before more are started")]
    RequestsExhausted(u32),
    /// A message was longer than its receive buffer.
    #[error(
        "message from rank {source_rank} with tag {tag} has {message_bytes} bytes, the receive buffer {buffer_bytes} bytes"
    )]
    Truncated {
        /// Rank of the sender in the communicator of the receive.
        source_rank: i32,
        /// Tag of the message.
        tag: i32,
        /// Bytes of the message.
        message_bytes: u64,
        /// Bytes of the buffer.
        buffer_bytes: u64,
    },
    /// The data of a large message could not be moved.
    #[error(
        "the data of a message from rank {source_rank} with tag {tag} could not be read; \
         is the buffer that was sent (or this one) still allocated"
    )]
    Transfer {
        /// Rank of the sender in the communicator of the receive.
        source_rank: i32,
        /// Tag of the message.
        tag: i32,
    },
    /// The peer of an operation is dead.
    #[error("rank {rank} does not answer: {why}")]
    Lost {
        /// Rank of the peer in the communicator of the operation.
        rank: i32,
        /// The reason; empty if it is not known.
        why: String,
    },
    /// No context id is left for another communicator.
    #[error("the process made so many communicators that no context is left for another one")]
    ContextsExhausted,
    /// The processes that make a communicator could not agree on a context id.
    #[error(
        "the processes that make the communicator could not agree on its context: one of them does not answer"
    )]
    Unagreed,
    /// The send and receive sides of a collective describe blocks of different sizes.
    #[error(
        "a block has {given} bytes where {expected} are expected: counts and datatypes must match"
    )]
    Unequal {
        /// Bytes of the source.
        given: u64,
        /// Bytes of the destination.
        expected: u64,
    },
    /// In a collective, a rank sends more or fewer bytes than the receiver expects.
    #[error(
        "rank {rank} sent {given} bytes in this call, of which {expected} were expected: counts and datatypes of the ranks must match"
    )]
    Mismatched {
        /// Rank of the sender in the communicator of the call; in an intercommunicator, rank in the remote group.
        rank: u32,
        /// Bytes sent.
        given: u64,
        /// Bytes of the destination.
        expected: u64,
    },
    /// The data of a large message of a collective could not be moved.
    #[error(
        "the data that rank {rank} sent in this call could not be read; is the buffer (or this one) still allocated"
    )]
    Unreadable {
        /// Rank of the sender in the communicator of the call; in an intercommunicator, rank in the remote group.
        rank: u32,
    },
    /// Ranks of a communicator call different collectives, or the same collective with different lengths.
    #[error(
        "this rank called {ours} with {our_bytes} bytes, {}: all ranks of a communicator must call the same collectives in the same order",
        other_call(theirs.as_ref())
    )]
    Disputed {
        /// The collective that this rank called.
        ours: &'static str,
        /// Bytes of that call.
        our_bytes: u64,
        /// A rank that called something else: its rank, its collective, and the bytes of its call; `None`: such a rank
        /// is not known.
        theirs: Option<(u32, &'static str, u64)>,
    },
    /// A rank did not take part in a collective.
    #[error("rank {rank} did not take part in this call: its own call had an error")]
    Absent {
        /// The rank in the communicator of the call.
        rank: u32,
    },
    /// A nonblocking or persistent collective has failed.
    #[error("{0}")]
    Collective(Arc<Self>),
    /// The process cannot join its job or reach its launcher. For example, the settings from the launcher are invalid.
    #[error("{0}")]
    Boot(String),
    /// No enabled provider reaches some rank.
    #[error("{0}")]
    Unreachable(String),
    /// A transport could not be opened.
    #[error("{0}")]
    Transport(#[from] transport::Error),
}

fn other_call(theirs: Option<&(u32, &'static str, u64)>) -> String {
    match theirs {
        Some((rank, call, bytes)) => format!("rank {rank} {call} with {bytes} bytes"),
        None => "another one something else".into(),
    }
}
