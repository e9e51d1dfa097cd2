// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's place in the broadcast queue of a board, which is shared memory for collectives (see
//! [`Seat`](crate::Seat)). A member publishes entries to all other members, and takes the entries that they publish.
//! Entries are in the order of the collective calls. A publisher does not wait for readers as long as there is room.

use std::cell::Cell;

use ring::layout::QUEUE_BYTES;
use ring::{BoardParts, ENTRIES, QUEUE_BODY_BYTES, RoundNote, SharedBytes};

pub use ring::BcastEntryHead;

/// A member's place in a broadcast queue, and its count of entries taken.
#[derive(Debug)]
pub struct BcastQueueMember {
    words: &'static ring::BcastQueue,
    ring: SharedBytes,
    members: u32,
    place: u32,
    /// Number of the entry that this member publishes or takes next.
    next: Cell<u32>,
    /// Number of entries that all members had taken when this member last checked.
    taken: Cell<u32>,
    /// Where the bytes of each recent entry end, counted from the start of the queue; indexed by entry number modulo
    /// `ENTRIES`.
    ends: Box<[Cell<u64>]>,
}

impl BcastQueueMember {
    /// Takes place `place` of `members`. All members start at the queue's start.
    pub(crate) fn take_place(parts: &BoardParts, members: u32, place: u32) -> Self {
        let first = parts.queue.taken(place);
        Self {
            words: parts.queue,
            ring: parts.ring,
            members,
            place,
            next: Cell::new(first),
            taken: Cell::new(first),
            ends: (0..ENTRIES).map(|_| Cell::new(0)).collect(),
        }
    }

    /// The number of the entry that this member publishes or takes next.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u32 {
        self.next.get()
    }

    /// Whether an entry with `length` bytes, at most [`CHUNK_BYTES`], has room.
    #[inline]
    #[must_use]
    pub fn has_room(&self, length: usize) -> bool {
        self.has_known_room(length) || {
            let next = self.next.get();
            self.taken.set(self.words.least_taken(self.members, next));
            self.has_known_room(length)
        }
    }

    fn has_known_room(&self, length: usize) -> bool {
        let (next, taken) = (self.next.get(), self.taken.get());
        let free = self.end_before(taken);
        let end = self.place_bytes(length).end;
        next.wrapping_sub(taken) < ENTRIES && end.wrapping_sub(free) <= QUEUE_BYTES as u64
    }

    /// For an entry with `length` bytes that has no room now: the number of entries that all members must have taken
    /// before it is published. That number leaves room for several more entries, so a waiting member is not woken for
    /// each entry.
    #[must_use]
    pub fn room_target(&self, length: usize) -> u32 {
        let (next, taken) = (self.next.get(), self.taken.get());
        let end = self.place_bytes(length).end + QUEUE_BYTES as u64 / 2;
        let behind = next.wrapping_sub(taken).min(ENTRIES);
        let is_enough = |left: &u32| {
            let free = self.end_before(next.wrapping_sub(*left));
            *left <= ENTRIES / 2 && end.wrapping_sub(free) <= QUEUE_BYTES as u64
        };
        let left = (0..behind).rev().find(is_enough).unwrap_or(0);
        next.wrapping_sub(left)
    }

    /// Whether all members have taken `count` entries.
    #[must_use]
    pub fn have_taken(&self, count: u32) -> bool {
        let next = self.next.get();
        let least = self.words.least_taken(self.members, next);
        next.wrapping_sub(least) <= next.wrapping_sub(count)
    }

    /// Publishes the next entry, for which there is [room](Self::has_room).
    ///
    /// # Panics
    /// When `bytes` is longer than [`CHUNK_BYTES`].
    pub fn publish(&self, note: RoundNote, bytes: &[u8]) {
        let number = self.next.get();
        let placed = self.place_bytes(bytes.len());
        let fits = match is_inline(bytes.len()) {
            true => self.words.put(number, bytes),
            false => self.ring.fill(offset(placed.start), bytes),
        };
        assert!(fits, "{} bytes in a broadcast queue", bytes.len());
        let head = BcastEntryHead {
            note,
            place: self.place,
            end: u32::try_from(offset(placed.end)).unwrap_or(0),
        };
        self.words.publish(number, head);
        self.go_on(placed.end);
    }

    /// The next entry, if it was published already.
    #[inline]
    #[must_use]
    pub fn next_entry(&self) -> Option<BcastEntryHead> {
        self.words.entry(self.next.get())
    }

    /// Whether entry `number` was published.
    #[must_use]
    pub fn is_published(&self, number: u32) -> bool {
        self.words.entry(number).is_some()
    }

    /// Announces that this member is at call `call` and has missed an earlier call; `publishes`: whether it is about to
    /// publish entries of `call`.
    pub fn announce(&self, call: u32, publishes: bool) {
        let word = u64::from(call) | u64::from(publishes) << 32 | 1 << 33;
        self.words.announce(self.place, word);
    }

    /// The call that the member at `place` [announced](Self::announce) last, and whether that member is about to
    /// publish entries of the call; `None`: it has announced none.
    #[must_use]
    pub fn announced(&self, place: u32) -> Option<(u32, bool)> {
        let word = self.words.call_of(place);
        #[allow(clippy::cast_possible_truncation, reason = "its low half")]
        (word != 0).then_some((word as u32, word >> 32 & 1 != 0))
    }

    /// Copies bytes of the next entry, from its byte `at` on, to `into`. `length`: bytes of the whole entry. If another
    /// process has garbled the entry, the bytes are arbitrary.
    pub fn read(&self, head: &BcastEntryHead, length: usize, at: usize, into: &mut [u8]) {
        let _ = match is_inline(length) {
            true => self.words.get(self.next.get(), at, into),
            false => {
                let start = offset(u64::from(head.end).wrapping_sub(padded(length)));
                self.ring.drain(start.saturating_add(at), into)
            }
        };
    }

    /// Marks the next entry, with head `head`, as taken: this member has finished reading it.
    #[inline]
    pub fn take(&self, head: &BcastEntryHead) {
        let before = self.end_before(self.next.get());
        let more = offset(u64::from(head.end).wrapping_sub(before));
        self.go_on(before + more as u64);
    }

    /// Runs `sleep`, which is woken when all members have taken `count` entries.
    pub(crate) fn sleep_until_taken<R>(&self, count: u32, sleep: impl FnOnce() -> R) -> R {
        self.words.doze(self.place, count);
        let slept = sleep();
        self.words.rise();
        slept
    }

    /// A member to wake: it may be in [`sleep_until_taken`](Self::sleep_until_taken), and all members have now taken
    /// its `count` entries. `None`: there is none.
    pub(crate) fn waiter(&self) -> Option<u32> {
        self.words.waiter(self.members, self.next.get())
    }

    fn go_on(&self, end: u64) {
        let number = self.next.get();
        self.ends[(number % ENTRIES) as usize].set(end);
        self.next.set(number.wrapping_add(1));
        self.words.take(self.place, self.next.get());
    }

    /// End of the bytes of the entry before `number`.
    fn end_before(&self, number: u32) -> u64 {
        self.ends[(number.wrapping_sub(1) % ENTRIES) as usize].get()
    }

    /// Byte range in the ring for the next entry, in one piece.
    fn place_bytes(&self, length: usize) -> std::ops::Range<u64> {
        let start = self.end_before(self.next.get());
        if is_inline(length) {
            return start..start;
        }
        let ring = QUEUE_BYTES as u64;
        let left = ring - start % ring;
        let start = if left < padded(length) {
            start + left
        } else {
            start
        };
        start..start + padded(length)
    }
}

/// Whether the bytes lie in the entry itself.
fn is_inline(length: usize) -> bool {
    length <= QUEUE_BODY_BYTES
}

/// Ring bytes used for `length` bytes: whole cache lines.
fn padded(length: usize) -> u64 {
    length.next_multiple_of(64) as u64
}

/// Offset in the ring of a position counted from the queue's start.
#[allow(clippy::cast_possible_truncation, reason = "below the ring's length")]
fn offset(at: u64) -> usize {
    (at % QUEUE_BYTES as u64) as usize
}

/// Maximum number of bytes of an entry.
pub const CHUNK_BYTES: usize = 16 * 1024;
