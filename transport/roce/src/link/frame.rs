// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of Ethernet: with ARP, or with UDP over IPv4. RFC 826, 791, 768.
//!
//! | header   | offset | bytes | field                | sent                           |
//! |----------|-------:|------:|----------------------|--------------------------------|
//! | Ethernet |      0 |     6 | destination          |                                |
//! |          |      6 |     6 | source               |                                |
//! |          |     12 |     2 | type                 | 0x0800 IPv4, 0x0806 ARP        |
//! | ARP      |      0 |     6 | hardware, protocol, their lengths | 1, 0x0800, 6, 4   |
//! |          |      6 |     2 | operation            | 1 request, 2 reply             |
//! |          |      8 |    10 | sender               | Ethernet, IPv4                 |
//! |          |     18 |    10 | target               | Ethernet, IPv4                 |
//! | IPv4     |      0 |     2 | version, length, TOS | 0x45, 0x02: may be marked (ECN) |
//! |          |      2 |     2 | total length         |                                |
//! |          |      4 |     4 | id, fragments        | 0, don't fragment              |
//! |          |      8 |     4 | TTL, protocol, checksum | 64, 17                      |
//! |          |     12 |     8 | addresses            |                                |
//! | UDP      |      0 |     8 | ports, length, checksum | checksum 0: none            |

use std::net::{Ipv4Addr, SocketAddr};

use crate::format::Network;

/// An address on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub(super) const EVERYBODY: Self = Self([0xff; 6]);
    pub(super) const NOBODY: Self = Self([0; 6]);

    /// Whether it is that of one station.
    pub(super) fn is_one(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::NOBODY
    }
}

/// Bytes in front of a packet.
pub const HEAD_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;

/// What a frame carries for an address and port: a packet and its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// The headers in front, as the checksum takes them.
    pub network: Network,
    /// The packet and its checksum.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub from: SocketAddr,
    /// It met congestion (ECN).
    pub is_marked: bool,
}

impl<'a> Carried<'a> {
    /// `None`: the frame carries something else, or something for others.
    pub(super) fn parse(frame: &'a [u8], address: Ipv4Addr, port: u16) -> Option<Self> {
        let (ethernet, datagram) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        if ethernet[12..] != IPV4 {
            return None;
        }
        let ip = datagram.first_chunk::<IP_BYTES>()?;
        let [_, tos, _, _, _, _, fragments @ ..] = *ip;
        let is_fragment = u16::from_be_bytes([fragments[0], fragments[1]]) & MORE_AND_OFFSET != 0;
        if ip[0] >> 4 != 4 || is_fragment || ip[16..] != address.octets() {
            return None;
        }
        let (network, bytes) = Network::parse(datagram).ok()?;
        let udp = datagram.get(usize::from(ip[0] & 0xf) * 4..)?;
        let [from_port, to_port] = [udp.first_chunk::<2>()?, udp.get(2..4)?.first_chunk::<2>()?];
        let source = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
        (u16::from_be_bytes(*to_port) == port).then_some(Self {
            network,
            bytes,
            from: (source, u16::from_be_bytes(*from_port)).into(),
            is_marked: tos & 3 == 3,
        })
    }
}

/// Writes the headers of a packet of `bytes` behind them; answers how long the frame is, or `None` if that does not fit.
pub(super) fn write_head(
    frame: &mut [u8],
    bytes: usize,
    (from, to): (Mac, Mac),
    (source, destination): ((Ipv4Addr, u16), (Ipv4Addr, u16)),
) -> Option<usize> {
    let udp_bytes = u16::try_from(UDP_BYTES + bytes).ok()?;
    let ip_bytes = u16::try_from(IP_BYTES + UDP_BYTES + bytes).ok()?;
    frame.get(HEAD_BYTES..HEAD_BYTES + bytes)?;
    let (ethernet, rest) = frame.split_first_chunk_mut::<ETHERNET_BYTES>()?;
    ethernet[..6].copy_from_slice(&to.0);
    ethernet[6..12].copy_from_slice(&from.0);
    ethernet[12..].copy_from_slice(&IPV4);
    let (ip, rest) = rest.split_first_chunk_mut::<IP_BYTES>()?;
    *ip = [
        0x45,
        MAY_BE_MARKED,
        0,
        0,
        0,
        0,
        0x40,
        0,
        64,
        UDP,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    ip[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    ip[12..16].copy_from_slice(&source.0.octets());
    ip[16..].copy_from_slice(&destination.0.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = rest.first_chunk_mut::<UDP_BYTES>()?;
    udp[..2].copy_from_slice(&source.1.to_be_bytes());
    udp[2..4].copy_from_slice(&destination.1.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    udp[6..].fill(0);
    Some(HEAD_BYTES + bytes)
}

/// The checksum of an IPv4 header in which that is 0. RFC 1071.
fn checksum(header: &[u8; IP_BYTES]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

/// What somebody asks or answers about Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arp {
    /// The frame's destination.
    pub(super) to: Mac,
    pub(super) operation: Operation,
    pub(super) sender_mac: Mac,
    pub(super) sender: Ipv4Addr,
    pub(super) target_mac: Mac,
    pub(super) target: Ipv4Addr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Request = 1,
    Reply = 2,
}

impl Arp {
    /// `None`: it is something else.
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let (ethernet, rest) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        let arp = rest.first_chunk::<ARP_BYTES>()?;
        if ethernet[12..] != ARP || arp[..6] != ARP_KIND {
            return None;
        }
        let operation = match [arp[6], arp[7]] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return None,
        };
        let mac = |at: usize| Some(Mac(*arp.get(at..)?.first_chunk()?));
        let address = |at: usize| Some(Ipv4Addr::from(*arp.get(at..)?.first_chunk::<4>()?));
        Some(Self {
            to: Mac(*ethernet.first_chunk()?),
            operation,
            sender_mac: mac(8).filter(|mac| mac.is_one())?,
            sender: address(14)?,
            target_mac: mac(18)?,
            target: address(24)?,
        })
    }

    /// Answers how long the frame is.
    pub(super) fn write(&self, frame: &mut [u8]) -> Option<usize> {
        let frame = frame.get_mut(..LEAST_FRAME_BYTES)?;
        frame.fill(0);
        let (ethernet, rest) = frame.split_first_chunk_mut::<ETHERNET_BYTES>()?;
        ethernet[..6].copy_from_slice(&self.to.0);
        ethernet[6..12].copy_from_slice(&self.sender_mac.0);
        ethernet[12..].copy_from_slice(&ARP);
        let arp = rest.first_chunk_mut::<ARP_BYTES>()?;
        arp[..6].copy_from_slice(&ARP_KIND);
        arp[7] = self.operation as u8;
        arp[8..14].copy_from_slice(&self.sender_mac.0);
        arp[14..18].copy_from_slice(&self.sender.octets());
        arp[18..24].copy_from_slice(&self.target_mac.0);
        arp[24..].copy_from_slice(&self.target.octets());
        Some(LEAST_FRAME_BYTES)
    }
}

const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ARP_BYTES: usize = 28;
/// Shorter frames are filled up, without their checksum.
const LEAST_FRAME_BYTES: usize = 60;
const IPV4: [u8; 2] = [8, 0];
const ARP: [u8; 2] = [8, 6];
/// Ethernet and IPv4, and the lengths of their addresses.
const ARP_KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const UDP: u8 = 17;
/// ECT(0), RFC 3168.
const MAY_BE_MARKED: u8 = 2;
/// Flag "more fragments", and where a fragment lies.
const MORE_AND_OFFSET: u16 = 0x3fff;
