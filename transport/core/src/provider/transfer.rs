// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large reads of provider `shm`. The reader copies chunk after chunk from the front with `process_vm_readv`. Meanwhile
//! the owner of the data, if it is polling too, writes chunks from the back with `process_vm_writev`: two cores move
//! one message.
//!
//! If the data are in the owner's arena, the reader copies its chunks without the kernel; nothing else differs.
//!
//! The request to the owner is a frame whose addresses carry a seal that only the reader can make. If the owner does
//! not help (because it may not access the reader's memory, or computes), the reader copies everything.
//!
//! The shared words of an offer are only a hint: if they are inconsistent, mark a chunk as failed, or do not change for
//! long, the reader revokes the offer. Memory that was given back to the application must never be written late. So
//! after a revocation the reader waits until the owner has confirmed that it has dropped the request, or until the
//! owner has ended; then it copies everything itself. (An owner writes only while it polls, so an owner that replies is
//! not writing.)

use std::collections::VecDeque;

use ring::layout::SLOT_BODY_BYTES;
use ring::{ChunkClaim, MAX_CHUNKS, OFFERS};

use super::cma;
use super::shm::{HELP, PeerAccess, PeerMemory, REVOKE, REVOKED, Shm};
use crate::arena::{self, Arenas};
use crate::mr::to_usize;
use crate::{Completion, Completions, Head, Lease, WorkId, WorkOutcome};

/// The reads of this process that are in progress, and the reads of others with which it helps.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    reads: VecDeque<ShmRead>,
    helps: VecDeque<Help>,
    /// Requests that their readers have revoked, by rank and place; the readers wait for the confirmation.
    dropped: Vec<(u32, u64)>,
    /// Offers in use, one bit each.
    offers: u64,
    generation: u32,
}

/// A read that this process has posted.
#[derive(Debug)]
struct ShmRead {
    work: WorkId,
    lease: Lease,
    /// `from`: rank whose memory is read. `source`: location there.
    from: u32,
    source: PeerMemory,
    chunk_bytes: usize,
    chunks: u32,
    /// Chunks that this process has copied.
    copied: u32,
    share: ShmReadCopier,
    outcome: WorkOutcome,
}

/// The processes that copy the chunks of a read.
#[derive(Clone, Copy, Debug)]
enum ShmReadCopier {
    /// Only this process; `next` is the next chunk.
    Alone { next: u32 },
    /// This process and the owner; they claim chunks in the offer.
    Offered(Offered),
}

/// The reader's state of one of its offers.
#[derive(Clone, Copy, Debug)]
struct Offered {
    index: u32,
    generation: u32,
    /// Whether all chunks are claimed.
    exhausted: bool,
    /// Whether the offer's words are inconsistent.
    broken: bool,
    /// Whether the owner was requested to drop the request.
    revoked: bool,
    /// Polls in which the reader could only wait.
    waited: u32,
}

impl Offered {
    fn place(self) -> u64 {
        u64::from(self.index) | u64::from(self.generation) << 32
    }
}

/// A peer's request that this process writes a part of the data that the peer reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Help {
    pub(super) from: u32,
    pub(super) pid: u32,
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) bytes: u64,
    /// Index of the offer, and its generation in the upper half.
    pub(super) place: u64,
}

impl Transfers {
    #[inline(always)]
    pub(super) fn is_busy(&self) -> bool {
        !self.reads.is_empty() || !self.helps.is_empty() || !self.dropped.is_empty()
    }

    pub(super) fn add_help(&mut self, help: Help) {
        // This bounds the queue, which all readers share. A request that finds it full is ignored: its reader gets no
        // help, revokes the offer and copies everything itself.
        if self.helps.len() < MOST_HELPS {
            self.helps.push_back(help);
        }
    }

    /// Drops a request that a reader revokes.
    pub(super) fn drop_help(&mut self, from: u32, place: u64) {
        self.helps
            .retain(|help| (help.from, help.place) != (from, place));
        // A reader has at most `OFFERS` offers; each reader has room of its own, independent of other readers'
        // requests.
        let theirs = self.dropped.iter().filter(|(rank, _)| *rank == from);
        if theirs.count() < OFFERS as usize {
            self.dropped.push((from, place));
        }
    }

    /// Handles the owner's confirmation that it has dropped a request: from now on only the reader writes to the target
    /// memory.
    pub(super) fn help_was_dropped(&mut self, from: u32, place: u64) {
        for at in 0..self.reads.len() {
            let read = &self.reads[at];
            if let ShmReadCopier::Offered(offered) = read.share
                && (read.from, offered.place()) == (from, place)
            {
                self.start_again_alone(at);
                return;
            }
        }
    }

    fn start_again_alone(&mut self, at: usize) {
        let read = &mut self.reads[at];
        if let ShmReadCopier::Offered(offered) = read.share {
            self.offers &= !(1 << offered.index);
        }
        (read.share, read.copied) = (ShmReadCopier::Alone { next: 0 }, 0);
    }
}

impl Shm {
    pub(super) fn begin_read(&mut self, from: u32, source: PeerMemory, lease: Lease, work: WorkId) {
        let bytes = lease.bytes();
        let chunk_bytes = chunk_bytes(bytes);
        let chunks =
            u32::try_from(bytes.div_ceil(chunk_bytes)).expect("chunks are counted in 15 bits");
        let share = self.offer(from, &lease, source);
        let outcome = WorkOutcome::Done;
        let read = ShmRead {
            work,
            lease,
            from,
            source,
            chunk_bytes,
            chunks,
            copied: 0,
            share,
            outcome,
        };
        self.transfers.reads.push_back(read);
    }

    /// Requests help from the owner of the data, if that can make the read shorter: there are enough data, a core for
    /// this process, and room for the request.
    fn offer(&mut self, from: u32, lease: &Lease, source: PeerMemory) -> ShmReadCopier {
        let alone = ShmReadCopier::Alone { next: 0 };
        let Some(node) = &self.node else { return alone };
        let index = self.transfers.offers.trailing_ones();
        let Some(offer) = node.segment.offer(node.local_rank, index) else {
            return alone;
        };
        if lease.bytes() < source.worth_help_bytes() || !self.is_attentive() {
            return alone;
        }
        // A process that cannot be reached cannot help, and its confirmation of a dropped request could not be
        // checked.
        if !matches!(self.reach(from), PeerAccess::Yes { .. }) {
            return alone;
        }
        self.transfers.generation = self.transfers.generation.wrapping_add(1).max(1);
        let generation = self.transfers.generation;
        offer.open(generation);
        let offered = Offered {
            index,
            generation,
            exhausted: false,
            broken: false,
            revoked: false,
            waited: 0,
        };
        let request = [
            source.to_word(),
            lease.address(),
            lease.bytes() as u64,
            offered.place(),
        ];
        let check = self.seal_for(from, &request);
        let words = [request[0], request[1], request[2], request[3], check];
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a slot's body has 48 bytes"
        )]
        let head = Head {
            kind: HELP,
            len: SLOT_BODY_BYTES as u8,
            flags: 0,
            word: 0,
        };
        if self.push(self.peer_of(from), head, &words).is_err() {
            return alone;
        }
        self.transfers.offers |= 1 << index;
        ShmReadCopier::Offered(offered)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn poll_transfers(&mut self, completions: &mut Completions) {
        self.copy_some();
        self.finish_reads();
        if self.transfers.reads.is_empty() {
            self.help_some();
        }
        self.answer_readers();
        while !completions.is_full() {
            let Some(completion) = self.finished.pop_front() else {
                return;
            };
            completions.push(completion);
        }
    }

    /// Copies a bounded number of bytes of the oldest reads that have unclaimed chunks.
    fn copy_some(&mut self) {
        let mut budget = TURN_BYTES;
        for at in 0..self.transfers.reads.len() {
            while budget > 0 {
                let Some(chunk) = self.claim(at) else { break };
                let read = &mut self.transfers.reads[at];
                let bytes = read.copy(chunk, self.arenas.as_mut());
                budget = budget.saturating_sub(bytes);
                self.stats.read_bytes.add(bytes as u64);
            }
        }
    }

    fn claim(&mut self, at: usize) -> Option<u32> {
        let read = &mut self.transfers.reads[at];
        match &mut read.share {
            ShmReadCopier::Alone { next } if *next == read.chunks => None,
            ShmReadCopier::Alone { next } => {
                *next += 1;
                Some(*next - 1)
            }
            ShmReadCopier::Offered(offered) if offered.broken => None,
            ShmReadCopier::Offered(offered) => {
                let node = self.node.as_ref()?;
                let offer = node.segment.offer(node.local_rank, offered.index)?;
                match offer.claim_front(offered.generation, read.chunks) {
                    // Only this process claims chunks from the front, one after the other.
                    ChunkClaim::Chunk(chunk) if chunk == read.copied => return Some(chunk),
                    ChunkClaim::Nothing => offered.exhausted = true,
                    ChunkClaim::Chunk(_) | ChunkClaim::Broken => offered.broken = true,
                }
                None
            }
        }
    }

    fn finish_reads(&mut self) {
        let mut at = 0;
        while at < self.transfers.reads.len() {
            if self.is_finished(at)
                && let Some(read) = self.transfers.reads.remove(at)
            {
                self.finish(read);
            } else {
                at += 1;
            }
        }
    }

    fn finish(&mut self, read: ShmRead) {
        if let ShmReadCopier::Offered(offered) = read.share {
            self.transfers.offers &= !(1 << offered.index);
        }
        let ShmRead {
            work,
            outcome,
            lease,
            ..
        } = read;
        self.finished.push_back(Completion::Worked {
            work,
            outcome,
            lease,
        });
    }

    fn is_finished(&mut self, at: usize) -> bool {
        let read = &mut self.transfers.reads[at];
        let ShmReadCopier::Offered(offered) = &mut read.share else {
            return read.copied == read.chunks;
        };
        let offer = self
            .node
            .as_ref()
            .and_then(|n| n.segment.offer(n.local_rank, offered.index));
        match offer.and_then(|offer| offer.helped(offered.generation)) {
            Some(helped) if !helped.failed && helped.chunks <= read.chunks - read.copied => {
                let theirs = helped.chunks;
                if read.copied + theirs == read.chunks && !offered.broken {
                    self.stats
                        .helped_bytes
                        .add(u64::from(theirs) * read.chunk_bytes as u64);
                    return true;
                }
            }
            _ => offered.broken = true,
        }
        if offered.broken || offered.exhausted {
            self.doubt(at);
        }
        false
    }

    /// Handles a read that waits for the owner of the data: revokes the offer after some time, or immediately if it is
    /// broken. If the owner has ended, this process reads everything itself.
    fn doubt(&mut self, at: usize) {
        let read = &mut self.transfers.reads[at];
        let from = read.from;
        let ShmReadCopier::Offered(offered) = &mut read.share else {
            return;
        };
        offered.waited = offered.waited.saturating_add(1);
        let offered = *offered;
        let in_doubt = offered.broken || offered.waited > PATIENT_POLLS;
        if in_doubt && !offered.revoked && self.push_place(from, REVOKE, offered.place()) {
            self.stats.refused.add(u64::from(offered.broken));
            if let ShmReadCopier::Offered(offered) = &mut self.transfers.reads[at].share {
                offered.revoked = true;
            }
        }
        if offered.waited.is_multiple_of(PROBE_POLLS) && self.has_ended(from) {
            self.transfers.start_again_alone(at);
        }
    }

    /// Whether the process that was identified as this rank has ended. Checks the recorded pid: the
    /// segment may contain the data of another process by now.
    fn has_ended(&mut self, rank: u32) -> bool {
        match self.reach(rank) {
            PeerAccess::Yes { pid, .. } => cma::has_ended(pid),
            PeerAccess::Unknown | PeerAccess::No => false,
        }
    }

    /// Confirms to readers that their requests are dropped, if there is room; a reader whose ring is full delays only
    /// itself.
    fn answer_readers(&mut self) {
        for (from, place) in std::mem::take(&mut self.transfers.dropped) {
            if !self.push_place(from, REVOKED, place) {
                self.transfers.dropped.push((from, place));
            }
        }
    }

    /// Sends a frame about an offer; `false` if there is no room.
    fn push_place(&mut self, to: u32, kind: u8, place: u64) -> bool {
        let check = self.seal_for(to, &[place, u64::from(kind)]);
        let head = Head {
            kind,
            len: 16,
            flags: 0,
            word: 0,
        };
        self.push(self.peer_of(to), head, &[place, check]).is_ok()
    }

    /// Writes some chunks of peers' reads from this process.
    fn help_some(&mut self) {
        let mut budget = TURN_BYTES;
        while budget > 0 {
            let Some(help) = self.transfers.helps.front().copied() else {
                return;
            };
            match self.help(&help) {
                Some(bytes) => budget = budget.saturating_sub(bytes),
                None => drop(self.transfers.helps.pop_front()),
            }
        }
    }

    /// Writes one chunk; `None` if there was none to write, or it could not be written.
    fn help(&mut self, help: &Help) -> Option<usize> {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the two halves are cut out of the word"
        )]
        let (index, generation) = (help.place as u32, (help.place >> 32) as u32);
        let offer = self.node.as_ref()?.segment.offer(help.from, index)?;
        let total = to_usize(help.bytes);
        let chunk_bytes = chunk_bytes(total);
        let chunks = u32::try_from(total.div_ceil(chunk_bytes)).ok()?;
        let ChunkClaim::Chunk(chunk) = offer.claim_back(generation, chunks) else {
            return None;
        };
        let offset = chunk as usize * chunk_bytes;
        let bytes = chunk_bytes.min(total - offset);
        // The reader chose the addresses: whatever they are, the kernel checks both.
        let named = arena::is_name(help.source);
        let arenas = self.arenas.as_ref().filter(|_| named);
        let start = arenas.map_or(Some(help.source), |arenas| {
            arenas.address_of(help.source, help.bytes)
        });
        let source = start.unwrap_or(0).wrapping_add(offset as u64);
        let target = help.target.wrapping_add(offset as u64);
        let done = cma::write_own(help.pid, source, bytes, target);
        offer.finish_back(!done);
        done.then_some(bytes)
    }
}

impl PeerMemory {
    /// Minimum size of a read, in bytes, that a second core makes shorter: more than one chunk. If the reader copies
    /// without the kernel, the read must be so large that the cost of the request is negligible.
    fn worth_help_bytes(self) -> usize {
        match self {
            Self::Process { .. } => SMALLEST_CHUNK + 1,
            Self::Arena { .. } => ARENA_HELP_BYTES,
        }
    }

    /// The location as the owner of the memory identifies it: an address, or a name in its arena.
    fn to_word(self) -> u64 {
        match self {
            Self::Process { address, .. } => address,
            Self::Arena { offset } => arena::name(offset),
        }
    }
}

impl ShmRead {
    /// Copies one chunk; returns its length.
    fn copy(&mut self, chunk: u32, arenas: Option<&mut Arenas>) -> usize {
        let (at, bytes) = self.range(chunk);
        match (self.source, arenas) {
            (PeerMemory::Process { pid, address }, _) => {
                if !cma::read(pid, &mut self.lease, at, bytes, address + at as u64) {
                    // If the process has ended, its key is not at fault: the code that ends the job reports the cause.
                    self.outcome = if cma::has_ended(pid) {
                        WorkOutcome::Unreachable
                    } else {
                        WorkOutcome::BadKey
                    };
                }
            }
            (PeerMemory::Arena { offset }, Some(arenas)) => {
                let source = offset + at as u64;
                if !arenas.read(self.from, source, &mut self.lease, at, bytes) {
                    self.outcome = WorkOutcome::Unreachable;
                }
            }
            (PeerMemory::Arena { .. }, None) => self.outcome = WorkOutcome::Unreachable,
        }
        self.copied += 1;
        bytes
    }

    fn range(&self, chunk: u32) -> (usize, usize) {
        let offset = chunk as usize * self.chunk_bytes;
        (offset, self.chunk_bytes.min(self.lease.bytes() - offset))
    }
}

/// Bytes of a chunk, which both sides compute from the length of the read. Chunks are small enough that the two meet
/// near the middle, and large enough that the system call's fixed cost (half a microsecond) is negligible.
fn chunk_bytes(bytes: usize) -> usize {
    let least = bytes.div_ceil(MAX_CHUNKS as usize).next_multiple_of(4096);
    (bytes / 8)
        .clamp(SMALLEST_CHUNK, LARGEST_CHUNK)
        .next_multiple_of(4096)
        .max(least)
}

const SMALLEST_CHUNK: usize = 32 * 1024;
const LARGEST_CHUNK: usize = 256 * 1024;
const ARENA_HELP_BYTES: usize = 1 << 20;
/// When this many bytes have been copied in one poll, the rest waits for the next poll, so that other peers do not wait
/// long.
const TURN_BYTES: usize = 1 << 20;
/// A reader that has waited for the owner for this many polls, several milliseconds, revokes the offer.
const PATIENT_POLLS: u32 = 1 << 16;
/// A waiting reader checks every this many polls whether the owner has ended.
const PROBE_POLLS: u32 = 1 << 10;
const MOST_HELPS: usize = OFFERS as usize * 64;

const _: () = assert!(OFFERS == 64, "the bitmap has one bit per offer");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_length_within_their_number() {
        for bytes in [
            1,
            4095,
            32768,
            32769,
            65536,
            1 << 20,
            4 << 20,
            1 << 33,
            (1 << 33) + 1,
        ] {
            let chunk = chunk_bytes(bytes);
            let chunks = bytes.div_ceil(chunk);
            assert!(
                chunks <= MAX_CHUNKS as usize && chunk.is_multiple_of(4096),
                "{bytes}"
            );
        }
        assert_eq!(chunk_bytes(65536), 32768);
    }
}
