// SPDX-License-Identifier: MIT OR Apache-2.0
//! The responder: executes each request of the peer once and in order. IBTA vol. 1 section 9.7.4.
//!
//! | packet                 | action |
//! |------------------------|----------------------------------------------------------------------|
//! | expected               | executed; acknowledged immediately if AckReq is set, else later |
//! | out of order           | dropped; the first one since the last accepted packet gets a NAK |
//! | duplicate send, write  | acknowledged again |
//! | duplicate read         | answered again, if it is one of the last `responder_depth` |
//! | duplicate atomic       | its result is sent again, if it is one of the last `responder_depth` |
//! | without receive buffer | RNR NAK; later packets are dropped until this packet is sent again |
//! | invalid                | NAK; the queue pair enters the error state |
//!
//! With selective repeat a packet received out of order is kept, and every acknowledgement reports the kept packets
//! (`ahead.rs`). When the missing packet arrives, the packets behind it are executed as if they had just arrived. Only
//! payload of the current write is placed as soon as it is received. If there is no receive buffer for a kept packet
//! when it is executed, the packet is discarded: the peer sends it again.

use super::ahead::Ahead;
use super::assembly::{ArrivedPacket, Assembly, FilledBuffer, PacketRefusal};
use super::config::{Config, PathMtu};
use super::order::{ExpectedPsn, PsnClass};
use super::outgoing::PayloadSource;
use super::receives::ReceiveQueue;
use super::replay::{ReplayCache, ReplayEntry, ReplayOperation};
use super::replies::{NextReply, Replies};
use super::request::{CompletionStatus, MESSAGE_BYTES_MAX, WorkCompletion};
use crate::format::{Headers, Nak, OpcodeClass, Packet, Syndrome};
use crate::memory::{MemoryAccess, RegisteredMemory, RoceSge};
use crate::psn::Psn;

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(super) struct Responder {
    order: ExpectedPsn,
    assembly: Assembly,
    replay: ReplayCache,
    replies: Replies,
    /// The kept packets; `None`: packets received out of order are dropped.
    ahead: Option<Ahead>,
    /// Message sequence number: the number of completed messages, 24 bits.
    msn: u32,
    mtu: PathMtu,
    min_rnr_timer: u8,
    number: u32,
    delayed_ack: DelayedAck,
    ack_delay_ns: u64,
    next_behind_at: u64,
}

/// The state of an acknowledgement that the peer did not request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelayedAck {
    None,
    /// The current packet needs one; `schedule_delayed_ack` sets its time.
    New,
    /// It is sent at this time, in nanoseconds, except if another response is queued before that time.
    At(u64),
}

/// The effect of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponderEvent {
    Nothing,
    Received(WorkCompletion),
    /// The request is invalid: the queue pair enters the error state. If a receive buffer was in use, this is its
    /// completion.
    Fatal(Option<WorkCompletion>),
}

impl Responder {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            order: ExpectedPsn::new(config.rq_psn),
            assembly: Assembly::new(config.path_mtu.bytes()),
            replay: ReplayCache::new(config.responder_depth),
            replies: Replies::new(config),
            ahead: config.selective_repeat.then(Ahead::default),
            msn: 0,
            mtu: config.path_mtu,
            min_rnr_timer: config.min_rnr_timer,
            number: config.number,
            delayed_ack: DelayedAck::None,
            ack_delay_ns: config.ack_delay_ns,
            next_behind_at: 0,
        }
    }

    /// Handles a request packet of the peer.
    pub(super) fn request<M: RegisteredMemory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> ResponderEvent {
        match self.order.classify(packet.bth.psn) {
            PsnClass::Expected => {
                let part = ArrivedPacket {
                    packet,
                    placed_bytes: None,
                };
                return self.execute(part, memory, receives);
            }
            PsnClass::Duplicate => self.repeat(packet),
            PsnClass::Ahead if self.ahead.is_some() => self.keep_ahead(packet, memory),
            PsnClass::Ahead => {
                if self.order.refuse() {
                    self.acknowledge(self.order.expected(), Syndrome::Nak(Nak::Sequence));
                }
            }
            PsnClass::Stray => {}
        }
        ResponderEvent::Nothing
    }

    /// Executes the next packet that was kept, if it is the expected one. The caller repeats the call until `None`.
    pub(super) fn next_kept<M: RegisteredMemory>(
        &mut self,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Option<ResponderEvent> {
        let expected = self.order.expected();
        let slot = self.ahead.as_mut()?.take(expected)?;
        let event = slot.packet().map(|packet| {
            let part = ArrivedPacket {
                packet: &packet,
                placed_bytes: slot.placed_bytes,
            };
            self.execute(part, memory, receives)
        });
        if self.order.expected() != expected {
            self.acknowledge(self.order.expected().previous(), Syndrome::UNLIMITED);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.put_back(expected, slot);
        }
        event
    }

    /// Takes the next response packet and writes its headers. `Err`: the memory of a read is no longer registered, so
    /// the queue pair must enter the error state.
    pub(super) fn next<M: RegisteredMemory>(
        &mut self,
        memory: &M,
        headers: &mut Headers,
    ) -> Result<Option<PayloadSource>, ()> {
        let ahead = self.ahead.as_ref().filter(|ahead| !ahead.is_empty());
        let ahead = ahead.map(|ahead| {
            let last = self.order.expected().previous();
            (last, ahead.behind_expected())
        });
        match self.replies.next(memory, ahead, headers) {
            NextReply::Packet(payload) => Ok(Some(payload)),
            NextReply::Nothing => Ok(None),
            NextReply::Inaccessible(psn) => {
                self.replies.clear();
                self.acknowledge(psn, Syndrome::Nak(Nak::RemoteAccess));
                Err(())
            }
        }
    }

    /// Sets the time of a new delayed acknowledgement.
    pub(super) fn schedule_delayed_ack(&mut self, now_ns: u64) {
        if self.delayed_ack == DelayedAck::New {
            self.delayed_ack = DelayedAck::At(now_ns.saturating_add(self.ack_delay_ns));
        }
    }

    /// When the delayed acknowledgement is due, in nanoseconds; `None`: there is none.
    pub(super) fn delayed_ack_at(&self) -> Option<u64> {
        match self.delayed_ack {
            DelayedAck::At(at) => Some(at),
            DelayedAck::None | DelayedAck::New => None,
        }
    }

    /// Queues the delayed acknowledgement, if there is one.
    pub(super) fn send_delayed_ack(&mut self) {
        if self.delayed_ack != DelayedAck::None {
            self.acknowledge(self.order.expected().previous(), Syndrome::UNLIMITED);
        }
    }

    /// Called after requests were sent: queues the delayed acknowledgement, if there is one, but at most twice per
    /// `ack_delay_ns`. Under load the peer requests acknowledgements anyway. Returns whether the acknowledgement was
    /// queued.
    pub(super) fn acknowledge_after_request(&mut self, now_ns: u64) -> bool {
        let is_due = self.owes_ack_after_request(now_ns);
        if is_due {
            self.next_behind_at = now_ns.saturating_add(self.ack_delay_ns / 2);
            self.send_delayed_ack();
        }
        is_due
    }

    /// Whether a delayed acknowledgement may be sent after a request.
    pub(super) fn owes_ack_after_request(&self, now_ns: u64) -> bool {
        self.delayed_ack != DelayedAck::None && now_ns >= self.next_behind_at
    }

    /// Abandons the current message; returns the completion of its receive buffer, if it has one.
    pub(super) fn abandon(&mut self) -> Option<WorkCompletion> {
        let work = self.assembly.abandon()?;
        Some(self.failed(work, CompletionStatus::Flushed))
    }

    /// Discards all responses that are not sent yet.
    pub(super) fn discard_responses(&mut self) {
        self.delayed_ack = DelayedAck::None;
        self.replies.clear();
    }

    /// Number of responses not yet sent.
    pub(super) fn queued_responses(&self) -> usize {
        self.replies.len()
    }

    /// Whether a part of the oldest response not yet sent was sent.
    pub(super) fn is_inside_response(&self) -> bool {
        self.replies.is_inside_read()
    }

    /// Keeps a packet received out of order, if it can be kept, and acknowledges it selectively.
    fn keep_ahead<M: RegisteredMemory>(&mut self, packet: &Packet<'_>, memory: &mut M) {
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let distance = packet.bth.psn.packets_since(self.order.expected());
        if ahead.can_keep(distance) {
            let placed = self.assembly.place_ahead(packet, distance, memory);
            ahead.keep(distance, packet, placed);
        }
        // The acknowledgement must not replace an RNR NAK that was not sent yet.
        if !self.order.has_refused() {
            self.acknowledge(self.order.expected().previous(), Syndrome::UNLIMITED);
        }
    }

    fn execute<M: RegisteredMemory>(
        &mut self,
        part: ArrivedPacket<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> ResponderEvent {
        let packet = part.packet;
        let before = self.order.expected();
        let outcome = match packet.bth.opcode.kind() {
            OpcodeClass::Send | OpcodeClass::Write => self.message(part, memory, receives),
            OpcodeClass::ReadRequest => self.read(packet, memory).map(|()| None),
            OpcodeClass::FetchAdd | OpcodeClass::CompareSwap => {
                self.atomic(packet, memory).map(|()| None)
            }
            _ => return ResponderEvent::Nothing,
        };
        if let Some(ahead) = &mut self.ahead {
            ahead.forget_front(self.order.expected().packets_since(before));
        }
        match outcome {
            Ok(None) => ResponderEvent::Nothing,
            Ok(Some(received)) => ResponderEvent::Received(WorkCompletion {
                work: received.work,
                status: CompletionStatus::Success,
                bytes: received.bytes,
                number: self.number,
                immediate: received.immediate,
            }),
            Err(refusal) => self.refuse(packet.bth.psn, refusal),
        }
    }

    fn refuse(&mut self, psn: Psn, refusal: PacketRefusal) -> ResponderEvent {
        match refusal {
            PacketRefusal::Rnr => {
                let timer = self.min_rnr_timer;
                self.order.refuse();
                self.acknowledge(psn, Syndrome::RnrNak { timer });
                ResponderEvent::Nothing
            }
            PacketRefusal::Nak(nak) => {
                self.acknowledge(psn, Syndrome::Nak(nak));
                ResponderEvent::Fatal(self.abandon())
            }
            PacketRefusal::Buffer { nak, work, status } => {
                self.acknowledge(psn, Syndrome::Nak(nak));
                ResponderEvent::Fatal(Some(self.failed(work, status)))
            }
        }
    }

    fn message<M: RegisteredMemory>(
        &mut self,
        part: ArrivedPacket<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Result<Option<FilledBuffer>, PacketRefusal> {
        let received = self.assembly.take(part, memory, receives)?;
        let packet = part.packet;
        self.order.accept(1);
        if !self.assembly.is_in_progress() {
            self.count_message();
        }
        if packet.bth.ack_request {
            self.acknowledge(packet.bth.psn, Syndrome::UNLIMITED);
        } else if self.ack_delay_ns != 0 && self.delayed_ack == DelayedAck::None {
            self.delayed_ack = DelayedAck::New;
        }
        Ok(received)
    }

    fn read<M: RegisteredMemory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &M,
    ) -> Result<(), PacketRefusal> {
        let reth = packet.reth().filter(|reth| reth.bytes <= MESSAGE_BYTES_MAX);
        let reth = reth.filter(|_| !self.assembly.is_in_progress());
        let reth = reth.ok_or(PacketRefusal::Nak(Nak::InvalidRequest))?;
        if reth.bytes != 0 {
            memory
                .check(
                    reth.key,
                    reth.address,
                    reth.bytes.into(),
                    MemoryAccess::RemoteRead,
                )
                .map_err(|_| PacketRefusal::Nak(Nak::RemoteAccess))?;
        }
        let psn = packet.bth.psn;
        let packets = self.mtu.packets(reth.bytes);
        self.order.accept(packets);
        self.count_message();
        self.keep(ReplayEntry {
            first: psn,
            packets,
            operation: ReplayOperation::Read(reth),
        });
        let sge = RoceSge {
            key: reth.key,
            address: reth.address,
            bytes: reth.bytes,
        };
        self.replies.read(psn, sge, self.msn, false);
        Ok(())
    }

    fn atomic<M: RegisteredMemory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Result<(), PacketRefusal> {
        let atomic = packet.atomic().filter(|atomic| atomic.address % 8 == 0);
        let atomic = atomic.filter(|_| !self.assembly.is_in_progress());
        let atomic = atomic.ok_or(PacketRefusal::Nak(Nak::InvalidRequest))?;
        let (key, address) = (atomic.key, atomic.address);
        let checked = memory.check(key, address, 8, MemoryAccess::RemoteAtomic);
        let value = checked.and_then(|()| match packet.bth.opcode.kind() {
            OpcodeClass::FetchAdd => memory.fetch_add(key, address, atomic.swap),
            _ => memory.compare_swap(key, address, atomic.compare, atomic.swap),
        });
        let value = value.map_err(|_| PacketRefusal::Nak(Nak::RemoteAccess))?;
        let psn = packet.bth.psn;
        self.order.accept(1);
        self.count_message();
        self.keep(ReplayEntry {
            first: psn,
            packets: 1,
            operation: ReplayOperation::Atomic(value),
        });
        self.replies.atomic(psn, value, self.msn);
        Ok(())
    }

    /// Responds to a duplicate request again.
    fn repeat(&mut self, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        match packet.bth.opcode.kind() {
            OpcodeClass::Send | OpcodeClass::Write => {
                // Without selective repeat, PSNs of reads and atomic operations are not acknowledged: rdma_rxe would
                // complete the read without its data. With selective repeat the peer is this engine, which waits for
                // the data, so all packets are acknowledged.
                let expected = self.order.expected();
                let fetches = match self.ahead {
                    None => self.replay.first_behind(psn, expected),
                    Some(_) => None,
                };
                let behind = fetches.unwrap_or(expected);
                self.acknowledge(behind.previous(), Syndrome::UNLIMITED);
            }
            OpcodeClass::ReadRequest => {
                let Some(again) = packet.reth() else { return };
                let in_parts = self.ahead.is_some();
                let carried = self.replay.read(psn, &again, self.mtu, in_parts);
                let Some(carried) = carried else {
                    return;
                };
                let sge = RoceSge {
                    key: again.key,
                    address: again.address,
                    bytes: again.bytes,
                };
                if in_parts {
                    let (first, packets) = (carried.first, carried.packets);
                    self.replies.repeat(first, packets);
                    if !self.replies.will_answer(first, packets, psn, again.bytes) {
                        self.replies.read(psn, sge, self.msn, true);
                    }
                    return;
                }
                self.replies.forget(carried.first, carried.packets);
                self.replies.read(psn, sge, self.msn, true);
            }
            _ => {
                if let Some(value) = self.replay.atomic(psn) {
                    self.replies.forget(psn, 1);
                    self.replies.atomic(psn, value, self.msn);
                }
            }
        }
    }

    /// Records a read or an atomic operation. The delayed acknowledgement is dropped, since the response acknowledges
    /// all packets before it.
    fn keep(&mut self, carried: ReplayEntry) {
        self.delayed_ack = DelayedAck::None;
        if let Some(oldest) = self.replay.keep(carried) {
            self.replies.forget(oldest.first, oldest.packets);
        }
    }

    fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
        self.delayed_ack = DelayedAck::None;
        self.replies.acknowledge(psn, syndrome, self.msn);
    }

    fn count_message(&mut self) {
        self.msn = self.msn.wrapping_add(1) & Psn::MASK;
    }

    fn failed(&self, work: u64, status: CompletionStatus) -> WorkCompletion {
        WorkCompletion {
            work,
            status,
            bytes: 0,
            number: self.number,
            immediate: None,
        }
    }
}
