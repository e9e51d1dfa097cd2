// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the messages that this process has sent to each peer. The fast path of eight-byte messages does not count:
//! when a count is read, the transport computes the number of these messages from its rings.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use channel::{ChannelCounters, LiveChannelCounters};
use engine::Peer;
use queue_layout::OwnedCounter;
use transport::{FabricCounters, Grown};

use crate::carrier::carrier;

/// Messages and bytes sent to each peer. Only one thread at a time sends; any thread and any signal handler may read.
#[derive(Debug)]
pub struct PeerTraffic {
    peers: Grown<Sent>,
    /// Number of ranks of the job. They are the first peers.
    ranks: usize,
    fabric: FabricCounters,
    channels: Arc<LiveChannelCounters>,
}

/// Messages and bytes sent to one peer. `shown`: the values that readers in other threads get.
#[derive(Debug, Default)]
struct Sent {
    messages: OwnedCounter,
    bytes: OwnedCounter,
    shown: [AtomicU64; 2],
}

/// The traffic of this process; set when MPI is initialized.
static TRAFFIC: OnceLock<Arc<PeerTraffic>> = OnceLock::new();

/// The traffic of this process; `None` before MPI is initialized.
pub(super) fn traffic() -> Option<&'static Arc<PeerTraffic>> {
    TRAFFIC.get()
}

/// To be called when MPI is initialized: makes `traffic` readable for tools.
pub(crate) fn show(traffic: &Arc<PeerTraffic>) {
    let _ = TRAFFIC.set(Arc::clone(traffic));
}

impl PeerTraffic {
    /// The traffic of a process in a job of `size` ranks. `fabric` and `channels`: the counters of its transport and
    /// channels.
    #[must_use]
    pub(crate) fn new(
        size: u32,
        fabric: FabricCounters,
        channels: Arc<LiveChannelCounters>,
    ) -> Self {
        Self {
            peers: Grown::new(size as usize),
            ranks: size as usize,
            fabric,
            channels,
        }
    }

    /// Raises the number of counted peers to `peers`.
    pub(crate) fn grow_to(&self, peers: u32) {
        self.peers.grow_to(peers as usize);
    }

    /// Counts a message that was not sent on the fast path of eight-byte messages. To be called by the thread that
    /// sends.
    #[inline(always)]
    pub(crate) fn count(&self, peer: Peer, bytes: u64) {
        if let Some(sent) = self.peers.get(peer.0 as usize) {
            sent.messages.add(1);
            sent.bytes.add(bytes);
        }
    }

    /// The counters of the transport.
    #[must_use]
    pub fn fabric(&self) -> &FabricCounters {
        &self.fabric
    }

    /// The counters of channels.
    #[must_use]
    pub(super) fn channels(&self) -> ChannelCounters {
        self.channels.snapshot()
    }

    /// Number of ranks of the job.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ranks
    }

    /// Number of messages sent to a world rank.
    #[must_use]
    pub fn messages(&self, rank: usize) -> u64 {
        self.read(rank, 0)
    }

    /// Number of bytes sent to a world rank.
    #[must_use]
    pub fn bytes(&self, rank: usize) -> u64 {
        self.read(rank, 1)
    }

    fn read(&self, rank: usize, what: usize) -> u64 {
        let (Some(sent), Ok(peer)) = (self.peers.get(rank), u32::try_from(rank)) else {
            return 0;
        };
        let (words, bytes) = self.fabric.words(carrier(Peer(peer)));
        let now = match what {
            0 => sent.messages.get().wrapping_add(words),
            _ => sent.bytes.get().wrapping_add(bytes),
        };
        // While a send is in progress, a computed count may be lower than the one before. A reported value must never
        // decrease, so the maximum is reported.
        sent.shown[what].fetch_max(now, Relaxed).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_counted_per_peer_and_never_decreases() {
        let fabric = transport::Fabric::open(transport::Config::alone()).unwrap();
        let traffic = PeerTraffic::new(1, fabric.counters(), Arc::default());
        traffic.count(Peer(0), 100);
        traffic.count(Peer(0), 11);
        traffic.count(Peer(1), 5);
        assert_eq!(
            (traffic.size(), traffic.messages(0), traffic.bytes(0)),
            (1, 2, 111)
        );
        assert_eq!((traffic.messages(1), traffic.bytes(1)), (0, 0));
        traffic.peers.get(0).unwrap().bytes.set(50);
        assert_eq!(traffic.bytes(0), 111);
        traffic.grow_to(2);
        traffic.count(Peer(1), 5);
        assert_eq!((traffic.size(), traffic.bytes(1)), (1, 5));
    }
}
