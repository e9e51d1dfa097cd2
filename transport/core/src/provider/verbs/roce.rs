// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user-space RoCEv2 port: the protocol engine of the crate `roce` over some carrier of packets. It runs only in the
//! calls of its process, so a process that makes no calls answers no packets; its peers then send their packets again.
//!
//! | file                       | what |
//! |----------------------------|------------------------------------------------------------------------------------|
//! | `port.rs`                  | the calls of `VerbsPort` |
//! | `open.rs`                  | the address and attributes of a port |
//! | `carrier.rs`               | the interface to carriers of packets |
//! | `udp.rs`                   | UDP as a carrier: its sockets |
//! | `connected.rs`, `gso.rs`   | connected sockets, for sending only; segmentation offload |
//! | `recv_socket.rs`, `recv_mode.rs` | a receiving socket; how it is read, depending on the packet rate |
//! | `direct.rs`                | a second receiving socket, for the most frequent peer |
//! | `system.rs`                | system calls |
//! | `shared.rs`, `claim.rs`    | the UDP port of RoCE, shared by the ranks of a job on a host |
//! | `dpdk.rs`, `dpdk_ports.rs` | a DPDK port, and which one this process uses |
//! | `faulty.rs`                | a network with faults, within one process, for tests |
//! | `writing.rs`               | outgoing packets, whole or as a header in front of a payload that is sent in place |
//! | `regions.rs`               | registered memory |
//! | `pairs.rs`                 | reliable queue pairs |
//! | `completions.rs`           | completions |
//! | `completion_event.rs`      | the descriptor that wakes a process |
//!
//! A turn ([`RocePort::turn`]) receives a burst of packets, hands each to its queue pair, and then sends what is ready,
//! so that a burst has one acknowledgement. Posted requests are sent during the post, unless the port is corked.

mod carrier;
mod claim;
mod completion_event;
mod completions;
mod connected;
mod direct;
mod dpdk;
pub(in crate::provider) mod dpdk_ports;
mod faulty;
mod gso;
mod open;
mod pairs;
mod port;
mod random;
mod recv_mode;
mod recv_socket;
mod regions;
mod shared;
mod system;
mod udp;
mod writing;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use roce::format::Packet;
use roce::icrc::RecentPrefixes;
use roce::link::FramePayload;
use roce::{DatagramPair, ReceiveQueue, RoceSge};

use super::port::{CqKind, PortAttr, PortCompletion, PortCounts};
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
use writing::PacketWriter;

/// A port over a carrier.
#[derive(Debug)]
pub(crate) struct RocePort<C> {
    facts: PortAttr,
    carrier: C,
    completion_event: Option<CompletionEvent>,
    handles: Slab<SocketAddr>,
    queues: RoceQueues,
    limits: RocePortLimits,
    counts: Arc<PortCounts>,
    /// For outgoing packets.
    prefixes: RecentPrefixes,
    /// Whether a turn was made since completions of sends were last polled.
    has_turned: bool,
    /// Whether packets have arrived since the last [`take_activity`](super::port::VerbsPort::take_activity).
    has_activity: bool,
    /// Whether posted requests wait until the next turn, or until the port is
    /// [uncorked](super::port::VerbsPort::uncork).
    is_corked: bool,
}

/// Limits of a port's queue pairs.
#[derive(Clone, Copy, Debug)]
struct RocePortLimits {
    /// Send queue depth of one reliable queue pair.
    sends: u32,
    /// Maximum number of packets in flight on one queue pair.
    window_packets: u32,
    /// Maximum number of response packets to one read request.
    read_packets: u32,
    /// Number of packets after which a turn sends no further batch.
    burst_packets: u32,
    /// Time without a packet from a peer's user-space port after which a queue pair to it breaks.
    silence_ns: u64,
}

/// The queue pairs of a port, and the memory that they access.
#[derive(Debug)]
struct RoceQueues {
    /// The local address.
    local: SocketAddr,
    regions: RoceRegions,
    pairs: RocePairs,
    shared: ReceiveQueue,
    datagrams: DatagramPair,
    datagram_buffers: ReceiveQueue,
    /// Whether datagrams wait to be sent.
    has_datagrams: bool,
    /// The queue pair in use whose completions and deadline are not settled yet, and whether it may have a packet to
    /// send.
    touched: Option<(u32, bool)>,
    ends: RoceCompletions,
}

impl<C: Carrier> RocePort<C> {
    /// Receives a burst of packets, and sends a bounded number.
    fn turn(&mut self) {
        let now_ns = self.carrier.begin();
        let count = self.carrier.receive();
        self.deliver_burst(now_ns, count);
        self.receive_late(now_ns);
        self.queues.pairs.wake_due(now_ns);
        self.send(now_ns);
        // The caller of this turn polls the completions itself, so they need not wake a thread.
        self.update_wake(false);
    }

    /// Hands `count` packets of the last burst to their queue pairs. In a long burst, responses are also sent before
    /// its end, so that the peer need not wait. While a response from a peer is overdue, nothing is sent before the end
    /// of the burst: the overdue response may be among the remaining packets.
    fn deliver_burst(&mut self, now_ns: u64, count: usize) {
        self.has_activity |= count != 0;
        for index in 0..count {
            if index % MOST_DELIVERED == MOST_DELIVERED - 1 {
                self.queues.settle();
                if !self.queues.pairs.is_any_due(now_ns) {
                    self.send(now_ns);
                }
            }
            if let Some(carried) = self.carrier.received(index) {
                self.queues.deliver(now_ns, &carried);
            }
        }
        self.queues.settle();
    }

    /// While a response is overdue, receives all packets: this process may have computed for long, and responses wait
    /// in the socket.
    fn receive_late(&mut self, now_ns: u64) {
        for _ in 0..MOST_LATE {
            if !self.queues.pairs.is_any_due(now_ns) {
                break;
            }
            let count = self.carrier.receive_any();
            self.deliver_burst(now_ns, count);
            if count == 0 {
                break;
            }
        }
    }

    /// Sends ready packets, as far as there is room, but at most one burst, and what fills its last batch: sending all
    /// would take so long that arriving packets are dropped meanwhile. The others wait for the next turn.
    fn send(&mut self, now_ns: u64) {
        if self.carrier.has_unsent() {
            self.carrier.flush();
        }
        let mut exit = PacketWriter::new(&mut self.carrier, &self.counts, &mut self.prefixes);
        let burst = self.limits.burst_packets;
        for sent in 0..2 * burst {
            if sent >= burst && !exit.is_in_batch() {
                break;
            }
            if !exit.makes_room() || !self.queues.send_next(now_ns, &mut exit) {
                break;
            }
        }
        self.queues.settle();
        self.carrier.flush();
    }

    /// Sends what was posted, without waiting for the next turn, except while the port is corked.
    fn send_now(&mut self) {
        if self.is_corked {
            return;
        }
        let now_ns = self.carrier.begin();
        self.receive_late(now_ns);
        self.send(now_ns);
        self.update_wake(true);
    }

    /// When to wake a process that sleeps; `ends`: completions that were not polled yet wake it too.
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

    /// Lets the completion event watch a descriptor that the carrier has opened.
    fn watch_new(&mut self) {
        if let Some(event) = &self.completion_event
            && let Some(packets) = self.carrier.new_descriptor()
        {
            // If this fails, the process finds the packets at its next poll: every sleep is limited.
            _ = event.also_watch(packets);
        }
    }

    /// Updates the wake-up conditions of an armed completion event: another thread may sleep on it.
    fn update_wake(&mut self, ends: bool) {
        if self
            .completion_event
            .as_ref()
            .is_some_and(CompletionEvent::is_armed)
        {
            self.watch_new();
            let wanted = self.wanted(ends);
            if let (Some(event), Some(packets)) =
                (&mut self.completion_event, self.carrier.descriptor())
            {
                // If this fails, the process finds the change at its next poll: every sleep is limited.
                _ = event.hasten(packets, wanted);
            }
        }
    }
}

impl RoceQueues {
    /// Handles a received packet. Packets that are not for a queue pair of this port are ignored.
    fn deliver(&mut self, now_ns: u64, carried: &FramePayload<'_>) {
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
            let may_send = !pair.has_sent_all(now_ns);
            self.touch(number, may_send);
        }
    }

    /// Marks a queue pair as in use; it is settled when another queue pair is used.
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

    /// Settles the queue pair in use: takes its completions, and records its deadline.
    fn settle(&mut self) {
        if let Some((number, may_send)) = self.touched.take() {
            self.pairs.settle(number, may_send, &mut self.ends);
        }
    }

    /// Takes completions; returns how many. Datagrams occupy the send queue until their completions are taken.
    fn take(&mut self, which: CqKind, places: &mut [PortCompletion]) -> usize {
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

    /// Hands the next packet to the carrier, which has room for one; `false`: there is no packet to send.
    fn send_next(&mut self, now_ns: u64, exit: &mut PacketWriter<'_, impl Carrier>) -> bool {
        if self.has_datagrams {
            let outgoing = self.datagrams.next_outgoing(&self.regions);
            self.has_datagrams = outgoing.is_some();
            if let Some(outgoing) = outgoing {
                // The packet is copied, so the buffer of the datagram is free now.
                exit.push_copied(&outgoing, &self.regions);
                return true;
            }
        }
        while let Some((number, pair)) = self.pairs.first_ready() {
            let outgoing = pair.next_outgoing(now_ns, &self.regions);
            let has_sent = outgoing.is_some();
            if let Some(outgoing) = outgoing {
                exit.push(&outgoing, &self.regions);
            }
            if !has_sent || pair.has_sent_all(now_ns) {
                self.pairs.leave_ready();
            } else {
                self.pairs.turn_ready();
            }
            self.touch(number, false);
            if has_sent {
                return true;
            }
        }
        false
    }
}

/// A scatter-gather entry as the engine's type.
fn piece(piece: super::port::Sge) -> RoceSge {
    RoceSge {
        key: piece.local_key,
        address: piece.address,
        bytes: piece.bytes,
    }
}

/// Maximum number of packets of a burst that are handled between two sends of responses, unless a response is overdue.
const MOST_DELIVERED: usize = 32;
/// Delay before the next attempt to send if room is not signalled: a socket buffers more than is sent in this time.
const ROOM_AFTER_NS: u64 = 200_000;
/// While a response is overdue, up to this many bursts are received before its peer counts as silent: more than a
/// socket holds.
const MOST_LATE: usize = 1024;
