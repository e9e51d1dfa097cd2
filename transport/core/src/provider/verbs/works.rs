// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps all reads, writes and atomic operations in flight, and tracks the progress of each. This file posts and counts
//! parts, and decides their outcome; messages to peers and completions are sent elsewhere.

use super::bounce::Bounce;
use super::keys::Keys;
use super::pair::{NOTHING, ReliablePair};
use super::peer_table::PeerTable;
use super::port::{CallError, VerbsPort, WorkBody, WorkRequest, WorkStatus};
use super::posted::PostedRequest;
use super::rail::{PeerPath, Rail};
use super::rails::Rails;
use super::registry::RegionRegistry;
use super::slab::Slab;
use super::work::{Work, WorkKind};
use super::{MOST_POSTED, name};
use crate::WorkOutcome;

/// The works of a process, by index.
#[derive(Debug)]
pub(super) struct Works {
    all: Slab<Work>,
    /// Number of works ever begun.
    serial: u64,
    /// Bytes of unproven reads in flight.
    unproven_bytes: u64,
}

/// The queue pair and the rail to which parts of a work are posted.
#[derive(Debug)]
pub(super) struct WorkPath<'a, P: VerbsPort> {
    /// Index of the queue pair `pair`, which is on the rail `rail`.
    pub(super) index: u32,
    pub(super) pair: &'a mut ReliablePair,
    pub(super) rail: &'a mut Rail<P>,
    /// The rail of the peer to which the queue pair is connected.
    pub(super) theirs: u8,
    /// Largest part, in bytes.
    pub(super) part_bytes: u64,
    /// Number of the present poll.
    pub(super) poll: u64,
}

/// How much of a work was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    All,
    /// There is no room for more.
    Full,
    /// The request that proves a read could not be posted, so the success of the read cannot be checked.
    Unproved,
}

/// State of a work after one of its parts has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Other parts are in flight, or are still to be posted.
    InFlight,
    /// The work has ended, with its `outcome`.
    Ended,
    /// The failed parts of the work are to be posted again.
    Again,
}

impl Works {
    pub(super) fn new() -> Self {
        Self {
            all: Slab::new(),
            serial: 0,
            unproven_bytes: 0,
        }
    }

    /// The next serial number: the position in the order of all works.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Work> {
        self.all.get_mut(index)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All indices in use, now or before.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + use<> {
        self.all.numbers()
    }

    /// Gives a work an index.
    pub(super) fn place(&mut self, work: Work) -> u32 {
        self.all.insert(work)
    }

    /// Queues a work behind those that wait for its rail; returns its path.
    pub(super) fn start(&mut self, work: Work, peers: &mut PeerTable) -> PeerPath {
        let (peer, rail) = (work.peer, work.rail);
        let is_announced = work.immediate.is_some();
        let index = self.place(work);
        let path = PeerPath { peer, rail };
        if let Some(link) = peers.link(path) {
            link.waiting.push(index);
        }
        if is_announced {
            self.count_strays(peer, peers);
        }
        path
    }

    /// Queues a work again, in its old position.
    pub(super) fn put_back(&mut self, index: u32, peers: &mut PeerTable) {
        let Some(work) = self.all.get(index) else {
            return;
        };
        let link = peers.get_mut(work.peer);
        let Some(link) = link.and_then(|remote| remote.link_mut(work.rail)) else {
            return;
        };
        if link.waiting.contains(&index) {
            return;
        }
        let is_older = |other: &u32| {
            let other = self.all.get(*other);
            other.is_none_or(|other| other.serial < work.serial)
        };
        let place = link.waiting.partition_point(is_older);
        link.waiting.insert(place, index);
    }

    /// Removes a work that has ended, also from the queue of its rail.
    pub(super) fn take(&mut self, index: u32, peers: &mut PeerTable) -> Option<Work> {
        let work = self.all.remove(index)?;
        let is_announced = work.immediate.is_some();
        if let Some(remote) = peers.get_mut(work.peer) {
            if let Some(link) = remote.link_mut(work.rail) {
                link.waiting.retain(|waiting| *waiting != index);
            }
            remote.immediates -= u32::from(is_announced);
        }
        if is_announced {
            self.count_strays(work.peer, peers);
        }
        Some(work)
    }

    /// Marks a work as failed. The caller ends it.
    pub(super) fn give_up(&mut self, index: u32) {
        if let Some(work) = self.all.get_mut(index) {
            work.outcome = WorkOutcome::Unreachable;
        }
    }

    /// Moves a waiting work to the rail that is best now. `false`: there is no such rail, and the work fails; an
    /// announced write waits instead (`true`).
    pub(super) fn bind_again<P: VerbsPort>(
        &mut self,
        index: u32,
        peers: &mut PeerTable,
        rails: &mut Rails<P>,
    ) -> bool {
        let Some(work) = self.all.get(index) else {
            return false;
        };
        let rail = work.rail;
        let is_announced = work.immediate.is_some();
        let Some(best) = peers.rail_for(work.peer, &work.keys, rails) else {
            if !is_announced {
                self.give_up(index);
            }
            return is_announced;
        };
        if best != rail {
            self.bind(index, best, peers, rails);
        }
        true
    }

    /// Moves a waiting work to a rail; its memory is not registered there yet.
    pub(super) fn bind<P: VerbsPort>(
        &mut self,
        index: u32,
        rail: u8,
        peers: &mut PeerTable,
        rails: &mut Rails<P>,
    ) {
        let Some(work) = self.all.get_mut(index) else {
            return;
        };
        let (peer, is_announced) = (work.peer, work.immediate.is_some());
        rails.deregister_of(work);
        (work.rail, work.registered) = (rail, None);
        if is_announced {
            self.count_strays(peer, peers);
        }
    }

    /// Registers the memory of a work on its rail, if it is not registered there yet. `Some(false)`: this is
    /// impossible, and the work has failed. `None`: it is impossible now, and the work must wait, since its write is
    /// announced to the peer.
    pub(super) fn ensure_registered<P: VerbsPort>(
        &mut self,
        index: u32,
        registry: &mut RegionRegistry,
        rails: &mut Rails<P>,
    ) -> Option<bool> {
        let work = self.all.get_mut(index)?;
        if work.registered.is_some() {
            return Some(true);
        }
        work.registered = registry.register(work.stretch(), rails).ok();
        match (work.registered, work.immediate) {
            (Some(_), _) => Some(true),
            (None, Some(_)) => None,
            (None, None) => {
                work.outcome = WorkOutcome::Unreachable;
                Some(false)
            }
        }
    }

    /// The shares of a work, with memory registered on their rails; an error if that of any share cannot be registered.
    pub(super) fn shares<P: VerbsPort>(
        &mut self,
        whole: &Work,
        parts: &[(u8, u64)],
        registry: &mut RegionRegistry,
        rails: &mut Rails<P>,
    ) -> Result<Vec<Work>, CallError> {
        let mut from = 0;
        let mut shares: Vec<Work> = Vec::new();
        for (rail, bytes) in parts {
            let mut share = Work {
                serial: self.next_serial(),
                lease: None,
                base: whole.base + from,
                bytes: *bytes,
                rail: *rail,
                address: whole.address.wrapping_add(from),
                bounce: None::<Bounce>,
                ..*whole
            };
            from += bytes;
            match registry.register(share.stretch(), rails) {
                Ok(registered) => share.registered = Some(registered),
                Err(error) => {
                    for share in &shares {
                        rails.deregister_of(share);
                    }
                    return Err(error);
                }
            }
            shares.push(share);
        }
        Ok(shares)
    }

    /// Records the end of a share. `true`: the whole has ended with its last share, with the worst outcome of all.
    pub(super) fn share_ended(&mut self, whole: u32, outcome: WorkOutcome) -> bool {
        let Some(work) = self.all.get_mut(whole) else {
            return false;
        };
        work.shares -= 1;
        if work.outcome == WorkOutcome::Done || outcome == WorkOutcome::BadKey {
            work.outcome = outcome;
        }
        work.shares == 0
    }

    /// Posts the remaining parts of a work.
    pub(super) fn push<P: VerbsPort>(&mut self, index: u32, route: WorkPath<'_, P>) -> Pushed {
        let Some(work) = self.all.get_mut(index) else {
            return Pushed::All;
        };
        let (pair, rail) = (route.pair, route.rail);
        let facts = rail.port.facts();
        let (depth, all) = (facts.depth as usize, work.bytes);
        let unproven = work.kind == WorkKind::Read && facts.has_unreliable_reads;
        let most = work.most_part_bytes(facts, route.part_bytes);
        while work.posted < all {
            // Only a read without unproven reads before it gets its proof here, as a second request (W3); any other
            // read is proved by a later request.
            let alone = unproven && !pair.requests.has_unproven();
            let requests = 1 + usize::from(alone);
            let full =
                pair.requests.len() + requests > depth || rail.posted + requests > MOST_POSTED;
            if full || (unproven && self.unproven_bytes >= MOST_UNPROVEN_BYTES) {
                return Pushed::Full;
            }
            let bytes = u32::try_from((all - work.posted).min(most)).unwrap_or(0);
            let (operation, piece) = work.part(bytes, route.theirs);
            let next = pair.requests.next();
            let request = WorkRequest {
                work: name(route.index, next),
                operation,
                body: WorkBody::Piece(piece),
                signaled: !alone,
            };
            let proof = WorkRequest {
                work: name(route.index, next.wrapping_add(1)),
                operation: NOTHING.0,
                body: NOTHING.1,
                signaled: true,
            };
            let taken = rail.port.post(pair.end, &[request, proof][..requests]);
            if taken == 0 {
                return Pushed::Full;
            }
            let posted = PostedRequest::Part {
                work: index,
                bytes,
                unproven,
            };
            pair.requests.push(posted, !alone);
            pair.used_at = route.poll;
            rail.posted += taken;
            work.posted += u64::from(bytes);
            work.in_flight += 1;
            if unproven {
                self.unproven_bytes += u64::from(bytes);
            }
            if taken < requests {
                return Pushed::Unproved;
            }
            if alone {
                pair.requests.push(PostedRequest::Mark { read: None }, true);
            }
        }
        Pushed::All
    }

    /// Records a part that has succeeded.
    pub(super) fn part_ended(&mut self, index: u32, bytes: u32) {
        self.subtract_unproven(index, bytes);
        if let Some(work) = self.all.get_mut(index) {
            work.in_flight -= 1;
            work.ended += u64::from(bytes);
            (work.attempts, work.refused) = (0, false);
            work.halvings = work.halvings.saturating_sub(1);
        }
    }

    /// Records a part that has failed, or was flushed after another had failed.
    pub(super) fn part_failed(
        &mut self,
        index: u32,
        bytes: u32,
        status: WorkStatus,
        peers: &PeerTable,
    ) {
        self.subtract_unproven(index, bytes);
        let has_other = status == WorkStatus::RemoteAccess && self.drop_key(index, peers);
        let Some(work) = self.all.get_mut(index) else {
            return;
        };
        work.in_flight -= 1;
        let is_atomic = matches!(work.kind, WorkKind::Atomic(_));
        match status {
            _ if has_other => work.again = true,
            WorkStatus::RemoteAccess | WorkStatus::RemoteInvalid
                if !is_atomic && !std::mem::replace(&mut work.refused, true) =>
            {
                work.again = true;
            }
            WorkStatus::RemoteAccess | WorkStatus::RemoteInvalid | WorkStatus::RemoteOperation => {
                work.outcome = WorkOutcome::BadKey;
            }
            _ if is_atomic => work.outcome = WorkOutcome::Unknown,
            // The exported memory has been withdrawn.
            WorkStatus::LocalProtection if work.errand.is_some() => {
                work.outcome = WorkOutcome::BadKey
            }
            WorkStatus::LocalProtection | WorkStatus::LocalLength => {
                work.outcome = WorkOutcome::Unreachable
            }
            _ => work.again = true,
        }
    }

    /// The peer's device refused the key for a work's rail, which may be outdated: drops this key if the work has a key
    /// for another rail (`true`). For an atomic operation always `false`.
    fn drop_key(&mut self, index: u32, peers: &PeerTable) -> bool {
        let work = self.all.get_mut(index);
        let Some(work) = work.filter(|work| !matches!(work.kind, WorkKind::Atomic(_))) else {
            return false;
        };
        let link = peers
            .get(work.peer)
            .and_then(|remote| remote.link(work.rail));
        let Some(link) = link else { return false };
        let mut keys: Keys = work.keys;
        keys[usize::from(link.theirs)] = 0;
        let has_other = keys.iter().any(|key| *key != 0);
        if has_other {
            work.keys = keys;
        }
        has_other
    }

    /// Subtracts an ended part of a read from the unproven bytes in flight.
    fn subtract_unproven(&mut self, index: u32, bytes: u32) {
        let is_read = |work: &Work| work.kind == WorkKind::Read;
        if self.all.get(index).is_some_and(is_read) {
            self.unproven_bytes = self.unproven_bytes.saturating_sub(bytes.into());
        }
    }

    /// Decides, after a part of a work has ended, whether the work has ended or its parts must be posted again.
    pub(super) fn settle(&mut self, index: u32, peers: &PeerTable) -> Settled {
        let Some(work) = self.all.get(index) else {
            return Settled::InFlight;
        };
        let bad = work.outcome != WorkOutcome::Done;
        let all = work.posted == work.bytes;
        let lost = peers.get(work.peer).is_none_or(|remote| remote.is_lost());
        // For a lost peer nothing more is posted, so a work to it settles as soon as none of its parts is in flight.
        if work.in_flight != 0 || !(all || bad || work.again || lost) {
            return Settled::InFlight;
        }
        let (again, is_acked) = (work.again, self.is_announcement_acked(index, peers));
        let counts = again && self.is_oldest(work);
        let Some(work) = self.all.get_mut(index) else {
            return Settled::InFlight;
        };
        work.attempts = work.attempts.saturating_add(counts.into());
        work.halvings = MOST_HALVINGS.min(work.halvings + u8::from(again));
        if again && work.attempts > MOST_TRIES && work.immediate.is_none() {
            // This work is taken to be the one that breaks the queue pair; some devices do not report which request
            // does.
            work.outcome = WorkOutcome::Unreachable;
            return Settled::Ended;
        }
        if bad || is_acked || (all && !again) {
            return Settled::Ended;
        }
        if lost {
            work.outcome = WorkOutcome::Unreachable;
            return Settled::Ended;
        }
        (work.again, work.posted) = (false, work.ended);
        Settled::Again
    }

    /// Whether this is the oldest work for its peer and rail; later works may fail only because an earlier one failed.
    fn is_oldest(&self, work: &Work) -> bool {
        let is_older = |other: &Work| {
            let same = (other.peer, other.rail) == (work.peer, work.rail);
            same && other.shares == 0 && other.serial < work.serial
        };
        !self.all.iter().any(is_older)
    }

    /// Whether the peer has acknowledged the packet that announces a write: if so, the write has completed.
    pub(super) fn is_announcement_acked(&self, index: u32, peers: &PeerTable) -> bool {
        let work = self.all.get(index);
        let Some((work, number)) = work.and_then(|work| Some((work, work.immediate?))) else {
            return false;
        };
        let remote = peers.get(work.peer);
        // The stream of a lost peer is discarded, so its state shows nothing.
        remote.is_some_and(|remote| !remote.is_lost() && !remote.session.is_unacknowledged(number))
    }

    /// Counts announced writes that do not go over the peer's main link.
    pub(super) fn count_strays(&mut self, peer: u32, peers: &mut PeerTable) {
        let remote = peers.of(peer);
        let main = remote.main.rail;
        let is_stray =
            |work: &&Work| work.peer == peer && work.immediate.is_some() && work.rail != main;
        let strays = self.all.iter().filter(is_stray).count();
        if let Some(more) = &mut remote.more {
            more.strays = u32::try_from(strays).unwrap_or(u32::MAX);
        }
    }

    /// Deregisters the memory of all works.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut Rails<P>) {
        for work in self.all.iter() {
            rails.deregister_of(work);
        }
    }
}

/// A work fails after more than this many failed attempts in a row to carry out its parts; an announced write is
/// attempted without limit.
pub(super) const MOST_TRIES: u8 = 32;
/// Maximum number of times that the parts of a work are halved after failures; each success doubles their size again.
const MOST_HALVINGS: u8 = 5;
/// Maximum number of bytes of unreliable reads in flight in this process: more would overrun the queues of a device
/// that the kernel implements.
const MOST_UNPROVEN_BYTES: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PeerPath = PeerPath { peer: 1, rail: 0 };

    /// A work of 100 bytes on rail 0.
    fn work(works: &mut Works, kind: WorkKind) -> Work {
        Work {
            bytes: 100,
            ..Work::new(PATH.peer, works.next_serial(), kind, 0, [1, 0, 0, 0])
        }
    }

    /// A work whose bytes are all in flight, in one part.
    fn in_flight(works: &mut Works, kind: WorkKind) -> u32 {
        let work = Work {
            posted: 100,
            in_flight: 1,
            ..work(works, kind)
        };
        works.place(work)
    }

    fn fail(works: &mut Works, index: u32, status: WorkStatus, peers: &PeerTable) -> Settled {
        works.part_failed(index, 100, status, peers);
        works.settle(index, peers)
    }

    #[test]
    fn a_work_ends_with_its_last_part() {
        let (mut works, peers) = (Works::new(), PeerTable::new(0, 2, 7));
        let index = in_flight(&mut works, WorkKind::Read);
        let work = works.get_mut(index).unwrap();
        work.in_flight = 2;
        works.part_ended(index, 60);
        assert_eq!(works.settle(index, &peers), Settled::InFlight);
        works.part_ended(index, 40);
        assert_eq!(works.settle(index, &peers), Settled::Ended);
        let work = works.get_mut(index).unwrap();
        assert_eq!((work.outcome, work.ended), (WorkOutcome::Done, 100));
    }

    #[test]
    fn flushed_work_is_retried_in_its_order() {
        let (mut works, mut peers) = (Works::new(), PeerTable::new(0, 2, 7));
        let first = in_flight(&mut works, WorkKind::Write);
        let second = work(&mut works, WorkKind::Write);
        assert_eq!(works.start(second, &mut peers), PATH);
        assert_eq!(
            fail(&mut works, first, WorkStatus::Flushed, &peers),
            Settled::Again
        );
        works.put_back(first, &mut peers);
        works.put_back(first, &mut peers);
        assert_eq!(peers.of(1).main.waiting, [first, first + 1]);
        assert!(works.take(first, &mut peers).is_some());
        assert_eq!(peers.of(1).main.waiting, [first + 1]);
        assert_eq!(works.len(), 1);
    }

    #[test]
    fn a_remote_access_error_ends_work_only_when_repeated() {
        let (mut works, mut peers) = (Works::new(), PeerTable::new(0, 2, 7));
        peers.of(1);
        let index = in_flight(&mut works, WorkKind::Read);
        let refused = WorkStatus::RemoteAccess;
        assert_eq!(fail(&mut works, index, refused, &peers), Settled::Again);
        let again = works.get_mut(index).unwrap();
        (again.in_flight, again.posted) = (1, 100);
        assert_eq!(fail(&mut works, index, refused, &peers), Settled::Ended);
        let work = works.get_mut(index).unwrap();
        assert_eq!(work.outcome, WorkOutcome::BadKey);
    }

    #[test]
    fn a_failed_atomic_is_not_retried() {
        let (mut works, mut peers) = (Works::new(), PeerTable::new(0, 2, 7));
        peers.of(1);
        let add = WorkKind::Atomic(crate::Atomic::FetchAdd { add: 1 });
        let index = in_flight(&mut works, add);
        assert_eq!(
            fail(&mut works, index, WorkStatus::Flushed, &peers),
            Settled::Ended
        );
        let work = works.get_mut(index).unwrap();
        assert_eq!(work.outcome, WorkOutcome::Unknown);
    }

    #[test]
    fn only_the_oldest_work_of_a_pair_exhausts_its_retries() {
        let (mut works, mut peers) = (Works::new(), PeerTable::new(0, 2, 7));
        peers.of(1);
        let indices = [0; 2].map(|_| in_flight(&mut works, WorkKind::Write));
        let mut last = Settled::InFlight;
        for _ in 0..=MOST_TRIES {
            for index in indices {
                let work = works.get_mut(index).unwrap();
                (work.in_flight, work.posted) = (1, 100);
            }
            assert_eq!(
                fail(&mut works, indices[1], WorkStatus::Flushed, &peers),
                Settled::Again
            );
            last = fail(&mut works, indices[0], WorkStatus::Flushed, &peers);
        }
        assert_eq!(last, Settled::Ended);
        let [first, second] = indices.map(|index| {
            let work = works.get_mut(index).unwrap();
            (work.outcome, work.attempts, work.halvings)
        });
        assert_eq!(
            first,
            (WorkOutcome::Unreachable, MOST_TRIES + 1, MOST_HALVINGS)
        );
        assert_eq!(second, (WorkOutcome::Done, 0, MOST_HALVINGS));
    }

    #[test]
    fn a_striped_work_ends_with_its_last_share_and_worst_outcome() {
        let mut works = Works::new();
        let whole = Work {
            shares: 3,
            ..work(&mut works, WorkKind::Read)
        };
        let whole = works.place(whole);
        assert!(!works.share_ended(whole, WorkOutcome::Unreachable));
        assert!(!works.share_ended(whole, WorkOutcome::BadKey));
        assert!(works.share_ended(whole, WorkOutcome::Done));
        let work = works.get_mut(whole).unwrap();
        assert_eq!(work.outcome, WorkOutcome::BadKey);
        assert!(
            !works.share_ended(whole + 1, WorkOutcome::Done),
            "it is not there"
        );
    }
}
