// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of an engine, for tools inside its own process (MPI_T performance variables).
//!
//! Only the thread that owns the engine counts, with plain loads and stores. At any time any thread may read the
//! numbers, or start, reset and stop an observer of a watermark; so may a signal handler that interrupted the owner.
//! All accesses are relaxed, so two values that are read together need not be consistent.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::EventMask;

/// A counter that one thread changes and any thread may read.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct OwnedCounter(AtomicU64);

impl OwnedCounter {
    /// The present value.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the value; only the owner may call it.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds to the value; only the owner may call it.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Subtracts from the value; only the owner may call it.
    #[inline(always)]
    pub fn sub(&self, less: u64) {
        self.set(self.get().wrapping_sub(less));
    }
}

/// Maximum number of watermark observers of one counter.
pub const WATCHES: usize = 16;

/// A number that rises and falls. Each observer has the high or low watermark of the number since the observer started.
#[derive(Debug, Default)]
pub struct WatermarkCounter {
    now: OwnedCounter,
    /// The bit of an observer, by its index, is set while the observer is in use.
    used: AtomicU32,
    /// The bit of an observer is set if it observes the low watermark, clear if it observes the high one.
    low: AtomicU32,
    extremes: [AtomicU64; WATCHES],
}

/// An observer of a [`WatermarkCounter`], by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkObserver(pub usize);

impl WatermarkCounter {
    /// The present value.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.now.get()
    }

    /// Adds to the value; only the owner may call it.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.now.add(more);
        if self.used.load(Relaxed) != 0 {
            self.note();
        }
    }

    /// Subtracts from the value; only the owner may call it.
    #[inline(always)]
    pub fn sub(&self, less: u64) {
        self.now.sub(less);
        if self.used.load(Relaxed) != 0 {
            self.note();
        }
    }

    #[cold]
    fn note(&self) {
        let (now, used, low) = (self.get(), self.used.load(Relaxed), self.low.load(Relaxed));
        for (at, extreme) in self.extremes.iter().enumerate() {
            if used >> at & 1 == 0 {
            } else if low >> at & 1 != 0 {
                extreme.fetch_min(now, Relaxed);
            } else {
                extreme.fetch_max(now, Relaxed);
            }
        }
    }

    /// Starts an observer, with the present value as its first watermark. `for_lowest`: whether it observes the low
    /// watermark; if not, the high one. `None`: all observers are in use.
    pub fn watch(&self, for_lowest: bool) -> Option<WatermarkObserver> {
        let free = (0..WATCHES).find(|at| {
            let bit = 1 << at;
            self.used.load(Relaxed) & bit == 0 && self.used.fetch_or(bit, Relaxed) & bit == 0
        })?;
        match for_lowest {
            true => self.low.fetch_or(1 << free, Relaxed),
            false => self.low.fetch_and(!(1 << free), Relaxed),
        };
        self.set_extreme(WatermarkObserver(free), self.get());
        Some(WatermarkObserver(free))
    }

    /// Stops an observer.
    pub fn unwatch(&self, watch: WatermarkObserver) {
        self.used.fetch_and(!(1 << watch.0), Relaxed);
    }

    /// The watermark of an observer; 0 for an index out of range.
    #[must_use]
    pub fn extreme(&self, watch: WatermarkObserver) -> u64 {
        self.extremes
            .get(watch.0)
            .map_or(0, |extreme| extreme.load(Relaxed))
    }

    /// Sets the watermark; returns the previous one.
    pub fn set_extreme(&self, watch: WatermarkObserver, value: u64) -> u64 {
        self.extremes
            .get(watch.0)
            .map_or(0, |extreme| extreme.swap(value, Relaxed))
    }
}

/// The two queues of matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// Messages that no receive has matched.
    Unexpected,
    /// Receives that no message has matched.
    Posted,
}

/// Maximum number of queues of one kind that are observed at a time.
pub const QUEUES: usize = 64;

/// Lengths of the queues of one kind, for the contexts that are observed.
#[derive(Debug)]
pub struct Queues {
    /// Number of rows in use.
    watched: AtomicU32,
    rows: [QueueLength; QUEUES],
}

/// Length of one observed queue.
#[derive(Debug)]
struct QueueLength {
    used: AtomicU32,
    context: AtomicU32,
    length: OwnedCounter,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            watched: AtomicU32::new(0),
            rows: core::array::from_fn(|_| QueueLength {
                used: AtomicU32::new(0),
                context: AtomicU32::new(0),
                length: OwnedCounter::default(),
            }),
        }
    }
}

impl Queues {
    /// Counts an entry added to the queue of a context; only the owner may call it.
    #[inline(always)]
    pub fn arrived(&self, context: u32) {
        if self.are_watched() {
            self.of(context).for_each(|queue| queue.length.add(1));
        }
    }

    /// Counts an entry removed from the queue of a context; only the owner may call it.
    #[inline(always)]
    pub fn left(&self, context: u32) {
        if self.are_watched() {
            self.of(context).for_each(|queue| queue.length.sub(1));
        }
    }

    fn of(&self, context: u32) -> impl Iterator<Item = &QueueLength> {
        let rows = self.rows.iter();
        rows.filter(move |row| row.used.load(Relaxed) != 0 && row.context.load(Relaxed) == context)
    }

    /// Whether any queue is observed.
    #[inline(always)]
    #[must_use]
    pub fn are_watched(&self) -> bool {
        self.watched.load(Relaxed) != 0
    }

    /// Starts to observe the queue of a context; `length` is its present length. Returns the index of the observed
    /// queue; `None` if too many are observed. Only the owner may call it.
    pub fn watch(&self, context: u32, length: u64) -> Option<usize> {
        let free = |row: &QueueLength| row.used.load(Relaxed) == 0;
        let at = self.rows.iter().position(free)?;
        let row = &self.rows[at];
        row.context.store(context, Relaxed);
        row.length.set(length);
        row.used.store(1, Relaxed);
        self.watched.fetch_add(1, Relaxed);
        Some(at)
    }

    /// Stops observing a queue.
    pub fn unwatch(&self, at: usize) {
        if let Some(row) = self.rows.get(at)
            && row.used.swap(0, Relaxed) != 0
        {
            self.watched.fetch_sub(1, Relaxed);
        }
    }

    /// The length of an observed queue.
    #[must_use]
    pub fn length(&self, at: usize) -> u64 {
        self.rows.get(at).map_or(0, |row| row.length.get())
    }
}

/// The counters of an engine.
#[derive(Debug, Default)]
pub struct EngineCounters {
    /// Invalid frames.
    pub refused: OwnedCounter,
    /// Unexpected messages since the start.
    pub unexpected: OwnedCounter,
    /// Bytes of unexpected data kept at present, including the overhead of each message.
    pub kept_bytes: WatermarkCounter,
    /// Highest value of `kept_bytes`.
    pub kept_bytes_peak: OwnedCounter,
    /// Number of unexpected messages that are not matched.
    pub unexpected_length: WatermarkCounter,
    /// Unexpected messages not matched, by context, for the observed contexts.
    unexpected_queues: Queues,
    /// Receives posted and not matched, by context, for the observed contexts. There is no total over all contexts,
    /// because counting it would cost time for every message.
    posted_queues: Queues,
    /// Queue entries inspected while matching. The fast path on which a message names the token of its receive counts
    /// none.
    pub match_attempts: OwnedCounter,
    /// How often this process throttled a sender.
    pub throttles: OwnedCounter,
    /// Messages sent by rendezvous.
    pub announced: OwnedCounter,
    /// Bytes of the messages that `announced` counts.
    pub announced_bytes: OwnedCounter,
    /// Messages sent without a rendezvous in several frames.
    pub early: OwnedCounter,
    /// Bytes of the messages that `early` counts.
    pub early_bytes: OwnedCounter,
    /// Messages of persistent sends that were copied through a gate of their receive instead of sent in frames.
    pub gated: OwnedCounter,
    /// Bytes of the messages that `gated` counts.
    pub gated_bytes: OwnedCounter,
    /// Announced messages whose data were read from the sender's memory.
    pub pulled: OwnedCounter,
    /// Bytes of the messages that `pulled` counts.
    pub pulled_bytes: OwnedCounter,
    /// Announced messages whose data were streamed in frames.
    pub streamed: OwnedCounter,
    /// Bytes of the messages that `streamed` counts.
    pub streamed_bytes: OwnedCounter,
    /// Operations for which cancellation was requested.
    pub cancels: OwnedCounter,
    /// Messages longer than their receive.
    pub truncated: OwnedCounter,
    /// Operations that failed because a peer is dead.
    pub lost: OwnedCounter,
    /// How often a receiver throttled this process.
    pub throttled: OwnedCounter,
    /// How often a receiver released this process.
    pub released: OwnedCounter,
    /// Number of long waits that have ended.
    pub waits: OwnedCounter,
    /// Total time of long waits in nanoseconds. Each wait is counted from the moment when it became long.
    pub waited_ns: OwnedCounter,
    /// Number of times that this process yielded its core to other processes.
    pub yields: OwnedCounter,
    /// Number of communicators that this process has at present.
    pub communicators: WatermarkCounter,
    /// Number of communicators made since the start.
    pub communicators_made: OwnedCounter,
    /// Event types that tools have subscribed to.
    pub subscribed: EventMask,
}

impl EngineCounters {
    /// The observed queues of one kind.
    #[inline(always)]
    #[must_use]
    pub fn queues(&self, kind: Queued) -> &Queues {
        match kind {
            Queued::Unexpected => &self.unexpected_queues,
            Queued::Posted => &self.posted_queues,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_watermark_observer_has_its_own_extreme() {
        let level = WatermarkCounter::default();
        level.add(10);
        let high = level.watch(false).unwrap();
        level.sub(4);
        let low = level.watch(true).unwrap();
        let later = level.watch(false).unwrap();
        assert_eq!((level.extreme(high), level.extreme(low)), (10, 6));
        level.sub(5);
        level.add(8);
        assert_eq!((level.extreme(high), level.extreme(low)), (10, 1));
        assert_eq!((level.extreme(later), level.get()), (9, 9));
        assert_eq!(level.set_extreme(high, level.get()), 10);
        assert_eq!((level.extreme(high), level.extreme(later)), (9, 9));
        level.unwatch(low);
        level.sub(9);
        assert_eq!(level.extreme(low), 1);
        let again = level.watch(false).unwrap();
        assert_eq!((again, level.extreme(again)), (low, 0));
    }

    #[test]
    fn watermark_observers_and_queues_are_limited() {
        let level = WatermarkCounter::default();
        assert!((0..WATCHES).all(|at| level.watch(true) == Some(WatermarkObserver(at))));
        assert_eq!(level.watch(true), None);
        let queues = Queues::default();
        assert!((0..QUEUES).all(|at| queues.watch(1, 0) == Some(at)));
        assert_eq!(queues.watch(1, 0), None);
        queues.unwatch(3);
        queues.unwatch(3);
        assert_eq!(queues.watch(2, 5), Some(3));
    }

    #[test]
    fn a_watched_queue_counts_its_length() {
        let queues = Queues::default();
        queues.arrived(4);
        let (first, other) = (queues.watch(4, 1).unwrap(), queues.watch(8, 0).unwrap());
        queues.arrived(4);
        queues.arrived(4);
        queues.left(4);
        queues.arrived(8);
        let second = queues.watch(4, 2).unwrap();
        queues.left(4);
        let lengths = [first, other, second].map(|at| queues.length(at));
        assert_eq!(lengths, [1, 1, 1]);
    }
}
