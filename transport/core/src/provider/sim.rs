// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `sim`: many ranks in one process on a simulated network, for tests.
//!
//! Underneath is a packet wire that loses, delays, duplicates and reorders ([`net`]); on top of it a small reliability
//! layer ([`flow`]) restores what every fabric promises. Ranks are taken off their processor at random, windows may be
//! so small that [`Full`] is a frequent result, and time passes only in calls of [`SimNet::advance`] and while a rank
//! sleeps. The same seed and the same calls give the same result.

mod flow;
mod net;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::FabricStats;
use super::caps::{Caps, Mover};
use super::wire::Provider;
use crate::{Atomic, Completions, Full, Head, Lease, Peer, RemoteKey, WorkId};
pub(super) use net::SimRandom;
use net::{SimPost, SimWire};

/// Faults and delays of a simulated network. Times are in simulated nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Seed of all random choices.
    pub seed: u64,
    /// Ranks on the network.
    pub ranks: u32,
    /// Packets lost, of 1000; below 900, or nothing arrives in reasonable time.
    pub loss_permille: u32,
    /// Packets delivered twice, of 1000.
    pub duplicate_permille: u32,
    /// Shortest delay of a packet.
    pub least_delay_ns: u64,
    /// Longest delay of a packet; a range of delays reorders packets.
    pub most_delay_ns: u64,
    /// Maximum number of frames from one rank to another that are in flight or not yet polled there; at least 1.
    pub window_frames: u32,
    /// Maximum number of large bodies from one rank to another that are in flight or not yet released there; at least
    /// 1.
    pub lent_buffers: u32,
    /// Longest time that a rank spends off its processor; 0: ranks are never taken off their processors.
    pub most_away_ns: u64,
    /// Share of the time that a rank spends off its processor, of 1000; at most 900.
    pub away_permille: u32,
    /// Whether reads and writes work; else they end with [`WorkOutcome::Unreachable`](crate::WorkOutcome::Unreachable).
    pub one_sided: bool,
    /// Additional cost of packets between nodes; `None`: all ranks are on one node.
    pub between: Option<SimHop>,
}

/// Ranks on several nodes, and the additional cost of a packet from one to another. Each node has one adapter, which
/// processes outgoing packets one after the other, and incoming ones one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimHop {
    /// Number of consecutive ranks on each node; at least 1.
    pub ranks_per_node: u32,
    /// Additional delay of a packet.
    pub delay_ns: u64,
    /// Time for which an adapter is busy with a packet, not counting its data.
    pub gap_ns: u64,
    /// Time for which an adapter is busy with each byte of data, in thousandths of a nanosecond.
    pub byte_ps: u64,
    /// Time for which the receiving rank's core is busy with each packet, from any node, except replies.
    pub core_gap_ns: u64,
    /// Time for which the receiving rank's core is busy with each byte of data, to copy or combine it; in thousandths
    /// of a nanosecond.
    pub core_byte_ps: u64,
}

impl SimConfig {
    /// A network without faults.
    #[must_use]
    pub fn calm(seed: u64, ranks: u32) -> Self {
        Self {
            seed,
            ranks,
            loss_permille: 0,
            duplicate_permille: 0,
            least_delay_ns: 1_000,
            most_delay_ns: 1_000,
            window_frames: 64,
            lent_buffers: 64,
            most_away_ns: 0,
            away_permille: 0,
            one_sided: true,
            between: None,
        }
    }

    /// A network whose faults are drawn from the seed: some seeds lose up to a third of all packets, some have windows
    /// of one frame, some keep a rank off its processor for long, some do all of this.
    #[must_use]
    pub fn harsh(seed: u64, ranks: u32) -> Self {
        let mut random = SimRandom::new(seed ^ 0x5eed_0f7a_11b1_e500);
        let mut some = |most: u64| {
            let severe = random.below(3);
            random.below(1 + most * severe / 2)
        };
        let narrow = |draw: u64| u32::try_from(draw).unwrap_or(0);
        Self {
            loss_permille: narrow(some(350)),
            duplicate_permille: narrow(some(300)),
            most_delay_ns: 1_000 + some(30_000),
            window_frames: 1 + narrow(some(15)),
            lent_buffers: 1 + narrow(some(7)),
            most_away_ns: match some(200_000) {
                0 => 0,
                // Shorter times change nothing that a rank could observe, and cost the simulation a step each.
                time => time.max(2_000),
            },
            away_permille: narrow(some(500)),
            one_sided: some(3) != 1,
            ..Self::calm(seed, ranks)
        }
    }
}

/// Totals of a simulated network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Packets put on the wire, duplicates included.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets delivered a second time.
    pub duplicated: u64,
    /// Packets that arrived after a packet that was sent later between the same ranks.
    pub overtaken: u64,
    /// Frames sent again after a timeout.
    pub repeated: u64,
    /// Posts that returned [`Full`].
    pub full: u64,
    /// Number of times that a rank was taken off its processor.
    pub away: u64,
    /// Packets from one node to another.
    pub between: u64,
}

/// A simulated network. Clones share one network; give one to each rank's
/// [`Fabric::simulated`](crate::Fabric::simulated).
#[derive(Clone, Debug)]
pub struct SimNet(Arc<Mutex<SimWire>>);

impl SimNet {
    /// A new network at time zero.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self(Arc::new(Mutex::new(SimWire::new(config))))
    }

    /// Moves the clock to the next event and carries the event out. `false`: nothing is in flight, and no event is due
    /// until the next post.
    pub fn advance(&self) -> bool {
        self.lock().advance()
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> SimConfig {
        self.lock().config()
    }

    /// Ranks on the network.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.config().ranks
    }

    /// Simulated time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.lock().now()
    }

    /// Whether a rank is on its processor; a rank that is not can neither post nor poll.
    #[must_use]
    pub fn is_running(&self, rank: Peer) -> bool {
        self.lock().is_running(rank.0)
    }

    /// Totals so far.
    #[must_use]
    pub fn stats(&self) -> SimStats {
        self.lock().stats
    }

    fn lock(&self) -> MutexGuard<'_, SimWire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One rank's place on the network.
#[derive(Debug)]
pub(super) struct Sim {
    net: SimNet,
    me: u32,
    stats: FabricStats,
}

impl Sim {
    pub(super) fn open(net: SimNet, me: Peer) -> Self {
        Self {
            net,
            me: me.0,
            stats: FabricStats::default(),
        }
    }

    /// Advances simulated time until something has arrived for this rank, `timeout` has passed, or no event is due any
    /// more.
    pub(super) fn sleep(&mut self, timeout: Duration) {
        self.stats.sleeps += 1;
        let mut net = self.net.lock();
        let limit = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let limit = net.now().saturating_add(limit);
        while !net.has_completions(self.me) && net.now() < limit && net.advance() {}
    }

    pub(super) fn stats(&self) -> FabricStats {
        FabricStats {
            refused: self.net.lock().refused(self.me),
            ..self.stats
        }
    }
}

impl Provider for Sim {
    /// One thread carries out everything. Large data are moved both by reads and by sends, since tests need both.
    fn caps(&self, _peer: Peer) -> Caps {
        Caps {
            max_inline_bytes: ring::SLOT_BODY_BYTES,
            max_send_bytes: ring::layout::POOL_BUFFER_BYTES,
            reads: Mover::Caller,
            writes: Mover::Caller,
            atomics: Some(Mover::Caller),
            may_stream: true,
            maps: false,
            wakes: true,
        }
    }

    #[cold]
    #[inline(never)]
    fn post_send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        assert!(
            body.len() <= ring::layout::POOL_BUFFER_BYTES,
            "a send of {} bytes",
            body.len()
        );
        let item = SimPost::Frame {
            head,
            body: body.into(),
        };
        self.net
            .lock()
            .post(self.me, to.0, item)
            .map_err(|_| Full)?;
        self.stats.sends += 1;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn copy_lent(&self, _peer: Peer, index: u32, _bytes: u32, target: &mut [u8]) -> usize {
        self.net.lock().copy_lent(self.me, index, target)
    }

    #[cold]
    #[inline(never)]
    fn release(&mut self, _peer: Peer, index: u32) {
        self.net.lock().release(self.me, index);
    }

    fn had_better_stream(&mut self, _peer: Peer, _key: RemoteKey) -> bool {
        true
    }

    fn export(&mut self, to: Peer, address: u64, bytes: u64) -> RemoteKey {
        self.net.lock().export(self.me, to.0, address, bytes)
    }

    fn post_read(&mut self, from: Peer, lease: Lease, key: RemoteKey, offset: u64, work: WorkId) {
        self.stats.read_bytes += lease.bytes() as u64;
        let item = SimPost::Read {
            lease,
            key,
            offset,
            work,
        };
        self.net.lock().post_read(self.me, from.0, item);
    }

    fn post_write(
        &mut self,
        to: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        let item = SimPost::Write {
            lease,
            key,
            offset,
            work,
            immediate,
        };
        match self.net.lock().post(self.me, to.0, item) {
            Err(SimPost::Write { lease, .. }) => Err(lease),
            _ => Ok(()),
        }
    }

    fn post_atomic(
        &mut self,
        to: Peer,
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        let item = SimPost::Atomic {
            atomic,
            lease,
            key,
            offset,
            work,
        };
        self.net.lock().post_read(self.me, to.0, item);
    }

    #[cold]
    #[inline(never)]
    fn poll(&mut self, completions: &mut Completions) {
        self.net.lock().poll(self.me, completions);
    }

    fn prepare_sleep(&mut self) -> bool {
        !self.net.lock().has_completions(self.me)
    }
}
