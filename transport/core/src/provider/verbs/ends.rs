// SPDX-License-Identifier: MIT OR Apache-2.0
//! How reads, writes and atomic operations end (`work.rs`), well or not.

use super::Verbs;
use super::port::{Port, Status};
use super::rail::Line;
use super::work::{Kind, Work};
use super::works::Settled;
use crate::Outcome;

impl<P: Port> Verbs<P> {
    /// A part has ended well.
    pub(super) fn part_ended(&mut self, index: u32, bytes: u32) {
        self.counts.moved_bytes.add(u64::from(bytes));
        self.works.part_ended(index, bytes);
        self.settle(index);
    }

    /// A part has failed, or was flushed after another had.
    pub(super) fn part_failed(&mut self, index: u32, bytes: u32, status: Status) {
        self.works.part_failed(index, bytes, status, &self.sides);
        self.settle(index);
    }

    /// Ends a work whose parts have all ended, or puts it back in its place.
    fn settle(&mut self, index: u32) {
        match self.works.settle(index, &self.sides) {
            Settled::Goes => {}
            Settled::Over => self.finish(index),
            Settled::Again => {
                if self.bind_again(index) {
                    self.works.put_back(index, &mut self.sides);
                }
            }
        }
    }

    /// A work has ended (W1).
    pub(super) fn finish(&mut self, index: u32) {
        let Some(mut work) = self.works.take(index, &mut self.sides) else {
            return;
        };
        self.rails.deregister_of(&work);
        let outcome = work.outcome;
        self.registry
            .bring_home(&mut work, outcome == Outcome::Done);
        self.tell_end(work, outcome);
    }

    /// Tells who waits for a work how it has ended.
    pub(super) fn tell_end(&mut self, work: Work, outcome: Outcome) {
        if let Some(whole) = work.whole {
            if self.works.share_ended(whole, outcome) {
                self.finish(whole);
            }
            return;
        }
        match (work.errand, work.lease) {
            (Some(errand), _) => self.answer_fetch(work.peer, errand.number, outcome),
            (None, Some(lease)) => self.ready.end(work.id, outcome, lease),
            (None, None) => {}
        }
    }

    /// The port is lost, or (`is_gone`) the device: it may never tell the end of what it was doing, but touches no memory that was taken away from it.
    /// All peers are lost, so nothing takes the places of these works.
    pub(super) fn end_all_works(&mut self, is_gone: bool) {
        for index in self.works.places() {
            let Some(work) = self.works.get_mut(index) else {
                continue;
            };
            if work.shares != 0 {
                // It ends with the last of them.
                continue;
            }
            // Memory that stays registered is out of reach only when the device is gone; that of a bounce buffer is our own.
            if work.region().is_none() && work.bounce.is_none() && work.under_way != 0 && !is_gone {
                continue;
            }
            work.outcome = match work.kind {
                Kind::Atomic(_) if work.under_way != 0 => Outcome::Unknown,
                _ => Outcome::Unreachable,
            };
            self.finish(index);
        }
    }

    /// Works of a peer that wait cannot be done. But what tells the peer of a write may be on its way: that write must be,
    /// unless the peer is lost.
    pub(super) fn fail_waiting(&mut self, line: Line) {
        let is_lost = self.sides.of(line.peer).is_lost();
        let waiting = self.sides.link(line).map(|link| link.waiting.clone());
        for index in waiting.unwrap_or_default() {
            let Some(work) = self.works.get_mut(index) else {
                continue;
            };
            if work.under_way == 0 && (is_lost || work.immediate.is_none()) {
                work.outcome = Outcome::Unreachable;
                self.finish(index);
            }
        }
    }
}
