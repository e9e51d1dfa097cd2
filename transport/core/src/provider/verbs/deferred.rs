// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deferred frames: those of a program that starts many sends in a row, a *burst*, and waits for them later. The first
//! frames of a burst to a peer leave at once ([`FIRST_FRAMES`]). The next ones stay in the peer's stream, unsent; short
//! frames share a packet. They leave when there are enough of them, with the next frame that is not deferrable, or with
//! the next poll. This poll ends the burst. Polls between two sends of the burst neither send them nor end it.

use session::Ack;

use super::frame_list::{self, MOST_LISTED_BYTES, MOST_SHARED_BYTES};
use super::port::VerbsPort;
use super::streams::VerbsStreams;
use super::wire::{BEGINS, ENDS, HEADER_BYTES, SEVERAL, StreamPacket};
use crate::{Full, Head};

/// The deferrable frames of a burst of sends to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameBurst {
    /// Number of the burst, truncated.
    burst: u32,
    /// Number of frames; it saturates.
    frames: u16,
    /// Length of the packet to which further frames may be added, in bytes; 0: there is none.
    open_bytes: u16,
    /// Number of that packet.
    open: u32,
}

impl FrameBurst {
    /// Counts a frame of burst `burst`. `true`: it is to be deferred.
    #[inline(always)]
    fn count(&mut self, burst: u64) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "only compared")]
        let burst = burst as u32;
        if self.burst != burst {
            (self.burst, self.frames) = (burst, 0);
        }
        self.frames = self.frames.saturating_add(1);
        self.frames > FIRST_FRAMES
    }

    /// Whether frames of burst `burst` were to be deferred.
    fn is_deferring(&self, burst: u64) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "only compared")]
        let burst = burst as u32;
        self.burst == burst && self.frames > FIRST_FRAMES
    }

    /// Records that a packet was sent: no frame may be added to it any more.
    #[inline(always)]
    pub(super) fn sent(&mut self, number: u32) {
        if self.open == number {
            self.open_bytes = 0;
        }
    }
}

impl<P: VerbsPort> VerbsStreams<P> {
    /// Counts a deferrable frame to a peer. `true`: it is to be [deferred](Self::defer).
    #[inline(always)]
    pub(super) fn defers(&mut self, to: u32) -> bool {
        let burst = self.links.schedule.burst();
        let remote = self.links.peers.get_mut(to);
        remote.is_some_and(|remote| remote.burst.count(burst))
    }

    /// Whether nothing waits for the peer but frames that are deferred until there are more of them.
    pub(super) fn is_deferring(&self, peer: u32) -> bool {
        let burst = self.links.schedule.burst();
        let remote = self.links.peers.get(peer);
        remote.is_some_and(|remote| {
            remote.burst.is_deferring(burst)
                && remote.session.unsent() < MOST_UNSENT
                && !remote.has_waiting()
        })
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
            if self.links.peers.of(to).session.unsent() >= MOST_UNSENT {
                self.flush_held(to);
            }
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
        let from = usize::from(remote.burst.open_bytes);
        let end = from + frame_list::listed_bytes(body.len());
        if from == 0 || end > MOST_SHARED_BYTES {
            return false;
        }
        let bytes = bytes_of(end);
        let Some(slot) = remote.session.extend(remote.burst.open, bytes.into()) else {
            return false;
        };
        remote.burst.open_bytes = bytes;
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
        if remote.session.room() == 0 || links.sends.is_scarce() {
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
        (remote.burst.open, remote.burst.open_bytes) = (number, bytes);
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

/// Number of frames to a peer that are not deferred after a poll. A program that starts a few sends to each peer, and
/// then computes, expects them to arrive meanwhile.
const FIRST_FRAMES: u16 = 8;
/// Number of unsent packets to a peer that are sent without waiting for a poll.
const MOST_UNSENT: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_frames_of_each_burst_are_not_deferred() {
        let mut burst = FrameBurst::default();
        for number in [7, 1 << 32 | 8] {
            let deferred = (0..20).filter(|_| burst.count(number)).count();
            assert_eq!(deferred, 20 - usize::from(FIRST_FRAMES));
            assert!(burst.is_deferring(number) && !burst.is_deferring(number + 1));
        }
        (0..=u16::MAX).for_each(|_| _ = burst.count(9));
        assert!(burst.count(9), "the count saturates");
    }

    #[test]
    fn a_list_that_was_sent_is_not_extended() {
        let mut burst = FrameBurst {
            open: 5,
            open_bytes: 100,
            ..FrameBurst::default()
        };
        burst.sent(4);
        assert_eq!(burst.open_bytes, 100, "another packet");
        burst.sent(5);
        assert_eq!(burst.open_bytes, 0);
    }
}
