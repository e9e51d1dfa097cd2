// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reproducible random numbers (SplitMix64).

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `sides - 1`.
    pub(crate) fn below(&mut self, sides: u64) -> u64 {
        self.roll() % sides
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    pub(crate) fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.roll().to_le_bytes()[0]
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.roll().to_le_bytes());
        let mut bytes = words.take(len.div_ceil(8)).collect::<Vec<_>>().concat();
        bytes.truncate(len);
        bytes
    }
}
