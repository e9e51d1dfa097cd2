// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of when deferred frames leave, and in how many packets; the conformance suite tests that they arrive.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test code may panic; its sizes are small"
)]

use testbed::world::{Failing, fake_on};
use testbed::{TestRank, head};
use transport::{Fabric, FakeConfig, FakeNet, NetLimits, Peer};

/// Number of frames of a burst that are not deferred.
const FIRST: u64 = 8;
/// A burst of this many frames is long: of the next one only the first frame is not deferred, if that begins soon.
const LONG: u64 = 64;

fn packets(rank: &TestRank) -> u64 {
    rank.fabric.net_stats().packets
}

/// Polls once, without letting time pass.
fn poll(rank: &mut TestRank) {
    for held in rank.poll_and_hold().1 {
        rank.file(&held);
    }
}

fn post(rank: &mut TestRank, number: u64, bytes: usize) {
    let body = number.to_ne_bytes().repeat(bytes / 8);
    let posted = rank.fabric.post_deferrable(Peer(1), head(1), &body);
    assert!(posted.is_ok(), "frame {number} of {bytes} bytes");
}

/// Rank 0 sends to rank 1 until there is a queue pair, and then once more when all has been acknowledged.
async fn meet(rank: &mut TestRank) {
    for _ in 0..40 {
        if rank.me == 0 {
            rank.send(1, head(1), b"x").await;
        } else {
            rank.receive(0).await;
        }
        rank.barrier().await;
    }
}

async fn expect(rank: &mut TestRank, numbers: std::ops::Range<u64>, bytes: usize) {
    for number in numbers {
        let (_, body) = rank.receive(0).await;
        assert_eq!(body, number.to_ne_bytes().repeat(bytes / 8));
    }
}

/// Bursts of `frames` frames of `bytes` bytes, of which the deferred ones leave in `shared` packets.
async fn bursts(rank: &mut TestRank, frames: u64, bytes: usize, shared: u64) {
    meet(rank).await;
    for round in 0..3 {
        let mut first = FIRST;
        // The frames of the barrier belong to no burst.
        poll(rank);
        if rank.me == 0 {
            let before = packets(rank);
            for number in 0..frames {
                post(rank, number, bytes);
                if number == 1 && rank.fabric.has_deferred() {
                    assert!(round != 0 && frames >= LONG);
                    first = 1;
                }
                let is_deferred = number >= first;
                assert_eq!(rank.fabric.has_deferred(), is_deferred, "frame {number}");
                if number % 16 == 15 {
                    rank.fabric.begin_poll_between_sends();
                    poll(rank);
                    assert_eq!(
                        rank.fabric.has_deferred(),
                        is_deferred,
                        "a poll between sends"
                    );
                }
            }
            let left = packets(rank) - before;
            assert!(
                left < first + shared,
                "{left} packets of {frames} frames of {bytes} bytes"
            );
            while rank.fabric.has_deferred() {
                rank.pass().await;
            }
            assert_eq!(packets(rank) - before, first + shared);
        } else {
            expect(rank, 0..frames, bytes).await;
        }
        rank.barrier().await;
    }
}

#[test]
fn short_frames_of_a_burst_share_packets() {
    for (frames, bytes, shared) in [
        (FIRST + 1, 8, 1),
        (63, 8, 1),
        (65, 8, 2),
        (60, 48, 1),
        (FIRST + 32, 240, 1),
        (FIRST + 33, 240, 2),
        (FIRST + 3, 2048, 1),
        (FIRST + 4, 2048, 2),
        (FIRST + 7, 2056, 7),
    ] {
        let net = FakeNet::new(FakeConfig::calm(1));
        let limits = NetLimits {
            send_depth: 256,
            ..NetLimits::default()
        };
        fake_on(&net, 2, limits, async |rank: &mut TestRank| {
            bursts(rank, frames, bytes, shared).await;
        });
    }
}

/// Frames that are not deferrable take the deferred ones with them, in order.
#[test]
fn deferred_frames_leave_before_frames_that_are_not_deferrable() {
    let net = FakeNet::new(FakeConfig::calm(1));
    fake_on(
        &net,
        2,
        NetLimits::default(),
        async |rank: &mut TestRank| {
            meet(rank).await;
            if rank.me == 0 {
                (0..20).for_each(|number| post(rank, number, 8));
                let before = packets(rank);
                let body = 20u64.to_ne_bytes();
                rank.fabric.post_send(Peer(1), head(1), &body).unwrap();
                assert_eq!(packets(rank) - before, 2);
            } else {
                expect(rank, 0..21, 8).await;
            }
            rank.barrier().await;
        },
    );
}

async fn bursts_of_all_lengths(rank: &mut TestRank) {
    for round in 0..60 {
        let frames: u64 = 10 + 7 * round % 100;
        for number in 0..frames {
            let body = number.to_ne_bytes();
            if rank.me != 0 {
                expect(rank, number..number + 1, 8).await;
                continue;
            }
            let post = |fabric: &mut Fabric| fabric.post_deferrable(Peer(1), head(1), &body);
            while post(&mut rank.fabric).is_err() {
                rank.turn().await;
            }
        }
        if round % 4 == 0 {
            rank.barrier().await;
        }
    }
    let (stats, sent) = (rank.fabric.net_stats(), rank.fabric.stats().sends);
    if rank.me == 0 {
        assert!(
            stats.packets < sent / 2 && stats.broken > 0,
            "{sent} frames: {stats:?}"
        );
    }
}

/// Queue pairs break while frames are deferred, packets are lost, and frames arrive once and in order.
#[test]
fn deferred_frames_survive_broken_queue_pairs() {
    for seed in 0..12 {
        let _failing = Failing(seed);
        let net = FakeNet::new(FakeConfig {
            break_permille: 40,
            ..FakeConfig::calm(seed)
        });
        fake_on(&net, 2, NetLimits::default(), bursts_of_all_lengths);
    }
}
