// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs by their numbers, and which of them have something to send, or something to do at a time: nobody ever looks
//! at all of them.
//!
//! A number has 24 bits: a queue pair's place, and above it random bits, which are others when the place is given again. So a
//! packet that was sent to one that has gone hardly ever meets another. Where processes share a port, the highest 8 say whose it is.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use roce::{CompletionKind, CompletionStatus, Config, CongestionCounts, QueuePair, QueuePairState};

use super::super::port::{PortCounts, PortEvent};
use super::chance::Chance;
use super::completions::RoceCompletions;

/// The numbers that queue pairs of a process may have.
///
/// | bits, from the highest on | alone at its port | sharing it |
/// |---------------------------|------------------:|-----------:|
/// | which process             |                 – |          8 |
/// | random, never 0           |                 8 |          4 |
/// | the queue pair's place    |                16 |         12 |
///
/// Where the random bits are 0, the number is that of the queue pair for datagrams, which is at no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct PairNumbers {
    /// Bits that all of them have.
    begin: u32,
    random_bits: u32,
    place_bits: u32,
}

impl PairNumbers {
    /// A process has its port alone.
    pub(in super::super) const ALONE: Self = Self {
        begin: 0,
        random_bits: 8,
        place_bits: 16,
    };

    /// A process is at this place among those that share its port.
    pub(super) fn of_place(place: u8) -> Self {
        Self {
            begin: u32::from(place) << 16,
            random_bits: 4,
            place_bits: 12,
        }
    }

    /// One for datagrams.
    pub(super) fn for_datagrams(self) -> u32 {
        // 0 and 1 are queue pairs that adapters keep for themselves.
        let most = self.places() - 2;
        self.begin | (1 + Chance::default().other_than(0, most))
    }

    /// How many places there are.
    fn places(self) -> u32 {
        1 << self.place_bits
    }

    /// Another than that of the queue pair that was at this place last.
    fn at(self, place: u32, last: u32, chance: &mut Chance) -> u32 {
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
    /// Those that may have something to send, each once, in the order in which they do.
    ready: VecDeque<u32>,
    /// Packets that the first of them has sent in this turn.
    in_turn: u32,
    /// When something is to be done for which, the earliest first. A queue pair is in here at most once, and not later than its
    /// deadline.
    due: BTreeSet<(u64, u32)>,
    chance: Chance,
    counts: Arc<PortCounts>,
}

/// A slot of the table of queue pairs.
#[derive(Debug, Default)]
struct PairSlot {
    /// Of the queue pair that is there, or was there last.
    number: u32,
    is_taken: bool,
    /// `None`: it is not joined.
    engine: Option<QueuePair>,
    is_ready: bool,
    /// It has broken, and its process knows.
    is_known_broken: bool,
    /// Its entry in `due`.
    due_ns: Option<u64>,
    /// What of its troubles is counted.
    counted: CongestionCounts,
}

impl RocePairs {
    pub(super) fn new(numbers: PairNumbers) -> Self {
        Self {
            numbers,
            places: Vec::new(),
            free: VecDeque::new(),
            ready: VecDeque::new(),
            in_turn: 0,
            due: BTreeSet::new(),
            chance: Chance::default(),
            counts: Arc::default(),
        }
    }

    /// A queue pair that is not joined; answers its number, or `None` if there can be no more.
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

    /// Joins one to that of another process.
    ///
    /// # Errors
    /// There is no such queue pair, or it is joined, or a number is out of range.
    pub(super) fn join(&mut self, config: Config) -> Result<(), Unjoined> {
        let place = self.place(config.number).ok_or(Unjoined)?;
        if place.engine.is_some() {
            return Err(Unjoined);
        }
        place.engine = Some(QueuePair::new(config).map_err(|_| Unjoined)?);
        Ok(())
    }

    /// Takes one apart.
    pub(super) fn destroy(&mut self, number: u32) {
        let index = self.numbers.place_of(number);
        let Some(place) = self.place(number) else {
            return;
        };
        let due_ns = place.due_ns.take();
        *place = PairSlot {
            number,
            // It is passed over, or found by whoever has the place next.
            is_ready: place.is_ready,
            ..PairSlot::default()
        };
        if let Some(due_ns) = due_ns {
            self.due.remove(&(due_ns, index));
        }
        self.free.push_back(index);
    }

    /// One that is joined.
    pub(super) fn get(&mut self, number: u32) -> Option<&mut QueuePair> {
        self.place(number)?.engine.as_mut()
    }

    /// Breaks one.
    pub(super) fn fail(&mut self, number: u32) {
        let Some(place) = self.place(number) else {
            return;
        };
        place.is_known_broken = true;
        if let Some(engine) = &mut place.engine {
            engine.fail();
        }
    }

    /// The first of those that may have something to send.
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

    /// The first of them has nothing to send now.
    pub(super) fn leave_ready(&mut self) {
        self.in_turn = 0;
        let index = self.ready.pop_front();
        if let Some(place) = index.and_then(|index| self.places.get_mut(index as usize)) {
            place.is_ready = false;
        }
    }

    /// The first of them has sent a packet: after some the others are next.
    pub(super) fn turn_ready(&mut self) {
        self.in_turn += 1;
        if self.in_turn >= MOST_IN_TURN {
            self.in_turn = 0;
            if let Some(first) = self.ready.pop_front() {
                self.ready.push_back(first);
            }
        }
    }

    /// Where troubles are counted from now on.
    pub(super) fn count_into(&mut self, counts: Arc<PortCounts>) {
        self.counts = counts;
    }

    /// Whether any may have something to send.
    pub(super) fn is_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Those for which something is to be done by now may have something to send.
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

    /// When the next is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns)
    }

    /// Whether something is to be done by now for any.
    pub(super) fn is_any_due(&self, now_ns: u64) -> bool {
        self.next_due_ns().is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// Something was done with a queue pair: takes its completions, keeps its deadline. `may_send`: it may have something to
    /// send.
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
            ends.happened(PortEvent::QueuePairLost(number));
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

/// Counts what has happened since.
#[cold]
fn count(counts: &PortCounts, before: CongestionCounts, now: CongestionCounts) {
    counts.repeated.add(now.repeated - before.repeated);
    counts.timeouts.add(now.timeouts - before.timeouts);
    counts.window_cuts.add(now.window_cuts - before.window_cuts);
}

/// A queue pair cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unjoined;

/// Packets that one sends before the next: of 1,024 bytes each, they are a train.
const MOST_IN_TURN: u32 = 62;
