// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the Ethernet addresses of neighbours, and the queue of packets whose next hop is not resolved.
//!
//! Only next hops of sent packets have entries, so other hosts cannot fill the table. An entry that is used and older
//! than a minute is resolved again; its old address stays in use meanwhile.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::frame::Mac;

/// The neighbour table: Ethernet addresses by IP address, and the packets that wait for a resolution.
#[derive(Debug, Default)]
pub(super) struct NeighbourTable {
    entries: Vec<Neighbour>,
    /// Index of the entry that was found last: most packets go to the same neighbour.
    last: usize,
    waiting: VecDeque<UnresolvedPacket>,
    /// Number of entries being resolved.
    resolving: usize,
}

/// An entry of the neighbour table. `tries`: requests sent since the resolution has begun.
#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    mac: Option<Mac>,
    resolved_ns: u64,
    /// When the next request is due; `None`: the entry is not being resolved.
    request_at_ns: Option<u64>,
    tries: u32,
}

/// A packet to `to` that waits until the Ethernet address of its next hop is resolved.
#[derive(Debug)]
struct UnresolvedPacket {
    hop: IpAddr,
    packet: Vec<u8>,
    to: SocketAddr,
}

impl NeighbourTable {
    /// The Ethernet address of a neighbour; `None`: it is not resolved. If there is no address, or it is too old,
    /// resolution starts.
    pub(super) fn find(&mut self, now_ns: u64, address: IpAddr) -> Option<Mac> {
        let is_last = self
            .entries
            .get(self.last)
            .is_some_and(|it| it.address == address);
        if !is_last {
            let place = self.entries.iter().position(|it| it.address == address);
            self.last = place.unwrap_or_else(|| self.add(now_ns, address));
        }
        let neighbour = self.entries.get_mut(self.last)?;
        let is_stale = now_ns.saturating_sub(neighbour.resolved_ns) > STALE_NS;
        if neighbour.request_at_ns.is_none() && (neighbour.mac.is_none() || is_stale) {
            (neighbour.request_at_ns, neighbour.tries) = (Some(now_ns), 0);
            self.resolving += 1;
        }
        neighbour.mac
    }

    fn add(&mut self, now_ns: u64, address: IpAddr) -> usize {
        self.entries.push(Neighbour {
            address,
            mac: None,
            resolved_ns: now_ns,
            request_at_ns: None,
            tries: 0,
        });
        self.entries.len() - 1
    }

    /// Queues a packet until its next hop is resolved. If the queue is full, its oldest packet is dropped.
    pub(super) fn queue(&mut self, hop: IpAddr, packet: &[u8], to: SocketAddr) {
        if self.waiting.len() == QUEUED_PACKETS_MAX {
            self.waiting.pop_front();
        }
        let packet = packet.to_vec();
        self.waiting.push_back(UnresolvedPacket { hop, packet, to });
    }

    /// Returns the next address for which a request is due, and counts the request. The last request for an address
    /// ends the resolution of that address, and drops the packets that wait for it.
    pub(super) fn next_request(&mut self, now_ns: u64) -> Option<IpAddr> {
        if self.resolving == 0 {
            return None;
        }
        let is_due = |it: &&mut Neighbour| it.request_at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let entry = self.entries.iter_mut().find(is_due)?;
        entry.tries += 1;
        let address = entry.address;
        if entry.tries < REQUESTS_MAX {
            entry.request_at_ns = Some(now_ns + (FIRST_DELAY_NS << (entry.tries - 1).min(4)));
        } else {
            // The next packet to this neighbour starts resolution again. But if the neighbour has an old Ethernet
            // address, the old address stays in use for another minute.
            (entry.request_at_ns, entry.resolved_ns) = (None, now_ns);
            self.resolving -= 1;
            self.waiting.retain(|it| it.hop != address);
        }
        Some(address)
    }

    /// Records a neighbour's Ethernet address, if the neighbour has an entry.
    pub(super) fn record(&mut self, now_ns: u64, address: IpAddr, mac: Mac) {
        let entry = self.entries.iter_mut().find(|it| it.address == address);
        if let Some(entry) = entry {
            (entry.mac, entry.resolved_ns) = (Some(mac), now_ns);
            if entry.request_at_ns.take().is_some() {
                self.resolving -= 1;
            }
        }
    }

    /// Takes a queued packet whose next hop is resolved: the Ethernet address of the next hop, the packet, and its
    /// destination.
    pub(super) fn next_packet(&mut self) -> Option<(Mac, Vec<u8>, SocketAddr)> {
        let entries = &self.entries;
        let mac_of = |hop| entries.iter().find(|it| it.address == hop)?.mac;
        let place = self
            .waiting
            .iter()
            .position(|it| mac_of(it.hop).is_some())?;
        let UnresolvedPacket { hop, packet, to } = self.waiting.remove(place)?;
        Some((mac_of(hop)?, packet, to))
    }

    /// Whether an address is being resolved or a packet is queued.
    pub(super) fn has_work(&self) -> bool {
        self.resolving != 0 || !self.waiting.is_empty()
    }
}

/// An entry that is older than this, in nanoseconds, is resolved again when it is used.
const STALE_NS: u64 = 60_000_000_000;
/// Delay of the second request. The delay doubles with each further request, up to 16 times this value.
const FIRST_DELAY_NS: u64 = 50_000_000;
const REQUESTS_MAX: u32 = 8;
/// Maximum number of packets that wait for Ethernet addresses.
const QUEUED_PACKETS_MAX: usize = 128;
