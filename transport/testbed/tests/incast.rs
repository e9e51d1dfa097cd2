// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of incast: many ranks send to one rank at the same time, with datagrams of which many are lost. Packets
//! received out of order must not occupy the buffers that the missing packets need.
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

const RANKS: u32 = 24;
const FRAMES: u32 = 60;

/// All other ranks send to rank 0; each body contains its sequence number.
async fn incast(rank: &mut TestRank) {
    if rank.me != 0 {
        for number in 0..FRAMES {
            rank.send(0, head(1), &number.to_ne_bytes()).await;
        }
        return;
    }
    for from in 1..rank.size {
        for number in 0..FRAMES {
            let (_, body) = rank.receive(from).await;
            assert_eq!(body, number.to_ne_bytes(), "from {from}");
        }
    }
}

#[test]
fn early_datagrams_leave_room_for_missing_ones() {
    for seed in 0..4 {
        let _failing = Failing(seed);
        let net = FakeNet::new(FakeConfig {
            most_delay_ns: 30_000,
            loss_permille: 300,
            ..FakeConfig::calm(seed)
        });
        let limits = NetLimits {
            // No reliable queue pair is ever created.
            pairs: 0,
            ..NetLimits::default()
        };
        fake_on(&net, RANKS, limits, incast);
    }
}

/// Number of frames to each peer: so few that none of them requests a completion, but to all peers together more than a
/// process may have outstanding.
const FEW: u32 = 14;
const MANY: u32 = 100;

/// Rank 0 sends frames to all other ranks in turn; each of them replies when it has received all its frames.
async fn fan_out(rank: &mut TestRank) {
    if rank.me != 0 {
        for number in 0..FEW {
            let (_, body) = rank.receive(0).await;
            assert_eq!(body, number.to_ne_bytes());
        }
        return rank.send(0, head(2), &[]).await;
    }
    for number in 0..FEW {
        for to in 1..rank.size {
            rank.send(to, head(1), &number.to_ne_bytes()).await;
        }
        for _ in 0..20 {
            rank.turn().await;
        }
    }
    for from in 1..rank.size {
        rank.receive(from).await;
    }
}

#[test]
fn unsignaled_packets_do_not_block_other_peers() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let limits = NetLimits {
        datagrams_first: 0,
        ..NetLimits::default()
    };
    fake_on(&net, MANY, limits, fan_out);
    let stats = net.stats(0);
    assert!(
        stats.messages > u64::from(MANY) * 10,
        "over reliable queue pairs: {stats:?}"
    );
}
