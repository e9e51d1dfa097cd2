// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cost of a job over ten thousand simulated hosts: depth of the tree, connections, bytes on the heap and
//! in messages.

use super::chance::Fault;
use super::heap::Holding;
use super::hosts::{JobHost, World};
use crate::cli::{JobLimits, JobRequest, Parsed, parse};
use crate::connection::FrameConnection;
use crate::front::startup::{HostReplies, receive_facts, receive_ready};
use crate::front::{NodeMessage, Nodes, Processes};
use crate::job::{JobProgram, LaunchKeys, LaunchTimes};
use crate::link::{NodeEvent, Order};
use crate::over_hosts::{JobParts, TargetHosts, send_parts};
use crate::shepherd::fan_out::FAN_OUT;
use crate::shepherd::protocol::{DownMessage, HeartbeatTiming, RemoteShell, ShepherdConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::time::Duration;

/// Maximum number of heap bytes of the front, without the process table.
const MOST_OF_FRONT: usize = 16 << 20;
/// Bytes of a row of the process table: two addresses and a number, as in the MPIR interface.
const ROW_BYTES: usize = 24;
/// Maximum number of heap bytes of any other process of the launcher, in addition to [`MOST_FOR_EACH_BELOW`] per child.
const MOST_OF_OTHERS: usize = 1 << 20;
const MOST_FOR_EACH_BELOW: usize = 64 << 10;
/// Interval between two iterations of the front's event loop, in milliseconds; the front reads once per iteration.
const TURN: u64 = 1;
/// Interval between two iterations while the front waits for all hosts, in milliseconds. This interval is longer
/// because the front then checks all hosts in each iteration.
const LONG_TURN: u64 = 5;

/// Result of a node, as reported to the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Well,
    Lost,
}

/// A job over simulated hosts, and the number of faults of these hosts.
struct Job {
    hosts: usize,
    mapping: &'static str,
    seed: u64,
    faults: usize,
    /// Number of other nodes that a node communicates with.
    peers: u32,
}

/// Result of a job.
struct Done {
    world: World,
    front: Holding,
    /// Highest number of heap bytes of the front before it had a process table.
    before_table: isize,
    ends: BTreeMap<usize, End>,
    struck: BTreeSet<usize>,
}

/// Range of times at which programs end, in milliseconds after the order to start.
const ENDS: std::ops::Range<u64> = 1000..6000;
/// Range of times at which hosts fail, in milliseconds after the order to start.
const FAULTS: std::ops::Range<u64> = 100..5000;
/// Heartbeat timing, shorter than the default, so that losses are detected sooner.
const PACE: HeartbeatTiming = HeartbeatTiming {
    every: Duration::from_secs(2),
    dead_after: Duration::from_secs(12),
    first_message_timeout: Duration::from_secs(60),
};
/// A pause that is too short to count as the loss of a host.
const SHORT_STOP: Fault = Fault::Frozen(5);
/// Time in milliseconds before which a job must have ended.
const LATEST: u64 = 120_000;

impl Job {
    fn request(&self) -> JobRequest {
        let host = |host: usize| format!("n{host:05}:{RANKS}");
        let list: Vec<String> = (0..self.hosts).map(host).collect();
        let message = [
            "--map-by",
            self.mapping,
            "--host",
            &list.join(","),
            "./program",
        ];
        let message = message.iter().map(Into::into).collect();
        match parse(message, JobLimits { cpus: 2, nodes: 1 }) {
            Ok(Parsed::Run(mut request)) => {
                let slots = vec![u32::try_from(RANKS).unwrap(); self.hosts];
                request.with_slots(&slots).unwrap();
                *request
            }
            other => panic!("{other:?}"),
        }
    }

    /// Slows some hosts down.
    fn slow_down(&self, world: &mut World) {
        for _ in 0..self.hosts / 100 {
            let (node, slowness) = (world.dice.below(self.hosts as u64), world.dice.below(8));
            world.slow_down(usize::try_from(node).unwrap(), 2 + slowness);
        }
    }

    /// Schedules faults of some hosts after the start of the ranks; returns the nodes whose ranks may be lost.
    fn strike(&self, world: &mut World) -> BTreeSet<usize> {
        let mut struck = BTreeSet::new();
        for _ in 0..self.faults {
            let node = usize::try_from(world.dice.below(self.hosts as u64)).unwrap();
            let fault = match world.dice.below(5) {
                0 => Fault::Killed,
                1 => Fault::PowerOff,
                2 => Fault::DaemonKilled,
                3 => Fault::Frozen(60),
                _ => SHORT_STOP,
            };
            if fault != SHORT_STOP {
                struck.insert(node);
            }
            let after = FAULTS.start + world.dice.below(FAULTS.end - FAULTS.start);
            world.strike(node, after, fault);
        }
        struck
    }

    fn run(&self) -> Done {
        let (ours, theirs) = FrameConnection::pair().unwrap();
        let mut world = World::new(self.hosts, self.peers, theirs, self.seed);
        self.slow_down(&mut world);
        let mut front = Holding::default();
        let mut scratch = front.during(|| vec![0; 64 << 10]);
        let (nodes, processes) = self.start(&mut world, &mut front, ours, &mut scratch);
        let before_table = front.most;
        world.ends = world.now + ENDS.start..world.now + ENDS.end;
        let struck = self.strike(&mut world);
        let ends = attend(&mut world, &mut front, nodes, processes, &mut scratch);
        while world.living() > 0 {
            assert!(
                world.now < LATEST,
                "seed {}: {} live",
                self.seed,
                world.living()
            );
            world.run(1000);
        }
        Done {
            world,
            front,
            before_table,
            ends,
            struck,
        }
    }

    /// Starts the job as `over_hosts` does, from the command line to the order by which all ranks start.
    fn start(
        &self,
        world: &mut World,
        front: &mut Holding,
        mut connection: FrameConnection,
        scratch: &mut [u8],
    ) -> (Nodes, Processes) {
        let request = front.during(|| self.request());
        let targets = front.during(|| TargetHosts::of(&request));
        front.during(|| {
            let begin = targets.begin(&request, &shell()).map_err(|stop| stop.lines);
            let begin = ShepherdConfig {
                pace: PACE,
                ..begin.unwrap()
            };
            DownMessage::Begin(Box::new(begin)).put(&mut connection.outbox);
        });
        let mut replies = front.during(|| HostReplies::of(&targets.names));
        while !replies.are_complete() {
            front.during(|| {
                connection.flush().unwrap();
                connection.fill(scratch).unwrap();
                receive_facts(&mut connection.inbox, &mut replies).unwrap();
            });
            world.run(LONG_TURN);
        }
        let keys = LaunchKeys::draw().unwrap();
        let mut nodes = front.during(|| {
            let facts = replies.end().unwrap();
            let node_of = targets.node_of(&request);
            let mut parts = JobParts::of(&request, &targets, &node_of, (keys, false));
            parts.share_out(&facts);
            let mut nodes = Nodes::of(node_of.clone());
            nodes.add_link(connection, 1, true);
            send_parts(&mut nodes, (&request, &targets), &[program()], &parts).unwrap();
            nodes
        });
        let paths = [(program().path, request.size())];
        let processes = front.during(|| Processes::of(targets.names.iter(), paths.into_iter()));
        let mut replies = front.during(|| HostReplies::of(&targets.names));
        while !replies.are_complete() {
            front.during(|| {
                nodes.flush().unwrap();
                nodes.fill(0, scratch).unwrap();
                receive_ready(&mut nodes, &mut replies).unwrap();
            });
            world.run(LONG_TURN);
        }
        front.during(|| {
            replies.end().unwrap();
            nodes.order(&Order::Start(LaunchTimes::default()));
        });
        front.during(|| drop((targets, request)));
        (nodes, processes)
    }
}

/// Handles messages as the front does with `--keep-going`, until all nodes have ended; returns how each ended.
fn attend(
    world: &mut World,
    front: &mut Holding,
    mut nodes: Nodes,
    mut processes: Processes,
    scratch: &mut [u8],
) -> BTreeMap<usize, End> {
    let (mut ends, mut is_over, mut are_complete) = (BTreeMap::new(), false, false);
    while !is_over {
        assert!(
            world.now < LATEST,
            "{} of {} have ended",
            ends.len(),
            nodes.count()
        );
        front.during(|| {
            nodes.flush().unwrap();
            nodes.fill(0, scratch).unwrap();
        });
        while let Some((node, received)) = front.during(|| nodes.take(0)).unwrap() {
            let end = match &received {
                NodeMessage::Event(NodeEvent::Ended(_)) => Some(End::Well),
                NodeMessage::Lost(_) if !nodes.has_ended(node) => Some(End::Lost),
                _ => None,
            };
            if let Some(end) = end {
                assert_eq!(ends.insert(node, end), None, "node {node} ends twice");
            }
            let events = front.during(|| handle(&mut nodes, node, received));
            for event in events {
                match event {
                    NodeEvent::Started(started) => {
                        are_complete = front.during(|| processes.started(node, &started));
                    }
                    NodeEvent::Ended(_) => is_over = true,
                    _ => (),
                }
            }
        }
        world.run(TURN);
    }
    let are_well = ends.values().all(|end| *end == End::Well);
    assert!(are_complete || !are_well, "all ranks have processes");
    front.during(|| nodes.hang_up());
    ends
}

/// Events of the job that result from a message about a node.
fn handle(nodes: &mut Nodes, node: usize, received: NodeMessage) -> Vec<NodeEvent> {
    match received {
        NodeMessage::Event(event) => nodes.combine(node, event),
        NodeMessage::Lost(_) if nodes.has_ended(node) => Vec::new(),
        NodeMessage::Lost(loss) => {
            nodes.send_lost(node, &loss.message);
            nodes.lost_remote(node)
        }
    }
}

fn shell() -> RemoteShell {
    RemoteShell {
        line: Vec::new(),
        takes_arguments: false,
        program: "/opt/rmpi/bin/rmpiexec".to_owned(),
        from: String::new(),
    }
}

/// A program with a usual environment.
fn program() -> JobProgram {
    let variable = |number: u32| CString::new(format!("VARIABLE_{number}={}", "x".repeat(100)));
    JobProgram {
        path: c"/opt/lab/program".into(),
        arguments: vec![c"./program".into()],
        environment: (0..100).map(|number| variable(number).unwrap()).collect(),
        folder: Some(c"/opt/lab".into()),
    }
}

impl Done {
    /// Whether a node may be lost: it failed, or a node through which it is reached failed.
    fn may_be_lost(&self, node: usize) -> bool {
        let path = self.world.path(node);
        path.iter().any(|node| self.struck.contains(node))
    }

    /// Checks that only failed hosts and hosts reached through them are lost, and that every other node has received
    /// all replies that it requested.
    fn check_ends(&self) {
        let nodes = self.world.hosts.len() - 1;
        assert_eq!(self.ends.len(), nodes, "each node has an end");
        for (node, end) in &self.ends {
            assert!(*end == End::Well || self.may_be_lost(*node), "node {node}");
            let replies = &self.world.daemon(*node).answers;
            if *end == End::Well {
                assert_eq!(
                    replies.len(),
                    self.world.peers(*node).count(),
                    "node {node}"
                );
            }
        }
    }

    /// Checks the limits, and prints the counts.
    fn check_costs(&self, ranks: usize) {
        let hosts = &self.world.hosts;
        let most = |of: &dyn Fn(&JobHost) -> usize| hosts.iter().map(of).max().unwrap();
        let held = |holding: &Holding| usize::try_from(holding.most).unwrap();
        let table = ranks * ROW_BYTES;
        let before_table = usize::try_from(self.before_table).unwrap();
        let front = before_table.max(held(&self.front) - table);
        let others = hosts[1..].iter().map(|host| held(&host.holding)).max();
        eprintln!(
            "{} hosts, {} ranks, {} s: {} levels, at most {} connections; bytes held by the front {front} and its table {table}, by its \
             shepherd {}, by another {}, by a daemon for records {}; bytes sent by the front's shepherd {}",
            hosts.len() - 1,
            ranks,
            self.world.now / 1000,
            most(&|host| host.level as usize),
            most(&|host| host.connections),
            held(&hosts[0].holding),
            others.unwrap(),
            most(&|host| held(&host.daemon.holding)),
            hosts[0].sent,
        );
        assert!(front <= MOST_OF_FRONT);
        let full = |level: &u32| FAN_OUT.pow(*level) < hosts.len();
        let levels = (1..).take_while(full).count() + 1;
        assert!(most(&|host| host.level as usize) <= levels);
        for (at, host) in hosts.iter().enumerate() {
            assert!(host.connections <= FAN_OUT + 2, "host {at}");
            let most = MOST_OF_OTHERS + host.children() * MOST_FOR_EACH_BELOW;
            assert!(held(&host.holding) <= most, "host {at}");
            let most = MOST_OF_OTHERS + RANKS * MOST_FOR_EACH_BELOW;
            assert!(held(&host.daemon.holding) <= most, "host {at}");
        }
    }
}

const RANKS: usize = 64;

fn check(job: &Job) {
    let done = job.run();
    done.check_ends();
    done.check_costs(job.hosts * RANKS);
}

#[test]
fn a_job_of_640_000_ranks_has_bounded_costs() {
    check(&Job {
        hosts: 10_000,
        mapping: "slot",
        seed: 1,
        faults: 10,
        peers: 2,
    });
}

#[test]
fn only_hosts_with_a_fault_are_lost() {
    for seed in 1..=4 {
        check(&Job {
            hosts: 300,
            mapping: "node",
            seed,
            faults: 5,
            peers: 9,
        });
    }
}

/// This test takes some minutes in a debug build.
#[test]
#[ignore = "long: cargo xtask test soak"]
fn jobs_of_640_000_ranks_with_many_peers_have_bounded_costs() {
    for (seed, mapping) in [(1, "slot"), (2, "node"), (3, "slot")] {
        check(&Job {
            hosts: 10_000,
            mapping,
            seed,
            faults: 20,
            peers: 14,
        });
    }
}
