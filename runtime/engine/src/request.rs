// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arena of request slots: it stores, allocates and frees them. The arena is the image that a debugger reads; the
//! queues of `matching.rs` only link its slots.

use queue_layout::{
    CHUNK_SLOTS, Chunk, FLAG_PERSISTENT, FLAG_PLAIN, MAX_CHUNKS, RequestFields, RequestKind,
    RequestSlot, RequestState,
};

use crate::{ContextId, Peer, wire};

/// One use of a slot: `index << 8 | generation`, as in [`RequestFields::token`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u32);

impl RequestId {
    /// Index of the slot. It is the same in all uses of the slot.
    #[must_use]
    pub fn index(self) -> usize {
        (self.0 >> GENERATION_BITS) as usize
    }
}

/// All 2^19 - 1 usable request slots are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// Request slots in chunks that never move; index 0 is never used.
///
/// In every free slot `flags` and `error` are 0 and `next` is the token of the next free slot.
#[derive(Debug)]
pub struct RequestArena {
    chunks: Box<Table>,
    count: u32,
    /// Token of the free slot that is taken next; 0 if there is none.
    free: u32,
}

/// The chunk table that a debugger reads. An entry without a chunk is a null pointer.
type Table = [Option<Box<Chunk>>; MAX_CHUNKS];

impl RequestArena {
    pub(crate) fn new() -> Self {
        let chunks: Box<Table> = Box::new([const { None }; MAX_CHUNKS]);
        let mut arena = Self {
            chunks,
            count: 0,
            free: 0,
        };
        arena.add_chunk();
        arena
    }

    /// The fields of a slot.
    #[inline(always)]
    #[must_use]
    pub fn fields(&self, id: RequestId) -> &RequestFields {
        self.chunks[chunk_of(id.0)]
            .as_ref()
            .expect("ids come from this arena")
            .slots[slot_of(id.0)]
        .fields()
    }

    /// The slot that a token names, if the token is not stale and the slot is in use.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, token: u32) -> Option<RequestId> {
        let chunk = self.chunks[chunk_of(token)].as_ref()?;
        let fields = chunk.slots[slot_of(token)].fields();
        let current = fields.state != RequestState::Free && fields.token == token;
        current.then_some(RequestId(token))
    }

    /// The number that names this use of the slot in frames and handles; 27 bits.
    #[inline(always)]
    #[must_use]
    pub fn token(&self, id: RequestId) -> u32 {
        id.0
    }

    /// Number of slots in use.
    #[must_use]
    pub fn live(&self) -> usize {
        self.iter().count()
    }

    /// Number of slots allocated.
    #[inline(always)]
    pub(crate) fn slots(&self) -> usize {
        self.count as usize * CHUNK_SLOTS
    }

    /// Address of the chunk table, for the debugger's anchor.
    #[must_use]
    pub fn chunk_table(&self) -> *const () {
        self.chunks.as_ptr().cast()
    }

    /// All slots in use, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        let slots = self.chunks.iter().flatten().flat_map(|chunk| &chunk.slots);
        slots
            .map(RequestSlot::fields)
            .filter(|fields| fields.state != RequestState::Free)
            .map(|fields| RequestId(fields.token))
    }

    /// A free slot, if one is allocated.
    #[inline(always)]
    pub(crate) fn take_free(&mut self) -> Option<&mut RequestSlot> {
        let free = self.free;
        if free == 0 {
            return None;
        }
        let slot = &mut self.chunks[chunk_of(free)].as_mut()?.slots[slot_of(free)];
        self.free = slot.fields().next;
        Some(slot)
    }

    #[inline(always)]
    pub(crate) fn take(&mut self) -> Result<RequestId, Exhausted> {
        match self.take_free() {
            Some(slot) => {
                slot.record_datatype(0);
                Ok(RequestId(slot.fields().token))
            }
            None => self.take_new(),
        }
    }

    /// Frees a slot and advances its generation, so old handles and tokens no longer name it, until the generation
    /// wraps after 256 uses.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, id: RequestId) {
        if let Some(held) = self.hold(id.0) {
            held.give_back(|fields| fields.error = 0);
        }
    }

    /// The slot at the index of a token. Does not check whether the token is stale.
    #[inline(always)]
    pub(crate) fn hold(&mut self, token: u32) -> Option<SlotRef<'_>> {
        Some(SlotRef {
            slot: &mut self.chunks[chunk_of(token)].as_mut()?.slots[slot_of(token)],
            free: &mut self.free,
        })
    }

    /// Collects a plain receive that is complete: frees its slot and returns the matched message.
    #[inline(always)]
    pub(crate) fn collect_plain(&mut self, token: u32) -> CollectOutcome {
        let Some(held) = self.hold(token) else {
            return CollectOutcome::Special;
        };
        let fields = held.fields();
        let plain = fields.kind == RequestKind::Receive && fields.flags & !FLAG_PLAIN == 0;
        if !plain || fields.token != token || fields.error != 0 {
            return CollectOutcome::Special;
        }
        match fields.state {
            RequestState::Complete => {}
            RequestState::Posted => return CollectOutcome::NotYet,
            _ => return CollectOutcome::Special,
        }
        let done = CollectOutcome::Done(ReceivedMessage::in_slot(fields));
        held.give_back_faultless();
        done
    }

    /// Collects a persistent send or receive that is complete and needs no special handling: makes it inactive.
    pub(crate) fn collect_persistent(&mut self, token: u32) -> CollectOutcome {
        let Some(held) = self.hold(token) else {
            return CollectOutcome::Special;
        };
        let fields = held.fields();
        if fields.flags != FLAG_PERSISTENT || fields.token != token || fields.error != 0 {
            return CollectOutcome::Special;
        }
        let done = match (fields.state, fields.kind) {
            (RequestState::Complete, RequestKind::Receive) => {
                CollectOutcome::Done(ReceivedMessage::in_slot(fields))
            }
            (RequestState::Complete, RequestKind::Send) => CollectOutcome::Sent,
            (RequestState::Posted, RequestKind::Receive) => return CollectOutcome::NotYet,
            _ => return CollectOutcome::Special,
        };
        held.slot
            .change(|fields| fields.state = RequestState::Inactive);
        done
    }

    #[inline(always)]
    pub(crate) fn change<R>(
        &mut self,
        id: RequestId,
        change: impl FnOnce(&mut RequestFields) -> R,
    ) -> R {
        self.slot(id).change(change)
    }

    /// Access to a slot without a change of its version: only for the links and scratch words.
    #[inline(always)]
    pub(crate) fn private(&mut self, id: RequestId) -> &mut RequestFields {
        self.slot(id).private()
    }

    #[inline(always)]
    pub(crate) fn slot(&mut self, id: RequestId) -> &mut RequestSlot {
        let chunk = self.chunks[chunk_of(id.0)].as_mut();
        &mut chunk.expect("ids come from this arena").slots[slot_of(id.0)]
    }

    #[cold]
    #[inline(never)]
    fn take_new(&mut self) -> Result<RequestId, Exhausted> {
        if self.count as usize == MAX_CHUNKS {
            return Err(Exhausted);
        }
        self.add_chunk();
        self.take()
    }

    /// Adds a chunk; its first slot is taken next.
    fn add_chunk(&mut self) {
        let mut chunk: Box<Chunk> = Box::default();
        let mut token = (self.count + 1) * CHUNK_TOKENS;
        for slot in chunk.slots.iter_mut().rev() {
            token -= 1 << GENERATION_BITS;
            slot.private().token = token;
            // Slot 0 is never used.
            if token != 0 {
                slot.private().next = std::mem::replace(&mut self.free, token);
            }
        }
        // PAIR(chunk-table): a debugger that reads the chunk's address finds initialized slots there.
        queue_layout::publish(|| self.chunks[self.count as usize] = Some(chunk));
        self.count += 1;
    }
}

/// A slot that was looked up once, for all accesses of one operation.
#[derive(Debug)]
pub(crate) struct SlotRef<'a> {
    slot: &'a mut RequestSlot,
    free: &'a mut u32,
}

impl SlotRef<'_> {
    #[inline(always)]
    pub(crate) fn fields(&self) -> &RequestFields {
        self.slot.fields()
    }

    /// Frees the slot like [`RequestArena::give_back`]; only for a slot whose `error` is 0.
    #[inline(always)]
    pub(crate) fn give_back_faultless(self) {
        self.give_back(|_| ());
    }

    #[inline(always)]
    fn give_back(self, reset: impl FnOnce(&mut RequestFields)) {
        let mut fields = self.slot.begin_change();
        reset(&mut fields);
        fields.state = RequestState::Free;
        fields.kind = RequestKind::None;
        fields.flags = 0;
        fields.next = *self.free;
        let token = fields.token;
        *self.free = token;
        // Selecting one of two sums takes one instruction less than masking.
        let next = token.wrapping_add(1);
        let is_within = next & GENERATION_MASK != 0;
        let first = token.wrapping_sub(GENERATION_MASK);
        fields.token = if is_within { next } else { first };
    }
}

/// The message that a completed receive matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Sender of the message.
    pub peer: Peer,
    /// Context of the message.
    pub context: ContextId,
    /// Tag of the message.
    pub tag: i32,
    /// Size of the message in bytes.
    pub bytes: u64,
}

impl ReceivedMessage {
    /// The message of an eager frame with this word.
    #[inline(always)]
    #[must_use]
    pub fn in_frame(peer: Peer, word: u64, bytes: u64) -> Self {
        let (context, tag) = wire::envelope(word);
        Self {
            peer,
            context: ContextId(context),
            tag,
            bytes,
        }
    }

    #[inline(always)]
    fn in_slot(fields: &RequestFields) -> Self {
        Self {
            peer: Peer(fields.matched_peer),
            context: ContextId(fields.context),
            tag: fields.matched_tag,
            bytes: fields.matched_bytes,
        }
    }
}

/// The outcome of an attempt to collect a request on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectOutcome {
    /// The receive was complete; its slot is free, or inactive if it is persistent.
    Done(ReceivedMessage),
    /// The persistent send was complete; it is inactive.
    Sent,
    /// No message has matched the receive yet.
    NotYet,
    /// The request failed or needs special handling: the general path collects it.
    Special,
}

/// Bits of the generation in a token; the index is above them.
const GENERATION_BITS: u32 = 8;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// Distance between the first tokens of two neighbouring chunks.
#[allow(clippy::cast_possible_truncation, reason = "a small constant")]
const CHUNK_TOKENS: u32 = (CHUNK_SLOTS as u32) << GENERATION_BITS;

#[inline(always)]
fn chunk_of(token: u32) -> usize {
    (token / CHUNK_TOKENS) as usize % MAX_CHUNKS
}

#[inline(always)]
fn slot_of(token: u32) -> usize {
    (token >> GENERATION_BITS) as usize % CHUNK_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_distinct_and_reused() {
        let mut arena = RequestArena::new();
        let ids: Vec<_> = (0..1000).map(|_| arena.take().unwrap()).collect();
        let mut sorted: Vec<_> = ids.iter().map(|id| id.0).collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.len(), RequestId(sorted[0]).index()), (1000, 1));
        for id in &ids {
            arena.change(*id, |fields| fields.state = RequestState::Posted);
            arena.give_back(*id);
        }
        assert_eq!(arena.live(), 0);
        let again = arena.take().unwrap();
        assert_eq!(
            again.index(),
            ids[999].index(),
            "what was used last is warm"
        );
        assert_ne!(again, ids[999]);
    }

    #[test]
    fn a_stale_token_finds_nothing() {
        let mut arena = RequestArena::new();
        let id = arena.take().unwrap();
        arena.change(id, |fields| fields.state = RequestState::Posted);
        let token = arena.token(id);
        assert_eq!(arena.find(token), Some(id));
        arena.give_back(id);
        assert_eq!(arena.find(token), None);
        for wild in [0, u32::MAX, 1 << 18, 1 << 27] {
            assert_eq!(arena.find(wild), None);
        }
    }

    #[test]
    fn a_generation_ends_where_the_index_begins() {
        let mut arena = RequestArena::new();
        let first = arena.take().unwrap();
        for turn in 1..=256 {
            arena.give_back(RequestId(arena.fields(first).token));
            let next = arena.take().unwrap();
            assert_eq!((next.index(), next.0 & 255), (first.index(), turn % 256));
        }
        assert_eq!(arena.take().unwrap().index(), first.index() + 1);
    }

    #[test]
    fn a_free_slot_has_neither_flags_nor_error() {
        let mut arena = RequestArena::new();
        let id = arena.take().unwrap();
        arena.change(id, |fields| {
            (fields.state, fields.kind) = (RequestState::Complete, RequestKind::Receive);
            (fields.flags, fields.error) = (FLAG_PLAIN, 1);
        });
        assert_eq!(arena.collect_plain(id.0), CollectOutcome::Special);
        arena.give_back(id);
        let fields = arena.fields(id);
        assert_eq!((fields.standing(), fields.error), (0, 0));
    }

    #[test]
    fn exhausting_the_arena_is_an_error() {
        let mut arena = RequestArena::new();
        let mut taken = 0;
        while arena.take().is_ok() {
            taken += 1;
        }
        assert_eq!(taken, (1 << 19) - 1);
    }
}
