// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending half of a queue pair: cuts requests into packets, keeps to the window, and goes back. IBTA vol. 1 section 9.7.2.
//!
//! Three numbers say where it stands. All packets before `unacked` are acknowledged; all before `sent_to` have left at least
//! once; the cursor, between the two, is what leaves next. To go back is to set the cursor to `unacked`.
//!
//! When an answer is overdue, the packet at `unacked` alone leaves again, as a probe: it asks what the peer has. If the answer is
//! for the probe and nothing behind it, all behind it leaves again.
//!
//! A long read leaves as several requests of at most `read_packets` packets. One whose answers have come in part is sent again
//! for the rest of it.

use super::config::Config;
use super::outgoing::{Label, Sending, Source};
use super::request::{Operation, PostError, Request, Status};
use super::send_queue::{Kept, SendQueue, Work};
use crate::format::{AtomicEth, Headers, ImmDt, Kind, Opcode, Position, Reth};
use crate::memory::{Access, Memory};
use crate::psn::Psn;

/// The sending half.
#[derive(Debug)]
pub(super) struct Requester {
    queue: SendQueue,
    limits: Limits,
    label: Label,
    cursor: Cursor,
    unacked: Psn,
    sent_to: Psn,
    /// Reads and atomic operations under way.
    fetches: u32,
    /// Packets that have left since one that asked for an acknowledgement.
    unasked: u32,
    probe: Probe,
}

/// The packet that leaves again because no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    None,
    /// It has not left.
    Wanted,
    /// It has left; the number behind it.
    Out(Psn),
}

/// What leaves next.
#[derive(Debug)]
pub(super) enum Next {
    Packet {
        sending: Sending,
        /// Its number, if it leaves for the first time and asks for an answer.
        timed: Option<Psn>,
    },
    Nothing,
    /// The oldest request cannot go on.
    Failed(Status),
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    mtu_bytes: u32,
    window_packets: u32,
    read_packets: u32,
    fetches: u32,
    /// Half of the window at most, so that a full one always has an answer coming.
    ask_every: u32,
}

/// A packet of a request: the index of that in the queue, and packets before it in the request.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    index: usize,
    packet: u32,
}

/// The part of a request that one packet stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    offset: u32,
    bytes: u32,
    /// How many packet numbers.
    packets: u32,
    position: Position,
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            queue: SendQueue::new(config),
            limits: Limits {
                mtu_bytes: config.path_mtu.bytes(),
                window_packets: config.window_packets,
                read_packets: config.read_packets,
                fetches: config.initiator_depth.into(),
                ask_every: config.window_packets.div_ceil(2).min(ASK_EVERY_MAX),
            },
            label: Label::new(config),
            cursor: Cursor::default(),
            unacked: config.our_first,
            sent_to: config.our_first,
            fetches: 0,
            unasked: 0,
            probe: Probe::None,
        }
    }

    pub(super) fn post(&mut self, request: &Request<'_>, unpolled: usize) -> Result<(), PostError> {
        self.queue.push(request, unpolled)
    }

    /// The next packet, if the limits allow one.
    pub(super) fn next<M: Memory>(&mut self, memory: &M) -> Next {
        if self.probe == Probe::Wanted {
            self.probe = Probe::None;
            if self.has_under_way() {
                return self.next_probe(memory);
            }
        }
        let Some(work) = self.queue.get(self.cursor.index) else {
            return Next::Nothing;
        };
        let psn = work.first.plus(self.cursor.packet);
        let ahead = psn.packets_since(self.unacked);
        let waits = work.fetches() && self.fetches >= self.limits.fetches;
        if ahead >= self.limits.window_packets || waits {
            return Next::Nothing;
        }
        let span = self.limits.span(work, self.cursor.packet);
        let Some(payload) = payload(work, self.cursor.index, span, memory) else {
            // It is told in its turn: what was posted before it ends first.
            return match self.cursor.index {
                0 => Next::Failed(Status::LocalProtection),
                _ => Next::Nothing,
            };
        };
        let ends = matches!(span.position, Position::Last | Position::Only);
        let asks = ends || self.unasked + 1 >= self.limits.ask_every;
        let sending = Sending {
            headers: headers(&self.label, work, psn, span, asks),
            payload,
        };
        let is_first_time = !psn.is_before(self.sent_to);
        let fetches = work.fetches();
        self.has_left(psn, span.packets, fetches, asks);
        Next::Packet {
            sending,
            timed: (asks && is_first_time).then_some(psn),
        }
    }

    /// The oldest packet that has no answer; the cursor stays.
    fn next_probe<M: Memory>(&mut self, memory: &M) -> Next {
        let at = self.first_unacked();
        let Some(work) = self.queue.get(at.index) else {
            return Next::Nothing;
        };
        let span = self.limits.span(work, at.packet);
        let Some(payload) = payload(work, at.index, span, memory) else {
            return Next::Failed(Status::LocalProtection);
        };
        let headers = headers(&self.label, work, self.unacked, span, true);
        self.probe = Probe::Out(self.unacked.plus(span.packets));
        Next::Packet {
            sending: Sending { headers, payload },
            timed: None,
        }
    }

    /// Inline bytes of a packet.
    pub(super) fn inline(&self, index: usize, offset: u32, bytes: u32) -> &[u8] {
        let range = usize::try_from(offset)
            .ok()
            .zip(usize::try_from(bytes).ok());
        match (self.queue.get(index).map(|work| &work.body), range) {
            (Some(Kept::Inline(body)), Some((offset, bytes))) => {
                body.get(offset..offset + bytes).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// All that is not acknowledged leaves again.
    pub(super) fn go_back(&mut self) {
        self.probe = Probe::None;
        self.cursor = self.first_unacked();
        self.unasked = 0;
        self.count_fetches();
    }

    /// An answer is overdue: the oldest packet leaves again, and asks for one. Its number.
    pub(super) fn probe(&mut self) -> Psn {
        if self.has_under_way() {
            self.probe = Probe::Wanted;
        }
        self.unacked
    }

    /// An answer of this number has brought something. Whether it is the answer to a probe and says that all behind that is
    /// missing. One that says that the peer has more brings the next probe.
    pub(super) fn shows_gap(&mut self, answer: Psn) -> bool {
        let Probe::Out(end) = self.probe else {
            return false;
        };
        if self.unacked.is_before(end) {
            return false;
        }
        self.probe = Probe::None;
        if !self.has_under_way() {
            return false;
        }
        let is_gap = answer.plus(1) == end;
        if !is_gap {
            self.probe = Probe::Wanted;
        }
        is_gap
    }

    /// All before `upto` is acknowledged; the requests that end there were taken out before.
    pub(super) fn advance(&mut self, upto: Psn) {
        self.unacked = upto;
        let least = self.first_unacked();
        let is_behind = self.cursor.index == 0 && self.cursor.packet < least.packet;
        if is_behind {
            self.cursor = least;
        }
        if self.fetches != 0 {
            self.count_fetches();
        }
    }

    pub(super) fn oldest(&self) -> Option<&Work> {
        self.queue.oldest()
    }

    /// Takes the oldest request out: it has ended.
    pub(super) fn end_oldest(&mut self) -> Option<Work> {
        match self.cursor.index.checked_sub(1) {
            Some(index) => self.cursor.index = index,
            None => self.cursor = Cursor::default(),
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
    pub(super) fn answer_of(&self, read: &Work, psn: Psn) -> (u32, u32, bool) {
        let packet = psn.packets_since(read.first);
        let offset = packet * self.limits.mtu_bytes;
        let bytes = read.body.bytes().saturating_sub(offset);
        let ends = self.limits.span(read, packet).packets == 1;
        (offset, bytes.min(self.limits.mtu_bytes), ends)
    }

    fn has_left(&mut self, psn: Psn, packets: u32, fetches: bool, asks: bool) {
        let end = psn.plus(packets);
        if self.sent_to.is_before(end) {
            self.sent_to = end;
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

    fn first_unacked(&self) -> Cursor {
        let oldest = self.queue.oldest();
        Cursor {
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

impl Limits {
    /// What the packet that begins at `packet` of a request stands for.
    fn span(&self, work: &Work, packet: u32) -> Span {
        let rest = work.packets.saturating_sub(packet);
        let packets = match work.is_read() {
            true => rest.min(self.read_packets - packet % self.read_packets),
            false => 1,
        };
        let offset = packet.saturating_mul(self.mtu_bytes);
        let bytes = work.body.bytes().saturating_sub(offset);
        let position = match (packet == 0, packets == rest) {
            _ if work.is_read() => Position::Only,
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        Span {
            offset,
            bytes: bytes.min(packets.saturating_mul(self.mtu_bytes)),
            packets,
            position,
        }
    }
}

/// Where the payload of a packet is; `None` if memory of this side is not registered as it should be.
fn payload<M: Memory>(work: &Work, index: usize, span: Span, memory: &M) -> Option<Source> {
    let Span { offset, bytes, .. } = span;
    let access = match work.fetches() {
        true => Access::LocalWrite,
        false => Access::LocalRead,
    };
    match &work.body {
        _ if bytes == 0 => Some(Source::Nothing),
        Kept::Inline(_) => Some(Source::Inline {
            index,
            offset,
            bytes,
        }),
        Kept::Piece(piece) => {
            let part = piece.part(offset, bytes);
            let checked = memory.check(part.key, part.address, part.bytes.into(), access);
            checked.ok().map(|()| match work.fetches() {
                true => Source::Nothing,
                false => Source::Piece(part),
            })
        }
    }
}

fn headers(label: &Label, work: &Work, psn: Psn, span: Span, asks: bool) -> Headers {
    let ends = matches!(span.position, Position::Last | Position::Only);
    let immediate = work.immediate.filter(|_| ends);
    let begin = |kind, bytes| {
        let opcode = Opcode::reliable(kind, span.position, immediate.is_some());
        Headers::new(&label.bth(opcode, psn, bytes, asks))
    };
    let headers = match work.operation {
        Operation::Send => begin(Kind::Send, span.bytes),
        Operation::Write { address, key } => {
            let headers = begin(Kind::Write, span.bytes);
            match span.position {
                Position::First | Position::Only => headers.reth(&Reth {
                    address,
                    key,
                    bytes: work.body.bytes(),
                }),
                _ => headers,
            }
        }
        Operation::Read { address, key } => begin(Kind::ReadRequest, 0).reth(&Reth {
            address: address.wrapping_add(span.offset.into()),
            key,
            bytes: span.bytes,
        }),
        Operation::FetchAdd { address, key, add } => begin(Kind::FetchAdd, 0).atomic(&AtomicEth {
            address,
            key,
            swap: add,
            compare: 0,
        }),
        Operation::CompareSwap {
            address,
            key,
            compare,
            swap,
        } => begin(Kind::CompareSwap, 0).atomic(&AtomicEth {
            address,
            key,
            swap,
            compare,
        }),
    };
    immediate.map_or(headers, |data| headers.immediate(&ImmDt { data }))
}

/// In a long message an acknowledgement is asked for at least so often, as `rdma_rxe` does.
const ASK_EVERY_MAX: u32 = 64;
