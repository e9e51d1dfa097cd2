// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests by the counters how often the bytes of memory with gaps are copied. Large blocks must be copied once; small
//! blocks are packed first.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; its sizes are small"
)]

mod suite {
    pub mod gaps;
    pub mod guest;
}

use crate::suite::guest::channels_of;
use channel::{ChannelCounters, ChannelDirection};
use suite::gaps::{BYTES, End, exchange, shapes};
use testbed::{TestRank, world};
use transport::{FakeConfig, FakeNet, NetLimits};

/// Sends messages from one shape to another, and returns counts without the first few messages: direct bytes and packed
/// bytes, each divided by the bytes of the messages, and writes per message.
async fn count(
    rank: &mut TestRank,
    from: usize,
    to: usize,
    scale: usize,
    is_own: bool,
) -> [u64; 3] {
    let shapes = shapes();
    let mut out = End::new(rank, ChannelDirection::Send, &shapes[from], scale, is_own);
    let mut into = End::new(rank, ChannelDirection::Receive, &shapes[to], scale, is_own);
    let counters = |rank: &mut TestRank| channels_of(&mut rank.guest).counters();
    let mut before = ChannelCounters::default();
    for number in 0..WARM + ROUNDS {
        if number == WARM {
            rank.barrier().await;
            before = counters(rank);
        }
        exchange(rank, &mut out, &mut into, number, "counted").await;
    }
    rank.barrier().await;
    let after = counters(rank);
    assert_eq!(after.allocations, before.allocations);
    assert_eq!(after.streamed_bytes + after.eager_bytes + after.refused, 0);
    while !channels_of(&mut rank.guest).is_drained() {
        rank.turn().await;
    }
    rank.barrier().await;
    out.end(rank);
    into.end(rank);
    let all = ROUNDS * (scale * BYTES) as u64;
    let times = |bytes: u64| {
        assert_eq!(bytes % all, 0, "every message is moved in the same way");
        bytes / all
    };
    [
        times(after.direct_bytes - before.direct_bytes),
        times(after.packed_bytes - before.packed_bytes),
        (after.writes - before.writes) / ROUNDS,
    ]
}

const WARM: u64 = 4;
const ROUNDS: u64 = 10;
/// Indices into [`shapes`].
const WHOLE: usize = 0;
const BLOCKS: usize = 1;
const BACKWARDS: usize = 2;
const PIECES: usize = 3;
const SMALL: usize = 4;
const TINY: usize = 5;

#[test]
fn on_one_node_only_tiny_blocks_are_packed() {
    world::shm_threads(2, async |rank| {
        for from in [WHOLE, BLOCKS, BACKWARDS, PIECES, SMALL, TINY] {
            for to in [WHOLE, BLOCKS, BACKWARDS, PIECES, SMALL] {
                let counted = count(rank, from, to, 1, false).await;
                assert_eq!(counted, [1, 0, 1], "{from} to {to}");
            }
            // The sender copies to the staging buffer of the receiver, and the receiver copies from it.
            let counted = count(rank, from, TINY, 1, false).await;
            assert_eq!(counted, [0, 1, 1], "{from} to tiny blocks");
        }
    });
}

#[test]
fn cma_memory_is_staged_only_for_small_messages() {
    world::shm_threads(2, async |rank| {
        for (from, to) in [
            (WHOLE, WHOLE),
            (BLOCKS, WHOLE),
            (WHOLE, BACKWARDS),
            (SMALL, TINY),
        ] {
            let counted = count(rank, from, to, 1, true).await;
            assert_eq!(counted, [0, 1, 1], "{from} to {to}");
        }
        for (from, to, writes) in [(WHOLE, WHOLE, 1), (BLOCKS, WHOLE, 6), (WHOLE, BACKWARDS, 6)] {
            let counted = count(rank, from, to, 3, true).await;
            assert_eq!(counted, [1, 0, writes], "much of {from} to {to}");
        }
    });
}

#[test]
fn over_a_network_large_blocks_are_written_without_a_copy() {
    for (rails, is_own) in [(1, false), (1, true), (2, false)] {
        let net = FakeNet::new(FakeConfig::calm(1));
        let limits = NetLimits::default();
        world::fake_ranks(&net, (2, rails), limits, false, async |rank| {
            for (from, to, writes) in [
                (WHOLE, WHOLE, 1),
                (WHOLE, BLOCKS, 6),
                (BACKWARDS, WHOLE, 6),
                (BLOCKS, BACKWARDS, 6),
                (PIECES, WHOLE, 3),
            ] {
                let counted = count(rank, from, to, 1, is_own).await;
                assert_eq!(counted, [1, 0, writes], "{from} to {to}, own {is_own}");
            }
            // Each end that has small blocks packs or unpacks them.
            assert_eq!(count(rank, SMALL, WHOLE, 1, is_own).await, [0, 1, 1]);
            assert_eq!(count(rank, WHOLE, SMALL, 1, is_own).await, [0, 1, 1]);
            assert_eq!(count(rank, SMALL, TINY, 1, is_own).await, [0, 2, 1]);
            assert_eq!(count(rank, SMALL, BLOCKS, 1, is_own).await, [0, 1, 6]);
        });
    }
}
