// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers large data: reads, writes and atomic operations, the memory registered for them, and reads carried out by
//! peers. The methods take the [`VerbsStreams`] whose links they use, and handle their [`VerbsLinkEvent`]s.
//!
//! | file       | methods |
//! |------------|------------------------------------------------------------------------------------------|
//! | `work.rs`  | begin works, post their parts, end them |
//! | `fetch.rs` | have reads carried out as writes by the owners of the data, and carry out reads of peers |
//! | `keys.rs`  | export memory, and send its keys to peers |

use std::ptr::NonNull;

use super::NetLimits;
use super::fetch::Fetches;
use super::keys::PeerKeys;
use super::links::VerbsLinkEvent;
use super::memory::SharedMapping;
use super::port::{VerbsPort, WorkStatus};
use super::rail::PeerPath;
use super::registry::RegionRegistry;
use super::streams::VerbsStreams;
use super::works::Works;
use crate::{Completion, Peer};

/// All transfers in flight, and the memory that they use.
#[derive(Debug)]
pub(super) struct VerbsTransfers {
    pub(super) works: Works,
    pub(super) registry: RegionRegistry,
    /// Remote keys that peers have sent for their other rails.
    pub(super) peer_keys: PeerKeys,
    /// Reads that peers carry out.
    pub(super) fetches: Fetches,
}

impl VerbsTransfers {
    pub(super) fn new(limits: &NetLimits) -> Self {
        Self {
            works: Works::new(),
            registry: RegionRegistry::new(limits),
            peer_keys: PeerKeys::default(),
            fetches: Fetches::new(),
        }
    }

    /// Handles a link event.
    pub(super) fn handle_event<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        event: VerbsLinkEvent,
    ) {
        match event {
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
            VerbsLinkEvent::AllLost { device_lost } => self.end_all_works(streams, device_lost),
        }
    }

    /// Ends all waiting works to a lost peer and all reads that it should carry out, and reports the loss to the
    /// caller.
    fn end_all_to<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>, peer: u32) {
        let links = streams.links.peers.of(peer).links();
        let rails: Vec<u8> = links.map(|link| link.rail).collect();
        for rail in rails {
            self.fail_waiting(streams, PeerPath { peer, rail });
        }
        self.end_fetches(streams, peer);
        let peer = Peer(peer);
        streams.ready.push(Completion::Lost { peer });
    }

    /// Whether any transfer is in flight, or any memory is exported to peers.
    pub(super) fn is_any_in_flight(&self) -> bool {
        self.registry.is_any_lent() || !self.works.is_empty() || !self.fetches.is_empty()
    }

    /// Registers memory until it is freed. `mapping`: the mapping, if this provider made it. `false`: it cannot be
    /// registered.
    pub(super) fn own<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        (place, bytes): (NonNull<u8>, usize),
        mapping: Option<SharedMapping>,
    ) -> bool {
        let rails = &mut streams.links.rails;
        let owned = self.registry.owned.own(place, bytes, mapping, rails);
        if let Err(error) = &owned {
            streams.links.warn_of_registration(error, bytes as u64);
        }
        owned.is_ok()
    }

    /// Deregisters all memory.
    pub(super) fn retire<P: VerbsPort>(&mut self, streams: &mut VerbsStreams<P>) {
        let rails = &mut streams.links.rails;
        self.registry.withdraw_all(rails);
        self.fetches.retire(rails);
        self.works.retire(rails);
        self.registry.owned.retire(rails);
    }
}
