// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters and outcomes of point-to-point operations, for all parts of the runtime.

use engine::{ContextId, Peer, Receive, Send, wire};

use crate::Error;
use crate::pack::Structured;
use crate::user_buf::UserMemory;

/// If the data of a request have gaps, its slot has this buffer address, and the data are described in its
/// [`RequestData`](crate::request_data::RequestData).
pub(crate) const NO_BUFFER: u64 = 0;

/// Send modes (MPI 5.0 section 3.4). A buffered send is a standard send of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Completes when the buffer can be used again.
    Standard,
    /// As [`Standard`](Self::Standard), for a nonblocking send: the program calls again to complete it, so its frame may
    /// leave with the next poll only.
    Deferrable,
    /// Completes only after a receive has matched the send.
    Synchronous,
}

impl Mode {
    /// Whether the send need not wait for its receive.
    pub(crate) fn is_standard(self) -> bool {
        self != Self::Synchronous
    }
}

/// The source, tag and context of a receive or probe.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveSource {
    /// Context id.
    pub context: ContextId,
    /// Source; `None` is any source.
    pub peer: Option<Peer>,
    /// Tag; `None` is any tag.
    pub tag: Option<i32>,
}

/// The peer, tag and context of a send.
#[derive(Clone, Copy, Debug)]
pub struct SendTarget {
    /// Context id.
    pub context: ContextId,
    /// Destination.
    pub peer: Peer,
    /// Tag.
    pub tag: i32,
}

/// Outcome of an operation (MPI 5.0 section 3.2.5).
#[derive(Debug)]
pub struct MessageStatus {
    /// Rank of the sender in the communicator; `None` unless a message was received.
    pub source: Option<i32>,
    /// Whether the peer was `MPI_PROC_NULL`.
    pub no_process: bool,
    /// Tag of the message.
    pub tag: i32,
    /// Bytes received.
    pub bytes: u64,
    /// Whether the operation was cancelled.
    pub cancelled: bool,
    /// The error of the operation, if it failed.
    pub error: Option<Error>,
}

/// A send without its remote key, and not marked to be sent early. Each start determines these two fields.
pub(crate) fn described(target: SendTarget, memory: UserMemory, mode: Mode) -> Send {
    let (bytes, buffer) = (memory.bytes() as u64, memory.address());
    Send {
        peer: target.peer,
        context: target.context,
        tag: target.tag,
        bytes,
        buffer,
        synchronous: mode == Mode::Synchronous,
        early: false,
        key: wire::NO_KEY,
    }
}

#[inline(always)]
pub(crate) fn wanted(source: ReceiveSource, memory: UserMemory) -> Receive {
    Receive {
        context: source.context,
        peer: source.peer,
        tag: source.tag,
        bytes: memory.bytes() as u64,
        buffer: memory.address(),
    }
}

/// A receive into the blocks of `data`.
pub(crate) fn scattered(source: ReceiveSource, data: &Structured) -> Receive {
    Receive {
        bytes: data.bytes(),
        buffer: NO_BUFFER,
        ..wanted(source, UserMemory::nothing())
    }
}

#[cold]
pub(crate) fn exhausted() -> Error {
    Error::RequestsExhausted((1 << 19) - 1)
}
