// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that are given up for others, and what must not be lost by that.

use super::super::StreamsConfig;
use super::world::{HEAD, SECOND, World};
use crate::Peer;

/// Turns until rank 0 has no connection to rank 1, which others take the place of.
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
fn buffers_that_are_given_back_while_there_is_no_connection_are_heard_of() {
    let large = [1; 100];
    for is_crowded in [true, false] {
        let mut world = World::new(StreamsConfig::of(0, 4), 1);
        for _ in 0..MOST_LENT {
            world.all[0].post_send(Peer(1), HEAD, &large).unwrap();
        }
        world.until("all", |world| world.heard[1][0] == MOST_LENT);
        if is_crowded {
            crowd_out(&mut world);
        } else {
            // It waits for the buffers by then, which the other one does not know.
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
        world.until("it", |world| world.heard[1][0] == MOST_LENT + 1);
    }
}

#[test]
fn a_connection_that_a_frame_waits_for_stays() {
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

/// Bodies of one peer that are lent at a time.
const MOST_LENT: u32 = 32;
