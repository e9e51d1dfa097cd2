// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end: through the gate, ahead of it, or in frames.

use super::class::{Class, EAGER_BYTES, Passage};
use super::handle::Phase;
use super::line::{Bound, Word};
use super::memory::Span;
use super::wire::{self, Gate, LineName};
use super::{ChannelError, Channels, Direction, WORK_MARK};
use crate::{Arrived, Fabric, Outcome, WorkId};

impl Channels {
    /// A send has its number now, and goes if it can.
    pub(super) fn start_send(&mut self, fabric: &mut Fabric, index: u32) {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        handle.number = class.out.start();
        handle.phase = Phase::Pended;
        if class.is_dead {
            return handle.finish(Err(ChannelError::Lost));
        }
        let hint = handle.hint;
        if let Some((at, bound, word)) = class.out.open_line(handle.number, hint) {
            handle.hint = Some(at);
            return self.pass_line(fabric, index, &bound, word);
        }
        if !self.fire(fabric, index) {
            self.pended.push(index);
        }
    }

    /// Tries all sends that wait.
    pub(super) fn fire_pended(&mut self, fabric: &mut Fabric) {
        let mut at = 0;
        while at < self.pended.len() {
            let index = self.pended[at];
            if self.fire(fabric, index) {
                self.pended.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Whether only room in the transport keeps a send from going.
    pub(super) fn could_go(&self, index: u32) -> bool {
        let handle = self.handles.at(index);
        let out = &self.classes[handle.class as usize].out;
        let small = handle.memory.bytes() <= EAGER_BYTES && out.has_credit(handle.number);
        handle.phase != Phase::Pended || small || out.gate(handle.number).is_some()
    }

    /// Whether a line is open for a send that waits.
    pub(super) fn is_line_open(&self, index: u32) -> bool {
        let handle = self.handles.at(index);
        let out = &self.classes[handle.class as usize].out;
        let waits = handle.phase == Phase::Pended;
        waits && out.open_line(handle.number, handle.hint).is_some()
    }

    /// Sends as much as goes. `true`: it waits for nothing of ours any more.
    fn fire(&mut self, fabric: &mut Fabric, index: u32) -> bool {
        let handle = self.handles.at(index);
        if let Phase::Streaming(gone) = handle.phase {
            return self.stream(fabric, index, gone);
        }
        let out = &self.classes[handle.class as usize].out;
        if let Some((at, bound, word)) = out.open_line(handle.number, handle.hint) {
            self.handles.at_mut(index).hint = Some(at);
            self.pass_line(fabric, index, &bound, word);
            return true;
        }
        match out.gate(handle.number) {
            Some(gate) => self.pass_gate(fabric, index, gate),
            None => self.send_ahead(fabric, index),
        }
    }

    /// The gate is open, as a line says: copies to where it leads, and says so there.
    #[inline]
    fn pass_line(&mut self, fabric: &mut Fabric, index: u32, bound: &Bound, word: Word) {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let peer = class.peer;
        class.out.heard = class.out.heard.max(handle.number + 1);
        let bytes = handle.memory.bytes();
        match bound.span {
            _ if bound.bytes != bytes as u64 => self.differ(fabric, index),
            Some(span) => {
                handle.memory.gather(span);
                word.tell();
                fabric.nudge(peer);
                handle.finish(Ok(()));
                self.counters.direct_bytes += bytes as u64;
                self.counters.writes += 1;
            }
            None => self.write_beside(fabric, index, bound, word),
        }
    }

    /// The same where the system makes the copy.
    #[inline(never)]
    fn write_beside(&mut self, fabric: &mut Fabric, index: u32, bound: &Bound, word: Word) {
        let handle = self.handles.at_mut(index);
        let peer = self.classes[handle.class as usize].peer;
        let bytes = handle.memory.bytes();
        if let Some(landing) = &handle.landing {
            handle.memory.gather(landing.span());
        }
        handle.phase = Phase::Writing;
        handle.word = Some(word);
        let (lease, work) = (handle.span.lease(bytes), work_of(index));
        // Without an immediate there is always room.
        let _ = fabric.post_write(peer, lease, bound.key, 0, work, None);
        self.counters.writes += 1;
        self.counters.direct_bytes += bytes as u64;
    }

    /// The receive has another size.
    #[cold]
    fn differ(&mut self, fabric: &mut Fabric, index: u32) {
        let handle = self.handles.at_mut(index);
        let class = &self.classes[handle.class as usize];
        let (peer, bytes) = (class.peer, handle.memory.bytes() as u64);
        let head = wire::head(wire::DIFFER, class.name, handle.number);
        handle.finish(Err(ChannelError::SizesDiffer));
        self.tell(fabric, peer, head, &[bytes]);
    }

    /// The gate is open: writes through it.
    fn pass_gate(&mut self, fabric: &mut Fabric, index: u32, gate: Gate) -> bool {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let (peer, bytes) = (class.peer, handle.memory.bytes());
        if gate.bytes != bytes as u64 {
            class.out.pass(handle.number);
            self.differ(fabric, index);
            return true;
        }
        if let Some(landing) = &handle.landing {
            handle.memory.gather(landing.span());
        }
        if self.unwritable.contains(&peer) {
            class.out.pass(handle.number);
            handle.phase = Phase::Streaming(0);
            return self.fire(fabric, index);
        }
        let lease = handle.span.lease(bytes).known_as(handle.local);
        let posted = fabric.post_write(peer, lease, gate.key, 0, work_of(index), Some(gate.token));
        if posted.is_err() {
            return false;
        }
        class.out.pass(handle.number);
        handle.phase = Phase::Writing;
        self.counters.writes += 1;
        match handle.landing {
            Some(_) => self.counters.packed_bytes += bytes as u64,
            None => self.counters.direct_bytes += bytes as u64,
        }
        true
    }

    /// No gate yet: what is small goes all the same, if the receiver can keep it.
    fn send_ahead(&mut self, fabric: &mut Fabric, index: u32) -> bool {
        let handle = self.handles.at_mut(index);
        let class = &self.classes[handle.class as usize];
        let bytes = handle.memory.bytes();
        if bytes > EAGER_BYTES || !class.out.has_credit(handle.number) {
            return false;
        }
        let whole = handle.memory.whole();
        let from = whole.unwrap_or_else(|| Span::of_box(&mut self.scratch));
        if whole.is_none() {
            handle.memory.gather(from);
        }
        let head = wire::head(wire::DATA, class.name, handle.number);
        let sent = from.part(0, bytes, |body| fabric.post_send(class.peer, head, body));
        if sent.is_err() {
            return false;
        }
        handle.finish(Ok(()));
        self.counters.eager_bytes += bytes as u64;
        true
    }

    /// Sends the rest in frames, as far as there is room.
    fn stream(&mut self, fabric: &mut Fabric, index: u32, mut gone: usize) -> bool {
        let handle = self.handles.at_mut(index);
        let class = &self.classes[handle.class as usize];
        let bytes = handle.memory.bytes();
        let most = fabric.caps(class.peer).max_send_bytes;
        let head = wire::head(wire::STREAM, class.name, handle.number);
        loop {
            let post = |body: &[u8]| {
                fabric
                    .post_send(class.peer, head, body)
                    .map(|()| body.len())
            };
            let part = most.min(bytes - gone);
            let Ok(went) = handle.span.part(gone, part, post) else {
                handle.phase = Phase::Streaming(gone);
                return false;
            };
            gone += went;
            self.counters.streamed_bytes += went as u64;
            if gone == bytes {
                handle.finish(Ok(()));
                return true;
            }
        }
    }

    /// A write has ended. What could not be written goes in frames.
    pub(super) fn end_write(&mut self, fabric: &mut Fabric, index: u32, outcome: Outcome) {
        let Some(handle) = self.handles.get_mut(index) else {
            return;
        };
        let peer = self.classes[handle.class as usize].peer;
        if handle.phase != Phase::Writing {
            return;
        }
        let word = handle.word.take();
        if outcome == Outcome::Done {
            if let Some(word) = word {
                word.tell();
                fabric.nudge(peer);
            }
            return handle.finish(Ok(()));
        }
        if self.dead.contains(&peer) {
            return handle.finish(Err(ChannelError::Lost));
        }
        if outcome == Outcome::Unreachable && !self.unwritable.contains(&peer) {
            self.unwritable.push(peer);
        }
        handle.phase = Phase::Streaming(0);
        self.pended.push(index);
    }

    /// The receive of a gate has a line, by which later starts are told.
    fn bind(&mut self, fabric: &mut Fabric, class: u32, gate: &Gate, name: LineName) {
        let Class {
            peer,
            name: of,
            out,
            ..
        } = &mut self.classes[class as usize];
        let bound = Bound::find(fabric, *peer, gate, name);
        if !bound.is_some_and(|bound| out.bind(bound, name.place)) {
            let head = wire::head(wire::NO_LINE, *of, 0);
            let peer = *peer;
            self.tell(fabric, peer, head, &[gate.token.into()]);
        }
    }

    /// A line is that of another receive now.
    pub(super) fn forget_line(&mut self, class: u32, arrived: &Arrived) -> Option<()> {
        self.classes[class as usize].out.forget(arrived.words[0]);
        (arrived.bytes() == 8).then_some(())
    }

    pub(super) fn take_gate(
        &mut self,
        fabric: &mut Fabric,
        class: u32,
        arrived: &Arrived,
    ) -> Option<()> {
        let gate = Gate::of(arrived)?;
        if let Some(line) = gate.line {
            self.bind(fabric, class, &gate, line);
        }
        let handles = &self.handles;
        let Self {
            pended, classes, ..
        } = self;
        let class_state = &mut classes[class as usize];
        let number = wire::number(&arrived.head, class_state.out.near())?;
        let is_waiting = || {
            pended.iter().any(|index| {
                let handle = handles.at(*index);
                handle.class == class && handle.number == number
            })
        };
        match class_state.out.take_gate(number, gate, is_waiting) {
            Passage::Kept => Some(()),
            Passage::Started => {
                self.compare_sizes(class, number, gate.bytes);
                Some(())
            }
            Passage::Refused => None,
        }
    }

    /// The receiver says so of a message that was sent ahead.
    pub(super) fn take_credit(&mut self, class: u32, arrived: &Arrived) -> Option<()> {
        let out = &mut self.classes[class as usize].out;
        let started = wire::number(&arrived.head, out.heard)?;
        out.hear(started).then_some(())
    }

    /// Whoever has sent ahead, and did not ask yet how that ended, hears of a receive of another size.
    pub(super) fn compare_sizes(&mut self, class: u32, number: u64, bytes: u64) {
        for index in &self.classes[class as usize].handles {
            let Some(handle) = self.handles.get_mut(*index) else {
                continue;
            };
            let sent = handle.direction == Direction::Send && handle.number == number;
            let differs = handle.memory.bytes() as u64 != bytes;
            if sent && differs && handle.is_started && handle.end.is_some() {
                handle.finish(Err(ChannelError::SizesDiffer));
            }
        }
    }
}

/// The name of the write of a handle, of which there is one at a time.
fn work_of(index: u32) -> WorkId {
    WorkId(WORK_MARK | u64::from(index))
}
