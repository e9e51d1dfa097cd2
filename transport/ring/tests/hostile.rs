// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overwrites all words of a segment at random while it is in use, and checks that nothing panics and no index, count
//! or claim leaves its range (R4; "never trusts a value that another process can write").
#![cfg(not(loom))]
#![allow(
    unsafe_code,
    clippy::cast_possible_truncation,
    reason = "test code; its sizes are small"
)]

use std::ptr::NonNull;

use ring::{
    Bell, ChunkClaim, Consumer, Full, Head, OWN_BUFFER, POOL_BUFFERS, Pool, Producer, SLOTS,
    Segment, SegmentHead, segment_bytes,
};

const RANKS: u32 = 2;

/// A segment in private memory, which is never freed.
struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    fn new() -> Self {
        let bytes = segment_bytes(RANKS) as usize;
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).expect("a small constant");
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).expect("memory");
        let memory = Self { base, bytes };
        memory.write(
            0,
            &SegmentHead {
                job: 1,
                local_size: RANKS,
            }
            .to_bytes(),
        );
        memory
    }

    fn attach(&self) -> Segment {
        let head = SegmentHead {
            job: 1,
            local_size: RANKS,
        };
        // SAFETY: `bytes` zeroed bytes at a page-aligned address, never freed.
        unsafe { Segment::attach(self.base, self.bytes as u64, head) }.expect("a good head")
    }

    fn write(&self, offset: usize, content: &[u8]) {
        assert!(offset + content.len() <= self.bytes);
        for (at, byte) in (offset..).zip(content) {
            // SAFETY: the place lies in the memory (asserted).
            let place = unsafe { self.base.add(at) };
            // SAFETY: the memory is writable, and only this thread uses it.
            unsafe { place.write_volatile(*byte) };
        }
    }

    /// Zeroes everything behind the head page.
    fn clear(&self) {
        // SAFETY: the memory is longer than its first page.
        let rest = unsafe { self.base.add(4096) };
        // SAFETY: the rest of the memory is that long and writable, and only this thread uses it.
        unsafe { rest.write_bytes(0, self.bytes - 4096) };
    }

    fn scribble(&self, random: &mut Random) {
        let control = 4096 * (4 + RANKS as usize) + 4096;
        let region = (self.bytes - 4096) / RANKS as usize;
        let place = 4096 + random.below(u64::from(RANKS)) as usize * region;
        let offset = match random.below(4) {
            0 => place + random.below(control as u64) as usize,
            _ => {
                place
                    + 4096 * random.below(control as u64 / 4096) as usize
                    + random.below(200) as usize
            }
        };
        let value = match random.below(4) {
            0 => random.next(),
            1 => u64::MAX,
            2 => random.below(70) << (8 * random.below(8)),
            _ => 0,
        };
        let width = 1 << random.below(4);
        self.write(offset, &value.to_ne_bytes()[..width]);
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[test]
fn garbage_in_a_segment_causes_no_access_outside_it() {
    let memory = Memory::new();
    let segment = memory.attach();
    for seed in 0..400 {
        memory.clear();
        let mut random = Random(seed);
        let mut user = User::new(&segment);
        let pause = 1 + random.below(40);
        for _ in 0..400 {
            user.act(&segment, &mut random);
            if random.below(pause) == 0 {
                memory.scribble(&mut random);
            }
        }
    }
}

/// Uses all structures that ranks 0 and 1 share, from both sides.
struct User {
    producer: Producer<'static>,
    consumer: Consumer<'static>,
    pool: Pool<'static>,
    taken: Vec<u32>,
    unread: u32,
    generation: u32,
}

impl User {
    fn new(segment: &Segment) -> Self {
        Self {
            producer: Producer::new(segment.ring(1, 0), segment.pair_line(1, 0)),
            consumer: Consumer::new(segment.ring(1, 0), segment.pair_line(1, 0)),
            pool: Pool::new(segment.pool_side(0)),
            taken: Vec::new(),
            unread: 0,
            generation: 0,
        }
    }

    fn act(&mut self, segment: &Segment, random: &mut Random) {
        match random.below(10) {
            0..3 => self.push(random),
            3..5 => self.pop(),
            5 => Self::ring(segment.bell(1), random),
            6 => self.borrow(segment, random),
            7 => self.share(segment, random),
            8 => self.consumer.return_credit(),
            _ => Self::introduce(segment),
        }
    }

    fn push(&mut self, random: &mut Random) {
        let head = Head {
            kind: random.next() as u8,
            len: random.next() as u8,
            flags: random.next() as u16,
            word: random.next(),
        };
        let room = self.producer.has_room();
        let body = [random.next(); 6];
        match self.producer.push(head, &body[..random.below(7) as usize]) {
            Ok(_) => self.unread += 1,
            Err(Full) => assert!(!room),
        }
    }

    fn pop(&mut self) {
        let ready = self.consumer.is_ready();
        let before = self.consumer.taken();
        let popped = self.consumer.pop().is_some();
        assert_eq!(popped, ready);
        assert_eq!(
            self.consumer.taken(),
            before.wrapping_add(u32::from(popped))
        );
    }

    fn ring(bell: &Bell, random: &mut Random) {
        let _ = bell.ring(random.below(1024) as u32);
        let _ = bell.take_pending(random.below(16) as usize);
        bell.doze();
        let _ = bell.wake();
        bell.rise();
    }

    fn borrow(&mut self, segment: &Segment, random: &mut Random) {
        let taken = match random.below(2) {
            0 => self.pool.acquire(),
            _ => self.pool.acquire_in_turn(),
        };
        if let Some(index) = taken {
            assert!(index < OWN_BUFFER);
            assert!(segment.pool_buffer(0, index).is_some());
            self.taken.push(index);
        }
        // Whatever the count is, the result is free or not free.
        let _ = self.producer.acquire_own();
        self.consumer.release_own();
        // Indices come from frames, so they can be any number.
        let wild = random.next() as u32 >> random.below(32);
        segment.pool_side(0).release(wild);
        assert!(wild < OWN_BUFFER || segment.pool_buffer(0, wild).is_none());
        if random.below(3) == 0
            && let Some(index) = self.taken.pop()
        {
            segment.pool_side(0).release(index);
        }
        assert!(self.pool.in_use() <= POOL_BUFFERS);
    }

    fn share(&mut self, segment: &Segment, random: &mut Random) {
        let wild = random.next() as u32 >> random.below(32);
        let Some(offer) = segment.offer(0, wild % 70) else {
            assert!(wild % 70 >= 64);
            return;
        };
        let chunks = 1 + random.below(0x7fff) as u32;
        self.generation = self.generation.wrapping_add(1);
        if random.below(2) == 0 {
            offer.open(self.generation);
        }
        for _ in 0..random.below(4) {
            for claim in [
                offer.claim_front(self.generation, chunks),
                offer.claim_back(self.generation, chunks),
            ] {
                assert!(
                    !matches!(claim, ChunkClaim::Chunk(chunk) if chunk >= chunks),
                    "{claim:?}"
                );
            }
            offer.finish_back(random.below(9) == 0);
        }
        if let Some(helped) = offer.helped(self.generation) {
            assert!(helped.chunks <= 0xffff);
        }
    }

    fn introduce(segment: &Segment) {
        let ident = segment.ident(1);
        let _ = (ident.pid(), ident.nonces(), ident.cpus());
        ident.introduce(1, 2, &[3]);
    }
}

/// Whatever credit count the receiver stores, a sender never accepts more than the number of frames that it has sent:
/// one wrong count never lets it push more than [`SLOTS`] frames.
#[test]
fn invalid_credits_never_exceed_used_slots() {
    let memory = Memory::new();
    let segment = memory.attach();
    let mut random = Random(5);
    let line = segment.pair_line(1, 0);
    let mut producer = Producer::new(segment.ring(1, 0), line);
    let head = Head {
        kind: 1,
        len: 0,
        flags: 0,
        word: 0,
    };
    for _ in 0..10_000 {
        let consumed = random.next() as u32 >> random.below(32);
        line.scribble(consumed, random.next() as u32);
        let before = producer.sent();
        let mut pushed = 0;
        while producer.push(head, &[]).is_ok() {
            pushed += 1;
            assert!(pushed <= SLOTS, "a ring has {SLOTS} slots");
        }
        assert_eq!(producer.sent(), before.wrapping_add(pushed));
    }
}
