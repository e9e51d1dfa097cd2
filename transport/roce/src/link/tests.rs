// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of two ends of a link, and of frames from other senders.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::format::NetworkHeaders;
use crate::icrc::IcrcPrefix;

const NEAR: SubnetRoute = SubnetRoute {
    prefix_bits: 0,
    gateway: None,
};

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn end(last: u8) -> EthernetLink {
    EthernetLink::new(mac(last), Ipv4Addr::new(10, 0, 0, last).into(), 4791, NEAR)
}

/// The frame of a packet with these bytes; `None`: the packet is queued.
fn wrap(link: &mut EthernetLink, now_ns: u64, packet: &[u8], to: &str) -> Option<Vec<u8>> {
    let mut frame = [0xee; 200];
    let head_bytes = link.head_bytes();
    frame[head_bytes..head_bytes + packet.len()].copy_from_slice(packet);
    let bytes = link.wrap(now_ns, &mut frame, packet.len(), to.parse().unwrap())?;
    Some(frame[..bytes].to_vec())
}

fn kept(link: &mut EthernetLink, now_ns: u64) -> Option<Vec<u8>> {
    let mut frame = [0xee; 200];
    let bytes = link.next_queued(now_ns, &mut frame)?;
    Some(frame[..bytes].to_vec())
}

#[test]
fn first_packet_waits_for_arp_resolution() {
    let (mut here, mut there) = (end(1), end(2));
    assert_eq!(wrap(&mut here, 0, b"first", "10.0.0.2:4791"), None);
    assert!(here.has_queued());
    let request = kept(&mut here, 0).unwrap();
    assert_eq!(request[..6], [0xff; 6]);
    assert_eq!(kept(&mut here, 0), None);
    assert!(there.receive(0, &request).is_none());
    let answer = kept(&mut there, 0).unwrap();
    assert_eq!((&answer[..6], answer.len()), (&mac(1).0[..], 60));
    assert!(here.receive(0, &answer).is_none());
    let first = kept(&mut here, 0).unwrap();
    assert!(!here.has_queued());
    let second = wrap(&mut here, 0, b"second", "10.0.0.2:4791").unwrap();
    for (frame, packet) in [(&first, &b"first"[..]), (&second, b"second")] {
        let carried = there.receive(0, frame).unwrap();
        assert_eq!((carried.bytes, carried.from), (packet, here.local()));
        assert!(!carried.is_marked);
        let assumed = NetworkHeaders::assumed(
            here.local(),
            there.local(),
            u16::try_from(packet.len() - 4).unwrap(),
        );
        assert_eq!(carried.prefix, IcrcPrefix::from(&assumed.unwrap()));
    }
    assert!(has_right_checksum(&first) && has_right_checksum(&second));
}

/// RFC 791: the one's complement sum of an IPv4 header, checksum included, is all ones.
fn has_right_checksum(frame: &[u8]) -> bool {
    let words = frame[14..34]
        .chunks(2)
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Two ends with these addresses, each with the Ethernet address of the other.
fn met(addresses: [IpAddr; 2]) -> [EthernetLink; 2] {
    let [mut here, mut there] = [1, 2]
        .map(|last| EthernetLink::new(mac(last), addresses[usize::from(last) - 1], 4791, NEAR));
    let to = there.local().to_string();
    assert_eq!(wrap(&mut here, 0, b"x", &to), None);
    let request = kept(&mut here, 0).unwrap();
    assert!(there.receive(0, &request).is_none());
    let reply = kept(&mut there, 0).unwrap();
    assert!(here.receive(0, &reply).is_none());
    while kept(&mut here, 0).is_some() {}
    [here, there]
}

#[test]
fn headers_are_right_for_every_length_and_receiver() {
    for addresses in [["10.0.0.1", "10.255.3.2"], ["fe80::1", "fe80::2"]] {
        let addresses = addresses.map(|it| it.parse().unwrap());
        let [mut here, mut there] = met(addresses);
        let to = there.local();
        for bytes in (16..4000).chain([16, 4000, 20]) {
            let mut frame = vec![0; bytes + here.head_bytes()];
            let whole = here.wrap(0, &mut frame, bytes, to).unwrap();
            assert_eq!(whole, frame.len());
            assert!(to.is_ipv6() || has_right_checksum(&frame), "{bytes} bytes");
            let carried = there.receive(0, &frame).unwrap();
            let anew = FramePayload::parse(&frame, addresses[1], 4791).unwrap();
            assert_eq!(carried.bytes.len(), bytes);
            assert_eq!(carried.prefix, anew.prefix, "{bytes} bytes");
        }
        assert_eq!(here.wrap(0, &mut [0; 61], 20, to), None, "too short");
        assert_eq!(here.wrap(0, &mut [0; 70_000], 65_530, to), None, "too long");
    }
}

#[test]
fn recently_parsed_headers_do_not_hide_a_change() {
    for addresses in [["10.0.0.1", "10.0.0.2"], ["fe80::1", "fe80::2"]] {
        let addresses = addresses.map(|it| it.parse().unwrap());
        let [mut here, mut there] = met(addresses);
        let to = there.local();
        let frames = [40, 44, 48, 52, 56].map(|bytes| {
            let mut frame = vec![7; bytes + here.head_bytes()];
            here.wrap(0, &mut frame, bytes, to).unwrap();
            frame
        });
        for (at, bit) in (0..8 * here.head_bytes()).enumerate() {
            let whole = &frames[at % frames.len()];
            assert!(there.receive(0, whole).is_some());
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            for frame in [&changed[..], &whole[..whole.len() - 1], whole] {
                let anew = FramePayload::parse(frame, addresses[1], 4791);
                let recent = there.receive(0, frame);
                let of = |it: FramePayload<'_>| (it.prefix, it.bytes.len(), it.from, it.is_marked);
                assert_eq!(recent.map(of), anew.map(of), "bit {bit}");
            }
        }
    }
}

#[test]
fn arp_request_is_retried_then_packets_are_dropped() {
    let mut here = end(1);
    assert_eq!(wrap(&mut here, 0, b"x", "10.0.0.2:4791"), None);
    let (mut now_ns, mut requests) = (0, 0);
    while here.has_queued() {
        requests += u32::from(kept(&mut here, now_ns).is_some());
        now_ns += 10_000_000;
        assert!(now_ns < 10_000_000_000);
    }
    assert_eq!(requests, 8);
    // After the last request, the next packet starts resolution again.
    assert_eq!(wrap(&mut here, now_ns, b"x", "10.0.0.2:4791"), None);
    assert!(kept(&mut here, now_ns).is_some());
}

#[test]
fn stale_address_is_used_while_it_is_refreshed() {
    let mut here = end(1);
    assert_eq!(wrap(&mut here, 0, b"x", "10.0.0.2:4791"), None);
    let (_, request) = (kept(&mut here, 0), kept(&mut here, 0));
    assert_eq!(request, None);
    let mut there = end(2);
    assert_eq!(wrap(&mut there, 0, b"x", "10.0.0.1:4791"), None);
    // A request contains its sender's Ethernet address, which `here` records.
    let request = kept(&mut there, 0).unwrap();
    here.receive(0, &request);
    while kept(&mut here, 0).is_some() {}
    let late_ns = 61_000_000_000;
    assert!(wrap(&mut here, late_ns, b"y", "10.0.0.2:4791").is_some());
    assert_eq!(kept(&mut here, late_ns).unwrap()[..6], [0xff; 6]);
    let moved = Resolution {
        operation: ArpOperation::Reply,
        sender_mac: mac(9),
        sender: Ipv4Addr::new(10, 0, 0, 2).into(),
        target_mac: mac(1),
        target: Ipv4Addr::new(10, 0, 0, 1).into(),
    };
    let mut frame = [0; 60];
    moved.write(&mut frame);
    here.receive(late_ns, &frame);
    let after = wrap(&mut here, late_ns, b"y", "10.0.0.2:4791").unwrap();
    assert_eq!(after[..6], mac(9).0);
}

#[test]
fn off_subnet_packets_use_the_gateway() {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for (own, bits, gateway, near, far) in [
        ("10.0.0.1", 24, "10.0.0.254", "10.0.0.7", "10.0.1.7"),
        ("fd00::1", 64, "fd00::ff", "fd00::7", "fd00:0:0:1::7"),
    ] {
        let route = SubnetRoute {
            prefix_bits: bits,
            gateway: Some(address(gateway)),
        };
        let link = EthernetLink::new(mac(1), address(own), 4791, route);
        assert_eq!(link.next_hop(address(near)), address(near));
        assert_eq!(link.next_hop(address(far)), address(gateway));
    }
    let far = address("8.8.8.8");
    assert_eq!(end(1).next_hop(far), far);
}

#[test]
fn foreign_fragmented_and_truncated_frames_are_ignored() {
    let (mut here, mut there) = (end(1), end(2));
    assert_eq!(wrap(&mut here, 0, b"packet and sum", "10.0.0.2:4791"), None);
    let request = kept(&mut here, 0).unwrap();
    there.receive(0, &request);
    let answer = kept(&mut there, 0).unwrap();
    here.receive(0, &answer);
    let frame = kept(&mut here, 0).unwrap();
    assert!(there.receive(0, &frame).is_some());
    for bytes in 0..frame.len() {
        assert!(there.receive(0, &frame[..bytes]).is_none(), "{bytes}");
    }
    let changed = |at: usize, to: u8| {
        let mut frame = frame.clone();
        frame[at] = to;
        frame
    };
    let marked = changed(15, 3);
    assert!(there.receive(0, &marked).unwrap().is_marked);
    // Each pair changes one field: type, version, fragment, protocol, address, port.
    for (at, to) in [
        (13, 6),
        (14, 0x65),
        (20, 0x20),
        (21, 1),
        (23, 6),
        (33, 3),
        (37, 1),
    ] {
        assert!(there.receive(0, &changed(at, to)).is_none(), "{at}");
    }
    assert!(end(3).receive(0, &frame).is_none());
    // A request is ignored if its sender's Ethernet address is multicast, or if it is for another IP address.
    for (at, to) in [(22, 0xff), (39, 9)] {
        let mut forged = request.clone();
        forged[at] = to;
        let mut fresh = end(2);
        fresh.receive(0, &forged);
        assert!(!fresh.has_queued(), "{at}");
    }
}

fn end_of_six(last: u8) -> EthernetLink {
    let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xabcd, last.into());
    EthernetLink::new(mac(last), address.into(), 4791, NEAR)
}

#[test]
fn ipv6_neighbours_are_discovered() {
    let (mut here, mut there) = (end_of_six(1), end_of_six(2));
    assert_eq!(here.head_bytes(), HEAD_BYTES_MAX);
    assert_eq!(wrap(&mut here, 0, b"first", "[fd00::abcd:2]:4791"), None);
    // A destination of the other IP version: no frame is returned.
    assert_eq!(wrap(&mut here, 0, b"first", "10.0.0.2:4791"), None);
    let request = kept(&mut here, 0).unwrap();
    // The request goes to the solicited-node group: RFC 2464, 4291.
    assert_eq!(request[..6], [0x33, 0x33, 0xff, 0xcd, 0, 2]);
    let group: Ipv6Addr = "ff02::1:ffcd:2".parse().unwrap();
    assert_eq!(request[38..54], group.octets());
    assert_eq!((request[20], request[21], request[54]), (58, 255, 135));
    assert!(end_of_six(3).receive(0, &request).is_none());
    assert!(there.receive(0, &request).is_none());
    let answer = kept(&mut there, 0).unwrap();
    assert_eq!(
        (&answer[..6], answer[54], answer[58]),
        (&mac(1).0[..], 136, 0x60)
    );
    assert!(here.receive(0, &answer).is_none());
    let first = kept(&mut here, 0).unwrap();
    let carried = there.receive(0, &first).unwrap();
    assert_eq!((carried.bytes, carried.from), (&b"first"[..], here.local()));
    assert!(!carried.is_marked);
    let assumed = NetworkHeaders::assumed(here.local(), there.local(), 1).unwrap();
    assert_eq!(carried.prefix, IcrcPrefix::from(&assumed));
    let mut marked = first.clone();
    marked[15] |= 0x30;
    assert!(there.receive(0, &marked).unwrap().is_marked);
    assert!(!here.has_queued() && !there.has_queued());
}

#[test]
fn altered_neighbour_solicitation_is_ignored() {
    let mut here = end_of_six(1);
    assert_eq!(wrap(&mut here, 0, b"x", "[fd00::abcd:2]:4791"), None);
    let request = kept(&mut here, 0).unwrap();
    let is_accepted = |frame: &[u8]| {
        let mut there = end_of_six(2);
        there.receive(0, frame);
        there.has_queued()
    };
    assert!(is_accepted(&request));
    for bytes in 0..request.len() {
        assert!(!is_accepted(&request[..bytes]), "{bytes}");
    }
    // A request is ignored if a bit of the Ethernet type, or of any byte behind the flow label, is inverted.
    for at in (12..14).chain(18..request.len()) {
        let mut changed = request.clone();
        changed[at] ^= 1;
        assert!(!is_accepted(&changed), "{at}");
    }
}
