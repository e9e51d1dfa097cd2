// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of completion events and of simulated time.

use super::super::super::port::{CqKind, PortEvent, Receives, VerbsPort};
use super::super::{FakeConfig, FakeNet};
use super::side::{Side, joined, run};

#[test]
fn only_completions_after_arming_wake() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 8);
    assert!(one.send(here, 1, b"x"));
    run(&net);
    assert!(!other.port.would_wake(), "not armed");
    assert_eq!(other.port.arm(), Ok(()));
    run(&net);
    assert!(
        !other.port.would_wake(),
        "it was there before: poll once more after arming"
    );
    assert_eq!(other.done(CqKind::Receives).len(), 1);
    assert!(one.send(here, 2, b"x"));
    run(&net);
    assert!(other.port.would_wake());
    other.port.ack_events();
    assert!(!other.port.would_wake());
    assert!(one.send(here, 3, b"x"));
    run(&net);
    assert!(!other.port.would_wake(), "one event for one arming");
    let stats = net.stats(1);
    assert_eq!((stats.arms, stats.completion_events), (1, 1));
    assert!(other.port.event_fd().is_none());
}

#[test]
fn either_queue_wakes_and_the_other_stays_armed() {
    let (net, mut sides, [here, there]) = joined(FakeConfig::calm(1));
    let [one, other] = &mut sides;
    one.give(Receives::Shared, 0, 1);
    other.give(Receives::Shared, 0, 1);
    assert_eq!(one.port.arm(), Ok(()));
    assert!(one.send(here, 1, b"x"));
    run(&net);
    assert!(one.port.would_wake(), "a send has ended");
    one.port.ack_events();
    assert!(other.send(there, 2, b"x"));
    run(&net);
    assert!(one.port.would_wake(), "a message has come");
}

#[test]
fn events_wake_whether_armed_or_not() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut one = Side::open(&net);
    net.port_down(0);
    assert!(net.would_wake(0));
    one.port.ack_events();
    assert!(net.would_wake(0), "until it was taken");
    assert_eq!(one.port.next_event(), Some(PortEvent::PortDown));
    assert!(!net.would_wake(0));
}

#[test]
fn a_sleep_ends_with_an_event_or_its_timeout() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 1);
    assert!(!net.sleep(1, 5_000));
    assert_eq!(net.now_ns(), 5_000);
    assert!(one.send(here, 1, b"x"));
    assert!(!net.sleep(1, 50_000), "not armed");
    assert_eq!(net.now_ns(), 55_000);
    other.give(Receives::Shared, 1, 1);
    assert_eq!(other.port.arm(), Ok(()));
    assert!(one.send(here, 2, b"x"));
    assert!(net.sleep(1, 50_000));
    assert!((56_000..57_000).contains(&net.now_ns()), "{}", net.now_ns());
}

#[test]
fn an_idle_network_does_not_advance_but_time_can_pass() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    assert!(!net.advance());
    assert_eq!(one.port.now_ns(), 0);
    other.give(Receives::Shared, 0, 1);
    assert!(one.send(here, 1, b"x"));
    assert!(!net.advance_until(10), "nothing so soon");
    assert_eq!(net.now_ns(), 10);
    assert!(net.advance_until(110), "it leaves at 100");
    assert_eq!(net.now_ns(), 100);
    run(&net);
    // No timer is left.
    assert!(net.now_ns() < 10_000, "{}", net.now_ns());
    assert!(!net.advance_until(1_000_000));
    assert_eq!(net.now_ns(), 1_000_000);
}
