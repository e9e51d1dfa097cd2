// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers from a seed, the bytes of messages, and the loop over seeds.

use std::sync::OnceLock;

/// Calls `run` for the seeds from `first` on: `seeds` times the value of RMPI_TEST_SEEDS of them, or only for the seed
/// in RMPI_TEST_SEED. If a seed fails, prints it and the command that runs it again. `test`: the name of the test.
pub fn for_seeds(test: &'static str, first: u64, seeds: u64, mut run: impl FnMut(u64)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>());
    let only = number("RMPI_TEST_SEED").map(|seed| seed.expect("RMPI_TEST_SEED is a number"));
    let factor = number("RMPI_TEST_SEEDS").map_or(1, |f| f.expect("RMPI_TEST_SEEDS is a number"));
    let range = only.map_or(first..first + seeds * factor, |seed| seed..seed + 1);
    for seed in range {
        let _failing = Failing { test, seed };
        run(seed);
    }
}

struct Failing {
    test: &'static str,
    seed: u64,
}

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!(
                "failing seed; again: RMPI_TEST_SEED={seed} cargo test -p runtime --test sim {test}"
            );
        }
    }
}

/// A small generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.index(at + 1));
        }
    }
}

/// The bytes of the message with this name. With high probability, messages with different names differ even in their
/// first bytes.
pub fn content(name: u64, bytes: u64) -> &'static [u8] {
    static POOL: OnceLock<Vec<u8>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let mut random = Random(77);
        (0..POOL_WORDS)
            .flat_map(|_| random.next().to_ne_bytes())
            .collect()
    });
    let room = pool.len() as u64 - bytes;
    let start = Random(name).below(room) as usize;
    &pool[start..start + bytes as usize]
}

const POOL_WORDS: usize = 1 << 17;
