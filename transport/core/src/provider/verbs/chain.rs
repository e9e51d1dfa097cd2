// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that were held back and may go now: all of them with one ring of the device's bell. One that need not wait goes
//! alone (`send.rs`), and at once.

use super::ledger::Posted;
use super::pools::SendPool;
use super::port::{Body, Operation, Port, Request};
use super::send::stamp;
use super::session::{Due, Session, Via};
use super::{MOST_POSTED, Verbs, name};

impl<P: Port> Verbs<P> {
    /// Sends what waits in a peer's stream, as far as it goes now, in chains where there is a queue pair.
    pub(super) fn flush_held(&mut self, peer: u32) {
        while let Some(side) = self.sides.get(peer)
            && side.session.unsent() > 1
            && (side.immediates == 0 || side.is_ready())
            && let Some(index) = side.pair_for_sends()
            && self.send_chain(peer, index)
        {}
        self.flush(peer);
    }

    /// Sends some packets over a queue pair. `false`: there is no room for more.
    fn send_chain(&mut self, peer: u32, index: u32) -> bool {
        let (Some(side), Some(pair)) = (self.sides.get_mut(peer), self.pairs.get_mut(index)) else {
            return false;
        };
        let at = pair.line.at();
        let rail = &mut self.rails[at];
        let facts = rail.port.facts();
        let (depth, inline_bytes) = (facts.depth as usize, facts.inline_bytes as usize);
        let room = depth.saturating_sub(pair.ledger.len());
        let room = room.min(MOST_POSTED.saturating_sub(rail.posted));
        let mut due = [NOTHING; MOST_IN_CHAIN];
        let count = side
            .session
            .next_of_unsent(&mut due[..room.min(MOST_IN_CHAIN)]);
        if count < 2 {
            return false;
        }
        let due = &due[..count];
        stamp_all(&mut self.sends, &mut side.session, due);
        let is_scarce = self.sends.is_scarce();
        let signal_every = self.limits.signal_every;
        let mut unsignaled = pair.ledger.unsignaled();
        let mut requests = [EMPTY; MOST_IN_CHAIN];
        for (place, (request, one)) in requests.iter_mut().zip(due).enumerate() {
            let (posted, under_way) = (rail.posted + place, pair.ledger.len() + place);
            let scarce = is_scarce
                || posted >= MOST_POSTED / 2
                || under_way + signal_every as usize >= depth;
            let signaled = scarce || unsignaled + 1 >= signal_every;
            unsignaled = if signaled { 0 } else { unsignaled + 1 };
            let number = u32::try_from(place).unwrap_or(0);
            *request = Request {
                work: name(index, pair.ledger.next().wrapping_add(number)),
                operation: Operation::Send,
                body: self
                    .sends
                    .body(one.slot, at, one.bytes as usize, inline_bytes),
                signaled,
            };
        }
        let taken = rail.port.post(pair.end, &requests[..count]);
        let posted =
            requests.map(|request| (request.signaled, matches!(request.body, Body::Piece(_))));
        for (one, (signaled, is_read)) in due[..taken].iter().zip(posted) {
            let (number, read) = (one.number, is_read.then_some(one.slot));
            pair.ledger
                .push(Posted::Packet { peer, number, read }, signaled);
            if let Some(slot) = read {
                self.sends.posted(slot);
            }
            side.session.sent(number, Via::Pair { made: pair.made });
        }
        pair.used_at = self.schedule.polls();
        rail.posted += taken;
        self.counts.packets.add(taken as u64);
        taken == count
    }
}

/// Tells the peer with each packet what has come of it.
fn stamp_all(sends: &mut SendPool, session: &mut Session, due: &[Due]) {
    for one in due {
        if sends.is_still(one.slot) {
            stamp(sends, one.slot, session.tell());
        }
    }
}

const NOTHING: Due = Due {
    number: 0,
    slot: 0,
    bytes: 0,
};
const EMPTY: Request<'static> = Request {
    work: 0,
    operation: Operation::Send,
    body: Body::Inline(&[]),
    signaled: false,
};
/// So many at once: as many as a device is told in one list.
const MOST_IN_CHAIN: usize = 16;
