// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues of one class of one pair of ranks: which starts there were, which gates are open, what is kept. Numbers
//! alone decide; no bytes are moved here but those that are kept.

use std::collections::VecDeque;

use crate::layout::{Layouts, MOST_PIECES};
use crate::line::{ArrivalWord, BoundLine, MOST_LINES};
use crate::wire::{ReceiveGate, StartQueueName};
use transport::Peer;

/// Both directions between this process and a peer, in one context and class.
#[derive(Debug)]
pub(crate) struct ChannelClass {
    pub(crate) peer: Peer,
    pub(crate) name: StartQueueName,
    /// Whether a handle of this process was declared for it.
    pub(crate) is_declared: bool,
    /// The peer is lost.
    pub(crate) is_dead: bool,
    /// The peer starts nothing more: how many sends and receives it has started.
    pub(crate) left: Option<Started>,
    /// A send has asked for news of the peer.
    pub(crate) has_asked: bool,
    /// Sizes of a message that was complete here before its receive was there, for which it is too long: nobody was told yet.
    pub(crate) refused: Option<SizeMismatch>,
    /// Its handles.
    pub(crate) handles: Vec<u32>,
    pub(crate) out: SendSide,
    pub(crate) into: ReceiveSide,
}

/// Starts in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) sends: u64,
    pub(crate) receives: u64,
}

/// The sizes of a message and of the receive that it does not fit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeMismatch {
    pub(crate) message: u64,
    pub(crate) room: u64,
}

/// The sending direction of a class.
#[derive(Debug, Default)]
pub(crate) struct SendSide {
    /// Sends that were started; the number of the next.
    pub(crate) started: u64,
    /// Receives of the peer that are known to have been started.
    pub(crate) heard: u64,
    /// The number of the next gate, at least.
    next_gate: u64,
    gates: VecDeque<(u64, ReceiveGate)>,
    /// Lines of the peer's receives.
    lines: Vec<BoundLine>,
    /// Where those have their blocks that are not one stretch.
    pub(crate) layouts: Layouts,
    /// The transport has room to remember all of them.
    is_expected: bool,
}

/// What was done with a gate that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateDisposition {
    /// It waits for its send.
    Kept,
    /// Its send was started.
    Started,
    /// It makes no sense.
    Refused,
}

/// The receiving direction of a class.
#[derive(Debug, Default)]
pub(crate) struct ReceiveSide {
    /// Receives that were started (or opened); the number of the next.
    pub(crate) started: u64,
    /// As many of them the peer knows of.
    told: u64,
    /// Those that wait, with their handles.
    open: Vec<(u64, u32)>,
    /// Messages that came before their receive was started, by the low bits of their number.
    /// Receives that have lines.
    pub(crate) lines: usize,
    kept: Box<[Option<KeptMessage>]>,
    bytes: Box<[u8]>,
}

/// A message that came before its receive was started.
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
            has_asked: false,
            refused: None,
            handles: Vec::new(),
            out: SendSide::default(),
            into: ReceiveSide::default(),
        }
    }
}

impl SendSide {
    /// Room for what is told of as many receives as there are sends.
    pub(crate) fn prepare(&mut self, handles: usize) {
        let gates = handles.max(USUAL_GATES);
        self.gates.reserve(gates.saturating_sub(self.gates.len()));
        self.lines
            .reserve(MOST_LINES.saturating_sub(self.lines.len()));
        self.layouts.prepare();
    }

    /// Places of the peer that lines and layouts name at most; asked for a second time, none.
    pub(crate) fn expect_places(&mut self) -> usize {
        let is_first = !std::mem::replace(&mut self.is_expected, true);
        if is_first { MOST_PLACES } else { 0 }
    }

    /// The next number.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> u64 {
        self.started += 1;
        self.started - 1
    }

    /// Whether a message may travel before its gate: the peer has room to keep it.
    pub(crate) fn has_credit(&self, number: u64) -> bool {
        number < self.heard + WINDOW as u64
    }

    /// The peer has started so many receives.
    pub(crate) fn hear(&mut self, started: u64) -> bool {
        let plausible = started <= self.started;
        if plausible {
            self.heard = self.heard.max(started);
        }
        plausible
    }

    /// A number near those of the next gates.
    pub(crate) fn near(&self) -> u64 {
        self.next_gate
    }

    /// A gate has come. `is_waiting`: whether the send of a number that was started waits for it.
    pub(crate) fn take_gate(
        &mut self,
        number: u64,
        gate: ReceiveGate,
        is_waiting: impl FnOnce() -> bool,
    ) -> GateDisposition {
        let far = number > self.started.max(self.next_gate) + MOST_GATES as u64;
        if number < self.next_gate || far || self.gates.len() == MOST_GATES {
            return GateDisposition::Refused;
        }
        self.next_gate = number + 1;
        self.heard = self.heard.max(number + 1);
        if number < self.started && !is_waiting() {
            return GateDisposition::Started;
        }
        self.gates.push_back((number, gate));
        GateDisposition::Kept
    }

    /// A line is bound, also in the place of an older one. `false`: there are too many.
    pub(crate) fn bind(&mut self, bound: BoundLine, place: u64) -> bool {
        self.forget(place);
        let fits = self.lines.len() < MOST_LINES;
        if fits {
            self.lines.push(bound);
        }
        fits
    }

    /// A line is not bound any more, if it was.
    pub(crate) fn forget(&mut self, place: u64) {
        self.lines.retain(|bound| !bound.is_at(place));
    }

    /// A line by its place in the list.
    pub(crate) fn bound(&self, at: usize) -> Option<&BoundLine> {
        self.lines.get(at)
    }

    /// The line that is open for a number, looked for at `hint` first; with its place in the list.
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

    /// Whether anything was heard of receives of the peer.
    pub(crate) fn has_heard(&self) -> bool {
        self.next_gate > 0 || self.heard > 0
    }

    /// The gate of a number.
    pub(crate) fn gate(&self, number: u64) -> Option<ReceiveGate> {
        self.gates
            .iter()
            .find(|(of, _)| *of == number)
            .map(|(_, gate)| *gate)
    }

    /// The send of a number has gone through its gate.
    pub(crate) fn pass(&mut self, number: u64) {
        if let Some(at) = self.gates.iter().position(|(of, _)| *of == number) {
            self.gates.remove(at);
        }
    }
}

impl ReceiveSide {
    /// Room for what comes early, and for the receives of `handles` handles that wait.
    pub(crate) fn prepare(&mut self, handles: usize) {
        self.open.reserve(handles.saturating_sub(self.open.len()));
        if self.kept.is_empty() {
            self.kept = vec![None; WINDOW].into();
            self.bytes = vec![0; WINDOW * EAGER_BYTES].into();
        }
    }

    /// The next number.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> u64 {
        self.started += 1;
        self.started - 1
    }

    /// A receive waits.
    pub(crate) fn wait(&mut self, number: u64, handle: u32) {
        self.open.push((number, handle));
    }

    /// The handle that waits for a number.
    pub(crate) fn waiting(&self, number: u64) -> Option<u32> {
        self.open
            .iter()
            .find(|(of, _)| *of == number)
            .map(|(_, handle)| *handle)
    }

    /// It does not wait any more.
    pub(crate) fn end(&mut self, number: u64) {
        if let Some(at) = self.open.iter().position(|(of, _)| *of == number) {
            self.open.swap_remove(at);
        }
    }

    /// The peer knows of so many receives, by a gate.
    pub(crate) fn tell(&mut self, started: u64) {
        self.told = self.told.max(started);
    }

    /// How many the peer should be told of now, since it may have nothing else to learn it by.
    pub(crate) fn untold(&mut self) -> Option<u64> {
        let due = self.started - self.told >= WINDOW as u64 / 2;
        if due {
            self.told = self.started;
        }
        due.then_some(self.started)
    }

    /// Room for a message of a receive that was not started: `None` if it may not be.
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

    /// The message of a number, if it came early; it is not kept any more.
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

/// Messages up to this many bytes travel before their gate is known.
pub(crate) const EAGER_BYTES: usize = 4096;
/// As many of them a receiver keeps.
pub(crate) const WINDOW: usize = 8;
/// Gates that a class has room for without asking for more memory, and at most.
const USUAL_GATES: usize = 32;
/// A line and its memory, and the pieces of layouts.
const MOST_PLACES: usize = 2 * MOST_LINES + MOST_PIECES;
const MOST_GATES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(token: u32) -> ReceiveGate {
        ReceiveGate {
            bytes: 8,
            key: crate::RemoteKey::default(),
            token,
            line: None,
            is_landing: false,
            layout: None,
        }
    }

    #[test]
    fn gates_wait_for_their_sends_or_find_them_gone() {
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
    fn gates_that_come_twice_or_from_far_are_refused_and_so_is_a_flood() {
        let mut out = SendSide::default();
        let mut take = |number| out.take_gate(number, gate(0), || false);
        assert_eq!(take(3), GateDisposition::Kept);
        assert_eq!(
            (take(3), take(0)),
            (GateDisposition::Refused, GateDisposition::Refused)
        );
        assert_eq!(take(1 << 20), GateDisposition::Refused);
        for number in 4..2 + MOST_GATES as u64 {
            assert_eq!(take(number), GateDisposition::Kept, "{number}");
        }
        assert_eq!(take(3 + MOST_GATES as u64), GateDisposition::Kept);
        assert_eq!(take(4 + MOST_GATES as u64), GateDisposition::Refused);
    }

    #[test]
    fn credit_follows_the_receives_that_were_heard_of() {
        let mut out = SendSide::default();
        let window = WINDOW as u64;
        assert!(out.has_credit(window - 1) && !out.has_credit(window));
        for _ in 0..window {
            out.start();
        }
        assert!(!out.hear(window + 1), "nobody receives what was not sent");
        assert!(out.hear(3) && out.has_credit(window + 2) && !out.has_credit(window + 3));
    }

    #[test]
    fn what_comes_early_is_kept_once_and_within_the_window() {
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
        assert_eq!(into.untold(), None);
        for _ in 0..WINDOW / 2 {
            into.start();
        }
        assert_eq!(into.untold(), Some(WINDOW as u64 / 2 + 2));
        assert_eq!(into.untold(), None);
    }
}
