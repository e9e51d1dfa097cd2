// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs of which some processes have a device and all have connections: who is reached how, and what was done before that was known.
#![allow(clippy::unwrap_used, reason = "test code may panic")]

use testbed::memory::{Guarded, is_all};
use testbed::world::{self, Failing};
use testbed::{Incoming, Rank, head};
use transport::{Atomic, Fabric, FakeConfig, FakeNet, FakeStreams, NetLimits, Peer, StreamsConfig};

const RANKS: u32 = 4;
const BYTES: usize = 300_000;

/// Ranks 0 and 1 have a port, 2 and 3 have none.
fn has_port(rank: u32) -> bool {
    rank < 2
}

fn for_seeds(seeds: u64, behaviour: impl AsyncFn(&mut Rank)) {
    for seed in 0..seeds {
        let _failing = Failing(seed);
        let devices = FakeNet::new(match seed {
            0 => FakeConfig::calm(seed),
            _ => FakeConfig::harsh(seed),
        });
        let streams = FakeStreams::new(StreamsConfig::of(seed, RANKS));
        let nets = (&streams, &devices);
        world::mixed_on(
            nets,
            (RANKS, false),
            has_port,
            NetLimits::default(),
            &behaviour,
        );
    }
}

fn others(rank: &Rank) -> impl Iterator<Item = u32> + use<> {
    let me = rank.me;
    (0..rank.size).filter(move |peer| *peer != me)
}

#[test]
fn a_peer_is_reached_by_verbs_if_both_have_a_device_and_else_by_tcp() {
    for_seeds(8, async |rank| {
        for peer in others(rank).filter(|_| has_port(rank.me)) {
            assert_eq!(rank.fabric.provider_of(Peer(peer)), None);
        }
        for peer in others(rank) {
            rank.send(peer, head(1), &rank.me.to_ne_bytes()).await;
        }
        for peer in others(rank) {
            assert_eq!(rank.receive(peer).await.1, peer.to_ne_bytes());
        }
        for peer in others(rank) {
            let both = has_port(rank.me) && has_port(peer);
            let expected = if both { "verbs" } else { "tcp" };
            assert_eq!(rank.fabric.provider_of(Peer(peer)), Some(expected));
        }
    });
}

#[test]
fn keys_that_were_made_before_that_was_known_are_good_until_they_are_taken_back() {
    for_seeds(8, async |rank| {
        let mut memory = Guarded::of(&[77; BYTES]);
        if rank.me == 0 {
            let keys: Vec<_> = others(rank)
                .map(|peer| (peer, memory.export(&mut rank.fabric, peer)))
                .collect();
            for (peer, key) in &keys {
                rank.tell_key(*peer, *key).await;
            }
            for (peer, key) in keys {
                rank.receive(peer).await;
                rank.fabric.withdraw(Peer(peer), key);
                rank.send(peer, head(3), &[]).await;
            }
            return;
        }
        memory.bytes_mut().fill(0);
        let key = rank.hear_key(0).await;
        let outcome = rank.read(0, memory.lease(0, BYTES), key, 0).await;
        assert!(!rank.was_done(outcome) || is_all(memory.bytes(), 77));
        rank.send(0, head(2), &[]).await;
        assert_eq!(rank.receive(0).await.0.kind, 3);
        let outcome = rank.read(0, memory.lease(0, BYTES), key, 0).await;
        rank.assert_refused(outcome);
    });
}

/// A key comes from a third rank: what is done with it is the first that its rank has to do with the owner of the memory.
#[test]
fn works_wait_until_that_is_known() {
    let (owners, between, user) = ([3, 1], 2, 0);
    for owner in owners {
        for_seeds(8, async |rank| {
            let mut word = Guarded::of(&5u64.to_ne_bytes());
            if rank.me == owner {
                let key = word.export(&mut rank.fabric, user);
                rank.tell_key(between, key).await;
            } else if rank.me == between {
                let key = rank.hear_key(owner).await;
                rank.tell_key(user, key).await;
            } else if rank.me == user {
                let key = rank.hear_key(between).await;
                assert_eq!(rank.fabric.provider_of(Peer(owner)), None);
                let (outcome, old) = rank
                    .change(owner, Atomic::FetchAdd { add: 2 }, key, 0)
                    .await;
                assert!(!rank.was_done(outcome) || old == 5);
                let outcome = rank.read(owner, word.lease(0, 8), key, 0).await;
                assert!(!rank.was_done(outcome) || word.bytes()[0] >= 5);
                let outcome = rank.write(owner, word.lease(0, 8), key, 0, Some(9)).await;
                rank.was_done(outcome);
                rank.send(owner, head(2), &[]).await;
            }
            if rank.me == owner {
                while let Incoming::Written(number) = rank.incoming(user).await {
                    assert_eq!(number, 9);
                }
            }
        });
    }
}

#[test]
fn who_may_not_use_tcp_is_not_reached_by_who_has_no_device() {
    let streams = FakeStreams::new(StreamsConfig::of(0, 2));
    let devices = FakeNet::new(FakeConfig::calm(0));
    let limits = NetLimits::default();
    let mut with_device = Fabric::faked(&devices, Peer(0), 2, limits);
    let mut without = Fabric::streamed(&streams, Peer(1), 2, limits);
    let records = [with_device.network_record(), without.network_record()];
    for (fabric, peer) in [(&mut with_device, 1), (&mut without, 0)] {
        let _ = fabric.post_send(Peer(peer), head(1), &[]);
        let record = records[peer as usize].as_ref().unwrap();
        fabric.learn_address(Peer(peer), record);
        let why = fabric.why_lost(Peer(peer)).unwrap();
        assert!(why.contains("RMPI_PROVIDERS"), "{why}");
    }
}
