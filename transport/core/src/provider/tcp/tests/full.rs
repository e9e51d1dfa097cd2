// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a caller that has no room for completions.

use super::super::StreamsConfig;
use super::super::memory::lent_for_ever;
use super::world::{SECOND, World};
use crate::provider::verbs::WorkKind;
use crate::{Completion, Completions, Peer, WorkId};

#[test]
fn a_write_completed_while_the_queue_is_full_is_answered() {
    let config = StreamsConfig {
        most_bytes: 30_000,
        ..StreamsConfig::of(0, 2)
    };
    let mut world = World::new(config, 8);
    world.send(1, 0);
    world.until("the connection", |world| world.received[0][1] == 1);
    let content = || lent_for_ever(vec![7; 100_000]);
    let far = content().address();
    let key = world.all[0].export(Peer(1), far, 100_000);
    let work = (WorkKind::Write, content());
    world.all[1].post_work(Peer(0), work, key, 0, WorkId(1));
    let mut full = Completions::new();
    while !full.is_full() {
        full.push(Completion::Lost { peer: Peer(1) });
    }
    let inflow = |world: &World| {
        let side = world.all[0].links.find(1).unwrap();
        side.line.as_ref().unwrap().inflow
    };
    // The write begins to arrive while there is room for completions, and ends while there is none.
    for _ in 0..100 {
        if inflow(&world).is_some() {
            break;
        }
        world.net.pass(SECOND / 1000);
        world.all[1].poll(&mut Completions::new());
        world.all[0].take(1, &mut Completions::new());
    }
    for _ in 0..100 {
        world.net.pass(SECOND / 1000);
        world.all[1].poll(&mut Completions::new());
        world.all[0].take(1, &mut full);
    }
    assert!(inflow(&world).is_some());
    // This poll has room, so it ends the write. Then rank 0 sleeps until an event.
    world.all[0].poll(&mut Completions::new());
    assert!(inflow(&world).is_none());
    world.all[0].prepare_sleep();
    world.busy = vec![0];
    world.until("the answer", |world| world.worked[1] == 1);
}
