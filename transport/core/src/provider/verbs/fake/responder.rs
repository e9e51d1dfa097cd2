// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates the responder of reliable queue pairs: what a device does with the requests of peers. Each request is
//! carried out once and in order.
//!
//! A read takes the data when its response is sent. By then, later requests may have been carried out, as the standard
//! allows without a fence. If the response was lost, a duplicate of the read takes the data again.

use super::super::port::{CqKind, WorkOpcode, WorkStatus};
use super::adapter::ended;
use super::net::{FakeNetEvent, FakeNetState};
use super::pair::{
    FakeAnswer, FakePacket, FakePacketKind, FakePairPeer, FakePairState, FakePsnOrder,
};
use super::queue::{FakeCompletion, FakeSlotOwner};
use crate::mr::to_usize;

/// A response that is not sent yet.
#[derive(Debug)]
pub(super) enum FakeReply {
    Ready(FakeAnswer),
    /// The response to a read: the data are taken when the response is sent.
    Read {
        address: u64,
        key: u32,
        bytes: u32,
    },
}

impl FakeNetState {
    pub(super) fn arrive(&mut self, packet: FakePacket) {
        let serial = self.numbers.get(&packet.number).copied();
        let is_ours = |net: &Self, serial: &u32| {
            let pair = &net.pairs[serial];
            let is_connected_to = |joined: FakePairPeer| {
                packet.source.is(&joined.remote.address)
                    && net.ports[pair.port as usize].is_still(&joined.source)
            };
            pair.state == FakePairState::Ready
                && pair.joined.is_some_and(is_connected_to)
                && net.delivers(packet.from, pair.port, &packet.to)
        };
        let Some(serial) = serial.filter(|serial| is_ours(self, serial)) else {
            self.port(packet.from).stats.packets_lost += 1;
            return;
        };
        match packet.kind {
            FakePacketKind::Answer(answer) => self.answered(serial, packet.psn, answer),
            FakePacketKind::Request {
                operation,
                bytes,
                wanted,
                packets,
            } => {
                let order = self.pairs[&serial].order(packet.psn);
                let reply = match order {
                    FakePsnOrder::Next => {
                        self.carry_out(serial, packet.psn, packets, operation, &bytes, wanted)
                    }
                    FakePsnOrder::Again => self.repeat(serial, packet.psn, operation, wanted),
                    FakePsnOrder::Ahead => return self.send_nak(serial),
                    FakePsnOrder::Stray => return,
                };
                if let Some(reply) = reply {
                    self.reply_later(serial, packet.psn, reply);
                }
            }
        }
    }

    /// Carries out the next request.
    fn carry_out(
        &mut self,
        serial: u32,
        psn: u32,
        packets: u32,
        operation: WorkOpcode,
        bytes: &[u8],
        wanted: u32,
    ) -> Option<FakeReply> {
        let port = self.pairs[&serial].port;
        let done = |bytes| FakeReply::Ready(FakeAnswer::Done(bytes));
        let reply = match operation {
            WorkOpcode::Send => self.receive(serial, bytes)?,
            WorkOpcode::Write { address, key } => {
                let regions = &mut self.port(port).regions;
                // Devices do not check the key of a write of zero bytes.
                match bytes.is_empty() || regions.store_for_peer(key, address, bytes) {
                    true => done(Vec::new()),
                    false => FakeReply::Ready(FakeAnswer::Refused(WorkStatus::RemoteAccess)),
                }
            }
            WorkOpcode::Read { address, key } => FakeReply::Read {
                address,
                key,
                bytes: wanted,
            },
            WorkOpcode::FetchAdd { address, key, add } => {
                self.change(serial, psn, address, key, |old| old.wrapping_add(add))
            }
            WorkOpcode::CompareSwap {
                address,
                key,
                compare,
                swap,
            } => self.change(serial, psn, address, key, |old| match old == compare {
                true => swap,
                false => old,
            }),
        };
        let pair = self.pairs.get_mut(&serial)?;
        match &reply {
            FakeReply::Ready(FakeAnswer::NotReady) => pair.has_sent_nak = true,
            FakeReply::Ready(FakeAnswer::Refused(_)) => self.break_silently(serial),
            _ => pair.accept(packets),
        }
        Some(reply)
    }

    fn change(
        &mut self,
        serial: u32,
        psn: u32,
        address: u64,
        key: u32,
        change: impl FnOnce(u64) -> u64,
    ) -> FakeReply {
        let port = self.pairs[&serial].port;
        let adapter = &mut self.ports[port as usize];
        if !address.is_multiple_of(8) {
            return FakeReply::Ready(FakeAnswer::Refused(WorkStatus::RemoteInvalid));
        }
        let Some(old) = adapter.regions.change_for_peer(key, address, change) else {
            return FakeReply::Ready(FakeAnswer::Refused(WorkStatus::RemoteAccess));
        };
        if let Some(pair) = self.pairs.get_mut(&serial) {
            pair.keep_result(psn, old);
        }
        FakeReply::Ready(FakeAnswer::Done(old.to_ne_bytes().to_vec()))
    }

    /// Delivers a message to the shared receive queue. `None`: there is no response, since the shared receive queue is
    /// lost.
    fn receive(&mut self, serial: u32, bytes: &[u8]) -> Option<FakeReply> {
        let pair = &self.pairs[&serial];
        let number = pair.number;
        let adapter = &mut self.ports[pair.port as usize];
        if adapter.shared.is_lost {
            return None;
        }
        let Some((work, piece)) = adapter.shared.take() else {
            adapter.stats.not_ready += 1;
            return Some(FakeReply::Ready(FakeAnswer::NotReady));
        };
        let (status, reply) = if bytes.len() > to_usize(u64::from(piece.bytes)) {
            (
                WorkStatus::LocalLength,
                FakeAnswer::Refused(WorkStatus::RemoteOperation),
            )
        } else if adapter.regions.store(piece, bytes) {
            (WorkStatus::Success, FakeAnswer::Done(Vec::new()))
        } else {
            (
                WorkStatus::LocalProtection,
                FakeAnswer::Refused(WorkStatus::RemoteOperation),
            )
        };
        let mut done = ended(work, number, status);
        if status == WorkStatus::Success {
            done.bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        }
        let owner = FakeSlotOwner::Shared { serial };
        adapter.complete(CqKind::Receives, FakeCompletion { done, owner });
        Some(FakeReply::Ready(reply))
    }

    /// Responds to a duplicate request, whose first response was late or lost.
    fn repeat(
        &self,
        serial: u32,
        psn: u32,
        operation: WorkOpcode,
        wanted: u32,
    ) -> Option<FakeReply> {
        let done = |bytes| Some(FakeReply::Ready(FakeAnswer::Done(bytes)));
        match operation {
            WorkOpcode::Send | WorkOpcode::Write { .. } => done(Vec::new()),
            WorkOpcode::Read { address, key } => Some(FakeReply::Read {
                address,
                key,
                bytes: wanted,
            }),
            WorkOpcode::FetchAdd { .. } | WorkOpcode::CompareSwap { .. } => {
                done(self.pairs[&serial].old_value(psn)?.to_ne_bytes().to_vec())
            }
        }
    }

    /// Sends one NAK for missing packets.
    fn send_nak(&mut self, serial: u32) {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        if !std::mem::replace(&mut pair.has_sent_nak, true) {
            let psn = pair.expected;
            self.reply_later(serial, psn, FakeReply::Ready(FakeAnswer::Again));
        }
    }

    /// Schedules a response, in the order of the requests. The data of a read are taken only when its response is sent.
    fn reply_later(&mut self, serial: u32, psn: u32, reply: FakeReply) {
        let late = match reply {
            FakeReply::Read { .. } => self
                .config
                .most_delay_ns
                .saturating_sub(self.config.least_delay_ns),
            FakeReply::Ready(_) => 0,
        };
        let late = self.spread(late);
        let now = self.now;
        if let Some(pair) = self.pairs.get_mut(&serial) {
            pair.reply_free_at = pair.reply_free_at.max(now) + late;
            let time = pair.reply_free_at;
            self.schedule(time, FakeNetEvent::Reply { serial, psn, reply });
        }
    }

    pub(super) fn reply(&mut self, serial: u32, psn: u32, reply: FakeReply) {
        let Some(pair) = self.pairs.get(&serial) else {
            return;
        };
        let is_refusal = matches!(reply, FakeReply::Ready(FakeAnswer::Refused(_)));
        if pair.state != FakePairState::Ready && !is_refusal {
            return;
        }
        let regions = &self.ports[pair.port as usize].regions;
        let answer = match reply {
            FakeReply::Ready(answer) => answer,
            FakeReply::Read {
                address,
                key,
                bytes,
            } => match regions.load_for_peer(key, address, bytes) {
                Some(bytes) => FakeAnswer::Done(bytes),
                None => FakeAnswer::Refused(WorkStatus::RemoteAccess),
            },
        };
        if matches!(answer, FakeAnswer::Refused(_)) {
            self.break_silently(serial);
        }
        self.send(serial, psn, FakePacketKind::Answer(answer));
    }
}
