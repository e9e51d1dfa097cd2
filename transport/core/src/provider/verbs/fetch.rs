// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets the owner of the data carry out reads as writes, if a device supports hardly any reads in flight or the user
//! has configured that. The reader sends a request in a packet of the stream, with keys to its own memory; the owner
//! writes there, over all rails between the two processes, and reports the outcome in another packet. For the caller,
//! such a read is like any other.
//!
//! - F1: the owner reads only memory that it has exported to the reader, and only until the export is withdrawn: the
//!   request names the export, whose bounds the owner recorded when it exported the memory. Memory that stays
//!   registered is open to holders of its key until it is freed, as for reads.
//! - F2: the reader lets the owner write exactly to the memory of the read, and deregisters it on all devices before
//!   the lease ends, whatever the owner does.
//! - F3: writes are posted again when a queue pair breaks (W2); the packets of the stream are delivered once. The reply
//!   is sent when no part of the write can be posted any more.
//! - F4: meanwhile the reader has no work request in flight that would detect the loss of the owner's device, so it
//!   posts a write of zero bytes to the owner from time to time.

use std::collections::HashMap;

use super::arrive::{FETCH, FETCHED, KEYS};
use super::keys::{Keys, Regions, name_of};
use super::port::{PortAttr, VerbsPort};
use super::rail::{MOST_RAILS, PeerPath};
use super::rails::Rails;
use super::settings::Rendezvous;
use super::streams::VerbsStreams;
use super::transfers::VerbsTransfers;
use super::work::{Work, WorkKind};
use crate::provider::caps::Mover;
use crate::{Head, Lease, RemoteKey, WorkId, WorkOutcome};

/// A read of this process that a peer carries out.
#[derive(Debug)]
pub(super) struct Fetch {
    peer: u32,
    id: WorkId,
    lease: Lease,
    /// The reader's memory, registered so that the owner can write to it.
    regions: Regions,
    /// When the owner's device was last probed.
    tried_ns: u64,
}

/// A read requested by a peer: the number of the request, and the export from which data are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerFetch {
    pub(super) number: u64,
    /// Check value of the export's key.
    pub(super) check: u64,
}

/// All reads of this process that peers carry out, by number; `rendezvous` determines which reads these are.
#[derive(Debug)]
pub(super) struct Fetches {
    rendezvous: Rendezvous,
    all: HashMap<u64, Fetch>,
}

impl Fetches {
    pub(super) fn new() -> Self {
        Self {
            rendezvous: Rendezvous::Auto,
            all: HashMap::new(),
        }
    }

    /// Sets which side moves large data.
    pub(super) fn set_rendezvous(&mut self, rendezvous: Rendezvous) {
        self.rendezvous = rendezvous;
    }

    /// Which side carries out reads over a port.
    pub(super) fn mover(&self, facts: &PortAttr) -> Mover {
        match self.rendezvous {
            Rendezvous::Read => Mover::Device,
            Rendezvous::Write => Mover::Owner,
            Rendezvous::Auto if facts.reads <= POOR_READS => Mover::Owner,
            Rendezvous::Auto => Mover::Device,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes a read that `peer` reports as ended; `None`: this peer carries out no read with this number.
    fn take(&mut self, number: u64, peer: u32) -> Option<Fetch> {
        let theirs = self.all.get(&number).map(|fetch| fetch.peer);
        let is_theirs = theirs == Some(peer);
        is_theirs.then(|| self.all.remove(&number)).flatten()
    }

    /// The reads that a peer carries out, oldest first.
    fn from(&self, peer: u32) -> Vec<u64> {
        let wanted = self.all.iter().filter(|(_, fetch)| fetch.peer == peer);
        let mut numbers: Vec<u64> = wanted.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Peers whose devices are to be probed now, each once (F4). Records that they are probed now.
    fn owners_to_try(&mut self, now_ns: u64) -> Vec<u32> {
        let is_due = |fetch: &Fetch| now_ns.saturating_sub(fetch.tried_ns) >= TRY_EVERY_NS;
        let mut due: Vec<(u64, u32)> = Vec::new();
        for (number, fetch) in &mut self.all {
            if is_due(fetch) {
                fetch.tried_ns = now_ns;
                due.push((*number, fetch.peer));
            }
        }
        due.sort_unstable();
        let mut peers = Vec::new();
        for (_, peer) in due {
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        peers
    }

    /// When a device is probed next.
    pub(super) fn tries_owners_at(&self) -> Option<u64> {
        let last = self.all.values().map(|fetch| fetch.tried_ns).min();
        last.map(|last| last + TRY_EVERY_NS)
    }

    /// Deregisters all memory that peers may write.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut Rails<P>) {
        for (_, fetch) in std::mem::take(&mut self.all) {
            rails.deregister(fetch.regions);
        }
    }
}

/// The reader's side.
impl VerbsTransfers {
    /// Requests a peer to write the data of a read.
    pub(super) fn fetch<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
    ) {
        // Permanently registered memory is not used: its key gives access to more than the memory of this read (F2).
        let regions = match self.register_for(streams, peer, lease.address(), lease.bytes()) {
            Ok(regions) => regions,
            Err(error) => {
                streams
                    .links
                    .warn_of_registration(&error, lease.bytes() as u64);
                return streams.ready.end(id, WorkOutcome::Unreachable, lease);
            }
        };
        streams.links.counts.fetched.add(1);
        let number = self.works.next_serial();
        let (a, b) = (key_of(&regions, 0), key_of(&regions, 1));
        let (c, d) = (key_of(&regions, 2), key_of(&regions, 3));
        let words = [
            key.address.wrapping_add(offset),
            lease.bytes() as u64,
            key.check,
            lease.address(),
            a | b << 32,
            c | d << 32,
        ];
        let fetch = Fetch {
            peer,
            id,
            lease,
            regions,
            tried_ns: streams.links.schedule.now_ns,
        };
        self.fetches.all.insert(number, fetch);
        let body = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        streams.send_control(peer, head(FETCH, number, 0), body);
    }

    /// Ends a read that its owner reports as done.
    fn take_fetched<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        number: u64,
        outcome: u16,
    ) {
        let Some(fetch) = self.fetches.take(number, peer) else {
            streams.links.counts.refused.add(1);
            return;
        };
        let outcome = match outcome {
            DONE => WorkOutcome::Done,
            BAD_KEY => WorkOutcome::BadKey,
            _ => WorkOutcome::Unreachable,
        };
        self.end_fetch(streams, fetch, outcome);
    }

    fn end_fetch<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        fetch: Fetch,
        outcome: WorkOutcome,
    ) {
        streams.links.rails.deregister(fetch.regions);
        streams.ready.end(fetch.id, outcome, fetch.lease);
    }

    /// Ends the reads that a lost peer should carry out.
    pub(super) fn end_fetches<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, peer: u32) {
        for number in self.fetches.from(peer) {
            if let Some(fetch) = self.fetches.take(number, peer) {
                self.end_fetch(streams, fetch, WorkOutcome::Unreachable);
            }
        }
    }

    /// Probes the devices of owners that are writing (F4).
    pub(super) fn try_owners<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>) {
        for peer in self.fetches.owners_to_try(streams.links.schedule.now_ns) {
            // While one peer was probed, another may have been lost.
            if !streams.links.peers.of(peer).is_lost() {
                streams.links.try_device(peer);
            }
        }
    }
}

/// The owner's side.
impl VerbsTransfers {
    /// Dispatches a control packet of the provider.
    #[cold]
    pub(super) fn take_control<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        made: Head,
        words: [u64; 6],
        bytes: u8,
    ) {
        let words = words.map(u64::from_le);
        let [a, b, c, d, ..] = words;
        match (made.kind, usize::from(bytes)) {
            (KEYS, _) => self.take_keys(streams, peer, made.word, [a, b, c, d]),
            (FETCH, FETCH_BYTES) => self.serve(streams, peer, made.word, words),
            (FETCHED, 0) => self.take_fetched(streams, peer, made.word, made.flags),
            _ => streams.links.counts.refused.add(1),
        }
    }

    /// Carries out a peer's read.
    fn serve<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        number: u64,
        words: [u64; 6],
    ) {
        let [address, bytes, check, target, ab, cd] = words;
        let check = name_of(check);
        if self
            .registry
            .exported(peer, check, address, bytes)
            .is_none()
        {
            return self.answer_fetch(streams, peer, number, WorkOutcome::BadKey);
        }
        if self.works.len() >= MOST_PEER_FETCHES {
            return self.answer_fetch(streams, peer, number, WorkOutcome::Unreachable);
        }
        // The keys of the peer's memory are not checked here: the peer's device checks them.
        let keys = [ab, ab >> 32, cd, cd >> 32].map(low);
        let errand = PeerFetch { number, check };
        let work = self.errand(peer, (address, bytes), (target, keys), errand);
        self.begin_work(streams, work);
    }

    fn errand(
        &mut self,
        peer: u32,
        (base, bytes): (u64, u64),
        (target, keys): (u64, Keys),
        errand: PeerFetch,
    ) -> Work {
        let serial = self.works.next_serial();
        Work {
            base,
            bytes,
            errand: Some(errand),
            ..Work::new(peer, serial, WorkKind::Write, target, keys)
        }
    }

    /// Replies to a request that has ended. The number of replies that wait for a peer is limited: a well-behaved peer
    /// takes replies before it sends further requests.
    pub(super) fn answer_fetch<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        number: u64,
        outcome: WorkOutcome,
    ) {
        if streams.control.count_to(peer) >= 2 * MOST_PEER_FETCHES {
            streams.links.counts.refused.add(1);
            return;
        }
        let outcome = match outcome {
            WorkOutcome::Done => DONE,
            WorkOutcome::BadKey => BAD_KEY,
            WorkOutcome::Unreachable | WorkOutcome::Unknown => UNREACHABLE,
        };
        streams.send_control(peer, head(FETCHED, number, outcome), Vec::new());
    }

    /// Ends a peer's requests for memory that is being withdrawn (F1). `true`: a device still reads that memory.
    pub(super) fn recall<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        check: u64,
    ) -> bool {
        let mut is_busy = false;
        let check = name_of(check);
        for index in self.works.places() {
            let Some(work) = self.works.get_mut(index) else {
                continue;
            };
            let named = work.errand.is_some_and(|errand| errand.check == check);
            if !named || work.peer != peer || work.shares != 0 {
                continue;
            }
            work.outcome = WorkOutcome::BadKey;
            let (rail, is_idle) = (work.rail, work.in_flight == 0);
            if let Some(link) = streams.links.peers.link(PeerPath { peer, rail }) {
                link.waiting.retain(|waiting| *waiting != index);
            }
            // If requests are in flight, their completions show when the device has stopped reading.
            if is_idle {
                self.finish(streams, index);
            } else {
                is_busy = true;
            }
        }
        is_busy
    }
}

fn head(kind: u8, number: u64, flags: u16) -> Head {
    Head {
        kind,
        len: 0,
        flags,
        word: number,
    }
}

fn key_of(regions: &Regions, rail: usize) -> u64 {
    regions[rail].map_or(0, |region| u64::from(region.remote_key))
}

#[allow(clippy::cast_possible_truncation, reason = "the low half")]
fn low(word: u64) -> u32 {
    word as u32
}

/// A device that supports no more reads in flight than this carries out one read, waits for its end, and then starts
/// the next.
pub(super) const POOR_READS: u8 = 1;
/// Length of a request, in bytes.
const FETCH_BYTES: usize = 48;
/// Outcome of a request, on the wire.
const DONE: u16 = 0;
const UNREACHABLE: u16 = 1;
const BAD_KEY: u16 = 2;
/// If this process has at least this many reads, writes and atomic operations in flight, it refuses further requests of
/// peers: such a read fails, and its data must be sent in messages.
const MOST_PEER_FETCHES: usize = 4096;
/// Interval of probes, in nanoseconds.
pub(super) const TRY_EVERY_NS: u64 = 1_000_000_000;

const _: () = assert!(MOST_RAILS == 4 && FETCH_BYTES <= ring::SLOT_BODY_BYTES);
