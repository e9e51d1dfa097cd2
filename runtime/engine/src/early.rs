// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that travel at once in several frames: FIRST brings the envelope, MORE the data, and nothing else of that
//! sender stands between. Without the round trip of an announcement both sides copy at the same time.
//!
//! Whether it came before its receive or after, a message is matched when its FIRST arrives (promise E1). One that came
//! before is kept like an eager one; a receive that finds it while data are still to come waits for the rest.

use queue_layout::RequestState;

use crate::matching::Envelope;
use crate::{ArrivedFrame, Engine, Output, Peer, RequestId, wire};

/// The message to which a peer's MORE frames belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialMessage {
    target: PartialTarget,
    /// Bytes that have arrived, and bytes of the whole message.
    arrived: u64,
    bytes: u64,
}

/// Where the bytes of a [`PartialMessage`] go: a posted receive, or an unexpected message.
#[derive(Clone, Copy, Debug)]
enum PartialTarget {
    /// A receive that was there first, by its token, and the bytes that it wants.
    Receive { token: u32, wanted: u64 },
    /// A kept message.
    Message(RequestId),
}

impl Engine {
    pub(crate) fn arrive_early(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let (context, tag) = wire::envelope(arrival.head.word);
        let bytes = arrival.words[0];
        let known = self.incoming.contains_key(&arrival.peer);
        // What is kept must be bounded, whatever a peer says; but its limit need not be this rank's.
        let sensible = (1..=wire::MOST_EARLY_BYTES).contains(&bytes);
        if arrival.bytes != 8 || tag < 0 || known || !sensible {
            return self.refuse();
        }
        let message = Envelope {
            context,
            peer: arrival.peer.0,
            tag,
        };
        let target = match self.matching.take_posted(&mut self.arena, message) {
            Some(request) => self.receive_early(request, message, bytes),
            None => self.keep_early(arrival.peer, message, bytes)?,
        };
        let incoming = PartialMessage {
            target,
            arrived: 0,
            bytes,
        };
        self.incoming.insert(arrival.peer, incoming);
        None
    }

    fn receive_early(
        &mut self,
        request: RequestId,
        message: Envelope,
        bytes: u64,
    ) -> PartialTarget {
        let wanted = self.matched(request, message, bytes, RequestState::Moving);
        // Frames of other protocols must not take it for theirs.
        self.arena.private(request).scratch = [0; 5];
        let token = self.arena.token(request);
        PartialTarget::Receive { token, wanted }
    }

    fn keep_early(&mut self, peer: Peer, message: Envelope, bytes: u64) -> Option<PartialTarget> {
        let id = self.add_unexpected(message, bytes, RequestState::Kept)?;
        self.arena.private(id).scratch = [0; 5];
        let room = usize::try_from(bytes).unwrap_or(0);
        self.keep(id, vec![0; room].into_boxed_slice());
        self.charge(peer, bytes);
        Some(PartialTarget::Message(id))
    }

    pub(crate) fn arrive_more(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let incoming = self.incoming.get_mut(&arrival.peer);
        let fits = |incoming: &&mut PartialMessage| {
            (1..=incoming.bytes - incoming.arrived).contains(&arrival.bytes)
        };
        let Some(incoming) = incoming.filter(fits) else {
            return self.refuse();
        };
        let offset = incoming.arrived;
        incoming.arrived += arrival.bytes;
        let (target, last) = (incoming.target, incoming.arrived == incoming.bytes);
        if last {
            self.incoming.remove(&arrival.peer);
        }
        match target {
            PartialTarget::Message(message) => Some(Output::KeepMore { message, offset }),
            PartialTarget::Receive { token, wanted } => {
                let request = self.arena.find(token)?;
                if last {
                    self.complete(request);
                }
                // What the receive has no room for is dropped.
                let bytes = wanted.saturating_sub(offset).min(arrival.bytes);
                Some(Output::Deliver {
                    request,
                    offset: offset.min(wanted),
                    bytes,
                })
            }
        }
    }

    /// The body of a kept message of which [`Output::KeepMore`] brings a part.
    pub fn kept_body_mut(&mut self, message: RequestId) -> &mut [u8] {
        self.bodies
            .get_mut(message.index())
            .and_then(Option::as_deref_mut)
            .unwrap_or_default()
    }

    /// A part of a kept message was copied. If it was the last and a receive waits for the message, the output says so.
    pub fn kept_more(&mut self, message: RequestId) -> Option<Output> {
        if self.is_incoming(message) {
            return None;
        }
        let token = wire::low(self.arena.fields(message).scratch[WAITS]);
        let request = self.arena.find(token).filter(|_| token != 0)?;
        self.complete(request);
        let fields = self.arena.fields(request);
        Some(Output::DeliverKept {
            request,
            message,
            bytes: fields.matched_bytes.min(fields.bytes),
        })
    }

    /// A receive meets a kept message of which data are still to come: `true`, and it waits for them.
    pub(crate) fn waits_for_rest(&mut self, request: RequestId, message: RequestId) -> bool {
        let waits = self.is_incoming(message);
        if waits {
            // As in `receive_early`: what the slot remembers of its last use would admit a stream.
            self.arena.private(request).scratch = [0; 5];
            let token = self.arena.token(request);
            self.arena.private(message).scratch[WAITS] = u64::from(token);
        }
        waits
    }

    /// The rest of a message of a lost peer will not come. A receive that waits for it is not ended here; one that finds the
    /// message later is told to fetch data that nobody has.
    pub(crate) fn lose_incoming(&mut self, peer: Peer) {
        let incoming = self.incoming.remove(&peer);
        let Some(PartialTarget::Message(message)) = incoming.map(|incoming| incoming.target) else {
            return;
        };
        let fields = self.arena.fields(message);
        if fields.scratch[WAITS] != 0 {
            return self.drop_message(message);
        }
        let bytes = fields.bytes;
        self.arena.change(message, |fields| {
            fields.buffer = 0;
            fields.scratch = [0; 5];
            if fields.state == RequestState::Kept {
                fields.state = RequestState::Envelope;
            }
        });
        if let Some(body) = self.bodies.get_mut(message.index()) {
            *body = None;
        }
        self.refund(bytes);
    }

    fn is_incoming(&self, message: RequestId) -> bool {
        let peer = Peer(self.arena.fields(message).peer);
        let is_it = |incoming: &PartialMessage| match incoming.target {
            PartialTarget::Message(target) => target == message,
            PartialTarget::Receive { .. } => false,
        };
        self.incoming.get(&peer).is_some_and(is_it)
    }
}

/// The scratch word of a kept message that holds the token of the receive that waits for its rest.
const WAITS: usize = 3;
