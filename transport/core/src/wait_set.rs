// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds everything that can end a sleep: doorbells, which peers ring through memory, descriptors that become readable,
//! and the time at which a provider must be polled. Each provider of a process adds its own events before every sleep,
//! independently of the other providers.
//!
//! The kernel waits for words of memory (`futex`) or for descriptors (`poll`), not for both. If a set has both, a
//! [`Watcher`] waits for the descriptors and rings the first doorbell.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use ring::Bell;

use crate::wait;
use crate::watcher::Watcher;

/// The events that end the next sleep. The set is filled anew each time. All its room is allocated at the start: a
/// wait allocates nothing, except for the thread of the watcher.
#[derive(Debug)]
pub(crate) struct WaitSet {
    /// At most [`wait::MOST_WORDS`].
    doorbells: Vec<Doorbell>,
    /// At most [`wait::MOST_DESCRIPTORS`].
    descriptors: Vec<RawFd>,
    longest: Duration,
    /// Created at the first sleep that needs it.
    watcher: Option<Watcher>,
}

/// A doorbell ([`Bell`]) of this process, on which it has announced that it will sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell {
    pub(crate) bell: &'static Bell,
    /// The process's local rank on the node of that bell.
    pub(crate) local_rank: u32,
}

impl WaitSet {
    pub(crate) fn new() -> Self {
        Self {
            doorbells: Vec::with_capacity(wait::MOST_WORDS),
            descriptors: Vec::with_capacity(wait::MOST_DESCRIPTORS),
            longest: Duration::ZERO,
            watcher: None,
        }
    }

    /// Empties the set for a sleep of `longest` at most.
    pub(crate) fn begin(&mut self, longest: Duration) {
        self.doorbells.clear();
        self.descriptors.clear();
        self.longest = longest;
    }

    /// Empties the set, except for the descriptors of the last sleep, which must still be open. The caller adds no
    /// descriptors for this sleep.
    pub(crate) fn begin_as_before(&mut self, longest: Duration) {
        self.doorbells.clear();
        self.longest = longest;
    }

    /// Whether the last sleep had descriptors, and a thread to watch them.
    pub(crate) fn has_watched(&self) -> bool {
        self.watcher.is_some() && !self.descriptors.is_empty()
    }

    /// Adds a bell of this process. The caller must first have called [`Bell::doze`] on the bell, and then polled
    /// without finding anything. If the set is full, limits the sleep to [`UNNOTICED`] instead.
    pub(crate) fn add_doorbell(&mut self, doorbell: Doorbell) {
        if self.doorbells.len() < wait::MOST_WORDS {
            self.doorbells.push(doorbell);
        } else {
            // A ring of this bell is noticed at the next poll.
            self.poll_after(UNNOTICED);
        }
    }

    /// Adds a descriptor that becomes readable when there is work; it stays open until the sleep ends.
    pub(crate) fn add_descriptor(&mut self, descriptor: BorrowedFd<'_>) {
        if self.descriptors.len() < wait::MOST_DESCRIPTORS {
            self.descriptors.push(descriptor.as_raw_fd());
        } else {
            self.poll_after(UNNOTICED);
        }
    }

    /// Limits the sleep to `limit`: a provider must be polled then, because work is due or it cannot wake the process.
    pub(crate) fn poll_after(&mut self, limit: Duration) {
        self.longest = self.longest.min(limit);
    }

    /// Longest time for the sleep.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Whether only the timeout would end the sleep.
    pub(crate) fn is_empty(&self) -> bool {
        self.doorbells.is_empty() && self.descriptors.is_empty()
    }

    /// Sleeps until an event of the set occurs, at most for [`longest`](Self::longest). May wake spuriously.
    pub(crate) fn sleep(&mut self) {
        let Some(first) = self.doorbells.first().copied() else {
            return self.sleep_without_doorbell();
        };
        if !self.descriptors.is_empty() && !self.is_watched(first) {
            self.poll_after(UNNOTICED);
        }
        let asleep = |doorbell: &Doorbell| (doorbell.bell.sleep_word(), Bell::ASLEEP);
        match &self.doorbells[..] {
            [only] => {
                let (word, expected) = asleep(only);
                wait::futex_wait(word, expected, self.longest);
            }
            several => {
                let words = several.iter().map(asleep);
                if !wait::futex_wait_any(words, self.longest) {
                    let (word, expected) = asleep(&first);
                    wait::futex_wait(word, expected, self.longest.min(UNNOTICED));
                }
            }
        }
    }

    fn sleep_without_doorbell(&self) {
        match self.descriptors.is_empty() {
            true => std::thread::sleep(self.longest),
            false => _ = wait::poll_readable(&self.descriptors, self.longest),
        }
    }

    /// Lets a watcher watch the descriptors for the process of `doorbell`. `false`: no watcher can be created.
    fn is_watched(&mut self, doorbell: Doorbell) -> bool {
        let watches = |watcher: &Watcher| watcher.watches(&self.descriptors, doorbell);
        if !self.watcher.as_ref().is_some_and(watches) {
            self.watcher = Watcher::new(&self.descriptors, doorbell);
        }
        self.watcher.as_ref().is_some_and(Watcher::ring_at_next)
    }
}

/// Longest sleep of a process if some of its events cannot wake it.
const UNNOTICED: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Wake;
    use std::io::{PipeReader, PipeWriter, Write, pipe};
    use std::os::fd::AsFd;
    use std::time::Instant;

    /// No test waits that long.
    const FOR_EVER: Duration = Duration::from_secs(60);

    fn bell() -> Doorbell {
        Doorbell {
            bell: Box::leak(Box::new(Bell::new())),
            local_rank: 0,
        }
    }

    fn ring(doorbell: Doorbell) {
        if doorbell.bell.ring(doorbell.local_rank) == Wake::Sleeper {
            wait::futex_wake(doorbell.bell.sleep_word());
        }
    }

    /// Sleeps on these doorbells and descriptors for at most `longest`; after a moment, another thread runs `wake`.
    fn sleep(
        set: &mut WaitSet,
        doorbells: &[Doorbell],
        descriptors: &[&PipeReader],
        longest: Duration,
        wake: impl FnOnce() + Send,
    ) -> Duration {
        let since = Instant::now();
        set.begin(longest);
        for doorbell in doorbells {
            doorbell.bell.doze();
            set.add_doorbell(*doorbell);
        }
        descriptors
            .iter()
            .for_each(|descriptor| set.add_descriptor(descriptor.as_fd()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                wake();
            });
            set.sleep();
        });
        doorbells.iter().for_each(|doorbell| doorbell.bell.rise());
        since.elapsed()
    }

    fn write(end: &mut PipeWriter) {
        end.write_all(b"x").unwrap();
    }

    #[test]
    fn an_empty_wait_set_sleeps_until_its_timeout() {
        let mut set = WaitSet::new();
        set.begin(FOR_EVER);
        assert!(set.is_empty());
        set.poll_after(Duration::from_millis(30));
        set.poll_after(FOR_EVER);
        let since = Instant::now();
        set.sleep();
        assert!(since.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn each_of_several_doorbells_ends_a_sleep() {
        let mut set = WaitSet::new();
        let bells = [bell(), bell(), bell()];
        for rung in 0..3 {
            // If the kernel cannot wait for several words, the sleep ends by its timeout.
            let slept = sleep(&mut set, &bells, &[], FOR_EVER, || ring(bells[rung]));
            assert!(slept < FOR_EVER / 2, "{rung}");
        }
        let slept = sleep(&mut set, &bells[..1], &[], FOR_EVER, || ring(bells[0]));
        assert!(slept < FOR_EVER / 2);
    }

    #[test]
    fn each_of_several_descriptors_ends_a_sleep() {
        let mut set = WaitSet::new();
        let (one, mut to_one) = pipe().unwrap();
        let (other, mut to_other) = pipe().unwrap();
        let slept = sleep(&mut set, &[], &[&one, &other], FOR_EVER, || {
            write(&mut to_other)
        });
        assert!(slept < FOR_EVER / 2);
        let slept = sleep(&mut set, &[], &[&one], FOR_EVER, || write(&mut to_one));
        assert!(slept < FOR_EVER / 2);
        // A descriptor is readable already, so the process does not sleep at all.
        let slept = sleep(&mut set, &[], &[&one, &other], FOR_EVER, || {});
        assert!(slept < FOR_EVER / 2);
    }

    #[test]
    fn a_doorbell_and_descriptors_end_the_same_sleep() {
        let mut set = WaitSet::new();
        let (mut one, mut to_one) = pipe().unwrap();
        let (other, mut to_other) = pipe().unwrap();
        let bell = bell();
        for _ in 0..3 {
            let slept = sleep(&mut set, &[bell], &[&one, &other], FOR_EVER, || ring(bell));
            assert!(slept < FOR_EVER / 2, "the bell");
            let slept = sleep(&mut set, &[bell], &[&one, &other], FOR_EVER, || {
                write(&mut to_one);
            });
            assert!(slept < FOR_EVER / 2, "a descriptor");
            std::io::Read::read_exact(&mut one, &mut [0]).unwrap();
        }
        // The set of providers has changed: other descriptors are watched.
        let slept = sleep(&mut set, &[bell], &[&other], FOR_EVER, || {
            write(&mut to_other)
        });
        assert!(slept < FOR_EVER / 2, "another descriptor");
    }

    #[test]
    fn descriptors_of_the_last_sleep_also_end_the_next() {
        let mut set = WaitSet::new();
        let (descriptor, mut to_sign) = pipe().unwrap();
        let bell = bell();
        assert!(!set.has_watched());
        let slept = sleep(&mut set, &[bell], &[&descriptor], FOR_EVER, || ring(bell));
        assert!(slept < FOR_EVER / 2 && set.has_watched());
        for by_bell in [true, false] {
            bell.bell.doze();
            set.begin_as_before(FOR_EVER);
            set.add_doorbell(bell);
            let since = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    match by_bell {
                        true => ring(bell),
                        false => write(&mut to_sign),
                    }
                });
                set.sleep();
            });
            bell.bell.rise();
            assert!(since.elapsed() < FOR_EVER / 2, "by bell: {by_bell}");
        }
    }

    #[test]
    fn wait_sets_beyond_the_kernel_limit_poll_soon() {
        let mut set = WaitSet::new();
        let (descriptor, _end) = pipe().unwrap();
        let room = (set.doorbells.capacity(), set.descriptors.capacity());
        set.begin(FOR_EVER);
        for _ in 0..=wait::MOST_DESCRIPTORS {
            set.add_descriptor(descriptor.as_fd());
        }
        assert_eq!(
            (set.descriptors.len(), set.longest),
            (wait::MOST_DESCRIPTORS, UNNOTICED)
        );
        set.begin(FOR_EVER);
        for _ in 0..=wait::MOST_WORDS {
            set.add_doorbell(bell());
        }
        assert_eq!(
            (set.doorbells.len(), set.longest),
            (wait::MOST_WORDS, UNNOTICED)
        );
        let room_now = (set.doorbells.capacity(), set.descriptors.capacity());
        assert_eq!(room_now, room, "a wait allocates nothing");
    }
}
