// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manages the links to all peers: ports, address handles for datagrams, reliable queue pairs. Packets, reads, writes
//! and exported memory belong to higher layers, which take [`VerbsLinkEvent`]s from here, in the order in which they
//! occurred.
//!
//! | file        | methods |
//! |-------------|---------------------------------------------------------------------------|
//! | `peers.rs`  | set peers' addresses, create address handles, change rails, give peers up |
//! | `pairs.rs`  | make and break queue pairs, with the notes that this takes |
//! | `probe.rs`  | path MTU discovery |
//! | `events.rs` | asynchronous events of ports |

use std::collections::VecDeque;
use std::sync::Arc;

use super::hosts::HostNames;
use super::notices::VerbsNotices;
use super::pair::{ReliablePair, ReliablePairs};
use super::peer::VerbsPeer;
use super::peer_table::PeerTable;
use super::pools::SendPool;
use super::port::{CallError, VerbsPort, WorkStatus};
use super::rail::Rail;
use super::rails::{Opened, Rails, open_all};
use super::schedule::Schedule;
use super::unresolved::UnresolvedPeers;
use super::{COMPLETION_BYTES, NetLimits};
use crate::provider::counters::NetCounts;
use crate::provider::frame_burst::FrameBursts;
use crate::wait;

/// The ports, and the queue pairs and address handles to all peers.
#[derive(Debug)]
pub(super) struct VerbsLinks<P: VerbsPort> {
    /// The rank of this process in its job. The number by which a peer addresses this process is in that peer's
    /// [`VerbsPeer`].
    pub(super) me: u32,
    pub(super) limits: NetLimits,
    pub(super) rails: Rails<P>,
    pub(super) peers: PeerTable,
    pub(super) sends: SendPool,
    pub(super) pairs: ReliablePairs,
    pub(super) unresolved: UnresolvedPeers,
    pub(super) hosts: HostNames,
    pub(super) notices: VerbsNotices,
    pub(super) schedule: Schedule,
    pub(super) bursts: FrameBursts,
    /// Events not yet handled by `VerbsTransfers`, oldest first.
    pub(super) link_events: VecDeque<VerbsLinkEvent>,
    pub(super) counts: Arc<NetCounts>,
}

/// An event of a link, for reads, writes and streams over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerbsLinkEvent {
    /// A part of a work has ended on its queue pair.
    Part {
        work: u32,
        bytes: u32,
        status: WorkStatus,
    },
    /// The links to a peer have changed, or another link is the main link now.
    Rebind { peer: u32 },
    /// Waiting works and packets for a peer may be posted.
    GoOn { peer: u32 },
    /// A peer was given up.
    Lost { peer: u32 },
    /// All ports are lost; `device_lost`: their devices are lost too, so no completions of theirs come any more.
    AllLost { device_lost: bool },
}

impl<P: VerbsPort> VerbsLinks<P> {
    /// Opens the links on these ports, for a job of `peers` processes.
    pub(super) fn open(
        me: u32,
        peers: u32,
        ports: impl IntoIterator<Item = P>,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        let counts = Arc::<NetCounts>::default();
        let counted = |mut port: P| {
            port.count_into(Arc::clone(&counts.ports));
            port
        };
        let Opened {
            rails,
            sends,
            warnings,
        } = open_all(ports.into_iter().map(counted), &limits)?;
        let key = rails[0].port.datagram_key();
        Ok(Self {
            me,
            limits,
            schedule: Schedule::new(rails.clock()),
            bursts: FrameBursts::new(peers),
            rails,
            peers: PeerTable::new(me, peers, key),
            sends,
            pairs: ReliablePairs::default(),
            unresolved: UnresolvedPeers::default(),
            hosts: HostNames::new(wait::host_name()),
            notices: VerbsNotices::from(warnings),
            link_events: VecDeque::new(),
            counts,
        })
    }

    /// The port of the main link to a peer.
    pub(super) fn port_to(&self, peer: u32) -> &P {
        let remote = self.peers.find(peer);
        let rail = remote.map_or(0, |remote| remote.main.rail);
        &self.rails[usize::from(rail)].port
    }

    /// Queues [`VerbsLinkEvent::GoOn`].
    pub(super) fn queue_go_on(&mut self, peer: u32) {
        self.link_events.push_back(VerbsLinkEvent::GoOn { peer });
    }

    /// Whether a [`VerbsLinkEvent::Rebind`] of the peer is queued.
    pub(super) fn is_to_rebind(&self, peer: u32) -> bool {
        self.link_events.contains(&VerbsLinkEvent::Rebind { peer })
    }

    /// Queues [`VerbsLinkEvent::Part`].
    pub(super) fn part_is_back(&mut self, work: u32, bytes: u32, status: WorkStatus) {
        self.link_events.push_back(VerbsLinkEvent::Part {
            work,
            bytes,
            status,
        });
    }

    #[cold]
    pub(super) fn warn_of_registration(&mut self, error: &CallError, bytes: u64) {
        let facts = self.rails[0].port.facts();
        self.notices.warn_of_registration(error, facts, bytes);
    }

    /// Memory with `rails` rails before any peer has state, in bytes.
    fn fixed_bytes(&self, rails: usize) -> usize {
        let queues = 2 * COMPLETION_BYTES * self.limits.depths().completions as usize;
        self.peers.fixed_bytes() + rails * (size_of::<Rail<P>>() + queues)
    }

    /// Memory in use now, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.fixed_bytes(self.rails.len())
            + self.peers.bytes()
            + self.unresolved.bytes()
            + self.pairs.bytes(&self.limits)
            + self.sends.bytes()
            + self.rails.received_bytes()
    }

    /// Maximum memory with `rails` rails, in bytes.
    pub(super) fn most_bytes_on(&self, rails: usize) -> usize {
        self.fixed_bytes(rails)
            + self.peers.len() * VerbsPeer::most_bytes(rails)
            + self.limits.pairs as usize * ReliablePair::most_bytes(&self.limits)
            + self.sends.most_bytes()
            + self.rails.received_most_bytes(rails)
    }

    /// Returns address handles and send slots to the ports.
    pub(super) fn close(&mut self) {
        for rail in 0..self.rails.len() {
            self.peers.drop_handles(rail, &mut self.rails);
        }
        self.sends.retire(&mut self.rails);
    }
}
