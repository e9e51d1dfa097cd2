// SPDX-License-Identifier: MIT OR Apache-2.0
//! Revocable gates: a receiver that has opened one may revoke it, as long as the sender has not claimed it.
//!
//! A gate of a [channel](crate) stays open until a message arrives. If another receive may take that message, or the
//! receive may be cancelled, this gate is used instead: the sender claims it before it copies the first byte, and
//! exactly one of claim and revocation succeeds. The callers number the messages and agree on which one a gate is for.
//!
//! Each pair of [`Inlet`] and [`Outlet`] has one gate line, which contains numbers and a memory key only. A key written
//! by a peer is checked against that peer's own memory: an invalid one can corrupt that memory, and nothing else.

use crate::line::{OwnLine, STAMPS_MAX, SpareLines, stamped};
use crate::memory::MemorySpan;
use ring::GateLine;
use transport::{Fabric, Peer, RemoteKey};

/// Identifies an inlet to its sender: the location of its gate line, and a stamp that no other pair has used there
/// recently.
pub type InletName = [u64; 2];

/// Unused gate lines of this process.
#[derive(Debug, Default)]
pub struct Inlets {
    lines: SpareLines,
}

impl Inlets {
    /// The receiving end. `None`: the peer is on another node, or there is no shared memory.
    pub fn make(&mut self, fabric: &mut Fabric, peer: Peer) -> Option<Inlet> {
        let line = fabric.is_near(peer).then(|| self.lines.take(fabric))??;
        Some(Inlet { line })
    }

    /// Returns an inlet that is no longer used: its gate is closed, and no copy through it is running.
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
    /// Its name, to be sent to the sender.
    #[must_use]
    pub fn name(&self) -> InletName {
        let name = self.line.to_name();
        [name.place, u64::from(name.stamp)]
    }

    /// Opens the gate: the message of `number` may be written to `place`. Wakes the peer if it sleeps.
    #[inline]
    pub fn open(&self, fabric: &mut Fabric, peer: Peer, number: u64, place: ReceiveRegion) {
        let (line, word) = self.line.word(number);
        line.offer(word, place.0.to_words());
        fabric.nudge(peer);
    }

    /// Revokes the gate. `false`: the sender has claimed it; [`written`](Self::written) reports its completion.
    #[must_use]
    pub fn revoke(&self, number: u64) -> bool {
        let (line, word) = self.line.word(number);
        line.revoke(word)
    }

    /// The number of bytes written, once the message is complete.
    #[inline(always)]
    #[must_use]
    pub fn written(&self, number: u64) -> Option<u64> {
        let (line, word) = self.line.word(number);
        line.is_written(word)
            .then(|| line.noted(word).unwrap_or_default())
    }
}

/// The memory of a receive, as the sending peer accesses it.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRegion(RemoteKey);

impl ReceiveRegion {
    /// Exports memory of this process. `None`: the peer cannot write there.
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

/// Outcome of sending through a gate.
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
    /// The sending end for an inlet. `None`: the name is invalid, or its memory is not mapped here.
    pub fn find(fabric: &mut Fabric, peer: Peer, [place, stamp]: InletName) -> Option<Self> {
        let stamp = u32::try_from(stamp).ok()?;
        let line = fabric.line_of(peer, place)?;
        (1..=STAMPS_MAX).contains(&stamp).then_some(Self {
            line,
            stamp,
            known: (RemoteKey::default(), None),
        })
    }

    /// Whether the gate is open for the message of `number`.
    #[inline(always)]
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        self.line.is_open(stamped(self.stamp, number))
    }

    /// Sends the message of `number`, if the gate is open for it, and wakes the receiver if it sleeps.
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
        // The key belongs to this number only if the claim succeeds.
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
