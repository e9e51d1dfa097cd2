// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of responses that are not sent yet, in PSN order. IBTA vol. 1 section 9.7.5.1.2.
//!
//! A queued acknowledgement is replaced by the next one, except if a response of another kind is queued between the
//! two. So a burst of requests is acknowledged once, and at most one acknowledgement is queued between two other
//! responses.
//!
//! The first and the last response packet of a read carry an AETH, which makes them longer than the middle ones. With
//! selective repeat the requester identifies each response packet only by its PSN. So all full packets are sent as
//! middle packets, which have the same length: a carrier can pass many of them to the kernel in one call (UDP GSO).

use std::collections::VecDeque;

use super::config::Config;
use super::outgoing::{HeaderTemplate, PayloadSource};
use crate::format::{
    Aeth, AtomicAckEth, Headers, MessagePosition, Opcode, OpcodeClass, PacketSet, Syndrome,
};
use crate::memory::{MemoryAccess, RegisteredMemory, RoceSge};
use crate::psn::Psn;

/// Responses not yet sent.
#[derive(Debug)]
pub(super) struct Replies {
    waiting: VecDeque<QueuedReply>,
    template: HeaderTemplate,
    mtu_bytes: u32,
    /// Whether all full packets of a read response are sent as middle packets.
    is_even: bool,
    /// Whether the last packet of a read response may be padded to a whole packet.
    pads: bool,
}

/// A response not yet sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuedReply {
    /// PSN of the next packet of the response.
    psn: Psn,
    msn: u32,
    kind: ReplyKind,
}

/// What is sent in reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyKind {
    Acknowledge(Syndrome),
    Read {
        /// The part of the memory that is not sent yet.
        rest: RoceSge,
        has_begun: bool,
        /// Whether a response to this read may have been sent before.
        is_repeated: bool,
    },
    Atomic(u64),
}

/// The next response packet.
#[derive(Debug)]
pub(super) enum NextReply {
    Packet(PayloadSource),
    Nothing,
    /// The memory that the read names is no longer registered, so there is no response packet for this PSN.
    Inaccessible(Psn),
}

impl Replies {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            waiting: VecDeque::new(),
            template: HeaderTemplate::new(config),
            mtu_bytes: config.path_mtu.bytes(),
            is_even: config.selective_repeat,
            pads: config.pads_responses,
        }
    }

    pub(super) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome, msn: u32) {
        if let Some(last) = self.waiting.back().filter(|last| last.is_acknowledge()) {
            // The queued response is a NAK or an acknowledgement of a later PSN, which acknowledges all packets before
            // that PSN too. It stays, since a NAK is not sent a second time.
            if psn.is_before(last.psn) {
                return;
            }
            self.waiting.pop_back();
        }
        self.waiting.push_back(QueuedReply {
            psn,
            msn,
            kind: ReplyKind::Acknowledge(syndrome),
        });
    }

    pub(super) fn read(&mut self, psn: Psn, rest: RoceSge, msn: u32, is_repeated: bool) {
        let kind = ReplyKind::Read {
            rest,
            has_begun: false,
            is_repeated,
        };
        self.insert(QueuedReply { psn, msn, kind });
    }

    pub(super) fn atomic(&mut self, psn: Psn, value: u64, msn: u32) {
        let kind = ReplyKind::Atomic(value);
        self.insert(QueuedReply { psn, msn, kind });
    }

    /// Records that the read with these PSNs is repeated: its responses that are still queued count as possibly sent
    /// before.
    pub(super) fn repeat(&mut self, first: Psn, packets: u32) {
        for reply in &mut self.waiting {
            let is_of_it = reply.psn.packets_since(first) < packets;
            if let ReplyKind::Read { is_repeated, .. } = &mut reply.kind {
                *is_repeated |= is_of_it;
            }
        }
    }

    /// Whether the queued responses to the read with these PSNs suffice: one of them covers the `bytes` bytes from
    /// `psn` on, or as many as allowed are queued.
    pub(super) fn will_answer(&self, first: Psn, packets: u32, psn: Psn, bytes: u32) -> bool {
        let mut waiting = 0;
        for reply in &self.waiting {
            let ReplyKind::Read { rest, .. } = reply.kind else {
                continue;
            };
            if reply.psn.packets_since(first) >= packets {
                continue;
            }
            waiting += 1;
            let before = psn.since(reply.psn);
            let covers = u32::try_from(before).is_ok_and(|before| {
                let offset = before.saturating_mul(self.mtu_bytes);
                rest.bytes >= offset.saturating_add(bytes)
            });
            if covers || waiting >= RESPONSES_MAX {
                return true;
            }
        }
        false
    }

    /// Discards the queued responses to the read or the atomic operation with these PSNs.
    pub(super) fn forget(&mut self, first: Psn, packets: u32) {
        let is_it = |reply: &QueuedReply| {
            !reply.is_acknowledge() && reply.psn.packets_since(first) < packets
        };
        while let Some(index) = self.waiting.iter().position(is_it) {
            self.waiting.remove(index);
            let is_acknowledge = |index| {
                self.waiting
                    .get(index)
                    .is_some_and(QueuedReply::is_acknowledge)
            };
            if let Some(before) = index.checked_sub(1)
                && is_acknowledge(before)
                && is_acknowledge(index)
            {
                self.waiting.remove(before);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether a part of the oldest response was sent.
    pub(super) fn is_inside_read(&self) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|first| {
            matches!(
                first.kind,
                ReplyKind::Read {
                    has_begun: true,
                    ..
                }
            )
        })
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the next response packet and writes its headers. `ahead`: a PSN and a selective acknowledgement, which is
    /// added to an acknowledgement with that PSN.
    pub(super) fn next<M: RegisteredMemory>(
        &mut self,
        memory: &M,
        ahead: Option<(Psn, PacketSet)>,
        headers: &mut Headers,
    ) -> NextReply {
        let Some(reply) = self.waiting.front_mut() else {
            return NextReply::Nothing;
        };
        let (syndrome, class) = match reply.kind {
            ReplyKind::Read { .. } => return self.next_of_read(memory, headers),
            ReplyKind::Acknowledge(syndrome) => (syndrome, OpcodeClass::Acknowledge),
            ReplyKind::Atomic(_) => (Syndrome::UNLIMITED, OpcodeClass::AtomicAcknowledge),
        };
        let QueuedReply { psn, msn, kind } = *reply;
        let opcode = Opcode::reliable(class, MessagePosition::Only, false);
        headers.begin(&self.template.bth(opcode, psn, 0, false));
        let aeth = Aeth { syndrome, msn };
        headers.push(|bytes| aeth.write(bytes));
        match (kind, ahead) {
            (ReplyKind::Atomic(value), _) => {
                headers.push(|bytes| AtomicAckEth { value }.write(bytes))
            }
            (ReplyKind::Acknowledge(Syndrome::Ack { .. }), Some((last, ahead)))
                if last == psn && !ahead.is_empty() =>
            {
                headers.push_sack(&ahead);
            }
            _ => {}
        }
        self.waiting.pop_front();
        NextReply::Packet(PayloadSource::Nothing)
    }

    /// Takes the next packet of the read response at the front of the queue, and writes its headers.
    fn next_of_read<M: RegisteredMemory>(
        &mut self,
        memory: &M,
        headers: &mut Headers,
    ) -> NextReply {
        let followed_by_whole = self.is_next_whole();
        let Some(reply) = self.waiting.front_mut() else {
            return NextReply::Nothing;
        };
        let QueuedReply { psn, msn, kind } = *reply;
        let ReplyKind::Read {
            rest,
            has_begun,
            is_repeated,
        } = kind
        else {
            return NextReply::Nothing;
        };
        let part = rest.part(0, rest.bytes.min(self.mtu_bytes));
        let left = rest.part(part.bytes, rest.bytes - part.bytes);
        if !is_readable(memory, part) {
            return NextReply::Inaccessible(psn);
        }
        let lacking_bytes = self.mtu_bytes - part.bytes;
        let is_padded = has_begun
            && !is_repeated
            && followed_by_whole
            && lacking_bytes <= self.mtu_bytes / 4 * 3;
        let filler_bytes = if is_padded { lacking_bytes } else { 0 };
        let is_whole = lacking_bytes == filler_bytes;
        let position = match (has_begun, left.bytes == 0) {
            _ if self.is_even && is_whole => MessagePosition::Middle,
            (false, true) => MessagePosition::Only,
            (false, false) => MessagePosition::First,
            (true, false) => MessagePosition::Middle,
            (true, true) => MessagePosition::Last,
        };
        let opcode = Opcode::reliable(OpcodeClass::ReadResponse, position, false);
        let bytes = part.bytes + filler_bytes;
        headers.begin(&self.template.bth(opcode, psn, bytes, false));
        if position != MessagePosition::Middle {
            let syndrome = Syndrome::UNLIMITED;
            headers.push(|bytes| Aeth { syndrome, msn }.write(bytes));
        }
        reply.psn = psn.plus(1);
        reply.kind = ReplyKind::Read {
            rest: left,
            has_begun: true,
            is_repeated,
        };
        if left.bytes == 0 {
            self.waiting.pop_front();
        }
        NextReply::Packet(match part.bytes {
            0 => PayloadSource::Nothing,
            _ if is_repeated => PayloadSource::Repeated(part),
            _ if filler_bytes != 0 => PayloadSource::Padded(part, filler_bytes),
            _ => PayloadSource::Sge(part),
        })
    }

    /// Whether the response behind the first one begins with a whole packet, and may follow it in one batch.
    fn is_next_whole(&self) -> bool {
        let next = self.waiting.get(1).filter(|_| self.pads);
        next.is_some_and(|next| match next.kind {
            ReplyKind::Read { rest, .. } => rest.bytes >= self.mtu_bytes,
            ReplyKind::Acknowledge(_) | ReplyKind::Atomic(_) => false,
        })
    }

    /// Inserts a response before those with later PSNs.
    fn insert(&mut self, reply: QueuedReply) {
        let later = |other: &QueuedReply| reply.psn.is_before(other.psn);
        let index = self.waiting.iter().position(later);
        self.waiting
            .insert(index.unwrap_or(self.waiting.len()), reply);
    }
}

impl QueuedReply {
    fn is_acknowledge(&self) -> bool {
        matches!(self.kind, ReplyKind::Acknowledge(_))
    }
}

/// Maximum number of queued responses to one read: the peer can request parts of a read again separately.
pub(super) const RESPONSES_MAX: u32 = 4;

/// Whether the peer may read this memory now.
fn is_readable<M: RegisteredMemory>(memory: &M, part: RoceSge) -> bool {
    let checked = memory.check(
        part.key,
        part.address,
        part.bytes.into(),
        MemoryAccess::RemoteRead,
    );
    part.bytes == 0 || checked.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies() -> Replies {
        Replies::new(&Config::new(1, 2, "10.0.0.1:4791".parse().unwrap()))
    }

    fn psns(replies: &Replies) -> Vec<u32> {
        let waiting = replies.waiting.iter();
        waiting.map(|reply| reply.psn.get()).collect()
    }

    #[test]
    fn a_burst_of_requests_has_one_acknowledgement() {
        let mut replies = replies();
        for psn in 0..100 {
            replies.acknowledge(Psn::new(psn), Syndrome::UNLIMITED, psn);
        }
        assert_eq!(psns(&replies), [99]);
    }

    #[test]
    fn queued_nak_is_not_replaced_by_an_earlier_ack() {
        let mut replies = replies();
        let refusal = Syndrome::RnrNak { timer: 1 };
        replies.acknowledge(Psn::new(5), refusal, 0);
        replies.acknowledge(Psn::new(4), Syndrome::UNLIMITED, 0);
        assert_eq!(psns(&replies), [5]);
        replies.acknowledge(Psn::new(5), Syndrome::UNLIMITED, 0);
        let kind = replies.waiting.back().map(|reply| reply.kind);
        assert_eq!(kind, Some(ReplyKind::Acknowledge(Syndrome::UNLIMITED)));
    }

    #[test]
    fn repeat_marks_only_the_repeated_queued_response() {
        let mut replies = replies();
        for first in [100, 200] {
            replies.read(Psn::new(first), RoceSge::default(), 0, false);
        }
        replies.repeat(Psn::new(90), 20);
        let is_marked = |reply: &QueuedReply| matches!(reply.kind, ReplyKind::Read { is_repeated, .. } if is_repeated);
        let repeated: Vec<_> = replies.waiting.iter().map(is_marked).collect();
        assert_eq!(repeated, [true, false]);
    }

    #[test]
    fn responses_are_queued_in_psn_order() {
        let mut replies = replies();
        replies.acknowledge(Psn::new(4), Syndrome::UNLIMITED, 0);
        replies.read(Psn::new(5), RoceSge::default(), 0, false);
        replies.acknowledge(Psn::new(6), Syndrome::UNLIMITED, 0);
        replies.atomic(Psn::new(2), 0, 0);
        assert_eq!(psns(&replies), [2, 4, 5, 6]);
        replies.forget(Psn::new(5), 1);
        assert_eq!(psns(&replies), [2, 6], "one acknowledgement is enough");
    }
}
