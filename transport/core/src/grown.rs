// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table that grows while others read it: its entries never move. Only one thread at a time may grow it; any thread,
//! and any signal handler, may read it.

use std::sync::OnceLock;

/// A fixed number of first entries, followed by entries added later.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use transport::Grown;
///
/// let table: Grown<AtomicU32> = Grown::new(2);
/// assert!(table.get(2).is_none());
/// table.grow_to(3);
/// table.get(2).unwrap().store(7, Ordering::Relaxed);
/// assert_eq!(table.iter().map(|entry| entry.load(Ordering::Relaxed)).sum::<u32>(), 7);
/// ```
#[derive(Debug)]
pub struct Grown<T> {
    first: Box<[T]>,
    /// Chunks added later, each twice as long as the one before it.
    more: [OnceLock<Box<[T]>>; CHUNKS],
}

/// Number of entries of the first chunk that is added later.
const FIRST_CHUNK: usize = 64;
const CHUNKS: usize = 24;

impl<T: Default> Grown<T> {
    /// A table with `len` entries.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            first: entries(len),
            more: [const { OnceLock::new() }; CHUNKS],
        }
    }

    /// Grows the table to at least `len` entries, perhaps a few more.
    ///
    /// # Panics
    /// When `len` exceeds the initial length by 2^30 or more.
    pub fn grow_to(&self, len: usize) {
        let Some(last) = len.checked_sub(self.first.len() + 1) else {
            return;
        };
        let (last, _) = place(last);
        for (number, chunk) in self.more[..=last].iter().enumerate() {
            chunk.get_or_init(|| entries(FIRST_CHUNK << number));
        }
    }
}

impl<T> Grown<T> {
    /// The entry at index `at`; `None` if there is none yet.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&T> {
        match self.first.get(at) {
            Some(entry) => Some(entry),
            None => self.get_later(at),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_later(&self, at: usize) -> Option<&T> {
        let (chunk, at) = place(at - self.first.len());
        self.more.get(chunk)?.get()?.get(at)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let more = self.more.iter().map_while(OnceLock::get);
        self.first.iter().chain(more.flat_map(|chunk| chunk.iter()))
    }
}

fn entries<T: Default>(len: usize) -> Box<[T]> {
    (0..len).map(|_| T::default()).collect()
}

/// The chunk of entry `later`, counted from the first entry that was added later, and the entry's index in the chunk.
fn place(later: usize) -> (usize, usize) {
    let chunk = (later / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, later - FIRST_CHUNK * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn entries_keep_their_addresses_while_the_table_grows() {
        for first in [0, 1, 100] {
            let table: Grown<Mutex<u32>> = Grown::new(first);
            assert!(table.get(first).is_none());
            let mut addresses = Vec::new();
            for len in first..first + 1000 {
                table.grow_to(len + 1);
                let entry = table.get(len).unwrap();
                let before = std::mem::replace(&mut *entry.lock().unwrap(), 1);
                assert_eq!(before, 0, "it is not shared");
                addresses.push(std::ptr::from_ref(entry));
            }
            let now = table.iter().skip(first).map(std::ptr::from_ref);
            assert!(now.take(1000).eq(addresses));
            table.grow_to(1);
            assert!(table.get(first + 999).is_some());
        }
    }

    #[test]
    fn the_table_may_grow_by_many_entries_at_once() {
        let table: Grown<u8> = Grown::new(3);
        table.grow_to(100_000);
        assert!(table.iter().count() >= 100_000);
        assert!(table.get(99_999).is_some() && table.get(usize::MAX).is_none());
    }

    #[test]
    fn another_thread_may_read_while_the_table_grows() {
        let table: Grown<Mutex<u32>> = Grown::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| while table.iter().count() < 5000 {});
            (0..5000).for_each(|len| table.grow_to(len + 1));
        });
    }
}
