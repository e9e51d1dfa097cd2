// SPDX-License-Identifier: MIT OR Apache-2.0
//! One peer's streams of packets, there and back: every packet arrives once and in order, whatever carries it and however
//! often that breaks. Sans-IO: it says what is to be sent, and time is an argument.
//!
//! - S1: a packet is kept, with its bytes, until the peer says that it has it. That a reliable queue pair says so is not
//!   enough: then it is in the peer's memory, and lost if the device is before the process has looked.
//! - S2: at most [`WINDOW`] packets are kept: so a receiver that does not look is not flooded.
//! - S3: all packets that went over a queue pair that broke are sent again; one that went as a datagram is sent again when
//!   its time is over, or when later ones were acknowledged before it.
//! - S4: packets are handed up in the order of their numbers, once each. What comes ahead waits in its buffer; what comes
//!   twice, or lies beyond the window, is dropped.
//!
//! Numbers have 32 bits and wrap; the window is small against that.

use std::collections::VecDeque;

use super::wire::Ack;

/// Packets under way to one peer.
pub(super) const WINDOW: u32 = 64;
/// So many unacknowledged packets are worth an acknowledgement of their own.
pub(super) const ACK_EVERY: u32 = WINDOW / 4;
/// Names memory of a packet.
pub(super) type Slot = u32;

/// How a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// Not yet, or over a queue pair that broke.
    Not,
    /// As a datagram, at this time.
    Datagram { at: Moment },
    /// Over the queue pair of this number, of all that this process ever made.
    Pair { made: u32 },
    /// The same, and it has arrived there, as the queue pair says.
    There { made: u32 },
}

/// A time, in microseconds that wrap after an hour: enough for what waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment(u32);

impl Moment {
    #[allow(clippy::cast_possible_truncation, reason = "it wraps")]
    pub(super) fn of(now_ns: u64) -> Self {
        Self((now_ns / 1000) as u32)
    }

    /// Time from here to a later one.
    pub(super) fn until(self, now_ns: u64) -> u64 {
        let passed = Self::of(now_ns).0.wrapping_sub(self.0).cast_signed();
        u64::from(passed.max(0).cast_unsigned()) * 1000
    }
}

/// A packet until it is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// `None`: the peer has it already, though not all before it.
    slot: Option<Slot>,
    bytes: u32,
    via: Via,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) number: u32,
    pub(super) slot: Slot,
    pub(super) bytes: u32,
}

/// What to do with a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Hand it up; then see [`Session::next_held`].
    Deliver,
    /// Its buffer was put aside.
    Held,
    /// Drop it: it cannot be put aside now, and will come again.
    Early,
    /// Drop it, and tell the peer what is here.
    Twice,
    /// Drop it: nobody who keeps to the rules sends this.
    Wild,
}

/// Both streams of a peer.
#[derive(Debug)]
pub(super) struct Session {
    /// Number of the oldest packet kept.
    first: u32,
    kept: VecDeque<Kept>,
    /// Kept packets that wait to be sent, and a number before which there are none.
    unsent: u32,
    unsent_from: u32,
    /// Kept packets that went as datagrams and have not arrived for all we know.
    datagrams: u32,
    pace: Pace,
    /// Number of the packet that is handed up next.
    expected: u32,
    /// Packets beyond it, by how far: their buffers.
    #[allow(
        clippy::box_collection,
        reason = "there are thousands of peers, and hardly any has this"
    )]
    ahead: Option<Box<VecDeque<Option<Slot>>>>,
    beyond: u64,
    /// Packets handed up since the peer was told.
    owed: u32,
    /// Large frames posted, and those of them that the peer has given back.
    lent: u16,
    back: u16,
    /// Large frames of the peer that were given back, and how many of those it was told of.
    returned: u16,
    told: u16,
}

/// When a datagram is sent again.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Smoothed time from a datagram to its acknowledgement, and how much it varies; 0 before the first.
    round_ns: u32,
    varies_ns: u32,
    backoff: u8,
}

impl Session {
    /// What it owns while the peer has a few packets under way.
    pub(super) const IDLE_BYTES: usize = IDLE_CAPACITY * size_of::<Kept>();

    /// Streams whose first packet has this number.
    pub(super) fn new(first: u32) -> Self {
        Self {
            first,
            kept: VecDeque::new(),
            unsent: 0,
            unsent_from: first,
            datagrams: 0,
            pace: Pace {
                round_ns: 0,
                varies_ns: 0,
                backoff: 0,
            },
            expected: first,
            ahead: None,
            beyond: 0,
            owed: 0,
            lent: 0,
            back: 0,
            returned: 0,
            told: 0,
        }
    }

    /// Packets that may be kept from now on.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        let used = self.kept.len() as u32;
        WINDOW - used
    }

    /// Number of the next packet.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        self.first.wrapping_add(self.kept.len() as u32)
    }

    /// Keeps a packet, which gets number [`next`](Self::next). There must be room.
    #[inline(always)]
    pub(super) fn keep(&mut self, slot: Slot, bytes: u32) {
        debug_assert!(self.room() > 0, "S2");
        self.send_again(self.next());
        self.kept.push_back(Kept {
            slot: Some(slot),
            bytes,
            via: Via::Not,
        });
    }

    /// Keeps a packet that was just sent over a queue pair. There must be room, and none may wait to be sent.
    #[inline(always)]
    pub(super) fn keep_sent(&mut self, slot: Slot, bytes: u32, made: u32) {
        debug_assert!(self.room() > 0 && self.unsent == 0, "S2, and in order");
        self.kept.push_back(Kept {
            slot: Some(slot),
            bytes,
            via: Via::Pair { made },
        });
    }

    /// Whether packets wait to be sent.
    #[inline(always)]
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent != 0
    }

    /// Whether everything that is kept has arrived, for all we know.
    pub(super) fn has_arrived(&self) -> bool {
        let is_there = |kept: &Kept| matches!(kept.via, Via::There { .. });
        self.kept.iter().all(is_there)
    }

    /// The oldest packet of which the peer has not said that it has it.
    pub(super) fn awaits_word(&self) -> Option<u32> {
        (!self.kept.is_empty()).then_some(self.first)
    }

    /// Whether a packet is under way over this queue pair.
    pub(super) fn is_under_way(&self, made: u32) -> bool {
        self.kept.iter().any(|kept| kept.via == Via::Pair { made })
    }

    /// The oldest packet that waits to be sent.
    pub(super) fn next_unsent(&self) -> Option<Due> {
        if self.unsent == 0 {
            return None;
        }
        let waits = |(_, kept): &(u32, &Kept)| kept.via == Via::Not;
        let from = self.unsent_from.wrapping_sub(self.first);
        // Where the oldest have been acknowledged meanwhile, from the first on.
        let from = if from < WINDOW { from } else { 0 };
        let rest = self.kept.iter().skip(from as usize);
        let (index, kept) = (from..).zip(rest).find(waits)?;
        self.due(index, kept)
    }

    /// How many packets wait to be sent.
    pub(super) fn unsent(&self) -> u32 {
        self.unsent
    }

    /// The oldest packets that wait to be sent, as many as there are places; answers how many.
    pub(super) fn next_of_unsent(&self, places: &mut [Due]) -> usize {
        let all = (0..).zip(&self.kept);
        let waiting = all.filter(|(_, kept)| kept.via == Via::Not);
        let due = waiting.filter_map(|(index, kept)| self.due(index, kept));
        let mut count = 0;
        for (place, due) in places.iter_mut().zip(due) {
            *place = due;
            count += 1;
        }
        count
    }

    /// One more packet waits to be sent.
    #[inline(always)]
    fn send_again(&mut self, number: u32) {
        let is_before = number.wrapping_sub(self.unsent_from).cast_signed() < 0;
        if self.unsent == 0 || is_before {
            self.unsent_from = number;
        }
        self.unsent += 1;
    }

    fn send_again_at(&mut self, index: usize) {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        let number = self.first.wrapping_add(index as u32);
        self.send_again(number);
    }

    fn due(&self, index: u32, kept: &Kept) -> Option<Due> {
        Some(Due {
            number: self.first.wrapping_add(index),
            slot: kept.slot?,
            bytes: kept.bytes,
        })
    }

    /// A packet was sent.
    pub(super) fn sent(&mut self, number: u32, via: Via) {
        let Some(kept) = self.kept_mut(number) else {
            return;
        };
        let before = std::mem::replace(&mut kept.via, via);
        self.uncount(before);
        match via {
            Via::Not => self.send_again(number),
            Via::Datagram { .. } => self.datagrams += 1,
            Via::Pair { .. } | Via::There { .. } => {}
        }
        if number == self.unsent_from {
            self.unsent_from = number.wrapping_add(1);
        }
    }

    fn uncount(&mut self, via: Via) {
        match via {
            Via::Not => self.unsent -= 1,
            Via::Datagram { .. } => self.datagrams -= 1,
            Via::Pair { .. } | Via::There { .. } => {}
        }
    }

    #[inline(always)]
    fn kept_mut(&mut self, number: u32) -> Option<&mut Kept> {
        self.kept.get_mut(number.wrapping_sub(self.first) as usize)
    }

    /// A reliable queue pair says that a packet has arrived.
    #[inline(always)]
    pub(super) fn arrived(&mut self, number: u32, made: u32) {
        if let Some(kept) = self.kept_mut(number)
            && kept.via == (Via::Pair { made })
        {
            kept.via = Via::There { made };
        }
    }

    /// This queue pair is gone: what went over it must go again (S1).
    pub(super) fn broke(&mut self, made: u32) {
        let gone = [Via::Pair { made }, Via::There { made }];
        for index in 0..self.kept.len() {
            let kept = &mut self.kept[index];
            if gone.contains(&kept.via) {
                kept.via = Via::Not;
                self.send_again_at(index);
            }
        }
    }

    /// Takes in what the peer has; gives the slots of packets back that it has for the first time.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, ack: Ack, now_ns: u64, mut free: impl FnMut(Slot)) {
        // Nothing new is the ordinary case, and so is an acknowledgement that was overtaken.
        if ack.returned != self.back {
            self.take_back(ack.returned);
        }
        if ack.next == self.first && (ack.beyond == 0 || self.datagrams == 0) {
            return;
        }
        if ack.next == self.first.wrapping_add(1) && self.take_in_one(&mut free) {
            return;
        }
        self.take_in(ack, now_ns, free);
    }

    /// The peer has one packet more, and that went over a queue pair: the ordinary news. `false`: nothing was done.
    #[inline(always)]
    fn take_in_one(&mut self, free: &mut impl FnMut(Slot)) -> bool {
        let is_over_pair = |kept: &&Kept| self.datagrams == 0 && kept.via != Via::Not;
        let Some(&Kept { slot, .. }) = self.kept.front().filter(is_over_pair) else {
            return false;
        };
        self.kept.pop_front();
        self.first = self.first.wrapping_add(1);
        self.pace.backoff = 0;
        if let Some(slot) = slot {
            free(slot);
        }
        true
    }

    /// Whether the peer can take one more large frame.
    #[inline(always)]
    pub(super) fn may_lend(&self) -> bool {
        self.lent.wrapping_sub(self.back) < MOST_LENT
    }

    /// A large frame is posted.
    #[inline(always)]
    pub(super) fn lend(&mut self) {
        self.lent = self.lent.wrapping_add(1);
    }

    fn take_back(&mut self, returned: u16) {
        // Less than was known before was overtaken, more than was lent is wild.
        if returned.wrapping_sub(self.back) <= self.lent.wrapping_sub(self.back) {
            self.back = returned;
        }
    }

    /// A large frame of the peer is given back. `true`: the peer may be waiting to hear so.
    #[inline(always)]
    pub(super) fn give_back(&mut self) -> bool {
        self.returned = self.returned.wrapping_add(1);
        self.returned.wrapping_sub(self.told) >= MOST_LENT / 4
    }

    fn take_in(&mut self, ack: Ack, now_ns: u64, mut free: impl FnMut(Slot)) {
        let news = ack.next.wrapping_sub(self.first);
        // Older than what is known, or wild: more than was ever sent.
        if news as usize > self.kept.len() {
            return;
        }
        for _ in 0..news {
            let Some(kept) = self.kept.pop_front() else {
                return;
            };
            self.first = self.first.wrapping_add(1);
            self.settle(kept, now_ns, &mut free);
        }
        if news > 0 {
            self.pace.backoff = 0;
        }
        if self.datagrams != 0 && ack.beyond != 0 {
            self.take_in_beyond(ack.beyond, now_ns, &mut free);
        }
        if self.kept.is_empty() && self.kept.capacity() > IDLE_CAPACITY && self.pace.round_ns != 0 {
            // A peer of datagrams, of which there may be thousands.
            self.kept.shrink_to(IDLE_CAPACITY);
        }
    }

    fn settle(&mut self, kept: Kept, now_ns: u64, free: &mut impl FnMut(Slot)) {
        self.uncount(kept.via);
        if let Via::Datagram { at } = kept.via
            && self.pace.backoff == 0
        {
            self.pace.measure(at.until(now_ns));
        }
        if let Some(slot) = kept.slot {
            free(slot);
        }
    }

    /// Packets that the peer has although it misses earlier ones: those are sent again soon.
    fn take_in_beyond(&mut self, beyond: u64, now_ns: u64, free: &mut impl FnMut(Slot)) {
        // What was sent later and is there tells how long it took: before that nothing is known to be late.
        let late_ns = self.pace.late_ns();
        let last = 64 - beyond.leading_zeros() as usize;
        for index in 0..=last.min(self.kept.len().saturating_sub(1)) {
            let is_there = index > 0 && beyond >> (index - 1) & 1 != 0;
            let kept = &mut self.kept[index];
            let Via::Datagram { at } = kept.via else {
                continue;
            };
            if is_there {
                // It has arrived; the entry stays for its number.
                if let Some(slot) = kept.slot.take() {
                    free(slot);
                }
                kept.via = Via::There { made: NOBODY };
                self.datagrams -= 1;
                if self.pace.backoff == 0 {
                    self.pace.measure(at.until(now_ns));
                }
            } else if index < last && at.until(now_ns) > late_ns {
                kept.via = Via::Not;
                self.datagrams -= 1;
                self.send_again_at(index);
            }
        }
    }

    /// Whether the peer has not said yet that it has this packet.
    pub(super) fn is_kept(&self, number: u32) -> bool {
        (number.wrapping_sub(self.first) as usize) < self.kept.len()
    }

    /// Forgets all that is kept, and what was put aside: the peer is lost. `free` gets slots, `drop` buffers.
    pub(super) fn forget(&mut self, mut free: impl FnMut(Slot), drop: impl FnMut(Slot)) {
        self.kept
            .drain(..)
            .filter_map(|kept| kept.slot)
            .for_each(&mut free);
        let ahead = self.ahead.take().unwrap_or_default();
        ahead.into_iter().flatten().for_each(drop);
        (self.unsent, self.datagrams, self.beyond) = (0, 0, 0);
    }

    /// When [`timeout`](Self::timeout) wants to be called.
    pub(super) fn deadline(&self, now_ns: u64) -> Option<u64> {
        if self.datagrams == 0 {
            return None;
        }
        let waited = self.kept.iter().filter_map(|kept| match kept.via {
            Via::Datagram { at } => Some(at.until(now_ns)),
            _ => None,
        });
        Some(now_ns + self.pace.timeout_ns().saturating_sub(waited.max()?))
    }

    /// Datagrams whose time is over wait to be sent again; `true` if there are any.
    pub(super) fn timeout(&mut self, now_ns: u64) -> bool {
        let Some(deadline) = self.deadline(now_ns) else {
            return false;
        };
        if now_ns < deadline {
            return false;
        }
        let timeout_ns = self.pace.timeout_ns();
        for index in 0..self.kept.len() {
            let kept = &mut self.kept[index];
            if let Via::Datagram { at } = kept.via
                && at.until(now_ns) >= timeout_ns
            {
                kept.via = Via::Not;
                self.datagrams -= 1;
                self.send_again_at(index);
            }
        }
        self.pace.backoff = (self.pace.backoff + 1).min(MOST_BACKOFF);
        true
    }

    /// How often in a row time was over without an acknowledgement of anything new.
    pub(super) fn timeouts(&self) -> u8 {
        self.pace.backoff
    }

    /// Datagrams that the peer is not known to have wait to be sent again: they took a way that leads nowhere.
    pub(super) fn send_all_again(&mut self) {
        for index in 0..self.kept.len() {
            let kept = &mut self.kept[index];
            if let Via::Datagram { .. } = kept.via {
                kept.via = Via::Not;
                self.datagrams -= 1;
                self.send_again_at(index);
            }
        }
    }

    /// A packet has arrived. `false`: it is not the one that is expected, or others were put aside; nothing was done.
    #[inline(always)]
    pub(super) fn accept_next(&mut self, number: u32) -> bool {
        let is_next = number == self.expected && self.beyond == 0 && self.ahead.is_none();
        if is_next {
            self.expected = self.expected.wrapping_add(1);
            self.owed += 1;
        }
        is_next
    }

    /// A packet has arrived in `buffer`, which may be put aside if it `can_wait`.
    #[inline(always)]
    pub(super) fn accept(&mut self, number: u32, buffer: Slot, can_wait: bool) -> Verdict {
        if number == self.expected && self.beyond == 0 {
            self.expected = self.expected.wrapping_add(1);
            self.owed += 1;
            return Verdict::Deliver;
        }
        self.accept_out_of_order(number, buffer, can_wait)
    }

    #[inline(never)]
    fn accept_out_of_order(&mut self, number: u32, buffer: Slot, can_wait: bool) -> Verdict {
        let far = number.wrapping_sub(self.expected);
        if far == 0 {
            self.advance();
            return Verdict::Deliver;
        }
        if far > WINDOW {
            let is_old = self.expected.wrapping_sub(number) <= 2 * WINDOW;
            return if is_old {
                Verdict::Twice
            } else {
                Verdict::Wild
            };
        }
        let bit = 1 << (far - 1);
        if self.beyond & bit != 0 {
            return Verdict::Twice;
        }
        if !can_wait {
            return Verdict::Early;
        }
        self.beyond |= bit;
        let index = far as usize - 1;
        let ahead = self.ahead.get_or_insert_default();
        if ahead.len() <= index {
            ahead.resize(index + 1, None);
        }
        ahead[index] = Some(buffer);
        Verdict::Held
    }

    /// The buffer of a packet that was put aside and whose turn has come; to be asked after each delivery.
    #[inline(always)]
    pub(super) fn next_held(&mut self) -> Option<Slot> {
        self.ahead.as_ref()?;
        self.take_held()
    }

    #[inline(never)]
    fn take_held(&mut self) -> Option<Slot> {
        // The front stands for the packet that is expected: `advance` has moved the bits, not the queue.
        let ahead = self.ahead.as_mut()?;
        let buffer = ahead.pop_front().flatten();
        if ahead.is_empty() {
            self.ahead = None;
        }
        if buffer.is_some() {
            self.advance();
        }
        buffer
    }

    /// The packet that was expected is handed up.
    fn advance(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.beyond >>= 1;
        self.owed += 1;
    }

    /// What the peer should be told.
    #[inline(always)]
    pub(super) fn ack(&self) -> Ack {
        Ack {
            next: self.expected,
            beyond: self.beyond,
            returned: self.returned,
        }
    }

    /// The same, for something that is sent now.
    #[inline(always)]
    pub(super) fn tell(&mut self) -> Ack {
        self.owed = 0;
        self.told = self.returned;
        self.ack()
    }

    /// Packets handed up since the peer was told.
    #[inline(always)]
    pub(super) fn owed(&self) -> u32 {
        self.owed
    }
}

impl Pace {
    fn measure(&mut self, round_ns: u64) {
        let round_ns = u32::try_from(round_ns).unwrap_or(u32::MAX / 8);
        if self.round_ns == 0 {
            (self.round_ns, self.varies_ns) = (round_ns.max(1), round_ns / 2);
            return;
        }
        let off = round_ns.abs_diff(self.round_ns);
        self.varies_ns = self.varies_ns / 4 * 3 + off / 4;
        self.round_ns = (self.round_ns / 8 * 7 + round_ns / 8).max(1);
    }

    /// After how long a packet is missed that later ones have overtaken.
    fn late_ns(&self) -> u64 {
        match self.round_ns {
            0 => u64::MAX,
            round => (u64::from(round) + 2 * u64::from(self.varies_ns)).max(LEAST_LATE_NS),
        }
    }

    /// How long an acknowledgement may take.
    fn timeout_ns(&self) -> u64 {
        let usual = match self.round_ns {
            0 => FIRST_TIMEOUT_NS,
            round => (u64::from(round) + 4 * u64::from(self.varies_ns))
                .clamp(LEAST_TIMEOUT_NS, MOST_TIMEOUT_NS),
        };
        (usual << self.backoff).min(MOST_TIMEOUT_NS)
    }
}

/// Large frames of one sender that a receiver holds: so it never runs out of buffers for small ones because of one peer.
const MOST_LENT: u16 = 32;
/// A number that no queue pair has.
const NOBODY: u32 = u32::MAX;
/// Entries that an idle peer of datagrams may keep allocated.
const IDLE_CAPACITY: usize = 4;
/// Packets overtake each other by some microseconds.
const LEAST_LATE_NS: u64 = 20_000;
const FIRST_TIMEOUT_NS: u64 = 20_000_000;
/// A receiver that is off its processor does not answer for some milliseconds.
const LEAST_TIMEOUT_NS: u64 = 4_000_000;
const MOST_TIMEOUT_NS: u64 = 1_000_000_000;
const MOST_BACKOFF: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// A session whose streams both begin at this number.
    fn from(number: u32) -> Session {
        Session {
            first: number,
            expected: number,
            ..Session::new(0)
        }
    }

    /// Keeps packets in slots 100, 101, ..., and sends them as datagrams at time 0.
    fn send(session: &mut Session, count: u32) {
        for slot in 0..count {
            session.keep(100 + slot, 10);
        }
        while let Some(due) = session.next_unsent() {
            let at = Moment::of(0);
            session.sent(due.number, Via::Datagram { at });
        }
    }

    fn acknowledged(session: &mut Session, ack: Ack, now_ns: u64) -> Vec<Slot> {
        let mut free = Vec::new();
        session.acknowledge(ack, now_ns, |slot| free.push(slot));
        free
    }

    /// All that waits to be sent, in order; it is sent over a queue pair.
    fn resent(session: &mut Session, made: u32) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(due) = session.next_unsent() {
            session.sent(due.number, Via::Pair { made });
            numbers.push(due.number);
        }
        numbers
    }

    /// What a receiver hands up when packets arrive in this order, each in the buffer of its number.
    fn handed_up(receiver: &mut Session, numbers: &[u32]) -> Vec<u32> {
        let mut up = Vec::new();
        for number in numbers {
            if receiver.accept(*number, *number, true) == Verdict::Deliver {
                up.push(*number);
                up.extend(std::iter::from_fn(|| receiver.next_held()));
            }
        }
        up
    }

    #[test]
    fn packets_come_in_order_and_once_wherever_their_numbers_begin() {
        for start in [0, 7, u32::MAX - 2, u32::MAX] {
            let mut receiver = from(start);
            let sent: Vec<u32> = (0..6).map(|n| start.wrapping_add(n)).collect();
            let mixed = [2, 0, 2, 1, 5, 0, 3, 4, 4].map(|n: usize| sent[n]);
            assert_eq!(handed_up(&mut receiver, &mixed), sent, "S4 from {start}");
            let ack = receiver.ack();
            assert_eq!((ack.next, ack.beyond), (start.wrapping_add(6), 0));
            assert_eq!(receiver.accept(start, 0, true), Verdict::Twice);
            let far = start.wrapping_add(6 + WINDOW + 1);
            assert_eq!(receiver.accept(far, 0, true), Verdict::Wild);
        }
    }

    #[test]
    fn what_cannot_wait_comes_again() {
        let mut receiver = from(5);
        assert_eq!(receiver.accept(7, 0, false), Verdict::Early);
        assert_eq!(receiver.ack().beyond, 0, "the peer sends it again");
        assert_eq!(receiver.accept(5, 0, false), Verdict::Deliver);
        assert_eq!(receiver.accept(6, 0, false), Verdict::Deliver);
        assert_eq!(receiver.accept(5, 0, false), Verdict::Twice);
        assert_eq!(receiver.accept(7, 0, false), Verdict::Deliver);
    }

    #[test]
    fn what_is_acknowledged_is_given_back_once() {
        let mut sender = from(u32::MAX - 1);
        send(&mut sender, 4);
        let ack = |next: u32, beyond| Ack {
            next,
            beyond,
            returned: 0,
        };
        // The last of four has arrived, of the others the first two.
        assert_eq!(acknowledged(&mut sender, ack(0, 1), 5_000), [100, 101, 103]);
        assert_eq!(acknowledged(&mut sender, ack(0, 1), 6_000), [0; 0]);
        let old = ack(u32::MAX, 0);
        assert_eq!(acknowledged(&mut sender, old, 7_000), [0; 0]);
        let wild = ack(77, 0);
        assert_eq!(acknowledged(&mut sender, wild, 8_000), [0; 0]);
        assert_eq!(acknowledged(&mut sender, ack(2, 0), 9_000), [102]);
        assert_eq!((sender.room(), sender.deadline(9_000)), (WINDOW, None));
    }

    #[test]
    fn what_others_have_overtaken_is_sent_again() {
        let mut sender = from(0);
        send(&mut sender, 5);
        let ack = Ack {
            next: 1,
            beyond: 0b101,
            returned: 0,
        };
        acknowledged(&mut sender, ack, 50_000);
        assert!(!sender.has_unsent(), "a round has not passed yet");
        acknowledged(&mut sender, ack, 200_000);
        let again = resent(&mut sender, 1);
        assert_eq!(again, [1, 3], "S3: before the last that is there");
    }

    #[test]
    fn a_datagram_whose_time_is_over_is_sent_again_ever_more_slowly() {
        let mut sender = from(0);
        send(&mut sender, 2);
        let deadline = sender.deadline(0).expect("something is under way");
        assert!(!sender.timeout(deadline - 1000) && sender.timeout(deadline));
        let at = Moment::of(deadline);
        for _ in 0..2 {
            let due = sender.next_unsent().expect("both wait");
            sender.sent(due.number, Via::Datagram { at });
        }
        let second = sender.deadline(deadline);
        let second = second.expect("they are under way again");
        assert!(second - deadline > deadline, "{deadline} {second}");
    }

    #[test]
    fn what_went_over_a_pair_that_broke_is_sent_again_unless_the_peer_has_said_so() {
        let start = u32::MAX - 3;
        let mut sender = from(start);
        for slot in 0..6 {
            sender.keep(slot, 10);
        }
        let numbers = resent(&mut sender, 1);
        numbers[..5]
            .iter()
            .for_each(|number| sender.arrived(*number, 1));
        sender.arrived(numbers[5], 9);
        assert!(sender.is_under_way(1), "another pair's word");
        sender.arrived(numbers[5], 1);
        assert!(sender.has_arrived() && !sender.is_under_way(1));
        let ack = Ack {
            next: start.wrapping_add(1),
            ..Ack::default()
        };
        assert_eq!(acknowledged(&mut sender, ack, 0), [0], "S1");
        sender.broke(9);
        assert!(!sender.has_unsent() && sender.awaits_word().is_some());
        sender.broke(1);
        sender.keep(6, 10);
        let again = resent(&mut sender, 2);
        assert_eq!(again[..5], numbers[1..], "S3: in their old order");
        assert_eq!(again[5], numbers[5].wrapping_add(1));
        assert!(sender.is_under_way(2) && !sender.has_arrived());
    }

    #[test]
    fn a_receiver_that_gives_nothing_back_gets_no_more_large_frames() {
        let (mut sender, mut receiver) = (from(0), from(0));
        while sender.may_lend() {
            sender.lend();
        }
        let lent = sender.lent;
        let news = (0..lent).map(|_| receiver.give_back()).filter(|news| *news);
        assert!(news.count() > 0, "some are worth a word");
        acknowledged(&mut sender, receiver.tell(), 0);
        assert!(sender.may_lend());
        let wild = Ack {
            returned: lent + 9,
            ..receiver.ack()
        };
        acknowledged(&mut sender, wild, 0);
        assert_eq!(sender.back, lent, "more than was lent");
    }
}
