// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends packets: keeps them in their peer's stream, sends them over its queue pair or as datagrams, and polls their
//! completions. Packets that were held back are posted as one list with one doorbell; a packet that need not wait is
//! posted immediately, by itself.

use session::{Ack, Moment, Session, Slot, UnsentPacket, Via};

use super::control_queue::ControlPacket;
use super::pools::SendPool;
use super::port::{
    CqKind, PortCompletion, VerbsPort, WorkBody, WorkOpcode, WorkRequest, WorkStatus,
};
use super::posted::PostedRequest;
use super::streams::VerbsStreams;
use super::wire::{self, BEGINS, ENDS, HEADER_BYTES, StreamPacket};
use super::{DATAGRAMS, MOST_POSTED, name, parts_of};
use crate::{Full, Head};

impl<P: VerbsPort> VerbsStreams<P> {
    /// Posts a send that does not take the fast path.
    pub(super) fn post(&mut self, to: u32, head: Head, body: &[u8]) -> Result<(), Full> {
        self.put(to, head, body)?;
        self.flush(to);
        Ok(())
    }

    /// Posts a send that leaves with the next send to this peer, or with the next poll.
    pub(super) fn post_later(&mut self, to: u32, head: Head, body: &[u8]) -> Result<(), Full> {
        self.put(to, head, body)?;
        self.links.peers.list_unsent(to);
        Ok(())
    }

    /// Puts a frame into the stream to a peer.
    pub(super) fn put(&mut self, to: u32, head: Head, body: &[u8]) -> Result<(), Full> {
        let remote = self.links.peers.of(to);
        if remote.is_lost() {
            // The caller has been notified; the packet will never be received.
            return Ok(());
        }
        let is_large = body.len() > ring::SLOT_BODY_BYTES;
        if is_large && !remote.session.may_lend() {
            self.links.request_ack(to);
            return Err(Full);
        }
        let remote = self.links.peers.of(to);
        remote.packets = remote.packets.saturating_add(1);
        let (begins, whole) = match remote.pair_for_sends() {
            Some(_) => (true, true),
            None => {
                let most = remote.datagram_bytes();
                let most = most.min(self.links.rails.datagram_bytes());
                (false, HEADER_BYTES + body.len() <= most)
            }
        };
        if begins || whole {
            self.keep(to, head, BEGINS | ENDS, body)?;
        } else {
            self.keep_parts(to, head, body)?;
        }
        if is_large {
            self.links.peers.of(to).session.lend();
        }
        self.links.counts.sends.add(1);
        Ok(())
    }

    /// The fast path, nearly always taken: sends a short frame over the peer's queue pair, if nothing has to be sent
    /// before this frame. `false`: nothing was done.
    #[inline(always)]
    pub(super) fn send_straight(&mut self, to: u32, head: Head, body: &[u8]) -> bool {
        let Some(remote) = self.links.peers.get_mut(to) else {
            return false;
        };
        let Some(index) = remote.pair_for_more() else {
            return false;
        };
        let Some(pair) = self.links.pairs.get_mut(index) else {
            return false;
        };
        let bytes = HEADER_BYTES + body.len();
        let rail = &mut self.links.rails[pair.path.at()];
        let facts = rail.port.facts();
        let (room, inline) = (facts.depth as usize, facts.inline_bytes as usize);
        let is_full = pair.requests.len() + self.links.limits.signal_every as usize >= room
            || rail.posted >= MOST_POSTED / 2
            || remote.session.room() == 0;
        if is_full || bytes > inline {
            return false;
        }
        let Some(slot) = self.links.sends.take_free() else {
            return false;
        };
        let packet = StreamPacket {
            source: remote.source_number,
            number: remote.session.next(),
            ack: remote.session.ack(),
            parts: BEGINS | ENDS,
            kind: head.kind,
            flags: head.flags,
            word: head.word,
        };
        let place = fill(&mut self.links.sends, slot, &packet, body);
        let signaled = pair.requests.unsignaled() + 1 >= self.links.limits.signal_every;
        let work = name(index, pair.requests.next());
        if !rail.port.post_inline(pair.end, work, place, signaled) {
            self.links.sends.release(slot);
            return false;
        }
        self.links.counts.sends.add(1);
        let posted = PostedRequest::Packet {
            peer: to,
            number: packet.number,
            read: None,
        };
        pair.requests.push(posted, signaled);
        pair.used_at = self.links.schedule.polls();
        rail.posted += 1;
        self.links.counts.packets.add(1);
        remote.packets = remote.packets.saturating_add(1);
        remote.session.take_ack();
        #[allow(clippy::cast_possible_truncation, reason = "a slot's")]
        let bytes = bytes as u32;
        remote.session.keep_sent(slot, bytes, pair.made);
        true
    }

    /// Keeps a frame, or a part of one, in the peer's stream until it is acknowledged.
    #[inline(always)]
    pub(super) fn keep(&mut self, to: u32, head: Head, parts: u8, body: &[u8]) -> Result<(), Full> {
        let bytes = HEADER_BYTES + body.len();
        let remote = self.links.peers.get_mut(to).ok_or(Full)?;
        if remote.session.room() == 0 {
            self.links.request_ack(to);
            return Err(Full);
        }
        let Some(slot) = self.links.sends.take(&mut self.links.rails, bytes) else {
            self.request_completions();
            return Err(Full);
        };
        let packet = StreamPacket {
            source: remote.source_number,
            number: remote.session.next(),
            ack: Ack::default(),
            parts,
            kind: head.kind,
            flags: head.flags,
            word: head.word,
        };
        fill(&mut self.links.sends, slot, &packet, body);
        remote.session.keep(slot, u32::try_from(bytes).unwrap_or(0));
        Ok(())
    }

    /// Keeps a frame as several packets for datagrams; all or none.
    #[cold]
    fn keep_parts(&mut self, to: u32, head: Head, body: &[u8]) -> Result<(), Full> {
        let path = self.links.peers.of(to).path(to);
        if self.links.may_get_pair(path) {
            // The caller sends the frame again, over the queue pair that is being made.
            return Err(Full);
        }
        let datagram_bytes = self.links.rails.datagram_bytes();
        let remote = self.links.peers.of(to);
        let part_bytes = datagram_bytes.min(remote.datagram_bytes()) - HEADER_BYTES;
        let parts = body.len().div_ceil(part_bytes);
        if (remote.session.room() as usize) < parts || !self.links.sends.has(part_bytes, parts) {
            self.request_completions();
            return Err(Full);
        }
        for (index, part) in body.chunks(part_bytes).enumerate() {
            let begins = if index == 0 { BEGINS } else { 0 };
            let ends = if index + 1 == parts { ENDS } else { 0 };
            self.keep(to, head, begins | ends, part)?;
        }
        Ok(())
    }

    /// Sends the unsent packets of the peer's stream, as far as there is room.
    #[inline(always)]
    pub(super) fn flush(&mut self, peer: u32) {
        while let Some(remote) = self.links.peers.get_mut(peer)
            && let Some(due) = remote.session.next_unsent()
        {
            // If packets announce writes, a packet is sent only when no read or write has to be posted before it: it
            // must not overtake a write.
            let sent = match remote.pair_for_sends() {
                _ if remote.immediates != 0 && !remote.is_ready() => false,
                Some(pair) => self.send_over(peer, pair, due),
                None => self.send_datagram(peer, due),
            };
            if !sent {
                return self.links.peers.list_unsent(peer);
            }
        }
    }

    #[inline(always)]
    fn send_over(&mut self, peer: u32, index: u32, due: UnsentPacket) -> bool {
        let (Some(remote), Some(pair)) = (
            self.links.peers.get_mut(peer),
            self.links.pairs.get_mut(index),
        ) else {
            return false;
        };
        let at = pair.path.at();
        let rail = &mut self.links.rails[at];
        let inline_bytes = rail.port.facts().inline_bytes as usize;
        let depth = rail.port.facts().depth as usize;
        if pair.requests.len() >= depth || rail.posted >= MOST_POSTED {
            return false;
        }
        let bytes = due.bytes as usize;
        if self.links.sends.is_still(due.slot) {
            stamp(&mut self.links.sends, due.slot, remote.session.take_ack());
        }
        // Requests are signaled early enough that unsignaled ones, of all queue pairs together, never fill the limit.
        let scarce = self.links.sends.is_scarce()
            || rail.posted >= MOST_POSTED / 2
            || pair.requests.len() + self.links.limits.signal_every as usize >= depth;
        let signaled = scarce || pair.requests.unsignaled() + 1 >= self.links.limits.signal_every;
        let body = self.links.sends.body(due.slot, at, bytes, inline_bytes);
        let read = matches!(body, WorkBody::Piece(_)).then_some(due.slot);
        let request = WorkRequest {
            work: name(index, pair.requests.next()),
            operation: WorkOpcode::Send,
            body,
            signaled,
        };
        if rail.port.post(pair.end, &[request]) == 0 {
            return false;
        }
        let posted = PostedRequest::Packet {
            peer,
            number: due.number,
            read,
        };
        pair.requests.push(posted, signaled);
        pair.used_at = self.links.schedule.polls();
        rail.posted += 1;
        self.links.counts.packets.add(1);
        if let Some(slot) = read {
            self.links.sends.posted(slot);
        }
        let via = Via::Reliable { carrier: pair.made };
        remote.session.sent(due.number, via);
        self.links.bursts.sent(peer, due.number);
        true
    }

    fn send_datagram(&mut self, peer: u32, due: UnsentPacket) -> bool {
        let links = &mut self.links;
        let first = links.limits.datagrams_first;
        let remote = links.peers.of(peer);
        let path = remote.path(peer);
        let is_too_long = due.bytes as usize > remote.datagram_bytes();
        // A long packet without acknowledgement may exceed the path MTU: a queue pair is requested, since making it
        // discovers the path MTU.
        let is_doubted = due.bytes > SURE_BYTES && remote.session.timeouts() >= SOME_TIMEOUTS;
        // A peer may time out only because it computes: that is no reason to close the queue pair of another peer.
        let may_be = is_doubted && links.rails.has_room_for_pair(&links.limits);
        let wants_pair = remote.packets > first || is_too_long || may_be;
        if wants_pair && !remote.waits_for_last {
            self.links.request_pair(path);
        }
        self.links.schedule.now_ns = self.links.rails.clock();
        let now_ns = self.links.schedule.now_ns;
        let Some(to) = self.links.destination_of(path) else {
            return false;
        };
        let remote = self.links.peers.of(peer);
        if due.bytes as usize > remote.datagram_bytes() {
            return false;
        }
        if self.links.sends.is_still(due.slot) {
            let ack = self.links.peers.of(peer).session.take_ack();
            stamp(&mut self.links.sends, due.slot, ack);
        }
        let packet = (due.slot, due.bytes as usize);
        let sends = &mut self.links.sends;
        if !self.links.rails.post_datagram(path.rail, to, sends, packet) {
            return false;
        }
        self.links.counts.datagrams.add(1);
        let at = Moment::of(now_ns);
        let via = Via::Lossy { at };
        self.links.peers.of(peer).session.sent(due.number, via);
        self.links.bursts.sent(peer, due.number);
        self.links.peers.arm(peer, self.links.schedule.now_ns);
        true
    }

    /// Polls the completion queues of sends.
    #[inline(never)]
    pub(super) fn poll_sends(&mut self) {
        let mut done = std::mem::take(&mut self.links.rails.sent);
        for rail in 0..self.links.rails.len() {
            loop {
                let count = self.links.rails[rail].port.poll(CqKind::Sends, &mut done);
                if count != 0 {
                    self.take_all_sent(rail, &done[..count]);
                }
                if count == 0 || count < done.len() {
                    break;
                }
            }
        }
        self.links.rails.sent = done;
    }

    #[inline(never)]
    fn take_all_sent(&mut self, rail: usize, done: &[PortCompletion]) {
        self.links.schedule.note_activity();
        for one in done {
            self.take_sent(rail, one);
        }
    }

    #[inline(always)]
    fn take_sent(&mut self, rail: usize, done: &PortCompletion) {
        let (index, number) = parts_of(done.work);
        if index == DATAGRAMS {
            return self.links.rails[rail].datagram_ended(number, &mut self.links.sends);
        }
        if done.status != WorkStatus::Success {
            return self.links.take_failed(index, number, done);
        }
        let Some(pair) = self.links.pairs.get_mut(index) else {
            return;
        };
        let (number, needs_proof) = pair.requests.completed(number);
        while let Some(pair) = self.links.pairs.get_mut(index)
            && let Some(posted) = pair.requests.ended(number)
        {
            let made = pair.made;
            self.links.rails[rail].posted -= 1;
            self.links.retire(posted, made);
        }
        if needs_proof {
            self.links.post_proof(index);
        }
    }

    /// Sends the unsent packets of a peer's stream, as far as there is room: as lists, if there is a queue pair.
    pub(super) fn flush_held(&mut self, peer: u32) {
        while let Some(remote) = self.links.peers.get(peer)
            && remote.session.unsent() > 1
            && (remote.immediates == 0 || remote.is_ready())
            && let Some(index) = remote.pair_for_sends()
            && self.send_chain(peer, index)
        {}
        self.flush(peer);
    }

    /// Posts a list of packets to a queue pair. `false`: there is no room for more.
    fn send_chain(&mut self, peer: u32, index: u32) -> bool {
        let links = &mut self.links;
        let (Some(remote), Some(pair)) = (links.peers.get_mut(peer), links.pairs.get_mut(index))
        else {
            return false;
        };
        let at = pair.path.at();
        let rail = &mut links.rails[at];
        let facts = rail.port.facts();
        let (depth, inline_bytes) = (facts.depth as usize, facts.inline_bytes as usize);
        let room = (depth.saturating_sub(pair.requests.len()))
            .min(MOST_POSTED.saturating_sub(rail.posted));
        let mut due = [UnsentPacket::default(); MOST_IN_CHAIN];
        let count = remote
            .session
            .next_of_unsent(&mut due[..room.min(MOST_IN_CHAIN)]);
        if count < 2 {
            return false;
        }
        let due = &due[..count];
        stamp_all(&mut links.sends, &mut remote.session, due);
        let is_scarce = links.sends.is_scarce();
        let signal_every = links.limits.signal_every;
        let mut unsignaled = pair.requests.unsignaled();
        let mut requests = [EMPTY; MOST_IN_CHAIN];
        for (place, (request, one)) in requests.iter_mut().zip(due).enumerate() {
            let (posted, in_flight) = (rail.posted + place, pair.requests.len() + place);
            let scarce = is_scarce
                || posted >= MOST_POSTED / 2
                || in_flight + signal_every as usize >= depth;
            let signaled = scarce || unsignaled + 1 >= signal_every;
            unsignaled = if signaled { 0 } else { unsignaled + 1 };
            let number = u32::try_from(place).unwrap_or(0);
            *request = WorkRequest {
                work: name(index, pair.requests.next().wrapping_add(number)),
                operation: WorkOpcode::Send,
                body: links
                    .sends
                    .body(one.slot, at, one.bytes as usize, inline_bytes),
                signaled,
            };
        }
        let taken = rail.port.post(pair.end, &requests[..count]);
        let posted =
            requests.map(|request| (request.signaled, matches!(request.body, WorkBody::Piece(_))));
        for (one, (signaled, is_read)) in due[..taken].iter().zip(posted) {
            let (number, read) = (one.number, is_read.then_some(one.slot));
            let request = PostedRequest::Packet { peer, number, read };
            pair.requests.push(request, signaled);
            read.into_iter().for_each(|slot| links.sends.posted(slot));
            let via = Via::Reliable { carrier: pair.made };
            remote.session.sent(number, via);
            links.bursts.sent(peer, number);
        }
        pair.used_at = links.schedule.polls();
        rail.posted += taken;
        links.counts.packets.add(taken as u64);
        taken == count
    }

    /// Queues a control packet of the provider and sends it as soon as there is room.
    pub(super) fn send_control(&mut self, to: u32, head: Head, body: Vec<u8>) {
        self.control.push(ControlPacket { to, head, body });
        self.post_control();
    }

    /// Sends the queued control packets that have room now.
    pub(super) fn post_control(&mut self) {
        let mut left = self.control.take();
        left.retain(|packet| !self.post_control_packet(packet));
        self.control.put_back(left);
    }

    /// Sends one control packet. `false`: there is no room.
    fn post_control_packet(&mut self, packet: &ControlPacket) -> bool {
        let to = packet.to;
        if self.links.peers.of(to).is_lost() {
            return true;
        }
        if self
            .keep(to, packet.head, BEGINS | ENDS, &packet.body)
            .is_err()
        {
            self.links.peers.list_unsent(to);
            return false;
        }
        let remote = self.links.peers.of(to);
        remote.packets = remote.packets.saturating_add(1);
        self.flush(to);
        true
    }

    /// Requests the completions and acknowledgements that are missing and that free slots, and polls the completion
    /// queues of sends.
    #[cold]
    pub(super) fn request_completions(&mut self) {
        for index in self.links.pairs.places() {
            let Some(pair) = self.links.pairs.get(index).filter(|pair| pair.is_whole()) else {
                continue;
            };
            let peer = pair.path.peer;
            if pair.requests.unsignaled() != 0 {
                self.links.mark(index);
            } else if self
                .links
                .peers
                .of(peer)
                .session
                .oldest_unacknowledged()
                .is_some()
            {
                self.links.request_ack(peer);
            }
        }
        self.poll_sends();
    }

    /// Breaks queue pairs whose device has lost a completion (`lost_completions.rs`). No timer wakes a sleeping process
    /// for this check: the check is made when the process next wakes.
    pub(super) fn break_lost(&mut self) {
        let now_ns = self.links.schedule.now_ns;
        if self.links.pairs.late(now_ns).is_empty() {
            return;
        }
        // Completions that came while this process was not polling are taken into account first.
        self.poll_sends();
        for index in self.links.pairs.late(now_ns) {
            self.links.forget(index);
        }
    }
}

/// Writes a packet into a slot.
#[inline(always)]
fn fill<'a>(
    sends: &'a mut SendPool,
    slot: Slot,
    packet: &StreamPacket,
    body: &[u8],
) -> &'a mut [u8] {
    let place = sends.bytes_mut(slot, HEADER_BYTES + body.len());
    if let Some((header, rest)) = place.split_first_chunk_mut::<HEADER_BYTES>() {
        packet.write(header);
        rest.copy_from_slice(body);
    }
    place
}

/// Writes the acknowledgement into a packet that is sent now, and requests one if slots are scarce. Must not be called
/// while a device still reads the slot for an earlier transmission: the device could send half of the old header and
/// half of the new.
#[inline(always)]
pub(super) fn stamp(sends: &mut SendPool, slot: Slot, ack: Ack) {
    let requests_ack = sends.is_scarce();
    let header = sends.bytes_mut(slot, HEADER_BYTES);
    if let Some(header) = header.first_chunk_mut() {
        wire::write_ack(ack, header);
        if requests_ack {
            wire::request_ack(header);
        }
    }
}

/// Writes the acknowledgement into each packet of a list.
fn stamp_all(sends: &mut SendPool, session: &mut Session, due: &[UnsentPacket]) {
    for one in due {
        if sends.is_still(one.slot) {
            stamp(sends, one.slot, session.take_ack());
        }
    }
}

/// Datagrams of at most this size pass on any path.
const SURE_BYTES: u32 = 256;
/// Timeouts after which a longer packet is suspected to exceed the path MTU.
const SOME_TIMEOUTS: u8 = 2;
const EMPTY: WorkRequest<'static> = WorkRequest {
    work: 0,
    operation: WorkOpcode::Send,
    body: WorkBody::Inline(&[]),
    signaled: false,
};
/// Maximum number of packets in a list, as many as the work requests that a device gets in one list.
const MOST_IN_CHAIN: usize = 16;
