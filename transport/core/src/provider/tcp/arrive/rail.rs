// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving over rails: requests for data of this process, and data that it has requested over the rail. Any other
//! packet ends the rail. After several such violations the peer is lost; violations on the peer's line count too.

use std::io;

use super::super::packet::{
    HEADER_BYTES, TcpPacketHeader, TcpPacketKind, TcpReadRequest, TcpWorkReply,
};
use super::super::proof::{u32_at, u64_at};
use super::super::rail::RailInflow;
use super::super::sockets::{Sock, Sockets};
use super::super::works::PartConnection;
use super::{BEHIND_BYTES, MOST_VIOLATIONS, TcpRecvBuffer, TcpRecvStep};
use crate::WorkOutcome;
use crate::provider::tcp::Tcp;
use crate::provider::tcp::links::TcpLinkEvent;

impl<S: Sockets> Tcp<S> {
    /// Polls the rails on which something is expected. `true`: something has arrived.
    pub(in crate::provider::tcp) fn take_of_rails(&mut self) -> bool {
        let mut has_come = false;
        // A rail that ends meanwhile is removed from the list. The loop runs backwards, so it skips no other rail then.
        for index in (0..self.links.moving.len()).rev() {
            if let Some(one) = self.links.moving.get(index).copied() {
                has_come |= self.take_rail(one.peer, one.sock);
            }
        }
        for one in &mut self.links.moving {
            one.idle += 1;
        }
        self.links.moving.retain(|one| one.idle < IDLE);
        has_come
    }

    /// Receives and processes bytes from a rail, up to a limit for one turn. `true`: some were received, or the rail
    /// broke.
    pub(in crate::provider::tcp) fn take_rail(&mut self, peer: u32, sock: Sock) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(rail) = self.links.rail(peer, sock) else {
            self.buffer = buffer;
            return false;
        };
        buffer.start(&mut rail.rest);
        let took = self.take_some_of_rail(peer, sock, &mut buffer);
        if let Some(rail) = self.links.rail(peer, sock) {
            rail.rest.extend_from_slice(buffer.waiting());
        }
        self.buffer = buffer;
        let has_come = match took {
            Ok(bytes) => bytes != 0,
            Err(_) => {
                self.links.rail_broke(peer, sock);
                true
            }
        };
        if has_come {
            if self.links.rail(peer, sock).is_some() {
                self.links.watch(peer, sock);
                self.links.upshots.push_back(TcpLinkEvent::Push(peer, sock));
                // Makes rails that are missing because they ended or were not made yet.
                self.links.want_rails(peer, u64::MAX);
            }
            self.links.upshots.push_back(TcpLinkEvent::GoOn(peer));
            self.settle();
        }
        has_come
    }

    /// Consumes the waiting bytes of a rail and receives more, up to a limit for one turn; returns the number of bytes
    /// received.
    fn take_some_of_rail(
        &mut self,
        peer: u32,
        sock: Sock,
        buffer: &mut TcpRecvBuffer,
    ) -> io::Result<usize> {
        let (bytes, last) = self.take_while_some(
            buffer,
            |tcp, buffer| tcp.step_rail(peer, sock, buffer),
            |tcp, buffer| tcp.receive_of_rail(peer, sock, buffer),
        )?;
        if let TcpRecvStep::Violation(what) = last {
            self.refuse_rail(peer, sock, what);
        }
        Ok(bytes)
    }

    /// Receives more; returns the number of bytes received, and the number for which there was room.
    fn receive_of_rail(
        &mut self,
        peer: u32,
        sock: Sock,
        buffer: &mut TcpRecvBuffer,
    ) -> io::Result<(usize, usize)> {
        let Some(rail) = self.links.rail(peer, sock) else {
            return Ok((0, 0));
        };
        let inflow = rail.inflow;
        let memory = inflow.and_then(|inflow| {
            let whole = self.moves.works.place(peer, inflow.id, 0, inflow.bytes)?;
            Some(whole.from(inflow.at))
        });
        let at_target = memory.map_or(0, |memory| memory.bytes());
        let place = buffer.place();
        let behind = match memory {
            Some(_) => BEHIND_BYTES,
            None => place.len(),
        };
        let sockets = &mut self.links.sockets;
        let got = sockets.receive(sock, memory, &mut place[..behind])?;
        buffer.to += got.saturating_sub(at_target);
        if got != 0 {
            self.has_moved(peer, sock, got.min(at_target));
        }
        Ok((got, at_target + behind))
    }

    /// Records progress on a rail: `data` bytes have arrived at their target.
    fn has_moved(&mut self, peer: u32, sock: Sock, data: usize) {
        let now_ns = self.links.now_ns;
        let Some(side) = self.links.find_mut(peer) else {
            return;
        };
        if let Some(line) = &mut side.line {
            // A line counts as busy, and is not evicted for now, also while data move over the rails beside it.
            line.moved_ns = now_ns;
        }
        if let Some(rail) = side.rails.find(sock) {
            (rail.moved_ns, rail.doubted_ns) = (rail.moved_ns.max(now_ns), None);
            if let Some(inflow) = &mut rail.inflow {
                inflow.at += data;
            }
        }
    }

    /// Handles the next packet, or the next data of a packet, in the waiting bytes.
    fn step_rail(&mut self, peer: u32, sock: Sock, buffer: &mut TcpRecvBuffer) -> TcpRecvStep {
        let Some(rail) = self.links.rail(peer, sock) else {
            return TcpRecvStep::Lacks;
        };
        if let Some(inflow) = rail.inflow {
            return self.step_rail_inflow(peer, sock, inflow, buffer);
        }
        let Some(header) = buffer.waiting().first_chunk::<HEADER_BYTES>() else {
            return TcpRecvStep::Lacks;
        };
        let Some(header) = TcpPacketHeader::of(header).filter(|header| header.number == 0) else {
            return TcpRecvStep::Violation("no packet of a rail begins like that");
        };
        let end = HEADER_BYTES + header.wanted();
        if buffer.len() < end {
            return TcpRecvStep::Lacks;
        }
        buffer.from += end;
        let bytes = &buffer.bytes[buffer.from - header.wanted()..buffer.from];
        let made = rail.made;
        let is_good = match header.kind {
            TcpPacketKind::Read => self.moves.handle_rail_read(rail, TcpReadRequest::of(bytes)),
            TcpPacketKind::Data => {
                let (id, at) = (u32_at(bytes, 0), u64_at(bytes, 8));
                let bytes = header.bytes - header.wanted();
                let is_expected = self.moves.expects_of_rail(peer, (id, made), at, bytes);
                rail.inflow = is_expected.then_some(RailInflow { id, at: 0, bytes });
                is_expected
            }
            TcpPacketKind::Answer => TcpWorkReply::of(bytes).is_some_and(|answer| {
                let is_expected = self.moves.has_probed_rail(peer, answer.id, made);
                let is_bad = is_expected && answer.outcome == WorkOutcome::BadKey;
                if is_bad {
                    self.moves.part_is_bad(&mut self.links, peer, answer.id);
                }
                is_bad
            }),
            _ => false,
        };
        if is_good {
            TcpRecvStep::Taken
        } else {
            TcpRecvStep::Violation("over a rail it sends what was not requested")
        }
    }

    /// Handles the next data of a packet. When all of its data have arrived, also handles the arrival of the requested
    /// part.
    fn step_rail_inflow(
        &mut self,
        peer: u32,
        sock: Sock,
        mut inflow: RailInflow,
        buffer: &mut TcpRecvBuffer,
    ) -> TcpRecvStep {
        let here = buffer.len().min(inflow.bytes - inflow.at);
        if here != 0 {
            let whole = self.moves.works.place(peer, inflow.id, 0, inflow.bytes);
            if let Some(whole) = whole {
                whole.from(inflow.at).fill(&buffer.waiting()[..here]);
            }
            buffer.from += here;
            inflow.at += here;
        }
        let is_all = inflow.at == inflow.bytes;
        if let Some(rail) = self.links.rail(peer, sock) {
            rail.inflow = (!is_all).then_some(inflow);
        }
        if !is_all {
            return TcpRecvStep::Lacks;
        }
        let (links, bytes) = (&mut self.links, inflow.bytes as u64);
        self.moves.handle_part(links, peer, inflow.id, bytes);
        TcpRecvStep::Taken
    }

    /// Ends a rail over which a peer has violated the protocol; after several violations, the peer is lost.
    fn refuse_rail(&mut self, peer: u32, sock: Sock, what: &str) {
        self.links.rail_broke(peer, sock);
        self.links.counts.refused.add(1);
        let side = self.links.of(peer);
        side.violations += 1;
        let message = format!("what rank {peer} sends over tcp makes no sense: {what}");
        match side.violations {
            1 => self.links.notices.complain(message),
            MOST_VIOLATIONS.. => self.links.lose(peer, &message),
            _ => {}
        }
    }
}

/// Checks of arriving packets against the parts that were requested over rails.
impl super::super::transfers::TcpTransfers {
    fn has_probed_rail(&mut self, peer: u32, id: u32, made: u32) -> bool {
        let part = self.works.find_part(peer, id);
        part.is_some_and(|part| part.over == PartConnection::Rail(made))
    }

    /// Whether these data are a part requested over this rail, in full length.
    fn expects_of_rail(
        &mut self,
        peer: u32,
        (id, made): (u32, u32),
        at: u64,
        bytes: usize,
    ) -> bool {
        let whole = self.works.find_part(peer, id).map(|part| part.bytes);
        at == 0 && whole == Some(bytes as u64) && self.has_probed_rail(peer, id, made)
    }
}

/// After this many polls without an arrival a rail is polled only when it has an event.
const IDLE: u32 = 256;
