// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs. IBTA vol. 1 sections 9.7 and 10.3.
//!
//! [`QueuePair`] owns these parts, and passes packets and the time on to them:
//! - `requester.rs` (with `send_queue.rs`, `span.rs`, `scoreboard.rs`) sends requests,
//! - `completer.rs` completes them as responses arrive,
//! - `retry.rs` (with `round_trip.rs`) has the timers and retry counters of requests, `congestion.rs` the window,
//! - `responder.rs` (with `order.rs`, `ahead.rs`, `assembly.rs`, `replay.rs`, `replies.rs`) executes the peer's
//!   requests,
//! - `turn.rs` decides whether a request or a response is sent next.

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
mod turn;

use std::collections::VecDeque;
use std::net::IpAddr;

use completer::{Completer, CompleterAction};
pub use config::{Config, ConfigError, PathMtu};
use congestion::{CongestionWindow, Notifier};
use outgoing::{HeaderTemplate, PayloadSource};
pub use outgoing::{OutgoingPacket, PacketPayload};
pub use receives::ReceiveQueue;
pub use request::{
    CompletionStatus, MESSAGE_BYTES_MAX, PostError, RequestBody, RequestOpcode, RoceRequest,
    WorkCompletion,
};
use requester::{NextPacket, Requester, Transmission};
use responder::{Responder, ResponderEvent};
use retry::Retry;
use turn::{Turn, TurnKind};

use crate::format::{Headers, Opcode, Packet, Service};
use crate::memory::RegisteredMemory;
use crate::psn::Psn;

/// A connected reliable queue pair.
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
    /// Receive completions, at most one per posted receive buffer.
    received: VecDeque<WorkCompletion>,
    turn: Turn,
    /// Whether requests were sent since the last time when nothing was left to send. If so, a delayed acknowledgement
    /// may be sent after the last of them.
    has_sent: bool,
    /// Headers of the packet that is being sent.
    headers: Headers,
    counts: QueuePairCounts,
}

/// State of a queue pair. IBTA vol. 1 section 10.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePairState {
    /// Ready to send and to receive.
    Ready,
    /// In the error state: work requests complete as [`CompletionStatus::Flushed`].
    Error,
}

/// The completion queue that is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// Completions of work requests.
    Sends,
    /// Completions of receive buffers.
    Receives,
}

/// Counters of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePairCounts {
    /// Number of packets sent.
    pub sent: u64,
    /// Number of received packets that were not for this queue pair, or arrived in the error state.
    pub dropped: u64,
    /// Number of times that all unacknowledged packets (with selective repeat, only those that have not arrived) were
    /// sent again, because of a NAK or a gap.
    pub went_back: u64,
    /// Number of RNR NAKs received from the peer.
    pub rnr_naks: u64,
    /// Retransmissions, timeouts and congestion events.
    pub congestion: CongestionCounts,
}

/// Counters that explain a slow network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CongestionCounts {
    /// Number of packets sent again.
    pub repeated: u64,
    /// Number of timeouts; after each, one packet is sent again.
    pub timeouts: u64,
    /// Number of reductions of the congestion window.
    pub window_cuts: u64,
}

impl QueuePair {
    /// A connected queue pair.
    ///
    /// # Errors
    /// An attribute is out of range.
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
            turn: Turn::new(),
            has_sent: false,
            headers: Headers::EMPTY,
            counts: QueuePairCounts::default(),
        })
    }

    /// The attributes of the queue pair.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The state of the queue pair.
    pub fn state(&self) -> QueuePairState {
        self.state
    }

    /// All counters of the queue pair.
    pub fn counts(&self) -> QueuePairCounts {
        QueuePairCounts {
            congestion: self.congestion_counts(),
            ..self.counts
        }
    }

    /// The congestion counters of the queue pair.
    pub fn congestion_counts(&self) -> CongestionCounts {
        CongestionCounts {
            window_cuts: self.congestion.cuts(),
            ..self.counts.congestion
        }
    }

    /// Number of packets that may be outstanding now, at most [`Config::window_packets`].
    pub fn window(&self) -> u32 {
        self.congestion.window()
    }

    /// Number of responses not yet sent: at most 2 × `responder_depth` + 1; four times that with selective repeat.
    pub fn queued_responses(&self) -> usize {
        self.responder.queued_responses()
    }

    /// Posts a work request. In the error state the request is accepted and completes as flushed.
    ///
    /// # Errors
    /// The send queue is full, or the request is invalid; nothing was posted.
    pub fn post(&mut self, request: &RoceRequest<'_>) -> Result<(), PostError> {
        self.requester.post(request, self.completer.unpolled())?;
        if self.state == QueuePairState::Error {
            self.completer
                .fail(&mut self.requester, None, CompletionStatus::Flushed);
        }
        Ok(())
    }

    /// Takes the next completion from one of the two completion queues.
    pub fn poll(&mut self, queue: CompletionKind) -> Option<WorkCompletion> {
        match queue {
            CompletionKind::Sends => self.completer.poll(),
            CompletionKind::Receives => self.received.pop_front(),
        }
    }

    /// Enters the error state: every posted request completes as [`CompletionStatus::Flushed`].
    pub fn fail(&mut self) {
        self.responder.discard_responses();
        self.enter_error(None, CompletionStatus::Flushed);
    }

    /// Records that the peer's process is alive, as the caller has found out by other means. So an rmpi peer that
    /// computes and does not respond is not given up.
    pub fn note_peer_alive(&mut self, now_ns: u64) {
        self.retry.note_alive(now_ns);
    }

    /// The time at which [`next_outgoing`](Self::next_outgoing) must be called even if no packet arrives, on the clock
    /// of its `now_ns`; `None`: it need not be called.
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            QueuePairState::Ready => {
                let times = [self.retry.deadline(), self.responder.delayed_ack_at()];
                times.into_iter().flatten().min()
            }
            QueuePairState::Error => None,
        }
    }

    /// Handles a received packet whose ICRC is correct; `from` is its sender.
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
        self.retry.note_alive(now_ns);
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
            let mut event = Some(self.responder.request(packet, memory, receives));
            while let Some(one) = event {
                self.apply_event(one);
                event = match self.state {
                    QueuePairState::Ready => self.responder.next_kept(memory, receives),
                    QueuePairState::Error => None,
                };
            }
            self.responder.schedule_delayed_ack(now_ns);
        }
    }

    /// The next packet to send, if any. After a packet was received or a request was posted, and when the
    /// [`deadline`](Self::deadline) has passed, the caller repeats this call until it returns `None`.
    pub fn next_outgoing<M: RegisteredMemory>(
        &mut self,
        now_ns: u64,
        memory: &M,
    ) -> Option<OutgoingPacket<'_>> {
        self.run_timers(now_ns);
        let source = self.next_source(now_ns, memory)?;
        self.counts.sent += 1;
        let payload = match source {
            PayloadSource::Nothing => PacketPayload::Nothing,
            PayloadSource::Sge(sge)
            | PayloadSource::Padded(sge, _)
            | PayloadSource::Repeated(sge) => PacketPayload::Sge(sge),
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
            filler_bytes: match source {
                PayloadSource::Padded(_, bytes) => bytes,
                _ => 0,
            },
            is_repeated: matches!(source, PayloadSource::Repeated(_)),
        })
    }

    /// Whether [`next_outgoing`](Self::next_outgoing) would return `None`, unless the [`deadline`](Self::deadline) has
    /// passed. Takes less time than that call, and replaces it if `true`.
    pub fn has_sent_all(&mut self, now_ns: u64) -> bool {
        let may_send = self.notifier.is_pending()
            || self.responder.queued_responses() != 0
            || self.requester.has_unsent()
            || self.responder.owes_ack_after_request(now_ns);
        self.has_sent &= may_send;
        !may_send
    }

    /// Whether a packet is for this queue pair. Other packets are silently dropped. IBTA vol. 1 section 9.6.1.
    fn is_ours(&self, from: IpAddr, packet: &Packet<'_>) -> bool {
        let bth = &packet.bth;
        let service = bth.opcode.service();
        let is_right = service == Service::ReliableConnection || bth.opcode == Opcode::CNP;
        is_right
            && bth.destination == self.config.number
            && from == self.config.to.ip()
            && bth.is_of_partition(self.config.partition)
    }

    fn apply_event(&mut self, event: ResponderEvent) {
        match event {
            ResponderEvent::Nothing => {}
            ResponderEvent::Received(completion) => self.received.push_back(completion),
            ResponderEvent::Fatal(completion) => {
                self.received.extend(completion);
                self.enter_error(None, CompletionStatus::Flushed);
            }
        }
    }

    fn answered<M: RegisteredMemory>(&mut self, now_ns: u64, packet: &Packet<'_>, memory: &mut M) {
        let before = self.requester.unacked();
        let mut verdict = self.completer.answer(&mut self.requester, packet, memory);
        if self.requester.unacked() != before || verdict == CompleterAction::Ahead {
            let more = self.requester.has_outstanding();
            self.retry.progress(now_ns, more);
            if self.requester.shows_gap(packet.bth.psn) && verdict == CompleterAction::Fine {
                verdict = CompleterAction::GoBack;
                self.congested(now_ns);
            }
        }
        // A packet that is refused for want of a buffer has arrived.
        let has_arrived = matches!(verdict, CompleterAction::RnrNak(..));
        let is_missing = self.requester.unacked() == before && !has_arrived;
        self.retry.note_oldest(now_ns, is_missing);
        let timed = self.retry.timed();
        if timed.is_some_and(|psn| self.requester.has_arrived(psn))
            && let Some((delay, silence)) = self.retry.measure(now_ns)
        {
            self.congestion.measured(now_ns, delay, silence);
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
            CompleterAction::RnrNak(psn, timer) => match self.retry.rnr_nak(now_ns, timer) {
                Ok(is_new) => {
                    if is_new {
                        self.counts.rnr_naks += 1;
                        self.requester.refused(psn);
                        self.retry.sent_again(None);
                    }
                }
                Err(status) => self.fail_oldest(status),
            },
            CompleterAction::Failed(psn, status) => {
                self.responder.discard_responses();
                self.enter_error(Some(psn), status);
            }
        }
    }

    fn congested(&mut self, now_ns: u64) {
        self.congestion.congested(now_ns);
        self.requester.set_window(self.congestion.window());
    }

    fn run_timers(&mut self, now_ns: u64) {
        if self.state == QueuePairState::Error {
            return;
        }
        if self
            .responder
            .delayed_ack_at()
            .is_some_and(|at| at <= now_ns)
        {
            self.responder.send_delayed_ack();
        }
        match self.retry.is_overdue(now_ns) {
            Ok(false) => {}
            Ok(true) => {
                self.counts.congestion.timeouts += 1;
                self.requester.probe();
            }
            Err(status) => self.fail_oldest(status),
        }
    }

    /// Writes the headers of the next packet; returns the source of its payload.
    fn next_source<M: RegisteredMemory>(
        &mut self,
        now_ns: u64,
        memory: &M,
    ) -> Option<PayloadSource> {
        if self.notifier.take() {
            HeaderTemplate::new(&self.config).write_notification(&mut self.headers);
            return Some(PayloadSource::Nothing);
        }
        let requests_first = self.turn.is_of(TurnKind::Requests);
        if requests_first && let Some(source) = self.next_request(now_ns, memory) {
            return Some(source);
        }
        if let Some(source) = self.next_answer(memory) {
            return Some(source);
        }
        if !requests_first && let Some(source) = self.next_request(now_ns, memory) {
            return Some(source);
        }
        if std::mem::take(&mut self.has_sent) && self.responder.acknowledge_after_request(now_ns) {
            return self.next_answer(memory);
        }
        None
    }

    fn next_answer<M: RegisteredMemory>(&mut self, memory: &M) -> Option<PayloadSource> {
        let answer = self.responder.next(memory, &mut self.headers);
        let answer = answer.unwrap_or_else(|()| {
            self.enter_error(None, CompletionStatus::Flushed);
            let last = self.responder.next(memory, &mut self.headers);
            last.ok().flatten()
        });
        if answer.is_some() {
            let is_inside = self.responder.is_inside_response();
            self.turn.sent(TurnKind::Responses, is_inside);
        }
        answer
    }

    fn next_request<M: RegisteredMemory>(
        &mut self,
        now_ns: u64,
        memory: &M,
    ) -> Option<PayloadSource> {
        if self.state == QueuePairState::Error
            || !self
                .retry
                .may_send(now_ns, self.requester.has_outstanding())
        {
            return None;
        }
        match self.requester.next(memory, &mut self.headers) {
            NextPacket::Packet(source, transmission) => {
                self.record_sent(now_ns, transmission);
                let is_inside = self.requester.is_inside_request();
                self.turn.sent(TurnKind::Requests, is_inside);
                Some(match transmission {
                    Transmission::Repeated(_) => source.repeated(),
                    Transmission::Timed(_) | Transmission::Untimed => source,
                })
            }
            NextPacket::Nothing => None,
            NextPacket::Failed(status) => {
                self.fail_oldest(status);
                None
            }
        }
    }

    fn record_sent(&mut self, now_ns: u64, transmission: Transmission) {
        self.has_sent = true;
        let timed = match transmission {
            Transmission::Timed(psn) => Some(psn),
            Transmission::Untimed => None,
            Transmission::Repeated(psn) => {
                self.counts.congestion.repeated += 1;
                self.retry.sent_again(Some(psn));
                None
            }
        };
        self.retry.sent(now_ns, timed);
    }

    /// Enters the error state; the oldest request completes with `status`.
    fn fail_oldest(&mut self, status: CompletionStatus) {
        self.responder.discard_responses();
        let psn = self.requester.oldest().map(|work| work.first);
        self.enter_error(psn, status);
    }

    /// Enters the error state; the request that contains `psn`, if any, completes with `status`. Queued responses are
    /// still sent.
    fn enter_error(&mut self, psn: Option<Psn>, status: CompletionStatus) {
        self.state = QueuePairState::Error;
        self.completer.fail(&mut self.requester, psn, status);
        let abandoned = self.responder.abandon();
        self.received.extend(abandoned);
    }
}
