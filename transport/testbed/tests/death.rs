// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills a rank at a random instruction: the frames that it had sent arrive complete and in order, and the other ranks
//! continue.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use testbed::memory::{Guarded, segment_file};
use testbed::{PeerEvent, Random, TestRank, head, pattern, world};
use transport::{Head, Peer, WorkOutcome};

const VICTIM: u32 = 2;

#[test]
fn killed_rank_does_not_affect_other_ranks() {
    for round in 0..10 {
        let file = segment_file(3, 0x70b);
        let mut children = world::start(&file, 3, "survive");
        world::wait_for_mark(&mut children[0]);
        let pause = Random(round).below(8_000);
        std::thread::sleep(Duration::from_micros(pause));
        children[VICTIM as usize].kill().unwrap();
        let ends = world::finish(children);
        let end = ends[VICTIM as usize];
        assert_eq!(
            end.signal(),
            Some(9),
            "round {round}: it ended before: {end}"
        );
        for survivor in [0, 1] {
            let end = ends[survivor];
            assert!(
                end.success(),
                "round {round}: rank {survivor} ended with {end}"
            );
        }
    }
}

#[test]
fn child_rank() {
    let Some((name, mut rank)) = world::child() else {
        return;
    };
    assert_eq!(name, "survive");
    match rank.me {
        VICTIM => world::run(&mut rank, run_victim),
        _ => world::run(&mut rank, survive),
    }
}

/// Sends bodies of all sizes and reads large data, until it is killed.
async fn run_victim(rank: &mut TestRank) {
    rank.fabric.set_attentive(true);
    let keys = [rank.receive_key(0).await, rank.receive_key(1).await];
    let mut target = Guarded::new(READ_BYTES);
    for number in 0.. {
        for (to, key) in (0..).zip(keys) {
            let body = pattern(VICTIM, number, body_bytes(number));
            let made = Head {
                word: number,
                ..head(1)
            };
            rank.send(to, made, &body).await;
            if number.is_multiple_of(50) {
                let lease = target.lease(0, READ_BYTES);
                let outcome = rank.read(to, lease, key, 0).await;
                assert!(matches!(
                    outcome,
                    WorkOutcome::Done | WorkOutcome::Unreachable
                ));
            }
        }
    }
}

/// Exchanges messages with the other survivor, and receives from the victim.
async fn survive(rank: &mut TestRank) {
    const ROUNDS: u64 = 3000;
    let other = 1 - rank.me;
    rank.fabric.set_attentive(true);
    let mut source = Guarded::of(&pattern(rank.me, 0, READ_BYTES));
    let key = source.export(&mut rank.fabric, VICTIM);
    rank.send_key(VICTIM, key).await;
    let mut received = 0;
    for round in 0..ROUNDS {
        if round == 100 && rank.me == 0 {
            std::io::stdout().write_all(b"!").unwrap();
            std::io::stdout().flush().unwrap();
        }
        rank.send(other, head(2), &pattern(rank.me, round, 30))
            .await;
        assert_eq!(rank.receive(other).await.1, pattern(other, round, 30));
        receive_from_victim(rank, &mut received).await;
        // The result is ignored, since sends fail when the ring of the dead rank is full.
        let _ = rank
            .fabric
            .post_send(Peer(VICTIM), head(3), b"are you there");
    }
    // The victim is dead by now or will be soon; all its frames are complete.
    for _ in 0..50 {
        rank.turn().await;
    }
    receive_from_victim(rank, &mut received).await;
    rank.send(other, head(2), b"bye").await;
    while rank.waiting(other) == 0 {
        receive_from_victim(rank, &mut received).await;
        rank.turn().await;
    }
    assert_eq!(rank.receive(other).await.1, b"bye");
    receive_from_victim(rank, &mut received).await;
    rank.forget(VICTIM);
}

async fn receive_from_victim(rank: &mut TestRank, received: &mut u64) {
    while rank.waiting(VICTIM) > 0 {
        let PeerEvent::Message { head, body } = rank.incoming(VICTIM).await else {
            panic!("a write that was not posted");
        };
        assert_eq!(head.word, *received);
        assert_eq!(body, pattern(VICTIM, *received, body_bytes(*received)));
        *received += 1;
    }
}

fn body_bytes(number: u64) -> usize {
    match number % 7 {
        0 => (number * 101 % 8_192) as usize,
        other => (other * 8) as usize,
    }
}

const READ_BYTES: usize = 1 << 20;
