// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours of sends.

use transport::{Arrived, Atomic, Head, Peer, WorkOutcome};

use testbed::memory::AtomicWords;
use testbed::{PeerEvent, Random, TestRank, head, pattern, yield_now};

/// Sizes in bytes around every boundary: a word, a slot's body, a cache line, a page, and the largest body.
const SIZES: [usize; 22] = [
    0, 1, 2, 7, 8, 9, 15, 16, 40, 41, 47, 48, 49, 56, 63, 64, 65, 4095, 4096, 4097, 8191, 8192,
];

pub async fn sizes(rank: &mut TestRank) {
    let (to, from) = (
        (rank.me + 1) % rank.size,
        (rank.me + rank.size - 1) % rank.size,
    );
    assert_eq!(rank.fabric.caps(Peer(to)).max_send_bytes, 8192);
    for (number, bytes) in (0..).zip(SIZES) {
        let body = pattern(rank.me, number, bytes);
        rank.send(to, head(1), &body).await;
    }
    for (number, bytes) in (0..).zip(SIZES) {
        let (_, body) = rank.receive(from).await;
        assert_eq!(body, pattern(from, number, bytes), "{bytes} bytes");
    }
    rank.barrier().await;
}

/// A provider supports what its capabilities state, for a peer and for the rank itself.
pub async fn caps(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    for peer in [other, rank.me] {
        let caps = rank.fabric.caps(Peer(peer));
        for (number, bytes) in (0..).zip([caps.max_inline_bytes, caps.max_send_bytes]) {
            let body = pattern(rank.me, number, bytes);
            rank.send(peer, head(1), &body).await;
            let (_, body) = rank.receive(peer).await;
            assert!(body == pattern(peer, number, bytes), "{bytes} bytes");
        }
        let mine = AtomicWords::new(&mut rank.fabric, 1);
        let key = mine.export(&mut rank.fabric, peer);
        rank.send_key(peer, key).await;
        let key = rank.receive_key(peer).await;
        if !caps.maps {
            assert_eq!(rank.fabric.place_of(Peer(peer), key), None);
        }
        if !caps.may_stream {
            assert!(!rank.fabric.had_better_stream(Peer(peer), key));
        }
        let add = Atomic::FetchAdd { add: 1 };
        let (outcome, _) = rank.change(peer, add, key, 0).await;
        if caps.atomics.is_none() {
            assert_eq!(outcome, WorkOutcome::Unreachable);
        } else if outcome == WorkOutcome::Done && peer == rank.me {
            assert_eq!(mine.get(0), 1);
        }
        rank.barrier().await;
    }
}

pub async fn heads(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    let made = |kind: u8| Head {
        kind,
        len: 0,
        flags: u16::from(kind).wrapping_mul(517) ^ 0xF00F,
        word: u64::from(kind)
            .wrapping_mul(0x0123_4567_89AB_CDEF)
            .rotate_left(9),
    };
    for kind in 1..100 {
        rank.send(other, made(kind), &[kind; 3]).await;
        // The fast path, if there is one: it sends eight or four bytes as one word.
        let word = u64::from_ne_bytes([kind; 8]);
        let head = || Head {
            len: 4,
            ..made(kind)
        };
        match rank.fabric.post_word::<4>(Peer(other), head, || word) {
            Some(true) => {}
            Some(false) => rank.fabric.ring_bell(Peer(other)),
            None => rank.send(other, made(kind), &[kind; 4]).await,
        }
    }
    for kind in 1..100 {
        assert_eq!(rank.receive(other).await, (made(kind), vec![kind; 3]));
        assert_eq!(rank.receive(other).await, (made(kind), vec![kind; 4]));
    }
    rank.barrier().await;
}

pub async fn order(rank: &mut TestRank) {
    const FRAMES: u64 = 200;
    let mut random = Random(u64::from(rank.me) * 77);
    for number in 0..FRAMES {
        for step in 1..rank.size.max(2) {
            let to = (rank.me + step) % rank.size;
            let bytes = match random.below(10) {
                0 => random.below(5000),
                1..4 => random.below(100),
                _ => 8,
            };
            let made = Head {
                word: number,
                ..head(2)
            };
            rank.send(to, made, &pattern(rank.me, number, bytes as usize))
                .await;
        }
        if random.below(8) == 0 {
            rank.turn().await;
        }
    }
    for step in 1..rank.size.max(2) {
        let from = (rank.me + step) % rank.size;
        for number in 0..FRAMES {
            let (head, body) = rank.receive(from).await;
            assert_eq!(head.word, number, "from {from}");
            assert_eq!(body, pattern(from, number, body.len()));
        }
    }
    rank.barrier().await;
}

/// Each rank posts bursts of frames of all sizes to all ranks. Most frames may be deferred; frames that may not, and
/// polls between two sends, are mixed among them.
pub async fn bursts(rank: &mut TestRank) {
    const ROUNDS: u64 = 6;
    const END: u8 = 2;
    let mut random = Random(u64::from(rank.me) + 11);
    for round in 0..ROUNDS {
        let mut sent = vec![0; rank.size as usize];
        for _ in 0..random.below(300) {
            let to = random.below(rank.size.into()) as u32;
            let bytes = match random.below(8) {
                0 => random.below(8193),
                1..4 => 8,
                _ => random.below(260),
            };
            let name = round << 32 | u64::from(to) << 16 | sent[to as usize];
            let body = pattern(rank.me, name, bytes as usize);
            sent[to as usize] += 1;
            let defers = random.below(30) != 0;
            while match defers {
                true => rank.fabric.post_deferrable(Peer(to), head(1), &body),
                false => rank.fabric.post_send(Peer(to), head(1), &body),
            }
            .is_err()
            {
                rank.turn().await;
            }
            if random.below(16) == 0 {
                rank.fabric.begin_poll_between_sends();
                rank.pass().await;
            }
        }
        for (to, sent) in (0..).zip(sent) {
            rank.send(to, head(END), &sent.to_ne_bytes()).await;
        }
        for from in 0..rank.size {
            let mut number = 0;
            loop {
                let (head, body) = rank.receive(from).await;
                if head.kind == END {
                    assert_eq!(body, u64::to_ne_bytes(number), "frames of {from}");
                    break;
                }
                let name = round << 32 | u64::from(rank.me) << 16 | number;
                assert!(
                    body == pattern(from, name, body.len()),
                    "frame {number} of {from}, {} bytes",
                    body.len()
                );
                number += 1;
            }
        }
        rank.barrier().await;
    }
}

/// Every rank sends to every rank, itself included.
pub async fn all_to_all(rank: &mut TestRank) {
    const FRAMES: u64 = 30;
    for number in 0..FRAMES {
        for to in 0..rank.size {
            let bytes = (number * 7 % 60) as usize;
            rank.send(to, head(3), &pattern(rank.me, number, bytes))
                .await;
        }
    }
    for number in 0..FRAMES {
        for from in 0..rank.size {
            let (_, body) = rank.receive(from).await;
            assert_eq!(body, pattern(from, number, (number * 7 % 60) as usize));
        }
    }
    rank.barrier().await;
}

pub async fn full_and_recovery(rank: &mut TestRank) {
    let (sender, receiver) = (0, rank.size - 1);
    // Before the first contact with a peer there may be no room for frames to it, so all ranks meet first.
    rank.barrier().await;
    if rank.me == sender {
        let made = |word| Head { word, ..head(4) };
        let (mut posted, mut refusals) = (0u64, 0);
        // The receiver does not poll yet.
        while refusals < 50 {
            match rank.fabric.post_send(Peer(receiver), made(posted), &[]) {
                Ok(()) => posted += 1,
                Err(_) => {
                    refusals += 1;
                    yield_now().await;
                }
            }
            assert!(posted < 10_000, "the transport takes any number of frames");
        }
        assert!(posted > 0);
        // From now on frames are sent with retries; the refused frames have left no trace.
        for word in posted..posted + 300 {
            rank.send(receiver, made(word), &[]).await;
        }
        rank.send(
            receiver,
            Head {
                word: u64::MAX,
                ..head(4)
            },
            &[],
        )
        .await;
    }
    if rank.me == receiver {
        for _ in 0..100 {
            yield_now().await;
        }
        let mut expected = 0;
        loop {
            let (head, _) = rank.receive(sender).await;
            if head.word == u64::MAX {
                break;
            }
            assert_eq!(head.word, expected);
            expected += 1;
        }
        assert!(expected > 300);
    }
    rank.barrier().await;
}

/// If a receiver does not release lent buffers, large bodies are refused after some time, but small ones never.
pub async fn held_buffers(rank: &mut TestRank) {
    let (sender, receiver) = (0, rank.size - 1);
    if sender == receiver {
        return;
    }
    if rank.me == sender {
        let (mut posted, mut refusals) = (0u64, 0);
        while posted < 300 && refusals < 300 {
            let body = pattern(0, posted, 100 + posted as usize);
            match rank.fabric.post_send(Peer(receiver), head(5), &body) {
                Ok(()) => posted += 1,
                Err(_) => refusals += 1,
            }
            rank.pass().await;
        }
        assert!(posted < 300, "unreleased buffers do not run out");
        rank.send(
            receiver,
            Head {
                word: posted,
                ..head(6)
            },
            b"small",
        )
        .await;
        for number in posted..posted + 20 {
            let body = pattern(0, number, 100 + number as usize);
            rank.send(receiver, head(5), &body).await;
        }
    } else if rank.me == receiver {
        let (held, count) = hold_until_small(rank).await;
        // One more large body may have arrived behind the small one, in the buffer that is reserved for this receiver.
        let held_count = held.len() as u64;
        assert!(
            (count..=count + 1).contains(&held_count),
            "{held_count} of {count}"
        );
        // Released in reverse order: each buffer can be reused as soon as it is released.
        for (number, arrived) in held.iter().enumerate().rev() {
            let number = number as u64;
            let mut body = vec![0; arrived.bytes() as usize];
            assert_eq!(rank.fabric.copy_body(arrived, &mut body), body.len());
            assert_eq!(body, pattern(0, number, 100 + number as usize));
            rank.fabric.release(arrived);
        }
        for number in held_count..count + 20 {
            let body = rank.receive(sender).await.1;
            assert_eq!(body, pattern(0, number, 100 + number as usize));
        }
    }
    rank.barrier().await;
}

async fn hold_until_small(rank: &mut TestRank) -> (Vec<Arrived>, u64) {
    let mut held = Vec::new();
    loop {
        let arrived = rank.poll_and_hold().1;
        let small = arrived.iter().find(|arrived| !arrived.is_lent()).copied();
        held.extend(arrived.into_iter().filter(Arrived::is_lent));
        if let Some(small) = small {
            return (held, small.head.word);
        }
        if rank.waiting(0) > 0 {
            let PeerEvent::Message { head, .. } = rank.incoming(0).await else {
                panic!("a write that was not posted");
            };
            return (held, head.word);
        }
        yield_now().await;
    }
}

/// A target that is shorter than the body gets the body's beginning; a longer target is unchanged behind the body.
pub async fn short_target(rank: &mut TestRank) {
    const BYTES: [usize; 5] = [5, 8, 48, 49, 3000];
    let (sender, receiver) = (0, rank.size - 1);
    if rank.me == sender {
        for (number, bytes) in (0..).zip(BYTES) {
            rank.send(receiver, head(7), &pattern(sender, number, bytes))
                .await;
        }
    }
    if rank.me == receiver {
        let mut seen = 0;
        while seen < BYTES.len() {
            for arrived in rank.poll_raw() {
                copy_to_targets_of_several_sizes(
                    rank,
                    &arrived,
                    &pattern(sender, seen as u64, BYTES[seen]),
                );
                rank.fabric.release(&arrived);
                seen += 1;
            }
            yield_now().await;
        }
    }
    rank.barrier().await;
}

fn copy_to_targets_of_several_sizes(rank: &TestRank, arrived: &Arrived, whole: &[u8]) {
    let bytes = whole.len();
    for room in [0, 1, bytes / 2, bytes - 1, bytes, bytes + 9] {
        let mut target = vec![0xAB; room];
        let copied = rank.fabric.copy_body(arrived, &mut target);
        assert_eq!(copied, room.min(bytes));
        assert_eq!(target[..copied], whole[..copied]);
        assert!(target[copied..].iter().all(|byte| *byte == 0xAB));
    }
}
