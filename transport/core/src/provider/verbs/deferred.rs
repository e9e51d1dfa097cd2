// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deferred frames (`frame_burst.rs`) stay in their peer's stream, unsent; short ones share a packet (`frame_list.rs`).

use session::{Ack, WINDOW};

use super::port::VerbsPort;
use super::streams::VerbsStreams;
use super::wire::{BEGINS, ENDS, HEADER_BYTES, SEVERAL, StreamPacket};
use crate::provider::frame_burst::OpenPacket;
use crate::provider::frame_list::{self, MOST_LIST_BYTES, MOST_LISTED_BYTES};
use crate::{Full, Head};

impl<P: VerbsPort> VerbsStreams<P> {
    /// Counts a deferrable frame to a peer. `true`: it is to be [deferred](Self::defer).
    #[inline(always)]
    pub(super) fn defers(&mut self, to: u32) -> bool {
        let links = &mut self.links;
        let clock_ns = || links.rails.clock();
        links.bursts.count(to, links.schedule.polls(), clock_ns)
    }

    /// Whether nothing waits for the peer but an open packet.
    pub(super) fn is_deferring(&self, peer: u32) -> bool {
        let links = &self.links;
        links.bursts.is_deferring(peer, links.schedule.polls())
            && links.bursts.open(peer).is_some()
            && links
                .peers
                .get(peer)
                .is_some_and(|remote| remote.session.unsent() == 1 && !remote.has_waiting())
    }

    /// Puts a frame into the stream to a peer, and sends the stream's unsent packets if there are enough of them.
    #[inline(never)]
    pub(super) fn defer(&mut self, to: u32, head: Head, body: &[u8]) -> Result<(), Full> {
        let remote = self.links.peers.of(to);
        if remote.pair_for_sends().is_none() || remote.is_lost() {
            return self.post(to, head, body);
        }
        let is_listed = body.len() <= MOST_LISTED_BYTES
            && (self.extend_list(to, head, body) || self.begin_list(to, head, body));
        if !is_listed {
            self.put(to, head, body)?;
        }
        if self.links.peers.of(to).session.unsent() >= MOST_UNSENT || self.links.bursts.is_much(to)
        {
            self.flush_held(to);
        }
        self.links.peers.list_unsent(to);
        Ok(())
    }

    /// Adds a frame to the list at the end of the stream. `false`: there is no list, or it is full.
    #[inline(always)]
    fn extend_list(&mut self, to: u32, head: Head, body: &[u8]) -> bool {
        let links = &mut self.links;
        let Some(remote) = links.peers.get_mut(to) else {
            return false;
        };
        let Some(OpenPacket { number, bytes }) = links.bursts.open(to) else {
            return false;
        };
        let from = usize::from(bytes);
        let end = from + frame_list::listed_bytes(body.len());
        if end > MOST_SHARED_BYTES {
            return false;
        }
        let bytes = bytes_of(end);
        let Some(slot) = remote.session.extend(number, bytes.into()) else {
            return false;
        };
        links.bursts.set_open(to, OpenPacket { number, bytes });
        remote.packets = remote.packets.saturating_add(1);
        let place = links.sends.bytes_mut(slot, end);
        frame_list::write(&mut place[from..], head, body);
        links.counts.sends.add(1);
        true
    }

    /// Sends the unsent packets, and begins a list with this frame. `false`: there is no room for another packet, or
    /// slots are scarce.
    fn begin_list(&mut self, to: u32, head: Head, body: &[u8]) -> bool {
        self.flush_held(to);
        let links = &mut self.links;
        let Some(remote) = links.peers.get_mut(to) else {
            return false;
        };
        let unacknowledged = WINDOW - remote.session.room();
        if !links.bursts.may_open(unacknowledged) || !links.sends.may_open() {
            return false;
        }
        let Some(slot) = links.sends.take(&mut links.rails, MOST_SHARED_BYTES) else {
            return false;
        };
        let number = remote.session.next();
        let packet = StreamPacket {
            source: remote.source_number,
            number,
            ack: Ack::default(),
            parts: BEGINS | ENDS | SEVERAL,
            kind: 0,
            flags: 0,
            word: 0,
        };
        let end = HEADER_BYTES + frame_list::listed_bytes(body.len());
        let place = links.sends.bytes_mut(slot, end);
        if let Some((header, list)) = place.split_first_chunk_mut() {
            packet.write(header);
            frame_list::write(list, head, body);
        }
        let bytes = bytes_of(end);
        remote.session.keep(slot, bytes.into());
        links.bursts.set_open(to, OpenPacket { number, bytes });
        remote.packets = remote.packets.saturating_add(1);
        links.counts.sends.add(1);
        true
    }
}

fn bytes_of(packet: usize) -> u16 {
    #[allow(clippy::cast_possible_truncation, reason = "at most MOST_SHARED_BYTES")]
    let bytes = packet as u16;
    bytes
}

/// Number of unsent packets to a peer that are sent without waiting for a poll.
const MOST_UNSENT: u32 = 8;
/// Largest packet with several frames, in bytes.
const MOST_SHARED_BYTES: usize = HEADER_BYTES + MOST_LIST_BYTES;
