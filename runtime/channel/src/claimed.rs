// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gates that can be taken back: a receiver that has opened one may revoke it, as long as the sender has not claimed it.
//!
//! A gate of a [channel](crate) stays open until a message comes. Where another receive may take that message, or the receive may
//! be given up, this one is used instead: whoever sends claims it before the first byte is copied, and exactly one of
//! claim and revocation succeeds. Which message a gate is for is the callers' business; they number them.
//!
//! There is one line for each pair of [`Inlet`] and [`Outlet`], and nothing but numbers and a place in it. What a peer writes there
//! is checked against its own memory: it can garble that, and nothing else.

use crate::line::{MOST_STAMPS, OwnLine, SpareLines, stamped};
use crate::memory::MemorySpan;
use ring::GateLine;
use transport::{Fabric, Peer, RemoteKey};

/// What names an inlet to its sender: where its line is, and a number that no other pair has had there for long.
pub type InletName = [u64; 2];

/// Lines of this process that no inlet has.
#[derive(Debug, Default)]
pub struct Inlets {
    lines: SpareLines,
}

impl Inlets {
    /// A receiving end. `None`: the peer is on no node of ours, or there is no memory that both reach.
    pub fn make(&mut self, fabric: &mut Fabric, peer: Peer) -> Option<Inlet> {
        let line = fabric.is_near(peer).then(|| self.lines.take(fabric))??;
        Some(Inlet { line })
    }

    /// An inlet is not used any more: its gate is closed, and nobody copies through it.
    pub fn give_back(&mut self, inlet: Inlet) {
        self.lines.give_back(inlet.line);
    }
}

/// The receiving end of a line.
#[derive(Debug)]
pub struct Inlet {
    line: OwnLine,
}

impl Inlet {
    /// How the sender is told of it.
    #[must_use]
    pub fn name(&self) -> InletName {
        let name = self.line.to_name();
        [name.place, u64::from(name.stamp)]
    }

    /// The message of `number` may be written to a place, and the peer is woken if it sleeps.
    #[inline]
    pub fn open(&self, fabric: &mut Fabric, peer: Peer, number: u64, place: ReceiveRegion) {
        let (line, word) = self.line.word(number);
        line.offer(word, place.0.to_words());
        fabric.nudge(peer);
    }

    /// Nobody writes there. `false`: the sender has claimed the gate; [`written`](Self::written) says when it is done.
    #[must_use]
    pub fn revoke(&self, number: u64) -> bool {
        let (line, word) = self.line.word(number);
        line.revoke(word)
    }

    /// How many bytes were written, once they are there.
    #[inline(always)]
    #[must_use]
    pub fn written(&self, number: u64) -> Option<u64> {
        let (line, word) = self.line.word(number);
        line.is_written(word)
            .then(|| line.noted(word).unwrap_or_default())
    }
}

/// The memory of a receive, as the sending peer reaches it.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRegion(RemoteKey);

impl ReceiveRegion {
    /// For memory of this process. `None`: the peer cannot write there.
    pub fn new(fabric: &mut Fabric, peer: Peer, address: u64, bytes: u64) -> Option<Self> {
        let is_reached = bytes == 0 || fabric.reaches_directly(peer, address, bytes);
        is_reached.then(|| Self(fabric.export(peer, address, bytes)))
    }
}

/// The sending end of a line.
#[derive(Debug)]
pub struct Outlet {
    line: &'static GateLine,
    stamp: u32,
    /// The place that was offered last, and where it is mapped here.
    known: (RemoteKey, Option<MemorySpan>),
}

/// The outcome of sending through a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// It is where it belongs.
    Done,
    /// The gate is not open.
    Closed,
    /// The gate is open, but the message is too long for it, or the place cannot be reached.
    Barred,
}

impl Outlet {
    /// The other end of an inlet. `None`: the name makes no sense, or its memory is not mapped here.
    pub fn find(fabric: &mut Fabric, peer: Peer, [place, stamp]: InletName) -> Option<Self> {
        let stamp = u32::try_from(stamp).ok()?;
        let line = fabric.line_of(peer, place)?;
        (1..=MOST_STAMPS).contains(&stamp).then_some(Self {
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
        // The words are those of this number if nobody else has taken it since.
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
