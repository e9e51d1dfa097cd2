// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates hosts in simulated time. Each host has a shepherd, and a daemon whose ranks run a short program. Streams
//! have latency and a limited number of bytes in flight. Hosts crash, lose power, freeze or are slow, as a seed
//! determines.

use super::chance::{Dice, Fault};
use super::heap::Holding;
use crate::connection::FrameConnection;
use crate::cpus::CpuList;
use crate::daemon::records::{RecordMessage, Records};
use crate::hosts::HostMachine;
use crate::job::NodeJob;
use crate::link::{Inbox, NodeEvent, NodePhase, NodeSummary, Order};
use crate::send_buffer::SendBuffer;
use crate::shepherd::protocol::{DownMessage, HostFacts, NodeLoss, greeting};
use crate::shepherd::shell::ShellExit;
use crate::shepherd::tree::ShepherdTree;
use crate::strided_ranks::StridedRanks;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wireup::Record;

/// Maximum number of bytes of a stream in flight: the capacity of a pipe.
const WINDOW_BYTES: usize = 64 << 10;
/// Size of a rank's record in bytes, about that of a real record with two networks.
const RECORD_BYTES: usize = 120;
/// The daemon of one host in this many does everything that a real daemon does with records. The daemons of the other
/// hosts ignore reports of failures, and keep no state of ranks that request no records; otherwise they would dominate
/// the test's time.
const WHOLE_EVERY: usize = 997;

/// Next step of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    IsReady,
    HasStarted,
    AllAreQuiet,
    Ends,
}

enum SimEvent {
    Below(usize, Vec<u8>),
    Above(Vec<u8>),
    BelowClosed(usize),
    AboveClosed,
    Daemon(Step),
    Fault(Fault),
}

/// One direction of a connection: bytes that wait for room, and the number of bytes in flight.
#[derive(Default)]
struct OutputStream {
    waiting: SendBuffer,
    under_way: usize,
    /// Arrival of the last piece; no later piece arrives earlier, since a stream keeps its order.
    last: u64,
}

enum HostState {
    /// The shepherd was not started yet.
    Not,
    /// The shepherd has not received its first message.
    Configuring(Inbox),
    Running(Box<ShepherdTree>),
    Over,
}

pub(super) struct JobHost {
    state: HostState,
    /// Its parent, and its number among the parent's children.
    parent: Option<(usize, usize)>,
    children: Vec<usize>,
    up: OutputStream,
    down: Vec<OutputStream>,
    pub(super) daemon: Daemon,
    /// Heap bytes of its shepherd: its state, and data that waits for room.
    pub(super) holding: Holding,
    /// Depth of the host in the tree.
    pub(super) level: u32,
    /// The highest number of connections to other processes so far.
    pub(super) connections: usize,
    /// Bytes that its shepherd has sent.
    pub(super) sent: usize,
    is_off: bool,
    frozen_until: u64,
    /// Factor by which all its delays are multiplied.
    slowness: u64,
    next_tick: u64,
}

/// State of a daemon.
#[derive(Default)]
pub(super) struct Daemon {
    inbox: Inbox,
    records: Option<Records>,
    ranks: Vec<u32>,
    /// Ranks for which the daemon's first rank has received a record, or the reply that there is none.
    pub(super) answers: BTreeSet<u32>,
    pub(super) holding: Holding,
    has_ended: bool,
}

/// The simulated hosts. Host 0 is the front's, and host `n + 1` is that of node `n`.
pub(super) struct World {
    pub(super) hosts: Vec<JobHost>,
    /// Current time in milliseconds.
    pub(super) now: u64,
    queue: BTreeMap<u64, Vec<(usize, SimEvent)>>,
    pub(super) dice: Dice,
    /// The shepherd's end of the connection to the front.
    pub(super) front: FrameConnection,
    /// Range of times at which programs end, in milliseconds.
    pub(super) ends: std::ops::Range<u64>,
    /// Number of other nodes that a node's first rank communicates with.
    pub(super) peers: u32,
    scratch: Vec<u8>,
}

fn host() -> JobHost {
    JobHost {
        state: HostState::Not,
        parent: None,
        children: Vec::new(),
        up: OutputStream::default(),
        down: Vec::new(),
        daemon: Daemon::default(),
        holding: Holding::default(),
        level: 0,
        connections: 0,
        sent: 0,
        is_off: false,
        frozen_until: 0,
        slowness: 1,
        next_tick: 0,
    }
}

fn time(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl World {
    /// A world in which the shepherd of host 0 waits for its configuration, and the hosts of `nodes` nodes are not
    /// started yet.
    pub(super) fn new(nodes: usize, peers: u32, front: FrameConnection, seed: u64) -> Self {
        let mut world = Self {
            hosts: (0..=nodes).map(|_| host()).collect(),
            now: 0,
            queue: BTreeMap::new(),
            dice: Dice::of(seed),
            front,
            ends: 0..1,
            peers,
            scratch: vec![0; 64 << 10],
        };
        world.hosts[0].state = HostState::Configuring(Inbox::default());
        world
    }

    pub(super) fn strike(&mut self, node: usize, after: u64, fault: Fault) {
        self.at(node + 1, after, SimEvent::Fault(fault));
    }

    pub(super) fn slow_down(&mut self, node: usize, slowness: u64) {
        self.hosts[node + 1].slowness = slowness;
    }

    /// The nodes with which a node communicates: those at distances 1, 2, 4, 8 and so on.
    pub(super) fn peers(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        let nodes = self.hosts.len() - 1;
        let peers = (0..self.peers).map(move |power| (node + (1 << power)) % nodes);
        peers.filter(move |peer| *peer != node)
    }

    pub(super) fn daemon(&self, node: usize) -> &Daemon {
        &self.hosts[node + 1].daemon
    }

    /// The nodes through whose shepherds this node is reached, including this node.
    pub(super) fn path(&self, node: usize) -> Vec<usize> {
        let parent = |host: &usize| self.hosts[*host].parent.map(|(parent, _)| parent);
        let hosts = std::iter::successors(Some(node + 1), parent);
        hosts.filter_map(|host| host.checked_sub(1)).collect()
    }

    /// Number of hosts with a running shepherd.
    pub(super) fn living(&self) -> usize {
        let runs = |host: &&JobHost| {
            matches!(
                host.state,
                HostState::Running(_) | HostState::Configuring(_)
            )
        };
        let all = self.hosts.iter().filter(runs);
        all.filter(|host| !host.is_off).count()
    }

    fn at(&mut self, host: usize, after: u64, event: SimEvent) {
        let slot = self.queue.entry(self.now + after).or_default();
        slot.push((host, event));
    }

    fn millis(&mut self, host: usize, end: u64) -> u64 {
        (self.dice.below(end) + 1) * self.hosts[host].slowness
    }

    /// Advances time.
    pub(super) fn run(&mut self, millis: u64) {
        let until = self.now + millis;
        while self.now < until {
            self.now += 1;
            while let Some(slot) = self
                .queue
                .first_entry()
                .filter(|slot| *slot.key() <= self.now)
            {
                for (host, event) in slot.remove() {
                    self.take(host, event);
                }
            }
            if self.now.is_multiple_of(TICK) {
                (0..self.hosts.len()).for_each(|host| self.tick(host));
            }
        }
        self.receive_from_front();
    }

    fn take(&mut self, at: usize, event: SimEvent) {
        let host = &self.hosts[at];
        if host.is_off {
            return;
        }
        if host.frozen_until > self.now {
            // A frozen process reads the data later; its kernel receives it.
            let after = host.frozen_until - self.now;
            return self.at(at, after, event);
        }
        self.handle_event(at, event);
        self.settle(at);
    }

    fn tick(&mut self, at: usize) {
        let now = self.now;
        let host = &mut self.hosts[at];
        if host.next_tick > now || host.is_off || host.frozen_until > now {
            return;
        }
        let HostState::Running(tree) = &mut host.state else {
            return;
        };
        host.holding.during(|| tree.on_time(time(now)));
        self.settle(at);
    }

    fn handle_event(&mut self, at: usize, event: SimEvent) {
        let now = time(self.now);
        match &event {
            SimEvent::Fault(fault) => return self.fault(at, *fault),
            SimEvent::Daemon(step) => return self.step(at, *step),
            // The bytes were read, so the sender has room again.
            SimEvent::Above(bytes) => self.arrived_from_above(at, bytes.len()),
            SimEvent::Below(child, bytes) => self.arrived_from_below(at, *child, bytes.len()),
            _ => (),
        }
        if matches!(self.hosts[at].state, HostState::Configuring(_)) {
            return match event {
                SimEvent::Above(bytes) => self.begin(at, &bytes),
                SimEvent::AboveClosed => self.hosts[at].state = HostState::Over,
                _ => (),
            };
        }
        let host = &mut self.hosts[at];
        let HostState::Running(tree) = &mut host.state else {
            return;
        };
        host.holding.during(|| match &event {
            SimEvent::Below(child, bytes) => tree.receive_from_child(*child, bytes),
            SimEvent::Above(bytes) => tree.receive_from_above(bytes),
            SimEvent::AboveClosed => tree.parent_closed(),
            SimEvent::BelowClosed(child) => {
                tree.child_closed(*child, &ShellExit::default(), now);
            }
            SimEvent::Daemon(_) | SimEvent::Fault(_) => (),
        });
    }

    fn arrived_from_above(&mut self, at: usize, bytes: usize) {
        if let Some((parent, child)) = self.hosts[at].parent {
            self.hosts[parent].down[child].under_way -= bytes;
            self.send_down(parent, child);
        }
    }

    fn arrived_from_below(&mut self, at: usize, child: usize, bytes: usize) {
        let below = self.hosts[at].children[child];
        self.hosts[below].up.under_way -= bytes;
        self.send_up(below);
    }

    /// Reads the first message.
    fn begin(&mut self, at: usize, bytes: &[u8]) {
        let now = time(self.now);
        let host = &mut self.hosts[at];
        let HostState::Configuring(inbox) = &mut host.state else {
            return;
        };
        let begun = host.holding.during(|| {
            inbox.add(bytes);
            let Ok(Some(DownMessage::Begin(begin))) = DownMessage::take(inbox) else {
                return None;
            };
            let inbox = std::mem::take(inbox);
            let mut tree = Box::new(ShepherdTree::new(*begin, inbox, at > 0, now));
            tree.daemon_started(facts(at));
            // Further messages may have arrived together with the configuration.
            tree.receive_from_above(&[]);
            Some(tree)
        });
        if let Some(tree) = begun {
            host.state = HostState::Running(tree);
        }
    }

    fn fault(&mut self, at: usize, fault: Fault) {
        let now = self.now;
        let host = &mut self.hosts[at];
        match (fault, &mut host.state) {
            (_, HostState::Over | HostState::Not) => (),
            (Fault::Killed, _) => self.end(at),
            (Fault::PowerOff, _) => host.is_off = true,
            (Fault::Frozen(seconds), _) => host.frozen_until = now + seconds * 1000,
            (Fault::DaemonKilled, HostState::Running(tree)) => {
                host.daemon.has_ended = true;
                let message = "its node daemon was killed".to_owned();
                host.holding
                    .during(|| tree.daemon_ended(Some(NodeLoss { message, code: 137 })));
            }
            (Fault::DaemonKilled, HostState::Configuring(_)) => (),
        }
    }

    /// A host's shepherd ends.
    fn end(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.holding.during(|| host.state = HostState::Over);
        host.daemon.has_ended = true;
        if let Some((parent, child)) = host.parent {
            let after = self.arrival(at, parent, None);
            self.at(parent, after, SimEvent::BelowClosed(child));
        }
        for child in 0..self.hosts[at].children.len() {
            self.close_below(at, child);
        }
    }

    fn close_below(&mut self, at: usize, child: usize) {
        let below = self.hosts[at].children[child];
        let after = self.arrival(at, below, Some(child));
        self.at(below, after, SimEvent::AboveClosed);
    }

    /// Does what a host's shepherd has requested: starts children, and sends its bytes.
    fn settle(&mut self, at: usize) {
        let now = time(self.now);
        self.start_children(at);
        let front = &mut self.front;
        let host = &mut self.hosts[at];
        let HostState::Running(tree) = &mut host.state else {
            return;
        };
        let waits = host.holding.during(|| {
            let down = (0..).zip(&mut host.down);
            for (child, stream) in down {
                if !tree.below(child).is_empty() {
                    stream.waiting.take(tree.below(child));
                }
            }
            match host.parent {
                Some(_) => host.up.waiting.take(tree.above()),
                None => front.outbox.take(tree.above()),
            }
            host.down.iter().any(|stream| !stream.waiting.is_empty())
        });
        let orders = tree.orders().map(|orders| orders.clone());
        host.holding
            .during(|| drop(tree.orders().map(std::mem::take)));
        let dropped: Vec<usize> = std::iter::from_fn(|| tree.next_dropped()).collect();
        let is_over = tree.is_over() && tree.above().is_empty() && host.up.waiting.is_empty();
        let is_end = is_over || tree.is_orphan();
        host.next_tick = u64::try_from(tree.next_time().max(now).as_millis()).unwrap_or(u64::MAX);
        if waits {
            (0..self.hosts[at].down.len()).for_each(|child| self.send_down(at, child));
        }
        self.send_up(at);
        dropped
            .into_iter()
            .for_each(|child| self.close_below(at, child));
        self.obey(at, &orders.unwrap_or_default());
        if is_end {
            self.end(at);
        }
    }

    fn start_children(&mut self, at: usize) {
        let now = time(self.now);
        loop {
            let host = &mut self.hosts[at];
            let HostState::Running(tree) = &mut host.state else {
                return;
            };
            let next = host.holding.during(|| {
                let (child, target) = tree.next_start(now)?;
                Some((child, target.node as usize + 1))
            });
            let Some((child, below)) = next else { return };
            assert_eq!(
                child,
                host.children.len(),
                "they are started in their order"
            );
            host.children.push(below);
            host.down.push(OutputStream::default());
            let own = usize::from(tree.own().is_some());
            host.connections = host.children.len() + own + 1;
            let level = host.level + 1;
            let started = &mut self.hosts[below];
            started.state = HostState::Configuring(Inbox::default());
            started.parent = Some((at, child));
            started.level = level;
            started.connections = 2;
            let noise = [b"Last login\n".as_slice(), &greeting()].concat();
            let after = self.millis(below, 1000);
            self.hosts[below].up.last = self.now + after;
            self.hosts[below].up.waiting.extend(noise);
            self.send_up(below);
        }
    }

    /// Delay of a piece that is sent now, to a child or to the parent.
    fn arrival(&mut self, from: usize, to: usize, child: Option<usize>) -> u64 {
        let slowness = self.hosts[from].slowness.max(self.hosts[to].slowness);
        let soonest = self.now + (self.dice.below(30) + 1) * slowness;
        let last = &mut self.hosts[from].stream(child).last;
        *last = (*last).max(soonest);
        *last - self.now
    }

    /// Removes and returns the waiting bytes that the stream accepts now.
    fn send(&mut self, from: usize, child: Option<usize>) -> Vec<u8> {
        let host = &mut self.hosts[from];
        let stream = host.stream(child);
        let unsent = stream.waiting.unsent();
        let bytes = unsent.len().min(WINDOW_BYTES - stream.under_way);
        let sent = unsent[..bytes].to_vec();
        stream.under_way += bytes;
        host.sent += bytes;
        host.took(child, bytes);
        sent
    }

    fn send_up(&mut self, at: usize) {
        let Some((parent, child)) = self.hosts[at].parent else {
            return;
        };
        let bytes = self.send(at, None);
        if !bytes.is_empty() {
            let after = self.arrival(at, parent, None);
            self.at(parent, after, SimEvent::Below(child, bytes));
        }
    }

    fn send_down(&mut self, at: usize, child: usize) {
        let bytes = self.send(at, Some(child));
        if !bytes.is_empty() {
            let below = self.hosts[at].children[child];
            let after = self.arrival(at, below, Some(child));
            self.at(below, after, SimEvent::Above(bytes));
        }
    }

    /// Passes bytes between the front and its shepherd.
    fn receive_from_front(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        while let Ok(bytes @ 1..) = self.front.read(&mut scratch) {
            self.take(0, SimEvent::Above(scratch[..bytes].to_vec()));
        }
        self.scratch = scratch;
        let front = &mut self.front;
        let flushed = self.hosts[0].holding.during(|| front.flush());
        assert!(flushed.is_ok(), "the front is there");
    }

    /// A daemon carries out its orders.
    fn obey(&mut self, at: usize, orders: &[u8]) {
        let daemon = &mut self.hosts[at].daemon;
        if daemon.has_ended || orders.is_empty() {
            return;
        }
        let all = daemon.holding.during(|| {
            daemon.inbox.add(orders);
            let all = std::iter::from_fn(|| Order::take(&mut daemon.inbox).expect("orders"));
            let all: Vec<Order> = all.collect();
            daemon.inbox.give_back();
            all
        });
        for order in all {
            match order {
                Order::Job(job) => self.get_job(at, &job),
                Order::Start(_) => self.later(at, 500, Step::HasStarted),
                Order::AllQuiet(round) => {
                    self.with_records(at, |records| drop(records.all_quiet(round)));
                    self.later(at, 50, Step::Ends);
                }
                Order::Watch(rank) => self.with_records(at, |records| records.watch(rank)),
                Order::Location(of) => {
                    self.hosts[at].daemon.answers.insert(of.rank);
                    self.with_records(at, |records| drop(records.set_location(of)));
                }
                Order::Lost { ranks, why } if at.is_multiple_of(WHOLE_EVERY) => {
                    let ranks = ranks.into_iter().flat_map(StridedRanks::numbers);
                    let ranks: Vec<u32> = ranks.flatten().collect();
                    self.with_records(at, |records| {
                        ranks
                            .iter()
                            .for_each(|rank| drop(records.lost(*rank, &why)));
                    });
                }
                _ => (),
            }
        }
    }

    fn later(&mut self, at: usize, millis: u64, step: Step) {
        let after = self.millis(at, millis);
        self.at(at, after, SimEvent::Daemon(step));
    }

    fn get_job(&mut self, at: usize, job: &NodeJob) {
        let is_whole = at.is_multiple_of(WHOLE_EVERY);
        let daemon = &mut self.hosts[at].daemon;
        daemon.ranks = job.ranks.iter().map(|placed| placed.rank).collect();
        let known = if is_whole { usize::MAX } else { 1 };
        let ranks = daemon.ranks.iter().copied().take(known);
        let records = || Records::new(ranks, job.size);
        daemon.records = Some(daemon.holding.during(records));
        self.later(at, 200, Step::IsReady);
    }

    /// The ranks of a node reach a step.
    fn step(&mut self, at: usize, step: Step) {
        if self.hosts[at].daemon.has_ended {
            return;
        }
        let ranks = self.hosts[at].daemon.ranks.clone();
        let own = u32::try_from(ranks.len()).expect("a node has few ranks");
        match step {
            Step::IsReady => self.send_events(at, &[NodeEvent::Ready]),
            Step::HasStarted => self.start_ranks(at, &ranks),
            // While a request is pending, the node has traffic in flight and is not quiet.
            Step::AllAreQuiet if self.is_looking(at) => self.later(at, 1000, Step::AllAreQuiet),
            Step::AllAreQuiet => self.with_records(at, |records| {
                (0..own).for_each(|local| drop(records.quiet(local)));
            }),
            Step::Ends => {
                self.with_records(at, |records| {
                    (0..own).for_each(|local| {
                        records.finalized(local);
                        records.ended(local);
                    });
                });
                let end_event = NodeEvent::Ended(NodeSummary::default());
                let all = [
                    reached(NodePhase::AllFinalized),
                    reached(NodePhase::Ended),
                    end_event,
                ];
                self.send_events(at, &all);
                self.hosts[at].daemon.has_ended = true;
                let host = &mut self.hosts[at];
                if let HostState::Running(tree) = &mut host.state {
                    host.holding.during(|| tree.daemon_ended(None));
                }
            }
        }
    }

    /// All ranks of a node enter MPI, and the first one requests records of others.
    fn start_ranks(&mut self, at: usize, ranks: &[u32]) {
        let own = u32::try_from(ranks.len()).expect("a node has few ranks");
        let started = (1000..).zip(ranks).map(|(pid, rank)| (*rank, pid));
        let started = NodeEvent::Started(started.collect());
        self.send_events(
            at,
            &[
                started,
                reached(NodePhase::Started),
                reached(NodePhase::FirstInMpi),
            ],
        );
        self.with_records(at, |records| {
            let record = Record::new(&[7; RECORD_BYTES]).expect("it is short");
            (0..own).for_each(|local| {
                records.initialized(local, true);
                records.published(local, record.clone());
            });
        });
        for peer in self.peers(at - 1) {
            // The peer's first rank has number `peer * own` if ranks are placed in blocks, and number `peer` if they
            // are placed round-robin over the nodes.
            let first = if ranks[1] == ranks[0] + 1 { own } else { 1 };
            let rank = u32::try_from(peer).expect("few nodes") * first;
            self.with_records(at, |records| _ = records.request(0, rank));
        }
        self.send_events(at, &[reached(NodePhase::AllInMpi)]);
        let span = self.ends.end - self.ends.start;
        let end = self.ends.start + self.dice.below(span);
        let after = end.saturating_sub(self.now) + 1;
        self.at(at, after, SimEvent::Daemon(Step::AllAreQuiet));
    }

    fn is_looking(&self, at: usize) -> bool {
        let answers = &self.hosts[at].daemon.answers;
        answers.len() < self.peers(at - 1).count()
    }

    /// Changes a daemon's records, and sends the resulting messages.
    fn with_records(&mut self, at: usize, act: impl FnOnce(&mut Records)) {
        let daemon = &mut self.hosts[at].daemon;
        let Some(records) = &mut daemon.records else {
            return;
        };
        let messages = daemon.holding.during(|| {
            act(records);
            records.take_messages()
        });
        let event = |message| match message {
            RecordMessage::Watch(rank) => NodeEvent::Watch(rank),
            RecordMessage::Location(of) => NodeEvent::Location(of),
            RecordMessage::Quiet(round) => NodeEvent::Quiet(round),
        };
        let events: Vec<NodeEvent> = messages.into_iter().map(event).collect();
        self.send_events(at, &events);
    }

    fn send_events(&mut self, at: usize, events: &[NodeEvent]) {
        let mut bytes = Vec::new();
        events.iter().for_each(|event| event.put(&mut bytes));
        let host = &mut self.hosts[at];
        if let HostState::Running(tree) = &mut host.state
            && !bytes.is_empty()
        {
            host.holding.during(|| tree.receive_from_daemon(&bytes));
        }
    }
}

impl JobHost {
    /// Number of shepherds that this one has started.
    pub(super) fn children(&self) -> usize {
        self.children.len()
    }

    /// The stream to a child, or to the parent.
    fn stream(&mut self, child: Option<usize>) -> &mut OutputStream {
        match child {
            Some(child) => &mut self.down[child],
            None => &mut self.up,
        }
    }

    /// A stream has accepted this many bytes.
    fn took(&mut self, child: Option<usize>, bytes: usize) {
        let mut holding = std::mem::take(&mut self.holding);
        holding.during(|| self.stream(child).waiting.consumed(bytes));
        self.holding = holding;
    }
}

/// Interval between two checks for shepherds whose timers are due, in milliseconds.
const TICK: u64 = 50;

fn reached(phase: NodePhase) -> NodeEvent {
    NodeEvent::Reached { phase, at: 1 }
}

/// Facts about a host with 64 CPUs.
fn facts(at: usize) -> HostFacts {
    HostFacts {
        name: format!("n{at:05}.cluster"),
        cpus: 64,
        cores: 64,
        locked: u64::MAX,
        has_devices: true,
        machine: HostMachine {
            boot: format!("{at:08x}-85a2-4c1d-9b06-5a3a26a4d6a3"),
            mask: CpuList::new((0..64).collect()),
        },
    }
}
