// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the reaction to failed work requests, for each completion status.

use transport::{Atomic, FakeConfig, NetLimits, Peer, WorkOutcome};

use super::job::{
    AT_ONCE, Job, LOC_LEN, LOC_PROT, REM_ACCESS, REM_INV_REQ, REM_OP, RETRY_EXC, RNR_RETRY_EXC,
    SECOND,
};
use testbed::memory::{AtomicWords, Guarded, is_all};
use testbed::pattern;

#[test]
fn flush_err_after_the_first_error_is_not_reported() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    let pair = job.pair_of(0);
    job.net.hold(0, pair);
    job.net.break_pair_as(pair, RETRY_EXC, false);
    for _ in 0..10 {
        assert!(job.try_send(0, 1, 40));
    }
    for _ in 0..20 {
        job.turn();
    }
    job.net.let_go(0, pair);
    job.settle();
    job.assert_whole();
    assert_eq!(job.all[0].fabric.net_stats().broken, 1);
    let messages = &job.all[0].messages;
    assert_eq!(
        messages.len(),
        1,
        "reported once, for the one that failed: {messages:?}"
    );
    assert!(!messages[0].contains("flush"), "{messages:?}");
    job.assert_careful();
}

#[test]
fn retry_exc_err_is_rebuilt_over_datagrams_and_replayed() {
    for carried_out in [false, true] {
        for seed in 0..10 {
            let config = FakeConfig {
                loss_permille: 200,
                duplicate_permille: 100,
                most_delay_ns: 20_000,
                ..FakeConfig::calm(seed)
            };
            let mut job = Job::on(config, 2, AT_ONCE);
            for round in 0..12 {
                let victim = round % 2;
                let pair = job.pair_of_either_in_talk(victim);
                job.net.break_pair_as(pair, RETRY_EXC, carried_out);
                job.chat(7);
                job.settle();
            }
            job.assert_no_peer_lost();
            assert!(job.joined(0) > 8, "{}", job.joined(0));
            let stats = job.all[0].fabric.net_stats();
            assert!(stats.broken >= 8, "{stats:?}");
            job.assert_careful();
        }
    }
}

impl Job {
    /// The latest queue pair of this rank; if it has none, frames are sent until it has one.
    fn pair_of_either_in_talk(&mut self, rank: u32) -> u32 {
        while self.net.pairs(rank).is_empty() {
            self.chat(1);
        }
        *self.net.pairs(rank).last().unwrap()
    }
}

#[test]
fn retry_exc_err_names_both_ends_and_what_to_try() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    let pair = job.pair_of(0);
    job.net.break_pair_as(pair, RETRY_EXC, false);
    job.assert_whole();
    let messages = job.messages_of(0);
    for part in [
        "rank 0 on ",
        "fake0:1",
        "rank 1 on ",
        "at index 1",
        "try `ping 10.0.0.2`",
    ] {
        assert!(messages.contains(part), "no {part:?} in {messages}");
    }
}

#[test]
fn rnr_retry_exc_err_is_counted_and_replayed() {
    let config = FakeConfig {
        most_shared: 4,
        not_ready_ns: 1_000,
        ..FakeConfig::calm(1)
    };
    let mut job = Job::on(config, 2, AT_ONCE);
    job.assert_whole();
    // The peer posts no receive buffers for far longer than the device's retry limit.
    job.net.pause(1, SECOND);
    for _ in 0..30 {
        assert!(job.try_send(0, 1, 40));
    }
    job.until("not ready", |job| {
        job.all[0].fabric.net_stats().not_ready > 0
    });
    job.settle();
    job.assert_whole();
    job.assert_careful();
    starve(&mut job);
}

/// Breaks the queue pair of rank 0 with an RNR error, and checks that the job still works and that the error is
/// counted.
fn starve(job: &mut Job) {
    let pair = job.pair_of(0);
    job.net.break_pair_as(pair, RNR_RETRY_EXC, false);
    let before = job.all[0].fabric.net_stats().not_ready;
    job.assert_whole();
    assert_eq!(job.all[0].fabric.net_stats().not_ready, before + 1);
}

#[test]
fn rnr_retry_exc_err_is_reported_when_it_recurs() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    for _ in 0..3 {
        starve(&mut job);
        job.pass(70 * SECOND);
    }
    for _ in 0..2 {
        starve(&mut job);
    }
    assert_eq!(
        job.messages_of(0),
        "",
        "a process that computes is no failure"
    );
    for _ in 0..9 {
        starve(&mut job);
    }
    let messages = &job.all[0].messages;
    assert_eq!(messages.len(), 1, "reported once: {messages:?}");
    for part in [
        "RNR retry",
        "rank 1 on ",
        "again and again",
        "compute for long",
    ] {
        assert!(messages[0].contains(part), "no {part:?} in {messages:?}");
    }
    job.assert_careful();
}

#[test]
fn rem_access_err_of_withdrawn_memory_fails_only_that_read() {
    let mut job = Job::calm(3, AT_ONCE);
    job.assert_whole();
    let mut memory = Guarded::of(&pattern(1, 7, 5000));
    let mut other = Guarded::of(&pattern(1, 8, 5000));
    let key = job.export(1, 0, &mut memory);
    let good = job.export(1, 0, &mut other);
    job.all[1].fabric.withdraw(Peer(0), key);
    let mut targets = [Guarded::new(5000), Guarded::new(5000), Guarded::new(5000)];
    let [before, bad, after] = &mut targets;
    let first = job.post_read(0, 1, good, before);
    let second = job.post_read(0, 1, key, bad);
    let third = job.post_read(0, 1, good, after);
    assert!(job.try_send(0, 1, 100));
    assert_eq!(job.end_of(0, second), WorkOutcome::BadKey);
    assert_eq!(job.end_of(0, first), WorkOutcome::Done);
    assert_eq!(job.end_of(0, third), WorkOutcome::Done);
    assert!(is_all(targets[1].bytes(), 0));
    assert!(targets[0].bytes() == pattern(1, 8, 5000) && targets[2].bytes() == pattern(1, 8, 5000));
    job.settle();
    job.assert_whole();
    job.assert_careful();
    let messages = job.messages_of(0);
    for part in ["5000 bytes", "rank 0 on ", "rank 1 on "] {
        assert!(messages.contains(part), "no {part:?} in {messages}");
    }
}

#[test]
fn request_error_fails_only_that_request() {
    let outcomes = [
        // A single status of this kind does not fail the work: perhaps the device has repeated a read that was already
        // complete, and only the repetition was refused.
        (REM_ACCESS, WorkOutcome::Done),
        // A single such status does not fail the work: Soft-RoCE has reported it for a valid write.
        (REM_INV_REQ, WorkOutcome::Done),
        (REM_OP, WorkOutcome::BadKey),
        (LOC_PROT, WorkOutcome::Unreachable),
        (LOC_LEN, WorkOutcome::Unreachable),
    ];
    for (status, expected) in outcomes {
        let mut job = Job::calm(3, AT_ONCE);
        job.assert_whole();
        let mut memory = Guarded::of(&pattern(1, 7, 5000));
        let key = job.export(1, 0, &mut memory);
        let pair = job.net.pair_between(0, 1).unwrap();
        job.net.break_pair_as(pair, status, false);
        let mut targets = [Guarded::new(5000), Guarded::new(5000)];
        let [bad, good] = &mut targets;
        let first = job.post_read(0, 1, key, bad);
        let second = job.post_read(0, 1, key, good);
        assert!(job.try_send(0, 1, 100));
        assert_eq!(job.end_of(0, first), expected, "status {status}");
        assert_eq!(job.end_of(0, second), WorkOutcome::Done, "status {status}");
        let whole = |target: &Guarded| target.bytes() == pattern(1, 7, 5000);
        assert!(whole(&targets[1]) && whole(&targets[0]) == (expected == WorkOutcome::Done));
        job.settle();
        job.assert_whole();
        job.assert_careful();
        let messages = job.messages_of(0);
        assert!(
            messages.contains("a transfer of 5000 bytes from rank 0 on "),
            "{messages}"
        );
        assert!(messages.contains("to rank 1 on "), "{messages}");
    }
}

#[test]
fn message_error_loses_no_message() {
    for status in [REM_ACCESS, REM_INV_REQ, REM_OP, LOC_PROT, LOC_LEN, 21] {
        let mut job = Job::calm(2, AT_ONCE);
        job.assert_whole();
        let pair = job.pair_of(0);
        job.net.break_pair_as(pair, status, false);
        job.assert_whole();
        assert_eq!(job.all[0].fabric.net_stats().broken, 1, "status {status}");
        job.assert_careful();
    }
}

#[test]
fn reads_and_writes_are_posted_again_after_a_break() {
    for carried_out in [false, true] {
        let mut job = Job::calm(2, AT_ONCE);
        job.assert_whole();
        let mut memory = Guarded::of(&pattern(1, 7, 100_000));
        let key = job.export(1, 0, &mut memory);
        let mut targets: Vec<_> = (0..10).map(|_| Guarded::new(100_000)).collect();
        let works: Vec<_> = targets
            .iter_mut()
            .map(|target| job.post_read(0, 1, key, target))
            .collect();
        let pair = job.pair_of(0);
        job.net.break_pair_as(pair, RETRY_EXC, carried_out);
        for work in works {
            assert_eq!(job.end_of(0, work), WorkOutcome::Done);
        }
        for target in &targets {
            assert!(target.bytes() == pattern(1, 7, 100_000));
        }
        assert_eq!(job.all[0].fabric.net_stats().broken, 1);
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn device_fatal_loses_all_peers_and_returns_all_memory() {
    let mut job = Job::calm(3, AT_ONCE);
    job.assert_whole();
    let mut memory = Guarded::of(&pattern(1, 7, 5000));
    let key = job.export(1, 0, &mut memory);
    let mut target = Guarded::new(5000);
    let work = job.post_read(0, 1, key, &mut target);
    job.net.lose_device(0);
    assert_eq!(job.end_of(0, work), WorkOutcome::Unreachable);
    job.until("all are lost", |job| job.all[0].lost.len() == 2);
    for peer in [1, 2] {
        let why = job.why_lost(0, peer);
        assert!(why.contains("fake0 port 1 of rank 0"), "{why}");
    }
    assert!(
        job.messages_of(0).contains("fake0"),
        "{}",
        job.messages_of(0)
    );
    // Work that is posted from now on completes too.
    assert!(job.try_send(0, 1, 40));
    assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Unreachable);
    // The other ranks receive nothing from rank 0 any more, so rank 1 gives it up after a long silence.
    let before = job.net.now_ns();
    job.send(1, 0, 40);
    job.until("it is given up", |job| job.all[1].lost == [0]);
    assert!(job.net.now_ns() - before > 120 * SECOND);
    job.chat_between(1, 2);
}

#[test]
fn srq_err_loses_all_peers_including_unused() {
    let limits = NetLimits {
        silence_ns: SECOND,
        ..AT_ONCE
    };
    let mut job = Job::calm(4, limits);
    job.send(0, 1, 10);
    job.settle();
    job.net.lose_shared_queue(0);
    job.until("it is lost", |job| job.all[0].lost == [1]);
    assert!(
        job.why_lost(0, 1).contains("fake0 port 1"),
        "{}",
        job.why_lost(0, 1)
    );
    assert!(job.try_send(0, 3, 10), "taken, and lost");
    job.until("it is lost too", |job| job.all[0].lost == [1, 3]);
    job.chat_between(1, 2);
}

impl Job {
    /// Checks that two ranks that are not involved still reach each other.
    pub fn chat_between(&mut self, one: u32, other: u32) {
        for number in 0..20 {
            self.send(one, other, super::job::size_of_frame(number));
            self.send(other, one, super::job::size_of_frame(number));
        }
        self.until("they reach each other", |job| {
            let received =
                |to: u32, from: u32| job.all[to as usize].received[from as usize].len() as u64;
            let sent = |from: u32, to: u32| job.all[from as usize].sent[to as usize];
            received(one, other) == sent(other, one) && received(other, one) == sent(one, other)
        });
        self.assert_streams();
    }
}

#[test]
fn interrupted_atomic_is_unknown_and_not_repeated() {
    for carried_out in [false, true] {
        let mut job = Job::calm(2, AT_ONCE);
        job.assert_whole();
        let words = AtomicWords::new(&mut job.all[1].fabric, 1);
        let key = words.export(&mut job.all[1].fabric, 0);
        job.pass(SECOND / 10);
        let pair = job.net.pair_between(0, 1).unwrap();
        job.net.break_pair_as(pair, RETRY_EXC, carried_out);
        let mut old = Guarded::new(16);
        let mut works = Vec::new();
        for at in [0, 8] {
            let work = job.name_work();
            let add = Atomic::FetchAdd { add: 1 };
            let lease = old.lease(at, 8);
            let fabric = &mut job.all[0].fabric;
            fabric.post_atomic(Peer(1), add, lease, key, 0, work);
            works.push(work);
        }
        assert_eq!(job.end_of(0, works[0]), WorkOutcome::Unknown);
        assert_eq!(
            job.end_of(0, works[1]),
            WorkOutcome::Unknown,
            "it was flushed: its outcome is unknown"
        );
        job.assert_whole();
        let done = words.get(0);
        match carried_out {
            true => assert!((1..=2).contains(&done), "{done}"),
            false => assert_eq!(done, 0),
        }
        // The next operation on the same word succeeds.
        let work = job.name_work();
        let add = Atomic::FetchAdd { add: 10 };
        let lease = old.lease(0, 8);
        let fabric = &mut job.all[0].fabric;
        fabric.post_atomic(Peer(1), add, lease, key, 0, work);
        assert_eq!(job.end_of(0, work), WorkOutcome::Done);
        assert_eq!(old.bytes()[..8], done.to_ne_bytes());
        assert_eq!(words.get(0), done + 10);
        job.assert_careful();
    }
}

#[test]
fn atomic_without_device_support_is_unreachable() {
    let config = FakeConfig {
        atomics: false,
        ..FakeConfig::calm(1)
    };
    let mut job = Job::on(config, 2, AT_ONCE);
    job.assert_whole();
    let words = AtomicWords::new(&mut job.all[1].fabric, 1);
    let key = words.export(&mut job.all[1].fabric, 0);
    let mut old = Guarded::new(8);
    let work = job.name_work();
    let add = Atomic::FetchAdd { add: 1 };
    let lease = old.lease(0, 8);
    let fabric = &mut job.all[0].fabric;
    fabric.post_atomic(Peer(1), add, lease, key, 0, work);
    assert_eq!(job.end_of(0, work), WorkOutcome::Unreachable);
    assert_eq!(words.get(0), 0);
    job.assert_whole();
    job.assert_careful();
}

#[test]
fn missing_completions_do_not_block() {
    for carried in 0..3 {
        let mut job = Job::calm(2, AT_ONCE);
        job.assert_whole();
        let body = pattern(1, 5, 100_000);
        let (mut source, mut target) = (Guarded::of(&body), Guarded::new(body.len()));
        let key = job.export(1, 0, &mut source);
        // After this pause no completion of earlier work remains to be requested.
        job.pass(20 * SECOND);
        let pair = job.pair_of(0);
        job.net.forget_pair(pair);
        let begin = job.net.now_ns();
        match carried {
            0 => assert_eq!(job.read(0, 1, key, &mut target), WorkOutcome::Done),
            // Frames of which the device does not report completions.
            1 => job.send(0, 1, 40),
            // More frames than there is room for.
            _ => (0..100).for_each(|_| job.send(0, 1, 40)),
        }
        job.settle();
        assert!(job.net.now_ns() < begin + 20 * SECOND, "soon enough");
        assert!(carried != 0 || target.bytes() == body);
        assert_eq!(job.all[0].fabric.net_stats().broken, 1);
        let messages = job.messages_of(0);
        for part in [
            "rank 0 on ",
            "rank 1 on ",
            "did not report",
            "no completion",
        ] {
            assert!(messages.contains(part), "no {part:?} in {messages}");
        }
        job.all[1].fabric.withdraw(Peer(0), key);
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn long_pause_between_polls_is_no_device_fault() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    for _ in 0..4 {
        for count in [1, 30] {
            (0..count).for_each(|_| assert!(job.try_send(0, 1, 40)));
            job.all[0].is_busy = true;
            job.pass(100 * SECOND);
            job.all[0].is_busy = false;
            assert!(job.try_send(0, 1, 40));
            job.settle();
        }
    }
    assert_eq!(job.all[0].fabric.net_stats().broken, 0);
    assert_eq!(job.all[0].messages, [""; 0]);
    job.assert_careful();
}
