// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gates between ranks of one node: from the third start of a receive on, its gate is opened by a gate line in shared
//! memory instead of a frame.
//!
//! Each receive whose sender is on this node has a gate line. The first two starts of the receive open the gate by a
//! frame; the second frame also contains the location of the line. The sender looks up the line and the mapped memory
//! of the receive once, and records both: the line is *bound*. From then on the receiver opens the gate by a store to
//! the line, and the sender completes the receive by another store. A line belongs to one receive and one memory. When
//! the receive is freed or its memory is replaced, the receiver sends a FORGET, and the next user of the line has
//! another stamp in its numbers.

use ring::GateLine;

use crate::layout::{Layouts, RemoteBlocks};
use crate::memory::MemorySpan;
use crate::wire::{LineName, ReceiveGate};
use transport::{Fabric, Peer, RemoteKey};

/// A gate line of a receive of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnLine {
    line: &'static GateLine,
    name: u64,
    stamp: u32,
    /// Whether the location of the line was sent to the sender.
    pub(crate) is_announced: bool,
}

impl OwnLine {
    /// The name of the line, to be sent to the sender.
    pub(crate) fn to_name(self) -> LineName {
        LineName {
            place: self.name,
            stamp: self.stamp,
        }
    }

    /// Opens the gate for start `number`.
    #[inline(always)]
    pub(crate) fn open(&self, number: u64) {
        self.line.open(stamped(self.stamp, number));
    }

    pub(crate) fn cursor(self) -> LineCursor {
        LineCursor::new(self.line, self.stamp)
    }

    /// Whether the message of start `number` was written.
    #[inline(always)]
    pub(crate) fn is_written(&self, number: u64) -> bool {
        self.line.is_written(stamped(self.stamp, number))
    }

    /// The sender's note about the message of start `number`, if there is one.
    pub(crate) fn noted(&self, number: u64) -> Option<GateNote> {
        self.line.noted(stamped(self.stamp, number)).map(GateNote)
    }

    /// The line itself, and the word of start `number`, for revocable gates.
    #[inline(always)]
    pub(crate) fn word(&self, number: u64) -> (&'static GateLine, u64) {
        (self.line, stamped(self.stamp, number))
    }
}

/// A sender's note about a message that does not fill the memory of the gate: the length, and whether the bytes are in
/// the blocks of the receive instead. The gate line contains the note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateNote(u64);

impl GateNote {
    /// A note for a message of `bytes` bytes. `is_direct`: whether the bytes are in the blocks of the receive.
    pub(crate) fn new(bytes: usize, is_direct: bool) -> Self {
        Self(bytes as u64 | u64::from(is_direct) << 63)
    }

    /// Maximum number of bytes of the message that are in the memory of the gate; 0 if they are in the blocks of the
    /// receive.
    pub(crate) fn staged(self) -> usize {
        let is_direct = self.0 >> 63 != 0;
        let bytes = usize::try_from(self.0).unwrap_or(usize::MAX);
        if is_direct { 0 } else { bytes }
    }
}

/// Unused gate lines of this process.
#[derive(Debug, Default)]
pub(crate) struct SpareLines {
    spare: Vec<(&'static GateLine, u64)>,
    stamps: u32,
}

impl SpareLines {
    /// Takes an unused gate line, and gives it a new stamp. `None`: there is no shared memory for it.
    pub(crate) fn take(&mut self, fabric: &mut Fabric) -> Option<OwnLine> {
        if self.spare.is_empty() {
            self.spare = fabric.make_lines();
        }
        let (line, name) = self.spare.pop()?;
        self.stamps = self.stamps % STAMPS_MAX + 1;
        Some(OwnLine {
            line,
            name,
            stamp: self.stamps,
            is_announced: false,
        })
    }

    pub(crate) fn give_back(&mut self, line: OwnLine) {
        self.spare.push((line.line, line.name));
    }
}

/// A gate line and the number of its last start, for a list ([`crate::list`]). Each start of the list advances the
/// number by a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineCursor {
    line: &'static GateLine,
    /// The word of the last start; before the first start, that of the first start minus `step`.
    word: u64,
    step: u64,
}

impl LineCursor {
    fn new(line: &'static GateLine, stamp: u32) -> Self {
        Self {
            line,
            word: stamped(stamp, 0),
            step: 0,
        }
    }

    /// Sets the number of the next start, and the increment from start to start.
    pub(crate) fn set_next(&mut self, number: u64, step: u64) {
        // The subtraction of a step below may change the stamp in `word`; the addition of the step here restores it.
        let stamp = self.word.wrapping_add(self.step) & !NUMBER_MASK;
        self.step = step;
        self.word = (stamp | number & NUMBER_MASK).wrapping_sub(step);
    }

    /// Number of the last start.
    pub(crate) fn number(&self) -> u64 {
        self.word & NUMBER_MASK
    }

    /// Advances past a start that does not use the line of this cursor.
    pub(crate) fn skip(&mut self) {
        self.word = self.word.wrapping_add(self.step);
    }

    /// Receiver: whether the message of the last start was written.
    #[inline(always)]
    pub(crate) fn is_written(&self) -> bool {
        self.line.is_written(self.word)
    }

    /// Receiver: the sender's note about the message of the last start, if there is one.
    pub(crate) fn noted(&self) -> Option<GateNote> {
        self.line.noted(self.word).map(GateNote)
    }

    /// Receiver: opens the gate for the next start.
    #[inline(always)]
    pub(crate) fn open(&mut self) {
        self.word = self.word.wrapping_add(self.step);
        self.line.open(self.word);
    }

    /// Sender: begins the next start if the gate is open for it. Returns the word that completes the message.
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

/// A gate line of a peer, with the memory of its receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundLine {
    line: &'static GateLine,
    place: u64,
    stamp: u32,
    pub(crate) bytes: u64,
    pub(crate) key: RemoteKey,
    /// Whether the memory is a staging buffer of the receiver.
    pub(crate) is_staging: bool,
    /// Handle of the receive in the receiving process, if the layout of its blocks was sent.
    pub(crate) layout: Option<u32>,
    /// Where the memory is mapped here; `None`: only the kernel can access it.
    pub(crate) span: Option<MemorySpan>,
}

/// The word by which a sender completes a message on a gate line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalWord {
    line: &'static GateLine,
    word: u64,
}

impl ArrivalWord {
    #[inline(always)]
    pub(crate) fn publish(self) {
        self.line.signal_written(self.word);
    }

    /// Adds a note, before the word is published.
    pub(crate) fn note(self, note: GateNote) {
        self.line.note(self.word, note.0);
    }
}

impl BoundLine {
    /// Looks up the line of a gate. `None`: the line is not mapped here.
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
            is_staging: gate.is_staging,
            layout: gate.layout,
            span: MemorySpan::of_peer(fabric, peer, gate.key),
        })
    }

    /// The word that completes message `number`, if the gate is open for it.
    #[inline(always)]
    pub(crate) fn open_for(&self, number: u64) -> Option<ArrivalWord> {
        let word = stamped(self.stamp, number);
        let line = self.line;
        line.is_open(word).then_some(ArrivalWord { line, word })
    }

    pub(crate) fn cursor(&self) -> LineCursor {
        LineCursor::new(self.line, self.stamp)
    }

    /// The block layout of the receive, if it is known.
    pub(crate) fn blocks<'a>(&self, layouts: &'a Layouts) -> Option<&'a [RemoteBlocks]> {
        layouts.of(self.layout?, self.bytes)
    }

    /// Whether the line is at this location.
    pub(crate) fn is_at(&self, place: u64) -> bool {
        self.place == place
    }
}

/// The word of a start number in a gate line; never 0, because a stamp is never 0.
#[inline(always)]
pub(crate) fn stamped(stamp: u32, number: u64) -> u64 {
    u64::from(stamp) << NUMBER_BITS | (number & NUMBER_MASK)
}

const NUMBER_BITS: u32 = 44;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Stamps have 20 bits and are not 0.
pub(crate) const STAMPS_MAX: u32 = (1 << 20) - 1;
/// Maximum number of gate lines of a class; further receives use frames.
pub(crate) const LINES_MAX: usize = 64;
