// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender's side: starting sends and persistent sends. Also completion and release of all requests.

use queue_layout::{
    FLAG_CANCELLED, FLAG_CANCELLING, FLAG_EARLY, FLAG_GATED, FLAG_LENT, FLAG_ORPHAN,
    FLAG_PERSISTENT, FLAG_SYNCHRONOUS, RequestFields, RequestKind, RequestState,
};

use crate::credit::PendingFrame;
use crate::synchronous::MARK;
use crate::{ContextId, Engine, EventType, Exhausted, Peer, RequestFailure, RequestId, Send};

impl Engine {
    /// Starts a send: takes a slot and queues the message behind the frames that wait for the peer. If the message is
    /// small and the peer [is clear](Self::is_clear), the owner can post it directly instead.
    ///
    /// # Errors
    /// [`Exhausted`] when no request slot is left.
    pub fn start_send(&mut self, send: Send) -> Result<RequestId, Exhausted> {
        let request = self.arena.take()?;
        self.fill_send(request, send, 0);
        self.put_off(send.peer, PendingFrame::Message(request));
        Ok(request)
    }

    /// Makes a persistent send request, inactive.
    ///
    /// # Errors
    /// [`Exhausted`] when no request slot is left.
    pub fn prepare_send(&mut self, send: Send) -> Result<RequestId, Exhausted> {
        let request = self.arena.take()?;
        self.fill_send(request, send, FLAG_PERSISTENT);
        self.arena
            .change(request, |fields| fields.state = RequestState::Inactive);
        Ok(request)
    }

    /// Starts an inactive persistent send. `key` is the remote key of its buffer; `early` has the meaning of
    /// [`Send::early`].
    pub fn restart_send(&mut self, request: RequestId, key: [u64; 3], early: bool) {
        self.restart(request, RequestState::Queued, |_| ());
        let peer = self.fill_restart(request, key, early);
        self.put_off(peer, PendingFrame::Message(request));
    }

    /// Sets the fields that each start of a persistent send determines anew.
    pub(crate) fn fill_restart(&mut self, request: RequestId, key: [u64; 3], early: bool) -> Peer {
        let early = if early { FLAG_EARLY } else { 0 };
        let fields = self.arena.fields(request);
        let mark = match fields.flags & FLAG_SYNCHRONOUS {
            0 => 0,
            _ => self.take_mark(request, fields.bytes),
        };
        self.arena.change(request, |fields| {
            fields.flags = fields.flags & !FLAG_GATED | early;
            fields.scratch[..3].copy_from_slice(&key);
            fields.scratch[MARK] = mark;
            Peer(fields.peer)
        })
    }

    /// Starts and completes an inactive persistent send whose message the owner has posted directly, without the
    /// outbox.
    pub fn restart_sent(&mut self, request: RequestId) {
        self.restart(request, RequestState::Complete, |_| ());
    }

    #[inline(always)]
    pub(crate) fn restart<R>(
        &mut self,
        request: RequestId,
        state: RequestState,
        change: impl FnOnce(&mut RequestFields) -> R,
    ) -> R {
        let sequence = self.next_sequence();
        self.arena.change(request, |fields| {
            fields.state = state;
            fields.flags &= !(FLAG_CANCELLED | FLAG_CANCELLING | FLAG_EARLY | FLAG_GATED);
            fields.error = 0;
            fields.sequence = sequence;
            change(fields)
        })
    }

    /// Records that the remote key of a send must be released when the send ends: then [`take_back`](Self::take_back)
    /// returns the key. To be called for a send that was just started.
    pub fn lend(&mut self, request: RequestId) {
        self.arena
            .change(request, |fields| fields.flags |= FLAG_LENT);
    }

    /// Whether [`take_back`](Self::take_back) would return a key.
    #[inline(always)]
    #[must_use]
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Returns the remote key of a send that has ended, with or without an error, and the peer for which the key was
    /// made. The owner must release the key.
    #[inline]
    pub fn take_back(&mut self) -> Option<(Peer, [u64; 3])> {
        self.returned.pop()
    }

    /// Starts a request of kind [`RequestKind::Other`], such as a collective: the engine only takes a slot, and the
    /// owner completes the request with [`finish_other`](Self::finish_other).
    ///
    /// # Errors
    /// [`Exhausted`] when no request slot is left.
    pub fn start_other(&mut self, context: ContextId) -> Result<RequestId, Exhausted> {
        let request = self.arena.take()?;
        let sequence = self.next_sequence();
        self.arena.change(request, |fields| {
            fields.state = RequestState::Moving;
            fields.kind = RequestKind::Other;
            fields.protocol = 0;
            fields.context = context.0;
            fields.sequence = sequence;
            fields.matched_bytes = 0;
        });
        Ok(request)
    }

    /// Frees the slot of a request of kind [`RequestKind::Other`] that has not been returned to the application.
    pub fn give_up_other(&mut self, request: RequestId) {
        self.arena.give_back(request);
    }

    /// Makes a persistent request of kind [`RequestKind::Other`], inactive.
    ///
    /// # Errors
    /// [`Exhausted`] when no request slot is left.
    pub fn prepare_other(&mut self, context: ContextId) -> Result<RequestId, Exhausted> {
        let request = self.start_other(context)?;
        self.arena.change(request, |fields| {
            fields.state = RequestState::Inactive;
            fields.flags = FLAG_PERSISTENT;
        });
        Ok(request)
    }

    /// Starts an inactive persistent request of kind [`RequestKind::Other`].
    pub fn restart_other(&mut self, request: RequestId) {
        self.arena.change(request, |fields| {
            fields.state = RequestState::Moving;
            fields.error = 0;
        });
    }

    /// Completes a request of kind [`RequestKind::Other`]. `status_of`: a complete request whose status this request
    /// takes over.
    pub fn finish_other(&mut self, request: RequestId, status_of: Option<RequestId>) {
        if let Some(status_of) = status_of {
            let from = *self.arena.fields(status_of);
            self.arena.change(request, |fields| {
                fields.kind = from.kind;
                fields.flags |= from.flags & FLAG_CANCELLED;
                fields.context = from.context;
                fields.error = from.error;
                fields.bytes = from.bytes;
                fields.matched_peer = from.matched_peer;
                fields.matched_tag = from.matched_tag;
                fields.matched_bytes = from.matched_bytes;
            });
        }
        self.complete(request);
    }

    /// Records for debuggers the handle of the datatype that the application passed for a request.
    pub fn record_datatype(&mut self, request: RequestId, handle: u32) {
        self.arena.slot(request).record_datatype(handle);
    }

    /// Records for debuggers the collective of a request: `number` is the collective's number plus 1, `root` its root
    /// or `ANY_PEER`, `call` the sequence number of the call.
    pub fn record_collective(
        &mut self,
        request: RequestId,
        number: u16,
        (root, call): (u32, i32),
        bytes: u64,
    ) {
        self.arena.change(request, |fields| {
            (fields.protocol, fields.peer, fields.tag) = (number, root, call);
            fields.bytes = bytes;
        });
    }

    /// Copies the datatype recorded for another request.
    pub fn copy_datatype(&mut self, request: RequestId, of: RequestId) {
        let handle = self.arena.slot(of).datatype();
        self.record_datatype(request, handle);
    }

    /// Collects a complete request: frees its slot or, if the request is persistent, makes the request inactive.
    #[inline(always)]
    pub fn collect(&mut self, request: RequestId) {
        if self.arena.fields(request).flags & FLAG_PERSISTENT == 0 {
            self.arena.give_back(request);
        } else {
            self.arena
                .change(request, |fields| fields.state = RequestState::Inactive);
        }
    }

    /// Frees a request (MPI 5.0 section 3.7.3): now if no operation is in progress, else when it ends.
    pub fn free(&mut self, request: RequestId) {
        match self.arena.fields(request).state {
            RequestState::Inactive | RequestState::Complete => self.arena.give_back(request),
            _ => self
                .arena
                .change(request, |fields| fields.flags |= FLAG_ORPHAN),
        }
    }

    pub(crate) fn complete(&mut self, request: RequestId) {
        self.note_request(EventType::RequestComplete, request);
        if self.arena.fields(request).flags & (FLAG_ORPHAN | FLAG_LENT) == 0 {
            self.arena
                .change(request, |fields| fields.state = RequestState::Complete);
        } else {
            self.complete_special(request);
        }
    }

    #[inline(never)]
    fn complete_special(&mut self, request: RequestId) {
        let fields = self.arena.fields(request);
        let flags = fields.flags;
        if flags & FLAG_LENT != 0 {
            let [k0, k1, k2, ..] = fields.scratch;
            self.returned.push((Peer(fields.peer), [k0, k1, k2]));
        }
        if flags & FLAG_ORPHAN != 0 {
            return self.arena.give_back(request);
        }
        self.arena.change(request, |fields| {
            fields.flags &= !FLAG_LENT;
            fields.state = RequestState::Complete;
        });
    }

    pub(crate) fn fail(&mut self, request: RequestId, failure: RequestFailure) {
        self.arena
            .change(request, |fields| fields.error = failure as u8);
    }

    fn fill_send(&mut self, request: RequestId, send: Send, flags: u16) {
        let sequence = self.next_sequence();
        let is_marked = send.synchronous && flags & FLAG_PERSISTENT == 0;
        let mark = match is_marked {
            true => self.take_mark(request, send.bytes),
            false => 0,
        };
        self.arena.change(request, |fields| {
            fields.state = RequestState::Queued;
            fields.kind = RequestKind::Send;
            fields.flags = flags
                | if send.synchronous {
                    FLAG_SYNCHRONOUS
                } else {
                    0
                }
                | if send.early { FLAG_EARLY } else { 0 };
            fields.context = send.context.0;
            fields.peer = send.peer.0;
            fields.tag = send.tag;
            fields.bytes = send.bytes;
            fields.buffer = send.buffer;
            fields.sequence = sequence;
            fields.scratch[..3].copy_from_slice(&send.key);
            fields.scratch[MARK] = mark;
        });
    }
}
