// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in which some processes have a device and all have TCP: which path is used to each peer, and operations posted
//! before that is known.
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

/// Ranks 0 and 1 have a port, 2 and 3 have none.
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
fn a_peer_is_reached_by_verbs_if_both_have_a_device_and_else_by_tcp() {
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
fn keys_that_were_made_before_that_was_known_are_good_until_they_are_taken_back() {
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

/// A key was sent by a third rank: the operation on it is the first contact of its rank with the owner of the memory.
#[test]
fn works_wait_until_that_is_known() {
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
fn who_may_not_use_tcp_is_not_reached_by_who_has_no_device() {
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

/// Processes that a test drives step by step: only the test provides addresses.
struct ByHand {
    streams: FakeStreams,
    devices: FakeNet,
    all: Vec<Process>,
}

struct Process {
    fabric: Fabric,
    completions: Completions,
    /// Frames that were not released.
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

    /// Provides a process with the address of another.
    fn provide_address(&mut self, rank: u32, of: u32) {
        let record = self.record(of);
        self.of(rank).fabric.set_peer_address(Peer(of), &record);
    }

    /// The same without the other's device: which is wrong, and so they disagree about the path between them.
    fn tell_that_it_has_no_device(&mut self, rank: u32, of: u32) {
        let record = self.record(of);
        // The form byte is followed by the parts, the device's first: type, length, and that many bytes.
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

    /// Time passes until everything in flight has arrived.
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
                Completion::Written { .. } => panic!("nobody writes"),
            }
        }
    }

    fn post(&mut self, to: u32, body: &[u8]) {
        self.fabric.post_send(Peer(to), head(1), body).unwrap();
    }

    /// The body of a received frame.
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
fn what_has_come_the_wrong_way_goes_back_to_who_has_lent_it() {
    let mut job = ByHand::new(2);
    job.tell_that_it_has_no_device(1, 0);
    job.of(1).post(0, &[1; 1000]);
    job.until(|job| !job.all[0].arrived.is_empty());
    assert_eq!(job.of(0).fabric.provider_of(Peer(1)), None);
    // The address is provided while a frame is lent, and selects another path than the frame took.
    job.provide_address(0, 1);
    assert_eq!(job.of(0).fabric.provider_of(Peer(1)), Some("verbs"));
    assert_eq!(job.of(0).body(0), [1; 1000]);
    job.of(0).release_all();
    // Neither runs short of buffers afterwards, however many frames arrive.
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
fn a_key_is_good_for_a_peer_that_knows_the_way_first() {
    let mut job = ByHand::new(3);
    let mut memory = Guarded::of(&[77; BYTES]);
    let (mut target, key) = (Guarded::new(BYTES), memory.export(&mut job.of(0).fabric, 2));
    job.provide_address(2, 0);
    assert_eq!(read(&mut job, 2, 0, &mut target, key), WorkOutcome::Done);
    assert!(is_all(target.bytes(), 77));
    assert_eq!(job.of(0).fabric.provider_of(Peer(2)), None);
    // The address is provided after some keys were made, and the exchanged ones stay valid.
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
fn a_key_is_good_for_the_way_of_the_peer_alone_once_that_is_known() {
    let mut job = ByHand::new(2);
    let mut memory = Guarded::of(&[77; BYTES]);
    let (mut target, key) = (Guarded::new(BYTES), memory.export(&mut job.of(0).fabric, 1));
    job.tell_that_it_has_no_device(1, 0);
    job.provide_address(0, 1);
    assert_eq!(read(&mut job, 1, 0, &mut target, key), WorkOutcome::BadKey);
}

impl ByHand {
    /// Injects `count` datagrams to a process, over the port of rank 1, that claim to be from `source`.
    fn forge(&self, to: u32, source: u32, count: u32) {
        let (number, q_key) = self.devices.datagrams_at(to);
        // A note that acknowledges: its kind and its sender.
        let mut note = [0; 32];
        note[0] = ACK;
        note[4..8].copy_from_slice(&source.to_le_bytes());
        for _ in 0..count {
            self.devices.inject_datagram(1, number, to, q_key, &note);
        }
    }

    /// Datagrams and other input that was refused.
    fn refused(&self, rank: u32) -> u64 {
        self.all[rank as usize].fabric.stats().refused
    }
}

#[test]
fn nothing_is_kept_of_who_names_a_peer_that_is_reached_by_tcp() {
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
fn who_is_lost_before_the_way_is_known_is_lost_for_both_and_told_once() {
    let mut job = ByHand::new(3);
    for peer in [1, 2] {
        job.of(0).fabric.lose(Peer(peer), "it has died");
    }
    // It is not lost, and continues over any available network.
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
fn who_is_reached_by_tcp_is_not_lost_with_the_device() {
    let mut job = ByHand::new(3);
    // Creates state for it at the device, through which it is not reached.
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
fn who_is_lost_with_the_device_before_the_way_is_known_is_lost_for_both() {
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

/// Two processes with ports on these networks, each with the record of the other, modified by `change`.
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
fn between_fabrics_that_do_not_reach_each_other_tcp_does() {
    // The form byte is followed by the part of verbs: type, length; form, count; and the first port, whose GID
    // begins after 8 bytes.
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
fn between_kinds_of_fabrics_without_tcp_what_to_do_is_told_at_once() {
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

/// The kind of a note that acknowledges.
const ACK: u8 = 0x12;
