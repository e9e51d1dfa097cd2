// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests rings, pools, bells and offers between two real processes: this program and a second copy of it.
#![cfg(not(loom))]
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test code may panic; its sizes are small"
)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use ring::{
    ChunkClaim, Consumer, Frame, Head, POOL_BUFFER_BYTES, Pool, Producer, Segment, SegmentHead,
    Wake, segment_bytes,
};

/// One process's view of the segment: the test's own process is rank 0, the second process is rank 1.
struct Side {
    segment: Segment,
    me: u32,
    producer: Producer<'static>,
    consumer: Consumer<'static>,
    pool: Pool<'static>,
}

impl Side {
    fn new(segment: Segment, me: u32) -> Self {
        let other = 1 - me;
        Self {
            segment,
            me,
            producer: Producer::new(segment.ring(other, me), segment.pair_line(other, me)),
            consumer: Consumer::new(segment.ring(me, other), segment.pair_line(me, other)),
            pool: Pool::new(segment.pool_side(me)),
        }
    }

    fn push(&mut self, kind: u8, word: u64, body: &[u64]) {
        let head = Head {
            kind,
            len: 0,
            flags: !u16::from(kind),
            word,
        };
        let limit = limit();
        while self.producer.push(head, body).is_err() {
            assert!(Instant::now() < limit, "no credit comes back");
            std::thread::yield_now();
        }
    }

    fn pop(&mut self) -> Frame {
        let limit = limit();
        loop {
            if let Some(frame) = self.consumer.pop() {
                return frame;
            }
            assert!(Instant::now() < limit, "no frame comes");
            std::thread::yield_now();
        }
    }
}

fn limit() -> Instant {
    Instant::now() + Duration::from_secs(160)
}

/// Runs `here` in this process and the scene `name` in a second process, on one segment.
fn with_child(name: &str, here: impl FnOnce(&mut Side, &mut Child)) {
    let file = segment_file();
    let segment = map(&file);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_side", "--exact", "--quiet"])
        .env(CHILD, format!("{name} {}", file.as_raw_fd()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    here(&mut Side::new(segment, 0), &mut child);
    let status = child.wait().unwrap();
    assert!(
        status.success() || name == "dies",
        "the other side ended with {status}"
    );
}

#[test]
fn child_side() {
    let Ok(value) = std::env::var(CHILD) else {
        return;
    };
    let (name, number) = value.split_once(' ').unwrap();
    // SAFETY: the parent has left this descriptor open for this process, and nothing else in this process owns it.
    let file = unsafe { OwnedFd::from_raw_fd(number.parse().unwrap()) };
    let mut side = Side::new(map(&file), 1);
    match name {
        "echoes" => echo(&mut side),
        "floods" => flood(&mut side, FLOOD),
        "dies" => die_in_a_flood(&mut side),
        "lends" => lend(&mut side),
        "helps" => help(&mut side),
        "sleeps" => doze(&mut side),
        _ => panic!("no scene is called {name}"),
    }
}

#[test]
fn frames_round_trip_between_processes() {
    with_child("echoes", |side, _| {
        for number in 0..5000u64 {
            side.push(3, number, &[number, !number, number << 7, 4, 5, 6]);
            let frame = side.pop();
            assert_eq!((frame.head.kind, frame.head.word), (3, number));
            assert_eq!(frame.head.flags, !3);
            assert_eq!(frame.body, [number, !number, number << 7, 4, 5, 6]);
        }
        side.push(0, 0, &[]);
    });
}

fn echo(side: &mut Side) {
    loop {
        let frame = side.pop();
        if frame.head.kind == 0 {
            return;
        }
        side.push(frame.head.kind, frame.head.word, &frame.body);
    }
}

const FLOOD: u64 = 200_000;

#[test]
fn a_flood_arrives_in_order_and_whole() {
    with_child("floods", |side, _| {
        for number in 0..FLOOD {
            let frame = side.pop();
            assert_eq!(frame.head.word, number);
            assert!(frame.body.iter().all(|word| *word == number * 31));
        }
        assert_eq!(side.consumer.pop(), None);
    });
}

fn flood(side: &mut Side, frames: u64) {
    for number in 0..frames {
        side.push(1, number, &[number * 31; 6]);
    }
}

#[test]
fn frames_published_by_a_killed_process_are_intact() {
    for pause_us in [0, 300, 1000, 3000, 9000] {
        with_child("dies", |side, child| {
            let first = side.pop();
            assert_eq!(first.head.word, 0);
            std::thread::sleep(Duration::from_micros(pause_us));
            let mut next = 1;
            let mut take = |side: &mut Side| {
                while let Some(frame) = side.consumer.pop() {
                    assert_eq!(frame.head.word, next);
                    assert!(frame.body.iter().all(|word| *word == next * 31));
                    next += 1;
                }
            };
            take(side);
            child.kill().unwrap();
            child.wait().unwrap();
            take(side);
        });
    }
}

fn die_in_a_flood(side: &mut Side) {
    flood(side, u64::MAX >> 8);
}

#[test]
fn pool_buffers_carry_bodies_and_come_back() {
    with_child("lends", |side, _| {
        for turn in 0..500u64 {
            let frame = side.pop();
            let [index, bytes, ..] = frame.body;
            let mut body = vec![0u8; bytes as usize];
            let buffer = side.segment.pool_buffer(1, index as u32).unwrap();
            buffer.drain(&mut body);
            assert_eq!(bytes, lent_bytes(turn));
            assert!(body.iter().all(|byte| *byte == turn as u8), "turn {turn}");
            side.segment.pool_side(1).release(index as u32);
        }
        side.push(0, 0, &[]);
    });
}

/// Fills and sends pool buffers without a pause, so the pool runs out and the sender waits for released buffers.
fn lend(side: &mut Side) {
    for turn in 0..500u64 {
        let limit = limit();
        let index = loop {
            if let Some(index) = side.pool.acquire() {
                break index;
            }
            assert!(Instant::now() < limit, "no buffer comes back");
            std::thread::yield_now();
        };
        let body = vec![turn as u8; lent_bytes(turn) as usize];
        let buffer = side.segment.pool_buffer(side.me, index).unwrap();
        buffer.fill(&body);
        side.push(2, turn, &[index.into(), body.len() as u64]);
    }
    side.pop();
    assert_eq!(side.pool.in_use(), 0);
}

fn lent_bytes(turn: u64) -> u64 {
    1 + turn * 7919 % POOL_BUFFER_BYTES as u64
}

/// Number of chunks of a transfer in the test of offers.
const CHUNKS: u32 = 500;

#[test]
fn two_processes_share_every_chunk_of_an_offer_once() {
    with_child("helps", |side, _| {
        let offer = side.segment.offer(0, 5).unwrap();
        for generation in 1..=40u32 {
            offer.open(generation);
            side.push(4, generation.into(), &[]);
            let mut claimed = [0u8; CHUNKS as usize];
            let mut mine = 0;
            while let ChunkClaim::Chunk(chunk) = offer.claim_front(generation, CHUNKS) {
                claimed[chunk as usize] += 1;
                mine += 1;
                if generation % 2 == 0 {
                    std::thread::yield_now();
                }
            }
            let limit = limit();
            while offer.helped(generation).unwrap().chunks + mine < CHUNKS {
                assert!(Instant::now() < limit, "the helper does not finish");
                std::thread::yield_now();
            }
            // Waits until the helper has reported all its chunks.
            loop {
                let frame = side.pop();
                if frame.head.kind == 5 {
                    break;
                }
                claimed[frame.head.word as usize] += 1;
            }
            assert!(
                claimed.iter().all(|times| *times == 1),
                "generation {generation}"
            );
        }
        side.push(0, 0, &[]);
    });
}

fn help(side: &mut Side) {
    let offer = side.segment.offer(0, 5).unwrap();
    loop {
        let frame = side.pop();
        if frame.head.kind == 0 {
            return;
        }
        let generation = frame.head.word as u32;
        let mut mine = Vec::new();
        while let ChunkClaim::Chunk(chunk) = offer.claim_back(generation, CHUNKS) {
            mine.push(chunk);
            offer.finish_back(false);
        }
        for chunk in mine {
            side.push(4, chunk.into(), &[]);
        }
        side.push(5, 0, &[]);
    }
}

/// R3 and R5: a process that announces its sleep (`Bell::doze`) never stays asleep with a frame in its ring, and each
/// claimed wake-up ends exactly one sleep.
#[test]
fn sleeping_process_is_woken_once_per_sleep() {
    with_child("sleeps", |side, _| {
        let bell = side.segment.bell(1);
        let mut claimed = 0u64;
        for number in 0..SLEEPS {
            side.push(6, number, &[]);
            claimed += u64::from(bell.ring(0) == Wake::Sleeper);
            assert_eq!(side.pop().head.word, number);
        }
        side.push(0, 0, &[]);
        assert_eq!(side.pop().head.word, claimed, "claims that ended no sleep");
        assert!(claimed > 0);
    });
}

fn doze(side: &mut Side) {
    let bell = side.segment.bell(1);
    let mut woken = 0u64;
    for number in 0..SLEEPS {
        let frame = loop {
            bell.doze();
            let seen = bell.take_pending(0) != 0 || side.consumer.is_ready();
            let limit = limit();
            // Instead of sleeping, this process waits until its wake-up is claimed.
            while !seen && !bell.was_woken() {
                assert!(Instant::now() < limit, "asleep with a frame in the ring");
                std::thread::yield_now();
            }
            // If the other process has claimed the wake-up, this exchange fails and is counted; otherwise it ends the
            // announced sleep.
            woken += u64::from(bell.wake() == Wake::Nothing);
            if let Some(frame) = side.consumer.pop() {
                break frame;
            }
        };
        assert_eq!(frame.head.word, number);
        side.push(6, number, &[]);
    }
    side.pop();
    side.push(0, woken, &[]);
}

const SLEEPS: u64 = 3000;

fn segment_file() -> OwnedFd {
    // SAFETY: the name ends with a zero byte and is valid during the call.
    let number = unsafe { libc::memfd_create(c"ring".as_ptr(), 0) };
    assert!(number >= 0);
    // SAFETY: the descriptor was just made and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    let bytes = libc::off_t::try_from(segment_bytes(2)).unwrap();
    // SAFETY: an open descriptor and a number.
    assert_eq!(unsafe { libc::ftruncate(number, bytes) }, 0);
    let head = HEAD.to_bytes();
    // SAFETY: `head` is readable for its length.
    let written = unsafe { libc::pwrite(number, head.as_ptr().cast(), head.len(), 0) };
    assert_eq!(written, 24);
    file
}

fn map(file: &OwnedFd) -> Segment {
    let bytes = segment_bytes(2);
    // SAFETY: a new shared mapping at an address of the system's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: just mapped with this length, readable and writable; it is never unmapped, and the file is not shortened.
    unsafe { Segment::attach(NonNull::new(base.cast()).unwrap(), bytes, HEAD) }.unwrap()
}

const HEAD: SegmentHead = SegmentHead {
    job: 11,
    local_size: 2,
};
const CHILD: &str = "RMPI_TEST_CHILD";
