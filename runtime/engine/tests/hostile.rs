// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise E4: whatever frames a peer forges, the engine does not panic, no output exceeds the bounds of a request,
//! refused frames change nothing, and messages between other ranks are not affected.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod common;

use common::{Random, Reads, WireEvent, World, for_seeds, key, pattern};
use engine::{
    ArrivedFrame, Config, ContextId, FrameHead, Output, Peer, Receive, RequestId, RequestKind,
    Send, wire,
};
use queue_layout::{ANY_PEER, FLAG_PERSISTENT};

const VICTIM: u32 = 0;
const ATTACKER: u32 = 1;
const FRIEND: u32 = 2;
const CONTEXTS: [u32; 2] = [4, 9];

/// The victim exchanges messages with a friend, while an attacker sends it arbitrary frames.
struct Scene {
    world: World,
    random: Random,
    /// The victim's receives from the friend, and the friend's receives from the victim. For each receive: the
    /// receiving rank, the request, and the number of the message that it must receive.
    awaited: Vec<(u32, RequestId, usize)>,
    messages: usize,
    /// Tokens that are no longer valid.
    old_tokens: Vec<u32>,
    /// Tokens of receives that wait for the attacker's stream.
    streams: Vec<u32>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let config = Config {
            eager_limit_bytes: random.pick(&[0, 60, 1000]),
            unexpected_budget_bytes: random.pick(&[1000, 1 << 20]),
            early_limit_bytes: random.pick(&[0, 64, 3000]),
            stream_chunk_bytes: 100,
            ..Config::default()
        };
        let reads = random.pick(&[Reads::Work, Reads::Sometimes]);
        Self {
            world: World::new(3, config, 8, reads, seed),
            random,
            awaited: Vec::new(),
            messages: 0,
            old_tokens: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn act(&mut self) {
        match self.random.below(8) {
            0 => self.exchange_message(VICTIM, FRIEND),
            1 => self.exchange_message(FRIEND, VICTIM),
            2 => self.open_up(),
            3 => {
                self.world.step();
            }
            _ => self.attack(),
        }
        self.world.events.clear();
    }

    /// Starts one regular message and its receive, in either order. The receive has no wildcard.
    fn exchange_message(&mut self, from: u32, to: u32) {
        let bytes = self.random.pick(&[0, 8, 64, 500, 3000]);
        let number = self.messages;
        self.messages += 1;
        // Each message has its own tag, so the test does not depend on the order of messages.
        let tag = number as i32;
        if self.random.below(2) == 0 {
            self.send(from, to, tag, number, bytes);
            self.receive(to, from, tag, number, bytes);
        } else {
            self.receive(to, from, tag, number, bytes);
            self.send(from, to, tag, number, bytes);
        }
    }

    fn send(&mut self, from: u32, to: u32, tag: i32, number: usize, bytes: u64) {
        let buffer = self.world.lend(pattern(number, bytes));
        let send = Send {
            peer: Peer(to),
            context: ContextId(4),
            tag,
            bytes,
            buffer,
            synchronous: self.random.below(4) == 0,
            early: self.random.below(2) == 0,
            key: key(buffer, bytes, to),
        };
        self.world.engines[from as usize].start_send(send).unwrap();
    }

    fn receive(&mut self, at: u32, from: u32, tag: i32, number: usize, bytes: u64) {
        let buffer = self.world.lend(vec![0; bytes as usize]);
        let wanted = Receive {
            context: ContextId(4),
            peer: Some(Peer(from)),
            tag: Some(tag),
            bytes,
            buffer,
        };
        let engine = &mut self.world.engines[at as usize];
        let (request, output) = engine.start_receive(wanted, false).unwrap();
        if let Some(output) = output {
            self.world.carry_out(at, output);
        }
        self.awaited.push((at, request, number));
    }

    /// The victim starts an operation in which the attacker may take part.
    fn open_up(&mut self) {
        let bytes = self.random.pick(&[0, 8, 500, 3000]);
        let buffer = self.world.lend(vec![7; bytes as usize]);
        let draw = self.random.below(6);
        let tag = (self.random.below(2) == 0).then_some(1);
        let engine = &mut self.world.engines[VICTIM as usize];
        match draw {
            0 | 1 => {
                let send = Send {
                    peer: Peer(ATTACKER),
                    context: ContextId(9),
                    tag: 1,
                    bytes,
                    buffer,
                    synchronous: draw == 1,
                    early: draw == 0,
                    key: key(buffer, bytes, ATTACKER),
                };
                let request = engine.start_send(send).unwrap();
                if self.random.below(3) == 0 {
                    self.world.engines[VICTIM as usize].cancel(request);
                }
            }
            2 => {
                if let Some(found) = engine.probe(ContextId(9), None, None) {
                    engine.claim(found);
                    let started = engine.start_matched_receive(found.message, bytes, buffer);
                    self.carry_out(started.unwrap().1);
                }
            }
            _ => {
                let peer = (draw == 3).then_some(Peer(ATTACKER));
                let wanted = Receive {
                    context: ContextId(9),
                    peer,
                    tag,
                    bytes,
                    buffer,
                };
                let output = engine.start_receive(wanted, false).unwrap().1;
                self.carry_out(output);
            }
        }
        self.drain_towards_attacker();
        self.collect_some();
    }

    /// Takes the victim's frames to the attacker out of the outbox, and answers none of them.
    fn drain_towards_attacker(&mut self) {
        let engine = &mut self.world.engines[VICTIM as usize];
        while engine.next_frame(Peer(ATTACKER)).is_some() {
            engine.posted(Peer(ATTACKER));
        }
    }

    /// Collects requests that involve the attacker, and records their tokens.
    fn collect_some(&mut self) {
        let engine = &mut self.world.engines[VICTIM as usize];
        let arena = engine.arena();
        let done: Vec<_> = arena
            .iter()
            .filter(|id| {
                let fields = arena.fields(*id);
                let plain = matches!(fields.kind, RequestKind::Send | RequestKind::Receive);
                plain && fields.context == 9 && engine.is_complete(*id)
            })
            .collect();
        for id in done {
            self.old_tokens.push(engine.arena().token(id));
            engine.collect(id);
        }
    }

    fn attack(&mut self) {
        let arrival = self.make_up();
        let before = self.see();
        let refused = self.world.engines[VICTIM as usize].counters().refused;
        let output = self.world.engines[VICTIM as usize].arrive(arrival);
        let now = self.world.engines[VICTIM as usize].counters().refused;
        assert!(now == refused || output.is_none());
        let after = self.see();
        if now > refused {
            assert_eq!(before, after, "refused, and yet: {arrival:?}");
        }
        let of_friend = |all: &[(String, bool)]| -> Vec<String> {
            let friends = all.iter().filter(|(_, of_friend)| *of_friend);
            friends.map(|(fields, _)| fields.clone()).collect()
        };
        assert_eq!(of_friend(&before), of_friend(&after), "{arrival:?}");
        self.take(&arrival, output);
        self.drain_towards_attacker();
    }

    /// All slots of the victim without their links, and for each whether its peer is the friend.
    fn see(&self) -> Vec<(String, bool)> {
        let arena = self.world.engines[VICTIM as usize].arena();
        arena
            .iter()
            .map(|id| {
                let mut fields = *arena.fields(id);
                (fields.next, fields.prev, fields.bin) = (0, 0, 0);
                (format!("{id:?} {fields:?}"), fields.peer == FRIEND)
            })
            .collect()
    }

    /// A random frame. Its kind, envelope and tokens may be valid, formerly valid, or never valid.
    fn make_up(&mut self) -> ArrivedFrame {
        let kind = match self.random.below(14) {
            0 => self.random.next() as u8,
            draw => draw as u8,
        };
        let word = match self.random.below(4) {
            _ if kind == wire::DATA && !self.streams.is_empty() => {
                self.random.pick(&self.streams).into()
            }
            _ if kind == wire::MATCHED => self.random.below(20),
            0 => self.random.next(),
            1 => u64::from(self.token()) | u64::from(self.token()) << 32,
            _ => {
                let context = self
                    .random
                    .pick(&[CONTEXTS[0], CONTEXTS[1], 9, 9, 0, u32::MAX]);
                let tag = self.random.pick(&[0, 1, 1, 2, -1, -2, i32::MIN, i32::MAX]);
                u64::from(context) | u64::from(tag.cast_unsigned()) << 32
            }
        };
        let sizes = [0, 1, 8, 8, 16, 40, 40, 41, 48, 100, 32_768];
        let mut words = [0; 6];
        for word in &mut words {
            *word = match self.random.below(5) {
                0 => self.random.next(),
                1 => self.token().into(),
                2 => self
                    .random
                    .pick(&[0, 1, 64, 3000, u64::MAX, 1 << 63, (1 << 63) - 1]),
                3 => u64::from(self.random.pick(&CONTEXTS)),
                _ => 0,
            };
        }
        ArrivedFrame {
            peer: Peer(ATTACKER),
            head: FrameHead {
                kind,
                flags: self.random.next() as u16 & 3,
                word,
            },
            bytes: self.random.pick(&sizes),
            words,
        }
    }

    fn token(&mut self) -> u32 {
        let arena = self.world.engines[VICTIM as usize].arena();
        let live: Vec<_> = arena.iter().map(|id| arena.token(id)).collect();
        match self.random.below(6) {
            0 => self.random.next() as u32,
            1 if !self.old_tokens.is_empty() => self.random.pick(&self.old_tokens),
            2 if !live.is_empty() => self.random.pick(&live) ^ 1 << self.random.below(32),
            _ if !live.is_empty() => self.random.pick(&live),
            _ => 0,
        }
    }

    /// Carries out the output for a frame of the attacker, and checks that the output is within bounds.
    fn take(&mut self, arrival: &ArrivedFrame, output: Option<Output>) {
        let engine = &mut self.world.engines[VICTIM as usize];
        match output {
            Some(Output::Keep { message }) => {
                engine.keep(message, vec![1; arrival.bytes as usize].into());
            }
            Some(Output::KeepMore { message, offset }) => {
                let body = engine.kept_body_mut(message);
                body[offset as usize..][..arrival.bytes as usize].fill(1);
                let next = engine.kept_more(message);
                self.carry_out(next);
            }
            Some(Output::Deliver {
                request,
                offset,
                bytes,
            }) => {
                let fields = engine.arena().fields(request);
                assert!(bytes <= arrival.bytes);
                assert!(
                    offset.checked_add(bytes).unwrap() <= fields.bytes,
                    "{arrival:?}"
                );
                assert!(fields.peer == ATTACKER || fields.peer == ANY_PEER);
            }
            other => self.carry_out(other),
        }
    }

    fn carry_out(&mut self, output: Option<Output>) {
        let engine = &mut self.world.engines[VICTIM as usize];
        match output {
            None => {}
            Some(Output::Pull {
                request,
                peer,
                bytes,
                ..
            }) => {
                let fields = engine.arena().fields(request);
                assert!(bytes <= fields.bytes);
                assert_eq!(peer, Peer(ATTACKER));
                match self.random.below(3) {
                    0 => {
                        self.streams.push(engine.arena().token(request));
                        engine.cannot_pull(request);
                    }
                    1 => engine.pulled(request),
                    _ => engine.transfer_failed(request),
                }
            }
            Some(Output::DeliverKept {
                request,
                message,
                bytes,
            }) => {
                assert!(bytes <= engine.arena().fields(request).bytes);
                assert!(bytes <= engine.kept_body(message).len() as u64);
                engine.drop_message(message);
            }
            Some(other) => panic!("{other:?} without a frame"),
        }
    }

    /// Checks that victim and friend have received each other's messages, whatever the attacker did.
    fn end(&mut self) {
        self.drain_towards_attacker();
        self.world.settle();
        for (rank, request, number) in std::mem::take(&mut self.awaited) {
            let engine = &self.world.engines[rank as usize];
            assert!(engine.is_complete(request), "message {number} never came");
            let fields = *engine.arena().fields(request);
            assert_eq!((fields.error, fields.flags & FLAG_PERSISTENT), (0, 0));
            assert_eq!(fields.matched_peer, VICTIM + FRIEND - rank);
            let expected = pattern(number, fields.matched_bytes);
            assert!(*self.world.buffer(fields.buffer) == expected);
        }
    }
}

#[test]
fn forged_frames_leave_other_messages_intact() {
    for_seeds(150, |seed| {
        let mut scene = Scene::new(seed);
        for _ in 0..300 {
            scene.act();
        }
        scene.end();
    });
}

/// Frames of a peer that does not exist are refused before anything else.
#[test]
fn frames_of_a_nonexistent_peer_are_refused() {
    let mut world = World::new(2, Config::default(), 8, Reads::Work, 1);
    for kind in 0..=u8::MAX {
        let arrival = ArrivedFrame {
            peer: Peer(2),
            head: FrameHead {
                kind,
                flags: 0,
                word: 4,
            },
            bytes: 40,
            words: [0; 6],
        };
        assert_eq!(world.engines[0].arrive(arrival), None, "kind {kind}");
    }
    assert_eq!(world.engines[0].counters().refused, 256);
    assert_eq!(world.engines[0].arena().live(), 0);
    assert!(
        !world
            .events
            .iter()
            .any(|events| matches!(events, WireEvent::Posted { .. }))
    );
}

/// Frames that a peer must not send: the answer to a cancel that was not requested, a request for more bytes than the
/// message has, a token of another use of the slot, and a message of more bytes than a count can hold.
#[test]
fn unsolicited_replies_are_refused() {
    let mut world = World::new(2, Config::default(), 8, Reads::Work, 1);
    let buffer = world.lend(vec![0; 9000]);
    let send = Send {
        peer: Peer(1),
        context: ContextId(4),
        tag: 1,
        bytes: 9000,
        buffer,
        synchronous: false,
        early: false,
        key: key(buffer, 9000, 1),
    };
    let engine = &mut world.engines[0];
    let request = engine.start_send(send).unwrap();
    engine.next_frame(Peer(1)).unwrap();
    engine.posted(Peer(1));
    let token = u64::from(engine.arena().token(request));
    let mut inject = |kind, flags, word, words| {
        let head = FrameHead { kind, flags, word };
        let arrival = ArrivedFrame {
            peer: Peer(1),
            head,
            bytes: 8 * words as u64,
            words: [9001, 1 << 63, 0, 0, 0, 0],
        };
        assert_eq!(engine.arrive(arrival), None);
        engine.counters().refused
    };
    assert_eq!(inject(wire::CANCELLED, wire::WAS_CANCELLED, token, 0), 1);
    assert_eq!(
        inject(wire::CTS, 0, token, 1),
        1 + 1,
        "more than the message has"
    );
    assert_eq!(
        inject(wire::FIN, 0, token ^ 1, 0),
        3,
        "a token of another use"
    );
    assert_eq!(inject(wire::RTS, 0, 4, 5), 4, "a message of 2^63 bytes");
    assert!(!engine.is_complete(request));
    assert_eq!(engine.probe(ContextId(4), None, None), None);
}

/// A forged negative tag could match a receive of any tag, or an internal receive.
#[test]
fn a_forged_negative_tag_matches_no_receive() {
    for tag in [-1, -2, i32::MIN] {
        let mut world = World::new(2, Config::default(), 8, Reads::Work, 1);
        let wanted = Receive {
            context: ContextId(4),
            peer: Some(Peer(1)),
            tag: None,
            bytes: 8,
            buffer: 0,
        };
        let engine = &mut world.engines[0];
        let (request, _) = engine.start_receive(wanted, false).unwrap();
        let head = wire::eager(ContextId(4), tag);
        assert_eq!(engine.arrive_first(Peer(1), head.word, 8), None);
        for kind in [wire::EAGER, wire::RTS] {
            let arrival = ArrivedFrame {
                peer: Peer(1),
                head: FrameHead { kind, ..head },
                bytes: 40,
                words: [0; 6],
            };
            assert_eq!(engine.arrive(arrival), None);
        }
        assert!(!engine.is_complete(request));
        assert_eq!(engine.counters().refused, 2);
    }
}

/// A CANCEL is answered. If a peer never takes the answers, the number of answers that the victim queues must be
/// bounded.
#[test]
fn unread_cancel_replies_are_bounded() {
    let mut world = World::new(2, Config::default(), 8, Reads::Work, 1);
    let engine = &mut world.engines[0];
    let cancel = ArrivedFrame {
        peer: Peer(1),
        head: FrameHead {
            kind: wire::CANCEL,
            flags: 0,
            word: 7,
        },
        bytes: 8,
        words: [4, 0, 0, 0, 0, 0],
    };
    // A peer cannot have this many open sends, and so cannot request this many cancels.
    for _ in 0..1 << 21 {
        engine.arrive(cancel);
    }
    assert!(engine.counters().refused > 0);
    let mut answers = 0u32;
    while engine.next_frame(Peer(1)).is_some() {
        engine.posted(Peer(1));
        answers += 1;
    }
    assert!(answers >= 1 << 19, "an honest peer is answered: {answers}");
    engine.arrive(cancel);
    assert!(engine.next_frame(Peer(1)).is_some(), "and so is a new one");
}
