// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving half of a queue pair: carries each request of the peer out once and in order. IBTA vol. 1 section 9.7.4.
//!
//! | packet                  | what is done                                                      |
//! |-------------------------|-------------------------------------------------------------------|
//! | the expected one        | carried out; acknowledged if it asks for that, or later           |
//! | a later one             | dropped; the first since the last that was accepted has a NAK     |
//! | an earlier send, write  | acknowledged again                                                |
//! | an earlier read         | answered again, if it is one of the last `responder_depth`        |
//! | an earlier atomic       | its kept result is sent again, likewise                           |
//! | without receive buffer  | RNR NAK; what follows is dropped until it comes again             |
//! | a wrong one             | NAK; the queue pair breaks                                        |
//!
//! Towards a peer that repeats selectively a later packet is kept, and every acknowledgement names those that are (`ahead.rs`).
//! When the missing one comes, those behind it are carried out as if they came then; only the payload of a write that is under way is
//! put in its place at once. One without a receive buffer is not kept any longer: it comes again.

use super::ahead::Ahead;
use super::assembly::{ArrivedPacket, Assembly, FilledBuffer, PacketRefusal};
use super::config::{Config, PathMtu};
use super::order::{ExpectedPsn, PsnStanding};
use super::outgoing::PayloadSource;
use super::receives::ReceiveQueue;
use super::replay::{ReplayCache, ReplayEntry, Was};
use super::replies::{NextReply, Replies};
use super::request::{CompletionStatus, MESSAGE_BYTES_MAX, WorkCompletion};
use crate::format::{Headers, Nak, OpcodeClass, Packet, Syndrome};
use crate::memory::{MemoryAccess, RegisteredMemory, RoceSge};
use crate::psn::Psn;

/// The receiving half.
#[derive(Debug)]
pub(super) struct Responder {
    order: ExpectedPsn,
    assembly: Assembly,
    replay: ReplayCache,
    replies: Replies,
    /// `None`: what comes ahead is dropped.
    ahead: Option<Ahead>,
    /// Messages that were completed, 24 bits.
    msn: u32,
    mtu: PathMtu,
    not_ready_timer: u8,
    number: u32,
    owed: Owed,
    ack_delay_ns: u64,
    next_behind_at: u64,
}

/// Whether an acknowledgement is owed that nobody has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Nothing,
    /// Since the packet that has just come.
    New,
    /// It leaves at this time, if nothing leaves before.
    At(u64),
}

/// The result of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponderEvent {
    Nothing,
    Received(WorkCompletion),
    /// The request is wrong: the queue pair breaks. A receive buffer was in use.
    Broken(Option<WorkCompletion>),
}

impl Responder {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            order: ExpectedPsn::new(config.their_first),
            assembly: Assembly::new(config.path_mtu.bytes()),
            replay: ReplayCache::new(config.responder_depth),
            replies: Replies::new(config),
            ahead: config.selective_repeat.then(Ahead::default),
            msn: 0,
            mtu: config.path_mtu,
            not_ready_timer: config.not_ready_timer,
            number: config.number,
            owed: Owed::Nothing,
            ack_delay_ns: config.ack_delay_ns,
            next_behind_at: 0,
        }
    }

    /// A request of the peer has come.
    pub(super) fn request<M: RegisteredMemory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> ResponderEvent {
        match self.order.standing(packet.bth.psn) {
            PsnStanding::Next => {
                let part = ArrivedPacket {
                    packet,
                    placed_bytes: None,
                };
                return self.carry_out(part, memory, receives);
            }
            PsnStanding::Again => self.repeat(packet),
            PsnStanding::Ahead if self.ahead.is_some() => self.keep_ahead(packet, memory),
            PsnStanding::Ahead => {
                if self.order.refuse() {
                    self.acknowledge(self.order.expected(), Syndrome::Nak(Nak::Sequence));
                }
            }
            PsnStanding::Stray => {}
        }
        ResponderEvent::Nothing
    }

    /// Carries out the next packet that came ahead, if its turn has come. The caller asks until there is none.
    pub(super) fn next_kept<M: RegisteredMemory>(
        &mut self,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Option<ResponderEvent> {
        let expected = self.order.expected();
        let slot = self.ahead.as_mut()?.take(expected)?;
        let heard = slot.packet().map(|packet| {
            let part = ArrivedPacket {
                packet: &packet,
                placed_bytes: slot.placed_bytes,
            };
            self.carry_out(part, memory, receives)
        });
        if self.order.expected() != expected {
            self.acknowledge(self.order.expected().previous(), Syndrome::UNLIMITED);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.put_back(expected, slot);
        }
        heard
    }

    /// The next packet of the answers; writes its headers. `Err`: memory that a peer reads is gone, and the queue pair breaks.
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
            NextReply::Gone(psn) => {
                self.replies.clear();
                self.acknowledge(psn, Syndrome::Nak(Nak::RemoteAccess));
                Err(())
            }
        }
    }

    /// An acknowledgement that is owed since now leaves in a while.
    pub(super) fn keep_time(&mut self, now_ns: u64) {
        if self.owed == Owed::New {
            self.owed = Owed::At(now_ns.saturating_add(self.ack_delay_ns));
        }
    }

    /// When an acknowledgement leaves that is owed.
    pub(super) fn owed_at(&self) -> Option<u64> {
        match self.owed {
            Owed::At(at) => Some(at),
            Owed::Nothing | Owed::New => None,
        }
    }

    /// An acknowledgement that is owed leaves next.
    pub(super) fn acknowledge_owed(&mut self) {
        if self.owed != Owed::Nothing {
            self.acknowledge(self.order.expected().previous(), Syndrome::UNLIMITED);
        }
    }

    /// One may leave behind the request that has just left; whether it does, which is not often: where many messages come, some
    /// ask for it.
    pub(super) fn acknowledge_behind(&mut self, now_ns: u64) -> bool {
        let is_due = self.owed != Owed::Nothing && now_ns >= self.next_behind_at;
        if is_due {
            self.next_behind_at = now_ns.saturating_add(self.ack_delay_ns / 2);
            self.acknowledge_owed();
        }
        is_due
    }

    /// Gives up the message that arrives; its receive buffer, if it has one.
    pub(super) fn abandon(&mut self) -> Option<WorkCompletion> {
        let work = self.assembly.abandon()?;
        Some(self.failed(work, CompletionStatus::Flushed))
    }

    /// Answers nothing any more.
    pub(super) fn silence(&mut self) {
        self.owed = Owed::Nothing;
        self.replies.clear();
    }

    /// How many answers have not left.
    pub(super) fn unanswered(&self) -> usize {
        self.replies.len()
    }

    /// Keeps a packet that has come ahead, and says that it is there.
    fn keep_ahead<M: RegisteredMemory>(&mut self, packet: &Packet<'_>, memory: &mut M) {
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let distance = packet.bth.psn.packets_since(self.order.expected());
        if ahead.wants(distance) {
            let placed = self.assembly.place_ahead(packet, distance, memory);
            ahead.keep(distance, packet, placed);
        }
        // Nothing may take the place of an RNR NAK that has not left.
        if !self.order.has_refused() {
            self.acknowledge(self.order.expected().previous(), Syndrome::UNLIMITED);
        }
    }

    fn carry_out<M: RegisteredMemory>(
        &mut self,
        part: ArrivedPacket<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> ResponderEvent {
        let packet = part.packet;
        let before = self.order.expected();
        let carried_out = match packet.bth.opcode.kind() {
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
        match carried_out {
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
            PacketRefusal::NotReady => {
                let timer = self.not_ready_timer;
                self.order.refuse();
                self.acknowledge(psn, Syndrome::NotReady { timer });
                ResponderEvent::Nothing
            }
            PacketRefusal::Nak(nak) => {
                self.acknowledge(psn, Syndrome::Nak(nak));
                ResponderEvent::Broken(self.abandon())
            }
            PacketRefusal::Buffer { nak, work, status } => {
                self.acknowledge(psn, Syndrome::Nak(nak));
                ResponderEvent::Broken(Some(self.failed(work, status)))
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
        if !self.assembly.is_under_way() {
            self.count_message();
        }
        if packet.bth.ack_request {
            self.acknowledge(packet.bth.psn, Syndrome::UNLIMITED);
        } else if self.ack_delay_ns != 0 && self.owed == Owed::Nothing {
            self.owed = Owed::New;
        }
        Ok(received)
    }

    fn read<M: RegisteredMemory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &M,
    ) -> Result<(), PacketRefusal> {
        let reth = packet.reth().filter(|reth| reth.bytes <= MESSAGE_BYTES_MAX);
        let reth = reth.filter(|_| !self.assembly.is_under_way());
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
            what: Was::Read(reth),
        });
        let piece = RoceSge {
            key: reth.key,
            address: reth.address,
            bytes: reth.bytes,
        };
        self.replies.read(psn, piece, self.msn, false);
        Ok(())
    }

    fn atomic<M: RegisteredMemory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Result<(), PacketRefusal> {
        let atomic = packet.atomic().filter(|atomic| atomic.address % 8 == 0);
        let atomic = atomic.filter(|_| !self.assembly.is_under_way());
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
            what: Was::Atomic(value),
        });
        self.replies.atomic(psn, value, self.msn);
        Ok(())
    }

    /// Answers a request again that was carried out.
    fn repeat(&mut self, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        match packet.bth.opcode.kind() {
            OpcodeClass::Send | OpcodeClass::Write => {
                // A read has its own answer: rdma_rxe takes an acknowledgement of its number for the end of it, without the data. A
                // peer that repeats selectively knows better, and is told of all.
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
                let piece = RoceSge {
                    key: again.key,
                    address: again.address,
                    bytes: again.bytes,
                };
                if in_parts {
                    let (first, packets) = (carried.first, carried.packets);
                    self.replies.repeat(first, packets);
                    if !self.replies.will_answer(first, packets, psn, again.bytes) {
                        self.replies.read(psn, piece, self.msn, true);
                    }
                    return;
                }
                self.replies.forget(carried.first, carried.packets);
                self.replies.read(psn, piece, self.msn, true);
            }
            _ => {
                if let Some(value) = self.replay.atomic(psn) {
                    self.replies.forget(psn, 1);
                    self.replies.atomic(psn, value, self.msn);
                }
            }
        }
    }

    /// Keeps what a read or an atomic operation was. Its answer acknowledges all before it.
    fn keep(&mut self, carried: ReplayEntry) {
        self.owed = Owed::Nothing;
        if let Some(oldest) = self.replay.keep(carried) {
            self.replies.forget(oldest.first, oldest.packets);
        }
    }

    fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
        self.owed = Owed::Nothing;
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
