// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of settings that limit the use of devices.

use transport::{FakeConfig, FakeStats, NetLimits, NetTerms, Peer, WorkOutcome};

use super::job::{AT_ONCE, Job, MILLISECOND, SECOND};
use super::rails::join_rails;
use testbed::memory::Guarded;
use testbed::pattern;

/// Rank 1 reads this number of bytes; returns the statistics of this read for each port of rank 1.
fn read_of(job: &mut Job, bytes: usize) -> Vec<FakeStats> {
    let body = pattern(0, 1, bytes);
    let (mut source, mut target) = (Guarded::of(&body), Guarded::new(bytes));
    let key = job.export(0, 1, &mut source);
    job.send(0, 1, 8);
    job.settle();
    let seen = |job: &Job| {
        let ports = job.ports(1);
        ports.map(|port| job.net.stats(port)).collect::<Vec<_>>()
    };
    let before = seen(job);
    assert_eq!(job.read(1, 0, key, &mut target), WorkOutcome::Done);
    job.all[0].fabric.withdraw(Peer(1), key);
    assert!(target.bytes() == body);
    let more = |(before, after): (&FakeStats, FakeStats)| FakeStats {
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        ..after
    };
    before.iter().zip(seen(job)).map(more).collect()
}

#[test]
fn large_reads_are_split_by_part_bytes() {
    for part_bytes in [4 << 10, 64 << 10, 1 << 30] {
        let limits = NetLimits {
            part_bytes,
            ..AT_ONCE
        };
        let mut job = Job::calm(2, limits);
        job.assert_whole();
        let [did] = read_of(&mut job, 1 << 20)[..] else {
            panic!("one port")
        };
        assert_eq!(did.reads, ((1 << 20) / part_bytes).max(1));
        job.assert_careful();
    }
}

#[test]
fn messages_from_striped_bytes_use_all_rails() {
    for (striped_bytes, is_striped) in [(512 << 10, false), (64 << 10, true)] {
        let limits = NetLimits {
            striped_bytes,
            ..AT_ONCE
        };
        let mut job = Job::on_rails(FakeConfig::calm(1), &[2, 2], limits);
        join_rails(&mut job);
        let did = read_of(&mut job, 128 << 10);
        assert_eq!(did.iter().all(|port| port.read_bytes > 0), is_striped);
        job.assert_careful();
    }
}

#[test]
fn signal_every_limits_unsignaled_requests() {
    let signaled = |signal_every| {
        let limits = NetLimits {
            signal_every,
            ..AT_ONCE
        };
        let mut job = Job::calm(2, limits);
        job.assert_whole();
        let before = job.net.stats(0);
        for _ in 0..320 {
            job.send(0, 1, 8);
            job.turn();
        }
        job.settle();
        let after = job.net.stats(0);
        assert_eq!(after.work_requests - before.work_requests, 320);
        after.signaled - before.signaled
    };
    assert_eq!((signaled(1), signaled(4)), (320, 80));
    // If many slots wait for completions, a completion is requested more often.
    assert!((20..40).contains(&signaled(16)));
}

#[test]
fn packet_bytes_and_inline_bytes_are_respected() {
    let limits = |packet_bytes, inline_bytes| NetLimits {
        inline_bytes,
        terms: NetTerms {
            packet_bytes,
            ..NetTerms::DEFAULT
        },
        ..NetLimits::DEFAULT
    };
    // For a message that does not fit one packet, a queue pair is created immediately.
    let joined = |packet_bytes| {
        let mut job = Job::calm(2, limits(packet_bytes, 220));
        job.send(0, 1, 900);
        job.settle();
        job.joined(0)
    };
    assert_eq!((joined(256), joined(1024)), (1, 0));
    for inline_bytes in [0, 64, 512] {
        let mut job = Job::calm(2, limits(4096, inline_bytes));
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn answer_ms_sets_the_queue_pair_timeout() {
    let broken_after = |answer_ms| {
        let limits = NetLimits {
            terms: NetTerms {
                answer_ms,
                ..NetTerms::DEFAULT
            },
            ..AT_ONCE
        };
        let mut job = Job::calm(2, limits);
        job.assert_whole();
        let broken = job.net.stats(0).broken;
        job.net.cut(0, 1);
        job.send(0, 1, 8);
        let begun = job.net.now_ns();
        job.until("it breaks", |job| job.net.stats(0).broken > broken);
        let time_ns = job.net.now_ns() - begun;
        job.net.mend(0, 1);
        job.pass(10 * SECOND);
        job.assert_whole();
        time_ns
    };
    let (usual, long) = (broken_after(67), broken_after(67 * 4));
    let slack = 4 * MILLISECOND;
    assert!(
        long + slack > 4 * usual && long < 4 * usual + slack,
        "{usual} {long}"
    );
}

#[test]
fn shallow_queues_carry_all_traffic() {
    let limits = NetLimits {
        send_depth: 2,
        receive_depth: 4,
        datagram_depth: 4,
        datagram_receives: 4,
        signal_every: 64,
        part_bytes: 4 << 10,
        ..AT_ONCE
    };
    let mut job = Job::calm(3, limits);
    job.chat(200);
    job.settle();
    assert!(read_of(&mut job, 1 << 20)[0].reads == 256);
    job.assert_no_peer_lost();
    job.assert_careful();
}

#[test]
fn registered_memory_is_counted() {
    let mut job = Job::on_rails(FakeConfig::calm(1), &[2, 2], AT_ONCE);
    job.assert_whole();
    let quiet = job.all[0].fabric.net_stats();
    let mut memory = Guarded::new(1 << 20);
    let key = job.export(0, 1, &mut memory);
    let lent = job.all[0].fabric.net_stats();
    assert!(lent.registered > quiet.registered);
    assert!(lent.registered_bytes >= quiet.registered_bytes + (1 << 20));
    job.all[0].fabric.withdraw(Peer(1), key);
    job.pass(SECOND);
    let stats = job.all[0].fabric.net_stats();
    let there: u64 = job
        .ports(0)
        .map(|port| job.net.stats(port).region_bytes)
        .sum();
    let ever: u64 = job
        .ports(0)
        .map(|port| job.net.stats(port).registered)
        .sum();
    assert_eq!((stats.registered_bytes, stats.registered), (there, ever));
    assert_eq!(stats.registered_bytes, quiet.registered_bytes);
    assert_eq!(stats.registered_most_bytes, lent.registered_bytes);
}
