// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests two ranks of a node in one thread; the seed determines which rank has the next turn. The ranks use persistent
//! and ordinary sends and receives, wildcards, probes, cancels and freed requests of the same classes. The expected
//! message of each receive follows from the order of sends and posts.

use std::os::fd::{AsFd, OwnedFd};

use engine::{ContextId, Peer, RequestId};
use transport::{Config, Fabric, Node};

use crate::operation::{Mode, ReceiveSource, SendTarget};
use crate::testing::segment;
use crate::user_buf::{UserMemory, of_request};
use crate::var::VariableValues;
use crate::{MessageStatus, Universe};

const CONTEXT: ContextId = ContextId(0);
const RANKS: u32 = 2;
const TAGS: usize = 3;
const BYTES: [usize; TAGS] = [64, 5000, 20_000];
const REQUESTS: usize = 2;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn universe(file: &OwnedFd, me: u32) -> Universe {
    let node = Node::attach(
        file.as_fd(),
        5,
        me,
        (0..RANKS).map(transport::Peer).collect(),
    )
    .unwrap();
    let fabric = Fabric::open(Config {
        me: transport::Peer(me),
        peers: RANKS,
        node: Some(node),
        ..Config::alone()
    });
    let (values, _) = VariableValues::from_environment(std::iter::empty());
    Universe::new(fabric.unwrap(), Peer(me), RANKS, &values)
}

/// A message: its tag, and its number among all messages.
type Message = (usize, u32);

/// A persistent request with its buffer. `started`: for its present start, the index of its message, or of its post if
/// it is a receive.
struct Own {
    request: RequestId,
    bytes: UserMemory,
    started: Option<usize>,
}

struct Post {
    /// `None`: any tag.
    tag: Option<usize>,
    /// The message received; `None` before that, and if the receive was cancelled.
    got: Option<Message>,
    is_cancelled: bool,
}

/// An ordinary request in progress.
struct Other {
    request: RequestId,
    bytes: Vec<u8>,
    post: usize,
}

struct World {
    random: Random,
    all: Vec<Universe>,
    /// Sender and receiver; may be equal.
    from: usize,
    to: usize,
    sends: Vec<Vec<Own>>,
    receives: Vec<Vec<Own>>,
    other_sends: Vec<Other>,
    other_receives: Vec<Other>,
    sent: Vec<Message>,
    posts: Vec<Post>,
    /// Percentage of choices that are not starts of persistent requests in order: ordinary operations, cancels and
    /// replaced requests.
    wild: usize,
    was_bound: bool,
}

fn content(message: Message) -> Vec<u8> {
    let word = message.1.to_ne_bytes();
    word.iter()
        .copied()
        .cycle()
        .take(BYTES[message.0])
        .collect()
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

impl World {
    fn new(seed: u64) -> Self {
        let file = segment(5, RANKS);
        let mut random = Random(seed);
        let mut all: Vec<_> = (0..RANKS).map(|me| universe(&file, me)).collect();
        let (from, to) = (0, usize::from(random.below(4) != 0));
        let tags = 0..TAGS;
        let sends = tags.clone().map(|tag| {
            let own = |_| {
                let memory = shared(&mut all[from], BYTES[tag]);
                let request =
                    all[from]
                        .messages
                        .prepare_send(target(tag, to), memory, Mode::Standard);
                own(request.unwrap(), memory)
            };
            (0..REQUESTS).map(own).collect()
        });
        let sends = sends.collect();
        let receives = tags.map(|tag| {
            let own = |_| {
                let memory = shared(&mut all[to], BYTES[tag]);
                let request = all[to]
                    .messages
                    .prepare_receive(source(Some(tag), Some(from)), memory);
                own(request.unwrap(), memory)
            };
            (0..REQUESTS).map(own).collect()
        });
        let receives = receives.collect();
        let wild = [0, 2, 10, 40][random.below(4)];
        Self {
            random,
            all,
            from,
            to,
            sends,
            receives,
            other_sends: Vec::new(),
            other_receives: Vec::new(),
            sent: Vec::new(),
            posts: Vec::new(),
            wild,
            was_bound: false,
        }
    }

    fn next_message(&mut self, tag: usize) -> Message {
        let message = (tag, u32::try_from(self.sent.len()).unwrap());
        self.sent.push(message);
        message
    }

    fn send(&mut self, tag: usize) {
        let free = self.sends[tag].iter().position(|own| own.started.is_none());
        let wild = self.random.below(100) < self.wild;
        let Some(at) = free.filter(|_| !wild) else {
            if wild {
                self.send_ordinary(tag);
            }
            return;
        };
        let message = self.next_message(tag);
        let own = &mut self.sends[tag][at];
        own.bytes.as_mut_slice().copy_from_slice(&content(message));
        own.started = Some(self.sent.len() - 1);
        self.all[self.from].sending().restart_send(own.request);
    }

    fn send_ordinary(&mut self, tag: usize) {
        let message = self.next_message(tag);
        let mut bytes = content(message);
        let memory = UserMemory::of(&mut bytes);
        let mode = match self.random.below(3) {
            0 => Mode::Synchronous,
            _ => Mode::Standard,
        };
        let sent = self.all[self.from]
            .sending()
            .send(target(tag, self.to), memory, mode);
        if let Some(request) = sent.unwrap() {
            self.other_sends.push(Other {
                request,
                bytes,
                post: 0,
            });
        }
    }

    fn post(&mut self, tag: usize) {
        let wild = self.random.below(100) < self.wild;
        if wild && self.random.below(3) == 0 {
            let any = (self.random.below(2) == 0).then_some(tag);
            self.all[self.to].messages.find_message(source(any, None));
            return;
        }
        if wild {
            let tag = (self.random.below(3) != 0).then_some(tag);
            let peer = (self.random.below(2) != 0).then_some(self.from);
            return self.post_ordinary(tag, peer);
        }
        let free = self.receives[tag]
            .iter()
            .position(|own| own.started.is_none());
        let Some(at) = free else { return };
        let own = &mut self.receives[tag][at];
        own.bytes.as_mut_slice().fill(0xEE);
        own.started = Some(self.posts.len());
        self.posts.push(posted(Some(tag)));
        self.all[self.to].messages.restart_receive(own.request);
    }

    fn post_ordinary(&mut self, tag: Option<usize>, peer: Option<usize>) {
        let mut bytes = vec![0xEE; BYTES[TAGS - 1]];
        let memory = UserMemory::of(&mut bytes);
        let request = self.all[self.to]
            .messages
            .receive(source(tag, peer), memory);
        self.other_receives.push(Other {
            request: request.unwrap(),
            bytes,
            post: self.posts.len(),
        });
        self.posts.push(posted(tag));
    }

    fn cancel(&mut self, tag: usize) {
        let at = self.random.below(REQUESTS);
        let own = &self.receives[tag][at];
        if own.started.is_some() {
            self.all[self.to].cancel(own.request);
        }
    }

    /// Frees an inactive request and makes another one.
    fn renew(&mut self, tag: usize) {
        let own = &mut self.receives[tag][0];
        if own.started.is_none() {
            let to = &mut self.all[self.to];
            to.free(own.request);
            let made = to
                .messages
                .prepare_receive(source(Some(tag), Some(self.from)), own.bytes);
            own.request = made.unwrap();
        }
    }

    fn collect(&mut self) {
        let to = &mut self.all[self.to];
        for own in self.receives.iter_mut().flatten() {
            let Some(post) = own.started.filter(|_| to.messages.is_complete(own.request)) else {
                continue;
            };
            let status = to.collect(own.request);
            end(&mut self.posts[post], &status, own.bytes.as_slice());
            own.started = None;
        }
        self.other_receives.retain(|other| {
            let done = to.messages.is_complete(other.request);
            if done {
                let status = to.collect(other.request);
                end(&mut self.posts[other.post], &status, &other.bytes);
            }
            !done
        });
        let from = &mut self.all[self.from];
        for own in self.sends.iter_mut().flatten() {
            if own.started.is_some() && from.messages.is_complete(own.request) {
                from.collect(own.request);
                own.started = None;
                // The program may use the buffer again.
                own.bytes.as_mut_slice().fill(0xDD);
            }
        }
        self.other_sends.retain(|other| {
            let done = from.messages.is_complete(other.request);
            if done {
                from.collect(other.request);
            }
            !done
        });
    }

    fn step(&mut self) {
        let tag = self.random.below(TAGS);
        let ahead = self.sent.len().abs_diff(self.live_posts());
        match self.random.below(8) {
            0 | 1 if ahead < 8 || self.sent.len() < self.live_posts() => self.send(tag),
            2 | 3 if ahead < 8 || self.sent.len() > self.live_posts() => self.post(tag),
            4 if self.random.below(100) < self.wild => self.cancel(tag),
            4 if self.random.below(100) < self.wild => self.renew(tag),
            5 => self.collect(),
            _ => {
                let who = self.random.below(2);
                self.all[who].progress();
            }
        }
        let gates = &self.all[self.to].messages.gates;
        self.was_bound |= gates.bound_into > 0;
    }

    fn live_posts(&self) -> usize {
        self.posts.iter().filter(|post| !post.is_cancelled).count()
    }

    /// Completes everything that was started: each operation without a counterpart gets one.
    fn end(&mut self) {
        for _ in 0..3 {
            self.rest();
            let taken = self.matched();
            for at in 0..self.sent.len() {
                if !taken.contains(&Some(self.sent[at])) {
                    self.post_ordinary(Some(self.sent[at].0), None);
                }
            }
            self.rest();
            let open = self.posts.iter().zip(self.matched());
            let left: Vec<_> = open
                .filter(|(post, got)| !post.is_cancelled && got.is_none())
                .map(|(post, _)| post.tag.unwrap_or(0))
                .collect();
            for tag in left {
                self.send_ordinary(tag);
            }
            self.rest();
        }
    }

    fn rest(&mut self) {
        for _ in 0..400 {
            for who in 0..2 {
                self.all[who].progress();
            }
            self.collect();
        }
    }

    /// The expected match of each post: the first remaining message that it can match.
    fn matched(&self) -> Vec<Option<Message>> {
        let mut left = self.sent.clone();
        let take = |post: &Post| {
            if post.is_cancelled {
                return None;
            }
            let fits = |message: &Message| post.tag.is_none_or(|tag| tag == message.0);
            left.iter().position(fits).map(|at| left.remove(at))
        };
        self.posts.iter().map(take).collect()
    }
}

/// Memory that both ranks access.
fn shared(universe: &mut Universe, bytes: usize) -> UserMemory {
    let memory = universe
        .messages
        .allocate_shared(bytes)
        .expect("there is room");
    let fields = engine::RequestFields {
        buffer: memory.expose_provenance().get() as u64,
        bytes: bytes as u64,
        ..engine::RequestFields::default()
    };
    of_request(&fields, 0, bytes as u64)
}

fn own(request: RequestId, bytes: UserMemory) -> Own {
    Own {
        request,
        bytes,
        started: None,
    }
}

fn posted(tag: Option<usize>) -> Post {
    Post {
        tag,
        got: None,
        is_cancelled: false,
    }
}

fn end(post: &mut Post, status: &MessageStatus, bytes: &[u8]) {
    assert!(status.error.is_none(), "{:?}", status.error);
    post.is_cancelled = status.cancelled;
    if !status.cancelled {
        let message = (usize::try_from(status.tag).unwrap(), number(bytes));
        assert_eq!(
            (status.source, status.bytes),
            (Some(0), BYTES[message.0] as u64)
        );
        assert!(bytes[..BYTES[message.0]] == content(message), "{message:?}");
        assert!(bytes[BYTES[message.0]..].iter().all(|byte| *byte == 0xEE));
        post.got = Some(message);
    }
}

fn tag_of(tag: usize) -> i32 {
    i32::try_from(tag).unwrap()
}

fn target(tag: usize, peer: usize) -> SendTarget {
    SendTarget {
        context: CONTEXT,
        peer: Peer(u32::try_from(peer).unwrap()),
        tag: tag_of(tag),
    }
}

fn source(tag: Option<usize>, peer: Option<usize>) -> ReceiveSource {
    ReceiveSource {
        context: CONTEXT,
        peer: peer.map(|peer| Peer(u32::try_from(peer).unwrap())),
        tag: tag.map(tag_of),
    }
}

fn run(seed: u64, steps: usize) -> bool {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.end();
    let got: Vec<_> = world.posts.iter().map(|post| post.got).collect();
    assert_eq!(got, world.matched(), "seed {seed}");
    assert_eq!(
        got.iter().flatten().count(),
        world.sent.len(),
        "seed {seed}: messages that were not received"
    );
    for own in world.sends.iter().chain(&world.receives).flatten() {
        assert!(own.started.is_none(), "seed {seed}: it has not ended");
    }
    for universe in &world.all {
        assert_eq!(
            universe.messages.pump.engine.counters().refused,
            0,
            "seed {seed}"
        );
    }
    world.was_bound
}

#[test]
fn s3_9_receives_match_in_order_between_persistent_operations() {
    let seeds = match std::env::var("RMPI_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..60).collect::<Vec<u64>>(),
    };
    let bound = seeds.iter().filter(|seed| run(**seed, 1500)).count();
    assert!(seeds.len() == 1 || bound > seeds.len() / 2, "{bound} bound");
}

/// Rounds without interference, after which every class is bound.
fn rounds(world: &mut World, count: usize) {
    world.wild = 0;
    for _ in 0..count {
        for tag in 0..TAGS {
            world.post(tag);
            world.send(tag);
        }
        for _ in 0..20 {
            world.all.iter_mut().for_each(|it| _ = it.progress());
            world.collect();
        }
    }
}

#[test]
fn invalid_gate_frames_change_nothing() {
    let mut world = World::new(1);
    rounds(&mut world, 20);
    let bound = |world: &World| {
        let gates = [world.from, world.to].map(|who| &world.all[who].messages.gates);
        (gates[0].bound_out, gates[1].bound_into)
    };
    assert_eq!(bound(&world), (3, 3));
    let refused = |world: &World| -> u64 {
        let all = world.all.iter();
        all.map(|it| it.messages.pump.engine.counters().refused)
            .sum()
    };
    for kind in [super::BIND, super::BOUND, super::UNBIND, super::LEFT] {
        for tag in [0, 2, 7, -1] {
            for words in [&[0u64, 0][..], &[u64::MAX, 1], &[4096, 1 << 40], &[1]] {
                // A second BIND of a bound class is allowed: it ends the previous binding.
                let head = engine::FrameHead {
                    kind,
                    ..engine::wire::eager(ContextId(9), tag)
                };
                for (who, other) in [(0, 1), (1, 0)] {
                    world.all[who]
                        .messages
                        .pump
                        .engine
                        .queue_frame(Peer(other), head, words);
                }
                let head = engine::FrameHead {
                    kind,
                    ..engine::wire::eager(CONTEXT, tag)
                };
                let to = Peer(u32::try_from(world.to).unwrap());
                world.all[world.from]
                    .messages
                    .pump
                    .engine
                    .queue_frame(to, head, words);
            }
        }
        world.rest();
    }
    assert!(refused(&world) > 0);
    assert_eq!(bound(&world), (3, 3));
    rounds(&mut world, 20);
    let got: Vec<_> = world.posts.iter().map(|post| post.got).collect();
    assert_eq!(got, world.matched());
    assert_eq!((got.len(), world.sent.len()), (120, 120));
}

#[test]
fn freeing_a_bound_class_reopens_the_fast_paths() {
    let mut world = World::new(1);
    rounds(&mut world, 20);
    assert!(!world.all[world.from].messages.pump.engine.is_all_clear());
    for own in world.sends.iter().flatten() {
        world.all[world.from].free(own.request);
    }
    for own in world.receives.iter().flatten() {
        world.all[world.to].free(own.request);
    }
    for _ in 0..20 {
        world.all.iter_mut().for_each(|it| _ = it.progress());
    }
    assert!(world.all[world.from].messages.pump.engine.is_all_clear());
    let gates = [world.from, world.to].map(|who| &world.all[who].messages.gates);
    assert!(
        gates
            .iter()
            .all(|it| !it.tracks_sends() && !it.tracks_receives())
    );
    assert!(gates.iter().all(|it| !it.is_busy() || it.moving.is_empty()));
}
