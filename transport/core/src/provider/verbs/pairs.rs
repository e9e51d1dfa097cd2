// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes reliable queue pairs, gives them up, breaks them and makes them again. [`Connection`](session::Connection) is
//! the state machine; this file carries out its decisions, and exchanges notes with peers: messages outside the
//! streams, mostly as datagrams.
//!
//! - P1: a queue pair is destroyed only after every work request posted to it has come back, and some later polls have
//!   drained the receive completions: then no slot, buffer or lease belongs to the device.
//! - P2: until a broken queue pair is destroyed, no other queue pair to the same peer is used. Reposted requests keep
//!   their old order: reads and writes first, packets behind them.

use std::mem;

use session::{Ack, CarrierState, ConnectAction, ConnectTimeout};

use super::MOST_POSTED;
use super::address::PortAddress;
use super::error_text::{self, PairEnds};
use super::links::VerbsLinks;
use super::pair::ReliablePair;
use super::peer::VerbsPeer;
use super::port::{CallError, PortCompletion, VerbsPort, WorkStatus};
use super::posted::PostedRequest;
use super::rail::PeerPath;
use super::wire::{self, LinkMessage, NOTE_BYTES, PairEnd};

impl<P: VerbsPort> VerbsLinks<P> {
    /// Requests a queue pair for a path, if one may be made now.
    #[cold]
    pub(super) fn request_pair(&mut self, path: PeerPath) {
        if self.destination_of(path).is_none() {
            return;
        }
        let now_ns = self.schedule.now_ns;
        let waits = self.peers.of(path.peer).waits_for_last;
        let Some(link) = self.peers.link(path) else {
            return;
        };
        if waits || !link.connection.may_connect(now_ns) {
            return;
        }
        if link.connection.is_unreachable() {
            link.connection.set_unreachable(now_ns);
            return self.send_note(path, LinkMessage::Ack { ack_request: true });
        }
        let has_room = self.rails.has_room_for_pair(&self.limits);
        if !has_room {
            self.evict_one();
        }
        let made = has_room.then(|| self.make_pair(path).ok()).flatten();
        let Some(index) = made else {
            // No queue pair can be made now: packets go as datagrams until the next attempt.
            if let Some(link) = self.peers.link(path) {
                link.connection.retry_after(now_ns + REFUSED_NS);
            }
            return self.peers.arm(path.peer, self.schedule.now_ns);
        };
        self.request_connection(path, index);
    }

    fn make_pair(&mut self, path: PeerPath) -> Result<u32, CallError> {
        let now = (self.schedule.now_ns, self.schedule.polls());
        let rail = &mut self.rails[path.at()];
        self.pairs.make(path, rail, &self.limits, now)
    }

    /// Connects a queue pair to the peer's, with the peer's MTU; destroys it on failure.
    fn connect(
        &mut self,
        index: u32,
        address: PortAddress,
        theirs: PairEnd,
    ) -> Result<u32, CallError> {
        let timeout_exp = (self.limits.terms.timeout_exp(), self.schedule.now_ns);
        let packet_bytes = theirs.packet_bytes;
        let address = PortAddress {
            packet_bytes,
            ..address
        };
        let theirs = (address, theirs);
        self.pairs
            .connect(index, theirs, &mut self.rails, timeout_exp)?;
        self.counts.joined.add(1);
        Ok(index)
    }

    /// Handles the peer's request for a queue pair.
    pub(super) fn answer(&mut self, path: PeerPath, attempt: u32, theirs: PairEnd, again: bool) {
        let Some(link) = self.peers.link(path) else {
            return;
        };
        let Some(address) = link.address else {
            return;
        };
        let state = link.connection.state();
        match state {
            CarrierState::Disconnected => {}
            // This is not counted as a break: no packet has been sent over this queue pair.
            CarrierState::Connecting { end } | CarrierState::Accepted { end } => {
                self.break_quietly(end)
            }
            CarrierState::Connected { end, .. } | CarrierState::Disconnecting { end, .. } => {
                self.break_pair(end)
            }
        }
        let Some(packet_bytes) = self.usable_packet_bytes(path, theirs.packet_bytes) else {
            return;
        };
        let theirs = PairEnd {
            packet_bytes,
            ..theirs
        };
        // If a queue pair of this path is broken here, now or before, its place becomes free.
        let is_given_up = matches!(
            state,
            CarrierState::Connecting { .. } | CarrierState::Accepted { .. }
        );
        let has_place = is_given_up || (again && self.pairs.is_any_closing(path));
        if !has_place && !self.rails.has_room_for_pair(&self.limits) {
            self.evict_one();
            return self.refuse(path, attempt);
        }
        let made = self.make_pair(path);
        let Ok(index) = made.and_then(|index| self.connect(index, address, theirs)) else {
            return self.refuse(path, attempt);
        };
        let now_ns = self.schedule.now_ns;
        self.agree(path, theirs.packet_bytes, false);
        if let Some(link) = self.peers.link(path) {
            link.connection.accepted(attempt, index, now_ns);
            self.resend_note(path);
        }
    }

    fn refuse(&mut self, path: PeerPath, attempt: u32) {
        if let Some(link) = self.peers.link(path) {
            link.connection.refuse(attempt);
            self.send_note(path, LinkMessage::Refuse { attempt });
        }
    }

    /// Connects our end, after the peer has connected its own.
    pub(super) fn join(&mut self, path: PeerPath, theirs: PairEnd) {
        let Some(link) = self.peers.link(path) else {
            return;
        };
        let (end, address, attempt) = (
            link.connection.end(),
            link.address,
            link.connection.attempt(),
        );
        let requested_bytes = link.packet_bytes();
        let (Some(index), Some(address), Some(requested_bytes)) = (end, address, requested_bytes)
        else {
            return;
        };
        let theirs = PairEnd {
            packet_bytes: theirs.packet_bytes.min(requested_bytes),
            ..theirs
        };
        self.agree(path, theirs.packet_bytes, true);
        if self.connect(index, address, theirs).is_err() {
            return self.abandon(path);
        }
        if let Some(link) = self.peers.link(path) {
            link.connection.connected(index, true);
        }
        self.send_note(path, LinkMessage::Ready { attempt });
        self.queue_go_on(path.peer);
    }

    /// Gives up our end of a queue pair: the peer has no room for a queue pair, or our end cannot be connected.
    pub(super) fn abandon(&mut self, path: PeerPath) {
        let now_ns = self.schedule.now_ns;
        let end = self.peers.link(path).and_then(|link| link.connection.end());
        if let Some(index) = end {
            self.pairs.destroy(index, &mut self.rails);
        }
        if let Some(link) = self.peers.link(path) {
            link.connection.retry_after(now_ns + REFUSED_NS);
        }
        self.queue_go_on(path.peer);
        self.peers.arm(path.peer, self.schedule.now_ns);
    }

    /// Gives up the least recently used queue pair.
    fn evict_one(&mut self) {
        if let Some(path) = self.pairs.least_recently_used(&self.peers) {
            self.counts.given_up.add(1);
            self.peers.leave(path, false);
        }
    }

    /// Advances queue pairs that are being closed.
    #[cold]
    pub(super) fn advance_leaving(&mut self) {
        for peer in self.peers.take_leaving() {
            self.peers.of(peer).listed_leaving = false;
            let rails: Vec<u8> = self.peers.of(peer).links().map(|link| link.rail).collect();
            let mut left = false;
            for rail in rails {
                left |= self.advance_leaving_on(PeerPath { peer, rail });
            }
            let is_any_broken = self.pairs.reap(peer, &mut self.rails);
            if !is_any_broken && mem::take(&mut self.peers.of(peer).waits_for_last) {
                // Requests that waited until the broken queue pairs were destroyed may be posted again; no event
                // announces that.
                self.schedule.note_activity();
                self.queue_go_on(peer);
            }
            left |= is_any_broken;
            if left {
                self.peers.list_leaving(peer);
            }
        }
    }

    /// Advances a queue pair that is given up: notifies the peer when all requests posted to it have ended. `true`:
    /// some have not ended.
    fn advance_leaving_on(&mut self, path: PeerPath) -> bool {
        let now_ns = self.schedule.now_ns;
        let state = self.peers.link(path).map(|link| link.connection.state());
        let Some(CarrierState::Disconnecting {
            end,
            is_sent: false,
            peer_disconnected,
        }) = state
        else {
            return false;
        };
        let Some(pair) = self.pairs.get(end) else {
            return false;
        };
        let remote = self.peers.get(path.peer);
        let in_flight = remote.is_some_and(|remote| remote.session.is_under_way(pair.made));
        if !pair.requests.is_empty() || in_flight {
            if pair.requests.unsignaled() != 0 {
                self.mark(end);
            }
            return true;
        }
        if peer_disconnected {
            self.send_disconnect(path);
            self.close_pair(path);
        } else if let Some(link) = self.peers.link(path) {
            link.connection.sent_disconnect(end, now_ns);
            self.resend_note(path);
        }
        false
    }

    /// Breaks a queue pair that neither end uses any more.
    pub(super) fn close_pair(&mut self, path: PeerPath) {
        let end = self.peers.link(path).and_then(|link| link.connection.end());
        if let Some(index) = end {
            self.break_quietly(index);
        }
        self.queue_go_on(path.peer);
    }

    /// Retires a work request that succeeded.
    #[inline(always)]
    pub(super) fn retire(&mut self, posted: PostedRequest, made: u32) {
        match posted {
            PostedRequest::Packet { peer, number, read } => {
                if let Some(slot) = read {
                    self.sends.retired(slot);
                }
                if let Some(remote) = self.peers.get_mut(peer) {
                    remote.mark_alive();
                    remote.session.arrived(number, made);
                }
            }
            PostedRequest::Part { work, bytes, .. } => {
                self.part_is_back(work, bytes, WorkStatus::Success)
            }
            PostedRequest::Mark { read } => {
                if let Some(slot) = read {
                    self.sends.retired(slot);
                }
            }
        }
    }

    /// Handles a failed work request: retires those before it, and breaks the queue pair.
    #[cold]
    pub(super) fn take_failed(&mut self, index: u32, number: u32, done: &PortCompletion) {
        while let Some(pair) = self.pairs.get_mut(index)
            && let Some(posted) = pair.requests.ended(number.wrapping_sub(1))
        {
            let made = pair.made;
            self.rails[pair.path.at()].posted -= 1;
            match posted {
                // The failure of a later request does not prove that this part, which had no completion of its own, was
                // carried out (W3).
                PostedRequest::Part { work, bytes, .. } => {
                    self.part_is_back(work, bytes, WorkStatus::Flushed)
                }
                PostedRequest::Packet { .. } | PostedRequest::Mark { .. } => {
                    self.retire(posted, made)
                }
            }
        }
        let Some(pair) = self.pairs.get_mut(index) else {
            return;
        };
        let Some(posted) = pair.requests.failed(number) else {
            return;
        };
        let path = pair.path;
        self.rails[path.at()].posted -= 1;
        self.fail_pair(index, path, &posted, done);
        if let PostedRequest::Part { work, bytes, .. } = posted {
            self.part_is_back(work, bytes, done.status);
        }
        self.sends.posted_ended(posted);
    }

    /// Breaks a queue pair because a request posted to it has failed.
    fn fail_pair(
        &mut self,
        index: u32,
        path: PeerPath,
        posted: &PostedRequest,
        done: &PortCompletion,
    ) {
        let done = &PortCompletion {
            status: self.peer_status(path, done.status),
            ..*done
        };
        let (now_ns, peers) = (self.schedule.now_ns, &mut self.peers);
        self.pairs
            .record_failure(path, done.status, now_ns, peers, &self.counts);
        self.warn_of_failure(index, posted, done);
        self.break_pair(index);
        self.detour_if_joined(path, done.status);
    }

    /// The status as it is recorded for the peer. A user-space port answers only while its process makes calls. So
    /// exhausted retries to such a port count like a missing receive buffer at an adapter, and do not mark the peer as
    /// suspected.
    fn peer_status(&self, path: PeerPath, status: WorkStatus) -> WorkStatus {
        let link = self
            .peers
            .get(path.peer)
            .and_then(|remote| remote.link(path.rail));
        let address = link.and_then(|link| link.address);
        let is_program = address.is_some_and(|address| address.is_program());
        match status {
            WorkStatus::RetryExceeded if is_program => WorkStatus::NotReady,
            status => status,
        }
    }

    /// Warns of the failure that broke a queue pair. Flushes are not reported; of many failures only a few are.
    fn warn_of_failure(&mut self, index: u32, posted: &PostedRequest, done: &PortCompletion) {
        let Some(pair) = self.pairs.get(index) else {
            return;
        };
        let path = pair.path;
        let often = match done.status {
            // A process that computes returns no buffers: that is reported only if it lasts.
            WorkStatus::NotReady => {
                self.pairs.not_ready(path, self.schedule.now_ns) != REPORTED_NOT_READY
            }
            // Most queue pairs recover, and if many break, they break for one reason: so the 1st, 2nd, 4th, 8th … break
            // is reported.
            _ => !(self.counts.broken.get() + 1).is_power_of_two(),
        };
        if !pair.is_whole() || done.status == WorkStatus::Flushed || often {
            return;
        }
        let subject = match posted {
            PostedRequest::Part { bytes, .. } => format!("a transfer of {bytes} bytes"),
            PostedRequest::Packet { .. } | PostedRequest::Mark { .. } => "a message".to_owned(),
        };
        let Some(ends) = self.ends_of(path) else {
            return;
        };
        let message = error_text::of_failure(&subject, done.status, done.vendor, &ends);
        self.notices.warn(message);
    }

    /// The two ends of a path, for error messages.
    pub(super) fn ends_of(&self, path: PeerPath) -> Option<PairEnds<'_>> {
        let remote = self.peers.get(path.peer)?;
        let link = remote.link(path.rail);
        Some(PairEnds {
            rank: self.me,
            host: self.hosts.here(),
            facts: self.rails[path.at()].port.facts(),
            peer: path.peer,
            is_of_another_job: self.peers.known().is_of_another_job(path.peer),
            peer_host: self.hosts.name(remote.host),
            address: link.and_then(|link| link.address.as_ref()),
        })
    }

    /// Breaks a queue pair. After its last work request has come back, another queue pair is requested, if there is
    /// work for it.
    pub(super) fn break_pair(&mut self, index: u32) {
        let (rails, peers) = (&mut self.rails, &mut self.peers);
        self.pairs.break_pair(index, rails, peers, &self.counts);
    }

    /// Breaks a queue pair without counting the break.
    pub(super) fn break_quietly(&mut self, index: u32) {
        let (rails, peers) = (&mut self.rails, &mut self.peers);
        self.pairs.break_quietly(index, rails, peers);
    }

    /// Treats the oldest signaled request, whose completion never came, as failed.
    #[cold]
    pub(super) fn forget(&mut self, index: u32) {
        let Some((path, posted)) = self.pairs.get(index).and_then(ReliablePair::awaited) else {
            return;
        };
        let done = PortCompletion {
            status: WorkStatus::Forgotten,
            ..PortCompletion::default()
        };
        self.fail_pair(index, path, &posted, &done);
    }

    /// Checks all peers for missing acknowledgements, if a check is due ([`AckStall`](session::AckStall)).
    pub(super) fn try_receivers(&mut self) {
        if !self.schedule.are_receivers_due() {
            return;
        }
        for index in self.pairs.places() {
            match self.pairs.check_ack_stall(index, &self.peers) {
                0 => {}
                1 => {
                    self.mark(index);
                }
                _ => {
                    if let Some(path) = self.pairs.path(index) {
                        self.try_device(path.peer);
                    }
                }
            }
        }
    }

    /// Destroys the queue pairs of a lost rail; their requests are posted on other rails. `device_lost`: the device is
    /// lost too, so datagrams in flight count as ended.
    pub(super) fn forget_pairs(&mut self, rail: usize, device_lost: bool) {
        for index in self.pairs.places() {
            let path = self.pairs.path(index);
            if path.is_none_or(|path| path.at() != rail) {
                continue;
            }
            let (rails, peers) = (&mut self.rails, &mut self.peers);
            let mut requests = self.pairs.forget(index, rails, peers);
            while let Some(posted) = requests.oldest() {
                self.rails[rail].posted -= 1;
                if let PostedRequest::Part { work, bytes, .. } = posted {
                    self.part_is_back(work, bytes, WorkStatus::Flushed);
                }
                self.sends.posted_ended(posted);
            }
        }
        let datagrams = &mut self.rails[rail].datagrams;
        while let Some(posted) = device_lost.then(|| datagrams.oldest()).flatten() {
            self.sends.posted_ended(posted);
        }
    }

    /// Handles an arrived note. Over a reliable queue pair only acknowledgements are valid.
    #[inline(never)]
    pub(super) fn take_note(
        &mut self,
        path: PeerPath,
        ack: Ack,
        message: LinkMessage,
        by_datagram: bool,
    ) {
        self.schedule.now_ns = self.rails.clock();
        let peer = path.peer;
        let now_ns = self.schedule.now_ns;
        let sends = &mut self.sends;
        let Some(remote) = self.peers.get_mut(peer) else {
            return;
        };
        remote.mark_alive();
        remote.last_rail = path.rail;
        remote
            .session
            .acknowledge(ack, now_ns, |slot| sends.release(slot));
        let mut link = remote.link_mut(path.rail);
        let last_rail = link.as_mut().filter(|_| by_datagram);
        let is_back = last_rail.is_some_and(|link| link.mark_received(now_ns));
        if let LinkMessage::Ack { ack_request } = message {
            if let Some(link) = link.filter(|_| !by_datagram) {
                link.connection.note_arrival();
            }
            if ack_request {
                remote.session.force_ack();
                self.peers.list_owing(peer);
            }
        } else if link.is_some() && by_datagram {
            let is_first = self.peers.known().with(peer).is_first;
            if let Some(link) = self.peers.link(path) {
                let todo = link.connection.receive(message, is_first);
                self.carry_out(path, message, todo);
            }
        }
        if is_back {
            self.peers.arm(peer, now_ns);
        }
        if self.peers.of(peer).session.has_unsent() {
            self.peers.list_unsent(peer);
        }
    }

    fn carry_out(&mut self, path: PeerPath, message: LinkMessage, todo: ConnectAction<PairEnd>) {
        match todo {
            ConnectAction::Nothing => {}
            ConnectAction::Accept { end, again } => {
                if let LinkMessage::Connect { attempt, .. } = message {
                    self.answer(path, attempt, end, again);
                }
            }
            ConnectAction::RepeatAccept => self.resend_note(path),
            ConnectAction::Connect { end } => self.join(path, end),
            ConnectAction::RepeatReady => {
                if let Some(link) = self.peers.link(path) {
                    let attempt = link.connection.attempt();
                    self.send_note(path, LinkMessage::Ready { attempt });
                }
            }
            ConnectAction::Use => {
                if let Some(link) = self.peers.link(path) {
                    link.connection.note_arrival();
                }
                self.queue_go_on(path.peer);
            }
            ConnectAction::Abandon => {
                if let Some(link) = self.peers.link(path) {
                    link.path_mtu.refused();
                }
                self.abandon(path);
            }
            ConnectAction::Disconnect => self.peers.leave(path, true),
            ConnectAction::Destroy { send_done } => {
                if send_done {
                    self.send_disconnect(path);
                }
                self.close_pair(path);
            }
            ConnectAction::RepeatDisconnect => self.send_disconnect(path),
        }
    }

    pub(super) fn send_disconnect(&mut self, path: PeerPath) {
        if let Some(link) = self.peers.link(path) {
            let attempt = link.connection.attempt();
            let done = true;
            self.send_note(path, LinkMessage::Disconnect { attempt, done });
        }
    }

    /// Repeats a note that had no answer; after some repetitions, moves to another rail or abandons the path. If the
    /// note accepts a queue pair, its repetitions are limited; then the queue pair is given up.
    pub(super) fn resend_or_give_up(&mut self, path: PeerPath, overdue: ConnectTimeout) {
        let state = self.peers.link(path).map(|link| link.connection.state());
        match state {
            Some(CarrierState::Accepted { end, .. }) if overdue.tries > MOST_ANSWERS => {
                self.break_quietly(end);
            }
            _ if self.detour_if_silent(path, overdue.tries) => {}
            _ => self.resend_with_echo(path, overdue.tries),
        }
    }

    /// Sends the note of the present state again.
    pub(super) fn resend_note(&mut self, path: PeerPath) {
        let Some(link) = self.peers.link(path) else {
            return;
        };
        let (attempt, again) = (link.connection.attempt(), link.breaks != 0);
        let (state, end) = (link.connection.state(), link.connection.end());
        let packet_bytes = link.packet_bytes();
        let pair = end.and_then(|index| self.pairs.get(index));
        let (Some(pair), Some(packet_bytes)) = (pair, packet_bytes) else {
            return;
        };
        let end = pair.as_end(packet_bytes);
        let message = match state {
            CarrierState::Connecting { .. } => LinkMessage::Connect {
                attempt,
                end,
                again,
            },
            CarrierState::Accepted { .. } | CarrierState::Connected { .. } => {
                LinkMessage::Accept { attempt, end }
            }
            CarrierState::Disconnecting { is_sent: true, .. } => LinkMessage::Disconnect {
                attempt,
                done: false,
            },
            CarrierState::Disconnecting { .. } | CarrierState::Disconnected => return,
        };
        self.send_note(path, message);
    }

    /// Sends a note. If there is no room for it, it counts as lost on the wire.
    pub(super) fn send_note(&mut self, path: PeerPath, message: LinkMessage) {
        let Some(to) = self.destination_of(path) else {
            return;
        };
        let remote = self.peers.of(path.peer);
        let (source, ack) = (remote.source_number, remote.session.take_ack());
        let rail = &self.rails[path.at()];
        if rail.has_moved {
            let note = wire::moved(source, rail.address());
            let note = (&note, NOTE_BYTES);
            self.rails.send_note(path.rail, to, note, &mut self.sends);
        }
        let bytes = self.note_bytes(path, &message);
        let note = (&wire::note(source, ack, message), bytes);
        self.rails.send_note(path.rail, to, note, &mut self.sends);
        self.peers.arm(path.peer, self.schedule.now_ns);
    }

    /// Requests an acknowledgement with a note over a reliable queue pair; the completion of the note also ends all
    /// requests before it. `false`: the note was not posted.
    pub(super) fn mark(&mut self, index: u32) -> bool {
        let Some(path) = self.pairs.path(index) else {
            return false;
        };
        let remote = self.peers.of(path.peer);
        let (source, ack) = (remote.source_number, remote.session.take_ack());
        let note = wire::note(source, ack, LinkMessage::Ack { ack_request: true });
        let (sends, rails) = (&mut self.sends, &mut self.rails);
        self.pairs.post_note(index, &note, sends, rails)
    }

    /// Sends the acknowledgements that this process owes, except to peers to which a packet has carried one meanwhile.
    #[cold]
    pub(super) fn send_owed_acks(&mut self) {
        for peer in self.peers.take_owing() {
            let remote = self.peers.of(peer);
            remote.listed_owing = false;
            let joined = remote.pair_for_sends().is_some();
            if remote.session.take_ack_due(joined) {
                // The acknowledgement goes over the rail of the peer's last packet: the main path may be broken by now.
                let rail = remote.last_rail;
                self.send_note(
                    PeerPath { peer, rail },
                    LinkMessage::Ack { ack_request: false },
                );
            }
        }
    }

    /// Posts a zero-byte write behind a read that was the last request on its queue pair: the completion of the write
    /// proves the read.
    #[inline(never)]
    pub(super) fn post_proof(&mut self, index: u32) {
        if !self.pairs.post_nothing(index, &mut self.rails) {
            self.break_pair(index);
        }
    }

    /// Probes the device of a peer with a write of zero bytes: the device answers even while the peer process computes.
    /// Without an answer the queue pair breaks.
    pub(super) fn try_device(&mut self, peer: u32) {
        let remote = self.peers.of(peer);
        let path = remote.path(peer);
        let Some(index) = remote.pair_for_sends() else {
            return self.request_pair(path);
        };
        if self.rails[path.at()].posted < MOST_POSTED {
            self.pairs.post_nothing(index, &mut self.rails);
        }
    }
}

/// Of a path's recent breaks for lack of a receive buffer, only the third is reported.
const REPORTED_NOT_READY: u8 = 3;
/// Delay before the next request after the peer or the device has refused a queue pair.
const REFUSED_NS: u64 = 100_000_000;

// The bound on memory assumes at most this size.
const _: () = assert!(size_of::<VerbsPeer>() <= 512);

/// Maximum number of times that the answer to a request for a queue pair is repeated.
const MOST_ANSWERS: u8 = 12;
