// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending over rails: this process's requests, and data that a peer has requested to read. A key is looked up whenever
//! some of its data are sent, so nothing of withdrawn memory is sent. If a packet is incomplete when its key is
//! withdrawn, the rail ends.

use std::io;

use super::links::TcpLinks;
use super::packet::{PIECE_BYTES, TcpPacketKind, TcpReadRequest, TcpWorkReply};
use super::peer::TcpPeer;
use super::rail::{MOST_SERVES, Sending, TcpRail};
use super::sockets::{Sock, Sockets};
use super::transfers::TcpTransfers;
use crate::WorkOutcome;

impl TcpTransfers {
    /// Queues a peer's read over a rail. `false`: a protocol violation.
    pub(super) fn handle_rail_read(&mut self, rail: &mut TcpRail, read: TcpReadRequest) -> bool {
        let is_piece = (1..=PIECE_BYTES as u64).contains(&read.bytes);
        if !is_piece || rail.serving() >= MOST_SERVES {
            return false;
        }
        self.serving += 1;
        rail.serves.push_back(read);
        true
    }

    /// Sends what is queued at a rail, as much as the socket takes.
    pub(super) fn push_rail<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32, sock: Sock) {
        match self.push_some(links, peer, sock) {
            Ok(()) => {}
            Err(_) => links.rail_broke(peer, sock),
        }
    }

    fn push_some<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        sock: Sock,
    ) -> io::Result<()> {
        let now_ns = links.now_ns;
        let TcpLinks { sides, sockets, .. } = links;
        let Some(TcpPeer { line, rails, .. }) = sides[peer as usize].as_deref_mut() else {
            return Ok(());
        };
        let Some(rail) = rails.find(sock) else {
            return Ok(());
        };
        while !rail.is_blocked {
            if rail.out.is_none() && rail.outgoing.is_empty() && !self.serve_next(peer, rail) {
                break;
            }
            let (sent, is_data) = match &rail.out {
                Some(out) => (self.send_data(sockets, peer, sock, out)?, true),
                None => {
                    let outgoing = &rail.outgoing[rail.sent..];
                    (sockets.send(sock, outgoing, None, false)?, false)
                }
            };
            rail.is_blocked = sent == 0;
            if sent != 0 {
                rail.moved_ns = rail.moved_ns.max(now_ns);
            }
            if is_data {
                if let Some(line) = line.as_mut().filter(|_| sent != 0) {
                    // A line counts as busy, and is not evicted for now, also while data move over the rails beside it.
                    line.moved_ns = now_ns;
                }
                let has_all = rail.out.as_mut().is_none_or(|out| out.has_sent(sent));
                if has_all {
                    rail.out = None;
                    self.serving -= 1;
                }
            } else {
                rail.sent += sent;
                if rail.sent == rail.outgoing.len() {
                    rail.outgoing.clear();
                    rail.sent = 0;
                }
            }
        }
        if rail.is_armed != rail.is_blocked {
            rail.is_armed = rail.is_blocked;
            sockets.want_to_send(sock, rail.is_blocked);
        }
        Ok(())
    }

    /// Starts the next read of the peer; `false`: there is none.
    fn serve_next(&mut self, peer: u32, rail: &mut TcpRail) -> bool {
        let Some(read) = rail.serves.pop_front() else {
            return false;
        };
        let found = self.exports.find(peer, read.key, read.offset, read.bytes);
        if found.is_some() {
            rail.out = Some(Sending::new(read));
        } else {
            self.serving -= 1;
            let (id, outcome, old) = (read.id, WorkOutcome::BadKey, 0);
            rail.enqueue(TcpPacketKind::Answer, |maker| {
                maker.answer(TcpWorkReply { id, outcome, old });
            });
        }
        true
    }

    /// Sends some of the data of a read; returns the number of bytes.
    fn send_data(
        &self,
        sockets: &mut impl Sockets,
        peer: u32,
        sock: Sock,
        out: &Sending,
    ) -> io::Result<usize> {
        let read = &out.read;
        let found = self.exports.find(peer, read.key, read.offset, read.bytes);
        let data = found.ok_or(io::ErrorKind::InvalidData)?;
        let head = out.head.get(out.at..).unwrap_or_default();
        let at = out.at.saturating_sub(out.head.len());
        sockets.send(sock, head, Some(data.from(at)), false)
    }
}

impl Sending {
    /// Counts `sent` more bytes; `true`: that was all.
    fn has_sent(&mut self, sent: usize) -> bool {
        self.at += sent;
        let all = self.head.len() as u64 + self.read.bytes;
        self.at as u64 == all
    }
}
