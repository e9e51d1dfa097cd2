// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Cancel` (MPI 5.0 section 3.8.4): a request either completes normally or is cancelled as a whole.

use queue_layout::{FLAG_CANCELLED, FLAG_CANCELLING, RequestKind, RequestState};

use crate::matching::Envelope;
use crate::synchronous::{KEPT_MARK, mark_in_flags, mark_of};
use crate::wire::{FrameHead, WAS_CANCELLED};
use crate::{ArrivedFrame, Engine, Output, Peer, RequestId, wire};

impl Engine {
    /// Begins the cancellation of a request, and does not wait for its outcome. When the request completes, its flags
    /// show whether it was cancelled.
    pub fn cancel(&mut self, request: RequestId) {
        let fields = *self.arena.fields(request);
        self.counters.cancels.add(1);
        match (fields.kind, fields.state) {
            (RequestKind::Receive, RequestState::Posted) => {
                self.matching.remove_posted(&mut self.arena, request);
                self.arena
                    .change(request, |fields| fields.flags |= FLAG_CANCELLED);
                self.complete(request);
            }
            // The message is dropped when it reaches the head of its outbox.
            (RequestKind::Send, RequestState::Queued) => {
                self.arena
                    .change(request, |fields| fields.flags |= FLAG_CANCELLED);
            }
            (RequestKind::Send, RequestState::Announced) if fields.flags & FLAG_CANCELLING == 0 => {
                self.arena
                    .change(request, |fields| fields.flags |= FLAG_CANCELLING);
                let head = FrameHead {
                    kind: wire::CANCEL,
                    flags: mark_in_flags(&fields),
                    word: wire::token_word(self.arena.token(request), 0),
                };
                let words = [u64::from(fields.context)];
                self.put_off_control(Peer(fields.peer), head, &words);
            }
            _ => {}
        }
    }

    /// Whether the outcome of a cancelled send is still unknown.
    #[must_use]
    pub fn is_cancelling(&self, request: RequestId) -> bool {
        let fields = self.arena.fields(request);
        let mark = match (fields.kind, fields.state) {
            (RequestKind::Send, RequestState::Queued) => FLAG_CANCELLED,
            (RequestKind::Send, RequestState::Announced) => FLAG_CANCELLING,
            _ => 0,
        };
        fields.flags & mark != 0
    }

    pub(crate) fn arrive_cancel(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        if arrival.bytes != 8 || self.is_flooded(arrival.peer) {
            return self.refuse();
        }
        let token = wire::low(arrival.head.word);
        let name = match arrival.head.flags {
            0 => CancelTarget::Announced(token),
            mark => CancelTarget::Marked(mark.into()),
        };
        let found = self.find_waiting(wire::low(arrival.words[0]), arrival.peer, name);
        if let Some(message) = found {
            self.unlink_unexpected(message);
            match name {
                CancelTarget::Marked(_) => self.drop_message(message),
                CancelTarget::Announced(_) => {
                    self.arena.give_back(message);
                    self.relax();
                }
            }
        }
        let flags = if found.is_some() { WAS_CANCELLED } else { 0 };
        let head = FrameHead {
            kind: wire::CANCELLED,
            flags,
            word: wire::token_word(token, arrival.head.flags.into()),
        };
        self.put_off_control(arrival.peer, head, &[]);
        None
    }

    pub(crate) fn arrive_cancelled(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let (token, mark) = (wire::low(arrival.head.word), wire::high(arrival.head.word));
        // If the send has another mark now, this frame answers a CANCEL that was sent for an earlier start of the
        // persistent send. The message of that start had already been matched.
        if let Some(request) = self.announced(token, arrival.peer)
            && mark_of(self.arena.fields(request)) != u64::from(mark)
        {
            return None;
        }
        // If the message was not taken back, it had already been matched. Either the send is not in the state
        // `Announced` any more, or the frame that reports the match (MATCHED, CTS or FIN) is still to come.
        if arrival.head.flags & WAS_CANCELLED == 0 {
            if let Some(request) = self.announced(token, arrival.peer) {
                self.arena
                    .change(request, |fields| fields.flags &= !FLAG_CANCELLING);
            }
            return None;
        }
        let Some(request) = self.announced(token, arrival.peer) else {
            return self.refuse();
        };
        if self.arena.fields(request).flags & FLAG_CANCELLING == 0 {
            return self.refuse();
        }
        self.arena
            .change(request, |fields| fields.flags |= FLAG_CANCELLED);
        self.complete(request);
        None
    }

    /// The unmatched message that a CANCEL frame names.
    fn find_waiting(&mut self, context: u32, peer: Peer, name: CancelTarget) -> Option<RequestId> {
        let wanted = Envelope {
            context,
            peer: peer.0,
            tag: queue_layout::ANY_TAG,
        };
        self.matching
            .find_unexpected_that(&self.arena, wanted, |fields| match name {
                CancelTarget::Announced(token) => {
                    fields.state == RequestState::Envelope && wire::low(fields.scratch[0]) == token
                }
                CancelTarget::Marked(mark) => {
                    fields.state == RequestState::Kept && fields.scratch[KEPT_MARK] == mark
                }
            })
    }
}

/// How a CANCEL frame names its message.
#[derive(Clone, Copy)]
enum CancelTarget {
    /// By the token of its send.
    Announced(u32),
    /// By the mark that the message carried.
    Marked(u64),
}
