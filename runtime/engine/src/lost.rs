// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dead peers: operations that cannot complete without them fail with [`RequestFailure::Lost`].

use queue_layout::{ANY_PEER, FLAG_CANCELLED, RequestFields, RequestKind, RequestState};

use crate::{ContextId, Engine, Peer, RequestFailure, RequestId};

impl Engine {
    /// Marks `peer` dead and ends the operations that need it. For receives from other sources, `in_vain` decides by
    /// context and source (`None`: any source) whether they end. A read that the transport has in progress continues;
    /// the transport reports the end of the read.
    ///
    /// Operations with `peer` that are started later end in the next call of this function for `peer`.
    pub fn lose(&mut self, peer: Peer, in_vain: impl Fn(ContextId, Option<Peer>) -> bool) {
        if peer.0 as usize >= self.outboxes.len() {
            return;
        }
        self.shut_outbox(peer);
        self.lose_incoming(peer);
        let needs = |id: &RequestId| needs(self.arena.fields(*id), peer, &in_vain);
        let ending: Vec<RequestId> = self.arena.iter().filter(needs).collect();
        for request in ending {
            self.lose_request(request, peer);
        }
    }

    fn lose_request(&mut self, request: RequestId, peer: Peer) {
        let fields = self.arena.fields(request);
        let (kind, state) = (fields.kind, fields.state);
        if state == RequestState::Posted {
            self.matching.remove_posted(&mut self.arena, request);
        }
        self.arena.change(request, |fields| {
            // A send that was cancelled while queued completes as cancelled, not with an error.
            if state == RequestState::Queued && fields.flags & FLAG_CANCELLED != 0 {
                return;
            }
            self.counters.lost.add(1);
            fields.error = RequestFailure::Lost as u8;
            if kind == RequestKind::Receive {
                fields.matched_peer = peer.0;
                fields.matched_bytes = 0;
            }
            if state == RequestState::Posted {
                fields.matched_tag = fields.tag;
            }
        });
        self.complete(request);
    }
}

/// Whether an operation cannot complete without the peer.
fn needs(
    fields: &RequestFields,
    peer: Peer,
    in_vain: impl Fn(ContextId, Option<Peer>) -> bool,
) -> bool {
    match (fields.kind, fields.state) {
        (
            RequestKind::Send,
            RequestState::Queued | RequestState::Announced | RequestState::Moving,
        ) => fields.peer == peer.0,
        (RequestKind::Receive, RequestState::Posted) => {
            let source = (fields.peer != ANY_PEER).then_some(Peer(fields.peer));
            source == Some(peer) || in_vain(ContextId(fields.context), source)
        }
        (RequestKind::Receive, RequestState::Moving) => {
            fields.matched_peer == peer.0 && !is_read(fields)
        }
        _ => false,
    }
}

/// Whether the transport is reading the data of a matched receive. `begin_transfer` explains the scratch words; for the
/// receive of an early message all are 0.
fn is_read(fields: &RequestFields) -> bool {
    let [_, _, wanted, streaming, _] = fields.scratch;
    wanted != 0 && streaming == 0
}
