// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent requests whose data bypass the frame stream: the owner has paired each such send with its receive.
//!
//! A receive of this kind is posted like any other, so that a message that arrives in frames still matches it in order.
//! A send of this kind waits in its slot, not in an outbox. The owner reports when they complete. The owner must
//! prevent that other messages overtake them, so it can [guard](Engine::guard_sends) the fast paths.

use queue_layout::{ANY_PEER, ANY_TAG, FLAG_GATED, RequestFields, RequestKind, RequestState};

use crate::credit::PendingFrame;
use crate::matching::Envelope;
use crate::{ContextId, Engine, FrameHead, Peer, RequestId};

impl Engine {
    /// While `on`, [`is_all_clear`](Self::is_all_clear) returns `false`.
    pub fn guard_sends(&mut self, on: bool) {
        self.blocked = if on {
            self.blocked + 1
        } else {
            self.blocked - 1
        };
    }

    /// While `on`, [`post_first`](Self::post_first) refuses.
    pub fn guard_receives(&mut self, on: bool) {
        self.matching.guard(on);
    }

    /// Queues a frame of the owner, in order with the messages to `peer`. Its kind must not be one of the engine's.
    pub fn queue_frame(&mut self, peer: Peer, head: FrameHead, words: &[u64]) {
        self.put_off_control(peer, head, words);
    }

    /// Whether so many frames wait for `peer` that frames of the peer that need an answer should be refused.
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

    /// Completes a posted receive. As much of the message's `bytes` as fits has been placed in its buffer.
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
