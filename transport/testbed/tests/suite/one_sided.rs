// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours of reads and writes.

use transport::{Head, Peer, RemoteKey, WorkId, WorkOutcome};

use testbed::memory::{Guarded, is_all};
use testbed::{PeerEvent, TestRank, head, pattern, yield_now};

/// Sizes in bytes around words, pages, and the chunks of large copies; a copy of the largest takes several polls.
const SIZES: [usize; 14] = [
    1,
    7,
    8,
    4095,
    4096,
    4097,
    32767,
    32768,
    32769,
    65536,
    65537,
    262_147,
    (1 << 20) + 3,
    3 << 20,
];

pub async fn reads(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    for (number, bytes) in (0..).zip(SIZES) {
        let mut source = Guarded::of(&pattern(rank.me, number, bytes));
        let key = source.export(&mut rank.fabric, other);
        rank.send_key(other, key).await;
        let key = rank.receive_key(other).await;
        let whole = pattern(other, number, bytes);
        for (offset, length) in parts(bytes) {
            let mut target = Guarded::new(bytes + 5);
            let lease = target.lease(5, length);
            let outcome = rank.read(other, lease, key, offset as u64).await;
            if rank.was_done(outcome) {
                let (front, rest) = target.bytes().split_at(5);
                assert!(
                    rest[..length] == whole[offset..][..length],
                    "{bytes} {offset} {length}"
                );
                assert!(is_all(front, 0) && is_all(&rest[length..], 0));
            }
        }
        // Until the barrier the peer may still be reading.
        rank.barrier().await;
        source.assert_guards();
    }
}

pub async fn writes(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    for (number, bytes) in (0..).zip(SIZES) {
        for (offset, length) in parts(bytes) {
            let mut target = Guarded::new(bytes);
            let key = target.export(&mut rank.fabric, other);
            rank.send_key(other, key).await;
            let key = rank.receive_key(other).await;
            let mut source = Guarded::of(&pattern(rank.me, number, length));
            let lease = source.lease(0, length);
            let outcome = rank.write(other, lease, key, offset as u64, None).await;
            let done = u64::from(rank.was_done(outcome));
            let head = Head {
                word: done,
                ..head(7)
            };
            rank.send(other, head, &[]).await;
            // Whether the peer's write was performed. Writes may be possible in one direction only.
            let done = rank.receive(other).await.0.word == 1;
            rank.barrier().await;
            let content = target.bytes();
            if done {
                let written = &content[offset..][..length];
                assert!(
                    *written == pattern(other, number, length),
                    "{bytes} {offset} {length}"
                );
            }
            assert!(is_all(&content[..offset], 0) && is_all(&content[offset + length..], 0));
        }
    }
}

/// Offset and length of the whole, of nothing, and of parts with arbitrary bounds.
fn parts(bytes: usize) -> [(usize, usize); 5] {
    let third = bytes / 3;
    [
        (0, bytes),
        (bytes, 0),
        (bytes - 1, 1),
        (third, bytes - third),
        (third / 2, third),
    ]
}

pub async fn immediates(rank: &mut TestRank) {
    const ROUNDS: u32 = 40;
    let other = rank.size - 1 - rank.me;
    let mut target = Guarded::new(ROUNDS as usize * 16);
    let key = target.export(&mut rank.fabric, other);
    rank.send_key(other, key).await;
    let key = rank.receive_key(other).await;
    let mut sources: Vec<_> = (0..ROUNDS)
        .map(|n| Guarded::of(&pattern(rank.me, n.into(), 16)))
        .collect();
    let mut works = Vec::new();
    for (number, source) in (0..ROUNDS).zip(&mut sources) {
        rank.send(other, head(10), &number.to_ne_bytes()).await;
        works.push(post_write(rank, other, source, key, number).await);
    }
    let mut written = 0;
    for number in 0..ROUNDS {
        let (_, body) = rank.receive(other).await;
        assert_eq!(body, number.to_ne_bytes());
        if rank.reach == testbed::OneSidedReach::Never || !was_written(rank, other).await {
            continue;
        }
        assert_eq!(rank.incoming(other).await, PeerEvent::Written(number));
        let there = &target.bytes()[number as usize * 16..][..16];
        assert_eq!(
            there,
            pattern(other, number.into(), 16),
            "notified before the bytes are there"
        );
        written += 1;
    }
    for work in works {
        let outcome = rank.end_of(work).await;
        rank.was_done(outcome);
    }
    assert!(written == ROUNDS || rank.reach != testbed::OneSidedReach::Must);
    rank.barrier().await;
}

async fn post_write(
    rank: &mut TestRank,
    to: u32,
    source: &mut Guarded,
    key: RemoteKey,
    number: u32,
) -> WorkId {
    let work = rank.name_work();
    let offset = u64::from(number) * 16;
    let mut lease = source.lease(0, 16);
    while let Err(back) = rank
        .fabric
        .post_write(Peer(to), lease, key, offset, work, Some(number))
    {
        lease = back;
        rank.turn().await;
    }
    work
}

/// Waits for the next event of `from`; returns whether it is the completion of a write. If the system forbids writes,
/// it is another event.
async fn was_written(rank: &mut TestRank, from: u32) -> bool {
    if rank.reach == testbed::OneSidedReach::Must {
        return true;
    }
    while rank.waiting(from) == 0 {
        rank.turn().await;
    }
    rank.is_written_next(from)
}

// tidy: long (one altered key after the other)
pub async fn bad_keys(rank: &mut TestRank) {
    let (to, from) = (
        (rank.me + 1) % rank.size,
        (rank.me + rank.size - 1) % rank.size,
    );
    const BYTES: usize = 40_000;
    let mut memory = Guarded::of(&pattern(rank.me, 1, BYTES));
    // A key for the previous rank, which also receives a key that was made for another rank.
    let key = memory.export(&mut rank.fabric, from);
    rank.send_key(from, key).await;
    let foreign = memory.export(&mut rank.fabric, to);
    rank.send_key(from, foreign).await;
    let good = rank.receive_key(to).await;
    let foreign = rank.receive_key(to).await;

    let mut bad = vec![
        (
            RemoteKey {
                address: good.address + 8,
                ..good
            },
            0,
        ),
        (
            RemoteKey {
                address: good.address - 1,
                ..good
            },
            0,
        ),
        (RemoteKey { address: 0, ..good }, 0),
        (
            RemoteKey {
                address: u64::MAX - 5,
                ..good
            },
            0,
        ),
        (
            RemoteKey {
                bytes: good.bytes + 1,
                ..good
            },
            0,
        ),
        (
            RemoteKey {
                bytes: u64::MAX,
                ..good
            },
            0,
        ),
        (
            RemoteKey {
                check: good.check ^ 1,
                ..good
            },
            0,
        ),
        (RemoteKey { check: 0, ..good }, 0),
        (RemoteKey::default(), 0),
        (good, 1),
        (good, BYTES as u64),
        (good, u64::MAX),
        (good, u64::MAX - BYTES as u64 + 1),
    ];
    if rank.size > 2 {
        bad.push((foreign, 0));
    }
    for (key, offset) in bad {
        let mut target = Guarded::new(BYTES);
        let lease = target.lease(0, BYTES);
        let outcome = rank.read(to, lease, key, offset).await;
        rank.assert_refused(outcome);
        assert!(is_all(target.bytes(), 0), "{key:?} {offset}");
        let lease = target.lease(0, BYTES);
        let outcome = rank.write(to, lease, key, offset, Some(9)).await;
        rank.assert_refused(outcome);
    }
    rank.barrier().await;
    assert!(
        memory.bytes() == pattern(rank.me, 1, BYTES),
        "a bad key reached memory"
    );
    memory.assert_guards();
    rank.barrier().await;
}

/// Many reads of many sizes at the same time: each completes once, with its own id and memory.
pub async fn many_at_once(rank: &mut TestRank) {
    const READS: usize = 100;
    let (to, from) = (
        (rank.me + 1) % rank.size,
        (rank.me + rank.size - 1) % rank.size,
    );
    let content = pattern(rank.me, 5, 120_000);
    let mut source = Guarded::of(&content);
    let key = source.export(&mut rank.fabric, from);
    rank.send_key(from, key).await;
    let key = rank.receive_key(to).await;
    let theirs = pattern(to, 5, 120_000);
    let size = |at: usize| (at * at * 11) % 100_000;
    let mut targets: Vec<_> = (0..READS).map(|at| Guarded::new(size(at))).collect();
    let mut posted = Vec::new();
    for (at, target) in targets.iter_mut().enumerate() {
        let lease = target.lease(0, size(at));
        let (address, work) = (lease.address(), rank.name_work());
        rank.fabric.post_read(Peer(to), lease, key, at as u64, work);
        posted.push((work, address));
    }
    while rank.ended.len() < READS {
        rank.turn().await;
    }
    for _ in 0..20 {
        rank.pass().await;
    }
    let mut ended: Vec<_> = rank.ended.drain(..).collect();
    ended.sort_unstable_by_key(|(work, ..)| work.0);
    assert_eq!(ended.len(), READS);
    for (at, ((work, outcome, lease), expected)) in ended.iter().zip(&posted).enumerate() {
        assert_eq!((*work, lease.address()), *expected);
        assert_eq!(lease.bytes(), size(at));
        if rank.was_done(*outcome) {
            assert!(
                targets[at].bytes() == &theirs[at..at + size(at)],
                "read {at}"
            );
        }
    }
    rank.barrier().await;
}

/// Every rank reads from every other at the same time.
pub async fn crossing_reads(rank: &mut TestRank) {
    const BYTES: usize = 700_001;
    let mut source = Guarded::of(&pattern(rank.me, 9, BYTES));
    for peer in 0..rank.size {
        let key = source.export(&mut rank.fabric, peer);
        rank.send_key(peer, key).await;
    }
    let mut reads = Vec::new();
    for peer in 0..rank.size {
        let key = rank.receive_key(peer).await;
        let mut target = Guarded::new(BYTES);
        let (lease, work) = (target.lease(0, BYTES), rank.name_work());
        rank.fabric.post_read(Peer(peer), lease, key, 0, work);
        reads.push((peer, work, target));
        yield_now().await;
    }
    for (peer, work, target) in reads {
        let outcome = rank.end_of(work).await;
        // A process can always access its own memory.
        let done = match peer == rank.me {
            true => outcome == WorkOutcome::Done,
            false => rank.was_done(outcome),
        };
        assert!(done || peer != rank.me, "{outcome:?}");
        assert!(
            !done || target.bytes() == pattern(peer, 9, BYTES),
            "read of {peer}"
        );
    }
    rank.barrier().await;
}
