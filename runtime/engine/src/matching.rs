// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching: posted receives and unexpected messages, in bins by (context, source, tag).
//!
//! A bin has a queue of posted receives in posting order, and a queue of unexpected messages in order of arrival.
//! Entries of different envelopes with the same hash value share a bin. A wildcard is a value like any other here: a
//! receive with [`ANY_PEER`] or [`ANY_TAG`] is in the bin of the envelope that has this value. While such receives are
//! posted, an arriving message is looked up under each kind of wildcard in use, and the lowest sequence number decides
//! (MPI 5.0 section 3.5). Receives without wildcards find an unexpected message in its bin; receives with wildcards
//! find it in [`BinnedQueues`].

mod wide;

use std::sync::Arc;

use queue_layout::{
    ANY_PEER, ANY_TAG, CHUNK_SLOTS, EngineCounters, FLAG_PERSISTENT, FLAG_PLAIN, Queued,
    RequestFields, RequestKind, RequestSlot, RequestState,
};

use crate::request::{RequestArena, RequestId};
use wide::BinnedQueues;

/// The two queues of one hash value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bin {
    posted: MatchQueue,
    unexpected: MatchQueue,
}

/// Head and tail of a queue; 0 is no slot. `tail` is valid only if there is a head, and the `prev` of a slot only if
/// the slot is not the head. So one store removes the head.
#[derive(Clone, Copy, Debug, Default)]
struct MatchQueue {
    head: u32,
    tail: u32,
}

/// The queues of posted receives and unexpected messages, in bins by envelope (MPI 5.0 section 3.5).
#[derive(Debug)]
pub(crate) struct Matching {
    bins: Box<[Bin]>,
    /// The number of bins minus 1; the number of bins is a power of two.
    mask: u32,
    /// Unexpected messages for each kind of wildcard.
    wide: [BinnedQueues; Wildcard::ALL.len()],
    /// Number of unexpected messages.
    unexpected: u32,
    /// Number of posted receives with a wildcard, plus the number of [guards](Self::guard) that are on.
    wild: u32,
    /// Number of posted receives with each kind of wildcard.
    wild_kinds: [u32; Wildcard::ALL.len()],
    /// Whether posted receives are counted by their context. Then the fast paths are guarded, and no posted receive is
    /// plain.
    by_context: bool,
    counters: Arc<EngineCounters>,
}

/// The envelope of a message, or the one that a receive matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) context: u32,
    /// [`ANY_PEER`] in a receive with `MPI_ANY_SOURCE`.
    pub(crate) peer: u32,
    /// [`ANY_TAG`] in a receive with `MPI_ANY_TAG`.
    pub(crate) tag: i32,
}

/// The wildcards of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wildcard {
    Peer,
    Tag,
    Both,
}

impl Wildcard {
    const ALL: [Self; 3] = [Self::Peer, Self::Tag, Self::Both];
}

impl Envelope {
    #[inline(always)]
    fn of(fields: &RequestFields) -> Self {
        Self {
            context: fields.context,
            peer: fields.peer,
            tag: fields.tag,
        }
    }

    /// Whether a slot has this envelope. This and some functions below take fields by reference: a copy would be loaded
    /// in wider pieces than it was stored, and store forwarding would fail (16 ns per message).
    #[inline(always)]
    fn is_of(&self, fields: &RequestFields) -> bool {
        fields.tag == self.tag && fields.peer == self.peer && fields.context == self.context
    }

    /// The wildcards of a receive's envelope.
    #[inline(always)]
    fn wild(&self) -> Option<Wildcard> {
        match (self.peer == ANY_PEER, self.tag == ANY_TAG) {
            (false, false) => None,
            (true, false) => Some(Wildcard::Peer),
            (false, true) => Some(Wildcard::Tag),
            (true, true) => Some(Wildcard::Both),
        }
    }

    /// The envelope of the receives with the wildcards `wild` that match a message with this envelope.
    fn with_wildcards(&self, wild: Wildcard) -> Self {
        Self {
            context: self.context,
            peer: if wild == Wildcard::Tag {
                self.peer
            } else {
                ANY_PEER
            },
            tag: if wild == Wildcard::Peer {
                self.tag
            } else {
                ANY_TAG
            },
        }
    }

    /// The hash value. It differs for neighbouring sources and tags, and for tags that differ only in their upper bits.
    #[inline(always)]
    fn hash(&self) -> u32 {
        let tag = self.tag.cast_unsigned().wrapping_mul(FACTOR);
        self.peer
            .wrapping_add(self.context.wrapping_mul(FACTOR))
            .wrapping_add(tag.rotate_right(TAG_ROTATION))
    }
}

impl Matching {
    pub(crate) fn new(counters: Arc<EngineCounters>) -> Self {
        Self {
            bins: vec![Bin::default(); FIRST_BINS].into(),
            mask: mask(FIRST_BINS),
            wide: Wildcard::ALL.map(BinnedQueues::of),
            unexpected: 0,
            wild: 0,
            wild_kinds: [0; Wildcard::ALL.len()],
            by_context: false,
            counters,
        }
    }

    /// Finds the first posted receive that matches the message, and removes it from its queue.
    #[inline(always)]
    pub(crate) fn take_posted(
        &mut self,
        arena: &mut RequestArena,
        message: Envelope,
    ) -> Option<RequestId> {
        let mut found = self.find_posted(arena, &message);
        if self.wild != 0 {
            found = self.arbitrate(arena, message, found);
        }
        let id = found?;
        self.remove_posted(arena, id);
        Some(id)
    }

    /// The fast path of [`take_posted`](Self::take_posted). Finds a receive only if it is the first of the bin and has
    /// no flags except [`NOT_SPECIAL`], and if no receive with a wildcard is posted. Returns the receive's slot too.
    #[inline(always)]
    pub(crate) fn take_head<'a>(
        &mut self,
        arena: &'a mut RequestArena,
        message: Envelope,
    ) -> Option<(RequestId, &'a mut RequestSlot)> {
        let bin = self.bin(&message);
        let list = &mut self.bins.get_mut(bin as usize)?.posted;
        let id = RequestId(list.head);
        let fields = arena.fields(id);
        let matches = fields.tag == message.tag
            && fields.peer == message.peer
            && fields.context == message.context;
        // `id` is 0 if the queue is empty.
        if !matches || id.0 == 0 || self.wild != 0 || fields.flags & !NOT_SPECIAL != 0 {
            return None;
        }
        list.head = fields.next;
        Some((id, arena.slot(id)))
    }

    /// Removes a plain receive from its queue if it is the head. `false`: it is not, and nothing has changed. Receives
    /// with wildcards need no check: those that are posted now were posted after this one
    /// ([`quiet_bin`](Self::quiet_bin)).
    #[inline(always)]
    pub(crate) fn take_first(&mut self, receive: &RequestFields) -> bool {
        match self.bins.get_mut(receive.bin as usize) {
            Some(bin) if bin.posted.head == receive.token => {
                bin.posted.head = receive.next;
                true
            }
            _ => false,
        }
    }

    /// The bin for a receive without wildcards, and the bin's number. `None` if a receive with a wildcard is posted, or
    /// if the bin has an unexpected message, which might match the receive. So a receive that is posted here precedes
    /// all later receives with wildcards.
    #[inline(always)]
    pub(crate) fn quiet_bin(&mut self, wanted: Envelope) -> Option<(&mut Bin, u32)> {
        let at = self.bin(&wanted);
        let bin = self.bins.get_mut(at as usize)?;
        (bin.unexpected.head == 0 && self.wild == 0).then_some((bin, at))
    }

    /// The earliest posted receive that matches the message: `named`, the first match without wildcards, or a receive
    /// with wildcards.
    #[cold]
    #[inline(never)]
    fn arbitrate(
        &self,
        arena: &RequestArena,
        message: Envelope,
        named: Option<RequestId>,
    ) -> Option<RequestId> {
        let posted = |wild: &Wildcard| self.wild_kinds[*wild as usize] != 0;
        let wild = Wildcard::ALL.into_iter().filter(posted);
        let wild = wild.filter_map(|wild| self.find_posted(arena, &message.with_wildcards(wild)));
        let all = wild.chain(named);
        all.min_by_key(|id| arena.fields(*id).sequence)
    }

    /// The first posted receive of this envelope.
    #[inline(always)]
    fn find_posted(&self, arena: &RequestArena, wanted: &Envelope) -> Option<RequestId> {
        let bin = self.bin(wanted);
        let head = self.bins[bin as usize].posted.head;
        self.walk(arena, head, |fields| wanted.is_of(fields))
    }

    /// The first slot that satisfies `fits`, in a bin's queue that begins with slot `head`.
    #[inline(always)]
    fn walk(
        &self,
        arena: &RequestArena,
        head: u32,
        fits: impl Fn(&RequestFields) -> bool,
    ) -> Option<RequestId> {
        let mut at = head;
        while at != 0 {
            self.counters.match_attempts.add(1);
            let fields = arena.fields(RequestId(at));
            if fits(fields) {
                return Some(RequestId(at));
            }
            at = fields.next;
        }
        None
    }

    /// Turns a guard on or off. While one is on, the fast paths refuse, as if a receive with a wildcard were posted.
    /// Guards nest.
    pub(crate) fn guard(&mut self, on: bool) {
        self.wild = if on { self.wild + 1 } else { self.wild - 1 };
    }

    /// Appends a receive.
    #[inline(always)]
    pub(crate) fn add_posted(&mut self, arena: &mut RequestArena, id: RequestId) {
        self.keep_up(arena);
        let fields = arena.fields(id);
        if let Some(wild) = Envelope::of(fields).wild() {
            self.wild += 1;
            self.wild_kinds[wild as usize] += 1;
        }
        if self.by_context {
            self.posted_in(fields.context);
        }
        self.append_posted(arena, id);
    }

    #[cold]
    #[inline(never)]
    fn posted_in(&mut self, context: u32) {
        let queues = self.counters.queues(Queued::Posted);
        if queues.are_watched() {
            return queues.arrived(context);
        }
        // The last observer has stopped.
        self.by_context = false;
        self.guard(false);
    }

    /// Begins to count the posted receives of a context: see [`queue_layout::Queues::watch`].
    pub(crate) fn watch_posted(&mut self, arena: &mut RequestArena, context: u32) -> Option<usize> {
        let is_posted = |id: &RequestId| {
            let fields = arena.fields(*id);
            (fields.kind, fields.state) == (RequestKind::Receive, RequestState::Posted)
        };
        let posted: Vec<RequestId> = arena.iter().filter(is_posted).collect();
        if !self.by_context {
            self.by_context = true;
            self.guard(true);
            for id in &posted {
                arena.change(*id, |fields| fields.flags &= !FLAG_PLAIN);
            }
        }
        let is_in = |id: &&RequestId| arena.fields(**id).context == context;
        let length = posted.iter().filter(is_in).count();
        let queues = self.counters.queues(Queued::Posted);
        queues.watch(context, length as u64)
    }

    #[inline(always)]
    fn append_posted(&mut self, arena: &mut RequestArena, id: RequestId) {
        let bin = self.place(arena, id);
        self.bins[bin].append(arena, id);
    }

    /// Removes a receive from its queue.
    #[inline(always)]
    pub(crate) fn remove_posted(&mut self, arena: &mut RequestArena, id: RequestId) {
        let fields = arena.fields(id);
        if let Some(wild) = Envelope::of(fields).wild() {
            self.wild -= 1;
            self.wild_kinds[wild as usize] -= 1;
        }
        if self.by_context {
            self.counters.queues(Queued::Posted).left(fields.context);
        }
        let bin = fields.bin as usize;
        remove(arena, &mut self.bins[bin].posted, id);
    }

    /// The earliest unexpected message that a receive would match.
    #[inline(always)]
    pub(crate) fn find_unexpected(
        &mut self,
        arena: &RequestArena,
        wanted: Envelope,
    ) -> Option<RequestId> {
        self.find_unexpected_that(arena, wanted, |_| true)
    }

    /// The earliest unexpected message that a receive would match and that satisfies `fits`.
    #[inline(always)]
    pub(crate) fn find_unexpected_that(
        &mut self,
        arena: &RequestArena,
        wanted: Envelope,
        fits: impl Fn(&RequestFields) -> bool,
    ) -> Option<RequestId> {
        if self.unexpected == 0 {
            return None;
        }
        if let Some(wild) = wanted.wild() {
            return self.find_wide(arena, wanted, wild, fits);
        }
        let head = self.bins[self.bin(&wanted) as usize].unexpected.head;
        self.walk(arena, head, |fields| wanted.is_of(fields) && fits(fields))
    }

    #[inline(never)]
    fn find_wide(
        &mut self,
        arena: &RequestArena,
        wanted: Envelope,
        wild: Wildcard,
        fits: impl Fn(&RequestFields) -> bool,
    ) -> Option<RequestId> {
        if !self.wide[wild as usize].is_used() {
            self.build_wide(arena, |wide| wide.wild == wild);
        }
        self.wide[wild as usize].find(arena, wanted, |fields| {
            self.counters.match_attempts.add(1);
            Envelope::of(fields).with_wildcards(wild) == wanted && fits(fields)
        })
    }

    /// Appends an unexpected message.
    pub(crate) fn add_unexpected(&mut self, arena: &mut RequestArena, id: RequestId) {
        self.keep_up(arena);
        self.unexpected += 1;
        self.append_unexpected(arena, id);
        for wide in self.wide.iter_mut().filter(|wide| wide.is_used()) {
            wide.append(id, arena.fields(id));
        }
    }

    fn append_unexpected(&mut self, arena: &mut RequestArena, id: RequestId) {
        let bin = self.place(arena, id);
        append(arena, &mut self.bins[bin].unexpected, id);
    }

    /// Removes an unexpected message from its queues.
    pub(crate) fn remove_unexpected(&mut self, arena: &mut RequestArena, id: RequestId) {
        self.unexpected -= 1;
        let fields = arena.fields(id);
        for wide in self.wide.iter_mut().filter(|wide| wide.is_used()) {
            wide.remove(id, fields);
        }
        let bin = fields.bin as usize;
        remove(arena, &mut self.bins[bin].unexpected, id);
    }

    /// Records in a slot the bin to which it belongs, and that it has no successor there. Returns the bin.
    #[inline(always)]
    fn place(&self, arena: &mut RequestArena, id: RequestId) -> usize {
        let fields = arena.private(id);
        let bin = self.bin(&Envelope::of(fields));
        (fields.next, fields.bin) = (0, bin);
        bin as usize
    }

    #[inline(always)]
    fn bin(&self, of: &Envelope) -> u32 {
        of.hash() & self.mask
    }

    /// To be called before an entry is added. Keeps at least two bins for each allocated slot. Most bins then have at
    /// most one entry: this matters because the fast paths inspect only the head of a bin.
    #[inline(always)]
    fn keep_up(&mut self, arena: &mut RequestArena) {
        if 2 * arena.slots() > self.bins.len() {
            self.grow(arena);
        }
    }

    /// Quadruples the number of bins and distributes the entries again, queue by queue in order. So the entries of one
    /// envelope stay in order.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, arena: &mut RequestArena) {
        let bigger: Box<[Bin]> = vec![Bin::default(); self.bins.len() * 4].into();
        self.mask = mask(bigger.len());
        let old = std::mem::replace(&mut self.bins, bigger);
        for bin in &old {
            deal(bin.posted.head, arena, |arena, id| {
                self.append_posted(arena, id);
            });
            deal(bin.unexpected.head, arena, |arena, id| {
                self.append_unexpected(arena, id);
            });
        }
        self.build_wide(arena, BinnedQueues::is_used);
    }

    /// Builds the wildcard queues that `which` selects, from all messages in the bins.
    #[cold]
    #[inline(never)]
    fn build_wide(&mut self, arena: &RequestArena, which: impl Fn(&BinnedQueues) -> bool) {
        let mut messages = Vec::new();
        for bin in &self.bins {
            let mut at = bin.unexpected.head;
            while at != 0 {
                messages.push(RequestId(at));
                at = arena.fields(RequestId(at)).next;
            }
        }
        messages.sort_unstable_by_key(|id| arena.fields(*id).sequence);
        for wide in self.wide.iter_mut().filter(|wide| which(wide)) {
            wide.build(arena, &messages, self.bins.len() / BINS_OF_ONE_WIDE);
        }
    }
}

impl Bin {
    /// Appends a receive to the queue of posted receives.
    #[inline(always)]
    pub(crate) fn append(&mut self, arena: &mut RequestArena, id: RequestId) {
        append(arena, &mut self.posted, id);
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "at most eight bins for a slot, of which there are 2^19"
)]
const fn mask(bins: usize) -> u32 {
    bins as u32 - 1
}

fn deal(head: u32, arena: &mut RequestArena, mut place: impl FnMut(&mut RequestArena, RequestId)) {
    let mut at = head;
    while at != 0 {
        let id = RequestId(at);
        at = arena.fields(id).next;
        place(arena, id);
    }
}

#[inline(always)]
fn append(arena: &mut RequestArena, list: &mut MatchQueue, id: RequestId) {
    if list.head == 0 {
        list.head = id.0;
    } else {
        arena.private(id).prev = list.tail;
        arena.private(RequestId(list.tail)).next = id.0;
    }
    list.tail = id.0;
}

#[inline(always)]
fn remove(arena: &mut RequestArena, list: &mut MatchQueue, id: RequestId) {
    let (next, prev) = (arena.fields(id).next, arena.fields(id).prev);
    if list.head == id.0 {
        list.head = next;
    } else {
        arena.private(RequestId(prev)).next = next;
    }
    match next {
        0 => list.tail = prev,
        next => arena.private(RequestId(next)).prev = prev,
    }
}

/// Flags that a receive completed on the fast path may have.
const NOT_SPECIAL: u16 = FLAG_PLAIN | FLAG_PERSISTENT;

/// Number of bins at first: two for each slot of the first chunk.
const FIRST_BINS: usize = CHUNK_SLOTS * 2;

/// The wildcard queues have one bin for this many bins of the table. That is up to two entries a bin on average, which
/// suffices because no fast path inspects these bins.
const BINS_OF_ONE_WIDE: usize = 4;

/// About 2^32 divided by the golden ratio: the products of neighbouring values differ in their upper bits.
const FACTOR: u32 = 0x9E37_79B1;
/// Number of bits by which a product is rotated: its upper bits become lower bits, and the lower bits select the bin.
const TAG_ROTATION: u32 = 18;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small random numbers")]
mod tests {
    use super::*;

    /// Number of tags, and the distance between them.
    const TAGS: [(u64, u64); 5] = [(2, 1), (30, 1), (5000, 1), (2000, 1 << 20), (500, 12_345)];
    const CONTEXTS: u64 = 3;
    const PEERS: u64 = 5;

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }

        /// A random message.
        fn message(&mut self, (tags, stride): (u64, u64)) -> Envelope {
            Envelope {
                context: self.below(CONTEXTS) as u32,
                peer: self.below(PEERS) as u32,
                tag: (self.below(tags) * stride) as i32,
            }
        }

        /// A random receive. Its source and its tag are each a wildcard with a probability of 1 in `wild`.
        fn receive(&mut self, tags: (u64, u64), wild: u64) -> Envelope {
            let mut wanted = self.message(tags);
            if self.below(wild) == 0 {
                wanted.peer = ANY_PEER;
            }
            if self.below(wild) == 0 {
                wanted.tag = ANY_TAG;
            }
            wanted
        }
    }

    /// The queues under test, and the simplest model with the same rules: lists that are searched from the front.
    struct Both {
        matching: Matching,
        arena: RequestArena,
        sequence: u64,
        posted: Vec<(Envelope, RequestId)>,
        unexpected: Vec<(Envelope, RequestId)>,
    }

    fn matches(receive: Envelope, message: Envelope) -> bool {
        receive.context == message.context
            && (receive.peer == ANY_PEER || receive.peer == message.peer)
            && (receive.tag == ANY_TAG || receive.tag == message.tag)
    }

    impl Both {
        fn new() -> Self {
            Self {
                matching: Matching::new(Arc::default()),
                arena: RequestArena::new(),
                sequence: 0,
                posted: Vec::new(),
                unexpected: Vec::new(),
            }
        }

        fn take(
            &mut self,
            envelope: Envelope,
            kind: RequestKind,
            state: RequestState,
        ) -> RequestId {
            let id = self.arena.take().expect("a slot is left");
            self.sequence += 1;
            self.arena.change(id, |fields| {
                (fields.kind, fields.state) = (kind, state);
                (fields.context, fields.peer) = (envelope.context, envelope.peer);
                (fields.tag, fields.sequence) = (envelope.tag, self.sequence);
            });
            id
        }

        fn find(&mut self, wanted: Envelope) -> Option<RequestId> {
            let found = self.matching.find_unexpected(&self.arena, wanted);
            let mut all = self.unexpected.iter();
            let expected = all.find(|(message, _)| matches(wanted, *message));
            assert_eq!(found, expected.map(|(_, id)| *id), "{wanted:?}");
            found
        }

        fn post(&mut self, wanted: Envelope) {
            if let Some(message) = self.find(wanted) {
                self.matching.remove_unexpected(&mut self.arena, message);
                self.arena.give_back(message);
                return self.unexpected.retain(|(_, id)| *id != message);
            }
            let id = self.take(wanted, RequestKind::Receive, RequestState::Posted);
            self.matching.add_posted(&mut self.arena, id);
            self.posted.push((wanted, id));
        }

        fn arrive(&mut self, message: Envelope, is_fast: bool) {
            let mut all = self.posted.iter();
            let place = all.position(|(wanted, _)| matches(*wanted, message));
            let expected = place.map(|place| self.posted[place].1);
            let head = match is_fast {
                true => self.matching.take_head(&mut self.arena, message),
                false => None,
            };
            let head = head.map(|(id, _)| id);
            let taken = head.or_else(|| self.matching.take_posted(&mut self.arena, message));
            assert_eq!(taken, expected, "{message:?}");
            if let Some(place) = place {
                let (_, id) = self.posted.remove(place);
                return self.arena.give_back(id);
            }
            let id = self.take(message, RequestKind::Unexpected, RequestState::Kept);
            self.matching.add_unexpected(&mut self.arena, id);
            self.unexpected.push((message, id));
        }

        /// Removes one entry, chosen by `number`.
        fn withdraw(&mut self, number: u64) {
            let (posted, unexpected) = (self.posted.len(), self.unexpected.len());
            let number = number as usize % (posted + unexpected).max(1);
            let id = if number < posted {
                let (_, id) = self.posted.remove(number);
                self.matching.remove_posted(&mut self.arena, id);
                id
            } else if number - posted < unexpected {
                let (_, id) = self.unexpected.remove(number - posted);
                self.matching.remove_unexpected(&mut self.arena, id);
                id
            } else {
                return;
            };
            self.arena.give_back(id);
        }
    }

    #[test]
    fn s3_5_many_tags_and_wildcards_match_as_in_plain_lists() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let tags = TAGS[seed as usize % TAGS.len()];
            // The probability of each wildcard is 1 in 2, 1 in 20 or 1 in 400.
            let wild = [2, 20, 400][random.below(3) as usize];
            // Of 12 operations, this many post a receive. The number of bins grows several times.
            let posting = 1 + random.below(8);
            let mut both = Both::new();
            for _ in 0..[200, 2000][random.below(2) as usize] {
                match random.below(12) {
                    0 => both.withdraw(random.below(1 << 20)),
                    1 => _ = both.find(random.receive(tags, 2)),
                    2 => {
                        both.matching.guard(true);
                        both.arrive(random.message(tags), true);
                        both.matching.guard(false);
                    }
                    act if act < 3 + posting => both.post(random.receive(tags, wild)),
                    act => both.arrive(random.message(tags), act % 2 == 0),
                }
            }
            while both.posted.len() + both.unexpected.len() > 0 {
                both.withdraw(random.below(1 << 20));
            }
            assert_eq!((both.arena.live(), both.matching.wild), (0, 0));
        }
    }

    const OTHERS: i32 = 1000;

    /// Number of entries inspected while `what` runs.
    fn attempts(both: &mut Both, what: impl FnOnce(&mut Both)) -> u64 {
        let counters = Arc::clone(&both.matching.counters);
        let before = counters.match_attempts.get();
        what(both);
        counters.match_attempts.get() - before
    }

    fn envelope(peer: u32, tag: i32) -> Envelope {
        Envelope {
            context: 4,
            peer,
            tag,
        }
    }

    /// Distances between tags, and the number of sources over which they are spread.
    const SPREADS: [(i32, i32); 8] = [
        (1, 1),
        (1, 64),
        (1, 1000),
        (2, 1),
        (100, 8),
        (1 << 10, 1),
        (1 << 16, 16),
        (1 << 20, 64),
    ];

    #[test]
    fn matching_a_message_skips_receives_of_other_tags() {
        for (stride, peers) in SPREADS {
            let mut both = Both::new();
            for number in 0..OTHERS {
                both.post(envelope(
                    (number % peers).cast_unsigned(),
                    (number + 1) * stride,
                ));
            }
            // Posts the same number of receives again, with `MPI_ANY_SOURCE`.
            for number in 0..OTHERS {
                both.post(envelope(ANY_PEER, (OTHERS + number + 1) * stride));
            }
            let sum = attempts(&mut both, |both| {
                for peer in 0..64 {
                    both.arrive(envelope(peer, 0), false);
                }
            });
            assert!(sum < 2 * 64, "{sum} with {stride} between, {peers} sources");
        }
    }

    #[test]
    fn matching_a_receive_skips_other_messages() {
        for (stride, peers) in SPREADS {
            let mut both = Both::new();
            for number in 0..OTHERS {
                both.arrive(
                    envelope((number % peers).cast_unsigned(), number * stride),
                    false,
                );
            }
            let middle = OTHERS / 2;
            let (peer, tag) = ((middle % peers).cast_unsigned(), middle * stride);
            for wanted in [
                envelope(peer, tag),
                envelope(ANY_PEER, tag),
                envelope(peer, ANY_TAG),
                envelope(ANY_PEER, ANY_TAG),
                envelope(peer, i32::MAX),
                envelope(ANY_PEER, i32::MAX),
                envelope(2000, tag),
                envelope(2000, ANY_TAG),
            ] {
                both.find(wanted);
                let sum = attempts(&mut both, |both| _ = both.find(wanted));
                assert!(
                    sum < 10,
                    "{sum} for {wanted:?}, {stride} between, {peers} sources"
                );
            }
        }
    }

    #[test]
    fn s3_5_receives_of_all_kinds_match_in_the_order_of_their_posting() {
        let kinds = [(1, 7), (ANY_PEER, 7), (1, ANY_TAG), (ANY_PEER, ANY_TAG)];
        for turn in 0..24 {
            let mut both = Both::new();
            let mut rest: Vec<_> = kinds.into();
            for (left, draw) in [(4, turn / 6), (3, turn / 2 % 3), (2, turn % 2), (1, 0)] {
                assert_eq!(rest.len(), left);
                let (peer, tag) = rest.remove(draw);
                both.post(envelope(peer, tag));
            }
            for _ in kinds {
                both.arrive(envelope(1, 7), true);
            }
            assert_eq!((both.posted.len(), both.matching.wild), (0, 0));
        }
    }

    #[test]
    fn the_fast_paths_refuse_while_a_receive_with_a_wildcard_is_posted() {
        for (peer, tag) in [(ANY_PEER, 7), (1, ANY_TAG), (ANY_PEER, ANY_TAG)] {
            let mut both = Both::new();
            let named = envelope(1, 7);
            both.post(named);
            assert!(both.matching.quiet_bin(named).is_some());
            both.post(envelope(peer, tag));
            assert!(both.matching.quiet_bin(named).is_none());
            assert!(both.matching.take_head(&mut both.arena, named).is_none());
            both.arrive(named, true);
            assert!(both.matching.quiet_bin(named).is_none());
            both.arrive(named, true);
            assert!(both.matching.quiet_bin(named).is_some());
        }
    }
}
