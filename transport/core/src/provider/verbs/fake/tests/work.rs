// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the effects of work requests on reliable queue pairs.

use super::super::super::port::{
    CqKind, Depths, PortEvent, Receives, RegionAccess, Sge, VerbsPort, WorkBody, WorkOpcode,
    WorkRequest, WorkStatus,
};
use super::super::{FakeConfig, FakeNet};
use super::side::{CARRIED_OUT, DEPTHS, Q_KEY, Side, inline, join, joined, request, run, run_to};

#[test]
fn messages_fill_the_oldest_buffers_in_order() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    assert_eq!(other.give(Receives::Shared, 40, 3), 3);
    assert_eq!(one.port.post(here, &[inline(1, b"a"), inline(2, b"bc")]), 2);
    assert!(one.send(here, 3, b""));
    run(&net);
    let done = other.done(CqKind::Receives);
    let seen: Vec<_> = done
        .iter()
        .map(|done| (done.work, done.status, done.bytes, done.number))
        .collect();
    let number = there.number;
    let expected = [(40, 1), (41, 2), (42, 0)];
    assert_eq!(
        seen,
        expected.map(|(name, bytes)| (name, WorkStatus::Success, bytes, number))
    );
    assert_eq!(other.buffer(41, 2), b"bc");
    let done = one.done(CqKind::Sends);
    let seen: Vec<_> = done.iter().map(|done| (done.work, done.number)).collect();
    assert_eq!(seen, [1, 2, 3].map(|work| (work, here.number)));
    let stats = net.stats(one.index());
    let counts = (
        stats.doorbells,
        stats.work_requests,
        stats.messages,
        stats.message_bytes,
    );
    assert_eq!(counts, (2, 3, 3, 3));
    assert_eq!((stats.signaled, stats.send_completions), (3, 3));
}

#[test]
fn two_pairs_share_one_receive_queue() {
    let (net, mut sides, [here, there]) = joined(FakeConfig::calm(1));
    let [also_here, also_there] = join(&mut sides);
    let [one, other] = &mut sides;
    other.give(Receives::Shared, 0, 2);
    assert!(one.send(here, 1, b"first"));
    run(&net);
    assert!(one.send(also_here, 2, b"second"));
    run(&net);
    let done = other.done(CqKind::Receives);
    let seen: Vec<_> = done.iter().map(|done| (done.work, done.number)).collect();
    assert_eq!(seen, [(0, there.number), (1, also_there.number)]);
}

#[test]
fn a_pair_may_connect_a_port_to_itself() {
    let net = FakeNet::new(FakeConfig {
        infiniband: true,
        ..FakeConfig::calm(1)
    });
    let mut sides = [Side::open(&net), Side::open(&net)];
    let pairs = join(&mut sides);
    let [mut one, other] = sides;
    drop(other);
    let own = [one.port.create().unwrap(), one.port.create().unwrap()];
    for (here, there) in [(0, 1), (1, 0)] {
        let to = super::side::remote(&one, own[there], [5, 5]);
        one.port.connect(own[here], &to).unwrap();
    }
    one.give(Receives::Shared, 0, 1);
    assert!(one.send(own[0], 1, b"self") && one.send(pairs[0], 2, b"nobody"));
    run(&net);
    assert_eq!(one.arrived(), [(0, b"self".to_vec())]);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success), (2, WorkStatus::RetryExceeded)]
    );
}

#[test]
fn inline_data_is_copied_at_the_post_and_other_data_read_later() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 2);
    let mut bytes = *b"before";
    assert!(one.send(here, 1, &bytes));
    bytes = *b"after!";
    one.block.put(0, b"before");
    let piece = one.piece(0, 6);
    assert!(one.post(here, request(2, WorkOpcode::Send, piece)));
    one.block.put(0, &bytes);
    run(&net);
    let arrived = [(0, b"before".to_vec()), (1, b"after!".to_vec())];
    assert_eq!(other.arrived(), arrived);
}

#[test]
fn a_write_causes_no_completion_at_the_target() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    one.block.put(0, b"written!");
    let write = WorkOpcode::Write {
        address: other.address(96),
        key: other.region.remote_key,
    };
    let piece = one.piece(0, 8);
    assert!(one.post(here, request(1, write, piece)));
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::Success)]);
    assert_eq!(other.block.get(95, 10), b"\0written!\0");
    assert_eq!(
        (other.done(CqKind::Receives), other.events()),
        (vec![], vec![])
    );
    let stats = net.stats(one.index());
    assert_eq!((stats.writes, stats.write_bytes), (1, 8));
}

#[test]
fn a_read_returns_the_bytes_at_the_time_of_the_response() {
    let (net, [mut one, other], [here, _]) = joined(FakeConfig::calm(1));
    let read = WorkOpcode::Read {
        address: other.address(0),
        key: other.region.remote_key,
    };
    other.block.put(0, b"at the post");
    let piece = one.piece(64, 11);
    assert!(one.post(here, request(1, read, piece)));
    other.block.put(0, b"at arrival!");
    run_to(&net, CARRIED_OUT);
    other.block.put(0, b"after that!");
    assert_eq!(one.block.get(64, 11), [0; 11]);
    run(&net);
    assert_eq!(one.block.get(64, 11), b"at arrival!");
    assert_eq!(one.ends(), [(1, WorkStatus::Success)]);
    let stats = net.stats(one.index());
    assert_eq!((stats.reads, stats.read_bytes), (1, 11));
}

#[test]
fn a_read_may_be_executed_after_later_writes() {
    let mut seen = [false; 2];
    for seed in 0..40 {
        let config = FakeConfig {
            most_delay_ns: 20_000,
            ..FakeConfig::calm(seed)
        };
        let (net, [mut one, other], [here, _]) = joined(config);
        let (address, key) = (other.address(0), other.region.remote_key);
        other.block.put(0, &[1]);
        one.block.put(8, &[2]);
        let read = request(1, WorkOpcode::Read { address, key }, one.piece(0, 1));
        let write = request(2, WorkOpcode::Write { address, key }, one.piece(8, 1));
        assert_eq!(one.port.post(here, &[read, write]), 2);
        run(&net);
        assert_eq!(
            one.ends(),
            [(1, WorkStatus::Success), (2, WorkStatus::Success)]
        );
        match one.block.get(0, 1)[0] {
            1 => seen[0] = true,
            2 => seen[1] = true,
            other => panic!("{other} was read"),
        }
    }
    assert_eq!(seen, [true; 2], "both happen");
}

#[test]
fn reads_beyond_the_limit_wait_for_those_in_flight() {
    let time = |reads| {
        let config = FakeConfig {
            reads,
            ..FakeConfig::calm(1)
        };
        let (net, [mut one, other], [here, _]) = joined(config);
        let read = WorkOpcode::Read {
            address: other.address(0),
            key: other.region.remote_key,
        };
        let piece = one.piece(0, 8);
        let requests: Vec<_> = (0..6).map(|work| request(work, read, piece)).collect();
        assert_eq!(one.port.post(here, &requests), 6);
        run(&net);
        assert_eq!(
            one.ends(),
            (0..6)
                .map(|work| (work, WorkStatus::Success))
                .collect::<Vec<_>>()
        );
        net.now_ns()
    };
    // A round trip takes 2000 ns.
    assert!((2_000..4_000).contains(&time(6)));
    assert!((6_000..8_000).contains(&time(2)));
    assert!((12_000..14_000).contains(&time(1)));
}

#[test]
fn an_atomic_with_a_read_only_target_is_not_executed() {
    let (net, [mut one, other], [here, _]) = joined(FakeConfig::calm(1));
    let region = one.register(0, 64, RegionAccess::OwnRead);
    let add = WorkOpcode::FetchAdd {
        address: other.address(0),
        key: other.region.remote_key,
        add: 1,
    };
    let piece = Sge {
        local_key: region.local_key,
        ..one.piece(0, 8)
    };
    assert!(one.post(here, request(1, add, piece)));
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::LocalProtection)]);
    assert_eq!(other.block.get(0, 8), [0; 8]);
}

#[test]
fn packets_of_a_pair_are_not_reordered() {
    for seed in 0..20 {
        let config = FakeConfig {
            most_delay_ns: 20_000,
            ..FakeConfig::calm(seed)
        };
        let (net, [mut one, mut other], [here, _]) = joined(config);
        other.give(Receives::Shared, 0, 8);
        let read = WorkOpcode::Read {
            address: other.address(0),
            key: other.region.remote_key,
        };
        for work in 0..8 {
            let piece = one.piece(0, 8);
            let requests = [request(work, read, piece), inline(work, b"x")];
            assert_eq!(one.port.post(here, &requests), 2);
        }
        run(&net);
        assert_eq!(one.ends().len(), 16);
        assert_eq!(net.stats(0).repeats, 0, "seed {seed}");
    }
}

#[test]
fn atomics_return_the_old_value() {
    let (net, [mut one, other], [here, _]) = joined(FakeConfig::calm(1));
    let (address, key) = (other.address(8), other.region.remote_key);
    other.block.put(8, &40u64.to_ne_bytes());
    let swap = |compare| WorkOpcode::CompareSwap {
        address,
        key,
        compare,
        swap: 7,
    };
    let add = WorkOpcode::FetchAdd {
        address,
        key,
        add: 2,
    };
    let operations = [add, swap(40), swap(42)];
    let requests: Vec<_> = (0..3)
        .map(|at| request(at as u64, operations[at], one.piece(at * 8, 8)))
        .collect();
    assert_eq!(one.port.post(here, &requests), 3);
    run(&net);
    let found = one.block.get(0, 24);
    let found: Vec<u64> = found
        .chunks(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(found, [40, 42, 42]);
    assert_eq!(other.block.get(8, 8), 7u64.to_ne_bytes());
    assert_eq!(net.stats(one.index()).atomics, 3);
}

#[test]
fn an_unaligned_atomic_fails_with_remote_invalid() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    let add = WorkOpcode::FetchAdd {
        address: other.address(4),
        key: other.region.remote_key,
        add: 1,
    };
    let piece = one.piece(0, 8);
    assert!(one.post(here, request(1, add, piece)));
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::RemoteInvalid)]);
    assert_eq!(other.events(), [PortEvent::QueuePairLost(there.number)]);
    assert_eq!(net.stats(one.index()).wrong, 1);
}

#[test]
fn lost_packets_are_retransmitted_and_work_executed_once_in_order() {
    let mut repeats = 0;
    for seed in 0..40 {
        let config = FakeConfig {
            pair_loss_permille: 200,
            most_delay_ns: 5_000,
            ..FakeConfig::calm(seed)
        };
        let (net, [mut one, mut other], [here, _]) = joined(config);
        other.give(Receives::Shared, 0, 64);
        let add = WorkOpcode::FetchAdd {
            address: other.address(0),
            key: other.region.remote_key,
            add: 1,
        };
        let mut ends = Vec::new();
        for round in 0..10u8 {
            let add = request(
                u64::from(round) + 100,
                add,
                one.piece(usize::from(round) * 8, 8),
            );
            let bytes = [round];
            let message = inline(u64::from(round), &bytes);
            assert_eq!(one.port.post(here, &[message, add]), 2);
            if round % 5 == 4 {
                run(&net);
                ends.extend(one.ends());
            }
        }
        assert!(
            ends.iter()
                .all(|(_, status)| *status == WorkStatus::Success),
            "seed {seed}"
        );
        assert_eq!(ends.len(), 20, "seed {seed}");
        let arrived: Vec<u8> = other.arrived().iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(arrived, (0..10).collect::<Vec<_>>(), "seed {seed}");
        let found: Vec<u8> = (0..10)
            .map(|round| one.block.get(round * 8, 1)[0])
            .collect();
        assert_eq!(found, (0..10).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(other.block.get(0, 1), [10]);
        repeats += net.stats(one.index()).repeats;
    }
    assert!(repeats > 40, "{repeats}");
}

#[test]
fn a_sender_waits_for_receive_buffers() {
    let config = FakeConfig::calm(1);
    let (net, [mut one, mut other], [here, _]) = joined(config);
    assert_eq!(one.port.post(here, &[inline(1, b"a"), inline(2, b"b")]), 2);
    while net.stats(other.index()).not_ready < 5 {
        assert!(net.advance());
    }
    assert_eq!(one.ends(), []);
    other.give(Receives::Shared, 0, 2);
    run(&net);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success), (2, WorkStatus::Success)]
    );
    assert_eq!(other.arrived(), [(0, b"a".to_vec()), (1, b"b".to_vec())]);
    assert!(net.now_ns() >= 5 * config.not_ready_ns);
    // The retry counter starts again with every message.
    assert!(one.send(here, 3, b"c"));
    while net.stats(other.index()).not_ready < 10 {
        assert!(net.advance());
    }
    other.give(Receives::Shared, 2, 1);
    run(&net);
    assert_eq!(one.ends(), [(3, WorkStatus::Success)]);
}

#[test]
fn missing_receive_buffers_break_only_the_sender() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    assert_eq!(one.port.post(here, &[inline(1, b"a"), inline(2, b"b")]), 2);
    run(&net);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::NotReady), (2, WorkStatus::Flushed)]
    );
    assert_eq!(net.stats(other.index()).not_ready, 7);
    assert_eq!(net.stats(one.index()).broken, 1);
    assert_eq!(other.events(), []);
    assert_eq!(net.pairs(other.index()), [there.number]);
}

#[test]
fn a_message_longer_than_its_buffer_breaks_both_sides() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 9, 2);
    let pieces = [one.piece(0, 256), one.piece(0, 257), one.piece(0, 1)];
    for (work, piece) in (1..).zip(pieces) {
        assert!(one.post(here, request(work, WorkOpcode::Send, piece)));
    }
    run(&net);
    let ends = [
        (1, WorkStatus::Success),
        (2, WorkStatus::RemoteOperation),
        (3, WorkStatus::Flushed),
    ];
    assert_eq!(one.ends(), ends);
    let done = other.done(CqKind::Receives);
    let seen: Vec<_> = done.iter().map(|done| (done.work, done.status)).collect();
    assert_eq!(
        seen,
        [(9, WorkStatus::Success), (10, WorkStatus::LocalLength)]
    );
    assert_eq!(other.events(), [PortEvent::QueuePairLost(there.number)]);
}

#[test]
fn unsignaled_work_has_no_completion_and_holds_its_slot() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 64);
    let quiet = WorkRequest {
        signaled: false,
        ..inline(0, b"x")
    };
    let depth = one.facts().depth as usize;
    assert_eq!(depth, 16);
    assert_eq!(one.port.post(here, &vec![quiet; depth - 1]), depth - 1);
    run(&net);
    assert_eq!(other.arrived().len(), depth - 1);
    assert_eq!(one.ends(), []);
    // All requests have ended, but hold their slots without a completion: one slot is left.
    assert_eq!(one.port.post(here, &[inline(7, b"x"), inline(8, b"x")]), 1);
    run(&net);
    assert!(!one.send(here, 8, b"x"), "not before it was polled");
    assert_eq!(one.ends(), [(7, WorkStatus::Success)]);
    assert_eq!(one.port.post(here, &vec![quiet; depth + 1]), depth);
    run(&net);
    assert_eq!(
        one.port.post(here, &[quiet]),
        0,
        "no completion freed a slot"
    );
    let stats = net.stats(one.index());
    assert_eq!((stats.full, stats.wrong, stats.signaled), (4, 0, 1));
    assert_eq!((stats.doorbells, stats.work_requests), (5, 32));
}

#[test]
fn invalid_work_requests_are_rejected() {
    let config = FakeConfig {
        message_bytes: 4096,
        ..FakeConfig::calm(1)
    };
    let (net, [mut one, mut other], [here, _]) = joined(config);
    other.give(Receives::Shared, 0, 1);
    let (address, key) = (other.address(0), other.region.remote_key);
    let add = WorkOpcode::FetchAdd {
        address,
        key,
        add: 1,
    };
    let read = WorkOpcode::Read { address, key };
    let inline_read = WorkRequest {
        operation: read,
        ..inline(1, &[0; 8])
    };
    let bad = [
        inline(1, &[0; 65]),
        request(1, read, one.piece(0, 4097)),
        request(1, add, one.piece(0, 4)),
        inline_read,
    ];
    for request in bad {
        assert_eq!(one.port.post(here, &[request]), 0);
    }
    let requests = [inline(1, &[0; 64]), bad[0], inline(3, b"x")];
    assert_eq!(one.port.post(here, &requests), 1, "up to the first bad one");
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::Success)]);
    assert_eq!(net.stats(one.index()).wrong, 5);
}

#[test]
fn atomics_are_rejected_without_device_support() {
    let config = FakeConfig {
        atomics: false,
        ..FakeConfig::calm(1)
    };
    let (_net, [mut one, other], [here, _]) = joined(config);
    assert!(!one.facts().atomics);
    let add = WorkOpcode::FetchAdd {
        address: other.address(0),
        key: other.region.remote_key,
        add: 1,
    };
    let piece = one.piece(0, 8);
    assert!(!one.post(here, request(1, add, piece)));
}

#[test]
fn an_overrun_loses_the_completion_queue() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let depths = Depths {
        completions: 2,
        ..DEPTHS
    };
    let mut sides = [Side::open_with(&net, &depths, Q_KEY), Side::open(&net)];
    let [here, _] = join(&mut sides);
    let [one, other] = &mut sides;
    other.give(Receives::Shared, 0, 4);
    let requests = [0, 1, 2].map(|work| inline(work, b"x"));
    assert_eq!(one.port.post(here, &requests), 3);
    run(&net);
    assert_eq!(one.events(), [PortEvent::CompletionsLost]);
    assert_eq!(
        one.ends(),
        [(0, WorkStatus::Success), (1, WorkStatus::Success)]
    );
    assert_eq!(net.stats(one.index()).overruns, 1);
}

#[test]
fn a_large_message_takes_transmission_time_and_many_psns() {
    let (net, [mut one, other], [here, _]) = joined(FakeConfig::calm(1));
    one.block.put(0, &[5; 32768]);
    let write = WorkOpcode::Write {
        address: other.address(0),
        key: other.region.remote_key,
    };
    // The first packet sequence number is 16 before the wrap-around, and 32 packets are needed.
    let piece = one.piece(0, 32768);
    let small = WorkRequest {
        operation: write,
        body: WorkBody::Inline(b"small"),
        ..inline(2, b"")
    };
    assert_eq!(one.port.post(here, &[request(1, write, piece), small]), 2);
    run(&net);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success), (2, WorkStatus::Success)]
    );
    assert_eq!(other.block.get(0, 6), b"small\x05");
    assert_eq!(other.block.get(32767, 2), [5, 0]);
    assert!(net.now_ns() > 4_000);
}

#[test]
fn a_falsely_successful_read_is_exposed_by_the_flush_behind_it() {
    let config = FakeConfig {
        empty_read_permille: 1000,
        ..FakeConfig::calm(1)
    };
    let (net, [mut one, other], [here, _]) = joined(config);
    assert!(one.facts().has_unreliable_reads);
    other.block.put(0, b"theirs");
    let (address, key) = (other.address(0), other.region.remote_key);
    let read = request(1, WorkOpcode::Read { address, key }, one.piece(0, 6));
    let nothing = WorkRequest {
        operation: WorkOpcode::Write { address: 0, key: 0 },
        ..inline(2, b"")
    };
    assert_eq!(one.port.post(here, &[read, nothing]), 2);
    run(&net);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success), (2, WorkStatus::Flushed)]
    );
    assert_eq!(one.block.get(0, 6), [0; 6]);
    assert_eq!((net.stats(0).empty_reads, net.stats(0).reads), (1, 0));
}

#[test]
fn an_empty_write_needs_no_key_and_completes_after_a_read() {
    let (net, [mut one, other], [here, _]) = joined(FakeConfig::calm(1));
    assert!(!one.facts().has_unreliable_reads);
    other.block.put(0, b"theirs");
    let (address, key) = (other.address(0), other.region.remote_key);
    let read = request(1, WorkOpcode::Read { address, key }, one.piece(0, 6));
    let nothing = WorkRequest {
        operation: WorkOpcode::Write { address: 0, key: 0 },
        ..inline(2, b"")
    };
    assert_eq!(one.port.post(here, &[read, nothing]), 2);
    run(&net);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success), (2, WorkStatus::Success)]
    );
    assert_eq!(one.block.get(0, 6), b"theirs");
}
