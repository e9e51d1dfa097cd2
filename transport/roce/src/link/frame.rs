// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses and writes Ethernet frames with UDP over IP. RFC 791, 8200, 768.
//!
//! | header   | offset | bytes | field                              | sent |
//! |----------|-------:|------:|------------------------------------|--------------------------|
//! | Ethernet |      0 |     6 | destination                        | |
//! |          |      6 |     6 | source                             | |
//! |          |     12 |     2 | type                               | 0x0800 IPv4, 0x86dd IPv6 |
//! | IPv4     |      0 |     2 | version, length, TOS               | 0x45, 0x02: ECN-capable |
//! |          |      2 |     2 | total length                       | |
//! |          |      4 |     4 | id, fragments                      | 0, don't fragment |
//! |          |      8 |     4 | TTL, protocol, checksum            | 64, 17 |
//! |          |     12 |     8 | addresses                          | |
//! | IPv6     |      0 |     4 | version, traffic class, flow label | 6, 0x02, 0 |
//! |          |      4 |     2 | payload length                     | |
//! |          |      6 |     2 | next header, hop limit             | 17, 64 |
//! |          |      8 |    32 | addresses                          | |
//! | UDP      |      0 |     8 | ports, length, checksum            | checksum 0: none |
//!
//! No UDP checksum is sent, not even over IPv6: adapters do not send one, since the packet has its ICRC.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::format::NetworkHeaders;
use crate::icrc::{self, IcrcPrefix};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub(super) const BROADCAST: Self = Self([0xff; 6]);
    pub(super) const UNSPECIFIED: Self = Self([0; 6]);

    /// Whether the address is unicast.
    pub(super) fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::UNSPECIFIED
    }
}

/// Largest length in bytes of the headers in front of a packet.
pub const HEAD_BYTES_MAX: usize = ETHERNET_BYTES + IP6_BYTES + UDP_BYTES;

/// Length in bytes of the headers in front of a packet to or from this address.
pub(super) fn head_bytes(address: IpAddr) -> usize {
    let ip_bytes = match address {
        IpAddr::V4(_) => IP_BYTES,
        IpAddr::V6(_) => IP6_BYTES,
    };
    ETHERNET_BYTES + ip_bytes + UDP_BYTES
}

/// A RoCE packet that was received in an Ethernet frame for the local address and port.
#[derive(Clone, Copy, Debug)]
pub struct FramePayload<'a> {
    /// The part of the ICRC that covers the IP and UDP headers.
    pub prefix: IcrcPrefix,
    /// The packet and its ICRC.
    pub bytes: &'a [u8],
    /// Address and port of the sender.
    pub from: SocketAddr,
    /// Whether the packet is ECN-marked, that is, met congestion.
    pub is_marked: bool,
    /// Whether the IPv4 id is hidden from the carrier. If so, the id may have any value, since adapters choose it
    /// freely.
    pub is_id_unknown: bool,
}

impl<'a> FramePayload<'a> {
    /// The packet without its ICRC; `None`: the ICRC is wrong. If the IPv4 id is unknown, an ICRC that is correct for
    /// some id is accepted.
    pub fn verified(&self) -> Option<&'a [u8]> {
        match self.is_id_unknown {
            true => icrc::verify_but_id(self.prefix, self.bytes),
            false => icrc::verify(self.prefix, self.bytes),
        }
    }

    /// Parses a frame. `None`: it does not carry a packet for the local address and port.
    pub(super) fn parse(frame: &'a [u8], address: IpAddr, port: u16) -> Option<Self> {
        let (ethernet, datagram) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        let ip = match (address, [ethernet[12], ethernet[13]]) {
            (IpAddr::V4(address), IPV4) => IpHeader::four(datagram, address)?,
            (IpAddr::V6(address), IPV6) => IpHeader::six(datagram, address)?,
            _ => return None,
        };
        let (network, bytes) = NetworkHeaders::parse(datagram).ok()?;
        let udp = datagram.get(ip.bytes..)?;
        let [from_port, to_port] = [udp.first_chunk::<2>()?, udp.get(2..4)?.first_chunk::<2>()?];
        (u16::from_be_bytes(*to_port) == port).then_some(Self {
            prefix: IcrcPrefix::from(&network),
            bytes,
            from: (ip.source, u16::from_be_bytes(*from_port)).into(),
            is_marked: ip.traffic & 3 == 3,
            is_id_unknown: false,
        })
    }
}

/// The headers of packets received recently, and what was parsed from them. Most packets have the same headers as one
/// of the last few, so these are not parsed again.
#[derive(Debug, Default)]
pub(super) struct RecentHeads([Option<RecentHead>; RECENT_HEADS]);

#[derive(Clone, Copy, Debug)]
struct RecentHead {
    head: [u8; HEAD_BYTES_MAX],
    prefix: IcrcPrefix,
    from: SocketAddr,
    is_marked: bool,
    /// Length of the packet and its ICRC.
    bytes: usize,
}

impl RecentHeads {
    /// Parses a frame as [`FramePayload::parse`] does. The local address and port are the same in every call.
    #[inline(always)]
    pub(super) fn parse<'a>(
        &mut self,
        frame: &'a [u8],
        address: IpAddr,
        port: u16,
    ) -> Option<FramePayload<'a>> {
        match address {
            IpAddr::V4(_) => self.parse_behind::<HEAD4_BYTES>(frame, address, port),
            IpAddr::V6(_) => self.parse_behind::<HEAD_BYTES_MAX>(frame, address, port),
        }
    }

    #[inline(always)]
    fn parse_behind<'a, const HEAD: usize>(
        &mut self,
        frame: &'a [u8],
        address: IpAddr,
        port: u16,
    ) -> Option<FramePayload<'a>> {
        let (head, rest) = frame.split_first_chunk::<HEAD>()?;
        // The low byte of the UDP length, which is a multiple of 4.
        let recent = &mut self.0[usize::from(head[HEAD - 3] / 4) % RECENT_HEADS];
        if let Some(recent) = recent
            && recent.head.first_chunk() == Some(head)
        {
            return Some(FramePayload {
                prefix: recent.prefix,
                bytes: rest.get(..recent.bytes)?,
                from: recent.from,
                is_marked: recent.is_marked,
                is_id_unknown: false,
            });
        }
        let carried = FramePayload::parse(frame, address, port)?;
        // Headers with IP options are longer.
        if std::ptr::eq(carried.bytes.as_ptr(), rest.as_ptr()) {
            let mut whole = [0; HEAD_BYTES_MAX];
            whole[..HEAD].copy_from_slice(head);
            *recent = Some(RecentHead {
                head: whole,
                prefix: carried.prefix,
                from: carried.from,
                is_marked: carried.is_marked,
                bytes: carried.bytes.len(),
            });
        }
        Some(carried)
    }
}

/// The fields of an IP header that are needed here.
struct IpHeader {
    bytes: usize,
    source: IpAddr,
    /// TOS or traffic class.
    traffic: u8,
}

impl IpHeader {
    fn four(datagram: &[u8], address: Ipv4Addr) -> Option<Self> {
        let ip = datagram.first_chunk::<IP_BYTES>()?;
        let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & MORE_AND_OFFSET != 0;
        let is_for_here = ip[0] >> 4 == 4 && !is_fragment && ip[16..] == address.octets();
        is_for_here.then(|| Self {
            bytes: usize::from(ip[0] & 0xf) * 4,
            source: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]).into(),
            traffic: ip[1],
        })
    }

    fn six(datagram: &[u8], address: Ipv6Addr) -> Option<Self> {
        let ip = datagram.first_chunk::<IP6_BYTES>()?;
        let source = ip.get(8..)?.first_chunk::<16>()?;
        let is_for_here = ip[0] >> 4 == 6 && ip[24..] == address.octets();
        is_for_here.then(|| Self {
            bytes: IP6_BYTES,
            source: Ipv6Addr::from(*source).into(),
            traffic: ip[0] << 4 | ip[1] >> 4,
        })
    }
}

/// Writes the headers in front of a packet of `bytes` bytes, and returns the length of the frame. `None`: the headers
/// do not fit.
pub(super) fn write_head(
    frame: &mut [u8],
    bytes: usize,
    macs: (Mac, Mac),
    (source, destination): (SocketAddr, SocketAddr),
) -> Option<usize> {
    let head_bytes = head_bytes(source.ip());
    frame.get(head_bytes..head_bytes + bytes)?;
    let udp_bytes = u16::try_from(UDP_BYTES + bytes).ok()?;
    let rest = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let rest = write_ethernet(frame, macs, IPV4)?;
            write_ip4(rest, (from, to), udp_bytes)?
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let rest = write_ethernet(frame, macs, IPV6)?;
            write_ip6(rest, (from, to), (UDP, 64), udp_bytes)?
        }
        _ => return None,
    };
    let udp = rest.first_chunk_mut::<UDP_BYTES>()?;
    udp[..2].copy_from_slice(&source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    udp[6..].fill(0);
    Some(head_bytes + bytes)
}

/// Writes the Ethernet header; returns the rest of the frame.
pub(super) fn write_ethernet(
    frame: &mut [u8],
    (from, to): (Mac, Mac),
    kind: [u8; 2],
) -> Option<&mut [u8]> {
    let (ethernet, rest) = frame.split_first_chunk_mut::<ETHERNET_BYTES>()?;
    ethernet[..6].copy_from_slice(&to.0);
    ethernet[6..12].copy_from_slice(&from.0);
    ethernet[12..].copy_from_slice(&kind);
    Some(rest)
}

fn write_ip4(
    datagram: &mut [u8],
    (source, destination): (Ipv4Addr, Ipv4Addr),
    behind: u16,
) -> Option<&mut [u8]> {
    let total = behind.checked_add(u16::try_from(IP_BYTES).ok()?)?;
    let (ip, rest) = datagram.split_first_chunk_mut::<IP_BYTES>()?;
    *ip = [0; IP_BYTES];
    (ip[0], ip[1], ip[6], ip[8], ip[9]) = (0x45, MAY_BE_MARKED, 0x40, 64, UDP);
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..].copy_from_slice(&destination.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(rest)
}

/// Writes an IPv6 header. `next` is the next header and the hop limit. Only UDP is sent as ECN-capable.
pub(super) fn write_ip6(
    datagram: &mut [u8],
    (source, destination): (Ipv6Addr, Ipv6Addr),
    (next, hops): (u8, u8),
    behind: u16,
) -> Option<&mut [u8]> {
    let (ip, rest) = datagram.split_first_chunk_mut::<IP6_BYTES>()?;
    *ip = [0; IP6_BYTES];
    ip[0] = 0x60;
    ip[1] = if next == UDP { MAY_BE_MARKED << 4 } else { 0 };
    ip[4..6].copy_from_slice(&behind.to_be_bytes());
    (ip[6], ip[7]) = (next, hops);
    ip[8..24].copy_from_slice(&source.octets());
    ip[24..].copy_from_slice(&destination.octets());
    Some(rest)
}

/// The checksum of an IPv4 header whose checksum field is 0. RFC 1071.
fn checksum(header: &[u8; IP_BYTES]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

pub(super) const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
pub(super) const IP6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// Length in bytes of the headers in front of a packet over IPv4.
const HEAD4_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;
const RECENT_HEADS: usize = 4;
const IPV4: [u8; 2] = [8, 0];
pub(super) const IPV6: [u8; 2] = [0x86, 0xdd];
pub(super) const ARP: [u8; 2] = [8, 6];
const UDP: u8 = 17;
/// ECT(0), "ECN-capable". RFC 3168.
const MAY_BE_MARKED: u8 = 2;
/// Mask of the flag "more fragments" and the fragment offset.
const MORE_AND_OFFSET: u16 = 0x3fff;
