// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of providers: the thread that uses the fabric increments them, and any thread or signal handler may read
//! them meanwhile.

use std::sync::Arc;

use ring::Own64;

use super::shm::WordCounts;
use super::verbs::{NetStats, PortCounts};
use crate::Peer;

/// Totals of a fabric; for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Frames posted.
    pub sends: u64,
    /// Bells rung because the receiver was not polling.
    pub bells: u64,
    /// Wake-up system calls.
    pub wakes: u64,
    /// Number of times that this process slept.
    pub sleeps: u64,
    /// Bytes read from peers' memory by this process.
    pub read_bytes: u64,
    /// Bytes of this process's reads that the owner of the data wrote to this process.
    pub helped_bytes: u64,
    /// Frames and offers that were malformed.
    pub refused: u64,
}

impl FabricStats {
    /// The sums of these totals and `other`.
    pub(super) fn with(self, other: &Self) -> Self {
        Self {
            sends: self.sends + other.sends,
            refused: self.refused + other.refused,
            ..self
        }
    }
}

/// The counters of a fabric. Any thread or signal handler may read them.
#[derive(Clone, Debug, Default)]
pub struct FabricCounters {
    pub(super) shm: Arc<ShmCounts>,
    pub(super) net: Option<Arc<NetCounts>>,
    pub(super) words: WordCounts,
}

impl FabricCounters {
    /// Totals of shared memory and waiting.
    #[must_use]
    pub fn stats(&self) -> FabricStats {
        FabricStats {
            sends: self.words.frames(),
            ..self.shm.seen()
        }
    }

    /// Number of words that the fast path of words has sent to a peer, and the bytes in them. Both are never higher
    /// than what was sent, and lower only while a send is in progress.
    #[must_use]
    pub fn words(&self, peer: Peer) -> (u64, u64) {
        self.words.of(peer)
    }

    /// Totals of the network: frames posted, malformed frames, and its own statistics.
    #[must_use]
    pub fn net(&self) -> (FabricStats, NetStats) {
        self.net
            .as_ref()
            .map_or_else(Default::default, |net| net.seen())
    }
}

/// Counters of traffic between the ranks of a node: see [`FabricStats`].
#[derive(Debug, Default)]
pub(super) struct ShmCounts {
    pub(super) bells: Own64,
    pub(super) wakes: Own64,
    pub(super) sleeps: Own64,
    pub(super) read_bytes: Own64,
    pub(super) helped_bytes: Own64,
    pub(super) refused: Own64,
}

impl ShmCounts {
    /// The counters without the sends.
    pub(super) fn seen(&self) -> FabricStats {
        FabricStats {
            sends: 0,
            bells: self.bells.get(),
            wakes: self.wakes.get(),
            sleeps: self.sleeps.get(),
            read_bytes: self.read_bytes.get(),
            helped_bytes: self.helped_bytes.get(),
            refused: self.refused.get(),
        }
    }
}

/// Counters of network traffic: see [`FabricStats`] and [`NetStats`].
#[derive(Debug, Default)]
pub(super) struct NetCounts {
    pub(super) sends: Own64,
    pub(super) refused: Own64,
    pub(super) datagrams: Own64,
    pub(super) overdue: Own64,
    pub(super) packets: Own64,
    pub(super) joined: Own64,
    pub(super) narrow: Own64,
    pub(super) broken: Own64,
    pub(super) not_ready: Own64,
    pub(super) given_up: Own64,
    pub(super) rails: Own64,
    pub(super) twice: Own64,
    pub(super) moved_bytes: Own64,
    pub(super) striped: Own64,
    pub(super) fetched: Own64,
    pub(super) detours: Own64,
    pub(super) ports: Arc<PortCounts>,
}

impl NetCounts {
    pub(super) fn seen(&self) -> (FabricStats, NetStats) {
        let stats = FabricStats {
            sends: self.sends.get(),
            refused: self.refused.get(),
            ..FabricStats::default()
        };
        let net = NetStats {
            datagrams: self.datagrams.get(),
            overdue: self.overdue.get(),
            packets: self.packets.get(),
            joined: self.joined.get(),
            narrow: self.narrow.get(),
            broken: self.broken.get(),
            not_ready: self.not_ready.get(),
            given_up: self.given_up.get(),
            rails: self.rails.get(),
            twice: self.twice.get(),
            moved_bytes: self.moved_bytes.get(),
            striped: self.striped.get(),
            fetched: self.fetched.get(),
            detours: self.detours.get(),
            registered: self.ports.regions.get(),
            registered_bytes: self.ports.bytes(),
            registered_most_bytes: self.ports.most_bytes.get(),
            repeated: self.ports.repeated.get(),
            timeouts: self.ports.timeouts.get(),
            window_cuts: self.ports.window_cuts.get(),
            in_place: self.ports.in_place.get(),
            in_place_bytes: self.ports.in_place_bytes.get(),
        };
        (stats, net)
    }
}
