// SPDX-License-Identifier: MIT OR Apache-2.0
//! Netlink messages about links, addresses and routes (`netlink(7)`, `rtnetlink(7)`).
//!
//! A message is a header of 16 bytes (length, type, flags, sequence number, port id, all in host byte order), a body
//! that depends on the type, and attributes (length, type, value), each padded to four bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{HostInterface, HostRoute};

/// Message types of requests.
pub(super) const LINKS: u16 = 18;
pub(super) const ADDRESSES: u16 = 22;

/// A dump request for `LINKS` or `ADDRESSES`.
pub(super) fn dump_request(kind: u16) -> Vec<u8> {
    const DUMP: u16 = 0x300;
    // Address family 0 requests all families. The other bytes are zeros; the body has the length of the longer of the
    // two kinds of request.
    message(kind, DUMP, &[0; 16])
}

/// A request for the route to an address.
pub(super) fn route_request(to: IpAddr) -> Vec<u8> {
    const ROUTE: u16 = 26;
    let (family, address) = match to {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let bits = u8::try_from(8 * address.len()).unwrap_or(0);
    let mut body = vec![family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let length = u16::try_from(4 + address.len()).unwrap_or(0);
    body.extend(length.to_ne_bytes());
    body.extend(RTA_DST.to_ne_bytes());
    body.extend(address);
    message(ROUTE, 0, &body)
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    const REQUEST: u16 = 1;
    let length = u32::try_from(HEAD_BYTES + body.len()).unwrap_or(0);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | flags).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// A message of the kernel's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NetlinkReply {
    Link {
        index: u32,
        name: String,
        is_up: bool,
    },
    Address {
        index: u32,
        address: IpAddr,
    },
    Route(HostRoute),
    /// End of a dump.
    End,
    /// The errno of an error message.
    Error(i32),
}

/// Parses the messages of one read. Messages of other types and malformed ones are skipped.
pub(super) fn answers(mut bytes: &[u8]) -> Vec<NetlinkReply> {
    let mut found = Vec::new();
    while let Some(length) = word(bytes, 0).map(|length| length as usize) {
        let Some(message) = bytes.get(..length).filter(|_| length >= HEAD_BYTES) else {
            break;
        };
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        found.extend(answer(kind, &message[HEAD_BYTES..]));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    found
}

fn answer(kind: u16, body: &[u8]) -> Option<NetlinkReply> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    const NEW_LINK: u16 = 16;
    const NEW_ADDRESS: u16 = 20;
    const NEW_ROUTE: u16 = 24;
    match kind {
        ERROR => Some(NetlinkReply::Error(
            word(body, 0)?.cast_signed().wrapping_neg(),
        )),
        DONE => Some(NetlinkReply::End),
        NEW_LINK => link(body),
        NEW_ADDRESS => address(body),
        NEW_ROUTE => route(body),
        _ => None,
    }
}

/// Parses a message about a link. Body: family, type (two bytes each), index, flags, change.
fn link(body: &[u8]) -> Option<NetlinkReply> {
    const NAME: u16 = 3;
    // Administratively up, and with a carrier.
    const UP_AND_RUNNING: u32 = 0x1 | 0x40;
    let name = value(body.get(16..)?, NAME)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    Some(NetlinkReply::Link {
        index: word(body, 4)?,
        name: String::from_utf8_lossy(name).into_owned(),
        is_up: word(body, 8)? & UP_AND_RUNNING == UP_AND_RUNNING,
    })
}

/// Parses a message about an address. Body: family, prefix length, flags, scope (a byte each), link index.
fn address(body: &[u8]) -> Option<NetlinkReply> {
    const ADDRESS: u16 = 1;
    // On point-to-point links, `IFA_ADDRESS` is the remote end, so `IFA_LOCAL` is preferred.
    const LOCAL: u16 = 2;
    let attributes = body.get(8..)?;
    let raw = value(attributes, LOCAL).or_else(|| value(attributes, ADDRESS))?;
    let address = match body[0] {
        AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(raw).ok()?)),
        AF_INET6 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(raw).ok()?)),
        _ => return None,
    };
    Some(NetlinkReply::Address {
        index: word(body, 4)?,
        address,
    })
}

/// Parses a message about a route. Body: family, both prefix lengths, type of service, table, protocol, scope, type (a
/// byte each), flags.
fn route(body: &[u8]) -> Option<NetlinkReply> {
    const INTERFACE: u16 = 4;
    const UNICAST: u8 = 1;
    const LOCAL: u8 = 2;
    let route = match *body.get(7)? {
        UNICAST => HostRoute::Through(word(value(body.get(12..)?, INTERFACE)?, 0)?),
        LOCAL => HostRoute::Here,
        _ => HostRoute::Nowhere,
    };
    Some(NetlinkReply::Route(route))
}

/// The value of the first attribute of type `kind`.
fn value(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let head = attributes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([head[2], head[3]]) == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// The interfaces in the replies, each with its addresses.
pub(super) fn interfaces(links: &[NetlinkReply], addresses: &[NetlinkReply]) -> Vec<HostInterface> {
    let of = |wanted: u32| {
        let mine = move |answer: &NetlinkReply| match answer {
            NetlinkReply::Address { index, address } if *index == wanted => Some(*address),
            _ => None,
        };
        addresses.iter().filter_map(mine).collect()
    };
    let interface = |answer: &NetlinkReply| match answer {
        NetlinkReply::Link { index, name, is_up } => Some(HostInterface {
            index: *index,
            name: name.clone(),
            is_up: *is_up,
            addresses: of(*index),
        }),
        _ => None,
    };
    links.iter().filter_map(interface).collect()
}

const HEAD_BYTES: usize = 16;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTA_DST: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute, padded.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn reply_message(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
        message(kind, 0, &parts.concat())
    }

    fn link_message(index: u32, flags: u32, name: &[u8]) -> Vec<u8> {
        reply_message(
            16,
            &[
                &[0; 4],
                &index.to_ne_bytes(),
                &flags.to_ne_bytes(),
                &[0; 4],
                &attribute(13, &[7, 0, 0]),
                &attribute(3, name),
            ],
        )
    }

    #[test]
    fn netlink_links_are_read_with_their_addresses() {
        let mut bytes = link_message(1, 0x49, b"lo\0");
        bytes.extend(link_message(2, 0x1, b"eth0\0"));
        let head =
            |family: u8, index: u32| [&[family, 24, 0, 0], &index.to_ne_bytes()[..]].concat();
        let mut more = reply_message(
            20,
            &[
                &head(2, 2),
                &attribute(1, &[10, 0, 0, 9]),
                &attribute(2, &[10, 0, 0, 1]),
            ],
        );
        more.extend(reply_message(20, &[&head(10, 2), &attribute(1, &[1; 16])]));
        more.extend(reply_message(
            20,
            &[&head(2, 1), &attribute(2, &[127, 0, 0, 1])],
        ));
        more.extend(reply_message(3, &[&[0; 4]]));
        assert_eq!(answers(&more).last(), Some(&NetlinkReply::End));
        let found = interfaces(&answers(&bytes), &answers(&more));
        let names: Vec<_> = found.iter().map(|one| (&*one.name, one.is_up)).collect();
        assert_eq!(names, [("lo", true), ("eth0", false)]);
        assert_eq!(found[0].addresses, [IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(
            found[1].addresses,
            [IpAddr::from([10, 0, 0, 1]), IpAddr::from([1u8; 16])]
        );
    }

    #[test]
    fn netlink_routes_are_through_an_interface_local_or_unreachable() {
        let route = |kind: u8| {
            let body = [2, 32, 0, 0, 254, 0, 0, kind, 0, 0, 0, 0];
            let attributes = [
                attribute(1, &[10, 0, 0, 1]),
                attribute(4, &7u32.to_ne_bytes()),
            ];
            answers(&reply_message(24, &[&body, &attributes.concat()]))
        };
        assert_eq!(route(1), [NetlinkReply::Route(HostRoute::Through(7))]);
        assert_eq!(route(2), [NetlinkReply::Route(HostRoute::Here)]);
        assert_eq!(route(7), [NetlinkReply::Route(HostRoute::Nowhere)]);
        let refused = reply_message(2, &[&(-101i32).to_ne_bytes(), &[0; 16]]);
        assert_eq!(answers(&refused), [NetlinkReply::Error(101)]);
    }

    #[test]
    fn netlink_requests_contain_their_length() {
        for message in [
            dump_request(LINKS),
            route_request([10, 0, 0, 1].into()),
            route_request([1u8; 16].into()),
        ] {
            assert_eq!(
                word(&message, 0).map(|reply_message| reply_message as usize),
                Some(message.len())
            );
        }
        let message = route_request([10, 0, 0, 1].into());
        assert_eq!(message[16..18], [2, 32]);
        assert_eq!(value(&message[28..], RTA_DST), Some(&[10, 0, 0, 1][..]));
    }

    #[test]
    fn invalid_netlink_bytes_give_no_replies() {
        let good = link_message(1, 0x41, b"eth0\0");
        for length in 0..good.len() {
            assert_eq!(answers(&good[..length]), [], "{length} bytes");
        }
        for at in 0..good.len() {
            for wrong in [0, 1, 0xff] {
                let mut bad = good.clone();
                bad[at] = wrong;
                assert!(answers(&bad).len() <= 1);
            }
        }
    }
}
