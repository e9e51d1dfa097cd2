// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs in which some processes have a device and all have TCP: which path is used to each peer, and
//! operations that are posted before the path is known.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test code may panic; its sizes are small"
)]

use testbed::memory::{Guarded, is_all};
use testbed::world::{self, Failing};
use testbed::{PeerEvent, TestRank, head};
use transport::{
    Arrived, Atomic, Completion, Completions, Fabric, FakeConfig, FakeNet, FakeStreams, Lease,
    NetLimits, Peer, RemoteKey, StreamsConfig, WorkId, WorkOutcome,
};

const RANKS: u32 = 4;
const BYTES: usize = 300_000;

/// Whether a rank has a device's port: ranks 0 and 1 have one, ranks 2 and 3 have none.
fn has_port(rank: u32) -> bool {
    rank < 2
}

fn for_seeds(seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    for seed in 0..seeds {
        let _failing = Failing(seed);
        let devices = FakeNet::new(match seed {
            0 => FakeConfig::calm(seed),
            _ => FakeConfig::harsh(seed),
        });
        let streams = FakeStreams::new(StreamsConfig::of(seed, RANKS));
        let nets = (&streams, &devices);
        world::mixed_on(
            nets,
            (RANKS, false),
            has_port,
            NetLimits::default(),
            &behaviour,
        );
    }
}

fn others(rank: &TestRank) -> impl Iterator<Item = u32> + use<> {
    let me = rank.me;
    (0..rank.size).filter(move |peer| *peer != me)
}

#[test]
fn verbs_is_used_if_both_have_devices_else_tcp() {
    for_seeds(8, async |rank| {
        for peer in others(rank).filter(|_| has_port(rank.me)) {
            assert_eq!(rank.fabric.provider_of(Peer(peer)), None);
        }
        for peer in others(rank) {
            rank.send(peer, head(1), &rank.me.to_ne_bytes()).await;
        }
        for peer in others(rank) {
            assert_eq!(rank.receive(peer).await.1, peer.to_ne_bytes());
        }
        for peer in others(rank) {
            let both = has_port(rank.me) && has_port(peer);
            let expected = if both { "verbs" } else { "tcp" };
            assert_eq!(rank.fabric.provider_of(Peer(peer)), Some(expected));
        }
    });
}

#[test]
fn keys_made_before_provider_selection_are_valid_until_withdrawn() {
    for_seeds(8, async |rank| {
        let mut memory = Guarded::of(&[77; BYTES]);
        if rank.me == 0 {
            let keys: Vec<_> = others(rank)
                .map(|peer| (peer, memory.export(&mut rank.fabric, peer)))
                .collect();
            for (peer, key) in &keys {
                rank.send_key(*peer, *key).await;
            }
            for (peer, key) in keys {
                rank.receive(peer).await;
                rank.fabric.withdraw(Peer(peer), key);
                rank.send(peer, head(3), &[]).await;
            }
            return;
        }
        memory.bytes_mut().fill(0);
        let key = rank.receive_key(0).await;
        let outcome = rank.read(0, memory.lease(0, BYTES), key, 0).await;
        assert!(!rank.was_done(outcome) || is_all(memory.bytes(), 77));
        rank.send(0, head(2), &[]).await;
        assert_eq!(rank.receive(0).await.0.kind, 3);
        let outcome = rank.read(0, memory.lease(0, BYTES), key, 0).await;
        rank.assert_refused(outcome);
    });
}

/// A rank gets a key from a third rank, so its operation with the key is its first contact with the owner of the
/// memory.
#[test]
fn operations_wait_for_provider_selection() {
    let (owners, between, user) = ([3, 1], 2, 0);
    for owner in owners {
        for_seeds(8, async |rank| {
            let mut word = Guarded::of(&5u64.to_ne_bytes());
            if rank.me == owner {
                let key = word.export(&mut rank.fabric, user);
                rank.send_key(between, key).await;
            } else if rank.me == between {
                let key = rank.receive_key(owner).await;
                rank.send_key(user, key).await;
            } else if rank.me == user {
                let key = rank.receive_key(between).await;
                assert_eq!(rank.fabric.provider_of(Peer(owner)), None);
                let (outcome, old) = rank
                    .change(owner, Atomic::FetchAdd { add: 2 }, key, 0)
                    .await;
                assert!(!rank.was_done(outcome) || old == 5);
                let outcome = rank.read(owner, word.lease(0, 8), key, 0).await;
                assert!(!rank.was_done(outcome) || word.bytes()[0] >= 5);
                let outcome = rank.write(owner, word.lease(0, 8), key, 0, Some(9)).await;
                rank.was_done(outcome);
                rank.send(owner, head(2), &[]).await;
            }
            if rank.me == owner {
                while let PeerEvent::Written(number) = rank.incoming(user).await {
                    assert_eq!(number, 9);
                }
            }
        });
    }
}

#[test]
fn peers_without_a_common_provider_are_lost_with_a_reason() {
    let streams = FakeStreams::new(StreamsConfig::of(0, 2));
    let devices = FakeNet::new(FakeConfig::calm(0));
    let limits = NetLimits::default();
    let mut with_device = Fabric::faked(&devices, Peer(0), 2, limits);
    let mut without = Fabric::streamed(&streams, Peer(1), 2, limits);
    let records = [with_device.network_record(), without.network_record()];
    let (verbs, tcp) = ("InfiniBand or RoCE (verbs)", "tcp");
    let both = [
        (&mut with_device, 1, [tcp, verbs]),
        (&mut without, 0, [verbs, tcp]),
    ];
    for (fabric, peer, [theirs, ours]) in both {
        let _ = fabric.post_send(Peer(peer), head(1), &[]);
        let record = records[peer as usize].as_ref().unwrap();
        fabric.set_peer_address(Peer(peer), record);
        let why = fabric.why_lost(Peer(peer)).unwrap();
        let has = format!("it has {theirs} alone, and this process {ours} alone; let both");
        assert!(
            why.contains(&has) && why.contains("RMPI_PROVIDERS"),
            "{why}"
        );
    }
}

/// Processes that a test drives step by step. Only the test provides addresses.
struct ByHand {
    streams: FakeStreams,
    devices: FakeNet,
    all: Vec<Process>,
}

struct Process {
    fabric: Fabric,
    completions: Completions,
    /// Received frames that were not released.
    arrived: Vec<Arrived>,
    ended: Vec<(WorkId, WorkOutcome, Lease)>,
    lost: Vec<Peer>,
}

impl ByHand {
    fn new(ranks: u32) -> Self {
        let streams = FakeStreams::new(StreamsConfig::of(0, ranks));
        let devices = FakeNet::new(FakeConfig::calm(0));
        let process = |me| {
            let devices = has_port(me).then_some(&devices);
            let limits = NetLimits::default();
            Process::new(Fabric::mixed(&streams, devices, Peer(me), ranks, limits))
        };
        let all = (0..ranks).map(process).collect();
        Self {
            streams,
            devices,
            all,
        }
    }

    fn of(&mut self, rank: u32) -> &mut Process {
        &mut self.all[rank as usize]
    }

    fn record(&self, rank: u32) -> Vec<u8> {
        self.all[rank as usize].fabric.network_record().unwrap()
    }

    /// Provides process `rank` with the address of process `of`.
    fn provide_address(&mut self, rank: u32, of: u32) {
        let record = self.record(of);
        self.of(rank).fabric.set_peer_address(Peer(of), &record);
    }

    /// Provides process `rank` with the address of process `of`, but without its device. That address is wrong, so the
    /// two processes disagree about the path between them.
    fn report_no_device(&mut self, rank: u32, of: u32) {
        let record = self.record(of);
        // The parts of the record follow the form byte; the part of the device is first. Each part is type, length, and
        // as many bytes.
        let mut other = record[..1].to_vec();
        other.extend(&record[3 + usize::from(record[2])..]);
        self.of(rank).fabric.set_peer_address(Peer(of), &other);
    }

    fn turn(&mut self) {
        for process in &mut self.all {
            process.poll();
        }
        self.streams.advance();
        self.devices.advance_until(self.devices.now_ns() + 100_000);
    }

    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        panic!("it is never so");
    }

    /// Lets time pass until all packets in flight have arrived.
    fn pass(&mut self) {
        (0..1000).for_each(|_| self.turn());
    }
}

impl Process {
    fn new(fabric: Fabric) -> Self {
        Self {
            fabric,
            completions: Completions::new(),
            arrived: Vec::new(),
            ended: Vec::new(),
            lost: Vec::new(),
        }
    }

    fn poll(&mut self) {
        self.fabric.poll(&mut self.completions);
        for at in 0..self.completions.len() {
            match self.completions.take(at).unwrap() {
                Completion::Arrived(arrived) => self.arrived.push(arrived),
                Completion::Worked {
                    work,
                    outcome,
                    lease,
                } => self.ended.push((work, outcome, lease)),
                Completion::Lost { peer } => self.lost.push(peer),
                Completion::Written { .. } => panic!("no write was posted"),
            }
        }
    }

    fn post(&mut self, to: u32, body: &[u8]) {
        self.fabric.post_send(Peer(to), head(1), body).unwrap();
    }

    /// The body of the received frame at index `place`.
    fn body(&self, place: usize) -> Vec<u8> {
        let mut body = vec![0; self.arrived[place].bytes() as usize];
        self.fabric.copy_body(&self.arrived[place], &mut body);
        body
    }

    fn release_all(&mut self) {
        for arrived in std::mem::take(&mut self.arrived) {
            self.fabric.release(&arrived);
        }
    }
}

#[test]
fn lent_frame_returns_to_the_provider_that_received_it() {
    let mut job = ByHand::new(2);
    job.report_no_device(1, 0);
    job.of(1).post(0, &[1; 1000]);
    job.until(|job| !job.all[0].arrived.is_empty());
    assert_eq!(job.of(0).fabric.provider_of(Peer(1)), None);
    // The address is provided while a frame is lent; it selects a different path from the one that the frame took.
    job.provide_address(0, 1);
    assert_eq!(job.of(0).fabric.provider_of(Peer(1)), Some("verbs"));
    assert_eq!(job.of(0).body(0), [1; 1000]);
    job.of(0).release_all();
    // Neither process runs out of buffers afterwards, however many frames arrive.
    for round in 2..200 {
        job.of(1).post(0, &[round; 1000]);
        job.until(|job| !job.all[0].arrived.is_empty());
        assert_eq!(job.of(0).body(0), [round; 1000]);
        job.of(0).release_all();
    }
}

/// Reads memory of a peer; returns the outcome.
fn read(job: &mut ByHand, rank: u32, of: u32, target: &mut Guarded, key: RemoteKey) -> WorkOutcome {
    let (lease, work) = (target.lease(0, BYTES), WorkId(7));
    let fabric = &mut job.of(rank).fabric;
    fabric.post_read(Peer(of), lease, key, 0, work);
    job.until(|job| !job.all[rank as usize].ended.is_empty());
    job.of(rank).ended.pop().unwrap().1
}

#[test]
fn key_is_valid_if_the_peer_selects_its_provider_first() {
    let mut job = ByHand::new(3);
    let mut memory = Guarded::of(&[77; BYTES]);
    let (mut target, key) = (Guarded::new(BYTES), memory.export(&mut job.of(0).fabric, 2));
    job.provide_address(2, 0);
    assert_eq!(read(&mut job, 2, 0, &mut target, key), WorkOutcome::Done);
    assert!(is_all(target.bytes(), 77));
    assert_eq!(job.of(0).fabric.provider_of(Peer(2)), None);
    // The address is provided after some keys were made; the keys stay valid.
    let later = memory.export(&mut job.of(0).fabric, 2);
    job.of(0).fabric.withdraw(Peer(2), key);
    assert_eq!(read(&mut job, 2, 0, &mut target, key), WorkOutcome::BadKey);
    job.provide_address(0, 2);
    assert_eq!(read(&mut job, 2, 0, &mut target, later), WorkOutcome::Done);
    job.of(0).fabric.withdraw(Peer(2), later);
    assert_eq!(
        read(&mut job, 2, 0, &mut target, later),
        WorkOutcome::BadKey
    );
}

#[test]
fn key_is_valid_only_for_the_selected_provider() {
    let mut job = ByHand::new(2);
    let mut memory = Guarded::of(&[77; BYTES]);
    let (mut target, key) = (Guarded::new(BYTES), memory.export(&mut job.of(0).fabric, 1));
    job.report_no_device(1, 0);
    job.provide_address(0, 1);
    assert_eq!(read(&mut job, 1, 0, &mut target, key), WorkOutcome::BadKey);
}

impl ByHand {
    /// Injects `count` datagrams to a process, over the port of rank 1, that claim to be from `source`.
    fn forge(&self, to: u32, source: u32, count: u32) {
        let (number, q_key) = self.devices.datagrams_at(to);
        // A note with an acknowledgement: its kind and its sender.
        let mut note = [0; 32];
        note[0] = ACK;
        note[4..8].copy_from_slice(&source.to_le_bytes());
        for _ in 0..count {
            self.devices.inject_datagram(1, number, to, q_key, &note);
        }
    }

    /// Number of datagrams and other input that this rank has refused.
    fn refused(&self, rank: u32) -> u64 {
        self.all[rank as usize].fabric.stats().refused
    }
}

#[test]
fn datagrams_naming_a_tcp_peer_are_refused() {
    let mut job = ByHand::new(3);
    job.forge(0, 2, 5);
    job.pass();
    assert_eq!(job.refused(0), 0);
    assert_eq!(job.of(0).fabric.next_unresolved(), Some(Peer(2)));
    job.provide_address(0, 2);
    assert_eq!(job.refused(0), 5);
    job.forge(0, 2, 5);
    job.pass();
    assert_eq!(job.refused(0), 10);
}

#[test]
fn peer_lost_before_selection_is_reported_once() {
    let mut job = ByHand::new(3);
    for peer in [1, 2] {
        job.of(0).fabric.lose(Peer(peer), "it has died");
    }
    // The peers have not given up rank 0: they send to it over any available network.
    for peer in [1, 2] {
        job.provide_address(peer, 0);
        job.of(peer).post(0, &[1; 9]);
    }
    job.until(|job| job.all[2].lost == [Peer(0)]);
    job.pass();
    for peer in [1, 2] {
        job.provide_address(0, peer);
        job.of(0).post(peer, &[1; 9]);
    }
    job.pass();
    assert_eq!(job.of(0).lost, [Peer(1), Peer(2)]);
    assert_eq!(job.of(0).arrived.len() + job.of(2).arrived.len(), 0);
    let why = job.of(0).fabric.why_lost(Peer(2));
    assert_eq!(why, Some("it has died"));
}

#[test]
fn tcp_peer_survives_device_loss() {
    let mut job = ByHand::new(3);
    // Creates state for rank 2 in the provider of the device, though rank 2 is not reached through the device.
    job.forge(0, 2, 1);
    job.pass();
    job.provide_address(0, 1);
    job.provide_address(0, 2);
    job.devices.lose_device(0);
    job.of(0).post(1, &[1; 9]);
    job.pass();
    assert_eq!(job.of(0).lost, [Peer(1)]);
    job.of(0).post(2, &[1; 9]);
    job.until(|job| job.all[2].arrived.len() == 1);
    job.of(2).release_all();
}

#[test]
fn device_loss_before_selection_loses_the_peer() {
    let mut job = ByHand::new(3);
    job.forge(0, 2, 1);
    job.pass();
    job.devices.lose_device(0);
    job.pass();
    assert_eq!(job.of(0).lost, [Peer(2)]);
    job.provide_address(2, 0);
    job.of(2).post(0, &[1; 9]);
    job.until(|job| job.all[2].lost == [Peer(0)]);
    assert_eq!((job.of(0).lost.len(), job.of(0).arrived.len()), (1, 0));
}

/// Two processes with ports on these networks. Each process has the record of the other process, modified by `change`.
fn two_apart(nets: [&FakeNet; 2], change: impl Fn(&mut Vec<u8>)) -> ByHand {
    let streams = FakeStreams::new(StreamsConfig::of(0, 2));
    let process = |me: u32| {
        let (net, limits) = (nets[me as usize], NetLimits::default());
        let fabric = Fabric::mixed(&streams, Some(net), Peer(me), 2, limits);
        Process::new(fabric)
    };
    let mut job = ByHand {
        all: vec![process(0), process(1)],
        devices: nets[0].clone(),
        streams,
    };
    for (rank, other) in [(0, 1), (1, 0)] {
        let mut record = job.record(other);
        change(&mut record);
        job.of(rank).fabric.set_peer_address(Peer(other), &record);
    }
    job
}

fn fabric_net(infiniband: bool) -> FakeNet {
    FakeNet::new(FakeConfig {
        infiniband,
        ..FakeConfig::calm(0)
    })
}

#[test]
fn tcp_connects_separate_verbs_fabrics() {
    // The record is: the form byte; then the part of verbs, with type and length, form and count, and the first port,
    // whose GID begins after 8 bytes.
    let other_subnet = |record: &mut Vec<u8>| record[3 + 2 + 8 + 7] ^= 1;
    let (one, other) = (fabric_net(true), fabric_net(false));
    let jobs = [
        (two_apart([&one, &other], |_| {}), "tcp"),
        (two_apart([&one, &one], other_subnet), "tcp"),
        (two_apart([&one, &one], |_| {}), "verbs"),
    ];
    for (mut job, provider) in jobs {
        for (rank, peer) in [(0, 1), (1, 0)] {
            let fabric = &job.of(rank).fabric;
            assert_eq!(fabric.provider_of(Peer(peer)), Some(provider));
            // The use of TCP is reported once, with the reason.
            let fabric = &mut job.of(rank).fabric;
            assert_eq!(fabric.has_network_notices(), provider == "tcp");
            let remark = fabric.next_remark();
            assert_eq!(remark.is_some(), provider == "tcp");
            assert!(remark.is_none_or(|text| text.contains("InfiniBand")));
            assert!(!fabric.has_network_notices() && fabric.next_remark().is_none());
            job.of(rank).post(peer, &[rank as u8; 100]);
        }
        job.until(|job| job.all.iter().all(|process| process.arrived.len() == 1));
        assert_eq!(job.of(1).body(0), [0; 100]);
        job.of(0).release_all();
        job.of(1).release_all();
    }
}

#[test]
fn different_fabric_kinds_without_tcp_fail_with_advice() {
    let limits = NetLimits::default();
    let (one, other) = (fabric_net(true), fabric_net(false));
    let mut ours = Fabric::faked(&one, Peer(0), 2, limits);
    let theirs = Fabric::faked(&other, Peer(1), 2, limits);
    let record = theirs.network_record().unwrap();
    ours.set_peer_address(Peer(1), &record);
    let why = ours.why_lost(Peer(1)).unwrap();
    assert!(
        why.contains("Ethernet (RoCE)") && why.contains("RMPI_PROVIDERS"),
        "{why}"
    );
}

/// The kind of a note with an acknowledgement.
const ACK: u8 = 0x12;
