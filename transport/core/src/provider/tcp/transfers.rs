// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers of large data: works (one-sided operations) of this process, which peers carry out when they poll, and
//! works of peers, which this process carries out.
//!
//! Data are sent in pieces of half a MiB, straight from their memory. Few pieces are queued at a connection at a time,
//! so that frames need not wait for all data. At most [`MOST_UNANSWERED`] works wait for one peer's replies, so no
//! process has to queue more works of a peer than that, and there is always room for replies: a process never stops
//! receiving.

use std::collections::VecDeque;

use super::super::verbs::WorkKind;
use super::keys::Exports;
use super::links::TcpLinks;
use super::packet::{
    PIECE_BYTES, TcpAtomicRequest, TcpPacketBuilder, TcpPacketKind, TcpReadRequest, TcpWorkReply,
    TcpWriteRequest,
};
use super::sockets::Sockets;
use super::striping::Shares;
use super::unsolicited::Unsolicited;
use super::works::{PartConnection, TcpWork, TcpWorks};
use crate::{Completion, Lease, Peer, RemoteKey, WorkOutcome};

/// Data for a peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Serve {
    /// A read by the peer, whose first `at` bytes are in packets already.
    Read { read: TcpReadRequest, at: u64 },
    /// Data announced with this key.
    Unsolicited(RemoteKey),
}

/// The transfers that wait for one peer.
#[derive(Debug, Default)]
pub(super) struct PeerTransfers {
    /// Replies to works of the peer; they are sent before anything else.
    answers: VecDeque<TcpWorkReply>,
    pub(super) serves: VecDeque<Serve>,
    /// Reads by this process over several connections.
    pub(super) shares: Shares,
    /// `waiting`: works of this process that were not sent to the peer. `writing`: its writes whose data are not all in
    /// packets.
    waiting: VecDeque<u32>,
    writing: VecDeque<u32>,
    /// A write with an immediate whose data are not all in packets yet. Until all are, no frames may be posted.
    ordered: Option<u32>,
    /// `unanswered`: works of this process that the peer has not answered. `serving`: works of the peer that this
    /// process has not answered.
    pub(super) unanswered: u32,
    serving: u32,
    /// `unsolicited`: announcements to the peer whose data are queued in `serves`. `announced`: announcements by the
    /// peer whose data have not arrived.
    pub(super) unsolicited: u32,
    pub(super) announced: u32,
    /// `bare_announcements`: number of announcements to be sent without data, because the peer has declined some.
    /// `declines`: whether a DECLINED must be sent to the peer.
    pub(super) bare_announcements: u32,
    pub(super) declines: bool,
    /// Whether data of a write are next; else those of a read by the peer.
    writes_next: bool,
}

/// All transfers in progress, and the memory that peers may access.
#[derive(Debug, Default)]
pub(super) struct TcpTransfers {
    pub(super) works: TcpWorks,
    pub(super) exports: Exports,
    pub(super) unsolicited: Unsolicited,
    queues: Vec<Option<Box<PeerTransfers>>>,
    /// Number of works of all peers that this process has to answer, over all connections; queued unsolicited data
    /// count too.
    pub(super) serving: usize,
    /// Completions that were not delivered yet.
    pub(super) ready: VecDeque<Completion>,
}

impl TcpTransfers {
    pub(super) fn queue(&mut self, peer: u32) -> &mut PeerTransfers {
        let place = peer as usize;
        if place >= self.queues.len() {
            self.queues.resize_with(place + 1, || None);
        }
        self.queues[place].get_or_insert_default()
    }

    pub(super) fn find_queue(&self, peer: u32) -> Option<&PeerTransfers> {
        self.queues.get(peer as usize)?.as_deref()
    }

    /// Whether anything was ever queued for this peer.
    #[inline]
    pub(super) fn has_queue(&self, peer: u32) -> bool {
        self.find_queue(peer).is_some()
    }

    /// Whether frames to this peer must wait until the data of a write are in packets.
    #[inline]
    pub(super) fn is_ordered(&self, peer: u32) -> bool {
        self.find_queue(peer)
            .is_some_and(|queue| queue.ordered.is_some())
    }

    /// Starts a work.
    pub(super) fn begin<S: Sockets>(&mut self, links: &mut TcpLinks<S>, work: TcpWork) {
        let peer = work.peer;
        if links.of(peer).lost.is_some() {
            return self.hand_back(work, WorkOutcome::Unreachable);
        }
        let is_read = work.kind == WorkKind::Read;
        let id = self.works.add(work);
        if is_read && self.read_unsolicited(links, peer, id) {
            return;
        }
        self.queue(peer).waiting.push_back(id);
        self.go_on(links, peer);
    }

    /// Starts a write with an immediate, which keeps its order relative to frames. Gives the lease back if there is no
    /// room for the write now, or an earlier such write is not all in packets.
    pub(super) fn begin_in_order<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        work: TcpWork,
    ) -> Result<(), Lease> {
        let peer = work.peer;
        let side = links.of(peer);
        if side.lost.is_some() {
            self.hand_back(work, WorkOutcome::Unreachable);
            return Ok(());
        }
        let has_room = side.session.room() != 0;
        let queue = self.queue(peer);
        if !has_room || queue.ordered.is_some() || queue.unanswered >= MOST_UNANSWERED {
            return Err(work.lease);
        }
        links.of(peer).expect(work.is_large());
        let id = self.works.add(work);
        let queue = self.queue(peer);
        queue.ordered = Some(id);
        queue.unanswered += 1;
        self.go_on(links, peer);
        Ok(())
    }

    /// Puts queued transfers for a peer into packets, within the limits.
    pub(super) fn go_on<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32) {
        if self.find_queue(peer).is_none() {
            return;
        }
        self.put_into_packets(links, peer);
        self.deal(links, peer);
    }

    fn put_into_packets<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32) {
        while links.of(peer).lost.is_none() && links.of(peer).session.room() != 0 {
            let queue = self.queue(peer);
            if let Some(answer) = queue.answers.pop_front() {
                queue.serving -= 1;
                self.serving -= 1;
                let make = |bytes: &mut Vec<u8>| TcpPacketBuilder::new(bytes).answer(answer);
                let slot = links.store.keep(TcpPacketKind::Answer, make, None, None);
                links.post(peer, slot);
                continue;
            }
            if std::mem::take(&mut queue.declines) {
                let make = |bytes: &mut Vec<u8>| _ = TcpPacketBuilder::new(bytes);
                let slot = links.store.keep(TcpPacketKind::Declined, make, None, None);
                links.post(peer, slot);
                continue;
            }
            if let Some(id) = queue.ordered {
                if self.cut_write(links, peer, id) {
                    self.queue(peer).ordered = None;
                }
                continue;
            }
            let is_far_ahead = links.of(peer).session.unsent() >= MOST_UNSENT;
            if is_far_ahead || !(self.begin_next(links, peer) || self.cut_next(links, peer)) {
                break;
            }
        }
    }

    /// Starts the next work that waits for the peer. `false`: no work waits, or the peer has [`MOST_UNANSWERED`] works
    /// to answer.
    fn begin_next<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32) -> bool {
        let queue = self.queue(peer);
        if queue.unanswered >= MOST_UNANSWERED {
            return false;
        }
        let Some(id) = queue.waiting.pop_front() else {
            return false;
        };
        queue.unanswered += 1;
        let Some(work) = self.works.find(peer, id) else {
            return true;
        };
        links.of(peer).expect(work.is_large());
        if work.kind == WorkKind::Read {
            let bytes = work.bytes();
            links.want_rails(peer, bytes);
            if links.shares(peer, bytes) && work.fits_key() {
                // The read itself is not counted: each of its pieces is counted when it is requested.
                self.queue(peer).unanswered -= 1;
                self.share(peer, id);
                return true;
            }
        }
        work.has_begun = true;
        let (key, offset, bytes) = (work.key, work.offset, work.bytes());
        let slot = match work.kind {
            WorkKind::Write => {
                self.queue(peer).writing.push_back(id);
                return true;
            }
            WorkKind::Read => {
                let read = TcpReadRequest {
                    id,
                    offset,
                    bytes,
                    key,
                };
                let make = |place: &mut Vec<u8>| TcpPacketBuilder::new(place).read(&read);
                links.store.keep(TcpPacketKind::Read, make, None, None)
            }
            WorkKind::Atomic(atomic) => {
                let change = TcpAtomicRequest {
                    id,
                    atomic,
                    offset,
                    key,
                };
                let make = |place: &mut Vec<u8>| TcpPacketBuilder::new(place).atomic(&change);
                links.store.keep(TcpPacketKind::Atomic, make, None, None)
            }
        };
        links.post(peer, slot);
        true
    }

    /// Puts the next piece of data into a packet. Pieces of writes and of reads by the peer alternate; several writes
    /// take turns, and so do several reads. `false`: there are no data.
    fn cut_next<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32) -> bool {
        let queue = self.queue(peer);
        let writes = queue.writes_next && !queue.writing.is_empty() || queue.serves.is_empty();
        queue.writes_next = !writes;
        if !writes {
            return self.cut_serve(links, peer);
        }
        let Some(id) = queue.writing.pop_front() else {
            return false;
        };
        if !self.cut_write(links, peer, id) {
            self.queue(peer).writing.push_back(id);
        }
        true
    }

    /// Puts a piece of a write into a packet; `true`: it was the last piece.
    fn cut_write<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32, id: u32) -> bool {
        let Some(work) = self.works.find(peer, id) else {
            return true;
        };
        let bytes = work.bytes();
        let piece = PIECE_BYTES.min(usize::try_from(bytes - work.at).unwrap_or(PIECE_BYTES));
        let is_last = work.at + piece as u64 == bytes;
        let write = TcpWriteRequest {
            id,
            is_last,
            immediate: work.immediate.filter(|_| is_last),
            offset: work.offset,
            bytes,
            at: work.at,
            key: work.key,
        };
        let data = (piece != 0).then(|| work.stretch(work.at, piece));
        work.has_begun = true;
        work.at += piece as u64;
        if is_last {
            work.last = Some(links.of(peer).session.next());
        }
        let make = |place: &mut Vec<u8>| TcpPacketBuilder::new(place).write(&write);
        let slot = links.store.keep(TcpPacketKind::Write, make, data, None);
        links.post(peer, slot);
        is_last
    }

    /// Puts a piece of a read by the peer, or unsolicited data, into a packet. `false`: there are none.
    fn cut_serve<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32) -> bool {
        let (read, at) = match self.queue(peer).serves.pop_front() {
            Some(Serve::Read { read, at }) => (read, at),
            Some(Serve::Unsolicited(key)) => {
                self.cut_unsolicited(links, peer, key);
                return true;
            }
            None => return false,
        };
        let TcpReadRequest {
            id,
            offset,
            bytes,
            key,
        } = read;
        let piece = PIECE_BYTES.min(usize::try_from(bytes - at).unwrap_or(PIECE_BYTES));
        let found = offset
            .checked_add(at)
            .and_then(|from| self.exports.find(peer, key, from, piece as u64));
        let Some(data) = found else {
            let outcome = WorkOutcome::BadKey;
            self.queue(peer).answers.push_back(TcpWorkReply {
                id,
                outcome,
                old: 0,
            });
            return true;
        };
        let end = at + piece as u64;
        if at == 0 {
            links.want_rails(peer, bytes);
        }
        let queue = self.queue(peer);
        if end == bytes {
            queue.serving -= 1;
            self.serving -= 1;
        } else {
            queue.serves.push_back(Serve::Read { read, at: end });
        }
        let make = |place: &mut Vec<u8>| TcpPacketBuilder::new(place).data(id, at);
        let slot = links
            .store
            .keep(TcpPacketKind::Data, make, Some(data), Some(key.check));
        links.post(peer, slot);
        true
    }

    /// Withdraws a key: data of its memory that are still to be sent are copied.
    pub(super) fn withdraw<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
    ) {
        if self.exports.remove(peer, key) {
            links.store.withdraw(key.check);
        }
    }

    /// Whether any transfer is in progress.
    pub(super) fn is_any_under_way(&self) -> bool {
        self.serving != 0 || !self.works.is_empty()
    }

    /// Whether no transfer is in progress.
    pub(super) fn is_quiet(&self) -> bool {
        let is_quiet = |queue: &PeerTransfers| queue.ordered.is_none();
        !self.is_any_under_way() && self.queues.iter().flatten().all(|queue| is_quiet(queue))
    }

    fn hand_back(&mut self, work: TcpWork, outcome: WorkOutcome) {
        self.ready.push_back(Completion::Worked {
            work: work.name,
            outcome,
            lease: work.lease,
        });
    }

    /// Ends all transfers with a lost peer.
    pub(super) fn end_all_to<S: Sockets>(&mut self, links: &mut TcpLinks<S>, peer: u32) {
        for id in self.works.of(peer) {
            if let Some(work) = self.works.take(id) {
                self.hand_back(work, WorkOutcome::Unreachable);
            }
        }
        self.works.forget_parts_of(peer);
        self.forget_unsolicited_of(peer);
        let queue = self.queues.get_mut(peer as usize).and_then(Option::take);
        let serving = |queue: Box<PeerTransfers>| (queue.serving + queue.unsolicited) as usize;
        self.serving -= queue.map_or(0, serving);
        let side = links.of(peer);
        (side.expects, side.expects_data) = (0, 0);
        let peer = Peer(peer);
        self.ready.push_back(Completion::Lost { peer });
    }

    /// Completes a work.
    pub(super) fn end<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        id: u32,
        outcome: WorkOutcome,
    ) {
        let Some(work) = self.works.take(id) else {
            return;
        };
        // A read that got unsolicited data has not begun: it needed no request.
        if work.has_begun {
            let queue = self.queue(work.peer);
            queue.unanswered -= u32::from(work.shared.is_none() && queue.unanswered != 0);
            links.of(work.peer).expect_no_more(work.is_large());
        }
        self.hand_back(work, outcome);
    }
}

/// Processing of peers' packets. `false`: a protocol violation.
impl TcpTransfers {
    /// Queues a read by the peer.
    pub(super) fn handle_read(&mut self, peer: u32, read: TcpReadRequest) -> bool {
        let is_good = self
            .exports
            .find(peer, read.key, read.offset, read.bytes)
            .is_some();
        self.serving += 1;
        let queue = self.queue(peer);
        queue.serving += 1;
        if is_good && read.bytes != 0 {
            queue.serves.push_back(Serve::Read { read, at: 0 });
        } else {
            let outcome = if is_good {
                WorkOutcome::Done
            } else {
                WorkOutcome::BadKey
            };
            let id = read.id;
            queue.answers.push_back(TcpWorkReply {
                id,
                outcome,
                old: 0,
            });
        }
        queue.serving <= MOST_UNANSWERED
    }

    /// Carries out an atomic operation of the peer.
    pub(super) fn handle_change(&mut self, peer: u32, change: TcpAtomicRequest) -> bool {
        let word = self.exports.find(peer, change.key, change.offset, 8);
        let old = word.and_then(|word| word.change(change.atomic));
        let outcome = if old.is_some() {
            WorkOutcome::Done
        } else {
            WorkOutcome::BadKey
        };
        self.answer(peer, change.id, outcome, old.unwrap_or(0))
    }

    /// Queues the reply to a write, whose last piece has arrived, or to an atomic operation.
    pub(super) fn answer(&mut self, peer: u32, id: u32, outcome: WorkOutcome, old: u64) -> bool {
        self.serving += 1;
        let queue = self.queue(peer);
        queue.serving += 1;
        queue.answers.push_back(TcpWorkReply { id, outcome, old });
        queue.serving <= MOST_UNANSWERED
    }

    /// Whether `bytes` bytes at `at` are the next data that this process expects for its read or part `id`.
    pub(super) fn expects_data(&mut self, peer: u32, id: u32, at: u64, bytes: usize) -> bool {
        let end = at.checked_add(bytes as u64);
        if let Some(part) = self.works.find_part(peer, id) {
            let is_it = part.over == PartConnection::First && part.at == at;
            return is_it && bytes != 0 && end.is_some_and(|end| end <= part.bytes);
        }
        let fits = |work: &mut TcpWork| {
            let is_read = work.kind == WorkKind::Read && work.has_begun;
            let is_whole = work.shared.is_none();
            is_read && is_whole && work.at == at && end.is_some_and(|end| end <= work.bytes())
        };
        bytes != 0 && self.works.find(peer, id).is_some_and(fits)
    }

    /// Handles that `bytes` more bytes of a read or of a part have arrived.
    pub(super) fn handle_data<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        id: u32,
        bytes: usize,
    ) {
        if self.works.find_part(peer, id).is_some() {
            return self.handle_part(links, peer, id, bytes as u64);
        }
        let Some(work) = self.works.find(peer, id) else {
            return;
        };
        work.at += bytes as u64;
        links.counts.moved_bytes.add(bytes as u64);
        if work.at == work.bytes() {
            self.end(links, id, WorkOutcome::Done);
        }
    }

    /// Processes the peer's reply to a work of this process.
    pub(super) fn handle_answer<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        answer: TcpWorkReply,
    ) -> bool {
        let is_done = answer.outcome == WorkOutcome::Done;
        if let Some(part) = self.works.find_part(peer, answer.id) {
            // A part of which data have arrived cannot fail any more.
            let may_be = part.over == PartConnection::First && part.at == 0 && !is_done;
            if may_be {
                self.part_is_bad(links, peer, answer.id);
            }
            return may_be;
        }
        let Some(work) = self
            .works
            .find(peer, answer.id)
            .filter(|work| work.has_begun && work.shared.is_none())
        else {
            return false;
        };
        let may_be = match work.kind {
            WorkKind::Read => !is_done || work.bytes() == 0,
            // A reply that comes before the last packet is acknowledged is invalid: packets still use the write's
            // memory.
            WorkKind::Write => {
                let session = &links.of(peer).session;
                work.last
                    .is_some_and(|last| !session.is_unacknowledged(last))
            }
            WorkKind::Atomic(_) => true,
        };
        if !may_be {
            return false;
        }
        if let WorkKind::Atomic(_) = work.kind
            && is_done
        {
            work.stretch(0, 8).fill(&answer.old.to_ne_bytes());
        }
        if work.kind == WorkKind::Write && is_done {
            let bytes = work.bytes();
            links.counts.moved_bytes.add(bytes);
        }
        self.end(links, answer.id, answer.outcome);
        true
    }
}

/// Maximum number of works of one process that a peer has not answered.
pub(super) const MOST_UNANSWERED: u32 = 32;
/// If a connection has this many unsent packets, no more data are put into packets.
pub(super) const MOST_UNSENT: u32 = 2;

#[cfg(test)]
impl TcpTransfers {
    /// Number of works for a peer that have not started.
    pub(super) fn waiting(&mut self, peer: u32) -> usize {
        self.queue(peer).waiting.len()
    }
}
