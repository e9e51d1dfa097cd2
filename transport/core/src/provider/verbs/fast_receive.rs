// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the fast path of receiving (`Verbs::look`) tells, and leaves to be done: messages of one word that come in order over
//! their peer's queue pair, one by one, while nothing else is to be done. Whatever is not of that kind goes the way of all
//! (`arrive.rs`), and waits for the next poll.
//!
//! A word is handed up as soon as it is known whose it is. What it leaves to be done (its [`PendingWord`]) is done while nothing
//! comes, or before anything else is: nobody can tell that from a packet that came so much later.

use session::{Ack, Slot};

use super::wire::HEADER_BYTES;
use crate::{Arrived, Head, Peer, RecvBuffer};

/// What a [look](crate::Fabric::look_far) at the network has found.
#[derive(Debug)]
pub enum FarLook {
    /// Nothing has come.
    Nothing,
    /// A frame with a body of eight bytes.
    Word(FarWord),
    /// A frame with another body, as a poll would tell it.
    Frame(Arrived),
    /// Something else is there or has to be done: [`poll`](crate::Fabric::poll).
    Poll,
}

/// A frame with a body of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarWord {
    /// Who sent it: known from the queue pair.
    pub peer: Peer,
    /// Its head, as posted; `len` is 8.
    pub head: Head,
    /// Its body.
    pub word: u64,
}

impl FarWord {
    /// The same as a poll would tell it.
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

/// What is still to be done for a word that was handed up: its buffer is free, and its acknowledgement is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWord {
    pub(super) peer: u32,
    /// It lay there.
    pub(super) buffer: Slot,
    /// And told this.
    pub(super) ack: Ack,
}

/// Bytes of a packet whose body is a word.
pub(super) const WORD_BYTES: usize = HEADER_BYTES + 8;
