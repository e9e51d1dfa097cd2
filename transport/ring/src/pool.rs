// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records which of a sender's bounce buffers are in use. The sender acquires a buffer, fills it and names it in a
//! frame; the receiver copies the bytes out and releases the buffer. [`PoolBuffer`](crate::PoolBuffer) copies the bytes
//! in and out.

use crate::layout::{POOL_BUFFERS, POOL_PLACES};
use crate::sync::{AtomicU32, Ordering};

/// The shared half of a pool: the number of releases of each buffer. Only receivers write it: the word of a buffer is
/// written only by the receiver that has the buffer. The words are adjacent, so the sender finds many returned buffers
/// with one read of a cache line.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub struct PoolSide {
    releases: [AtomicU32; POOL_BUFFERS as usize],
}

impl PoolSide {
    /// Receiver: returns the buffer whose place is `index` to its sender. An invalid index has no effect.
    #[inline]
    pub fn release(&self, index: u32) {
        if index >= POOL_BUFFERS * POOL_PLACES {
            return;
        }
        if let Some(count) = self.releases.get((index % POOL_BUFFERS) as usize) {
            let next = count.load(Ordering::Relaxed).wrapping_add(1);
            // PAIR(pool-free): Pool::came_back loads the word with Acquire before the sender writes again.
            count.store(next, Ordering::Release);
        }
    }

    /// A new shared half in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        Self {
            releases: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl Default for PoolSide {
    fn default() -> Self {
        Self::new()
    }
}

/// The sender's half of a pool: a bit for each buffer that was taken and is not known to be released.
#[derive(Debug)]
pub struct Pool<'a> {
    side: &'a PoolSide,
    busy: u64,
    last: u32,
    /// The present place of each buffer.
    places: [u32; POOL_BUFFERS as usize],
    /// Each buffer's count of releases when it was taken.
    taken_at: [u32; POOL_BUFFERS as usize],
}

impl<'a> Pool<'a> {
    /// The pool of a new shared half, whose words are 0. There must be only one pool for each shared half.
    #[must_use]
    pub fn new(side: &'a PoolSide) -> Self {
        Self {
            side,
            busy: 0,
            last: POOL_BUFFERS - 1,
            places: [0; POOL_BUFFERS as usize],
            taken_at: [0; POOL_BUFFERS as usize],
        }
    }

    /// Takes a buffer: the buffer used last if it is free again (its bytes are still in the cache), else the next free
    /// buffer. Returns the buffer's place: its number plus a multiple of the number of buffers. `None`: all buffers are
    /// in use.
    pub fn acquire(&mut self) -> Option<u32> {
        let last = self.last;
        if self.busy & 1 << last != 0 && self.came_back(last) {
            return Some(self.take(last));
        }
        self.next_free().map(|index| self.take(index))
    }

    /// Takes the next free buffer, in its next place. The shared half is read only if no buffer is known to be free.
    /// This is for receivers on other cores: then reading the shared half costs as much as a message, and the buffer
    /// used last is still in the receiver's cache.
    pub fn acquire_in_turn(&mut self) -> Option<u32> {
        let index = self.next_free()?;
        let place = &mut self.places[index as usize];
        *place = (*place + 1) % POOL_PLACES;
        Some(self.take(index))
    }

    fn next_free(&mut self) -> Option<u32> {
        if self.busy == u64::MAX {
            self.reclaim();
        }
        let first = (self.last + 1) % POOL_BUFFERS;
        let ahead = (!self.busy).rotate_right(first);
        if ahead == 0 {
            return None;
        }
        Some((first + ahead.trailing_zeros()) % POOL_BUFFERS)
    }

    /// Puts back a buffer that was taken and never named in a frame.
    pub fn put_back(&mut self, index: u32) {
        self.busy &= !(1 << (index % POOL_BUFFERS));
    }

    /// Number of buffers in use, after a check for released ones.
    pub fn in_use(&mut self) -> u32 {
        self.reclaim();
        self.busy.count_ones()
    }

    fn reclaim(&mut self) {
        for index in 0..POOL_BUFFERS {
            if self.busy & 1 << index != 0 && self.came_back(index) {
                self.busy &= !(1 << index);
            }
        }
    }

    /// Whether a buffer was released since it was taken; a second call for the same release returns `false`. If a
    /// receiver releases a buffer that it does not have, the effect is only that payloads are garbled, its own or
    /// another receiver's.
    fn came_back(&mut self, index: u32) -> bool {
        let at = index as usize;
        // PAIR(pool-free): PoolSide::release stores the word with Release after the receiver's copy.
        let count = self.side.releases[at].load(Ordering::Acquire);
        let back = count != self.taken_at[at];
        self.taken_at[at] = count;
        back
    }

    /// Marks the buffer as in use and returns its place. The frame that names the buffer publishes its bytes:
    /// PAIR(slot-full).
    fn take(&mut self, index: u32) -> u32 {
        self.busy |= 1 << index;
        self.last = index;
        index + self.places[index as usize] * POOL_BUFFERS
    }
}

const _: () = assert!(POOL_BUFFERS == 64, "the bitmap has one bit per buffer");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_released_buffer_is_used_again_first() {
        let side = PoolSide::new();
        let mut pool = Pool::new(&side);
        let first = pool.acquire().unwrap();
        let second = pool.acquire().unwrap();
        assert_ne!(first, second);
        side.release(second);
        assert_eq!(pool.acquire(), Some(second));
        assert_eq!(pool.in_use(), 2);
    }

    #[test]
    fn buffers_and_their_places_rotate() {
        let side = PoolSide::new();
        let mut pool = Pool::new(&side);
        for lap in 1..=2 * POOL_PLACES {
            for turn in 0..POOL_BUFFERS {
                let place = turn + lap % POOL_PLACES * POOL_BUFFERS;
                assert_eq!(pool.acquire_in_turn(), Some(place), "lap {lap}");
                side.release(place);
            }
        }
        for _ in 0..POOL_BUFFERS {
            assert!(pool.acquire_in_turn().is_some());
        }
        assert_eq!(pool.acquire_in_turn(), None);
        side.release(63);
        side.release(POOL_BUFFERS * POOL_PLACES);
        assert_eq!(pool.acquire_in_turn(), Some(63 + 2 * POOL_BUFFERS));
        assert_eq!(pool.acquire_in_turn(), None);
    }

    #[test]
    fn acquire_fails_until_a_buffer_is_released() {
        let side = PoolSide::new();
        let mut pool = Pool::new(&side);
        for _ in 0..POOL_BUFFERS {
            assert!(pool.acquire().is_some());
        }
        assert_eq!(pool.acquire(), None);
        side.release(17);
        side.release(9999);
        assert_eq!(pool.acquire(), Some(17));
        assert_eq!(pool.acquire(), None);
        pool.put_back(17);
        assert_eq!(pool.in_use(), 63);
    }
}
