// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks captured packets of `rdma_rxe`: their ICRCs are correct, and parsing and writing them again gives the same
//! bytes.

#[path = "common/capture.rs"]
mod capture;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use roce::format::{Headers, NetworkHeaders, PORT, Packet};
use roce::icrc::{self, Icrc};

#[test]
fn all_188_captured_checksums_verify() {
    let datagrams = capture::datagrams();
    assert_eq!(datagrams.len(), 188);
    for datagram in datagrams {
        let (network, carried) = NetworkHeaders::parse(datagram).unwrap();
        assert!(icrc::verify(&network, carried).is_some());
    }
}

#[test]
fn captured_packets_parse_and_headers_round_trip() {
    let mut seen = BTreeMap::new();
    for datagram in capture::datagrams() {
        let (network, carried) = NetworkHeaders::parse(datagram).unwrap();
        let bytes = icrc::verify(&network, carried).unwrap();
        let packet = Packet::parse(bytes).unwrap();
        *seen.entry(packet.bth.opcode.code()).or_insert(0) += 1;
        let again = headers(&packet);
        assert_eq!(bytes[..again.as_bytes().len()], *again.as_bytes());
        let behind = &bytes[again.as_bytes().len()..];
        assert_eq!(behind[..packet.payload.len()], *packet.payload);
        assert_eq!(
            behind.len() - packet.payload.len(),
            usize::from(packet.bth.pad)
        );
    }
    assert_eq!((seen[&0x11], seen[&0x0e], seen[&0x64]), (44, 15, 4));
    assert_eq!(seen.len(), 19);
}

#[test]
fn bit_flip_is_detected_except_in_mutable_fields() {
    let datagram = capture::datagrams()[0];
    let masked = [1, 8, 10, 11, 26, 27, 32];
    for bit in 0..datagram.len() * 8 {
        let mut flipped = datagram.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let found = NetworkHeaders::parse(&flipped)
            .is_ok_and(|(network, carried)| icrc::verify(&network, carried).is_some());
        assert_eq!(found, masked.contains(&(bit / 8)), "bit {bit}");
    }
}

#[test]
fn assumed_headers_equal_captured_headers_with_id_0() {
    let mut datagram = capture::datagrams()[0].to_vec();
    datagram[4..6].fill(0);
    let (network, carried) = NetworkHeaders::parse(&datagram).unwrap();
    let address = |at: usize, port| {
        let octets: [u8; 4] = datagram[at..at + 4].try_into().unwrap();
        SocketAddr::from((octets, port))
    };
    let source_port = u16::from_be_bytes([datagram[20], datagram[21]]);
    let bytes = u16::try_from(carried.len() - 4).unwrap();
    let assumed =
        NetworkHeaders::assumed(address(12, source_port), address(16, PORT), bytes).unwrap();
    assert_eq!(assumed, network);
    let packet = &carried[..carried.len() - 4];
    assert_eq!(
        Icrc::new(&assumed, packet).finish(),
        Icrc::new(&network, packet).finish()
    );
}

/// The headers of a packet, written again from the parsed fields.
fn headers(packet: &Packet<'_>) -> Headers {
    let mut headers = Headers::new(&packet.bth);
    if let Some(deth) = packet.deth() {
        headers = headers.deth(&deth);
    }
    if let Some(reth) = packet.reth() {
        headers = headers.reth(&reth);
    }
    if let Some(atomic) = packet.atomic() {
        headers = headers.atomic(&atomic);
    }
    if let Some(aeth) = packet.aeth() {
        headers = headers.aeth(&aeth);
    }
    if let Some(ack) = packet.atomic_ack() {
        headers = headers.atomic_ack(&ack);
    }
    if let Some(immediate) = packet.immediate() {
        headers = headers.immediate(&immediate);
    }
    headers
}
