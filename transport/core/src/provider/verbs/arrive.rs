// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arriving packets: they pass through their peer's session and are delivered as frames, in order.
//!
//! While there is nothing else to do, frames are polled one by one; messages of one word that arrive in order over
//! their peer's queue pair have the shortest way (`fast_receive.rs`).
//!
//! All input here is untrusted. The source field of a packet names a peer; it is accepted only if the packet came from
//! a queue pair that this peer is known to have. Lengths are those that the device reports.

use session::{ACK_EVERY, PacketVerdict, Slot};

use super::Verbs;
use super::fast_receive::{NetWord, PendingWord, WORD_BYTES, WordPoll};
use super::pools::is_datagram;
use super::port::{CqKind, PortCompletion, VerbsPort, WorkStatus};
use super::rail::{PeerPath, rail_of};
use super::ready::{is_assembled, is_listed};
use super::wire::{
    self, ACK_REQUEST, BEGINS, ENDS, HEADER_BYTES, SEVERAL, StreamPacket, WireMessage,
};
use crate::provider::frame_list::{self, MOST_LIST_BYTES};
use crate::words::pack;
use crate::{Arrived, Completion, Completions, Head, Peer, RecvBuffer};

/// Length of a packet whose body fits in a completion, in bytes.
const SHORT_BYTES: usize = HEADER_BYTES + ring::SLOT_BODY_BYTES;

impl<P: VerbsPort> Verbs<P> {
    /// Handles a completed receive.
    #[inline(always)]
    pub(super) fn take_filled(
        &mut self,
        buffer: Slot,
        done: &PortCompletion,
        completions: &mut Completions,
    ) {
        let receives = self.streams.links.rails.receives(buffer);
        if done.status != WorkStatus::Success {
            // Only returns the buffer: the queue pair broke, which the send completion queue reports.
            return self.streams.links.rails.give_back(buffer);
        }
        let mut start = [0; SHORT_BYTES];
        let short = receives.copy_start(buffer, &mut start);
        match wire::read(&start[..short], receives.bytes_in(buffer)) {
            Some(WireMessage::Packet(packet)) if self.is_from(packet.source, done, buffer) => {
                self.take_packet(packet, &start, buffer, completions);
            }
            Some(WireMessage::Note {
                source,
                ack,
                message,
            }) if self.is_from(source, done, buffer) => {
                self.streams.links.rails.give_back(buffer);
                self.streams.links.take_note(
                    path(source, buffer),
                    ack,
                    message,
                    is_datagram(buffer),
                );
            }
            Some(WireMessage::Echo {
                source,
                attempt,
                is_request,
            }) if is_datagram(buffer) && self.is_from(source, done, buffer) => {
                self.streams.links.rails.give_back(buffer);
                self.streams
                    .links
                    .take_echo(path(source, buffer), attempt, is_request);
            }
            Some(WireMessage::Moved { source, address }) if self.is_from(source, done, buffer) => {
                self.streams.links.rails.give_back(buffer);
                self.streams.links.follow(path(source, buffer), address);
            }
            Some(
                WireMessage::Packet(StreamPacket { source, .. })
                | WireMessage::Note { source, .. }
                | WireMessage::Echo { source, .. },
            ) if self.is_unresolved(source, buffer) => {
                self.streams
                    .links
                    .unresolved
                    .keep(source, buffer, done.source);
            }
            _ => {
                self.streams.links.counts.refused.add(1);
                self.streams.links.rails.give_back(buffer);
            }
        }
    }

    /// Whether the packet in a buffer can be from this peer.
    #[inline(always)]
    fn is_from(&self, source: u32, done: &PortCompletion, buffer: Slot) -> bool {
        let links = &self.streams.links;
        let (peers, rails) = (&links.peers, &links.rails);
        links.pairs.is_from(source, done, buffer, peers, rails)
    }

    /// Whether to hold a datagram: its source may be a peer whose address is not known yet, and there is room. If the
    /// source may be such a peer, requests the peer's address.
    #[cold]
    fn is_unresolved(&mut self, source: u32, buffer: Slot) -> bool {
        let links = &self.streams.links;
        if !is_datagram(buffer)
            || !links.peers.known().may_be(source)
            || links.unresolved.is_excluded(source)
        {
            return false;
        }
        let remote = self.streams.links.peers.of(source);
        if remote.main.address.is_some() || remote.is_lost() {
            return false;
        }
        let path = remote.path(source);
        self.streams.links.destination_of(path);
        self.streams.links.unresolved.has_room()
    }

    /// Handles the datagrams held for a peer, now that its address is known.
    #[cold]
    pub(super) fn take_held_datagrams(&mut self, peer: u32) {
        for (buffer, number) in self.streams.links.unresolved.take(peer) {
            // Held datagrams are handled as if they arrived now; the next poll returns their completions.
            let mut completions = Completions::new();
            let done = PortCompletion {
                source: number,
                ..PortCompletion::default()
            };
            let mut start = [0; SHORT_BYTES];
            let receives = self.streams.links.rails.receives(buffer);
            let short = receives.copy_start(buffer, &mut start);
            match wire::read(&start[..short], receives.bytes_in(buffer)) {
                Some(WireMessage::Packet(packet)) if self.is_from(peer, &done, buffer) => {
                    self.take_packet(packet, &start, buffer, &mut completions);
                }
                Some(WireMessage::Note { ack, message, .. })
                    if self.is_from(peer, &done, buffer) =>
                {
                    self.streams.links.rails.give_back(buffer);
                    self.streams
                        .links
                        .take_note(path(peer, buffer), ack, message, true);
                }
                Some(WireMessage::Echo {
                    attempt,
                    is_request,
                    ..
                }) if self.is_from(peer, &done, buffer) => {
                    self.streams.links.rails.give_back(buffer);
                    let path = path(peer, buffer);
                    self.streams.links.take_echo(path, attempt, is_request);
                }
                _ => {
                    self.streams.links.counts.refused.add(1);
                    self.streams.links.rails.give_back(buffer);
                }
            }
            self.streams.ready.push_all(&mut completions);
        }
    }

    /// Excludes a peer, because from now on another network reaches it: drops the datagrams held for this peer, and
    /// refuses later ones.
    pub(in crate::provider) fn exclude(&mut self, peer: Peer) {
        for (buffer, _) in self.streams.links.unresolved.exclude(peer.0) {
            self.streams.links.counts.refused.add(1);
            self.streams.links.rails.give_back(buffer);
        }
    }

    #[inline(always)]
    fn take_packet(
        &mut self,
        packet: StreamPacket,
        start: &[u8; SHORT_BYTES],
        buffer: Slot,
        completions: &mut Completions,
    ) {
        let peer = packet.source;
        let links = &mut self.streams.links;
        let Some(remote) = links.peers.get_mut(peer) else {
            return;
        };
        let by_datagram = is_datagram(buffer);
        remote.sent_packet(rail_of(buffer), by_datagram);
        if by_datagram {
            links.schedule.now_ns = links.rails.clock();
        }
        let sends = &mut links.sends;
        remote
            .session
            .acknowledge(packet.ack, links.schedule.now_ns, |slot| {
                sends.release(slot)
            });
        // Packets that came too early may be held only if a buffer remains for the missing one. There is no such limit
        // for packets over reliable queue pairs: a queue pair does not repeat a packet that was not held.
        let receives = &links.rails[usize::from(rail_of(buffer))].receives;
        let can_wait = !by_datagram || receives.has_datagram_buffers();
        let verdict = remote.session.accept(packet.number, buffer, can_wait);
        let ack_requested = verdict == PacketVerdict::Duplicate || packet.parts & ACK_REQUEST != 0;
        let owes =
            by_datagram || remote.session.delivered_since_ack() >= ACK_EVERY || ack_requested;
        if ack_requested {
            remote.session.force_ack();
        }
        let misses_some = remote.session.has_unsent();
        if owes {
            links.peers.list_owing(peer);
        }
        if misses_some {
            links.peers.list_unsent(peer);
        }
        match verdict {
            PacketVerdict::Deliver => {
                self.deliver(packet, start, buffer, completions);
                self.deliver_held(peer, completions);
            }
            PacketVerdict::Held => {}
            PacketVerdict::Early => self.streams.links.rails.give_back(buffer),
            PacketVerdict::Duplicate => {
                self.streams.links.counts.twice.add(1);
                self.streams.links.rails.give_back(buffer);
            }
            PacketVerdict::Invalid => {
                self.streams.links.counts.refused.add(1);
                self.streams.links.rails.give_back(buffer);
            }
        }
    }

    /// Delivers the held packets of a peer that are next in its stream now.
    #[inline(always)]
    fn deliver_held(&mut self, peer: u32, completions: &mut Completions) {
        while let Some(remote) = self.streams.links.peers.get_mut(peer)
            && let Some(buffer) = remote.session.next_held()
        {
            let mut start = [0; SHORT_BYTES];
            let receives = self.streams.links.rails.receives(buffer);
            let short = receives.copy_start(buffer, &mut start);
            if let Some(WireMessage::Packet(packet)) =
                wire::read(&start[..short], receives.bytes_in(buffer))
            {
                self.deliver(packet, &start, buffer, completions);
            }
        }
    }

    /// Delivers a packet that is next in its stream.
    #[inline(always)]
    fn deliver(
        &mut self,
        packet: StreamPacket,
        start: &[u8; SHORT_BYTES],
        buffer: Slot,
        completions: &mut Completions,
    ) {
        let bytes = self.streams.links.rails.receives(buffer).bytes_in(buffer) - HEADER_BYTES;
        if packet.parts & (BEGINS | ENDS | SEVERAL) != BEGINS | ENDS {
            return match packet.parts & SEVERAL {
                0 => self.assemble(packet, buffer, bytes, completions),
                _ => self.deliver_several(packet, buffer, bytes, completions),
            };
        }
        if bytes > ring::SLOT_BODY_BYTES {
            let bytes = u32::try_from(bytes).unwrap_or(0);
            let index = buffer;
            return self.hand_up(
                packet,
                [0; 6],
                RecvBuffer::Lent { index, bytes },
                completions,
            );
        }
        self.streams.links.rails.give_back(buffer);
        let body = &start[HEADER_BYTES..HEADER_BYTES + bytes];
        self.hand_up_short(packet, body, completions);
    }

    #[inline(always)]
    fn hand_up_short(&mut self, packet: StreamPacket, body: &[u8], completions: &mut Completions) {
        let mut words = [0u64; 6];
        pack(body, |at, word| words[at] = word);
        #[allow(clippy::cast_possible_truncation, reason = "at most a slot's body")]
        let bytes = body.len() as u8;
        self.hand_up(packet, words, RecvBuffer::Inline { bytes }, completions);
    }

    /// Delivers the frames of a packet that contains several.
    #[inline(never)]
    fn deliver_several(
        &mut self,
        packet: StreamPacket,
        buffer: Slot,
        bytes: usize,
        completions: &mut Completions,
    ) {
        let is_valid = bytes <= MOST_LIST_BYTES && packet.parts & (BEGINS | ENDS) == BEGINS | ENDS;
        let mut copy = std::mem::take(&mut self.streams.list);
        copy.resize(MOST_LIST_BYTES, 0);
        let list = &mut copy[..if is_valid { bytes } else { 0 }];
        let receives = self.streams.links.rails.receives(buffer);
        receives.copy_out(buffer, HEADER_BYTES, list);
        self.streams.links.rails.give_back(buffer);
        let mut list = &*list;
        while let Some(frame) = frame_list::take_first(&mut list) {
            let Head {
                kind, flags, word, ..
            } = frame.head;
            let packet = StreamPacket {
                kind,
                flags,
                word,
                ..packet
            };
            if frame.body.len() <= ring::SLOT_BODY_BYTES {
                self.hand_up_short(packet, frame.body, completions);
                continue;
            }
            let index = self.streams.ready.lend_listed(frame.body);
            let bytes = u32::try_from(frame.body.len()).unwrap_or(0);
            let body = RecvBuffer::Lent { index, bytes };
            self.hand_up(packet, [0; 6], body, completions);
        }
        if !list.is_empty() || !is_valid {
            self.streams.links.counts.refused.add(1);
        }
        self.streams.list = copy;
    }

    /// Adds a part to a frame, and delivers the frame when it is complete.
    #[cold]
    fn assemble(
        &mut self,
        packet: StreamPacket,
        buffer: Slot,
        bytes: usize,
        completions: &mut Completions,
    ) {
        let mut part = vec![0; bytes];
        self.streams
            .links
            .rails
            .receives(buffer)
            .copy_out(buffer, HEADER_BYTES, &mut part);
        self.streams.links.rails.give_back(buffer);
        let remote = self.streams.links.peers.of(packet.source);
        if packet.parts & BEGINS != 0 {
            remote.building = Some(Vec::new());
        }
        let Some(mut frame) = remote.building.take() else {
            self.streams.links.counts.refused.add(1);
            return;
        };
        frame.extend_from_slice(&part);
        if frame.len() > ring::layout::POOL_BUFFER_BYTES {
            self.streams.links.counts.refused.add(1);
            return;
        }
        if packet.parts & ENDS == 0 {
            remote.building = Some(frame);
            return;
        }
        let bytes = frame.len();
        if bytes <= ring::SLOT_BODY_BYTES {
            return self.hand_up_short(packet, &frame, completions);
        }
        let index = self.streams.ready.lend(frame);
        let bytes = u32::try_from(bytes).unwrap_or(0);
        self.hand_up(
            packet,
            [0; 6],
            RecvBuffer::Lent { index, bytes },
            completions,
        );
    }

    #[inline(always)]
    fn hand_up(
        &mut self,
        packet: StreamPacket,
        words: [u64; 6],
        body: RecvBuffer,
        completions: &mut Completions,
    ) {
        let peer = Peer(packet.source);
        let completion = match (packet.kind, body) {
            (IMMEDIATE, RecvBuffer::Inline { .. }) => {
                #[allow(clippy::cast_possible_truncation, reason = "it was made of 32 bits")]
                let immediate = packet.word as u32;
                Completion::Written { peer, immediate }
            }
            (FIRST_INTERNAL.., RecvBuffer::Inline { bytes }) => {
                return self.transfers.take_control(
                    &mut self.streams,
                    packet.source,
                    packet.head(),
                    words,
                    bytes,
                );
            }
            (FIRST_INTERNAL.., RecvBuffer::Lent { index, .. }) => {
                self.streams.links.counts.refused.add(1);
                return self.release(packet.source, index);
            }
            _ => Completion::Arrived(Arrived {
                peer,
                head: packet.head(),
                words,
                body,
            }),
        };
        self.streams.ready.deliver(completion, completions);
    }

    /// Copies the body of a lent frame.
    pub(in crate::provider) fn copy_lent(
        &self,
        index: u32,
        bytes: u32,
        target: &mut [u8],
    ) -> usize {
        let bytes = target.len().min(bytes as usize);
        let target = &mut target[..bytes];
        if !is_assembled(index) {
            self.streams
                .links
                .rails
                .receives(index)
                .copy_out(index, HEADER_BYTES, target);
            return bytes;
        }
        let Some(body) = self.streams.ready.lent(index) else {
            return 0;
        };
        let bytes = bytes.min(body.len());
        target[..bytes].copy_from_slice(&body[..bytes]);
        bytes
    }

    /// Takes back a lent frame of `peer`.
    pub(in crate::provider) fn release(&mut self, peer: u32, index: u32) {
        if is_listed(index) {
            return self.streams.ready.release(index);
        }
        let remote = self.streams.links.peers.of(peer);
        if remote.session.give_back() && !remote.listed_owing {
            remote.session.force_ack();
            self.streams.links.peers.list_owing(peer);
        }
        if !is_assembled(index) {
            return self.streams.links.rails.give_back(index);
        }
        self.streams.ready.release(index);
    }

    /// Polls one rail for one frame, and does the deferred work of the last word; all other work is left to full polls.
    #[inline(always)]
    pub(in crate::provider) fn poll_word(&mut self) -> WordPoll {
        if self.streams.links.schedule.needs_poll() || !self.streams.is_calm() {
            return WordPoll::Poll;
        }
        self.streams.links.schedule.count();
        // Only one rail is polled here; full polls poll the others.
        let rail = self.streams.links.rails.warm();
        match self.streams.links.rails[rail]
            .port
            .poll_first(CqKind::Receives)
        {
            Some(done) => self.take_first(rail, &done),
            None => {
                self.catch_up();
                WordPoll::Nothing
            }
        }
    }

    #[inline(never)]
    fn take_first(&mut self, rail: usize, done: &PortCompletion) -> WordPoll {
        self.catch_up();
        let Some(buffer) = self.streams.links.rails[rail]
            .receives
            .filled(done.work, done.bytes)
        else {
            return WordPoll::Nothing;
        };
        match self.take_word(rail, buffer, done) {
            Some(word) => WordPoll::Word(word),
            None => self.take_other(rail, buffer, done),
        }
    }

    /// Handles a receive that is not a message of one word. Returns its frame, if it is one frame and nothing else;
    /// otherwise the next poll returns its completions.
    #[inline(never)]
    fn take_other(&mut self, rail: usize, buffer: Slot, done: &PortCompletion) -> WordPoll {
        let mut completions = Completions::new();
        self.take_filled(buffer, done, &mut completions);
        self.settle();
        self.streams.links.schedule.note_activity();
        let rail = &mut self.streams.links.rails[rail];
        rail.receives.replenish(&mut rail.port);
        if completions.len() == 1 && self.streams.ready.is_empty() {
            match completions.take(0) {
                Some(Completion::Arrived(arrived)) => return WordPoll::Frame(arrived),
                Some(other) => self.streams.ready.push(other),
                None => {}
            }
        }
        self.streams.ready.put_first(&mut completions);
        WordPoll::Poll
    }

    /// Accepts a message of one word. `None`: the receive is something else, and nothing was done.
    #[inline(always)]
    fn take_word(&mut self, rail: usize, buffer: Slot, done: &PortCompletion) -> Option<NetWord> {
        let is_word = done.bytes as usize == WORD_BYTES && done.status == WorkStatus::Success;
        if !is_word || is_datagram(buffer) {
            return None;
        }
        let start = self.streams.links.rails[rail]
            .receives
            .start::<WORD_BYTES>(buffer);
        let (header, body) = start.split_first_chunk::<HEADER_BYTES>()?;
        let packet = wire::packet(header)?;
        if packet.parts != BEGINS | ENDS || packet.kind >= FIRST_INTERNAL {
            return None;
        }
        let remote = self.streams.links.peers.find_mut(packet.source)?;
        let index = remote.pair_on(rail_of(buffer))?;
        let pair = self.streams.links.pairs.get(index)?;
        if pair.end.number != done.number || !remote.session.accept_next(packet.number) {
            return None;
        }
        self.pending_word = Some(PendingWord {
            peer: packet.source,
            buffer,
            ack: packet.ack,
        });
        Some(NetWord {
            peer: Peer(packet.source),
            head: Head {
                len: 8,
                ..packet.head()
            },
            word: u64::from_ne_bytes(*body.first_chunk()?),
        })
    }

    /// Does the work deferred by the last word.
    #[inline(always)]
    pub(super) fn catch_up(&mut self) {
        if let Some(pending_word) = self.pending_word.take() {
            self.finish_word(pending_word);
        }
    }

    #[inline(never)]
    fn finish_word(&mut self, PendingWord { peer, buffer, ack }: PendingWord) {
        self.streams.links.schedule.note_activity();
        let rail = rail_of(buffer);
        if let Some(remote) = self.streams.links.peers.get_mut(peer)
            && !remote.is_lost()
        {
            let sends = &mut self.streams.links.sends;
            remote
                .session
                .acknowledge(ack, self.streams.links.schedule.now_ns, |slot| {
                    sends.release(slot)
                });
            // Acknowledgements to the peer leave over this rail (`peers.rs`).
            remote.last_rail = rail;
            if remote.needs_follow_up() {
                self.streams.links.peers.do_follow_up(peer);
            }
        }
        self.streams.links.rails.give_back(buffer);
        let rail = &mut self.streams.links.rails[usize::from(rail)];
        rail.receives.replenish(&mut rail.port);
    }
}

/// The path over which the packet in a buffer arrived.
fn path(peer: u32, buffer: Slot) -> PeerPath {
    let rail = rail_of(buffer);
    PeerPath { peer, rail }
}

/// Kinds of frames from here on are internal to the provider.
pub(super) const FIRST_INTERNAL: u8 = 128;
/// A write has completed in the receiver's memory; carries the immediate.
pub(super) const IMMEDIATE: u8 = FIRST_INTERNAL;
/// Keys to memory of the sender (`keys.rs`).
pub(super) const KEYS: u8 = FIRST_INTERNAL + 1;
/// A request to write to the sender's memory, and its reply (`fetch.rs`).
pub(super) const FETCH: u8 = FIRST_INTERNAL + 2;
pub(super) const FETCHED: u8 = FIRST_INTERNAL + 3;
