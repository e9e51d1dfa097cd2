// SPDX-License-Identifier: MIT OR Apache-2.0
//! What point-to-point operations are asked for, and how they end: the words that all parts share.

use engine::{ContextId, Peer, Receive, Send, wire};

use crate::Error;
use crate::pack::Structured;
use crate::user_buf::UserMemory;

/// The address of the buffer in the slot of a request whose data have gaps: they are found in its [`RequestData`](crate::request_data::RequestData).
pub(crate) const NO_BUFFER: u64 = 0;

/// How a send relates to its receive (MPI 5.0 section 3.4). Buffered sends are standard ones of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Completes when the buffer can be used again.
    Standard,
    /// Completes only after the receive was matched.
    Synchronous,
}

/// The source, tag and context that a receive or probe asks for.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveSource {
    /// In which context.
    pub context: ContextId,
    /// From whom; `None` is any source.
    pub peer: Option<Peer>,
    /// With which tag; `None` is any tag.
    pub tag: Option<i32>,
}

/// The peer, tag and context of a send.
#[derive(Clone, Copy, Debug)]
pub struct SendTarget {
    /// In which context.
    pub context: ContextId,
    /// To whom.
    pub peer: Peer,
    /// With which tag.
    pub tag: i32,
}

/// How an operation ended (MPI 5.0 section 3.2.5).
#[derive(Debug)]
pub struct MessageStatus {
    /// Rank of the sender in the communicator; `None` for anything but a received message.
    pub source: Option<i32>,
    /// There was no other side (`MPI_PROC_NULL`).
    pub no_process: bool,
    /// Tag of the message.
    pub tag: i32,
    /// Bytes received.
    pub bytes: u64,
    /// The operation was cancelled.
    pub cancelled: bool,
    /// What went wrong.
    pub error: Option<Error>,
}

/// A send, but for what is found out at each start: its key, and whether it goes early.
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

/// A receive whose bytes go where `data` has them.
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
