// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream to a peer: packets that are kept until the peer has them, in the order of their numbers, and how each went (S1
//! to S3).

use std::collections::VecDeque;

use crate::resend_timer::ResendTimer;
use crate::{Ack, Due, Moment, NOBODY, Slot, Via, WINDOW};

/// Packets of which the peer has not said that it has them and all before.
#[derive(Debug)]
pub(crate) struct Window {
    /// Number of the oldest packet kept.
    first: u32,
    kept: VecDeque<UnackedPacket>,
    /// Kept packets that wait to be sent, and a number before which there are none.
    unsent: u32,
    unsent_from: u32,
    /// Kept packets that went over a carrier that may lose them, and have not arrived for all we know.
    lossy: u32,
    pace: ResendTimer,
}

/// A packet until it is acknowledged.
#[derive(Clone, Copy, Debug)]
struct UnackedPacket {
    /// `None`: the peer has it already, though not all before it.
    slot: Option<Slot>,
    bytes: u32,
    via: Via,
}

impl Window {
    /// What it owns while the peer has a few packets under way.
    pub(crate) const IDLE_BYTES: usize = IDLE_CAPACITY * size_of::<UnackedPacket>();

    /// One whose first packet has this number.
    pub(crate) fn new(first: u32) -> Self {
        Self {
            first,
            kept: VecDeque::new(),
            unsent: 0,
            unsent_from: first,
            lossy: 0,
            pace: ResendTimer::default(),
        }
    }

    /// Packets that may be kept from now on (S2).
    #[inline(always)]
    pub(crate) fn room(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        let used = self.kept.len() as u32;
        WINDOW - used
    }

    /// Number of the next packet.
    #[inline(always)]
    pub(crate) fn next(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        self.first.wrapping_add(self.kept.len() as u32)
    }

    /// Keeps a packet.
    #[inline(always)]
    pub(crate) fn keep(&mut self, slot: Slot, bytes: u32) {
        debug_assert!(self.room() > 0, "S2");
        self.send_again(self.next());
        self.kept.push_back(UnackedPacket {
            slot: Some(slot),
            bytes,
            via: Via::Not,
        });
    }

    /// Keeps a packet that was just sent.
    #[inline(always)]
    pub(crate) fn keep_sent(&mut self, slot: Slot, bytes: u32, made: u32) {
        debug_assert!(self.room() > 0 && self.unsent == 0, "S2, and in order");
        self.kept.push_back(UnackedPacket {
            slot: Some(slot),
            bytes,
            via: Via::Reliable { made },
        });
    }

    /// How many packets wait to be sent.
    #[inline(always)]
    pub(crate) fn unsent(&self) -> u32 {
        self.unsent
    }

    /// Whether all has arrived, for all we know.
    pub(crate) fn has_arrived(&self) -> bool {
        let is_there = |kept: &UnackedPacket| matches!(kept.via, Via::There { .. });
        self.kept.iter().all(is_there)
    }

    /// The oldest packet.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (!self.kept.is_empty()).then_some(self.first)
    }

    /// Whether a packet is under way over this carrier.
    pub(crate) fn is_under_way(&self, made: u32) -> bool {
        let via = Via::Reliable { made };
        self.kept.iter().any(|kept| kept.via == via)
    }

    /// Whether the peer has not said that it has this packet.
    pub(crate) fn is_kept(&self, number: u32) -> bool {
        (number.wrapping_sub(self.first) as usize) < self.kept.len()
    }

    /// The oldest packet that waits to be sent.
    pub(crate) fn next_unsent(&self) -> Option<Due> {
        if self.unsent == 0 {
            return None;
        }
        let waits = |(_, kept): &(u32, &UnackedPacket)| kept.via == Via::Not;
        let from = self.unsent_from.wrapping_sub(self.first);
        // Where the oldest have been acknowledged meanwhile, from the first on.
        let from = if from < WINDOW { from } else { 0 };
        let rest = self.kept.iter().skip(from as usize);
        let (index, kept) = (from..).zip(rest).find(waits)?;
        self.due(index, kept)
    }

    /// The oldest packets that wait to be sent, as many as there are places; answers how many.
    pub(crate) fn next_of_unsent(&self, places: &mut [Due]) -> usize {
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

    fn due(&self, index: u32, kept: &UnackedPacket) -> Option<Due> {
        Some(Due {
            number: self.first.wrapping_add(index),
            slot: kept.slot?,
            bytes: kept.bytes,
        })
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

    /// The packet at this place waits to be sent again.
    fn send_again_at(&mut self, index: usize) {
        let via = std::mem::replace(&mut self.kept[index].via, Via::Not);
        self.uncount(via);
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        let number = self.first.wrapping_add(index as u32);
        self.send_again(number);
    }

    /// All packets for which this holds wait to be sent again.
    fn send_again_where(&mut self, is_gone: impl Fn(Via) -> bool) {
        for index in 0..self.kept.len() {
            if is_gone(self.kept[index].via) {
                self.send_again_at(index);
            }
        }
    }

    /// A packet was sent.
    #[inline]
    pub(crate) fn sent(&mut self, number: u32, via: Via) {
        let Some(kept) = self.kept_mut(number) else {
            return;
        };
        let before = std::mem::replace(&mut kept.via, via);
        self.uncount(before);
        match via {
            Via::Not => self.send_again(number),
            Via::Lossy { .. } => self.lossy += 1,
            Via::Reliable { .. } | Via::There { .. } => {}
        }
        if number == self.unsent_from {
            self.unsent_from = number.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn uncount(&mut self, via: Via) {
        match via {
            Via::Not => self.unsent -= 1,
            Via::Lossy { .. } => self.lossy -= 1,
            Via::Reliable { .. } | Via::There { .. } => {}
        }
    }

    #[inline(always)]
    fn kept_mut(&mut self, number: u32) -> Option<&mut UnackedPacket> {
        self.kept.get_mut(number.wrapping_sub(self.first) as usize)
    }

    /// A carrier says that a packet has arrived.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, number: u32, made: u32) {
        if let Some(kept) = self.kept_mut(number)
            && kept.via == (Via::Reliable { made })
        {
            kept.via = Via::There { made };
        }
    }

    /// This carrier is gone.
    pub(crate) fn broke(&mut self, made: u32) {
        let gone = [Via::Reliable { made }, Via::There { made }];
        self.send_again_where(|via| gone.contains(&via));
    }

    /// What went over carriers that lose packets took a way that leads nowhere.
    pub(crate) fn send_all_again(&mut self) {
        self.send_again_where(|via| matches!(via, Via::Lossy { .. }));
    }

    /// Takes in what the peer has.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, ack: Ack, now_ns: u64, mut free: impl FnMut(Slot)) {
        // Nothing new is the ordinary case, and so is an acknowledgement that was overtaken.
        if ack.next == self.first && (ack.beyond == 0 || self.lossy == 0) {
            return;
        }
        if ack.next == self.first.wrapping_add(1) && self.take_in_one(&mut free) {
            return;
        }
        self.take_in(ack, now_ns, free);
    }

    /// The peer has one packet more, and that went over a reliable carrier: the ordinary news. `false`: nothing was done.
    #[inline(always)]
    fn take_in_one(&mut self, free: &mut impl FnMut(Slot)) -> bool {
        let is_reliable = |kept: &&UnackedPacket| self.lossy == 0 && kept.via != Via::Not;
        let Some(&UnackedPacket { slot, .. }) = self.kept.front().filter(is_reliable) else {
            return false;
        };
        self.kept.pop_front();
        self.first = self.first.wrapping_add(1);
        self.pace.go_on();
        if let Some(slot) = slot {
            free(slot);
        }
        true
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
            self.pace.go_on();
        }
        if self.lossy != 0 && ack.beyond != 0 {
            self.take_in_beyond(ack.beyond, now_ns, &mut free);
        }
        if self.kept.is_empty() && self.kept.capacity() > IDLE_CAPACITY && self.pace.is_known() {
            // A peer over a carrier that loses packets, of which there may be thousands.
            self.kept.shrink_to(IDLE_CAPACITY);
        }
    }

    fn settle(&mut self, kept: UnackedPacket, now_ns: u64, free: &mut impl FnMut(Slot)) {
        self.uncount(kept.via);
        if let Via::Lossy { at } = kept.via {
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
            let Via::Lossy { at } = kept.via else {
                continue;
            };
            if is_there {
                // It has arrived; the entry stays for its number.
                if let Some(slot) = kept.slot.take() {
                    free(slot);
                }
                kept.via = Via::There { made: NOBODY };
                self.lossy -= 1;
                self.pace.measure(at.until(now_ns));
            } else if index < last && at.until(now_ns) > late_ns {
                self.send_again_at(index);
            }
        }
    }

    /// Forgets all.
    pub(crate) fn forget(&mut self, free: impl FnMut(Slot)) {
        let slots = self.kept.drain(..).filter_map(|kept| kept.slot);
        slots.for_each(free);
        (self.unsent, self.lossy) = (0, 0);
    }

    /// When [`timeout`](Self::timeout) wants to be called.
    pub(crate) fn deadline(&self, now_ns: u64) -> Option<u64> {
        if self.lossy == 0 {
            return None;
        }
        let waited = self.kept.iter().filter_map(|kept| match kept.via {
            Via::Lossy { at } => Some(at.until(now_ns)),
            _ => None,
        });
        Some(now_ns + self.pace.timeout_ns().saturating_sub(waited.max()?))
    }

    /// Packets whose time is over wait to be sent again; `true` if there are any.
    pub(crate) fn timeout(&mut self, now_ns: u64) -> bool {
        let Some(deadline) = self.deadline(now_ns) else {
            return false;
        };
        if now_ns < deadline {
            return false;
        }
        let timeout_ns = self.pace.timeout_ns();
        let is_over = |at: Moment| at.until(now_ns) >= timeout_ns;
        self.send_again_where(|via| matches!(via, Via::Lossy { at } if is_over(at)));
        self.pace.slow_down();
        true
    }

    /// How often in a row time was over without an acknowledgement of anything new.
    pub(crate) fn timeouts(&self) -> u8 {
        self.pace.timeouts()
    }
}

/// Entries that an idle peer of packets that may be lost keeps allocated.
const IDLE_CAPACITY: usize = 4;
