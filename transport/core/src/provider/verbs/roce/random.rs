// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers for queue pair numbers and keys, many from one system call.

use crate::wait;

/// Unused random numbers.
#[derive(Debug, Default)]
pub(super) struct RandomPool(Vec<u64>);

impl RandomPool {
    /// A number from 1 to `most` that is not `last`. `most` is at least 2.
    pub(super) fn other_than(&mut self, last: u32, most: u32) -> u32 {
        loop {
            if self.0.is_empty() {
                self.0.resize(WORDS, 0);
                wait::random_words(&mut self.0);
            }
            let word = self.0.pop().unwrap_or_default();
            let number = 1 + u32::try_from(word % u64::from(most)).unwrap_or(0);
            if number != last {
                return number;
            }
        }
    }
}

/// Numbers requested at a time: the system returns up to 256 bytes in one call.
const WORDS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_in_range_and_differ_from_the_last() {
        let mut random = RandomPool::default();
        let mut last = 0;
        for _ in 0..200 {
            let number = random.other_than(last, 2);
            assert!((1..=2).contains(&number) && number != last);
            last = number;
        }
    }
}
