// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many connections that send nothing.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::sockets::{SockEvent, Sockets};
use super::super::{StreamsConfig, Tcp};
use super::hostile::{HostilePeer, complaint, connect, host, until};
use super::world::{SECOND, World};

/// Whether there is an event for a waiting connection.
fn is_called<S: Sockets>(tcp: &mut Tcp<S>) -> bool {
    let mut sock_events = Vec::new();
    tcp.links.sockets.poll_events(&mut sock_events);
    sock_events.contains(&SockEvent::Incoming)
}

#[test]
fn a_crowd_that_says_nothing_wakes_nobody_again_and_again() {
    let mut tcp = host();
    let crowd: Vec<_> = (0..100).map(|_| connect(&tcp)).collect();
    until(&mut tcp, |tcp, _| tcp.links.shut_until_ns.is_some());
    assert!(!is_called(&mut tcp), "many wait, and there is no room");
    // They are closed after a moment, and a peer with the key is accepted after them.
    _ = HostilePeer::join(&mut tcp, 1, 1);
    // Ranks of a large job may be as many, so there is no warning at once.
    assert_eq!(complaint(&mut tcp), "");
    drop(crowd);
}

#[test]
fn where_nobody_leaves_the_door_is_opened_when_others_have_to_give_way() {
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
    assert!(!is_called(&mut world.all[0]));
    // One that ends makes room, which is used soon; the others that wait are still too many.
    let sockets = &mut world.all[1].links.sockets;
    let (first, rest) = crowd.split_first().unwrap();
    sockets.close(*first);
    (0..20).for_each(|_| world.turn());
    assert!(due(&world) < Duration::from_millis(6), "{:?}", due(&world));
    // Many that end make room at once.
    let sockets = &mut world.all[1].links.sockets;
    rest[..63].iter().for_each(|sock| sockets.close(*sock));
    (0..20).for_each(|_| world.turn());
    assert!(world.all[0].links.shut_until_ns.is_none());
    world.net.pass(SECOND);
    (0..20).for_each(|_| world.turn());
    assert_eq!(world.complaints, []);
}
