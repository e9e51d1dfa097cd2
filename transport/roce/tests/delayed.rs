// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of delayed acknowledgements between two rmpi peers: they are sent after the next request, or when their time
//! has passed.

mod common;

use common::arena::sge;
use common::by_hand::{ByHand, brief};
use common::end::{End, config, end};
use roce::{Config, RequestBody, RequestOpcode, RoceRequest};

const OURS: u32 = 0x00ff_fffe;
const THEIRS: u32 = 100;
const SEND: u8 = 4;
const ACKNOWLEDGE: u8 = 0x11;
const DELAY_NS: u64 = 1000;

fn delayed() -> Config {
    Config {
        peer_is_rmpi: true,
        ack_delay_ns: DELAY_NS,
        ..config()
    }
}

/// An end with receive buffers.
fn ready() -> End {
    let mut end = end(delayed());
    for work in 0..16 {
        end.receives.post(work, sge(8, 0, 100));
    }
    end
}

/// Delivers a message of the peer, in one packet.
fn send_to(end: &mut End, now_ns: u64, number: u32, ack_request: bool) {
    let packet = ByHand::new(SEND, THEIRS + number, b"hello");
    let packet = packet.with(|bth| bth.ack_request = ack_request);
    packet.to(end, now_ns);
}

fn post(end: &mut End, work: u64, signaled: bool) {
    let request = RoceRequest {
        work,
        operation: RequestOpcode::Send,
        body: RequestBody::Inline(b"hello"),
        immediate: None,
        signaled,
    };
    end.pair.post(&request).expect("there is room");
}

#[test]
fn option_is_refused_for_foreign_peers() {
    let foreign = Config {
        peer_is_rmpi: false,
        ..delayed()
    };
    assert_eq!(foreign.check().unwrap_err().field, "ack_delay_ns");
}

#[test]
fn unrequested_ack_is_delayed_and_sent_once() {
    let mut end = ready();
    send_to(&mut end, 5, 0, false);
    send_to(&mut end, 500, 1, false);
    assert_eq!(brief(&end.leaving(501)), []);
    assert_eq!(end.pair.deadline(), Some(5 + DELAY_NS));
    let left = end.leaving(5 + DELAY_NS);
    assert_eq!(brief(&left), [(ACKNOWLEDGE, THEIRS + 1)], "of both");
    assert_eq!(end.pair.deadline(), None);
    assert_eq!(brief(&end.leaving(1_000_000)), []);
}

#[test]
fn delayed_ack_follows_queued_requests() {
    let mut end = ready();
    send_to(&mut end, 0, 0, false);
    post(&mut end, 1, false);
    post(&mut end, 2, false);
    let left = brief(&end.leaving(1));
    assert_eq!(
        left,
        [(SEND, OURS), (SEND, OURS + 1), (ACKNOWLEDGE, THEIRS)]
    );
    assert_eq!(brief(&end.leaving(2)), []);
    // It is too early for a second delayed acknowledgement.
    send_to(&mut end, 3, 1, false);
    post(&mut end, 3, false);
    assert_eq!(brief(&end.leaving(4)), [(SEND, 0)]);
    let acknowledged = brief(&end.leaving(3 + DELAY_NS));
    assert_eq!(acknowledged, [(ACKNOWLEDGE, THEIRS + 1)]);
}

#[test]
fn requested_ack_is_immediate_and_cumulative() {
    let mut end = ready();
    send_to(&mut end, 0, 0, false);
    send_to(&mut end, 1, 1, true);
    assert_eq!(brief(&end.leaving(1)), [(ACKNOWLEDGE, THEIRS + 1)]);
    assert_eq!(brief(&end.leaving(1_000_000)), []);
}

#[test]
fn ack_is_requested_when_signaled_or_after_many() {
    let mut end = ready();
    post(&mut end, 0, false);
    post(&mut end, 1, true);
    let ack_request: Vec<bool> = end.leaving(0).iter().map(|seen| seen.ack_request).collect();
    assert_eq!(ack_request, [false, true]);
    for work in 0..40 {
        post(&mut end, work, false);
    }
    let acks_requested = end
        .leaving(0)
        .iter()
        .filter(|seen| seen.ack_request)
        .count();
    assert!((1..=10).contains(&acks_requested), "{acks_requested} of 40");
}
