// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of small data in unregistered memory, which pass through bounce buffers: every byte arrives, the memory itself
//! is not registered, and no buffer is reused too early.

use transport::{Fabric, FakeConfig, FakeNet, NetLimits, Peer, RemoteKey, WorkOutcome};

use super::job::{AT_ONCE, Job, RETRY_EXC, SECOND};
use testbed::memory::{Guarded, is_all};
use testbed::pattern;

/// The largest size that is copied, in bytes.
const MOST: usize = 64 << 10;
/// Number of bounce buffers for each direction.
const BUFFERS: usize = 16;

fn job() -> Job {
    let mut job = Job::calm(3, AT_ONCE);
    job.assert_whole();
    job
}

fn offer(job: &mut Job, owner: u32, user: u32, memory: &mut Guarded) -> RemoteKey {
    let bytes = memory.bytes().len();
    let address = memory.lease(0, bytes).address();
    let fabric = &mut job.all[owner as usize].fabric;
    fabric.offer(Peer(user), address, bytes as u64)
}

/// Rank 0 reads one message that rank 1 offers.
fn carry(job: &mut Job, number: u64, bytes: usize) {
    let body = pattern(1, number, bytes);
    let mut source = Guarded::of(&body);
    let mut target = Guarded::new(bytes);
    let key = offer(job, 1, 0, &mut source);
    // Offered data may be copied to a bounce buffer; then the read does not access `source`.
    source.assert_guards();
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done);
    assert!(target.bytes() == body, "message {number} of {bytes} bytes");
    target.assert_guards();
    job.all[1].fabric.withdraw(Peer(0), key);
}

fn registered(job: &Job) -> (u64, u64) {
    let of = |rank: usize| job.all[rank].fabric.net_stats().registered;
    (of(0), of(1))
}

#[test]
fn small_data_are_registered_once_and_large_ones_each_time() {
    let mut job = job();
    carry(&mut job, 0, MOST);
    let first = registered(&job);
    // Sizes around the pieces of 1024 bytes, and other sizes.
    let sizes = [1, 7, 1023, 1024, 1025, 4096, 10_001, MOST - 1, MOST];
    for (number, bytes) in (1..).zip(sizes) {
        carry(&mut job, number, bytes);
    }
    assert_eq!(registered(&job), first);
    carry(&mut job, 99, MOST + 1);
    assert_eq!(registered(&job), (first.0 + 1, first.1 + 1));
    job.assert_whole();
    job.assert_careful();
}

#[test]
fn messages_above_copied_bytes_are_not_copied() {
    for (copied_bytes, is_copied) in [(0, false), (4999, false), (5000, true)] {
        let limits = NetLimits {
            copied_bytes,
            ..AT_ONCE
        };
        let mut job = Job::calm(2, limits);
        job.assert_whole();
        carry(&mut job, 0, 5000);
        let first = registered(&job);
        carry(&mut job, 1, 5000);
        assert_eq!(registered(&job) == first, is_copied, "{copied_bytes}");
        job.assert_careful();
    }
}

#[test]
fn source_of_a_bounced_offer_may_be_overwritten() {
    let mut job = job();
    let mut source = Guarded::of(&pattern(1, 7, 5000));
    let mut target = Guarded::new(5000);
    let key = offer(&mut job, 1, 0, &mut source);
    source.bytes_mut().fill(0xaa);
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done);
    assert!(target.bytes() == pattern(1, 7, 5000));
    // Exported memory is not copied: a peer may write to it.
    let key = job.export(1, 0, &mut source);
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done);
    assert!(is_all(target.bytes(), 0xaa));
}

#[test]
fn messages_beyond_the_bounce_buffers_are_registered() {
    const MESSAGES: u64 = 3 * BUFFERS as u64;
    let mut job = job();
    for round in 0..3 {
        let body = |number| pattern(1, 100 * round + number, 20_000);
        let mut sources: Vec<_> = (0..MESSAGES).map(|n| Guarded::of(&body(n))).collect();
        let mut targets: Vec<_> = (0..MESSAGES).map(|_| Guarded::new(20_000)).collect();
        let before = registered(&job);
        let keys: Vec<_> = sources
            .iter_mut()
            .map(|source| offer(&mut job, 1, 0, source))
            .collect();
        let post = |(key, target): (&RemoteKey, &mut Guarded)| job.post_read(0, 1, *key, target);
        let works: Vec<_> = keys.iter().zip(&mut targets).map(post).collect();
        for (number, work) in (0..).zip(works) {
            assert_eq!(job.end_of(0, work), WorkOutcome::Done);
            assert!(targets[number as usize].bytes() == body(number));
        }
        for key in keys {
            job.all[1].fabric.withdraw(Peer(0), key);
        }
        let after = registered(&job);
        let more = (after.0 - before.0, after.1 - before.1);
        let most = if round == 0 {
            MESSAGES
        } else {
            MESSAGES - BUFFERS as u64
        };
        assert_eq!(more, (most, most), "round {round}");
    }
    job.assert_careful();
}

/// Reads complete in a different order from that of posting, and are posted again after breaks; meanwhile buffers are
/// released and used for other messages.
#[test]
fn bounced_data_survive_loss_and_broken_queue_pairs() {
    for seed in 0..12 {
        let config = FakeConfig {
            loss_permille: 50,
            ..FakeConfig::calm(seed)
        };
        let mut job = Job::on(config, 2, AT_ONCE);
        job.assert_whole();
        for round in 0..8 {
            let body = |number| pattern(1, 1000 * seed + 10 * round + number, 9000);
            let mut sources: Vec<_> = (0..6).map(|n| Guarded::of(&body(n))).collect();
            let mut targets: Vec<_> = (0..6).map(|_| Guarded::new(9000)).collect();
            let mut works = Vec::new();
            for (source, target) in sources.iter_mut().zip(&mut targets) {
                let key = offer(&mut job, 1, 0, source);
                works.push((key, job.post_read(0, 1, key, target)));
            }
            for _ in 0..(seed + round) % 7 {
                job.turn();
            }
            if let Some(pair) = job.net.pair_between(0, 1).filter(|_| round % 2 == 0) {
                job.net.break_pair_as(pair, RETRY_EXC, seed % 2 == 0);
            }
            for (number, (key, work)) in (0..).zip(works) {
                assert_eq!(job.end_of(0, work), WorkOutcome::Done, "seed {seed}");
                assert!(
                    targets[number as usize].bytes() == body(number),
                    "seed {seed}"
                );
                job.all[1].fabric.withdraw(Peer(0), key);
            }
        }
        job.assert_no_peer_lost();
        job.assert_careful();
    }
}

#[test]
fn failed_read_leaves_the_target_unchanged() {
    let mut job = job();
    let mut source = Guarded::of(&pattern(1, 7, 5000));
    let key = job.export(1, 0, &mut source);
    job.all[1].fabric.withdraw(Peer(0), key);
    let mut target = Guarded::new(5000);
    // Now the bounce buffer contains another message.
    carry(&mut job, 8, 5000);
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::BadKey);
    assert!(is_all(target.bytes(), 0), "B2");
    job.assert_whole();
}

#[test]
fn bounce_buffer_of_a_lost_peer_gets_a_new_key() {
    let limits = NetLimits {
        silence_ns: 5 * SECOND,
        ..AT_ONCE
    };
    let mut job = Job::calm(3, limits);
    job.assert_whole();
    let mut source = Guarded::of(&pattern(1, 7, 5000));
    let device_key = |key: RemoteKey| key.check as u32;
    // The device key of a buffer is unchanged if the buffer is used for one live peer after another.
    let first = offer(&mut job, 1, 0, &mut source);
    job.all[1].fabric.withdraw(Peer(0), first);
    let second = offer(&mut job, 1, 2, &mut source);
    assert_eq!(device_key(first), device_key(second));
    job.net.vanish(2);
    assert!(job.try_send(1, 2, 100));
    job.until("it is lost", |job| job.all[1].lost == [2]);
    job.all[1].fabric.withdraw(Peer(2), second);
    let third = offer(&mut job, 1, 0, &mut source);
    assert_eq!(third.address, second.address, "the same buffer");
    assert_ne!(device_key(third), device_key(second), "B3");
    let mut target = Guarded::new(5000);
    assert_eq!(job.read(0, 1, third, &mut target), WorkOutcome::Done);
    assert!(target.bytes() == pattern(1, 7, 5000));
}

/// On devices without reads the owner writes the data to the reader. If the memory is withdrawn during the write, no
/// other data are written to the reader.
#[test]
fn bounce_buffer_withdrawn_during_a_write_gets_a_new_key() {
    let config = FakeConfig {
        reads: 0,
        atomics: false,
        ..FakeConfig::calm(1)
    };
    let mut changed = 0;
    for turns in 0..24 {
        let mut job = Job::on(config, 3, AT_ONCE);
        job.assert_whole();
        let mut source = Guarded::of(&pattern(1, 7, MOST));
        let mut target = Guarded::new(MOST);
        let key = offer(&mut job, 1, 0, &mut source);
        let work = job.post_read(0, 1, key, &mut target);
        for _ in 0..turns {
            job.turn();
        }
        job.all[1].fabric.withdraw(Peer(0), key);
        source.bytes_mut().fill(0xaa);
        let next = offer(&mut job, 1, 2, &mut source);
        assert_eq!(next.address, key.address, "the same buffer");
        changed += u32::from(next.check as u32 != key.check as u32);
        match job.end_of(0, work) {
            WorkOutcome::Done => assert!(target.bytes() == pattern(1, 7, MOST)),
            outcome => assert_eq!(outcome, WorkOutcome::BadKey, "after {turns} turns"),
        }
        assert!(!target.bytes().windows(16).any(|part| is_all(part, 0xaa)));
        assert_eq!(job.read(2, 1, next, &mut target), WorkOutcome::Done);
        assert!(is_all(target.bytes(), 0xaa));
        job.assert_careful();
    }
    assert!(changed > 0, "none was withdrawn amid a write");
}

#[test]
fn device_loss_completes_outstanding_reads() {
    for turns in 0..8 {
        let mut job = job();
        let mut source = Guarded::of(&pattern(1, 7, MOST));
        let key = offer(&mut job, 1, 0, &mut source);
        let mut target = Guarded::new(MOST);
        let work = job.post_read(0, 1, key, &mut target);
        for _ in 0..turns {
            job.turn();
        }
        job.net.lose_device(0);
        match job.end_of(0, work) {
            WorkOutcome::Done => assert!(target.bytes() == pattern(1, 7, MOST)),
            outcome => {
                assert_eq!(outcome, WorkOutcome::Unreachable);
                assert!(is_all(target.bytes(), 0), "B2");
            }
        }
    }
}

#[test]
fn bounce_buffers_follow_a_rail_change() {
    let mut job = Job::on_rails(FakeConfig::calm(1), &[2, 2], AT_ONCE);
    job.assert_whole();
    carry(&mut job, 0, MOST);
    for round in 0..3 {
        for rank in 0..2 {
            let port = job.port(rank, round % 2);
            job.net.port_down(port);
        }
        job.assert_whole();
        (1..20).for_each(|number| carry(&mut job, number, 5000));
        for rank in 0..2 {
            let port = job.port(rank, round % 2);
            job.net.port_up(port);
        }
        job.assert_whole();
    }
    // Each buffer is registered on one rail only.
    for process in &job.all {
        let there: u64 = job
            .ports(process.me)
            .map(|port| job.net.stats(port).region_bytes)
            .sum();
        assert_eq!(process.fabric.net_stats().registered_bytes, there);
    }
    job.assert_careful();
}

/// The requirement is at most 8 MiB of memory with 10 000 peers. Bounce buffers use only what is left of that.
#[test]
fn bounce_buffers_shrink_with_the_peer_count() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let most_of = |me: u32, peers: u32, copied_bytes: u64| {
        let limits = NetLimits {
            copied_bytes,
            ..NetLimits::DEFAULT
        };
        let fabric = Fabric::faked(&net, Peer(me), peers, limits);
        fabric.net_memory().1
    };
    let few = most_of(0, 2, MOST as u64) - most_of(1, 2, 0);
    assert_eq!(few, 2 * BUFFERS * MOST);
    let many = most_of(2, 8000, MOST as u64) - most_of(3, 8000, 0);
    assert!(many < few && many > 2 * MOST, "{many}");
    assert!(most_of(4, 8000, MOST as u64) <= 8 << 20);
    assert_eq!(most_of(5, 10_000, MOST as u64), most_of(6, 10_000, 0));
}
