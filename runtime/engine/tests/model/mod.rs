// SPDX-License-Identifier: MIT OR Apache-2.0
//! A random program, and as its reference the simplest matching that keeps the rules of MPI 5.0 section 3.5: lists that
//! are searched from the front.

mod ending;

use engine::{
    Config, ContextId, Engine, FrameHead, Output, Peer, ProbedMessage, Receive, RequestFailure,
    RequestId, Send, wire,
};
use queue_layout::{FLAG_CANCELLED, FLAG_PLAIN, Queued, RequestKind};

use crate::common::{Frame, Random, Reads, WireEvent, World, key, pattern};

/// A running program.
pub struct Program {
    pub world: World,
    random: Random,
    acts: usize,
    /// How many of 20 operations are receives. If few are, unexpected messages pile up; if many are, posted receives
    /// pile up.
    receiving: u64,
    /// Number of tags, and the distance between them.
    tags: (u64, u64),
    config: Config,
    messages: Vec<Message>,
    sends: Vec<SendOp>,
    receives: Vec<ReceiveOp>,
    ranks: Vec<Side>,
    /// For each sender and receiver, the last message that was put on their wire.
    latest: Vec<Option<usize>>,
    /// For each rank, the observer of the posted receives in the first context; `None` if they are not observed.
    watches: Vec<Option<usize>>,
}

/// The model's state of one rank.
#[derive(Default)]
struct Side {
    /// Receives in posting order.
    posted: Vec<usize>,
    /// Messages in order of arrival.
    unexpected: Vec<usize>,
    /// Messages that a matched probe has taken.
    claimed: Vec<(RequestId, usize)>,
}

/// One message, numbered in the order in which sends were started.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: u32,
    to: u32,
    context: u32,
    tag: i32,
    bytes: u64,
    synchronous: bool,
    announced: bool,
    /// Whether its data came in several frames without an announcement.
    early: bool,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Started, but not on the wire yet.
    Started,
    OnWire,
    Unexpected,
    Claimed,
    Matched,
    /// Taken out of the receiver's queue by a cancel.
    TakenBack,
}

#[derive(Clone, Copy, Debug)]
struct SendOp {
    rank: u32,
    request: RequestId,
    message: usize,
    buffer: u64,
    persistent: bool,
    /// Whether the program has cancelled the send since its last start.
    unwanted: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
struct ReceiveOp {
    rank: u32,
    request: RequestId,
    context: u32,
    peer: Option<u32>,
    tag: Option<i32>,
    bytes: u64,
    buffer: u64,
    persistent: bool,
    got: Option<usize>,
    cancelled: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Active,
    /// A persistent request that is not started.
    Inactive,
    /// Freed by the application while active.
    Freed,
    Over,
}

impl Program {
    /// A program of `acts` operations. Everything in it is drawn from the seed.
    pub fn random(seed: u64, acts: usize) -> Self {
        let mut random = Random(seed);
        let ranks = 2 + random.below(4) as u32;
        let config = Config {
            eager_limit_bytes: random.pick(&[0, 8, 60, 1000]),
            early_limit_bytes: random.pick(&[0, 100, 500, 5000]),
            unexpected_budget_bytes: random.pick(&[100, 1000, 20_000, 64 << 20]),
            stream_chunk_bytes: random.pick(&[1, 16, 100, 4096]),
            ..Config::default()
        };
        let room = random.pick(&[1, 2, 5, 64]);
        let reads = random.pick(&[Reads::Work, Reads::Never, Reads::Sometimes]);
        let mut world = World::new(ranks, config, room, reads, seed ^ 0xABCD);
        let watch = |engine: &mut Engine| {
            let watched = seed.is_multiple_of(2);
            let watch = watched.then(|| engine.watch_queue(Queued::Posted, ContextId(CONTEXTS[0])));
            watch.flatten()
        };
        Self {
            watches: world.engines.iter_mut().map(watch).collect(),
            world,
            receiving: random.pick(&[1, 4, 4, 4, 8]),
            tags: random.pick(&TAGS),
            random,
            acts,
            config,
            messages: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            ranks: (0..ranks).map(|_| Side::default()).collect(),
            latest: vec![None; (ranks * ranks) as usize],
        }
    }

    /// Runs the program to its end and checks that nothing is left.
    pub fn run(&mut self) {
        // The number of wire steps between two operations differs from program to program.
        let pace = self.random.below(6);
        for _ in 0..self.acts {
            self.act();
            for _ in 0..self.random.below(pace + 1) {
                self.world.step();
                self.read_events();
            }
            self.compare_counts();
        }
        self.end();
    }

    fn act(&mut self) {
        let rank = self.random.below(u64::from(self.world.ranks())) as u32;
        match self.random.below(20) {
            act if act < self.receiving => self.receive(rank),
            0..10 => self.send(rank),
            10 => self.restart(),
            11 => self.probe(rank),
            12 => self.claim(rank),
            13 => self.receive_claimed(rank),
            14 => self.cancel(),
            15 if self.random.below(3) == 0 => self.free(),
            _ => self.collect_some(),
        }
        self.read_events();
    }

    fn tag(&mut self) -> i32 {
        let (tags, stride) = self.tags;
        (self.random.below(tags) * stride) as i32
    }

    fn send(&mut self, from: u32) {
        let message = Message {
            from,
            to: self.random.below(u64::from(self.world.ranks())) as u32,
            context: self.random.pick(&CONTEXTS),
            tag: self.tag(),
            bytes: self.random.pick(&SIZES),
            synchronous: self.random.below(5) == 0,
            announced: false,
            early: false,
            fate: Fate::Started,
        };
        if self.random.below(8) == 0 {
            return self.prepare_send(message);
        }
        let number = self.messages.len();
        self.messages.push(message);
        if self.send_at_once(number) {
            return;
        }
        let buffer = self.world.lend(pattern(number, message.bytes));
        let engine = &mut self.world.engines[from as usize];
        let request = engine.start_send(described(&message, buffer)).unwrap();
        self.world.label(from, request, number);
        self.sends.push(SendOp {
            rank: from,
            request,
            message: number,
            buffer,
            persistent: false,
            unwanted: false,
            stage: Stage::Active,
        });
    }

    /// The fast path of sending: posts a small message without a request. `false` if the fast path cannot be taken.
    fn send_at_once(&mut self, number: usize) -> bool {
        let message = self.messages[number];
        let engine = &self.world.engines[message.from as usize];
        let may = !message.synchronous
            && message.bytes <= self.config.eager_limit_bytes
            && engine.is_clear(Peer(message.to));
        let frame = Frame {
            head: wire::eager(ContextId(message.context), message.tag),
            body: pattern(number, message.bytes),
            message: Some(number),
        };
        may && self.world.post(message.from, message.to, frame)
    }

    fn prepare_send(&mut self, message: Message) {
        let buffer = self.world.lend(vec![0; message.bytes as usize]);
        let engine = &mut self.world.engines[message.from as usize];
        let request = engine.prepare_send(described(&message, buffer)).unwrap();
        // This message is never sent; it records the envelope of the persistent request.
        self.messages.push(message);
        self.sends.push(SendOp {
            rank: message.from,
            request,
            message: self.messages.len() - 1,
            buffer,
            persistent: true,
            unwanted: false,
            stage: Stage::Inactive,
        });
    }

    fn receive(&mut self, rank: u32) {
        let ranks = u64::from(self.world.ranks());
        let peer = (self.random.below(3) != 0).then(|| self.random.below(ranks) as u32);
        let tag = (self.random.below(3) != 0).then(|| self.tag());
        let bytes = self.random.pick(&[0, 8, 100, 5000, 5000, 5000]);
        let context = self.random.pick(&CONTEXTS);
        let persistent = self.random.below(8) == 0;
        self.post_receive(rank, context, peer, tag, bytes, persistent);
    }

    fn post_receive(
        &mut self,
        rank: u32,
        context: u32,
        peer: Option<u32>,
        tag: Option<i32>,
        bytes: u64,
        persistent: bool,
    ) {
        let buffer = self.world.lend(vec![UNTOUCHED; bytes as usize]);
        let wanted = Receive {
            context: ContextId(context),
            peer: peer.map(Peer),
            tag,
            bytes,
            buffer,
        };
        let (request, output) = match self.post_first(rank, wanted, persistent) {
            Some(request) => (request, None),
            None => {
                let engine = &mut self.world.engines[rank as usize];
                engine.start_receive(wanted, persistent).unwrap()
            }
        };
        self.receives.push(ReceiveOp {
            rank,
            request,
            context,
            peer,
            tag,
            bytes,
            buffer,
            persistent,
            got: None,
            cancelled: false,
            stage: if persistent {
                Stage::Inactive
            } else {
                Stage::Active
            },
        });
        if persistent {
            assert_eq!(output, None);
        } else {
            self.match_receive(self.receives.len() - 1, output);
        }
    }

    /// The fast path of posting, which the owner may try first.
    fn post_first(&mut self, rank: u32, wanted: Receive, persistent: bool) -> Option<RequestId> {
        if persistent || self.random.below(2) == 0 {
            return None;
        }
        let Receive {
            context,
            peer,
            tag,
            bytes,
            buffer,
        } = wanted;
        let engine = &mut self.world.engines[rank as usize];
        let token = engine.post_first(context, peer?, tag?, (bytes, 0), buffer)?;
        Some(engine.arena().find(token).expect("a token of this use"))
    }

    /// Posts a receive in the model: it matches the earliest unexpected message that fits, or goes to the end of the
    /// queue.
    fn match_receive(&mut self, number: usize, output: Option<Output>) {
        let receive = self.receives[number];
        let side = &mut self.ranks[receive.rank as usize];
        let place = side
            .unexpected
            .iter()
            .position(|message| receive.takes(&self.messages[*message]));
        match place {
            Some(place) => {
                let message = side.unexpected.remove(place);
                self.match_with(number, message, output);
            }
            None => {
                assert_eq!(output, None, "a message that is not there");
                side.posted.push(number);
            }
        }
    }

    /// Matches a receive with a message that arrived before it.
    fn match_with(&mut self, number: usize, message: usize, output: Option<Output>) {
        let receive = &mut self.receives[number];
        receive.got = Some(message);
        let fits = self.messages[message].bytes.min(receive.bytes);
        self.messages[message].fate = Fate::Matched;
        match output {
            Some(Output::DeliverKept { request, bytes, .. }) => {
                assert!(!self.messages[message].announced);
                assert_eq!((request, bytes), (receive.request, fits));
            }
            Some(Output::Pull { request, bytes, .. }) => {
                assert!(self.messages[message].announced && fits > 0);
                assert_eq!((request, bytes), (receive.request, fits));
            }
            Some(other) => panic!("{other:?} for a message that is here"),
            // The rest of the early message is still in flight.
            None if self.messages[message].early => {}
            None => assert!(self.messages[message].announced && fits == 0),
        }
        let rank = receive.rank;
        if let Some(output) = output {
            self.world.carry_out(rank, output);
        }
    }

    fn probe(&mut self, rank: u32) {
        let (context, peer, tag) = self.random_envelope();
        self.probe_both(rank, context, peer, tag);
    }

    fn random_envelope(&mut self) -> (u32, Option<u32>, Option<i32>) {
        let ranks = u64::from(self.world.ranks());
        let context = self.random.pick(&CONTEXTS);
        let peer = (self.random.below(2) != 0).then(|| self.random.below(ranks) as u32);
        let tag = (self.random.below(2) != 0).then(|| self.tag());
        (context, peer, tag)
    }

    /// Probes in the engine and in the model, and compares the results.
    fn probe_both(
        &mut self,
        rank: u32,
        context: u32,
        peer: Option<u32>,
        tag: Option<i32>,
    ) -> Option<(ProbedMessage, usize)> {
        let engine = &mut self.world.engines[rank as usize];
        let found = engine.probe(ContextId(context), peer.map(Peer), tag);
        let fits = |message: &Message| {
            message.context == context
                && peer.is_none_or(|peer| peer == message.from)
                && tag.is_none_or(|tag| tag == message.tag)
        };
        let mut all = self.ranks[rank as usize].unexpected.iter();
        let expected = all.find(|message| fits(&self.messages[**message])).copied();
        let envelope = |found: ProbedMessage| (found.peer.0, found.tag, found.bytes);
        let model = expected.map(|number| {
            let message = &self.messages[number];
            (message.from, message.tag, message.bytes)
        });
        assert_eq!(found.map(envelope), model, "a probe found another message");
        Some((found?, expected?))
    }

    fn claim(&mut self, rank: u32) {
        let (context, peer, tag) = self.random_envelope();
        if let Some((found, message)) = self.probe_both(rank, context, peer, tag) {
            self.world.engines[rank as usize].claim(found);
            let side = &mut self.ranks[rank as usize];
            side.unexpected.retain(|other| *other != message);
            side.claimed.push((found.message, message));
            self.messages[message].fate = Fate::Claimed;
        }
    }

    fn receive_claimed(&mut self, rank: u32) {
        let bytes = self.random.pick(&[0, 8, 5000, 5000]);
        let claimed = &mut self.ranks[rank as usize].claimed;
        if claimed.is_empty() {
            return;
        }
        let at = self.random.below(claimed.len() as u64) as usize;
        let (id, message) = claimed.swap_remove(at);
        self.receive_message(rank, id, message, bytes);
    }

    fn receive_message(&mut self, rank: u32, id: RequestId, message: usize, bytes: u64) {
        let buffer = self.world.lend(vec![UNTOUCHED; bytes as usize]);
        let engine = &mut self.world.engines[rank as usize];
        let (request, output) = engine.start_matched_receive(id, bytes, buffer).unwrap();
        let Message {
            from, context, tag, ..
        } = self.messages[message];
        self.receives.push(ReceiveOp {
            rank,
            request,
            context,
            peer: Some(from),
            tag: Some(tag),
            bytes,
            buffer,
            persistent: false,
            got: None,
            cancelled: false,
            stage: Stage::Active,
        });
        self.match_with(self.receives.len() - 1, message, output);
    }

    fn cancel(&mut self) {
        if self.random.below(2) == 0 {
            let Some(at) = self.any_send(Stage::Active) else {
                return;
            };
            let send = &mut self.sends[at];
            send.unwanted = true;
            self.world.engines[send.rank as usize].cancel(send.request);
            return;
        }
        if let Some(at) = self.any_receive(Stage::Active) {
            self.cancel_receive(at);
        }
    }

    fn cancel_receive(&mut self, at: usize) {
        let receive = self.receives[at];
        let engine = &mut self.world.engines[receive.rank as usize];
        engine.cancel(receive.request);
        let posted = &mut self.ranks[receive.rank as usize].posted;
        if let Some(place) = posted.iter().position(|number| *number == at) {
            posted.remove(place);
            self.receives[at].cancelled = true;
            assert!(engine.is_complete(receive.request), "cancelling is local");
        }
    }

    fn free(&mut self) {
        let stage = self.random.pick(&[Stage::Active, Stage::Inactive]);
        let next = |stage| match stage {
            Stage::Inactive => Stage::Over,
            _ => Stage::Freed,
        };
        if self.random.below(2) == 0 {
            if let Some(at) = self.any_send(stage) {
                let send = &mut self.sends[at];
                send.stage = next(send.stage);
                self.world.engines[send.rank as usize].free(send.request);
            }
        } else if let Some(at) = self.any_receive(stage) {
            let receive = &mut self.receives[at];
            receive.stage = next(receive.stage);
            self.world.engines[receive.rank as usize].free(receive.request);
        }
    }

    fn restart(&mut self) {
        if let Some(at) = self.any_send(Stage::Inactive) {
            let number = self.messages.len();
            let send = &mut self.sends[at];
            let mut message = self.messages[send.message];
            (message.fate, message.announced) = (Fate::Started, false);
            self.messages.push(message);
            send.message = number;
            (send.stage, send.unwanted) = (Stage::Active, false);
            let SendOp {
                rank,
                request,
                buffer,
                ..
            } = *send;
            *self.world.buffer(buffer) = pattern(number, message.bytes);
            let key = key(buffer, message.bytes, message.to);
            self.world.engines[rank as usize].restart_send(request, key, is_early(message.tag));
            self.world.label(rank, request, number);
        }
        if let Some(at) = self.any_receive(Stage::Inactive) {
            let receive = &mut self.receives[at];
            (receive.got, receive.cancelled) = (None, false);
            receive.stage = Stage::Active;
            let ReceiveOp {
                rank,
                request,
                buffer,
                ..
            } = *receive;
            self.world.buffer(buffer).fill(UNTOUCHED);
            let output = self.world.engines[rank as usize].restart_receive(request);
            self.match_receive(at, output);
        }
    }

    fn any_send(&mut self, stage: Stage) -> Option<usize> {
        let all = self.sends.iter().enumerate();
        let fitting: Vec<_> = all
            .filter(|(_, s)| s.stage == stage)
            .map(|(at, _)| at)
            .collect();
        (!fitting.is_empty()).then(|| self.random.pick(&fitting))
    }

    fn any_receive(&mut self, stage: Stage) -> Option<usize> {
        let all = self.receives.iter().enumerate();
        let fitting: Vec<_> = all
            .filter(|(_, r)| r.stage == stage)
            .map(|(at, _)| at)
            .collect();
        (!fitting.is_empty()).then(|| self.random.pick(&fitting))
    }

    fn collect_some(&mut self) {
        if let Some(at) = self.any_send(Stage::Active) {
            self.collect_send(at);
        }
        if let Some(at) = self.any_receive(Stage::Active) {
            self.collect_receive(at);
        }
    }

    /// Applies the events of the wires to the model.
    fn read_events(&mut self) {
        for events in std::mem::take(&mut self.world.events) {
            match events {
                WireEvent::Posted { from, to, frame } => self.see_posted(from, to, &frame),
                WireEvent::Arrived {
                    from,
                    to,
                    frame,
                    output,
                } => self.see_arrived(from, to, &frame, output),
            }
        }
    }

    /// Checks that the messages from one rank to another are posted in the order in which they were started, each once.
    fn see_posted(&mut self, from: u32, to: u32, frame: &Frame) {
        let Some(number) = message_of(&frame.head, frame.message) else {
            return;
        };
        let message = &mut self.messages[number];
        assert_eq!((message.from, message.to), (from, to));
        assert_eq!(
            message.fate,
            Fate::Started,
            "message {number} was sent twice"
        );
        message.fate = Fate::OnWire;
        message.announced = frame.head.kind == wire::RTS;
        message.early = frame.head.kind == wire::FIRST;
        assert_eq!(
            frame.head.kind == wire::EAGER && frame.head.flags != 0,
            message.synchronous && !message.announced,
            "a synchronous message that is not announced has a mark, and no other"
        );
        assert!(!message.early || message.bytes <= self.config.early_limit_bytes);
        if !message.announced && !message.early {
            assert_eq!(frame.body, pattern(number, message.bytes));
        }
        let latest = &mut self.latest[(from * self.world.ranks() + to) as usize];
        assert!(
            latest.is_none_or(|latest| latest < number),
            "{number} overtook {latest:?}"
        );
        *latest = Some(number);
    }

    fn see_arrived(&mut self, from: u32, to: u32, frame: &Frame, output: Option<Output>) {
        let side = &mut self.ranks[to as usize];
        if frame.head.kind == wire::CANCEL {
            if let Some(number) = frame.message
                && let Some(place) = side.unexpected.iter().position(|m| *m == number)
            {
                side.unexpected.remove(place);
                self.messages[number].fate = Fate::TakenBack;
            }
            return;
        }
        let Some(number) = message_of(&frame.head, frame.message) else {
            return;
        };
        let message = &mut self.messages[number];
        assert_eq!((message.from, message.fate), (from, Fate::OnWire));
        let place = side
            .posted
            .iter()
            .position(|receive| self.receives[*receive].takes(message));
        let Some(place) = place else {
            message.fate = Fate::Unexpected;
            side.unexpected.push(number);
            let kept = matches!(output, Some(Output::Keep { .. }));
            let eager = !message.announced && !message.early;
            assert_eq!(kept, eager, "message {number}: {output:?}");
            return;
        };
        let receive = side.posted.remove(place);
        message.fate = Fate::Matched;
        let receive = &mut self.receives[receive];
        receive.got = Some(number);
        let fits = message.bytes.min(receive.bytes);
        match output {
            None if message.early => {}
            Some(Output::Deliver { request, bytes, .. }) if !message.announced => {
                assert_eq!((request, bytes), (receive.request, fits));
            }
            Some(Output::Pull { request, bytes, .. }) if message.announced && fits > 0 => {
                assert_eq!((request, bytes), (receive.request, fits));
            }
            None => assert!(message.announced && fits == 0),
            other => panic!("message {number} for {receive:?}: {other:?}"),
        }
    }

    fn compare_counts(&self) {
        let engines = self.world.engines.iter().zip(&self.watches);
        for ((engine, watch), side) in engines.zip(&self.ranks) {
            let counters = engine.counters();
            assert_eq!(counters.posted_length, side.posted.len() as u64);
            if let Some(watch) = watch {
                let is_watched = |at: &&usize| self.receives[**at].context == CONTEXTS[0];
                let length = engine.live_counters().queues(Queued::Posted).length(*watch);
                assert_eq!(length, side.posted.iter().filter(is_watched).count() as u64);
            }
            assert_eq!(counters.unexpected_length, side.unexpected.len() as u64);
            assert_eq!(counters.refused, 0, "an honest frame was refused");
        }
    }
}

impl ReceiveOp {
    fn takes(&self, message: &Message) -> bool {
        self.context == message.context
            && self.peer.is_none_or(|peer| peer == message.from)
            && self.tag.is_none_or(|tag| tag == message.tag)
    }
}

/// The message of a frame, if the frame is the first of a message.
fn message_of(head: &FrameHead, message: Option<usize>) -> Option<usize> {
    let brings = matches!(head.kind, wire::EAGER | wire::RTS | wire::FIRST);
    message.filter(|_| brings)
}

fn described(message: &Message, buffer: u64) -> Send {
    Send {
        peer: Peer(message.to),
        context: ContextId(message.context),
        tag: message.tag,
        bytes: message.bytes,
        buffer,
        synchronous: message.synchronous,
        early: is_early(message.tag),
        key: key(buffer, message.bytes, message.to),
    }
}

fn is_early(tag: i32) -> bool {
    tag % 3 != 1
}

/// The last context id differs from the first by the engine's initial number of bins: so at first both contexts use the
/// same bins.
const CONTEXTS: [u32; 3] = [4, 21, 4 + 512];
/// Number of tags, and the distance between them: with few tags, most receives match; with many, queues of all kinds
/// are long; the last entry has tags whose hash values are close.
const TAGS: [(u64, u64); 5] = [(3, 1), (3, 1), (20, 1), (200, 1), (15, 1 << 27)];
const SIZES: [u64; 9] = [0, 1, 7, 8, 48, 60, 64, 200, 2000];
const UNTOUCHED: u8 = 0xEE;
