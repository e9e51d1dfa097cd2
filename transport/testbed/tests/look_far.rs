// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the fast path for network frames, which the conformance suite mixes with polls: it is used, and no other
//! event is missed because of it.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use testbed::world::{Failing, fake_on};
use testbed::{TestRank, head};
use transport::{FakeConfig, FakeNet, NetLimits};

const ROUNDS: u64 = 400;

/// Rank 0 sends numbers, and rank 1 sends them back; many of these frames must take the fast path.
async fn ping_pong(rank: &mut TestRank) {
    let other = 1 - rank.me;
    for round in 0..ROUNDS {
        if rank.me == 0 {
            rank.send(other, head(1), &round.to_ne_bytes()).await;
        }
        let (_, body) = rank.receive(other).await;
        assert_eq!(body, round.to_ne_bytes());
        if rank.me == 1 {
            rank.send(other, head(1), &round.to_ne_bytes()).await;
        }
    }
    let least = ROUNDS / 8;
    assert!(rank.far_frames > least, "{} of {ROUNDS}", rank.far_frames);
}

#[test]
fn in_order_word_takes_the_fast_path() {
    let net = FakeNet::new(FakeConfig::calm(1));
    fake_on(&net, 2, NetLimits::default(), ping_pong);
}

/// Rank 0 sends words to rank 1, and among them longer frames, which are not received as words.
async fn stream(rank: &mut TestRank) {
    for number in 0..4 * ROUNDS {
        let long = number % 7 == 3;
        if rank.me == 0 {
            let body = number.to_ne_bytes().repeat(if long { 9 } else { 1 });
            rank.send(1, head(1), &body).await;
        } else {
            let (_, body) = rank.receive(0).await;
            assert_eq!(body[..8], number.to_ne_bytes());
            assert_eq!(body.len(), if long { 72 } else { 8 });
        }
    }
    rank.barrier().await;
}

#[test]
fn words_keep_their_order_on_a_faulty_network() {
    for seed in 0..6 {
        let _failing = Failing(seed);
        let net = FakeNet::new(FakeConfig::harsh(seed));
        fake_on(&net, 2, NetLimits::default(), stream);
    }
}
