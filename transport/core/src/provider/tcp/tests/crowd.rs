// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with many peers and few descriptors.

use super::super::active_open::ConnectStage;
use super::super::connect_queue::MOST_CALLS;
use super::super::sockets::Sockets;
use super::super::{FakeSockets, StreamsConfig, Tcp};
use super::world::{SECOND, World};
use crate::Peer;

const MANY: u32 = 150;

fn calm(most_open: usize) -> StreamsConfig {
    StreamsConfig {
        most_open,
        ..StreamsConfig::of(0, MANY)
    }
}

/// Whether each other rank has received one frame from rank 0.
fn all_have_received(world: &World) -> bool {
    world.received[1..].iter().all(|received| received[0] == 1)
}

#[test]
fn concurrent_connects_are_limited() {
    let mut world = World::new(calm(usize::MAX), 1000);
    (1..MANY).for_each(|peer| world.send(0, peer));
    world.turn();
    assert_eq!(world.all[0].links.calls.under_way().len(), MOST_CALLS);
    world.until("all", |world| {
        let calls = world.all[0].links.calls.under_way();
        assert!(calls.len() <= MOST_CALLS);
        all_have_received(world)
    });
    // A call makes one connection to each of the two addresses of its peer; one of the two stays.
    let peak = world.net.peak(0);
    assert!(peak <= MANY as usize + MOST_CALLS, "{peak} connections");
    assert_eq!(world.all[0].links.calls.under_way().len(), 0);
}

#[test]
fn unresponsive_peers_do_not_delay_connects_to_others() {
    let mut world = World::new(calm(usize::MAX), 1000);
    // More peers compute than may be called (connected to) at a time.
    world.busy = (1..100).collect();
    (1..MANY).for_each(|peer| world.send(0, peer));
    for _ in 0..100 {
        for _ in 0..100 {
            world.turn();
        }
        world.net.pass(SECOND / 10);
    }
    assert!(
        world.received[100..]
            .iter()
            .all(|received| received[0] == 1)
    );
    assert!(world.all.iter().all(|tcp| tcp.why_lost(Peer(0)).is_none()));
    world.busy.clear();
    for _ in 0..100 {
        for _ in 0..100 {
            world.turn();
        }
        world.net.pass(SECOND / 10);
    }
    assert!(all_have_received(&world));
}

/// Rank 0 sends to all other ranks while they compute, until each attempt of rank 0 to connect (a call) has had its
/// turn.
fn connect_all_in_vain(world: &mut World) {
    world.busy = (1..MANY).collect();
    (1..MANY).for_each(|peer| world.send(0, peer));
    for _ in 0..200 {
        (0..10).for_each(|_| world.turn());
        world.net.pass(SECOND / 10);
    }
}

#[test]
fn a_computing_peer_gets_one_connection_per_address() {
    let mut world = World::new(calm(usize::MAX), 1000);
    connect_all_in_vain(&mut world);
    // The second address of the last rank leads to rank 0 itself, which rejects its own connection.
    let (all, most) = (MANY as usize - 1, world.net.connections());
    assert!((2 * all..2 * all + 100).contains(&most), "{most}");
    let calls = &world.all[0].links.calls;
    assert_eq!((calls.all().count(), calls.waiting()), (all, 0));
    world.busy.clear();
    world.until("all", all_have_received);
    assert!(world.all[0].links.calls.is_empty());
}

#[test]
fn connects_set_aside_stay_within_the_connection_limit() {
    let lines = 16;
    let mut world = World::new(calm(usize::MAX), lines);
    connect_all_in_vain(&mut world);
    let (peak, lines) = (world.net.peak(0), lines as usize);
    // Each call in its turn has two connections. The second address of the last rank leads to rank 0 itself, which
    // holds the other end of that connection too: one more.
    let most = lines + 2 * MOST_CALLS + 1;
    assert!((2 * lines..=most).contains(&peak), "{peak} connections");
    assert_eq!(world.all[0].links.calls.all().count(), MANY as usize - 1);
}

#[test]
fn connects_set_aside_leave_descriptors_to_the_program() {
    let most_open = 160;
    let mut world = World::new(calm(most_open), 1000);
    connect_all_in_vain(&mut world);
    let links = &world.all[0].links;
    let kept = |peer: u32| {
        let call = links.find(peer).and_then(|side| side.call.as_ref());
        call.map_or(0, |call| call.socks().count())
    };
    let waiting = links
        .calls
        .all()
        .filter(|peer| !links.calls.is_under_way(*peer));
    let kept: usize = waiting.map(kept).sum();
    assert!((30..=most_open / 4).contains(&kept), "{kept} descriptors");
    assert!(world.net.peak(0) < most_open, "all descriptors were taken");
    world.busy.clear();
    for _ in 0..200 {
        (0..10).for_each(|_| world.turn());
        world.net.pass(SECOND / 10);
    }
    assert!(all_have_received(&world));
}

#[test]
fn a_connect_set_aside_that_is_closed_is_retried() {
    let mut world = World::new(calm(usize::MAX), 1000);
    connect_all_in_vain(&mut world);
    assert!(world.all[0].links.calls.is_aside(7));
    // The connections from rank 0 wait in the accept queues of the other ranks, which compute; here the test accepts
    // and closes them unprocessed.
    for peer in 1..MANY {
        let sockets = &mut world.all[peer as usize].links.sockets;
        while let Some((sock, _)) = sockets.accept().unwrap() {
            sockets.close(sock);
        }
    }
    world.until("the end of them", |world| {
        !world.all[0].links.calls.is_aside(7)
    });
    world.busy.clear();
    for _ in 0..200 {
        (0..10).for_each(|_| world.turn());
        world.net.pass(SECOND / 10);
    }
    assert!(all_have_received(&world));
}

/// Checks that only calls in their turn connect.
fn assert_connects_have_their_turn(tcp: &Tcp<FakeSockets>) {
    for peer in 0..MANY {
        let call = tcp.links.find(peer).and_then(|side| side.call.as_ref());
        let mut tries = call.iter().flat_map(|call| &call.tries);
        if tries.any(|one| matches!(one.stage, ConnectStage::Connecting { .. })) {
            assert!(tcp.links.calls.is_under_way(peer), "rank {peer}");
        }
    }
}

#[test]
fn idle_connections_beyond_the_limit_are_evicted() {
    let mut world = World::new(calm(usize::MAX), 16);
    let joined = |tcp: &Tcp<_>| tcp.links.joined.len();
    world.busy = (1..MANY).collect();
    (1..MANY).for_each(|peer| world.send(0, peer));
    for _ in 0..100 {
        world.turn();
    }
    world.busy.clear();
    world.until("all", all_have_received);
    // Everything has arrived; the timers evict the connections above the limit.
    for _ in 0..64 {
        world.turn();
    }
    world.net.pass(SECOND);
    world.until("few", |world| joined(&world.all[0]) <= 16);
    // What arrived over evicted connections was acknowledged before: no process connects again to acknowledge it.
    let had = world.net.connections();
    for _ in 0..1000 {
        world.turn();
    }
    assert_eq!(world.net.connections(), had);
}

#[test]
fn running_out_of_descriptors_evicts_connections_and_loses_no_peer() {
    for pairs in [4, 1000] {
        let mut world = World::new(calm(12), pairs);
        (1..MANY).for_each(|peer| world.send(0, peer));
        // At the same time, all others connect to rank 0.
        (1..MANY).for_each(|peer| world.send(peer, 0));
        let has_all = |world: &World| world.received[0][1..].iter().all(|count| *count == 1);
        for _ in 0..400 {
            for _ in 0..100 {
                world.turn();
                assert_connects_have_their_turn(&world.all[0]);
            }
            world.net.pass(SECOND / 20);
            if all_have_received(&world) && has_all(&world) {
                break;
            }
        }
        assert!(all_have_received(&world) && has_all(&world), "{pairs}");
        assert!(world.net.peak(0) <= 12);
        let lost = |tcp: &Tcp<_>| (0..MANY).any(|peer| tcp.why_lost(Peer(peer)).is_some());
        assert!(!world.all.iter().any(lost));
        // The lack of descriptors is reported once at most, and the message names the limit.
        let mine = world.complaints.iter().filter(|(rank, _)| *rank == 0);
        assert!(mine.clone().count() <= 1, "{:?}", world.complaints);
        assert!(
            mine.clone()
                .all(|(_, message)| message.contains("ulimit -n"))
        );
    }
}

#[test]
fn all_to_all_completes_with_few_descriptors() {
    let ranks = 24;
    let config = StreamsConfig {
        most_open: 10,
        ..StreamsConfig::of(0, ranks)
    };
    let mut world = World::new(config, 1000);
    for from in 0..ranks {
        (0..ranks)
            .filter(|to| *to != from)
            .for_each(|to| world.send(from, to));
    }
    let received = |world: &World| world.received.iter().flatten().sum::<u32>();
    for _ in 0..2000 {
        for _ in 0..64 {
            world.turn();
        }
        world.net.pass(SECOND / 100);
        if received(&world) == ranks * (ranks - 1) {
            break;
        }
    }
    assert_eq!(received(&world), ranks * (ranks - 1));
    let mut complaints = world.complaints.iter();
    assert!(complaints.all(|(_, message)| message.contains("ulimit -n")));
}

#[test]
fn many_incoming_connections_are_accepted_without_delay() {
    let mut world = World::new(calm(usize::MAX), 1000);
    (1..MANY).for_each(|peer| world.send(peer, 0));
    let mut turns = 0;
    while world.received[0][1..].contains(&0) {
        world.turn();
        turns += 1;
        assert!(turns < 500, "it takes long");
    }
    assert!(world.all[0].links.unproven.is_empty());
}
