// SPDX-License-Identifier: MIT OR Apache-2.0
//! What carries packets to and from all peers: ports, ways for datagrams, reliable queue pairs. Nothing in here keeps or hands up a
//! packet, and nothing knows a read, a write or exported memory: what those should know of is told as [`VerbsLinkEvent`]s, in the order in
//! which it happened.
//!
//! | file | what its methods do |
//! |------|---------------------|
//! | `peers.rs` | find peers, open ways to them, take other rails, give peers up |
//! | `pairs.rs` | make queue pairs, break them, and say what has to be said about that |
//! | `probe.rs` | find out how long their packets may be |
//! | `events.rs` | follow what happens to ports |

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
use crate::wait;

/// The ports, and the queue pairs and address handles to all peers.
#[derive(Debug)]
pub(super) struct VerbsLinks<P: VerbsPort> {
    /// The rank of this process in its job: what it calls itself. What a peer calls it is kept with that peer's [`VerbsPeer`].
    pub(super) me: u32,
    pub(super) limits: NetLimits,
    pub(super) rails: Rails<P>,
    pub(super) sides: PeerTable,
    pub(super) sends: SendPool,
    pub(super) pairs: ReliablePairs,
    pub(super) strangers: UnresolvedPeers,
    pub(super) hosts: HostNames,
    pub(super) news: VerbsNotices,
    pub(super) schedule: Schedule,
    /// What reads and writes are to be told, oldest first.
    pub(super) upshots: VecDeque<VerbsLinkEvent>,
    pub(super) counts: Arc<NetCounts>,
}

/// An event of a stream or queue pair, for those who move data over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerbsLinkEvent {
    /// A part of a work is back from its queue pair.
    Part {
        work: u32,
        bytes: u32,
        status: WorkStatus,
    },
    /// The links to a peer are others, or another is the main one.
    Rebind { peer: u32 },
    /// What waits for something to a peer may go on.
    GoOn { peer: u32 },
    /// A peer was given up.
    Lost { peer: u32 },
    /// All ports are lost; `is_gone`: and their devices, which never tell the end of what they were doing.
    AllLost { is_gone: bool },
}

impl<P: VerbsPort> VerbsLinks<P> {
    /// Takes ports, for a job of `peers` processes.
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
            words,
        } = open_all(ports.into_iter().map(counted), &limits)?;
        let key = rails[0].port.datagram_key();
        Ok(Self {
            me,
            limits,
            schedule: Schedule::new(rails.clock()),
            rails,
            sides: PeerTable::new(me, peers, key),
            sends,
            pairs: ReliablePairs::default(),
            strangers: UnresolvedPeers::default(),
            hosts: HostNames::new(wait::host_name()),
            news: VerbsNotices::from(words),
            upshots: VecDeque::new(),
            counts,
        })
    }

    /// The port that serves a peer first.
    pub(super) fn port_to(&self, peer: u32) -> &P {
        let side = self.sides.find(peer);
        let rail = side.map_or(0, |side| side.main.rail);
        &self.rails[usize::from(rail)].port
    }

    /// Something may go on for a peer.
    pub(super) fn may_go_on(&mut self, peer: u32) {
        self.upshots.push_back(VerbsLinkEvent::GoOn { peer });
    }

    /// Whether it is still to be told that the links to a peer are others.
    pub(super) fn is_to_rebind(&self, peer: u32) -> bool {
        self.upshots.contains(&VerbsLinkEvent::Rebind { peer })
    }

    /// A part of a work is back.
    pub(super) fn part_is_back(&mut self, work: u32, bytes: u32, status: WorkStatus) {
        self.upshots.push_back(VerbsLinkEvent::Part {
            work,
            bytes,
            status,
        });
    }

    #[cold]
    pub(super) fn complain_of_registration(&mut self, error: &CallError, bytes: u64) {
        let facts = self.rails[0].port.facts();
        self.news.complain_of_registration(error, facts, bytes);
    }

    /// What is there from the beginning, with so many rails, in bytes.
    fn fixed_bytes(&self, rails: usize) -> usize {
        let queues = 2 * COMPLETION_BYTES * self.limits.depths().completions as usize;
        self.sides.fixed_bytes() + rails * (size_of::<Rail<P>>() + queues)
    }

    /// Memory that it takes now, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.fixed_bytes(self.rails.len())
            + self.sides.bytes()
            + self.strangers.bytes()
            + self.pairs.bytes(&self.limits)
            + self.sends.bytes()
            + self.rails.received_bytes()
    }

    /// The most with so many rails.
    pub(super) fn most_bytes_on(&self, rails: usize) -> usize {
        self.fixed_bytes(rails)
            + self.sides.len() * VerbsPeer::most_bytes(rails)
            + self.limits.pairs as usize * ReliablePair::most_bytes(&self.limits)
            + self.sends.most_bytes()
            + self.rails.received_most_bytes(rails)
    }

    /// Takes ways and slots back from the ports.
    pub(super) fn close(&mut self) {
        for rail in 0..self.rails.len() {
            self.sides.forget_ways(rail, &mut self.rails);
        }
        self.sends.retire(&mut self.rails);
    }
}
