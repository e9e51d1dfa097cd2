// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request slots: where they live, how they are taken and given back. The arena is what a debugger reads; the lists
//! of `matching.rs` only link it.

use queue_layout::{CHUNK_SLOTS, Chunk, Fields, Kind, MAX_CHUNKS, Slot, State};

/// A slot in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u32);

/// All 2^19 request slots are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// Chunked slots that never move; index 0 is never handed out.
#[derive(Debug)]
pub struct Arena {
    chunks: Box<[Option<Box<Chunk>>]>,
    count: u32,
    /// The bitmap word where the last slot was taken or given back: `chunk * words + word`.
    hint: u32,
    live: u32,
}

impl Arena {
    pub(crate) fn new() -> Self {
        let mut arena = Self {
            chunks: (0..MAX_CHUNKS).map(|_| None).collect(),
            count: 0,
            hint: 0,
            live: 0,
        };
        arena.add_chunk();
        if let Some(chunk) = &mut arena.chunks[0] {
            chunk.occupied[0] = 1;
        }
        arena
    }

    /// What a slot says.
    #[inline(always)]
    #[must_use]
    pub fn fields(&self, id: RequestId) -> &Fields {
        let chunk = self.chunks[chunk_of(id)]
            .as_ref()
            .expect("ids come from this arena");
        chunk.slots[slot_of(id)].fields()
    }

    /// The slot that a token names, if the token is not stale and the slot is in use.
    #[must_use]
    pub fn find(&self, token: u32) -> Option<RequestId> {
        let id = RequestId(token & INDEX_MASK);
        if token >> (INDEX_BITS + 8) != 0 || chunk_of(id) >= self.count as usize {
            return None;
        }
        let fields = self.fields(id);
        let current = fields.state != State::Free && fields.generation == generation_of(token);
        current.then_some(id)
    }

    /// The token of a slot: `generation << 19 | index`.
    #[inline(always)]
    #[must_use]
    pub fn token(&self, id: RequestId) -> u32 {
        id.0 | u32::from(self.fields(id).generation) << INDEX_BITS
    }

    /// Slots in use.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Address of the chunk table, for the debugger's anchor.
    #[must_use]
    pub fn chunk_table(&self) -> *const () {
        self.chunks.as_ptr().cast()
    }

    /// All slots in use, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        (1..self.count * CHUNK_SLOTS_U32)
            .map(RequestId)
            .filter(|id| self.fields(*id).state != State::Free)
    }

    /// A slot, if the word of the bitmap that was used last has one.
    #[inline(always)]
    pub(crate) fn take_at_hand(&mut self) -> Option<RequestId> {
        let (chunk, word) = (self.hint / WORDS, self.hint % WORDS);
        let occupied = self.word(chunk, word);
        if *occupied == u64::MAX {
            return None;
        }
        let bit = occupied.trailing_ones();
        *occupied |= 1 << bit;
        self.live += 1;
        Some(RequestId(chunk * CHUNK_SLOTS_U32 + word * 64 + bit))
    }

    #[inline(always)]
    pub(crate) fn take(&mut self) -> Result<RequestId, Exhausted> {
        match self.take_at_hand() {
            Some(id) => Ok(id),
            None => self.take_elsewhere(),
        }
    }

    /// Gives a slot back; its generation moves on, so that old handles and tokens no longer name it.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, id: RequestId) {
        self.change(id, |fields| {
            fields.state = State::Free;
            fields.kind = Kind::None;
            fields.flags = 0;
            fields.generation = fields.generation.wrapping_add(1);
        });
        let (chunk, word) = (id.0 / CHUNK_SLOTS_U32, id.0 % CHUNK_SLOTS_U32 / 64);
        *self.word(chunk, word) &= !(1 << (id.0 % 64));
        self.hint = chunk * WORDS + word;
        self.live -= 1;
    }

    #[inline(always)]
    pub(crate) fn change<R>(&mut self, id: RequestId, change: impl FnOnce(&mut Fields) -> R) -> R {
        self.slot(id).change(change)
    }

    /// Access to links and scratch words only.
    #[inline(always)]
    pub(crate) fn private(&mut self, id: RequestId) -> &mut Fields {
        self.slot(id).private()
    }

    #[inline(always)]
    fn slot(&mut self, id: RequestId) -> &mut Slot {
        let chunk = self.chunks[chunk_of(id)]
            .as_mut()
            .expect("ids come from this arena");
        &mut chunk.slots[slot_of(id)]
    }

    #[inline(always)]
    fn word(&mut self, chunk: u32, word: u32) -> &mut u64 {
        let chunk = self.chunks[chunk as usize]
            .as_mut()
            .expect("the hint is in a chunk");
        &mut chunk.occupied[word as usize]
    }

    #[cold]
    #[inline(never)]
    fn take_elsewhere(&mut self) -> Result<RequestId, Exhausted> {
        let free = (0..self.count * WORDS).find(|&w| *self.word(w / WORDS, w % WORDS) != u64::MAX);
        match free {
            Some(word) => self.hint = word,
            None if (self.count as usize) < MAX_CHUNKS => {
                self.hint = self.count * WORDS;
                self.add_chunk();
            }
            None => return Err(Exhausted),
        }
        self.take()
    }

    fn add_chunk(&mut self) {
        self.chunks[self.count as usize] = Some(Box::default());
        self.count += 1;
    }
}

/// Bits of the index in a token and in a request handle.
pub(crate) const INDEX_BITS: u32 = 19;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
#[allow(clippy::cast_possible_truncation, reason = "a small constant")]
const CHUNK_SLOTS_U32: u32 = CHUNK_SLOTS as u32;
const WORDS: u32 = CHUNK_SLOTS_U32 / 64;

#[inline(always)]
fn chunk_of(id: RequestId) -> usize {
    (id.0 / CHUNK_SLOTS_U32) as usize
}

#[inline(always)]
fn slot_of(id: RequestId) -> usize {
    (id.0 % CHUNK_SLOTS_U32) as usize
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the eight bits above the index"
)]
fn generation_of(token: u32) -> u8 {
    (token >> INDEX_BITS) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_distinct_and_come_back() {
        let mut arena = Arena::new();
        let ids: Vec<_> = (0..1000).map(|_| arena.take().unwrap()).collect();
        let mut sorted: Vec<_> = ids.iter().map(|id| id.0).collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.len(), sorted[0]), (1000, 1));
        for id in &ids {
            arena.change(*id, |fields| fields.state = State::Posted);
            arena.give_back(*id);
        }
        assert_eq!(arena.live(), 0);
        assert!(arena.take().unwrap().0 <= 1000);
    }

    #[test]
    fn a_stale_token_finds_nothing() {
        let mut arena = Arena::new();
        let id = arena.take().unwrap();
        arena.change(id, |fields| fields.state = State::Posted);
        let token = arena.token(id);
        assert_eq!(arena.find(token), Some(id));
        arena.give_back(id);
        assert_eq!(arena.find(token), None);
        for wild in [0, u32::MAX, 1 << 18, 1 << 27] {
            assert_eq!(arena.find(wild), None);
        }
    }

    #[test]
    fn exhaustion_is_an_answer() {
        let mut arena = Arena::new();
        let mut taken = 0;
        while arena.take().is_ok() {
            taken += 1;
        }
        assert_eq!(taken, (1 << 19) - 1);
    }
}
