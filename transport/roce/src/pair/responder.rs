// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving half of a queue pair: carries each request of the peer out once and in order. IBTA vol. 1 section 9.7.4.
//!
//! | packet                  | what is done                                                      |
//! |-------------------------|-------------------------------------------------------------------|
//! | the expected one        | carried out; acknowledged if it asks for that                     |
//! | a later one             | dropped; the first since the last that was accepted has a NAK     |
//! | an earlier send, write  | acknowledged again                                                |
//! | an earlier read         | answered again, if it is one of the last `responder_depth`        |
//! | an earlier atomic       | its kept result is sent again, likewise                           |
//! | without receive buffer  | RNR NAK; what follows is dropped until it comes again             |
//! | a wrong one             | NAK; the queue pair breaks                                        |

use super::assembly::{Assembly, Received, Refusal};
use super::config::{Config, PathMtu};
use super::order::{Order, Standing};
use super::outgoing::{Label, Sending};
use super::receives::ReceiveQueue;
use super::replay::{Carried, Replay, Was};
use super::replies::{NextReply, Replies};
use super::request::{Completion, MESSAGE_BYTES_MAX, Status};
use crate::format::{Kind, Nak, Packet, Syndrome};
use crate::memory::{Access, Memory, Piece};
use crate::psn::Psn;

/// The receiving half.
#[derive(Debug)]
pub(super) struct Responder {
    order: Order,
    assembly: Assembly,
    replay: Replay,
    replies: Replies,
    /// Messages that were completed, 24 bits.
    msn: u32,
    mtu: PathMtu,
    not_ready_timer: u8,
    number: u32,
}

/// What has come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    Received(Completion),
    /// The request is wrong: the queue pair breaks. A receive buffer was in use.
    Broken(Option<Completion>),
}

impl Responder {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            order: Order::new(config.their_first),
            assembly: Assembly::new(config.path_mtu.bytes()),
            replay: Replay::new(config.responder_depth),
            replies: Replies::new(Label::new(config), config.path_mtu.bytes()),
            msn: 0,
            mtu: config.path_mtu,
            not_ready_timer: config.not_ready_timer,
            number: config.number,
        }
    }

    /// A request of the peer has come.
    pub(super) fn request<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Heard {
        match self.order.standing(packet.bth.psn) {
            Standing::Next => return self.carry_out(packet, memory, receives),
            Standing::Again => self.repeat(packet),
            Standing::Ahead => {
                if self.order.refuse() {
                    self.acknowledge(self.order.expected(), Syndrome::Nak(Nak::Sequence));
                }
            }
            Standing::Stray => {}
        }
        Heard::Nothing
    }

    /// The next packet of the answers. `Err`: memory that a peer reads is gone, and the queue pair breaks.
    pub(super) fn next<M: Memory>(&mut self, memory: &M) -> Result<Option<Sending>, ()> {
        match self.replies.next(memory) {
            NextReply::Packet(sending) => Ok(Some(sending)),
            NextReply::Nothing => Ok(None),
            NextReply::Gone(psn) => {
                self.replies.clear();
                self.acknowledge(psn, Syndrome::Nak(Nak::RemoteAccess));
                Err(())
            }
        }
    }

    /// Gives up the message that arrives; its receive buffer, if it has one.
    pub(super) fn abandon(&mut self) -> Option<Completion> {
        let work = self.assembly.abandon()?;
        Some(self.failed(work, Status::Flushed))
    }

    /// Answers nothing any more.
    pub(super) fn silence(&mut self) {
        self.replies.clear();
    }

    /// How many answers have not left.
    pub(super) fn unanswered(&self) -> usize {
        self.replies.len()
    }

    fn carry_out<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Heard {
        let carried_out = match packet.bth.opcode.kind() {
            Kind::Send | Kind::Write => self.message(packet, memory, receives),
            Kind::ReadRequest => self.read(packet, memory).map(|()| None),
            Kind::FetchAdd | Kind::CompareSwap => self.atomic(packet, memory).map(|()| None),
            _ => return Heard::Nothing,
        };
        match carried_out {
            Ok(None) => Heard::Nothing,
            Ok(Some(received)) => Heard::Received(Completion {
                work: received.work,
                status: Status::Success,
                bytes: received.bytes,
                number: self.number,
                immediate: received.immediate,
            }),
            Err(refusal) => self.refuse(packet.bth.psn, refusal),
        }
    }

    fn refuse(&mut self, psn: Psn, refusal: Refusal) -> Heard {
        match refusal {
            Refusal::NotReady => {
                let timer = self.not_ready_timer;
                self.order.refuse();
                self.acknowledge(psn, Syndrome::NotReady { timer });
                Heard::Nothing
            }
            Refusal::Nak(nak) => {
                self.acknowledge(psn, Syndrome::Nak(nak));
                Heard::Broken(self.abandon())
            }
            Refusal::Buffer { nak, work, status } => {
                self.acknowledge(psn, Syndrome::Nak(nak));
                Heard::Broken(Some(self.failed(work, status)))
            }
        }
    }

    fn message<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Result<Option<Received>, Refusal> {
        let received = self.assembly.take(packet, memory, receives)?;
        self.order.accept(1);
        if !self.assembly.is_under_way() {
            self.count_message();
        }
        if packet.bth.ack_request {
            self.acknowledge(packet.bth.psn, Syndrome::UNLIMITED);
        }
        Ok(received)
    }

    fn read<M: Memory>(&mut self, packet: &Packet<'_>, memory: &M) -> Result<(), Refusal> {
        let reth = packet.reth().filter(|reth| reth.bytes <= MESSAGE_BYTES_MAX);
        let reth = reth.filter(|_| !self.assembly.is_under_way());
        let reth = reth.ok_or(Refusal::Nak(Nak::InvalidRequest))?;
        if reth.bytes != 0 {
            memory
                .check(
                    reth.key,
                    reth.address,
                    reth.bytes.into(),
                    Access::RemoteRead,
                )
                .map_err(|_| Refusal::Nak(Nak::RemoteAccess))?;
        }
        let psn = packet.bth.psn;
        let packets = self.mtu.packets(reth.bytes);
        self.order.accept(packets);
        self.count_message();
        self.keep(Carried {
            first: psn,
            packets,
            what: Was::Read(reth),
        });
        let piece = Piece {
            key: reth.key,
            address: reth.address,
            bytes: reth.bytes,
        };
        self.replies.read(psn, piece, self.msn);
        Ok(())
    }

    fn atomic<M: Memory>(&mut self, packet: &Packet<'_>, memory: &mut M) -> Result<(), Refusal> {
        let atomic = packet.atomic().filter(|atomic| atomic.address % 8 == 0);
        let atomic = atomic.filter(|_| !self.assembly.is_under_way());
        let atomic = atomic.ok_or(Refusal::Nak(Nak::InvalidRequest))?;
        let (key, address) = (atomic.key, atomic.address);
        let checked = memory.check(key, address, 8, Access::RemoteAtomic);
        let value = checked.and_then(|()| match packet.bth.opcode.kind() {
            Kind::FetchAdd => memory.fetch_add(key, address, atomic.swap),
            _ => memory.compare_swap(key, address, atomic.compare, atomic.swap),
        });
        let value = value.map_err(|_| Refusal::Nak(Nak::RemoteAccess))?;
        let psn = packet.bth.psn;
        self.order.accept(1);
        self.count_message();
        self.keep(Carried {
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
            Kind::Send | Kind::Write => {
                self.acknowledge(self.order.expected().previous(), Syndrome::UNLIMITED);
            }
            Kind::ReadRequest => {
                let Some(again) = packet.reth() else { return };
                let Some(carried) = self.replay.read(psn, &again, self.mtu) else {
                    return;
                };
                self.replies.forget(carried.first, carried.packets);
                let piece = Piece {
                    key: again.key,
                    address: again.address,
                    bytes: again.bytes,
                };
                self.replies.read(psn, piece, self.msn);
            }
            _ => {
                if let Some(value) = self.replay.atomic(psn) {
                    self.replies.forget(psn, 1);
                    self.replies.atomic(psn, value, self.msn);
                }
            }
        }
    }

    fn keep(&mut self, carried: Carried) {
        if let Some(oldest) = self.replay.keep(carried) {
            self.replies.forget(oldest.first, oldest.packets);
        }
    }

    fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
        self.replies.acknowledge(psn, syndrome, self.msn);
    }

    fn count_message(&mut self) {
        self.msn = self.msn.wrapping_add(1) & Psn::MASK;
    }

    fn failed(&self, work: u64, status: Status) -> Completion {
        Completion {
            work,
            status,
            bytes: 0,
            number: self.number,
            immediate: None,
        }
    }
}
