// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving from peers. All bytes are received into one buffer of the process, except data whose target is known
//! before they are received: those go directly to the target. Packets for which the caller has no room are kept with
//! their connection, and so are all bytes that follow them.
//!
//! All input is from a process that has proved to be of the job but may be faulty: an invalid length, a number out of
//! order, or unrequested data end the connection, and after several such errors the peer is lost.

mod rail;

use std::io;

use super::links::TcpLinkEvent;
use super::packet::{
    DATA_BYTES, FRAME_BYTES, HEADER_BYTES, KEY_BYTES, MOST_FRAME_BYTES, TcpAtomicRequest,
    TcpPacketHeader, TcpPacketKind, TcpReadRequest, TcpWorkReply, TcpWriteRequest, WRITE_BYTES,
    head_of, key_at,
};
use super::peer::{Inflow, TargetMemory, TcpDataTarget, TcpPeer};
use super::proof::{u32_at, u64_at};
use super::sockets::Sockets;
use super::{Tcp, memory::MemoryRange};
use crate::provider::frame_list::{self, ListedFrame};
use crate::{
    Arrived, Completion, Completions, Head, NetWord, Peer, RecvBuffer, WordPoll, WorkOutcome,
};

/// Bytes that were received and not yet parsed.
#[derive(Debug, Default)]
pub(super) struct TcpRecvBuffer {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl TcpRecvBuffer {
    fn waiting(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    fn len(&self) -> usize {
        self.to - self.from
    }

    /// The place for further bytes, after those that wait.
    fn place(&mut self) -> &mut [u8] {
        if self.from != 0 {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        &mut self.bytes[self.to..]
    }

    /// At most `bytes` bytes of [`place`](Self::place).
    fn place_of(&mut self, bytes: usize) -> &mut [u8] {
        let place = self.place();
        let bytes = bytes.min(place.len());
        &mut place[..bytes]
    }

    /// A place for at most `bytes` bytes. Call it only if no bytes wait in the buffer.
    fn place_for(&mut self, bytes: usize) -> &mut [u8] {
        self.make();
        &mut self.bytes[..bytes.min(BUFFER_BYTES)]
    }

    fn make(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(BUFFER_BYTES, 0);
        }
    }

    /// Fills the buffer with `rest`, the bytes left over from a connection.
    fn start(&mut self, rest: &mut Vec<u8>) {
        self.make();
        self.bytes[..rest.len()].copy_from_slice(rest);
        (self.from, self.to) = (0, rest.len());
        rest.clear();
    }
}

/// The result of parsing the next bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TcpRecvStep {
    /// A packet or some data were consumed.
    Taken,
    /// More bytes are needed.
    Lacks,
    /// The caller has no room for another completion, or must first handle the completions that it has.
    Full,
    /// A protocol violation.
    Violation(&'static str),
}

impl<S: Sockets> Tcp<S> {
    /// Receives and processes bytes from a peer, up to a limit for one turn. `true`: some were received, or the
    /// connection broke.
    pub(super) fn take(&mut self, peer: u32, completions: &mut Completions) -> bool {
        if self.is_paused(peer) {
            return false;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let turn = self.links.turn;
        let line = self
            .links
            .find_mut(peer)
            .and_then(|side| side.line.as_mut());
        let Some(line) = line else {
            self.buffer = buffer;
            return false;
        };
        let had = line.has_waiting();
        buffer.start(&mut line.rest);
        let took = self.take_some(peer, &mut buffer, completions);
        let line = self
            .links
            .find_mut(peer)
            .and_then(|side| side.line.as_mut());
        if let Some(line) = line {
            line.rest.extend_from_slice(buffer.waiting());
            if matches!(took, Ok(1..)) {
                (line.used, line.has_come) = (turn, true);
            }
        }
        self.buffer = buffer;
        match took {
            Ok(bytes) => {
                if bytes == 0 {
                    self.pause(peer);
                }
                if bytes != 0 || had {
                    self.after(peer);
                }
                bytes != 0
            }
            Err(error) => {
                self.links.broke(peer, &error);
                true
            }
        }
    }

    /// Whether polling of a peer's line is paused. Ends a pause whose time is over.
    #[inline]
    fn is_paused(&mut self, peer: u32) -> bool {
        let line = self.links.find(peer).and_then(|side| side.line.as_ref());
        // A line with bytes that were received already is not paused: no event announces those.
        let line = line.filter(|line| !line.has_waiting() && line.paused_until_ns != 0);
        let Some(until_ns) = line.map(|line| line.paused_until_ns) else {
            return false;
        };
        let is_over = self.links.sockets.clock_ns() >= until_ns;
        if is_over && let Some(line) = &mut self.links.of(peer).line {
            line.paused_until_ns = 0;
        }
        !is_over
    }

    /// Pauses polling of a line if the data of several reads are expected: each receive takes the lock of the socket,
    /// for which the kernel waits when it delivers data.
    fn pause(&mut self, peer: u32) {
        let Some(side) = self.links.find(peer).filter(|side| side.expects_data > 1) else {
            return;
        };
        if side.line.as_ref().is_some_and(|line| !line.has_waiting()) {
            let until_ns = self.links.sockets.clock_ns() + PAUSE_NS;
            if let Some(line) = &mut self.links.of(peer).line {
                line.paused_until_ns = until_ns;
            }
        }
    }

    /// Checks whether exactly one frame has come over the connection over which bytes arrived last: the fast path of
    /// waiting.
    pub(in crate::provider) fn poll_word(&mut self) -> WordPoll {
        let Some(peer) = self.hot.filter(|_| self.has_nothing_to_do()) else {
            return WordPoll::Poll;
        };
        let Some(side) = self.links.find(peer) else {
            return WordPoll::Poll;
        };
        let line = side.line.as_ref();
        let Some(line) = line.filter(|line| line.rest.is_empty() && line.inflow.is_none()) else {
            return WordPoll::Poll;
        };
        // If data are expected, only little is received into the buffer: the data shall go directly to their target.
        let most = if side.expects_data == 0 {
            HEADER_BYTES + MOST_FRAME_BYTES + 1
        } else {
            2 * WORD_FRAME_BYTES
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let place = buffer.place_for(most);
        let found = match self.links.sockets.receive(line.sock, None, place) {
            Ok(0) => WordPoll::Nothing,
            Ok(got) => self.handle_received(peer, &place[..got]),
            Err(error) => {
                self.links.broke(peer, &error);
                WordPoll::Poll
            }
        };
        self.buffer = buffer;
        found
    }

    /// Handles all bytes received from a peer in `poll_word`; no earlier bytes of the peer wait.
    fn handle_received(&mut self, peer: u32, bytes: &[u8]) -> WordPoll {
        self.has_activity = true;
        self.idle = 0;
        if let Some((head, body)) = self.take_frame(peer, bytes) {
            let Ok(word) = body.try_into() else {
                return WordPoll::Frame(self.arrived(peer, head, body));
            };
            return WordPoll::Word(NetWord {
                peer: Peer(peer),
                head: Head { len: 8, ..head },
                word: u64::from_ne_bytes(word),
            });
        }
        if let Some(line) = &mut self.links.of(peer).line {
            line.rest.extend_from_slice(bytes);
            line.has_come = true;
        }
        self.wait_for(peer);
        WordPoll::Poll
    }

    fn has_nothing_to_do(&self) -> bool {
        let is_all_out = self.links.held.is_empty()
            && self.links.deferring.is_empty()
            && self.links.upshots.is_empty();
        let has_none = self.backlog.is_empty() && self.moves.ready.is_empty();
        is_all_out && has_none && self.links.moving.is_empty()
    }

    /// Consumes the bytes if they are exactly one frame; returns its head and its body.
    fn take_frame<'a>(&mut self, peer: u32, bytes: &'a [u8]) -> Option<(Head, &'a [u8])> {
        let (header, packet) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (fixed, body) = packet.split_first_chunk::<FRAME_BYTES>()?;
        let header = TcpPacketHeader::of(header)?;
        let side = self.links.find(peer)?;
        let is_next = header.number == side.session.ack().next;
        let has_room = self.may_take(peer, body.len());
        let is_it = header.kind == TcpPacketKind::Frame && header.bytes == packet.len();
        if !is_it || !is_next || !has_room || !self.links.acknowledge(peer, header.ack) {
            return None;
        }
        self.links.record_core_state(peer, header.lacks_core);
        self.accept(peer);
        let turn = self.links.turn;
        if let Some(line) = &mut self.links.of(peer).line {
            (line.used, line.has_come) = (turn, true);
        }
        if self.moves.has_queue(peer) {
            self.links.upshots.push_back(TcpLinkEvent::GoOn(peer));
        }
        Some((head_of(fixed), body))
    }

    /// Sends acknowledgements for what has arrived, and continues transfers that have room again.
    fn after(&mut self, peer: u32) {
        self.links.upshots.push_back(TcpLinkEvent::GoOn(peer));
        self.settle();
    }

    /// Consumes the waiting bytes of a peer's line and receives more, up to a limit for one turn; returns the number of
    /// bytes received.
    fn take_some(
        &mut self,
        peer: u32,
        buffer: &mut TcpRecvBuffer,
        completions: &mut Completions,
    ) -> io::Result<usize> {
        let (bytes, last) = self.take_while_some(
            buffer,
            |tcp, buffer| tcp.step(peer, buffer, completions),
            |tcp, buffer| tcp.receive(peer, buffer),
        )?;
        match last {
            TcpRecvStep::Full => self.wait_for(peer),
            TcpRecvStep::Violation(what) => self.refuse(peer, what),
            TcpRecvStep::Taken | TcpRecvStep::Lacks => {}
        }
        Ok(bytes)
    }

    /// Consumes the waiting bytes with `step`, and receives more with `receive`, in turn. Ends when `step` cannot go
    /// on, when nothing more waits in the kernel, or after more than [`TURN_BYTES`] bytes. Returns the number of bytes
    /// received, and the last step.
    fn take_while_some(
        &mut self,
        buffer: &mut TcpRecvBuffer,
        mut step: impl FnMut(&mut Self, &mut TcpRecvBuffer) -> TcpRecvStep,
        mut receive: impl FnMut(&mut Self, &mut TcpRecvBuffer) -> io::Result<(usize, usize)>,
    ) -> io::Result<(usize, TcpRecvStep)> {
        let mut bytes = 0;
        let mut is_drained = false;
        loop {
            let last = step(self, buffer);
            match last {
                TcpRecvStep::Taken => continue,
                TcpRecvStep::Lacks if !is_drained && bytes <= TURN_BYTES => {}
                _ => return Ok((bytes, last)),
            }
            let (got, most) = receive(self, buffer)?;
            bytes += got;
            is_drained = got < most;
            if got == 0 {
                return Ok((bytes, last));
            }
        }
    }

    /// Receives more; returns the number of bytes received, and the number for which there was room.
    fn receive(&mut self, peer: u32, buffer: &mut TcpRecvBuffer) -> io::Result<(usize, usize)> {
        let Some(side) = self.links.find(peer) else {
            return Ok((0, 0));
        };
        let Some((sock, inflow)) = side.line.as_ref().map(|line| (line.sock, line.inflow)) else {
            return Ok((0, 0));
        };
        let Some(inflow) = inflow else {
            // If data are expected or may follow, only little is received into the buffer: the data shall go directly
            // to their target.
            let place = match (side.expects_data, side.announces) {
                (0, false) => buffer.place(),
                (0, true) => buffer.place_of(BEFORE_BYTES),
                _ => buffer.place_of(BEHIND_BYTES),
            };
            let most = place.len();
            let got = self.links.sockets.receive(sock, None, place)?;
            buffer.to += got;
            return Ok((got, most));
        };
        let left = inflow.bytes - inflow.at;
        let memory = self.find_target(peer, &inflow);
        let place = buffer.place();
        // More data most likely follow these: the buffer takes only little of them, since they shall go directly to
        // their target.
        let (most, got) = match memory {
            Some(memory) => {
                let place = &mut place[..BEHIND_BYTES];
                let most = memory.bytes() + place.len();
                (most, self.links.sockets.receive(sock, Some(memory), place)?)
            }
            None => {
                let most = place.len();
                (most, self.links.sockets.receive(sock, None, place)?)
            }
        };
        let now_ns = self.links.now_ns;
        let line = self
            .links
            .find_mut(peer)
            .and_then(|side| side.line.as_mut());
        if let Some(line) = line.filter(|_| got != 0) {
            line.moved_ns = now_ns;
            let at_target = if memory.is_some() { got.min(left) } else { 0 };
            if let Some(inflow) = &mut line.inflow {
                inflow.at += at_target;
            }
            buffer.to += got - at_target;
        }
        Ok((got, most))
    }

    /// The memory for the remaining data of a packet, looked up anew; `None`: the data have no target now.
    fn find_target(&mut self, peer: u32, inflow: &Inflow) -> TargetMemory {
        let whole: Option<MemoryRange> = match &inflow.target {
            TcpDataTarget::Read { id, at } => self.moves.works.place(peer, *id, *at, inflow.bytes),
            TcpDataTarget::Write(write) => {
                let whole = self
                    .moves
                    .exports
                    .find(peer, write.key, write.offset, write.bytes)?;
                let from = usize::try_from(write.at).ok()?;
                Some(whole.from(from).first(inflow.bytes))
            }
            TcpDataTarget::Unsolicited(key) => self.moves.place_unsolicited(peer, *key),
        };
        whole
            .filter(|whole| whole.bytes() == inflow.bytes)
            .map(|whole| whole.from(inflow.at))
    }

    /// Handles the next packet, or the next data of a packet, in the waiting bytes.
    fn step(
        &mut self,
        peer: u32,
        buffer: &mut TcpRecvBuffer,
        completions: &mut Completions,
    ) -> TcpRecvStep {
        let Some(side) = self.links.find(peer) else {
            return TcpRecvStep::Lacks;
        };
        let Some(line) = &side.line else {
            return TcpRecvStep::Lacks;
        };
        if let Some(inflow) = line.inflow {
            return self.step_inflow(peer, inflow, buffer, completions);
        }
        let Some(header) = buffer.waiting().first_chunk::<HEADER_BYTES>() else {
            return TcpRecvStep::Lacks;
        };
        let Some(header) = TcpPacketHeader::of(header) else {
            return TcpRecvStep::Violation("no packet begins like that");
        };
        let end = HEADER_BYTES + header.wanted();
        if buffer.len() < end {
            return TcpRecvStep::Lacks;
        }
        let is_numbered = header.kind != TcpPacketKind::Ack;
        if is_numbered && header.number != side.session.ack().next {
            return TcpRecvStep::Violation("a packet is not the next one");
        }
        if is_numbered && completions.is_full() {
            return TcpRecvStep::Full;
        }
        if header.kind == TcpPacketKind::Unsolicited {
            let key = key_at(&buffer.waiting()[HEADER_BYTES..], 0);
            if self.moves.has_to_be_seen_first(&self.links, peer, key) {
                return TcpRecvStep::Full;
            }
        }
        if !self.links.acknowledge(peer, header.ack) {
            return TcpRecvStep::Violation("it has what was never sent");
        }
        self.links.record_core_state(peer, header.lacks_core);
        buffer.from += end;
        let bytes = &buffer.bytes[buffer.from - header.wanted()..buffer.from];
        match header.kind {
            TcpPacketKind::Ack => {
                if header.requests_ack {
                    self.links.send_ack(peer);
                }
                TcpRecvStep::Taken
            }
            TcpPacketKind::Write | TcpPacketKind::Data | TcpPacketKind::Unsolicited => {
                self.begin_inflow(peer, header, bytes)
            }
            _ => self.take_packet(peer, header.kind, bytes, completions),
        }
    }

    /// Handles a complete packet.
    fn take_packet(
        &mut self,
        peer: u32,
        kind: TcpPacketKind,
        bytes: &[u8],
        completions: &mut Completions,
    ) -> TcpRecvStep {
        let is_good = match kind {
            TcpPacketKind::Frame => self.hand_up(peer, bytes, completions),
            TcpPacketKind::Frames => self.hand_up_list(peer, bytes, completions),
            TcpPacketKind::Announce => {
                let (key, frame) = bytes.split_at(KEY_BYTES);
                let key = key_at(key, 0);
                self.may_take(peer, frame.len() - FRAME_BYTES)
                    && self.moves.handle_announcement(&mut self.links, peer, key)
                    && self.hand_up(peer, frame, completions)
            }
            TcpPacketKind::Declined => {
                self.moves.handle_declined(peer);
                true
            }
            TcpPacketKind::Read => self.moves.handle_read(peer, TcpReadRequest::of(bytes)),
            TcpPacketKind::Atomic => TcpAtomicRequest::of(bytes)
                .is_some_and(|change| self.moves.handle_change(peer, change)),
            TcpPacketKind::Answer => TcpWorkReply::of(bytes)
                .is_some_and(|answer| self.moves.handle_answer(&mut self.links, peer, answer)),
            TcpPacketKind::Write
            | TcpPacketKind::Data
            | TcpPacketKind::Unsolicited
            | TcpPacketKind::Ack => false,
        };
        if !is_good {
            return TcpRecvStep::Violation(
                "a packet requests what is not allowed, or answers a request that was not made",
            );
        }
        self.accept(peer);
        TcpRecvStep::Taken
    }

    /// Counts a packet as accepted.
    fn accept(&mut self, peer: u32) {
        let side = self.links.of(peer);
        let number = side.session.ack().next;
        side.session.accept_next(number);
        self.links.owe_ack(peer);
    }

    fn hand_up(&mut self, peer: u32, bytes: &[u8], completions: &mut Completions) -> bool {
        let (fixed, body) = bytes.split_at(FRAME_BYTES);
        let has_room = self.may_take(peer, body.len());
        if has_room {
            let arrived = self.arrived(peer, head_of(fixed), body);
            completions.push(Completion::Arrived(arrived));
        }
        has_room
    }

    /// Delivers the frames of a list; those that find no room are delivered in the next turns, before other packets.
    fn hand_up_list(&mut self, peer: u32, mut list: &[u8], completions: &mut Completions) -> bool {
        while let Some(frame) = frame_list::take_first(&mut list) {
            let arrived = self.arrived_in_list(peer, frame);
            let arrived = Completion::Arrived(arrived);
            match completions.is_full() {
                true => self.moves.ready.push_back(arrived),
                false => completions.push(arrived),
            }
        }
        list.is_empty()
    }

    /// The frame of a list as a completion. Its body does not count as lent: it occupies no buffer of its own.
    fn arrived_in_list(&mut self, peer: u32, frame: ListedFrame<'_>) -> Arrived {
        let ListedFrame { head, body } = frame;
        if body.len() <= ring::SLOT_BODY_BYTES {
            return self.arrived(peer, head, body);
        }
        let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let index = self.bodies.lend_listed(body);
        Arrived {
            peer: Peer(peer),
            head,
            words: [0; ring::SLOT_BODY_BYTES / 8],
            body: RecvBuffer::Lent { index, bytes },
        }
    }

    /// Whether a body of this many bytes is accepted from a peer: the number of lent bodies is limited.
    fn may_take(&self, peer: u32, bytes: usize) -> bool {
        let lent = self.links.find(peer).map_or(MOST_LENT, |side| side.lent);
        bytes <= ring::SLOT_BODY_BYTES || lent < MOST_LENT
    }

    /// The frame as a completion. [`may_take`](Self::may_take) has allowed its body.
    fn arrived(&mut self, peer: u32, head: Head, body: &[u8]) -> Arrived {
        let mut words = [0u64; ring::SLOT_BODY_BYTES / 8];
        let buffer = if body.len() <= ring::SLOT_BODY_BYTES {
            for (word, chunk) in words.iter_mut().zip(body.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                *word = u64::from_ne_bytes(bytes);
            }
            RecvBuffer::Inline {
                bytes: u8::try_from(body.len()).unwrap_or(u8::MAX),
            }
        } else {
            self.links.of(peer).lent += 1;
            RecvBuffer::Lent {
                index: self.bodies.lend(body),
                bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
            }
        };
        Arrived {
            peer: Peer(peer),
            head,
            words,
            body: buffer,
        }
    }

    /// Begins to receive a packet with data.
    fn begin_inflow(&mut self, peer: u32, header: TcpPacketHeader, bytes: &[u8]) -> TcpRecvStep {
        let (target, fixed) = match header.kind {
            TcpPacketKind::Write => match TcpWriteRequest::of(bytes) {
                Some(write) => (TcpDataTarget::Write(write), WRITE_BYTES),
                None => return TcpRecvStep::Violation("a write makes no sense"),
            },
            TcpPacketKind::Unsolicited => (TcpDataTarget::Unsolicited(key_at(bytes, 0)), KEY_BYTES),
            _ => {
                let (id, at) = (u32_at(bytes, 0), u64_at(bytes, 8));
                (TcpDataTarget::Read { id, at }, DATA_BYTES)
            }
        };
        let bytes = header.bytes - fixed;
        let is_good = match target {
            TcpDataTarget::Read { id, at } => self.moves.expects_data(peer, id, at, bytes),
            TcpDataTarget::Write(write) => {
                let end = write.at.checked_add(bytes as u64);
                end.is_some_and(|end| end <= write.bytes && (end == write.bytes) == write.is_last)
            }
            TcpDataTarget::Unsolicited(key) => {
                self.moves.begin_unsolicited(&self.links, peer, key, bytes)
            }
        };
        if !is_good {
            return TcpRecvStep::Violation("data arrive that were not requested");
        }
        let line = self
            .links
            .find_mut(peer)
            .and_then(|side| side.line.as_mut());
        if let Some(line) = line {
            line.inflow = Some(Inflow {
                header,
                target,
                at: 0,
                bytes,
            });
        }
        TcpRecvStep::Taken
    }

    /// Handles the next data of a packet. When all of its data have arrived and the caller has room for a completion,
    /// also handles the end of the packet.
    fn step_inflow(
        &mut self,
        peer: u32,
        mut inflow: Inflow,
        buffer: &mut TcpRecvBuffer,
        completions: &mut Completions,
    ) -> TcpRecvStep {
        let here = buffer.len().min(inflow.bytes - inflow.at);
        if here != 0 {
            let some = &buffer.waiting()[..here];
            match (self.find_target(peer, &inflow), inflow.target) {
                (Some(memory), _) => memory.fill(some),
                (None, TcpDataTarget::Unsolicited(key)) => {
                    self.moves.take_unsolicited(peer, key, some)
                }
                (None, _) => {}
            }
            buffer.from += here;
            inflow.at += here;
        }
        let is_all = inflow.at == inflow.bytes;
        let has_room = !completions.is_full();
        if let Some(TcpPeer {
            line: Some(line), ..
        }) = self.links.find_mut(peer)
        {
            line.inflow = (!is_all || !has_room).then_some(inflow);
        }
        match (is_all, has_room) {
            (false, _) => TcpRecvStep::Lacks,
            (true, false) => TcpRecvStep::Full,
            (true, true) => self.end_inflow(peer, inflow, completions),
        }
    }

    /// Handles the end of a packet whose data have all arrived.
    fn end_inflow(
        &mut self,
        peer: u32,
        inflow: Inflow,
        completions: &mut Completions,
    ) -> TcpRecvStep {
        debug_assert!(inflow.header.bytes >= inflow.bytes, "data are a part of it");
        if let TcpDataTarget::Write(write) = inflow.target {
            self.links.of(peer).count_incoming(&write);
        }
        match inflow.target {
            TcpDataTarget::Read { id, .. } => {
                self.moves
                    .handle_data(&mut self.links, peer, id, inflow.bytes);
            }
            TcpDataTarget::Write(write) if write.is_last => {
                let found = self
                    .moves
                    .exports
                    .find(peer, write.key, write.offset, write.bytes);
                let outcome = if found.is_some() {
                    WorkOutcome::Done
                } else {
                    WorkOutcome::BadKey
                };
                if let Some(immediate) = write.immediate.filter(|_| found.is_some()) {
                    let peer = Peer(peer);
                    completions.push(Completion::Written { peer, immediate });
                }
                if !self.moves.answer(peer, write.id, outcome, 0) {
                    return TcpRecvStep::Violation("it has too many writes under way");
                }
            }
            TcpDataTarget::Write(_) => {}
            TcpDataTarget::Unsolicited(key) => {
                self.moves
                    .end_unsolicited(&mut self.links, peer, key, inflow.bytes);
            }
        }
        self.accept(peer);
        TcpRecvStep::Taken
    }

    /// Ends the connection with a peer that has violated the protocol; after [`MOST_VIOLATIONS`], the peer is lost.
    fn refuse(&mut self, peer: u32, what: &str) {
        self.links.counts.refused.add(1);
        let side = self.links.of(peer);
        side.violations += 1;
        let message = format!("what rank {peer} sends over tcp makes no sense: {what}");
        match side.violations {
            1 => self.links.notices.complain(message),
            MOST_VIOLATIONS => return self.links.lose(peer, &message),
            _ => {}
        }
        self.links.broke(peer, &io::ErrorKind::InvalidData.into());
    }
}

/// A frame with a body of eight bytes.
const WORD_FRAME_BYTES: usize = HEADER_BYTES + FRAME_BYTES + 8;
/// Size of the receive buffer.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of bytes per receive on a line over which unsolicited data may follow.
const BEFORE_BYTES: usize = 8 << 10;
/// Maximum number of bytes received into the buffer after data that go to their target, or while requested data are
/// expected.
const BEHIND_BYTES: usize = 4 << 10;
/// If the data of several reads are expected on a line and nothing has arrived, the line is not polled for this long.
/// To send 64 KiB takes longer.
const PAUSE_NS: u64 = 10_000;
/// After this many bytes from one peer in one turn, no further receive is begun, so that other peers are served.
const TURN_BYTES: usize = 1 << 20;
/// Maximum number of lent bodies of one peer; a peer that keeps to the protocol needs fewer.
const MOST_LENT: u32 = 64;
/// After this many protocol violations a peer is lost.
const MOST_VIOLATIONS: u32 = 4;
