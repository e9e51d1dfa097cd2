// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending half of a queue pair: cuts requests into packets, keeps to the window, and goes back. IBTA vol. 1 section 9.7.
//!
//! Three numbers say where it stands. All packets before `unacked` are acknowledged; all before `sent_to` have left at least
//! once; the cursor, between the two, is what leaves next. To go back is to set the cursor to `unacked`.
//!
//! When an answer is overdue, the packet at `unacked` alone leaves again, as a probe: it asks what the peer has. If the answer is
//! for the probe and nothing behind it, all behind it leaves again.
//!
//! Towards a peer that repeats selectively the cursor never goes back: what is lost leaves first, as the scoreboard says.
//!
//! A long read leaves as several requests of at most `read_packets` packets. One whose answers have come in part is sent again
//! for the rest of it.

use super::config::Config;
use super::outgoing::{Label, PayloadSource};
use super::request::{CompletionStatus, PostError, RoceRequest};
use super::scoreboard::Scoreboard;
use super::send_queue::{SendQueue, SendQueueEntry};
use super::span::{PacketLimits, PacketSpan, payload, write_headers};
use crate::format::{Headers, MessagePosition, PacketSet};
use crate::memory::RegisteredMemory;
use crate::psn::Psn;

/// The sending half.
#[derive(Debug)]
pub(super) struct Requester {
    queue: SendQueue,
    limits: PacketLimits,
    label: Label,
    cursor: RequestCursor,
    unacked: Psn,
    sent_to: Psn,
    /// Reads and atomic operations under way.
    fetches: u32,
    /// From where they were counted last: the oldest request, and which part of a read was the first without all answers.
    counted_from: Option<(Psn, u32)>,
    /// Packets that have left since one that asked for an acknowledgement.
    unasked: u32,
    probe: TimeoutProbe,
    /// All before it was carried out, as the peer says. A packet that has come ahead may still be refused.
    carried_to: Psn,
    /// `None`: all that is not acknowledged is sent again.
    board: Option<Box<Scoreboard>>,
}

/// The packet that is sent again because no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeoutProbe {
    None,
    /// It has not left.
    Wanted,
    /// It has left; the number behind it, and behind all that had left before.
    Out {
        end: Psn,
        sent_to: Psn,
    },
}

/// What is sent next.
#[derive(Debug)]
pub(super) enum NextPacket {
    Packet(PayloadSource, Leaves),
    Nothing,
    /// The oldest request cannot go on.
    Failed(CompletionStatus),
}

/// Whether a packet has left before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// No, and it asks for an answer: how long that takes can be measured.
    First(Psn),
    /// No, and it asks for nothing.
    Unasked,
    Again(Psn),
}

/// A packet of a request: the index of the request in the queue, and the number of packets before it in the request.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCursor {
    index: usize,
    packet: u32,
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        let is_selective = config.selective_repeat;
        Self {
            queue: SendQueue::new(config),
            limits: PacketLimits::new(config),
            label: Label::new(config),
            cursor: RequestCursor::default(),
            unacked: config.our_first,
            sent_to: config.our_first,
            fetches: 0,
            counted_from: None,
            unasked: 0,
            probe: TimeoutProbe::None,
            carried_to: config.our_first,
            board: is_selective.then(|| Box::new(Scoreboard::new())),
        }
    }

    pub(super) fn post(
        &mut self,
        request: &RoceRequest<'_>,
        unpolled: usize,
    ) -> Result<(), PostError> {
        self.queue.push(request, unpolled)
    }

    /// The next packet, if the limits allow one; writes its headers.
    pub(super) fn next<M: RegisteredMemory>(
        &mut self,
        memory: &M,
        headers: &mut Headers,
    ) -> NextPacket {
        if self.probe == TimeoutProbe::Wanted {
            self.probe = TimeoutProbe::None;
            if self.has_under_way() {
                return self.next_probe(memory, headers);
            }
        }
        if let Some(board) = &self.board
            && let Some(lost) = board.next_lost()
        {
            // For the oldest the peer waits, so it may always leave.
            let may_leave = lost == 0 || self.has_window(board.in_flight(self.sent()));
            return match may_leave {
                true => self.next_lost(lost, memory, headers),
                false => NextPacket::Nothing,
            };
        }
        let Some(work) = self.queue.get(self.cursor.index) else {
            return NextPacket::Nothing;
        };
        let psn = work.first.plus(self.cursor.packet);
        let span = self.limits.span(work, self.cursor.packet);
        let waits = work.fetches() && self.fetches >= self.limits.fetches;
        if waits || !self.has_room(psn, span.packets) {
            return NextPacket::Nothing;
        }
        let ends = matches!(span.position, MessagePosition::Last | MessagePosition::Only);
        let is_awaited = ends && (work.signaled || work.fetches() || self.limits.asks_always);
        let asks = is_awaited || self.unasked + 1 >= self.limits.ask_every;
        let fetches = work.fetches();
        let Ok(payload) = self.packet(self.cursor.index, psn, span, asks, (memory, headers)) else {
            // It is told in its turn: what was posted before it ends first.
            return match self.cursor.index {
                0 => NextPacket::Failed(CompletionStatus::LocalProtection),
                _ => NextPacket::Nothing,
            };
        };
        let leaves = match (psn.is_before(self.sent_to), asks) {
            (true, _) => Leaves::Again(psn),
            (false, true) => Leaves::First(psn),
            (false, false) => Leaves::Unasked,
        };
        self.has_left(psn, span.packets, fetches, asks);
        NextPacket::Packet(payload, leaves)
    }

    /// Whether there is room for a packet of so many numbers.
    fn has_room(&self, psn: Psn, packets: u32) -> bool {
        let ahead = psn.packets_since(self.unacked);
        match &self.board {
            None => self.has_window(ahead),
            Some(board) => {
                ahead + packets <= PacketSet::PACKETS && self.has_window(board.in_flight(ahead))
            }
        }
    }

    /// Whether the window has room when so many are under way. If none of them asks for an answer, since the window was larger when
    /// they left, one more that asks must leave.
    fn has_window(&self, in_flight: u32) -> bool {
        in_flight < self.limits.window_packets || in_flight <= self.unasked
    }

    /// The oldest packet that has no answer; the cursor stays.
    fn next_probe<M: RegisteredMemory>(&mut self, memory: &M, headers: &mut Headers) -> NextPacket {
        let at = self.first_unacked();
        let Some(work) = self.queue.get(at.index) else {
            return NextPacket::Nothing;
        };
        let span = self.limits.span(work, at.packet);
        let Ok(payload) = self.packet(at.index, self.unacked, span, true, (memory, headers)) else {
            return NextPacket::Failed(CompletionStatus::LocalProtection);
        };
        self.probe = TimeoutProbe::Out {
            end: self.unacked.plus(span.packets),
            sent_to: self.sent_to,
        };
        if let Some(board) = &mut self.board {
            board.sent_again(self.unacked, 0, span.packets);
        }
        NextPacket::Packet(payload, Leaves::Again(self.unacked))
    }

    /// A packet that is lost, at this distance from `unacked`; of a read, all of it that is lost from there on.
    fn next_lost<M: RegisteredMemory>(
        &mut self,
        lost: u32,
        memory: &M,
        headers: &mut Headers,
    ) -> NextPacket {
        let psn = self.unacked.plus(lost);
        let found = self.queue.find(psn);
        let (Some((index, packet)), Some(board)) = (found, &mut self.board) else {
            return NextPacket::Nothing;
        };
        let Some(work) = self.queue.get(index) else {
            return NextPacket::Nothing;
        };
        let whole = self.limits.span(work, packet);
        let packets = board.lost_run(lost, whole.packets);
        let span = PacketSpan {
            packets,
            bytes: whole
                .bytes
                .min(packets.saturating_mul(self.limits.mtu_bytes)),
            ..whole
        };
        let Ok(payload) = self.packet(index, psn, span, true, (memory, headers)) else {
            return match index {
                0 => NextPacket::Failed(CompletionStatus::LocalProtection),
                _ => NextPacket::Nothing,
            };
        };
        if let Some(board) = &mut self.board {
            board.sent_again(self.unacked, lost, packets);
        }
        NextPacket::Packet(payload, Leaves::Again(psn))
    }

    /// Writes the headers of the packet of a span of a request; its payload. `Err`: memory of this side is not registered as it should be.
    fn packet<M: RegisteredMemory>(
        &self,
        index: usize,
        psn: Psn,
        span: PacketSpan,
        asks: bool,
        (memory, headers): (&M, &mut Headers),
    ) -> Result<PayloadSource, ()> {
        let work = self.queue.get(index).ok_or(())?;
        let payload = payload(work, index, span, memory).ok_or(())?;
        write_headers(headers, &self.label, work, psn, span, asks);
        Ok(payload)
    }

    /// Inline bytes of a packet.
    pub(super) fn inline(&self, index: usize, offset: u32, bytes: u32) -> &[u8] {
        let range = usize::try_from(offset)
            .ok()
            .zip(usize::try_from(bytes).ok());
        match (self.queue.get(index).map(|work| &work.body), range) {
            (Some(body), Some((offset, bytes))) => {
                let copied = body.copied();
                copied.get(offset..offset + bytes).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// So many packets may be under way from now on.
    pub(super) fn set_window(&mut self, packets: u32) {
        self.limits.set_window(packets);
    }

    /// All that is not acknowledged leaves again.
    pub(super) fn go_back(&mut self) {
        self.probe = TimeoutProbe::None;
        let sent = self.sent();
        if let Some(board) = &mut self.board {
            return board.lose_all(sent);
        }
        self.cursor = self.first_unacked();
        self.unasked = 0;
        self.count_fetches();
    }

    /// The peer had no receive buffer for this packet: it leaves again, and all behind it if the peer does not keep that.
    pub(super) fn refused(&mut self, psn: Psn) {
        let at = psn.packets_since(self.unacked);
        match &mut self.board {
            Some(board) => {
                self.probe = TimeoutProbe::None;
                board.refuse(at);
            }
            None => self.go_back(),
        }
    }

    pub(super) fn is_selective(&self) -> bool {
        self.board.is_some()
    }

    /// The peer has carried out all before `upto`, and those have come ahead. Whether that is news.
    pub(super) fn note_arrived(&mut self, upto: Psn, ahead: &PacketSet) -> bool {
        let (unacked, sent) = (self.unacked, self.sent());
        self.note_carried(upto);
        let in_order = upto.packets_since(unacked);
        self.board
            .as_mut()
            .is_some_and(|board| board.acknowledge(unacked, sent, in_order, ahead))
    }

    /// The answer of this number to a read or an atomic operation has come. Whether that is news.
    pub(super) fn note_answer(&mut self, psn: Psn) -> bool {
        let unacked = self.unacked;
        self.note_carried(psn.plus(1));
        let at = psn.packets_since(unacked);
        self.board
            .as_mut()
            .is_some_and(|board| board.answer(unacked, at))
    }

    /// Number behind all that was carried out and has its answers.
    pub(super) fn ended_to(&self) -> Psn {
        let run = self.board.as_ref().map_or(0, |board| board.run());
        let carried = self.carried_to.packets_since(self.unacked);
        self.unacked.plus(run.min(carried))
    }

    /// The request that has this packet number.
    pub(super) fn find(&self, psn: Psn) -> Option<&SendQueueEntry> {
        let (index, _) = self.queue.find(psn)?;
        self.queue.get(index)
    }

    /// Whether this packet has come, as far as is known here.
    pub(super) fn has_arrived(&self, psn: Psn) -> bool {
        let at = psn.packets_since(self.unacked);
        let board = self.board.as_ref();
        psn.is_before(self.unacked) || board.is_some_and(|board| board.has_arrived(at))
    }

    /// An answer is overdue: the oldest packet leaves again, and asks for one.
    pub(super) fn probe(&mut self) {
        if self.has_under_way() {
            self.probe = TimeoutProbe::Wanted;
        }
    }

    /// An answer of this number has brought something. Whether it is the answer to a probe and says that all behind that is
    /// missing. One that says that the peer has more brings the next probe.
    pub(super) fn shows_gap(&mut self, answer: Psn) -> bool {
        let TimeoutProbe::Out { end, sent_to } = self.probe else {
            return false;
        };
        if self.unacked.is_before(end) {
            return false;
        }
        self.probe = TimeoutProbe::None;
        // What left behind the probe may just not have come yet.
        if !self.unacked.is_before(sent_to) {
            return false;
        }
        let is_gap = answer.plus(1) == end;
        if !is_gap {
            self.probe = TimeoutProbe::Wanted;
        }
        is_gap
    }

    /// All before `upto` is acknowledged; the requests that end there were taken out before.
    pub(super) fn advance(&mut self, upto: Psn) {
        if let Some(board) = &mut self.board {
            board.forget_front(upto.packets_since(self.unacked));
        }
        self.unacked = upto;
        let least = self.first_unacked();
        let is_behind = self.cursor.index == 0 && self.cursor.packet < least.packet;
        if is_behind {
            self.cursor = least;
        }
        if self.fetches != 0 {
            // Between two of its requests a read that is answered changes nothing.
            let segment = least.packet / self.limits.read_packets;
            let first = self.queue.oldest().map(|work| (work.first, segment));
            if std::mem::replace(&mut self.counted_from, first) != first || first.is_none() {
                self.count_fetches();
            }
        }
    }

    pub(super) fn oldest(&self) -> Option<&SendQueueEntry> {
        self.queue.oldest()
    }

    /// Takes the oldest request out: it has ended.
    pub(super) fn end_oldest(&mut self) -> Option<SendQueueEntry> {
        match self.cursor.index.checked_sub(1) {
            Some(index) => self.cursor.index = index,
            None => self.cursor = RequestCursor::default(),
        }
        self.queue.pop()
    }

    pub(super) fn unacked(&self) -> Psn {
        self.unacked
    }

    /// Whether a packet of this number has left and is not acknowledged.
    pub(super) fn is_under_way(&self, psn: Psn) -> bool {
        psn.packets_since(self.unacked) < self.sent_to.packets_since(self.unacked)
    }

    pub(super) fn has_under_way(&self) -> bool {
        self.sent_to != self.unacked
    }

    /// The part of the oldest request, a read, that the answer of this number brings: where it goes in the body, how long
    /// it is, and whether an answer ends with it.
    pub(super) fn answer_of(&self, read: &SendQueueEntry, psn: Psn) -> (u32, u32, bool) {
        let packet = psn.packets_since(read.first);
        let offset = packet * self.limits.mtu_bytes;
        let bytes = read.body.bytes().saturating_sub(offset);
        let ends = self.limits.span(read, packet).packets == 1;
        (offset, bytes.min(self.limits.mtu_bytes), ends)
    }

    fn note_carried(&mut self, upto: Psn) {
        if self.carried_to.is_before(upto) {
            self.carried_to = upto;
        }
    }

    /// How many packet numbers are under way.
    fn sent(&self) -> u32 {
        self.sent_to.packets_since(self.unacked)
    }

    fn has_left(&mut self, psn: Psn, packets: u32, fetches: bool, asks: bool) {
        let end = psn.plus(packets);
        if self.sent_to.is_before(end) {
            self.sent_to = end;
        }
        if let Some(board) = &mut self.board {
            board.sent(
                self.unacked,
                psn.packets_since(self.unacked),
                packets,
                fetches,
            );
        }
        self.fetches += u32::from(fetches);
        self.unasked = if asks { 0 } else { self.unasked + 1 };
        self.cursor.packet += packets;
        let whole = self.queue.get(self.cursor.index);
        if whole.is_some_and(|work| self.cursor.packet >= work.packets) {
            self.cursor.index += 1;
            self.cursor.packet = 0;
        }
    }

    fn first_unacked(&self) -> RequestCursor {
        let oldest = self.queue.oldest();
        RequestCursor {
            index: 0,
            packet: oldest.map_or(0, |work| self.unacked.packets_since(work.first)),
        }
    }

    /// Counts the reads and atomic operations between `unacked` and the cursor.
    fn count_fetches(&mut self) {
        let mut answered = self.first_unacked().packet;
        let mut count = 0;
        let left = self.queue.iter().take(self.cursor.index + 1).enumerate();
        for (index, work) in left {
            let upto = match index == self.cursor.index {
                true => self.cursor.packet,
                false => work.packets,
            };
            if work.fetches() && upto > answered {
                let each = self.limits.read_packets;
                count += upto.div_ceil(each) - answered / each;
            }
            answered = 0;
        }
        self.fetches = count;
    }
}
