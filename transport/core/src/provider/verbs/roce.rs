// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port that is a program: RoCEv2 by the engine of the crate `roce`, over whatever carries its packets. Everything happens in the
//! calls of its process, so a process that makes none answers nobody; what it misses meanwhile comes again.
//!
//! | file | what |
//! |---|---|
//! | `port.rs` | what the provider asks: the calls of `VerbsPort` |
//! | `open.rs` | the address and the facts of a port |
//! | `carrier.rs` | what packets go through |
//! | `udp.rs`, `connected.rs`, `trains.rs` | UDP: a socket, those that only send, and packets that leave together |
//! | `recv_mode.rs` | how a socket is looked at, by how much comes |
//! | `system.rs` | calls of the system |
//! | `shared.rs`, `claim.rs` | the port to which adapters send, shared by the ranks of a job on a host |
//! | `dpdk.rs`, `dpdk_ports.rs` | a port of DPDK, and which one is this process's |
//! | `faulty.rs` | a network with faults, within one process, for tests |
//! | `writing.rs` | packets that leave, whole or in front of a payload that stays where it is |
//! | `regions.rs` | registered memory |
//! | `pairs.rs` | reliable queue pairs |
//! | `completions.rs` | completions |
//! | `completion_event.rs` | what wakes a process |
//!
//! A turn ([`RocePort::turn`]) takes a burst of packets, hands each to its queue pair, and then sends what there is, so that a burst
//! has one acknowledgement. What is posted leaves at once.

mod carrier;
mod chance;
mod claim;
mod completion_event;
mod completions;
mod connected;
mod dpdk;
pub(in crate::provider) mod dpdk_ports;
mod faulty;
mod open;
mod pairs;
mod port;
mod recv_mode;
mod regions;
mod shared;
mod system;
mod trains;
mod udp;
mod writing;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use roce::format::Packet;
use roce::link::FramePayload;
use roce::{DatagramPair, ReceiveQueue, RoceSge};

use super::port::{CqKind, Done, PortAttr, PortCounts};
use super::slab::Slab;
use carrier::Carrier;
use completion_event::{CompletionEvent, WakeConditions};
use completions::RoceCompletions;
pub(in crate::provider) use dpdk::Dpdk;
pub(in crate::provider) use faulty::Faulty;
pub use faulty::{PacketFaults, PacketNet};
pub(super) use pairs::PairNumbers;
use pairs::RocePairs;
use regions::RoceRegions;
pub(in crate::provider) use udp::Udp;
use writing::Exit;

/// A port over a carrier.
#[derive(Debug)]
pub(crate) struct RocePort<C> {
    facts: PortAttr,
    carrier: C,
    sign: Option<CompletionEvent>,
    handles: Slab<SocketAddr>,
    queues: RoceQueues,
    limits: RocePortLimits,
    counts: Arc<PortCounts>,
    /// There was a turn since completions of sends were asked for.
    has_turned: bool,
    /// Packets have come since that was asked.
    has_stirred: bool,
}

/// The limits of a port's queue pairs.
#[derive(Clone, Copy, Debug)]
struct RocePortLimits {
    /// Requests that one reliable queue pair takes.
    sends: u32,
    /// Packets that one sends before it waits for an acknowledgement.
    window_packets: u32,
    /// Answers to one request of a read.
    read_packets: u32,
    /// How long a peer of ours may give no sign of life before a queue pair to it breaks.
    silence_ns: u64,
}

/// The queue pairs of a port, and the memory that they access.
#[derive(Debug)]
struct RoceQueues {
    /// Where packets come.
    local: SocketAddr,
    regions: RoceRegions,
    pairs: RocePairs,
    shared: ReceiveQueue,
    datagrams: DatagramPair,
    datagram_buffers: ReceiveQueue,
    /// Datagrams wait to be sent.
    has_datagrams: bool,
    /// The queue pair with which something was done and that is not settled, and whether it may have something to send.
    touched: Option<(u32, bool)>,
    ends: RoceCompletions,
}

impl<C: Carrier> RocePort<C> {
    /// Takes what has come, and sends what there is, both as much as a burst or some.
    fn turn(&mut self) {
        let now_ns = self.carrier.begin();
        self.receive(now_ns);
        self.receive_late(now_ns);
        self.queues.pairs.wake_due(now_ns);
        self.send(now_ns);
        // Whoever asked for this turn takes its completions.
        self.follow_sign(false);
    }

    /// Takes a burst of what has come; answers how many packets.
    fn receive(&mut self, now_ns: u64) -> usize {
        let count = self.carrier.receive();
        self.hear(now_ns, count);
        count
    }

    /// Hands so many packets of the last burst to their queue pairs. What they ask for leaves before all of a long one is done, so that
    /// the other end does not wait for it; but not where an answer is overdue that may be among the rest.
    fn hear(&mut self, now_ns: u64, count: usize) {
        self.has_stirred |= count != 0;
        for index in 0..count {
            if index % MOST_HEARD == MOST_HEARD - 1 {
                self.queues.settle();
                if !self.queues.pairs.is_any_due(now_ns) {
                    self.send(now_ns);
                }
            }
            if let Some(carried) = self.carrier.received(index) {
                self.queues.hear(now_ns, &carried);
            }
        }
        self.queues.settle();
    }

    /// Where an answer is overdue, takes all that has come: this process may have computed for long, and answers wait in the socket.
    fn receive_late(&mut self, now_ns: u64) {
        for _ in 0..MOST_LATE {
            if !self.queues.pairs.is_any_due(now_ns) || self.receive(now_ns) == 0 {
                break;
            }
        }
    }

    /// Sends what there is, as far as there is room and not for long.
    fn send(&mut self, now_ns: u64) {
        if self.carrier.has_unsent() {
            self.carrier.flush();
        }
        let mut exit = Exit::new(&mut self.carrier, &self.counts);
        for _ in 0..MOST_SENT {
            if !exit.makes_room() || !self.queues.send_next(now_ns, &mut exit) {
                break;
            }
        }
        self.queues.settle();
        self.carrier.flush();
    }

    /// Something was posted: it leaves at once.
    fn send_now(&mut self) {
        let now_ns = self.carrier.begin();
        self.receive_late(now_ns);
        self.send(now_ns);
        self.follow_sign(true);
    }

    /// What a process that sleeps is to be woken for; `ends`: also for what has ended.
    fn wanted(&self, ends: bool) -> WakeConditions {
        let queues = &self.queues;
        let is_stuck = self.carrier.has_unsent();
        let may_send = queues.has_datagrams || queues.pairs.is_any_ready();
        let is_now = queues.ends.has_events()
            || (ends && !queues.ends.is_empty())
            || (may_send && !is_stuck);
        let due_ns = queues.pairs.next_due_ns();
        let for_room = is_stuck && self.carrier.shows_room();
        let at_ns = match (is_now, is_stuck && !for_room) {
            (true, _) => Some(0),
            (false, true) => {
                let again_ns = self.carrier.now_ns() + ROOM_AFTER_NS;
                Some(due_ns.map_or(again_ns, |due_ns| due_ns.min(again_ns)))
            }
            (false, false) => due_ns,
        };
        WakeConditions { at_ns, for_room }
    }

    /// Wakes another thread, which may sleep, no later than it is to be.
    fn follow_sign(&mut self, ends: bool) {
        if self.sign.as_ref().is_some_and(CompletionEvent::is_armed) {
            let wanted = self.wanted(ends);
            if let (Some(sign), Some(packets)) = (&mut self.sign, self.carrier.descriptor()) {
                // What cannot be watched is found when the process polls: nobody sleeps for ever.
                _ = sign.hasten(packets, wanted);
            }
        }
    }
}

impl RoceQueues {
    /// Something has come. What is no packet of a queue pair here changes nothing.
    fn hear(&mut self, now_ns: u64, carried: &FramePayload<'_>) {
        let packet = carried.verified().map(Packet::parse);
        let Some(Ok(mut packet)) = packet else {
            return;
        };
        if carried.is_marked {
            packet = packet.marked();
        }
        let from = carried.from;
        let number = packet.bth.destination;
        if number == self.datagrams.config().number {
            let (regions, buffers) = (&mut self.regions, &mut self.datagram_buffers);
            self.datagrams.receive(from.ip(), &packet, regions, buffers);
            while let Some(received) = self.datagrams.poll_receives() {
                self.ends
                    .received_from(&received.completion, received.source);
            }
        } else if let Some(pair) = self.pairs.get(number) {
            let (regions, shared) = (&mut self.regions, &mut self.shared);
            pair.receive(now_ns, from.ip(), &packet, regions, shared);
            self.touch(number, true);
        }
    }

    /// Something was done with a queue pair, which is settled when it is another's turn.
    fn touch(&mut self, number: u32, may_send: bool) {
        let before = match self.touched {
            Some((before, could_send)) if before == number => could_send,
            _ => {
                self.settle();
                false
            }
        };
        self.touched = Some((number, before || may_send));
    }

    /// Takes the completions and keeps the deadline of the one with which something was done.
    fn settle(&mut self) {
        if let Some((number, may_send)) = self.touched.take() {
            self.pairs.settle(number, may_send, &mut self.ends);
        }
    }

    /// Takes completions; answers how many. Datagrams hold their places until theirs are taken.
    fn take(&mut self, which: CqKind, places: &mut [Done]) -> usize {
        let mut count = self.ends.take(which, places);
        if which == CqKind::Sends {
            for place in places.iter_mut().skip(count) {
                let Some(completion) = self.datagrams.poll_sends() else {
                    break;
                };
                *place = completions::done(&completion, 0);
                count += 1;
            }
        }
        count
    }

    /// Hands over the next packet that is to leave, for which there is room; `false`: there is none.
    fn send_next(&mut self, now_ns: u64, exit: &mut Exit<'_, impl Carrier>) -> bool {
        if self.has_datagrams {
            let outgoing = self.datagrams.next_outgoing(&self.regions);
            self.has_datagrams = outgoing.is_some();
            if let Some(outgoing) = outgoing {
                // Their buffers are free when they were handed over.
                exit.push_copied(&outgoing, &self.regions);
                return true;
            }
        }
        while let Some((number, pair)) = self.pairs.first_ready() {
            let outgoing = pair.next_outgoing(now_ns, &self.regions);
            let has_sent = outgoing.is_some();
            if let Some(outgoing) = outgoing {
                exit.push(&outgoing, &self.regions);
                self.pairs.turn_ready();
            } else {
                self.pairs.leave_ready();
            }
            self.touch(number, false);
            if has_sent {
                return true;
            }
        }
        false
    }
}

/// A piece in the engine's words.
fn piece(piece: super::port::Sge) -> RoceSge {
    RoceSge {
        key: piece.local_key,
        address: piece.address,
        bytes: piece.bytes,
    }
}

/// Packets of a burst that are heard before something is sent.
const MOST_HEARD: usize = 32;
/// Packets that leave in one turn, at most: others wait for the next, so that what comes is not lost meanwhile.
const MOST_SENT: usize = 62;
/// When to look for room again that nothing shows: a socket holds more than leaves meanwhile.
const ROOM_AFTER_NS: u64 = 200_000;
/// Bursts that are taken before somebody counts as silent: more than a socket holds.
const MOST_LATE: usize = 1024;
