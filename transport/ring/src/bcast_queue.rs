// SPDX-License-Identifier: MIT OR Apache-2.0
//! The broadcast queue of a board: each entry is published by one member and read by all others, in the order of the
//! collective calls. A publisher may run ahead of the readers while there is room, and no member has to wait for the
//! arrival of all members.
//!
//! An entry is a cache line. A few bytes of data are stored in the entry itself; more are stored in a ring of bytes,
//! which [`SharedBytes`](crate::SharedBytes) copies. Every member counts the entries that it has published or taken;
//! the publisher reads those counts to find room (R8).
//!
//! Numbers that another process can garble decide only when a member continues, and from which offset in the ring it
//! copies. So a faulty process makes results wrong, or makes members wait, but causes no access to other memory.

use crate::board::RoundNote;
use crate::layout::MAX_LOCAL_RANKS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The shared words of a broadcast queue. All words 0: an empty queue.
#[derive(Debug)]
#[repr(C)]
pub struct BcastQueue {
    entries: [BcastEntry; ENTRIES as usize],
    /// Number of entries that each member has taken.
    taken: [Taken; MEMBERS],
    /// The call that each member has [announced](BcastQueue::announce). The calls and the counts are in different cache
    /// lines: waiting members read the calls each time they poll, and would take a shared line away from the member
    /// that counts.
    calls: [AtomicU64; MEMBERS],
    /// The member that sleeps until all members have taken a certain number of entries: the sleeping member's place
    /// (its index among the members) plus one in the low half, and that number of entries in the high half. 0: no
    /// member sleeps.
    waiter: Waiter,
}

/// One entry of the queue.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct BcastEntry {
    /// The entry's number (low half) and its [`RoundNote`] (high half), which is not 0.
    published: AtomicU64,
    /// The publisher's place (low 16 bits), and the end of the entry's bytes in the ring (the bits above).
    origin: AtomicU64,
    body: [AtomicU64; BODY_WORDS],
}

/// Number of entries that a member has taken; written by that member only. It has a cache line of its own.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct Taken(AtomicU32);

/// Which member sleeps until all have taken a certain number of entries; 0: none. It has a cache line of its own.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct Waiter(AtomicU64);

/// The head of an entry: its publisher, its note, and the end of its bytes in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BcastEntryHead {
    /// The publisher's operation.
    pub note: RoundNote,
    /// The publisher's place.
    pub place: u32,
    /// The end of the entry's bytes in the ring. It can be any number, since another process can garble it.
    pub end: u32,
}

impl BcastQueue {
    /// The head of entry `number`; `None`: the entry is not published yet, or a later entry has overwritten it.
    #[inline]
    #[must_use]
    pub fn entry(&self, number: u32) -> Option<BcastEntryHead> {
        let entry = self.at(number);
        // PAIR(queue-entry): `publish` stores it with Release, after the bytes.
        let published = entry.published.load(Ordering::Acquire);
        let (published_number, note) = (published & u64::from(u32::MAX), published >> 32);
        if note == 0 || published_number != u64::from(number) {
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

    /// Publishes entry `number`, whose bytes are in the ring or in the [body](Self::put), to all members. The caller
    /// makes sure that all members have [taken](Self::least_taken) entry `number` − [`ENTRIES`].
    #[inline]
    pub fn publish(&self, number: u32, head: BcastEntryHead) {
        let entry = self.at(number);
        let origin = u64::from(head.end) << 16 | u64::from(head.place & 0xffff);
        entry.origin.store(origin, Ordering::Relaxed);
        let word = u64::from(number) | u64::from(head.note.word()) << 32;
        // PAIR(queue-entry): `entry` loads it with Acquire.
        entry.published.store(word, Ordering::Release);
    }

    /// Puts bytes into the body of entry `number`, before it is published. `false`: they do not fit, and nothing was
    /// put.
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

    /// Copies bytes from the body of entry `number`, from byte `at` on. `false`: the body is too short, and nothing was
    /// copied.
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

    /// Records that member `place` is done with all entries before `number`.
    #[inline]
    pub fn take(&self, place: u32, number: u32) {
        // PAIR(queue-taken): `least_taken` loads it with Acquire. This store comes after this member's reads of the
        // entries.
        self.taken_by(place).store(number, Ordering::Release);
    }

    /// Number of entries that member `place` has taken.
    #[must_use]
    pub fn taken(&self, place: u32) -> u32 {
        self.taken_by(place).load(Ordering::Relaxed)
    }

    /// The least number of entries taken by any of `members` members; the caller is a member and has taken `own`
    /// entries.
    #[must_use]
    pub fn least_taken(&self, members: u32, own: u32) -> u32 {
        let behind = (0..members).map(|place| {
            // PAIR(queue-taken): `take` stores it with Release.
            own.wrapping_sub(self.taken_by(place).load(Ordering::Acquire))
        });
        // A member that has taken more entries than this one does not limit the result. A garbled count makes results
        // wrong, or makes members wait.
        let most = behind.filter(|behind| *behind <= u32::MAX / 2).max();
        own.wrapping_sub(most.unwrap_or(0))
    }

    /// Announces that member `place` is about to sleep until all have taken `count` entries. Then the member must check
    /// once more whether all have taken that many entries, and sleep only if some have not.
    pub fn doze(&self, place: u32, count: u32) {
        let word = u64::from(count) << 32 | u64::from(place.wrapping_add(1));
        self.waiter.0.store(word, Ordering::Relaxed);
        // PAIR(queue-room): a member that takes an entry fences before it looks for the waiting one.
        fence(Ordering::SeqCst);
    }

    /// Revokes `doze`: the member is awake again.
    pub fn rise(&self) {
        self.waiter.0.store(0, Ordering::Relaxed);
    }

    /// The member to wake: it may be sleeping, and all of `members` members have now taken as many entries as it waits
    /// for. `None`: there is none. Called by a member that has just raised its own count to `own`.
    #[inline]
    #[must_use]
    pub fn waiter(&self, members: u32, own: u32) -> Option<u32> {
        // PAIR(queue-room): `doze` stores the waiting member, fences, and then checks once more.
        fence(Ordering::SeqCst);
        #[allow(clippy::cast_possible_truncation, reason = "the halves of a word")]
        let (count, place) = match self.waiter.0.load(Ordering::Relaxed) {
            0 => return None,
            word => ((word >> 32) as u32, (word as u32).checked_sub(1)?),
        };
        // Only a member that has just taken the last awaited entry, `count - 1`, looks at the counts of all members. If
        // several members do that at the same time, each sees the counts of those that fenced before it, so the last
        // one sees all counts. And the waiting member itself checks once more.
        if own != count {
            return None;
        }
        let least = self.least_taken(members, own);
        (least == count).then_some(place)
    }

    /// Member `place` announces its call: a word that is not 0, whose meaning the members define. A member that reads
    /// the word sees all stores that were made before the announcement.
    pub fn announce(&self, place: u32, word: u64) {
        // PAIR(queue-call): `call_of` loads it with Acquire.
        self.call(place).store(word, Ordering::Release);
    }

    /// The last announcement of member `place`; 0: none.
    #[must_use]
    pub fn call_of(&self, place: u32) -> u64 {
        // PAIR(queue-call): `announce` stores it with Release.
        self.call(place).load(Ordering::Acquire)
    }

    /// Resets the queue to entry 0. Called only while no other member uses the queue.
    pub fn begin(&self) {
        for entry in &self.entries {
            entry.published.store(0, Ordering::Relaxed);
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
            published: AtomicU64::new(0),
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

/// Maximum number of entries that are published and not yet taken by all members.
#[cfg(not(loom))]
pub const ENTRIES: u32 = 64;
/// In a model: the smallest number with which the queue wraps.
#[cfg(loom)]
pub const ENTRIES: u32 = 2;
const MEMBERS: usize = if cfg!(loom) {
    3
} else {
    MAX_LOCAL_RANKS as usize
};
const BODY_WORDS: usize = if cfg!(loom) { 1 } else { 6 };
/// Maximum length of the body of an entry, in bytes.
pub const QUEUE_BODY_BYTES: usize = 8 * BODY_WORDS;

#[cfg(not(loom))]
const _: () = assert!(size_of::<BcastQueue>() <= crate::layout::QUEUE_WORDS_BYTES);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOTE: RoundNote = RoundNote { kind: 2, bytes: 8 };

    fn head(place: u32, end: u32) -> BcastEntryHead {
        let note = NOTE;
        BcastEntryHead { note, place, end }
    }

    #[test]
    fn entry_is_visible_from_publish_to_the_next_lap() {
        let queue = BcastQueue::new();
        assert_eq!(queue.entry(0), None);
        for number in [0, 1, ENTRIES - 1, ENTRIES, u32::MAX] {
            assert!(queue.put(number, &number.to_ne_bytes()));
            queue.publish(number, head(1023, u32::MAX));
            assert_eq!(queue.entry(number), Some(head(1023, u32::MAX)));
            let mut bytes = [0; 4];
            assert!(queue.get(number, 0, &mut bytes));
            assert_eq!(u32::from_ne_bytes(bytes), number);
        }
        assert_eq!(queue.entry(0), None, "number {ENTRIES} is in its place");
    }

    #[test]
    fn entry_body_holds_48_bytes() {
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
    fn least_taken_is_the_count_of_the_slowest_member() {
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
    fn waiter_is_returned_once_all_have_taken_enough() {
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
    fn begin_clears_all_state() {
        let queue = BcastQueue::new();
        (0..1000).for_each(|number| queue.publish(number, head(0, 0)));
        queue.take(7, 1000);
        queue.announce(7, 5);
        queue.begin();
        assert_eq!((queue.taken(7), queue.call_of(7)), (0, 0));
        assert!((900..1000).all(|number| queue.entry(number).is_none()));
    }
}
