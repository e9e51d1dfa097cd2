// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of simulated ports, devices and processes that fail.

use super::super::super::port::{
    CallError, CqKind, PortEvent, Receives, RegionAccess, VerbsPort, WorkBody, WorkOpcode,
    WorkStatus,
};
use super::super::{FakeConfig, FakeNet};
use super::side::{
    CARRIED_OUT, ON_THE_WIRE, Side, inline, join, joined, mailbox, remote, request, run, run_to,
};

#[test]
fn a_short_port_outage_breaks_no_pair() {
    let config = FakeConfig::calm(1);
    let (net, [mut one, mut other], [here, _]) = joined(config);
    other.give(Receives::Shared, 0, 4);
    net.port_down(0);
    assert_eq!(one.events(), [PortEvent::PortDown]);
    assert_eq!(other.events(), []);
    assert!(one.facts().is_up, "until it refreshes");
    assert_eq!(one.port.refresh(), Ok(()));
    assert!(!one.facts().is_up);
    assert!(one.send(here, 1, b"x"));
    while net.stats(0).repeats < 5 {
        assert!(net.advance());
    }
    net.port_up(0);
    net.port_up(0);
    run(&net);
    assert_eq!(one.events(), [PortEvent::PortUp; 2]);
    assert_eq!(one.ends(), [(1, WorkStatus::Success)]);
    assert_eq!(other.arrived().len(), 1);
    assert_eq!(net.stats(0).down, 1);
}

#[test]
fn a_long_port_outage_breaks_pairs_on_both_sides() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    net.port_down(0);
    assert!(one.send(here, 1, b"x") && other.send(there, 2, b"y"));
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::RetryExceeded)]);
    assert_eq!(other.ends(), [(2, WorkStatus::RetryExceeded)]);
    net.port_up(0);
    run(&net);
    assert!(one.send(here, 3, b"z"));
    run(&net);
    assert_eq!(one.ends(), [(3, WorkStatus::Flushed)], "it stays broken");
}

#[test]
fn packets_in_flight_to_a_port_that_goes_down_are_lost() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 1);
    other.give(Receives::Datagrams, 1, 1);
    let (handle, number) = (one.handle(&other), other.port.datagram_number());
    let body = WorkBody::Inline(b"datagram");
    assert_eq!(
        one.port
            .post_datagram(mailbox(handle, number), 1, body, true),
        Ok(())
    );
    assert!(one.send(here, 2, b"message"));
    run_to(&net, ON_THE_WIRE);
    net.port_down(1);
    run_to(&net, CARRIED_OUT);
    net.port_up(1);
    run(&net);
    let arrived: Vec<u64> = other.arrived().iter().map(|(name, _)| *name).collect();
    assert_eq!(arrived, [0], "the message came again");
    assert_eq!(net.stats(0).datagrams_lost, 1);
}

#[test]
fn a_moved_gid_breaks_older_pairs_and_address_handles() {
    let (net, mut sides, [here, _]) = joined(FakeConfig::calm(1));
    let [one, other] = &mut sides;
    other.give(Receives::Shared, 0, 4);
    other.give(Receives::Datagrams, 4, 4);
    let (handle, number) = (one.handle(other), other.port.datagram_number());
    net.move_gid(0);
    assert_eq!(one.events(), [PortEvent::AddressChanged]);
    let body = WorkBody::Inline(b"old");
    assert_eq!(
        one.port
            .post_datagram(mailbox(handle, number), 1, body, false),
        Ok(())
    );
    assert!(one.send(here, 2, b"x"));
    run(&net);
    assert_eq!(one.ends(), [(2, WorkStatus::RetryExceeded)]);
    assert_eq!(other.arrived(), []);
    // The GID index in the port's old attributes is empty now.
    let to = other.port.address();
    let empty = Err(CallError {
        call: "ibv_create_ah",
        errno: libc::ENODATA,
    });
    assert_eq!(one.port.create_address_handle(&to), empty);
    let index = one.facts().gid_index;
    assert_eq!(one.port.refresh(), Ok(()));
    assert_ne!(one.facts().gid_index, index);
    let [here, _] = join(&mut sides);
    let [one, other] = &mut sides;
    let handle = one.handle(other);
    assert_eq!(
        one.port
            .post_datagram(mailbox(handle, number), 3, body, false),
        Ok(())
    );
    assert!(one.send(here, 4, b"new"));
    run(&net);
    assert_eq!(one.ends(), [(4, WorkStatus::Success)]);
    assert_eq!(other.arrived().len(), 2);
}

#[test]
fn an_old_port_address_reaches_no_port() {
    for infiniband in [false, true] {
        let config = FakeConfig {
            infiniband,
            ..FakeConfig::calm(1)
        };
        let (net, mut sides, [_, there]) = joined(config);
        let [one, other] = &mut sides;
        one.give(Receives::Datagrams, 0, 4);
        let old = one.port.address();
        let (handle, number) = (other.handle(one), one.port.datagram_number());
        net.readdress(0);
        assert_eq!(one.events(), [PortEvent::AddressChanged]);
        assert_eq!(one.port.refresh(), Ok(()));
        assert_ne!(one.port.address(), old);
        let body = WorkBody::Inline(b"x");
        assert_eq!(
            other
                .port
                .post_datagram(mailbox(handle, number), 1, body, false),
            Ok(())
        );
        assert!(other.send(there, 2, b"x"));
        run(&net);
        assert_eq!(other.ends(), [(2, WorkStatus::RetryExceeded)]);
        assert_eq!(one.arrived(), []);
        assert_eq!(other.port.create_address_handle(&old).is_err(), !infiniband);
        let handle = other.handle(one);
        assert_eq!(
            other
                .port
                .post_datagram(mailbox(handle, number), 3, body, false),
            Ok(())
        );
        run(&net);
        assert_eq!(one.arrived().len(), 1);
    }
}

#[test]
fn a_lost_device_completes_nothing() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    one.give(Receives::Shared, 0, 4);
    other.give(Receives::Shared, 0, 4);
    let handle = one.handle(&other);
    assert!(one.send(here, 1, b"x"));
    net.lose_device(0);
    assert_eq!(one.events(), [PortEvent::DeviceLost]);
    assert!(other.send(there, 2, b"y"));
    one.port.fail(here);
    run(&net);
    assert_eq!((one.ends(), other.arrived()), (vec![], vec![]));
    assert_eq!(other.ends(), [(2, WorkStatus::RetryExceeded)]);
    assert!(!one.send(here, 3, b"z"));
    let calls = [
        one.port.refresh().err(),
        one.port.create().err(),
        one.port.arm().err(),
        one.port.create_address_handle(&other.port.address()).err(),
    ];
    assert!(
        calls
            .iter()
            .all(|error| error.is_some_and(|error| error.errno == libc::EIO))
    );
    assert_eq!(one.give(Receives::Shared, 9, 1), 0);
    // Calls that destroy objects work.
    one.port.destroy(here);
    one.port.destroy_address_handle(handle);
    one.port.deregister(one.region);
    assert_eq!(net.stats(0).regions, 0);
}

#[test]
fn losing_the_shared_receive_queue_leaves_senders_unanswered() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 4);
    net.lose_shared_queue(1);
    assert_eq!(other.events(), [PortEvent::SharedQueueLost]);
    assert_eq!(other.give(Receives::Shared, 9, 1), 0);
    let write = WorkOpcode::Write {
        address: other.address(0),
        key: other.region.remote_key,
    };
    let piece = one.piece(0, 8);
    assert_eq!(
        one.port
            .post(here, &[request(1, write, piece), inline(2, b"x")]),
        2
    );
    run(&net);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success), (2, WorkStatus::RetryExceeded)]
    );
    assert_eq!(other.done(CqKind::Receives), []);
}

#[test]
fn a_vanished_process_does_not_respond() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    assert!(one.send(here, 1, b"x") && other.send(there, 2, b"y"));
    net.vanish(1);
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::RetryExceeded)]);
    assert_eq!((one.events(), other.events()), (vec![], vec![]));
    assert_eq!(other.done(CqKind::Sends), []);
    assert_eq!(
        other.port.create().err().map(|error| error.errno),
        Some(libc::EIO)
    );
    // The host of the killed process still exists.
    assert!(
        one.port
            .create_address_handle(&other.port.address())
            .is_ok()
    );
    assert!(!net.is_up(1) && net.is_up(0));
    assert_eq!(net.stats(1).regions, 0);
}

#[test]
fn a_descheduled_process_neither_posts_nor_polls_but_its_device_works() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 4);
    net.pause(1, 1_000_000);
    net.port_down(1);
    net.port_up(1);
    assert!(!net.is_running(1) && net.is_running(0));
    assert!(!other.send(there, 1, b"x"));
    assert_eq!(other.give(Receives::Shared, 8, 1), 0);
    assert!(one.send(here, 2, b"y"));
    while !net.is_running(1) {
        assert_eq!((other.arrived(), other.events()), (vec![], vec![]));
        assert!(net.advance());
    }
    assert_eq!(net.now_ns(), 1_000_000);
    assert_eq!(other.arrived().len(), 1);
    let status = [PortEvent::PortDown, PortEvent::PortUp, PortEvent::PortUp];
    assert_eq!(other.events(), status);
    assert_eq!(one.ends(), [(2, WorkStatus::Success)]);
}

#[test]
fn a_cut_between_two_ports_does_not_affect_others() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut sides = [Side::open(&net), Side::open(&net)];
    let mut third = Side::open(&net);
    let [here, _] = join(&mut sides);
    let [one, other] = &mut sides;
    let (to_third, from_third) = (one.port.create().unwrap(), third.port.create().unwrap());
    one.port
        .connect(to_third, &remote(&third, from_third, [1, 2]))
        .unwrap();
    third
        .port
        .connect(from_third, &remote(one, to_third, [2, 1]))
        .unwrap();
    other.give(Receives::Shared, 0, 4);
    third.give(Receives::Shared, 0, 4);
    net.cut(1, 0);
    assert!(one.send(here, 1, b"x") && one.send(to_third, 2, b"y"));
    while net.stats(0).repeats < 3 {
        assert!(net.advance());
    }
    assert_eq!((other.arrived().len(), third.arrived().len()), (0, 1));
    net.mend(0, 1);
    run(&net);
    assert_eq!(other.arrived().len(), 1);
    assert_eq!(
        one.ends(),
        [(2, WorkStatus::Success), (1, WorkStatus::Success)]
    );
}

#[test]
fn a_region_may_be_registered_while_the_port_is_down() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut one = Side::open(&net);
    net.port_down(0);
    let region = one.register(0, 8, RegionAccess::Read);
    one.port.deregister(region);
    assert_eq!(net.stats(0).regions, 1);
}
