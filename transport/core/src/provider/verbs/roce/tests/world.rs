// SPDX-License-Identifier: MIT OR Apache-2.0
//! Some processes with the whole provider, which poll in turn: over UDP within this host, and over a carrier with
//! faults.

use super::super::super::fake::tests::block::Block;
use super::super::{PacketFaults, PacketNet};
use super::side::{BLOCK, lent};
use crate::{
    Completion, Completions, Config, Fabric, Head, NetLimits, NetTerms, NetworkSettings, Peer,
    Providers, RemoteKey, TcpTerms, WorkId, WorkOutcome,
};

const HEAD: Head = Head {
    kind: 7,
    len: 0,
    flags: 3,
    word: 9,
};
pub(super) const RANKS: u32 = 3;

/// Some processes and their network.
pub(super) struct World {
    pub(super) all: Vec<Fabric>,
    records: Vec<Vec<u8>>,
    /// Received messages, by receiver and sender.
    pub(super) received: Vec<Vec<Vec<Vec<u8>>>>,
    ended: Vec<(u32, WorkOutcome)>,
    pub(super) net: Option<PacketNet>,
    pub(super) messages: Vec<String>,
    /// Index of a process that makes no calls.
    pub(super) computes: Option<usize>,
}

impl World {
    fn of(all: Vec<Fabric>, net: Option<PacketNet>) -> Self {
        let records = all.iter().map(|one| one.network_record().unwrap());
        Self {
            records: records.collect(),
            received: vec![vec![Vec::new(); all.len()]; all.len()],
            all,
            ended: Vec::new(),
            net,
            messages: Vec::new(),
            computes: None,
        }
    }

    /// Processes over UDP; `for_adapters`: at the UDP port of RoCE, which the processes share.
    fn over_udp(for_adapters: bool) -> Self {
        let open = |me| {
            let terms = TcpTerms {
                interfaces: "lo".to_owned(),
                ..TcpTerms::default()
            };
            let network = NetworkSettings::default().on_devices("none");
            let network = network.over_tcp(terms).with_key(77);
            let config = Config {
                me: Peer(me),
                peers: RANKS,
                providers: Providers {
                    roce: true,
                    verbs: for_adapters,
                    dpdk: false,
                    shm: false,
                    tcp: false,
                },
                network: network.of_local_rank(me),
                ..Config::alone()
            };
            Fabric::open(config).unwrap()
        };
        Self::of((0..RANKS).map(open).collect(), None)
    }

    fn over(faults: PacketFaults) -> Self {
        let net = PacketNet::new(faults);
        let limits = NetLimits {
            datagrams_first: u32::try_from(faults.seed % 5).unwrap(),
            terms: NetTerms {
                answer_ms: 1,
                ..NetTerms::DEFAULT
            },
            ..NetLimits::DEFAULT
        };
        Self::on(net, limits)
    }

    /// Processes over this network.
    pub(super) fn on(net: PacketNet, limits: NetLimits) -> Self {
        let open = |me| Fabric::packeted(&net, Peer(me), RANKS, limits);
        Self::of((0..RANKS).map(open).collect(), Some(net))
    }

    /// Each process polls once, except `computes`; then time passes.
    pub(super) fn turn(&mut self) {
        for me in (0..self.all.len()).filter(|me| self.computes != Some(*me)) {
            let fabric = &mut self.all[me];
            while let Some(peer) = fabric.next_unresolved() {
                fabric.set_peer_address(peer, &self.records[peer.0 as usize]);
            }
            let mut completions = Completions::new();
            fabric.poll(&mut completions);
            while let Some(messages) = fabric.next_warning() {
                self.messages.push(messages);
            }
            while let Some(messages) = fabric.next_remark() {
                self.messages.push(messages);
            }
            for index in 0..completions.len() {
                match completions.take(index) {
                    Some(Completion::Arrived(arrived)) => {
                        let mut body = vec![0; usize::try_from(arrived.bytes()).unwrap()];
                        self.all[me].copy_body(&arrived, &mut body);
                        self.all[me].release(&arrived);
                        self.received[me][arrived.peer.0 as usize].push(body);
                    }
                    Some(Completion::Worked { outcome, .. }) => {
                        self.ended.push((u32::try_from(me).unwrap(), outcome));
                    }
                    _ => {}
                }
            }
        }
        if let Some(net) = &self.net {
            net.pass(5_000);
        }
    }

    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..2_000_000 {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("{what}: it does not come; {:?}", self.messages);
    }

    pub(super) fn send(&mut self, from: u32, to: u32, body: &[u8]) {
        while self.all[from as usize]
            .post_send(Peer(to), HEAD, body)
            .is_err()
        {
            self.turn();
        }
    }

    /// Each process sends to each; all messages arrive, once and in order.
    pub(super) fn chat(&mut self, frames: u32) {
        let pairs = || (0..RANKS).flat_map(|from| (0..RANKS).map(move |to| (from, to)));
        let body = |from: u32, to: u32, number: u32| {
            let bytes = (number * 97 % 5000) as usize;
            vec![(from * 16 + to * 4 + number) as u8; bytes]
        };
        for number in 0..frames {
            for (from, to) in pairs() {
                self.send(from, to, &body(from, to, number));
            }
        }
        self.until("messages", |world| {
            let received = world.received.iter().flatten();
            received.map(Vec::len).sum::<usize>() == (frames * RANKS * RANKS) as usize
        });
        for (from, to) in pairs() {
            let received = std::mem::take(&mut self.received[to as usize][from as usize]);
            for (number, came) in (0..).zip(&received) {
                assert!(*came == body(from, to, number), "{from} to {to}, {number}");
            }
        }
    }

    /// Process `one` reads and writes `bytes` bytes of the memory of process `other`.
    pub(super) fn move_data(&mut self, [one, other]: [u32; 2], bytes: usize) {
        let (here, there) = (Block::new(BLOCK), Block::new(BLOCK));
        let content: Vec<u8> = (0..bytes).map(|at| (at * 11 % 253) as u8).collect();
        there.put(0, &content);
        let key: RemoteKey =
            self.all[other as usize].export(Peer(one), there.address(), bytes as u64);
        let fabric = &mut self.all[one as usize];
        fabric.post_read(Peer(other), lent(&here, 0, bytes), key, 0, WorkId(1));
        self.until("a read", |world| !world.ended.is_empty());
        assert_eq!(self.ended.pop(), Some((one, WorkOutcome::Done)));
        assert!(here.get(0, bytes) == content);
        here.put(0, &vec![3; bytes]);
        let lease = lent(&here, 0, bytes);
        let fabric = &mut self.all[one as usize];
        let posted = fabric.post_write(Peer(other), lease, key, 0, WorkId(2), None);
        assert!(posted.is_ok());
        self.until("a write", |world| !world.ended.is_empty());
        assert_eq!(self.ended.pop(), Some((one, WorkOutcome::Done)));
        assert!(there.get(0, bytes) == vec![3; bytes]);
        self.all[other as usize].withdraw(Peer(one), key);
    }
}

#[test]
fn three_processes_exchange_data_over_udp() {
    for for_adapters in [false, true] {
        let mut world = World::over_udp(for_adapters);
        world.chat(60);
        for bytes in [8, 5000, 200_000] {
            world.move_data([0, 1], bytes);
            world.move_data([2, 0], bytes);
        }
        assert_eq!(world.messages, [""; 0], "{for_adapters}");
        let stats = world.all[0].net_stats();
        assert!(stats.joined >= 2 && stats.packets > 0, "{stats:?}");
        assert_eq!(world.all[0].provider_of(Peer(1)), Some("roce"));
    }
}

#[test]
fn three_processes_exchange_data_over_a_faulty_network() {
    let mut repeated = 0;
    for seed in 1..9u64 {
        let permille = (seed * 8) as u32;
        let mut world = World::over(PacketFaults {
            seed,
            loss: permille,
            twice: permille,
            damage: permille,
            full: 4 * permille,
            late: permille,
            most_delay_ns: seed * 7_000,
            ..PacketFaults::default()
        });
        world.chat(40);
        for bytes in [8, 5000, 100_000] {
            world.move_data([0, 1], bytes);
            world.move_data([2, 1], bytes);
        }
        world.chat(5);
        let stats = world.all.iter().map(|one| one.net_stats());
        repeated += stats.map(|stats| stats.repeated).sum::<u64>();
    }
    assert!(repeated > 100, "{repeated} packets were sent again");
}

#[test]
fn a_network_without_faults_causes_no_retransmission() {
    let mut world = World::over(PacketFaults::default());
    world.chat(60);
    world.move_data([1, 2], 100_000);
    assert_eq!(world.messages, [""; 0]);
    let broken = world.all.iter().map(|one| one.net_stats().broken);
    assert_eq!(broken.sum::<u64>(), 0);
    let stats = world.all[1].net_stats();
    assert_eq!(
        (stats.repeated, stats.timeouts, stats.window_cuts),
        (0, 0, 0)
    );
}

#[test]
fn a_peer_computing_for_minutes_loses_no_messages() {
    const BYTES: usize = 100_000;
    let mut world = World::over(PacketFaults::default());
    world.chat(20);
    let (here, there) = (Block::new(BLOCK), Block::new(BLOCK));
    there.put(0, &[5; BYTES]);
    let key = world.all[2].export(Peer(0), there.address(), BYTES as u64);
    world.computes = Some(2);
    let read = lent(&here, 0, BYTES);
    world.all[0].post_read(Peer(2), read, key, 0, WorkId(1));
    for number in 0..10 {
        world.send(1, 2, &[number; 3000]);
    }
    for _ in 0..20_000 {
        world.turn();
        world.net.as_ref().unwrap().pass(10_000_000);
    }
    assert!(world.ended.is_empty());
    world.computes = None;
    world.until("all", |world| {
        !world.ended.is_empty() && world.received[2][1].len() == 10
    });
    assert_eq!(world.ended, [(0, WorkOutcome::Done)]);
    assert!(here.get(0, BYTES) == [5; BYTES]);
    assert!((0..10).all(|number| world.received[2][1][number as usize] == [number; 3000]));
    assert_eq!(world.messages, [""; 0]);
}
