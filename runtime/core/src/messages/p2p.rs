// SPDX-License-Identifier: MIT OR Apache-2.0
//! Point-to-point operations of a process (MPI 5.0 chapter 3), with communicators and C arguments already resolved.

use engine::{ContextId, Peer, ProbedMessage, RequestId, RequestState, Send, wire};
use transport::{Arrived, Fabric, Head, SLOT_BODY_BYTES};

use super::Messages;
use crate::Error;
use crate::carrier::carrier;
use crate::operation::{
    Mode, NO_BUFFER, ReceiveSource, SendTarget, described, exhausted, scattered, wanted,
};
use crate::pack::Structured;
use crate::pump;
use crate::request_data::RequestData;
use crate::user_buf::UserMemory;
use crate::var::Variable;
use crate::var::live::live_u32;

/// A message may wait for the next turn of progress, as messages of [deferrable](Mode::Deferrable) sends do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferred;

/// What the fast path of a send does with a message to a peer on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToFarPeer {
    /// Posts it.
    Post,
    /// Posts it; it may be [`Deferred`].
    Defer,
    /// Leaves it to the general path.
    Leave,
}

impl Messages {
    /// Starts a send. `None`: the send is complete already, and no request is needed.
    ///
    /// # Errors
    /// When no request slot is left.
    #[inline]
    pub fn send(
        &mut self,
        target: SendTarget,
        memory: UserMemory,
        mode: Mode,
    ) -> Result<Option<RequestId>, Error> {
        if self.gates.tracks_sends() {
            self.gates.before_send(&mut self.pump, target);
        }
        let small = self.pump.limits.sends_at_once(memory.bytes() as u64);
        if small && mode.is_standard() && self.pump.engine.is_clear(target.peer) {
            let head = pump::head(wire::eager(target.context, target.tag));
            let (to, body) = (carrier(target.peer), memory.as_slice());
            if post(&mut self.pump.fabric, to, head, body, mode) {
                self.pump.traffic.count(target.peer, memory.bytes() as u64);
                return Ok(None);
            }
        }
        self.send_later(target, memory, mode).map(Some)
    }

    /// The fast path of sending: posts a message of `BYTES` bytes (at most eight) in one word. `None`: nothing was
    /// posted, and the general path must send the message. `Some(false)`: it was posted, and the caller must call
    /// [`ring_bell`](Self::ring_bell).
    #[inline(always)]
    pub fn send_word<const BYTES: u8>(
        &mut self,
        peer: Peer,
        envelope: impl FnOnce() -> (ContextId, i32),
        word: impl FnOnce() -> u64,
    ) -> Option<bool> {
        if !self.pump.engine.is_all_clear() {
            return None;
        }
        let head = || {
            let (context, tag) = envelope();
            Head {
                len: BYTES,
                ..pump::head(wire::eager(context, tag))
            }
        };
        self.pump
            .fabric
            .post_word::<BYTES>(carrier(peer), head, word)
    }

    /// Whether messages of [deferrable](Mode::Deferrable) sends may wait for the next turn of progress.
    #[inline]
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        self.pump.fabric.has_deferred()
    }

    /// The fast path of sending, for a message of any size to any peer, if it can be posted immediately. Returns what
    /// [`send_word`](Self::send_word) returns, or that the message may be deferred.
    #[inline(always)]
    pub fn send_fast(
        &mut self,
        peer: Peer,
        (context, tag): (ContextId, i32),
        memory: UserMemory,
        to_far: ToFarPeer,
    ) -> Option<Result<bool, Deferred>> {
        let bytes = memory.bytes() as u64;
        if !self.pump.limits.sends_at_once(bytes) || !self.pump.engine.is_all_clear() {
            return None;
        }
        let is_counted = bytes > SLOT_BODY_BYTES as u64;
        if is_counted && !self.counts_send() {
            return None;
        }
        let head = pump::head(wire::eager(context, tag));
        let (to, body) = (carrier(peer), memory.as_slice());
        let posted = match (self.pump.fabric.post_fast(to, head, body), to_far) {
            (Some(posted), _) => posted,
            (None, ToFarPeer::Post) => {
                if !self.pump.fabric.post_far_word(to, head, body) {
                    return None;
                }
                true
            }
            (None, ToFarPeer::Defer) => {
                let may_send = is_counted || self.counts_send();
                if !may_send || !self.pump.fabric.post_far_deferrable(to, head, body) {
                    return None;
                }
                self.pump.traffic.count(peer, bytes);
                return Some(match self.has_deferred() {
                    true => Err(Deferred),
                    false => Ok(true),
                });
            }
            (None, ToFarPeer::Leave) => {
                // The general path counts the send.
                self.sends_since_poll -= u32::from(is_counted);
                return None;
            }
        };
        self.pump.traffic.count(peer, bytes);
        Some(Ok(posted))
    }

    /// Counts a send on the fast path. `false`: a poll for arrivals is due, so the send is left to the general path,
    /// which polls.
    #[inline(always)]
    fn counts_send(&mut self) -> bool {
        let is_due = self.sends_since_poll + 1 >= live_u32(Variable::SendsPerLook);
        self.sends_since_poll += u32::from(!is_due);
        !is_due
    }

    /// Wakes a peer that sleeps, after a message was posted to it.
    pub fn ring_bell(&mut self, peer: Peer) {
        self.pump.fabric.ring_bell(carrier(peer));
    }

    /// The fast path of receiving: posts a receive if no special handling is needed, and returns its token. `None`:
    /// nothing was done. `datatype`: handle of the datatype, for debuggers.
    #[inline(always)]
    pub fn receive_first(
        &mut self,
        target: SendTarget,
        memory: UserMemory,
        datatype: u32,
    ) -> Option<u32> {
        let SendTarget { context, peer, tag } = target;
        let bytes = memory.bytes() as u64;
        self.pump
            .engine
            .post_first(context, peer, tag, (bytes, datatype), memory.address())
    }

    /// Records the datatype of a request for debuggers. `handle`: the datatype's handle as the application passed it.
    pub fn record_datatype(&mut self, request: RequestId, handle: u32) {
        self.pump.engine.record_datatype(request, handle);
    }

    #[inline(never)]
    fn send_later(
        &mut self,
        target: SendTarget,
        memory: UserMemory,
        mode: Mode,
    ) -> Result<RequestId, Error> {
        let mut send = described(target, memory, mode);
        if !self.pump.goes_whole(send.bytes, send.synchronous) {
            send.key = self.pump.export(send.peer, send.buffer, send.bytes);
        }
        send.early = self.pump.goes_early(send.peer, send.bytes, send.key);
        let request = self.pump.engine.start_send(send).map_err(|_| exhausted())?;
        self.pump.traffic.count(send.peer, send.bytes);
        self.pump.lend(request, send.key);
        self.pump.drain_outbox(target.peer);
        Ok(request)
    }

    /// Starts a send of noncontiguous data. `None`: the send is complete already. Data that cannot be posted
    /// immediately are packed frame by frame, when the transport has room for the next frame.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn send_structured(
        &mut self,
        target: SendTarget,
        data: &Structured,
        mode: Mode,
    ) -> Result<Option<RequestId>, Error> {
        let bytes = data.bytes();
        if self.pump.limits.is_eager(bytes) {
            if mode.is_standard() && self.send_packed(target, data, mode) {
                return Ok(None);
            }
            return self.send_owned(target, data.pack(), mode);
        }
        if self.gates.tracks_sends() {
            self.gates.before_send(&mut self.pump, target);
        }
        let send = Send {
            peer: target.peer,
            context: target.context,
            tag: target.tag,
            bytes,
            buffer: NO_BUFFER,
            synchronous: mode == Mode::Synchronous,
            early: bytes <= self.pump.engine.config().early_limit_bytes
                && target.peer != self.pump.me,
            key: wire::NO_KEY,
        };
        let request = self.pump.engine.start_send(send).map_err(|_| exhausted())?;
        self.pump.traffic.count(send.peer, send.bytes);
        let side = RequestData::Streamed { data: data.clone() };
        let token = self.pump.engine.arena().token(request);
        self.pump.sides.insert(token, side);
        self.pump.drain_outbox(target.peer);
        Ok(Some(request))
    }

    /// Posts noncontiguous data in one frame, if no frame waits for the peer and the transport has room. `false`:
    /// nothing was posted.
    fn send_packed(&mut self, target: SendTarget, data: &Structured, mode: Mode) -> bool {
        let bytes = data.bytes();
        let is_free = !self.gates.tracks_sends() && self.pump.engine.is_clear(target.peer);
        if !is_free || !self.pump.limits.sends_at_once(bytes) {
            return false;
        }
        let body = self.pump.sides.room(bytes);
        data.pack_at(0, body);
        let head = pump::head(wire::eager(target.context, target.tag));
        let to = carrier(target.peer);
        let is_posted = post(&mut self.pump.fabric, to, head, body, mode);
        if is_posted {
            self.pump.traffic.count(target.peer, bytes);
        }
        is_posted
    }

    /// Starts a send of bytes that are owned by the request until the send is complete. `None`: the send is complete
    /// already.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn send_owned(
        &mut self,
        target: SendTarget,
        mut bytes: Box<[u8]>,
        mode: Mode,
    ) -> Result<Option<RequestId>, Error> {
        let request = self.send(target, UserMemory::of(&mut bytes), mode)?;
        if let Some(request) = request {
            let token = self.pump.engine.arena().token(request);
            self.pump
                .sides
                .insert(token, RequestData::Sent { _bytes: bytes });
        }
        Ok(request)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// When no request slot is left.
    #[inline]
    pub fn receive(
        &mut self,
        source: ReceiveSource,
        memory: UserMemory,
    ) -> Result<RequestId, Error> {
        if self.gates.tracks_receives() {
            self.gates.before_receive(&mut self.pump, source);
        }
        let receive = wanted(source, memory);
        let (request, output) = self
            .pump
            .engine
            .start_receive(receive, false)
            .map_err(|_| exhausted())?;
        if let Some(output) = output {
            self.pump.carry_out_at_once(output);
        }
        Ok(request)
    }

    /// Posts a receive of noncontiguous data.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn receive_structured(
        &mut self,
        source: ReceiveSource,
        data: Structured,
    ) -> Result<RequestId, Error> {
        if self.gates.tracks_receives() {
            self.gates.before_receive(&mut self.pump, source);
        }
        let (request, output) = self
            .pump
            .engine
            .start_receive(scattered(source, &data), false)
            .map_err(|_| exhausted())?;
        self.pump.keep_structured(request, data);
        if let Some(output) = output {
            self.pump.carry_out_at_once(output);
        }
        Ok(request)
    }

    /// The earliest unexpected message that a receive from `source` would match; `None`: there is none. Does not poll.
    pub fn find_message(&mut self, source: ReceiveSource) -> Option<ProbedMessage> {
        if self.gates.tracks_receives() {
            self.gates.before_receive(&mut self.pump, source);
        }
        self.pump
            .engine
            .probe(source.context, source.peer, source.tag)
    }

    /// Removes a message that a matched probe has found from the queue of unexpected messages (`MPI_Mprobe`).
    pub fn claim(&mut self, found: ProbedMessage) {
        self.pump.engine.claim(found);
    }

    /// Receives a claimed message.
    ///
    /// # Errors
    /// When no request slot is left; the message stays claimed.
    pub fn receive_claimed(
        &mut self,
        message: RequestId,
        memory: UserMemory,
    ) -> Result<RequestId, Error> {
        let (bytes, buffer) = (memory.bytes() as u64, memory.address());
        let started = self
            .pump
            .engine
            .start_matched_receive(message, bytes, buffer);
        let (request, output) = started.map_err(|_| exhausted())?;
        if let Some(output) = output {
            self.pump.carry_out_at_once(output);
        }
        Ok(request)
    }

    /// Receives a claimed message into noncontiguous data.
    ///
    /// # Errors
    /// When no request slot is left; the message stays claimed.
    pub fn receive_claimed_structured(
        &mut self,
        message: RequestId,
        data: Structured,
    ) -> Result<RequestId, Error> {
        let started = self
            .pump
            .engine
            .start_matched_receive(message, data.bytes(), NO_BUFFER);
        let (request, output) = started.map_err(|_| exhausted())?;
        self.pump.keep_structured(request, data);
        if let Some(output) = output {
            self.pump.carry_out_at_once(output);
        }
        Ok(request)
    }

    /// Marks a request for cancellation. The outcome is known after further turns of progress.
    pub(crate) fn cancel(&mut self, request: RequestId) {
        self.gates.before_cancel(&mut self.pump, request);
        self.pump.engine.cancel(request);
        self.pump.drain();
    }

    /// Frees a request that is not a task; its operation still completes.
    pub(crate) fn free(&mut self, request: RequestId) {
        self.bundles.drop_replay(request, self.pump.engine.arena());
        self.gates.forget_member(&mut self.pump, request);
        if !self.pump.sides.is_empty() && self.free_with_data(request) {
            return;
        }
        self.pump.engine.free(request);
    }

    /// Frees a request whose operation is in progress and whose data are outside its slot. The slot is freed only when
    /// the operation is complete, because the data may still have to be packed or unpacked. `false`: it is not such a
    /// request, and the caller must free it.
    #[cold]
    fn free_with_data(&mut self, request: RequestId) -> bool {
        let token = self.pump.engine.arena().token(request);
        let state = self.pump.engine.arena().fields(request).state;
        if matches!(state, RequestState::Inactive | RequestState::Complete) {
            self.pump.sides.remove(token);
            return false;
        }
        let has_side = self.pump.sides.has(token);
        if has_side {
            self.bundles.give_up(request);
        }
        has_side
    }

    /// Frees the slot of a complete request whose status was read. A persistent request becomes inactive instead.
    #[inline]
    pub(crate) fn release(&mut self, request: RequestId) {
        if !self.pump.sides.is_empty() {
            self.pump.drop_data(request);
        }
        self.pump.engine.collect(request);
    }

    /// Takes in a frame for the engine.
    #[inline(always)]
    pub(crate) fn take_in_message(&mut self, arrived: &Arrived) {
        if self.gates.tracks_receives() {
            return self.take_in_gated(arrived);
        }
        self.pump.take_in(arrived);
    }

    /// Takes in a frame that may be a message of a class with gates.
    #[cold]
    #[inline(never)]
    fn take_in_gated(&mut self, arrived: &Arrived) {
        let is_message = matches!(arrived.head.kind, wire::EAGER | wire::RTS | wire::FIRST);
        let class = is_message
            .then(|| self.gates.count_message(&mut self.pump, arrived))
            .flatten();
        self.pump.take_in(arrived);
        if let Some(class) = class {
            self.gates.after_message(&mut self.pump, class);
        }
    }
}
/// Posts a frame. `false`: nothing was posted.
#[inline(always)]
fn post(fabric: &mut Fabric, to: transport::Peer, head: Head, body: &[u8], mode: Mode) -> bool {
    let posted = match mode {
        Mode::Deferrable => fabric.post_deferrable(to, head, body),
        Mode::Standard | Mode::Synchronous => fabric.post_send(to, head, body),
    };
    posted.is_ok()
}
