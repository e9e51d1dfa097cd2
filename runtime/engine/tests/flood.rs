// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promises E2 and E3: a receiver that waits for one message gets this message during a flood of others, and keeps
//! within its budget.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod common;

use common::{Frame, Reads, World, key, pattern};
use engine::{Config, ContextId, Peer, Receive, RequestId, Send, wire};

const CONTEXT: ContextId = ContextId(4);
const BUDGET: u64 = 200_000;
const EAGER: u64 = 1000;
/// Maximum number of frames in flight to the receiver before its THROTTLE can arrive.
const ROOM: usize = 64;

/// Upper bound of the memory of a message without its body.
const MAX_OVERHEAD_BYTES: u64 = 400;

fn world(ranks: u32, reads: Reads) -> World {
    let config = Config {
        eager_limit_bytes: EAGER,
        unexpected_budget_bytes: BUDGET,
        stream_chunk_bytes: 500,
        ..Config::default()
    };
    World::new(ranks, config, ROOM, reads, 7)
}

/// A standard send as the owner makes it: posted directly if possible, otherwise with a request. Returns the request.
fn send(world: &mut World, from: u32, tag: i32, bytes: u64) -> Option<RequestId> {
    let body = pattern(tag as usize, bytes);
    if bytes <= EAGER && world.engines[from as usize].is_clear(Peer(0)) {
        let head = wire::eager(CONTEXT, tag);
        let frame = Frame {
            head,
            body: body.clone(),
            message: None,
        };
        if world.post(from, 0, frame) {
            return None;
        }
    }
    let buffer = world.lend(body);
    let send = Send {
        peer: Peer(0),
        context: CONTEXT,
        tag,
        bytes,
        buffer,
        synchronous: false,
        early: false,
        key: key(buffer, bytes, 0),
    };
    Some(world.engines[from as usize].start_send(send).unwrap())
}

fn receive(world: &mut World, peer: Option<u32>, tag: Option<i32>, bytes: u64) -> RequestId {
    let buffer = world.lend(vec![0; bytes as usize]);
    let wanted = Receive {
        context: CONTEXT,
        peer: peer.map(Peer),
        tag,
        bytes,
        buffer,
    };
    let (request, output) = world.engines[0].start_receive(wanted, false).unwrap();
    if let Some(output) = output {
        world.carry_out(0, output);
    }
    request
}

/// Bytes of the unexpected messages that the receiver's engine keeps, with 128 bytes for each message.
fn memory_of(world: &World) -> u64 {
    let engine = &world.engines[0];
    let arena = engine.arena();
    let kept = arena
        .iter()
        .filter(|id| arena.fields(*id).kind == engine::RequestKind::Unexpected)
        .filter(|id| arena.fields(*id).state == engine::RequestState::Kept);
    kept.map(|id| arena.fields(id).bytes + 128).sum()
}

/// Each of `senders` ranks sends `count` messages of tag 1 and then one of tag 2. Rank 0 waits for the messages of tag
/// 2.
fn flood(senders: u32, count: usize, bytes: u64, reads: Reads) {
    let mut world = world(senders + 1, reads);
    let wanted: Vec<_> = (1..=senders)
        .map(|from| receive(&mut world, Some(from), Some(2), 5000))
        .collect();
    let mut open = Vec::new();
    let mut most = 0;
    for turn in 0..count {
        for from in 1..=senders {
            open.extend(send(&mut world, from, 1, bytes).map(|request| (from, request)));
        }
        // The receiver polls, and the senders make progress, after every `ROOM` messages: as many as a wire holds.
        if turn % ROOM == 0 {
            most = most.max(memory_of(&world));
            for _ in 0..2 * ROOM * senders as usize {
                world.step();
            }
        }
        world.events.clear();
    }
    for from in 1..=senders {
        open.extend(send(&mut world, from, 2, 77).map(|request| (from, request)));
    }
    world.settle();
    most = most.max(memory_of(&world));
    for request in &wanted {
        assert!(
            world.engines[0].is_complete(*request),
            "the awaited message is not here"
        );
    }
    let slack = u64::from(senders) * (4 * ROOM as u64) * (bytes.min(EAGER) + MAX_OVERHEAD_BYTES);
    assert!(
        most <= BUDGET + slack,
        "{most} bytes kept, budget {BUDGET}, slack {slack}"
    );
    let peak = world.engines[0].counters().kept_bytes_peak;
    assert!(peak <= BUDGET + slack, "{peak} bytes counted");

    // Nothing of the flood was lost: everything can be received.
    for _ in 0..count * senders as usize {
        let request = receive(&mut world, None, Some(1), bytes);
        world.settle();
        assert!(world.engines[0].is_complete(request));
        world.engines[0].collect(request);
        world.events.clear();
    }
    for (from, request) in open {
        assert!(world.engines[from as usize].is_complete(request));
    }
    for from in 1..=senders {
        assert!(
            world.engines[from as usize].is_clear(Peer(0)),
            "the brake is off again"
        );
    }
    assert_eq!(world.engines[0].counters().kept_bytes, 0);
}

#[test]
fn an_awaited_message_arrives_through_a_flood_of_small_ones() {
    flood(1, 20_000, 8, Reads::Work);
}

#[test]
fn an_awaited_message_arrives_through_a_flood_of_empty_ones() {
    flood(1, 20_000, 0, Reads::Work);
}

#[test]
fn an_awaited_message_arrives_through_a_flood_of_large_eager_ones() {
    flood(1, 3000, EAGER, Reads::Never);
}

#[test]
fn an_awaited_message_arrives_through_a_flood_of_announced_ones() {
    flood(1, 500, 3000, Reads::Sometimes);
}

#[test]
fn awaited_messages_arrive_through_floods_of_several_senders() {
    flood(4, 3000, 100, Reads::Sometimes);
}

/// Senders are throttled while unexpected messages fill half of all slots, even if the budget is not reached.
#[test]
fn senders_are_throttled_before_request_slots_run_out() {
    let config = Config {
        unexpected_budget_bytes: u64::MAX >> 1,
        ..Config::default()
    };
    let mut world = World::new(2, config, 1 << 20, Reads::Work, 1);
    for _ in 0..(1 << 18) + 1 {
        assert!(send(&mut world, 1, 1, 0).is_none());
    }
    world.deliver_all(0);
    world.events.clear();
    world.settle();
    assert!(
        !world.engines[1].is_clear(Peer(0)),
        "the sender was not throttled"
    );
    assert_eq!(world.engines[0].counters().refused, 0);
    for _ in 0..=(1 << 17) {
        let request = receive(&mut world, None, None, 0);
        world.engines[0].collect(request);
    }
    world.settle();
    assert!(world.engines[1].is_clear(Peer(0)));
}
