// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of how reliable queue pairs are connected, break and are destroyed.

use super::super::super::port::{
    CallError, CqKind, PortEvent, QueuePairHandle, Receives, RemotePair, VerbsPort, WorkOpcode,
    WorkRequest, WorkStatus,
};
use super::super::{FakeConfig, FakeNet};
use super::side::{
    CARRIED_OUT, ON_THE_WIRE, Side, inline, join, joined, remote, request, run, run_to,
};

#[test]
fn an_unconnected_pair_neither_sends_nor_receives() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let [mut one, mut other] = [Side::open(&net), Side::open(&net)];
    let (here, there) = (one.port.create().unwrap(), other.port.create().unwrap());
    assert!(!one.send(here, 1, b"x"));
    assert_eq!(net.stats(0).wrong, 1);
    other.give(Receives::Shared, 0, 1);
    one.port
        .connect(here, &remote(&other, there, [5, 9]))
        .unwrap();
    assert!(one.send(here, 2, b"early"));
    for _ in 0..10 {
        assert!(net.advance());
    }
    assert_eq!(other.arrived(), []);
    // A message that came too early is sent again.
    other
        .port
        .connect(there, &remote(&one, here, [9, 5]))
        .unwrap();
    run(&net);
    assert_eq!(other.arrived(), [(0, b"early".to_vec())]);
    assert_eq!(one.ends(), [(2, WorkStatus::Success)]);
}

#[test]
fn a_pair_connects_once_and_only_to_a_reachable_address() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut sides = [Side::open(&net), Side::open(&net)];
    let [here, there] = join(&mut sides);
    let [one, other] = &mut sides;
    let to = remote(other, there, [1, 1]);
    let errno = |error: CallError| (error.call, error.errno);
    let fails = |errno| Err(("ibv_modify_qp", errno));
    assert_eq!(
        one.port.connect(here, &to).map_err(errno),
        fails(libc::EINVAL)
    );
    let fresh = one.port.create().unwrap();
    let too_large = RemotePair {
        sq_psn: 1 << 24,
        ..to
    };
    assert_eq!(
        one.port.connect(fresh, &too_large).map_err(errno),
        fails(libc::EINVAL)
    );
    let mut unused = to;
    unused.address.gid[15] = 99;
    assert_eq!(
        one.port.connect(fresh, &unused).map_err(errno),
        fails(libc::EHOSTUNREACH)
    );
    assert_eq!(one.port.connect(fresh, &to).map_err(errno), Ok(()));
}

#[test]
fn messages_from_a_third_pair_are_dropped() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut sides = [Side::open(&net), Side::open(&net)];
    let [_, there] = join(&mut sides);
    let [_, mut other] = sides;
    let mut third = Side::open(&net);
    other.give(Receives::Shared, 0, 1);
    let pair = third.port.create().unwrap();
    let to = remote(&other, there, [100, 0xff_fff0]);
    third.port.connect(pair, &to).unwrap();
    assert!(third.send(pair, 1, b"x"));
    run(&net);
    assert_eq!(other.arrived(), []);
    assert_eq!(third.ends(), [(1, WorkStatus::RetryExceeded)]);
}

#[test]
fn mismatched_initial_psns_deliver_nothing() {
    for firsts in [[6, 9], [4, 9]] {
        let net = FakeNet::new(FakeConfig::calm(1));
        let [mut one, mut other] = [Side::open(&net), Side::open(&net)];
        let (here, there) = (one.port.create().unwrap(), other.port.create().unwrap());
        one.port
            .connect(here, &remote(&other, there, firsts))
            .unwrap();
        other
            .port
            .connect(there, &remote(&one, here, [9, 5]))
            .unwrap();
        other.give(Receives::Shared, 0, 1);
        assert!(one.send(here, 1, b"x"));
        run(&net);
        assert_eq!(other.arrived(), [], "{firsts:?}");
    }
}

#[test]
fn an_unresponsive_peer_breaks_the_pair_after_eight_timeouts() {
    let config = FakeConfig::calm(1);
    let (net, [mut one, mut other], [here, there]) = joined(config);
    net.cut(0, 1);
    let requests = [
        inline(1, b"a"),
        WorkRequest {
            signaled: false,
            ..inline(2, b"b")
        },
        inline(3, b"c"),
    ];
    assert_eq!(one.port.post(here, &requests), 3);
    run(&net);
    let ends = [
        (1, WorkStatus::RetryExceeded),
        (2, WorkStatus::Flushed),
        (3, WorkStatus::Flushed),
    ];
    assert_eq!(one.ends(), ends, "in order, silent work too");
    let waited = net.now_ns() / config.answer_ns;
    assert_eq!((waited, net.stats(0).repeats), (8, 7));
    assert_eq!((one.events(), other.events()), (vec![], vec![]));
    assert_eq!(net.pairs(1), [there.number], "the other pair is not broken");
}

#[test]
fn executed_work_may_complete_with_retry_exceeded() {
    // The responses are lost, the requests are not: the message has arrived, once.
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 2);
    assert!(one.send(here, 1, b"x"));
    run_to(&net, CARRIED_OUT);
    net.cut(0, 1);
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::RetryExceeded)]);
    assert_eq!(other.arrived().len(), 1);
}

#[test]
fn error_completions_have_only_work_status_and_number() {
    let (net, [mut one, _other], [here, _]) = joined(FakeConfig::calm(1));
    net.cut(0, 1);
    assert!(one.send(here, 1, b"x"));
    run(&net);
    let done = one.done(CqKind::Sends)[0];
    assert_eq!((done.work, done.number), (1, here.number));
    assert_eq!((done.bytes, done.source), (u32::MAX, u32::MAX));
}

#[test]
fn failing_a_pair_flushes_all_its_work() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 8);
    assert_eq!(one.port.post(here, &[inline(1, b"a"), inline(2, b"b")]), 2);
    // Both messages are on the wire, and cannot be cancelled.
    run_to(&net, ON_THE_WIRE);
    one.port.fail(here);
    assert_eq!(one.ends(), [], "it takes a moment");
    assert!(
        one.send(here, 3, b"c"),
        "a broken one takes work, and gives it back"
    );
    run(&net);
    assert_eq!(
        one.ends(),
        [1, 2, 3].map(|work| (work, WorkStatus::Flushed))
    );
    assert_eq!(other.arrived().len(), 2);
    assert!(one.send(here, 4, b"d"));
    one.port.fail(here);
    run(&net);
    assert_eq!(one.ends(), [(4, WorkStatus::Flushed)]);
    assert_eq!(net.stats(0).broken, 1);
}

#[test]
fn a_broken_pair_neither_receives_nor_responds() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 1);
    other.port.fail(there);
    assert!(one.send(here, 1, b"x"));
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::RetryExceeded)]);
    assert_eq!(other.done(CqKind::Receives), [], "shared buffers stay");
}

#[test]
fn destroying_a_pair_discards_its_completions() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 64);
    assert_eq!(one.port.post(here, &[inline(1, b"a"), inline(2, b"b")]), 2);
    run(&net);
    one.port.destroy(here);
    other.port.destroy(there);
    assert_eq!((one.ends(), other.done(CqKind::Receives)), (vec![], vec![]));
    let stats = net.stats(1);
    assert_eq!(
        (stats.buffers_lost, stats.pairs),
        (2, 0),
        "without completions"
    );
    assert_eq!(
        other.give(Receives::Shared, 64, 3),
        2,
        "their slots are free"
    );
}

#[test]
fn destroying_a_pair_discards_its_waiting_work() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 1);
    assert!(one.send(here, 1, b"x"));
    one.port.destroy(here);
    run(&net);
    assert_eq!((one.ends(), other.arrived()), (vec![], vec![]));
}

#[test]
#[should_panic(expected = "port 0 has no")]
fn using_a_destroyed_pair_panics() {
    let (_net, [mut one, _other], [here, _]) = joined(FakeConfig::calm(1));
    one.port.destroy(here);
    one.send(here, 1, b"x");
}

#[test]
#[should_panic(expected = "port 1 has no")]
fn using_a_pair_on_another_port_panics() {
    let (_net, [_one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.port.fail(here);
}

#[test]
fn a_reused_pair_number_receives_nothing_for_its_predecessor() {
    let config = FakeConfig {
        reuse_numbers: true,
        ..FakeConfig::calm(1)
    };
    let (net, [mut one, mut other], [here, there]) = joined(config);
    other.give(Receives::Shared, 0, 4);
    assert!(one.send(here, 1, b"old"));
    run_to(&net, ON_THE_WIRE);
    other.port.destroy(there);
    let again = other.port.create().unwrap();
    assert_eq!(again.number, there.number);
    assert_ne!(again.id, there.id);
    // With the first packet sequence number of its predecessor, the new queue pair would accept the old message: the
    // numbers must differ.
    other
        .port
        .connect(again, &remote(&one, here, [7, 7_000]))
        .unwrap();
    run(&net);
    assert_eq!(other.arrived(), []);
    assert_eq!(one.ends(), [(1, WorkStatus::RetryExceeded)]);
}

#[test]
fn creating_too_many_pairs_fails() {
    let net = FakeNet::new(FakeConfig {
        most_pairs: 2,
        ..FakeConfig::calm(1)
    });
    let mut one = Side::open(&net);
    let refused = Err(CallError {
        call: "ibv_create_qp",
        errno: libc::ENOMEM,
    });
    net.fail_creates(0, 1);
    assert_eq!(one.port.create(), refused);
    let pairs: Vec<QueuePairHandle> = (0..2).map(|_| one.port.create().unwrap()).collect();
    assert_ne!(pairs[0].number, pairs[1].number);
    assert_eq!(one.port.create(), refused);
    one.port.destroy(pairs[0]);
    assert!(one.port.create().is_ok());
}

#[test]
fn break_pair_fails_the_next_work_executed_or_not() {
    for carried_out in [false, true] {
        let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
        other.give(Receives::Shared, 0, 4);
        assert!(one.send(here, 1, b"a"));
        run(&net);
        net.break_pair(here.number, carried_out);
        assert_eq!(one.ends(), [(1, WorkStatus::Success)]);
        assert_eq!(one.port.post(here, &[inline(2, b"b"), inline(3, b"c")]), 2);
        run(&net);
        let ends = [(2, WorkStatus::RetryExceeded), (3, WorkStatus::Flushed)];
        assert_eq!(one.ends(), ends);
        let arrived = other.arrived().len();
        // Messages sent before the pair broke arrive as well.
        assert_eq!(arrived, if carried_out { 3 } else { 1 });
    }
}

#[test]
fn a_remote_error_on_demand_breaks_both_sides() {
    for status in [
        WorkStatus::RemoteAccess,
        WorkStatus::RemoteInvalid,
        WorkStatus::RemoteOperation,
    ] {
        let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
        net.kill_pair(here.number, status, false);
        let write = WorkOpcode::Write {
            address: other.address(0),
            key: other.region.remote_key,
        };
        let piece = one.piece(0, 8);
        assert!(one.post(here, request(1, write, piece)));
        run(&net);
        assert_eq!(one.ends(), [(1, status)]);
        assert_eq!(other.events(), [PortEvent::QueuePairLost(there.number)]);
        assert_eq!(net.pairs(1), []);
    }
}

#[test]
fn held_completions_arrive_in_order_after_release() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 4);
    net.hold(0, here.number);
    net.hold(1, there.number);
    assert_eq!(one.port.post(here, &[inline(1, b"a"), inline(2, b"b")]), 2);
    run(&net);
    assert_eq!((one.ends(), other.arrived()), (vec![], vec![]));
    net.let_go(0, here.number);
    net.let_go(1, there.number);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success), (2, WorkStatus::Success)]
    );
    assert_eq!(other.arrived().len(), 2);
}
