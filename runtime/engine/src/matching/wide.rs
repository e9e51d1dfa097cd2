// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unexpected messages, arranged for receives and probes with wildcards. All messages that match one envelope with
//! wildcards are in one queue, in order of arrival.
//!
//! The queues for a kind of wildcard are built on first use, so a program without wildcards pays nothing.

use queue_layout::RequestFields;

use super::{Envelope, MatchQueue, Wildcard};
use crate::request::{RequestArena, RequestId};

/// The queues of one kind of wildcard, in bins. There are no bins before the first use.
#[derive(Debug)]
pub(super) struct BinnedQueues {
    pub(super) wild: Wildcard,
    bins: Box<[MatchQueue]>,
    /// Links of each message, by slot index.
    links: Vec<QueueLinks>,
}

/// The neighbours of a message in its queue; 0 is no slot.
#[derive(Clone, Copy, Debug, Default)]
struct QueueLinks {
    next: u32,
    prev: u32,
}

impl BinnedQueues {
    pub(super) fn of(wild: Wildcard) -> Self {
        Self {
            wild,
            bins: Box::default(),
            links: Vec::new(),
        }
    }

    /// Whether the queues of this kind have been built.
    #[inline(always)]
    pub(super) fn is_used(&self) -> bool {
        !self.bins.is_empty()
    }

    /// Distributes the messages, given in order of arrival, over `bins` bins, a power of two.
    pub(super) fn build(&mut self, arena: &RequestArena, messages: &[RequestId], bins: usize) {
        self.bins = vec![MatchQueue::default(); bins].into();
        for id in messages {
            self.append(*id, arena.fields(*id));
        }
    }

    /// The earliest message in the bin of `wanted` that satisfies `fits`.
    #[inline(always)]
    pub(super) fn find(
        &self,
        arena: &RequestArena,
        wanted: Envelope,
        fits: impl Fn(&RequestFields) -> bool,
    ) -> Option<RequestId> {
        let mut at = self.bins[self.bin(wanted)].head;
        while at != 0 {
            let id = RequestId(at);
            if fits(arena.fields(id)) {
                return Some(id);
            }
            at = self.links[id.index()].next;
        }
        None
    }

    pub(super) fn append(&mut self, id: RequestId, fields: &RequestFields) {
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, QueueLinks::default);
        }
        let bin = self.bin(Envelope::of(fields).with_wildcards(self.wild));
        let list = &mut self.bins[bin];
        let prev = if list.head == 0 { 0 } else { list.tail };
        self.links[id.index()] = QueueLinks { next: 0, prev };
        match prev {
            0 => list.head = id.0,
            prev => self.links[RequestId(prev).index()].next = id.0,
        }
        list.tail = id.0;
    }

    pub(super) fn remove(&mut self, id: RequestId, fields: &RequestFields) {
        let bin = self.bin(Envelope::of(fields).with_wildcards(self.wild));
        let list = &mut self.bins[bin];
        let QueueLinks { next, prev } = self.links[id.index()];
        match prev {
            0 => list.head = next,
            prev => self.links[RequestId(prev).index()].next = next,
        }
        match next {
            0 => list.tail = prev,
            next => self.links[RequestId(next).index()].prev = prev,
        }
    }

    #[inline(always)]
    fn bin(&self, of: Envelope) -> usize {
        of.hash() as usize & (self.bins.len() - 1)
    }
}
