// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver's side: posting of receives, arrival of whole messages, probe and matched probe.

use queue_layout::{
    ANY_PEER, ANY_TAG, FLAG_CANCELLED, FLAG_PERSISTENT, FLAG_PLAIN, Queued, RequestKind,
    RequestState, standing,
};

use crate::matching::Envelope;
use crate::request::CollectOutcome;
use crate::synchronous::KEPT_MARK;
use crate::{
    ArrivedFrame, ContextId, Engine, EventType, Exhausted, Output, Peer, ProbedMessage, Receive,
    RequestFailure, RequestId, wire,
};

impl Engine {
    /// Posts a receive. If its message has already arrived, the output is the action that delivers the message. With
    /// `persistent`, the receive is not posted: the request is inactive, to be started with
    /// [`restart_receive`](Self::restart_receive).
    ///
    /// # Errors
    /// [`Exhausted`] when no request slot is left.
    #[inline]
    pub fn start_receive(
        &mut self,
        receive: Receive,
        persistent: bool,
    ) -> Result<(RequestId, Option<Output>), Exhausted> {
        let request = self.arena.take()?;
        let sequence = self.next_sequence();
        self.arena.change(request, |fields| {
            fields.state = RequestState::Posted;
            fields.kind = RequestKind::Receive;
            fields.context = receive.context.0;
            fields.peer = receive.peer.map_or(ANY_PEER, |peer| peer.0);
            fields.tag = receive.tag.unwrap_or(ANY_TAG);
            fields.bytes = receive.bytes;
            fields.buffer = receive.buffer;
            fields.sequence = sequence;
        });
        if persistent {
            self.arena.change(request, |fields| {
                fields.state = RequestState::Inactive;
                fields.flags = FLAG_PERSISTENT;
            });
            return Ok((request, None));
        }
        Ok((request, self.post(request)))
    }

    /// The fast path of [`start_receive`](Self::start_receive), for a receive with a definite tag. Posts the receive if
    /// no unexpected message is in its bin, no receive with a wildcard is posted and a slot is free; returns the
    /// request's token. `None`: nothing was done. `datatype` is the handle for
    /// [`record_datatype`](Self::record_datatype).
    #[inline(always)]
    pub fn post_first(
        &mut self,
        context: ContextId,
        peer: Peer,
        tag: i32,
        (bytes, datatype): (u64, u32),
        buffer: u64,
    ) -> Option<u32> {
        let wanted = Envelope {
            context: context.0,
            peer: peer.0,
            tag,
        };
        let (bin, place) = self.matching.quiet_bin(wanted)?;
        let mut fields = self.arena.take_free()?.begin_change();
        self.sequence += 1;
        fields.record_datatype(datatype);
        fields.state = RequestState::Posted;
        fields.kind = RequestKind::Receive;
        fields.flags = FLAG_PLAIN;
        fields.context = context.0;
        fields.peer = peer.0;
        fields.tag = tag;
        fields.bytes = bytes;
        fields.buffer = buffer;
        fields.sequence = self.sequence;
        (fields.next, fields.bin) = (0, place);
        let token = fields.token;
        drop(fields);
        bin.append(&mut self.arena, RequestId(token));
        Some(token)
    }

    /// Matches an eager message without a mark (the number of a synchronous send) with the first receive of its queue.
    /// The fast path of [`arrive`](Self::arrive); returns the address of the receive's buffer and the number of bytes
    /// that fit. `None`: nothing was done.
    #[inline(always)]
    pub fn arrive_first(&mut self, peer: Peer, word: u64, bytes: u64) -> Option<(u64, u64)> {
        let (context, tag) = wire::envelope(word);
        let message = Envelope {
            context,
            peer: peer.0,
            tag,
        };
        // Only a forged frame has a negative tag; such a tag could be equal to `ANY_TAG`.
        if tag < 0 {
            return None;
        }
        let (_, slot) = self.matching.take_head(&mut self.arena, message)?;
        self.counters.match_attempts.add(1);
        let mut fields = slot.begin_change();
        fields.state = RequestState::Complete;
        fields.matched_peer = message.peer;
        fields.matched_tag = message.tag;
        fields.matched_bytes = bytes;
        if bytes > fields.bytes {
            fields.error = RequestFailure::Truncated as u8;
            self.counters.truncated.add(1);
        }
        Some((fields.buffer, bytes.min(fields.bytes)))
    }

    /// Matches an eager message without a mark (the number of a synchronous send) with the receive that a token names,
    /// and collects the receive in the same step: [`arrive_first`](Self::arrive_first) and
    /// [`collect_plain`](Self::collect_plain) in one. Only for receives from [`post_first`](Self::post_first). Returns
    /// the address of the receive's buffer. `None`: nothing was done.
    #[inline(always)]
    pub fn arrive_for(&mut self, receive: u32, peer: Peer, word: u64, bytes: u64) -> Option<u64> {
        const PLAIN: u32 = standing(RequestState::Posted, RequestKind::Receive, FLAG_PLAIN);
        let held = self.arena.hold(receive)?;
        let fields = held.fields();
        let awaited = fields.token == receive
            && fields.standing() == PLAIN
            && fields.envelope() == word
            && fields.peer == peer.0
            && fields.bytes >= bytes;
        if !awaited || !self.matching.take_first(fields) {
            return None;
        }
        let buffer = fields.buffer;
        // A posted receive that is not matched has no error.
        held.give_back_faultless();
        Some(buffer)
    }

    /// Collects a plain receive if it is complete: the fast path of [`collect`](Self::collect).
    #[inline(always)]
    pub fn collect_plain(&mut self, token: u32) -> CollectOutcome {
        self.arena.collect_plain(token)
    }

    /// Collects a persistent send or receive if it is complete and needs no special handling: the fast path of
    /// [`collect`](Self::collect).
    pub fn collect_persistent(&mut self, token: u32) -> CollectOutcome {
        self.arena.collect_persistent(token)
    }

    /// Starts an inactive persistent receive.
    pub fn restart_receive(&mut self, request: RequestId) -> Option<Output> {
        let sequence = self.next_sequence();
        self.arena.change(request, |fields| {
            fields.state = RequestState::Posted;
            fields.flags &= !FLAG_CANCELLED;
            fields.error = 0;
            fields.sequence = sequence;
        });
        self.post(request)
    }

    #[inline(always)]
    fn post(&mut self, request: RequestId) -> Option<Output> {
        let fields = self.arena.fields(request);
        let wanted = Envelope {
            context: fields.context,
            peer: fields.peer,
            tag: fields.tag,
        };
        match self.matching.find_unexpected(&self.arena, wanted) {
            None => {
                self.matching.add_posted(&mut self.arena, request);
                None
            }
            Some(message) => {
                self.unlink_unexpected(message);
                let kept = self.arena.fields(message).state == RequestState::Kept;
                self.match_message(request, message, kept)
            }
        }
    }

    #[inline(always)]
    pub(crate) fn arrive_eager(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let (context, tag) = wire::envelope(arrival.head.word);
        let message = Envelope {
            context,
            peer: arrival.peer.0,
            tag,
        };
        if tag < 0 || arrival.head.flags != 0 && !self.may_answer(arrival.peer) {
            return self.refuse();
        }
        let Some(request) = self.matching.take_posted(&mut self.arena, message) else {
            return self.arrive_unexpected(arrival, message);
        };
        if arrival.head.flags != 0 {
            self.answer_mark(arrival.peer, arrival.head.flags.into());
        }
        let bytes = self.matched(request, message, arrival.bytes, RequestState::Complete);
        self.note_request(EventType::RequestComplete, request);
        self.release_orphan(request);
        Some(Output::Deliver {
            request,
            offset: 0,
            bytes,
        })
    }

    /// Records in a receive the message that it matched; returns the number of bytes that fit.
    #[inline(always)]
    pub(crate) fn matched(
        &mut self,
        request: RequestId,
        message: Envelope,
        bytes: u64,
        state: RequestState,
    ) -> u64 {
        self.arena.change(request, |fields| {
            fields.state = state;
            fields.matched_peer = message.peer;
            fields.matched_tag = message.tag;
            fields.matched_bytes = bytes;
            if bytes > fields.bytes {
                fields.error = RequestFailure::Truncated as u8;
                self.counters.truncated.add(1);
            }
            bytes.min(fields.bytes)
        })
    }

    #[cold]
    #[inline(never)]
    fn arrive_unexpected(&mut self, arrival: &ArrivedFrame, message: Envelope) -> Option<Output> {
        if arrival.peer.0 as usize >= self.outboxes.len() {
            return self.refuse();
        }
        let id = self.add_unexpected(message, arrival.bytes, RequestState::Kept)?;
        self.arena.private(id).scratch[KEPT_MARK] = arrival.head.flags.into();
        self.charge(arrival.peer, arrival.bytes);
        Some(Output::Keep { message: id })
    }

    pub(crate) fn add_unexpected(
        &mut self,
        message: Envelope,
        bytes: u64,
        state: RequestState,
    ) -> Option<RequestId> {
        let Ok(id) = self.arena.take() else {
            self.counters.refused.add(1);
            return None;
        };
        let sequence = self.next_sequence();
        self.arena.change(id, |fields| {
            fields.state = state;
            fields.kind = RequestKind::Unexpected;
            fields.context = message.context;
            fields.peer = message.peer;
            fields.tag = message.tag;
            fields.bytes = bytes;
            fields.buffer = 0;
            fields.sequence = sequence;
        });
        self.matching.add_unexpected(&mut self.arena, id);
        self.counters.unexpected.add(1);
        self.counters.unexpected_length.add(1);
        self.counters
            .queues(Queued::Unexpected)
            .arrived(message.context);
        self.note_message(EventType::UnexpectedMessage, |_| {
            (message.context, message.peer, message.tag, bytes, 0)
        });
        Some(id)
    }

    /// Stores the body of a message, as requested by [`Output::Keep`].
    pub fn keep(&mut self, message: RequestId, body: Box<[u8]>) {
        let index = message.index();
        if self.bodies.len() <= index {
            self.bodies.resize_with(index + 1, || None);
        }
        self.arena.change(message, |fields| {
            fields.buffer = body.as_ptr().addr() as u64
        });
        self.bodies[index] = Some(body);
    }

    /// The body of a kept message.
    #[must_use]
    pub fn kept_body(&self, message: RequestId) -> &[u8] {
        self.bodies
            .get(message.index())
            .and_then(Option::as_deref)
            .unwrap_or_default()
    }

    /// Frees a kept message that was copied to its receive.
    pub fn drop_message(&mut self, message: RequestId) {
        let bytes = self.arena.fields(message).bytes;
        // The slot is freed first, so that a debugger never finds a message whose body is freed.
        self.arena.give_back(message);
        if let Some(body) = self.bodies.get_mut(message.index()) {
            *body = None;
        }
        self.refund(bytes);
    }

    /// The earliest message that a receive with this source and tag would match (MPI 5.0 section 3.8.1). The message
    /// stays in its queue.
    #[must_use]
    pub fn probe(
        &mut self,
        context: ContextId,
        peer: Option<Peer>,
        tag: Option<i32>,
    ) -> Option<ProbedMessage> {
        let wanted = Envelope {
            context: context.0,
            peer: peer.map_or(ANY_PEER, |peer| peer.0),
            tag: tag.unwrap_or(ANY_TAG),
        };
        let message = self.matching.find_unexpected(&self.arena, wanted)?;
        let fields = self.arena.fields(message);
        Some(ProbedMessage {
            message,
            peer: Peer(fields.peer),
            tag: fields.tag,
            bytes: fields.bytes,
        })
    }

    /// Removes a probed message from its queue, for a matched receive (MPI 5.0 section 3.8.2).
    pub fn claim(&mut self, found: ProbedMessage) {
        self.unlink_unexpected(found.message);
        self.arena.change(found.message, |fields| {
            // The new state does not show whether the data have arrived, so a scratch word does, for the engine only:
            // debuggers do not read scratch words.
            fields.scratch[4] = u64::from(fields.state == RequestState::Kept);
            fields.state = RequestState::Claimed;
        });
    }

    /// Receives a claimed message.
    ///
    /// # Errors
    /// [`Exhausted`] when no request slot is left; the message stays claimed.
    pub fn start_matched_receive(
        &mut self,
        message: RequestId,
        bytes: u64,
        buffer: u64,
    ) -> Result<(RequestId, Option<Output>), Exhausted> {
        let request = self.arena.take()?;
        let sequence = self.next_sequence();
        let envelope = *self.arena.fields(message);
        self.arena.change(request, |fields| {
            fields.state = RequestState::Posted;
            fields.kind = RequestKind::Receive;
            fields.context = envelope.context;
            fields.peer = envelope.peer;
            fields.tag = envelope.tag;
            fields.bytes = bytes;
            fields.buffer = buffer;
            fields.sequence = sequence;
        });
        let kept = envelope.scratch[4] == 1;
        Ok((request, self.match_message(request, message, kept)))
    }

    /// Completes the match of a receive with an unexpected message. `kept`: true if the message was kept (its data are
    /// here, or arrive in MORE frames), false if it was announced.
    fn match_message(
        &mut self,
        request: RequestId,
        message: RequestId,
        kept: bool,
    ) -> Option<Output> {
        let fields = *self.arena.fields(message);
        let envelope = Envelope {
            context: fields.context,
            peer: fields.peer,
            tag: fields.tag,
        };
        if kept {
            // A debugger must not show the message as unexpected any more, even if its data take long to arrive.
            self.arena
                .change(message, |fields| fields.state = RequestState::Claimed);
            if self.wait_if_incomplete(request, message) {
                self.matched(request, envelope, fields.bytes, RequestState::Moving);
                return None;
            }
            let bytes = self.matched(request, envelope, fields.bytes, RequestState::Complete);
            self.note_request(EventType::RequestComplete, request);
            if fields.scratch[KEPT_MARK] != 0 {
                self.answer_mark(Peer(fields.peer), fields.scratch[KEPT_MARK]);
            }
            return Some(Output::DeliverKept {
                request,
                message,
                bytes,
            });
        }
        self.arena.give_back(message);
        self.relax();
        let [token, k0, k1, k2, _] = fields.scratch;
        self.begin_transfer(
            request,
            envelope,
            fields.bytes,
            wire::low(token),
            [k0, k1, k2],
        )
    }

    pub(crate) fn unlink_unexpected(&mut self, message: RequestId) {
        self.matching.remove_unexpected(&mut self.arena, message);
        self.counters.unexpected_length.sub(1);
        let context = self.arena.fields(message).context;
        self.counters.queues(Queued::Unexpected).left(context);
        self.note_message(EventType::UnexpectedMatched, |engine| {
            let fields = engine.arena.fields(message);
            (context, fields.peer, fields.tag, fields.bytes, 0)
        });
    }

    /// Frees the slot of a completed receive that the application has freed. The owner delivers the data afterwards:
    /// the slot's buffer address stays readable until the slot is taken again.
    #[inline(always)]
    pub(crate) fn release_orphan(&mut self, request: RequestId) {
        if self.arena.fields(request).flags & queue_layout::FLAG_ORPHAN != 0 {
            self.arena.give_back(request);
        }
    }
}
