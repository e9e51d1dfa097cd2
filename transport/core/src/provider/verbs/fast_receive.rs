// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results and deferred work of the receive fast path (`Verbs::poll_word`). This path takes messages of one word that
//! arrive in order over their peer's queue pair, one by one, while nothing else is pending. Everything else takes the
//! general path (`arrive.rs`), and is returned as a frame, or by the next poll.
//!
//! A message on the fast path is delivered as soon as its sender is verified. The remaining work for the message
//! ([`PendingWord`]) is postponed to the next poll, and is done before other code looks at the stream: the effect is
//! the same as if the packet had arrived only then.

use session::{Ack, Slot};

use super::wire::HEADER_BYTES;
use crate::{Arrived, Head, Peer, RecvBuffer};

/// Result of one [poll for a word](crate::Fabric::poll_word).
#[derive(Debug)]
pub enum WordPoll {
    /// No packet has arrived.
    Nothing,
    /// A frame with a body of eight bytes.
    Word(NetWord),
    /// A frame that did not take the fast path, in the form of a poll's completion.
    Frame(Arrived),
    /// Something else is pending: call [`poll`](crate::Fabric::poll).
    Poll,
}

/// A frame with a body of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetWord {
    /// Sender of the frame, verified by the queue pair.
    pub peer: Peer,
    /// Head of the frame, as posted; `len` is 8.
    pub head: Head,
    /// Body of the frame.
    pub word: u64,
}

impl NetWord {
    /// This frame in the form of a poll's completion.
    #[must_use]
    pub fn arrived(self) -> Arrived {
        Arrived {
            peer: self.peer,
            head: Head {
                len: 0,
                ..self.head
            },
            words: [self.word, 0, 0, 0, 0, 0],
            body: RecvBuffer::Inline { bytes: 8 },
        }
    }
}

/// Remaining work for a one-word message that was delivered: to return its buffer, and to process its acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWord {
    pub(super) peer: u32,
    /// Receive buffer of the message.
    pub(super) buffer: Slot,
    /// The acknowledgement in the header of the message.
    pub(super) ack: Ack,
}

/// Length of a packet whose body is a word, in bytes.
pub(super) const WORD_BYTES: usize = HEADER_BYTES + 8;
