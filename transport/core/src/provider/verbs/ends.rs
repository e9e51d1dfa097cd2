// SPDX-License-Identifier: MIT OR Apache-2.0
//! How reads, writes and atomic operations end (`work.rs`), well or not.

use super::port::{Port, Status};
use super::rail::Line;
use super::work::{Kind, Work};
use super::{Side, Verbs};
use crate::Outcome;

impl<P: Port> Verbs<P> {
    /// A part has ended well.
    pub(super) fn part_ended(&mut self, index: u32, bytes: u32) {
        self.counts.moved_bytes.add(u64::from(bytes));
        let Some(work) = self.works.get_mut(index) else {
            return;
        };
        work.under_way -= 1;
        work.ended += u64::from(bytes);
        (work.tries, work.refused) = (0, false);
        work.halvings = work.halvings.saturating_sub(1);
        self.doubt_no_more(index, bytes);
        self.settle(index);
    }

    /// A part has failed, or was flushed after another had.
    pub(super) fn part_failed(&mut self, index: u32, bytes: u32, status: Status) {
        self.doubt_no_more(index, bytes);
        let has_other = status == Status::RemoteAccess && self.drop_key(index);
        let Some(work) = self.works.get_mut(index) else {
            return;
        };
        work.under_way -= 1;
        let is_atomic = matches!(work.kind, Kind::Atomic(_));
        match status {
            _ if has_other => work.again = true,
            Status::RemoteAccess | Status::RemoteInvalid
                if !is_atomic && !std::mem::replace(&mut work.refused, true) =>
            {
                work.again = true;
            }
            Status::RemoteAccess | Status::RemoteInvalid | Status::RemoteOperation => {
                work.outcome = Outcome::BadKey;
            }
            _ if is_atomic => work.outcome = Outcome::Unknown,
            // What was exported has been withdrawn.
            Status::LocalProtection if work.errand.is_some() => work.outcome = Outcome::BadKey,
            Status::LocalProtection | Status::LocalLength => work.outcome = Outcome::Unreachable,
            _ => work.again = true,
        }
        self.settle(index);
    }

    /// The key for a work's rail opens nothing: it may be old. `true`: there is one for another rail.
    fn drop_key(&mut self, index: u32) -> bool {
        let work = self.works.get_mut(index);
        let Some(work) = work.filter(|work| !matches!(work.kind, Kind::Atomic(_))) else {
            return false;
        };
        let side = self.sides.get(work.peer);
        let Some(link) = side.and_then(|side| side.link(work.rail)) else {
            return false;
        };
        let mut keys = work.keys;
        keys[usize::from(link.theirs)] = 0;
        let has_other = keys.iter().any(|key| *key != 0);
        if has_other {
            work.keys = keys;
        }
        has_other
    }

    /// A part that may have lied is back.
    fn doubt_no_more(&mut self, index: u32, bytes: u32) {
        let is_read = |work: &Work| work.kind == Kind::Read;
        if self.works.get(index).is_some_and(is_read) {
            self.doubted_bytes = self.doubted_bytes.saturating_sub(bytes.into());
        }
    }

    /// Ends a work whose parts have all ended, or puts it back in its place.
    fn settle(&mut self, index: u32) {
        let Some(work) = self.works.get_mut(index) else {
            return;
        };
        let peer = work.peer;
        let bad = work.outcome != Outcome::Done;
        let all = work.posted == work.bytes;
        if work.under_way != 0 || !(all || bad || work.again) {
            return;
        }
        let side = self.sides.get(peer);
        let lost = side.is_none_or(Side::is_lost);
        let (again, told) = (work.again, self.is_told(index));
        let counts = again && self.is_oldest(index);
        let Some(work) = self.works.get_mut(index) else {
            return;
        };
        work.tries = work.tries.saturating_add(counts.into());
        work.halvings = MOST_HALVINGS.min(work.halvings + u8::from(again));
        if again && work.tries > MOST_TRIES && work.immediate.is_none() {
            // Some devices do not say that it is this request which breaks the queue pair.
            work.outcome = Outcome::Unreachable;
            return self.finish(index);
        }
        if bad || told || !again {
            return self.finish(index);
        }
        if lost {
            work.outcome = Outcome::Unreachable;
            return self.finish(index);
        }
        (work.again, work.posted) = (false, work.ended);
        if self.bind_again(index) {
            self.put_back(index);
        }
    }

    /// Whether nothing that was posted for its peer before it is still here. What comes after that may fail for it.
    fn is_oldest(&self, index: u32) -> bool {
        let of = |index: u32| self.works.get(index);
        of(index).is_some_and(|work| {
            let is_older = |other: &Work| {
                let same = (other.peer, other.rail) == (work.peer, work.rail);
                same && other.shares == 0 && other.serial < work.serial
            };
            !self.works.iter().any(is_older)
        })
    }

    /// A work has ended (W1).
    pub(super) fn finish(&mut self, index: u32) {
        let Some(mut work) = self.works.remove(index) else {
            return;
        };
        let is_told = work.immediate.is_some();
        if let Some(side) = self.sides.get_mut(work.peer) {
            if let Some(link) = side.link_mut(work.rail) {
                link.waiting.retain(|waiting| *waiting != index);
            }
            side.immediates -= u32::from(is_told);
        }
        if is_told {
            self.count_strays(work.peer);
        }
        self.deregister_work(&work);
        let outcome = work.outcome;
        self.registry
            .bring_home(&mut work, outcome == Outcome::Done);
        self.tell_end(work, outcome);
    }

    /// Tells who waits for a work how it has ended.
    pub(super) fn tell_end(&mut self, work: Work, outcome: Outcome) {
        match (work.whole, work.errand, work.lease) {
            (Some(whole), ..) => self.share_ended(whole, outcome),
            (_, Some(errand), _) => self.answer_fetch(work.peer, errand.number, outcome),
            (.., Some(lease)) => self.ready.end(work.id, outcome, lease),
            _ => {}
        }
    }

    /// The port is lost, or (`is_gone`) the device: it may never tell the end of what it was doing, but touches no memory that was taken away from it.
    /// All peers are lost, so nothing takes the places of these works.
    pub(super) fn end_all_works(&mut self, is_gone: bool) {
        for index in self.works.numbers() {
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

/// A part of a read or write is tried so often.
pub(super) const MOST_TRIES: u8 = 32;
/// Its parts become smaller when some fail, so often, and larger again with each that does not.
const MOST_HALVINGS: u8 = 5;
