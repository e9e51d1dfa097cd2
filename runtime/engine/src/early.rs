// SPDX-License-Identifier: MIT OR Apache-2.0
//! Early messages, sent without a rendezvous in several frames: FIRST carries the envelope, MORE the data. No other
//! frame of the sender comes between these frames. There is no round trip of RTS and CTS, so both sides copy at the
//! same time.
//!
//! A message is matched when its FIRST arrives, whether its receive is posted or not (promise E1). An unexpected early
//! message is kept like an eager one. A receive that matches it before all its data have arrived waits for the rest.

use queue_layout::RequestState;

use crate::matching::Envelope;
use crate::{ArrivedFrame, Engine, Output, Peer, RequestId, wire};

/// The early message that a peer is sending: the peer's next MORE frame belongs to this message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialMessage {
    target: PartialTarget,
    /// Number of bytes that have arrived so far. `bytes` is the size of the message.
    arrived: u64,
    bytes: u64,
}

/// Destination of the bytes of a [`PartialMessage`]: a posted receive, or an unexpected message.
#[derive(Clone, Copy, Debug)]
enum PartialTarget {
    /// The token of a posted receive, and the number of bytes that fit into its buffer.
    Receive { token: u32, wanted: u64 },
    /// A kept message.
    Message(RequestId),
}

impl Engine {
    pub(crate) fn arrive_early(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let (context, tag) = wire::envelope(arrival.head.word);
        let bytes = arrival.words[0];
        let known = self.incoming.contains_key(&arrival.peer);
        // The size of kept data must be bounded whatever the frame contains. The bound is not the limit that is
        // configured here, because the sender may have another limit.
        let sensible = (1..=wire::MAX_EARLY_BYTES).contains(&bytes);
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
        // Clears the scratch words: otherwise a frame of another protocol could take stale words for the state of this
        // receive.
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
                // Bytes beyond the receive buffer are dropped.
                let bytes = wanted.saturating_sub(offset).min(arrival.bytes);
                Some(Output::Deliver {
                    request,
                    offset: offset.min(wanted),
                    bytes,
                })
            }
        }
    }

    /// The body of a kept message, into which the owner copies what [`Output::KeepMore`] requests.
    pub fn kept_body_mut(&mut self, message: RequestId) -> &mut [u8] {
        self.bodies
            .get_mut(message.index())
            .and_then(Option::as_deref_mut)
            .unwrap_or_default()
    }

    /// To be called after a part of a kept message was copied. If it was the last part and a receive waits for the
    /// message, returns the output that delivers the message.
    pub fn kept_more(&mut self, message: RequestId) -> Option<Output> {
        if self.is_incoming(message) {
            return None;
        }
        let token = wire::low(self.arena.fields(message).scratch[WAITING_RECEIVE]);
        let request = self.arena.find(token).filter(|_| token != 0)?;
        self.complete(request);
        let fields = self.arena.fields(request);
        Some(Output::DeliverKept {
            request,
            message,
            bytes: fields.matched_bytes.min(fields.bytes),
        })
    }

    /// Whether some data of a matched kept message have not arrived yet. If so, records that `request` waits for these
    /// data.
    pub(crate) fn wait_if_incomplete(&mut self, request: RequestId, message: RequestId) -> bool {
        let waits = self.is_incoming(message);
        if waits {
            // Cleared as in `receive_early`: with stale scratch words the receive would accept DATA frames.
            self.arena.private(request).scratch = [0; 5];
            let token = self.arena.token(request);
            self.arena.private(message).scratch[WAITING_RECEIVE] = u64::from(token);
        }
        waits
    }

    /// Ends the incomplete early message from a lost peer, if there is one. A receive that already waits for the
    /// message is ended by [`lose`](Self::lose). A receive that matches the message later gets a transfer that fails.
    pub(crate) fn lose_incoming(&mut self, peer: Peer) {
        let incoming = self.incoming.remove(&peer);
        let Some(PartialTarget::Message(message)) = incoming.map(|incoming| incoming.target) else {
            return;
        };
        let fields = self.arena.fields(message);
        if fields.scratch[WAITING_RECEIVE] != 0 {
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

/// The scratch word of a kept message that holds the token of the receive that waits for the rest of its data; 0 if
/// none waits.
const WAITING_RECEIVE: usize = 3;
