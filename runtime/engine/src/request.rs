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
    chunks: Box<Table>,
    count: u32,
    /// The bitmap word where the last slot was taken or given back: slots `64 * hint ..`.
    hint: u32,
}

/// A null pointer where there is no chunk yet: what a debugger reads.
type Table = [Option<Box<Chunk>>; MAX_CHUNKS];

impl Arena {
    pub(crate) fn new() -> Self {
        let chunks: Box<Table> = Box::new([const { None }; MAX_CHUNKS]);
        let mut arena = Self {
            chunks,
            count: 0,
            hint: 0,
        };
        arena.add_chunk();
        arena.chunk_mut(RequestId(0)).occupied[0] = 1;
        arena
    }

    /// What a slot says.
    #[inline(always)]
    #[must_use]
    pub fn fields(&self, id: RequestId) -> &Fields {
        self.chunk(id).slots[slot_of(id)].fields()
    }

    /// The slot that a token names, if the token is not stale and the slot is in use.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, token: u32) -> Option<RequestId> {
        let id = RequestId(token & INDEX_MASK);
        let chunk = self.chunks[chunk_of(id)].as_ref()?;
        let fields = chunk.slots[slot_of(id)].fields();
        let current =
            fields.state != State::Free && u32::from(fields.generation) == token >> INDEX_BITS;
        current.then_some(id)
    }

    /// The token of a slot: `generation << 19 | index`.
    #[inline(always)]
    #[must_use]
    pub fn token(&self, id: RequestId) -> u32 {
        token(id, self.fields(id).generation)
    }

    /// Slots in use.
    #[must_use]
    pub fn live(&self) -> u32 {
        let words = self
            .chunks
            .iter()
            .flatten()
            .flat_map(|chunk| chunk.occupied);
        words.map(u64::count_ones).sum::<u32>() - 1
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
    pub(crate) fn take_at_hand(&mut self) -> Option<(RequestId, &mut Slot)> {
        let hint = self.hint;
        let chunk = self.chunk_mut(RequestId(hint * 64));
        let occupied = &mut chunk.occupied[(hint % WORDS) as usize];
        if *occupied == u64::MAX {
            return None;
        }
        let bit = occupied.trailing_ones();
        *occupied |= 1 << bit;
        let id = RequestId(hint * 64 + bit);
        Some((id, &mut chunk.slots[slot_of(id)]))
    }

    #[inline(always)]
    pub(crate) fn take(&mut self) -> Result<RequestId, Exhausted> {
        match self.take_at_hand() {
            Some((id, _)) => Ok(id),
            None => self.take_elsewhere(),
        }
    }

    /// Gives a slot back; its generation moves on, so that old handles and tokens no longer name it.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, id: RequestId) {
        self.hint = id.0 / 64;
        let chunk = self.chunk_mut(id);
        chunk.occupied[(id.0 / 64 % WORDS) as usize] &= !(1 << (id.0 % 64));
        chunk.slots[slot_of(id)].change(free);
    }

    /// Collects a plain receive that is complete: gives its slot back and answers what was matched.
    #[inline(always)]
    pub(crate) fn collect_plain(&mut self, token: u32, context: u32) -> Collected {
        let id = RequestId(token & INDEX_MASK);
        let Some(chunk) = self.chunks[chunk_of(id)].as_mut() else {
            return Collected::Special;
        };
        let slot = &mut chunk.slots[slot_of(id)];
        let fields = slot.fields();
        let plain = fields.kind == Kind::Receive && fields.flags == 0 && fields.context == context;
        if !plain || u32::from(fields.generation) != token >> INDEX_BITS || fields.error != 0 {
            return Collected::Special;
        }
        match fields.state {
            State::Complete => {}
            State::Posted => return Collected::NotYet,
            _ => return Collected::Special,
        }
        let done = Collected::Done {
            peer: fields.matched_peer,
            tag: fields.matched_tag,
            bytes: fields.matched_bytes,
        };
        slot.change(free);
        chunk.occupied[(id.0 / 64 % WORDS) as usize] &= !(1 << (id.0 % 64));
        self.hint = id.0 / 64;
        done
    }

    /// The slot of a plain receive that is posted, by its token.
    #[inline(always)]
    pub(crate) fn find_posted(&self, token: u32) -> Option<(RequestId, &Fields)> {
        let id = RequestId(token & INDEX_MASK);
        let fields = self.chunks[chunk_of(id)].as_ref()?.slots[slot_of(id)].fields();
        let current = u32::from(fields.generation) == token >> INDEX_BITS;
        (current && fields.state == State::Posted && fields.flags == 0).then_some((id, fields))
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
    pub(crate) fn slot(&mut self, id: RequestId) -> &mut Slot {
        &mut self.chunk_mut(id).slots[slot_of(id)]
    }

    #[inline(always)]
    fn chunk(&self, id: RequestId) -> &Chunk {
        self.chunks[chunk_of(id)]
            .as_ref()
            .expect("ids come from this arena")
    }

    #[inline(always)]
    fn chunk_mut(&mut self, id: RequestId) -> &mut Chunk {
        self.chunks[chunk_of(id)]
            .as_mut()
            .expect("ids come from this arena")
    }

    #[cold]
    #[inline(never)]
    fn take_elsewhere(&mut self) -> Result<RequestId, Exhausted> {
        let full = |hint: &u32| {
            self.chunk(RequestId(hint * 64)).occupied[(hint % WORDS) as usize] == u64::MAX
        };
        let free = (0..self.count * WORDS).find(|hint| !full(hint));
        match free {
            Some(hint) => self.hint = hint,
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

/// What became of an attempt to collect a plain receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// The receive was complete; its slot is free.
    Done {
        /// Who sent the message.
        peer: u32,
        /// Its tag.
        tag: i32,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The message is not there yet.
    NotYet,
    /// Not a plain receive, or one that failed: the ordinary way knows.
    Special,
}

/// The token of a slot in its present use.
#[inline(always)]
pub(crate) fn token(id: RequestId, generation: u8) -> u32 {
    id.0 | u32::from(generation) << INDEX_BITS
}

#[inline(always)]
fn free(fields: &mut Fields) {
    fields.state = State::Free;
    fields.kind = Kind::None;
    fields.flags = 0;
    fields.generation = fields.generation.wrapping_add(1);
}

/// Bits of the index in a token and in a request handle.
pub(crate) const INDEX_BITS: u32 = 19;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
#[allow(clippy::cast_possible_truncation, reason = "a small constant")]
const CHUNK_SLOTS_U32: u32 = CHUNK_SLOTS as u32;
const WORDS: u32 = CHUNK_SLOTS_U32 / 64;

#[inline(always)]
fn chunk_of(id: RequestId) -> usize {
    (id.0 / CHUNK_SLOTS_U32) as usize % MAX_CHUNKS
}

#[inline(always)]
fn slot_of(id: RequestId) -> usize {
    (id.0 % CHUNK_SLOTS_U32) as usize
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
