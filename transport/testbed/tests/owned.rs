// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that memory which the fabric allocates on a network stays registered: messages in it need no registrations of
//! their own, and after it is freed it cannot be accessed any more.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use std::ptr::NonNull;

use testbed::world::fake_on;
use testbed::{TestRank, pattern};
use transport::{FakeConfig, FakeNet, Lease, NetLimits, Peer, WorkOutcome};

const BYTES: usize = 300_000;

fn fill(place: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: allocated with at least this length, and not accessed by other ranks now.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
}

fn content(place: NonNull<u8>, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    // SAFETY: allocated with at least this length, and not accessed by other ranks now; `copy` is that long.
    unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), copy.as_mut_ptr(), bytes) };
    copy
}

fn lease(place: NonNull<u8>, at: usize, bytes: usize) -> Lease {
    // SAFETY: within the allocation.
    let start = unsafe { place.add(at) };
    // SAFETY: nothing accesses the range until the work with the lease has completed.
    unsafe { Lease::new(start, bytes) }
}

/// Both ranks read memory that the other rank has allocated, into memory that they have allocated.
async fn exchange(rank: &mut TestRank, net: &FakeNet) {
    let other = 1 - rank.me;
    let mine = rank.fabric.allocate(BYTES).unwrap();
    let target = rank.fabric.allocate(BYTES).unwrap();
    fill(mine, &pattern(rank.me, 1, BYTES));
    assert!(content(target, BYTES).iter().all(|byte| *byte == 0));
    // Makes a key for a part of the memory, and sends the key to the peer.
    let address = mine.as_ptr().expose_provenance() as u64;
    let key = rank.fabric.export(Peer(other), address + 1000, 100_000);
    rank.send_key(other, key).await;
    let theirs = rank.receive_key(other).await;
    rank.barrier().await;

    let before = net.stats(rank.me).regions;
    let whole = pattern(other, 1, BYTES);
    for (offset, bytes) in [(0, 100_000), (17, 1), (99_000, 1_000)] {
        let outcome = rank
            .read(other, lease(target, 5, bytes), theirs, offset)
            .await;
        assert_eq!(outcome, WorkOutcome::Done);
        let offset = offset as usize;
        let got = content(target, BYTES);
        assert!(got[5..5 + bytes] == whole[1000 + offset..][..bytes]);
    }
    let beyond = rank.read(other, lease(target, 0, 2), theirs, 99_999).await;
    assert_eq!(beyond, WorkOutcome::BadKey);
    assert_eq!(net.stats(rank.me).regions, before, "nothing was registered");
    rank.fabric.withdraw(Peer(other), key);
    assert_eq!(net.stats(rank.me).regions, before, "it stays registered");

    rank.barrier().await;
    assert!(rank.fabric.free(mine) && rank.fabric.free(target));
    assert_eq!(net.stats(rank.me).regions, before - 2);
    assert!(!rank.fabric.free(mine), "once");
    rank.barrier().await;
    if rank.me == 0 {
        let again = rank.fabric.allocate(BYTES).unwrap();
        let outcome = rank.read(other, lease(again, 0, 100), theirs, 0).await;
        assert_eq!(outcome, WorkOutcome::BadKey, "it is freed");
    }
    rank.barrier().await;
}

/// Rank 0 exposes its memory twice; each of the other ranks reads a part of it.
async fn expose(rank: &mut TestRank, net: &FakeNet) {
    let whole = pattern(0, 1, BYTES);
    let mut memory = whole.clone();
    let place = NonNull::new(memory.as_mut_ptr()).unwrap();
    let address = place.as_ptr().expose_provenance() as u64;
    let part = BYTES / 4;
    let mut exposed = Vec::new();
    if rank.me == 0 {
        let before = net.stats(0).regions;
        for _ in 0..2 {
            exposed.push(rank.fabric.expose(address, BYTES).unwrap());
        }
        assert_eq!(net.stats(0).regions, before + 2);
        for peer in 1..4 {
            let start = address + u64::from(peer) * part as u64;
            let key = rank.fabric.export(Peer(peer), start, part as u64);
            rank.send_key(peer, key).await;
            rank.fabric.withdraw(Peer(peer), key);
        }
        assert_eq!(net.stats(0).regions, before + 2, "once for all peers");
    }
    let theirs = match rank.me {
        0 => None,
        _ => Some(rank.receive_key(0).await),
    };
    let mut target = vec![0; part];
    let place = NonNull::new(target.as_mut_ptr()).unwrap();
    for outcome in [WorkOutcome::Done, WorkOutcome::BadKey] {
        if let Some(key) = theirs {
            target.fill(0);
            let got = rank.read(0, lease(place, 0, part), key, 0).await;
            assert_eq!(got, outcome);
            let is_there = target == whole[rank.me as usize * part..][..part];
            assert_eq!(is_there, outcome == WorkOutcome::Done);
            let beyond = rank.read(0, lease(place, 0, 2), key, part as u64 - 1).await;
            assert_eq!(beyond, WorkOutcome::BadKey);
        }
        rank.barrier().await;
        exposed
            .drain(..)
            .for_each(|key| rank.fabric.deregister(key));
        rank.barrier().await;
    }
}

#[test]
fn exposed_memory_is_registered_once_for_many_peers() {
    for reads in [FakeConfig::calm(1).reads, 0] {
        let net = FakeNet::new(FakeConfig {
            reads,
            ..FakeConfig::calm(1)
        });
        fake_on(
            &net,
            4,
            NetLimits::default(),
            async |rank: &mut TestRank| {
                expose(rank, &net).await;
            },
        );
    }
}

#[test]
fn allocated_memory_is_not_registered_again() {
    let net = FakeNet::new(FakeConfig::calm(1));
    fake_on(
        &net,
        2,
        NetLimits::default(),
        async |rank: &mut TestRank| {
            exchange(rank, &net).await;
        },
    );
}
