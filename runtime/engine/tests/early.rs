// SPDX-License-Identifier: MIT OR Apache-2.0
//! Early messages, frame by frame.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test code may panic; its sizes are small"
)]

use engine::{
    ArrivedFrame, Config, ContextId, Engine, FrameBody, Output, Peer, Receive, RequestFailure,
    RequestId, RequestState, Send, wire,
};

const SENDER: Peer = Peer(0);
const RECEIVER: Peer = Peer(1);
const CONTEXT: ContextId = ContextId(4);

/// A sender, a receiver, and their memory; both buffers are at "address" 0.
struct Pair {
    sender: Engine,
    receiver: Engine,
    source: Vec<u8>,
    target: Vec<u8>,
    kinds: Vec<u8>,
}

impl Pair {
    fn new(bytes: usize, room: usize) -> Self {
        let config = Config {
            eager_limit_bytes: 100,
            early_limit_bytes: 1000,
            stream_chunk_bytes: 300,
            ..Config::default()
        };
        Self {
            sender: Engine::new(config, 2),
            receiver: Engine::new(config, 2),
            source: (0..bytes).map(|at| (at % 251) as u8).collect(),
            target: vec![0; room],
            kinds: Vec::new(),
        }
    }

    fn described(&self, tag: i32, early: bool) -> Send {
        Send {
            peer: RECEIVER,
            context: CONTEXT,
            tag,
            bytes: self.source.len() as u64,
            buffer: 0,
            synchronous: false,
            early,
            key: [0; 3],
        }
    }

    fn send(&mut self, tag: i32, early: bool) -> RequestId {
        self.sender.start_send(self.described(tag, early)).unwrap()
    }

    fn receive(&mut self, tag: i32) -> RequestId {
        let receive = Receive {
            context: CONTEXT,
            peer: Some(SENDER),
            tag: Some(tag),
            bytes: self.target.len() as u64,
            buffer: 0,
        };
        let (request, output) = self.receiver.start_receive(receive, false).unwrap();
        self.carry_out(output, &[]);
        request
    }

    /// Moves the next frame; `false` if there is none.
    fn step(&mut self) -> bool {
        let Some(frame) = self.sender.next_frame(RECEIVER) else {
            return false;
        };
        let mut words = [0; 6];
        let body = match frame.body {
            FrameBody::Words { words: all, count } => {
                words = all;
                vec![0; usize::from(count) * 8]
            }
            FrameBody::Payload { offset, bytes, .. } => {
                self.source[offset as usize..][..bytes as usize].to_vec()
            }
        };
        self.kinds.push(frame.head.kind);
        self.sender.posted(RECEIVER);
        let output = self.receiver.arrive(ArrivedFrame {
            peer: SENDER,
            head: frame.head,
            bytes: body.len() as u64,
            words,
        });
        self.carry_out(output, &body);
        true
    }

    fn carry_out(&mut self, output: Option<Output>, body: &[u8]) {
        match output {
            None | Some(Output::Pull { .. }) => {}
            Some(Output::Deliver { offset, bytes, .. }) => {
                self.target[offset as usize..][..bytes as usize]
                    .copy_from_slice(&body[..bytes as usize]);
            }
            Some(Output::Keep { message }) => self.receiver.keep(message, body.into()),
            Some(Output::KeepMore { message, offset }) => {
                let kept = self.receiver.kept_body_mut(message);
                kept[offset as usize..][..body.len()].copy_from_slice(body);
                let next = self.receiver.kept_more(message);
                self.carry_out(next, &[]);
            }
            Some(Output::DeliverKept { message, bytes, .. }) => {
                let kept = self.receiver.kept_body(message)[..bytes as usize].to_vec();
                self.target[..bytes as usize].copy_from_slice(&kept);
                self.receiver.drop_message(message);
            }
        }
    }

    fn assert_received(&mut self, request: RequestId) {
        assert!(self.receiver.is_complete(request));
        let bytes = self.source.len().min(self.target.len());
        assert!(self.target[..bytes] == self.source[..bytes]);
        self.receiver.collect(request);
        assert_eq!(self.receiver.arena().live(), 0);
        assert_eq!(self.receiver.counters().kept_bytes, 0);
        assert_eq!(self.receiver.counters().refused, 0);
    }
}

#[test]
fn an_early_message_goes_in_consecutive_frames() {
    let mut pair = Pair::new(1000, 1000);
    let received = pair.receive(1);
    let sent = pair.send(1, true);
    while pair.step() {}
    let all = [wire::FIRST, wire::MORE, wire::MORE, wire::MORE, wire::MORE];
    assert_eq!(pair.kinds, all);
    assert!(pair.sender.is_complete(sent));
    pair.assert_received(received);
}

#[test]
fn a_receive_may_be_posted_between_early_frames() {
    for frames in 0..=5 {
        let mut pair = Pair::new(1000, 1000);
        pair.send(1, true);
        (0..frames).for_each(|_| assert!(pair.step()));
        let received = pair.receive(1);
        assert_eq!(pair.receiver.is_complete(received), frames == 5);
        while pair.step() {}
        pair.assert_received(received);
    }
}

#[test]
fn a_probed_message_can_be_received_before_its_last_frame() {
    let mut pair = Pair::new(700, 700);
    pair.send(1, true);
    pair.step();
    pair.step();
    let found = pair.receiver.probe(CONTEXT, None, None).unwrap();
    assert_eq!((found.bytes, found.tag), (700, 1));
    pair.receiver.claim(found);
    pair.step();
    let started = pair.receiver.start_matched_receive(found.message, 700, 0);
    let (received, output) = started.unwrap();
    assert_eq!((output, pair.receiver.is_complete(received)), (None, false));
    while pair.step() {}
    pair.assert_received(received);
}

#[test]
fn a_partly_arrived_message_leaves_the_unexpected_queue_when_matched() {
    let mut pair = Pair::new(1000, 1000);
    pair.send(1, true);
    (0..2).for_each(|_| assert!(pair.step()));
    let kept = |pair: &Pair| {
        let arena = pair.receiver.arena();
        let states = arena.iter().map(|id| arena.fields(id).state);
        states.filter(|state| *state == RequestState::Kept).count()
    };
    assert_eq!(kept(&pair), 1);
    let received = pair.receive(1);
    assert!(!pair.receiver.is_complete(received));
    assert_eq!(
        kept(&pair),
        0,
        "a debugger would list it beside its receive"
    );
    while pair.step() {}
    pair.assert_received(received);
}

#[test]
fn an_early_message_is_truncated_to_its_receive() {
    for (frames, room) in [(0, 250), (0, 300), (0, 950), (2, 250), (2, 0), (5, 999)] {
        let mut pair = Pair::new(1000, room);
        pair.send(1, true);
        (0..frames).for_each(|_| assert!(pair.step()));
        let received = pair.receive(1);
        while pair.step() {}
        let fields = pair.receiver.arena().fields(received);
        assert_eq!(fields.error, RequestFailure::Truncated as u8);
        assert_eq!(fields.matched_bytes, 1000);
        pair.assert_received(received);
    }
}

#[test]
fn no_frame_interleaves_with_an_early_message() {
    let mut pair = Pair::new(700, 700);
    pair.send(1, true);
    pair.step();
    let second = pair.send(2, true);
    assert_eq!(
        pair.sender.arena().fields(second).state,
        RequestState::Queued
    );
    pair.sender.cancel(second);
    while pair.step() {}
    assert_eq!(
        pair.kinds,
        [wire::FIRST, wire::MORE, wire::MORE, wire::MORE]
    );
    let received = pair.receive(1);
    pair.assert_received(received);
}

#[test]
fn only_permitted_sizes_go_early() {
    let mut pair = Pair::new(700, 700);
    pair.send(1, false);
    pair.step();
    pair.source = vec![0; 1001];
    pair.send(1, true);
    pair.step();
    pair.source = vec![0; 100];
    pair.send(1, true);
    pair.step();
    assert_eq!(pair.kinds, [wire::RTS, wire::RTS, wire::EAGER]);
}

#[test]
fn s3_9_each_start_of_a_persistent_send_chooses_early_or_not() {
    let mut pair = Pair::new(300, 300);
    let request = pair.sender.prepare_send(pair.described(1, false)).unwrap();
    for early in [true, false] {
        pair.sender.restart_send(request, [0; 3], early);
        while pair.step() {}
        if early {
            assert!(pair.sender.is_complete(request));
            pair.sender.collect(request);
        }
    }
    assert_eq!(pair.kinds, [wire::FIRST, wire::MORE, wire::RTS]);
}

fn arrive(engine: &mut Engine, kind: u8, word: u64, bytes: u64, words: [u64; 6]) -> Option<Output> {
    let head = wire::FrameHead {
        kind,
        flags: 0,
        word,
    };
    engine.arrive(ArrivedFrame {
        peer: SENDER,
        head,
        bytes,
        words,
    })
}

#[test]
fn a_receive_of_an_early_message_rejects_other_frames() {
    let mut pair = Pair::new(1000, 1000);
    let word = wire::eager(CONTEXT, 1).word;
    // Leaves the scratch words of a stream in several slots: the next use of such a slot finds stale words.
    let streamed: Vec<_> = (0..4).map(|_| pair.receive(1)).collect();
    for request in streamed {
        let engine = &mut pair.receiver;
        let announced = [9, 1000, 0, 0, 0, 0];
        assert!(arrive(engine, wire::RTS, word, 40, announced).is_some());
        engine.cannot_pull(request);
        let (token, mut left) = (engine.arena().token(request), 1000u64);
        while left > 0 {
            let part = left.min(300);
            assert!(arrive(engine, wire::DATA, u64::from(token), part, [0; 6]).is_some());
            left -= part;
        }
        assert!(engine.is_complete(request));
        engine.collect(request);
    }
    pair.send(1, true);
    (0..2).for_each(|_| assert!(pair.step()));
    let received = pair.receive(1);
    let token = u64::from(pair.receiver.arena().token(received));
    for bytes in [0, 1, 300] {
        assert_eq!(
            arrive(&mut pair.receiver, wire::DATA, token, bytes, [0; 6]),
            None
        );
        assert!(!pair.receiver.is_complete(received), "{bytes}");
    }
    assert_eq!(pair.receiver.counters().refused, 3);
    while pair.step() {}
    assert!(pair.receiver.is_complete(received));
    assert!(pair.target == pair.source);
}

#[test]
fn a_rank_that_sends_nothing_early_receives_early_messages() {
    for posted in [true, false] {
        let mut pair = Pair::new(1000, 1000);
        let config = Config {
            early_limit_bytes: 0,
            ..*pair.sender.config()
        };
        pair.receiver = Engine::new(config, 2);
        let before = posted.then(|| pair.receive(1));
        pair.send(1, true);
        while pair.step() {}
        let received = before.unwrap_or_else(|| pair.receive(1));
        pair.assert_received(received);
    }
}
