// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every interleaving that matters, in models of two or three threads (`cargo xtask test model`).
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;
use ring::{
    Bell, Claim, Consumer, Full, Head, Offer, PairLine, Pool, PoolSide, Producer, Ring, Wake,
};

struct Node {
    ring: Ring,
    line: PairLine,
    bell: Bell,
    pool: PoolSide,
    /// What a futex wake leaves behind, so that a model can tell "slept for ever" from "was woken".
    woken: AtomicU32,
}

fn node() -> Arc<Node> {
    Arc::new(Node {
        ring: Ring::new(),
        line: PairLine::new(),
        bell: Bell::new(),
        pool: PoolSide::new(),
        woken: AtomicU32::new(0),
    })
}

fn head(kind: u8) -> Head {
    Head {
        kind,
        len: 8,
        flags: 0,
        word: u64::from(kind) + 100,
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// R1, R2: three frames through two slots arrive in order and whole; credit makes room (PAIR slot-full, slot-free).
#[test]
fn publish_consume_and_credit_return() {
    model(|| {
        let node = node();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                for i in 1..=3u8 {
                    while tx.push(head(i), &[u64::from(i) * 11]) == Err(Full) {
                        thread::yield_now();
                    }
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        for i in 1..=3u8 {
            let frame = loop {
                match rx.pop() {
                    Some(frame) => break frame,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((frame.head, frame.body[0]), (head(i), u64::from(i) * 11));
        }
        assert_eq!(rx.pop(), None);
        sender.join().unwrap();
    });
}

/// R3, R5: a receiver that announces its sleep, looks once more and then sleeps is always woken.
#[test]
fn a_sleeper_is_woken_or_sees_the_frame() {
    model(|| {
        let node = node();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                if !tx.push(head(1), &[1]).unwrap() && node.bell.ring(0) == Wake::Sleeper {
                    node.woken.store(1, Ordering::SeqCst);
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        node.bell.doze();
        let seen = node.bell.take_pending(0) != 0 && rx.pop().is_some();
        sender.join().unwrap();
        if !seen {
            assert!(node.bell.was_woken(), "asleep with a frame in the ring");
            assert_eq!(
                node.woken.load(Ordering::SeqCst),
                1,
                "nobody made the wake-up call"
            );
            node.bell.rise();
            assert_eq!(node.bell.take_pending(0), 1);
            assert!(rx.pop().is_some());
        }
    });
}

/// R5: two senders, one sleeper, exactly one wake-up call; both frames are found.
#[test]
fn two_ringers_make_one_wake_up() {
    model(|| {
        let bell = Arc::new(Bell::new());
        bell.doze();
        let ringers: Vec<_> = (0..2)
            .map(|sender| {
                let bell = bell.clone();
                thread::spawn(move || u32::from(bell.ring(sender) == Wake::Sleeper))
            })
            .collect();
        let calls: u32 = ringers.into_iter().map(|r| r.join().unwrap()).sum();
        assert_eq!(calls, 1);
        assert_eq!(bell.take_pending(0), 0b11);
    });
}

/// R3 with attention (the hot bit): the sender spares the bell only if the receiver is sure to look again
/// (PAIR attention; the heavy fence is a system call in life, a full fence here).
#[test]
fn withdrawn_attention_never_hides_a_frame() {
    model(|| {
        let node = node();
        let mut rx = Consumer::new(&node.ring, &node.line);
        rx.look();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                let watched = tx.push(head(1), &[1]).unwrap();
                if !watched && node.bell.ring(0) == Wake::Sleeper {
                    node.woken.store(1, Ordering::SeqCst);
                }
            })
        };
        rx.look_away();
        fence(Ordering::SeqCst);
        let mut seen = rx.pop().is_some();
        if !seen {
            node.bell.doze();
            seen = node.bell.take_pending(0) != 0 && rx.pop().is_some();
        }
        sender.join().unwrap();
        if !seen {
            assert_eq!(
                node.woken.load(Ordering::SeqCst),
                1,
                "asleep with a frame in the ring"
            );
            assert!(rx.pop().is_some());
        }
    });
}

/// The pending bit: a receiver that swaps it to zero and then finds the ring empty is told again.
#[test]
fn a_cleared_pending_bit_comes_back() {
    model(|| {
        let node = node();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                for i in 1..=2u8 {
                    tx.push(head(i), &[0]).unwrap();
                    let _ = node.bell.ring(0);
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        let mut got = 0;
        if node.bell.take_pending(0) != 0 {
            while rx.pop().is_some() {
                got += 1;
            }
        }
        sender.join().unwrap();
        if node.bell.take_pending(0) != 0 {
            while rx.pop().is_some() {
                got += 1;
            }
        }
        assert_eq!(got, 2, "a frame lies in the ring and no bit says so");
    });
}

/// Death of a sender at any step: what it published arrives, what it did not does not, and nobody waits for it.
#[test]
fn a_sender_that_dies_leaves_the_ring_usable() {
    for steps in 0..=2u8 {
        model(move || {
            let node = node();
            let sender = {
                let node = node.clone();
                thread::spawn(move || {
                    let mut tx = Producer::new(&node.ring, &node.line);
                    for i in 1..=steps {
                        // The last one dies between publication and bell.
                        let watched = tx.push(head(i), &[0]).unwrap();
                        if i < steps && !watched {
                            let _ = node.bell.ring(0);
                        }
                    }
                })
            };
            let mut rx = Consumer::new(&node.ring, &node.line);
            let mut got = u8::from(rx.pop().is_some());
            sender.join().unwrap();
            while rx.pop().is_some() {
                got += 1;
            }
            assert_eq!(got, steps);
        });
    }
}

/// Pool: a buffer is written again only after the receiver has copied it out (PAIR pool-free).
#[test]
fn a_pool_buffer_is_not_reused_early() {
    model(|| {
        let node = node();
        let bytes = Arc::new(loom::cell::UnsafeCell::new(0u32));
        let mut pool = Pool::new(&node.pool);
        let index = pool.acquire().unwrap();
        bytes.with_mut(|cell| {
            // SAFETY: the buffer was just acquired and named to nobody.
            #[allow(unsafe_code)]
            unsafe {
                *cell = 1;
            }
        });
        let receiver = {
            let (node, bytes) = (node.clone(), bytes.clone());
            thread::spawn(move || {
                let copy = bytes.with(|cell| {
                    // SAFETY: the buffer was named to this thread and is not released yet; loom checks it.
                    #[allow(unsafe_code)]
                    unsafe {
                        *cell
                    }
                });
                assert_eq!(copy, 1);
                node.pool.release(index);
            })
        };
        if pool.acquire() == Some(index) {
            bytes.with_mut(|cell| {
                // SAFETY: acquired again, so the receiver has released it; loom checks it.
                #[allow(unsafe_code)]
                unsafe {
                    *cell = 2;
                }
            });
        }
        receiver.join().unwrap();
    });
}

/// Offers: reader and helper never copy the same chunk, every chunk is copied, and the reader sees the helper's bytes
/// (PAIR offer-open, offer-done).
#[test]
fn reader_and_helper_share_every_chunk_once() {
    model(|| {
        let offer = Arc::new(Offer::new());
        let written = Arc::new(AtomicU32::new(0));
        offer.open(1);
        let helper = {
            let (offer, written) = (offer.clone(), written.clone());
            thread::spawn(move || {
                while let Claim::Chunk(chunk) = offer.claim_back(1, 3) {
                    let before = written.load(Ordering::Relaxed);
                    written.store(before | 1 << chunk, Ordering::Relaxed);
                    offer.finish_back(false);
                }
            })
        };
        let (mut mine, mut count) = (0u32, 0);
        while let Claim::Chunk(chunk) = offer.claim_front(1, 3) {
            mine |= 1 << chunk;
            count += 1;
        }
        loop {
            let helped = offer.helped(1).unwrap();
            if helped.chunks + count == 3 {
                break;
            }
            thread::yield_now();
        }
        let theirs = written.load(Ordering::Relaxed);
        assert_eq!((mine | theirs, mine & theirs), (0b111, 0));
        helper.join().unwrap();
    });
}
