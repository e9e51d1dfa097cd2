// SPDX-License-Identifier: MIT OR Apache-2.0
//! The responder's record of the peer's latest reads and atomic operations, for repeated requests. IBTA vol. 1 section
//! 9.7.5.1.2.
//!
//! A repeated read is executed again. A repeated atomic operation is not, so its result is kept. At most as many of
//! these requests are outstanding as are recorded here, so the responses to all older requests have arrived.

use std::collections::VecDeque;

use super::config::PathMtu;
use crate::format::Reth;
use crate::psn::Psn;

/// The latest reads and atomic operations of the peer, oldest first.
#[derive(Debug)]
pub(super) struct ReplayCache {
    kept: VecDeque<ReplayEntry>,
    depth: usize,
}

/// An executed read or atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplayEntry {
    pub(super) first: Psn,
    pub(super) packets: u32,
    pub(super) operation: ReplayOperation,
}

/// Kind of an executed operation, with the data that are needed when the request is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplayOperation {
    Read(Reth),
    /// An atomic operation, with the original value that it returned.
    Atomic(u64),
}

impl ReplayCache {
    pub(super) fn new(depth: u8) -> Self {
        Self {
            kept: VecDeque::new(),
            depth: depth.into(),
        }
    }

    /// Records an operation. Returns the oldest one, if it had to be removed.
    pub(super) fn keep(&mut self, carried: ReplayEntry) -> Option<ReplayEntry> {
        let is_full = self.kept.len() >= self.depth;
        let oldest = is_full.then(|| self.kept.pop_front()).flatten();
        self.kept.push_back(carried);
        oldest
    }

    /// The first PSN of the first recorded operation that begins after `psn` and before `expected`. Distances are
    /// counted from `psn`, since entries may be more than 2^23 PSNs old.
    pub(super) fn first_behind(&self, psn: Psn, expected: Psn) -> Option<Psn> {
        let all = 1..expected.packets_since(psn);
        let distances = self.kept.iter().map(|it| it.first.packets_since(psn));
        let nearest = distances.filter(|distance| all.contains(distance)).min();
        nearest.map(|distance| psn.plus(distance))
    }

    /// The original value of the atomic operation with this PSN, if it is recorded.
    pub(super) fn atomic(&self, psn: Psn) -> Option<u64> {
        self.kept
            .iter()
            .find_map(|carried| match carried.operation {
                ReplayOperation::Atomic(value) if carried.first == psn => Some(value),
                _ => None,
            })
    }

    /// The recorded read that `again` repeats from `psn` on. The length of `again` must be that of the whole rest of
    /// the read, or, with `in_parts`, may be a whole number of packets of the rest. With another length, the response
    /// would end elsewhere and carry other bytes under the same PSNs: then `None`. (Linux's `rdma_rxe` computes the
    /// length from the data received so far, which may have grown since it chose the PSN.)
    pub(super) fn read(
        &self,
        psn: Psn,
        again: &Reth,
        mtu: PathMtu,
        in_parts: bool,
    ) -> Option<ReplayEntry> {
        self.kept.iter().copied().find(|carried| {
            let ReplayOperation::Read(reth) = carried.operation else {
                return false;
            };
            let packet = psn.packets_since(carried.first);
            if packet >= carried.packets {
                return false;
            }
            let offset = packet * mtu.bytes();
            let rest = reth.bytes - offset.min(reth.bytes);
            let from = reth.address.wrapping_add(offset.into());
            let is_part = in_parts && again.bytes < rest && again.bytes.is_multiple_of(mtu.bytes());
            let is_it = again.bytes == rest || is_part;
            again.key == reth.key && again.address == from && is_it
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: u32, bytes: u32) -> ReplayEntry {
        let reth = Reth {
            address: 4096,
            key: 7,
            bytes,
        };
        ReplayEntry {
            first: Psn::new(first),
            packets: PathMtu::BYTES_256.packets(bytes),
            operation: ReplayOperation::Read(reth),
        }
    }

    #[test]
    fn full_replay_cache_evicts_the_oldest() {
        let mut replay = ReplayCache::new(2);
        assert_eq!(replay.keep(read(0, 1)), None);
        assert_eq!(replay.keep(read(1, 1)), None);
        assert_eq!(replay.keep(read(2, 1)), Some(read(0, 1)));
    }

    #[test]
    fn repeated_read_must_match_the_rest_of_the_original() {
        let mut replay = ReplayCache::new(2);
        replay.keep(read(0x00ff_ffff, 700));
        let finds = |psn, key, address, bytes| {
            let again = Reth {
                address,
                key,
                bytes,
            };
            let found = |in_parts| replay.read(Psn::new(psn), &again, PathMtu::BYTES_256, in_parts);
            (found(false).is_some(), found(true).is_some())
        };
        let (both, neither) = ((true, true), (false, false));
        assert_eq!(finds(0x00ff_ffff, 7, 4096, 700), both);
        assert_eq!(finds(0, 7, 4352, 444), both);
        assert_eq!(finds(1, 7, 4608, 188), both);
        assert_eq!(finds(2, 7, 4864, 0), neither, "behind it");
        assert_eq!(finds(0, 8, 4352, 444), neither, "another key");
        assert_eq!(finds(0, 7, 4353, 443), neither, "another address");
        assert_eq!(finds(0, 7, 4352, 445), neither, "more than the rest");
        assert_eq!(finds(0, 7, 4352, 188), neither, "what follows the next");
        assert_eq!(finds(0, 7, 4352, 256), (false, true), "a whole packet");
    }

    #[test]
    fn next_read_after_a_psn_is_found() {
        let mut replay = ReplayCache::new(3);
        for first in [0x00ff_fff0, 5, 20] {
            replay.keep(read(first, 1));
        }
        let next = |psn, expected| {
            let next = replay.first_behind(Psn::new(psn), Psn::new(expected));
            next.map(Psn::get)
        };
        assert_eq!(next(0x00ff_fff0, 30), Some(5), "not itself");
        assert_eq!(next(5, 30), Some(20));
        assert_eq!(next(20, 30), None);
        // All recorded operations are about 2^23 PSNs away from `psn`, and none of them is between `psn` and
        // `expected`.
        assert_eq!(next(0x0080_0001, 0x0080_0002), None);
        assert_eq!(next(0x0070_0000, 0x0070_0009), None);
    }

    #[test]
    fn atomic_operation_is_found_by_its_psn() {
        let mut replay = ReplayCache::new(2);
        replay.keep(ReplayEntry {
            first: Psn::new(5),
            packets: 1,
            operation: ReplayOperation::Atomic(77),
        });
        assert_eq!(replay.atomic(Psn::new(5)), Some(77));
        assert_eq!(replay.atomic(Psn::new(6)), None);
    }
}
