// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of processes with several ports: large messages use all ports, and the traffic of a failed port moves to
//! another port.

use transport::{Fabric, FakeConfig, FakeNet, NetLimits, Peer, WorkOutcome};

use super::job::{AT_ONCE, Job, MILLISECOND, RETRY_EXC, SECOND, size_of_frame};
use testbed::Random;
use testbed::memory::Guarded;
use testbed::pattern;
use testbed::world::Failing;

const LARGE: usize = 4 << 20;

fn on_rails(rails: &[u32]) -> Job {
    Job::on_rails(FakeConfig::calm(1), rails, AT_ONCE)
}

/// Moves a large message from rank 0 to rank 1, which reads it.
fn move_large(job: &mut Job, number: u64) {
    let body = pattern(0, number, LARGE);
    let mut source = Guarded::of(&body);
    let mut target = Guarded::new(LARGE);
    let key = job.export(0, 1, &mut source);
    // A message that announces the memory wakes the reader.
    job.send(0, 1, 8);
    job.settle();
    assert_eq!(job.read(1, 0, key, &mut target), WorkOutcome::Done);
    job.all[0].fabric.withdraw(Peer(1), key);
    assert!(target.bytes() == body, "message {number}");
    target.assert_guards();
}

/// Moves large messages from rank 0 to rank 1 until all rails between the two ranks are connected: the first messages
/// start the connections.
pub fn join_rails(job: &mut Job) {
    for number in 0..3 {
        move_large(job, number);
        job.pass(100 * MILLISECOND);
    }
}

fn read_bytes(job: &Job, rank: u32) -> Vec<u64> {
    let ports = job.ports(rank);
    ports.map(|port| job.net.stats(port).read_bytes).collect()
}

#[test]
fn large_messages_are_striped_over_all_rails() {
    for rails in 2..=4 {
        let mut job = on_rails(&[rails, rails]);
        join_rails(&mut job);
        let (before, striped) = (read_bytes(&job, 1), job.all[1].fabric.net_stats().striped);
        move_large(&mut job, 7);
        assert_eq!(job.all[1].fabric.net_stats().striped, striped + 1);
        for (before, after) in before.iter().zip(read_bytes(&job, 1)) {
            let share = LARGE as u64 / u64::from(rails);
            assert!(
                (after - before).abs_diff(share) <= 4 * 4096,
                "{after} {share}"
            );
        }
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn a_faster_rail_carries_a_larger_share() {
    for slow_at in 0..2 {
        let mut job = on_rails(&[2, 2]);
        let port = job.port(slow_at, 1);
        job.net.set_rate(port, 25_000);
        job.net.port_down(port);
        job.pass(SECOND);
        job.net.port_up(port);
        job.pass(SECOND);
        join_rails(&mut job);
        let before = read_bytes(&job, 1);
        move_large(&mut job, 7);
        let after = read_bytes(&job, 1);
        let slow = after[1] - before[1];
        assert_eq!(after[0] + after[1] - before[0] - before[1], LARGE as u64);
        assert!(slow.abs_diff(LARGE as u64 / 5) <= 2 * 4096, "{slow}");
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn large_writes_are_striped_and_small_ones_are_not() {
    let mut job = on_rails(&[2, 2]);
    join_rails(&mut job);
    for bytes in [1 << 20, 100_000] {
        let written = |job: &Job| {
            let ports = job.ports(1);
            ports
                .map(|port| job.net.stats(port).write_bytes)
                .collect::<Vec<_>>()
        };
        let before = written(&job);
        let mut target = Guarded::new(bytes);
        let mut source = Guarded::of(&pattern(1, 5, bytes));
        let key = job.export(0, 1, &mut target);
        job.send(0, 1, 8);
        job.settle();
        let (work, lease) = (job.name_work(), source.lease(0, bytes));
        let fabric = &mut job.all[1].fabric;
        assert!(
            fabric
                .post_write(Peer(0), lease, key, 0, work, None)
                .is_ok()
        );
        assert_eq!(job.end_of(1, work), WorkOutcome::Done);
        assert!(target.bytes() == source.bytes());
        target.assert_guards();
        let moved = before.iter().zip(written(&job));
        let used = moved.filter(|(before, after)| *before != after).count();
        assert_eq!(used, if bytes == 1 << 20 { 2 } else { 1 }, "{bytes} bytes");
    }
    job.assert_careful();
}

#[test]
fn processes_with_different_port_counts_communicate() {
    let mut job = on_rails(&[1, 3, 2]);
    job.assert_whole();
    join_rails(&mut job);
    assert_eq!(job.all[1].fabric.net_stats().striped, 0, "there is one way");
    for port in job.ports(1) {
        job.net.port_down(port);
        job.pass(10 * MILLISECOND);
        job.net.port_up(port);
    }
    job.assert_whole();
    job.assert_careful();
}

#[test]
fn large_messages_avoid_a_rail_without_queue_pairs() {
    for (refuser, rail) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut job = on_rails(&[2, 2]);
        job.net.fail_creates(job.port(refuser, rail), u32::MAX);
        job.assert_whole();
        join_rails(&mut job);
        // The queue pairs of the working rail break again and again, and are created again.
        let mut breaks = 0;
        for number in 0..8 {
            let body = pattern(0, 3, LARGE);
            let mut source = Guarded::of(&body);
            let mut target = Guarded::new(LARGE);
            let key = job.export(0, 1, &mut source);
            job.send(0, 1, 8);
            job.settle();
            let work = job.post_read(1, 0, key, &mut target);
            job.turn();
            if let Some(pair) = job.net.pairs(job.port(1, 1 - rail)).last() {
                job.net.break_pair_as(*pair, RETRY_EXC, number % 2 == 0);
                breaks += 1;
            }
            let outcome = job.end_of(1, work);
            assert_eq!(outcome, WorkOutcome::Done, "rail {rail} of rank {refuser}");
            assert!(target.bytes() == body);
            target.assert_guards();
            job.all[0].fabric.withdraw(Peer(1), key);
        }
        let reads = job.net.stats(job.port(1, rail)).reads;
        assert!(reads == 0 && breaks > 2, "{reads} and {breaks}");
        job.assert_whole();
        job.assert_careful();
    }
}

/// How a rail fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    Down,
    Cut,
    DeviceLost,
    QueueLost,
}

pub fn fail(job: &Job, how: Fails, rail: u32) {
    let (here, there) = (job.port(0, rail), job.port(1, rail));
    match how {
        Fails::Down => job.net.port_down(here),
        Fails::Cut => job.net.cut(here, there),
        Fails::DeviceLost => job.net.lose_device(here),
        Fails::QueueLost => job.net.lose_shared_queue(here),
    }
}

#[test]
fn messages_arrive_once_when_a_rail_fails() {
    for how in [Fails::Down, Fails::Cut, Fails::DeviceLost, Fails::QueueLost] {
        for (rail, datagrams_first) in [(0, 0), (1, 0), (0, 1000), (1, 1000)] {
            let limits = NetLimits {
                datagrams_first,
                ..AT_ONCE
            };
            let mut job = Job::on_rails(FakeConfig::calm(1), &[2, 2], limits);
            job.assert_whole();
            talk_while_it_fails(&mut job, how, rail);
            let failed_at = job.net.now_ns();
            job.settle();
            let took = job.net.now_ns() - failed_at;
            assert!(took < 20 * SECOND, "{how:?} of rail {rail} took {took} ns");
            job.assert_whole();
            job.assert_careful();
        }
    }
}

fn talk_while_it_fails(job: &mut Job, how: Fails, rail: u32) {
    for number in 0..200 {
        if number == 60 {
            fail(job, how, rail);
        }
        job.send(0, 1, size_of_frame(number));
        job.send(1, 0, size_of_frame(number));
        if number % 5 == 0 {
            job.turn();
        }
    }
}

#[test]
fn outstanding_reads_survive_a_rail_failure() {
    for how in [Fails::Down, Fails::Cut, Fails::DeviceLost, Fails::QueueLost] {
        for rail in 0..2 {
            let mut job = on_rails(&[2, 2]);
            join_rails(&mut job);
            let body = pattern(0, 3, LARGE);
            let mut source = Guarded::of(&body);
            let mut targets: Vec<Guarded> = (0..4).map(|_| Guarded::new(LARGE)).collect();
            let key = job.export(0, 1, &mut source);
            job.send(0, 1, 8);
            job.settle();
            let post = |target| job.post_read(1, 0, key, target);
            let works: Vec<_> = targets.iter_mut().map(post).collect();
            job.turn();
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

/// A message that a device has acknowledged was not necessarily received by the process: it is sent again.
#[test]
fn messages_acknowledged_by_a_lost_device_are_resent() {
    for how in [Fails::DeviceLost, Fails::QueueLost] {
        for number in [1, 10, 24] {
            let mut job = on_rails(&[2, 2]);
            job.assert_whole();
            let taken_in = job.net.stats(job.port(1, 0)).messages;
            job.all[0].is_busy = true;
            for at in 0..number {
                assert!(job.try_send(1, 0, size_of_frame(at)));
            }
            job.pass(100 * MILLISECOND);
            // The count of the port includes its other traffic.
            assert!(job.net.stats(job.port(1, 0)).messages >= taken_in + number);
            fail(&job, how, 0);
            job.all[0].is_busy = false;
            job.settle();
            job.assert_whole();
            // Only the port of rank 1 is checked: the buffers of rank 0 are lost with its device.
            let never = job.net.stats(job.port(1, 0));
            assert_eq!((never.wrong, never.overruns, never.buffers_lost), (0, 0, 0));
        }
    }
}

#[test]
fn all_rails_down_and_up_again_lose_and_repeat_nothing() {
    for first_up in 0..2 {
        let mut job = on_rails(&[2, 2]);
        join_rails(&mut job);
        for rail in 0..2 {
            for number in 0..4 {
                let _ = job.try_send(0, 1, size_of_frame(number));
                let _ = job.try_send(1, 0, size_of_frame(number));
            }
            job.net.port_down(job.port(0, rail));
            job.pass(300 * MILLISECOND);
        }
        job.pass(10 * SECOND);
        job.net.move_gid(job.port(0, first_up));
        job.net.port_up(job.port(0, first_up));
        job.settle();
        job.assert_whole();
        job.net.port_up(job.port(0, 1 - first_up));
        join_rails(&mut job);
        let striped = job.all[1].fabric.net_stats().striped;
        move_large(&mut job, 9);
        assert!(
            job.all[1].fabric.net_stats().striped > striped,
            "both are used again"
        );
        job.assert_careful();
    }
}

/// For some seconds one rail, or all rails, deliver nothing.
#[test]
fn recovered_rail_carries_its_share_soon() {
    for rail in [Some(0), Some(1), None] {
        for seconds in [1, 4, 30] {
            let mut job = on_rails(&[2, 2]);
            join_rails(&mut job);
            read_while_silent(&mut job, rail, seconds);
            for number in 0..15 {
                move_large(&mut job, number);
                job.pass(100 * MILLISECOND);
            }
            let striped = job.all[1].fabric.net_stats().striped;
            move_large(&mut job, 20);
            let now = job.all[1].fabric.net_stats().striped;
            assert_eq!(now, striped + 1, "rail {rail:?} for {seconds} s");
            job.assert_whole();
            job.assert_careful();
        }
    }
}

/// Cuts the path between the two ports of a rail, or mends it (`is_silent` is `false`). Without `rail`: takes all ports
/// of rank 0 down, or up again; rank 1 does not see that.
fn silence(job: &Job, rail: Option<u32>, is_silent: bool) {
    match (rail, is_silent) {
        (Some(rail), true) => job.net.cut(job.port(0, rail), job.port(1, rail)),
        (Some(rail), false) => job.net.mend(job.port(0, rail), job.port(1, rail)),
        (None, true) => job.ports(0).for_each(|port| job.net.port_down(port)),
        (None, false) => job.ports(0).for_each(|port| job.net.port_up(port)),
    }
}

/// Silences `rail`, or all rails, for this number of seconds (see `silence`), and posts one read per second meanwhile.
/// All reads succeed, at the latest after the silence.
fn read_while_silent(job: &mut Job, rail: Option<u32>, seconds: u64) {
    let mut source = Guarded::of(&pattern(0, 1, LARGE));
    let mut targets: Vec<Guarded> = (0..seconds).map(|_| Guarded::new(LARGE)).collect();
    let key = job.export(0, 1, &mut source);
    job.pass(MILLISECOND);
    silence(job, rail, true);
    let mut works = Vec::new();
    for target in &mut targets {
        works.push(job.post_read(1, 0, key, target));
        job.pass(SECOND);
    }
    silence(job, rail, false);
    for work in works {
        assert_eq!(job.end_of(1, work), WorkOutcome::Done);
    }
    job.all[0].fabric.withdraw(Peer(1), key);
}

/// Large transfers in both directions are correct on networks with all kinds of faults.
#[test]
fn striped_transfers_survive_all_faults() {
    let (mut striped, mut done) = (0, 0);
    for seed in 1..40 {
        let _failing = Failing(seed);
        let mut job = Job::on_rails(FakeConfig::harsh(seed), &[2, 2], AT_ONCE);
        for round in 0..4 {
            for (owner, user) in [(0, 1), (1, 0)] {
                let bytes = (512 << 10) + 70_001 * round as usize;
                let body = pattern(owner, round, bytes);
                let mut source = Guarded::of(&body);
                let mut target = Guarded::new(bytes);
                let key = job.export(owner, user, &mut source);
                job.send(owner, user, 8);
                job.settle();
                // A device with few queue pairs may have none left: then the caller has to use another path.
                let outcome = job.read(user, owner, key, &mut target);
                let is_done = outcome == WorkOutcome::Done;
                assert!(
                    is_done || outcome == WorkOutcome::Unreachable,
                    "{outcome:?}"
                );
                assert!(!is_done || target.bytes() == body);
                done += u32::from(is_done);
                target.assert_guards();
                job.all[owner as usize].fabric.withdraw(Peer(user), key);
            }
        }
        job.settle();
        job.assert_careful();
        let stats = job.all.iter().map(|process| process.fabric.net_stats());
        striped += stats.map(|stats| stats.striped).sum::<u64>();
    }
    assert!(
        striped > 40 && done > 250,
        "{striped} were shared, {done} done"
    );
}

#[test]
fn each_rail_reaches_its_own_network_only() {
    let mut job = on_rails(&[2, 2, 2]);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        for rail in 0..2 {
            job.net.cut(job.port(one, rail), job.port(other, 1 - rail));
        }
    }
    job.assert_whole();
    join_rails(&mut job);
    assert!(job.all[1].fabric.net_stats().striped > 0);
    job.assert_careful();
}

#[test]
fn unconnected_first_rail_is_detected() {
    for datagrams_first in [0, 1000] {
        let limits = NetLimits {
            datagrams_first,
            ..AT_ONCE
        };
        let mut job = Job::on_rails(FakeConfig::calm(1), &[2, 2], limits);
        job.net.cut(job.port(0, 0), job.port(1, 0));
        let before = job.net.now_ns();
        job.assert_whole();
        let took = job.net.now_ns() - before;
        assert!(took < 20 * SECOND, "{took} ns");
        job.assert_careful();
    }
}

#[test]
fn a_process_is_lost_with_its_last_rail_and_not_before() {
    let mut job = on_rails(&[2, 2]);
    job.assert_whole();
    job.net.lose_device(job.port(0, 1));
    job.pass(SECOND);
    job.assert_whole();
    job.net.lose_device(job.port(0, 0));
    job.until("rank 0 gives rank 1 up", |job| job.all[0].lost == [1]);
    assert!(
        job.why_lost(0, 1).contains("is lost"),
        "{}",
        job.why_lost(0, 1)
    );
}

#[test]
fn vanished_process_is_given_up_on_all_rails() {
    let mut job = on_rails(&[2, 2]);
    job.assert_whole();
    for port in job.ports(1) {
        job.net.vanish(port);
    }
    job.all[1].is_busy = true;
    job.send(0, 1, 40);
    job.until("it is given up", |job| job.all[0].lost == [1]);
    assert!(
        job.why_lost(0, 1).contains("120 s"),
        "{}",
        job.why_lost(0, 1)
    );
}

#[test]
fn a_peer_that_computes_is_not_lost_when_a_rail_fails_meanwhile() {
    let mut job = on_rails(&[2, 2]);
    join_rails(&mut job);
    job.net.pause(job.port(1, 0), 600 * SECOND);
    for _ in 0..20 {
        let _ = job.try_send(0, 1, 40);
    }
    job.pass(SECOND);
    job.net.port_down(job.port(0, 0));
    for _ in 0..20 {
        let _ = job.try_send(0, 1, 3000);
    }
    job.pass(601 * SECOND);
    job.net.port_up(job.port(0, 0));
    job.settle();
    job.assert_whole();
    job.assert_careful();
}

#[test]
fn corrupt_address_record_loses_only_its_peer() {
    let mut random = Random(5);
    for round in 0..200 {
        let net = FakeNet::new(FakeConfig::calm(1));
        let mut all: Vec<Fabric> = (0..3)
            .map(|me| Fabric::faked_on_rails(&net, Peer(me), 3, 2, AT_ONCE))
            .collect();
        let good = all[1].network_record().unwrap();
        let mut bad = all[2].network_record().unwrap();
        match round % 4 {
            0 => bad.truncate(random.word() as usize % 50),
            1 => bad.iter_mut().for_each(|byte| *byte = random.word() as u8),
            2 => bad[1] = random.word() as u8,
            _ => {
                let at = random.word() as usize % 50;
                bad[at] ^= 1 << (random.word() % 8);
            }
        }
        all[0].set_peer_address(Peer(2), &bad);
        all[0].set_peer_address(Peer(1), &good);
        let head = testbed::head(4);
        let _ = all[0].post_send(Peer(2), head, &[7; 40]);
        assert!(all[0].post_send(Peer(1), head, &[7; 40]).is_ok());
        let mut completions = transport::Completions::new();
        for _ in 0..50 {
            all.iter_mut()
                .for_each(|fabric| fabric.poll(&mut completions));
            net.advance();
        }
        assert_eq!(all[0].why_lost(Peer(1)), None);
    }
}

/// A further rail costs the memory of its buffers and queues, and some hundred bytes for each active peer.
#[test]
fn memory_per_rail_is_bounded() {
    let memory = |rails| {
        let net = FakeNet::new(FakeConfig::calm(1));
        let fabric = Fabric::faked_on_rails(&net, Peer(0), 10_000, rails, NetLimits::default());
        fabric.net_memory()
    };
    let (one, four) = (memory(1), memory(4));
    assert!(four.0 - one.0 <= 3 * (600 << 10), "{} to {}", one.0, four.0);
    assert!(four.1 - one.1 <= 3 * (4 << 20), "{} to {}", one.1, four.1);
}
