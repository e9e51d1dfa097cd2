// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large reads over several connections in parallel: a read is cut into pieces, and each piece is requested over the
//! connection on which it would be complete soonest. Pieces requested over a rail that ended are requested again, over
//! the line. A read ends when all its pieces have arrived; its lease is kept as long as a piece may arrive.

use std::collections::VecDeque;

use super::links::{TcpLinkEvent, TcpLinks};
use super::packet::{PIECE_BYTES, TcpPacketBuilder, TcpPacketKind, TcpReadRequest};
use super::peer::TcpDataTarget;
use super::sockets::{Sock, Sockets};
use super::transfers::{MOST_UNANSWERED, MOST_UNSENT, TcpTransfers};
use super::works::{PartConnection, StripedReadPart};
use crate::WorkOutcome;

/// Reads from one peer that are not completely requested.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The reads in their order: for each, its id and the offset up to which it was requested.
    all: VecDeque<(u32, u64)>,
    /// Bytes of these reads that are not requested yet.
    left: u64,
    /// Pieces that were requested over rails that ended.
    again: Vec<ReadPiece>,
}

/// A piece of a striped read.
#[derive(Clone, Copy, Debug)]
struct ReadPiece {
    work: u32,
    from: u64,
    bytes: u64,
}

impl TcpTransfers {
    /// Adds a read that is to go over several connections.
    pub(super) fn share(&mut self, peer: u32, id: u32) {
        let Some(work) = self.works.find(peer, id) else {
            return;
        };
        work.has_begun = true;
        work.shared.get_or_insert_default();
        let bytes = work.bytes();
        let shares = &mut self.queue(peer).shares;
        shares.all.push_back((id, 0));
        shares.left += bytes;
    }

    /// Requests pieces, as long as a connection has room for a request.
    pub(super) fn deal<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32) {
        while links.of(peer).lost.is_none() {
            let session = &links.of(peer).session;
            let has_room = session.room() != 0 && session.unsent() < MOST_UNSENT;
            let queue = self.queue(peer);
            let is_open = has_room && queue.unanswered < MOST_UNANSWERED;
            if is_open && let Some(piece) = queue.shares.again.pop() {
                self.request_over_first(links, peer, piece);
                continue;
            }
            let connections = 1 + links.of(peer).rails.all.len();
            let Some(piece) = self.next_piece(peer, connections as u64) else {
                return;
            };
            let left = self.queue(peer).shares.left;
            let here = self.here_over_first(links, peer);
            let rails = &mut links.of(peer).rails;
            let chosen = rails.choose(piece.bytes, left, is_open.then_some(here));
            let Some(index) = chosen else {
                return;
            };
            let shares = &mut self.queue(peer).shares;
            shares.left -= piece.bytes;
            if let Some((_, next)) = shares.all.front_mut() {
                *next += piece.bytes;
            }
            match index.checked_sub(1) {
                None => self.request_over_first(links, peer, piece),
                Some(rail) => {
                    let sock = links.of(peer).rails.all[rail].sock;
                    self.request_over_rail(links, peer, sock, piece);
                }
            }
        }
    }

    /// Number of arrived bytes of the part that is being received over the line; 0 if none is being received.
    fn here_over_first<S: Sockets>(&mut self, links: &TcpLinks<S>, peer: u32) -> u64 {
        let line = links.find(peer).and_then(|side| side.line.as_ref());
        let Some(inflow) = line.and_then(|line| line.inflow) else {
            return 0;
        };
        match inflow.target {
            TcpDataTarget::Read { id, .. } if self.works.find_part(peer, id).is_some() => {
                inflow.at as u64
            }
            _ => 0,
        }
    }

    /// The next piece to be requested. `connections`: number of connections, by which the size of the pieces is chosen.
    fn next_piece(&mut self, peer: u32, connections: u64) -> Option<ReadPiece> {
        loop {
            let (work, from) = *self.queue(peer).shares.all.front()?;
            let all = self.works.find(peer, work).map_or(0, |work| work.bytes());
            let left = all.saturating_sub(from);
            if left != 0 {
                // A small read is divided so that each connection gets a part of it, too.
                let share = all.div_ceil(connections).next_multiple_of(GRAIN_BYTES);
                let bytes = left.min(share).min(PIECE_BYTES as u64);
                return Some(ReadPiece { work, from, bytes });
            }
            self.queue(peer).shares.all.pop_front();
        }
    }

    /// Drops all pieces of a read that are still to be requested.
    fn forget_rest(&mut self, peer: u32, id: u32) {
        let bytes = self.works.find(peer, id).map_or(0, |work| work.bytes());
        let shares = &mut self.queue(peer).shares;
        shares.again.retain(|piece| piece.work != id);
        if let Some(at) = shares.all.iter().position(|(work, _)| *work == id)
            && let Some((_, from)) = shares.all.remove(at)
        {
            shares.left -= bytes - from;
        }
    }

    /// Makes a request for a piece.
    fn request(
        &mut self,
        peer: u32,
        piece: ReadPiece,
        over: PartConnection,
        now_ns: u64,
    ) -> Option<TcpReadRequest> {
        let ReadPiece { work, from, bytes } = piece;
        let id = self.works.add_part(StripedReadPart {
            peer,
            work,
            from,
            bytes,
            at: 0,
            over,
            requested_ns: now_ns,
        });
        let work = self.works.find(peer, work)?;
        work.shared.get_or_insert_default().parts += 1;
        Some(TcpReadRequest {
            id,
            offset: work.offset.wrapping_add(from),
            bytes,
            key: work.key,
        })
    }

    /// Requests a piece over the line.
    fn request_over_first<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        piece: ReadPiece,
    ) {
        let now_ns = links.sockets.clock_ns();
        let Some(read) = self.request(peer, piece, PartConnection::First, now_ns) else {
            return;
        };
        self.queue(peer).unanswered += 1;
        links.of(peer).rails.first.request(piece.bytes);
        let make = |place: &mut Vec<u8>| TcpPacketBuilder::new(place).read(&read);
        let slot = links.store.keep(TcpPacketKind::Read, make, None, None);
        links.post(peer, slot);
    }

    /// Requests a piece over a rail.
    fn request_over_rail<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        sock: Sock,
        piece: ReadPiece,
    ) {
        let now_ns = links.sockets.clock_ns();
        let Some(made) = links.rail(peer, sock).map(|rail| rail.made) else {
            return;
        };
        let Some(read) = self.request(peer, piece, PartConnection::Rail(made), now_ns) else {
            return;
        };
        let shared = self.works.find(peer, piece.work);
        let shared = shared.and_then(|work| work.shared.as_mut());
        if shared.is_some_and(|shared| !std::mem::replace(&mut shared.is_striped, true)) {
            links.counts.striped.add(1);
        }
        links.watch(peer, sock);
        // Sending is left to this event, so requests made together leave together.
        links.upshots.push_back(TcpLinkEvent::Push(peer, sock));
        if let Some(rail) = links.rail(peer, sock) {
            if rail.load.is_idle() {
                // Until now, no data were expected over the rail, so the time in which data must move starts now.
                (rail.moved_ns, rail.doubted_ns) = (now_ns, None);
            }
            rail.load.request(piece.bytes);
            rail.enqueue(TcpPacketKind::Read, |maker| maker.read(&read));
        }
    }

    /// Handles that a rail has ended: its pieces are requested again.
    pub(super) fn request_again<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        made: u32,
    ) {
        for part in self.works.take_parts_over(peer, made) {
            let StripedReadPart {
                work, from, bytes, ..
            } = part;
            let shared = self.works.find(peer, work);
            let Some(shared) = shared.and_then(|work| work.shared.as_mut()) else {
                continue;
            };
            shared.parts -= 1;
            if shared.is_bad {
                self.end_if_bad(links, peer, work);
            } else {
                let piece = ReadPiece { work, from, bytes };
                self.queue(peer).shares.again.push(piece);
            }
        }
    }

    /// Handles that `bytes` more bytes of a part have arrived.
    pub(super) fn handle_part<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        id: u32,
        bytes: u64,
    ) {
        let Some(part) = self.works.find_part(peer, id) else {
            return;
        };
        part.at += bytes;
        if part.at < part.bytes {
            return;
        }
        let now_ns = links.sockets.clock_ns();
        let Some(part) = self.end_part(links, id, now_ns) else {
            return;
        };
        links.counts.moved_bytes.add(part.bytes);
        let Some(work) = self.works.find(peer, part.work) else {
            return;
        };
        work.at += part.bytes;
        if work.at == work.bytes() {
            self.end(links, part.work, WorkOutcome::Done);
        } else {
            self.end_if_bad(links, peer, part.work);
        }
    }

    /// Handles that a part cannot be read: the rest of the read is not requested any more, and the read ends when no
    /// part is in flight.
    pub(super) fn part_is_bad<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32, id: u32) {
        let now_ns = links.sockets.clock_ns();
        let Some(part) = self.end_part(links, id, now_ns) else {
            return;
        };
        let work = self.works.find(peer, part.work);
        if let Some(shared) = work.and_then(|work| work.shared.as_mut()) {
            shared.is_bad = true;
        }
        self.forget_rest(peer, part.work);
        self.end_if_bad(links, peer, part.work);
    }

    fn end_if_bad<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32, id: u32) {
        let work = self.works.find(peer, id);
        let shared = work.and_then(|work| work.shared.as_ref());
        if shared.is_some_and(|shared| shared.is_bad && shared.parts == 0) {
            self.end(links, id, WorkOutcome::BadKey);
        }
    }

    /// Removes a part of which no more data will arrive.
    fn end_part<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        id: u32,
        now_ns: u64,
    ) -> Option<StripedReadPart> {
        let part = self.works.take_part(id)?;
        let peer = part.peer;
        let work = self.works.find(peer, part.work);
        if let Some(shared) = work.and_then(|work| work.shared.as_mut()) {
            shared.parts -= 1;
        }
        let rails = &mut links.of(peer).rails;
        match part.over {
            PartConnection::First => {
                rails.first.come(part.bytes, part.requested_ns, now_ns);
                let queue = self.queue(peer);
                queue.unanswered = queue.unanswered.saturating_sub(1);
            }
            PartConnection::Rail(made) => {
                rails.failures = 0;
                let rail = rails.all.iter_mut().find(|rail| rail.made == made);
                if let Some(rail) = rail {
                    rail.load.come(part.bytes, part.requested_ns, now_ns);
                }
            }
        }
        Some(part)
    }
}

/// Pieces begin at multiples of this.
const GRAIN_BYTES: u64 = 4096;
