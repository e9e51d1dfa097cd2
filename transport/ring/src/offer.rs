// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares one copy between two processes: the reader of a large message copies chunks from the front, and the process
//! that owns the data (the helper) copies chunks from the back, until they meet.

use crate::sync::{AtomicU64, Ordering};

/// Maximum number of offers that each rank can have open as a reader.
pub const OFFERS: u32 = 64;

/// Maximum number of chunks of one transfer.
pub const MAX_CHUNKS: u32 = 0x7fff;

/// One transfer that the reader offers to share, in its own cache line in the reader's region. All words 0: no transfer
/// is open.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub struct Offer {
    /// `generation << 32 | front << 16 | back`: the numbers of chunks claimed from the front and from the back.
    claim: AtomicU64,
    /// `generation << 32 | FAILED | count`: the number of chunks that the helper has finished, and whether one failed.
    helped: AtomicU64,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkClaim {
    /// The caller has claimed this chunk.
    Chunk(u32),
    /// All chunks are claimed.
    Nothing,
    /// The words are inconsistent with this generation: the offer is closed, or was overwritten by a faulty process.
    Broken,
}

/// The progress of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helped {
    /// Number of chunks that the helper has finished, including those that it could not write.
    pub chunks: u32,
    /// Whether the helper could not write at least one of these chunks.
    pub failed: bool,
}

impl Offer {
    /// Reader: opens the offer for a new generation. The reader sends its request to the helper afterwards.
    pub fn open(&self, generation: u32) {
        self.helped
            .store(u64::from(generation) << 32, Ordering::Relaxed);
        // PAIR(offer-open): Offer::claim loads with Acquire.
        self.claim
            .store(u64::from(generation) << 32, Ordering::Release);
    }

    /// Reader: claims the next chunk of `chunks` from the front.
    pub fn claim_front(&self, generation: u32, chunks: u32) -> ChunkClaim {
        self.claim(generation, chunks, 1 << 16, |front, _| front)
    }

    /// Helper: claims the next chunk of `chunks` from the back.
    pub fn claim_back(&self, generation: u32, chunks: u32) -> ChunkClaim {
        self.claim(generation, chunks, 1, |_, back| chunks - 1 - back)
    }

    /// Helper: reports a claimed chunk as written, or as failed.
    pub fn finish_back(&self, failed: bool) {
        if failed {
            self.helped.fetch_or(FAILED, Ordering::Relaxed);
        }
        // PAIR(offer-done): Offer::helped loads with Acquire.
        self.helped.fetch_add(1, Ordering::Release);
    }

    /// Reader: the progress of the helper; `None`: the shared word is not of this generation.
    #[must_use]
    pub fn helped(&self, generation: u32) -> Option<Helped> {
        // PAIR(offer-done): Offer::finish_back adds with Release.
        let word = self.helped.load(Ordering::Acquire);
        (high(word) == generation).then(|| Helped {
            chunks: low(word) & 0xffff,
            failed: word & FAILED != 0,
        })
    }

    fn claim(
        &self,
        generation: u32,
        chunks: u32,
        step: u64,
        index: impl Fn(u32, u32) -> u32,
    ) -> ChunkClaim {
        // PAIR(offer-open): Offer::open stores with Release.
        let mut word = self.claim.load(Ordering::Acquire);
        loop {
            let (front, back) = (low(word) >> 16, low(word) & 0xffff);
            if high(word) != generation || front + back > chunks {
                return ChunkClaim::Broken;
            }
            if front + back == chunks {
                return ChunkClaim::Nothing;
            }
            // Relaxed: the load above has seen this generation, and so synchronizes with the opening of the offer.
            let taken = self.claim.compare_exchange(
                word,
                word + step,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return ChunkClaim::Chunk(index(front, back)),
                Err(now) => word = now,
            }
        }
    }

    /// A closed offer in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        Self {
            claim: AtomicU64::new(0),
            helped: AtomicU64::new(0),
        }
    }
}

impl Default for Offer {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is cut out of the word"
)]
fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const FAILED: u64 = 1 << 31;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn front_and_back_claim_every_chunk_once() {
        let offer = Offer::new();
        offer.open(9);
        let mut claimed = Vec::new();
        for turn in 0..8 {
            let claim = if turn % 3 == 0 {
                offer.claim_back(9, 7)
            } else {
                offer.claim_front(9, 7)
            };
            if let ChunkClaim::Chunk(chunk) = claim {
                claimed.push(chunk);
            }
        }
        claimed.sort_unstable();
        assert_eq!(claimed, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(offer.claim_front(9, 7), ChunkClaim::Nothing);
        assert_eq!(offer.claim_back(8, 7), ChunkClaim::Broken);
        offer.finish_back(false);
        offer.finish_back(true);
        assert_eq!(
            offer.helped(9),
            Some(Helped {
                chunks: 2,
                failed: true
            })
        );
        assert_eq!(offer.helped(10), None);
    }

    #[test]
    fn overwritten_offer_is_reported_broken() {
        let offer = Offer::new();
        for word in [
            u64::MAX,
            5 << 32 | 0xffff_0000,
            5 << 32 | 0xffff,
            5 << 32 | 0x8000_8000,
        ] {
            offer.claim.store(word, Ordering::Relaxed);
            assert_eq!(offer.claim_front(5, 16), ChunkClaim::Broken);
            assert_eq!(offer.claim_back(5, 16), ChunkClaim::Broken);
        }
    }
}
