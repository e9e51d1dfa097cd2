// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with peers that do not reply because they compute, have ended or cannot be reached, and of how long that is
//! tolerated.

use std::net::IpAddr;

use super::super::{StreamsConfig, address};
use super::world::{SECOND, World};
use crate::Peer;
use crate::wait_set::WaitSet;

fn calm(ranks: u32) -> World {
    World::new(StreamsConfig::of(0, ranks), 8)
}

/// Polls all processes during `seconds` of simulated time, about as often as waiting processes would poll.
fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 10 {
        for _ in 0..64 {
            world.turn();
        }
        world.net.pass(SECOND / 10);
    }
}

#[test]
fn a_hanging_connect_does_not_block_the_peers_connect() {
    let mut world = calm(3);
    // The only address that rank 0 has for rank 1 leads to rank 2, which does not reply although its system accepts the
    // connection.
    world.busy = vec![2];
    let wrong: IpAddr = "10.0.1.1".parse().unwrap();
    let identity = world.all[1].links.identity;
    let record = address::to_record(&[wrong], 1, identity, "");
    world.all[0].set_peer_address(Peer(1), Some(&record));
    world.send(0, 1);
    pass(&mut world, 1);
    // If the connection attempt of rank 0 counted for ever, rank 1 would always have to yield to it, since rank 0 has
    // precedence.
    world.send(1, 0);
    pass(&mut world, 4);
    assert_eq!((world.received[0][1], world.received[1][0]), (1, 1));
    assert!(world.complaints.is_empty(), "{:?}", world.complaints);
}

#[test]
fn a_peer_that_was_given_up_is_notified() {
    let mut world = calm(2);
    world.all[0].lose(Peer(1), "a test loses it");
    world.send(1, 0);
    world.until("the notice", |world| {
        world.all[1].why_lost(Peer(0)).is_some()
    });
    let why = world.all[1].why_lost(Peer(0)).unwrap();
    assert!(why.contains("given this process up"), "{why}");
}

#[test]
fn a_silent_peer_is_lost_after_120_seconds() {
    let mut world = calm(2);
    world.net.cut_off(1);
    world.send(0, 1);
    pass(&mut world, 9);
    assert!(world.complaints.is_empty(), "{:?}", world.complaints);
    pass(&mut world, 6);
    assert_eq!(world.complaints.len(), 1, "{:?}", world.complaints);
    pass(&mut world, 100);
    assert_eq!(world.all[0].why_lost(Peer(1)), None);
    pass(&mut world, 8);
    let why = world.all[0].why_lost(Peer(1)).unwrap_or_default();
    assert!(why.contains("for 120 s"), "{why}");
}

#[test]
fn a_process_that_has_ended_is_lost_within_seconds() {
    for was_joined in [false, true] {
        let mut world = calm(2);
        if was_joined {
            world.send(0, 1);
            world.until("the frame", |world| world.received[1][0] == 1);
        }
        world.busy = vec![1];
        world.net.end(1);
        world.send(0, 1);
        pass(&mut world, 5);
        assert_eq!(world.all[0].why_lost(Peer(1)), None);
        pass(&mut world, 15);
        let why = world.all[0].why_lost(Peer(1)).unwrap_or_default();
        assert!(why.contains("its process has ended"), "{why}");
    }
}

#[test]
fn a_connection_made_while_its_rank_slept_is_used() {
    let mut world = calm(2);
    world.busy = vec![1];
    world.send(0, 1);
    world.turn();
    assert_eq!(world.net.connections(), 2, "one for each address");
    for _ in 0..3 {
        world.net.pass(60 * SECOND);
        let tcp = &mut world.all[0];
        tcp.prepare_sleep();
        tcp.fall_asleep(&mut WaitSet::new());
        tcp.wake();
        world.turn();
    }
    assert_eq!(world.net.connections(), 2, "none was thrown away");
    world.busy.clear();
    world.until("it", |world| world.received[1][0] == 1);
    assert!(world.complaints.is_empty(), "{:?}", world.complaints);
}

#[test]
fn computing_ranks_cause_no_warnings() {
    let mut world = calm(2);
    // Rank 1 sends its HELLO, and nothing more for a minute; in the second case it only connects.
    for turns in [40, 1] {
        world.send(1, 0);
        for _ in 0..turns {
            if world.all[0].links.unproven.is_empty() {
                world.turn();
            }
        }
        world.busy = vec![1];
        pass(&mut world, 60);
        world.busy.clear();
        let received = world.received[0][1];
        world.until("the frame", |world| world.received[0][1] >= received.max(1));
        world.all[1].links.hang_up(0);
        pass(&mut world, 1);
    }
    assert!(world.complaints.is_empty(), "{:?}", world.complaints);
}
