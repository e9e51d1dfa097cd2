// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast paths decide nothing of their own: an engine that tries them first and one that never does see the same
//! messages matched in the same order (promise E1).

#![allow(clippy::cast_possible_truncation, reason = "small random numbers")]

use engine::{Arrival, Collected, Config, ContextId, Engine, Output, Peer, Receive, wire};

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

/// One engine, and what became of its receives: which message (by number) each got.
struct Side {
    engine: Engine,
    fast: bool,
    /// Token, number and buffer of each open receive.
    open: Vec<(u32, u64)>,
    /// Number of the message that lies at each buffer address.
    memory: Vec<Option<u64>>,
    got: Vec<(u64, u64)>,
    /// How often each fast path was taken while other receives were posted: post, arrive for, arrive.
    taken_in_company: [u32; 3],
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

    fn receive(&mut self, peer: Option<u32>, tag: Option<i32>) {
        let buffer = self.memory.len() as u64;
        self.memory.push(None);
        let plain = peer.zip(tag).filter(|_| self.fast);
        let posted = plain.and_then(|(peer, tag)| {
            self.engine
                .post_first(CONTEXT, Peer(peer), tag, BYTES, buffer)
        });
        if posted.is_some() {
            self.note(0);
        }
        let token = posted.unwrap_or_else(|| {
            let receive = Receive {
                context: CONTEXT,
                peer: peer.map(Peer),
                tag,
                bytes: BYTES,
                buffer,
            };
            let (request, output) = self
                .engine
                .start_receive(receive, false)
                .expect("a slot is left");
            if let Some(Output::DeliverKept { message, .. }) = output {
                let body = self
                    .engine
                    .kept_body(message)
                    .try_into()
                    .expect("eight bytes");
                self.memory[buffer as usize] = Some(u64::from_ne_bytes(body));
                self.engine.drop_message(message);
            }
            self.engine.arena().token(request)
        });
        self.open.push((token, buffer));
    }

    fn arrive(&mut self, peer: u32, tag: i32, number: u64, awaited: Option<usize>) {
        let head = wire::eager(CONTEXT, tag);
        if self.fast {
            if let Some((token, buffer)) = awaited.and_then(|at| self.open.get(at).copied())
                && let Some(place) = self.engine.arrive_for(token, Peer(peer), head.word, BYTES)
            {
                assert_eq!(place, buffer);
                self.note(1);
                self.got.push((buffer, number));
                self.open.retain(|(open, _)| *open != token);
                return;
            }
            if let Some((place, fits)) = self.engine.arrive_first(Peer(peer), head.word, BYTES) {
                assert_eq!(fits, BYTES);
                self.note(2);
                self.memory[place as usize] = Some(number);
                return;
            }
        }
        let arrival = Arrival {
            peer: Peer(peer),
            head,
            bytes: BYTES,
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

    /// Collects everything that is complete, by either way.
    fn collect(&mut self) {
        for (token, buffer) in std::mem::take(&mut self.open) {
            let plain = if self.fast {
                self.engine.collect_plain(token, CONTEXT)
            } else {
                Collected::Special
            };
            let done = match plain {
                Collected::Done { bytes, .. } => bytes == BYTES,
                Collected::NotYet => false,
                Collected::Special => {
                    let request = self.engine.arena().find(token).expect("not collected yet");
                    let complete = self.engine.is_complete(request);
                    if complete {
                        self.engine.collect(request);
                    }
                    complete
                }
            };
            match done {
                true => self.got.push((
                    buffer,
                    self.memory[buffer as usize].expect("a message was delivered"),
                )),
                false => self.open.push((token, buffer)),
            }
        }
    }
}

#[test]
fn s3_5_the_fast_paths_match_what_the_ordinary_ones_match() {
    let mut taken = [0; 3];
    for seed in 0..600 {
        let mut random = Random(seed);
        let (mut fast, mut ordinary) = (Side::new(true), Side::new(false));
        for number in 0..200 {
            let peer = random.below(u64::from(PEERS)) as u32;
            let tag = random.below(3) as i32;
            if random.below(2) == 0 {
                let wild = random.below(8);
                let (from, with) = ((wild != 0).then_some(peer), (wild != 1).then_some(tag));
                fast.receive(from, with);
                ordinary.receive(from, with);
            } else {
                let awaited = random.below(4) as usize;
                fast.arrive(peer, tag, number, Some(awaited));
                ordinary.arrive(peer, tag, number, None);
            }
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
fn s3_5_a_receive_from_any_source_takes_what_a_later_one_waits_for() {
    let mut engine = Engine::new(Config::default(), PEERS);
    let first = engine.post_first(CONTEXT, Peer(1), 7, BYTES, 100).unwrap();
    let any = receive_of(None, CONTEXT.0, 200);
    let (wild, _) = engine.start_receive(any, false).unwrap();
    assert_eq!(engine.post_first(CONTEXT, Peer(1), 7, BYTES, 300), None);
    let named = receive_of(Some(1), CONTEXT.0, 300);
    let (later, _) = engine.start_receive(named, false).unwrap();

    let word = word_in(CONTEXT.0);
    let later = engine.arena().token(later);
    assert_eq!(engine.arrive_for(later, Peer(1), word, BYTES), None);
    assert_eq!(engine.arrive_for(first, Peer(1), word, BYTES), Some(100));
    // Now the one from any source is the earliest.
    assert_eq!(engine.arrive_for(later, Peer(1), word, BYTES), None);
    assert_eq!(engine.arrive_first(Peer(1), word, BYTES), None);
    let message = Arrival {
        peer: Peer(1),
        head: wire::eager(CONTEXT, 7),
        bytes: BYTES,
        words: [0; 6],
    };
    let taken = engine.arrive(message);
    assert!(matches!(taken, Some(Output::Deliver { request, .. }) if request == wild));
}

/// More slots than at first bring more bins: every receive must be found in its new one, by every way.
#[test]
fn receives_are_found_after_the_bins_have_grown() {
    const RECEIVES: u32 = 3000;
    let mut engine = Engine::new(Config::default(), PEERS);
    let mut tokens = Vec::new();
    for number in 0..RECEIVES {
        let (context, buffer) = (number / 3, u64::from(number));
        // The short way until it has no slot at hand, which the ordinary one then gets.
        let short = engine.post_first(ContextId(context), Peer(2), 7, BYTES, buffer);
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
fn an_old_token_takes_nothing_that_its_slot_waits_for_now() {
    let mut engine = Engine::new(Config::default(), PEERS);
    let word = word_in(CONTEXT.0);
    let old = engine.post_first(CONTEXT, Peer(1), 7, BYTES, 100).unwrap();
    assert_eq!(engine.arrive_for(old, Peer(1), word, BYTES), Some(100));
    assert_eq!(engine.arrive_for(old, Peer(1), word, BYTES), None);
    let new = engine.post_first(CONTEXT, Peer(1), 7, BYTES, 200).unwrap();
    assert_eq!(new >> 8, old >> 8, "the slot is used again");
    for stale in [old, new + 1, new ^ 1 << 27, 0, u32::MAX] {
        assert_eq!(engine.arrive_for(stale, Peer(1), word, BYTES), None);
    }
    // What is wrong with a message leaves the receive alone.
    assert_eq!(engine.arrive_for(new, Peer(2), word, BYTES), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word ^ 1, BYTES), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word ^ 1 << 32, BYTES), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word, BYTES + 1), None);
    assert_eq!(engine.arrive_for(new, Peer(1), word, BYTES), Some(200));
}
