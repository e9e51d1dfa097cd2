// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of processes that have to wait for their cores, and of their connected peers.

use super::super::StreamsConfig;
use super::world::World;
use crate::Peer;

#[test]
fn a_peers_lack_of_a_core_is_reported_with_its_next_packet() {
    let mut world = World::new(StreamsConfig::of(0, 3), 8);
    let report_core = |world: &mut World, from: u32, lacks_core| {
        world.all[from as usize].set_lacks_core(lacks_core);
        let before = world.received[0][from as usize];
        world.send(from, 0);
        world.until("it", |world| world.received[0][from as usize] > before);
        world.all[0].is_any_peer_lacking()
    };
    assert!(!report_core(&mut world, 1, false));
    assert!(report_core(&mut world, 1, true));
    assert!(report_core(&mut world, 2, true), "two of them");
    assert!(report_core(&mut world, 1, false), "one is left");
    assert!(!report_core(&mut world, 2, false));
    // A peer whose connection has ended is not counted.
    assert!(report_core(&mut world, 2, true));
    world.all[0].lose(Peer(2), "a test loses it");
    assert!(!world.all[0].is_any_peer_lacking());
    assert!(report_core(&mut world, 1, true));
    world.all[0].links.hang_up(1);
    assert!(!world.all[0].is_any_peer_lacking());
}
