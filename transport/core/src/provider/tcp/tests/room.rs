// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of connections that are evicted for others, without losses.

use super::super::StreamsConfig;
use super::super::connect_queue::MOST_CALLS;
use super::super::memory::lent_for_ever;
use super::world::{HEAD, SECOND, World};
use crate::provider::verbs::WorkKind;
use crate::{Peer, WorkId};

/// Runs turns until connections of other ranks have replaced the connection between ranks 0 and 1.
fn crowd_out(world: &mut World) {
    for _ in 0..100 {
        for (from, to) in [(2, 0), (3, 1)] {
            world.send(from, to);
        }
        (0..100).for_each(|_| world.turn());
        world.net.pass(SECOND / 10);
        if !world.all[0].links.has_line(1) {
            return;
        }
    }
    panic!("the connection stays");
}

#[test]
fn buffers_released_without_a_connection_are_reported_later() {
    let large = [1; 100];
    for is_crowded in [true, false] {
        let mut world = World::new(StreamsConfig::of(0, 4), 1);
        for _ in 0..MOST_LENT {
            world.all[0].post_send(Peer(1), HEAD, &large).unwrap();
        }
        world.until("all", |world| world.received[1][0] == MOST_LENT);
        if is_crowded {
            crowd_out(&mut world);
        } else {
            // Rank 0 now waits for buffers; rank 1 does not detect this.
            _ = world.all[0].post_send(Peer(1), HEAD, &large).unwrap_err();
            (0..1000).for_each(|_| world.turn());
            world.all[1].links.hang_up(0);
        }
        (0..MOST_LENT).for_each(|index| world.all[1].release(0, index));
        let mut has_sent = false;
        for _ in 0..10_000 {
            world.turn();
            has_sent = world.all[0].post_send(Peer(1), HEAD, &large).is_ok();
            if has_sent {
                break;
            }
        }
        assert!(has_sent, "{is_crowded}");
        world.until("it", |world| world.received[1][0] == MOST_LENT + 1);
    }
}

#[test]
fn a_frame_taken_by_poll_word_counts_as_received() {
    let mut world = World::new(StreamsConfig::of(0, 2), 4);
    world.send(1, 0);
    for body in [&[1; 8][..], &[1; 100]] {
        (0..100).for_each(|_| world.turn());
        let line = world.all[0].links.of(1).line.as_mut().unwrap();
        // The line (the connection with rank 1) is made to look as if it had just replaced another.
        line.has_come = false;
        world.busy = vec![0];
        world.all[1].post_send(Peer(0), HEAD, body).unwrap();
        for _ in 0..100 {
            world.turn();
            _ = world.all[0].poll_word();
        }
        world.busy.clear();
        let line = world.all[0].links.of(1).line.as_ref().unwrap();
        assert!(line.has_come, "{} bytes", body.len());
    }
}

#[test]
fn a_connection_with_a_waiting_frame_is_not_evicted() {
    let mut world = World::new(StreamsConfig::of(0, 4), 1);
    while world.all[0].post_send(Peer(1), HEAD, &[1; 100]).is_ok() {}
    for _ in 0..100 {
        for (from, to) in [(2, 0), (3, 0)] {
            world.send(from, to);
        }
        (0..100).for_each(|_| world.turn());
        world.net.pass(SECOND / 100);
    }
    assert!(world.all[0].links.has_line(1));
    let given_up = world.all[0].counts().given_up.get();
    assert!(given_up > 10, "others take turns: {given_up}");
}

/// If `by_first`, rank 0 reads or writes memory of all other ranks; otherwise all other ranks read or write memory of
/// rank 0. A turn is long: the transfer of one piece takes part of the time for which a connection may stay. Returns
/// also the maximum number of connections that rank 0 had at a time.
fn move_data(
    config: StreamsConfig,
    pairs: u32,
    bytes: usize,
    (kind, by_first): (WorkKind, bool),
) -> (World, usize) {
    let mut world = World::new(config, pairs);
    let content = || lent_for_ever(vec![7; bytes]);
    let far = content().address();
    for other in 1..config.ranks {
        let (from, to) = if by_first { (0, other) } else { (other, 0) };
        let key = world.all[to as usize].export(Peer(from), far, bytes as u64);
        let (tcp, name) = (&mut world.all[from as usize], WorkId(other.into()));
        tcp.post_work(Peer(to), (kind, content()), key, 0, name);
    }
    let mut most = 0;
    for _ in 0..300 {
        world.turn();
        world.net.pass(SECOND / 20);
        most = most.max(world.all[0].links.joined.len());
        if world.worked.iter().sum::<u32>() == config.ranks - 1 {
            return (world, most);
        }
    }
    panic!("{kind:?} by the first: {by_first}: {:?}", world.worked);
}

/// All arguments of [`move_data`].
const TRANSFERS: [(WorkKind, bool); 4] = [
    (WorkKind::Read, true),
    (WorkKind::Read, false),
    (WorkKind::Write, true),
    (WorkKind::Write, false),
];

#[test]
fn transfers_complete_with_more_peers_than_connections() {
    for (most_open, pairs) in [(usize::MAX, 1), (usize::MAX, 3), (6, 1000)] {
        let config = StreamsConfig {
            most_open,
            ..StreamsConfig::of(0, 13)
        };
        for transfer in TRANSFERS {
            let (world, _) = move_data(config, pairs, 768 << 10, transfer);
            // Few connections broke: none was evicted while it moved data.
            let broken: u64 = world.all.iter().map(|tcp| tcp.counts().broken.get()).sum();
            assert!(
                broken <= 20,
                "{most_open} {pairs} {transfer:?}: {broken} broke"
            );
        }
    }
}

#[test]
fn connections_stay_bounded_while_many_peers_move_data() {
    let (ranks, pairs) = (200, 4);
    for transfer in TRANSFERS {
        let (world, most) = move_data(StreamsConfig::of(0, ranks), pairs, 64 << 10, transfer);
        // The sum of twice the limit of connections, the unauthenticated incoming connections, and the outgoing
        // attempts.
        assert!(most <= 2 * 4 + 64 + MOST_CALLS, "{transfer:?}: {most}");
        assert!(world.complaints.is_empty(), "{:?}", world.complaints);
    }
}

/// Maximum number of frame bodies of one peer that its receiver has not released yet.
const MOST_LENT: u32 = 32;
