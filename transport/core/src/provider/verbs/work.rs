// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads, writes and atomic operations on peers' memory by the device, and memory of ours that peers reach.
//!
//! - W1: a lease comes back, with its completion, only after the device has forgotten the memory.
//! - W2: what was under way on a queue pair that broke is posted again, in the old order. A read or write that has happened
//!   already happens twice then, with the same bytes; but a write whose immediate has arrived does not, since its target
//!   may be in use again.
//! - W3: where reads lie (`Facts::reads_lie`), one has ended when what was posted right behind it has: a write of nothing.
//! - W4: an atomic operation that was under way on a queue pair that broke is not posted again; its end is [`Outcome::Unknown`].

use super::arrive::IMMEDIATE;
use super::ledger::Posted;
use super::memory::{register_exported, register_lease};
use super::port::{Access, Body, CallError, Operation, Piece, Port, Region, Request, Status};
use super::wire::{BEGINS, ENDS};
use super::words::{self, LockedMemory};
use super::{MOST_POSTED, Side, Verbs, name};
use crate::{Atomic, Completion, Head, Lease, Outcome, Peer, RemoteKey, WorkId};

/// What is done to a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// Not a second time: nobody could tell whether that is one too many.
    Atomic(Atomic),
}

/// A read, write or atomic operation that was posted by the caller.
#[derive(Debug)]
pub(super) struct Work {
    peer: u32,
    id: WorkId,
    /// Its place in the order of all.
    serial: u64,
    lease: Lease,
    /// Where the memory is registered for this alone.
    region: Option<Region>,
    local_key: u32,
    kind: Kind,
    /// Where it begins there.
    address: u64,
    key: u32,
    /// Bytes that were posted, and of these the ones that are there: parts end in order.
    posted: u64,
    ended: u64,
    /// Work requests of it that have not ended.
    under_way: u32,
    /// Some of them must be posted again.
    again: bool,
    /// How often that was so since a part of it ended well, while it was the oldest.
    tries: u8,
    /// How often the parts of a read that may lie were halved.
    halvings: u8,
    outcome: Outcome,
    /// The packet that tells the peer of a write.
    immediate: Option<u32>,
}

impl Kind {
    /// As the device is asked for it.
    fn operation(self, address: u64, key: u32) -> Operation {
        match self {
            Self::Read => Operation::Read { address, key },
            Self::Write => Operation::Write { address, key },
            Self::Atomic(Atomic::FetchAdd { add }) => Operation::FetchAdd { address, key, add },
            Self::Atomic(Atomic::CompareSwap { compare, swap }) => Operation::CompareSwap {
                address,
                key,
                compare,
                swap,
            },
        }
    }
}

impl Work {
    pub(super) fn region(&self) -> Option<Region> {
        self.region
    }

    /// What moves the next bytes that were not posted.
    fn part(&self, bytes: u32) -> (Operation, Piece) {
        let (address, key) = (self.address.wrapping_add(self.posted), self.key);
        let operation = self.kind.operation(address, key);
        let piece = Piece {
            address: self.lease.address() + self.posted,
            bytes,
            local_key: self.local_key,
        };
        (operation, piece)
    }
}

impl<P: Port> Verbs<P> {
    /// Lets `peer` reach memory.
    pub(in crate::provider) fn export(
        &mut self,
        peer: Peer,
        address: u64,
        bytes: u64,
    ) -> RemoteKey {
        if bytes < LEAST_REGISTERED_BYTES {
            return RemoteKey::default();
        }
        let Ok(length) = usize::try_from(bytes) else {
            return RemoteKey::default();
        };
        if let Some(region) = self.owned_region(address, bytes) {
            return self.key(peer, address, bytes, region);
        }
        // Memory that cannot be registered (there is a limit) is sent through buffers.
        let region = match register_exported(&mut self.rails[0].port, address, length) {
            Ok(region) => region,
            Err(error) => {
                self.complain_of_registration(&error, bytes);
                return RemoteKey::default();
            }
        };
        self.exports.insert(region.remote_key, region);
        self.key(peer, address, bytes, region)
    }

    fn key(&self, peer: Peer, address: u64, bytes: u64, region: Region) -> RemoteKey {
        let key = RemoteKey {
            address,
            bytes,
            check: region.remote_key.into(),
        };
        RemoteKey {
            check: seal(key, self.me, peer.0) | key.check,
            ..key
        }
    }

    /// Large messages are slow then: told once.
    #[cold]
    pub(super) fn complain_of_registration(&mut self, error: &CallError, bytes: u64) {
        if std::mem::replace(&mut self.told_of_registration, true) {
            return;
        }
        let facts = self.rails[0].port.facts();
        let words = words::of_registration(error, facts, bytes, LockedMemory::now());
        self.complain(format!("{words}; such messages go through buffers"));
    }

    /// The end of [`export`](Self::export).
    pub(in crate::provider) fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        if is_sealed(key, self.me, peer.0)
            && let Some(region) = self.exports.remove(&remote_key(key))
        {
            self.rails[0].port.deregister(region);
        }
    }

    pub(in crate::provider) fn post_read(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
    ) {
        self.begin(peer.0, lease, key, offset, id, Kind::Read);
    }

    /// The device does it, if it can.
    pub(in crate::provider) fn post_atomic(
        &mut self,
        peer: Peer,
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
    ) {
        self.begin(peer.0, lease, key, offset, id, Kind::Atomic(atomic));
    }

    /// With an immediate there must be room for the packet that carries it.
    pub(in crate::provider) fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        let Some(immediate) = immediate else {
            self.begin(peer.0, lease, key, offset, id, Kind::Write);
            return Ok(());
        };
        let ready = self.side(peer.0).is_lost() || self.is_ready_for_immediate(peer.0);
        if !ready {
            return Err(lease);
        }
        let head = Head {
            kind: IMMEDIATE,
            len: 0,
            flags: 0,
            word: immediate.into(),
        };
        let end = self.known_end(peer.0, &lease, key, offset, Kind::Write);
        if let Some(outcome) = end.filter(|end| *end != Outcome::Done) {
            self.end(id, outcome, lease);
            return Ok(());
        }
        // Nobody is told of a write that cannot be.
        let registered = match end {
            Some(_) => Ok((None, 0)),
            None => self.register(&lease, Kind::Write),
        };
        let registered = match registered {
            Ok(registered) => registered,
            Err(error) => {
                self.cannot_begin(id, lease, &error);
                return Ok(());
            }
        };
        // Kept before the write begins, sent behind it: nothing else is posted between.
        let number = self.side(peer.0).session.next();
        if self.keep(peer.0, head, BEGINS | ENDS, &[]).is_err() {
            if let (Some(region), _) = registered {
                self.rails[0].port.deregister(region);
            }
            return Err(lease);
        }
        if let Some(outcome) = end {
            self.end(id, outcome, lease);
        } else {
            let immediate = Some(number);
            let work = self.work(peer.0, lease, key, offset, id, registered);
            self.side(peer.0).immediates += 1;
            self.start(Work { immediate, ..work });
        }
        self.go_on(peer.0);
        Ok(())
    }

    /// Whether a write and its packet can be posted now, with nothing before them.
    fn is_ready_for_immediate(&mut self, peer: u32) -> bool {
        let side = self.side(peer);
        let joined = side.pair_for_sends().is_some();
        let idle = side.waiting.is_empty() && !side.session.has_unsent();
        if !joined {
            let line = side.line(peer);
            self.want_pair(line);
        }
        joined && idle
    }

    /// Registers the lease and puts the work behind those that wait; ends it at once where it cannot begin.
    fn begin(
        &mut self,
        peer: u32,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
        kind: Kind,
    ) {
        if let Some(outcome) = self.known_end(peer, &lease, key, offset, kind) {
            return self.end(id, outcome, lease);
        }
        match self.register(&lease, kind) {
            Ok(registered) => {
                let work = self.work(peer, lease, key, offset, id, registered);
                self.start(Work { kind, ..work });
            }
            Err(error) => self.cannot_begin(id, lease, &error),
        }
    }

    /// The memory cannot be registered.
    #[cold]
    fn cannot_begin(&mut self, id: WorkId, lease: Lease, error: &CallError) {
        self.complain_of_registration(error, lease.bytes() as u64);
        self.end(id, Outcome::Unreachable, lease);
    }

    /// A write, or what a read has in common with it.
    fn work(
        &mut self,
        peer: u32,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
        (region, local_key): (Option<Region>, u32),
    ) -> Work {
        self.serial += 1;
        Work {
            peer,
            id,
            serial: self.serial,
            lease,
            region,
            local_key,
            kind: Kind::Write,
            address: key.address.wrapping_add(offset),
            key: remote_key(key),
            posted: 0,
            ended: 0,
            under_way: 0,
            again: false,
            tries: 0,
            halvings: 0,
            outcome: Outcome::Done,
            immediate: None,
        }
    }

    /// Puts a work behind those that wait, and posts what can be posted.
    fn start(&mut self, work: Work) {
        let peer = work.peer;
        let free = self.works.iter().position(Option::is_none);
        let index = free.unwrap_or(self.works.len());
        if index == self.works.len() {
            self.works.push(None);
        }
        self.works[index] = Some(work);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.side(peer).waiting.push(index);
        self.push_works(peer);
    }

    /// The key to leased memory, and its region if it was registered for this.
    fn register(&mut self, lease: &Lease, kind: Kind) -> Result<(Option<Region>, u32), CallError> {
        if let Some(owned) = self.owned_region(lease.address(), lease.bytes() as u64) {
            return Ok((None, owned.local_key));
        }
        let access = match kind {
            Kind::Read | Kind::Atomic(_) => Access::Own,
            Kind::Write => Access::OwnRead,
        };
        let region = register_lease(&mut self.rails[0].port, lease, access)?;
        Ok((Some(region), region.local_key))
    }

    /// How a work ends that need not begin.
    fn known_end(
        &mut self,
        peer: u32,
        lease: &Lease,
        key: RemoteKey,
        offset: u64,
        kind: Kind,
    ) -> Option<Outcome> {
        if self.side(peer).is_lost() || key.check == 0 {
            return Some(Outcome::Unreachable);
        }
        if !is_sealed(key, peer, self.me) || !fits(lease, key, offset) {
            return Some(Outcome::BadKey);
        }
        let is_aligned = key.address.wrapping_add(offset).is_multiple_of(8);
        match kind {
            Kind::Atomic(_) if !is_aligned => Some(Outcome::BadKey),
            Kind::Atomic(_) if !self.rails[0].port.facts().atomics => Some(Outcome::Unreachable),
            _ => (lease.bytes() == 0).then_some(Outcome::Done),
        }
    }

    /// Posts works of a peer that wait, oldest first.
    pub(super) fn push_works(&mut self, peer: u32) {
        while let Some(index) = self.side(peer).waiting.first().copied() {
            if self.is_told(index) {
                self.finish(index);
                continue;
            }
            let Some(pair) = self.side(peer).pair_for_sends() else {
                return self.wait_for_pair(peer);
            };
            if !self.push_work(index, pair) {
                return self.list_unsent(peer);
            }
            self.side(peer).waiting.remove(0);
        }
    }

    /// Works need a queue pair. Where the peer refuses one, they cannot be done.
    fn wait_for_pair(&mut self, peer: u32) {
        if !self.hopes_for_pair(peer) {
            self.fail_waiting(peer);
        }
        if !self.side(peer).waiting.is_empty() {
            self.list_unsent(peer);
        }
    }

    /// Whether the peer has what tells it of a write: then that write has been.
    fn is_told(&self, index: u32) -> bool {
        let work = self.works[index as usize].as_ref();
        let Some((work, number)) = work.and_then(|work| Some((work, work.immediate?))) else {
            return false;
        };
        let side = self.sides[work.peer as usize].as_deref();
        // Of one that is lost nothing is kept, and nothing is known.
        side.is_some_and(|side| !side.is_lost() && !side.session.is_kept(number))
    }

    /// Posts what is left of a work; `false`: there is no room for all of it.
    fn push_work(&mut self, index: u32, pair_index: u32) -> bool {
        let (Some(work), Some(pair)) = (
            self.works[index as usize].as_mut(),
            self.pairs[pair_index as usize].as_mut(),
        ) else {
            return true;
        };
        let rail = &mut self.rails[pair.line.at()];
        let facts = rail.port.facts();
        let (depth, reads_lie) = (facts.depth as usize, facts.reads_lie);
        let message_bytes = facts.message_bytes;
        let all = work.lease.bytes() as u64;
        let doubted = work.kind == Kind::Read && reads_lie;
        let most = message_bytes.min(if doubted {
            MOST_DOUBTED_PART_BYTES >> work.halvings
        } else {
            MOST_PART_BYTES
        });
        let requests = if doubted { 2 } else { 1 };
        while work.posted < all {
            let full = pair.ledger.len() + requests > depth || rail.posted + requests > MOST_POSTED;
            if full || (doubted && self.doubted_bytes >= MOST_DOUBTED_BYTES) {
                return false;
            }
            let bytes = u32::try_from((all - work.posted).min(most)).unwrap_or(0);
            let (operation, piece) = work.part(bytes);
            let next = pair.ledger.next();
            let request = Request {
                work: name(pair_index, next),
                operation,
                body: Body::Piece(piece),
                signaled: !doubted,
            };
            let both = [request, nothing(name(pair_index, next.wrapping_add(1)))];
            let taken = rail.port.post(pair.end, &both[..requests]);
            if taken == 0 {
                return false;
            }
            pair.ledger
                .push(Posted::Part { work: index, bytes }, !doubted);
            pair.used_at = self.polls;
            rail.posted += taken;
            work.posted += u64::from(bytes);
            work.under_way += 1;
            if doubted {
                self.doubted_bytes += u64::from(bytes);
                if taken < requests {
                    // Nothing would tell whether it lies.
                    self.break_pair(pair_index);
                    return false;
                }
                pair.ledger.push(Posted::Mark { read: None }, true);
            }
        }
        true
    }

    /// A part has ended well.
    pub(super) fn part_ended(&mut self, index: u32, bytes: u32) {
        self.net.moved_bytes += u64::from(bytes);
        let Some(work) = &mut self.works[index as usize] else {
            return;
        };
        work.under_way -= 1;
        work.ended += u64::from(bytes);
        work.tries = 0;
        work.halvings = work.halvings.saturating_sub(1);
        self.doubt_no_more(index, bytes);
        self.settle(index);
    }

    /// A part has failed, or was flushed after another had.
    pub(super) fn part_failed(&mut self, index: u32, bytes: u32, status: Status) {
        self.doubt_no_more(index, bytes);
        let Some(work) = &mut self.works[index as usize] else {
            return;
        };
        work.under_way -= 1;
        match status {
            Status::RemoteAccess | Status::RemoteInvalid | Status::RemoteOperation => {
                work.outcome = Outcome::BadKey;
            }
            _ if matches!(work.kind, Kind::Atomic(_)) => work.outcome = Outcome::Unknown,
            Status::LocalProtection | Status::LocalLength => work.outcome = Outcome::Unreachable,
            _ => work.again = true,
        }
        self.settle(index);
    }

    /// A part that may have lied is back.
    fn doubt_no_more(&mut self, index: u32, bytes: u32) {
        let is_read = |work: &Work| work.kind == Kind::Read;
        if self.works[index as usize].as_ref().is_some_and(is_read) {
            self.doubted_bytes = self.doubted_bytes.saturating_sub(bytes.into());
        }
    }

    /// Ends a work whose parts have all ended, or puts it back in its place.
    fn settle(&mut self, index: u32) {
        let Some(work) = &mut self.works[index as usize] else {
            return;
        };
        let peer = work.peer;
        let bad = work.outcome != Outcome::Done;
        let all = work.posted == work.lease.bytes() as u64;
        if work.under_way != 0 || !(all || bad || work.again) {
            return;
        }
        let side = self.sides[peer as usize].as_deref();
        let lost = side.is_none_or(Side::is_lost);
        let (again, told) = (work.again, self.is_told(index));
        let counts = again && self.is_oldest(index);
        let Some(work) = &mut self.works[index as usize] else {
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
        let serial = work.serial;
        let works = &self.works;
        let Some(side) = self.sides[peer as usize].as_deref_mut() else {
            return;
        };
        if side.waiting.contains(&index) {
            return;
        }
        let is_older = |other: &u32| {
            works[*other as usize]
                .as_ref()
                .is_none_or(|other| other.serial < serial)
        };
        let place = side.waiting.partition_point(is_older);
        side.waiting.insert(place, index);
    }

    /// Whether nothing that was posted for its peer before it is still here. What comes after that may fail for it.
    fn is_oldest(&self, index: u32) -> bool {
        let of = |index: u32| self.works[index as usize].as_ref();
        of(index).is_some_and(|work| {
            let is_older = |other: &Work| other.peer == work.peer && other.serial < work.serial;
            !self.works.iter().flatten().any(is_older)
        })
    }

    /// A work has ended (W1).
    fn finish(&mut self, index: u32) {
        let Some(work) = self.works[index as usize].take() else {
            return;
        };
        if let Some(side) = self.sides[work.peer as usize].as_deref_mut() {
            side.waiting.retain(|waiting| *waiting != index);
            side.immediates -= u32::from(work.immediate.is_some());
        }
        if let Some(region) = work.region {
            self.rails[0].port.deregister(region);
        }
        self.end(work.id, work.outcome, work.lease);
    }

    fn end(&mut self, work: WorkId, outcome: Outcome, lease: Lease) {
        self.ready.push_back(Completion::Worked {
            work,
            outcome,
            lease,
        });
    }

    /// The port is lost, or (`is_gone`) the device: it may never tell the end of what it was doing, but touches no memory that was taken away from it.
    /// All peers are lost, so nothing takes the places of these works.
    pub(super) fn end_all_works(&mut self, is_gone: bool) {
        for index in (0..).take(self.works.len()) {
            let Some(work) = &mut self.works[index as usize] else {
                continue;
            };
            // Memory that stays registered is out of reach only when the device is gone.
            if work.region.is_none() && work.under_way != 0 && !is_gone {
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
    pub(super) fn fail_waiting(&mut self, peer: u32) {
        let is_lost = self.side(peer).is_lost();
        for index in self.side(peer).waiting.clone() {
            let Some(work) = &mut self.works[index as usize] else {
                continue;
            };
            if work.under_way == 0 && (is_lost || work.immediate.is_none()) {
                work.outcome = Outcome::Unreachable;
                self.finish(index);
            }
        }
    }
}

/// A write that changes nothing, and of which no device asks whether it is allowed. Its end tells of what was posted before.
fn nothing<'a>(work: u64) -> Request<'a> {
    let (address, key) = (0, 0);
    Request {
        work,
        operation: Operation::Write { address, key },
        body: Body::Inline(&[]),
        signaled: true,
    }
}

/// What the device knows exported memory by.
#[allow(clippy::cast_possible_truncation, reason = "the low half")]
fn remote_key(key: RemoteKey) -> u32 {
    key.check as u32
}

/// The high half of a key's check: tells a key that was damaged, or made for another peer, before a device breaks its queue pair over it. It is
/// no secret; what keeps others away from memory is the device's own check.
fn seal(key: RemoteKey, owner: u32, reader: u32) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15;
    let ranks = u64::from(owner) << 32 | u64::from(reader);
    for word in [key.address, key.bytes, remote_key(key).into(), ranks] {
        sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    }
    (sum | 1) << 32
}

fn is_sealed(key: RemoteKey, owner: u32, reader: u32) -> bool {
    key.check >> 32 == seal(key, owner, reader) >> 32
}

fn fits(lease: &Lease, key: RemoteKey, offset: u64) -> bool {
    let end = offset.checked_add(lease.bytes() as u64);
    end.is_some_and(|end| end <= key.bytes)
}

/// Smaller memory is not worth registering.
const LEAST_REGISTERED_BYTES: u64 = 1;
/// A part of a read or write is tried so often.
const MOST_TRIES: u8 = 32;
/// Bytes of one work request at most.
const MOST_PART_BYTES: u64 = 1 << 30;
/// The same of a read that may lie: one lost packet costs all of it.
const MOST_DOUBTED_PART_BYTES: u64 = 512 << 10;
/// Its parts become smaller when some fail, so often, and larger again with each that does not.
const MOST_HALVINGS: u8 = 5;
/// Bytes of them under way in this process: more overrun the queues of a kernel that plays the device.
const MOST_DOUBTED_BYTES: u64 = 2 << 20;
