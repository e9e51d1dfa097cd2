// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end: sends messages through their gates, eagerly, or in frames.

use crate::chain::{CHAINED_BLOCK, WriteTarget, work_of};
use crate::class::{ChannelClass, EAGER_BYTES, GateDisposition, SizeMismatch};
use crate::handle::ChannelPhase;
use crate::layout::{RemoteBlocks, smallest_block};
use crate::line::{ArrivalWord, BoundLine, GateNote};
use crate::memory::{MemorySpan, copy_blocks};
use crate::wire::{self, LineName, ReceiveGate};
use crate::{ChannelDirection, Channels, OWNER};
use transport::{Arrived, Fabric};

impl Channels {
    /// Starts a send: takes its number, and sends the message if possible.
    pub(crate) fn start_send(&mut self, fabric: &mut Fabric, index: u32) {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        handle.number = class.out.start();
        handle.phase = ChannelPhase::Pending;
        if let Some(error) = class.never_receives(handle.number) {
            return handle.finish(Err(error));
        }
        let hint = handle.hint;
        if let Some((at, bound, word)) = class.out.open_line(handle.number, hint) {
            handle.hint = Some(at);
            return self.send_through_line(fabric, index, &bound, word);
        }
        self.counters
            .late_gates
            .add(u64::from(class.out.gate(handle.number).is_none()));
        if !self.try_send(fabric, index) {
            self.pending.push(index);
            self.query_leave(fabric, index);
        }
    }

    /// Tries all pending sends.
    pub(crate) fn retry_pending(&mut self, fabric: &mut Fabric) {
        let mut at = 0;
        while at < self.pending.len() {
            let index = self.pending[at];
            if self.try_send(fabric, index) {
                self.pending.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Whether a send waits only for room in the transport.
    pub(crate) fn could_go(&self, index: u32) -> bool {
        let handle = self.handles.at(index);
        let out = &self.classes[handle.class as usize].out;
        let small = handle.memory.bytes() <= EAGER_BYTES && out.has_credit(handle.number);
        handle.phase != ChannelPhase::Pending || small || out.gate(handle.number).is_some()
    }

    /// Whether a send waits and a gate line is open for it.
    pub(crate) fn is_line_open(&self, index: u32) -> bool {
        let handle = self.handles.at(index);
        let out = &self.classes[handle.class as usize].out;
        let waits = handle.phase == ChannelPhase::Pending;
        waits && out.open_line(handle.number, handle.hint).is_some()
    }

    /// Sends as much of the message as possible. `true`: the send is no longer pending.
    fn try_send(&mut self, fabric: &mut Fabric, index: u32) -> bool {
        let handle = self.handles.at(index);
        match handle.phase {
            ChannelPhase::Streaming(sent_bytes) => return self.stream(fabric, index, sent_bytes),
            ChannelPhase::Chained(sent_bytes) => return self.chain(fabric, index, sent_bytes),
            _ => {}
        }
        let out = &self.classes[handle.class as usize].out;
        if let Some((at, bound, word)) = out.open_line(handle.number, handle.hint) {
            self.handles.at_mut(index).hint = Some(at);
            self.send_through_line(fabric, index, &bound, word);
            return true;
        }
        match out.gate(handle.number) {
            Some(gate) => self.send_through_gate(fabric, index, gate),
            None => self.send_eager(fabric, index),
        }
    }

    /// Sends through an open gate line: copies the message to the memory of the receive, and completes the receive on
    /// the line.
    #[inline]
    fn send_through_line(
        &mut self,
        fabric: &mut Fabric,
        index: u32,
        bound: &BoundLine,
        word: ArrivalWord,
    ) {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let peer = class.peer;
        class.out.receives_known = class.out.receives_known.max(handle.number + 1);
        let bytes = handle.memory.bytes();
        if bytes as u64 > bound.bytes {
            return self.reject_too_long(fabric, index, bound.bytes);
        }
        let blocks = bound.blocks(&class.out.layouts);
        let mapped = blocks.filter(|blocks| blocks.iter().all(|piece| piece.span.is_some()));
        let is_chained = blocks.is_some_and(|blocks| smallest_block(blocks) >= CHAINED_BLOCK);
        match (mapped, bound.span) {
            (Some(blocks), _) => {
                copy_blocks(handle.memory.pieces(), blocks, bytes);
                word.note(GateNote::new(bytes, true));
            }
            (None, Some(span)) if !is_chained => {
                handle.memory.gather(span);
                if bound.is_staging && (bytes as u64) < bound.bytes {
                    word.note(GateNote::new(bytes, false));
                }
            }
            _ => {
                let layout = bound.layout.filter(|_| is_chained);
                return self.write_through_line(fabric, index, bound, layout, word);
            }
        }
        word.publish();
        fabric.nudge(peer);
        handle.finish(Ok(()));
        self.counters.writes.add(1);
        if mapped.is_some() || !bound.is_staging {
            self.counters.direct_bytes.add(bytes as u64);
        }
    }

    /// Sends through an open gate line by writes, for memory that is not mapped here: the kernel or the device moves
    /// the bytes. `layout`: the receive to whose blocks the bytes are written.
    #[inline(never)]
    fn write_through_line(
        &mut self,
        fabric: &mut Fabric,
        index: u32,
        bound: &BoundLine,
        layout: Option<u32>,
        word: ArrivalWord,
    ) {
        let target = WriteTarget {
            key: bound.key,
            bytes: bound.bytes,
            is_staging: bound.is_staging,
            layout,
            token: None,
        };
        let handle = self.handles.at_mut(index);
        let peer = self.classes[handle.class as usize].peer;
        if self.unwritable.contains(&peer) {
            self.begin_stream(index);
            return self.pending.push(index);
        }
        handle.word = Some(word);
        // `progress` posts the writes for which there is no room.
        if !self.begin_chain(fabric, index, target) {
            self.pending.push(index);
        }
    }

    /// Handles a message that is too long: completes the send with an error, and reports the error to the receiver.
    #[cold]
    fn reject_too_long(&mut self, fabric: &mut Fabric, index: u32, room: u64) {
        let handle = self.handles.at_mut(index);
        let class = &self.classes[handle.class as usize];
        let (peer, message) = (class.peer, handle.memory.bytes() as u64);
        let head = wire::head(wire::DIFFER, class.name, handle.number);
        handle.finish_too_long(SizeMismatch { message, room });
        self.send_frame(fabric, peer, head, &[message, room]);
    }

    /// Sends through an open gate that has arrived in a frame: by writes, by a copy on this node, or in frames. `true`:
    /// the send is no longer pending.
    fn send_through_gate(&mut self, fabric: &mut Fabric, index: u32, gate: ReceiveGate) -> bool {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let (peer, bytes) = (class.peer, handle.memory.bytes());
        let layouts = &class.out.layouts;
        let layout = gate.layout.filter(|owner| {
            let blocks = layouts.of(*owner, gate.bytes);
            blocks.is_some_and(|blocks| smallest_block(blocks) >= CHAINED_BLOCK)
        });
        if bytes as u64 > gate.bytes {
            class.out.pass(handle.number);
            self.reject_too_long(fabric, index, gate.bytes);
            return true;
        }
        if let Some(posted) = self.copy_on_node(fabric, index, &gate) {
            return posted;
        }
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let is_staging = gate.is_staging && layout.is_none();
        class.out.pass(handle.number);
        // A message shorter than the staging buffer is sent in frames: after a write, the receiver would unpack more
        // bytes than the message has.
        let is_cut = is_staging && (bytes as u64) < gate.bytes;
        if is_cut || self.unwritable.contains(&peer) {
            self.begin_stream(index);
            return self.try_send(fabric, index);
        }
        handle.word = None;
        let target = WriteTarget {
            key: gate.key,
            bytes: gate.bytes,
            is_staging: gate.is_staging,
            layout,
            token: Some(gate.token),
        };
        self.begin_chain(fabric, index, target)
    }

    /// If the peer is on this node, either end has gaps, and the memory of the receive is mapped here: sends through an
    /// open gate by a copy, and completes the receive by an empty write. `None`: one of the conditions does not hold.
    /// `Some(false)`: there is no room for the write.
    fn copy_on_node(
        &mut self,
        fabric: &mut Fabric,
        index: u32,
        gate: &ReceiveGate,
    ) -> Option<bool> {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let (peer, bytes) = (class.peer, handle.memory.bytes());
        let has_gaps = gate.layout.is_some() || handle.memory.whole().is_none();
        if !has_gaps || !fabric.is_near(peer) {
            return None;
        }
        let blocks = gate
            .layout
            .and_then(|owner| class.out.layouts.of(owner, gate.bytes));
        let mapped = blocks.filter(|blocks| blocks.iter().all(|piece| piece.span.is_some()));
        let is_direct = mapped.is_some();
        if let Some(blocks) = mapped {
            copy_blocks(handle.memory.pieces(), blocks, bytes);
        } else {
            let is_cut = gate.is_staging && (bytes as u64) < gate.bytes;
            let is_chained = blocks.is_some_and(|blocks| smallest_block(blocks) >= CHAINED_BLOCK);
            let span = MemorySpan::of_peer(fabric, peer, gate.key)?;
            if is_cut || is_chained {
                return None;
            }
            handle.memory.gather(span);
        }
        let direct = if is_direct { wire::DIRECT } else { 0 };
        let (nothing, token) = (handle.span.lease(0), OWNER.immediate(gate.token | direct));
        let work = work_of(index);
        if fabric
            .post_write(peer, nothing, gate.key, 0, work, Some(token))
            .is_err()
        {
            return Some(false);
        }
        class.out.pass(handle.number);
        handle.word = None;
        handle.target = None;
        handle.has_failed = false;
        handle.outstanding = 1;
        handle.phase = ChannelPhase::Writing;
        self.counters.writes.add(1);
        if is_direct || !gate.is_staging {
            self.counters.direct_bytes.add(bytes as u64);
        }
        Some(true)
    }

    /// Sends a message eagerly, before its gate is known, if the message is small and the receiver can buffer it.
    /// `true`: it was sent.
    fn send_eager(&mut self, fabric: &mut Fabric, index: u32) -> bool {
        let handle = self.handles.at_mut(index);
        let class = &self.classes[handle.class as usize];
        let bytes = handle.memory.bytes();
        if bytes > EAGER_BYTES || !class.out.has_credit(handle.number) {
            return false;
        }
        let whole = handle.memory.whole();
        let from = whole.unwrap_or_else(|| MemorySpan::of_box(&mut self.scratch));
        if whole.is_none() {
            handle.memory.gather(from);
        }
        let head = wire::head(wire::DATA, class.name, handle.number);
        let sent = from.part(0, bytes, |body| fabric.post_send(class.peer, head, body));
        if sent.is_err() {
            return false;
        }
        handle.finish(Ok(()));
        self.counters.eager_bytes.add(bytes as u64);
        true
    }

    /// Sends the message after the first `sent_bytes` bytes in frames, as far as there is room. `true`: all of it was sent.
    fn stream(&mut self, fabric: &mut Fabric, index: u32, mut sent_bytes: usize) -> bool {
        let handle = self.handles.at_mut(index);
        let class = &self.classes[handle.class as usize];
        let bytes = handle.memory.bytes();
        let most = fabric.caps(class.peer).max_send_bytes;
        let mut head = wire::head(wire::STREAM, class.name, handle.number);
        loop {
            let part = most.min(bytes - sent_bytes);
            if sent_bytes + part == bytes {
                head.flags |= wire::LAST;
            }
            let post = |body: &[u8]| {
                fabric
                    .post_send(class.peer, head, body)
                    .map(|()| body.len())
            };
            let Ok(part_sent) = handle.span.part(sent_bytes, part, post) else {
                handle.phase = ChannelPhase::Streaming(sent_bytes);
                return false;
            };
            sent_bytes += part_sent;
            self.counters.streamed_bytes.add(part_sent as u64);
            if sent_bytes == bytes {
                handle.finish(Ok(()));
                return true;
            }
        }
    }

    /// Binds the gate line of a receive, for its later starts. If that is impossible, replies with a NO_LINE.
    fn bind(&mut self, fabric: &mut Fabric, class: u32, gate: &ReceiveGate, name: LineName) {
        let ChannelClass {
            peer,
            name: of,
            out,
            ..
        } = &mut self.classes[class as usize];
        let bound = BoundLine::find(fabric, *peer, gate, name);
        if !bound.is_some_and(|bound| out.bind(bound, name.place)) {
            let head = wire::head(wire::NO_LINE, *of, 0);
            let peer = *peer;
            self.send_frame(fabric, peer, head, &[gate.token.into()]);
        }
    }

    /// Handles a LAYOUT: records a piece of the block layout of a receive.
    pub(crate) fn take_layout(
        &mut self,
        fabric: &mut Fabric,
        class: u32,
        arrived: &Arrived,
    ) -> Option<()> {
        let ChannelClass { peer, out, .. } = &mut self.classes[class as usize];
        let owner = wire::owner(&arrived.head);
        let piece = RemoteBlocks::of(owner, arrived.words).filter(|_| arrived.bytes() == 48)?;
        let span = MemorySpan::of_peer(fabric, *peer, piece.key);
        let is_first = arrived.head.flags & wire::FIRST != 0;
        out.layouts.add(RemoteBlocks { span, ..piece }, is_first);
        Some(())
    }

    /// Handles a NO_LAYOUT: removes the block layout of a receive.
    pub(crate) fn forget_layout(&mut self, class: u32, arrived: &Arrived) -> Option<()> {
        let layouts = &mut self.classes[class as usize].out.layouts;
        layouts.forget(wire::owner(&arrived.head));
        (arrived.bytes() == 0).then_some(())
    }

    /// Handles a FORGET: unbinds a gate line that its receive no longer uses.
    pub(crate) fn forget_line(&mut self, class: u32, arrived: &Arrived) -> Option<()> {
        self.classes[class as usize].out.forget(arrived.words[0]);
        (arrived.bytes() == 8).then_some(())
    }

    pub(crate) fn take_gate(
        &mut self,
        fabric: &mut Fabric,
        class: u32,
        arrived: &Arrived,
    ) -> Option<()> {
        let gate = ReceiveGate::of(arrived)?;
        if let Some(line) = gate.line {
            self.bind(fabric, class, &gate, line);
        }
        let handles = &self.handles;
        let Self {
            pending, classes, ..
        } = self;
        let class_state = &mut classes[class as usize];
        let number = wire::number(&arrived.head, class_state.out.near())?;
        let is_waiting = || {
            pending.iter().any(|index| {
                let handle = handles.at(*index);
                handle.class == class && handle.number == number
            })
        };
        match class_state.out.take_gate(number, gate, is_waiting) {
            GateDisposition::Kept | GateDisposition::Started => Some(()),
            GateDisposition::Refused => None,
        }
    }

    /// Handles a CREDIT: the receiver has started this many receives.
    pub(crate) fn take_credit(&mut self, class: u32, arrived: &Arrived) -> Option<()> {
        let out = &mut self.classes[class as usize].out;
        let started = wire::number(&arrived.head, out.receives_known)?;
        out.note_receives(started).then_some(())
    }

    /// Handles a report that an eager message is too long; its send is complete already. The send gets the error if it
    /// was not collected yet. Otherwise the next send of the class that is collected gets the error.
    pub(crate) fn end_refused(&mut self, class: u32, number: u64, sizes: SizeMismatch) {
        let state = &mut self.classes[class as usize];
        for index in &state.handles {
            let Some(handle) = self.handles.get_mut(*index) else {
                continue;
            };
            let sent = handle.direction == ChannelDirection::Send && handle.number == number;
            if sent && handle.is_started && handle.end.is_some() {
                return handle.finish_too_long(sizes);
            }
        }
        state.refused = Some(sizes);
        // Prepared lists do not check `refused`, so they must become invalid.
        self.epoch += 1;
    }
}
