// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet and IP below RoCE, for carriers that have no kernel to write their headers: frames (`frame.rs`), and the Ethernet
//! addresses of neighbours (`neighbours.rs`) by ARP and neighbour discovery (`resolution.rs`).
//!
//! **Knows** this end's addresses, and those of others that it has asked for.
//! **Never** answers anything but who has its own address: it is no host of the Internet protocol.

mod frame;
mod neighbours;
mod resolution;

use std::net::{IpAddr, SocketAddr};

pub use frame::{FramePayload, HEAD_BYTES_MAX, Mac};
use neighbours::NeighbourTable;
use resolution::{ArpOperation, Resolution};

/// This end of an Ethernet link.
#[derive(Debug)]
pub struct EthernetLink {
    mac: Mac,
    address: IpAddr,
    port: u16,
    route: SubnetRoute,
    neighbours: NeighbourTable,
    /// Who asked for this end's Ethernet address and has no answer yet.
    askers: Vec<(Mac, IpAddr)>,
}

/// Which addresses are on the link, and the router to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubnetRoute {
    /// Bits of this end's address that all addresses on the link have in common; 0: all are on it.
    pub prefix_bits: u8,
    /// A router on the link; without one, others count as on it.
    pub gateway: Option<IpAddr>,
}

impl EthernetLink {
    /// The end with these addresses, whose packets go to and come from this UDP port.
    pub fn new(mac: Mac, address: IpAddr, port: u16, route: SubnetRoute) -> Self {
        Self {
            mac,
            address,
            port,
            route,
            neighbours: NeighbourTable::default(),
            askers: Vec::new(),
        }
    }

    /// What others send to.
    pub fn local(&self) -> SocketAddr {
        (self.address, self.port).into()
    }

    /// Bytes in front of each packet, at most [`HEAD_BYTES_MAX`].
    pub fn head_bytes(&self) -> usize {
        frame::head_bytes(self.address)
    }

    /// Puts headers into the first [`head_bytes`](Self::head_bytes) of `frame`, before a packet of `bytes` that stands behind them,
    /// its checksum included. Answers how long the frame is; `None`: nobody knows yet where it goes, so it is kept until that is
    /// known ([`next_kept`](Self::next_kept)), or lost if too many wait.
    pub fn wrap(
        &mut self,
        now_ns: u64,
        frame: &mut [u8],
        bytes: usize,
        to: SocketAddr,
    ) -> Option<usize> {
        if to.is_ipv4() != self.address.is_ipv4() {
            return None;
        }
        let hop = self.next_hop(to.ip());
        match self.neighbours.find(now_ns, hop) {
            Some(mac) => self.write(frame, bytes, mac, to),
            None => {
                let head_bytes = self.head_bytes();
                let packet = frame.get(head_bytes..head_bytes + bytes)?;
                self.neighbours.keep(hop, packet, to);
                None
            }
        }
    }

    /// The same for a packet of `bytes` of which only the beginning stands in `frame`; it is not kept. Answers how long the headers are.
    pub fn wrap_known(
        &mut self,
        now_ns: u64,
        frame: &mut [u8],
        bytes: usize,
        to: SocketAddr,
    ) -> Option<usize> {
        let hop = self.next_hop(to.ip());
        let is_near = to.is_ipv4() == self.address.is_ipv4();
        let mac = is_near.then(|| self.neighbours.find(now_ns, hop))??;
        self.write(frame, bytes, mac, to).map(|all| all - bytes)
    }

    /// Writes the next frame that is due beside packets: an answer, a question, or a packet whose way has become known. Answers how
    /// long it is.
    pub fn next_kept(&mut self, now_ns: u64, frame: &mut [u8]) -> Option<usize> {
        if let Some((mac, address)) = self.askers.pop() {
            return self.says(ArpOperation::Reply, (mac, address)).write(frame);
        }
        if let Some(asked) = self.neighbours.next_question(now_ns) {
            let question = self.says(ArpOperation::Request, (Mac::NOBODY, asked));
            return question.write(frame);
        }
        let (mac, packet, to) = self.neighbours.next_packet()?;
        let head_bytes = self.head_bytes();
        let place = frame.get_mut(head_bytes..head_bytes + packet.len())?;
        place.copy_from_slice(&packet);
        self.write(frame, packet.len(), mac, to)
    }

    /// Whether [`next_kept`](Self::next_kept) may have something.
    pub fn has_kept(&self) -> bool {
        !self.askers.is_empty() || self.neighbours.is_asking()
    }

    /// A frame has come. Answers what it carries, if that is for this end's port.
    pub fn hear<'a>(&mut self, now_ns: u64, frame: &'a [u8]) -> Option<FramePayload<'a>> {
        if let Some(carried) = FramePayload::parse(frame, self.address, self.port) {
            return Some(carried);
        }
        if let Some(said) = Resolution::parse(frame) {
            self.hear_resolution(now_ns, &said);
        }
        None
    }

    fn hear_resolution(&mut self, now_ns: u64, said: &Resolution) {
        if said.target != self.address || said.sender == self.address {
            return;
        }
        let who = (said.sender_mac, said.sender);
        self.neighbours.learn(now_ns, said.sender, said.sender_mac);
        let is_new = !self.askers.contains(&who);
        if said.operation == ArpOperation::Request && is_new && self.askers.len() < MOST_ASKERS {
            self.askers.push(who);
        }
    }

    fn says(&self, operation: ArpOperation, (target_mac, target): (Mac, IpAddr)) -> Resolution {
        Resolution {
            operation,
            sender_mac: self.mac,
            sender: self.address,
            target_mac,
            target,
        }
    }

    fn write(&self, frame: &mut [u8], bytes: usize, to: Mac, at: SocketAddr) -> Option<usize> {
        frame::write_head(frame, bytes, (self.mac, to), (self.local(), at))
    }

    fn next_hop(&self, to: IpAddr) -> IpAddr {
        match self.route.gateway {
            Some(gateway) if !is_near(self.address, to, self.route.prefix_bits) => gateway,
            _ => to,
        }
    }
}

/// Whether two addresses have their first bits in common.
pub fn is_near(one: IpAddr, other: IpAddr, prefix_bits: u8) -> bool {
    let bits = u32::from(prefix_bits);
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits.min(32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits.min(128)
        }
        _ => false,
    }
}

/// Answers that wait to be sent; who is not among them asks again.
const MOST_ASKERS: usize = 64;

#[cfg(test)]
mod tests;
