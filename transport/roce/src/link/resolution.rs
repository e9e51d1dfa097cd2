// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses and writes the messages of address resolution: ARP (RFC 826) for IPv4, neighbour discovery (RFC 4861) for
//! IPv6.
//!
//! | header | offset | bytes | field                             | sent |
//! |--------|-------:|------:|-----------------------------------|----------------------------------------|
//! | ARP    |      0 |     6 | hardware, protocol, their lengths | 1, 0x0800, 6, 4 |
//! |        |      6 |     2 | operation                         | 1 request, 2 reply |
//! |        |      8 |    10 | sender                            | Ethernet, IPv4 |
//! |        |     18 |    10 | target                            | Ethernet, IPv4 |
//! | ICMPv6 |      0 |     2 | type, code                        | 135 solicitation, 136 advertisement; 0 |
//! |        |      2 |     2 | checksum                          | with a pseudo-header of IPv6 |
//! |        |      4 |     4 | flags                             | 0; 0x60 solicited, override |
//! |        |      8 |    16 | target                            | the address to resolve |
//! |        |     24 |     8 | option                            | 1 source, 2 target Ethernet address |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{ARP, ETHERNET_BYTES, IP6_BYTES, IPV6, Mac, write_ethernet, write_ip6};

/// A request for an Ethernet address, or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    pub(super) operation: ArpOperation,
    pub(super) sender_mac: Mac,
    pub(super) sender: IpAddr,
    /// Ethernet destination of a reply. Not used in a request, which is broadcast or multicast.
    pub(super) target_mac: Mac,
    /// Of a request, the address to resolve; of a reply, its destination.
    pub(super) target: IpAddr,
}

/// The operation codes of ARP (RFC 826).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArpOperation {
    Request = 1,
    Reply = 2,
}

impl Resolution {
    /// Parses a frame; `None`: it is of another protocol, or malformed.
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let (ethernet, rest) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        match [ethernet[12], ethernet[13]] {
            ARP => parse_arp(rest.first_chunk()?),
            IPV6 => parse_discovery(rest),
            _ => None,
        }
    }

    /// Writes the frame and returns its length; `None`: it does not fit.
    pub(super) fn write(&self, frame: &mut [u8]) -> Option<usize> {
        match (self.sender, self.target) {
            (IpAddr::V4(sender), IpAddr::V4(target)) => self.write_arp(frame, sender, target),
            (IpAddr::V6(sender), IpAddr::V6(target)) => self.write_discovery(frame, sender, target),
            _ => None,
        }
    }

    fn write_arp(&self, frame: &mut [u8], sender: Ipv4Addr, target: Ipv4Addr) -> Option<usize> {
        let frame = frame.get_mut(..LEAST_FRAME_BYTES)?;
        frame.fill(0);
        let to = match self.operation {
            ArpOperation::Request => Mac::BROADCAST,
            ArpOperation::Reply => self.target_mac,
        };
        let rest = write_ethernet(frame, (self.sender_mac, to), ARP)?;
        let arp = rest.first_chunk_mut::<ARP_BYTES>()?;
        arp[..6].copy_from_slice(&ARP_KIND);
        arp[7] = self.operation as u8;
        arp[8..14].copy_from_slice(&self.sender_mac.0);
        arp[14..18].copy_from_slice(&sender.octets());
        arp[18..24].copy_from_slice(&self.target_mac.0);
        arp[24..].copy_from_slice(&target.octets());
        Some(LEAST_FRAME_BYTES)
    }

    fn write_discovery(
        &self,
        frame: &mut [u8],
        sender: Ipv6Addr,
        target: Ipv6Addr,
    ) -> Option<usize> {
        let (to, mac, subject) = match self.operation {
            ArpOperation::Request => (group_of(target), group_mac(target), target),
            ArpOperation::Reply => (target, self.target_mac, sender),
        };
        let rest = write_ethernet(frame, (self.sender_mac, mac), IPV6)?;
        let (kind, flags, option) = match self.operation {
            ArpOperation::Request => (SOLICITATION, 0, SOURCE_OPTION),
            ArpOperation::Reply => (ADVERTISEMENT, SOLICITED | OVERRIDE, TARGET_OPTION),
        };
        let rest = write_ip6(rest, (sender, to), (ICMP6, HOPS), DISCOVERY_LENGTH)?;
        let message = rest.first_chunk_mut::<DISCOVERY_BYTES>()?;
        *message = [0; DISCOVERY_BYTES];
        (message[0], message[4]) = (kind, flags);
        message[8..24].copy_from_slice(&subject.octets());
        (message[24], message[25]) = (option, 1);
        message[26..].copy_from_slice(&self.sender_mac.0);
        let sum = checksum(sender, to, message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        Some(ETHERNET_BYTES + IP6_BYTES + DISCOVERY_BYTES)
    }
}

fn parse_arp(arp: &[u8; ARP_BYTES]) -> Option<Resolution> {
    if arp[..6] != ARP_KIND {
        return None;
    }
    let operation = match [arp[6], arp[7]] {
        [0, 1] => ArpOperation::Request,
        [0, 2] => ArpOperation::Reply,
        _ => return None,
    };
    let mac = |at: usize| Some(Mac(*arp.get(at..)?.first_chunk()?));
    let address = |at: usize| Some(Ipv4Addr::from(*arp.get(at..)?.first_chunk::<4>()?));
    Some(Resolution {
        operation,
        sender_mac: mac(8).filter(|mac| mac.is_unicast())?,
        sender: address(14)?.into(),
        target_mac: mac(18)?,
        target: address(24)?.into(),
    })
}

/// Parses a solicitation or an advertisement. `None`: it is not valid by RFC 4861, sections 7.1.1 and 7.1.2, or
/// contains no Ethernet address.
fn parse_discovery(datagram: &[u8]) -> Option<Resolution> {
    let (ip, rest) = datagram.split_first_chunk::<IP6_BYTES>()?;
    let length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let message = rest.get(..length)?;
    let address = |at: usize| Some(Ipv6Addr::from(*ip.get(at..)?.first_chunk::<16>()?));
    let (source, destination) = (address(8)?, address(24)?);
    if ip[0] >> 4 != 6
        || ip[6] != ICMP6
        || ip[7] != HOPS
        || checksum(source, destination, message) != 0
    {
        return None;
    }
    let (head, options) = message.split_first_chunk::<24>()?;
    let subject = Ipv6Addr::from(*head.last_chunk::<16>()?);
    let (operation, wanted) = match head[..2] {
        [SOLICITATION, 0] => (ArpOperation::Request, SOURCE_OPTION),
        [ADVERTISEMENT, 0] => (ArpOperation::Reply, TARGET_OPTION),
        _ => return None,
    };
    let (sender, target) = match operation {
        ArpOperation::Request => (source, subject),
        ArpOperation::Reply => (subject, destination),
    };
    if sender.is_unspecified() || sender.is_multicast() || subject.is_multicast() {
        return None;
    }
    Some(Resolution {
        operation,
        sender_mac: option(options, wanted).filter(|mac| mac.is_unicast())?,
        sender: sender.into(),
        target_mac: Mac::UNSPECIFIED,
        target: target.into(),
    })
}

/// The Ethernet address in the first option of type `wanted`.
fn option(mut options: &[u8], wanted: u8) -> Option<Mac> {
    loop {
        let [kind, eights, ..] = *options else {
            return None;
        };
        if eights == 0 {
            return None;
        }
        let (option, rest) = options.split_at_checked(usize::from(eights) * 8)?;
        if kind == wanted {
            return Some(Mac(*option.get(2..)?.first_chunk()?));
        }
        options = rest;
    }
}

/// The solicited-node multicast group of an address. RFC 4291 section 2.7.1.
fn group_of(address: Ipv6Addr) -> Ipv6Addr {
    let [.., one, two, three] = address.octets();
    let mut group = [0; 16];
    (group[0], group[1], group[11], group[12]) = (0xff, 2, 1, 0xff);
    (group[13], group[14], group[15]) = (one, two, three);
    group.into()
}

/// The Ethernet address of a multicast group. RFC 2464 section 7.
fn group_mac(address: Ipv6Addr) -> Mac {
    let [.., one, two, three] = address.octets();
    Mac([0x33, 0x33, 0xff, one, two, three])
}

/// The checksum of an ICMPv6 message whose checksum field is 0. If the message already has its correct checksum, the
/// result is 0. RFC 4443 section 2.3.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u64 {
        let pairs = bytes.chunks(2);
        let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        pairs.map(|pair| u64::from(word(pair))).sum()
    };
    let addresses = words(&source.octets()) + words(&destination.octets());
    let mut sum = addresses + message.len() as u64 + u64::from(ICMP6) + words(message);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

const ARP_BYTES: usize = 28;
/// Shorter frames are padded to this length, which excludes the frame check sequence.
const LEAST_FRAME_BYTES: usize = 60;
/// The first fields of an ARP message: Ethernet, IPv4, and the lengths of their addresses.
const ARP_KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Length of a solicitation or an advertisement with one option.
const DISCOVERY_BYTES: usize = 32;
const DISCOVERY_LENGTH: u16 = 32;
const ICMP6: u8 = 58;
/// The hop limit of a message of neighbour discovery: a received 255 shows that no router has forwarded it.
const HOPS: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;
