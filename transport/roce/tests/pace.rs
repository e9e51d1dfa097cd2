// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the timeouts and the pacing of a requester: how long it waits for responses, what it sends after a timeout,
//! and its window. IBTA vol. 1 section 9.7.6.1.3.

mod common;

use std::collections::VecDeque;

use common::arena::sge;
use common::by_hand::{ACK, ByHand, RNR, answer, brief};
use common::end::{End, config, end};
use roce::{CompletionStatus, Config, QueuePairState, RequestOpcode};

const FIRST: u32 = 0x00ff_fffe;
const READ: RequestOpcode = RequestOpcode::Read {
    address: 0x1000,
    key: 9,
};

/// Posts sends of one byte, with ids from 0 on.
fn post_sends(end: &mut End, count: u64) {
    for work in 0..count {
        end.post(work, RequestOpcode::Send, sge(7, 0, 1));
    }
}

/// Attributes with a response timeout of 8,192 ns.
fn impatient() -> Config {
    Config {
        timeout: 1,
        floor_ns: 0,
        ..config()
    }
}

fn statuses(end: &mut End) -> Vec<(u64, CompletionStatus)> {
    let done = end.sends_done();
    done.iter().map(|done| (done.work, done.status)).collect()
}

fn read_answer(code: u8, psn: u32, payload: &[u8]) -> ByHand {
    ByHand::new(code, psn, payload).aeth(ACK)
}

#[test]
fn s9_7_6_1_3_unanswered_packet_is_probed_up_to_the_retry_count() {
    let mut end = end(Config {
        retry_count: 2,
        ..impatient()
    });
    post_sends(&mut end, 2);
    assert_eq!(end.leaving(0).len(), 2);
    let mut now = 0;
    for wait in [8192, 16_384] {
        assert_eq!(end.pair.deadline(), Some(now + wait));
        now += wait;
        let probe = end.leaving(now);
        assert_eq!(brief(&probe), [(4, FIRST)], "one packet alone");
        assert!(probe[0].ack_request);
    }
    now += 32_768;
    assert_eq!(end.leaving(now), []);
    assert_eq!(end.pair.state(), QueuePairState::Error);
    let wanted = [
        (0, CompletionStatus::RetryExceeded),
        (1, CompletionStatus::Flushed),
    ];
    assert_eq!(statuses(&mut end), wanted);
    assert_eq!(end.pair.deadline(), None);
}

#[test]
fn retransmissions_are_marked_repeated() {
    let mut end = end(impatient());
    post_sends(&mut end, 2);
    let leaves = |end: &mut End, now_ns| {
        let outgoing = end.pair.next_outgoing(now_ns, &end.arena);
        outgoing.map(|it| it.is_repeated)
    };
    assert_eq!(
        [0; 3].map(|now| leaves(&mut end, now)),
        [Some(false), Some(false), None]
    );
    assert_eq!(
        [8192; 2].map(|now| leaves(&mut end, now)),
        [Some(true), None],
        "a probe"
    );
    answer(&mut end, 8200, FIRST, ACK);
    assert_eq!(
        [8200; 2].map(|now| leaves(&mut end, now)),
        [Some(true), None]
    );
}

#[test]
fn rest_is_resent_when_only_the_probe_is_acknowledged() {
    let mut end = end(impatient());
    post_sends(&mut end, 4);
    end.leaving(0);
    assert_eq!(brief(&end.leaving(8192)), [(4, FIRST)]);
    answer(&mut end, 8200, FIRST, ACK);
    let rest = [(4, FIRST + 1), (4, 0), (4, 1)];
    assert_eq!(brief(&end.leaving(8200)), rest);
}

#[test]
fn acknowledged_packets_are_not_resent_after_a_timeout() {
    let mut end = end(impatient());
    post_sends(&mut end, 4);
    end.leaving(0);
    end.leaving(8192);
    answer(&mut end, 8200, FIRST + 1, ACK);
    assert_eq!(
        brief(&end.leaving(8200)),
        [(4, 0)],
        "it is probed once more"
    );
    answer(&mut end, 8300, 1, ACK);
    assert_eq!(end.leaving(8300), []);
    assert_eq!(statuses(&mut end).len(), 4);
}

#[test]
fn read_probe_requests_the_rest_once() {
    let mut end = end(impatient());
    end.post(0, READ, sge(8, 0, 512));
    post_sends(&mut end, 1);
    end.leaving(0);
    assert_eq!(brief(&end.leaving(8192)), [(0x0c, FIRST)]);
    read_answer(0x0d, FIRST, &[1; 256]).to(&mut end, 8200);
    assert_eq!(end.leaving(8200), [], "the rest of the answer may come");
    read_answer(0x0f, FIRST + 1, &[1; 256]).to(&mut end, 8200);
    assert_eq!(brief(&end.leaving(8200)), [(4, 0)]);
}

#[test]
fn timeout_follows_the_measured_round_trip() {
    let mut end = end(Config {
        floor_ns: 1000,
        ..impatient()
    });
    let mut now = 0;
    for work in 0..40 {
        end.post(work, RequestOpcode::Send, sge(7, 0, 1));
        end.leaving(now);
        now += 3000;
        let psn = (FIRST + u32::try_from(work).unwrap()) & 0x00ff_ffff;
        answer(&mut end, now, psn, ACK);
    }
    post_sends(&mut end, 1);
    end.leaving(now);
    let wait = end.pair.deadline().unwrap() - now;
    assert!((3000..3100).contains(&wait), "{wait} ns");
}

#[test]
fn rmpi_peer_is_given_up_without_signs_of_life() {
    let mut end = end(Config {
        peer_is_rmpi: true,
        retry_count: 0,
        ceiling_ns: 100_000,
        silence_ns: 1_000_000,
        ..impatient()
    });
    post_sends(&mut end, 1);
    end.leaving(0);
    let wait_until = |end: &mut End, upto: u64| {
        while let Some(at) = end.pair.deadline().filter(|at| *at <= upto) {
            assert!(end.leaving(at).len() <= 1);
        }
    };
    wait_until(&mut end, 900_000);
    end.pair.note_peer_alive(900_000);
    wait_until(&mut end, 1_800_000);
    assert_eq!(end.pair.state(), QueuePairState::Ready);
    wait_until(&mut end, 2_100_000);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::RetryExceeded)]);
}

#[test]
fn cnp_or_ecn_mark_halves_the_window() {
    let mut end = end(Config {
        window_packets: 8,
        ..config()
    });
    ByHand::new(0x81, 0, &[0; 16]).to(&mut end, 0);
    assert_eq!(end.pair.window(), 4);
    post_sends(&mut end, 10);
    assert_eq!(end.leaving(0).len(), 4);
    let marked = ByHand::new(0x11, FIRST + 1, &[]).aeth(ACK);
    let marked = marked.with(|bth| bth.forward_congestion = true).aeth(ACK);
    marked.to(&mut end, 10);
    assert_eq!(
        (end.pair.window(), end.pair.counts().congestion.window_cuts),
        (3, 2)
    );
    assert_eq!(end.leaving(10).len(), 1);
    for (round, psn) in [(1, 2), (2, 5)] {
        answer(&mut end, 10 + round * 1000, psn, ACK);
        end.leaving(10 + round * 1000);
    }
    assert_eq!(end.pair.window(), 5);
}

/// A link that passes one packet in 10 µs: with 64 packets under way a round trip takes 640 µs.
#[test]
fn long_queues_cut_the_window_without_timeouts() {
    let mut end = end(Config {
        window_packets: 64,
        target_delay_ns: 50_000,
        ..config()
    });
    for work in 0..10 {
        end.post(work, RequestOpcode::Send, sge(7, 0, 8192));
    }
    let mut queue = VecDeque::from(end.leaving(0));
    for now in (10_000..10_000_000).step_by(10_000) {
        let passed = queue.pop_front();
        if let Some(seen) = passed.filter(|seen| seen.ack_request) {
            answer(&mut end, now, seen.psn, ACK);
        }
        queue.extend(end.leaving(now));
    }
    assert!(end.pair.window() < 8, "{}", end.pair.window());
    assert_eq!(statuses(&mut end).len(), 10, "without a time-out");
    assert_eq!(end.pair.counts().congestion.timeouts, 0);
}

/// The peer computes for 2 ms between two messages: that is no congestion.
#[test]
fn a_silent_peer_does_not_cut_the_window() {
    let mut end = end(Config {
        window_packets: 64,
        target_delay_ns: 50_000,
        ..config()
    });
    let mut now = 0;
    for work in 0..20 {
        end.post(work, RequestOpcode::Send, sge(7, 0, 8192));
        let left = end.leaving(now);
        now += 2_000_000;
        for seen in left.iter().filter(|seen| seen.ack_request) {
            answer(&mut end, now, seen.psn, ACK);
        }
    }
    assert_eq!((end.pair.window(), statuses(&mut end).len()), (64, 20));
}

#[test]
fn packets_sent_after_a_probe_are_not_lost() {
    let mut end = end(impatient());
    post_sends(&mut end, 1);
    end.leaving(0);
    assert_eq!(brief(&end.leaving(8192)), [(4, FIRST)], "the probe");
    post_sends(&mut end, 1);
    assert_eq!(end.leaving(8200).len(), 1);
    answer(&mut end, 8300, FIRST, ACK);
    assert_eq!(end.leaving(8300), []);
    let counts = end.pair.counts();
    assert_eq!((counts.went_back, counts.congestion.window_cuts), (0, 0));
}

#[test]
fn rnr_pause_with_all_acknowledged_leaves_no_deadline() {
    let mut end = end(impatient());
    post_sends(&mut end, 1);
    end.leaving(0);
    answer(&mut end, 10, FIRST, RNR);
    answer(&mut end, 20, FIRST, ACK);
    assert_eq!(end.leaving(1_000_000_000), []);
    assert_eq!(end.pair.deadline(), None);
}

#[test]
fn ack_of_a_retransmission_is_no_rtt_sample() {
    let mut end = end(impatient());
    post_sends(&mut end, 1);
    end.leaving(0);
    end.leaving(8192);
    answer(&mut end, 1_000_000_000, FIRST, ACK);
    post_sends(&mut end, 1);
    end.leaving(1_000_000_000);
    let wait = end.pair.deadline().unwrap() - 1_000_000_000;
    assert!(wait <= 2 * 8192, "{wait} ns");
}
