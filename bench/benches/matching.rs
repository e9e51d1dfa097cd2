// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures only the matching in the progress engine: without transport, payload and checks of arguments.
#![allow(
    missing_docs,
    reason = "criterion's macros make functions without docs"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::{
    ArrivedFrame, Config, ContextId, Engine, FrameBody, Output, Peer, Receive, RequestId, Send,
    wire,
};

const CONTEXT: ContextId = ContextId(4);
const TAG: i32 = 7;
const WORD: [u8; 8] = [7; 8];
const BYTES: u64 = WORD.len() as u64;
const SOURCES: u32 = 64;
const MANY: u32 = 1000;

fn engine() -> Engine {
    Engine::new(Config::default(), SOURCES)
}

fn post(engine: &mut Engine, peer: Option<u32>, tag: Option<i32>) -> (RequestId, Option<Output>) {
    let receive = Receive {
        context: CONTEXT,
        peer: peer.map(Peer),
        tag,
        bytes: BYTES,
        buffer: 0x1000,
    };
    engine
        .start_receive(black_box(receive), false)
        .expect("a free request slot")
}

fn arrive(engine: &mut Engine, peer: u32, tag: i32) -> Option<Output> {
    engine.arrive(black_box(ArrivedFrame {
        peer: Peer(peer),
        head: wire::eager(CONTEXT, tag),
        bytes: BYTES,
        words: [0; 6],
    }))
}

/// Releases the completed receive request to which an arrived message was delivered, and returns its id.
fn collect_delivered(engine: &mut Engine, output: Option<Output>) -> RequestId {
    let Some(Output::Deliver { request, .. }) = output else {
        panic!("not delivered but {output:?}");
    };
    assert!(engine.is_complete(request));
    engine.collect(request);
    request
}

/// Stores an unexpected message, as the runtime does.
fn keep(engine: &mut Engine, output: Option<Output>) {
    let Some(Output::Keep { message }) = output else {
        panic!("not kept but {output:?}");
    };
    engine.keep(message, Box::new(WORD));
}

/// Completes a receive whose message had arrived before the receive was posted.
fn collect_kept(engine: &mut Engine, posted: (RequestId, Option<Output>)) {
    let (request, Some(Output::DeliverKept { message, .. })) = posted else {
        panic!("no kept message but {posted:?}");
    };
    black_box(engine.kept_body(message));
    engine.drop_message(message);
    engine.collect(request);
}

/// One message at a time.
fn single(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching/single");
    group.throughput(Throughput::Elements(1));
    let mut sender = engine();
    group.bench_function("send: start, hand over, collect", |b| {
        b.iter(|| send(&mut sender));
    });
    let mut expected = engine();
    group.bench_function("expected: post, arrive, collect", |b| {
        b.iter(|| {
            post(&mut expected, Some(3), Some(TAG));
            let output = arrive(&mut expected, 3, TAG);
            collect_delivered(&mut expected, output)
        });
    });
    let mut unexpected = engine();
    group.bench_function("unexpected: arrive, keep, post, collect", |b| {
        b.iter(|| {
            let output = arrive(&mut unexpected, 3, TAG);
            keep(&mut unexpected, output);
            let posted = post(&mut unexpected, Some(3), Some(TAG));
            collect_kept(&mut unexpected, posted);
        });
    });
    let mut wild = engine();
    group.bench_function("wildcard: post any source and tag, arrive, collect", |b| {
        b.iter(|| {
            post(&mut wild, None, None);
            let output = arrive(&mut wild, 3, TAG);
            collect_delivered(&mut wild, output)
        });
    });
    group.finish();
}

fn send(engine: &mut Engine) {
    let send = Send {
        peer: Peer(3),
        context: CONTEXT,
        tag: TAG,
        bytes: BYTES,
        buffer: 0x1000,
        synchronous: false,
        early: false,
        key: [0; 3],
    };
    let request = engine
        .start_send(black_box(send))
        .expect("a free request slot");
    let peer = engine.next_busy().expect("a frame waits");
    let frame = engine.next_frame(peer).expect("a frame waits");
    assert!(matches!(frame.body, FrameBody::Payload { .. }));
    engine.posted(peer);
    assert!(engine.is_complete(request));
    engine.collect(request);
}

/// A thousand posted receives, or unexpected messages, from 64 sources.
fn many(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching/1000 over 64 sources");
    group.throughput(Throughput::Elements(MANY.into()));
    // All pairs of source and tag are different.
    let forward: Vec<(u32, i32)> = (0..MANY)
        .map(|number| (number % SOURCES, (number / SOURCES).cast_signed()))
        .collect();
    let backward: Vec<(u32, i32)> = forward.iter().rev().copied().collect();
    for (order, arrivals) in [("posted order", &forward), ("reverse order", &backward)] {
        let mut engine = engine();
        group.bench_function(format!("expected, {order}"), |b| {
            b.iter(|| posted_first(&mut engine, &forward, arrivals, Some));
        });
    }
    let mut wild = engine();
    group.bench_function("expected by any source, posted order", |b| {
        b.iter(|| posted_first(&mut wild, &forward, &forward, |_| None));
    });
    for (order, posts) in [("arrival order", &forward), ("reverse order", &backward)] {
        let mut engine = engine();
        group.bench_function(format!("unexpected, {order}"), |b| {
            b.iter(|| arrived_first(&mut engine, &forward, posts));
        });
    }
    group.finish();
}

/// Posts all receives before the first message arrives.
fn posted_first(
    engine: &mut Engine,
    posts: &[(u32, i32)],
    arrivals: &[(u32, i32)],
    source: impl Fn(u32) -> Option<u32>,
) {
    for &(peer, tag) in posts {
        post(engine, source(peer), Some(tag));
    }
    for &(peer, tag) in arrivals {
        let output = arrive(engine, peer, tag);
        collect_delivered(engine, output);
    }
}

/// Posts all receives after all messages have arrived.
fn arrived_first(engine: &mut Engine, arrivals: &[(u32, i32)], posts: &[(u32, i32)]) {
    for &(peer, tag) in arrivals {
        let output = arrive(engine, peer, tag);
        keep(engine, output);
    }
    for &(peer, tag) in posts {
        let posted = post(engine, Some(peer), Some(tag));
        collect_kept(engine, posted);
    }
}

/// One message at a time, while there are a thousand posted receives or unexpected messages with the same source and
/// other tags.
fn behind(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching/behind 1000 of other tags");
    group.throughput(Throughput::Elements(1));
    let ways = [
        ("named", Some(3), Some(TAG)),
        ("any source", None, Some(TAG)),
        ("any tag", Some(3), None),
    ];
    for (name, peer, tag) in ways {
        let mut receives = engine();
        for other in 0..MANY.cast_signed() {
            post(&mut receives, Some(3), Some(1000 + other));
        }
        group.bench_function(format!("expected, {name}: post, arrive, collect"), |b| {
            b.iter(|| {
                post(&mut receives, peer, tag);
                let output = arrive(&mut receives, 3, TAG);
                collect_delivered(&mut receives, output)
            });
        });
    }
    for (name, peer, tag) in &ways[..2] {
        let mut messages = engine();
        for other in 0..MANY.cast_signed() {
            let output = arrive(&mut messages, 3, 1000 + other);
            keep(&mut messages, output);
        }
        group.bench_function(format!("unexpected, {name}: arrive, keep, post"), |b| {
            b.iter(|| {
                let output = arrive(&mut messages, 3, TAG);
                keep(&mut messages, output);
                let posted = post(&mut messages, *peer, *tag);
                collect_kept(&mut messages, posted);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, single, many, behind);
criterion_main!(benches);
