// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures one frame in the shared-memory ring with both ends in one thread: the instructions and checks, without the
//! transfer of the cache line (which `rmpi-bench limits` measures).
#![allow(
    missing_docs,
    reason = "criterion's macros make functions without docs"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ring::{Bell, Consumer, Frame, Head, PairLine, Producer, Ring, SLOTS, Wake};

const HEAD: Head = Head {
    kind: 1,
    len: 8,
    flags: 0,
    word: 42,
};
const SENDER: u32 = 70;
const SENDERS_PER_WORD: u32 = 64;

/// Calls `work` with both ends of a fresh ring.
fn with_ring(work: impl FnOnce(&mut Producer<'_>, &mut Consumer<'_>)) {
    let (ring, line) = (Box::new(Ring::new()), Box::new(PairLine::new()));
    work(
        &mut Producer::new(&ring, &line),
        &mut Consumer::new(&ring, &line),
    );
}

fn take(consumer: &mut Consumer<'_>) -> Frame {
    consumer.pop().expect("a frame that was just pushed")
}

/// The receiver polls the ring, so the sender does not ring the bell (the doorbell).
fn hot(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring/hot");
    group.throughput(Throughput::Elements(1));
    for words in [1, 6] {
        with_ring(|producer, consumer| {
            consumer.begin_polling();
            let body = [7u64; 6];
            group.bench_function(format!("push and pop, {} bytes", words * 8), |b| {
                b.iter(|| {
                    let looked = producer.push(black_box(HEAD), black_box(&body[..words]));
                    assert_eq!(looked, Ok(true));
                    take(consumer)
                });
            });
        });
    }
    with_ring(|producer, consumer| {
        consumer.begin_polling();
        group.throughput(Throughput::Elements(SLOTS.into()));
        group.bench_function("fill and drain", |b| {
            b.iter(|| {
                let pushed = (0..SLOTS).filter(|_| producer.push(HEAD, &[7]).is_ok());
                assert_eq!(pushed.count(), SLOTS as usize);
                for _ in 0..SLOTS {
                    black_box(take(consumer));
                }
            });
        });
    });
    group.throughput(Throughput::Elements(1));
    with_ring(|_, consumer| {
        group.bench_function("a look at an empty ring", |b| {
            b.iter(|| consumer.pop().is_none());
        });
    });
    group.finish();
}

/// The receiver does not poll the ring, so each frame rings the bell.
fn bell(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring/bell");
    group.throughput(Throughput::Elements(1));
    let index = (SENDER / SENDERS_PER_WORD) as usize;
    with_ring(|producer, consumer| {
        let bell = Bell::new();
        group.bench_function("push, ring, find and pop, receiver awake", |b| {
            b.iter(|| {
                assert_eq!(producer.push(black_box(HEAD), &[7]), Ok(false));
                assert_eq!(bell.ring(SENDER), Wake::Nothing);
                assert_ne!(bell.take_pending(index), 0);
                take(consumer)
            });
        });
    });
    with_ring(|producer, consumer| {
        let bell = Bell::new();
        group.bench_function("push, ring, find and pop, receiver dozes", |b| {
            b.iter(|| {
                bell.doze();
                assert_eq!(producer.push(black_box(HEAD), &[7]), Ok(false));
                // The system call that wakes the receiver is not measured.
                assert_eq!(bell.ring(SENDER), Wake::Sleeper);
                assert_ne!(bell.take_pending(index), 0);
                take(consumer)
            });
        });
    });
    let bell = Bell::new();
    group.bench_function("a look at a silent bell, 64 senders", |b| {
        b.iter(|| bell.take_pending(black_box(index)));
    });
    group.finish();
}

criterion_group!(benches, hot, bell);
criterion_main!(benches);
