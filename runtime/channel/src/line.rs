// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gates between ranks of one node: a line of memory that both reach instead of a frame for each start.
//!
//! Each receive whose sender is on this node has a line of its own. Its first start is told by a frame; so is the second, which
//! also says where the line is. The sender finds it and the memory behind it once, and remembers both: the line is *bound*. From
//! then on the receiver's start is a store there, and so is the sender's word that the bytes are in their place. A line is of
//! one receive and one memory; when that changes the sender is told to forget it, and the stamp in its numbers changes.

use ring::GateLine;

use crate::layout::{Layouts, RemoteBlocks};
use crate::memory::MemorySpan;
use crate::wire::{LineName, ReceiveGate};
use transport::{Fabric, Peer, RemoteKey};

/// A line of a receive of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnLine {
    line: &'static GateLine,
    name: u64,
    stamp: u32,
    /// The sender knows it.
    pub(crate) is_told: bool,
}

impl OwnLine {
    /// How the sender is told of it.
    pub(crate) fn to_name(self) -> LineName {
        LineName {
            place: self.name,
            stamp: self.stamp,
        }
    }

    /// The start of this number may be written.
    #[inline(always)]
    pub(crate) fn open(&self, number: u64) {
        self.line.open(stamped(self.stamp, number));
    }

    pub(crate) fn ticket(self) -> Ticket {
        Ticket::new(self.line, self.stamp)
    }

    /// Whether it was.
    #[inline(always)]
    pub(crate) fn is_written(&self, number: u64) -> bool {
        self.line.is_written(stamped(self.stamp, number))
    }

    /// What the sender has said about it.
    pub(crate) fn noted(&self, number: u64) -> Option<GateNote> {
        self.line.noted(stamped(self.stamp, number)).map(GateNote)
    }

    /// The line itself, and how a number stands in it, for gates that are claimed.
    #[inline(always)]
    pub(crate) fn word(&self, number: u64) -> (&'static GateLine, u64) {
        (self.line, stamped(self.stamp, number))
    }
}

/// A sender's note about a message that does not simply fill its receive, in the place that the gate names: its bytes, and
/// whether they lie in the blocks of the receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateNote(u64);

impl GateNote {
    /// Of a message of so many bytes. `is_direct`: they lie in the blocks of the receive.
    pub(crate) fn new(bytes: usize, is_direct: bool) -> Self {
        Self(bytes as u64 | u64::from(is_direct) << 63)
    }

    /// Bytes that lie in the place of the gate, at most.
    pub(crate) fn landed(self) -> usize {
        let is_direct = self.0 >> 63 != 0;
        let bytes = usize::try_from(self.0).unwrap_or(usize::MAX);
        if is_direct { 0 } else { bytes }
    }
}

/// Gate lines of this process that no receive uses.
#[derive(Debug, Default)]
pub(crate) struct SpareLines {
    spare: Vec<(&'static GateLine, u64)>,
    stamps: u32,
}

impl SpareLines {
    /// A line, if there are any on this node.
    pub(crate) fn take(&mut self, fabric: &mut Fabric) -> Option<OwnLine> {
        if self.spare.is_empty() {
            self.spare = fabric.make_lines();
        }
        let (line, name) = self.spare.pop()?;
        self.stamps = self.stamps % MOST_STAMPS + 1;
        Some(OwnLine {
            line,
            name,
            stamp: self.stamps,
            is_told: false,
        })
    }

    pub(crate) fn give_back(&mut self, line: OwnLine) {
        self.spare.push((line.line, line.name));
    }
}

/// A line and the number of its next start, where each start of a list adds the same to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    line: &'static GateLine,
    /// Of the last start, as it stands in the line.
    word: u64,
    step: u64,
}

impl Ticket {
    fn new(line: &'static GateLine, stamp: u32) -> Self {
        Self {
            line,
            word: stamped(stamp, 0),
            step: 0,
        }
    }

    /// Its next start has this number, and each further one `step` more.
    pub(crate) fn set_next(&mut self, number: u64, step: u64) {
        // The word before the first start may be that of another stamp.
        let stamp = self.word.wrapping_add(self.step) & !NUMBER_MASK;
        self.step = step;
        self.word = (stamp | number & NUMBER_MASK).wrapping_sub(step);
    }

    /// The number of the last start.
    pub(crate) fn number(&self) -> u64 {
        self.word & NUMBER_MASK
    }

    /// The next start happens elsewhere.
    pub(crate) fn skip(&mut self) {
        self.word = self.word.wrapping_add(self.step);
    }

    /// Receiver: whether the bytes of the last start are there.
    #[inline(always)]
    pub(crate) fn is_written(&self) -> bool {
        self.line.is_written(self.word)
    }

    /// Receiver: what the sender has said about the last start.
    pub(crate) fn noted(&self) -> Option<GateNote> {
        self.line.noted(self.word).map(GateNote)
    }

    /// Receiver: opens the gate for the next start.
    #[inline(always)]
    pub(crate) fn open(&mut self) {
        self.word = self.word.wrapping_add(self.step);
        self.line.open(self.word);
    }

    /// Sender: what to say at the end of the next start, if the gate is open for it.
    #[inline(always)]
    pub(crate) fn pass(&mut self) -> Option<ArrivalWord> {
        let (line, word) = (self.line, self.word.wrapping_add(self.step));
        if !line.is_open(word) {
            return None;
        }
        self.word = word;
        Some(ArrivalWord { line, word })
    }
}

/// A gate line of a peer, with the receive buffer that it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundLine {
    line: &'static GateLine,
    place: u64,
    stamp: u32,
    pub(crate) bytes: u64,
    pub(crate) key: RemoteKey,
    /// The memory is a place from where the receiver copies.
    pub(crate) is_landing: bool,
    /// The owner of the blocks behind it, if they were told.
    pub(crate) layout: Option<u32>,
    /// Where the memory is mapped here; `None`: only the system reaches it.
    pub(crate) span: Option<MemorySpan>,
}

/// The word that a sender writes into a line when the bytes are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalWord {
    line: &'static GateLine,
    word: u64,
}

impl ArrivalWord {
    #[inline(always)]
    pub(crate) fn tell(self) {
        self.line.signal_written(self.word);
    }

    /// Says something about them before.
    pub(crate) fn note(self, note: GateNote) {
        self.line.note(self.word, note.0);
    }
}

impl BoundLine {
    /// Finds what a gate names. `None`: it cannot be reached.
    pub(crate) fn find(
        fabric: &mut Fabric,
        peer: Peer,
        gate: &ReceiveGate,
        name: LineName,
    ) -> Option<Self> {
        let line = fabric.line_of(peer, name.place)?;
        Some(Self {
            line,
            place: name.place,
            stamp: name.stamp,
            bytes: gate.bytes,
            key: gate.key,
            is_landing: gate.is_landing,
            layout: gate.layout,
            span: MemorySpan::of_peer(fabric, peer, gate.key),
        })
    }

    /// Whether it is open for a number, and what to say then.
    #[inline(always)]
    pub(crate) fn open_for(&self, number: u64) -> Option<ArrivalWord> {
        let word = stamped(self.stamp, number);
        let line = self.line;
        line.is_open(word).then_some(ArrivalWord { line, word })
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket::new(self.line, self.stamp)
    }

    /// The blocks behind it, if they are known.
    pub(crate) fn blocks<'a>(&self, layouts: &'a Layouts) -> Option<&'a [RemoteBlocks]> {
        layouts.of(self.layout?, self.bytes)
    }

    /// Whether it is at this place.
    pub(crate) fn is_at(&self, place: u64) -> bool {
        self.place == place
    }
}

/// The number of a start as it stands in a line: never 0.
#[inline(always)]
pub(crate) fn stamped(stamp: u32, number: u64) -> u64 {
    u64::from(stamp) << NUMBER_BITS | (number & NUMBER_MASK)
}

const NUMBER_BITS: u32 = 44;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Stamps have 20 bits, of which not all are zero.
pub(crate) const MOST_STAMPS: u32 = (1 << 20) - 1;
/// Lines that a class has at most; receives beyond have frames.
pub(crate) const MOST_LINES: usize = 64;
