// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets whose memory holds anything: no crash, no read or write outside what was asked for, and an end.
//!
//! # Safety
//! See `fake`.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "random numbers are cut")]

mod fake;

use fake::{Fake, Model};
use queue_layout::{CALL_LIST, CALL_MESSAGE, CALL_REQUESTS, CallFacts, Kind, State};

/// Images that are tried; `RMPI_MQS_IMAGES` is another number, for long runs.
const IMAGES: u64 = 20_000;

#[test]
fn mqs_089_whatever_the_memory_holds_there_is_an_answer_and_an_end() {
    let images = std::env::var("RMPI_MQS_IMAGES").ok();
    let images = images.and_then(|text| text.parse().ok()).unwrap_or(IMAGES);
    let model = model();
    let good = model.process();
    let (mut answered, mut refused) = (0, 0);
    for seed in 1..=images {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut fake = model.process();
        spoil(&mut fake, &good, &mut random);
        let attached = fake.attach().0;
        match attached.len() == 4 && attached[3] == 0 && fake.list().is_ok() {
            true => answered += 1,
            false => refused += 1,
        }
        fake.detach();
    }
    assert!(
        answered > images / 10 && refused > images / 10,
        "{answered} of {images} answered"
    );
}

fn model() -> Model {
    let mut model = Model::new();
    model.comm(12, 0, &[1, 3], None);
    model.comm(16, 1, &[3, 1], Some(&[2, 0]));
    for number in 0..40 {
        model.slot(|it| {
            let kinds = [Kind::Send, Kind::Receive, Kind::Unexpected];
            let states = [State::Announced, State::Posted, State::Kept];
            (it.kind, it.state) = (kinds[number % 3], states[number % 3]);
            (it.peer, it.tag) = (number as u32 % 4, number as i32);
            it.token = 1 + number as u32;
        });
    }
    for waits_for in [CALL_REQUESTS, CALL_LIST, CALL_MESSAGE] {
        let facts = CallFacts {
            waits_for,
            function: "MPI_Waitall",
            thread: 77,
            context: 12,
            envelope: (2, 5),
            tokens: [2, 3],
            // The list lies where the layout table does.
            list: (queue_layout::LAYOUT.as_ptr().addr() as u64, 20, 0),
        };
        model.calls.begin(&facts).unwrap();
    }
    model
}

/// Changes a few places, more often those from which much depends.
fn spoil(fake: &mut Fake, good: &Fake, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let piece = match random.below(3) {
            0 => 0,
            _ => random.below(fake.memory.len() as u64) as usize,
        };
        let (_, bytes) = &mut fake.memory[piece];
        if bytes.is_empty() {
            continue;
        }
        // The first slots and rows are those in use.
        let reach = (bytes.len() as u64).min(8 * 1024);
        let at = random.below(reach) as usize;
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at..]
                .iter_mut()
                .take(64)
                .for_each(|byte| *byte = random.next() as u8),
            3 => put(bytes, at & !7, &random.word(good).to_le_bytes()),
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

    /// A number that programs trip over, an address of something else, or any.
    fn word(&mut self, good: &Fake) -> u64 {
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
                let piece = self.below(good.memory.len() as u64) as usize;
                good.memory[piece].0.wrapping_add(8 * self.below(40))
            }
            _ => self.next(),
        }
    }
}
