// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast paths make no decisions of their own. An engine that tries them first and an engine that never does match
//! the same messages in the same order (promise E1). The programs mix receives with and without wildcards, persistent,
//! cancelled, freed and too short ones, and probes.

#![allow(clippy::cast_possible_truncation, reason = "small random numbers")]

use engine::{
    ArrivedFrame, CollectOutcome, Config, ContextId, Engine, Output, Peer, Receive, RequestId,
    RequestState, wire,
};
use queue_layout::{FLAG_CANCELLED, FLAG_PERSISTENT, Queued, RequestKind};

const PEERS: u32 = 3;
const CONTEXT: ContextId = ContextId(2);
const BYTES: u64 = 8;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The outcome of a receive: its buffer, the message's number, whether it was too long, its tag and its bytes.
type Got = (u64, u64, bool, i32, u64);

/// Stands for a message's number if the receive was cancelled.
const CANCELLED: u64 = u64::MAX;

/// One engine, and the outcomes of its receives.
struct Side {
    engine: Engine,
    fast: bool,
    /// Token and buffer of each open receive.
    open: Vec<(u32, u64)>,
    /// Number of the message in each buffer.
    memory: Vec<Option<u64>>,
    got: Vec<Got>,
    /// How often each fast path was taken while other receives were posted: `post_first`, `arrive_for`, `arrive_first`.
    taken_in_company: [u32; 3],
}

/// The parameters of a receive, a probe or a message.
#[derive(Clone, Copy)]
struct Parameters {
    context: ContextId,
    peer: Option<u32>,
    tag: Option<i32>,
    bytes: u64,
    persistent: bool,
}

impl Side {
    fn new(fast: bool) -> Self {
        let engine = Engine::new(Config::default(), PEERS);
        Self {
            engine,
            fast,
            open: Vec::new(),
            memory: Vec::new(),
            got: Vec::new(),
            taken_in_company: [0; 3],
        }
    }

    fn note(&mut self, path: usize) {
        if self.engine.counters().posted_length > 1 {
            self.taken_in_company[path] += 1;
        }
    }

    fn receive(&mut self, parameters: Parameters) {
        let buffer = self.memory.len() as u64;
        self.memory.push(None);
        let plain = parameters.peer.zip(parameters.tag);
        let plain = plain.filter(|_| self.fast && !parameters.persistent);
        let posted = plain.and_then(|(peer, tag)| {
            self.engine.post_first(
                parameters.context,
                Peer(peer),
                tag,
                (parameters.bytes, 0),
                buffer,
            )
        });
        if posted.is_some() {
            self.note(0);
        }
        let token = posted.unwrap_or_else(|| self.start(parameters, buffer));
        self.open.push((token, buffer));
    }

    fn start(&mut self, parameters: Parameters, buffer: u64) -> u32 {
        let receive = Receive {
            context: parameters.context,
            peer: parameters.peer.map(Peer),
            tag: parameters.tag,
            bytes: parameters.bytes,
            buffer,
        };
        let started = self.engine.start_receive(receive, parameters.persistent);
        let (request, mut output) = started.expect("a slot is left");
        if parameters.persistent {
            output = self.engine.restart_receive(request);
        }
        if let Some(Output::DeliverKept { message, .. }) = output {
            let body = self.engine.kept_body(message);
            let number = body.try_into().expect("eight bytes");
            self.memory[buffer as usize] = Some(u64::from_ne_bytes(number));
            self.engine.drop_message(message);
        }
        self.engine.arena().token(request)
    }

    fn arrive(&mut self, message: Parameters, number: u64, awaited: Option<u64>) {
        let (peer, tag) = message.peer.zip(message.tag).expect("of a message");
        let head = wire::eager(message.context, tag);
        let (peer, bytes) = (Peer(peer), message.bytes);
        if self.fast {
            let awaited = self.open.iter().find(|(_, at)| Some(*at) == awaited);
            if let Some((token, buffer)) = awaited.copied()
                && let Some(place) = self.engine.arrive_for(token, peer, head.word, bytes)
            {
                assert_eq!(place, buffer);
                self.note(1);
                self.got.push((buffer, number, false, tag, bytes));
                self.open.retain(|(open, _)| *open != token);
                return;
            }
            if let Some((place, fits)) = self.engine.arrive_first(peer, head.word, bytes) {
                assert!(fits <= bytes);
                self.note(2);
                self.memory[place as usize] = Some(number);
                return;
            }
        }
        let arrival = ArrivedFrame {
            peer,
            head,
            bytes,
            words: [number, 0, 0, 0, 0, 0],
        };
        match self.engine.arrive(arrival) {
            Some(Output::Deliver { request, .. }) => {
                let place = self.engine.arena().fields(request).buffer;
                self.memory[place as usize] = Some(number);
            }
            Some(Output::Keep { message }) => {
                self.engine.keep(message, number.to_ne_bytes().into())
            }
            other => panic!("{other:?}"),
        }
    }

    /// The open receive of a buffer, if no message has matched it.
    fn posted(&self, buffer: u64) -> Option<RequestId> {
        let (token, _) = self.open.iter().find(|(_, at)| *at == buffer)?;
        let request = self.engine.arena().find(*token)?;
        let state = self.engine.arena().fields(request).state;
        (state == RequestState::Posted).then_some(request)
    }

    /// Frees a posted receive. The engine still delivers a message to it.
    fn free(&mut self, request: RequestId) {
        let token = self.engine.arena().token(request);
        self.open.retain(|(open, _)| *open != token);
        self.engine.free(request);
    }

    fn probe(&mut self, parameters: Parameters) -> Option<(Peer, i32, u64)> {
        let found = self.engine.probe(
            parameters.context,
            parameters.peer.map(Peer),
            parameters.tag,
        )?;
        Some((found.peer, found.tag, found.bytes))
    }

    /// Collects everything that is complete, on the fast path or the general one.
    fn collect(&mut self) {
        for (token, buffer) in std::mem::take(&mut self.open) {
            match self.collect_one(token) {
                None => self.open.push((token, buffer)),
                Some((CANCELLED, ..)) => self.got.push((buffer, CANCELLED, false, 0, 0)),
                Some((_, too_long, tag, bytes)) => {
                    let number = self.memory[buffer as usize].expect("a message was delivered");
                    self.got.push((buffer, number, too_long, tag, bytes));
                }
            }
        }
    }

    fn collect_one(&mut self, token: u32) -> Option<(u64, bool, i32, u64)> {
        let request = self.engine.arena().find(token).expect("not collected yet");
        if self.fast {
            match self.engine.collect_plain(token) {
                CollectOutcome::Done(got) => return Some((0, false, got.tag, got.bytes)),
                CollectOutcome::NotYet => return None,
                CollectOutcome::Special | CollectOutcome::Sent => {}
            }
        }
        if !self.engine.is_complete(request) {
            return None;
        }
        let fields = *self.engine.arena().fields(request);
        self.engine.collect(request);
        if fields.flags & FLAG_PERSISTENT != 0 {
            self.engine.free(request);
        }
        let cancelled = fields.flags & FLAG_CANCELLED != 0;
        let number = if cancelled { CANCELLED } else { 0 };
        let too_long = fields.error != 0;
        Some((number, too_long, fields.matched_tag, fields.matched_bytes))
    }
}

/// Makes one operation of a random program on both sides.
fn act(random: &mut Random, number: u64, fast: &mut Side, ordinary: &mut Side) {
    let context = ContextId(CONTEXT.0 + u32::from(random.below(6) == 0));
    let peer = random.below(u64::from(PEERS)) as u32;
    let tag = random.below(3) as i32;
    let message = Parameters {
        context,
        peer: Some(peer),
        tag: Some(tag),
        bytes: if random.below(4) == 0 { 4 } else { BYTES },
        persistent: false,
    };
    let wild = random.below(8);
    let parameters = Parameters {
        peer: (wild != 0).then_some(peer),
        tag: (wild != 1).then_some(tag),
        persistent: random.below(10) == 0,
        ..message
    };
    // Chooses one of the last receives.
    let recent = (fast.memory.len() as u64).wrapping_sub(1 + random.below(6));
    match random.below(24) {
        0 | 1 => assert_eq!(fast.probe(parameters), ordinary.probe(parameters)),
        which @ 2..4 => {
            let (one, other) = (fast.posted(recent), ordinary.posted(recent));
            assert_eq!(one.is_some(), other.is_some(), "receive {recent}");
            for (side, request) in [(fast, one), (ordinary, other)] {
                match request {
                    Some(request) if which == 2 => side.engine.cancel(request),
                    Some(request) => side.free(request),
                    None => {}
                }
            }
        }
        4..14 => {
            fast.receive(parameters);
            ordinary.receive(parameters);
        }
        _ => {
            let awaited = fast.open.get(random.below(4) as usize);
            let awaited = awaited.map(|(_, buffer)| *buffer);
            fast.arrive(message, number, awaited);
            ordinary.arrive(message, number, None);
        }
    }
}

#[test]
fn s3_5_the_fast_paths_match_like_the_general_ones() {
    let mut taken = [0; 3];
    for seed in 0..1200 {
        let mut random = Random(seed);
        let (mut fast, mut ordinary) = (Side::new(true), Side::new(false));
        for number in 0..200 {
            act(&mut random, number, &mut fast, &mut ordinary);
            if random.below(4) == 0 {
                fast.collect();
                ordinary.collect();
            }
        }
        fast.collect();
        ordinary.collect();
        fast.got.sort_unstable();
        ordinary.got.sort_unstable();
        assert_eq!(fast.got, ordinary.got, "seed {seed}");
        assert_eq!(fast.memory.len(), ordinary.memory.len());
        assert_eq!(
            fast.engine.arena().live(),
            ordinary.engine.arena().live(),
            "seed {seed}"
        );
        for (sum, one) in taken.iter_mut().zip(fast.taken_in_company) {
            *sum += one;
        }
    }
    assert!(taken.iter().all(|count| *count > 500), "{taken:?}");
}

/// Number of receives whose slots are posted, in the first context and in the second.
fn posted_by_slots(engine: &Engine) -> [u64; 2] {
    let all = engine.arena().iter().map(|id| engine.arena().fields(id));
    let posted = all.filter(|fields| {
        (fields.kind, fields.state) == (RequestKind::Receive, RequestState::Posted)
    });
    posted.fold([0; 2], |[first, second], fields| {
        let is_first = fields.context == CONTEXT.0;
        [first + u64::from(is_first), second + u64::from(!is_first)]
    })
}

/// Starts or stops observing the posted receives of a context.
fn turn_watch(engine: &mut Engine, watch: &mut Option<usize>, context: ContextId) {
    *watch = match watch.take() {
        None => engine.watch_queue(Queued::Posted, context),
        Some(at) => {
            engine.live_counters().queues(Queued::Posted).unwatch(at);
            None
        }
    };
}

#[test]
fn posted_receives_are_counted_on_every_path() {
    let (mut taken, mut compared) = ([0; 3], 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let (mut fast, mut ordinary) = (Side::new(true), Side::new(false));
        let mut watches = [None; 2];
        for number in 0..200 {
            if random.below(50) == 0 {
                let which = random.below(2);
                let context = ContextId(CONTEXT.0 + which as u32);
                turn_watch(&mut fast.engine, &mut watches[which as usize], context);
            }
            act(&mut random, number, &mut fast, &mut ordinary);
            if random.below(4) == 0 {
                fast.collect();
                ordinary.collect();
            }
            let expected = posted_by_slots(&fast.engine);
            assert_eq!(expected, posted_by_slots(&ordinary.engine));
            let queues = fast.engine.live_counters().queues(Queued::Posted);
            for (watch, expected) in watches.iter().zip(&expected) {
                let Some(at) = watch else { continue };
                assert_eq!(queues.length(*at), *expected, "seed {seed}, act {number}");
                compared += u32::from(*expected > 1);
            }
        }
        for (sum, one) in taken.iter_mut().zip(fast.taken_in_company) {
            *sum += one;
        }
    }
    // The fast paths are taken again after the last observer has stopped.
    assert!(taken.iter().all(|count| *count > 20), "{taken:?}");
    assert!(compared > 1000, "{compared}");
}

fn receive_of(peer: Option<u32>, context: u32, buffer: u64) -> Receive {
    Receive {
        context: ContextId(context),
        peer: peer.map(Peer),
        tag: Some(7),
        bytes: BYTES,
        buffer,
    }
}

fn word_in(context: u32) -> u64 {
    wire::eager(ContextId(context), 7).word
}

#[test]
fn s3_5_an_earlier_any_source_receive_matches_before_a_later_one() {
    let mut engine = Engine::new(Config::default(), PEERS);
    let first = engine
        .post_first(CONTEXT, Peer(1), 7, (BYTES, 0), 100)
        .unwrap();
    let any = receive_of(None, CONTEXT.0, 200);
    let (wild, _) = engine.start_receive(any, false).unwrap();
    assert_eq!(
        engine.post_first(CONTEXT, Peer(1), 7, (BYTES, 0), 300),
        None
    );
    let named = receive_of(Some(1), CONTEXT.0, 300);
    let (later, _) = engine.start_receive(named, false).unwrap();

    let word = word_in(CONTEXT.0);
    let later = engine.arena().token(later);
    assert_eq!(engine.arrive_for(later, Peer(1), word, BYTES), None);
    assert_eq!(engine.arrive_for(first, Peer(1), word, BYTES), Some(100));
    // Now the receive from any source is the earliest.
    assert_eq!(engine.arrive_for(later, Peer(1), word, BYTES), None);
    assert_eq!(engine.arrive_first(Peer(1), word, BYTES), None);
    let message = ArrivedFrame {
        peer: Peer(1),
        head: wire::eager(CONTEXT, 7),
        bytes: BYTES,
        words: [0; 6],
    };
    let taken = engine.arrive(message);
    assert!(matches!(taken, Some(Output::Deliver { request, .. }) if request == wild));
}

/// When the slots no longer fit the first chunk, the number of bins grows. Every path must find each receive in its new
/// bin.
#[test]
fn receives_are_found_after_the_bins_have_grown() {
    const RECEIVES: u32 = 3000;
    let mut engine = Engine::new(Config::default(), PEERS);
    let mut tokens = Vec::new();
    for number in 0..RECEIVES {
        let (context, buffer) = (number / 3, u64::from(number));
        // Uses the fast path while a slot is free; otherwise the general path, which allocates slots.
        let short = engine.post_first(ContextId(context), Peer(2), 7, (BYTES, 0), buffer);
        tokens.push(short.unwrap_or_else(|| {
            let wanted = receive_of(Some(2), context, buffer);
            let (request, _) = engine.start_receive(wanted, false).unwrap();
            engine.arena().token(request)
        }));
    }
    let mut by_token = 0;
    for number in 0..RECEIVES {
        let (word, buffer) = (word_in(number / 3), u64::from(number));
        let token = tokens[number as usize];
        if let Some(place) = engine.arrive_for(token, Peer(2), word, BYTES) {
            assert_eq!(place, buffer);
            by_token += 1;
        } else {
            let place = engine.arrive_first(Peer(2), word, BYTES);
            assert_eq!(place, Some((buffer, BYTES)));
            let request = engine.arena().find(token).unwrap();
            engine.collect(request);
        }
    }
    assert!(by_token > RECEIVES - 20, "{by_token}");
    assert_eq!(engine.arena().live(), 0);
}

#[test]
fn a_stale_token_does_not_match_the_reused_slot() {
    let mut engine = Engine::new(Config::default(), PEERS);
    let word = word_in(CONTEXT.0);
    let old = engine
        .post_first(CONTEXT, Peer(1), 7, (BYTES, 0), 100)
        .unwrap();
    assert_eq!(engine.arrive_for(old, Peer(1), word, BYTES), Some(100));
    assert_eq!(engine.arrive_for(old, Peer(1), word, BYTES), None);
    let new = engine
        .post_first(CONTEXT, Peer(1), 7, (BYTES, 0), 200)
        .unwrap();
    assert_eq!(new >> 8, old >> 8, "the slot is used again");
    for stale in [old, new + 1, new ^ 1 << 27, 0, u32::MAX] {
        assert_eq!(engine.arrive_for(stale, Peer(1), word, BYTES), None);
    }
    // An invalid message does not affect the receive.
    assert_eq!(engine.arrive_for(new, Peer(2), word, BYTES), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word ^ 1, BYTES), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word ^ 1 << 32, BYTES), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word, BYTES + 1), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word, BYTES), Some(200));
}
