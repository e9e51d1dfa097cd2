// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the number of system calls when nothing arrives, and of which packets leave or arrive together.

use super::super::StreamsConfig;
use super::super::memory::lent_for_ever;
use super::world::{HEAD, SECOND, World};
use crate::provider::verbs::WorkKind;
use crate::{Peer, RecvBuffer, WordPoll, WorkId};

fn event_polls_in(world: &mut World, turns: u64) -> u64 {
    let before = world.net.event_polls(0);
    (0..turns).for_each(|_| world.all[0].poll(&mut crate::Completions::new()));
    world.net.event_polls(0) - before
}

#[test]
fn a_process_without_connections_makes_few_system_calls() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    let event_polls = event_polls_in(&mut world, 6400);
    assert!((100..=101).contains(&event_polls), "{event_polls}");
    // Packets for a process that polls rarely are not delayed.
    world.send(1, 0);
    let mut polls = 0;
    while world.received[0][1] == 0 {
        world.turn();
        world.net.pass(SECOND / 1000);
        polls += 1;
        assert!(polls < 60, "it does not come");
    }
    // With a connection, at least one of 8 turns checks all sockets; after long silence, only about one of 8 does.
    assert!(event_polls_in(&mut world, 64) >= 8);
    event_polls_in(&mut world, 10_000);
    let event_polls = event_polls_in(&mut world, 800);
    assert!(event_polls <= 101, "{event_polls}");
    world.send(1, 0);
    world.until("the next one", |world| world.received[0][1] == 2);
}

#[test]
fn a_broken_connection_is_no_longer_polled_first() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    world.send(1, 0);
    world.until("it", |world| world.received[0][1] == 1);
    assert_eq!(world.all[0].hot, Some(1));
    world.all[1].links.hang_up(0);
    world.until("the end", |world| !world.all[0].links.has_line(1));
    world.until("the end", |world| world.all[0].hot.is_none());
}

#[test]
fn rare_polls_deliver_frames_at_the_next_poll() {
    let mut world = World::new(StreamsConfig::of(0, 3), 8);
    let turn = |world: &mut World| {
        world.turn();
        world.net.pass(SECOND / 1000);
    };
    (0..10).for_each(|_| turn(&mut world));
    // Connecting takes several messages, each of which is processed at the next poll.
    world.send(1, 0);
    world.send(2, 0);
    (0..8).for_each(|_| turn(&mut world));
    assert_eq!(world.received[0], [0, 1, 1]);
    // Frames also come at the next poll from peers other than the last active one, and after long silence.
    for silence in [1, 10_000] {
        for peer in [1, 2] {
            (0..silence).for_each(|_| turn(&mut world));
            let received = world.received[0][peer as usize];
            world.send(peer, 0);
            (0..2).for_each(|_| turn(&mut world));
            assert_eq!(world.received[0][peer as usize], received + 1, "of {peer}");
        }
    }
}

#[test]
fn sends_after_several_completions_leave_together() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    world.send(1, 0);
    world.until("the connection", |world| world.received[0][1] == 1);
    world.all[0].promise_uncork();
    // If `forgets`, the caller does not call `uncork` as promised, and the next poll does what `uncork` would have
    // done.
    for forgets in [false, true] {
        (0..3).for_each(|_| world.send(1, 0));
        world.net.pass(SECOND);
        let mut completions = crate::Completions::new();
        world.all[0].poll(&mut completions);
        assert_eq!(completions.len(), 3);
        let before = world.received[1][0];
        (0..2).for_each(|_| world.send(0, 1));
        world.busy = vec![0];
        (0..100).for_each(|_| world.turn());
        assert_eq!(world.received[1][0], before);
        if !forgets {
            world.all[0].uncork();
            world.until("both", |world| world.received[1][0] == before + 2);
        }
        world.busy.clear();
        world.until("both", |world| world.received[1][0] == before + 2);
    }
    // After a single completion nothing is held back.
    world.send(1, 0);
    world.net.pass(SECOND);
    let mut completions = crate::Completions::new();
    world.all[0].poll(&mut completions);
    assert_eq!(completions.len(), 1);
    world.busy = vec![0];
    let before = world.received[1][0];
    world.send(0, 1);
    world.until("it", |world| world.received[1][0] == before + 1);
}

#[test]
fn poll_word_takes_a_single_frame_of_any_size() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    world.send(1, 0);
    world.until("the connection", |world| world.received[0][1] == 1);
    for bytes in [0, 1, 7, 8, 9, 47, 48, 49, 64, 1000, 4096] {
        let body: Vec<u8> = (0..=255).cycle().take(bytes).collect();
        world.all[1].post_send(Peer(0), HEAD, &body).unwrap();
        world.net.pass(SECOND);
        let before = world.net.event_polls(0);
        let arrived = match world.all[0].poll_word() {
            WordPoll::Word(word) => word.arrived(),
            WordPoll::Frame(arrived) => arrived,
            other => panic!("{bytes} bytes: {other:?}"),
        };
        assert_eq!(world.net.event_polls(0), before, "{bytes} bytes");
        assert_eq!((arrived.peer, arrived.head), (Peer(1), HEAD));
        let mut words = arrived.words.map(u64::to_ne_bytes).concat();
        if let RecvBuffer::Lent { index, .. } = arrived.body {
            words.resize(bytes, 0);
            assert_eq!(world.all[0].bodies.copy(index, &mut words), bytes);
            world.all[0].release(1, index);
        }
        assert_eq!(words[..bytes], body, "{bytes} bytes");
        assert_eq!(arrived.bytes(), u64::try_from(bytes).unwrap());
    }
    // If several frames have arrived, `poll_word` leaves them for the poll.
    (0..2).for_each(|_| world.send(1, 0));
    world.net.pass(SECOND);
    assert!(matches!(world.all[0].poll_word(), WordPoll::Poll));
    world.until("both", |world| world.received[0][1] == 3);
}

#[test]
fn buffered_frames_are_taken_from_a_paused_connection() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    world.send(1, 0);
    world.until("the connection", |world| world.received[0][1] == 1);
    let line = world.all[0].links.of(1).line.as_mut().unwrap();
    line.paused_until_ns = u64::MAX;
    world.send(1, 0);
    world.net.pass(SECOND);
    (0..100).for_each(|_| world.turn());
    assert_eq!(world.received[0][1], 1);
    // If two frames have arrived, `poll_word` leaves them for the poll.
    world.send(1, 0);
    world.net.pass(SECOND);
    assert!(matches!(world.all[0].poll_word(), WordPoll::Poll));
    world.until("both", |world| world.received[0][1] == 3);
}

#[test]
fn a_connection_is_paused_while_two_reads_are_in_flight() {
    for reads in [1, 2] {
        let mut world = World::new(StreamsConfig::of(0, 2), 8);
        world.send(1, 0);
        world.until("the connection", |world| world.received[0][1] == 1);
        let content = || lent_for_ever(vec![7; 100_000]);
        let far = content().address();
        let key = world.all[1].export(Peer(0), far, 100_000);
        for name in 0..reads {
            let work = (WorkKind::Read, content());
            world.all[0].post_work(Peer(1), work, key, 0, WorkId(name));
        }
        (0..4).for_each(|_| world.all[0].poll(&mut crate::Completions::new()));
        let line = world.all[0].links.of(1).line.as_ref().unwrap();
        assert_eq!(line.paused_until_ns != 0, reads == 2);
        world.until("the reads", |world| {
            world.worked[0] == u32::try_from(reads).unwrap()
        });
    }
}

#[test]
fn only_the_first_announcement_of_a_turn_leaves_at_once() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    world.send(0, 1);
    world.until("the connection", |world| world.received[1][0] == 1);
    let announce = |world: &mut World| {
        let tcp = &mut world.all[0];
        tcp.post_announcement(Peer(1), (HEAD, b"x"), None).unwrap();
    };
    let mut expected = 1;
    for sends in [false, true] {
        (0..3).for_each(|_| announce(&mut world));
        world.busy = vec![0];
        (0..100).for_each(|_| world.turn());
        assert_eq!(world.received[1][0], expected + 1);
        // `poll_word` requests a poll, which sends the frames held back.
        assert!(matches!(world.all[0].poll_word(), WordPoll::Poll));
        expected += 3;
        if sends {
            world.send(0, 1);
            expected += 1;
        } else {
            world.busy.clear();
        }
        world.until("all", |world| world.received[1][0] == expected);
        world.busy.clear();
        world.turn();
    }
    // The first announcement of a turn is not held back, nor is the last before a sleep.
    (0..2).for_each(|_| announce(&mut world));
    world.all[0].prepare_sleep();
    world.busy = vec![0];
    world.until("all", |world| world.received[1][0] == expected + 2);
}

/// Work requests wait while much is unsent. Here much is unsent only as long as packets are held back.
#[test]
fn works_posted_in_one_turn_all_leave_at_its_end() {
    for kind in [WorkKind::Read, WorkKind::Write] {
        let mut world = World::new(StreamsConfig::of(0, 2), 8);
        world.send(1, 0);
        world.until("the connection", |world| world.received[0][1] == 1);
        world.all[0].promise_uncork();
        (0..2).for_each(|_| world.send(1, 0));
        world.net.pass(SECOND);
        world.all[0].poll(&mut crate::Completions::new());
        let content = || lent_for_ever(vec![7; 3000]);
        let far = content().address();
        let key = world.all[1].export(Peer(0), far, 3000);
        for name in 0..16 {
            world.all[0].post_work(Peer(1), (kind, content()), key, 0, WorkId(name));
        }
        assert!(world.all[0].links.find(1).unwrap().session.unsent() > 0);
        world.all[0].uncork();
        assert_eq!(world.all[0].links.find(1).unwrap().session.unsent(), 0);
        assert_eq!(world.all[0].moves.waiting(1), 0);
    }
}
