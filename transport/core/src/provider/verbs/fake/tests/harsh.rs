// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the effects that random faults may have.

use std::collections::BTreeMap;

use super::super::super::port::{
    AddressHandle, CqKind, PortEvent, QueuePairHandle, Receives, VerbsPort, WorkBody, WorkRequest,
    WorkStatus,
};
use super::super::{FakeConfig, FakeNet, FakeStats};
use super::side::{Side, inline, join, run_to};

/// A sender that sends numbered messages over a succession of queue pairs, and a receiver that records them.
struct Talk {
    net: FakeNet,
    sides: [Side; 2],
    pairs: Option<[QueuePairHandle; 2]>,
    /// Number of messages posted so far, which is the number of the next message.
    posted: u64,
    /// The status of each completed message, by its number.
    ended: BTreeMap<u64, WorkStatus>,
    arrived: Vec<u64>,
    buffers: u64,
}

impl Talk {
    fn new(config: FakeConfig) -> Self {
        let net = FakeNet::new(config);
        let sides = [Side::open(&net), Side::open(&net)];
        Self {
            net,
            sides,
            pairs: None,
            posted: 0,
            ended: BTreeMap::new(),
            arrived: Vec::new(),
            buffers: 0,
        }
    }

    fn turn(&mut self) {
        self.give_buffers();
        self.post_some();
        run_to(&self.net, self.net.now_ns() + 5_000);
        self.poll();
    }

    fn give_buffers(&mut self) {
        let free = self.arrived.len() as u64 + 64 - self.buffers;
        let given = self.sides[1].give(Receives::Shared, self.buffers, free);
        self.buffers += given as u64;
    }

    fn post_some(&mut self) {
        for side in &mut self.sides {
            let _ = side.port.refresh();
        }
        let running = self.net.is_running(0) && self.net.is_running(1);
        let up = self.net.is_up(0) && self.net.is_up(1);
        if self.pairs.is_none() && running && up {
            self.pairs = Some(join(&mut self.sides));
        }
        let Some([here, _]) = self.pairs else {
            return;
        };
        let words = [self.posted, self.posted + 1].map(u64::to_le_bytes);
        let requests = [
            inline(self.posted, &words[0]),
            WorkRequest {
                signaled: self.posted.is_multiple_of(4),
                ..inline(self.posted + 1, &words[1])
            },
        ];
        self.posted += self.sides[0].port.post(here, &requests) as u64;
    }

    fn poll(&mut self) {
        let ends = self.sides[0].ends();
        let failed = ends
            .iter()
            .any(|(_, status)| *status != WorkStatus::Success);
        for (work, status) in ends {
            assert_eq!(self.ended.insert(work, status), None, "{work} ended twice");
        }
        for (_, bytes) in self.sides[1].arrived() {
            self.arrived
                .push(u64::from_le_bytes(bytes.try_into().unwrap()));
        }
        self.sides.iter_mut().for_each(|side| drop(side.events()));
        if failed {
            self.start_anew();
        }
    }

    /// Breaks the queue pair: all posted requests end, and all arrived messages are completed.
    fn start_anew(&mut self) {
        let Some(pairs) = self.pairs.take() else {
            return;
        };
        for (side, pair) in self.sides.iter_mut().zip(pairs) {
            side.port.fail(pair);
        }
        // After these waits, all packets on the wire have arrived, and both processes run.
        run_to(&self.net, self.net.now_ns() + 2_000_000);
        while !(self.net.is_running(0) && self.net.is_running(1)) {
            self.net.advance_until(self.net.now_ns() + 1_000);
        }
        self.poll();
        for (side, pair) in self.sides.iter_mut().zip(pairs) {
            side.port.destroy(pair);
        }
    }

    /// Every message with a successful completion has arrived, once and in order.
    fn check(&self, seed: u64) {
        assert!(
            self.arrived.is_sorted_by(|one, next| one < next),
            "seed {seed}: {:?}",
            self.arrived
        );
        for (work, status) in &self.ended {
            let is_here = self.arrived.binary_search(work).is_ok();
            assert!(
                is_here || *status != WorkStatus::Success,
                "seed {seed}: {work} is not here"
            );
        }
        for port in 0..2 {
            let stats = self.net.stats(port);
            assert_eq!(
                (stats.wrong, stats.overruns, stats.buffers_lost),
                (0, 0, 0),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn random_faults_keep_work_and_messages_exactly_once_in_order() {
    let mut all = Vec::new();
    let mut ends = BTreeMap::<String, u64>::new();
    let mut late = 0;
    for seed in 0..120 {
        let config = FakeConfig {
            inline_bytes: 64,
            ..FakeConfig::harsh(seed)
        };
        let mut talk = Talk::new(config);
        for _ in 0..400 {
            talk.turn();
        }
        talk.start_anew();
        talk.check(seed);
        for (work, status) in &talk.ended {
            *ends.entry(format!("{status:?}")).or_default() += 1;
            let is_here = talk.arrived.binary_search(work).is_ok();
            late += u64::from(is_here && *status != WorkStatus::Success);
        }
        all.extend([talk.net.stats(0), talk.net.stats(1)]);
    }
    let sum = |count: fn(&FakeStats) -> u64| all.iter().map(count).sum::<u64>();
    assert!(ends["Success"] > 10_000, "{ends:?}");
    for (status, count) in [("RetryExceeded", 200), ("NotReady", 5), ("Flushed", 1_000)] {
        assert!(ends[status] > count, "{status}: {ends:?}");
    }
    assert!(late > 20, "what ended badly may have arrived: {late}");
    assert!(sum(|stats| stats.packets_lost) > 1_000);
    assert!(sum(|stats| stats.not_ready) > 100);
    assert!(sum(|stats| stats.down) > 100);
    assert!(sum(|stats| stats.away) > 100);
    assert!(sum(|stats| stats.full) > 100);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let result = |seed| {
        let mut talk = Talk::new(FakeConfig {
            inline_bytes: 64,
            ..FakeConfig::harsh(seed)
        });
        for _ in 0..300 {
            talk.turn();
        }
        let stats = [talk.net.stats(0), talk.net.stats(1)];
        (talk.net.now_ns(), stats, talk.arrived, talk.ended)
    };
    for seed in 0..10 {
        assert_eq!(result(seed), result(seed), "seed {seed}");
    }
    assert_ne!(result(3), result(4));
}

#[test]
fn harsh_seeds_cover_each_fault_and_its_absence() {
    let all: Vec<FakeConfig> = (0..300).map(FakeConfig::harsh).collect();
    type Trouble = (&'static str, fn(&FakeConfig) -> bool);
    let congestion_counts: [Trouble; 12] = [
        ("loss", |config| config.loss_permille > 100),
        ("doubled", |config| config.duplicate_permille > 100),
        ("reordered", |config| config.most_delay_ns > 10_000),
        ("repeated", |config| config.pair_loss_permille > 50),
        ("broken", |config| config.break_permille > 20),
        ("away", |config| {
            config.away_permille > 100 && config.most_away_ns > 0
        }),
        ("down", |config| {
            config.down_permille > 50 && config.most_down_ns > 0
        }),
        ("shallow", |config| config.most_sends < 8),
        ("not ready", |config| config.most_shared < 8),
        ("few pairs", |config| config.most_pairs < 4),
        ("InfiniBand", |config| config.infiniband),
        ("no inline", |config| config.inline_bytes == 0),
    ];
    for (name, has) in congestion_counts {
        let count = all.iter().filter(|config| has(config)).count();
        assert!((15..285).contains(&count), "{name}: {count}");
    }
}

#[test]
fn a_port_randomly_taken_down_comes_back_with_an_event() {
    let config = FakeConfig {
        most_down_ns: 1_000_000,
        down_permille: 500,
        ..FakeConfig::calm(4)
    };
    let net = FakeNet::new(config);
    let [mut one, other] = [Side::open(&net), Side::open(&net)];
    let mut seen = BTreeMap::<String, u64>::new();
    let (mut handles, mut dead) = (Vec::<AddressHandle>::new(), 0);
    for _ in 0..200 {
        run_to(&net, net.now_ns() + 100_000);
        for event in one.events() {
            *seen.entry(format!("{event:?}")).or_default() += 1;
        }
        assert_eq!(one.port.refresh(), Ok(()));
        assert_eq!(one.facts().is_up, net.is_up(0));
        match one.port.create_address_handle(&other.port.address()) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                assert_eq!(error.errno, libc::ENETUNREACH);
                dead += 1;
            }
        }
    }
    let (down, up) = (seen["PortDown"], seen["PortUp"] / 2);
    assert!(down > 10 && (down - up) <= 1, "{seen:?}");
    assert!(seen["AddressChanged"] > 2, "{seen:?}");
    assert!(handles.len() > 50 && dead > 50);
    assert_eq!(net.stats(0).down, down);
}

#[test]
fn a_randomly_broken_pair_may_have_executed_its_work() {
    let mut carried = [0; 2];
    for seed in 0..60 {
        let config = FakeConfig {
            break_permille: 1000,
            ..FakeConfig::calm(seed)
        };
        let net = FakeNet::new(config);
        let mut sides = [Side::open(&net), Side::open(&net)];
        let [here, _] = join(&mut sides);
        let [one, other] = &mut sides;
        other.give(Receives::Shared, 0, 8);
        let body = WorkBody::Inline(b"x");
        let message = WorkRequest {
            body,
            ..inline(0, b"")
        };
        assert_eq!(one.port.post(here, &[message; 2]), 2);
        while net.advance() {}
        let statuses: Vec<WorkStatus> = one.ends().iter().map(|(_, status)| *status).collect();
        let arrived = other.done(CqKind::Receives).len();
        match statuses[..] {
            [WorkStatus::Success, WorkStatus::RetryExceeded] => {
                carried[0] += usize::from(arrived == 1)
            }
            [WorkStatus::RetryExceeded, WorkStatus::Flushed] => {
                carried[1] += usize::from(arrived > 0)
            }
            _ => panic!("{statuses:?}"),
        }
        assert!(!other.events().contains(&PortEvent::DeviceLost));
    }
    assert!(carried[0] > 10 && carried[1] > 10, "{carried:?}");
}
