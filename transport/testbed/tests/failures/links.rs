// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of ports that go down and come back, with the same address or a different one, and of processes that do not
//! respond.

use transport::{FakeConfig, NetLimits};

use super::job::{AT_ONCE, Job, MILLISECOND, SECOND};

/// With which address a port comes back.
#[derive(Clone, Copy, Debug)]
enum Back {
    Same,
    AtAnotherIndex,
    WithAnotherGid,
}

#[test]
fn port_err_and_port_active_lose_and_repeat_nothing() {
    for (infiniband, datagrams_first) in [(false, 0), (false, 1000), (true, 0)] {
        for back in [Back::Same, Back::AtAnotherIndex, Back::WithAnotherGid] {
            for down_ns in [10 * MILLISECOND, 3 * SECOND, 30 * SECOND] {
                let limits = NetLimits {
                    datagrams_first,
                    ..AT_ONCE
                };
                let config = FakeConfig {
                    infiniband,
                    ..FakeConfig::calm(1)
                };
                let mut job = Job::on(config, 3, limits);
                job.assert_whole();
                go_down_and_come_back(&mut job, back, down_ns);
            }
        }
    }
}

fn go_down_and_come_back(job: &mut Job, back: Back, down_ns: u64) {
    for number in 0..6 {
        // Some frames are in flight when the port goes down, and some are posted while no packet passes.
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
            assert!(job.try_send(from, to, super::job::size_of_frame(number)) || number > 2);
        }
        if number == 2 {
            job.net.port_down(0);
            job.pass(down_ns / 2);
        }
    }
    job.pass(down_ns / 2);
    job.chat_between(1, 2);
    match back {
        Back::Same => {}
        Back::AtAnotherIndex => job.net.move_gid(0),
        Back::WithAnotherGid => job.net.readdress(0),
    }
    job.net.port_up(0);
    job.settle();
    job.assert_whole();
    job.assert_careful();
    job.pass(SECOND);
    for text in ["has gone down", "has come up"] {
        let count = job.messages_of(0).matches(text).count();
        assert_eq!(count, 1, "there is one message that the port {text}");
    }
}

#[test]
fn gid_change_of_a_port_that_stays_up_is_followed() {
    for datagrams_first in [0, 1000] {
        for is_new in [false, true] {
            let limits = NetLimits {
                datagrams_first,
                ..AT_ONCE
            };
            let mut job = Job::calm(3, limits);
            job.assert_whole();
            for round in 0..4 {
                let port = round % 3;
                match is_new {
                    true => job.net.readdress(port),
                    false => job.net.move_gid(port),
                }
                job.assert_whole();
            }
            job.assert_careful();
        }
    }
}

#[test]
fn queue_pair_is_recreated_with_a_longer_timeout() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    let mut times: Vec<u64> = (0..6).map(|_| time_to_break(&mut job)).collect();
    let first = times[0];
    assert!(
        (400..800).contains(&(first / MILLISECOND)),
        "eight times 67 ms: {first} ns"
    );
    // The timeouts: 67 ms, 134 ms, ... 1074 ms.
    times.truncate(5);
    for pair in times.windows(2) {
        let ratio = pair[1] as f64 / pair[0] as f64;
        assert!((1.8..2.2).contains(&ratio), "{times:?}");
    }
    let last = time_to_break(&mut job) as f64 / times[4] as f64;
    assert!((0.9..1.1).contains(&last), "there is a limit: {last}");
    for _ in 0..70 {
        job.pass(SECOND);
        job.send(0, 1, 40);
    }
    job.settle();
    // The existing queue pair keeps its timeout; the next queue pair begins with the shortest timeout again.
    time_to_break(&mut job);
    let after = time_to_break(&mut job);
    assert!(after.abs_diff(times[1]) < first / 10, "{after}: {times:?}");
    job.assert_whole();
    job.assert_careful();
}

/// Cuts the path between two ranks; returns the nanoseconds until rank 0 considers its queue pair broken. Afterwards
/// the path works again.
fn time_to_break(job: &mut Job) -> u64 {
    let broken = |job: &Job| job.all[0].fabric.net_stats().broken;
    job.pair_of(0);
    job.pass(SECOND / 10);
    let (before, start) = (broken(job), job.net.now_ns());
    job.net.cut(0, 1);
    job.send(0, 1, 40);
    job.until("it breaks", |job| broken(job) > before);
    let took = job.net.now_ns() - start;
    job.net.mend(0, 1);
    job.assert_whole();
    took
}

#[test]
fn gid_change_is_detected_within_30_ms() {
    let limits = NetLimits {
        datagrams_first: 1000,
        ..AT_ONCE
    };
    for victim in 0..2 {
        let mut job = Job::calm(2, limits);
        job.send(0, 1, 40);
        job.settle();
        job.pass(SECOND);
        for _ in 0..5 {
            job.net.move_gid(victim);
            let before = job.net.now_ns();
            job.send(0, 1, 40);
            job.settle();
            let took = job.net.now_ns() - before;
            assert!(took < 30 * MILLISECOND, "{took} ns");
        }
        job.assert_careful();
    }
}

#[test]
fn only_the_vanished_process_is_lost_with_a_reason() {
    let mut job = Job::calm(3, AT_ONCE);
    job.assert_whole();
    job.net.vanish(1);
    let before = job.net.now_ns();
    for from in [0, 2] {
        job.send(from, 1, 40);
    }
    job.all[1].is_busy = true;
    job.until("it is given up", |job| {
        [0, 2]
            .iter()
            .all(|rank| job.all[*rank as usize].lost == [1])
    });
    assert!(job.net.now_ns() - before > 120 * SECOND);
    assert!(
        job.why_lost(0, 1).contains("120 s"),
        "{}",
        job.why_lost(0, 1)
    );
    assert!(
        job.messages_of(0).contains("rank 1 on "),
        "{}",
        job.messages_of(0)
    );
    // From now on packets to the lost peer are dropped immediately.
    for _ in 0..100 {
        assert!(job.try_send(0, 1, 40));
    }
    job.chat_between(0, 2);
    let process = job.all.remove(1);
    drop(process);
}

#[test]
fn peer_computing_for_ten_minutes_is_not_lost() {
    for datagrams_first in [0, 1000] {
        for bytes in [40, 3000] {
            let limits = NetLimits {
                datagrams_first,
                ..AT_ONCE
            };
            let mut job = Job::calm(3, limits);
            job.assert_whole();
            job.net.pause(1, 600 * SECOND);
            // Ranks 0 and 2 post more packets than the buffers of rank 1 can hold.
            for from in [0, 2] {
                while job.try_send(from, 1, bytes) {}
            }
            job.pass(601 * SECOND);
            job.assert_no_peer_lost();
            job.settle();
            job.assert_whole();
            job.assert_careful();
        }
    }
}

#[test]
fn own_computing_time_is_not_peer_silence() {
    for datagrams_first in [0, 1000] {
        let limits = NetLimits {
            datagrams_first,
            ..AT_ONCE
        };
        let mut job = Job::calm(4, limits);
        job.assert_whole();
        job.net.drop_datagrams(0, 3);
        if let Some(pair) = job.net.pair_between(0, 1) {
            job.net.break_pair(pair, false);
        }
        for to in 1..4 {
            job.send(0, to, 40);
        }
        job.pass(100 * MILLISECOND);
        job.send(0, 1, 40);
        // Ranks 2 and 3 have unacknowledged packets to rank 0. Rank 1 has none, so it has no reason to consider rank 0
        // silent.
        for from in 2..4 {
            while job.try_send(from, 0, 40) {}
        }
        job.net.pause(0, 600 * SECOND);
        job.pass(601 * SECOND);
        job.settle();
        job.assert_whole();
        job.assert_careful();
    }
}

#[test]
fn path_cut_for_a_minute_recovers() {
    let mut job = Job::calm(3, AT_ONCE);
    job.assert_whole();
    job.net.cut(0, 1);
    for _ in 0..5 {
        assert!(job.try_send(0, 1, 40) && job.try_send(1, 0, 3000));
    }
    job.pass(60 * SECOND);
    job.chat_between(0, 2);
    job.net.mend(0, 1);
    job.settle();
    job.assert_whole();
    job.assert_careful();
}
