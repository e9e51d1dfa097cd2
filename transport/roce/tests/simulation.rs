// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates two ends over a link that loses, delays, reorders, duplicates and damages packets and stalls at times.
//! Each seed is one reproducible run.

mod common;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use common::arena::{address, sge};
use common::dice::Dice;
use common::end::{self, End};
use roce::{
    CompletionStatus, Config, CongestionCounts, PathMtu, PostError, Psn, QueuePairCounts,
    QueuePairState, RequestBody, RequestOpcode, RoceRequest, RoceSge, WorkCompletion,
};

#[test]
fn all_bytes_arrive_once_and_in_order_whatever_the_link_does() {
    let mut all = QueuePairCounts::default();
    for seed in 0..300 {
        let run = std::panic::catch_unwind(|| Run::new(seed).run());
        let Ok(counts) = run else {
            panic!("seed {seed} failed");
        };
        for counts in counts {
            all.went_back += counts.went_back;
            all.congestion.timeouts += counts.congestion.timeouts;
            all.rnr_naks += counts.rnr_naks;
            all.congestion.window_cuts += counts.congestion.window_cuts;
            all.congestion.repeated += counts.congestion.repeated;
        }
    }
    let CongestionCounts {
        repeated,
        timeouts,
        window_cuts,
    } = all.congestion;
    let often = [all.went_back, all.rnr_naks, repeated, timeouts, window_cuts];
    assert!(often.iter().all(|times| *times > 150), "{all:?}");
}

/// Keys of the memory regions of an end: the source of sends and writes, the destination of reads, the receive buffers,
/// and the memory that the peer may access.
const OUT: u32 = 1;
const BACK: u32 = 2;
const IN: u32 = 3;
const OPEN: u32 = 4;
/// Key of the region with the word for the peer's atomic additions.
const WORD: u32 = 5;

/// Bytes of a slot: each request has one slot in each of these regions.
const SLOT: u32 = 6000;
const REQUESTS: u32 = 40;

/// How often each fault of the link occurs, per thousand.
#[derive(Clone, Copy, Debug)]
struct LinkFaults {
    loss_permille: u64,
    twice_permille: u64,
    damage_permille: u64,
    late_permille: u64,
    stall_permille: u64,
    mark_permille: u64,
}

struct Run {
    dice: Dice,
    ends: [End; 2],
    plans: [Vec<Planned>; 2],
    /// Index of the next request of each end's plan.
    posted: [usize; 2],
    faults: LinkFaults,
    link: BinaryHeap<Reverse<OnLink>>,
    serial: u64,
    now: u64,
    stalled_until: [u64; 2],
    sends: [Vec<WorkCompletion>; 2],
    receives: [Vec<WorkCompletion>; 2],
    buffers: [u32; 2],
}

/// A packet on the link: arrival time, a number that keeps the order of departure, the index of the destination, and
/// the bytes.
type OnLink = (u64, u64, usize, Vec<u8>);

/// A request of the plan.
#[derive(Clone, Copy, Debug)]
struct Planned {
    operation: RequestOpcode,
    bytes: u32,
    inline: bool,
    immediate: Option<[u8; 4]>,
    signaled: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let bad = [0, 1, 3][dice.index(3)];
        let faults = LinkFaults {
            loss_permille: bad * dice.below(30),
            twice_permille: bad * dice.below(30),
            damage_permille: bad * dice.below(20),
            late_permille: bad * dice.below(50),
            stall_permille: bad * dice.below(3),
            mark_permille: bad * dice.below(100),
        };
        let (a, b) = configs(&mut dice);
        let ends = [(a, 1), (b, 2)].map(|(config, host)| {
            let mut end = End::new(config, end::address(host));
            let bytes = (SLOT * REQUESTS) as usize;
            end.arena.add(OUT, dice.bytes(bytes));
            end.arena.add(OPEN, dice.bytes(bytes));
            end.arena.add(BACK, vec![0; bytes]);
            end.arena.add(IN, vec![0; bytes]);
            end.arena.add(WORD, vec![0; 8]);
            end
        });
        let plans = [(); 2].map(|()| (0..REQUESTS).map(|slot| planned(&mut dice, slot)).collect());
        Self {
            dice,
            ends,
            plans,
            posted: [0; 2],
            faults,
            link: BinaryHeap::new(),
            serial: 0,
            now: 0,
            stalled_until: [0; 2],
            sends: [const { Vec::new() }; 2],
            receives: [const { Vec::new() }; 2],
            buffers: [0; 2],
        }
    }

    fn run(mut self) -> [QueuePairCounts; 2] {
        let mut turns = 0_u32;
        while !self.is_over() {
            for side in 0..2 {
                if self.stalled_until[side] <= self.now {
                    self.turn(side);
                }
            }
            self.pass_time();
            turns += 1;
            assert!(turns < 200_000, "it makes no progress");
        }
        for side in 0..2 {
            self.check(side);
        }
        self.ends.each_ref().map(|end| end.pair.counts())
    }

    /// One turn of an end: it posts requests, and sends packets.
    fn turn(&mut self, side: usize) {
        if self.dice.permille(self.faults.stall_permille) {
            self.stalled_until[side] = self.now + self.dice.below(400_000);
            return;
        }
        if self.dice.permille(700) {
            self.post_buffers(side);
        }
        self.post_requests(side);
        while let Some(wire) = self.ends[side].next_on_wire(self.now) {
            self.carry(1 - side, wire);
        }
        let end = &mut self.ends[side];
        let most = match end.pair.config().selective_repeat {
            true => 8 * 16 + 1,
            false => 2 * 16 + 1,
        };
        assert!(end.pair.queued_responses() <= most);
        self.sends[side].extend(end.sends_done());
        self.receives[side].extend(end.receives_done());
        assert_eq!(
            end.pair.state(),
            QueuePairState::Ready,
            "{:?}",
            end.pair.counts()
        );
    }

    fn post_buffers(&mut self, side: usize) {
        let next = self.buffers[side];
        if next < REQUESTS && self.ends[side].receives.len() < 4 {
            let buffer = sge(IN, next * SLOT, SLOT);
            assert!(self.ends[side].receives.post(next.into(), buffer));
            self.buffers[side] += 1;
        }
    }

    fn post_requests(&mut self, side: usize) {
        let most = self.dice.index(4);
        for _ in 0..most {
            let slot = self.posted[side];
            let Some(planned) = self.plans[side].get(slot) else {
                return;
            };
            let slot = u32::try_from(slot).expect("it is small");
            let body = planned.sge(slot);
            let inline = self.ends[side].arena.gather(body).to_vec();
            let request = RoceRequest {
                work: slot.into(),
                operation: planned.operation,
                body: if planned.inline {
                    RequestBody::Inline(&inline)
                } else {
                    RequestBody::Sge(body)
                },
                immediate: planned.immediate,
                signaled: planned.signaled,
            };
            match self.ends[side].pair.post(&request) {
                Ok(()) => self.posted[side] += 1,
                Err(error) => return assert_eq!(error, PostError::Full),
            }
        }
    }

    fn carry(&mut self, to: usize, mut wire: Vec<u8>) {
        let faults = self.faults;
        if self.dice.permille(faults.loss_permille) {
            return;
        }
        if self.dice.permille(faults.twice_permille) {
            self.put_on_link(to, wire.clone());
        }
        if self.dice.permille(faults.mark_permille) {
            // A real network marks the IP header. Here the bit in the BTH, which the ICRC does not cover, is set
            // instead.
            wire[4] |= 0x80;
        }
        if self.dice.permille(faults.damage_permille) {
            let at = self.dice.index(wire.len());
            wire[at] ^= 1 << self.dice.below(8);
        }
        self.put_on_link(to, wire);
    }

    fn put_on_link(&mut self, to: usize, wire: Vec<u8>) {
        let late = match self.dice.permille(self.faults.late_permille) {
            true => self.dice.below(40_000),
            false => 0,
        };
        self.serial += 1;
        let packet = (self.now + 2_000 + late, self.serial, to, wire);
        self.link.push(Reverse(packet));
    }

    /// Advances to the next event, but at most by 1 us, and delivers the packets that have arrived.
    fn pass_time(&mut self) {
        let deadlines = self.ends.iter().filter_map(|end| end.pair.deadline());
        let arrival = self.link.peek().map(|Reverse(packet)| packet.0);
        let ahead = deadlines.chain(arrival).filter(|at| *at > self.now);
        let next = ahead.min();
        let pause = self.now + 1_000;
        self.now = next.map_or(pause, |next| next.clamp(self.now + 1, pause));
        while let Some(Reverse((at, ..))) = self.link.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, to, wire))) = self.link.pop() else {
                break;
            };
            self.ends[to].receive(self.now, &wire);
        }
    }

    fn is_over(&self) -> bool {
        (0..2).all(|side| {
            let last = self.sends[side].last().map(|done| done.work);
            let wanted = self.plans[1 - side].iter();
            let wanted = wanted.filter(|planned| planned.takes_buffer()).count();
            last == Some(u64::from(REQUESTS) - 1) && self.receives[side].len() == wanted
        })
    }

    /// Checks the outcome of one side's requests.
    fn check(&self, side: usize) {
        let (here, there) = (&self.ends[side].arena, &self.ends[1 - side].arena);
        let signaled = (0_u64..).zip(&self.plans[side]);
        let signaled: Vec<u64> = signaled
            .filter_map(|(work, planned)| planned.signaled.then_some(work))
            .collect();
        let done: Vec<u64> = self.sends[side].iter().map(|done| done.work).collect();
        assert_eq!(done, signaled, "each once and in order");
        let all = self.sends[side].iter().chain(&self.receives[side]);
        assert!(
            all.into_iter()
                .all(|done| done.status == CompletionStatus::Success)
        );

        let mut received = self.receives[1 - side].iter();
        let mut sum = 0_u64;
        for (slot, planned) in (0..).zip(&self.plans[side]) {
            let body = planned.sge(slot);
            let target = sge(OPEN, slot * SLOT, planned.bytes);
            if planned.takes_buffer() {
                let done = received.next().expect("as many as were sent");
                assert_eq!(
                    (done.bytes, done.immediate),
                    (planned.bytes, planned.immediate)
                );
                if planned.operation == RequestOpcode::Send {
                    let buffer = u32::try_from(done.work).expect("it is small");
                    let came = sge(IN, buffer * SLOT, planned.bytes);
                    assert!(there.gather(came) == here.gather(body), "send {slot}");
                }
            }
            match planned.operation {
                RequestOpcode::Write { .. } => {
                    assert!(there.gather(target) == here.gather(body), "write {slot}");
                }
                RequestOpcode::Read { .. } => {
                    assert!(here.gather(body) == there.gather(target), "read {slot}");
                }
                RequestOpcode::FetchAdd { add, .. } => {
                    assert_eq!(here.gather(body), sum.to_ne_bytes(), "atomic {slot}");
                    sum += add;
                }
                _ => {}
            }
        }
        assert_eq!(*there.bytes(WORD), sum.to_ne_bytes());
    }
}

impl Planned {
    fn takes_buffer(&self) -> bool {
        self.operation == RequestOpcode::Send || self.immediate.is_some()
    }

    /// The local memory of the request in this slot.
    fn sge(&self, slot: u32) -> RoceSge {
        let fetches = !matches!(
            self.operation,
            RequestOpcode::Send | RequestOpcode::Write { .. }
        );
        sge(if fetches { BACK } else { OUT }, slot * SLOT, self.bytes)
    }
}

/// Random attributes of two ends that match each other.
fn configs(dice: &mut Dice) -> (Config, Config) {
    let mtus = [256, 512, 1024, 320].map(|bytes| PathMtu::new(bytes).expect("a multiple of 64"));
    let firsts = [0, Psn::MASK, Psn::MASK - 20, 77].map(Psn::new);
    let depth = [1, 2, 16][dice.index(3)];
    let ours = dice.below(3);
    // Only rmpi peers may have an MTU that is no power of two.
    let mtu = mtus[dice.index(if ours > 0 { 4 } else { 3 })];
    let a = Config {
        sq_psn: firsts[dice.index(4)],
        rq_psn: firsts[dice.index(4)],
        path_mtu: mtu,
        send_depth: [3, 16, 64][dice.index(3)],
        window_packets: [1, 5, 32, 128][dice.index(4)],
        read_packets: [1, 4, 32][dice.index(3)],
        initiator_depth: depth,
        responder_depth: depth,
        target_delay_ns: [0, 5_000, 500_000][dice.index(3)],
        timeout: 6,
        peer_is_rmpi: ours > 0,
        selective_repeat: ours > 1,
        pads_responses: ours > 1 && dice.permille(500),
        ack_delay_ns: [0, 0, 20_000, 200_000][dice.index(4)] * u64::from(ours > 0),
        floor_ns: [0, 100_000][dice.index(2)],
        min_rnr_timer: 1,
        ..Config::new(1, 2, end::address(2))
    };
    let b = Config {
        number: 2,
        remote_number: 1,
        to: end::address(1),
        sq_psn: a.rq_psn,
        rq_psn: a.sq_psn,
        window_packets: [1, 5, 32, 128][dice.index(4)],
        ..a
    };
    (a, b)
}

/// A random request for a slot. The last request of a plan is always signaled, so that the test observes its end.
fn planned(dice: &mut Dice, slot: u32) -> Planned {
    let (remote, key) = (address(OPEN) + u64::from(slot * SLOT), OPEN);
    let operation = match dice.below(8) {
        0..=2 => RequestOpcode::Send,
        3 | 4 => RequestOpcode::Write {
            address: remote,
            key,
        },
        5 | 6 => RequestOpcode::Read {
            address: remote,
            key,
        },
        _ => RequestOpcode::FetchAdd {
            address: address(WORD),
            key: WORD,
            add: dice.below(1000),
        },
    };
    let bytes = match operation {
        RequestOpcode::FetchAdd { .. } => 8,
        _ => u32::try_from([dice.below(20), dice.below(600), dice.below(6001)][dice.index(3)])
            .expect("it is small"),
    };
    let sends = matches!(operation, RequestOpcode::Send | RequestOpcode::Write { .. });
    Planned {
        operation,
        bytes,
        inline: sends && dice.permille(300),
        immediate: (sends && dice.permille(300)).then(|| slot.to_be_bytes()),
        signaled: slot == REQUESTS - 1 || dice.permille(500),
    }
}
