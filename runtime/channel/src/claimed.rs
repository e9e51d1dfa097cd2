// SPDX-License-Identifier: MIT OR Apache-2.0
//! Revocable gates: the receiver may revoke an open gate, as long as the sender has not claimed it.
//!
//! A gate of a [channel](crate) stays open until a message arrives. If another receive may take that message, or the
//! receive may be cancelled, a revocable gate is used instead. The sender claims the gate before it copies the first
//! byte, and exactly one of claim and revocation succeeds. The callers number the messages, and agree on the message
//! that each gate is for.
//!
//! Each pair of [`Inlet`] and [`Outlet`] has one gate line, which contains only numbers and a memory key. A key that a
//! peer has written is checked against the memory of that peer: an invalid key can corrupt only that memory.

use crate::line::{OwnLine, STAMPS_MAX, SpareLines, stamped};
use crate::memory::MemorySpan;
use ring::GateLine;
use transport::{Fabric, Peer, RemoteKey};

/// Identifies an inlet to its sender: the location of the gate line, and a stamp that distinguishes the inlet from
/// earlier users of that line.
pub type InletName = [u64; 2];

/// Unused gate lines of this process.
#[derive(Debug, Default)]
pub struct Inlets {
    lines: SpareLines,
}

impl Inlets {
    /// Makes the receiving end of a gate line for messages of `peer`. `None`: the peer is on another node, or there is
    /// no shared memory.
    pub fn make(&mut self, fabric: &mut Fabric, peer: Peer) -> Option<Inlet> {
        let line = fabric.is_near(peer).then(|| self.lines.take(fabric))??;
        Some(Inlet { line })
    }

    /// Returns an inlet that is no longer used. Its gate must be closed, and no copy through it may be running.
    pub fn give_back(&mut self, inlet: Inlet) {
        self.lines.give_back(inlet.line);
    }
}

/// The receiving end of a gate line.
#[derive(Debug)]
pub struct Inlet {
    line: OwnLine,
}

impl Inlet {
    /// The name of this inlet, to be sent to the sender.
    #[must_use]
    pub fn name(&self) -> InletName {
        let name = self.line.to_name();
        [name.place, u64::from(name.stamp)]
    }

    /// Opens the gate: message `number` may be written to `place`. Wakes the peer if it sleeps.
    #[inline]
    pub fn open(&self, fabric: &mut Fabric, peer: Peer, number: u64, place: ReceiveRegion) {
        let (line, word) = self.line.word(number);
        line.offer(word, place.0.to_words());
        fabric.nudge(peer);
    }

    /// Revokes the gate of message `number`. `false`: the sender has claimed it; [`written`](Self::written) reports the
    /// completion of the message.
    #[must_use]
    pub fn revoke(&self, number: u64) -> bool {
        let (line, word) = self.line.word(number);
        line.revoke(word)
    }

    /// The number of bytes of message `number`; `None` as long as it is not complete.
    #[inline(always)]
    #[must_use]
    pub fn written(&self, number: u64) -> Option<u64> {
        let (line, word) = self.line.word(number);
        line.is_written(word)
            .then(|| line.noted(word).unwrap_or_default())
    }
}

/// The memory of a receive, as a key for the sending peer.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRegion(RemoteKey);

impl ReceiveRegion {
    /// Exports memory of this process. `None`: the peer cannot write to it directly.
    pub fn new(fabric: &mut Fabric, peer: Peer, address: u64, bytes: u64) -> Option<Self> {
        let is_reached = bytes == 0 || fabric.reaches_directly(peer, address, bytes);
        is_reached.then(|| Self(fabric.export(peer, address, bytes)))
    }
}

/// The sending end of a gate line.
#[derive(Debug)]
pub struct Outlet {
    line: &'static GateLine,
    stamp: u32,
    /// The key of the last gate, and where its memory is mapped here.
    known: (RemoteKey, Option<MemorySpan>),
}

/// Outcome of an attempt to send through a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The message is in the receive's memory.
    Done,
    /// The gate is not open.
    Closed,
    /// The gate is open, but the message is too long for it, or its memory is not mapped here.
    Barred,
}

impl Outlet {
    /// Makes the sending end for an inlet. `None`: the name is invalid, or the memory of the gate line is not mapped
    /// here.
    pub fn find(fabric: &mut Fabric, peer: Peer, [place, stamp]: InletName) -> Option<Self> {
        let stamp = u32::try_from(stamp).ok()?;
        let line = fabric.line_of(peer, place)?;
        (1..=STAMPS_MAX).contains(&stamp).then_some(Self {
            line,
            stamp,
            known: (RemoteKey::default(), None),
        })
    }

    /// Whether the gate is open for message `number`.
    #[inline(always)]
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        self.line.is_open(stamped(self.stamp, number))
    }

    /// Sends message `number` if the gate is open for it. Wakes the receiver if it sleeps.
    #[inline]
    pub fn pass(
        &mut self,
        fabric: &mut Fabric,
        peer: Peer,
        number: u64,
        from: &[u8],
    ) -> ClaimOutcome {
        let word = stamped(self.stamp, number);
        let Some(words) = self.line.offered(word) else {
            return ClaimOutcome::Closed;
        };
        let key = RemoteKey::from_words(words);
        if key != self.known.0 || self.known.1.is_none() {
            self.known = (key, MemorySpan::of_peer(fabric, peer, key));
        }
        let bytes = from.len() as u64;
        let target = match self.known.1 {
            _ if bytes > key.bytes => return ClaimOutcome::Barred,
            None if bytes > 0 => return ClaimOutcome::Barred,
            target => target,
        };
        // The key that was read above belongs to message `number` only if the claim succeeds.
        if !self.line.claim(word) {
            return ClaimOutcome::Closed;
        }
        if let Some(target) = target {
            target.put(from);
        }
        self.line.note(word, bytes);
        self.line.signal_written(word);
        fabric.nudge(peer);
        ClaimOutcome::Done
    }
}
