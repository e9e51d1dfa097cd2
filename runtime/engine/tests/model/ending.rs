// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of single operations, and of the whole program.

use engine::{CollectOutcome, RequestState};
use queue_layout::FLAG_PERSISTENT;

use super::*;

impl Program {
    /// Collects a send if it is complete, and checks that it was allowed to complete.
    pub(super) fn collect_send(&mut self, at: usize) {
        let send = self.sends[at];
        let engine = &mut self.world.engines[send.rank as usize];
        if !engine.is_complete(send.request) {
            return;
        }
        let message = self.messages[send.message];
        let fields = *engine.arena().fields(send.request);
        assert_eq!((fields.kind, fields.error), (RequestKind::Send, 0));
        match engine.collect_persistent(engine.arena().token(send.request)) {
            CollectOutcome::Sent => assert!(send.persistent, "{send:?}"),
            CollectOutcome::Special => engine.collect(send.request),
            other => panic!("{other:?}: {send:?}"),
        }
        if fields.flags & FLAG_CANCELLED != 0 {
            let never_sent = matches!(message.fate, Fate::Started | Fate::TakenBack);
            assert!(never_sent, "cancelled, and yet sent: {message:?}");
            assert!(
                send.unwanted,
                "cancelled without a cancel request: {message:?}"
            );
        } else {
            assert!(message.fate != Fate::Started && message.fate != Fate::TakenBack);
            // A synchronous send, like any announced one, completes only after its match.
            let matched = message.fate == Fate::Matched;
            let waits = message.announced || message.synchronous;
            assert!(matched || !waits, "too early: {message:?}");
        }
        // The application may overwrite the buffer now.
        self.world.buffer(send.buffer).fill(0xDD);
        self.sends[at].stage = after(send.persistent);
    }

    /// Collects a receive if it is complete, and checks its status and every byte of its buffer.
    pub(super) fn collect_receive(&mut self, at: usize) {
        let receive = self.receives[at];
        let engine = &mut self.world.engines[receive.rank as usize];
        if !engine.is_complete(receive.request) {
            return;
        }
        let fields = *engine.arena().fields(receive.request);
        assert_eq!(fields.kind, RequestKind::Receive);
        let token = engine.arena().token(receive.request);
        let collected = match receive.persistent {
            true => engine.collect_persistent(token),
            false => engine.collect_plain(token),
        };
        match collected {
            CollectOutcome::Done(got) => {
                let special = fields.flags & !(FLAG_PLAIN | FLAG_PERSISTENT);
                assert_eq!((special, fields.error), (0, 0));
                assert_eq!(
                    (got.peer.0, got.tag),
                    (fields.matched_peer, fields.matched_tag)
                );
                assert_eq!(
                    (got.context.0, got.bytes),
                    (fields.context, fields.matched_bytes)
                );
                let left = engine.arena().find(token);
                let state = left.map(|id| engine.arena().fields(id).state);
                assert_eq!(state, receive.persistent.then_some(RequestState::Inactive));
            }
            CollectOutcome::NotYet | CollectOutcome::Sent => panic!("{collected:?}: {receive:?}"),
            CollectOutcome::Special => engine.collect(receive.request),
        }
        self.receives[at].stage = after(receive.persistent);
        assert_eq!(fields.flags & FLAG_CANCELLED != 0, receive.cancelled);
        if receive.cancelled {
            assert_eq!(receive.got, None);
        } else {
            let message = self.messages[receive.got.expect("complete without a message")];
            assert_eq!(fields.matched_peer, message.from);
            assert_eq!(fields.matched_tag, message.tag);
            assert_eq!(fields.matched_bytes, message.bytes);
            if fields.error == RequestFailure::Transfer as u8 && self.world.reads == Reads::Fail {
                return;
            }
            let truncated = message.bytes > receive.bytes;
            assert_eq!(
                fields.error,
                u8::from(truncated) * RequestFailure::Truncated as u8
            );
        }
        self.check_buffer(at);
    }

    fn check_buffer(&mut self, at: usize) {
        let receive = self.receives[at];
        let mut expected = vec![UNTOUCHED; receive.bytes as usize];
        if let Some(number) = receive.got {
            let content = pattern(number, self.messages[number].bytes);
            let fits = content.len().min(expected.len());
            expected[..fits].copy_from_slice(&content[..fits]);
        }
        let content = self.world.buffer(receive.buffer);
        assert!(*content == expected, "{receive:?} has other bytes");
    }

    /// Receives, cancels or frees everything that is left; then all slots must be free.
    pub(super) fn end(&mut self) {
        self.settle();
        for rank in 0..self.world.ranks() {
            for (id, message) in std::mem::take(&mut self.ranks[rank as usize].claimed) {
                self.receive_message(rank, id, message, 5000);
            }
        }
        for _ in 0..3 {
            self.receive_the_rest();
            self.settle();
        }
        for at in 0..self.receives.len() {
            if matches!(self.receives[at].stage, Stage::Active) {
                self.cancel_receive(at);
            }
        }
        self.feed_freed_receives();
        self.settle();
        self.collect_all();
        self.assert_nothing_is_left();
    }

    fn settle(&mut self) {
        for step in 0.. {
            let moved = self.world.step();
            self.read_events();
            if !moved && !self.world.is_under_way() {
                return;
            }
            assert!(step < 1_000_000, "it never ends");
        }
    }

    fn receive_the_rest(&mut self) {
        for rank in 0..self.world.ranks() {
            for context in CONTEXTS {
                let side = &self.ranks[rank as usize];
                let of_it = |number: &&usize| self.messages[**number].context == context;
                let count = side.unexpected.iter().filter(of_it).count();
                for _ in 0..count {
                    self.post_receive(rank, context, None, None, 5000, false);
                }
            }
        }
    }

    /// Sends a message to each freed receive that is still posted: only a message can complete it.
    fn feed_freed_receives(&mut self) {
        for rank in 0..self.world.ranks() {
            while let Some(number) = self.ranks[rank as usize].posted.first().copied() {
                let receive = self.receives[number];
                assert_eq!(receive.stage, Stage::Freed);
                let message = Message {
                    from: receive.peer.unwrap_or(rank),
                    to: rank,
                    context: receive.context,
                    tag: receive.tag.unwrap_or(1),
                    bytes: 8,
                    synchronous: false,
                    announced: false,
                    early: false,
                    fate: Fate::Started,
                };
                let number = self.messages.len();
                self.messages.push(message);
                let buffer = self.world.lend(pattern(number, message.bytes));
                let engine = &mut self.world.engines[message.from as usize];
                let request = engine.start_send(described(&message, buffer)).unwrap();
                self.world.label(message.from, request, number);
                self.sends.push(SendOp {
                    rank: message.from,
                    request,
                    message: number,
                    buffer,
                    persistent: false,
                    unwanted: false,
                    stage: Stage::Active,
                });
                self.settle();
            }
        }
    }

    fn collect_all(&mut self) {
        for at in 0..self.sends.len() {
            if self.sends[at].stage == Stage::Active {
                self.collect_send(at);
                let ended = self.sends[at].stage != Stage::Active;
                let message = self.messages[self.sends[at].message];
                assert!(ended, "never ends: {:?} {message:?}", self.sends[at]);
            }
            let SendOp {
                rank,
                request,
                stage,
                ..
            } = self.sends[at];
            if stage == Stage::Inactive {
                self.world.engines[rank as usize].free(request);
            }
        }
        for at in 0..self.receives.len() {
            let ReceiveOp {
                rank,
                request,
                stage,
                ..
            } = self.receives[at];
            match stage {
                Stage::Active => {
                    self.collect_receive(at);
                    let receive = self.receives[at];
                    assert!(receive.stage != Stage::Active, "never ends: {receive:?}");
                    if receive.stage == Stage::Inactive {
                        self.world.engines[rank as usize].free(request);
                    }
                }
                Stage::Inactive => self.world.engines[rank as usize].free(request),
                Stage::Freed if self.world.reads != Reads::Fail => self.check_buffer(at),
                Stage::Freed | Stage::Over => {}
            }
        }
    }

    fn assert_nothing_is_left(&self) {
        for (rank, engine) in self.world.engines.iter().enumerate() {
            let counters = engine.counters();
            let left: Vec<_> = engine
                .arena()
                .iter()
                .map(|id| *engine.arena().fields(id))
                .collect();
            assert_eq!(engine.arena().live(), 0, "rank {rank} keeps {left:?}");
            assert_eq!((counters.kept_bytes, engine.busy_peers()), (0, 0));
            assert_eq!((counters.posted_length, counters.unexpected_length), (0, 0));
            assert_eq!(counters.refused, 0);
            for peer in 0..self.world.ranks() {
                assert!(
                    engine.is_clear(Peer(peer)),
                    "{rank} still announces all to {peer}"
                );
            }
        }
        for (number, message) in self.messages.iter().enumerate() {
            let ended = matches!(
                message.fate,
                Fate::Started | Fate::Matched | Fate::TakenBack
            );
            assert!(ended, "message {number}: {message:?}");
        }
    }
}

fn after(persistent: bool) -> Stage {
    if persistent {
        Stage::Inactive
    } else {
        Stage::Over
    }
}
