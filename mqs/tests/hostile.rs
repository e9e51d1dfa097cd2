// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets with arbitrary memory contents: no crash, no access out of bounds, and no endless loop.
//!
//! # Safety
//! See `fake`.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "random numbers are cut")]

mod fake;

use fake::{Fake, Model, PATIENCE, Shown};
use queue_layout::{
    CALL_LIST, CALL_MESSAGE, CALL_REQUESTS, CallFacts, RequestKind, RequestState, TypeFacts,
};

/// Number of images; the environment variable `RMPI_MQS_IMAGES` sets another number, for long runs.
const IMAGES: u64 = 20_000;
/// Limit of reads for one image: detects loops.
const MOST_READS: u64 = 1 << 16;

#[test]
fn mqs_089_corrupt_memory_is_answered_and_never_hangs() {
    let images = std::env::var("RMPI_MQS_IMAGES").ok();
    let images = images.and_then(|text| text.parse().ok()).unwrap_or(IMAGES);
    let workers = std::thread::available_parallelism().unwrap().get() as u64;
    let model = model();
    // Addresses stay valid; each worker has its own copy of the memory.
    let good = model.process();
    let pieces = good.memory.clone();
    let pieces = &pieces;
    let share = |worker: u64| {
        let seeds = (1..=images).filter(|seed| seed % workers == worker);
        seeds.filter(|seed| try_image(pieces, *seed)).count() as u64
    };
    let answered: u64 = std::thread::scope(|scope| {
        let start = |worker| scope.spawn(move || share(worker));
        let started: Vec<_> = (0..workers).map(start).collect();
        started.into_iter().map(|it| it.join().unwrap()).sum()
    });
    let refused = images - answered;
    println!("{answered} images were answered, {refused} refused");
    assert!(
        answered > images / 10 && refused > images / 10,
        "{answered} of {images} answered"
    );
}

/// Whether an image can be listed. On a failure the image's number is printed.
fn try_image(pieces: &[(u64, Vec<u8>)], seed: u64) -> bool {
    let report = SeedReport(seed);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut fake = Fake::of(pieces.to_vec());
    spoil(&mut fake, pieces, &mut random);
    if random.below(16) == 0 {
        PATIENCE.set(random.below(8) as i64);
    }
    let attached = fake.attach().0;
    let mut answered = false;
    if attached.len() == 4
        && attached[3] == 0
        && let Ok(all) = fake.list()
    {
        all.iter().for_each(check);
        answered = true;
    }
    PATIENCE.set(i64::MAX);
    assert!(fake.reads() < MOST_READS, "{} reads", fake.reads());
    fake.detach();
    core::mem::forget(report);
    answered
}

/// Prints the image's number when a test unwinds.
struct SeedReport(u64);

impl Drop for SeedReport {
    fn drop(&mut self) {
        eprintln!("image {}", self.0);
    }
}

/// For any contents: texts are terminated, and enumerated values are in range.
fn check(shown: &Shown) {
    assert!(shown.comm.name.contains(&0));
    assert_eq!(usize::try_from(shown.comm.size), Ok(shown.ranks.len()));
    for it in shown.queues.iter().flatten() {
        assert!((0..=2).contains(&it.status));
        assert!((0..=1).contains(&it.tag_wild) && (0..=1).contains(&it.system_buffer));
        assert!(it.extra_text.iter().all(|line| line.contains(&0)));
        assert!((-1..shown.comm.size).contains(&it.desired_local_rank));
        assert!((-1..shown.comm.size).contains(&it.actual_local_rank));
    }
}

/// Handle of a datatype of the program's.
const FACE: u32 = 0x0700_0001;

fn model() -> Model {
    let mut model = Model::new();
    model.comm(12, 0, &[1, 3], None);
    model.comm(16, 1, &[3, 1], Some(&[2, 0]));
    for number in 0..40 {
        model.slot(|it| {
            let kinds = [
                RequestKind::Send,
                RequestKind::Receive,
                RequestKind::Unexpected,
            ];
            let states = [
                RequestState::Announced,
                RequestState::Posted,
                RequestState::Kept,
            ];
            (it.kind, it.state) = (kinds[number % 3], states[number % 3]);
            (it.peer, it.tag) = (number as u32 % 4, number as i32);
            it.token = 1 + number as u32;
        });
        model.datatype([0, fake::INT, fake::DOUBLE, FACE][number % 4]);
    }
    for protocol in [2, 999] {
        model.slot(|it| {
            (it.kind, it.state, it.protocol) = (RequestKind::Other, RequestState::Moving, protocol);
            (it.peer, it.tag, it.token) = (3, 9, 70);
        });
    }
    model.type_rows[0].fill(&TypeFacts {
        handle: FACE,
        committed: true,
        bytes: 24,
        extent: 80,
        name: "face",
    });
    for waits_for in [CALL_REQUESTS, CALL_LIST, CALL_MESSAGE] {
        let facts = CallFacts {
            waits_for,
            function: "MPI_Waitall",
            thread: 77,
            context: 12,
            envelope: (2, 5),
            tokens: [2, 3],
            // The list of handles is at the address of the layout table, which is readable memory.
            list: (queue_layout::LAYOUT.as_ptr().addr() as u64, 20, 0),
            bytes: 8,
        };
        model.calls.begin(&facts).unwrap();
    }
    model
}

/// Changes a few bytes, preferably in important fields, and sometimes whole pieces.
fn spoil(fake: &mut Fake, good: &[(u64, Vec<u8>)], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let piece = match random.below(3) {
            0 => 0,
            _ => random.below(fake.memory.len() as u64) as usize,
        };
        let (address, bytes) = &mut fake.memory[piece];
        if bytes.is_empty() {
            continue;
        }
        // The first slots and rows are those in use.
        let reach = (bytes.len() as u64).min(8 * 1024);
        let at = random.below(reach) as usize;
        match random.below(24) {
            0 => bytes
                .iter_mut()
                .for_each(|byte| *byte = random.next() as u8),
            1 => bytes.fill(0xff * random.below(2) as u8),
            // Copies the beginning of another piece: records of one kind are then read as records of another kind.
            2 => {
                let other = &good[random.below(good.len() as u64) as usize].1;
                put(bytes, at & !7, other);
            }
            // Moves the piece to the end of the address space, or elsewhere.
            3 => *address = random.word(good).wrapping_sub(64),
            4 | 5 => bytes.truncate(at),
            6..=11 => bytes[at] ^= 1 << random.below(8),
            12..=14 => bytes[at..]
                .iter_mut()
                .take(64)
                .for_each(|byte| *byte = random.next() as u8),
            15..=19 => put(bytes, at & !7, &random.word(good).to_le_bytes()),
            _ => put(bytes, at & !3, &(random.word(good) as u32).to_le_bytes()),
        }
    }
}

fn put(bytes: &mut [u8], at: usize, word: &[u8]) {
    for (place, byte) in bytes.iter_mut().skip(at).zip(word) {
        *place = *byte;
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    /// A boundary value, another object's address, or a random number.
    fn word(&mut self, good: &[(u64, Vec<u8>)]) -> u64 {
        let known = [
            0,
            1,
            2,
            3,
            4,
            64,
            4096,
            0x7fff_ffff,
            0x8000_0000,
            u32::MAX.into(),
            1 << 63,
            u64::MAX,
        ];
        match self.below(3) {
            0 => known[self.below(known.len() as u64) as usize],
            1 => {
                let piece = self.below(good.len() as u64) as usize;
                good[piece].0.wrapping_add(8 * self.below(40))
            }
            _ => self.next(),
        }
    }
}
