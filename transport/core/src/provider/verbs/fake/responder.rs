// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs: what a device does with the requests of others. Each is carried out once and in order.
//!
//! A read takes the bytes when its answer leaves, which may be after later requests were carried out, as the standard
//! allows without a fence. One that comes again, since the answer was lost, takes them again.

use super::super::port::{Operation, Queue, Status};
use super::adapter::ended;
use super::net::{Happening, Net};
use super::pair::{Answer, Joined, Order, Packet, State, What};
use super::queue::{Entry, Owner};
use crate::mr::to_usize;

/// An answer before it leaves.
#[derive(Debug)]
pub(super) enum Reply {
    Ready(Answer),
    /// The bytes are taken when it leaves.
    Read {
        address: u64,
        key: u32,
        bytes: u32,
    },
}

impl Net {
    pub(super) fn arrive(&mut self, packet: Packet) {
        let serial = self.numbers.get(&packet.number).copied();
        let is_ours = |net: &Self, serial: &u32| {
            let pair = &net.pairs[serial];
            let knows = |joined: Joined| {
                packet.source.is(&joined.remote.address)
                    && net.ports[pair.port as usize].is_still(&joined.source)
            };
            pair.state == State::Ready
                && pair.joined.is_some_and(knows)
                && net.delivers(packet.from, pair.port, &packet.to)
        };
        let Some(serial) = serial.filter(|serial| is_ours(self, serial)) else {
            self.port(packet.from).stats.packets_lost += 1;
            return;
        };
        match packet.what {
            What::Answer(answer) => self.answered(serial, packet.psn, answer),
            What::Request {
                operation,
                bytes,
                wanted,
                packets,
            } => {
                let order = self.pairs[&serial].order(packet.psn);
                let reply = match order {
                    Order::Next => {
                        self.carry_out(serial, packet.psn, packets, operation, &bytes, wanted)
                    }
                    Order::Again => self.repeat(serial, packet.psn, operation, wanted),
                    Order::Ahead => return self.ask(serial),
                    Order::Stray => return,
                };
                if let Some(reply) = reply {
                    self.reply_later(serial, packet.psn, reply);
                }
            }
        }
    }

    /// Carries a request out that is next.
    fn carry_out(
        &mut self,
        serial: u32,
        psn: u32,
        packets: u32,
        operation: Operation,
        bytes: &[u8],
        wanted: u32,
    ) -> Option<Reply> {
        let port = self.pairs[&serial].port;
        let done = |bytes| Reply::Ready(Answer::Done(bytes));
        let reply = match operation {
            Operation::Send => self.receive(serial, bytes)?,
            Operation::Write { address, key } => {
                let regions = &mut self.port(port).regions;
                // Of a write of nothing no device asks whether it is allowed.
                match bytes.is_empty() || regions.store_for_peer(key, address, bytes) {
                    true => done(Vec::new()),
                    false => Reply::Ready(Answer::Refused(Status::RemoteAccess)),
                }
            }
            Operation::Read { address, key } => Reply::Read {
                address,
                key,
                bytes: wanted,
            },
            Operation::FetchAdd { address, key, add } => {
                self.change(serial, psn, address, key, |old| old.wrapping_add(add))
            }
            Operation::CompareSwap {
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
            Reply::Ready(Answer::NotReady) => pair.has_asked = true,
            Reply::Ready(Answer::Refused(_)) => self.break_untold(serial),
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
    ) -> Reply {
        let port = self.pairs[&serial].port;
        let adapter = &mut self.ports[port as usize];
        if !address.is_multiple_of(8) {
            return Reply::Ready(Answer::Refused(Status::RemoteInvalid));
        }
        let Some(old) = adapter.regions.change_for_peer(key, address, change) else {
            return Reply::Ready(Answer::Refused(Status::RemoteAccess));
        };
        if let Some(pair) = self.pairs.get_mut(&serial) {
            pair.remember(psn, old);
        }
        Reply::Ready(Answer::Done(old.to_ne_bytes().to_vec()))
    }

    /// A message for the shared receive queue. Without one, nothing is answered.
    fn receive(&mut self, serial: u32, bytes: &[u8]) -> Option<Reply> {
        let pair = &self.pairs[&serial];
        let number = pair.number;
        let adapter = &mut self.ports[pair.port as usize];
        if adapter.shared.is_lost {
            return None;
        }
        let Some((work, piece)) = adapter.shared.take() else {
            adapter.stats.not_ready += 1;
            return Some(Reply::Ready(Answer::NotReady));
        };
        let (status, reply) = if bytes.len() > to_usize(u64::from(piece.bytes)) {
            (
                Status::LocalLength,
                Answer::Refused(Status::RemoteOperation),
            )
        } else if adapter.regions.store(piece, bytes) {
            (Status::Success, Answer::Done(Vec::new()))
        } else {
            (
                Status::LocalProtection,
                Answer::Refused(Status::RemoteOperation),
            )
        };
        let mut done = ended(work, number, status);
        if status == Status::Success {
            done.bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        }
        let owner = Owner::Shared { serial };
        adapter.tell(Queue::Receives, Entry { done, owner });
        Some(Reply::Ready(reply))
    }

    /// A request that was carried out comes again, since its answer was late or lost.
    fn repeat(&self, serial: u32, psn: u32, operation: Operation, wanted: u32) -> Option<Reply> {
        let done = |bytes| Some(Reply::Ready(Answer::Done(bytes)));
        match operation {
            Operation::Send | Operation::Write { .. } => done(Vec::new()),
            Operation::Read { address, key } => Some(Reply::Read {
                address,
                key,
                bytes: wanted,
            }),
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {
                done(self.pairs[&serial].recall(psn)?.to_ne_bytes().to_vec())
            }
        }
    }

    /// Packets are missing: says so once.
    fn ask(&mut self, serial: u32) {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        if !std::mem::replace(&mut pair.has_asked, true) {
            let psn = pair.expected;
            self.reply_later(serial, psn, Reply::Ready(Answer::Again));
        }
    }

    /// Answers in the order of the requests; what is read may be read late.
    fn reply_later(&mut self, serial: u32, psn: u32, reply: Reply) {
        let late = match reply {
            Reply::Read { .. } => self
                .config
                .most_delay_ns
                .saturating_sub(self.config.least_delay_ns),
            Reply::Ready(_) => 0,
        };
        let late = self.spread(late);
        let now = self.now;
        if let Some(pair) = self.pairs.get_mut(&serial) {
            pair.reply_free_at = pair.reply_free_at.max(now) + late;
            let time = pair.reply_free_at;
            self.schedule(time, Happening::Reply { serial, psn, reply });
        }
    }

    pub(super) fn reply(&mut self, serial: u32, psn: u32, reply: Reply) {
        let Some(pair) = self.pairs.get(&serial) else {
            return;
        };
        let is_refusal = matches!(reply, Reply::Ready(Answer::Refused(_)));
        if pair.state != State::Ready && !is_refusal {
            return;
        }
        let regions = &self.ports[pair.port as usize].regions;
        let answer = match reply {
            Reply::Ready(answer) => answer,
            Reply::Read {
                address,
                key,
                bytes,
            } => match regions.load_for_peer(key, address, bytes) {
                Some(bytes) => Answer::Done(bytes),
                None => Answer::Refused(Status::RemoteAccess),
            },
        };
        if matches!(answer, Answer::Refused(_)) {
            self.break_untold(serial);
        }
        self.send(serial, psn, What::Answer(answer));
    }
}
