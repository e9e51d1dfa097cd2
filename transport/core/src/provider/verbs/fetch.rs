// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads that the owner of the data carries out as writes: where a device has no reads to speak of, or the user wants it so.
//! The reader asks in a packet of the stream, with keys to its own memory; the owner writes there, over all rails that the
//! two share, and says in another packet how that ended. To the caller it is a read like any other.
//!
//! - F1: the owner takes bytes only from what it has exported to that very peer, and only until that is withdrawn: the
//!   request names the export, and where it begins and ends was kept when it was made. Memory that stays registered is open
//!   to who was told its key until it is freed, as it is for reads.
//! - F2: the reader lets the owner write exactly to the memory of the read, and takes it back from all devices before the
//!   lease ends, whatever the owner says or does.
//! - F3: writes are posted again when a queue pair breaks, as W2 says; the packets come once. The answer is sent when no
//!   part of the write can be posted any more.
//! - F4: nothing of the reader's is under way meanwhile that would tell that the owner's device is gone, so it writes
//!   nothing there from time to time.

use std::collections::HashMap;

use super::arrive::{FETCH, FETCHED, KEYS};
use super::keys::{Keys, Regions, name_of};
use super::port::{PortAttr, VerbsPort};
use super::rail::{MOST_RAILS, RailPeer};
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
    /// The memory, as the owner's devices know it.
    regions: Regions,
    /// When the owner's device was tried last.
    tried_ns: u64,
}

/// What a peer has asked for: the number of its read, and what it named.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errand {
    pub(super) number: u64,
    /// What names the export.
    pub(super) check: u64,
}

/// All reads of this process that peers carry out, by their numbers, and which reads those are.
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

    /// Who moves large data.
    pub(super) fn meet_by(&mut self, rendezvous: Rendezvous) {
        self.rendezvous = rendezvous;
    }

    /// Who carries reads over a port out.
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

    /// Takes one that `peer` says has ended; `None`: it is not for this peer to say.
    fn take(&mut self, number: u64, peer: u32) -> Option<Fetch> {
        let theirs = self.all.get(&number).map(|fetch| fetch.peer);
        let is_theirs = theirs == Some(peer);
        is_theirs.then(|| self.all.remove(&number)).flatten()
    }

    /// Those that a peer carries out, oldest first.
    fn from(&self, peer: u32) -> Vec<u64> {
        let wanted = self.all.iter().filter(|(_, fetch)| fetch.peer == peer);
        let mut numbers: Vec<u64> = wanted.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Peers whose device is to be tried now, each once (F4).
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

    /// When a device is tried next.
    pub(super) fn tries_owners_at(&self) -> Option<u64> {
        let last = self.all.values().map(|fetch| fetch.tried_ns).min();
        last.map(|last| last + TRY_EVERY_NS)
    }

    /// Takes all memory back that peers may write.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut Rails<P>) {
        for (_, fetch) in std::mem::take(&mut self.all) {
            rails.deregister(fetch.regions);
        }
    }
}

/// The reader's part.
impl VerbsTransfers {
    /// Asks a peer to write what would be read.
    pub(super) fn fetch<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        id: WorkId,
    ) {
        // Not what stays registered anyway: its key opens more than this (F2).
        let regions = match self.register_for(streams, peer, lease.address(), lease.bytes()) {
            Ok(regions) => regions,
            Err(error) => {
                streams
                    .links
                    .complain_of_registration(&error, lease.bytes() as u64);
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
        streams.write_letter(peer, head(FETCH, number, 0), body);
    }

    /// An owner says how a read has ended.
    fn hear_fetched<P: VerbsPort>(
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

    /// A peer is lost: it carries nothing out any more.
    pub(super) fn end_fetches<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, peer: u32) {
        for number in self.fetches.from(peer) {
            if let Some(fetch) = self.fetches.take(number, peer) {
                self.end_fetch(streams, fetch, WorkOutcome::Unreachable);
            }
        }
    }

    /// Tries the devices of those that have something to write (F4).
    pub(super) fn try_owners<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>) {
        for peer in self.fetches.owners_to_try(streams.links.schedule.now_ns) {
            // One may have been lost over another.
            if !streams.links.sides.of(peer).is_lost() {
                streams.links.try_device(peer);
            }
        }
    }
}

/// The owner's part.
impl VerbsTransfers {
    /// A packet of the provider's own, of those that are rare.
    #[cold]
    pub(super) fn hear_internal<P: VerbsPort>(
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
            (KEYS, _) => self.hear_keys(streams, peer, made.word, [a, b, c, d]),
            (FETCH, FETCH_BYTES) => self.serve(streams, peer, made.word, words),
            (FETCHED, 0) => self.hear_fetched(streams, peer, made.word, made.flags),
            _ => streams.links.counts.refused.add(1),
        }
    }

    /// A peer wants to have what it would read.
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
        if self.works.len() >= MOST_ERRANDS {
            return self.answer_fetch(streams, peer, number, WorkOutcome::Unreachable);
        }
        // What the words say of the peer's memory its device checks.
        let keys = [ab, ab >> 32, cd, cd >> 32].map(low);
        let errand = Errand { number, check };
        let work = self.errand(peer, (address, bytes), (target, keys), errand);
        self.begin_work(streams, work);
    }

    fn errand(
        &mut self,
        peer: u32,
        (base, bytes): (u64, u64),
        (target, keys): (u64, Keys),
        errand: Errand,
    ) -> Work {
        let serial = self.works.next_serial();
        Work {
            base,
            bytes,
            errand: Some(errand),
            ..Work::new(peer, serial, WorkKind::Write, target, keys)
        }
    }

    /// The answer to an errand that has ended. Who takes none in gets none: others ask only as fast as they listen.
    pub(super) fn answer_fetch<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        number: u64,
        outcome: WorkOutcome,
    ) {
        if streams.letters.count_to(peer) >= 2 * MOST_ERRANDS {
            streams.links.counts.refused.add(1);
            return;
        }
        let outcome = match outcome {
            WorkOutcome::Done => DONE,
            WorkOutcome::BadKey => BAD_KEY,
            WorkOutcome::Unreachable | WorkOutcome::Unknown => UNREACHABLE,
        };
        streams.write_letter(peer, head(FETCHED, number, outcome), Vec::new());
    }

    /// Memory is withdrawn from a peer: what it wants of that is not written any more (F1). `true`: a device
    /// still reads it for that.
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
            let (rail, is_idle) = (work.rail, work.under_way == 0);
            if let Some(link) = streams.links.sides.link(RailPeer { peer, rail }) {
                link.waiting.retain(|waiting| *waiting != index);
            }
            // The device tells the end of what is under way: it may not read that any more.
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

/// A device that has no more reads under way than this moves one, waits for its end, and then moves the next.
pub(super) const POOR_READS: u8 = 1;
/// Bytes of a request.
const FETCH_BYTES: usize = 48;
/// How an errand has ended, on the wire.
const DONE: u16 = 0;
const UNREACHABLE: u16 = 1;
const BAD_KEY: u16 = 2;
/// Works of this process at most, if those of peers are among them: who asks for more gets nothing, and must send.
const MOST_ERRANDS: usize = 4096;
/// Owners that say nothing are tried so often.
pub(super) const TRY_EVERY_NS: u64 = 1_000_000_000;

const _: () = assert!(MOST_RAILS == 4 && FETCH_BYTES <= ring::SLOT_BODY_BYTES);
