// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a call waits for, in the words that a debugger is told.

use queue_layout::{ANY_PEER, ANY_TAG, NO_BYTES};

use crate::operation::ReceiveSource;
use crate::{ContextId, Peer, RequestId};

/// What a call waits for.
#[derive(Clone, Copy, Debug, Default)]
pub enum Awaits {
    /// One request.
    Request(RequestId),
    /// Both of two requests.
    Both(RequestId, RequestId),
    /// Requests of a list of the program's.
    List(RequestList),
    /// A message that the call does not take.
    Message(ReceiveSource),
    /// The other ranks of a communicator.
    Ranks(AwaitedCollective),
    /// Something else.
    #[default]
    Other,
}

/// The collective call that a thread waits in, for debuggers.
#[derive(Clone, Copy, Debug)]
pub struct AwaitedCollective {
    /// A context of its communicator.
    pub context: ContextId,
    /// Which of the communicator's calls it is: the same at all ranks that call in the same order.
    pub call: Option<i32>,
    /// Its root, where it has one.
    pub root: Option<Peer>,
    /// Bytes of its data, where all ranks must name as many.
    pub bytes: Option<u64>,
}

impl AwaitedCollective {
    /// World rank of the root and number of the call, as debuggers read them.
    pub(crate) fn envelope(self) -> (u32, i32) {
        let root = self.root.map_or(ANY_PEER, |root| root.0);
        (root, self.call.unwrap_or(ANY_TAG))
    }

    /// Its bytes, as debuggers read them.
    pub(crate) fn told_bytes(self) -> u64 {
        self.bytes.unwrap_or(NO_BYTES)
    }
}

/// The program's list of request handles, which are eight bytes each.
#[derive(Clone, Copy, Debug)]
pub struct RequestList {
    /// Where it lies.
    pub address: usize,
    /// Handles in it.
    pub count: usize,
    /// What a handle is more than the token of its request.
    pub base: usize,
}
