// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two ends of a link, and frames from elsewhere.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::format::NetworkHeaders;

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

/// The frame of a packet with these bytes; `None` if it is queued.
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
fn a_packet_waits_for_the_address_of_its_neighbour_and_others_do_not() {
    let (mut here, mut there) = (end(1), end(2));
    assert_eq!(wrap(&mut here, 0, b"first", "10.0.0.2:4791"), None);
    assert!(here.has_queued());
    let question = kept(&mut here, 0).unwrap();
    assert_eq!(question[..6], [0xff; 6]);
    assert_eq!(kept(&mut here, 0), None);
    assert!(there.receive(0, &question).is_none());
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
        assert_eq!(carried.network, assumed.unwrap());
    }
    // RFC 791: the header with its checksum adds up to ones.
    let words = first[14..34]
        .chunks(2)
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
    let sum: u32 = words.sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
}

#[test]
fn a_question_is_asked_again_for_a_while_and_then_packets_are_lost() {
    let mut here = end(1);
    assert_eq!(wrap(&mut here, 0, b"x", "10.0.0.2:4791"), None);
    let (mut now_ns, mut asked) = (0, 0);
    while here.has_queued() {
        asked += u32::from(kept(&mut here, now_ns).is_some());
        now_ns += 10_000_000;
        assert!(now_ns < 10_000_000_000);
    }
    assert_eq!(asked, 8);
    // The next packet starts resolution again.
    assert_eq!(wrap(&mut here, now_ns, b"x", "10.0.0.2:4791"), None);
    assert!(kept(&mut here, now_ns).is_some());
}

#[test]
fn an_old_address_serves_while_it_is_asked_for_again() {
    let mut here = end(1);
    assert_eq!(wrap(&mut here, 0, b"x", "10.0.0.2:4791"), None);
    let (_, question) = (kept(&mut here, 0), kept(&mut here, 0));
    assert_eq!(question, None);
    let mut there = end(2);
    assert_eq!(wrap(&mut there, 0, b"x", "10.0.0.1:4791"), None);
    // A request contains the address of the requester.
    let question = kept(&mut there, 0).unwrap();
    here.receive(0, &question);
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
fn what_is_not_near_goes_by_the_gateway() {
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
fn frames_for_others_fragments_and_halves_are_nothing() {
    let (mut here, mut there) = (end(1), end(2));
    assert_eq!(wrap(&mut here, 0, b"packet and sum", "10.0.0.2:4791"), None);
    let question = kept(&mut here, 0).unwrap();
    there.receive(0, &question);
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
    // Type, version, fragment, protocol, address, port.
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
    // A sender with a broadcast address is ignored, and an unknown one is not recorded.
    for (at, to) in [(22, 0xff), (39, 9)] {
        let mut forged = question.clone();
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
fn over_ipv6_neighbours_are_discovered() {
    let (mut here, mut there) = (end_of_six(1), end_of_six(2));
    assert_eq!(here.head_bytes(), HEAD_BYTES_MAX);
    assert_eq!(wrap(&mut here, 0, b"first", "[fd00::abcd:2]:4791"), None);
    // An address of the other version.
    assert_eq!(wrap(&mut here, 0, b"first", "10.0.0.2:4791"), None);
    let question = kept(&mut here, 0).unwrap();
    // To the solicited-node group: RFC 2464, 4291.
    assert_eq!(question[..6], [0x33, 0x33, 0xff, 0xcd, 0, 2]);
    let group: Ipv6Addr = "ff02::1:ffcd:2".parse().unwrap();
    assert_eq!(question[38..54], group.octets());
    assert_eq!((question[20], question[21], question[54]), (58, 255, 135));
    assert!(end_of_six(3).receive(0, &question).is_none());
    assert!(there.receive(0, &question).is_none());
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
    assert_eq!(carried.network, assumed);
    let mut marked = first.clone();
    marked[15] |= 0x30;
    assert!(there.receive(0, &marked).unwrap().is_marked);
    assert!(!here.has_queued() && !there.has_queued());
}

#[test]
fn what_is_wrong_with_a_question_of_ipv6_makes_it_nothing() {
    let mut here = end_of_six(1);
    assert_eq!(wrap(&mut here, 0, b"x", "[fd00::abcd:2]:4791"), None);
    let question = kept(&mut here, 0).unwrap();
    let is_heard = |frame: &[u8]| {
        let mut there = end_of_six(2);
        there.receive(0, frame);
        there.has_queued()
    };
    assert!(is_heard(&question));
    for bytes in 0..question.len() {
        assert!(!is_heard(&question[..bytes]), "{bytes}");
    }
    // Any bit behind the Ethernet header, except for traffic class and flow label.
    for at in (12..14).chain(18..question.len()) {
        let mut changed = question.clone();
        changed[at] ^= 1;
        assert!(!is_heard(&changed), "{at}");
    }
}
