// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end: opens gates, and handles the messages that come through gates, eagerly or in frames.

use crate::class::SizeMismatch;
use crate::handle::ChannelPhase;
use crate::layout::{RemoteBlocks, Shaped};
use crate::line::GateNote;
use crate::wire::{self, ReceiveGate};
use crate::{ChannelDirection, Channels};
use transport::{Arrived, Fabric, Peer};

impl Channels {
    /// Starts a receive: takes its number, and completes the receive with a buffered message or opens its gate.
    pub(crate) fn open_gate(&mut self, fabric: &mut Fabric, index: u32) {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let peer = class.peer;
        let number = class.into.start();
        handle.number = number;
        handle.phase = ChannelPhase::Idle;
        handle.end = None;
        handle.is_lined = false;
        if let Some(message) = class.into.take_kept(number) {
            let bytes = message.len();
            let fits = bytes <= handle.memory.bytes();
            self.buffered -= 1;
            if fits {
                handle
                    .memory
                    .scatter(super::MemorySpan::of_box(message), bytes);
                self.counters.packed_bytes.add(bytes as u64);
            }
            return self.end_kept(fabric, index, bytes as u64, fits);
        }
        if let Some(error) = class.never_sends(number) {
            return handle.finish(Err(error));
        }
        class.into.wait(number, index);
        class.into.mark_reported(number + 1);
        if let Some(line) = handle.line.as_ref().filter(|line| line.is_announced) {
            line.open(number);
            handle.is_lined = true;
            return fabric.nudge(peer);
        }
        self.open_by_frame(fabric, index);
    }

    /// Sends the block layout to the sender, if the sender may write to the blocks and has not received the layout
    /// before.
    fn send_layout(&mut self, fabric: &mut Fabric, index: u32) {
        let handle = self.handles.at_mut(index);
        let is_announced = std::mem::replace(&mut handle.is_layout_sent, true);
        let count = if is_announced { 0 } else { handle.blocks.len() };
        for at in 0..count {
            let handle = self.handles.at(index);
            let class = &self.classes[handle.class as usize];
            let (peer, shape) = (class.peer, handle.memory.pieces()[at].shape());
            let mut head = wire::head(wire::LAYOUT, class.name, index.into());
            head.flags |= if at == 0 { wire::FIRST } else { 0 };
            let words = RemoteBlocks::to_words(handle.blocks[at], shape);
            self.send_frame(fabric, peer, head, &words);
        }
    }

    /// Opens the gate by a frame. From the second frame on, it contains the location of the gate line.
    fn open_by_frame(&mut self, fabric: &mut Fabric, index: u32) {
        self.send_layout(fabric, index);
        let handle = self.handles.at_mut(index);
        let class = &self.classes[handle.class as usize];
        let (peer, name, number) = (class.peer, class.name, handle.number);
        let line = handle.line.as_mut().filter(|_| handle.is_used);
        handle.is_used = true;
        let line = line.map(|line| {
            line.is_announced = true;
            line.to_name()
        });
        let gate = ReceiveGate {
            line,
            bytes: handle.memory.bytes() as u64,
            key: handle.key.unwrap_or_default(),
            token: wire::token(index, number),
            is_staging: handle.staging.is_some(),
            layout: (!handle.blocks.is_empty()).then_some(index),
        };
        self.counters.gates.add(1);
        let mut head = wire::head(wire::GATE, name, number);
        head.flags |= gate.flags();
        let (words, count) = gate.to_words();
        self.send_frame(fabric, peer, head, &words[..count]);
    }

    /// Handles a NO_LINE: the sender cannot map the gate line of a receive, or has bound too many lines.
    pub(crate) fn give_up_line(
        &mut self,
        fabric: &mut Fabric,
        class: u32,
        arrived: &Arrived,
    ) -> Option<()> {
        let token = u32::try_from(arrived.words[0]).ok()?;
        let index = wire::handle_of(token);
        let handle = self.handles.get_mut(index)?;
        let line = handle
            .line
            .filter(|line| line.is_announced && handle.class == class)?;
        handle.line = None;
        self.classes[class as usize].into.lines -= 1;
        let waits = handle.is_started && handle.is_lined && handle.end.is_none();
        handle.is_lined = false;
        self.epoch += 1;
        self.lines.give_back(line);
        if waits {
            self.open_by_frame(fabric, index);
        }
        Some(())
    }

    /// Completes a receive if its gate line reports that the message was written. `false`: nothing has changed.
    pub(crate) fn complete_written(&mut self, index: u32) -> bool {
        let handle = self.handles.at_mut(index);
        if !handle.is_started || handle.end.is_some() || !handle.is_written() {
            return false;
        }
        self.classes[handle.class as usize].into.end(handle.number);
        let staged = handle.noted().map_or(usize::MAX, GateNote::staged);
        self.counters.packed_bytes.add(handle.unpack(staged));
        handle.finish(Ok(()));
        true
    }

    /// Completes a receive whose message was buffered.
    fn end_kept(&mut self, fabric: &mut Fabric, index: u32, message: u64, fits: bool) {
        let handle = self.handles.at_mut(index);
        let class = &mut self.classes[handle.class as usize];
        let (peer, name, number) = (class.peer, class.name, handle.number);
        let room = handle.memory.bytes() as u64;
        let unreported = class.into.take_unreported();
        if fits {
            handle.finish(Ok(()));
        } else {
            self.refuse(fabric, index, number, SizeMismatch { message, room });
        }
        if let Some(started) = unreported {
            let head = wire::head(wire::CREDIT, name, started);
            self.send_frame(fabric, peer, head, &[]);
        }
    }

    /// Completes a receive whose message is too long, and reports that to the sender: the eager send of the message is
    /// complete already.
    #[cold]
    fn refuse(&mut self, fabric: &mut Fabric, index: u32, number: u64, sizes: SizeMismatch) {
        let handle = self.handles.at_mut(index);
        handle.finish_too_long(sizes);
        let class = &self.classes[handle.class as usize];
        let mut head = wire::head(wire::DIFFER, class.name, number);
        head.flags |= wire::FROM_RECEIVER;
        self.send_frame(fabric, class.peer, head, &[sizes.message, sizes.room]);
    }

    /// Handles a DATA: a message sent eagerly.
    pub(crate) fn take_data(
        &mut self,
        fabric: &mut Fabric,
        class: u32,
        arrived: &Arrived,
    ) -> Option<()> {
        let into = &mut self.classes[class as usize].into;
        let number = wire::number(&arrived.head, into.started)?;
        let bytes = usize::try_from(arrived.bytes()).ok()?;
        let Some(index) = into.waiting(number) else {
            let room = into.keep(number, bytes)?;
            self.buffered += 1;
            fabric.copy_body(arrived, room);
            return Some(());
        };
        let handle = self.handles.at_mut(index);
        if handle.phase != ChannelPhase::Idle {
            return None;
        }
        into.end(number);
        let wanted = handle.memory.bytes();
        if wanted < bytes {
            let (message, room) = (bytes as u64, wanted as u64);
            self.refuse(fabric, index, number, SizeMismatch { message, room });
            return Some(());
        }
        let span = handle.memory.whole().unwrap_or(handle.span);
        span.part_mut(0, bytes, |body| fabric.copy_body(arrived, body));
        if handle.memory.whole().is_none() {
            handle.memory.scatter(span, bytes);
        }
        handle.finish(Ok(()));
        Some(())
    }

    /// Handles a STREAM: the next bytes of a message that is sent in frames.
    pub(crate) fn take_stream(
        &mut self,
        fabric: &mut Fabric,
        class: u32,
        arrived: &Arrived,
    ) -> Option<()> {
        let into = &mut self.classes[class as usize].into;
        let number = wire::number(&arrived.head, into.started)?;
        let handle = self.handles.at_mut(into.waiting(number)?);
        let bytes = usize::try_from(arrived.bytes()).ok()?;
        let come = match handle.phase {
            ChannelPhase::Streaming(come) => come,
            _ => 0,
        };
        let wanted = handle.memory.bytes();
        let is_last = arrived.head.flags & wire::LAST != 0;
        if bytes > wanted - come || (bytes == 0 && !is_last) {
            return None;
        }
        handle
            .span
            .part_mut(come, bytes, |body| fabric.copy_body(arrived, body));
        if !is_last {
            handle.phase = ChannelPhase::Streaming(come + bytes);
            return Some(());
        }
        into.end(number);
        self.counters.packed_bytes.add(handle.unpack(come + bytes));
        handle.finish(Ok(()));
        Some(())
    }

    /// Handles a DIFFER: the other side has detected that a message is too long.
    pub(crate) fn take_difference(&mut self, class: u32, arrived: &Arrived) -> Option<()> {
        let head = &arrived.head;
        let [message, room, ..] = arrived.words;
        if arrived.bytes() != 16 || message <= room {
            return None;
        }
        let sizes = SizeMismatch { message, room };
        let state = &mut self.classes[class as usize];
        if head.flags & wire::FROM_RECEIVER != 0 {
            let number = wire::number(head, state.out.started)?;
            let known = number < state.out.started;
            return known.then(|| self.end_refused(class, number, sizes));
        }
        let number = wire::number(head, state.into.started)?;
        let index = state.into.waiting(number)?;
        state.into.end(number);
        self.handles.at_mut(index).finish_too_long(sizes);
        Some(())
    }

    /// Completes the receive that a peer has written to through a gate. The immediate data name the receive. `None`:
    /// they are invalid.
    pub(crate) fn end_written(&mut self, peer: Peer, immediate: u32) -> Option<()> {
        let index = wire::handle_of(immediate);
        let handle = self.handles.get_mut(index)?;
        let class = &mut self.classes[handle.class as usize];
        let is_direct = immediate & wire::DIRECT != 0;
        let is_it = handle.direction == ChannelDirection::Receive
            && class.peer == peer
            && wire::token(index, handle.number) == immediate & !wire::DIRECT
            && handle.phase == ChannelPhase::Idle
            && class.into.waiting(handle.number) == Some(index);
        if !is_it {
            return None;
        }
        class.into.end(handle.number);
        let staged = if is_direct { 0 } else { usize::MAX };
        self.counters.packed_bytes.add(handle.unpack(staged));
        handle.finish(Ok(()));
        Some(())
    }
}
