// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues of one class of a pair of ranks: starts, open gates and buffered messages, by start number. Only eager
//! messages are copied here.

use std::collections::VecDeque;

use crate::layout::{CLASS_PIECES_MAX, Layouts};
use crate::line::{ArrivalWord, BoundLine, LINES_MAX};
use crate::wire::{ReceiveGate, StartQueueName};
use transport::Peer;

/// Both directions between this process and a peer, in one context and class.
#[derive(Debug)]
pub(crate) struct ChannelClass {
    pub(crate) peer: Peer,
    pub(crate) name: StartQueueName,
    /// Whether this process has declared an end in this class.
    pub(crate) is_declared: bool,
    /// Whether the peer is lost.
    pub(crate) is_dead: bool,
    /// The numbers of sends and receives that the peer had started when it left the context; `None`: it has not left.
    pub(crate) left: Option<Started>,
    /// Whether a QUERY was sent to the peer.
    pub(crate) has_queried: bool,
    /// If an eager message turned out to be too long for its receive, and its send had already been collected: the
    /// sizes of the message and the receive. The next send that is collected returns the error.
    pub(crate) refused: Option<SizeMismatch>,
    /// Indices of the ends of this class in the table of all ends.
    pub(crate) handles: Vec<u32>,
    pub(crate) out: SendSide,
    pub(crate) into: ReceiveSide,
}

/// Numbers of starts in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) sends: u64,
    pub(crate) receives: u64,
}

/// Sizes in bytes of a message and of its receive, if the receive is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeMismatch {
    pub(crate) message: u64,
    pub(crate) room: u64,
}

/// The sending direction of a class.
#[derive(Debug, Default)]
pub(crate) struct SendSide {
    /// Number of sends started, which is also the start number of the next send.
    pub(crate) started: u64,
    /// Number of receives that the peer is known to have started.
    pub(crate) receives_known: u64,
    /// Lower bound of the start number of the next gate that arrives.
    next_gate: u64,
    gates: VecDeque<(u64, ReceiveGate)>,
    /// Gate lines of the peer's receives.
    lines: Vec<BoundLine>,
    /// Block layouts of the peer's receives that are not contiguous.
    pub(crate) layouts: Layouts,
    /// Whether the transport was given the number of locations to expect.
    is_expected: bool,
}

/// What was done with a received gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateDisposition {
    /// Kept until its send starts.
    Kept,
    /// Dropped: its send has started and does not wait for it.
    Started,
    /// Invalid.
    Refused,
}

/// The receiving direction of a class.
#[derive(Debug, Default)]
pub(crate) struct ReceiveSide {
    /// Number of receives started, which is also the start number of the next receive.
    pub(crate) started: u64,
    /// The number of started receives as last reported to the peer.
    reported: u64,
    /// Start numbers and handles of the receives that wait for their messages.
    open: Vec<(u64, u32)>,
    /// Number of receives that have gate lines.
    pub(crate) lines: usize,
    /// Messages that arrived before their receive was started, at the index given by the low bits of their number.
    /// `bytes` has their contents.
    kept: Box<[Option<KeptMessage>]>,
    bytes: Box<[u8]>,
}

/// A message that arrived before its receive was started.
#[derive(Clone, Copy, Debug)]
struct KeptMessage {
    number: u64,
    bytes: usize,
}

impl ChannelClass {
    pub(crate) fn new(peer: Peer, name: StartQueueName) -> Self {
        Self {
            peer,
            name,
            is_declared: false,
            is_dead: false,
            left: None,
            has_queried: false,
            refused: None,
            handles: Vec::new(),
            out: SendSide::default(),
            into: ReceiveSide::default(),
        }
    }
}

impl SendSide {
    /// Reserves memory for `handles` gates, and for gate lines and layouts.
    pub(crate) fn prepare(&mut self, handles: usize) {
        let gates = handles.max(USUAL_GATES);
        self.gates.reserve(gates.saturating_sub(self.gates.len()));
        self.lines
            .reserve(LINES_MAX.saturating_sub(self.lines.len()));
        self.layouts.prepare();
    }

    /// Maximum number of locations in the peer's memory that gate lines and layouts name; 0 from the second call on.
    pub(crate) fn expect_places(&mut self) -> usize {
        let is_first = !std::mem::replace(&mut self.is_expected, true);
        if is_first { PLACES_MAX } else { 0 }
    }

    /// Takes the next start number.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> u64 {
        self.started += 1;
        self.started - 1
    }

    /// Whether message `number` may be sent eagerly: the peer has a buffer for it.
    pub(crate) fn has_credit(&self, number: u64) -> bool {
        number < self.receives_known + WINDOW as u64
    }

    /// Records that the peer has started this many receives. `false`: the number is invalid, because fewer sends were
    /// started here.
    pub(crate) fn note_receives(&mut self, started: u64) -> bool {
        let plausible = started <= self.started;
        if plausible {
            self.receives_known = self.receives_known.max(started);
        }
        plausible
    }

    /// A number close to the start numbers of the next gates.
    pub(crate) fn near(&self) -> u64 {
        self.next_gate
    }

    /// Handles a gate. `is_waiting` is called if the send of this number was started; it returns whether the send waits
    /// for the gate.
    pub(crate) fn take_gate(
        &mut self,
        number: u64,
        gate: ReceiveGate,
        is_waiting: impl FnOnce() -> bool,
    ) -> GateDisposition {
        let far = number > self.started.max(self.next_gate) + GATES_MAX as u64;
        if number < self.next_gate || far || self.gates.len() == GATES_MAX {
            return GateDisposition::Refused;
        }
        self.next_gate = number + 1;
        self.receives_known = self.receives_known.max(number + 1);
        if number < self.started && !is_waiting() {
            return GateDisposition::Started;
        }
        self.gates.push_back((number, gate));
        GateDisposition::Kept
    }

    /// Binds a gate line. It replaces an older one at this location. `false`: too many lines are bound.
    pub(crate) fn bind(&mut self, bound: BoundLine, place: u64) -> bool {
        self.forget(place);
        let fits = self.lines.len() < LINES_MAX;
        if fits {
            self.lines.push(bound);
        }
        fits
    }

    /// Unbinds a gate line, if it is bound.
    pub(crate) fn forget(&mut self, place: u64) {
        self.lines.retain(|bound| !bound.is_at(place));
    }

    /// The bound line at an index.
    pub(crate) fn bound(&self, at: usize) -> Option<&BoundLine> {
        self.lines.get(at)
    }

    /// The gate line that is open for send `number`, with its index and the word that completes the message. `hint` is
    /// the index to try first.
    #[inline(always)]
    pub(crate) fn open_line(
        &self,
        number: u64,
        hint: Option<usize>,
    ) -> Option<(usize, BoundLine, ArrivalWord)> {
        if let Some(at) = hint
            && let Some(bound) = self.lines.get(at)
            && let Some(word) = bound.open_for(number)
        {
            return Some((at, *bound, word));
        }
        self.find_open_line(number)
    }

    #[inline(never)]
    fn find_open_line(&self, number: u64) -> Option<(usize, BoundLine, ArrivalWord)> {
        let all = self.lines.iter().enumerate();
        all.filter_map(|(at, bound)| Some((at, *bound, bound.open_for(number)?)))
            .next()
    }

    /// Whether the peer is known to have started a receive.
    pub(crate) fn has_known_receives(&self) -> bool {
        self.next_gate > 0 || self.receives_known > 0
    }

    /// The recorded gate of start `number`.
    pub(crate) fn gate(&self, number: u64) -> Option<ReceiveGate> {
        self.gates
            .iter()
            .find(|(of, _)| *of == number)
            .map(|(_, gate)| *gate)
    }

    /// Removes the gate of start `number`, which its send has used.
    pub(crate) fn pass(&mut self, number: u64) {
        if let Some(at) = self.gates.iter().position(|(of, _)| *of == number) {
            self.gates.remove(at);
        }
    }
}

impl ReceiveSide {
    /// Reserves memory for eager messages, and for `handles` waiting receives.
    pub(crate) fn prepare(&mut self, handles: usize) {
        self.open.reserve(handles.saturating_sub(self.open.len()));
        if self.kept.is_empty() {
            self.kept = vec![None; WINDOW].into();
            self.bytes = vec![0; WINDOW * EAGER_BYTES].into();
        }
    }

    /// Takes the next start number.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> u64 {
        self.started += 1;
        self.started - 1
    }

    /// Adds a waiting receive.
    pub(crate) fn wait(&mut self, number: u64, handle: u32) {
        self.open.push((number, handle));
    }

    /// The handle of the waiting receive with this start number.
    pub(crate) fn waiting(&self, number: u64) -> Option<u32> {
        self.open
            .iter()
            .find(|(of, _)| *of == number)
            .map(|(_, handle)| *handle)
    }

    /// Removes a waiting receive.
    pub(crate) fn end(&mut self, number: u64) {
        if let Some(at) = self.open.iter().position(|(of, _)| *of == number) {
            self.open.swap_remove(at);
        }
    }

    /// Records that a gate, sent to the peer, has reported this many started receives.
    pub(crate) fn mark_reported(&mut self, started: u64) {
        self.reported = self.reported.max(started);
    }

    /// If at least half of [`WINDOW`] receives were started since the last report: returns the number of started
    /// receives, to be reported to the peer now, and records it as reported. `None` otherwise.
    pub(crate) fn take_unreported(&mut self) -> Option<u64> {
        let due = self.started - self.reported >= WINDOW as u64 / 2;
        if due {
            self.reported = self.started;
        }
        due.then_some(self.started)
    }

    /// Reserves a buffer for message `number`, whose receive was not started yet. `None`: the number is out of range, a
    /// message of this number is buffered already, or the message is too long.
    pub(crate) fn keep(&mut self, number: u64, bytes: usize) -> Option<&mut [u8]> {
        let early = number.checked_sub(self.started)? < WINDOW as u64;
        if !early || bytes > EAGER_BYTES {
            return None;
        }
        self.prepare(0);
        let at = slot(number);
        let place = self.kept.get_mut(at).filter(|place| place.is_none())?;
        *place = Some(KeptMessage { number, bytes });
        self.bytes.get_mut(at * EAGER_BYTES..)?.get_mut(..bytes)
    }

    /// Takes the buffered message `number`, if there is one.
    pub(crate) fn take_kept(&mut self, number: u64) -> Option<&mut [u8]> {
        let at = slot(number);
        let place = self.kept.get_mut(at)?;
        let KeptMessage { bytes, .. } = place.take_if(|kept| kept.number == number)?;
        self.bytes.get_mut(at * EAGER_BYTES..)?.get_mut(..bytes)
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number % WINDOW as u64).unwrap_or(0)
}

/// Largest message, in bytes, that is sent before its gate is known.
pub(crate) const EAGER_BYTES: usize = 4096;
/// Maximum number of eager messages of one queue that a receiver buffers.
pub(crate) const WINDOW: usize = 8;
/// Number of gates for which a class always reserves memory.
const USUAL_GATES: usize = 32;
/// Maximum number of locations in a peer's memory that a class uses: each gate line and its memory, and the pieces of
/// layouts.
const PLACES_MAX: usize = 2 * LINES_MAX + CLASS_PIECES_MAX;
/// Maximum number of recorded gates of a class.
const GATES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(token: u32) -> ReceiveGate {
        ReceiveGate {
            bytes: 8,
            key: crate::RemoteKey::default(),
            token,
            line: None,
            is_staging: false,
            layout: None,
        }
    }

    #[test]
    fn gates_are_kept_for_their_send_or_find_it_started() {
        let mut out = SendSide::default();
        assert_eq!(out.take_gate(0, gate(7), || false), GateDisposition::Kept);
        assert_eq!(out.start(), 0);
        assert_eq!(out.gate(0), Some(gate(7)));
        out.pass(0);
        assert_eq!(out.gate(0), None);
        assert_eq!((out.start(), out.start()), (1, 2));
        assert_eq!(
            out.take_gate(1, gate(8), || false),
            GateDisposition::Started
        );
        assert_eq!(out.take_gate(2, gate(9), || true), GateDisposition::Kept);
        assert_eq!(out.gate(2), Some(gate(9)));
    }

    #[test]
    fn repeated_distant_and_excess_gates_are_refused() {
        let mut out = SendSide::default();
        let mut take = |number| out.take_gate(number, gate(0), || false);
        assert_eq!(take(3), GateDisposition::Kept);
        assert_eq!(
            (take(3), take(0)),
            (GateDisposition::Refused, GateDisposition::Refused)
        );
        assert_eq!(take(1 << 20), GateDisposition::Refused);
        for number in 4..2 + GATES_MAX as u64 {
            assert_eq!(take(number), GateDisposition::Kept, "{number}");
        }
        assert_eq!(take(3 + GATES_MAX as u64), GateDisposition::Kept);
        assert_eq!(take(4 + GATES_MAX as u64), GateDisposition::Refused);
    }

    #[test]
    fn credit_follows_the_reported_receives() {
        let mut out = SendSide::default();
        let window = WINDOW as u64;
        assert!(out.has_credit(window - 1) && !out.has_credit(window));
        for _ in 0..window {
            out.start();
        }
        assert!(!out.note_receives(window + 1), "more receives than sends");
        assert!(out.note_receives(3) && out.has_credit(window + 2) && !out.has_credit(window + 3));
    }

    #[test]
    fn early_messages_are_kept_once_within_the_window() {
        let mut into = ReceiveSide::default();
        into.keep(1, 3).unwrap().copy_from_slice(b"abc");
        assert!(into.keep(1, 3).is_none(), "twice");
        assert!(into.keep(WINDOW as u64, 1).is_none(), "too early");
        assert!(into.keep(0, EAGER_BYTES + 1).is_none(), "too long");
        assert!(into.take_kept(0).is_none());
        assert_eq!((into.start(), into.start()), (0, 1));
        assert!(into.keep(0, 1).is_none(), "too late");
        assert_eq!(into.take_kept(1).unwrap(), b"abc");
        assert!(into.take_kept(1).is_none());
        assert_eq!(into.take_unreported(), None);
        for _ in 0..WINDOW / 2 {
            into.start();
        }
        assert_eq!(into.take_unreported(), Some(WINDOW as u64 / 2 + 2));
        assert_eq!(into.take_unreported(), None);
    }
}
