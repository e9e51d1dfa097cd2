// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the engine's tests: a small random generator, and a world of engines joined by wires. A wire keeps order
//! from one rank to another; there is no order between wires.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "every test file uses a part of this; test code may panic"
)]

use std::collections::{HashMap, VecDeque};

use engine::{
    ArrivedFrame, Config, Engine, FrameBody, FrameHead, OutFrame, Output, Peer, RequestId,
    RequestKind, wire,
};

/// Engines, the memory of their ranks, and everything in flight between them.
pub struct World {
    pub engines: Vec<Engine>,
    /// All buffers of all ranks. An address is `buffer << 32 | offset`; number 0 is not a buffer.
    pub memory: Vec<Vec<u8>>,
    pub random: Random,
    /// The frames in flight from each rank to each rank, at index `from * ranks + to`.
    wires: Vec<VecDeque<Frame>>,
    /// Maximum number of frames on a wire.
    pub room: usize,
    pulls: Vec<Pull>,
    pub reads: Reads,
    /// The message that a send of a rank carries, by rank and request.
    labels: HashMap<(u32, RequestId), usize>,
    /// Frames posted or arrived since the last check.
    pub events: Vec<WireEvent>,
}

/// How reads of a peer's memory ([`Output::Pull`]) end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Work,
    Never,
    Sometimes,
    /// Some reads fail with an error.
    Fail,
}

/// A frame on a wire, with the number of its message in the test.
#[derive(Clone, Debug)]
pub struct Frame {
    pub head: FrameHead,
    pub body: Vec<u8>,
    pub message: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Pull {
    rank: u32,
    request: RequestId,
    address: u64,
    bytes: u64,
}

/// A frame event on the wires.
#[derive(Clone, Debug)]
pub enum WireEvent {
    /// A rank has posted a frame to its wire.
    Posted { from: u32, to: u32, frame: Frame },
    /// An engine took in a frame and returned this output.
    Arrived {
        from: u32,
        to: u32,
        frame: Frame,
        output: Option<Output>,
    },
}

impl World {
    pub fn new(ranks: u32, config: Config, room: usize, reads: Reads, seed: u64) -> Self {
        Self {
            engines: (0..ranks).map(|_| Engine::new(config, ranks)).collect(),
            memory: vec![Vec::new()],
            random: Random(seed),
            wires: vec![VecDeque::new(); (ranks * ranks) as usize],
            room,
            pulls: Vec::new(),
            reads,
            labels: HashMap::new(),
            events: Vec::new(),
        }
    }

    pub fn ranks(&self) -> u32 {
        self.engines.len() as u32
    }

    /// Associates a send with a message.
    pub fn label(&mut self, rank: u32, request: RequestId, message: usize) {
        self.labels.insert((rank, request), message);
    }

    /// Adds a buffer; returns its address.
    pub fn lend(&mut self, content: Vec<u8>) -> u64 {
        self.memory.push(content);
        (self.memory.len() as u64 - 1) << 32
    }

    pub fn buffer(&mut self, address: u64) -> &mut Vec<u8> {
        &mut self.memory[(address >> 32) as usize]
    }

    /// Puts a frame on a wire; `false` if there is no room.
    pub fn post(&mut self, from: u32, to: u32, frame: Frame) -> bool {
        let ranks = self.ranks();
        let wire = &mut self.wires[(from * ranks + to) as usize];
        if wire.len() == self.room {
            return false;
        }
        wire.push_back(frame.clone());
        self.events.push(WireEvent::Posted { from, to, frame });
        true
    }

    /// Makes one random step; `false` if none is possible.
    pub fn step(&mut self) -> bool {
        let ranks = u64::from(self.ranks());
        let first = self.random.below(3);
        for kind in 0..3 {
            let rank = self.random.below(ranks) as u32;
            let happened = match (first + kind) % 3 {
                0 => self.drain_from(rank),
                1 => self.deliver_from(rank),
                _ => self.end_a_pull(),
            };
            if happened {
                return true;
            }
        }
        false
    }

    /// Makes steps until none is possible.
    pub fn settle(&mut self) {
        for step in 0.. {
            if !self.step() && !self.is_under_way() {
                return;
            }
            assert!(step < 2_000_000, "it never ends");
        }
    }

    pub fn is_under_way(&self) -> bool {
        let busy = self.engines.iter().any(|engine| engine.busy_peers() > 0);
        busy || !self.pulls.is_empty() || self.wires.iter().any(|wire| !wire.is_empty())
    }

    /// Posts waiting frames of one rank: of the first rank, starting with `first`, that has waiting frames and room for
    /// them.
    fn drain_from(&mut self, first: u32) -> bool {
        let ranks = self.ranks();
        (0..ranks).any(|step| self.drain((first + step) % ranks))
    }

    /// One round of the owner's pump: for each peer with waiting frames, posts a few of these frames if there is room.
    /// Returns whether a frame was posted.
    pub fn drain(&mut self, rank: u32) -> bool {
        let mut posted = false;
        for _ in 0..self.engines[rank as usize].busy_peers() {
            let Some(peer) = self.engines[rank as usize].next_busy() else {
                break;
            };
            posted |= self.drain_outbox(rank, peer);
        }
        posted
    }

    fn drain_outbox(&mut self, rank: u32, peer: Peer) -> bool {
        let mut posted = false;
        let limit = self.random.below(5);
        for _ in 0..=limit {
            let Some(out) = self.engines[rank as usize].next_frame(peer) else {
                break;
            };
            let frame = self.frame_of(rank, peer, &out);
            if !self.post(rank, peer.0, frame) {
                break;
            }
            self.engines[rank as usize].posted(peer);
            posted = true;
        }
        posted
    }

    fn frame_of(&mut self, rank: u32, to: Peer, out: &OutFrame) -> Frame {
        let arena = self.engines[rank as usize].arena();
        match out.body {
            FrameBody::Words { words, count } => {
                let bytes = words[..usize::from(count)].iter();
                let body = bytes.flat_map(|word| word.to_ne_bytes()).collect();
                let token = match out.head.kind {
                    wire::RTS => words[0],
                    wire::CANCEL => out.head.word & 0xffff_ffff,
                    _ => 0,
                };
                let request = match out.head.kind {
                    // A FIRST names no request: it belongs to the oldest queued send.
                    wire::FIRST => oldest_queued(arena, to),
                    _ => arena.find(token as u32),
                };
                let message = request.and_then(|id| self.labels.get(&(rank, id)).copied());
                Frame {
                    head: out.head,
                    body,
                    message,
                }
            }
            FrameBody::Payload {
                request,
                offset,
                bytes,
            } => {
                let address = arena.fields(request).buffer;
                let message = self.labels.get(&(rank, request)).copied();
                let all = self.buffer(address);
                let body = all[offset as usize..][..bytes as usize].to_vec();
                Frame {
                    head: out.head,
                    body,
                    message,
                }
            }
        }
    }

    /// Delivers the oldest frame of the first wire that is not empty, starting with a random wire of rank `first`.
    fn deliver_from(&mut self, first: u32) -> bool {
        let (ranks, all) = (self.ranks(), self.wires.len() as u32);
        let start = first * ranks + self.random.below(u64::from(ranks)) as u32;
        let wire = (0..all)
            .map(|step| (start + step) % all)
            .find(|wire| !self.wires[*wire as usize].is_empty());
        let Some(wire) = wire else { return false };
        let frame = self.wires[wire as usize].pop_front().unwrap();
        self.arrive(wire / ranks, wire % ranks, frame);
        true
    }

    /// Delivers all frames in flight to a rank.
    pub fn deliver_all(&mut self, to: u32) {
        for from in 0..self.ranks() {
            let wire = (from * self.ranks() + to) as usize;
            while let Some(frame) = self.wires[wire].pop_front() {
                self.arrive(from, to, frame);
            }
        }
    }

    /// Removes all frames in flight from one rank to another from their wire. The test lets them [arrive](Self::arrive)
    /// later.
    pub fn hold(&mut self, from: u32, to: u32) -> Vec<Frame> {
        self.drain(from);
        let wire = (from * self.ranks() + to) as usize;
        self.wires[wire].drain(..).collect()
    }

    pub fn arrive(&mut self, from: u32, to: u32, frame: Frame) {
        let mut words = [0; 6];
        for (word, chunk) in words.iter_mut().zip(frame.body.chunks(8)) {
            let mut bytes = [0xCC; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(bytes);
        }
        let output = match self.arrive_first(from, to, &frame) {
            None => self.engines[to as usize].arrive(ArrivedFrame {
                peer: Peer(from),
                head: frame.head,
                bytes: frame.body.len() as u64,
                words,
            }),
            taken => taken,
        };
        match output {
            Some(Output::Keep { message }) => {
                self.engines[to as usize].keep(message, frame.body.clone().into());
            }
            Some(Output::Deliver {
                request,
                offset,
                bytes,
            }) => {
                let address = self.engines[to as usize].arena().fields(request).buffer;
                let target = &mut self.buffer(address)[offset as usize..][..bytes as usize];
                target.copy_from_slice(&frame.body[..bytes as usize]);
            }
            Some(Output::KeepMore { message, offset }) => {
                let engine = &mut self.engines[to as usize];
                let body = engine.kept_body_mut(message);
                body[offset as usize..][..frame.body.len()].copy_from_slice(&frame.body);
                if let Some(next) = engine.kept_more(message) {
                    self.carry_out(to, next);
                }
            }
            Some(other) => self.carry_out(to, other),
            None => {}
        }
        self.events.push(WireEvent::Arrived {
            from,
            to,
            frame,
            output,
        });
    }

    /// The fast path of arrival, which is tried at random. Returns the output that the general path would return;
    /// `None` if the fast path was not taken.
    fn arrive_first(&mut self, from: u32, to: u32, frame: &Frame) -> Option<Output> {
        let engine = &mut self.engines[to as usize];
        let is_plain = frame.head.kind == wire::EAGER && frame.head.flags == 0;
        if !is_plain || self.random.below(2) == 0 {
            return None;
        }
        let bytes = frame.body.len() as u64;
        let (buffer, bytes) = engine.arrive_first(Peer(from), frame.head.word, bytes)?;
        let arena = engine.arena();
        let request = arena.iter().find(|id| {
            let fields = arena.fields(*id);
            fields.kind == RequestKind::Receive && fields.buffer == buffer
        });
        Some(Output::Deliver {
            request: request.expect("a buffer of a receive"),
            offset: 0,
            bytes,
        })
    }

    /// Carries out an output that does not need the frame that has just arrived.
    pub fn carry_out(&mut self, rank: u32, output: Output) {
        match output {
            Output::DeliverKept {
                request,
                message,
                bytes,
            } => {
                let engine = &self.engines[rank as usize];
                let address = engine.arena().fields(request).buffer;
                let body = engine.kept_body(message)[..bytes as usize].to_vec();
                self.buffer(address)[..bytes as usize].copy_from_slice(&body);
                self.engines[rank as usize].drop_message(message);
            }
            Output::Pull {
                request,
                peer,
                key,
                bytes,
            } => {
                assert_eq!(key[2], KEY ^ u64::from(rank), "the key of another rank");
                assert_eq!(key[1], self.buffer(key[0]).len() as u64);
                assert!(peer.0 < self.ranks());
                self.pulls.push(Pull {
                    rank,
                    request,
                    address: key[0],
                    bytes,
                });
            }
            Output::Deliver { .. } | Output::Keep { .. } | Output::KeepMore { .. } => {
                panic!("{output:?} without a frame")
            }
        }
    }

    fn end_a_pull(&mut self) -> bool {
        if self.pulls.is_empty() {
            return false;
        }
        let at = self.random.below(self.pulls.len() as u64) as usize;
        let pull = self.pulls.swap_remove(at);
        let draw = self.random.below(10);
        let engine = &mut self.engines[pull.rank as usize];
        match self.reads {
            Reads::Never => engine.cannot_pull(pull.request),
            Reads::Sometimes | Reads::Fail if draw < 4 => engine.cannot_pull(pull.request),
            Reads::Fail if draw == 9 => engine.transfer_failed(pull.request),
            _ => {
                let address = engine.arena().fields(pull.request).buffer;
                let bytes = pull.bytes as usize;
                let data = self.buffer(pull.address)[..bytes].to_vec();
                self.buffer(address)[..bytes].copy_from_slice(&data);
                self.engines[pull.rank as usize].pulled(pull.request);
            }
        }
        true
    }
}

/// A remote key with which a peer can read a buffer.
pub fn key(address: u64, bytes: u64, peer: u32) -> [u64; 3] {
    [address, bytes, KEY ^ u64::from(peer)]
}

const KEY: u64 = 0x1234_5678_0000_0000;

/// The content of message `number`: bytes that differ from those of other messages.
pub fn pattern(number: usize, bytes: u64) -> Vec<u8> {
    let mut random = Random(number as u64 ^ 0x5151);
    let mut body = vec![0; bytes as usize];
    for chunk in body.chunks_mut(8) {
        let word = random.next().to_ne_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    body
}

/// Runs a test for many seeds, or for the seed in the environment variable `RMPI_TEST_SEED`. Prints the seed if the
/// test fails.
pub fn for_seeds(seeds: u64, mut test: impl FnMut(u64)) {
    let only = std::env::var("RMPI_TEST_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().unwrap());
    for seed in only.map_or(0..seeds, |seed| seed..seed + 1) {
        let _failing = Failing(seed);
        test(seed);
    }
}

struct Failing(u64);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing seed: RMPI_TEST_SEED={}", self.0);
        }
    }
}

/// A small generator (SplitMix64), so that a seed reproduces a test.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// The send to a peer that was started first among those that have not been posted.
fn oldest_queued(arena: &engine::RequestArena, to: Peer) -> Option<RequestId> {
    let queued = arena.iter().filter(|id| {
        let fields = arena.fields(*id);
        (fields.kind, fields.state, fields.peer)
            == (RequestKind::Send, engine::RequestState::Queued, to.0)
    });
    queued.min_by_key(|id| arena.fields(*id).sequence)
}
