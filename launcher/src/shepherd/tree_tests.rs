// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the tree with a thousand simulated hosts: shepherds run in simulated time, streams have latency, and hosts
//! crash, lose power or freeze. A failed test reports its seed.

use super::*;
use crate::hosts::HostMachine;
use crate::shepherd::protocol::{JobStep, StepKey, greeting};
use crate::tests::chance::{Dice, Fault};
use std::collections::{BTreeSet, BinaryHeap};

const PACE: HeartbeatTiming = HeartbeatTiming {
    every: Duration::from_secs(1),
    dead_after: Duration::from_secs(20),
    first_message_timeout: Duration::from_secs(60),
};

/// A random time of at most `end` milliseconds.
fn millis(dice: &mut Dice, end: u64) -> Duration {
    Duration::from_millis(dice.below(end) + 1)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimEvent {
    Below(usize, Vec<u8>),
    Above(Vec<u8>),
    BelowClosed(usize, Option<i32>),
    AboveClosed,
    /// The shepherd of this node connects.
    Comes(u32),
    Tick,
    DaemonEnds,
    Fault(Fault),
}

/// Time, sequence number, host, and event of a scheduled event.
type ScheduledEvent = std::cmp::Reverse<(Duration, u64, usize, SimEvent)>;

enum HostState {
    /// The shepherd has not received its first message.
    Configuring(Inbox),
    Running(Box<ShepherdTree>),
    Over,
}

struct Host {
    state: HostState,
    /// Its parent, and its number among the parent's children.
    parent: Option<(usize, usize)>,
    /// By number of the child: the child's host.
    children: BTreeMap<usize, usize>,
    /// Whether the host has lost power.
    is_off: bool,
    frozen_until: Duration,
    ticks: bool,
}

/// The simulated hosts. Host 0 is the front's, and host `n + 1` is that of node `n`.
struct World {
    hosts: Vec<Host>,
    now: Duration,
    count: u64,
    queue: BinaryHeap<ScheduledEvent>,
    dice: Dice,
    /// By stream: earliest arrival of the next piece, since a stream keeps its order.
    arrivals: BTreeMap<(usize, usize), Duration>,
    unreachable: BTreeSet<usize>,
    /// Of 1000 pieces that streams carry, the average number that are corrupted.
    altered: u64,
    /// Range of times at which daemons end.
    ends: std::ops::Range<Duration>,
    /// By host: bytes that its shepherd has sent to its children.
    sent: BTreeMap<usize, usize>,
    /// Messages received by the front, by node: whether the node was reached, and how it ended.
    received: BTreeMap<u32, (bool, Option<Result<(), String>>)>,
    front: Inbox,
}

/// First message to the front's shepherd.
fn begin(nodes: u32) -> ShepherdConfig {
    ShepherdConfig {
        own: None,
        below: (0..nodes)
            .map(|node| RemoteHost::named(node, format!("n{node}")))
            .collect(),
        step: None,
        in_step: false,
        shell: RemoteShell {
            takes_arguments: false,
            line: Vec::new(),
            program: "rmpiexec".into(),
            from: String::new(),
        },
        pace: PACE,
    }
}

impl World {
    fn new(nodes: u32, seed: u64) -> Self {
        let host = |_| Host {
            state: HostState::Over,
            parent: None,
            children: BTreeMap::new(),
            is_off: false,
            frozen_until: Duration::ZERO,
            ticks: false,
        };
        let begin = begin(nodes);
        let mut world = Self {
            hosts: (0..=nodes).map(host).collect(),
            now: Duration::ZERO,
            count: 0,
            queue: BinaryHeap::new(),
            dice: Dice::of(seed),
            arrivals: BTreeMap::new(),
            unreachable: BTreeSet::new(),
            altered: 0,
            ends: Duration::ZERO..seconds(120),
            sent: BTreeMap::new(),
            received: (0..nodes).map(|node| (node, (false, None))).collect(),
            front: Inbox::default(),
        };
        world.begin_at_front(begin);
        world
    }

    fn begin_at_front(&mut self, begin: ShepherdConfig) {
        let tree = ShepherdTree::new(begin, Inbox::default(), false, self.now);
        self.hosts[0].state = HostState::Running(Box::new(tree));
        self.at(0, Duration::ZERO, SimEvent::Tick);
    }

    /// All shepherds are started by a step: most connect in time, some connect late or never.
    fn with_step(nodes: u32, seed: u64) -> Self {
        let mut world = Self::new(nodes, seed);
        let step = JobStep {
            key: StepKey(1),
            ports: None,
            variable: None,
            command: vec!["srun".into()],
        };
        let begin = ShepherdConfig {
            step: Some(step),
            in_step: true,
            ..begin(nodes)
        };
        world.await_those_below(0, &begin);
        world.begin_at_front(begin);
        world
    }

    fn await_those_below(&mut self, host: usize, begin: &ShepherdConfig) {
        if !begin.in_step {
            return;
        }
        for part in fan_out::parts(&begin.below) {
            let after = match self.dice.below(10) {
                0 => continue,
                1 => 40_000,
                _ => 15_000,
            };
            let after = millis(&mut self.dice, after);
            self.at(host, after, SimEvent::Comes(part[0].node));
        }
    }

    fn at(&mut self, host: usize, after: Duration, event: SimEvent) {
        self.count += 1;
        let time = self.now + after;
        self.queue
            .push(std::cmp::Reverse((time, self.count, host, event)));
    }

    /// Schedules the arrival of an event at `to`; the events of a stream arrive in order.
    fn send(&mut self, from: usize, to: usize, event: SimEvent) {
        let after = millis(&mut self.dice, 30);
        let soonest = self.arrivals.entry((from, to)).or_default();
        *soonest = (*soonest).max(self.now + after);
        let after = *soonest - self.now;
        let event = match event {
            SimEvent::Below(child, bytes) => SimEvent::Below(child, self.carried(bytes)),
            SimEvent::Above(bytes) => SimEvent::Above(self.carried(bytes)),
            event => event,
        };
        self.at(to, after, event);
    }

    /// The bytes after transport over the stream, possibly corrupted.
    fn carried(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.is_empty() || self.altered == 0 || self.dice.below(1000) >= self.altered {
            return bytes;
        }
        let mut place = || usize::try_from(self.dice.below(bytes.len() as u64)).unwrap();
        let (one, other) = (place(), place());
        match self.dice.below(5) {
            0 => bytes[one] ^= 1 << (other % 8),
            1 => bytes[one] = u8::try_from(other % 256).unwrap(),
            2 => _ = bytes.remove(one),
            3 => bytes.truncate(one),
            _ => bytes.extend_from_within(one..),
        }
        bytes
    }

    fn run(&mut self, until: Duration) {
        while let Some(std::cmp::Reverse((time, count, host, event))) = self.queue.pop() {
            if time > until {
                self.queue
                    .push(std::cmp::Reverse((time, count, host, event)));
                break;
            }
            self.now = time;
            if self.hosts[host].is_off {
                continue;
            }
            let frozen = self.hosts[host].frozen_until;
            if frozen > time {
                // A frozen process reads the data later; its kernel receives it.
                self.queue
                    .push(std::cmp::Reverse((frozen, count, host, event)));
                continue;
            }
            self.handle_event(host, event);
            self.carry_out_requests(host);
        }
        self.now = until;
    }

    fn handle_event(&mut self, host: usize, event: SimEvent) {
        let now = self.now;
        let event = match event {
            SimEvent::Fault(fault) => return self.fault(host, fault),
            event => event,
        };
        if let HostState::Configuring(inbox) = &mut self.hosts[host].state {
            match event {
                SimEvent::Above(bytes) => {
                    inbox.add(&bytes);
                    self.begin(host);
                }
                SimEvent::AboveClosed => self.hosts[host].state = HostState::Over,
                _ => (),
            }
            return;
        }
        let HostState::Running(tree) = &mut self.hosts[host].state else {
            return;
        };
        match event {
            SimEvent::Below(child, bytes) => tree.receive_from_child(child, &bytes),
            SimEvent::Above(bytes) => tree.receive_from_above(&bytes),
            SimEvent::AboveClosed => tree.parent_closed(),
            SimEvent::Comes(node) => {
                if let Some(child) = tree.connect(node, now) {
                    self.start(host, child, node as usize + 1);
                }
            }
            SimEvent::BelowClosed(child, code) => {
                let closed = ShellExit {
                    code,
                    stderr: "ssh: no route to host".into(),
                    ..ShellExit::default()
                };
                tree.child_closed(child, &closed, now);
            }
            SimEvent::Tick => {
                self.hosts[host].ticks = false;
                let HostState::Running(tree) = &mut self.hosts[host].state else {
                    return;
                };
                tree.on_time(now);
            }
            SimEvent::DaemonEnds => {
                tree.receive_from_daemon(b"gone");
                tree.daemon_ended(None);
            }
            SimEvent::Fault(_) => (),
        }
    }

    fn begin(&mut self, host: usize) {
        let HostState::Configuring(inbox) = &mut self.hosts[host].state else {
            return;
        };
        let message = match DownMessage::take(inbox) {
            Ok(message) => message,
            Err(Garbled) => return self.end(host, Some(1)),
        };
        if let Some(DownMessage::Begin(begin)) = message {
            let inbox = std::mem::take(inbox);
            self.await_those_below(host, &begin);
            let mut tree = ShepherdTree::new(*begin, inbox, true, self.now);
            tree.daemon_started(HostFacts {
                name: format!("h{host}"),
                cpus: 2,
                cores: 2,
                locked: 1,
                has_devices: false,
                machine: HostMachine::default(),
            });
            self.hosts[host].state = HostState::Running(Box::new(tree));
            let span = self.ends.end.saturating_sub(self.ends.start).as_millis();
            let end = self.ends.start + millis(&mut self.dice, u64::try_from(span).unwrap());
            self.at(host, end, SimEvent::DaemonEnds);
        }
    }

    fn fault(&mut self, host: usize, fault: Fault) {
        match (fault, &mut self.hosts[host].state) {
            (_, HostState::Over) => (),
            (Fault::Killed, _) => self.end(host, None),
            (Fault::PowerOff, _) => self.hosts[host].is_off = true,
            (Fault::Frozen(seconds), _) => {
                self.hosts[host].frozen_until = self.now + Duration::from_secs(seconds);
            }
            (Fault::DaemonKilled, HostState::Running(tree)) => tree.daemon_ended(Some(NodeLoss {
                message: "daemon".into(),
                code: 137,
            })),
            (Fault::DaemonKilled, HostState::Configuring(_)) => (),
        }
    }

    /// A host's shepherd ends.
    fn end(&mut self, host: usize, code: Option<i32>) {
        self.hosts[host].state = HostState::Over;
        if let Some((parent, child)) = self.hosts[host].parent {
            self.send(host, parent, SimEvent::BelowClosed(child, code));
        }
        let children: Vec<usize> = self.hosts[host].children.values().copied().collect();
        for child in children {
            self.send(host, child, SimEvent::AboveClosed);
        }
    }

    /// Does what a host's shepherd has requested: starts children, and carries its bytes.
    fn carry_out_requests(&mut self, host: usize) {
        let now = self.now;
        while let HostState::Running(tree) = &mut self.hosts[host].state {
            let Some((child, target)) = tree.next_start(now) else {
                break;
            };
            self.start(host, child, target.node as usize + 1);
        }
        let children = self.hosts[host].children.clone();
        let HostState::Running(tree) = &mut self.hosts[host].state else {
            return;
        };
        let above = std::mem::take(tree.above());
        let mut sent = Vec::new();
        for (child, at) in children {
            let bytes = std::mem::take(tree.below(child));
            if !bytes.is_empty() {
                sent.push((at, bytes));
            }
        }
        let dropped: Vec<usize> = std::iter::from_fn(|| tree.next_dropped()).collect();
        let (over, orphan, next) = (tree.is_over(), tree.is_orphan(), tree.next_time());
        for (at, bytes) in sent {
            *self.sent.entry(host).or_default() += bytes.len();
            self.send(host, at, SimEvent::Above(bytes));
        }
        for child in dropped {
            let at = self.hosts[host].children[&child];
            self.send(host, at, SimEvent::AboveClosed);
        }
        match self.hosts[host].parent {
            Some((parent, child)) if !above.is_empty() => {
                self.send(host, parent, SimEvent::Below(child, above));
            }
            Some(_) => (),
            None => self.receive_as_front(&above),
        }
        if over || orphan {
            return self.end(host, Some(i32::from(orphan)));
        }
        if !std::mem::replace(&mut self.hosts[host].ticks, true) {
            let after = next.saturating_sub(now) + Duration::from_millis(1);
            self.at(host, after, SimEvent::Tick);
        }
    }

    fn start(&mut self, parent: usize, child: usize, at: usize) {
        let after = millis(&mut self.dice, 2000);
        if self.unreachable.contains(&at) {
            return self.at(parent, after, SimEvent::BelowClosed(child, Some(255)));
        }
        self.hosts[parent].children.insert(child, at);
        self.hosts[at].parent = Some((parent, child));
        self.hosts[at].state = HostState::Configuring(Inbox::default());
        self.arrivals.insert((at, parent), self.now + after);
        let noise = [b"Last login\n".as_slice(), &greeting()].concat();
        self.send(at, parent, SimEvent::Below(child, noise));
    }

    fn receive_as_front(&mut self, bytes: &[u8]) {
        self.front.add(bytes);
        while let Some(message) = UpMessage::take(&mut self.front).unwrap() {
            match message {
                UpMessage::Here(node, _) => {
                    let received = self.received.get_mut(&node).unwrap();
                    assert_eq!(*received, (false, None), "node {node}");
                    received.0 = true;
                }
                UpMessage::Event(node, _) => {
                    assert_eq!(self.received[&node], (true, None), "node {node}");
                }
                UpMessage::Ended(node) => self.end_of(node, Ok(())),
                UpMessage::Lost(node, loss) => self.end_of(node, Err(loss.message)),
                UpMessage::Beat | UpMessage::Line => (),
            }
        }
    }

    fn end_of(&mut self, node: u32, how: Result<(), String>) {
        let received = self.received.get_mut(&node).unwrap();
        assert_eq!(received.1, None, "node {node} ends twice");
        received.1 = Some(how);
    }

    /// The hosts between a node and the front, including the node's own host.
    fn path(&self, node: u32) -> Vec<usize> {
        let mut path = vec![node as usize + 1];
        while let Some((parent, _)) = self.hosts[path[path.len() - 1]].parent {
            path.push(parent);
        }
        path
    }

    fn living(&self) -> Vec<usize> {
        let is_running =
            |(_, host): &(usize, &Host)| !host.is_off && !matches!(host.state, HostState::Over);
        (0..)
            .zip(&self.hosts)
            .filter(is_running)
            .map(|(at, _)| at)
            .collect()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_thousand_hosts_connect_and_end() {
    let mut world = World::new(1000, 1);
    world.run(seconds(130));
    assert!(
        world
            .received
            .values()
            .all(|received| *received == (true, Some(Ok(()))))
    );
    assert_eq!(world.living(), Vec::<usize>::new());
}

#[test]
fn hosts_of_a_step_connect_or_are_started_by_shell() {
    for (seed, nodes) in [(1, 1000), (2, 40), (3, 3)] {
        let mut world = World::with_step(nodes, seed);
        world.run(seconds(200));
        let is_well =
            |received: &(bool, Option<Result<(), String>>)| *received == (true, Some(Ok(())));
        assert!(
            world.received.values().all(is_well),
            "seed {seed}: {:?}",
            world.received
        );
        assert_eq!(world.living(), Vec::<usize>::new());
    }
}

#[test]
fn connections_from_unexpected_nodes_are_refused() {
    let begin = ShepherdConfig {
        in_step: true,
        ..begin(40)
    };
    let mut tree = ShepherdTree::new(begin, Inbox::default(), false, Duration::ZERO);
    let soon = seconds(1);
    assert_eq!(tree.next_start(seconds(59)), None);
    let none = (tree.connect(99, soon), tree.connect(4, soon));
    assert_eq!(none, (None, None), "node 4 comes to node 3");
    assert_eq!(tree.connect(0, soon), Some(0));
    assert_eq!(tree.connect(0, soon), None, "it has come");
    tree.on_time(soon);
    tree.will_not_connect(2);
    let (number, target) = tree.next_start(soon).unwrap();
    assert_eq!((target.node, tree.connect(2, soon)), (2, None));
    assert!(number > 0 && tree.next_start(soon).is_none());
    // A child that closes its connection before its greeting is started by the shell.
    tree.child_closed(0, &ShellExit::default(), soon);
    assert_eq!(tree.next_start(soon).map(|(number, _)| number), Some(0));
    // Children are started by the shell 20 s after the first child has connected.
    assert!(tree.next_start(seconds(20)).is_none());
    assert!(tree.next_start(seconds(21)).is_some());
    tree.expect_no_more();
    assert!(!tree.is_any_expected());
    assert!(tree.next_start(soon).is_some());
}

#[test]
fn hosts_that_will_not_connect_are_reported_to_their_parent() {
    let begin = ShepherdConfig {
        in_step: true,
        ..begin(40)
    };
    let mut tree = ShepherdTree::new(begin, Inbox::default(), false, Duration::ZERO);
    let child = tree.connect(3, seconds(1)).unwrap();
    tree.receive_from_child(child, &greeting());
    let mut inbox = Inbox::default();
    inbox.add(&std::mem::take(tree.below(child)));
    let Ok(Some(DownMessage::Begin(begin))) = DownMessage::take(&mut inbox) else {
        panic!("the configuration is sent first");
    };
    assert!(begin.in_step && begin.step.is_none());
    assert_eq!(begin.below[0].name, "n4");
    tree.will_not_connect(4);
    inbox.add(&std::mem::take(tree.below(child)));
    assert_eq!(
        DownMessage::take(&mut inbox),
        Ok(Some(DownMessage::NotComing(4)))
    );
    let mut below = ShepherdTree::new(*begin, Inbox::default(), true, seconds(2));
    let mut bytes = Vec::new();
    DownMessage::NotComing(4).put(&mut bytes);
    below.receive_from_above(&bytes);
    assert_eq!(below.next_start(seconds(2)).unwrap().1.node, 4);
}

#[test]
fn each_failed_host_is_reported_once_and_no_other_is_lost() {
    for (seed, nodes) in (1..=24).zip(std::iter::once(1000).chain((24..).step_by(6))) {
        let mut world = World::new(nodes, seed);
        let mut failed = BTreeSet::new();
        for _ in 0..=world.dice.below(8) {
            let host = 1 + usize::try_from(world.dice.below(u64::from(nodes))).unwrap();
            failed.insert(host);
            let fault = match world.dice.below(5) {
                0 => Fault::Killed,
                1 => Fault::PowerOff,
                2 => Fault::Frozen(60),
                3 => Fault::DaemonKilled,
                _ => {
                    world.unreachable.insert(host);
                    continue;
                }
            };
            let when = millis(&mut world.dice, 60_000);
            world.at(host, when, SimEvent::Fault(fault));
        }
        world.run(seconds(300));
        assert_eq!(world.living(), Vec::<usize>::new(), "seed {seed}");
        for (node, (connected, end)) in &world.received {
            let end = end
                .as_ref()
                .unwrap_or_else(|| panic!("seed {seed}: node {node}, {connected}"));
            let may_be_lost = world.path(*node).iter().any(|host| failed.contains(host))
                || (0..nodes).any(|other| {
                    failed.contains(&(other as usize + 1))
                        && end
                            .as_ref()
                            .is_err_and(|message| message.contains(&format!("through n{other}:")))
                });
            assert!(
                end.is_ok() || may_be_lost,
                "seed {seed}: node {node}: {end:?}"
            );
        }
    }
}

#[test]
fn short_freezes_lose_no_host() {
    let mut world = World::new(100, 3);
    for host in [0, 1, 5, 40] {
        for round in 0..6 {
            world.at(
                host,
                seconds(5 + round * 20),
                SimEvent::Fault(Fault::Frozen(15)),
            );
        }
    }
    world.run(seconds(300));
    assert!(
        world
            .received
            .values()
            .all(|received| *received == (true, Some(Ok(())))),
        "{:?}",
        world.received
    );
}

#[test]
fn corrupted_streams_end_each_node_once() {
    for seed in 1..=24 {
        let mut world = World::new(60 + u32::try_from(seed).unwrap(), seed);
        world.altered = [1, 10, 100][usize::try_from(seed % 3).unwrap()];
        world.run(seconds(400));
        assert_eq!(world.living(), Vec::<usize>::new(), "seed {seed}");
        for (node, received) in &world.received {
            assert!(
                received.1.is_some(),
                "seed {seed}: node {node}: {received:?}"
            );
        }
    }
}

#[test]
fn all_shepherds_end_when_the_front_is_lost() {
    for seed in 1..=10 {
        let mut world = World::new(150, seed);
        let when = millis(&mut world.dice, 20_000);
        world.at(0, when, SimEvent::Fault(Fault::Killed));
        world.run(seconds(60));
        assert_eq!(world.living(), Vec::<usize>::new(), "seed {seed}");
    }
}

#[test]
fn a_busy_host_is_retried() {
    let mut world = World::new(1, 1);
    let HostState::Running(tree) = &mut world.hosts[0].state else {
        panic!();
    };
    let busy = ShellExit {
        stderr: "kex_exchange_identification: read: Connection reset by peer".into(),
        code: Some(255),
        ..ShellExit::default()
    };
    let mut now = Duration::ZERO;
    for _ in 1..MOST_TRIES {
        assert_eq!(tree.next_start(now).map(|(child, _)| child), Some(0));
        assert_eq!(tree.next_start(now), None);
        tree.child_closed(0, &busy, now);
        now = tree.next_time().max(now) + seconds(10);
    }
    assert!(tree.next_start(now).is_some() && tree.above().is_empty());
    tree.child_closed(0, &busy, now);
    assert!(!tree.above().is_empty() && tree.is_over());
}

#[test]
fn an_invalid_message_loses_only_its_child() {
    let mut world = World::new(2, 1);
    let HostState::Running(tree) = &mut world.hosts[0].state else {
        panic!();
    };
    for _ in 0..2 {
        assert!(tree.next_start(Duration::ZERO).is_some());
    }
    tree.receive_from_child(0, &greeting());
    tree.receive_from_child(1, &greeting());
    // Child 0 reports a node of another child.
    let mut message = Vec::new();
    UpMessage::Ended(1).put(&mut message);
    tree.receive_from_child(0, &message);
    assert!(tree.above().is_empty());
    tree.receive_from_child(0, &[5, 0, 0, 0, 77, 1, 2, 3, 4]);
    assert_eq!(tree.next_dropped(), Some(0));
    let mut front = Inbox::default();
    front.add(&std::mem::take(tree.above()));
    let Ok(Some(UpMessage::Lost(0, _))) = UpMessage::take(&mut front) else {
        panic!();
    };
    assert_eq!(UpMessage::take(&mut front), Ok(None));
}

#[test]
fn a_broadcast_is_sent_once_per_child_and_reaches_all() {
    let mut world = World::new(1000, 5);
    world.ends = seconds(60)..seconds(120);
    world.run(seconds(30));
    assert!(
        world.received.values().all(|received| received.0),
        "all have come"
    );
    let (mut message, large) = (Vec::new(), vec![7; 1 << 20]);
    DownMessage::put_order_all(&large, &mut message);
    DownMessage::put_order(3, b"last", &mut message);
    world.sent = BTreeMap::new();
    world.at(0, seconds(1), SimEvent::Above(message));
    world.run(seconds(50));
    let most = world.sent.values().max().copied();
    // The margin is for frame headers and heartbeats.
    assert!(
        most.unwrap() < fan_out::FAN_OUT * (large.len() + 2000),
        "{most:?}"
    );
    for (node, host) in (0..).zip(&mut world.hosts[1..]) {
        let HostState::Running(tree) = &mut host.state else {
            panic!("node {node}");
        };
        let orders = tree.orders().unwrap();
        let (first, rest) = orders.split_at(large.len());
        assert!(first == large && rest == if node == 3 { &b"last"[..] } else { b"" });
    }
}
