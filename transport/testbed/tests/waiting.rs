// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sleeping, waking and attention: a sleeping rank is woken by the events that it waits for, and a sender
//! rings the bell of a receiver only if that is necessary to wake it. No test here depends on speed; after a lost
//! wake-up a sleep lasts its maximal time.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use std::time::{Duration, Instant};

use testbed::memory::{Guarded, open, segment_file};
use testbed::{Random, TestRank, head, pattern, world, yield_now};
use transport::{Completion, Completions, Config, Fabric, Peer, SimConfig, SimNet};

/// The longest sleep: a rank sleeps this long only if it is not woken.
const FOR_EVER: Duration = Duration::from_secs(40);

/// Polls once, and sleeps if the poll returned nothing. Panics if the rank was not woken.
async fn sleep_if_idle(rank: &mut TestRank) {
    if rank.poll() == 0 && rank.fabric.prepare_sleep() {
        let since = Instant::now();
        rank.fabric.sleep(FOR_EVER);
        let slept = since.elapsed();
        assert!(
            slept < FOR_EVER - Duration::from_secs(5),
            "rank {}: no wake-up came",
            rank.me
        );
    }
    yield_now().await;
}

async fn receive_asleep(rank: &mut TestRank, from: u32) -> Vec<u8> {
    while rank.waiting(from) == 0 {
        sleep_if_idle(rank).await;
    }
    rank.receive(from).await.1
}

/// The ranks pass a token round in a ring; ranks without the token sleep. Attention changes at random moments.
async fn token_ring(rank: &mut TestRank) {
    const LAPS: u64 = 400;
    let (to, from) = (
        (rank.me + 1) % rank.size,
        (rank.me + rank.size - 1) % rank.size,
    );
    let mut random = Random(u64::from(rank.me) + 99);
    for lap in 0..LAPS {
        if random.below(5) == 0 {
            rank.fabric.set_attentive(random.below(2) == 0);
        }
        let bytes = (lap * 13 % 120) as usize;
        if rank.me == 0 {
            rank.send(to, head(1), &pattern(0, lap, bytes)).await;
        }
        assert_eq!(receive_asleep(rank, from).await, pattern(0, lap, bytes));
        if rank.me != 0 {
            rank.send(to, head(1), &pattern(0, lap, bytes)).await;
        }
    }
    leave(rank).await;
}

/// Several ranks send to one rank, which sleeps while it has nothing to receive: no wake-up is lost.
async fn many_to_one(rank: &mut TestRank) {
    const FRAMES: u64 = 300;
    if rank.me == 0 {
        for number in 0..FRAMES {
            for from in 1..rank.size {
                assert_eq!(receive_asleep(rank, from).await, number.to_ne_bytes());
            }
            // The senders sleep until they receive this.
            for to in 1..rank.size {
                rank.send(to, head(2), &[]).await;
            }
        }
    } else {
        let mut random = Random(u64::from(rank.me));
        for number in 0..FRAMES {
            for _ in 0..random.below(50) {
                std::hint::spin_loop();
            }
            rank.send(0, head(2), &number.to_ne_bytes()).await;
            receive_asleep(rank, 0).await;
        }
    }
    leave(rank).await;
}

/// A barrier in which ranks sleep, so that no rank ends while others may still need its wake-ups.
async fn leave(rank: &mut TestRank) {
    if rank.me == 0 {
        for from in 1..rank.size {
            receive_asleep(rank, from).await;
        }
        for to in 1..rank.size {
            rank.send(to, head(3), &[]).await;
        }
    } else {
        rank.send(0, head(3), &[]).await;
        receive_asleep(rank, 0).await;
    }
}

#[test]
fn no_wake_up_is_lost_in_a_ring_of_threads() {
    world::shm_threads(5, token_ring);
}

#[test]
fn no_wake_up_is_lost_in_a_ring_of_processes() {
    world::shm_processes(5, "token_ring");
}

#[test]
fn many_threads_wake_one_sleeper() {
    world::shm_threads(5, many_to_one);
}

#[test]
fn many_processes_wake_one_sleeper() {
    world::shm_processes(5, "many_to_one");
}

#[test]
fn child_rank() {
    let Some((name, mut rank)) = world::child() else {
        return;
    };
    match name.as_str() {
        "token_ring" => world::run(&mut rank, token_ring),
        "many_to_one" => world::run(&mut rank, many_to_one),
        _ => panic!("no behaviour is called {name}"),
    }
}

fn pair() -> (Fabric, Fabric) {
    let file = segment_file(2, 3);
    (open(&file, 3, 0, 2), open(&file, 3, 1, 2))
}

fn poll(fabric: &mut Fabric) -> usize {
    let mut completions = Completions::new();
    fabric.poll(&mut completions);
    for at in 0..completions.len() {
        if let Some(Completion::Arrived(arrived)) = completions.take(at) {
            fabric.release(&arrived);
        }
    }
    completions.len()
}

#[test]
fn pending_work_prevents_sleep() {
    let (mut a, mut b) = pair();
    assert!(b.prepare_sleep());
    b.stay_awake();
    a.post_send(Peer(1), head(1), b"x").unwrap();
    assert!(!b.prepare_sleep(), "a frame is here");
    assert_eq!(poll(&mut b), 1);
    assert!(b.prepare_sleep());
    b.stay_awake();
    // With attention the sender need not ring the bell; the frame still prevents the sleep.
    b.set_attentive(true);
    for _ in 0..2 {
        a.post_send(Peer(1), head(1), b"x").unwrap();
        assert!(!b.prepare_sleep());
        assert_eq!(poll(&mut b), 1);
    }
    a.post_send(Peer(1), head(1), b"x").unwrap();
    b.set_attentive(false);
    assert!(!b.prepare_sleep());
    assert_eq!(poll(&mut b), 1);
    // A frame to the rank itself prevents the sleep.
    b.post_send(Peer(1), head(1), b"x").unwrap();
    assert!(!b.prepare_sleep());
    assert_eq!(poll(&mut b), 1);
    // A read that has not completed prevents the sleep.
    let (mut source, mut target) = (Guarded::new(100), Guarded::new(100));
    let key = source.export(&mut a, 1);
    b.post_read(Peer(0), target.lease(0, 100), key, 0, transport::WorkId(1));
    assert!(!b.prepare_sleep());
    while poll(&mut b) == 0 {}
    assert!(b.prepare_sleep());
    b.stay_awake();
}

#[test]
fn a_send_wakes_a_sleeper_once() {
    let (mut a, mut b) = pair();
    assert!(b.prepare_sleep());
    a.post_send(Peer(1), head(1), b"x").unwrap();
    a.post_send(Peer(1), head(1), b"x").unwrap();
    assert_eq!(a.stats().wakes, 1);
    // The wake-up came before the sleep, so the sleep ends immediately.
    let since = Instant::now();
    b.sleep(FOR_EVER);
    assert!(since.elapsed() < FOR_EVER / 2);
    assert_eq!((poll(&mut b), b.stats().sleeps), (2, 1));
}

#[test]
fn sleep_without_a_wake_up_times_out() {
    let (_a, mut b) = pair();
    assert!(b.prepare_sleep());
    let since = Instant::now();
    b.sleep(Duration::from_millis(30));
    assert!(since.elapsed() >= Duration::from_millis(30));
    assert!(b.prepare_sleep(), "asleep or awake, the bell is whole");
    b.stay_awake();
    let mut alone = Fabric::open(Config::alone()).unwrap();
    assert!(alone.prepare_sleep());
    alone.sleep(Duration::from_millis(1));
}

/// How often `sender` rings the bell for `count` frames, each of which `receiver` takes immediately.
fn bells(sender: &mut Fabric, receiver: &mut Fabric, to: u32, count: u64) -> u64 {
    let before = sender.stats().bells;
    for _ in 0..count {
        sender.post_send(Peer(to), head(1), b"x").unwrap();
        assert_eq!(poll(receiver), 1);
    }
    sender.stats().bells - before
}

#[test]
fn attention_avoids_doorbells_until_withdrawn() {
    if !has_heavy_fence() {
        return;
    }
    let (mut a, mut b) = pair();
    assert_eq!(
        bells(&mut a, &mut b, 1, 10),
        10,
        "the receiver does not poll yet"
    );
    b.set_attentive(true);
    assert_eq!(bells(&mut a, &mut b, 1, 10), 1, "only the first one rings");
    // The numbers of rings are the same, however often the receiver starts and stops polling.
    for _ in 0..20 {
        b.set_attentive(false);
        assert_eq!(bells(&mut a, &mut b, 1, 10), 10);
        b.set_attentive(true);
        assert_eq!(bells(&mut a, &mut b, 1, 10), 1);
    }
    b.set_attentive(false);
    // Preparing to sleep withdraws the attention too.
    b.set_attentive(true);
    bells(&mut a, &mut b, 1, 1);
    assert!(b.prepare_sleep());
    a.post_send(Peer(1), head(1), b"x").unwrap();
    assert_eq!(a.stats().wakes, 1);
    b.sleep(FOR_EVER);
    assert_eq!(poll(&mut b), 1);
    assert!(bells(&mut a, &mut b, 1, 10) <= 1, "it polls again");
}

#[test]
fn attention_goes_to_active_senders() {
    if !has_heavy_fence() {
        return;
    }
    const PEERS: u32 = 12;
    let file = segment_file(PEERS + 1, 3);
    let mut ranks: Vec<_> = (0..=PEERS)
        .map(|me| open(&file, 3, me, PEERS + 1))
        .collect();
    let (mut senders, receiver) = (ranks.split_off(1), &mut ranks[0]);
    receiver.set_attentive(true);
    let rung: Vec<_> = senders
        .iter_mut()
        .map(|sender| bells(sender, receiver, 0, 10))
        .collect();
    assert_eq!(
        rung.iter().filter(|bells| **bells == 1).count(),
        8,
        "{rung:?}"
    );
    assert_eq!(
        rung.iter().filter(|bells| **bells == 10).count(),
        4,
        "{rung:?}"
    );
    // After a long silence of all senders, the last sender gets attention.
    for _ in 0..20_000 {
        poll(receiver);
    }
    let last = senders.last_mut().unwrap();
    assert_eq!(bells(last, receiver, 0, 10), 1);
    // Frames of senders that have lost the attention are still received.
    for sender in &mut senders {
        bells(sender, receiver, 0, 3);
    }
}

#[test]
fn simulated_sleep_advances_simulated_time() {
    let net = SimNet::new(SimConfig::calm(1, 2));
    let mut a = Fabric::simulated(&net, Peer(0));
    let mut b = Fabric::simulated(&net, Peer(1));
    assert!(b.prepare_sleep());
    a.post_send(Peer(1), head(1), b"x").unwrap();
    assert!(b.prepare_sleep(), "the frame is still under way");
    b.sleep(FOR_EVER);
    assert!(net.now_ns() >= 1000 && net.now_ns() < 1_000_000);
    assert!(!b.prepare_sleep());
    assert_eq!((poll(&mut b), b.stats().sleeps), (1, 1));
    // Nothing is outstanding, so the sleep ends at its timeout.
    b.sleep(FOR_EVER);
    assert_eq!(poll(&mut b), 0);
}

/// Whether the kernel has the memory barrier that attention needs.
fn has_heavy_fence() -> bool {
    // SAFETY: a command number and no memory.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) };
    commands > 0 && commands & (1 << 1) != 0
}
