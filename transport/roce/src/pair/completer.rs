// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the answers of the peer mean for requests under way. IBTA vol. 1 section 9.7.5.
//!
//! An acknowledgement is for all packets up to its number, and so is the answer to a read or an atomic operation for all
//! before it. If it passes over a request that wants an answer of its own, that answer was lost, and the request is
//! sent again.
//!
//! From a peer that repeats selectively an answer also says what has come ahead. Whatever has come is noted in whatever order, and
//! requests end when all before them is there.
//!
//! The rest of a read that is sent again may be answered from a first packet on, as if it were new, or, as `rdma_rxe` does it,
//! from a middle one on: only lengths and where an answer ends are checked.

use std::collections::VecDeque;

use super::request::{Completion, Status};
use super::requester::Requester;
use super::send_queue::{Kept, Work};
use crate::format::{Kind, Nak, Packet, PacketSet, Position, Syndrome};
use crate::memory::{Access, Memory, Piece};
use crate::psn::Psn;

/// Completions of the send queue.
#[derive(Debug)]
pub(super) struct Completer {
    done: VecDeque<Completion>,
    number: u32,
}

/// What is to be done after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// Something has come ahead.
    Ahead,
    /// Packets are missing on either side: go back.
    GoBack,
    /// The peer had no receive buffer for this packet: it leaves again after this timer code.
    NotReady(Psn, u8),
    /// The request of this packet number has failed.
    Failed(Psn, Status),
}

impl Completer {
    /// Of the queue pair of this number.
    pub(super) fn new(number: u32) -> Self {
        Self {
            done: VecDeque::new(),
            number,
        }
    }

    /// The next completion, in the order of the requests.
    pub(super) fn poll(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// How many were not polled.
    pub(super) fn unpolled(&self) -> usize {
        self.done.len()
    }

    /// An answer has come.
    pub(super) fn answer<M: Memory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Verdict {
        let psn = packet.bth.psn;
        if requester.is_selective() {
            return self.selective_answer(requester, packet, memory);
        }
        if !requester.is_under_way(psn) {
            return Verdict::Fine;
        }
        match packet.bth.opcode.kind() {
            Kind::ReadResponse => self.read_response(requester, packet, memory),
            Kind::AtomicAcknowledge => self.atomic_answer(requester, packet, memory),
            _ => match packet.aeth().map(|aeth| aeth.syndrome) {
                Some(syndrome) => self.acknowledge(requester, psn, syndrome),
                None => Verdict::Fine,
            },
        }
    }

    /// Ends all requests; the one of packet number `psn` with `status`, if it is one of them, and the others as flushed.
    pub(super) fn fail(&mut self, requester: &mut Requester, psn: Option<Psn>, status: Status) {
        while let Some(work) = requester.end_oldest() {
            let is_it = psn.is_some_and(|psn| psn.packets_since(work.first) < work.packets);
            let status = if is_it { status } else { Status::Flushed };
            self.tell(&work, status);
        }
    }

    fn acknowledge(&mut self, requester: &mut Requester, psn: Psn, syndrome: Syndrome) -> Verdict {
        match syndrome {
            Syndrome::Ack { .. } => match self.settle(requester, psn.plus(1)) {
                true => Verdict::Fine,
                false => Verdict::GoBack,
            },
            Syndrome::NotReady { timer } => match self.settle(requester, psn) {
                true => Verdict::NotReady(psn, timer),
                false => Verdict::GoBack,
            },
            Syndrome::Nak(reason) => {
                self.settle(requester, psn);
                refused(psn, reason)
            }
            Syndrome::Reserved { .. } => Verdict::Fine,
        }
    }

    /// An answer of a peer that repeats selectively.
    fn selective_answer<M: Memory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Verdict {
        let psn = packet.bth.psn;
        let kind = packet.bth.opcode.kind();
        // An acknowledgement of all before the oldest packet may still say what has come ahead.
        let repeats = kind == Kind::Acknowledge && psn.plus(1) == requester.unacked();
        if !repeats && !requester.is_under_way(psn) {
            return Verdict::Fine;
        }
        let nothing = PacketSet::default();
        let (is_news, verdict) = match (kind, packet.aeth().map(|aeth| aeth.syndrome)) {
            (Kind::ReadResponse | Kind::AtomicAcknowledge, _) => {
                match self.fetched(requester, packet, memory) {
                    Ok(is_news) => (is_news, Verdict::Fine),
                    Err(verdict) => (true, verdict),
                }
            }
            (_, Some(Syndrome::Ack { .. })) => {
                let ahead = packet.ahead().unwrap_or(nothing);
                let is_news = requester.note_arrived(psn.plus(1), &ahead);
                (is_news, Verdict::Fine)
            }
            _ if repeats => return Verdict::Fine,
            (_, Some(Syndrome::NotReady { timer })) => {
                requester.note_arrived(psn, &nothing);
                (true, Verdict::NotReady(psn, timer))
            }
            (_, Some(Syndrome::Nak(reason))) => {
                requester.note_arrived(psn, &nothing);
                (true, refused(psn, reason))
            }
            _ => return Verdict::Fine,
        };
        let upto = requester.ended_to();
        while let Some(work) = requester.oldest()
            && !upto.is_before(work.end())
        {
            self.end_well(requester);
        }
        match (upto == requester.unacked(), verdict) {
            (true, Verdict::Fine) if is_news => return Verdict::Ahead,
            (true, _) => {}
            (false, _) => requester.advance(upto),
        }
        verdict
    }

    /// Puts what a read or an atomic operation has brought in its place, whatever is missing before it. Whether it is news.
    fn fetched<M: Memory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Result<bool, Verdict> {
        let psn = packet.bth.psn;
        let work = requester.find(psn).filter(|work| work.fetches());
        let Some(work) = work.filter(|_| !requester.has_arrived(psn)) else {
            return Ok(false);
        };
        let is_placed = match (work.is_read(), packet.atomic_ack()) {
            (true, None) => {
                let (offset, bytes, _) = requester.answer_of(work, psn);
                if u32::try_from(packet.payload.len()) != Ok(bytes) {
                    return Ok(false);
                }
                place(work, offset, packet.payload, memory)
            }
            (false, Some(ack)) => place(work, 0, &ack.value.to_ne_bytes(), memory),
            _ => return Ok(false),
        };
        if !is_placed {
            return Err(Verdict::Failed(psn, Status::LocalProtection));
        }
        requester.note_arrived(psn, &PacketSet::default());
        Ok(requester.note_answer(psn))
    }

    fn read_response<M: Memory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Verdict {
        let psn = packet.bth.psn;
        if !self.settle(requester, psn) {
            return Verdict::GoBack;
        }
        let Some(read) = requester.oldest().filter(|work| work.is_read()) else {
            return Verdict::Fine;
        };
        let (offset, bytes, ends) = requester.answer_of(read, psn);
        let says_end = matches!(
            packet.bth.opcode.position(),
            Position::Last | Position::Only
        );
        if u32::try_from(packet.payload.len()) != Ok(bytes) || says_end != ends {
            return Verdict::Fine;
        }
        if !place(read, offset, packet.payload, memory) {
            return Verdict::Failed(psn, Status::LocalProtection);
        }
        let upto = psn.plus(1);
        if upto == read.end() {
            self.end_well(requester);
        }
        requester.advance(upto);
        Verdict::Fine
    }

    fn atomic_answer<M: Memory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Verdict {
        let psn = packet.bth.psn;
        if !self.settle(requester, psn) {
            return Verdict::GoBack;
        }
        let atomic = requester
            .oldest()
            .filter(|work| work.fetches() && !work.is_read());
        let (Some(atomic), Some(ack)) = (atomic, packet.atomic_ack()) else {
            return Verdict::Fine;
        };
        if !place(atomic, 0, &ack.value.to_ne_bytes(), memory) {
            return Verdict::Failed(psn, Status::LocalProtection);
        }
        self.end_well(requester);
        requester.advance(psn.plus(1));
        Verdict::Fine
    }

    /// All packets before `upto` are acknowledged. `false`: before that is one whose own answer has not come.
    fn settle(&mut self, requester: &mut Requester, upto: Psn) -> bool {
        let mut at = requester.unacked();
        while at.is_before(upto) {
            let Some(work) = requester.oldest() else {
                break;
            };
            if work.fetches() {
                requester.advance(at);
                return false;
            }
            let end = work.end();
            if upto.is_before(end) {
                at = upto;
                break;
            }
            self.end_well(requester);
            at = end;
        }
        if at != requester.unacked() {
            requester.advance(at);
        }
        true
    }

    fn end_well(&mut self, requester: &mut Requester) {
        if let Some(work) = requester.end_oldest()
            && work.signaled
        {
            self.tell(&work, Status::Success);
        }
    }

    fn tell(&mut self, work: &Work, status: Status) {
        let bytes = match status {
            Status::Success => work.body.bytes(),
            _ => 0,
        };
        self.done.push_back(Completion {
            work: work.work,
            status,
            bytes,
            number: self.number,
            immediate: None,
        });
    }
}

/// What a NAK means for the packet that it names.
fn refused(psn: Psn, reason: Nak) -> Verdict {
    let failed = |status| Verdict::Failed(psn, status);
    match reason {
        Nak::Sequence => Verdict::GoBack,
        Nak::InvalidRequest => failed(Status::RemoteInvalid),
        Nak::RemoteAccess => failed(Status::RemoteAccess),
        Nak::RemoteOperation => failed(Status::RemoteOperation),
        Nak::InvalidDatagram => Verdict::Fine,
    }
}

/// Puts bytes of an answer where they go; `false`: memory of this side is not registered as it should be.
fn place<M: Memory>(work: &Work, offset: u32, bytes: &[u8], memory: &mut M) -> bool {
    let Kept::Piece(piece) = work.body else {
        return false;
    };
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if length == 0 {
        return true;
    }
    let Piece {
        key,
        address,
        bytes: wanted,
    } = piece.part(offset, length);
    memory
        .check(key, address, wanted.into(), Access::LocalWrite)
        .and_then(|()| memory.place(key, address, bytes))
        .is_ok()
}
