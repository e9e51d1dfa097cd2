// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of data that are sent with the frame that announces them: a read of such data does not wait, unread data are
//! bounded, and the connection with a peer that violates the protocol ends.

use super::super::memory::{MemoryRange, lent_for_ever};
use super::super::packet::{MOST_UNSOLICITED_BYTES, TcpPacketKind};
use super::super::{StreamsConfig, unsolicited::KEPT_BYTES};
use super::hostile::{HostilePeer, host, is_ended};
use super::world::{HEAD, SECOND, World};
use crate::provider::verbs::WorkKind;
use crate::{Peer, RemoteKey, WorkId};

const BYTES: usize = 100_000;

/// Two connected processes.
fn connected() -> World {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    world.send(1, 0);
    world.until("the connection", |world| world.received[0][1] == 1);
    world.send(0, 1);
    world.until("the other way", |world| world.received[1][0] == 1);
    world
}

/// Process 0 announces memory that is full of `content`.
fn announce(world: &mut World, content: u8, bytes: usize) -> RemoteKey {
    let address = lent_for_ever(vec![content; bytes]).address();
    let key = world.all[0].export(Peer(1), address, bytes as u64);
    world.all[0]
        .post_announcement(Peer(1), (HEAD, b"x"), Some(key))
        .unwrap();
    key
}

/// Memory of process 1 that a read fills.
struct Place {
    address: u64,
    bytes: usize,
}

impl Place {
    /// Whether all bytes have this value.
    fn is_all(&self, content: u8) -> bool {
        let mut copy = vec![!content; self.bytes];
        MemoryRange::exported(self.address, self.bytes).copy_to(&mut copy);
        copy.iter().all(|byte| *byte == content)
    }
}

/// Process 1 reads the announced data.
fn read(world: &mut World, key: RemoteKey) -> Place {
    let bytes = usize::try_from(key.bytes).unwrap();
    let lease = lent_for_ever(vec![0; bytes]);
    let address = lease.address();
    world.all[1].post_work(Peer(0), (WorkKind::Read, lease), key, 0, WorkId(1));
    Place { address, bytes }
}

fn kept(world: &World) -> usize {
    world.all[1].moves.unsolicited.kept()
}

#[test]
fn a_read_of_unsolicited_data_completes_without_the_owner() {
    let mut world = connected();
    let key = announce(&mut world, 7, BYTES);
    world.until("the data", |world| {
        world.received[1][0] == 2 && !world.all[1].moves.is_any_expected(0)
    });
    assert_eq!(kept(&world), 1);
    // The owner computes from now on.
    world.busy = vec![0];
    let place = read(&mut world, key);
    world.until("the read", |world| world.worked[1] == 1);
    assert!(place.is_all(7));
    assert_eq!(kept(&world), 0);
}

#[test]
fn unread_unsolicited_data_is_bounded_and_the_sender_stops_sending_it() {
    let mut world = connected();
    let most = u8::try_from(KEPT_BYTES / BYTES).unwrap();
    let keys: Vec<RemoteKey> = (0..most + 3)
        .map(|content| {
            let key = announce(&mut world, content, BYTES);
            (0..50).for_each(|_| world.turn());
            key
        })
        .collect();
    world.until("all", |world| world.received[1][0] == 4 + u32::from(most));
    (0..100).for_each(|_| world.turn());
    assert_eq!(kept(&world), usize::from(most));
    assert!(world.all[0].moves.queue(1).bare_announcements > 0);
    for (content, key) in (0..).zip(keys) {
        let before = world.worked[1];
        let place = read(&mut world, key);
        world.until("the read", |world| world.worked[1] > before);
        assert!(place.is_all(content), "{content}");
    }
    assert_eq!(kept(&world), 0);
    // The next announcements are sent without data.
    announce(&mut world, 1, BYTES);
    (0..100).for_each(|_| world.turn());
    assert_eq!(kept(&world), 0);
}

#[test]
fn old_unsolicited_data_is_dropped_for_new() {
    let mut world = connected();
    let most = KEPT_BYTES / BYTES;
    for _ in 0..most {
        announce(&mut world, 1, BYTES);
        (0..50).for_each(|_| world.turn());
    }
    assert_eq!(kept(&world), most);
    world.net.pass(2 * SECOND);
    (0..200).for_each(|_| world.turn());
    let key = announce(&mut world, 9, BYTES);
    (0..200).for_each(|_| world.turn());
    assert_eq!(kept(&world), most);
    assert_eq!(world.all[0].moves.queue(1).bare_announcements, 0);
    world.busy = vec![0];
    let place = read(&mut world, key);
    world.until("the read", |world| world.worked[1] == 1);
    assert!(place.is_all(9));
}

#[test]
fn data_large_enough_for_rails_is_not_sent_unsolicited() {
    let mut world = World::new(
        StreamsConfig {
            interfaces: 2,
            ..StreamsConfig::of(0, 2)
        },
        8,
    );
    world.share_from(BYTES as u64);
    for (bytes, is_kept) in [(BYTES, false), (BYTES - 1, true)] {
        announce(&mut world, 7, bytes);
        (0..2000).for_each(|_| world.turn());
        assert_eq!(kept(&world) != 0, is_kept, "{bytes}");
    }
}

#[test]
fn a_read_of_withdrawn_announced_memory_ends() {
    // Once with a connection, and once before there is one, when the data are in no packet yet.
    for connects_first in [true, false] {
        let mut world = match connects_first {
            true => connected(),
            false => World::new(StreamsConfig::of(0, 2), 8),
        };
        let before = world.received[1][0];
        let keys: Vec<RemoteKey> = (0..8).map(|_| announce(&mut world, 7, BYTES)).collect();
        for key in &keys {
            world.all[0].withdraw(Peer(1), *key);
        }
        world.until("the announcements", |world| {
            world.received[1][0] == before + 8
        });
        for (ended, key) in (1..).zip(keys) {
            let place = read(&mut world, key);
            world.until("the read", |world| world.ended == ended);
            assert!(place.is_all(7) || place.is_all(0));
        }
        assert!(world.worked[1] < 8, "what was in no packet is not read");
        assert_eq!(kept(&world), 0);
    }
}

#[test]
fn declined_data_is_dropped_and_the_sender_is_notified() {
    let mut world = connected();
    let key = announce(&mut world, 7, BYTES);
    (0..100).for_each(|_| world.turn());
    assert_eq!(kept(&world), 1);
    world.all[1].decline(Peer(0), key);
    assert_eq!(kept(&world), 0);
    world.until("the notice", |world| {
        world.all[0].moves.find_queue(1).unwrap().bare_announcements > 0
    });
}

#[test]
fn unsolicited_data_of_a_lost_peer_is_dropped() {
    let mut world = connected();
    announce(&mut world, 7, BYTES);
    (0..100).for_each(|_| world.turn());
    assert_eq!(kept(&world), 1);
    world.all[1].lose(Peer(0), "it died");
    assert_eq!(kept(&world), 0);
}

#[test]
fn invalid_announcements_close_the_connection() {
    let key = |check| RemoteKey {
        address: 4096,
        bytes: 1000,
        check,
    };
    let large = RemoteKey {
        bytes: MOST_UNSOLICITED_BYTES as u64 + 1,
        ..key(1)
    };
    let announce = |hostile: &mut HostilePeer, key| {
        hostile.send(
            TcpPacketKind::Announce,
            |it| it.announce(key, HEAD, b"x"),
            &[],
        )
    };
    let follow = |hostile: &mut HostilePeer, key, bytes| {
        hostile.send(
            TcpPacketKind::Unsolicited,
            |it| it.unsolicited(key),
            &vec![1; bytes],
        );
    };
    type Attack<'a> = &'a dyn Fn(&mut HostilePeer);
    let attacks: [Attack<'_>; 6] = [
        &|hostile| announce(hostile, RemoteKey { bytes: 0, ..key(1) }),
        &|hostile| announce(hostile, large),
        &|hostile| (0..2).for_each(|_| announce(hostile, key(1))),
        &|hostile| (0..65).for_each(|check| announce(hostile, key(check))),
        &|hostile| follow(hostile, key(1), 1000),
        &|hostile| {
            announce(hostile, key(1));
            follow(hostile, key(1), 999);
        },
    ];
    for attack in attacks {
        let mut tcp = host();
        let mut hostile = HostilePeer::join(&mut tcp, 1, 1);
        attack(&mut hostile);
        is_ended(&mut tcp, &mut hostile.stream);
        let message = tcp.next_warning().unwrap();
        assert!(message.contains("makes no sense"), "{message}");
        // Other peers are not affected.
        _ = HostilePeer::join(&mut tcp, 2, 1);
    }
}
