// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers and keys by which this process and a peer address each other: the number that each uses for the other,
//! the Q_Key of the peer's datagrams, and which of the two is the first. Within a job they follow from the ranks; for a
//! process of another job both processes get them when they connect.

use crate::provider::tcp::StreamKey;

/// Numbers and keys for a process of another job. That process gets the matching ones for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignPeer {
    /// The number by which that process addresses this one: the source field of packets to that process.
    pub source_number: u32,
    /// The [key](crate::NetworkSettings::with_key) of that process's job for datagrams.
    pub key: u32,
    /// The key of that process's job for TCP connections.
    pub stream_key: StreamKey,
    /// Whether this process is the first of the two; the other one has the opposite value.
    pub is_first: bool,
}

/// Numbers and key for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) struct PeerIdentity {
    /// The number by which the peer addresses this process: the source field of packets to the peer.
    pub(in crate::provider) source_number: u32,
    /// The Q_Key of datagrams to the peer.
    pub(in crate::provider) key: u32,
    pub(in crate::provider) is_first: bool,
}

/// The identities of all peers, by the numbers that this process uses for them.
#[derive(Debug)]
pub(in crate::provider) struct PeerIdentities {
    me: u32,
    /// The Q_Key of this job.
    key: u32,
    /// Number of processes of this job.
    ranks: u32,
    /// Peers of other jobs, numbered from `ranks` on; `None`: not reached over this network.
    later: Vec<Option<PeerIdentity>>,
}

impl PeerIdentities {
    /// The table of process `me` in a job of `ranks` processes with this Q_Key.
    pub(in crate::provider) fn new(me: u32, ranks: u32, key: u32) -> Self {
        Self {
            me,
            key,
            ranks,
            later: Vec::new(),
        }
    }

    /// Adds a process of another job.
    pub(in crate::provider) fn add_foreign(&mut self, peer: u32, far: ForeignPeer) {
        let Some(place) = peer.checked_sub(self.ranks) else {
            return;
        };
        let place = place as usize;
        if place >= self.later.len() {
            self.later.resize(place + 1, None);
        }
        self.later[place] = Some(PeerIdentity {
            source_number: far.source_number,
            key: far.key,
            is_first: far.is_first,
        });
    }

    fn later(&self, peer: u32) -> Option<PeerIdentity> {
        let place = peer.checked_sub(self.ranks)?;
        self.later.get(place as usize).copied().flatten()
    }

    /// The identity of a peer. The fields that every packet needs are copied to its
    /// [`VerbsPeer`](super::peer::VerbsPeer).
    pub(in crate::provider) fn with(&self, peer: u32) -> PeerIdentity {
        self.later(peer).unwrap_or(PeerIdentity {
            source_number: self.me,
            key: self.key,
            is_first: self.me < peer,
        })
    }

    /// Whether `source` can be a peer: another process of the job, or an added process of another job.
    pub(in crate::provider) fn may_be(&self, source: u32) -> bool {
        let is_rank = source < self.ranks && source != self.me;
        is_rank || self.is_of_another_job(source)
    }

    pub(in crate::provider) fn is_of_another_job(&self, peer: u32) -> bool {
        self.later(peer).is_some()
    }

    /// Memory beside the structure itself, in bytes.
    pub(in crate::provider) fn bytes(&self) -> usize {
        self.later.capacity() * size_of::<Option<PeerIdentity>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_identified_by_rank_and_foreign_peers_as_agreed() {
        let mut known = PeerIdentities::new(1, 3, 7);
        let far = ForeignPeer {
            source_number: 0,
            key: 9,
            stream_key: StreamKey::new(1 << 100),
            is_first: false,
        };
        known.add_foreign(4, far);
        for (peer, is_first) in [(0, false), (2, true)] {
            let rank = PeerIdentity {
                source_number: 1,
                key: 7,
                is_first,
            };
            assert_eq!(known.with(peer), rank);
        }
        let foreign = PeerIdentity {
            source_number: 0,
            key: 9,
            is_first: false,
        };
        assert_eq!(known.with(4), foreign);
        // Number 3 is a process that this network does not reach.
        let may_be = [0, 1, 2, 3, 4, 5, u32::MAX].map(|source| known.may_be(source));
        assert_eq!(may_be, [true, false, true, false, true, false, false]);
        let is_other = [2, 3, 4].map(|peer| known.is_of_another_job(peer));
        assert_eq!(is_other, [false, false, true]);
    }
}
