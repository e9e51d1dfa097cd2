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
                && let Some(place) =
                    self.engine
                        .arrive_for(token, CONTEXT, Peer(peer), head.word, BYTES)
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
    for seed in 0..300 {
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
