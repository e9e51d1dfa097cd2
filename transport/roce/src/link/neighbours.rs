// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Ethernet addresses of neighbours, and packets that wait for one.
//!
//! Only those to whom something goes are kept, so nobody else can fill the table. One is asked for after a minute again, while its old
//! address serves on.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::frame::Mac;

#[derive(Debug, Default)]
pub(super) struct NeighbourTable {
    known: Vec<Neighbour>,
    /// The place of the last one that was found: most packets go where the last one went.
    last: usize,
    waiting: VecDeque<UnresolvedPacket>,
    /// Some of `known` are asked for.
    asking: usize,
}

#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    mac: Option<Mac>,
    learned_ns: u64,
    /// When it is asked for next, if it is.
    ask_at_ns: Option<u64>,
    tries: u32,
}

#[derive(Debug)]
struct UnresolvedPacket {
    hop: IpAddr,
    packet: Vec<u8>,
    to: SocketAddr,
}

impl NeighbourTable {
    /// The address of one, if it is known. Else it is asked for.
    pub(super) fn find(&mut self, now_ns: u64, address: IpAddr) -> Option<Mac> {
        let is_last = self
            .known
            .get(self.last)
            .is_some_and(|it| it.address == address);
        if !is_last {
            let place = self.known.iter().position(|it| it.address == address);
            self.last = place.unwrap_or_else(|| self.add(now_ns, address));
        }
        let neighbour = self.known.get_mut(self.last)?;
        let is_old = now_ns.saturating_sub(neighbour.learned_ns) > OLD_NS;
        if neighbour.ask_at_ns.is_none() && (neighbour.mac.is_none() || is_old) {
            (neighbour.ask_at_ns, neighbour.tries) = (Some(now_ns), 0);
            self.asking += 1;
        }
        neighbour.mac
    }

    fn add(&mut self, now_ns: u64, address: IpAddr) -> usize {
        self.known.push(Neighbour {
            address,
            mac: None,
            learned_ns: now_ns,
            ask_at_ns: None,
            tries: 0,
        });
        self.known.len() - 1
    }

    /// Keeps a packet until its way is known.
    pub(super) fn keep(&mut self, hop: IpAddr, packet: &[u8], to: SocketAddr) {
        if self.waiting.len() == MOST_WAITING {
            self.waiting.pop_front();
        }
        let packet = packet.to_vec();
        self.waiting.push_back(UnresolvedPacket { hop, packet, to });
    }

    /// Who is to be asked for now.
    pub(super) fn next_question(&mut self, now_ns: u64) -> Option<IpAddr> {
        if self.asking == 0 {
            return None;
        }
        let is_due = |it: &&mut Neighbour| it.ask_at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let asked = self.known.iter_mut().find(is_due)?;
        asked.tries += 1;
        let address = asked.address;
        if asked.tries < MOST_TRIES {
            asked.ask_at_ns = Some(now_ns + (FIRST_PAUSE_NS << (asked.tries - 1).min(4)));
        } else {
            // Whatever goes there next asks anew.
            (asked.ask_at_ns, asked.learned_ns) = (None, now_ns);
            self.asking -= 1;
            self.waiting.retain(|it| it.hop != address);
        }
        Some(address)
    }

    /// Somebody says its address.
    pub(super) fn learn(&mut self, now_ns: u64, address: IpAddr, mac: Mac) {
        let known = self.known.iter_mut().find(|it| it.address == address);
        if let Some(known) = known {
            (known.mac, known.learned_ns) = (Some(mac), now_ns);
            if known.ask_at_ns.take().is_some() {
                self.asking -= 1;
            }
        }
    }

    /// A packet that waited and can go.
    pub(super) fn next_packet(&mut self) -> Option<(Mac, Vec<u8>, SocketAddr)> {
        let known = &self.known;
        let mac_of = |hop| known.iter().find(|it| it.address == hop)?.mac;
        let place = self
            .waiting
            .iter()
            .position(|it| mac_of(it.hop).is_some())?;
        let UnresolvedPacket { hop, packet, to } = self.waiting.remove(place)?;
        Some((mac_of(hop)?, packet, to))
    }

    /// Whether somebody is asked for, or a packet waits.
    pub(super) fn is_asking(&self) -> bool {
        self.asking != 0 || !self.waiting.is_empty()
    }
}

/// An address that was learned so long ago is asked for again.
const OLD_NS: u64 = 60_000_000_000;
/// Until one is asked for again; then twice as long, up to 16 times.
const FIRST_PAUSE_NS: u64 = 50_000_000;
const MOST_TRIES: u32 = 8;
/// Packets that wait for addresses.
const MOST_WAITING: usize = 128;
