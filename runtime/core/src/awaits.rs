// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operation that a call waits for, in the form that debuggers read.

use queue_layout::{ANY_PEER, ANY_TAG, NO_BYTES};

use crate::operation::ReceiveSource;
use crate::{ContextId, Peer, RequestId};

/// The operation that a call waits for.
#[derive(Clone, Copy, Debug, Default)]
pub enum Awaits {
    /// One request.
    Request(RequestId),
    /// Both of two requests.
    Both(RequestId, RequestId),
    /// Requests in an array of the application.
    List(RequestList),
    /// A message that the call looks for but does not receive (a probe).
    Message(ReceiveSource),
    /// The other ranks of a communicator.
    Ranks(AwaitedCollective),
    /// Something without a form for debuggers.
    #[default]
    Other,
}

/// The collective call in which a thread waits, for debuggers.
#[derive(Clone, Copy, Debug)]
pub struct AwaitedCollective {
    /// A context id of the collective's communicator.
    pub context: ContextId,
    /// Sequence number of the call on its communicator, equal at all ranks that call collectives in the same order;
    /// `None`: the call has no such number.
    pub call: Option<i32>,
    /// The root of the collective, if it has one.
    pub root: Option<Peer>,
    /// Number of bytes of the collective, if all ranks must agree on it.
    pub bytes: Option<u64>,
}

impl AwaitedCollective {
    /// World rank of the root and number of the call, in the form that debuggers read.
    pub(crate) fn envelope(self) -> (u32, i32) {
        let root = self.root.map_or(ANY_PEER, |root| root.0);
        (root, self.call.unwrap_or(ANY_TAG))
    }

    /// Bytes of data of the collective, in the form that debuggers read.
    pub(crate) fn recorded_bytes(self) -> u64 {
        self.bytes.unwrap_or(NO_BYTES)
    }
}

/// The application's array of request handles, eight bytes each.
#[derive(Clone, Copy, Debug)]
pub struct RequestList {
    /// Address of the array.
    pub address: usize,
    /// Number of handles.
    pub count: usize,
    /// Difference between a handle and the token of its request.
    pub base: usize,
}
