// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs. IBTA vol. 1 sections 9.7 and 10.3.
//!
//! [`QueuePair`] owns these parts and passes packets and time on to them:
//! - `requester.rs` (with `send_queue.rs`, `span.rs`, `scoreboard.rs`) makes requests,
//! - `completer.rs` ends them when answers come,
//! - `retry.rs` (with `round_trip.rs`) is their timers and counts, `congestion.rs` their window,
//! - `responder.rs` (with `order.rs`, `ahead.rs`, `assembly.rs`, `replay.rs`, `replies.rs`) carries out those of the peer.

mod ahead;
mod assembly;
mod completer;
mod config;
mod congestion;
mod order;
mod outgoing;
mod receives;
mod replay;
mod replies;
mod request;
mod requester;
mod responder;
mod retry;
mod round_trip;
mod scoreboard;
mod send_queue;
mod span;

use std::collections::VecDeque;
use std::net::IpAddr;

use completer::{Completer, CompleterAction};
pub use config::{Config, ConfigError, PathMtu};
use congestion::{CongestionWindow, Notifier};
use outgoing::{Label, PayloadSource};
pub use outgoing::{OutgoingPacket, PacketPayload};
pub use receives::ReceiveQueue;
pub use request::{
    CompletionStatus, MESSAGE_BYTES_MAX, PostError, RequestBody, RequestOpcode, RoceRequest,
    WorkCompletion,
};
use requester::{Leaves, NextPacket, Requester};
use responder::{Responder, ResponderEvent};
use retry::Retry;

use crate::format::{Headers, Opcode, Packet, Service};
use crate::memory::RegisteredMemory;
use crate::psn::Psn;

/// A reliable queue pair that is connected.
#[derive(Debug)]
pub struct QueuePair {
    config: Config,
    state: QueuePairState,
    requester: Requester,
    completer: Completer,
    retry: Retry,
    congestion: CongestionWindow,
    responder: Responder,
    notifier: Notifier,
    /// Completions of receives; each was a buffer of this process, so there are no more than it posts.
    received: VecDeque<WorkCompletion>,
    /// Answers and requests leave in turn.
    is_turn_of_requests: bool,
    /// Requests have left since there was nothing more to send: an acknowledgement that is owed goes with them.
    has_sent: bool,
    /// Headers of the packet that leaves.
    headers: Headers,
    counts: QueuePairCounts,
}

/// Whether a queue pair works. IBTA vol. 1 section 10.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePairState {
    /// It sends and receives.
    Ready,
    /// It has broken: what is posted comes back as [`CompletionStatus::Flushed`].
    Error,
}

/// Which completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// Of work requests.
    Sends,
    /// Of receive buffers.
    Receives,
}

/// Counters of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePairCounts {
    /// Packets that were handed out.
    pub sent: u64,
    /// Packets that were not for this queue pair, or came after it had broken.
    pub dropped: u64,
    /// Times that all unacknowledged packets were sent again, since the peer or a gap said so.
    pub went_back: u64,
    /// Times that the peer had no receive buffer.
    pub not_ready: u64,
    /// Packets that were sent again, and what else goes wrong on the way.
    pub troubles: CongestionCounts,
}

/// Counters that tell why a network is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CongestionCounts {
    /// Packets that were sent again.
    pub repeated: u64,
    /// Times that one packet was sent again, since no answer came.
    pub timeouts: u64,
    /// Times that the window was cut for congestion.
    pub window_cuts: u64,
}

impl QueuePair {
    /// A queue pair that is connected to another.
    ///
    /// # Errors
    /// A number is out of its range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            state: QueuePairState::Ready,
            requester: Requester::new(&config),
            completer: Completer::new(config.number),
            retry: Retry::new(&config),
            congestion: CongestionWindow::new(&config),
            notifier: Notifier::default(),
            responder: Responder::new(&config),
            received: VecDeque::new(),
            is_turn_of_requests: false,
            has_sent: false,
            headers: Headers::EMPTY,
            counts: QueuePairCounts::default(),
        })
    }

    /// What it was told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it works.
    pub fn state(&self) -> QueuePairState {
        self.state
    }

    /// What has happened so far.
    pub fn counts(&self) -> QueuePairCounts {
        QueuePairCounts {
            troubles: self.troubles(),
            ..self.counts
        }
    }

    /// What has gone wrong so far.
    pub fn troubles(&self) -> CongestionCounts {
        CongestionCounts {
            window_cuts: self.congestion.cuts(),
            ..self.counts.troubles
        }
    }

    /// Packets that may be under way now, at most those of [`Config`].
    pub fn window(&self) -> u32 {
        self.congestion.window()
    }

    /// Answers that have not left; never more than 2 × `responder_depth` + 1, or four times that with selective repeat.
    pub fn unanswered(&self) -> usize {
        self.responder.unanswered()
    }

    /// Posts a work request. A queue pair that has broken takes it, and flushes it.
    ///
    /// # Errors
    /// There is no room, or the request makes no sense; nothing was posted.
    pub fn post(&mut self, request: &RoceRequest<'_>) -> Result<(), PostError> {
        self.requester.post(request, self.completer.unpolled())?;
        if self.state == QueuePairState::Error {
            self.completer
                .fail(&mut self.requester, None, CompletionStatus::Flushed);
        }
        Ok(())
    }

    /// Takes the next completion.
    pub fn poll(&mut self, queue: CompletionKind) -> Option<WorkCompletion> {
        match queue {
            CompletionKind::Sends => self.completer.poll(),
            CompletionKind::Receives => self.received.pop_front(),
        }
    }

    /// Breaks it: all that was posted comes back as [`CompletionStatus::Flushed`].
    pub fn fail(&mut self) {
        self.responder.silence();
        self.break_with(None, CompletionStatus::Flushed);
    }

    /// Whoever watches over the peer's process says that it lives. So a peer of ours that computes and does not answer is not
    /// given up.
    pub fn peer_lives(&mut self, now_ns: u64) {
        self.retry.lives(now_ns);
    }

    /// When [`next_outgoing`](Self::next_outgoing) has something to do even if nothing comes, in the time of its `now_ns`.
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            QueuePairState::Ready => {
                let times = [self.retry.deadline(), self.responder.owed_at()];
                times.into_iter().flatten().min()
            }
            QueuePairState::Error => None,
        }
    }

    /// A packet has come from this address, and its checksum was right.
    pub fn receive<M: RegisteredMemory>(
        &mut self,
        now_ns: u64,
        from: IpAddr,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) {
        if self.state == QueuePairState::Error || !self.is_ours(from, packet) {
            self.counts.dropped += 1;
            return;
        }
        self.retry.lives(now_ns);
        let is_marked = packet.bth.forward_congestion;
        if packet.bth.opcode == Opcode::CNP {
            self.congested(now_ns);
        } else if packet.bth.opcode.is_answer() {
            if is_marked {
                self.congested(now_ns);
            }
            self.answered(now_ns, packet, memory);
        } else {
            if is_marked {
                self.notifier.marked(now_ns);
            }
            let mut heard = Some(self.responder.request(packet, memory, receives));
            while let Some(one) = heard {
                self.note_heard(one);
                heard = match self.state {
                    QueuePairState::Ready => self.responder.next_kept(memory, receives),
                    QueuePairState::Error => None,
                };
            }
            self.responder.keep_time(now_ns);
        }
    }

    /// The next packet that is to be sent, if there is one. The caller asks until there is none: after a packet has come,
    /// after something was posted, and when the [`deadline`](Self::deadline) has passed.
    pub fn next_outgoing<M: RegisteredMemory>(
        &mut self,
        now_ns: u64,
        memory: &M,
    ) -> Option<OutgoingPacket<'_>> {
        self.look_at_clock(now_ns);
        let source = self.next_source(now_ns, memory)?;
        self.counts.sent += 1;
        let payload = match source {
            PayloadSource::Nothing => PacketPayload::Nothing,
            PayloadSource::Piece(piece) | PayloadSource::Repeated(piece) => {
                PacketPayload::Piece(piece)
            }
            PayloadSource::Inline {
                index,
                offset,
                bytes,
            } => PacketPayload::Inline(self.requester.inline(index, offset, bytes)),
        };
        Some(OutgoingPacket {
            to: self.config.to,
            headers: &self.headers,
            payload,
            is_repeated: matches!(source, PayloadSource::Repeated(_)),
        })
    }

    /// IBTA vol. 1 section 9.6.1: packets that are not for this queue pair are dropped without a word.
    fn is_ours(&self, from: IpAddr, packet: &Packet<'_>) -> bool {
        let bth = &packet.bth;
        let service = bth.opcode.service();
        let is_right = service == Service::ReliableConnection || bth.opcode == Opcode::CNP;
        is_right
            && bth.destination == self.config.number
            && from == self.config.to.ip()
            && bth.is_of_partition(self.config.partition)
    }

    fn note_heard(&mut self, heard: ResponderEvent) {
        match heard {
            ResponderEvent::Nothing => {}
            ResponderEvent::Received(completion) => self.received.push_back(completion),
            ResponderEvent::Broken(completion) => {
                self.received.extend(completion);
                self.break_with(None, CompletionStatus::Flushed);
            }
        }
    }

    fn answered<M: RegisteredMemory>(&mut self, now_ns: u64, packet: &Packet<'_>, memory: &mut M) {
        let before = self.requester.unacked();
        let mut verdict = self.completer.answer(&mut self.requester, packet, memory);
        if self.requester.unacked() != before || verdict == CompleterAction::Ahead {
            let more = self.requester.has_under_way();
            self.retry.progress(now_ns, more);
            if self.requester.shows_gap(packet.bth.psn) && verdict == CompleterAction::Fine {
                verdict = CompleterAction::GoBack;
                self.congested(now_ns);
            }
        }
        let timed = self.retry.timed();
        if timed.is_some_and(|psn| self.requester.has_arrived(psn))
            && let Some(delay) = self.retry.measure(now_ns)
        {
            self.congestion.measured(now_ns, delay);
            self.requester.set_window(self.congestion.window());
        }
        match verdict {
            CompleterAction::Fine | CompleterAction::Ahead => {}
            CompleterAction::GoBack => {
                if self.retry.should_go_back() {
                    self.counts.went_back += 1;
                    self.requester.go_back();
                    self.retry.sent_again(None);
                }
            }
            CompleterAction::NotReady(psn, timer) => match self.retry.not_ready(now_ns, timer) {
                Ok(is_news) => {
                    if is_news {
                        self.counts.not_ready += 1;
                        self.requester.refused(psn);
                        self.retry.sent_again(None);
                    }
                }
                Err(status) => self.break_oldest(status),
            },
            CompleterAction::Failed(psn, status) => {
                self.responder.silence();
                self.break_with(Some(psn), status);
            }
        }
    }

    fn congested(&mut self, now_ns: u64) {
        self.congestion.congested(now_ns);
        self.requester.set_window(self.congestion.window());
    }

    fn look_at_clock(&mut self, now_ns: u64) {
        if self.state == QueuePairState::Error {
            return;
        }
        if self.responder.owed_at().is_some_and(|at| at <= now_ns) {
            self.responder.acknowledge_owed();
        }
        match self.retry.is_overdue(now_ns) {
            Ok(false) => {}
            Ok(true) => {
                self.counts.troubles.timeouts += 1;
                self.requester.probe();
            }
            Err(status) => self.break_oldest(status),
        }
    }

    /// Writes the headers of the next packet; its payload.
    fn next_source<M: RegisteredMemory>(
        &mut self,
        now_ns: u64,
        memory: &M,
    ) -> Option<PayloadSource> {
        if self.notifier.take() {
            Label::new(&self.config).write_notification(&mut self.headers);
            return Some(PayloadSource::Nothing);
        }
        let requests_first = std::mem::take(&mut self.is_turn_of_requests);
        if requests_first && let Some(source) = self.next_request(now_ns, memory) {
            return Some(source);
        }
        if let Some(source) = self.next_answer(memory) {
            return Some(source);
        }
        if !requests_first && let Some(source) = self.next_request(now_ns, memory) {
            return Some(source);
        }
        if std::mem::take(&mut self.has_sent) && self.responder.acknowledge_behind(now_ns) {
            return self.next_answer(memory);
        }
        None
    }

    fn next_answer<M: RegisteredMemory>(&mut self, memory: &M) -> Option<PayloadSource> {
        let answer = self.responder.next(memory, &mut self.headers);
        let answer = answer.unwrap_or_else(|()| {
            self.break_with(None, CompletionStatus::Flushed);
            let last = self.responder.next(memory, &mut self.headers);
            last.ok().flatten()
        });
        self.is_turn_of_requests = answer.is_some() && self.state == QueuePairState::Ready;
        answer
    }

    fn next_request<M: RegisteredMemory>(
        &mut self,
        now_ns: u64,
        memory: &M,
    ) -> Option<PayloadSource> {
        if self.state == QueuePairState::Error
            || !self.retry.may_send(now_ns, self.requester.has_under_way())
        {
            return None;
        }
        match self.requester.next(memory, &mut self.headers) {
            NextPacket::Packet(source, leaves) => {
                self.has_left(now_ns, leaves);
                Some(match leaves {
                    Leaves::Again(_) => source.repeated(),
                    Leaves::First(_) | Leaves::Unasked => source,
                })
            }
            NextPacket::Nothing => None,
            NextPacket::Failed(status) => {
                self.break_oldest(status);
                None
            }
        }
    }

    fn has_left(&mut self, now_ns: u64, leaves: Leaves) {
        self.has_sent = true;
        let timed = match leaves {
            Leaves::First(psn) => Some(psn),
            Leaves::Unasked => None,
            Leaves::Again(psn) => {
                self.counts.troubles.repeated += 1;
                self.retry.sent_again(Some(psn));
                None
            }
        };
        self.retry.sent(now_ns, timed);
    }

    /// Breaks it over its oldest request.
    fn break_oldest(&mut self, status: CompletionStatus) {
        self.responder.silence();
        let psn = self.requester.oldest().map(|work| work.first);
        self.break_with(psn, status);
    }

    /// Breaks it; the request of packet number `psn` ends with `status`. Answers that wait still leave.
    fn break_with(&mut self, psn: Option<Psn>, status: CompletionStatus) {
        self.state = QueuePairState::Error;
        self.completer.fail(&mut self.requester, psn, status);
        let abandoned = self.responder.abandon();
        self.received.extend(abandoned);
    }
}
