// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs by number, with lists of those that have packets to send or a deadline, so that nothing
//! iterates over all of them.
//!
//! A number has 24 bits: the queue pair's index, and above it random bits, which differ from those of the last queue
//! pair with this index. So a packet for a destroyed queue pair hardly ever reaches another one. If processes share a
//! port, the highest 8 bits select the process.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use roce::{CompletionKind, CompletionStatus, Config, CongestionCounts, QueuePair, QueuePairState};

use super::super::port::{PortCounts, PortEvent};
use super::completions::RoceCompletions;
use super::random::RandomPool;

/// The range of queue pair numbers of a process.
///
/// | bits, from the highest on | exclusive port | shared port |
/// |---------------------------|---------------:|------------:|
/// | process                   |              – |           8 |
/// | random, never 0           |              8 |           4 |
/// | index of the queue pair   |             16 |          12 |
///
/// If the random bits are 0, the number is that of the datagram queue pair, which has no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct PairNumbers {
    /// Bits that all numbers of the process have in common.
    begin: u32,
    random_bits: u32,
    place_bits: u32,
}

impl PairNumbers {
    /// The numbers of a process with a port of its own.
    pub(in super::super) const ALONE: Self = Self {
        begin: 0,
        random_bits: 8,
        place_bits: 16,
    };

    /// The numbers of the process at this place in the group that shares a port.
    pub(super) fn of_place(place: u8) -> Self {
        Self {
            begin: u32::from(place) << 16,
            random_bits: 4,
            place_bits: 12,
        }
    }

    /// A random number for the datagram queue pair.
    pub(super) fn for_datagrams(self) -> u32 {
        // The numbers 0 and 1 are not used: adapters reserve them.
        let most = self.places() - 2;
        self.begin | (1 + RandomPool::default().other_than(0, most))
    }

    /// Number of indices.
    fn places(self) -> u32 {
        1 << self.place_bits
    }

    /// A number for this index, other than `last`, the last one used with it.
    fn at(self, place: u32, last: u32, chance: &mut RandomPool) -> u32 {
        let most = (1 << self.random_bits) - 1;
        let last = (last >> self.place_bits) & most;
        let random = chance.other_than(last, most);
        self.begin | random << self.place_bits | place
    }

    fn place_of(self, number: u32) -> u32 {
        number & (self.places() - 1)
    }
}

/// The queue pairs of one port.
#[derive(Debug)]
pub(super) struct RocePairs {
    numbers: PairNumbers,
    places: Vec<PairSlot>,
    free: VecDeque<u32>,
    /// Indices of queue pairs that may have packets to send, each once, in their order of service.
    ready: VecDeque<u32>,
    /// Packets that the first queue pair of `ready` has sent in its present turn.
    in_turn: u32,
    /// Maximum number of packets that one queue pair sends before the next queue pair sends.
    burst_packets: u32,
    /// Deadlines, earliest first. A queue pair has at most one entry, no later than its deadline.
    due: BTreeSet<(u64, u32)>,
    chance: RandomPool,
    counts: Arc<PortCounts>,
}

/// A slot of the table of queue pairs.
#[derive(Debug, Default)]
struct PairSlot {
    /// Number of the present queue pair, or of the last one.
    number: u32,
    is_taken: bool,
    /// The engine of the queue pair; `None`: the queue pair is not connected.
    engine: Option<QueuePair>,
    is_ready: bool,
    /// Whether the queue pair is broken and the process has been notified.
    is_known_broken: bool,
    /// Time of the queue pair's entry in `due`; `None`: it has no entry.
    due_ns: Option<u64>,
    /// The queue pair's statistics when they were last added to the counters.
    counted: CongestionCounts,
}

impl RocePairs {
    pub(super) fn new(numbers: PairNumbers, burst_packets: u32) -> Self {
        Self {
            numbers,
            places: Vec::new(),
            free: VecDeque::new(),
            ready: VecDeque::new(),
            in_turn: 0,
            burst_packets,
            due: BTreeSet::new(),
            chance: RandomPool::default(),
            counts: Arc::default(),
        }
    }

    /// Creates a queue pair that is not connected; returns its number, or `None` if the limit is reached.
    pub(super) fn create(&mut self) -> Option<u32> {
        let most = self.numbers.places();
        let index = match self.free.pop_front() {
            Some(index) => index,
            None => u32::try_from(self.places.len())
                .ok()
                .filter(|it| *it < most)?,
        };
        if index as usize == self.places.len() {
            self.places.push(PairSlot::default());
        }
        let place = self.places.get_mut(index as usize)?;
        place.number = self.numbers.at(index, place.number, &mut self.chance);
        place.is_taken = true;
        Some(place.number)
    }

    /// Connects a queue pair.
    ///
    /// # Errors
    /// There is no such queue pair, or it is connected, or a number is out of range.
    pub(super) fn join(&mut self, config: Config) -> Result<(), Unjoined> {
        let place = self.place(config.number).ok_or(Unjoined)?;
        if place.engine.is_some() {
            return Err(Unjoined);
        }
        place.engine = Some(QueuePair::new(config).map_err(|_| Unjoined)?);
        Ok(())
    }

    /// Destroys a queue pair.
    pub(super) fn destroy(&mut self, number: u32) {
        let index = self.numbers.place_of(number);
        let Some(place) = self.place(number) else {
            return;
        };
        let due_ns = place.due_ns.take();
        *place = PairSlot {
            number,
            // An entry in `ready` stays: it is skipped, or used by the next queue pair with this index.
            is_ready: place.is_ready,
            ..PairSlot::default()
        };
        if let Some(due_ns) = due_ns {
            self.due.remove(&(due_ns, index));
        }
        self.free.push_back(index);
    }

    /// A connected queue pair.
    pub(super) fn get(&mut self, number: u32) -> Option<&mut QueuePair> {
        self.place(number)?.engine.as_mut()
    }

    /// Moves a queue pair to the error state.
    pub(super) fn fail(&mut self, number: u32) {
        let Some(place) = self.place(number) else {
            return;
        };
        place.is_known_broken = true;
        if let Some(engine) = &mut place.engine {
            engine.fail();
        }
    }

    /// The first queue pair that may have packets to send.
    pub(super) fn first_ready(&mut self) -> Option<(u32, &mut QueuePair)> {
        while let Some(index) = self.ready.front() {
            let place = self.places.get(*index as usize);
            if place.is_some_and(|place| place.engine.is_some()) {
                break;
            }
            self.leave_ready();
        }
        let index = *self.ready.front()?;
        let place = self.places.get_mut(index as usize)?;
        Some((place.number, place.engine.as_mut()?))
    }

    /// Removes the first ready queue pair, which has nothing to send now.
    pub(super) fn leave_ready(&mut self) {
        self.in_turn = 0;
        let index = self.ready.pop_front();
        if let Some(place) = index.and_then(|index| self.places.get_mut(index as usize)) {
            place.is_ready = false;
        }
    }

    /// Counts a packet of the first ready queue pair; after a burst of packets it moves to the end of the list.
    pub(super) fn turn_ready(&mut self) {
        self.in_turn += 1;
        if self.in_turn >= self.burst_packets {
            self.in_turn = 0;
            if let Some(first) = self.ready.pop_front() {
                self.ready.push_back(first);
            }
        }
    }

    /// Sets the counters for statistics.
    pub(super) fn count_into(&mut self, counts: Arc<PortCounts>) {
        self.counts = counts;
    }

    /// Whether any queue pair may have packets to send.
    pub(super) fn is_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds queue pairs whose deadline has passed to those that may have packets to send.
    pub(super) fn wake_due(&mut self, now_ns: u64) {
        while let Some((due_ns, index)) = self.due.first().copied()
            && due_ns <= now_ns
        {
            self.due.pop_first();
            if let Some(place) = self.places.get_mut(index as usize) {
                place.due_ns = None;
                Self::list(&mut self.ready, place, index);
            }
        }
    }

    /// The next deadline.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns)
    }

    /// Whether any deadline has passed.
    pub(super) fn is_any_due(&self, now_ns: u64) -> bool {
        self.next_due_ns().is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// Records that requests were posted to a queue pair.
    pub(super) fn posted(&mut self, number: u32, ends: &mut RoceCompletions) {
        let index = self.numbers.place_of(number);
        match self.places.get_mut(index as usize) {
            // Requests that wait to be sent complete nothing.
            Some(place) if !place.is_known_broken => Self::list(&mut self.ready, place, index),
            _ => self.settle(number, true, ends),
        }
    }

    /// Takes the completions of a queue pair that was used, and records its deadline. `may_send`: it may have packets
    /// to send.
    pub(super) fn settle(&mut self, number: u32, may_send: bool, ends: &mut RoceCompletions) {
        let index = self.numbers.place_of(number);
        let Some(place) = self.places.get_mut(index as usize) else {
            return;
        };
        let Some(engine) = place.engine.as_mut().filter(|_| place.number == number) else {
            return;
        };
        while let Some(completion) = engine.poll(CompletionKind::Sends) {
            place.is_known_broken |= completion.status != CompletionStatus::Success;
            ends.sent(&completion);
        }
        let is_broken = engine.state() == QueuePairState::Error;
        if is_broken && !std::mem::replace(&mut place.is_known_broken, true) {
            ends.push_event(PortEvent::QueuePairLost(number));
        }
        while let Some(completion) = engine.poll(CompletionKind::Receives) {
            ends.received(&completion);
        }
        if engine.congestion_counts() != place.counted {
            let before = std::mem::replace(&mut place.counted, engine.congestion_counts());
            count(&self.counts, before, place.counted);
        }
        if let Some(deadline_ns) = engine.deadline()
            && place.due_ns.is_none_or(|due_ns| deadline_ns < due_ns)
        {
            if let Some(due_ns) = place.due_ns.replace(deadline_ns) {
                self.due.remove(&(due_ns, index));
            }
            self.due.insert((deadline_ns, index));
        }
        if may_send {
            Self::list(&mut self.ready, place, index);
        }
    }

    fn place(&mut self, number: u32) -> Option<&mut PairSlot> {
        let place = self
            .places
            .get_mut(self.numbers.place_of(number) as usize)?;
        (place.is_taken && place.number == number).then_some(place)
    }

    fn list(ready: &mut VecDeque<u32>, place: &mut PairSlot, index: u32) {
        if !std::mem::replace(&mut place.is_ready, true) {
            ready.push_back(index);
        }
    }
}

/// Adds the change of a queue pair's statistics to the counters.
#[cold]
fn count(counts: &PortCounts, before: CongestionCounts, now: CongestionCounts) {
    counts.repeated.add(now.repeated - before.repeated);
    counts.timeouts.add(now.timeouts - before.timeouts);
    counts.window_cuts.add(now.window_cuts - before.window_cuts);
}

/// The queue pair cannot be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unjoined;
