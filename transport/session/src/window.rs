// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream to a peer: the packets that are kept until they are acknowledged, in order, and how each was sent (S1 to
//! S3).

use std::collections::VecDeque;

use crate::resend_timer::ResendTimer;
use crate::{Ack, Moment, NO_CARRIER, Slot, UnsentPacket, Via, WINDOW};

/// The kept packets: those that are not acknowledged, and those that were acknowledged out of order.
#[derive(Debug)]
pub(crate) struct Window {
    /// Sequence number of the oldest kept packet.
    first: u32,
    kept: VecDeque<UnackedPacket>,
    /// Number of unsent packets.
    unsent: u32,
    unsent_from: u32,
    /// Number of packets in flight over lossy carriers.
    lossy: u32,
    timer: ResendTimer,
}

/// A packet that is not acknowledged in order.
#[derive(Clone, Copy, Debug)]
struct UnackedPacket {
    /// The slot with the packet; `None`: it was acknowledged out of order, and its slot is free.
    slot: Option<Slot>,
    bytes: u32,
    via: Via,
}

impl Window {
    /// Bytes of memory for a peer that has a few packets outstanding.
    pub(crate) const IDLE_BYTES: usize = IDLE_CAPACITY * size_of::<UnackedPacket>();

    /// A stream whose first packet has this sequence number.
    pub(crate) fn new(first: u32) -> Self {
        Self {
            first,
            kept: VecDeque::new(),
            unsent: 0,
            unsent_from: first,
            lossy: 0,
            timer: ResendTimer::default(),
        }
    }

    /// Number of packets that may be added now (S2).
    #[inline(always)]
    pub(crate) fn room(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        let used = self.kept.len() as u32;
        WINDOW - used
    }

    /// Sequence number of the next packet.
    #[inline(always)]
    pub(crate) fn next(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        self.first.wrapping_add(self.kept.len() as u32)
    }

    /// Adds a packet, which is unsent.
    #[inline(always)]
    pub(crate) fn keep(&mut self, slot: Slot, bytes: u32) {
        debug_assert!(self.room() > 0, "S2");
        self.send_again(self.next());
        self.kept.push_back(UnackedPacket {
            slot: Some(slot),
            bytes,
            via: Via::Unsent,
        });
    }

    /// Adds a packet that was just sent over a reliable carrier.
    #[inline(always)]
    pub(crate) fn keep_sent(&mut self, slot: Slot, bytes: u32, carrier: u32) {
        debug_assert!(self.room() > 0 && self.unsent == 0, "S2, and in order");
        self.kept.push_back(UnackedPacket {
            slot: Some(slot),
            bytes,
            via: Via::Reliable { carrier },
        });
    }

    /// Sets the length of packet `number` and returns its slot, if it is the newest packet and unsent.
    #[inline(always)]
    pub(crate) fn extend(&mut self, number: u32, bytes: u32) -> Option<Slot> {
        let is_newest = number.wrapping_add(1) == self.next();
        let kept = self.kept.back_mut().filter(|_| is_newest)?;
        if kept.via != Via::Unsent {
            return None;
        }
        kept.bytes = bytes;
        kept.slot
    }

    /// Number of unsent packets.
    #[inline(always)]
    pub(crate) fn unsent(&self) -> u32 {
        self.unsent
    }

    /// Whether all packets are acknowledged or completed by their carriers.
    pub(crate) fn has_arrived(&self) -> bool {
        let is_there = |kept: &UnackedPacket| matches!(kept.via, Via::Arrived { .. });
        self.kept.iter().all(is_there)
    }

    /// Sequence number of the oldest kept packet.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (!self.kept.is_empty()).then_some(self.first)
    }

    /// Whether a packet was sent over this carrier and neither completed nor acknowledged.
    pub(crate) fn is_under_way(&self, carrier: u32) -> bool {
        let via = Via::Reliable { carrier };
        self.kept.iter().any(|kept| kept.via == via)
    }

    /// Whether this packet is kept, that is, not acknowledged in order.
    pub(crate) fn is_unacknowledged(&self, number: u32) -> bool {
        (number.wrapping_sub(self.first) as usize) < self.kept.len()
    }

    /// The oldest unsent packet.
    pub(crate) fn next_unsent(&self) -> Option<UnsentPacket> {
        if self.unsent == 0 {
            return None;
        }
        let waits = |(_, kept): &(u32, &UnackedPacket)| kept.via == Via::Unsent;
        let from = self.unsent_from.wrapping_sub(self.first);
        // If packets up to `unsent_from` were acknowledged meanwhile, the search begins with the oldest packet.
        let from = if from < WINDOW { from } else { 0 };
        let rest = self.kept.iter().skip(from as usize);
        let (index, kept) = (from..).zip(rest).find(waits)?;
        self.due(index, kept)
    }

    /// Fills `places` with the oldest unsent packets; returns their number.
    pub(crate) fn next_of_unsent(&self, places: &mut [UnsentPacket]) -> usize {
        let all = (0..).zip(&self.kept);
        let waiting = all.filter(|(_, kept)| kept.via == Via::Unsent);
        let due = waiting.filter_map(|(index, kept)| self.due(index, kept));
        let mut count = 0;
        for (place, due) in places.iter_mut().zip(due) {
            *place = due;
            count += 1;
        }
        count
    }

    fn due(&self, index: u32, kept: &UnackedPacket) -> Option<UnsentPacket> {
        Some(UnsentPacket {
            number: self.first.wrapping_add(index),
            slot: kept.slot?,
            bytes: kept.bytes,
        })
    }

    /// Counts packet `number` as unsent.
    #[inline(always)]
    fn send_again(&mut self, number: u32) {
        let is_before = number.wrapping_sub(self.unsent_from).cast_signed() < 0;
        if self.unsent == 0 || is_before {
            self.unsent_from = number;
        }
        self.unsent += 1;
    }

    /// Marks the packet at this index as unsent.
    fn send_again_at(&mut self, index: usize) {
        let via = std::mem::replace(&mut self.kept[index].via, Via::Unsent);
        self.uncount(via);
        #[allow(clippy::cast_possible_truncation, reason = "at most a window")]
        let number = self.first.wrapping_add(index as u32);
        self.send_again(number);
    }

    /// Marks all packets for which `is_lost` returns `true` as unsent.
    fn send_again_where(&mut self, is_lost: impl Fn(Via) -> bool) {
        for index in 0..self.kept.len() {
            if is_lost(self.kept[index].via) {
                self.send_again_at(index);
            }
        }
    }

    /// Records that a packet was sent.
    #[inline]
    pub(crate) fn sent(&mut self, number: u32, via: Via) {
        let Some(kept) = self.kept_mut(number) else {
            return;
        };
        let before = std::mem::replace(&mut kept.via, via);
        self.uncount(before);
        match via {
            Via::Unsent => self.send_again(number),
            Via::Lossy { .. } => self.lossy += 1,
            Via::Reliable { .. } | Via::Arrived { .. } => {}
        }
        if number == self.unsent_from {
            self.unsent_from = number.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn uncount(&mut self, via: Via) {
        match via {
            Via::Unsent => self.unsent -= 1,
            Via::Lossy { .. } => self.lossy -= 1,
            Via::Reliable { .. } | Via::Arrived { .. } => {}
        }
    }

    #[inline(always)]
    fn kept_mut(&mut self, number: u32) -> Option<&mut UnackedPacket> {
        self.kept.get_mut(number.wrapping_sub(self.first) as usize)
    }

    /// Records that a carrier has completed a packet.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, number: u32, carrier: u32) {
        if let Some(kept) = self.kept_mut(number)
            && kept.via == (Via::Reliable { carrier })
        {
            kept.via = Via::Arrived { carrier };
        }
    }

    /// Records that a carrier broke: its packets become unsent.
    pub(crate) fn carrier_broke(&mut self, carrier: u32) {
        let broken = [Via::Reliable { carrier }, Via::Arrived { carrier }];
        self.send_again_where(|via| broken.contains(&via));
    }

    /// Marks all packets of lossy carriers as unsent, because they took a path that does not work.
    pub(crate) fn resend_lossy(&mut self) {
        self.send_again_where(|via| matches!(via, Via::Lossy { .. }));
    }

    /// Handles an acknowledgement.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, ack: Ack, now_ns: u64, mut free: impl FnMut(Slot)) {
        // In most cases no further packet is acknowledged in order (`next`). Then those acknowledged out of order
        // (`beyond`) matter only if packets are in flight over lossy carriers.
        if ack.next == self.first && (ack.beyond == 0 || self.lossy == 0) {
            return;
        }
        if ack.next == self.first.wrapping_add(1) && self.take_one(&mut free) {
            return;
        }
        self.take_ack_of_several(ack, now_ns, free);
    }

    /// Handles the common case: one more packet is acknowledged, and no lossy carrier is in use. `false`: it is another
    /// case, and nothing was done.
    #[inline(always)]
    fn take_one(&mut self, free: &mut impl FnMut(Slot)) -> bool {
        let is_reliable = |kept: &&UnackedPacket| self.lossy == 0 && kept.via != Via::Unsent;
        let Some(&UnackedPacket { slot, .. }) = self.kept.front().filter(is_reliable) else {
            return false;
        };
        self.kept.pop_front();
        self.first = self.first.wrapping_add(1);
        self.timer.reset_backoff();
        if let Some(slot) = slot {
            free(slot);
        }
        true
    }

    fn take_ack_of_several(&mut self, ack: Ack, now_ns: u64, mut free: impl FnMut(Slot)) {
        let acknowledged = ack.next.wrapping_sub(self.first);
        // The acknowledgement was reordered, or is invalid: for packets that do not exist yet.
        if acknowledged as usize > self.kept.len() {
            return;
        }
        for _ in 0..acknowledged {
            let Some(kept) = self.kept.pop_front() else {
                return;
            };
            self.first = self.first.wrapping_add(1);
            self.remove_acknowledged(kept, now_ns, &mut free);
        }
        if acknowledged > 0 {
            self.timer.reset_backoff();
        }
        if self.lossy != 0 && ack.beyond != 0 {
            self.take_out_of_order(ack.beyond, now_ns, &mut free);
        }
        if self.kept.is_empty() && self.kept.capacity() > IDLE_CAPACITY && self.timer.has_sample() {
            // A measured round trip means that the peer is reached over a lossy carrier. There may be thousands of such
            // peers, so little memory is kept for each.
            self.kept.shrink_to(IDLE_CAPACITY);
        }
    }

    fn remove_acknowledged(
        &mut self,
        kept: UnackedPacket,
        now_ns: u64,
        free: &mut impl FnMut(Slot),
    ) {
        self.uncount(kept.via);
        if let Via::Lossy { at } = kept.via {
            self.timer.measure(at.elapsed_ns(now_ns));
        }
        if let Some(slot) = kept.slot {
            free(slot);
        }
    }

    /// Handles packets that were acknowledged out of order: their slots are freed, and earlier packets that are late
    /// become unsent.
    fn take_out_of_order(&mut self, beyond: u64, now_ns: u64, free: &mut impl FnMut(Slot)) {
        // Read before the loop, which may measure the first round trip: before that no packet counts as late.
        let late_ns = self.timer.late_ns();
        let last = 64 - beyond.leading_zeros() as usize;
        for index in 0..=last.min(self.kept.len().saturating_sub(1)) {
            let is_there = index > 0 && beyond >> (index - 1) & 1 != 0;
            let kept = &mut self.kept[index];
            let Via::Lossy { at } = kept.via else {
                continue;
            };
            if is_there {
                // The packet has arrived; its entry stays, so that the entries remain consecutive.
                if let Some(slot) = kept.slot.take() {
                    free(slot);
                }
                kept.via = Via::Arrived {
                    carrier: NO_CARRIER,
                };
                self.lossy -= 1;
                self.timer.measure(at.elapsed_ns(now_ns));
            } else if index < last && at.elapsed_ns(now_ns) > late_ns {
                self.send_again_at(index);
            }
        }
    }

    /// Discards all packets.
    pub(crate) fn forget(&mut self, free: impl FnMut(Slot)) {
        let slots = self.kept.drain(..).filter_map(|kept| kept.slot);
        slots.for_each(free);
        (self.unsent, self.lossy) = (0, 0);
    }

    /// When [`timeout`](Self::timeout) must be called next; `None`: it need not be called.
    pub(crate) fn deadline(&self, now_ns: u64) -> Option<u64> {
        if self.lossy == 0 {
            return None;
        }
        let waited = self.kept.iter().filter_map(|kept| match kept.via {
            Via::Lossy { at } => Some(at.elapsed_ns(now_ns)),
            _ => None,
        });
        Some(now_ns + self.timer.timeout_ns().saturating_sub(waited.max()?))
    }

    /// Marks packets of lossy carriers that have timed out as unsent; returns whether there are any.
    pub(crate) fn timeout(&mut self, now_ns: u64) -> bool {
        let Some(deadline) = self.deadline(now_ns) else {
            return false;
        };
        if now_ns < deadline {
            return false;
        }
        let timeout_ns = self.timer.timeout_ns();
        let is_over = |at: Moment| at.elapsed_ns(now_ns) >= timeout_ns;
        self.send_again_where(|via| matches!(via, Via::Lossy { at } if is_over(at)));
        self.timer.back_off();
        true
    }

    /// Number of consecutive timeouts, without an acknowledgement of anything new between them; it saturates.
    pub(crate) fn timeouts(&self) -> u8 {
        self.timer.timeouts()
    }
}

/// Number of entries that remain allocated for an idle peer on a lossy carrier.
const IDLE_CAPACITY: usize = 4;
