// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet and IP below RoCE, for carriers that bypass the kernel: frames (`frame.rs`), and the Ethernet addresses of
//! neighbours (`neighbours.rs`) by ARP and neighbour discovery (`resolution.rs`).
//!
//! **Knows** its own Ethernet and IP addresses, and those of neighbours that it has resolved.
//! **Never** replies to any frame except address requests for its own address: it is not a full IP host.

mod frame;
mod neighbours;
mod resolution;

use std::net::{IpAddr, SocketAddr};

use frame::RecentHeads;
pub use frame::{FramePayload, HEAD_BYTES_MAX, Mac};
use neighbours::NeighbourTable;
use resolution::{ArpOperation, Resolution};

/// The local end of an Ethernet link.
#[derive(Debug)]
pub struct EthernetLink {
    mac: Mac,
    address: IpAddr,
    port: u16,
    route: SubnetRoute,
    neighbours: NeighbourTable,
    received: RecentHeads,
    /// Neighbours that have requested the local Ethernet address and were not sent a reply yet.
    requesters: Vec<(Mac, IpAddr)>,
}

/// The local subnet, and the gateway to other subnets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubnetRoute {
    /// Prefix length of the local subnet in bits; 0: all addresses are on the link.
    pub prefix_bits: u8,
    /// A router on the link; `None`: all addresses are treated as on the link.
    pub gateway: Option<IpAddr>,
}

impl EthernetLink {
    /// A link end with these addresses. `port` is the source and the destination port of its UDP packets.
    pub fn new(mac: Mac, address: IpAddr, port: u16, route: SubnetRoute) -> Self {
        Self {
            mac,
            address,
            port,
            route,
            neighbours: NeighbourTable::default(),
            received: RecentHeads::default(),
            requesters: Vec::new(),
        }
    }

    /// The local address and port.
    pub fn local(&self) -> SocketAddr {
        (self.address, self.port).into()
    }

    /// Length in bytes of the headers in front of each packet, at most [`HEAD_BYTES_MAX`].
    pub fn head_bytes(&self) -> usize {
        frame::head_bytes(self.address)
    }

    /// Writes headers into the first [`head_bytes`](Self::head_bytes) of `frame`, in front of a packet that is already
    /// there. The packet is `bytes` long, ICRC included. Returns the length of the frame. `None`: the Ethernet address
    /// of the next hop is not resolved, so a copy of the packet is queued until it is
    /// ([`next_queued`](Self::next_queued) returns it then). If the queue is full, its oldest packet is dropped. Also
    /// `None`, without queueing: `to` has the other IP version, or the packet does not fit.
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
                self.neighbours.queue(hop, packet, to);
                None
            }
        }
    }

    /// Writes headers as [`wrap`](Self::wrap) does, in front of a packet of `bytes` bytes, only the beginning of which
    /// needs to be in `frame`. Returns the length of the headers. `None`: the next hop is not resolved, `to` has the
    /// other IP version, or the headers do not fit; the packet is not queued.
    pub fn wrap_resolved(
        &mut self,
        now_ns: u64,
        frame: &mut [u8],
        bytes: usize,
        to: SocketAddr,
    ) -> Option<usize> {
        let hop = self.next_hop(to.ip());
        let is_same_version = to.is_ipv4() == self.address.is_ipv4();
        let mac = is_same_version.then(|| self.neighbours.find(now_ns, hop))??;
        self.write(frame, bytes, mac, to).map(|all| all - bytes)
    }

    /// Writes the next queued frame: an address reply, an address request, or a packet whose next hop is resolved now.
    /// Returns the length of the frame; `None`: there is none now.
    pub fn next_queued(&mut self, now_ns: u64, frame: &mut [u8]) -> Option<usize> {
        if let Some((mac, address)) = self.requesters.pop() {
            return self
                .resolution(ArpOperation::Reply, (mac, address))
                .write(frame);
        }
        if let Some(target) = self.neighbours.next_request(now_ns) {
            let request = self.resolution(ArpOperation::Request, (Mac::UNSPECIFIED, target));
            return request.write(frame);
        }
        let (mac, packet, to) = self.neighbours.next_packet()?;
        let head_bytes = self.head_bytes();
        let place = frame.get_mut(head_bytes..head_bytes + packet.len())?;
        place.copy_from_slice(&packet);
        self.write(frame, packet.len(), mac, to)
    }

    /// Whether [`next_queued`](Self::next_queued) may return a frame.
    pub fn has_queued(&self) -> bool {
        !self.requesters.is_empty() || self.neighbours.has_work()
    }

    /// Handles a received frame. Returns the packet in it, if it has one for the local address and port.
    pub fn receive<'a>(&mut self, now_ns: u64, frame: &'a [u8]) -> Option<FramePayload<'a>> {
        let carried = self.received.parse(frame, self.address, self.port);
        if carried.is_some() {
            return carried;
        }
        if let Some(resolution) = Resolution::parse(frame) {
            self.handle_resolution(now_ns, &resolution);
        }
        None
    }

    fn handle_resolution(&mut self, now_ns: u64, resolution: &Resolution) {
        if resolution.target != self.address || resolution.sender == self.address {
            return;
        }
        let who = (resolution.sender_mac, resolution.sender);
        self.neighbours
            .record(now_ns, resolution.sender, resolution.sender_mac);
        let is_new = !self.requesters.contains(&who);
        if resolution.operation == ArpOperation::Request
            && is_new
            && self.requesters.len() < REQUESTERS_MAX
        {
            self.requesters.push(who);
        }
    }

    fn resolution(
        &self,
        operation: ArpOperation,
        (target_mac, target): (Mac, IpAddr),
    ) -> Resolution {
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
            Some(gateway) if !have_common_prefix(self.address, to, self.route.prefix_bits) => {
                gateway
            }
            _ => to,
        }
    }
}

/// Whether two addresses are of the same IP version and equal in their first `prefix_bits` bits.
pub fn have_common_prefix(one: IpAddr, other: IpAddr, prefix_bits: u8) -> bool {
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

/// Maximum number of replies that wait to be sent. Further requests are ignored; their senders repeat them.
const REQUESTERS_MAX: usize = 64;

#[cfg(test)]
mod tests;
