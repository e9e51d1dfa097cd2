// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads, writes and atomic operations of this process that have not ended, each with its lease.

use std::collections::HashMap;

use super::super::verbs::Kind;
use super::memory::Stretch;
use super::packet::MOST_FRAME_BYTES;
use crate::{Lease, RemoteKey, WorkId};

/// One of them.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) peer: u32,
    pub(super) name: WorkId,
    pub(super) kind: Kind,
    pub(super) lease: Lease,
    pub(super) key: RemoteKey,
    pub(super) offset: u64,
    pub(super) immediate: Option<u32>,
    /// Bytes of a read that have come; of a write that are in packets.
    pub(super) at: u64,
    /// Whether it was told to the peer.
    pub(super) has_begun: bool,
    /// The last packet of a write, once there is one.
    pub(super) last: Option<u32>,
}

impl Work {
    pub(super) fn bytes(&self) -> u64 {
        self.lease.bytes() as u64
    }

    /// Whether it moves more than a frame could.
    pub(super) fn is_large(&self) -> bool {
        self.lease.bytes() > MOST_FRAME_BYTES
    }

    /// A part of its memory.
    pub(super) fn stretch(&self, at: u64, bytes: usize) -> Stretch {
        Stretch::of_lease(&self.lease, at, bytes)
    }
}

/// All of them, by numbers that peers answer with.
#[derive(Debug, Default)]
pub(super) struct Works {
    all: HashMap<u32, Work>,
    last: u32,
}

impl Works {
    pub(super) fn add(&mut self, work: Work) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.all.contains_key(&self.last) {
                break;
            }
        }
        self.all.insert(self.last, work);
        self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One that goes to this peer.
    pub(super) fn find(&mut self, peer: u32, id: u32) -> Option<&mut Work> {
        self.all.get_mut(&id).filter(|work| work.peer == peer)
    }

    pub(super) fn take(&mut self, id: u32) -> Option<Work> {
        self.all.remove(&id)
    }

    /// All that go to this peer, in the order in which they were posted.
    pub(super) fn of(&self, peer: u32) -> Vec<u32> {
        let theirs = self.all.iter().filter(|(_, work)| work.peer == peer);
        let mut ids: Vec<u32> = theirs.map(|(id, _)| *id).collect();
        ids.sort_unstable_by_key(|id| id.wrapping_sub(self.last));
        ids
    }
}
