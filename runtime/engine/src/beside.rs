// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent requests whose data go beside the stream of frames, where the owner knows which send meets which receive.
//!
//! Such a receive is posted like any other, so that a frame which comes instead finds it, in its place in the order. Such a send
//! waits in its slot and in no outbox. The owner says how they end. Whatever else could come between must ask the owner first: so
//! it can [guard](Engine::guard_sends) the fast paths.

use queue_layout::{ANY_PEER, ANY_TAG, FLAG_GATED, RequestFields, RequestKind, RequestState};

use crate::credit::PendingFrame;
use crate::matching::Envelope;
use crate::{ContextId, Engine, FrameHead, Peer, RequestId};

impl Engine {
    /// From now on [`is_all_clear`](Self::is_all_clear) does not hold; or no longer.
    pub fn guard_sends(&mut self, on: bool) {
        self.blocked = if on {
            self.blocked + 1
        } else {
            self.blocked - 1
        };
    }

    /// From now on [`post_first`](Self::post_first) refuses; or no longer.
    pub fn guard_receives(&mut self, on: bool) {
        self.matching.guard(on);
    }

    /// A frame of the owner's that must not pass messages, nor be passed. Its kind is none of the engine's.
    pub fn tell(&mut self, peer: Peer, head: FrameHead, words: &[u64]) {
        self.put_off_control(peer, head, words);
    }

    /// Whether the peer takes so little that frames of its own which are answered should be refused.
    #[must_use]
    pub fn is_drowned(&self, peer: Peer) -> bool {
        self.is_flooded(peer)
    }

    /// Posted receives that a message of this envelope could meet, in the order of their starts. Looks at all slots.
    #[must_use]
    pub fn posted_for(&self, context: ContextId, peer: Peer, tag: i32) -> Vec<RequestId> {
        let meets = |fields: &RequestFields| {
            (fields.kind, fields.state) == (RequestKind::Receive, RequestState::Posted)
                && fields.context == context.0
                && (fields.peer == peer.0 || fields.peer == ANY_PEER)
                && (fields.tag == tag || fields.tag == ANY_TAG)
        };
        let found = self.arena.iter().filter(|id| meets(self.arena.fields(*id)));
        let mut found: Vec<RequestId> = found.collect();
        found.sort_by_key(|id| self.arena.fields(*id).sequence);
        found
    }

    /// A posted receive has its message, whose data are there, all that it has room for.
    #[inline]
    pub fn received_beside(&mut self, request: RequestId, bytes: u64) {
        let fields = self.arena.fields(request);
        let message = envelope(fields);
        if fields.state == RequestState::Posted {
            self.matching.remove_posted(&mut self.arena, request);
        }
        self.matched(request, message, bytes, RequestState::Moving);
        self.complete(request);
    }

    /// A posted receive has met its message, whose data are on their way; [`received_beside`](Self::received_beside) follows.
    pub fn receiving_beside(&mut self, request: RequestId) {
        let message = envelope(self.arena.fields(request));
        self.matching.remove_posted(&mut self.arena, request);
        self.matched(request, message, 0, RequestState::Moving);
        // As in `receive_early`: no frame of another protocol is for it.
        self.arena.private(request).scratch = [0; 5];
    }

    /// Starts an inactive persistent send that waits beside its outbox: until [`sent_beside`](Self::sent_beside) or
    /// [`queue_waiting`](Self::queue_waiting).
    pub fn restart_waiting(&mut self, request: RequestId) {
        self.restart(request, RequestState::Queued, |fields| {
            fields.flags |= FLAG_GATED
        });
    }

    /// Its data are where they belong.
    pub fn sent_beside(&mut self, request: RequestId) {
        self.complete(request);
    }

    /// It goes in frames all the same, behind what waits for its peer; key and `early` as in
    /// [`restart_send`](Self::restart_send).
    pub fn queue_waiting(&mut self, request: RequestId, key: [u64; 3], early: bool) {
        let peer = self.fill_restart(request, key, early);
        self.put_off(peer, PendingFrame::Message(request));
    }
}

/// The message that a receive of one source and tag meets.
fn envelope(fields: &RequestFields) -> Envelope {
    Envelope {
        context: fields.context,
        peer: fields.peer,
        tag: fields.tag,
    }
}
