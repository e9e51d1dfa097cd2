// SPDX-License-Identifier: MIT OR Apache-2.0
//! The broadcast queue of a board: what one of its members tells all others, entry by entry, in the order of their calls. Who
//! tells runs ahead of those that read, as far as there is room; nobody waits for all to be there.
//!
//! An entry is a cache line. A few bytes lie in it, more in a ring of bytes that [`SharedBytes`](crate::SharedBytes) moves.
//! Every member counts the entries that it has told or taken; who tells looks at those counts for room (R8).
//!
//! Numbers that another process can garble decide nothing but when a member goes on, and where in the ring it copies from: a
//! scribble makes results wrong, or makes members wait, and reaches no other memory.

use crate::board::RoundNote;
use crate::layout::MAX_LOCAL_RANKS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The shared words of a broadcast queue. All zeros: an empty one.
#[derive(Debug)]
#[repr(C)]
pub struct BcastQueue {
    entries: [BcastEntry; ENTRIES as usize],
    /// How many entries each member has taken.
    taken: [Taken; MEMBERS],
    /// What each member has [said](BcastQueue::announce) of its call. Not beside the counts: who waits looks here at each turn,
    /// and would take the line away from the member that counts.
    calls: [AtomicU64; MEMBERS],
    /// Who sleeps until all have taken so many entries (high half): its place plus one.
    waiter: Waiter,
}

/// One entry of the queue.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct BcastEntry {
    /// Its number (low half) and its [`RoundNote`], which is not 0.
    told: AtomicU64,
    /// Where its bytes end in the ring, and who told it (low 16 bits).
    origin: AtomicU64,
    body: [AtomicU64; BODY_WORDS],
}

#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct Taken(AtomicU32);

#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct Waiter(AtomicU64);

/// The head of an entry: its sender, its note, and where its bytes end in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BcastEntryHead {
    /// What it is.
    pub note: RoundNote,
    /// The member.
    pub place: u32,
    /// Where its bytes end in the ring. Any number, if another process garbles it.
    pub end: u32,
}

impl BcastQueue {
    /// Entry `number`, if it was told and nothing later has taken its place.
    #[inline]
    #[must_use]
    pub fn entry(&self, number: u32) -> Option<BcastEntryHead> {
        let entry = self.at(number);
        // PAIR(queue-told): `tell` stores it with Release, after the bytes.
        let told = entry.told.load(Ordering::Acquire);
        let (number_told, note) = (told & u64::from(u32::MAX), told >> 32);
        if note == 0 || number_told != u64::from(number) {
            return None;
        }
        let origin = entry.origin.load(Ordering::Relaxed);
        Some(BcastEntryHead {
            note: RoundNote::of(note),
            #[allow(clippy::cast_possible_truncation, reason = "16 bits")]
            place: origin as u32 & 0xffff,
            #[allow(clippy::cast_possible_truncation, reason = "32 bits")]
            end: (origin >> 16) as u32,
        })
    }

    /// Tells entry `number`, whose bytes lie in the ring or in the [body](Self::put), to all. Only where all members have
    /// [taken](Self::least_taken) the one [`ENTRIES`] before.
    #[inline]
    pub fn tell(&self, number: u32, told: BcastEntryHead) {
        let entry = self.at(number);
        let origin = u64::from(told.end) << 16 | u64::from(told.place & 0xffff);
        entry.origin.store(origin, Ordering::Relaxed);
        let word = u64::from(number) | u64::from(told.note.word()) << 32;
        // PAIR(queue-told): `entry` loads it with Acquire.
        entry.told.store(word, Ordering::Release);
    }

    /// Puts bytes into the body of an entry that is told next. `false`: they do not fit, and nothing was put.
    #[inline]
    #[must_use]
    pub fn put(&self, number: u32, bytes: &[u8]) -> bool {
        if bytes.len() > QUEUE_BODY_BYTES {
            return false;
        }
        for (word, bytes) in self.at(number).body.iter().zip(bytes.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(all), Ordering::Relaxed);
        }
        true
    }

    /// Copies the body of an entry from byte `at` on. `false`: so much is not there.
    #[inline]
    #[must_use]
    pub fn get(&self, number: u32, at: usize, bytes: &mut [u8]) -> bool {
        if at.saturating_add(bytes.len()) > QUEUE_BODY_BYTES {
            return false;
        }
        let mut all = [0; QUEUE_BODY_BYTES];
        for (word, bytes) in self.at(number).body.iter().zip(all.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes.copy_from_slice(&all[at..at + bytes.len()]);
        true
    }

    /// Member `place` is done with all entries before `number`.
    #[inline]
    pub fn take(&self, place: u32, number: u32) {
        // PAIR(queue-taken): `least_taken` loads it with Acquire: what this member read, it has read before.
        self.taken_by(place).store(number, Ordering::Release);
    }

    /// How many entries member `place` has taken.
    #[must_use]
    pub fn taken(&self, place: u32) -> u32 {
        self.taken_by(place).load(Ordering::Relaxed)
    }

    /// How many entries each of `members` members has taken at least, where this one has taken `own`.
    #[must_use]
    pub fn least_taken(&self, members: u32, own: u32) -> u32 {
        let behind = (0..members).map(|place| {
            // PAIR(queue-taken): `take` stores it with Release.
            own.wrapping_sub(self.taken_by(place).load(Ordering::Acquire))
        });
        // Who is ahead is not behind; a count that nobody can have makes others wait.
        let most = behind.filter(|behind| *behind <= u32::MAX / 2).max();
        own.wrapping_sub(most.unwrap_or(0))
    }

    /// Member `place` is about to sleep until all have taken `count` entries: it must look once more, and sleep only if they have
    /// not.
    pub fn doze(&self, place: u32, count: u32) {
        let word = u64::from(count) << 32 | u64::from(place.wrapping_add(1));
        self.waiter.0.store(word, Ordering::Relaxed);
        // PAIR(queue-room): who takes an entry fences before it looks who waits.
        fence(Ordering::SeqCst);
    }

    /// It is awake again.
    pub fn rise(&self) {
        self.waiter.0.store(0, Ordering::Relaxed);
    }

    /// The member that may sleep and has nothing to wait for any more, now that all of `members` members have taken so many
    /// entries. Asks who has taken `own` of them just now.
    #[inline]
    #[must_use]
    pub fn waiter(&self, members: u32, own: u32) -> Option<u32> {
        // PAIR(queue-room): `doze` says who waits, fences, and then looks once more.
        fence(Ordering::SeqCst);
        #[allow(clippy::cast_possible_truncation, reason = "the halves of a word")]
        let (count, place) = match self.waiter.0.load(Ordering::Relaxed) {
            0 => return None,
            word => ((word >> 32) as u32, (word as u32).checked_sub(1)?),
        };
        // Each looks when it has just taken that many. Of those that do at once, each sees all that fenced before it, so one sees
        // all; and who waits looks once more itself.
        if own != count {
            return None;
        }
        let least = self.least_taken(members, own);
        (least == count).then_some(place)
    }

    /// Member `place` says which call it is at: a word that is not 0 and means something to the members. What it did before is
    /// seen by who sees the word.
    pub fn announce(&self, place: u32, word: u64) {
        // PAIR(queue-call): `call_of` loads it with Acquire.
        self.call(place).store(word, Ordering::Release);
    }

    /// What member `place` said last; 0: nothing.
    #[must_use]
    pub fn call_of(&self, place: u32) -> u64 {
        // PAIR(queue-call): `announce` stores it with Release.
        self.call(place).load(Ordering::Acquire)
    }

    /// Begins anew with entry 0, while nobody but the caller uses the broadcast queue.
    pub fn begin(&self) {
        for entry in &self.entries {
            entry.told.store(0, Ordering::Relaxed);
        }
        for (taken, call) in self.taken.iter().zip(&self.calls) {
            taken.0.store(0, Ordering::Relaxed);
            call.store(0, Ordering::Relaxed);
        }
        self.rise();
    }

    fn at(&self, number: u32) -> &BcastEntry {
        &self.entries[(number % ENTRIES) as usize]
    }

    fn taken_by(&self, place: u32) -> &AtomicU32 {
        &self.taken[place as usize % MEMBERS].0
    }

    fn call(&self, place: u32) -> &AtomicU64 {
        &self.calls[place as usize % MEMBERS]
    }

    /// A new broadcast queue in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        let entry = |_| BcastEntry {
            told: AtomicU64::new(0),
            origin: AtomicU64::new(0),
            body: core::array::from_fn(|_| AtomicU64::new(0)),
        };
        Self {
            entries: core::array::from_fn(entry),
            taken: core::array::from_fn(|_| Taken(AtomicU32::new(0))),
            calls: core::array::from_fn(|_| AtomicU64::new(0)),
            waiter: Waiter(AtomicU64::new(0)),
        }
    }
}

impl Default for BcastQueue {
    fn default() -> Self {
        Self::new()
    }
}

/// Entries that were told and that not all have taken, at most.
#[cfg(not(loom))]
pub const ENTRIES: u32 = 64;
/// In a model: the smallest that wraps.
#[cfg(loom)]
pub const ENTRIES: u32 = 2;
const MEMBERS: usize = if cfg!(loom) {
    3
} else {
    MAX_LOCAL_RANKS as usize
};
const BODY_WORDS: usize = if cfg!(loom) { 1 } else { 6 };
/// Bytes that fit an entry itself.
pub const QUEUE_BODY_BYTES: usize = 8 * BODY_WORDS;

#[cfg(not(loom))]
const _: () = assert!(size_of::<BcastQueue>() <= crate::layout::QUEUE_WORDS_BYTES);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOTE: RoundNote = RoundNote { kind: 2, bytes: 8 };

    fn told(place: u32, end: u32) -> BcastEntryHead {
        let note = NOTE;
        BcastEntryHead { note, place, end }
    }

    #[test]
    fn an_entry_is_there_once_it_was_told_and_until_the_next_lap() {
        let queue = BcastQueue::new();
        assert_eq!(queue.entry(0), None);
        for number in [0, 1, ENTRIES - 1, ENTRIES, u32::MAX] {
            assert!(queue.put(number, &number.to_ne_bytes()));
            queue.tell(number, told(1023, u32::MAX));
            assert_eq!(queue.entry(number), Some(told(1023, u32::MAX)));
            let mut bytes = [0; 4];
            assert!(queue.get(number, 0, &mut bytes));
            assert_eq!(u32::from_ne_bytes(bytes), number);
        }
        assert_eq!(queue.entry(0), None, "number {ENTRIES} lies there");
    }

    #[test]
    fn a_body_has_room_for_so_many_bytes() {
        let queue = BcastQueue::new();
        let bytes: Vec<u8> = (0..=48).collect();
        assert!(!queue.put(3, &bytes));
        assert!(queue.put(3, &bytes[..48]));
        for at in 0..48 {
            let mut part = vec![0; 48 - at];
            assert!(queue.get(3, at, &mut part));
            assert_eq!(part, bytes[at..48]);
        }
        assert!(!queue.get(3, 48, &mut [0]) && !queue.get(3, usize::MAX, &mut [0]));
    }

    #[test]
    fn the_slowest_member_tells_how_much_all_have_taken() {
        let queue = BcastQueue::new();
        let start = u32::MAX - 2;
        (0..4).for_each(|place| queue.take(place, start));
        assert_eq!(queue.least_taken(4, start.wrapping_add(7)), start);
        for (place, ahead) in [(0, 7), (1, 5), (2, 3), (3, 9)] {
            queue.take(place, start.wrapping_add(ahead));
        }
        let least = queue.least_taken(4, start.wrapping_add(7));
        assert_eq!(least, start.wrapping_add(3));
    }

    #[test]
    fn who_waits_for_room_is_named_when_all_have_taken_enough() {
        let queue = BcastQueue::new();
        queue.doze(1, 2);
        for (taken, waiter) in [(1, None), (2, Some(1))] {
            (0..3).for_each(|place| queue.take(place, taken));
            assert_eq!(queue.waiter(3, taken), waiter);
        }
        queue.take(2, 1);
        assert_eq!(queue.waiter(3, 5), None);
        queue.rise();
        queue.take(2, 2);
        assert_eq!(queue.waiter(3, 2), None);
    }

    #[test]
    fn who_begins_anew_begins_with_nothing() {
        let queue = BcastQueue::new();
        (0..1000).for_each(|number| queue.tell(number, told(0, 0)));
        queue.take(7, 1000);
        queue.announce(7, 5);
        queue.begin();
        assert_eq!((queue.taken(7), queue.call_of(7)), (0, 0));
        assert!((900..1000).all(|number| queue.entry(number).is_none()));
    }
}
