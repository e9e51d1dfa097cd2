// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours of announced data.

use testbed::memory::Guarded;
use testbed::{Random, TestRank, body_of, head, key_of, pattern};
use transport::{Peer, RemoteKey};

/// Sizes in bytes around the largest size that is sent with an announcement, and larger ones.
const SIZES: [usize; 9] = [
    1, 4095, 8192, 8193, 50_000, 65_536, 262_144, 262_145, 600_001,
];
const ROUNDS: u64 = 12;
const MOST: u64 = 8;
const ALL: u8 = 8;
const READ: u8 = 9;

/// Data that a rank has announced.
struct Source {
    memory: Guarded,
    key: RemoteKey,
}

/// Each rank announces data, and reads the data of another rank: immediately or later, in any order, and all of it, a
/// part, or nothing. Data may be read twice.
pub async fn announced(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    let mut random = Random(u64::from(rank.me) + 7);
    for round in 0..ROUNDS {
        let mut sources = Vec::new();
        for number in 0..1 + random.below(MOST) {
            let bytes = SIZES[random.below(SIZES.len() as u64) as usize];
            let name = round * MOST + number;
            sources.push(announce(rank, other, name, bytes).await);
        }
        rank.send(other, head(ALL), &[]).await;
        let mut theirs = Vec::new();
        loop {
            let (head, body) = rank.receive(other).await;
            if head.kind == ALL {
                break;
            }
            let name = round * MOST + theirs.len() as u64;
            theirs.push((name, key_of(&body)));
            if random.below(3) == 0 {
                let at = random.below(theirs.len() as u64) as usize;
                let (name, key) = theirs[at];
                read(rank, other, (name, key), &mut random).await;
            }
        }
        for _ in 0..random.below(40) {
            rank.pass().await;
        }
        while !theirs.is_empty() {
            let at = random.below(theirs.len() as u64) as usize;
            let it = theirs.swap_remove(at);
            read(rank, other, it, &mut random).await;
        }
        rank.send(other, head(READ), &[]).await;
        assert_eq!(rank.receive(other).await.0.kind, READ);
        for mut source in sources {
            rank.fabric.withdraw(Peer(other), source.key);
            source.memory.bytes_mut().fill(0xee);
            source.memory.assert_guards();
        }
    }
}

async fn announce(rank: &mut TestRank, to: u32, name: u64, bytes: usize) -> Source {
    let mut memory = Guarded::of(&pattern(rank.me, name, bytes));
    let address = memory.lease(0, bytes).address();
    let key = rank.fabric.offer(Peer(to), address, bytes as u64);
    let body = body_of(key);
    while rank
        .fabric
        .post_announcement(Peer(to), head(7), &body, Some(key))
        .is_err()
    {
        rank.turn().await;
    }
    Source { memory, key }
}

/// Reads all or a part of announced data, or declines them. Data that were read before can be read again.
async fn read(rank: &mut TestRank, from: u32, (name, key): (u64, RemoteKey), random: &mut Random) {
    let bytes = key.bytes as usize;
    let (at, part) = match random.below(6) {
        0 => return rank.fabric.decline(Peer(from), key),
        1 => (bytes / 3, bytes / 2),
        _ => (0, bytes),
    };
    let mut target = Guarded::new(bytes);
    let lease = target.lease(0, part);
    let outcome = rank.read(from, lease, key, at as u64).await;
    if rank.was_done(outcome) {
        let whole = pattern(from, name, bytes);
        assert!(
            target.bytes()[..part] == whole[at..][..part],
            "{name} {bytes}"
        );
    }
    target.assert_guards();
}
