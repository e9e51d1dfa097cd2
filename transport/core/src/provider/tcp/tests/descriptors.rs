// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a lack of descriptors: which connection makes room, and which warnings are given.

use std::net::SocketAddr;

use super::super::StreamsConfig;
use super::super::sockets::Sockets;
use super::world::{SECOND, World};
use crate::Peer;

/// A world of `ranks` ranks, each limited to `most_open` connections.
fn scarce(ranks: u32, most_open: usize) -> World {
    let config = StreamsConfig {
        most_open,
        ..StreamsConfig::of(0, ranks)
    };
    World::new(config, 1000)
}

fn given_up(world: &World, rank: usize) -> u64 {
    world.all[rank].counts().given_up.get()
}

/// Runs turns for this time, as often as a waiting process would.
fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 10 {
        (0..64).for_each(|_| world.turn());
        world.net.pass(SECOND / 10);
    }
}

#[test]
fn a_process_without_descriptors_loses_no_peer_and_warns_once() {
    let mut world = scarce(2, 0);
    world.send(0, 1);
    pass(&mut world, 200);
    assert_eq!(world.all[0].why_lost(Peer(1)), None);
    let [(0, message)] = &world.complaints[..] else {
        panic!("{:?}", world.complaints);
    };
    assert!(message.contains("ulimit -n"), "{message}");
}

#[test]
fn using_the_last_descriptor_evicts_no_connection() {
    let mut world = scarce(4, 3);
    for (peer, before) in [(1, 0), (2, 1), (3, 2)] {
        pass(&mut world, 1);
        assert_eq!(world.all[0].links.joined.len(), before);
        world.send(peer, 0);
        world.until("it", |world| world.received[0][peer as usize] == 1);
    }
    pass(&mut world, 1);
    assert_eq!(
        (world.all[0].links.joined.len(), given_up(&world, 0)),
        (3, 0)
    );
}

#[test]
fn silent_incoming_connections_are_closed_before_others_are_evicted() {
    let mut world = scarce(5, 3);
    world.send(1, 0);
    world.until("it", |world| world.received[0][1] == 1);
    let to = SocketAddr::from(([10, 0, 0, 0], 1));
    let silent = world.all[3].links.sockets.connect(to).unwrap();
    pass(&mut world, 1);
    assert!(!world.all[0].links.unproven.is_empty());
    // Rank 2 has two addresses, and there is one descriptor.
    world.send(0, 2);
    world.until("it", |world| world.received[2][0] == 1);
    assert!(world.all[0].links.unproven.is_empty());
    let sockets = &mut world.all[3].links.sockets;
    assert!(sockets.receive(silent, None, &mut [0]).is_err(), "it ended");
    assert_eq!(
        (world.all[0].links.has_line(1), given_up(&world, 0)),
        (true, 0)
    );
    // The next connection gets the descriptor of the least recently used one.
    world.send(1, 0);
    world.until("it", |world| world.received[0][1] == 2);
    world.all[3].links.sockets.close(silent);
    pass(&mut world, 1);
    world.send(0, 3);
    world.until("it", |world| world.received[3][0] == 1);
    assert_eq!(world.complaints, []);
    assert_eq!(
        (world.all[0].links.has_line(1), given_up(&world, 0)),
        (true, 1)
    );
}
