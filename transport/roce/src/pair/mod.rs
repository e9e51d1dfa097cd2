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

use completer::{Completer, Verdict};
pub use config::{Config, ConfigError, PathMtu};
use congestion::{Congestion, Notifier};
use outgoing::{Label, Source};
pub use outgoing::{Outgoing, Payload};
pub use receives::ReceiveQueue;
pub use request::{Body, Completion, MESSAGE_BYTES_MAX, Operation, PostError, Request, Status};
use requester::{Leaves, Next, Requester};
use responder::{Heard, Responder};
use retry::Retry;

use crate::format::{Headers, Opcode, Packet, Service};
use crate::memory::Memory;
use crate::psn::Psn;

/// A reliable queue pair that is connected.
#[derive(Debug)]
pub struct QueuePair {
    config: Config,
    state: State,
    requester: Requester,
    completer: Completer,
    retry: Retry,
    congestion: Congestion,
    responder: Responder,
    notifier: Notifier,
    /// Completions of receives; each was a buffer of this process, so there are no more than it posts.
    received: VecDeque<Completion>,
    /// Answers and requests leave in turn.
    is_turn_of_requests: bool,
    /// Requests have left since there was nothing more to send: an acknowledgement that is owed goes with them.
    has_sent: bool,
    /// Headers of the packet that leaves.
    headers: Headers,
    counts: Counts,
}

/// Whether a queue pair works. IBTA vol. 1 section 10.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It sends and receives.
    Ready,
    /// It has broken: what is posted comes back as [`Status::Flushed`].
    Error,
}

/// Which completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Of work requests.
    Sends,
    /// Of receive buffers.
    Receives,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were handed out.
    pub sent: u64,
    /// Packets that were not for this queue pair, or came after it had broken.
    pub dropped: u64,
    /// Times that all unacknowledged packets were sent again, since the peer or a gap said so.
    pub went_back: u64,
    /// Times that the peer had no receive buffer.
    pub not_ready: u64,
    /// Packets that were sent again, and what else goes wrong on the way.
    pub troubles: Troubles,
}

/// What users ask for when a network is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
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
            state: State::Ready,
            requester: Requester::new(&config),
            completer: Completer::new(config.number),
            retry: Retry::new(&config),
            congestion: Congestion::new(&config),
            notifier: Notifier::default(),
            responder: Responder::new(&config),
            received: VecDeque::new(),
            is_turn_of_requests: false,
            has_sent: false,
            headers: Headers::EMPTY,
            counts: Counts::default(),
        })
    }

    /// What it was told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it works.
    pub fn state(&self) -> State {
        self.state
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        Counts {
            troubles: self.troubles(),
            ..self.counts
        }
    }

    /// What has gone wrong so far.
    pub fn troubles(&self) -> Troubles {
        Troubles {
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
    pub fn post(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        self.requester.post(request, self.completer.unpolled())?;
        if self.state == State::Error {
            self.completer
                .fail(&mut self.requester, None, Status::Flushed);
        }
        Ok(())
    }

    /// Takes the next completion.
    pub fn poll(&mut self, queue: Queue) -> Option<Completion> {
        match queue {
            Queue::Sends => self.completer.poll(),
            Queue::Receives => self.received.pop_front(),
        }
    }

    /// Breaks it: all that was posted comes back as [`Status::Flushed`].
    pub fn fail(&mut self) {
        self.responder.silence();
        self.break_with(None, Status::Flushed);
    }

    /// Whoever watches over the peer's process says that it lives. So a peer of ours that computes and does not answer is not
    /// given up.
    pub fn peer_lives(&mut self, now_ns: u64) {
        self.retry.lives(now_ns);
    }

    /// When [`next_outgoing`](Self::next_outgoing) has something to do even if nothing comes, in the time of its `now_ns`.
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Ready => {
                let times = [self.retry.deadline(), self.responder.owed_at()];
                times.into_iter().flatten().min()
            }
            State::Error => None,
        }
    }

    /// A packet has come from this address, and its checksum was right.
    pub fn receive<M: Memory>(
        &mut self,
        now_ns: u64,
        from: IpAddr,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) {
        if self.state == State::Error || !self.is_ours(from, packet) {
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
                    State::Ready => self.responder.next_kept(memory, receives),
                    State::Error => None,
                };
            }
            self.responder.keep_time(now_ns);
        }
    }

    /// The next packet that is to be sent, if there is one. The caller asks until there is none: after a packet has come,
    /// after something was posted, and when the [`deadline`](Self::deadline) has passed.
    pub fn next_outgoing<M: Memory>(&mut self, now_ns: u64, memory: &M) -> Option<Outgoing<'_>> {
        self.look_at_clock(now_ns);
        let source = self.next_source(now_ns, memory)?;
        self.counts.sent += 1;
        let payload = match source {
            Source::Nothing => Payload::Nothing,
            Source::Piece(piece) | Source::Repeated(piece) => Payload::Piece(piece),
            Source::Inline {
                index,
                offset,
                bytes,
            } => Payload::Inline(self.requester.inline(index, offset, bytes)),
        };
        Some(Outgoing {
            to: self.config.to,
            headers: &self.headers,
            payload,
            is_repeated: matches!(source, Source::Repeated(_)),
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

    fn note_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Received(completion) => self.received.push_back(completion),
            Heard::Broken(completion) => {
                self.received.extend(completion);
                self.break_with(None, Status::Flushed);
            }
        }
    }

    fn answered<M: Memory>(&mut self, now_ns: u64, packet: &Packet<'_>, memory: &mut M) {
        let before = self.requester.unacked();
        let mut verdict = self.completer.answer(&mut self.requester, packet, memory);
        if self.requester.unacked() != before || verdict == Verdict::Ahead {
            let more = self.requester.has_under_way();
            self.retry.progress(now_ns, more);
            if self.requester.shows_gap(packet.bth.psn) && verdict == Verdict::Fine {
                verdict = Verdict::GoBack;
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
            Verdict::Fine | Verdict::Ahead => {}
            Verdict::GoBack => {
                if self.retry.should_go_back() {
                    self.counts.went_back += 1;
                    self.requester.go_back();
                    self.retry.sent_again(None);
                }
            }
            Verdict::NotReady(psn, timer) => match self.retry.not_ready(now_ns, timer) {
                Ok(is_news) => {
                    if is_news {
                        self.counts.not_ready += 1;
                        self.requester.refused(psn);
                        self.retry.sent_again(None);
                    }
                }
                Err(status) => self.break_oldest(status),
            },
            Verdict::Failed(psn, status) => {
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
        if self.state == State::Error {
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
    fn next_source<M: Memory>(&mut self, now_ns: u64, memory: &M) -> Option<Source> {
        if self.notifier.take() {
            Label::new(&self.config).write_notification(&mut self.headers);
            return Some(Source::Nothing);
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

    fn next_answer<M: Memory>(&mut self, memory: &M) -> Option<Source> {
        let answer = self.responder.next(memory, &mut self.headers);
        let answer = answer.unwrap_or_else(|()| {
            self.break_with(None, Status::Flushed);
            let last = self.responder.next(memory, &mut self.headers);
            last.ok().flatten()
        });
        self.is_turn_of_requests = answer.is_some() && self.state == State::Ready;
        answer
    }

    fn next_request<M: Memory>(&mut self, now_ns: u64, memory: &M) -> Option<Source> {
        if self.state == State::Error
            || !self.retry.may_send(now_ns, self.requester.has_under_way())
        {
            return None;
        }
        match self.requester.next(memory, &mut self.headers) {
            Next::Packet(source, leaves) => {
                self.has_left(now_ns, leaves);
                Some(match leaves {
                    Leaves::Again(_) => source.repeated(),
                    Leaves::First(_) | Leaves::Unasked => source,
                })
            }
            Next::Nothing => None,
            Next::Failed(status) => {
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
    fn break_oldest(&mut self, status: Status) {
        self.responder.silence();
        let psn = self.requester.oldest().map(|work| work.first);
        self.break_with(psn, status);
    }

    /// Breaks it; the request of packet number `psn` ends with `status`. Answers that wait still leave.
    fn break_with(&mut self, psn: Option<Psn>, status: Status) {
        self.state = State::Error;
        self.completer.fail(&mut self.requester, psn, status);
        let abandoned = self.responder.abandon();
        self.received.extend(abandoned);
    }
}
