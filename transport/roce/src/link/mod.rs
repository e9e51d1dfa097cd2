// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet and IPv4 below RoCE, for carriers that have no kernel to write their headers: frames (`frame.rs`), and the Ethernet
//! addresses of neighbours by ARP (`neighbours.rs`).
//!
//! **Knows** this end's addresses, and those of others that it has asked for.
//! **Never** answers anything but ARP for its own address: it is no host of the Internet protocol.

mod frame;
mod neighbours;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use frame::{Arp, Operation};
pub use frame::{Carried, HEAD_BYTES, Mac};
use neighbours::Neighbours;

/// This end of a link.
#[derive(Debug)]
pub struct Link {
    mac: Mac,
    address: Ipv4Addr,
    port: u16,
    route: Route,
    neighbours: Neighbours,
    /// Who asked for this end's Ethernet address and has no answer yet.
    askers: Vec<(Mac, Ipv4Addr)>,
}

/// Which addresses are on the link, and who forwards to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Bits of this end's address that all addresses on the link have in common; 0: all are on it.
    pub prefix_bits: u8,
    /// A router on the link; without one, others count as on it.
    pub gateway: Option<Ipv4Addr>,
}

impl Link {
    /// The end with these addresses, whose packets go to and come from this UDP port.
    pub fn new(mac: Mac, address: Ipv4Addr, port: u16, route: Route) -> Self {
        Self {
            mac,
            address,
            port,
            route,
            neighbours: Neighbours::default(),
            askers: Vec::new(),
        }
    }

    /// What others send to.
    pub fn local(&self) -> SocketAddr {
        (self.address, self.port).into()
    }

    /// Puts headers into the first [`HEAD_BYTES`] of `frame`, before a packet of `bytes` that stands behind them, its checksum
    /// included. Answers how long the frame is; `None`: nobody knows yet where it goes, so it is kept until that is known
    /// ([`next_kept`](Self::next_kept)), or lost if too many wait.
    pub fn wrap(
        &mut self,
        now_ns: u64,
        frame: &mut [u8],
        bytes: usize,
        to: SocketAddr,
    ) -> Option<usize> {
        let IpAddr::V4(address) = to.ip() else {
            return None;
        };
        let hop = self.next_hop(address);
        match self.neighbours.find(now_ns, hop) {
            Some(mac) => self.write(frame, bytes, mac, (address, to.port())),
            None => {
                let packet = frame.get(HEAD_BYTES..HEAD_BYTES + bytes)?;
                self.neighbours.keep(hop, packet, (address, to.port()));
                None
            }
        }
    }

    /// Writes the next frame that is due beside packets: an answer, a question, or a packet whose way has become known. Answers how
    /// long it is.
    pub fn next_kept(&mut self, now_ns: u64, frame: &mut [u8]) -> Option<usize> {
        if let Some((mac, address)) = self.askers.pop() {
            return self.arp(Operation::Reply, (mac, mac, address)).write(frame);
        }
        if let Some(asked) = self.neighbours.next_question(now_ns) {
            let everybody = (Mac::EVERYBODY, Mac::NOBODY, asked);
            return self.arp(Operation::Request, everybody).write(frame);
        }
        let (mac, packet, to) = self.neighbours.next_packet()?;
        let place = frame.get_mut(HEAD_BYTES..HEAD_BYTES + packet.len())?;
        place.copy_from_slice(&packet);
        self.write(frame, packet.len(), mac, to)
    }

    /// Whether [`next_kept`](Self::next_kept) may have something.
    pub fn has_kept(&self) -> bool {
        !self.askers.is_empty() || self.neighbours.is_asking()
    }

    /// A frame has come. Answers what it carries, if that is for this end's port.
    pub fn hear<'a>(&mut self, now_ns: u64, frame: &'a [u8]) -> Option<Carried<'a>> {
        if let Some(carried) = Carried::parse(frame, self.address, self.port) {
            return Some(carried);
        }
        if let Some(arp) = Arp::parse(frame) {
            self.hear_arp(now_ns, &arp);
        }
        None
    }

    fn hear_arp(&mut self, now_ns: u64, arp: &Arp) {
        if arp.target != self.address || arp.sender == self.address {
            return;
        }
        self.neighbours.learn(now_ns, arp.sender, arp.sender_mac);
        let is_new = !self.askers.contains(&(arp.sender_mac, arp.sender));
        if arp.operation == Operation::Request && is_new && self.askers.len() < MOST_ASKERS {
            self.askers.push((arp.sender_mac, arp.sender));
        }
    }

    fn arp(&self, operation: Operation, (to, target_mac, target): (Mac, Mac, Ipv4Addr)) -> Arp {
        Arp {
            to,
            operation,
            sender_mac: self.mac,
            sender: self.address,
            target_mac,
            target,
        }
    }

    fn write(&self, frame: &mut [u8], bytes: usize, to: Mac, at: (Ipv4Addr, u16)) -> Option<usize> {
        frame::write_head(
            frame,
            bytes,
            (self.mac, to),
            ((self.address, self.port), at),
        )
    }

    fn next_hop(&self, to: Ipv4Addr) -> Ipv4Addr {
        let bits = u32::from(self.route.prefix_bits.min(32));
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let is_near = (to.to_bits() ^ self.address.to_bits()) & mask == 0;
        match self.route.gateway {
            Some(gateway) if !is_near => gateway,
            _ => to,
        }
    }
}

/// Answers that wait to be sent; who is not among them asks again.
const MOST_ASKERS: usize = 64;

#[cfg(test)]
mod tests;
