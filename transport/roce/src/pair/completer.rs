// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes outstanding requests as the peer's responses arrive. IBTA vol. 1 section 9.7.5.
//!
//! An acknowledgement covers all packets up to its PSN; the response to a read or an atomic operation covers all
//! packets before it. If a response covers a read or an atomic operation whose own response has not arrived, that
//! response was lost, and the request is sent again.
//!
//! With selective repeat an acknowledgement also reports packets received out of order. Arrivals are recorded in any
//! order; a request completes when all packets up to its end have arrived.
//!
//! When the rest of a read is requested again, the response of most peers begins with a "first" packet, as for a new
//! read; that of `rdma_rxe` begins with a "middle" packet. So only lengths and the end of the response are checked.

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

/// The action that a response requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompleterAction {
    /// No action.
    Fine,
    /// Packets have arrived out of order.
    Ahead,
    /// Packets or responses are missing: go back.
    GoBack,
    /// RNR NAK: the packet with this PSN is sent again after the time of this timer code.
    RnrNak(Psn, u8),
    /// The request that contains this PSN has failed with this status.
    Failed(Psn, CompletionStatus),
}

impl Completer {
    /// The completer of the queue pair with QPN `number`.
    pub(super) fn new(number: u32) -> Self {
        Self {
            done: VecDeque::new(),
            number,
        }
    }

    /// The next completion, in the order of posting.
    pub(super) fn poll(&mut self) -> Option<WorkCompletion> {
        self.done.pop_front()
    }

    /// Number of completions that were not polled.
    pub(super) fn unpolled(&self) -> usize {
        self.done.len()
    }

    /// Handles a response, and returns the action that it requires.
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
        if !requester.is_outstanding(psn) {
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

    /// Completes all requests: the request that contains `psn`, if any, with `status`, and all others as flushed.
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
            self.complete(&work, status);
        }
    }

    fn acknowledge(
        &mut self,
        requester: &mut Requester,
        psn: Psn,
        syndrome: Syndrome,
    ) -> CompleterAction {
        match syndrome {
            Syndrome::Ack { .. } => match self.acknowledge_before(requester, psn.plus(1)) {
                true => CompleterAction::Fine,
                false => CompleterAction::GoBack,
            },
            Syndrome::RnrNak { timer } => match self.acknowledge_before(requester, psn) {
                true => CompleterAction::RnrNak(psn, timer),
                false => CompleterAction::GoBack,
            },
            Syndrome::Nak(reason) => {
                self.acknowledge_before(requester, psn);
                action_of_nak(psn, reason)
            }
            Syndrome::Reserved { .. } => CompleterAction::Fine,
        }
    }

    /// Handles a response with selective repeat.
    fn selective_answer<M: RegisteredMemory>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> CompleterAction {
        let psn = packet.bth.psn;
        let kind = packet.bth.opcode.kind();
        // An acknowledgement of the packet before the oldest unacknowledged one may still report packets received out
        // of order.
        let repeats = kind == OpcodeClass::Acknowledge && psn.plus(1) == requester.unacked();
        if !repeats && !requester.is_outstanding(psn) {
            return CompleterAction::Fine;
        }
        let nothing = PacketSet::default();
        let (is_new, verdict) = match (kind, packet.aeth().map(|aeth| aeth.syndrome)) {
            (OpcodeClass::ReadResponse | OpcodeClass::AtomicAcknowledge, _) => {
                match self.fetched(requester, packet, memory) {
                    Ok(is_new) => (is_new, CompleterAction::Fine),
                    Err(verdict) => (true, verdict),
                }
            }
            (_, Some(Syndrome::Ack { .. })) => {
                let ahead = packet.sack().unwrap_or(nothing);
                let is_new = requester.note_arrived(psn.plus(1), &ahead);
                (is_new, CompleterAction::Fine)
            }
            _ if repeats => return CompleterAction::Fine,
            (_, Some(Syndrome::RnrNak { timer })) => {
                requester.note_arrived(psn, &nothing);
                (true, CompleterAction::RnrNak(psn, timer))
            }
            (_, Some(Syndrome::Nak(reason))) => {
                requester.note_arrived(psn, &nothing);
                (true, action_of_nak(psn, reason))
            }
            _ => return CompleterAction::Fine,
        };
        let upto = requester.ended_to();
        while let Some(work) = requester.oldest()
            && !upto.is_before(work.end())
        {
            self.complete_oldest(requester);
        }
        match (upto == requester.unacked(), verdict) {
            (true, CompleterAction::Fine) if is_new => return CompleterAction::Ahead,
            (true, _) => {}
            (false, _) => requester.advance(upto),
        }
        verdict
    }

    /// Writes the data of a read or atomic response to its destination, even if earlier responses are missing. `Ok`:
    /// whether the response is valid, and the first with its PSN. `Err`: the data cannot be written.
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
                let Some(payload) = requester.payload_of(packet, bytes) else {
                    return Ok(false);
                };
                place(work, offset, payload, memory)
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
        if !self.acknowledge_before(requester, psn) {
            return CompleterAction::GoBack;
        }
        let Some(read) = requester.oldest().filter(|work| work.is_read()) else {
            return CompleterAction::Fine;
        };
        let (offset, bytes, ends) = requester.answer_of(read, psn);
        let is_last = matches!(
            packet.bth.opcode.position(),
            MessagePosition::Last | MessagePosition::Only
        );
        if u32::try_from(packet.payload.len()) != Ok(bytes) || is_last != ends {
            return CompleterAction::Fine;
        }
        if !place(read, offset, packet.payload, memory) {
            return CompleterAction::Failed(psn, CompletionStatus::LocalProtection);
        }
        let upto = psn.plus(1);
        if upto == read.end() {
            self.complete_oldest(requester);
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
        if !self.acknowledge_before(requester, psn) {
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
        self.complete_oldest(requester);
        requester.advance(psn.plus(1));
        CompleterAction::Fine
    }

    /// Acknowledges all packets before `upto`. `false`: one of these packets belongs to a read or an atomic operation
    /// whose response was lost; only the packets before that operation were acknowledged.
    fn acknowledge_before(&mut self, requester: &mut Requester, upto: Psn) -> bool {
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
            self.complete_oldest(requester);
            at = end;
        }
        if at != requester.unacked() {
            requester.advance(at);
        }
        true
    }

    fn complete_oldest(&mut self, requester: &mut Requester) {
        if let Some(work) = requester.end_oldest()
            && work.signaled
        {
            self.complete(&work, CompletionStatus::Success);
        }
    }

    fn complete(&mut self, work: &SendQueueEntry, status: CompletionStatus) {
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

/// The action that a NAK with this PSN and this reason requires.
fn action_of_nak(psn: Psn, reason: Nak) -> CompleterAction {
    let failed = |status| CompleterAction::Failed(psn, status);
    match reason {
        Nak::Sequence => CompleterAction::GoBack,
        Nak::InvalidRequest => failed(CompletionStatus::RemoteInvalid),
        Nak::RemoteAccess => failed(CompletionStatus::RemoteAccess),
        Nak::RemoteOperation => failed(CompletionStatus::RemoteOperation),
        Nak::InvalidDatagram => CompleterAction::Fine,
    }
}

/// Writes response data to local memory; `false`: the memory is not registered, or may not be written.
fn place<M: RegisteredMemory>(
    work: &SendQueueEntry,
    offset: u32,
    bytes: &[u8],
    memory: &mut M,
) -> bool {
    let SendQueueBody::Sge(sge) = work.body else {
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
    } = sge.part(offset, length);
    memory
        .check(key, address, wanted.into(), MemoryAccess::LocalWrite)
        .and_then(|()| memory.place(key, address, bytes))
        .is_ok()
}
