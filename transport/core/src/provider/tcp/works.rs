// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads, writes and atomic operations of this process that have not ended, each with its lease.

use std::collections::HashMap;

use super::super::verbs::WorkKind;
use super::memory::MemoryRange;
use super::packet::MOST_FRAME_BYTES;
use crate::{Lease, RemoteKey, WorkId};

/// A read, write or atomic operation that has not ended.
#[derive(Debug)]
pub(super) struct TcpWork {
    pub(super) peer: u32,
    pub(super) name: WorkId,
    pub(super) kind: WorkKind,
    pub(super) lease: Lease,
    pub(super) key: RemoteKey,
    pub(super) offset: u64,
    pub(super) immediate: Option<u32>,
    /// Bytes of a read that have arrived; bytes of a write that are in packets.
    pub(super) at: u64,
    /// Whether a packet of the work was made for the peer.
    pub(super) has_begun: bool,
    /// The number of the last packet of a write, once there is one.
    pub(super) last: Option<u32>,
    /// The state of a read that goes over several connections; `None` for other works.
    pub(super) shared: Option<StripedRead>,
}

/// The state of a read that goes over several connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StripedRead {
    /// Parts in flight.
    pub(super) parts: u32,
    /// Whether a part has failed.
    pub(super) is_bad: bool,
    /// Whether a part went over a rail.
    pub(super) is_striped: bool,
}

/// A requested part of a striped read.
#[derive(Clone, Copy, Debug)]
pub(super) struct StripedReadPart {
    pub(super) peer: u32,
    pub(super) work: u32,
    /// `from`: offset of the part in the read. `bytes`: its length.
    pub(super) from: u64,
    pub(super) bytes: u64,
    /// Bytes of the part that have arrived.
    pub(super) at: u64,
    pub(super) over: PartConnection,
    pub(super) requested_ns: u64,
}

/// The connection over which a part was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartConnection {
    /// The line: the first connection with the peer.
    First,
    /// The rail of this number.
    Rail(u32),
}

impl TcpWork {
    pub(super) fn bytes(&self) -> u64 {
        self.lease.bytes() as u64
    }

    /// Whether all of the work lies in the memory that its key names. If not, the work must not be divided into parts:
    /// the owner must refuse the whole work, but would carry out those parts that lie in the memory.
    pub(super) fn fits_key(&self) -> bool {
        let end = self.offset.checked_add(self.bytes());
        end.is_some_and(|end| end <= self.key.bytes)
    }

    /// Whether the work moves more bytes than fit into a frame.
    pub(super) fn is_large(&self) -> bool {
        self.lease.bytes() > MOST_FRAME_BYTES
    }

    /// A range of the leased memory.
    pub(super) fn stretch(&self, at: u64, bytes: usize) -> MemoryRange {
        MemoryRange::of_lease(&self.lease, at, bytes)
    }
}

/// All operations in progress, by the ids in peers' replies.
#[derive(Debug, Default)]
pub(super) struct TcpWorks {
    all: HashMap<u32, TcpWork>,
    /// Parts of reads, by ids of their own.
    parts: HashMap<u32, StripedReadPart>,
    last: u32,
}

impl TcpWorks {
    pub(super) fn add(&mut self, work: TcpWork) -> u32 {
        let id = self.next();
        self.all.insert(id, work);
        id
    }

    pub(super) fn add_part(&mut self, part: StripedReadPart) -> u32 {
        let id = self.next();
        self.parts.insert(id, part);
        id
    }

    /// An unused id.
    fn next(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.all.contains_key(&self.last) && !self.parts.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The work with this id, if it goes to this peer.
    pub(super) fn find(&mut self, peer: u32, id: u32) -> Option<&mut TcpWork> {
        self.all.get_mut(&id).filter(|work| work.peer == peer)
    }

    /// The part with this id, if it was requested of this peer.
    pub(super) fn find_part(&mut self, peer: u32, id: u32) -> Option<&mut StripedReadPart> {
        self.parts.get_mut(&id).filter(|part| part.peer == peer)
    }

    pub(super) fn take_part(&mut self, id: u32) -> Option<StripedReadPart> {
        self.parts.remove(&id)
    }

    /// Takes all parts that were requested of a peer over the rail with the number `made`.
    pub(super) fn take_parts_over(&mut self, peer: u32, made: u32) -> Vec<StripedReadPart> {
        let is_it =
            |part: &StripedReadPart| part.peer == peer && part.over == PartConnection::Rail(made);
        let taken = self.parts.extract_if(|_, part| is_it(part));
        let mut taken: Vec<StripedReadPart> = taken.map(|(_, part)| part).collect();
        taken.sort_unstable_by_key(|part| (part.work, part.from));
        taken
    }

    /// Drops the parts of a lost peer.
    pub(super) fn forget_parts_of(&mut self, peer: u32) {
        self.parts.retain(|_, part| part.peer != peer);
    }

    /// Target of data that a peer sends for the read or part with this id: `bytes` bytes after the first `at`.
    pub(super) fn place(
        &mut self,
        peer: u32,
        id: u32,
        at: u64,
        bytes: usize,
    ) -> Option<MemoryRange> {
        let Some(part) = self.find_part(peer, id).copied() else {
            return Some(self.find(peer, id)?.stretch(at, bytes));
        };
        let from = part.from.checked_add(at)?;
        Some(self.find(peer, part.work)?.stretch(from, bytes))
    }

    pub(super) fn take(&mut self, id: u32) -> Option<TcpWork> {
        self.all.remove(&id)
    }

    /// The ids of all works to this peer, in the order in which the works were posted.
    pub(super) fn of(&self, peer: u32) -> Vec<u32> {
        let theirs = self.all.iter().filter(|(_, work)| work.peer == peer);
        let mut ids: Vec<u32> = theirs.map(|(id, _)| *id).collect();
        sort_oldest_first(&mut ids, self.last);
        ids
    }
}

/// Sorts ids by age, where `last` is the newest that was assigned. Ids wrap around.
fn sort_oldest_first(ids: &mut [u32], last: u32) {
    ids.sort_unstable_by_key(|id| id.wrapping_sub(last.wrapping_add(1)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_by_age_across_the_wrap() {
        let mut ids = [2, u32::MAX, 0, u32::MAX - 1, 1];
        sort_oldest_first(&mut ids, 2);
        assert_eq!(ids, [u32::MAX - 1, u32::MAX, 0, 1, 2]);
    }
}
