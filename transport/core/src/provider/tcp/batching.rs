// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that may be deferred and leave with others. Sending a packet by itself costs some microseconds in the
//! kernel, and no process waits for a packet that only announces data which this process moves in a later turn. Short
//! frames of a burst of sends (`frame_burst.rs`) share a packet.

use session::{Slot, WINDOW};

use super::links::TcpLinks;
use super::packet::{TcpPacketBuilder, TcpPacketKind};
use super::sockets::Sockets;
use crate::Head;
use crate::provider::frame_burst::OpenPacket;
use crate::provider::frame_list::{self, MOST_LIST_BYTES, MOST_LISTED_BYTES};

impl<S: Sockets> TcpLinks<S> {
    /// As [`post`](Self::post), but the packet may leave with the next packet to this peer, or in the next turn. The
    /// first packet to a peer in a turn leaves immediately: this process may be waiting for the reply.
    pub(super) fn post_deferrable(&mut self, peer: u32, slot: Slot) {
        let turn = self.turn;
        let side = self.of(peer);
        let is_first = side.posted != turn;
        let can_be_held = side.line.is_some() && !self.is_corked();
        self.keep(peer, slot);
        if is_first || !can_be_held {
            return self.flush(peer);
        }
        if let Err(error) = self.send_some(peer, true) {
            return self.broke(peer, &error);
        }
        if !self.held.contains(&peer) {
            self.held.push(peer);
        }
    }

    /// Counts a deferrable frame to a peer. `true`: it is to be [deferred](Self::defer), if possible.
    #[inline]
    pub(super) fn defers(&mut self, to: u32) -> bool {
        let clock_ns = || self.sockets.clock_ns();
        self.bursts.count(to, self.turn, clock_ns)
    }

    /// Adds a short frame to the list of frames at the end of the stream to a peer, or begins such a list. `false`:
    /// nothing was done; there is no connection, or no room.
    pub(super) fn defer(&mut self, to: u32, head: Head, body: &[u8]) -> bool {
        if body.len() > MOST_LISTED_BYTES || self.is_corked() || !self.has_line(to) {
            return false;
        }
        if !self.extend_list(to, head, body) && !self.begin_list(to, head, body) {
            return false;
        }
        self.counts.sends.add(1);
        if self.bursts.is_much(to) {
            self.flush(to);
        }
        if !std::mem::replace(&mut self.of(to).is_deferring, true) {
            self.deferring.push(to);
        }
        true
    }

    fn extend_list(&mut self, to: u32, head: Head, body: &[u8]) -> bool {
        let Some(side) = self.sides[to as usize].as_deref_mut() else {
            return false;
        };
        let Some(OpenPacket { number, bytes }) = self.bursts.open(to) else {
            return false;
        };
        let end = usize::from(bytes) + frame_list::listed_bytes(body.len());
        if end > MOST_LIST_BYTES {
            return false;
        }
        let bytes = u16::try_from(end).unwrap_or(u16::MAX);
        let Some(slot) = side.session.extend(number, bytes.into()) else {
            return false;
        };
        self.bursts.set_open(to, OpenPacket { number, bytes });
        let append = |list: &mut Vec<u8>| frame_list::append(list, head, body);
        self.store.extend(slot, append);
        true
    }

    /// Sends the unsent packets, and begins a list with this frame.
    fn begin_list(&mut self, to: u32, head: Head, body: &[u8]) -> bool {
        self.flush(to);
        let side = self.of(to);
        let (room, number) = (side.session.room(), side.session.next());
        let may_open = side.lost.is_none() && room != 0;
        if !may_open || !self.bursts.may_open(WINDOW - room) {
            return false;
        }
        let make = |bytes: &mut Vec<u8>| TcpPacketBuilder::new(bytes).frame_of_list(head, body);
        let slot = self.store.keep(TcpPacketKind::Frames, make, None, None);
        self.keep(to, slot);
        let bytes = u16::try_from(frame_list::listed_bytes(body.len())).unwrap_or(u16::MAX);
        self.bursts.set_open(to, OpenPacket { number, bytes });
        true
    }

    /// Whether frames to some peer are deferred.
    #[inline]
    pub(super) fn is_any_deferring(&self) -> bool {
        !self.deferring.is_empty()
    }

    /// Sends the deferred frames.
    pub(super) fn send_deferred(&mut self) {
        while let Some(peer) = self.deferring.pop() {
            self.of(peer).is_deferring = false;
            self.flush(peer);
        }
    }

    /// Makes the system send the bytes that it holds back until more follow.
    pub(super) fn push_held(&mut self) {
        while let Some(peer) = self.held.pop() {
            let line = self.find_mut(peer).and_then(|side| side.line.as_mut());
            if let Some(line) = line.filter(|line| line.is_held) {
                line.is_held = false;
                let sock = line.sock;
                self.sockets.push(sock);
            }
        }
    }
}
