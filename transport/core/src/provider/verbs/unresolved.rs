// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps peers with unknown addresses, and datagrams that claim to be from them, until the datagrams can be verified.
//! The datagrams occupy their receive buffers meanwhile, so only a few are kept.

use std::collections::{HashSet, VecDeque};

use session::Slot;

/// Peers with unknown addresses, and datagrams that claim to be from them.
#[derive(Debug, Default)]
pub(super) struct UnresolvedPeers {
    /// Peers whose address is to be requested.
    wanted: VecDeque<u32>,
    /// Claimed sender, buffer, and sending queue pair.
    datagrams: VecDeque<(u32, Slot, u32)>,
    /// Peers that are reached over another network: their datagrams are refused here.
    excluded: HashSet<u32>,
}

impl UnresolvedPeers {
    /// Requests the address of a peer.
    pub(super) fn want(&mut self, peer: u32) {
        self.wanted.push_back(peer);
    }

    #[inline(always)]
    pub(super) fn is_any_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The next peer whose address is needed; each peer is returned once.
    pub(super) fn next_wanted(&mut self) -> Option<u32> {
        self.wanted.pop_front()
    }

    /// Whether a further datagram may be kept.
    pub(super) fn has_room(&self) -> bool {
        self.datagrams.len() < MOST_HELD
    }

    /// Whether a peer was [excluded](Self::exclude).
    pub(super) fn is_excluded(&self, peer: u32) -> bool {
        self.excluded.contains(&peer)
    }

    /// Refuses a peer's datagrams from now on; returns those that were kept.
    pub(super) fn exclude(&mut self, peer: u32) -> Vec<(Slot, u32)> {
        self.excluded.insert(peer);
        self.take(peer)
    }

    /// Keeps a datagram: its claimed sender, its buffer, and the sending queue pair.
    pub(super) fn keep(&mut self, source: u32, buffer: Slot, number: u32) {
        self.datagrams.push_back((source, buffer, number));
    }

    /// Memory for peers that were excluded, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.excluded.capacity() * size_of::<u32>()
    }

    /// Takes the datagrams kept for a peer, oldest first: buffers and sending queue pairs.
    pub(super) fn take(&mut self, peer: u32) -> Vec<(Slot, u32)> {
        let all = std::mem::take(&mut self.datagrams).into_iter();
        let (theirs, others): (Vec<_>, _) = all.partition(|(source, ..)| *source == peer);
        self.datagrams = others.into();
        let theirs = theirs.into_iter();
        theirs.map(|(_, buffer, number)| (buffer, number)).collect()
    }
}

/// Maximum number of datagrams kept.
const MOST_HELD: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_gets_its_kept_packets_in_order() {
        let mut unresolved = UnresolvedPeers::default();
        for (source, buffer) in [(3, 10), (4, 11), (3, 12)] {
            unresolved.keep(source, buffer, 100 + source);
        }
        assert_eq!(unresolved.take(3), [(10, 103), (12, 103)]);
        assert_eq!(unresolved.take(3), []);
        assert_eq!(unresolved.take(4), [(11, 104)]);
    }

    #[test]
    fn packets_of_an_excluded_source_are_released() {
        let mut unresolved = UnresolvedPeers::default();
        for source in [3, 4] {
            unresolved.keep(source, 10 + source, 100 + source);
        }
        assert_eq!(unresolved.exclude(3), [(13, 103)]);
        assert!(unresolved.is_excluded(3) && !unresolved.is_excluded(4));
        assert_eq!(unresolved.take(4), [(14, 104)]);
    }

    #[test]
    fn the_number_of_kept_packets_is_limited() {
        let mut unresolved = UnresolvedPeers::default();
        let mut kept = 0;
        while unresolved.has_room() {
            unresolved.keep(1, kept, 0);
            kept += 1;
        }
        assert_eq!(kept as usize, MOST_HELD);
        unresolved.take(1);
        assert!(unresolved.has_room());
    }
}
