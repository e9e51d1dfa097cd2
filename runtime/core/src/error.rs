// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong in the runtime, as values that the C layer turns into error classes.

use std::sync::Arc;

/// Why something could not be done.
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
    /// The other side of an operation does not answer any more.
    #[error("rank {rank} does not answer: {why}")]
    Lost {
        /// Its rank in the communicator of the operation.
        rank: i32,
        /// What is known of the reason.
        why: String,
    },
    /// No communicator can be made any more.
    #[error("the process made so many communicators that no context is left for another one")]
    ContextsExhausted,
    /// Who makes a communicator could not ask all others for a context.
    #[error(
        "the processes that make the communicator could not agree on its context: one of them does not answer"
    )]
    Unagreed,
    /// Two sides of a collective describe blocks of different sizes.
    #[error("a block of {given} bytes meets one of {expected}: counts and datatypes must match")]
    Unequal {
        /// Bytes of what is there.
        given: u64,
        /// Bytes of where it belongs.
        expected: u64,
    },
    /// A rank sends more or less in a collective than its receiver expects.
    #[error(
        "rank {rank} sent {given} bytes in this call, of which {expected} were expected: counts and datatypes of the ranks must match"
    )]
    Mismatched {
        /// The sender, in the communicator of the call; of an intercommunicator in the remote group.
        rank: u32,
        /// Bytes of what it sent.
        given: u64,
        /// Bytes of where they belong.
        expected: u64,
    },
    /// The data of a large message of a collective could not be moved.
    #[error(
        "the data that rank {rank} sent in this call could not be read; is the buffer (or this one) still allocated"
    )]
    Unreadable {
        /// The sender, in the communicator of the call; of an intercommunicator in the remote group.
        rank: u32,
    },
    /// Ranks of a communicator call different collectives, or the same with different lengths.
    #[error(
        "this rank called {ours} with {our_bytes} bytes, {}: all ranks of a communicator must call the same collectives in the same order",
        other_call(theirs.as_ref())
    )]
    Disputed {
        /// What this rank called.
        ours: &'static str,
        /// With how many bytes.
        our_bytes: u64,
        /// The rank that was found to do something else, what, and with how many bytes.
        theirs: Option<(u32, &'static str, u64)>,
    },
    /// A rank did not take part in a collective.
    #[error("rank {rank} did not take part in this call: its own call had an error")]
    Absent {
        /// The rank in the communicator of the call.
        rank: u32,
    },
    /// A collective in the background has failed.
    #[error("{0}")]
    Collective(Arc<Self>),
    /// What the launcher left for this process is not as it should be.
    #[error("{0}")]
    Boot(String),
    /// No provider that may be used reaches some rank.
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
