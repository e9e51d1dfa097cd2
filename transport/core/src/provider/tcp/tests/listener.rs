// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with many connections that send nothing.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::sockets::{SockEvent, Sockets};
use super::super::{StreamsConfig, Tcp};
use super::hostile::{HostilePeer, complaint, connect, host, until};
use super::world::{SECOND, World};

/// Whether there is an event for a waiting connection.
fn has_incoming_event<S: Sockets>(tcp: &mut Tcp<S>) -> bool {
    let mut sock_events = Vec::new();
    tcp.links.sockets.poll_events(&mut sock_events);
    sock_events.contains(&SockEvent::Incoming)
}

#[test]
fn many_silent_connections_do_not_keep_waking_the_process() {
    let mut tcp = host();
    let crowd: Vec<_> = (0..100).map(|_| connect(&tcp)).collect();
    until(&mut tcp, |tcp, _| tcp.links.shut_until_ns.is_some());
    assert!(
        !has_incoming_event(&mut tcp),
        "many wait, and there is no room"
    );
    // The silent connections are closed after a moment, and a peer with the key is accepted after them.
    _ = HostilePeer::join(&mut tcp, 1, 1);
    // When a large job begins, its ranks may open this many connections at the same time, so there is no immediate
    // warning.
    assert_eq!(complaint(&mut tcp), "");
    drop(crowd);
}

#[test]
fn a_full_listener_reopens_when_incoming_connections_end() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    world.busy = vec![1];
    let to = SocketAddr::from(([10, 0, 0, 0], 1));
    let sockets = &mut world.all[1].links.sockets;
    let crowd: Vec<_> = (0..100).map(|_| sockets.connect(to).unwrap()).collect();
    world.until("they are too many", |world| {
        world.all[0].links.shut_until_ns.is_some()
    });
    let due = |world: &World| world.all[0].links.until_due().unwrap();
    assert!(due(&world) > Duration::from_millis(90), "{:?}", due(&world));
    (0..1000).for_each(|_| world.turn());
    assert!(!has_incoming_event(&mut world.all[0]));
    // A connection that ends makes room for one other, which is accepted soon; more still wait than there is room for.
    let sockets = &mut world.all[1].links.sockets;
    let (first, rest) = crowd.split_first().unwrap();
    sockets.close(*first);
    (0..20).for_each(|_| world.turn());
    assert!(due(&world) < Duration::from_millis(6), "{:?}", due(&world));
    // When many connections end, the room is used immediately.
    let sockets = &mut world.all[1].links.sockets;
    rest[..63].iter().for_each(|sock| sockets.close(*sock));
    (0..20).for_each(|_| world.turn());
    assert!(world.all[0].links.shut_until_ns.is_none());
    world.net.pass(SECOND);
    (0..20).for_each(|_| world.turn());
    assert_eq!(world.complaints, []);
}
