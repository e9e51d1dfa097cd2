// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions of announced sends: messages that were read while a FIN waits in the outbox are added to that FIN.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test code may panic; its sizes are small"
)]

use engine::{
    ArrivedFrame, Config, ContextId, Engine, FrameBody, FrameHead, OutFrame, Output, Peer, Receive,
    RequestId, Send, wire,
};

const CONTEXT: ContextId = ContextId(4);
const BYTES: u64 = 1 << 16;
/// Maximum number of tokens in one FIN.
const MOST: usize = 1 + wire::MAX_FURTHER_TOKENS as usize;

/// Two engines: rank 0 sends, rank 1 receives.
struct Two {
    engines: [Engine; 2],
    sends: Vec<RequestId>,
    reads: Vec<RequestId>,
}

impl Two {
    /// Two engines after `count` messages were announced; rank 1 is reading all of them.
    fn reading(count: usize) -> Self {
        let engine = || Engine::new(Config::default(), 2);
        let mut two = Self {
            engines: [engine(), engine()],
            sends: Vec::new(),
            reads: Vec::new(),
        };
        for tag in 0..count as i32 {
            two.announce(tag);
        }
        two
    }

    fn announce(&mut self, tag: i32) {
        let send = Send {
            peer: Peer(1),
            context: CONTEXT,
            tag,
            bytes: BYTES,
            buffer: 0x1_0000,
            synchronous: false,
            early: false,
            key: [0x1_0000, BYTES, 7],
        };
        self.sends.push(self.engines[0].start_send(send).unwrap());
        let receive = Receive {
            peer: Some(Peer(0)),
            context: CONTEXT,
            tag: Some(tag),
            bytes: BYTES,
            buffer: 0x2_0000,
        };
        let (request, output) = self.engines[1].start_receive(receive, false).unwrap();
        assert_eq!(output, None);
        let frames = self.frames_of(0);
        assert_eq!(frames.len(), 1);
        let output = self.arrive(1, &frames[0]);
        assert!(matches!(output, Some(Output::Pull { request: read, .. }) if read == request));
        self.reads.push(request);
    }

    fn frames_of(&mut self, from: usize) -> Vec<OutFrame> {
        let (engine, peer) = (&mut self.engines[from], Peer(1 - from as u32));
        let mut frames = Vec::new();
        while let Some(frame) = engine.next_frame(peer) {
            engine.posted(peer);
            frames.push(frame);
        }
        frames
    }

    fn arrive(&mut self, to: usize, frame: &OutFrame) -> Option<Output> {
        let FrameBody::Words { words, count } = frame.body else {
            panic!("{frame:?}");
        };
        self.engines[to].arrive(ArrivedFrame {
            peer: Peer(1 - to as u32),
            head: frame.head,
            bytes: 8 * u64::from(count),
            words,
        })
    }

    fn complete(&self) -> usize {
        let is_complete = |send: &&RequestId| self.engines[0].is_complete(**send);
        self.sends.iter().filter(is_complete).count()
    }

    fn refused(&self) -> u64 {
        self.engines[0].counters().refused
    }
}

#[test]
fn completed_reads_share_one_fin_frame() {
    for count in 1..=2 * MOST + 1 {
        let mut two = Two::reading(count);
        for read in two.reads.clone() {
            two.engines[1].pulled(read);
        }
        let frames = two.frames_of(1);
        assert_eq!(frames.len(), count.div_ceil(MOST), "{count}");
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(frame.head.kind, wire::FIN);
            assert_eq!(two.complete(), number * MOST);
            assert_eq!(two.arrive(0, frame), None);
        }
        assert_eq!((two.complete(), two.refused()), (count, 0));
    }
}

/// A FIN that was posted does not change any more, and no FIN is delayed to collect more tokens.
#[test]
fn a_later_read_gets_its_own_fin() {
    let mut two = Two::reading(3);
    for (number, read) in two.reads.clone().into_iter().enumerate() {
        two.engines[1].pulled(read);
        let frames = two.frames_of(1);
        assert_eq!(frames.len(), 1);
        two.arrive(0, &frames[0]);
        assert_eq!(two.complete(), number + 1);
    }
}

/// A message that is sent between two completions keeps its place between them.
#[test]
fn a_send_between_two_fins_keeps_its_place() {
    let mut two = Two::reading(3);
    let message = Send {
        peer: Peer(0),
        context: CONTEXT,
        tag: 9,
        bytes: BYTES,
        buffer: 0x3_0000,
        synchronous: false,
        early: false,
        key: [0x3_0000, BYTES, 7],
    };
    two.engines[1].pulled(two.reads[0]);
    two.engines[1].start_send(message).unwrap();
    two.engines[1].pulled(two.reads[1]);
    two.engines[1].pulled(two.reads[2]);
    let frames = two.frames_of(1);
    let kinds: Vec<u8> = frames.iter().map(|frame| frame.head.kind).collect();
    assert_eq!(kinds, [wire::FIN, wire::RTS, wire::FIN]);
    two.arrive(0, &frames[2]);
    assert_eq!(two.complete(), 2);
    assert!(!two.engines[0].is_complete(two.sends[0]));
}

/// A FIN is refused if it has too few bytes, too many tokens, a wrong token among valid ones, or a repeated token.
#[test]
fn a_malformed_fin_completes_no_send() {
    let mut two = Two::reading(4);
    let tokens: Vec<u64> = two
        .sends
        .iter()
        .map(|send| u64::from(two.engines[0].arena().token(*send)))
        .collect();
    let mut inject = |flags, word, words: [u64; 6], bytes| {
        let head = FrameHead {
            kind: wire::FIN,
            flags,
            word,
        };
        let arrival = ArrivedFrame {
            peer: Peer(1),
            head,
            bytes,
            words,
        };
        assert_eq!(two.engines[0].arrive(arrival), None);
        (two.refused(), two.complete())
    };
    let pair = |low: u64, high: u64| [low | high << 32, 0, 0, 0, 0, 0];
    let both = pair(tokens[1], tokens[2]);
    assert_eq!(inject(2, tokens[0], both, 0), (1, 0), "no body");
    assert_eq!(inject(0, tokens[0], both, 8), (2, 0), "a body");
    assert_eq!(inject(3, tokens[0], both, 8), (3, 0), "too short a body");
    assert_eq!(
        inject(13, tokens[0], both, 56),
        (4, 0),
        "more than a frame has"
    );
    assert_eq!(inject(u16::MAX, tokens[0], both, 1 << 18), (5, 0));
    let twice = pair(tokens[0], tokens[1]);
    assert_eq!(inject(2, tokens[0], twice, 8), (6, 0), "one of them twice");
    let wrong = pair(tokens[2] ^ 1, tokens[3]);
    assert_eq!(inject(2, tokens[2], wrong, 8), (7, 0), "one of them wrong");
    assert_eq!(inject(2, tokens[0], both, 8), (7, 3));
    assert_eq!(
        inject(1, tokens[3], pair(tokens[0], 0), 8),
        (8, 3),
        "one of them has ended"
    );
}
