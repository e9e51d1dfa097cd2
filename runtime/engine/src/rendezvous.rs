// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rendezvous of large messages. The sender announces a message (RTS). The receiver reads the data from the sender's
//! memory and sends FIN. If it cannot read that memory, it requests the data (CTS), and the sender streams them (DATA).

use queue_layout::RequestState;

use crate::credit::{PendingFrame, control};
use crate::matching::Envelope;
use crate::{ArrivedFrame, Engine, EventType, Output, Peer, RequestFailure, RequestId, wire};

impl Engine {
    pub(crate) fn arrive_rts(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let (context, tag) = wire::envelope(arrival.head.word);
        let sensible = arrival.bytes == u64::from(wire::RTS_WORDS) * 8 && tag >= 0;
        if !sensible || self.is_flooded(arrival.peer) {
            return self.refuse();
        }
        let message = Envelope {
            context,
            peer: arrival.peer.0,
            tag,
        };
        let [token, bytes, k0, k1, k2, _] = arrival.words;
        if i64::try_from(bytes).is_err() {
            return self.refuse();
        }
        match self.matching.take_posted(&mut self.arena, message) {
            Some(request) => {
                self.begin_transfer(request, message, bytes, wire::low(token), [k0, k1, k2])
            }
            None => {
                let id = self.add_unexpected(message, bytes, RequestState::Envelope)?;
                self.arena.private(id).scratch = [token, k0, k1, k2, 0];
                None
            }
        }
    }

    /// Begins the transfer for a receive matched with an announced message: requests a read by the owner or, if there
    /// are no bytes to move, completes the receive now. During the transfer the scratch words hold: the sender's token,
    /// bytes moved, bytes wanted, and 1 if the sender streams or else 0.
    pub(crate) fn begin_transfer(
        &mut self,
        request: RequestId,
        message: Envelope,
        bytes: u64,
        token: u32,
        key: [u64; 3],
    ) -> Option<Output> {
        let wanted = self.matched(request, message, bytes, RequestState::Moving);
        self.arena.private(request).scratch = [u64::from(token), 0, wanted, 0, 0];
        self.note_request(EventType::RendezvousReceiveBegin, request);
        let peer = Peer(message.peer);
        if wanted == 0 {
            self.finish_transfer(request);
            return None;
        }
        Some(Output::Pull {
            request,
            peer,
            key,
            bytes: wanted,
        })
    }

    /// Completes a receive whose data the owner has read, as requested by [`Output::Pull`].
    pub fn pulled(&mut self, request: RequestId) {
        self.finish_transfer(request);
    }

    /// The transport cannot read the sender's memory: requests a stream from the sender.
    pub fn cannot_pull(&mut self, request: RequestId) {
        let (peer, token, wanted) = self.transfer(request);
        // From here on DATA frames may complete the receive. While the transport reads, they must not.
        self.arena.private(request).scratch[3] = 1;
        let word = wire::token_word(token, self.arena.token(request));
        self.put_off_control(peer, control(wire::CTS, word), &[wanted]);
    }

    /// The transfer of a request ended with an error: the request completes with [`RequestFailure::Transfer`].
    pub fn transfer_failed(&mut self, request: RequestId) {
        self.fail(request, RequestFailure::Transfer);
        self.finish_transfer(request);
    }

    pub(crate) fn arrive_cts(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let (send, receive) = (wire::low(arrival.head.word), wire::high(arrival.head.word));
        let wanted = arrival.words[0];
        let Some(request) = self.announced(send, arrival.peer) else {
            return self.refuse();
        };
        if arrival.bytes != 8 || wanted > self.arena.fields(request).bytes {
            return self.refuse();
        }
        self.arena
            .change(request, |fields| fields.state = RequestState::Moving);
        self.put_off(
            arrival.peer,
            PendingFrame::Stream {
                request,
                receive,
                offset: 0,
                end: wanted,
            },
        );
        None
    }

    pub(crate) fn arrive_fin(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let tokens = wire::tokens(arrival.head, arrival.words, arrival.bytes);
        let Some((tokens, count)) = tokens else {
            return self.refuse();
        };
        let tokens = &tokens[..count];
        // A refused frame must change nothing, so all tokens are checked before the first send completes. A frame with
        // a repeated token is refused.
        let is_good = |(place, token): (usize, &u32)| {
            !tokens[..place].contains(token) && self.announced(*token, arrival.peer).is_some()
        };
        if !tokens.iter().enumerate().all(is_good) {
            return self.refuse();
        }
        for token in tokens {
            if let Some(request) = self.announced(*token, arrival.peer) {
                self.note_request(EventType::RendezvousSendEnd, request);
                self.complete(request);
            }
        }
        None
    }

    pub(crate) fn arrive_data(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let Some(request) = self.arena.find(wire::low(arrival.head.word)) else {
            return self.refuse();
        };
        let fields = self.arena.fields(request);
        let [_, moved, wanted, streaming, _] = fields.scratch;
        let expected = fields.state == RequestState::Moving
            && fields.kind == queue_layout::RequestKind::Receive
            && fields.matched_peer == arrival.peer.0;
        if !expected || arrival.bytes > wanted - moved || streaming != 1 {
            return self.refuse();
        }
        let now = moved + arrival.bytes;
        self.arena.private(request).scratch[1] = now;
        if now == wanted {
            self.note_request(EventType::RendezvousReceiveEnd, request);
            self.complete(request);
        }
        Some(Output::Deliver {
            request,
            offset: moved,
            bytes: arrival.bytes,
        })
    }

    fn finish_transfer(&mut self, request: RequestId) {
        let (peer, token, _) = self.transfer(request);
        self.put_off_fin(peer, token);
        self.note_request(EventType::RendezvousReceiveEnd, request);
        self.complete(request);
    }

    fn transfer(&self, request: RequestId) -> (Peer, u32, u64) {
        let fields = self.arena.fields(request);
        (
            Peer(fields.matched_peer),
            wire::low(fields.scratch[0]),
            fields.scratch[2],
        )
    }

    /// The announced send that a token from `peer` names, if it is a send to that peer.
    pub(crate) fn announced(&self, token: u32, peer: Peer) -> Option<RequestId> {
        let request = self.arena.find(token)?;
        let fields = self.arena.fields(request);
        let named = fields.state == RequestState::Announced
            && fields.kind == queue_layout::RequestKind::Send
            && fields.peer == peer.0;
        named.then_some(request)
    }
}
