// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requester: splits requests into packets, respects the window, and sends lost packets again. IBTA vol. 1 section
//! 9.7.
//!
//! Its state is three positions in the sequence of packets. All packets before `unacked` are acknowledged. All packets
//! before `sent_to` were sent at least once. The cursor, between these two, is the next packet to send; to "go back"
//! means to set the cursor to `unacked`.
//!
//! When a response times out, only the packet at `unacked` is sent again, as a probe that requests an acknowledgement.
//! If the response acknowledges the probe and no packet behind it, all packets behind the probe are sent again.
//!
//! With selective repeat the cursor never goes back: packets that the scoreboard reports as lost are sent first.
//!
//! A long read is sent as several requests of at most `read_packets` packets. If the response to such a request arrives
//! only in part, the rest is requested again.

use super::config::Config;
use super::outgoing::{HeaderTemplate, PayloadSource};
use super::request::{CompletionStatus, PostError, RoceRequest};
use super::scoreboard::Scoreboard;
use super::send_queue::{SendQueue, SendQueueEntry};
use super::span::{PacketLimits, PacketSpan, payload, write_headers};
use crate::format::{Headers, MessagePosition, Packet, PacketSet};
use crate::memory::RegisteredMemory;
use crate::psn::Psn;

/// The sending half of a queue pair.
#[derive(Debug)]
pub(super) struct Requester {
    queue: SendQueue,
    limits: PacketLimits,
    template: HeaderTemplate,
    cursor: RequestCursor,
    unacked: Psn,
    sent_to: Psn,
    /// Number of outstanding reads and atomic operations.
    fetches: u32,
    /// The state when `fetches` was last counted: PSN of the oldest request, and, if it is a read, its first segment
    /// whose response is not complete.
    counted_from: Option<(Psn, u32)>,
    /// Number of packets sent since the last packet with AckReq set.
    since_ack_request: u32,
    probe: TimeoutProbe,
    /// The peer has executed all packets before this PSN. A packet that the peer has received out of order does not
    /// count, since the peer may still refuse it.
    executed_to: Psn,
    /// The state of selective repeat; `None`: go-back-N.
    board: Option<Box<Scoreboard>>,
}

/// The state of the probe: the packet that is sent again after a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeoutProbe {
    None,
    /// Not sent yet.
    Pending,
    /// Sent. `end`: the PSN behind the probe; `sent_to`: the PSN behind all packets that were sent before the probe.
    Out {
        end: Psn,
        sent_to: Psn,
    },
}

/// The next packet to send.
#[derive(Debug)]
pub(super) enum NextPacket {
    Packet(PayloadSource, Transmission),
    Nothing,
    /// The oldest request has failed.
    Failed(CompletionStatus),
}

/// Whether a packet was sent before, and whether its round trip is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transmission {
    /// The packet is sent for the first time, with AckReq: its round trip can be measured.
    Timed(Psn),
    /// The packet is sent for the first time, without AckReq.
    Untimed,
    Repeated(Psn),
}

/// A position in the send queue: index of a request, and the number of packets of that request before the position.
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
            template: HeaderTemplate::new(config),
            cursor: RequestCursor::default(),
            unacked: config.sq_psn,
            sent_to: config.sq_psn,
            fetches: 0,
            counted_from: None,
            since_ack_request: 0,
            probe: TimeoutProbe::None,
            executed_to: config.sq_psn,
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

    /// The next packet, if the limits allow one. Its headers are written to `headers`.
    pub(super) fn next<M: RegisteredMemory>(
        &mut self,
        memory: &M,
        headers: &mut Headers,
    ) -> NextPacket {
        if self.probe == TimeoutProbe::Pending {
            self.probe = TimeoutProbe::None;
            if self.has_outstanding() {
                return self.next_probe(memory, headers);
            }
        }
        if let Some(board) = &self.board
            && let Some(lost) = board.next_lost()
        {
            // The oldest packet may exceed the window, since the peer waits for it.
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
        let is_awaited =
            ends && (work.signaled || work.fetches() || self.limits.acks_every_request);
        let ack_request = is_awaited || self.since_ack_request + 1 >= self.limits.ack_interval;
        let fetches = work.fetches();
        let Ok(payload) = self.packet(self.cursor.index, psn, span, ack_request, (memory, headers))
        else {
            // A failure is reported only when its request is the oldest one: requests posted earlier complete first.
            return match self.cursor.index {
                0 => NextPacket::Failed(CompletionStatus::LocalProtection),
                _ => NextPacket::Nothing,
            };
        };
        let transmission = match (psn.is_before(self.sent_to), ack_request) {
            (true, _) => Transmission::Repeated(psn),
            (false, true) => Transmission::Timed(psn),
            (false, false) => Transmission::Untimed,
        };
        self.record_sent(psn, span.packets, fetches, ack_request);
        NextPacket::Packet(payload, transmission)
    }

    /// Whether the limits allow a packet that takes `packets` PSNs.
    fn has_room(&self, psn: Psn, packets: u32) -> bool {
        let ahead = psn.packets_since(self.unacked);
        let Some(board) = &self.board else {
            return self.has_window(ahead);
        };
        // At most `ahead` packets are in flight. To count them takes longer than all else here.
        let has_window = self.has_window(ahead) || self.has_window(board.in_flight(ahead));
        ahead + packets <= PacketSet::PACKETS && has_window
    }

    /// Whether one more packet may be sent. If the window has shrunk since the outstanding packets were sent, perhaps
    /// none of these packets has AckReq set. In that case one more packet may be sent, with AckReq.
    fn has_window(&self, in_flight: u32) -> bool {
        in_flight < self.limits.window_packets || in_flight <= self.since_ack_request
    }

    /// Sends the oldest unacknowledged packet as a probe; the cursor does not move.
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
        NextPacket::Packet(payload, Transmission::Repeated(self.unacked))
    }

    /// Sends the lost packet at distance `lost` from `unacked`. If it belongs to a read, the request is for all
    /// consecutive lost packets from there on.
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
        NextPacket::Packet(payload, Transmission::Repeated(psn))
    }

    /// Writes the headers of the packet for a span; returns the source of its payload. `Err`: local protection error.
    fn packet<M: RegisteredMemory>(
        &self,
        index: usize,
        psn: Psn,
        span: PacketSpan,
        ack_request: bool,
        (memory, headers): (&M, &mut Headers),
    ) -> Result<PayloadSource, ()> {
        let work = self.queue.get(index).ok_or(())?;
        let payload = payload(work, index, span, memory).ok_or(())?;
        write_headers(headers, &self.template, work, psn, span, ack_request);
        Ok(payload)
    }

    /// `bytes` bytes from `offset` on of the inline body of the request at `index`.
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

    /// Sets the window to `packets`.
    pub(super) fn set_window(&mut self, packets: u32) {
        self.limits.set_window(packets);
    }

    /// Causes all unacknowledged packets to be sent again; with selective repeat, except those that have arrived.
    pub(super) fn go_back(&mut self) {
        self.probe = TimeoutProbe::None;
        let sent = self.sent();
        if let Some(board) = &mut self.board {
            return board.lose_all(sent);
        }
        self.cursor = self.first_unacked();
        self.since_ack_request = 0;
        self.count_fetches();
    }

    /// Records that the peer had no receive buffer for this packet. The packet is sent again; without selective repeat,
    /// so are all packets behind it.
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

    /// Records that the peer has executed all packets before `upto`, and has received the packets of `ahead` out of
    /// order. Returns whether any of that is new.
    pub(super) fn note_arrived(&mut self, upto: Psn, ahead: &PacketSet) -> bool {
        let (unacked, sent) = (self.unacked, self.sent());
        self.note_executed(upto);
        let in_order = upto.packets_since(unacked);
        self.board
            .as_mut()
            .is_some_and(|board| board.acknowledge(unacked, sent, in_order, ahead))
    }

    /// Records the response packet with this PSN to a read or an atomic operation. Returns whether it is the first with
    /// this PSN.
    pub(super) fn note_answer(&mut self, psn: Psn) -> bool {
        let unacked = self.unacked;
        self.note_executed(psn.plus(1));
        let at = psn.packets_since(unacked);
        self.board
            .as_mut()
            .is_some_and(|board| board.answer(unacked, at))
    }

    /// The end of the longest run of packets from `unacked` on that the peer has executed and whose responses, if they
    /// need any, have arrived.
    pub(super) fn ended_to(&self) -> Psn {
        let run = self.board.as_ref().map_or(0, |board| board.run());
        let carried = self.executed_to.packets_since(self.unacked);
        self.unacked.plus(run.min(carried))
    }

    /// The request that contains this PSN.
    pub(super) fn find(&self, psn: Psn) -> Option<&SendQueueEntry> {
        let (index, _) = self.queue.find(psn)?;
        self.queue.get(index)
    }

    /// Whether the packet with this PSN is known to have arrived at the peer. For a PSN of a read or an atomic
    /// operation: whether its response packet has arrived.
    pub(super) fn has_arrived(&self, psn: Psn) -> bool {
        let at = psn.packets_since(self.unacked);
        let board = self.board.as_ref();
        psn.is_before(self.unacked) || board.is_some_and(|board| board.has_arrived(at))
    }

    /// Requests a probe after a timeout, if packets are outstanding: the oldest packet is sent again, with AckReq.
    pub(super) fn probe(&mut self) {
        if self.has_outstanding() {
            self.probe = TimeoutProbe::Pending;
        }
    }

    /// Handles a response that advanced `unacked`. If the response covers the probe, the probe ends. Returns whether
    /// the response shows that all packets behind the probe are missing. If it acknowledges more than the probe, but
    /// not all packets that were sent before the probe, another probe is requested.
    pub(super) fn shows_gap(&mut self, answer: Psn) -> bool {
        let TimeoutProbe::Out { end, sent_to } = self.probe else {
            return false;
        };
        if self.unacked.is_before(end) {
            return false;
        }
        self.probe = TimeoutProbe::None;
        // All packets that were sent before the probe are acknowledged; packets sent after it may still be on their
        // way, so they do not count as missing.
        if !self.unacked.is_before(sent_to) {
            return false;
        }
        let is_gap = answer.plus(1) == end;
        if !is_gap {
            self.probe = TimeoutProbe::Pending;
        }
        is_gap
    }

    /// Advances `unacked` to `upto`. The caller has removed the requests that end before `upto`.
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
            // The count is unchanged while response packets of the same segment of a read arrive.
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

    /// Removes the oldest request and returns it.
    pub(super) fn end_oldest(&mut self) -> Option<SendQueueEntry> {
        match self.cursor.index.checked_sub(1) {
            Some(index) => self.cursor.index = index,
            None => self.cursor = RequestCursor::default(),
        }
        self.queue.pop()
    }

    /// Whether there are packets to send, or to send again, if the limits allow that.
    pub(super) fn has_unsent(&self) -> bool {
        let is_any_lost = self
            .board
            .as_ref()
            .is_some_and(|board| board.next_lost().is_some());
        self.probe == TimeoutProbe::Pending
            || is_any_lost
            || self.queue.get(self.cursor.index).is_some()
    }

    /// Whether a part of the next request to send was sent.
    pub(super) fn is_inside_request(&self) -> bool {
        self.cursor.packet != 0
    }

    pub(super) fn unacked(&self) -> Psn {
        self.unacked
    }

    /// Whether a packet with this PSN is outstanding.
    pub(super) fn is_outstanding(&self, psn: Psn) -> bool {
        psn.packets_since(self.unacked) < self.sent_to.packets_since(self.unacked)
    }

    pub(super) fn has_outstanding(&self) -> bool {
        self.sent_to != self.unacked
    }

    /// The part of a read that the response packet with this PSN carries: offset and length in bytes, and whether the
    /// packet is the last of a response.
    pub(super) fn answer_of(&self, read: &SendQueueEntry, psn: Psn) -> (u32, u32, bool) {
        let packet = psn.packets_since(read.first);
        let offset = packet * self.limits.mtu_bytes;
        let bytes = read.body.bytes().saturating_sub(offset);
        let ends = self.limits.span(read, packet).packets == 1;
        (offset, bytes.min(self.limits.mtu_bytes), ends)
    }

    /// The first `bytes` bytes of the payload of a response packet; `None`: it has another length, and is not padded to
    /// a whole packet.
    pub(super) fn payload_of<'a>(&self, packet: &Packet<'a>, bytes: u32) -> Option<&'a [u8]> {
        let arrived = u32::try_from(packet.payload.len()).ok()?;
        let fits = arrived == bytes || arrived == self.limits.mtu_bytes;
        let wanted = usize::try_from(bytes).ok().filter(|_| fits)?;
        packet.payload.get(..wanted)
    }

    fn note_executed(&mut self, upto: Psn) {
        if self.executed_to.is_before(upto) {
            self.executed_to = upto;
        }
    }

    /// Number of outstanding PSNs.
    fn sent(&self) -> u32 {
        self.sent_to.packets_since(self.unacked)
    }

    fn record_sent(&mut self, psn: Psn, packets: u32, fetches: bool, ack_request: bool) {
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
        self.since_ack_request = if ack_request {
            0
        } else {
            self.since_ack_request + 1
        };
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

    /// Counts the outstanding reads and atomic operations, between `unacked` and the cursor.
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
