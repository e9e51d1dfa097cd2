// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of reads on devices without RDMA READ: the owner of the data writes them instead, with the same outcome as
//! that of a read.

use transport::{FakeConfig, Head, NetLimits, Peer, RemoteKey, WorkOutcome};

use super::job::{AT_ONCE, Job, MILLISECOND, RETRY_EXC, SECOND};
use super::rails::{Fails, fail, join_rails};
use testbed::memory::{AtomicWords, Guarded, is_all};
use testbed::{head, pattern};

const BYTES: usize = 100_000;
const LARGE: usize = 4 << 20;
/// Kind of the frame with which a reader requests that the owner writes the data to it.
const FETCH: u8 = 130;
const FETCHED: u8 = 131;

/// Devices that do not support reads.
fn without_reads() -> FakeConfig {
    FakeConfig {
        reads: 0,
        atomics: false,
        ..FakeConfig::calm(1)
    }
}

fn job(ranks: u32) -> Job {
    let mut job = Job::on(without_reads(), ranks, AT_ONCE);
    job.assert_whole();
    job
}

#[test]
fn owner_writes_if_devices_cannot_read() {
    let mut job = job(3);
    for (number, bytes) in [1, 4097, BYTES, LARGE].into_iter().enumerate() {
        let body = pattern(1, number as u64, bytes);
        let mut source = Guarded::of(&body);
        let mut target = Guarded::new(bytes);
        let key = job.export(1, 0, &mut source);
        let before = job.net.stats(1).write_bytes;
        assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done);
        assert!(target.bytes() == body);
        target.assert_guards();
        assert_eq!(job.net.stats(1).write_bytes - before, bytes as u64);
        job.all[1].fabric.withdraw(Peer(0), key);
    }
    assert_eq!(job.all[0].fabric.net_stats().fetched, 4);
    for rank in 0..3 {
        assert_eq!(job.net.stats(rank).reads, 0);
    }
    job.assert_whole();
    job.assert_careful();
}

/// Writes of a device that is emulated in the kernel are split into parts, so after a lost packet only one part is
/// repeated, not the whole transfer.
#[test]
fn software_devices_split_writes() {
    let config = FakeConfig {
        in_software: true,
        ..without_reads()
    };
    let mut job = Job::on(config, 2, AT_ONCE);
    job.assert_whole();
    let body = pattern(1, 8, 300_000);
    let (mut source, mut target) = (Guarded::of(&body), Guarded::new(body.len()));
    let key = job.export(1, 0, &mut source);
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done);
    assert!(target.bytes() == body);
    assert_eq!(job.net.stats(1).writes, 5);
    job.all[1].fabric.withdraw(Peer(0), key);
    job.assert_careful();
}

/// An empty write needs no valid key; a write of 8 bytes does.
#[test]
fn empty_write_needs_no_valid_key() {
    let mut job = Job::on(FakeConfig::calm(1), 2, AT_ONCE);
    job.assert_whole();
    let mut source = Guarded::new(8);
    for (bytes, outcome) in [(0, WorkOutcome::Done), (8, WorkOutcome::Unreachable)] {
        for immediate in [None, Some(7)] {
            let (work, lease) = (job.name_work(), source.lease(0, bytes));
            let nowhere = RemoteKey::default();
            let fabric = &mut job.all[0].fabric;
            let posted = fabric.post_write(Peer(1), lease, nowhere, 0, work, immediate);
            assert!(posted.is_ok());
            assert_eq!(job.end_of(0, work), outcome);
        }
    }
    job.assert_careful();
}

/// Consecutive reads are confirmed together, by at most two empty writes.
#[test]
fn consecutive_reads_are_confirmed_together() {
    let config = FakeConfig {
        empty_read_permille: 1,
        ..FakeConfig::calm(1)
    };
    let mut job = Job::on(config, 2, AT_ONCE);
    job.assert_whole();
    let body = pattern(1, 9, 64 << 10);
    let mut source = Guarded::of(&body);
    let key = job.export(1, 0, &mut source);
    for (count, proofs) in [(8, 2), (1, 1), (3, 2)] {
        let before = job.net.stats(0);
        let mut targets: Vec<_> = (0..count).map(|_| Guarded::new(body.len())).collect();
        let posted = targets.iter_mut().map(|to| job.post_read(0, 1, key, to));
        let works: Vec<_> = posted.collect();
        for (work, target) in works.into_iter().zip(&targets) {
            assert_eq!(job.end_of(0, work), WorkOutcome::Done);
            assert!(target.bytes() == body);
        }
        let after = job.net.stats(0);
        let operations = (after.reads - before.reads, after.writes - before.writes);
        assert_eq!((operations, after.empty_reads), ((count, proofs), 0));
    }
    job.all[1].fabric.withdraw(Peer(0), key);
    job.assert_careful();
}

/// A device that is emulated in the kernel needs CPU cores during large transfers.
#[test]
fn software_devices_need_cores_during_large_transfers() {
    let config = FakeConfig {
        in_software: true,
        ..FakeConfig::calm(1)
    };
    let mut job = Job::on(config, 2, AT_ONCE);
    job.assert_whole();
    for (bytes, reads) in [(BYTES, 1), (512 << 10, 2)] {
        let body = pattern(1, 7, bytes);
        let (mut source, mut target) = (Guarded::of(&body), Guarded::new(bytes));
        let idle = |job: &Job| job.all.iter().all(|process| !process.fabric.needs_cores());
        assert!(idle(&job));
        let key = job.export(1, 0, &mut source);
        assert!(job.all[1].fabric.needs_cores());
        let work = job.post_read(0, 1, key, &mut target);
        assert!(job.all[0].fabric.needs_cores());
        assert_eq!(job.end_of(0, work), WorkOutcome::Done);
        job.all[1].fabric.withdraw(Peer(0), key);
        assert!(idle(&job));
        assert!(target.bytes() == body);
        assert_eq!(job.net.stats(0).reads, reads);
    }
    job.assert_careful();
}

#[test]
fn owner_writes_survive_a_broken_queue_pair() {
    for carried_out in [false, true] {
        for breaker in 0..2 {
            let mut job = job(2);
            let mut memory = Guarded::of(&pattern(1, 7, BYTES));
            let key = job.export(1, 0, &mut memory);
            let mut targets: Vec<_> = (0..80).map(|_| Guarded::new(BYTES)).collect();
            let post = |target| job.post_read(0, 1, key, target);
            let works: Vec<_> = targets.iter_mut().map(post).collect();
            for _ in 0..20 {
                job.turn();
            }
            let pair = job.net.pair_between(breaker, 1 - breaker).unwrap();
            job.net.break_pair_as(pair, RETRY_EXC, carried_out);
            for (work, target) in works.into_iter().zip(&targets) {
                assert_eq!(job.end_of(0, work), WorkOutcome::Done);
                assert!(target.bytes() == pattern(1, 7, BYTES));
                target.assert_guards();
            }
            let broken = |rank: usize| job.all[rank].fabric.net_stats().broken;
            assert!(broken(0) + broken(1) > 0);
            job.assert_whole();
            job.assert_careful();
        }
    }
}

#[test]
fn striped_owner_writes_survive_a_rail_failure() {
    for how in [Fails::Down, Fails::Cut, Fails::DeviceLost, Fails::QueueLost] {
        for rail in 0..2 {
            let mut job = Job::on_rails(without_reads(), &[2, 2], AT_ONCE);
            join_rails(&mut job);
            let body = pattern(0, 3, LARGE);
            let mut source = Guarded::of(&body);
            let mut targets: Vec<_> = (0..4).map(|_| Guarded::new(LARGE)).collect();
            let key = job.export(0, 1, &mut source);
            job.send(0, 1, 8);
            job.settle();
            let striped = job.all[0].fabric.net_stats().striped;
            let post = |target| job.post_read(1, 0, key, target);
            let works: Vec<_> = targets.iter_mut().map(post).collect();
            job.until("they are shared out", |job| {
                job.all[0].fabric.net_stats().striped == striped + 4
            });
            fail(&job, how, rail);
            for (work, target) in works.into_iter().zip(&targets) {
                assert_eq!(
                    job.end_of(1, work),
                    WorkOutcome::Done,
                    "{how:?} of rail {rail}"
                );
                assert!(target.bytes() == body);
                target.assert_guards();
            }
            job.assert_whole();
            job.assert_careful();
        }
    }
}

#[test]
fn fetch_without_a_queue_pair_is_unreachable() {
    for refuser in 0..2 {
        let mut job = Job::on(without_reads(), 2, AT_ONCE);
        job.net.fail_creates(refuser, u32::MAX);
        job.assert_whole();
        let mut memory = Guarded::of(&pattern(1, 7, BYTES));
        let key = job.export(1, 0, &mut memory);
        let mut target = Guarded::new(BYTES);
        assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Unreachable);
        job.net.fail_registers(0, 1);
        assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Unreachable);
        assert!(job.messages_of(0).contains("through buffers"));
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn vanished_owner_fails_its_reads() {
    for has_received in [false, true] {
        let limits = NetLimits {
            silence_ns: 5 * SECOND,
            ..AT_ONCE
        };
        let mut job = Job::on(without_reads(), 3, limits);
        job.assert_whole();
        let mut memory = Guarded::of(&pattern(1, 7, BYTES));
        let key = job.export(1, 0, &mut memory);
        let mut target = Guarded::new(BYTES);
        job.all[1].is_busy = true;
        if !has_received {
            job.net.vanish(1);
        }
        let work = job.post_read(0, 1, key, &mut target);
        // The owner's device may have received the request, but the owner does not poll.
        job.pass(SECOND / 10);
        job.net.vanish(1);
        let regions = job.net.stats(0).regions;
        assert_eq!(job.end_of(0, work), WorkOutcome::Unreachable);
        assert_eq!(job.all[0].lost, [1]);
        assert_eq!(job.net.stats(0).regions, regions - 1, "F2");
        assert!(is_all(target.bytes(), 0));
        assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Unreachable);
        job.chat_between(0, 2);
    }
}

#[test]
fn computing_owner_writes_later_and_is_not_lost() {
    let mut job = job(2);
    let mut memory = Guarded::of(&pattern(1, 7, BYTES));
    let key = job.export(1, 0, &mut memory);
    let mut target = Guarded::new(BYTES);
    job.net.pause(1, 600 * SECOND);
    let work = job.post_read(0, 1, key, &mut target);
    job.pass(601 * SECOND);
    assert_eq!(job.end_of(0, work), WorkOutcome::Done);
    assert!(target.bytes() == pattern(1, 7, BYTES));
    assert_eq!(
        job.all[0].fabric.net_stats().broken,
        0,
        "its device answers"
    );
    job.assert_whole();
    job.assert_careful();
}

#[test]
fn withdrawn_memory_is_not_written() {
    for turns in [None, Some(0), Some(6), Some(10), Some(14)] {
        let mut job = job(2);
        let mut memory = Guarded::of(&pattern(1, 7, LARGE));
        let key = job.export(1, 0, &mut memory);
        let mut targets = [Guarded::new(LARGE), Guarded::new(LARGE)];
        if turns.is_none() {
            job.all[1].fabric.withdraw(Peer(0), key);
        }
        let works = targets
            .each_mut()
            .map(|target| job.post_read(0, 1, key, target));
        for _ in 0..turns.unwrap_or(0) {
            job.turn();
        }
        job.all[1].fabric.withdraw(Peer(0), key);
        // Immediately after the withdrawal the owner may write to the memory.
        memory.bytes_mut().fill(0xaa);
        for (work, target) in works.into_iter().zip(&targets) {
            match job.end_of(0, work) {
                WorkOutcome::Done => assert!(target.bytes() == pattern(1, 7, LARGE)),
                outcome => assert_eq!(outcome, WorkOutcome::BadKey, "after {turns:?} turns"),
            }
            assert!(!target.bytes().windows(16).any(|part| is_all(part, 0xaa)));
            target.assert_guards();
        }
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn messages_from_registered_memory_complete_independently() {
    let mut job = job(2);
    let words = AtomicWords::new(&mut job.all[1].fabric, LARGE / 8);
    let whole = words.export(&mut job.all[1].fabric, 0);
    // The messages are in memory of the fabric, which is registered once, with one key.
    let mut targets: Vec<_> = (0..80).map(|_| Guarded::of(&[0xaa; 40_000])).collect();
    let mut keys = Vec::new();
    let mut works = Vec::new();
    for (number, target) in (0..).zip(&mut targets) {
        let address = whole.address + number * 40_000;
        let key = job.all[1].fabric.export(Peer(0), address, 40_000);
        works.push(job.post_read(0, 1, key, target));
        keys.push(key);
    }
    for ((work, key), target) in works.into_iter().zip(keys).zip(&targets) {
        assert_eq!(job.end_of(0, work), WorkOutcome::Done);
        assert!(is_all(target.bytes(), 0));
        job.all[1].fabric.withdraw(Peer(0), key);
    }
    job.assert_whole();
    job.assert_careful();
}

/// As rank 1, requests bytes of rank 0 with a message that the library would not send.
fn request(job: &mut Job, number: u64, (address, bytes, check): (u64, u64, u64), to: RemoteKey) {
    let words = [address, bytes, check, to.address, to.check & 0xffff_ffff, 0];
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let made = Head {
        word: number,
        ..head(FETCH)
    };
    let fabric = &mut job.all[1].fabric;
    assert!(fabric.post_send(Peer(0), made, &body).is_ok());
    job.pass(MILLISECOND);
}

#[test]
fn fetch_of_unexported_memory_is_refused() {
    let mut job = job(3);
    let bytes = BYTES as u64;
    let mut theirs = Guarded::of(&pattern(0, 1, BYTES));
    let mut of_other = Guarded::of(&pattern(0, 2, BYTES));
    let mut withdrawn = Guarded::of(&pattern(0, 3, BYTES));
    let key = job.export(0, 1, &mut theirs);
    let foreign = job.export(0, 2, &mut of_other);
    let old = job.export(0, 1, &mut withdrawn);
    job.all[0].fabric.withdraw(Peer(1), old);
    let mut target = Guarded::new(BYTES);
    let to = job.export(1, 0, &mut target);
    let invalid = [
        (key.address - 1, 16, key.check),
        (key.address + 1, bytes, key.check),
        (key.address + bytes, 1, key.check),
        (key.address, bytes + 1, key.check),
        (key.address, u64::MAX, key.check),
        (u64::MAX, 2, key.check),
        (key.address, 0, key.check),
        (0, 16, key.check),
        (foreign.address, 16, key.check),
        (foreign.address, 16, foreign.check),
        (old.address, 16, old.check),
        (key.address, 16, key.check ^ 1),
        (key.address, 16, 0),
        (key.address, 16, u64::MAX),
    ];
    for (number, range) in (1..).zip(invalid) {
        request(&mut job, number, range, to);
    }
    assert_eq!(job.net.stats(0).writes, 0);
    assert!(is_all(target.bytes(), 0));
    assert_eq!(job.net.stats(0).broken, 0);
    // A message of this form is served if the memory was exported to rank 1.
    request(&mut job, 99, (key.address + 16, 32, key.check), to);
    assert!(target.bytes()[..32] == pattern(0, 1, BYTES)[16..48]);
    // Nothing is written to a destination without a valid key.
    let nowhere = RemoteKey { check: 77, ..to };
    request(&mut job, 100, (key.address, 32, key.check), nowhere);
    assert!(is_all(&target.bytes()[32..], 0));
    job.assert_whole();
    job.assert_careful();
}

#[test]
fn fetch_completion_from_another_peer_is_refused() {
    let mut job = job(3);
    let mut memory = Guarded::of(&pattern(2, 7, BYTES));
    let key = job.export(2, 0, &mut memory);
    let mut target = Guarded::new(BYTES);
    job.all[2].is_busy = true;
    let work = job.post_read(0, 2, key, &mut target);
    for number in 0..60 {
        let made = Head {
            word: number,
            ..head(FETCHED)
        };
        let fabric = &mut job.all[1].fabric;
        assert!(fabric.post_send(Peer(0), made, &[]).is_ok());
        job.pass(MILLISECOND);
    }
    job.pass(SECOND);
    assert!(job.all[0].ended.is_empty());
    assert!(job.all[0].fabric.stats().refused >= 60);
    job.all[2].is_busy = false;
    assert_eq!(job.end_of(0, work), WorkOutcome::Done);
    assert!(target.bytes() == pattern(2, 7, BYTES));
    job.assert_whole();
    job.assert_careful();
}
