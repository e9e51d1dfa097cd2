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

use super::request::{CompletionStatus, WorkCompletion};
use super::requester::Requester;
use super::send_queue::{SendQueueBody, SendQueueEntry};
use crate::format::{MessagePosition, Nak, OpcodeClass, Packet, PacketSet, Syndrome};
use crate::memory::{MemoryAccess, RegisteredMemory, RoceSge};
use crate::psn::Psn;

/// Completions of the send queue.
#[derive(Debug)]
pub(super) struct Completer {
    done: VecDeque<WorkCompletion>,
    number: u32,
}

/// What to do after an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompleterAction {
    /// Nothing.
    Fine,
    /// Something has come ahead.
    Ahead,
    /// Packets are missing on either side: go back.
    GoBack,
    /// The peer had no receive buffer for this packet: it leaves again after this timer code.
    NotReady(Psn, u8),
    /// The request of this packet number has failed.
    Failed(Psn, CompletionStatus),
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
    pub(super) fn poll(&mut self) -> Option<WorkCompletion> {
        self.done.pop_front()
    }

    /// How many were not polled.
    pub(super) fn unpolled(&self) -> usize {
        self.done.len()
    }

    /// An answer has come.
    pub(super) fn answer<M: RegisteredMemory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> CompleterAction {
        let psn = packet.bth.psn;
        if requester.is_selective() {
            return self.selective_answer(requester, packet, memory);
        }
        if !requester.is_under_way(psn) {
            return CompleterAction::Fine;
        }
        match packet.bth.opcode.kind() {
            OpcodeClass::ReadResponse => self.read_response(requester, packet, memory),
            OpcodeClass::AtomicAcknowledge => self.atomic_answer(requester, packet, memory),
            _ => match packet.aeth().map(|aeth| aeth.syndrome) {
                Some(syndrome) => self.acknowledge(requester, psn, syndrome),
                None => CompleterAction::Fine,
            },
        }
    }

    /// Ends all requests; the one of packet number `psn` with `status`, if it is one of them, and the others as flushed.
    pub(super) fn fail(
        &mut self,
        requester: &mut Requester,
        psn: Option<Psn>,
        status: CompletionStatus,
    ) {
        while let Some(work) = requester.end_oldest() {
            let is_it = psn.is_some_and(|psn| psn.packets_since(work.first) < work.packets);
            let status = if is_it {
                status
            } else {
                CompletionStatus::Flushed
            };
            self.tell(&work, status);
        }
    }

    fn acknowledge(
        &mut self,
        requester: &mut Requester,
        psn: Psn,
        syndrome: Syndrome,
    ) -> CompleterAction {
        match syndrome {
            Syndrome::Ack { .. } => match self.settle(requester, psn.plus(1)) {
                true => CompleterAction::Fine,
                false => CompleterAction::GoBack,
            },
            Syndrome::NotReady { timer } => match self.settle(requester, psn) {
                true => CompleterAction::NotReady(psn, timer),
                false => CompleterAction::GoBack,
            },
            Syndrome::Nak(reason) => {
                self.settle(requester, psn);
                refused(psn, reason)
            }
            Syndrome::Reserved { .. } => CompleterAction::Fine,
        }
    }

    /// An answer of a peer that repeats selectively.
    fn selective_answer<M: RegisteredMemory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> CompleterAction {
        let psn = packet.bth.psn;
        let kind = packet.bth.opcode.kind();
        // An acknowledgement of all before the oldest packet may still say what has come ahead.
        let repeats = kind == OpcodeClass::Acknowledge && psn.plus(1) == requester.unacked();
        if !repeats && !requester.is_under_way(psn) {
            return CompleterAction::Fine;
        }
        let nothing = PacketSet::default();
        let (is_news, verdict) = match (kind, packet.aeth().map(|aeth| aeth.syndrome)) {
            (OpcodeClass::ReadResponse | OpcodeClass::AtomicAcknowledge, _) => {
                match self.fetched(requester, packet, memory) {
                    Ok(is_news) => (is_news, CompleterAction::Fine),
                    Err(verdict) => (true, verdict),
                }
            }
            (_, Some(Syndrome::Ack { .. })) => {
                let ahead = packet.ahead().unwrap_or(nothing);
                let is_news = requester.note_arrived(psn.plus(1), &ahead);
                (is_news, CompleterAction::Fine)
            }
            _ if repeats => return CompleterAction::Fine,
            (_, Some(Syndrome::NotReady { timer })) => {
                requester.note_arrived(psn, &nothing);
                (true, CompleterAction::NotReady(psn, timer))
            }
            (_, Some(Syndrome::Nak(reason))) => {
                requester.note_arrived(psn, &nothing);
                (true, refused(psn, reason))
            }
            _ => return CompleterAction::Fine,
        };
        let upto = requester.ended_to();
        while let Some(work) = requester.oldest()
            && !upto.is_before(work.end())
        {
            self.end_well(requester);
        }
        match (upto == requester.unacked(), verdict) {
            (true, CompleterAction::Fine) if is_news => return CompleterAction::Ahead,
            (true, _) => {}
            (false, _) => requester.advance(upto),
        }
        verdict
    }

    /// Puts what a read or an atomic operation has brought in its place, whatever is missing before it. Whether it is news.
    fn fetched<M: RegisteredMemory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Result<bool, CompleterAction> {
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
            return Err(CompleterAction::Failed(
                psn,
                CompletionStatus::LocalProtection,
            ));
        }
        requester.note_arrived(psn, &PacketSet::default());
        Ok(requester.note_answer(psn))
    }

    fn read_response<M: RegisteredMemory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> CompleterAction {
        let psn = packet.bth.psn;
        if !self.settle(requester, psn) {
            return CompleterAction::GoBack;
        }
        let Some(read) = requester.oldest().filter(|work| work.is_read()) else {
            return CompleterAction::Fine;
        };
        let (offset, bytes, ends) = requester.answer_of(read, psn);
        let says_end = matches!(
            packet.bth.opcode.position(),
            MessagePosition::Last | MessagePosition::Only
        );
        if u32::try_from(packet.payload.len()) != Ok(bytes) || says_end != ends {
            return CompleterAction::Fine;
        }
        if !place(read, offset, packet.payload, memory) {
            return CompleterAction::Failed(psn, CompletionStatus::LocalProtection);
        }
        let upto = psn.plus(1);
        if upto == read.end() {
            self.end_well(requester);
        }
        requester.advance(upto);
        CompleterAction::Fine
    }

    fn atomic_answer<M: RegisteredMemory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> CompleterAction {
        let psn = packet.bth.psn;
        if !self.settle(requester, psn) {
            return CompleterAction::GoBack;
        }
        let atomic = requester
            .oldest()
            .filter(|work| work.fetches() && !work.is_read());
        let (Some(atomic), Some(ack)) = (atomic, packet.atomic_ack()) else {
            return CompleterAction::Fine;
        };
        if !place(atomic, 0, &ack.value.to_ne_bytes(), memory) {
            return CompleterAction::Failed(psn, CompletionStatus::LocalProtection);
        }
        self.end_well(requester);
        requester.advance(psn.plus(1));
        CompleterAction::Fine
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
            self.tell(&work, CompletionStatus::Success);
        }
    }

    fn tell(&mut self, work: &SendQueueEntry, status: CompletionStatus) {
        let bytes = match status {
            CompletionStatus::Success => work.body.bytes(),
            _ => 0,
        };
        self.done.push_back(WorkCompletion {
            work: work.work,
            status,
            bytes,
            number: self.number,
            immediate: None,
        });
    }
}

/// What a NAK means for the packet that it names.
fn refused(psn: Psn, reason: Nak) -> CompleterAction {
    let failed = |status| CompleterAction::Failed(psn, status);
    match reason {
        Nak::Sequence => CompleterAction::GoBack,
        Nak::InvalidRequest => failed(CompletionStatus::RemoteInvalid),
        Nak::RemoteAccess => failed(CompletionStatus::RemoteAccess),
        Nak::RemoteOperation => failed(CompletionStatus::RemoteOperation),
        Nak::InvalidDatagram => CompleterAction::Fine,
    }
}

/// Puts bytes of an answer where they go; `false`: memory of this side is not registered as it should be.
fn place<M: RegisteredMemory>(
    work: &SendQueueEntry,
    offset: u32,
    bytes: &[u8],
    memory: &mut M,
) -> bool {
    let SendQueueBody::Piece(piece) = work.body else {
        return false;
    };
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if length == 0 {
        return true;
    }
    let RoceSge {
        key,
        address,
        bytes: wanted,
    } = piece.part(offset, length);
    memory
        .check(key, address, wanted.into(), MemoryAccess::LocalWrite)
        .and_then(|()| memory.place(key, address, bytes))
        .is_ok()
}
