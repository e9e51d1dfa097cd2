// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moves large data: reads, writes and atomic operations, the memory that devices know for that, and what peers carry out. It
//! is handed the [`VerbsStreams`] whose links it uses, and told by [`VerbsLinkEvent`]s what has become of those.
//!
//! | file | what its methods do |
//! |------|---------------------|
//! | `work.rs` | begin works, post their parts, end them |
//! | `fetch.rs` | have reads carried out by their peers, and carry out theirs |
//! | `keys.rs` | let peers reach memory, and tell them how |

use std::ptr::NonNull;

use super::NetLimits;
use super::fetch::Fetches;
use super::keys::PeerKeys;
use super::links::VerbsLinkEvent;
use super::memory::SharedMapping;
use super::port::{VerbsPort, WorkStatus};
use super::rail::RailPeer;
use super::registry::RegionRegistry;
use super::streams::VerbsStreams;
use super::works::Works;
use crate::{Completion, Peer};

/// All transfers that are under way, and the memory that they use.
#[derive(Debug)]
pub(super) struct VerbsTransfers {
    pub(super) works: Works,
    pub(super) registry: RegionRegistry,
    /// Further keys to memory of peers.
    pub(super) told: PeerKeys,
    /// Reads that peers carry out.
    pub(super) fetches: Fetches,
}

impl VerbsTransfers {
    pub(super) fn new(limits: &NetLimits) -> Self {
        Self {
            works: Works::new(),
            registry: RegionRegistry::new(limits),
            told: PeerKeys::default(),
            fetches: Fetches::new(),
        }
    }

    /// Takes in what has become of streams and queue pairs.
    pub(super) fn hear<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        upshot: VerbsLinkEvent,
    ) {
        match upshot {
            VerbsLinkEvent::Part {
                work,
                bytes,
                status: WorkStatus::Success,
            } => self.part_ended(streams, work, bytes),
            VerbsLinkEvent::Part {
                work,
                bytes,
                status,
            } => self.part_failed(streams, work, bytes, status),
            VerbsLinkEvent::Rebind { peer } => self.bind_all_again(streams, peer),
            VerbsLinkEvent::GoOn { peer } => self.go_on(streams, peer),
            VerbsLinkEvent::Lost { peer } => self.end_all_to(streams, peer),
            VerbsLinkEvent::AllLost { is_gone } => self.end_all_works(streams, is_gone),
        }
    }

    /// A peer is lost: nothing moves there any more.
    fn end_all_to<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, peer: u32) {
        let links = streams.links.sides.of(peer).links();
        let rails: Vec<u8> = links.map(|link| link.rail).collect();
        for rail in rails {
            self.fail_waiting(streams, RailPeer { peer, rail });
        }
        self.end_fetches(streams, peer);
        let peer = Peer(peer);
        streams.ready.push(Completion::Lost { peer });
    }

    /// Whether anything moves, or may be read by peers meanwhile.
    pub(super) fn is_any_under_way(&self) -> bool {
        self.registry.is_any_lent() || !self.works.is_empty() || !self.fetches.is_empty()
    }

    /// Keeps memory registered, which `mapping` is, or else somebody else's. `false`: that is not possible.
    pub(super) fn own<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        (place, bytes): (NonNull<u8>, usize),
        mapping: Option<SharedMapping>,
    ) -> bool {
        let rails = &mut streams.links.rails;
        let owned = self.registry.owned.own(place, bytes, mapping, rails);
        if let Err(error) = &owned {
            streams.links.complain_of_registration(error, bytes as u64);
        }
        owned.is_ok()
    }

    /// Takes all memory back from the ports.
    pub(super) fn retire<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>) {
        let rails = &mut streams.links.rails;
        self.registry.withdraw_all(rails);
        self.fetches.retire(rails);
        self.works.retire(rails);
        self.registry.owned.retire(rails);
    }
}
