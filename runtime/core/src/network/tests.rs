// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the selection of a network, and of jobs of a few ranks on a simulated network. The tests take the part of
//! the daemon.

use std::collections::VecDeque;

use engine::RequestId;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use transport::{FakeConfig, FakeNet, ForeignPeer, StreamKey};
use wireup::{ToDaemon, ToRank};

use super::*;
use crate::Universe;
use crate::boot::DaemonLink;
use crate::comm::{Comm, WORLD_CONTEXT};
use crate::operation::{MessageStatus, Mode, ReceiveSource, SendTarget};
use crate::roster::ProcessName;
use crate::testing::exchange_messages;
use crate::user_buf::UserMemory;

fn boot(size: u32, local_size: u32) -> Boot {
    let line = format!(
        "1 job=9f rank=0 size={size} local_rank=0 local_size={local_size} app=0 segment=-1 control=-1 address=a daemon=1"
    );
    Boot::parse(&line).unwrap()
}

fn values(providers: &str) -> VariableValues {
    let pair = ("RMPI_PROVIDERS".to_owned(), providers.to_owned());
    let (values, warnings) = VariableValues::from_environment(std::iter::once(pair));
    assert!(warnings.is_empty(), "{warnings:?}");
    values
}

fn opened(boot: Boot, providers: &str) -> String {
    let launch = LaunchState {
        boot: Some(boot),
        link: None,
        segment: None,
    };
    open(&launch, &values(providers)).unwrap_err().to_string()
}

#[test]
fn lost_rank_error_has_the_group_rank_and_first_reason() {
    let mut network = JobNetwork::new(0);
    assert!(!network.needs_turns());
    assert!(network.add_lost(Peer(3), "it was killed"));
    assert!(!network.add_lost(Peer(3), "it does not answer"));
    assert!(network.needs_turns());
    assert_eq!(network.why_lost(Peer(3)), Some("it was killed"));
    assert_eq!(network.why_lost(Peer(2)), None);
    let lost = network.lost_among(&Group::of(vec![Peer(2), Peer(3)]));
    let Some(Error::Lost { rank, why }) = lost else {
        panic!("{lost:?}");
    };
    assert_eq!((rank, why.as_str()), (1, "it was killed"));
    assert!(network.lost_among(&Group::of(vec![Peer(2)])).is_none());
}

#[test]
fn a_network_is_needed_if_shared_memory_does_not_reach_all_ranks() {
    for (size, local_size, providers, needed) in [
        (1, 1, "verbs", false),
        (4, 4, "self,shm,verbs", false),
        (4, 4, "verbs", true),
        (4, 4, "self", false),
        (4, 2, "shm,verbs", true),
        (4, 2, "shm", false),
        (4, 2, "shm,tcp", true),
    ] {
        let found = is_needed(&boot(size, local_size), &values(providers));
        assert_eq!(found, needed, "{size} {local_size} {providers}");
    }
}

#[test]
fn unreachable_rank_error_names_rank_setting_and_remedy() {
    assert_eq!(
        opened(boot(2, 2), "self"),
        "rank 1 of this node cannot be reached: RMPI_PROVIDERS is \"self\"; add shm"
    );
}

#[test]
fn opening_a_network_without_the_launchers_key_is_an_error() {
    let error = opened(boot(2, 2), "verbs");
    assert!(
        error.starts_with("the launcher has given no key for the network"),
        "{error}"
    );
}

/// The ranks of a job, all in one process, and their daemon.
struct Job {
    net: FakeNet,
    ranks: Vec<Universe>,
    /// The daemon's ends of the connections.
    lines: Vec<OwnedFd>,
    records: Vec<Option<Record>>,
    /// Requests for records that are not answered yet: the requesting rank, and the rank whose record it requests.
    requests: VecDeque<(usize, u32)>,
    /// All requests so far, also the answered ones.
    requested: Vec<(usize, u32)>,
    /// Ranks whose record the daemon withholds for now.
    late: Vec<u32>,
    /// Number of ranks that have reported quiescence.
    quiet: usize,
}

impl Job {
    fn new(ranks: u32) -> Self {
        let net = FakeNet::new(FakeConfig::calm(1));
        let pairs = (0..ranks).map(|rank| {
            let fabric = Fabric::faked(&net, transport::Peer(rank), ranks, NetLimits::default());
            let (values, _) = VariableValues::from_environment(std::iter::empty());
            let mut universe = Universe::new(fabric, Peer(rank), ranks, &values);
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let line = rustix::net::socketpair(family, kind, SocketFlags::NONBLOCK, None);
            let (ours, theirs) = line.unwrap();
            universe.network.set_link(Some(DaemonLink::new(ours, rank)));
            universe.network.join(&mut universe.messages.pump, true);
            universe.exchange_with_daemon();
            (universe, theirs)
        });
        let (universes, lines) = pairs.unzip();
        Self {
            net,
            ranks: universes,
            lines,
            records: vec![None; ranks as usize],
            requests: VecDeque::new(),
            requested: Vec::new(),
            late: Vec::new(),
            quiet: 0,
        }
    }

    /// One turn of each rank and of the daemon.
    fn turn(&mut self) {
        for universe in &mut self.ranks {
            universe.progress();
        }
        for rank in 0..self.lines.len() {
            while let Some(message) = received(&self.lines[rank]) {
                self.take_in(rank, message);
            }
        }
        for _ in 0..self.requests.len() {
            self.answer_next();
        }
        let _ = self.net.advance() || self.net.advance_until(self.net.now_ns() + 1_000_000);
    }

    fn take_in(&mut self, rank: usize, message: ToDaemon) {
        match message {
            ToDaemon::Publish { record, .. } => self.records[rank] = Some(record),
            ToDaemon::LookUp { of, .. } => {
                self.requests.push_back((rank, of));
                self.requested.push((rank, of));
            }
            ToDaemon::Quiet { .. } => {
                self.quiet += 1;
                if self.quiet == self.ranks.len() {
                    (0..self.quiet).for_each(|rank| self.answer(rank, &ToRank::AllQuiet));
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn answer_next(&mut self) {
        let Some((rank, of)) = self.requests.pop_front() else {
            return;
        };
        match &self.records[of as usize] {
            Some(record) if !self.late.contains(&of) => {
                let record = record.clone();
                self.answer(rank, &ToRank::Record { rank: of, record });
            }
            _ => self.requests.push_back((rank, of)),
        }
    }

    fn answer(&self, rank: usize, message: &ToRank) {
        rustix::net::send(&self.lines[rank], &message.encode(), SendFlags::empty()).unwrap();
    }

    fn send(&mut self, from: u32, to: u32, bytes: &mut [u8]) -> Option<RequestId> {
        let target = SendTarget {
            context: WORLD_CONTEXT,
            peer: Peer(to),
            tag: 5,
        };
        let universe = &mut self.ranks[from as usize];
        let request = universe
            .sending()
            .send(target, UserMemory::of(bytes), Mode::Standard);
        request.unwrap()
    }

    fn receive(&mut self, at: u32, from: Option<u32>, bytes: &mut [u8]) -> RequestId {
        let source = ReceiveSource {
            context: WORLD_CONTEXT,
            peer: from.map(Peer),
            tag: Some(5),
        };
        let universe = &mut self.ranks[at as usize];
        universe
            .messages
            .receive(source, UserMemory::of(bytes))
            .unwrap()
    }

    /// Takes turns until a request is complete, and collects it.
    fn wait(&mut self, at: u32, request: RequestId) -> MessageStatus {
        for _ in 0..MAX_TURNS {
            if self.ranks[at as usize].messages.is_complete(request) {
                return self.ranks[at as usize].collect(request);
            }
            self.turn();
        }
        panic!("request {request:?} of rank {at} does not end");
    }

    /// The error message of a request that fails.
    fn error(&mut self, at: u32, request: RequestId) -> String {
        let status = self.wait(at, request);
        status.error.expect("it cannot have worked").to_string()
    }
}

fn received(line: &OwnedFd) -> Option<ToDaemon> {
    let mut bytes = [0; wireup::MAX_DATAGRAM_BYTES];
    let (length, _) = rustix::net::recv(line, &mut bytes[..], RecvFlags::empty()).ok()?;
    ToDaemon::decode(&bytes[..length]).ok()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..251_u8).cycle().take(bytes).collect()
}

/// More turns than any of these jobs needs.
const MAX_TURNS: u32 = 1_000_000;

#[test]
fn ranks_look_up_addresses_only_when_they_communicate() {
    let mut job = Job::new(3);
    for _ in 0..100 {
        job.turn();
    }
    assert!(job.records.iter().all(Option::is_some));
    assert_eq!(job.requested, [], "no rank has communicated");
    for bytes in [8, 5000, 300_000] {
        let (mut out, mut into) = (pattern(bytes), vec![0; bytes]);
        let sent = job.send(0, 1, &mut out);
        let received = job.receive(1, Some(0), &mut into);
        let status = job.wait(1, received);
        assert!(status.error.is_none() && status.bytes == bytes as u64);
        if let Some(sent) = sent {
            assert!(job.wait(0, sent).error.is_none());
        }
        assert_eq!(into, out, "{bytes} bytes");
    }
    job.requested.sort_unstable();
    job.requested.dedup();
    assert!(job.requested.iter().all(|(rank, of)| *rank < 2 && *of < 2));
    for rank in 0..3 {
        while !job.ranks[rank].is_drained() {
            job.turn();
        }
        assert!(!job.ranks[rank].network.may_leave());
        job.ranks[rank].network.report_quiescence();
    }
    while !job.ranks.iter().all(|rank| rank.network.may_leave()) {
        job.turn();
    }
    assert!(
        job.ranks
            .iter()
            .all(|rank| rank.network.directory.is_idle())
    );
}

#[test]
fn messages_to_a_late_rank_wait_without_blocking_others() {
    let mut job = Job::new(3);
    job.late.push(1);
    let (mut late, mut other) = (pattern(300_000), pattern(300_000));
    let (mut late_in, mut other_in) = (vec![0; 300_000], vec![0; 300_000]);
    let to_late = job.send(0, 1, &mut late).unwrap();
    let at_late = job.receive(1, Some(0), &mut late_in);
    let to_other = job.send(0, 2, &mut other).unwrap();
    let at_other = job.receive(2, Some(0), &mut other_in);
    assert!(job.wait(2, at_other).error.is_none());
    assert!(job.wait(0, to_other).error.is_none());
    assert!(!job.ranks[0].messages.is_complete(to_late));
    job.late.clear();
    assert!(job.wait(1, at_late).error.is_none());
    assert!(job.wait(0, to_late).error.is_none());
    assert_eq!(late_in, late);
}

#[test]
fn requests_to_a_rank_without_an_address_fail_with_the_reason() {
    let mut job = Job::new(3);
    job.late.push(1);
    let (mut out, mut into) = (pattern(300_000), vec![0; 8]);
    let send = job.send(0, 1, &mut out).unwrap();
    let named = job.receive(0, Some(1), &mut into);
    let any = job.receive(0, None, &mut into);
    let other = job.receive(0, Some(2), &mut into);
    for _ in 0..100 {
        job.turn();
    }
    assert!(!job.ranks[0].messages.is_complete(send));
    let why = "it has ended".to_owned();
    job.answer(0, &ToRank::NoRecord { rank: 1, why });
    for request in [send, named, any] {
        assert_eq!(
            job.error(0, request),
            "rank 1 does not answer: it has ended"
        );
    }
    assert!(!job.ranks[0].messages.is_complete(other));
    let later = job.send(0, 1, &mut out).unwrap();
    assert_eq!(job.error(0, later), "rank 1 does not answer: it has ended");
}

#[test]
fn requests_to_a_rank_whose_port_vanished_fail_with_the_reason() {
    let mut job = Job::new(2);
    let (mut out, mut into) = (pattern(300_000), vec![0; 300_000]);
    let send = job.send(0, 1, &mut out).unwrap();
    let received = job.receive(1, Some(0), &mut into);
    assert!(job.wait(1, received).error.is_none());
    assert!(job.wait(0, send).error.is_none());
    job.net.vanish(1);
    // A vanished process runs no destructors, so it must not be dropped.
    std::mem::forget(job.ranks.pop());
    let send = job.send(0, 1, &mut out).unwrap();
    let error = job.error(0, send);
    assert!(error.starts_with("rank 1 does not answer: "), "{error}");
    assert!(error.len() > "rank 1 does not answer: ".len(), "{error}");
}

#[test]
fn drain_does_not_wait_for_a_lost_rank() {
    let mut job = Job::new(3);
    let (mut out, mut into) = (pattern(8), vec![0; 8]);
    let _ = job.send(0, 1, &mut out);
    let received = job.receive(1, Some(0), &mut into);
    assert!(job.wait(1, received).error.is_none());
    while !job.ranks[0].is_drained() {
        job.turn();
    }
    // The other ranks continue, and the last messages to the vanished rank are lost.
    job.net.vanish(1);
    std::mem::forget(job.ranks.remove(1));
    let line = job.lines.remove(1);
    let _ = job.send(0, 1, &mut out);
    for _ in 0..100 {
        job.turn();
        assert!(!job.ranks[0].is_drained());
    }
    let began_ns = job.net.now_ns();
    let why = "it was killed".to_owned();
    job.answer(0, &ToRank::Lost { rank: 1, why });
    while let Some(event) = job.ranks[0].network.next_event() {
        job.ranks[0].take_in_daemon_event(event);
    }
    while !job.ranks[0].is_drained() {
        job.turn();
        let took_ns = job.net.now_ns() - began_ns;
        assert!(took_ns < 1_000_000_000, "a dead rank is waited for");
    }
    let send = job.send(0, 1, &mut vec![0; 300_000]).unwrap();
    assert_eq!(job.error(0, send), "rank 1 does not answer: it was killed");
    drop(line);
}

#[test]
fn s15_3_8_network_failures_raise_tool_events() {
    let mut job = Job::new(2);
    let (mut out, mut into) = (pattern(300_000), vec![0; 300_000]);
    let events = EventType::MemoryNotRegistered.bit() | EventType::PeerLost.bit();
    job.ranks[0]
        .messages
        .engine()
        .live_counters()
        .subscribed
        .set(events);
    for refused in [0, 1000] {
        job.net.fail_registers(0, refused);
        into.fill(0);
        let sent = job.send(0, 1, &mut out).unwrap();
        let received = job.receive(1, Some(0), &mut into);
        assert!(job.wait(1, received).error.is_none());
        assert!(job.wait(0, sent).error.is_none());
        assert_eq!(into, out);
    }
    job.ranks[0].lose(Peer(1), "it was killed");
    job.ranks[0].lose(Peer(1), "it was killed");
    let noted: Vec<_> = job.ranks[0]
        .messages
        .take_records()
        .list
        .iter()
        .map(|record| (record.event, record.words[0], record.words[1]))
        .collect();
    assert_eq!(
        noted,
        [
            (EventType::MemoryNotRegistered, 1, 300_000),
            (EventType::PeerLost, 1, 0)
        ]
    );
}

#[test]
fn s15_3_8_port_down_and_port_up_raise_tool_events() {
    let mut job = Job::new(2);
    let events = EventType::PortDown.bit() | EventType::PortUp.bit();
    job.ranks[0]
        .messages
        .engine()
        .live_counters()
        .subscribed
        .set(events);
    let mut noted = Vec::new();
    for is_up in [false, true, false, true] {
        match is_up {
            true => job.net.port_up(0),
            false => job.net.port_down(0),
        }
        // A change is reported only once, even after many turns.
        for _ in 0..1_000 {
            job.turn();
        }
        let records = job.ranks[0].messages.take_records().list;
        noted.extend(records.iter().map(|record| {
            let [rail, port, serving, ..] = record.words;
            (record.event, rail, port, serving)
        }));
    }
    let (down, up) = ((EventType::PortDown, 0, 1, 0), (EventType::PortUp, 0, 1, 1));
    assert_eq!(noted, [down, up, down, up]);
}

#[test]
fn network_limits_follow_the_settings() {
    let (values, _) = VariableValues::from_environment(std::iter::empty());
    assert_eq!(values.net_limits(), NetLimits::default());
    let given = [
        ("RMPI_NET_PAIRS", "3"),
        ("RMPI_NET_DATAGRAMS_FIRST", "0"),
        ("RMPI_NET_SILENCE", "7"),
        ("RMPI_NET_SEND_DEPTH", "20"),
        ("RMPI_NET_RECEIVE_DEPTH", "2K"),
        ("RMPI_NET_DATAGRAM_DEPTH", "21"),
        ("RMPI_NET_DATAGRAM_RECEIVES", "22"),
        ("RMPI_NET_INLINE", "0"),
        ("RMPI_NET_SIGNAL_EVERY", "2"),
        ("RMPI_NET_STRIPE_LIMIT", "64K"),
        ("RMPI_NET_COPY_LIMIT", "10K"),
        ("RMPI_NET_PART", "1M"),
        ("RMPI_NET_MTU", "1024"),
        ("RMPI_NET_READS", "4"),
        ("RMPI_NET_TIMEOUT", "500"),
        ("RMPI_NET_RETRIES", "5"),
        ("RMPI_NET_NOT_READY_RETRIES", "1"),
        ("RMPI_NET_NOT_READY_TIME", "80"),
        ("RMPI_NET_SERVICE_LEVEL", "3"),
        ("RMPI_NET_TRAFFIC_CLASS", "0x68"),
        ("RMPI_NET_HOPS", "2"),
        ("RMPI_NET_PARTITION", "0x8001"),
        ("RMPI_NET_GID_INDEX", "3, 1"),
    ];
    let given = given.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let (values, warnings) = VariableValues::from_environment(given.into_iter());
    assert!(warnings.is_empty(), "{warnings:?}");
    let wanted = NetLimits {
        pairs: 3,
        datagrams_first: 0,
        silence_ns: 7_000_000_000,
        send_depth: 20,
        receive_depth: 2048,
        datagram_depth: 21,
        datagram_receives: 22,
        inline_bytes: 0,
        signal_every: 2,
        striped_bytes: 64 << 10,
        copied_bytes: 10 << 10,
        part_bytes: 1 << 20,
        terms: NetTerms {
            packet_bytes: 1024,
            reads: 4,
            answer_ms: 500,
            retries: 5,
            rnr_retry: 1,
            not_ready_us: 80,
            service_level: 3,
            traffic_class: 0x68,
            hops: 2,
            partition: 0x8001,
            gids: GidPlaces::of([1, 3].into_iter()),
        },
    };
    assert_eq!(values.net_limits(), wanted);
}

/// Two jobs of one rank each, with different keys. Each job has the rank of the other job as peer 1.
fn two_jobs(net: &FakeNet) -> [Universe; 2] {
    let keys = [0xa, 0xb];
    let mut both = keys.map(|key| {
        let (me, limits) = (transport::Peer(0), NetLimits::default());
        let fabric = Fabric::faked_with_key(net, me, 1, 1, limits, key);
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        universe.network.join(&mut universe.messages.pump, false);
        universe
    });
    for (me, other) in [(0, 1), (1, 0)] {
        let far = ForeignPeer {
            source_number: 1,
            key: keys[other],
            stream_key: StreamKey::new(keys[other].into()),
            is_first: me == 0,
        };
        let record = both[other].messages.pump.fabric.network_record().unwrap();
        let name = ProcessName { job: 9, rank: 0 };
        let peer = both[me].add_remote(name, far, &record).unwrap();
        assert_eq!((peer, both[me].roster().peer(name)), (Peer(1), Some(peer)));
    }
    both
}

#[test]
fn connected_jobs_exchange_messages_over_a_network() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut both = two_jobs(&net);
    let both_of_them = Comm::new(ContextId(44), Group::of(vec![Peer(0), Peer(1)]), 0);
    assert!(!both[0].is_on_one_node(&both_of_them));
    exchange_messages(&mut both, &[8, 5000, 300_000, 3_000_000], || {
        let _ = net.advance() || net.advance_until(net.now_ns() + 1_000_000);
    });
}
