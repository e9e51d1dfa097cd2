// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a device whose reads may succeed without having transferred data, as those of Soft-RoCE do: the user never
//! sees such a read.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use testbed::memory::Guarded;
use testbed::world::fake_on;
use testbed::{TestRank, pattern};
use transport::{FakeConfig, FakeNet, NetLimits, Peer, WorkId, WorkOutcome};

/// So many bytes that a read has more parts than may be outstanding.
const BYTES: usize = (3 << 20) + 5;
const READS: u64 = 3;

/// Both ranks read from each other at the same time, several times.
async fn read_from_each_other(rank: &mut TestRank) {
    let other = 1 - rank.me;
    let mut source = Guarded::of(&pattern(rank.me, 1, BYTES));
    let key = source.export(&mut rank.fabric, other);
    rank.send_key(other, key).await;
    let key = rank.receive_key(other).await;
    let mut targets: Vec<_> = (0..READS).map(|_| Guarded::new(BYTES)).collect();
    let mut works: Vec<WorkId> = Vec::new();
    for target in &mut targets {
        let (lease, work) = (target.lease(0, BYTES), rank.name_work());
        rank.fabric.post_read(Peer(other), lease, key, 0, work);
        works.push(work);
    }
    for work in works {
        assert_eq!(rank.end_of(work).await, WorkOutcome::Done);
    }
    for target in &targets {
        assert!(target.bytes() == pattern(other, 1, BYTES));
    }
    rank.barrier().await;
    source.assert_guards();
}

/// Runs ranks on a device on which `empty_read_permille` of 1,000 reads succeed without data; returns the number of
/// such reads.
fn count_empty_reads(seed: u64, empty_read_permille: u32) -> u64 {
    let config = FakeConfig {
        empty_read_permille,
        ..FakeConfig::calm(seed)
    };
    let net = FakeNet::new(config);
    fake_on(&net, 2, NetLimits::default(), read_from_each_other);
    let stats = [net.stats(0), net.stats(1)];
    for stats in stats {
        assert_eq!((stats.wrong, stats.overruns), (0, 0));
    }
    stats.iter().map(|stats| stats.empty_reads).sum()
}

#[test]
fn empty_reads_are_repeated() {
    let empty_reads: u64 = (0..20).map(|seed| count_empty_reads(seed, 100)).sum();
    assert!(empty_reads > 20, "{empty_reads}");
}

#[test]
fn many_empty_reads_are_repeated() {
    assert!(count_empty_reads(1, 300) > 20);
}

#[test]
fn correct_reads_are_not_repeated() {
    let config = FakeConfig::calm(1);
    assert_eq!(config.empty_read_permille, 0);
    assert_eq!(count_empty_reads(1, 0), 0);
}
