// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with processes of another job, whose addresses may lead to other processes of that job.

use super::super::links::TcpLimits;
use super::super::{FakeSockets, FakeStreams, PeerIdentities, StreamKey, StreamsConfig, Tcp};
use super::world::{SECOND, World};
use crate::Peer;
use crate::provider::verbs::ForeignPeer;

/// Rank `rank` of a job of two, at endpoint `place` of the network.
fn open(net: &FakeStreams, place: u32, rank: u32) -> Tcp<FakeSockets> {
    let sockets = FakeSockets::new(net.clone(), place);
    let (addresses, key) = (sockets.addresses(), key_of(place));
    let limits = TcpLimits {
        lines: 8,
        silence_ns: 100 * SECOND,
        rails: 1,
        shared_bytes: 0,
    };
    Tcp {
        addresses,
        port: 1,
        ..Tcp::new(sockets, (PeerIdentities::new(rank, 2, 0), key), 2, limits)
    }
}

/// The key of the job at an endpoint: each of the two jobs has two endpoints.
fn key_of(place: u32) -> StreamKey {
    StreamKey::new(1 << (100 + place / 2))
}

/// Two jobs: each rank has added the rank of the other job that has the same number, as its peer 2.
fn two_jobs(seed: u64) -> World {
    let config = StreamsConfig {
        breaks: 0,
        refusals: 0,
        ..StreamsConfig::of(seed, 4)
    };
    let net = FakeStreams::new(config);
    let all = (0..4).map(|place| open(&net, place, place % 2)).collect();
    let mut world = World::of(config, net, all);
    for place in 0..4_u32 {
        let other = (place + 2) % 4;
        let far = ForeignPeer {
            source_number: 2,
            key: 0,
            stream_key: key_of(other),
            is_first: place < 2,
        };
        let record = world.all[other as usize].record();
        let me = &mut world.all[place as usize];
        me.add_foreign(Peer(2), far);
        me.set_peer_address(Peer(2), Some(&record));
    }
    world
}

#[test]
fn a_peer_of_another_job_with_the_same_rank_is_not_confused() {
    for seed in 0..20 {
        let mut world = two_jobs(seed);
        // The first address of rank 0 of the second job leads to rank 1 of that job.
        world.send(0, 2);
        world.until("the frame", |world| world.received[2][2] == 1);
        for _ in 0..500 {
            world.turn();
        }
        assert_eq!(world.received[3], [0; 4], "seed {seed}");
        assert!(world.all[3].links.joined.is_empty(), "seed {seed}");
        world.send(3, 2);
        world.until("another one", |world| world.received[1][2] == 1);
        assert_eq!(world.received[0], [0; 4], "seed {seed}");
    }
}
