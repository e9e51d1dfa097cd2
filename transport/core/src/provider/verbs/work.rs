// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out reads, writes and atomic operations on peers' memory by the device: begins them, chooses their rails,
//! and ends them. `works.rs` tracks the progress of each.
//!
//! - W1: a lease is returned, with its completion, only after the device has given up the memory.
//! - W2: requests in flight on a queue pair that broke are posted again, in their old order. A read or write that was
//!   already carried out is then carried out again, with the same bytes. But a write whose immediate has arrived is not
//!   posted again, since its target may be in use for other data.
//! - W3: if reads are unreliable (`PortAttr::has_unreliable_reads`), a read has ended when a request posted behind it
//!   has ended: a false success breaks the queue pair, so no request behind it succeeds. A single read gets a zero-byte
//!   write right behind it. Of several reads in a row, each later one proves the earlier ones, and the last one gets
//!   its zero-byte write when it has completed.
//! - W4: an atomic operation in flight on a queue pair that broke is not posted again; its outcome is
//!   [`WorkOutcome::Unknown`].
//! - W5: a remote access error counts only when it is reported twice in a row. With packet loss, a device may request a
//!   completed read again; if the memory was withdrawn meanwhile, the error is reported for whichever request is in
//!   flight then. A "remote invalid request" counts only at the second report in a row, too: Linux rxe was seen to
//!   report it for a valid write on a busy machine. The cause is not known.

use std::mem;

use super::arrive::IMMEDIATE;
use super::bounce::Bounce;
use super::fetch::PeerFetch;
use super::keys::{Keys, is_sealed};
use super::peer_port::PeerPort;
use super::port::{PortAttr, Region, RegionAccess, Sge, VerbsPort, WorkOpcode, WorkStatus};
use super::rail::PeerPath;
use super::streams::VerbsStreams;
use super::stripes::divide;
use super::transfers::VerbsTransfers;
use super::wire::{BEGINS, ENDS};
use super::works::{MOST_TRIES, Pushed, Settled, WorkPath};
use crate::provider::caps::Mover;
use crate::{Atomic, Head, Lease, LocalKey, Peer, RemoteKey, WorkId, WorkOutcome};

/// The kind of a one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum WorkKind {
    Read,
    Write,
    /// Never carried out twice: the result would be wrong without detection.
    Atomic(Atomic),
}

/// A read, write or atomic operation posted by the caller, or a share of one.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) peer: u32,
    pub(super) id: WorkId,
    /// Position of the work in the order of all works of this process.
    pub(super) serial: u64,
    /// The lease of the memory. `None` for a share, whose whole has the lease, and for a peer's fetch, whose memory is
    /// exported.
    pub(super) lease: Option<Lease>,
    pub(super) base: u64,
    pub(super) bytes: u64,
    /// The local key of the memory, if it stays registered.
    pub(super) local: Option<LocalKey>,
    /// The rail over which it is posted; `registered` is the registration of the memory there, if any.
    pub(super) rail: u8,
    pub(super) registered: Option<Registered>,
    pub(super) kind: WorkKind,
    /// Remote address at which it begins.
    pub(super) address: u64,
    pub(super) keys: Keys,
    /// Bytes posted; the first `ended` of these have completed, since parts end in order.
    pub(super) posted: u64,
    pub(super) ended: u64,
    /// Number of outstanding work requests of the work.
    pub(super) in_flight: u32,
    /// Whether some of its parts must be posted again.
    pub(super) again: bool,
    /// How often, since a part last succeeded, parts had to be posted again while this was the oldest work for its peer
    /// and rail. Each move to another link while the work waits for a queue pair counts, too.
    pub(super) attempts: u8,
    /// How often the parts were halved, if it is an unreliable read or a write by a device that the kernel implements.
    pub(super) halvings: u8,
    /// Whether the peer's device refused the last part (W5).
    pub(super) refused: bool,
    pub(super) outcome: WorkOutcome,
    /// Number of the packet that announces the write to the peer.
    pub(super) immediate: Option<u32>,
    /// The request of the peer, if a peer requested it: then the memory was exported to the peer, and the end is
    /// reported to the peer.
    pub(super) errand: Option<PeerFetch>,
    /// Number of its shares that have not ended; a work with shares posts nothing itself. `whole` is the work of which
    /// this is a share.
    pub(super) shares: u32,
    pub(super) whole: Option<u32>,
    /// The bounce buffer that a read writes to instead of the lease; then `base` is the address of the buffer.
    pub(super) bounce: Option<Bounce>,
}

/// The memory of a work, and the rail on which it must be registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkMemory {
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) local: Option<LocalKey>,
    pub(super) rail: u8,
    pub(super) access: RegionAccess,
    /// The peer to which the memory was exported, and the check value of the export.
    pub(super) export: Option<(u32, u64)>,
}

/// Registration of a work's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    pub(super) local_key: u32,
    /// The region, if it was registered only for this work.
    pub(super) region: Option<Region>,
}

impl WorkKind {
    /// The opcode of its work requests.
    fn operation(self, address: u64, key: u32) -> WorkOpcode {
        match self {
            Self::Read => WorkOpcode::Read { address, key },
            Self::Write => WorkOpcode::Write { address, key },
            Self::Atomic(Atomic::FetchAdd { add }) => WorkOpcode::FetchAdd { address, key, add },
            Self::Atomic(Atomic::CompareSwap { compare, swap }) => WorkOpcode::CompareSwap {
                address,
                key,
                compare,
                swap,
            },
        }
    }
}

impl Work {
    /// A work without bytes and without a rail.
    pub(super) fn new(peer: u32, serial: u64, kind: WorkKind, address: u64, keys: Keys) -> Self {
        Self {
            peer,
            id: WorkId(0),
            serial,
            base: 0,
            bytes: 0,
            local: None,
            lease: None,
            rail: 0,
            registered: None,
            kind,
            address,
            keys,
            posted: 0,
            ended: 0,
            in_flight: 0,
            again: false,
            attempts: 0,
            halvings: 0,
            refused: false,
            outcome: WorkOutcome::Done,
            immediate: None,
            errand: None,
            shares: 0,
            whole: None,
            bounce: None,
        }
    }

    /// The memory of the work, and how that memory must be registered.
    pub(super) fn stretch(&self) -> WorkMemory {
        WorkMemory {
            base: self.base,
            bytes: self.bytes,
            local: self.local,
            rail: self.rail,
            export: self.errand.map(|errand| (self.peer, errand.check)),
            access: match self.kind {
                WorkKind::Read | WorkKind::Atomic(_) => RegionAccess::Own,
                WorkKind::Write => RegionAccess::OwnRead,
            },
        }
    }

    /// The region registered only for this work, and the rail of that region.
    pub(super) fn region(&self) -> Option<(usize, Region)> {
        let region = self.registered.and_then(|registered| registered.region);
        region.map(|region| (usize::from(self.rail), region))
    }

    /// Largest part of it, in bytes.
    pub(super) fn most_part_bytes(&self, facts: &PortAttr, most: u64) -> u64 {
        facts.message_bytes.min(most).min(match self.kind {
            WorkKind::Read if facts.has_unreliable_reads => {
                MOST_UNPROVEN_PART_BYTES >> self.halvings
            }
            WorkKind::Write if facts.in_software => MOST_COUNTED_PART_BYTES >> self.halvings,
            _ => u64::MAX,
        })
    }

    /// The next part to post, with the key for the peer's rail `theirs`.
    pub(super) fn part(&self, bytes: u32, theirs: u8) -> (WorkOpcode, Sge) {
        let address = self.address.wrapping_add(self.posted);
        let operation = self.kind.operation(address, self.keys[usize::from(theirs)]);
        let piece = Sge {
            address: self.base + self.posted,
            bytes,
            local_key: self.registered.map_or(0, |registered| registered.local_key),
        };
        (operation, piece)
    }
}

impl VerbsTransfers {
    /// Posts a write. A write with an immediate must be posted now, together with the packet that carries the
    /// immediate; if that is impossible (something waits, or there is no queue pair or no room), the lease is returned.
    pub(super) fn post_write<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: Peer,
        lease: Lease,
        (key, offset): (RemoteKey, u64),
        id: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        let Some(immediate) = immediate else {
            self.begin(streams, peer.0, lease, (key, offset), id, WorkKind::Write);
            return Ok(());
        };
        let ready =
            streams.links.peers.of(peer.0).is_lost() || self.can_post_immediate(streams, peer.0);
        if !ready {
            return Err(lease);
        }
        let head = Head {
            kind: IMMEDIATE,
            len: 0,
            flags: 0,
            word: immediate.into(),
        };
        let end = self.outcome_unposted(streams, peer.0, &lease, (key, offset), WorkKind::Write);
        if let Some(outcome) = end.filter(|end| *end != WorkOutcome::Done) {
            streams.ready.end(id, outcome, lease);
            return Ok(());
        }
        // The packet is kept before the write begins, and sent behind the write: nothing else is posted between the
        // two.
        let number = streams.links.peers.of(peer.0).session.next();
        if end.is_some() {
            if streams.keep(peer.0, head, BEGINS | ENDS, &[]).is_err() {
                return Err(lease);
            }
            streams.ready.end(id, WorkOutcome::Done, lease);
            self.go_on(streams, peer.0);
            return Ok(());
        }
        let work = self.work(streams, peer.0, lease, (key, offset), id, WorkKind::Write);
        // A write that cannot be done is not announced to the peer.
        let work = match self.prepare(streams, work) {
            Ok(work) => work,
            Err(work) => {
                self.end_unposted(streams, work);
                return Ok(());
            }
        };
        if streams.keep(peer.0, head, BEGINS | ENDS, &[]).is_err() {
            streams.links.rails.deregister_of(&work);
            return work.lease.map_or(Ok(()), Err);
        }
        streams.links.peers.of(peer.0).immediates += 1;
        let immediate = Some(number);
        self.start(streams, Work { immediate, ..work });
        self.go_on(streams, peer.0);
        Ok(())
    }

    /// Whether a write and the packet with its immediate can be posted now, with nothing waiting before them. If there
    /// is no queue pair, requests one.
    fn can_post_immediate<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
    ) -> bool {
        let remote = streams.links.peers.of(peer);
        let joined = remote.pair_for_sends().is_some();
        let idle = remote.main.waiting.is_empty() && !remote.session.has_unsent();
        if !joined {
            let path = remote.path(peer);
            streams.links.request_pair(path);
            streams
                .links
                .peers
                .await_pair(peer, streams.links.schedule.now_ns);
        }
        joined && idle
    }

    /// Registers the lease and queues the work behind those that wait; a work that cannot begin ends here.
    pub(super) fn begin<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        lease: Lease,
        (key, offset): (RemoteKey, u64),
        id: WorkId,
        kind: WorkKind,
    ) {
        if let Some(outcome) = self.outcome_unposted(streams, peer, &lease, (key, offset), kind) {
            return streams.ready.end(id, outcome, lease);
        }
        let facts = streams.links.port_to(peer).facts();
        if kind == WorkKind::Read && self.fetches.mover(facts) == Mover::Owner {
            return self.fetch(streams, peer, lease, key, offset, id);
        }
        let work = self.work(streams, peer, lease, (key, offset), id, kind);
        self.begin_work(streams, work);
    }

    /// Begins a work on several rails, or on one.
    pub(super) fn begin_work<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, work: Work) {
        let work = match self.share_out(streams, work) {
            Ok(()) => return,
            Err(work) => work,
        };
        match self.prepare(streams, work) {
            Ok(work) => self.start(streams, work),
            Err(work) => self.end_unposted(streams, work),
        }
    }

    /// A work without a rail.
    fn work<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        lease: Lease,
        (key, offset): (RemoteKey, u64),
        id: WorkId,
        kind: WorkKind,
    ) -> Work {
        let serial = self.works.next_serial();
        let there = key.address.wrapping_add(offset);
        let is_large = key.bytes >= streams.links.limits.striped_bytes;
        let may_have_more = is_large && streams.links.peers.of(peer).more.is_some();
        let keys = self.peer_keys.keys_to(peer, key, may_have_more);
        Work {
            id,
            base: lease.address(),
            bytes: lease.bytes() as u64,
            local: lease.key(),
            lease: Some(lease),
            ..Work::new(peer, serial, kind, there, keys)
        }
    }

    /// Chooses a work's rail and registers its memory there; a work that cannot begin is returned as the error.
    #[allow(
        clippy::result_large_err,
        reason = "it is given back as it was taken, and that is rare"
    )]
    fn prepare<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        mut work: Work,
    ) -> Result<Work, Work> {
        let Some(rail) = streams
            .links
            .peers
            .rail_for(work.peer, &work.keys, &streams.links.rails)
        else {
            return Err(work);
        };
        work.rail = rail;
        self.registry.divert(&mut work, &mut streams.links.rails);
        match self
            .registry
            .register(work.stretch(), &mut streams.links.rails)
        {
            Ok(registered) => work.registered = Some(registered),
            Err(error) => {
                if work.errand.is_none() {
                    streams.links.warn_of_registration(&error, work.bytes);
                }
                return Err(work);
            }
        }
        Ok(work)
    }

    fn end_unposted<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, mut work: Work) {
        self.registry.copy_out_read(&mut work, false);
        self.report_end(streams, work, WorkOutcome::Unreachable);
    }

    /// Queues a work behind those that wait for its rail, and posts what can be posted.
    pub(super) fn start<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, work: Work) {
        let path = self.works.start(work, &mut streams.links.peers);
        self.push_works(streams, path);
    }

    /// The outcome of a work that ends without being posted; `None`: it must be posted.
    fn outcome_unposted<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        lease: &Lease,
        (key, offset): (RemoteKey, u64),
        kind: WorkKind,
    ) -> Option<WorkOutcome> {
        let remote = streams.links.peers.of(peer);
        let source_number = remote.source_number;
        if remote.is_lost() {
            return Some(WorkOutcome::Unreachable);
        }
        if key.check == 0 {
            // The memory has no key, because it is empty or could not be registered.
            let is_empty = key.bytes == 0 && offset == 0 && lease.bytes() == 0;
            return Some(if is_empty {
                WorkOutcome::Done
            } else {
                WorkOutcome::Unreachable
            });
        }
        if !is_sealed(key, peer, source_number) || !fits(lease, key, offset) {
            return Some(WorkOutcome::BadKey);
        }
        let is_aligned = key.address.wrapping_add(offset).is_multiple_of(8);
        match kind {
            WorkKind::Atomic(_) if !is_aligned => Some(WorkOutcome::BadKey),
            WorkKind::Atomic(_) if !streams.links.port_to(peer).facts().atomics => {
                Some(WorkOutcome::Unreachable)
            }
            _ => (lease.bytes() == 0).then_some(WorkOutcome::Done),
        }
    }

    /// Posts waiting works of a peer, oldest first, on all its links.
    pub(super) fn push_all_works<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
    ) {
        let path = streams.links.peers.of(peer).path(peer);
        self.push_works(streams, path);
        for place in 0..streams.links.peers.of(peer).others().len() {
            let link = streams.links.peers.of(peer).others().get(place);
            if let Some(rail) = link.map(|link| link.rail) {
                self.push_works(streams, PeerPath { peer, rail });
            }
        }
    }

    /// Posts waiting works on one link, oldest first.
    pub(super) fn push_works<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        path: PeerPath,
    ) {
        while let Some(link) = streams.links.peers.link(path)
            && let Some(index) = link.waiting.first().copied()
        {
            let pair = link.connection.usable();
            if self
                .works
                .is_announcement_acked(index, &streams.links.peers)
            {
                self.finish(streams, index);
                continue;
            }
            let waits = streams.links.peers.of(path.peer).waits_for_last;
            let Some(pair) = pair.filter(|_| !waits) else {
                return self.wait_for_pair(streams, path);
            };
            let (registry, rails) = (&mut self.registry, &mut streams.links.rails);
            match self.works.ensure_registered(index, registry, rails) {
                Some(true) if self.push_work(streams, index, pair) => {}
                Some(false) => {
                    self.finish(streams, index);
                    continue;
                }
                Some(true) | None => return streams.links.peers.list_unsent(path.peer),
            }
            if let Some(link) = streams.links.peers.link(path) {
                link.waiting.retain(|waiting| *waiting != index);
            }
        }
    }

    /// Requests a queue pair for the works that wait on a path. If the peer refuses, the works move to another link, or
    /// fail.
    fn wait_for_pair<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, path: PeerPath) {
        let hopes = streams.links.may_get_pair(path);
        // If another link has just become the main one, all waiting works move there soon.
        if !hopes && !streams.links.is_to_rebind(path.peer) {
            self.move_waiting(streams, path);
        }
        if !hopes && !streams.links.is_to_rebind(path.peer) {
            self.fail_waiting(streams, path);
        }
        if streams.links.peers.of(path.peer).has_waiting() {
            streams.links.peers.list_unsent(path.peer);
        }
    }

    /// Posts the rest of a work; `false`: not all of it could be posted.
    fn push_work<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        index: u32,
        pair_index: u32,
    ) -> bool {
        let Some(pair) = streams.links.pairs.get_mut(pair_index) else {
            return true;
        };
        let path = pair.path;
        let route = WorkPath {
            index: pair_index,
            pair,
            rail: &mut streams.links.rails[path.at()],
            theirs: streams.links.peers.rail_there(path),
            part_bytes: streams.links.limits.part_bytes,
            poll: streams.links.schedule.polls(),
        };
        let pushed = self.works.push(index, route);
        if pushed == Pushed::Unproved {
            streams.links.break_pair(pair_index);
        }
        pushed == Pushed::All
    }

    /// A part of a work has succeeded.
    pub(super) fn part_ended<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        index: u32,
        bytes: u32,
    ) {
        streams.links.counts.moved_bytes.add(u64::from(bytes));
        self.works.part_ended(index, bytes);
        self.settle(streams, index);
    }

    /// A part has failed, or was flushed after another had failed.
    pub(super) fn part_failed<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        index: u32,
        bytes: u32,
        status: WorkStatus,
    ) {
        self.works
            .part_failed(index, bytes, status, &streams.links.peers);
        self.settle(streams, index);
    }

    /// Ends a work whose parts have all ended, or queues it again in its old position.
    #[inline(never)]
    fn settle<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, index: u32) {
        match self.works.settle(index, &streams.links.peers) {
            Settled::InFlight => {}
            Settled::Ended => self.finish(streams, index),
            Settled::Again => {
                if self.bind_again(streams, index) {
                    self.works.put_back(index, &mut streams.links.peers);
                }
            }
        }
    }

    /// Ends a work (W1).
    pub(super) fn finish<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, index: u32) {
        let Some(mut work) = self.works.take(index, &mut streams.links.peers) else {
            return;
        };
        streams.links.rails.deregister_of(&work);
        let outcome = work.outcome;
        self.registry
            .copy_out_read(&mut work, outcome == WorkOutcome::Done);
        self.report_end(streams, work, outcome);
    }

    /// Reports the end of a work: to the whole it is a share of, to the peer, or to the caller.
    pub(super) fn report_end<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        work: Work,
        outcome: WorkOutcome,
    ) {
        if let Some(whole) = work.whole {
            if self.works.share_ended(whole, outcome) {
                self.finish(streams, whole);
            }
            return;
        }
        match (work.errand, work.lease) {
            (Some(errand), _) => self.answer_fetch(streams, work.peer, errand.number, outcome),
            (None, Some(lease)) => streams.ready.end(work.id, outcome, lease),
            (None, None) => {}
        }
    }

    /// Ends all works after all ports are lost (`device_lost`: with their devices), except those whose memory a device
    /// may still access. The completions of these works may never come, but deregistered memory is not accessed any
    /// more. All peers are lost, so the freed places are not used again.
    pub(super) fn end_all_works<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        device_lost: bool,
    ) {
        for index in self.works.places() {
            let Some(work) = self.works.get_mut(index) else {
                continue;
            };
            if work.shares != 0 {
                // This work ends with the last of its shares.
                continue;
            }
            // For a work in flight, the device, unless it is lost, may still access memory that stays registered.
            // Bounce buffers do not matter: they are memory of our own, not of the caller.
            if work.region().is_none()
                && work.bounce.is_none()
                && work.in_flight != 0
                && !device_lost
            {
                continue;
            }
            work.outcome = match work.kind {
                WorkKind::Atomic(_) if work.in_flight != 0 => WorkOutcome::Unknown,
                _ => WorkOutcome::Unreachable,
            };
            self.finish(streams, index);
        }
    }

    /// Fails the waiting works of a path. But a write whose announcement may be on the wire must be carried out, unless
    /// the peer is lost.
    pub(super) fn fail_waiting<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        path: PeerPath,
    ) {
        let is_lost = streams.links.peers.of(path.peer).is_lost();
        let waiting = streams
            .links
            .peers
            .link(path)
            .map(|link| link.waiting.clone());
        for index in waiting.unwrap_or_default() {
            let Some(work) = self.works.get_mut(index) else {
                continue;
            };
            if work.in_flight == 0 && (is_lost || work.immediate.is_none()) {
                work.outcome = WorkOutcome::Unreachable;
                self.finish(streams, index);
            }
        }
    }

    /// Divides a large read or write among the rails that have a queue pair; a work that is not divided is returned as
    /// the error.
    #[allow(
        clippy::result_large_err,
        reason = "it is given back as it was taken, which costs a copy"
    )]
    pub(super) fn share_out<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        work: Work,
    ) -> Result<(), Work> {
        let is_large = work.bytes >= streams.links.limits.striped_bytes;
        let has_more = !streams.links.peers.of(work.peer).others().is_empty();
        if !is_large || !has_more || matches!(work.kind, WorkKind::Atomic(_)) {
            return Err(work);
        }
        let rails = self.rails_for_shares(streams, &work);
        if rails.len() < 2 {
            return Err(work);
        }
        let (registry, all) = (&mut self.registry, &mut streams.links.rails);
        let Ok(shares) = self.works.shares(&work, &rails, registry, all) else {
            return Err(work);
        };
        streams.links.counts.striped.add(1);
        let whole = self.works.place(Work {
            shares: u32::try_from(shares.len()).unwrap_or(0),
            ..work
        });
        for share in shares {
            let whole = Some(whole);
            self.start(streams, Work { whole, ..share });
        }
        Ok(())
    }

    /// The rails that take a share of a work now, and the sizes of the shares. Queue pairs are requested on the other
    /// rails, for the next work.
    fn rails_for_shares<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        work: &Work,
    ) -> Vec<(u8, u64)> {
        let peer = work.peer;
        let remote = streams.links.peers.of(peer);
        let Some(more) = &remote.more else {
            return Vec::new();
        };
        let has_key = |theirs: u8| work.keys[usize::from(theirs)] != 0;
        let links: Vec<(u8, u32, bool)> = remote
            .links()
            .filter(|link| has_key(link.theirs))
            .map(|link| {
                let is_joined = link.connection.usable().is_some();
                (
                    link.rail,
                    more.rates_mbps[usize::from(link.theirs)],
                    is_joined,
                )
            })
            .collect();
        let mut rails = Vec::new();
        for (rail, rate_there, is_joined) in links {
            let here = &streams.links.rails[usize::from(rail)];
            match is_joined {
                true if here.serves() => {
                    rails.push((rail, here.port.facts().rate_mbps.min(rate_there)));
                }
                // No existing queue pair is given up for a new one.
                false if streams.links.rails.has_room_for_pair(&streams.links.limits) => {
                    streams.links.request_pair(PeerPath { peer, rail })
                }
                _ => {}
            }
        }
        divide(work.bytes, rails, streams.links.limits.striped_bytes / 2)
    }

    /// Moves a waiting work to the rail that is best now. `false`: there is no such rail, and the work has ended; an
    /// announced write waits instead (`true`).
    pub(super) fn bind_again<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        index: u32,
    ) -> bool {
        let (peers, rails) = (&mut streams.links.peers, &mut streams.links.rails);
        let is_bound = self.works.bind_again(index, peers, rails);
        if !is_bound {
            self.finish(streams, index);
        }
        is_bound
    }

    /// Moves the reads and writes that wait on a link without a queue pair to another link that has one, or soon will.
    #[cold]
    pub(super) fn move_waiting<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        path: PeerPath,
    ) {
        let links = self.links_instead(streams, path);
        let waiting = streams
            .links
            .peers
            .link(path)
            .map(|link| mem::take(&mut link.waiting));
        for index in waiting.unwrap_or_default() {
            if let Some(work) = self.works.get_mut(index) {
                // Atomics of two devices are not atomic toward each other, so they do not move. No work moves back and
                // forth without limit.
                let may_move =
                    !matches!(work.kind, WorkKind::Atomic(_)) && work.attempts < MOST_TRIES;
                let has_key = |(_, theirs): &&(u8, u8)| work.keys[usize::from(*theirs)] != 0;
                let to = links.iter().find(has_key).filter(|_| may_move).copied();
                if let Some((rail, _)) = to {
                    work.attempts += 1;
                    let (peers, rails) = (&mut streams.links.peers, &mut streams.links.rails);
                    self.works.bind(index, rail, peers, rails);
                }
            }
            self.works.put_back(index, &mut streams.links.peers);
        }
        for (rail, _) in links {
            let peer = path.peer;
            self.push_works(streams, PeerPath { peer, rail });
        }
    }

    /// The links that could replace the link of a path, those with a queue pair first, as pairs of our rail and the
    /// peer's.
    fn links_instead<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        path: PeerPath,
    ) -> Vec<(u8, u8)> {
        // Links whose queue pair broke count too: a queue pair that was connected before is requested again.
        let is_tried = |link: &&PeerPort| link.connection.is_alive() || link.breaks != 0;
        let mut tried: Vec<&PeerPort> = streams
            .links
            .peers
            .of(path.peer)
            .links()
            .filter(is_tried)
            .collect();
        tried.sort_by_key(|link| link.connection.usable().is_none());
        let mut rails: Vec<(u8, u8)> = tried
            .into_iter()
            .map(|link| (link.rail, link.theirs))
            .collect();
        rails.retain(|(rail, _)| {
            let other = PeerPath {
                rail: *rail,
                ..path
            };
            other != path
                && streams.links.rails[other.at()].serves()
                && streams.links.may_get_pair(other)
        });
        rails
    }

    /// Posts what waits for a peer: works, then packets (P2).
    pub(super) fn go_on<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, peer: u32) {
        let remote = streams.links.peers.of(peer);
        if remote.is_lost() {
            return;
        }
        if remote.has_waiting() {
            self.push_all_works(streams, peer);
        }
        let remote = streams.links.peers.of(peer);
        if remote.main.waiting.is_empty() || remote.pair_for_sends().is_none() {
            streams.flush_held(peer);
        }
    }

    /// The links to a peer have changed: assigns all waiting works to rails again.
    pub(super) fn bind_all_again<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
    ) {
        let links = streams.links.peers.of(peer).links_mut();
        let waiting: Vec<u32> = links
            .flat_map(|link| mem::take(&mut link.waiting))
            .collect();
        for index in waiting {
            if self.bind_again(streams, index) {
                self.works.put_back(index, &mut streams.links.peers);
            }
        }
        self.works.count_strays(peer, &mut streams.links.peers);
    }
}

fn fits(lease: &Lease, key: RemoteKey, offset: u64) -> bool {
    let end = offset.checked_add(lease.bytes() as u64);
    end.is_some_and(|end| end <= key.bytes)
}

/// Largest part of a write by a device that the kernel implements, in bytes: such a device counts every lost or
/// reordered packet of one request against its seven retries.
const MOST_COUNTED_PART_BYTES: u64 = 64 << 10;
/// Largest part of an unreliable read, in bytes: if one packet is lost, the whole part is read again.
const MOST_UNPROVEN_PART_BYTES: u64 = 512 << 10;
