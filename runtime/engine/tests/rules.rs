// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single rules of MPI 5.0 chapter 3, one test each.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod common;

use common::{Reads, WireEvent, World, key, pattern};
use engine::{
    Config, ContextId, Engine, Output, Peer, Receive, RequestFailure, RequestId, RequestState,
    Send, wire,
};
use queue_layout::{FLAG_CANCELLED, RequestFields};

const CONTEXT: ContextId = ContextId(4);

fn world(reads: Reads) -> World {
    let config = Config {
        eager_limit_bytes: 100,
        stream_chunk_bytes: 64,
        early_limit_bytes: 0,
        ..Config::default()
    };
    World::new(2, config, 64, reads, 1)
}

fn send(
    world: &mut World,
    from: u32,
    to: u32,
    tag: i32,
    bytes: u64,
    synchronous: bool,
) -> RequestId {
    let buffer = world.lend(pattern(tag as usize, bytes));
    let send = described(to, tag, bytes, buffer, synchronous);
    world.engines[from as usize].start_send(send).unwrap()
}

fn described(to: u32, tag: i32, bytes: u64, buffer: u64, synchronous: bool) -> Send {
    Send {
        peer: Peer(to),
        context: CONTEXT,
        tag,
        bytes,
        buffer,
        synchronous,
        early: false,
        key: key(buffer, bytes, to),
    }
}

fn receive(
    world: &mut World,
    at: u32,
    peer: Option<u32>,
    tag: Option<i32>,
    bytes: u64,
) -> RequestId {
    let buffer = world.lend(vec![0; bytes as usize]);
    let receive = Receive {
        context: CONTEXT,
        peer: peer.map(Peer),
        tag,
        bytes,
        buffer,
    };
    let (request, output) = world.engines[at as usize]
        .start_receive(receive, false)
        .unwrap();
    if let Some(output) = output {
        world.carry_out(at, output);
    }
    request
}

fn fields(world: &World, rank: u32, request: RequestId) -> RequestFields {
    *world.engines[rank as usize].arena().fields(request)
}

fn is_complete(world: &World, rank: u32, request: RequestId) -> bool {
    world.engines[rank as usize].is_complete(request)
}

fn content(world: &mut World, rank: u32, request: RequestId) -> Vec<u8> {
    let buffer = fields(world, rank, request).buffer;
    world.buffer(buffer).clone()
}

#[test]
fn s3_2_4_a_message_that_is_too_long_is_truncated_with_an_error() {
    for reads in [Reads::Work, Reads::Never] {
        for (bytes, room) in [(50, 20), (1, 0), (5000, 4000), (5000, 50), (5000, 0)] {
            for early in [false, true] {
                let mut world = world(reads);
                let mut request = None;
                if !early {
                    request = Some(receive(&mut world, 1, Some(0), Some(3), room));
                }
                let sent = send(&mut world, 0, 1, 3, bytes, false);
                world.settle();
                let request = request.unwrap_or_else(|| receive(&mut world, 1, None, None, room));
                world.settle();
                let ended = fields(&world, 1, request);
                assert_eq!(
                    (ended.state, ended.error),
                    (RequestState::Complete, RequestFailure::Truncated as u8)
                );
                assert_eq!(ended.matched_bytes, bytes);
                assert_eq!(
                    content(&mut world, 1, request),
                    pattern(3, bytes)[..room as usize]
                );
                assert!(is_complete(&world, 0, sent), "the sender does not suffer");
            }
        }
    }
}

#[test]
fn s3_2_2_empty_messages_match_and_complete() {
    for synchronous in [false, true] {
        for early in [false, true] {
            let mut world = world(Reads::Work);
            let first = early.then(|| receive(&mut world, 1, None, Some(2), 8));
            let sent = send(&mut world, 0, 1, 2, 0, synchronous);
            world.settle();
            assert_eq!(is_complete(&world, 0, sent), early || !synchronous);
            let request = first.unwrap_or_else(|| receive(&mut world, 1, Some(0), None, 8));
            world.settle();
            let ended = fields(&world, 1, request);
            assert_eq!(
                (ended.state, ended.error, ended.matched_bytes),
                (RequestState::Complete, 0, 0)
            );
            assert_eq!((ended.matched_peer, ended.matched_tag), (0, 2));
            assert!(is_complete(&world, 0, sent));
        }
    }
}

#[test]
fn s3_4_a_synchronous_send_completes_only_after_its_match() {
    for bytes in [0, 8, 5000] {
        let mut world = world(Reads::Sometimes);
        let sent = send(&mut world, 0, 1, 1, bytes, true);
        // Neither a receive of another tag nor a probe completes the send.
        receive(&mut world, 1, None, Some(2), 5000);
        world.settle();
        assert!(world.engines[1].probe(CONTEXT, None, None).is_some());
        world.settle();
        assert!(!is_complete(&world, 0, sent));
        receive(&mut world, 1, None, Some(1), 5000);
        world.settle();
        assert!(is_complete(&world, 0, sent));
    }
}

/// Number of frames of one kind that a rank has posted, and how many of these had flags.
fn posted(world: &mut World, from: u32, kind: u8) -> (usize, usize) {
    let is_it = |events: &&WireEvent| matches!(events, WireEvent::Posted { from: rank, frame, .. } if *rank == from && frame.head.kind == kind);
    let found: Vec<_> = world.events.iter().filter(is_it).collect();
    let has_flags = |events: &&&WireEvent| matches!(events, WireEvent::Posted { frame, .. } if frame.head.flags != 0);
    (found.len(), found.iter().filter(has_flags).count())
}

#[test]
fn s3_4_at_most_256_small_synchronous_sends_go_eagerly() {
    const MANY: usize = 300;
    const MARKS: usize = 256;
    let mut world = world(Reads::Work);
    for round in 0..3 {
        world.events.clear();
        let sent: Vec<_> = (0..MANY)
            .map(|tag| send(&mut world, 0, 1, tag as i32, 60, true))
            .collect();
        world.settle();
        assert_eq!(posted(&mut world, 0, wire::EAGER), (MARKS, MARKS));
        assert_eq!(posted(&mut world, 0, wire::RTS).0, MANY - MARKS);
        // The receives are posted in reverse order, so the answers arrive in another order than that of the marks.
        for tag in (0..MANY).rev() {
            assert!(!is_complete(&world, 0, sent[tag]), "round {round}");
            let request = receive(&mut world, 1, Some(0), Some(tag as i32), 60);
            world.settle();
            assert!(is_complete(&world, 0, sent[tag]), "round {round}");
            assert_eq!(content(&mut world, 1, request), pattern(tag, 60));
            world.engines[1].collect(request);
            world.engines[0].collect(sent[tag]);
        }
        assert_eq!(posted(&mut world, 1, wire::MATCHED), (MARKS, 0));
    }
}

#[test]
fn s3_4_an_unmatched_synchronous_send_does_not_block_later_ones() {
    let mut world = world(Reads::Work);
    send(&mut world, 0, 1, 1, 8, true);
    world.settle();
    world.events.clear();
    for _ in 0..600 {
        let sent = send(&mut world, 0, 1, 2, 8, true);
        let request = receive(&mut world, 1, Some(0), Some(2), 8);
        world.settle();
        assert!(is_complete(&world, 0, sent));
        world.engines[1].collect(request);
        world.engines[0].collect(sent);
    }
    // Marks are tried in turn, so for two of the 600 sends the mark of the waiting send was tried, and these two sends
    // were announced.
    assert_eq!(posted(&mut world, 0, wire::RTS).0, 2);
}

#[test]
fn s3_9_a_synchronous_start_can_be_cancelled_after_an_earlier_late_cancel() {
    let mut world = world(Reads::Work);
    let buffer = world.lend(pattern(1, 8));
    let described = described(1, 1, 8, buffer, true);
    let request = world.engines[0].prepare_send(described).unwrap();
    let start = |world: &mut World| {
        world.engines[0].restart_send(request, [0; 3], false);
        world.drain(0);
        world.deliver_all(1);
    };
    receive(&mut world, 1, Some(0), Some(1), 8);
    start(&mut world);
    // The message was matched, and the answer is in flight.
    world.engines[0].cancel(request);
    world.drain(0);
    world.deliver_all(1);
    let matched = world.hold(1, 0);
    let (matched, too_late) = matched.split_first().unwrap();
    world.arrive(1, 0, matched.clone());
    assert!(is_complete(&world, 0, request));
    world.engines[0].collect(request);
    start(&mut world);
    world.engines[0].cancel(request);
    for frame in too_late {
        world.arrive(1, 0, frame.clone());
    }
    world.settle();
    let ended = fields(&world, 0, request);
    assert!(is_complete(&world, 0, request) && ended.flags & FLAG_CANCELLED != 0);
}

#[test]
fn s3_8_4_an_unmatched_small_synchronous_send_is_cancelled() {
    let mut world = world(Reads::Work);
    let (kept, matched) = (
        send(&mut world, 0, 1, 1, 60, true),
        send(&mut world, 0, 1, 2, 60, true),
    );
    world.settle();
    receive(&mut world, 1, Some(0), Some(2), 60);
    for request in [kept, matched] {
        world.engines[0].cancel(request);
    }
    world.settle();
    let was_cancelled = |request| fields(&world, 0, request).flags & FLAG_CANCELLED != 0;
    assert_eq!((was_cancelled(kept), was_cancelled(matched)), (true, false));
    assert!(is_complete(&world, 0, kept) && is_complete(&world, 0, matched));
    let counters = world.engines[1].counters();
    assert_eq!((counters.unexpected_length, counters.kept_bytes), (0, 0));
}

#[test]
fn s3_5_wildcard_and_named_receives_match_in_posting_order() {
    let mut world = world(Reads::Work);
    let order = [None, Some(0), None, Some(0), Some(0), None];
    let posted = order.map(|peer| receive(&mut world, 1, peer, None, 8));
    for tag in 0..6 {
        send(&mut world, 0, 1, tag, 8, false);
        world.settle();
        let ended = posted.map(|request| is_complete(&world, 1, request));
        assert_eq!(
            ended.iter().filter(|ended| **ended).count(),
            tag as usize + 1
        );
        assert_eq!(fields(&world, 1, posted[tag as usize]).matched_tag, tag);
    }
}

/// Peers that share a bin of the matching table are distinguished, before and after it grows.
// tidy: long (one table, before and after it grows)
#[test]
fn s3_5_messages_of_many_sources_are_not_confused() {
    const PEERS: u32 = 300;
    for rounds in [1, 4] {
        let mut engine = Engine::new(Config::default(), PEERS);
        let arrive = |engine: &mut Engine, peer: u32, tag: i32| {
            let head = wire::eager(CONTEXT, tag);
            let arrival = engine::ArrivedFrame {
                peer: Peer(peer),
                head,
                bytes: 0,
                words: [0; 6],
            };
            match engine.arrive(arrival) {
                Some(Output::Keep { message }) => engine.keep(message, Box::default()),
                other => assert!(matches!(other, Some(Output::Deliver { .. }))),
            }
        };
        for round in 0..rounds {
            for peer in (0..PEERS).rev() {
                arrive(&mut engine, peer, round);
            }
        }
        let any = engine.probe(CONTEXT, None, None).unwrap();
        assert_eq!(any.peer, Peer(PEERS - 1), "the earliest of all");
        for peer in 0..PEERS {
            for round in 0..rounds {
                let found = engine.probe(CONTEXT, Some(Peer(peer)), None).unwrap();
                assert_eq!((found.peer, found.tag), (Peer(peer), round));
                let wanted = Receive {
                    context: CONTEXT,
                    peer: Some(Peer(peer)),
                    tag: None,
                    bytes: 0,
                    buffer: 0,
                };
                let (request, output) = engine.start_receive(wanted, false).unwrap();
                let Some(Output::DeliverKept { message, .. }) = output else {
                    panic!("{output:?}");
                };
                engine.drop_message(message);
                engine.collect(request);
            }
            assert_eq!(engine.probe(CONTEXT, Some(Peer(peer)), None), None);
        }
        assert_eq!(engine.arena().live(), 0);
        // Now the receives are posted before the messages arrive.
        for peer in 0..PEERS {
            let wanted = Receive {
                context: CONTEXT,
                peer: Some(Peer(peer)),
                tag: None,
                bytes: 0,
                buffer: 0,
            };
            engine.start_receive(wanted, false).unwrap();
        }
        for peer in (0..PEERS).rev() {
            arrive(&mut engine, peer, 1);
        }
        assert_eq!(engine.counters().posted_length, 0);
        assert_eq!(engine.counters().unexpected_length, 0);
    }
}

#[test]
fn s3_8_2_a_matched_probe_reserves_its_message() {
    for bytes in [8, 5000] {
        let mut world = world(Reads::Work);
        let sent = send(&mut world, 0, 1, 1, bytes, false);
        world.settle();
        let found = world.engines[1].probe(CONTEXT, None, None).unwrap();
        world.engines[1].claim(found);
        let other = receive(&mut world, 1, None, None, 5000);
        assert!(!is_complete(&world, 1, other));
        assert_eq!(world.engines[1].probe(CONTEXT, None, None), None);
        // The sender cannot cancel a claimed message any more.
        world.engines[0].cancel(sent);
        world.settle();
        let buffer = world.lend(vec![0; 5000]);
        let started = world.engines[1].start_matched_receive(found.message, 5000, buffer);
        let (request, output) = started.unwrap();
        world.carry_out(1, output.unwrap());
        world.settle();
        assert_eq!(
            content(&mut world, 1, request)[..bytes as usize],
            pattern(1, bytes)
        );
        assert!(is_complete(&world, 0, sent) && !is_complete(&world, 1, other));
        assert_eq!(fields(&world, 0, sent).flags & FLAG_CANCELLED, 0);
    }
}

#[test]
fn s3_8_4_a_cancelled_send_is_either_cancelled_or_received() {
    let mut world = world(Reads::Work);
    // The first send is cancelled before its message is on the wire.
    let first = send(&mut world, 0, 1, 1, 8, false);
    world.engines[0].cancel(first);
    // The second send is cancelled after its message was announced, and before it is matched.
    let second = send(&mut world, 0, 1, 2, 5000, false);
    world.settle();
    world.engines[0].cancel(second);
    // The third send is cancelled after its message was matched.
    let third = send(&mut world, 0, 1, 3, 5000, false);
    let got = receive(&mut world, 1, None, Some(3), 5000);
    world.settle();
    world.engines[0].cancel(third);
    world.settle();
    for (request, cancelled) in [(first, true), (second, true), (third, false)] {
        let ended = fields(&world, 0, request);
        assert_eq!(
            (ended.state, ended.flags & FLAG_CANCELLED != 0),
            (RequestState::Complete, cancelled)
        );
    }
    assert!(is_complete(&world, 1, got));
    assert_eq!(world.engines[1].probe(CONTEXT, None, None), None);
}

#[test]
fn s3_8_4_a_cancel_is_pending_until_it_is_answered() {
    let mut world = world(Reads::Work);
    for taken in [false, true] {
        let request = send(&mut world, 0, 1, 1, 5000, false);
        world.settle();
        let found = world.engines[1].probe(CONTEXT, None, None).unwrap();
        if taken {
            world.engines[1].claim(found);
        }
        assert!(!world.engines[0].is_cancelling(request));
        world.engines[0].cancel(request);
        assert!(world.engines[0].is_cancelling(request));
        world.settle();
        assert!(!world.engines[0].is_cancelling(request));
        assert_eq!(is_complete(&world, 0, request), !taken);
    }
}

#[test]
fn s3_9_a_persistent_send_can_be_cancelled_after_an_earlier_late_cancel() {
    let mut world = world(Reads::Work);
    let buffer = world.lend(pattern(1, 5000));
    let described = described(1, 1, 5000, buffer, false);
    let request = world.engines[0].prepare_send(described).unwrap();
    // The send is announced and matched, and the CANCEL crosses the FIN.
    world.engines[0].restart_send(request, described.key, false);
    receive(&mut world, 1, None, None, 5000);
    world.drain(0);
    world.deliver_all(1);
    world.engines[0].cancel(request);
    world.settle();
    assert_eq!(fields(&world, 0, request).flags & FLAG_CANCELLED, 0);
    world.engines[0].collect(request);
    assert_eq!(fields(&world, 0, request).state, RequestState::Inactive);
    // The send is announced again, and no receive is posted. This time the cancel works.
    world.engines[0].restart_send(request, described.key, false);
    world.settle();
    world.engines[0].cancel(request);
    world.settle();
    assert!(is_complete(&world, 0, request));
    assert_ne!(fields(&world, 0, request).flags & FLAG_CANCELLED, 0);
    assert_eq!(world.engines[1].counters().unexpected_length, 0);
}

#[test]
fn s3_9_a_persistent_send_that_completed_at_once_can_restart() {
    let mut world = world(Reads::Work);
    let buffer = world.lend(pattern(1, 5000));
    let described = described(1, 1, 5000, buffer, false);
    let request = world.engines[0].prepare_send(described).unwrap();
    for _ in 0..2 {
        world.engines[0].restart_sent(request);
        assert!(is_complete(&world, 0, request));
        assert_eq!(world.engines[0].busy_peers(), 0);
        world.engines[0].collect(request);
        assert_eq!(fields(&world, 0, request).state, RequestState::Inactive);
    }
    // The cancel of one start does not affect the next start.
    world.engines[0].restart_send(request, described.key, false);
    world.engines[0].cancel(request);
    world.settle();
    assert_ne!(fields(&world, 0, request).flags & FLAG_CANCELLED, 0);
    world.engines[0].collect(request);
    world.engines[0].restart_sent(request);
    assert_eq!(fields(&world, 0, request).flags & FLAG_CANCELLED, 0);
}

#[test]
fn s3_7_3_a_freed_request_completes_and_releases_its_slot() {
    for reads in [Reads::Work, Reads::Never] {
        for bytes in [0, 8, 5000] {
            let mut world = world(reads);
            let sent = send(&mut world, 0, 1, 1, bytes, true);
            let got = receive(&mut world, 1, None, None, 5000);
            let buffer = fields(&world, 1, got).buffer;
            world.engines[0].free(sent);
            world.engines[1].free(got);
            world.settle();
            assert_eq!(world.buffer(buffer)[..bytes as usize], pattern(1, bytes));
            assert_eq!(world.engines[0].arena().live(), 0);
            assert_eq!(world.engines[1].arena().live(), 0);
        }
    }
}

#[test]
fn a_failed_transfer_completes_both_sides_with_a_receive_error() {
    let mut world = world(Reads::Work);
    let sent = send(&mut world, 0, 1, 1, 5000, false);
    world.drain(0);
    world.deliver_all(1);
    let buffer = world.lend(vec![0; 5000]);
    let wanted = Receive {
        context: CONTEXT,
        peer: None,
        tag: None,
        bytes: 5000,
        buffer,
    };
    let (request, output) = world.engines[1].start_receive(wanted, false).unwrap();
    assert!(matches!(output, Some(Output::Pull { bytes: 5000, .. })));
    world.engines[1].transfer_failed(request);
    world.settle();
    assert_eq!(
        fields(&world, 1, request).error,
        RequestFailure::Transfer as u8
    );
    assert!(is_complete(&world, 0, sent));
}

#[test]
fn a_stale_token_of_a_reused_slot_finds_nothing() {
    let mut world = world(Reads::Work);
    let first = receive(&mut world, 1, None, Some(1), 8);
    let stale = world.engines[1].arena().token(first);
    world.engines[1].cancel(first);
    world.engines[1].collect(first);
    let second = receive(&mut world, 1, None, Some(1), 8);
    assert_eq!(first.index(), second.index(), "the slot is used again");
    assert_eq!(world.engines[1].arena().find(stale), None);
    assert!(matches!(
        world.engines[1].collect_plain(stale),
        engine::CollectOutcome::Special
    ));
}

#[test]
fn running_out_of_slots_is_an_error_without_message_loss() {
    let mut world = world(Reads::Work);
    send(&mut world, 0, 1, 7, 8, false);
    world.settle();
    let found = world.engines[1].probe(CONTEXT, None, None).unwrap();
    world.engines[1].claim(found);
    let mut others = Vec::new();
    while let Ok(request) = world.engines[1].start_other(ContextId(0)) {
        others.push(request);
    }
    let buffer = world.lend(vec![0; 8]);
    let wanted = Receive {
        context: CONTEXT,
        peer: None,
        tag: None,
        bytes: 8,
        buffer,
    };
    let engine = &mut world.engines[1];
    assert!(engine.start_receive(wanted, false).is_err());
    assert!(
        engine
            .start_send(described(0, 1, 8, buffer, false))
            .is_err()
    );
    assert!(
        engine
            .prepare_send(described(0, 1, 8, buffer, false))
            .is_err()
    );
    assert!(
        engine
            .start_matched_receive(found.message, 8, buffer)
            .is_err()
    );
    let other = others.pop().unwrap();
    engine.finish_other(other, None);
    engine.collect(other);
    let (request, output) = engine
        .start_matched_receive(found.message, 8, buffer)
        .unwrap();
    world.carry_out(1, output.unwrap());
    assert_eq!(content(&mut world, 1, request), pattern(7, 8));
}
