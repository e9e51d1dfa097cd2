// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of selective repeat between two ends that have agreed on it: which packets are kept, acknowledged and sent
//! again.

mod common;

use std::collections::VecDeque;

use common::arena::{address, sge};
use common::by_hand::{ACCESS, ACK, ByHand, RNR, answer, brief, set};
use common::dice::Dice;
use common::end::{self, End, config, end, numbers};
use roce::{CompletionStatus, Config, PathMtu, Psn, QueuePairState, RequestOpcode};

const FIRST: u32 = 0x00ff_fffe;
const READ: RequestOpcode = RequestOpcode::Read {
    address: 0x1000,
    key: 9,
};

fn selective() -> Config {
    Config {
        peer_is_rmpi: true,
        selective_repeat: true,
        min_rnr_timer: 1,
        ..config()
    }
}

fn post_sends(end: &mut End, count: u64) {
    for work in 0..count {
        end.post(work, RequestOpcode::Send, sge(7, 0, 1));
    }
}

fn done(end: &mut End) -> Vec<u64> {
    let done = end.sends_done();
    assert!(
        done.iter()
            .all(|done| done.status == CompletionStatus::Success)
    );
    done.iter().map(|done| done.work).collect()
}

fn received(end: &mut End) -> Vec<u64> {
    end.receives_done().iter().map(|done| done.work).collect()
}

/// Acknowledges all packets up to a PSN, and `ahead` selectively.
fn acknowledge(end: &mut End, psn: u32, ahead: &[u32]) {
    let packet = ByHand::new(0x11, psn, &[]).aeth(ACK).ahead(ahead);
    packet.to(end, 0);
}

#[test]
fn option_is_refused_for_foreign_peers() {
    let foreign = Config {
        peer_is_rmpi: false,
        ..selective()
    };
    let error = foreign.check().unwrap_err();
    assert_eq!(error.field, "selective_repeat");
}

#[test]
fn packets_ahead_are_kept_and_reported_in_the_ack() {
    let mut end = end(selective());
    for work in 0..4 {
        end.receives.post(work, sge(8, 0, 100));
    }
    for psn in [103, 101] {
        ByHand::new(4, psn, &[1]).to(&mut end, 0);
    }
    let seen = end.leaving(0);
    assert_eq!(brief(&seen), [(0x11, 99)]);
    assert_eq!(
        (seen[0].syndrome(), seen[0].ahead),
        (ACK, Some(set(&[0, 2])))
    );
    assert_eq!(received(&mut end), []);
    ByHand::new(4, 100, &[1]).to(&mut end, 0);
    assert_eq!(received(&mut end), [0, 1]);
    let seen = end.leaving(0);
    assert_eq!((seen[0].psn, seen[0].ahead), (101, Some(set(&[0]))));
    ByHand::new(4, 102, &[1]).to(&mut end, 0);
    assert_eq!(received(&mut end), [2, 3]);
    let seen = end.leaving(0);
    assert_eq!((seen[0].psn, seen[0].ahead), (103, None));
}

#[test]
fn write_packets_ahead_are_placed_but_complete_in_order() {
    let mut end = end(selective());
    end.receives.post(5, sge(8, 0, 0));
    let bytes = numbers(700);
    ByHand::new(6, 100, &bytes[..256])
        .reth(address(8), 8, 700)
        .to(&mut end, 0);
    let last = ByHand::new(9, 102, &bytes[512..]).immediate(*b"data");
    last.to(&mut end, 0);
    assert_eq!(end.arena.bytes(8)[512..700], bytes[512..]);
    assert_eq!(end.arena.bytes(8)[256..512], [0; 256]);
    assert_eq!(received(&mut end), []);
    ByHand::new(7, 101, &bytes[256..512]).to(&mut end, 0);
    assert_eq!(received(&mut end), [5]);
    assert_eq!(end.arena.bytes(8)[..700], *bytes);
}

#[test]
fn invalid_packet_ahead_is_refused_in_order() {
    let mut end = end(selective());
    let write = |psn, key| ByHand::new(0x0a, psn, &[1]).reth(address(8), key, 1);
    write(101, 99).to(&mut end, 0);
    end.leaving(0);
    assert_eq!(end.pair.state(), QueuePairState::Ready);
    write(100, 8).to(&mut end, 0);
    let seen = end.leaving(0);
    assert_eq!((seen[0].psn, seen[0].syndrome()), (101, ACCESS));
    assert_eq!(end.pair.state(), QueuePairState::Error);
}

#[test]
fn packet_ahead_without_a_receive_gets_an_rnr_nak() {
    let mut end = end(selective());
    end.receives.post(0, sge(8, 0, 100));
    ByHand::new(4, 101, &[1]).to(&mut end, 0);
    ByHand::new(4, 100, &[1]).to(&mut end, 0);
    ByHand::new(4, 102, &[1]).to(&mut end, 0);
    let seen = end.leaving(0);
    assert_eq!((seen[0].psn, seen[0].syndrome()), (101, RNR));
    for work in 1..3 {
        end.receives.post(work, sge(8, 0, 100));
    }
    ByHand::new(4, 101, &[1]).to(&mut end, 0);
    assert_eq!(received(&mut end), [0, 1, 2]);
}

#[test]
fn only_missing_packets_are_resent() {
    let mut end = end(selective());
    post_sends(&mut end, 6);
    end.leaving(0);
    acknowledge(&mut end, FIRST, &[0, 2]);
    assert_eq!(brief(&end.leaving(0)), [(4, FIRST + 1), (4, 1)]);
    assert_eq!(done(&mut end), [0]);
    acknowledge(&mut end, FIRST, &[0, 2]);
    assert_eq!(end.leaving(0), [], "that is known");
    answer(&mut end, 0, 2, ACK);
    assert_eq!(done(&mut end), [1, 2, 3, 4]);
}

#[test]
fn selectively_acknowledged_packet_is_not_completed() {
    let mut end = end(selective());
    end.post(0, READ, sge(8, 0, 1));
    post_sends(&mut end, 2);
    end.leaving(0);
    acknowledge(&mut end, FIRST - 1, &[0]);
    ByHand::new(0x10, FIRST, &[1]).aeth(ACK).to(&mut end, 0);
    assert_eq!(done(&mut end), [0]);
    answer(&mut end, 0, FIRST + 1, RNR);
    assert_eq!(brief(&end.leaving(10_000)), [(4, FIRST + 1)]);
}

#[test]
fn only_missing_read_responses_are_requested_again() {
    let mut end = end(selective());
    end.post(0, READ, sge(8, 0, 1200));
    post_sends(&mut end, 1);
    end.leaving(0);
    let bytes = numbers(1200);
    for (code, psn, at) in [(0x0d, FIRST, 0), (0x0e, 1, 768)] {
        let packet = ByHand::new(code, psn, &bytes[at..at + 256]);
        let packet = if code == 0x0d {
            packet.aeth(ACK)
        } else {
            packet
        };
        packet.to(&mut end, 0);
    }
    assert_eq!(end.arena.bytes(8)[768..1024], bytes[768..1024]);
    let again = end.leaving(0);
    assert_eq!(brief(&again), [(0x0c, FIRST + 1)]);
    let reth = again[0].reth.unwrap();
    assert_eq!((reth.address, reth.bytes), (0x1100, 512));
    answer(&mut end, 0, 3, ACK);
    let again = end.leaving(0);
    assert_eq!(
        brief(&again),
        [(0x0c, 2)],
        "the acknowledgement passes over it"
    );
    assert_eq!(again[0].reth.unwrap().bytes, 176);
    for (psn, from, to) in [(2, 1024, 1200), (FIRST + 1, 256, 512), (0, 512, 768)] {
        ByHand::new(0x10, psn, &bytes[from..to])
            .aeth(ACK)
            .to(&mut end, 0);
    }
    assert_eq!(done(&mut end), [0, 0]);
    assert_eq!(end.arena.bytes(8)[..1200], *bytes);
}

#[test]
fn repeated_parts_of_a_read_are_answered_besides_the_read() {
    let mut end = end(selective());
    let read = |psn, offset, bytes| ByHand::new(0x0c, psn, &[]).reth(address(7) + offset, 7, bytes);
    read(100, 0, 1024).to(&mut end, 0);
    for _ in 0..2 {
        end.next_on_wire(0);
    }
    read(100, 0, 256).to(&mut end, 0);
    read(103, 768, 256).to(&mut end, 0);
    let wanted = [(0x0e, 100), (0x0e, 102), (0x0e, 103)];
    assert_eq!(brief(&end.leaving(0)), wanted, "the last was on its way");
}

#[test]
fn read_response_packets_but_the_last_have_one_length() {
    let mut end = end(selective());
    ByHand::new(0x0c, 100, &[])
        .reth(address(7), 7, 900)
        .to(&mut end, 0);
    let wanted = [(0x0e, 100), (0x0e, 101), (0x0e, 102), (0x0f, 103)];
    assert_eq!(brief(&end.leaving(0)), wanted);
}

#[test]
fn one_percent_of_loss_costs_at_most_a_fifth_of_the_goodput() {
    for operation in [
        RequestOpcode::Send,
        RequestOpcode::Write {
            address: address(4),
            key: 4,
        },
        RequestOpcode::Read {
            address: address(4),
            key: 4,
        },
    ] {
        let without = Link::new(0, true, operation).run();
        let with: Vec<u64> = (1..=4)
            .map(|seed| Link::new(seed, true, operation).run())
            .collect();
        let back = Link::new(1, false, operation).run();
        println!("{operation:?}: {without} without loss, {with:?} selective, {back} going back");
        assert!(without < u64::from(PACKETS) * 21 / 20, "{without}");
        assert!(
            with.iter().all(|ticks| *ticks * 4 <= without * 5),
            "{with:?}"
        );
        assert!(back > without * 3 / 2, "{back}");
    }
}

/// A link that takes one packet per tick in each direction, and delivers it 50 ticks later. So up to 100 packets are
/// outstanding.
struct Link {
    ends: [End; 2],
    dice: Dice,
    loss_permille: u64,
    operation: RequestOpcode,
    on_link: [VecDeque<(u64, Vec<u8>)>; 2],
}

const TICK_NS: u64 = 1000;
const DELAY_TICKS: u64 = 50;
const MESSAGES: u32 = 100;
const MESSAGE_PACKETS: u32 = 64;
const PACKETS: u32 = MESSAGES * MESSAGE_PACKETS;
const MESSAGE_BYTES: u32 = 256 * MESSAGE_PACKETS;

impl Link {
    /// The link loses 1 % of all packets; with seed 0 it loses none.
    fn new(seed: u64, selective_repeat: bool, operation: RequestOpcode) -> Self {
        let config = Config {
            path_mtu: PathMtu::BYTES_256,
            window_packets: 128,
            peer_is_rmpi: true,
            selective_repeat,
            floor_ns: 4 * 2 * DELAY_TICKS * TICK_NS,
            timeout: 7,
            ..Config::new(1, 2, end::address(2))
        };
        let other = Config {
            number: 2,
            remote_number: 1,
            to: end::address(1),
            ..config
        };
        let ends = [(config, 1), (other, 2)].map(|(config, host)| {
            let mut end = End::new(config, end::address(host));
            end.arena.add(3, numbers(MESSAGE_BYTES as usize));
            end.arena.add(4, numbers(MESSAGE_BYTES as usize));
            for work in 0..MESSAGES {
                assert!(end.receives.post(work.into(), sge(4, 0, MESSAGE_BYTES)));
            }
            end
        });
        Self {
            ends,
            dice: Dice::new(seed),
            loss_permille: if seed == 0 { 0 } else { 10 },
            operation,
            on_link: [const { VecDeque::new() }; 2],
        }
    }

    /// Runs until all messages have completed; returns the number of ticks.
    fn run(mut self) -> u64 {
        for work in 0..MESSAGES {
            let body = sge(3, 0, MESSAGE_BYTES);
            self.ends[0].post(work.into(), self.operation, body);
        }
        let mut ended = 0;
        for tick in 0..u64::from(PACKETS) * 20 {
            for side in 0..2 {
                self.tick(side, tick);
            }
            ended += done(&mut self.ends[0]).len();
            if ended == MESSAGES as usize {
                return tick;
            }
        }
        panic!("it takes too long: {:?}", self.ends[0].pair.counts());
    }

    fn tick(&mut self, side: usize, tick: u64) {
        let now = tick * TICK_NS;
        let arrives = |(at, _): &mut (u64, Vec<u8>)| *at <= tick;
        while let Some((_, wire)) = self.on_link[side].pop_front_if(arrives) {
            self.ends[side].receive(now, &wire);
        }
        if let Some(wire) = self.ends[side].next_on_wire(now)
            && !self.dice.permille(self.loss_permille)
        {
            self.on_link[1 - side].push_back((tick + DELAY_TICKS, wire));
        }
    }
}

#[test]
fn outstanding_psns_stay_within_what_a_peer_keeps() {
    let mut end = end(Config {
        window_packets: 1 << 16,
        send_depth: 1000,
        sq_psn: Psn::new(0),
        ..selective()
    });
    post_sends(&mut end, 300);
    assert_eq!(end.leaving(0).len(), 256);
    let all: Vec<u32> = (0..255).collect();
    acknowledge(&mut end, Psn::MASK, &all);
    assert_eq!(brief(&end.leaving(0)), [(4, 0)], "only the missing one");
}

#[test]
fn a_response_is_padded_if_another_one_follows() {
    let mut end = end(Config {
        pads_responses: true,
        ..selective()
    });
    // The last packets of the first and the third read lack more than three quarters of a packet.
    for (psn, bytes) in [(100, 560), (103, 700), (106, 300), (108, 700), (111, 500)] {
        let read = ByHand::new(0x0c, psn, &[]).reth(address(7), 7, bytes);
        read.to(&mut end, 0);
    }
    let seen = end.leaving(0);
    let lengths: Vec<usize> = seen.iter().map(|seen| seen.payload.len()).collect();
    let whole = 256;
    assert_eq!(
        lengths,
        [
            [whole, whole, 48].as_slice(),
            &[whole, whole, whole],
            &[whole, 44],
            &[whole, whole, whole],
            &[whole, 244],
        ]
        .concat()
    );
    let padded = &seen[5];
    assert_eq!((padded.code, padded.psn), (0x0e, 105));
    assert_eq!(padded.payload[..188], numbers(8192)[512..700]);
    assert_eq!(padded.payload[188..], [0; 68]);
}

#[test]
fn padding_of_a_response_is_dropped() {
    let mut end = end(selective());
    end.post(0, READ, sge(8, 0, 300));
    end.leaving(0);
    ByHand::new(0x0e, FIRST, &[1; 256]).to(&mut end, 0);
    let mut last = [2; 256];
    last[44..].fill(3);
    ByHand::new(0x0e, FIRST + 1, &last[..100]).to(&mut end, 0);
    assert_eq!(done(&mut end), [], "of no valid length");
    ByHand::new(0x0e, FIRST + 1, &last).to(&mut end, 0);
    assert_eq!(done(&mut end), [0]);
    assert_eq!(end.arena.bytes(8)[256..300], [2; 44]);
    assert_eq!(end.arena.bytes(8)[300..400], [0; 100]);
}
