// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of devices and processes with scarce resources: queue pairs, queues, locked memory.

use transport::{Fabric, FakeConfig, FakeNet, NetLimits, Peer, RemoteKey, WorkOutcome};

use super::job::{AT_ONCE, Job, MILLISECOND, RETRY_EXC, SECOND, WRITTEN};
use testbed::memory::Guarded;
use testbed::pattern;

#[test]
fn datagrams_replace_unavailable_queue_pairs() {
    for refuser in [0, 1] {
        let mut job = Job::calm(2, AT_ONCE);
        job.net.fail_creates(refuser, u32::MAX);
        job.assert_whole();
        assert_eq!((job.joined(0), job.joined(1)), (0, 0));
        let stats = job.net.stats(0);
        assert_eq!((stats.messages, stats.broken), (0, 0));
        // Without a queue pair reads are impossible, which is reported to the caller.
        let mut memory = Guarded::of(&pattern(1, 7, 5000));
        let key = job.export(1, 0, &mut memory);
        let mut target = Guarded::new(5000);
        assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Unreachable);
        job.assert_whole();
        job.assert_careful();
        // Later the device has room for queue pairs.
        job.net.fail_creates(refuser, 0);
        job.until("a queue pair", |job| {
            job.chat(1);
            job.pass(10_000_000);
            job.joined(0) > 0
        });
        assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done);
        job.assert_whole();
    }
}

#[test]
fn registration_failure_is_reported_once_and_uses_buffers() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    let mut memory = Guarded::of(&pattern(1, 7, 5000));
    let key = job.export(1, 0, &mut memory);
    job.net.fail_registers(1, 2);
    for _ in 0..2 {
        assert_eq!(job.export(1, 0, &mut memory), RemoteKey::default());
    }
    // Two registrations fail: of a staging buffer, and of the memory itself.
    job.net.fail_registers(0, 2);
    let mut target = Guarded::new(5000);
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Unreachable);
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done);
    job.assert_whole();
    for rank in [0, 1] {
        let messages = &job.all[rank].messages;
        assert_eq!(messages.len(), 1, "once: {messages:?}");
        for part in [
            "5000 bytes",
            "ibv_reg_mr",
            "locked memory",
            "through buffers",
        ] {
            assert!(messages[0].contains(part), "no {part:?} in {messages:?}");
        }
    }
    job.assert_careful();
}

#[test]
fn initial_buffers_suffice_if_registration_fails() {
    let mut job = Job::calm(3, AT_ONCE);
    // All further registrations fail. The initial buffers suffice, so no rank waits forever for its first slot.
    for rank in 0..3 {
        job.net.fail_registers(rank, u32::MAX);
    }
    job.assert_whole();
    job.assert_careful();
}

/// A slot becomes free when its packet is acknowledged, and the peer does not acknowledge a few packets on its own. So
/// a rank without free slots requests acknowledgements.
#[test]
fn rank_without_slots_requests_acknowledgements() {
    for (ranks, frames, bytes) in [(16, 7, 8000), (90, 15, 40)] {
        let mut job = Job::calm(ranks, AT_ONCE);
        for to in 1..ranks {
            job.send(0, to, 8);
        }
        job.settle();
        // Time until all are connected.
        job.pass(SECOND);
        for to in 1..ranks {
            job.all[to as usize].is_busy = true;
        }
        let each = (1..ranks).flat_map(|to| vec![to; frames]);
        let refused: Vec<u32> = each.filter(|to| !job.try_send(0, *to, bytes)).collect();
        let count = refused.len();
        assert!((5..100).contains(&count), "{count} find no slot");
        for to in 1..ranks {
            job.all[to as usize].is_busy = false;
            // The first acknowledgement of each peer is lost.
            job.net.drop_datagrams(to, 1);
        }
        let since = job.net.now_ns();
        for to in refused {
            job.until("there is a slot", |job| job.try_send(0, to, bytes));
        }
        let took = job.net.now_ns() - since;
        assert!(took < 300 * MILLISECOND, "{took} ns");
        job.settle();
        job.assert_no_peer_lost();
        job.assert_careful();
    }
}

#[test]
fn failed_write_registration_is_invisible_to_the_peer() {
    let mut job = Job::calm(2, AT_ONCE);
    job.send(0, 1, 40);
    job.settle();
    let mut target = Guarded::new(16);
    let key = job.export(1, 0, &mut target);
    let mut sources = [0, 1].map(|round| Guarded::of(&pattern(0, round, 16)));
    job.net.fail_registers(0, 1);
    let refused = post_write(&mut job, &mut sources[0], key, 0);
    assert_eq!(job.end_of(0, refused), WorkOutcome::Unreachable);
    job.send(0, 1, 8);
    let done = post_write(&mut job, &mut sources[1], key, 0);
    assert_eq!(job.end_of(0, done), WorkOutcome::Done);
    job.settle();
    // The order is: the first frame, the frame after the failed write, and the second write.
    assert_eq!(job.all[1].order[0], [0, 1, WRITTEN]);
    assert!(target.bytes() == pattern(0, 1, 16));
    job.assert_careful();
}

#[test]
fn idle_queue_pairs_are_evicted_for_other_peers() {
    let limits = NetLimits {
        pairs: 2,
        ..AT_ONCE
    };
    for seed in 0..5 {
        let config = FakeConfig {
            reuse_numbers: seed % 2 == 1,
            most_delay_ns: 1_000 + 10_000 * seed,
            loss_permille: 50 * seed as u32,
            ..FakeConfig::calm(seed)
        };
        let mut job = Job::on(config, 6, limits);
        // Rank 0 sends to five peers in turn, but may have only two queue pairs.
        for round in 0..15 {
            for _ in 0..30 {
                job.send(0, 1 + round % 5, 3000);
                job.turn();
            }
            job.pass(200_000_000);
        }
        assert!(job.joined(0) > 5, "{} with seed {seed}", job.joined(0));
        job.settle();
        job.assert_whole();
        for rank in 0..6 {
            let pairs = job.net.stats(rank).pairs;
            assert!(pairs <= 2, "rank {rank} has {pairs}");
        }
        let given_up: u64 = job.all.iter().map(|p| p.fabric.net_stats().given_up).sum();
        assert!(given_up > 0, "seed {seed}");
        job.assert_careful();
    }
}

#[test]
fn queues_of_any_depth_are_never_overrun() {
    for (sends, datagrams, shared, buffers) in
        [(1, 1, 1, 1), (2, 8, 40, 2), (7, 2, 3, 100), (64, 64, 8, 8)]
    {
        let config = FakeConfig {
            most_sends: sends,
            most_datagrams: datagrams,
            most_shared: shared,
            most_datagram_buffers: buffers,
            not_ready_ns: 2_000,
            ..FakeConfig::calm(3)
        };
        let mut job = Job::on(config, 4, AT_ONCE);
        job.chat(40);
        job.settle();
        job.assert_no_peer_lost();
        job.assert_careful();
    }
}

#[test]
fn few_work_requests_are_signaled() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    let before = job.net.stats(0);
    for _ in 0..1600 {
        job.send(0, 1, 40);
        job.turn();
    }
    job.settle();
    let after = job.net.stats(0);
    let posted = after.work_requests - before.work_requests;
    let signaled = after.signaled - before.signaled;
    assert!(
        posted >= 1600 && signaled <= posted / 8,
        "{signaled} of {posted}"
    );
}

#[test]
fn held_back_frames_share_doorbells() {
    const FRAMES: u64 = 28;
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    let pair = job.pair_of(0);
    job.pass(SECOND);
    let before = job.net.stats(0);
    job.net.break_pair_as(pair, RETRY_EXC, false);
    // The frames are too long for datagrams, so all wait for the next queue pair.
    for _ in 0..FRAMES {
        assert!(job.try_send(0, 1, 3000));
    }
    job.settle();
    job.pass(MILLISECOND);
    let after = job.net.stats(0);
    let rings = after.doorbells - before.doorbells;
    let posted = after.work_requests - before.work_requests;
    assert!(posted >= 2 * FRAMES, "each was posted twice: {posted}");
    assert!(rings <= FRAMES + 12, "{rings} for {posted}");
    job.assert_whole();
    job.assert_careful();
}

/// The requirement is that the memory of a rank does not grow with the size of the job.
#[test]
fn memory_is_bounded() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let two = Fabric::faked(&net, Peer(0), 2, NetLimits::default());
    let many = Fabric::faked(&net, Peer(1), 10_000, NetLimits::default());
    for fabric in [&two, &many] {
        let (now, most) = fabric.net_memory();
        assert!(now <= 1 << 20, "{now} bytes without any traffic");
        assert!(most <= 8 << 20, "{most} bytes at most");
    }
    // The reported memory includes registered memory.
    for (port, fabric) in [(0, &two), (1, &many)] {
        let registered = net.stats(port).region_bytes as usize;
        assert!(registered <= fabric.net_memory().0);
    }
}

#[test]
fn memory_under_load_stays_below_the_reported_maximum() {
    let mut job = Job::calm(8, AT_ONCE);
    let most = job.all[0].fabric.net_memory().1;
    for _ in 0..40 {
        for from in 1..8 {
            while job.try_send(from, 0, 8000) {}
            while job.try_send(0, from, 8000) {}
        }
        job.turn();
    }
    job.settle();
    for process in &job.all {
        let now = process.fabric.net_memory().0;
        assert!(now <= most, "{now} of {most}");
        let registered = job.net.stats(process.me).region_bytes as usize;
        assert!(registered <= now, "{registered} registered, {now} counted");
    }
    job.assert_careful();
}

#[test]
fn an_immediate_comes_after_its_bytes_and_in_order_across_breaks() {
    const ROUNDS: u32 = 60;
    for seed in 0..20 {
        let config = FakeConfig {
            loss_permille: 100,
            most_delay_ns: 1_000 + 2_000 * seed,
            ..FakeConfig::calm(seed)
        };
        let mut job = Job::on(config, 2, AT_ONCE);
        job.send(0, 1, 40);
        job.settle();
        let mut target = Guarded::new(16 * ROUNDS as usize);
        let key = job.export(1, 0, &mut target);
        let mut sources: Vec<_> = (0..ROUNDS)
            .map(|round| Guarded::of(&pattern(0, round.into(), 16)))
            .collect();
        let mut works = Vec::new();
        for (round, source) in (0..ROUNDS).zip(&mut sources) {
            let pair = job.net.pair_between(0, 1);
            if let Some(pair) = pair.filter(|_| u64::from(round) % 7 == seed % 7) {
                job.net.break_pair_as(pair, RETRY_EXC, seed % 2 == 0);
            }
            works.push(post_write(&mut job, source, key, round));
            job.send(0, 1, 8);
        }
        for work in works {
            assert_eq!(job.end_of(0, work), WorkOutcome::Done);
        }
        job.settle();
        // The order is: the first frame, then a write and a frame in turn.
        let order = &job.all[1].order[0];
        assert_eq!(order[0], 0);
        for (round, pair) in (0..).zip(order[1..].chunks(2)) {
            assert_eq!(pair, [WRITTEN + round, round + 1], "seed {seed}");
            let at = 16 * round as usize;
            assert!(target.bytes()[at..at + 16] == pattern(0, round, 16));
        }
        job.assert_no_peer_lost();
        job.assert_careful();
    }
}

fn post_write(
    job: &mut Job,
    source: &mut Guarded,
    key: RemoteKey,
    round: u32,
) -> transport::WorkId {
    let work = job.name_work();
    let mut lease = source.lease(0, 16);
    let offset = 16 * u64::from(round);
    loop {
        let fabric = &mut job.all[0].fabric;
        match fabric.post_write(Peer(1), lease, key, offset, work, Some(round)) {
            Ok(()) => return work,
            Err(back) => lease = back,
        }
        job.turn();
    }
}
