// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast paths of requests: requests that are complete already, or become complete after a bounded number of polls.
//!
//! Here *collecting* a request means what a successful wait or test does: the request is freed, or becomes inactive if
//! it is persistent. Each function returns `None` or `false` if a request or a frame needs special handling. The caller
//! then continues on the general path.

use engine::{CollectOutcome, Peer, ReceivedMessage, RequestKind, RequestState, wire};
use transport::{Arrived, NetWord, WordPoll};

use crate::Universe;
use crate::pump::{PolledFrame, Small};
use crate::user_buf;

/// Outcome of a request that a fast path has collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A receive, with its message.
    Received(ReceivedMessage),
    /// A send.
    Sent,
}

impl Universe {
    /// The fast path of waiting, for a plain receive (not persistent, and of contiguous data) or one that
    /// [`receive_first`](crate::Messages::receive_first) started. Polls a bounded number of times. `None`: nothing was
    /// collected, because the receive is not complete yet or not plain.
    #[inline(always)]
    pub fn wait_briefly(&mut self, token: u32) -> Option<ReceivedMessage> {
        match self.messages.pump.take_in_awaited(token) {
            Some(received) => Some(received),
            None => self.wait_a_little(token),
        }
    }

    /// The second part of [`wait_briefly`](Self::wait_briefly), if the next frame is not a message of eight bytes for
    /// this receive.
    #[inline(never)]
    fn wait_a_little(&mut self, token: u32) -> Option<ReceivedMessage> {
        match self.messages.pump.take_in_small(token) {
            Ok(ended) => Some(ended),
            Err(Small::Longer) => self.wait_for_long(token),
            Err(Small::Other) => self.wait_for_other(token),
        }
    }

    /// Continues [`wait_briefly`](Self::wait_briefly) if the body of the next frame is in a buffer of its sender.
    #[inline(never)]
    fn wait_for_long(&mut self, token: u32) -> Option<ReceivedMessage> {
        match self.messages.pump.take_in_long(token) {
            Some(received) => Some(received),
            None => self.wait_for_other(token),
        }
    }

    /// The last part of [`wait_briefly`](Self::wait_briefly), if the parts before did not collect the receive: it may
    /// be complete already, or its message has not arrived, or another frame comes first.
    #[inline(never)]
    fn wait_for_other(&mut self, token: u32) -> Option<ReceivedMessage> {
        if !self.messages.pump.sides.is_empty() {
            return None;
        }
        for _ in 0..BRIEF_POLLS {
            match self.messages.pump.engine.collect_plain(token) {
                CollectOutcome::Done(received) => return Some(received),
                CollectOutcome::NotYet => {}
                CollectOutcome::Special | CollectOutcome::Sent => return None,
            }
            if let Some(ended) = self.messages.pump.take_in_awaited(token) {
                return Some(ended);
            }
            match self.messages.pump.take_in_first(token) {
                PolledFrame::Awaited(received) => return Some(received),
                PolledFrame::Taken => {}
                PolledFrame::Nothing if self.messages.pump.fabric.is_attentive() => {
                    std::hint::spin_loop()
                }
                // After some hundreds of frames only a full poll returns more of them. This call makes such a poll, and
                // stays on the fast path.
                PolledFrame::Other if self.messages.pump.fabric.has_run_out() => {
                    self.progress_without_first()
                }
                PolledFrame::Other if self.polls_network() => {
                    if let Some(ended) = self.poll_network(token) {
                        return Some(ended);
                    }
                }
                PolledFrame::Nothing | PolledFrame::Other => return None,
            }
        }
        None
    }

    /// Polls the network once; if no other transport is in use, up to `NETWORK_POLLS` times, until a frame arrives.
    /// Takes in the frame. If the frame is the message for the receive of `token` and has a body of eight bytes,
    /// collects that receive.
    #[inline(always)]
    fn poll_network(&mut self, token: u32) -> Option<ReceivedMessage> {
        let polls = if self.messages.pump.fabric.is_all_networked() {
            NETWORK_POLLS
        } else {
            1
        };
        for _ in 0..polls {
            match self.messages.pump.fabric.poll_word() {
                WordPoll::Nothing => {}
                WordPoll::Word(far) => return self.take_in_network_word(token, far),
                WordPoll::Frame(arrived) => {
                    self.take_in_one_far(&arrived);
                    break;
                }
                WordPoll::Poll => {
                    self.progress();
                    break;
                }
            }
        }
        None
    }

    /// Takes in a network frame with a body of eight bytes. If the frame is the message for the receive of `token`,
    /// collects that receive.
    #[inline(always)]
    pub(crate) fn take_in_network_word(
        &mut self,
        token: u32,
        far: NetWord,
    ) -> Option<ReceivedMessage> {
        self.completions_seen = self.completions_seen.wrapping_add(1);
        let (peer, head) = (Peer(far.peer.0), far.head);
        if head.kind == wire::EAGER
            && head.flags == 0
            && let Some(buffer) = self
                .messages
                .pump
                .engine
                .arrive_for(token, peer, head.word, 8)
        {
            user_buf::put_word(buffer, far.word);
            return Some(ReceivedMessage::in_frame(peer, head.word, 8));
        }
        self.take_in_net_word(far);
        None
    }

    /// Takes in a network frame, and posts the frames that can be sent as a result.
    #[inline(never)]
    fn take_in_one_far(&mut self, arrived: &Arrived) {
        self.completions_seen = self.completions_seen.wrapping_add(1);
        self.take_in_frame(arrived);
        if self.messages.pump.engine.busy_peers() != 0 {
            self.messages.pump.drain();
        }
    }

    #[inline(never)]
    fn take_in_net_word(&mut self, far: NetWord) {
        self.take_in_frame(&far.arrived());
    }

    /// Whether a wait may poll the network on the fast path: a network is in use, and no other process needs the core.
    fn polls_network(&self) -> bool {
        self.messages.pump.fabric.has_network() && !self.waiting.crowding.is_crowded()
    }

    /// Starts an inactive persistent send or receive. `false`: nothing was done, because the request is not such a
    /// request or because gates are in use (`gates.rs`).
    #[inline]
    pub fn start_fast(&mut self, token: u32) -> bool {
        if self.messages.gates.tracks_sends() || self.messages.gates.tracks_receives() {
            return false;
        }
        let Some(request) = self.messages.find_request(token) else {
            return false;
        };
        let fields = self.messages.pump.engine.arena().fields(request);
        if fields.state != RequestState::Inactive {
            return false;
        }
        match fields.kind {
            RequestKind::Send => self.sending().restart_send(request),
            RequestKind::Receive => self.messages.restart_receive(request),
            _ => return false,
        }
        true
    }

    /// Polls a bounded number of times for the completion of a persistent request, and collects it: it is inactive
    /// afterwards. `None`: nothing was collected.
    #[inline(never)]
    pub fn wait_for_started(&mut self, token: u32) -> Option<Ended> {
        if !self.messages.pump.sides.is_empty() {
            return None;
        }
        for _ in 0..BRIEF_POLLS {
            match self.messages.pump.engine.collect_persistent(token) {
                CollectOutcome::Done(received) => return Some(Ended::Received(received)),
                CollectOutcome::Sent => return Some(Ended::Sent),
                CollectOutcome::NotYet => {}
                CollectOutcome::Special => return None,
            }
            if !self.poll_first() {
                return None;
            }
        }
        None
    }

    /// Polls once for a wait. `false`: the next frame needs the general path, or there is no frame and other processes
    /// may need the core.
    #[inline]
    fn poll_first(&mut self) -> bool {
        match self.messages.pump.take_in_first(NO_TOKEN) {
            PolledFrame::Taken | PolledFrame::Awaited(..) => true,
            PolledFrame::Nothing if self.messages.pump.fabric.is_attentive() => {
                std::hint::spin_loop();
                true
            }
            PolledFrame::Other if self.messages.pump.fabric.has_run_out() => {
                self.progress_without_first();
                true
            }
            PolledFrame::Nothing | PolledFrame::Other => false,
        }
    }

    /// For test calls: collects a receive that [`receive_first`](crate::Messages::receive_first) has posted, if its
    /// message is the next frame. Returns what [`wait_briefly`](Self::wait_briefly) returns.
    #[inline]
    pub fn take_if_first(&mut self, token: u32) -> Option<ReceivedMessage> {
        let awaited = self.messages.pump.take_in_awaited(token);
        let ended = awaited
            .or_else(|| self.messages.pump.take_in_small(token).ok())
            .or_else(|| self.messages.pump.take_in_long(token))?;
        self.waiting.polling.begin_anew();
        Some(ended)
    }

    /// For test calls: takes in the next frames, at most `BRIEF_POLLS`. `false`: none was taken in.
    #[inline]
    pub fn take_in_arrived(&mut self) -> bool {
        if !self.messages.pump.sides.is_empty() {
            return false;
        }
        let taken = (0..BRIEF_POLLS)
            .take_while(|_| self.messages.pump.take_in_first(NO_TOKEN) == PolledFrame::Taken);
        let has_taken = taken.count() != 0;
        if has_taken {
            self.waiting.polling.begin_anew();
        }
        has_taken
    }

    /// For a test call on a send or receive in progress: makes a turn of progress. `true`: the request is not complete.
    /// `false`: it may be complete, or the general path must continue.
    #[inline]
    pub fn is_not_yet(&mut self, token: u32) -> bool {
        let Some(request) = self.messages.find_request(token) else {
            return false;
        };
        let fields = self.messages.pump.engine.arena().fields(request);
        let is_under_way = matches!(fields.kind, RequestKind::Send | RequestKind::Receive)
            && !matches!(
                fields.state,
                RequestState::Complete | RequestState::Inactive
            )
            && !self.messages.is_freed(request);
        is_under_way && {
            let moved = self.progress();
            !moved
                && !self
                    .waiting
                    .polling_is_long(moved, &self.messages.pump.fabric)
        }
    }

    /// Collects a send or receive that is complete and needs no special handling; `None`: the request is not complete,
    /// or needs the general path. The second value of the result: whether the handle stays valid, because the request
    /// is persistent.
    #[inline]
    pub fn collect_fast(&mut self, token: u32) -> Option<(Ended, bool)> {
        if !self.messages.is_collectable(token) {
            return None;
        }
        let request = self.messages.find_request(token)?;
        let stays = self.messages.is_persistent(request);
        let collected = match stays {
            true => self.messages.pump.engine.collect_persistent(token),
            false => self.messages.pump.engine.collect_plain(token),
        };
        self.waiting.polling.begin_anew();
        match collected {
            CollectOutcome::Done(received) => Some((Ended::Received(received), stays)),
            CollectOutcome::Sent => Some((Ended::Sent, stays)),
            CollectOutcome::NotYet | CollectOutcome::Special => None,
        }
    }
}

/// Maximum number of consecutive polls of the network if no other transport is in use.
const NETWORK_POLLS: u32 = 16;
/// Maximum number of polls of the fast path, before the wait continues on the general path.
const BRIEF_POLLS: u32 = 64;
/// A token that no request has.
const NO_TOKEN: u32 = 0;
