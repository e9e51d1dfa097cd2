// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs that must complete, whatever the network does.
//!
//! A program has phases. A rank starts all operations of a phase before it waits for any of them. In each phase, a rank
//! receives as many messages of each class as are sent to it. No receive can match a message of another class, because
//! of three rules: if some messages of a source are received with any tag, all messages of that source in that
//! communicator are; receives from any source have a tag that only their phase uses; and receives from any source with
//! any tag have a communicator that only their phase uses. So in every order of events all messages and receives match,
//! and no rank waits for ever.

use transport::SimConfig;

use crate::memory::Shape;
use crate::random::Random;

/// A whole program.
#[derive(Debug)]
pub struct Plan {
    pub seed: u64,
    pub net: SimConfig,
    pub settings: Settings,
    pub comms: Vec<CommPlan>,
    pub messages: Vec<Message>,
    pub receives: Vec<Receive>,
    pub templates: Vec<Template>,
    pub phases: Vec<Phase>,
    /// Maximum number of bytes of unexpected data that a rank may store at the same time.
    pub most_kept: u64,
}

/// The values of control variables.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub eager_limit: u64,
    pub budget: u64,
    pub single_copy: bool,
    /// Whether collectives go through one rank instead of in rounds.
    pub flat: bool,
    /// Reductions of this many bytes or more are cut into slices.
    pub slice_limit: u64,
    /// Seed for the selection of collective algorithms; 0: the library selects them.
    pub choices: u64,
}

/// A communicator: its context id and the world ranks of its members.
#[derive(Clone, Debug)]
pub struct CommPlan {
    pub context: u32,
    pub members: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Exact,
    AnyTag,
    AnySource,
    AnyBoth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendHow {
    Standard,
    Synchronous,
    Buffered,
    /// A send of bytes that the operation owns.
    Owned,
    /// The request is freed immediately after the start.
    Freed,
    /// The send is cancelled immediately, and made again if the cancel succeeded.
    Cancelled,
    Persistent(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveHow {
    Posted,
    /// The receive is posted on the fast path, if possible.
    First,
    /// The request is freed immediately after the start.
    Freed,
    /// The receive is cancelled immediately, and posted again if the cancel succeeded.
    Cancelled,
    /// The receive is posted after a probe has found the message.
    Probed,
    /// The message is claimed by a matched probe, and then received.
    Claimed,
    Persistent(usize),
}

#[derive(Clone, Debug)]
pub struct Message {
    pub from: u32,
    pub to: u32,
    pub comm: usize,
    pub tag: i32,
    pub bytes: u64,
    pub class: Class,
    pub how: SendHow,
    pub shape: Shape,
}

/// A receive. Its ranks are world ranks.
#[derive(Clone, Debug)]
pub struct Receive {
    pub to: u32,
    pub comm: usize,
    pub source: Option<u32>,
    pub tag: Option<i32>,
    pub room: u64,
    pub how: ReceiveHow,
    pub shape: Shape,
}

/// A persistent send, and the receive of its messages.
#[derive(Clone, Debug)]
pub struct Template {
    pub from: u32,
    pub to: u32,
    pub comm: usize,
    pub tag: i32,
    pub bytes: u64,
    pub synchronous: bool,
    pub buffered: bool,
    pub receive_persistent: bool,
    pub shapes: [Shape; 2],
}

#[derive(Debug)]
pub struct Phase {
    pub scripts: Vec<Script>,
    pub collective: Option<Collective>,
}

/// The steps of one rank in a phase.
#[derive(Debug, Default)]
pub struct Script {
    pub steps: Vec<Step>,
    pub ending: Ending,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Send(usize),
    Receive(usize),
    /// A send and a receive with one request.
    Exchange(usize, usize),
    /// A turn of progress.
    Progress,
    /// A receive whose message is never sent. It is cancelled.
    LostReceive(usize),
    /// A probe for a message that is never sent.
    IdleProbe(usize),
    Collective,
}

/// How a rank waits for the operations of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    #[default]
    InOrder,
    /// Waits for any operation, until all have completed (`MPI_Waitany`).
    Any,
    /// Waits until all operations are complete, and then collects them.
    All,
    /// Tests repeatedly, with other steps between tests (`MPI_Testany`).
    Poll,
    /// Waits at the end of the program.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    ReduceScatter,
    Scan,
    Exscan,
}

#[derive(Clone, Copy, Debug)]
pub struct Collective {
    pub kind: CollectiveKind,
    pub comm: usize,
    /// Rank in the communicator.
    pub root: u32,
    /// Bytes of one block; a multiple of 16.
    pub bytes: u64,
}

/// The size of a program.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub phases: u64,
    /// Largest number of messages of each rank in a phase.
    pub messages: u64,
    /// Percentage of messages that are large: about 32 KiB or more.
    pub large_percent: u64,
    pub collective_percent: u64,
}

impl Plan {
    /// The program of a seed, on a network whose faults are determined by the same seed.
    pub fn random(seed: u64, scale: Scale) -> Self {
        let mut random = Random(seed ^ 0x0005_eed5);
        let ranks = 2 + random.below(4) as u32 + if random.percent(20) { 3 } else { 0 };
        let settings = Settings {
            eager_limit: random.pick(&[8192, 8192, 0, 8, 48, 100, 4096]),
            budget: random.pick(&[64 << 20, 64 << 20, 0, 500, 20_000]),
            single_copy: random.percent(75),
            flat: random.percent(50),
            slice_limit: random.pick(&[0, 100, 4 << 10]),
            choices: match Random(seed ^ 0xc401_ce00).next() {
                word if word % 3 == 0 => 0,
                word => word,
            },
        };
        let mut plan = Self {
            seed,
            net: SimConfig::harsh(seed, ranks),
            settings,
            comms: communicators(ranks, &mut random),
            messages: Vec::new(),
            receives: Vec::new(),
            templates: Vec::new(),
            phases: Vec::new(),
            most_kept: u64::MAX,
        };
        for _ in 0..random.below(4) {
            plan.add_template(&mut random);
        }
        for phase in 0..1 + random.below(scale.phases) {
            plan.add_phase(phase as i32, scale, &mut random);
        }
        plan
    }

    /// All ranks except rank 0 flood rank 0 with messages. Rank 0 receives them only after it has received the last
    /// message of each sender.
    pub fn flood(seed: u64) -> Self {
        let mut random = Random(seed ^ 0x0f10_0d00);
        let ranks = 2 + random.below(3) as u32;
        let net = SimConfig::harsh(seed, ranks);
        let settings = Settings {
            eager_limit: 8192,
            budget: 20_000,
            single_copy: random.percent(50),
            flat: true,
            slice_limit: 1 << 14,
            choices: 0,
        };
        let message = |from, bytes, tag| Message {
            from,
            to: 0,
            comm: 0,
            tag,
            bytes,
            class: Class::Exact,
            how: SendHow::Standard,
            shape: Shape::DENSE,
        };
        let sizes = random.pick(&[[8, 8], [1000, 1000], [0, 3000]]);
        let mut messages = Vec::new();
        let mut scripts = [Vec::new(), Vec::new()];
        for phase in &mut scripts {
            phase.resize_with(ranks as usize, Script::default);
        }
        for from in 1..ranks {
            for number in 0..=FLOOD {
                let (tag, phase) = if number == FLOOD { (1, 0) } else { (0, 1) };
                let place = messages.len();
                scripts[0][from as usize].steps.push(Step::Send(place));
                scripts[phase][0].steps.push(Step::Receive(place));
                messages.push(message(from, sizes[number % 2], tag));
            }
        }
        let receives = messages.iter().map(Message::receive).collect();
        let phases = scripts.map(|scripts| Phase {
            scripts,
            collective: None,
        });
        let largest = sizes[1] + KEPT_OVERHEAD;
        Self {
            seed,
            net,
            settings,
            comms: communicators(ranks, &mut random),
            messages,
            receives,
            templates: Vec::new(),
            phases: phases.into(),
            most_kept: settings.budget + u64::from(ranks - 1) * UNDER_WAY * largest,
        }
    }

    pub fn ranks(&self) -> u32 {
        self.net.ranks
    }

    fn add_template(&mut self, random: &mut Random) {
        let comm = random.index(self.comms.len());
        let members = &self.comms[comm].members;
        let (from, to) = (random.pick(members), random.pick(members));
        if self.takes_any_tag(from, to, comm) {
            return;
        }
        let bytes = size(self.settings.eager_limit, 10, random);
        self.templates.push(Template {
            from,
            to,
            comm,
            tag: 500 + self.templates.len() as i32,
            bytes,
            synchronous: random.percent(30),
            buffered: random.percent(20),
            receive_persistent: random.percent(70),
            shapes: [shape(random), shape(random)],
        });
    }

    fn add_phase(&mut self, number: i32, scale: Scale, random: &mut Random) {
        let ranks = self.ranks();
        let wild = self.comms.len();
        self.comms.push(CommPlan {
            context: 1000 + 2 * number as u32,
            members: (0..ranks).collect(),
        });
        let first = self.messages.len();
        for _ in 0..random.below(1 + scale.messages * u64::from(ranks)) {
            let message = self.message(number, wild, scale, random);
            self.messages.push(message);
        }
        for at in 0..self.templates.len() {
            if random.percent(50) {
                let message = self.templates[at].message(at);
                self.messages.push(message);
            }
        }
        let new = first..self.messages.len();
        let mut steps: Vec<Vec<Step>> = vec![Vec::new(); ranks as usize];
        let mut probes = steps.clone();
        for at in new.clone() {
            let receive = self.receive_for(at, new.clone(), random);
            steps[self.messages[at].from as usize].push(Step::Send(at));
            let later = matches!(receive.how, ReceiveHow::Probed | ReceiveHow::Claimed);
            let list = if later { &mut probes } else { &mut steps };
            list[receive.to as usize].push(Step::Receive(self.receives.len()));
            self.receives.push(receive);
        }
        let collective = random
            .percent(scale.collective_percent)
            .then(|| self.collective(wild, random));
        let scripts = steps.into_iter().zip(probes).zip(0..);
        let scripts = scripts.map(|((mut steps, mut probes), rank)| {
            self.sprinkle(&mut steps, random);
            random.shuffle(&mut steps);
            self.pair_up(&mut steps, random);
            random.shuffle(&mut probes);
            if collective.is_some_and(|it| self.comms[it.comm].members.contains(&rank)) {
                let place = if random.percent(50) { 0 } else { steps.len() };
                steps.insert(place, Step::Collective);
            }
            steps.extend(probes);
            let ending = random.pick(&ENDINGS);
            Script { steps, ending }
        });
        let scripts = scripts.collect();
        self.phases.push(Phase {
            scripts,
            collective,
        });
    }

    fn message(&self, phase: i32, wild: usize, scale: Scale, random: &mut Random) -> Message {
        let any_both = random.percent(15);
        let comm = match any_both {
            true => wild,
            false => random.index(BASE_COMMS.min(wild)),
        };
        let members = &self.comms[comm].members;
        let (from, to) = (random.pick(members), random.pick(members));
        let class = match () {
            () if any_both => Class::AnyBoth,
            () if self.takes_any_tag(from, to, comm) => Class::AnyTag,
            () if random.percent(25) => Class::AnySource,
            () => Class::Exact,
        };
        let tag = match class {
            Class::AnySource => 1000 + phase,
            _ => random.below(4) as i32,
        };
        let how = random.pick(&SEND_HOWS);
        let dense = matches!(how, SendHow::Owned | SendHow::Cancelled) || random.percent(75);
        Message {
            from,
            to,
            comm,
            tag,
            bytes: size(self.settings.eager_limit, scale.large_percent, random),
            class,
            how,
            shape: if dense { Shape::DENSE } else { shape(random) },
        }
    }

    /// A receive whose source and tag match message `at`. It may get another message of its class.
    fn receive_for(
        &self,
        at: usize,
        phase: std::ops::Range<usize>,
        random: &mut Random,
    ) -> Receive {
        let message = &self.messages[at];
        let same_class = |other: &&Message| {
            (other.to, other.comm, other.class) == (message.to, message.comm, message.class)
                && other.how.template() == message.how.template()
        };
        let largest = self.messages[phase].iter().filter(same_class);
        let largest = largest.map(|other| other.bytes).max().unwrap_or(0);
        let room = match random.below(10) {
            0 => largest + random.below(100),
            1 => random.below(largest + 1),
            _ => largest,
        };
        let (source, tag) = match message.class {
            Class::Exact => (Some(message.from), Some(message.tag)),
            Class::AnyTag => (Some(message.from), None),
            Class::AnySource => (None, Some(message.tag)),
            Class::AnyBoth => (None, None),
        };
        let how = match (message.how.template(), message.class) {
            (Some(template), _) if self.templates[template].receive_persistent => {
                ReceiveHow::Persistent(template)
            }
            (_, Class::Exact) => random.pick(&RECEIVE_HOWS),
            // The last two ways need a definite source and tag: the fast path posts no wildcards, and a freed receive
            // has no status that would show them.
            _ => random.pick(&RECEIVE_HOWS[..RECEIVE_HOWS.len() - 2]),
        };
        let shaped = how != ReceiveHow::First && random.percent(30);
        let template = message.how.template().map(|at| &self.templates[at]);
        Receive {
            to: message.to,
            comm: message.comm,
            source,
            tag,
            room: template.map_or(room, |template| template.bytes),
            how,
            shape: match template {
                Some(template) if how != ReceiveHow::First => template.shapes[1],
                _ if shaped => shape(random),
                _ => Shape::DENSE,
            },
        }
    }

    fn sprinkle(&self, steps: &mut Vec<Step>, random: &mut Random) {
        for _ in 0..random.below(3) {
            let comm = random.index(self.comms.len());
            steps.push(match random.below(4) {
                0 => Step::LostReceive(comm),
                1 => Step::IdleProbe(comm),
                _ => Step::Progress,
            });
        }
    }

    /// For some pairs of a send and a receive that follow each other: makes one request of both.
    fn pair_up(&self, steps: &mut Vec<Step>, random: &mut Random) {
        let mut at = 1;
        while at < steps.len() {
            if let (Step::Send(send), Step::Receive(receive)) = (steps[at - 1], steps[at])
                && matches!(
                    self.messages[send].how,
                    SendHow::Standard | SendHow::Synchronous
                )
                && self.receives[receive].how == ReceiveHow::Posted
                && random.percent(60)
            {
                steps[at - 1] = Step::Exchange(send, receive);
                steps.remove(at);
            }
            at += 1;
        }
    }

    fn collective(&self, wild: usize, random: &mut Random) -> Collective {
        let comm = random.index(BASE_COMMS.min(wild));
        let eager = self.settings.eager_limit / 16 * 16;
        Collective {
            kind: random.pick(&COLLECTIVES),
            comm,
            root: random.below(self.comms[comm].members.len() as u64) as u32,
            bytes: random.pick(&[0, 16, 48, 64, eager, eager + 16, 40_000]),
        }
    }

    /// Whether all messages from `from` to `to` in this communicator are received with any tag.
    fn takes_any_tag(&self, from: u32, to: u32, comm: usize) -> bool {
        let pair = u64::from(from) << 40 | u64::from(to) << 20 | comm as u64;
        Random(self.seed ^ pair).percent(30)
    }
}

impl Message {
    /// A plain receive for this message.
    fn receive(&self) -> Receive {
        Receive {
            to: self.to,
            comm: self.comm,
            source: Some(self.from),
            tag: Some(self.tag),
            room: self.bytes,
            how: ReceiveHow::Posted,
            shape: Shape::DENSE,
        }
    }
}

impl Template {
    fn message(&self, at: usize) -> Message {
        Message {
            from: self.from,
            to: self.to,
            comm: self.comm,
            tag: self.tag,
            bytes: self.bytes,
            class: Class::Exact,
            how: SendHow::Persistent(at),
            shape: self.shapes[0],
        }
    }
}

impl SendHow {
    fn template(self) -> Option<usize> {
        match self {
            Self::Persistent(at) => Some(at),
            _ => None,
        }
    }
}

/// The communicators of a program: the world, its duplicate, the world in reverse order, and some ranks of the world.
fn communicators(ranks: u32, random: &mut Random) -> Vec<CommPlan> {
    let world: Vec<u32> = (0..ranks).collect();
    let mut some = world.clone();
    random.shuffle(&mut some);
    some.truncate(1 + random.index(some.len()));
    let lists = [
        world.clone(),
        world.clone(),
        world.into_iter().rev().collect(),
        some,
    ];
    let contexts = [2, 6, 8, 10];
    let pairs = contexts.into_iter().zip(lists);
    pairs
        .map(|(context, members)| CommPlan { context, members })
        .collect()
}

/// The size of a message, in bytes: near a size at which the protocol changes, or large.
fn size(eager_limit: u64, large_percent: u64, random: &mut Random) -> u64 {
    if random.percent(large_percent) {
        return random.pick(&[32_767, 32_768, 32_769, 65_537, 100_000, 300_000]);
    }
    match random.below(4) {
        0 => random.pick(&[eager_limit.saturating_sub(1), eager_limit, eager_limit + 1]),
        1 => random.below(200),
        _ => random.pick(&[0, 1, 4, 7, 8, 9, 47, 48, 49]),
    }
}

fn shape(random: &mut Random) -> Shape {
    let block = random.pick(&[1, 4, 8, 12, 16]);
    Shape {
        block,
        stride: block + random.pick(&[0, 1, 4, 16]),
    }
}

/// Number of bytes that a stored unexpected message needs in addition to its body.
const KEPT_OVERHEAD: u64 = 192;
/// Number of messages that each sender of a flood sends before its last one.
const FLOOD: usize = 800;
/// Maximum number of messages that a sender has in flight when it receives the THROTTLE.
const UNDER_WAY: u64 = 40;
const BASE_COMMS: usize = 4;
const ENDINGS: [Ending; 5] = [
    Ending::InOrder,
    Ending::Any,
    Ending::All,
    Ending::Poll,
    Ending::Later,
];
const SEND_HOWS: [SendHow; 8] = [
    SendHow::Standard,
    SendHow::Standard,
    SendHow::Standard,
    SendHow::Synchronous,
    SendHow::Buffered,
    SendHow::Owned,
    SendHow::Freed,
    SendHow::Cancelled,
];
const RECEIVE_HOWS: [ReceiveHow; 8] = [
    ReceiveHow::Posted,
    ReceiveHow::Posted,
    ReceiveHow::Posted,
    ReceiveHow::Cancelled,
    ReceiveHow::Probed,
    ReceiveHow::Claimed,
    ReceiveHow::First,
    ReceiveHow::Freed,
];
const COLLECTIVES: [CollectiveKind; 11] = [
    CollectiveKind::Barrier,
    CollectiveKind::Bcast,
    CollectiveKind::Reduce,
    CollectiveKind::Allreduce,
    CollectiveKind::Gather,
    CollectiveKind::Scatter,
    CollectiveKind::Allgather,
    CollectiveKind::Alltoall,
    CollectiveKind::ReduceScatter,
    CollectiveKind::Scan,
    CollectiveKind::Exscan,
];
