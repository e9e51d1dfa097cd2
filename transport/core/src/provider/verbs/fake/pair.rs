// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates one end of a reliable queue pair: go-back-N with a packet sequence number for each packet that a message
//! would fill.
//!
//! A request has *left* when it was sent; it may have to be sent again. It has *ended* when it is done, with or without
//! a completion.

use std::collections::VecDeque;

use super::super::address::PortAddress;
use super::super::port::{RemotePair, Sge, WorkOpcode, WorkRequest, WorkStatus};
use super::adapter::FakeSource;
use super::net::NUMBER_MASK;
use super::queue::FakeSlots;

/// One end of a reliable queue pair.
#[derive(Debug)]
pub(super) struct FakePair {
    pub(super) port: u32,
    pub(super) number: u32,
    pub(super) state: FakePairState,
    pub(super) joined: Option<FakePairPeer>,
    /// Requests that have not ended, oldest first.
    works: VecDeque<FakeWork>,
    /// Number of `works` sent since the last go-back.
    left: usize,
    /// Number of `works` ever sent.
    left_once: usize,
    pub(super) slots: FakeSlots,
    next_psn: u32,
    pub(super) retries: u8,
    pub(super) waits: u8,
    deadline: Option<u64>,
    pub(super) timer_is_set: bool,
    pub(super) quiet_until: u64,
    pub(super) leave_is_due: bool,
    pub(super) flush_is_due: bool,
    pub(super) fault: Option<FakeFault>,
    /// Whether the device has lost the requests of this queue pair: nothing is sent or answered any more.
    pub(super) forgets: bool,
    /// The next packet sequence number to receive.
    pub(super) expected: u32,
    /// Packets received so far, which limits how old a duplicate can be.
    accepted: u32,
    /// Whether a negative acknowledgement (NAK) for the packet `expected` was sent.
    pub(super) has_sent_nak: bool,
    /// Results of atomics, by packet sequence number: a duplicate is not carried out again.
    answered: VecDeque<(u32, u64)>,
    /// When the next response may be sent: responses keep the order of the requests.
    pub(super) reply_free_at: u64,
    /// Time at which the latest packet that this end has sent arrives: packets are not reordered.
    pub(super) last_arrival: u64,
}

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FakePairState {
    /// Neither sends nor receives.
    Fresh,
    Ready,
    Broken,
}

/// The remote end, and the local address at the time of the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakePairPeer {
    pub(super) remote: RemotePair,
    pub(super) source: FakeSource,
    pub(super) packet_bytes: u32,
}

/// A fault planned for the next request, by a test or at random.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeFault {
    pub(super) status: WorkStatus,
    /// Whether the request is carried out first.
    pub(super) carried_out: bool,
}

/// A work request that has not ended.
#[derive(Clone, Debug)]
pub(super) struct FakeWork {
    pub(super) work: u64,
    pub(super) operation: WorkOpcode,
    pub(super) body: FakeBody,
    pub(super) signaled: bool,
    pub(super) slot: u64,
    pub(super) psn: u32,
    packets: u32,
}

/// The body of a work request that has not ended.
#[derive(Clone, Debug)]
pub(super) enum FakeBody {
    Inline(Box<[u8]>),
    Piece(Sge),
}

/// A packet on the wire between two reliable queue pairs.
#[derive(Debug)]
pub(super) struct FakePacket {
    pub(super) from: u32,
    pub(super) source: FakeSource,
    pub(super) to: PortAddress,
    pub(super) number: u32,
    pub(super) psn: u32,
    pub(super) kind: FakePacketKind,
}

/// A request or a response.
#[derive(Debug)]
pub(super) enum FakePacketKind {
    Request {
        operation: WorkOpcode,
        /// The data to send or write.
        bytes: Vec<u8>,
        /// Number of bytes to return.
        wanted: u32,
        packets: u32,
    },
    Answer(FakeAnswer),
}

impl FakePacketKind {
    /// Length of the packet's payload, in bytes.
    pub(super) fn bytes(&self) -> u32 {
        let bytes = match self {
            Self::Request { bytes, .. } | Self::Answer(FakeAnswer::Done(bytes)) => bytes.len(),
            Self::Answer(_) => 0,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

/// The response to a request.
#[derive(Debug)]
pub(super) enum FakeAnswer {
    /// The request was carried out; the data of a read, or the old value of an atomic.
    Done(Vec<u8>),
    /// RNR NAK: there was no buffer.
    NotReady,
    /// PSN sequence error NAK: retransmit from this packet on.
    Again,
    /// The request is wrong, and the responder's queue pair has broken.
    Refused(WorkStatus),
}

/// A packet sequence number compared to the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FakePsnOrder {
    Next,
    /// A duplicate.
    Again,
    /// Packets before this one are missing.
    Ahead,
    /// The packet does not belong to this connection.
    Stray,
}

impl FakePair {
    pub(super) fn new(port: u32, number: u32, depth: u32) -> Self {
        Self {
            port,
            number,
            state: FakePairState::Fresh,
            joined: None,
            works: VecDeque::new(),
            left: 0,
            left_once: 0,
            slots: FakeSlots::new(depth),
            next_psn: 0,
            retries: 0,
            waits: 0,
            deadline: None,
            timer_is_set: false,
            quiet_until: 0,
            leave_is_due: false,
            flush_is_due: false,
            fault: None,
            forgets: false,
            expected: 0,
            accepted: 0,
            has_sent_nak: false,
            answered: VecDeque::new(),
            reply_free_at: 0,
            last_arrival: 0,
        }
    }

    pub(super) fn join(&mut self, joined: FakePairPeer) {
        self.state = FakePairState::Ready;
        self.next_psn = joined.remote.sq_psn;
        self.expected = joined.remote.rq_psn;
        self.joined = Some(joined);
    }

    /// The answer timeout of this queue pair, if the timeout for exponent 14 is `usual_ns`.
    pub(super) fn answer_ns(&self, usual_ns: u64) -> u64 {
        let exponent = self.joined.map_or(14, |joined| joined.remote.timeout_exp);
        (usual_ns << exponent.saturating_sub(14)) >> 14_u8.saturating_sub(exponent)
    }

    /// Queues a request in a slot.
    pub(super) fn push(&mut self, request: &WorkRequest<'_>, body: FakeBody, slot: u64) {
        let packet_bytes = self.joined.map_or(1, |joined| joined.packet_bytes);
        let packets = body.bytes().div_ceil(packet_bytes).max(1);
        let psn = self.next_psn;
        self.next_psn = psn.wrapping_add(packets) & NUMBER_MASK;
        self.works.push_back(FakeWork {
            work: request.work,
            operation: request.operation,
            body,
            signaled: request.signaled,
            slot,
            psn,
            packets,
        });
    }

    /// The next request to send, and whether it is the oldest; `None`: no request may be sent now.
    pub(super) fn next_to_leave(&self, reads: u8) -> Option<(&FakeWork, bool)> {
        let work = self.works.get(self.left)?;
        let in_flight = self.works.iter().take(self.left);
        let in_flight = in_flight.filter(|work| work.returns_data()).count();
        let waits = work.returns_data() && in_flight >= usize::from(reads);
        (!waits).then_some((work, self.left == 0))
    }

    pub(super) fn has_left(&mut self) {
        self.left += 1;
        self.left_once = self.left_once.max(self.left);
    }

    /// Marks all requests to be sent again.
    pub(super) fn go_back(&mut self) {
        self.left = 0;
    }

    pub(super) fn has_more(&self) -> bool {
        self.works.len() > self.left
    }

    pub(super) fn is_idle(&self) -> bool {
        self.works.is_empty()
    }

    pub(super) fn has_in_flight(&self) -> bool {
        self.left > 0
    }

    /// Number of sent requests before the request with this packet sequence number; `None`: no such request was sent.
    pub(super) fn before(&self, psn: u32) -> Option<usize> {
        let left = self.works.iter().take(self.left_once);
        left.take_while(|work| work.psn != psn)
            .count()
            .checked_add(1)
            .filter(|count| *count <= self.left_once)
            .map(|count| count - 1)
    }

    pub(super) fn oldest(&self) -> Option<&FakeWork> {
        self.works.front()
    }

    pub(super) fn end_oldest(&mut self) -> Option<FakeWork> {
        self.left = self.left.saturating_sub(1);
        self.left_once = self.left_once.saturating_sub(1);
        self.works.pop_front()
    }

    /// When the answer timeout expires.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<u64>) {
        self.deadline = deadline;
    }

    pub(super) fn order(&self, psn: u32) -> FakePsnOrder {
        match psn.wrapping_sub(self.expected) & NUMBER_MASK {
            0 => FakePsnOrder::Next,
            ahead if ahead <= NUMBER_MASK / 2 => FakePsnOrder::Ahead,
            ahead if NUMBER_MASK + 1 - ahead <= self.accepted => FakePsnOrder::Again,
            _ => FakePsnOrder::Stray,
        }
    }

    /// Records that a request of this many packets was carried out.
    pub(super) fn accept(&mut self, packets: u32) {
        self.expected = self.expected.wrapping_add(packets) & NUMBER_MASK;
        self.accepted = self.accepted.saturating_add(packets).min(NUMBER_MASK / 2);
        self.has_sent_nak = false;
    }

    pub(super) fn keep_result(&mut self, psn: u32, old: u64) {
        if self.answered.len() == MOST_ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back((psn, old));
    }

    /// The result of a duplicate atomic.
    pub(super) fn old_value(&self, psn: u32) -> Option<u64> {
        let mut answered = self.answered.iter().rev();
        answered.find(|(at, _)| *at == psn).map(|(_, old)| *old)
    }
}

impl FakeWork {
    /// Whether the response to the request carries data: reads and atomics count against the limit of reads, and each
    /// needs a response of its own.
    pub(super) fn returns_data(&self) -> bool {
        !matches!(self.operation, WorkOpcode::Send | WorkOpcode::Write { .. })
    }

    /// Number of bytes that the request moves.
    pub(super) fn bytes(&self) -> u32 {
        self.body.bytes()
    }

    pub(super) fn packets(&self) -> u32 {
        self.packets
    }
}

impl FakeBody {
    pub(super) fn bytes(&self) -> u32 {
        match self {
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Piece(piece) => piece.bytes,
        }
    }
}

/// Maximum number of reads and atomics in flight on one queue pair of any device; so duplicates of older atomics cannot
/// arrive.
const MOST_ANSWERED: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(bytes: &[(WorkOpcode, usize)]) -> FakePair {
        let mut pair = FakePair::new(0, 1, 64);
        for (slot, (operation, bytes)) in (0..).zip(bytes) {
            let body = vec![0; *bytes].into();
            let request = WorkRequest {
                work: slot,
                operation: *operation,
                body: super::super::super::port::WorkBody::Inline(&[]),
                signaled: true,
            };
            pair.push(&request, FakeBody::Inline(body), slot);
        }
        pair
    }

    const READ: WorkOpcode = WorkOpcode::Read { address: 0, key: 0 };

    #[test]
    fn reads_beyond_the_limit_hold_back_later_work() {
        let mut pair = pair(&[
            (WorkOpcode::Send, 1),
            (READ, 1),
            (READ, 1),
            (WorkOpcode::Send, 1),
        ]);
        for (work, is_first) in [(0, true), (1, false)] {
            let (next, first) = pair.next_to_leave(1).unwrap();
            assert_eq!((next.work, first), (work, is_first));
            pair.has_left();
        }
        assert!(pair.next_to_leave(1).is_none());
        assert!(pair.next_to_leave(2).is_some());
        pair.end_oldest();
        pair.end_oldest();
        assert_eq!(pair.next_to_leave(1).map(|(next, _)| next.work), Some(2));
    }

    #[test]
    fn a_response_matches_any_sent_request_after_go_back() {
        let mut pair = pair(&[(WorkOpcode::Send, 1); 3]);
        let psns: Vec<u32> = pair.works.iter().map(|work| work.psn).collect();
        assert_eq!(pair.before(psns[0]), None);
        pair.has_left();
        pair.has_left();
        assert_eq!(
            (pair.before(psns[1]), pair.before(psns[2])),
            (Some(1), None)
        );
        pair.go_back();
        assert_eq!(pair.before(psns[1]), Some(1));
        assert!(!pair.has_in_flight());
    }

    #[test]
    fn packet_sequence_numbers_wrap_at_24_bits() {
        let mut pair = pair(&[]);
        pair.expected = NUMBER_MASK;
        assert_eq!(pair.order(NUMBER_MASK), FakePsnOrder::Next);
        assert_eq!(pair.order(NUMBER_MASK - 1), FakePsnOrder::Stray);
        assert_eq!(pair.order(0), FakePsnOrder::Ahead);
        pair.accept(3);
        let orders = [2, 1, NUMBER_MASK, NUMBER_MASK - 1, 3].map(|psn| pair.order(psn));
        let again = FakePsnOrder::Again;
        assert_eq!(
            orders,
            [
                FakePsnOrder::Next,
                again,
                again,
                FakePsnOrder::Stray,
                FakePsnOrder::Ahead
            ]
        );
    }

    #[test]
    fn a_duplicate_atomic_returns_its_first_result() {
        let mut pair = pair(&[]);
        pair.keep_result(7, 70);
        pair.keep_result(8, 80);
        assert_eq!(
            (pair.old_value(7), pair.old_value(8), pair.old_value(9)),
            (Some(70), Some(80), None)
        );
    }
}
