// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gated requests: persistent requests whose data bypass the frame stream. The engine's owner has paired each gated
//! send with its receive.
//!
//! A gated receive is posted like any other: it still matches a message that arrives in frames, in the right order. A
//! gated send waits in its slot, not in an outbox. The owner reports when a gated send or receive completes. The owner
//! also ensures that no other message overtakes the message of a gated send, if necessary by a
//! [guard](Engine::guard_sends) on the fast paths.

use queue_layout::{ANY_PEER, ANY_TAG, FLAG_GATED, RequestFields, RequestKind, RequestState};

use crate::credit::PendingFrame;
use crate::matching::Envelope;
use crate::{ContextId, Engine, FrameHead, Peer, RequestId};

impl Engine {
    /// Turns a guard on or off. While a guard is on, [`is_all_clear`](Self::is_all_clear) returns `false`. Guards nest.
    pub fn guard_sends(&mut self, on: bool) {
        self.blocked = if on {
            self.blocked + 1
        } else {
            self.blocked - 1
        };
    }

    /// Turns a guard on or off. While a guard is on, [`post_first`](Self::post_first) refuses. Guards nest.
    pub fn guard_receives(&mut self, on: bool) {
        self.matching.guard(on);
    }

    /// Queues a frame of the owner, in order with the messages to `peer`. Its kind must not be one of the engine's.
    pub fn queue_frame(&mut self, peer: Peer, head: FrameHead, words: &[u64]) {
        self.put_off_control(peer, head, words);
    }

    /// Whether too many frames wait for `peer`. If so, the owner should refuse frames from `peer` that need an answer.
    #[must_use]
    pub fn is_backlogged(&self, peer: Peer) -> bool {
        self.is_flooded(peer)
    }

    /// Posted receives that a message with this envelope could match, in the order in which they were started. Scans
    /// all slots.
    #[must_use]
    pub fn posted_for(&self, context: ContextId, peer: Peer, tag: i32) -> Vec<RequestId> {
        let matches = |fields: &RequestFields| {
            (fields.kind, fields.state) == (RequestKind::Receive, RequestState::Posted)
                && fields.context == context.0
                && (fields.peer == peer.0 || fields.peer == ANY_PEER)
                && (fields.tag == tag || fields.tag == ANY_TAG)
        };
        let found = self
            .arena
            .iter()
            .filter(|id| matches(self.arena.fields(*id)));
        let mut found: Vec<RequestId> = found.collect();
        found.sort_by_key(|id| self.arena.fields(*id).sequence);
        found
    }

    /// Completes a receive. The message has `bytes` bytes; those that fit are in the buffer already.
    #[inline]
    pub fn received_by_gate(&mut self, request: RequestId, bytes: u64) {
        let fields = self.arena.fields(request);
        let message = envelope(fields);
        if fields.state == RequestState::Posted {
            self.matching.remove_posted(&mut self.arena, request);
        }
        self.matched(request, message, bytes, RequestState::Moving);
        self.complete(request);
    }

    /// Records that a posted receive is matched and its data are in flight;
    /// [`received_by_gate`](Self::received_by_gate) follows.
    pub fn receiving_by_gate(&mut self, request: RequestId) {
        let message = envelope(self.arena.fields(request));
        self.matching.remove_posted(&mut self.arena, request);
        self.matched(request, message, 0, RequestState::Moving);
        // Cleared as in `receive_early`: no frame of another protocol may take stale words for the state of this
        // receive.
        self.arena.private(request).scratch = [0; 5];
    }

    /// Starts an inactive persistent send without queueing it. The owner must call [`sent_by_gate`](Self::sent_by_gate)
    /// or [`queue_waiting`](Self::queue_waiting) for it.
    pub fn restart_waiting(&mut self, request: RequestId) {
        self.restart(request, RequestState::Queued, |fields| {
            fields.flags |= FLAG_GATED
        });
    }

    /// Completes a waiting send whose data have been delivered.
    pub fn sent_by_gate(&mut self, request: RequestId) {
        self.complete(request);
    }

    /// Queues the message of a waiting send after all, behind the frames that wait for its peer. `key` and `early` have
    /// the meaning that they have in [`restart_send`](Self::restart_send).
    pub fn queue_waiting(&mut self, request: RequestId, key: [u64; 3], early: bool) {
        let peer = self.fill_restart(request, key, early);
        self.put_off(peer, PendingFrame::Message(request));
    }
}

/// The envelope that a receive without wildcards matches.
fn envelope(fields: &RequestFields) -> Envelope {
    Envelope {
        context: fields.context,
        peer: fields.peer,
        tag: fields.tag,
    }
}
